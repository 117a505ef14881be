"""Every function of the command protocol is reached from a program: none is there for its tests alone."""

import ast
import functools
import gc
import re
from pathlib import Path

import hookline
from hookline.cli.app import COMMANDS
from hookline.systems import SYSTEMS
from tools.figures import statements

SOURCE = Path(hookline.__file__).parent
WHOLE = "<module>"
"""The name of what a module does when it is loaded."""


def module_name(file):
    parts = ("hookline", *file.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def trees_of_source():
    # Not at import: every worker would read the whole tree to collect one test.
    # Nothing of it is garbage, and looking through it again and again takes twice as long as to parse it.
    gc.disable()
    try:
        return {module_name(file): ast.parse(file.read_text()) for file in SOURCE.rglob("*.py")}
    finally:
        gc.enable()


def names_of(statement):
    """The names that a statement of a module defines."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [statement.name]
    targets = getattr(statement, "targets", None) or [getattr(statement, "target", None)]
    return [each.id for each in targets if isinstance(each, ast.Name)]


def parts_of(trees):
    """The statements of every definition, by module and name."""
    found = {}
    for module, tree in trees.items():
        for statement in tree.body:
            for name in names_of(statement) or [WHOLE]:
                found.setdefault((module, name), []).append(statement)
    return found


def imports_in(node):
    """What the imports in a node bind, each as a module and a name in it; without a name it is the module itself."""
    bound = {}
    for each in statements(node):
        if isinstance(each, ast.Import):
            bound |= {(alias.asname or alias.name): (alias.name, None) for alias in each.names}
        elif isinstance(each, ast.ImportFrom) and each.module:
            for alias in each.names:
                whole = f"{each.module}.{alias.name}"
                named = (whole, None) if whole in trees_of_source() else (each.module, alias.name)
                bound[alias.asname or alias.name] = named
    return bound


def used_in(module, statements, top):
    """The definitions that some statements of a module refer to, also by a text such as `cli.file:run`."""
    for statement in statements:
        known = {**top, **imports_in(statement)}
        for node in ast.walk(statement):
            if isinstance(node, ast.Name):
                yield known.get(node.id) or (module, node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                place, name = known.get(node.value.id, (None, ""))
                if name is None:
                    yield place, node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = re.fullmatch(r"(?:hookline\.)?([\w.]+):(\w+)", node.value)
                if text:
                    yield f"hookline.{text[1]}", text[2]


def entries(trees):
    """Where programs begin: the commands, the modules that Python is started with, and what other programs import."""
    yield "hookline.__main__", "main"
    for command in COMMANDS.values():
        module, _, function = command.function.partition(":")
        yield f"hookline.{module}", function
    for system in SYSTEMS:
        for name in ("matches", "load", "problems", "agent_problems", "explain", "try_", "run", "serve"):
            yield f"hookline.{system}.system", name
    for module, tree in trees.items():
        if any(isinstance(each, ast.If) and "__main__" in ast.dump(each.test) for each in tree.body):
            yield module, WHOLE
    for name, module in vars(hookline)["_WHERE"].items():
        yield module, name
    for module in ("hookline.guards", "hookline.adapters.google_adk"):
        yield from imports_in(trees[module]).values()


def reached(trees):
    parts, seen = parts_of(trees), set()
    imports = {module: imports_in(tree) for module, tree in trees.items()}
    waiting = list(entries(trees))
    while waiting:
        place = waiting.pop()
        if place in seen or place not in parts:
            continue
        seen.add(place)
        waiting.append((place[0], WHOLE))
        waiting += used_in(place[0], parts[place], imports[place[0]])
    return seen


def unreached(trees):
    seen = reached(trees)
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [
        f"{module}.{statement.name}"
        for module, tree in trees.items()
        if module.startswith("hookline.claude")
        for statement in tree.body
        if isinstance(statement, functions) and (module, statement.name) not in seen
    ]


def test_every_function_of_the_command_protocol_is_reached_from_a_program():
    """Two that only call each other are added, to see that such are found."""
    lonely = ast.parse("def lonely_one():\n    lonely_two()\n\ndef lonely_two():\n    lonely_one()")
    trees = trees_of_source()
    wire = ast.Module(body=[*trees["hookline.claude.wire"].body, *lonely.body], type_ignores=[])
    assert unreached({**trees, "hookline.claude.wire": wire}) == [
        "hookline.claude.wire.lonely_one",
        "hookline.claude.wire.lonely_two",
    ]
