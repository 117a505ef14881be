"""Ways out of the sandbox, each tried for real, and each shown to be one where there is no sandbox."""

import asyncio
import os
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hookline.errors import UsageError
from hookline.journal import default_path
from hookline.runners import Mount, Order
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner, arguments, python_mounts
from hookline.runners.sandbox import bubblewrap as found

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("bubblewrap")]

ROOT = os.geteuid() == 0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@pytest.fixture
async def runners():
    both = {"local": LocalRunner(), "sandbox": SandboxRunner()}
    yield both
    for each in both.values():
        await each.close()


async def tried(runner, workspace: Path, *argv: str, **more):
    mounts = (Mount(target="/workspace", source=str(workspace)), *python_mounts())
    return await runner.run(Order(argv=argv, env={"PATH": PATH}, mounts=mounts, timeout=120, **more))


# What is not to be seen.


@pytest.fixture
def secrets(tmp_path, monkeypatch):
    """Another run's workspace, a journal and a home, each with something in it."""
    monkeypatch.setenv("HOOKLINE_HOME", str(tmp_path / "state"))
    places = {
        "another run's workspace": tmp_path / "runs" / "other" / "workspace" / "secret",
        "the journal": default_path(os.environ),
        "the user's home": tmp_path / "home" / ".ssh" / "id",
    }
    for place in places.values():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("a secret")
    return places


@pytest.mark.parametrize("what", ["another run's workspace", "the journal", "the user's home"])
async def test_a_file_that_is_not_mounted_cannot_be_read(runners, secrets, tmp_path, what):
    workspace = tmp_path / "runs" / "mine"
    workspace.mkdir(parents=True, exist_ok=True)
    (workspace / "link").symlink_to(secrets[what])
    up = "/workspace/" + "../" * 12 + str(secrets[what]).lstrip("/")
    for path in (str(secrets[what]), "/workspace/link", up, f"/proc/1/root{secrets[what]}"):
        ending = await tried(runners["sandbox"], workspace, "cat", path)
        assert (ending.exit_code, ending.stdout.text) == (1, ""), path
    assert (await tried(runners["local"], workspace, "cat", str(secrets[what]))).stdout.text == "a secret"


async def test_places_of_the_machine_that_hold_secrets_are_not_there(runners, tmp_path):
    listed = (
        "/etc/shadow",
        "/var",
        "/run",
        "/sys",
        "/boot",
        "/srv",
        "/mnt",
        "/etc/ssh",
        "/etc/sudoers",
        "/etc/ssl/private",
    )
    seen = [mount.target for mount in python_mounts()]
    home = [
        f"{path}" for path in Path.home().iterdir() if not any(each.startswith(f"{path}") for each in seen)
    ]
    here = [place for place in (*listed, *home) if os.path.lexists(place)]
    script = 'for each; do [ -e "$each" ] && echo "$each"; done; true'
    ending = await tried(runners["sandbox"], tmp_path, "sh", "-c", script, "sh", *here)
    assert (ending.exit_code, ending.stdout.text) == (0, "")
    told = (await tried(runners["local"], tmp_path, "sh", "-c", script, "sh", *here)).stdout.text
    assert "/var\n" in told


