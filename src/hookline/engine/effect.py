"""A hook's answer as it counts: valid at its point, enforced or only observed, or broken. Pure; `fire` asks."""

from __future__ import annotations

from typing import Any, NamedTuple

from hookline.engine.context import HookContext
from hookline.engine.hook import Hook, Mode, OnError, settled_on_error
from hookline.engine.plain import strictly_plain
from hookline.engine.point import Point
from hookline.engine.result import CONTINUE, HookAction, HookResult, fault, merged
from hookline.errors import HookBroke, UsageError

_type: Any = type
_GROUP: type[BaseException] = BaseExceptionGroup


class Effect(NamedTuple):
    """A hook's answer as it counts. `said` is what it would have meant where only observing."""

    result: HookResult
    payload: Any = None
    output: Any = None
    changed: Any = None
    error_kind: str | None = None
    error: str | None = None
    note: str | None = None
    said: HookResult | None = None

    @property
    def decides(self) -> bool:
        """True if an outcome follows: it bears on that, or the walk ends here without one."""
        return self.result is not CONTINUE or self.changed is not None or self.error_kind == "cancelled"

    @property
    def is_silent(self) -> bool:
        """True if there is nothing to tell of it."""
        return not (self.decides or self.error_kind or self.note or self.said)


NOTHING = Effect(CONTINUE)
CANCELLED = Effect(CONTINUE, error_kind="cancelled", error="cancelled")


def effect_of(hook: Hook, view: HookContext, answer: Any) -> Effect:
    """What an answer means at its point: what a hook returned, or the exception that it raised."""
    point = view.given.facts.point
    try:
        if isinstance(answer, BaseException):
            return _broken(hook, point, answer)
        effect = _accepted(view, _valid(point, answer))
    except Exception as exc:
        return _broken(hook, point, exc)
    if hook.mode is Mode.OBSERVE and (effect.result is not CONTINUE or effect.changed is not None):
        said = effect.result
        would = (
            f"would have said {said.action}"
            if said.action is not HookAction.CONTINUE
            else "would have changed it"
        )
        return Effect(CONTINUE, said=said, note=would)
    return effect


def _valid(point: Point | str, answer: Any) -> HookResult:
    if not isinstance(answer, HookResult):
        raise HookBroke(
            f"returned {'None' if answer is None else _type(answer).__name__}, an invalid result type; return HookResult.continue_with() to go on",
            kind="bad_answer",
        )
    wrong = fault(answer, point)
    if wrong is not None:
        raise HookBroke(wrong, kind="wrong_point")
    return answer


def _accepted(view: HookContext, result: HookResult) -> Effect:
    facts, payload, output = view.given
    if result.modified_payload is not None:
        payload = merged(
            "modified_payload",
            payload,
            result.modified_payload,
            replace=result.replace,
            aliases=facts.aliases,
        )
        return Effect(result, payload, output, changed=result.modified_payload)
    if result.modified_output is not None:
        output = merged("modified_output", output, result.modified_output, replace=result.replace)
        return Effect(result, payload, output, changed=result.modified_output)
    if result.action is HookAction.ANSWER:
        strictly_plain(result.output, "answer(output)")
        return Effect(result, payload, output, note="answered in its place")
    field = None if view.untouched else view.changed_in_place
    if field is None:
        return Effect(result, payload, output)
    which = "modified_payload" if field == "current_payload" else "modified_output"
    return Effect(
        result,
        payload,
        output,
        note=f"changed hook_context.{field} in place, which has no effect; return continue_with({which}=...)",
    )


def _broken(hook: Hook, point: Point | str, exc: BaseException) -> Effect:
    kind = exc.kind if isinstance(exc, HookBroke) else "raised"
    error = str(exc) if isinstance(exc, HookBroke) else f"raised {_raised(exc)}"
    follows = OnError.CONTINUE if hook.mode is Mode.OBSERVE else settled_on_error(hook, point)
    action = HookAction(follows)
    result = CONTINUE if action is HookAction.CONTINUE else HookResult(action=action, error_message=error)
    return Effect(result, error_kind=kind, error=error)


def _raised(exc: BaseException) -> str:
    """The exception in one line, with the place in the hook where it came from."""
    try:
        text = str(exc)
    except Exception:
        text = ""
    inner: tuple[BaseException, ...] = getattr(exc, "exceptions", ()) if isinstance(exc, _GROUP) else ()
    if inner:
        text = f"{text}: {'; '.join(_raised(each) for each in inner[:3])}"
    import traceback

    frames = traceback.extract_tb(exc.__traceback__)
    place = (
        f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and not isinstance(exc, UsageError) else ""
    )
    return f"{type(exc).__name__}{f': {text}' if text else ''}{place}"
