"""`hookline answer` on its short way and on its long one: what each says and keeps."""

import json
import os
import shutil
import sqlite3
import subprocess
import sys

from hookline.answer import LONG
from hookline.journal.encoding import decoded
from tests import forks
from tests.command import approve

_IMPORT = "import time:"
CALL = {
    "session_id": "s1",
    "hook_event_name": "PreToolUse",
    "tool_name": "TodoWrite",
    "tool_input": {"todos": ["x"]},
    "tool_use_id": "t1",
}


class Ways:
    """Asks `hookline answer` on either way, each time with a journal of its own beside an approval made once."""

    def __init__(self, folder):
        self.folder = folder
        self.approved = folder / "approved"
        self._count = 0

    def environ(self, home, **more):
        known = {**os.environ, "HOOKLINE_HOME": str(home), "NO_COLOR": "1", **more}
        return {name: value for name, value in known.items() if name != LONG or name in more}

    def write(self, text, name="hookline.yaml"):
        (self.folder / name).write_text(text.replace("PYTHON", sys.executable))

    def approve(self):
        approve(self.folder / "hookline.yaml", self.environ(self.approved))

    def command(self, *words, home=None, stdin=b"", options=(), **more):
        environ = self.environ(home or self.approved, **more)
        if not options:
            return forks.run_bytes(words, cwd=self.folder, env=environ, stdin=stdin)
        return subprocess.run(
            [sys.executable, *options, "-m", "hookline", *words],
            cwd=self.folder,
            env=environ,
            input=stdin,
            capture_output=True,
            check=False,
        )

    def home(self):
        self._count += 1
        home = self.folder / f"home{self._count}"
        shutil.copytree(self.approved, home, ignore=shutil.ignore_patterns("journal.db*"))
        return home

    def event(self, **changes):
        return json.dumps({**CALL, "cwd": str(self.folder), **changes}).encode()

    def both(self, *words, stdin, **more):
        """What each way said and kept."""
        return [self.asked(*words, stdin=stdin, **way, **more) for way in ({}, {LONG: "1"})]

    def asked(self, *words, stdin, options=(), **more):
        home = self.home()
        done = self.command("answer", *words, home=home, stdin=stdin, options=options, **more)
        return (done.returncode, done.stdout, done.stderr), kept(home)

    def short(self, *words, stdin, **more):
        """What was said and kept where only the short way is loaded, and the modules that were loaded besides."""
        home = self.home()
        environ = self.environ(home, **more)
        done, loaded = forks.run_answer(words, cwd=self.folder, env=environ, stdin=stdin)
        return ((done.returncode, done.stdout, done.stderr), kept(home)), loaded

    def loaded(self, *words, stdin, **more):
        """What was said and kept in a new interpreter, and the modules that were loaded on the way."""
        (code, stdout, stderr), records = self.asked(
            *words, stdin=stdin, options=("-X", "importtime"), **more
        )
        lines = stderr.decode().splitlines(keepends=True)
        modules = {line.rpartition("|")[2].strip() for line in lines if line.startswith(_IMPORT)}
        said = "".join(line for line in lines if not line.startswith(_IMPORT))
        return ((code, stdout, said.encode()), records), modules


def kept(home):
    """The records of a journal, without what differs from one call to the next."""
    if not (home / "journal.db").exists():
        return []
    with sqlite3.connect(home / "journal.db") as db:
        rows = db.execute("SELECT run_id, body FROM record ORDER BY seq").fetchall()
        runs = db.execute("SELECT scope, name, status, error, source FROM run ORDER BY began").fetchall()
    db.close()
    found = [decoded(run_id, fields) for run_id, body in rows for fields in json.loads(body)]
    return [*runs, *(plain(record) for record in found)]


def plain(record):
    kept = {**record._asdict(), "at": 0, "seconds": 0, "kind": type(record).__name__}
    kept["scope_id"] = kept["scope_id"].rpartition("-")[0]
    kept["run_id"] = kept["run_id"].partition("-")[0] if kept["run_id"][-1].isdigit() else kept["run_id"]
    return kept
