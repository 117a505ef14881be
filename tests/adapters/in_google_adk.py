"""Tests around real ADK agents. They run inside an environment with google-adk; test_google_adk.py sees to that."""

import asyncio
import gc
import json
import logging
import re
import subprocess
import sys
import time
import warnings
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

warnings.filterwarnings("ignore", module="google|authlib|pydantic")

from fastapi.openapi.models import APIKey, APIKeyIn  # noqa: E402
from google.adk.agents import LlmAgent, LoopAgent, ParallelAgent, SequentialAgent  # noqa: E402
from google.adk.agents.live_request_queue import LiveRequestQueue  # noqa: E402
from google.adk.agents.run_config import RunConfig, StreamingMode  # noqa: E402
from google.adk.apps import App  # noqa: E402
from google.adk.auth.auth_tool import AuthConfig  # noqa: E402
from google.adk.models import BaseLlm, LlmResponse  # noqa: E402
from google.adk.models.base_llm_connection import BaseLlmConnection  # noqa: E402
from google.adk.plugins.base_plugin import BasePlugin  # noqa: E402
from google.adk.runners import InMemoryRunner  # noqa: E402
from google.adk.sessions import InMemorySessionService  # noqa: E402
from google.adk.tools import FunctionTool, LongRunningFunctionTool, ToolContext  # noqa: E402
from google.adk.tools.agent_tool import AgentTool  # noqa: E402
from google.adk.workflow import START, Workflow  # noqa: E402
from google.genai import types  # noqa: E402

from hookline import HookResult, hook  # noqa: E402
from hookline.adapters.google_adk import HooklinePlugin, callbacks, gaps  # noqa: E402
from hookline.adapters.google_adk.agents import AdkRun  # noqa: E402
from hookline.engine.record import (  # noqa: E402
    Begun,
    Called,
    Decided,
    Ended,
    Verdict,
    VerdictKind,
    owed,
)
from hookline.errors import HookFailed, Refused, Skipped, UsageError  # noqa: E402
from hookline.journal.sqlite import MemoryJournal  # noqa: E402

logging.getLogger("google_adk").setLevel(logging.CRITICAL)

GO = HookResult.continue_with()
POINTS = [
    f"{scope}.{side}"
    for scope in ("run", "session", "agent", "step", "model", "tool")
    for side in ("start", "end")
]
NAMES = {"app_name": "app", "user_id": "u"}
PAUSE = "adk_request_confirmation"


class Scripted(BaseLlm):
    """Says what its script says; keeps what it was sent."""

    model: str = "scripted"
    turns: list
    sent: list

    async def generate_content_async(self, llm_request, stream=False):
        self.sent.append([_shown(each) for each in llm_request.contents])
        turn = self.turns.pop(0)
        if callable(turn):
            turn = await turn()
        if stream and isinstance(turn, str):
            for word in turn.split(" "):
                yield LlmResponse(content=said(word), partial=True)
        yield LlmResponse(content=said(turn), turn_complete=True)


def _shown(content):
    shown = [part.text or part.function_response or part.function_call for part in content.parts]
    return content.role, [each if isinstance(each, str) else _plain(each) for each in shown if each]


def _plain(part):
    return {"call": part.name} if isinstance(part, types.FunctionCall) else {part.name: part.response}


def said(turn, role="model"):
    if isinstance(turn, str):
        return types.Content(role=role, parts=[types.Part(text=turn)])
    calls = [types.FunctionCall(name=name, args=args, id=id) for id, name, args in turn]
    return types.Content(role=role, parts=[types.Part(function_call=call) for call in calls])


def scripted(*turns):
    return Scripted(turns=list(turns), sent=[])


ran: list = []


def bash(command: str) -> dict:
    """Run a command."""
    ran.append(command)
    return {"output": f"did {command}"}


def boom() -> dict:
    """Break."""
    raise ValueError("boom")


def call(command="ls", id="c1"):
    return (id, "bash", {"command": command})


def agent_with(*turns, tools=(bash,), name="a", **more):
    return LlmAgent(name=name, model=scripted(*turns), tools=list(tools), **more)


class Adk:
    """A runner with our plugin around an agent, and what came of it."""

    def __init__(self, agent, hooks=(), *, plugins=None, sessions=None, **options):
        self.agent = agent
        self.journal = MemoryJournal()
        self.plugin = HooklinePlugin(hooks, journal=self.journal, **options) if plugins is None else None
        known = [self.plugin] if plugins is None else plugins
        self.runner = InMemoryRunner(agent=agent, app_name="app", plugins=known)
        if sessions is not None:
            self.runner.session_service = sessions
        self.events = []

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.runner.close()

    async def say(self, message="go", session="s1", config=None):
        sessions = self.runner.session_service
        if await sessions.get_session(**NAMES, session_id=session) is None:
            await sessions.create_session(**NAMES, session_id=session)
        if isinstance(message, str):
            message = said(message, "user")
        found = []
        async for event in self.runner.run_async(
            user_id="u", session_id=session, new_message=message, run_config=config
        ):
            found.append(event)
            self.events.append(event)
        return found

    async def decide(self, confirmed, session="s1", **payload):
        """A client's word on the last call that waits."""
        asked = [part.function_call for part in self.parts() if part.function_call]
        waiting = [each for each in asked if each.name == PAUSE][-1]
        answer = types.FunctionResponse(
            id=waiting.id, name=PAUSE, response={"confirmed": confirmed, "payload": payload or None}
        )
        return await self.say(
            types.Content(role="user", parts=[types.Part(function_response=answer)]), session
        )

    def parts(self, events=None):
        given = self.events if events is None else events
        return [part for event in given if event.content for part in event.content.parts]

    def responses(self, events=None):
        return [part.function_response.response for part in self.parts(events) if part.function_response]

    def texts(self, events=None):
        return [part.text for part in self.parts(events) if part.text]

    @property
    def sent(self):
        return self.agent.model.sent

    def records(self, kind=object):
        rows = reversed(self.journal.runs())
        return [each for row in rows for each in self.journal.records(row.run_id) if isinstance(each, kind)]


def seen_by(*points, **options):
    """A hook that only looks, and the list of what it saw."""
    seen = []

    @hook(on=points or POINTS, inline=True, name="seen", **options)
    def look(ctx, c):
        seen.append(c)
        return GO

    return look, seen


def at(point, result, **options):
    @hook(on=point, inline=True, name=options.pop("name", "said"), **options)
    def say(ctx, c):
        return result(c) if callable(result) else result

    return say


def lines(seen):
    return [f"{c.point}{f' {c.call_id}' if c.call_id else ''}" for c in seen]


@pytest.fixture(autouse=True)
def nothing_ran_yet():
    ran.clear()


# -- the points, their order, their record ------------------------------------------------------------------


@pytest.mark.statement("KA25")
async def test_every_point_of_a_run_is_fired_once_in_its_order_and_on_record():
    look, seen = seen_by()
    async with Adk(agent_with([call()], "done"), look) as adk:
        await adk.say()
        assert lines(seen) == [
            "run.start",
            "session.start",
            "agent.start",
            "step.start",
            "model.start",
            "model.end",
            "tool.start c1",
            "tool.end c1",
            "step.end",
            "step.start",
            "model.start",
            "model.end",
            "step.end",
            "agent.end",
            "run.end",
        ]
        begun = {each.scope_id: each for each in adk.records(Begun)}
        nested = [(each.scope, begun[each.parent_id].scope) for each in begun.values() if each.parent_id]
        assert nested[:5] == [
            ("session", "run"),
            ("agent", "run"),
            ("step", "agent"),
            ("model", "step"),
            ("tool", "step"),
        ]
    assert lines(seen)[-1] == "session.end"
    assert owed(adk.records()) == []
    assert {each.status for each in adk.records(Ended)} == {"ok"}


async def test_the_contexts_say_what_the_built_in_agents_say():
    look, seen = seen_by()
    async with Adk(agent_with([call("ls")], "done", instruction="Be brief."), look) as adk:
        await adk.say("list it")
    by = {}
    for c in seen:
        by.setdefault(str(c.point), c)
    assert by["run.start"].current_payload == {"input": "list it"}
    assert by["session.start"].current_payload == {"session_id": "s1", "source": "startup"}
    assert by["agent.start"].current_payload["input"] == "list it"
    assert by["agent.start"].current_payload["prompt"] == "list it"
    assert by["agent.start"].agent_config.tools == ("bash",)
    request = by["model.start"].current_payload
    assert request["messages"] == [{"role": "user", "content": "list it"}]
    assert "Be brief." in request["system"]
    assert request["tools"] == ["bash"]
    reply = by["model.end"].current_output
    assert reply["tool_calls"][0]["name"] == "bash"
    start, end = by["tool.start"], by["tool.end"]
    assert (start.current_tool, start.tool_kind, start.call_id) == ("bash", "shell", "c1")
    assert start.current_payload == {"command": "ls"}
    assert (end.status, end.current_output) == ("ok", {"output": "did ls"})
    step = by["step.end"].current_output
    assert (step["step"], step["tool_results"][0]["status"]) == (1, "ok")
    assert by["agent.end"].current_output["result"] == "done"
    assert by["run.end"].current_output["result"] == "done"
    assert {(c.session_id, c.user_id, c.agent) for c in seen} == {("s1", "u", "a")}
    messages = [c for c in seen if c.point == "model.start"][1].current_payload["messages"]
    assert [each["role"] for each in messages] == ["user", "assistant", "tool"]
    assert json.loads(messages[2]["content"]) == {"output": "did ls"}


