"""Agents inside agents: whose hooks hold where, what the context says, and how an inner verdict travels."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hookline import (
    Agent,
    HookContext,
    HookFailed,
    HookResult,
    Scripted,
    Skipped,
    SqliteJournal,
    UsageError,
    WorkflowContext,
    executed_tool,
    hook,
    tool,
)
from hookline.engine.record import Begun, Called, Decided, Ended
from tests.agents import Seen, answering, calls, texts

CONTINUE = HookResult.continue_with()


@tool
def echo(text: str = "") -> str:
    return text


def inner(*turns: Any, **given: Any) -> Agent:
    return Agent(
        id="inner",
        model=Scripted(list(turns) or ["from inside"]),
        description="Ask inside.",
        tools=[echo],
        **given,
    )


def as_tool(sub: Agent) -> Any:
    return sub


def from_an_async_tool(sub: Agent) -> Any:
    @tool(id="inner")
    async def ask(input: str) -> Any:
        return (await sub.run(input)).result

    return ask


def from_a_sync_tool(sub: Agent) -> Any:
    @tool(id="inner")
    def ask(input: str) -> Any:
        return asyncio.run(sub.run(input)).result

    return ask


def from_a_stream(sub: Agent) -> Any:
    @tool(id="inner")
    async def ask(input: str) -> Any:
        return await sub.stream(input).text()

    return ask


def from_a_stream_in_a_sync_tool(sub: Agent) -> Any:
    @tool(id="inner")
    def ask(input: str) -> Any:
        async def follow() -> str:
            return await sub.stream(input).text()

        return asyncio.run(follow())

    return ask


WAYS = [as_tool, from_an_async_tool, from_a_sync_tool, from_a_stream, from_a_stream_in_a_sync_tool]
every_way = pytest.mark.parametrize("way", WAYS)


def outer(sub: Agent, way: Callable[[Agent], Any] = as_tool, *turns: Any, **given: Any) -> Agent:
    script = [*(turns or [calls(("inner", {"input": "question"}))]), "done"]
    return Agent(id="outer", model=Scripted(script), tools=[way(sub)], **given)


def run_level(seen: Seen, *points: str, result: Any = None) -> Any:
    return hook(on=points, inline=True)(seen.noting(result))


@every_way
async def test_an_agent_answers_as_a_tool_of_another(way: Any) -> None:
    sub = inner()
    result = await outer(sub, way).run("hi")
    assert result.result == "done"
    assert result.tool_results[0].result == "from inside"
    assert texts(sub.model.requests[0]) == ["question"]


async def test_the_model_is_told_that_an_inner_agent_was_stopped_without_an_answer() -> None:
    sub = inner(calls("echo"), stop_conditions=[executed_tool(tool_names=["echo"])])
    result = await outer(sub).run("hi")
    assert "there is no answer: the agent was stopped by executed_tool" in result.tool_results[0].result


def test_the_model_is_told_of_an_agent_as_of_a_tool() -> None:
    made = inner().as_tool()
    assert (made.id, made.description, made.kind) == ("inner", "Ask inside.", "agent")
    assert made.parameters["required"] == ["input"]


@every_way
async def test_hooks_of_the_run_hold_in_every_agent_of_it(way: Any) -> None:
    seen = Seen()
    sub = inner(calls(("echo", {"text": "deep"})), "from inside")

    await outer(sub, way).run("hi", hooks=[run_level(seen, "tool.start", "agent.start")])

    assert [(context.point, context.agent, context.current_tool) for context in seen.contexts] == [
        ("agent.start", "outer", None),
        ("tool.start", "outer", "inner"),
        ("agent.start", "inner", None),
        ("tool.start", "inner", "echo"),
    ]


@every_way
async def test_hooks_of_an_agent_hold_for_it_alone(way: Any) -> None:
    own, others = Seen(), Seen()
    sub = inner(calls("echo"), "from inside", on_tool_start=[others.noting()])

    await outer(sub, way, on_tool_start=[own.noting()]).run("hi")

    assert [context.current_tool for context in own.contexts] == ["inner"]
    assert [context.current_tool for context in others.contexts] == ["echo"]


@every_way
async def test_the_context_names_the_chain_of_agents(way: Any) -> None:
    seen = Seen()
    innermost = Agent(id="innermost", model=Scripted(["deep"]))
    sub = Agent(
        id="inner", model=Scripted([calls(("innermost", {"input": "x"})), "from inside"]), tools=[innermost]
    )

    result = await outer(sub, way).run(
        "hi", session_id="s", user_id="u", hooks=[run_level(seen, "agent.start")]
    )

    assert [(context.agent, context.parents) for context in seen.contexts] == [
        ("outer", ()),
        ("inner", ("outer",)),
        ("innermost", ("outer", "inner")),
    ]
    assert {context.run_id for context in seen.contexts} == {result.agent_run_id}
    assert {(context.session_id, context.user_id) for context in seen.contexts} == {("s", "u")}
    assert {workflow.root_workflow_id for workflow in seen.workflows} == {"outer"}


@every_way
async def test_the_record_has_the_inner_agent_inside_the_tool_call(way: Any) -> None:
    records: list[Any] = []
    await outer(inner(), way).run("hi", watch=[records.append])

    begun = {record.scope_id: record for record in records if isinstance(record, Begun)}
    agent = next(record for record in begun.values() if record.scope == "agent" and record.name == "inner")
    assert begun[agent.parent_id].scope == "tool"
    assert agent.about["parents"] == ["outer"]
    ended = [record.scope_id for record in records if isinstance(record, Ended)]
    assert sorted(ended) == sorted(begun)
    assert [record.scope for record in begun.values()].count("run") == 1


@every_way
@pytest.mark.parametrize("keyword", ["on_start", "on_model_end", "on_end"])
async def test_a_fail_inside_stops_the_whole_run(way: Any, keyword: str) -> None:
    seen = Seen()
    sub = inner(**{keyword: [answering(HookResult.fail("inner says no"))]})
    agent = outer(sub, way, on_tool_end=[seen.noting()], on_end=[seen.noting()])

    with pytest.raises(HookFailed, match="inner says no"):
        await agent.run("hi")

    assert [(context.point, context.status) for context in seen.contexts] == [
        ("tool.end", "failed"),
        ("agent.end", "failed"),
    ]
    assert len(agent.model.requests) == 1


@every_way
async def test_a_refusal_inside_is_a_refused_tool_call_and_the_outer_agent_goes_on(way: Any) -> None:
    seen = Seen()
    agent = outer(
        inner(on_start=[answering(HookResult.block("not my job"))]), way, on_tool_end=[seen.noting()]
    )

    result = await agent.run("hi")

    assert result.result == "done"
    assert result.tool_results[0].status == "blocked"
    assert texts(agent.model.requests[1])[-1] == "Error: refused: not my job"
    assert seen.only("tool.end").status == "blocked"


@every_way
async def test_a_skip_inside_ends_the_whole_run_as_skipped(way: Any) -> None:
    with pytest.raises(Skipped, match="nothing to do"):
        await outer(inner(on_start=[answering(HookResult.skip("nothing to do"))]), way).run("hi")


@every_way
async def test_an_inner_agent_that_fails_is_a_failed_tool_and_the_outer_agent_goes_on(way: Any) -> None:
    result = await outer(inner({"error": "overloaded"}), way).run("hi")
    assert result.result == "done"
    assert result.tool_results[0].status == "failed"
    assert "overloaded" in (result.tool_results[0].error or "")


@every_way
async def test_an_answer_for_the_inner_agent_is_the_tools_result(way: Any) -> None:
    sub = inner(on_start=[answering(HookResult.answer("cached"))])
    assert (await outer(sub, way).run("hi")).tool_results[0].result == "cached"


@every_way
async def test_an_inner_agent_past_its_limit_is_a_tool_that_timed_out(way: Any) -> None:
    seen = Seen()

    async def hangs(ctx: Any, hook_context: Any) -> HookResult:
        await asyncio.Event().wait()
        return CONTINUE

    sub = inner(timeout=0.02, on_model_start=[hangs], on_end=[seen.noting()])
    result = await outer(sub, way).run("hi")

    assert result.result == "done"
    assert result.tool_results[0].status == "timed_out"
    assert result.tool_results[0].error == "the agent inner ran past its limit of 0.02 s"
    assert seen.points == ["agent.end"]


async def test_hooks_and_a_limit_given_to_an_inner_run_hold_for_it_and_what_is_inside_it() -> None:
    seen = Seen()
    sub = inner(calls("echo"), "from inside")

    @tool(id="inner")
    async def ask(input: str) -> Any:
        return (await sub.run(input, hooks=[run_level(seen, "tool.start")])).result

    await outer(sub, lambda _: ask).run("hi")

    assert [context.current_tool for context in seen.contexts] == ["echo"]


@pytest.mark.parametrize(
    "given", [{"session_id": "s"}, {"user_id": "u"}, {"watch": [print]}, {"workspace": "/"}]
)
async def test_what_belongs_to_the_whole_run_cannot_be_given_to_an_inner_one(given: dict[str, Any]) -> None:
    sub = inner()

    @tool(id="inner")
    async def ask(input: str) -> Any:
        with pytest.raises(
            UsageError, match=f"inside another's tool, so {next(iter(given))} cannot be given"
        ):
            sub.stream(input, **given)
        return (await sub.run(input, **given)).result

    result = await outer(sub, lambda _: ask).run("hi")

    assert result.tool_results[0].status == "failed"
    assert "cannot be given" in (result.tool_results[0].error or "")


async def test_an_agent_that_a_hook_asks_is_a_run_of_its_own_without_the_runs_hooks() -> None:
    judged: list[str] = []
    judge = Agent(id="judge", model=Scripted(["fine"] * 3))

    @hook(on="model.end")
    async def judging(ctx: WorkflowContext, hook_context: HookContext) -> HookResult:
        judged.append(f"{hook_context.agent}: {(await judge.run('ok?')).result}")
        return CONTINUE

    await outer(inner()).run("hi", hooks=[judging])

    assert judged == ["outer: fine", "inner: fine", "outer: fine"]


async def test_a_stream_that_a_tool_left_open_is_ended_with_the_tool() -> None:
    seen = Seen()
    at_work = asyncio.Event()

    async def hangs(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        await asyncio.Event().wait()
        return CONTINUE

    sub = inner(on_model_start=[hangs], on_end=[seen.noting()])

    @tool(id="inner")
    async def ask(input: str) -> Any:
        sub.stream(input)
        await at_work.wait()
        return "never mind"

    result = await outer(sub, lambda _: ask).run("hi")

    assert result.tool_results[0].result == "never mind"
    assert seen.only("agent.end").status == "cancelled"


@pytest.mark.parametrize("way", [from_a_sync_tool, from_a_stream_in_a_sync_tool])
async def test_an_agent_run_from_a_thread_is_at_work_on_the_runs_own_loop(way: Any) -> None:
    loops: list[Any] = []

    async def where(ctx: Any, hook_context: Any) -> HookResult:
        loops.append(asyncio.get_running_loop())
        return CONTINUE

    await outer(inner(on_start=[where]), way).run("hi")

    assert loops == [asyncio.get_running_loop()]


@every_way
async def test_a_cancelled_run_ends_the_agent_inside_before_the_tool_around_it(way: Any) -> None:
    seen = Seen()
    at_work = asyncio.Event()

    async def hangs(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        await asyncio.Event().wait()
        return CONTINUE

    sub = inner(on_model_start=[hangs], on_end=[seen.noting()])
    agent = outer(sub, way, on_tool_end=[seen.noting()], on_end=[seen.noting()])
    task = asyncio.ensure_future(agent.run("hi"))
    await at_work.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert [(context.point, context.agent, context.status) for context in seen.contexts] == [
        ("agent.end", "inner", "cancelled"),
        ("tool.end", "outer", "cancelled"),
        ("agent.end", "outer", "cancelled"),
    ]


@every_way
async def test_what_a_hook_inside_tells_the_user_is_in_the_outer_result_and_on_its_stream(way: Any) -> None:
    def make() -> Agent:
        return outer(inner(on_start=[answering(HookResult.continue_with(tell_user="from inside"))]), way)

    assert (await make().run("hi")).notices == ("from inside",)
    notices = [event async for event in make().stream("hi").events if event.type == "notice"]
    assert [(event.agent, event.text) for event in notices] == [("inner", "from inside")]


async def test_a_match_of_an_inner_agents_hook_that_fitted_nothing_is_said() -> None:
    @hook(match="Bash")
    def guard(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    records: list[Any] = []
    sub = inner(calls("echo"), "from inside", on_tool_start=[guard])
    await outer(sub).run("hi", watch=[records.append])

    notes = [record.note for record in records if isinstance(record, Decided) and record.note]
    assert notes == ["hook guard: match 'Bash' fitted no tool call of this run (echo, inner)"]


async def test_two_agents_at_once_keep_apart() -> None:
    first, second = inner("one"), Agent(id="second", model=Scripted(["two"]))
    seen = Seen()
    agent = Agent(
        id="outer",
        model=Scripted([calls(("inner", {"input": "a"}), ("second", {"input": "b"})), "done"]),
        tools=[first, second],
    )
    result = await agent.run("hi", hooks=[run_level(seen, "agent.end")])
    assert [found.result for found in result.tool_results] == ["one", "two"]
    assert {(context.agent, context.parents) for context in seen.contexts} == {
        ("inner", ("outer",)),
        ("second", ("outer",)),
        ("outer", ()),
    }


@every_way
async def test_an_inner_agent_is_kept_in_the_journal_of_the_run(way: Any, tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "journal.db")
    try:
        result = await outer(inner(on_start=[answering(CONTINUE)]), way).run("hi", journal=journal)
        journal.flush()
        records = journal.records(result.agent_run_id)
    finally:
        journal.close()

    begun = [record.scope_id for record in records if isinstance(record, Begun)]
    assert sorted(record.scope_id for record in records if isinstance(record, Ended)) == sorted(begun)
    assert [record.point for record in records if isinstance(record, Called)] == ["agent.start"]
