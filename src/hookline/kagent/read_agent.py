"""Reads an `Agent`: its hooks, its tools, its system message and the name of its model."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Required, TypedDict

from hookline.claude.events import meant as meant_event
from hookline.engine.point import Scope
from hookline.errors import FileError, UsageError
from hookline.kagent.hooks import TIMEOUT, directory, searched
from hookline.kagent.types import (
    CORE,
    DEFAULT_MODEL_CONFIG,
    EVENTS,
    TYPE,
    AgentManifest,
    HookSpec,
    ToolReference,
    ValueFrom,
)
from hookline.table import At, Told, meant

MOST_HOOKS = 20
MOST_TOOLS = 20

_REF = "it names the image that the command is in, such as ghcr.io/org/security-hooks:v1.0"
_EVENT = f"it is one of {', '.join(EVENTS)}"
_COMMAND = "it names a program in the image, and its arguments"
_HOOK_KEYS = ("ref", "event", "type", "matcher", "command")
_HOOK_INSTEAD = {
    "image": "; did you mean ref?",
    "on": "; did you mean event?",
    "hook_event_name": "; did you mean event?",
    "match": "; did you mean matcher?",
    "tool": "; did you mean matcher?",
    "tools": "; did you mean matcher?",
    "args": "; arguments stand in command, behind the program",
    "cmd": "; did you mean command?",
    "run": "; did you mean command?",
    "script": "; did you mean command?",
    "timeout": f": a kagent hook has {TIMEOUT:g} s, which cannot be set here",
    "name": ": a kagent hook has no name; it is known by its event and command",
    "env": ": a hook's environment is set in declarative.deployment.env",
}
_SPEC_KEYS = ("type", "declarative", "byo", "description", "hooks", "skills", "allowedNamespaces", "sandbox")
_DECLARATIVE_KEYS = (
    "systemMessage",
    "systemMessageFrom",
    "modelConfig",
    "tools",
    "stream",
    "a2aConfig",
    "deployment",
    "executeCodeBlocks",
    "memory",
    "context",
    "promptTemplate",
    "runtime",
)
_DECLARATIVE_INSTEAD = {
    "hooks": ": hooks stand under spec, beside declarative",
    "model": "; did you mean modelConfig?",
}
_NOT_HERE = {
    "skills": "skills are not loaded here",
    "executeCodeBlocks": "code blocks in answers are not run here",
    "memory": "there is no long-term memory here",
    "context": "the conversation is not compacted here",
    "promptTemplate": "the templates in the system message are not filled in here",
}


def read_agent(at: At, name: str, namespace: str, told: Told) -> AgentManifest | None:
    """What an object of the kind `Agent` says; what is wrong with it goes to `told`."""
    spec = at.mapping("spec")
    if spec is None:
        if "spec" not in at:
            at.wrong("spec is missing; it has the agent's type, declarative and hooks")
        return None
    spec.keys(*_SPEC_KEYS, instead={"tools": "; did you mean declarative.tools?"})
    kind = spec.text("type") or "Declarative"
    if kind not in ("Declarative", "BYO"):
        spec.wrong(f"unknown type {kind!r}; known: Declarative, BYO", "type")
    _say_what_is_not_here(spec, "skills")
    declarative = spec.mapping("declarative")
    inner: _Inner = _declarative(declarative) if declarative else {"asked": spec.place("")}
    return AgentManifest(
        name=name,
        namespace=namespace,
        source=spec.line(),
        type=kind,
        description=spec.text("description"),
        hooks=_hooks(spec, told),
        **inner,
    )


class _Inner(TypedDict, total=False):
    """What stands under `declarative`."""

    system_message: str | ValueFrom | None
    model_config: str
    tools: tuple[ToolReference, ...]
    env: Mapping[str, str | ValueFrom]
    asked: Required[FileError]


def _declarative(at: At) -> _Inner:
    at.keys(*_DECLARATIVE_KEYS, instead=_DECLARATIVE_INSTEAD)
    _say_what_is_not_here(at, *_NOT_HERE)
    if "systemMessage" in at and "systemMessageFrom" in at:
        at.wrong("stands beside systemMessage; give one of them", "systemMessageFrom")
    source, deployment = at.mapping("systemMessageFrom"), at.mapping("deployment")
    if at.count("tools") > MOST_TOOLS:
        at.wrong(f"is one too many; an agent has at most {MOST_TOOLS}", "tools", MOST_TOOLS)
    return {
        "system_message": _value_from(source) if source else at.text("systemMessage") or None,
        "model_config": at.text("modelConfig") or DEFAULT_MODEL_CONFIG,
        "tools": tuple(filter(None, map(_tool, at.mappings("tools", "- type: McpServer")))),
        "env": _variables(deployment) if deployment else {},
        "asked": at.place("", "modelConfig"),
    }


def _hooks(spec: At, told: Told) -> tuple[HookSpec, ...]:
    count = spec.count("hooks")
    if count > MOST_HOOKS:
        spec.wrong(f"is one of {count} hooks; an agent has at most {MOST_HOOKS}", "hooks", MOST_HOOKS)
    refs: dict[str, str] = {}
    found = [_hook(at, refs, told) for at in spec.mappings("hooks", "- ref: ...")]
    return tuple(filter(None, found[:MOST_HOOKS]))


def _hook(at: At, refs: dict[str, str], told: Told) -> HookSpec | None:
    before = len(told.problems)
    at.keys(*_HOOK_KEYS, instead=_HOOK_INSTEAD, strict=True)
    ref, event = at.text("ref", needed=_REF), at.text("event", needed=_EVENT)
    command, kind = at.text("command", needed=_COMMAND), at.text("type") or TYPE
    matcher = at.text("matcher")
    if ref:
        _check_ref(at, ref, refs)
    if event and event not in EVENTS:
        at.wrong(f"unknown event {event!r}; {meant_event(event, 'kagent')}", "event")
    if kind != TYPE:
        at.wrong(f"unknown type {kind!r}; known: {TYPE}", "type")
    if command:
        _check_command(at, command)
    if len(told.problems) > before:
        return None
    return HookSpec(
        ref=ref,
        event=event,
        command=command,
        type=kind,
        matcher=matcher,
        broken=_broken(at, event, matcher, told),
        source=at.line(),
    )


def _broken(at: At, event: str, matcher: str, told: Told) -> str | None:
    """Why a matcher is no pattern. That costs the hook, not the agent, so it is told apart from the mistakes."""
    if not matcher:
        return None
    if EVENTS[event].scope is not Scope.TOOL:
        at.note(f"{event} has no tool, so the matcher {matcher!r} is ignored", "matcher")
        return None
    try:
        searched(matcher)
    except UsageError as exc:
        cause = str(exc.__cause__ or exc)
        hint = "; leave matcher out to fit every tool" if matcher == "*" else ""
        told.broken.append(at.place(f"{matcher!r} is no regular expression: {cause}{hint}", "matcher"))
        return cause
    return None


def _say_what_is_not_here(at: At, *keys: str) -> None:
    for key in keys:
        if key in at and at.value[key] is not False:
            at.note(_NOT_HERE[key], key)


def _check_ref(at: At, ref: str, refs: dict[str, str]) -> None:
    """Two images may not share a folder; the same one may be named again."""
    name = directory(ref)
    if re.search(r"\s", ref) or not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name in (".", ".."):
        at.wrong(f"{ref!r} is no image reference; write it like ghcr.io/org/security-hooks:v1.0", "ref")
        return
    first = refs.setdefault(name, ref)
    if first != ref:
        at.wrong(
            f"{ref!r} and {first!r} would both be the folder {name!r}; give the images distinct names", "ref"
        )


def _check_command(at: At, command: str) -> None:
    try:
        argv = shlex.split(command)
    except ValueError as exc:
        at.wrong(f"cannot be split into arguments: {str(exc).lower()}", "command")
        return
    if not argv or not argv[0].strip() or "\0" in command:
        at.wrong(f"is {command!r}; {_COMMAND}", "command")
    elif ".." in PurePosixPath(argv[0]).parts and not argv[0].startswith("/"):
        at.wrong(f"{argv[0]!r} leads out of the image's folder", "command")
    tokens = shlex.shlex(command, posix=False, punctuation_chars=True)
    special = next((token for token in tokens if set(token) <= set("();<>|&")), None)
    if special:
        at.note(f"is started without a shell, so {special!r} is an argument like any other", "command")


def _value_from(at: At) -> ValueFrom | None:
    kind = at.text("type") or "Secret"
    if kind not in CORE:
        at.wrong(f"unknown type {kind!r}; known: ConfigMap, Secret", "type")
    name, key = at.text("name", needed="it names the object"), at.text("key", needed="it names the key in it")
    return ValueFrom(kind=kind, name=name, key=key, asked=at.place("")) if name and key else None


def headers(at: At) -> dict[str, str | ValueFrom]:
    found: dict[str, str | ValueFrom] = {}
    for each in at.mappings("headersFrom", "- name: ..."):
        name = each.text("name", needed="it is the header")
        source = each.mapping("valueFrom")
        if ("value" in each) == (source is not None):
            each.wrong("give one of value and valueFrom")
            continue
        value = _value_from(source) if source else each.text("value")
        if name and value is not None:
            found[name] = value
    return found


def _variables(deployment: At) -> dict[str, str | ValueFrom]:
    """The environment of the agent's container, which its hooks share."""
    found: dict[str, str | ValueFrom] = {}
    for each in deployment.mappings("env", "- name: ..."):
        name = each.text("name", needed="it is the variable")
        source = each.mapping("valueFrom")
        value = _reference(each, source, name) if source else each.text("value")
        if name and value is not None:
            found[name] = value
    return found


