"""langchain: a create_agent graph with middleware round the tool and before the model."""

from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool

from measure import Case, measure
from timing import Run

TURNS = 5
GRAPH_STEPS = 10_000


class Scripted(BaseChatModel):
    asked: int = 0

    @property
    def _llm_type(self):
        return "scripted"

    def bind_tools(self, tools, **kwargs):
        return self

    def _generate(self, messages, stop=None, run_manager=None, **kwargs):
        self.asked += 1
        message = self.call() if self.asked % (TURNS + 1) else AIMessage("done")
        return ChatResult(generations=[ChatGeneration(message=message)])

    async def _agenerate(self, messages, stop=None, run_manager=None, **kwargs):
        return self._generate(messages)

    def call(self):
        return AIMessage(
            "", tool_calls=[{"name": "add", "args": {"x": 1}, "id": f"c{self.asked}", "type": "tool_call"}]
        )


@tool
async def add(x: int) -> int:
    """Add one."""
    return x + 1


async def around_tool(self, request, handler):
    return await handler(request)


async def before_model(self, state, runtime):
    return None


def with_tool_wrappers(n: int) -> Run:
    return agent_run([middleware(i, awrap_tool_call=around_tool) for i in range(n)])


def with_model_hooks(n: int) -> Run:
    return agent_run([middleware(i, abefore_model=before_model) for i in range(n)])


def middleware(number: int, **methods) -> AgentMiddleware:
    """A class each, because the agent tells middleware apart by name."""
    return type(f"Noop{number}", (AgentMiddleware,), {"name": f"noop{number}", **methods})()


def agent_run(with_these: list[AgentMiddleware]) -> Run:
    agent = create_agent(Scripted(), [add], middleware=with_these)

    async def run(calls: int) -> None:
        for _ in range(calls // TURNS):
            await agent.ainvoke({"messages": [("user", "go")]}, {"recursion_limit": GRAPH_STEPS})

    return run


CASES = (
    Case(
        "awrap_tool_call",
        with_tool_wrappers,
        (around_tool,),
        events=1,
        step=TURNS,
        note="one wrapper is before and after; counted as one event",
    ),
    Case(
        "abefore_model",
        with_model_hooks,
        (before_model,),
        hooks=(1, 10),
        events=(TURNS + 1) / TURNS,
        step=TURNS,
        note="a graph node each, and no tool hook; asked once more than there are tool calls",
    ),
)

if __name__ == "__main__":
    measure("langchain", CASES, ("langchain", "langchain-core", "langgraph"))
