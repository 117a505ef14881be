"""The guard that a service hands to the agents it starts: what they are told to run, and what is told where they cannot."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hookline.hookfile.attach import hooks_of
from hookline.runners.local import LocalRunner
from hookline.symphony.agents.guard import commands_in, guard_of, in_force, trusted
from hookline.symphony.settings import AgentSettings
from tests import forks
from tests.command import approve

HOOKS = """
hooks:
  - name: no-force-push
    on: tool.start
    match: kind:shell
    python: hookline.guards:no_force_push
  - name: slow
    on: [tool.start, agent.end]
    shell: exit 0
    timeout: 20m
  - name: at-the-model
    on: [model.start, tool.end]
    shell: "true"
  - name: made
    on: workspace.start
    shell: "true"
  - name: switched-off
    on: session.start
    mode: "off"
    shell: "true"
"""
CODE = """
from hookline import HookResult, hook

@hook(on="tool.start")
def careful(ctx, c):
    return HookResult.block("be careful")
"""


@pytest.fixture
def made(tmp_path):
    """A guard of files: what is in them, by their names."""

    def make(files, environ=None):
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        names = [str(tmp_path / name) for name in files]
        hooks = hooks_of(names, LocalRunner())
        return guard_of(names, hooks, environ or {"HOOKLINE_HOME": str(tmp_path / "record")})

    return make


def commands(events, event):
    return [handler["command"] for group in events[event] for handler in group["hooks"]]


def answered(command, caller="codex", call="git push --force", **more):
    """What an agent would get from the command: the agent's own folder and environment, its words on stdin."""
    event = {
        "hook_event_name": "PreToolUse",
        "session_id": "s-1",
        "cwd": os.getcwd(),
        "tool_name": "Bash",
        "tool_input": {"command": call},
        "tool_use_id": "c-1",
    }
    return subprocess.run(
        command, shell=True, input=json.dumps(event), capture_output=True, text=True, check=False, **more
    )


def test_an_agent_is_told_of_the_events_at_which_a_hook_stands_and_no_others(made):
    guard = made({"hookline.yaml": HOOKS})
    names = ["PreToolUse", "PostToolUse", "PreModelRequest", "Stop", "SubagentStop"]
    assert list(guard.events("codex")) == names
    names = ["PreToolUse", "PostToolUse", "PostToolUseFailure", "Stop", "SubagentStop"]
    assert list(guard.events("claude")) == names


def test_an_agent_waits_for_longer_than_the_hooks_may_take(made):
    events = made({"hookline.yaml": HOOKS}).events("codex")
    limits = {event: groups[0]["hooks"][0]["timeout"] for event, groups in events.items()}
    assert limits["PreToolUse"] > 20 * 60 + 60
    assert limits["PostToolUse"] == 600


@pytest.mark.parametrize("caller", ["codex", "claude"])
def test_the_command_answers_from_the_named_file_into_the_journal_of_the_service(made, tmp_path, caller):
    guard = made({"hook line's.yaml": HOOKS})
    workspace = tmp_path / "workspace"
    # What lies in the agent's folder is neither imported nor asked.
    (workspace / "hookline").mkdir(parents=True)
    (workspace / "hookline" / "__init__.py").write_text("raise SystemExit(0)")
    (workspace / "hookline.yaml").write_text("hooks: []\n")
    [command] = commands(guard.events(caller), "PreToolUse")
    environ = {"PATH": os.environ["PATH"], "HOME": str(workspace)}
    done = answered(command, caller, cwd=workspace, env=environ)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)["hookSpecificOutput"]
    assert said["permissionDecision"] == "deny"
    assert "force" in said["permissionDecisionReason"]
    done = answered(command, caller, "git status", cwd=workspace, env=environ)
    assert (done.returncode, done.stdout) == (0, "")
    shown = subprocess.run(
        [sys.executable, "-m", "hookline", "runs", f"{caller}-s-1", "--json"],
        env={**environ, "HOOKLINE_HOME": str(tmp_path / "record")},
        capture_output=True,
        text=True,
        check=True,
    )
    records = [json.loads(line) for line in shown.stdout.splitlines()]
    calls = [(each["hook"], each["action"]) for each in records if each["record"] == "called"]
    assert calls[0] == ("no-force-push", "block")
    assert not (workspace / ".local").exists(), "nothing is kept anywhere else"


