"""kagent's manifests: every field, every mistake with its line, what reaches the runtime, what is missing here."""

from pathlib import Path

import pytest

from hookline.agent.spec import hook_declaration
from hookline.engine.hook import HookDeclaration
from hookline.engine.point import Point
from hookline.errors import UsageError
from hookline.images.reference import directory_name
from hookline.kagent.agent import (
    TIMEOUT,
    HookEntry,
    hook_config,
    planned,
    runtime_config,
)
from hookline.kagent.keys import MOST_HOOKS
from hookline.kagent.load import live
from hookline.kagent.read import is_kagent, parse
from hookline.matcher import pattern, searched
from hookline.runners.local import LocalRunner

SEED = """\
spec:
  hooks:
    - ref: ghcr.io/org/security-hooks:v1.0
      event: PreToolUse
      type: claude-command
      matcher: "bash|shell_exec"
      command: check-tool-use.sh
    - ref: ghcr.io/org/security-hooks:v1.0
      event: SessionStart
      type: claude-command
      command: inject-session-metadata.py
"""

HEAD = "apiVersion: kagent.dev/v1alpha2\nkind: {kind}\nmetadata: {{name: {name}}}\n"

GOOD = {"ref": "ghcr.io/org/h:v1", "event": "PreToolUse", "command": "check.sh"}


def text_of(value) -> str:
    return value if isinstance(value, str) else str(value)


def agent(*hooks, declarative="", name="a", spec=""):
    """An Agent whose hooks are given as mappings, the first in line 7."""
    text = HEAD.format(kind="Agent", name=name) + "spec:\n  type: Declarative\n"
    text += "  hooks:\n" if hooks else "\n"
    for hook in hooks:
        text += "    - " + "\n      ".join(f"{key}: {text_of(value)}" for key, value in hook.items()) + "\n"
    if declarative:
        text += "  declarative:\n" + indented(declarative, 4)
    return text + indented(spec, 2)


def indented(text, by):
    return "".join(f"{' ' * by}{line}\n" for line in text.splitlines())


def other(kind, name, spec, api="kagent.dev/v1alpha2"):
    return f"---\napiVersion: {api}\nkind: {kind}\nmetadata: {{name: {name}}}\nspec:\n{indented(spec, 2)}"


def wrong(text):
    return [str(each) for each in parse(text, "agent.yaml").problems]


def made_live(found, folder="/hooks"):
    """The first hook of the first agent."""
    return live(found.agents[0].hooks[0], LocalRunner(), {}, folder, folder)


def the_plan(text, environ=None):
    found = parse(text, "agent.yaml")
    assert found.problems == ()
    return planned(found, found.agents[0], environ or {})


@pytest.mark.statement("KA7", "KA8", "KA29")
@pytest.mark.rule("kagent 1.1")
def test_the_seed_s_example_says_what_it_seems_to_say():
    found = parse(SEED, "hooks.yaml")
    assert found.problems == ()
    first, second = found.agents[0].hooks
    assert (first.ref, first.event, first.type) == (
        "ghcr.io/org/security-hooks:v1.0",
        "PreToolUse",
        "claude-command",
    )
    assert (first.matcher, first.command) == ("bash|shell_exec", "check-tool-use.sh")
    assert (second.ref, second.event, second.matcher) == (first.ref, "SessionStart", "")
    assert [each.source for each in (first, second)] == ["hooks.yaml:3", "hooks.yaml:8"]
    assert found.agents[0].name == "hooks"


@pytest.mark.statement("KA9", "KA10", "KA11", "KA12")
@pytest.mark.rule("kagent 1.1", "kagent 1.3")
@pytest.mark.parametrize(
    ("event", "point"),
    [
        ("PreToolUse", Point.TOOL_START),
        ("PostToolUse", Point.TOOL_END),
        ("SessionStart", Point.SESSION_START),
        ("SessionEnd", Point.SESSION_END),
    ],
)
def test_each_event_stands_at_its_point(event, point):
    found = parse(agent({**GOOD, "event": event}), "agent.yaml")
    assert found.problems == ()
    assert made_live(found).points == {point}


