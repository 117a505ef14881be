"""The local runner with real processes: whatever they do, it returns, and nothing is left."""

import asyncio
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.errors import UsageError
from hookline.runners import Ending, Order, Output, process
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner

ENV = dict(os.environ)


def sh(script: str, **more) -> Order:
    return Order(argv=("sh", "-c", script), env=ENV, **more)


def python(code: str, **more) -> Order:
    return Order(argv=(sys.executable, "-c", code), env=ENV, **more)


def alive(runner: LocalRunner) -> dict[int, bytes]:
    return tagged.carriers(runner.mark.encode())


async def until(true, seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        await asyncio.sleep(0.005)


def file(folder: Path, name: str, text: str, mode: int = 0o755) -> str:
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)


# What it was given and how it ended.


async def test_input_outputs_and_exit_code_come_through(runner):
    ending = await runner.run(sh("cat; echo no >&2; exit 3", stdin=b'{"a": 1}'))
    assert (ending.exit_code, ending.signal, ending.exited) == (3, None, True)
    assert (ending.stdout.content, ending.stderr.content) == (b'{"a": 1}', b"no\n")
    assert ending.stdout.whole
    assert ending.in_words() == "exited with 3"


async def test_errors_can_go_into_the_same_output_in_order(runner):
    ending = await runner.run(sh("echo 1; echo 2 >&2; echo 3", merge_stderr=True))
    assert (ending.stdout.content, ending.stderr.total) == (b"1\n2\n3\n", 0)


async def test_the_environment_is_the_one_given_and_a_tag(runner):
    order = Order(argv=("/usr/bin/env",), env={"ONLY": "this"})
    names = {line.partition(b"=")[0] for line in (await runner.run(order)).stdout.content.splitlines()}
    assert names == {b"ONLY", b"HOOKLINE_TAG"}


async def test_a_tag_keeps_the_tags_around_it(runner, monkeypatch):
    monkeypatch.setenv("HOOKLINE_TAG", ":outer.7:")
    ending = await runner.run(sh("printf %s $HOOKLINE_TAG"))
    assert ending.stdout.text == f":outer.7:{runner.mark}1:"


async def test_arguments_are_passed_as_they_are_without_a_shell(runner):
    ending = await runner.run(Order(argv=("printf", "%s|", "a b", "$HOME", "*"), env=ENV))
    assert ending.stdout.text == "a b|$HOME|*|"


async def test_it_runs_in_the_folder_it_is_told(runner, tmp_path):
    assert (await runner.run(sh("pwd", cwd=str(tmp_path)))).stdout.text.strip() == str(tmp_path)


async def test_a_process_has_a_session_of_its_own(runner):
    ending = await runner.run(python("import os; print(os.getsid(0) == os.getpid())"))
    assert ending.stdout.text == "True\n"


async def test_a_signal_is_told_apart_from_an_exit_code(runner):
    ending = await runner.run(sh("kill -SEGV $$"))
    assert (ending.exit_code, ending.signal, ending.exited) == (None, signal.SIGSEGV, False)
    assert ending.in_words() == "was killed by SIGSEGV"


async def test_an_exit_code_that_was_lost_is_not_taken_for_a_zero(runner):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        ending = await runner.run(sh("exit 3"))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (ending.exit_code, ending.exited) == (None, False)
    assert "exit code was lost" in ending.in_words()


# It could not start.


async def could_not(runner: LocalRunner, *argv: str, **more) -> str:
    ending = await runner.run(Order(argv=argv, env=ENV, **more))
    assert not ending.exited
    assert ending.not_started is not None
    assert ending.in_words().startswith("could not start: ")
    return ending.not_started


async def test_a_command_that_is_not_there_could_not_start(runner, tmp_path):
    assert "'no-such-program' was not found" in await could_not(runner, "no-such-program")
    assert "does not exist in" in await could_not(runner, "./no-such-hook", cwd=str(tmp_path))
    assert "names no program" in await could_not(runner)


