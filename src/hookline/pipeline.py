"""fire: the only place where a hook is called.

One walk over the hooks of a point, in order. Each is given a context of its own; what one changes, the next
sees; the first that stops ends the walk. A hook is someone else's code: whatever it does (raise, hang, return
rubbish, ignore cancellation), it comes out of here as "broke", never as a verdict and never as our crash.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterable, Sequence
from types import CoroutineType
from typing import Any, NamedTuple

from hookline.context import UNSEEN, Facts, HookContext
from hookline.errors import HookBroke, UsageError
from hookline.hook import Hook, Mode, OnError, settled_on_error
from hookline.journal import Begun, Called, Decided, Ended, Journal, Record
from hookline.limit import Rest
from hookline.point import Point
from hookline.result import CONTINUE, HookAction, HookResult, Outcome, add_up, ends_the_walk, fault, merged

__all__ = ["Pipeline", "Recorder"]

_clock = time.perf_counter


class Recorder:
    """Hands each record to the journal and to whoever watches."""

    __slots__ = ("journal", "on", "watchers")

    def __init__(
        self, journal: Journal | None = None, watchers: Iterable[Callable[[Record], None]] = ()
    ) -> None:
        self.journal = journal
        self.watchers = tuple(watchers)
        self.on = journal is not None or bool(self.watchers)

    def note(self, record: Called | Decided) -> None:
        if self.journal is not None:
            self.journal.note(record)
        for watch in self.watchers:
            watch(record)

    async def write(self, record: Begun | Ended) -> None:
        if self.journal is not None:
            await self.journal.write(record)
        for watch in self.watchers:
            watch(record)


class Pipeline:
    """The hooks that hold for one agent in one run, by point."""

    __slots__ = ("_at", "hooks", "matched", "recorder")

    def __init__(
        self, hooks: Sequence[Hook], recorder: Recorder | None = None, matched: set[str] | None = None
    ) -> None:
        self.hooks = tuple(hooks)
        self.recorder = recorder or Recorder()
        self.matched = set[str]() if matched is None else matched
        self._at: dict[Point | str, tuple[Hook, ...]] = {}

    def at(self, point: Point | str) -> tuple[Hook, ...]:
        """The hooks that stand at a point, in order; those that are off left out."""
        standing = self._at.get(point)
        if standing is None:
            standing = tuple(
                hook for hook in self.hooks if point in hook.points and hook.mode is not Mode.OFF
            )
            self._at[point] = standing
        return standing

    async def fire(self, context: HookContext) -> Outcome:
        """Call every hook that stands at the context's point; what their answers add up to."""
        facts = context.facts
        payload, output = context.given
        standing = self._at.get(facts.point)
        if standing is None:
            standing = self.at(facts.point)
        if not standing:
            return Outcome(payload=payload, output=output)

        new, workflow = HookContext.__new__, facts.workflow
        note = self._noter(facts, payload, output) if self.recorder.on else None
        answers: list[tuple[str, HookResult]] = []
        changed = False
        for hook in standing:
            # HookContext.of, written out: this loop is what every hook pays for.
            view = new(HookContext)
            view._facts = facts  # pyright: ignore[reportPrivateUsage]
            view._payload = payload  # pyright: ignore[reportPrivateUsage]
            view._output = output  # pyright: ignore[reportPrivateUsage]
            view._seen_payload = view._seen_output = UNSEEN  # pyright: ignore[reportPrivateUsage]
            started = _clock() if note is not None else 0.0
            answer: Any
            try:
                if hook.match is not None:
                    if not hook.match(facts):
                        continue
                    self.matched.add(hook.name)
                answer = hook.handler(workflow, view)
                if answer.__class__ is CoroutineType:
                    try:
                        waits_for = answer.send(None)
                    except StopIteration as stop:
                        answer = stop.value
                    else:
                        answer = await Rest(answer, waits_for, None if hook.limits_itself else hook.timeout)
                elif answer.__class__ is not HookResult and hasattr(answer, "__await__"):
                    answer = await Rest(_awaited(answer), None, None if hook.limits_itself else hook.timeout)
            except (Exception, SystemExit) as exc:
                answer = exc
            except asyncio.CancelledError as exc:
                if _being_cancelled():
                    if note is not None:
                        note(
                            hook,
                            _clock() - started,
                            _Taken(CONTINUE, error_kind="cancelled", error="cancelled"),
                        )
                    raise
                answer = exc

            if answer is CONTINUE and view._seen_payload is view._seen_output is UNSEEN:  # pyright: ignore[reportPrivateUsage]
                if note is not None:
                    note(hook, _clock() - started, _UNCHANGED)
                continue
            taken = _taken(hook, view, answer)
            if note is not None:
                note(hook, _clock() - started, taken)
            if taken.changed is not None:
                payload, output, changed = taken.payload, taken.output, True
            if taken.result is not CONTINUE:
                answers.append((hook.name, taken.result))
                if ends_the_walk(taken.result):
                    break
        outcome = add_up(payload, output, answers, changed=changed)
        if note is not None:
            self.recorder.note(_decided(facts, outcome))
        return outcome

    def _noter(self, facts: Facts, payload: Any, output: Any) -> Callable[[Hook, float, _Taken], None]:
        """Writes the record of each call; what was given is written once, and again after a change."""
        record = self.recorder.note
        given = output if isinstance(facts.point, Point) and not facts.point.is_start else payload

        def note(hook: Hook, seconds: float, taken: _Taken) -> None:
            nonlocal given
            said = taken.said or taken.result
            record(
                Called(
                    facts.run_id,
                    facts.scope_id,
                    facts.point,
                    hook.name,
                    time.time(),
                    seconds,
                    said.action,
                    said.error_message,
                    given,
                    taken.changed,
                    hook.mode,
                    taken.error_kind,
                    taken.error,
                    taken.note,
                    said.tell_model,
                    said.tell_user,
                )
            )
            given = None

        return note


