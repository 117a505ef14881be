"""Hooks of Claude Code's settings around our own agent, as `hookline run` calls them."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

AGENT = """
from hookline import Agent, Scripted, max_steps, tool

def turns(*commands):
    calls = [{"tools": [{"name": "bash", "arguments": {"command": command}}]} for command in commands]
    return Scripted([*calls, "done"], repeat=True)

"""


@pytest.fixture
def around(hookline):
    """Runs an agent with settings of Claude Code: the events, each with its commands, and other keys."""

    def run(agent, events, *arguments, **settings):
        (hookline.folder / "coder.py").write_text(AGENT + agent)
        groups = {
            event: [{"hooks": [{"type": "command", "command": each} for each in commands]}]
            for event, commands in events.items()
        }
        (hookline.folder / "settings.json").write_text(json.dumps({"hooks": groups, **settings}))
        return hookline("run", "coder.py:agent", "go", "--hooks", "settings.json", *arguments)

    return run


def lines(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def flat(text):
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("agent", "event"),
    [
        ('agent = Agent(id="a", model=turns())', "Stop"),
        (
            'inner = Agent(id="inner", model=turns())\n'
            'call = {"tools": [{"name": "inner", "arguments": {"input": "x"}}]}\n'
            'agent = Agent(id="a", model=Scripted([call, "done"]), tools=[inner])',
            "SubagentStop",
        ),
    ],
)
def test_a_stop_hook_knows_that_it_refused_and_its_ninth_refusal_is_overruled(around, tmp_path, agent, event):
    done = around(agent, {event: ["cat >> stops; echo more >&2; exit 2"]})
    assert (done.returncode, done.stdout) == (0, "done\n")
    assert [each["stop_hook_active"] for each in lines(tmp_path, "stops")] == [False] + [True] * 8
    assert "its end was refused 9 times; it ends all the same, against hook" in flat(done.stderr)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("", "ended at its limit of 20 steps, without an answer"),
        ("stop_conditions=max_steps(count=2)", "there is no answer: the agent was stopped by max_steps"),
    ],
)
def test_a_run_that_ends_at_its_limit_of_steps_without_an_answer_exits_with_1(around, limit, told):
    done = around(
        'call = {"tools": [{"name": "echo", "arguments": {}}]}\n'
        "@tool\ndef echo(): return 1\n"
        f'agent = Agent(id="a", model=Scripted([call], repeat=True), tools=[echo], {limit})',
        {},
    )
    assert done.returncode == 1
    assert told in flat(done.stderr)


TWO_FILES = [("Bash|bash", "Bash|bash"), ("bash", "write_file")]


@pytest.mark.parametrize("matchers", TWO_FILES)
def test_the_same_command_in_two_settings_files_runs_once(hookline, matchers):
    """The limit does not make it another command, and what either file matches is matched."""
    (hookline.folder / "coder.py").write_text(AGENT + WRITER)
    files = []
    for number, matcher in enumerate(matchers):
        handler = {"type": "command", "command": "cat >> calls", "timeout": 5 + number}
        group = {"matcher": matcher, "hooks": [handler]}
        files.append(f"settings{number}.json")
        (hookline.folder / files[-1]).write_text(json.dumps({"hooks": {"PreToolUse": [group]}}))
    done = hookline("run", "coder.py:agent", "go", *(word for file in files for word in ("--hooks", file)))
    called = [each["tool_name"] for each in lines(hookline.folder, "calls")]
    assert called == (["bash"] if matchers[0] == matchers[1] else ["bash", "write_file"])
    assert "in two files, and run once: " in flat(done.stderr)


@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("strict", [0, 1, None])
def test_the_same_command_declared_twice_is_as_strict_as_the_stricter_one(hookline, files, strict):
    (hookline.folder / "coder.py").write_text(AGENT + WRITER)
    groups = [{"hooks": [{"type": "command", "command": "echo x >> calls; exit 1"}]} for _ in range(2)]
    if strict is not None:
        groups[strict]["hooks"][0]["onFailure"] = "block"
    words = []
    for number, listed in enumerate([groups] if files == 1 else [groups[:1], groups[1:]]):
        (hookline.folder / f"{number}.json").write_text(json.dumps({"hooks": {"PreToolUse": listed}}))
        words += ["--hooks", f"{number}.json"]
    hookline("run", "coder.py:agent", "go", *words)
    assert (hookline.folder / "made").exists() is (strict is None)
    assert (hookline.folder / "calls").read_text() == "x\n" * 2, "once for each call"


WRITER = """
calls = [
    {"tools": [{"name": "bash", "arguments": {"command": "true"}}]},
    {"tools": [{"name": "write_file", "arguments": {"path": "made", "content": "x"}}]},
]
agent = Agent(id="a", model=Scripted([*calls, "done"]), tools=["bash", "write_file"])
"""

DENIED = [
    ("Bash", "bash", {"command": "touch made"}),
    ("Bash(touch:*)", "bash", {"command": "true && touch made"}),
    ("Bash(touch *)", "bash", {"command": "touch made"}),
    ("Write(./made)", "write_file", {"path": "x/../made", "content": "x"}),
    ("Edit", "write_file", {"path": "made", "content": "x"}),
    ("mcp__files__put", "put", {"name": "made"}),
    ("mcp__files", "put", {"name": "made"}),
    ("Bash(touch:*)", "terminal", {"command": "touch made"}),
    ("note", "note", {"name": "made"}),
    ("Write(HERE/made)", "write_file", {"path": "HERE/home/../made", "content": "x"}),
    ("Write(~/made)", "write_file", {"path": "HERE/made", "content": "x"}),
]
TOOLS = """
@tool(kind="mcp")
def put(name: str):
    open(name, "w").close()

