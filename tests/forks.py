"""`hookline` commands as forks of an interpreter that has loaded hookline: processes of their own without the start.

Most of the time of a command is spent on imports, which are the same in every test: a package that one command
loads, such as a provider's client, is loaded for the next ones too. Tests of the start itself, of signals and of
commands beside each other start a new interpreter.
"""

import atexit
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from hookline.hookfile.person import SIGNS

STREAMS = ("stdin", "stdout", "stderr")
SERVER = """
import atexit, fcntl, gc, importlib, itertools, json, os, pathlib, pkgutil, runpy, sys, termios, threading, time

def in_large_pages():
    # Of 2 MB instead of 4 KB, as far as the system can: a fork copies a table of all pages.
    import ctypes
    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        for area, rights, *rest in map(str.split, maps):
            if rights == "rw-p" and rest[3:] in ([], ["[heap]"]):
                start, end = (int(each, 16) for each in area.split("-"))
                madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_COLLAPSE)

class Tells:
    def find_spec(self, name, path=None, target=None):
        os.write(tells, name.encode() + b" ")

MADV_COLLAPSE = 25
asks, first, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
if first:
    importlib.import_module(first)
else:
    import hookline
    for module in pkgutil.walk_packages(hookline.__path__, "hookline."):
        if not module.name.startswith(("hookline.__main__", "hookline.adapters.")):
            importlib.import_module(module.name)
    in_large_pages()
PACKAGES = (sys.prefix, sys.base_prefix)
os.set_inheritable(asks, False)
for line in open(asks, closefd=False):
    gc.freeze()
    asked = json.loads(line)
    known = len(sys.modules)
    gone = os.environ.keys() - asked["env"].keys()
    changed = {name: value for name, value in asked["env"].items() if os.environ.get(name) != value}
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        break
    os.close(writes)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    os.write(1, b"%d\\n" % (int(os.read(reads, 9) or 1) if asked["terminal"] else code))
    os.close(reads)
    if not first and os.path.exists(asked["loaded"]):
        with open(asked["loaded"]) as loaded:
            names = loaded.read().split()
        os.unlink(asked["loaded"])
        for name in names:
            importlib.import_module(name)
        in_large_pages()
else:
    # Whoever asks is gone, perhaps without a chance to do it. Imported here: no fork may find it loaded.
    import shutil
    shutil.rmtree(folder)
    os._exit(0)
# Outside of the loop, so that the fork ends as any interpreter does.
os.close(asks)
os.chdir(asked["cwd"])
for name in gone:
    del os.environ[name]
os.environ.update(changed)
time.tzset()
for fd, name in enumerate(("stdin", "stdout", "stderr")):
    if asked[name] is None:
        os.close(fd)
        setattr(sys, name, None)  # as in an interpreter that starts so
        continue
    file = os.open(asked[name], os.O_RDWR)
    os.dup2(file, fd)
    os.close(file)
if asked["terminal"]:
    # A terminal is nobody's child here: who runs the tests may be an agent.
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        os.sched_yield()
    os.setsid()
    keys, terminal = os.openpty()
    os.write(keys, asked["typed"].encode() + b"\4")
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
    os.dup2(terminal, 0)
own = os.getpid()
sys.argv[1:] = asked["words"]
sys.path[0] = os.getcwd()
if asked["machine"]:
    from hookline.hookfile import trust
    trust.MACHINE, trust.ROOT = pathlib.Path(asked["machine"]), os.getuid()
if asked["executable"]:
    sys.executable = asked["executable"]
if asked["deleted"]:
    os.rmdir(os.getcwd())
if first:
    # As it happens: an answer may end its process on the spot.
    tells = os.open(asked["loaded"], os.O_WRONLY | os.O_CREAT, 0o600)
    sys.meta_path.insert(0, Tells())
try:
    runpy.run_module("hookline", run_name="__main__", alter_sys=True)
except SystemExit as exc:
    code = exc.code
# As an interpreter ends, but for taking its modules apart, which would copy every page of the server.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
# The newest are the last. To look at any other would copy its page.
new = [*itertools.islice(reversed(sys.modules), max(0, len(sys.modules) - known))]
specs = [getattr(sys.modules[name], "__spec__", None) for name in reversed(new)]
names = [spec.name for spec in specs if spec and str(spec.origin).startswith(PACKAGES)]
if names and not first:
    with open(asked["loaded"], "w") as loaded:
        loaded.write(" ".join(names))
if os.getpid() == own:  # and no fork of the command's
    os.write(writes, b"%d" % (code or 0))
os._exit(code or 0)
"""


