"""`hookline.yaml`: our own file of hooks, as declarations, with every mistake named by its line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from hookline.engine.hook import DEFAULT_TIMEOUT, HookDeclaration, Mode, OnError
from hookline.engine.point import Point, Scope
from hookline.errors import FileError
from hookline.hookfile.condition import SHAPES, check_condition
from hookline.hookfile.keys import HOOK, ONLY_FOR
from hookline.hookfile.kinds import KINDS, PROCESSES
from hookline.source import Document, Wrong, load, text_of
from hookline.table import Findings, Key, Node, Table, unread

DEFAULTS: Mapping[Point, OnError] = {
    **{point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point},
    Point.AGENT_START: OnError.BLOCK,
    Point.MODEL_START: OnError.BLOCK,
    Point.TOOL_START: OnError.BLOCK,
}
"""The `on_error` of hooks whose entry does not say."""

_FILE = Table(
    {
        "version": Key(unread, shape={"const": 1, "description": "The version of the format."}),
        "hooks": Key(
            unread,
            shape={
                "type": ["array", "null"],
                "items": {"$ref": "#/$defs/hook"},
                "description": "In the order in which they run.",
            },
        ),
    },
    free="x-",
)


class HookFile(NamedTuple):
    """The hooks of a file that are right, in order, and the problems of the others."""

    hooks: tuple[HookDeclaration, ...]
    problems: tuple[FileError, ...]


def read(file: str | PathLike[str], *, strict: bool = False) -> HookFile:
    """The hooks of a file, whose relative paths are taken from the file's own folder."""
    try:
        text = text_of(file)
    except FileError as exc:
        return _judged(HookFile((), (exc,)), strict)
    return parse(text, file, folder=Path(file).resolve().parent, strict=strict)


def parse(
    text: str | bytes,
    file: str | PathLike[str] = "hookline.yaml",
    *,
    folder: str | PathLike[str] = "",
    strict: bool = False,
) -> HookFile:
    """The hooks of a text; with `strict` the first problem is raised."""
    try:
        document = load(text, file)
    except FileError as exc:
        return _judged(HookFile((), (exc,)), strict)
    return declared(document, folder=folder, strict=strict)


def declared(document: Document, *, folder: str | PathLike[str] = "", strict: bool = False) -> HookFile:
    """The hooks of a document that was loaded already."""
    findings = Findings()
    names: dict[str, int] = {}
    found = [_hook(node, Path(folder), names) for node in _entries(Node.root(document, findings))]
    hooks = tuple(hook for hook in found if hook is not None)
    return _judged(HookFile(hooks, tuple(findings.problems)), strict)


