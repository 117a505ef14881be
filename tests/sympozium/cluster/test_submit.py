"""What `hookline run --on kubernetes` puts on a cluster, what it shows of a run, and what it says when it cannot."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hookline.sympozium.check import unheeded
from hookline.sympozium.cluster import submit as submitting
from hookline.sympozium.cluster.ledger import RunView
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import RunRequest, run_of, spec_of
from hookline.sympozium.types import (
    ContainerHook,
    Lifecycle,
    ModelSpec,
    RbacRule,
    RunSpec,
    Sandbox,
    SecretRef,
    TaskSpec,
)
from tests import forks
from tests.kube.scripted_server import answer, scripted, status, stream
from tests.sympozium.cluster.manifests import full
from tests.sympozium.cluster.test_crds import refusals

ROOT = Path(__file__).parents[3]
FILES = [*ROOT.glob("examples/sympozium/*.yaml"), *ROOT.glob("tests/fixtures/sympozium/*.yaml")]

MANY = """\
apiVersion: v1
kind: Secret
metadata: {name: pd}
type: Opaque
stringData: {token: s3cr3t}
---
apiVersion: v1
kind: Secret
metadata: {name: unused}
stringData: {a: b}
---
apiVersion: sympozium.ai/v1alpha1
kind: Agent
metadata: {name: oncall}
spec:
  agents:
    default:
      model: {provider: openai, model: gpt-4o, authSecretRef: key}
      lifecycle:
        preRun:
          - name: fetch
            image: busybox:1.36
            env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: pd, key: token}}}]
---
apiVersion: sympozium.ai/v1alpha1
kind: PersonaPack
metadata: {name: team}
spec:
  personas: [{name: writer, model: gpt-4o}, {name: reader, model: gpt-4o}]
