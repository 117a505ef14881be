"""Sympozium's manifests: both vocabularies, every field, every mistake with its line, and the run a file asks for."""

from pathlib import Path

import pytest

from hookline.engine.hook import OnError
from hookline.engine.point import Point
from hookline.errors import FileError
from hookline.sympozium.check import doubts, literal_secrets, not_here
from hookline.sympozium.read import is_sympozium, parse
from hookline.sympozium.resolve import RunRequest, declaration, run_of
from hookline.sympozium.system import load
from hookline.sympozium.types import (
    ContainerHook,
    Instance,
    Lifecycle,
    ModelSpec,
    RbacRule,
    SecretRef,
    TaskSpec,
)

SEED = Path(__file__).parents[1] / "fixtures" / "sympozium"

FULL = """\
apiVersion: sympozium.ai/v1alpha1
kind: AgentRun
metadata: {name: nightly, namespace: ops}
spec:
  agentRef: alice
  agentId: primary
  sessionKey: s-1
  task: look around
  systemPrompt: be brief
  model: {provider: anthropic, model: claude-x, authSecretRef: key, baseURL: "http://localhost:1", thinking: low}
  env: {ZED: "1", ALPHA: two}
  timeout: 1h0m1.5s
  cleanup: keep
  mode: task
  dryRun: true
  canaryMode: false
  useContext: false
  imagePullSecrets: [{name: pull}]
  skills: [{skillPackRef: k8s-ops}]
  toolPolicy: {allow: [read], deny: [bash]}
  agentSandbox: {enabled: true, runtimeClass: gvisor, warmPoolRef: wp}
  lifecycle:
    gateDefault: allow
    rbac:
      - {apiGroups: [""], resources: [pods], verbs: [get]}
    preRun:
      - name: fetch
        image: busybox:1.36
        imagePullPolicy: Always
        command: [sh, -c]
        args: ["echo $TOKEN"]
        timeout: 90s
        env:
          - {name: TOKEN, valueFrom: {secretKeyRef: {name: pd, key: token, optional: true}}}
          - {name: LEVEL, value: debug}
    postRun:
      - {name: tell, image: busybox}
      - {name: check, image: busybox, gate: true}
"""


def hook(text="", *, stage="postRun", name="a", image="image: busybox"):
    """An AgentRun with one hook, whose further keys begin in line 10."""
    inner = "".join(f"        {line}\n" for line in text.splitlines())
    return (
        "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: r}\nspec:\n  task: t\n  lifecycle:\n"
        f"    {stage}:\n      - name: {name}\n        {image}\n{inner}"
    )


def asked(**given):
    return RunRequest(file="", text="", **given)


def wrong(text):
    return [str(each) for each in parse(text, "run.yaml").problems]


@pytest.mark.statement("SZ47", "SZ48", "SZ54", "SZ55", "SZ56", "SZ57", "SZ62")
@pytest.mark.rule("sympozium 1.17.14", "sympozium K2", "sympozium K3")
def test_all_five_examples_of_the_seed_load_as_they_are():
    found = {file.stem: load(file) for file in SEED.glob("*.yaml")}
    assert len(found) == 5
    assert [each.problems for each in found.values()] == [()] * 5
    oncall = found["oncall-agent"].instances[0]
    assert (oncall.name, oncall.model) == ("oncall-agent", ModelSpec(model="gpt-4o"))
    fetch = oncall.lifecycle.pre_run[0]
    assert (fetch.name, fetch.image, fetch.command[:2]) == (
        "fetch-incidents",
        "curlimages/curl:latest",
        ("sh", "-c"),
    )
    assert fetch.command[2].endswith("> /workspace/context/incidents.json")
    assert fetch.env == {"PD_TOKEN": "your-pagerduty-token"}
    rbac = found["rbac"].runs[0].lifecycle
    assert rbac.rbac == (
        RbacRule(api_groups=("",), resources=("configmaps",), verbs=("get", "list", "create", "delete")),
    )
    assert [each.name for each in (*rbac.pre_run, *rbac.post_run)] == ["create-context", "cleanup-context"]
    upload = found["upload-report"].runs[0].lifecycle
    assert (upload.pre_run, upload.post_run[0].name) == ((), "upload-report")
    pack = found["oncall-team"].packs[0]
    assert (pack.kind, pack.enabled, pack.members[0].name) == ("PersonaPack", True, "triage-agent")
    assert pack.members[0].instance.system_prompt == "You are an SRE triage agent..."


