"""Where hooks are concerned, the short way of `hookline answer` says and keeps what the long one does."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.runners import tags as tagged
from tests.answer.ways import Ways

HEAVY = {
    "asyncio",
    "dataclasses",
    "inspect",
    "yaml",
    "pydantic",
    "logging",
    "subprocess",
    "hashlib",
    "random",
}
HEAVY |= {"weakref", "datetime", "tempfile", "encodings.utf_8_sig"}
FILE = """
hooks:
  - {name: quiet script, on: [tool.start, tool.end], match: Quiet, shell: 'cat >/dev/null'}
  - {name: loud script, on: tool.start, match: Loud, shell: 'echo to one; echo to the other >&2'}
  - {name: script reads, on: tool.start, match: Reads, shell: 'cat > seen-$HOOKLINE_TOOL.json; env | grep ^HOOKLINE_P > seen-env'}
  - {name: failing script, on: tool.start, match: Failing, shell: 'echo why it failed >&2; exit 3'}
  - {name: failing goes on, on: tool.start, match: FailingOn, on_error: continue, shell: 'echo why >&2; exit 3'}
  - {name: failing blocks, on: tool.start, match: FailingBlock, on_error: block, shell: 'exit 3'}
  - {name: failing fails, on: tool.start, match: FailingFail, on_error: fail, shell: 'exit 3'}
  - {name: failing observed, on: tool.start, match: FailingSeen, mode: observe, shell: 'exit 3'}
  - {name: refusing script, on: tool.start, match: ScriptNo, shell: 'echo not today >&2; exit 2'}
  - {name: answering script, on: tool.start, match: ScriptSays, shell: 'cat say.json'}
  - {name: half a script, on: tool.start, match: ScriptHalf, shell: 'head -c 9 say.json'}
  - {name: killed, on: tool.start, match: Killed, shell: 'kill -9 $$'}
  - {name: no file, on: tool.start, match: NoFile, shell: 'python3 gone.py'}
  - {name: elsewhere, on: tool.start, match: Elsewhere, cwd: inner, env: {A: b}, shell: 'echo $A > made; exit 1'}
  - {name: nowhere, on: tool.start, match: Nowhere, cwd: gone, shell: 'true'}
  - {name: slow script, on: tool.start, match: Slow, timeout: 0.2, shell: 'sleep 60'}
  - {name: stubborn, on: tool.start, match: Stubborn, timeout: 0.2, shell: "trap '' TERM; sleep 60; sleep 60"}
  - {name: mother, on: tool.start, match: Mother, shell: 'sleep 60 & echo left one'}
  - {name: grandmother, on: tool.start, match: Grandmother, shell: 'setsid sleep 60 >/dev/null 2>&1 & setsid sh -c "sleep 60 & sleep 60" &'}
  - {name: nothing, on: tool.start, match: Nothing, command: [PYTHON, -ISc, 'pass']}
  - {name: refusal, on: tool.start, match: Refusal, command: [sh, -c, 'echo not this one >&2; exit 2']}
  - {name: told, on: tool.start, match: Told, command: [PYTHON, -IS, say.py]}
  - {name: told at the end, on: tool.end, match: Told, command: [PYTHON, -IS, say.py]}
  - {name: breaking, on: tool.start, match: Breaking, command: [sh, -c, 'echo sorry >&2; exit 1']}
  - {name: breaking goes on, on: tool.start, match: BreakingOn, on_error: continue, command: [sh, -c, 'exit 1']}
  - {name: big, on: tool.start, match: Big, command: [sh, -c, 'echo first; head -c 3000000 /dev/zero | tr "\\\\0" x; echo last']}
  - {name: big script, on: tool.start, match: BigScript, shell: 'head -c 3000000 /dev/zero | tr "\\\\0" x; echo last; exit 1'}
  - {name: endless, on: tool.start, match: Endless, timeout: 1, command: [sh, -c, 'yes']}
  - {name: missing, on: tool.start, match: Missing, command: [no-such-program, x]}
  - {name: a folder, on: tool.start, match: Folder, command: [./inner]}
  - {name: no script, on: tool.start, match: NoScript, command: [./plain.txt]}
  - {name: no line, on: tool.start, match: NoLine, command: [./lineless]}
  - {name: slow command, on: tool.start, match: SlowCommand, timeout: 0.2, command: [sleep, '60']}
  - {name: deaf, on: tool.start, match: Deaf, command: [sh, -c, 'exec <&-; echo ok']}
  - {name: watched, on: tool.start, match: Watched, mode: observe, command: [sh, -c, 'echo no >&2; exit 2']}
  - {name: pushes, on: tool.start, match: When, when: {input.x: {contains: push}}, command: [sh, -c, 'exit 2']}
  - {name: first, on: tool.start, match: 'Chain|ChainBlock', command: [PYTHON, -IS, change.py, one]}
  - {name: second, on: tool.start, match: 'Chain|ChainBlock', command: [PYTHON, -IS, change.py, two]}
  - {name: between, on: tool.start, match: ChainBlock, command: [sh, -c, 'echo stop here >&2; exit 2']}
  - {name: third, on: tool.start, match: 'Chain|ChainBlock', shell: 'cat > seen-chain'}
  - {name: force, on: tool.start, match: kind:shell, python: 'hookline.guards:no_force_push'}
  - {name: force again, on: tool.start, python: 'hookline.guards.pushes:no_force_push'}
  - {name: outside, on: tool.start, match: kind:write, python: 'hookline.guards:no_writes_outside'}
  - {name: own, on: tool.start, match: Own, timeout: 3, python: 'own.py:own'}
  - {name: own too late, on: tool.start, match: OwnLate, timeout: 0.5, python: 'own.py:own'}
  - {name: own and a script, on: tool.start, match: OwnToo, python: 'own.py:own'}
  - {name: a script too, on: tool.start, match: OwnToo, shell: 'exit 3'}
  - {name: far, on: tool.start, match: Far, http: 'http://127.0.0.1:9/'}
  - {name: secrets, on: tool.end, match: 'kind:shell', python: 'hookline.guards:mask_secrets'}
  - {name: prompts, on: agent.start, python: 'hookline.guards:redact_emails'}
  - {name: starts, on: session.start, command: [sh, -c, 'echo be careful']}
  - {name: stops, on: agent.end, command: [PYTHON, -IS, say.py]}
  - {name: theirs, on: x.claude.Notification, command: [PYTHON, -ISc, 'raise SystemExit(2)']}
