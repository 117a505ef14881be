"""Hook side: an outcome in the words of Claude Code, Codex, Gemini CLI, Qwen Code or kagent, and what they cannot express."""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from hookline.claude.events import CALLERS, AnswerForm, caller_of, form_of, point_of, refuses
from hookline.engine.plain import as_text, mapping
from hookline.engine.point import Point
from hookline.engine.result import WITHHELD, HookAction, Outcome, Reason
from hookline.engine.stdlib import lazy_pattern
from hookline.secrets.text import without_secrets

Json = dict[str, Any]


class CallerAnswer(NamedTuple):
    """The output and exit code for the caller. `lost` lists what its format could not express, for the record.

    `refused`: to the caller this is a refusal, also where the hooks said something else that it cannot take."""

    exit_code: int
    stdout: str
    stderr: str = ""
    lost: tuple[str, ...] = ()
    refused: bool = False


DEGRADED: Mapping[str, str] = {
    "ask": "this caller cannot ask a person, so it was refused",
    "allow": "this caller cannot be told to skip its own question; it may still ask",
    "skip": "this caller does not know a skipped run; it was refused with the reason",
    "fail": "this caller cannot be told to end the run here; it was refused and the run may go on",
    "answer": "this caller takes no answer in place of the call; the call was refused with the answer as the reason",
    "input": "this caller cannot take a changed input here; it was refused",
    "input kept": "this caller cannot take a changed input here; the unchanged one stands",
    "input keys": "this caller merges a changed input and would keep the keys that were taken out; it was refused",
    "input allow": "this caller takes a changed input only with an allow, so it does not ask either",
    "output": "this caller cannot take a changed output here; the unchanged one stands",
    "output reason": "this caller takes a changed output only as the reason of a refusal",
    "output shape": "this caller drops an output that is not of the tool's own shape; the run was stopped instead",
    "refuse": "this caller takes no refusal here; it goes on",
    "refuse by stop": "this caller takes no refusal of this alone; the whole run was stopped",
    "context": "this caller takes no text for the model here",
    "user": "this caller takes no text for the user here",
}
"""The answer given instead, by the thing that could not be expressed."""

_GATES = ("permission", "decision", "deny", "behavior")
_REFUSALS = frozenset({HookAction.BLOCK, HookAction.FAIL, HookAction.SKIP, HookAction.ASK, HookAction.ANSWER})


def answer(outcome: Outcome, event: str, as_: str = "claude", *, given: Any = None) -> CallerAnswer:
    """The outcome in the caller's format. `given` is the caller's payload, against which a change is checked."""
    native = cast("Json", given) if isinstance(given, dict) else {}
    return _AnswerWriter(outcome, event, as_, form_of(event, as_), native).whole()


def trouble(message: str, event: str, as_: str = "claude") -> CallerAnswer:
    """The answer to an error of our own (a missing or broken file): a refusal where there can be one, else exit code 1.

    To a caller that is not the one it was taken for, it is exit code 2, and the refusal in its own words.
    """
    theirs = caller_of(event, as_) or as_
    if not refuses(event, as_):
        return CallerAnswer(1, "", f"hookline: {message}\n")
    told = Reason("hookline", HookAction.BLOCK, f"hookline: {message}")
    said = answer(Outcome(HookAction.BLOCK, reasons=(told,)), event, theirs)
    return said if theirs == as_ else said._replace(exit_code=2, stderr=f"hookline: {message}\n")


def keeping_output(point: Point | str) -> list[str]:
    """The callers that tell of the point and take no other output there, so that one cannot be withheld."""
    known = {
        caller: [form_of(event, caller).change for event, at in events.items() if at == point]
        for caller, events in CALLERS.items()
    }
    return [caller for caller, changes in known.items() if changes and not any(changes)]