def test_a_guard_that_cannot_be_asked_refuses_what_was_about_to_start(made):
    events = made({"hookline.yaml": HOOKS}).events("codex")
    gone = "/no/such/python"
    for event in ("PreToolUse", "PostToolUse"):
        [command] = commands(events, event)
        done = answered(command.replace(sys.executable, gone))
        assert done.returncode == 2
        assert "hookline could not be asked: exit code 127" in done.stderr


def test_several_files_are_asked_by_one_command_in_order(made, tmp_path):
    guard = made({"hookline.yaml": HOOKS, "mine.py": CODE})
    [command] = commands(guard.events("codex"), "PreToolUse")
    words = shlex.split(command)
    named = [words[at + 1] for at, word in enumerate(words) if word == "--file"]
    assert named == [str(tmp_path / "hookline.yaml"), str(tmp_path / "mine.py")]
    said = json.loads(answered(command, call="ls").stdout)["hookSpecificOutput"]
    assert said["permissionDecisionReason"] == "be careful"
    [command] = commands(guard.events("codex"), "Stop")
    assert str(tmp_path / "mine.py") not in command


def test_the_journal_is_named_from_the_root_for_the_agent_works_elsewhere(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    guard = made({"hookline.yaml": HOOKS}, {"HOOKLINE_HOME": "record"})
    [command] = commands(guard.events("codex"), "PreToolUse")
    assert f"HOOKLINE_HOME={tmp_path / 'record'}" in shlex.split(command)


def test_without_hook_files_there_is_no_guard(made):
    assert guard_of(None, [], {}) is None
    assert guard_of([], [], {}) is None


def test_claude_code_gets_its_settings_as_an_argument_and_the_rest_stays(made):
    guard = made({"hookline.yaml": HOOKS})
    program, flag, settings, *rest = guard.argv(("/opt/bin/claude", "-p", "{prompt}"))
    assert (program, flag, rest) == ("/opt/bin/claude", "--settings", ["-p", "{prompt}"])
    assert json.loads(settings) == {"disableAllHooks": False, "hooks": guard.events("claude")}


OTHERS = {
    ("aider", "--yes"): "the agent 'aider' cannot be given hooks",
    ("/usr/bin/codex", "exec"): "agent.kind: codex can",
    ("claude", "-p", "--settings", "mine.json"): "already has --settings",
    ("claude", "-p", "--settings=mine.json"): "already has --settings",
}


@pytest.mark.parametrize("argv", OTHERS, ids=" ".join)
def test_an_agent_that_cannot_be_given_the_guard_runs_without_it_and_that_is_told(made, argv):
    guard = made({"hookline.yaml": HOOKS})
    assert guard.argv(argv) == argv
    [told] = guard.blind(AgentSettings(kind="command", command=argv))
    assert OTHERS[argv] in told
    for part in ("no-force-push (tool.start)", "slow (agent.end, tool.start)", "at-the-model (model.start, "):
        assert part in told
    assert "made" not in told, "around the workspace the service itself sees to it"
    assert "switched-off" not in told


@pytest.mark.parametrize(
    "agent", [AgentSettings(kind="codex"), AgentSettings(kind="command", command=("claude", "-p"))]
)
def test_what_an_agent_has_no_event_for_is_told(made, agent):
    [told] = made({"hookline.yaml": HOOKS.replace("model.start", "step.start")}).blind(agent)
    assert "has no event for this" in told
    assert told.endswith("these hooks see nothing of it: at-the-model (step.start)")


def test_the_built_in_agent_has_all_hooks_around_it(made):
    assert made({"hookline.yaml": HOOKS}).blind(AgentSettings(kind="builtin", model="x/y")) == []


def test_hooks_that_no_other_process_can_find_are_told(tmp_path, monkeypatch):
    (tmp_path / "of_a_module.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    hooks = hooks_of(["of_a_module:careful"], LocalRunner())
    guard = guard_of(["of_a_module:careful"], hooks, {"HOME": "/"})
    assert guard.events("codex") == {}
    [told] = guard.blind(AgentSettings(kind="codex"))
    assert "given as Python objects" in told
    assert "careful (tool.start)" in told


LISTED = [
    {"key": "k1", "command": "ours", "currentHash": "h1", "enabled": True, "trustStatus": "trusted"},
    {"key": "k2", "command": "theirs", "currentHash": "h2", "enabled": True, "trustStatus": "untrusted"},
]


def test_only_our_own_commands_are_trusted():
    assert trusted(LISTED, frozenset({"ours"})) == {"k1": {"enabled": True, "trusted_hash": "h1"}}
    assert trusted([{"command": "ours"}], frozenset({"ours"})) == {}


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, True),
        ({"trustStatus": "managed"}, True),
        ({"trustStatus": "untrusted"}, False),
        ({"trustStatus": "modified"}, False),
        ({"enabled": False}, False),
        ({"command": "another"}, False),
    ],
)
def test_a_guard_is_in_force_where_every_command_of_it_is_trusted_and_on(change, holds):
    assert in_force([{**LISTED[0], **change}, LISTED[1]], frozenset({"ours"})) is holds