# -- what a hook may answer ---------------------------------------------------------------------------------


@pytest.mark.statement("KA21", "KA23")
@pytest.mark.rule("kagent 1.3", "PreToolUse is before_tool_callback")
async def test_a_blocked_call_does_not_run_has_no_end_and_the_model_is_told_why():
    look, seen = seen_by("tool.end")
    async with Adk(
        agent_with([call("rm -rf /")], "done"), [at("tool.start", HookResult.block("no")), look]
    ) as adk:
        await adk.say()
        assert adk.responses() == [{"error": "refused: no"}]
    assert (ran, seen) == ([], [])
    assert adk.sent[1][-1] == ("user", [{"bash": {"error": "refused: no"}}])
    ended = [each for each in adk.records(Ended) if each.scope == "tool"]
    assert [(each.status, each.error) for each in ended] == [("blocked", "no")]


async def test_changed_arguments_reach_the_tool():
    change = at("tool.start", HookResult.continue_with(modified_payload={"command": "ls -l"}))
    async with Adk(agent_with([call("ls")], "done"), change) as adk:
        await adk.say()
    assert ran == ["ls -l"]


async def test_replaced_arguments_take_the_place_of_all():
    def write(path: str, content: str = "default") -> dict:
        """Write."""
        ran.append((path, content))
        return {}

    change = at("tool.start", HookResult.continue_with(modified_payload={"path": "b"}, replace=True))
    agent = agent_with([("c1", "write", {"path": "a", "content": "x"})], "done", tools=[write])
    async with Adk(agent, change) as adk:
        await adk.say()
    assert ran == [("b", "default")]


@pytest.mark.statement("KA24")
@pytest.mark.rule("kagent 1.3", "PostToolUse is after_tool_callback")
async def test_a_changed_output_is_what_the_model_sees():
    hide = at("tool.end", HookResult.continue_with(modified_output={"output": "hidden"}))
    async with Adk(agent_with([call()], "done"), hide) as adk:
        await adk.say()
        assert adk.responses() == [{"output": "hidden"}]
    assert adk.sent[1][-1] == ("user", [{"bash": {"output": "hidden"}}])


async def test_an_answer_takes_the_tools_place_and_its_end_runs():
    look, seen = seen_by("tool.end")
    async with Adk(
        agent_with([call()], "done"), [at("tool.start", HookResult.answer({"output": "cached"})), look]
    ) as adk:
        await adk.say()
        assert adk.responses() == [{"output": "cached"}]
    assert ran == []
    assert [(c.status, c.current_output) for c in seen] == [("answered", {"output": "cached"})]


@pytest.mark.parametrize("point", ["run.start", "session.start", "agent.start", "model.start", "tool.start"])
async def test_a_fail_stops_the_run_and_every_end_that_is_due_runs(point):
    look, seen = seen_by("run.end", "session.end", "agent.end", "tool.end")
    async with Adk(agent_with([call()], "done"), [at(point, HookResult.fail("enough")), look]) as adk:
        with pytest.raises(RuntimeError, match="enough") as caught:
            await adk.say()
        assert isinstance(caught.value.__cause__, HookFailed)
        assert caught.value.__cause__.point == point
    assert ran == []
    assert ("run.end", "failed") in [(c.point, c.status) for c in seen]
    assert not [c for c in seen if c.point == "tool.end"]
    assert owed(adk.records()) == []
    run = next(each for each in adk.records(Ended) if each.scope == "run")
    assert (run.status, "enough" in run.error) == ("failed", True)


async def test_a_fail_at_a_tools_end_stops_the_run():
    async with Adk(agent_with([call()], "done"), at("tool.end", HookResult.fail("leak"))) as adk:
        with pytest.raises(RuntimeError, match="leak"):
            await adk.say()
    assert ran == ["ls"]
    assert len(adk.sent) == 1


async def test_a_skipped_run_ends_with_the_reason_and_without_work():
    look, seen = seen_by()
    async with Adk(
        agent_with("done"), [at("run.start", HookResult.skip("nothing to do"), name="skips"), look]
    ) as adk:
        await adk.say()
        assert adk.texts() == ["nothing to do"]
    assert adk.sent == []
    assert seen == []
    assert [(each.scope, each.status) for each in adk.records(Ended)] == [("run", "skipped")]


async def test_a_skip_at_an_agents_start_ends_the_run_as_skipped():
    look, seen = seen_by("agent.end", "run.end")
    async with Adk(agent_with("done"), [at("agent.start", HookResult.skip("not today")), look]) as adk:
        await adk.say()
        assert adk.texts() == ["not today"]
    assert adk.sent == []
    assert [(c.point, c.status) for c in seen] == [("run.end", "skipped")]


async def test_a_blocked_input_is_answered_with_the_reason():
    async with Adk(agent_with("done"), at("agent.start", HookResult.block("no politics"))) as adk:
        await adk.say()
        assert adk.texts() == ["refused: no politics"]
    assert adk.sent == []
    run = next(each for each in adk.records(Ended) if each.scope == "run")
    assert run.status == "blocked"


async def test_an_answer_at_an_agents_start_is_the_answer_and_its_end_runs():
    look, seen = seen_by("agent.end")
    async with Adk(agent_with("done"), [at("agent.start", HookResult.answer("cached")), look]) as adk:
        await adk.say()
        assert adk.texts() == ["cached"]
    assert adk.sent == []
    assert [(c.status, c.current_output) for c in seen] == [("answered", "cached")]


@pytest.mark.parametrize("point", ["run.start", "agent.start"])
async def test_a_changed_input_is_what_the_model_sees_also_in_later_turns(point):
    def hide(c):
        text = c.current_payload["input"].replace("4711", "[number]")
        return HookResult.continue_with(modified_payload={"input": text})

    async with Adk(agent_with("one", "two"), at(point, hide)) as adk:
        await adk.say("my card is 4711")
        await adk.say("thanks")
    assert adk.sent[0] == [("user", ["my card is [number]"])]
    assert adk.sent[1][0] == ("user", ["my card is [number]"])
    assert "4711" not in str(adk.sent)


async def test_a_changed_request_is_what_the_model_gets():
    def change(c):
        messages = [*c.current_payload["messages"]]
        messages[0] = {"role": "user", "content": "changed"}
        return HookResult.continue_with(
            modified_payload={"messages": messages, "tools": [], "system": "Other.", "temperature": 0.5}
        )

    got = {}

    class Keeps(Scripted):
        async def generate_content_async(self, llm_request, stream=False):
            got["request"] = llm_request
            async for each in super().generate_content_async(llm_request, stream):
                yield each

    agent = LlmAgent(name="a", model=Keeps(turns=["done"], sent=[]), tools=[bash], instruction="Old.")
    async with Adk(agent, at("model.start", change)) as adk:
        await adk.say()
    assert adk.sent == [[("user", ["changed"])]]
    config = got["request"].config
    assert (config.system_instruction, config.temperature) == ("Other.", 0.5)
    assert [each.name for tool in config.tools for each in tool.function_declarations or ()] == []


async def test_what_our_words_do_not_show_survives_a_changed_request():
    image = types.Part(inline_data=types.Blob(data=b"png", mime_type="image/png"))
    got = []

    class Keeps(Scripted):
        async def generate_content_async(self, llm_request, stream=False):
            got.extend(llm_request.contents)
            async for each in super().generate_content_async(llm_request, stream):
                yield each

    def more(c):
        return HookResult.continue_with(
            modified_payload={
                "messages": [*c.current_payload["messages"], {"role": "user", "content": "and hurry"}]
            }
        )

    agent = LlmAgent(name="a", model=Keeps(turns=["done"], sent=[]))
    async with Adk(agent, at("model.start", more)) as adk:
        await adk.say(types.Content(role="user", parts=[types.Part(text="look"), image]))
    assert got[0].parts[1].inline_data.data == b"png"
    assert got[1].parts[0].text == "and hurry"


async def test_a_changed_answer_of_the_model_is_the_answer():
    async with Adk(
        agent_with("the key is 4711"),
        at("model.end", HookResult.continue_with(modified_output={"text": "the key is hidden"})),
    ) as adk:
        await adk.say()
        assert adk.texts() == ["the key is hidden"]


async def test_an_answer_at_a_models_start_keeps_the_model_from_being_asked():
    look, seen = seen_by("model.end")
    async with Adk(agent_with("done"), [at("model.start", HookResult.answer("from the cache")), look]) as adk:
        await adk.say()
        assert adk.texts() == ["from the cache"]
    assert adk.sent == []
    assert [(c.status, c.current_output["text"]) for c in seen] == [("answered", "from the cache")]


async def test_a_refused_answer_is_asked_for_again_with_the_reason():
    def judge(c):
        rude = "damn" in (c.current_output["text"] or "")
        return HookResult.block("be polite") if rude else GO

    look, seen = seen_by("model.start")
    async with Adk(agent_with("damn", "damn it", "of course"), [at("model.end", judge), look]) as adk:
        await adk.say()
        assert adk.texts() == ["of course"]
    assert adk.sent[1][-1] == ("user", ["Your answer was refused: be polite. Answer again."])
    assert len(seen) == 3


