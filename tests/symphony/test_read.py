"""WORKFLOW.md: every field with its default, and every mistake with its line and key."""

import os
from pathlib import Path

import pytest

from hookline.symphony.read import (
    DEFAULTS,
    Workflow,
    WorkflowError,
    declaration,
    missing_for_dispatch,
    read,
    read_workflow,
    workflow_file,
)
from hookline.symphony.settings import (
    DEFAULT_TIMEOUT,
    FRONT_MATTER,
    POINTS,
    AgentSettings,
    CodexSettings,
    HookScripts,
    PollingSettings,
    Script,
    ServerSettings,
    TrackerSettings,
)
from hookline.symphony.trackers import reference

FILE = "/work/WORKFLOW.md"


def front(yaml: str, body: str = "Do it.\n") -> str:
    return f"---\n{yaml}---\n{body}"


def workflow(yaml: str, env=None, **options) -> Workflow:
    return read(front(yaml), FILE, env or {}, **options)


def problem(yaml: str, env=None) -> str:
    found = workflow(yaml, env)
    assert len(found.problems) == 1, found.problems
    assert found.problems[0].kind == "invalid_workflow_config"
    with pytest.raises(WorkflowError):
        found.checked()
    return str(found.problems[0])


def warning(yaml: str, env=None) -> str:
    found = workflow(yaml, env)
    assert found.problems == ()
    (told,) = found.warnings
    return str(told)


def fault(text: str) -> WorkflowError:
    with pytest.raises(WorkflowError) as told:
        read(text, FILE, {})
    return told.value


@pytest.mark.rule("W1", "M1")
def test_a_named_file_comes_before_the_one_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert workflow_file("other.md") == f"{tmp_path}/other.md"
    assert workflow_file("/c/other.md") == "/c/other.md"
    assert workflow_file(None) == workflow_file("") == f"{tmp_path}/WORKFLOW.md"


@pytest.mark.rule("W1", "W8", "M4")
def test_a_file_that_is_not_there_or_cannot_be_read_is_a_typed_error(tmp_path):
    for file, said in ((tmp_path / "none.md", "no such file"), (tmp_path, "Is a directory")):
        with pytest.raises(WorkflowError, match=said) as told:
            read_workflow(file, {})
        assert (told.value.kind, told.value.file) == ("missing_workflow_file", str(file))


@pytest.mark.rule("W2", "W7", "M7")
@pytest.mark.statement("SC2", "SW2", "SW7")
def test_everything_is_in_one_file_and_scripts_have_several_lines(tmp_path):
    file = tmp_path / "WORKFLOW.md"
    file.write_text(
        front(
            "tracker:\n  kind: linear\n  provider: {project_slug: p, x-extra: {deep: [1]}}\n"
            "  required_labels: [' Agent ', READY]\n  active_states: [Doing]\n  terminal_states: [Over]\n"
            "polling: {interval_ms: 5000}\nworkspace: {root: /var/ws}\n"
            "hooks:\n  after_create: |\n    git clone x .\n    make\n  before_run: git pull\n"
            "  after_run: git add -A\n  before_remove: tar c .\n  timeout_ms: 1500\n"
            "agent:\n  max_concurrent_agents: 3\n  max_turns: 2\n  max_retry_backoff_ms: 20000\n"
            "  max_concurrent_agents_by_state: {' In Progress ': 2}\n"
            "  kind: command\n  command: claude -p\n"
            "codex:\n  command: codex $X app-server\n  approval_policy: never\n  thread_sandbox: read-only\n"
            "  turn_sandbox_policy: {type: x}\n  turn_timeout_ms: 10\n  read_timeout_ms: 20\n"
            "  stall_timeout_ms: 30\nserver: {port: 0}\n",
            "\n\nWork on {{ issue.title }}.\n\n",
        )
    )
    found = read_workflow(file, {})
    assert found == Workflow(
        file=str(file),
        text=file.read_text(),
        prompt="Work on {{ issue.title }}.",
        prompt_line=37,
        root="/var/ws",
        tracker=TrackerSettings(
            kind="linear",
            provider={"project_slug": "p", "x-extra": {"deep": [1]}},
            required_labels=("agent", "ready"),
            active_states=("Doing",),
            terminal_states=("Over",),
        ),
        polling=PollingSettings(interval=5.0),
        hooks=HookScripts(
            after_create=Script(text="git clone x .\nmake\n", line=11),
            before_run=Script(text="git pull", line=14),
            after_run=Script(text="git add -A", line=15),
            before_remove=Script(text="tar c .", line=16),
            timeout=1.5,
        ),
        agent=AgentSettings(
            max_concurrent_agents=3,
            max_turns=2,
            max_retry_backoff=20.0,
            max_concurrent_agents_by_state={"in progress": 2},
            kind="command",
            command=("claude", "-p"),
        ),
        codex=CodexSettings(
            command="codex $X app-server",
            approval_policy="never",
            thread_sandbox="read-only",
            turn_sandbox_policy={"type": "x"},
            turn_timeout=0.01,
            read_timeout=0.02,
            stall_timeout=0.03,
        ),
        server=ServerSettings(port=0),
    )
    assert file.read_text().splitlines()[found.prompt_line - 1] == found.prompt


