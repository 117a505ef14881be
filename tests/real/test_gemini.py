"""The real Gemini CLI, offline against a loopback model, with `hookline answer` as its hooks."""

import pytest

from tests.real.clients import CLIENTS, Site
from tests.real.test_claude_code import FILE, MINE

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

# Gemini CLI has its own form of a result, and takes another one only as the reason of a refusal.
HIDES = MINE.replace(
    'modified_output={"stdout": "hidden by hookline"}', 'modified_output="hidden by hookline"'
).replace('output.get("stdout")', "output")


def test_a_call_is_blocked_an_input_and_an_output_changed_a_context_added_and_all_is_on_record():
    client = CLIENTS["gemini"]
    client.installed()
    with Site(client) as site:
        site.hooks(FILE, mine=HIDES)
        site.install()
        done = site.run(
            [
                [site.shell("git push --force origin main")],
                [site.shell("echo quiet > said.txt")],
                [site.shell("echo s3cr3t")],
                [site.shell("exit 7")],
                "all done",
            ]
        )
        assert done.code == 0, done.printed
        assert "all done" in done.printed
        assert not site.pushed()
        assert (site.project / "said.txt").read_text() == "LOUD\n"
        records = site.records()
    assert "The branch is frozen today." in done.sent[0]
    told = done.sent[-1].partition("functionResponse")[2]
    assert "force" in told, "the model is told why its push was refused"
    assert "hidden by hookline" in told
    assert "Output: s3cr3t" not in told
    calls = [each for each in records if each["record"] == "called"]
    assert ("no-force-push", "block") in {(each["hook"], each["action"]) for each in calls}
    assert {each["hook"] for each in calls if each["changed"]} == {"louder", "hide"}
    scopes = {each["scope_id"]: each["scope"] for each in records if each["record"] == "begun"}
    ends = [(scopes[each["scope_id"]], each["status"]) for each in records if each["record"] == "ended"]
    tools = [("tool", "blocked"), ("tool", "ok"), ("tool", "ok"), ("tool", "failed")]
    assert ends == [*tools, ("agent", "ok"), ("session", "ok")]
    assert len(scopes) == 6, "one for each call, the prompt and the session"
