"""The start and the end of one thing are one scope in the journal, whoever tells of them: real payloads of each client."""

import json
from pathlib import Path

import pytest

from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended
from hookline.journal.sqlite import SqliteJournal

FIXTURES = Path(__file__).parents[1] / "fixtures"
HOOKS = """
hooks:
  - name: no-rm
    on: tool.start
    when: {input.command: {contains: rm -rf}}
    python: mine.py:refuses
  - name: other-input
    on: tool.start
    match: Rewritten
    python: mine.py:rewrites
  - name: status
    on: tool.end
    python: mine.py:seen
  - name: not-yet
    on: agent.end
    when: {output: {equals: half}}
    python: mine.py:refuses
  - name: instead
    on: tool.start
    match: Answered
    python: mine.py:answers
  - name: no-change
    on: x.claude.ConfigChange
    python: mine.py:refuses
  - name: no-model
    on: model.start
    python: mine.py:refuses
"""
MINE = """
from hookline import HookResult

def seen(ctx, c):
    return HookResult.continue_with(tell_user=f"seen {c.status}")

def rewrites(ctx, c):
    return HookResult.continue_with(modified_payload={"x": 2})

def answers(ctx, c):
    return HookResult.answer("known already")

def refuses(ctx, c):
    return HookResult.block("not so")
"""


def payload(place, **changes):
    client, _, name = place.partition("/")
    return {**json.loads((FIXTURES / client / "stdin" / f"{name}.json").read_text()), **changes}


def printed(*lines):
    return {"tool_response": {"llmContent": "\n".join(["Output: x", *lines])}}


CALLERS = {"claude-code": "claude"}
RM = {"tool_input": {"command": "rm -rf /"}}
OTHER = {"tool_name": "Rewritten", "tool_input": {"x": 1}}
AFTER_OTHER = {"tool_name": "Rewritten", "tool_input": {"x": 2}}
HALF, WHOLE = ({"last_assistant_message": word, "stop_hook_active": False} for word in ("half", "whole"))
FAILED = "ls: cannot access"
# Events in the order of the client; then each line of the journal: its scope, its name, how it ended, and with what error.
SCOPES = {
    "a call": (["claude-code/PreToolUse.bash", "claude-code/PostToolUse.bash"], ["tool Bash ok"]),
    "a call that failed": (
        [("claude-code/PreToolUse.bash", {"tool_use_id": "toolu_00050"}), "claude-code/PostToolUseFailure.bash"],
        [f"tool Bash failed {FAILED}"],
    ),
    "a call that was interrupted": (
        [("claude-code/PostToolUseFailure.bash", {"is_interrupt": True})],
        [f"tool Bash cancelled {FAILED}"],
    ),
    "a call that was refused": ([("claude-code/PreToolUse.bash", RM)], ["tool Bash blocked not so"]),
    "a call that failed without a word": (
        [("claude-code/PostToolUseFailure.bash", {"error": ""})],
        ["tool Bash failed"],
    ),
    "a call whose tool reports an error": (
        [("claude-code/PostToolUse.bash", {"tool_response": {"isError": True, "content": []}})],
        ["tool Bash failed the tool reported an error"],
    ),
    "a call that a hook answers": ([("claude-code/PreToolUse.bash", {"tool_name": "Answered"})], ["tool Answered answered"]),
    "a call whose client died": (["claude-code/PreToolUse.bash"], ["tool Bash open"]),
    "an end of which no start was told": (["claude-code/PostToolUse.bash"], ["tool Bash ok"]),
    "calls at once": (
        [
            "claude-code/PreToolUse.bash",
            "claude-code/PreToolUse.read",
            "claude-code/PostToolUse.read",
            "claude-code/PostToolUse.bash",
        ],
        ["tool Bash ok", "tool Read ok"],
    ),
    "a session, a prompt and a sub-agent": (
        [
            "claude-code/SessionStart.startup",
            "claude-code/UserPromptSubmit",
            "claude-code/SubagentStart",
            "claude-code/SubagentStop",
            ("claude-code/Stop", HALF),
            ("claude-code/Stop", WHOLE),
            "claude-code/SessionEnd",
        ],
        ["session claude-code ok", "agent claude-code ok", "agent general-purpose ok"],
    ),
    "a failed command of Qwen Code, which asks about a prompt at every step": (
        [
            "qwen/UserPromptSubmit",
            "qwen/PreToolUse.shell",
            "qwen/PostToolUseFailure.shell",
            "qwen/UserPromptSubmit.again",
            "qwen/Stop",
        ],
        ["agent qwen-code ok", f"tool run_shell_command failed {FAILED}"],
    ),
    "calls of Gemini CLI, which have no id": (
        ["gemini/BeforeTool.shell", "gemini/AfterTool.shell", "gemini/BeforeTool.read", "gemini/AfterTool.read"],
        ["tool run_shell_command failed Exit Code: 2", "tool read_file failed File not found"],
    ),
    "an exit code that is not the last line of Gemini CLI's": (
        [("gemini/AfterTool.shell", printed("Exit Code: 3", "Background PIDs: 7", "Process Group PGID: 7"))],
        ["tool run_shell_command failed Exit Code: 3"],
    ),
    "an exit code that the command itself printed": (
        [("gemini/AfterTool.shell", printed("Exit Code: 3", "more"))],
        ["tool run_shell_command ok"],
    ),
    "the same call of Gemini CLI, twice": (
        ["gemini/BeforeTool.shell", "gemini/AfterTool.shell"] * 2,
        ["tool run_shell_command failed Exit Code: 2"] * 2,
    ),
    "a call without an id, whose input a hook changes": (
        [("gemini/BeforeTool.read", OTHER), ("gemini/AfterTool.read", {**AFTER_OTHER, "tool_response": {}})],
        ["tool Rewritten ok"],
    ),
    "an answer of a model that comes in pieces": (
        ["gemini/AfterModel.piece", "gemini/AfterModel.piece", "gemini/AfterModel.last"],
        ["model gemini-cli ok"],
    ),
    "a prompt of Gemini CLI": (["gemini/BeforeAgent", "gemini/AfterAgent"], ["agent gemini-cli ok"]),
    "a command of Codex, which does not say that it failed": (
        ["codex/PreToolUse.bash", "codex/PostToolUse.bash"],
        ["tool Bash ok"],
    ),
    "a model call of Codex": (["codex/PreModelRequest", "codex/PostModelRequest"], ["model codex ok"]),
    "a model call of Codex that failed": (
        [("codex/PostModelRequest", {"status": "failed", "error": "no such model"})],
        ["model codex failed no such model"],
    ),
}  # fmt: skip


