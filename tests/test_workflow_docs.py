"""The pages about WORKFLOW.md: every command of the guide runs, every key is listed, messages and answers agree."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.symphony.hooks import LOGGED
from hookline.symphony.read import missing_for_dispatch, read
from hookline.symphony.settings import AGENTS, FRONT_MATTER
from hookline.symphony.trackers import TRACKERS
from tools.symphony_rules import Rule, page, rules, wrong

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs/guides/workflow.md"
TROUBLE = ROOT / "docs/guides/workflow-troubleshooting.md"
REFERENCE = ROOT / "docs/reference/workflow-md.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ROW = re.compile(r"^\| `(\w+\.\w+)` \| (.*?) \| (.*?) \|$", re.MULTILINE)


class Newcomer:
    """Types what a page says, in a checkout of their own."""

    def __init__(self, folder: Path) -> None:
        self.at = folder / "checkout"
        shutil.copytree(ROOT / "examples", self.at / "examples")
        bin = folder / "bin"
        bin.mkdir()
        (bin / "hookline").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hookline "$@"\n')
        (bin / "hookline").chmod(0o755)
        self.env = {
            **os.environ,
            "PATH": f"{bin}:{os.environ['PATH']}",
            "HOOKLINE_HOME": str(folder / "home"),
            "COLUMNS": "80",
        }
        self._told = 0

    def types(self, block: str) -> str:
        """What is said to one block of commands; each of them has to work."""
        done = subprocess.run(
            ["sh", "-e", "-c", f"{block}\npwd > ../where"],
            cwd=self.at,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}"
        where = next(each for each in (self.at.parent / "where", self.at / "where") if each.exists())
        self.at = Path(where.read_text().strip())
        where.unlink()
        return done.stdout

    def starts(self, block: str) -> subprocess.Popen[bytes]:
        with (self.at / "said").open("wb") as said:
            return subprocess.Popen(
                ["sh", "-c", f"exec {block}"],
                cwd=self.at,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
            )

    def story(self) -> str:
        """What the hooks wrote since it was last read."""
        text = (self.at / "story.txt").read_text()
        new, self._told = text[self._told :], len(text)
        return new

    def waits_for(self, *names: str, service: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 90
        while not all((self.at / "done" / name).exists() for name in names):
            assert service.poll() is None, (self.at / "said").read_text()
            assert time.monotonic() < deadline, (self.at / "said").read_text()
            time.sleep(0.05)


def test_every_command_of_the_guide_runs_and_says_what_the_guide_says(tmp_path):
    newcomer = Newcomer(tmp_path)
    service = None
    try:
        for kind, block in BLOCK.findall(GUIDE.read_text()):
            if kind == "":
                assert newcomer.story() == block
            elif block.startswith("hookline serve"):
                service = newcomer.starts(block.strip())
                newcomer.waits_for("ABC-124", "ABC-125", service=service)
            elif service is not None and "issues/NEW-1.md" in block:
                newcomer.types(block)
                newcomer.waits_for("NEW-1", service=service)
                service.send_signal(signal.SIGINT)
                assert service.wait(60) == 0, (newcomer.at / "said").read_text()
                service = None
            elif kind == "sh":
                newcomer.types(block)
    finally:
        if service is not None:
            service.kill()
            service.wait()
    assert (newcomer.at / "done/NEW-1/hello.txt").read_text() == "hello\n"
    assert (newcomer.at / "done/ABC-123/announcement.txt").exists()


def test_the_files_of_the_guide_are_right(tmp_path):
    samples = [block for kind, block in BLOCK.findall(GUIDE.read_text()) if kind == "yaml"]
    assert samples
    for sample in samples:
        workflow = read(f"---\n{sample}---\nGo.\n", tmp_path / "WORKFLOW.md", {}, strict=True)
        assert workflow.warnings == missing_for_dispatch(workflow) == ()


@pytest.mark.statement("SW24", "SW25")
@pytest.mark.parametrize(
    ("script", "limit", "section"),
    [("sleep 600", 300, "## A hook times out"), ("exit 7", 60000, "## after_create fails repeatedly")],
)
def test_the_message_of_a_hook_that_failed_gives_the_answer_of_the_page(tmp_path, script, limit, section):
    newcomer = Newcomer(tmp_path)
    file = newcomer.at / "examples/symphony/WORKFLOW.md"
    text = file.read_text().replace("after_create: |\n", f"after_create: |\n    {script}\n")
    file.write_text(text.replace("timeout_ms: 10000", f"timeout_ms: {limit}"))
    done = subprocess.run(
        ["hookline", "run", "WORKFLOW.md", "--issue", "ABC-123"],
        cwd=file.parent,
        env=newcomer.env,
        capture_output=True,
        text=True,
        check=False,
    )
    part = TROUBLE.read_text().partition(section)[2].partition("\n## ")[0]
    [answer] = re.findall(r"^> (.+)$", part, re.MULTILINE)
    assert done.returncode == 1
    assert answer in " ".join(done.stderr.split()), done.stderr


@pytest.mark.statement("SW26", "SW28")
def test_the_page_says_how_much_of_an_output_is_logged():
    part = TROUBLE.read_text().partition("## The output of a hook is not visible")[2]
    assert f"cut to {LOGGED} bytes" in part


def test_every_key_is_in_the_reference_with_what_it_says():
    listed = {key: says for key, _, says in ROW.findall(REFERENCE.read_text())}
    known = {
        f"{part}.{key}": each.doc
        for part, section in FRONT_MATTER.keys.items()
        for key, each in section.read.table.keys.items()
    }
    assert listed == known


def test_every_default_of_the_reference_holds(tmp_path):
    """A file with all of them written out is the same as one with none."""
    told = {key: default.strip("` ") for key, default, _ in ROW.findall(REFERENCE.read_text())}
    empty = read("Go.", tmp_path / "WORKFLOW.md", {})
    lines: dict[str, list[str]] = {}
    for key, default in told.items():
        part, _, name = key.partition(".")
        if default and key not in DESCRIBED:
            value = f"[{default.partition(';')[0]}]" if name.endswith("_states") else default
            lines.setdefault(part, []).append(f"  {name}: {value}")
    text = "".join(f"{part}:\n" + "\n".join(each) + "\n" for part, each in lines.items())
    written = read(f"---\n{text}---\nGo.", tmp_path / "WORKFLOW.md", {}, strict=True)
    for part in ("tracker", "polling", "hooks", "agent", "codex", "server", "root"):
        assert getattr(written, part) == getattr(empty, part)
    silent = {key for key, default in told.items() if not default}
    assert {key for key in silent if getattr(getattr(empty, key.split(".")[0]), key.split(".")[1])} == set()


DESCRIBED = {"workspace.root"}


@pytest.mark.rule("M38")
def test_every_tracker_and_agent_is_in_the_reference_with_its_settings():
    text = REFERENCE.read_text()
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    for kind, known in TRACKERS.items():
        [row] = [each for each in rows if f"`{kind}`" in each.split("|")[1]]
        about, identifier = (cell.strip() for cell in row.split("|")[2:4])
        assert all((about, identifier)), kind
        assert [setting for setting in known.settings if f"`{setting}`" not in row] == [], kind
    assert [kind for kind in AGENTS if f"| `{kind}` |" not in text] == []


def test_all_of_symphonys_rules_are_listed():
    numbers = {"C": 11, "W": 35, "O": 31, "M": 91}
    assert set(rules()) == {f"{kind}{n}" for kind, most in numbers.items() for n in range(1, most + 1)}


def test_a_rule_without_a_test_or_a_reason_is_told_and_so_is_one_that_is_not_there():
    rows = {
        "W1": Rule("W1", "the file", "is shown"),
        "W2": Rule("W2", "the file", "is open"),
        "M1": Rule("M1", "matrix", "is not owed", "not applicable: elsewhere"),
    }
    tests = {"W1": ["tests/test_a.py::test_x"], "W9": ["tests/test_a.py::test_y"]}
    told = list(wrong(rows, tests))
    assert [line.split()[0] for line in told] == ["W2", "tests/test_a.py::test_y:"]
    text = page(rows.values(), tests)
    assert "3 rules: 1 shown by a test, 1 set aside with a reason." in text
    assert "| W2 | is open | not yet |" in text
    assert "| M1 | is not owed | not applicable: elsewhere |" in text