def test_the_commands_of_all_events_are_found(made):
    events = made({"hookline.yaml": HOOKS}).events("codex")
    assert len(commands_in(events)) == 5


CLAUDE = f"""#!{sys.executable}
# Stands in for Claude Code: asks the hooks of its settings before each call, and makes the call unless one refuses.
import json, subprocess, sys
settings = json.loads(sys.argv[sys.argv.index("--settings") + 1])
for call in open("../../calls"):
    event = {{"hook_event_name": "PreToolUse", "session_id": "s", "tool_use_id": call, "cwd": "."}}
    event |= {{"tool_name": "Bash", "tool_input": {{"command": call}}}}
    for handler in settings["hooks"]["PreToolUse"][0]["hooks"]:
        done = subprocess.run(handler["command"], shell=True, input=json.dumps(event).encode(), capture_output=True)
        if done.returncode == 2 or b'"deny"' in done.stdout:
            break
    else:
        subprocess.run(call, shell=True)
"""
GUARDED = (
    "hooks: [{name: no-force-push, on: tool.start, match: kind:shell, python: hookline.guards:no_force_push}]"
)
SCRIPT = "hooks: [{name: mine, on: tool.start, shell: sh $FOLDER/mine.sh}]"
ALLOWED = "hooks: [{name: open, on: tool.start, shell: exit 0}]"
PUSHED = """---
tracker: {kind: folder}
workspace: {root: work}
hooks: {after_create: git clone -q ../../origin.git . && git commit -q --amend --allow-empty -m other}
agent: {kind: command, command: [claude, -p], max_turns: 1}
---
Do it.
"""


