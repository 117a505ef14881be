"""One suite for all runners: an order means the same in a plain process, in the sandbox and in a container."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hookline.errors import UsageError
from hookline.runners import Mount, Order, tags
from tests.runners.places import IMAGE, Place, until

pytestmark = pytest.mark.timeout(300)


async def test_input_outputs_and_exit_code_come_through(place):
    ending = await place.runner.run(place.sh("cat; echo no >&2; exit 3", stdin=b'{"a": 1}'))
    assert (ending.exit_code, ending.exited, ending.passed_limit) == (3, True, False)
    assert (ending.stdout.content, ending.stderr.content) == (b'{"a": 1}', b"no\n")


async def test_errors_can_go_into_the_same_output(place):
    ending = await place.runner.run(place.sh("echo 1; echo 2 >&2", merge_stderr=True))
    assert (sorted(ending.stdout.text.split()), ending.stderr.total) == (["1", "2"], 0)


VALUES = {
    "PLAIN": "x",
    "EMPTY": "",
    "SPACES": "  a b\t",
    "QUOTES": "\"a\" 'b' \\n $HOME `id` #c",
    "EQUALS": "=a=b",
    "LINES": "one\ntwo\n\n",
    "LONG": "y" * 100_000,
    "WIDE": "žluťoučký",
}


async def test_every_value_of_a_variable_arrives_as_it_is(place):
    for name, value in VALUES.items():
        ending = await place.runner.run(place.sh(f'printf %s "${name}"', env=VALUES))
        assert ending.stdout.content == value.encode(), name


async def test_nothing_of_our_own_environment_is_handed_on(place, monkeypatch):
    monkeypatch.setenv("HOOKLINE_TEST_TOKEN", "a-secret")
    ending = await place.runner.run(place.sh("env"))
    assert ending.exit_code == 0
    assert "a-secret" not in ending.stdout.text


async def test_only_a_plain_process_sees_its_tag(place):
    ending = await place.runner.run(place.sh("env", env={"HOOKLINE_TAG": ":outer.1:"}))
    assert ("HOOKLINE_TAG=" in ending.stdout.text) == (place.kind == "local")


async def test_arguments_are_passed_as_they_are_without_a_shell(place):
    ending = await place.runner.run(place.order("printf", "%s|", "a b", "$HOME", "*", "", "--bind"))
    assert ending.stdout.text == "a b|$HOME|*||--bind|"


async def test_it_runs_in_the_folder_it_is_told_and_a_variable_names_it(place):
    (place.workspace / "inner").mkdir()
    ending = await place.runner.run(place.sh("pwd; echo $WORKSPACE", cwd="/workspace/inner"))
    seen = str(place.workspace) if place.kind == "local" else "/workspace"
    assert ending.stdout.text.split() == [f"{seen}/inner", seen]


async def test_what_it_writes_into_its_workspace_is_there_for_the_next_one_and_for_us(place):
    await place.runner.run(place.sh('mkdir -p "$WORKSPACE/context"; echo found > "$WORKSPACE/context/a"'))
    ending = await place.runner.run(
        place.sh('cat "$WORKSPACE/context/a"; echo more >> "$WORKSPACE/context/a"')
    )
    assert ending.stdout.text == "found\n"
    assert (place.workspace / "context" / "a").read_text() == "found\nmore\n"
    assert (place.workspace / "context" / "a").stat().st_uid == os.geteuid()
    (place.workspace / "context" / "a").unlink()


@pytest.mark.parametrize("code", [0, 1, 2, 125, 126, 127, 137, 255])
async def test_every_exit_code_of_its_own_is_its_own(place, code):
    ending = await place.runner.run(place.sh(f"exit {code}"))
    assert (ending.exit_code, ending.not_started) == (code, None)


async def test_a_command_that_is_not_there_could_not_start(place):
    for order in (
        place.order("no-such-program"),
        place.order("/workspace/no-such-hook"),
        place.order("true", "a\0b"),
        place.order("true", env={"A": "b\0c"}),
    ):
        ending = await place.runner.run(order)
        assert ending.not_started, order.argv
        assert not ending.exited
        assert ending.in_words().startswith("could not start: ")


async def test_a_mount_that_is_not_there_could_not_start(place, tmp_path):
    order = place.order("true", mounts=(Mount(target="/hooks", source=str(tmp_path / "none")),), cwd="/hooks")
    ending = await place.runner.run(order)
    assert ending.not_started is not None
    assert "/none" in ending.not_started


async def test_a_big_input_arrives_whole_and_one_that_is_not_read_is_no_trouble(place):
    ending = await place.runner.run(place.sh("wc -c", stdin=b"x" * 3_000_000))
    assert ending.stdout.text.strip() == "3000000"
    # Podman's client may leave with the output of a program that has not read an input larger than its socket takes.
    unread = 60_000 if place.kind == "container" else 3_000_000
    ending = await place.runner.run(place.sh("echo done", stdin=b"x" * unread, timeout=120))
    assert (ending.exit_code, ending.stdout.text) == (0, "done\n")


async def test_head_and_tail_of_a_big_output_are_kept(place):
    script = "echo first; head -c 20000000 /dev/zero; echo last"
    ending = await place.runner.run(place.sh(script, output_cap=1000))
    assert ending.exit_code == 0
    assert ending.stdout.total == 20_000_000 + 11
    assert ending.stdout.head.startswith(b"first\n")
    assert ending.stdout.tail.endswith(b"last\n")
    assert len(ending.stdout.head) + len(ending.stdout.tail) == 1000


async def test_past_its_limit_it_is_ended_with_all_it_started(place):
    script = f"setsid {place.sleep()} & {place.sleep()} & trap '' TERM; echo up; {place.sleep()}"
    ending = await place.runner.run(place.sh(script, timeout=2))
    assert (ending.passed_limit, ending.exited, ending.stdout.text) == (True, False, "up\n")
    assert place.alive() == []


async def test_it_may_put_things_in_order_first(place):
    script = f"trap 'echo tidy > $WORKSPACE/done; exit 5' TERM; {place.sleep()} & wait"
    ending = await place.runner.run(place.sh(script, timeout=2))
    assert (ending.passed_limit, ending.exit_code) == (True, 5)
    assert (place.workspace / "done").read_text() == "tidy\n"


async def test_what_it_leaves_behind_is_ended(place):
    script = f"setsid {place.sleep()} >/dev/null 2>&1 & {place.sleep()} & echo left"
    ending = await place.runner.run(place.sh(script, timeout=60))
    assert (ending.exit_code, ending.passed_limit) == (0, False)
    assert ending.stdout.text == "left\n"
    await until(lambda: not place.alive())


async def test_a_child_that_wiped_its_environment_and_left_the_session_is_ended(place):
    if place.kind == "local":
        return  # held by the others alone, which the capabilities and the docs say
    script = f"env -i /bin/setsid {place.sleep()} >/dev/null 2>&1 & echo left"
    if place.kind == "sandbox":
        script = script.replace("/bin/setsid", "setsid")
    ending = await place.runner.run(place.sh(script, timeout=60))
    assert ending.stdout.text == "left\n"
    await until(lambda: not place.alive())


async def test_a_cancelled_run_has_ended_its_processes_when_it_returns(place):
    task = asyncio.create_task(place.runner.run(place.sh(f"setsid {place.sleep()} & {place.sleep()}")))
    await place.up(2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert place.alive() == []


async def test_nothing_stubborn_is_alive_when_its_run_has_returned(place):
    """Hundreds take the system a moment to end; a run that does not wait for it is seen in every second round."""
    many = 400 if place.kind == "sandbox" else 20
    for _ in range(6 if place.kind == "sandbox" else 1):
        before = len(place.alive())
        stubborn = f"for each in $(seq {many}); do (trap '' TERM; exec {place.sleep()}) & done"
        task = asyncio.create_task(place.runner.run(place.sh(f"{stubborn}; trap 'exit 0' TERM; wait")))
        await place.up(before + many)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert place.alive() == []


async def test_closing_ends_what_runs_and_refuses_what_comes(place):
    # The second would say that all is well; it was not asked for that, and never came to its answer.
    scripts = [place.sleep(), f"trap 'exit 0' TERM; {place.sleep()} & wait"]
    runs = [asyncio.create_task(place.runner.run(place.sh(script))) for script in scripts]
    await place.up(2)
    await place.runner.close()
    assert place.alive() == []
    assert not any(ending.exited for ending in await asyncio.gather(*runs))
    with pytest.raises(UsageError, match="closed"):
        await place.runner.run(place.sh("true"))


async def test_many_at_once_each_have_their_own_answer(place):
    count = 4 if place.kind == "container" else 24
    endings = await asyncio.gather(*(place.runner.run(place.sh(f"echo {each}")) for each in range(count)))
    assert [ending.stdout.text.strip() for ending in endings] == [f"{each}" for each in range(count)]


HOST = """
import asyncio, sys
from dataclasses import replace
from pathlib import Path
from tests.runners.places import RUNNERS, Place

