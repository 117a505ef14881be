"""The numbered rules that Polos and its Python package state, and its bugs, which hookline must not have.

Kept though only upstream has them: D2, D4, D6, D8, D9, D11, C1, C3, R3, R5 to R7, R9, A1 (one callable, None), A2 (the
messages; a tuple is accepted), A3, O4, O8, F1, F5, F6, W1 to W4, W6, W7, the stop conditions. Not kept: D3 (options), D7
(what can be called with two arguments counts), A5 (a run's hooks hold in sub-agents), F7 (ends run after a failure), F8
(hooks have limits), C4, C5. Not in this version: durable replay (S1 to S9), guardrails (G1 to G4), `@workflow` (A4).
"""

import asyncio
import functools
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from hookline import (
    Agent,
    AgentConfig,
    AgentResult,
    HookAction,
    HookContext,
    HookFailed,
    HookResult,
    MaxStepsConfig,
    Refused,
    RunEnded,
    Scripted,
    Step,
    StopConditionContext,
    WorkflowContext,
    hook,
    max_steps,
    stop_condition,
    tool,
)
from tests.agents import SEEDS_KEYWORDS, Seen, answering, calls, texts

CONTINUE = HookResult.continue_with()
STARTS = ("on_start", "on_agent_step_start", "on_tool_start")


@tool
def echo(text: str = "") -> str:
    return text


@tool
def count_up(start: int = 0) -> dict[str, Any]:
    return {"count": start + 1, "unit": "things"}


@tool
def broken() -> str:
    raise ValueError("no such thing")


def using(*tools: Any, turns: Any = None, **given: Any) -> Agent:
    """An agent that calls each of its tools once, together, and then answers."""
    script = turns or [calls(*(each.id for each in tools)), "done"]
    return Agent(id="a", model=Scripted(script), tools=tools, **given)


# -- the decorator ---------------------------------------------------------------------------------------------


