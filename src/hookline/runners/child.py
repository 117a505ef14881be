"""A child process: started in a session of its own, by Popen or without loading it; why one cannot start; the watcher.

`python3 missing.py` and `bash missing.sh` start, and then exit with 2 or 127; in the protocol of command hooks 2 is a
refusal. So the script of a known interpreter is looked up first.
"""

import errno
import os
import select
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from hookline.engine.stdlib import lazy_pattern
from hookline.runners import Order

ExitStatus = tuple[int | None, int | None]
"""An exit code or a signal; neither if it was lost."""
StandardFiles = tuple[int, int, int]
"""The file descriptors for stdin, stdout and stderr of a process."""


class _Interpreter(NamedTuple):
    """`no_script`: letters of options after which no script file follows; `takes`: options with a value behind."""

    no_script: str
    takes: frozenset[str]
    suffixes: tuple[str, ...] = ("",)
    on_path: bool = False


_SHELL = _Interpreter("cs", frozenset({"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}), on_path=True)
_NODE = _Interpreter(
    "ep",
    frozenset({"-r", "--require", "--import", "-C", "--conditions", "--env-file", "--loader"}),
    ("", ".js", ".json", ".node"),
)
_INTERPRETERS = {
    "python": _Interpreter("cm", frozenset({"-W", "-X", "--check-hash-based-pycs"})),
    "pypy": _Interpreter("cm", frozenset({"-W", "-X"})),
    **dict.fromkeys(("sh", "bash", "dash", "ash", "ksh", "zsh"), _SHELL),
    **dict.fromkeys(("node", "nodejs"), _NODE),
    "ruby": _Interpreter("e", frozenset({"-I", "-r", "-C", "-E"})),
    "perl": _Interpreter("eE", frozenset({"-I"})),
}
# Python ignores these signals, and its children would inherit that.
_IGNORED = (signal.SIGPIPE, signal.SIGXFSZ)
# Characters that make a text more than one plain command. `$NAME` and `${NAME}` are understood, other uses of $ are not.
_NOT_PLAIN = lazy_pattern(r"[|&;<>()`*?\[\]~#!\n\\]|\$(?!\w|\{\w+\})|\$\d")
_NAME = lazy_pattern(r"\$(?:\{(\w+)\}|(\w+))")
_VERSION = lazy_pattern(r"[0-9.]+$")
_ASSIGNMENT = lazy_pattern(r"\w+=")
# Options that end the interpreter at once, or where a file name means something else.
_NO_SCRIPT = frozenset({"-", "--eval", "--print", "--version", "--help", "--test", "--command", "-h", "-V"})


class Child:
    """A process in a session of its own. Its id cannot be reused before it is reaped."""

    __slots__ = ("pid", "pidfd")
    pid: int
    pidfd: int

    def terminate(self) -> None:
        """Send SIGTERM to the process and its group."""
        signal_group(self.pid, signal.SIGTERM)

    def reap(self) -> ExitStatus:
        """The exit status; called once, when the process is gone."""
        try:
            found = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            found = None
        if found is None:
            return None, None
        return (found.si_status, None) if found.si_code == os.CLD_EXITED else (None, found.si_status)


Start = Callable[[Order, StandardFiles], Child]
"""Starts the process of an order with these files; raises OSError or ValueError."""


class PopenChild(Child):
    """A child of ours, started by Popen."""

    __slots__ = ("_popen",)

    def __init__(self, order: Order, files: StandardFiles, more_fds: Sequence[int] = ()) -> None:
        import subprocess  # slow to load, and not for `spawned`

        self._popen = subprocess.Popen(
            order.argv,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            cwd=order.cwd,
            env=order.env,
            start_new_session=True,
            pass_fds=more_fds,
        )
        self.pid = self._popen.pid
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            self._popen.kill()
            self._popen.wait()
            raise

    def reap(self) -> ExitStatus:
        """The exit status; not by Popen, which reports a lost one as 0."""
        code, number = super().reap()
        self._popen.returncode = code if code is not None else number or 0
        return code, number


def spawned(order: Order, files: StandardFiles) -> Child:
    """A child of ours as Popen would start it, without the time that loading Popen takes."""
    try:
        return _SpawnChild(order, files)
    except NotImplementedError:
        return PopenChild(order, files)  # a Python that was built for an old system cannot


class _SpawnChild(Child):
    __slots__ = ()

    def __init__(self, order: Order, files: StandardFiles) -> None:
        before = os.open(".", os.O_PATH | os.O_CLOEXEC)
        try:
            # A child starts in our folder. Most should, and a hook in a thread may read our folder meanwhile.
            if order.cwd is not None and order.cwd != os.getcwd():
                os.chdir(order.cwd)
            self.pid = _spawned_pid(order.argv, order.env, files)
        finally:
            os.fchdir(before)
            os.close(before)
        try:
            self.pidfd = os.pidfd_open(self.pid)
        except OSError:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise


def _spawned_pid(argv: tuple[str, ...], env: Mapping[str, str], files: StandardFiles) -> int:
    actions: list[tuple[int, int, int] | tuple[int, int]] = [
        (os.POSIX_SPAWN_DUP2, theirs, fd) for fd, theirs in enumerate(files)
    ]
    actions += [(os.POSIX_SPAWN_CLOSE, fd) for fd in _inherited()]
    trouble: OSError = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
    for path in _places(argv[0], env):
        try:
            return os.posix_spawn(path, argv, env, file_actions=actions, setsid=True, setsigdef=_IGNORED)
        except OSError as exc:
            # As a shell does: a file that exists and cannot run is reported, if no later one can run.
            if trouble.errno in (errno.ENOENT, errno.ENOTDIR):
                trouble = exc
    raise trouble


def _places(program: str, env: Mapping[str, str]) -> Iterator[str]:
    if "/" in program:
        yield program
        return
    for folder in os.get_exec_path(env):
        path = os.path.join(folder, program)
        if os.path.exists(path):
            yield path


def _inherited() -> list[int]:
    """The inheritable files that our own parent left open; a hook must not get them."""
    found: list[int] = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if int(name) > 2 and os.get_inheritable(int(name)):
                found.append(int(name))
        except OSError:
            pass  # the list itself
    return found


def encoded(words: Iterable[str]) -> list[bytes]:
    """The words as bytes for the system; ValueError if one has a null byte, where it would be cut off."""
    whole = [os.fsencode(word) for word in words]
    if any(b"\0" in word for word in whole):
        raise ValueError("embedded null byte")
    return whole


def signal_group(pid: int, number: int) -> None:
    """Signal a group whose leader has not been reaped, so that its id cannot be reused."""
    try:
        os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        pass


# At the end of the pipe the rest of the line is run. The shell must neither hold our folder nor end before us.
_SLEEP = "trap '' INT TERM HUP QUIT; cd /; read -r word || exec \"$@\""
_pipes: set[int] = set()
"""Our ends of the watchers' pipes."""


def _close_pipes() -> None:
    """Close the pipes in a fork of ours, which may outlive us: a watcher must not wait for it."""
    for pipe in _pipes:
        os.close(pipe)
    _pipes.clear()


os.register_at_fork(after_in_child=_close_pipes)


class Watcher:
    """A process that outlives us if we are killed: a shell that runs a command when our end of its pipe closes.

    Starting the command itself at once would cost more than a hook.
    """

    def __init__(self, argv: Sequence[str]) -> None:
        with open(os.devnull, "wb") as nothing:
            theirs, self._pipe = os.pipe()
            _pipes.add(self._pipe)
            order = Order(argv=("/bin/sh", "-c", _SLEEP, "sh", *argv), cwd=None, env=os.environ)
            try:
                self._child = spawned(order, (theirs, nothing.fileno(), nothing.fileno()))
            except BaseException:
                self._close()
                raise
            finally:
                os.close(theirs)

    @property
    def alive(self) -> bool:
        return not is_readable(self._child.pidfd, 0.0)

    def dismiss(self) -> None:
        try:
            signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)
        except ProcessLookupError:
            pass
        is_readable(self._child.pidfd, None)
        self._child.reap()
        os.close(self._child.pidfd)
        self._close()

    def _close(self) -> None:
        _pipes.discard(self._pipe)
        os.close(self._pipe)


def is_readable(fd: int, seconds: float | None) -> bool:
    """True once a file is readable, which for a pidfd means that its process ended; waits at most this long."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def unrunnable(order: Order, exists: Callable[[str], bool] = os.path.exists) -> str | None:
    """The reason why an order cannot run without its image; `exists` tests for a file as the process sees it."""
    if order.own_program:
        return f"image {order.image!r} is not used here, so its own program is not known; name a command"
    return missing_script(order.argv, order.cwd, order.env, exists) if order.argv else "it names no program"


def missing_script(
    argv: Sequence[str],
    cwd: str | None,
    env: Mapping[str, str],
    exists: Callable[[str], bool] = os.path.exists,
) -> str | None:
    """An error text if an interpreter is given a script that does not exist; None if it exists, or that is unclear."""
    inside = inside_shell(argv, env)
    argv = argv if inside is None else inside
    while argv and os.path.basename(argv[0]) == "env":
        argv = _behind_env(argv)
    name = os.path.basename(argv[0]) if argv else ""
    interpreter = _interpreter(name)
    script = script_of(argv)
    if interpreter is None or script is None:
        return None
    place = os.path.join(cwd or os.getcwd(), script)
    if any(exists(place + suffix) for suffix in interpreter.suffixes):
        return None
    if interpreter.on_path and "/" not in script and _on_path(script, env):
        return None
    return f"{name} would run {script!r}, and there is no such file{_seen_from(script, cwd)}"


def missing_program(argv: Sequence[str], cwd: str | None, env: Mapping[str, str]) -> str | None:
    """An error text if there is no such program, or not the script that it would run."""
    absent = missing_script(argv, cwd, env)
    if absent is not None or _on_path(argv[0], env):
        return absent
    place = os.path.join(cwd or os.getcwd(), argv[0])
    return None if "/" in argv[0] and os.access(place, os.X_OK) else f"there is no program {argv[0]!r}"


def script_of(argv: Sequence[str]) -> str | None:
    """The script that a known interpreter is given to run; None if there is none, or that is unclear."""
    interpreter = _interpreter(os.path.basename(argv[0])) if argv else None
    if interpreter is None:
        return None
    words = iter(argv[1:])
    for word in words:
        if word == "--":
            return next(words, None)
        if not word.startswith(("-", "+")):
            return word
        if word in _NO_SCRIPT or _ends_options(interpreter, word):
            return None
        if word in interpreter.takes or (interpreter is _SHELL and word[-1] in "oO"):
            next(words, None)
        elif word.startswith("--") and "=" not in word and interpreter is _NODE:
            return None  # it may or may not take the next word
    return None


def why_not_started(argv: Sequence[str], cwd: str | None, exc: Exception) -> str:
    """The system's error as a sentence with advice."""
    program = argv[0] if argv else ""
    code = exc.errno if isinstance(exc, OSError) else None
    if cwd is not None and not os.path.isdir(cwd):
        what = "is not a folder" if os.path.exists(cwd) else "does not exist"
        return f"its working folder {cwd!r} {what}"
    if code in (errno.ENOENT, errno.ENOTDIR):
        if "/" not in program:
            return f"{program!r} was not found; is it installed and on PATH?"
        if os.path.exists(os.path.join(cwd or "", program)):
            return f"{program!r} is there, but the interpreter that its first line names is not"
        return f"{program!r} does not exist{_seen_from(program, cwd)}"
    if code == errno.EACCES:
        if os.path.isdir(os.path.join(cwd or "", program)):
            return f"{program!r} is a folder"
        return f"{program!r} is not executable; chmod +x it, or name its interpreter"
    if code == errno.ENOEXEC:
        return f"{program!r} is not a program: its first line names no interpreter; begin it with #!/bin/sh or the like"
    if code == errno.E2BIG:
        return "its arguments and environment are too long for this system"
    return f"{exc}"


def _interpreter(name: str) -> _Interpreter | None:
    return _INTERPRETERS.get(name) or _INTERPRETERS.get(_VERSION.sub("", name))


def _on_path(script: str, env: Mapping[str, str]) -> bool:
    import shutil  # slow to load, and few commands are looked up so

    return shutil.which(script, path=env.get("PATH")) is not None


def _seen_from(path: str, cwd: str | None) -> str:
    return "" if os.path.isabs(path) else f" in {cwd or os.getcwd()!r}"


def inside_shell(argv: Sequence[str], env: Mapping[str, str]) -> list[str] | None:
    """The words of the command in `sh -c TEXT`, empty unless it is one plain command; None if this is no such call."""
    shell = os.path.basename(argv[0]) if len(argv) == 3 and argv[1] in ("-c", "-lc") else ""
    if _INTERPRETERS.get(shell) is not _SHELL:
        return None
    text = argv[2]
    words = [_NAME.sub(lambda match: env.get(match[1] or match[2], ""), word) for word in _words(text)]
    if "$" in text and '"' not in text and any(not word or " " in word for word in words):
        return []  # the shell would split it further
    while words and (words[0] == "exec" or _ASSIGNMENT.match(words[0])):
        words.pop(0)
    return words


@lru_cache(maxsize=256)
def _words(text: str) -> tuple[str, ...]:
    if _NOT_PLAIN.search(text) or ("'" in text and "$" in text):
        return ()
    if text.isascii() and text.isprintable() and "'" not in text and '"' not in text:
        return tuple(text.split())  # the same as shlex, which is slow to load
    import shlex

    try:
        return tuple(shlex.split(text))
    except ValueError:
        return ()


def _behind_env(argv: Sequence[str]) -> Sequence[str]:
    """The command that `env` would run; empty if `env` has options."""
    rest = list(argv[1:])
    while rest and _ASSIGNMENT.match(rest[0]):
        rest.pop(0)
    return [] if rest and rest[0].startswith("-") else rest


def _ends_options(interpreter: _Interpreter, word: str) -> bool:
    """True if no script follows, as behind -c, also in a cluster such as -lc."""
    return not word.startswith("--") and any(letter in word for letter in interpreter.no_script)