@pytest.mark.statement("KA32", "KA36", "KA38")
@pytest.mark.rule("kagent 1.2", "kagent 1.8")
def test_three_hooks_of_two_images_are_three_entries_in_order():
    audit = {
        "ref": "localhost:5000/org/audit-hooks:v2",
        "event": "PostToolUse",
        "command": "python3 audit.py",
    }
    ends = {"ref": GOOD["ref"], "event": "SessionEnd", "command": "bye.sh"}
    found = parse(
        agent(
            {**GOOD, "matcher": '"bash|shell_exec"'},
            audit,
            ends,
            declarative="systemMessage: You help.\nmodelConfig: m",
            spec="description: An agent.",
        )
        + other("ModelConfig", "m", "provider: Ollama\nmodel: llama3"),
        "agent.yaml",
    )
    assert found.problems == ()
    plan = planned(found, found.agents[0], {})
    assert runtime_config(plan) == {
        "model": {"type": "ollama", "model": "llama3"},
        "description": "An agent.",
        "instruction": "You help.",
        "hooks": [
            {
                "event": "PreToolUse",
                "type": "claude-command",
                "matcher": "bash|shell_exec",
                "command": "check.sh",
                "dir": "/hooks/h",
            },
            {
                "event": "PostToolUse",
                "type": "claude-command",
                "command": "python3 audit.py",
                "dir": "/hooks/audit-hooks",
            },
            {"event": "SessionEnd", "type": "claude-command", "command": "bye.sh", "dir": "/hooks/h"},
        ],
    }
    assert len({each.ref for each in found.agents[0].hooks}) == 2


@pytest.mark.rule("kagent 1.2")
def test_the_same_hook_twice_is_two_entries_with_two_names():
    found = parse(agent(GOOD, GOOD), "agent.yaml")
    assert found.problems == ()
    assert len(runtime_config(planned(found, found.agents[0], {}))["hooks"]) == 2
    assert [each.name for each in found.agents[0].hooks] == [
        "PreToolUse: check.sh",
        "PreToolUse: check.sh (2)",
    ]


@pytest.mark.rule("kagent 1.2")
def test_a_configuration_without_hooks_has_no_such_key():
    found = parse(agent(), "agent.yaml")
    assert "hooks" not in runtime_config(planned(found, found.agents[0], {}))
    assert "matcher" not in hook_config(HookEntry(name="x", ref="x", event="PreToolUse", command="x"))


@pytest.mark.rule("kagent 1.1", "kagent 1.2")
@pytest.mark.parametrize("given", [{}, {"type": "claude-command"}, {"type": "''"}])
def test_the_type_is_claude_command_where_none_is_given(given):
    found = parse(agent({**GOOD, **given}), "agent.yaml")
    assert found.problems == ()
    assert hook_config(found.agents[0].hooks[0])["type"] == "claude-command"


def test_a_hook_is_declared_with_its_limit_its_folder_and_its_line():
    found = parse(agent({**GOOD, "matcher": "bash", "command": "python3 audit.py --to 'a b'"}), "agent.yaml")
    (entry,) = found.agents[0].hooks
    assert (entry.event, entry.ref) == ("PreToolUse", "ghcr.io/org/h:v1")
    assert entry.argv == ["python3", "audit.py", "--to", "a b"]
    assert entry.folder("/run/hooks") == "/run/hooks/h"
    assert hook_declaration(made_live(found, "/run/hooks")) == HookDeclaration(
        name="PreToolUse: python3 audit.py --to 'a b'",
        points=(Point.TOOL_START,),
        kind="command",
        match="bash",
        timeout=TIMEOUT,
        source="agent.yaml:7",
    )


@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize(
    ("ref", "name"),
    [
        ("ghcr.io/org/security-hooks:v1.0", "security-hooks"),
        ("ghcr.io/org/security-hooks", "security-hooks"),
        ("localhost:5000/hooks", "hooks"),
        ("localhost:5000/org/hooks:v1@sha256:" + "a" * 64, "hooks"),
        ("hooks@sha256:" + "a" * 64, "hooks"),
        ("hooks", "hooks"),
        ("hooks:v1", "hooks"),
        ("oci:layout", "layout"),
    ],
)
def test_an_image_s_folder_is_the_last_part_of_its_name(ref, name):
    assert directory_name(ref) == name
    found = parse(agent({**GOOD, "ref": ref}), "agent.yaml")
    assert [entry.folder() for entry in found.agents[0].hooks] == [f"/hooks/{name}"]