"""
SAY = """
import json, sys
event = json.load(sys.stdin)
said = event.get("tool_input", event).get("say", event.get("say"))
print(said if isinstance(said, str) else json.dumps(said))
"""
OWN = """
import atexit, contextvars, pathlib, threading, time
from hookline import HookResult

atexit.register(lambda: pathlib.Path("left").write_text("as one leaves"))

async def late():
    return HookResult.block("later")

async def never():
    await __import__("asyncio").sleep(60)

def boom(c):
    raise ValueError("boom")

def stops(c):
    raise StopIteration

def leaves(c):
    raise SystemExit(0)

def interrupts(c):
    raise KeyboardInterrupt

def prints(c):
    print("seen", c.current_tool, threading.current_thread().name)
    return HookResult.continue_with()

def writes(c):
    c.current_payload["x"] = 1
    return HookResult.continue_with()

DOES = {
    "goes on": lambda c: HookResult.continue_with(),
    "blocks": lambda c: HookResult.block("no"),
    "changes": lambda c: HookResult.continue_with(modified_payload={"x": "z"}),
    "tells": lambda c: HookResult.continue_with(tell_model="a", tell_user="b"),
    "answers": lambda c: HookResult.answer({"x": 1}),
    "says nothing": lambda c: None,
    "says what JSON cannot": lambda c: HookResult.continue_with(modified_payload={"x": {1}}),
    "sleeps": lambda c: time.sleep(60),
    "awaits": lambda c: late(),
    "awaits for ever": lambda c: never(),
    "raises": boom,
    "stops": stops,
    "leaves": leaves,
    "interrupts": interrupts,
    "prints": prints,
    "writes in place": writes,
}

def own(ctx, c):
    assert ctx.workspace
    return DOES[c.given.payload["does"]](c)
