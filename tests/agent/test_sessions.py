"""Sessions: a conversation that is kept, opened once and closed once."""

import asyncio
from typing import Any

import pytest

from hookline import Agent, HookFailed, HookResult, ModelFailed, Scripted
from hookline.engine.record import Begun, Ended
from tests.agents import Seen, answering, texts

CONTINUE = HookResult.continue_with()
SESSION = ("on_session_start", "on_session_end")


async def test_the_conversation_of_a_session_is_kept_and_others_do_not_see_it() -> None:
    agent = Agent(id="a", model=Scripted(["one", "two", "three"]))

    await agent.run("first", session_id="s")
    await agent.run("elsewhere", session_id="other")
    await agent.run("second", session_id="s")

    assert texts(agent.model.requests[1]) == ["elsewhere"]
    assert texts(agent.model.requests[2]) == ["first", "one", "second"]


async def test_a_session_starts_on_its_first_use_and_ends_when_it_is_closed() -> None:
    seen = Seen()
    agent = Agent(id="a", model=Scripted(["one", "two"]), **seen.everywhere(*SESSION))

    await agent.run("first", session_id="s")
    await agent.run("second", session_id="s")
    assert seen.points == ["session.start"]

    await agent.close_session("s")
    await agent.close_session("s")
    assert seen.points == ["session.start", "session.end"]
    end = seen.only("session.end")
    assert (end.status, end.session_id) == ("ok", "s")
    assert [message["content"] for message in end.current_output["messages"]] == [
        "first",
        "one",
        "second",
        "two",
    ]


async def test_leaving_the_agent_closes_every_session() -> None:
    seen = Seen()
    async with Agent(id="a", model=Scripted(["one", "two"]), on_session_end=[seen.noting()]) as agent:
        await agent.run("x", session_id="s1")
        await agent.run("x", session_id="s2")
        assert seen.points == []
    assert [context.session_id for context in seen.contexts] == ["s1", "s2"]


async def test_a_session_used_after_it_was_closed_is_a_new_one() -> None:
    seen = Seen()
    agent = Agent(id="a", model=Scripted(["one", "two"]), on_session_start=[seen.noting()])
    await agent.run("first", session_id="s")
    await agent.close_session("s")
    await agent.run("second", session_id="s")
    assert texts(agent.model.requests[1]) == ["second"]
    assert len(seen.contexts) == 2


async def test_a_run_without_a_session_id_has_a_session_of_its_own() -> None:
    seen = Seen()
    agent = Agent(id="a", model=Scripted(["one", "two"]), **seen.everywhere(*SESSION))
    first = await agent.run("x")
    await agent.run("y")
    assert seen.points == ["session.start", "session.end"] * 2
    assert first.session_id == first.agent_run_id == seen.contexts[0].session_id
    assert texts(agent.model.requests[1]) == ["y"]


@pytest.mark.parametrize("session_id", [None, "s"])
async def test_a_session_whose_start_failed_has_its_end_and_can_be_tried_again(
    session_id: str | None,
) -> None:
    seen = Seen()
    fails = iter([HookResult.fail("not open yet")])
    agent = Agent(
        id="a",
        model=Scripted(["ok"]),
        on_session_start=[answering(lambda _: next(fails, CONTINUE))],
        on_session_end=[seen.noting()],
    )

    with pytest.raises(HookFailed, match="not open yet"):
        await agent.run("x", session_id=session_id)
    assert [context.status for context in seen.contexts] == ["failed"]

    assert (await agent.run("x", session_id=session_id)).result == "ok"


async def test_a_run_that_failed_leaves_the_conversation_as_it_was_and_the_session_open() -> None:
    seen = Seen()
    agent = Agent(id="a", model=Scripted(["one", {"error": "down"}, "three"]), **seen.everywhere(*SESSION))
    await agent.run("first", session_id="s")
    with pytest.raises(ModelFailed):
        await agent.run("second", session_id="s")
    await agent.run("third", session_id="s")
    assert texts(agent.model.requests[2]) == ["first", "one", "third"]
    assert seen.points == ["session.start"]


async def test_runs_in_one_session_take_turns() -> None:
    agent = Agent(id="a", model=Scripted(["one", "two"]))
    await asyncio.gather(agent.run("first", session_id="s"), agent.run("second", session_id="s"))
    assert texts(agent.model.requests[1]) == ["first", "one", "second"]


async def test_closing_a_session_waits_for_the_run_that_is_in_it() -> None:
    seen = Seen()
    at_work, go_on = asyncio.Event(), asyncio.Event()

    async def waits(ctx: Any, hook_context: Any) -> HookResult:
        at_work.set()
        await go_on.wait()
        return CONTINUE

    agent = Agent(
        id="a",
        model=Scripted(["one"]),
        on_start=[waits],
        on_end=[seen.noting()],
        on_session_end=[seen.noting()],
    )
    running = asyncio.ensure_future(agent.run("x", session_id="s"))
    await at_work.wait()
    closing = asyncio.ensure_future(agent.close_session("s"))
    await asyncio.sleep(0)
    go_on.set()
    await asyncio.gather(running, closing)

    assert seen.points == ["agent.end", "session.end"]


async def test_the_record_has_the_session_inside_its_first_run() -> None:
    records: list[Any] = []
    agent = Agent(id="a", model=Scripted(["one"]))
    await agent.run("x", session_id="s", watch=[records.append])
    await agent.close_session("s")
    session = next(record for record in records if isinstance(record, Begun) and record.scope == "session")
    assert session.name == "s"
    assert [record.scope for record in records if isinstance(record, Ended)][-1] == "session"