async def test_an_answer_that_is_refused_every_time_ends_the_run():
    async with Adk(agent_with(*["damn"] * 9), at("model.end", HookResult.block("be polite"))) as adk:
        with pytest.raises(RuntimeError, match="refused 3 times") as caught:
            await adk.say()
        assert isinstance(caught.value.__cause__, Refused)
    assert len(adk.sent) == 4
    assert owed(adk.records()) == []


async def test_a_model_that_is_asked_again_and_says_nothing_has_its_end():
    class Silent(Scripted):
        async def generate_content_async(self, llm_request, stream=False):
            if self.turns:
                yield LlmResponse(content=said(self.turns.pop(0)))

    agent = LlmAgent(name="a", model=Silent(turns=["damn"], sent=[]))
    async with Adk(agent, at("model.end", HookResult.block("be polite"))) as adk:
        with pytest.raises(RuntimeError, match="ended without an answer"):
            await adk.say()
    assert owed(adk.records()) == []


async def test_a_refused_request_is_made_again_with_the_reason():
    def once(c):
        told = any("refused" in str(each["content"]) for each in c.current_payload["messages"])
        return GO if told else HookResult.block("say please")

    async with Adk(agent_with("done"), at("model.start", once)) as adk:
        await adk.say()
        assert adk.texts() == ["done"]
    assert adk.sent == [[("user", ["go"]), ("user", ["This request was refused: say please. Answer again."])]]


async def test_a_refused_step_is_tried_again_with_the_reason_and_not_for_ever():
    async with Adk(agent_with("done"), at("step.start", HookResult.block("too soon"))) as adk:
        with pytest.raises(RuntimeError, match="the step was refused 3 times"):
            await adk.say()
    assert adk.sent == []


async def test_a_changed_output_of_an_agent_comes_after_what_it_said():
    async with Adk(
        agent_with("raw"), at("agent.end", HookResult.continue_with(modified_output={"result": "polished"}))
    ) as adk:
        await adk.say()
        assert adk.texts() == ["raw", "polished"]


async def test_an_agent_whose_end_is_refused_ends_the_run_since_adk_cannot_send_it_back():
    async with Adk(agent_with("half"), at("agent.end", HookResult.block("not finished"))) as adk:
        with pytest.raises(RuntimeError, match="not finished"):
            await adk.say()
    run = next(each for each in adk.records(Ended) if each.scope == "run")
    assert run.status == "blocked"


async def test_what_a_hook_has_for_the_user_is_on_the_next_event():
    async with Adk(
        agent_with([call()], "done"), at("tool.start", HookResult.continue_with(tell_user="slow today"))
    ) as adk:
        await adk.say()
        notices = [event.custom_metadata for event in adk.events if event.custom_metadata]
    assert notices == [{"hookline": {"notices": ["slow today"]}}]


async def test_what_a_refusing_hook_has_for_the_user_is_told_once():
    notice = at("model.start", HookResult.continue_with(tell_user="slow today"), name="notice")

    def once(c):
        told = any("refused" in str(each["content"]) for each in c.current_payload["messages"])
        return GO if told else HookResult.block("say please")

    async with Adk(agent_with("done"), [notice, at("model.start", once)]) as adk:
        await adk.say()
        notices = [event.custom_metadata for event in adk.events if event.custom_metadata]
    assert notices == [{"hookline": {"notices": ["slow today"] * 2}}], "once for each of two requests"


# -- telling the model --------------------------------------------------------------------------------------


@pytest.mark.rule("kagent 1.3", "SessionStart output reaches the model")
async def test_what_a_session_hook_tells_the_model_is_in_every_request_of_the_session():
    tell = at("session.start", HookResult.continue_with(tell_model="The branch is frozen."))
    async with Adk(agent_with([call()], "one", "two"), tell) as adk:
        await adk.say()
        await adk.say("more")
    assert all(request[0] == ("user", ["The branch is frozen."]) for request in adk.sent)
    assert len(adk.sent) == 3


async def test_what_an_agent_hook_tells_the_model_stays_in_its_place():
    tell = at("agent.start", HookResult.continue_with(tell_model="Be careful."))
    async with Adk(agent_with([call()], "done"), tell) as adk:
        await adk.say()
    assert adk.sent[0] == [("user", ["go"]), ("user", ["Be careful."])]
    assert [role for role, _ in adk.sent[1]] == ["user", "user", "model", "user"]
    assert adk.sent[1][1] == ("user", ["Be careful."])


async def test_what_a_run_hook_tells_the_model_reaches_the_first_that_is_asked():
    tell = at("run.start", HookResult.continue_with(tell_model="The branch is frozen."))
    agents = [agent_with(name, name=name, tools=()) for name in ("one", "two")]
    async with Adk(SequentialAgent(name="whole", sub_agents=agents), tell) as adk:
        await adk.say()
    first, second = (str(each.model.sent) for each in agents)
    assert ("frozen" in first, "frozen" in second) == (True, False)


async def test_what_the_end_of_an_agent_that_is_a_tool_tells_is_in_its_callers_next_request():
    def tell(c):
        return HookResult.continue_with(tell_model="It was late.") if c.agent == "inner" else GO

    inner = agent_with("inner done", name="inner", tools=())
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, at("agent.end", tell)) as adk:
        await adk.say()
    assert adk.sent[1][-1] == ("user", ["It was late."])


async def test_what_a_tool_hook_tells_the_model_comes_with_the_tools_result():
    tell = at("tool.start", HookResult.continue_with(tell_model="It is slow."))
    after = at("tool.end", HookResult.block("check it"), name="after")
    async with Adk(agent_with([call()], "done"), [tell, after]) as adk:
        await adk.say()
        assert adk.responses() == [{"output": "did ls", "told_by_hooks": ["It is slow.", "check it"]}]


# -- asking a person ----------------------------------------------------------------------------------------


def asks():
    return at("tool.start", HookResult.ask("touches production"), name="asks")


@pytest.mark.statement("KA22")
async def test_an_approver_decides_while_the_call_waits():
    asked = []

    async def approve(question):
        asked.append((question.tool, question.reasons[0].text, question.value))
        return Verdict(VerdictKind.APPROVE, by="ann")

    async with Adk(agent_with([call()], "done"), asks(), approver=approve) as adk:
        await adk.say()
        assert adk.responses() == [{"output": "did ls"}]
    assert asked == [("bash", "touches production", {"command": "ls"})]


async def test_an_approver_can_refuse_and_can_rewrite():
    verdicts = [
        Verdict(VerdictKind.REJECT, "not on Friday", by="ann"),
        Verdict(VerdictKind.REWRITE, value={"command": "ls -1"}, by="ann"),
    ]

    async def decide(question):
        return verdicts.pop(0)

    async with Adk(agent_with([call()], [call("ls", "c2")], "done"), asks(), approver=decide) as adk:
        await adk.say()
        assert adk.responses()[0] == {"error": "refused: not on Friday"}
    assert ran == ["ls -1"]


@pytest.mark.statement("KA41")
@pytest.mark.rule("kagent 1.6", "hook in an ADK plugin: approved")
async def test_without_an_approver_the_client_is_asked_and_an_approved_call_runs_once_with_its_hooks():
    look, seen = seen_by("tool.start", "tool.end")
    change = at("tool.start", HookResult.continue_with(modified_payload={"command": "ls -l"}), name="change")
    async with Adk(agent_with([call()], "done"), [change, asks(), look]) as adk:
        await adk.say()
        asked = [part.function_call for part in adk.parts() if part.function_call][-1]
        assert asked.name == PAUSE
        assert asked.args["toolConfirmation"]["hint"] == "touches production"
        assert asked.args["toolConfirmation"]["payload"] == {"input": {"command": "ls -l"}}
        assert (ran, lines(seen), len(adk.sent)) == ([], ["tool.start c1"], 1)
        pending = adk.journal.questions()
        assert [each.tool for each in pending] == ["bash"]
        await adk.decide(True)
        assert adk.texts()[-1] == "done"
    assert ran == ["ls -l"]
    assert lines(seen) == ["tool.start c1", "tool.end c1"]
    assert adk.journal.questions() == []
    assert owed(adk.records()) == []


@pytest.mark.rule("kagent 1.6", "hook in an ADK plugin: refused")
async def test_a_call_that_the_client_refuses_never_runs_and_the_reason_reaches_the_model():
    look, seen = seen_by("tool.start", "tool.end")
    async with Adk(agent_with([call()], "done"), [asks(), look]) as adk:
        await adk.say()
        events = await adk.decide(False, rejection_reason="not on Friday")
        assert adk.responses(events) == [{"error": "refused: not on Friday"}]
    assert (ran, lines(seen)) == ([], ["tool.start c1"])
    verdict = adk.journal.questions(pending=False)[0].verdict
    assert (verdict.kind, verdict.text) == ("reject", "not on Friday")


async def test_after_a_restart_an_approved_call_goes_before_the_hooks_again():
    sessions = InMemorySessionService()
    look, seen = seen_by("tool.start", "tool.end")
    model = scripted([call()], "done")
    async with Adk(LlmAgent(name="a", model=model, tools=[bash]), asks(), sessions=sessions) as before:
        await before.say()
    async with Adk(LlmAgent(name="a", model=model, tools=[bash]), [asks(), look], sessions=sessions) as adk:
        adk.events = before.events
        await adk.decide(True)
    assert ran == ["ls"]
    assert lines(seen) == ["tool.start c1", "tool.end c1"]