@pytest.mark.rule("W3", "M7")
@pytest.mark.statement("SC35")
@pytest.mark.parametrize(
    "text", ["Only a prompt.\n", "---\n---\nOnly a prompt.", "---\n# note\n---\n\nOnly a prompt."]
)
def test_without_front_matter_all_is_prompt_and_the_defaults_hold(text):
    found = read(text, FILE, {})
    assert (found.prompt, found.problems, found.warnings) == ("Only a prompt.", (), ())
    assert found.root == "/tmp/symphony_workspaces"
    assert (found.tracker.kind, found.tracker.required_labels) == (None, ())
    assert found.tracker.active_states == ("Todo", "In Progress")
    assert found.tracker.terminal_states == ("Closed", "Cancelled", "Canceled", "Duplicate", "Done")
    assert (found.polling.interval, found.hooks, found.hooks.timeout) == (30.0, HookScripts(), 60.0)
    agent = found.agent
    assert (agent.max_concurrent_agents, agent.max_turns, agent.max_retry_backoff) == (10, 20, 300.0)
    codex = found.codex
    assert (codex.command, codex.turn_timeout, codex.read_timeout) == ("codex app-server", 3600.0, 5.0)
    assert (codex.stall_timeout, found.server.port) == (300.0, None)


@pytest.mark.rule("W4")
@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_any_newline_ends_a_line(newline):
    text = front("hooks:\n  before_run: |\n    one\n    two\n", "\nHello\n").replace("\n", newline)
    found = read(text, FILE, {})
    assert found.hooks.before_run == Script(text="one\ntwo\n", line=3)
    assert (found.prompt, found.prompt_line) == ("Hello", 8)


@pytest.mark.rule("W4")
@pytest.mark.parametrize("first", ["---  ", "\ufeff---", "---\t"])
def test_blanks_and_a_byte_order_mark_do_not_switch_the_hooks_off(first):
    found = read(f"{first}\nhooks: {{before_run: x}}\n--- \nbody", FILE, {})
    assert found.hooks.before_run is not None
    assert found.prompt == "body"


@pytest.mark.rule("W4")
@pytest.mark.parametrize("first", ["----", "--- x", " ---", "***"])
def test_what_only_looks_like_a_fence_is_prompt(first):
    assert read(f"{first}\nx: 1\n---\n", FILE, {}).prompt.startswith(first.strip())


@pytest.mark.rule("W4")
def test_a_fence_without_an_end_makes_all_configuration_and_is_told():
    found = read("---\nhooks:\n  before_run: make\n", FILE, {})
    assert found.hooks.before_run == Script(text="make", line=3)
    assert (found.prompt, len(found.warnings)) == ("", 1)
    assert "WORKFLOW.md:1: the front matter that begins here has no end" in str(found.warnings[0])
    assert "there is no prompt" in str(found.warnings[0])


@pytest.mark.rule("W4", "W5", "M5")
def test_a_fence_without_an_end_before_prose_is_told_as_that():
    error = fault("---\nhooks: {}\n\nPlease do: this and: that\n")
    assert error.kind == "workflow_parse_error"
    assert str(error).startswith("/work/WORKFLOW.md:1: the front matter that begins here has no end")


@pytest.mark.rule("W5", "W8", "M6")
@pytest.mark.parametrize("yaml", ["- a\n", "just words\n", "42\n"])
def test_front_matter_that_is_no_map_is_a_typed_error(yaml):
    error = fault(front(yaml))
    assert (error.kind, error.line) == ("workflow_front_matter_not_a_map", 2)


@pytest.mark.rule("W5", "W8", "M5")
@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        (front("hooks:\n  before_run: 'open\n"), 3, "not YAML"),
        (front("hooks:\n\tbefore_run: x\n"), 3, "a tab indents this line"),
        (front("hooks: {}\nhooks: {}\n"), 3, "given twice"),
    ],
)
def test_broken_yaml_is_a_typed_error_with_its_line(text, line, said):
    error = fault(text)
    assert (error.kind, error.line) == ("workflow_parse_error", line)
    assert said in str(error)


