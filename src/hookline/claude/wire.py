"""Host side: reads a hook's exit code, stdout and stderr into a result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from hookline.claude.events import EVENTS, ClaudeEvent, meant
from hookline.claude.wire_json import (
    BEHAVIOR_KEYS,
    TOP_KEYS,
    Json,
    action_of,
    bad_answer,
    check_keys,
    check_types,
    decoded,
    object_in,
    shown,
    specific_part,
)
from hookline.engine.classes import replace
from hookline.engine.result import CONTINUE, HookAction, HookResult
from hookline.errors import HookBroke, UsageError
from hookline.journal.encoding import CAP

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


def decode(
    name: str, exit_code: int, stdout: bytes, stderr: bytes = b"", *, reads_text: bool = True
) -> HookResult:
    """The result of a finished hook of the event; HookBroke if it has none.

    With exit code 0 the output is read, 2 refuses, any other is broke unless the output refuses.
    Without `reads_text` (an http hook) only a JSON object is an answer.
    """
    if name not in EVENTS:
        raise UsageError(f"unknown event {name!r}; {meant(name)}")
    at = EVENTS[name]
    said = stderr.decode("utf-8", "replace").strip()
    if exit_code == 2:
        return _refusal(at, _reason_beside_two(name, stdout) or said or _STOCK_REASON)
    if exit_code != 0:
        return _after_failure(name, exit_code, stdout, said)
    text = decoded(stdout)
    if _goes_async(text):
        return HookResult.continue_with(tell_user=_TOO_LATE)
    answer = object_in(text)
    if answer is not None:
        return _meaning(name, answer)
    if text and not reads_text:
        raise bad_answer(f"answered plain text, {shown(text)}; only a JSON object is an answer here")
    return _plain(at, text)


def _refusal(
    at: ClaudeEvent, reason: str, *, context: str | None = None, user: str | None = None
) -> HookResult:
    if at.refusal == "show":
        return HookResult.continue_with(tell_user=_joined(reason, user), tell_model=context)
    action = HookAction.FAIL if at.refusal == "end" else HookAction.BLOCK
    return HookResult(action=action, error_message=reason, tell_model=context, tell_user=user)


def _reason_beside_two(name: str, stdout: bytes) -> str | None:
    """The reason of a JSON refusal on stdout; other output is ignored."""
    result = _json_result(name, stdout)
    return result.error_message if result.action in (HookAction.BLOCK, HookAction.FAIL) else None


def _after_failure(name: str, exit_code: int, stdout: bytes, stderr: str) -> HookResult:
    if name == "WorktreeCreate":
        return HookResult.fail(stderr or f"the hook that makes the worktree exited with {exit_code}")
    result = _json_result(name, stdout)
    if result.action in (HookAction.BLOCK, HookAction.FAIL, HookAction.ASK):
        return result
    ended = f"was ended by signal {-exit_code}" if exit_code < 0 else f"exited with {exit_code}"
    told = f": {shown(stderr)}" if stderr else ""
    raise HookBroke(f"{ended}{told}; exit with 0 to have the answer read, with 2 to refuse", kind="exit")


def _json_result(name: str, stdout: bytes) -> HookResult:
    """The result of a JSON object on stdout; CONTINUE if there is none, or a broken one."""
    try:
        answer = object_in(decoded(stdout))
        return _meaning(name, answer) if answer is not None else CONTINUE
    except HookBroke:
        return CONTINUE


def _plain(at: ClaudeEvent, text: str) -> HookResult:
    if at.text == "path":
        lines = text.splitlines()
        if not lines:
            raise bad_answer("printed no path; the last line of stdout must be the worktree's folder")
        return HookResult.answer(lines[-1].strip())
    if at.text == "context" and text:
        return _whole_on_record(HookResult.continue_with(tell_model=_capped(text)), text)
    return CONTINUE


_TOO_LATE = (
    'accepted without effect: {"async": true} in the first line (it was waited for, and what it said after that'
    " does not count; put async in the settings)"
)


def _goes_async(text: str) -> bool:
    """True if the first line sends the hook to the background; the lines after it are no answer."""
    line, _, more = text.partition("\n")
    if not more or not line.startswith("{") or '"async"' not in line:
        return False
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return cast("Json", value).get("async") is True


def _meaning(name: str, answer: Json) -> HookResult:
    """The result of a JSON object at an event."""
    check_types(answer, TOP_KEYS, "")
    specific = specific_part(name, answer)
    check_keys(name, answer)
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
            said.append(f"{key} (it is read only together with {' or '.join(others)})")
    return f"accepted without effect: {'; '.join(said)}" if said else None


def _whole_on_record(result: HookResult, text: str) -> HookResult:
    """Records the whole of a text that is cut for the model, if the hook continues; else the record has the reason."""
    if len(text) <= TEXT_LIMIT or result.action is not HookAction.CONTINUE or result.tell_model is None:
        return result
    size = len(text.encode("utf-8", "replace"))
    kept = "the whole is" if size <= CAP else f"its first {CAP:,} bytes are"
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
        said.append((action_of(_DECISIONS, "decision", answer["decision"]), answer.get("reason")))
    if "permissionDecision" in specific:
        word = action_of(_PERMISSIONS, "permissionDecision", specific["permissionDecision"])
        if name == "PreModelSwitch" and specific["permissionDecision"] == "defer":
            raise bad_answer("permissionDecision is 'defer'; PreModelSwitch knows allow, deny, ask")
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
    check_types(decision, BEHAVIOR_KEYS, "hookSpecificOutput.decision.")
    action = action_of(
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
        raise bad_answer(f"action is {specific['action']!r}; known: {', '.join(words)}")
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