async def test_another_call_under_the_id_of_one_that_waits_goes_before_the_hooks():
    look, seen = seen_by("tool.start")
    asked = []
    agent = agent_with([call("ls")], "waiting", [call("rm")], "waiting", before_tool_callback=approval(asked))
    async with Adk(agent, look) as adk:
        await adk.say()
        await adk.say("never mind")
    assert [c.current_payload["command"] for c in seen] == ["ls", "rm"]


async def test_a_call_that_waits_for_a_credential_has_its_hooks_once():
    config = AuthConfig(auth_scheme=APIKey(**{"in": APIKeyIn.header, "name": "X-Key"}))
    times = []

    def fetch(tool_context: ToolContext) -> dict:
        """Fetch."""
        times.append(1)
        if len(times) == 1:
            tool_context.request_credential(config)
            return {"pending": True}
        return {"fetched": True}

    look, seen = seen_by("tool.start", "tool.end")
    async with Adk(agent_with([("c1", "fetch", {})], "done", "done", tools=[fetch]), look) as adk:
        await adk.say()
        assert lines(seen) == ["tool.start c1"]
        calls = [part.function_call for part in adk.parts() if part.function_call]
        asked = next(each for each in calls if each.name == "adk_request_credential")
        given = config.model_dump(by_alias=True, mode="json")
        answer = types.FunctionResponse(id=asked.id, name=asked.name, response=given)
        await adk.say(types.Content(role="user", parts=[types.Part(function_response=answer)]))
    assert len(times) == 2
    assert lines(seen) == ["tool.start c1", "tool.end c1"]
    assert owed(adk.records()) == []


async def test_one_of_two_parallel_calls_waits_and_the_other_runs():
    def judge(c):
        return HookResult.ask("sure?") if c.current_payload["command"] == "rm" else GO

    look, seen = seen_by("tool.start", "tool.end")
    async with Adk(
        agent_with([call("rm", "c1"), call("ls", "c2")], "done"), [at("tool.start", judge), look]
    ) as adk:
        await adk.say()
        assert ran == ["ls"]
        await adk.decide(True)
    assert ran == ["ls", "rm"]
    assert lines(seen) == ["tool.start c1", "tool.start c2", "tool.end c2", "tool.end c1"]


def approval(seen):
    """An approval callback of an agent's own, as kagent makes one."""

    def before_tool(tool, args, tool_context):
        confirmation = tool_context.tool_confirmation
        seen.append(confirmation and confirmation.confirmed)
        if confirmation is None:
            tool_context.request_confirmation(hint="may it?")
            return {"status": "confirmation_requested"}
        return None if confirmation.confirmed else "The person refused."

    return before_tool


@pytest.mark.statement("KA41")
@pytest.mark.rule("kagent 1.6", "a plugin and an approval callback")
@pytest.mark.parametrize("confirmed", [True, False])
async def test_an_approval_callback_of_the_agents_own_fires_no_hook_twice_and_none_on_its_placeholder(
    confirmed,
):
    look, seen = seen_by("tool.start", "tool.end")
    asked = []
    agent = agent_with([call()], "waiting", "done", before_tool_callback=approval(asked))
    async with Adk(agent, look) as adk:
        await adk.say()
        assert lines(seen) == ["tool.start c1"]
        events = await adk.decide(confirmed)
        given = {"output": "did ls"} if confirmed else {"result": "The person refused."}
        assert adk.responses(events) == [given]
    assert asked == [None, confirmed]
    assert ran == (["ls"] if confirmed else [])
    assert lines(seen) == ["tool.start c1", *(["tool.end c1"] if confirmed else [])]
    assert owed(adk.records()) == []


@pytest.mark.rule("kagent 1.6", "list [approval, hook]")
@pytest.mark.parametrize("confirmed", [True, False])
async def test_in_a_list_after_an_approval_callback_the_hooks_run_once_after_the_approval(confirmed):
    look, seen = seen_by("tool.start", "tool.end")
    asked = []
    ours = callbacks(look)
    ours["before_tool_callback"] = [approval(asked), ours["before_tool_callback"]]
    async with Adk(agent_with([call()], "waiting", "done", **ours), plugins=[]) as adk:
        await adk.say()
        assert seen == []
        await adk.decide(confirmed)
    await ours.close()
    assert lines(seen) == (["tool.start c1", "tool.end c1"] if confirmed else [])


@pytest.mark.parametrize("confirmed", [True, False])
async def test_a_tool_that_requires_confirmation_has_its_hooks_once(confirmed):
    look, seen = seen_by("tool.start", "tool.end")
    tools = [FunctionTool(bash, require_confirmation=True)]
    async with Adk(agent_with([call()], "done", tools=tools), look) as adk:
        await adk.say()
        assert (ran, lines(seen)) == ([], ["tool.start c1"])
        await adk.decide(confirmed)
    assert lines(seen) == ["tool.start c1", *(["tool.end c1"] if confirmed else [])]


@pytest.mark.statement("KA22")
async def test_an_allowed_call_needs_no_confirmation():
    tools = [FunctionTool(bash, require_confirmation=True)]
    async with Adk(
        agent_with([call()], "done", tools=tools), at("tool.start", HookResult.allow("known"))
    ) as adk:
        await adk.say()
    assert ran == ["ls"]


# -- several tools, failing tools, slow tools ---------------------------------------------------------------


@pytest.mark.rule("kagent 4.2", "two parallel calls, one blocked")
async def test_of_two_parallel_calls_one_is_blocked_and_the_other_runs():
    def judge(c):
        return HookResult.block("no") if c.current_payload["command"] == "rm" else GO

    async with Adk(agent_with([call("rm", "c1"), call("ls", "c2")], "done"), at("tool.start", judge)) as adk:
        await adk.say()
        assert adk.responses() == [{"error": "refused: no"}, {"output": "did ls"}]
    assert ran == ["ls"]


async def test_parallel_calls_have_all_starts_in_order_then_the_bodies_then_all_ends_in_order():
    log = []

    async def work(n: int) -> dict:
        """Work."""
        log.append(f"body {n}")
        await asyncio.sleep(0.02 * (3 - n))
        return {"n": n}

    @hook(on=["tool.start", "tool.end"])
    def slow_sync(ctx, c):
        time.sleep(0.02 if c.call_id == "c1" else 0.001)
        log.append(f"{c.point} {c.call_id}")
        return GO

    calls = [(f"c{n}", "work", {"n": n}) for n in (1, 2, 3)]
    async with Adk(agent_with(calls, "done", tools=[work]), slow_sync) as adk:
        await adk.say()
        assert adk.responses() == [{"n": 1}, {"n": 2}, {"n": 3}]
    assert log[:3] == ["tool.start c1", "tool.start c2", "tool.start c3"]
    assert sorted(log[3:6]) == ["body 1", "body 2", "body 3"]
    assert log[6:] == ["tool.end c1", "tool.end c2", "tool.end c3"]


async def test_a_fail_at_one_calls_start_keeps_every_tool_of_the_step_from_running():
    def judge(c):
        return HookResult.fail("stop") if c.call_id == "c2" else GO

    look, seen = seen_by("tool.end")
    calls = [call("a", "c1"), call("b", "c2"), call("c", "c3")]
    async with Adk(agent_with(calls, "done"), [at("tool.start", judge), look]) as adk:
        with pytest.raises(RuntimeError, match="stop"):
            await adk.say()
    assert (ran, seen) == ([], [])
    assert owed(adk.records()) == []


@pytest.mark.rule("kagent 4.2", "tool raises, no handler")
async def test_a_tool_that_raises_has_its_end_as_failed_and_the_error_goes_on():
    look, seen = seen_by("tool.end", "agent.end", "run.end")
    async with Adk(agent_with([("c1", "boom", {})], "done", tools=[boom]), look) as adk:
        with pytest.raises(ValueError, match="boom"):
            await adk.say()
    assert [(c.point, c.status) for c in seen] == [
        ("tool.end", "failed"),
        ("agent.end", "failed"),
        ("run.end", "failed"),
    ]
    assert seen[0].current_output == {"error": "ValueError: boom"}


@pytest.mark.rule("kagent 4.2", "tool raises, error callback returns a dict")
async def test_a_hook_that_changes_the_output_of_a_failed_tool_recovers_the_call():
    def mend(c):
        return (
            HookResult.continue_with(modified_output={"error": "try later"}) if c.status == "failed" else GO
        )

    look, seen = seen_by("tool.end")
    async with Adk(
        agent_with([("c1", "boom", {})], "done", tools=[boom]), [at("tool.end", mend), look]
    ) as adk:
        await adk.say()
        assert adk.responses() == [{"error": "try later"}]
    assert len(seen) == 1


async def test_a_tool_that_raises_takes_the_others_with_it_and_each_has_its_end():
    async def slow() -> dict:
        """Wait."""
        await asyncio.sleep(60)
        return {}

    look, seen = seen_by("tool.end")
    calls = [("c1", "slow", {}), ("c2", "boom", {})]
    async with Adk(agent_with(calls, "done", tools=[slow, boom]), look) as adk:
        with pytest.raises(ValueError, match="boom"):
            await adk.say()
    assert sorted((c.call_id, str(c.status)) for c in seen) == [("c1", "cancelled"), ("c2", "failed")]
    assert owed(adk.records()) == []


