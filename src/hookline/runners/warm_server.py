"""The process that warm hooks are forked from: an interpreter with the preloaded modules, and two sockets.

It is started by path with the interpreter of the hook, so it imports nothing of hookline and runs on Python 3.10. A
child ends as any Python process does: it leaves by the last line of this file.
"""

from __future__ import annotations

import _socket
import array
import atexit
import errno
import gc
import io
import os
import select
import sys
import types
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_INTERRUPTED = -1
_ours: list[object] = []
"""All objects from before the script, including those of this `__main__`, which is still in use."""
_REHEARSAL = """
import os, sys
class A:
    def f(self, *args, **more):
        try:
            return {name: [f"{name}!r", len(args)] for name in more}
        except (KeyError, ValueError) as exc:
            raise RuntimeError(str(exc)) from exc
if A().f(1, a=2).get("a") and os.path.realpath(__name__).split("/"):
    with open(os.devnull, "w") as file:
        print("x", file=file)
"""


def serve(calls: _socket.socket, words: _socket.socket) -> tuple[str, str, list[str]]:
    """Keep one fork ready for the next call, and report the exit status of earlier ones; returns only in a fork.

    The fork itself waits for its call, so that no call has to wait for the fork.
    """
    place = _tag_place()
    children: dict[bytes, int] = {}
    taken, take = os.pipe()
    spare = 0
    while True:
        if not spare:
            spare = _fork()
            if not spare:
                words.close()
                os.close(taken)
                return _called(calls, take, place)
        number = _next(calls, words, taken, spare)
        if number is None:
            _reaped(words, children)
            continue
        if spare > 0 and number:
            children[number] = spare
        elif spare > 0:
            os.waitpid(spare, 0)
        spare = 0


def _fork() -> int:
    try:
        return os.fork()
    except OSError as exc:
        return -(exc.errno or 1)


def _next(calls: _socket.socket, words: _socket.socket, taken: int, spare: int) -> bytes | None:
    """The number of the call that the spare fork took, empty if there is no such fork; None if a status is asked for."""
    poll = select.poll()
    poll.register(words, select.POLLIN)
    poll.register(taken, select.POLLIN)
    handle = os.pidfd_open(spare) if spare > 0 else -1
    poll.register(handle if spare > 0 else calls, select.POLLIN)
    ready = [fd for fd, _ in poll.poll()]
    if handle >= 0:
        os.close(handle)
    # The fork reports its call before hookline can ask for it, and before the fork can end.
    if taken in ready:
        return os.read(taken, 64).strip()
    if words.fileno() in ready:
        return None
    if spare < 0:
        _refused(calls, -spare)
    return b""


def _refused(calls: _socket.socket, code: int) -> None:
    _, ancillary, _, _ = calls.recvmsg(64, 4096)
    for fd in _fds(ancillary):
        os.close(fd)
    calls.send(b"-%d" % code)


def _reaped(words: _socket.socket, children: dict[bytes, int]) -> None:
    number = words.recv(64)
    if not number:
        os._exit(0)  # hookline is gone, or has closed this server
    found, status = 0, 0
    try:
        if number in children:
            found, status = os.waitpid(children.pop(number), os.WNOHANG)
    except ChildProcessError:
        pass
    words.send(b"%d" % os.waitstatus_to_exitcode(status) if found else b"lost")