async def test_a_file_that_cannot_be_run_could_not_start(runner, tmp_path):
    plain = file(tmp_path, "plain", "#!/bin/sh\n", 0o644)
    assert "not executable; chmod +x" in await could_not(runner, plain)
    assert "is a folder" in await could_not(runner, str(tmp_path))
    assert "names no interpreter" in await could_not(runner, file(tmp_path, "bare", "exit 0\n"))
    odd = file(tmp_path, "odd", "#!/no/such/interpreter\n")
    assert "the interpreter that its first line names is not" in await could_not(runner, odd)


async def test_a_wrong_folder_argument_or_variable_could_not_start(runner, tmp_path):
    assert "does not exist" in await could_not(runner, "true", cwd=str(tmp_path / "gone"))
    assert "is not a folder" in await could_not(runner, "true", cwd=file(tmp_path, "f", ""))
    assert "null byte" in await could_not(runner, "true", "a\0b")
    assert "too long" in await could_not(runner, "true", "x" * 5_000_000)


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "missing.py"),
        ("python3.11", "-u", "-X", "dev", "missing.py", "x"),
        (sys.executable, "-I", "--", "missing.py"),
        ("bash", "missing.sh"),
        ("sh", "-eu", "-o", "noglob", "./missing.sh"),
        ("bash", "-euo", "pipefail", "missing.sh"),
        ("node", "x.js"),
        ("env", "A=1", "python3", "missing.py"),
        ("/usr/bin/env", "bash", "missing.sh"),
        ("perl", "missing.pl"),
        ("ruby", "-I", "lib", "missing.rb"),
        ("sh", "-c", "python3 missing.py --strict"),
        ("bash", "-c", "X=1 exec python3 './missing.py'"),
        ("sh", "-c", 'python3 "$FOLDER"/missing.py'),
        ("sh", "-c", "python3 ${FOLDER}/missing.py"),
    ],
)
async def test_an_interpreter_whose_script_is_missing_could_not_start(runner, tmp_path, argv):
    order = Order(argv=argv, env={**ENV, "FOLDER": str(tmp_path)}, cwd=str(tmp_path))
    ending = await runner.run(order)
    assert ending.not_started is not None
    assert "there is no such file" in ending.not_started


@pytest.mark.parametrize(
    "argv",
    [
        ("python3", "-c", "pass", "missing.py"),
        ("python3", "-Im", "json.tool", "-h"),
        ("python3", "here.py"),
        ("python3", "-W", "ignore", "here.py"),
        ("bash", "-c", "true", "missing.sh"),
        ("bash", "-euo", "pipefail", "here.sh"),
        ("sh", "-s", "missing"),
        ("bash", "true-on-path"),
        ("sh", "-c", "python3 missing.py || true"),
        ("sh", "-c", "python3 $FOLDER$(echo here.py)"),
        ("sh", "-c", "cd . && python3 here.py"),
        ("sh", "-c", "python3 here.py"),
        ("sh", "-c", "python3 $ARGUMENTS"),
        ("sh", "-c", 'python3 "h"ere.py # not missing.py'),
        ("env", "-i", "true"),
        ("env",),
        ("sh",),
    ],
)
async def test_what_is_no_missing_script_is_run(runner, tmp_path, argv):
    file(tmp_path, "here.py", "")
    file(tmp_path, "here.sh", "")
    file(tmp_path, "true-on-path", "")
    env = {**ENV, "FOLDER": "", "ARGUMENTS": "-c pass"}
    ending = await runner.run(Order(argv=argv, env=env, cwd=str(tmp_path)))
    assert ending.exit_code == 0, ending


# What it does with its pipes.


async def test_a_process_that_never_reads_its_input_is_no_trouble(runner):
    ending = await runner.run(sh("exec 0<&-; echo done", stdin=b"x" * 1_000_000, timeout=20))
    assert (ending.exit_code, ending.stdout.text) == (0, "done\n")
    ending = await runner.run(sh("true", stdin=b"x" * 1_000_000, timeout=20))
    assert ending.exit_code == 0


async def test_a_big_input_arrives_whole(runner):
    ending = await runner.run(sh("wc -c", stdin=b"x" * 10_000_000))
    assert ending.stdout.text.strip() == "10000000"