@pytest.mark.rule("kagent 4.2", "unknown tool name")
async def test_a_tool_that_is_not_there_has_no_hooks_and_is_on_record():
    look, seen = seen_by("tool.start", "tool.end")
    async with Adk(agent_with([("c1", "nope", {})], "done"), look) as adk:
        await adk.say()
        assert "no tool with that name" in adk.responses()[0]["error"]
    assert seen == []
    ended = [each for each in adk.records(Ended) if each.scope == "tool"]
    assert [each.status for each in ended] == ["failed"]


async def test_a_long_running_tools_end_sees_what_the_call_returned_at_once():
    def deploy() -> dict | None:
        """Deploy."""
        return None

    def ticket() -> dict:
        """Open a ticket."""
        return {"ticket": 7}

    look, seen = seen_by("tool.end")
    tell = at("tool.end", HookResult.continue_with(tell_model="It takes an hour."), name="tell")
    tools = [LongRunningFunctionTool(deploy), LongRunningFunctionTool(ticket)]
    agent = agent_with([("c1", "deploy", {})], [("c2", "ticket", {})], "waiting", "done", tools=tools)
    async with Adk(agent, [look, tell]) as adk:
        await adk.say()
        assert adk.responses() == [], "a text of a hook is not taken for the result"
        answer = types.FunctionResponse(id="c1", name="deploy", response={"done": True})
        await adk.say(types.Content(role="user", parts=[types.Part(function_response=answer)]))
        assert adk.responses() == [{"ticket": 7, "told_by_hooks": ["It takes an hour."]}]
    assert [(c.call_id, c.current_output) for c in seen] == [("c1", None), ("c2", {"ticket": 7})]


# -- agents in agents ---------------------------------------------------------------------------------------


async def test_an_agent_as_a_tool_is_part_of_the_callers_run_and_names_its_chain():
    look, seen = seen_by("run.start", "session.start", "agent.start", "tool.start", "tool.end")
    inner = agent_with([call("ls", "i1")], "inner done", name="inner")
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, look) as adk:
        await adk.say()
    told = [(str(c.point), c.agent, c.parents, c.current_tool, c.tool_kind) for c in seen]
    assert told == [
        ("run.start", "a", (), None, None),
        ("session.start", "a", (), None, None),
        ("agent.start", "a", (), None, None),
        ("tool.start", "a", (), "inner", "agent"),
        ("agent.start", "inner", ("a",), None, None),
        ("tool.start", "inner", ("a",), "bash", "shell"),
        ("tool.end", "inner", ("a",), "bash", "shell"),
        ("tool.end", "a", (), "inner", "agent"),
    ]
    assert len(adk.journal.runs()) == 1
    begun = {each.scope_id: each for each in adk.records(Begun)}
    nested = next(each for each in begun.values() if each.name == "inner" and each.scope == "agent")
    assert begun[nested.parent_id].scope == "tool"


async def test_a_hook_holds_for_the_tools_of_an_agent_that_is_a_tool():
    def judge(c):
        return HookResult.block("not you") if c.agent == "inner" else GO

    inner = agent_with([call("ls", "i1")], "inner done", name="inner")
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, at("tool.start", judge)) as adk:
        await adk.say()
    assert ran == []
    assert inner.model.sent[1][-1] == ("user", [{"bash": {"error": "refused: not you"}}])


async def test_the_input_of_an_agent_that_is_a_tool_can_be_changed():
    def polite(c):
        changed = HookResult.continue_with(modified_payload={"input": "look, please"})
        return changed if c.agent == "inner" else GO

    inner = agent_with("inner done", name="inner", tools=())
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, at("agent.start", polite)) as adk:
        await adk.say("look")
    assert inner.model.sent == [[("user", ["look, please"])]]
    assert adk.sent[0] == [("user", ["look"])]


async def test_a_run_cancelled_inside_an_agent_that_is_a_tool_has_every_end_from_the_inside_out():
    begun = asyncio.Event()

    async def wait() -> dict:
        """Wait."""
        begun.set()
        await asyncio.sleep(60)
        return {}

    look, seen = seen_by("tool.end", "agent.end", "run.end")
    inner = agent_with([("i1", "wait", {})], name="inner", tools=[wait])
    outer = agent_with([("c1", "inner", {"request": "look"})], tools=[AgentTool(agent=inner)])
    async with Adk(outer, look) as adk:
        task = asyncio.create_task(adk.say())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert [(str(c.point), c.agent, str(c.status)) for c in seen] == [
            ("tool.end", "inner", "cancelled"),
            ("agent.end", "inner", "cancelled"),
            ("tool.end", "a", "cancelled"),
            ("agent.end", "a", "cancelled"),
            ("run.end", "a", "cancelled"),
        ]
    assert owed(adk.records()) == []


async def test_a_fail_inside_an_agent_that_is_a_tool_ends_the_run_and_no_other_hook_mends_it():
    def judge(c):
        return HookResult.fail("enough") if c.agent == "inner" else GO

    mend = at("tool.end", HookResult.continue_with(modified_output={"output": "mended"}), name="mend")
    inner = agent_with("inner done", name="inner", tools=())
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, [at("model.start", judge), mend]) as adk:
        with pytest.raises(RuntimeError, match="enough"):
            await adk.say()
    assert owed(adk.records()) == []


async def test_a_refusal_inside_an_agent_that_is_a_tool_is_told_to_its_caller():
    def judge(c):
        return HookResult.block("not that") if c.agent == "inner" else GO

    look, seen = seen_by("tool.end")
    inner = agent_with("inner done", name="inner", tools=())
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, [at("model.start", judge), look]) as adk:
        await adk.say()
        assert adk.texts()[-1] == "done"
        assert "refused 3 times, last: not that" in adk.responses()[0]["error"]
    assert [str(c.status) for c in seen] == ["blocked"]


async def test_a_skip_inside_an_agent_that_is_a_tool_ends_the_run_as_skipped():
    def judge(c):
        return HookResult.skip("nothing to do") if c.agent == "inner" else GO

    inner = agent_with("inner done", name="inner", tools=())
    outer = agent_with([("c1", "inner", {"request": "look"})], "done", tools=[AgentTool(agent=inner)])
    async with Adk(outer, at("agent.start", judge)) as adk:
        with pytest.raises(RuntimeError, match="nothing to do") as caught:
            await adk.say()
        assert isinstance(caught.value.__cause__, Skipped)
    run = next(each for each in adk.records(Ended) if each.scope == "run")
    assert run.status == "skipped"


async def test_a_sub_agent_that_takes_over_is_hooked_and_inside_the_one_that_handed_over():
    look, seen = seen_by("agent.start", "agent.end", "tool.start", "run.end")
    sub = agent_with([call()], "sub done", name="sub")
    root = LlmAgent(
        name="root", model=scripted([("t1", "transfer_to_agent", {"agent_name": "sub"})]), sub_agents=[sub]
    )
    async with Adk(root, look) as adk:
        await adk.say()
        assert adk.texts()[-1] == "sub done"
    assert [(str(c.point), c.agent, c.parents) for c in seen] == [
        ("agent.start", "root", ()),
        ("tool.start", "root", ()),
        ("agent.start", "sub", ("root",)),
        ("tool.start", "sub", ("root",)),
        ("agent.end", "sub", ("root",)),
        ("agent.end", "root", ()),
        ("run.end", "root", ()),
    ]
    assert {each.status for each in adk.records(Ended)} == {"ok"}
    assert owed(adk.records()) == []


@pytest.mark.parametrize("result", [HookResult.block("not finished"), HookResult.fail("not finished")])
async def test_an_agent_that_handed_over_and_may_not_end_leaves_no_other_end_undone(result):
    look, seen = seen_by("run.end")
    sub = agent_with("sub done", name="sub", tools=())
    root = LlmAgent(
        name="root", model=scripted([("t1", "transfer_to_agent", {"agent_name": "sub"})]), sub_agents=[sub]
    )
    judge = at("agent.end", lambda c: result if c.agent == "root" else GO)
    async with Adk(root, [judge, look]) as adk:
        with pytest.raises(RuntimeError, match="not finished"):
            await adk.say()
    assert [str(c.status) for c in seen] == ["blocked" if result.action == "block" else "failed"]
    assert owed(adk.records()) == []


async def test_agents_in_sequence_and_side_by_side_are_nested_as_they_are_declared():
    look, seen = seen_by("agent.start", "agent.end")
    side = ParallelAgent(
        name="side", sub_agents=[agent_with("x", name="x", tools=()), agent_with("y", name="y", tools=())]
    )
    whole = SequentialAgent(name="whole", sub_agents=[agent_with("one", name="one", tools=()), side])
    async with Adk(whole, look) as adk:
        await adk.say()
    parents = {c.agent: c.parents for c in seen}
    assert parents == {
        "whole": (),
        "one": ("whole",),
        "side": ("whole",),
        "x": ("whole", "side"),
        "y": ("whole", "side"),
    }
    assert len(seen) == 10
    assert owed(adk.records()) == []


# -- sessions -----------------------------------------------------------------------------------------------


