"""What a person is asked about is what runs: nothing in it is hidden by its looks, and a verdict is for it alone."""

import asyncio
import json
import os
import pty
import sqlite3
import stat
import sys

import pytest

from hookline.engine.record import Verdict, VerdictKind
from hookline.journal.sqlite import SqliteJournal
from tests.command import approve

AGENT = """
from hookline import Agent, HookResult, Scripted, hook

@hook(match="bash")
def ask_first(ctx, c):
    return HookResult.ask("may it run " + c.current_payload["command"])

script = [{{"tools": [{{"name": "bash", "arguments": {{"command": {command!r}}}}}]}}, "done"]
agent = Agent(id="asks", model=Scripted(script), tools=["bash"], on_tool_start=[ask_first])
"""
SECRET = "known-" + "value-of-mine"
KEY = "gh" + "p_" + "aB3dE6gH9j" * 4
HIDING = [
    "echo cookie: x ; touch ran",
    "echo 'authorization: Bearer x' & touch ran",
    "echo token=x && touch ran",
    'echo "password: " ; touch ran ; echo ""',
    "echo a://b:x;touch${IFS}ran;@c",
    "echo -----BEGIN RSA PRIVATE KEY----- ; touch ran ; echo -----END RSA PRIVATE KEY-----",
    f"echo {KEY} ; touch ran",
    "export secret_key=x\ntouch ran",
    f"echo {'x' * 70_000} ; touch ran",
]


def asking(hookline, screen, command):
    """A run that waits for a person, and what it has said so far."""
    (hookline.folder / "asks.py").write_text(AGENT.format(command=command))
    process = hookline.start("run", "asks.py", "x", "--ask", "journal", "--code-to", screen.name)
    said = ""
    while "in another terminal" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return process, said


def waiting(hookline):
    with SqliteJournal(hookline.folder / "home" / "journal.db") as journal:
        return journal.questions()[0]


def in_json(command):
    return json.dumps({"command": command}, separators=(",", ":"))


def ran(hookline):
    return (hookline.folder / "ran").exists()


@pytest.mark.parametrize("command", HIDING, ids=range(len(HIDING)))
def test_no_part_of_a_command_is_hidden_from_who_approves_it_elsewhere(hookline, screen, command):
    process, said = asking(hookline, screen, command)
    question = waiting(hookline)
    listed = json.loads(hookline("runs", "--json").stdout)["question"]
    done = hookline.at_terminal("approve", "last", typed=screen.code())
    process.communicate()
    assert (listed["value"], listed["digest"]) == (question.value, question.digest)
    assert listed["reasons"][0]["reason"] == question.reasons[0].text
    assert ran(hookline), "so this is what it does"
    assert question.value["command"] == command
    assert question.reasons[0].text.endswith(command[:100] if len(command) < 1000 else "bytes)")
    shown = in_json(command)
    assert shown in said
    assert shown in done.stdout
    assert "hidden" not in said + done.stdout


@pytest.mark.parametrize("command", HIDING[:-1], ids=range(len(HIDING) - 1))
def test_no_part_of_a_command_is_hidden_at_the_terminal_that_asks(hookline, command):
    (hookline.folder / "asks.py").write_text(AGENT.format(command=command))
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(hookline.folder)
        words = [sys.executable, "-m", "hookline", "run", "asks.py", "x", "--ask", "terminal"]
        os.execve(sys.executable, words, hookline.environ)
    shown = ""
    while "[a/r/w]" not in shown:
        shown += os.read(terminal, 65536).decode()
    os.write(terminal, b"r\nno\n")
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        pass  # it has ended
    os.waitpid(pid, 0)
    assert in_json(command) in shown.replace("\r\n", "\n")
    assert not ran(hookline)


def test_a_known_secret_is_hidden_in_its_place_and_counted_and_the_command_runs_as_it_was(hookline, screen):
    hookline.environ["MY_API_TOKEN"] = SECRET
    command = f"printf %s {SECRET} > ran ; rm -f gone"
    process, said = asking(hookline, screen, command)
    stars = command.replace(SECRET, "*" * len(SECRET))
    question = waiting(hookline)
    done = hookline.at_terminal("approve", "last", typed=screen.code())
    process.communicate()
    assert (hookline.folder / "ran").read_text() == SECRET
    assert (question.value["command"], question.hidden) == (stars, len(SECRET))
    for shown in (said, done.stdout):
        assert stars in shown
        assert SECRET not in shown
        assert f"{len(SECRET)} characters of known secrets are hidden" in shown


