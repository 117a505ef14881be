"""fire: the only place where a hook is called.

One walk over the hooks of a point, in order. Each is given a context of its own; what one changes, the next
sees; the first that stops ends the walk. A hook is someone else's code: whatever it does (raise, hang, return
rubbish, ignore cancellation), it comes out of here as "broke", never as a verdict and never as our crash.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from sys import getrefcount
from types import CoroutineType, coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from hookline.engine.context import Facts, Given, HookContext
from hookline.engine.hook import Hook, Mode, OnError, settled_on_error
from hookline.engine.plain import strictly_plain
from hookline.engine.point import Point
from hookline.engine.record import Begun, Called, Decided, Ended, Journal, Record
from hookline.engine.result import (
    CONTINUE,
    HookAction,
    HookResult,
    Outcome,
    add_up,
    ends_the_walk,
    fault,
    merged,
)
from hookline.errors import HookBroke, UsageError

if TYPE_CHECKING:
    from hookline.engine.limit import Driver, Interrupt

# What only a hook that waits or breaks needs is loaded there: `hookline answer` comes here without an event loop.
_clock = time.perf_counter
_new = HookContext.__new__
_GROUP: type[BaseException] = BaseExceptionGroup
# Names of our own for what every point needs: looking up a member of an enum takes as long as half a hook.
_GO_ON, _OFF = HookAction.CONTINUE, Mode.OFF


def _held_once() -> int:
    held = object()
    return getrefcount(held)


_NOBODY_ELSE = _held_once()
"""What is counted for a thing that only one variable refers to; Python versions count differently."""


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
        if self.watchers:
            self._show(record)

    async def write(self, record: Begun | Ended) -> None:
        if self.journal is not None:
            await self.journal.write(record)
        if self.watchers:
            self._show(record)

    def _show(self, record: Record) -> None:
        for watch in self.watchers:
            try:
                watch(record)
            except Exception:
                # Who only looks on must not keep a hook from running, least of all one that cleans up.
                self.watchers = tuple(each for each in self.watchers if each is not watch)
                _warn("%s: a watcher raised and is not called again", record.run_id, exc_info=True)


class Pipeline:
    """The hooks that hold for one agent in one run, by point."""

    __slots__ = ("_at", "_idle", "hooks", "matched", "matching", "recorder")

    def __init__(
        self, hooks: Sequence[Hook], recorder: Recorder | None = None, matched: set[str] | None = None
    ) -> None:
        self.hooks = tuple(hooks)
        self.recorder = recorder or Recorder()
        self.matched = set[str]() if matched is None else matched
        at: dict[Point | str, list[Hook]] = {}
        self.matching: list[Hook] = []
        """Those that are only for some tools."""
        for hook in self.hooks:
            if hook.match is not None:
                self.matching.append(hook)
            if hook.mode is not _OFF:
                for point in hook.points:
                    at.setdefault(point, []).append(hook)
        self._at = {point: tuple(standing) for point, standing in at.items()}
        self._idle: _Walk | None = None

    def at(self, point: Point | str) -> tuple[Hook, ...]:
        """The hooks that stand at a point, in order; those that are off left out."""
        return self._at.get(point, ())

    async def fire(self, context: HookContext) -> Outcome:
        """Call every hook that stands at the context's point; what their answers add up to."""
        given = context._given  # pyright: ignore[reportPrivateUsage]
        facts, payload, output = given
        standing = self._at.get(facts.point)
        if standing is None:
            return Outcome(_GO_ON, payload, output)
        walk, self._idle = self._idle or _Walk(self), None
        walk.given = given
        walk.view = context if context._seen is None else None  # pyright: ignore[reportPrivateUsage]
        del context  # the walk hands it on if nobody else has it
        walk.rest = iter(standing)
        future = walk.resume(None)
        if future is not walk:
            from hookline.engine.limit import Driver

            walk.driver = Driver(walk)
            await walk.driver.drive(future)
            walk.driver = None
        # A walk that an exception came out of is at its end, and does not get here.
        self._idle = walk
        return walk.outcome or Outcome(_GO_ON, payload, output)


