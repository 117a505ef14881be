"""openai-agents: the Runner with a scripted model; RunHooks and tool guardrails."""

from agents import (
    Agent,
    ModelResponse,
    RunConfig,
    RunHooks,
    Runner,
    ToolGuardrailFunctionOutput,
    Usage,
    function_tool,
    set_tracing_disabled,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.models.interface import Model
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from measure import UP_TO_1000, Case, measure
from timing import Run

TURNS = 5


class Scripted(Model):
    def __init__(self):
        self.asked = 0

    async def get_response(self, *args, **kwargs):
        self.asked += 1
        output = self.call() if self.asked % (TURNS + 1) else self.answer()
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def call(self):
        return ResponseFunctionToolCall(
            id=f"f{self.asked}",
            call_id=f"c{self.asked}",
            type="function_call",
            name="add",
            arguments='{"x": 1}',
            status="completed",
        )

    def answer(self):
        text = ResponseOutputText(type="output_text", text="done", annotations=[])
        return ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[text]
        )

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


async def noop(*args):
    return None


class FanOut(RunHooks):
    """RunHooks is one object, so several hooks need a loop of your own."""

    def __init__(self, n):
        self.hooks = [noop] * n

    async def on_tool_start(self, context, agent, tool):
        for hook in self.hooks:
            await hook(context, agent, tool)

    async def on_tool_end(self, context, agent, tool, result):
        for hook in self.hooks:
            await hook(context, agent, tool, result)


async def allow_input(data):
    return ToolGuardrailFunctionOutput.allow()


async def allow_output(data):
    return ToolGuardrailFunctionOutput.allow()


def with_run_hooks(n: int) -> Run:
    return agent_run(FanOut(n) if n else None, 0)


def with_guardrails(n: int) -> Run:
    return agent_run(None, n)


def agent_run(hooks: RunHooks | None, guardrails: int) -> Run:
    @function_tool
    async def add(x: int) -> int:
        return x + 1

    add.tool_input_guardrails = [tool_input_guardrail(allow_input)] * guardrails
    add.tool_output_guardrails = [tool_output_guardrail(allow_output)] * guardrails
    agent = Agent(name="a", model=Scripted(), tools=[add])
    config = RunConfig(tracing_disabled=True)

    async def run(calls: int) -> None:
        for _ in range(calls // TURNS):
            await Runner.run(agent, "go", hooks=hooks, max_turns=TURNS + 2, run_config=config)

    return run


CASES = (
    Case(
        "RunHooks, tool start and end",
        with_run_hooks,
        (noop,),
        hooks=UP_TO_1000,
        step=TURNS,
        note="takes one object: the loop over N hooks is the user's own",
    ),
    Case(
        "tool input and output guardrails",
        with_guardrails,
        (allow_input, allow_output),
        hooks=UP_TO_1000,
        step=TURNS,
    ),
)

if __name__ == "__main__":
    set_tracing_disabled(True)
    measure("openai-agents", CASES, ("openai-agents", "openai"))
