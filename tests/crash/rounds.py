"""`kill -9` at random moments of runs with hooks of a hook file around them: agents, a service, AgentRuns here and in a sandbox.

As a program: `python -m tests.crash.rounds [KILLS]`, with `HOOKLINE_SEED` to repeat a run. Every end that is owed must have
run, once or told as run again, and no process is left.
"""

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from hookline import SqliteJournal
from hookline.engine.record import Begun, Ended

SAY = 'echo "{} $HOOKLINE_RUN_ID" >> "$TRUTH"'
HOOKS = f"""hooks:
- {{name: before, on: run.start, shell: '{SAY.format("begin before")}; sleep 0.05'}}
- {{name: script, on: run.end, shell: '{SAY.format("begin script")}; sleep 0.05; {SAY.format("end script")}'}}
- {{name: function, on: run.end, python: 'own.py:function'}}
"""
OF_WORKSPACE = f"""- {{name: made, on: workspace.start, shell: '{SAY.format("end made")}'}}
- {{name: away, on: workspace.end, shell: '{SAY.format("begin away")}; {SAY.format("end away")}'}}
"""
OWN = """
import os
from hookline import HookResult

def function(ctx, c):
    with open(os.environ["TRUTH"], "a") as truth:
        truth.write(f"begin function {c.run_id}\\nend function {c.run_id}\\n")
    return HookResult.continue_with()
"""
AGENT = """
import time
from hookline import Agent, Scripted, tool

@tool
def work() -> str:
    time.sleep(0.1)
    return "done"

turn = {"tools": [{"name": "work", "arguments": {}}]}
agent = Agent(id="victim", model=Scripted([turn, turn, turn, "end"]), tools=[work])
last = Agent(id="last", model=Scripted(["end"]))
"""
AGENTRUN = """
apiVersion: sympozium.ai/v1alpha1
kind: AgentRun
metadata: {name: victim}
spec: {agentRef: oncall, task: look}
"""
WORKFLOW = """---
tracker: {kind: folder}
polling: {interval_ms: 100}
workspace: {root: work}
agent: {kind: command, command: AGENT, max_turns: 1, max_retry_backoff_ms: 200}
---
work
"""
WORK = """#!/bin/sh
sleep 0.3
name=$(basename "$PWD")
printf -- '---\\nstate: Done\\n---\\n' > "$ISSUES/.$name.part"
mv "$ISSUES/.$name.part" "$ISSUES/$name.md"
"""
LINE = re.compile(r"(begin|end) (\w+) (\S+)")
LATEST = 1.5
"""Seconds after its first hook when a run is killed at the latest."""


class Result(NamedTuple):
    kind: str
    kills: int
    runs: int
    again: int


class Scene:
    """One home, and the processes that come and go at it."""

    def __init__(self, folder: Path, kind: str, chance: random.Random) -> None:
        self.folder, self.kind, self.chance = folder, kind, chance
        self.truth, self.issues = folder / "truth", folder / "issues"
        self.issues.mkdir(parents=True)
        self.truth.touch()
        work = self._write("work.sh", WORK)
        work.chmod(0o755)
        self._write("agent.py", AGENT)
        self._write("run.yaml", AGENTRUN)
        self._write("WORKFLOW.md", WORKFLOW.replace("AGENT", str(work)))
        self.env = {
            **os.environ,
            "HOOKLINE_HOME": str(folder / "home"),
            "TRUTH": str(self.truth),
            "ISSUES": str(self.issues),
            "ROUNDS_MARK": str(folder),
        }

    def _write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        return file

    def start(self) -> subprocess.Popen[bytes]:
        """A start with the hooks, whose files are there only for it."""
        self._write("hooks.yaml", HOOKS + (OF_WORKSPACE if self.kind == "serve" else ""))
        self._write("own.py", OWN)
        return self._started("--hooks", "hooks.yaml", last=False)

    def _started(self, *more: str, last: bool) -> subprocess.Popen[bytes]:
        if self.kind == "serve":
            # Of the last one too: once that is done, the service is up and hears a signal.
            number = len(list(self.issues.glob("*.md")))
            (self.issues / f"A-{number}.md").write_text("---\nstate: Todo\n---\n")
        words = {
            "agent": ["run", f"agent.py:{'last' if last else 'agent'}", "go"],
            "serve": ["serve", "WORKFLOW.md"],
        }.get(self.kind)
        if words is None:
            command = "true" if last else "sleep 0.4"
            words = ["run", "run.yaml", "--on", self.kind.partition(" ")[2], "--agent-command", command]
        return subprocess.Popen(
            [sys.executable, "-m", "hookline", *words, "-q", *more],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def killed(self) -> bool:
        """One start that is killed at some moment after its first hook; True if it was still there."""
        # Most are killed at their own work, some while they end the runs before.
        before, mark = len(self.lines()), self.chance.choice(("before", "before", "before", ""))
        started = self.start()
        try:
            until(partial(self._has_begun, started, before, mark), "no hook ran")
            time.sleep(self.chance.uniform(0, LATEST))
        finally:
            alive = started.poll() is None
            started.kill()
            started.communicate()
        until(lambda: not self.processes(), "processes were left behind")
        way = self.chance.choice(("kept", "removed", "changed"))
        for name in () if way == "kept" else ("own.py", "hooks.yaml"):
            (self.folder / name).unlink()
        if way == "changed":
            self._write("own.py", "while True: pass\n")
        return alive

    def _has_begun(self, started: subprocess.Popen[bytes], before: int, mark: str) -> bool:
        return any(mark in line[1] for line in self.lines()[before:]) or started.poll() is not None

    def end(self) -> None:
        """The last start, without hooks: it ends all that is owed."""
        with self.journal() as journal:
            journal.rows("UPDATE retry SET due = 0")
        started = self._started(last=True)
        if self.kind == "serve":
            until(self._all_done, "issues were lost")
            started.send_signal(signal.SIGTERM)
        _, told = started.communicate(timeout=120)
        assert started.returncode == 0, (started.returncode, told.decode())
        until(lambda: not self.processes(), "processes were left behind")

    def _all_done(self) -> bool:
        texts = [file.read_text() for file in self.issues.glob("*.md")]
        work = self.folder / "work"
        return all("Done" in text for text in texts) and not [
            each for each in work.iterdir() if not each.name.startswith(".")
        ]

    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.folder / "home" / "journal.db")

    def lines(self) -> list[tuple[str, ...]]:
        return [found.groups() for found in LINE.finditer(self.truth.read_text())]

    def processes(self) -> list[str]:
        mark = f"ROUNDS_MARK={self.folder}\0".encode()
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and mark in _environ(pid)]