class _Walk:
    """Walks over the hooks of one point after another.

    It is one coroutine that lives as long as its pipeline. Between two points it yields the walk itself to whoever
    took the last step; making it anew for every point would cost more than a hook does.
    """

    __slots__ = (
        "_answers",
        "_changed",
        "_closing",
        "_last",
        "_noted",
        "_pipeline",
        "_started",
        "_told",
        "driver",
        "given",
        "hook",
        "life",
        "outcome",
        "rest",
        "resume",
        "view",
    )

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self.given: Given
        self.view: HookContext | None = None
        self.rest: Any
        self.hook: Hook
        self.outcome: Outcome | None = None
        self.driver: Driver | None = None
        self._answers: list[tuple[str, HookResult]] = []
        self._changed = self._closing = self._last = self._noted = self._told = False
        self._started = 0.0
        self._come_alive()

    @coroutine
    def _walks(self) -> Generator[Any, Any, None]:
        pipeline, recording = self._pipeline, self._pipeline.recorder.on
        answer: Any
        while True:
            yield self
            given = self.given
            facts = given.facts
            workflow = facts.workflow
            view, self.view = self.view, None
            for hook in self.rest:
                self.hook = hook
                # What nobody looked into or kept is as good as new, and making one costs as much as calling a hook.
                if view is None or getrefcount(view) != _NOBODY_ELSE:
                    # HookContext.of, written out: this loop is what every hook pays for.
                    view = _new(HookContext)
                    view._given = given  # pyright: ignore[reportPrivateUsage]
                    view._seen = None  # pyright: ignore[reportPrivateUsage]
                if recording:
                    self._started = _clock()
                try:
                    if hook.match is not None:
                        if not hook.match(facts):
                            continue
                        pipeline.matched.add(hook.name)
                    answer = hook.handler(workflow, view)
                    if answer.__class__ is CoroutineType:
                        answer = yield from answer  # pyright: ignore[reportUnknownVariableType]
                    elif answer.__class__ is not HookResult and hasattr(answer, "__await__"):
                        answer = yield from cast("Generator[Any, Any, Any]", answer.__await__())
                except BaseException as exc:
                    answer = self._thrown(exc)
                if self.driver is not None:
                    answer = self._driven(hook, answer)
                if answer is not CONTINUE or view._seen is not None:  # pyright: ignore[reportPrivateUsage]
                    if self._take(hook, _taken(hook, view, answer)):
                        break
                    given, view = self.given, None
                elif recording:
                    self._note(hook, _UNCHANGED)
            if self._answers or self._changed or (self._noted and not self._last):
                self.outcome = self._summed()
            else:
                self.outcome = None
                if self._noted:
                    self._last = self._noted = self._told = False

    def step(self, error: BaseException | None = None) -> Any:
        return self.life.throw(error) if error is not None else self.life.send(None)

    def limit(self) -> float | None:
        return None if self.hook.limits_itself else self.hook.timeout

    def give_up(self, why: Interrupt) -> Any:
        from asyncio import CancelledError

        from hookline.engine.limit import Interrupt

        hook = self.hook
        self.close()
        if why is Interrupt.CANCELLED:
            self._note(hook, _CANCELLED)
            raise CancelledError
        text = f"{_past(hook)}, ignored its cancellation and was given up"
        if self._take(hook, _broken(hook, self.given.facts.point, HookBroke(text, kind="timed_out"))):
            self.rest = iter(())
        self._come_alive()
        return self.step()

    def close(self) -> None:
        self._closing = True
        try:
            self.life.close()
        except KeyboardInterrupt:
            raise
        except BaseException:
            pass  # the hook ignores even that, or fails over it; nobody runs it any more

    def _come_alive(self) -> None:
        self._closing = False
        self.life: Any = self._walks()
        self.resume = self.life.send
        self.resume(None)

    def _thrown(self, exc: BaseException) -> BaseException:
        """What a hook raised is its answer; what is meant for us goes on."""
        if self._closing or isinstance(exc, KeyboardInterrupt):
            raise exc
        return exc

    def _driven(self, hook: Hook, answer: Any) -> Any:
        """The answer of a hook that waited, or what came over it meanwhile."""
        assert self.driver is not None
        interrupt = self.driver.hook_ended()
        if interrupt is None:
            return answer
        from asyncio import CancelledError

        from hookline.engine.limit import Interrupt

        if interrupt is Interrupt.CANCELLED:
            self._note(hook, _CANCELLED)
            raise answer if isinstance(answer, CancelledError) else CancelledError
        return HookBroke(_past(hook), kind="timed_out")

    def _take(self, hook: Hook, taken: _Taken) -> bool:
        """Let an answer count; whether it ends the walk."""
        self._note(hook, taken)
        if taken.error is not None and not self._pipeline.recorder.watchers:
            facts = self.given.facts
            _warn("%s: hook %s at %s broke: %s", facts.run_id, hook.name, facts.point, taken.error)
        if taken.changed is not None:
            self.given = Given(self.given.facts, taken.payload, taken.output)
            self._changed = True
        if taken.result is not CONTINUE:
            self._answers.append((hook.name, taken.result))
        return ends_the_walk(taken.result)

    def _summed(self) -> Outcome:
        facts, payload, output = self.given
        outcome = add_up(payload, output, self._answers, changed=self._changed)
        if self._pipeline.recorder.on:
            self._pipeline.recorder.note(_decided(facts, outcome))
        self._answers = []
        self._changed = self._last = self._noted = self._told = False
        return outcome

    def _note(self, hook: Hook, taken: _Taken) -> None:
        """The record of one call.

        What was given stands in the first that did more than let things go on; the rest follows from the changes.
        """
        if not self._pipeline.recorder.on:
            return
        facts, payload, output = self.given
        given = None
        if taken is not _UNCHANGED and not self._told and not taken.silent:
            given = payload if not isinstance(facts.point, Point) or facts.point.is_start else output
            self._told = True
        self._last = not (self._answers or self._changed or self.rest.__length_hint__() or taken.decides)
        self._noted = True
        said = taken.said or taken.result
        self._pipeline.recorder.note(
            Called(
                facts.run_id,
                facts.scope_id,
                facts.point,
                hook.name,
                time.time(),
                _clock() - self._started,
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
                self._last,
            )
        )


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

    @property
    def decides(self) -> bool:
        """Whether an outcome follows: it bears on that, or the walk ends here without one."""
        return self.result is not CONTINUE or self.changed is not None or self.error_kind == "cancelled"

    @property
    def silent(self) -> bool:
        """Whether there is nothing to tell of it."""
        return not (self.decides or self.error_kind or self.note or self.said)


_UNCHANGED = _Taken(CONTINUE)
_CANCELLED = _Taken(CONTINUE, error_kind="cancelled", error="cancelled")


def _taken(hook: Hook, view: HookContext, answer: Any) -> _Taken:
    point = view.given.facts.point
    if isinstance(answer, BaseException):
        return _broken(hook, point, answer)
    try:
        taken = _accepted(view, _valid(point, answer))
    except Exception as exc:
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
    facts, payload, output = view.given
    if result.modified_payload is not None:
        payload = merged(
            "modified_payload",
            payload,
            result.modified_payload,
            replace=result.replace,
            aliases=facts.aliases,
        )
        return _Taken(result, payload, output, changed=result.modified_payload)
    if result.modified_output is not None:
        output = merged("modified_output", output, result.modified_output, replace=result.replace)
        return _Taken(result, payload, output, changed=result.modified_output)
    if result.action is HookAction.ANSWER:
        strictly_plain(result.output, "answer(output)")
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


def _past(hook: Hook) -> str:
    return f"ran past its limit of {hook.timeout:g} s"


def _warn(message: str, *values: Any, exc_info: bool = False) -> None:
    import logging

    logging.getLogger(__name__).warning(message, *values, exc_info=exc_info, stacklevel=2)
