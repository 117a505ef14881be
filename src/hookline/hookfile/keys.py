"""The keys of a hook in `hookline.yaml`: what reads the value of each."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from hookline.claude.events import CALLERS, known_caller
from hookline.claude.tools import TOOLS
from hookline.engine.context import Facts
from hookline.engine.point import KEYWORDS, Point
from hookline.errors import UsageError, meant, nearest
from hookline.hookfile.condition import check_condition
from hookline.matcher import matcher
from hookline.secrets import INHERIT
from hookline.source import Trail, Wrong, without_lines
from hookline.table import Key, Node, Table, split_command

NAME = re.compile(r"\S(?:[^\x00-\x1f\x7f]*\S)?")
FOREIGN = re.compile(r"x\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
MILLISECONDS_FROM = 1000

_ELSEWHERE: Mapping[str, Point] = {
    **{name.lower(): point for names in CALLERS.values() for name, point in names.items() if point},
    **{name.replace("_", ""): point for name, point in KEYWORDS.items()},
    "aftercreate": Point.WORKSPACE_START,
    "beforeremove": Point.WORKSPACE_END,
    "beforerun": Point.RUN_START,
    "afterrun": Point.RUN_END,
    "prerun": Point.RUN_START,
    "postrun": Point.RUN_END,
}
"""The names of the points in other systems, for the hint."""

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_VARIABLE = {"pattern": f"^(?!HOOKLINE_){VARIABLE.pattern}$"}
ENV = {
    "anyOf": [
        {
            "type": "object",
            "propertyNames": _VARIABLE,
            "additionalProperties": {"type": ["string", "integer"]},
        },
        {"type": "array", "items": {"type": "string", **_VARIABLE}},
        {"const": INHERIT},
    ]
}
DOTTED = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")
IMAGE = re.compile(r"[A-Za-z0-9][^\s\x00-\x1f,]*", re.ASCII)
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", re.ASCII)
_REFERENCE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?", re.ASCII)
_HEADER_TEXT = re.compile(
    r"[A-Za-z_][A-Za-z0-9_]*|[\x20-\x7e]*\$(?:[A-Za-z_]|\{[A-Za-z_][A-Za-z0-9_]*\})[\x20-\x7e]*"
)
_ADDRESS = "give http://... or https://..."
URL = {"type": "string", "pattern": r"^https?://[^/?#\s@]+([/?#]\S*)?$"}
_HEADER_SHAPE = {"type": "string", "pattern": f"^({_HEADER_TEXT.pattern})$"}


def name(node: Node) -> str:
    value = node.value
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; give a text, in quotes if it looks like a number")
    if not NAME.fullmatch(value) or len(value) > 200:
        raise Wrong(f"is {value!r}; give one line, not empty, of at most 200 characters")
    return value


def on(node: Node) -> tuple[Point | str, ...]:
    points: list[Point | str] = []
    for word, trail in _one_or_more(node):
        point = _point(word, trail)
        if point in points:
            raise Wrong(f"{point} is named twice", trail)
        points.append(point)
    if not points:
        raise Wrong("is an empty list; name a point, such as tool.start")
    return tuple(points)


def _one_or_more(node: Node) -> list[tuple[Any, Trail]]:
    """The value, or each of a list, with the way to it."""
    if not isinstance(node.value, list):
        return [(node.value, ())]
    return [(item, (index,)) for index, item in enumerate(node.of_list)]


def _point(word: Any, trail: Trail) -> Point | str:
    if isinstance(word, str):
        if word in Point.__members__.values():
            return Point(word)
        if word.startswith("x."):
            try:
                return foreign_point(word)
            except UsageError as exc:
                raise Wrong(str(exc), trail) from exc
        letters = re.sub(r"[^a-z]", "", word.lower())
        plain_names = {point.replace(".", ""): point for point in Point}
        known = _ELSEWHERE.get(letters) or plain_names.get(letters)
        raise Wrong(
            f"unknown point {word!r}{f'; did you mean {known}?' if known else meant(word, Point)}", trail
        )
    raise Wrong(f"{word!r} is not a point; known: {', '.join(Point)}", trail)


def foreign_point(word: str) -> str:
    """`x.client.Event` as it is; UsageError if no hook is ever called there. A client may have newer events than we know."""
    if not FOREIGN.fullmatch(word):
        raise UsageError(f"unknown point {word!r}; an event of a client is written as x.claude.Notification")
    client, event = word.split(".")[1:]
    known = known_caller(client)
    if point := known.get(event):
        raise UsageError(f"{word!r} is no point of its own; write {point}")
    names = {each.lower(): each for each in known}
    near = nearest(event.lower(), names, 0.85)
    if near and event not in known:
        raise UsageError(f"{event!r} is not an event of {client}; did you mean {names[near]}?")
    return word


def match(node: Node) -> str | tuple[str, ...]:
    words = _one_or_more(node)
    if not words:
        raise Wrong("is an empty list, which fits no tool; leave it out to fit them all")
    for word, trail in words:
        if not isinstance(word, str) or not word.strip():
            raise Wrong(f"is {word!r}; give a name, a pattern or kind:shell", trail)
        if word == "*":
            raise Wrong("'*' is not a pattern; write .*, or leave match out to fit every tool", trail)
        try:
            matcher(word)
        except UsageError as exc:
            raise Wrong(str(exc), trail) from exc
    return tuple(word for word, _ in words) if len(words) > 1 else words[0][0]


def inputs_of(match: str | tuple[str, ...] | None) -> set[str]:
    """The known keys of the inputs of the clients' tools that a match fits."""
    if match is None:
        return set()
    fits = matcher(match)
    known = [pair for tools in TOOLS.values() for pair in tools.items()]
    fitting = [tool for name, tool in known if fits(Facts("", current_tool=name, tool_kind=tool.kind))]
    return {key for tool in fitting for key in tool.keys.values()}


