"""What one agent of a file comes to on this machine: found in the file, in the environment, or told as missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hookline.errors import FileError
from hookline.kagent.hooks import FOLDER, RuntimeConfig, configured
from hookline.kagent.types import (
    PROVIDERS,
    AgentManifest,
    Manifests,
    ModelManifest,
    ServerManifest,
    ToolReference,
    ValueFrom,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """An MCP server that an agent has tools of; no `tools` means all of them."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    tools: tuple[str, ...] = ()
    approval: tuple[str, ...] = ()
    timeout: float | None = None
    transport: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one agent comes to here. `no_model` says why it has none, `missing` what else is not to be had."""

    agent: AgentManifest
    system_prompt: str | None = None
    model: ModelManifest | None = None
    key: str | None = field(default=None, repr=False)
    no_model: FileError | None = None
    servers: tuple[Server, ...] = ()
    agents: tuple[Plan, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    missing: tuple[FileError, ...] = ()
    secrets: tuple[str, ...] = field(default=(), repr=False)

    @property
    def all_missing(self) -> tuple[FileError, ...]:
        return (*self.missing, *(each for inner in self.agents for each in inner.all_missing))


def planned(manifests: Manifests, agent: AgentManifest, environ: Mapping[str, str]) -> Plan:
    """What the agent comes to on this machine, with the agents that are its tools."""
    return _Planning(manifests, environ).plan(agent, ())


def runtime(plan: Plan, folder: str = FOLDER) -> RuntimeConfig:
    """The configuration that the agent's runtime would be given."""
    model = plan.model
    named = {"type": PROVIDERS.get(model.provider, model.provider), "model": model.model} if model else {}
    return RuntimeConfig(
        description=plan.agent.description,
        instruction=plan.system_prompt or "",
        model=named,
        hooks=configured(plan.agent, folder),
    )


