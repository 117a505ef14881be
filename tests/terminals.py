"""A program at a terminal of its own, as a person has one: what it shows is read, and answers are typed."""

import os
import pty
import re
import select
import sys
import time
from pathlib import Path

import pytest

HOOKLINE = str(Path(sys.executable).with_name("hookline"))
"""The installed command."""
_LONGEST = 60.0


class Terminal:
    """A process at the other end of a new terminal; `shown` is all that was read of it."""

    def __init__(self, words, *, cwd, env):
        self.shown = ""
        self._code = None
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            try:
                os.chdir(cwd)
                os.execvpe(words[0], words, env)
            finally:
                os._exit(127)

    def until(self, word):
        """Read until the word is shown, or until the end if that comes first; all that was shown so far."""
        ends = time.monotonic() + _LONGEST
        while word is None or word not in self.shown:
            if not select.select([self._fd], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise AssertionError(f"{word!r} was not shown: {self.shown}")
            try:
                piece = os.read(self._fd, 65536)
            except OSError:  # the other side is closed
                break
            self.shown += piece.decode(errors="replace")
        return self.shown

    def type(self, text):
        os.write(self._fd, text.encode())

    def ended(self):
        """The exit code, once all was read."""
        self.until(None)
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return self._code

    def close(self):
        os.close(self._fd)
        if self._code is None:
            os.waitpid(self._pid, 0)


def code_in(shown):
    """The code of a question, as a person reads it."""
    return re.search(r"another terminal: ([A-Z2-9]{4}-[A-Z2-9]{4})", shown)[1]


class Screen:
    """A terminal that the codes of questions are shown at; its `name` is for `--code-to`."""

    def __init__(self):
        self._shows, self._shown = os.openpty()
        self.name = os.ttyname(self._shown)

    def code(self):
        """The next code, as a line to type."""
        text = ""
        while not text.endswith("\n"):
            assert select.select([self._shows], [], [], _LONGEST)[0], "no code is shown"
            text += os.read(self._shows, 4096).decode()
        return f"{code_in(text)}\n"

    def close(self):
        os.close(self._shows)
        os.close(self._shown)


@pytest.fixture
def screen():
    made = Screen()
    yield made
    made.close()


@pytest.fixture
def terminal(hookline):
    """Opens terminals with `hookline ARGUMENTS` in them; they are closed at the end."""
    opened = []

    def at(*words, **more):
        opened.append(Terminal(words, cwd=hookline.folder, env={**hookline.environ, **more}))
        return opened[-1]

    yield at
    for each in opened:
        each.close()