@pytest.mark.statement("KA25")
async def test_session_points_are_fired_once_a_session_over_several_turns():
    look, seen = seen_by("session.start", "session.end", "run.start")
    async with Adk(agent_with("1", "2", "3", "4", tools=()), look) as adk:
        await adk.say(session="s1")
        await adk.say(session="s1")
        await adk.say(session="s2")
        await adk.plugin.close_session("s1")
        await adk.plugin.close_session("s1")
        await adk.say(session="s2")
        assert [(str(c.point), c.session_id) for c in seen] == [
            ("run.start", "s1"),
            ("session.start", "s1"),
            ("run.start", "s1"),
            ("run.start", "s2"),
            ("session.start", "s2"),
            ("session.end", "s1"),
            ("run.start", "s2"),
        ]
    assert [(str(c.point), c.session_id) for c in seen[7:]] == [("session.end", "s2")]


async def test_a_session_that_is_taken_up_again_says_so():
    sessions = InMemorySessionService()
    look, seen = seen_by("session.start")
    for _ in range(2):
        async with Adk(agent_with("hi", tools=()), look, sessions=sessions) as adk:
            await adk.say()
    assert [c.current_payload["source"] for c in seen] == ["startup", "resume"]


async def test_turns_side_by_side_in_one_session_open_it_once():
    look, seen = seen_by("session.start", "run.end")
    async with Adk(agent_with("1", "2", "3", tools=()), look) as adk:
        await adk.runner.session_service.create_session(**NAMES, session_id="s1")
        done = await asyncio.gather(adk.say(), adk.say(), adk.say(), return_exceptions=True)
    assert sum(c.point == "session.start" for c in seen) == 1
    assert sum(c.point == "run.end" for c in seen) == 3, done
    assert owed(adk.records()) == []


# -- streaming, leaving early, cancelling -------------------------------------------------------------------

SSE = RunConfig(streaming_mode=StreamingMode.SSE)


async def test_streamed_text_flows_past_hooks_that_only_watch():
    look, seen = seen_by("model.end", observe=True)
    async with Adk(agent_with("one two three", tools=()), look) as adk:
        await adk.say(config=SSE)
        assert [text for event in adk.events if event.partial for text in adk.texts([event])] == [
            "one",
            "two",
            "three",
        ]
    assert [c.current_output["text"] for c in seen] == ["one two three"]


async def test_streamed_text_is_held_back_while_a_hook_may_change_it():
    hide = at("model.end", HookResult.continue_with(modified_output={"text": "hidden"}))
    async with Adk(agent_with("the key is 4711", tools=()), hide) as adk:
        await adk.say(config=SSE)
        assert adk.texts() == ["hidden"]


async def test_a_refused_streamed_answer_is_never_seen():
    def judge(c):
        return HookResult.block("no") if "4711" in c.current_output["text"] else GO

    async with Adk(agent_with("key 4711", "sorry", tools=()), at("model.end", judge)) as adk:
        await adk.say(config=SSE)
        assert adk.texts() == ["sorry"]


async def test_tools_are_hooked_in_a_streamed_run():
    async with Adk(agent_with([call()], "all done"), at("tool.start", HookResult.block("no"))) as adk:
        await adk.say(config=SSE)
        assert adk.responses() == [{"error": "refused: no"}]


async def test_a_caller_that_leaves_early_leaves_no_end_undone():
    look, seen = seen_by("agent.end", "run.end")
    async with Adk(agent_with([call()], "done"), look) as adk:
        await adk.runner.session_service.create_session(**NAMES, session_id="s1")
        stream = adk.runner.run_async(user_id="u", session_id="s1", new_message=said("go", "user"))
        await anext(stream)
        await stream.aclose()
        assert [(str(c.point), str(c.status)) for c in seen] == [
            ("agent.end", "cancelled"),
            ("run.end", "cancelled"),
        ]
    assert owed(adk.records()) == []


@pytest.mark.parametrize("where", ["tool", "model", "agent.start", "session.start", "tool.start"])
async def test_a_cancelled_run_has_every_end_that_is_due(where):
    begun = asyncio.Event()

    async def wait() -> dict:
        """Wait."""
        if where == "tool":
            begun.set()
            await asyncio.sleep(60)
        return {}

    async def answers():
        if where == "model":
            begun.set()
            await asyncio.sleep(60)
        return [("c1", "wait", {})]

    @hook(on=["session.start", "agent.start", "tool.start"], name="slow")
    async def slow(ctx, c):
        if where == c.point:
            begun.set()
            await asyncio.sleep(60)
        return GO

    look, seen = seen_by("tool.end", "model.end", "step.end", "agent.end", "run.end")
    async with Adk(agent_with(answers, "done", tools=[wait]), [slow, look]) as adk:
        task = asyncio.create_task(adk.say())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        ends = [str(c.point) for c in seen if c.status == "cancelled"]
        due = {
            "tool": ["tool.end", "step.end", "agent.end", "run.end"],
            "model": ["model.end", "step.end", "agent.end", "run.end"],
            "agent.start": ["run.end"],
            "session.start": ["run.end"],
            "tool.start": ["step.end", "agent.end", "run.end"],
        }
        assert ends == due[where]
    assert owed(adk.records()) == []
    run = next(each for each in adk.records(Ended) if each.scope == "run")
    assert run.status == "cancelled"


async def test_a_run_that_its_signal_aborts_ends_as_cancelled():
    stop = asyncio.Event()

    async def wait() -> dict:
        """Wait."""
        stop.set()
        await asyncio.sleep(60)
        return {}

    look, seen = seen_by("tool.end", "agent.end", "run.end")
    async with Adk(agent_with([("c1", "wait", {})], "done", tools=[wait]), look) as adk:
        await adk.runner.session_service.create_session(**NAMES, session_id="s1")
        stream = adk.runner.run_async(
            user_id="u", session_id="s1", new_message=said("go", "user"), abort_signal=stop
        )
        async for _ in stream:
            pass
    assert [(str(c.point), str(c.status)) for c in seen] == [
        ("tool.end", "cancelled"),
        ("agent.end", "cancelled"),
        ("run.end", "cancelled"),
    ]
    assert owed(adk.records()) == []


async def test_a_model_that_raises_has_its_end_as_failed():
    async def down():
        raise OSError("unreachable")

    look, seen = seen_by("model.end", "step.end", "agent.end", "run.end")
    async with Adk(agent_with(down), look) as adk:
        with pytest.raises(OSError, match="unreachable"):
            await adk.say()
    assert [(str(c.point), str(c.status)) for c in seen] == [
        (point, "failed") for point in ("model.end", "step.end", "agent.end", "run.end")
    ]


# -- hooks that are slow, or break ---------------------------------------------------------------------------


@pytest.mark.rule("kagent 1.4", "the event loop is not blocked")
async def test_a_sync_hook_of_six_tenths_of_a_second_never_blocks_the_event_loop():
    @hook(on="tool.start")
    def slow(ctx, c):
        time.sleep(0.6)
        return GO

    gaps_seen = []

    async def tick():
        last = time.monotonic()
        while True:
            await asyncio.sleep(0.01)
            now = time.monotonic()
            gaps_seen.append(now - last)
            last = now

    # What ADK itself takes the first time is not the hook's.
    async with Adk(agent_with([call()], "done")) as warm:
        await warm.say()
    async with Adk(agent_with([call()], "done"), slow) as adk:
        ticking = asyncio.create_task(tick())
        started = time.monotonic()
        await adk.say()
        took = time.monotonic() - started
        ticking.cancel()
    assert took >= 0.6
    assert len(gaps_seen) >= 10, "the loop went on while the hook slept"


@pytest.mark.parametrize(
    ("on_error", "given"),
    [("continue", {"output": "did ls"}), ("block", "refused: raised RuntimeError: broken"), ("fail", None)],
)
async def test_a_hook_that_breaks_does_what_on_error_says(on_error, given):
    @hook(on="tool.start", on_error=on_error, name="broken")
    def broken(ctx, c):
        raise RuntimeError("broken")

    async with Adk(agent_with([call()], "done"), broken) as adk:
        if on_error == "fail":
            with pytest.raises(RuntimeError, match="broken"):
                await adk.say()
        else:
            await adk.say()
            response = adk.responses()[0]
            assert response == given if isinstance(given, dict) else given in response["error"]
    assert ran == (["ls"] if on_error == "continue" else [])
    called = [each for each in adk.records(Called) if each.hook == "broken"]
    assert [each.error_kind for each in called] == ["raised"]


async def test_arguments_that_a_hook_made_something_else_of_are_told():
    odd = at("tool.start", HookResult.continue_with(modified_payload=["ls"]))
    async with Adk(agent_with([call()], "done"), odd) as adk:
        await adk.say()
        assert "must stay a mapping" in adk.responses()[0]["error"]
    assert ran == []
    assert owed(adk.records()) == []


# -- the ways to attach them ---------------------------------------------------------------------------------

SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "bash|shell_exec", "hooks": [{"type": "command", "command": "python3 guard.py"}]}
        ]
    }
}
GUARD = """
import json, sys
event = json.load(sys.stdin)
if "push" in event["tool_input"]["command"]:
    print(json.dumps({"decision": "block", "reason": "no pushing from " + event["session_id"]}))
"""


