from dataclasses import dataclass
from types import MappingProxyType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hookline.engine.point import Point
from hookline.engine.result import (
    ALLOWED,
    CONTINUE,
    ENDS_THE_WALK,
    HookAction,
    HookResult,
    Outcome,
    Reason,
    add_up,
    fault,
    merged,
)
from hookline.errors import HookBroke, UsageError
from tests.engine.test_plain import containers, values

R = HookResult
dicts = st.dictionaries(st.text(max_size=3), values, max_size=4)


# -- making one --------------------------------------------------------------------------------------------


MADE = {
    "continue": (R.continue_with(), None),
    "allow": (R.allow("fine"), "fine"),
    "block": (R.block("no"), "no"),
    "fail": (R.fail("stop"), "stop"),
    "skip": (R.skip("nothing to do"), "nothing to do"),
    "ask": (R.ask("sure?"), "sure?"),
    "answer": (R.answer([1]), None),
}


@pytest.mark.parametrize(("word", "made"), MADE.items(), ids=MADE)
def test_each_verdict_is_made_by_its_word(word, made):
    result, reason = made
    assert (result.action, result.reason, result.error_message) == (word, reason, reason)
    assert result.action is HookAction(word)


def test_a_result_without_words_is_to_go_on():
    assert HookResult() == R.continue_with() == CONTINUE
    assert R.continue_with() is CONTINUE
    assert R.continue_with(replace=True) is CONTINUE, "there is nothing that it could replace"


@pytest.mark.rule("design 7.2")
@pytest.mark.parametrize("typo", ["modified_paylod", "payload", "output", "Replace"])
def test_a_typo_in_a_keyword_raises(typo):
    with pytest.raises(TypeError, match=typo):
        R.continue_with(**{typo: {}})


@pytest.mark.rule("design 7.2")
def test_a_change_is_given_by_name_only():
    with pytest.raises(TypeError):
        R.continue_with({"a": 1})


TEXTS = {
    "allow": lambda text: R.allow(text),
    "block": lambda text: R.block(text),
    "fail": lambda text: R.fail(text),
    "skip": lambda text: R.skip(text),
    "ask": lambda text: R.ask(text),
    "tell_model": lambda text: R.continue_with(tell_model=text),
    "tell_user": lambda text: R.continue_with(tell_user=text),
    "error_message": lambda text: HookResult(action="fail", error_message=text),
    "tell_model, made by hand": lambda text: HookResult(tell_model=text),
    "tell_user, from a dict": lambda text: HookResult.from_dict({"tell_user": text}),
}


@pytest.mark.parametrize(("name", "make"), TEXTS.items(), ids=TEXTS)
@pytest.mark.parametrize("text", [5, {"a": 1}, ["x"], ValueError("x"), True], ids=repr)
def test_a_text_that_is_no_text_is_told(name, make, text):
    with pytest.raises(UsageError, match="must be a string, not") as told:
        make(text)
    assert name.partition(",")[0] in str(told.value)


def test_an_unknown_action_is_told_with_all_that_are_known():
    with pytest.raises(
        UsageError, match="unknown action 'deny'; known: continue, allow, answer, ask, skip, block"
    ):
        HookResult(action="deny")


def test_a_result_cannot_be_changed_afterwards():
    with pytest.raises(AttributeError):
        R.block("no").action = HookAction.ALLOW


@given(values, values, st.sampled_from(HookAction), st.none() | st.text())
def test_a_result_can_be_sent_and_read_again(payload, output, action, text):
    sent = HookResult(
        action=action, modified_payload=payload, output=output, error_message=text, replace=True
    )
    assert HookResult.from_dict(sent.to_dict()) == sent
    assert HookResult.from_dict(sent) is sent


def test_a_result_is_not_read_from_what_is_no_dict():
    with pytest.raises(UsageError, match="Cannot create HookResult from str"):
        HookResult.from_dict("continue")
    assert HookResult.from_dict(MappingProxyType({"action": "block"})).action is HookAction.BLOCK


# -- where it means something ------------------------------------------------------------------------------