async def main(kind, folder, seconds):
    place = Place(kind, RUNNERS[kind](), Path(folder))
    script = f"setsid sleep {seconds} & trap '' TERM; sleep {seconds}"
    await asyncio.gather(*(place.runner.run(place.sh(script)) for _ in range(2)))

asyncio.run(main(*sys.argv[1:]))
"""


async def test_nothing_is_left_when_hookline_itself_is_killed(place):
    seconds = place.sleep().split()[1]
    argv = [sys.executable, "-c", HOST, place.kind, str(place.workspace), seconds]
    with subprocess.Popen(argv, cwd=os.getcwd()) as host:
        try:
            await place.up(4)
            watchers = [pid for pid in children(host.pid) if is_watcher(pid)]
        finally:
            host.kill()
    assert watchers
    await until(lambda: not place.alive())
    await until(lambda: not any(map(is_watcher, watchers)))


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def is_watcher(pid: str) -> bool:
    try:
        return os.fsencode(tags.__file__) in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False


# What each place is for.


async def test_a_place_says_what_it_isolates_and_what_it_does_not_do(place, tmp_path):
    order = Order(
        argv=("true",),
        image="registry.example/guard:1",
        mounts=(Mount(target="/workspace", source=str(tmp_path), variable="WORKSPACE"), Mount(target="/tmp")),
    )
    told = "\n".join(place.runner.capabilities.shortfalls(order))
    expected = {
        "local": (
            "isolates nothing",
            "does not pull image",
            "$WORKSPACE names its place",
            "no /tmp of its own",
        ),
        "sandbox": ("does not pull image 'registry.example/guard:1'; it runs this machine's programs",),
        "container": (),
    }[place.kind]
    assert all(part in told for part in expected)
    assert bool(told) == bool(expected)
    assert place.runner.capabilities.isolates == (place.kind != "local")


def isolated(place: Place) -> bool:
    return place.runner.capabilities.isolates


async def test_a_read_only_mount_can_be_read_and_run_but_not_changed(place, tmp_path):
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "check.sh").write_text("#!/bin/sh\necho checked\n")
    (hooks / "check.sh").chmod(0o755)
    mount = Mount(target="/hooks", source=str(hooks), read_only=True, variable="HOOKS")
    ending = await place.runner.run(place.sh("$HOOKS/check.sh; touch $HOOKS/more", mounts=(mount,)))
    assert ending.stdout.text == "checked\n"
    assert (hooks / "more").exists() == (not isolated(place))


async def test_it_has_a_tmp_of_its_own_that_holds_only_so_much(place, tmp_path):
    if not isolated(place):
        return
    small = Mount(target="/tmp", size=1024 * 1024)
    script = "ls -A /tmp; head -c 5000000 /dev/zero > /tmp/big && echo filled; ls /tmp"
    ending = await place.runner.run(place.sh(script, mounts=(small,)))
    assert ending.stdout.text == "big\n"
    assert (await place.runner.run(place.sh("ls -A /tmp"))).stdout.text == ""
    assert not os.path.exists("/tmp/big")


@pytest.mark.parametrize("words", [(), ("env",)], ids=["shell", "program"])
async def test_no_file_that_it_writes_holds_more_than_it_may(place, words):
    script = "(while echo 0123456789; do :; done) > $WORKSPACE/file; echo ended $0 $1"
    order = place.sh(script, file_size=65536, timeout=120)
    ending = await place.runner.run(replace(order, argv=(*words, *order.argv, "name", "more")))
    assert (ending.passed_limit, ending.stdout.text) == (False, "ended name more\n"), "nothing else ends it"
    assert (place.workspace / "file").stat().st_size >= 65536


async def test_a_program_that_is_only_called_sh_keeps_to_the_limit_too(place):
    if isolated(place):
        return
    own = place.workspace / "sh"
    own.write_text("#!/bin/sh\nhead -c 300000 /dev/zero > $WORKSPACE/file\n")
    own.chmod(0o755)
    order = place.sh("true", file_size=65536)
    path = f"{place.workspace}:{order.env['PATH']}"
    await place.runner.run(replace(order, env={**order.env, "PATH": path}))
    assert (place.workspace / "file").stat().st_size == 65536


@pytest.mark.parametrize("script", ["", "# nothing", "\n\nfalse; exit 3", "exit 3", "if"])
async def test_a_limit_on_files_changes_nothing_else_of_a_script(place, script):
    free, held = [await place.runner.run(place.sh(script, file_size=size)) for size in (None, 1024 * 1024)]
    assert (held.exit_code, held.stdout.text, held.stderr.text) == (
        free.exit_code,
        free.stdout.text,
        free.stderr.text,
    )


async def test_it_cannot_write_outside_its_mounts(place):
    if not isolated(place):
        return
    # A container's /dev is of its own, in memory.
    own = "" if place.kind == "container" else "/dev"
    script = f"for each in / /usr /bin /etc /proc {own}; do touch $each/x-hookline 2>/dev/null && echo $each; done; true"
    ending = await place.runner.run(place.sh(script))
    assert (ending.exit_code, ending.stdout.text) == (0, "")


async def test_the_program_of_an_image_is_run_only_where_there_is_an_image(place):
    order = Order(argv=("and", "more"), own_program=True, image=IMAGE, env={"PATH": "/bin"})
    ending = await place.runner.run(order)
    if place.kind == "container":
        assert ending.stdout.text == "the image says and more\n"
    else:
        assert "its own program is not known; name a command" in (ending.not_started or "")


async def test_background_keep_lasts_until_the_runner_is_closed(place):
    if not place.runner.capabilities.keeps_background:
        assert place.runner.capabilities.shortfalls(place.sh("true", background_keep=True))
        return
    ending = await place.runner.run(place.sh(f"{place.sleep()} & echo left", background_keep=True))
    assert ending.stdout.text == "left\n"
    await place.up()  # the shell may be gone before its child has become `sleep`
    await place.runner.run(place.sh("true"))
    await asyncio.sleep(1)  # longer than a runner waits before it ends what hooks have left
    assert place.alive()
    await place.runner.close()
    assert place.alive() == []


@pytest.mark.parametrize(
    ("target", "source"), [("workspace", "/a"), ("/", "/a"), ("/a/../b", "/a"), ("/a", "b")]
)
def test_a_mount_that_names_no_place_is_refused(target, source):
    with pytest.raises(UsageError, match="whole path"):
        Mount(target=target, source=source)
