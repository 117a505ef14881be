import copy
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from hookline.engine.context import (
    AgentConfig,
    Facts,
    HookContext,
    Step,
    ToolCall,
    ToolResult,
    Usage,
    WorkflowContext,
)
from hookline.engine.point import Point, Status
from hookline.errors import UsageError
from tests.engine.builders import context
from tests.engine.test_plain import values

STEP = Step(
    step=1,
    content="hm",
    tool_calls=(ToolCall(id="c1", name="bash", arguments={"command": "ls"}),),
    tool_results=(ToolResult(tool_call_id="c1", tool_name="bash", status="ok", result={"out": "a"}),),
    usage=Usage(input_tokens=1, output_tokens=2, total_tokens=3),
)
FULL = {
    "workflow_id": "w",
    "point": Point.TOOL_END,
    "run_id": "r",
    "scope_id": "7",
    "call_id": "c1",
    "attempt": 2,
    "step": 1,
    "agent": "inner",
    "parents": ("outer",),
    "session_id": "s",
    "user_id": "u",
    "agent_config": AgentConfig(name="inner", provider="p", model="m", provider_kwargs={"a": {"b": 1}}),
    "steps": (STEP,),
    "current_tool": "bash",
    "tool_kind": "shell",
    "status": Status.OK,
    "native": {"hook_event_name": "PostToolUse", "deep": {"x": 1}},
}


def full() -> HookContext:
    return HookContext(
        **copy.deepcopy(FULL), current_payload={"command": "ls"}, current_output={"out": ["a"]}
    )


def test_every_field_of_the_seed_and_of_the_design_can_be_read():
    seen = full()
    for name, value in FULL.items():
        assert getattr(seen, name) == (list(value) if name == "steps" else value), name
    assert (seen.current_payload, seen.current_output) == ({"command": "ls"}, {"out": ["a"]})
    assert repr(seen) == "<HookContext tool.end bash of w>"


@pytest.mark.rule("design 1.5")
@pytest.mark.parametrize("name", [*FULL, "current_payload", "current_output", "anything"])
def test_no_attribute_of_a_context_can_be_set(name):
    with pytest.raises(AttributeError):
        setattr(full(), name, None)


@pytest.mark.rule("design 1.5")
def test_the_message_says_how_to_change_something_instead():
    with pytest.raises(
        AttributeError, match=r"current_payload is read only.*continue_with\(modified_payload"
    ):
        full().current_payload = {}


@pytest.mark.rule("design 1.5")
def test_payload_and_output_are_copies_that_stay_the_hooks_own():
    payload = {"a": [1]}
    seen = context(payload=payload, output=payload)
    seen.current_payload["a"].append(2)
    assert payload == {"a": [1]}
    assert seen.current_payload == {"a": [1, 2]}, "a hook sees its own copy again"
    assert seen.current_output == {"a": [1]}


WAYS_IN = {
    "steps": lambda seen: seen.steps.clear(),
    "arguments of a step": lambda seen: seen.steps[0].tool_calls[0].arguments.clear(),
    "result of a step": lambda seen: seen.steps[0].tool_results[0].result.update(out="b"),
    "native": lambda seen: seen.native["deep"].clear(),
    "agent_config": lambda seen: seen.agent_config.provider_kwargs["a"].clear(),
    "to_dict": lambda seen: seen.to_dict()["native"].clear(),
}


@pytest.mark.rule("design 1.5")
@pytest.mark.parametrize("change", WAYS_IN.values(), ids=WAYS_IN)
def test_nothing_that_hangs_on_a_context_leads_to_what_others_see(change):
    seen = full()
    change(seen)
    assert HookContext.of(*seen.given) == full()


NOT_CHANGED = {
    "never looked at": lambda seen: None,
    "only looked at": lambda seen: seen.current_payload,
    "changed and put back": lambda seen: (seen.current_payload.update(a=2), seen.current_payload.update(a=1)),
}


class Bag:
    """An object without an equality of its own."""


