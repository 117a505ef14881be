"""mask_secrets: what is masked, what stays, and that masking twice is masking once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, HookAction, HookContext, HookResult, Scripted, hook, tool
from hookline.engine.hook import settled_on_error
from hookline.engine.result import WITHHELD
from hookline.guards import mask_secrets, redact_emails, redact_phones
from hookline.guards.redact import masked
from hookline.handlers.python import python_hook

A36 = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6"
BLOCK = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow+/ab=\nQQ==\n-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U"

# The text, and what must not be in it afterwards.
SECRET = [
    (f"sk-{A36}", A36),
    (f"sk-proj-{A36}_x-y", A36),
    (f"sk-ant-api03-{A36}", A36),
    (f"key is ghp_{A36}.", A36),
    (f"(gho_{A36})", A36),
    (f"github_pat_11AAAAAAA0_{A36}", A36),
    (f"glpat-{A36}", A36),
    ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
    ("id=ASIAIOSFODNN7EXAMPLE;", "IOSFODNN7"),
    ("xox" + "b-123456789012-abcdefABCDEF", "abcdefABCDEF"),
    ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "SyA1234567890"),
    (f"npm_{A36}", A36),
    (f"hf_{A36}", A36),
    (f"sk_live_{A36}", A36),
    ("https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXX1234", "XXXX1234"),
    (BLOCK, "MIIEow"),
    (BLOCK.replace("\n", "\\n"), "MIIEow"),
    ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXk\nAAAA", "b3Blbn"),
    (f"x\n{BLOCK}\ny\n{BLOCK}", "QQ=="),
    (JWT, "eyJzdWI"),
    (f"Cookie: session={JWT}", "dozjgNry"),
    ("Authorization: Bearer abcdef", "abcdef"),
    ("authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("-H 'Authorization: token abcdef123'", "abcdef123"),
    ('{"Authorization": "Bearer abc.def.ghi"}', "abc.def"),
    ("curl -H 'X: Bearer 0123456789abcdef0'", "0123456789abcdef"),
    ("DB_PASSWORD=hunter2", "hunter2"),
    ("DB_PASSWORD=correcthorse", "correcthorse"),
    ("export API_KEY='hunter-two'", "hunter-two"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalr"),
    ("MYAPP_TOKEN=abcdef", "abcdef"),
    ("password: hunter2hunter2\n", "hunter2"),
    ('{"password": "correct"}', "correct"),
    ('{\\"password\\": \\"correct\\"}', "correct"),
    ("client_secret = 'abcdef'", "abcdef"),
    ("https://x/?access_token=abc123def&y=1", "abc123def"),
    ("postgres://me:hunter2@db:5432/x", "hunter2"),
    ("https://oauth2:abcdef@github.com/x.git", "abcdef"),
    ("redis://:hunter2@cache", "hunter2"),
]

PLAIN = [
    "",
    "hello",
    "sk-learn",
    "class='sk-toggleable__label sk-estimator-doc-link sk-container-id-1'",
    "task-1234567890123456789012345",
    "the token is next_token",
    "token=next_token",
    "token = get_token(1)",
    "token=get_token1x(2)",
    "password: str",
    "password=None",
    "token: int32",
    "tokens: 12345678",
    "max_tokens=4096",
    "token_count=12345",
    "API_TOKEN=$API_TOKEN",
    "API_TOKEN=${API_TOKEN}",
    'password: "${DB_PASSWORD}"',
    "API_TOKEN=***",
    "SECRET_NAME=my-secret1",
    "TOKEN_URL=https://x/token1",
    "https://example.com:8080/a@b",
    "http://localhost:8080/x",
    "git@github.com:org/repo.git",
    "basic understanding of bearer tokens",
    "the bearer of understandings-and-more",
    "eyJust a word.eyJ",
    "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----",
    "commit 3f786850e387550fdab836ed7e6dc881de23001b",
    "123e4567-e89b-12d3-a456-426614174000",
    "AKIA is a prefix",
    "secretary: Mary-Ann1 Smith",
]


@pytest.mark.parametrize(("text", "gone"), SECRET)
def test_a_secret_is_masked(text, gone):
    assert gone not in masked(text)
    assert "***" in masked(text)


@pytest.mark.parametrize(("text", "gone"), SECRET)
def test_masking_what_is_masked_changes_nothing(text, gone):
    assert masked(masked(text)) == masked(text)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_stays(text):
    assert masked(text) == text


KEPT = {
    "a ghp_" + A36 + " b": "a *** b",
    "postgres://me:hunter2@db:5432/x": "postgres://me:***@db:5432/x",
    "A=1\nDB_PASSWORD=hunter2\nB=2": "A=1\nDB_PASSWORD=***\nB=2",
    '{"password": "correct", "x": 1}': '{"password": "***", "x": 1}',
    "Authorization: Bearer abcdef\nX: 1": "Authorization: Bearer ***\nX: 1",
}


@pytest.mark.parametrize(("text", "left"), KEPT.items())
def test_only_the_secret_goes(text, left):
    assert masked(text) == left


pieces = st.sampled_from([text for text, _ in SECRET] + PLAIN) | st.text(max_size=20)


def test_a_secret_right_behind_another_is_masked_too():
    assert (
        masked("AIzaSyA1234567890abcdefghijklmnopqrstuvsk-aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6") == "******"
    )


@given(st.lists(pieces, max_size=5), st.sampled_from([" ", "\n", "", '"', ": "]))
def test_masking_is_idempotent(parts, between):
    once = masked(between.join(parts))
    assert masked(once) == once


@given(st.text(st.characters(categories=["L", "Z", "N"]), max_size=19))
def test_a_short_text_without_signs_is_unchanged(text):
    assert masked(text) == text


NESTED = [
    ("a", None),
    (None, None),
    (3, None),
    ({"a": [1, {"b": "x"}]}, None),
    ({"tokens": 12, "api_key": ""}, None),
    ("DB_PASSWORD=hunter2", "DB_PASSWORD=***"),
    ({"a": "x", "b": ["y", "DB_PASSWORD=hunter2"]}, {"b": ["y", "DB_PASSWORD=***"]}),
    ({"deep": {"api_key": "abc", "n": 1}}, {"deep": {"api_key": "***", "n": 1}}),
    ({"api_keys": ["abc", "def"]}, {"api_keys": ["***", "***"]}),
    ([{"password": "x1"}, 2], [{"password": "***"}, 2]),
    ({"ghp_" + A36: 1}, {"***": 1}),
    ([{"name": "API_TOKEN", "value": "abc"}], [{"name": "API_TOKEN", "value": "***"}]),
    (["login", "--password", "abc", "x"], ["login", "--password", "***", "x"]),
    (b"DB_PASSWORD=hunter2", "DB_PASSWORD=***"),
]


@pytest.mark.parametrize(("output", "changed"), NESTED)
def test_only_what_changed_is_given_back(output, changed):
    answer = mask_secrets(None, HookContext(workflow_id="w", point="tool.end", current_output=output))
    assert answer.action is HookAction.CONTINUE
    assert answer.modified_output == changed
    assert answer.modified_payload is None


async def test_the_model_and_the_user_never_see_it():
    @tool
    def environment() -> dict:
        """Show the environment."""
        return {"lines": ["A=1", "DB_PASSWORD=hunter2"], "open": True}

    model = Scripted([{"tools": [{"name": "environment", "arguments": {}}]}, f"Use ghp_{A36}, please."])
    agent = Agent(id="a", model=model, tools=[environment])
    result = await agent.run("go", hooks=[mask_secrets])
    assert result.result == "Use ***, please."
    assert result.tool_results[0].result == {"lines": ["A=1", "DB_PASSWORD=***"], "open": True}
    assert "hunter2" not in str(model.requests[1].messages)


async def test_what_a_model_gives_a_tool_is_left_alone():
    given: list[str] = []

    @tool
    def login(password: str) -> str:
        """Log in."""
        given.append(password)
        return "in"

    turns = [{"tools": [{"name": "login", "arguments": {"password": "hunter2"}}]}, "Done."]
    await Agent(id="a", model=Scripted(turns), tools=[login]).run("go", hooks=[mask_secrets])
    assert given == ["hunter2"]


LONG = {
    "letters": "a" * 1_000_000,
    "eyJ": "eyJ" * 333_333,
    "eyJ.": "eyJ." * 250_000,
    "sk-": "sk-" * 333_333,
    "begins": "-----BEGIN RSA PRIVATE KEY-----" * 32_000,
    "begins and one end": "-----BEGIN RSA PRIVATE KEY-----" * 32_000 + "-----END RSA PRIVATE KEY-----",
    "token": "token" * 200_000,
    "token=": "token=" * 160_000,
    "password: '": "password: '" * 90_000,
    "authorization:": "authorization: " * 66_000,
    "bearer": "bearer " * 140_000,
    "://": "://" * 333_333,
    "://a:": "://a:" * 200_000,
    "digits": "1" * 1_000_000,
    "slack": "hooks.slack.com/services/" * 40_000,
    "one long value": 'password="' + "x" * 1_000_000,
    "spaces": " " * 1_000_000,
    "slashes": "password\\" * 100_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_text_is_masked_in_the_end(text):
    masked(text)


@pytest.mark.parametrize("guard", [mask_secrets, redact_emails, redact_phones])
def test_a_ready_guard_that_masks_withholds_where_it_breaks(guard):
    made = python_hook(guard)
    assert {settled_on_error(made, point) for point in made.points if not point.is_start} == {"withhold"}


@hook(on=("tool.end", "agent.end"), changes="output")
def masks(ctx, c):
    if "hunter2" in str(c.current_output):
        raise ValueError("broke")
    return HookResult.continue_with()


async def test_what_a_broken_mask_should_have_hidden_reaches_neither_model_nor_user():
    @tool
    def login() -> str:
        """Log in."""
        return "the password is hunter2"

    model = Scripted([{"tools": [{"name": "login", "arguments": {}}]}, "hunter2 it is"])
    result = await Agent(id="a", model=model, tools=[login]).run("go", hooks=[masks])
    assert result.result == result.tool_results[0].result == WITHHELD
    assert "hunter2" not in str(model.requests[1].messages)
