"""Runs on a real cluster, one for each case, all at once: what was seen of each while it ran, and what is left of it."""

import json
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from hookline.sympozium.phases import NO_VERDICT, REJECTED
from hookline.sympozium.types import GROUP
from tests.kube.fixtures import BUSYBOX
from tests.kube.kubectl import Kubectl
from tests.kube.outside import Outside, outside_of_the_cluster
from tests.kube.watch_log import Change, Watched

pytestmark = [pytest.mark.real, pytest.mark.timeout(1800)]

Object = dict[str, Any]

LIMIT = 1200.0
"""Seconds for all runs together, however busy the machine is."""
AT_ONCE = 10
"""Runs that are on their way at the same time: a small node with more of them leaves the operator no time."""
ENDS = ("Succeeded", "Failed", "Skipped")
FINALIZER = "hookline.dev/agentrun"
VERDICT = "sympozium.ai/gate-verdict"
TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount/token"
ANSWER = """It's "done": $(date) and $(AGENT_RUN_ID), $$ and $HOME, `ls`, größer\nthan ever"""
LONG = "é" * 20_000 + "x"
HUGE = "0123456789abcdef" * 65_536
CONFIGMAPS = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "create"]}]
NAMES = "AGENT_RUN_ID INSTANCE_NAME AGENT_NAMESPACE LEVEL OWN AGENT_EXIT_CODE"
SHOW = f"for name in {NAMES}; do env | grep ^$name=; done"


def tell(key: str, said: str) -> str:
    return f'wget -q -O /dev/null --post-data "{said}" $OUTSIDE/told/$AGENT_RUN_ID/{key}'


def hold(name: str) -> str:
    return f"wget -q -O /dev/null $OUTSIDE/hold/$AGENT_RUN_ID/{name}"


HOW = f"{tell('code', '$AGENT_EXIT_CODE')}; {tell('result', '$AGENT_RESULT')}"


def hook(name: str, *script: str, **more: Any) -> Object:
    return {"name": name, "image": BUSYBOX, "command": ["sh", "-c", "set -e; " + "; ".join(script)], **more}


def lifecycle(before: list[Object] | None = None, after: list[Object] | None = None, **more: Any) -> Object:
    both = {"preRun": before, "postRun": after}
    return {"lifecycle": {**{key: value for key, value in both.items() if value}, **more}}


def calls(name: str, **arguments: Any) -> Object:
    return {"tools": [{"name": name, "arguments": arguments}]}


NOTHING: Mapping[str, str] = MappingProxyType({})


class Case(NamedTuple):
    """A run. Each of `holds` is a place where it waits until it was seen to run there, in that phase; `turns` are those of
    its model, where it has one; `then` is done once, when it was seen in its phase and stands at the place before it."""

    spec: Object
    holds: Mapping[str, str] = NOTHING
    turns: list[Any] | None = None
    then: tuple[str, str, Callable[[Kubectl, str], object]] | None = None
    annotations: Mapping[str, str] = NOTHING


def annotated(**verdict: str) -> Callable[[Kubectl, str], object]:
    text = json.dumps({"by": "ada", **verdict})
    return lambda kubectl, run: kubectl.well("annotate", "agentrun", run, f"{VERDICT}={text}")


def deleted(kubectl: Kubectl, run: str) -> object:
    return kubectl.well("delete", "agentrun", run, "--wait=false")


def gated(*script: str, then: Any = None, default: str = "block", **more: Any) -> Case:
    """A gate after a hook that stands before it in the file, and is yet run after it."""
    after = [hook("later", tell("later", "$AGENT_RESULT")), hook("gate", *script, gate=True, timeout="20m")]
    spec = {"dryRun": True, "task": "speak", **lifecycle(after=after, gateDefault=default)}
    when = ("PostRunning", "gate", then) if then else None
    return Case(spec, then=when, **more)


SCRIPT = [
    calls("write_file", path="report.md", content="all quiet"),
    calls("read_file", path="a"),
    {"text": "ok", "expect": "PD-1"},
]

