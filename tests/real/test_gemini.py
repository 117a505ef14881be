"""The real Gemini CLI, offline against a loopback model, with `hookline answer` as its hooks."""

import pytest

from tests.real.test_claude_code import MINE, played

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

# Gemini CLI has its own form of a result, and takes another one only as the reason of a refusal.
HIDES = MINE.replace(
    'modified_output={"stdout": "hidden by hookline"}', 'modified_output="hidden by hookline"'
).replace('output.get("stdout")', "output")


def test_a_call_is_blocked_an_input_and_an_output_changed_a_context_added_and_all_is_on_record():
    told, records = played("gemini", HIDES, "functionResponse", "exit 7")
    assert "Output: s3cr3t" not in told
    scopes = {each["scope_id"]: each["scope"] for each in records if each["record"] == "begun"}
    ends = [(scopes[each["scope_id"]], each["status"]) for each in records if each["record"] == "ended"]
    tools = [("tool", "blocked"), ("tool", "ok"), ("tool", "ok"), ("tool", "failed")]
    assert ends == [*tools, ("agent", "ok"), ("session", "ok")]
    assert len(scopes) == 6, "one for each call, the prompt and the session"
