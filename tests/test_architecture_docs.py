"""docs/architecture.md is true: what it names is there, and each way goes along imports."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src/hookline"
PAGE = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
WAYS = [line for line in PAGE.splitlines() if " → " in line]


def named() -> list[str]:
    """Every file and folder that the page names."""
    return [name for name in re.findall(r"`([\w/.]+)`", PAGE) if "/" in name or name.endswith(".py")]


@pytest.mark.parametrize("name", sorted({*named()} - {"agent.py"}))
def test_what_is_named_is_there(name):
    assert (SOURCE / name).exists() or (ROOT / name).exists() or any(SOURCE.rglob(name)), name


def test_every_package_and_module_of_the_root_is_named():
    rooms = {f"{each.name}/" for each in SOURCE.iterdir() if (each / "__init__.py").exists()}
    modules = {each.name for each in SOURCE.glob("*.py") if not each.stem.startswith("__")}
    assert rooms | modules <= {*named()}


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.split("`")[1])
def test_a_way_goes_along_imports(way):
    first, *rest = re.findall(r"`([\w/.]+)`", way)
    reached = imports(first)
    for module in rest:
        assert module in reached, f"{module} is imported by none of those before it"
        reached |= imports(module)


def imports(module: str) -> set[str]:
    """The files of ours that a module imports anywhere in it."""
    found: set[str] = set()
    text = (SOURCE / module).read_text(encoding="utf-8")
    # The table of systems, and that of commands, import by name.
    if module == "systems.py":
        found |= {str(each.relative_to(SOURCE)) for each in SOURCE.glob("*/system.py")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "hookline":
            inner = (node.module or "").split(".")[1:]
            for parts in [inner, *([*inner, each.name] for each in node.names)]:
                found |= {"/".join(parts) + ".py", "/".join([*parts, "__init__.py"])}
    return found
