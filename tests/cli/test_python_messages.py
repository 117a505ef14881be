"""What a user reads about a hook in Python that is wrong: the file, the line, and what was probably meant."""

import json

import pytest

from hookline import Agent, HookResult, Scripted, UsageError, hook

TURN = '{"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]}'
FILE = """
import time
from hookline import Agent, HookResult, McpServer, Scripted, Tool, hook, tool

%s

agent = Agent(id="a", model=Scripted([TURN, "done"]), tools=["bash"], %s)
""".replace("TURN", TURN)

MISTAKES = {
    "a point": ('@hook(on="tool.strat")\ndef f(c, h): pass', "", ":5: ", "did you mean tool.start?"),
    "a keyword": ("@hook(timout=3)\ndef f(c, h): pass", "", ":5: ", "did you mean timeout?"),
    "a list": ("def f(c, h): pass", "on_tool_strat=[f]", ":7: ", "did you mean on_tool_start?"),
    "a result": (
        "def f(c, h):\n    return HookResult.contine_with()",
        "on_tool_start=[f]",
        "agent.py:6)",
        "HookResult has no 'contine_with'; did you mean continue_with?",
    ),
    "no result": ("def f(c, h):\n    pass", "on_tool_start=[f]", "agent.py:5]", "returned None"),
    "too slow": (
        "@hook(timeout=0.05)\ndef f(c, h):\n    time.sleep(0.4)",
        "on_tool_start=[f]",
        "agent.py:5]",
        "ran past its limit of 0.05 s",
    ),
    "a keyword of a result": (
        "def f(c, h):\n    return HookResult.continue_with(modified_paylod={})",
        "on_tool_start=[f]",
        "agent.py:6)",
        "unknown keyword 'modified_paylod'; did you mean modified_payload?",
    ),
    "a point that is no text": ("@hook(on=5)\ndef f(c, h): pass", "", ":5: ", "on is 5; give a text"),
    "a match that is no text": ("@hook(match=5)\ndef f(c, h): pass", "", ":5: ", "match is 5; give a text"),
    "a limit": ("", "timeout='5'", ":7: ", "agent 'a': timeout is '5'; give seconds greater than 0"),
    "a tool's kind": ("@tool(kind='shel')\ndef f(): pass", "", ":5: ", "did you mean shell?"),
    "a tool's keyword": ("@tool(kidn='shell')\ndef f(): pass", "", ":5: ", "did you mean kind?"),
    "a tool's limit": (
        "@tool(timeout=-1)\ndef f(): pass",
        "",
        ":5: ",
        "tool 'f': timeout is -1; give seconds",
    ),
    "a tool's approval": (
        "Tool(id='t', description='', parameters={}, body=print, approval='allways')",
        "",
        ":5: ",
        "tool 't': approval is 'allways'; did you mean always?",
    ),
    "a server's command": ("McpServer(name='x', command=['a', 'b'])", "", ":5: ", "give the program alone"),
    "another point's": (
        "def f(c, h):\n    return HookResult.skip('x')",
        "on_tool_start=[f]",
        "agent.py:5]",
        "skip means nothing at tool.start",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_python_hook_names_its_line_and_what_was_meant(hookline, name):
    function, listed, line, told = MISTAKES[name]
    (hookline.folder / "agent.py").write_text(FILE % (function, listed))
    done = hookline("run", "agent.py:agent", "go")
    said = " ".join(done.stderr.split())
    assert done.returncode != 0
    assert line in said
    assert told in said
    assert name != "a result" or "agent.py:5]" not in said, "its place is told once"
    assert not (hookline.folder / "made").exists()


@pytest.mark.parametrize("function", ['@hook(on="tool.start")\ndef f(c, h):', "def on_tool_start(c, h):"])
def test_a_hook_that_is_declared_for_another_point_is_told(hookline, function):
    name = "f" if "def f" in function else "on_tool_start"
    written = f"{function}\n    return HookResult.continue_with()"
    (hookline.folder / "agent.py").write_text(FILE % (written, f"on_tool_end=[{name}]"))
    for command in (("run", "agent.py:agent", "go"), ("check", "agent.py:agent")):
        said = " ".join(hookline(*command).stderr.split())
        assert "agent.py:5] is declared for tool.start, and stands at tool.end too" in said
    (found,) = json.loads(hookline("check", "--json", "agent.py:agent").stdout)["problems"]
    assert (found["level"], found["code"], found["line"]) == ("warning", "declared-elsewhere", 5)
    assert hookline("check", "--strict", "agent.py:agent").returncode == 2


def test_a_made_up_call_of_a_tool_that_the_agent_has_not_is_refused(hookline):
    done = hookline("try", "tool.start", "agent.py", "--tool", "bsh", "--input", '{"command": "rm x"}')
    assert done.returncode == 2
    assert "guarded has no tool 'bsh'; did you mean bash?" in " ".join(done.stderr.split())
    done = hookline("try", "tool.start", "agent.py", "--tool", "bash", "--input", "rm x")
    assert (done.returncode, "a tool's is a JSON object" in done.stderr) == (2, True)


async def test_a_keyword_that_run_does_not_have_is_refused():
    asked = Agent(id="a", model=Scripted(["ok"]))
    for call in (asked.run, asked.stream):
        with pytest.raises(UsageError, match=r"unknown keyword .hook.; did you mean hooks"):
            call("x", hook=[])
    with pytest.raises(UsageError, match="unknown keyword 'aprover'; did you mean approver"):
        asked.run("x", aprover=None)
    assert asked.model.requests == []
    await asked.run("x", top_k=3, provider_kwargs={"own": 1})
    assert asked.model.requests[0].extra == {"own": 1, "top_k": 3}


@pytest.mark.parametrize("is_async", [True, False])
async def test_an_approver_that_returns_a_bool_is_told_and_nothing_runs(tmp_path, is_async):
    async def later(_question):
        return True

    @hook(on="tool.start")
    async def asks(_ctx, _at):
        return HookResult.ask("sure?")

    model = Scripted([{"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]}, "done"])
    asked = Agent(id="a", model=model, tools=["bash"], workspace=tmp_path)
    with pytest.raises(UsageError, match=r"test_python_messages.py:\d+\] returned True; give a hookline"):
        await asked.run("x", hooks=[asks], approver=later if is_async else lambda _question: True)
    assert not (tmp_path / "made").exists()