def _called(calls: _socket.socket, take: int, place: tuple[int, int]) -> tuple[str, str, list[str]]:
    """Wait for a call, take its environment and files, and tell hookline that the process has started."""
    os.setsid()
    handle = os.pidfd_open(os.getpid())
    _rehearse(calls)
    message, ancillary, _, _ = calls.recvmsg(64, 4096)
    if not message:
        os._exit(0)
    fds = _fds(ancillary)
    try:
        if len(fds) < 4:
            raise OSError(errno.EMFILE, "files were lost on the way")
        with open(fds.pop(), "rb") as file:
            number, way, cwd, tag, argc, *words = file.read().split(b"\0")
        _show(number, place)
        os.write(take, number.ljust(64))
        os.chdir(cwd)
        _become([b"HOOKLINE_TAG=" + tag, *words[int(argc) :]])
        for target, fd in enumerate(fds):
            os.dup2(fd, target)
        for fd in (*fds, take):
            os.close(fd)
    except OSError as exc:
        calls.send(b"-%d" % (exc.errno or 1))
        os._exit(127)
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array.array("i", [handle]))]
    calls.sendmsg([b"%d" % os.getpid()], rights)
    os.close(handle)
    calls.close()
    argv = [os.fsdecode(word) for word in words[: int(argc)]]
    return way.decode(), argv[0], argv[1:]


def _rehearse(calls: _socket.socket) -> None:
    """Do in advance some of what a script will do: a fork gets its own memory page by page, on first use."""
    waiting = select.poll()
    waiting.register(calls, select.POLLIN)
    for start in range(0, len(_ours), 1000):
        if waiting.poll(0):
            return  # a call waits already
        for each in _ours[start : start + 1000]:
            sys.getrefcount(each)
    if not waiting.poll(0):
        exec(compile(_REHEARSAL, "<rehearsal>", "exec", dont_inherit=True), {"__name__": "rehearsal"})
        _become([name + b"=" + value for name, value in os.environb.items()])


def _fds(ancillary: list[tuple[int, int, bytes]]) -> list[int]:
    fds = array.array("i")
    for _, _, part in ancillary:
        fds.frombytes(part[: len(part) - len(part) % fds.itemsize])
    return list(fds)


def _become(variables: list[bytes]) -> None:
    """Set exactly this environment, writing only what differs: writing costs a fork its memory pages."""
    wanted = dict(word.split(b"=", 1) for word in variables)
    for name in [name for name in os.environb if name not in wanted]:
        del os.environb[name]
    for name, value in wanted.items():
        if os.environb.get(name) != value:
            os.environb[name] = value


def _tag_place() -> tuple[int, int]:
    """The address of the number in our tag, and the room there.

    /proc shows the environment that a process was started with, so a fork shows ours. Each fork writes its own number
    there, or its leftover processes would not be found.
    """
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    with open("/proc/self/environ", "rb") as file:
        block = file.read()
    start = block.index(sys.argv[1].encode()) + len(sys.argv[1].encode())
    return int(fields[47]) + start, block.index(b"\0", start) - start


def _show(number: bytes, place: tuple[int, int]) -> None:
    address, room = place
    memory = os.open("/proc/self/mem", os.O_RDWR)
    os.pwrite(memory, (number + b":").ljust(room, b".")[:room], address)
    os.close(memory)


def run(way: str, target: str, rest: list[str], interpreter: list[str]) -> None:
    """Run a script, module or code as `__main__`, as the interpreter itself would."""
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = sys.modules["builtins"]
    main.__dict__.update(__annotations__={})
    sys.modules["__main__"] = main
    sys.orig_argv = [*interpreter, *([] if way == "script" else ["-" + way]), target, *rest]
    sys.argv = [target if way == "script" else "-" + way, *rest]
    if way == "c":
        _first_on_path("")
        main.__loader__ = sys.modules["_frozen_importlib"].BuiltinImporter
        exec(compile(target + "\n", "<string>", "exec", dont_inherit=True), main.__dict__)
    elif way == "m":
        _first_on_path(os.getcwd())
        import runpy

        runpy.__dict__["_run_module_as_main"](target, True)
    else:
        path = os.path.join(os.getcwd(), target)
        _first_on_path(os.path.dirname(os.path.realpath(path)))
        main.__file__ = path
        main.__dict__["__cached__"] = None
        main.__loader__ = sys.modules["_frozen_importlib_external"].SourceFileLoader("__main__", path)
        with open(path, "rb") as file:
            source = file.read()
        exec(compile(source, path, "exec", dont_inherit=True), main.__dict__)


