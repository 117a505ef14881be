"""Limits and cancellation: what was begun is ended, its end hooks are told how, and nothing waits for ever."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from hookline import (
    Agent,
    AgentFailed,
    HookFailed,
    HookResult,
    ModelFailed,
    RunTimedOut,
    Scripted,
    hook,
    tool,
)
from hookline.agent.run import AgentExecution, Session
from hookline.agent.spec import Spec
from hookline.engine.context import AgentConfig
from hookline.engine.lifecycle import Run
from hookline.engine.record import Begun, Called, Ended, owed
from tests.agents import Seen, calls

CONTINUE = HookResult.continue_with()
ENDS = ("on_tool_end", "on_agent_step_end", "on_end", "on_session_end", "on_run_end")
END_POINTS = ["tool.end", "step.end", "agent.end", "session.end", "run.end"]


class Hanging:
    """A tool that never returns, and says when it has begun."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()

        @tool
        async def hangs() -> str:
            self.begun.set()
            await asyncio.Event().wait()
            return "never"

        self.tool = hangs

    def agent(self, **given: Any) -> Agent:
        return Agent(id="a", model=Scripted([calls("hangs")]), tools=[self.tool], **given)


async def test_a_run_past_its_limit_ends_as_timed_out_and_all_ends_are_told() -> None:
    seen = Seen()
    agent = Hanging().agent(**seen.everywhere(*ENDS), timeout=0.05)

    with pytest.raises(RunTimedOut, match=r"passed its limit of 0.05 s") as caught:
        await agent.run("hi")

    assert seen.points == END_POINTS
    assert {context.status for context in seen.contexts} == {"timed_out"}
    assert caught.value.run_id == seen.contexts[0].run_id


async def test_the_limit_of_a_run_beats_the_agents_own() -> None:
    with pytest.raises(RunTimedOut, match=r"0.02 s"):
        await Hanging().agent(timeout=60).run("hi", timeout=0.02)


async def test_a_run_past_its_limit_while_a_hook_is_at_work_ends_as_timed_out() -> None:
    seen = Seen()

    async def hangs(ctx: Any, hook_context: Any) -> HookResult:
        await asyncio.Event().wait()
        return CONTINUE

    agent = Agent(id="a", model=Scripted(["ok"]), on_model_start=[hangs], on_end=[seen.noting()])
    with pytest.raises(RunTimedOut):
        await agent.run("hi", timeout=0.02)
    assert seen.only("agent.end").status == "timed_out"


async def test_a_timeout_error_inside_the_run_is_not_its_limit() -> None:
    class Slow:
        provider, name = "test", "slow"

        async def stream(self, request: Any) -> Any:
            raise TimeoutError("the socket")
            yield

        async def close(self) -> None: ...

    with pytest.raises(TimeoutError, match="the socket"):
        await Agent(id="a", model=Slow()).run("hi", timeout=60)


async def test_a_cancelled_run_runs_its_end_hooks_innermost_first_and_tells_them() -> None:
    seen = Seen()
    hanging = Hanging()
    records: list[Any] = []
    task = asyncio.ensure_future(hanging.agent(**seen.everywhere(*ENDS)).run("hi", watch=[records.append]))
    await hanging.begun.wait()

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert seen.points == END_POINTS
    assert {context.status for context in seen.contexts} == {"cancelled"}
    begun = [record.scope_id for record in records if isinstance(record, Begun)]
    assert sorted(record.scope_id for record in records if isinstance(record, Ended)) == sorted(begun)


async def test_all_tools_of_the_step_are_ended_and_each_end_is_told_how_its_own_tool_ended() -> None:
    seen = Seen()
    hanging = Hanging()

    @tool
    async def quick() -> str:
        return "quick"

    agent = Agent(
        id="a",
        model=Scripted([calls("quick", "hangs")]),
        tools=[quick, hanging.tool],
        on_tool_end=[seen.noting()],
    )
    task = asyncio.ensure_future(agent.run("hi"))
    await hanging.begun.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [(context.current_tool, context.status) for context in seen.contexts] == [
        ("quick", "ok"),
        ("hangs", "cancelled"),
    ]