HOOK_MISTAKES = [
    (
        {"event": "PreToolUs"},
        "agent.yaml:8: spec.hooks[0].event: unknown event 'PreToolUs'; did you mean 'PreToolUse'?",
    ),
    ({"event": "pre_tool_use"}, "event: unknown event 'pre_tool_use'; did you mean 'PreToolUse'?"),
    (
        {"event": "UserPromptSubmit"},
        "event: unknown event 'UserPromptSubmit'; UserPromptSubmit is an event of claude",
    ),
    ({"event": "Whenever"}, "known: PreToolUse, PostToolUse, SessionStart, SessionEnd"),
    ({"event": None}, "agent.yaml:7: spec.hooks[0]: event is missing; it is one of PreToolUse,"),
    ({"event": "3"}, "event: is 3; it is one of PreToolUse"),
    ({"type": "shell"}, "agent.yaml:10: spec.hooks[0].type: unknown type 'shell'; known: claude-command"),
    ({"ref": None}, "agent.yaml:7: spec.hooks[0]: ref is missing; it names the image"),
    ({"ref": "''"}, "agent.yaml:7: spec.hooks[0].ref: is ''; it names the image"),
    ({"ref": "'two words'"}, "ref: 'two words' is not an image reference"),
    ({"ref": "ghcr.io/org/"}, "ref: 'ghcr.io/org/' is not an image reference"),
    ({"ref": "ghcr.io/org/.."}, "ref: 'ghcr.io/org/..' is not an image reference"),
    ({"command": None}, "spec.hooks[0]: command is missing; it names a program in the image"),
    ({"command": "'  '"}, "agent.yaml:9: spec.hooks[0].command: is '  '; it names a program"),
    ({"command": "[a, b]"}, "command: is ['a', 'b']; it names a program in the image, and its arguments"),
    ({"command": "check.sh 'a"}, "command: cannot be split into arguments: no closing quotation"),
    ({"command": "../other/check.sh"}, "command: '../other/check.sh' leads out of the image's folder"),
    ({"matcher": "[bash]"}, "matcher: is ['bash']; give a text"),
    ({"matchers": "bash"}, "agent.yaml:10: spec.hooks[0].matchers: unknown key; did you mean matcher?"),
    ({"match": "bash"}, "match: unknown key; did you mean matcher?"),
    ({"image": "x"}, "image: unknown key; did you mean ref?"),
    ({"timeout": 5}, "timeout: unknown key: a kagent hook has 30 s, which cannot be set here"),
    ({"whatever": 5}, "whatever: unknown key; known: ref, event, type, matcher, command"),
]


@pytest.mark.statement("KA31")
@pytest.mark.rule("kagent 1.1")
@pytest.mark.parametrize(("change", "said"), HOOK_MISTAKES, ids=lambda value: str(value)[:40])
def test_a_mistake_in_a_hook_is_told_with_line_and_key_and_costs_that_entry(change, said):
    hook = {key: value for key, value in {**GOOD, **change}.items() if value is not None}
    found = parse(agent(hook, {**GOOD, "command": "right.sh"}), "agent.yaml")
    assert len(found.problems) == 1, [str(each) for each in found.problems]
    assert said in str(found.problems[0])
    assert [each.command for each in found.agents[0].hooks] == ["right.sh"]


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ("hooks: check.sh", "agent.yaml:5: spec.hooks: is not a list; begin each with `- ref: ...`"),
        ("hooks: [check.sh]", "agent.yaml:5: spec.hooks[0]: is 'check.sh'; it must be a mapping"),
        ("hook: []", "agent.yaml:5: spec.hook: unknown key; did you mean hooks?"),
        ("declarative: {hooks: []}", "spec.declarative.hooks: unknown key: hooks belong under spec, next to"),
    ],
)
def test_hooks_in_the_wrong_place_or_shape_are_told(hooks, said):
    assert [said in each for each in wrong(HEAD.format(kind="Agent", name="a") + f"spec:\n  {hooks}\n")] == [
        True
    ]