CASES: dict[str, Case] = {
    "plain": Case({}, turns=["fine"], holds={"agent": "Running"}),
    "before": Case(
        lifecycle(
            [
                hook(
                    "one",
                    hold("one"),
                    "echo 1 > /workspace/context/a; echo x > /tmp/x; echo y > /ipc/y",
                    tell("task", "$(cat /ipc/input/task.json)"),
                    tell("token", f"$(ls {TOKEN} 2>&1)"),
                ),
                hook("two", tell("seen", "$(cat /workspace/context/a /tmp/x /ipc/y)"), hold("two")),
            ]
        ),
        turns=[calls("read_file", path="context/a"), {"text": "read it", "expect": "1"}],
        holds={"one": "Pending", "two": "Pending", "agent": "Running"},
    ),
    "after": Case(
        lifecycle(
            after=[
                hook(
                    "one", tell("report", "$(cat /workspace/report.md)"), hold("one"), "echo 1 > /workspace/1"
                ),
                hook("two", tell("order", "$(cat /workspace/1)"), HOW),
            ]
        ),
        turns=[calls("write_file", path="report.md", content="all quiet"), "written"],
        holds={"agent": "Running", "one": "PostRunning"},
    ),
    "both": Case(
        {
            "model": {"provider": "scripted", "model": "/workspace/script.json"},
            "env": {"LEVEL": "debug", "OWN": "the run's"},
            **lifecycle(
                [
                    hook(
                        "prepare",
                        "echo PD-1 > /workspace/a",
                        'echo "$SCRIPT" > /workspace/script.json',
                        tell("before", f"$({SHOW}; ls -d /workspace /ipc /tmp)"),
                        env=[{"name": "SCRIPT", "value": json.dumps(SCRIPT)}],
                    )
                ],
                [
                    hook(
                        "report",
                        tell("files", "$(cat /workspace/a /workspace/report.md)"),
                        tell("requests", "$(cat /ipc/tools/exec-request-*)"),
                        tell("results", "$(cat /ipc/tools/exec-result-*)"),
                        tell("after", f"$({SHOW}; ls -d /workspace /ipc /tmp)"),
                        HOW,
                        env=[{"name": "OWN", "value": "mine"}, {"name": "AGENT_RUN_ID", "value": "forged"}],
                    )
                ],
            ),
        }
    ),
    "answer": Case(lifecycle(after=[hook("a", HOW)]), turns=[ANSWER]),
    "long": Case(lifecycle(after=[hook("a", HOW)]), turns=[LONG]),
    "huge": Case({}, turns=[HUGE]),
    "failing": Case(lifecycle(after=[hook("a", HOW)]), turns=[{"error": "quota exceeded"}]),
    "after-fails": Case(
        {
            "dryRun": True,
            **lifecycle(
                after=[
                    hook("one", tell("one", "ran")),
                    hook("two", tell("two", "ran"), "echo bye", "exit 3"),
                    hook("three", tell("three", "ran")),
                    hook("four", tell("four", "ran"), "exit 4"),
                    hook("five", tell("five", "ran")),
                ]
            ),
        }
    ),
    "before-fails": Case(
        {
            "dryRun": True,
            **lifecycle(
                [hook("one", "echo no net", "exit 5"), hook("two", tell("two", "ran"))], [hook("a", HOW)]
            ),
        }
    ),
    "granted": Case(
        {
            "dryRun": True,
            **lifecycle([hook("one", tell("token", f"$(ls {TOKEN})"), hold("one"))], rbac=CONFIGMAPS),
        },
        holds={"one": "Pending"},
    ),
    "fields": Case(
        {
            "dryRun": True,
            **lifecycle(
                [
                    {
                        "name": "args",
                        "image": BUSYBOX,
                        "imagePullPolicy": "Never",
                        "command": [
                            "sh",
                            "-c",
                            'wget -q -O /dev/null --post-data "$0 $1 $PD ${NO-unset}" "$2"',
                        ],
                        "args": ["$(INSTANCE_NAME)", "$(date)", "$(OUTSIDE)/told/$(AGENT_RUN_ID)/args"],
                        "env": [
                            {
                                "name": "PD",
                                "valueFrom": {"secretKeyRef": {"name": "pagerduty", "key": "token"}},
                            },
                            {
                                "name": "NO",
                                "valueFrom": {"secretKeyRef": {"name": "none", "key": "x", "optional": True}},
                            },
                        ],
                    },
                    hook("other", tell("other", "${PD-unset}")),
                ]
            ),
        }
    ),
    "never": Case(
        {
            "dryRun": True,
            **lifecycle(
                [hook("one", "true") | {"image": "localhost/none:1", "imagePullPolicy": "Never"}],
                [hook("a", HOW)],
            ),
        }
    ),
    "hook-slow": Case(
        {"dryRun": True, **lifecycle([hook("one", "sleep 900", timeout="2s")], [hook("a", HOW)])}
    ),
    "after-slow": Case(
        {
            "dryRun": True,
            **lifecycle(after=[hook("one", "sleep 900", timeout="2s"), hook("two", tell("two", "ran"))]),
        }
    ),
    "slow": Case({"timeout": "5s", **lifecycle(after=[hook("a", HOW)])}, turns=[{"hang": True}]),
    "two-gates": Case(
        {"dryRun": True, **lifecycle(after=[hook("a", "true", gate=True), hook("b", "true", gate=True)])}
    ),
    "approved": gated(hold("gate"), then=annotated(action="approve")),
    "rejected": gated(hold("gate"), then=annotated(action="reject")),
    "rejected-so": gated(hold("gate"), then=annotated(action="reject", response="not today")),
    "rewritten": gated(hold("gate"), then=annotated(action="rewrite", response="nicer")),
    "unanswered": gated("true"),
    "gate-fails": gated("exit 1"),
    "gate-open": gated("exit 1", default="allow"),
    "too-early": gated("true", annotations={VERDICT: '{"action": "approve"}'}),
    "skip": Case(
        {
            "dryRun": True,
            **lifecycle(
                [hook("one", "echo ' nothing new ' > /ipc/control/skip"), hook("two", tell("two", "ran"))],
                [hook("a", HOW)],
            ),
        }
    ),
    "skip-bare": Case({"dryRun": True, **lifecycle([hook("one", ": > /ipc/control/skip")])}),
    "object": Case(
        {
            "dryRun": True,
            "task": {"mode": "sidecar-driven", "tool": "ping", "parameters": {"host": "a"}},
            **lifecycle([hook("one", tell("task", "$(cat /ipc/input/task.json)"))]),
        }
    ),
    "deleted": Case(
        lifecycle(after=[hook("a", HOW)]),
        turns=[{"hang": True}],
        then=("Running", "", deleted),
    ),
    "keep": Case({"dryRun": True, "cleanup": "keep", **lifecycle(after=[hook("a", "echo kept")])}),
    "of-pack": Case({"dryRun": True, "agentRef": "team-triage"}),
}
PACK = {
    "apiVersion": GROUP,
    "kind": "PersonaPack",
    "metadata": {"name": "team"},
    "spec": {
        "personas": [
            {
                "name": "triage",
                "systemPrompt": "You are an SRE.",
                **lifecycle([hook("fetch", tell("fetched", "for $INSTANCE_NAME"))]),
            },
            {"name": "writer", "systemPrompt": "You write."},
        ]
    },
}
ENSEMBLE = {
    "apiVersion": GROUP,
    "kind": "Ensemble",
    "metadata": {"name": "idle"},
    "spec": {"agentConfigs": [{"name": "one", "systemPrompt": "You wait."}]},
}
ONCALL = {
    "apiVersion": GROUP,
    "kind": "Agent",
    "metadata": {"name": "oncall"},
    "spec": {"agents": {"default": {"model": "unused"}}},
}
SECRET = {
    "apiVersion": "v1",
    "kind": "Secret",
    "metadata": {"name": "pagerduty"},
    "stringData": {"token": "very-secret-word"},
}


