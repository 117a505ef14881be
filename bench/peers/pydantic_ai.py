"""pydantic-ai: the agent on a FunctionModel, with hooks and capabilities at the tool."""

from pydantic_ai import Agent
from pydantic_ai.capabilities import AbstractCapability, Hooks
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from measure import UP_TO_1000, Case, measure
from timing import Run

TURNS = 5
LIMIT = 5


def scripted() -> FunctionModel:
    asked = 0

    async def respond(messages, agent_info):
        nonlocal asked
        asked += 1
        call = ToolCallPart("add", {"x": 1}, tool_call_id=f"c{asked}")
        return ModelResponse(parts=[call if asked % (TURNS + 1) else TextPart("done")])

    return FunctionModel(respond)


async def before(ctx, *, call, tool_def, args):
    return args


async def after(ctx, *, call, tool_def, args, result):
    return result


def sync_before(ctx, *, call, tool_def, args):
    return args


def sync_after(ctx, *, call, tool_def, args, result):
    return result


class Noop(AbstractCapability):
    async def before_tool_execute(self, ctx, *, call, tool_def, args):
        return args

    async def after_tool_execute(self, ctx, *, call, tool_def, args, result):
        return result


def with_hooks(n: int) -> Run:
    return agent_run(hooks(n, before, after))


def with_limited_hooks(n: int) -> Run:
    return agent_run(hooks(n, before, after, timeout=LIMIT))


def with_sync_hooks(n: int) -> Run:
    return agent_run(hooks(n, sync_before, sync_after))


def with_capabilities(n: int) -> Run:
    return agent_run([Noop() for _ in range(n)])


def hooks(n: int, start, end, **options) -> list[AbstractCapability]:
    if not n:
        return []
    one = Hooks()
    for _ in range(n):
        one.on.before_tool_execute(start, **options)
        one.on.after_tool_execute(end, **options)
    return [one]


def agent_run(capabilities: list[AbstractCapability]) -> Run:
    agent = Agent(scripted(), capabilities=capabilities)

    @agent.tool_plain
    async def add(x: int) -> int:
        return x + 1

    async def run(calls: int) -> None:
        for _ in range(calls // TURNS):
            await agent.run("go")

    return run


CASES = (
    Case(
        "Hooks, async",
        with_hooks,
        (before, after),
        hooks=UP_TO_1000,
        step=TURNS,
        note="at N=1 mostly the fixed cost of the first capability",
    ),
    Case("Hooks, async, timeout=5", with_limited_hooks, (before, after), step=TURNS, limited=True),
    Case(
        "Hooks, sync (a thread each)",
        with_sync_hooks,
        (sync_before, sync_after),
        hooks=(1, 10),
        step=TURNS,
        threaded=True,
    ),
    Case(
        "one capability a hook",
        with_capabilities,
        (Noop.before_tool_execute, Noop.after_tool_execute),
        step=TURNS,
        note="a capability also takes part in the other phases of a turn",
    ),
)

if __name__ == "__main__":
    measure("pydantic-ai", CASES, ("pydantic-ai-slim",))
