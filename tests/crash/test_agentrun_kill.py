"""`kill -9` of an AgentRun at random moments: postRun runs, the workspace goes, the phase is right, nothing is left."""

import os
import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path

import pytest

from hookline import SqliteJournal
from hookline.engine.record import Ended
from tests.runners.places import IMAGE, installed, made_image

MANIFEST = """
apiVersion: sympozium.ai/v1alpha1
kind: AgentRun
metadata: {name: victim}
spec:
  agentRef: oncall
  task: look
  env: {TRUTH: "@TRUTH"}
  lifecycle:
    preRun:
      - {name: one, image: x, command: [sh, -c, "echo x > $WORKSPACE/file; @SAY begin one; sleep 0.1; @SAY end one"]}
      - {name: two, image: x, command: [sh, -c, "if [ -n \\"$SKIP\\" ]; then echo no > $IPC_DIR/control/skip; fi; @SAY end two"]}
    postRun:
      - {name: three, image: x, command: [sh, -c, "@SAY begin three; test -e $WORKSPACE/file || @SAY empty workspace; sleep 0.1; @SAY end three; exit 1"]}
      - {name: four, image: x, command: [sh, -c, "@SAY begin four; sleep 0.1; @SAY end four"]}
"""
AGENT = 'echo "$AGENT_RUN_ID code= begin agent" >> $TRUTH; sleep 0.2; echo "$AGENT_RUN_ID code= end agent" >> $TRUTH'
# How much later than its first hook a run is killed at most; a container takes its time to start.
LATEST = {"local": 1.2, "sandbox": 1.2, "container": 5.0}
LINE = re.compile(r"(\S+) code=(\d*) (begin|end|empty) (\w+)")


class Scene:
    """One home, and the processes that come and go at it."""

    def __init__(self, folder: Path, on: str) -> None:
        self.folder, self.on, self.truth = folder, on, folder / "truth.log"
        self.truth.touch()
        say = "echo $AGENT_RUN_ID code=$AGENT_EXIT_CODE {} >> $TRUTH".format
        text = re.sub(r"@SAY ([a-z]+ [a-z]+)", lambda found: say(found[1]), MANIFEST)
        text = text.replace("image: x", f"image: {IMAGE}").replace("@TRUTH", str(self.truth))
        (folder / "run.yaml").write_text(text)
        self.env = {**os.environ, "HOOKLINE_HOME": str(folder / "home"), "SCENE_MARK": str(folder)}

    def start(self, what: str, given: str, skip: bool = False) -> subprocess.Popen[bytes]:
        options = ["--on", self.on, "--quiet", *(["--env", "SKIP=1"] if skip else [])]
        options += ["--agent-command", f"sh -c '{AGENT}'", "--mount", f"{self.truth}:{self.truth}:rw"]
        options += ["--agent-image", IMAGE]
        words = ["--resume", given, "--on", self.on, "--quiet"] if what == "resume" else [given, *options]
        return subprocess.Popen(
            [sys.executable, "-m", "hookline", "run", *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, skip: bool = False) -> subprocess.Popen[bytes]:
        return self.start("run", str(self.folder / "run.yaml"), skip)

    def lines(self) -> list[tuple[str, ...]]:
        return [found.groups() for found in LINE.finditer(self.truth.read_text())]

    def journal(self) -> SqliteJournal:
        return SqliteJournal(self.folder / "home" / "journal.db")

    def broken_off(self) -> list[str]:
        journal = self.journal()
        try:
            return [row.run_id for row in journal.unfinished()]
        finally:
            journal.close()

    def processes(self) -> list[str]:
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self._is_ours(pid)]

    def _is_ours(self, pid: str) -> bool:
        try:
            environ = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False
        return f"={self.folder}\0".encode() in environ or f"={self.truth}\0".encode() in environ

    def containers(self) -> list[str]:
        """All that have the truth mounted, running or not."""
        if self.on != "container":
            return []
        words = ["podman", "ps", "--all", "--quiet", "--filter", f"volume={self.truth}"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    def nothing_left(self) -> bool:
        return not self.processes() and not self.containers()

    def left(self) -> list[str]:
        place = self.folder / "home" / "agentruns"
        return [each.name for each in place.iterdir() if each.is_dir()] if place.is_dir() else []


def until(holds, why: str, limit: float = 90) -> None:
    ends = time.monotonic() + limit
    while not holds():
        assert time.monotonic() < ends, why
        time.sleep(0.02)


@pytest.mark.rule("sympozium 2.2", "sympozium B5", "sympozium B9", "sympozium 1.17.12")
@pytest.mark.real
@pytest.mark.parametrize(
    ("on", "rounds"),
    [("local", 50), ("sandbox", 50), ("container", 15)],
)
@pytest.mark.timeout(900)
def test_a_run_that_is_killed_is_ended_by_the_next_start_or_by_resume(tmp_path, rounds, on, chance):
    if on == "sandbox":
        installed(bwrap="bubblewrap")
    if on == "container":
        made_image(tmp_path)
    scene = Scene(tmp_path, on)
    for _ in range(rounds):
        before = len(scene.lines())
        started = scene.run(skip=chance.random() < 0.2)
        # From its first hook on, so that it is not killed while it only imports.
        until(partial(_has_begun, scene, started, before), "no hook ran")
        time.sleep(chance.uniform(0, LATEST[on]))
        started.kill()
        started.communicate()
        until(scene.nothing_left, "processes or containers were left behind")
        if chance.random() < 0.5:
            for run_id in scene.broken_off():
                resumed = scene.start("resume", run_id)
                _, told = resumed.communicate(timeout=90)
                assert resumed.returncode in (0, 1), told.decode()
    last = scene.run()
    _, told = last.communicate(timeout=90)
    assert last.returncode == 0, told.decode()
    until(scene.nothing_left, "processes or containers were left behind")
    assert scene.left() == []
    _every_run_ended_as_it_should(scene)


def _has_begun(scene: Scene, started: subprocess.Popen[bytes], before: int) -> bool:
    return len(scene.lines()) > before or started.poll() is not None


def _every_run_ended_as_it_should(scene: Scene) -> None:
    lines: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for run, *rest in scene.lines():
        lines[run].append(tuple(rest))
    journal = scene.journal()
    assert journal.unfinished() == []
    for run, said in lines.items():
        (ended,) = (each for each in journal.records(run) if isinstance(each, Ended) and each.scope == "run")
        status = ended.output
        codes = {code for code, _, hook in said if hook in ("three", "four")}
        begun = Counter(hook for _, when, hook in said if when == "begin")
        if begun["one"]:  # what it says first comes after what it writes
            assert ("1", "empty", "workspace") not in said, f"postRun of {run} did not see its workspace"
            assert ("0", "empty", "workspace") not in said, f"postRun of {run} did not see its workspace"
        if status["phase"] == "Skipped":
            assert not codes, f"postRun of {run} ran after a skip"
            assert ("", "end", "two") in said
            assert begun["agent"] == 0
            continue
        assert ("end", "three") in {each[1:] for each in said}, f"postRun of {run} was forgotten"
        assert ("end", "four") in {each[1:] for each in said}, f"postRun of {run} was forgotten"
        assert codes == ({"0"} if status["phase"] == "Succeeded" else {"1"}), f"{run} was told two endings"
        if status["phase"] == "Succeeded":
            assert ("", "end", "agent") in said
        assert [each["type"] for each in status["conditions"]] == ["PostRunFailed"]
        assert begun["agent"] <= 1
        for hook in ("three", "four"):
            assert begun[hook] == 1 or "run again" in status["note"], f"{hook} of {run} ran twice, untold"
    journal.close()
