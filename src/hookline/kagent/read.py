"""Reads manifests: every known object of a file, with every mistake; and an agent of a cluster.

The keys of an `Agent` are in `keys`; those of the objects that it refers to, a `ModelConfig`, a `RemoteMCPServer` and an
`MCPServer`, are here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from hookline.errors import FileError, meant
from hookline.kagent.agent import (
    CORE,
    DEFAULT_MODEL_CONFIG,
    PROVIDERS,
    AgentManifest,
    AgentManifests,
    ModelManifest,
    ServerManifest,
    ValueFrom,
    not_declarative,
)
from hookline.kagent.keys import AGENT, OF_PODS, headers
from hookline.kube.objects import (
    KAGENT,
    MCP_SERVER,
    MODEL_CONFIG,
    REMOTE_MCP_SERVER,
    Fields,
    Kind,
    core_values,
    head,
    holds_objects,
    is_foreign,
    items,
    mapping,
    named_objects,
    spec_of,
    within,
)
from hookline.source import load_all, text_of
from hookline.table import (
    UNSET,
    Findings,
    InMapping,
    Key,
    Node,
    duration,
    filled,
    not_here,
    number,
    open_table,
    pairs,
    text,
    texts,
    unread,
    unused,
    word,
)

Find = Callable[[Kind, str, str], Fields | None]
"""The object of that kind, namespace and name, if the cluster has it."""
_GROUP = "kagent.dev/"
KINDS = {each.kind: each for each in (KAGENT, MODEL_CONFIG, REMOTE_MCP_SERVER, MCP_SERVER)}
"""The kinds of kagent's that are read."""
_HEAD = head(hooks=": it belongs under spec", declarative=": it belongs under spec")


def is_kagent(text: str, file: str | PathLike[str]) -> bool:
    """True if a YAML text holds an object of kagent's, or the part of one that has its hooks."""
    return holds_objects(text, file, _GROUP, _is_fragment)


def read(file: str | PathLike[str]) -> AgentManifests:
    try:
        return parse(text_of(file), file)
    except FileError as exc:
        return AgentManifests(problems=(exc,))


def parse(text: str, file: str | PathLike[str]) -> AgentManifests:
    """Every object of the text that is read here, and every mistake in them."""
    try:
        documents = load_all(text, file)
    except FileError as exc:
        return AgentManifests(problems=(exc,))
    findings = Findings()
    made: list[AgentManifest | ModelManifest | ServerManifest | None] = []
    values: dict[tuple[str, str], Mapping[str, str]] = {}
    found = named_objects(documents, findings, kinds=KINDS, is_apart=_is_fragment, is_read=_is_read)
    for node, kind, name, namespace in found:
        if not kind:
            made.append(_fragment(node, Path(file).stem))
        elif kind in CORE:
            values[kind, name] = core_values(node)
        else:
            made.append(_READERS[kind](node, name, namespace))
    return AgentManifests(
        tuple(each for each in made if isinstance(each, AgentManifest)),
        tuple(each for each in made if isinstance(each, ModelManifest)),
        tuple(each for each in made if isinstance(each, ServerManifest)),
        values,
        tuple(findings.problems),
        tuple(findings.notes),
    )


def chosen(found: AgentManifests, file: Path, name: str) -> AgentManifest:
    """The agent of that name, or the only one that is no tool of another."""
    agents = {each.name: each for each in found.agents}
    known = ", ".join(agents) or "none"
    if name and name not in agents:
        raise FileError(f"there is no agent {name!r}; agents here: {known}", file=file)
    if not agents:
        raise found.problems[0] if found.problems else FileError("there is no Agent in it", file=file)
    called = {ref.name for each in found.agents for ref in each.tools if ref.type == "Agent"}
    first = [each for each in found.agents if each.name not in called] or list(found.agents)
    if not name and len(first) > 1:
        raise FileError(f"several agents are in it: {known}; name one, as in {file}:NAME", file=file)
    agent = agents[name] if name else first[0]
    if agent.type == "BYO":
        raise FileError(f"{not_declarative(agent)}; only agents of the type Declarative run here", file=file)
    return agent


def _is_fragment(value: Any) -> bool:
    """True for an Agent as documents show it: `spec` with `hooks`, and neither apiVersion nor kind."""
    given = mapping(value)
    hooks = mapping(given.get("spec")).get("hooks")
    return isinstance(hooks, list) and not {"apiVersion", "kind"} & set(given)