"""


def again(run):
    """The run as the operator reads what is put on the cluster."""
    text = json.dumps(submitting.manifest(run))
    found = parse(text, "run")
    assert not found.problems
    return found.runs[0]


def asked(text, **given):
    return spec_of(RunRequest(file="agent.yaml", text=text, task="look", **given))


def submitted_same(run):
    # What only a pack and a file without a head tell of a run is in no AgentRun.
    return replace(run, ensemble="")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_run_of_a_file_is_the_same_run_when_it_is_read_from_the_cluster(file):
    manifests = parse(file.read_text(), file)
    personas = [member.name for pack in manifests.packs for member in pack.members] or [""]
    for persona in personas:
        run = run_of(manifests, RunRequest(file="", text="", task="look", persona=persona))
        assert again(run) == submitted_same(run)
        assert not refusals(submitting.manifest(run))


def test_every_field_of_a_run_is_kept():
    manifests = parse(json.dumps(full("AgentRun")), "full")
    run = run_of(manifests)
    hook = run.hooks.pre_run[0]
    values = [run.timeout, run.model.headers, run.sandbox.warm_pool, run.tools_denied, hook.env, hook.args]
    assert all(values), "the sample has every field"
    assert again(run) == run
    assert not refusals(submitting.manifest(run))


@pytest.mark.parametrize(
    "run",
    [
        RunSpec(name="a", task=TaskSpec(mode="sidecar-driven", tool="t", parameters={"n": "3"})),
        RunSpec(name="a", task="t", timeout=0.0000025),
        RunSpec(name="a", task="t", timeout=1e17),
        RunSpec(name="a", task="t", use_context=False, dry_run=True, canary=True, cleanup="keep"),
        RunSpec(name="a", task="t", sandbox=Sandbox()),
        RunSpec(name="a", task="t", model=ModelSpec(ref="m")),
        RunSpec(name="a", task="t", lifecycle=Lifecycle()),
        RunSpec(
            name="a",
            task="  t: 'quoted' $(A) \u00fc\n",
            env={"A": "", "B": "$(A)"},
            lifecycle=Lifecycle(
                post_run=(
                    ContainerHook(
                        name="g",
                        image="i",
                        gate=True,
                        args=("",),
                        env={"A": "", "S": SecretRef(name="s", key="k", optional=True)},
                        timeout=0.5,
                    ),
                ),
                rbac=(RbacRule(api_groups=("",), resources=("configmaps",), verbs=("get",)),),
                gate_default="allow",
            ),
        ),
    ],
    ids=lambda run: type(run).__name__,
)
def test_odd_values_are_kept_too(run):
    assert again(run) == run


def test_a_provider_without_a_model_is_no_model_and_is_not_sent():
    run = RunSpec(name="a", task="t", model=ModelSpec(provider="openai"))
    assert "model" not in submitting.manifest(run)["spec"]


@pytest.mark.parametrize("name", ["a", "r" * 63, "x" * 47 + "-----" + "y" * 11])
def test_a_name_with_its_mark_is_a_label(name):
    made = submitting.named(name, "toksqd-f8da8e")
    assert made.endswith("-toksqd-f8da8e")
    assert len(made) <= 63
    assert "--" not in made


def test_secrets_of_the_file_go_under_names_of_the_runs_own():
    manifests = parse(MANY, "agent.yaml")
    run = replace(asked(MANY, name="night"), namespace="ops")
    objects = submitting.documents(MANY, "agent.yaml")
    (secret,) = submitting.secrets_of(run, objects, manifests.secrets)
    assert secret["metadata"]["name"] == "night-pd"
    assert secret["metadata"]["namespace"] == "ops"
    assert secret["stringData"] == {"token": "s3cr3t"}
    spec = submitting.manifest(submitting.with_own_secrets(run, manifests.secrets))["spec"]
    (variable,) = spec["lifecycle"]["preRun"][0]["env"]
    assert variable["valueFrom"]["secretKeyRef"] == {"name": "night-pd", "key": "token"}
    # This one is in no file, so it is the cluster's.
    assert spec["model"]["authSecretRef"] == "key"


@pytest.mark.parametrize(
    ("persona", "kind", "name"), [("", "Agent", "oncall"), ("writer", "PersonaPack", "team")]
)
def test_the_object_that_makes_the_agent_is_found_in_the_file(persona, kind, name):
    run = replace(asked(MANY, persona=persona), namespace="ops")
    wanted = submitting.maker(parse(MANY, "f"), run)
    source = submitting.source_of(submitting.documents(MANY, "f"), run, *wanted)
    assert (source["kind"], source["metadata"]["name"], source["metadata"]["namespace"]) == (
        kind,
        name,
        "ops",
    )
    assert parse(json.dumps(source), "f").problems == ()


def test_an_agent_of_another_file_is_not_found():
    run = RunSpec(name="a", task="t", instance="nobody")
    wanted = submitting.maker(parse(MANY, "f"), run)
    assert submitting.source_of(submitting.documents(MANY, "f"), run, *wanted) is None


def test_an_agent_with_the_clusters_defaults_is_still_the_one_in_the_file():
    manifests = parse(MANY, "f")
    stored = next(each for each in submitting.documents(MANY, "f") if each.get("kind") == "Agent")
    default = stored["spec"]["agents"]["default"]
    default["lifecycle"]["gateDefault"] = "block"
    default["lifecycle"]["preRun"][0]["imagePullPolicy"] = "IfNotPresent"
    written = next(each for each in manifests.agents if each.name == "oncall")
    assert not submitting.differs(stored, written)
    default["lifecycle"]["preRun"][0]["image"] = "busybox:1.37"
    assert submitting.differs(stored, written)


@pytest.mark.parametrize(("head", "says"), [("{name: a}", False), ("{name: a, namespace: default}", True)])
def test_a_namespace_counts_where_the_file_says_it(head, says):
    text = f"apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {head}\nspec: {{task: t}}\n"
    assert submitting.names_namespace(submitting.documents(text, "f")) is says


def test_what_the_operator_does_not_heed_is_told_with_its_line():
    text = (
        "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\nspec:\n  task: t\n"
        "  tolerations: [{key: k}]\n  imagePullSecrets: [{name: p}]\n  skills: [{skillPackRef: s}]\n"
    )
    told = [str(each) for each in unheeded(run_of(parse(text, "f.yaml")))]
    places = [text.partition(": has no effect")[0] for text in told]
    assert places == ["f.yaml:8: spec.skills", "f.yaml:6: spec.tolerations"]


def hook(name, stage="preRun", state="succeeded", **more):
    return {"name": name, "stage": stage, "state": state, **more}


def at(phase="", spec=None, **told):
    return {
        "metadata": {
            "name": "night-1",
            "namespace": "home",
            "uid": "u",
            "resourceVersion": "1",
            "creationTimestamp": moment(0),
        },
        "spec": {"task": "look\nround", **(spec or {})},
        "status": {"phase": phase, **told} if phase else {},
    }


def moment(second):
    return f"2026-01-01T00:00:{second:02}Z"


def shown(*runs, **given):
    view = RunView(**given)
    return [line.text for run in runs for line in view.lines(run)]


def test_a_run_is_told_step_by_step_and_each_thing_once():
    fetched = hook("fetch", seconds=2, exitCode=0)
    reported = hook("report", "postRun", seconds=0, exitCode=0)
    broken = hook(
        "notify", "postRun", "failed", seconds=1, message="failed: exit code 4", tail="a\nnobody is in"
    )
    failed = {"type": "PostRunFailed", "status": "True", "message": "postRun hooks failed: ..."}
    began = {"jobName": "night-1", "startedAt": moment(2)}
    reports = hook("report", "postRun", "running", startedAt=moment(5))
    ended = {"exitCode": 0, "conditions": [failed], "completedAt": moment(8)}
    steps = [
        at(),
        at("Pending", hooks=[hook("fetch", state="running")]),
        at("Running", hooks=[fetched], **began),
        at("PostRunning", hooks=[fetched, reports], exitCode=0, **began),
        at("Succeeded", hooks=[fetched, reported, broken], **began, **ended),
    ]
    told = shown(*(step for step in steps for _ in range(2)))
    assert told == [
        "run night-1 night-1  look round",
        "  note   phase Pending",
        "  start  fetch  2.0 s",
        "  agent default  look round",
        "  note   phase Running",
        "  note   phase PostRunning",
        "    = ok  3.0 s",
        "  end    report  under 1 s",
        "  end    notify  1.0 s  broke: exit code 4: a nobody is in",
        "  note   phase Succeeded",
        "  = ok  8.0 s",
    ]


def test_a_run_that_was_over_when_it_was_first_seen_is_told_too():
    told = {"jobName": "night-1", "startedAt": moment(1), "completedAt": moment(4)}
    assert shown(at("Succeeded", exitCode=0, **told)) == [
        "run night-1 night-1  look round",
        "  agent default  look round",
        "    = ok  3.0 s",
        "  note   phase Succeeded",
        "  = ok  4.0 s",
    ]


def test_what_keeps_a_run_waiting_is_told_when_it_appears_and_when_it_changes():
    one = {"type": "Waiting", "status": "True", "reason": "ImageNotPulled", "message": "no image 'a'"}
    first, second = (
        at("Pending", conditions=[{**one, "message": text}]) for text in ("no image 'a'", "no 'b'")
    )
    told = shown(first, first, second, second)
    assert told[2:] == ["  note   Waiting: no image 'a'", "  note   Waiting: no 'b'"]


def test_a_hook_before_the_agent_that_fails_is_told_with_what_follows():
    broken = hook("fetch", state="failed", message="failed: exit code 3")
    told = shown(at("Failed", hooks=[broken], error="preRun hook 'fetch' failed"))
    assert "  start  fetch  broke: exit code 3, so it failed the run" in told
    assert told[-1] == "  = failed  under 1 s  exit code 3 [hook fetch at run.start]"
    assert not any("agent default" in line for line in told)


def test_a_gate_is_told_with_what_to_do_and_with_what_it_came_to():
    told = shown(
        at("PostRunning", gateDigest="d"),
        at("Succeeded", gateVerdict="approved", gateBy="ada"),
        how_to_answer="; do this",
        width=100,
    )
    assert "  note   the answer waits for a verdict; do this" in told
    assert "  note   gate approved by ada" in told


def hookline(*words, tmp_path, before="", **env):
    """The command in a process of its own; `before` is run in it first."""
    environ = {
        **os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path), "KUBECONFIG": "", **env,
    }  # fmt: skip
    if not before:
        return forks.run(words, env=environ)
    code = f"import sys\n{before}\nfrom hookline.__main__ import main\nsys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env=environ,
    )


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "run.yaml"
    made.write_text(json.dumps(full("AgentRun") | {"spec": {"task": "t", "dryRun": True}}))
    return str(made)


async def ran(*words, tmp_path, **env):
    return await asyncio.to_thread(hookline, *words, tmp_path=tmp_path, **env)


REFUSED = {
    "an option of one machine": (["--network"], 2, "--network: not with --on kubernetes"),
    "hooks of this machine": (["--hooks", "h.yaml"], 2, "--hooks: not with --on kubernetes"),
    "no kubeconfig": (["--kubeconfig", "/nowhere/config"], 2, "no kubeconfig at '/nowhere/config'"),
    "no cluster at all": ([], 2, "no cluster found"),
}


@pytest.mark.parametrize(("words", "code", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_done_there_is_refused_before_anything_is_done(words, code, said, file, tmp_path):
    done = hookline("run", file, "--on", "kubernetes", *words, tmp_path=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr.replace("\n", " ")


def test_the_options_of_a_cluster_mean_nothing_on_this_machine(file, tmp_path):
    for words in (["run", file, "--context", "c"], ["runs", "--namespace", "n"]):
        done = hookline(*words, tmp_path=tmp_path)
        assert done.returncode == 2
        assert "only with --on kubernetes" in done.stderr


def test_without_the_extra_it_is_told_which_one_to_install(file, tmp_path):
    before = "sys.modules['lightkube'] = None"
    done = hookline("run", file, "--on", "kubernetes", tmp_path=tmp_path, before=before)
    assert done.returncode == 2
    assert "pip install 'hookline[kube]'" in done.stderr


EMPTY = answer(200, {"metadata": {"resourceVersion": "1"}, "items": []})
TOLD = {
    "no definitions": (
        [answer(404, b"404 page not found", kind="text/plain")],
        2,
        "hookline crds | kubectl apply",
    ),
    "no right": (
        [status(403, 'User "me" cannot list agentruns')],
        1,
        "you are not allowed to do this on http",
    ),
    "not known": ([status(401, "Unauthorized")], 1, "did not accept your credentials: Unauthorized"),
    "refused": (
        [EMPTY, status(422, "spec.task: Invalid value")],
        2,
        "the cluster refused it: spec.task: Invalid value",
    ),
    "no namespace": ([EMPTY, status(404, 'namespaces "home" not found')], 2, "there is no namespace 'home'"),
    "there already": (
        [EMPTY, status(409, 'agentruns "full" already exists', "AlreadyExists")],
        2,
        "already exists; give another --name, or none",
    ),
}


@pytest.mark.parametrize(("answers", "code", "said"), TOLD.values(), ids=TOLD.keys())
async def test_what_the_cluster_refuses_is_told_with_what_to_do(answers, code, said, file, tmp_path):
    async with scripted(tmp_path, *answers) as (_, config):
        done = await ran("run", file, "--on", "kubernetes", "--kubeconfig", config, tmp_path=tmp_path)
    assert done.returncode == code, done.stderr
    assert said in done.stderr


async def test_a_cluster_that_is_away_is_told(file, tmp_path):
    async with scripted(tmp_path, EMPTY) as (_, config):
        pass
    done = await ran("run", file, "--on", "kubernetes", "--kubeconfig", config, tmp_path=tmp_path)
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


async def test_a_run_whose_secrets_are_there_and_which_is_refused_leaves_none_of_them(tmp_path):
    def made(asked):
        return answer(
            201, {**json.loads(asked.body), "metadata": {**json.loads(asked.body)["metadata"], "uid": "1"}}
        )

    (tmp_path / "a.yaml").write_text(
        MANY.partition("---\napiVersion: sympozium.ai/v1alpha1\nkind: Persona")[0]
    )
    words = ["run", str(tmp_path / "a.yaml"), "look", "--on", "kubernetes", "--name", "night"]
    there = answer(200, {"metadata": {}, "spec": {}})
    refused, gone = status(422, "spec: no"), answer(200, {})
    async with scripted(tmp_path, EMPTY, there, made, refused, gone) as (server, config):
        done = await ran(*words, "--kubeconfig", config, tmp_path=tmp_path)
    assert done.returncode == 2, done.stderr
    assert [each.line.split(" HTTP")[0].split("?")[0] for each in server.asked][2:] == [
        "POST /api/v1/namespaces/home/secrets",
        "POST /apis/sympozium.ai/v1alpha1/namespaces/home/agentruns",
        "DELETE /api/v1/namespaces/home/secrets/night-pd",
    ]


async def test_an_agent_that_is_nowhere_is_refused_where_its_hooks_would_count(tmp_path):
    (tmp_path / "a.yaml").write_text(
        "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\n"
        "spec: {task: t, dryRun: true, agentRef: guarded}\n"
    )
    async with scripted(tmp_path, EMPTY, status(404, 'agents "guarded" not found')) as (server, config):
        words = ["run", str(tmp_path / "a.yaml"), "--on", "kubernetes", "--kubeconfig", config]
        done = await ran(*words, tmp_path=tmp_path)
    assert done.returncode == 2
    assert "agentRef names 'guarded'" in done.stderr
    assert not any(each.line.startswith("POST") for each in server.asked)


@pytest.mark.parametrize(
    ("final", "code", "printed"),
    [
        ({"phase": "Succeeded", "result": "fine"}, 0, "fine\n"),
        ({"phase": "Skipped", "result": "nothing new"}, 0, "skipped: nothing new\n"),
        ({"phase": "Failed", "error": "timeout"}, 1, ""),
        ({"phase": "Succeeded", "result": "no", "gateVerdict": "rejected"}, 1, "no\n"),
        ({"phase": "Succeeded", "result": "x", "gateVerdict": "rewritten"}, 0, "x\n"),
    ],
)
async def test_a_run_ends_with_the_codes_of_one_on_this_machine(final, code, printed, file, tmp_path):
    kept = {}

    def made(asked):
        kept.update(json.loads(asked.body))
        kept["metadata"] |= {"uid": "1", "resourceVersion": "5"}
        return answer(201, kept)

    def listed(_):
        now = {**kept, "metadata": {**kept["metadata"], "resourceVersion": "6"}, "status": final}
        return answer(200, {"metadata": {"resourceVersion": "6"}, "items": [now]})

    async with scripted(tmp_path, EMPTY, made, listed, stream()) as (_, config):
        done = await ran("run", file, "--on", "kubernetes", "--kubeconfig", config, tmp_path=tmp_path)
    assert (done.returncode, done.stdout) == (code, printed), done.stderr
    assert f"phase {final['phase']}" in done.stderr


def test_explain_tells_the_objects_and_the_order_of_containers(tmp_path):
    place = ROOT / "examples/sympozium/incident.yaml"
    done = hookline("explain", str(place), "--on", "kubernetes", tmp_path=tmp_path)
    assert done.returncode == 0, done.stderr
    order = ["PersistentVolumeClaim", "Job incident", "1. prepare", "pre-fetch-incidents", "3. agent"]
    order += ["Job incident-postrun", "2. post-report", "3. post-notify"]
    places = [done.stdout.index(word) for word in order]
    assert places == sorted(places)
