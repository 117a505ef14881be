"""Tools: what a function may look like, what the model is told of it, and how a call can go wrong."""

import asyncio
import functools
import json
import threading
from typing import Any

import pytest
from pydantic import BaseModel, Field

from hookline import Agent, HookResult, Scripted, Tool, UsageError, WorkflowContext, tool
from tests.agents import Seen, answering, calls, texts


def using(*tools: Any, turns: Any, **given: Any) -> Agent:
    return Agent(id="a", model=Scripted([*turns, "done"]), tools=tools, **given)


async def result_of(made: Any, arguments: Any = None, **given: Any) -> Any:
    agent = using(made, turns=[calls((made.id, arguments or {}))], **given)
    return (await agent.run("hi")).tool_results[0]


class Query(BaseModel):
    text: str = Field(description="what to look for")
    most: int = 3


# -- shapes ----------------------------------------------------------------------------------------------------


async def test_a_tool_may_take_plain_typed_parameters() -> None:
    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    assert (add.id, add.description) == ("add", "Add two numbers.")
    assert add.parameters["required"] == ["a"]
    assert add.parameters["properties"]["a"]["type"] == "integer"
    assert add.parameters["properties"]["b"]["default"] == 2
    assert (await result_of(add, {"a": "40"})).result == 42


async def test_a_tool_may_take_one_model() -> None:
    @tool(description="Look.")
    async def look(ctx: WorkflowContext, input: Query) -> list[str]:
        return [input.text] * input.most

    assert look.parameters["properties"]["text"]["description"] == "what to look for"
    assert (await result_of(look, {"text": "x"})).result == ["x"] * 3


async def test_a_tool_is_given_the_execution_as_its_first_parameter() -> None:
    @tool
    def by_name(ctx) -> Any:
        return [ctx.agent_id, ctx.workspace]

    @tool
    def by_annotation(workflow: WorkflowContext, x: int = 1) -> Any:
        return [workflow.agent_id, x]

    assert by_name.parameters.get("properties", {}) == {}
    assert (await result_of(by_name, workspace="/somewhere")).result == ["a", "/somewhere"]
    assert (await result_of(by_annotation)).result == ["a", 1]


async def test_state_is_shared_by_the_tools_and_hooks_of_a_run() -> None:
    @tool
    def remember(ctx: WorkflowContext) -> str:
        ctx.state["seen"] = 1
        return "ok"

    seen = Seen()
    await result_of(remember, on_tool_end=[seen.noting()])
    assert seen.workflows[0].state == {"seen": 1}


async def test_parameters_may_have_names_that_a_model_class_could_not_have() -> None:
    @tool
    def odd(schema: str, _hidden: int = 1, copy: str = "c") -> Any:
        return [schema, _hidden, copy]

    assert set(odd.parameters["properties"]) == {"schema", "_hidden", "copy"}
    assert (await result_of(odd, {"schema": "s", "_hidden": 5})).result == ["s", 5, "c"]


async def test_arguments_that_the_function_does_not_have_are_left_out() -> None:
    @tool
    def plain(a: int = 1) -> int:
        return a

    assert (await result_of(plain, {"a": 2, "_source": "hook"})).result == 2