class ClusterManifests:
    """An agent, and the objects of its namespace that it refers to."""

    def __init__(self, agent: Fields, find: Find) -> None:
        self.objects: list[Fields] = []
        self.problems: list[str] = []
        self.notes: list[str] = []
        self._find = find
        self._namespace = str(agent["metadata"]["namespace"])
        self._seen: set[tuple[str, str]] = set()
        self._take(KAGENT, agent)

    def _take(self, kind: Kind, found: Fields) -> None:
        self._seen.add((kind.kind, found["metadata"]["name"]))
        self.objects.append(found)
        if kind is KAGENT:
            self._referred(found)

    def _referred(self, agent: Fields) -> None:
        inner = within(agent, "spec", "declarative")
        model = str(inner.get("modelConfig") or DEFAULT_MODEL_CONFIG)
        if within(agent, "spec").get("type") != "BYO" and not self._one(MODEL_CONFIG, model):
            self.problems.append(
                f"spec.declarative.modelConfig: {self._absent(MODEL_CONFIG.kind, model)}; make it"
            )
        for index, tool in enumerate(items(inner.get("tools"))):
            key = f"spec.declarative.tools[{index}]"
            server, other = mapping(tool.get("mcpServer")), mapping(tool.get("agent"))
            if server:
                self._tool(key, str(server.get("kind") or MCP_SERVER.kind), server)
            elif other:
                self._tool(key, KAGENT.kind, other)

    def _tool(self, key: str, word: str, ref: Fields) -> None:
        name = str(ref.get("name") or "")
        kind = KINDS.get(word)
        if kind is None or kind is MODEL_CONFIG:
            self.notes.append(
                f"{key}: a {word} means nothing here, so its tools are left out; write a RemoteMCPServer"
            )
        elif ref.get("namespace") not in (None, "", self._namespace):
            self.notes.append(
                f"{key}: the {word} {name!r} is in another namespace, so its tools are left out;"
                f" those of {self._namespace!r} are taken"
            )
        elif name and not self._one(kind, name):
            self.notes.append(f"{key}: {self._absent(word, name)}, so its tools are left out; make it")

    def _one(self, kind: Kind, name: str) -> bool:
        if (kind.kind, name) in self._seen:
            return True
        found = self._find(kind, self._namespace, name)
        if found is not None:
            self._take(kind, found)
        return found is not None

    def _absent(self, kind: str, name: str) -> str:
        return f"there is no {kind} {name!r} in the namespace {self._namespace!r}"


def _fragment(node: Node, name: str) -> AgentManifest | None:
    node.note(f"has no apiVersion and kind; it is read as the Agent {name!r}")
    _HEAD.read(node)
    agent = _agent(node, name, "default")
    return replace(agent, fragment=True) if agent else None


def _agent(node: Node, name: str, namespace: str) -> AgentManifest | None:
    """An object of the kind `Agent` as a value."""
    spec = spec_of(node, "the agent's type, declarative and hooks")
    if spec is None:
        return None
    values = AGENT.read(spec)
    inner = values.pop("declarative", {"asked": spec.location()})
    return AgentManifest(name=name, namespace=namespace, source=spec.source, **values, **inner)


def _is_read(node: Node, kind: str) -> bool:
    """True if an object is of a known kind and version."""
    api = node.get("apiVersion", text, needed=f"it is {_GROUP}v1alpha2 for an Agent")
    if kind in CORE and api == "v1":
        return True
    if is_foreign(node, kind, api, _GROUP):
        return False
    if kind not in KINDS:
        hint = meant(kind, KINDS)
        if "did you mean" in hint:
            node.wrong(f"unknown kind {kind!r}{hint}", "kind")
        else:
            node.note(f"a {kind} is not supported here; supported: {', '.join(KINDS)}", "kind")
        return False
    if api != KINDS[kind].api_version:
        node.wrong(f"is {api!r}; of {kind} {KINDS[kind].api_version} is read", "apiVersion")
        return False
    _HEAD.read(node)
    return True


def _model(node: Node, name: str, namespace: str) -> ModelManifest | None:
    spec = spec_of(node, "provider and model")
    if spec is None:
        return None
    values = _MODEL.read(spec)
    provider = values.get("provider", "OpenAI")
    for other, key in _OPTIONS.items():
        if key in values and other != provider:
            spec.wrong(f"belongs to the provider {other}, and the provider is {provider}", key)
    return ModelManifest(
        name=name,
        namespace=namespace,
        provider=provider,
        model=values.get("model", ""),
        key=_key(spec, provider),
        place=spec.location("provider"),
        **values.get(_OPTIONS.get(provider, ""), {}),
    )


def _command_server(node: Node, name: str, namespace: str) -> ServerManifest | None:
    spec = node.mapping("spec") or node.with_value({})
    values = _COMMAND.read(spec)
    given = values.get("deployment")
    if given is None:
        if "deployment" not in spec:
            node.wrong("spec.deployment is missing; it has the server's cmd and args")
        return None
    command = given.pop("cmd", "")
    absent = ""
    if values.get("transport") == "http":
        absent = "it is a server for HTTP, which a cluster starts; start it, and write a RemoteMCPServer"
    elif not command:
        absent = "it is only an image, which a cluster starts; give its spec.deployment.cmd"
    elif spec.of_mapping["deployment"].get("image"):
        told = f"the image is not used here; {command!r} is started on this machine"
        spec.note(told, "deployment", "image")
    return ServerManifest(
        kind="MCPServer",
        name=name,
        namespace=namespace,
        command=command,
        absent=absent,
        **given,
    )


