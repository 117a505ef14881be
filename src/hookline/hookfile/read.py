"""`hookline.yaml`: our own file of hooks, as declarations, with every mistake named by its line.

One table, `KEYS`, says what an entry may have: it reads the values and makes the JSON Schema for editors.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

from hookline.engine.declaration import HookDeclaration
from hookline.engine.hook import DEFAULT_TIMEOUT, Mode, OnError
from hookline.engine.point import Point, Scope
from hookline.errors import FileError, UsageError
from hookline.hookfile.condition import FIELDS, check_condition
from hookline.matcher import matcher
from hookline.source import Document, Trail, Wrong, load, text_of, without_lines
from hookline.table import meant

KINDS = ("python", "command", "shell", "http", "image")
"""The keys of which an entry has exactly one: what kind of hook it is. An image may have a command beside it."""

_PROCESSES = ("command", "shell")

DEFAULTS: Mapping[Point, OnError] = {
    **{point: OnError.FAIL if point.is_start else OnError.CONTINUE for point in Point},
    Point.AGENT_START: OnError.BLOCK,
    Point.MODEL_START: OnError.BLOCK,
    Point.TOOL_START: OnError.BLOCK,
}
"""What follows when a hook of this file broke and its entry does not say."""


class Found(NamedTuple):
    """What a file holds: the hooks that are right, in order, and what is wrong with the others."""

    hooks: tuple[HookDeclaration, ...]
    problems: tuple[FileError, ...]


def read(file: str | PathLike[str], *, strict: bool = False) -> Found:
    """The hooks of a file, whose relative paths are taken from the file's own folder."""
    try:
        text = text_of(file)
    except FileError as exc:
        return _judged(Found((), (exc,)), strict)
    return parse(text, file, folder=Path(file).resolve().parent, strict=strict)


def parse(
    text: str | bytes,
    file: str | PathLike[str] = "hookline.yaml",
    *,
    folder: str | PathLike[str] = "",
    strict: bool = False,
) -> Found:
    """The hooks of a text; with `strict` the first problem is raised."""
    try:
        document = load(text, file)
    except FileError as exc:
        return _judged(Found((), (exc,)), strict)
    return declared(document, folder=folder, strict=strict)


def declared(document: Document, *, folder: str | PathLike[str] = "", strict: bool = False) -> Found:
    """The hooks of a document that was loaded already."""
    hooks: list[HookDeclaration] = []
    problems: list[FileError] = []
    names: dict[str, int] = {}
    entries = _entries(document, problems)
    for index, entry in enumerate(entries):
        trail: Trail = ("hooks", index)
        wrong = list(_taken_name(document, entry, trail, names))
        hook, more = _hook(document, entry, trail, Path(folder))
        problems += wrong + more
        if hook is not None and not wrong:
            hooks.append(hook)
    return _judged(Found(tuple(hooks), tuple(problems)), strict)


def is_native(value: Any) -> bool:
    """Whether a document is in this format: a mapping whose `hooks` is a list."""
    return isinstance(value, Mapping) and isinstance(cast("Mapping[str, Any]", value).get("hooks"), list)


def schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of the file, for editors."""
    entry: dict[str, Any] = {
        "type": "object",
        "required": ["name", "on"],
        "additionalProperties": False,
        "properties": {name: {"description": key.says, **key.shape} for name, key in KEYS.items()},
        "oneOf": [
            {"required": [kind], **({"not": {"required": ["image"]}} if kind == "command" else {})}
            for kind in KINDS
        ],
        "dependentSchemas": {
            name: {"anyOf": [{"required": [kind]} for kind in key.kinds]}
            for name, key in KEYS.items()
            if key.kinds != KINDS
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "hookline.yaml",
        "type": "object",
        "required": ["hooks"],
        "additionalProperties": False,
        "patternProperties": {"^x-": {"description": "Yours; not read. A place for anchors."}},
        "properties": {
            "version": {"const": 1, "description": "The version of the format."},
            "hooks": {
                "type": ["array", "null"],
                "items": {"$ref": "#/$defs/hook"},
                "description": "In the order in which they run.",
            },
        },
        "$defs": {"hook": entry, "condition": _CONDITION, "test": _TEST},
    }


def _judged(found: Found, strict: bool) -> Found:
    if not strict or not found.problems:
        return found
    first, *rest = found.problems
    more = f" (and {len(rest)} more: hookline check {first.file})" if rest else ""
    raise FileError(f"{first.message}{more}", file=first.file, line=first.line, key=first.key) from first


def _entries(document: Document, problems: list[FileError]) -> list[Any]:
    """The list under `hooks`; empty where the file as a whole cannot be read, which is a problem."""
    value = document.value
    if not isinstance(value, Mapping):
        what = "is empty" if value is None else "is a list" if isinstance(value, list) else "is one value"
        problems.append(document.problem(f"the file {what}; write `hooks:` and under it a list of hooks"))
        return []
    given = cast("Mapping[str, Any]", value)
    for key in given:
        if key not in ("version", "hooks") and not key.startswith("x-"):
            problems.append(document.problem(f"unknown key{meant(key, ('version', 'hooks'))}", (key,)))
    version: Any = given.get("version", 1)
    if type(version) is not int or version != 1:
        problems.append(document.problem(f"version is {version!r}; this hookline reads 1", ("version",)))
        return []
    hooks = given.get("hooks", ())
    if hooks == () and not problems:
        problems.append(document.problem("there is no `hooks`; write it, and under it a list of hooks"))
    if hooks is not None and not isinstance(hooks, list | tuple):
        problems.append(document.problem("hooks is not a list; begin each with `- name:`", ("hooks",)))
        return []
    return list(cast("Iterable[Any]", hooks or ()))


def _taken_name(document: Document, entry: Any, trail: Trail, names: dict[str, int]) -> Iterable[FileError]:
    name = cast("Any", entry).get("name") if isinstance(entry, Mapping) else None
    if not isinstance(name, str):
        return
    problem = document.problem(f"{name!r} is taken by the hook in line {names.get(name)}", (*trail, "name"))
    if name in names:
        yield problem
    names.setdefault(name, problem.line or 1)


def _hook(
    document: Document, entry: Any, trail: Trail, folder: Path
) -> tuple[HookDeclaration | None, list[FileError]]:
    """One entry's hook, or all that is wrong with it."""
    if not isinstance(entry, Mapping):
        return None, [document.problem(f"a hook is a mapping (- name: ...), not {entry!r}", trail)]
    given = cast("Mapping[str, Any]", entry)
    values: dict[str, Any] = {}
    problems: list[FileError] = []
    for key, value in given.items():
        try:
            values[key] = _value(key, value)
        except Wrong as exc:
            problems.append(document.problem(exc.message, (*trail, key, *exc.trail)))
    for message, inner in _faults(given, values):
        problems.append(document.problem(message, (*trail, *inner)))
    if problems:
        return None, problems
    kind = _kinds(values)[0]
    return (
        HookDeclaration(
            name=values["name"],
            points=values["on"],
            kind=kind,
            params=_params(kind, values, folder),
            match=values.get("match"),
            when=values.get("when"),
            timeout=values.get("timeout", DEFAULT_TIMEOUT),
            on_error=values.get("on_error"),
            mode=values.get("mode", Mode.ENFORCE),
            source=f"{document.file}:{document.problem('', trail).line}",
        ),
        [],
    )


def _value(key: str, value: Any) -> Any:
    known = KEYS.get(key)
    if known is None:
        raise Wrong(f"unknown key{_INSTEAD.get(key) or meant(key, KEYS)}")
    if value is None:
        raise Wrong(f"has no value; {known.says[0].lower()}{known.says[1:]}")
    return known.read(value)


