"""Hook files made live: what the runner of a run cannot do is said, not left out."""

import json
import sys
from pathlib import Path

import pytest

from hookline.engine.context import HookContext
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.record import Called
from hookline.engine.result import WITHHELD
from hookline.hookfile.attach import attached
from hookline.hookfile.read import parse
from hookline.runners import Ending, Order
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner

WARM = """
hooks:
  - name: warm
    on: tool.start
    command: [PYTHON, answer.py]
    warm: fork
  - name: cold
    on: tool.start
    command: [PYTHON, answer.py]
"""


class Elsewhere:
    """A runner that is not the local one, as a sandbox would be."""

    capabilities = SandboxRunner.capabilities

    def __init__(self) -> None:
        self.inner = LocalRunner()
        self.ran: list[tuple[str, ...]] = []

    async def run(self, order: Order) -> Ending:
        self.ran.append(order.argv)
        return await self.inner.run(order)

    async def close(self) -> None:
        await self.inner.close()


@pytest.fixture
def file(tmp_path) -> Path:
    (tmp_path / "answer.py").write_text('print(\'{"decision": "block", "reason": "no"}\')')
    file = tmp_path / "hookline.yaml"
    file.write_text(WARM.replace("PYTHON", sys.executable).replace("answer.py", str(tmp_path / "answer.py")))
    return file


async def test_a_warm_hook_on_a_runner_that_keeps_none_warm_is_told_and_still_guards(file):
    runner = Elsewhere()
    found = attached(file, runner)
    assert found.problems == []
    assert [*map(str, found.notes)] == [
        f"{file}:3: hook warm: warm: fork is for processes of this machine; in the sandbox each call starts cold"
    ]
    context = HookContext(workflow_id="w", point="tool.start", current_tool="bash", current_payload={})
    try:
        outcome = await Pipeline(found.hooks).fire(context)
    finally:
        await runner.close()
    assert (outcome.action, outcome.hook) == ("block", "warm")
    assert len(runner.ran) == 1


async def test_on_this_machine_there_is_nothing_to_tell(file):
    runner = LocalRunner()
    assert attached(file, runner).notes == []
    await runner.close()


DENY = '{"decision": "block", "reason": "no"}'
GIVEN = {"file_path": "a.txt"}


def sh(script, **more):
    return {"shell": script, **more}


def says(text, **more):
    return {"command": ["echo", text], **more}


PLAIN = "answered plain text"
RESULTS = [
    # The point, the hook's keys, and its action and words; with None as the action it broke with these words.
    ("tool.start", sh("echo not today >&2; exit 2"), ("block", "not today")),
    ("tool.start", sh("echo not today; exit 2"), ("block", "not today")),
    ("tool.start", sh("echo why; exit 1"), (None, "exited with 1: why")),
    ("tool.start", sh(f"echo '{DENY}'"), ("block", "no")),
    ("tool.start", sh(f"echo '{DENY}'; exit 1", on_error="continue"), ("block", "no")),
    ("tool.start", sh("echo 3 passed"), ("continue", "")),
    ("tool.start", sh("echo '{half'"), (None, "is not JSON")),
    ("tool.start", sh("echo '{half'", output="text"), ("continue", "")),
    ("tool.start", sh("echo 3 passed", output="answer"), (None, PLAIN)),
    ("tool.start", says("3 passed"), (None, PLAIN)),
    ("tool.start", says("3 passed", output="text"), ("continue", "")),
    ("tool.start", says(DENY, output="text"), ("continue", "")),
    ("model.start", says("hm"), (None, PLAIN)),
    ("step.start", says("hm"), (None, PLAIN)),
    ("tool.end", says("hm"), ("continue", "")),
    ("agent.start", says("hm"), ("continue", "hm")),
    ("agent.start", sh("echo hm"), ("continue", "")),
    ("session.start", says("hm"), ("continue", "hm")),
    ("session.start", sh("echo shut >&2; exit 2"), ("fail", "shut")),
    ("run.start", says(DENY), ("fail", "no")),
    ("tool.end", sh("echo wrong >&2; exit 2"), ("block", "wrong")),
    ("run.end", sh("echo late >&2; exit 2"), (None, "nothing to refuse here: late")),
    ("x.codex.Interrupt", sh("echo heard >&2; exit 2"), ("continue", "heard")),
    ("x.gemini.BeforeToolSelection", says("hm"), ("continue", "")),
    ("x.codex.PermissionRequest", says(DENY), ("block", "no")),
    ("x.claude.PermissionRequest", says("fine"), (None, PLAIN)),
    ("x.claude.ConfigChange", sh("echo kept >&2; exit 2"), ("block", "kept")),
]