def when(node: Node) -> dict[str, Any]:
    check_condition(node.value, ())
    return without_lines(node.value)


def args(node: Node) -> list[str]:
    if not isinstance(node.value, list):
        raise Wrong(f"is {node.value!r}; give a list of arguments")
    return _arguments(node)


def timeout(node: Node) -> float:
    value = node.value
    wanted = "give seconds (5, 0.5) or a text with a unit (500ms, 5s, 2m, 1h)"
    if isinstance(value, str):
        found = _DURATION.fullmatch(value.strip())
        if not found:
            raise Wrong(f"is {value!r}; {wanted}")
        seconds = float(found[1]) * _UNITS[found[2]]
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise Wrong(f"is {value!r}; {wanted}")
    elif abs(value) >= MILLISECONDS_FROM:
        raise Wrong(f"is {value}: seconds, or meant as milliseconds? Write {value}s or {value}ms")
    else:
        seconds = float(value)
    if not seconds > 0 or not math.isfinite(seconds):
        raise Wrong(f"is {value!r}; {wanted}, more than 0")
    return seconds


def env(node: Node) -> dict[str, Any]:
    """The parameters of further variables, `env`, and of the keys that are handed on, `handed`."""
    if node.value == INHERIT:
        return {"handed": INHERIT}
    if isinstance(node.value, list):
        for index, item in enumerate(node.of_list):
            _variable(item, index)
        return {"handed": list(node.of_list)}
    if not isinstance(node.value, Mapping):
        raise Wrong(f"give NAME: value, a list of names to hand on, or {INHERIT}")
    found: dict[str, str] = {}
    for name, item in node.of_mapping.items():
        _variable(name, name)
        if isinstance(item, bool) or not isinstance(item, str | int) or "\0" in str(item):
            raise Wrong(f"is {item!r}; give a text, in quotes", (name,))
        found[name] = str(item)
    return {"env": found}


def _variable(name: Any, part: str | int) -> None:
    if not isinstance(name, str) or not VARIABLE.fullmatch(name):
        raise Wrong("this is not the name of an environment variable", (part,))
    if name.startswith("HOOKLINE_"):
        raise Wrong("names that begin with HOOKLINE_ are set by hookline", (part,))


def cwd(node: Node) -> str:
    return _line_of_text(node.value, "give a folder")


def preload(node: Node) -> list[str]:
    words = _one_or_more(node)
    for word, trail in words:
        if not isinstance(word, str) or not DOTTED.fullmatch(word):
            raise Wrong(f"{word!r} is not the name of a module", trail)
    return [word for word, _ in words]


def python(node: Node) -> dict[str, Any]:
    target = _line_of_text(node.value, "give module:function, or file.py:function")
    place, _, function = target.rpartition(":")
    if not place or not function.isidentifier():
        raise Wrong(f"is {target!r}; give module:function, or file.py:function")
    if place.endswith(".py"):
        return {"file": place, "function": function}
    if not DOTTED.fullmatch(place):
        raise Wrong(f"{place!r} is neither a module nor a file that ends in .py")
    return {"module": place, "function": function}


