"""Stop conditions: end an agent that would go on with another step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

from hookline.engine.context import Step
from hookline.engine.point import Status
from hookline.errors import UsageError


class StopConditionContext(NamedTuple):
    """The input of a stop condition."""

    steps: list[Step]
    agent_id: str
    agent_run_id: str


@dataclass(frozen=True, slots=True)
class StopCondition:
    """A stop condition; calling it with a configuration returns one with that configuration."""

    name: str
    function: Callable[..., Any]
    config_type: type[Any] | None = None
    config: Any = None

    def __call__(self, config: Any = None, **given: Any) -> StopCondition:
        if self.config_type is None:
            if config is not None or given:
                raise UsageError(f"{self.name} takes no configuration")
            return self
        if isinstance(config, dict):
            given = {**cast("dict[str, Any]", config), **given}
            config = None
        if config is None:
            config = self._made(self.config_type, given)
        elif not isinstance(config, self.config_type):
            raise UsageError(f"{self.name} takes {self.config_type.__name__}, not {type(config).__name__}")
        return replace(self, config=config)

    async def holds(self, context: StopConditionContext) -> bool:
        config = self.config if self.config is not None else self().config
        found = self.function(context) if self.config_type is None else self.function(context, config)
        return bool(await found if inspect.isawaitable(found) else found)

    def __str__(self) -> str:
        return f"{self.name}({self.config})" if self.config is not None else self.name

    def _made(self, kind: type[Any], given: dict[str, Any]) -> Any:
        try:
            return kind(**given)
        except UsageError:
            raise
        except TypeError:
            known = ", ".join(getattr(kind, "__dataclass_fields__", ())) or kind.__name__
            raise UsageError(f"{self.name}: cannot be configured with {given}; it takes {known}") from None


def stop_condition(function: Callable[..., Any]) -> StopCondition:
    """Make a condition of `(context) -> bool` or `(context, config) -> bool`, sync or async."""
    params = list(inspect.signature(function, eval_str=True).parameters.values())
    if not 1 <= len(params) <= 2:
        raise UsageError(f"stop condition {function.__name__} takes (context) or (context, config)")
    if len(params) == 1:
        return StopCondition(function.__name__, function)
    kind = params[1].annotation
    if not isinstance(kind, type) or kind is inspect.Parameter.empty:
        raise UsageError(f"stop condition {function.__name__}: annotate {params[1].name!r} with its class")
    return StopCondition(function.__name__, function, kind)


def conditions_of(given: StopCondition | Iterable[StopCondition]) -> tuple[StopCondition, ...]:
    """The conditions given to an agent: none, one, or several."""
    conditions = (given,) if isinstance(given, StopCondition) else tuple(given)
    for each in conditions:
        if not isinstance(each, StopCondition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"stop_conditions has {each!r}; decorate it with @stop_condition")
    return conditions


@dataclass(frozen=True, slots=True)
class MaxStepsConfig:
    """`limit` is an alias of `count`."""

    count: int = 20
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None:
            object.__setattr__(self, "count", self.limit)
        if self.count < 1:
            raise UsageError(f"max_steps: count is {self.count}; give 1 or more")


@dataclass(frozen=True, slots=True)
class MaxTokensConfig:
    limit: int


@dataclass(frozen=True, slots=True)
class ExecutedToolConfig:
    tool_names: list[str]


@dataclass(frozen=True, slots=True)
class HasTextConfig:
    texts: list[str]


@stop_condition
def max_steps(context: StopConditionContext, config: MaxStepsConfig) -> bool:
    """Stops after a number of steps."""
    return len(context.steps) >= config.count


@stop_condition
def max_tokens(context: StopConditionContext, config: MaxTokensConfig) -> bool:
    """Stops after a number of tokens."""
    return sum(step.usage.total_tokens for step in context.steps) >= config.limit


@stop_condition
def executed_tool(context: StopConditionContext, config: ExecutedToolConfig) -> bool:
    """Stops once every named tool was called; refused calls do not count."""
    results = (result for step in context.steps for result in step.tool_results)
    called = {result.tool_name for result in results if result.status != Status.BLOCKED}
    return set(config.tool_names) <= called


@stop_condition
def has_text(context: StopConditionContext, config: HasTextConfig) -> bool:
    """Stops once the last step's text contains all of the given texts."""
    text = (context.steps[-1].content or "") if context.steps else ""
    return all(piece in text for piece in config.texts)