@pytest.mark.rule("W5", "W8", "M5")
@pytest.mark.parametrize(
    ("content", "line", "said"),
    [
        (b"---\nhooks: \xff\n---\n", 2, "not UTF-8"),
        ("\ufeff".encode("utf-16"), None, "this is UTF-16; save it as UTF-8"),
    ],
)
def test_a_file_that_is_no_text_is_a_typed_error_with_its_line(tmp_path, content, line, said):
    (tmp_path / "WORKFLOW.md").write_bytes(content)
    with pytest.raises(WorkflowError, match=said) as told:
        read_workflow(tmp_path / "WORKFLOW.md", {})
    assert (told.value.kind, told.value.line) == ("workflow_parse_error", line)


@pytest.mark.rule("W6")
@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("hoks: {}\n", ":2: hoks: unknown key, which has no effect; did you mean hooks?"),
        (
            "hooks: {after_created: x}\n",
            "hooks.after_created: unknown key, which has no effect; did you mean after_create?",
        ),
        ("hooks: {timeout: 5}\n", "did you mean timeout_ms? It is in milliseconds"),
        ("after_create: x\n", "did you mean hooks.after_create?"),
        ("agent: {zzz: 1}\n", "known: max_concurrent_agents"),
    ],
)
def test_an_unknown_key_is_passed_over_and_told_with_what_was_meant(yaml, said):
    assert said in warning(yaml)
    assert workflow(yaml, strict=True).problems == ()


@pytest.mark.rule("W6")
def test_nulls_are_as_if_not_written_and_keys_may_be_anything():
    found = workflow(
        "hooks:\n  timeout_ms:\n  after_create: ~\ntracker: null\nagent:\n  max_turns: null\nx-mine: {1: 2}\n"
    )
    assert (found.hooks, found.tracker, found.agent) == (HookScripts(), TrackerSettings(), AgentSettings())
    assert (found.warnings, found.problems) == ((), ())


@pytest.mark.rule("W7")
def test_sections_of_others_are_known():
    assert (
        workflow("worker: {max_concurrent_agents_per_host: 2}\nobservability: {refresh_ms: 5}\n").warnings
        == ()
    )


@pytest.mark.rule("W14")
def test_work_for_another_machine_is_not_quietly_done_here():
    assert "workers over SSH are not in this version" in problem("worker: {ssh_hosts: [a]}\n")


@pytest.mark.rule("C1")
@pytest.mark.statement("SW12")
@pytest.mark.parametrize("value", ["0", "-5", "'-1'"])
def test_a_limit_of_zero_or_less_is_the_default_with_a_warning_and_refused_when_strict(value):
    yaml = f"hooks:\n  timeout_ms: {value}\n"
    assert "/work/WORKFLOW.md:3: hooks.timeout_ms: is -" in warning(yaml) or value == "0"
    assert "the default of 60000 holds" in warning(yaml)
    assert workflow(yaml).hooks.timeout == DEFAULT_TIMEOUT == 60.0
    with pytest.raises(WorkflowError, match=r"WORKFLOW.md:3: hooks.timeout_ms: is -?\d") as told:
        workflow(yaml, strict=True)
    assert told.value.kind == "invalid_workflow_config"


@pytest.mark.rule("C2")
@pytest.mark.parametrize("value", ["soon", "1.5", "true", "[1]", "{}", "60s"])
def test_a_limit_of_the_wrong_type_is_refused(value):
    said = problem(f"hooks: {{timeout_ms: {value}}}\n")
    assert ":2: hooks.timeout_ms: is " in said
    assert "give milliseconds, as in 60000" in said


