"""Hooks of the command line hold for an agent that works in a sandbox of its own: they are asked, and answer from here."""

import json
from dataclasses import replace

import pytest

from hookline import HookContext, HookResult, hook
from hookline.engine.pipeline import Pipeline
from hookline.errors import UsageError
from hookline.handlers.python import python_hook
from hookline.sympozium.run.program import Outside, asking_hooks
from tests.sympozium.run.conftest import hook as container
from tests.sympozium.run.conftest import lifecycle


def guarded(ground, *functions):
    ground.site = replace(ground.site, hooks=tuple(python_hook(each) for each in functions))


def script(ground, *turns):
    file = ground.folder / "script.json"
    file.write_text(json.dumps(turns))
    return {"agent_command": (), "model": f"scripted/{file}"}


def calls(command):
    return {"tools": [{"name": "bash", "arguments": {"command": command}}]}


@pytest.mark.rule("sympozium C4")
async def test_a_guard_at_tool_start_refuses_and_the_model_is_told(ground):
    @hook(on="tool.start", match="kind:shell")
    def no_rm(ctx, hook_context):
        if "rm " in hook_context.current_payload["command"]:
            return HookResult.block("nothing is deleted")
        return HookResult.continue_with()

    guarded(ground, no_rm)
    agent = script(ground, calls("rm $TRUTH/x"), {"text": "kept", "expect": "nothing is deleted"})
    (ground.truth / "x").touch()
    ran = await ground.run({}, **agent)
    assert (ran.phase, ran.status["result"]) == ("Succeeded", "kept")
    assert (ground.truth / "x").exists()
    assert any(getattr(each, "hook", "") == "no_rm" and each.action == "block" for each in ground.records)


async def test_what_a_hook_changes_is_what_the_agent_does(ground):
    @hook(on="tool.start")
    def safer(ctx, hook_context):
        return HookResult.continue_with(modified_payload={"command": "echo changed > $TRUTH/x"})

    @hook(on="tool.end")
    def hides(ctx, hook_context):
        return HookResult.continue_with(modified_output={"output": "hidden"})

    guarded(ground, safer, hides)
    ran = await ground.run(
        {}, **script(ground, calls("echo as asked > $TRUTH/x"), {"text": "ok", "expect": "hidden"})
    )
    assert ran.phase == "Succeeded"
    assert ground.said("x") == "changed\n"


async def test_a_hook_that_fails_the_run_fails_it(ground):
    @hook(on="model.start")
    def stop(ctx, hook_context):
        return HookResult.fail("no model today")

    guarded(ground, stop)
    ran = await ground.run(lifecycle(after=[container("a", "touch $TRUTH/a")]), **script(ground, "hi"))
    assert ran.phase == "Failed"
    assert "no model today" in ran.status["error"]
    assert (ground.truth / "a").exists()


async def test_a_guard_that_cannot_be_asked_has_not_said_yes(ground):
    @hook(on="tool.start")
    def fine(ctx, hook_context):
        return HookResult.continue_with()

    guarded(ground, fine)
    before = [container("a", "mkdir $IPC_DIR/hooks.sock")]
    ran = await ground.run(lifecycle(before), **script(ground, calls("touch $TRUTH/x"), "hi"))
    assert not (ground.truth / "x").exists()
    assert ran.phase == "Failed"
    assert "could not ask the hooks" in ran.status["error"]


async def test_hooks_at_the_run_and_at_the_agent_hold_too(ground):
    said = []

    @hook(on=("run.start", "agent.start", "agent.end", "run.end"))
    def log(ctx, hook_context):
        said.append(str(hook_context.point))
        return HookResult.continue_with()

    guarded(ground, log)
    assert (await ground.run({})).phase == "Succeeded"
    assert said == ["run.start", "agent.start", "agent.end", "run.end"]


@pytest.mark.parametrize("word", ["answer", "block"])
async def test_a_hook_can_answer_in_the_agents_place_or_refuse_its_task(ground, word):
    @hook(on="agent.start")
    def instead(ctx, hook_context):
        return HookResult.answer("known already") if word == "answer" else HookResult.block("not this one")

    guarded(ground, instead)
    ran = await ground.run({}, agent_command=("sh", "-c", "touch $TRUTH/x"))
    assert not (ground.truth / "x").exists()
    if word == "answer":
        assert (ran.phase, ran.status["result"]) == ("Succeeded", "known already")
    else:
        assert ran.phase == "Failed"
        assert "not this one" in ran.status["error"]


async def test_a_guard_that_a_foreign_agent_would_never_ask_is_refused(ground):
    @hook(on="tool.start")
    def guard(ctx, hook_context):
        return HookResult.continue_with()

    guarded(ground, guard)
    with pytest.raises(UsageError, match=r"tool\.start.*--agent-command"):
        await ground.run({})


async def test_an_agent_whose_socket_is_gone_refuses_for_the_hooks_it_cannot_ask(tmp_path):
    pipeline = Pipeline(asking_hooks(Outside(tmp_path), "tool.start,tool.end"))
    context = HookContext(workflow_id="a", point="tool.start", current_payload={"command": "ls"})
    outcome = await pipeline.fire(context)
    assert outcome.action == "block"
    assert "could not be asked" in outcome.reason