def _faults(given: Mapping[str, Any], values: Mapping[str, Any]) -> Iterable[tuple[str, Trail]]:
    """What is wrong with an entry as a whole, although each of its values may be right."""
    for key in ("name", "on"):
        if key not in given:
            yield f"{key} is missing; {KEYS[key].says[0].lower()}{KEYS[key].says[1:]}", ()
    kinds = _kinds(given)
    if not kinds:
        yield f"does nothing; give one of {', '.join(KINDS)}", ()
    for extra in kinds[1:]:
        yield f"a hook has one of {', '.join(KINDS)}; {kinds[0]} is here already", (extra,)
    for key in given:
        if key in KEYS and kinds and kinds[0] not in KEYS[key].kinds:
            yield f"is for {' and '.join(KEYS[key].kinds)}, not for {kinds[0]}", (key,)
    if "preload" in given and "warm" not in given:
        yield "has no effect without `warm: fork`", ("preload",)
    points = cast("tuple[Point | str, ...]", values.get("on", ()))
    no_tool = [point for point in points if isinstance(point, Point) and point.scope is not Scope.TOOL]
    if "match" in values and no_tool:
        yield f"is for names of tools, and {', '.join(no_tool)} has no tool", ("match",)
    if "when" in values:
        yield from _unmet(given["when"], points)


def _kinds(given: Mapping[str, Any]) -> list[str]:
    """The kinds that an entry names. The command beside an image is what to run in it."""
    kinds = [key for key in given if key in KINDS]
    return [kind for kind in kinds if kind != "command"] if "image" in kinds else kinds


def _unmet(when: Any, points: Iterable[Point | str]) -> Iterable[tuple[str, Trail]]:
    try:
        check_condition(when, points)
    except Wrong as exc:
        yield exc.message, ("when", *exc.trail)


