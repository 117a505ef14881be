"""An agent behind A2A: the real client of the public SDK, against a server on loopback."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
from a2a.client import ClientConfig, ClientFactory
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import CancelTaskRequest, GetTaskRequest, Role, SendMessageRequest, TaskState

from hookline import Agent, HookContext, HookResult, Scripted, WorkflowContext, executed_tool, hook, tool
from hookline.agent.a2a import serving
from hookline.errors import UsageError
from hookline.journal.sqlite import MemoryJournal
from tests.fakes.images import MadeImage
from tests.fakes.registry import FakeRegistry

LIMIT = 60.0


class Seen:
    """What hooks of a session and of tools saw, in order."""

    def __init__(self) -> None:
        self.points: list[str] = []

    def __call__(self, _ctx: WorkflowContext, context: HookContext) -> HookResult:
        self.points.append(f"{context.point} {context.session_id}")
        return HookResult.continue_with()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT):
            while len(self.points) < count:
                await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def client_of(agent: Agent, *, streaming: bool = True, **more: Any):
    async with serving(agent, **more) as (address, _), httpx.AsyncClient(timeout=LIMIT) as http:
        factory = ClientFactory(ClientConfig(streaming=streaming, httpx_client=http))
        yield await factory.create_from_url(address)


def message(text: str, context_id: str | None = None, task_id: str | None = None) -> SendMessageRequest:
    return SendMessageRequest(
        message=new_text_message(text, context_id=context_id, task_id=task_id, role=Role.ROLE_USER)
    )


async def asked(client: Any, text: str, context_id: str | None = None) -> Any:
    """The task in the end, as a client that does not stream sees it."""
    task = None
    async for event in client.send_message(message(text, context_id)):
        if event.HasField("task"):
            task = event.task
    assert task is not None
    return task


def answer_of(task: Any) -> str:
    (artifact,) = task.artifacts
    return get_artifact_text(artifact)


@pytest.mark.parametrize("streaming", [True, False])
async def test_a_message_is_answered(streaming):
    agent = Agent(id="helper", model=Scripted(["Hello from here."]), description="Helps.")
    async with client_of(agent, streaming=streaming) as client:
        texts, states = [], []
        async for event in client.send_message(message("hi")):
            if event.HasField("task"):
                texts = [get_artifact_text(each) for each in event.task.artifacts] or texts
                states.append(event.task.status.state)
            if event.HasField("artifact_update"):
                texts.append(get_artifact_text(event.artifact_update.artifact))
            if event.HasField("status_update"):
                states.append(event.status_update.status.state)
    assert texts[-1] == "Hello from here."
    assert states[-1] == TaskState.TASK_STATE_COMPLETED


async def test_the_card_says_who_answers_and_where():
    agent = Agent(id="helper", model=Scripted(["x"]), description="Helps.")
    async with serving(agent, url="http://helper.team:8080") as (_, port), httpx.AsyncClient() as http:
        said = (await http.get(f"http://127.0.0.1:{port}/.well-known/agent-card.json")).json()
    assert (said["name"], said["description"]) == ("helper", "Helps.")
    assert {each["url"] for each in said["supportedInterfaces"]} == {"http://helper.team:8080"}
    assert said["capabilities"]["streaming"] is True


async def rpc(http: httpx.AsyncClient, address: str, method: str, text: str) -> httpx.Response:
    params = {"message": {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}]}}
    return await http.post(
        address, json={"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, timeout=LIMIT
    )


async def test_the_words_of_the_protocol_before_are_understood_too():
    agent = Agent(id="helper", model=Scripted(["one", "two"]))
    async with serving(agent) as (address, _), httpx.AsyncClient() as http:
        sent = (await rpc(http, address, "message/send", "hi")).json()
        streamed = (await rpc(http, address, "message/stream", "hi")).text
    assert sent["result"]["status"]["state"] == "completed"
    assert sent["result"]["artifacts"][0]["parts"][0]["text"] == "one"
    events = [json.loads(line[5:]) for line in streamed.splitlines() if line.startswith("data:")]
    assert events[-1]["result"]["status"]["state"] == "completed"
    assert any("two" in json.dumps(each) for each in events)


async def test_a_page_in_a_browser_cannot_send_messages():
    model = Scripted(["one"])
    body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {}}
    async with serving(Agent(id="helper", model=model)) as (address, _), httpx.AsyncClient() as http:
        headers = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
        answer = await http.post(address, content=json.dumps(body), headers=headers)
    assert answer.status_code == 403
    assert "web pages" in answer.text
    assert model.requests == []


async def test_a_session_is_a_context_which_begins_once_and_ends_with_the_server():
    seen = Seen()
    model = Scripted(["one", "two", "three"])
    agent = Agent(id="helper", model=model, on_session_start=[seen], on_session_end=[seen])
    async with client_of(agent, streaming=False) as client:
        await asked(client, "first", "c1")
        await asked(client, "second", "c1")
        await asked(client, "other", "c2")
        assert seen.points == ["session.start c1", "session.start c2"]
        history = [each.get("content") for each in model.requests[1].messages]
        assert "first" in history, "a conversation knows what was said before"
        assert "first" not in [each.get("content") for each in model.requests[2].messages]
    assert sorted(seen.points[2:]) == ["session.end c1", "session.end c2"]


async def test_a_session_that_nobody_uses_ends_and_begins_anew():
    seen = Seen()
    agent = Agent(id="helper", model=Scripted(["one", "two"]), on_session_start=[seen], on_session_end=[seen])
    async with client_of(agent, streaming=False, idle=0.2) as client:
        first = await asked(client, "hi", "c1")
        await seen.until(2)
        with pytest.raises(Exception, match=r"(?i)not found"):
            await client.get_task(GetTaskRequest(id=first.id))
        await asked(client, "hi again", "c1")
        assert seen.points[:3] == ["session.start c1", "session.end c1", "session.start c1"]


@tool
async def delete(path: str) -> str:
    """Deletes a file."""
    raise AssertionError("it must never run")


@hook
def refuses(_ctx: WorkflowContext, context: HookContext) -> HookResult:
    return HookResult.block(f"{context.current_tool} is not allowed here")


async def test_a_refused_tool_call_is_told_to_the_model_and_in_the_answer():
    model = Scripted([{"tools": [{"name": "delete", "arguments": {"path": "/"}}]}, "I may not delete."])
    agent = Agent(id="helper", model=model, tools=[delete], on_tool_start=[refuses])
    journal = MemoryJournal()
    async with client_of(agent, streaming=False, run={"journal": journal}) as client:
        task = await asked(client, "delete it")
    assert task.status.state == TaskState.TASK_STATE_COMPLETED
    assert answer_of(task) == "I may not delete."
    assert "delete is not allowed here" in json.dumps(model.requests[1].messages, default=str)
    told = task.artifacts[0].metadata["hookline"]
    assert told["tools"][0]["tool"] == "delete"
    assert "delete is not allowed here" in str(told["tools"][0]["error"])
    assert told["run_id"]


@hook
def fails(_ctx: WorkflowContext, _context: HookContext) -> HookResult:
    return HookResult.fail("the vault is closed, key sk-12345")


ENDINGS = {
    "a hook that fails": ({"on_start": [fails]}, TaskState.TASK_STATE_FAILED, "the vault is closed, key ***"),
    "a hook that refuses the input": (
        {"on_start": [hook(lambda _c, _h: HookResult.block("not today"))]},
        TaskState.TASK_STATE_REJECTED,
        "not today",
    ),
    "a hook that skips": (
        {"on_start": [hook(lambda _c, _h: HookResult.skip("nothing to do"))]},
        TaskState.TASK_STATE_COMPLETED,
        "skipped: nothing to do",
    ),
    "a model that fails": ({"model": Scripted([{"error": "gone"}])}, TaskState.TASK_STATE_FAILED, "gone"),
}


@pytest.mark.parametrize(("given", "state", "said"), ENDINGS.values(), ids=ENDINGS.keys())
async def test_a_run_that_does_not_come_to_its_answer_is_told_as_what_it_is(given, state, said):
    agent = Agent(**{"id": "helper", "model": Scripted(["x"]), **given})
    masked = client_of(agent, streaming=False, mask=lambda text: text.replace("sk-12345", "***"))
    async with masked as client:
        task = await asked(client, "go")
    assert task.status.state == state
    assert said in get_message_text(task.status.message)


async def test_a_client_is_told_that_the_agent_was_stopped_without_an_answer():
    call = {"tools": [{"name": "list_files", "arguments": {}}]}
    stop = executed_tool(tool_names=["list_files"])
    agent = Agent(id="helper", model=Scripted([call]), tools=["list_files"], stop_conditions=[stop])
    async with client_of(agent, streaming=False) as client:
        assert "the agent was stopped by executed_tool" in answer_of(await asked(client, "go"))


async def test_a_message_without_text_is_refused():
    agent = Agent(id="helper", model=Scripted(["x"]))
    async with client_of(agent, streaming=False) as client:
        task = await asked(client, "   ")
    assert task.status.state == TaskState.TASK_STATE_REJECTED


async def test_who_cancels_a_task_cancels_the_run_and_its_end_hooks_run_first():
    begun, ended = asyncio.Event(), []

    @tool
    async def wait() -> str:
        """Waits for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def says_how(_ctx: WorkflowContext, context: HookContext) -> HookResult:
        ended.append(f"{context.point} {context.status}")
        return HookResult.continue_with()

    agent = Agent(
        id="helper",
        model=Scripted([{"tools": [{"name": "wait", "arguments": {}}]}, "never", "again"]),
        tools=[wait],
        on_tool_end=[says_how],
        on_run_end=[says_how],
    )
    async with client_of(agent) as client:
        ids: asyncio.Queue[str] = asyncio.Queue()

        async def follow() -> list[Any]:
            events = []
            async for event in client.send_message(message("go", "c1")):
                events.append(event)
                if event.HasField("task"):
                    ids.put_nowait(event.task.id)
            return events

        following = asyncio.ensure_future(follow())
        async with asyncio.timeout(LIMIT):
            task_id = await ids.get()
            await begun.wait()
            task = await client.cancel_task(CancelTaskRequest(id=task_id))
            assert task.status.state == TaskState.TASK_STATE_CANCELED
            assert ended == ["tool.end cancelled", "run.end cancelled"]
            assert (await following)[-1].status_update.status.state == TaskState.TASK_STATE_CANCELED
        last = [event async for event in client.send_message(message("still there?", "c1"))][-1]
        assert last.status_update.status.state == TaskState.TASK_STATE_COMPLETED


