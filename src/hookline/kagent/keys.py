"""The keys of kagent's `Agent`: its hooks, its tools, its system message and the name of its model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from hookline.claude.events import meant as meant_event
from hookline.engine.point import Scope
from hookline.errors import FileError, UsageError, meant
from hookline.images.reference import directory_name
from hookline.kagent.agent import (
    CORE,
    EVENTS,
    TIMEOUT,
    TYPE,
    HookEntry,
    ToolReference,
    ValueFrom,
)
from hookline.matcher import pattern
from hookline.source import Wrong
from hookline.table import (
    UNSET,
    InList,
    InMapping,
    Key,
    Node,
    Table,
    filled,
    not_here,
    open_table,
    split_command,
    text,
    texts,
    unread,
    unused,
    word,
)

MOST_HOOKS = 20
MOST_TOOLS = 20

_COMMAND = "it names a program in the image, and its arguments"
_TOOL_KINDS = {"McpServer": "mcpServer", "Agent": "agent"}


def _ref(node: Node) -> str:
    ref = text(node)
    try:
        folder = "" if re.search(r"\s|/$", ref) else directory_name(ref)
    except UsageError:
        folder = ""
    if not folder:
        raise Wrong(f"{ref!r} is not an image reference; write it like ghcr.io/org/security-hooks:v1.0")
    return ref


def _event(node: Node) -> str:
    event = text(node)
    if event not in EVENTS:
        raise Wrong(f"unknown event {event!r}; {meant_event(event, 'kagent')}")
    return event


def _command(node: Node) -> str:
    command = text(node)
    argv, special = split_command(command)
    if not argv or not argv[0].strip() or "\0" in command:
        raise Wrong(f"is {command!r}; {_COMMAND}")
    if ".." in PurePosixPath(argv[0]).parts and not argv[0].startswith("/"):
        raise Wrong(f"{argv[0]!r} leads out of the image's folder")
    if special:
        node.note(f"is started without a shell, so {special!r} is an argument like any other")
    return command


def _hooks(node: Node) -> tuple[HookEntry, ...]:
    count = len(node.of_list)
    if count > MOST_HOOKS:
        node.wrong(f"is one of {count} hooks; an agent has at most {MOST_HOOKS}", MOST_HOOKS)
    refs: dict[str, str] = {}
    names: Counter[str] = Counter()
    read = InList(_HOOK, lambda each, values: _hook(each, values, refs, names), "- ref: ...", MOST_HOOKS)
    return read(node)


def _hook(node: Node, values: dict[str, Any], refs: dict[str, str], names: Counter[str]) -> HookEntry | None:
    ref = values.get("ref")
    if ref is not None:
        # Two images may not share a folder; the same one may be named again.
        folder = directory_name(ref)
        first = refs.setdefault(folder, ref)
        if first != ref:
            told = f"{ref!r} and {first!r} would both be the folder {folder!r}"
            node.wrong(f"{told}; give the images distinct names", "ref")
    if not node.is_sound:
        return None
    name = f"{values['event']}: {_short(values['command'])}"
    names[name] += 1
    return HookEntry(
        name=name if names[name] == 1 else f"{name} ({names[name]})",
        broken=_broken(node, values["event"], values.get("matcher", "")),
        source=node.source,
        **values,
    )


def _short(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _broken(node: Node, event: str, matcher: str) -> FileError | None:
    """Why a matcher is no pattern. Only the hook fails, not the agent, so it is reported apart from the mistakes."""
    if not matcher:
        return None
    if EVENTS[event].scope is not Scope.TOOL:
        node.note(f"{event} has no tool, so the matcher {matcher!r} is ignored", "matcher")
        return None
    try:
        pattern(matcher)
    except UsageError as exc:
        hint = "; leave matcher out to fit every tool" if matcher == "*" else ""
        said = f"{matcher!r} is not a regular expression: {exc.__cause__ or exc}{hint}"
        return node.problem(said, "matcher")
    return None


def _value_from(node: Node, values: dict[str, Any]) -> ValueFrom:
    if not {"name", "key"} <= values.keys():
        return UNSET
    return ValueFrom(
        kind=values.get("type", "Secret"), name=values["name"], key=values["key"], asked=node.location()
    )


class _Pairs(InList):
    """Texts and references by name."""

    def __call__(self, node: Node) -> Any:
        return dict(super().__call__(node))


def _header(node: Node, values: dict[str, Any]) -> tuple[str, str | ValueFrom] | None:
    if ("value" in node) == isinstance(node.of_mapping.get("valueFrom"), Mapping):
        node.wrong("give one of value and valueFrom")
        return None
    value = values.get("valueFrom") if "valueFrom" in node else values.get("value", "")
    return (values["name"], value) if "name" in values and value is not None else None


def _variable(node: Node, values: dict[str, Any]) -> tuple[str, str | ValueFrom] | None:
    """A variable of the agent's container, which its hooks share."""
    source = node.mapping("valueFrom")
    value = _reference(node, source, values.get("name", "")) if source else values.get("value", "")
    return (values["name"], value) if "name" in values and value is not None else None