def test_the_table_of_the_design_is_the_table_of_the_engine():
    starts = {point for point in Point if point.endswith(".start")}
    gates = {"agent.start", "model.start", "tool.start"}
    assert starts > gates
    assert {
        "continue": set(Point),
        "allow": gates,
        "answer": gates,
        "ask": gates | {"run.end"},
        "skip": {"run.start", "agent.start"},
        "block": gates | {"step.start", "tool.end", "model.end", "agent.end"},
        "fail": set(Point) - {"session.end", "workspace.end"},
    } == ALLOWED


@pytest.mark.parametrize("point", Point)
def test_input_is_changed_at_a_start_and_output_at_an_end(point):
    assert fault(R.continue_with(modified_payload={}), point) is None  # at an end without effect, and told
    by_output = fault(R.continue_with(modified_output={}), point)
    if point.is_start:
        assert by_output == (
            f"modified_output means nothing at {point}; there is no output yet, give modified_payload or answer(...)"
        )
    else:
        assert by_output is None


def test_a_fault_says_where_it_would_be_right():
    assert fault(R.skip("x"), Point.TOOL_END) == (
        "skip means nothing at tool.end; it is for run.start, agent.start"
    )


@pytest.mark.parametrize("action", HookAction)
def test_at_an_event_of_another_tool_every_verdict_passes(action):
    assert fault(HookResult(action=action), "x.claude.Notification") is None


# -- a change ----------------------------------------------------------------------------------------------


@pytest.mark.rule("design 7.2")
@given(dicts, dicts)
def test_dicts_merge_one_level_deep_and_the_later_wins(current, change):
    assert merged("modified_payload", current, change) == {**current, **change}


@pytest.mark.rule("design 7.2")
@given(dicts, dicts)
def test_with_replace_nothing_of_the_old_is_left(current, change):
    assert merged("modified_payload", current, change, replace=True) == change


@pytest.mark.rule("design 7.2")
@given(values, values)
def test_anything_else_takes_the_place_of_what_was_there(current, change):
    both = isinstance(current, dict) and isinstance(change, dict)
    after = merged("modified_payload", current, change)
    assert after == ({**current, **change} if both else change)


@pytest.mark.rule("design 7.2")
@given(values, values, st.booleans())
def test_what_comes_of_a_change_shares_nothing_with_what_the_hook_holds(current, change, replace):
    after = merged("modified_payload", current, change, replace=replace)
    assert not containers(after) & (containers(current) | containers(change))


@given(dicts, dicts, dicts)
def test_two_changes_one_after_the_other_are_one_change_of_both(current, first, second):
    stepwise = merged("x", merged("x", current, first), second)
    assert stepwise == merged("x", current, {**first, **second})


class City(BaseModel):
    name: str
    people: int = 0


@dataclass
class Place:
    name: str
    tags: tuple = ()


@pytest.mark.rule("design 7.2")
def test_a_model_is_merged_and_validated_again():
    assert merged("modified_output", City(name="Oslo"), {"people": "7"}) == City(name="Oslo", people=7)
    assert merged("modified_output", City(name="Oslo"), City(name="Bergen")) == City(name="Bergen")
    with pytest.raises(ValidationError):
        merged("modified_output", City(name="Oslo"), {"people": "many"})
    with pytest.raises(ValidationError):
        merged("modified_output", City(name="Oslo"), {"people": 1}, replace=True)


@pytest.mark.rule("design 7.2")
def test_a_dataclass_is_merged_and_made_again():
    assert merged("modified_output", Place(name="a"), {"name": "b"}) == Place(name="b", tags=[])
    with pytest.raises(TypeError):
        merged("modified_output", Place(name="a"), {"nam": "b"})


def test_a_change_that_cannot_be_sent_is_refused_by_its_path():
    with pytest.raises(HookBroke, match=r"modified_output\['a'\]\[0\] is set"):
        merged("modified_output", {}, {"a": [{1}]})


BEFORE = {"input": "hi", "prompt": "hi", "streaming": False}
ALIASES = {
    "the alias alone": ({"prompt": "new"}, {"input": "new", "prompt": "new"}),
    "the key alone": ({"input": "new"}, {"input": "new", "prompt": "new"}),
    "both the same": ({"input": "new", "prompt": "new"}, {"input": "new", "prompt": "new"}),
    "both, and the key is the real one": ({"input": "a", "prompt": "b"}, {"input": "a", "prompt": "a"}),
    "the alias changed, the key as it was": ({"input": "hi", "prompt": "b"}, {"input": "b", "prompt": "b"}),
    "the key changed, the alias as it was": ({"input": "a", "prompt": "hi"}, {"input": "a", "prompt": "a"}),
    "neither": ({"streaming": True}, {"input": "hi", "prompt": "hi", "streaming": True}),
    "a list": ({"prompt": [{"role": "user"}]}, {"input": [{"role": "user"}], "prompt": [{"role": "user"}]}),
}