class Ran:
    """All runs of this file, with what was seen of them."""

    def __init__(self, kubectl: Kubectl, watched: Watched, outside: Outside) -> None:
        self.kubectl, self.watched, self.outside = kubectl, watched, outside

    def run(self, name: str) -> Object:
        """A run as it was last seen."""
        return self.watched.of("agentruns", name)[-1].object

    def status(self, name: str) -> Object:
        return self.run(name).get("status", {})

    def phases(self, name: str) -> list[str]:
        return [phase for _, phase in self.watched.phases(name)]

    def came(self, name: str, phase: str) -> int:
        """The number of the change that brought a phase."""
        return next(number for number, each in self.watched.phases(name) if each == phase)

    def told(self, name: str, key: str) -> str | None:
        return self.outside.told.get((name, key))

    def jobs(self, name: str) -> list[str]:
        """The names of the Jobs of a run, as they came."""
        return list(dict.fromkeys(each.name for each in self.watched.owned("jobs", name)))

    def pods(self, name: str, component: str) -> list[Change]:
        label = "sympozium.ai/component"
        found = self.watched.owned("pods", name)
        return [each for each in found if each.object["metadata"]["labels"][label] == component]

    def runs(self, name: str, place: str) -> bool:
        """Whether the container of that hook, or the agent's, was last seen to run."""
        last = {each.name: each.object for each in self.watched.owned("pods", name)}
        states = {key: state for pod in last.values() for key, state in containers(pod).items()}
        return any("running" in states.get(each, {}) for each in (place, f"pre-{place}", f"post-{place}"))

    def hooks(self, name: str) -> dict[str, Object]:
        return {each["name"]: each for each in self.status(name)["hooks"]}

    def over(self, name: str) -> bool:
        """Whether nothing more will be done for a run."""
        seen = self.watched.of("agentruns", name)
        if not seen or seen[-1].type == "DELETED":
            return bool(seen)
        last = seen[-1].object
        ended = last.get("status", {}).get("phase") in ENDS
        return ended and FINALIZER not in last["metadata"].get("finalizers", ())


def until(true: Callable[[], object], limit: float = 180.0) -> bool:
    """Whether it came true in time."""
    end = time.monotonic() + limit
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.2)
    return True


