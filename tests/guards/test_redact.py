"""redact_emails and redact_phones: what goes, and what only looks like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, HookContext, Scripted, tool
from hookline.guards import redact_emails, redact_phones
from hookline.guards.redact import without_emails, without_phones

EMAILS = [
    "ann@example.com",
    "ann.b+news@mail.example.co.uk",
    "a@b.io",
    "o'neil@example.ie",
    "ann_b@ex-ample.com",
    "ANN@EXAMPLE.COM",
    "jürgen@müller.de",
    "ann%40example.com",
    "ann [at] example [dot] com",
    "ann(at)example.com",
    "ann\uff20example.com",
]

NO_EMAILS = [
    "",
    "@dataclass",
    "@pytest.mark.parametrize",
    "react@18.2.0",
    "npm i @types/node@20",
    "icon@2x.png",
    "git@github.com:org/repo.git",
    "user@localhost",
    "a @ b",
    "HEAD@{1}",
    "actions/checkout@v4",
    "x = y @ z.T",
    "look at example.com",
]

PHONES = [
    "+14155552671",
    "+1 415 555 2671",
    "+1 (415) 555-2671",
    "+49 30 1234567",
    "+49 (0)30 123456-78",
    "+44 20 7946 0958",
    "+33 6 12 34 56 78",
    "+81-3-1234-5678",
    "+91 98765 43210",
    "0049 30 1234567",
    "(415) 555-2671",
    "415-555-2671",
    "415.555.2671",
    "415 555 2671",
    "1-800-555-0199",
    "020 7946 0958",
    "(030) 1234567",
    "0171/1234567",
    "0171 1234567",
    "06 12 34 56 78",
    "06.12.34.56.78",
]

NO_PHONES = [
    "",
    "1.2.3",
    "v10.20.30",
    "192.168.100.200",
    "127.0.0.1:8080",
    "2024-01-02",
    "2024-01-02T10:20:30+02:00",
    "01-02-2024",
    "01.02.2024",
    "01/02/2024",
    "10:20:30",
    "1700000000",
    "1700000000.123456",
    "4155552671",
    "12345678901234567890",
    "123e4567-e89b-12d3-a456-426614174000",
    "4111 1111 1111 1111",
    "978-3-16-148410-0",
    "1e+10000000",
    "a+12345678",
    "3.14159265358979",
    "0x1234567890",
    "1,234,567,890",
    "ABC-415-555-2671",
    "/path/415-555-2671/x",
    "01-23-45-67-89-ab",
    "010-1234",
    "$415.555",
    "@@ -123,456 +123,456 @@",
    "line 415: 555",
    "00:1A:2B:3C:4D:5E",
    "sha256:0123456789",
]

AROUND = ["{}", "call {} now", "<{}>", "({})", '"{}"', "{}.", "{},", "\n{}\n", "to: {}; x"]


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("email", EMAILS)
def test_an_email_address_goes(email, around):
    assert without_emails(around.format(email)) == around.format("[email]")


@pytest.mark.parametrize("text", NO_EMAILS)
def test_what_is_no_email_address_stays(text):
    assert without_emails(text) == text


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("phone", PHONES)
def test_a_phone_number_goes(phone, around):
    assert without_phones(around.format(phone)) == around.format("[phone]")


@pytest.mark.parametrize("text", NO_PHONES)
def test_what_is_no_phone_number_stays(text):
    assert without_phones(text) == text


def test_a_link_to_call_goes():
    assert without_phones('<a href="tel:4155552671">') == '<a href="tel:[phone]">'


@pytest.mark.parametrize(("redact", "rows"), [(without_emails, EMAILS), (without_phones, PHONES)])
@given(data=st.data())
def test_redacting_twice_is_redacting_once(redact, rows, data):
    parts = data.draw(st.lists(st.sampled_from(rows) | st.text(max_size=10), max_size=4))
    once = redact(" ".join(parts))
    assert redact(once) == once


@given(st.text(st.characters(exclude_characters="@\uff20%&[("), max_size=100))
def test_a_text_without_the_sign_has_no_email(text):
    assert without_emails(text) == text


@given(st.text(st.characters(exclude_categories=["Nd"]), max_size=100))
def test_a_text_without_digits_has_no_phone(text):
    assert without_phones(text) == text


async def test_they_stand_around_the_whole_agent():
    @tool
    def look_up(name: str) -> dict:
        """Look somebody up."""
        return {"name": name, "mail": "ann@example.com", "phone": "+1 415 555 2671"}

    turns = [
        {"tools": [{"name": "look_up", "arguments": {"name": "bob@example.com"}}]},
        "Write to ann@example.com or call +1 415 555 2671.",
    ]
    model = Scripted(turns)
    agent = Agent(id="a", model=model, tools=[look_up])
    result = await agent.run(
        "Who is ann@example.com?", session_id="ann@example.com", hooks=[redact_emails, redact_phones]
    )
    await agent.close()
    assert result.result == "Write to [email] or call [phone]."
    assert result.session_id == "ann@example.com"
    assert result.tool_results[0].result == {"name": "[email]", "mail": "[email]", "phone": "[phone]"}
    assert "Who is [email]?" in str(model.requests[0].messages)


def test_messages_and_their_alias_change_together():
    messages = [{"role": "user", "content": "I am ann@example.com"}]
    given = {"input": messages, "prompt": messages, "provider_kwargs": {"user": "ann@example.com"}}
    answer = redact_emails(None, HookContext(workflow_id="w", point="agent.start", current_payload=given))
    clean = [{"role": "user", "content": "I am [email]"}]
    assert answer.modified_payload == {"input": clean, "prompt": clean}


LONG = {
    "letters": "a" * 1_000_000,
    "at": "@" * 1_000_000,
    "a@": "a@" * 500_000,
    "a@a.": "a@" + "a." * 500_000,
    "dots": "." * 999_999 + "@",
    "dashes": "a-" * 500_000 + "@",
    "digits": "1" * 1_000_000,
    "plus": "+1" * 500_000,
    "zeros": "0 " * 500_000,
    "groups": "415-" * 250_000,
    "pairs": "06 " * 333_333,
    "parentheses": "+1" + "(" * 1_000_000,
    "tel": "tel:" * 250_000,
}


@pytest.mark.parametrize("text", LONG.values(), ids=LONG.keys())
def test_a_long_text_is_redacted_in_the_end(text):
    without_emails(text)
    without_phones(text)