@pytest.mark.rule("kagent 1.1")
def test_twenty_hooks_are_right_and_the_twenty_first_is_told():
    many = [{**GOOD, "command": f"c{n}.sh"} for n in range(MOST_HOOKS)]
    assert wrong(agent(*many)) == []
    found = parse(agent(*many, GOOD), "agent.yaml")
    assert [str(each) for each in found.problems] == [
        "agent.yaml:67: spec.hooks[20]: is one of 21 hooks; an agent has at most 20"
    ]
    assert len(found.agents[0].hooks) == MOST_HOOKS


@pytest.mark.rule("kagent 1.7")
@pytest.mark.parametrize("ref", ["ghcr.io/org/h:v2", "ghcr.io/other/h:v1", "h@sha256:" + "a" * 64])
def test_two_images_with_the_same_last_name_are_refused(ref):
    said = wrong(agent(GOOD, {**GOOD, "ref": ref}))
    assert len(said) == 1
    assert (
        f"agent.yaml:10: spec.hooks[1].ref: {ref!r} and 'ghcr.io/org/h:v1' would both be the folder 'h'"
        in said[0]
    )


@pytest.mark.statement("KA49")
@pytest.mark.rule("kagent 1.5")
@pytest.mark.parametrize("matcher", ["(bash", "*", "[a", "bash{2,1}"])
def test_a_matcher_that_is_no_pattern_is_told_apart_from_mistakes_and_keeps_its_hook(matcher):
    found = parse(agent({**GOOD, "matcher": f"'{matcher}'"}), "agent.yaml")
    assert found.problems == ()
    assert len(found.broken) == 1
    assert f"agent.yaml:10: spec.hooks[0].matcher: {matcher!r} is not a regular expression: " in str(
        found.broken[0]
    )
    assert found.agents[0].hooks[0].broken is found.broken[0]


@pytest.mark.rule("kagent 1.5")
def test_a_matcher_at_a_session_s_start_or_end_is_ignored_and_said_so():
    found = parse(agent({**GOOD, "event": "SessionEnd", "matcher": "'(bash'"}), "agent.yaml")
    assert (found.problems, found.broken) == ((), ())
    assert [*map(str, found.notes)] == [
        "agent.yaml:10: spec.hooks[0].matcher: SessionEnd has no tool, so the matcher '(bash' is ignored",
    ]
    assert made_live(found).match is None


@pytest.mark.statement("KA27", "KA47", "KA48")
@pytest.mark.rule("kagent 1.5")
@pytest.mark.parametrize(
    ("matcher", "fits", "not_this"),
    [
        (
            "bash|shell_exec",
            ["bash", "shell_exec", "mybash2", "mcp__x__bash"],
            ["Bash", "shell", "read_file"],
        ),
        ("^bash$", ["bash"], ["mybash2", "bash2"]),
        ("bas", ["bash"], ["shell"]),
        (r"^k8s_(?!get_)\w+$", ["k8s_delete_pod"], ["k8s_get_pods"]),
        (r"^(?<verb>get|list)_", ["get_x", "list_x"], ["forget_x"]),
        (r"(?<=_)write$", ["file_write"], ["write"]),
        (r"tool\d+\/?", ["tool42"], ["tool"]),
        (r"\u0062ash", ["bash"], ["ash"]),
        (r"(a|b)\1", ["aa"], ["ab"]),
    ],
)
def test_a_matcher_is_an_ecmascript_pattern_that_is_searched_in_the_name(matcher, fits, not_this):
    found = pattern(searched(matcher))
    assert [name for name in [*fits, *not_this] if found(name)] == fits


