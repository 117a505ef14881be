import json
import time

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from hookline.engine.context import Usage
from hookline.journal.masking import Mask, cut

MASK = Mask(["hunter2!", 'a"b\\c/d', "ключ-от-двери"])

# A value as it is given, and as it is stored.
BY_NAME = {
    "token": ({"token": "abc"}, {"token": "***"}),
    "part of a name": (
        {"GITHUB_TOKEN": "abc", "clientSecret": "abc"},
        {"GITHUB_TOKEN": "***", "clientSecret": "***"},
    ),
    "password": ({"password": "abc", "db-passwd": "abc"}, {"password": "***", "db-passwd": "***"}),
    "key": (
        {"api_key": "abc", "apiKey": "abc", "X-API-Key": "abc"},
        {"api_key": "***", "apiKey": "***", "X-API-Key": "***"},
    ),
    "other keys": (
        {"private_key": "abc", "aws_access_key": "abc"},
        {"private_key": "***", "aws_access_key": "***"},
    ),
    "headers": ({"Authorization": "abc", "Set-Cookie": "abc"}, {"Authorization": "***", "Set-Cookie": "***"}),
    "credentials": ({"credentials": {"a": 1}, "auth": "abc"}, {"credentials": "***", "auth": "***"}),
    "a number": ({"password": 123456}, {"password": "***"}),
    "whole": ({"secrets": ["a", {"b": "c"}]}, {"secrets": "***"}),
    "nested": ([{"a": [{"token": "abc"}]}], [{"a": [{"token": "***"}]}]),
    "name and value": ([{"name": "API_TOKEN", "value": "abc"}], [{"name": "API_TOKEN", "value": "***"}]),
    "a pair": ([["Authorization", "abc"]], [["Authorization", "***"]]),
    "a flag": (["login", "--password", "abc", "x"], ["login", "--password", "***", "x"]),
    "tokens that are words": ({"refresh_tokens": ["abc", 5]}, {"refresh_tokens": ["***", 5]}),
}
STAYS = {
    "counts": {
        "input_tokens": 5,
        "max_output_tokens": 4096,
        "total_tokens": None,
        "tokens": 7,
        "token_count": 8,
    },
    "counts inside": {"tokens": {"in": 1, "out": [2, 3]}, "prompt_tokens_details": {"cached_tokens": 0}},
    "counts as text": {"max_tokens": "4096"},
    "no secrets": {
        "tokenizer": "gpt",
        "secretary": "ann",
        "author": "ann",
        "monkey": "x",
        "key": "x",
        "keyboard": "x",
    },
    "across words": {"into_kennel": "x", "password": None},
    "about secrets": {"token_type": "x", "secretName": "x", "passwordPolicy": "x", "tokenUrl": "x"},
    "nothing there": {"password": None, "token": "", "secret": False},
    "references": {
        "token": "$TOKEN",
        "password": "${PASSWORD}",
        "secret": {"valueFrom": {"secretKeyRef": {"name": "x"}}},
        "volume": {"secret": {"secretName": "x", "defaultMode": 256, "items": [{"key": "k", "path": "p"}]}},
    },
    "kubernetes": {
        "secretKeyRef": {"name": "x", "key": "y"},
        "apiKeySecret": "x",
        "imagePullSecrets": [{"name": "x"}],
    },
}
TEXTS = {
    "API_TOKEN=abc run": "API_TOKEN=*** run",
    "password: abc": "password: ***",
    "Authorization: Bearer abc": "Authorization: Bearer ***",
    "Authorization: Digest a=1, b=2\nHost: x": "Authorization: ***\nHost: x",
    "curl -H 'Authorization: Bearer abc' http://x": "curl -H 'Authorization: Bearer ***' http://x",
    "Cookie: a=1; b=2": "Cookie: ***",
    'password = "a b\\"c", x = 1': 'password = "***", x = 1',
    "{'token': 'abc', 'x': 1}": "{'token': '***', 'x': 1}",
    '{"token": "a b", "x": 1}': '{"token": "***", "x": 1}',
    '{\\"token\\": \\"a b\\", \\"x\\": 1}': '{\\"token\\": \\"***\\", \\"x\\": 1}',
    '{"token": "a b': '{"token": "***',
    "?token=abc&x=1": "?token=***&x=1",
    "TOKEN=abc;PASSWORD=def": "TOKEN=***;PASSWORD=***",
    "f(api_key=abc)": "f(api_key=***)",
    "login --password abc -v": "login --password *** -v",
    "sent Bearer abcdefghijklmnop12": "sent Bearer ***",
    "git clone https://x-access-token:abc@host/r": "git clone https://x-access-token:***@host/r",
    "İ password=abc": "İ password=***",
    "say hunter2! now": "say *** now",
    'in JSON {"x": "a\\"b\\\\c\\/d"}': 'in JSON {"x": "***"}',
    json.dumps({"x": 'a"b\\c/d'}): '{"x": "***"}',
    json.dumps({"x": json.dumps('a"b\\c/d')}): '{"x": "\\"***\\""}',
    json.dumps("ключ-от-двери"): '"***"',
}
TEXTS_THAT_STAY = [
    "the token was read",
    "input_tokens: 512, output_tokens=1,024",
    "TOKEN=$TOKEN curl -H 'Authorization: Bearer ${TOKEN}'",
    "TOKEN=$(vault read x)",
    "see secret://vault/x",
    "the author's key: x",
    "Bearer of news",
    "password:",
]


