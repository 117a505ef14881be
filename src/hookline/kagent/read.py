"""Reads a file of manifests: every object in it that means something here, and every mistake."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from hookline.errors import FileError
from hookline.kagent.keys import AGENT, AgentFindings, headers
from hookline.kagent.types import (
    CORE,
    PROVIDERS,
    AgentManifest,
    Manifests,
    ModelManifest,
    ServerManifest,
    ValueFrom,
)
from hookline.kube.objects import holds_objects, mapping, objects_in, secret_values
from hookline.source import Document, load_all, text_of
from hookline.table import Node, duration, meant, number, pairs, text, texts

_GROUP = "kagent.dev/"
_VERSIONS = {
    "Agent": "v1alpha2",
    "ModelConfig": "v1alpha2",
    "RemoteMCPServer": "v1alpha2",
    "MCPServer": "v1alpha1",
}
_ELSEWHERE = ("AzureOpenAI", "GeminiVertexAI", "AnthropicVertexAI", "Bedrock", "SAPAICore", "Foundry")
_OPTIONS = {"OpenAI": "openAI", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}
_PROTOCOLS = {"STREAMABLE_HTTP": "http", "SSE": "sse"}


def is_kagent(text: str, file: str | PathLike[str]) -> bool:
    """True if a YAML text holds an object of kagent's, or the part of one that has its hooks."""
    return holds_objects(text, file, _GROUP, _is_fragment)


def read(file: str | PathLike[str]) -> Manifests:
    try:
        return parse(text_of(file), file)
    except FileError as exc:
        return Manifests(problems=(exc,))


def parse(text: str | bytes, file: str | PathLike[str]) -> Manifests:
    """Every object of the text that is read here, and every mistake in them."""
    try:
        documents = load_all(text, file)
    except FileError as exc:
        return Manifests(problems=(exc,))
    return _File(documents, str(file)).manifests()


def _is_fragment(value: Any) -> bool:
    """An Agent without its head, as documents show it: `spec` with `hooks`, and neither apiVersion nor kind."""
    given = mapping(value)
    hooks = mapping(given.get("spec")).get("hooks")
    return isinstance(hooks, list) and not {"apiVersion", "kind"} & set(given)


class _File:
    """One file while it is read."""

    def __init__(self, documents: list[Document], file: str) -> None:
        self._documents = documents
        self._file = file
        self._findings = AgentFindings()
        self._agents: list[AgentManifest] = []
        self._models: list[ModelManifest] = []
        self._servers: list[ServerManifest] = []
        self._values: dict[tuple[str, str], Mapping[str, str]] = {}
        self._seen: dict[tuple[str, str, str], str] = {}
        self._readers: Mapping[str, Callable[[Node, str, str], None]] = {
            "Agent": self._agent,
            "ModelConfig": self._model,
            "MCPServer": self._command_server,
            "RemoteMCPServer": self._remote_server,
            "ConfigMap": self._values_of,
            "Secret": self._values_of,
        }

    def manifests(self) -> Manifests:
        for document in objects_in(self._documents):
            value: Any = document.value
            node = Node.root(document, self._findings)
            if isinstance(value, Mapping):
                self._object(node)
            elif value is not None:
                node.wrong("is no object; it must have apiVersion and kind")
        return Manifests(
            tuple(self._agents),
            tuple(self._models),
            tuple(self._servers),
            self._values,
            tuple(self._findings.problems),
            tuple(self._findings.broken),
            tuple(map(str, self._findings.notes)),
        )

    def _object(self, node: Node) -> None:
        if _is_fragment(node.value):
            name = Path(self._file).stem
            node.note(f"has no apiVersion and kind; it is read as the Agent {name!r}")
            agent = _agent(node, name, "default")
            self._agents += [replace(agent, fragment=True)] if agent else []
            return
        kind = node.get("kind", text, needed=f"it is one of {', '.join(_VERSIONS)}")
        if not kind or not _is_read(node, kind):
            return
        metadata = node.mapping("metadata")
        if metadata is None:
            node.wrong("metadata is missing; write metadata: {name: ...}")
            return
        name = metadata.get("name", text, needed="every object has a name")
        namespace = metadata.get("namespace", text) or "default"
        first = self._seen.setdefault((kind, namespace, name), node.source)
        if first != node.source:
            node.wrong(f"the {kind} {name!r} is in {first} already", "metadata", "name")
        elif name:
            self._readers[kind](node, name, namespace)

    def _agent(self, node: Node, name: str, namespace: str) -> None:
        agent = _agent(node, name, namespace)
        if agent is not None:
            self._agents.append(agent)

    def _model(self, node: Node, name: str, namespace: str) -> None:
        spec = node.mapping("spec")
        if spec is None:
            node.wrong("spec is missing; it has provider and model")
            return
        provider = spec.get("provider", text) or "OpenAI"
        if provider not in PROVIDERS and provider not in _ELSEWHERE:
            hint = meant(provider, (*PROVIDERS, *_ELSEWHERE))
            spec.wrong(f"unknown provider {provider!r}{hint}", "provider")
        options = spec.mapping(_OPTIONS.get(provider, "")) or spec.with_value({})
        most = options.get("maxTokens", number, None)
        self._models.append(
            ModelManifest(
                name=name,
                namespace=namespace,
                provider=provider,
                model=spec.get("model", text, needed="it names the provider's model"),
                base_url=options.get("baseUrl", text) or _ollama(options.get("host", text)),
                temperature=options.get("temperature", number, None),
                top_p=options.get("topP", number, None),
                max_tokens=int(most) if most is not None else None,
                key=_key(spec, provider),
                place=spec.problem("", "provider"),
            )
        )

    def _command_server(self, node: Node, name: str, namespace: str) -> None:
        spec = node.mapping("spec") or node.with_value({})
        deployment = spec.mapping("deployment")
        if deployment is None:
            node.wrong("spec.deployment is missing; it has the server's cmd and args")
            return
        transport = spec.get("transportType", text) or "stdio"
        if transport not in ("stdio", "http"):
            spec.wrong(f"unknown transportType {transport!r}; known: stdio, http", "transportType")
        command = deployment.get("cmd", text)
        absent = ""
        if transport == "http":
            absent = "it is a server for HTTP, which a cluster starts; start it, and write a RemoteMCPServer"
        elif not command:
            absent = "it is only an image, which a cluster starts; give its spec.deployment.cmd"
        elif "image" in deployment:
            deployment.note(f"the image is not used here; {command!r} is started on this machine", "image")
        for key in ("secretRefs", "configMapRefs", "volumes", "volumeMounts"):
            if key in deployment:
                deployment.note("is not mounted here", key)
        self._servers.append(
            ServerManifest(
                kind="MCPServer",
                name=name,
                namespace=namespace,
                command=command,
                args=deployment.get("args", texts, ()),
                env=deployment.get("env", pairs, {}),
                transport="stdio",
                absent=absent,
            )
        )

    def _remote_server(self, node: Node, name: str, namespace: str) -> None:
        spec = node.mapping("spec")
        if spec is None:
            node.wrong("spec is missing; it has the server's url")
            return
        protocol = spec.get("protocol", text) or "STREAMABLE_HTTP"
        if protocol not in _PROTOCOLS:
            spec.wrong(f"unknown protocol {protocol!r}{meant(protocol, _PROTOCOLS)}", "protocol")
        url = spec.get("url", text, needed="it is the server's address, http://... or https://...")
        if url and not url.startswith(("http://", "https://")):
            spec.wrong(f"is {url!r}; give http://... or https://...", "url")
        self._servers.append(
            ServerManifest(
                kind="RemoteMCPServer",
                name=name,
                namespace=namespace,
                url=url,
                headers=spec.get("headersFrom", headers, {}),
                timeout=spec.get("timeout", duration, None),
                transport=_PROTOCOLS.get(protocol, "http"),
            )
        )

    def _values_of(self, node: Node, name: str, _namespace: str) -> None:
        kind = node.get("kind", text)
        known = secret_values(node) if kind == "Secret" else node.get("data", pairs, {})
        self._values[kind, name] = known


