"""Snapshots of what users see: commands run from outside, and text files to compare their words with.

Nothing of hookline is imported: what is compared must not depend on how it is built inside.
"""

import difflib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from tests import forks

ROOT = Path(__file__).resolve().parents[1]
FOLDER = Path(__file__).with_name("snapshots")
REWRITE = "HOOKLINE_SNAPSHOTS=write .venv/bin/python -m pytest tests/test_snapshots.py"
WIDTH = 110  # JSON that is longer is written over several lines

NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
TOOK = rf"{NUMBER} (?:us|ms|s|min)"
ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"

# What is another with every run. A limit ("limit 60 s") or an exit code is never among it.
VARIES = (
    (rf"\b{ISO}", "<time>"),
    (rf'("(?:at|began|ended)": ?){NUMBER}', r'\1"<time>"'),
    (rf'("seconds": ?){NUMBER}', r'\1"<seconds>"'),
    (r'("owner": ?)\["[^"]+", ?\d+, ?"[^"]+"\]', r'\1"<owner>"'),
    (rf"(?<=, ){TOOK}$", "<took>"),  # in the log of a hook
    (rf"(?<=<time>) +{TOOK}", "  <took>"),  # in a table, with its heading
    (r"\bbegan +took\b", "began  took"),
    (rf"(?<=  ){TOOK}(?=  |$)", "<took>"),  # in a tree
    (rf"\bduration={NUMBER}s\b", "duration=<took>"),
    (r"\(\S+, process \d+, calls\b", "(<client>, process <pid>, calls"),
    (
        r"\bby \S+ at (the asking terminal, )?/dev/pts/\d+(?:, from \S+ \(process \d+\))?",
        r"by <user> at \1<terminal>",
    ),
    (r"/dev/pts/\d+", "<terminal>"),
)
# What is written is compared too: JSON in another form than these stays as it is.
ENCODERS = [
    json.JSONEncoder(separators=separators, ensure_ascii=ascii)
    for separators in ((", ", ": "), (",", ":"))
    for ascii in (True, False)
]
# Names made anew each time; they are numbered as they appear, so that two stay two.
MADE = {
    "run": re.compile(r"\b[0-9a-z]{6}-[0-9a-f]{6}\b"),
    "moment": re.compile(r"(?<=\w-)[0-9a-f]{16}\b"),
}


def normal(text: str, places: Iterable[tuple[Path, str]] = ()) -> str:
    """The text without what varies."""
    for place, name in places:
        text = text.replace(str(place), name)
    for pattern, instead in VARIES:
        text = re.sub(pattern, instead, text, flags=re.MULTILINE)
    for kind, pattern in MADE.items():
        numbers = {made: number for number, made in enumerate(dict.fromkeys(pattern.findall(text)), 1)}
        text = pattern.sub(lambda found, kind=kind, numbers=numbers: f"<{kind} {numbers[found[0]]}>", text)
    return text


