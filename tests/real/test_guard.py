"""One hook file around real coding agents: the service hands its guard to Codex and to Claude Code."""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import FakeProvider
from tests.real.clients import CLIENTS, NO_FORCE_PUSH
from tests.real.codex_cli import codex, codex_home, configure, shell, started

__all__ = ["codex", "codex_home"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

HOOKLINE = [sys.executable, "-m", "hookline"]
HOOKS = f"""{NO_FORCE_PUSH}\
  - name: counted
    on: tool.end
    match: kind:shell
    python: mine.py:counted
  - name: begun
    on: run.start
    shell: echo begun >> runs
"""
MINE = """
from hookline import HookResult

def counted(ctx, c):
    return HookResult.continue_with()
"""
WORKFLOW = """---
tracker: {{kind: folder}}
polling: {{interval_ms: 3600000}}
workspace: {{root: work}}
agent: {agent}
codex: {codex}
hooks:
  after_create: {after_create}
---
Do {{{{ issue.identifier }}}}.
"""
MOVED = "sed -i 's/^state: .*/state: Review/' ../../issues/ABC-1.md"


class Yard:
    """A folder with a workflow, an issue and a hook file that is not approved, only named."""

    def __init__(self, folder, environ, agent, codex=None, after_create=":"):
        self.folder = folder
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "HOOKLINE_HOME": str(folder / "record"),
            **environ,
        }
        (folder / "home").mkdir()
        (folder / "issues").mkdir()
        (folder / "issues" / "ABC-1.md").write_text("---\ntitle: Mend the fence\nstate: Todo\n---\n")
        (folder / "hookline.yaml").write_text(HOOKS)
        (folder / "mine.py").write_text(MINE)
        text = WORKFLOW.format(
            agent=json.dumps(agent), codex=json.dumps(codex or {}), after_create=json.dumps(after_create)
        )
        (folder / "WORKFLOW.md").write_text(text)
        self.workspace = folder / "work" / "ABC-1"

    def serve(self):
        """Serves until the issue has had its attempt; how that went, and what was said."""
        words = [*HOOKLINE, "serve", "--json", "--hooks", "hookline.yaml"]
        with open(self.folder / "errors", "w+") as errors:
            service = subprocess.Popen(
                words, cwd=self.folder, env=self.environ, stdout=subprocess.PIPE, stderr=errors, text=True
            )
            with service:
                states = map(json.loads, service.stdout)
                finished = next((state["finished"] for state in states if state["finished"]), None)
                service.send_signal(signal.SIGTERM)
                service.stdout.read()
            errors.seek(0)
            said = errors.read()
        assert service.returncode == 0, said
        return finished[0], said

    def run(self):
        words = [*HOOKLINE, "run", "WORKFLOW.md", "--issue", "ABC-1", "--hooks", "hookline.yaml"]
        return subprocess.run(
            words, cwd=self.folder, env=self.environ, capture_output=True, text=True, check=False
        )

    def called(self, caller):
        """Which hooks were called for a foreign agent, as the journal has it: name, point and what they said."""
        rows = [json.loads(line) for line in self._hookline("runs", "--json").splitlines()]
        rows = rows[0] if isinstance(rows[0], list) else rows
        [run] = [row["run_id"] for row in rows if row["run_id"].startswith(f"{caller}-")]
        records = [json.loads(line) for line in self._hookline("runs", run, "--json").splitlines()]
        return [
            (each["hook"], each["point"], each["action"]) for each in records if each["record"] == "called"
        ]

    def _hookline(self, *words):
        done = subprocess.run(
            [*HOOKLINE, *words], cwd=self.folder, env=self.environ, capture_output=True, text=True, check=True
        )
        return done.stdout


WANTED = [
    ("no-force-push", "tool.start", "block"),
    ("no-force-push", "tool.start", "continue"),
    ("counted", "tool.end", "continue"),
]


def codex_yard(folder, codex, home, provider, more="", after_create=":"):
    configure(home, provider, more)
    limits = {"thread_sandbox": "danger-full-access", "read_timeout_ms": 60_000}
    environ = {"CODEX_HOME": str(home)}
    given = {"command": started(codex), **limits}
    return Yard(folder, environ, {"max_turns": 1}, given, after_create)


def foreign_hook(place):
    """A hook file of Codex's that somebody else wrote, which leaves a trace if it runs."""
    hook = {"type": "command", "command": f"touch {shlex.quote(str(place))}"}
    return json.dumps({"hooks": {"PreToolUse": [{"hooks": [hook]}]}})


PUSH = "touch pushed; git push --force"


