"""An order means the same without an event loop as on one, and leaves as little behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.errors import UsageError
from hookline.runners import Mount, Order
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner
from hookline.runners.process import ProcessRunner

PATH = "/usr/local/bin:/usr/bin:/bin"


def done(coroutine):
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits for a loop")


def sh(script, **more):
    return Order(argv=("sh", "-c", script), **{"env": {"PATH": PATH}, **more})


@pytest.fixture
def runner():
    runner = ProcessRunner(grace=0.3)
    yield runner
    done(runner.close())
    assert tagged.carriers(runner.mark.encode()) == {}


ORDERS = {
    "nothing": sh("true"),
    "both outputs": sh("cat; echo no >&2; exit 3", stdin=b"x"),
    "one output": sh("echo 1; echo 2 >&2", merge_stderr=True),
    "a big input": sh("wc -c", stdin=b"x" * 3_000_000),
    "an input nobody reads": sh("exec <&-; echo ok", stdin=b"x" * 3_000_000),
    "a big output": sh("echo first; head -c 5000000 /dev/zero; echo last", output_cap=1000),
    "a signal": sh("kill -TERM $$"),
    "a limit": sh("echo begun; sleep 60", timeout=0.2),
    "a limit it does not hear": sh("trap '' TERM; sleep 60; sleep 60", timeout=0.2),
    "an endless output": sh("yes", timeout=0.3, output_cap=10),
    "one that holds the output": sh("sleep 60 & echo ok"),
    "one that left": sh("setsid sleep 60 >/dev/null 2>&1 & echo ok"),
    "no program": Order(argv=("no-such-program",), env={"PATH": PATH}),
    "no file": Order(argv=("/no/such/file",), env={"PATH": PATH}),
    "no word": Order(argv=(), env={}),
    "a folder as program": Order(argv=("/tmp",), env={"PATH": PATH}),
    "no script": sh("python3 gone.py"),
    "no folder": sh("true", cwd="/no/such/folder"),
    "a file as folder": sh("true", cwd="/bin/sh"),
    "another folder": sh("pwd", cwd="/usr"),
    "an argument that cannot be": Order(argv=("true", "a\0b"), env={"PATH": PATH}),
    "a variable that cannot be": sh("true", env={"PATH": PATH, "A": "b\0c"}),
    "a name that cannot be": sh("true", env={"PATH": PATH, "A=B": "c"}),
    "no path": sh("echo $PATH", env={}),
    "a folder of the path that is none": sh("true", env={"PATH": f"/bin/sh:/no:{PATH}"}),
    "too long": Order(argv=("true", "x" * 3_000_000), env={"PATH": PATH}),
    "its environment": sh(
        "env | grep -v HOOKLINE_TAG | sort; pwd", env={"PATH": PATH, "B": " x\ny "}, cwd="/"
    ),
    "what it holds open": sh("ls /proc/self/fd | wc -l"),
    "its group": sh('test "$(ps -o sid= -p $$)" -eq $$ && echo leads'),
    "signals that Python ignores": sh("grep SigIgn /proc/self/status | tail -c 8"),
}


def told(ending):
    # How much was printed before a limit differs from time to time.
    output = None if ending.passed_limit else ending.stdout
    return (ending.exit_code, ending.signal, output, ending.stderr, ending.passed_limit, ending.not_started)


@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
def test_an_order_ends_as_on_a_loop(runner, order):
    async def on_a_loop():
        local = LocalRunner(grace=0.3)
        try:
            return await local.run(order)
        finally:
            await local.close()

    here = os.getcwd()
    assert told(done(runner.run(order))) == told(asyncio.run(on_a_loop()))
    assert os.getcwd() == here


def test_what_was_printed_before_the_limit_is_kept(runner):
    ending = done(
        runner.run(sh("trap 'echo heard; exit 4' TERM; echo begun; while :; do sleep 0.02; done", timeout=3))
    )
    assert (ending.stdout.text, ending.exit_code, ending.passed_limit) == ("begun\nheard\n", 4, True)


def test_who_prints_for_ever_keeps_nobody(runner):
    ending = done(runner.run(sh("yes & setsid yes & echo ok", output_cap=10)))
    assert (ending.exit_code, ending.passed_limit) == (0, False)
    assert tagged.carriers(runner.mark.encode()) == {}


def test_what_the_caller_left_open_is_not_handed_on(runner):
    ours, theirs = os.pipe()
    os.set_inheritable(theirs, True)
    try:
        assert done(runner.run(sh(f"[ -e /proc/$$/fd/{theirs} ]"))).exit_code == 1
    finally:
        os.close(ours)
        os.close(theirs)


def test_it_leaves_no_file_open_and_no_zombie(runner):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        assert done(runner.run(sh("cat", stdin=b"x"))).stdout.content == b"x"
    done(runner.close())
    assert len(os.listdir("/proc/self/fd")) == before
    children = subprocess.run(
        ["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    assert "Z" not in children.stdout


def test_what_has_left_its_group_is_asked_to_end_and_then_ended(runner, tmp_path):
    asked = "setsid sh -c \"trap 'echo asked > asked; exit' TERM; echo > up; while :; do sleep 0.02; done\" &"
    deaf = "setsid sh -c \"trap '' TERM; echo > deaf; while :; do sleep 0.02; done\" &"
    wait = "until [ -e up ] && [ -e deaf ]; do sleep 0.02; done"
    ending = done(runner.run(sh(f"{{ {asked} {deaf} }} >/dev/null 2>&1; {wait}", cwd=str(tmp_path))))
    assert ending.exit_code == 0
    assert len(tagged.carriers(runner.mark.encode())) >= 2
    done(runner.close())
    assert tagged.carriers(runner.mark.encode()) == {}
    assert (tmp_path / "asked").read_text() == "asked\n"


def test_orders_for_other_runners_are_refused(runner):
    for more in ({"mounts": (Mount(target="/a"),)}, {"background_keep": True}, {"file_size": 1}):
        with pytest.raises(UsageError, match="for the other runners"):
            done(runner.run(sh("true", **more)))


HOST = """
import os, sys
from hookline.runners import Order
from hookline.runners.process import ProcessRunner

