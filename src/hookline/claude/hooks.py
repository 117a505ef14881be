"""`command:` and `shell:` hooks in the protocol of Claude Code, which kagent's hooks have too: process, condition, result.

They are also looked at before they are run: is the program there, and does its shell read the script?

`hookline answer` loads this for every event, so what only a process needs is imported where one is started.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hookline.claude.events import EVENTS, NAMES, PROJECT_FOLDERS, ClaudeEvent, event_of
from hookline.claude.payload import called_at, own_stdin_of, stdin_of, with_own_path
from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import Condition, Handler, HookDeclaration
from hookline.engine.point import Point
from hookline.engine.result import ALLOWED, HookAction, HookResult
from hookline.secrets import handed_on

if TYPE_CHECKING:
    from hookline.runners import Ending, Runner

PROJECT = PROJECT_FOLDERS["claude"]
"""The variable of Claude Code that names the project's folder."""
ENV_FILE = "CLAUDE_ENV_FILE"
"""The variable that names the file whose lines are sourced before each later shell call."""

_OF_SHELLS = (
    " . : alias bg break builtin case cd command continue declare echo eval exec exit export false fc fg for function"
    " getopts hash if jobs kill let local popd printf pushd pwd read readonly return select set shift shopt source test"
    " time times trap true type typeset ulimit umask unalias unset until wait while { "
)
"""Words that a shell knows itself."""


def argv_of(declared: HookDeclaration) -> list[str]:
    """The arguments of an entry's process; with the project's folder where Claude Code, and no shell, fills it in."""
    params = declared.params
    if declared.kind == "shell":
        return ["sh", "-c", params["script"]]
    if "event" not in params or "command" in params:
        return params["argv"]
    return [item.replace(f"${{{PROJECT}}}", os.getcwd()) for item in params["argv"]]


def missing_command(argv: Sequence[str], cwd: str | None) -> str | None:
    """An error text if there is no such program or script; also for the one plain command of `sh -c TEXT`, or behind
    the shell of an entry that `hookline install` writes."""
    from hookline.claude.clients import asked_by
    from hookline.runners.child import inside_shell, missing_program

    absent = missing_program(argv, cwd, os.environ)
    words = None if absent is not None else inside_shell(argv, os.environ)
    if words == []:
        words = asked_by(argv[2])
    if not words or f" {words[0]} " in _OF_SHELLS:
        return absent
    return missing_program(words, cwd, os.environ)


def script_fault(argv: Sequence[str]) -> str | None:
    """The mistake that the shell of `sh -c TEXT` finds in the text when it only reads it; None if there is none."""
    from hookline.runners.child import inside_shell

    if inside_shell(argv, {}) != []:
        return None  # no script, or one plain command
    import subprocess  # slow to load, and few files have a script

    try:
        done = subprocess.run([argv[0], "-n"], input=argv[2], capture_output=True, text=True, check=False)
    except OSError:
        return None  # that it is not there is told of the program
    if not done.returncode:
        return None
    return f"{argv[0]} -n: {done.stderr.strip()} (counted from the script's first line)"


def process_of(declared: HookDeclaration, runner: Runner) -> Handler:
    """The handler of an entry's `command:` or `shell:`."""
    from hookline.handlers.process import process_handler
    from hookline.hookfile.content import guarded, is_approved

    params = declared.params
    foreign = "event" in params
    theirs, own = {PROJECT: os.getcwd()} if foreign else {}, params.get("env", {})
    reads = params.get("output", declared.kind)
    handler = process_handler(
        argv_of(declared),
        runner,
        encode=stdin_of if foreign else own_stdin_of,
        decode=result_of if foreign else lambda ending, context: own_result_of(ending, context, reads),
        env={**(os.environ if foreign else handed_on(os.environ, params.get("handed", ()))), **theirs, **own},
        cwd=params.get("cwd"),
        timeout=declared.timeout,
        background_keep=params.get("background") == "keep",
        variables=_env_file if foreign else None,
    )
    return guarded(handler, declared.source) if is_approved(declared.source) else handler


