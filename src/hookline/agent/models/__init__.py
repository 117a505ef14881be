"""The protocol between the built-in agent and a model, models by the name of their provider, the schema of an answer.

A model takes a `Request` and answers with a stream of `TextDelta` and, last, one `Reply`. Messages are
plain dicts in one neutral shape; each provider's module converts them:

    {"role": "user", "content": "..."}
    {"role": "assistant", "content": "..." or None, "tool_calls": [{"id": ..., "name": ..., "arguments": {...}}]}
    {"role": "tool", "tool_call_id": ..., "name": ..., "content": "..."}
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

from hookline.engine.context import Step, ToolCall, ToolResult, Usage
from hookline.engine.plain import as_text, plain
from hookline.engine.point import Point
from hookline.engine.shared import Shared
from hookline.errors import AgentFailed, MissingKey, UsageError, meant

if TYPE_CHECKING:
    from pydantic import ValidationError

Message = Mapping[str, Any]

_SETTINGS = """
    frequency_penalty logit_bias logprobs max_completion_tokens max_tokens metadata n parallel_tool_calls
    presence_penalty prompt_cache_key reasoning reasoning_effort response_format seed service_tier stop stop_sequences
    store thinking tool_choice top_k top_logprobs user verbosity
"""
PROVIDER_SETTINGS = frozenset(_SETTINGS.split())
"""Settings of the providers' own requests that `Agent.run` takes by name, as Polos does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """The description of a tool for a model; `parameters` is a JSON Schema object."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Everything a provider needs for one call."""

    messages: tuple[Message, ...]
    system: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    output_schema: Mapping[str, Any] | None = None
    output_schema_name: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of streamed text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The whole answer: text, tool calls, token usage, stop reason."""

    text: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    stop_reason: str = "stop"

    def step(self, number: int, results: Iterable[ToolResult]) -> Step:
        """The step of this answer and the results of its tool calls."""
        return Step(
            step=number,
            content=self.text,
            tool_calls=self.tool_calls,
            tool_results=tuple(results),
            usage=self.usage,
        )

    @classmethod
    def model_validate(cls, value: Mapping[str, Any]) -> Reply:
        """Rebuilds a reply from the plain form that hooks read and change."""
        calls = [_call(index, call) for index, call in enumerate(value.get("tool_calls") or ())]
        return cls(
            text=value.get("text"),
            tool_calls=tuple(calls),
            usage=Usage(**cast("dict[str, int]", value.get("usage") or {})),
            stop_reason=value.get("stop_reason") or "stop",
        )


@runtime_checkable
class Model(Protocol):
    """One model of one provider. A cut or refused answer raises ModelFailed; a Reply is always whole."""

    provider: str
    name: str

    def stream(self, request: Request) -> AsyncIterator[TextDelta | Reply]: ...

    async def close(self) -> None: ...


def _call(index: int, given: Mapping[str, Any]) -> ToolCall:
    arguments = given.get("arguments")
    return ToolCall(
        id=given.get("id") or f"call_{index + 1}",
        name=given["name"],
        arguments=arguments,
        raw_arguments=given.get("raw_arguments") or json.dumps(arguments, default=str),
    )


def text_message(role: str, text: str) -> Message:
    return {"role": role, "content": text}


def assistant_message(reply: Reply) -> Message:
    message: dict[str, Any] = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = [_call_entry(call) for call in reply.tool_calls]
    return message


def _call_entry(call: ToolCall) -> Message:
    if call.arguments is None:
        return {"id": call.id, "name": call.name, "arguments": None, "raw_arguments": call.raw_arguments}
    return {"id": call.id, "name": call.name, "arguments": call.arguments}


def mapping(payload: Any, point: Point) -> Mapping[str, Any]:
    """The payload after the start hooks; raises if it is no mapping any more."""
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        raise AgentFailed(f"the hooks at {point} made the payload a {kind}; it must stay a mapping")
    return cast("Mapping[str, Any]", payload)


def input_in(payload: Any, point: Point) -> Any:
    """The input in a payload after the start hooks."""
    given = mapping(payload, point).get("input")
    if given is None:
        raise AgentFailed(f"the hooks at {point} left no 'input' in the payload")
    return given


def messages_in(payload: Any, point: Point) -> list[Message]:
    """The messages in a payload after the start hooks."""
    messages = mapping(payload, point).get("messages")
    kinds = {*map(type, cast("list[Any]", messages))} if isinstance(messages, list) else {type(None)}
    if not all(issubclass(kind, Mapping) for kind in kinds):
        raise AgentFailed(f"the hooks at {point} left no list of messages under 'messages' in the payload")
    return Shared(cast("list[Message]", messages))


def reply_from(output: Any) -> Reply:
    """The model's answer after the hooks: unchanged, changed as a mapping, or replaced by a text."""
    if isinstance(output, Reply):
        return output
    if isinstance(output, Mapping):
        return Reply.model_validate(plain(output))
    return Reply(text=as_text(plain(output)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatible:
    """A provider with OpenAI's API, and where it differs: the parameter that limits the answer, and whether the usage
    may be asked for."""

    base_url: str
    key: str
    needs_key: bool = True
    max_tokens_key: str = "max_tokens"
    asks_usage: bool = True


COMPATIBLE = {
    "deepseek": Compatible(base_url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "fireworks": Compatible(base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_API_KEY"),
    "gemini": Compatible(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai", key="GEMINI_API_KEY"
    ),
    "groq": Compatible(base_url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    "litellm": Compatible(base_url="http://localhost:4000/v1", key="LITELLM_API_KEY", needs_key=False),
    # Refuses stream_options, and sends the usage anyway.
    "mistral": Compatible(base_url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY", asks_usage=False),
    "ollama": Compatible(base_url="http://localhost:11434/v1", key="OLLAMA_API_KEY", needs_key=False),
    "openai": Compatible(
        base_url="https://api.openai.com/v1", key="OPENAI_API_KEY", max_tokens_key="max_completion_tokens"
    ),
    "openrouter": Compatible(base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "together": Compatible(base_url="https://api.together.xyz/v1", key="TOGETHER_API_KEY"),
    "vllm": Compatible(base_url="http://localhost:8000/v1", key="VLLM_API_KEY", needs_key=False),
    "xai": Compatible(base_url="https://api.x.ai/v1", key="XAI_API_KEY"),
}

ANTHROPIC_URL = "https://api.anthropic.com"

PROVIDERS = tuple(sorted([*COMPATIBLE, "anthropic", "scripted"]))


def model_named(
    provider: str, model: str, *, base_url: str | None = None, environ: Mapping[str, str]
) -> Model:
    """The model; its key comes from `environ`, its URL from the argument, `<NAME>_BASE_URL` or the table above.

    For the provider `scripted` the model is the path of a script.
    """
    name = provider.lower()
    if name not in PROVIDERS:
        raise UsageError(f"unknown provider {provider!r}{meant(name, PROVIDERS)}")
    if not model:
        raise UsageError(f"provider {name!r}: the name of the model is empty")
    if name == "scripted":
        return _module("script").Scripted.of_file(model)
    url = base_url or environ.get(f"{name.upper()}_BASE_URL")
    if name == "anthropic":
        key, token = environ.get("ANTHROPIC_API_KEY"), environ.get("ANTHROPIC_AUTH_TOKEN")
        if not key and not token:
            raise MissingKey(
                "provider 'anthropic' has no key: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)"
            )
        login = {"api_key": key} if key else {"auth_token": token}
        return _module("anthropic").Anthropic(model, provider=name, base_url=url or ANTHROPIC_URL, **login)
    known = COMPATIBLE[name]
    key = environ.get(known.key)
    if not key and known.needs_key:
        raise MissingKey(f"provider {name!r} has no key: set {known.key}")
    # The client does not start without a key, and a local server does not look at it.
    return _module("openai").OpenAI(
        model, provider=name, base_url=url or known.base_url, api_key=key or "none"
    )


def _module(name: str) -> Any:
    """A provider's module, loaded when it is first used: it builds on this one."""
    return import_module(f"hookline.agent.models.{name}")


class DoesNotFit(ValueError):
    """An answer that does not match the schema; the message is for the model."""


class OutputSchema:
    """A pydantic model class, or any type that pydantic can check."""

    def __init__(self, kind: Any) -> None:
        from pydantic import TypeAdapter

        self.name: str = getattr(kind, "__name__", str(kind))
        self._adapter: TypeAdapter[Any] = TypeAdapter(kind)

    @property
    def json_schema(self) -> dict[str, Any]:
        return self._adapter.json_schema()

    def read(self, text: str | None) -> Any:
        """The answer as a value; code fences around it are ignored."""
        return self._checked(lambda: self._adapter.validate_json(_bare(text or "")))

    def check(self, value: Any) -> Any:
        """Validates a value with which a hook replaced the answer."""
        return self._checked(lambda: self._adapter.validate_python(value))

    def _checked(self, read: Any) -> Any:
        from pydantic import ValidationError

        try:
            return read()
        except ValidationError as exc:
            raise DoesNotFit(f"the answer does not fit {self.name}: {faults(exc, 'answer')}") from None


def _bare(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        body = stripped[3:-3]
        first, _, rest = body.partition("\n")
        return rest if first.strip().isalpha() or not first.strip() else body
    return stripped


def faults(exc: ValidationError, whole: str = "") -> str:
    """The mistakes that pydantic found, each with its place; `whole` names the value itself."""
    found = [(".".join(map(str, error["loc"])), error["msg"]) for error in exc.errors(include_url=False)]
    return "; ".join(f"{place or whole}: {text}" for place, text in found)
