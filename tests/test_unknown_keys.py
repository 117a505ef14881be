"""A key that is not known is told, in every kind of every format: at each mapping of a whole file, with file, line and key.

Below a key that is itself told to have no effect, and among names that are the user's own, there is nothing to tell.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from hookline import systems
from hookline.options import CheckOptions
from hookline.sympozium import read as sympozium
from tests.sympozium.cluster.manifests import full

ROOT = Path(__file__).parents[1]
ODD = "zzOdd"
OWN = {
    "labels",
    "annotations",
    "data",
    "stringData",
    "parameters",
    "providerHeaders",
    "max_concurrent_agents_by_state",
    "x-own",
    "headers",
    "headers_from_env",
    "approval_policy",
}
"""Mappings whose names are the user's, or that are handed on as they are."""


def head(kind: str, spec: Any, version: str = "v1alpha2") -> dict[str, Any]:
    metadata = {"name": "a", "namespace": "ops", "labels": {"team": "x"}}
    return {"apiVersion": f"kagent.dev/{version}", "kind": kind, "metadata": metadata, "spec": spec}


VALUE = {"type": "Secret", "name": "s", "key": "k"}
HEADERS = [{"name": "X", "valueFrom": VALUE}, {"name": "Y", "value": "1"}]
KAGENT = {
    "Agent": head(
        "Agent",
        {
            "type": "Declarative",
            "description": "d",
            "hooks": [{"ref": "r/x:1", "event": "PreToolUse", "matcher": "b", "command": "x.sh"}],
            "declarative": {
                "systemMessageFrom": VALUE,
                "modelConfig": "m",
                "tools": [
                    {"type": "McpServer", "mcpServer": {"name": "s", "toolNames": ["t"]}, "headersFrom": HEADERS},
                    {"type": "Agent", "agent": {"name": "b"}},
                ],
                "deployment": {
                    "replicas": 1,
                    "env": [
                        {"name": "A", "value": "1"},
                        {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                    ],
                },
                "a2aConfig": {"skills": [{"id": "x"}]},
            },
            "skills": {"refs": ["x"]},
            "allowedNamespaces": {"from": "All"},
        },
    ),
    "ModelConfig": head(
        "ModelConfig",
        {"provider": "OpenAI", "model": "m", "openAI": {"temperature": "1", "maxTokens": 3}, "tls": {"disableVerify": True}},
    ),
    "ModelConfig of Anthropic": head(
        "ModelConfig", {"provider": "Anthropic", "model": "m", "anthropic": {"temperature": "1"}}
    ),
    "ModelConfig of Ollama": head("ModelConfig", {"provider": "Ollama", "model": "m", "ollama": {"host": "h"}}),
    "RemoteMCPServer": head(
        "RemoteMCPServer", {"description": "d", "url": "http://x", "timeout": "5s", "headersFrom": HEADERS}
    ),
    "MCPServer": head(
        "MCPServer",
        {"transportType": "stdio", "deployment": {"cmd": "x", "args": ["y"], "env": {"A": "1"}, "resources": {"limits": {}}}},
        "v1alpha1",
    ),
}  # fmt: skip
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}, "stringData": {"k": "v"}}
WORKFLOW = {
    "tracker": {"kind": "folder", "provider": {"path": "issues"}, "active_states": ["Todo"]},
    "polling": {"interval_ms": 5},
    "workspace": {"root": "/tmp/w"},
    "hooks": {"after_create": "true", "timeout_ms": 5},
    "agent": {"kind": "builtin", "model": "scripted/x", "max_concurrent_agents_by_state": {"Todo": 1}},
    "codex": {"command": "codex", "approval_policy": {"reject": {"rules": True}}},
    "server": {"port": 0},
    "x-own": {"a": 1},
}
SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "true", "timeout": 5}]},
            {"matcher": "*", "hooks": [{"type": "http", "url": "http://x", "headers": {"A": "1"}}]},
        ]
    }
}
HOOKS = {
    "version": 1,
    "hooks": [
        {"name": "a", "on": "tool.start", "match": "kind:shell", "shell": "true", "env": {"A": "1"}, "timeout": 5},
        {"name": "b", "on": "tool.start", "command": ["true"]},
        {"name": "c", "on": "tool.start", "http": {"url": "http://x", "headers_from_env": {"A": "B"}}},
    ],
}  # fmt: skip
CASES: dict[str, tuple[str, Any]] = {
    **{f"sympozium {kind}": (f"{kind}.yaml", full(kind)) for kind in sympozium.KINDS},
    **{f"kagent {name}": ("agent.yaml", given) for name, given in KAGENT.items()},
    "sympozium Secret": ("run.yaml", {"kind": "List", "apiVersion": "v1", "items": [full("AgentRun"), SECRET]}),
    "kagent Secret": ("agent.yaml", {"kind": "List", "apiVersion": "v1", "items": [KAGENT["MCPServer"], SECRET]}),
    "a run without its head": ("run.yaml", {"spec": {"task": "t", "lifecycle": {"preRun": []}}}),
    "an agent without its head": ("agent.yaml", {"spec": {"hooks": KAGENT["Agent"]["spec"]["hooks"]}}),
    "WORKFLOW.md": ("WORKFLOW.md", WORKFLOW),
    "settings.json": (".claude/settings.json", SETTINGS),
    "hookline.yaml": ("hookline.yaml", HOOKS),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_an_unknown_key_is_told_at_every_level(case, tmp_path):
    name, given = CASES[case]
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    known = told(file, given)
    untold: list[str] = []
    for path, mapping in mappings(given):
        key = ".".join(path).replace(".[", "[")
        if is_own(case, path) or any(is_below(key, each, file) for each in known):
            continue
        for odd in (ODD, near(mapping)):
            mapping[odd] = 1
            found = told(file, given)
            line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if odd in text)
            del mapping[odd]
            well = [each for each in found if f"{file}:{line}: " in each and odd in each]
            if odd != ODD:
                well = [each for each in well if "did you mean" in each]
            if not well:
                untold.append(f"{key}: {odd}")
    assert not untold, "\n".join(untold)


