"""The short way of `hookline answer` and the long one: the same answers, the same records."""

import hmac
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hookline.hookfile.compiler import VERSION, copy_place
from tests.answer.ways import Ways

STDIN = sorted((Path(__file__).parents[1] / "fixtures" / "claude-code" / "stdin").glob("*.json"))
MATCHED = re.compile(r"PreToolUse|SessionStart|PostToolUse\.bash\.|Stop\.json|Notification").match
HEAVY = {"asyncio", "dataclasses", "yaml", "pydantic", "typer", "rich", "inspect", "logging", "subprocess"}
HEAVY |= {"hashlib", "random", "weakref", "datetime", "tempfile", "encodings.utf_8_sig"}
# What Python compiles while it runs has no file of its own.
TELLS_COMPILED = """
import sys
sys.addaudithook(lambda event, given: event == "compile" and given[1] == "<string>" and print("compiled", given[0], file=sys.stderr))
from hookline.__main__ import main
main()
"""
FILE = """
hooks:
  - {name: names, on: tool.start, match: 'Edit|Write', command: [PYTHON, -c, "print('{half')"]}
  - {name: pattern, on: [tool.start, tool.end], match: 'mcp__.*__gr.+', shell: 'exit 3'}
  - {name: lookahead, on: tool.start, match: '(?!Task|Bash)Glo.', shell: 'exit 3'}
  - {name: pushes, on: tool.start, match: kind:shell, when: {input.command: {contains: git push}}, shell: 'exit 3'}
  - {name: found, on: tool.start, match: kind:shell, when: {input.command: {matches: 'rm +-rf'}}, shell: 'exit 3'}
  - {name: odd, on: [tool.start, tool.end], when: {tool: Nothing}, mode: observe, shell: 'exit 3'}
  - {name: asleep, on: tool.start, mode: off, shell: 'exit 3'}
  - {name: kept, on: tool.start, match: kind:read, python: 'guard.py:kept'}
  - {name: late, on: tool.start, match: WebFetch, shell: 'exit 3'}
  - {name: prompts, on: agent.start, when: {input.prompt: {contains: forbidden}}, shell: 'exit 3'}
  - {name: theirs, on: x.claude.Notification, command: [PYTHON, -c, 'exit(2)']}
"""
GUARD = """
from hookline import HookResult

def kept(ctx, c):
    return HookResult.block("nothing is read here")
"""
SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "Edit|Write", "hooks": [{"type": "command", "command": "exit 2"}]},
            {"matcher": "^mcp__", "hooks": [{"type": "command", "command": "exit 2"}]},
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "exit 2", "if": "Bash(git *)"}]},
        ],
        "SessionStart": [{"matcher": "resume", "hooks": [{"type": "command", "command": "exit 2"}]}],
    }
}


@pytest.fixture(scope="module")
def ways(tmp_path_factory):
    made = Ways(tmp_path_factory.mktemp("ways"))
    made.write(FILE)
    made.write(GUARD, "guard.py")
    made.write(json.dumps(SETTINGS), "settings.json")
    made.approve()
    # The first call of each file takes the long way and leaves a copy behind.
    for words in ((), ("--file", "settings.json")):
        assert made.command("answer", *words, stdin=made.event()).returncode == 0
        assert made.command("answer", *words, stdin=made.event()).returncode == 0
    assert len(list((made.approved / "compiled").iterdir())) == 2
    return made


@pytest.fixture
def own(tmp_path):
    """A folder of one test, whose file refuses shell calls and has been compiled."""
    made = Ways(tmp_path)
    made.write("hooks:\n  - {name: no, on: tool.start, match: kind:shell, python: 'guard.py:kept'}\n")
    made.write(GUARD, "guard.py")
    made.approve()
    made.copy = copy_place(tmp_path / "hookline.yaml", {"HOOKLINE_HOME": str(made.approved)})
    made.command("answer", stdin=made.event())
    assert made.copy.is_file()
    return made


def refused(made, **changes):
    done = made.command("answer", stdin=made.event(**{"tool_name": "Bash", **changes}))
    return b'"permissionDecision": "deny"' in done.stdout


def test_there_are_fixtures_to_ask_with():
    assert len(STDIN) > 50


@pytest.mark.parametrize("file", STDIN, ids=lambda file: file.stem)
def test_every_event_is_answered_and_kept_alike(ways, file):
    event = {**json.loads(file.read_bytes()), "cwd": str(ways.folder)}
    short, long = ways.both(stdin=json.dumps(event).encode())
    assert short == long
    assert short[1], "every call is on record"


@pytest.mark.parametrize("file", [file for file in STDIN if MATCHED(file.name)], ids=lambda file: file.stem)
def test_events_are_answered_and_kept_alike_by_a_file_of_claude_code(ways, file):
    event = {**json.loads(file.read_bytes()), "cwd": str(ways.folder)}
    short, long = ways.both("--file", "settings.json", stdin=json.dumps(event).encode())
    assert short == long
    assert short[1], "every call is on record"


