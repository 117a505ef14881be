"""Python commands without the start of an interpreter: each call is a fresh fork of a warm interpreter.

A server for each interpreter and its preloaded modules belongs to a LocalRunner and ends with it. The fork has the
arguments, folder, environment and pipes of the call, and a session of its own; limit, cancellation, output and leftover
processes are handled by the LocalRunner, as with any other process.

The server has two sockets. On one a call comes as a file, with the files of the process; a fork answers with its pid and
pidfd, or an errno below 0. On the other the server says `ready` or why not, and then is asked for the exit status of each
call, by its number: it keeps an ended fork until then.

A command that cannot be warm is started cold, and the log says why.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hookline.files import open_content
from hookline.runners import Ending, Order, on_this_machine, tags
from hookline.runners.child import Child, ExitStatus, PopenChild, StandardFiles, encoded
from hookline.runners.local import LocalRunner

logger = logging.getLogger(__name__)

_SERVER = str(Path(__file__).with_name("warm_server.py"))
_READY = 30.0
"""Seconds that a server has to load its modules."""
_ANSWER = 5.0
"""Seconds that a server has to fork. It does nothing else, so one that needs longer is broken."""
_ROOM = 24
_PYTHON = re.compile(r"python(\d(\.\d+)?)?")
_SAME_OPTIONS = frozenset({"-u", "-B", "-E", "-s"})
"""Options that are passed on to the server."""
_READ_AT_START = re.compile(r"(PYTHON|LC_|LANG|LD_|MALLOC_|OPENSSL_).*|TZ|HOME|PATH")
"""Variables that an interpreter reads at its start: calls that differ in one do not share a server."""


class WarmRunner:
    """Runs Python commands by fork, with the slots, limits and tags of a LocalRunner, which it closes."""

    def __init__(self, local: LocalRunner, *, preload: Sequence[str] = ()) -> None:
        self.capabilities = local.capabilities
        self._local = local
        self._preload = tuple(preload)
        self._said: set[str] = set()

    async def run(self, order: Order) -> Ending:
        if order.mounts:
            order = on_this_machine(order)
        command = _python_command(order)
        if isinstance(command, str):
            return await self._cold(order, command)
        fixed = {name: order.env[name] for name in order.env if _READ_AT_START.fullmatch(name)}
        cwd = order.cwd if "PYTHONPATH" in fixed else None
        key = (command.interpreter, command.options, self._preload, cwd, *sorted(fixed.items()))
        try:
            server = self._local.belonging(
                key, lambda: _WarmInterpreter(self._local, command, self._preload, order.env, cwd)
            )
        except OSError as exc:
            return await self._cold(order, f"nothing can be started: {exc}")
        trouble = await server.ready()
        if trouble is not None:
            return await self._cold(order, trouble)

        def start(order: Order, files: StandardFiles) -> Child:
            return server.forked(order, command, files)

        return await self._local.run(order, start)

    async def close(self) -> None:
        await self._local.close()

    async def _cold(self, order: Order, reason: str) -> Ending:
        if reason not in self._said:
            self._said.add(reason)
            logger.warning("%s is started cold: %s", order.argv[0] if order.argv else "a command", reason)
        return await self._local.run(order)


class _PythonCommand(NamedTuple):
    """A Python command: `way` is script, m or c, and `target` the script, module or code."""

    interpreter: str
    options: tuple[str, ...]
    way: str
    target: str
    rest: tuple[str, ...]


def _python_command(order: Order) -> _PythonCommand | str:
    """The command with its interpreter, or the reason why it cannot be warm."""
    argv = list(order.argv)
    if argv and not _PYTHON.fullmatch(os.path.basename(argv[0])):
        argv = _behind_shebang(order)
    if not argv:
        return "it is not a Python script"
    interpreter = _found(argv.pop(0), order)
    if interpreter is None:
        return "its interpreter is not there"
    options: list[str] = []
    while argv and argv[0] in _SAME_OPTIONS:
        options.append(argv.pop(0))
    way = "script"
    if argv and argv[0] in ("-m", "-c"):
        way = argv.pop(0)[1:]
    elif argv and argv[0].startswith("-"):
        return f"the option {argv[0]} needs an interpreter of its own"
    if not argv:
        return "it names no script"
    target, *rest = argv
    if way == "script" and not _readable(os.path.join(order.cwd or os.getcwd(), target)):
        return f"{target!r} is not a source file"
    return _PythonCommand(interpreter, tuple(options), way, target, tuple(rest))


def _behind_shebang(order: Order) -> list[str]:
    """The command that the system would make from a script's first line; empty if that is not Python."""
    script = _found(order.argv[0], order)
    if script is None:
        return []
    try:
        with open(script, "rb") as file:
            line = file.readline(256)
    except OSError:
        return []
    words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if len(words) == 2 and os.path.basename(words[0]) == "env":
        words.pop(0)
    if len(words) != 1 or not _PYTHON.fullmatch(os.path.basename(words[0])):
        return []
    return [words[0], order.argv[0] if "/" in order.argv[0] else script, *order.argv[1:]]