"""
LATE = {"sleeps", "awaits for ever"}
DOES = [line.split('"')[1] for line in OWN.partition("DOES = {")[2].partition("}\n\n")[0].splitlines()[1:]]
CHANGE = """
import json, sys
given = json.load(sys.stdin)["tool_input"]
new = {**given, "seen": [*given.get("seen", []), sys.argv[1]]}
print(json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": new}}))
"""
SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]},
            {"matcher": "Read", "hooks": [{"type": "command", "command": "exit 1"}]},
            {
                "matcher": "Glob",
                "hooks": [{"type": "command", "command": "echo $CLAUDE_PROJECT_DIR >&2; exit 2"}],
            },
        ]
    }
}


def specific(**more):
    return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **more}}


def tool(name, **given):
    return {"tool_name": name, "tool_input": {"x": "y", **given}}


def bash(command):
    return {"tool_name": "Bash", "tool_input": {"command": command}}


SAID = {
    "block": {"decision": "block", "reason": "no"},
    "approve": {"decision": "approve", "reason": "yes"},
    "deny": specific(permissionDecision="deny", permissionDecisionReason="not you"),
    "ask": specific(permissionDecision="ask", permissionDecisionReason="you decide"),
    "allow": specific(permissionDecision="allow"),
    "input": specific(updatedInput={"x": "changed"}),
    "context": specific(additionalContext="mind the step"),
    "long context": specific(additionalContext="z" * 20_000),
    "stop": {"continue": False, "stopReason": "enough"},
    "message": {"systemMessage": "hello", "suppressOutput": True},
    "idle": {"async": True},
    "bad JSON": "{half",
    "an array": [1],
    "plain text": "all fine",
    "another event": {"hookSpecificOutput": {"hookEventName": "Stop"}},
    "a wrong word": {"decision": "blokc"},
    "half a pair": '{"systemMessage": "\\ud800"}',
    "a secret": {"decision": "block", "reason": "you said sesame-open-sesame"},
    "deep": "[" * 5000,
}
CALLS = {
    **{
        name: tool(name)
        for name in (
            *("Quiet", "Loud", "Failing", "FailingOn", "FailingBlock", "FailingFail", "FailingSeen", "Killed"),
            *("NoFile", "Elsewhere", "Nowhere", "Slow", "Stubborn", "Mother", "Grandmother", "Nothing"),
            *("Refusal", "Breaking", "BreakingOn", "Big", "BigScript", "Endless", "Missing", "Folder"),
            *("NoScript", "NoLine", "SlowCommand", "Deaf", "Watched", "Chain", "ChainBlock"),
            *("ScriptNo", "ScriptSays", "ScriptHalf"),
        )
    },
    **{f"says {name}": tool("Told", say=said) for name, said in SAID.items()},
    **{f"a function {does}": tool("OwnLate" if does in LATE else "Own", does=does) for does in DOES},
    "a function, and a script": tool("OwnToo", does="goes on"),
    "a write outside": {"tool_name": "Write", "tool_input": {"file_path": "/etc/passwd", "content": "x"}},
    "a write inside": {"tool_name": "Write", "tool_input": {"file_path": "a.txt", "content": "x"}},
    "says at the end": {**tool("Told", say={"decision": "block", "reason": "no"}), "hook_event_name": "PostToolUse", "tool_response": "it"},
    "an end without a word": {**tool("Quiet"), "hook_event_name": "PostToolUse", "tool_response": {"a": 1}},
    "when it is met": tool("When", x="git push"),
    "when it is not": tool("When", x="git pull"),
    "a push": bash("git push origin main"),
    "a force push": bash("git status && git push -f"),
    "a long command": bash("ls " * 300),
    "a command that is too much": bash("( " * 9000),
    "no command": {"tool_name": "Bash", "tool_input": None},
    "half a pair": bash("git push -f \ud800"),
    "a big input": tool("Quiet", x="y" * 300_000),
    "not a number": tool("Told", say="", x=float("nan")),
    "a secret in it": tool("Failing", password="hunter2hunter2", y="sesame-open-sesame"),
    "a secret in an output": {**bash("x"), "hook_event_name": "PostToolUse", "tool_response": "ghp_" + "a1" * 20},
    "no secret in an output": {**bash("x"), "hook_event_name": "PostToolUse", "tool_response": "fine"},
    "a prompt": {"hook_event_name": "UserPromptSubmit", "prompt": "write to a@example.org"},
    "a session": {"hook_event_name": "SessionStart", "source": "startup"},
    "a stop": {"hook_event_name": "Stop", "say": {"decision": "block", "reason": "go on"}, "stop_hook_active": False},
    "their own event": {"hook_event_name": "Notification", "message": "x", "notification_type": "y"},
}  # fmt: skip


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    made = Ways(tmp_path_factory.mktemp("ways"))
    made.write(FILE)
    made.write(SAY, "say.py")
    made.write(CHANGE, "change.py")
    made.write(json.dumps(SAID["deny"]), "say.json")
    made.write(OWN, "own.py")
    made.write("no program\n", "plain.txt")
    made.write("echo lineless\n", "lineless")
    (made.folder / "lineless").chmod(0o755)
    (made.folder / "inner").mkdir()
    made.write(json.dumps(SETTINGS), "settings.json")
    made.approve()
    for words in ((), ("--file", "settings.json")):
        assert made.command("answer", *words, stdin=made.event()).returncode == 0
    return made


def left(ways):
    """The processes that still stand in the folder of these hooks."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.readlink(f"/proc/{pid}/cwd").startswith(str(ways.folder)):
                found.append(Path(f"/proc/{pid}/cmdline").read_text())
        except OSError:
            pass
    return found


def without_places(found):
    """Where hookline itself raises is another place on each way."""
    return re.sub(
        r"\(\S+/hookline/handlers/\w+\.py:\d+\)|\(\S+/hookline/engine/threads\.py:\d+\)",
        "(here)",
        repr(found),
    )


@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS.keys())
def test_what_hooks_say_is_answered_and_kept_alike(ways, changes):
    event = ways.event(**changes)
    more = {"MY_SECRET": "sesame-open-sesame"}
    short, loaded = ways.short(stdin=event, **more)
    assert left(ways) == []
    long = ways.asked(stdin=event, HOOKLINE_ANSWER_LONG="1", **more)
    assert without_places(short) == without_places(long)
    assert short[1], "every call is on record"
    assert "hookline.hookfile.attach" not in loaded, "else it went the long way, and this shows nothing"
    assert b"Traceback" not in short[0][2]


