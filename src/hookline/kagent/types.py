"""What a file of manifests holds, as values."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from hookline.claude.events import CALLERS
from hookline.engine.point import Point
from hookline.errors import FileError

TYPE = "claude-command"
DEFAULT_MODEL_CONFIG = "default-model-config"
EVENTS = cast("Mapping[str, Point]", CALLERS["kagent"])
CORE = ("ConfigMap", "Secret")
PROVIDERS = {"OpenAI": "openai", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}
"""What kagent calls the providers that are spoken to here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookSpec:
    """One entry of `spec.hooks`. `broken` says why its matcher is no regular expression."""

    ref: str
    event: str
    command: str
    type: str = TYPE
    matcher: str = ""
    broken: str | None = None
    source: str = ""

    @property
    def argv(self) -> tuple[str, ...]:
        return tuple(shlex.split(self.command))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFrom:
    """A value that stands in a ConfigMap or Secret. `asked` is where the file asks for it."""

    kind: str
    name: str
    key: str
    asked: FileError

    @property
    def variable(self) -> str:
        """The variable that a pod has it in; unlike the key alone it says of which object."""
        return f"{self.kind}.{self.name}.{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReference:
    """One entry of `declarative.tools`. `asked` is where the file asks for it."""

    type: str
    kind: str
    name: str
    namespace: str
    asked: FileError
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    headers: Mapping[str, str | ValueFrom] = field(default_factory=dict[str, "str | ValueFrom"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentManifest:
    """An `Agent`. `asked` is where the file asks for its model; a `fragment` was written without its head."""

    name: str
    namespace: str
    source: str
    type: str = "Declarative"
    description: str = ""
    system_message: str | ValueFrom | None = None
    model_config: str = DEFAULT_MODEL_CONFIG
    tools: tuple[ToolReference, ...] = ()
    hooks: tuple[HookSpec, ...] = ()
    env: Mapping[str, str | ValueFrom] = field(default_factory=dict[str, "str | ValueFrom"])
    asked: FileError
    fragment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelManifest:
    """A `ModelConfig`."""

    name: str
    namespace: str
    provider: str
    model: str
    base_url: str = ""
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    key: ValueFrom | None = None
    place: FileError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerManifest:
    """An `MCPServer`, which is a command, or a `RemoteMCPServer`, which is an address. `absent`: why it is neither here."""

    kind: str
    name: str
    namespace: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str | ValueFrom] = field(default_factory=dict[str, "str | ValueFrom"])
    timeout: float | None = None
    transport: str = ""
    absent: str = ""


class Manifests(NamedTuple):
    """What a file holds. `broken` are hooks whose matcher is no pattern: they cost themselves, not the agent."""

    agents: tuple[AgentManifest, ...] = ()
    models: tuple[ModelManifest, ...] = ()
    servers: tuple[ServerManifest, ...] = ()
    values: Mapping[tuple[str, str], Mapping[str, str]] = {}
    problems: tuple[FileError, ...] = ()
    broken: tuple[FileError, ...] = ()
    notes: tuple[str, ...] = ()
