"""What holds for every model behind a real provider, shown with the vendors' clients on a real connection."""

import asyncio
import contextlib
import threading
from email.utils import formatdate
from time import time

import pytest

from hookline.agent.models import Model, Request, ToolSpec
from hookline.engine.context import Usage
from hookline.errors import ModelFailed

WEATHER = ToolSpec(
    name="weather",
    description="The weather of a town.",
    parameters={"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]},
)
CALL = {"name": "weather", "arguments": {"town": 'Zürich, "the" town'}}


@pytest.fixture(params=["openai", "anthropic"])
def kind(request):
    return request.param


def test_it_is_a_model(kind, serve, connect):
    model = connect(kind, serve())
    assert isinstance(model, Model)
    assert (model.provider, model.name) == (kind, "some-model")


async def test_a_text_is_streamed_and_then_whole(kind, serve, connect, ask):
    fake = serve({"stream": ["Hel", "lo ", "wörld"], "usage": {"input_tokens": 12, "output_tokens": 3}})
    deltas, reply = await ask(connect(kind, fake))
    assert deltas == ["Hel", "lo ", "wörld"]
    assert (reply.text, reply.tool_calls, reply.stop_reason) == ("Hello wörld", (), "stop")
    assert reply.usage == Usage(input_tokens=12, output_tokens=3, total_tokens=15)


async def test_each_piece_is_handed_out_before_the_next_is_sent(kind, serve, connect):
    seen = {"one": threading.Event(), "two": threading.Event()}

    def slowly():
        yield "one"
        assert seen["one"].wait(10)
        yield "two"
        assert seen["two"].wait(10)

    texts = []
    async for part in connect(kind, serve({"stream": slowly()})).stream(hello()):
        texts.append(part.text)
        if part.text in seen:
            seen[part.text].set()
    assert texts == ["one", "two", "onetwo"]


async def test_a_tool_call_is_put_together_from_its_fragments(kind, serve, connect, ask):
    fake = serve({"text": "I look.", "tools": [CALL]})
    deltas, reply = await ask(connect(kind, fake), tools=(WEATHER,))
    assert (deltas, reply.text, reply.stop_reason) == (["I look."], "I look.", "tool_calls")
    [call] = reply.tool_calls
    assert (call.id, call.name, call.arguments) == ("call_1", "weather", CALL["arguments"])


async def test_parallel_tool_calls_keep_their_order_and_arguments(kind, serve, connect, ask):
    towns = ["Bern", "Basel", "Genf"]
    fake = serve({"tools": [{"name": "weather", "arguments": {"town": town}} for town in towns]})
    deltas, reply = await ask(connect(kind, fake), tools=(WEATHER,))
    assert (deltas, reply.text) == ([], None)
    assert [(call.id, call.arguments["town"]) for call in reply.tool_calls] == [
        ("call_1", "Bern"),
        ("call_2", "Basel"),
        ("call_3", "Genf"),
    ]


@pytest.mark.parametrize("raw", ['{"town": "Be', "[1, 2]", "Bern please"])
async def test_arguments_that_are_no_json_object_are_handed_on_as_they_came(kind, raw, serve, connect, ask):
    _, reply = await ask(connect(kind, serve({"tools": [{"name": "weather", "arguments": raw}]})))
    [call] = reply.tool_calls
    assert (call.arguments, call.raw_arguments) == (None, raw)


async def test_a_call_without_arguments_has_none_rather_than_broken_ones(kind, serve, connect, ask):
    _, reply = await ask(connect(kind, serve({"tools": [{"name": "now"}]})))
    assert reply.tool_calls[0].arguments == {}


async def test_a_conversation_with_tool_results_is_one_the_provider_accepts(kind, serve, connect, ask):
    # The fake provider refuses results without their calls, and calls without their results.
    fake = serve("Sunny in both.")
    calls = [
        {"id": "a", "name": "weather", "arguments": {"town": "Bern"}},
        {"id": "b", "name": "weather", "arguments": None, "raw_arguments": "{oops"},
    ]
    _, reply = await ask(
        connect(kind, fake),
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "name": "weather", "content": "the arguments are not JSON"},
        {"role": "user", "content": "And?"},
        tools=(WEATHER,),
    )
    assert reply.text == "Sunny in both."


async def test_what_is_not_asked_for_is_not_sent(kind, serve, connect, ask):
    fake = serve("Yes.")
    await ask(connect(kind, fake))
    assert set(fake.requests[0].body) <= {"model", "messages", "stream", "stream_options", "max_tokens"}