def test_the_files_of_the_seed_are_known_by_their_content_and_others_are_not():
    assert all(is_sympozium(file.read_text(), file) for file in SEED.glob("*.yaml"))
    assert not is_sympozium("spec:\n  hooks: []\n", "a.yaml")
    assert not is_sympozium("apiVersion: kagent.dev/v1alpha2\nkind: Agent\n", "a.yaml")


def test_a_fragment_is_an_agentrun_and_that_is_said():
    found = load(SEED / "upload-report.yaml")
    assert [each.name for each in found.runs] == ["upload-report"]
    assert found.notes[0].endswith(
        "upload-report.yaml:1: has no apiVersion and kind; it is read as the AgentRun 'upload-report'"
    )


@pytest.mark.rule("sympozium 1.17.15", "sympozium 1.3")
def test_every_field_is_read():
    found = parse(FULL, "run.yaml")
    assert (found.problems, found.notes) == ((), ())
    run = found.runs[0]
    assert (run.name, run.namespace, run.instance, run.agent_id) == ("nightly", "ops", "alice", "primary")
    assert (run.session_key, run.task, run.system_prompt) == ("s-1", "look around", "be brief")
    assert run.model == ModelSpec(
        provider="anthropic",
        model="claude-x",
        auth_secret="key",
        base_url="http://localhost:1",
        thinking="low",
    )
    assert list(run.env.items()) == [("ALPHA", "two"), ("ZED", "1")]
    assert (run.timeout, run.cleanup, run.dry_run, run.use_context) == (3601.5, "keep", True, False)
    assert (run.image_pull_secrets, run.skills) == (("pull",), ("k8s-ops",))
    assert (run.tools_allowed, run.tools_denied) == (("read",), ("bash",))
    assert (run.sandbox.enabled, run.sandbox.runtime_class, run.sandbox.warm_pool) == (True, "gvisor", "wp")
    lifecycle = run.lifecycle
    assert lifecycle.gate_default == "allow"
    assert lifecycle.pre_run == (
        ContainerHook(
            name="fetch",
            image="busybox:1.36",
            pull_policy="Always",
            command=("sh", "-c"),
            args=("echo $TOKEN",),
            timeout=90.0,
            env={"TOKEN": SecretRef(name="pd", key="token", optional=True), "LEVEL": "debug"},
        ),
    )
    assert (lifecycle.gate, lifecycle.post_order, lifecycle.post_run[0].timeout) == (1, (1, 0), 300.0)
    assert str(lifecycle.pre_run[0].place) == "run.yaml:27"


@pytest.mark.rule("sympozium K5")
def test_the_old_names_of_fields_mean_what_the_new_ones_do():
    old = FULL.replace("agentRef", "instanceRef")
    assert parse(old, "run.yaml").runs == parse(FULL, "run.yaml").runs
    both = FULL.replace("  agentRef: alice\n", "  agentRef: alice\n  instanceRef: bob\n")
    assert wrong(both) == [
        "run.yaml:6: spec.instanceRef: is the old name of agentRef, which is given too; give one of them"
    ]


LONG = "a" * 59


