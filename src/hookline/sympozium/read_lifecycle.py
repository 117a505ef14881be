"""Reads a `lifecycle` block: the containers before and after a run, and what they may do."""

from __future__ import annotations

import re
from collections.abc import Mapping

from hookline.kube.kinds import LABEL, LONGEST_NAME
from hookline.sympozium.types import HOOK_TIMEOUT, HookSpec, Lifecycle, Rule, SecretRef, Value
from hookline.table import At, Place

RESERVED = frozenset(
    {"AGENT_RUN_ID", "INSTANCE_NAME", "AGENT_NAMESPACE", "AGENT_EXIT_CODE", "AGENT_RESULT", "GATE_MODE"}
)
"""The variables of hooks that nobody can set otherwise."""

VARIABLE = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*", re.ASCII)
LONGEST = {"preRun": 59, "postRun": 58}
"""The name of a container, at most 63 letters, begins with pre- or post-."""
PULL_POLICIES = ("Always", "IfNotPresent", "Never")
GATE_DEFAULTS = ("allow", "block")
ENV_KEYS = ("name", "value", "valueFrom")
SECRET_KEYS = ("name", "key", "optional")
RULE_KEYS = ("apiGroups", "resources", "verbs")
LIFECYCLE_KEYS = ("preRun", "postRun", "rbac", "gateDefault")
_INSTEAD = {
    "hooks": ": hooks stand in preRun and postRun",
    "before": "; did you mean preRun?",
    "after": "; did you mean postRun?",
    "rules": "; did you mean rbac?",
}
HOOK_KEYS = ("name", "image", "imagePullPolicy", "command", "args", "env", "timeout", "gate")
_HOOK_INSTEAD = {
    "run": "; did you mean command?",
    "script": '; did you mean command? Write ["sh", "-c", "..."]',
    "environment": "; did you mean env?",
    "timeoutSeconds": "; did you mean timeout? Write it like 30s",
}
NOT_OF_A_HOOK = (
    "envFrom",
    "workingDir",
    "resources",
    "securityContext",
    "volumeMounts",
    "volumes",
    "retries",
    "when",
    "failurePolicy",
)


def read_lifecycle(at: At) -> Lifecycle:
    """The block as a value. A hook that is wrong is left out and told."""
    at.keys(*LIFECYCLE_KEYS, instead=_INSTEAD)
    before, after = _hooks(at, "preRun"), _hooks(at, "postRun")
    gates = [hook for hook in after if hook.gate]
    if len(gates) > 1:
        at.wrong(
            f"gate hook validation failed: at most one postRun hook may set gate: true, found {len(gates)}",
            "postRun",
        )
    return Lifecycle(
        pre_run=before,
        post_run=after,
        rbac=tuple(filter(None, map(_rule, at.mappings("rbac", '- apiGroups: [""]')))),
        gate_default=at.word("gateDefault", GATE_DEFAULTS, "block"),
        place=at.spot(),
    )


def check_name(at: At, name: str, *inner: str, longest: int = LONGEST_NAME, what: str = "a name") -> bool:
    """Whether it is a DNS label of that length; told where it is not."""
    if not LABEL.fullmatch(name):
        at.wrong(
            f"{name!r} is no DNS label; {what} has small letters, digits and - inside, such as fetch-alerts",
            *inner,
        )
        return False
    if len(name) > longest:
        at.wrong(f"{name!r} has {len(name)} letters; {what} has at most {longest}", *inner)
        return False
    return True


def variable_named(at: At, name: str, *inner: str | int) -> bool:
    """Whether a variable may be set under that name; told where it may not, or is set anyway."""
    if not VARIABLE.fullmatch(name):
        at.wrong(f"{name!r} is no name of a variable; write it like PD_TOKEN", *inner)
        return False
    if name in RESERVED:
        at.note(f"{name} is set for every hook and cannot be set here, so this has no effect", *inner)
        return False
    return True


