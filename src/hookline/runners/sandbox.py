"""Processes in a sandbox: bubblewrap around a process of the LocalRunner.

A sandbox has the programs of this machine, read-only, the mounts of the order, a /proc, /dev and /tmp of its own, and
nothing else; no capability, no way to get one, and no network unless the order asks for it. The user inside is the one
that runs hookline under another number, so what it writes into a mount is ours. When the first process of a sandbox is
gone, the system ends all the others.

Neither memory nor the number of processes is limited.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from hookline.errors import UsageError
from hookline.files import open_content
from hookline.runners import (
    Capabilities,
    Ending,
    Mount,
    Order,
    beneath,
    inside_variables,
    missing_source,
    own_mounts,
    source_of,
)
from hookline.runners.child import (
    Child,
    ExitStatus,
    PopenChild,
    StandardFiles,
    encoded,
    is_readable,
    unrunnable,
)
from hookline.runners.local import LocalRunner
from hookline.runners.process import LAST_WAIT
from hookline.runners.tags import VARIABLE, send_if

_USER = "1000"
_OLDEST = (0, 8)
_INSTALL = "install it (apt-get install bubblewrap, dnf install bubblewrap, apk add bubblewrap)"

_ALONE = (
    *("--unshare-user", "--uid", _USER, "--gid", _USER, "--disable-userns"),
    *("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--hostname", "sandbox", "--unshare-cgroup-try"),
    *("--cap-drop", "ALL", "--clearenv"),
)
# bubblewrap makes /proc/sys read-only only where its folder could be written. For the machine's root user the files in
# it can be, without any capability; so all of /proc is made read-only.
_OWN = (
    *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--remount-ro", "/dev"),
    *("--perms", "1777", "--size", f"{64 * 1024 * 1024}", "--tmpfs", "/dev/shm"),
)
_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    *("alternatives", "crypto-policies", "ld.so.cache", "localtime"),
    *("nsswitch.conf", "protocols", "services"),
    *("pki/ca-trust/extracted", "pki/tls/cert.pem", "pki/tls/certs", "pki/tls/openssl.cnf"),
    *("ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf"),
)
_NETWORK_SETTINGS = ("gai.conf", "host.conf", "hosts", "resolv.conf")
_MADE = {
    "/etc/passwd": f"root:x:0:0:root:/:/bin/sh\nhook:x:{_USER}:{_USER}:hook:/tmp:/bin/sh\n",
    "/etc/group": f"root:x:0:\nhook:x:{_USER}:\n",
}
_MADE_ALONE = {"/etc/hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n"}
_RESERVED = ("/proc", "/dev", *_PROGRAMS)

_WHY = {
    errno.ENOENT: "was not found in the sandbox; is it installed, or is its folder mounted?",
    errno.EACCES: "is not executable in the sandbox; chmod +x it, or name its interpreter",
    errno.ENOEXEC: "is not a program: its first line names no interpreter; begin it with #!/bin/sh or the like",
    errno.E2BIG: "has arguments and an environment that are too long for this system",
}
_SYSTEM_SAYS = {os.strerror(number): text for number, text in _WHY.items()}
_REFUSED = re.compile(r"uid map|user namespace|[Cc]reating new namespace")


class SandboxRunner:
    """Runs processes in bubblewrap, with the slots, limits and watcher of a LocalRunner, which it closes."""

    capabilities = Capabilities(name="sandbox", isolates=True, uses_image=False, keeps_background=True)

    def __init__(self, local: LocalRunner | None = None) -> None:
        self._program = bubblewrap()
        self.local = local or LocalRunner()
        self.mark = self.local.mark
        """The mark in the environment of the processes that hold each sandbox; inside it is not seen."""

    async def run(self, order: Order) -> Ending:
        """Run a process to its end. Only a cancellation is raised."""
        wrong = unrunnable(order, lambda path: _may_exist(order, path)) or _wrong_mount(order)
        if wrong is not None:
            return Ending(not_started=wrong)
        begun: list[_Sandboxed] = []

        def start(outer: Order, files: StandardFiles) -> Child:
            begun.append(_Sandboxed(order, outer, files))
            return begun[0]

        outer = replace(order, argv=(self._program,), cwd="/", env={}, mounts=())
        ending = await self.local.run(outer, start)
        return _judged(order, ending, begun[0].status if begun else {})

    async def close(self) -> None:
        """End every process, including those kept in the background."""
        await self.local.close()


def bubblewrap() -> str:
    """The path of bubblewrap; UsageError if there is none, or one that is too old."""
    program = shutil.which("bwrap")
    if program is None:
        raise UsageError(f"the sandbox needs bubblewrap, and there is no bwrap on PATH; {_INSTALL}")
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError) as exc:
        raise UsageError(f"{program!r} does not say its version: {exc}") from exc
    version = tuple(int(part) for part in re.findall(r"\d+", said.stdout)[:2])
    if version < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise UsageError(
            f"the sandbox needs bubblewrap {wanted} or newer; {program} is {said.stdout.strip()!r}"
        )
    return program


def python_mounts() -> tuple[Mount, ...]:
    """Mounts with which this interpreter runs inside, with everything that it can import here."""
    found = {os.path.realpath(sys.executable).rpartition("/bin/")[0], sys.prefix, sys.base_prefix}
    found.add(str(Path(__file__).parents[2]))
    wanted = sorted(place for place in found if place and not any(beneath(place, each) for each in _PROGRAMS))
    outer = [place for place in wanted if not any(beneath(place, each) for each in wanted if each != place)]
    return tuple(Mount(target=place, source=place, read_only=True) for place in outer)


def arguments(order: Order, made: Mapping[str, int]) -> list[str]:
    """The arguments of bubblewrap without the command. `made` are the files passed as open descriptors."""
    words = [*_ALONE, *(() if order.network else ("--unshare-net",))]
    # A sandbox with processes in the background outlives the process that we wait for.
    words += () if order.background_keep else ("--die-with-parent",)
    words += _programs()
    for name in (*_SETTINGS, *(_NETWORK_SETTINGS if order.network else ())):
        words += ("--ro-bind-try", f"/etc/{name}", f"/etc/{name}")
    for place, fd in made.items():
        words += ("--ro-bind-data", f"{fd}", place)
    words += _OWN
    for mount in own_mounts(order):
        words += _mounted(mount)
    words += ("--remount-ro", "/", "--chdir", order.cwd or "/")
    for name, value in {**order.env, **inside_variables(order)}.items():
        words += ("--setenv", name, value) if name != VARIABLE else ()
    return words


def _programs() -> Iterator[str]:
    for place in _PROGRAMS:
        if os.path.islink(place):
            yield from ("--symlink", os.readlink(place), place)
        elif os.path.isdir(place):
            yield from ("--ro-bind", place, place)


def _mounted(mount: Mount) -> tuple[str, ...]:
    if mount.source is None:
        return ("--perms", "1777", "--size", f"{mount.size}", "--tmpfs", mount.target)
    return ("--ro-bind" if mount.read_only else "--bind", mount.source, mount.target)


def _wrong_mount(order: Order) -> str | None:
    for mount in order.mounts:
        if mount.target in _RESERVED or any(beneath(mount.target, place) for place in ("/proc", "/dev")):
            return f"nothing can be mounted at {mount.target}: the sandbox has its own"
    return missing_source(order)


def _may_exist(order: Order, path: str) -> bool:
    """True if a file may exist inside. Only the sandbox knows where links lead."""
    path = os.path.normpath(path)
    source = source_of(order.mounts, path)
    if source is not None:
        real = os.path.realpath(source)
        return os.path.lexists(source) or os.path.basename(real) != os.path.basename(source)
    if any(beneath(path, each.target) for each in order.mounts) or not path.startswith("/"):
        return False
    return any(beneath(path, place) for place in ("/etc", "/proc", *_PROGRAMS)) and os.path.lexists(path)


class _Sandboxed(PopenChild):
    """bubblewrap, which is our child, and inside it a process that is not."""

    __slots__ = ("_kept", "_status_file", "status")

    def __init__(self, order: Order, outer: Order, files: StandardFiles) -> None:
        self.status: dict[str, Any] = {}
        self._kept = order.background_keep
        fds: list[int] = []
        try:
            made = {**_MADE, **({} if order.network else _MADE_ALONE)}
            shown = {place: _handed(text.encode(), fds) for place, text in made.items()}
            words = encoded((*arguments(order, shown), *order.argv))
            # By file: everybody who can list processes could read the values of variables on a command line. They are
            # not in the environment of bubblewrap itself either, which runs outside.
            given = _handed(b"".join(word + b"\0" for word in words[: len(words) - len(order.argv)]), fds)
            self._status_file = _handed(b"", fds)
            status = ("--json-status-fd", f"{self._status_file}")
            argv = (*outer.argv, "--args", f"{given}", *status, "--", *order.argv)
            super().__init__(replace(outer, argv=argv), files, fds)
            fds.remove(self._status_file)
        finally:
            for fd in fds:
                os.close(fd)

    def terminate(self) -> None:
        """Send SIGTERM to all processes inside: bubblewrap itself would die of it, and kill them at once."""
        status = _status(self._status_file)
        first, space = status.get("child-pid"), status.get("pid-namespace", 0)
        inside = [pid for pid in _inhabitants(space) if pid != first] if space else []
        for pid in inside:
            send_if(lambda pid=pid: _space(pid) == space, pid, signal.SIGTERM)
        if not inside:
            super().terminate()

    def reap(self) -> ExitStatus:
        self.status = _status(self._status_file)
        os.close(self._status_file)
        if not self._kept:
            _wait_until_empty(self.status)
        return super().reap()


def _handed(content: bytes, fds: list[int]) -> int:
    fds.append(open_content(content))
    return fds[-1]


def _status(fd: int) -> dict[str, Any]:
    """The status that bubblewrap has reported: the process inside, and its exit code if it was started."""
    whole: dict[str, Any] = {}
    for line in os.pread(fd, 65536, 0).splitlines():
        try:
            whole |= json.loads(line)
        except ValueError:
            break  # half a line, which is being written
    return whole


def _wait_until_empty(status: Mapping[str, Any]) -> None:
    """Wait until nothing runs inside: bubblewrap ends with the command, and the first process inside after all others."""
    try:
        pid = status["child-pid"]
        first = os.pidfd_open(pid)
    except (KeyError, OSError):
        return
    try:
        if _space(pid) == status.get("pid-namespace"):
            is_readable(first, LAST_WAIT)
    finally:
        os.close(first)


def _inhabitants(space: int) -> Iterator[int]:
    for name in os.listdir("/proc"):
        if name.isdigit() and _space(int(name)) == space:
            yield int(name)


def _space(pid: int) -> int | None:
    try:
        return os.stat(f"/proc/{pid}/ns/pid").st_ino
    except OSError:
        return None


def _judged(order: Order, ending: Ending, status: Mapping[str, Any]) -> Ending:
    """The ending; `not_started` if bubblewrap never ran the command."""
    if not ending.exited or "exit-code" in status:
        return ending
    said = ending.last_lines(1)
    return Ending(not_started=_why(order, said.removeprefix("bwrap: ")), seconds=ending.seconds)


def _why(order: Order, said: str) -> str:
    what, _, trouble = said.rpartition(": ")
    if what.startswith("execvp ") and trouble in _SYSTEM_SAYS:
        return f"{order.argv[0]!r} {_SYSTEM_SAYS[trouble]}"
    if what.startswith("Can't chdir"):
        return f"its working folder {order.cwd!r} cannot be entered in the sandbox: {trouble}"
    if _REFUSED.search(said):
        return f"this system does not let bubblewrap make a sandbox: {said}"
    return f"bubblewrap could not make the sandbox: {said or 'it said nothing'}"
