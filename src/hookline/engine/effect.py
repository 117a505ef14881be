"""The effect of a hook's answer at its point: accepted, withheld, observed only, or broke; and of a person's verdict on it."""

from typing import Any, NamedTuple

from hookline.engine.context import HookContext
from hookline.engine.hook import Hook, Mode, OnError, settled_on_error
from hookline.engine.plain import strictly_plain
from hookline.engine.point import HookAction, Point
from hookline.engine.record import Verdict, VerdictKind
from hookline.engine.result import CONTINUE, WITHHELD, HookResult, Outcome, Reason, fault, merged
from hookline.errors import HookBroke, UsageError, meant
from hookline.secrets.text import without_secrets

_OURS = __file__.removesuffix("engine/effect.py")
_GROUP: type[BaseException] = BaseExceptionGroup


class Effect(NamedTuple):
    """The effect of a hook's answer. `said` is the result of a hook that only observes.

    `is_odd`: the note is about something that has no effect, which its author will not expect.
    """

    result: HookResult
    payload: Any = None
    output: Any = None
    changed: Any = None
    error_kind: str | None = None
    error: str | None = None
    note: str | None = None
    said: HookResult | None = None
    is_odd: bool = False

    @property
    def decides(self) -> bool:
        """True if it bears on the outcome, or the walk ends here without one."""
        return self.result is not CONTINUE or self.changed is not None or self.error_kind == "cancelled"

    @property
    def is_silent(self) -> bool:
        """True if it leaves nothing to record."""
        return not (self.decides or self.error_kind or self.note or self.said)


NOTHING = Effect(CONTINUE)
CANCELLED = Effect(CONTINUE, error_kind="cancelled", error="cancelled")


def effect_of(hook: Hook, view: HookContext, answer: Any) -> Effect:
    """The effect of an answer at its point; an answer is the result of a hook, or the exception that it raised."""
    point = view.given.facts.point
    try:
        if isinstance(answer, BaseException):
            return _broken(hook, view, answer)
        effect = _accepted(view, _valid(point, answer))
    except Exception as exc:
        return _broken(hook, view, exc)
    said = effect.result
    silent = said.action is HookAction.CONTINUE and not (said.tell_model or said.tell_user)
    if hook.mode is Mode.OBSERVE and (not silent or effect.changed is not None):
        changes = said.action is HookAction.CONTINUE
        would = "would have changed it" if changes else f"would have said {said.action}"
        return Effect(CONTINUE, said=said, note=would)
    return effect


def _valid(point: Point | str, answer: Any) -> HookResult:
    if not isinstance(answer, HookResult):
        raise HookBroke(
            f"returned {'None' if answer is None else type(answer).__name__}, an invalid result type; return HookResult.continue_with() to go on",
            kind="bad_answer",
        )
    wrong = fault(answer, point)
    if wrong is not None:
        raise HookBroke(wrong, kind="wrong_point")
    return answer


def _accepted(view: HookContext, result: HookResult) -> Effect:
    facts, payload, output = view.given
    changed = note = None
    at_end = isinstance(facts.point, Point) and not facts.point.is_start
    if at_end and result.modified_payload is not None:
        # One function may stand at several points, and its change of the input is meant for the others.
        note = "modified_payload has no effect at an end: the input is used already; modified_output changes the output"
    if result.modified_payload is not None and not at_end:
        changed = result.modified_payload
        payload = merged("modified_payload", payload, changed, replace=result.replace, aliases=facts.aliases)
    elif result.modified_output is not None:
        changed = result.modified_output
        output = merged("modified_output", output, changed, replace=result.replace)
    elif result.action is HookAction.ANSWER:
        strictly_plain(result.output, "answer(output)")
        note = "answered in its place"
    elif note is None and (field := view.changed_in_place):
        which = "modified_payload" if field == "current_payload" else "modified_output"
        note = (
            f"changed hook_context.{field} in place, which has no effect; return continue_with({which}=...)"
        )
    is_odd = note is not None and result.action is not HookAction.ANSWER
    return Effect(result, payload, output, changed, note=note, is_odd=is_odd)


def _broken(hook: Hook, view: HookContext, exc: BaseException) -> Effect:
    kind = exc.kind if isinstance(exc, HookBroke) else "raised"
    error = str(exc) if isinstance(exc, HookBroke) else f"raised {_raised(exc)}"
    if hook.kind == "python" and hook.source and hook.source.rpartition(":")[0] not in error:
        error = f"{error} [{hook.source}]"
    facts, payload, _ = view.given
    follows = OnError.CONTINUE if hook.mode is Mode.OBSERVE else settled_on_error(hook, facts.point)
    if follows is OnError.WITHHOLD:
        hidden = HookResult(modified_output=WITHHELD, replace=True)
        return Effect(hidden, payload, WITHHELD, WITHHELD, kind, error)
    action = HookAction(follows)
    result = CONTINUE if action is HookAction.CONTINUE else HookResult(action=action, error_message=error)
    return Effect(result, error_kind=kind, error=error)


def _raised(exc: BaseException) -> str:
    """The exception in one line, with the file and line that raised it, or that called what of ours raised it."""
    try:
        text = str(exc)
    except Exception:
        text = ""
    if isinstance(exc, AttributeError) and exc.obj is HookResult and exc.name:
        known = [word for word in vars(HookResult) if not word.startswith("_")]
        text = f"HookResult has no {exc.name!r}{meant(exc.name, known)}"
    inner: tuple[BaseException, ...] = getattr(exc, "exceptions", ()) if isinstance(exc, _GROUP) else ()
    if inner:
        text = f"{text}: {'; '.join(_raised(each) for each in inner[:3])}"
    import traceback

    frames = traceback.extract_tb(exc.__traceback__)
    theirs = [frame for frame in frames if not frame.filename.startswith(_OURS)]
    last = (theirs or frames)[-1] if theirs or (frames and not isinstance(exc, UsageError)) else None
    place = f" ({last.filename}:{last.lineno})" if last is not None else ""
    return f"{type(exc).__name__}{f': {text}' if text else ''}{place}"


def settled_by(verdict: Verdict, outcome: Outcome, *, is_start: bool) -> Outcome:
    """The outcome after a person's verdict: approved, refused, or with the value they wrote instead."""
    if verdict.kind is VerdictKind.REJECT:
        text = without_secrets(verdict.text or outcome.reason or "rejected")
        refusal = HookAction.BLOCK if is_start else HookAction.FAIL
        by = outcome.hook or "permission"
        return outcome._replace(
            action=refusal, answered=False, reasons=(*outcome.reasons, Reason(by, refusal, text))
        )
    action = HookAction.ANSWER if outcome.answered else HookAction.CONTINUE
    if verdict.kind is VerdictKind.APPROVE:
        return outcome._replace(action=action)
    if is_start:
        return outcome._replace(
            action=HookAction.CONTINUE, answered=False, payload=verdict.value, changed=True
        )
    return outcome._replace(action=action, output=verdict.value, changed=True)
