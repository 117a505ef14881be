"""The real Claude Code, offline against a loopback model, with `hookline answer` as its hooks."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import approve
from tests.fakes import FakeProvider

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

VERSION = "2.1.325"
CACHE = Path(os.environ.get("HOOKLINE_TEST_CACHE") or Path(__file__).parents[2] / ".cache")
FILE = """
hooks:
  - name: no-force-push
    on: tool.start
    match: kind:shell
    python: hookline.guards:no_force_push
  - name: louder
    on: tool.start
    match: kind:shell
    when: {input.command: {equals: echo quiet}}
    python: mine.py:louder
  - name: hide
    on: tool.end
    match: kind:shell
    python: mine.py:hide
  - name: brief
    on: agent.start
    python: mine.py:brief
"""
MINE = """
from hookline import HookResult

def louder(ctx, c):
    return HookResult.continue_with(modified_payload={"command": "echo LOUD"})

def hide(ctx, c):
    output = c.current_output
    if isinstance(output, dict) and "s3cr3t" in str(output.get("stdout")):
        return HookResult.continue_with(modified_output={"stdout": "hidden by hookline"})
    return HookResult.continue_with()

def brief(ctx, c):
    return HookResult.continue_with(tell_model="The branch is frozen today.")
"""


@pytest.fixture(scope="session")
def claude():
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed, so Claude Code cannot be")
    folder = CACHE / f"claude-code-{VERSION}"
    program = folder / "node_modules" / ".bin" / "claude"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        package = f"@anthropic-ai/claude-code@{VERSION}"
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", package], cwd=folder, check=True)
    return program


class Project:
    """A folder with hookline's hooks in its settings, and a Claude Code that is at home nowhere else."""

    def __init__(self, claude, folder):
        self.claude, self.folder, self.home = claude, folder / "project", folder / "home"
        self.folder.mkdir()
        self.home.mkdir()
        (self.folder / "hookline.yaml").write_text(FILE)
        (self.folder / "mine.py").write_text(MINE)
        approve(self.folder / "hookline.yaml", {"HOOKLINE_HOME": str(self.home / "hookline")})
        settings = {
            "hooks": {event: self._hook(event) for event in ("PreToolUse", "PostToolUse", "UserPromptSubmit")}
        }
        (self.folder / ".claude").mkdir()
        (self.folder / ".claude" / "settings.json").write_text(json.dumps(settings))
        trusted = {str(self.folder): {"hasTrustDialogAccepted": True}}
        (self.home / ".claude.json").write_text(
            json.dumps({"hasCompletedOnboarding": True, "projects": trusted})
        )

    def _hook(self, event):
        command = f"{sys.executable} -m hookline answer {event}"
        return [{"hooks": [{"type": "command", "command": command}]}]

    def run(self, provider, prompt):
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "HOOKLINE_HOME": str(self.home / "hookline"),
            "ANTHROPIC_BASE_URL": provider.anthropic,
            "ANTHROPIC_API_KEY": "not-a-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
            "DISABLE_AUTOUPDATER": "1",
        }
        done = subprocess.run(
            [
                self.claude,
                "-p",
                prompt,
                "--output-format",
                "stream-json",
                "--verbose",
                "--include-hook-events",
                "--allowedTools",
                "Bash",
            ],
            cwd=self.folder,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        shown = subprocess.run(
            [sys.executable, "-m", "hookline", "runs", "last", "--json"],
            env=environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return done, [json.loads(line) for line in shown.stdout.splitlines()]


def bash(command):
    return {"tools": [{"name": "Bash", "arguments": {"command": command, "description": "run"}}]}


def test_a_call_is_blocked_an_input_and_an_output_changed_a_context_added_and_all_is_on_record(
    claude, tmp_path
):
    project = Project(claude, tmp_path)
    turns = [bash("git push --force"), bash("echo quiet"), bash("echo s3cr3t"), "all done"]
    with FakeProvider(turns) as provider:
        done, records = project.run(provider, "do it")
        sent = [json.dumps(request.body, ensure_ascii=False) for request in provider.requests]
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all done" in done.stdout
    last = sent[-1]
    assert "The branch is frozen today." in sent[0]
    assert "force" in last, "the model is told why its push was refused"
    assert "LOUD" in last
    assert "hidden by hookline" in last
    calls = {(record["hook"], record["action"]) for record in records if record["record"] == "called"}
    assert ("no-force-push", "block") in calls
    changed = {record["hook"] for record in records if record["record"] == "called" and record["changed"]}
    assert changed == {"louder", "hide"}
    told = [
        record["tell_model"] for record in records if record["record"] == "called" and record["tell_model"]
    ]
    assert told == ["The branch is frozen today."]
