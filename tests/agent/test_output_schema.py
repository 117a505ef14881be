"""Structured output: the model is told the schema, its answer is read by it, and repaired once."""

from typing import Any

import pytest
from pydantic import BaseModel

from hookline import Agent, AgentFailed, HookResult, Scripted
from tests.agents import Seen, answering, calls, texts


class City(BaseModel):
    name: str
    people: int


PARIS = '{"name": "Paris", "people": 2100000}'


def asking(*turns: Any, schema: Any = City, **given: Any) -> Agent:
    return Agent(id="a", model=Scripted(list(turns)), output_schema=schema, **given)


async def test_the_answer_is_a_value_of_the_schema_and_the_model_was_told_it() -> None:
    agent = asking(PARIS)
    result = await agent.run("hi")
    assert result.result == City(name="Paris", people=2100000)
    assert result.result_schema == "City"
    (request,) = agent.model.requests
    assert request.output_schema_name == "City"
    assert request.output_schema["required"] == ["name", "people"]


@pytest.mark.parametrize("text", [f"```json\n{PARIS}\n```", f"```\n{PARIS}\n```", f"  {PARIS}\n"])
async def test_code_fences_around_the_answer_are_forgiven(text: str) -> None:
    assert (await asking(text).run("hi")).result.name == "Paris"


async def test_any_type_will_do() -> None:
    assert (await asking("[1, 2]", schema=list[int]).run("hi")).result == [1, 2]


async def test_an_answer_that_does_not_fit_is_repaired_in_a_step_of_its_own() -> None:
    seen = Seen()
    agent = asking('{"name": "Paris"}', PARIS, on_agent_step_end=[seen.noting()], on_end=[seen.noting()])

    result = await agent.run("hi")

    assert result.result == City(name="Paris", people=2100000)
    assert result.total_steps == 2
    assert "people: Field required" in texts(agent.model.requests[1])[-1]
    assert seen.points == ["step.end", "step.end", "agent.end"]
    assert seen.only("agent.end").current_output["result"] == {"name": "Paris", "people": 2100000}


async def test_an_answer_that_does_not_fit_twice_fails_the_run() -> None:
    agent = asking("no json", "still none", PARIS)
    with pytest.raises(AgentFailed, match=r"does not fit City.*\(after one repair\)"):
        await agent.run("hi")
    assert len(agent.model.requests) == 2


async def test_a_hooks_change_of_the_answer_is_validated_and_typed_again() -> None:
    change = answering(HookResult.continue_with(modified_output={"result": {"name": "Rome", "people": "3"}}))
    assert (await asking(PARIS, on_end=[change]).run("hi")).result == City(name="Rome", people=3)


async def test_a_hooks_change_that_does_not_fit_is_refused() -> None:
    change = answering(HookResult.continue_with(modified_output={"result": {"name": "Rome"}}))
    with pytest.raises(AgentFailed, match=r"a hook at agent.end gave the answer: .*people"):
        await asking(PARIS, on_end=[change]).run("hi")


async def test_an_answer_in_the_agents_place_is_read_by_the_schema_too() -> None:
    good = answering(HookResult.answer({"name": "Bonn", "people": 1}))
    assert (await asking(on_start=[good]).run("hi")).result == City(name="Bonn", people=1)
    with pytest.raises(AgentFailed, match=r"a hook at agent.start gave the answer: .*people"):
        await asking(on_start=[answering(HookResult.answer({"name": "Bonn"}))]).run("hi")


async def test_an_agent_that_was_stopped_early_has_no_structured_answer() -> None:
    from hookline import max_steps, tool

    @tool
    def look() -> str:
        return "seen"

    agent = asking(calls("look", text="on my way"), tools=[look], stop_conditions=max_steps(count=1))
    result = await agent.run("hi")
    assert (result.result, result.stopped_by is not None) == ("on my way", True)