def _reference(node: Node, source: Node, name: str) -> ValueFrom | None:
    for field, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        ref = source.mapping(field)
        if ref is not None:
            key = ref.get("key", text, needed="it names the key")
            asked = node.location("name")
            return ValueFrom(kind=kind, name=ref.get("name", text), key=key, asked=asked)
    node.note(f"{name} comes from the pod, and there is none here", "valueFrom")
    return None


def _tools(node: Node) -> tuple[ToolReference, ...]:
    if len(node.of_list) > MOST_TOOLS:
        node.wrong(f"is one too many; an agent has at most {MOST_TOOLS}", MOST_TOOLS)
    return InList(_TOOL, _tool, "- type: McpServer")(node)


def _tool(node: Node, values: dict[str, Any]) -> ToolReference | None:
    given = values.get("type") or next((word for word, key in _TOOL_KINDS.items() if key in node), "")
    if given not in _TOOL_KINDS:
        node.wrong(f"unknown type {given!r}{meant(given, _TOOL_KINDS)}", "type")
        return None
    other = _TOOL_KINDS["Agent" if given == "McpServer" else "McpServer"]
    if other in node:
        node.wrong(f"does not belong in a tool of the type {given}", other)
    ref = node.mapping(_TOOL_KINDS[given])
    if ref is None:
        node.wrong(f"{_TOOL_KINDS[given]} is missing; it names the server or the agent")
        return None
    found = _TOOL_REF.read(ref)
    tools: tuple[str, ...] = found.get("toolNames", ())
    approval: tuple[str, ...] = found.get("requireApproval", ())
    for index, name in enumerate(approval):
        if tools and name not in tools:
            ref.wrong(f"{name!r} is not among the toolNames{meant(name, tools)}", "requireApproval", index)
    if "name" not in found:
        return None
    return ToolReference(
        type=given,
        kind=found.get("kind") or ("MCPServer" if given == "McpServer" else "Agent"),
        name=found["name"],
        namespace=found.get("namespace", ""),
        asked=ref.location("name"),
        tools=tools,
        approval=approval,
        headers=values.get("headersFrom", {}),
    )


def _declarative(node: Node, values: dict[str, Any]) -> dict[str, Any]:
    if "systemMessage" in node and "systemMessageFrom" in node:
        node.wrong("is given together with systemMessage; give one of them", "systemMessageFrom")
    source = values.pop("systemMessageFrom", None)
    message = values.pop("systemMessage", None) or None
    named = isinstance(node.of_mapping.get("systemMessageFrom"), Mapping)
    return {
        **values,
        "system_message": source if named else message,
        "asked": node.location("modelConfig"),
    }