async def test_no_open_file_of_ours_is_handed_in(runners, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        ending = await tried(runners["sandbox"], tmp_path, "sh", "-c", "ls -l /proc/$$/fd")
    opened = [line.split()[-3] for line in ending.stdout.text.splitlines()[1:]]
    assert [fd for fd in opened if fd not in ("0", "1", "2")] == []


async def test_the_variables_are_in_no_command_line(runners, tmp_path):
    order = Order(
        argv=("sh", "-c", "cat /proc/1/cmdline; cat /proc/1/environ"), env={"PATH": PATH, "TOKEN": "a-secret"}
    )
    ending = await runners["sandbox"].run(order)
    assert ending.exit_code == 0
    assert "bwrap" in ending.stdout.text
    assert "a-secret" not in ending.stdout.text


async def test_what_its_variables_say_is_not_for_bubblewrap_itself(runners, tmp_path):
    """A library that is loaded into bubblewrap would run outside."""
    outside = tmp_path / "outside"
    order = Order(
        argv=("true",),
        env={
            "PATH": PATH,
            "LD_PRELOAD": "/workspace/evil.so",
            "LD_DEBUG": "all",
            "LD_DEBUG_OUTPUT": str(outside),
        },
    )
    await runners["sandbox"].run(order)
    assert not list(tmp_path.glob("outside*"))
    await runners["local"].run(order)
    assert list(tmp_path.glob("outside*"))


# What is not to be changed. Each exits with 0 where it got through, and with 9 where it was refused.

TRY = """
import ctypes, os, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
victim = int(sys.argv[1])

def call(name, *args):
    if getattr(libc, name)(*args) != 0:
        raise OSError(ctypes.get_errno(), name)

try:
    {attempt}
except OSError as exc:
    print(exc)
    sys.exit(9)
"""

NEEDS_ROOT = {
    "write /proc/sys": """
    with open("/proc/sys/kernel/panic") as file: now = file.read()
    with open("/proc/sys/kernel/panic", "w") as file: file.write(now)
    """,
    "mount": """
    os.makedirs("/tmp/hookline-mount", exist_ok=True)
    call("mount", b"none", b"/tmp/hookline-mount", b"tmpfs", 0, None)
    call("umount2", b"/tmp/hookline-mount", 0)
    os.rmdir("/tmp/hookline-mount")
    """,
    "make /usr writable again": """
    call("mount", b"none", b"/usr", None, 32 | 4096, None) if os.statvfs("/usr").f_flag & os.ST_RDONLY else None
    """,
    "make a device": """
    os.mknod("/tmp/hookline-device", 0o600 | 0o020000, os.makedev(1, 3))
    os.unlink("/tmp/hookline-device")
    """,
    "change the root": """
    os.chroot("/usr")
    """,
    "join the namespace of another": """
    call("setns", os.open(f"/proc/{victim}/ns/mnt", os.O_RDONLY), 0)
    """,
    "a raw socket": """
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP).close()
    """,
    "change the name of the machine": """
    call("sethostname", *(lambda name: (name, len(name)))(os.uname().nodename.encode()))
    """,
    "be another user": """
    os.setuid(12345)
    """,
    "go before others": """
    os.setpriority(os.PRIO_PROCESS, 0, -5)
    """,
}
FOR_ANYBODY = {
    "kill a process of the machine": """
    os.kill(victim, 0)
    """,
    "trace a process of the machine": """
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    call("ptrace", 16, victim, None, None)
    os.waitpid(victim, 0x40000000)
    call("ptrace", 17, victim, None, None)
    """,
    "read the environment of a process of the machine": """
    open(f"/proc/{victim}/environ").close()
    """,
    "write what is not mounted": """
    open("/usr/lib/hookline-x", "w").close() if os.geteuid() == 1000 else None
    """,
}


@pytest.fixture
def victim():
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("network", [False, True])
@pytest.mark.parametrize("what", [*NEEDS_ROOT, *FOR_ANYBODY])
async def test_the_machine_cannot_be_changed(runners, tmp_path, victim, what, network):
    assert victim.pid > 50, "so that it cannot be the id of one of the few inside"
    attempt = {**NEEDS_ROOT, **FOR_ANYBODY}[what].strip()
    argv = (sys.executable, "-c", TRY.replace("{attempt}", attempt), f"{victim.pid}")
    ending = await tried(runners["sandbox"], tmp_path, *argv, network=network)
    assert ending.exit_code == 9, (ending.stdout.text, ending.stderr.text)
    if ROOT or what in FOR_ANYBODY:
        ending = await tried(runners["local"], tmp_path, *argv)
        assert ending.exit_code == 0, (ending.stdout.text, ending.stderr.text)
    assert victim.poll() is None


async def test_it_sees_its_own_processes_alone(runners, tmp_path, victim):
    script = "ls /proc | grep -c '^[0-9]'"
    inside = int((await tried(runners["sandbox"], tmp_path, "sh", "-c", script)).stdout.text)
    outside = int((await tried(runners["local"], tmp_path, "sh", "-c", script)).stdout.text)
    assert inside <= 5 < outside


async def test_it_has_no_capability_and_cannot_get_one(runners, tmp_path):
    ending = await tried(runners["sandbox"], tmp_path, "cat", "/proc/self/status")
    lines = dict(line.split(":\t") for line in ending.stdout.text.splitlines() if ":\t" in line)
    assert {int(lines[f"Cap{each}"], 16) for each in ("Inh", "Prm", "Eff", "Bnd", "Amb")} == {0}
    assert lines["NoNewPrivs"] == "1"
    assert lines["Uid"].split() == ["1000"] * 4
    attempt = (
        sys.executable,
        "-c",
        "import ctypes; raise SystemExit(-ctypes.CDLL(None).unshare(0x10000000))",
    )
    assert (await tried(runners["sandbox"], tmp_path, *attempt)).exit_code == 1
    assert (await tried(runners["local"], tmp_path, *attempt)).exit_code == 0


# The network.

CONNECT = "import socket, sys; socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10).close()"
CONNECT_ABSTRACT = "import socket, sys; socket.socket(socket.AF_UNIX).connect('\\0' + sys.argv[1])"


async def test_without_network_a_server_on_loopback_is_not_reached_and_with_it_is(runners, tmp_path):
    greeted = asyncio.Semaphore(0)

    async def greet(_, writer):
        writer.close()
        greeted.release()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        argv = (sys.executable, "-c", CONNECT, f"{port}")
        assert (await tried(runners["sandbox"], tmp_path, *argv)).exit_code == 1
        assert (await tried(runners["sandbox"], tmp_path, *argv, network=True)).exit_code == 0
        assert (await tried(runners["local"], tmp_path, *argv)).exit_code == 0
        # A connection that nobody has taken up yet would be left open.
        await greeted.acquire()
        await greeted.acquire()


async def test_without_network_a_socket_without_a_file_is_not_reached_either(runners, tmp_path):
    name = f"hookline-{os.urandom(6).hex()}"
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(f"\0{name}")
        server.listen(5)
        argv = (sys.executable, "-c", CONNECT_ABSTRACT, name)
        assert (await tried(runners["sandbox"], tmp_path, *argv)).exit_code == 1
        assert (await tried(runners["local"], tmp_path, *argv)).exit_code == 0


# What cannot be asked for, and a sandbox that cannot be made.


@pytest.mark.parametrize("target", ["/proc", "/proc/sys", "/dev", "/dev/sda", "/usr"])
async def test_its_own_places_are_not_for_mounts(runners, target, tmp_path):
    order = Order(argv=("true",), env={"PATH": PATH}, mounts=(Mount(target=target, source=str(tmp_path)),))
    assert "the sandbox has its own" in ((await runners["sandbox"].run(order)).not_started or "")


async def test_no_word_of_an_order_is_taken_for_one_to_bubblewrap(runners, tmp_path):
    order = Order(argv=("--bind", "/", "/"), env={"PATH": PATH})
    assert "'--bind' was not found in the sandbox" in (
        (await runners["sandbox"].run(order)).not_started or ""
    )
    order = Order(argv=("true",), env={"PATH": PATH, "A": "b\0--bind\0/\0/mnt"})
    assert "null byte" in ((await runners["sandbox"].run(order)).not_started or "")


async def test_a_script_that_is_missing_inside_could_not_start(runners, tmp_path):
    (tmp_path / "here.sh").write_text("echo here\n")
    mounts = (Mount(target="/workspace", source=str(tmp_path)),)
    for script, starts in (
        ("/workspace/here.sh", True),
        ("/workspace/gone.sh", False),
        (f"{tmp_path}/here.sh", False),
    ):
        ending = await runners["sandbox"].run(Order(argv=("sh", script), env={"PATH": PATH}, mounts=mounts))
        assert (ending.not_started is None) == starts, ending


def test_without_bubblewrap_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="apt-get install bubblewrap"):
        SandboxRunner()


def test_a_bubblewrap_that_is_too_old_is_told(monkeypatch, tmp_path):
    old = tmp_path / "bwrap"
    old.write_text("#!/bin/sh\necho bubblewrap 0.6.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{PATH}")
    with pytest.raises(UsageError, match=r"0\.8 or newer"):
        found()


def test_network_settings_are_seen_only_with_a_network():
    without = arguments(Order(argv=("true",)), {})
    assert "--unshare-net" in without
    assert "/etc/resolv.conf" not in without
    assert "/etc/resolv.conf" in arguments(Order(argv=("true",), network=True), {})