def _reference(at: At, source: At, name: str) -> ValueFrom | None:
    for word, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        ref = source.mapping(word)
        if ref is not None:
            key = ref.text("key", needed="it names the key")
            return ValueFrom(kind=kind, name=ref.text("name"), key=key, asked=at.place("", "name"))
    at.note(f"{name} comes from the pod, and there is none here", "valueFrom")
    return None


def _tool(at: At) -> ToolReference | None:
    at.keys("type", "mcpServer", "agent", "headersFrom", instead={"toolNames": ": it stands under mcpServer"})
    known = {"McpServer": "mcpServer", "Agent": "agent"}
    kind = at.text("type") or next((word for word, key in known.items() if key in at), "")
    if kind not in known:
        at.wrong(f"unknown type {kind!r}{meant(kind, known)}", "type")
        return None
    other = known["Agent" if kind == "McpServer" else "McpServer"]
    if other in at:
        at.wrong(f"stands in a tool of the type {kind}", other)
    ref = at.mapping(known[kind])
    if ref is None:
        at.wrong(f"{known[kind]} is missing; it names what the tools are of")
        return None
    ref.keys("kind", "apiGroup", "name", "namespace", "toolNames", "requireApproval", "allowedHeaders")
    if "allowedHeaders" in ref:
        ref.note("there is no request here that headers could be taken of", "allowedHeaders")
    tools, approval = ref.texts("toolNames"), ref.texts("requireApproval")
    for index, name in enumerate(approval):
        if tools and name not in tools:
            ref.wrong(f"{name!r} is not among the toolNames{meant(name, tools)}", "requireApproval", index)
    name = ref.text("name", needed="it names the object")
    if not name:
        return None
    return ToolReference(
        type=kind,
        kind=ref.text("kind") or ("MCPServer" if kind == "McpServer" else "Agent"),
        name=name,
        namespace=ref.text("namespace"),
        asked=ref.place("", "name"),
        tools=tools,
        approval=approval,
        headers=headers(at),
    )
