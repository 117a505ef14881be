"""The fake provider, asked in other ways than hookline's own models do: whole answers, sync clients, bare HTTP."""

import http.client
import importlib
import json
import threading

import pytest

from hookline.errors import UsageError
from tests.fakes import FakeProvider

TURN = {
    "text": "I look.",
    "tools": [{"name": "weather", "arguments": {"town": "Bern"}}],
    "usage": {"input_tokens": 3, "output_tokens": 4},
}
HELLO = [{"role": "user", "content": "Hello?"}]


def test_a_whole_chat_completion(serve):
    with client_of("openai", serve(TURN)) as client:
        answer = client.chat.completions.create(model="m", messages=HELLO)
    [choice] = answer.choices
    assert (choice.message.content, choice.finish_reason) == ("I look.", "tool_calls")
    assert json.loads(choice.message.tool_calls[0].function.arguments) == {"town": "Bern"}
    assert answer.usage.total_tokens == 7


def test_a_whole_message(serve):
    with client_of("anthropic", serve(TURN)) as client:
        answer = client.messages.create(model="m", messages=HELLO, max_tokens=9)
    said, call = answer.content
    assert (said.text, call.input, answer.stop_reason) == ("I look.", {"town": "Bern"}, "tool_use")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (3, 4)


def test_the_streams_satisfy_the_clients_own_assembling(serve):
    with client_of("openai", serve(TURN)) as client:
        with client.chat.completions.stream(model="m", messages=HELLO) as stream:
            message = stream.get_final_completion().choices[0].message
        assert json.loads(message.tool_calls[0].function.arguments) == {"town": "Bern"}
    with client_of("anthropic", serve(TURN)) as client:
        with client.messages.stream(model="m", messages=HELLO, max_tokens=9) as stream:
            final = stream.get_final_message()
        assert (final.content[0].text, final.content[1].input) == ("I look.", {"town": "Bern"})
        assert final.usage.output_tokens == 4


ERRORS = [
    ("openai", 401, "AuthenticationError"),
    ("openai", 429, "RateLimitError"),
    ("openai", 500, "InternalServerError"),
    ("anthropic", 401, "AuthenticationError"),
    ("anthropic", 429, "RateLimitError"),
    ("anthropic", 529, "InternalServerError"),
]


@pytest.mark.parametrize(("kind", "status", "error"), ERRORS)
def test_errors_are_those_that_the_clients_know(kind, status, error, serve):
    fake = serve({"status": status, "error": "sorry", "retry_after": 1.5})
    known = getattr(importlib.import_module(kind), error)
    with client_of(kind, fake) as client, pytest.raises(known, match="sorry") as failure:
        create(kind, client)
    assert failure.value.response.headers["retry-after"] == "1.5"


WRONG_REQUESTS = {
    "/v1/chat/completions": [
        {"messages": []},
        {"messages": [{"role": "tool", "tool_call_id": "a", "content": "x"}]},
        {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
                },
                {"role": "user", "content": "x"},
            ]
        },
        {"messages": [{"content": "no role"}]},
    ],
    "/v1/messages": [
        {"messages": HELLO},
        {"max_tokens": 1, "messages": []},
        {"max_tokens": 1, "messages": [{"role": "assistant", "content": "x"}]},
        {"max_tokens": 1, "messages": [{"role": "user", "content": " "}]},
        {"max_tokens": 1, "messages": [*HELLO, {"role": "system", "content": "x"}]},
        {
            "max_tokens": 1,
            "messages": [
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}]}
            ],
        },
    ],
}


@pytest.mark.parametrize(
    ("path", "body"), [(path, body) for path, bodies in WRONG_REQUESTS.items() for body in bodies]
)
def test_a_request_that_the_real_one_would_refuse_is_refused(path, body, serve):
    status, answer = post(serve("never sent"), path, json.dumps(body))
    assert (status, answer["error"]["type"]) == (400, "invalid_request_error")


def test_an_unknown_path_and_a_body_that_is_no_json_are_refused(serve):
    fake = serve("never sent")
    assert post(fake, "/v1/embeddings", "{}")[0] == 404
    assert post(fake, "/v1/messages", "rubbish")[0] == 400
    assert fake.requests == []


def test_a_script_that_ran_out_and_a_message_that_was_not_expected_are_told(serve):
    fake = serve({"text": "Yes.", "expect": "Goodbye"})
    body = json.dumps({"messages": HELLO})
    assert (
        "expected the last message to match"
        in post(fake, "/v1/chat/completions", body)[1]["error"]["message"]
    )
    assert "ran out after 1 turns" in post(fake, "/v1/chat/completions", body)[1]["error"]["message"]


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        ({"text": "x", "statu": 500}, "turn 1: statu: unknown key"),
        ({"status": "500"}, "turn 1: status must be a number, not '500'"),
        ({"headers": ["x"]}, "turn 1: headers must be a mapping"),
    ],
)
def test_a_wrong_turn_is_told_at_once(turn, said):
    before = threading.active_count()
    with pytest.raises(UsageError, match=said):
        FakeProvider([turn])
    assert threading.active_count() == before


def test_closing_leaves_no_thread_behind_even_while_clients_hang():
    before = threading.active_count()
    with FakeProvider([{"hang": True}]) as fake:
        host, port = fake.url.removeprefix("http://").split(":")
        idle = http.client.HTTPConnection(host, int(port))
        idle.connect()
        waiting = http.client.HTTPConnection(host, int(port))
        waiting.request("POST", "/v1/chat/completions", json.dumps({"messages": HELLO}))
    assert threading.active_count() == before
    idle.close()
    waiting.close()


def client_of(kind, fake):
    # Loaded here: every worker collects this file, and few of them run it.
    client = getattr(importlib.import_module(kind), {"openai": "OpenAI", "anthropic": "Anthropic"}[kind])
    return client(api_key="k", base_url=getattr(fake, kind), max_retries=0)


def create(kind, client):
    if kind == "openai":
        return client.chat.completions.create(model="m", messages=HELLO)
    return client.messages.create(model="m", messages=HELLO, max_tokens=9)


def post(fake, path, body):
    host, port = fake.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port))
    try:
        connection.request("POST", path, body)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()