def _agent(node: Node, name: str, namespace: str) -> AgentManifest | None:
    """What an object of the kind `Agent` says."""
    spec = node.mapping("spec")
    if spec is None:
        if "spec" not in node:
            node.wrong("spec is missing; it has the agent's type, declarative and hooks")
        return None
    values = AGENT.read(spec)
    inner = values.pop("declarative", {"asked": spec.problem("")})
    return AgentManifest(name=name, namespace=namespace, source=spec.source, **values, **inner)


def _is_read(node: Node, kind: str) -> bool:
    """True if an object is of a kind and version that mean something here."""
    api = node.get("apiVersion", text, needed=f"it is {_GROUP}v1alpha2 for an Agent")
    if kind in CORE and api == "v1":
        return True
    if not api.startswith(_GROUP):
        if api:
            node.note(f"is a {kind} of {api}, which means nothing here")
        return False
    if kind not in _VERSIONS:
        hint = meant(kind, _VERSIONS)
        if "did you mean" in hint:
            node.wrong(f"unknown kind {kind!r}{hint}", "kind")
        else:
            node.note(f"a {kind} means nothing here; read are {', '.join(_VERSIONS)}", "kind")
        return False
    if api != f"{_GROUP}{_VERSIONS[kind]}":
        node.wrong(f"is {api!r}; of {kind} {_GROUP}{_VERSIONS[kind]} is read", "apiVersion")
        return False
    return True


def _ollama(host: str) -> str:
    """The address under which a host of Ollama's speaks OpenAI's protocol."""
    if not host:
        return ""
    return f"{host if '://' in host else f'http://{host}'}".rstrip("/") + "/v1"


def _key(spec: Node, provider: str) -> ValueFrom | None:
    secret, key = spec.get("apiKeySecret", text), spec.get("apiKeySecretKey", text)
    if key and not secret:
        spec.wrong(
            "stands without apiKeySecret, which names the Secret that it is a key of", "apiKeySecretKey"
        )
    if secret and not key and provider in PROVIDERS:
        spec.wrong("stands without apiKeySecretKey, which names the key in it", "apiKeySecret")
    if not key:
        return None
    return ValueFrom(kind="Secret", name=secret, key=key, asked=spec.problem("", "apiKeySecretKey"))
