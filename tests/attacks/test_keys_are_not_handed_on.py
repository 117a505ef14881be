"""The keys of model providers and trackers reach no tool and no hook of hookline.yaml that does not name them."""

import json
import os

import pytest

from hookline.agent.models import COMPATIBLE
from hookline.secrets import PROVIDER_KEYS, TRACKER_KEYS
from hookline.symphony.trackers import TRACKERS
from hookline.sympozium.environment import _PROVIDER_KEYS
from tests.command import approve

KEYS = {name: f"value-of-{name.lower()}" for name in ("OPENAI_API_KEY", "LINEAR_API_KEY", "GITHUB_TOKEN")}
AGENT = """
from hookline import Agent, Scripted

agent = Agent(
    id="shell",
    model=Scripted([{"tools": [{"name": "bash", "arguments": {"command": "env > tool.txt"}}]}, "done"]),
    tools=["bash"],
    MORE
)
"""
FILE = """
hooks:
  - {name: command, on: tool.start, command: [sh, -c, 'env > command.txt'], cwd: . MORE}
  - {name: shell, on: tool.start, shell: 'env > shell.txt', cwd: . MORE}
"""
EVENT = {
    "session_id": "s1",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_use_id": "t1",
    "tool_input": {"command": "ls"},
}


@pytest.fixture
def project(hookline):
    hookline.environ.update(KEYS, COPY_OF_IT=KEYS["OPENAI_API_KEY"], PLAIN="plain")

    def write(hooks="", agent=""):
        (hookline.folder / "agent.py").write_text(AGENT.replace("MORE", agent))
        (hookline.folder / "hookline.yaml").write_text(FILE.replace(" MORE", hooks and f", {hooks}"))
        approve(hookline.folder / "hookline.yaml", hookline.environ)
        return hookline

    return write


def seen(hookline, *names):
    """The keys that these processes had, by their names, and what each had besides."""
    texts = [(hookline.folder / f"{name}.txt").read_text() for name in names]
    assert all("PLAIN=plain" in text for text in texts)
    return [{name for name, value in KEYS.items() if value in text} for text in texts]


def test_a_tool_or_a_hook_that_names_none(project):
    hookline = project()
    assert hookline("run", "agent.py", "go").returncode == 0
    assert seen(hookline, "tool", "command", "shell") == [set()] * 3


@pytest.mark.parametrize("on", ["sandbox"])
def test_a_hook_in_a_sandbox(project, on):
    hookline = project()
    done = hookline("run", "agent.py", "go", "--on", on, "--mount", f"{hookline.folder}")
    if not (hookline.folder / "command.txt").exists():
        pytest.fail(done.stderr)
    assert seen(hookline, "command", "shell") == [set()] * 2


@pytest.mark.parametrize("way", ["short", "long"])
def test_a_hook_of_another_agent(project, way):
    hookline = project()
    for _ in range(1 if way == "long" else 2):
        event = json.dumps({**EVENT, "cwd": str(hookline.folder)})
        assert hookline("answer", stdin=event).returncode == 0
    assert seen(hookline, "command", "shell") == [set()] * 2


def test_only_those_that_are_named(project):
    hookline = project(hooks="env: [OPENAI_API_KEY]", agent="env=['GITHUB_TOKEN'],")
    assert hookline("run", "agent.py", "go").returncode == 0
    assert seen(hookline, "tool", "command", "shell") == [
        {"GITHUB_TOKEN"},
        {"OPENAI_API_KEY"},
        {"OPENAI_API_KEY"},
    ]


def test_all_of_them_where_that_is_asked_for(project):
    hookline = project(hooks="env: inherit", agent="env='inherit',")
    assert hookline("run", "agent.py", "go").returncode == 0
    assert seen(hookline, "tool", "command", "shell") == [set(KEYS)] * 3


def test_a_hook_of_a_clients_settings_has_what_its_client_would_give_it(hookline):
    hookline.environ.update(KEYS, PLAIN="plain")
    command = {"type": "command", "command": f"env > {hookline.folder}/theirs.txt"}
    file = hookline.folder / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [command]}]}}))
    event = json.dumps({**EVENT, "cwd": str(hookline.folder)})
    assert hookline("answer", "--file", str(file), stdin=event).returncode == 0
    assert seen(hookline, "theirs") == [set(KEYS)]


def test_explain_names_what_is_withheld(project):
    hookline = project()
    shown = hookline("explain", "agent.py").stdout
    assert all(name in shown for name in KEYS)
    found = json.loads(hookline("explain", "agent.py", "--json").stdout)
    assert set(KEYS) <= set(found["withheld"]) <= PROVIDER_KEYS | TRACKER_KEYS
    assert not any(value in shown for value in KEYS.values())


def test_every_key_that_hookline_reads_is_withheld():
    providers = {each.key for each in COMPATIBLE.values()} | {"ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"}
    assert providers | (set(_PROVIDER_KEYS) - {"API_KEY"}) <= PROVIDER_KEYS
    assert {each.secret for each in TRACKERS.values() if each.secret} <= TRACKER_KEYS


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("shell: 'true', env: [HOOKLINE_HOME]", "are set by hookline"),
        ("shell: 'true', env: [A B]", "not the name"),
        ("shell: 'true', env: all", "inherit"),
        ("image: 'x:1', env: inherit", "list of names"),
        ("python: 'hookline.guards:no_force_push', env: [A]", "not for python"),
    ],
)
def test_a_mistake_in_env_is_told(hookline, entry, told):
    (hookline.folder / "hookline.yaml").write_text(f"hooks:\n  - {{name: a, on: tool.start, {entry}}}\n")
    done = hookline("check", "hookline.yaml")
    assert done.returncode == 2
    assert told in done.stdout
    assert os.path.exists(hookline.folder)
