"""Hooks of Claude Code's settings around our own agent, as `hookline run` calls them."""

import json

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