@pytest.mark.rule("sympozium 1.3", "sympozium 1.17.16")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        (hook(image="imag: busybox"), "postRun[0].imag: unknown key; did you mean image?"),
        (hook(image="args: []"), "run.yaml:8: spec.lifecycle.postRun[0]: image is missing; it is the"),
        (hook(image="image: 1"), "run.yaml:9: spec.lifecycle.postRun[0].image: is 1; it is the"),
        (
            hook("commnd: [a]"),
            "run.yaml:10: spec.lifecycle.postRun[0].commnd: unknown key; did you mean command?",
        ),
        (
            hook("command: echo"),
            "run.yaml:10: spec.lifecycle.postRun[0].command: is 'echo'; it must be a list",
        ),
        (hook("timeout: soon"), "timeout: is 'soon'; write it like 30s, 1m30s or 500ms"),
        (hook("timeout: 5s, please"), "timeout: is '5s, please'; write it like 30s"),
        (hook("timeout: -5s"), "timeout: is '-5s'; write it like 30s"),
        (hook("timeout: 5"), "timeout: is 5; give a text"),
        (hook("timeout: 0s"), "timeout: is '0s'; give a duration"),
        (hook("imagePullPolicy: always"), "unknown word 'always'; did you mean Always?"),
        (hook("gate: 'yes'"), "gate: is 'yes'; give true or false"),
        (hook("env: {A: b}"), "env: is not a list; begin each with `- name: ...`"),
        (hook("env: [{name: 'A B', value: c}]"), "env[0].name: 'A B' is not a name of a variable"),
        (
            hook("env: [{name: A, valueFrom: {configMapKeyRef: {name: a, key: b}}}]"),
            "has configMapKeyRef; of a hook's variables only secretKeyRef is a source",
        ),
        (
            hook("env: [{name: A, value: b, valueFrom: {secretKeyRef: {name: a, key: b}}}]"),
            "env[0].valueFrom: is given together with value; give one of them",
        ),
        (hook("env: [{name: A, valueFrom: {secretKeyRef: {name: a}}}]"), "key is missing; it names the key"),
        (hook(name="Fetch_It"), "run.yaml:8: spec.lifecycle.postRun[0].name: 'Fetch_It' is not a DNS label"),
        (hook(name=LONG), "has 59 letters; a postRun hook's name has at most 58"),
        (hook(name=LONG + "a", stage="preRun"), "has 60 letters; a preRun hook's name has at most 59"),
        (
            hook() + "      - {name: a, image: b}\n",
            "run.yaml:10: spec.lifecycle.postRun[1].name: 'a' is in line 8 already",
        ),
        (
            hook("gate: true", stage="preRun"),
            'gate hook validation failed: gate: true is only valid on postRun hooks, not preRun (hook "a")',
        ),
        (
            hook("gate: true") + "      - {name: b, image: b, gate: true}\n",
            "gate hook validation failed: at most one postRun hook may set gate: true, found 2",
        ),
        (hook() + "    gateDefault: maybe\n", "gateDefault: unknown word 'maybe'; known: allow, block"),
        (hook() + "    rbac: [{apiGroups: ['']}]\n", "rbac[0]: resources is missing; a rule has"),
        (hook() + "    postrun: []\n", "lifecycle.postrun: unknown key; did you mean postRun?"),
        (
            hook().replace("AgentRun", "AgentRunn"),
            "run.yaml:2: kind: unknown kind 'AgentRunn'; did you mean AgentRun?",
        ),
        (hook().replace("AgentRun", "Deployment"), "kind: unknown kind 'Deployment'; known: AgentRun"),
        (hook().replace("v1alpha1", "v1"), "apiVersion: is 'sympozium.ai/v1'; sympozium.ai/v1alpha1 is read"),
        (hook().replace("{name: r}", "{name: R}"), "metadata.name: 'R' is not a DNS label"),
        (hook().replace("{name: r}", f"{{name: {'r' * 64}}}"), "has 64 letters; a name has at most 63"),
        (
            hook().replace("task: t", "task:"),
            "run.yaml:5: spec.task: spec.task is required and must not be empty",
        ),
        (hook().replace("task: t", "task: ' '"), "spec.task: spec.task is required and must not be empty"),
        (hook().replace("task: t", "task: 3"), "spec.task: is 3; a task is a text, or a mapping"),
        (
            hook().replace("task: t", "task: {mode: other}"),
            "task.mode: unknown task mode 'other'; known: sidecar",
        ),
        (
            hook().replace("task: t", "task: {tool: x}"),
            "spec.task: mode is missing; it is one of sidecar-driven",
        ),
        (
            hook().replace("task: t", "cleanup: never"),
            "spec.cleanup: unknown word 'never'; known: delete, keep",
        ),
        (hook().replace("task: t", "mode: serve"), "spec.mode: unknown word 'serve'; did you mean server?"),
        (hook().replace("task: t", "preRun: []"), "spec.preRun: unknown key: it belongs under lifecycle"),
        (hook().replace("task: t", "env: [{name: A}]"), "spec.env: is a list; the env of a run is a mapping"),
        (hook().replace("task: t", "env: {A: [1]}"), "spec.env.A: is [1]; give a text, in quotes"),
        ("- a\n", "run.yaml:1: is not an object; it must have apiVersion and kind"),
        (hook() + "---\n" + hook(), "run.yaml:13: metadata.name: the AgentRun 'r' is in run.yaml:1 already"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_key(text, told):
    found = wrong(text)
    assert any(told in each for each in found), found


def test_a_name_just_short_enough_is_right():
    assert wrong(hook(name="a" * 58)) == []
    assert wrong(hook(name=LONG, stage="preRun")) == []


def test_an_unknown_field_is_told_and_costs_nothing():
    found = parse(hook("zzz: 1") + "  wholeNewThing: {a: 1}\n", "run.yaml")
    assert (found.problems, len(found.runs[0].lifecycle.post_run)) == ((), 1)
    assert [each.partition(": ")[0] for each in found.notes] == ["run.yaml:10", "run.yaml:11"]
    assert all("this key is not known here and has no effect" in each for each in found.notes)


def test_one_wrong_hook_costs_only_itself():
    found = parse(hook(image="args: []") + "      - {name: b, image: b}\n", "run.yaml")
    assert len(found.problems) == 1
    assert [each.name for each in found.runs[0].lifecycle.post_run] == ["b"]


@pytest.mark.rule("sympozium B10")
@pytest.mark.parametrize("place", ["env: {AGENT_RUN_ID: x}", "lifecycle"])
def test_setting_a_variable_that_is_set_anyway_is_told(place):
    text = (
        hook().replace("task: t", place) if "env" in place else hook("env: [{name: AGENT_RUN_ID, value: x}]")
    )
    found = parse(text, "run.yaml")
    assert found.problems == ()
    assert "AGENT_RUN_ID is set for every hook and cannot be set here" in found.notes[0]


@pytest.mark.rule("sympozium 1.17.19")
def test_a_task_is_a_text_or_an_object():
    assert run_of(parse(hook(), "r.yaml")).task == "t"
    given = hook().replace("task: t", "task: {mode: sidecar-driven, tool: x, parameters: {a: b}}")
    assert run_of(parse(given, "r.yaml")).task == TaskSpec(
        mode="sidecar-driven", tool="x", parameters={"a": "b"}
    )
    none = parse(hook().replace("  task: t\n", ""), "r.yaml")
    assert none.problems == ()
    with pytest.raises(FileError, match=r"^r.yaml:4: spec: spec.task is required and must not be empty"):
        run_of(none)
    assert run_of(none, asked(task="now")).task == "now"


@pytest.mark.statement("SZ55", "SZ59")
def test_a_run_of_an_instance_has_its_model_its_prompt_and_its_whole_lifecycle():
    text = (
        SEED / "oncall-agent.yaml"
    ).read_text() + "      systemPrompt: read /workspace/context/incidents.json\n"
    found = parse(text, "oncall.yaml")
    assert found.problems == ()
    run = run_of(
        found, asked(task="what is on fire?", name="oncall-agent-7", namespace="prod", env={"A": "b"})
    )
    assert (run.name, run.namespace, run.instance) == ("oncall-agent-7", "prod", "oncall-agent")
    assert (run.task, run.model.model, run.env) == ("what is on fire?", "gpt-4o", {"A": "b"})
    assert run.system_prompt == "read /workspace/context/incidents.json"
    assert run.lifecycle == found.instances[0].lifecycle
    with pytest.raises(FileError, match="or give it on the command line"):
        run_of(found)


@pytest.mark.rule("sympozium 1.2")
def test_a_run_takes_what_it_lacks_of_the_instance_in_its_file_and_a_lifecycle_only_whole():
    instance = (SEED / "oncall-agent.yaml").read_text()
    bare = (
        "---\napiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: r}\n"
        "spec: {instanceRef: oncall-agent, task: t}\n"
    )
    run = run_of(parse(instance + bare, "f.yaml"))
    assert (run.name, run.model.model) == ("r", "gpt-4o")
    assert [each.name for each in run.lifecycle.pre_run] == ["fetch-incidents"]
    own = bare.replace("task: t}", "task: t, lifecycle: {postRun: [{name: a, image: b}]}}")
    run = run_of(parse(instance + own, "f.yaml"))
    assert (run.lifecycle.pre_run, run.lifecycle.post_run[0].name) == ((), "a")


@pytest.mark.statement("SZ62")
@pytest.mark.rule("sympozium K8")
def test_a_persona_of_a_pack_gets_its_hooks():
    found = load(SEED / "oncall-team.yaml")
    run = run_of(found, asked(persona="triage-agent", task="t"))
    assert (run.instance, run.ensemble) == ("oncall-team-triage-agent", "oncall-team")
    assert run.lifecycle.pre_run[0].name == "fetch-alerts"
    assert run.system_prompt == "You are an SRE triage agent..."
    assert run_of(found, asked(task="t")) == run
    with pytest.raises(FileError, match="there is no persona 'triage'; did you mean triage-agent"):
        run_of(found, asked(persona="triage", task="t"))


PACK = """\
apiVersion: sympozium.ai/v1alpha1
kind: Ensemble
metadata: {name: team}
spec:
  enabled: true
  baseURL: http://localhost:9
  authRefs: [{provider: openai, secret: key}]
  excludePersonas: [c]
  agentConfigs:
    - {name: a, systemPrompt: x, model: m}
    - {name: b, systemPrompt: y}
    - {name: c, systemPrompt: z}
"""


@pytest.mark.rule("sympozium K3", "sympozium K6", "sympozium K8")
def test_an_ensemble_of_today_says_the_same_in_new_words():
    found = parse(PACK, "p.yaml")
    assert found.problems == ()
    run = run_of(found, asked(persona="a", task="t"))
    assert run.model == ModelSpec(
        provider="openai", model="m", base_url="http://localhost:9", auth_secret="key"
    )
    with pytest.raises(FileError, match="several personas are in it: a, b, c; give --persona NAME"):
        run_of(found, asked(task="t"))
    with pytest.raises(FileError, match="'c' is among excludePersonas"):
        run_of(found, asked(persona="c", task="t"))


@pytest.mark.parametrize(
    ("kind", "enabled", "works"),
    [
        ("Ensemble", "", False),
        ("Ensemble", "  enabled: true\n", True),
        ("PersonaPack", "", True),
        ("PersonaPack", "  enabled: false\n", False),
    ],
)
def test_a_persona_pack_is_on_and_an_ensemble_off_unless_it_says_otherwise(kind, enabled, works):
    text = PACK.replace("Ensemble", kind).replace("  enabled: true\n", enabled)
    found = parse(text, "p.yaml")
    assert found.packs[0].enabled is works
    if not works:
        with pytest.raises(FileError, match=rf"^p.yaml:1: the {kind} 'team' is not enabled"):
            run_of(found, asked(persona="a", task="t"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "f.yaml: there is no AgentRun, Agent or Ensemble in it"),
        (hook() + "---\n" + hook().replace("name: r", "name: s"), "several AgentRuns are in it: r, s"),
    ],
)
def test_a_file_without_one_clear_run_says_so(text, told):
    with pytest.raises(FileError, match=told):
        run_of(parse(text, "f.yaml"), asked(task="t"))