def test_a_matcher_that_is_no_pattern_is_told_as_it_was_written():
    with pytest.raises(UsageError, match=r"'\(bash' is not a valid pattern"):
        searched("(bash")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "agent.yaml:1: is not an object; it must have apiVersion and kind"),
        (
            "kind: Agent\nmetadata: {name: a}\n",
            "agent.yaml:1: apiVersion is missing; it is kagent.dev/v1alpha2",
        ),
        ("apiVersion: kagent.dev/v1alpha2\n", "agent.yaml:1: kind is missing; it is one of Agent,"),
        (
            HEAD.format(kind="Agnet", name="a"),
            "agent.yaml:2: kind: unknown kind 'Agnet'; did you mean Agent?",
        ),
        (
            "apiVersion: kagent.dev/v1alpha1\nkind: Agent\nmetadata: {name: a}\n",
            "agent.yaml:1: apiVersion: is 'kagent.dev/v1alpha1'; of Agent kagent.dev/v1alpha2 is read",
        ),
        ("apiVersion: kagent.dev/v1alpha2\nkind: Agent\n", "agent.yaml:1: metadata is missing"),
        ("apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {}\n", "metadata: name is missing"),
        (HEAD.format(kind="Agent", name="a"), "agent.yaml:1: spec is missing; it has the agent's type"),
        (HEAD.format(kind="Agent", name="a") + "spec: {type: Byo}\n", "spec.type: unknown type 'Byo'"),
        (HEAD.format(kind="Agent", name="a") + "spec: {declaratives: {}}\n", "did you mean declarative?"),
        (agent(GOOD) + "---\n" + agent(GOOD), "metadata.name: the Agent 'a' is in agent.yaml:1 already"),
        ("apiVersion: [\n", "agent.yaml:1: this is not YAML"),
        (agent(declarative="systemMesage: x"), "systemMesage: unknown key; did you mean systemMessage?"),
        (agent(declarative="model: x"), "spec.declarative.model: unknown key; did you mean modelConfig?"),
        (
            agent(declarative="systemMessage: x\nsystemMessageFrom: {type: Secret, name: s, key: k}"),
            "spec.declarative.systemMessageFrom: is given together with systemMessage",
        ),
        (agent(declarative="systemMessageFrom: {type: Config, name: s, key: k}"), "unknown type 'Config'"),
        (
            agent(declarative="systemMessageFrom: {type: Secret, name: s}"),
            "systemMessageFrom: key is missing",
        ),
        (agent(declarative="tools: [{type: McpServr}]"), "unknown type 'McpServr'; did you mean McpServer?"),
        (
            agent(declarative="tools: [{type: McpServer}]"),
            "mcpServer is missing; it names the server or the agent",
        ),
        (
            agent(declarative="tools: [{type: Agent, mcpServer: {name: x}, agent: {name: y}}]"),
            "does not belong in a tool of",
        ),
        (agent(declarative="tools: [{mcpServer: {toolNames: [a]}}]"), "mcpServer: name is missing"),
        (
            agent(declarative="tools: [{mcpServer: {name: x, toolNames: a}}]"),
            "toolNames: is 'a'; it must be a list",
        ),
        (
            agent(declarative="tools: [{mcpServer: {name: x, toolNames: [read], requireApproval: [raed]}}]"),
            "requireApproval[0]: 'raed' is not among the toolNames; did you mean read?",
        ),
        (
            agent(declarative="tools:\n" + "- mcpServer: {name: x}\n" * 21),
            "spec.declarative.tools[20]: is one too many; an agent has at most 20",
        ),
        (
            other("ModelConfig", "m", "provider: OpenAi\nmodel: x"),
            "unknown provider 'OpenAi'; did you mean OpenAI?",
        ),
        (
            other("ModelConfig", "m", "provider: OpenAI"),
            "spec: model is missing; it names the provider's model",
        ),
        (other("ModelConfig", "m", "model: x\napiKeySecretKey: K"), "needs apiKeySecret"),
        (other("ModelConfig", "m", "model: x\napiKeySecret: s"), "needs apiKeySecretKey"),
        (
            other("ModelConfig", "m", "model: x\nopenAI: {temperature: warm}"),
            "spec.openAI.temperature: is 'warm'; give a number",
        ),
        (other("RemoteMCPServer", "s", "protocol: SSE"), "spec: url is missing; it is the server's address"),
        (other("RemoteMCPServer", "s", "url: ftp://x"), "spec.url: is 'ftp://x'; give http://"),
        (other("RemoteMCPServer", "s", "url: http://x\nprotocol: HTTP"), "unknown protocol 'HTTP'"),
        (
            other("RemoteMCPServer", "s", "url: http://x\ntimeout: soon"),
            "is 'soon'; write it like 30s, 1m30s",
        ),
        (
            other("RemoteMCPServer", "s", "url: http://x\nheadersFrom: [{name: X}]"),
            "spec.headersFrom[0]: give one of value and valueFrom",
        ),
        (
            other("MCPServer", "s", "transportType: stdio", "kagent.dev/v1alpha1"),
            "spec.deployment is missing",
        ),
        (
            other("MCPServer", "s", "transportType: tcp\ndeployment: {cmd: x}", "kagent.dev/v1alpha1"),
            "spec.transportType: unknown transportType 'tcp'; known: stdio, http",
        ),
        (
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {K: plain!}\n",
            "data.K: is not text in base64; write it plainly under stringData",
        ),
    ],
    ids=lambda value: value.replace("\n", " ")[-50:],
)
def test_a_mistake_anywhere_else_is_told_with_line_and_key(text, said):
    told = wrong(text)
    assert len(told) == 1, told
    assert said in told[0]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (SEED, True),
        (agent(GOOD), True),
        (other("ModelConfig", "m", "model: x"), True),
        ("apiVersion: kagent.dev/v1alpha2\nkind: [\n", True),
        ("hooks:\n  - name: a\n    on: tool.start\n    shell: ls\n", False),
        ("apiVersion: v1\nkind: Secret\n", False),
        ("- a\n", False),
        ("", False),
        ("spec: {hooks: no}\n", False),
    ],
)
def test_a_manifest_is_known_by_its_content(text, is_one):
    assert is_kagent(text, "x.yaml") is is_one


