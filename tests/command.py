"""A `hookline` command in a process of its own, with a journal of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hookline.hookfile import trust
from hookline.hookfile.read import read
from tests import forks

AGENT = """
from hookline import Agent, HookResult, Scripted, hook, tool

@hook
def log(ctx, hook_context):
    return HookResult.continue_with()

@hook(match="bash", inline=True)
def no_rm(ctx, hook_context):
    if "rm " in hook_context.current_payload["command"]:
        return HookResult.block("nothing is deleted")
    return HookResult.continue_with()

@hook
def stop_if_bad(ctx, hook_context):
    word = hook_context.current_payload["input"]
    if word == "bad":
        return HookResult.fail("bad input")
    if word == "nothing":
        return HookResult.skip("nothing to do")
    if word == "no":
        return HookResult.block("not this one")
    return HookResult.continue_with()

agent = Agent(
    id="guarded",
    model=Scripted([{"tools": [{"name": "bash", "arguments": {"command": "rm x"}}]}, "kept it"]),
    tools=["bash"],
    on_start=[log, stop_if_bad],
    on_tool_start=[no_rm],
    on_end=[log],
)
"""


class Command:
    """Runs `hookline ARGUMENTS` in a folder; `environ` is what the process is given besides.

    `machine` stands for `/etc/hookline` where it is set.
    """

    def __init__(self, folder):
        self.folder = folder
        self.machine = ""
        self.environ = {
            **os.environ,
            "HOOKLINE_HOME": str(folder / "home"),
            "COLUMNS": "100",
            "NO_COLOR": "1",
        }
        self.environ.pop("FORCE_COLOR", None)

    def __call__(self, *arguments, stdin="", executable=""):
        return self._run(arguments, stdin=stdin, executable=executable)

    def at_terminal(self, *arguments, typed=""):
        """The same, called by a person at a terminal of their own, who types these lines and ends the input."""
        return self._run(arguments, terminal=True, typed=typed)

    def _run(self, arguments, **options):
        return forks.run(arguments, cwd=self.folder, env=self.environ, machine=self.machine, **options)

    def start(self, *arguments, **options):
        return subprocess.Popen(
            [sys.executable, "-m", "hookline", *arguments],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )


@pytest.fixture
def hookline(tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    return Command(tmp_path)


def approve(file, environ):
    """Approve a hook file as a person at a terminal does with `hookline trust`."""
    trust.approve(Path(file), read(Path(file)).checked().hooks, environ)
