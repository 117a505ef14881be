"""As host: what a hook's exit code, stdout and stderr mean at an event."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from hookline.claude.events import EVENTS, NAMES, Event, meant
from hookline.engine.classes import replace
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookAction, HookResult
from hookline.errors import HookBroke, UsageError

TEXT_LIMIT = 10_000
"""Characters of one hook's text that reach the model whole."""

JOURNAL_KEEPS = 65_536
"""Bytes of one text that the journal keeps."""

DEEPEST = 100
_SHOWN_OF_LONG_TEXT = 2_000
_STOCK_REASON = "refused by a hook (exit code 2), which gave no reason"

Json = dict[str, Any]

_TOP: Mapping[str, type] = {
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
_SPECIFIC: Mapping[str, type | None] = {
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
_BEHAVIOR: Mapping[str, type] = {
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

_DECISIONS = {"block": HookAction.BLOCK, "approve": HookAction.ALLOW}
_PERMISSIONS = {
    "deny": HookAction.BLOCK,
    # Nobody here parks a call for another program to take up; the nearest that is no yes is to ask.
    "defer": HookAction.ASK,
    "ask": HookAction.ASK,
    "allow": HookAction.ALLOW,
}
_WITHOUT_EFFECT: Mapping[str, str] = {
    "async": "it was waited for; put it in the settings",
    "terminalSequence": "there is no terminal of its own here to write to",
    "asyncTimeout": "a hook is put in the background by `async` in the settings",
    "classifierContext": "there is no classifier here",
    "retry": "what was refused is not tried again here",
    "sessionTitle": "a session has no title here",
    "suppressOriginalPrompt": "a refused prompt stays on record here",
    "initialUserMessage": "a session begins with what the agent is asked here",
    "watchPaths": "no file is watched here",
    "reloadSkills": "there are no skills here",
    "updatedPermissions": "no permission is kept for later here",
}
"""What is right to say and changes nothing, and why; whoever says it is told."""
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "stopReason": ("continue",),
    "reason": ("decision", "permissionDecision", "continue"),
    "permissionDecisionReason": ("permissionDecision",),
    "content": ("action",),
}
"""What is read only beside one of these."""
_ASKS_FOR_PERMISSION = ("PreToolUse", "PermissionRequest", "PreModelSwitch")
_STRICTEST_FIRST = (HookAction.FAIL, HookAction.BLOCK, HookAction.ASK, HookAction.ALLOW)
_FOREIGN_VERDICTS = frozenset({"permission", "cancel", "block", "blocked", "deny", "denied", "behavior"})
_ANSWER_KEY = re.compile(
    r'"(?:continue|stopReason|suppressOutput|systemMessage|decision|hookSpecificOutput|hookEventName|'
    r'permissionDecision|permissionDecisionReason|updatedInput|updatedToolOutput|additionalContext)"\s*:'
)


def decode(
    event: str | Point,
    exit_code: int,
    stdout: bytes | str,
    stderr: bytes | str = b"",
    *,
    reads_text: bool = True,
) -> HookResult:
    """The result that a hook's ending means; HookBroke where it means nothing.

    Exit code 0 reads the output, 2 refuses, any other is broke unless the output refuses.
    Without `reads_text` (an http hook) only a JSON object is an answer.
    """
    name = NAMES.get(event, str(event)) if isinstance(event, Point) else event.removeprefix("x.claude.")
    if name not in EVENTS:
        raise UsageError(f"unknown event {name!r}; {meant(name)}")
    at = EVENTS[name]
    said = _loose(stderr).strip()
    if exit_code == 2:
        return _refusal(at, _reason_beside_two(name, stdout) or said or _STOCK_REASON)
    if exit_code != 0:
        return _after_failure(name, exit_code, stdout, said)
    text = _strict(stdout)
    if _goes_async(text):
        return HookResult.continue_with(tell_user=_TOO_LATE)
    answer = _object_in(text)
    if answer is not None:
        return _meaning(name, answer)
    if text and not reads_text:
        raise _bad(f"answered plain text, {_shown(text)}; only a JSON object is an answer here")
    return _plain(at, text)


def _refusal(at: Event, reason: str, *, context: str | None = None, user: str | None = None) -> HookResult:
    if at.refusal == "show":
        return HookResult.continue_with(tell_user=_joined(reason, user), tell_model=context)
    action = HookAction.FAIL if at.refusal == "end" else HookAction.BLOCK
    return HookResult(action=action, error_message=reason, tell_model=context, tell_user=user)


def _reason_beside_two(name: str, stdout: bytes | str) -> str | None:
    """The reason of a JSON refusal that was printed too; what else was printed does not count."""
    try:
        answer = _object_in(_strict(stdout))
        result = _meaning(name, answer) if answer is not None else CONTINUE
    except HookBroke:
        return None
    return result.error_message if result.action in (HookAction.BLOCK, HookAction.FAIL) else None


def _after_failure(name: str, exit_code: int, stdout: bytes | str, stderr: str) -> HookResult:
    if name == "WorktreeCreate":
        return HookResult.fail(stderr or f"the hook that makes the worktree exited with {exit_code}")
    try:
        answer = _object_in(_strict(stdout))
        result = _meaning(name, answer) if answer is not None else CONTINUE
    except HookBroke:
        result = CONTINUE
    if result.action in (HookAction.BLOCK, HookAction.FAIL, HookAction.ASK):
        return result
    ended = f"was ended by signal {-exit_code}" if exit_code < 0 else f"exited with {exit_code}"
    told = f": {_shown(stderr)}" if stderr else ""
    raise HookBroke(f"{ended}{told}; 0 lets its answer be read, 2 refuses", kind="exit")


def _plain(at: Event, text: str) -> HookResult:
    if at.text == "path":
        lines = text.splitlines()
        if not lines:
            raise _bad("printed no path; the last line of stdout must be the worktree's folder")
        return HookResult.answer(lines[-1].strip())
    if at.text == "context" and text:
        return _whole_on_record(HookResult.continue_with(tell_model=_capped(text)), text)
    return CONTINUE


_TOO_LATE = (
    'accepted without effect: {"async": true} in the first line (it was waited for, and what it said after that'
    " does not count; put async in the settings)"
)


def _goes_async(text: str) -> bool:
    """Whether a first line sends the hook to the background; what comes after that line is no answer any more."""
    line, _, more = text.partition("\n")
    if not more or not line.startswith("{") or '"async"' not in line:
        return False
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return cast("Json", value).get("async") is True


def _object_in(text: str) -> Json | None:
    """The JSON object that the text is; None for plain text; broke for anything in between."""
    if not text.startswith("{"):
        _check_plain(text)
        return None
    try:
        value: Any = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
    except RecursionError:
        raise _bad(f"its JSON is nested deeper than {DEEPEST} levels") from None
    except ValueError as exc:
        raise _bad(
            f"its answer starts with '{{' but is not JSON ({exc}): {_shown(text)};"
            " print one JSON object and nothing before or after it"
        ) from None
    _check_values(value)
    return cast("Json", value)


def _check_plain(text: str) -> None:
    found = _ANSWER_KEY.search(text)
    if found is not None:
        raise _bad(
            f"printed an answer with something before it, or a part of one ({found.group()} in {_shown(text)});"
            " print one JSON object and nothing before or after it"
        )
    if not text.startswith(("[", '"', "true", "false", "null", "NaN", "Infinity", "-Infinity")):
        return
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise _bad(
            f"printed a JSON array nested deeper than {DEEPEST} levels; print one JSON object"
        ) from None
    except ValueError:
        return
    raise _bad(f"answered {_kind(value)} ({_shown(text)}); print one JSON object")


def _check_values(value: Any) -> None:
    """What JSON can say but nobody after us could carry: depth, infinite numbers, halves of characters."""
    waiting: list[tuple[Any, int]] = [(value, 1)]
    while waiting:
        item, depth = waiting.pop()
        if depth > DEEPEST:
            raise _bad(f"its JSON is nested deeper than {DEEPEST} levels")
        if isinstance(item, dict):
            members = cast("Json", item)
            waiting += [(inner, depth + 1) for pair in members.items() for inner in pair]
        elif isinstance(item, list):
            waiting += [(inner, depth + 1) for inner in cast("list[Any]", item)]
        elif isinstance(item, float) and not math.isfinite(item):
            raise _bad("its JSON has a number too large to hold")
        elif isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise _bad("its JSON has half of a surrogate pair, which is no character") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _once_each(pairs: list[tuple[str, Any]]) -> Json:
    whole: Json = {}
    for key, value in pairs:
        if key in whole:
            raise ValueError(f"the key {key!r} is there twice")
        whole[key] = value
    return whole


def _meaning(name: str, answer: Json) -> HookResult:
    """What a well-formed object says at this event."""
    _check_types(answer, _TOP, "")
    specific = _specific(name, answer)
    _check_keys(name, answer)
    result = _verdict(name, answer, specific)
    result = _whole_on_record(result, specific.get("additionalContext") or "")
    idle = _without_effect(answer, specific)
    return replace(result, tell_user=_joined(result.tell_user, idle)) if idle else result


def _without_effect(answer: Json, specific: Json) -> str | None:
    behavior = cast("Json", specific.get("decision", {}))
    whole = answer | specific | behavior
    said = [
        f"{key} ({_WITHOUT_EFFECT[key]})"
        for key in whole
        if key in _WITHOUT_EFFECT and whole[key] is not False
    ]
    for key, others in _BESIDE.items():
        if key in whole and all(whole.get(other) in (None, True) for other in others):
            said.append(f"{key} (it is read only beside {' or '.join(others)})")
    return f"accepted without effect: {'; '.join(said)}" if said else None


def _whole_on_record(result: HookResult, text: str) -> HookResult:
    """A text that is cut stands whole in the record of a hook that lets things go on; a verdict has its reason there."""
    if len(text) <= TEXT_LIMIT or result.action is not HookAction.CONTINUE or result.tell_model is None:
        return result
    size = len(text.encode("utf-8", "replace"))
    kept = "the whole is" if size <= JOURNAL_KEEPS else f"its first {JOURNAL_KEEPS:,} bytes are"
    return replace(result, tell_model=_capped(text, f"; {kept} in the journal"), error_message=text)


def _verdict(name: str, answer: Json, specific: Json) -> HookResult:
    at = EVENTS[name]
    user = answer.get("systemMessage")
    context = specific.get("additionalContext")
    context = _capped(context) if context else None
    if answer.get("continue") is False:
        return _stopped(name, answer, context, user)
    action, reason = _decided(name, answer, specific)
    if action is HookAction.BLOCK:
        return _with_output(
            _refusal(at, reason or "refused by a hook, which gave no reason", context=context, user=user),
            specific,
        )
    if action is HookAction.FAIL:
        return HookResult(action=action, error_message=reason or "stopped by a hook", tell_user=user)
    if name in ("Elicitation", "ElicitationResult") and "action" in specific:
        return HookResult(action=HookAction.ANSWER, output=_elicited(specific), tell_user=user)
    if "worktreePath" in specific:
        return HookResult(action=HookAction.ANSWER, output=specific["worktreePath"], tell_user=user)
    if name in ("Stop", "SubagentStop") and context is not None:
        # Context at a stop is for a model that goes on (rule 21).
        return HookResult(action=HookAction.BLOCK, error_message=context, tell_user=user)
    changed = specific.get("updatedInput")
    return _with_output(
        HookResult(
            action=action,
            error_message=reason if action is not HookAction.CONTINUE else None,
            modified_payload=changed,
            replace=changed is not None,
            tell_model=context,
            tell_user=user,
        ),
        specific,
    )


def _with_output(result: HookResult, specific: Json) -> HookResult:
    for key in ("updatedToolOutput", "updatedMCPToolOutput", "displayContent"):
        if key in specific:
            return HookResult(
                action=result.action,
                error_message=result.error_message,
                modified_output=specific[key],
                replace=True,
                tell_model=result.tell_model,
                tell_user=result.tell_user,
            )
    return CONTINUE if result == CONTINUE else result


def _stopped(name: str, answer: Json, context: str | None, user: str | None) -> HookResult:
    reason = answer.get("stopReason") or answer.get("reason")
    if name in ("Stop", "SubagentStop", "SessionEnd"):
        # It is ending anyway; not to continue is what happens.
        return HookResult.continue_with(tell_user=_joined(reason, user))
    return HookResult(
        action=HookAction.FAIL,
        error_message=reason or "stopped by a hook (continue: false), which gave no reason",
        tell_model=context,
        tell_user=user,
    )


def _decided(name: str, answer: Json, specific: Json) -> tuple[HookAction, str | None]:
    """The strictest of what one answer says, with its reason."""
    said: list[tuple[HookAction, str | None]] = []
    if "decision" in answer:
        said.append((_word(_DECISIONS, "decision", answer["decision"]), answer.get("reason")))
    if "permissionDecision" in specific:
        word = _word(_PERMISSIONS, "permissionDecision", specific["permissionDecision"])
        if name == "PreModelSwitch" and specific["permissionDecision"] == "defer":
            raise _bad("permissionDecision is 'defer'; PreModelSwitch knows allow, deny, ask")
        said.append((word, specific.get("permissionDecisionReason") or answer.get("reason")))
    if name == "PermissionRequest" and "decision" in specific:
        said.append(_behaved(specific))
    for action in _STRICTEST_FIRST:
        for each, reason in said:
            if each is action and (action is not HookAction.ALLOW or name in _ASKS_FOR_PERMISSION):
                return action, reason
    return HookAction.CONTINUE, None


def _behaved(specific: Json) -> tuple[HookAction, str | None]:
    decision = cast("Json", specific["decision"])
    _check_types(decision, _BEHAVIOR, "hookSpecificOutput.decision.")
    action = _word(
        {"allow": HookAction.ALLOW, "deny": HookAction.BLOCK}, "decision.behavior", decision.get("behavior")
    )
    if action is HookAction.ALLOW and "updatedInput" in decision:
        specific["updatedInput"] = decision["updatedInput"]
    if action is HookAction.BLOCK and decision.get("interrupt") is True:
        action = HookAction.FAIL
    return action, decision.get("message")


def _elicited(specific: Json) -> Json:
    words = ("accept", "decline", "cancel")
    if specific["action"] not in words:
        raise _bad(f"action is {specific['action']!r}; known: {', '.join(words)}")
    return {key: specific[key] for key in ("action", "content") if key in specific}


def _specific(name: str, answer: Json) -> Json:
    """The event's own part of the answer, checked; empty where there is none."""
    specific = cast("Json", answer.get("hookSpecificOutput", {}))
    if "hookSpecificOutput" not in answer:
        return {}
    if "hookEventName" not in specific:
        raise _bad(f'hookSpecificOutput has no hookEventName; add "hookEventName": "{name}"')
    if specific["hookEventName"] != name:
        raise _bad(
            f"hookSpecificOutput is for {specific['hookEventName']!r}, but this is {name};"
            f' write "hookEventName": "{name}"'
        )
    _check_types(specific, _SPECIFIC, "hookSpecificOutput.")
    reads = EVENTS[name].reads
    for key in specific:
        if key not in _SPECIFIC:
            _check_spelling(key, _SPECIFIC)
        elif key != "hookEventName" and key not in reads:
            known = ", ".join(reads) or "nothing"
            raise HookBroke(
                f"hookSpecificOutput.{key} means nothing at {name}, which reads: {known}", kind="wrong_point"
            )
    return dict(specific)


def _check_keys(name: str, answer: Json) -> None:
    """Unknown keys are nobody's business, but a verdict under a wrong name must not pass for none."""
    for key in answer:
        if key in _TOP:
            continue
        if key in _SPECIFIC:
            raise _bad(
                f"{key!r} at the top level says nothing; it belongs in"
                f' "hookSpecificOutput": {{"hookEventName": "{name}", "{key}": ...}}'
            )
        if key in _FOREIGN_VERDICTS:
            raise _bad(f'{key!r} says nothing here; to refuse, write "decision": "block" or exit with 2')
        _check_spelling(key, _TOP)


def _check_spelling(key: str, known: Iterable[str]) -> None:
    lower = {word.lower(): word for word in known}
    plain = key.lower().replace("_", "").replace("-", "")
    near = _near(plain, lower, 0.85)
    near = near or [word for word in lower if sorted(word) == sorted(plain)]
    if near:
        raise _bad(f"unknown key {key!r}; did you mean {lower[near[0]]!r}?")


def _check_types(value: Json, types: Mapping[str, type | None], where: str) -> None:
    for key, wanted in types.items():
        if key not in value:
            continue
        got = value[key]
        right = got is not None if wanted is None else _is(got, wanted)
        if not right:
            must = _KINDS[wanted] if wanted else "a value other than null"
            raise _bad(f"{where}{key} is {_kind(got)}; it must be {must}")


def _is(value: Any, wanted: type) -> bool:
    if wanted is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, wanted)


def _word(words: Mapping[str, HookAction], key: str, value: Any) -> HookAction:
    if isinstance(value, str) and value in words:
        return words[value]
    near = _near(str(value).lower(), words, 0.6)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise _bad(f"{key} is {value!r}; {hint}known: {', '.join(words)}")


def _near(word: str, known: Iterable[str], cutoff: float) -> list[str]:
    from difflib import get_close_matches  # only for a message; most answers need none

    return get_close_matches(word, list(known), n=1, cutoff=cutoff)


def _capped(text: str, kept: str = "; the rest is not kept") -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return (
        f"{text[:_SHOWN_OF_LONG_TEXT]}\n[cut: a hook's text may have {TEXT_LIMIT:,} characters,"
        f" this has {len(text):,}{kept}]"
    )


def _strict(output: bytes | str) -> str:
    if isinstance(output, bytes):
        try:
            output = output.decode("utf-8")
        except UnicodeDecodeError as exc:
            raise _bad(f"its output is not UTF-8 ({exc.reason} at byte {exc.start})") from None
    return output.strip().removeprefix("\ufeff").strip()


def _loose(output: bytes | str) -> str:
    return output.decode("utf-8", "replace") if isinstance(output, bytes) else output


def _joined(*parts: str | None) -> str | None:
    return "\n".join(part for part in parts if part) or None


def _kind(value: Any) -> str:
    return _KINDS[value.__class__]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}")


def _bad(message: str) -> HookBroke:
    return HookBroke(message, kind="bad_answer")