def test_objects_of_a_list_are_read_like_any_with_their_own_lines():
    text = "apiVersion: v1\nkind: List\nitems:\n  - apiVersion: kagent.dev/v1alpha2\n    kind: Agent\n"
    text += "    metadata: {name: a}\n    spec: {hooks: [{ref: r, event: E, command: c}]}\n"
    assert wrong(text) == [
        "agent.yaml:7: spec.hooks[0].event: unknown event 'E'; known: PreToolUse, PostToolUse, SessionStart,"
        " SessionEnd"
    ]


def test_what_means_nothing_here_is_said_and_costs_nothing():
    found = parse(
        agent(
            GOOD,
            declarative="memory: {modelConfig: m}\nexecuteCodeBlocks: true\nstream: true\na2aConfig: {skills: []}\n"
            "novelty: 1",
            spec="skills: {refs: [x]}\nallowedNamespaces: {from: All}",
        )
        + other("SandboxAgent", "s", "x: 1")
        + "---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n",
        "agent.yaml",
    )
    assert found.problems == ()
    assert [f"{note.key}: {note.message}" if note.key else note.message for note in found.notes] == [
        "spec.declarative.memory: there is no long-term memory here",
        "spec.declarative.executeCodeBlocks: code blocks in answers are not run here",
        "spec.declarative.a2aConfig: the agent's card has no skills here",
        "spec.declarative.novelty: this key is not known here and has no effect",
        "spec.skills: skills are not loaded here",
        "spec.allowedNamespaces: is not used here",
        "kind: a SandboxAgent is not supported here; supported: Agent, ModelConfig, RemoteMCPServer, MCPServer",
        "is a Deployment of apps/v1, which is not supported here",
    ]


def test_signs_of_a_shell_in_a_command_are_said_to_be_arguments():
    found = parse(agent({**GOOD, "command": "check.sh > log"}), "agent.yaml")
    assert found.problems == ()
    assert "spec.hooks[0].command: is started without a shell, so '>' is an argument like any other" in str(
        found.notes[0]
    )


WITH_MODEL = agent(declarative="modelConfig: m\nsystemMessage: Hello")