class _AnswerWriter:
    """Builds one answer: its JSON, and the list of what could not be expressed."""

    def __init__(self, outcome: Outcome, event: str, as_: str, form: AnswerForm, native: Json) -> None:
        self.outcome = outcome
        self.event = event
        self.as_ = as_
        self.form = form
        self.native = native
        self.top: Json = {}
        self.specific: Json = {}
        self.context = list(outcome.tell_model)
        self.exit_reason: str | None = None
        self.lost: list[str] = []
        self.refused = False

    def whole(self) -> CallerAnswer:
        self._verdict()
        if self.outcome.changed and not self.outcome.answered:
            self._change()
        self._texts()
        return self._written()

    def lose(self, thing: str) -> None:
        self.lost.append(f"{thing}: {DEGRADED[thing]} ({self.as_} {self.event})")

    def _verdict(self) -> None:
        outcome, form, action = self.outcome, self.form, self.outcome.action
        reason = outcome.reason
        if action is HookAction.ALLOW:
            self._allow(reason)
        elif action is HookAction.ASK and form.ask:
            self._ask(reason or "a hook wants a person to decide")
        elif action in _REFUSALS:
            if action is HookAction.ANSWER:
                if self._answered():
                    return
                reason = f"A hook answered in its place: {as_text(outcome.output)}"
            reason = reason or f"refused by a hook ({action})"
            if action is HookAction.FAIL and form.stop:
                self._stop(reason)
            elif action is not HookAction.BLOCK and form.refuse is not None:
                self.lose(str(action))
            self._refuse(without_secrets(reason) if action is HookAction.ASK else reason)

    def _answered(self) -> bool:
        """Answers in place of the thing itself; False if the caller does not accept that here."""
        output = self.outcome.output
        if self.form.refuse == "action" and isinstance(output, dict):
            self.specific |= cast("Json", output)
        elif self.event == "WorktreeCreate" and isinstance(output, str):
            self.specific["worktreePath"] = output
        elif self.event == "BeforeModel" and isinstance(output, dict):
            self.specific["llm_response"] = output
        else:
            return False
        return True

    def _allow(self, reason: str) -> None:
        if not self.form.allow:
            if point_of(self.event, self.as_) is Point.TOOL_START:
                self.lose("allow")
            return
        match self.form.refuse:
            case "permission":
                self._permission("allow", reason)
            case "behavior":
                self.specific["decision"] = {"behavior": "allow"}
            case _:
                self.top["decision"] = "approve"

    def _ask(self, reason: str) -> None:
        if self.form.refuse == "permission":
            self._permission("ask", reason)
        else:
            self.top |= {"decision": "ask", "reason": reason}

    def _permission(self, word: str, reason: str) -> None:
        self.specific["permissionDecision"] = word
        if reason:
            self.specific["permissionDecisionReason"] = reason

    def _stop(self, reason: str) -> None:
        self.refused = True
        self.top |= {"continue": False, "stopReason": reason}

    def _refuse(self, reason: str) -> None:
        self.refused = self.refused or self.form.refuse not in (None, "context")
        match self.form.refuse:
            case "permission":
                self._permission("deny", reason)
            case "decision":
                self.top |= {"decision": "block", "reason": self._with_context(reason)}
            case "deny":
                self.top |= {"decision": "deny", "reason": self._with_context(reason)}
            case "behavior":
                self.specific["decision"] = {"behavior": "deny", "message": reason}
            case "action":
                self.specific["action"] = "decline"
            case "exit":
                self.exit_reason = reason
            case "context":
                self.context.insert(0, reason)
            case "stop":
                if "continue" not in self.top:
                    self._stop(reason)
                    self.lose("refuse by stop")
            case _:
                if "continue" not in self.top:
                    self.lose("refuse")

    def _with_context(self, reason: str) -> str:
        """The reason with the texts for the model, where the reason is all that the model reads."""
        if self.form.context or not self.context:
            return reason
        whole = "\n".join([reason, *self.context])
        self.context.clear()
        return whole

    def _change(self) -> None:
        point = point_of(self.event, self.as_)
        is_output = (isinstance(point, Point) and not point.is_start) or self.form.change == "displayContent"
        asks = self.outcome.action is HookAction.ASK and self.form.ask
        if is_output:
            self._change_output(self.outcome.output)
        elif asks or self.outcome.action not in _REFUSALS:
            self._change_input(self.outcome.payload)

    def _change_input(self, payload: Any) -> None:
        key = self.form.change
        by_behavior = self.form.refuse == "behavior"
        if key is None or (by_behavior and "decision" not in self.specific):
            self._cannot_change("input")
        elif by_behavior:
            self.specific["decision"][key] = payload
        elif self.as_ == "gemini" and _keys_gone(self.native.get(key), payload):
            self._cannot_change("input keys")
        else:
            self.specific[key] = payload
            if self.as_ == "codex":
                # Codex accepts a changed input only with an allow.
                self._permission("allow", self.outcome.reason)
                self.lose("input allow")
                self.lost = [each for each in self.lost if not each.startswith("allow:")]

    def _cannot_change(self, thing: str) -> None:
        if self.form.refuse not in _GATES:
            self.lose("input kept")
            return
        self.lose(thing)
        self.specific.clear()
        self._refuse(
            "A hook changed the input, which cannot be passed on here; the unchanged one was refused."
        )

    def _change_output(self, output: Any) -> None:
        key = self.form.change
        before = self.native.get("tool_response" if key == "updatedToolOutput" else str(key))
        if output == WITHHELD and isinstance(before, dict):
            output = _withheld(before, self.native, [])
        if key is None:
            self.lose("output")
            if self.form.user:
                self.top["systemMessage"] = "hookline: a hook changed the output, which cannot be shown here"
        elif key == "reason":
            self.lose("output reason")
            word = "block" if self.form.refuse == "decision" else "deny"
            shown = [as_text(output)]
            if self.outcome.action is HookAction.BLOCK and self.outcome.reason:
                shown.append(self.outcome.reason)
            self.top |= {"decision": word, "reason": "\n".join(shown)}
        elif key != "updatedToolOutput":
            self.specific[key] = output
        else:
            fits, changed = _fitted(before, output)
            if fits:
                self.specific[key] = changed
            else:
                self.lose("output shape")
                self._stop("A hook changed a tool's result into a shape that cannot be passed on.")

    def _texts(self) -> None:
        outcome = self.outcome
        if self.context and self.form.context:
            self.specific["additionalContext"] = "\n".join(self.context)
        elif self.context:
            self.lose("context")
        if outcome.tell_user and self.form.user:
            parts = [self.top.get("systemMessage", ""), *outcome.tell_user]
            self.top["systemMessage"] = "\n".join(part for part in parts if part)
        elif outcome.tell_user:
            self.lose("user")

    def _written(self) -> CallerAnswer:
        if self.exit_reason is not None:
            said = "\n".join([self.exit_reason, *self.outcome.tell_user])
            return CallerAnswer(2, "", f"{said}\n", tuple(self.lost), self.refused)
        whole = dict(self.top)
        if self.specific:
            whole["hookSpecificOutput"] = {"hookEventName": self.event, **self.specific}
        text = json.dumps(whole, ensure_ascii=False, default=str) + "\n" if whole else ""
        return CallerAnswer(0, text, "", tuple(self.lost), self.refused)


