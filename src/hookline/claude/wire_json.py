"""Strict reading of the JSON that a hook prints: one object, known keys, right types. Anything else is HookBroke."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from hookline.claude.events import EVENTS
from hookline.engine.result import HookAction
from hookline.errors import HookBroke

DEEPEST = 100

Json = dict[str, Any]

TOP_KEYS: Mapping[str, type] = {
    "continue": bool,
    "stopReason": str,
    "suppressOutput": bool,
    "systemMessage": str,
    "terminalSequence": str,
    "decision": str,
    "reason": str,
    "async": bool,
    "asyncTimeout": float,
    "hookSpecificOutput": dict,
}
SPECIFIC_KEYS: Mapping[str, type | None] = {
    "hookEventName": str,
    "permissionDecision": str,
    "permissionDecisionReason": str,
    "updatedInput": dict,
    "additionalContext": str,
    "updatedToolOutput": None,
    "updatedMCPToolOutput": None,
    "classifierContext": str,
    "decision": dict,
    "retry": bool,
    "sessionTitle": str,
    "suppressOriginalPrompt": bool,
    "displayContent": str,
    "initialUserMessage": str,
    "watchPaths": list,
    "reloadSkills": bool,
    "action": str,
    "content": dict,
    "worktreePath": str,
}
BEHAVIOR_KEYS: Mapping[str, type] = {
    "behavior": str,
    "message": str,
    "interrupt": bool,
    "updatedInput": dict,
    "updatedPermissions": list,
}
_KINDS: Mapping[Any, str] = {
    bool: "true or false",
    str: "a string",
    dict: "an object",
    list: "an array",
    float: "a number",
    int: "a number",
    type(None): "null",
}
_FOREIGN_VERDICTS = frozenset({"permission", "cancel", "block", "blocked", "deny", "denied", "behavior"})
_ANSWER_KEY = re.compile(
    r'"(?:continue|stopReason|suppressOutput|systemMessage|decision|hookSpecificOutput|hookEventName|'
    r'permissionDecision|permissionDecisionReason|updatedInput|updatedToolOutput|additionalContext)"\s*:'
)


def object_in(text: str) -> Json | None:
    """The JSON object in the text; None for plain text; HookBroke for anything in between."""
    if not text.startswith("{"):
        _check_plain(text)
        return None
    try:
        value: Any = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except RecursionError:
        raise bad_answer(f"its JSON is nested deeper than {DEEPEST} levels") from None
    except ValueError as exc:
        raise bad_answer(
            f"its answer starts with '{{' but is not JSON ({exc}): {shown(text)};"
            " print one JSON object and nothing before or after it"
        ) from None
    _check_values(value)
    return cast("Json", value)


def _check_plain(text: str) -> None:
    found = _ANSWER_KEY.search(text)
    if found is not None:
        raise bad_answer(
            f"printed an answer with something before it, or a part of one ({found.group()} in {shown(text)});"
            " print one JSON object and nothing before or after it"
        )
    if not text.startswith(("[", '"', "true", "false", "null", "NaN", "Infinity", "-Infinity")):
        return
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise bad_answer(
            f"printed a JSON array nested deeper than {DEEPEST} levels; print one JSON object"
        ) from None
    except ValueError:
        return
    raise bad_answer(f"answered {_kind(value)} ({shown(text)}); print one JSON object")


def _check_values(value: Any) -> None:
    """Raises for valid JSON that later code cannot carry: deep nesting, infinite numbers, lone surrogates."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            raise bad_answer(f"its JSON is nested deeper than {DEEPEST} levels")
        if isinstance(item, dict):
            members = cast("Json", item)
            waiting += [(inner, depth + 1) for pair in members.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in cast("list[Any]", item)]
        elif isinstance(item, float) and not math.isfinite(item):
            raise bad_answer("its JSON has a number too large to hold")
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise bad_answer("its JSON has half of a surrogate pair, which is not a character") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _once_each(pairs: list[tuple[str, Any]]) -> Json:
    whole: Json = {}
    for key, value in pairs:
        if key in whole:
            raise ValueError(f"the key {key!r} is there twice")
        whole[key] = value
    return whole


def specific_part(name: str, answer: Json) -> Json:
    """The checked `hookSpecificOutput` of the answer; empty if there is none."""
    specific = cast("Json", answer.get("hookSpecificOutput", {}))
    if "hookSpecificOutput" not in answer:
        return {}
    if "hookEventName" not in specific:
        raise bad_answer(f'hookSpecificOutput has no hookEventName; add "hookEventName": "{name}"')
    if specific["hookEventName"] != name:
        raise bad_answer(
            f"hookSpecificOutput is for {specific['hookEventName']!r}, but this is {name};"
            f' write "hookEventName": "{name}"'
        )
    check_types(specific, SPECIFIC_KEYS, "hookSpecificOutput.")
    reads = EVENTS[name].reads
    for key in specific:
        if key not in SPECIFIC_KEYS:
            _check_spelling(key, SPECIFIC_KEYS)
        elif key != "hookEventName" and key not in reads:
            known = ", ".join(reads) or "nothing"
            raise HookBroke(
                f"hookSpecificOutput.{key} means nothing at {name}, which reads: {known}", kind="wrong_point"
            )
    return dict(specific)


def check_keys(name: str, answer: Json) -> None:
    """Ignores unknown keys, but raises for a decision under a wrong name, which must not be lost."""
    for key in answer:
        if key in TOP_KEYS:
            continue
        if key in SPECIFIC_KEYS:
            raise bad_answer(
                f"{key!r} at the top level has no effect; it belongs in"
                f' "hookSpecificOutput": {{"hookEventName": "{name}", "{key}": ...}}'
            )
        if key in _FOREIGN_VERDICTS:
            raise bad_answer(
                f'{key!r} has no effect here; to refuse, write "decision": "block" or exit with 2'
            )
        _check_spelling(key, TOP_KEYS)


def _check_spelling(key: str, known: Iterable[str]) -> None:
    lower = {word.lower(): word for word in known}
    plain = key.lower().replace("_", "").replace("-", "")
    near = _near(plain, lower, 0.85)
    near = near or [word for word in lower if sorted(word) == sorted(plain)]
    if near:
        raise bad_answer(f"unknown key {key!r}; did you mean {lower[near[0]]!r}?")


def check_types(value: Json, types: Mapping[str, type | None], where: str) -> None:
    for key, wanted in types.items():
        if key not in value:
            continue
        got = value[key]
        right = got is not None if wanted is None else _is(got, wanted)
        if not right:
            must = _KINDS[wanted] if wanted else "a value other than null"
            raise bad_answer(f"{where}{key} is {_kind(got)}; it must be {must}")


def _is(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, wanted)


def action_of(words: Mapping[str, HookAction], key: str, value: Any) -> HookAction:
    if isinstance(value, str) and value in words:
        return words[value]
    near = _near(str(value).lower(), words, 0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise bad_answer(f"{key} is {value!r}; {hint}known: {', '.join(words)}")


def _near(word: str, known: Iterable[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches  # only for a message; most answers need none

    return get_close_matches(word, list(known), n=1, cutoff=cutoff)


def decoded(output: bytes) -> str:
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise bad_answer(f"its output is not UTF-8 ({exc.reason} at byte {exc.start})") from None
    return text.strip().removeprefix("\ufeff").strip()


def _kind(value: Any) -> str:
    return _KINDS[value.__class__]


def shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}")


def bad_answer(message: str) -> HookBroke:
    return HookBroke(message, kind="bad_answer")