def command(node: Node) -> dict[str, Any]:
    if isinstance(node.value, list):
        argv = _arguments(node)
    else:
        argv = _split(_line_of_text(node.value, "give a command, or a list of its arguments", lines=True))
    if not argv or not argv[0].strip():
        raise Wrong("names no program")
    return {"argv": argv}


def _arguments(node: Node) -> list[str]:
    """A list of texts."""
    for index, item in enumerate(node.of_list):
        if not isinstance(item, str):
            raise Wrong(f"{item!r} is not a text; put it in quotes", (index,))
        if "\0" in item:
            raise Wrong("has a NUL character in it", (index,))
    return list(node.of_list)


def _split(text: str) -> list[str]:
    """As a shell would split it; what only a shell could do is told, not handed on as text."""
    argv, special = split_command(text, "; give a list of them")
    replaced = re.search(r"(?<!\\)(?:\$[A-Za-z_{(]|`)|(?:^|\s)~/", re.sub(r"'[^']*'", "", text))
    if special or replaced:
        what = special or (replaced.group().strip() if replaced else "")
        raise Wrong(f"is started without a shell, so {what!r} has no effect; write shell: instead, or a list")
    return argv


def shell(node: Node) -> dict[str, Any]:
    script = _line_of_text(node.value, "give a script", lines=True)
    return {"script": script}


def http(node: Node) -> dict[str, Any]:
    if isinstance(node.value, str):
        return {"url": _url(node), "headers": {}, "variables": []}
    if not isinstance(node.value, Mapping):
        raise Wrong(f"is {node.value!r}; give a URL, or url and headers_from_env")
    values = REQUEST.read(node)
    headers: dict[str, str] = values.get("headers_from_env", {})
    variables = {found[1] for text in headers.values() for found in _REFERENCE.finditer(text)}
    return {"url": values.get("url", ""), "headers": headers, "variables": sorted(variables)}


def _url(node: Node) -> str:
    value = node.value
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; {_ADDRESS}")
    try:
        parts = urlsplit(value)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError as exc:
        raise Wrong(f"{value!r} is not a URL: {exc}; {_ADDRESS}") from None
    if not right or re.search(r"[\s\x00-\x1f]", value):
        raise Wrong(f"{value!r} is not a URL; {_ADDRESS}")
    if parts.username or parts.password:
        raise Wrong("has a user or password in it; use headers_from_env, which names a variable")
    return value


def _headers(node: Node) -> dict[str, str]:
    """Each header with its variables as `${NAME}`: no secret stands in the file."""
    if not isinstance(node.value, Mapping):
        raise Wrong("give header: VARIABLE, the name of an environment variable")
    found: dict[str, str] = {}
    for header, text in node.of_mapping.items():
        if not _HEADER.fullmatch(header):
            raise Wrong("this is not the name of a header", (header,))
        if not isinstance(text, str) or not _HEADER_TEXT.fullmatch(text):
            raise Wrong(
                "give a variable (HOOK_TOKEN), or a text with one (Bearer $HOOK_TOKEN); no value", (header,)
            )
        found[header] = f"${{{text}}}" if VARIABLE.fullmatch(text) else _REFERENCE.sub(r"${\1}", text)
    return found


def image(node: Node) -> dict[str, Any]:
    name = _line_of_text(node.value, "give the name of an image, such as registry.example/guard:1")
    if not IMAGE.fullmatch(name):
        raise Wrong(f"{name!r} is not the name of an image; give one such as registry.example/guard:1")
    return {"image": name}


def _line_of_text(value: Any, wanted: str, *, lines: bool = False) -> str:
    if not isinstance(value, str) or not value.strip():
        raise Wrong(f"is {value!r}; {wanted}")
    if "\0" in value or (not lines and "\n" in value):
        raise Wrong(f"has a {'NUL' if lines else 'NUL or a line break'} in it; {wanted}")
    return value


REQUEST = Table(
    {
        "url": Key(_url, needed=_ADDRESS, shape=URL),
        "headers_from_env": Key(_headers, shape={"type": "object", "additionalProperties": _HEADER_SHAPE}),
    },
    null="read",
)
