"""Python commands, cold and warm: one suite for both, and what is only true of the warm ones."""

import asyncio
import logging
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from hookline.engine.context import HookContext
from hookline.errors import UsageError
from hookline.hookfile.attach import attached
from hookline.runners import Ending, Order, Runner
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner
from hookline.runners.warm import WarmRunner

ENV = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ.get('PATH', os.defpath)}"}
ENV.pop("PYTHONUNBUFFERED", None)
SERVER = b"0"


class Both:
    """A runner with what the tests ask of it."""

    def __init__(self, warm: bool, **options) -> None:
        self.local = LocalRunner(**options)
        self.runner: Runner = WarmRunner(self.local) if warm else self.local
        self.warm = warm

    async def code(self, code: str, *args: str, **more) -> Ending:
        argv = (sys.executable, "-c", textwrap.dedent(code), *args)
        return await self.runner.run(Order(argv=argv, env=ENV, **more))

    async def run(self, *argv: str, env: dict[str, str] = ENV, **more) -> Ending:
        return await self.runner.run(Order(argv=argv, env=env, **more))

    def alive(self) -> dict[int, bytes]:
        found = tagged.carriers(self.local.mark.encode())
        return {pid: number for pid, number in found.items() if number != SERVER}

    async def close(self) -> None:
        await self.local.close()
        assert tagged.carriers(self.local.mark.encode()) == {}


@pytest.fixture(params=["cold", "warm"])
async def both(request, caplog) -> AsyncIterator[Both]:
    both = Both(request.param == "warm")
    yield both
    await both.close()
    assert "cold" not in caplog.text


@pytest.fixture
async def warm() -> AsyncIterator[Both]:
    both = Both(True)
    yield both
    await both.close()


async def until(true, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


def script(folder: Path, text: str, name: str = "hook.py") -> str:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    path.chmod(0o755)
    return str(path)


# How it ends.

ENDS = {
    "nothing": ("pass", 0, None),
    "exit": ("import sys; sys.exit(7)", 7, None),
    "exit none": ("raise SystemExit", 0, None),
    "exit text": ("import sys; sys.exit('no')", 1, None),
    "exit true": ("import sys; sys.exit(True)", 1, None),
    "exit below zero": ("import sys; sys.exit(-1)", 255, None),
    "exit 256": ("import sys; sys.exit(256)", 0, None),
    "exit huge": ("import sys; sys.exit(2**70)", 255, None),
    "uncaught": ("def f():\n    1/0\nf()", 1, None),
    "chained": ("try:\n    1/0\nexcept Exception as e:\n    raise ValueError('x') from e", 1, None),
    "syntax": ("def f(:", 1, None),
    "at once": ("import os; os._exit(9)", 9, None),
    "abort": ("import os; os.abort()", None, signal.SIGABRT),
    "segfault": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", None, signal.SIGSEGV),
    "terminated": ("import os; os.kill(os.getpid(), 15)", None, signal.SIGTERM),
    "interrupted": ("raise KeyboardInterrupt", None, signal.SIGINT),
    "interrupt, sent": (
        "import os, time; os.kill(os.getpid(), 2); time.sleep(5)",
        None,
        signal.SIGINT,
    ),
    "own excepthook": ("import sys; sys.excepthook = lambda *a: print('mine', a[1]); 1/0", 1, None),
    "exit function": ("import atexit; atexit.register(print, 'bye'); print('hi')", 0, None),
    "thread": (
        "import threading, time\nthreading.Thread(target=lambda: (time.sleep(.05), print('late'))).start()",
        0,
        None,
    ),
    "daemon thread": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        0,
        None,
    ),
    "finalizer": ("class A:\n    def __del__(self): print('gone')\na = A()\nb = [a]; b.append(b)", 0, None),
    "no stdout": ("import os; os.close(1)", 0, None),
    "stdout none": ("import sys; sys.stdout = None", 0, None),
    "stdout full": ("import sys, os\nprint('x')\nos.close(1)", 120, None),
}


@pytest.mark.parametrize("name", ENDS)
async def test_it_ends_as_python_does(both, tmp_path, name):
    code, exit_code, number = ENDS[name]
    ending = await both.run(sys.executable, script(tmp_path, code))
    assert (ending.exit_code, ending.signal) == (exit_code, number), ending.stderr.text


