"""Ways to have `hookline answer` end without a word: a tool that a guard was asked about must not run then."""

import json
import os
import resource
import select
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from hookline.claude.clients import CLIENTS, Place
from tests.command import approve

PROGRAM = Path(sys.executable).with_name("hookline")
FILE = """
hooks:
  - {name: shell, on: tool.start, match: Bash, shell: 'sh attack.sh'}
  - {name: python, on: tool.start, match: Write, python: 'guard.py:attack'}
  - {name: async, on: tool.start, match: Edit, python: 'guard.py:later'}
  - {name: refuses, on: tool.start, match: Read, shell: 'echo not this >&2; exit 2'}
"""
GUARD = """
import ctypes, os, signal, sys
from hookline import HookResult

def attack(ctx, c):
    exec(open("attack.py").read())
    return HookResult.continue_with()

async def later(ctx, c):
    return attack(ctx, c)
"""


class Client:
    """A client with hookline in its settings, which runs a tool where the hook has not refused it."""

    def __init__(self, folder, environ):
        self.folder = folder
        self.environ = {**environ, "PATH": f"{PROGRAM.parent}:{os.environ['PATH']}"}
        (folder / "hookline.yaml").write_text(FILE)
        (folder / "guard.py").write_text(GUARD)
        self.attacks(sh="", py="")
        self.entry = CLIENTS["claude-code"].handler("PreToolUse", Place.LOCAL, 600)["command"]
        self.bare = shlex.join([str(PROGRAM), "answer"])

    def attacks(self, **does):
        """Have a hook do this, approved."""
        for suffix, text in does.items():
            (self.folder / f"attack.{suffix}").write_text(text)
        approve(self.folder / "hookline.yaml", self.environ)

    def asks(self, command, tool="Read", event="PreToolUse", *, environ=(), **options):
        """The entry's end, once the tool has run, or not."""
        given = {
            "hook_event_name": event,
            "session_id": "s",
            "tool_name": tool,
            "tool_use_id": "t",
            "tool_input": {"command": "x"},
            "cwd": str(self.folder),
        }
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            cwd=self.folder,
            env={**self.environ, **dict(environ)},
            stdin=subprocess.PIPE,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options},
        )
        out = b""
        with suppress(BrokenPipeError):
            out = process.communicate(json.dumps(given).encode())[0] or b""
        process.wait()
        if process.returncode != 2 and b'"deny"' not in out:
            self.ran.touch()
        return process.returncode

    @property
    def ran(self):
        return self.folder / "the tool ran"


@pytest.fixture
def client(hookline, tmp_path):
    return Client(tmp_path, hookline.environ)


@pytest.fixture(params=["entry", "bare"])
def command(request, client):
    return getattr(client, request.param)


def test_the_tool_of_this_client_runs_where_nothing_is_wrong(client, command):
    for tool in ("Bash", "Write", "Edit"):
        assert client.asks(command, tool) == 0
        assert client.ran.exists()
        client.ran.unlink()


SIGNALS = ["KILL", "TERM", "INT", "HUP", "SEGV", "ALRM", "USR1", "PIPE"]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_hook_that_kills_its_parent_lets_nothing_pass(client, command, number):
    client.attacks(sh=f"kill -{number} $PPID\n/bin/kill -{number} $(cut -d' ' -f4 /proc/$PPID/stat)\n")
    client.asks(command, "Bash")
    assert not client.ran.exists()


ENDS = {
    "os._exit": "os._exit(0)",
    "the system's exit": "ctypes.CDLL(None)._exit(0)",
    "sys.exit": "sys.exit(0)",
    "kill": "os.kill(os.getpid(), signal.SIGKILL)",
    "a fault": "os.kill(os.getpid(), signal.SIGSEGV)",
    "another program": "os.execv('/bin/true', ['true'])",
    "no memory": "raise MemoryError",
    "an interrupt": "raise KeyboardInterrupt",
}


@pytest.mark.parametrize("tool", ["Write", "Edit"], ids=["sync", "async"])
@pytest.mark.parametrize("does", ENDS.values(), ids=ENDS.keys())
def test_a_python_hook_that_ends_its_process_lets_nothing_pass(client, command, does, tool):
    client.attacks(py=does)
    client.asks(command, tool)
    assert not client.ran.exists()


@pytest.mark.parametrize("does", ["os._exit(0)", "sys.exit(0)"])
def test_a_file_that_ends_the_process_when_it_is_loaded_lets_nothing_pass(client, command, does):
    with (client.folder / "guard.py").open("a") as file:
        file.write(f"\n{does}\n")
    approve(client.folder / "hookline.yaml", client.environ)
    client.asks(command, "Edit")
    assert not client.ran.exists()