class _Taken(NamedTuple):
    """A hook's answer as it counts. `said` is what it would have meant where only observing."""

    result: HookResult
    payload: Any = None
    output: Any = None
    changed: Any = None
    error_kind: str | None = None
    error: str | None = None
    note: str | None = None
    said: HookResult | None = None


_UNCHANGED = _Taken(CONTINUE)


def _taken(hook: Hook, view: HookContext, answer: Any) -> _Taken:
    point = view.facts.point
    try:
        taken = _accepted(view, _valid(point, answer))
    except (Exception, SystemExit, asyncio.CancelledError) as exc:
        return _broken(hook, point, exc)
    if hook.mode is Mode.OBSERVE and (taken.result is not CONTINUE or taken.changed is not None):
        said = taken.result
        would = (
            f"would have said {said.action}"
            if said.action is not HookAction.CONTINUE
            else "would have changed it"
        )
        return _Taken(CONTINUE, said=said, note=would)
    return taken


def _valid(point: Point | str, answer: Any) -> HookResult:
    if isinstance(answer, BaseException):
        raise answer
    if not isinstance(answer, HookResult):
        raise HookBroke(
            f"returned {_shown(answer)}, an invalid result type; return HookResult.continue_with() to go on",
            kind="bad_answer",
        )
    wrong = fault(answer, point)
    if wrong is not None:
        raise HookBroke(wrong, kind="wrong_point")
    return answer


def _accepted(view: HookContext, result: HookResult) -> _Taken:
    payload, output = view.given
    aliases = view.facts.aliases
    if result.modified_payload is not None:
        payload = merged(
            "modified_payload", payload, result.modified_payload, replace=result.replace, aliases=aliases
        )
        return _Taken(result, payload, output, changed=payload)
    if result.modified_output is not None:
        output = merged("modified_output", output, result.modified_output, replace=result.replace)
        return _Taken(result, payload, output, changed=output)
    if result.action is HookAction.ANSWER:
        return _Taken(result, payload, output, note="answered in its place")
    field = None if view.untouched else view.changed_in_place
    if field is None:
        return _Taken(result, payload, output)
    which = "modified_payload" if field == "current_payload" else "modified_output"
    return _Taken(
        result,
        payload,
        output,
        note=f"changed hook_context.{field} in place, which has no effect; return continue_with({which}=...)",
    )


def _broken(hook: Hook, point: Point | str, exc: BaseException) -> _Taken:
    kind = exc.kind if isinstance(exc, HookBroke) else "raised"
    error = str(exc) if isinstance(exc, HookBroke) else f"raised {_raised(exc)}"
    follows = OnError.CONTINUE if hook.mode is Mode.OBSERVE else settled_on_error(hook, point)
    action = HookAction(follows)
    result = CONTINUE if action is HookAction.CONTINUE else HookResult(action=action, error_message=error)
    return _Taken(result, error_kind=kind, error=error)


def _raised(exc: BaseException) -> str:
    """The exception in one line, with the place in the hook where it came from."""
    text = str(exc)
    frames = traceback.extract_tb(exc.__traceback__)
    place = (
        f" ({frames[-1].filename}:{frames[-1].lineno})" if frames and not isinstance(exc, UsageError) else ""
    )
    return f"{type(exc).__name__}{f': {text}' if text else ''}{place}"


def _shown(value: Any) -> str:
    return "None" if value is None else f"{type(value).__name__}"


def _decided(facts: Facts, outcome: Outcome) -> Decided:
    changed = outcome.changed
    return Decided(
        facts.run_id,
        facts.scope_id,
        facts.point,
        time.time(),
        outcome.action,
        outcome.reasons,
        outcome.payload if changed else None,
        outcome.output if changed else None,
        None,
    )


def _being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _awaited(answer: Awaitable[Any]) -> Any:
    return await answer