CALLS = {
    "when unmet, others after it": {"tool_name": "Bash", "tool_input": {"command": "ls"}},
    "when met": {"tool_name": "Bash", "tool_input": {"command": "git push"}},
    "when found by a pattern": {"tool_name": "Bash", "tool_input": {"command": "rm  -rf /"}},
    "a pattern that RE2 has not": {"tool_name": "Glob"},
    "a name no pattern can read": {"tool_name": "Gl\ud800b"},
    "a name beyond ASCII": {"tool_name": "Bäsh"},
    "no tool name": {"tool_name": None},
    "a number as tool name": {"tool_name": 7},
    "no input": {"tool_input": None},
    "half a surrogate pair": {"tool_input": {"x": "\ud800 y"}, "tool_use_id": "\udfff"},
    "half a pair in a call that is refused": {"tool_name": "Write", "tool_input": {"x": "\ud800"}},
    "a secret by name": {"tool_input": {"password": "hunter2hunter2", "max_tokens": 7}},
    "a secret by value": {"tool_input": {"x": "say sesame-open-sesame now"}},
    "a long input": {"tool_input": {"x": "y" * 200_000}},
    "a deep input": {"tool_input": json.loads("[" * 300 + "]" * 300)},
    "not a number": {"tool_input": {"x": float("nan")}},
    "no session": {"session_id": None},
    "a subagent": {"agent_id": "a1", "agent_type": "Explore"},
    "an unknown event": {"hook_event_name": "Brandnew"},
    "an event of another tool": {"hook_event_name": "BeforeTool"},
    "no event": {"hook_event_name": None},
    "an event that is no name": {"hook_event_name": "a b"},
    "a folder without a file": {"cwd": "/"},
    "a folder that is not there": {"cwd": "/nowhere/at/all"},
    "a folder that is no name": {"cwd": "a\0b"},
}


@pytest.mark.parametrize("changes", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("payloads", ["on", "off"])
def test_odd_calls_are_answered_and_kept_alike(ways, changes, payloads):
    more = {"HOOKLINE_PAYLOADS": payloads, "MY_SECRET": "sesame-open-sesame"}
    short, long = ways.both(stdin=ways.event(**changes), **more)
    assert short == long
    assert b"Traceback" not in short[0][2]


BAD = {
    "nothing": b"",
    "half": b'{"hook_event_name": "PreTo',
    "a list": b"[1]",
    "not UTF-8": b"\xff\xfe{}",
    "deeper than can be read": b"[" * 200_000,
    "deep in an event": b'{"hook_event_name": "PreToolUse", "tool_input": ' + b"[" * 200_000,
    "an empty object": b"{}",
}


@pytest.mark.parametrize("stdin", BAD.values(), ids=BAD.keys())
@pytest.mark.parametrize("words", [(), ("PreToolUse",), ("PostToolUse",)], ids=["", "start", "end"])
def test_bad_input_is_answered_and_kept_alike_and_is_never_a_yes(ways, words, stdin):
    short, long = ways.both(*words, stdin=stdin)
    assert short == long
    code, out, _ = short[0]
    assert code in (1, 2) or b"deny" in out or (words and stdin == b"{}")
    assert b"Traceback" not in short[0][2]


WORDS = [
    ("--as", "codex"),
    ("--as", "gemini"),
    ("--as", "kagent"),
    ("--as", "nobody"),
    ("--as=codex",),
    ("--fil", "hookline.yaml"),
    ("--file", "hookline.yaml", "PreToolUse"),
    ("--file", "gone.yaml"),
    ("--file", "broken.yaml"),
    ("--file", "pattern.yaml"),
    ("--file", "guard.py"),
    ("--file",),
    ("PreToolUse", "PostToolUse"),
    ("--help",),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_every_way_to_ask_is_answered_and_kept_alike(ways, words):
    ways.write("hooks:\n  - {name: a, on: tool.strat, shell: 'true'}\n", "broken.yaml")
    ways.write("hooks:\n  - {name: a, on: tool.start, match: '(', shell: 'true'}\n", "pattern.yaml")
    short, long = ways.both(*words, stdin=ways.event())
    assert short == long


def test_a_caller_that_closes_stdin_is_refused(ways):
    done = subprocess.run(
        ["sh", "-c", 'exec "$0" -m hookline answer PreToolUse <&-', sys.executable],
        cwd=ways.folder,
        env=ways.environ(ways.home()),
        capture_output=True,
        check=False,
    )
    assert b'"deny"' in done.stdout
    assert b"stdin is empty" in done.stdout


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        ((), {}),
        (("PreToolUse",), {}),
        ((), {"tool_name": "Bash", "tool_input": {"command": "ls"}}),
        ((), {"tool_name": "mcp__a__b"}),
        ((), {"hook_event_name": "PostToolUse", "tool_response": "x"}),
        ((), {"hook_event_name": "UserPromptSubmit", "prompt": "hello"}),
        ((), {"hook_event_name": "Stop"}),
        (("--file", "settings.json"), {}),
        (("--file", "settings.json"), {"hook_event_name": "PostToolUse"}),
    ],
)
def test_a_call_that_concerns_no_hook_loads_nothing_slow(ways, words, changes):
    event = ways.event(**changes)
    done = ways.command("answer", *words, home=ways.home(), stdin=event, options=("-X", "importtime"))
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.decode().splitlines()}
    assert (done.returncode, done.stdout) == (0, b"")
    assert "hookline.answer" in loaded
    assert "hookline.hookfile.attach" not in loaded
    assert loaded & HEAVY == set()


