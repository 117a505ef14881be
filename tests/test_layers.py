"""Imports point down only: the rows of the design, checked on the source text.

Every import counts, also one inside a function or under TYPE_CHECKING.
"""

import ast
import functools
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tools.figures import statements

SOURCE = Path(__file__).parents[1] / "src"


class Row(NamedTuple):
    """`name` is that one module, `name/` a package with all that is in it and in no other row."""

    members: str
    engine: bool = False
    siblings_apart: bool = False


# From the top down. A module may import from the rows below its own; from its own row too, unless the
# siblings are kept apart (a package is free inside itself). Nothing may import in a circle.
ROWS = (
    Row("__main__ cli/"),
    Row("systems"),
    Row("pyagent/ kagent/ symphony/ sympozium/ answer adapters/", siblings_apart=True),
    Row("hookfile/ claude/ agent/ kube/"),
    Row("terminal"),
    Row("handlers/ images/"),
    Row("runners/ journal/ guards/"),
    Row("source table matcher options http_server"),
    # Small things that all share, with nothing but the standard library.
    Row("http_client files tasks", engine=True),
    Row("engine/ errors secrets/", engine=True),
)

# The public names. It may reach anywhere, but what it loads at once is the engine; only the top row imports it.
FACADE = "hookline"

HEAVY = ("anthropic", "lightkube", "openai", "pydantic", "re2", "regex", "rich", "yaml")


def test_every_module_keeps_to_its_row():
    told = wrong_imports(SOURCE)
    assert not told, "\n".join(told)


def test_no_modules_import_in_a_circle():
    assert circle(SOURCE) is None


def test_importing_hookline_loads_nothing_heavy():
    code = f"import sys, hookline; print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr


# Each file of a made-up tree, and what is said about it.
WRONG = {
    "up": (
        {"engine/point.py": "from hookline.journal.sqlite import Sqlite", "journal/sqlite.py": ""},
        "hookline.engine.point imports hookline.journal.sqlite, which is above it",
    ),
    "up, relative": (
        {"journal/__init__.py": "from ..terminal import out", "terminal.py": ""},
        "hookline.journal imports hookline.terminal",
    ),
    "up, a module as a name": (
        {"terminal.py": "from hookline import systems", "systems.py": ""},
        "imports hookline.systems",
    ),
    "inside a function": (
        {"engine/point.py": "def f():\n    import hookline.source", "source.py": ""},
        "hookline.engine.point imports hookline.source",
    ),
    "for types only": (
        {"errors.py": "if typing.TYPE_CHECKING:\n    from hookline.source import Document", "source.py": ""},
        "hookline.errors imports hookline.source",
    ),
    "a sibling": (
        {"kagent/load.py": "from hookline.pyagent.run import x", "pyagent/run.py": ""},
        "hookline.kagent.load imports hookline.pyagent.run, a sibling it must not know",
    ),
    "an adapter": (
        {"answer.py": "import hookline.adapters.adk"},
        "hookline.answer imports hookline.adapters.adk, a sibling",
    ),
    "a library in the engine": (
        {"engine/context.py": "import pydantic"},
        "hookline.engine.context imports pydantic; the engine",
    ),
    "the public names from inside": (
        {"handlers/http.py": "from hookline import HookResult"},
        "hookline.handlers.http imports hookline, which is above it",
    ),
    "the public names too eager": (
        {"__init__.py": "from hookline.agent.loop import Agent"},
        "hookline imports hookline.agent.loop at once",
    ),
    "the public names and a library": ({"__init__.py": "import yaml"}, "hookline imports yaml at once"),
    "a module without a row": ({"surprise.py": ""}, "hookline.surprise is in no row; add it to ROWS"),
    "a target without a row": (
        {"systems.py": "import hookline.nowhere"},
        "hookline.nowhere is in no row; add it to ROWS",
    ),
}


