"""strands-agents: the agent with hooks or interventions at the tool; and its HookRegistry alone."""

import logging

from strands import Agent, tool
from strands.hooks import AfterToolCallEvent, BeforeToolCallEvent, HookRegistry
from strands.interventions import InterventionHandler, Proceed
from strands.models.model import Model

import bare
from measure import DISPATCH, UP_TO_1000, Case, measure
from timing import Run

TURNS = 5


class Scripted(Model):
    asked = 0

    def update_config(self, **kwargs): ...

    def get_config(self):
        return {}

    async def structured_output(self, *args, **kwargs):
        yield {}

    async def stream(self, *args, **kwargs):
        self.asked += 1
        calls = self.asked % (TURNS + 1)
        yield {"messageStart": {"role": "assistant"}}
        for block in self.call() if calls else self.answer():
            yield block
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}}

    def call(self):
        yield {"contentBlockStart": {"start": {"toolUse": {"name": "add", "toolUseId": f"c{self.asked}"}}}}
        yield {"contentBlockDelta": {"delta": {"toolUse": {"input": '{"x": 1}'}}}}

    def answer(self):
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": "done"}}}


@tool
async def add(x: int) -> str:
    """Add one."""
    return str(x + 1)


async def noop(event):
    return None


async def proceed_before(self, event, **kwargs):
    return Proceed()


async def proceed_after(self, event, **kwargs):
    return Proceed()


def intervention(number: int) -> InterventionHandler:
    members = {"name": f"h{number}", "before_tool_call": proceed_before, "after_tool_call": proceed_after}
    return type(f"Noop{number}", (InterventionHandler,), members)()


def with_hooks(n: int) -> Run:
    agent = Agent(model=Scripted(), tools=[add], callback_handler=None)
    add_hooks(agent.hooks, n)
    return agent_run(agent)


def with_interventions(n: int) -> Run:
    handlers = [intervention(i) for i in range(n)] or None
    return agent_run(Agent(model=Scripted(), tools=[add], callback_handler=None, interventions=handlers))


def add_hooks(registry: HookRegistry, n: int) -> None:
    for _ in range(n):
        registry.add_callback(BeforeToolCallEvent, noop)
        registry.add_callback(AfterToolCallEvent, noop)


def agent_run(agent: Agent) -> Run:
    async def run(calls: int) -> None:
        for _ in range(calls // TURNS):
            agent.messages.clear()
            await agent.invoke_async("go")

    return run


def dispatch(n: int) -> Run:
    registry = HookRegistry()
    add_hooks(registry, n)
    given = {
        "agent": None,
        "selected_tool": None,
        "tool_use": {"name": "add", "toolUseId": "1", "input": {"x": 1}},
        "invocation_state": {},
    }

    async def run(calls: int) -> None:
        for _ in range(calls):
            await registry.invoke_callbacks_async(BeforeToolCallEvent(**given))
            await bare.tool(1)
            await registry.invoke_callbacks_async(AfterToolCallEvent(**given, result={}))

    return run


CASES = (
    Case("hooks", with_hooks, (noop,), hooks=UP_TO_1000, step=TURNS),
    Case("interventions", with_interventions, (proceed_before, proceed_after), hooks=UP_TO_1000, step=TURNS),
    Case("HookRegistry", dispatch, (noop,), DISPATCH),
)

if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    measure("strands", CASES, ("strands-agents",))