def test_an_answer_whose_hook_was_killed_with_it_is_on_record_as_a_refusal(client):
    client.attacks(sh="kill -9 $PPID\n")
    client.asks(client.bare, "Bash")
    logs = subprocess.run([PROGRAM, "runs", "last"], env=client.environ, capture_output=True, check=True)
    assert b"blocked" in logs.stdout


def test_a_stopped_parent_is_ended_with_the_answer_that_has_a_limit(client):
    client.attacks(sh="echo $PPID > stopped; kill -STOP $PPID\n")
    client.asks(client.entry.replace("--within 590", "--within 1"), "Bash")
    assert not client.ran.exists()
    with suppress(ProcessLookupError):
        worker = os.pidfd_open(int((client.folder / "stopped").read_text()))
        assert select.select([worker], [], [], 60)[0]
        os.close(worker)


FILES = ["closed", "full", "nobody reads"]


@pytest.mark.parametrize("errors", ["as ever", *FILES])
@pytest.mark.parametrize("output", FILES)
def test_a_refusal_that_cannot_be_written_is_exit_code_2(client, command, output, errors):
    reads, writes = os.pipe()
    os.close(reads)
    redirected = {"closed": "{}>&-", "full": "{}>/dev/full", "nobody reads": f"{{}}>&{writes}", "as ever": ""}
    line = f"{command} {redirected[output].format(1)} {redirected[errors].format(2)}"
    assert client.asks(line, pass_fds=[writes]) == 2
    os.close(writes)
    assert not client.ran.exists()


@pytest.mark.parametrize("megabytes", [8, 20, 40, 60, 100, 200])
def test_where_memory_ends_nothing_passes(client, megabytes):
    limit = megabytes << 20
    client.asks(client.bare, "Edit")
    client.ran.unlink()
    client.asks(client.entry, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))
    assert not client.ran.exists()


def shadow(client, module, line):
    """A module of the standard library that cannot be loaded."""
    folder = client.folder / "shadow"
    folder.mkdir()
    (folder / f"{module}.py").write_text(f"{line}\n")
    return {"PYTHONPATH": str(folder)}


BROKEN = {
    "gone": ("json", "raise ImportError('gone')"),
    "no memory": ("json", "raise MemoryError"),
    "half": ("json", "def"),
    "no database": ("sqlite3", "raise ImportError('gone')"),
}


@pytest.mark.parametrize(("module", "line"), BROKEN.values(), ids=BROKEN.keys())
def test_a_program_that_cannot_be_loaded_lets_nothing_pass(client, command, module, line):
    client.asks(command, environ=shadow(client, module, line))
    assert not client.ran.exists()


@pytest.mark.parametrize("event", ["Stop", "PostToolUse"])
def test_a_program_that_cannot_be_loaded_keeps_no_agent_at_work(client, event):
    environ = shadow(client, *BROKEN["gone"])
    assert client.asks(f"{client.bare} {event}", event=event, environ=environ) == 1


def test_a_journal_that_is_no_journal_lets_nothing_pass(client, command):
    home = Path(client.environ["HOOKLINE_HOME"])
    (home / "journal.db").mkdir()
    client.asks(command, "Bash")
    assert not client.ran.exists()


def test_what_runs_on_in_the_process_of_a_hook_does_not_hold_up_the_answer(client):
    """A thread that never ends, and a fork that has our files."""
    client.attacks(
        py="import threading, time\n"
        "threading.Thread(target=threading.Event().wait, daemon=False).start()\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
    )
    assert client.asks(client.bare, "Write", stderr=subprocess.DEVNULL) == 0
    assert not Path("/proc", (client.folder / "pid").read_text()).exists()


def test_an_answer_that_is_killed_leaves_no_process_behind(client):
    """Neither the hook nor the process that called it: the pipe that both have is closed."""
    os.mkfifo(client.folder / "pipe")
    client.attacks(sh="exec 9> pipe; echo $PPID >&9; trap '' TERM; while :; do sleep 600; done\n")
    event = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_input": {}}
    process = subprocess.Popen(
        [PROGRAM, "answer"], cwd=client.folder, env=client.environ, stdin=subprocess.PIPE
    )
    process.stdin.write(json.dumps({**event, "cwd": str(client.folder)}).encode())
    process.stdin.close()
    with (client.folder / "pipe").open() as pipe:
        worker = os.pidfd_open(int(pipe.readline()))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert pipe.read() == ""
    assert select.select([worker], [], [], 60)[0]
    os.close(worker)