@pytest.fixture
def told(hookline):
    (hookline.folder / "guards.yaml").write_text(HOOKS)
    (hookline.folder / "mine.py").write_text(MINE)

    def tell(events):
        for each in events:
            place, changes = each if isinstance(each, tuple) else (each, {})
            client = place.partition("/")[0]
            words = ("answer", "--as", CALLERS.get(client, client), "--file", "guards.yaml")
            done = hookline(*words, stdin=json.dumps(payload(place, **changes)))
            assert done.returncode == 0, done.stderr
        return done

    tell.hookline = hookline
    return tell


def lines(records):
    """One line for each scope, with how it ended; an end is of the newest scope of its name."""
    found, standing = [], {}
    for record in records:
        if isinstance(record, Begun):
            standing[record.scope_id] = len(found)
            found.append(f"{record.scope} {record.name} open")
        elif isinstance(record, Ended):
            place = standing.pop(record.scope_id)
            shown = f"{record.status} {record.error or ''}".rstrip()
            found[place] = found[place].removesuffix("open") + shown
        else:
            assert record.scope_id in standing, "every record is of a scope that has begun"
    return found


@pytest.mark.parametrize(("events", "wanted"), SCOPES.values(), ids=SCOPES.keys())
def test_what_a_client_tells_of_one_thing_is_one_scope_with_how_it_ended(told, events, wanted):
    told(events)
    journal = SqliteJournal(told.hookline.folder / "home" / "journal.db")
    [row] = journal.runs()
    records = journal.records(row.run_id)
    found = lines(records)
    assert [line.split(" ", 3)[:3] for line in found] == [line.split(" ", 3)[:3] for line in wanted]
    for line, beginning in zip(found, wanted, strict=True):
        assert all(word in line for word in beginning.split(" ", 3)[3:]), line
    statuses = [each.tell_user for each in records if isinstance(each, Called) and each.hook == "status"]
    ends = [each.status for each in records if isinstance(each, Ended) and each.scope is Scope.TOOL]
    assert statuses == [
        f"seen {status}" for status in ends if status not in (Status.BLOCKED, Status.ANSWERED)
    ]
    journal.close()


def test_runs_shows_a_call_that_failed_as_one_and_one_without_an_end_as_open(told):
    told([*SCOPES["a call that failed"][0], "claude-code/PreToolUse.read"])
    shown = told.hookline("runs", "last").stdout
    assert shown.count("tool Bash") == 1
    assert "= Bash failed" in shown
    assert "= Read open" in shown
    assert "null" not in shown
    [row] = map(json.loads, told.hookline("runs", "--json").stdout.splitlines())
    assert (row["name"], row["status"], row["ended"]) == ("Read", None, None)


def test_what_a_dead_client_left_open_is_owed_nothing_and_pruned_when_it_is_a_day_old(told):
    told(["claude-code/SessionStart.startup", "claude-code/PreToolUse.bash"])
    recovered = told.hookline("run", "agent.py:agent", "go")
    assert "lost" not in recovered.stdout + recovered.stderr
    journal = SqliteJournal(told.hookline.folder / "home" / "journal.db")
    client = next(row.run_id for row in journal.runs() if row.run_id.startswith("claude-"))
    assert lines(journal.records(client)) == ["session claude-code open", "tool Bash open"]
    assert journal.prune(keep_days=0, keep_bytes=0) == 1, "the agent's run, and not a session that may go on"
    journal._db.execute("UPDATE record SET at = at - 100000")
    assert journal.prune(keep_days=0, keep_bytes=0) == 1
    assert journal.runs() == []
    journal.close()


def test_an_event_of_a_client_that_was_refused_is_blocked_on_record(told):
    event = payload("claude-code/Stop", hook_event_name="ConfigChange")
    done = told.hookline("answer", "--file", "guards.yaml", stdin=json.dumps(event))
    assert (done.returncode, done.stderr) == (2, "not so\n")
    journal = SqliteJournal(told.hookline.folder / "home" / "journal.db")
    [row] = journal.runs()
    assert lines(journal.records(row.run_id)) == ["session ConfigChange blocked not so"]
    journal.close()


def test_a_refusal_at_codex_model_request_is_lost_and_on_record(told):
    assert told(["codex/PreModelRequest"]).stdout == ""
    journal = SqliteJournal(told.hookline.folder / "home" / "journal.db")
    [row] = journal.runs()
    notes = [each.note for each in journal.records(row.run_id) if isinstance(each, Decided) and each.note]
    assert notes == ["lost: refuse: this caller takes no refusal here; it goes on (codex PreModelRequest)"]
    journal.close()
