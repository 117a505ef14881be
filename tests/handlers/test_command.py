"""Command hooks with real processes; what an ending means is passed in."""

import asyncio
import json
import os
import sys

import pytest

from hookline.claude.hooks import process_of
from hookline.claude.settings import declared
from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.hook import Hook, OnError
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point
from hookline.engine.result import HookAction, HookResult
from hookline.errors import HookBroke
from hookline.handlers.process import context_json, process_handler
from hookline.runners import Ending
from hookline.runners import tags as tagged

CONTEXT = HookContext(
    workflow_id="w", point="tool.start", run_id="r1", current_tool="bash", current_payload={"command": "ls"}
)


def decode(ending: Ending, _context: HookContext) -> HookResult:
    if ending.exit_code == 2:
        return HookResult.block(ending.stderr.text.strip())
    if ending.exit_code != 0:
        raise HookBroke(ending.in_words(), kind="exit")
    return HookResult.continue_with(modified_payload=json.loads(ending.stdout.content))


def run(argv: list[str], runner, **more):
    usual = {"decode": decode, "encode": context_json, "env": os.environ, "timeout": 60.0}
    return process_handler(argv, runner, **{**usual, **more})


def sh(script: str, runner, **more):
    return run(["sh", "-c", script], runner, **more)


def never(_ending: Ending, _context: HookContext) -> HookResult:
    pytest.fail("nothing to decode")


async def test_the_context_goes_in_and_what_comes_out_is_decoded(runner):
    code = "import json, sys; print(json.dumps({'was': json.load(sys.stdin)['current_payload']['command']}))"
    handler = run([sys.executable, "-c", code], runner)
    assert (await handler(None, CONTEXT)).modified_payload == {"was": "ls"}


async def test_encode_says_what_the_hook_reads(runner):
    handler = sh("cat", runner, encode=lambda context: json.dumps({"tool": context.current_tool}).encode())
    assert (await handler(None, CONTEXT)).modified_payload == {"tool": "bash"}


async def test_a_refusal_is_the_dialects_to_read(runner):
    answer = await sh("echo not that >&2; exit 2", runner)(None, CONTEXT)
    assert (answer.action, answer.reason) == (HookAction.BLOCK, "not that")


async def test_a_command_without_a_shell_finds_its_project_in_its_arguments(runner, tmp_path, monkeypatch):
    (tmp_path / "a b.sh").write_text("echo from the project >&2; exit 2\n")
    monkeypatch.chdir(tmp_path)
    entry = {"type": "command", "command": "sh", "args": ["${CLAUDE_PROJECT_DIR}/a b.sh"]}
    settings = {"hooks": {"PreToolUse": [{"hooks": [entry]}]}}
    [found] = declared(json.dumps(settings), "settings.json").hooks
    answer = await process_of(found, runner)(None, CONTEXT)
    assert (answer.action, answer.reason) == (HookAction.BLOCK, "from the project")


async def test_a_hook_gets_the_variables_and_its_folder(runner, tmp_path):
    script = 'printf \'{"said": "%s %s %s"}\' $HOOKLINE_POINT $HOOKLINE_TOOL $PWD'
    handler = sh(script, runner, env={"PATH": "/usr/bin:/bin"})
    ctx = WorkflowContext(workflow_id="w", workspace=str(tmp_path))
    assert (await handler(ctx, CONTEXT)).modified_payload == {"said": f"tool.start bash {tmp_path}"}


@pytest.mark.parametrize(
    ("argv", "kind", "said"),
    [
        (["no-such-program"], "not_started", "could not start: 'no-such-program' was not found"),
        ([sys.executable, "missing.py"], "not_started", "could not start: "),
        (["sleep", "60"], "timed_out", "ran past its limit of 0.1 s"),
        (["sh", "-c", "echo why >&2; kill -9 $$"], "exit", "was killed by SIGKILL: why"),
    ],
)
async def test_one_without_an_exit_code_of_its_own_broke_and_is_not_decoded(runner, argv, kind, said):
    handler = run(argv, runner, decode=never, timeout=0.1)
    with pytest.raises(HookBroke) as told:
        await handler(None, CONTEXT)
    assert told.value.kind == kind
    assert str(told.value).startswith(said)


async def test_exit_2_because_the_script_is_missing_is_no_refusal(runner, tmp_path):
    handler = run(["python3", "guard.py"], runner, cwd=str(tmp_path))
    with pytest.raises(HookBroke, match=r"guard\.py.*no such file") as told:
        await handler(None, CONTEXT)
    assert told.value.kind == "not_started"


async def test_a_tool_name_that_no_variable_can_hold_does_not_keep_a_guard_from_running(runner):
    for name in ("a\0b", "\ud800", "x" * 1_000_000):
        odd = HookContext(workflow_id="w", point="tool.start", current_tool=name)
        answer = await sh("echo guarded >&2; exit 2", runner)(None, odd)
        assert answer.reason == "guarded"


def hook(handler, **more) -> Hook:
    return Hook(
        name="guard",
        points=frozenset[Point | str]({Point.TOOL_START}),
        handler=handler,
        kind="command",
        limits_itself=True,
        **more,
    )


async def test_under_the_pipeline_a_hook_that_broke_follows_its_on_error(runner):
    guard = hook(sh("sleep 60", runner, timeout=0.1), timeout=0.1, on_error=OnError.BLOCK)
    outcome = await Pipeline([guard]).fire(CONTEXT)
    assert outcome.action is HookAction.BLOCK
    assert "ran past its limit of 0.1 s" in outcome.reasons[0].text


async def test_cancelling_the_pipeline_ends_the_process(runner):
    guard = hook(sh("trap '' TERM; setsid sleep 60 & while :; do sleep 1; done", runner))
    firing = asyncio.create_task(Pipeline([guard]).fire(CONTEXT))
    while len(tagged.carriers(runner.mark.encode())) < 2:
        await asyncio.sleep(0.005)
    firing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await firing
    assert not tagged.carriers(runner.mark.encode())
