"""Limits on a run: the tools that a `toolPolicy` names, and a `SympoziumPolicy` that an agent refers to.

A tool is named as Sympozium names its own. The built-in agent has others, so a name stands for all its tools of the
same kind: `execute_command` for `bash`, `write_file` for `write_file` and `edit_file`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from hookline.claude import tools
from hookline.errors import FileError, UsageError, meant
from hookline.options import KUBERNETES
from hookline.sympozium.types import Instance, RunSpec
from hookline.table import InList, InMapping, Key, Node, flag, not_here, open_table, text, texts, word

POLICY_REF = "policyRef"
EVERY = "*"
TOOLS: Mapping[str, str] = {name: tool.kind for name, tool in tools.TOOLS["sympozium"].items()}
"""The kind of each tool of Sympozium's."""
VARIABLES = ("TOOL_POLICY_ALLOW", "TOOL_POLICY_DENY")
"""The variables in which the agent is given the names of tools."""
_SYSTEM = ("PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "HOME", "SHELL", "USER", "HOSTNAME", *VARIABLES)
"""Variables that a run under a policy may not set."""
_NOT_ENFORCED = not_here("is not enforced here")


def bound(name: str) -> frozenset[str]:
    """The tools of the built-in agent that a name stands for: of Sympozium's by kind, one of its own, or `*` for all."""
    from hookline.agent.tools import READY  # with all that the agent needs, and most files name no tool

    if name == EVERY:
        return frozenset(READY)
    kind = TOOLS.get(name)
    return frozenset(
        each.id for each in READY.values() if (each.id == name if kind is None else each.kind == kind)
    )


def permitted(allowed: Iterable[str], denied: Iterable[str]) -> list[str]:
    """The tools of the built-in agent under a `toolPolicy`: none given are all, and a denial counts more."""
    from hookline.agent.tools import READY

    given = list(allowed)
    may = (_all_bound(given) if given else bound(EVERY)) - _all_bound(denied)
    return [name for name in READY if name in may]


def unbound(run: Instance) -> list[FileError]:
    """One for each name of a `toolPolicy` that stands for no tool of the built-in agent."""
    return [
        place.problem(f"{name!r} matches no tool of the built-in agent{_meant_tool(name)}")
        for name, place in run.places.items()
        if name in (*run.tools_allowed, *run.tools_denied) and not bound(name)
    ]


def left_to_agent(run: Instance) -> list[str]:
    """A note on a run with limits on tools whose agent is not the built-in one."""
    if not run.tools_allowed and not run.tools_denied:
        return []
    return [f"the tools are limited by the agent's command, if it reads {' and '.join(VARIABLES)}"]


def without_effect(run: Instance, *, builtin: bool) -> list[str]:
    """Notes on the limits on tools that have no effect on the agent of a run."""
    return list(map(str, unbound(run))) if builtin else left_to_agent(run)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """A `SympoziumPolicy`: the limits that are enforced on the runs of agents that refer to it."""

    name: str
    namespace: str = "default"
    tools_allowed: tuple[str, ...] = ()
    tools_denied: tuple[str, ...] = ()
    registries: tuple[str, ...] = ()
    denied_resources: tuple[str, ...] = ()
    sandbox: bool = False
    runtime_class: str = ""
    runtime_classes: tuple[str, ...] = ()


def policy_of(run: Instance, policies: Iterable[Policy]) -> Policy | None:
    """The policy that a run or agent refers to; a FileError says that it is not among them."""
    if not run.policy:
        return None
    for each in policies:
        if (each.name, each.namespace) == (run.policy, run.namespace):
            return each
    raise run.places.get(POLICY_REF, run.place).problem(
        f"there is no SympoziumPolicy {run.policy!r} in the namespace {run.namespace!r}, so nothing would be enforced;"
        " put it into the same file"
    )


def governed(run: RunSpec, policy: Policy, on: str) -> RunSpec:
    """The run with the limits of its policy, at that place; a FileError names the first that it breaks."""
    for broken in breaches(run, policy, on):
        raise broken
    sandbox = run.sandbox
    if sandbox and sandbox.enabled and not sandbox.runtime_class:
        sandbox = replace(sandbox, runtime_class=policy.runtime_class)
    return replace(
        run,
        sandbox=sandbox,
        tools_allowed=run.tools_allowed or policy.tools_allowed,
        tools_denied=tuple(dict.fromkeys((*run.tools_denied, *policy.tools_denied))),
    )


def breaches(run: Instance, policy: Policy, on: str = "") -> Iterator[FileError]:
    """One for each limit of the policy that a run breaks; without a place, those that every place has."""
    by = f"by the SympoziumPolicy {policy.name!r}"
    for name in run.tools_allowed:
        if _is_denied(name, policy):
            yield run.places.get(name, run.place).problem(f"tool {name!r} is denied {by}")
    for hook in run.hooks.containers:
        if policy.registries and not _is_of(hook.image, policy.registries):
            allowed = ", ".join(policy.registries)
            yield hook.place.problem(f"image {hook.image!r} is not allowed {by}; allowed: {allowed}")
    denied = {*policy.denied_resources, *((EVERY,) if policy.denied_resources else ())}
    for resource in dict.fromkeys(each for rule in run.hooks.rbac for each in rule.resources):
        if {resource, resource.partition("/")[0]} & denied:
            yield run.hooks.place.problem(f"rbac asks for {resource!r}, which is denied {by}")
    for name in run.env if isinstance(run, RunSpec) else ():
        if name in _SYSTEM:
            yield run.place.problem(f"env sets {name}, which is denied {by}")
    yield from _unsandboxed(run, policy, on, by)


def _unsandboxed(run: Instance, policy: Policy, on: str, by: str) -> Iterator[FileError]:
    sandbox = run.sandbox if run.sandbox and run.sandbox.enabled else None
    if sandbox and policy.runtime_classes and sandbox.runtime_class not in ("", *policy.runtime_classes):
        allowed = ", ".join(policy.runtime_classes)
        yield run.place.problem(
            f"runtime class {sandbox.runtime_class!r} is not allowed {by}; allowed: {allowed}"
        )
    if not policy.sandbox or not on:
        return
    if on == KUBERNETES and sandbox is None:
        yield run.place.problem(f"a sandbox is required {by}; write agentSandbox: {{enabled: true}}")
    elif on != KUBERNETES and not _isolates(on):
        yield run.place.problem(f"a sandbox is required {by}; use --on sandbox or --on container")


def _isolates(on: str) -> bool:
    from hookline.runners.places import PLACES

    return PLACES[on].isolates


def _is_denied(name: str, policy: Policy) -> bool:
    """True if a tool, or one that its name stands for here, is not among those that the policy permits."""
    tools = bound(name)
    if tools:
        return not tools <= set(permitted(policy.tools_allowed, policy.tools_denied))
    unlisted = bool(policy.tools_allowed) and name not in policy.tools_allowed
    return unlisted or bool({name, EVERY} & set(policy.tools_denied))


def _all_bound(names: Iterable[str]) -> frozenset[str]:
    return frozenset[str]().union(*map(bound, names))


def _meant_tool(name: str) -> str:
    if name in TOOLS:
        return ", which has none of that kind"
    return meant(name, dict.fromkeys((*TOOLS, *bound(EVERY))))


def _is_of(image: str, registries: Iterable[str]) -> bool:
    """True if an image is below one of the registries or paths, both written out as Docker reads them."""
    from hookline.images.reference import Reference

    try:
        found = Reference.read(image)
    except UsageError:
        return False
    whole = f"{found.registry}/{found.repository}/"
    return any(whole.startswith(f"{each.rstrip('/')}/") for each in registries)


def _tool_rule(node: Node, values: dict[str, Any]) -> tuple[str, str] | None:
    name, action = values.get("tool"), values.get("action")
    if not name or not action:
        return None
    if name not in TOOLS and not bound(name):
        node.note(f"{name!r} is no tool{_meant_tool(name)}", "tool")
    if action == "ask":
        node.note("nobody is asked here, so the tool is denied", "action")
    return name, action


def _tool_gating(_node: Node, values: dict[str, Any]) -> dict[str, Any]:
    """The lists of a `toolPolicy`; where nothing is allowed but by a rule and no rule does, all is denied."""
    rules: tuple[tuple[str, str], ...] = values.get("rules", ())
    allowed = tuple(name for name, action in rules if action == "allow")
    denied = tuple(name for name, action in rules if action != "allow")
    if values.get("defaultAction") != "deny":
        return {"tools_denied": denied}
    return {"tools_allowed": allowed, "tools_denied": denied if allowed else (EVERY, *denied)}


def _sandbox_policy(_node: Node, values: dict[str, Any]) -> dict[str, Any]:
    inner: dict[str, Any] = values.get("agentSandboxPolicy", {})
    required = (inner.pop("required", False), values.get("required", False))
    return {**inner, "sandbox": any(required)}


def _as_given(_node: Node, values: dict[str, Any]) -> dict[str, Any]:
    return values


def _part(keys: Mapping[str, Key], make: Callable[[Node, dict[str, Any]], Any] = _as_given) -> Key:
    return Key(InMapping(open_table(keys), make))


_RULE = open_table(
    {
        "tool": Key(text, needed="it names the tool"),
        "action": Key(word("allow", "deny", "ask", called="action"), needed="it is allow or deny"),
    },
)
POLICY = open_table(
    {
        "toolGating": _part(
            {
                "defaultAction": Key(word("allow", "deny", called="action")),
                "rules": Key(InList(_RULE, _tool_rule, "- tool: ...")),
            },
            _tool_gating,
        ),
        "imagePolicy": _part({"allowedRegistries": Key(texts, field="registries")}),
        "lifecyclePolicy": _part(
            {"deniedResources": Key(texts, field="denied_resources"), "maxRetryAttempts": _NOT_ENFORCED}
        ),
        "sandboxPolicy": _part(
            {
                "required": Key(flag),
                "agentSandboxPolicy": _part(
                    {
                        "required": Key(flag),
                        "defaultRuntimeClass": Key(text, field="runtime_class"),
                        "allowedRuntimeClasses": Key(texts, field="runtime_classes"),
                    }
                ),
                **dict.fromkeys(("defaultImage", "maxCPU", "maxMemory"), _NOT_ENFORCED),
                **dict.fromkeys(("allowHostMounts", "seccompProfile"), _NOT_ENFORCED),
            },
            _sandbox_policy,
        ),
        **dict.fromkeys(("subagentPolicy", "featureGates", "networkPolicy", "modelPolicy"), _NOT_ENFORCED),
        **dict.fromkeys(("skillPolicy", "harnessPolicy"), _NOT_ENFORCED),
    },
    {
        "tools": "; did you mean toolGating?",
        "toolPolicy": "; did you mean toolGating?",
        "rules": ": it belongs under toolGating",
        "allowedRegistries": ": it belongs under imagePolicy",
        "deniedResources": ": it belongs under lifecyclePolicy",
    },
)
"""The keys under `spec` of a SympoziumPolicy."""


def read_policy(_node: Node, spec: Node, name: str, namespace: str) -> Policy:
    limits: dict[str, Any] = {}
    for part in POLICY.read(spec).values():
        limits |= part
    return Policy(name=name, namespace=namespace, **limits)
