"""Hook: a piece of someone's code, with its points and options.

`@hook` marks such code. A declaration is the content of a file of hooks and agents, as pure data.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import StrEnum
from types import FunctionType
from typing import Any, TypeVar, overload

from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.plain import plain
from hookline.engine.point import HookAction, Point, point_named
from hookline.engine.result import ALLOWED, HookResult
from hookline.engine.stdlib import dataclass, field
from hookline.errors import UsageError, meant, refuse_unknown

DEFAULT_TIMEOUT = 60.0
"""Seconds that a hook may take by default."""

F = TypeVar("F", bound=Callable[..., Any])
W = TypeVar("W", bound=StrEnum)
Handler = Callable[[WorkflowContext | None, HookContext], Awaitable[HookResult] | HookResult]
"""The callable of a hook. An inline one returns its result, any other an awaitable."""
Matcher = Callable[[Facts], bool]
Condition = Callable[[HookContext], bool]


class OnError(StrEnum):
    """The consequence of a hook that broke."""

    CONTINUE = "continue"
    BLOCK = "block"
    FAIL = "fail"
    WITHHOLD = "withhold"


WITHHOLDS: Mapping[Point | str, OnError] = dict.fromkeys(
    (Point.TOOL_END, Point.MODEL_END, Point.AGENT_END), OnError.WITHHOLD
)
"""The default consequences of a hook that changes outputs: what it should have masked is not passed on."""


class Mode(StrEnum):
    """How much a hook's verdict counts."""

    ENFORCE = "enforce"
    OBSERVE = "observe"
    OFF = "off"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One hook, ready to be called. With `limits_itself` the handler keeps the time limit (it may queue first).

    `match` and `when` say for which calls it is; at others it is neither called nor on record. One with the
    `last_word` is called again after a later hook without it changed something.
    """

    name: str
    points: frozenset[Point | str]
    handler: Handler
    kind: str = "python"
    match: Matcher | None = None
    match_text: str | None = None
    when: Condition | None = None
    when_text: str | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    on_error: OnError | None = None
    mode: Mode = Mode.ENFORCE
    source: str = ""
    limits_itself: bool = False
    last_word: bool = False
    defaults: Mapping[Any, OnError] | None = None
    doubt: str = ""
    same: str | None = None
    """Hooks that have the same text here are one, whatever files declare it: it runs once."""
    again: Callable[[], Mapping[str, Any]] | None = None
    """The plain data from which another process makes the hook again; None where only this process has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookOptions:
    """The arguments of `@hook(...)`, kept beside the function until it is attached."""

    on: tuple[Point | str, ...] = ()
    match: str | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    on_error: OnError | None = None
    inline: bool = False
    mode: Mode = Mode.ENFORCE
    name: str | None = None
    changes: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HookDeclaration:
    """One declared hook: its points, its kind (python, command, shell, ...) and the parameters of that kind."""

    name: str
    points: tuple[Point | str, ...]
    kind: str
    params: Mapping[str, Any] = field(default_factory=dict[str, Any])
    match: str | tuple[str, ...] | None = None
    when: Mapping[str, Any] | None = None
    timeout: float | None = DEFAULT_TIMEOUT
    on_error: OnError | None = None
    mode: Mode = Mode.ENFORCE
    changes: str | None = None
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentDeclaration:
    """The agent around which the hooks are called; inner agents are those that are its tools."""

    name: str
    provider: str = ""
    model: str = ""
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    hooks: tuple[HookDeclaration, ...] = ()
    agents: tuple[AgentDeclaration, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """The content of one file. `hooks` apply to every agent in the run."""

    format: str
    source: str
    agent: AgentDeclaration | None = None
    hooks: tuple[HookDeclaration, ...] = ()
    timeout: float | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return plain(self)


def settled_on_error(hook: Hook, point: Point | str) -> OnError:
    """The consequence at this point: the declared one, or the strictest that the point allows."""
    unsaid = OnError.FAIL if isinstance(point, Point) else OnError.CONTINUE
    wanted = hook.on_error or (hook.defaults or {}).get(point, unsaid)
    if wanted is OnError.WITHHOLD and point not in WITHHOLDS:
        wanted = OnError.BLOCK
    if not isinstance(point, Point):
        return wanted
    if wanted is OnError.BLOCK and point not in ALLOWED[HookAction.BLOCK]:
        wanted = OnError.FAIL if point.is_start else OnError.CONTINUE
    if wanted is OnError.FAIL and point not in ALLOWED[HookAction.FAIL]:
        wanted = OnError.CONTINUE
    return wanted


@overload
def hook(function: F, /) -> F: ...
@overload
def hook(
    function: None = None,
    /,
    *,
    on: str | Iterable[str] = (),
    match: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_error: str | None = None,
    inline: bool = False,
    observe: bool = False,
    mode: str | None = None,
    name: str | None = None,
    changes: str | None = None,
) -> Callable[[F], F]: ...
def hook(
    function: Callable[..., Any] | None = None,
    /,
    *,
    on: str | Iterable[str] = (),
    match: str | None = None,
    timeout: float | None = DEFAULT_TIMEOUT,
    on_error: str | None = None,
    inline: bool = False,
    observe: bool = False,
    mode: str | None = None,
    name: str | None = None,
    changes: str | None = None,
    **unknown: Any,
) -> Any:
    """Mark a function as a hook: `@hook`, or `@hook(match="bash|shell_.*", timeout=5, ...)`.

    `on` names the points, or a client's events, of a hook that is given to a run and not to a list of an agent.
    `timeout` is in seconds, None for no limit. `inline` calls a quick sync function on the event loop.
    `observe` runs the hook and only records what it would have decided. `changes="output"` is for a hook that masks:
    if it breaks at the end of a tool, a model call or an agent, the output is withheld.
    """
    refuse_unknown("@hook", unknown, hook)
    if changes not in (None, "output"):
        raise UsageError(f"changes is {changes!r}; known: output")
    words = _texts("on", on)
    if match is not None:
        _texts("match", match)
    options = HookOptions(
        on=tuple(word if word.startswith("x.") else point_named(word) for word in words),
        match=match,
        timeout=seconds(timeout),
        on_error=_word(OnError, "on_error", on_error),
        inline=inline,
        mode=_word(Mode, "mode", mode) or (Mode.OBSERVE if observe else Mode.ENFORCE),
        name=name,
        changes=changes,
    )

    def mark(target: Callable[..., Any]) -> Callable[..., Any]:
        check_signature(target)
        if options == HookOptions():
            return target
        try:
            target.__hookline__ = options  # type: ignore[attr-defined]
        except AttributeError:
            # A bound method takes no attributes, and its function belongs to every other instance too.
            target = functools.partial(target)
            target.__hookline__ = options  # type: ignore[attr-defined]
        return target

    return mark if function is None else mark(function)


def options_of(function: Callable[..., Any]) -> HookOptions:
    return getattr(function, "__hookline__", None) or HookOptions()


def check_signature(function: Callable[..., Any]) -> None:
    """Raises UsageError unless the function can be called with (ctx, hook_context)."""
    if not callable(function):
        raise UsageError(f"Invalid hook type: {function!r} is not a function")
    if isinstance(function, FunctionType) and not hasattr(function, "__wrapped__"):
        code = function.__code__
        if code.co_argcount == 2 and not code.co_kwonlyargcount:
            return  # as nearly all are; reading a whole signature takes twenty times as long
    import inspect  # slow to load, and few hooks are not plain functions

    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        shape = f"{name_of(function)}{inspect.signature(function)}"
        raise UsageError(
            f"{shape} must have exactly 2 parameters, (ctx: WorkflowContext, hook_context: HookContext)"
            f" [{source_of(function)}]"
        ) from None
    except ValueError:
        return  # a builtin without a readable signature; the call will show it


def annotation_fault(function: Callable[..., Any]) -> str | None:
    """The mistake that a hook's annotations show; None if they are right, or there are none."""
    inner = _unwrapped(function)
    hints = {name: str(hint) for name, hint in getattr(inner, "__annotations__", {}).items()}
    result = hints.pop("return", "HookResult")
    if not any(word in result for word in ("HookResult", "Any", "object", "~")):
        return f"{name_of(function)} is annotated to return {result}; a hook returns a HookResult"
    parameters = list(hints.values())
    if len(parameters) == 2 and "HookContext" in parameters[0] and "WorkflowContext" in parameters[1]:
        return f"the parameters of {name_of(function)} are the other way round: (ctx, hook_context)"
    return None


def name_of(function: Callable[..., Any]) -> str:
    inner = _unwrapped(function)
    return getattr(inner, "__name__", type(inner).__name__)


def source_of(function: Callable[..., Any]) -> str:
    """file:line of a function, for messages and for the record."""
    inner = _unwrapped(function)
    if not hasattr(inner, "__code__") and not hasattr(inner, "__func__"):
        inner = type(inner).__call__
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""


def _unwrapped(function: Callable[..., Any]) -> Any:
    """The function itself, behind its decorators and partials."""
    inner: Any = function
    if hasattr(function, "__wrapped__"):
        import inspect

        inner = inspect.unwrap(function)
    while isinstance(inner, functools.partial):
        inner = inner.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return inner


def is_limit(seconds: Any) -> bool:
    """True for a number of seconds greater than 0."""
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds > 0


def seconds(value: Any, of: str = "") -> float | None:
    """A time limit; UsageError if it is none."""
    if value is not None and not is_limit(value):
        raise UsageError(f"{of}timeout is {value!r}; give seconds greater than 0, or None for no limit")
    return None if value is None else float(value)


def _texts(name: str, given: Any) -> list[str]:
    """One text or several, as a list."""
    texts: list[Any] = [given] if isinstance(given, str) or not isinstance(given, Iterable) else [*given]
    if not all(isinstance(each, str) for each in texts):
        raise UsageError(f"{name} is {given!r}; give a text, or a list of texts")
    return texts


def _word(kind: type[W], name: str, value: str | None) -> W | None:
    if value is None:
        return None
    try:
        return kind(value)
    except ValueError:
        raise UsageError(f"{name} is {value!r}{meant(str(value), kind)}") from None
