"""An Agent of kagent's as values: its manifests, its hooks (`claude/payload.py` writes their stdin), and its plan here.

Objects and values that an agent refers to are found in the file or in the environment, or reported as missing. Nothing
is started or fetched here.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar, cast

from hookline.claude.events import CALLERS
from hookline.engine.point import Point
from hookline.errors import FileError
from hookline.images.reference import directory_name
from hookline.table import Location

FORMAT = "kagent"
TIMEOUT = 30.0
"""Seconds a hook may take; a manifest has no key for another limit."""
FOLDER = "/hooks"
"""The folder of hook images in a pod."""
FOLDER_VARIABLE = "KAGENT_HOOKS_FOLDER"
"""The variable that names another folder."""
TYPE = "claude-command"
DEFAULT_MODEL_CONFIG = "default-model-config"
EVENTS = cast("Mapping[str, Point]", CALLERS["kagent"])
CORE = ("ConfigMap", "Secret")
PROVIDERS = {"OpenAI": "openai", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}
"""The supported providers, by kagent's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookEntry:
    """One entry of `spec.hooks`. `broken` is the error of a matcher that is not a regular expression."""

    name: str
    ref: str
    event: str
    command: str
    type: str = TYPE
    matcher: str = ""
    broken: FileError | None = None
    source: str = ""

    @property
    def argv(self) -> list[str]:
        return shlex.split(self.command)

    def folder(self, images: str = FOLDER) -> str:
        """Where its image is, below the folder of images."""
        return f"{images.rstrip('/')}/{directory_name(self.ref)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueFrom:
    """A reference to a value in a ConfigMap or Secret. `asked` is the place of the reference in the file."""

    kind: str
    name: str
    key: str
    asked: Location

    @property
    def variable(self) -> str:
        """The variable of a pod that holds the value; its name includes the object, as keys are not unique."""
        return f"{self.kind}.{self.name}.{self.key}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReference:
    """One entry of `declarative.tools`. `asked` is its place in the file."""

    type: str
    kind: str
    name: str
    namespace: str
    asked: Location
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    headers: Mapping[str, str | ValueFrom] = field(default_factory=dict[str, "str | ValueFrom"])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentManifest:
    """An `Agent`. `asked` is the place of its model's name; a `fragment` was written without apiVersion and kind."""

    name: str
    namespace: str
    source: str
    type: str = "Declarative"
    description: str = ""
    system_message: str | ValueFrom | None = None
    model_config: str = DEFAULT_MODEL_CONFIG
    tools: tuple[ToolReference, ...] = ()
    hooks: tuple[HookEntry, ...] = ()
    env: Mapping[str, str | ValueFrom] = field(default_factory=dict[str, "str | ValueFrom"])
    asked: Location
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
    place: Location


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerManifest:
    """An `MCPServer`, which is a command, or a `RemoteMCPServer`, which is a URL. `absent`: why it cannot be used here.

    In an agent's plan `headers` are those to send, and `tools` those that the agent has of it; none means all."""

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
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()