def manifest(name: str, case: Case, outside: Outside) -> Object:
    spec = {"agentRef": "oncall", "task": "look at it", **case.spec}
    if case.turns is not None:
        spec["model"] = outside.model(name, *_held(name, case, outside))
    own = {"OUTSIDE": outside.url, "OPENAI_API_KEY": "any"}
    spec["env"] = {**own, **spec.get("env", {})}
    metadata = {"name": name, "annotations": dict(case.annotations)}
    return {"apiVersion": GROUP, "kind": "AgentRun", "metadata": metadata, "spec": spec}


def _held(name: str, case: Case, outside: Outside) -> list[Any]:
    """The turns of a model, of which the first waits where the agent is to wait."""
    turns = list(case.turns or ())
    if "agent" not in case.holds:
        return turns
    first = turns[0]

    def later(_request: object) -> Any:
        outside.held.append((name, "agent"))
        outside.free(name, "agent").wait(600)
        return first

    return [later, *turns[1:]]


def go_on(ran: Ran, done: set[str]) -> None:
    """Let go on what was seen in its phase, and do what is to be done meanwhile."""
    for name, case in CASES.items():
        phase = (ran.phases(name) or [""])[-1]
        for place, wanted in case.holds.items():
            if phase == wanted and (name, place) in ran.outside.held and ran.runs(name, place):
                ran.outside.release(name, place)
        if case.then is None or name in done:
            continue
        wanted, place, then = case.then
        if phase == wanted and (not place or (name, place) in ran.outside.held):
            done.add(name)
            then(ran.kubectl, name)


@pytest.fixture(scope="module")
def outside(operated):
    with outside_of_the_cluster() as made:
        yield made


@pytest.fixture(scope="module")
def ran(operated, outside):
    kinds = ("agentruns", "jobs", "pods", "pvc", "roles", "agents.sympozium.ai")
    with operated.namespace() as kubectl, Watched(kubectl, *kinds) as watched:
        made = Ran(kubectl, watched, outside)
        kubectl.well("create", given=[SECRET, ONCALL, PACK, ENSEMBLE])
        waiting, done = list(CASES), set[str]()

        def all_over() -> bool:
            go_on(made, done)
            begun = [name for name in CASES if name not in waiting]
            left = sum(not made.over(name) for name in begun)
            if not waiting:
                return left == 0
            if next_ones := waiting[: AT_ONCE - left]:
                del waiting[: len(next_ones)]
                given = [manifest(name, CASES[name], outside) for name in next_ones]
                kubectl.well("create", given=given)
            return False

        until(all_over, LIMIT)
        yield made


def containers(pod: Object) -> dict[str, Object]:
    """The state of each container of a pod, in the order in which they run."""
    status = pod.get("status", {})
    both = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    return {each["name"]: each["state"] for each in both}


def values(text: str) -> list[Object]:
    """The JSON values that stand one after another in a text."""
    found: list[Object] = []
    while text := text.strip():
        value, end = json.JSONDecoder().raw_decode(text)
        found.append(value)
        text = text[end:]
    return found


def when(pods: list[Change], container: str, state: str) -> int:
    """The number of the change by which a container was first seen so."""
    return next(each.number for each in pods if state in containers(each.object).get(container, {}))


@pytest.mark.rule("sympozium 1.17.1", "sympozium 1.5")
@pytest.mark.statement("SZ4", "SZ10", "SZ15", "SZ71", "SZ72")
def test_without_hooks_a_run_is_pending_running_and_succeeded(ran):
    assert ran.phases("plain") == ["Pending", "Running", "Succeeded"]
    assert ran.status("plain")["result"] == "fine"
    pods = ran.pods("plain", "agent-run")
    assert when(pods, "agent", "running") < ran.came("plain", "Running")
    assert ran.jobs("plain") == ["plain"]
    assert ran.watched.owned("pvc", "plain") == []
    volumes = {each["name"]: each for each in pods[-1].object["spec"]["volumes"]}
    assert "emptyDir" in volumes["workspace"]