async def test_sampling_and_extras_reach_the_provider(kind, serve, connect, ask):
    fake = serve("Yes.")
    await ask(connect(kind, fake), temperature=0.25, top_p=0.5, extra={"seed_of_mine": 7})
    body = fake.requests[0].body
    assert (body["model"], body["temperature"], body["top_p"], body["seed_of_mine"]) == (
        "some-model",
        0.25,
        0.5,
        7,
    )


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_a_refusal_is_told_with_all_that_is_known_and_not_tried_again(
    kind, status, serve, connect, ask
):
    fake = serve({"status": status, "error": "no such luck"}, "never sent")
    with pytest.raises(ModelFailed) as failure:
        await ask(connect(kind, fake))
    assert str(failure.value) == f"{kind} model 'some-model': {status}: no such luck"
    assert len(fake.requests) == 1


@pytest.mark.parametrize("status", [408, 409, 429, 500, 503, 529])
async def test_passing_trouble_is_tried_again(kind, status, serve, connect, ask, pauses):
    fake = serve({"status": status}, {"status": status}, "At last.")
    deltas, reply = await ask(connect(kind, fake))
    assert (deltas, reply.text, len(fake.requests)) == (["At last."], "At last.", 3)
    assert 0.375 <= pauses[0] <= 0.5
    assert 0.75 <= pauses[1] <= 1.0


@pytest.mark.parametrize("status", [429, 500, 529])
async def test_trouble_that_stays_is_told_with_the_number_of_tries(kind, status, serve, connect, ask):
    fake = serve({"status": status, "error": "busy"}, repeat=True)
    with pytest.raises(ModelFailed, match=rf"^{kind} model 'some-model': {status}: busy \(tried 4 times\)$"):
        await ask(connect(kind, fake, tries=4))
    assert len(fake.requests) == 4


async def test_the_wait_that_the_provider_asks_for_is_kept(kind, serve, connect, ask, pauses):
    at = {"status": 503, "headers": {"retry-after": formatdate(time() + 30, usegmt=True)}}
    in_ms = {"status": 429, "headers": {"retry-after-ms": "250"}}
    fake = serve({"status": 429, "retry_after": 7}, at, in_ms, "Yes.")
    await ask(connect(kind, fake, tries=4))
    assert (pauses[0], pauses[2]) == (7.0, 0.25)
    assert 20 < pauses[1] <= 30


async def test_a_wait_longer_than_anyone_would_sit_through_is_told_at_once(kind, serve, connect, ask, pauses):
    fake = serve({"status": 429, "retry_after": 3600}, repeat=True)
    with pytest.raises(ModelFailed, match="asks to wait 3600 s"):
        await ask(connect(kind, fake))
    assert (len(fake.requests), pauses) == (1, [])


async def test_the_provider_may_say_that_another_try_is_pointless(kind, serve, connect, ask):
    fake = serve({"status": 429, "error": "no credit", "headers": {"x-should-retry": "false"}}, repeat=True)
    with pytest.raises(ModelFailed, match=r"429: no credit$"):
        await ask(connect(kind, fake))
    assert len(fake.requests) == 1


async def test_an_answer_that_breaks_off_after_its_first_text_is_not_asked_for_again(
    kind, serve, connect, ask
):
    fake = serve({"stream": ["abc", "def", "ghi", "jkl"], "cut": 5}, "never sent")
    with pytest.raises(
        ModelFailed, match=rf"^{kind} model 'some-model': the answer broke off after \d+ characters: "
    ) as e:
        await ask(connect(kind, fake))
    # Five events are four pieces with one protocol, and two with the other.
    assert f"after {'12' if kind == 'openai' else '6'} characters" in str(e.value)
    assert len(fake.requests) == 1


async def test_an_answer_that_breaks_off_before_any_text_is_asked_for_again(kind, serve, connect, ask):
    cut_in_the_call = {"tools": [CALL], "cut": 5}
    fake = serve({"text": "lost", "cut": 1}, cut_in_the_call, "Whole.")
    deltas, reply = await ask(connect(kind, fake))
    assert (deltas, reply.text, len(fake.requests)) == (["Whole."], "Whole.", 3)


async def test_an_answer_that_always_breaks_off_is_told_with_the_number_of_tries(kind, serve, connect, ask):
    fake = serve({"text": "lost", "cut": 1}, repeat=True)
    with pytest.raises(ModelFailed, match=r"broke off after 0 characters: .+ \(tried 2 times\)$"):
        await ask(connect(kind, fake, tries=2))
    assert len(fake.requests) == 2


async def test_a_stream_that_ends_politely_but_too_early_broke_off_too(kind, serve, connect, ask):
    started = {"openai": 'data: {"choices": [{"index": 0, "delta": {"content": "abc"}}]}\n\ndata: [DONE]\n\n'}
    started["anthropic"] = (
        "event: content_block_delta\n"
        'data: {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "abc"}}\n\n'
    )
    fake = serve({"body": started[kind], "headers": {"content-type": "text/event-stream"}})
    with pytest.raises(ModelFailed, match="broke off after 3 characters: the stream ended without"):
        await ask(connect(kind, fake))


