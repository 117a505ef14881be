"""Host side: reads a hook's exit code, stdout and stderr into a result.

The JSON that a hook prints is read strictly: one object, known keys, right types. Anything else is HookBroke.
"""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, cast

from hookline.claude.events import EVENTS, ClaudeEvent, meant
from hookline.engine.plain import DEEPEST, json_or_none, singles
from hookline.engine.result import CONTINUE, HookAction, HookResult
from hookline.engine.stdlib import lazy_pattern, replace
from hookline.errors import HookBroke, UsageError, nearest
from hookline.journal.encoding import CAP

Json = dict[str, Any]

TEXT_LIMIT = 10_000
"""Characters of one hook's text that reach the model whole."""
_SHOWN_OF_LONG_TEXT = 2_000
_STOCK_REASON = "refused by a hook (exit code 2), which gave no reason"

_DECISIONS = {"block": HookAction.BLOCK, "approve": HookAction.ALLOW}
_PERMISSIONS = {
    "deny": HookAction.BLOCK,
    # Calls cannot be deferred to another program here; the nearest answer that is not a yes is ask.
    "defer": HookAction.ASK,
    "ask": HookAction.ASK,
    "allow": HookAction.ALLOW,
}
_WITHOUT_EFFECT: Mapping[str, str] = {
    "async": "it was waited for; put it in the settings",
    "terminalSequence": "there is no terminal here to write to",
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
"""Valid keys that have no effect, with the reason that the user reads."""
_BESIDE: Mapping[str, tuple[str, ...]] = {
    "stopReason": ("continue",),
    "reason": ("decision", "permissionDecision", "continue"),
    "permissionDecisionReason": ("permissionDecision",),
    "content": ("action",),
}
"""Keys that are read only together with one of these."""
_ASKS_FOR_PERMISSION = ("PreToolUse", "PermissionRequest", "PreModelSwitch")
_STRICTEST_FIRST = (HookAction.FAIL, HookAction.BLOCK, HookAction.ASK, HookAction.ALLOW)

_TOP_KEYS: Mapping[str, type] = {
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
_SPECIFIC_KEYS: Mapping[str, type | None] = {
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
_BEHAVIOR_KEYS: Mapping[str, type] = {
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
_ANSWER_KEY = lazy_pattern(
    r'"(?:continue|stopReason|suppressOutput|systemMessage|decision|hookSpecificOutput|hookEventName|'
    r'permissionDecision|permissionDecisionReason|updatedInput|updatedToolOutput|additionalContext)"\s*:'
)


class Reading(NamedTuple):
    """The rules by which the output of one hook is read.

    `called` is the event's name as the hook knows it, if that is another. `answers` is the part of the output that is
    an answer: `all`, `object` (what begins with `{`) or `none`. `failed` is the message of another exit code.
    """

    name: str
    at: ClaudeEvent
    called: str | None = None
    answers: str = "all"
    failed: str | None = None


def decode(
    name: str, exit_code: int, stdout: bytes, stderr: bytes = b"", *, reads_text: bool = True
) -> HookResult:
    """The result of a finished hook of Claude Code's event; HookBroke if it has none.

    Without `reads_text` (an http hook) only a JSON object is an answer.
    """
    if name not in EVENTS:
        raise UsageError(f"unknown event {name!r}; {meant(name)}")
    at = EVENTS[name] if reads_text else EVENTS[name]._replace(text="broke")
    return decode_by(Reading(name, at), exit_code, stdout, stderr)


def decode_by(rules: Reading, exit_code: int, stdout: bytes, stderr: bytes = b"") -> HookResult:
    """The result of a finished hook by these rules; HookBroke if it has none.

    With exit code 0 the output is read, 2 refuses (with the reason of a JSON refusal on stdout, if any), any other is broke unless the output refuses.
    """
    said = stderr.decode("utf-8", "replace").strip()
    if exit_code == 2:
        result = _json_result(rules, stdout)
        refuses = result.action in (HookAction.BLOCK, HookAction.FAIL)
        if rules.answers != "all":
            said = said or stdout.decode("utf-8", "replace").strip()
        return _refusal(rules.at, (result.error_message if refuses else None) or said or _STOCK_REASON)
    if exit_code != 0:
        return _after_failure(rules, exit_code, stdout, said)
    if rules.answers != "all" and not (rules.answers == "object" and _begins_object(stdout)):
        return _plain(rules.at, stdout.decode("utf-8", "replace").strip())
    text = _decoded(stdout)
    if _goes_async(text):
        return HookResult.continue_with(tell_user=_TOO_LATE)
    answer = _object_in(text)
    return _plain(rules.at, text) if answer is None else _meaning(rules, answer)


def _refusal(
    at: ClaudeEvent, reason: str, *, context: str | None = None, user: str | None = None
) -> HookResult:
    if at.refusal == "show":
        return HookResult.continue_with(tell_user=_joined(reason, user), tell_model=context)
    if at.refusal == "none":
        raise HookBroke(f"refused, and there is nothing to refuse here: {reason}", kind="wrong_point")
    action = HookAction.FAIL if at.refusal == "end" else HookAction.BLOCK
    return HookResult(action=action, error_message=reason, tell_model=context, tell_user=user)


def _after_failure(rules: Reading, exit_code: int, stdout: bytes, stderr: str) -> HookResult:
    if rules.name == "WorktreeCreate":
        return HookResult.fail(stderr or f"the hook that makes the worktree exited with {exit_code}")
    result = _json_result(rules, stdout)
    if result.action in (HookAction.BLOCK, HookAction.FAIL, HookAction.ASK):
        return result
    if rules.failed is not None:
        raise HookBroke(rules.failed, kind="exit")
    ended = f"was ended by signal {-exit_code}" if exit_code < 0 else f"exited with {exit_code}"
    told = f": {_shown(stderr)}" if stderr else ""
    raise HookBroke(f"{ended}{told}; exit with 0 to have the answer read, with 2 to refuse", kind="exit")


def _json_result(rules: Reading, stdout: bytes) -> HookResult:
    """The result of a JSON object on stdout; CONTINUE if there is none, or a broken one."""
    try:
        answer = _object_in(_decoded(stdout)) if rules.answers != "none" else None
        return _meaning(rules, answer) if answer is not None else CONTINUE
    except HookBroke:
        return CONTINUE


def _plain(at: ClaudeEvent, text: str) -> HookResult:
    if at.text == "path":
        lines = text.splitlines()
        if not lines:
            raise _bad_answer("printed no path; the last line of stdout must be the worktree's folder")
        return HookResult.answer(lines[-1].strip())
    if not text or at.text == "log":
        return CONTINUE
    if at.text == "context":
        return _whole_on_record(HookResult.continue_with(tell_model=_capped(text)), text)
    if at.text == "record":
        return HookResult(error_message=text)
    raise _bad_answer(f"answered plain text, {_shown(text)}; only a JSON object is an answer here")


def _begins_object(stdout: bytes) -> bool:
    return stdout.lstrip().removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{")


_TOO_LATE = (
    'accepted without effect: {"async": true} in the first line (it was waited for, and what it said after that'
    " does not count; put async in the settings)"
)


def _goes_async(text: str) -> bool:
    """True if the first line sends the hook to the background; the lines after it are no answer."""
    line, _, more = text.partition("\n")
    if not more or not line.startswith("{") or '"async"' not in line:
        return False
    return (json_or_none(line) or {}).get("async") is True


def _meaning(rules: Reading, answer: Json) -> HookResult:
    """The result of a JSON object at an event."""
    _check_types(answer, _TOP_KEYS, "")
    specific = _specific_part(rules, answer)
    _check_keys(rules.called or rules.name, answer)
    result = _verdict(rules, answer, specific)
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
            said.append(f"{key} (it is read only together with {' or '.join(others)})")
    return f"accepted without effect: {'; '.join(said)}" if said else None


def _whole_on_record(result: HookResult, text: str) -> HookResult:
    """Records the whole of a text that is cut for the model, if the hook continues; else the record has the reason."""
    if len(text) <= TEXT_LIMIT or result.action is not HookAction.CONTINUE or result.tell_model is None:
        return result
    size = len(text.encode("utf-8", "replace"))
    kept = "the whole is" if size <= CAP else f"its first {CAP:,} bytes are"
    return replace(result, tell_model=_capped(text, f"; {kept} in the journal"), error_message=text)


def _verdict(rules: Reading, answer: Json, specific: Json) -> HookResult:
    name, at = rules.name, rules.at
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
        # Context at a stop makes the model go on (rule 21).
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
            return replace(result, modified_output=specific[key], replace=True)
    return CONTINUE if result == CONTINUE else result


def _stopped(name: str, answer: Json, context: str | None, user: str | None) -> HookResult:
    reason = answer.get("stopReason") or answer.get("reason")
    if name in ("Stop", "SubagentStop", "SessionEnd"):
        # It ends anyway, so `continue: false` changes nothing.
        return HookResult.continue_with(tell_user=_joined(reason, user))
    return HookResult(
        action=HookAction.FAIL,
        error_message=reason or "stopped by a hook (continue: false), which gave no reason",
        tell_model=context,
        tell_user=user,
    )


def _decided(name: str, answer: Json, specific: Json) -> tuple[HookAction, str | None]:
    """The strictest decision in one answer, with its reason."""
    said: list[tuple[HookAction, str | None]] = []
    if "decision" in answer:
        said.append((_action_of(_DECISIONS, "decision", answer["decision"]), answer.get("reason")))
    if "permissionDecision" in specific:
        word = _action_of(_PERMISSIONS, "permissionDecision", specific["permissionDecision"])
        if name == "PreModelSwitch" and specific["permissionDecision"] == "defer":
            raise _bad_answer("permissionDecision is 'defer'; PreModelSwitch knows allow, deny, ask")
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
    _check_types(decision, _BEHAVIOR_KEYS, "hookSpecificOutput.decision.")
    action = _action_of(
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
        raise _bad_answer(f"action is {specific['action']!r}; known: {', '.join(words)}")
    return {key: specific[key] for key in ("action", "content") if key in specific}


def _capped(text: str, kept: str = "; the rest is not kept") -> str:
    if len(text) <= TEXT_LIMIT:
        return text
    return (
        f"{text[:_SHOWN_OF_LONG_TEXT]}\n[cut: a hook's text may have {TEXT_LIMIT:,} characters,"
        f" this has {len(text):,}{kept}]"
    )


def _joined(*parts: str | None) -> str | None:
    return "\n".join(part for part in parts if part) or None


def _object_in(text: str) -> Json | None:
    """The JSON object in the text; None for plain text; HookBroke for anything in between."""
    if not text.startswith("{"):
        _check_plain(text)
        return None
    try:
        value: Any = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_once_each)
        _check_values(value)
    except RecursionError:
        raise _bad_answer(f"its JSON is nested deeper than {DEEPEST} levels") from None
    except ValueError as exc:
        raise _bad_answer(
            f"its answer starts with '{{' but is not JSON ({exc}): {_shown(text)};"
            " print one JSON object and nothing before or after it"
        ) from None
    return cast("Json", value)


def _check_plain(text: str) -> None:
    found = _ANSWER_KEY.search(text)
    if found is not None:
        raise _bad_answer(
            f"printed an answer with something before it, or a part of one ({found.group()} in {_shown(text)});"
            " print one JSON object and nothing before or after it"
        )
    if not text.startswith(("[", '"', "true", "false", "null", "NaN", "Infinity", "-Infinity")):
        return
    try:
        value: Any = json.loads(text)
    except RecursionError:
        raise _bad_answer(
            f"printed a JSON array nested deeper than {DEEPEST} levels; print one JSON object"
        ) from None
    except ValueError:
        return
    raise _bad_answer(f"answered {_kind(value)} ({_shown(text)}); print one JSON object")


def _check_values(value: Any) -> None:
    """Raises for valid JSON that later code cannot carry: deep nesting, infinite numbers, lone surrogates."""
    for item in singles(value):
        if isinstance(item, float) and not math.isfinite(item):
            raise _bad_answer("its JSON has a number too large to hold")
        if isinstance(item, str) and not item.isascii():
            try:
                item.encode()
            except UnicodeEncodeError:
                raise _bad_answer("its JSON has half of a surrogate pair, which is not a character") from None


def _no_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def _once_each(pairs: list[tuple[str, Any]]) -> Json:
    whole: Json = {}
    for key, value in pairs:
        if key in whole:
            raise ValueError(f"the key {key!r} is there twice")
        whole[key] = value
    return whole


def _specific_part(rules: Reading, answer: Json) -> Json:
    """The checked `hookSpecificOutput` of the answer; empty if there is none."""
    name = rules.called or rules.name
    specific = cast("Json", answer.get("hookSpecificOutput", {}))
    if "hookSpecificOutput" not in answer:
        return {}
    if "hookEventName" not in specific:
        raise _bad_answer(f'hookSpecificOutput has no hookEventName; add "hookEventName": "{name}"')
    if specific["hookEventName"] not in (name, rules.name):
        raise _bad_answer(
            f"hookSpecificOutput is for {specific['hookEventName']!r}, but this is {name};"
            f' write "hookEventName": "{name}"'
        )
    _check_types(specific, _SPECIFIC_KEYS, "hookSpecificOutput.")
    reads = rules.at.reads
    for key in specific:
        if key not in _SPECIFIC_KEYS:
            _check_spelling(key, _SPECIFIC_KEYS)
        elif key != "hookEventName" and key not in reads:
            known = ", ".join(reads) or "nothing"
            raise HookBroke(
                f"hookSpecificOutput.{key} means nothing at {name}, which reads: {known}", kind="wrong_point"
            )
    return dict(specific)


def _check_keys(name: str, answer: Json) -> None:
    """Ignores unknown keys, but raises for a decision under a wrong name, which must not be lost."""
    for key in answer:
        if key in _TOP_KEYS:
            continue
        if key in _SPECIFIC_KEYS:
            raise _bad_answer(
                f"{key!r} at the top level has no effect; it belongs in"
                f' "hookSpecificOutput": {{"hookEventName": "{name}", "{key}": ...}}'
            )
        if key in _FOREIGN_VERDICTS:
            raise _bad_answer(
                f'{key!r} has no effect here; to refuse, write "decision": "block" or exit with 2'
            )
        _check_spelling(key, _TOP_KEYS)


def _check_spelling(key: str, known: Iterable[str]) -> None:
    lower = {word.lower(): word for word in known}
    plain = key.lower().replace("_", "").replace("-", "")
    same_letters = (word for word in lower if sorted(word) == sorted(plain))
    near = nearest(plain, lower, 0.85) or next(same_letters, None)
    if near:
        raise _bad_answer(f"unknown key {key!r}; did you mean {lower[near]!r}?")


def _check_types(value: Json, types: Mapping[str, type | None], where: str) -> None:
    for key, wanted in types.items():
        if key not in value:
            continue
        got, must = _kind(value[key]), _KINDS[wanted] if wanted else "a value other than null"
        right = got == must if wanted else got != "null"
        if not right:
            raise _bad_answer(f"{where}{key} is {got}; it must be {must}")


def _action_of(words: Mapping[str, HookAction], key: str, value: Any) -> HookAction:
    if isinstance(value, str) and value in words:
        return words[value]
    near = nearest(str(value).lower(), words)
    hint = f"did you mean {near!r}? " if near else ""
    raise _bad_answer(f"{key} is {value!r}; {hint}known: {', '.join(words)}")


def _decoded(output: bytes) -> str:
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise _bad_answer(f"its output is not UTF-8 ({exc.reason} at byte {exc.start})") from None
    return text.strip().removeprefix("\ufeff").strip()


def _kind(value: Any) -> str:
    return _KINDS[value.__class__]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 200 else f"{text[:120]} ... {text[-60:]}")


def _bad_answer(message: str) -> HookBroke:
    return HookBroke(message, kind="bad_answer")