runner = ProcessRunner()
print(runner.mark, flush=True)
script = "setsid sh -c 'echo > up2; sleep 300; :' & echo > up1; sleep 300; :"
if sys.argv[1] == "between":
    script = "setsid sh -c 'echo > up2; sleep 300; :' >/dev/null 2>&1 & until [ -e up2 ]; do sleep 0.02; done"
run = runner.run(Order(argv=("sh", "-c", script), env=dict(os.environ)))
try:
    run.send(None)
except StopIteration:
    open("up1", "w").close()
    sys.stdin.read()
"""


def until(true, what):
    limit = time.monotonic() + 60
    while not true():
        assert time.monotonic() < limit, what
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("when", ["in the middle", "between"])
def test_nothing_is_left_where_its_process_is_killed(tmp_path, when, number):
    words = [sys.executable, "-c", HOST, when]
    with subprocess.Popen(words, cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as host:
        mark = host.stdout.readline().strip()
        until(lambda: all((tmp_path / name).exists() for name in ("up1", "up2")), "it has begun")
        assert tagged.carriers(mark)
        host.send_signal(number)
        host.wait()
    until(lambda: not tagged.carriers(mark), "nobody carries the tag any more")
    until(lambda: not watchers(mark), "and the watcher has gone")


def watchers(mark):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found += [pid] if mark in Path(f"/proc/{pid}/cmdline").read_bytes() else []
        except OSError:
            pass
    return found


def test_the_watcher_goes_with_the_runner(runner):
    done(runner.run(sh("true")))
    # Its command line is there a moment after it was started.
    until(lambda: watchers(runner.mark.encode()), "the watcher is there")
    done(runner.close())
    assert not watchers(runner.mark.encode())
