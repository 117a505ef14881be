"""The agent that a WORKFLOW.md names, with the settings of the file."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hookline.runners.local import LocalRunner
from hookline.symphony.agents import AgentPlace
from hookline.symphony.hooks import AttemptSite
from hookline.symphony.read import Workflow, read
from hookline.symphony.run import agent_of
from hookline.symphony.workspace import WorkspaceRoot
from tests.symphony.scenes import workflow

SERVER = Path(__file__).with_name("agents") / "app_server.py"


@contextmanager
def site_in(folder: Path, current: Callable[[], Workflow], **more) -> Generator[AttemptSite]:
    with WorkspaceRoot(str(folder / "work")) as root:
        yield AttemptSite(current=current, root=root, runner=LocalRunner(), **{"environ": {}, **more})


async def sent(folder: Path, **codex: str) -> dict[str, dict]:
    """What Codex was asked for, by method."""
    saw = folder / "saw.jsonl"
    command = shlex.join([sys.executable, str(SERVER), "well", str(saw)])
    given = workflow(folder, codex={"command": json.dumps(command), "read_timeout_ms": 20000, **codex})
    with site_in(folder, lambda: given) as site:
        agent = agent_of(given, site)
    session = agent(AgentPlace(workspace=str(folder), env=dict(os.environ), tell=lambda _: None))
    try:
        await session.open()
        await session.turn("go")
    finally:
        await session.close()
    messages = [json.loads(line) for line in saw.read_text().splitlines()]
    return {message["method"]: message.get("params", {}) for message in messages if "method" in message}


@pytest.mark.rule("M58")
async def test_the_policies_of_the_file_are_sent_to_codex_as_they_are(tmp_path):
    asked = await sent(
        tmp_path,
        approval_policy="{granular: {sandbox_approval: true, rules: false}}",
        thread_sandbox="read-only",
        turn_sandbox_policy="{type: workspaceWrite, networkAccess: true}",
    )
    granular = {"granular": {"sandbox_approval": True, "rules": False}}
    assert asked["thread/start"]["approvalPolicy"] == granular
    assert asked["thread/start"]["sandbox"] == "read-only"
    assert asked["turn/start"]["sandboxPolicy"] == {"type": "workspaceWrite", "networkAccess": True}


@pytest.mark.rule("M58")
async def test_where_the_file_says_nothing_codex_asks_nobody_and_writes_only_in_the_workspace(tmp_path):
    asked = await sent(tmp_path)
    thread = asked["thread/start"]
    assert (thread["approvalPolicy"], thread["sandbox"]) == ("never", "workspace-write")
    assert "sandboxPolicy" not in asked["turn/start"]


def test_a_variable_that_a_changed_file_names_is_withheld_from_then_on(tmp_path):
    file = str(tmp_path / "WORKFLOW.md")
    workflows = [
        read("---\ntracker: {kind: linear, provider: {api_key: $FIRST}}\n---\n", file, {}),
        read("---\ntracker: {kind: linear, provider: {api_key: $SECOND}}\n---\n", file, {}),
    ]
    now = [0]
    environ = {"FIRST": "one", "SECOND": "two", "THIRD": "three"}
    first = frozenset({"FIRST"})
    with site_in(tmp_path, lambda: workflows[now[0]], environ=environ, secret_names=first) as site:
        assert site.withheld_names == {"FIRST", "LINEAR_API_KEY"}
        now[0] = 1
        assert site.withheld_names == {"FIRST", "SECOND", "LINEAR_API_KEY"}
        assert site.environment == {"THIRD": "three"}
