"""Limits on a run: names of tools bind the built-in agent's by kind, and a SympoziumPolicy is enforced or the run refused."""

import json

import pytest

from hookline.errors import FileError
from hookline.options import KUBERNETES
from hookline.sympozium.policy import Policy, permitted
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import RunRequest, spec_of
from tests.sympozium.cluster.manifests import made
from tests.sympozium.run.conftest import hook
from tests.sympozium.run.test_command import command  # noqa: F401

ALL = ["bash", "read_file", "write_file", "edit_file", "list_files"]
PERMITTED = {
    "nothing is said": ([], [], ALL),
    "no shell": ([], ["execute_command"], ALL[1:]),
    "no shell by our name": ([], ["bash"], ALL[1:]),
    "readers only": (["read_file"], [], ["read_file"]),
    "a folder is searched": (["list_directory"], [], ["list_files"]),
    "whoever may write may edit": (["write_file"], [], ["write_file", "edit_file"]),
    "whoever may not write may not edit": ([], ["write_file"], ["bash", "read_file", "list_files"]),
    "one of ours by its name": ([], ["edit_file"], ["bash", "read_file", "write_file", "list_files"]),
    "a denial counts more": (["execute_command", "read_file"], ["execute_command"], ["read_file"]),
    "all is denied": (["read_file"], ["*"], []),
    "only what is not here is allowed": (["fetch_url"], [], []),
}


@pytest.mark.rule("sympozium 5.1")
@pytest.mark.parametrize(("allowed", "denied", "left"), PERMITTED.values(), ids=PERMITTED.keys())
def test_a_name_of_sympoziums_stands_for_the_tools_of_its_kind(allowed, denied, left):
    assert permitted(allowed, denied) == left


def policy(name="strict", **spec):
    return made("SympoziumPolicy", spec, name)


def agent(ref="strict", kind="Agent", **default):
    default = {"model": "scripted/x", **default}
    if kind == "Agent":
        return made(kind, {"agents": {"default": default}, "policyRef": ref}, "oncall")
    return made(kind, {"enabled": True, "agentConfigs": [{"name": "a", **default}], "policyRef": ref}, "team")


def run(ref="oncall", **spec):
    return made("AgentRun", {"agentRef": ref, "task": "look", **spec}, "r")


def text(*objects):
    return "\n---\n".join(json.dumps(each, indent=1) for each in objects)


def spec(*objects, on="sandbox"):
    return spec_of(RunRequest(file="f.yaml", text=text(*objects), on=on))


def gated(default="allow", **rules):
    return {"defaultAction": default, "rules": [{"tool": t, "action": a} for t, a in rules.items()]}


GATED = {
    "a denied tool": (gated(execute_command="deny"), {}, ALL[1:]),
    "asking is denying": (gated(execute_command="ask"), {}, ALL[1:]),
    "only what is allowed": (gated("deny", read_file="allow", fetch_url="deny"), {}, ["read_file"]),
    "nothing is allowed": (gated("deny"), {}, []),
    "a run may have less": (gated("deny", read_file="allow", list_directory="allow"), {"allow": ["read_file"]}, ["read_file"]),
    "a run denies more": (gated(execute_command="deny"), {"deny": ["write_file"]}, ["read_file", "list_files"]),
}  # fmt: skip


@pytest.mark.parametrize(("rules", "own", "left"), GATED.values(), ids=GATED.keys())
def test_tool_gating_holds_for_runs_and_for_members_of_packs(rules, own, left):
    found = spec(agent(), policy(toolGating=rules), run(toolPolicy=own))
    assert permitted(found.tools_allowed, found.tools_denied) == left
    pack = agent(kind="Ensemble", toolPolicy=own)
    found = spec(pack, policy(toolGating=rules), run("team-a"))
    assert permitted(found.tools_allowed, found.tools_denied) == left