def _params(kind: str, values: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """What its handler is made of. Paths that the file means from its own folder are made whole."""
    params = dict(values[kind])
    if kind == "python" and "file" in params:
        params["file"] = str(folder / params["file"])
    if kind == "image":
        params |= {"command": values.get("command", {}).get("argv", [])}
        params |= {key: values[key] for key in ("args", "env", "network") if key in values}
    if kind in _PROCESSES:
        params["folder"] = str(folder)
        params |= {key: values[key] for key in ("env", "background", "warm", "preload") if key in values}
    if "cwd" in values:
        params["cwd"] = str(folder / values["cwd"])
    return params


_NAME = re.compile(r"\S(?:[^\x00-\x1f\x7f]*\S)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FOREIGN = re.compile(r"x\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LOOKS_LIKE_MILLISECONDS = 1000
_IMAGE = re.compile(r"[A-Za-z0-9][^\s\x00-\x1f,]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", re.ASCII)
_HEADER_TEXT = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|[\x20-\x7e]*\$(?:[A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})[\x20-\x7e]*"
)

_ELSEWHERE = {
    "pretooluse": Point.TOOL_START,
    "beforetool": Point.TOOL_START,
    "posttooluse": Point.TOOL_END,
    "aftertool": Point.TOOL_END,
    "userpromptsubmit": Point.AGENT_START,
    "stop": Point.AGENT_END,
    "sessionstart": Point.SESSION_START,
    "sessionend": Point.SESSION_END,
    "beforemodel": Point.MODEL_START,
    "aftermodel": Point.MODEL_END,
    "onstart": Point.AGENT_START,
    "onend": Point.AGENT_END,
    "onagentstepstart": Point.STEP_START,
    "onagentstepend": Point.STEP_END,
    "ontoolstart": Point.TOOL_START,
    "ontoolend": Point.TOOL_END,
    "aftercreate": Point.WORKSPACE_START,
    "beforeremove": Point.WORKSPACE_END,
    "beforerun": Point.RUN_START,
    "afterrun": Point.RUN_END,
    "prerun": Point.RUN_START,
    "postrun": Point.RUN_END,
}
"""What other systems call the points, for the hint."""

_INSTEAD = {
    "container": "; did you mean image?",
    "entrypoint": "; did you mean command?",
    "matcher": "; did you mean match?",
    "tool": "; did you mean match?",
    "tools": "; did you mean match?",
    "if": "; did you mean when?",
    "event": "; did you mean on?",
    "events": "; did you mean on?",
    "point": "; did you mean on?",
    "points": "; did you mean on?",
    "true": "; did you mean on?",
    "timeout_ms": "; did you mean timeout? It is in seconds: 5, or 500ms",
    "timeout_seconds": "; did you mean timeout? It is in seconds",
    "script": "; did you mean shell?",
    "run": "; did you mean command, or shell?",
    "exec": "; did you mean command?",
    "url": "; did you mean http?",
    "headers": "; did you mean http: {url: ..., headers_from_env: {...}}?",
    "environment": "; did you mean env?",
    "workdir": "; did you mean cwd?",
    "enabled": "; did you mean mode: off?",
    "observe": "; did you mean mode: observe?",
}
"""Near misses in meaning, which the spelling does not give away."""


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; give a text, in quotes if it looks like a number")
    if not _NAME.fullmatch(value) or len(value) > 200:
        raise Wrong(f"is {value!r}; give one line, not empty, of at most 200 characters")
    return value


def _on(value: Any) -> tuple[Point | str, ...]:
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not words:
        raise Wrong("is an empty list; name a point, such as tool.start")
    points: list[Point | str] = []
    for index, word in enumerate(words):
        trail: Trail = (index,) if isinstance(value, list) else ()
        point = _point(word, trail)
        if point in points:
            raise Wrong(f"{point} is named twice", trail)
        points.append(point)
    return tuple(points)


def _point(word: Any, trail: Trail) -> Point | str:
    if isinstance(word, str):
        if word in Point.__members__.values():
            return Point(word)
        if _FOREIGN.fullmatch(word):
            return word
        letters = re.sub(r"[^a-z]", "", word.lower())
        plain_names = {point.replace(".", ""): point for point in Point}
        known = _ELSEWHERE.get(letters) or plain_names.get(letters)
        raise Wrong(
            f"unknown point {word!r}{f'; did you mean {known}?' if known else meant(word, Point)}", trail
        )
    raise Wrong(f"{word!r} is not a point; known: {', '.join(Point)}", trail)


def _match(value: Any) -> str | tuple[str, ...]:
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not words:
        raise Wrong("is an empty list, which fits no tool; leave it out to fit them all")
    for index, word in enumerate(words):
        trail: Trail = (index,) if isinstance(value, list) else ()
        if not isinstance(word, str) or not word.strip():
            raise Wrong(f"is {word!r}; give a name, a pattern or kind:shell", trail)
        if word == "*":
            raise Wrong("'*' is not a pattern; write .*, or leave match out to fit every tool", trail)
        try:
            matcher(word)
        except UsageError as exc:
            raise Wrong(str(exc), trail) from exc
    return tuple(words) if len(words) > 1 else words[0]


def _when(value: Any) -> dict[str, Any]:
    check_condition(value, ())
    return without_lines(value)


def _python(value: Any) -> dict[str, Any]:
    target = _line_of_text(value, "give module:function, or file.py:function")
    place, _, function = target.rpartition(":")
    if not place or not function.isidentifier():
        raise Wrong(f"is {target!r}; give module:function, or file.py:function")
    if place.endswith(".py"):
        return {"file": place, "function": function}
    if not _DOTTED.fullmatch(place):
        raise Wrong(f"{place!r} is neither a module nor a file that ends in .py")
    return {"module": place, "function": function}


def _command(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        argv = cast("list[Any]", value)
        for index, item in enumerate(argv):
            if not isinstance(item, str):
                raise Wrong(f"{item!r} is not a text; put it in quotes", (index,))
    else:
        argv = _split(_line_of_text(value, "give a command, or a list of its arguments", lines=True))
    if not argv or not argv[0].strip():
        raise Wrong("names no program")
    if any("\0" in item for item in argv):
        raise Wrong("has a NUL character in it")
    return {"argv": [str(item) for item in argv]}


def _split(text: str) -> list[str]:
    """As a shell would split it; what only a shell could do is told, not handed on as text."""
    try:
        argv = shlex.split(text)
        tokens = list(shlex.shlex(text, posix=False, punctuation_chars=True))
    except ValueError as exc:
        raise Wrong(f"cannot be split into arguments: {str(exc).lower()}; give a list of them") from None
    bare = re.sub(r"'[^']*'", "", text)
    special = next((token for token in tokens if set(token) <= set("();<>|&")), None)
    replaced = re.search(r"(?<!\\)(?:\$[A-Za-z_{(]|`)|(?:^|\s)~/", bare)
    if special or replaced:
        what = special or (replaced.group().strip() if replaced else "")
        raise Wrong(f"is started without a shell, so {what!r} has no effect; write shell: instead, or a list")
    return argv


def _shell(value: Any) -> dict[str, Any]:
    script = _line_of_text(value, "give a script", lines=True)
    return {"script": script}


def _http(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"url": _url(value, ()), "headers": {}, "variables": []}
    if not isinstance(value, Mapping):
        raise Wrong(f"is {value!r}; give a URL, or url and headers_from_env")
    given = cast("Mapping[str, Any]", value)
    for key in given:
        if key not in ("url", "headers_from_env"):
            raise Wrong(f"unknown key{meant(key, ('url', 'headers_from_env'))}", (key,))
    if "url" not in given:
        raise Wrong("url is missing")
    headers = _headers(given.get("headers_from_env", {}))
    variables = {found[1] for text in headers.values() for found in _REFERENCE.finditer(text)}
    return {"url": _url(given["url"], ("url",)), "headers": headers, "variables": sorted(variables)}


def _url(value: Any, trail: Trail) -> str:
    wanted = "give http://... or https://..."
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; {wanted}", trail)
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError as exc:
        raise Wrong(f"{value!r} is not a URL: {exc}; {wanted}", trail) from None
    if not right or re.search(r"[\s\x00-\x1f]", value):
        raise Wrong(f"{value!r} is not a URL; {wanted}", trail)
    if parts.username or parts.password:
        raise Wrong("has a user or password in it; use headers_from_env, which names a variable", trail)
    return value


def _headers(value: Any) -> dict[str, str]:
    """Each header with its variables as `${NAME}`: no secret stands in the file."""
    if not isinstance(value, Mapping):
        raise Wrong("give header: VARIABLE, the name of an environment variable", ("headers_from_env",))
    found: dict[str, str] = {}
    for header, text in cast("Mapping[str, Any]", value).items():
        trail = ("headers_from_env", header)
        if not _HEADER.fullmatch(header):
            raise Wrong("this is not the name of a header", trail)
        if not isinstance(text, str) or not _HEADER_TEXT.fullmatch(text):
            raise Wrong(
                "give a variable (HOOK_TOKEN), or a text with one (Bearer $HOOK_TOKEN); no value", trail
            )
        found[header] = f"${{{text}}}" if _VARIABLE.fullmatch(text) else _REFERENCE.sub(r"${\1}", text)
    return found


def _image(value: Any) -> dict[str, Any]:
    name = _line_of_text(value, "give the name of an image, such as registry.example/guard:1")
    if not _IMAGE.fullmatch(name):
        raise Wrong(f"{name!r} is not the name of an image; give one such as registry.example/guard:1")
    return {"image": name}


def _args(value: Any) -> list[str]:
    if not isinstance(value, list):
        raise Wrong(f"is {value!r}; give a list of arguments")
    for index, item in enumerate(cast("list[Any]", value)):
        if not isinstance(item, str) or "\0" in item:
            raise Wrong(f"{item!r} is not a text; put it in quotes", (index,))
    return [str(item) for item in cast("list[Any]", value)]


def _network(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Wrong(f"is {value!r}; give true or false")
    return value


def _timeout(value: Any) -> float:
    wanted = "give seconds (5, 0.5) or a text with a unit (500ms, 5s, 2m, 1h)"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if not found:
            raise Wrong(f"is {value!r}; {wanted}")
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"is {value!r}; {wanted}")
    elif abs(value) >= _LOOKS_LIKE_MILLISECONDS:
        raise Wrong(f"is {value}: seconds, or meant as milliseconds? Write {value}s or {value}ms")
    else:
        seconds = float(value)
    if not seconds > 0 or not math.isfinite(seconds):
        raise Wrong(f"is {value!r}; {wanted}, more than 0")
    return seconds


def _one_of(words: Iterable[str], make: Callable[[str], Any] = str) -> Callable[[Any], Any]:
    known = tuple(words)

    def read_word(value: Any) -> Any:
        if value not in known:
            near = meant(value, known) if isinstance(value, str) else f"; known: {', '.join(known)}"
            raise Wrong(f"unknown word {value!r}{near}")
        return make(value)

    return read_word


def _env(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise Wrong("give NAME: value")
    found: dict[str, str] = {}
    for name, item in cast("Mapping[str, Any]", value).items():
        if not _VARIABLE.fullmatch(name):
            raise Wrong("this is not the name of an environment variable", (name,))
        if name.startswith("HOOKLINE_"):
            raise Wrong("names that begin with HOOKLINE_ are set by hookline", (name,))
        if isinstance(item, bool) or not isinstance(item, str | int) or "\0" in str(item):
            raise Wrong(f"is {item!r}; give a text, in quotes", (name,))
        found[name] = str(item)
    return found


def _cwd(value: Any) -> str:
    return _line_of_text(value, "give a folder")


def _preload(value: Any) -> list[str]:
    words = cast("list[Any]", value) if isinstance(value, list) else [value]
    for index, word in enumerate(words):
        if not isinstance(word, str) or not _DOTTED.fullmatch(word):
            raise Wrong(f"{word!r} is not the name of a module", (index,) if isinstance(value, list) else ())
    return list(words)


def _line_of_text(value: Any, wanted: str, *, lines: bool = False) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"is {value!r}; {wanted}")
    if "\0" in value or (not lines and "\n" in value):
        raise Wrong(f"has a {'NUL' if lines else 'NUL or a line break'} in it; {wanted}")
    return value


_TEXT = {"type": "string", "pattern": r"\S"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_POINT = {
    "anyOf": [
        {"enum": [str(point) for point in Point]},
        {"type": "string", "pattern": f"^{_FOREIGN.pattern}$"},
    ]
}
_URL = {"type": "string", "pattern": r"^https?://[^/?#\s@]+([/?#]\S*)?$"}
_HEADER_SHAPE = {"type": "string", "pattern": f"^({_HEADER_TEXT.pattern})$"}
_TEST_REF, _CONDITION_REF = {"$ref": "#/$defs/test"}, {"$ref": "#/$defs/condition"}
_TEST_LIST = {"type": "array", "items": _TEST_REF, "minItems": 1}
_CONDITION_LIST = {"type": "array", "items": _CONDITION_REF, "minItems": 1}
_TEST: dict[str, Any] = {
    "description": "A value to equal, a list of tests of which one must hold, or tests that must all hold.",
    "anyOf": [
        {"type": ["string", "number", "boolean", "null"]},
        _TEST_LIST,
        {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": False,
            "properties": {
                "equals": {"description": "This very value."},
                "contains": {"type": "string", "minLength": 1, "description": "This text is in it."},
                "matches": {"type": "string", "minLength": 1, "description": "The pattern is found in it."},
                "exists": {"type": "boolean", "description": "It is there and not null, or it is not."},
                "not": _TEST_REF,
                "any": _TEST_LIST,
                "all": _TEST_LIST,
            },
        },
    ],
}
_CONDITION: dict[str, Any] = {
    "type": "object",
    "minProperties": 1,
    "additionalProperties": False,
    "properties": {"not": _CONDITION_REF, "any": _CONDITION_LIST, "all": _CONDITION_LIST},
    "patternProperties": {
        r"^(input|output)(\.[^.]+)*$": _TEST_REF,
        f"^({'|'.join(field for field in FIELDS if field not in ('input', 'output'))})$": _TEST_REF,
    },
}


class _Key(NamedTuple):
    """One key of an entry: what it says, its shape for editors, what reads it, and for which kinds it is."""

    says: str
    shape: Mapping[str, Any]
    read: Callable[[Any], Any]
    kinds: tuple[str, ...] = KINDS


KEYS: Mapping[str, _Key] = {
    "name": _Key(
        "Its name in messages and in the journal; no two hooks share one.",
        {"type": "string", "pattern": r"^\S([^\x00-\x1f\x7f]*\S)?$", "maxLength": 200},
        _name,
    ),
    "on": _Key(
        "The point where it stands, such as tool.start, or a list of points.",
        {"anyOf": [_POINT, {"type": "array", "items": _POINT, "minItems": 1, "uniqueItems": True}]},
        _on,
    ),
    "match": _Key(
        "The tools it is for: a name, a pattern for whole names, kind:shell, or a list of those.",
        _TEXTS,
        _match,
    ),
    "when": _Key(
        "Conditions on what happened; where they are not met, the hook is not started.",
        _CONDITION_REF,
        _when,
    ),
    "python": _Key(
        "A Python function: module:function, or file.py:function from the folder of this file.",
        {"type": "string", "pattern": r"^[^\n]+:[^\W\d]\w*$"},
        _python,
    ),
    "command": _Key(
        "A program that reads JSON and answers; one text, split as a shell would, or a list of arguments.",
        {"anyOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        _command,
    ),
    "shell": _Key("A script for sh; exit code 0 goes on, any other is a failure of the hook.", _TEXT, _shell),
    "http": _Key(
        "A URL that is sent the JSON and answers; or url and headers_from_env.",
        {
            "anyOf": [
                _URL,
                {
                    "type": "object",
                    "required": ["url"],
                    "additionalProperties": False,
                    "properties": {
                        "url": _URL,
                        "headers_from_env": {"type": "object", "additionalProperties": _HEADER_SHAPE},
                    },
                },
            ]
        },
        _http,
    ),
    "image": _Key(
        "An image that is run in a container; exit code 0 goes on, any other is a failure of the hook.",
        {"type": "string", "pattern": f"^{_IMAGE.pattern}$"},
        _image,
    ),
    "args": _Key(
        "The arguments of the image's own program, or those behind command; a list.",
        {"type": "array", "items": {"type": "string"}},
        _args,
        ("image",),
    ),
    "network": _Key(
        "Whether the container has this machine's network; false if not given.",
        {"type": "boolean"},
        _network,
        ("image",),
    ),
    "timeout": _Key(
        "How long it may take: seconds, or a text with a unit (500ms, 5s, 2m, 1h); 60 if not given.",
        {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": _LOOKS_LIKE_MILLISECONDS},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)\s*$"},
            ]
        },
        _timeout,
    ),
    "on_error": _Key(
        "What follows when it breaks: continue, block or fail.",
        {"enum": [str(word) for word in OnError]},
        _one_of(OnError, OnError),
    ),
    "mode": _Key(
        "Whether its verdict counts: enforce, observe or off.",
        {"enum": [str(word) for word in Mode]},
        _one_of(Mode, Mode),
    ),
    "env": _Key(
        "Further environment variables, NAME: value.",
        {
            "type": "object",
            "propertyNames": {"pattern": f"^(?!HOOKLINE_){_VARIABLE.pattern}$"},
            "additionalProperties": {"type": ["string", "integer"]},
        },
        _env,
        (*_PROCESSES, "image"),
    ),
    "cwd": _Key(
        "The folder it runs in, from the folder of this file; the run's workspace if not given.",
        _TEXT,
        _cwd,
        _PROCESSES,
    ),
    "background": _Key(
        "What becomes of processes that it leaves behind: end (if not given) or keep.",
        {"enum": ["end", "keep"]},
        _one_of(("end", "keep")),
        _PROCESSES,
    ),
    "warm": _Key(
        "Give fork to keep a Python interpreter ready, forked afresh for each call.",
        {"enum": ["fork"]},
        _one_of(("fork",)),
        ("command",),
    ),
    "preload": _Key(
        "The modules that a warm interpreter has loaded.",
        _TEXTS,
        _preload,
        ("command",),
    ),
}
"""Every key of an entry."""
