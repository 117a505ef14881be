"""Hooks that are images: 0 goes on, anything else broke, and the last lines say why."""

import pytest

from hookline.engine.context import HookContext, WorkflowContext
from hookline.engine.result import CONTINUE
from hookline.errors import HookBroke
from hookline.handlers.process import container_handler

CONTEXT = HookContext(workflow_id="w", point="run.end", run_id="r1", status="failed", current_output="out")


def handler_of(script, runner, shell=("sh", "-c"), env=None, timeout=60.0):
    """Run on this machine, where no image is looked at."""
    command = (*shell, script)
    return container_handler(
        "some/image", runner, command=command, args=(), env=env or {}, network=False, timeout=timeout
    )


async def broken(handler) -> HookBroke:
    with pytest.raises(HookBroke) as told:
        await handler(None, CONTEXT)
    return told.value


async def test_zero_goes_on_whatever_was_printed(runner):
    assert await handler_of('echo \'{"decision": "block"}\'', runner)(None, CONTEXT) is CONTINUE


@pytest.mark.parametrize("code", [1, 2, 127])
async def test_anything_else_broke_with_the_last_lines_of_output(runner, code):
    error = await broken(handler_of(f"seq 20; echo bad >&2; exit {code}", runner))
    assert error.kind == "exit"
    assert str(error) == f"exited with {code}: 17\n18\n19\n20\nbad"


async def test_it_gets_variables_and_the_context(runner, tmp_path):
    script = 'echo "$HOOKLINE_POINT $HOOKLINE_RUN_ID $HOOKLINE_STATUS $EXTRA" > seen; cat > given'
    env = {"PATH": "/usr/bin:/bin", "EXTRA": "more"}
    ctx = WorkflowContext(workflow_id="w", workspace=str(tmp_path))
    assert await handler_of(script, runner, env=env)(ctx, CONTEXT) is CONTINUE
    assert (tmp_path / "seen").read_text() == "run.end r1 failed more\n"
    assert HookContext.from_dict(__import__("json").loads((tmp_path / "given").read_text())) == CONTEXT


async def test_the_shell_can_be_another(runner):
    script = "[[ -n $BASH_VERSION ]]"
    assert await handler_of(script, runner, shell=("bash", "-euc"))(None, CONTEXT) is CONTINUE


async def test_limit_signal_and_missing_shell_broke_as_what_they_are(runner):
    late = await broken(handler_of("echo begun; sleep 60", runner, timeout=0.2))
    assert (late.kind, str(late)) == ("timed_out", "ran past its limit of 0.2 s: begun")
    killed = await broken(handler_of("kill -9 $$", runner))
    assert (killed.kind, str(killed)) == ("exit", "was killed by SIGKILL")
    absent = await broken(handler_of("true", runner, shell=("no-such-shell", "-c")))
    assert absent.kind == "not_started"