@tool
def note(name: str):
    open(name, "w").close()

@tool(kind="shell")
def terminal(command: str):
    open(command.removeprefix("touch "), "w").close()
"""


@pytest.mark.parametrize(("rule", "name", "arguments"), DENIED)
@pytest.mark.parametrize("denied", [True, False])
def test_permissions_deny_holds_for_our_own_agent(around, hookline, tmp_path, rule, name, arguments, denied):
    hookline.environ["HOME"] = str(tmp_path)
    (tmp_path / "home").mkdir()
    rule = rule.replace("HERE", str(tmp_path))
    given = {key: value.replace("HERE", str(tmp_path)) for key, value in arguments.items()}
    turn = {"tools": [{"name": name, "arguments": given}]}
    agent = f'{TOOLS}\nagent = Agent(id="a", model=Scripted([{turn!r}, "done"]), tools=["bash", "write_file", put, note, terminal])'
    rules = [rule] if denied else ["Bash(rm:*)", "Write(./other)", "mcp__files__get", "TodoWrite"]
    done = around(agent, {}, permissions={"deny": rules})
    assert (tmp_path / "made").exists() is not denied
    assert (f"denied by the rule {rule}" in flat(done.stderr)) is denied


def test_a_rule_that_cannot_be_read_or_is_not_enforced_is_named(around, hookline):
    around('agent = Agent(id="a", model=turns())', {}, permissions={"deny": ["Bash(", 3], "ask": ["Bash"]})
    said = hookline("check", "settings.json").stdout
    assert "settings.json:1: permissions.deny[0]: is 'Bash('; it must be a rule such as" in flat(said)
    assert "permissions.deny[1]: is 3" in flat(said)
    assert "permissions.ask is not enforced here" in flat(said)


def test_what_a_session_start_hook_writes_to_its_env_file_reaches_later_shells(around, tmp_path):
    done = around(
        'agent = Agent(id="a", model=turns("echo $COLOUR $(basename $PWD) >> made"), tools=["bash"])',
        {
            "SessionStart": ["echo 'export COLOUR=blue' >> $CLAUDE_ENV_FILE"],
            "PreToolUse": ["test -z \"$CLAUDE_ENV_FILE\" || { echo 'not here' >&2; exit 2; }"],
        },
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "made").read_text().split() == ["blue", tmp_path.name]


def test_a_hook_reads_the_messages_of_the_session_without_secrets_in_its_transcript(
    around, hookline, tmp_path
):
    hookline.environ["MY_TOKEN"] = "sesame-open-sesame"
    copy = "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"transcript_path\"])' > place; cat $(cat place)"
    around(
        'agent = Agent(id="a", model=turns("echo $MY_TOKEN"), tools=["bash"])',
        {"PreToolUse": [f"{copy} > before"], "Stop": [f"{copy} > after"], "SessionStart": [copy]},
    )
    before, after = lines(tmp_path, "before"), lines(tmp_path, "after")
    assert [each["type"] for each in before] == ["user", "assistant"]
    assert [each["type"] for each in after] == ["user", "assistant", "tool", "assistant"]
    assert after[0]["message"]["content"] == "go"
    assert "sesame" not in json.dumps(after)
    place = Path((tmp_path / "place").read_text().strip())
    assert (place.parent.stat().st_mode & 0o777, place.stat().st_mode & 0o777) == (0o700, 0o600)


def test_a_sub_agent_has_a_transcript_of_its_own(around, tmp_path):
    copy = "python3 -c 'import json, sys; print(json.load(sys.stdin)[\"{}\"])' | xargs cat > {}"
    around(
        'inner = Agent(id="inner", model=turns("echo deep"), tools=["bash"])\n'
        'ask = {"tools": [{"name": "inner", "arguments": {"input": "look"}}]}\n'
        'agent = Agent(id="a", model=Scripted([ask, "done"]), tools=[inner])',
        {
            "SubagentStop": [copy.format("agent_transcript_path", "inner")],
            "Stop": [copy.format("transcript_path", "outer")],
        },
    )
    inner, outer = lines(tmp_path, "inner"), lines(tmp_path, "outer")
    assert [each["type"] for each in inner] == ["user", "assistant", "tool", "assistant"]
    assert inner[0]["message"]["content"] == "look"
    assert [each["type"] for each in outer] == ["user", "assistant", "tool", "assistant"]
    assert outer[0]["message"]["content"] == "go"


def test_a_run_without_command_hooks_has_no_transcript_and_prune_removes_one(around, hookline, tmp_path):
    around('agent = Agent(id="a", model=turns())', {})
    sessions = tmp_path / "home" / "sessions"
    assert not sessions.exists()
    around('agent = Agent(id="a", model=turns())', {"Stop": ["true"]})
    assert len(list(sessions.iterdir())) == 1
    with closing(sqlite3.connect(tmp_path / "home" / "journal.db")) as journal:
        columns = [row[1] for row in journal.execute("PRAGMA table_info(run)")]
        assert "ended" in columns, columns
        journal.execute("UPDATE run SET ended = ended - 10 * 86400")
        journal.commit()
    assert "2 runs deleted" in hookline("prune", "--days", "1").stdout
    assert list(sessions.iterdir()) == []