def _hooks(at: At, key: str) -> tuple[HookSpec, ...]:
    found: dict[str, HookSpec] = {}
    for each in at.mappings(key, "- name: ..."):
        hook = _hook(each, key)
        if hook is None:
            continue
        if hook.name in found:
            first = found[hook.name].place.line
            each.wrong(f"{hook.name!r} is in line {first} already; give each hook of {key} its own", "name")
            continue
        found[hook.name] = hook
    return tuple(found.values())


def _hook(at: At, stage: str) -> HookSpec | None:
    at.keys(*HOOK_KEYS, *NOT_OF_A_HOOK, instead=_HOOK_INSTEAD)
    for key in NOT_OF_A_HOOK:
        if key in at.value:
            at.note("a hook does not have this, so it has no effect", key)
    name = at.text("name", needed="every hook has a name of its own")
    image = at.text("image", needed="it is what the container is made of, such as curlimages/curl:latest")
    fits = bool(name) and check_name(at, name, "name", longest=LONGEST[stage], what=f"a {stage} hook's name")
    if re.search(r"\s", image):
        at.wrong(f"is {image!r}; the name of an image has no space", "image")
        image = ""
    env, places = _env(at)
    timeout = at.duration("timeout")
    if timeout is not None and timeout <= 0:
        at.wrong(f"is {at.value['timeout']!r}; give a time that can be kept, such as 30s", "timeout")
        timeout = None
    command, args = at.texts("command"), at.texts("args")
    gate = at.flag("gate")
    if gate and stage == "preRun":
        at.wrong(
            "gate hook validation failed: gate: true is only valid on postRun hooks, not preRun"
            f' (hook "{name}")',
            "gate",
        )
    if not fits or not image:
        return None
    return HookSpec(
        name=name,
        image=image,
        pull_policy=at.word("imagePullPolicy", PULL_POLICIES, "IfNotPresent"),
        command=command,
        args=args,
        env=env,
        timeout=HOOK_TIMEOUT if timeout is None else timeout,
        gate=gate,
        place=at.spot(),
        places=(
            *(at.spot("command", index) for index in range(len(command))),
            *(at.spot("args", index) for index in range(len(args))),
        ),
        env_places=places,
    )


def _env(at: At) -> tuple[Mapping[str, Value], Mapping[str, Place]]:
    found: dict[str, Value] = {}
    places: dict[str, Place] = {}
    for each in at.mappings("env", "- name: ..."):
        each.keys(*ENV_KEYS)
        name = each.text("name", needed="it is the variable")
        value = _value(each)
        if not name or value is None or not variable_named(each, name, "name"):
            continue
        if name in found:
            each.note(f"{name} is set above too; this one counts", "name")
        found[name] = value
        places[name] = each.spot("value" if isinstance(value, str) else "valueFrom")
    return found, places


def _value(at: At) -> Value | None:
    source = at.mapping("valueFrom")
    if source is None:
        return at.text("value") if "valueFrom" not in at else None
    if "value" in at:
        at.wrong("stands beside value; give one of them", "valueFrom")
        return None
    ref = source.mapping("secretKeyRef")
    if ref is None:
        given = ", ".join(source.value) or "nothing"
        at.wrong(f"has {given}; of a hook's variables only secretKeyRef is a source", "valueFrom")
        return None
    ref.keys(*SECRET_KEYS)
    name, key = (
        ref.text("name", needed="it names the Secret"),
        ref.text("key", needed="it names the key in it"),
    )
    if not name or not key:
        return None
    return SecretRef(name=name, key=key, optional=ref.flag("optional"), place=ref.spot())


def _rule(at: At) -> Rule | None:
    at.keys(*RULE_KEYS, instead={"apiGroup": "; did you mean apiGroups?"})
    for key in RULE_KEYS:
        if key not in at.value:
            at.wrong(f"{key} is missing; a rule has apiGroups, resources and verbs")
            return None
    return Rule(api_groups=at.texts("apiGroups"), resources=at.texts("resources"), verbs=at.texts("verbs"))
