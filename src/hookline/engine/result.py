"""HookResult: the answer of a hook. Outcome: the sum of all answers at one point."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, cast

from hookline.engine.plain import like, plain, strictly_plain
from hookline.engine.point import HookAction, Point
from hookline.engine.shared import Copies
from hookline.engine.stdlib import dataclass
from hookline.errors import UsageError, meant, refuse_unknown
from hookline.secrets.text import without_secrets

_EVERYWHERE = frozenset(Point)
_GATES = frozenset({Point.AGENT_START, Point.MODEL_START, Point.TOOL_START})

ALLOWED: Mapping[HookAction, frozenset[Point]] = {
    HookAction.CONTINUE: _EVERYWHERE,
    HookAction.ALLOW: _GATES,
    HookAction.ANSWER: _GATES,
    HookAction.ASK: _GATES | {Point.RUN_END},
    HookAction.SKIP: frozenset({Point.RUN_START, Point.AGENT_START}),
    HookAction.BLOCK: _GATES | {Point.STEP_START, Point.TOOL_END, Point.MODEL_END, Point.AGENT_END},
    HookAction.FAIL: _EVERYWHERE - {Point.SESSION_END, Point.WORKSPACE_END},
}
"""The points at which each verdict is valid."""

WITHHELD = "[hookline withheld this output: a hook that masks it broke]"
"""The output in place of one that a hook which broke should have masked."""

_STRICTEST_FIRST = tuple(reversed(HookAction))
ENDS_THE_WALK = frozenset({HookAction.FAIL, HookAction.BLOCK, HookAction.SKIP, HookAction.ANSWER})


def _text(name: str, value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    raise UsageError(f"{name} must be a string, not {type(value).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class HookResult:
    """One hook's answer. Made by the functions below; `HookResult()` is `continue_with()`."""

    action: HookAction = HookAction.CONTINUE
    modified_payload: Any = None
    modified_output: Any = None
    error_message: str | None = None
    replace: bool = False
    tell_model: str | None = None
    tell_user: str | None = None
    output: Any = None

    def __post_init__(self) -> None:
        if type(self.action) is not HookAction:
            try:
                object.__setattr__(self, "action", HookAction(self.action))
            except ValueError:
                raise UsageError(
                    f"unknown action {self.action!r}{meant(str(self.action), HookAction)}"
                ) from None
        _text("error_message", self.error_message)
        _text("tell_model", self.tell_model)
        _text("tell_user", self.tell_user)

    @staticmethod
    def continue_with(
        *,
        modified_payload: Any = None,
        modified_output: Any = None,
        replace: bool = False,
        tell_model: str | None = None,
        tell_user: str | None = None,
        **unknown: Any,
    ) -> "HookResult":
        """Continue, changed or not. Dicts are merged unless `replace`; anything else replaces the old value."""
        if unknown:
            refuse_unknown("continue_with", unknown, HookResult.continue_with)
        if modified_payload is None and modified_output is None and tell_model is None and tell_user is None:
            return CONTINUE
        return HookResult(
            modified_payload=modified_payload,
            modified_output=modified_output,
            replace=replace,
            tell_model=tell_model,
            tell_user=tell_user,
        )

    @staticmethod
    def allow(reason: str | None = None) -> "HookResult":
        """Continue, without asking anybody for permission."""
        return HookResult(action=HookAction.ALLOW, error_message=_text("allow(reason)", reason))

    @staticmethod
    def block(reason: str) -> "HookResult":
        """Refuse this one thing; the agent is told why and goes on."""
        return HookResult(action=HookAction.BLOCK, error_message=_text("block(reason)", reason))

    @staticmethod
    def fail(message: str) -> "HookResult":
        """Stop the run with an error."""
        return HookResult(action=HookAction.FAIL, error_message=_text("fail(message)", message))

    @staticmethod
    def skip(reason: str) -> "HookResult":
        """End the run as Skipped: there is nothing to do."""
        return HookResult(action=HookAction.SKIP, error_message=_text("skip(reason)", reason))

    @staticmethod
    def ask(reason: str) -> "HookResult":
        """Let a person decide."""
        return HookResult(action=HookAction.ASK, error_message=_text("ask(reason)", reason))

    @staticmethod
    def answer(output: Any) -> "HookResult":
        """Give the output in place of the thing itself, which does not run."""
        return HookResult(action=HookAction.ANSWER, output=output)

    @property
    def reason(self) -> str | None:
        return self.error_message

    def to_dict(self) -> dict[str, Any]:
        return plain(self)

    @classmethod
    def from_dict(cls, value: "HookResult | Mapping[str, Any]") -> "HookResult":
        if isinstance(value, HookResult):
            return value
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"Cannot create HookResult from {type(value).__name__}; give a dict or a HookResult"
            )
        return cls(**value)


