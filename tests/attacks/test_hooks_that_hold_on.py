"""Python hooks that hold up the loop, end the process, or leave something in it; and terminals that are closed."""

import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

PROGRAM = Path(sys.executable).with_name("hookline")
AGENT = """
import asyncio, os, threading, time
from hookline import Agent, HookResult, Scripted, hook

def ready():
    with open("ready", "w") as pipe:
        pipe.write("ready")

@hook(inline=True, timeout=LIMIT)
def inline(ctx, c):
    DOES
    return HookResult.continue_with()

@hook(timeout=LIMIT)
def thread(ctx, c):
    DOES
    return HookResult.continue_with()

@hook(timeout=LIMIT)
async def coroutine(ctx, c):
    DOES
    return HookResult.continue_with()

@hook(timeout=LIMIT)
async def waiting(ctx, c):
    await asyncio.sleep(0)
    DOES
    return HookResult.continue_with()

@hook(inline=True)
def over(ctx, c):
    with open("ends", "a") as file:
        file.write("x")
    return HookResult.continue_with()

agent = Agent(id="held", model=Scripted(["done"]), on_start=[KIND], on_end=[over])
"""
KINDS = ["inline", "thread", "coroutine", "waiting"]
FILE = """
hooks:
  - {name: left, on: run.start, background: keep, shell: '[ ! -p left ] || sleep 600 > left &'}
  - {name: ended, on: run.end, shell: 'echo x >> ended'}
"""


class Run:
    """`hookline run` of an agent whose hook does something at its start, with an end hook in a hook file."""

    def __init__(self, folder, environ):
        self.folder, self.environ = folder, environ
        (folder / "over.yaml").write_text(FILE)

    def start(self, does, kind, limit="60", **options):
        text = AGENT.replace("DOES", does).replace("KIND", kind)
        (self.folder / "held.py").write_text(text.replace("LIMIT", limit))
        return subprocess.Popen(
            [PROGRAM, "run", "held.py", "x", "--hooks", "over.yaml"],
            cwd=self.folder,
            env=self.environ,
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **options},
        )

    def held(self, does, kind, **options):
        """One whose hook is in the midst of it."""
        os.mkfifo(self.folder / "ready")
        process = self.start(f"ready(); {does}", kind, **options)
        assert (self.folder / "ready").read_text() == "ready"
        return process

    def records(self):
        done = subprocess.run(
            [PROGRAM, "runs", "last", "--json"], env=self.environ, capture_output=True, check=True, text=True
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    @property
    def ended(self):
        return self.folder / "ended"


@pytest.fixture
def run(hookline, tmp_path):
    return Run(tmp_path, hookline.environ)


def interrupted(process, number):
    """Signal it once, and wait until it says that it has heard."""
    process.send_signal(number)
    while "interrupted" not in process.stderr.readline():
        assert process.poll() is None


@pytest.mark.parametrize("kind", ["inline", "coroutine", "waiting"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_second_signal_ends_a_process_whose_loop_a_hook_holds_up(run, kind, number):
    process = run.held("time.sleep(600)", kind)
    interrupted(process, number)
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 130


def test_nothing_is_left_of_a_process_that_was_ended_so(run):
    os.mkfifo(run.folder / "left")
    process = run.held("time.sleep(600)", "inline")
    with (run.folder / "left").open() as left:
        interrupted(process, signal.SIGINT)
        process.send_signal(signal.SIGINT)
        process.communicate()
        assert process.returncode == 130
        assert left.read() == ""


def test_a_closed_terminal_lets_the_end_hooks_run(run):
    """The terminal is gone for whatever is printed, and the run still ends in order."""
    ours, theirs = os.openpty()
    process = run.held(
        "threading.Event().wait()",
        "thread",
        start_new_session=True,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    os.close(ours)
    assert process.wait() == 130
    assert run.ended.read_text() == "x\n"


def test_a_run_under_nohup_goes_on(run):
    os.mkfifo(run.folder / "go")
    ignores = {"preexec_fn": lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)}
    process = run.held("open('go').read()", "thread", **ignores)
    process.send_signal(signal.SIGHUP)
    (run.folder / "go").write_text("go")
    process.communicate()
    assert process.returncode == 0
    assert run.ended.read_text() == "x\n"


@pytest.mark.parametrize("kind", ["inline", "coroutine", "waiting"])
def test_a_hook_that_held_up_the_loop_past_its_limit_is_on_record_as_that(run, kind):
    process = run.start("time.sleep(0.5)", kind, limit="0.05")
    process.communicate()
    assert process.returncode == 1
    [called] = [each for each in run.records() if each.get("hook") == kind]
    assert called["error_kind"] == "timed_out"
    assert run.ended.read_text() == "x\n"


ENDS = {"os._exit": "os._exit(0)", "sys.exit": "sys.exit(0)", "exit": "exit(0)"}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("does", ENDS.values(), ids=ENDS.keys())
def test_a_hook_that_ends_the_process_is_a_hook_that_broke(run, does, kind):
    process = run.start(does, kind)
    process.communicate()
    assert process.returncode == 1
    assert run.ended.read_text() == "x\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_that_comes_back_from_a_hook_neither_ends_the_run_again_nor_stays(run, kind):
    process = run.start("pid = os.fork(); pid or open('forked', 'w').write(str(os.getpid()))", kind)
    out, _ = process.communicate()
    assert process.returncode == 0
    assert out.count("done") == 1
    assert (run.folder / "ends").read_text() == "x"
    assert run.ended.read_text() == "x\n"
    ends = [each for each in run.records() if each["record"] == "ended"]
    assert len({each["scope_id"] for each in ends}) == len(ends)
    pid = (run.folder / "forked").read_text()
    if Path("/proc", pid).exists():
        fd = os.pidfd_open(int(pid))
        assert select.select([fd], [], [], 60)[0]
        os.close(fd)


@pytest.mark.parametrize("kind", KINDS)
def test_a_thread_that_a_hook_started_does_not_keep_the_process(run, kind):
    process = run.start("threading.Thread(target=threading.Event().wait, daemon=False).start()", kind)
    _, err = process.communicate()
    assert process.returncode == 0
    assert run.ended.read_text() == "x\n"
    assert "threads still running" in err
