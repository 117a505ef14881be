"""Hooks that nobody waits for, with real processes."""

import asyncio
import os

import pytest

from hookline.engine.context import HookContext
from hookline.engine.result import CONTINUE, HookResult
from hookline.errors import HookBroke
from hookline.handlers.background import MOST, Background
from hookline.handlers.process import context_json, process_handler
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner


def context(run_id="r", **more):
    return HookContext(
        workflow_id="w", point="tool.start", run_id=run_id, current_payload={"command": "ls"}, **more
    )


def decode(ending, _context):
    if ending.exit_code == 2:
        return HookResult.block("no")
    if ending.exit_code:
        raise HookBroke(ending.in_words(), kind="exit")
    return CONTINUE


def sh(script, runner):
    argv = ["sh", "-c", script]
    return process_handler(argv, runner, decode=decode, encode=context_json, env=os.environ, timeout=None)


async def test_it_is_begun_and_not_waited_for(runner, tmp_path):
    background = Background(runner)
    gate = tmp_path / "gate"
    begin = background.handler("h", sh(f"until [ -f {gate} ]; do sleep 0.01; done", runner), pytest.fail)
    # It answers at once, though the hook cannot have ended.
    assert begin(None, context()) is CONTINUE
    gate.touch()
    ended = await background.end(None, context())
    assert (ended.action, ended.reason, ended.tell_user) == ("continue", "h: ended well", None)


async def test_what_did_not_end_well_is_told_and_all_is_on_record(runner):
    background = Background(runner)

    async def raises(_ctx, _context):
        raise LookupError("no such table")

    ways = {
        "well": sh("exit 0", runner),
        "no": sh("exit 2", runner),
        "three": sh("exit 3", runner),
        "raises": raises,
        "quick": lambda ctx, context: CONTINUE,
    }
    for name, way in ways.items():
        for _ in range(2):
            background.handler(name, way, pytest.fail)(None, context())
    ended = await background.end(None, context())
    told = [
        "no: said block, which does not count: no (2 times)",
        "three: broke: exited with 3 (2 times)",
        "raises: broke: LookupError: no such table (2 times)",
    ]
    assert ended.tell_user.splitlines() == told
    well = ["well: ended well (2 times)", "quick: ended well (2 times)"]
    assert sorted(ended.reason.splitlines()) == sorted([*told, *well])


async def test_the_end_of_a_run_ends_only_what_was_begun_in_it(runner, tmp_path):
    background = Background(runner)
    mark = tmp_path / "other"
    begin = background.handler("h", sh(f"echo > {mark}; exec sleep 1000", runner), pytest.fail)
    begin(None, context("other"))
    while not mark.exists():
        await asyncio.sleep(0.01)
    assert await background.end(None, context("r")) is CONTINUE
    assert tagged.carriers(runner.mark.encode()), "the other run's hook goes on"
    ended = await background.end(None, context("other"))
    assert "was still running and was ended with the run" in ended.tell_user
    assert tagged.carriers(runner.mark.encode()) == {}


async def test_all_files_of_a_run_share_the_places(runner, tmp_path):
    """Else two files of endless hooks would keep every other hook from starting."""
    several = [Background(runner), Background(runner)]
    for number in range(2 * MOST):
        script = f"echo > {tmp_path}/{number}; exec sleep 1000"
        several[number % 2].handler("h", sh(script, runner), pytest.fail)(None, context())
    while len(list(tmp_path.iterdir())) < MOST:
        await asyncio.sleep(0.01)
    # There is a place left for whoever is waited for, and he is served after those that queue.
    assert (await sh("exit 0", runner)(None, context())) is CONTINUE
    assert len(list(tmp_path.iterdir())) == MOST
    told = [(await each.end(None, context())).tell_user for each in several]
    assert "was never started" in "".join(told)


async def test_where_a_foreign_agent_asks_it_is_waited_for(runner):
    background = Background(runner)
    begin = background.handler("h", pytest.fail, sh("exit 2", runner))
    answered = await begin(None, context(native={"hook_event_name": "PreToolUse"}))
    assert answered.action == "block"
    assert await background.end(None, context()) is CONTINUE


async def test_a_runner_that_is_closed_ends_what_still_goes_on(tmp_path):
    runner = LocalRunner()
    background = Background(runner)
    mark = tmp_path / "begun"
    background.handler("h", sh(f"echo > {mark}; exec sleep 1000", runner), pytest.fail)(None, context())
    while not mark.exists():
        await asyncio.sleep(0.01)
    await runner.close()
    assert tagged.carriers(runner.mark.encode()) == {}
    assert "was stopped before it was done" in (await background.end(None, context())).tell_user