@pytest.mark.parametrize(
    ("spec", "environ", "expected"),
    [
        (
            "provider: OpenAI\nmodel: gpt-4o\napiKeySecret: s\napiKeySecretKey: MY_KEY\n"
            "openAI: {baseUrl: 'http://x/v1', temperature: '0.5', topP: '0.9', maxTokens: 100}",
            {"MY_KEY": "k"},
            ("OpenAI", "gpt-4o", "http://x/v1", 0.5, 0.9, 100, "k"),
        ),
        ("model: gpt-4o", {}, ("OpenAI", "gpt-4o", "", None, None, None, None)),
        (
            "provider: Ollama\nmodel: llama3\nollama: {host: 'box:11434'}",
            {},
            ("Ollama", "llama3", "http://box:11434/v1", None, None, None, None),
        ),
        (
            "provider: Anthropic\nmodel: claude\napiKeySecret: s\napiKeySecretKey: A\nanthropic: {maxTokens: 5}",
            {"A": "k"},
            ("Anthropic", "claude", "", None, None, 5, "k"),
        ),
    ],
)
def test_a_model_config_of_the_file_is_the_agent_s_model(spec, environ, expected):
    plan = the_plan(WITH_MODEL + other("ModelConfig", "m", spec), environ)
    model = plan.model
    assert plan.no_model is None
    assert (
        model.provider,
        model.model,
        model.base_url,
        model.temperature,
        model.top_p,
        model.max_tokens,
        plan.key,
    ) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            WITH_MODEL,
            "agent.yaml:8: spec.declarative.modelConfig: the ModelConfig 'm' is not in this file; add it,"
            " or give --model provider/name",
        ),
        (agent(), "the ModelConfig 'default-model-config' is not in this file"),
        (
            WITH_MODEL + other("ModelConfig", "m", "provider: Bedrock\nmodel: x\nbedrock: {region: r}"),
            "spec.provider: Bedrock is not supported here; known: OpenAI, Anthropic, Ollama, Gemini",
        ),
        (
            WITH_MODEL + other("ModelConfig", "m", "model: x\napiKeySecret: s\napiKeySecretKey: KEY"),
            "spec.apiKeySecretKey: KEY of the Secret 's' is neither in the environment nor in this file;"
            " give --env KEY=..., or --model provider/name",
        ),
    ],
)
def test_a_model_that_is_not_to_be_had_here_is_said_with_what_to_do(text, said):
    assert said in str(the_plan(text).no_model)


def test_a_secret_comes_from_the_environment_first_then_from_the_file_and_is_not_shown():
    text = WITH_MODEL + other("ModelConfig", "m", "model: x\napiKeySecret: s\napiKeySecretKey: KEY")
    text += "---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata: {KEY: aW4tZmlsZQ==}\n"
    plan = the_plan(text)
    assert (plan.key, plan.secrets) == ("in-file", ("in-file",))
    assert the_plan(text, {"KEY": "from-env"}).key == "from-env"
    assert "in-file" not in repr(plan)


def test_a_system_message_comes_out_of_a_config_map_of_the_file():
    text = agent(declarative="systemMessageFrom: {type: ConfigMap, name: c, key: prompt}")
    missing = the_plan(text)
    assert missing.system_prompt is None
    assert "prompt of the ConfigMap 'c' is neither in the environment nor in this file" in str(
        missing.missing[0]
    )
    text += "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {prompt: Be kind.}\n"
    assert (the_plan(text).system_prompt, the_plan(text).missing) == ("Be kind.", ())


SERVER = other(
    "MCPServer",
    "tools",
    "transportType: stdio\ndeployment: {image: x, cmd: python3, args: [server.py], env: {A: '1'}}",
    "kagent.dev/v1alpha1",
)
REMOTE = other(
    "RemoteMCPServer",
    "far",
    "description: d\nurl: http://h/mcp\ntimeout: 1m30s\nheadersFrom:\n"
    "  - {name: X-A, value: a}\n  - {name: X-B, valueFrom: {type: Secret, name: s, key: TOKEN}}",
)