@pytest.mark.parametrize("payloads", ["on", "off"])
@pytest.mark.parametrize("caller", ["codex", "gemini", "kagent"])
def test_every_caller_is_answered_in_its_own_words(ways, caller, payloads):
    event = "BeforeTool" if caller == "gemini" else "PreToolUse"
    for changes in (tool("Refusal"), tool("Told", say=SAID["input"]), tool("Failing"), tool("Chain")):
        stdin = ways.event(**changes, hook_event_name=event)
        short, long = ways.both("--as", caller, stdin=stdin, HOOKLINE_PAYLOADS=payloads)
        assert short == long


@pytest.mark.parametrize("name", ["Write", "Read", "Glob", "Bash"])
def test_a_file_of_claude_code_is_answered_and_kept_alike(ways, name):
    short, loaded = ways.short("--file", "settings.json", stdin=ways.event(**tool(name)))
    assert short == ways.asked(
        "--file", "settings.json", stdin=ways.event(**tool(name)), HOOKLINE_ANSWER_LONG="1"
    )
    assert "hookline.hookfile.attach" not in loaded


def test_a_hook_reads_the_same_on_each_way(ways):
    seen = []
    for way in ({}, {"HOOKLINE_ANSWER_LONG": "1"}):
        ways.asked(stdin=ways.event(**tool("Reads")), **way)
        context = json.loads((ways.folder / "seen-Reads.json").read_bytes())
        seen.append({**context, "scope_id": "", "environment": (ways.folder / "seen-env").read_text()})
    assert seen[0] == seen[1]
    assert seen[0]["current_payload"] == {"x": "y"}


@pytest.mark.parametrize(
    ("name", "reason"),
    [("ScriptNo", "not today"), ("ScriptSays", "not you"), ("ScriptHalf", "its answer starts with '{'")],
)
@pytest.mark.parametrize("caller", ["claude", "gemini"])
def test_a_script_refuses_in_words_under_every_caller(ways, caller, name, reason):
    event = "BeforeTool" if caller == "gemini" else "PreToolUse"
    (code, stdout, _), _ = ways.asked("--as", caller, stdin=ways.event(**tool(name), hook_event_name=event))
    said = json.loads(stdout)
    verdict = said.get("hookSpecificOutput", said)
    assert (code, verdict.get("permissionDecision", verdict.get("decision"))) == (0, "deny")
    assert verdict.get("permissionDecisionReason", verdict.get("reason")).startswith(reason)


def test_the_next_hook_sees_what_the_one_before_it_changed(ways):
    (_, stdout, _), _ = ways.asked(stdin=ways.event(**tool("Chain")))
    assert json.loads((ways.folder / "seen-chain").read_bytes())["current_payload"]["seen"] == ["one", "two"]
    assert json.loads(stdout)["hookSpecificOutput"]["updatedInput"]["seen"] == ["one", "two"]


def test_a_function_of_the_users_hears_of_the_end(ways):
    (ways.folder / "left").unlink(missing_ok=True)
    ways.asked(stdin=ways.event(**tool("Own", does="goes on")))
    assert (ways.folder / "left").read_text() == "as one leaves"


