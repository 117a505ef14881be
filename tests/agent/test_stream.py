"""Streams: what is said as it comes, and what is held back while a hook may still change or refuse it."""

import asyncio
from typing import Any

import pytest

from hookline import Agent, HookResult, ModelFailed, Scripted, hook, max_steps, tool
from tests.agents import Seen, answering, calls, texts

CONTINUE = HookResult.continue_with()
PIECES = ["The ", "secret ", "is 42."]
REDACTED = "The [...] is 42."


@tool
def echo() -> str:
    return "echo"


def speaking(*turns: Any, **given: Any) -> Agent:
    return Agent(id="a", model=Scripted(list(turns) or [{"stream": PIECES}]), tools=[echo], **given)


async def pieces(agent: Agent) -> list[str]:
    return [piece async for piece in agent.stream("hi").text_chunks]


async def types(agent: Agent) -> list[str]:
    return [event.type async for event in agent.stream("hi").events]


def redacting(key: str) -> Any:
    def redact(context: Any) -> HookResult:
        text = context.current_output[key]
        return (
            HookResult.continue_with(modified_output={key: text.replace("secret", "[...]")})
            if text
            else CONTINUE
        )

    return answering(redact)


REDACTING = {
    "on_model_end": redacting("text"),
    "on_agent_step_end": redacting("content"),
    "on_end": redacting("result"),
}


async def test_text_is_handed_out_piece_by_piece() -> None:
    assert await pieces(speaking()) == PIECES


async def test_a_piece_is_out_before_the_model_has_finished() -> None:
    first_is_out = asyncio.Event()

    class Slow:
        provider, name = "test", "slow"

        async def stream(self, request: Any) -> Any:
            from hookline import Reply, TextDelta

            yield TextDelta(text="first")
            await asyncio.wait_for(first_is_out.wait(), 30)
            yield TextDelta(text=" second")
            yield Reply(text="first second")

        async def close(self) -> None: ...

    stream = Agent(id="a", model=Slow()).stream("hi")
    async for piece in stream.text_chunks:
        if piece == "first":
            first_is_out.set()
    assert (await stream.result()).result == "first second"


@pytest.mark.rule("design 1.7")
@pytest.mark.parametrize("keyword", REDACTING)
async def test_text_is_held_back_while_a_hook_may_change_it_and_then_said_once_as_changed(
    keyword: str,
) -> None:
    agent = speaking(**{keyword: [REDACTING[keyword]]})
    stream = agent.stream("hi")
    said = [piece async for piece in stream.text_chunks]
    assert said == [REDACTED]
    assert (await stream.result()).result == REDACTED


async def test_text_is_said_once_with_hooks_at_all_three_ends() -> None:
    every: dict[str, Any] = {keyword: [it] for keyword, it in REDACTING.items()}
    assert await pieces(speaking(calls("echo", text="a secret"), {"stream": PIECES}, **every)) == [
        "a [...]",
        REDACTED,
    ]


@pytest.mark.parametrize("keyword", REDACTING)
async def test_text_beside_tool_calls_is_held_and_said_in_its_place(keyword: str) -> None:
    agent = speaking(calls("echo", text="looking"), "done", **{keyword: [answering(CONTINUE)]})
    assert await pieces(agent) == ["looking", "done"]