@pytest.mark.rule("sympozium 1.17.2", "sympozium 1.17.11")
@pytest.mark.statement("SZ7", "SZ8", "SZ9", "SZ18", "SZ19", "SZ20", "SZ21", "SZ23", "SZ45")
def test_pre_run_hooks_are_init_containers_that_run_in_order_while_the_run_is_pending(ran):
    assert ran.phases("before") == ["Pending", "Running", "Succeeded"]
    pods = ran.pods("before", "agent-run")
    spec = pods[-1].object["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["prepare", "pre-one", "pre-two"]
    assert when(pods, "pre-one", "terminated") <= when(pods, "pre-two", "running")
    # The second hook waited until the run was seen, and that was Pending; the agent began after it.
    assert (
        when(pods, "pre-two", "terminated") <= when(pods, "agent", "running") < ran.came("before", "Running")
    )
    assert ran.told("before", "seen") == "1\nx\ny"
    assert json.loads(ran.told("before", "task") or "") == {"task": "look at it"}
    assert ran.status("before")["result"] == "read it"
    assert ran.watched.owned("pvc", "before") == []
    assert spec["serviceAccountName"] == "sympozium-agent"
    assert "No such file" in (ran.told("before", "token") or "")


@pytest.mark.rule("sympozium 1.17.3", "sympozium T5")
@pytest.mark.statement("SZ5", "SZ11", "SZ12", "SZ13", "SZ14", "SZ16", "SZ27", "SZ34", "SZ70")
def test_post_run_hooks_are_init_containers_of_one_job_after_the_agent_with_its_workspace(ran):
    assert ran.phases("after") == ["Pending", "Running", "PostRunning", "Succeeded"]
    assert ran.jobs("after") == ["after", "after-postrun"]
    claims = ran.watched.of("pvc", "after-workspace")
    assert claims[0].number < ran.came("after", "Running")
    agent, after = ran.pods("after", "agent-run"), ran.pods("after", "post-run")
    job = ran.watched.of("jobs", "after-postrun")[0]
    assert when(agent, "agent", "terminated") < job.number
    spec = after[-1].object["spec"]
    assert [each["name"] for each in spec["initContainers"]] == ["prepare", "post-one", "post-two"]
    for pod in (agent[-1], after[-1]):
        (volume,) = [each for each in pod.object["spec"]["volumes"] if each["name"] == "workspace"]
        assert volume["persistentVolumeClaim"]["claimName"] == "after-workspace"
    assert (ran.told("after", "report"), ran.told("after", "order")) == ("all quiet", "1")
    assert ran.came("after", "PostRunning") < when(after, "post-one", "terminated")
    assert when(after, "post-two", "terminated") < ran.came("after", "Succeeded")


@pytest.mark.rule("sympozium 1.17.4", "sympozium 5.3")
@pytest.mark.statement("SZ1", "SZ2", "SZ19", "SZ22", "SZ28", "SZ30", "SZ32")
def test_what_was_written_before_the_agent_is_there_after_it_with_its_tool_calls(ran):
    assert ran.phases("both")[-2:] == ["PostRunning", "Succeeded"]
    assert ran.told("both", "files") == "PD-1\nall quiet"
    asked, answered = (values(ran.told("both", key) or "") for key in ("requests", "results"))
    assert [each["_meta"]["tool"] for each in asked] == ["write_file", "read_file"]
    assert [each["id"] for each in answered] == [each["id"] for each in asked]
    assert (answered[1]["exitCode"], "PD-1" in answered[1]["stdout"]) == (0, True)
    assert (ran.told("both", "code"), ran.told("both", "result")) == ("0", "ok")
    assert ran.status("both")["tokenUsage"]["toolCalls"] == 2


@pytest.mark.rule("sympozium 1.17.5", "sympozium 1.10", "sympozium B10")
@pytest.mark.statement("SZ28", "SZ29", "SZ41", "SZ42", "SZ43", "SZ44", "SZ57")
def test_every_hook_has_the_runs_variables_and_its_own(ran):
    before = [
        "AGENT_RUN_ID=both",
        "INSTANCE_NAME=oncall",
        f"AGENT_NAMESPACE={ran.kubectl.name}",
        "LEVEL=debug",
        "OWN=the run's",
    ]
    paths = ["/ipc", "/tmp", "/workspace"]
    assert (ran.told("both", "before") or "").split("\n") == [*before, *paths]
    after = [*before[:-1], "OWN=mine", "AGENT_EXIT_CODE=0", *paths]
    assert (ran.told("both", "after") or "").split("\n") == after


@pytest.mark.rule("sympozium B11", "sympozium X8", "sympozium 1.10")
@pytest.mark.statement("SZ32")
def test_the_answer_reaches_hooks_as_it_is(ran):
    assert ran.phases("answer")[-1] == "Succeeded"
    assert ran.status("answer")["result"] == ANSWER
    assert ran.told("answer", "result") == ANSWER


@pytest.mark.rule("sympozium 1.17.6", "sympozium 1.17.21", "sympozium B11")
@pytest.mark.statement("SZ33")
def test_a_long_answer_is_cut_for_hooks_and_never_inside_a_character(ran):
    assert ran.status("long")["result"] == LONG
    assert ran.told("long", "result") == "é" * 16_384


@pytest.mark.rule("sympozium 1.17.21")
def test_of_an_answer_of_a_megabyte_what_an_object_can_hold_is_kept_and_that_is_told(ran):
    status = ran.status("huge")
    assert status["phase"] == "Succeeded"
    assert len(status["result"]) == 256 * 1024
    assert HUGE.startswith(status["result"])
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("ResultCut", "True")
    assert str(len(HUGE)) in condition["message"]


@pytest.mark.rule("sympozium 1.17.7", "sympozium 1.17.21")
@pytest.mark.statement("SZ31")
def test_after_a_failed_agent_hooks_run_and_know_that_it_failed(ran):
    assert ran.phases("failing")[-2:] == ["PostRunning", "Failed"]
    assert ran.told("failing", "code") == "1"
    assert "quota exceeded" in (ran.told("failing", "result") or "")
    assert "quota exceeded" in ran.status("failing")["error"]


@pytest.mark.rule("sympozium 1.17.8", "sympozium B15", "sympozium C1", "sympozium 2.1")
@pytest.mark.statement("SZ35", "SZ36")
def test_failing_post_run_hooks_change_no_phase_stop_no_other_and_are_one_condition(ran):
    status = ran.status("after-fails")
    assert status["phase"] == "Succeeded"
    assert [ran.told("after-fails", name) for name in ("one", "two", "three", "four", "five")] == ["ran"] * 5
    (condition,) = status["conditions"]
    assert (condition["type"], condition["status"]) == ("PostRunFailed", "True")
    assert "'two' failed: exit code 3; 'four' failed: exit code 4" in condition["message"]
    told = ran.hooks("after-fails")
    assert (told["two"]["state"], told["two"]["exitCode"], told["two"]["tail"]) == ("failed", 3, "bye")
    assert [told[name]["state"] for name in ("one", "three", "five")] == ["succeeded"] * 3
    # After each that failed the rest stands in a further Job.
    assert ran.jobs("after-fails")[1:] == [f"after-fails-postrun{more}" for more in ("", "-2", "-3")]


@pytest.mark.rule("sympozium 1.17.9", "sympozium 2.1")
def test_after_a_failed_pre_run_hook_no_agent_starts_and_post_run_runs(ran):
    assert ran.phases("before-fails") == ["Pending", "PostRunning", "Failed"]
    assert ran.told("before-fails", "two") is None
    pods = ran.pods("before-fails", "agent-run")
    assert not any("running" in containers(each.object).get("agent", {}) for each in pods)
    assert ran.told("before-fails", "code") == "1"
    assert "preRun hook 'one' failed: exit code 5" in ran.status("before-fails")["error"]
    assert ran.hooks("before-fails")["one"]["tail"] == "no net"


@pytest.mark.rule("sympozium 1.17.10", "sympozium X2")
@pytest.mark.statement("SZ6", "SZ50", "SZ53")
def test_a_grant_is_there_while_hooks_run_and_gone_when_the_run_has_ended(ran):
    name = "sympozium-lifecycle-granted"
    role, *_, last = ran.watched.of("roles", name)
    assert role.number < ran.came("granted", "Succeeded")
    assert role.object["rules"] == CONFIGMAPS
    assert role.number < when(ran.pods("granted", "agent-run"), "pre-one", "running")
    assert last.type == "DELETED"
    assert ran.kubectl("get", "agentrun", "granted").code == 0
    for kind in ("role", "rolebinding", "serviceaccount"):
        assert "NotFound" in ran.kubectl("get", kind, name).err
    assert ran.told("granted", "token") == TOKEN
    others = {each.name for each in ran.watched.changes["roles"]}
    assert others == {name}


@pytest.mark.rule("sympozium 1.17.12", "sympozium B9")
@pytest.mark.statement("SZ5", "SZ16")
@pytest.mark.parametrize(
    "name",
    ["after", "both", "failing", "before-fails", "never", "skip", "slow", "hook-slow", "rejected", "deleted"],
)
def test_the_claim_is_made_for_post_run_and_gone_at_the_end_whatever_the_end_is(ran, name):
    claims = ran.watched.of("pvc", f"{name}-workspace")
    assert claims[0].type == "ADDED"
    assert until(lambda: ran.watched.of("pvc", f"{name}-workspace")[-1].type == "DELETED")
    assert until(lambda: "NotFound" in ran.kubectl("get", "job", name).err)
    assert "NotFound" in ran.kubectl("get", "secret", f"{name}-record").err


@pytest.mark.rule("sympozium 1.17.15", "sympozium C6", "sympozium X6", "sympozium 1.10")
@pytest.mark.statement("SZ56", "SZ57")
def test_command_args_and_secrets_are_honoured_and_a_secret_is_for_the_hook_that_asks(ran):
    assert ran.status("fields")["phase"] == "Succeeded"
    assert ran.told("fields", "args") == "oncall $(date) very-secret-word unset"
    assert ran.told("fields", "other") == "unset"
    assert "very-secret-word" not in json.dumps(ran.run("fields"))


@pytest.mark.rule("sympozium 1.17.15", "sympozium 2.1")
def test_an_image_that_may_not_be_fetched_and_is_not_there_fails_the_run_and_is_named(ran):
    assert ran.phases("never") == ["Pending", "PostRunning", "Failed"]
    assert "localhost/none:1" in ran.status("never")["error"]
    assert ran.hooks("never")["one"]["reason"] == "not_started"
    assert ran.told("never", "code") == "1"


@pytest.mark.rule("sympozium 1.17.15", "sympozium B3", "sympozium 2.1")
def test_a_hook_past_its_limit_is_ended_and_told_and_the_hooks_after_run(ran):
    assert ran.phases("hook-slow") == ["Pending", "PostRunning", "Failed"]
    assert "preRun hook 'one' failed: passed its limit of 2 s" in ran.status("hook-slow")["error"]
    assert ran.told("hook-slow", "code") == "1"
    assert ran.status("after-slow")["phase"] == "Succeeded"
    (condition,) = ran.status("after-slow")["conditions"]
    assert "'one' failed: passed its limit of 2 s" in condition["message"]
    assert ran.told("after-slow", "two") == "ran"


@pytest.mark.rule("sympozium B5", "sympozium 2.1", "sympozium C8")
def test_after_an_agent_past_its_limit_post_run_runs(ran):
    assert ran.phases("slow")[-2:] == ["PostRunning", "Failed"]
    assert ran.status("slow")["error"] == "timeout"
    assert ran.told("slow", "code") == "1"


@pytest.mark.rule("sympozium 1.17.16", "sympozium 1.4")
def test_two_gates_fail_the_run_and_one_before_the_agent_is_refused(ran):
    said = "at most one postRun hook may set gate: true, found 2"
    assert said in ran.status("two-gates")["error"]
    assert ran.jobs("two-gates") == []
    wrong = Case(lifecycle([hook("a", "true", gate=True)]))
    refused = ran.kubectl("create", given=manifest("gate-before", wrong, ran.outside))
    assert refused.code != 0
    assert "spec.lifecycle.preRun.gate" in refused.err


ORIGINAL = "dry run of oncall: speak"
GATES = {
    "approved": ("approved", ORIGINAL),
    "rejected": ("rejected", REJECTED),
    "rejected-so": ("rejected", "not today"),
    "rewritten": ("rewritten", "nicer"),
    "unanswered": ("timeout", NO_VERDICT),
    "gate-fails": ("error", NO_VERDICT),
    "gate-open": ("allowed-by-default", ORIGINAL),
    "too-early": ("timeout", NO_VERDICT),
}


@pytest.mark.rule("sympozium 1.17.17", "sympozium 1.14", "sympozium B6", "sympozium X3")
@pytest.mark.parametrize("name", GATES)
def test_every_row_of_the_outcome_table_and_the_hooks_after_the_gate_see_what_it_let_out(ran, name):
    label, result = GATES[name]
    status = ran.status(name)
    assert (status["phase"], status["gateVerdict"], status["result"]) == ("Succeeded", label, result)
    assert ran.told(name, "later") == result
    # What was not let out was shown to nobody meanwhile.
    shown = {each.object.get("status", {}).get("result") for each in ran.watched.of("agentruns", name)}
    assert shown == {None, result}
    if CASES[name].then:
        assert status["gateBy"] == "ada"


@pytest.mark.rule("sympozium 1.17.18", "sympozium 1.15", "sympozium B2")
def test_a_skip_runs_the_other_pre_run_hooks_and_no_post_run(ran):
    assert (ran.status("skip")["phase"], ran.status("skip")["result"]) == ("Skipped", "nothing new")
    assert ran.told("skip", "two") == "ran"
    assert "PostRunning" not in ran.phases("skip")
    assert ran.jobs("skip") == ["skip"]
    assert ran.told("skip", "code") is None
    bare = ran.status("skip-bare")
    assert (bare["phase"], bare["result"]) == ("Skipped", "preRun hook requested skip")


@pytest.mark.rule("sympozium 1.17.19")
@pytest.mark.statement("SZ21")
def test_a_task_is_a_text_or_an_object_and_nothing_else(ran):
    task = CASES["object"].spec["task"]
    assert json.loads(ran.told("object", "task") or "") == {"task": task}
    assert ran.status("object")["phase"] == "Succeeded"
    assert '"tool": "ping"' in ran.status("object")["result"]
    for wrong in (5, [], {"tool": "ping"}):
        given = manifest("wrong-task", Case({"task": wrong}), ran.outside)
        refused = ran.kubectl("create", given=given)
        assert refused.code != 0
        assert "spec.task" in refused.err
    given = manifest("no-task", Case({"dryRun": True}), ran.outside)
    del given["spec"]["task"]
    ran.kubectl.well("create", given=given)
    assert until(
        lambda: ran.watched.of("agentruns", "no-task") and ran.status("no-task").get("phase") == "Failed"
    )
    assert "spec.task is required and must not be empty" in ran.status("no-task")["error"]


@pytest.mark.rule("sympozium B5", "sympozium 1.13", "sympozium 2.1", "sympozium C3")
@pytest.mark.statement("SZ16")
def test_a_run_that_is_deleted_while_its_agent_runs_runs_its_post_run_hooks_and_goes(ran):
    assert ran.watched.of("agentruns", "deleted")[-1].type == "DELETED"
    assert ran.told("deleted", "code") == "1"
    assert "PostRunning" in ran.phases("deleted")
    assert until(lambda: ran.watched.of("jobs", "deleted-postrun")[-1].type == "DELETED")


@pytest.mark.rule("sympozium B13")
def test_with_cleanup_keep_jobs_logs_and_workspace_stay_as_long_as_the_run(ran):
    assert ran.status("keep")["phase"] == "Succeeded"
    assert ran.kubectl.well("logs", "job/keep-postrun", "-c", "post-a") == "kept\n"
    assert ran.kubectl.get("pvc", "keep-workspace")["status"]["phase"] == "Bound"
    ran.kubectl.well("delete", "agentrun", "keep")
    for kind, name in (("pvc", "keep-workspace"), ("job", "keep"), ("job", "keep-postrun")):
        assert until(lambda kind=kind, name=name: "NotFound" in ran.kubectl("get", kind, name).err)


@pytest.mark.rule("sympozium C1")
def test_describe_tells_what_happened_to_a_run(ran):
    said = ran.kubectl.well("describe", "agentrun", "after-fails")
    for line in (
        "postRun hook one succeeded",
        "postRun hook two failed: exit code 3",
        "the run is PostRunning",
        "the run is Succeeded",
    ):
        assert line in said
    assert "preRun hook 'one' failed: exit code 5" in ran.kubectl.well("describe", "agentrun", "before-fails")
    assert "stood there before there was an answer" in ran.kubectl.well("describe", "agentrun", "too-early")


def test_get_shows_phase_agent_exit_code_and_gate(ran):
    head, *lines = ran.kubectl.well("get", "agentruns").splitlines()
    assert head.split() == ["NAME", "PHASE", "AGENT", "EXIT", "GATE", "AGE"]
    rows = {line.split()[0]: line.split()[1:-1] for line in lines}
    assert rows["both"] == ["Succeeded", "oncall", "0"]
    assert rows["failing"] == ["Failed", "oncall", "1"]
    assert rows["rewritten"] == ["Succeeded", "oncall", "0", "rewritten"]
    assert rows["skip"] == ["Skipped", "oncall"]
    wide = ran.kubectl.well("get", "ar", "slow", "-o", "wide")
    assert "timeout" in wide


@pytest.mark.rule("sympozium K8", "sympozium K3", "sympozium 1.2")
@pytest.mark.statement("SZ62")
def test_a_pack_makes_its_agents_and_a_run_of_one_has_its_hooks(ran):
    assert ran.status("of-pack")["phase"] == "Succeeded"
    assert ran.told("of-pack", "fetched") == "for team-triage"
    agent = ran.kubectl.get("agents.sympozium.ai", "team-triage")
    assert agent["metadata"]["labels"]["sympozium.ai/ensemble"] == "team"
    assert (
        ran.kubectl.get("agents.sympozium.ai", "team-writer")["spec"]["agents"]["default"]["systemPrompt"]
        == "You write."
    )
    assert ran.kubectl.get("personapack", "team")["status"]["personaCount"] == 2


@pytest.mark.rule("sympozium 1.2", "sympozium C9")
def test_an_edit_of_a_pack_converges(ran):
    def edited(personas: list[Object]) -> None:
        ran.kubectl.well(
            "replace", given={**PACK, "metadata": {"name": "team"}, "spec": {"personas": personas}}
        )

    def default() -> Object:
        return ran.kubectl.get("agents.sympozium.ai", "team-triage")["spec"]["agents"]["default"]

    edited([{"name": "triage", **lifecycle([hook("another", "true")])}])
    assert until(lambda: default().get("lifecycle", {}).get("preRun", [{}])[0].get("name") == "another")
    assert until(lambda: "NotFound" in ran.kubectl("get", "agents.sympozium.ai", "team-writer").err)
    edited([{"name": "triage", "systemPrompt": "You are alone."}])
    assert until(lambda: default().get("systemPrompt") == "You are alone.")
    assert not default().get("lifecycle", {}).get("preRun")


@pytest.mark.rule("sympozium K8")
def test_an_ensemble_that_is_not_enabled_makes_nothing(ran):
    def status() -> Object:
        return ran.kubectl.get("ensemble", "idle").get("status", {})

    assert until(lambda: status().get("phase") == "Disabled")
    assert status()["personaCount"] == 0
    assert ran.watched.of("agents.sympozium.ai", "idle-one") == []
