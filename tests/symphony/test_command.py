"""WORKFLOW.md on the command line: one issue, one hook, the list of workspaces, and removal by hand."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import forks

WORKFLOW = """\
---
tracker:
  kind: folder
  provider: {path: issues}
workspace: {root: ws}
hooks:
  after_create: |
    echo "after_create $SYMPHONY_ISSUE_IDENTIFIER" >> ../../story
    echo hello from the hook
  before_run: echo "before_run $SYMPHONY_ATTEMPT" >> ../../story
  after_run: echo "after_run $SYMPHONY_OUTCOME" >> ../../story
  before_remove: echo "before_remove" >> ../../story
agent:
  kind: command
  command: ["sh", "agent.sh"]
  max_turns: 1
---
Work on {{ issue.identifier }}: {{ issue.title }}
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "issues").mkdir()
        (folder / "WORKFLOW.md").write_text(WORKFLOW)
        (folder / "home").mkdir()
        self.agent("cat > prompt; echo I did it")
        self.issue("Todo")
        self.env = {**os.environ, "HOOKLINE_HOME": str(folder / "home")}

    def agent(self, script: str) -> None:
        # `sh agent.sh` is looked for in the workspace, so a hook puts it there.
        (self.folder / "agent.sh").write_text(script)
        text = WORKFLOW.replace("echo hello from", "cp ../../agent.sh . && echo hello from")
        (self.folder / "WORKFLOW.md").write_text(text)

    def issue(self, state: str) -> None:
        (self.folder / "issues/ABC-123.md").write_text(f"---\ntitle: Mend it\nstate: {state}\n---\nPlease.\n")

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "hookline", *words]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        return forks.run(words, cwd=self.folder, env=self.env)

    @property
    def story(self) -> list[str]:
        file = self.folder / "story"
        return file.read_text().split("\n")[:-1] if file.exists() else []


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.mark.statement("SC2", "SC47")
@pytest.mark.rule("M82")
def test_an_issue_runs_runs_again_and_is_cleaned_up_when_it_is_over(project):
    done = project.call("run", "WORKFLOW.md", "--issue", "ABC-123")
    assert (done.returncode, done.stdout) == (0, "I did it\n"), done.stderr
    assert (project.folder / "ws/ABC-123/prompt").read_text() == "Work on ABC-123: Mend it"
    assert "after_create" in done.stderr
    assert project.call("run", "WORKFLOW.md", "--issue", "ABC-123").returncode == 0
    project.issue("Done")
    over = project.call("run", "WORKFLOW.md", "--issue", "ABC-123")
    assert "is closed; its workspace is removed" in over.stdout
    assert project.story == [
        "after_create ABC-123",
        "before_run ",
        "after_run ok",
        "before_run ",
        "after_run ok",
        "before_remove",
    ]
    assert not (project.folder / "ws/ABC-123").exists()


@pytest.mark.rule("O12")
def test_an_issue_that_its_agent_finishes_is_cleaned_up_at_once(project):
    project.agent("sed -i 's/state: .*/state: Done/' ../../issues/ABC-123.md; echo finished")
    assert project.call("run", "WORKFLOW.md", "--issue", "ABC-123").returncode == 0
    assert project.story[-2:] == ["after_run ok", "before_remove"]
    assert not (project.folder / "ws/ABC-123").exists()


def test_an_agent_that_fails_is_told_and_its_workspace_stays(project):
    project.agent("echo out of luck >&2; exit 4")
    done = project.call("run", "WORKFLOW.md", "--issue", "ABC-123")
    assert done.returncode == 1
    assert "exited with 4: out of luck" in done.stderr
    assert project.story[-1] == "after_run failed"
    assert (project.folder / "ws/ABC-123").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["WORKFLOW.md", "--issue", "ABC-124"], "there is no issue 'ABC-124'; did you mean ABC-123?"),
        (["WORKFLOW.md"], "--issue is missing: hookline run WORKFLOW.md --issue ABC-123"),
        (["other.md", "--issue", "ABC-123"], "other.md: there is no such file"),
    ],
)
@pytest.mark.rule("M84")
def test_a_wrong_call_is_answered_with_what_would_be_right(project, args, said):
    done = project.call("run", *args)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_a_wrong_file_runs_nothing(project):
    file = project.folder / "WORKFLOW.md"
    file.write_text(file.read_text().replace("max_turns: 1", "max_turns: none"))
    done = project.call("run", "WORKFLOW.md", "--issue", "ABC-123")
    assert "WORKFLOW.md:16: agent.max_turns: is 'none'; give a number" in done.stderr
    assert not (project.folder / "ws").exists()


