"""`hookline.yaml`: the table of its keys, and its hooks as declarations, with every mistake named by its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast

from hookline.claude.events import CALLERS, point_of, refuses
from hookline.engine.hook import DEFAULT_TIMEOUT, WITHHOLDS, HookDeclaration, Mode, OnError
from hookline.engine.point import Point, Scope, points_in
from hookline.errors import FileError, meant
from hookline.hookfile import keys
from hookline.hookfile.condition import CONDITION_REF, SHAPES, check_condition
from hookline.secrets import INHERIT
from hookline.source import Document, Wrong, load, text_of
from hookline.table import Findings, Key, Node, Table, flag, spoken, unread

FOREIGN: Mapping[Point | str, OnError] = {
    point_of(name, caller): OnError.BLOCK
    for caller, names in CALLERS.items()
    for name, point in names.items()
    if point is None and refuses(name, caller)
}
"""The `on_error` of a hook at an event of a client that is about to do something."""
DEFAULTS: Mapping[Point | str, OnError] = {
    **FOREIGN,
    **{point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point},
    Point.AGENT_START: OnError.BLOCK,
    Point.MODEL_START: OnError.BLOCK,
    Point.TOOL_START: OnError.BLOCK,
}
"""The `on_error` of hooks whose entry does not say."""

KINDS = ("python", "command", "shell", "http", "image")
"""The keys of which an entry has exactly one. An image may have a command beside it."""
PROCESSES = ("command", "shell")


_INSTEAD = {
    **dict.fromkeys(("event", "events", "point", "points", "true"), "; did you mean on?"),
    **dict.fromkeys(("matcher", "tool", "tools"), "; did you mean match?"),
    **dict.fromkeys(("entrypoint", "exec"), "; did you mean command?"),
    "container": "; did you mean image?",
    "if": "; did you mean when?",
    "timeout_ms": "; did you mean timeout? It is in seconds: 5, or 500ms",
    "timeout_seconds": "; did you mean timeout? It is in seconds",
    "script": "; did you mean shell?",
    "run": "; did you mean command, or shell?",
    "url": "; did you mean http?",
    "headers": "; did you mean http: {url: ..., headers_from_env: {...}}?",
    "environment": "; did you mean env?",
    "workdir": "; did you mean cwd?",
    "enabled": "; did you mean mode: off?",
    "observe": "; did you mean mode: observe?",
}
"""Near misses in meaning, which the spelling does not give away."""


def _word(words: Iterable[str], doc: str, make: Callable[[str], Any] = str) -> Key:
    """A key whose value is one of these words."""
    known = tuple(map(str, words))

    def read_word(node: Node) -> Any:
        if node.value not in known:
            near = meant(node.value, known) if isinstance(node.value, str) else f"; known: {', '.join(known)}"
            raise Wrong(f"unknown word {node.value!r}{near}")
        return make(node.value)

    return Key(read_word, doc, shape={"enum": list(known)})


_TEXT = {"type": "string", "pattern": r"\S"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_POINT = {
    "anyOf": [
        {"enum": [str(point) for point in Point]},
        {"type": "string", "pattern": f"^{keys.FOREIGN.pattern}$"},
    ]
}

_NAMED = "Its name in messages and in the journal; unique in the file."
_STANDS = "The point it runs at, such as tool.start, or a list of points."

HOOK = Table(
    {
        "name": Key(
            keys.name,
            _NAMED,
            needed=spoken(_NAMED),
            shape={
                "type": "string",
                "pattern": f"^{keys.NAME.pattern}$".replace("(?:", "("),
                "maxLength": 200,
            },
        ),
        "on": Key(
            keys.on,
            _STANDS,
            needed=spoken(_STANDS),
            shape={"anyOf": [_POINT, {"type": "array", "items": _POINT, "minItems": 1, "uniqueItems": True}]},
        ),
        "match": Key(
            keys.match,
            "The tools it is for: a name, a pattern for whole names, kind:shell, or a list of those.",
            shape=_TEXTS,
        ),
        "when": Key(
            keys.when,
            "Conditions on what happened; where they are not met, the hook is not started.",
            shape=CONDITION_REF,
        ),
        "python": Key(
            keys.python,
            "A Python function: module:function, or file.py:function from the folder of this file.",
            shape={"type": "string", "pattern": r"^[^\n]+:[^\W\d]\w*$"},
        ),
        "command": Key(
            keys.command,
            "A program that reads JSON and answers; one text, split as a shell would, or a list of arguments.",
            shape={"anyOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        ),
        "shell": Key(
            keys.shell,
            "A script for sh that reads the same JSON; exit code 0 goes on, 2 refuses with the reason on stderr.",
            shape=_TEXT,
        ),
        "http": Key(
            keys.http,
            "A URL that is sent the JSON and answers; or url and headers_from_env.",
            shape={"anyOf": [keys.URL, keys.REQUEST.schema()]},
            inner=keys.REQUEST,
        ),
        "image": Key(
            keys.image,
            "An image that is run in a container; exit code 0 goes on, any other is a failure of the hook.",
            shape={"type": "string", "pattern": f"^{keys.IMAGE.pattern}$"},
        ),
        "args": Key(
            keys.args,
            "The arguments of the image's own program, or of command; a list.",
            shape={"type": "array", "items": {"type": "string"}},
        ),
        "network": Key(
            flag,
            "Gives the container this machine's network; false if not given.",
            shape={"type": "boolean"},
        ),
        "timeout": Key(
            keys.timeout,
            "How long it may take: seconds, or a text with a unit (500ms, 5s, 2m, 1h); 60 if not given.",
            shape={
                "anyOf": [
                    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": keys.MILLISECONDS_FROM},
                    {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)\s*$"},
                ]
            },
        ),
        "on_error": _word(
            OnError, "The result when it breaks: continue, block, fail, or withhold the output.", OnError
        ),
        "changes": _word(
            ("output",), "Give output for a hook that masks: if it breaks at an end, the output is withheld."
        ),
        "mode": _word(Mode, "Its mode: enforce, observe (its verdict is only recorded) or off.", Mode),
        "env": Key(
            keys.env,
            "Further environment variables, NAME: value; or the keys to hand on: a list of names, or inherit.",
            shape=keys.ENV,
        ),
        "cwd": Key(
            keys.cwd,
            "The folder it runs in, from the folder of this file; the run's workspace if not given.",
            shape=_TEXT,
        ),
        "output": _word(
            ("answer", "text"), "Its output: an answer in JSON, or text that is only kept on record."
        ),
        "background": _word(("end", "keep"), "Processes that it leaves behind: end (if not given) or keep."),
        "warm": _word(
            ("fork",), "Give fork to keep a Python interpreter ready, forked afresh for each call."
        ),
        "preload": Key(keys.preload, "The modules that a warm interpreter has loaded.", shape=_TEXTS),
    },
    instead=_INSTEAD,
    null="wrong",
)
"""Every key of an entry: what reads it, what it says, and its shape for editors."""

ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "args": ("image",),
    "network": ("image",),
    "env": (*PROCESSES, "image"),
    "cwd": PROCESSES,
    "output": PROCESSES,
    "background": PROCESSES,
    "warm": ("command",),
    "preload": ("command",),
}
"""The kinds of hook that a key is for, where it is not for all."""

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
    """The hooks of a file that are right, in order, the problems of the others, and notes on what is only odd."""

    hooks: tuple[HookDeclaration, ...]
    problems: tuple[FileError, ...]
    notes: tuple[FileError, ...] = ()

    def checked(self) -> HookFile:
        """This, if nothing is wrong with the file; else its first problem is raised."""
        if not self.problems:
            return self
        first, *rest = self.problems
        more = f" (and {len(rest)} more: hookline check {first.file})" if rest else ""
        raise FileError(f"{first.message}{more}", file=first.file, line=first.line, key=first.key) from first


def read(file: str | PathLike[str]) -> HookFile:
    """The hooks of a file, whose relative paths are taken from the file's own folder."""
    try:
        text = text_of(file)
    except FileError as exc:
        return HookFile((), (exc,))
    return parse(text, file, folder=Path(file).resolve().parent)