@pytest.mark.rule("polos D1", "polos D2", "polos D4", "polos 1.14.16", "polos 1.14.17")
def test_bare_and_with_empty_parentheses_the_decorator_returns_the_function_itself() -> None:
    def good(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    assert hook(good) is good
    assert hook()(good) is good
    assert good(None, None) is CONTINUE


@pytest.mark.rule("polos D5", "polos 1.14.13")
async def test_two_parameters_of_any_name_with_or_without_annotations() -> None:
    ran: list[str] = []

    @hook
    def other_names(workflow, hook_ctx):
        ran.append(hook_ctx.workflow_id)
        return CONTINUE

    await using(turns=["ok"], on_start=[other_names]).run("hi")

    assert ran == ["a"]


@pytest.mark.rule("polos D6", "polos 1.14.14", "polos 1.14.15", "polos 1.14.18")
@pytest.mark.parametrize(
    "bad", [lambda: None, lambda ctx: None, lambda a, b, c: None, lambda a, *, b: None, lambda a, **b: None]
)
def test_what_cannot_be_called_with_two_arguments_is_refused_at_decoration(bad: Any) -> None:
    with pytest.raises(TypeError, match="must have exactly 2 parameters") as caught:
        hook(bad)
    assert "test_polos_rules.py:" in str(caught.value)
    with pytest.raises(TypeError, match="must have exactly 2 parameters"):
        Agent(id="a", model=Scripted(["ok"]), on_start=[bad])


@pytest.mark.rule("polos D7")
@pytest.mark.parametrize(
    "good", [lambda a, b, c=1: CONTINUE, lambda *args: CONTINUE, lambda a, b, **c: CONTINUE]
)
async def test_what_can_be_called_with_two_arguments_is_a_hook(good: Any) -> None:
    assert (await using(turns=["ok"], on_start=[hook(good)]).run("hi")).result == "ok"


class Counting:
    """Callable in four ways: as an object or by method, sync and async."""

    def __init__(self) -> None:
        self.count = 0

    def sync_method(self, ctx: Any, hook_context: Any) -> HookResult:
        self.count += 1
        return CONTINUE

    async def async_method(self, ctx: Any, hook_context: Any) -> HookResult:
        await asyncio.sleep(0)
        self.count += 1
        return CONTINUE

    __call__ = sync_method


class AsyncCounting(Counting):
    async def __call__(self, ctx: Any, hook_context: Any) -> HookResult:
        return await self.async_method(ctx, hook_context)


@pytest.mark.rule("polos D8", "polos D9", "polos D10", "polos D11", "polos B16", "polos 1.15.9")
async def test_methods_lambdas_partials_and_callable_objects_sync_or_async_are_hooks_undecorated_too() -> (
    None
):
    counting, awaited = Counting(), AsyncCounting()
    hooks = [
        counting,
        counting.sync_method,
        hook(counting.async_method),
        awaited,
        functools.partial(Counting.async_method, awaited),
        lambda ctx, hook_context: counting(ctx, hook_context),
        lambda ctx, hook_context: awaited(ctx, hook_context),
    ]

    await using(turns=["ok"], on_start=hooks).run("hi")

    assert (counting.count, awaited.count) == (4, 3)


# -- HookContext -----------------------------------------------------------------------------------------------

ALL_FIELDS = {
    "workflow_id": "w",
    "session_id": "s",
    "user_id": "u",
    "agent_config": AgentConfig(name="w", provider="openai", model="gpt-4o"),
    "steps": (Step(step=1, content="done"),),
    "current_tool": "search",
    "current_payload": {"query": "x"},
    "current_output": {"found": 1},
}


@pytest.mark.rule("polos 1.2", "polos 1.14.2")
def test_a_context_needs_only_a_workflow_id() -> None:
    context = HookContext(workflow_id="w")

    assert context.workflow_id == "w"
    for name in (
        "session_id",
        "user_id",
        "agent_config",
        "current_tool",
        "current_payload",
        "current_output",
    ):
        assert getattr(context, name) is None
    assert context.steps == []
    with pytest.raises(TypeError, match="workflow_id"):
        HookContext(session_id="s")


@pytest.mark.rule("polos 1.14.3")
def test_a_context_with_all_fields_keeps_them() -> None:
    context = HookContext(**ALL_FIELDS)
    assert {name: getattr(context, name) for name in ALL_FIELDS} == {
        **ALL_FIELDS,
        "steps": list(ALL_FIELDS["steps"]),
    }


@pytest.mark.rule("polos C1", "polos 1.14.4", "polos 1.14.5", "polos 1.14.6", "polos 1.14.7")
def test_a_context_goes_to_a_dict_and_comes_back() -> None:
    context = HookContext(**ALL_FIELDS)
    shown = context.to_dict()

    assert (shown["workflow_id"], shown["session_id"], shown["user_id"]) == ("w", "s", "u")
    assert HookContext.from_dict(shown) == context
    assert HookContext.from_dict({"workflow_id": "x"}).workflow_id == "x"
    assert HookContext.from_dict(context) == context
    with pytest.raises(TypeError, match="Cannot create HookContext"):
        HookContext.from_dict("nonsense")  # pyright: ignore[reportArgumentType]


@pytest.mark.rule("polos C2", "polos B9", "polos 1.15.5", "design 7.3")
async def test_session_user_config_and_steps_are_filled_at_all_points() -> None:
    seen = Seen()
    await using(echo, **seen.everywhere()).run("hi", session_id="s", user_id="u")

    assert len({context.point for context in seen.contexts}) == 11  # the session stays open
    for context in seen.contexts:
        assert (context.session_id, context.user_id) == ("s", "u")
        assert context.agent_config is not None
    assert len(seen.only("agent.end").steps) == 2


@pytest.mark.rule("polos C3")
async def test_what_payload_and_output_hold_at_each_point() -> None:
    seen = Seen()
    await using(
        count_up, turns=[calls(("count_up", {"start": 4})), "done"], **seen.everywhere(*SEEDS_KEYWORDS)
    ).run("hi", top_k=3)

    start = {"input": "hi", "prompt": "hi", "streaming": False, "provider_kwargs": {"top_k": 3}}
    assert seen.only("agent.start").current_payload == start
    assert seen.only("agent.end").current_payload == start
    assert set(seen.at("step.end")[0].current_payload) == {"step", "messages"}
    assert seen.at("step.end")[0].current_output["step"] == 1
    assert seen.only("tool.end").current_payload == {"start": 4}
    assert seen.only("tool.end").current_output == {"count": 5, "unit": "things"}
    assert set(seen.only("agent.end").current_output) >= {
        "agent_run_id",
        "result",
        "tool_results",
        "total_steps",
        "usage",
    }


@pytest.mark.rule("polos C4")
async def test_an_absent_output_is_none_for_every_hook_of_a_list() -> None:
    seen = Seen()
    await using(turns=["ok"], on_start=[seen.noting(), seen.noting()]).run("hi")
    assert [context.current_output for context in seen.contexts] == [None, None]


@pytest.mark.rule("polos C6", "polos 1.15.5")
async def test_the_context_names_the_point_the_call_the_attempt_and_the_step() -> None:
    seen = Seen()
    agent = using(
        turns=[calls("echo", "echo"), "done"], on_tool_start=[seen.noting()], on_tool_end=[seen.noting()]
    )
    agent.tools = (echo,)
    result = await agent.run("hi")

    pairs = [(context.point, context.call_id) for context in seen.contexts]
    assert pairs == [
        ("tool.start", "call_1"),
        ("tool.start", "call_2"),
        ("tool.end", "call_1"),
        ("tool.end", "call_2"),
    ]
    assert {(context.attempt, context.step, context.run_id) for context in seen.contexts} == {
        (1, 1, result.agent_run_id)
    }


class Found(BaseModel):
    title: str
    score: int = 1


@tool
def find() -> Found:
    return Found(title="a page")


@pytest.mark.rule("polos C5", "polos C7", "polos 1.15.4")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_payload_and_output_are_plain_dicts_also_where_the_value_is_a_model(keyword: str) -> None:
    def use(context: HookContext) -> HookResult:
        value = context.current_payload if context.point.endswith("start") else context.current_output
        copied = (value or {}).copy()
        copied["extra"] = [key for key, _ in value.items()]
        assert isinstance(value, dict)
        assert {**copied}.get("extra") is not None
        assert context.to_dict()["current_output"] == context.current_output
        return CONTINUE

    assert (await using(find, **{keyword: [answering(use)]}).run("hi")).result == "done"


# -- HookResult ------------------------------------------------------------------------------------------------


@pytest.mark.rule("polos R1", "polos R2", "polos R3", "polos R5", "polos 1.14.8", "polos 1.14.9")
def test_a_result_that_continues_keeps_what_it_was_given() -> None:
    changed = HookResult.continue_with(modified_payload={"a": 1}, modified_output={"b": 2})

    assert HookResult.continue_with().action == HookAction.CONTINUE
    assert changed.action == HookAction.CONTINUE.value
    assert (changed.modified_payload, changed.modified_output) == ({"a": 1}, {"b": 2})
    for default in (HookResult(), HookResult.continue_with()):
        assert default.action == HookAction.CONTINUE
        assert (default.modified_payload, default.modified_output, default.error_message) == (
            None,
            None,
            None,
        )


@pytest.mark.rule("polos R4", "polos R7", "polos R8", "polos 1.14.10", "polos 1.15.2")
def test_a_failing_result_keeps_its_message_and_compares_as_word_and_as_member() -> None:
    for failing in (
        HookResult.fail("no"),
        HookResult(action=HookAction.FAIL, error_message="no"),
        HookResult(action="fail", error_message="no"),  # pyright: ignore[reportArgumentType]
    ):
        assert failing.error_message == "no"
        assert failing.action == HookAction.FAIL
        assert failing.action == HookAction.FAIL.value == "fail"


@pytest.mark.rule("polos R6", "polos 1.14.1")
def test_the_two_actions_of_the_source_have_its_words() -> None:
    assert (HookAction.CONTINUE.value, HookAction.FAIL.value) == ("continue", "fail")


@pytest.mark.rule("polos R9", "polos 1.14.11", "polos 1.14.12")
def test_a_result_goes_to_a_dict_and_comes_back() -> None:
    failing = HookResult.fail("no")
    assert type(failing.to_dict()["action"]) is str
    assert failing.to_dict()["action"] == "fail"
    assert HookResult.from_dict(failing.to_dict()) == failing
    changed = HookResult.continue_with(modified_payload={"a": [1]})
    assert HookResult.from_dict(changed.to_dict()) == changed


@pytest.mark.rule("polos R10", "polos 1.15.9", "design 7.2")
def test_a_mistyped_keyword_raises() -> None:
    with pytest.raises(TypeError, match="modified_payloads"):
        HookResult.continue_with(modified_payloads={"a": 1})  # type: ignore[call-arg]


# -- attaching -------------------------------------------------------------------------------------------------


@pytest.mark.rule("polos A1", "polos 1.15.9")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
@pytest.mark.parametrize("shape", [lambda it: [it], lambda it: (it,), lambda it: it, lambda it: None])
async def test_a_keyword_takes_a_list_a_tuple_one_function_or_none(keyword: str, shape: Any) -> None:
    seen = Seen()
    given = shape(seen.noting())
    await using(echo, **{keyword: given}).run("hi")
    assert bool(seen.contexts) == (given is not None)


@pytest.mark.rule("polos A2")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
def test_anything_else_is_refused_by_name(keyword: str) -> None:
    with pytest.raises(TypeError, match=f"Invalid hook type: {keyword} has 'log_hook'"):
        Agent(id="a", model=Scripted(["ok"]), **{keyword: ["log_hook"]})
    with pytest.raises(TypeError, match=f"Invalid hooks type: {keyword} is str"):
        Agent(id="a", model=Scripted(["ok"]), **{keyword: "log_hook"})
    with pytest.raises(TypeError, match=f"Invalid hooks type: {keyword} is dict"):
        Agent(id="a", model=Scripted(["ok"]), **{keyword: {"log_hook": 1}})


@pytest.mark.rule("polos A3")
async def test_the_lists_are_attributes_read_by_each_run() -> None:
    seen = Seen()
    agent = using(turns=["ok", "ok"], on_start=seen.noting())
    assert isinstance(agent.on_start, list)

    agent.on_start.append(seen.noting())
    await agent.run("hi")

    assert seen.points == ["agent.start", "agent.start"]


# -- order and changes -----------------------------------------------------------------------------------------


@pytest.mark.rule("polos O1")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_hooks_run_in_list_order_one_at_a_time(keyword: str) -> None:
    order: list[str] = []

    def named(name: str, kind: str) -> Any:
        async def slow(ctx: Any, hook_context: Any) -> HookResult:
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")
            return CONTINUE

        def threaded(ctx: Any, hook_context: Any) -> HookResult:
            order.extend([f"{name} begins", f"{name} ends"])
            return CONTINUE

        return slow if kind == "async" else threaded

    hooks = [named("first", "async"), named("second", "sync"), named("third", "async")]
    await using(echo, **{keyword: hooks}).run("hi")

    once = ["first begins", "first ends", "second begins", "second ends", "third begins", "third ends"]
    assert order == once * (2 if "step" in keyword else 1)


@pytest.mark.rule("polos O2", "polos fact 1", "polos B1", "polos 1.15.1", "design 7.1")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
@pytest.mark.parametrize("streaming", [False, True])
async def test_fail_stops_the_run_at_each_of_the_six_points_and_later_hooks_never_run(
    keyword: str, streaming: bool
) -> None:
    later = Seen()

    @hook
    def stops(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.fail("enough")

    agent = using(echo, **{keyword: [stops, later.noting()]})

    with pytest.raises(HookFailed) as caught:
        await (agent.stream("hi").result() if streaming else agent.run("hi"))

    assert later.contexts == []
    error = caught.value
    assert (error.reason, error.hook) == ("enough", "stops")
    assert error.tool == ("echo" if "tool" in keyword else None)
    assert error.run_id
    assert isinstance(error, RunEnded)


WHAT_RAN = {
    "on_start": (0, 0),
    "on_agent_step_start": (0, 0),
    "on_tool_start": (1, 0),
    "on_tool_end": (1, 1),
    "on_agent_step_end": (1, 1),
    "on_end": (2, 1),
}


@pytest.mark.rule("polos 1.6", "polos B8", "polos 1.15.1")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_what_has_run_when_a_hook_fails_at_each_point(keyword: str) -> None:
    ran: list[str] = []

    @tool
    def work() -> str:
        ran.append("work")
        return "worked"

    agent = using(work, **{keyword: [answering(HookResult.fail("enough"))]})

    with pytest.raises(HookFailed):
        await agent.run("hi")

    assert (len(agent.model.requests), len(ran)) == WHAT_RAN[keyword]


@pytest.mark.rule("polos O3")
@pytest.mark.parametrize("keyword", STARTS)
async def test_each_hook_sees_the_payload_as_changed_by_those_before_it(keyword: str) -> None:
    seen = Seen()

    def add(context: HookContext) -> HookResult:
        return HookResult.continue_with(
            modified_payload={"trail": [*context.current_payload.get("trail", []), len(seen.contexts)]}
        )

    await using(echo, **{keyword: [seen.noting(add), seen.noting(add), seen.noting()]}).run("hi")

    trails = [context.current_payload.get("trail") for context in seen.contexts[:3]]
    assert trails == [None, [1], [1, 2]]


@pytest.mark.rule("polos O4", "polos 1.15.3", "design 7.2")
async def test_a_change_is_merged_into_a_dict_unless_it_replaces_it() -> None:
    async def arguments(result: HookResult) -> Any:
        seen = Seen()
        agent = using(
            echo,
            turns=[calls(("echo", {"text": "a", "more": {"x": 1, "y": 2}})), "done"],
            on_tool_start=[answering(result), seen.noting()],
        )
        await agent.run("hi")
        return seen.only("tool.start").current_payload

    merged = await arguments(HookResult.continue_with(modified_payload={"more": {"x": 3}, "new": 1}))
    assert merged == {"text": "a", "more": {"x": 3}, "new": 1}
    replaced = await arguments(HookResult.continue_with(modified_payload={"text": "b"}, replace=True))
    assert replaced == {"text": "b"}


@pytest.mark.rule("polos O5", "polos B5", "polos 1.15.3")
async def test_a_changed_model_is_validated_again_and_stays_a_model() -> None:
    seen = Seen()
    agent = using(
        find, on_tool_end=[answering(HookResult.continue_with(modified_output={"score": "7"})), seen.noting()]
    )

    result = await agent.run("hi")

    assert seen.only("tool.end").current_output == {"title": "a page", "score": 7}
    assert result.tool_results[0].result == Found(title="a page", score=7)


@pytest.mark.rule("polos O5", "polos B5")
async def test_the_outputs_of_a_step_and_of_the_agent_can_be_changed() -> None:
    seen = Seen()
    agent = using(
        turns=["plain answer"],
        on_agent_step_end=[answering(HookResult.continue_with(modified_output={"content": "from the step"}))],
        on_end=[
            seen.noting(),
            answering(
                lambda at: HookResult.continue_with(
                    modified_output={"result": at.current_output["result"] + "!"}
                )
            ),
        ],
    )

    result = await agent.run("hi")

    assert seen.only("agent.end").steps[0].content == "from the step"
    assert isinstance(result, AgentResult)
    assert result.result == "from the step!"


@pytest.mark.rule("polos B5")
async def test_a_change_that_does_not_fit_the_model_is_the_hooks_mistake_and_said() -> None:
    @hook
    def misfit(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.continue_with(modified_output={"score": "many"})

    with pytest.raises(HookFailed, match=r"score[\s\S]*misfit at tool.end"):
        await using(find, on_tool_end=[misfit]).run("hi")


@pytest.mark.rule("polos O6", "polos B17")
@pytest.mark.parametrize("position", [0, 1, 2])
async def test_changing_the_context_in_place_changes_nothing_wherever_the_hook_stands(position: int) -> None:
    def mutate(context: HookContext) -> HookResult:
        context.current_payload["input"] = "mutated"
        context.current_payload["provider_kwargs"]["x"] = 1
        return CONTINUE

    hooks: list[Any] = [answering(CONTINUE), answering(CONTINUE)]
    hooks.insert(position, answering(mutate))
    seen = Seen()
    model = Scripted(["ok"])
    records: list[Any] = []
    agent = Agent(id="a", model=model, on_start=[*hooks, seen.noting()])

    await agent.run("hi", watch=[records.append])

    assert seen.only("agent.start").current_payload["input"] == "hi"
    assert texts(model.requests[0]) == ["hi"]
    assert model.requests[0].extra == {}
    notes = [record.note for record in records if type(record).__name__ == "Called" and record.note]
    assert notes == [
        "changed hook_context.current_payload in place, which has no effect; return continue_with(modified_payload=...)"
    ]


@pytest.mark.rule("polos O6")
async def test_a_field_of_the_context_cannot_be_set() -> None:
    def assign(context: HookContext) -> HookResult:
        context.current_payload = {}
        return CONTINUE

    with pytest.raises(HookFailed, match=r"read only; return HookResult\.continue_with"):
        await using(turns=["ok"], on_start=[answering(assign)]).run("hi")


@pytest.mark.rule("polos O7")
async def test_changes_carried_by_a_failing_result_do_not_count() -> None:
    failing = HookResult(action=HookAction.FAIL, error_message="no", modified_payload={"input": "x"})
    with pytest.raises(HookFailed, match="no"):
        await using(turns=["ok"], on_start=[answering(failing)]).run("hi")


@pytest.mark.rule("polos O8")
async def test_empty_lists_are_as_no_lists() -> None:
    agent = using(echo, **{keyword: [] for keyword in SEEDS_KEYWORDS})
    assert agent.hooks() == ()
    assert (await agent.run("hi")).result == "done"


LANDS = {
    "on_start": ({"input": "changed"}, lambda model: texts(model.requests[0]), ["changed"]),
    "on_agent_step_start": (
        {"messages": [{"role": "user", "content": "changed"}]},
        lambda model: texts(model.requests[0]),
        ["changed"],
    ),
    "on_tool_start": ({"text": "changed"}, lambda model: texts(model.requests[1])[-1], "changed"),
    "on_tool_end": ("changed", lambda model: texts(model.requests[1])[-1], "changed"),
}


@pytest.mark.rule("polos 1.5")
@pytest.mark.parametrize("keyword", LANDS)
async def test_where_a_change_lands(keyword: str) -> None:
    change, look, expected = LANDS[keyword]
    word = "modified_output" if keyword.endswith("end") else "modified_payload"
    agent = using(echo, **{keyword: [answering(HookResult.continue_with(**{word: change}))]})

    result = await agent.run("hi")

    assert look(agent.model) == expected
    if "tool" in keyword:
        assert result.tool_results[0].result == "changed"


@pytest.mark.rule("polos 1.5")
async def test_changed_messages_hold_for_their_step_only() -> None:
    forget = HookResult.continue_with(modified_payload={"messages": [{"role": "user", "content": "forget"}]})
    agent = using(echo, on_agent_step_start=[answering(lambda at: forget if at.step == 1 else CONTINUE)])

    await agent.run("hi")

    assert texts(agent.model.requests[0]) == ["forget"]
    assert texts(agent.model.requests[1])[0] == "hi"


@pytest.mark.rule("polos 1.5")
async def test_a_change_that_could_land_nowhere_is_told_and_not_dropped() -> None:
    agent = using(turns=["ok"], on_start=[answering(HookResult.continue_with(modified_output={"x": 1}))])
    with pytest.raises(HookFailed, match="modified_output means nothing at agent"):
        await agent.run("hi")


# -- failing and raising ---------------------------------------------------------------------------------------


@pytest.mark.rule("polos F1")
async def test_a_failure_without_a_message_has_one() -> None:
    with pytest.raises(HookFailed) as caught:
        await using(turns=["ok"], on_start=[answering(HookResult.fail(""))]).run("hi")
    assert caught.value.reason == "Hook execution failed"


@pytest.mark.rule("polos F4", "polos B10", "polos 1.15.8")
@pytest.mark.parametrize("keyword", SEEDS_KEYWORDS)
async def test_a_hook_that_raises_runs_once_and_stops_the_run(keyword: str) -> None:
    count = 0

    @hook
    def raises(ctx: Any, hook_context: Any) -> HookResult:
        nonlocal count
        count += 1
        raise KeyError("prompt")

    with pytest.raises(
        HookFailed, match=r"raised KeyError: 'prompt' .*test_polos_rules.py:\d+.* \[hook raises at"
    ):
        await using(echo, **{keyword: [raises]}).run("hi")

    assert count == 1


@pytest.mark.rule("polos F4", "polos 1.15.8")
async def test_what_follows_when_a_hook_raises_can_be_declared() -> None:
    @hook(on_error="continue")
    def raises(ctx: Any, hook_context: Any) -> HookResult:
        raise RuntimeError("never mind")

    records: list[Any] = []
    result = await using(turns=["ok"], on_start=[raises]).run("hi", watch=[records.append])

    assert result.result == "ok"
    (called,) = [record for record in records if type(record).__name__ == "Called"]
    assert called.error_kind == "raised"
    assert "never mind" in called.error


@pytest.mark.rule("polos F5")
@pytest.mark.parametrize("rubbish", [None, True, {"action": "continue"}, "continue"])
async def test_a_hook_that_returns_no_result_broke_and_stops_the_run(rubbish: Any) -> None:
    with pytest.raises(HookFailed, match=r"invalid result type; return HookResult\.continue_with"):
        await using(turns=["ok"], on_start=[answering(lambda _: rubbish)]).run("hi")


@pytest.mark.rule("polos F6")
async def test_a_change_that_json_cannot_carry_is_refused_by_its_path() -> None:
    change = HookResult.continue_with(modified_payload={"input": {"deep": [object()]}})
    with pytest.raises(HookFailed, match=r"modified_payload\['input'\]\['deep'\]\[0\] is object"):
        await using(turns=["ok"], on_start=[answering(change)]).run("hi")


@pytest.mark.rule("polos F7")
async def test_ends_run_when_the_agent_failed_and_are_told() -> None:
    seen = Seen()
    agent = using(
        turns=[{"error": "overloaded"}], **seen.everywhere("on_end", "on_agent_step_end", "on_model_end")
    )

    with pytest.raises(RunEnded, match="overloaded"):
        await agent.run("hi")

    assert [(context.point, context.status) for context in seen.contexts] == [
        ("model.end", "failed"),
        ("step.end", "failed"),
        ("agent.end", "failed"),
    ]
    assert "overloaded" in seen.only("agent.end").current_output["error"]


@pytest.mark.rule("polos F8")
async def test_a_hook_has_a_limit_of_its_own() -> None:
    @hook(timeout=0.01)
    async def hangs(ctx: Any, hook_context: Any) -> HookResult:
        await asyncio.Event().wait()
        return CONTINUE

    with pytest.raises(HookFailed, match=r"ran past its limit of 0.01 s"):
        await using(turns=["ok"], on_start=[hangs]).run("hi")


# -- the flow --------------------------------------------------------------------------------------------------


@pytest.mark.rule("polos W2")
async def test_streamed_or_not_the_same_hooks_run_in_the_same_order_on_the_same_payloads() -> None:
    async def seen_by(streaming: bool) -> list[Any]:
        seen = Seen()
        agent = using(echo, count_up, **seen.everywhere())
        await (agent.stream("hi").result() if streaming else agent.run("hi"))
        shown = [context.to_dict() for context in seen.contexts]
        for each in shown:
            for key in ("run_id", "session_id"):
                each.pop(key)
            _without(each, "agent_run_id", "session_id", "streaming")
        return shown

    assert await seen_by(True) == await seen_by(False)


def _without(value: Any, *keys: str) -> None:
    if isinstance(value, dict):
        for key in keys:
            value.pop(key, None)
        for item in value.values():
            _without(item, *keys)
    elif isinstance(value, list):
        for item in value:
            _without(item, *keys)


@pytest.mark.rule("polos W7", "polos B4", "polos B14")
async def test_a_failing_tool_is_recorded_as_failed_and_an_end_hook_leaves_the_agent_alive() -> None:
    seen = Seen()
    agent = using(broken, on_tool_end=[seen.noting()])

    result = await agent.run("hi")

    assert result.result == "done"
    (found,) = result.tool_results
    assert (found.status, found.error) == ("failed", "ValueError: no such thing")
    assert seen.only("tool.end").status == "failed"
    assert seen.only("tool.end").current_output == {"error": "ValueError: no such thing"}
    assert texts(agent.model.requests[1])[-1] == "Error: ValueError: no such thing"


@pytest.mark.rule("polos W9")
async def test_the_number_of_steps_is_right_at_the_cap() -> None:
    model = Scripted([calls("echo")], repeat=True)
    result = await Agent(id="a", model=model, tools=[echo], stop_conditions=max_steps()).run("hi")
    assert (result.total_steps, len(model.requests)) == (20, 20)


# -- the bugs --------------------------------------------------------------------------------------------------


@pytest.mark.rule("polos fact 2", "polos 2.2", "polos 1.15.10", "design 7.3")
async def test_the_flagship_example_of_upstream_runs_with_fail_honoured() -> None:
    @hook
    def validate_input(ctx: WorkflowContext, hook_ctx: HookContext) -> HookResult:
        payload = hook_ctx.current_payload or {}
        if not payload.get("prompt"):
            return HookResult.fail("Empty prompt")
        return HookResult.continue_with(modified_payload={**payload, "prompt": payload["prompt"].strip()})

    @hook
    def modify_tool_payload(ctx: WorkflowContext, hook_ctx: HookContext) -> HookResult:
        return HookResult.continue_with(
            modified_payload={**(hook_ctx.current_payload or {}), "_source": "agent"}
        )

    @hook
    def enrich_tool_output(ctx: WorkflowContext, hook_ctx: HookContext) -> HookResult:
        return HookResult.continue_with(modified_output={**hook_ctx.current_output, "score": 5})

    model = Scripted([calls("find"), "done"])
    agent = Agent(
        id="logged_agent",
        model=model,
        tools=[find],
        stop_conditions=[max_steps(MaxStepsConfig(count=5))],
        on_start=validate_input,
        on_tool_start=modify_tool_payload,
        on_tool_end=enrich_tool_output,
    )

    result = await agent.run("  find it ")

    assert texts(model.requests[0]) == ["find it"]
    assert model.requests[0].extra == {}
    assert result.tool_results[0].result == Found(title="a page", score=5)
    with pytest.raises(HookFailed, match="Empty prompt"):
        await agent.run("")


@pytest.mark.rule("polos fact 3")
async def test_a_hook_is_called_once_at_each_point_in_this_process_and_needs_no_server() -> None:
    counts: Counter[str] = Counter()

    def count(context: HookContext) -> HookResult:
        counts[f"{context.point} {context.step} {context.call_id}"] += 1
        return CONTINUE

    await using(echo, count_up, **{keyword: [answering(count)] for keyword in SEEDS_KEYWORDS}).run("hi")

    assert set(counts.values()) == {1}
    assert len(counts) == 10


@pytest.mark.rule("polos B2")
async def test_the_end_hook_of_each_of_two_calls_in_a_step_runs_for_its_own_call() -> None:
    tag = answering(
        lambda at: HookResult.continue_with(modified_output=f"{at.current_output} of {at.call_id}")
    )
    agent = Agent(
        id="a",
        model=Scripted([calls(("echo", {"text": "first"}), ("echo", {"text": "second"})), "done"]),
        tools=[echo],
        on_tool_end=[tag],
    )

    result = await agent.run("hi")

    assert [found.result for found in result.tool_results] == ["first of call_1", "second of call_2"]


@pytest.mark.rule("polos B3", "polos B7", "polos B11")
@pytest.mark.parametrize("value", ["text", 7, 1.5, True, [1, 2], None, {"a": 1}])
async def test_a_tool_may_return_anything_with_hooks_around_it_and_nothing_is_run_again(value: Any) -> None:
    ran: list[int] = []
    seen = Seen()

    @tool
    def give() -> Any:
        ran.append(1)
        return value

    result = await using(give, **seen.everywhere()).run("hi")

    assert result.tool_results[0].result == value
    assert type(result.tool_results[0].result) is type(value)
    assert seen.only("tool.end").current_output == value
    assert ran == [1]


class Query(BaseModel):
    text: str
    most: int = 3


@pytest.mark.rule("polos B6", "polos B11")
async def test_start_hooks_before_a_tool_that_takes_a_model_see_a_dict_and_the_tool_gets_its_model() -> None:
    got: list[Any] = []
    seen = Seen()

    @tool
    def look(ctx: WorkflowContext, input: Query) -> str:
        got.append(input)
        return "seen"

    agent = using(
        look,
        turns=[calls(("look", {"text": "x"})), "done"],
        on_tool_start=[seen.noting(), answering(HookResult.continue_with(modified_payload={"most": 9}))],
    )
    await agent.run("hi")

    assert seen.only("tool.start").current_payload == {"text": "x"}
    assert got == [Query(text="x", most=9)]


@pytest.mark.rule("polos B12")
async def test_a_hook_at_model_end_that_blocks_makes_the_model_be_asked_again_also_around_tools() -> None:
    def no_secrets(context: HookContext) -> HookResult:
        shown = context.current_output
        if "secret" in (shown["text"] or "") or any(call["name"] == "broken" for call in shown["tool_calls"]):
            return HookResult.block("that is off limits")
        return CONTINUE

    agent = using(
        echo,
        broken,
        turns=[calls("broken"), calls(("echo", {"text": "hello"})), "the secret is 42", "I cannot tell."],
        on_model_end=[answering(no_secrets)],
    )

    result = await agent.run("hi")

    assert result.result == "I cannot tell."
    assert [found.tool_name for found in result.tool_results] == ["echo"]
    assert result.total_steps == 2
    assert "that is off limits" in texts(agent.model.requests[1])[-1]
    assert "that is off limits" in texts(agent.model.requests[3])[-1]


@pytest.mark.rule("polos B12")
async def test_a_model_whose_answers_are_always_refused_is_asked_four_times_and_no_more() -> None:
    agent = Agent(
        id="a", model=Scripted(["bad"], repeat=True), on_model_end=[answering(HookResult.block("bad"))]
    )
    with pytest.raises(Refused) as caught:
        await agent.run("hi")
    assert caught.value.point == "model.end"
    assert len(agent.model.requests) == 4


@pytest.mark.rule("polos B13", "polos 1.10", "polos 1.15.10")
async def test_a_stop_condition_needs_no_configuration_and_limit_is_another_word_for_count() -> None:
    @stop_condition
    def at_once(context: StopConditionContext) -> bool:
        return True

    def stopping(condition: Any) -> Agent:
        return Agent(
            id="a", model=Scripted([calls("echo")], repeat=True), tools=[echo], stop_conditions=[condition]
        )

    assert (await stopping(at_once).run("hi")).total_steps == 1
    assert (await stopping(max_steps()).run("hi")).total_steps == 20
    assert (await stopping(max_steps(MaxStepsConfig(limit=2))).run("hi")).total_steps == 2
    assert (await stopping(max_steps({"count": 2})).run("hi")).total_steps == 2
    assert (await stopping(max_steps(count=3)).run("hi")).total_steps == 3


@pytest.mark.rule("polos B15", "polos F3")
async def test_a_stream_that_fails_ends_with_an_event_that_says_so() -> None:
    agent = using(turns=["ok"], on_end=[answering(HookResult.fail("not good enough"))])
    stream = agent.stream("hi")

    events = [event async for event in stream.events]

    assert events[-1].type == "agent_error"
    assert "not good enough" in events[-1].text
    with pytest.raises(HookFailed, match="not good enough"):
        await stream.result()


@pytest.mark.rule("polos 1.15.7")
async def test_one_tool_call_can_be_denied_with_a_reason_that_the_model_reads() -> None:
    seen = Seen()
    agent = using(
        echo,
        broken,
        on_tool_start=[
            answering(lambda at: HookResult.block("not that") if at.current_tool == "broken" else CONTINUE)
        ],
        on_tool_end=[seen.noting()],
    )

    result = await agent.run("hi")

    assert [(found.tool_name, found.status) for found in result.tool_results] == [
        ("echo", "ok"),
        ("broken", "blocked"),
    ]
    assert texts(agent.model.requests[1])[-1] == "Error: refused: not that"
    assert [context.current_tool for context in seen.contexts] == ["echo"]
