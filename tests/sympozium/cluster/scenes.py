"""Runs worth breaking off, each as a function that sets the scene anew."""

import json
from collections.abc import Callable
from typing import Any

from tests.kube.memory_cluster import Play
from tests.sympozium.cluster.world import Scene, agent_run, answered, hook

RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}]
PULL = ("ImagePullBackOff", "Back-off pulling image")


def scene(
    plays: dict[str, Play] | None = None, *, spec: dict[str, Any] | None = None, **lifecycle: Any
) -> Scene:
    return Scene(run=agent_run(lifecycle=lifecycle, **(spec or {})), plays=plays or {})


def both(**plays: Play) -> Scene:
    """Two hooks before, three after, and a right."""
    named = {name.replace("_", "-"): play for name, play in plays.items()}
    return scene(
        named,
        preRun=[hook("a"), hook("b")],
        postRun=[hook("c"), hook("d"), hook("e")],
        rbac=RULES,
    )


def verdict(action: str = "approve", **more: str) -> str:
    return json.dumps({"action": action, "by": "ada", **more})


def gate(text: str = "", *, default: str = "block", **play: Any) -> Scene:
    """A gate in the middle of the list. It gives that verdict as soon as it runs."""
    made = scene(
        preRun=[hook("a")],
        postRun=[hook("c"), hook("ask", gate=True, timeout="24h"), hook("d")],
        gateDefault=default,
    )
    made.plays["post-ask"] = Play(then=lambda: made.annotate(text) if text else None, **play)
    return made


def sandboxed() -> Scene:
    return scene(
        spec={"agentSandbox": {"enabled": True, "runtimeClass": "gvisor"}},
        preRun=[hook("a")],
        postRun=[hook("c"), hook("d")],
    )


def skipped() -> Scene:
    says = answered("nothing to do", status="skipped")
    return scene({"agent": Play(says=says)}, preRun=[hook("a"), hook("b")], postRun=[hook("c")])


def over_time() -> Scene:
    made = both(agent=Play(seconds=None, says="thinking"))
    made.run["spec"]["timeout"] = "30s"
    return made


SCENES: dict[str, Callable[[], Scene]] = {
    "no hooks": lambda: scene(),
    "hooks before and after": both,
    "the second hook before fails": lambda: both(pre_b=Play(code=3, says="no net")),
    "the second hook before hangs": lambda: both(pre_b=Play(seconds=None)),
    "an image before cannot be had": lambda: both(pre_b=Play(never=PULL)),
    "the agent fails": lambda: both(agent=Play(code=7, says="it broke")),
    "the agent takes too long": over_time,
    "the agent is killed for its memory": lambda: both(agent=Play(code=137, reason="OOMKilled")),
    "the first hook after fails": lambda: both(post_c=Play(code=1)),
    "the second hook after hangs": lambda: both(post_d=Play(seconds=None)),
    "an image after cannot be had": lambda: both(post_d=Play(never=PULL)),
    "a hook after is put away by its node": lambda: both(post_c=Play(evicted=True)),
    "nothing to do": skipped,
    "a gate that approves and waits on": lambda: gate(verdict(), seconds=None),
    "a gate that rejects and ends": lambda: gate(verdict("reject", response="no")),
    "a gate that says nothing": lambda: gate(),
    "in a sandbox": sandboxed,
}