async def test_a_plain_function_and_a_tool_made_by_hand_can_be_given_too() -> None:
    def twice(text: str) -> str:
        """Say it twice."""
        return text * 2

    async def body(_ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
        return list(arguments)

    by_hand = Tool(id="by_hand", description="", parameters={"type": "object"}, body=body)
    agent = using(twice, by_hand, turns=[calls(("twice", {"text": "ab"}), ("by_hand", {"x": 1}))])

    assert [found.result for found in (await agent.run("hi")).tool_results] == ["abab", ["x"]]


async def test_a_sync_tool_runs_in_a_thread_and_an_async_one_on_the_loop() -> None:
    @tool
    def sync_one() -> bool:
        return threading.current_thread() is threading.main_thread()

    @tool
    async def async_one() -> bool:
        return threading.current_thread() is threading.main_thread()

    assert (await result_of(sync_one)).result is False
    assert (await result_of(async_one)).result is True


async def test_sync_tools_of_a_step_run_together() -> None:
    both = threading.Barrier(2, timeout=30)

    @tool
    def meet() -> str:
        both.wait()
        return "met"

    agent = using(meet, turns=[calls("meet", "meet")])
    assert [found.result for found in (await agent.run("hi")).tool_results] == ["met", "met"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda *args: None, "cannot be described to a model"),
        (lambda **kwargs: None, "cannot be described to a model"),
        (functools.partial(print), "has no name"),
    ],
)
def test_a_function_that_cannot_be_described_is_refused(function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        tool(function)


def test_an_unknown_kind_of_approval_is_refused() -> None:
    with pytest.raises(UsageError, match="approval is 'sometimes'; known: none, always"):
        tool(approval="sometimes")(lambda: "done")


# -- what goes wrong -------------------------------------------------------------------------------------------


@tool
def strict(count: int) -> int:
    return count


async def test_an_unknown_tool_is_told_to_the_model_and_has_no_hooks() -> None:
    seen = Seen()
    agent = using(strict, turns=[calls("strct", ("strict", {"count": 1}))], on_tool_start=[seen.noting()])

    result = await agent.run("hi")

    first, second = result.tool_results
    assert (first.status, second.status) == ("failed", "ok")
    assert first.error == "there is no tool 'strct'; the tools are: strict"
    assert texts(agent.model.requests[1])[-2] == f"Error: {first.error}"
    assert [context.current_tool for context in seen.contexts] == ["strict"]
    assert result.result == "done"


@pytest.mark.parametrize("raw", ['{"count": ', "[1]", "seven", "null"])
async def test_arguments_that_are_no_json_object_are_told_to_the_model_with_what_it_wrote(raw: str) -> None:
    seen = Seen()
    agent = using(strict, turns=[calls(("strict", raw))], on_tool_start=[seen.noting()])

    result = await agent.run("hi")

    (found,) = result.tool_results
    assert found.status == "failed"
    assert "are not a JSON object" in (found.error or "")
    assert raw in (found.error or "")
    assert seen.contexts == []
    call = agent.model.requests[1].messages[1]["tool_calls"][0]
    assert call["raw_arguments"] == raw


async def test_arguments_that_do_not_fit_are_told_by_name_and_the_function_is_not_called() -> None:
    seen = Seen()
    found = await result_of(strict, {"count": "many"}, on_tool_end=[seen.noting()])
    assert found.status == "failed"
    assert found.error.startswith("the arguments do not fit: count: ")
    assert seen.only("tool.end").status == "failed"


async def test_arguments_are_checked_after_the_hooks_changed_them() -> None:
    change = answering(HookResult.continue_with(modified_payload={"count": "7"}))
    assert (await result_of(strict, {"count": "many"}, on_tool_start=[change])).result == 7


@pytest.mark.parametrize("change", ["text", [1], None])
async def test_arguments_that_a_hook_made_no_mapping_fail_the_call_and_not_the_run(change: Any) -> None:
    result = HookResult.continue_with(modified_payload=change) if change else HookResult.continue_with()
    found = await result_of(strict, {"count": 1}, on_tool_start=[answering(result)])
    assert found.status == ("failed" if change else "ok")


async def test_a_failing_tool_is_told_to_the_model_which_goes_on() -> None:
    @tool
    async def broken() -> str:
        raise LookupError("nothing there")

    found = await result_of(broken)
    assert (found.status, found.error) == ("failed", "LookupError: nothing there")
    assert found.result == {"error": "LookupError: nothing there"}


async def test_one_failing_tool_does_not_disturb_the_others_of_its_step() -> None:
    @tool
    async def broken() -> str:
        raise LookupError

    agent = using(broken, strict, turns=[calls("broken", ("strict", {"count": 3}))])
    assert [found.status for found in (await agent.run("hi")).tool_results] == ["failed", "ok"]


async def test_a_tool_past_its_limit_has_timed_out_and_the_run_goes_on() -> None:
    cancelled: list[bool] = []

    @tool(timeout=0.01)
    async def hangs() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.append(True)
        return "never"

    seen = Seen()
    found = await result_of(hangs, on_tool_end=[seen.noting()])

    assert (found.status, found.error) == ("timed_out", "hangs ran past its limit of 0.01 s")
    assert seen.only("tool.end").status == "timed_out"
    assert cancelled == [True]


async def test_a_sync_tool_past_its_limit_does_not_hold_up_the_run() -> None:
    release = threading.Event()

    @tool(timeout=0.01)
    def hangs() -> str:
        release.wait(30)
        return "late"

    found = await result_of(hangs)
    release.set()

    assert found.status == "timed_out"


async def test_a_timeout_error_of_the_tools_own_is_a_failure_and_not_its_limit() -> None:
    @tool(timeout=30)
    async def gives_up() -> str:
        raise TimeoutError("upstream is slow")

    found = await result_of(gives_up)
    assert (found.status, found.error) == ("failed", "TimeoutError: upstream is slow")


async def test_a_hook_may_mend_the_result_of_a_failed_tool() -> None:
    @tool
    def broken() -> str:
        raise ValueError("no")

    agent = using(
        broken,
        turns=[calls("broken")],
        on_tool_end=[answering(HookResult.continue_with(modified_output={"error": "try another tool"}))],
    )
    await agent.run("hi")
    assert texts(agent.model.requests[1])[-1] == "Error: try another tool"


class Point(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("text", "text"),
        ({"a": 1}, '{"a": 1}'),
        ([1], "[1]"),
        (None, "null"),
        (Point(x=1), '{"x": 1}'),
        ("ü", "ü"),
    ],
)
async def test_what_the_model_reads_of_a_result(value: Any, shown: str) -> None:
    @tool
    def give() -> Any:
        return value

    agent = using(give, turns=[calls("give")])
    await agent.run("hi")
    assert texts(agent.model.requests[1])[-1] == shown


async def test_a_call_and_its_result_are_paired_in_what_the_model_is_sent() -> None:
    agent = using(strict, turns=[calls(("strict", {"count": 1}), ("strict", {"count": 2}))])
    await agent.run("hi")
    _, asked, *results = agent.model.requests[1].messages
    assert [call["id"] for call in asked["tool_calls"]] == [each["tool_call_id"] for each in results]
    assert [json.loads(each["content"]) for each in results] == [1, 2]