def _environ(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def until(holds, why: str, limit: float = 120) -> None:
    ends = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < ends, why
        time.sleep(0.02)


def rounds(kind: str, kills: int, folder: Path, chance: random.Random) -> Result:
    """This many kills of one kind, and the start that ends what they left; raises where an end was forgotten."""
    scene = Scene(folder, kind, chance)
    hit = 0
    for _ in range(10 * kills):
        hit += scene.killed()
        if hit == kills:
            break
    scene.end()
    return Result(kind, hit, *_checked(scene))


def _checked(scene: Scene) -> tuple[int, int]:
    """The number of runs with owed ends, and of those of which hooks were told to have run again."""
    begun, ended = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for when, hook, run in scene.lines():
        (begun if when == "begin" else ended)[hook, run] += 1
    again: set[str] = set()
    with scene.journal() as journal:
        assert journal.unfinished() == []
        for hook, run in begun:
            if hook != "before":
                continue
            for owed in ("script", "function"):
                assert ended[owed, run] >= 1, f"{owed} of {run} was forgotten"
        for (hook, run), count in begun.items():
            if count > 1:
                assert "run again" in _told(journal, run), f"{hook} of {run} ran {count} times, untold"
                again.add(run)
        for run in _workspaces(journal):
            # One that was made by the last start has no end hook.
            assert ended["away", run] >= ended["made", run], f"the workspace's end of {run} was forgotten"
    return len({run for hook, run in begun if hook == "before"}), len(again)


def _told(journal: SqliteJournal, run: str) -> str:
    return " ".join(f"{each.error} {each.output}" for each in journal.records(run) if isinstance(each, Ended))


def _workspaces(journal: SqliteJournal) -> Iterator[str]:
    """The runs of workspaces that were made whole, and so had something to end."""
    for row in journal.runs(limit=10_000):
        records = journal.records(row.run_id)
        first = next((each for each in records if isinstance(each, Begun)), None)
        if first is not None and first.scope == "workspace" and row.status == "ok":
            yield row.run_id


KINDS = ("agent", "serve", "agentrun local", "agentrun sandbox")


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    seed = os.environ.setdefault("HOOKLINE_SEED", str(random.randrange(1 << 32)))
    print(f"HOOKLINE_SEED={seed}", flush=True)
    chance = random.Random(int(seed))
    with tempfile.TemporaryDirectory() as place:
        os.environ |= {"XDG_STATE_HOME": f"{place}/state", "XDG_CONFIG_HOME": f"{place}/config"}
        for number, kind in enumerate(KINDS):
            part = (kills + number) // len(KINDS)
            found = rounds(kind, part, Path(place, kind.replace(" ", "-")), chance)
            print(
                f"{kind}: {found.kills} kills, {found.runs} runs with owed ends, {found.again} told as run again,"
                " 0 forgotten, 0 processes left",
                flush=True,
            )


if __name__ == "__main__":
    main()