WRONG = [
    ("hooks: [a]\n", "hooks: is a list; give keys and values: after_create"),
    ("hooks: {before_run: [make]}\n", "hooks.before_run: is a list; give a shell script"),
    ("hooks: {before_run: 5}\n", "hooks.before_run: is 5; give a shell script"),
    ("polling: {interval_ms: 0}\n", "polling.interval_ms: is 0; give milliseconds, as in 30000, more than 0"),
    ("polling: {interval_ms: 99999999999999}\n", "more than ten years"),
    ("agent: {max_turns: 0}\n", "agent.max_turns: is 0; give a number, more than 0"),
    ("agent: {max_turns: many}\n", "agent.max_turns: is 'many'; give a number"),
    ("agent: {max_concurrent_agents: -1}\n", "agent.max_concurrent_agents: is -1"),
    ("agent: {max_retry_backoff_ms: 0}\n", "agent.max_retry_backoff_ms: is 0"),
    ("agent: {kind: comand}\n", "agent.kind: unknown agent 'comand'; did you mean command?"),
    ("agent: {command: 'a | b'}\n", "agent.command: is started without a shell, so '|' has no effect"),
    ("agent: {command: 'a \"b'}\n", "agent.command: cannot be split into arguments"),
    ("agent: {command: []}\n", "agent.command: names no program"),
    (
        "agent: {command: [a, 5]}\n",
        "agent.command[1]: is 5; give a text, in quotes if it looks like something else",
    ),
    ("agent: {command: [sh, -c, 'claude -p {prompt}']}\n", "would make the prompt part of a script"),
    ("agent: {model: gpt}\n", "agent.model: is 'gpt'; give provider/name"),
    ("codex: {command: ' '}\n", "codex.command: is ' '; give a command"),
    ("tracker: {kind: lineer}\n", "tracker.kind: unknown tracker 'lineer'; did you mean linear?"),
    ("tracker: {kind: jira}\n", "tracker.kind: unknown tracker 'jira'; not in this version"),
    ("tracker: {active_states: Todo}\n", "tracker.active_states: is 'Todo'; give a list"),
    ("tracker: {active_states: [1]}\n", "tracker.active_states[0]: is 1; give a text"),
    ("tracker: {provider: x}\n", "tracker.provider: is 'x'; give keys and values"),
    ("workspace: {root: [a]}\n", "workspace.root: is a list; give a folder"),
    ("server: {port: 70000}\n", "server.port: is 70000; give a port from 0"),
]


@pytest.mark.rule("M8", "W5")
@pytest.mark.parametrize(("yaml", "said"), WRONG)
def test_a_wrong_value_is_named_with_its_line_and_what_would_be_right(yaml, said):
    told = problem(yaml)
    assert said in told
    assert told.startswith("/work/WORKFLOW.md:2: ")


def test_a_wrong_value_costs_only_itself():
    found = workflow(
        "hooks:\n  before_run: make\n  after_run: 5\n  timeout_ms: soon\nagent: {max_turns: 0}\n"
    )
    assert found.hooks == HookScripts(before_run=Script(text="make", line=3))
    assert len(found.problems) == 3
    with pytest.raises(WorkflowError, match=r"and 2 more: hookline check"):
        found.checked()


@pytest.mark.rule("C8", "M13")
def test_a_bad_limit_for_a_state_is_left_out_and_told():
    found = workflow(
        "agent:\n  max_concurrent_agents_by_state: {' TODO ': 2, Doing: 0, Done: x, In Review: '3'}\n"
    )
    assert found.agent.max_concurrent_agents_by_state == {"todo": 2, "in review": 3}
    assert [str(each).partition("by_state.")[2] for each in found.warnings] == [
        "Doing: is 0; give a number, more than 0; it is left out",
        "Done: is 'x'; give a number; it is left out",
    ]
    assert found.problems == ()


def test_a_tracker_has_states_of_its_own():
    found = workflow("tracker: {kind: github, active_states: [ready]}\n").tracker
    assert (found.active_states, found.terminal_states) == (("ready",), ("closed",))


@pytest.mark.rule("C9")
@pytest.mark.parametrize("value", [0, -1, -300000])
def test_no_limit_for_a_stall_is_zero_or_less(value):
    assert workflow(f"codex: {{stall_timeout_ms: {value}}}\n").codex.stall_timeout is None


def test_a_blank_label_is_told_because_it_fits_nothing():
    assert "no issue has" in warning("tracker: {required_labels: [a, ' ']}\n")
    assert workflow("tracker: {required_labels: [a, ' ']}\n").tracker.required_labels == ("a", "")


@pytest.mark.rule("W9")
def test_the_environment_never_overrides_what_is_written():
    env = {"WORKSPACE_ROOT": "/other", "LINEAR_API_KEY": "k", "root": "/x", "HOOKS_TIMEOUT_MS": "1"}
    found = workflow("workspace: {root: /mine}\ntracker: {kind: linear}\n", env)
    assert (found.root, found.tracker.provider, found.hooks.timeout) == ("/mine", {}, 60.0)


@pytest.mark.rule("W10", "M10")
@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("$X", "X"),
        ("$_x1", "_x1"),
        ("${X}", None),
        ("$X/sub", None),
        ("a $X", None),
        ("env:X", None),
        ("$1X", None),
        ("$", None),
        (5, None),
    ],
)
def test_only_a_whole_value_is_a_reference(value, name):
    assert reference(value) == name