class Touchy:
    """As an array of numbers does, it refuses to be compared."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None


@pytest.mark.parametrize("look", NOT_CHANGED.values(), ids=NOT_CHANGED)
@pytest.mark.parametrize(
    "extra", [None, (1, 2), Bag(), Touchy(), {1, 2}], ids=lambda extra: type(extra).__name__
)
def test_a_hook_that_changed_nothing_is_not_told_that_it_did(look, extra):
    seen = context(payload={"a": 1, "extra": extra}, output=extra)
    look(seen)
    assert seen.changed_in_place is None


def test_a_model_that_was_only_looked_at_is_not_taken_for_changed():
    class City(BaseModel):
        name: str

    seen = context("tool.end", output=City(name="Oslo"))
    assert seen.current_output == {"name": "Oslo"}
    assert seen.changed_in_place is None


CHANGED = {
    "current_payload": lambda seen: seen.current_payload.update(a=2),
    "current_payload, deep": lambda seen: seen.current_payload["deep"][0].append(1),
    "current_payload, less": lambda seen: seen.current_payload.pop("a"),
    "current_output": lambda seen: seen.current_output.append(1),
}


@pytest.mark.parametrize(("name", "change"), CHANGED.items(), ids=CHANGED)
@pytest.mark.parametrize("extra", [None, Touchy()], ids=["", "beside what cannot be compared"])
def test_a_change_in_place_is_found(name, change, extra):
    seen = context(payload={"a": 1, "deep": [[]], "extra": extra}, output=[])
    change(seen)
    assert seen.changed_in_place == name.partition(",")[0]
    assert not seen.untouched


@given(values, values)
def test_a_context_can_be_sent_and_read_again(payload, output):
    sent = HookContext(**FULL, current_payload=payload, current_output=output)
    read = HookContext.from_dict(sent.to_dict())
    assert read == sent
    assert (read.point, read.status, read.steps) == (Point.TOOL_END, Status.OK, [STEP])
    assert type(read.point) is Point, "a point is a point again, or its rules would not hold"
    assert type(read.status) is Status
    assert HookContext.from_dict(read) is read


def test_an_event_of_another_tool_keeps_its_own_name():
    read = HookContext.from_dict({"workflow_id": "w", "point": "x.claude.Notification"})
    assert read.point == "x.claude.Notification"


def test_a_context_that_is_sent_has_no_inner_things():
    facts = Facts(workflow_id="w", workflow=WorkflowContext(workflow_id="w"), aliases={"prompt": "input"})
    assert not {"workflow", "aliases"} & set(HookContext.of(facts, None, None).to_dict())


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({}, "missing 1 required positional argument: 'workflow_id'"),
        ({"workflow_id": "w", "tol": 1}, "unexpected keyword argument 'tol'"),
    ],
)
def test_a_context_made_wrongly_is_told(given_, said):
    with pytest.raises(UsageError) as told:
        HookContext(**given_)
    assert said in str(told.value)
    assert "Facts" not in str(told.value)


@pytest.mark.parametrize("value", [None, 1, "x", [("workflow_id", "w")]], ids=repr)
def test_a_context_is_not_read_from_what_is_no_dict(value):
    with pytest.raises(UsageError, match="Cannot create HookContext from"):
        HookContext.from_dict(value)


def test_facts_at_a_point_differ_in_point_status_and_steps_only():
    facts = Facts(**{**FULL, "point": "", "status": None, "aliases": {"prompt": "input"}})
    start = facts.at(Point.AGENT_START)
    assert start == replace(facts, point=Point.AGENT_START)
    end = facts.at(Point.AGENT_END, Status.FAILED, ())
    assert end == replace(facts, point=Point.AGENT_END, status=Status.FAILED, steps=(), aliases=None)


def test_usage_adds_up():
    assert STEP.usage + STEP.usage == Usage(input_tokens=2, output_tokens=4, total_tokens=6)


def test_a_step_can_be_made_again_of_its_plain_form():
    sent = full().to_dict()["steps"][0]
    assert Step.model_validate(sent) == STEP


@given(st.dictionaries(st.text(max_size=3), values, max_size=3))
def test_a_workflow_context_can_be_shown(state):
    shown = WorkflowContext(workflow_id="w", state=state, tools=("a",)).to_dict()
    assert (shown["workflow_id"], shown["state"], shown["tools"]) == ("w", state, ["a"])
