"""The objects that an agent refers to: a `ModelConfig`, a `RemoteMCPServer` and an `MCPServer`, their keys and values."""

from __future__ import annotations

from hookline.kagent.agent import (
    ELSEWHERE,
    PROTOCOLS,
    PROVIDERS,
    ModelManifest,
    ServerManifest,
    ValueFrom,
)
from hookline.kagent.keys import OF_PODS, headers
from hookline.kube.objects import spec_of
from hookline.table import (
    UNSET,
    InMapping,
    Key,
    Node,
    Table,
    duration,
    filled,
    not_here,
    number,
    pairs,
    refuse_slips,
    text,
    texts,
    unread,
    unused,
    word,
)

_OPTIONS = {"OpenAI": "openAI", "Anthropic": "anthropic", "Ollama": "ollama", "Gemini": "gemini"}


def model(node: Node, name: str, namespace: str) -> ModelManifest | None:
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


def command_server(node: Node, name: str, namespace: str) -> ServerManifest | None:
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
        transport="stdio",
        absent=absent,
        **given,
    )


def remote_server(node: Node, name: str, namespace: str) -> ServerManifest | None:
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
        transport=PROTOCOLS[protocol],
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
    return Key(InMapping(Table({**keys, **unused(*without)}, unknown=refuse_slips), lambda _, values: values))


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
_MODEL = Table(
    {
        "provider": Key(word(*PROVIDERS, *ELSEWHERE, called="provider")),
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
    unknown=refuse_slips,
)
"""The keys under `spec` of a ModelConfig."""
_REMOTE = Table(
    {
        "description": Key(unread),
        "protocol": Key(word(*PROTOCOLS, called="protocol")),
        "url": Key(text, needed="it is the server's address, http://... or https://..."),
        "headersFrom": Key(headers, field="headers"),
        "timeout": Key(duration),
        **unused("sseReadTimeout", "terminateOnClose", "allowedNamespaces", "tls"),
    },
    unknown=refuse_slips,
)
"""The keys under `spec` of a RemoteMCPServer."""
_MOUNTED = ("secretRefs", "configMapRefs", "volumes", "volumeMounts")
_SERVER_PODS = tuple(
    key for key in (*OF_PODS, "serviceAccount", "initContainer", "sidecars") if key not in _MOUNTED
)
_SERVER = Table(
    {
        "cmd": Key(text),
        "args": Key(texts),
        "env": Key(pairs),
        **dict.fromkeys(("image", "port"), Key(unread)),
        **dict.fromkeys(_MOUNTED, not_here("is not mounted here")),
        **dict.fromkeys(_SERVER_PODS, not_here("there is no pod here; it is used on a cluster only")),
    },
    unknown=refuse_slips,
)
_COMMAND = Table(
    {
        "deployment": Key(InMapping(_SERVER, lambda _, values: values)),
        "transportType": Key(word("stdio", "http", called="transportType"), field="transport"),
        **unused("stdioTransport", "httpTransport", "timeout", "authz", "authn"),
    },
    unknown=refuse_slips,
)
"""The keys under `spec` of an MCPServer."""
