"""Reads a file of manifests: every object in it that means something here, and every mistake."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from hookline.errors import FileError
from hookline.kagent.read_agent import headers, read_agent
from hookline.kagent.types import (
    CORE,
    PROVIDERS,
    AgentManifest,
    Manifests,
    ModelManifest,
    ServerManifest,
    ValueFrom,
)
from hookline.source import Document, load_all, text_of
from hookline.table import At, Told, meant

_GROUP = "kagent.dev/"
_VERSIONS = {
    "Agent": "v1alpha2",
    "ModelConfig": "v1alpha2",
    "RemoteMCPServer": "v1alpha2",
    "MCPServer": "v1alpha1",
}
_HEAD = re.compile(r"^apiVersion:\s*['\"]?kagent\.dev/", re.MULTILINE)
_ELSEWHERE = ("AzureOpenAI", "GeminiVertexAI", "AnthropicVertexAI", "Bedrock", "SAPAICore", "Foundry")
_OPTIONS = {"OpenAI": "openAI", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}
_PROTOCOLS = {"STREAMABLE_HTTP": "http", "SSE": "sse"}


def is_kagent(text: str, file: str | PathLike[str]) -> bool:
    """Whether a YAML text holds an object of kagent's, or the part of one that has its hooks."""
    try:
        documents = load_all(text, file)
    except FileError:
        return _HEAD.search(text) is not None
    return any(
        _api(each.value).startswith(_GROUP) or _is_fragment(each.value) for each in _objects(documents)
    )


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


def _api(value: Any) -> str:
    given = _mapping(value).get("apiVersion")
    return given if isinstance(given, str) else ""


def _is_fragment(value: Any) -> bool:
    """An Agent without its head, as documents show it: `spec` with `hooks`, and neither apiVersion nor kind."""
    given = _mapping(value)
    hooks = _mapping(given.get("spec")).get("hooks")
    return isinstance(hooks, list) and not {"apiVersion", "kind"} & set(given)


def _mapping(value: Any) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _objects(documents: list[Document]) -> Iterator[Document]:
    """Each object by itself, also those of a `List`."""
    for document in documents:
        given = _mapping(document.value)
        items = given.get("items")
        if given.get("kind") != "List" or not isinstance(items, list):
            yield document
            continue
        for item in cast("list[Any]", items):
            yield Document(item, document.file, getattr(item, "line", document.line))


