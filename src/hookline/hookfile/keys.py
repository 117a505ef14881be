"""The keys of a hook in `hookline.yaml`: what each says, what reads it, and its shape for editors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from hookline.engine.hook import Mode, OnError
from hookline.engine.point import Point
from hookline.errors import UsageError
from hookline.hookfile import kinds
from hookline.hookfile.condition import CONDITION_REF, check_condition
from hookline.hookfile.kinds import DOTTED, IMAGE, PROCESSES, REQUEST, URL, VARIABLE, line_of_text
from hookline.matcher import matcher
from hookline.source import Trail, Wrong, without_lines
from hookline.table import Key, Node, Reader, Table, flag, meant, spoken

_NAME = re.compile(r"\S(?:[^\x00-\x1f\x7f]*\S)?")
_FOREIGN = re.compile(r"x\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*(ms|s|m|h)", re.ASCII)
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LOOKS_LIKE_MILLISECONDS = 1000

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
"""The names of the points in other systems, for the hint."""

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


def _name(node: Node) -> str:
    value = node.value
    if not isinstance(value, str):
        raise Wrong(f"is {value!r}; give a text, in quotes if it looks like a number")
    if not _NAME.fullmatch(value) or len(value) > 200:
        raise Wrong(f"is {value!r}; give one line, not empty, of at most 200 characters")
    return value


def _on(node: Node) -> tuple[Point | str, ...]:
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
        if _FOREIGN.fullmatch(word):
            return word
        letters = re.sub(r"[^a-z]", "", word.lower())
        plain_names = {point.replace(".", ""): point for point in Point}
        known = _ELSEWHERE.get(letters) or plain_names.get(letters)
        raise Wrong(
            f"unknown point {word!r}{f'; did you mean {known}?' if known else meant(word, Point)}", trail
        )
    raise Wrong(f"{word!r} is not a point; known: {', '.join(Point)}", trail)


def _match(node: Node) -> str | tuple[str, ...]:
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


def _when(node: Node) -> dict[str, Any]:
    check_condition(node.value, ())
    return without_lines(node.value)


def _args(node: Node) -> list[str]:
    value = node.value
    if not isinstance(value, list):
        raise Wrong(f"is {value!r}; give a list of arguments")
    for index, item in enumerate(cast("list[Any]", value)):
        if not isinstance(item, str) or "\0" in item:
            raise Wrong(f"{item!r} is not a text; put it in quotes", (index,))
    return [str(item) for item in cast("list[Any]", value)]


def _timeout(node: Node) -> float:
    value = node.value
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


def _one_of(words: Iterable[str], make: Callable[[str], Any] = str) -> Reader:
    known = tuple(words)

    def read_word(node: Node) -> Any:
        if node.value not in known:
            near = meant(node.value, known) if isinstance(node.value, str) else f"; known: {', '.join(known)}"
            raise Wrong(f"unknown word {node.value!r}{near}")
        return make(node.value)

    return read_word


def _env(node: Node) -> dict[str, str]:
    if not isinstance(node.value, Mapping):
        raise Wrong("give NAME: value")
    found: dict[str, str] = {}
    for name, item in node.of_mapping.items():
        if not VARIABLE.fullmatch(name):
            raise Wrong("this is not the name of an environment variable", (name,))
        if name.startswith("HOOKLINE_"):
            raise Wrong("names that begin with HOOKLINE_ are set by hookline", (name,))
        if isinstance(item, bool) or not isinstance(item, str | int) or "\0" in str(item):
            raise Wrong(f"is {item!r}; give a text, in quotes", (name,))
        found[name] = str(item)
    return found


def _cwd(node: Node) -> str:
    return line_of_text(node.value, "give a folder")


def _preload(node: Node) -> list[str]:
    words = _one_or_more(node)
    for word, trail in words:
        if not isinstance(word, str) or not DOTTED.fullmatch(word):
            raise Wrong(f"{word!r} is not the name of a module", trail)
    return [word for word, _ in words]


_TEXT = {"type": "string", "pattern": r"\S"}
_TEXTS = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1}]}
_POINT = {
    "anyOf": [
        {"enum": [str(point) for point in Point]},
        {"type": "string", "pattern": f"^{_FOREIGN.pattern}$"},
    ]
}

_NAMED = "Its name in messages and in the journal; unique in the file."
_STANDS = "The point it runs at, such as tool.start, or a list of points."

HOOK = Table(
    {
        "name": Key(
            _name,
            _NAMED,
            needed=spoken(_NAMED),
            shape={"type": "string", "pattern": f"^{_NAME.pattern}$".replace("(?:", "("), "maxLength": 200},
        ),
        "on": Key(
            _on,
            _STANDS,
            needed=spoken(_STANDS),
            shape={"anyOf": [_POINT, {"type": "array", "items": _POINT, "minItems": 1, "uniqueItems": True}]},
        ),
        "match": Key(
            _match,
            "The tools it is for: a name, a pattern for whole names, kind:shell, or a list of those.",
            shape=_TEXTS,
        ),
        "when": Key(
            _when,
            "Conditions on what happened; where they are not met, the hook is not started.",
            shape=CONDITION_REF,
        ),
        "python": Key(
            kinds.python,
            "A Python function: module:function, or file.py:function from the folder of this file.",
            shape={"type": "string", "pattern": r"^[^\n]+:[^\W\d]\w*$"},
        ),
        "command": Key(
            kinds.command,
            "A program that reads JSON and answers; one text, split as a shell would, or a list of arguments.",
            shape={"anyOf": [_TEXT, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
        ),
        "shell": Key(
            kinds.shell,
            "A script for sh; exit code 0 goes on, any other is a failure of the hook.",
            shape=_TEXT,
        ),
        "http": Key(
            kinds.http,
            "A URL that is sent the JSON and answers; or url and headers_from_env.",
            shape={"anyOf": [URL, REQUEST.schema()]},
            inner=REQUEST,
        ),
        "image": Key(
            kinds.image,
            "An image that is run in a container; exit code 0 goes on, any other is a failure of the hook.",
            shape={"type": "string", "pattern": f"^{IMAGE.pattern}$"},
        ),
        "args": Key(
            _args,
            "The arguments of the image's own program, or of command; a list.",
            shape={"type": "array", "items": {"type": "string"}},
        ),
        "network": Key(
            flag,
            "Gives the container this machine's network; false if not given.",
            shape={"type": "boolean"},
        ),
        "timeout": Key(
            _timeout,
            "How long it may take: seconds, or a text with a unit (500ms, 5s, 2m, 1h); 60 if not given.",
            shape={
                "anyOf": [
                    {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": _LOOKS_LIKE_MILLISECONDS},
                    {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)\s*$"},
                ]
            },
        ),
        "on_error": Key(
            _one_of(OnError, OnError),
            "The result when it breaks: continue, block or fail.",
            shape={"enum": [str(word) for word in OnError]},
        ),
        "mode": Key(
            _one_of(Mode, Mode),
            "Its mode: enforce, observe (its verdict is only recorded) or off.",
            shape={"enum": [str(word) for word in Mode]},
        ),
        "env": Key(
            _env,
            "Further environment variables, NAME: value.",
            shape={
                "type": "object",
                "propertyNames": {"pattern": f"^(?!HOOKLINE_){VARIABLE.pattern}$"},
                "additionalProperties": {"type": ["string", "integer"]},
            },
        ),
        "cwd": Key(
            _cwd,
            "The folder it runs in, from the folder of this file; the run's workspace if not given.",
            shape=_TEXT,
        ),
        "background": Key(
            _one_of(("end", "keep")),
            "Processes that it leaves behind: end (if not given) or keep.",
            shape={"enum": ["end", "keep"]},
        ),
        "warm": Key(
            _one_of(("fork",)),
            "Give fork to keep a Python interpreter ready, forked afresh for each call.",
            shape={"enum": ["fork"]},
        ),
        "preload": Key(_preload, "The modules that a warm interpreter has loaded.", shape=_TEXTS),
    },
    instead=_INSTEAD,
    null="wrong",
)
"""Every key of an entry."""

ONLY_FOR: Mapping[str, tuple[str, ...]] = {
    "args": ("image",),
    "network": ("image",),
    "env": (*PROCESSES, "image"),
    "cwd": PROCESSES,
    "background": PROCESSES,
    "warm": ("command",),
    "preload": ("command",),
}
"""The kinds of hook that a key is for, where it is not for all."""