class AgentManifests(NamedTuple):
    """All objects of a file."""

    agents: tuple[AgentManifest, ...] = ()
    models: tuple[ModelManifest, ...] = ()
    servers: tuple[ServerManifest, ...] = ()
    values: Mapping[tuple[str, str], Mapping[str, str]] = {}
    problems: tuple[FileError, ...] = ()
    notes: tuple[FileError, ...] = ()

    @property
    def broken(self) -> tuple[FileError, ...]:
        """The errors of matchers that are no patterns: only the hook fails, not the agent."""
        return tuple(hook.broken for agent in self.agents for hook in agent.hooks if hook.broken)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentPlan:
    """One agent with everything it refers to. `no_model` is why it has no model, `missing` what else was not found.

    `secrets` are those of its tools that are agents, too."""

    agent: AgentManifest
    system_prompt: str | None = None
    model: ModelManifest | None = None
    key: str | None = field(default=None, repr=False)
    no_model: FileError | None = None
    servers: tuple[ServerManifest, ...] = ()
    agents: tuple[AgentPlan, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    missing: tuple[FileError, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def all_missing(self) -> tuple[FileError, ...]:
        return (*self.missing, *(each for inner in self.agents for each in inner.all_missing))


def hook_config(hook: HookEntry) -> dict[str, str]:
    """One entry as its runtime is configured; its `ref` has become the folder `dir`."""
    matcher = {"matcher": hook.matcher} if hook.matcher else {}
    return {"event": hook.event, "type": hook.type, **matcher, "command": hook.command, "dir": hook.folder()}


def planned(manifests: AgentManifests, agent: AgentManifest, environ: Mapping[str, str]) -> AgentPlan:
    """The plan of the agent on this machine, with the agents that are its tools."""
    return _Planning(manifests, environ).plan(agent, ())


def runtime_config(plan: AgentPlan) -> dict[str, Any]:
    """The configuration that the agent's runtime would be given."""
    model = plan.model
    hooks = [hook_config(each) for each in plan.agent.hooks]
    return {
        "model": {"type": PROVIDERS.get(model.provider, model.provider), "model": model.model}
        if model
        else {},
        "description": plan.agent.description,
        "instruction": plan.system_prompt or "",
        **({"hooks": hooks} if hooks else {}),
    }


_Named = TypeVar("_Named", AgentManifest, ModelManifest)


@dataclass(eq=False)
class _Planning:
    """Finds the objects and values that an agent refers to, in the file or in the environment."""

    file: AgentManifests
    environ: Mapping[str, str]
    secrets: list[str] = field(default_factory=list[str])

    def plan(self, agent: AgentManifest, above: tuple[str, ...]) -> AgentPlan:
        missing: list[FileError] = []
        model, no_model = self._model(agent)
        return AgentPlan(
            agent=agent,
            system_prompt=self._value(agent.system_message, missing),
            model=model,
            key=self._found(model.key) if model and model.key else None,
            no_model=no_model,
            servers=_joined(self._servers(agent, missing)),
            agents=tuple(self._agents(agent, (*above, agent.name), missing)),
            env=self._all(agent.env, missing),
            missing=tuple(missing),
            secrets=tuple(dict.fromkeys(self.secrets)),
        )

    def _model(self, agent: AgentManifest) -> tuple[ModelManifest | None, FileError | None]:
        model = _named(self.file.models, agent.model_config, agent.namespace)
        if model is None:
            said = f"the ModelConfig {agent.model_config!r} is not in this file"
            return None, agent.asked.problem(f"{said}; add it, or give --model provider/name", "not-in-file")
        if model.provider not in PROVIDERS:
            said = f"{model.provider} is not supported here; known: {', '.join(PROVIDERS)}"
            return None, model.place.problem(f"{said}; give --model provider/name")
        if model.key is not None and self._found(model.key) is None:
            said = _not_found(model.key)
            return model, model.key.asked.problem(f"{said}, or --model provider/name")
        return model, None

    def _servers(self, agent: AgentManifest, missing: list[FileError]) -> Iterator[ServerManifest]:
        for tool in agent.tools:
            if tool.type != "McpServer":
                continue
            server = self._server(agent, tool)
            if isinstance(server, str):
                missing.append(tool.asked.problem(server, "not-in-file"))
                continue
            headers = self._all({**server.headers, **tool.headers}, missing)
            yield replace(server, headers=headers, tools=tool.tools, approval=tool.approval)

    def _server(self, agent: AgentManifest, tool: ToolReference) -> ServerManifest | str:
        """The server that a tool is of, or why there is none here."""
        namespace = tool.namespace or agent.namespace
        for each in self.file.servers:
            if (each.kind, each.name, each.namespace) == (tool.kind, tool.name, namespace):
                return each if not each.absent else f"{each.name}: {each.absent}; its tools are left out"
        others = [
            each.kind for each in self.file.servers if each.name == tool.name and each.kind != tool.kind
        ]
        hint = f" (there is a {others[0]} of that name; write kind: {others[0]})" if others else ""
        return (
            f"the {tool.kind} {tool.name!r} is not in this file{hint}, so its tools are left out;"
            " add it, or a RemoteMCPServer with an address that is reachable from here"
        )

    def _agents(
        self, agent: AgentManifest, above: tuple[str, ...], missing: list[FileError]
    ) -> Iterator[AgentPlan]:
        for tool in agent.tools:
            if tool.type != "Agent":
                continue
            other = _named(self.file.agents, tool.name, tool.namespace or agent.namespace)
            if other is None:
                said = f"the Agent {tool.name!r} is not in this file, so it is left out; add it"
                missing.append(tool.asked.problem(said, "not-in-file"))
            elif tool.name in above:
                chain = " -> ".join([*above, tool.name])
                missing.append(tool.asked.problem(f"it would call itself ({chain}), so it is left out"))
            elif other.type == "BYO":
                missing.append(tool.asked.problem(not_declarative(other)))
            else:
                yield self.plan(other, above)

    def _all(self, values: Mapping[str, str | ValueFrom], missing: list[FileError]) -> dict[str, str]:
        found = {name: self._value(value, missing) for name, value in values.items()}
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, wanted: str | ValueFrom | None, missing: list[FileError]) -> str | None:
        if not isinstance(wanted, ValueFrom):
            return wanted
        value = self._found(wanted)
        if value is None:
            missing.append(wanted.asked.problem(_not_found(wanted)))
        return value

    def _found(self, wanted: ValueFrom) -> str | None:
        """In the environment under the key's name, so that no secret has to be in a file; else in the file."""
        inside = self.file.values.get((wanted.kind, wanted.name), {})
        given = self.environ.get(wanted.variable) or self.environ.get(wanted.key)
        value = given or inside.get(wanted.key)
        if value and wanted.kind == "Secret":
            self.secrets.append(value)
        return value


def _joined(servers: Iterable[ServerManifest]) -> tuple[ServerManifest, ...]:
    """Each server once, with the tools of all entries that name it."""
    found: dict[str, ServerManifest] = {}
    for each in servers:
        first = found.get(each.name)
        if first is None:
            found[each.name] = each
            continue
        tools = tuple(dict.fromkeys((*first.tools, *each.tools))) if first.tools and each.tools else ()
        approval = tuple(dict.fromkeys((*first.approval, *each.approval)))
        headers = {**first.headers, **each.headers}
        found[each.name] = replace(first, tools=tools, approval=approval, headers=headers)
    return tuple(found.values())


def not_declarative(agent: AgentManifest) -> str:
    """Why an agent of the type BYO does not run here."""
    return f"the Agent {agent.name!r} is of the type BYO: it is a program in an image, which a cluster starts"


def _named(given: Iterable[_Named], name: str, namespace: str) -> _Named | None:
    return next((each for each in given if (each.name, each.namespace) == (name, namespace)), None)


def _not_found(wanted: ValueFrom) -> str:
    return (
        f"{wanted.key} of the {wanted.kind} {wanted.name!r} is neither in the environment nor in this file;"
        f" give --env {wanted.key}=..."
    )