@pytest.mark.parametrize("hooks", [[], ["--hooks", "more.yaml"]], ids=["alone", "with hooks"])
def test_an_agent_without_a_command_is_told(project, hooks):
    file = project.folder / "WORKFLOW.md"
    file.write_text(file.read_text().replace('  command: ["sh", "agent.sh"]\n', ""))
    (project.folder / "more.yaml").write_text("hooks:\n  - {name: a, on: tool.start, shell: 'true'}\n")
    done = project.call("run", "WORKFLOW.md", "--issue", "ABC-123", *hooks)
    assert (done.returncode, done.stdout) == (2, "")
    said = 'WORKFLOW.md: agent.command: is missing; give the program of the agent, such as "claude -p"'
    held = "more.yaml (named)" if hooks else "no hook file"
    assert done.stderr == f"hooks: {held}\nerror: {project.folder}/{said}\n"
    assert not (project.folder / "ws").exists()


def test_json_is_for_programs(project):
    done = project.call("run", "WORKFLOW.md", "--issue", "ABC-123", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = {"record": "result", "text": "I did it", "turns": 1, "why": "max_turns"}
    assert wanted.items() <= lines[-1].items()
    assert "called" in {line.get("record") for line in lines}


def test_an_interrupt_lets_after_run_run(project):
    project.agent("touch started; sleep 300")
    process = subprocess.Popen(
        project.command("run", "WORKFLOW.md", "--issue", "ABC-123"),
        cwd=project.folder,
        env=project.env,
        stderr=subprocess.PIPE,
    )
    deadline = time.monotonic() + 60
    while not (project.folder / "ws/ABC-123/started").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130, told
    assert project.story[-1] == "after_run cancelled"


@pytest.mark.statement("SC50", "SW23")
def test_a_hook_is_tried_in_a_scratch_workspace(project):
    file = project.folder / "WORKFLOW.md"
    file.write_text(
        "---\nhooks:\n  after_create: |\n    pwd\n    echo $SYMPHONY_ISSUE_IDENTIFIER; exit 0\n---\n"
    )
    done = project.call("try", "workspace.start", "WORKFLOW.md")
    place, issue, verdict = done.stdout.splitlines()
    assert (done.returncode, issue, verdict) == (0, "TRY-1", "= goes on"), done.stderr
    assert not os.path.exists(place)
    file.write_text(file.read_text().replace("exit 0", "exit 1"))
    failed = project.call("try", "workspace.start", "WORKFLOW.md", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout.splitlines()[-1])["action"] == "fail"
    assert (
        "has no hook at run.start; it has: workspace.start (after_create)"
        in project.call("try", "run.start", "WORKFLOW.md").stderr
    )


@pytest.mark.rule("C10")
@pytest.mark.statement("SC29")
def test_workspaces_are_listed_and_removed_by_hand_with_their_hook(project):
    assert "no workspaces in" in project.call("workspace", "list").stdout
    project.call("run", "WORKFLOW.md", "--issue", "ABC-123")
    assert "ABC-123" in project.call("workspace", "list").stdout
    (row,) = json.loads(project.call("workspace", "list", "--json").stdout)
    assert (row["key"], row["state"], row["path"]) == ("ABC-123", "ready", str(project.folder / "ws/ABC-123"))
    wrong = project.call("workspace", "rm", "ABC-9")
    assert "there is no workspace 'ABC-9'" in wrong.stderr
    done = project.call("workspace", "rm", "ABC-123")
    assert (done.returncode, done.stdout) == (0, f"removed {project.folder}/ws/ABC-123\n"), done.stderr
    assert project.story[-1] == "before_remove"
    assert not (project.folder / "ws/ABC-123").exists()


@pytest.mark.rule("M76")
def test_a_file_is_checked_without_running_anything(project):
    assert project.call("check", "WORKFLOW.md").stdout == "WORKFLOW.md: no problems\n"
    file = project.folder / "WORKFLOW.md"
    text = (
        file.read_text()
        .replace("before_run: echo", "befor_run: if true; echo")
        .replace("issue.title", "issue.titel")
    )
    file.write_text(
        text.replace("after_run: echo", "after_run: if true; echo").replace("path: issues", "path: $NOT_SET")
    )
    told = project.call("check", "WORKFLOW.md").stdout
    for said in (
        "WORKFLOW.md:10: hooks.befor_run: unknown key, which has no effect; did you mean before_run?",
        "WORKFLOW.md:18: the prompt cannot be filled: issue.titel is undefined",
        "tracker.provider: $NOT_SET is not set",
        "WORKFLOW.md:11: hooks.after_run: sh -n: ",
    ):
        assert said in told
    assert project.story == []