class Project:
    """A folder with the examples and fixtures, and `hookline` as it is called there; what is said is kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "project"
        self.said: list[str] = []
        self.places = ((folder, "<tmp>"), (Path(sys.executable).parent, "<bin>"), (ROOT, "<repo>"))
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "user"),
            "HOOKLINE_HOME": str(folder / "home"),
            "COLUMNS": "80",
            "LANG": "C.UTF-8",
            "LOGNAME": "ana",
            "NO_COLOR": "1",
            "TZ": "UTC",
        }
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "examples", self.folder / "examples", ignore=ignored)
        shutil.copytree(ROOT / "tests/fixtures/sympozium", self.folder / "fixtures/sympozium", ignore=ignored)
        shutil.copytree(FOLDER / "wrong", self.folder / "wrong", ignore=ignored)
        # The digest of a folder of hooks counts its modes, and a checkout those of its user.
        for file in filter(Path.is_file, self.folder.rglob("*")):
            file.chmod(0o755 if file.stat().st_mode & 0o100 else 0o644)

    def run(
        self,
        *arguments: str,
        stdin: str = "",
        given: str = "",
        cwd: str = ".",
        wide: bool = False,
        terminal: bool = False,
        typed: str = "",
    ) -> str:
        """Call `hookline ARGUMENTS`, keep what it says and return its standard output.

        `given` is how a reader is told of `stdin`. Widths are those of no terminal with `wide`, because a line
        with a duration in it is else broken here or there. With `terminal` a person calls, who has `typed` a line.
        """
        env = self._environ(wide)
        done = forks.run(
            arguments, cwd=self.folder / cwd, env=env, stdin=stdin, terminal=terminal, typed=typed
        )
        self.keep(arguments, done.returncode, done.stdout, done.stderr, given)
        return done.stdout

    def start(self, *arguments: str, cwd: str = ".", wide: bool = False) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "hookline", *arguments],
            cwd=self.folder / cwd,
            env=self._environ(wide),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def _environ(self, wide: bool) -> dict[str, str]:
        return {**self.environ, **({"COLUMNS": "1000"} if wide else {})}

    def keep(self, arguments: Iterable[str], code: int, out: str, err: str, given: str = "") -> None:
        parts = [f"$ hookline {shlex.join(arguments)}{given and f' < {given}'}\nexit {code}\n"]
        parts += [f"--- {name}\n{ended(text)}" for name, text in (("stdout", out), ("stderr", err)) if text]
        self.said.append("".join(parts))

    def note(self, title: str, text: str) -> None:
        """Keep the text of a file that was written."""
        self.said.append(f"--- {title}\n{ended(text)}")

    def text(self) -> str:
        return laid_out(normal("\n".join(self.said), self.places))


def ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n(no newline at the end)\n"


def laid_out(text: str) -> str:
    """The text with its long lines of JSON over several, so that a difference is seen; only blanks are added."""
    return "".join(line if len(line) <= WIDTH else folded(line) for line in text.splitlines(keepends=True))


def folded(line: str) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return line
    for encoder in ENCODERS:
        if encoder.encode(value) == line.rstrip("\n"):
            return spread(value, encoder) + "\n"
    return line


def spread(value: object, encoder: json.JSONEncoder, indent: str = "") -> str:
    flat = encoder.encode(value)
    if len(indent + flat) <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    inner = indent + " "
    if isinstance(value, dict):
        opened, closed = "{}"
        keys = [f"{encoder.encode(key)}{encoder.key_separator}" for key in value]
        parts = [key + spread(item, encoder, inner) for key, item in zip(keys, value.values(), strict=True)]
    else:
        opened, closed = "[]"
        parts = [spread(item, encoder, inner) for item in value]
    between = f"{encoder.item_separator.rstrip()}\n{inner}"
    return f"{opened}\n{inner}{between.join(parts)}\n{indent}{closed}"


def writes() -> bool:
    """True if snapshots are to be written; in CI they never are."""
    if os.environ.get("HOOKLINE_SNAPSHOTS") != "write":
        return False
    if os.environ.get("HOOKLINE_CI") == "1":
        pytest.fail("HOOKLINE_SNAPSHOTS=write is refused where HOOKLINE_CI=1")
    return True


def difference(name: str, text: str, folder: Path = FOLDER) -> str:
    """A unified diff between the snapshot and the text; empty where they are the same, or it was written."""
    file = folder / name
    if writes():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    kept = file.read_text(encoding="utf-8") if file.exists() else ""
    lines = difflib.unified_diff(
        kept.splitlines(keepends=True),
        text.splitlines(keepends=True),
        f"{file.name} (kept)",
        f"{file.name} (now)",
    )
    return "".join(lines)


def same(said: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Fail with the differences, if there are any, between snapshots and what is said now."""
    found = {name: difference(name, text, folder) for name, text in said.items()}
    changed = [name for name, lines in found.items() if lines]
    if changed:
        told = f"not as they were: {', '.join(changed)}; if that is right: {REWRITE}"
        pytest.fail("\n\n".join([told, *(found[name] for name in changed)]), pytrace=False)