async def test_an_end_hook_that_is_at_work_when_the_run_is_cancelled_finishes() -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()
    finished: list[str] = []

    async def cleans_up(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        await go_on.wait()
        finished.append("cleaned up")
        return CONTINUE

    task = asyncio.ensure_future(Agent(id="a", model=Scripted(["ok"]), on_end=[cleans_up]).run("hi"))
    await at_work.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert finished == ["cleaned up"]


async def test_a_run_cancelled_while_one_tool_ends_still_ends_the_others_of_the_step() -> None:
    at_work, go_on = asyncio.Event(), asyncio.Event()
    ended: list[Any] = []

    async def cleans_up(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        await go_on.wait()
        ended.append((hook_context.call_id, hook_context.status))
        return CONTINUE

    @tool
    async def quick() -> str:
        return "quick"

    agent = Agent(id="a", model=Scripted([calls("quick", "quick")]), tools=[quick], on_tool_end=[cleans_up])
    records: list[Any] = []
    task = asyncio.ensure_future(agent.run("hi", watch=[records.append]))
    await at_work.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [status for _, status in ended] == ["ok", "ok"]
    assert owed(records) == []


async def test_a_second_cancel_ends_the_end_hook_that_is_at_work() -> None:
    hanging = Hanging()
    at_work = asyncio.Event()
    ended: list[str] = []

    @hook(timeout=None)
    async def never_done(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return CONTINUE

    records: list[Any] = []
    later = Seen()
    agent = hanging.agent(on_end=[never_done], **later.everywhere("on_run_end"))
    task = asyncio.ensure_future(agent.run("hi", watch=[records.append]))
    await hanging.begun.wait()
    task.cancel()
    await at_work.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == ["ended"]
    (called,) = [record for record in records if isinstance(record, Called)]
    assert called.error_kind == "cancelled"
    assert later.points == []
    assert [str(record.error) for record in records if isinstance(record, Ended)][-3:] == [
        "CancelledError; its end hooks were interrupted",
        "CancelledError",
        "CancelledError; its end hooks did not run",
    ]


def running(agent: Agent, *, end_grace: float) -> AgentExecution:
    """A run whose end hooks have less time after a cancel than they usually have."""
    tools = {each.id: each for each in agent.tools}
    assert not isinstance(agent.model, str)
    config = AgentConfig(name=agent.id, provider=agent.model.provider, model=agent.model.name)
    spec = Spec(config=config, model=agent.model, tools=tools, hooks=agent.hooks())
    return AgentExecution(spec=spec, run=Run(end_grace=end_grace), session=Session(id="s"))


async def test_end_hooks_after_a_cancel_have_a_grace_and_no_more() -> None:
    hanging = Hanging()
    ended: list[str] = []

    @hook(timeout=None)
    async def never_done(ctx: Any, hook_context: Any) -> HookResult:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("ended")
        return CONTINUE

    task = asyncio.ensure_future(running(hanging.agent(on_end=[never_done]), end_grace=0.02).answer("hi"))
    await hanging.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert ended == ["ended"]


async def test_a_tool_that_ignores_cancellation_for_a_while_is_waited_for() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()
    done: list[str] = []

    @tool
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go_on.wait()
            done.append("put in order")
        return "never"

    seen = Seen()
    agent = Agent(id="a", model=Scripted([calls("stubborn")]), tools=[stubborn], on_tool_end=[seen.noting()])
    task = asyncio.ensure_future(agent.run("hi"))
    await begun.wait()
    task.cancel()
    asyncio.get_running_loop().call_soon(go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert done == ["put in order"]
    assert seen.points == ["tool.end"]


class Silent:
    """A model that never answers."""

    provider, name = "test", "silent"

    async def stream(self, request: Any) -> Any:
        await asyncio.Event().wait()
        yield

    async def close(self) -> None: ...


@pytest.mark.parametrize("limit", ["of the tool", "of the agent", "of the agent, caught by the tool"])
async def test_a_part_that_passed_its_limit_takes_no_time_from_the_ends_of_the_run(limit: str) -> None:
    """What is inside is cancelled, and that must not start the clock for the ends of the whole run."""
    seen = Seen()
    inner = Agent(id="inner", model=Silent(), timeout=None if limit == "of the tool" else 0.01)

    @tool(id="inner")
    async def catching(input: str) -> str:
        try:
            await inner.run(input)
        except AgentFailed as exc:
            return f"never mind: {exc}"
        return "not reached"

    made = {
        "of the tool": replace(inner.as_tool(), timeout=0.01),
        "of the agent": inner.as_tool(),
        "of the agent, caught by the tool": catching,
    }

    async def slow(ctx: Any, hook_context: Any) -> HookResult:
        for _ in range(20):
            await asyncio.sleep(0)
        return seen.noting()(ctx, hook_context)

    script = Scripted([calls(("inner", {"input": "x"})), {"error": "down"}])
    outer = Agent(id="outer", model=script, tools=[made[limit]], on_end=[slow])

    with pytest.raises(ModelFailed, match="down"):
        await running(outer, end_grace=0.0).answer("hi")

    assert seen.points == ["agent.end"]
    status = seen.contexts[0].steps[0].tool_results[0].status
    assert status == ("ok" if "caught" in limit else "timed_out")


async def test_a_hook_that_fails_the_run_in_one_tool_ends_the_others_of_its_step() -> None:
    seen = Seen()
    hanging = Hanging()

    async def fails_inside(ctx: Any, hook_context: Any) -> HookResult:
        await hanging.begun.wait()
        return HookResult.fail("inner says no")

    inner = Agent(id="inner", model=Scripted(["x"]), on_start=[fails_inside])
    agent = Agent(
        id="a",
        model=Scripted([calls(("inner", {"input": "x"}), "hangs")]),
        tools=[inner, hanging.tool],
        on_tool_end=[seen.noting()],
    )

    with pytest.raises(HookFailed, match="inner says no"):
        await agent.run("hi")

    assert [(context.current_tool, context.status) for context in seen.contexts] == [
        ("inner", "failed"),
        ("hangs", "cancelled"),
    ]