RBAC = {"rbac": [{"apiGroups": [""], "resources": ["secrets/status"], "verbs": ["get"]}]}
BROKEN = {
    "a denied tool that the run allows": (
        {"toolGating": gated(execute_command="deny")},
        {"toolPolicy": {"allow": ["bash"]}},
        "tool 'bash' is denied by the SympoziumPolicy 'strict'",
    ),
    "a tool that no rule allows": (
        {"toolGating": gated("deny", read_file="allow")},
        {"toolPolicy": {"allow": ["mcp_shell"]}},
        "tool 'mcp_shell' is denied",
    ),
    "a tool that none of ours stands for": (
        {"toolGating": gated(mcp_shell="deny")},
        {"toolPolicy": {"allow": ["mcp_shell"]}},
        "tool 'mcp_shell' is denied",
    ),
    "a tool that none of ours stands for, where all are denied": (
        {"toolGating": gated(**{"*": "deny"})},
        {"toolPolicy": {"allow": ["mcp_shell"]}},
        "tool 'mcp_shell' is denied",
    ),
    "a tool that stands for two, of which one is denied": (
        {"toolGating": gated(edit_file="deny")},
        {"toolPolicy": {"allow": ["write_file"]}},
        "tool 'write_file' is denied",
    ),
    "an image that cannot be read": (
        {"imagePolicy": {"allowedRegistries": ["docker.io"]}},
        {"lifecycle": {"preRun": [hook("a", "true") | {"image": "docker.io/BusyBox"}]}},
        "image 'docker.io/BusyBox' is not allowed",
    ),
    **{
        f"the variable {name}": ({}, {"env": {name: "x"}}, f"env sets {name}")
        for name in ("PATH", "LD_LIBRARY_PATH", "HOME", "SHELL", "USER", "HOSTNAME", "TOOL_POLICY_ALLOW")
    },
    "an image of elsewhere": (
        {"imagePolicy": {"allowedRegistries": ["ghcr.io/org"]}},
        {"lifecycle": {"preRun": [hook("a", "true") | {"image": "ghcr.io/organised/x:1"}]}},
        "image 'ghcr.io/organised/x:1' is not allowed",
    ),
    "a resource that is denied": (
        {"lifecyclePolicy": {"deniedResources": ["secrets"]}},
        {"lifecycle": RBAC},
        "rbac asks for 'secrets/status', which is denied",
    ),
    "every resource": (
        {"lifecyclePolicy": {"deniedResources": ["secrets"]}},
        {"lifecycle": {"rbac": [{**RBAC["rbac"][0], "resources": ["*"]}]}},
        "rbac asks for '*', which is denied",
    ),
    "a variable of the system": ({"featureGates": {}}, {"env": {"LD_PRELOAD": "x"}}, "env sets LD_PRELOAD"),
    "the agent's limits as a variable": ({}, {"env": {"TOOL_POLICY_DENY": ""}}, "env sets TOOL_POLICY_DENY"),
    "a runtime class that is not allowed": (
        {"sandboxPolicy": {"agentSandboxPolicy": {"allowedRuntimeClasses": ["gvisor"]}}},
        {"agentSandbox": {"enabled": True, "runtimeClass": "runc"}},
        "runtime class 'runc' is not allowed",
    ),
}


@pytest.mark.rule("sympozium 1.4", "sympozium X4")
@pytest.mark.parametrize(("limits", "own", "said"), BROKEN.values(), ids=BROKEN.keys())
def test_a_run_that_breaks_its_policy_is_refused(limits, own, said):
    objects = [agent(), policy(**limits), run(**own)]
    for on in ("sandbox", KUBERNETES):
        with pytest.raises(FileError) as caught:
            spec(*objects, on=on)
        assert said in str(caught.value)


def test_a_sandbox_has_the_runtime_class_of_its_policy_unless_it_names_one():
    limits = {"agentSandboxPolicy": {"defaultRuntimeClass": "kata"}}
    for own, found in (({}, "kata"), ({"runtimeClass": "gvisor"}, "gvisor")):
        asked = run(agentSandbox={"enabled": True, **own})
        assert spec(agent(), policy(sandboxPolicy=limits), asked).sandbox.runtime_class == found


def test_a_policy_of_another_namespace_is_none():
    other = policy()
    other["metadata"]["namespace"] = "elsewhere"
    with pytest.raises(FileError, match="there is no SympoziumPolicy 'strict' in the namespace 'default'"):
        spec(agent(), other, run())