def test_secrets_in_the_file_are_kept_apart_from_its_objects():
    found = parse(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: pd}\nstringData: {token: abc}\ndata: {k: eHl6}\n",
        "s.yaml",
    )
    assert found.secrets == {"pd": {"token": "abc", "k": "xyz"}}


def doubts_in(manifests, known=()):
    return [doubt for each in (*manifests.runs, *manifests.agents) for doubt in doubts(each, known)]


@pytest.mark.rule("sympozium B1")
def test_a_variable_in_single_quotes_is_told():
    (found,) = doubts_in(load(SEED / "oncall-agent.yaml"))
    assert (found.line, "$PD_TOKEN is in single quotes" in str(found)) == (14, True)


@pytest.mark.rule("sympozium 1.10")
def test_a_command_substitution_without_a_shell_is_told():
    (found,) = doubts_in(load(SEED / "rbac.yaml"))
    assert found.key == "spec.lifecycle.preRun[0].command[4]"
    assert "$(date) is not expanded: this command runs without a shell" in str(found)


@pytest.mark.statement("SZ63")
def test_a_variable_that_nobody_sets_is_told_until_somebody_does():
    found = load(SEED / "oncall-team.yaml")
    (told,) = doubts_in(found)
    assert "$ALERTMANAGER_URL is not set" in str(told)
    assert doubts_in(found, {"ALERTMANAGER_URL"}) == []


