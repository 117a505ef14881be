"""`when`: conditions on what happened, made of data, asked before a hook's process is started.

A condition is a mapping from fields to tests; all of them must hold. `any`, `all` and `not` combine conditions,
and inside a field they combine tests. The rules stand in docs/reference/hookline-yaml.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from hookline.claude.tools import keys_like
from hookline.engine.plain import plain
from hookline.engine.point import Point, Scope, Status
from hookline.errors import UsageError, meant, nearest
from hookline.matcher import TOOL_KINDS, search
from hookline.source import Trail, Wrong, key_of

if TYPE_CHECKING:
    from hookline.engine.context import HookContext

Condition = Callable[["HookContext"], bool]
Test = Callable[[Any], bool]

FIELDS: Mapping[str, Callable[[HookContext], Any]] = {
    "input": lambda context: context.given.payload,
    "output": lambda context: context.given.output,
    "tool": lambda context: context.facts.current_tool,
    "kind": lambda context: context.facts.tool_kind,
    "agent": lambda context: context.facts.agent,
    "status": lambda context: context.facts.status,
}
"""The first words of a path. Only `input` and `output` have something inside them."""

_ONLY_AT: Mapping[str, tuple[str, Callable[[Point], bool]]] = {
    "output": ("there is an output only at .end points", lambda point: not point.is_start),
    "status": ("there is a status only at .end points", lambda point: not point.is_start),
    "tool": ("there is a tool only at tool.start and tool.end", lambda point: point.scope is Scope.TOOL),
    "kind": ("there is a tool only at tool.start and tool.end", lambda point: point.scope is Scope.TOOL),
}
_VOCABULARY: Mapping[str, tuple[str, ...]] = {"status": tuple(Status), "kind": TOOL_KINDS}
_MISSING = object()


def condition(data: Mapping[str, Any]) -> Condition:
    """The predicate that the data describes. It never raises; a value of another type does not fit."""
    try:
        holds = check_condition(data, ())
    except Wrong as exc:
        raise UsageError(f"{key_of(('when', *exc.trail))}: {exc.message}") from None

    def met(context: HookContext) -> bool:
        try:
            return holds(context)
        except TimeoutError:
            # A pattern took too long. Whether it concerns the hook cannot be told, so the hook is asked: never a way around a guard.
            return True

    return met


def check_condition(data: Any, points: Iterable[Point | str], inputs: Collection[str] = ()) -> Condition:
    """The condition as a predicate; Wrong where it is not one, or asks for what one of these points does not have.

    `inputs` are known keys of the input: a key that is nearly one of them is a mistake.
    """
    known = [point for point in points if isinstance(point, Point)]

    def all_of(data: Any, trail: Trail) -> Condition:
        if not isinstance(data, Mapping) or not data:
            raise Wrong("give conditions on fields, as in {input.command: {contains: push}}", trail)
        given = cast("Mapping[str, Any]", data).items()
        return _all([_combined(key, value, (*trail, key), all_of, field) for key, value in given])

    def field(key: str, value: Any, trail: Trail) -> Condition:
        root, *rest = key.split(".")
        _check_field(key, root, rest, trail)
        if root == "input" and rest and inputs and rest[0] not in inputs:
            _check_input(rest, inputs, trail)
        test, take = _test(value, trail), FIELDS[root]
        if root in _VOCABULARY:
            _check_words(value, _VOCABULARY[root], trail)
        why, there = _ONLY_AT.get(root, ("", lambda _: True))
        lacking = [point for point in known if not there(point)]
        if lacking:
            raise Wrong(f"this cannot be met at {', '.join(lacking)}: {why}", trail)
        if root == "input" and rest:
            return lambda context: test(_of_input(context, rest))
        return lambda context: test(_inside(take(context), rest))

    return all_of(data, ())


def _of_input(context: HookContext, path: list[str]) -> Any:
    """The value in the input, under this key or the one that the tool called has for the same thing."""
    payload, kind = context.given.payload, context.facts.tool_kind
    found = _inside(payload, path)
    others = keys_like(path[0], kind) if found is _MISSING and kind else ()
    return next(
        (item for key in others if (item := _inside(payload, [key, *path[1:]])) is not _MISSING), found
    )


def _all(tests: list[Test]) -> Test:
    return tests[0] if len(tests) == 1 else lambda found: all(test(found) for test in tests)


def _combined(
    word: str,
    value: Any,
    trail: Trail,
    inner: Callable[[Any, Trail], Test],
    other: Callable[[str, Any, Trail], Test],
) -> Test:
    """`not`, `any` and `all` of what `inner` reads, be it conditions or tests of a field; `other` reads other words."""
    if word == "not":
        test = inner(value, trail)
        return lambda found: not test(found)
    if word not in ("any", "all"):
        return other(word, value, trail)
    if not isinstance(value, list) or not value:
        raise Wrong(f"{word} needs a list with at least one item", trail)
    items = cast("list[Any]", value)
    tests = [inner(item, (*trail, index)) for index, item in enumerate(items)]
    return _all(tests) if word == "all" else lambda found: any(test(found) for test in tests)


def _check_field(key: str, root: str, rest: list[str], trail: Trail) -> None:
    if root not in FIELDS:
        near = nearest(root, FIELDS, 0.7)
        right = ".".join([near, *rest]) if near else f"input.{key}"
        raise Wrong(
            f"unknown field {key!r}; did you mean {right}? A field begins with {', '.join(FIELDS)}", trail
        )
    if rest and root not in ("input", "output"):
        raise Wrong(f"{root} is one word and has no {'.'.join(rest)!r}; write {root}", trail)
    if not all(rest):
        raise Wrong(f"the path {key!r} has an empty part", trail)


def _check_input(rest: list[str], inputs: Collection[str], trail: Trail) -> None:
    near = nearest(rest[0].lower(), inputs, 0.8)
    if near and rest[0] != f"{near}s":
        right = ".".join(["input", near, *rest[1:]])
        raise Wrong(f"no tool that this is for has {rest[0]!r} in its input; did you mean {right}?", trail)


def _check_words(value: Any, known: tuple[str, ...], trail: Trail) -> None:
    """Told where a closed vocabulary is compared with a word that it does not have."""
    if isinstance(value, str) and value not in known:
        raise Wrong(f"unknown word {value!r}{meant(value, known)}", trail)
    if isinstance(value, list):
        for index, item in enumerate(cast("list[Any]", value)):
            _check_words(item, known, (*trail, index))
    if isinstance(value, Mapping):
        for key, item in cast("Mapping[str, Any]", value).items():
            if key in ("equals", "not", "any", "all"):
                _check_words(item, known, (*trail, key))


def _test(value: Any, trail: Trail) -> Test:
    """A test of one field: a value to equal, a list of which one must hold, or a mapping that must hold whole."""
    if isinstance(value, list):
        return _combined("any", value, trail, _test, _named_test)
    if not isinstance(value, Mapping):
        return _equals(value, trail)
    given = cast("Mapping[str, Any]", value)
    if not given:
        raise Wrong(f"give a test: {', '.join(_WORDS)}", trail)
    return _all([_combined(word, item, (*trail, word), _test, _named_test) for word, item in given.items()])


def _named_test(word: str, wanted: Any, trail: Trail) -> Test:
    make = _TESTS.get(word)
    if make is None:
        raise Wrong(f"unknown test {word!r}{meant(word, _WORDS)}", trail)
    return make(wanted, trail)


def _equals(wanted: Any, trail: Trail) -> Test:
    return lambda found: found is not _MISSING and _same(found, wanted)


def _contains(wanted: Any, trail: Trail) -> Test:
    text = _text(wanted, "contains", trail)

    def contains(found: Any) -> bool:
        if isinstance(found, list | tuple) and text in cast("list[Any]", found):
            return True
        known = _as_text(found)
        return known is not None and text in known

    return contains


def _matches(wanted: Any, trail: Trail) -> Test:
    try:
        find = search(_text(wanted, "matches", trail))
    except UsageError as exc:
        raise Wrong(str(exc), trail) from exc

    def matches(found: Any) -> bool:
        known = _as_text(found)
        return known is not None and find(known)

    return matches


def _exists(wanted: Any, trail: Trail) -> Test:
    if not isinstance(wanted, bool):
        raise Wrong(f"exists is {wanted!r}; give true or false", trail)
    return lambda found: (found is not _MISSING and found is not None) is wanted


_TESTS: Mapping[str, Callable[[Any, Trail], Test]] = {
    "equals": _equals,
    "contains": _contains,
    "matches": _matches,
    "exists": _exists,
}
_WORDS = (*_TESTS, "not", "any", "all")


def _inside(value: Any, path: list[str]) -> Any:
    """The value at the path, or _MISSING."""
    for part in path:
        if not isinstance(value, Mapping | list | tuple):
            value = plain(value)
        if isinstance(value, Mapping):
            value = cast("Mapping[str, Any]", value).get(part, _MISSING)
        elif isinstance(value, list | tuple):
            value = _item(cast("list[Any]", value), part)
        else:
            return _MISSING
    return value


def _item(items: list[Any], part: str) -> Any:
    """Positions are short: a longer word of digits is none, and need not be made a number."""
    if not (part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(items)):
        return _MISSING
    return items[int(part)]


def _as_text(value: Any) -> str | None:
    """Text, or a list of texts as one line: a command may be given as its arguments."""
    if isinstance(value, str):
        return value
    if isinstance(value, list | tuple):
        items = cast("list[Any]", value)
        return " ".join(items) if all(isinstance(item, str) for item in items) else None
    return None


def _same(one: Any, other: Any) -> bool:
    """Equal as JSON is: 1 is 1.0, and neither is true. It goes only as deep as what was written in the file."""
    if not isinstance(one, str | int | float | Mapping | list | tuple | None):
        one = plain(one)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(other, Mapping):
        found, wanted = cast("Mapping[str, Any]", one), cast("Mapping[str, Any]", other)
        return (
            isinstance(one, Mapping)
            and found.keys() == wanted.keys()
            and all(_same(found[key], item) for key, item in wanted.items())
        )
    if isinstance(other, list):
        items, wanted_items = cast("list[Any]", one), cast("list[Any]", other)
        return (
            isinstance(one, list | tuple)
            and len(items) == len(wanted_items)
            and all(map(_same, items, wanted_items))
        )
    if isinstance(other, int | float):
        return isinstance(one, int | float) and one == other
    return one == other if isinstance(other, str) else one is None and other is None


def _text(wanted: Any, word: str, trail: Trail) -> str:
    if not isinstance(wanted, str) or not wanted:
        raise Wrong(f"{word} is {wanted!r}; give a text", trail)
    return wanted


_TEST_REF, CONDITION_REF = {"$ref": "#/$defs/test"}, {"$ref": "#/$defs/condition"}
_TEST_LIST = {"type": "array", "items": _TEST_REF, "minItems": 1}
_CONDITION_LIST = {"type": "array", "items": CONDITION_REF, "minItems": 1}
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
                "exists": {
                    "type": "boolean",
                    "description": "True: it is there and not null; false: it is missing or null.",
                },
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
    "properties": {"not": CONDITION_REF, "any": _CONDITION_LIST, "all": _CONDITION_LIST},
    "patternProperties": {
        r"^(input|output)(\.[^.]+)*$": _TEST_REF,
        f"^({'|'.join(field for field in FIELDS if field not in ('input', 'output'))})$": _TEST_REF,
    },
}
SHAPES = {"condition": _CONDITION, "test": _TEST}
"""The JSON Schema of conditions and of the tests in them, by the names under which they refer to each other."""