class _Planning:
    """Finds what an agent names: in the file, or in the environment."""

    def __init__(self, manifests: Manifests, environ: Mapping[str, str]) -> None:
        self._file = manifests
        self._environ = environ
        self._secrets: list[str] = []

    def plan(self, agent: AgentManifest, above: tuple[str, ...]) -> Plan:
        missing: list[FileError] = []
        model, no_model = self._model(agent)
        message = agent.system_message
        return Plan(
            agent=agent,
            system_prompt=self._value(message, missing) if isinstance(message, ValueFrom) else message,
            model=model,
            key=self._found(model.key) if model and model.key else None,
            no_model=no_model,
            servers=_joined(self._servers(agent, missing)),
            agents=tuple(self._agents(agent, (*above, agent.name), missing)),
            env=self._all(agent.env, missing),
            missing=tuple(missing),
            secrets=tuple(dict.fromkeys(self._secrets)),
        )

    def _model(self, agent: AgentManifest) -> tuple[ModelManifest | None, FileError | None]:
        named = [
            each
            for each in self._file.models
            if each.name == agent.model_config and each.namespace == agent.namespace
        ]
        if not named:
            said = f"the ModelConfig {agent.model_config!r} is not in this file"
            return None, _elsewhere(agent.asked, f"{said}; add it, or give --model provider/name")
        model = named[0]
        if model.provider not in PROVIDERS:
            said = f"{model.provider} is not spoken to from here; known: {', '.join(PROVIDERS)}"
            return None, _elsewhere(model.place, f"{said}; give --model provider/name")
        if model.key is not None and self._found(model.key) is None:
            said = _not_found(model.key)
            return model, _elsewhere(model.key.asked, f"{said}, or --model provider/name")
        return model, None

    def _servers(self, agent: AgentManifest, missing: list[FileError]) -> Iterator[Server]:
        for tool in agent.tools:
            if tool.type != "McpServer":
                continue
            server = self._server(agent, tool)
            if isinstance(server, str):
                missing.append(_elsewhere(tool.asked, server))
                continue
            headers = {**server.headers, **tool.headers}
            yield Server(
                name=server.name,
                command=server.command,
                args=server.args,
                env=server.env,
                url=server.url,
                headers=self._all(headers, missing),
                tools=tool.tools,
                approval=tool.approval,
                timeout=server.timeout,
                transport=server.transport,
            )

    def _server(self, agent: AgentManifest, tool: ToolReference) -> ServerManifest | str:
        """The server that a tool is of, or why there is none here."""
        namespace = tool.namespace or agent.namespace
        for each in self._file.servers:
            if (each.kind, each.name, each.namespace) == (tool.kind, tool.name, namespace):
                return each if not each.absent else f"{each.name}: {each.absent}; its tools are left out"
        others = [
            each.kind for each in self._file.servers if each.name == tool.name and each.kind != tool.kind
        ]
        hint = f" (there is a {others[0]} of that name; write kind: {others[0]})" if others else ""
        return (
            f"the {tool.kind} {tool.name!r} is not in this file{hint}, so its tools are left out;"
            " add it, or a RemoteMCPServer with an address that is reached from here"
        )

    def _agents(
        self, agent: AgentManifest, above: tuple[str, ...], missing: list[FileError]
    ) -> Iterator[Plan]:
        for tool in agent.tools:
            if tool.type != "Agent":
                continue
            namespace = tool.namespace or agent.namespace
            named = [
                each for each in self._file.agents if (each.name, each.namespace) == (tool.name, namespace)
            ]
            if not named:
                said = f"the Agent {tool.name!r} is not in this file, so it is left out; add it"
                missing.append(_elsewhere(tool.asked, said))
            elif tool.name in above:
                chain = " -> ".join([*above, tool.name])
                missing.append(_elsewhere(tool.asked, f"it would call itself ({chain}), so it is left out"))
            elif named[0].type == "BYO":
                missing.append(_elsewhere(tool.asked, _byo(named[0])))
            else:
                yield self.plan(named[0], above)

    def _all(self, values: Mapping[str, str | ValueFrom], missing: list[FileError]) -> dict[str, str]:
        found = {
            name: self._value(value, missing) if isinstance(value, ValueFrom) else value
            for name, value in values.items()
        }
        return {name: value for name, value in found.items() if value is not None}

    def _value(self, wanted: ValueFrom, missing: list[FileError]) -> str | None:
        value = self._found(wanted)
        if value is None:
            missing.append(_elsewhere(wanted.asked, _not_found(wanted)))
        return value

    def _found(self, wanted: ValueFrom) -> str | None:
        """In the environment under the key's name, so that no secret has to be in a file; else in the file."""
        inside = self._file.values.get((wanted.kind, wanted.name), {})
        given = self._environ.get(wanted.variable) or self._environ.get(wanted.key)
        value = given or inside.get(wanted.key)
        if value and wanted.kind == "Secret":
            self._secrets.append(value)
        return value


def _joined(servers: Iterable[Server]) -> tuple[Server, ...]:
    """Each server once, with the tools of all entries that name it."""
    found: dict[str, Server] = {}
    for each in servers:
        first = found.get(each.name)
        if first is None:
            found[each.name] = each
            continue
        tools = tuple(dict.fromkeys((*first.tools, *each.tools))) if first.tools and each.tools else ()
        approval = tuple(dict.fromkeys((*first.approval, *each.approval)))
        found[each.name] = replace(
            first, tools=tools, approval=approval, headers={**first.headers, **each.headers}
        )
    return tuple(found.values())


def _byo(agent: AgentManifest) -> str:
    return f"the Agent {agent.name!r} is of the type BYO: it is a program in an image, which a cluster starts"


def _not_found(wanted: ValueFrom) -> str:
    return (
        f"{wanted.key} of the {wanted.kind} {wanted.name!r} is neither in the environment nor in this file;"
        f" give --env {wanted.key}=..."
    )


def _elsewhere(place: FileError, message: str) -> FileError:
    return FileError(message, file=place.file, line=place.line, key=place.key)