def told(file: Path, given: Any) -> list[str]:
    file.write_text(written(file, given))
    found = systems.problems(str(file), CheckOptions(files=(str(file),)), [])
    return [str(each).removeprefix("warning: ") for each in found]


def written(file: Path, given: Any) -> str:
    if file.suffix == ".json":
        return json.dumps(given, indent=1)
    text = yaml.dump(given, Dumper=yaml.CSafeDumper, sort_keys=False, width=1000)
    return f"---\n{text}---\nDo it.\n" if file.suffix == ".md" else text


def mappings(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(value, dict):
        if value and "items" not in value:
            yield path, value
        for key, inner in list(value.items()):
            yield from mappings(inner, () if key == "items" else (*path, key))
    for index, inner in enumerate(value if isinstance(value, list) else ()):
        yield from mappings(inner, (*path, f"[{index}]") if path else ())


def is_own(case: str, path: tuple[str, ...]) -> bool:
    # Other settings of Claude Code stand beside its hooks.
    return (
        path[-1:] == ("env",) or any(each in OWN for each in path) or (case == "settings.json" and not path)
    )


def is_below(key: str, message: str, file: Path) -> bool:
    """True if a message is on the key, or on one above it: all of that has no effect, which is told."""
    at = message.removeprefix(f"{file}:").partition(": ")[2].partition(": ")[0]
    return bool(at) and at != "spec" and (key == at or key.startswith((f"{at}.", f"{at}[")))


def near(mapping: dict[str, Any]) -> str:
    """One letter too many in the longest key of a mapping."""
    longest = max(mapping, key=len)
    return f"{longest}x" if len(longest) > 3 else ODD