@pytest.mark.rule("sympozium X6")
def test_a_secret_written_into_the_file_is_told():
    (run,) = load(SEED / "upload-report.yaml").runs
    notes = literal_secrets(run.hooks)
    assert [str(note).split("value: ")[1].split()[0] for note in notes] == [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
    ]


@pytest.mark.parametrize(
    ("command", "count"),
    [
        (["sh", "-c", "echo $AGENT_RUN_ID"], 0),
        (["sh", "-c", "echo \"it is '$AGENT_RUN_ID'\""], 0),
        (["sh", "-c", "echo '$AGENT_RUN_ID'"], 1),
        (["sh", "-c", "awk '{print $NF}' f"], 0),
        (["sh", "-c", "bash -c 'echo $AGENT_RUN_ID'"], 0),
        (["sh", "-c", "X=1; echo $X ${Y:-2} ${Z-} $1 $? $$"], 0),
        (["sh", "-c", "for f in *; do read -r a b; echo $f $a $b; done"], 0),
        (["sh", "-c", "echo $NOT_SET ${NOT_SET}"], 1),
        (["sh", "-c", "echo ${NOT_SET:0:3}"], 1),
        (["sh", "-c", "echo \\$NOT_SET # it's $NEITHER\n"], 0),
        (["sh", "-c", "echo $AGENT_RESULT"], 1),
        (["sh", "-c", "echo $(date)"], 0),
        (["/bin/bash", "-euc", "echo $NOT_SET"], 1),
        (["busybox", "sh", "-c", "echo $NOT_SET"], 1),
        (["sh", "script.sh", "$AGENT_RUN_ID"], 1),
        (["echo", "$(AGENT_RUN_ID)"], 0),
        (["echo", "$$(date)"], 0),
        (["echo", "`date`"], 1),
        (["echo", "${AGENT_RUN_ID}"], 1),
        ([], 0),
    ],
)
def test_what_a_preRun_command_would_not_do_as_it_looks_is_told(command, count):
    one = ContainerHook(name="a", image="b", command=tuple(command))
    assert len(doubts(Instance(name="r", lifecycle=Lifecycle(pre_run=(one,))))) == count