async def test_a_server_that_ends_lets_the_end_hooks_of_what_runs_finish():
    begun, ended = asyncio.Event(), []

    @tool
    async def wait() -> str:
        """Waits for ever."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    async def says_how(_ctx: WorkflowContext, context: HookContext) -> HookResult:
        await asyncio.sleep(0.1)
        ended.append(str(context.point))
        return HookResult.continue_with()

    agent = Agent(
        id="helper",
        model=Scripted([{"tools": [{"name": "wait", "arguments": {}}]}]),
        tools=[wait],
        on_run_end=[says_how],
        on_session_end=[says_how],
    )
    async with httpx.AsyncClient() as http:
        async with serving(agent) as (address, _):
            sending = asyncio.ensure_future(rpc(http, address, "message/send", "go"))
            async with asyncio.timeout(LIMIT):
                await begun.wait()
        assert ended == ["run.end", "session.end"]
        with contextlib.suppress(httpx.HTTPError):
            await sending


async def test_what_a_step_says_comes_as_it_is_said():
    agent = Agent(id="helper", model=Scripted([{"stream": ["One ", "two ", "three."]}]))
    async with client_of(agent) as client:
        pieces = [
            (get_artifact_text(event.artifact_update.artifact), event.artifact_update.append)
            async for event in client.send_message(message("count"))
            if event.HasField("artifact_update")
        ]
    assert pieces == [("One ", False), ("two ", True), ("three.", True), ("One two three.", False)]


SCRIPT = [
    {"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]},
    "Refused, so nothing was made.",
]
MANIFEST = """\
apiVersion: kagent.dev/v1alpha2
kind: Agent
metadata: {name: guarded}
spec:
  declarative: {systemMessage: You help.}
  hooks:
    - {ref: REF, event: PreToolUse, matcher: bash, command: check.sh}
    - {ref: REF, event: SessionStart, command: say.sh start}
    - {ref: REF, event: SessionEnd, command: say.sh end}
