"""The real command-line agents, installed once, each at home in a folder of its own, with a model on loopback.

    with guarded("gemini", NO_FORCE_PUSH) as site:
        done = site.run([[site.shell("echo hello > hello.txt")], "done"])

A turn of the model is its list of tool calls, its last words, or a function that is called when the model is asked, and
gives one of these. Made to be imported by tests.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.command import approve
from tests.fakes import FakeProvider

CACHE = Path(os.environ.get("HOOKLINE_TEST_CACHE") or Path(__file__).parents[2] / ".cache")
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"
NO_FORCE_PUSH = """
hooks:
  - name: no-force-push
    on: tool.start
    match: kind:shell
    python: hookline.guards:no_force_push
"""


def installed(package, version, program):
    """The program of an npm package. Where it is not there and cannot be had, a test is skipped and says why."""
    folder = CACHE / f"{program}-{version}"
    found = folder / "node_modules" / ".bin" / program
    if not found.exists():
        if shutil.which("npm") is None:
            pytest.skip(f"npm is not installed, so {package} cannot be")
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", f"{package}@{version}"]
        subprocess.run(command, cwd=folder, check=True)
    return found


class Client(NamedTuple):
    """One agent: `configure` writes what its user would (an account, trust in the folder) and gives its environment."""

    name: str
    caller: str
    package: str
    version: str
    program: str
    arguments: tuple[str, ...]
    settings: str
    tool_start: str
    shell: Callable
    write: Callable
    configure: Callable

    def installed(self):
        return installed(self.package, self.version, self.program)


def _claude(site, provider):
    trusted = {str(site.project): {"hasTrustDialogAccepted": True}}
    known = {"hasCompletedOnboarding": True, "projects": trusted}
    (site.home / ".claude.json").write_text(json.dumps(known))
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_ERROR_REPORTING")
    return {
        "ANTHROPIC_BASE_URL": provider.anthropic,
        "ANTHROPIC_API_KEY": "not-a-key",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",  # else it refuses root to skip its questions
        **dict.fromkeys(quiet, "1"),
    }


def _codex(site, provider):
    config = site.home / ".codex" / "config.toml"
    config.parent.mkdir(exist_ok=True)
    before = config.read_text() if config.exists() else ""
    config.write_text(
        f'model = "fake-model"\nmodel_provider = "fake"\n{before}\n[projects."{site.project}"]\ntrust_level = "trusted"\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{provider.openai}"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )
    return {}


def _gemini(site, provider):
    folder = site.home / ".gemini"
    folder.mkdir(exist_ok=True)
    own = {
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
    }
    (folder / "settings.json").write_text(json.dumps(own))
    (folder / "trustedFolders.json").write_text(json.dumps({str(site.project): "TRUST_FOLDER"}))
    return {"GOOGLE_GEMINI_BASE_URL": provider.gemini, "GEMINI_API_KEY": "not-a-key"}


def _qwen(site, provider):
    folder = site.home / ".qwen"
    folder.mkdir(exist_ok=True)
    own = {"security": {"auth": {"selectedType": "openai"}}, "privacy": {"usageStatisticsEnabled": False}}
    (folder / "settings.json").write_text(json.dumps(own))
    (folder / "trustedFolders.json").write_text(json.dumps({str(site.project): "TRUST_FOLDER"}))
    return {
        "OPENAI_BASE_URL": provider.openai,
        "OPENAI_API_KEY": "not-a-key",
        "OPENAI_MODEL": "fake-model",
        "QWEN_CODE_DISABLE_AUTO_UPDATE": "1",
    }


def _call(name, **arguments):
    return {"name": name, "arguments": arguments}


def _patch(path, content):
    patch = f"*** Begin Patch\n*** Add File: {path}\n+{content}\n*** End Patch"
    return _call("exec_command", cmd=f"apply_patch <<'EOF'\n{patch}\nEOF\n", yield_time_ms=30_000)


CLIENTS = {
    each.name: each
    for each in (
        Client(
            name="claude-code",
            caller="claude",
            package="@anthropic-ai/claude-code",
            version="2.1.325",
            program="claude",
            arguments=(
                *("-p", "do it", "--output-format", "stream-json", "--verbose"),
                "--dangerously-skip-permissions",
            ),
            settings=".claude/settings.json",
            tool_start="PreToolUse",
            shell=lambda command: _call("Bash", command=command, description="run"),
            write=lambda path, content: _call("Write", file_path=str(path), content=content),
            configure=_claude,
        ),
        Client(
            name="codex",
            caller="codex",
            package="@openai/codex",
            version="0.166.0",
            program="codex",
            arguments=(
                *("exec", "--skip-git-repo-check", "--json"),
                *("--dangerously-bypass-approvals-and-sandbox", "do it"),
            ),
            settings=".codex/hooks.json",
            tool_start="PreToolUse",
            shell=lambda command: _call("exec_command", cmd=command, yield_time_ms=30_000),
            write=_patch,
            configure=_codex,
        ),
        Client(
            name="gemini",
            caller="gemini",
            package="@google/gemini-cli",
            version="0.61.0",
            program="gemini",
            arguments=("-p", "do it", "--approval-mode", "yolo", "-m", "gemini-2.5-pro"),
            settings=".gemini/settings.json",
            tool_start="BeforeTool",
            shell=lambda command: _call("run_shell_command", command=command, description="run"),
            write=lambda path, content: _call("write_file", file_path=str(path), content=content),
            configure=_gemini,
        ),
        Client(
            name="qwen",
            caller="qwen",
            package="@qwen-code/qwen-code",
            version="0.24.4",
            program="qwen",
            arguments=("-p", "do it", "--approval-mode", "yolo"),
            settings=".qwen/settings.json",
            tool_start="PreToolUse",
            shell=lambda command: _call("run_shell_command", command=command, is_background=False),
            write=lambda path, content: _call("write_file", file_path=str(path), content=content),
            configure=_qwen,
        ),
    )
}


class Done(NamedTuple):
    """One run of a client: its exit code, what it printed, and what it sent to the model, request by request."""

    code: int
    printed: str
    sent: list[str]


class Site:
    """A project that is a repository with a remote, a home, and `hookline` on the PATH of this site alone.

    Not below the system's temporary folder, which a guard may leave alone.
    """

    def __init__(self, client):
        self.client = client
        CACHE.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix=f"{client.name}-", dir=CACHE))
        self.project, self.home, self.bin = (self.folder / name for name in ("project", "home", "bin"))
        self.remote, self.outside = self.folder / "remote.git", self.folder / "outside.txt"
        self.shell, self.write = client.shell, client.write
        for each in (self.home, self.bin):
            each.mkdir()
        self.hookline = self.bin / "hookline"
        self.hookline.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m hookline "$@"\n')
        self.hookline.chmod(0o755)
        self.environ = {
            "PATH": f"{self.bin}:{SYSTEM_PATH}",
            "HOME": str(self.home),
            "SHELL": "/bin/bash",
            "TERM": "dumb",
            "NO_COLOR": "1",
        }
        # A login shell, with which Codex runs everything, sets a PATH of its own.
        (self.home / ".profile").write_text(f"PATH={self.environ['PATH']}\n")
        self._repository()

    def _repository(self):
        (self.home / ".gitconfig").write_text(
            "[user]\nname = me\nemail = me@example.org\n[init]\ndefaultBranch = main\n"
        )
        self.git("init", "-q", "--bare", self.remote, cwd=self.folder)
        self.git("clone", "-q", self.remote, self.project, cwd=self.folder)
        self.git("commit", "-q", "--allow-empty", "-m", "what others have")
        self.git("push", "-q", "origin", "main")
        self.git("commit", "-q", "--amend", "--allow-empty", "-m", "what would overwrite it")

    def git(self, *words, cwd=None):
        done = subprocess.run(
            ["git", *words],
            cwd=cwd or self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.folder)

    def hooks(self, text, **modules):
        """Write the hook file of the project, approved, and the modules that it names."""
        for name, code in modules.items():
            (self.project / f"{name}.py").write_text(code)
        file = self.project / "hookline.yaml"
        file.write_text(text)
        approve(file, self.environ)

    def command(self, *words):
        """`hookline` as the user of the project calls it."""
        return subprocess.run(
            [self.hookline, *words],
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            check=False,
        )

    def install(self):
        done = self.command("install", self.client.name)
        assert done.returncode == 0, done.stdout + done.stderr

    def run(self, turns):
        """The client takes up one prompt, and the model answers it with these turns."""
        with FakeProvider([_turn(each) for each in turns]) as provider:
            environ = {**self.environ, **self.client.configure(self, provider)}
            done = subprocess.run(
                [self.client.installed(), *self.client.arguments],
                cwd=self.project,
                env=environ,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                timeout=280,
            )
            sent = [json.dumps(request.body, ensure_ascii=False) for request in provider.requests]
        return Done(done.returncode, done.stdout + done.stderr, sent)

    def records(self):
        """The journal of the run, record by record."""
        shown = self.command("runs", "last", "--json")
        return [json.loads(line) for line in shown.stdout.splitlines()]

    def pushed(self):
        """True if the forced push has arrived."""
        return "what would overwrite it" in self.git("log", "--format=%s", "main", cwd=self.remote)


@contextmanager
def guarded(name, hooks, **modules):
    """The site of a client whose guard is installed, with this hook file and the modules that it names."""
    client = CLIENTS[name]
    client.installed()
    with Site(client) as site:
        site.hooks(hooks, **modules)
        site.install()
        yield site


def _turn(turn):
    if callable(turn):
        return lambda _request: _turn(turn())
    return {"tools": turn} if isinstance(turn, list) else turn
