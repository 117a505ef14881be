"""The entries of `hookline install`, for every client: they fail closed, run once, and leave no byte behind."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from hookline.claude.clients import CLIENTS, Place
from hookline.claude.codex_trust import hash_of
from hookline.claude.events import CALLERS
from hookline.claude.tools import TOOLS
from hookline.cli.install import InstallOptions, install
from hookline.engine.point import Point
from hookline.errors import UsageError
from tests.cli.test_sources import PROGRAM
from tests.command import approve

STUB = """#!/bin/sh
case "$(cat)" in *hookline.yaml*) exit 2;; esac
"""
HOOKS = """
hooks:
  - name: mine
    on: [tool.start, tool.end, agent.start, agent.end]
    python: mine.py:mine
"""
THEIRS = '{\n\t"hooks": {\n\t\t"%s": [{"hooks": [{"type": "command", "command": "lint"}]}]\n\t}\n}\n'
CONFIG = 'model = "m"\n\n[projects."/x"]\ntrust_level = "trusted"'

KEYS = [
    *("session_start", "session_end", "user_prompt_submit", "pre_tool_use", "post_tool_use", "stop"),
    *("subagent_start", "subagent_stop"),
]

REFUSED = {
    "claude-code": {
        *(
            "PreToolUse",
            "PermissionRequest",
            "UserPromptSubmit",
            "UserPromptExpansion",
            "SessionStart",
            "Setup",
        ),
        *(
            "SubagentStart",
            "PreModelSwitch",
            "Elicitation",
            "ElicitationResult",
            "TaskCreated",
            "ConfigChange",
        ),
        *("WorktreeCreate", "PostToolBatch"),
    },
    "codex": {"PreToolUse", "PermissionRequest", "UserPromptSubmit", "SessionStart", "SubagentStart"},
    "gemini": {"BeforeTool", "BeforeAgent", "BeforeModel"},
    "qwen": {
        *("PreToolUse", "PermissionRequest", "UserPromptSubmit", "UserPromptExpansion", "SessionStart"),
        *("SubagentStart", "TodoCreated", "PostToolBatch"),
    },
}
"""Where something is about to happen that the client does not do if it is refused."""
TOLD = {
    "claude-code": {"PostToolUse", "PostToolUseFailure"},
    "codex": {"PostToolUse"},
    "gemini": {"AfterTool", "AfterModel"},
    "qwen": {"PostToolUse", "PostToolUseFailure"},
}
"""Where it has happened, and a refusal is for the model, or in place of the output."""

everyone = pytest.mark.parametrize("name", CLIENTS)
in_earnest = pytest.mark.usefixtures("real_python")


class Home:
    """A project in the home of a user, and what clients do there."""

    def __init__(self, hookline):
        self.hookline, self.folder = hookline, hookline.folder
        self.program, self.python = (self.folder / "bin" / name for name in ("hookline", "python"))
        self.program.parent.mkdir()
        self.is_program(STUB)
        # In entries with an interpreter, where a test starts none of them: the proof starts it twice.
        shutil.copy(self.program, self.python)
        self.environ = hookline.environ
        hookline.machine = self.folder / "etc" / "hookline"
        self.environ["PATH"] = f"{self.program.parent}:/usr/bin:/bin"
        self.environ["HOME"] = str(self.folder / "user")
        for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "QWEN_HOME", "SHELL"):
            self.environ.pop(name, None)

    def is_program(self, text):
        self.program.write_text(text)
        self.program.chmod(0o755)

    def said(self, *words, code=0):
        if words[0] == "uninstall":
            done = self.hookline.at_terminal(*words)
        else:
            done = self.hookline(*words, executable=self.python if words[0] == "install" else "")
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def told(self, *words, code=0):
        return json.loads(self.said(*words, "--json", code=code))

    def file(self, name, place=Place.PROJECT):
        return CLIENTS[name].file(place, self.folder, self.environ)

    def hooks(self, python):
        """A hook file with a Python hook, approved."""
        (self.folder / "hookline.yaml").write_text(HOOKS)
        (self.folder / "mine.py").write_text(python)
        approve(self.folder / "hookline.yaml", self.environ)

    def command(self, name, place=Place.PROJECT, point=Point.TOOL_START):
        event = event_at(name, point)
        groups = json.loads(self.file(name, place).read_text())["hooks"][event]
        return groups[-1]["hooks"][0]["command"]

    def calls(self, name, command, event=None, **options):
        """The entry as the client starts it, given a call that would write a file, or another event."""
        shell = ["/bin/sh" if word == "$SHELL" else word for word in CLIENTS[name].shell]
        process = subprocess.Popen(
            [*shell, command],
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        with suppress(BrokenPipeError), process.stdin:  # one that cannot be asked reads nothing
            process.stdin.write(event or self.event(name))
        process.stdin = None
        return process

    def writes(self, name, command):
        """True if the file was written, and what the entry said: to the client all but a refusal is a yes."""
        process = self.calls(name, command)
        out, err = process.communicate()
        written = self.folder / "written"
        if process.returncode != 2 and "deny" not in out:
            written.write_text("the tool ran")
        return written.exists(), err

    def waiting(self):
        """True if an answer waits for another one."""
        file = self.folder / "home" / "answers.lock"
        lock = f":{file.stat().st_ino} " if file.exists() else " no lock "
        return any("->" in line and lock in line for line in Path("/proc/locks").read_text().splitlines())

    def event(self, name, point=Point.TOOL_START, call="t1"):
        client = CLIENTS[name]
        tool = next(tool for tool, each in TOOLS[client.caller].items() if each.kind == "shell")
        call = {"session_id": "s", "cwd": str(self.folder), "tool_name": tool, "tool_use_id": call}
        return json.dumps(
            {
                **call,
                "prompt_id": "p1",
                "prompt": "x",
                "hook_event_name": event_at(name, point),
                "tool_input": {"command": "touch written"},
            }
        )


def event_at(name, point):
    return next(event for event, each in CALLERS[CLIENTS[name].caller].items() if each is point)


@pytest.fixture
def home(hookline):
    return Home(hookline)


@pytest.fixture
def real_python(home):
    """This interpreter is in the entries, for tests of their proof and tests that start them."""
    home.python = sys.executable


@everyone
def test_every_event_of_a_point_is_subscribed_with_a_limit_but_those_of_model_calls(home, name):
    home.said("install", name)
    client = CLIENTS[name]
    found = json.loads(home.file(name).read_text())["hooks"]
    events = CALLERS[client.caller]
    assert set(found) == {event for event, point in events.items() if point and point.scope != "model"}
    for event, [group] in found.items():
        [handler] = group["hooks"]
        assert handler["timeout"] / client.ticks == (client.session_end if event == "SessionEnd" else 600)
        assert ("/bin/sh" in handler["command"]) is (event in REFUSED[name] | TOLD[name])
        assert handler.get("onFailure") == (
            "block" if client.on_failure and "/bin/sh" in handler["command"] else None
        )


def test_other_events_are_subscribed_where_a_hook_stands_at_them(home):
    text = "hooks:\n  - {name: a, on: [x.claude.PermissionRequest, x.gemini.PreCompress, model.start], shell: 'true'}\n"
    (home.folder / "hookline.yaml").write_text(text)
    assert "PermissionRequest" in home.told("install", "claude-code")["added"]
    added = home.told("install", "gemini")["added"]
    assert {"PreCompress", "BeforeModel"} <= set(added)
    assert "AfterModel" not in added
    (home.folder / "hookline.yaml").write_text("hooks: []\n")
    home.said("install", "gemini")
    assert "BeforeModel" not in json.loads(home.file("gemini").read_text())["hooks"], "and goes with the hook"


def test_check_tells_of_entries_that_do_not_do_for_the_hooks_of_the_file(home):
    file, settings = home.folder / "hookline.yaml", home.file("claude-code", Place.USER)
    file.write_text("hooks: []\n")
    home.said("install", "claude-code", "--user")
    assert "hookline install" not in home.said("check", "hookline.yaml")
    file.write_text(
        "hooks:\n  - {name: a, on: [x.claude.PermissionRequest, tool.end], shell: 'true', timeout: 1h}\n"
    )
    said = home.said("check", "hookline.yaml")
    assert "hookline install claude-code --user" in said
    assert "PermissionRequest" in said
    home.said("install", "claude-code", "--user")
    assert "hookline install" not in home.said("check", "hookline.yaml")
    [group] = json.loads(settings.read_text())["hooks"]["PostToolUse"]
    assert group["hooks"][0]["timeout"] > 3600, "the hook may take an hour"
    file.write_text("hooks: []\n")
    before = settings.read_text()
    home.said("install", "claude-code", "--user")
    assert settings.read_text() == before, "another project may need it"
    old = {"PreToolUse": [{"hooks": [{"type": "command", "command": "hookline answer PreToolUse"}]}]}
    settings.write_text(json.dumps({"hooks": old}))
    assert "PreToolUse" in home.said("check", "hookline.yaml")


BROKEN = {
    "not on the PATH": (None, "pip install hookline; or remove its entries from"),
    "killed": ("#!/bin/sh\nkill -9 $$\n", "exit code 137"),
    "broken": ("#!/bin/sh\nexit 1\n", "exit code 1;"),
    "not a program": ("", "hookline could not be asked"),
}


@everyone
@pytest.mark.parametrize(("program", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_where_hookline_cannot_be_asked_no_tool_runs_and_the_client_is_told_why(home, name, program, said):
    home.said("install", name)
    command = home.command(name)
    if program is None:
        home.program.unlink()
    elif program:
        home.is_program(program)
    else:
        home.program.chmod(0o644)
    written, err = home.writes(name, command)
    assert not written
    assert said in err
    home.is_program("#!/bin/sh\necho not this one >&2\nexit 2\n")
    assert home.writes(name, command) == (False, "not this one\n"), "a refusal is no trouble"
    home.is_program("#!/bin/sh\n")
    assert home.writes(name, command)[0], "the same call, with a hookline that lets it pass"


def refusal(code, out):
    """True if a client takes this for a no, in one of the words that it knows."""
    told = json.loads(out or "{}")
    specific = told.get("hookSpecificOutput", {})
    asked = specific.get("decision", {}).get("behavior"), specific.get("permissionDecision")
    words = {told.get("decision"), specific.get("action"), *asked}
    return code == 2 or told.get("continue") is False or not words.isdisjoint(("block", "deny", "decline"))


GIVEN = {
    "tool_name": "x",
    "tool_input": {},
    "tool_use_id": "t",
    "tool_response": {},
    "prompt": "x",
    "llm_request": {},
    "llm_response": {},
    "error": "x",
}


@everyone
@pytest.mark.parametrize("broken", ["guard", "file"])
@pytest.mark.parametrize("by", ["its words", pytest.param("the client's shell", marks=pytest.mark.real)])
def test_at_every_event_a_broken_guard_and_our_own_trouble_do_what_is_right_there(home, name, broken, by):
    client = CLIENTS[name]
    events = CALLERS[client.caller]
    points = [str(point or f"x.{client.caller}.{event}") for event, point in events.items()]
    guard = {"name": "guard", "on": sorted(set(points)), "shell": "exit 1"}
    file = home.folder / "hookline.yaml"
    file.write_text(json.dumps({"hooks": [guard]}))
    approve(file, home.environ)
    if by != "its words":
        home.python = sys.executable  # it is started
    home.said("install", name, "--user")
    if broken == "file":
        file.write_text("hooks: [")
    hooks = json.loads(home.file(name, Place.USER).read_text())["hooks"]
    assert hooks.keys() == events.keys()

    def ask(event):
        given = {**GIVEN, "session_id": "s", "cwd": str(home.folder), "hook_event_name": event}
        command = hooks[event][0]["hooks"][0]["command"]
        if by == "its words":
            words = shlex.split(command)
            done = home.hookline(*words[words.index("answer") :], stdin=json.dumps(given))
            return done.stdout, done.stderr, done.returncode
        process = home.calls(name, command, json.dumps(given))
        return *process.communicate(), process.returncode

    with ThreadPoolExecutor(1 if by == "its words" else 2) as pool:
        said = dict(zip(hooks, pool.map(ask, hooks), strict=True))
    refused = {event for event, (out, _, code) in said.items() if refusal(code, out)}
    # The shell that is around it in an entry refuses for it where it only tells.
    told = TOLD[name] if broken == "file" and by != "its words" else set()
    assert refused == REFUSED[name] | told
    for event in events.keys() - refused:
        out, err, code = said[event]
        assert (code, out) == (0 if broken == "guard" else 1, ""), f"{event}: {err}"
        assert ("broke: exited with 1" if broken == "guard" else "hookline.yaml") in err, event


@in_earnest
@pytest.mark.parametrize(
    ("does", "within", "said"),
    [("os.kill(os.getppid(), 9)", 590, "exit code 137"), ("time.sleep(600)", 1, "exit code 142")],
    ids=["killed in the middle", "hangs"],
)
def test_an_answer_that_is_killed_or_hangs_is_a_refusal(home, does, within, said):
    home.said("install", "claude-code", "--local")
    home.hooks(f"import os, time\n\ndef mine(ctx, c):\n    {does}\n")
    command = home.command("claude-code", Place.LOCAL)
    assert "--within 590" in command
    written, err = home.writes("claude-code", command.replace("--within 590", f"--within {within}"))
    assert not written
    assert said in err
    gone = command.replace(sys.executable, "/no/such/python")
    written, err = home.writes("claude-code", gone)
    assert not written
    assert "repair it with: hookline install claude-code" in err


@everyone
@pytest.mark.parametrize("place", [Place.PROJECT, Place.USER])
def test_install_and_uninstall_leave_every_byte_as_it_was(home, name, place):
    file, words = home.file(name, place), ["--user"] if place is Place.USER else []
    config = home.folder / "user" / ".codex" / "config.toml"
    text = THEIRS % event_at(name, Point.TOOL_START)
    for each, content in ((file, text), (config, CONFIG)):
        each.parent.mkdir(parents=True, exist_ok=True)
        each.write_text(content)
    home.said("install", name, *words)
    once = file.read_text(), config.read_text()
    assert "already" in home.said("install", name, *words)
    assert (file.read_text(), config.read_text()) == once
    assert once[0] != text
    home.said("uninstall", name, *words)
    assert file.read_text() == text
    assert config.read_text() == CONFIG


def test_codex_trusts_exactly_these_entries_and_uninstall_takes_that_back_from_a_changed_file(home):
    # As `hooks/list` of the real Codex 0.166.0 has it.
    assert hash_of("PreToolUse", {"type": "command", "command": "true", "timeout": 600}) == (
        "sha256:a7de97b60e1412f8e936f33ad7e97c04dfe69190d43e61d14c46265643383835"
    )
    file, config = home.file("codex"), home.folder / "user" / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text(THEIRS % "PreToolUse")
    home.said("install", "codex")
    state = tomllib.loads(config.read_text())["hooks"]["state"]
    hooks = json.loads(file.read_text())["hooks"]
    assert set(state) == {f"{file.resolve()}:{key}:{1 if key == 'pre_tool_use' else 0}:0" for key in KEYS}
    ours = hooks["PreToolUse"][1]["hooks"][0]
    assert state[f"{file.resolve()}:pre_tool_use:1:0"] == {
        "enabled": True,
        "trusted_hash": hash_of("PreToolUse", ours),
    }
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(["# Codex wrote this\n", *lines[:3], "\n", *lines[3:], "[tui]\nx = 1\n"]))
    home.said("install", "codex", "--user")
    home.said("uninstall", "codex", "--user")
    home.said("uninstall", "codex")
    assert config.read_text() == "# Codex wrote this\n[tui]\nx = 1\n"
    home.said("uninstall", "codex")


OLD = [
    "hookline answer {}",
    "/usr/bin/python3 -m hookline answer {}",
    "'/my python' -P -m hookline answer {}",
]


def test_entries_of_earlier_versions_are_updated_and_removed(home):
    old = {
        event: [{"hooks": [{"type": "command", "command": line.format(event)}]}]
        for event, line in zip(("PreToolUse", "PostToolUse", "Stop"), OLD, strict=True)
    }
    file = home.file("claude-code")
    file.parent.mkdir()
    file.write_text(json.dumps({"model": "m", "hooks": old}))
    home.said("install", "claude-code")
    for event in old:
        [group] = json.loads(file.read_text())["hooks"][event]
        assert "timeout" in group["hooks"][0]
    file.write_text(json.dumps({"model": "m", "hooks": old}))
    home.said("uninstall", "claude-code")
    assert json.loads(file.read_text()) == {"model": "m"}


TWICE = {
    "project, local": ("claude-code", [], ["--local"]),
    "local, project": ("claude-code", ["--local"], []),
    "user, project": ("gemini", ["--user"], []),
    "managed, user": ("gemini", ["--managed"], ["--user"]),
}


@pytest.mark.parametrize(("name", "first", "second"), TWICE.values(), ids=TWICE.keys())
def test_settings_that_a_client_reads_together_get_one_entry(home, name, first, second):
    if os.geteuid() and "--managed" in first:
        pytest.skip("only root writes managed settings")
    managed = home.folder / "etc" / "settings.json"
    home.environ["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(managed)
    said = home.told("install", name, *first)
    assert managed.exists() is ("--managed" in first)
    again = home.said("install", name, *second)
    assert "everything runs once" in again
    assert said["file"] in again
    told = home.told("install", name, *second)
    assert not os.path.exists(told["file"])
    assert (told["added"], told["elsewhere"]) == ({}, [said["file"]])
    assert told["proof"]["proved"]


def test_wider_settings_are_written_although_the_project_has_an_entry(home):
    home.said("install", "gemini")
    assert home.told("install", "gemini", "--user")["added"], "other projects have none"


WAITS = """
import os
import shlex