async def test_both_pipes_full_at_once_do_not_block(runner):
    ending = await runner.run(sh("cat; cat /dev/zero | head -c 300000 >&2", stdin=b"y" * 300_000))
    assert (ending.stdout.total, ending.stderr.total) == (300_000, 300_000)


async def test_a_process_that_closes_its_outputs_early_is_waited_for(runner):
    ending = await runner.run(
        python("import os, sys; os.close(1); os.close(2); sys.stdin.read(); os._exit(7)")
    )
    assert ending.exit_code == 7


async def test_a_gigabyte_of_output_is_drained_in_bounded_memory(runner):
    await runner.run(sh("true"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ending = await runner.run(sh("echo first; head -c 1000000000 /dev/zero; echo last", timeout=100))
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert ending.exit_code == 0
    assert ending.stdout.total == 1_000_000_000 + 11
    assert ending.stdout.head.startswith(b"first\n")
    assert ending.stdout.tail.endswith(b"last\n")
    assert len(ending.stdout.head) + len(ending.stdout.tail) == 1024 * 1024
    assert grown < 16 * 1024, f"{grown} KiB"


@pytest.mark.parametrize("cap", [0, 1, 2, 9, 10, 11])
async def test_head_and_tail_are_kept_to_the_byte(runner, cap):
    output = (await runner.run(sh("printf 0123456789", output_cap=cap))).stdout
    head, tail = cap - cap // 2, cap // 2
    whole = b"0123456789"
    if cap >= 10:
        assert output.whole
        assert output.content == whole
    else:
        assert (output.head, output.tail) == (whole[:head], whole[10 - tail :])
        assert f"{10 - cap} bytes left out".encode() in output.content


async def test_binary_and_half_a_character_are_kept_as_bytes_and_shown_as_text(runner):
    ending = await runner.run(sh(r"printf '\000\377ok\303'"))
    assert ending.stdout.content == b"\x00\xffok\xc3"
    assert ending.stdout.text == "\x00\ufffdok\ufffd"


def test_the_last_lines_are_short_whatever_was_printed():
    output = Output(head=b"x" * 100_000 + b"\n\n a\nb\n", total=100_007)
    assert output.last_lines(2) == " a\nb"
    assert len(output.last_lines()) < 500


# Its limit, cancellation, and what it leaves.


async def test_a_process_past_its_limit_is_ended(runner):
    ending = await runner.run(sh("echo begun; sleep 60", timeout=0.1))
    assert ending.passed_limit
    assert not ending.exited
    assert ending.stdout.text == "begun\n"
    assert ending.in_words(0.1) == "ran past its limit of 0.1 s"
    assert not alive(runner)


async def test_it_may_put_things_in_order_first(runner, tmp_path):
    script = f"trap 'echo tidy > {tmp_path}/done; exit 5' TERM; sleep 60 & wait"
    ending = await runner.run(sh(script, timeout=0.5))
    assert (ending.passed_limit, ending.exit_code) == (True, 5)
    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_its_children_may_put_things_in_order_too_when_it_is_gone_already(runner, tmp_path):
    child = f"trap 'sleep 0.1; echo tidy > {tmp_path}/done; exit' TERM; echo up; sleep 60 & wait"
    ending = await runner.run(sh(f'sh -c "{child}" & sleep 60', timeout=0.5))
    assert ending.passed_limit
    assert (tmp_path / "done").read_text() == "tidy\n"


async def test_a_process_that_ignores_sigterm_is_killed():
    runner = LocalRunner(grace=0.1)
    ending = await runner.run(sh("trap '' TERM; while :; do sleep 1; done", timeout=0.5))
    assert (ending.passed_limit, ending.signal) == (True, signal.SIGKILL)
    assert not alive(runner)
    await runner.close()


async def test_a_stopped_process_is_ended():
    runner = LocalRunner(grace=0.1)
    ending = await runner.run(sh("kill -STOP $$", timeout=0.5))
    assert (ending.passed_limit, ending.signal) == (True, signal.SIGKILL)
    await runner.close()


async def test_what_left_the_group_is_ended_at_the_limit(runner):
    script = "setsid sleep 60 & setsid sh -c 'sleep 60 & sleep 60' & sleep 60 & sleep 60"
    ending = await runner.run(sh(script, timeout=0.2))
    assert ending.passed_limit
    assert not alive(runner)


async def test_what_left_the_group_and_ignores_sigterm_is_ended_too():
    runner = LocalRunner(grace=0.1)
    ending = await runner.run(sh("setsid sh -c \"trap '' TERM; sleep 60; sleep 60\" & sleep 60", timeout=0.2))
    assert ending.passed_limit
    assert not alive(runner)
    await runner.close()


async def test_what_clears_its_environment_when_it_is_asked_to_end_is_ended_too(tmp_path):
    runner = LocalRunner(grace=0.3)
    escapes = f"trap 'exec env -i sleep 60' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.01; done"
    running = asyncio.ensure_future(
        runner.run(sh(f'setsid sh -c "{escapes}" & sleep 60'.replace("$$", "\\$\\$")))
    )
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and pid.read_text())
    running.cancel()
    await asyncio.wait([running])
    assert tagged.start_time(int(pid.read_text())) is None
    await runner.close()


async def test_what_is_killed_has_exited_when_the_run_returns(runner, tmp_path):
    # The memory of a process is freed after its environment is gone and before it counts as exited.
    holder = file(
        tmp_path,
        "holder.py",
        "import os, pathlib, time\n"
        "held = b'x' * (512 << 20)\n"
        "made = pathlib.Path(__file__).with_name('made')\n"
        "made.write_text(str(os.getpid()))\n"
        "made.rename(made.with_name('pid'))\n"
        "time.sleep(60)\n",
    )
    running = asyncio.ensure_future(runner.run(sh(f"setsid {sys.executable} {holder} & sleep 60")))
    pid = tmp_path / "pid"
    await until(pid.exists)
    running.cancel()
    await asyncio.wait([running])
    assert tagged.start_time(int(pid.read_text())) is None


async def test_a_child_that_holds_the_output_does_not_hold_us(runner):
    ending = await runner.run(sh("echo answer; sleep 60 &", timeout=30))
    assert (ending.exit_code, ending.stdout.text, ending.passed_limit) == (0, "answer\n", False)
    assert not alive(runner)


async def test_a_child_that_prints_for_ever_does_not_hold_us(runner):
    ending = await runner.run(sh("setsid yes & echo answer", timeout=30))
    assert ending.exit_code == 0
    assert not alive(runner)


async def test_the_last_words_of_a_child_are_waited_for(runner, monkeypatch):
    # On a busy machine the child may not have its turn in a tenth of a second.
    monkeypatch.setattr(process, "LINGER", 30.0)
    ending = await runner.run(sh("(sleep 0.02; echo late) & echo early"))
    assert ending.stdout.text == "early\nlate\n"


async def test_what_it_left_in_its_group_is_ended_when_it_exits(runner):
    ending = await runner.run(sh("sleep 60 >/dev/null 2>&1 &"))
    assert ending.exit_code == 0
    await until(lambda: not alive(runner))


async def test_what_it_left_outside_its_group_is_ended_soon_after(runner):
    ending = await runner.run(sh("setsid sleep 60 >/dev/null 2>&1 &"))
    assert ending.exit_code == 0
    await until(lambda: not alive(runner))


async def test_background_keep_leaves_it_alive_until_the_runner_is_closed(tmp_path):
    runner = LocalRunner()
    beat = f"while :; do echo beat; echo beat >> {tmp_path}/beats; sleep 0.02; done"
    ending = await runner.run(sh(f"({beat}) & echo left", background_keep=True))
    assert ending.exit_code == 0
    assert ending.stdout.text.startswith("left\n") or "left\n" in ending.stdout.text
    await runner.run(sh("true"))
    beats = tmp_path / "beats"
    size = beats.stat().st_size if beats.exists() else 0
    await until(lambda: beats.exists() and beats.stat().st_size > size + 50)
    assert alive(runner)
    await runner.close()
    assert not alive(runner)


async def test_a_cancelled_run_has_ended_its_processes_when_it_returns(runner):
    script = "setsid sleep 60 & sleep 60 & sleep 60"
    task = asyncio.create_task(runner.run(sh(script)))
    await until(lambda: len(alive(runner)) >= 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not alive(runner)


async def test_a_second_cancel_is_not_held_up_and_the_process_ends_all_the_same(tmp_path):
    runner = LocalRunner(grace=0.3)
    script = f"trap '' TERM; echo > {tmp_path}/up; while :; do sleep 1; done"
    task = asyncio.create_task(runner.run(sh(script)))
    await until((tmp_path / "up").exists)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(runner)
    await until(lambda: not alive(runner))
    await runner.close()


async def test_a_run_that_is_closed_in_the_middle_leaves_nothing(runner):
    run = runner.run(sh("sleep 60 & sleep 60"))
    run.send(None)
    await until(lambda: len(alive(runner)) >= 2)
    run.close()
    assert not alive(runner)


def test_a_loop_that_is_ended_in_the_middle_leaves_nothing():
    runner = LocalRunner()

    async def main() -> None:
        asyncio.create_task(runner.run(sh("setsid sleep 60 & sleep 60")))  # noqa: RUF006
        await until(lambda: len(alive(runner)) >= 2)

    async def close() -> None:
        await runner.close()

    asyncio.run(main())
    assert not alive(runner)
    asyncio.run(close())


async def test_closing_ends_what_runs_and_refuses_what_comes():
    runner = LocalRunner()
    runs = [asyncio.create_task(runner.run(sh("setsid sleep 60 & sleep 60"))) for _ in range(3)]
    await until(lambda: len(alive(runner)) >= 6)
    await runner.close()
    assert not alive(runner)
    assert [ending.exited for ending in await asyncio.gather(*runs)] == [False] * 3
    with pytest.raises(UsageError, match="closed"):
        await runner.run(sh("true"))
    await runner.close()


async def test_a_watcher_that_died_is_replaced(runner):
    await runner.run(sh("true"))
    watcher = runner._watcher
    os.kill(watcher._child.pid, signal.SIGKILL)
    await until(lambda: not watcher.alive)
    await runner.run(sh("true"))
    assert runner._watcher is not watcher


# Many of them.


async def test_the_queue_is_no_part_of_a_limit():
    runner = LocalRunner(cap=1)
    endings = await asyncio.gather(*(runner.run(sh("sleep 0.1", timeout=1)) for _ in range(12)))
    assert [ending.exit_code for ending in endings] == [0] * 12
    await runner.close()


async def test_no_more_than_the_cap_run_at_once(tmp_path):
    runner = LocalRunner(cap=3)
    most = 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, len(alive(runner)))
            await asyncio.sleep(0.002)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(runner.run(Order(argv=("sleep", "0.2"), env=ENV)) for _ in range(6)))
    looking.cancel()
    assert most == 3
    await runner.close()


