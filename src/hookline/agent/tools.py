"""Tools: functions that a model may call. `@tool` makes one; its parameters become a JSON Schema."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_type_hints, overload

from hookline.agent.models import ToolSpec
from hookline.engine.context import WorkflowContext
from hookline.engine.threads import Threads
from hookline.errors import AgentFailed, UsageError

if TYPE_CHECKING:
    from pydantic import BaseModel

_threads = Threads(cap=256)
APPROVALS = ("none", "always")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool. `body` takes the execution's context and the arguments after the hooks."""

    id: str
    description: str
    parameters: Mapping[str, Any]
    body: Callable[[WorkflowContext, dict[str, Any]], Awaitable[Any]]
    kind: str = "other"
    approval: str = "none"
    timeout: float | None = None

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(name=self.id, description=self.description, parameters=self.parameters)

    async def __call__(self, ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        async with asyncio.timeout(self.timeout) as limit:
            try:
                return await self.body(ctx, arguments)
            except asyncio.CancelledError:
                if limit.expired():
                    raise ToolTimedOut(f"{self.id} ran past its limit of {self.timeout:g} s") from None
                raise


class ToolTimedOut(AgentFailed):
    """A tool ran past its own limit."""


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    function: None = None,
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    kind: str = "other",
    approval: str = "none",
    timeout: float | None = None,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    id: str | None = None,
    description: str | None = None,
    kind: str = "other",
    approval: str = "none",
    timeout: float | None = None,
) -> Any:
    """Makes a tool of a function: `(ctx)`, `(ctx, input: SomeModel)`, or plain typed parameters.

    A first parameter annotated `WorkflowContext`, or named `ctx`, receives the execution's context.
    `approval="always"` asks a person before each call, unless a hook allows it.
    """
    if approval not in APPROVALS:
        raise UsageError(f"approval is {approval!r}; known: {', '.join(APPROVALS)}")

    def make(target: Callable[..., Any]) -> Tool:
        name = getattr(target, "__name__", None)
        if name is None:
            raise UsageError(f"tool {target!r} has no name and no parameters of its own; give a function")
        shape = _shape(target)
        return Tool(
            id=id or name,
            description=description or inspect.getdoc(target) or "",
            parameters=shape.schema(),
            body=_body(target, shape),
            kind=kind,
            approval=approval,
            timeout=timeout,
        )

    return make if function is None else make(function)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ToolSignature:
    """The parameters of a function: with or without the context, and one model or single values."""

    takes_context: bool
    model: type[BaseModel]
    whole: bool
    names: Mapping[str, str]

    def schema(self) -> dict[str, Any]:
        schema = self.model.model_json_schema()
        schema.pop("title", None)
        return schema

    def values(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        from pydantic import ValidationError

        try:
            checked = self.model.model_validate(arguments)
        except ValidationError as exc:
            raise AgentFailed(f"the arguments do not fit: {_problems(exc)}") from None
        if self.whole:
            return [checked], {}
        return [], {name: getattr(checked, field) for name, field in self.names.items()}


def _shape(function: Callable[..., Any]) -> _ToolSignature:
    from pydantic import BaseModel, create_model

    where = f"tool {getattr(function, '__name__', function)!r}"
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as exc:
        raise UsageError(f"{where}: an annotation cannot be read: {exc}") from exc
    params = list(inspect.signature(function).parameters.values())
    for param in params:
        if param.kind in (param.VAR_POSITIONAL, param.VAR_KEYWORD, param.POSITIONAL_ONLY):
            raise UsageError(f"{where}: parameter {param} cannot be described to a model; name each one")
    takes_context = bool(params) and (params[0].name == "ctx" or hints.get(params[0].name) is WorkflowContext)
    rest = params[1:] if takes_context else params
    if len(rest) == 1:
        hint = hints.get(rest[0].name)
        if isinstance(hint, type) and issubclass(hint, BaseModel):
            return _ToolSignature(takes_context=takes_context, model=hint, whole=True, names={})
    # Own field names: a parameter may be called `schema` or `_x`, which a model's field may not.
    names = {param.name: f"field_{index}" for index, param in enumerate(rest)}
    from pydantic import ConfigDict, Field

    fields: dict[str, Any] = {
        names[param.name]: (
            hints.get(param.name, Any),
            Field(... if param.default is param.empty else param.default, alias=param.name, title=param.name),
        )
        for param in rest
    }
    model = create_model(
        f"{getattr(function, '__name__', 'tool')}_input", __config__=ConfigDict(extra="ignore"), **fields
    )
    return _ToolSignature(takes_context=takes_context, model=model, whole=False, names=names)


def _body(
    function: Callable[..., Any], shape: _ToolSignature
) -> Callable[[WorkflowContext, dict[str, Any]], Awaitable[Any]]:
    is_async = inspect.iscoroutinefunction(function)

    async def body(ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        positional, named = shape.values(arguments)
        first = [ctx] if shape.takes_context else []
        if is_async:
            return await function(*first, *positional, **named)
        call = lambda: function(*first, *positional, **named)  # noqa: E731
        value = await _threads.call(call, timeout=None)
        return await value if inspect.isawaitable(value) else value

    return body


def _problems(exc: Any) -> str:
    found = [f"{'.'.join(str(part) for part in error['loc'])}: {error['msg']}" for error in exc.errors()]
    return "; ".join(found)