class Board:
    """A workflow whose agent has a clone of a bare repository, and has rewritten its last commit."""

    def __init__(self, folder, guard=GUARDED):
        self.folder, self.origin = folder, folder / "origin.git"
        who = {f"GIT_{each}_{what}": "x@y" for each in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        path = f"{folder / 'bin'}:{os.environ['PATH']}"
        self.env = {**os.environ, **who, "PATH": path, "HOOKLINE_HOME": str(folder / "home")}
        for name in ("issues", "bin", "first"):
            (folder / name).mkdir()
        (folder / "issues" / "A-1.md").write_text("---\ntitle: it\nstate: Todo\n---\n")
        (folder / "WORKFLOW.md").write_text(PUSHED)
        (folder / "hookline.yaml").write_text(guard.replace("$FOLDER", str(folder)))
        (folder / "mine.sh").write_text("grep -q 'git push' && exit 2; exit 0")
        (folder / "bin" / "claude").write_text(CLAUDE)
        (folder / "bin" / "claude").chmod(0o755)
        made = "git init -q && git commit -q --allow-empty -m first && git clone -q --bare . ../origin.git"
        subprocess.run(made, shell=True, cwd=folder / "first", env=self.env, check=True)

    def run(self, *calls, hooks=()):
        """The attempt in which the agent makes these calls; True if its push arrived."""
        (self.folder / "calls").write_text("".join(f"{call}\n" for call in calls))
        words = ("run", "WORKFLOW.md", "--issue", "A-1", *hooks)
        done = forks.run(words, cwd=self.folder, env=self.env)
        assert done.returncode == 0, done.stderr
        said = ["git", "log", "-1", "--format=%s"]
        return subprocess.check_output(said, cwd=self.origin, text=True) == "other\n"


@pytest.mark.parametrize("hooks", [(), ("--hooks", "hookline.yaml")], ids=["found", "named"])
@pytest.mark.parametrize(
    ("guard", "change"),
    [(GUARDED, f"echo '{ALLOWED}' > ../../hookline.yaml"), (SCRIPT, "echo exit 0 > ../../mine.sh")],
    ids=["file", "script"],
)
def test_an_agent_that_changes_its_guard_while_it_works_pushes_nothing(tmp_path, guard, change, hooks):
    board = Board(tmp_path, guard)
    if not hooks:
        approve(tmp_path / "hookline.yaml", board.env)
    assert not board.run("touch before", change, "git push --force", "touch after", hooks=hooks)
    assert (tmp_path / "work" / "A-1" / "before").exists()
    assert not (tmp_path / "work" / "A-1" / "after").exists(), "a changed guard refuses every call"


def test_a_change_that_a_person_approves_while_the_agent_works_holds(tmp_path):
    board = Board(tmp_path)
    changed = tmp_path / "other" / "hookline.yaml"
    changed.parent.mkdir()
    changed.write_text(ALLOWED)
    (tmp_path / "home").mkdir(0o700)
    approve(changed, board.env)
    # An approval of the same content at the place of the guard's file, as `hookline trust` would write it.
    store = tmp_path / "home" / "trusted.json"
    store.write_text(store.read_text().replace(str(changed.parent), str(tmp_path)))
    assert board.run(
        f"cp {changed} ../../hookline.yaml", "git push --force", hooks=("--hooks", "hookline.yaml")
    )


WORKFLOW = """---
tracker: {kind: folder}
polling: {interval_ms: 50}
workspace: {root: work}
agent: {kind: command, command: [sh, -c, "echo working"], max_turns: 1}
---
Do it.
"""


def test_the_service_says_once_which_hooks_do_not_see_inside_its_agent(tmp_path):
    (tmp_path / "issues").mkdir()
    for name in ("A-1", "A-2", "A-3"):
        (tmp_path / "issues" / f"{name}.md").write_text("---\ntitle: it\nstate: Todo\n---\n")
    (tmp_path / "hookline.yaml").write_text(HOOKS)
    (tmp_path / "WORKFLOW.md").write_text(WORKFLOW)
    words = [sys.executable, "-m", "hookline", "serve", "--json", "--hooks", "hookline.yaml"]
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    with open(tmp_path / "errors", "w") as errors:
        service = subprocess.Popen(
            words, cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with service:
            for line in service.stdout:
                if len(json.loads(line)["finished"]) >= 3:
                    break
            service.send_signal(signal.SIGTERM)
            service.stdout.read()
    said = Path(tmp_path / "errors").read_text()
    assert service.returncode == 0, said
    assert said.count("the agent 'sh' cannot be given hooks") == 1, said
    assert "no-force-push (tool.start)" in said