"""
CHECK = '#!/bin/sh\necho \'{"decision": "block", "reason": "no shell here"}\'\n'
SAY = '#!/bin/sh\necho "$1" >> "$HOOKLINE_CWD/said"\n'


@contextlib.contextmanager
def served(folder: Path, *words: str):
    """`hookline serve` as a program of its own, ended as a cluster ends it."""
    with (folder / "errors").open("w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "hookline", "serve", *words, "--port=0", "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={
                **os.environ,
                "HOOKLINE_HOME": str(folder / "home"),
                "XDG_CACHE_HOME": str(folder / "cache"),
            },
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, (folder / "errors").read_text()
        yield json.loads(line)["url"]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(LIMIT) == 130
        process.stdout.close()


def sent(address: str, text: str) -> dict[str, Any]:
    with httpx.Client(timeout=LIMIT) as http:
        params = {"message": {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}]}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}
        return http.post(address, json=body).json()["result"]


def test_a_kagent_agent_is_served_with_its_hooks(tmp_path):
    with FakeRegistry() as registry:
        registry.put("org/hooks", "v1", MadeImage.of({"check.sh": CHECK, "say.sh": SAY}))
        (tmp_path / "agent.yaml").write_text(MANIFEST.replace("REF", f"{registry.host}/org/hooks:v1"))
        (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
        with served(tmp_path, "agent.yaml", "--model=scripted/script.json", "--tools=bash") as address:
            task = sent(address, "go")
            assert (tmp_path / "said").read_text() == "start\n"
    assert task["status"]["state"] == "completed"
    assert task["artifacts"][0]["parts"][0]["text"] == "Refused, so nothing was made."
    assert "no shell here" in json.dumps(task["artifacts"][0]["metadata"])
    assert not (tmp_path / "made").exists()
    assert (tmp_path / "said").read_text() == "start\nend\n"


def test_a_python_agent_is_served_by_the_same_command(tmp_path):
    (tmp_path / "agent.py").write_text(
        "from hookline import Agent, Scripted\nagent = Agent(id='py', model=Scripted(['Hello.']))\n"
    )
    with served(tmp_path, "agent.py:agent") as address:
        assert sent(address, "hi")["artifacts"][0]["parts"][0]["text"] == "Hello."


async def test_a_port_that_cannot_be_is_refused_and_leaves_no_socket_open():
    with warnings.catch_warnings(record=True) as left:
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:65536: .*port must be 0-65535"):
            async with serving(Agent(id="helper", model=Scripted([])), port=65536):
                pass
        gc.collect()
    assert [str(each.message) for each in left if issubclass(each.category, ResourceWarning)] == []


WRONG = {
    "a port that is taken": (["agent.py", "--port=1"], "cannot listen on"),
    "an option of the other": (["agent.py", "--strict"], "--strict: only for a WORKFLOW.md"),
    "an idle time that is none": (["agent.py", "--session-idle=0"], "--session-idle is 0"),
    "an option of an agent's": (["WORKFLOW.md", "--host=::1"], "--host: only for an agent"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_use_is_told(tmp_path, words, said):
    (tmp_path / "agent.py").write_text(
        "from hookline import Agent, Scripted\nagent = Agent(id='py', model=Scripted(['Hello.']))\n"
    )
    if os.geteuid() == 0 and "--port=1" in words:
        words = ["agent.py", "--host=203.0.113.7", "--no-token"]
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "serve", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
        env={**os.environ, "HOOKLINE_HOME": str(tmp_path / "home"), "COLUMNS": "200"},
    )
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