@pytest.mark.statement("KA18", "KA19", "KA40")
async def test_the_hook_files_of_hookline_and_of_claude_code_can_be_given_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guard.py").write_text(GUARD)
    (tmp_path / "settings.json").write_text(json.dumps(SETTINGS))
    (tmp_path / "hookline.yaml").write_text(
        "hooks:\n  - name: no-rm\n    on: tool.start\n    match: kind:shell\n"
        "    when: {input.command: {contains: rm}}\n    shell: 'echo not here; exit 1'\n"
    )
    calls = [call("git push", "c1"), call("rm x", "c2"), call("ls", "c3")]
    async with Adk(agent_with(calls, "done"), ["settings.json", Path("hookline.yaml")]) as adk:
        await adk.say()
        first, second, third = adk.responses()
    assert first == {"error": "refused: no pushing from s1"}
    assert "not here" in second["error"]
    assert third == {"output": "did ls"}


async def test_a_wrong_hook_file_is_told_with_its_line_before_anything_runs(tmp_path):
    file = tmp_path / "hookline.yaml"
    file.write_text("hooks:\n  - name: x\n    on: tool.strat\n    shell: 'true'\n")
    with pytest.raises(Exception, match=r"hookline.yaml:3.*tool.start"):
        HooklinePlugin(file)


@pytest.mark.statement("KA23", "KA24")
async def test_callbacks_of_an_agent_do_the_same_without_a_plugin():
    look, seen = seen_by("agent.start", "agent.end", "model.start", "model.end", "tool.start", "tool.end")
    judge = at("tool.start", lambda c: HookResult.block("no") if c.current_payload["command"] == "rm" else GO)
    journal = MemoryJournal()
    ours = callbacks([judge, look], journal=journal)
    agent = agent_with([call("rm", "c1"), call("ls", "c2")], "done", **ours)
    async with Adk(agent, plugins=[]) as adk:
        await adk.say()
        assert adk.responses() == [{"error": "refused: no"}, {"output": "did ls"}]
    await ours.close()
    assert lines(seen) == [
        "agent.start",
        "model.start",
        "model.end",
        "tool.start c2",
        "tool.end c2",
        "model.start",
        "model.end",
        "agent.end",
    ]
    assert [row.status for row in journal.runs()] == ["ok"]
    assert owed(journal.records(journal.runs()[0].run_id)) == []


@pytest.mark.statement("KA23", "KA24")
async def test_the_callbacks_for_tools_can_be_taken_alone():
    look, seen = seen_by("tool.start", "tool.end", "agent.start")
    journal = MemoryJournal()
    ours = callbacks([asks(), look], journal=journal)
    names = ("before_tool_callback", "after_tool_callback", "on_tool_error_callback")
    agent = agent_with([call()], "done", "more", **{name: ours[name] for name in names})
    async with Adk(agent, plugins=[]) as adk:
        await adk.say()
        assert ran == []
        await adk.decide(True)
        assert adk.responses()[-1] == {"output": "did ls"}
    await ours.close()
    assert lines(seen) == ["tool.start c1", "tool.end c1"]
    assert all(owed(journal.records(row.run_id)) == [] for row in journal.runs())


async def test_a_fail_in_a_callback_comes_out_as_it_is():
    ours = callbacks(at("tool.start", HookResult.fail("enough")))
    async with Adk(agent_with([call()], "done", **ours), plugins=[]) as adk:
        with pytest.raises(HookFailed, match="enough"):
            await adk.say()
    await ours.close()
    assert ran == []


async def test_a_failing_tool_under_callbacks_has_its_end_and_the_run_is_closed_later():
    look, seen = seen_by("tool.end", "agent.end")
    journal = MemoryJournal()
    ours = callbacks(look, journal=journal)
    async with Adk(agent_with([("c1", "boom", {})], "done", tools=[boom], **ours), plugins=[]) as adk:
        with pytest.raises(ValueError, match="boom"):
            await adk.say()
        await adk.say("again")
    await ours.close()
    assert [(str(c.point), str(c.status)) for c in seen] == [
        ("tool.end", "failed"),
        ("agent.end", "failed"),
        ("agent.end", "ok"),
    ]
    assert all(owed(journal.records(row.run_id)) == [] for row in journal.runs())


def test_a_hook_that_callbacks_cannot_reach_is_refused_not_left_out():
    look, _ = seen_by("run.start")
    with pytest.raises(UsageError, match=r"seen .* stands at run.start, which callbacks cannot reach"):
        callbacks(look)
    assert "before_tool_callback" in callbacks(look, only_what_fits=True)


async def test_the_plugin_is_one_of_adks_own_and_goes_into_an_app():
    plugin = HooklinePlugin(at("tool.start", HookResult.block("no")))
    assert isinstance(plugin, BasePlugin)
    assert plugin.name == "hookline"
    app = App(name="app", root_agent=agent_with([call()], "done"), plugins=[plugin])
    runner = InMemoryRunner(app=app)
    await runner.session_service.create_session(**NAMES, session_id="s1")
    async for _ in runner.run_async(user_id="u", session_id="s1", new_message=said("go", "user")):
        pass
    await runner.close()
    assert ran == []