def run(words, *, cwd=".", env=os.environ, stdin="", terminal=False, streams=(), **options):
    """Call `hookline WORDS` to its end, as `subprocess.run(..., text=True)` does; or as a person at a terminal does.

    `streams` are other files for some of its streams, None for one that is closed. With `deleted` the folder is
    deleted once it is the current one. `typed` are the lines that the person types. `machine` stands for `/etc/hookline`, as a folder of root's, and `executable`
    for the interpreter that the command believes to be run by.
    """
    options = {name: str(value) if value else "" for name, value in options.items()}
    done = run_bytes(
        words, cwd=cwd, env=env, stdin=stdin.encode(), terminal=terminal, streams=dict(streams), **options
    )
    done.stdout, done.stderr = done.stdout.decode(), done.stderr.decode()
    return done


def run_bytes(words, *, cwd, env, stdin=b"", terminal=False, streams=None, **options):
    words = [str(word) for word in words]
    if terminal:
        env = {name: value for name, value in env.items() if name not in SIGNS}
    elif _for_python(env) != _for_python(os.environ):
        assert not streams
        assert not any(options.values())
        start = [sys.executable, "-m", "hookline", *words]
        return subprocess.run(start, cwd=cwd, env=env, input=stdin, capture_output=True, check=False)
    return _asked(_server(), words, cwd, env, stdin, streams or {}, terminal=terminal, **options)


def run_answer(words, *, cwd, env, stdin):
    """Call `hookline answer WORDS` where nothing is loaded that it does not always load, as in a new interpreter;
    also the names of the modules that it loaded besides."""
    assert _for_python(env) == _for_python(os.environ)
    server = _server("hookline.answer")
    server.loaded.unlink(missing_ok=True)
    done = _asked(server, ["answer", *words], cwd, env, stdin, {}, terminal=False)
    return done, set(server.loaded.read_text().split())


def _asked(server, *given, **options):
    try:
        return server.run(*given, **options)
    except BaseException:
        # What it says next belongs to this call.
        _server.cache_clear()
        raise


def _for_python(env):
    """The variables that an interpreter reads when it starts, but for the one about its output, which is a file here."""
    return {name: env[name] for name in env if name.startswith("PYTHON") and name != "PYTHONUNBUFFERED"}


class Server:
    """Forks with all of hookline, or with what one module of it loads."""

    def __init__(self, first):
        folder = tempfile.mkdtemp(prefix="hookline-forks-")
        self._files = {name: Path(folder, name) for name in STREAMS}
        self.loaded = Path(folder, "loaded")
        asks, self._asks = os.pipe()
        self._process = subprocess.Popen(
            [sys.executable, "-c", SERVER, str(asks), first, folder],
            env={name: os.environ[name] for name in os.environ if name not in ("PYTHONUNBUFFERED", *SIGNS)},
            pass_fds=[asks],
            stdout=subprocess.PIPE,
        )
        os.close(asks)

    def run(self, words, cwd, env, stdin, streams, **options):
        for name, file in self._files.items():
            # A new file each time: a process that a command left behind may still write to the old one.
            file.unlink(missing_ok=True)
            file.write_bytes(stdin if name == "stdin" else b"")
        files = {name: str(file) for name, file in self._files.items()}
        asked = {
            "words": words,
            "cwd": os.path.abspath(cwd),
            "env": dict(env),
            "loaded": str(self.loaded),
            "deleted": "",
            "machine": "",
            "executable": "",
            "typed": "",
            **options,
            **files,
            **streams,
        }
        os.write(self._asks, json.dumps(asked).encode() + b"\n")
        code = int(self._process.stdout.readline())
        said = [self._files[name].read_bytes() for name in STREAMS[1:]]
        return subprocess.CompletedProcess(words, code, *said)

    def close(self):
        os.close(self._asks)
        self._process.wait()
        self._process.stdout.close()


@functools.cache
def _server(first=""):
    made = Server(first)
    atexit.register(made.close)
    return made
