"""The hooks of an agent: what reaches its runtime, and the same as declarations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hookline.engine.hook import HookDeclaration
from hookline.engine.point import Scope
from hookline.kagent.types import EVENTS, TYPE, AgentManifest
from hookline.matcher import pattern

FORMAT = "kagent"
TIMEOUT = 30.0
"""Seconds a hook may take; a manifest has no word for another limit."""
FOLDER = "/hooks"
"""Where a pod has the contents of hook images; `KAGENT_HOOKS_FOLDER` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookConfig:
    """What reaches the runtime of one entry; its `ref` has become the folder `dir`."""

    event: str
    command: str
    dir: str
    type: str = TYPE
    matcher: str | None = None

    def to_dict(self) -> dict[str, str]:
        matcher = {"matcher": self.matcher} if self.matcher else {}
        return {"event": self.event, "type": self.type, **matcher, "command": self.command, "dir": self.dir}


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeConfig:
    """An agent as its runtime is configured."""

    description: str = ""
    instruction: str = ""
    model: Mapping[str, str] = field(default_factory=dict[str, str])
    hooks: tuple[HookConfig, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        hooks = {"hooks": [each.to_dict() for each in self.hooks]} if self.hooks else {}
        return {
            "model": dict(self.model),
            "description": self.description,
            "instruction": self.instruction,
            **hooks,
        }


def configured(agent: AgentManifest, folder: str = FOLDER) -> tuple[HookConfig, ...]:
    """One for each entry, in the order of the file; only images are fetched once."""
    return tuple(
        HookConfig(
            event=each.event,
            type=each.type,
            matcher=each.matcher or None,
            command=each.command,
            dir=f"{folder.rstrip('/')}/{directory(each.ref)}",
        )
        for each in agent.hooks
    )


def declared(agent: AgentManifest, folder: str = FOLDER) -> tuple[HookDeclaration, ...]:
    """The hooks as declarations, in the order of the file."""
    found: list[HookDeclaration] = []
    names: dict[str, int] = {}
    for spec, config in zip(agent.hooks, configured(agent, folder), strict=True):
        name = f"{spec.event}: {_short(spec.command)}"
        names[name] = names.get(name, 0) + 1
        count = names[name]
        params: dict[str, Any] = {
            "dialect": FORMAT,
            "event": spec.event,
            "argv": list(spec.argv),
            "ref": spec.ref,
            "dir": config.dir,
        }
        at_tool = EVENTS[spec.event].scope is Scope.TOOL
        found.append(
            HookDeclaration(
                name=name if count == 1 else f"{name} ({count})",
                points=(EVENTS[spec.event],),
                kind="command",
                params=params | ({"broken": spec.broken} if spec.broken and at_tool else {}),
                match=spec.matcher or None if at_tool else None,
                timeout=TIMEOUT,
                source=spec.source,
            )
        )
    return tuple(found)


def directory(ref: str) -> str:
    """The folder of an image: the last part of its name, without tag and digest; a registry's port is no tag."""
    name = ref.rpartition("@")[0] or ref
    last = name.rpartition("/")[2]
    return last.rpartition(":")[0] or last


def searched(matcher: str) -> str:
    """A matcher as a pattern for whole names; UsageError where it is no regular expression."""
    # By itself first, so that what is told is what was written.
    pattern(matcher)
    return f"(?s:.*)(?:{matcher})(?s:.*)"


def _short(command: str) -> str:
    text = " ".join(command.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
