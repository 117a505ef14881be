"""What is Anthropic's own: how a request looks on the wire, and how its answers are read."""

import json

import pytest

from hookline.agent.models import ToolSpec
from hookline.engine.context import Usage
from hookline.errors import ModelFailed, UsageError

SCHEMA = {"type": "object", "properties": {"town": {"type": "string"}}}


async def test_a_request_in_the_words_of_messages(serve, connect, ask):
    fake = serve("Sunny.")
    await ask(
        connect("anthropic", fake),
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [
                {"id": "a", "name": "weather", "arguments": {"town": "Bern"}},
                {"id": "b", "name": "weather", "arguments": None, "raw_arguments": "{oops"},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "name": "weather", "content": "not JSON"},
        {"role": "user", "content": "And?"},
        system="Be brief.",
        tools=(ToolSpec(name="weather", description="Looks.", parameters=SCHEMA),),
        max_output_tokens=50,
    )
    [received] = fake.requests
    assert received.path == "/v1/messages"
    assert received.headers["authorization"] == "Bearer k"
    assert received.body == {
        "model": "some-model",
        "max_tokens": 50,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "a", "name": "weather", "input": {"town": "Bern"}},
                    {"type": "tool_use", "id": "b", "name": "weather", "input": {"not_json": "{oops"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                    {"type": "tool_result", "tool_use_id": "b", "content": "not JSON"},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [{"name": "weather", "description": "Looks.", "input_schema": SCHEMA}],
        "stream": True,
    }


async def test_a_limit_on_the_answer_is_always_sent(serve, connect, ask):
    fake = serve("Yes.")
    await ask(connect("anthropic", fake))
    assert fake.requests[0].body["max_tokens"] == 16384


async def test_texts_of_nothing_are_left_out(serve, connect, ask):
    # The fake provider refuses an empty block, as the real one does.
    fake = serve("Yes.")
    _, reply = await ask(
        connect("anthropic", fake),
        {"role": "user", "content": "One"},
        {"role": "assistant", "content": " \n"},
        {"role": "user", "content": "Two"},
    )
    assert reply.text == "Yes."
    assert [block["text"] for block in fake.requests[0].body["messages"][0]["content"]] == ["One", "Two"]


async def test_structured_output(serve, connect, ask):
    fake = serve('{"n": 1}')
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1}}, "required": ["n"]}
    _, reply = await ask(connect("anthropic", fake), output_schema=schema, output_schema_name="Answer")
    assert json.loads(reply.text) == {"n": 1}
    sent = fake.requests[0].body["output_config"]["format"]
    assert sent["type"] == "json_schema"
    # The provider allows no open objects and no bounds; the client's own rewriting sees to that.
    assert sent["schema"]["additionalProperties"] is False
    assert "minimum" not in sent["schema"]["properties"]["n"]
    assert schema["properties"]["n"]["minimum"] == 1


async def test_a_schema_that_the_provider_has_no_words_for_is_told(serve, connect, ask):
    fake = serve("never sent")
    with pytest.raises(UsageError, match="cannot take this output schema"):
        await ask(connect("anthropic", fake), output_schema={"description": "anything"})
    assert fake.requests == []


def events(*values):
    """A stream as the provider writes it."""
    lines = [f"event: {value['type']}\ndata: {json.dumps(value)}\n\n" for value in values]
    return {"body": "".join(lines), "headers": {"content-type": "text/event-stream"}}


def start(usage=None):
    message = {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "x",
        "content": [],
        "usage": usage or {},
    }
    return {"type": "message_start", "message": message}


def text(words, index=0):
    return {"type": "content_block_delta", "index": index, "delta": {"type": "text_delta", "text": words}}


def stop(reason, usage=None):
    return (
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": usage or {"output_tokens": 1}},
        {"type": "message_stop"},
    )


async def test_tokens_from_the_cache_are_counted_and_the_last_count_holds(serve, connect, ask):
    before = {
        "input_tokens": 10,
        "cache_creation_input_tokens": 5,
        "cache_read_input_tokens": 100,
        "output_tokens": 1,
    }
    turn = events(start(before), text("Hi."), *stop("end_turn", {"input_tokens": 11, "output_tokens": 7}))
    _, reply = await ask(connect("anthropic", serve(turn)))
    assert reply.usage == Usage(input_tokens=116, output_tokens=7, total_tokens=123)


async def test_thinking_is_passed_over(serve, connect, ask):
    thinking = {"type": "thinking", "thinking": "", "signature": ""}
    turn = events(
        start(),
        {"type": "content_block_start", "index": 0, "content_block": thinking},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
        text("Hi.", index=1),
        {"type": "content_block_stop", "index": 1},
        *stop("end_turn"),
    )
    deltas, reply = await ask(connect("anthropic", serve(turn)))
    assert (deltas, reply.text) == (["Hi."], "Hi.")


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause_turn"),
    ],
)
async def test_the_reason_for_stopping_is_told_in_our_words(reason, told, serve, connect, ask):
    _, reply = await ask(connect("anthropic", serve(events(start(), text("Hi."), *stop(reason)))))
    assert reply.stop_reason == told


async def test_a_refused_answer_is_a_failure(serve, connect, ask):
    delta = {"stop_reason": "refusal", "stop_details": {"type": "refusal", "explanation": "too dark"}}
    fake = serve(
        events(start(), {"type": "message_delta", "delta": delta}, {"type": "message_stop"}), "never sent"
    )
    with pytest.raises(ModelFailed, match="refused to answer: too dark"):
        await ask(connect("anthropic", fake))
    assert len(fake.requests) == 1


def error(kind):
    return {"type": "error", "error": {"type": kind, "message": "sorry"}}


@pytest.mark.parametrize(
    ("kind", "tries"), [("overloaded_error", 2), ("api_error", 2), ("invalid_request_error", 1)]
)
async def test_an_error_inside_the_stream_is_judged_by_its_type(kind, tries, serve, connect, ask):
    fake = serve(events(start(), error(kind)), repeat=True)
    with pytest.raises(ModelFailed, match="sorry"):
        await ask(connect("anthropic", fake, tries=2))
    assert len(fake.requests) == tries


async def test_an_error_after_the_first_text_ends_it(serve, connect, ask):
    fake = serve(events(start(), text("abc"), error("overloaded_error")), "never sent")
    with pytest.raises(ModelFailed, match="broke off after 3 characters: 529: sorry"):
        await ask(connect("anthropic", fake))
    assert len(fake.requests) == 1


async def test_only_a_request_with_sampling_speaks_the_older_version_that_has_it(serve, connect, ask):
    # The fake provider refuses these two in the later version, as the real one does.
    fake = serve("Yes.", repeat=True)
    await ask(connect("anthropic", fake))
    await ask(connect("anthropic", fake), temperature=0.0)
    plain, sampled = (request.headers["anthropic-version"] for request in fake.requests)
    assert plain > sampled == "2023-06-01"
