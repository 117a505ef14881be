"""The real Claude Code, offline against a loopback model, with `hookline answer` as its hooks."""

import pytest

from tests.real.clients import NO_FORCE_PUSH, guarded

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

FILE = f"""{NO_FORCE_PUSH}\
  - name: louder
    on: tool.start
    match: kind:shell
    when: {{input.command: {{contains: echo quiet}}}}
    python: mine.py:louder
  - name: hide
    on: tool.end
    match: kind:shell
    python: mine.py:hide
  - name: brief
    on: agent.start
    python: mine.py:brief
"""
MINE = """
from hookline import HookResult

def louder(ctx, c):
    return HookResult.continue_with(modified_payload={"command": "echo LOUD > said.txt"})

def hide(ctx, c):
    output = c.current_output
    if isinstance(output, dict) and "s3cr3t" in str(output.get("stdout")):
        return HookResult.continue_with(modified_output={"stdout": "hidden by hookline"})
    return HookResult.continue_with()

def brief(ctx, c):
    return HookResult.continue_with(tell_model="The branch is frozen today.")
"""


def played(name, mine, result, *more):
    """A call that is blocked, an input and an output that are changed, a context that is added, more calls: what the
    model was told of the results, and the records."""
    with guarded(name, FILE, mine=mine) as site:
        commands = ("git push --force origin main", "echo quiet > said.txt", "echo s3cr3t", *more)
        done = site.run([*([site.shell(command)] for command in commands), "all done"])
        assert done.code == 0, done.printed
        assert "all done" in done.printed
        assert not site.pushed()
        assert (site.project / "said.txt").read_text() == "LOUD\n"
        records = site.records()
    assert "The branch is frozen today." in done.sent[0]
    told = done.sent[-1].partition(result)[2]
    assert "force" in told, "the model is told why its push was refused"
    assert "hidden by hookline" in told
    calls = [each for each in records if each["record"] == "called"]
    assert ("no-force-push", "block") in {(each["hook"], each["action"]) for each in calls}
    assert {each["hook"] for each in calls if each["changed"]} == {"louder", "hide"}
    assert [each["tell_model"] for each in calls if each["tell_model"]] == ["The branch is frozen today."]
    return told, records


def test_a_call_is_blocked_an_input_and_an_output_changed_a_context_added_and_all_is_on_record():
    told, _ = played("claude-code", MINE, "tool_result")
    assert '"s3cr3t' not in told