class _File:
    """One file while it is read."""

    def __init__(self, documents: list[Document], file: str) -> None:
        self._documents = documents
        self._file = file
        self._told = Told()
        self._agents: list[AgentManifest] = []
        self._models: list[ModelManifest] = []
        self._servers: list[ServerManifest] = []
        self._values: dict[tuple[str, str], Mapping[str, str]] = {}
        self._seen: dict[tuple[str, str, str], str] = {}
        self._readers: Mapping[str, Callable[[At, str, str], None]] = {
            "Agent": self._agent,
            "ModelConfig": self._model,
            "MCPServer": self._command_server,
            "RemoteMCPServer": self._remote_server,
            "ConfigMap": self._values_of,
            "Secret": self._values_of,
        }

    def manifests(self) -> Manifests:
        for document in _objects(self._documents):
            value: Any = document.value
            if isinstance(value, Mapping):
                self._object(At(document, _mapping(value), (), self._told))
            elif value is not None:
                self._told.problems.append(document.problem("is no object; it must have apiVersion and kind"))
        return Manifests(
            tuple(self._agents),
            tuple(self._models),
            tuple(self._servers),
            self._values,
            tuple(self._told.problems),
            tuple(self._told.broken),
            tuple(self._told.notes),
        )

    def _object(self, at: At) -> None:
        if _is_fragment(at.value):
            name = Path(self._file).stem
            at.note(f"has no apiVersion and kind; it is read as the Agent {name!r}")
            agent = read_agent(at, name, "default", self._told)
            self._agents += [replace(agent, fragment=True)] if agent else []
            return
        kind = at.text("kind", needed=f"it is one of {', '.join(_VERSIONS)}")
        if not kind or not _is_read(at, kind):
            return
        metadata = at.mapping("metadata")
        if metadata is None:
            at.wrong("metadata is missing; write metadata: {name: ...}")
            return
        name = metadata.text("name", needed="every object has a name")
        namespace = metadata.text("namespace") or "default"
        first = self._seen.setdefault((kind, namespace, name), at.line())
        if first != at.line():
            at.wrong(f"the {kind} {name!r} is in {first} already", "metadata", "name")
        elif name:
            self._readers[kind](at, name, namespace)

    def _agent(self, at: At, name: str, namespace: str) -> None:
        agent = read_agent(at, name, namespace, self._told)
        if agent is not None:
            self._agents.append(agent)

    def _model(self, at: At, name: str, namespace: str) -> None:
        spec = at.mapping("spec")
        if spec is None:
            at.wrong("spec is missing; it has provider and model")
            return
        provider = spec.text("provider") or "OpenAI"
        if provider not in PROVIDERS and provider not in _ELSEWHERE:
            hint = meant(provider, (*PROVIDERS, *_ELSEWHERE))
            spec.wrong(f"unknown provider {provider!r}{hint}", "provider")
        options = spec.mapping(_OPTIONS.get(provider, "")) or At.empty()
        most = options.number("maxTokens")
        self._models.append(
            ModelManifest(
                name=name,
                namespace=namespace,
                provider=provider,
                model=spec.text("model", needed="it names the provider's model"),
                base_url=options.text("baseUrl") or _ollama(options.text("host")),
                temperature=options.number("temperature"),
                top_p=options.number("topP"),
                max_tokens=int(most) if most is not None else None,
                key=_key(spec, provider),
                place=spec.place("", "provider"),
            )
        )

    def _command_server(self, at: At, name: str, namespace: str) -> None:
        spec = at.mapping("spec") or At.empty()
        deployment = spec.mapping("deployment")
        if deployment is None:
            at.wrong("spec.deployment is missing; it has the server's cmd and args")
            return
        transport = spec.text("transportType") or "stdio"
        if transport not in ("stdio", "http"):
            spec.wrong(f"unknown transportType {transport!r}; known: stdio, http", "transportType")
        command = deployment.text("cmd")
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
                args=deployment.texts("args"),
                env=deployment.pairs("env"),
                transport="stdio",
                absent=absent,
            )
        )

    def _remote_server(self, at: At, name: str, namespace: str) -> None:
        spec = at.mapping("spec")
        if spec is None:
            at.wrong("spec is missing; it has the server's url")
            return
        protocol = spec.text("protocol") or "STREAMABLE_HTTP"
        if protocol not in _PROTOCOLS:
            spec.wrong(f"unknown protocol {protocol!r}{meant(protocol, _PROTOCOLS)}", "protocol")
        url = spec.text("url", needed="it is the server's address, http://... or https://...")
        if url and not url.startswith(("http://", "https://")):
            spec.wrong(f"is {url!r}; give http://... or https://...", "url")
        self._servers.append(
            ServerManifest(
                kind="RemoteMCPServer",
                name=name,
                namespace=namespace,
                url=url,
                headers=headers(spec),
                timeout=spec.duration("timeout"),
                transport=_PROTOCOLS.get(protocol, "http"),
            )
        )

    def _values_of(self, at: At, name: str, _namespace: str) -> None:
        kind = at.text("kind")
        known = at.pairs("stringData") if kind == "Secret" else at.pairs("data")
        encoded = at.pairs("data") if kind == "Secret" else {}
        for key, value in encoded.items():
            try:
                known.setdefault(key, base64.b64decode(value, validate=True).decode())
            except (binascii.Error, UnicodeDecodeError):
                at.wrong("is not text in base64; write it plainly under stringData", "data", key)
        self._values[kind, name] = known


def _is_read(at: At, kind: str) -> bool:
    """Whether an object is of a kind and version that mean something here."""
    api = at.text("apiVersion", needed=f"it is {_GROUP}v1alpha2 for an Agent")
    if kind in CORE and api == "v1":
        return True
    if not api.startswith(_GROUP):
        if api:
            at.note(f"is a {kind} of {api}, which means nothing here")
        return False
    if kind not in _VERSIONS:
        hint = meant(kind, _VERSIONS)
        if "did you mean" in hint:
            at.wrong(f"unknown kind {kind!r}{hint}", "kind")
        else:
            at.note(f"a {kind} means nothing here; read are {', '.join(_VERSIONS)}", "kind")
        return False
    if api != f"{_GROUP}{_VERSIONS[kind]}":
        at.wrong(f"is {api!r}; of {kind} {_GROUP}{_VERSIONS[kind]} is read", "apiVersion")
        return False
    return True


def _ollama(host: str) -> str:
    """The address under which a host of Ollama's speaks OpenAI's protocol."""
    if not host:
        return ""
    return f"{host if '://' in host else f'http://{host}'}".rstrip("/") + "/v1"


def _key(spec: At, provider: str) -> ValueFrom | None:
    secret, key = spec.text("apiKeySecret"), spec.text("apiKeySecretKey")
    if key and not secret:
        spec.wrong(
            "stands without apiKeySecret, which names the Secret that it is a key of", "apiKeySecretKey"
        )
    if secret and not key and provider in PROVIDERS:
        spec.wrong("stands without apiKeySecretKey, which names the key in it", "apiKeySecret")
    if not key:
        return None
    return ValueFrom(kind="Secret", name=secret, key=key, asked=spec.place("", "apiKeySecretKey"))