@pytest.mark.rule("W10", "W11", "M9", "M10")
def test_settings_of_the_tracker_keep_their_references_and_name_their_variables():
    found = workflow(
        "tracker:\n  kind: linear\n  provider: {api_key: $MY_KEY, deep: [{t: $OTHER}], x: '${NO}'}\n",
        {"MY_KEY": "s3cret"},
    )
    assert found.tracker.provider == {"api_key": "$MY_KEY", "deep": [{"t": "$OTHER"}], "x": "${NO}"}
    assert found.tracker.variables == {"MY_KEY", "OTHER"}
    assert "s3cret" not in repr(found)


def test_settings_that_once_stood_beside_kind_are_taken_and_told():
    found = workflow("tracker:\n  kind: linear\n  project_slug: p\n  api_key: $K\n")
    assert found.tracker.provider == {"project_slug": "p", "api_key": "$K"}
    assert [each.key for each in found.warnings] == ["tracker.api_key", "tracker.project_slug"]
    assert found.problems == ()


@pytest.mark.rule("W12")
@pytest.mark.parametrize(("root", "told"), [("$UNSET", 1), ("$EMPTY", 1), ("''", 0), ("~", 0), ("", 0)])
def test_a_root_that_is_not_there_is_the_default(root, told):
    found = workflow(f"workspace: {{root: {root}}}\n", {"EMPTY": "", "TMPDIR": "/scratch"})
    assert found.root == "/scratch/symphony_workspaces"
    assert len(found.warnings) == told


@pytest.mark.rule("W13", "M10", "M11")
@pytest.mark.parametrize(
    ("root", "means"),
    [
        ("'~'", "/home/ann"),
        ("~/ws", "/home/ann/ws"),
        ("$ROOT", "/from/env"),
        ("$TILDE", "/home/ann/x"),
        ("ws", "/work/ws"),
        ("../ws/./a", "/ws/a"),
        ("/abs/../ws", "/ws"),
        ("a~b", "/work/a~b"),
    ],
)
def test_a_root_is_made_absolute(root, means):
    env = {"HOME": "/home/ann", "ROOT": "/from/env", "TILDE": "~/x"}
    assert workflow(f"workspace: {{root: {root}}}\n", env).root == means


@pytest.mark.rule("W13")
def test_a_relative_root_is_seen_from_the_file_and_not_from_where_we_stand(tmp_path, monkeypatch):
    (tmp_path / "project").mkdir()
    (tmp_path / "project/WORKFLOW.md").write_text(front("workspace: {root: ws}\n"))
    monkeypatch.chdir(tmp_path)
    assert read_workflow(Path("project/WORKFLOW.md"), {}).root == os.path.join(tmp_path, "project/ws")


@pytest.mark.rule("W13", "M12")
def test_commands_are_left_as_they_are():
    found = workflow(
        "codex: {command: '~/bin/codex $HOME app-server'}\nagent: {command: ['~/x', '$Y']}\n", {"Y": "no"}
    )
    assert found.codex.command == "~/bin/codex $HOME app-server"
    assert found.agent.command == ("~/x", "$Y")


@pytest.mark.rule("W34", "M8")
def test_what_a_service_cannot_do_without_is_told_by_key():
    assert [each.key for each in missing_for_dispatch(workflow(""))] == ["tracker.kind"]
    command = workflow("tracker: {kind: github}\nagent: {kind: command}\n")
    assert [each.key for each in missing_for_dispatch(command)] == ["agent.command"]
    builtin = workflow("tracker: {kind: folder}\nagent: {kind: builtin}\n")
    assert [each.key for each in missing_for_dispatch(builtin)] == ["agent.model"]
    assert missing_for_dispatch(workflow("tracker: {kind: folder}\n")) == ()


def test_every_key_says_what_it_is():
    assert all(
        key.doc.endswith(".")
        for section in FRONT_MATTER.keys.values()
        for key in section.read.table.keys.values()
    )


def test_the_hooks_are_declared_with_script_limit_and_place():
    found = declaration(workflow("hooks:\n  after_run: make\n  timeout_ms: 500\n"))
    assert [hook.name for hook in found.hooks] == ["after_run"]
    (hook,) = found.hooks
    assert (hook.points, hook.timeout, hook.on_error) == (("run.end",), 0.5, "continue")
    assert (hook.params["script"], hook.source) == ("make", "/work/WORKFLOW.md:3")
    assert [DEFAULTS[POINTS[name]] for name in POINTS] == ["fail", "fail", "continue", "continue"]