async def test_a_cancelled_wait_in_the_queue_gives_its_place_back():
    runner = LocalRunner(cap=1)
    first = asyncio.create_task(runner.run(sh("sleep 0.2")))
    waiting = asyncio.create_task(runner.run(sh("true")))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    waiting.cancel()
    assert (await first).exit_code == 0
    assert (await runner.run(sh("true"))).exit_code == 0
    await runner.close()


NASTY = (
    "echo up; sleep 60",
    "sleep 60 & echo up; sleep 60",
    "setsid sleep 60 & echo up; sleep 60",
    "setsid sh -c 'sleep 60 & echo up; sleep 60' & wait",
    "(setsid sleep 60 &) ; echo up; sleep 60",
)


async def leave_none(count: int) -> None:
    runner = LocalRunner(cap=32)
    orders = [sh(NASTY[index % len(NASTY)], timeout=0.1) for index in range(count)]
    endings = await asyncio.gather(*map(runner.run, orders))
    assert all(ending.passed_limit for ending in endings)
    assert sum(ending.stdout.text == "up\n" for ending in endings) > count / 10
    assert not alive(runner)
    assert not [name for name in os.listdir("/proc/self/fd") if is_pipe(name)][20:]
    await runner.close()
    assert not alive(runner)


def is_pipe(fd: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
    except OSError:
        return False


async def test_a_hundred_hooks_past_their_limit_leave_none():
    await leave_none(100)


async def test_a_thousand_hooks_past_their_limit_leave_none():
    await leave_none(1000)


async def test_running_leaves_no_file_open_and_no_zombie(runner):
    await runner.run(sh("true"))
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        await runner.run(sh("cat", stdin=b"x"))
    assert len(os.listdir("/proc/self/fd")) == before
    children = subprocess.run(
        ["ps", "-o", "stat=", "--ppid", str(os.getpid())], capture_output=True, text=True, check=False
    )
    assert "Z" not in children.stdout


HOST = """
import asyncio, os, sys
from hookline.runners import Order
from hookline.runners.local import LocalRunner

async def main():
    runner = LocalRunner()
    print(runner.mark, flush=True)
    order = Order(argv=("sh", "-c", "setsid sleep 60 & sleep 60 & trap '' TERM; sleep 60"), env=dict(os.environ))
    await asyncio.gather(*(runner.run(order) for _ in range(4)))

asyncio.run(main())
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_nothing_is_left_when_hookline_itself_is_killed(tmp_path, number):
    host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    mark = host.stdout.readline().strip().encode()
    await until(lambda: len(tagged.carriers(mark)) >= 12)
    host.send_signal(number)
    host.wait()
    host.stdout.close()
    await until(lambda: not tagged.carriers(mark))
    await until(lambda: not watchers(mark))


async def test_nothing_is_left_when_hookline_is_killed_as_it_starts():
    for _ in range(5):
        host = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
        assert host.stdout is not None
        mark = host.stdout.readline().strip().encode()
        host.kill()
        host.wait()
        host.stdout.close()
        await until(lambda mark=mark: not watchers(mark) and not tagged.carriers(mark))


FORKING_HOST = HOST.replace(
    "    await asyncio.gather(",
    "    asyncio.get_running_loop().call_later(0.1, fork)\n    await asyncio.gather(",
)
FORKING_HOST = FORKING_HOST.replace(
    "async def main",
    "def fork():\n    if os.fork() == 0:\n        import time\n        time.sleep(4)\n        os._exit(0)\n\nasync def main",
)


async def test_a_fork_of_hookline_that_lives_on_does_not_keep_the_watcher_waiting():
    host = subprocess.Popen([sys.executable, "-c", FORKING_HOST], stdout=subprocess.PIPE, text=True)
    assert host.stdout is not None
    mark = host.stdout.readline().strip().encode()
    await until(lambda: len(tagged.carriers(mark)) >= 12 and len(children(host.pid)) >= 6)
    host.kill()
    host.wait()
    host.stdout.close()
    await until(lambda: not tagged.carriers(mark), seconds=3)


async def test_a_hookline_that_is_a_hook_itself_is_ended_with_all_it_started(runner):
    ending = await runner.run(python(HOST, timeout=1.5))
    assert ending.passed_limit
    mark = ending.stdout.text.strip().encode()
    assert mark
    assert not tagged.carriers(mark)
    assert not alive(runner)
    await until(lambda: not watchers(mark))


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def watchers(mark: bytes) -> list[str]:
    found: list[str] = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and mark in Path(f"/proc/{name}/cmdline").read_bytes():
                found.append(name)
        except OSError:
            continue
    return found


def test_an_ending_says_what_happened():
    assert Ending(signal=99).in_words() == "was killed by signal 99"
    assert Ending(passed_limit=True).in_words() == "ran past its limit"


async def test_what_a_process_prints_is_passed_on_as_it_comes_and_still_kept():
    parts: list[tuple[bytes, bool]] = []
    runner = LocalRunner(on_output=lambda part, is_stdout: parts.append((part, is_stdout)))
    try:
        ending = await runner.run(sh("echo one; read -r _; echo two >&2", stdin=b"go\n"))
    finally:
        await runner.close()
    assert sorted(parts) == [(b"one\n", True), (b"two\n", False)]
    assert (ending.stdout.text, ending.stderr.text) == ("one\n", "two\n")