def parse(
    text: str, file: str | PathLike[str] = "hookline.yaml", *, folder: str | PathLike[str] = ""
) -> HookFile:
    """The hooks of a text."""
    try:
        document = load(text, file)
    except FileError as exc:
        return HookFile((), (exc,))
    return declared(document, folder=folder)


def declared(document: Document, *, folder: str | PathLike[str] = "") -> HookFile:
    """The hooks of a document that was loaded already."""
    findings = Findings()
    names: dict[str, int] = {}
    found = [_hook(node, Path(folder), names) for node in _entries(Node.root(document, findings))]
    hooks = tuple(hook for hook in found if hook is not None)
    return HookFile(hooks, tuple(findings.problems))


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
    return list(hooks.items())


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
        changes=values.get("changes"),
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
    if "image" in kinds and given.get("env") == INHERIT:
        entry.wrong(f"{INHERIT} is for command and shell; give a list of names", "env")
    if "preload" in given and "warm" not in given:
        entry.wrong("has no effect without `warm: fork`", "preload")
    points = cast("tuple[Point | str, ...]", values.get("on", ()))
    for key, word in (("on_error", OnError.WITHHOLD), ("changes", "output")):
        if values.get(key) == word and points and WITHHOLDS.keys().isdisjoint(points):
            entry.wrong(f"{word} is for {', '.join(WITHHOLDS)}, where there is an output to change", key)
    no_tool = points_in(points, set(Scope) - {Scope.TOOL})
    if "match" in values and no_tool:
        entry.wrong(f"is for names of tools, and {', '.join(no_tool)} has no tool", "match")
    try:
        if "when" in values:
            check_condition(given["when"], points, keys.inputs_of(values.get("match")))
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
        params |= {key: values[key] for key in ("args", "network") if key in values}
    if kind in PROCESSES:
        params["folder"] = str(folder)
        params |= {key: values[key] for key in ("output", "background", "warm", "preload") if key in values}
    params |= values.get("env", {})
    if "cwd" in values:
        params["cwd"] = str(folder / values["cwd"])
    return params