@pytest.mark.rule("design 7.3")
@pytest.mark.parametrize(("change", "after"), ALIASES.values(), ids=ALIASES)
def test_prompt_and_input_are_one(change, after):
    assert merged("modified_payload", BEFORE, change, aliases={"prompt": "input"}) == {
        "streaming": False,
        **after,
    }


REPLACED = {
    "the alias alone": ({"prompt": "new"}, {"input": "new", "prompt": "new"}),
    "the alias alone, as it was": ({"prompt": "hi"}, {"input": "hi", "prompt": "hi"}),
    "the key alone": ({"input": "new"}, {"input": "new", "prompt": "new"}),
    "both differ": ({"input": "a", "prompt": "b"}, {"input": "a", "prompt": "a"}),
    "neither": ({"other": 1}, {"other": 1}),
}


@pytest.mark.rule("design 7.3")
@pytest.mark.parametrize(("change", "after"), REPLACED.values(), ids=REPLACED)
def test_prompt_and_input_are_one_also_where_the_whole_is_replaced(change, after):
    assert merged("modified_payload", BEFORE, change, replace=True, aliases={"prompt": "input"}) == after


# -- adding up ---------------------------------------------------------------------------------------------

STRICTEST_FIRST = ["fail", "block", "skip", "ask", "answer", "allow", "continue"]
a_result = st.builds(
    HookResult,
    action=st.sampled_from(HookAction),
    error_message=st.none() | st.text(max_size=3),
    tell_model=st.none() | st.text(max_size=3),
    tell_user=st.none() | st.text(max_size=3),
    output=values,
)
answers = st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), a_result), max_size=5)


@given(answers.flatmap(lambda each: st.tuples(st.just(each), st.permutations(each))))
def test_the_strictest_wins_in_whatever_order_they_spoke(both):
    said, shuffled = both
    expected = min((result.action for _, result in said), key=STRICTEST_FIRST.index, default="continue")
    assert add_up(None, None, said).action == add_up(None, None, shuffled).action == expected


@given(answers)
def test_reasons_and_texts_are_kept_in_declared_order(said):
    outcome = add_up("p", "o", said)
    assert list(outcome.reasons) == [
        (name, result.action, result.error_message or "")
        for name, result in said
        if result.action != "continue"
    ]
    assert list(outcome.tell_model) == [result.tell_model for _, result in said if result.tell_model]
    assert list(outcome.tell_user) == [result.tell_user for _, result in said if result.tell_user]
    assert outcome.payload == "p"


@given(answers)
def test_an_answer_is_the_output_only_where_it_was_the_last_word(said):
    outcome = add_up("p", "o", said)
    answered = bool(said) and said[-1][1].action == "answer"
    assert outcome.answered is answered
    assert outcome.output == (said[-1][1].output if answered else "o")
    assert outcome.changed is answered


def test_the_reason_is_of_those_who_decided_and_of_nobody_else():
    said = [("a", R.allow("fine")), ("b", R.ask("sure?")), ("c", R.ask("really?")), ("d", R.ask(""))]
    outcome = add_up(None, None, said)
    assert (outcome.action, outcome.hook, outcome.reason) == ("ask", "b", "sure?; really?")
    assert outcome.reasons[0] == Reason("a", HookAction.ALLOW, "fine")


def test_where_nobody_said_anything_there_is_nobody_to_name():
    assert add_up("p", "o", []) == Outcome(payload="p", output="o")
    assert (Outcome().hook, Outcome().reason, Outcome().stopped) == ("", "", False)


@pytest.mark.rule("design 1.2")
@pytest.mark.parametrize("action", HookAction)
def test_fail_block_skip_and_answer_end_the_walk_and_nothing_else_does(action):
    ends = action in ("fail", "block", "skip", "answer")
    assert (action in ENDS_THE_WALK) is ends
    assert Outcome(action=action).stopped is ends
