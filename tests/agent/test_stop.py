"""Stop conditions: when an agent that could go on ends all the same."""

from typing import Any

import pytest

from hookline import (
    Agent,
    AgentFailed,
    ExecutedToolConfig,
    HasTextConfig,
    HookResult,
    MaxStepsConfig,
    MaxTokensConfig,
    Scripted,
    StopConditionContext,
    UsageError,
    executed_tool,
    has_text,
    max_steps,
    max_tokens,
    stop_condition,
    tool,
)
from hookline.engine.record import Decided
from tests.agents import answering, calls


@tool
def echo() -> str:
    return "echo"


@tool
def other() -> str:
    return "other"


def going_on(turns: list[Any], *conditions: Any, **given: Any) -> Agent:
    return Agent(
        id="a", model=Scripted(turns, repeat=True), tools=[echo, other], stop_conditions=conditions, **given
    )


async def test_without_a_condition_an_agent_fails_after_twenty_steps_and_says_so() -> None:
    endless = going_on([calls("echo", text="thinking")])
    with pytest.raises(AgentFailed, match="ended at its limit of 20 steps, without an answer"):
        await endless.run("hi")
    assert len(endless.model.requests) == 20


async def test_an_agent_that_a_condition_stops_says_so() -> None:
    records: list[Any] = []
    stopped = going_on([calls("echo", text="thinking")], executed_tool(tool_names=["echo"]))
    result = await stopped.run("hi", watch=[records.append])
    told = f"stopped by {stopped.stop_conditions[0]}"
    assert (result.result, result.notices) == ("thinking", (told,))
    assert [record.note for record in records if isinstance(record, Decided)] == [told]


async def test_an_agent_that_ends_by_itself_was_not_stopped() -> None:
    result = await going_on(["done"], max_steps(count=1)).run("hi")
    assert (result.result, result.stopped_by) == ("done", None)


@pytest.mark.parametrize("given", [{"count": 3}, {"limit": 3}])
async def test_max_steps_counts_steps(given: dict[str, int]) -> None:
    assert (await going_on([calls("echo")], max_steps(MaxStepsConfig(**given))).run("hi")).total_steps == 3


async def test_max_tokens_counts_what_all_steps_used() -> None:
    turn = calls("echo", usage={"input_tokens": 30, "output_tokens": 10})
    result = await going_on([turn], max_tokens(MaxTokensConfig(limit=100))).run("hi")
    assert (result.total_steps, result.usage.total_tokens) == (3, 120)


async def test_executed_tool_waits_for_every_named_tool() -> None:
    condition = executed_tool(ExecutedToolConfig(tool_names=["echo", "other"]))
    result = await going_on([calls("echo"), calls("echo"), calls("other")], condition).run("hi")
    assert result.total_steps == 3


async def test_a_refused_call_has_not_executed_its_tool() -> None:
    refusals = iter([HookResult.block("not yet")])
    agent = going_on(
        [calls("echo")],
        executed_tool(tool_names=["echo"]),
        on_tool_start=[answering(lambda _: next(refusals, HookResult.continue_with()))],
    )
    assert (await agent.run("hi")).total_steps == 2


async def test_has_text_looks_for_all_pieces_in_the_last_step() -> None:
    condition = has_text(HasTextConfig(texts=["FINAL", "ANSWER"]))
    turns = [calls("echo", text="FINAL"), calls("echo", text="FINAL ANSWER")]
    result = await going_on(turns, condition).run("hi")
    assert (result.total_steps, result.result) == (2, "FINAL ANSWER")


async def test_a_condition_of_ones_own_may_be_async_and_have_a_configuration() -> None:
    class Config:
        def __init__(self, word: str = "stop") -> None:
            self.word = word

    seen: list[StopConditionContext] = []

    @stop_condition
    async def says(context: StopConditionContext, config: Config) -> bool:
        seen.append(context)
        return config.word in (context.steps[-1].content or "")

    result = await going_on([calls("echo", text="go"), calls("echo", text="stop")], says).run("hi")

    assert result.total_steps == 2
    assert seen[0].agent_id == "a"
    assert seen[0].agent_run_id == result.agent_run_id


async def test_the_first_condition_that_holds_is_named() -> None:
    result = await going_on(
        [calls("echo")], has_text(texts=["x"]), max_steps(count=2), max_steps(count=1)
    ).run("hi")
    assert result.total_steps == 1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: max_steps(counts=5), "max_steps: cannot be configured with"),
        (lambda: max_steps(MaxTokensConfig(limit=1)), "max_steps takes MaxStepsConfig, not MaxTokensConfig"),
        (lambda: max_steps(count=0), "give 1 or more"),
        (lambda: stop_condition(lambda: True), r"takes \(context\) or \(context, config\)"),
        (lambda: stop_condition(lambda context, config: True), "annotate 'config' with its class"),
    ],
)
def test_a_wrong_configuration_is_refused(make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make()