def _keys_gone(before: Any, after: Any) -> bool:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return False
    return bool(set(cast("Json", before)) - set(cast("Json", after)))


def _fitted(before: Any, after: Any) -> tuple[bool, Any]:
    """The changed result converted to the type of the tool's own, and whether that was possible.

    A client drops an output of any other shape, and keeps the real one.
    """
    if before is None or isinstance(after, type(before)):
        if isinstance(before, dict) and isinstance(after, dict):
            empty = {key: _empty(value) for key, value in cast("Json", before).items()}
            return True, empty | cast("Json", after)
        return True, after
    text = as_text(after)
    if isinstance(before, str):
        return True, text
    if isinstance(before, list):
        return True, [{"type": "text", "text": text}]
    if isinstance(before, dict) and "stdout" in before:
        return True, {**cast("Json", before), "stdout": text, "stderr": ""}
    return False, after


_DEEPEST = 50
_WORD = lazy_pattern(r"[A-Za-z_]{1,32}")
_OF_THE_SHAPE = frozenset({"type", "mode", "status", "role", "finishReason", "service_tier", "speed"})
"""Keys whose words a client checks: with others it would drop the changed output, and keep the real one."""


def _withheld(value: Any, native: Json, told: list[str], key: str = "", depth: int = 1) -> Any:
    """The output in its own shape, with one sentence in place of its first text and nothing for the others."""
    if isinstance(value, dict | list) and depth > _DEEPEST:
        return type(cast("Any", value))()
    if isinstance(value, dict):
        members = cast("Json", value).items()
        return {name: _withheld(item, native, told, name, depth + 1) for name, item in members}
    if isinstance(value, list):
        return [_withheld(item, native, told, "", depth + 1) for item in cast("list[Any]", value)]
    if not isinstance(value, str) or not value or (key in _OF_THE_SHAPE and _WORD.fullmatch(value)):
        return value
    if key.lower().endswith("path") and value in mapping(native.get("tool_input")).values():
        return value
    told.append(key)
    return WITHHELD if len(told) == 1 else ""


def _empty(value: Any) -> Any:
    """The empty value of the same type, for a key that a hook removed: the original must not come back."""
    return value if isinstance(value, bool) or value is None else type(value)()