@pytest.mark.parametrize(("value", "stored"), BY_NAME.values(), ids=BY_NAME.keys())
def test_values_are_masked_by_their_name(value, stored):
    assert json.loads(MASK.json(value)) == stored


@pytest.mark.parametrize("value", STAYS.values(), ids=STAYS.keys())
def test_what_only_looks_like_a_secret_stays(value):
    assert json.loads(MASK.json(value)) == value


@pytest.mark.parametrize(("text", "masked"), TEXTS.items())
def test_texts_are_masked(text, masked):
    assert MASK.text(text) == masked
    assert json.loads(MASK.json({"x": [text]})) == {"x": [masked]}


@pytest.mark.parametrize("text", TEXTS_THAT_STAY)
def test_texts_without_secrets_stay(text):
    assert MASK.text(text) == text
    assert json.loads(MASK.json([text, 1])) == [text, 1]


def test_keys_and_numbers_are_masked_by_value():
    mask = Mask(["hunter2!", "123456"])
    assert json.loads(mask.json({"a hunter2!": 1, "n": 91234567, "ok": 12345})) == {
        "a ***": 1,
        "n": "***",
        "ok": 12345,
    }
    assert json.loads(Mask(["abcdef", "ghijkl"]).json({"abcdef": 1, "ghijkl": 2})) == {"***": 1, "****": 2}


def test_secrets_that_only_come_about_by_masking_are_masked_too():
    mask = Mask(["abcdef", "xx***yy"])
    assert mask.text("xxabcdefyy") == "***"
    assert json.loads(mask.json(["xxabcdefyy", "ok"])) == ["***", "ok"]


def test_a_secret_that_is_spelled_across_our_own_signs_takes_the_whole_with_it():
    assert Mask(['","abcd']).json(["xx", "abcd"]) == '"***"'
    assert Mask(["... (cut"]).text("x" * 100, cap=10) == "***"


def test_a_short_secret_is_not_looked_for_and_a_trailing_newline_does_not_hide_a_long_one():
    assert Mask(["short", "hunter2!\n"]).text("short hunter2!") == "short ***"


def test_models_and_dataclasses_are_masked_inside():
    class Model:
        def model_dump(self):
            return {"password": "abc", "usage": Usage(input_tokens=5)}

    stored = json.loads(MASK.json(Model()))
    assert stored == {"password": "***", "usage": {"input_tokens": 5, "output_tokens": 0, "total_tokens": 0}}


def test_a_secret_is_masked_before_the_text_is_cut():
    # The cut falls into the middle of the secret.
    for cap in range(60, 120):
        stored = MASK.json({"a": "x" * 30 + "hunter2!" + "y" * 200}, cap)
        assert "hunter" not in stored
        assert "hunter" not in MASK.text("x" * (cap - 6) + "hunter2!" + "y" * 200, cap)


def test_a_capped_value_says_how_long_it_was():
    stored = json.loads(Mask().json(["x" * 1000], cap=200))
    assert stored["__cut__"] is True
    assert stored["bytes"] == 1004
    assert stored["head"].startswith('["xxx')
    assert len(stored["head"]) > 100