@pytest.mark.rule("design 1.7")
@pytest.mark.parametrize("keyword", REDACTING)
@pytest.mark.parametrize("how", [{"observe": True}, {"mode": "off"}])
async def test_a_hook_that_only_observes_or_is_off_holds_nothing(keyword: str, how: dict[str, Any]) -> None:
    @hook(**how)
    async def watcher(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.fail("would")

    assert await pieces(speaking(**{keyword: [watcher]})) == PIECES


@pytest.mark.rule("design 1.7")
@pytest.mark.parametrize(
    "keyword", ["on_model_start", "on_tool_end", "on_run_end", "on_session_end", "on_start"]
)
async def test_a_hook_elsewhere_holds_nothing(keyword: str) -> None:
    assert await pieces(speaking(**{keyword: [answering(CONTINUE)]})) == PIECES


async def test_an_answer_refused_at_model_end_is_never_said() -> None:
    refuse = answering(
        lambda at: HookResult.block("no") if "secret" in at.current_output["text"] else CONTINUE
    )
    assert await pieces(speaking({"stream": PIECES}, "fine", on_model_end=[refuse])) == ["fine"]


@pytest.mark.rule("design 1.7")
async def test_an_answer_refused_at_agent_end_is_never_said() -> None:
    refuse = answering(
        lambda at: HookResult.block("no") if "secret" in at.current_output["result"] else CONTINUE
    )
    assert await pieces(speaking({"stream": PIECES}, "fine", on_end=[refuse])) == ["fine"]


@pytest.mark.parametrize("keyword", REDACTING)
async def test_an_answer_that_failed_the_run_is_never_said(keyword: str) -> None:
    stream = speaking(**{keyword: [answering(HookResult.fail("no"))]}).stream("hi")
    assert "text_delta" not in [event.type async for event in stream.events]


async def test_half_an_answer_is_not_taken_for_a_whole_one() -> None:
    def breaking() -> Agent:
        return speaking({"stream": ["half "], "error": "cut off"})

    with pytest.raises(ModelFailed, match="cut off"):
        await breaking().stream("hi").text()
    chunks = breaking().stream("hi").text_chunks
    assert await anext(chunks) == "half "
    with pytest.raises(ModelFailed, match="cut off"):
        await anext(chunks)


async def test_the_text_of_a_step_that_a_stop_condition_made_the_last_is_said_once_after_the_end_hooks() -> (
    None
):
    agent = speaking(
        calls("echo", text="a secret"), stop_conditions=max_steps(count=1), on_end=[REDACTING["on_end"]]
    )
    assert await pieces(agent) == ["a [...]"]


@pytest.mark.parametrize("keyword", ["on_start", "on_model_start"])
async def test_an_answer_given_by_a_hook_is_on_the_stream(keyword: str) -> None:
    assert await pieces(speaking(**{keyword: [answering(HookResult.answer("from the hook"))]})) == [
        "from the hook"
    ]


async def test_the_events_of_a_run_in_order() -> None:
    assert await types(speaking(calls("echo"), {"stream": PIECES})) == [
        "agent_start",
        "step_start",
        "tool_call",
        "tool_start",
        "tool_finish",
        "step_start",
        "text_delta",
        "text_delta",
        "text_delta",
        "agent_finish",
    ]


async def test_a_stream_that_fails_ends_with_an_error_and_the_text_so_far() -> None:
    agent = speaking({"stream": ["half "], "error": "cut off"})
    stream = agent.stream("hi")
    events = [event async for event in stream.events]
    assert [event.type for event in events][-2:] == ["text_delta", "agent_error"]
    assert "cut off" in events[-1].text
    with pytest.raises(ModelFailed, match="cut off"):
        await stream.result()


async def test_text_and_result_can_be_awaited_after_each_other() -> None:
    stream = speaking().stream("hi")
    assert await stream.text() == "".join(PIECES)
    assert (await stream.result()).result == "".join(PIECES)
    assert [event async for event in stream.events] == []


async def test_a_stream_can_be_cancelled_and_its_end_hooks_run() -> None:
    seen = Seen()
    started = asyncio.Event()

    @tool
    async def hangs() -> str:
        started.set()
        await asyncio.Event().wait()
        return "never"

    agent = Agent(id="a", model=Scripted([calls("hangs")]), tools=[hangs], on_end=[seen.noting()])
    stream = agent.stream("hi")
    await started.wait()
    stream.cancel()

    events = [event.type async for event in stream.events]

    assert events[-1] == "agent_error"
    assert seen.only("agent.end").status == "cancelled"
    with pytest.raises(asyncio.CancelledError):
        await stream.result()


async def test_streamed_or_not_the_model_is_asked_the_same_and_the_result_is_the_same() -> None:
    def make() -> Agent:
        return speaking(
            calls("echo"), {"stream": PIECES}, **{keyword: [it] for keyword, it in REDACTING.items()}
        )

    streamed, plain = make(), make()
    first, second = await streamed.stream("hi").result(), await plain.run("hi")
    assert first.result == second.result == REDACTED
    assert streamed.model.requests == plain.model.requests
    assert texts(plain.model.requests[0]) == ["hi"]