@pytest.mark.parametrize(("files", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_import_is_told(tmp_path, files, said):
    told = wrong_imports(tree(tmp_path, files))
    assert len(told) == 1
    assert said in told[0]


def test_right_imports_are_not_told(tmp_path):
    files = {
        "__init__.py": (
            "import sys\nfrom typing import TYPE_CHECKING\nfrom hookline.engine.point import Point\n"
            "if TYPE_CHECKING:\n    from hookline.agent.loop import Agent\n"
            "def __getattr__(name):\n    from hookline.agent.loop import Agent\n    return Agent"
        ),
        "engine/point.py": "from __future__ import annotations\nimport enum",
        "engine/lifecycle.py": "from .pipeline import fire\nfrom . import record",
        "engine/pipeline.py": "from hookline.engine.point import Point",
        "engine/record.py": "",
        "journal/sqlite.py": "import sqlite3, pydantic\nfrom .schema import TABLES",
        "journal/schema.py": "",
        "handlers/process.py": "from hookline.runners import Runner",
        "agent/loop.py": "from hookline.handlers import process\nfrom hookline.hookfile import read",
        "hookfile/read.py": "from hookline.source import load",
        "source.py": "",
        "pyagent/run.py": "from hookline.agent.loop import loop",
        "systems.py": "from hookline.pyagent import run",
        "cli/app.py": "import rich, hookline\nfrom hookline import kube, systems",
    }
    assert wrong_imports(tree(tmp_path, files)) == []


def test_a_circle_is_told(tmp_path):
    files = {
        "claude/__init__.py": "from hookline.claude import wire",
        "claude/wire.py": "from hookline.claude import X",
    }
    told = circle(tree(tmp_path, files))
    assert told == "hookline.claude -> hookline.claude.wire -> hookline.claude"


def tree(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        file = folder / "hookline" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return folder


def wrong_imports(source: Path) -> list[str]:
    """One message for each import that breaks a rule, and for each module that has no row."""
    modules = found_modules(source)
    told = [no_row(name) for name in modules if name != FACADE and place(name) is None]
    for name, file in modules.items():
        for target in imports(file, name, modules, eager=name == FACADE):
            complaint = judge(name, target)
            if complaint and complaint not in told:
                told.append(complaint)
    return told


def judge(name: str, target: str) -> str | None:
    """What is wrong with this module importing that one, if anything."""
    ours = target == FACADE or target.startswith(FACADE + ".")
    goal = place(target) if ours else None
    if ours and target != FACADE and goal is None:
        return no_row(target)
    if name == FACADE:
        allowed = ROWS[goal[0]].engine if goal else target in sys.stdlib_module_names
        return None if allowed else f"{name} imports {target} at once; that is for the engine only"
    here = place(name)
    if here is None:
        return None
    row = ROWS[here[0]]
    if not ours:
        allowed = not row.engine or target in sys.stdlib_module_names
        return None if allowed else f"{name} imports {target}; the engine uses the standard library only"
    if goal is None:
        return None if here[0] == 0 else f"{name} imports {target}, which is above it"
    if goal[0] < here[0]:
        return f"{name} imports {target}, which is above it"
    if goal[0] == here[0] and goal[1] != here[1] and row.siblings_apart:
        return f"{name} imports {target}, a sibling it must not know"
    return None


def place(name: str) -> tuple[int, str] | None:
    """The row's number and the member of it that this module belongs to."""
    inner = name.removeprefix(FACADE + ".")
    for member in (inner, inner.partition(".")[0] + "/"):
        for number, row in enumerate(ROWS):
            if member in row.members.split():
                return number, member
    return None


def no_row(name: str) -> str:
    return f"{name} is in no row; add it to ROWS in tests/test_layers.py, in the lowest row that fits"


def circle(source: Path) -> str | None:
    """The modules of one import circle, if there is one. The public names are left out: they only gather."""
    modules = found_modules(source)
    graph = {
        name: {target for target in imports(file, name, modules) if target in modules} - {name, FACADE}
        for name, file in modules.items()
        if name != FACADE
    }
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        # The sorter lists who is needed before who; importing reads the other way round.
        ring = list(reversed(error.args[1]))[1:]
        first = ring.index(min(ring))
        ring = ring[first:] + ring[:first]
        return " -> ".join([*ring, ring[0]])
    return None


def found_modules(source: Path) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for file in sorted((source / FACADE).rglob("*.py")):
        parts = file.relative_to(source).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path, name: str, modules: dict[str, Path], *, eager: bool = False) -> Iterator[str]:
    """What a file imports: our modules by full name, others by their top name."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in import_statements(file, eager):
        if isinstance(node, ast.Import):
            yield from (known(alias.name) for alias in node.names)
        else:
            base = absolute(node, package)
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in modules else known(base)


@functools.cache
def import_statements(file: Path, eager: bool) -> list[ast.Import | ast.ImportFrom]:
    text = ast.parse(file.read_text(encoding="utf-8"), str(file))
    found = at_once(text) if eager else statements(text)
    return [node for node in found if isinstance(node, ast.Import | ast.ImportFrom)]


def absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def known(name: str) -> str:
    top = name.partition(".")[0]
    return name if top == FACADE else top


def at_once(text: ast.Module) -> Iterator[ast.AST]:
    """The nodes that run when the module is imported, without functions and what is for types only."""
    waiting: list[ast.AST] = list(text.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        yield node
        if isinstance(node, ast.If) and for_types_only(node.test):
            waiting.extend(node.orelse)
        else:
            waiting.extend(ast.iter_child_nodes(node))


def for_types_only(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )
