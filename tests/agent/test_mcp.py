"""MCP servers as tools of an agent, against real ones: the library's own, and small ones that misbehave."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from hookline import Agent, AgentFailed, HookResult, McpServer, Scripted, UsageError, hook, tool
from hookline.agent.mcp import value_of
from hookline.runners import tags as tagged
from tests import forks
from tests.agents import Seen, calls, texts

# A server without the library: it starts in no time, and can do what the library would not.
RAW = """
import itertools, json, os, signal, subprocess, sys, time

def say(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()

def named(name, **more):
    return {"name": name, "description": f"the tool {name}", "inputSchema": {"type": "object"}, **more}

def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}

def serve(tools, call=None, listed=None, other=None):
    listed = listed or (lambda params: {"tools": tools})
    for line in sys.stdin:
        asked = json.loads(line)
        method, params, id = asked["method"], asked.get("params") or {}, asked.get("id")
        if method == "initialize":
            say(id=id, result={"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}},
                               "serverInfo": {"name": "raw", "version": "1"}})
        elif method == "tools/list":
            say(id=id, result=listed(params))
        elif method == "tools/call":
            answer = call(params["name"], params.get("arguments") or {})
            if answer is not None:
                say(id=id, **(answer if "error" in answer else {"result": answer}))
        elif id is not None:
            say(id=id, error={"code": -32601, "message": "Method not found"})
        elif other is not None:
            other(method, params)
"""

FULL = """
from mcp.server.mcpserver import Image, MCPServer

server = MCPServer("full")

@server.tool()
def add(a: int, b: int) -> int:
    "Adds two numbers."
    return a + b

@server.tool()
def hello(name: str) -> str:
    return f"hello {name}"

@server.tool()
def names() -> list[str]:
    return ["ana", "bo"]

@server.tool()
def picture() -> Image:
    return Image(data=b"123456", format="png")

@server.tool()
def fails() -> str:
    from mcp.server.mcpserver.exceptions import ToolError
    raise ToolError("there is no such thing")

server.run()
"""


class Made:
    """Writes servers into a folder and says how to start them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def script(self, code: str, name: str = "server") -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(textwrap.dedent(code))
        return file

    def raw(self, code: str, *, name: str = "raw", **given: Any) -> McpServer:
        file = self.script(RAW + textwrap.dedent(code), name)
        return McpServer(name=name, command=sys.executable, args=[str(file)], **given)

    def full(self, **given: Any) -> McpServer:
        return McpServer(name="full", command=sys.executable, args=[str(self.script(FULL))], **given)


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


ECHO = """
serve([named("echo")], lambda name, given: text(json.dumps(given)))
"""


async def failure_of(server: McpServer) -> str:
    """How a run with this server fails, and that the model was not asked."""
    model = Scripted(["never"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        with pytest.raises(AgentFailed) as caught:
            await agent.run("hi")
    assert model.requests == []
    return str(caught.value)


async def results_of(server: McpServer, *wanted: Any, **given: Any) -> list[Any]:
    """What calls of a server's tools gave."""
    async with Agent(id="a", model=Scripted([calls(*wanted), "done"]), tools=[server], **given) as agent:
        return list((await agent.run("hi")).tool_results)


async def until(true: Callable[[], Any], seconds: float = 30) -> Any:
    deadline = time.monotonic() + seconds
    while not (value := true()):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)
    return value


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def left_behind(folder: Path) -> list[int]:
    """The processes whose command line names a file of this folder."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        if str(folder).encode() in line and int(entry.name) != os.getpid() and alive(int(entry.name)):
            found.append(int(entry.name))
    return found


# -- a server that works -------------------------------------------------------------------------------------


async def test_its_tools_are_called_through_the_tool_points_with_the_arguments_as_the_hooks_left_them(made):
    seen = Seen()

    @hook(match="add")
    def doubled(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.continue_with(modified_payload={"a": 2 * hook_context.current_payload["a"]})

    model = Scripted([calls(("add", {"a": 1, "b": 2})), "done"])
    hooks = {"on_tool_start": [doubled, seen.noting()], "on_tool_end": [seen.noting()]}
    async with Agent(id="a", model=model, tools=[made.full()], **hooks) as agent:
        result = await agent.run("hi")

    assert [each.result for each in result.tool_results] == [4]
    assert seen.points == ["tool.start", "tool.end"]
    assert {(each.current_tool, each.tool_kind) for each in seen.contexts} == {("add", "mcp")}
    assert seen.only("tool.start").current_payload == {"a": 2, "b": 2}
    spec = next(each for each in model.requests[0].tools if each.name == "add")
    assert spec.description == "Adds two numbers."
    assert spec.parameters["required"] == ["a", "b"]
    assert "4" in texts(model.requests[1])[-1]


async def test_a_hook_blocks_a_call_by_kind_and_the_server_is_not_asked(made):
    @hook(match="kind:mcp")
    def no(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.block("not today")

    mark = made.folder / "called"
    server = made.raw(f"serve([named('t')], lambda *_: open({str(mark)!r}, 'w') and text('x'))")
    (found,) = await results_of(server, "t", on_tool_start=[no])
    assert found.status == "blocked"
    assert not mark.exists()


async def test_every_kind_of_result_of_a_real_server_is_told(made):
    found = await results_of(made.full(), ("hello", {"name": "bo"}), "names", "picture", "fails")
    assert [each.result for each in found[:2]] == ["hello bo", ["ana", "bo"]]
    assert found[2].result == [
        {"type": "image", "mimeType": "image/png", "data": "left out: 8 characters of base64"}
    ]
    assert (found[3].status, found[3].error) == (
        "failed",
        "Error executing tool fails: there is no such thing",
    )


async def test_tools_of_the_agent_and_of_servers_stand_together_in_declared_order(made):
    @tool
    def own() -> str:
        return "mine"

    first = made.raw("serve([named('b'), named('a')], lambda *_: text('first'))", name="first")
    second = made.raw("serve([named('c')], lambda *_: text('second'))", name="second")
    model = Scripted([calls("own", "a", "c"), "done"])
    async with Agent(id="a", model=model, tools=[first, own, second]) as agent:
        result = await agent.run("hi")
    assert [each.name for each in model.requests[0].tools] == ["own", "b", "a", "c"]
    assert [each.result for each in result.tool_results] == ["mine", "first", "second"]


async def test_an_agent_that_is_a_tool_has_its_servers_too(made):
    seen = Seen()
    model = Scripted([calls("echo"), "inner done"])
    inner = Agent(id="inner", model=model, tools=[made.raw(ECHO)], on_tool_end=[seen.noting()])
    outer = Agent(id="outer", model=Scripted([calls(("inner", {"input": "x"})), "done"]), tools=[inner])
    async with inner:
        await outer.run("hi")
    assert [each.name for each in model.requests[0].tools] == ["echo"]
    assert (seen.only("tool.end").current_tool, seen.only("tool.end").status) == ("echo", "ok")


async def test_a_stream_has_them_too(made):
    async with Agent(id="a", model=Scripted([calls("echo"), "done"]), tools=[made.raw(ECHO)]) as agent:
        pieces = [piece async for piece in agent.stream("hi").text_chunks]
    assert "".join(pieces) == "done"


async def test_one_process_serves_all_runs_until_the_agent_is_closed(made):
    server = made.raw("serve([named('pid')], lambda *_: text(str(os.getpid())))")
    agent = Agent(id="a", model=Scripted([calls("pid"), "x", calls("pid"), "y"]), tools=[server])
    pids = [(await agent.run("hi")).tool_results[0].result for _ in range(2)]
    assert pids[0] == pids[1]
    assert alive(int(pids[0]))
    await agent.close()
    assert not alive(int(pids[0]))
    assert left_behind(made.folder) == []


async def test_runs_at_the_same_time_share_it(made):
    server = made.raw("serve([named('pid')], lambda *_: text(str(os.getpid())))")
    agent = Agent(id="a", model=Scripted([calls("pid")] * 5 + ["done"] * 5), tools=[server])
    async with agent:
        results = await asyncio.gather(*(agent.run("hi") for _ in range(5)))
    assert len({found.result for result in results for found in result.tool_results}) == 1


async def test_a_command_sees_path_and_its_own_variables_and_no_key_of_ours(made, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    server = made.raw(
        "serve([named('env')], lambda *_: text(json.dumps(dict(os.environ))))", env={"MINE": "given"}
    )
    (found,) = await results_of(server, "env")
    seen = json.loads(found.result)
    assert seen["MINE"] == "given"
    assert seen["PATH"] == os.environ["PATH"]
    assert set(seen) <= {
        "HOME",
        "LOGNAME",
        "PATH",
        "SHELL",
        "TERM",
        "USER",
        "MINE",
        "LC_CTYPE",
        tagged.VARIABLE,
    }


async def test_a_command_has_a_session_of_its_own_and_the_folder_it_was_given(made, tmp_path):
    server = made.raw(
        "serve([named('where')], lambda *_: text(json.dumps([os.getsid(0), os.getpid(), os.getcwd()])))",
        cwd=tmp_path,
    )
    (found,) = await results_of(server, "where")
    session, pid, folder = json.loads(found.result)
    assert session == pid
    assert folder == str(tmp_path)


async def test_messages_of_megabytes_pass_both_ways(made):
    server = made.raw("serve([named('echo')], lambda _, given: text(given['x']))")
    (found,) = await results_of(server, ("echo", {"x": "é" * 2_000_000}))
    assert found.result == "é" * 2_000_000


async def test_a_server_that_talks_much_on_stderr_is_not_held_up(made):
    server = made.raw("sys.stderr.write('x' * 3_000_000)\nserve([named('t')], lambda *_: text('ok'))")
    (found,) = await results_of(server, "t")
    assert found.result == "ok"


async def test_a_program_that_ends_when_anything_comes_before_initialize_is_asked_in_the_old_way(made):
    server = made.raw(
        """
        first = sys.stdin.readline()
        if json.loads(first)["method"] != "initialize":
            sys.exit("expected initialize")
        sys.stdin = itertools.chain([first], sys.stdin)
        serve([named("t")], lambda *_: text("ok"))
        """
    )
    (found,) = await results_of(server, "t")
    assert found.result == "ok"


async def test_a_line_that_is_no_message_is_passed_over(made):
    server = made.raw("print('Welcome!', flush=True)\nserve([named('t')], lambda *_: text('ok'))")
    (found,) = await results_of(server, "t")
    assert found.result == "ok"


# -- which tools it has --------------------------------------------------------------------------------------

THREE = "serve([named('a'), named('b'), named('c.d')], lambda name, _: text(name))"


async def test_only_the_tools_that_were_named_are_taken_and_a_mapping_renames(made):
    server = made.raw(THREE, tools={"a": "first", "c.d": "c_d"})
    model = Scripted([calls("first", "c_d"), "done"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        result = await agent.run("hi")
    assert [each.name for each in model.requests[0].tools] == ["first", "c_d"]
    assert [each.result for each in result.tool_results] == ["a", "c.d"]


@pytest.mark.parametrize(
    ("code", "tools", "said"),
    [
        (THREE, None, "a tool called 'c.d', a name that not every model takes"),
        (THREE, ["a", "c.dd"], "has no tool 'c.dd'; did you mean c.d?"),
        (THREE, ["zzz"], "has no tool 'zzz'; known: a, b, c.d"),
        ("serve([named('a'), named('a')])", None, "lists the tool 'a' twice"),
        (
            "serve([], listed=lambda _: {'tools': [], 'nextCursor': 'on'})",
            None,
            "repeats the page 'on'",
        ),
        ("serve([], listed=lambda _: {'tools': [{'name': 7}]})", None, "answered what does not fit"),
        ("serve([], listed=lambda _: {'nothing': 1})", None, "answered what does not fit"),
    ],
)
async def test_a_list_that_cannot_be_used_fails_the_run_before_the_model_is_asked(made, code, tools, said):
    told = await failure_of(made.raw(code, tools=tools))
    assert told.startswith("MCP server 'raw'")
    assert said in told


async def test_a_tool_listed_twice_does_no_harm_where_it_is_not_taken(made):
    server = made.raw("serve([named('a'), named('a'), named('b')], lambda *_: text('ok'))", tools=["b"])
    (found,) = await results_of(server, "b")
    assert found.result == "ok"


async def test_a_list_in_pages_is_read_to_its_end(made):
    server = made.raw(
        """
        def listed(params):
            page = int(params.get("cursor") or 0)
            more = {"nextCursor": str(page + 1)} if page < 4 else {}
            return {"tools": [named(f"t{page}")], **more}

        serve([], lambda name, _: text(name), listed)
        """
    )
    found = await results_of(server, "t0", "t4")
    assert [each.result for each in found] == ["t0", "t4"]


async def test_a_name_that_two_have_is_an_error_that_names_both(made):
    @tool
    def a() -> str:
        return "mine"

    one, two = made.raw("serve([named('a')])", name="one"), made.raw("serve([named('a')])", name="two")
    model = Scripted(["never"])
    async with Agent(id="x", model=model, tools=[a, one]) as agent:
        with pytest.raises(
            AgentFailed, match=r"called 'a': one of MCP server 'one', and a tool of the agent itself"
        ):
            await agent.run("hi")
    async with Agent(id="x", model=model, tools=[one, two]) as agent:
        with pytest.raises(AgentFailed, match=r"one of MCP server 'two', and one of MCP server 'one'"):
            await agent.run("hi")
    assert model.requests == []


async def test_a_list_that_changed_is_known_to_the_next_run(made):
    server = made.raw(
        """
        tools = [named("grow")]

        def call(name, given):
            tools.append(named("grown"))
            say(method="notifications/tools/list_changed")
            return text(name)

        serve(tools, call)
        """
    )
    model = Scripted([calls("grow"), "x", calls("grown"), "y"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        await agent.run("hi")
        result = await agent.run("again")
    assert [len(request.tools) for request in model.requests] == [1, 1, 2, 2]
    assert result.tool_results[0].result == "grown"


# -- a server that does not work -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"command": "no-such-program"}, "could not start: 'no-such-program' was not found; is it installed"),
        (
            {"command": sys.executable, "args": ["missing.py"]},
            "would run 'missing.py', and there is no such file",
        ),
        ({"command": sys.executable, "cwd": "/no/such"}, "its working folder '/no/such' does not exist"),
    ],
)
async def test_a_command_that_cannot_start_is_told(given, said):
    told = await failure_of(McpServer(name="files", **given))
    assert told.startswith("MCP server 'files' could not start: ")
    assert said in told


async def test_a_command_that_exits_at_once_is_told_with_its_last_words(made):
    told = await failure_of(made.raw("sys.exit('there is no licence')"))
    assert told == "MCP server 'raw' exited with 1; it said: there is no licence"


async def test_what_a_server_says_does_not_give_away_what_it_was_given(made):
    server = made.raw("sys.exit('no luck with ' + os.environ['TOKEN'])", env={"TOKEN": "hunter2hunter2"})
    assert (await failure_of(server)).endswith("it said: no luck with ***")


async def test_a_command_that_prints_something_else_and_ends_is_told_with_it(made):
    told = await failure_of(made.raw("print('usage: server [--stdio]')"))
    assert (
        told
        == "MCP server 'raw' exited with 0; it printed what is not an MCP message: 'usage: server [--stdio]'"
    )


@pytest.mark.parametrize(
    "code",
    [
        "print('starting', flush=True); sys.stderr.write('loading\\n'); time.sleep(600)",
        "while True: sys.stdin.readline(); print('starting', flush=True); sys.stderr.write('loading\\n')",
    ],
    ids=["hangs", "rubbish"],
)
async def test_a_command_that_never_answers_is_told_with_what_it_printed_and_ended(made, code):
    for seconds in (1, 5, 25):
        told = await failure_of(made.raw(code, start_timeout=seconds))
        assert told.startswith(f"MCP server 'raw' did not answer within {seconds} s")
        assert left_behind(made.folder) == []
        if "loading" in told:  # else it had not come that far
            break
    assert "it printed what is not an MCP message: 'starting'; it said: loading" in told


async def test_a_server_that_hangs_when_asked_for_its_tools_is_told_and_started_anew_for_the_next_run(made):
    mark = made.folder / "hung"
    server = made.raw(
        f"""
        def listed(params):
            if not os.path.exists({str(mark)!r}):
                open({str(mark)!r}, "w").close()
                time.sleep(600)
            return {{"tools": [named("t")]}}

        serve([], lambda *_: text("ok"), listed)
        """,
        start_timeout=3,
    )
    model = Scripted([calls("t"), "done"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        while not mark.exists():
            with pytest.raises(AgentFailed, match=r"MCP server 'raw' did not answer within 3 s"):
                await agent.run("hi")
        assert model.requests == []
        for _ in range(10):  # a machine that is busy may need more than one start
            try:
                result = await agent.run("hi")
                break
            except AgentFailed:
                continue
        assert len(left_behind(made.folder)) == 1
    assert result.tool_results[0].result == "ok"
    assert left_behind(made.folder) == []


async def test_a_program_that_prints_without_end_is_ended(made):
    told = await failure_of(made.raw("while True: sys.stdout.write('x' * 1_000_000)"))
    assert told.startswith(
        "MCP server 'raw' failed: Connection closed; it printed what is not an MCP message: 'xxx"
    )
    assert len(told) < 400
    assert left_behind(made.folder) == []


async def test_a_server_that_refuses_to_begin_is_told_in_its_own_words(made):
    server = made.raw(
        """
        for line in sys.stdin:
            say(id=json.loads(line)["id"], error={"code": -32000 - 99, "message": "not for you"})
        """
    )
    assert await failure_of(server) == "MCP server 'raw' failed: not for you"


async def test_a_server_that_dies_in_a_call_fails_that_call_and_is_there_for_the_next(made):
    server = made.raw(
        """
        def call(name, given):
            if name == "dies":
                sys.stderr.write("out of memory\\n")
                sys.stderr.flush()
                os._exit(3)
            return text("ok")

        serve([named("dies"), named("works")], call)
        """
    )
    model = Scripted([calls("dies"), calls("works"), "done"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        result = await agent.run("hi")
    assert [each.status for each in result.tool_results] == ["failed", "ok"]
    assert result.tool_results[0].error == "MCP server 'raw' exited with 3; it said: out of memory"
    assert "out of memory" in texts(model.requests[1])[-1]
    assert result.result == "done"


async def test_a_server_that_died_between_two_runs_is_started_anew(made):
    server = made.raw("serve([named('pid')], lambda *_: text(str(os.getpid())))")
    model = Scripted([calls("pid"), "x", calls("pid"), "y"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        first = int((await agent.run("hi")).tool_results[0].result)
        os.kill(first, signal.SIGKILL)
        second = int((await agent.run("hi")).tool_results[0].result)
    assert first != second


async def test_a_call_past_its_limit_is_given_up_and_the_server_is_told(made):
    mark = made.folder / "told"
    server = made.raw(
        f"""
        def other(method, params):
            if method == "notifications/cancelled":
                open({str(mark)!r}, "w").close()

        serve([named("slow")], lambda *_: None, other=other)
        """,
        timeout=0.5,
    )
    model = Scripted([calls("slow"), "done"])
    async with Agent(id="a", model=model, tools=[server]) as agent:
        result = await agent.run("hi")
        await until(mark.exists)
    assert [each.status for each in result.tool_results] == ["timed_out"]
    assert result.result == "done"
    assert result.tool_results[0].error == "slow ran past its limit of 0.5 s"


async def test_a_call_that_the_server_refuses_or_answers_wrongly_is_told_to_the_model(made):
    server = made.raw(
        """
        def call(name, given):
            return {"error": {"code": -32602, "message": "no such path"}} if name == "refused" else text("no x")

        serve([named("refused"), named("wrong", outputSchema={"type": "object", "required": ["x"]})], call)
        """
    )
    refused, wrong = await results_of(server, "refused", "wrong")
    assert (refused.status, refused.error) == ("failed", "MCP server 'raw' failed: no such path")
    assert wrong.status == "failed"
    assert "MCP server 'raw' answered what does not fit" in wrong.error


# -- what a call gives ---------------------------------------------------------------------------------------

TEXT = {"type": "text", "text": "hi"}
GIVEN: dict[str, tuple[dict[str, Any], Any]] = {
    "text": ({"content": [TEXT]}, "hi"),
    "texts": ({"content": [TEXT, TEXT]}, "hi\nhi"),
    "nothing": ({"content": []}, ""),
    "structured alone": ({"content": [], "structuredContent": {"x": 1}}, {"x": 1}),
    "structured, said again": (
        {"content": [{"type": "text", "text": '{"x": 1}'}], "structuredContent": {"x": 1}},
        {"x": 1},
    ),
    "structured, and something else": (
        {"content": [TEXT], "structuredContent": {"x": 1}},
        {"structured": {"x": 1}, "content": ["hi"]},
    ),
    "wrapped": ({"content": [{"type": "text", "text": "7"}], "structuredContent": {"result": 7}}, 7),
    "sound": (
        {"content": [TEXT, {"type": "audio", "data": "QUJD", "mimeType": "audio/wav"}]},
        ["hi", {"type": "audio", "mimeType": "audio/wav", "data": "left out: 4 characters of base64"}],
    ),
    "a file's text": (
        {"content": [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}]},
        [{"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}}],
    ),
    "a file's bytes": (
        {"content": [{"type": "resource", "resource": {"uri": "file:///a", "blob": "QUJD"}}]},
        [{"type": "resource", "resource": {"uri": "file:///a", "blob": "left out: 4 characters of base64"}}],
    ),
    "a link": (
        {"content": [{"type": "resource_link", "uri": "file:///a", "name": "a"}]},
        [{"type": "resource_link", "uri": "file:///a", "name": "a"}],
    ),
}


@pytest.mark.parametrize(("given", "value"), GIVEN.values(), ids=GIVEN.keys())
def test_nothing_of_a_result_is_lost_in_silence(given, value):
    from mcp_types import CallToolResult

    assert value_of(CallToolResult.model_validate(given)) == value


# -- nothing is left behind ----------------------------------------------------------------------------------


async def test_what_a_server_started_is_ended_with_it_wherever_it_has_gone(made):
    server = made.raw(
        f"""
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {str(made.folder)!r}],
                                 start_new_session=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        serve([named("child")], lambda *_: text(str(child.pid)))
        time.sleep(600)
        """
    )
    (found,) = await results_of(server, "child")
    assert not alive(int(found.result))
    assert left_behind(made.folder) == []


async def test_a_run_cancelled_in_a_call_tells_the_server_and_the_agent_can_go_on(made):
    begun, told = made.folder / "begun", made.folder / "told"
    server = made.raw(
        f"""
        def call(name, given):
            open({str(begun)!r}, "w").close()
            return None if name == "hangs" else text("ok")

        def other(method, params):
            if method == "notifications/cancelled":
                open({str(told)!r}, "w").close()

        serve([named("hangs"), named("works")], call, other=other)
        """
    )
    seen = Seen()
    model = Scripted([calls("hangs"), calls("works"), "done"])
    async with Agent(id="a", model=model, tools=[server], on_tool_end=[seen.noting()]) as agent:
        run = asyncio.ensure_future(agent.run("hi"))
        await until(begun.exists)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await until(told.exists)
        assert seen.only("tool.end").status == "cancelled"
        assert (await agent.run("hi")).tool_results[0].result == "ok"
    assert left_behind(made.folder) == []


async def test_a_run_cancelled_while_a_server_starts_leaves_nothing_once_the_agent_is_closed(made):
    agent = Agent(id="a", model=Scripted([]), tools=[made.raw("time.sleep(600)")])
    run = asyncio.ensure_future(agent.run("hi"))
    await until(lambda: left_behind(made.folder))
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    await agent.close()
    assert left_behind(made.folder) == []


async def test_two_agents_use_the_same_server_at_once_each_its_own_process(made):
    server = made.raw("serve([named('pid')], lambda *_: text(str(os.getpid())))")
    agents = [Agent(id=f"a{n}", model=Scripted([calls("pid"), "done"]), tools=[server]) for n in range(2)]
    results = await asyncio.gather(*(agent.run("hi") for agent in agents))
    pids = [int(result.tool_results[0].result) for result in results]
    assert pids[0] != pids[1]
    await agents[0].close()
    assert [alive(pid) for pid in pids] == [False, True]
    await agents[1].close()
    assert left_behind(made.folder) == []


async def test_an_agent_is_closed_by_another_task_than_the_one_that_ran_it(made):
    agent = Agent(id="a", model=Scripted([calls("echo"), "done"]), tools=[made.raw(ECHO)])
    await asyncio.create_task(agent.run("hi"))
    assert left_behind(made.folder) != []
    await asyncio.create_task(agent.close())
    assert left_behind(made.folder) == []


async def test_closing_the_agent_ends_a_call_that_is_being_made(made):
    begun = made.folder / "begun"
    server = made.raw(f"serve([named('hangs')], lambda *_: open({str(begun)!r}, 'w').close())")
    agent = Agent(id="a", model=Scripted([calls("hangs"), "done"]), tools=[server])
    run = asyncio.ensure_future(agent.run("hi"))
    await until(begun.exists)
    await agent.close()
    result = await run
    assert result.tool_results[0].error == "MCP server 'raw' was closed"


def test_a_loop_that_ends_takes_its_servers_with_it_and_the_next_has_new_ones(made):
    agent = Agent(id="a", model=Scripted([calls("echo"), "x", calls("echo"), "y"]), tools=[made.raw(ECHO)])
    for answer in "xy":
        assert asyncio.run(agent.run("hi")).result == answer
        assert left_behind(made.folder) == []


async def test_a_hookline_that_is_killed_leaves_no_server(made):
    server = made.raw(
        f"""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", {str(made.folder)!r}],
                                 start_new_session=True, stdin=subprocess.DEVNULL)
        serve([named("t")], lambda *_: text("ok"))
        time.sleep(600)
        """
    )
    main = made.script(
        f"""
        import asyncio
        from hookline import Agent, McpServer, Scripted

        async def main():
            server = McpServer(name="raw", command={server.command!r}, args={list(server.args)!r})
            await Agent(id="a", model=Scripted([{{"text": "ok"}}]), tools=[server]).run("hi")
            print("ready", flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
        """,
        "main",
    )
    process = await asyncio.create_subprocess_exec(sys.executable, str(main), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    assert len(left_behind(made.folder)) == 3
    process.kill()
    await process.communicate()
    await until(lambda: not left_behind(made.folder))


# -- servers at a URL ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def served(app: Any, path: str = "/mcp") -> Iterator[str]:
    """The app on a port of its own, until the block is left."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}{path}"
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def adding():
    # Not at import: every worker would load the library to collect these tests.
    from mcp.server.mcpserver import MCPServer

    server = MCPServer("adding")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    return server


class Sessions:
    """A server of the older protocol, that keeps sessions and may forget them; `call` answers calls."""

    def __init__(self, call: Callable[[], Response | Awaitable[Response]] | None = None) -> None:
        self.opened: list[str] = []
        self.known: set[str] = set()
        self.headers: list[Any] = []
        self.methods: list[str] = []
        self.call = call
        routes = [Route("/mcp", self.post, methods=["POST"]), Route("/mcp", self.delete, methods=["DELETE"])]
        self.app = Starlette(routes=routes)

    async def delete(self, request: Request) -> Response:
        self.known.discard(request.headers["mcp-session-id"])
        return Response(status_code=200)

    async def post(self, request: Request) -> Response:
        asked = await request.json()
        method, session = asked["method"], request.headers.get("mcp-session-id")
        self.headers.append(request.headers)
        self.methods.append(method)
        if method == "initialize":
            name = f"session-{len(self.opened)}"
            self.opened.append(name)
            self.known.add(name)
            info = {"name": "sessions", "version": "1"}
            version = asked["params"]["protocolVersion"]
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
            return self.answer(asked, result, {"mcp-session-id": name})
        if session is None:
            return Response(status_code=400)
        if session not in self.known:
            return Response(status_code=404)
        if "id" not in asked:
            return Response(status_code=202)
        if method == "tools/list":
            return self.answer(asked, {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]})
        if self.call is not None:
            answer = self.call()
            return await answer if isinstance(answer, Awaitable) else answer
        return self.answer(asked, {"content": [{"type": "text", "text": session}]})

    def answer(self, asked: Any, result: Any, headers: Any = None) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "result": result}, headers=headers)


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_server_at_a_url_is_used_as_one_that_is_started(transport):
    server = adding()
    app, path = (server.sse_app(), "/sse") if transport == "sse" else (server.streamable_http_app(), "/mcp")
    with served(app, path) as url:
        given = McpServer(name="adding", url=url, transport=transport)
        (found,) = await results_of(given, ("add", {"a": 1, "b": 2}))
    assert (found.status, found.result) == ("ok", 3)


async def test_a_server_of_the_older_protocol_gets_the_headers_and_its_session_is_ended():
    sessions = Sessions()
    with served(sessions.app) as url:
        given = McpServer(name="old", url=url, headers={"Authorization": "Bearer abc"})
        (found,) = await results_of(given, "t")
    assert found.result == "session-0"
    assert {headers.get("authorization") for headers in sessions.headers} == {"Bearer abc"}
    assert sessions.known == set()


async def test_a_lost_session_is_opened_again_once_and_the_call_is_made():
    sessions = Sessions()

    @hook(match="t")
    def forget(ctx: Any, hook_context: Any) -> HookResult:
        sessions.known.clear()
        return HookResult.continue_with()

    with served(sessions.app) as url:
        (found,) = await results_of(McpServer(name="old", url=url), "t", on_tool_start=[forget])
    assert (found.status, found.result) == ("ok", "session-1")
    assert sessions.methods.count("tools/call") == 2


async def test_a_session_that_is_lost_again_and_again_fails_the_call():
    sessions = Sessions(call=lambda: Response(status_code=404))
    with served(sessions.app) as url:
        (found,) = await results_of(McpServer(name="old", url=url), "t")
    assert found.status == "failed"
    assert found.error.startswith("MCP server 'old': the session is lost (404 Not Found")
    assert sessions.methods.count("tools/call") == 2


async def test_a_session_lost_between_two_runs_is_not_noticed_by_the_next():
    sessions = Sessions()
    model = Scripted([calls("t"), "x", calls("t"), "y"])
    with served(sessions.app) as url:
        async with Agent(id="a", model=model, tools=[McpServer(name="old", url=url)]) as agent:
            await agent.run("hi")
            sessions.known.clear()
            result = await agent.run("hi")
    assert result.tool_results[0].result == "session-1"


def answering_with(response: Callable[[], Response]) -> Starlette:
    async def answer(request: Request) -> Response:
        return response()

    return Starlette(routes=[Route("/mcp", answer, methods=["GET", "POST", "DELETE"])])


REFUSALS = {
    "401": (lambda: PlainTextResponse("who are you?", 401), "answered 401 Unauthorized"),
    "403": (lambda: JSONResponse({"error": "no"}, 403), "answered 403 Forbidden"),
    "404": (lambda: PlainTextResponse("nothing here", 404), "answered 404 Not Found"),
    "500": (lambda: PlainTextResponse("oops", 500), "answered 500 Internal Server Error"),
    "html": (lambda: HTMLResponse("<h1>Log in</h1>"), "failed: Unexpected content type: text/html"),
    "no json": (
        lambda: Response("{", media_type="application/json"),
        "failed: Failed to parse JSON response",
    ),
    "elsewhere": (
        lambda: Response(status_code=302, headers={"location": "https://a.example/x"}),
        "not followed",
    ),
}


@pytest.mark.parametrize(("response", "said"), REFUSALS.values(), ids=REFUSALS.keys())
async def test_a_url_that_refuses_or_is_no_mcp_server_is_told_with_its_answer(response, said):
    with served(answering_with(response)) as url:
        told = await failure_of(McpServer(name="web", url=f"{url}?key=secret"))
    assert told.startswith(f"MCP server 'web' ({url}) ")
    assert said in told
    assert "secret" not in told


async def test_a_url_where_nobody_listens_is_told():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    told = await failure_of(McpServer(name="web", url=f"http://127.0.0.1:{port}/mcp"))
    assert told.startswith(f"MCP server 'web' (http://127.0.0.1:{port}/mcp) cannot be reached: ")


@pytest.mark.parametrize("transport", ["http", "sse"])
async def test_a_url_that_does_not_answer_is_given_up(transport):
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server = McpServer(name="web", url=url, transport=transport, start_timeout=1)
        assert await failure_of(server) == "MCP server 'web' did not answer within 1 s"


async def test_a_server_that_went_away_fails_the_next_run_before_the_model_is_asked():
    model = Scripted([calls("t"), "done", "never"])
    with served(Sessions().app) as url:
        agent = Agent(id="a", model=model, tools=[McpServer(name="old", url=url)])
        await agent.run("hi")
    async with agent:
        with pytest.raises(AgentFailed, match=r"MCP server 'old' .* cannot be reached"):
            await agent.run("hi")
    assert len(model.requests) == 2


async def test_a_server_that_goes_away_in_a_call_fails_it_and_the_run_goes_on():
    async def hang() -> Response:
        await asyncio.Event().wait()
        return Response()

    sessions = Sessions(call=hang)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(served(sessions.app))
        agent = Agent(id="a", model=Scripted([calls("t"), "done"]), tools=[McpServer(name="old", url=url)])
        run = asyncio.ensure_future(agent.run("hi"))
        await until(lambda: "tools/call" in sessions.methods)
    result = await run
    await agent.close()
    assert (result.result, result.tool_results[0].status) == ("done", "failed")
    assert result.tool_results[0].error.startswith(f"MCP server 'old' ({url}) ")


async def test_the_status_of_one_call_is_not_told_of_another_at_the_same_time():
    answers = [PlainTextResponse("oops", status) for status in (500, 501, 502, 503)]
    sessions = Sessions(call=lambda: answers.pop())
    with served(sessions.app) as url:
        found = await results_of(McpServer(name="old", url=url), "t", "t", "t", "t")
    told = sorted(each.error.partition(" answered ")[2][:3] for each in found)
    assert told == ["500", "501", "502", "503"]


async def test_a_call_that_is_refused_by_http_fails_with_the_status_and_the_run_goes_on():
    sessions = Sessions(call=lambda: PlainTextResponse("oops", 503))
    with served(sessions.app) as url:
        (found,) = await results_of(McpServer(name="old", url=url), "t")
    assert found.status == "failed"
    assert f"MCP server 'old' ({url}) answered 503 Service Unavailable" in found.error


# -- declaring it --------------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "neither": ({}, "either a command to start or the url"),
    "both": ({"command": "x", "url": "http://x"}, "either a command to start or the url"),
    "empty command": ({"command": ""}, "command is ''; give the program alone"),
    "no address": ({"url": "localhost:80"}, "url is 'localhost:80'; it begins with http://"),
    "transport": ({"url": "http://x", "transport": "ssh"}, "transport is 'ssh'; known: stdio, http, sse"),
    "stdio at a url": ({"url": "http://x", "transport": "stdio"}, "transport 'stdio' needs a command"),
    "sse of a command": ({"command": "x", "transport": "sse"}, "transport 'sse' needs a url"),
    "headers": ({"command": "x", "headers": {"a": "b"}}, "headers are for a url"),
    "env": ({"url": "http://x", "env": {"a": "b"}}, "args, env and cwd are for a command"),
    "args": ({"command": "x", "args": "-v"}, "args is '-v'; give a list"),
    "tools": ({"command": "x", "tools": "read"}, "tools is 'read'; give a list"),
    "timeout": ({"command": "x", "timeout": 0}, "timeout is 0; give seconds"),
    "start_timeout": ({"command": "x", "start_timeout": None}, "start_timeout is None; give seconds"),
    "same name": ({"command": "x", "tools": {"a": "c", "b": "c"}}, "two of its tools would be called 'c'"),
    "kind": ({"command": "x", "kind": "mpc"}, "kind is 'mpc'; known: shell"),
}


@pytest.mark.parametrize(("given", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_server_that_cannot_be_meant_is_refused(given, said):
    with pytest.raises(UsageError) as caught:
        McpServer(name="files", **given)
    assert str(caught.value).startswith("MCP server 'files': ")
    assert said in str(caught.value)


def test_a_server_needs_a_name_and_its_own():
    with pytest.raises(UsageError, match="name"):
        McpServer(name="", command="x")
    with pytest.raises(UsageError, match="two MCP servers are called 'x'"):
        Agent(id="a", tools=[McpServer(name="x", command="x"), McpServer(name="x", command="y")])


def test_secrets_of_a_server_are_not_shown():
    server = McpServer(name="x", command="x", env={"A": "hunter2"})
    web = McpServer(name="x", url="https://me:hunter2@x.example/mcp?key=hunter2", headers={"A": "hunter2"})
    assert "hunter2" not in f"{server!r} {web!r} {web.place}"
    assert web.place == "https://x.example/mcp"


def test_where_the_library_is_not_installed_a_run_says_what_to_install(made):
    main = made.script(
        """
        import asyncio, sys
        sys.modules["mcp"] = None
        from hookline import Agent, McpServer, Scripted, UsageError

        agent = Agent(id="a", model=Scripted(["never"]), tools=[McpServer(name="files", command="x")])
        try:
            asyncio.run(agent.run("hi"))
        except UsageError as exc:
            print(exc)
        """
    )
    done = subprocess.run([sys.executable, str(main)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("MCP server 'files' needs more packages ("), done.stderr
    assert done.stdout.endswith("pip install 'hookline[mcp]'\n")


AGENT = """
from hookline import Agent, HookResult, McpServer, Scripted, hook

@hook(match="{match}")
def guard(ctx, hook_context):
    return HookResult.continue_with()

agent = Agent(
    id="a",
    model=Scripted(["x"]),
    tools=["bash", McpServer(name="files", command={command!r}, tools={tools})],
    on_tool_start=[guard],
)
"""


def looked(
    made: Made, *before: str, words: Sequence[str] = (), **given: Any
) -> subprocess.CompletedProcess[str]:
    filled = {"match": "read", "command": sys.executable, "tools": None, **given}
    file = made.script(AGENT.format(**filled), "agent")
    env = {**os.environ, "HOOKLINE_HOME": str(made.folder / "home"), "COLUMNS": "200"}
    return forks.run([*before, file, *words], env=env)


def test_explain_names_the_servers_and_starts_none(made):
    mark = made.folder / "started"
    program = made.folder / "program"
    program.write_text(f"#!/bin/sh\ntouch {mark}\n")
    program.chmod(0o755)
    done = looked(made, "explain", command=str(program))
    assert done.returncode == 0, done.stderr
    assert "bash, mcp:files" in done.stdout
    assert "MCP server 'files': its tools are listed when a run begins" in done.stdout
    assert not mark.exists()


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        ({}, 0, "no problems"),
        (
            {"command": "no-such-program"},
            2,
            "MCP server 'files': it could not start: there is no program 'no-such-program'",
        ),
        ({"tools": ["read"]}, 0, "no problems"),
        ({"tools": ["write"]}, 2, "match 'read' fits no tool of a; its tools: bash, write"),
    ],
)
def test_check_says_what_can_be_known_without_starting_a_server(made, given, code, said):
    done = looked(made, "check", **given)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr


def test_try_takes_a_tool_that_is_not_the_agents_own_for_one_of_a_server(made):
    done = looked(made, "try", "tool.start", match="kind:mcp", words=["--tool", "read"])
    assert "guard" in done.stdout, done.stderr
    done = looked(made, "try", "tool.start", match="kind:mcp", words=["--tool", "bash"])
    assert "guard" not in done.stdout