@pytest.mark.parametrize("name", [name for name in ENDS if name not in ("stdout full", "interrupt, sent")])
async def test_a_warm_one_prints_what_a_cold_one_prints(warm, tmp_path, name):
    path = script(tmp_path, ENDS[name][0])
    one, other = (
        await warm.run(sys.executable, path),
        await warm.local.run(Order(argv=(sys.executable, path), env=ENV)),
    )
    assert (one.stdout.text, one.stderr.text) == (other.stdout.text, other.stderr.text)


# What it is given.

FACTS = """
import os, sys, signal, io, json
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "name": __name__, "file": globals().get("__file__"), "cwd": os.getcwd(),
    "names": sorted(globals()), "main": sys.modules["__main__"].__dict__ is globals(),
    "loader": str(type(__loader__)), "spec": str(__spec__), "package": __package__, "doc": __doc__,
    "executable": sys.executable, "prefix": sys.prefix, "flags": str(sys.flags), "orig": sys.orig_argv[1:],
    "environ": {k: v for k, v in os.environ.items() if k != "HOOKLINE_TAG"},
    "signals": [str(signal.getsignal(n)) for n in (1, 2, 13, 15, 17)],
    "mask": str(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "stdio": [[f.name, f.mode, f.encoding, f.errors, f.line_buffering, f.seekable(), f.isatty()]
              for f in (sys.stdin, sys.stdout, sys.stderr)],
    "fds": sorted(os.listdir("/proc/self/fd")), "session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "in": sys.stdin.read(), "gc": __import__("gc").isenabled(), "limit": sys.getrecursionlimit(),
    "threads": __import__("threading").active_count(),
}, indent=1))
"""


@pytest.mark.parametrize("way", ["absolute", "relative", "link", "shebang", "bare shebang", "-m", "-c", "-u"])
async def test_a_warm_one_is_given_what_a_cold_one_is_given(warm, tmp_path, way, caplog):
    name = script(tmp_path, "#!/usr/bin/env python3\n" + FACTS)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "linked.py").symlink_to(name)
    argv = {
        "absolute": (sys.executable, name, "a b", "", "ü"),
        "relative": ("python3", "hook.py", "-c", "x"),
        "link": ("python3", "./bin/linked.py"),
        "shebang": ("./hook.py", "1"),
        "bare shebang": ("linked.py", "1"),
        "-m": ("python3", "-m", "hook", "1"),
        "-c": ("python3", "-c", FACTS, "1"),
        "-u": ("python3", "-u", "hook.py"),
    }[way]
    env = {**ENV, "PATH": f"{tmp_path}/bin:{ENV['PATH']}", "ODD": "a=b\nc", "EMPTY": ""}
    order = Order(argv=argv, env=env, cwd=str(tmp_path), stdin=b"hello\r\n")
    await warm.runner.run(Order(argv=argv, env={**env, "LEFT": "over"}, cwd=str(tmp_path)))
    one, other = await warm.runner.run(order), await warm.local.run(order)
    assert one.exit_code == 0, one.stderr.text
    assert re.sub("0x[0-9a-f]+", "", one.stdout.text) == re.sub("0x[0-9a-f]+", "", other.stdout.text)
    assert "cold" not in caplog.text


async def test_a_big_environment_and_input_arrive_whole(both):
    env = {**ENV, **{f"BIG{n}": "x" * 100_000 for n in range(5)}}
    code = "import os, sys; print(len(os.environ['BIG4']), len(sys.stdin.buffer.read()))"
    ending = await both.run(sys.executable, "-c", code, env=env, stdin=b"y" * 3_000_000)
    assert ending.stdout.text == "100000 3000000\n"


async def test_calls_share_nothing(both):
    code = "import json, random; print(getattr(json, 'x', None), random.random()); json.x = 1"
    said = [(await both.code(code)).stdout.text.split() for _ in range(4)]
    assert {word for word, _ in said} == {"None"}
    assert len({number for _, number in said}) == 4