def _env_file(context: HookContext) -> dict[str, Any]:
    """CLAUDE_ENV_FILE of our own agent's session, at its start; the file of a client is inherited."""
    workflow = context.facts.workflow
    path = workflow.env_file if workflow is not None else None
    return {ENV_FILE: path} if path and context.facts.point is Point.SESSION_START else {}


def when_of(declared: HookDeclaration) -> Condition | None:
    """The conditions of an entry as one: its `when:`, and `if` in the settings of Claude Code; None if it has none."""
    found: list[Condition] = []
    if declared.when is not None:
        from hookline.hookfile.condition import condition  # slow to load, and few entries have one

        found.append(condition(declared.when))
    rule = declared.params.get("if")
    if rule is not None:
        from hookline.claude.matchers import applies

        found.append(lambda context: applies(rule, context.current_tool or "", context.given.payload))
    if len(found) < 2:
        return found[0] if found else None
    return lambda context: all(met(context) for met in found)


def when_text(declared: HookDeclaration) -> str | None:
    """The conditions of an entry in one line."""
    rule = declared.params.get("if")
    parts = [] if declared.when is None else [json.dumps(declared.when, ensure_ascii=False)]
    return ", ".join([*parts, rule] if rule is not None else parts) or None


def result_of(
    ending: Ending, context: HookContext, *, reads_text: bool = True, event: str | None = None
) -> HookResult:
    """The result of an ended process, by Claude Code's rules for its event."""
    from hookline.claude.wire import decode  # slow to load

    code = ending.exit_code if ending.exit_code is not None else 1
    name = event or _event_at(context.facts)
    result = decode(name, code, ending.stdout.content, ending.stderr.content, reads_text=reads_text)
    return with_own_path(result, context)


def own_result_of(ending: Ending, context: HookContext, reads: str) -> HookResult:
    """The result of a hook of `hookline.yaml`, which means the same under every caller; `reads` is its `output` or kind."""
    from hookline.claude.wire import Reading, decode_by
    from hookline.engine.stdlib import replace
    from hookline.errors import HookBroke
    from hookline.handlers.process import with_last_lines

    facts = context.facts
    name, rules = _event_at(facts), _rules_at(facts)
    if reads == "http":
        rules = rules._replace(text="broke")
    elif reads in ("shell", "text") and (reads == "text" or rules.text != "path"):
        rules = rules._replace(text="record")
    answers = {"shell": "object", "text": "none"}.get(reads, "all")
    failed = None if answers == "all" else with_last_lines(ending.in_words(), ending)
    reading = Reading(name, rules, called_at(facts), answers, failed)
    code = ending.exit_code if ending.exit_code is not None else 1
    told = ending.stderr.text.strip()
    try:
        result = decode_by(reading, code, ending.stdout.content, ending.stderr.content)
    except HookBroke as exc:
        if not told or ending.stderr.last_lines() in str(exc):
            raise
        raise HookBroke(with_last_lines(str(exc), ending), kind=exc.kind) from exc
    if told and result.action is HookAction.CONTINUE:
        result = replace(result, error_message="\n".join(filter(None, (result.error_message, told))))
    return with_own_path(result, context)


_TEXTS = {
    Point.STEP_START: "broke",
    Point.TOOL_START: "broke",
    Point.MODEL_START: "broke",
    Point.AGENT_START: "context",
    Point.SESSION_START: "context",
}
"""The use of plain output at a point, for hooks of `hookline.yaml`; elsewhere it is kept on record."""


def _rules_at(facts: Facts) -> ClaudeEvent:
    """The rules of the event, with a refusal and plain output as they are at its point."""
    point, event = facts.point, EVENTS.get(_event_at(facts), ClaudeEvent())
    if isinstance(point, Point):
        refusal = "block" if point in ALLOWED[HookAction.BLOCK] else "end" if point.is_start else "none"
        return event._replace(refusal=refusal, text=_TEXTS.get(point, "record"))
    if event.text != "log":
        return event
    return event._replace(text="broke" if event.refusal == "block" else "record")


def _event_at(facts: Facts) -> str:
    """The event of Claude Code by whose rules an answer is read."""
    point = facts.point
    if isinstance(point, Point) and point not in NAMES:
        # If Claude Code has no event, a start is read as one before a tool, an end as one after it.
        return "PreToolUse" if point.is_start else "PostToolUse"
    return event_of(facts)