def test_no_annotation_is_compiled_at_the_start_of_an_answer(tmp_path):
    """As texts, the annotations of named tuples are: each field takes its time at every call of a tool."""
    made = Ways(tmp_path)
    rows = [
        f"  - {{name: {name}, on: tool.start, python: 'hookline.guards:{name}'}}"
        for name in ("no_force_push", "no_writes_outside", "protect_hookline")
    ]
    script = "  - {name: no, on: tool.start, when: {input.command: {contains: push}}, shell: 'exit 2'}"
    made.write("\n".join(["hooks:", *rows, script]))
    made.approve()
    event = made.event(tool_name="Bash", tool_input={"command": "git push"})
    made.command("answer", stdin=event)
    done = subprocess.run(
        [sys.executable, "-c", TELLS_COMPILED, "answer"],
        cwd=tmp_path,
        env=made.environ(made.approved),
        input=event,
        capture_output=True,
        check=False,
    )
    assert b'"deny"' in done.stdout
    told = [line for line in done.stderr.splitlines() if line.startswith(b"compiled ")]
    assert told, "else nothing was seen at all"
    # A named tuple's own constructor is compiled in any case.
    assert [line for line in told if b"lambda _cls" not in line] == []


def test_the_copy_is_of_this_version():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["version"] == VERSION


def test_a_copy_is_for_the_user_alone(own):
    assert own.copy.stat().st_mode & 0o777 == 0o600
    assert own.copy.parent.stat().st_mode & 0o777 == 0o700


def test_a_copy_that_is_deleted_is_made_again(own):
    shutil.rmtree(own.copy.parent)
    assert refused(own)
    assert own.copy.is_file()


def sealed(own, body):
    key = (own.approved / "key").read_bytes()
    return hmac.new(key, body, "sha256").hexdigest().encode() + b"\n" + body


def emptied(own, **changes):
    """The body of a copy in which no hook stands any more."""
    whole = json.loads(own.copy.read_bytes().partition(b"\n")[2])
    return json.dumps({**whole, "hooks": [], **changes}).encode()


def unsealed(own):
    own.copy.write_bytes(b"0" * 64 + b"\n" + emptied(own))


def cut_off(own):
    own.copy.write_bytes(own.copy.read_bytes()[:-9])


def of_another_file(own):
    own.copy.write_bytes(sealed(own, emptied(own, key="0" * 64)))


def open_to_others(own):
    own.copy.write_bytes(sealed(own, emptied(own)))
    own.copy.chmod(0o644)


def a_link(own):
    elsewhere = own.folder / "elsewhere.json"
    elsewhere.write_bytes(sealed(own, emptied(own)))
    elsewhere.chmod(0o600)
    own.copy.unlink()
    own.copy.symlink_to(elsewhere)


def somebody_elses(own):
    own.copy.write_bytes(sealed(own, emptied(own)))
    try:
        os.chown(own.copy, 65534, 65534)
    except PermissionError:
        own.copy.chmod(0o666)


@pytest.mark.parametrize(
    "spoil",
    [unsealed, cut_off, of_another_file, open_to_others, a_link, somebody_elses],
    ids=lambda f: f.__name__,
)
def test_a_copy_that_cannot_be_believed_is_not(own, spoil):
    spoil(own)
    assert refused(own)
    assert refused(own), "and it was made anew"


def test_a_copy_that_is_the_users_own_and_whole_is_believed(own):
    own.copy.write_bytes(sealed(own, emptied(own)))
    assert not refused(own), "else the tests above show nothing"


def test_a_change_of_the_file_holds_at_once(own):
    own.write("hooks:\n  - {name: no, on: tool.start, match: Read, python: 'guard.py:kept'}\n")
    assert refused(own, tool_name="TodoWrite"), "it is not approved any more"
    own.approve()
    assert not refused(own)
    assert refused(own, tool_name="Read")
    assert not refused(own)


def test_an_approval_that_is_taken_away_holds_for_calls_that_concern_no_hook_too(own):
    assert not refused(own, tool_name="Read")
    (own.approved / "trusted.json").unlink()
    assert refused(own, tool_name="Read")


def test_a_python_hook_that_no_longer_loads_refuses_every_call(own):
    named = ("answer", "--file", "hookline.yaml")
    event = own.event(tool_name="Read")
    assert own.command(*named, stdin=event).stdout == b""
    own.write("import nowhere\n", "guard.py")
    short, long = own.both("--file", "hookline.yaml", stdin=event)
    assert short == long
    assert b"does not import" in short[0][1]


def test_a_file_with_a_mistake_leaves_no_copy(own):
    own.copy.unlink()
    own.write("hooks:\n  - {name: a, on: tool.strat, shell: 'true'}\n")
    own.command("answer", "--file", "hookline.yaml", stdin=own.event())
    assert not own.copy.exists()