async def fired(folder, keys, *watchers, **facts):
    """The outcome at a point of the one hook in a file, with these keys."""
    file = folder / "hookline.yaml"
    file.write_text(json.dumps({"hooks": [{"name": "a", "on": facts["point"], **keys}]}))
    runner = LocalRunner()
    try:
        found = attached(file, runner)
        assert found.problems == []
        context = HookContext(workflow_id="w", run_id="r1", current_tool="bash", **facts)
        return await Pipeline(found.hooks, Recorder(watchers=watchers)).fire(context)
    finally:
        await runner.close()


@pytest.mark.parametrize(("point", "keys", "expected"), RESULTS, ids=map(str, range(len(RESULTS))))
async def test_a_script_and_a_command_are_read_by_the_rules_of_their_point(tmp_path, point, keys, expected):
    records = []
    outcome = await fired(tmp_path, keys, records.append, point=point, current_payload=GIVEN)
    action, words = expected
    [called] = [each for each in records if isinstance(each, Called)]
    if action is None:
        assert words in (called.error or "")
        return
    assert called.error is None
    told = "\n".join((*outcome.tell_model, *outcome.tell_user))
    assert (outcome.action, outcome.reason or told) == expected
    if (action, words) == ("continue", ""):
        assert called.reason, "what it printed is kept on record"


@pytest.mark.parametrize(
    "keys", [sh("cat > seen"), {"command": ["sh", "-c", "cat > seen"]}], ids=["shell", "command"]
)
@pytest.mark.parametrize(
    ("point", "native", "wanted"),
    [
        ("tool.start", None, {"hook_event_name": "PreToolUse", "tool_name": "bash", "tool_input": GIVEN}),
        ("tool.end", None, {"hook_event_name": "PostToolUse", "tool_response": "out", "status": "ok"}),
        ("model.end", None, {"hook_event_name": "AfterModel", "llm_request": GIVEN, "llm_response": "out"}),
        ("run.end", None, {"hook_event_name": "run.end", "current_output": "out", "point": "run.end"}),
        ("x.gemini.PreCompress", {"hook_event_name": "PreCompress", "trigger": "auto"}, {"trigger": "auto"}),
    ],
)  # fmt: skip
async def test_a_script_and_a_command_read_the_event_of_the_protocol(tmp_path, keys, point, native, wanted):
    facts = {"status": "ok", "current_output": "out"} if point.endswith("end") else {}
    await fired(tmp_path, {**keys, "cwd": "."}, point=point, native=native, current_payload=GIVEN, **facts)
    seen = json.loads((tmp_path / "seen").read_text())
    assert {key: seen[key] for key in wanted} == wanted
    assert (seen["run_id"], seen["current_payload"]) == ("r1", GIVEN)
    assert native is not None or {"session_id", "cwd"} < seen.keys()


@pytest.mark.parametrize("point", ["tool.end", "model.end", "agent.end"])
async def test_a_hook_that_says_it_masks_withholds_the_output_where_it_breaks(tmp_path, point):
    outcome = await fired(tmp_path, sh("exit 1", changes="output"), point=point, current_output="secret")
    assert (outcome.action, outcome.output) == ("continue", WITHHELD)
    watched = sh("exit 1", changes="output", mode="observe")
    assert (await fired(tmp_path, watched, point=point, current_output="secret")).output == "secret"


async def test_a_masking_hook_that_breaks_before_anything_ran_refuses(tmp_path):
    keys = {"on": ["agent.start", "agent.end"], **sh("exit 1", on_error="withhold")}
    assert (await fired(tmp_path, keys, point="agent.start", current_payload="x")).action == "block"


@pytest.mark.parametrize("key", ["on_error: withhold", "changes: output"])
def test_there_is_nothing_to_withhold_at_a_start(key):
    [problem] = parse(f"hooks:\n  - {{name: a, on: tool.start, {key}, shell: 'true'}}\n").problems
    assert "is for tool.end, model.end, agent.end" in str(problem)