async def test_a_plugin_after_ours_that_answers_is_seen_at_the_tools_end():
    class Caches(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            return {"output": "theirs"}

    look, seen = seen_by("tool.start", "tool.end")
    plugin = HooklinePlugin(look)
    async with Adk(agent_with([call()], "done"), plugins=[plugin, Caches(name="caches")]) as adk:
        await adk.say()
    assert lines(seen) == ["tool.start c1", "tool.end c1"]


async def test_a_plugin_before_ours_that_answers_fires_none_of_our_hooks():
    class Caches(BasePlugin):
        async def before_tool_callback(self, *, tool, tool_args, tool_context):
            return {"output": "theirs"}

    look, seen = seen_by("tool.start", "tool.end")
    plugin = HooklinePlugin(look)
    async with Adk(agent_with([call()], "done"), plugins=[Caches(name="caches"), plugin]) as adk:
        await adk.say()
        assert adk.responses() == [{"output": "theirs"}]
    assert seen == []


async def test_a_plugin_before_ours_that_takes_the_result_does_not_hold_up_the_others():
    class Takes(BasePlugin):
        async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
            return {"output": "taken"} if tool_context.function_call_id == "c1" else None

    look, seen = seen_by("tool.end")
    journal = MemoryJournal()
    plugin = HooklinePlugin(look, journal=journal)
    calls = [call("a", "c1"), call("b", "c2")]
    async with Adk(agent_with(calls, "done"), plugins=[Takes(name="takes"), plugin]) as adk:
        await asyncio.wait_for(adk.say(), 60)
    assert sorted(lines(seen)) == ["tool.end c1", "tool.end c2"]
    assert all(owed(journal.records(row.run_id)) == [] for row in journal.runs())


async def test_tool_kinds_can_be_said():
    look, seen = seen_by("tool.start")

    def deploy() -> dict:
        """Deploy."""
        return {}

    agent = agent_with([("c1", "deploy", {})], "done", tools=[deploy])
    async with Adk(agent, look, kinds={"deploy": "shell"}) as adk:
        await adk.say()
    assert [c.tool_kind for c in seen] == ["shell"]


async def test_the_record_has_each_call_its_decision_and_its_ending():
    judge = at("tool.start", HookResult.block("no"), name="judge")
    async with Adk(agent_with([call()], "done"), judge) as adk:
        await adk.say()
        decided = adk.records(Decided)
        called = adk.records(Called)
    assert [(each.hook, str(each.point), str(each.action)) for each in called] == [
        ("judge", "tool.start", "block")
    ]
    assert [(str(each.point), str(each.action), each.reasons[0].text) for each in decided] == [
        ("tool.start", "block", "no")
    ]
    begun = next(each for each in adk.records(Begun) if each.scope == "tool")
    assert (begun.payload, begun.about["call_id"]) == ({"command": "ls"}, "c1")


def test_gaps_name_points_that_exist():
    known = {*POINTS, "workspace.start", "workspace.end"}
    assert {point for gap in gaps() for point in gap.points} <= known


# -- workflows and live mode ---------------------------------------------------------------------------------


def weigh(text: str = "") -> dict:
    """Weigh a text."""
    ran.append(text)
    return {"weight": 3}


async def test_agents_and_tools_of_a_workflow_are_hooked():
    look, seen = seen_by("run.start", "agent.start", "agent.end", "tool.start", "tool.end", "run.end")
    first = agent_with([call()], "one", name="first")
    flow = Workflow(name="flow", edges=[(START, first, FunctionTool(weigh))])
    async with Adk(flow, look) as adk:
        await adk.say()
    assert [(str(c.point), c.agent, c.current_tool) for c in seen] == [
        ("run.start", "app", None),
        ("agent.start", "first", None),
        ("tool.start", "first", "bash"),
        ("tool.end", "first", "bash"),
        ("agent.end", "first", None),
        ("tool.start", "app", "weigh"),
        ("tool.end", "app", "weigh"),
        ("run.end", "app", None),
    ]
    assert owed(adk.records()) == []


async def test_a_tool_of_a_workflow_is_blocked_and_asking_there_is_a_refusal():
    flow = Workflow(name="flow", edges=[(START, FunctionTool(weigh))])
    async with Adk(flow, asks()) as adk:
        await adk.say()
        outputs = [event.output for event in adk.events if event.output]
    assert ran == []
    assert "nobody is there to answer" in outputs[0]["error"]


async def test_a_workflow_that_is_cancelled_has_every_end_though_adk_says_nothing_of_the_runs():
    begun = asyncio.Event()

    async def wait(text: str = "") -> dict:
        """Wait."""
        begun.set()
        await asyncio.sleep(60)
        return {}

    look, seen = seen_by("tool.end", "run.end")
    async with Adk(Workflow(name="flow", edges=[(START, FunctionTool(wait))]), look) as adk:
        task = asyncio.create_task(adk.say())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert [(str(c.point), str(c.status)) for c in seen] == [
        ("tool.end", "cancelled"),
        ("run.end", "cancelled"),
    ]
    assert owed(adk.records()) == []


class Connection(BaseLlmConnection):
    """A live model: calls a tool, hears the answer, says so."""

    def __init__(self):
        self.heard = asyncio.Event()
        self.answers = []

    async def send_history(self, history):
        pass

    async def send_content(self, content):
        for part in content.parts:
            if part.function_response:
                self.answers.append(part.function_response.response)
                self.heard.set()

    async def send_realtime(self, blob):
        pass

    async def receive(self):
        yield LlmResponse(content=said([call("rm")]))
        await self.heard.wait()
        yield LlmResponse(content=said("done"))
        yield LlmResponse(turn_complete=True)
        await asyncio.Event().wait()

    async def close(self):
        pass


class Live(Scripted):
    connection: object = None

    @asynccontextmanager
    async def connect(self, llm_request):
        yield self.connection


async def live(agent, hooks):
    journal = MemoryJournal()
    plugin = HooklinePlugin(hooks, journal=journal)
    runner = InMemoryRunner(agent=agent, app_name="app", plugins=[plugin])
    await runner.session_service.create_session(**NAMES, session_id="s1")
    queue = LiveRequestQueue()
    stream = runner.run_live(user_id="u", session_id="s1", live_request_queue=queue)
    try:
        async for event in stream:
            if event.turn_complete:
                break
    finally:
        await stream.aclose()
        await runner.close()
    return journal


async def test_tools_are_hooked_in_live_mode():
    look, seen = seen_by("run.start", "session.start", "agent.start", "tool.start", "tool.end", "run.end")
    judge = at("tool.start", HookResult.block("no"))
    connection = Connection()
    agent = LlmAgent(name="a", model=Live(turns=[], sent=[], connection=connection), tools=[bash])
    journal = await asyncio.wait_for(live(agent, [look, judge]), 60)
    assert ran == []
    assert connection.answers == [{"error": "refused: no"}]
    assert lines(seen) == ["run.start", "session.start", "agent.start", "tool.start c1", "run.end"]
    assert owed(journal.records(journal.runs()[0].run_id)) == []


async def test_a_guard_at_a_point_that_live_mode_does_not_have_keeps_the_run_from_starting():
    agent = LlmAgent(name="a", model=Live(turns=[], sent=[], connection=Connection()), tools=[bash])
    with pytest.raises(RuntimeError, match=r"said .* stands at model.end, which live mode does not have"):
        await asyncio.wait_for(live(agent, at("model.end", GO)), 60)


async def test_every_end_that_is_due_runs_also_after_one_of_them_failed_the_run():
    def judge(c):
        return HookResult.fail("leak") if c.call_id == "c1" else GO

    seen = []

    @hook(on="tool.end", name="slow")
    async def slow(ctx, c):
        # The failure of the first reaches the third while that waits for the second.
        await asyncio.sleep(0.05)
        seen.append((c.call_id, str(c.status), c.current_output["output"]))
        return GO

    calls = [call("a", "c1"), call("b", "c2"), call("c", "c3")]
    async with Adk(agent_with(calls, "done"), [slow, at("tool.end", judge)]) as adk:
        with pytest.raises(RuntimeError, match="leak"):
            await adk.say()
    assert sorted(seen) == [("c1", "ok", "did a"), ("c2", "ok", "did b"), ("c3", "ok", "did c")]
    assert owed(adk.records()) == []


async def test_an_answered_call_among_others_ends_in_its_turn():
    def judge(c):
        return HookResult.answer({"output": "cached"}) if c.call_id == "c2" else GO

    look, seen = seen_by("tool.end")
    calls = [call("a", "c1"), call("b", "c2"), call("c", "c3")]
    async with Adk(agent_with(calls, "done"), [at("tool.start", judge), look]) as adk:
        await adk.say()
        assert [each["output"] for each in adk.responses()] == ["did a", "cached", "did c"]
    assert lines(seen) == ["tool.end c1", "tool.end c2", "tool.end c3"]


async def test_whole_responses_that_come_one_after_another_all_pass_the_hooks():
    class Twice(Scripted):
        async def generate_content_async(self, llm_request, stream=False):
            yield LlmResponse(content=said("first 4711"))
            yield LlmResponse(content=said("second 4711"))

    def hide(c):
        text = c.current_output["text"].replace("4711", "****")
        return HookResult.continue_with(modified_output={"text": text})

    async with Adk(LlmAgent(name="a", model=Twice(turns=[], sent=[])), at("model.end", hide)) as adk:
        await adk.say()
        assert adk.texts() == ["first ****", "second ****"]
    assert owed(adk.records()) == []


async def test_many_runs_at_once_do_not_mix():
    look, seen = seen_by("tool.start", "run.end")

    async def one(number):
        agent = agent_with([call(f"n{number}", "c1")], f"done {number}")
        async with Adk(agent, plugins=[shared]) as adk:
            adk.runner.plugin_manager.set_skip_closing_plugins(True)
            await adk.say(session=f"s{number}")
            return adk.texts()

    shared = HooklinePlugin(look)
    texts = await asyncio.gather(*(one(number) for number in range(50)))
    await shared.close()
    assert texts == [[f"done {number}"] for number in range(50)]
    told = [(c.session_id, c.current_payload["command"]) for c in seen if c.point == "tool.start"]
    assert sorted(told) == sorted((f"s{number}", f"n{number}") for number in range(50))
    assert len({c.run_id for c in seen if c.point == "run.end"}) == 50


async def test_a_task_that_makes_many_runs_keeps_none_that_is_over():
    async with Adk(agent_with("one", "two", tools=())) as adk:
        for _ in range(2):
            await adk.say()
        gc.collect()
        assert [each for each in gc.get_objects() if isinstance(each, AdkRun)] == []


async def test_a_run_whose_start_failed_is_not_taken_up_again():
    plugin = HooklinePlugin(at("run.start", HookResult.fail("enough")))
    async with Adk(agent_with("done"), plugins=[plugin]) as adk:
        with pytest.raises(RuntimeError, match="enough"):
            await adk.say()
        assert plugin._runs == {}


async def test_a_plugin_goes_on_in_the_next_runner_after_the_first_was_closed(tmp_path):
    (tmp_path / "hookline.yaml").write_text(
        "hooks:\n  - {name: no, on: tool.start, shell: 'echo never; exit 1'}\n"
    )
    plugin = HooklinePlugin(tmp_path / "hookline.yaml")
    for _ in range(2):
        async with Adk(agent_with([call()], "done"), plugins=[plugin]) as adk:
            await adk.say()
            assert "never" in adk.responses()[0]["error"]
    assert ran == []


async def test_a_match_that_fitted_no_call_of_a_run_is_said_in_its_record():
    typo = at("tool.start", HookResult.block("no"), name="typo", match="Bash")
    async with Adk(agent_with([call()], "done"), typo) as adk:
        await adk.say()
    notes = [each.note for each in adk.records(Decided) if each.note]
    assert notes == ["hook typo: match 'Bash' fitted no tool call of this run (bash)"]


async def test_the_record_of_a_run_says_whose_it_is_and_what_was_declared():
    async with Adk(agent_with("done"), at("tool.start", GO, name="mine")) as adk:
        await adk.say()
    run = next(each for each in adk.records(Begun) if each.scope == "run")
    assert run.owner is not None
    assert run.declaration["agent"]["tools"] == ["bash"]
    assert [each["name"] for each in run.declaration["hooks"]] == ["mine"]


async def test_a_hook_that_only_watches_decides_nothing():
    async with Adk(
        agent_with([call()], "done"), at("tool.start", HookResult.block("no"), observe=True)
    ) as adk:
        await adk.say()
    assert ran == ["ls"]
    called = [each for each in adk.records(Called) if each.point == "tool.start"]
    assert [(str(each.action), each.note) for each in called] == [("block", "would have said block")]


async def test_an_agent_that_runs_again_and_again_is_ended_each_time():
    look, seen = seen_by("agent.start", "agent.end")
    inner = agent_with("one", "two", name="inner", tools=())
    async with Adk(LoopAgent(name="loop", sub_agents=[inner], max_iterations=2), look) as adk:
        await adk.say()
    assert [(str(c.point), c.agent) for c in seen] == [
        ("agent.start", "loop"),
        ("agent.start", "inner"),
        ("agent.end", "inner"),
        ("agent.start", "inner"),
        ("agent.end", "inner"),
        ("agent.end", "loop"),
    ]


async def test_a_hook_for_points_that_adk_does_not_have_is_told_of(caplog):
    look, _ = seen_by("workspace.start")
    await HooklinePlugin(look).close()
    assert "never runs here: ADK has none of its points" in caplog.text


# -- the guide ------------------------------------------------------------------------------------------------

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "google-adk.md"
SAMPLES = re.findall(r"^```py\n(.*?)^```$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("code", SAMPLES, ids=range(len(SAMPLES)))
def test_a_sample_of_the_guide_runs(code, tmp_path):
    file = tmp_path / "sample.py"
    file.write_text(code)
    done = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len(SAMPLES) == 2


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