async def test_a_provider_that_never_answers_is_given_up_on(kind, serve, connect, ask):
    fake = serve({"hang": True}, repeat=True)
    with pytest.raises(ModelFailed, match=r"no answer within 0\.2 s \(tried 2 times\)"):
        await ask(connect(kind, fake, tries=2, timeout=0.2))
    assert len(fake.requests) == 2


async def test_a_provider_that_falls_silent_in_the_middle_is_given_up_on(kind, serve, connect, ask):
    fake = serve({"stream": ["abc"] * 9, "hang": 6}, repeat=True)
    with pytest.raises(ModelFailed, match=r"broke off after \d+ characters: no answer within 0\.2 s$"):
        await ask(connect(kind, fake, timeout=0.2))
    assert len(fake.requests) == 1


async def test_a_provider_that_is_not_there_is_told_with_its_address(kind, serve, connect, ask, pauses):
    fake = serve()
    model = connect(kind, fake)
    fake.close()
    with pytest.raises(ModelFailed, match=r"cannot be reached at http://127\.0\.0\.1:\d+.*\(tried 3 times\)"):
        await ask(model)
    assert len(pauses) == 2


EVENTS = {"content-type": "text/event-stream"}
RUBBISH = {
    "a page": ({"body": "<html>proxy</html>"}, "answered with text/html"),
    "json, not a stream": (
        {"body": "{}", "headers": {"content-type": "application/json"}},
        "application/json",
    ),
    "events that are no json": ({"body": "event: x\ndata: <rubbish>\n\n", "headers": EVENTS}, "not JSON"),
    "no text at all": ({"body": b"event: x\ndata: \xff\n\n", "headers": EVENTS}, "not JSON"),
}


@pytest.mark.parametrize(("turn", "said"), RUBBISH.values(), ids=RUBBISH)
async def test_rubbish_is_told_as_such_and_not_asked_for_again(kind, turn, said, serve, connect, ask):
    fake = serve(turn, "never sent")
    with pytest.raises(ModelFailed, match=said):
        await ask(connect(kind, fake))
    assert len(fake.requests) == 1


@pytest.mark.parametrize(
    "value", ["42", "{}", "[]", "null", '{"type": "content_block_delta"}', '{"choices": [{}]}']
)
async def test_events_of_a_strange_shape_never_get_past_as_an_answer(kind, value, serve, connect, ask):
    fake = serve({"body": f"event: content_block_delta\ndata: {value}\n\n", "headers": EVENTS})
    with pytest.raises(ModelFailed):
        await ask(connect(kind, fake, tries=1))


async def test_a_page_of_html_as_an_error_is_cut_short(kind, serve, connect, ask):
    fake = serve({"status": 502, "body": "<html>\n" + "x" * 100_000})
    with pytest.raises(ModelFailed, match=r"502: <html> x+") as failure:
        await ask(connect(kind, fake, tries=1))
    assert len(str(failure.value)) < 700


async def test_an_empty_answer_is_a_failure(kind, serve, connect, ask):
    fake = serve({"empty": True}, "never sent")
    with pytest.raises(ModelFailed, match="answered with n"):
        await ask(connect(kind, fake))
    assert len(fake.requests) == 1


async def test_an_answer_of_nothing_but_an_empty_text_is_a_failure(kind, serve, connect, ask):
    with pytest.raises(ModelFailed, match="neither text nor a tool call"):
        await ask(connect(kind, serve({"stream": [""]})))


async def test_leaving_in_the_middle_hangs_up(kind, serve, connect):
    left = threading.Event()

    def endless():
        try:
            while True:
                yield "more " * 1000
        finally:
            left.set()

    model = connect(kind, serve({"stream": endless()}))
    async with contextlib.aclosing(model.stream(hello())) as parts:
        await anext(parts)
    # At once, and not when the garbage is collected.
    assert model._client._client._transport._pool.connections == []
    assert await asyncio.to_thread(left.wait, 10)


async def test_a_cancelled_call_is_neither_swallowed_nor_tried_again(kind, serve, connect, ask):
    loop, arrived = asyncio.get_running_loop(), asyncio.Event()

    def silently(_received):
        loop.call_soon_threadsafe(arrived.set)
        return {"hang": True}

    fake = serve(silently, repeat=True)
    asking = asyncio.create_task(ask(connect(kind, fake)))
    await arrived.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert len(fake.requests) == 1


async def test_one_model_serves_many_at_once(kind, serve, connect, ask):
    def echo(received):
        return f"re: {received.body['messages'][-1]['content']}"

    def last(n):
        return {"role": "user", "content": f"number {n}."}

    model = connect(kind, serve(echo, repeat=True))
    answers = await asyncio.gather(*(ask(model, last(n)) for n in range(30)))
    assert all(f"number {n}." in reply.text for n, (_, reply) in enumerate(answers))


def hello():
    return Request(messages=({"role": "user", "content": "Hello?"},))
