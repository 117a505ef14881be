"""Prints the figures of the source tree that are to fall: names, sizes, and words used twice.

`--json` prints them for a program; the argument is another tree than src/hookline.
"""

import argparse
import ast
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NOUNS = {"encoding", "masking", "string"}  # of the trade, though they end in -ing
LONG, TOO_LONG = 400, 600
PASSED_ON = re.compile(r"\b(\w+)=\1,")
DEFINED = re.compile(r"^__all__\b", re.MULTILINE)
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
DOCUMENTED = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("tree", nargs="?", type=Path, default=ROOT / "src/hookline")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    found = figures(options.tree)
    if options.json:
        print(json.dumps(found, indent=1))
        return 0
    width = max(map(len, found))
    for name, value in found.items():
        print(f"{name:{width}}  {shown(value)}")
    return 0


def figures(tree: Path) -> dict[str, object]:
    texts = {file.relative_to(tree): file.read_text(encoding="utf-8") for file in sorted(tree.rglob("*.py"))}
    lines = {str(file): len(text.splitlines()) for file, text in texts.items()}
    modules = [file for file in texts if not file.stem.startswith("__")]
    docs: list[str] = []
    classes: list[str] = []
    for text in texts.values():
        # No node is kept: looking through all of them for garbage takes longer than to parse them.
        nodes = [node for node in statements(ast.parse(text)) if isinstance(node, DOCUMENTED)]
        docs += [ast.get_docstring(node) or "" for node in nodes]
        classes += [node.name.lstrip("_") for node in nodes if isinstance(node, ast.ClassDef)]
    commands = {file: count for file, count in lines.items() if file.startswith("cli/")}
    doubled = repeated(file.stem for file in modules)
    twice = repeated(classes)
    long = {file: count for file, count in by_size(lines).items() if count > LONG}
    return {
        "lines": sum(lines.values()),
        "files": len(lines),
        "modules": len(modules),
        "modules in -ing": sum(file.stem.endswith("ing") and file.stem not in NOUNS for file in modules),
        "module names used again": len(doubled),
        "modules with such a name": sum(doubled.values()),
        "which module names": doubled,
        "class names": len(set(classes)),
        "class names used again": len(twice),
        "which class names": twice,
        f"files over {LONG} lines": len(long),
        f"files over {TOO_LONG} lines": sum(count > TOO_LONG for count in long.values()),
        "which files": long,
        "modules and packages at the root": len(rooms(texts)),
        "lines of cli": sum(commands.values()),
        "longest file of cli": dict(list(by_size(commands).items())[:1]),
        "lines with x=x,": sum(
            bool(PASSED_ON.search(line)) for text in texts.values() for line in text.splitlines()
        ),
        "__all__": sum(len(DEFINED.findall(text)) for text in texts.values()),
        "docstrings": sum(map(bool, docs)),
        "docstrings with What": sum(doc.startswith("What ") for doc in docs),
        "docstrings with Whether": sum(doc.startswith("Whether ") for doc in docs),
    }


def statements(node: ast.AST) -> list[ast.AST]:
    """The node and every statement in it, at any depth; expressions, which are most of a tree, are not looked into."""
    found = [node]
    for each in found:
        for block in BLOCKS:
            found += getattr(each, block, ())
    return found


def repeated(names: Iterable[str]) -> dict[str, int]:
    """How often each name is there that is there more than once, the most used first."""
    counts = sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0]))
    return {name: count for name, count in counts if count > 1}


def by_size(lines: dict[str, int]) -> dict[str, int]:
    return dict(sorted(lines.items(), key=lambda pair: -pair[1]))


def rooms(files: Iterable[Path]) -> set[str]:
    """The modules and packages at the root."""
    return {file.parts[0] for file in files}


def shown(value: object) -> str:
    if not isinstance(value, dict):
        return f"{value:,}"
    return ", ".join(f"{name} {count}" for name, count in value.items()) or "none"


if __name__ == "__main__":
    raise SystemExit(main())