def test_a_rewrite_of_a_command_in_which_something_was_hidden_is_what_runs(hookline, screen):
    hookline.environ["MY_API_TOKEN"] = SECRET
    process, _ = asking(hookline, screen, f"echo {SECRET} ; touch ran")
    changed = hookline.at_terminal("rewrite", "last", '{"command": "touch changed"}', typed=screen.code())
    process.communicate()
    assert changed.returncode == 0, changed.stderr
    assert (hookline.folder / "changed").exists()
    assert not ran(hookline)


def asked_anew(file):
    """Another process asks about another input under the same name."""
    with SqliteJournal(file) as journal:
        asyncio.run(journal.ask(journal.questions()[0]._replace(value={"command": "ls"})))


def rewritten_in_place(file):
    """The digest stays that of the true input: only what is shown is another."""
    with sqlite3.connect(file) as db:
        ((body,),) = db.execute("SELECT body FROM question")
        db.execute("UPDATE question SET body = ?", [body.replace("touch ran", "ls")])


@pytest.mark.parametrize("forge", [asked_anew, rewritten_in_place])
def test_an_approval_of_another_question_than_was_asked_lets_nothing_run(hookline, screen, forge):
    process, _ = asking(hookline, screen, "touch ran")
    forge(hookline.folder / "home" / "journal.db")
    approved = hookline.at_terminal("approve", "last", typed=screen.code())
    assert (approved.returncode, in_json("ls") in approved.stdout) == (0, True), approved.stdout
    while "an answer without the code of this question" not in (line := process.stderr.readline()):
        assert line
    assert not ran(hookline)
    hookline.at_terminal("reject", "last")
    process.communicate()
    assert not ran(hookline)


def test_an_input_that_changed_after_it_was_read_is_not_approved(hookline, screen):
    process, _ = asking(hookline, screen, "touch ran")
    with SqliteJournal(hookline.folder / "home" / "journal.db") as journal:
        seen = journal.questions()[0]
        other = asyncio.run(journal.ask(seen._replace(value={"command": "rm -rf ~"}))).digest
        assert other != seen.digest
        assert not journal.answer(seen.id, Verdict(VerdictKind.APPROVE, digest=seen.digest))
        asyncio.run(journal.ask(seen))
    assert hookline.at_terminal("approve", "last", typed=screen.code()).returncode == 0
    process.communicate()
    assert ran(hookline)


def test_the_digest_of_an_input_is_of_no_use_without_the_key_which_nobody_else_may_read(hookline, screen):
    process, _ = asking(hookline, screen, "touch ran")
    question = waiting(hookline)
    key = hookline.folder / "home" / "key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    with SqliteJournal(hookline.folder / "elsewhere" / "journal.db") as journal:
        assert asyncio.run(journal.ask(question)).digest != question.digest
    hookline.at_terminal("reject", "last", "no")
    process.communicate()
    assert (hookline.folder / "elsewhere" / "key").read_bytes() != key.read_bytes()


def test_a_client_asks_its_user_about_the_whole_command(hookline):
    file = hookline.folder / "hookline.yaml"
    command = f"echo {KEY} a://b:x;touch${{IFS}}ran;@c"
    said = {"permissionDecision": "ask", "permissionDecisionReason": command, "hookEventName": "PreToolUse"}
    asks = ["echo", json.dumps({"hookSpecificOutput": said})]
    file.write_text(json.dumps({"hooks": [{"name": "asks", "on": "tool.start", "command": asks}]}))
    approve(file, hookline.environ)
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}}
    done = hookline("answer", stdin=json.dumps({**event, "cwd": str(hookline.folder), "session_id": "s"}))
    answer = json.loads(done.stdout)["hookSpecificOutput"]
    assert (answer["permissionDecision"], answer["permissionDecisionReason"]) == ("ask", command)