def test_a_value_of_just_the_cap_is_whole():
    assert Mask().json("x" * 98, cap=100) == f'"{"x" * 98}"'
    assert cut("é" * 50, 100) == "é" * 50


def test_long_texts_take_time_in_proportion():
    # Each of these would take minutes if a search began anew at every place.
    for piece in ("token", 'token="', "password='\\", "--" + "a" * 50, "a", '\\"', "Bearer ", 'token":"\\\\'):
        text = piece * (400_000 // len(piece))
        started = time.perf_counter()
        MASK.json({"token=": text})
        MASK.text(text)
        assert time.perf_counter() - started < 20


PIECES = [
    "token", "tokens", "Secret", "PASSWORD", "passwd", "api_key", "apikey", "auth", "authorization", "Cookie",
    "private key", "bearer ", "--", "=", ": ", ":", '"', "'", "\\", " ", "\n", ",", "{", "}", "_", "s", "5", "12",
    "null", "count", "name", "value", "abc", "é", "$X", "credential", "passphrase", "secretary", "abcdefghijklmnop",
]  # fmt: skip
words = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)
suspicious = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(words, inner, max_size=4),
    max_leaves=12,
)
anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)
surrogates = st.text(st.characters(categories=["Cs", "L", "P"]), max_size=30)


@given(suspicious)
@example({"token": 5})
@example({"tokens_used": -1})
@example({"auth": "abc"})
@example({'token":5': "x"})
@example(["auth", "x"])
def test_the_quick_look_misses_nothing_that_the_walk_would_mask(value):
    mask = Mask()
    walked = json.dumps(mask._walked(value, ()), ensure_ascii=False, separators=(",", ":"))
    assert mask.json(value) == walked


@given(suspicious)
@example({"token=tokens": []})
def test_masking_again_changes_nothing(value):
    once = json.loads(Mask().json(value))
    assert json.loads(Mask().json(once)) == once


# The same in one example, so that the strategies are made once and not for each example.
some_secrets = st.shared(st.lists(st.text(min_size=6, max_size=12), min_size=1, max_size=3), key="secrets")
around = st.builds(
    lambda before, secrets, at, after: before + secrets[at % len(secrets)] + after,
    st.text(max_size=8),
    some_secrets,
    st.integers(0, 2),
    st.text(max_size=8),
)
spelled = around | around.map(json.dumps) | around.map(lambda text: json.dumps({"x": json.dumps(text)}))
secretive = st.recursive(
    spelled | st.text() | st.integers(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(spelled | st.text(), inner, max_size=4),
    max_leaves=8,
)


@given(some_secrets, secretive, st.none() | st.integers(0, 200))
def test_no_secret_is_ever_in_the_stored_bytes(secrets, value, cap):
    stored = Mask(secrets).json(value, cap)

    json.loads(stored)
    for secret in secrets:
        assert secret.encode() not in stored.encode()


@given(
    st.lists(st.text(min_size=6, max_size=12), min_size=1, max_size=3),
    words,
    words,
    st.none() | st.integers(0, 50),
)
def test_no_secret_is_ever_in_a_stored_text(secrets, before, after, cap):
    for secret in secrets:
        assert secret not in Mask(secrets).text(before + secret + after, cap)


@given(anything | surrogates, st.none() | st.integers(0, 300))
def test_the_stored_is_always_valid_json_in_utf_8_and_within_the_cap(value, cap):
    stored = Mask().json(value, cap)

    json.loads(stored, parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    size = len(stored.encode())
    assert cap is None or size <= max(cap, 60)


@given(st.text(), st.integers(0, 300))
def test_a_cap_never_cuts_a_character(text, cap):
    whole = json.dumps(text, ensure_ascii=False)
    cap %= len(whole.encode())  # less than its size: most texts are short, and would be whole
    stored = json.loads(Mask().json(text, cap))
    assume(isinstance(stored, dict))

    assert whole.startswith(stored["head"])
    assert text.startswith(cut(text, cap).partition(" ... (cut")[0])


@given(st.text())
def test_a_value_without_secrets_comes_back_as_it_was(text):
    assume(not Mask().suspects(json.dumps(text)))
    assert json.loads(Mask().json({"x": [text]})) == {"x": [text]}