@pytest.mark.parametrize("name", ["Quiet", "Nothing", "Refusal", "a push", "a force push", "a write inside"])
def test_plain_hooks_load_nothing_slow(ways, name):
    _, loaded = ways.loaded(stdin=ways.event(**CALLS.get(name, tool(name))))
    assert loaded & HEAVY == set()


ODD_FUNCTIONS = """
from hookline import HookResult, hook

@hook(inline=True)
def now(ctx, c):
    return HookResult.block("no")

async def later(ctx, c):
    return HookResult.block("no")
"""
ODD = {
    "an async function": "python: 'odd.py:later'",
    "a function that may be anything": "python: 'odd.py:now'",
    "an http hook": "http: 'http://127.0.0.1:9/'",
    "a warm command": "command: [PYTHON, -IS, say.py], warm: fork",
    "a background that is kept": "shell: 'true', background: keep",
}


@pytest.mark.parametrize("hook", ODD.values(), ids=ODD.keys())
def test_any_other_hook_at_the_point_sends_the_call_the_long_way_before_anything_ran(ways, hook):
    ways.write(ODD_FUNCTIONS, "odd.py")
    count = "{name: counted, on: tool.start, shell: 'echo >> counted'}"
    ways.write(
        f"hooks:\n  - {count}\n  - {{name: odd, on: tool.start, on_error: block, {hook}}}\n", "odd.yaml"
    )
    counted = ways.folder / "counted"
    counted.unlink(missing_ok=True)
    ways.command("answer", "--file", "odd.yaml", stdin=ways.event())
    counted.unlink()
    short, loaded = ways.short("--file", "odd.yaml", stdin=ways.event())
    assert "hookline.hookfile.attach" in loaded
    assert counted.read_text() == "\n", "it ran once"
    assert short == ways.asked("--file", "odd.yaml", stdin=ways.event(), HOOKLINE_ANSWER_LONG="1")


def test_a_journal_that_cannot_be_written_refuses_alike_and_runs_nothing(ways):
    found = []
    for way in ({}, {"HOOKLINE_ANSWER_LONG": "1"}):
        home = ways.home()
        (home / "journal.db").mkdir()
        (ways.folder / "seen-env").unlink(missing_ok=True)
        done = ways.command("answer", home=home, stdin=ways.event(**tool("Reads")), **way)
        found.append((done.returncode, done.stdout.replace(bytes(home), b""), done.stderr))
        assert not (ways.folder / "seen-env").exists()
    assert found[0] == found[1]
    assert b'"deny"' in found[0][1]


def until(true, what):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


SLEEPS = "setsid sh -c 'echo $$ > grandchild; sleep 300; :' & echo $$ > child; sleep 300; :"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("way", [{}, {"HOOKLINE_ANSWER_LONG": "1"}], ids=["short", "long"])
def test_nothing_is_left_of_a_hook_whose_hookline_is_killed(tmp_path, number, way):
    made = Ways(tmp_path)
    made.write(
        f"hooks:\n  - name: sleeps\n    on: tool.start\n    match: Sleeps\n    shell: {json.dumps(SLEEPS)}\n"
    )
    made.command("answer", "--file", "hookline.yaml", stdin=made.event())
    words = [sys.executable, "-m", "hookline", "answer", "--file", "hookline.yaml"]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(words, cwd=tmp_path, env=made.environ(made.approved, **way), **pipes) as asked:
        asked.stdin.write(made.event(**tool("Sleeps")))
        asked.stdin.close()
        begun = [tmp_path / "child", tmp_path / "grandchild"]
        until(lambda: all(file.exists() and file.read_text() for file in begun), "both have begun")
        pids = [int(file.read_text()) for file in begun]
        mark = Path(f"/proc/{pids[0]}/environ").read_bytes().partition(b"HOOKLINE_TAG=")[2].partition(b".")[0]
        assert mark
        assert set(pids) <= set(tagged.carriers(mark))
        asked.send_signal(number)
        assert asked.wait() != 0
    until(lambda: not tagged.carriers(mark), "all with the tag are gone")
    until(lambda: left(made) == [], "and nobody else stands there")
    records = subprocess.run(
        [sys.executable, "-m", "hookline", "runs", "--json"],
        env=made.environ(made.approved), capture_output=True, check=False,
    )  # fmt: skip
    assert b"claude-s1" in records.stdout, "that it began is on record"