CONTINUE = HookResult()
"""The answer of most hooks; a single object, so that it can be compared by identity."""


class Reason(NamedTuple):
    """The verdict and words of one hook."""

    hook: str
    action: HookAction
    text: str


class Outcome(NamedTuple):
    """The sum of all answers at a point. `payload` and `output` are the final ones."""

    action: HookAction = HookAction.CONTINUE
    payload: Any = None
    output: Any = None
    reasons: tuple[Reason, ...] = ()
    tell_model: tuple[str, ...] = ()
    tell_user: tuple[str, ...] = ()
    changed: bool = False
    answered: bool = False

    @property
    def stopped(self) -> bool:
        """True if the thing inside does not run."""
        return self.action in ENDS_THE_WALK

    @property
    def needs_permission(self) -> bool:
        """True if it would run, and no hook has allowed it."""
        if self.action not in (HookAction.CONTINUE, HookAction.ASK) or self.answered:
            return False
        return all(reason.action is not HookAction.ALLOW for reason in self.reasons)

    @property
    def hook(self) -> str:
        """The hook that decided."""
        return next((reason.hook for reason in self.reasons if reason.action == self.action), "")

    @property
    def reason(self) -> str:
        """Reasons of the deciding hooks, in declared order."""
        return "; ".join(
            reason.text for reason in self.reasons if reason.action == self.action and reason.text
        )


def add_up(
    payload: Any, output: Any, answers: Sequence[tuple[str, HookResult]], *, changed: bool = False
) -> Outcome:
    """The strictest wins (fail, block, skip, ask, then the rest); reasons and texts in declared order."""
    if not answers:
        return Outcome(HookAction.CONTINUE, payload, output, changed=changed)
    said = {result.action for _, result in answers}
    action = next(action for action in _STRICTEST_FIRST if action in said)
    last = answers[-1][1]
    answered = last.action is HookAction.ANSWER
    return Outcome(
        action=action,
        payload=payload,
        output=last.output if answered else output,
        reasons=tuple(
            Reason(name, result.action, _said(result))
            for name, result in answers
            if result.action is not HookAction.CONTINUE
        ),
        tell_model=tuple(result.tell_model for _, result in answers if result.tell_model),
        tell_user=tuple(without_secrets(result.tell_user) for _, result in answers if result.tell_user),
        changed=changed or answered,
        answered=answered,
    )


def _said(result: HookResult) -> str:
    """The reason without secrets; whole where a person decides by it."""
    text = result.error_message or ""
    return text if result.action is HookAction.ASK else without_secrets(text)


def fault(result: HookResult, point: Point | str) -> str | None:
    """The reason why a result is not valid at a point, or None."""
    if not isinstance(point, Point):
        return None
    if point not in ALLOWED[result.action]:
        places = ", ".join(p for p in Point if p in ALLOWED[result.action])
        return f"{result.action} means nothing at {point}; it is for {places}"
    if result.modified_output is not None and point.is_start:
        return f"modified_output means nothing at {point}; there is no output yet, give modified_payload or answer(...)"
    return None


def merged(
    name: str, current: Any, change: Any, *, replace: bool = False, aliases: Mapping[str, str] | None = None
) -> Any:
    """`current` after a hook's change: dicts are merged unless `replace`, anything else replaces it.

    An alias (`prompt` for `input`) follows its key, and its key follows it.
    """
    new = strictly_plain(change, name)
    if not isinstance(new, dict):
        return new
    before = plain(current)
    both = isinstance(before, dict)
    whole: dict[str, Any] = {**before, **new} if both and not replace else cast("dict[str, Any]", new)
    for alias, key in (aliases or {}).items() if both else ():
        if alias in new and (
            key not in new or (new[key] == before.get(key) and new[alias] != before.get(alias))
        ):
            whole[key] = new[alias]
        if alias in before and key in whole:
            whole[alias] = whole[key]
    for key, value in whole.items():
        if type(value) is Copies:
            whole[key] = value.settled(plain)
    return like(current, whole)
