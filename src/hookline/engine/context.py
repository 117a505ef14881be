"""HookContext: the event that a hook is given. WorkflowContext: the execution around it."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple, cast

from hookline.engine.plain import copied, plain
from hookline.engine.point import Point, Status
from hookline.engine.shared import Copies
from hookline.engine.stdlib import dataclass, field
from hookline.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentConfig:
    """The declaration of the agent around which a hook is called."""

    name: str
    provider: str
    model: str
    tools: tuple[str, ...] = ()
    system_prompt: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    provider_base_url: str | None = None
    provider_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    output_schema_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """One call that the model asked for. `arguments` is None if its JSON could not be read."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    raw_arguments: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """How one call ended: ok, failed, timed_out, answered or blocked."""

    tool_call_id: str
    tool_name: str
    status: str
    result: Any = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            total_tokens=self.total_tokens + other.total_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One completed step: a model call and the tools it asked for."""

    step: int
    content: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    usage: Usage = Usage()

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> "Step":
        """The step of its plain form."""
        given = dict(value)
        given["tool_calls"] = tuple(ToolCall(**call) for call in given.get("tool_calls") or ())
        given["tool_results"] = tuple(ToolResult(**result) for result in given.get("tool_results") or ())
        given["usage"] = Usage(**cast("dict[str, int]", given.get("usage") or {}))
        return cls(**given)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowContext:
    """The execution a hook or a tool runs in. `state` is scratch space shared by the whole run.

    `transcript` and `env_file` are files for command hooks, where the session has such: its messages, and the variables
    for later shells. `project` is the folder that a foreign agent was started in; `workspace` is that of its event.
    """

    workflow_id: str
    execution_id: str = ""
    session_id: str | None = None
    user_id: str | None = None
    parent_execution_id: str | None = None
    root_execution_id: str = ""
    root_workflow_id: str = ""
    retry_count: int = 0
    created_at: float = 0.0
    workflow_type: str = "agent"
    workspace: str | None = None
    project: str | None = None
    state: dict[str, Any] = field(default_factory=dict[str, Any])
    agent_id: str | None = None
    provider: str | None = None
    model: str | None = None
    system_prompt: str | None = None
    tools: tuple[str, ...] = ()
    transcript: str | None = None
    env_file: str | None = None

    def to_dict(self) -> dict[str, Any]:
        return plain(self)


@dataclass(slots=True)
class Facts:
    """The facts of one point, the same for each of its hooks; never changed once made."""

    workflow_id: str
    point: Point | str = ""
    run_id: str = ""
    scope_id: str = ""
    call_id: str | None = None
    attempt: int = 1
    step: int | None = None
    agent: str | None = None
    parents: tuple[str, ...] = ()
    session_id: str | None = None
    user_id: str | None = None
    agent_config: AgentConfig | None = None
    steps: tuple[Step, ...] = ()
    current_tool: str | None = None
    tool_kind: str | None = None
    status: Status | None = None
    native: Any = None
    workflow: WorkflowContext | None = None
    aliases: Mapping[str, str] | None = None
    end_refused: bool = False
    """True at the end of an agent that went on because a hook refused its end before."""

    def at(
        self, point: Point, status: Status | None = None, steps: tuple[Step, ...] | None = None
    ) -> "Facts":
        """The same facts at a point of their scope."""
        return Facts(
            self.workflow_id,
            point,
            self.run_id,
            self.scope_id,
            self.call_id,
            self.attempt,
            self.step,
            self.agent,
            self.parents,
            self.session_id,
            self.user_id,
            self.agent_config,
            self.steps if steps is None else steps,
            self.current_tool,
            self.tool_kind,
            status,
            self.native,
            self.workflow,
            self.aliases if point.is_start else None,
        )


class Given(NamedTuple):
    """The facts and values that a point is fired with; the context of every hook refers to them."""

    facts: Facts
    payload: Any
    output: Any


def _fact(name: str) -> Any:
    return _read_only(name, attrgetter(f"_given.facts.{name}"))


def _own_copy(name: str) -> Any:
    """One of the two values of a point: a copy of the hook's own, made when it first reads it."""

    def read(context: Any) -> Any:
        seen: dict[str, Any] = {} if context.untouched else context._seen
        if name not in seen:
            seen[name] = plain(getattr(context.given, name))
        context._seen, context.untouched = seen, False
        return seen[name]

    return _read_only(f"current_{name}", read)


def _read_only(name: str, read: Callable[["HookContext"], Any]) -> Any:
    def refuse(_context: "HookContext", _value: Any) -> None:
        raise AttributeError(
            f"HookContext.{name} is read only; return HookResult.continue_with(modified_payload=...)"
            " or (modified_output=...) to change what goes on"
        )

    return property(read, refuse)