_HOOK = Table(
    {
        "ref": Key(
            _ref,
            needed="it names the image that the command is in, such as ghcr.io/org/security-hooks:v1.0",
        ),
        "event": Key(_event, needed=f"it is one of {', '.join(EVENTS)}"),
        "type": Key(word(TYPE, called="type")),
        "matcher": Key(text),
        "command": Key(_command, needed=_COMMAND),
    },
    {
        "image": "; did you mean ref?",
        **dict.fromkeys(("on", "hook_event_name"), "; did you mean event?"),
        **dict.fromkeys(("match", "tool", "tools"), "; did you mean matcher?"),
        **dict.fromkeys(("cmd", "run", "script"), "; did you mean command?"),
        "args": "; arguments belong in command, after the program",
        "timeout": f": a kagent hook has {TIMEOUT:g} s, which cannot be set here",
        "name": ": a kagent hook has no name; it is known by its event and command",
        "env": ": a hook's environment is set in declarative.deployment.env",
    },
)
_VALUE = open_table(
    {
        "type": Key(word(*CORE, called="type")),
        "name": Key(text, needed="it names the object"),
        "key": Key(text, needed="it names the key in it"),
    }
)
_HEADER = open_table(
    {
        "name": Key(text, needed="it is the header"),
        "value": Key(text),
        "valueFrom": Key(InMapping(_VALUE, _value_from)),
    }
)
headers = _Pairs(_HEADER, _header, "- name: ...")
"""Reads `headersFrom`."""
_KEY_REF = open_table({**dict.fromkeys(("name", "key"), Key(unread)), **unused("optional")})
_IN_KEY_REF = Key(InMapping(_KEY_REF, lambda _, values: UNSET))
_SOURCE = open_table(
    {
        **dict.fromkeys(("secretKeyRef", "configMapKeyRef"), _IN_KEY_REF),
        **dict.fromkeys(("fieldRef", "resourceFieldRef"), Key(unread)),
    }
)
_ENV = open_table(
    {
        "name": Key(text, needed="it is the variable"),
        "value": Key(text),
        "valueFrom": Key(InMapping(_SOURCE, lambda _, values: UNSET)),
    }
)
OF_PODS = (
    *(
        "replicas",
        "imagePullSecrets",
        "imagePullPolicy",
        "imageRegistry",
        "volumes",
        "volumeMounts",
        "labels",
    ),
    *("annotations", "resources", "tolerations", "affinity", "nodeSelector", "securityContext"),
    *(
        "podSecurityContext",
        "serviceAccountName",
        "serviceAccountConfig",
        "extraContainers",
        "initContainers",
    ),
)
_DEPLOYMENT = open_table(
    {
        "env": Key(_Pairs(_ENV, _variable, "- name: ...")),
        **dict.fromkeys(OF_PODS, not_here("there is no pod here; it is used on a cluster only")),
    }
)


_TOOL_REF = open_table(
    {
        "kind": Key(text),
        "apiGroup": Key(unread),
        "name": Key(text, needed="it names the object"),
        "namespace": Key(text),
        "toolNames": Key(texts),
        "requireApproval": Key(texts),
        "allowedHeaders": not_here("there is no request here to take headers from"),
    }
)
_TOOL = open_table(
    {
        "type": Key(text),
        "mcpServer": Key(unread, inner=_TOOL_REF),
        "agent": Key(unread, inner=_TOOL_REF),
        "headersFrom": Key(headers),
    },
    {"toolNames": ": it belongs under mcpServer"},
)
_DECLARATIVE = open_table(
    {
        "systemMessage": Key(text),
        "systemMessageFrom": Key(InMapping(_VALUE, _value_from)),
        "modelConfig": Key(filled, field="model_config"),
        "tools": Key(_tools, inner=_TOOL),
        "stream": Key(unread),
        "a2aConfig": not_here("the agent's card has no skills here"),
        "deployment": Key(InMapping(_DEPLOYMENT, lambda _, values: values.get("env", {})), field="env"),
        "executeCodeBlocks": not_here("code blocks in answers are not run here"),
        "memory": not_here("there is no long-term memory here"),
        "context": not_here("the conversation is not compacted here"),
        "promptTemplate": not_here("the templates in the system message are not filled in here"),
        "runtime": Key(unread),
    },
    {
        "hooks": ": hooks belong under spec, next to declarative",
        "model": "; did you mean modelConfig?",
    },
)
AGENT = open_table(
    {
        "type": Key(word("Declarative", "BYO", called="type")),
        "declarative": Key(InMapping(_DECLARATIVE, _declarative)),
        "byo": not_here("only agents of the type Declarative run here"),
        "description": Key(text),
        "hooks": Key(_hooks, inner=_HOOK),
        "skills": not_here("skills are not loaded here"),
        **unused("allowedNamespaces", "sandbox"),
    },
    {"tools": "; did you mean declarative.tools?"},
)
"""The keys under `spec` of an Agent."""