def test_an_image_is_allowed_by_its_whole_name():
    def images(*registries):
        limits = {"imagePolicy": {"allowedRegistries": list(registries)}}
        hooks = {"preRun": [hook("a", "true")]}
        return spec(agent(), policy(**limits), run(lifecycle=hooks))

    assert images("docker.io/library/").hooks.pre_run
    assert images("ghcr.io/org/", "docker.io").hooks.pre_run
    with pytest.raises(FileError, match="busybox"):
        images("docker.io/lib")


@pytest.mark.parametrize(("on", "own", "well"), [
    ("local", {}, False),
    ("sandbox", {}, True),
    ("container", {}, True),
    (KUBERNETES, {}, False),
    (KUBERNETES, {"agentSandbox": {"enabled": True}}, True),
])  # fmt: skip
def test_a_sandbox_that_a_policy_requires(on, own, well):
    objects = agent(), policy(sandboxPolicy={"required": True}), run(**own)
    if well:
        assert spec(*objects, on=on)
    else:
        with pytest.raises(FileError, match="a sandbox is required"):
            spec(*objects, on=on)


def test_all_of_a_policy_is_read_and_what_is_not_enforced_is_told():
    limits = {
        "toolGating": gated("deny", read_fiel="allow", write_file="ask"),
        "sandboxPolicy": {"agentSandboxPolicy": {"required": True, "defaultRuntimeClass": "kata"}, "maxCPU": "2"},
        "networkPolicy": {"denyAll": True},
        "toolGate": 1,
    }  # fmt: skip
    found = parse(text(policy(**limits)), "p.yaml")
    assert found.policies == (
        Policy(
            name="strict",
            tools_allowed=("read_fiel",),
            tools_denied=("write_file",),
            sandbox=True,
            runtime_class="kata",
        ),
    )
    assert [
        "spec.toolGate: unknown key; did you mean toolGating?" in str(each) for each in found.problems
    ] == [True]
    told = " ".join(found.notes)
    for said in ("rules[0].tool: 'read_fiel' is no tool; did you mean read_file?", "rules[1].action: nobody is asked here, so the tool is denied", "spec.networkPolicy: is not enforced", "maxCPU: is not enforced"):  # fmt: skip
        assert said in told


def test_a_policy_that_is_in_none_of_the_files_is_a_mistake_and_nothing_is_run(command):  # noqa: F811
    file = command.write(text(agent(), run(lifecycle={"preRun": [hook("a", "touch ran")]})))
    missing = "there is no SympoziumPolicy 'strict' in the namespace 'default'"
    code, out, _ = command("check", file=file)
    assert (code, missing in out, "run.yaml:" in out, "spec.policyRef" in out) == (2, True, True, True)
    code, _, err = command("run", file=file, on="local", agent_command="touch ran")
    assert (code, missing in err) == (2, True)
    assert not (command.folder / "ran").exists()
    other = command.write(text(policy(toolGating=gated(bash="deny"))), "policy.yaml")
    assert command("check", file=[file, other])[0] == 0
    wrong = command.write(text(policy(imagePolicy={"allowedRegistries": ["ghcr.io/"]})), "policy.yaml")
    code, out, _ = command("check", file=[file, wrong])
    assert (code, "image 'busybox:1.36' is not allowed" in out) == (2, True)


def test_an_empty_list_of_allowed_tools_is_told_to_allow_all(command):  # noqa: F811
    file = command.write(text(made("AgentRun", {"task": "t", "model": "m", "toolPolicy": {"allow": []}})))
    code, out, _ = command("check", file=file)
    assert (code, "spec.toolPolicy.allow: is empty, so every tool is allowed" in out) == (0, True)
    assert command("check", file=file, strict=True)[0] == 2


def test_a_name_that_matches_no_tool_is_told_by_check_and_explain(command):  # noqa: F811
    file = command.write(text(made("AgentRun", {"task": "t", "model": "m", "toolPolicy": {"deny": ["execute_comand"], "allow": ["fetch_url"]}})))  # fmt: skip
    for does in ("check", "explain"):
        code, out, _ = command(does, file=file)
        told = " ".join(out.split())
        assert code == 0
        assert "spec.toolPolicy.deny[0]: 'execute_comand' matches no tool of the built-in agent; did you mean execute_command?" in told  # fmt: skip
        assert "'fetch_url' matches no tool of the built-in agent, which has none of that kind" in told
    assert "tools: none" in told
