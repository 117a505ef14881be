"""google-adk: the Runner with plugins or with an agent's tool callbacks; and its PluginManager alone."""

import logging

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.plugins.plugin_manager import PluginManager
from google.adk.runners import InMemoryRunner
from google.genai import types

import bare
from measure import DISPATCH, UP_TO_1000, Case, measure
from timing import Run

TURNS = 5
NAMES = {"app_name": "bench", "user_id": "u"}


class Scripted(BaseLlm):
    asked: int = 0

    async def generate_content_async(self, llm_request, stream=False):
        self.asked += 1
        part = self.call() if self.asked % (TURNS + 1) else types.Part(text="done")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def call(self):
        return types.Part(function_call=types.FunctionCall(id=f"c{self.asked}", name="add", args={"x": 1}))


async def add(x: int) -> dict:
    """Add one."""
    return {"result": x + 1}


class Noop(BasePlugin):
    async def before_tool_callback(self, *, tool, tool_args, tool_context):
        return None

    async def after_tool_callback(self, *, tool, tool_args, tool_context, result):
        return None


async def before(tool, args, tool_context):
    return None


async def after(tool, args, tool_context, tool_response):
    return None


def plugins(n: int) -> list[BasePlugin]:
    return [Noop(name=f"p{i}") for i in range(n)]


def with_plugins(n: int) -> Run:
    return agent_run(plugins(n), [], [])


def with_callbacks(n: int) -> Run:
    return agent_run([], [before] * n, [after] * n)


def agent_run(with_these, befores, afters) -> Run:
    agent = LlmAgent(
        name="a",
        model=Scripted(model="scripted"),
        tools=[add],
        before_tool_callback=befores,
        after_tool_callback=afters,
    )
    runner = InMemoryRunner(agent=agent, app_name=NAMES["app_name"], plugins=with_these)
    sessions = runner.session_service
    message = types.Content(role="user", parts=[types.Part(text="go")])

    async def run(calls: int) -> None:
        for _ in range(calls // TURNS):
            session = await sessions.create_session(**NAMES)
            async for _event in runner.run_async(user_id="u", session_id=session.id, new_message=message):
                pass
            await sessions.delete_session(**NAMES, session_id=session.id)

    return run


def dispatch(n: int) -> Run:
    manager = PluginManager(plugins(n))

    async def run(calls: int) -> None:
        for _ in range(calls):
            await manager.run_before_tool_callback(tool=None, tool_args={"x": 1}, tool_context=None)
            await bare.tool(1)
            await manager.run_after_tool_callback(tool=None, tool_args={"x": 1}, tool_context=None, result={})

    return run


PLUGIN_HOOKS = (Noop.before_tool_callback, Noop.after_tool_callback)
CASES = (
    Case(
        "plugins",
        with_plugins,
        PLUGIN_HOOKS,
        hooks=UP_TO_1000,
        step=TURNS,
        note="a plugin is also asked at the other points of a turn",
    ),
    Case("agent tool callbacks", with_callbacks, (before, after), step=TURNS),
    Case("PluginManager", dispatch, PLUGIN_HOOKS, DISPATCH),
)

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    measure("google-adk", CASES, ("google-adk", "google-genai"))