def mine(ctx, c):
    open('runs', 'a').write('x')
    if os.path.exists('go'):
        open('begun', 'w').close()
        open('go').read()
"""


HOLDS = """
def mine(ctx, c):
    open("runs", "a").write("x")
    open("begun", "w").close()
    open("go").read()
"""


@in_earnest
@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("point", [Point.TOOL_START, Point.AGENT_START, Point.AGENT_END])
def test_two_entries_that_are_asked_about_one_event_run_the_hooks_once(home, killed, point):
    home.said("install", "claude-code", "--local")
    home.hooks(WAITS)
    command, event = home.command("claude-code", Place.LOCAL, point), home.event("claude-code", point)
    # The same ids as in what follows: an agent that may not stop yet, a model that numbers its calls anew.
    home.calls("claude-code", command, event).communicate()
    for name in ("begun", "go"):
        os.mkfifo(home.folder / name)
    first = home.calls("claude-code", command, event, start_new_session=True)
    open(home.folder / "begun").close()  # the hook runs
    second = home.calls("claude-code", command, event, start_new_session=True)
    runs = home.folder / "runs"
    try:
        while not home.waiting():
            assert (second.poll(), runs.read_text()) == (None, "xx"), "it must wait for the first one"
            time.sleep(0.02)
        if killed:
            os.killpg(first.pid, signal.SIGKILL)
            while runs.read_text() != "xxx":
                assert second.poll() is None, "it must ask, as nobody has answered"
                time.sleep(0.02)
            open(home.folder / "begun").close()
        open(home.folder / "go", "w").close()
        for process, code in ((first, -signal.SIGKILL if killed else 0), (second, 0)):
            process.communicate()
            assert process.returncode == code
        assert runs.read_text() == ("xxx" if killed else "xx")
    finally:
        for process in (first, second):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@in_earnest
@pytest.mark.parametrize("differ", ["no id", "another file"])
def test_two_calls_that_cannot_be_told_to_be_one_are_both_asked_about(home, differ):
    """Else the second, which may be another call, would be let through unseen."""
    home.said("install", "claude-code", "--local")
    home.hooks(HOLDS)
    for name in ("begun", "go"):
        os.mkfifo(home.folder / name)
    command = home.command("claude-code", Place.LOCAL)
    event = home.event("claude-code", call=None if differ == "no id" else "t1")
    (home.folder / "other.yaml").write_text(HOOKS)
    other = f"{command} --file other.yaml" if differ == "another file" else command
    processes = [home.calls("claude-code", each, event, start_new_session=True) for each in (command, other)]
    runs = home.folder / "runs"
    waited = False
    while not waited and not (runs.exists() and runs.read_text() == "xx"):
        waited = home.waiting()
        time.sleep(0.02)
    for process in processes:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert not waited


@in_earnest
@everyone
def test_install_proves_the_entry_with_ready_guards_and_runs_no_hook_of_the_user(home, name):
    home.hooks("open('ran', 'w')\n\ndef mine(ctx, c):\n    open('ran', 'w')\n")
    told = home.told("install", name, "--user")
    assert told["proof"] == {"proved": True, "problem": None}
    assert not (home.folder / "ran").exists()
    assert "a made-up `ls` passes" in home.said("install", name, "--user")


@pytest.mark.parametrize(
    ("program", "problem"),
    [
        ("", "there is no hookline on the PATH"),
        ("#!/bin/sh\n", "was not refused"),
        ("#!/bin/sh\nexit 2\n", "did not pass"),
    ],
    ids=["not there", "lets everything pass", "refuses everything"],
)
def test_an_entry_that_does_not_do_its_work_is_told_with_exit_code_1(home, program, problem):
    home.program.unlink() if not program else home.is_program(program)
    assert problem in home.said("install", "claude-code", code=1)
    proof = home.told("install", "claude-code", code=1)["proof"]
    assert (proof["proved"], problem in proof["problem"]) == (False, True)


def test_install_for_a_user_writes_a_hook_file_once(home):
    file = home.folder / "user" / ".config" / "hookline" / "hookline.yaml"
    told = home.told("install", "claude-code", "--user")
    assert told["hook_file"] == str(file)
    assert "hookline.guards:protect_hookline" in file.read_text()
    assert (home.folder / "user" / ".claude" / "settings.json").exists()
    file.write_text("hooks: []\n")
    assert home.told("install", "qwen", "--user")["hook_file"] is None
    assert file.read_text() == "hooks: []\n"


OFF = {
    "claude-code": lambda settings: settings.update(disableAllHooks=True),
    "codex": lambda settings: settings["hooks"]["PreToolUse"][0]["hooks"][0].update(timeout=599),
    "gemini": lambda settings: settings.update(hooksConfig={"enabled": False}),
    "qwen": lambda settings: settings.update(disableAllHooks=True),
}


@everyone
def test_install_says_where_a_client_asks_no_hook_and_check_finds_it(home, name):
    file = home.file(name)
    assert f"its calls go on then: hookline check {file} finds it" in " ".join(
        home.said("install", name).split()
    )
    before = home.said("check", str(file))
    assert "warning" not in before
    settings = json.loads(file.read_text())
    OFF[name](settings)
    file.write_text(json.dumps(settings))
    told = json.loads(home.said("check", str(file), "--json"))["problems"]
    word = "leaves it out" if name == "codex" else "no hook here runs"
    assert [word in each["message"] for each in told] == [True]
    assert home.hookline("check", str(file), "--strict").returncode == 2
    if name == "codex":
        home.said("install", "codex")
        assert home.said("check", str(file)) == before


def test_an_entry_that_codex_was_never_told_to_trust_is_found(home):
    file, mine = home.file("codex"), {"type": "command", "command": "true", "timeout": 5}
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": {"Stop": [{"matcher": "x", "hooks": [mine]}]}}))
    assert "leaves it out" in home.said("check", str(file))
    config = home.folder / "user" / ".codex" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[hooks.state."{file.resolve()}:stop:0:0"]\ntrusted_hash = "of another kind"\n')
    assert "leaves it out" not in home.said("check", str(file))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes managed settings")
def test_install_for_a_machine_writes_its_hook_file_and_uninstall_takes_it_away(home):
    etc, file = home.folder / "etc", home.hookline.machine / "hookline.yaml"
    home.environ["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(etc / "gemini.json")
    home.environ["QWEN_CODE_SYSTEM_SETTINGS_PATH"] = str(etc / "qwen.json")
    words = [sys.executable, "-c", PROGRAM, home.hookline.machine, "install", "gemini", "--managed", "--json"]
    done = subprocess.run(
        words, cwd=home.folder, env=home.environ, umask=0o002, capture_output=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["hook_file"] == str(file)
    call = {**json.loads(home.event("gemini")), "tool_input": {"command": "echo > hookline.yaml"}}
    said = home.hookline("answer", "--as", "gemini", stdin=json.dumps(call)).stdout
    assert json.loads(said)["decision"] == "ask", "nobody but root can write it, so it holds"
    assert home.told("install", "qwen", "--managed")["hook_file"] is None
    assert home.told("uninstall", "gemini", "--managed")["hook_file"] is None
    assert file.exists(), "the other client needs it"
    assert home.told("uninstall", "qwen", "--managed")["hook_file"] == str(file)
    assert not any(etc.iterdir())


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes managed settings")
@pytest.mark.parametrize("place", ["user", "managed"])
def test_a_hook_file_of_your_own_stays(home, place):
    home.environ["GEMINI_CLI_SYSTEM_SETTINGS_PATH"] = str(home.folder / "etc" / "gemini.json")
    folder = home.hookline.machine if place == "managed" else home.folder / "user" / ".config" / "hookline"
    file = folder / "hookline.yaml"
    home.said("install", "gemini", f"--{place}")
    file.write_text("hooks: []\n")
    assert f"{file} stays" in "".join(home.said("uninstall", "gemini", f"--{place}").splitlines())
    assert file.read_text() == "hooks: []\n"
    home.said("install", "gemini", f"--{place}")
    home.said("uninstall", "gemini", f"--{place}")
    assert file.read_text() == "hooks: []\n"


def test_places_that_a_client_does_not_have_are_refused(home):
    assert "--user" in home.hookline("install", "gemini", "--local").stderr
    assert "two places" in home.hookline("install", "gemini", "--user", "--managed").stderr
    assert not os.path.exists(home.folder / ".gemini")


def test_managed_settings_are_for_root(tmp_path, monkeypatch):
    file = tmp_path / "settings.json"
    monkeypatch.setenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH", str(file))
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(UsageError, match="run it as root"):
            install(InstallOptions(agent="gemini", project=Path("/"), managed=True))
    finally:
        os.seteuid(user)
    assert not file.exists()


OFF_ELSEWHERE = {
    "claude-code": ("settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
    "codex": ("config.toml", "[features]\nhooks = false\n", "features.hooks"),
    "gemini": ("settings.json", '{"hooksConfig": {"enabled": false}}', "hooksConfig.enabled"),
    "qwen": ("settings.json", '{"disableAllHooks": true}', "disableAllHooks"),
}


@everyone
def test_hooks_that_are_switched_off_in_other_settings_of_the_client_are_no_proof(home, name):
    file, text, key = OFF_ELSEWHERE[name]
    settings = home.file(name, Place.USER).with_name(file)
    settings.parent.mkdir(parents=True)
    home.hooks("def mine(ctx, c): ...\n")
    assert home.told("install", name)["proof"]["proved"]
    settings.write_text(text + (settings.read_text() if settings.exists() else ""))
    told = home.told("install", name, code=1)
    assert not told["proof"]["proved"]
    assert f"{settings}: {key} is " in told["proof"]["problem"]
    assert f"{settings}: {key} is " in " ".join(home.hookline("check", "hookline.yaml").stdout.split())
    if name != "codex":
        # The project's own word comes before the user's.
        own = json.loads(home.file(name).read_text())
        own.update(hooksConfig={"enabled": True}, disableAllHooks=False)
        home.file(name).write_text(json.dumps(own))
        assert home.told("install", name)["proof"]["proved"]