def _remote_server(node: Node, name: str, namespace: str) -> ServerManifest | None:
    spec = spec_of(node, "the server's url")
    if spec is None:
        return None
    values = _REMOTE.read(spec)
    protocol, url = values.pop("protocol", "STREAMABLE_HTTP"), values.get("url", "")
    if url and not url.startswith(("http://", "https://")):
        spec.wrong(f"is {url!r}; give http://... or https://...", "url")
    return ServerManifest(
        kind="RemoteMCPServer",
        name=name,
        namespace=namespace,
        transport=_PROTOCOLS[protocol],
        **values,
    )


def _key(spec: Node, provider: str) -> ValueFrom | None:
    secret, key = spec.get("apiKeySecret", text), spec.get("apiKeySecretKey", text)
    if key and not secret:
        spec.wrong("needs apiKeySecret, which names the Secret", "apiKeySecretKey")
    if secret and not key and provider in PROVIDERS:
        spec.wrong("needs apiKeySecretKey, which names the key in the Secret", "apiKeySecret")
    if not key:
        return None
    return ValueFrom(kind="Secret", name=secret, key=key, asked=spec.location("apiKeySecretKey"))


def _whole(node: Node) -> int:
    return int(number(node))


def _ollama(node: Node) -> str:
    """The URL of OpenAI's protocol on an Ollama host."""
    host = filled(node)
    if host is UNSET:
        return UNSET
    return f"{host if '://' in host else f'http://{host}'}".rstrip("/") + "/v1"


def _options(*without: str, **keys: Key) -> Key:
    """The options of a provider."""
    return Key(InMapping(open_table({**keys, **unused(*without)}), lambda _, values: values))


_ELSEWHERE = ("AzureOpenAI", "GeminiVertexAI", "AnthropicVertexAI", "Bedrock", "SAPAICore", "Foundry")
"""kagent's providers that are not supported."""
_PROTOCOLS = {"STREAMABLE_HTTP": "http", "SSE": "sse"}
_OPTIONS = {"OpenAI": "openAI", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}
_COMMON = {
    "baseUrl": Key(filled, field="base_url"),
    "temperature": Key(number),
    "topP": Key(number, field="top_p"),
    "maxTokens": Key(_whole, field="max_tokens"),
}
_OF_OPENAI = (
    *("organization", "frequencyPenalty", "presencePenalty", "seed", "n", "timeout", "reasoningEffort"),
    "tokenExchange",
)
_MODEL = open_table(
    {
        "provider": Key(word(*PROVIDERS, *_ELSEWHERE, called="provider")),
        "model": Key(text, needed="it names the provider's model"),
        "apiKeySecret": Key(text),
        "apiKeySecretKey": Key(text),
        "openAI": _options(*_OF_OPENAI, **_COMMON),
        "anthropic": _options("topK", **_COMMON),
        "ollama": _options("options", **{**_COMMON, "host": Key(_ollama, field="base_url")}),
        "gemini": _options(**_COMMON),
        **unused("apiKeyPassthrough", "defaultHeaders", "tls", "azureOpenAI", "geminiVertexAI"),
        **unused("anthropicVertexAI", "bedrock", "sapAICore", "foundry"),
    },
    {"apiKey": "; did you mean apiKeySecret? It names a Secret"},
)
"""The keys under `spec` of a ModelConfig."""
_REMOTE = open_table(
    {
        "description": Key(unread),
        "protocol": Key(word(*_PROTOCOLS, called="protocol")),
        "url": Key(text, needed="it is the server's address, http://... or https://..."),
        "headersFrom": Key(headers, field="headers"),
        "timeout": Key(duration),
        **unused("sseReadTimeout", "terminateOnClose", "allowedNamespaces", "tls"),
    }
)
"""The keys under `spec` of a RemoteMCPServer."""
_MOUNTED = ("secretRefs", "configMapRefs", "volumes", "volumeMounts")
_SERVER_PODS = tuple(
    key for key in (*OF_PODS, "serviceAccount", "initContainer", "sidecars") if key not in _MOUNTED
)
_SERVER = open_table(
    {
        "cmd": Key(text),
        "args": Key(texts),
        "env": Key(pairs),
        **dict.fromkeys(("image", "port"), Key(unread)),
        **dict.fromkeys(_MOUNTED, not_here("is not mounted here")),
        **dict.fromkeys(_SERVER_PODS, not_here("there is no pod here; it is used on a cluster only")),
    }
)
_COMMAND = open_table(
    {
        "deployment": Key(InMapping(_SERVER, lambda _, values: values)),
        "transportType": Key(word("stdio", "http", called="transportType"), field="transport"),
        **unused("stdioTransport", "httpTransport", "timeout", "authz", "authn"),
    }
)
"""The keys under `spec` of an MCPServer."""
_READERS: Mapping[str, Callable[[Node, str, str], AgentManifest | ModelManifest | ServerManifest | None]] = {
    "Agent": _agent,
    "ModelConfig": _model,
    "MCPServer": _command_server,
    "RemoteMCPServer": _remote_server,
}