def _first_on_path(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, folder)


def report(exc: BaseException) -> int:
    """Print an uncaught exception without our own frames, as the interpreter does; its exit code."""
    if isinstance(exc, SystemExit):
        return _exit_code(exc.code)
    trace = exc.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    exc = exc.with_traceback(trace)
    sys.last_type, sys.last_value, sys.last_traceback = type(exc), exc, trace
    try:
        sys.excepthook(type(exc), exc, trace)
    except SystemExit as left:
        return _exit_code(left.code)
    except BaseException:
        sys.__excepthook__(type(exc), exc, trace)
    return _INTERRUPTED if isinstance(exc, KeyboardInterrupt) else 1


def _exit_code(code: object) -> int:
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF if -(2**63) <= code < 2**63 else 0xFF
    if sys.stderr is not None:
        print(code, file=sys.stderr)
    return 1


def leave(code: int, before: set[str]) -> None:
    """End as the interpreter does, but keep the modules loaded before: finalizing them costs more than the hook.

    Threads are joined, exit functions called, the script's own objects finalized, and every file is flushed.
    """
    threading = sys.modules.get("threading")
    if threading is not None:
        threading.__dict__["_shutdown"]()
    atexit.__dict__["_run_exitfuncs"]()
    flushed = _flushed(sys.stdout) & _flushed(sys.stderr)
    _let_go(before)
    kinds = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)
    for each in gc.get_objects():
        if type(each) in kinds:
            _flushed(each)
    flushed &= _flushed(sys.stdout) & _flushed(sys.stderr)
    if code == _INTERRUPTED:
        import signal

        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if flushed else 120)


def _let_go(before: set[str]) -> None:
    """Drop the modules that the script loaded, the script itself first, so that their objects are finalized."""
    main = sys.modules.pop("__main__")
    new = [main, *(sys.modules.pop(name) for name in list(sys.modules) if name not in before)]
    for module in new:
        names = getattr(module, "__dict__", {})
        for name in [name for name in names if name.startswith("_") and name[1:2] != "_"]:
            names[name] = None
    gc.collect()
    for module in new:
        names = getattr(module, "__dict__", {})
        for name in [name for name in names if name != "__builtins__"]:
            names[name] = None
    gc.collect()


def _flushed(file: TextIO | io.IOBase | None) -> bool:
    try:
        if file is not None and not file.closed:
            file.flush()
    except Exception as exc:
        if file is not sys.stderr:
            print(f"Exception ignored in: {file!r}\n{type(exc).__name__}: {exc}", file=sys.stderr)
        return False
    return True


def ready(sock: _socket.socket, names: list[str]) -> None:
    """Load the modules, then report success or the error."""
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]
    trouble = ""
    for name in names:
        try:
            import_module(name)
        except BaseException as exc:
            trouble = f"preload of {name!r}: {type(exc).__name__}: {exc}"
            break
    threading = sys.modules.get("threading")
    if not trouble and threading is not None and threading.active_count() > 1:
        trouble = "what is preloaded starts threads, and a fork has none of them"
    sys.stdout.flush()
    sys.stderr.flush()
    sock.send(trouble.encode("utf-8", "replace")[:2000] or b"ready")
    if trouble:
        os._exit(1)


def _main() -> None:
    calls, words = (_socket.socket(fileno=int(fd)) for fd in sys.argv[2:4])
    interpreter = sys.orig_argv[: sys.orig_argv.index(sys.argv[0])]
    ready(words, sys.argv[4:])
    gc.collect()
    _ours.extend(gc.get_objects())
    gc.freeze()
    before = set(sys.modules)
    way, target, rest = serve(calls, words)
    code = 0
    try:
        run(way, target, rest, interpreter)
    except BaseException as exc:
        code = report(exc)
    leave(code, before)


if __name__ == "__main__":
    _main()