def _found(program: str, order: Order) -> str | None:
    if "/" in program:
        program = os.path.join(order.cwd or os.getcwd(), program)
    return shutil.which(program, path=order.env.get("PATH", os.defpath))


def _readable(path: str) -> bool:
    return os.path.isfile(path) and os.access(path, os.R_OK) and not path.endswith((".pyc", ".pyz", ".zip"))


class _WarmInterpreter:
    """One warm interpreter. It is started again if it died, but not if it could not load its modules."""

    def __init__(
        self,
        local: LocalRunner,
        command: _PythonCommand,
        preload: Sequence[str],
        env: Mapping[str, str],
        cwd: str | None,
    ) -> None:
        self._local = local
        self._argv = [command.interpreter, *command.options, _SERVER]
        self._preload = preload
        # Each fork writes the number of its call into the room behind the server's own number.
        self._env = {**env, tags.VARIABLE: local.tag("0").ljust(len(local.tag("0")) + _ROOM, ".")}
        self._cwd = cwd or "/"
        self._lock = asyncio.Lock()
        self._calls: socket.socket | None = None
        self._words: socket.socket | None = None
        self._popen: subprocess.Popen[bytes] | None = None
        self._noise = -1
        self._last_noise = b""
        self._is_ready = False
        self._trouble: str | None = None

    async def ready(self) -> str | None:
        """Wait until the modules are loaded; the reason why the server cannot be used, or None."""
        if self._is_ready and self._popen is not None:
            if self._popen.poll() is None:
                return None
            self.close()
        async with self._lock:
            if self._trouble is None and not self._is_ready:
                try:
                    if self._words is None:
                        self._begin()
                    self._trouble = await self._word()
                except OSError as exc:
                    self._trouble = f"its warm interpreter could not start: {exc}"
                self._is_ready = self._trouble is None
                if self._trouble is not None:
                    self.close()
                    self._close_files()
        return self._trouble

    def forked(self, order: Order, command: _PythonCommand, files: StandardFiles) -> Child:
        number = order.env[tags.VARIABLE].rpartition(self._local.mark)[2].rstrip(":")
        request = _request(order, command, number)
        try:
            self._send(request, files)
            message, fds = _received(self._calls)
            pid = int(message)
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
        except (BrokenPipeError, ConnectionResetError):
            # It died without reading the request, so nothing runs yet.
            logger.warning("the warm interpreter is gone; this call is started cold")
            self.close()
            return PopenChild(order, files)
        except TimeoutError as exc:
            self.close()
            tags.end_carriers(f"{self._local.mark}{number}:".encode())
            raise OSError("its warm interpreter did not answer") from exc
        return _Forked(self, pid, fds[0], number)

    def status(self, number: str) -> ExitStatus:
        try:
            if self._words is None or not self._is_ready:
                return None, None
            self._words.send(number.encode())
            message, _ = _received(self._words)
        except OSError:
            self.close()
            return None, None
        if message == b"lost":
            return None, None
        code = int(message)
        return (code, None) if code >= 0 else (None, -code)

    def close(self) -> None:
        self._is_ready = False
        if self._popen is not None:
            self._popen.kill()
            self._popen.wait()
            self._popen = None
        if not self._lock.locked():
            self._close_files()  # else `ready` does it, which is woken by the end of the process

    def _close_files(self) -> None:
        for each in (self._calls, self._words):
            if each is not None:
                each.close()
        self._calls = self._words = None
        if self._noise >= 0:
            os.close(self._noise)
            self._noise = -1

    def _begin(self) -> None:
        self._calls, calls = _pair()
        self._words, words = _pair()
        self._noise, loud = os.pipe()
        os.set_blocking(self._noise, False)
        # Its standard files are pipes, as a hook's are, so that Python's objects for them are right in a fork.
        with calls, words:
            fds = [calls.fileno(), words.fileno()]
            try:
                self._popen = subprocess.Popen(
                    [*self._argv, self._local.mark, *map(str, fds), *self._preload],
                    stdin=subprocess.PIPE,
                    stdout=loud,
                    stderr=loud,
                    cwd=self._cwd,
                    env=self._env,
                    pass_fds=fds,
                    start_new_session=True,
                )
            finally:
                os.close(loud)
        if self._popen.stdin is not None:
            self._popen.stdin.close()

    async def _word(self) -> str | None:
        """Wait for the server's first message; its error, or None if it is ready."""
        if self._words is None:
            return "it is closed"
        loop = asyncio.get_running_loop()
        loop.add_reader(self._noise, self._drain)
        self._words.setblocking(False)
        try:
            async with asyncio.timeout(_READY):
                message = await loop.sock_recv(self._words, 4096)
        except TimeoutError:
            return f"its warm interpreter was not ready after {_READY:g} s"
        finally:
            loop.remove_reader(self._noise)
            self._words.settimeout(_ANSWER)
            if self._popen is None:
                self._close_files()  # closed meanwhile
        if not message:
            self._drain()
            last = self._last_noise.decode("utf-8", "replace").strip().splitlines()[-1:]
            return ": ".join(["its warm interpreter ended at once", *last])
        return None if message == b"ready" else message.decode("utf-8", "replace")

    def _drain(self) -> None:
        try:
            part = os.read(self._noise, 65536)
        except OSError:
            return
        self._last_noise = (self._last_noise + part)[-2000:]
        if not part:
            asyncio.get_running_loop().remove_reader(self._noise)

    def _send(self, request: bytes, files: StandardFiles) -> None:
        if self._calls is None:
            raise BrokenPipeError
        fd = open_content(request)
        try:
            socket.send_fds(self._calls, [b"fork"], [*files, fd])
        finally:
            os.close(fd)


class _Forked(Child):
    """A child of the server, which keeps it until it is asked for its exit status."""

    __slots__ = ("_number", "_server")

    def __init__(self, server: _WarmInterpreter, pid: int, pidfd: int, number: str) -> None:
        self._server = server
        self.pid = pid
        self.pidfd = pidfd
        self._number = number

    def reap(self) -> ExitStatus:
        return self._server.status(self._number)


def _request(order: Order, command: _PythonCommand, number: str) -> bytes:
    if order.cwd is not None and not os.path.isdir(order.cwd):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), order.cwd)
    words = [command.target, *command.rest]
    variables = [f"{name}={value}" for name, value in order.env.items() if name != tags.VARIABLE]
    whole = [number, command.way, order.cwd or os.getcwd(), order.env[tags.VARIABLE], f"{len(words)}"]
    return b"\0".join(encoded((*whole, *words, *variables)))


def _pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(_ANSWER)
    return ours, theirs


def _received(sock: socket.socket | None) -> tuple[bytes, list[int]]:
    message, fds, _, _ = socket.recv_fds(sock, 4096, 1) if sock is not None else (b"", [], 0, None)
    if not message:
        raise BrokenPipeError("it has ended")
    return message, fds
