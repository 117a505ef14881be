"""The prompt of an attempt: strict Liquid, with every mistake at its line in WORKFLOW.md."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hookline.errors import needs
from hookline.symphony.read import Workflow, WorkflowError
from hookline.symphony.trackers import Blocker, Issue, issue_values

DEFAULT_PROMPT = """\
You are working on issue {{ issue.identifier }}: {{ issue.title }}
{% if issue.description %}
{{ issue.description }}
{% endif %}
The current folder is this issue's own workspace. Do the work there, and say at the end what you did."""
"""For a WORKFLOW.md with nothing below its front matter."""

_LOOPS = 100_000
_OUTPUT = 4_000_000
"""Bytes of one prompt; a template that goes on without end is stopped there."""


def rendered(workflow: Workflow, issue: Issue, attempt: int | None) -> str:
    """The prompt for an issue; `attempt` is None the first time. A template that cannot be filled is a WorkflowError."""
    # Imported here: whoever only schedules does not need a template engine.
    with needs("a WORKFLOW.md", "orchestrator"):
        from liquid.exceptions import LiquidError

    body = workflow.prompt or DEFAULT_PROMPT
    kind = "template_parse_error"
    try:
        template = _environment().from_string(body)
        kind = "template_render_error"
        return str(template.render(issue=issue_values(issue), attempt=attempt)).strip()
    except LiquidError as exc:
        raise _wrong(workflow, exc, kind) from exc
    except RecursionError as exc:
        raise WorkflowError(
            "the template is nested too deep", kind=kind, file=workflow.file, line=workflow.prompt_line
        ) from exc


def fault_of(workflow: Workflow) -> WorkflowError | None:
    """The mistake in the prompt, if rendering it for an issue with every field shows one."""
    now = datetime.now(UTC)
    issue = Issue(
        id="1",
        identifier="ABC-1",
        title="title",
        state="Todo",
        native_ref="1",
        description="description",
        priority=1,
        branch_name="branch",
        url="https://example.test",
        assignee_id="1",
        labels=("label",),
        blocked_by=(Blocker(id="2", identifier="ABC-2", state="Done"),),
        created_at=now,
        updated_at=now,
    )
    for attempt in (None, 1):
        try:
            rendered(workflow, issue, attempt)
        except WorkflowError as exc:
            return exc
    return None


def guidance(turn: int, max_turns: int) -> str:
    """The prompt of the second turn and later: the agent has the first one already."""
    return (
        f"The issue is still open. This is turn {turn} of at most {max_turns}. Go on from where you stopped, in the"
        " same workspace; do not begin again. Where nothing is left to do, say so."
    )


def _environment() -> Any:
    from liquid import Environment, Mode, StrictUndefined

    class Bounded(Environment):
        loop_iteration_limit = _LOOPS
        output_stream_limit = _OUTPUT
        context_depth_limit = 30

    return Bounded(undefined=StrictUndefined, tolerance=Mode.STRICT, strict_filters=True)


def _wrong(workflow: Workflow, exc: Any, kind: str) -> WorkflowError:
    token: Any = exc.token
    # What is missing at the end has no place of its own.
    line = token.source.count("\n", 0, max(0, token.start_index)) if token is not None else 0
    text = str(exc.args[0]) if exc.args else type(exc).__name__
    hint = _HINTS.get(type(exc).__name__, "")
    return WorkflowError(
        f"the prompt cannot be filled: {text}{hint}",
        kind=kind,
        file=workflow.file,
        line=(workflow.prompt_line + line) if workflow.prompt else None,
    )


_HINTS = {
    "UndefinedError": "; known are `issue` with the fields of an issue, and `attempt`, which is null at first",
    "UnknownFilterError": "; known are the filters of Liquid",
    "TemplateNotFoundError": " is not there: a prompt is one file and cannot include others",
    "LoopIterationLimitError": f"; a prompt has at most {_LOOPS} rounds of loops",
    "OutputStreamLimitError": f"; a prompt has at most {_OUTPUT // 1_000_000} MB",
}