async def test_the_tag_is_in_its_environment_and_its_childrens(both):
    code = "import os, subprocess; print(os.environ['HOOKLINE_TAG'], flush=True); subprocess.run(['printenv', 'HOOKLINE_TAG'])"
    lines = (await both.code(code)).stdout.text.split()
    assert lines == [f"{both.local.tag('1')}"] * 2


async def test_what_cannot_start_did_not_start(both, tmp_path):
    assert "no such file" in ((await both.run("python3", "gone.py")).not_started or "")
    ending = await both.run("python3", "-c", "pass", cwd=str(tmp_path / "gone"))
    assert "does not exist" in (ending.not_started or "")
    assert "null byte" in ((await both.run("python3", "-c", "pass", "a\0b")).not_started or "")


# What it does with its pipes, its limit, and what it leaves.


async def test_outputs_are_kept_head_and_tail(both):
    ending = await both.code(
        "import sys; sys.stdout.write('0123456789'); print('e', file=sys.stderr)", output_cap=4
    )
    assert (ending.stdout.head, ending.stdout.tail, ending.stdout.total) == (b"01", b"89", 10)
    merged = await both.code(
        "import os; os.write(1, b'1'); os.write(2, b'2'); os.write(1, b'3')", merge_stderr=True
    )
    assert (merged.stdout.text, merged.stderr.total) == ("123", 0)


async def test_input_that_is_never_read_is_no_trouble(both):
    assert (await both.code("print('done')", stdin=b"x" * 1_000_000, timeout=20)).stdout.text == "done\n"


async def test_a_file_that_was_never_closed_is_written(both, tmp_path):
    await both.code(
        "import sys, os; f = open(sys.argv[1], 'w'); f.write('all')\nos.kept = f", str(tmp_path / "f")
    )
    assert (tmp_path / "f").read_text() == "all"


LEAVES = {
    "child": "subprocess.Popen(['sleep', '60'])",
    "session": "subprocess.Popen(['sleep', '60'], start_new_session=True)",
    "fork": "os.fork() or time.sleep(60)",
    "fork, session": "os.fork() or (os.setsid(), time.sleep(60))",
    "grandchild": "os.fork() or (os.setsid(), os.fork(), time.sleep(60))",
}


@pytest.mark.parametrize("kind", LEAVES)
async def test_what_it_leaves_is_ended(both, kind):
    code = f"import os, subprocess, sys, time\nme = os.getpid()\n{LEAVES[kind]}\nprint('up') if os.getpid() == me else 0"
    ending = await both.code(code, timeout=20)
    assert (ending.exit_code, ending.stdout.text) == (0, "up\n")
    await until(lambda: not both.alive())


@pytest.mark.parametrize("kind", LEAVES)
async def test_all_of_it_is_ended_at_its_limit(both, kind):
    code = f"import os, subprocess, sys, time\n{LEAVES[kind]}\nprint('up', flush=True)\ntime.sleep(60)"
    ending = await both.code(code, timeout=0.3)
    assert ending.passed_limit
    assert not both.alive()


async def test_it_may_put_things_in_order_at_its_limit(both):
    code = """
    import signal, sys, time
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(5))
    print("up", flush=True)
    time.sleep(60)
    """
    ending = await both.code(code, timeout=1)
    assert (ending.passed_limit, ending.exit_code, ending.stdout.text) == (True, 5, "up\n")


@pytest.mark.parametrize("kind", ["cold", "warm"])
async def test_one_that_ignores_sigterm_is_killed(kind):
    both = Both(kind == "warm", grace=0.1)
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
    ending = await both.code(code, timeout=0.5)
    assert (ending.passed_limit, ending.signal) == (True, signal.SIGKILL)
    await both.close()