def test_an_mcp_server_of_the_file_is_a_command_here():
    plan = the_plan(
        agent(
            declarative="tools:\n  - type: McpServer\n    mcpServer: {kind: MCPServer, name: tools, toolNames: [a],"
            " requireApproval: [a]}\n  - mcpServer: {name: tools, toolNames: [b]}"
        )
        + SERVER
    )
    (server,) = plan.servers
    assert (server.name, server.command, server.args, server.env) == (
        "tools",
        "python3",
        ("server.py",),
        {"A": "1"},
    )
    assert (server.tools, server.approval) == (("a", "b"), ("a",))
    assert plan.missing == ()


def test_a_remote_mcp_server_of_the_file_is_an_address_with_its_headers():
    text = agent(declarative="tools: [{mcpServer: {kind: RemoteMCPServer, name: far}}]") + REMOTE
    (server,) = the_plan(text, {"TOKEN": "t"}).servers
    assert (server.url, server.timeout, server.transport, server.tools) == ("http://h/mcp", 90.0, "http", ())
    assert server.headers == {"X-A": "a", "X-B": "t"}
    without = the_plan(text)
    assert without.servers[0].headers == {"X-A": "a"}
    assert "TOKEN of the Secret 's' is neither in the environment" in str(without.missing[0])


@pytest.mark.parametrize(
    ("tool", "more", "said"),
    [
        (
            "{mcpServer: {name: gone}}",
            "",
            "the MCPServer 'gone' is not in this file, so its tools are left out",
        ),
        (
            "{mcpServer: {name: far}}",
            REMOTE,
            "(there is a RemoteMCPServer of that name; write kind: RemoteMCPServer)",
        ),
        (
            "{mcpServer: {name: s}}",
            other("MCPServer", "s", "deployment: {image: x}", "kagent.dev/v1alpha1"),
            "s: it is only an image, which a cluster starts; give its spec.deployment.cmd",
        ),
        (
            "{mcpServer: {name: s}}",
            other("MCPServer", "s", "transportType: http\ndeployment: {cmd: x}", "kagent.dev/v1alpha1"),
            "start it, and write a RemoteMCPServer",
        ),
        ("{mcpServer: {name: svc, kind: Service}}", "", "the Service 'svc' is not in this file"),
        ("{agent: {name: gone}}", "", "the Agent 'gone' is not in this file, so it is left out"),
        ("{agent: {name: a}}", "", "it would call itself (a -> a), so it is left out"),
    ],
)
def test_a_tool_that_is_not_to_be_had_here_is_said_and_left_out(tool, more, said):
    plan = the_plan(agent(declarative=f"tools: [{tool}]") + more)
    assert [said in str(each) for each in plan.missing] == [True]
    assert str(plan.missing[0]).startswith("agent.yaml:8: spec.declarative.tools[0].")
    assert (plan.servers, plan.agents) == ((), ())


def test_an_agent_of_the_file_is_a_tool_with_its_own_hooks():
    inner = agent(GOOD, name="inner", declarative="systemMessage: Inside")
    plan = the_plan(agent(declarative="tools: [{type: Agent, agent: {name: inner}}]") + "---\n" + inner)
    assert [each.agent.name for each in plan.agents] == ["inner"]
    assert plan.agents[0].agent.hooks[0].command == "check.sh"


def test_the_variables_of_the_deployment_are_found_for_the_hooks():
    env = (
        "deployment:\n  env:\n    - {name: LEVEL, value: high}\n"
        "    - {name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: T}}}\n"
        "    - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}"
    )
    plan = the_plan(agent(declarative=env), {"T": "secret"})
    assert plan.env == {"LEVEL": "high", "TOKEN": "secret"}
    assert "secret" in plan.secrets
    assert "T of the Secret 's'" in str(the_plan(agent(declarative=env)).missing[0])


def test_reading_a_manifest_starts_and_opens_nothing():
    folder = Path(__file__).parents[2] / "src/hookline/kagent"
    for name in ("__init__", "read", "keys", "agent"):
        file = folder / f"{name}.py"
        source = file.read_text()
        assert not any(word in source for word in ("import os", "subprocess", "open(", "environ[")), file