def is_native(value: Any) -> bool:
    """True if a document is in this format: a mapping whose `hooks` is a list."""
    return isinstance(value, Mapping) and isinstance(cast("Mapping[str, Any]", value).get("hooks"), list)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file, for editors."""
    entry: dict[str, Any] = {
        **HOOK.schema(),
        "oneOf": [
            {"required": [kind], **({"not": {"required": ["image"]}} if kind == "command" else {})}
            for kind in KINDS
        ],
        "dependentSchemas": {
            name: {"anyOf": [{"required": [kind]} for kind in kinds]} for name, kinds in ONLY_FOR.items()
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hookline.yaml",
        "type": "object",
        "required": ["hooks"],
        **{key: part for key, part in _FILE.schema().items() if key != "type"},
        "$defs": {"hook": entry, **SHAPES},
    }


def _judged(found: HookFile, strict: bool) -> HookFile:
    if not strict or not found.problems:
        return found
    first, *rest = found.problems
    more = f" (and {len(rest)} more: hookline check {first.file})" if rest else ""
    raise FileError(f"{first.message}{more}", file=first.file, line=first.line, key=first.key) from first


def _entries(file: Node) -> list[Node]:
    """The list under `hooks`; empty where the file as a whole cannot be read, which is a problem."""
    value: Any = file.value
    if not isinstance(value, Mapping):
        what = "is empty" if value is None else "is a list" if isinstance(value, list) else "is one value"
        file.wrong(f"the file {what}; write `hooks:` and under it a list of hooks")
        return []
    _FILE.read(file)
    given = file.of_mapping
    version: Any = given.get("version", 1)
    if type(version) is not int or version != 1:
        file.wrong(f"version is {version!r}; this hookline reads 1", "version")
        return []
    if "hooks" not in given and file.is_sound:
        file.wrong("there is no `hooks`; write it, and under it a list of hooks")
    if "hooks" not in file:
        return []
    hooks = file.child("hooks")
    if not isinstance(hooks.value, list):
        hooks.wrong("hooks is not a list; begin each with `- name:`")
        return []
    return [hooks.child(index) for index in range(len(hooks.of_list))]


def _hook(node: Node, folder: Path, names: dict[str, int]) -> HookDeclaration | None:
    """One entry's hook; None where something is wrong with it."""
    if not isinstance(node.value, Mapping):
        node.wrong(f"a hook is a mapping (- name: ...), not {node.value!r}")
        return None
    entry = node.with_value(node.of_mapping)
    _take_name(entry, names)
    values = HOOK.read(entry)
    _check_whole(entry, values)
    if not entry.is_sound:
        return None
    kind = _kinds(values)[0]
    return HookDeclaration(
        name=values["name"],
        points=values["on"],
        kind=kind,
        params=_params(kind, values, folder),
        match=values.get("match"),
        when=values.get("when"),
        timeout=values.get("timeout", DEFAULT_TIMEOUT),
        on_error=values.get("on_error"),
        mode=values.get("mode", Mode.ENFORCE),
        source=entry.source,
    )


def _take_name(entry: Node, names: dict[str, int]) -> None:
    name = entry.of_mapping.get("name")
    if not isinstance(name, str):
        return
    if name in names:
        entry.wrong(f"{name!r} is taken by the hook in line {names[name]}", "name")
    names.setdefault(name, entry.location("name").line or 1)


def _check_whole(entry: Node, values: Mapping[str, Any]) -> None:
    """Tells what is wrong with an entry as a whole, although each of its values may be right."""
    given = entry.of_mapping
    kinds = _kinds(given)
    if not kinds:
        entry.wrong(f"does nothing; give one of {', '.join(KINDS)}")
    for extra in kinds[1:]:
        entry.wrong(f"a hook has one of {', '.join(KINDS)}; {kinds[0]} is here already", extra)
    for key in given:
        fits = ONLY_FOR.get(key, KINDS)
        if kinds and kinds[0] not in fits:
            entry.wrong(f"is for {' and '.join(fits)}, not for {kinds[0]}", key)
    if "preload" in given and "warm" not in given:
        entry.wrong("has no effect without `warm: fork`", "preload")
    points = cast("tuple[Point | str, ...]", values.get("on", ()))
    no_tool = [point for point in points if isinstance(point, Point) and point.scope is not Scope.TOOL]
    if "match" in values and no_tool:
        entry.wrong(f"is for names of tools, and {', '.join(no_tool)} has no tool", "match")
    if "when" in values:
        _check_when(entry, points)


def _check_when(entry: Node, points: Iterable[Point | str]) -> None:
    try:
        check_condition(entry.of_mapping["when"], points)
    except Wrong as exc:
        entry.wrong(exc.message, "when", *exc.trail)


def _kinds(given: Mapping[str, Any]) -> list[str]:
    """The kinds that an entry names. The command beside an image is what to run in it."""
    kinds = [key for key in given if key in KINDS]
    return [kind for kind in kinds if kind != "command"] if "image" in kinds else kinds


def _params(kind: str, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The parameters of its handler; paths relative to the file's folder are made absolute."""
    params = dict(values[kind])
    if kind == "python" and "file" in params:
        params["file"] = str(folder / params["file"])
    if kind == "image":
        params |= {"command": values.get("command", {}).get("argv", [])}
        params |= {key: values[key] for key in ("args", "env", "network") if key in values}
    if kind in PROCESSES:
        params["folder"] = str(folder)
        params |= {key: values[key] for key in ("env", "background", "warm", "preload") if key in values}
    if "cwd" in values:
        params["cwd"] = str(folder / values["cwd"])
    return params