@pytest.mark.parametrize("way", ["serve", "run"])
def test_a_command_of_codex_is_blocked_in_its_workspace_and_the_decision_is_in_our_journal(
    codex, codex_home, tmp_path, way
):
    turns = [shell(PUSH), shell(f"echo fine > fine.txt; {MOVED}"), "done"]
    ran = tmp_path / "foreign"
    brought = f"mkdir .codex && printf %s {shlex.quote(foreign_hook(ran))} > .codex/hooks.json"
    with FakeProvider(turns) as provider:
        yard = codex_yard(tmp_path, codex, codex_home, provider, after_create=brought)
        (codex_home / "hooks.json").write_text(foreign_hook(ran))
        before = (codex_home / "config.toml").read_text()
        if way == "serve":
            ended, said = yard.serve()
            assert ended["outcome"] == "ok", (ended, said)
            assert "see nothing" not in said
        else:
            done = yard.run()
            assert done.returncode == 0, done.stderr
        told = json.dumps(provider.requests[1].body)
    assert not (yard.workspace / "pushed").exists()
    assert (yard.workspace / "fine.txt").read_text() == "fine\n"
    assert "force" in told.partition("function_call_output")[2], "the model is told why"
    assert yard.called("codex") == WANTED
    assert (yard.workspace / "runs").read_text() == "begun\n", "what is the service's own ran there, once"
    assert not ran.exists(), "trusting our hooks trusts no others"
    assert (codex_home / "config.toml").read_text() == before
    assert (codex_home / "hooks.json").read_text() == foreign_hook(ran)


def trusting(codex, home):
    """The lines with which a user of Codex says that the hooks of the home are trusted."""
    asked = [
        {"id": 1, "method": "initialize", "params": {"clientInfo": {"name": "test", "version": "1"}}},
        {"method": "initialized"},
        {"id": 2, "method": "hooks/list", "params": {"cwds": [str(home)]}},
    ]
    environ = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home)}
    server = subprocess.Popen(
        [codex, "app-server"],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    )
    with server:
        server.stdin.writelines(json.dumps(each) + "\n" for each in asked)
        answers = map(json.loads, server.stdout)
        [folder] = next(each for each in answers if each.get("id") == 2)["result"]["data"]
        server.stdin.close()
    return "\n".join(
        f'[hooks.state."{each["key"]}"]\ntrusted_hash = "{each["currentHash"]}"' for each in folder["hooks"]
    )


def test_the_users_own_hooks_in_codex_go_on_as_ever(codex, codex_home, tmp_path):
    seen = shlex.quote(str(tmp_path / "seen"))
    hooks = {
        event: [{"hooks": [{"type": "command", "command": f"echo {event} >> {seen}"}]}]
        for event in ("SessionStart", "PreToolUse", "SessionEnd")
    }
    (codex_home / "hooks.json").write_text(json.dumps({"hooks": hooks}))
    with FakeProvider([shell(f"true; {MOVED}"), "done"]) as provider:
        yard = codex_yard(tmp_path, codex, codex_home, provider, more=trusting(codex, codex_home))
        ended, said = yard.serve()
        assert ended["outcome"] == "ok", (ended, said)
    assert (tmp_path / "seen").read_text().split() == ["SessionStart", "PreToolUse", "SessionEnd"]


def test_codex_is_not_started_where_it_would_not_run_the_guard(codex, codex_home, tmp_path):
    with FakeProvider([shell(PUSH), "done"]) as provider:
        yard = codex_yard(tmp_path, codex, codex_home, provider, more="[features]\nhooks = false")
        ended, _ = yard.serve()
        assert provider.requests == []
    assert ended["outcome"] == "failed"
    assert "does not take the hooks that guard it" in ended["error"]


@pytest.fixture(scope="session")
def claude():
    return CLIENTS["claude-code"].installed()


def bash(command):
    return {"tools": [{"name": "Bash", "arguments": {"command": command, "description": "run"}}]}


@pytest.mark.parametrize("brought", ["nothing", "settings that switch hooks off"])
def test_a_command_of_claude_code_is_blocked_in_its_workspace_and_the_decision_is_in_our_journal(
    claude, tmp_path, brought
):
    command = [str(claude), "-p", "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash"]
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING")
    off = "mkdir .claude && echo '{\"disableAllHooks\": true}' > .claude/settings.json"
    with FakeProvider([bash(PUSH), bash(f"echo fine > fine.txt; {MOVED}"), "done"]) as provider:
        environ = {
            "ANTHROPIC_BASE_URL": provider.anthropic,
            "ANTHROPIC_API_KEY": "not-a-key",
            "DISABLE_AUTOUPDATER": "1",
            **dict.fromkeys(quiet, "1"),
        }
        agent = {"kind": "command", "command": command, "max_turns": 1}
        yard = Yard(tmp_path, environ, agent, after_create=":" if brought == "nothing" else off)
        (tmp_path / "home" / ".claude.json").write_text(json.dumps({"hasCompletedOnboarding": True}))
        ended, said = yard.serve()
        assert ended["outcome"] == "ok", (ended, said)
        told = json.dumps(provider.requests[-2].body)
    assert "see nothing" not in said
    assert not (yard.workspace / "pushed").exists()
    assert (yard.workspace / "fine.txt").read_text() == "fine\n"
    assert "force" in told.partition("tool_result")[2], "the model is told why"
    assert yard.called("claude") == WANTED
    assert not Path(tmp_path / "home" / ".claude" / "settings.json").exists()
