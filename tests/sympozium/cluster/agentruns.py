"""AgentRuns on a real cluster: how they are written, how one waits for what becomes of them, how the API is tried from inside."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from hookline.sympozium.types import GROUP
from tests.kube.kubectl import Kubectl

BUSYBOX = "localhost/busybox:1.35"
IMAGE = "localhost/hookline:test"
ENDS = ("Succeeded", "Failed", "Skipped")
LIMIT = 400.0
T = TypeVar("T")
Object = dict[str, Any]

# What it is given are requests, `VERB PATH [BODY]`; it prints pairs with the code that each got
# (not as `name: value`, of which the operator would mask some). UNTIL asks again
# until the answer has that text.
PROBE = r"""
import json, os, ssl, sys, time, urllib.error, urllib.request
place = '/var/run/secrets/kubernetes.io/serviceaccount/token'
token = open(place).read() if os.path.exists(place) else ''
told = [['holds one', bool(token)]]
open_to_all = ssl._create_unverified_context()
def asked(verb, path, body=None):
    kind = 'application/merge-patch+json' if verb == 'PATCH' else 'application/json'
    head = {'Content-Type': kind, **({'Authorization': 'Bearer ' + token} if token else {})}
    data = body.encode() if body else None
    request = urllib.request.Request('https://10.96.0.1' + path, data=data, headers=head, method=verb)
    try:
        with urllib.request.urlopen(request, context=open_to_all, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, ''
for word in sys.argv[1:]:
    verb, path, *rest = word.split(' ', 2)
    body = rest[0].replace('TOKEN', token) if rest else None
    if verb != 'UNTIL':
        told.append([verb + ' ' + path, asked(verb, path, body)[0]])
        continue
    until = time.monotonic() + 300
    while body not in asked('GET', path)[1] and time.monotonic() < until:
        time.sleep(0.5)
print(json.dumps(told))
"""
# The test image has no bash, which is what the agent's tool of that name starts.
ARRANGE = r"""
mkdir -p /workspace/bin && printf '#!/bin/sh\nexec /bin/sh "$@"\n' > /workspace/bin/bash
chmod +x /workspace/bin/bash && printf %s "$SCRIPT" > /workspace/script.json && printf %s "$PROBE" > /workspace/probe.py
"""
SCRIPTED = {"provider": "scripted", "model": "/workspace/script.json"}


def run(name: str, **spec: Any) -> Object:
    """An AgentRun that answers without a model, unless it is given one."""
    given = {"task": "look", **({} if "model" in spec else {"dryRun": True}), **spec}
    return {"apiVersion": GROUP, "kind": "AgentRun", "metadata": {"name": name}, "spec": given}


def hook(name: str, script: str, **fields: Any) -> Object:
    """A hook that is a line of shell."""
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", script], **fields}


def probe(name: str, *requests: str, **fields: Any) -> Object:
    """A hook that tries the API."""
    return {"name": name, "image": IMAGE, "command": ["python3", "-c", PROBE, *requests], **fields}


def arranged(*turns: Any) -> Object:
    """The hook before a scripted agent that leaves its script and what it needs."""
    variables = [{"name": "SCRIPT", "value": json.dumps(turns)}, {"name": "PROBE", "value": PROBE}]
    return hook("arrange", ARRANGE, env=variables)


def scripted(**spec: Any) -> Object:
    """What a run with a scripted agent has besides."""
    path = "/workspace/bin:/usr/local/bin:/usr/bin:/bin"
    return {"model": SCRIPTED, "env": {"PATH": path, **spec.pop("env", {})}, **spec}


def bash(command: str) -> Object:
    """A turn of the agent's: it runs a command."""
    return {"tools": [{"name": "bash", "arguments": {"command": command}}]}


def rule(*resources: str, verbs: tuple[str, ...] = ("get",), groups: tuple[str, ...] = ("",)) -> Object:
    return {"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)}


def until(found: Callable[[], T], what: str, limit: float = LIMIT) -> T:
    """What it finds, once that is something."""
    end = time.monotonic() + limit
    while not (answer := found()):
        assert time.monotonic() < end, f"after {limit:g} s: {what}"
        time.sleep(0.5)
    return answer


def status(kubectl: Kubectl, name: str) -> Object:
    return kubectl.get("agentrun", name).get("status", {})


def ended(kubectl: Kubectl, name: str, limit: float = LIMIT) -> Object:
    """The status of a run that has ended, and of which all is put away."""

    def found() -> Object | None:
        now = kubectl.get("agentrun", name)
        over = now.get("status", {}).get("phase") in ENDS and not now["metadata"].get("finalizers")
        return now["status"] if over else None

    return until(found, f"{name} has not ended; its status is {status(kubectl, name)}", limit)


def reached(kubectl: Kubectl, name: str, phase: str, limit: float = LIMIT) -> None:
    """Waits for a phase."""
    until(lambda: status(kubectl, name).get("phase") == phase, f"{name} is not {phase}", limit)


def hooks(told: Object) -> Object:
    """Each hook of a status by its name."""
    return {each["name"]: each for each in told.get("hooks", ())}


def said(told: Object, name: str) -> Object:
    """What a probe has printed."""
    return dict(json.loads(hooks(told)[name]["tail"].splitlines()[-1]))


def condition(told: Object, kind: str) -> Object | None:
    return next((each for each in told.get("conditions", ()) if each["type"] == kind), None)


def there(kubectl: Kubectl, kind: str, name: str) -> bool:
    return kubectl("get", kind, name).code == 0


def events(kubectl: Kubectl, name: str) -> dict[str, str]:
    """The events of a run: the last message of each reason."""
    found = kubectl.get("events", f"--field-selector=involvedObject.kind=AgentRun,involvedObject.name={name}")
    return {each["reason"]: each["message"] for each in found["items"]}


@contextmanager
def no_operator(kubectl: Kubectl) -> Iterator[None]:
    """While this lasts, nobody looks at the runs."""
    where = ("-n", "hookline-system")

    def operators() -> list[Object]:
        return kubectl.get("pods", *where, "-l", "app.kubernetes.io/component=operator")["items"]

    kubectl.well("scale", "deployment/hookline-operator", *where, "--replicas=0")
    try:
        until(lambda: not operators(), "the operators are gone")
        yield
    finally:
        kubectl.well("scale", "deployment/hookline-operator", *where, "--replicas=2")


CLEAN = hook("clean", "echo cleaned with $AGENT_EXIT_CODE: $AGENT_RESULT")
"""A hook after the run that tells that it ran."""


def cleaned(told: Object) -> str:
    """What that hook said, if it ran."""
    found = hooks(told)["clean"]
    return found["tail"] if found["state"] == "succeeded" else ""


def pods(kubectl: Kubectl, name: str) -> list[Object]:
    return kubectl.get("pods", "-l", f"sympozium.ai/agent-run={name}")["items"]


def nothing_left(kubectl: Kubectl, name: str) -> None:
    """Waits until all that was made for a run is gone."""
    kinds = "jobs,persistentvolumeclaims,serviceaccounts,roles,rolebindings,secrets"
    until(
        lambda: not kubectl.get(kinds, "-l", f"sympozium.ai/agent-run={name}")["items"],
        f"something is left of {name}",
    )
