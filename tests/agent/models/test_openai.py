"""What is OpenAI's own: how a request looks on the wire, and what those who copied the protocol do differently."""

import json

import pytest

from hookline.agent.models import ToolSpec
from hookline.agent.models.openai import OpenAI
from hookline.errors import ModelFailed, UsageError

CLOSED = {
    "type": "object",
    "properties": {"n": {"type": "integer"}},
    "required": ["n"],
    "additionalProperties": False,
}
OPEN = {"type": "object", "properties": {"n": {"type": "integer"}}}


async def test_a_request_in_the_words_of_chat_completions(serve, connect, ask):
    fake = serve("Sunny.")
    tool = ToolSpec(name="weather", description="Looks.", parameters=OPEN)
    call = {"id": "a", "name": "weather", "arguments": {"town": "Zürich"}}
    await ask(
        connect("openai", fake),
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "name": "weather", "content": "sunny"},
        system="Be brief.",
        tools=(tool,),
        max_output_tokens=50,
    )
    [received] = fake.requests
    assert received.path == "/v1/chat/completions"
    assert received.headers["authorization"] == "Bearer k"
    function = {"name": "weather", "arguments": '{"town": "Zürich"}'}
    assert received.body == {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Weather?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "a", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "weather", "description": "Looks.", "parameters": OPEN}}
        ],
        "max_completion_tokens": 50,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    ("schema", "strict"),
    [
        (CLOSED, True),
        (OPEN, False),
        ({**CLOSED, "properties": {"n": OPEN}}, False),
        ({**CLOSED, "properties": {"n": {"anyOf": [CLOSED, {"type": "null"}]}}}, True),
        ({**CLOSED, "properties": {"n": {"anyOf": [OPEN, {"type": "null"}]}}}, False),
        ({**CLOSED, "required": []}, False),
    ],
)
async def test_structured_output_is_strict_where_the_schema_leaves_nothing_open(
    schema, strict, serve, connect, ask
):
    fake = serve('{"n": 1}')
    _, reply = await ask(connect("openai", fake), output_schema=schema, output_schema_name="my.Answer[int]")
    assert json.loads(reply.text) == {"n": 1}
    assert fake.requests[0].body["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "my_Answer_int_", "schema": schema, "strict": strict},
    }


def chunks(*deltas, finish_reason="stop"):
    """A stream as some provider writes it."""
    choices = [{"index": 0, "delta": delta} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    lines = [f"data: {json.dumps({'id': 'x', 'choices': [choice]})}\n\n" for choice in choices]
    return {"body": "".join([*lines, "data: [DONE]\n\n"]), "headers": {"content-type": "text/event-stream"}}


def piece(arguments, **rest):
    return {"tool_calls": [{**rest, "function": {"name": rest.pop("name", None), "arguments": arguments}}]}


ODD_CALLS = {
    "all numbered 0": (
        piece('{"n":1}', index=0, id="a", name="f"),
        piece('{"n":2}', index=0, id="b", name="f"),
    ),
    "not numbered": (piece('{"n":1}', id="a", name="f"), piece('{"n":2}', id="b", name="f")),
    "not numbered, in fragments": (
        piece('{"n"', id="a", name="f"),
        piece(":1}"),
        piece('{"n"', id="b", name="f"),
        piece(":2}"),
    ),
    "the id in every fragment": (
        piece('{"n"', index=0, id="a", name="f"),
        piece(":1}", index=0, id="a"),
        piece('{"n":2}', index=1, id="b", name="f"),
    ),
    "mixed with each other": (
        piece('{"n"', index=0, id="a", name="f"),
        piece('{"n"', index=1, id="b", name="f"),
        piece(":1}", index=0),
        piece(":2}", index=1),
    ),
}


@pytest.mark.parametrize("deltas", ODD_CALLS.values(), ids=ODD_CALLS)
async def test_calls_are_told_apart_however_the_provider_numbers_them(deltas, serve, connect, ask):
    _, reply = await ask(connect("openai", serve(chunks(*deltas))))
    assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [
        ("a", "f", {"n": 1}),
        ("b", "f", {"n": 2}),
    ]
    assert reply.stop_reason == "tool_calls"


async def test_calls_without_an_id_get_one_of_their_own(serve, connect, ask):
    deltas = (piece("{}", index=0, name="f"), piece("{}", index=1, name="g"))
    _, reply = await ask(connect("openai", serve(chunks(*deltas))))
    first, second = (call.id for call in reply.tool_calls)
    assert first
    assert second
    assert first != second


async def test_an_answer_cut_by_the_limit_on_tokens_says_so(serve, connect, ask):
    _, reply = await ask(connect("openai", serve(chunks({"content": "abc"}, finish_reason="length"))))
    assert (reply.text, reply.stop_reason) == ("abc", "length")


async def test_usage_that_is_not_told_is_none(serve, connect, ask):
    _, reply = await ask(connect("openai", serve(chunks({"content": "abc"}))))
    assert reply.usage.total_tokens == 0


@pytest.mark.parametrize(
    "turn",
    [chunks({"refusal": "I would "}, {"refusal": "rather not."}), chunks(finish_reason="content_filter")],
    ids=["refusal", "filter"],
)
async def test_a_refused_answer_is_a_failure(turn, serve, connect, ask):
    fake = serve(turn, "never sent")
    with pytest.raises(ModelFailed, match=r"refused to answer: (I would rather not\.|stopped by)"):
        await ask(connect("openai", fake))
    assert len(fake.requests) == 1


async def test_an_error_inside_the_stream_is_tried_again_before_the_first_text(serve, connect, ask):
    error = {"body": 'data: {"error": {"message": "engine fell over"}}\n\n'}
    error["headers"] = {"content-type": "text/event-stream"}
    fake = serve(error, "Whole.")
    _, reply = await ask(connect("openai", fake))
    assert (reply.text, len(fake.requests)) == ("Whole.", 2)
    with pytest.raises(ModelFailed, match="engine fell over"):
        await ask(connect("openai", serve(error), tries=1))


async def test_the_organisation_is_told_to_openai_only(serve, connect, ask, monkeypatch):
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-1")
    fake = serve("Yes.", repeat=True)
    await ask(connect("openai", fake))
    await ask(connect("openai", fake, provider="groq"))
    ours, theirs = (request.headers for request in fake.requests)
    assert (ours["openai-organization"], ours["openai-project"]) == ("org-1", "proj-1")
    assert "openai-organization" not in theirs
    assert "openai-project" not in theirs


def test_an_address_that_is_none_is_told():
    with pytest.raises(UsageError, match=r"'localhost:80' must start with http"):
        OpenAI("some-model", api_key="k", base_url="localhost:80")