class HookContext:
    """The context that a hook is given. Read only: payload and output are copies of the hook's own."""

    __slots__ = ("_given", "_seen", "untouched")

    untouched: bool
    """True until the hook looks at payload or output; before that it cannot have changed its copy."""
    _given: Given
    _seen: dict[str, Any]

    workflow_id: str = _fact("workflow_id")
    point: Point | str = _fact("point")
    run_id: str = _fact("run_id")
    scope_id: str = _fact("scope_id")
    call_id: str | None = _fact("call_id")
    attempt: int = _fact("attempt")
    step: int | None = _fact("step")
    agent: str | None = _fact("agent")
    parents: tuple[str, ...] = _fact("parents")
    session_id: str | None = _fact("session_id")
    user_id: str | None = _fact("user_id")
    current_tool: str | None = _fact("current_tool")
    tool_kind: str | None = _fact("tool_kind")
    status: Status | None = _fact("status")
    current_payload: Any = _own_copy("payload")
    current_output: Any = _own_copy("output")

    def __init__(self, *, current_payload: Any = None, current_output: Any = None, **facts: Any) -> None:
        try:
            known = Facts(**facts)
        except TypeError as exc:
            raise UsageError(f"HookContext: {str(exc).replace('Facts.__init__() ', '')}") from None
        known.point = _in_words(Point, known.point)
        known.status = _in_words(Status, known.status)
        self._given = Given(known, current_payload, current_output)
        self.untouched = True

    @classmethod
    def of(cls, facts: Facts, payload: Any, output: Any) -> "HookContext":
        """A context for one hook; its values are copied when the hook reads them."""
        context = cls.__new__(cls)
        context._given = Given(facts, payload, output)
        context.untouched = True
        return context

    @property
    def steps(self) -> list[Step]:
        return Copies(self._given.facts.steps, copied)

    @property
    def agent_config(self) -> AgentConfig | None:
        return copied(self._given.facts.agent_config)

    @property
    def native(self) -> Any:
        return plain(self._given.facts.native)

    @property
    def facts(self) -> Facts:
        return self._given.facts

    @property
    def given(self) -> Given:
        """The values themselves, for the engine; a hook uses `current_payload`, which is its own copy."""
        return self._given

    @property
    def changed_in_place(self) -> str | None:
        """The name of the field that a hook changed in place, which has no effect."""
        for name, seen in ({} if self.untouched else self._seen).items():
            if not _same(seen, plain(getattr(self._given, name))):
                return f"current_{name}"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain data, for a hook in another process."""
        facts, payload, output = self._given
        shown: dict[str, Any] = {
            name: plain(getattr(facts, name)) for name in Facts.__match_args__ if name not in _INNER
        }
        shown["current_payload"] = plain(payload)
        shown["current_output"] = plain(output)
        return shown

    @classmethod
    def from_dict(cls, value: "HookContext | Mapping[str, Any]") -> "HookContext":
        if isinstance(value, HookContext):
            return value
        if not isinstance(value, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"Cannot create HookContext from {type(value).__name__}; give a dict or a HookContext"
            )
        known = dict(value)
        config = known.get("agent_config")
        if isinstance(config, dict):
            known["agent_config"] = AgentConfig(**cast("dict[str, Any]", config))
        known["steps"] = tuple(
            item if isinstance(item, Step) else Step.model_validate(item) for item in known.get("steps") or ()
        )
        known["parents"] = tuple(known.get("parents") or ())
        return cls(**known)

    def __repr__(self) -> str:
        facts = self._given.facts
        tool = f" {facts.current_tool}" if facts.current_tool else ""
        return f"<HookContext {facts.point}{tool} of {facts.workflow_id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HookContext) and self.to_dict() == other.to_dict()

    __hash__ = None  # type: ignore[assignment]


_INNER = frozenset({"workflow", "aliases", "end_refused"})
_type: Any = type


def _in_words(words: type[StrEnum], value: Any) -> Any:
    """The member of an enum whose value this is; any other value unchanged."""
    return words(value) if value in words.__members__.values() else value


def _same(one: Any, other: Any) -> bool:
    """True if both are equal; an object without an equality of its own is taken to be unchanged."""
    kind: Any = _type(one)
    if kind is not _type(other):
        return False
    if kind is dict:
        return one.keys() == other.keys() and all(_same(item, other[key]) for key, item in one.items())
    if kind is list:
        return len(one) == len(other) and all(map(_same, one, other))
    if kind.__eq__ is object.__eq__:
        return True
    try:
        return bool(one == other)
    except Exception:
        return True