def test_postRun_hooks_have_the_result_to_ask_for():
    one = ContainerHook(
        name="a", image="b", command=("sh", "-c"), args=("echo $AGENT_RESULT $AGENT_EXIT_CODE",)
    )
    assert doubts(Instance(name="r", lifecycle=Lifecycle(post_run=(one,)))) == []


@pytest.mark.rule("sympozium B17")
def test_what_only_a_cluster_heeds_is_said_on_one_machine():
    run = run_of(parse(FULL.replace("mode: task", "mode: server"), "run.yaml"))
    told = not_here(run)
    assert all("is not used on one machine" in str(each) for each in told)
    for word in ("lifecycle.rbac", "agentSandbox", "skills", "imagePullSecrets", "mode: server"):
        assert any(word in str(each) for each in told), word
    assert not_here(run_of(parse(hook(), "run.yaml"))) == ()


@pytest.mark.statement("SZ1", "SZ2")
def test_a_run_is_declared_with_containers_before_and_after_it():
    made = declaration(run_of(parse(FULL, "run.yaml")))
    assert [(each.name, each.points, each.kind) for each in made.hooks] == [
        ("fetch", (Point.RUN_START,), "container"),
        ("check", (Point.RUN_END,), "container"),
        ("tell", (Point.RUN_END,), "container"),
    ]
    assert [each.on_error for each in made.hooks] == [OnError.FAIL, OnError.CONTINUE, OnError.CONTINUE]
    assert made.hooks[0].params["env"]["TOKEN"] == {
        "secretKeyRef": {"name": "pd", "key": "token", "optional": True}
    }
    assert made.hooks[1].params["gateDefault"] == "allow"
    assert (made.agent.name, made.agent.model, made.hooks[0].timeout) == ("alice", "claude-x", 90.0)
    assert made.to_dict()["hooks"][0]["source"] == "run.yaml:27"