async def test_a_cancelled_call_has_ended_its_processes_when_it_returns(both):
    code = "import os, subprocess, time\nsubprocess.Popen(['sleep', '60'], start_new_session=True)\ntime.sleep(60)"
    task = asyncio.create_task(both.code(code))
    await until(lambda: len(both.alive()) >= 2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not both.alive()


async def test_background_keep_leaves_it_alive_until_the_runner_is_closed(both):
    code = "import os, time\nos.fork() or time.sleep(60)"
    assert (await both.code(code, background_keep=True)).exit_code == 0
    assert len(both.alive()) == 1


async def test_many_at_once_past_their_limit_leave_none(both):
    kinds = list(LEAVES.values())
    codes = [f"import os, subprocess, time\n{kinds[n % len(kinds)]}\ntime.sleep(60)" for n in range(40)]
    endings = await asyncio.gather(*(both.code(code, timeout=0.2) for code in codes))
    assert all(ending.passed_limit for ending in endings)
    assert not both.alive()


async def test_a_crash_touches_no_other_call(both):
    async def crash() -> Ending:
        return await both.code("import os; os.abort()")

    slow = [asyncio.create_task(both.code("import time; time.sleep(.3); print('well')")) for _ in range(2)]
    crashes = await asyncio.gather(*(crash() for _ in range(6)))
    assert {ending.signal for ending in crashes} == {signal.SIGABRT}
    assert {ending.stdout.text for ending in await asyncio.gather(*slow)} == {"well\n"}


HOST = """
import asyncio, os, sys
from hookline.runners import Order
from hookline.runners.local import LocalRunner
from hookline.runners.warm import WarmRunner

CODE = "import os, subprocess, time; subprocess.Popen(['sleep', '60'], start_new_session=True); os.fork(); time.sleep(60)"

async def main():
    local = LocalRunner()
    runner = WarmRunner(local) if sys.argv[1] == "warm" else local
    print(local.mark, flush=True)
    order = Order(argv=(sys.executable, "-c", CODE), env=dict(os.environ))
    await asyncio.gather(*(runner.run(order) for _ in range(4)))

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["cold", "warm"])
async def test_nothing_is_left_when_hookline_itself_is_killed(kind):
    host = subprocess.Popen([sys.executable, "-c", HOST, kind], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    mark = host.stdout.readline().strip().encode()
    await until(lambda: len(tagged.carriers(mark)) >= 12)
    host.kill()
    host.wait()
    host.stdout.close()
    await until(lambda: not tagged.carriers(mark))


# Only of the warm ones.


def servers(both: Both) -> list[int]:
    found = tagged.carriers(both.local.mark.encode())
    return [pid for pid, number in found.items() if number == SERVER and parent(pid) == os.getpid()]


def parent(pid: int) -> int | None:
    """None where the process has just gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return None


async def test_calls_are_forks_of_one_server_which_ends_with_the_runner(warm):
    code = "import os; print(os.getppid())"
    said = {(await warm.code(code)).stdout.text for _ in range(3)}
    assert said == {f"{servers(warm)[0]}\n"}
    await warm.close()
    assert not servers(warm)
    with pytest.raises(UsageError, match="closed"):
        await warm.code("pass")


async def test_what_is_preloaded_is_there_before_the_script(caplog):
    local = LocalRunner()
    runner = WarmRunner(local, preload=["decimal", "email.message"])
    code = "import sys; print('decimal' in sys.modules, 'email.message' in sys.modules)"
    ending = await runner.run(Order(argv=(sys.executable, "-c", code), env=ENV))
    assert ending.stdout.text == "True True\n"
    await runner.close()
    assert not caplog.text


COLD = {
    "not python": (("sh", "-c", "echo ok"), "not a Python script"),
    "an option": ((sys.executable, "-I", "-c", "print('ok')"), "the option -I"),
    "a shebang with more": (("./more.py",), "not a Python script"),
}


@pytest.mark.parametrize("name", COLD)
async def test_what_cannot_be_warm_is_started_cold_and_that_is_said_once(warm, tmp_path, name, caplog):
    argv, reason = COLD[name]
    script(tmp_path, "#!/usr/bin/env -S python3 -s\nprint('ok')", "more.py")
    for _ in range(3):
        assert (await warm.run(*argv, cwd=str(tmp_path))).stdout.text == "ok\n"
    assert len(re.findall("is started cold", caplog.text)) == 1
    assert reason in caplog.text
    assert not servers(warm)


@pytest.mark.parametrize(
    ("preload", "reason"),
    [("no_such_module", "No module named"), ("antigravity_exit", "SystemExit"), ("loud", "starts threads")],
)
async def test_a_preload_that_fails_is_told_and_the_hook_runs_cold(tmp_path, preload, reason, caplog):
    (tmp_path / "antigravity_exit.py").write_text("raise SystemExit(3)")
    (tmp_path / "loud.py").write_text(
        "import threading\nprint('x' * 200000)\nthreading.Thread(target=threading.Event().wait, daemon=True).start()"
    )
    local = LocalRunner()
    runner = WarmRunner(local, preload=[preload])
    order = Order(argv=(sys.executable, "-c", "print('ok')"), env={**ENV, "PYTHONPATH": str(tmp_path)})
    endings = await asyncio.gather(*(runner.run(order) for _ in range(3)))
    assert [ending.stdout.text for ending in endings] == ["ok\n"] * 3
    assert len(re.findall("is started cold", caplog.text)) == 1
    assert reason in caplog.text
    await runner.close()


async def test_a_server_that_was_killed_is_started_again(warm, caplog):
    caplog.set_level(logging.WARNING)
    code = "import os; print(os.getppid())"
    first = (await warm.code(code)).stdout.text
    os.kill(servers(warm)[0], signal.SIGKILL)
    await until(lambda: not servers(warm))
    assert (await warm.code(code)).exited
    last = (await warm.code(code)).stdout.text
    assert last != first
    assert last == f"{servers(warm)[0]}\n"


async def test_a_call_that_only_a_fork_without_its_server_could_take_is_started_cold(caplog):
    runner = WarmRunner(LocalRunner(cap=2))

    def python(code: str) -> Order:
        return Order(argv=(sys.executable, "-c", code), env=ENV)

    assert (await runner.run(python("pass"))).exit_code == 0
    killing = python("import os, time; time.sleep(.2); os.kill(os.getppid(), 9); time.sleep(1.2)")
    # The third has found the server ready, and waits for a free slot while the server dies.
    orders = (killing, Order(argv=("sleep", ".7"), env=ENV), python("print('ok')"))
    endings = await asyncio.gather(*map(runner.run, orders))
    assert endings[2].stdout.text == "ok\n"
    assert "the warm interpreter is gone; this call is started cold" in caplog.text
    await runner.close()


async def test_a_call_cancelled_while_the_server_loads_leaves_it_for_the_next(warm):
    task = asyncio.create_task(warm.code("pass"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await warm.code("print('ok')")).stdout.text == "ok\n"


async def test_a_fork_that_was_killed_before_its_call_is_replaced(warm):
    assert (await warm.code("pass")).exit_code == 0
    await until(lambda: spares(warm))
    killed = set(spares(warm))
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: set(spares(warm)) - killed and not killed & set(spares(warm)))
    assert (await warm.code("print('ok')")).stdout.text == "ok\n"


def spares(both: Both) -> list[int]:
    found = tagged.carriers(both.local.mark.encode())
    return [pid for pid, number in found.items() if number == SERVER and pid not in servers(both)]


async def test_a_hook_that_kills_its_server_harms_only_its_own_exit_code(warm):
    code = "import os, time; os.kill(os.getppid(), 9); time.sleep(.05); print('still here')"
    ending = await warm.code(code)
    assert (ending.exited, ending.stdout.text) == (False, "still here\n")
    assert (await warm.code("print('ok')")).stdout.text == "ok\n"


async def test_a_hook_file_that_says_warm_fork_has_its_command_forked(tmp_path, caplog):
    hook = """
    import json, os, sys
    print(json.dumps({"decision": "block", "reason": f"{os.getppid()} {'decimal' in sys.modules}"}))
    """
    script(tmp_path, hook)
    entry = f"- name: h\n  on: tool.start\n  command: [python3, {tmp_path}/hook.py]\n  warm: fork\n  preload: decimal\n"
    (tmp_path / "hookline.yaml").write_text(f"hooks:\n{textwrap.indent(entry, '  ')}")
    both = Both(True)
    found = attached(tmp_path / "hookline.yaml", both.local)
    assert not found.problems
    context = HookContext(workflow_id="w", point="tool.start", run_id="r", current_tool="bash")
    said = [(await found.hooks[0].handler(None, context)).error_message for _ in range(2)]
    assert said == [f"{servers(both)[0]} True"] * 2
    assert "cold" not in caplog.text
    await both.close()
