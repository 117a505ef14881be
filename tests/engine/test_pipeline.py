import asyncio
import contextvars
import threading
from dataclasses import dataclass, replace

import pytest
from pydantic import BaseModel

from hookline.engine.context import Facts, HookContext, WorkflowContext
from hookline.engine.hook import Mode, OnError, hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point
from hookline.engine.record import Called, Decided
from hookline.engine.result import HookResult
from hookline.handlers.python import python_hook
from hookline.matcher import matcher
from tests.engine.builders import ENDS, POINTS, STARTS, context, fired, noting, saying, standing
from tests.engine.test_hook import follows

R = HookResult
GO_ON = R.continue_with()


# -- one after another -------------------------------------------------------------------------------------


@pytest.mark.rule("design 1.1")
async def test_hooks_run_one_after_another_in_declared_order():
    order = []

    def named(name):
        @standing(name=name)
        async def handler(ctx, hook_context):
            order.append(f"{name} begins")
            await asyncio.sleep(0)
            order.append(f"{name} ends")
            return GO_ON

        return handler

    await fired(named("a"), named("b"), named("c"))
    assert order == ["a begins", "a ends", "b begins", "b ends", "c begins", "c ends"]


@pytest.mark.rule("design 1.1")
@pytest.mark.parametrize("point", POINTS)
async def test_what_one_changes_the_next_sees(point):
    seen = []
    start = point in STARTS

    def change(value):
        return R.continue_with(modified_payload=value) if start else R.continue_with(modified_output=value)

    hooks = [saying(change({"b": 2})), noting(seen), saying(change({"a": 3})), noting(seen)]
    given = {"payload": {"a": 1}} if start else {"output": {"a": 1}}
    fired_ = await fired(*hooks, point=point, **given)
    assert seen == [{"a": 1, "b": 2}, {"a": 3, "b": 2}]
    outcome = fired_.outcome
    assert (outcome.payload if start else outcome.output) == {"a": 3, "b": 2}
    assert outcome.changed


@pytest.mark.parametrize("point", ["tool.start", "tool.end"])
async def test_a_hook_with_the_last_word_sees_what_later_hooks_made_of_it(point):
    seen, key = [], "payload" if point in STARTS else "output"
    change = saying(R.continue_with(**{f"modified_{key}": {"b": 2}}))
    last = noting(seen, last_word=True)
    await fired(last, change, noting([]), point=point, **{key: {"a": 1}})
    assert seen == [{"a": 1}, {"a": 1, "b": 2}]
    seen.clear()
    await fired(last, noting([]), replace(change, last_word=True), point=point, **{key: {"a": 1}})
    await fired(last, change, saying(R.fail("no")), point=point, **{key: {"a": 1}})
    assert seen == [{"a": 1}, {"a": 1}], "nothing changed below it, or nothing goes on"


async def test_a_hook_with_the_last_word_can_refuse_what_a_later_one_made_of_it():
    @standing(last_word=True)
    async def guard(ctx, hook_context):
        return R.block("no b") if "b" in hook_context.current_payload else GO_ON

    change = saying(R.continue_with(modified_payload={"b": 2}))
    assert (await fired(guard, change, payload={})).outcome.reason == "no b"


async def test_a_point_with_no_hook_gives_back_what_it_was_given():
    payload, output = {"a": 1}, object()
    seen = await fired(saying(R.fail("no"), "run.start"), payload=payload, output=output)
    assert seen.outcome.payload is payload
    assert seen.outcome.output is output
    assert (seen.outcome.action, seen.outcome.changed, seen.calls, seen.decided) == (
        "continue",
        False,
        [],
        [],
    )


async def test_a_hook_that_only_looks_leaves_everything_itself():
    payload = {"a": object()}
    seen = await fired(noting([]), payload=payload)
    assert seen.outcome.payload is payload
    assert not seen.outcome.changed


async def test_a_hook_stands_only_where_it_was_put():
    called = []
    one = noting(called, "tool.start")
    for point in POINTS:
        await fired(one, point=point, payload=point)
    assert called == ["tool.start"]


async def test_an_event_of_another_tool_is_fired_under_its_own_name():
    made = saying(R.block("seen"))
    passing = replace(made, name="p", points=frozenset(["x.claude.Notification"]))
    seen = await fired(passing, made, point="x.claude.Notification")
    assert (seen.outcome.action, seen.outcome.hook) == ("block", "p")


# -- what ends the walk ------------------------------------------------------------------------------------


@pytest.mark.rule("design 1.2")
@pytest.mark.parametrize(
    "result", [R.fail("x"), R.block("x"), R.skip("x"), R.answer("x")], ids=lambda r: r.action
)
async def test_what_stops_ends_the_walk(result):
    later = []
    seen = await fired(saying(result), noting(later), point="agent.start")
    assert (seen.outcome.action, later) == (result.action, [])
    assert seen.outcome.stopped


@pytest.mark.rule("design 7.1")
@pytest.mark.parametrize(
    "point", ["agent.start", "agent.end", "step.start", "step.end", "tool.start", "tool.end"]
)
async def test_fail_stops_at_all_six_points_of_polos_and_later_hooks_do_not_run(point):
    later = []
    seen = await fired(saying(R.fail("stop"), name="guard"), noting(later), point=point)
    assert (seen.outcome.action, seen.outcome.hook, seen.outcome.reason) == ("fail", "guard", "stop")
    assert later == []


@pytest.mark.rule("design 1.2")
async def test_ask_does_not_end_the_walk_and_all_reasons_are_kept():
    seen = []
    outcome = (
        await fired(
            saying(R.ask("one"), name="a"),
            saying(R.continue_with(modified_payload={"b": 2})),
            noting(seen),
            saying(R.ask("two"), name="b"),
            payload={"a": 1},
        )
    ).outcome
    assert seen == [{"a": 1, "b": 2}]
    assert (outcome.action, outcome.reason, outcome.payload) == ("ask", "one; two", {"a": 1, "b": 2})
    assert not outcome.stopped


@pytest.mark.rule("design 1.2")
@pytest.mark.parametrize("result", [R.fail("x"), R.block("x"), R.skip("x")], ids=lambda r: r.action)
async def test_what_stops_after_an_ask_is_stronger(result):
    outcome = (await fired(saying(R.ask("?")), saying(result), point="agent.start")).outcome
    assert (outcome.action, outcome.reason) == (result.action, "x")


async def test_an_answer_after_an_ask_still_asks_with_the_answer_kept():
    outcome = (await fired(saying(R.ask("?")), saying(R.answer("a")))).outcome
    assert (outcome.action, outcome.answered, outcome.output) == ("ask", True, "a")


async def test_texts_for_model_and_user_are_kept_in_order_also_of_the_one_that_stops():
    hooks = [
        saying(R.continue_with(tell_model="m1", tell_user="u1")),
        saying(R.continue_with(tell_model="m2")),
        saying(HookResult(action="block", error_message="no", tell_user="u2")),
    ]
    outcome = (await fired(*hooks)).outcome
    assert (outcome.tell_model, outcome.tell_user) == (("m1", "m2"), ("u1", "u2"))


# -- only what is returned counts --------------------------------------------------------------------------


def in_place(change):
    @standing(name="writes")
    async def handler(ctx, hook_context):
        change(hook_context)
        return GO_ON

    return handler


@pytest.mark.rule("design 7.31")
@pytest.mark.parametrize("point", ENDS)
async def test_a_changed_input_at_an_end_has_no_effect_and_is_told_once(point, caplog):
    both = R.continue_with(modified_payload={"a": 2}, modified_output={"b": 2})
    hooks = saying(R.continue_with(modified_payload={"a": 2})), saying(both, name="both")
    for _ in range(2):
        seen = await fired(*hooks, point=point, payload={"a": 1}, output={"b": 1})
        assert (seen.outcome.payload, seen.outcome.output) == ({"a": 1}, {"b": 2})
        assert ["modified_payload has no effect" in call.note for call in seen.calls] == [True, True]
        assert not any(call.error for call in seen.calls)
        await Pipeline(hooks).fire(context(point, {"a": 1}, {"b": 1}))
    assert len([text for text in caplog.messages if "modified_payload has no effect" in text]) == 2


CHANGES = {
    "a key": lambda seen: seen.current_payload.update(a=2),
    "deep": lambda seen: seen.current_payload["deep"]["list"].append(1),
    "cleared": lambda seen: seen.current_payload.clear(),
    "output": lambda seen: seen.current_output.append(1),
}


@pytest.mark.rule("design 1.5")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("position", ["first", "second"])
@pytest.mark.parametrize("point", ["tool.start", "tool.end"])
async def test_a_change_in_place_has_no_effect_and_is_told(change, position, point):
    payload, output = {"a": 1, "deep": {"list": []}}, [0]
    looked = []
    before = [noting(looked, name="first")] if position == "second" else []
    seen = await fired(*before, in_place(change), noting(looked), point=point, payload=payload, output=output)
    assert all(each == (payload if point == "tool.start" else output) for each in looked)
    assert (payload, output) == ({"a": 1, "deep": {"list": []}}, [0])
    assert seen.outcome.payload is payload
    assert seen.outcome.output is output
    (call,) = [call for call in seen.calls if call.hook == "writes"]
    assert "in place, which has no effect" in call.note
    assert ("current_output" if change is CHANGES["output"] else "current_payload") in call.note


@pytest.mark.rule("design 1.5")
@pytest.mark.parametrize("name", ["current_payload", "current_tool", "step", "anything"])
@pytest.mark.parametrize("position", ["first", "second"])
async def test_setting_an_attribute_is_broke_and_changes_nothing(name, position):
    looked = []
    before = [noting([], name="first")] if position == "second" else []
    writes = in_place(lambda seen: setattr(seen, name, {"a": 2}))
    tolerant = replace(writes, on_error=OnError.CONTINUE)
    seen = await fired(*before, tolerant, noting(looked), payload={"a": 1}, current_tool="bash")
    assert looked == [{"a": 1}]
    call = seen.calls[len(before)]
    assert (call.error_kind, "AttributeError" in call.error) == ("raised", True)


@pytest.mark.rule("design 1.5")
async def test_a_change_in_place_and_another_that_is_returned_are_told_apart():
    @standing()
    async def both(ctx, hook_context):
        hook_context.current_payload["a"] = 2
        return R.continue_with(modified_payload={"b": 3})

    seen = await fired(both, payload={"a": 1})
    assert seen.outcome.payload == {"a": 1, "b": 3}


@pytest.mark.rule("design 1.5")
async def test_what_a_hook_keeps_and_changes_after_it_returned_reaches_nobody():
    kept = {"deep": [1]}
    looked = []

    @standing()
    async def later(ctx, hook_context):
        kept["deep"].append(2)
        kept["more"] = 1
        return GO_ON

    seen = await fired(saying(R.continue_with(modified_payload=kept)), later, noting(looked), payload={})
    assert looked == [{"deep": [1]}]
    assert seen.outcome.payload == {"deep": [1]}


# -- a change, as the point takes it -----------------------------------------------------------------------


class City(BaseModel):
    name: str
    people: int = 0


@dataclass
class Place:
    name: str
    people: int = 0


@pytest.mark.rule("design 7.2")
@pytest.mark.parametrize("kind", [City, Place])
async def test_an_output_that_is_a_model_is_seen_as_a_dict_and_made_again(kind):
    looked = []
    change = saying(R.continue_with(modified_output={"people": 7}))
    seen = await fired(noting(looked), change, noting(looked), point="tool.end", output=kind(name="Oslo"))
    assert looked == [{"name": "Oslo", "people": 0}, {"name": "Oslo", "people": 7}]
    assert seen.outcome.output == kind(name="Oslo", people=7)


@pytest.mark.rule("design 7.2")
@pytest.mark.parametrize("change", [{"people": "many"}, {"name": None}], ids=str)
async def test_a_change_that_the_model_does_not_allow_is_broke_and_the_old_one_stays(change):
    output = City(name="Oslo")
    wrong = saying(R.continue_with(modified_output=change), on_error="continue")
    seen = await fired(wrong, point="tool.end", output=output)
    assert seen.outcome.output is output
    assert (seen.call.error_kind, "ValidationError" in seen.call.error) == ("raised", True)


@pytest.mark.rule("design 7.2")
async def test_replace_and_merge_are_chosen_by_the_hook():
    def change(**more):
        return saying(R.continue_with(modified_payload={"b": 2}, **more))

    assert (await fired(change(), payload={"a": 1})).outcome.payload == {"a": 1, "b": 2}
    assert (await fired(change(replace=True), payload={"a": 1})).outcome.payload == {"b": 2}
    assert (await fired(change(), payload="text")).outcome.payload == {"b": 2}
    assert (
        await fired(saying(R.continue_with(modified_payload="new")), payload={"a": 1})
    ).outcome.payload == "new"


@pytest.mark.rule("design 7.2")
@pytest.mark.parametrize("empty", [{}, [], "", 0, False], ids=repr)
async def test_something_empty_is_a_change_too(empty):
    seen = await fired(saying(R.continue_with(modified_payload=empty, replace=True)), payload={"a": 1})
    assert seen.outcome.payload == empty
    assert seen.outcome.changed


@pytest.mark.rule("design 7.3")
@pytest.mark.parametrize("change", [{"prompt": "new"}, {"input": "new"}], ids=str)
async def test_prompt_and_input_go_together_at_the_start_of_an_agent(change):
    seen = await fired(
        saying(R.continue_with(modified_payload=change)),
        point="agent.start",
        payload={"input": "hi", "prompt": "hi"},
        aliases={"prompt": "input"},
    )
    assert seen.outcome.payload == {"input": "new", "prompt": "new"}


@pytest.mark.rule("design 7.3")
async def test_every_hook_is_given_every_field():
    workflow = WorkflowContext(workflow_id="w")
    facts = Facts(
        workflow_id="w",
        point=Point.AGENT_START,
        run_id="r",
        agent="a",
        session_id="s",
        user_id="u",
        workflow=workflow,
    )
    looked = []

    @standing()
    async def looks(ctx, hook_context):
        looked.append((ctx, hook_context.to_dict()))
        return GO_ON

    await Pipeline([looks, looks]).fire(HookContext.of(facts, {"input": "hi"}, None))
    for ctx, shown in looked:
        assert ctx is workflow
        assert (shown["run_id"], shown["agent"], shown["session_id"], shown["user_id"]) == (
            "r",
            "a",
            "s",
            "u",
        )
        assert shown["current_payload"] == {"input": "hi"}


# -- a hook that broke -------------------------------------------------------------------------------------


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("even this")


class Foreign(BaseException):
    """As frameworks have them that want to get past `except Exception`."""


class Poisoned:
    @property
    def __class__(self):
        raise RuntimeError("do not look")


def raising(error):
    def handler(*_):
        raise error

    return handler


async def cyclic(ctx, hook_context):
    value = {}
    value["self"] = value
    return R.continue_with(modified_payload=value)


async def async_raise(ctx, hook_context):
    raise KeyError("missing")


async def raise_later(ctx, hook_context):
    await asyncio.sleep(0)
    raise SystemExit(2)


async def typo(ctx, hook_context):
    return HookResult.continue_with(modified_paylod={"a": 2})


async def async_generator(ctx, hook_context):
    yield HookResult.allow()


async def stop_iteration(ctx, hook_context):
    raise StopIteration


async def failing_group(ctx, hook_context):
    async def child():
        raise ValueError("in a child")

    async with asyncio.TaskGroup() as group:
        group.create_task(child())


async def exits_in_a_child(ctx, hook_context):
    raise BaseExceptionGroup("several", [SystemExit(1), ValueError("in a group")])


BROKEN = {
    "nothing": (lambda *_: None, "bad_answer", "returned None, an invalid result type; return HookResult"),
    "a dict": (lambda *_: {"action": "allow"}, "bad_answer", "returned dict"),
    "yes": (lambda *_: True, "bad_answer", "returned bool"),
    "a word": (lambda *_: "continue", "bad_answer", "returned str"),
    "the class": (lambda *_: HookResult, "bad_answer", "returned "),
    "an async generator": (async_generator, "bad_answer", "returned async_generator"),
    "an error, returned": (lambda *_: ValueError("x"), "raised", "raised ValueError: x"),
    "no verdict of this point": (lambda *_: R.skip("x"), "wrong_point", "skip means nothing at tool.start"),
    "output at a start": (
        lambda *_: R.continue_with(modified_output=1),
        "wrong_point",
        "modified_output means nothing at tool.start",
    ),
    "what JSON cannot carry": (
        lambda *_: R.continue_with(modified_payload={"a": [{"b": {1}}]}),
        "bad_answer",
        "modified_payload['a'][0]['b'] is set, which JSON cannot carry",
    ),
    "what holds itself": (cyclic, "raised", "RecursionError"),
    "a typo": (typo, "raised", "modified_paylod"),
    "an unknown verdict": (lambda *_: HookResult(action="deny"), "raised", "unknown action 'deny'"),
    "a reason that is not a text": (lambda *_: R.block(5), "raised", "must be a string, not int"),
    "raises": (raising(ValueError("x")), "raised", "raised ValueError: x ("),
    "raises, async": (async_raise, "raised", "KeyError: 'missing'"),
    "exits": (raising(SystemExit(1)), "raised", "SystemExit: 1"),
    "exits later": (raise_later, "raised", "SystemExit: 2"),
    "stops an iteration": (raising(StopIteration()), "raised", "StopIteration"),
    "stops an iteration, async": (stop_iteration, "raised", "StopIteration"),
    "ends a generator": (raising(GeneratorExit()), "raised", "GeneratorExit"),
    "raises what is no Exception": (raising(Foreign("past you")), "raised", "Foreign: past you"),
    "raises a group": (failing_group, "raised", "ValueError: in a child"),
    "raises a group with an exit in it": (exits_in_a_child, "raised", "ValueError: in a group"),
    "raises what cannot be told": (raising(Unspeakable()), "raised", "Unspeakable"),
    "takes too few": (lambda: GO_ON, "raised", "takes 0 positional arguments but 2 were given"),
    "gives back what bites": (lambda *_: Poisoned(), "raised", "do not look"),
}


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize(("handler", "kind", "said"), BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("on_error", ["continue", "block", "fail", None], ids=str)
async def test_a_hook_that_broke_is_no_hook_that_said_no(handler, kind, said, on_error):
    looked = []
    broken = standing(name="broken", on_error=on_error)(handler)
    seen = await fired(broken, noting(looked), payload={"a": 1})
    follows_ = on_error or "fail"
    assert seen.outcome.action == follows_
    call = seen.calls[0]
    assert (call.error_kind, call.action) == (kind, follows_)
    assert said in call.error
    if follows_ == "continue":
        assert (looked, seen.outcome.reasons) == ([{"a": 1}], ())
    else:
        assert (looked, seen.outcome.hook, seen.outcome.reason) == ([], "broken", call.error)
    assert seen.outcome.payload == {"a": 1}


@pytest.mark.rule("design 1.4")
async def test_a_hook_that_raised_is_told_with_the_place_where_it_did():
    seen = await fired(standing()(raising(ValueError("x"))))
    assert "test_pipeline.py:" in seen.call.error


SYNC_BROKEN = {
    "exits": (raising(SystemExit(1)), "SystemExit: 1"),
    "stops an iteration": (raising(StopIteration(1)), "StopIteration"),
    "interrupts": (raising(KeyboardInterrupt()), "KeyboardInterrupt"),
    "cancels": (raising(asyncio.CancelledError()), "CancelledError"),
    "raises a group": (raising(BaseExceptionGroup("g", [SystemExit(3)])), "SystemExit: 3"),
    "returns nothing": (lambda *_: None, "returned None"),
}


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize(("function", "said"), SYNC_BROKEN.values(), ids=SYNC_BROKEN)
async def test_a_hook_in_a_thread_that_broke_is_broke_here_too(function, said):
    seen = await fired(python_hook(function, [Point.TOOL_START]))
    assert (seen.outcome.action, said in seen.call.error) == ("fail", True), seen.call.error


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("on_error", ["continue", "block", "fail", None], ids=str)
async def test_what_follows_a_broken_hook_is_as_strict_as_the_point_can_bear(point, on_error):
    seen = await fired(standing(on_error=on_error)(raising(ValueError("x"))), point=point)
    assert seen.outcome.action == follows(on_error or "fail", point)
    assert seen.call.error_kind == "raised"


async def test_an_interrupt_of_the_user_is_not_taken_for_a_broken_hook():
    with pytest.raises(KeyboardInterrupt):
        await Pipeline([standing()(raising(KeyboardInterrupt()))]).fire(context())


# -- modes -------------------------------------------------------------------------------------------------

VERDICTS = {
    "fail": (R.fail("x"), "would have said fail"),
    "block": (R.block("x"), "would have said block"),
    "ask": (R.ask("x"), "would have said ask"),
    "allow": (R.allow("x"), "would have said allow"),
    "answer": (R.answer("x"), "would have said answer"),
    "change": (R.continue_with(modified_payload={"a": 2}), "would have changed it"),
}


@pytest.mark.parametrize(("result", "note"), VERDICTS.values(), ids=VERDICTS)
async def test_an_observer_runs_and_its_verdict_is_only_recorded(result, note):
    looked = []
    seen = await fired(saying(result, mode=Mode.OBSERVE), noting(looked), payload={"a": 1})
    assert seen.outcome == (await fired(payload={"a": 1})).outcome
    assert looked == [{"a": 1}]
    call = seen.calls[0]
    assert (call.mode, call.note, call.action, call.reason) == (
        "observe",
        note,
        result.action,
        result.error_message,
    )
    assert call.changed is None


@pytest.mark.parametrize("on_error", ["block", "fail", None], ids=str)
async def test_an_observer_that_breaks_stops_nothing_and_is_on_record(on_error):
    broken = standing(mode=Mode.OBSERVE, on_error=on_error)(raising(ValueError("x")))
    seen = await fired(broken)
    assert (seen.outcome.action, seen.call.error_kind, seen.call.mode) == ("continue", "raised", "observe")


async def test_an_observer_tells_nobody_anything():
    outcome = (await fired(saying(R.continue_with(tell_model="m", tell_user="u"), mode=Mode.OBSERVE))).outcome
    assert (outcome.tell_model, outcome.tell_user) == ((), ())


async def test_a_hook_that_is_off_is_not_called():
    called = []
    seen = await fired(noting(called, mode=Mode.OFF))
    assert (called, seen.calls, seen.decided) == ([], [], [])


async def test_a_hook_that_enforces_is_on_record_as_such():
    assert (await fired(saying(R.block("x")))).call.mode == "enforce"


# -- where a function runs ---------------------------------------------------------------------------------

WHO = contextvars.ContextVar("WHO", default="nobody")


async def test_a_sync_hook_runs_in_a_thread_and_sees_the_callers_context():
    WHO.set("caller")

    def looks(ctx, hook_context):
        return R.block(f"{WHO.get()} {threading.current_thread() is threading.main_thread()}")

    assert (await fired(python_hook(looks, [Point.TOOL_START]))).outcome.reason == "caller False"


async def test_a_point_leaves_nothing_behind_in_the_context_of_its_caller():
    async def waits(ctx, hook_context):
        await asyncio.sleep(0)
        return R.continue_with()

    await fired(python_hook(waits, [Point.TOOL_START]))
    before = list(contextvars.copy_context().items())
    await fired(python_hook(waits, [Point.TOOL_START]))
    assert list(contextvars.copy_context().items()) == before
    assert not any(value for variable, value in before if variable.name.startswith("hookline"))


def test_the_class_of_results_has_no_class_of_its_own():
    """One that suggests names is asked at every call of `continue_with`, and takes longer than the call."""
    assert type(HookResult) is type


async def test_an_inline_hook_runs_on_the_loop():
    @hook(inline=True)
    def looks(ctx, hook_context):
        return R.block(str(threading.current_thread() is threading.main_thread()))

    assert (await fired(python_hook(looks, [Point.TOOL_START]))).outcome.reason == "True"


async def test_a_sync_hook_does_not_hold_up_the_loop():
    going, heard = threading.Event(), threading.Event()

    def waits(ctx, hook_context):
        going.set()
        return R.block(str(heard.wait(5)))

    async def others():
        while not going.is_set():
            await asyncio.sleep(0)
        heard.set()

    seen, _ = await asyncio.gather(fired(python_hook(waits, [Point.TOOL_START])), others())
    assert seen.outcome.reason == "True"


# -- the record --------------------------------------------------------------------------------------------


async def test_each_call_and_the_outcome_are_recorded_in_order():
    records = []
    hooks = [
        saying(R.continue_with(modified_payload={"b": 2}, tell_model="m"), name="changes"),
        saying(R.allow("fine"), name="allows"),
        saying(R.block("no"), name="blocks"),
        saying(GO_ON, name="never"),
    ]
    await Pipeline(hooks, Recorder(watchers=[records.append])).fire(
        context(payload={"a": 1}, run_id="r", scope_id="3")
    )
    calls, decided = records[:-1], records[-1]
    assert [type(record) for record in records] == [Called, Called, Called, Decided]
    assert {(record.run_id, record.scope_id, record.point) for record in records} == {
        ("r", "3", "tool.start")
    }
    assert [(call.hook, call.action, call.reason) for call in calls] == [
        ("changes", "continue", None),
        ("allows", "allow", "fine"),
        ("blocks", "block", "no"),
    ]
    assert [call.given for call in calls] == [{"a": 1}, None, None], "the rest is what the one before left"
    assert [call.changed for call in calls] == [{"b": 2}, None, None]
    assert [call.tell_model for call in calls] == ["m", None, None]
    assert all(call.seconds >= 0 and call.at > 0 for call in calls)
    assert (decided.action, decided.payload) == ("block", {"a": 1, "b": 2})
    assert decided.reasons == (("allows", "allow", "fine"), ("blocks", "block", "no"))


@pytest.mark.parametrize("point", ENDS)
async def test_at_an_end_it_is_the_output_that_is_on_record(point):
    seen = await fired(saying(None, on_error="continue"), point=point, payload="in", output="out")
    assert seen.call.given == "out"


async def test_an_answer_is_on_record_as_one():
    seen = await fired(saying(R.answer({"a": 1})))
    assert (seen.call.action, seen.call.note) == ("answer", "answered in its place")
    assert seen.decided[0].output == {"a": 1}


async def test_the_first_hook_that_did_something_has_what_was_given_on_record():
    tells = R.continue_with(tell_user="x")
    seen = await fired(saying(GO_ON), saying(tells), saying(tells), payload={"a": 1})
    assert [call.given for call in seen.calls] == [None, {"a": 1}, None]


@pytest.mark.parametrize(
    ("hooks", "last", "outcomes"),
    [
        ([GO_ON], [True], 0),
        ([GO_ON, GO_ON], [False, True], 0),
        ([R.continue_with(tell_user="x"), GO_ON], [False, False], 1),
        ([GO_ON, R.continue_with(modified_payload={"b": 1})], [False, False], 1),
        ([GO_ON, R.block("no")], [False, False], 1),
        ([GO_ON, None], [False, True], 0),
    ],
)
async def test_where_all_hooks_only_let_things_go_on_the_last_call_stands_for_the_outcome(
    hooks, last, outcomes
):
    seen = await fired(*(saying(each, on_error="continue") for each in hooks), payload={"a": 1})
    assert ([call.last for call in seen.calls], len(seen.decided)) == (last, outcomes)


async def test_a_call_after_which_the_others_did_not_fit_is_followed_by_an_outcome():
    seen = await fired(saying(GO_ON), saying(GO_ON, match=matcher("ls")), current_tool="bash")
    assert (seen.call.last, len(seen.decided)) == (False, 1)


async def test_every_watcher_sees_every_record():
    one, other = [], []
    await Pipeline([saying(GO_ON)], Recorder(watchers=[one.append, other.append])).fire(context())
    assert len(one) == 1
    assert one == other


async def test_a_watcher_that_raises_stops_no_hook_and_no_other_watcher(caplog):
    def breaks(record):
        raise BrokenPipeError("nobody reads")

    called, seen = [], []
    recorder = Recorder(watchers=[breaks, seen.append])
    await Pipeline([noting(called), noting(called)], recorder).fire(context(payload=1))
    assert (called, len(seen)) == ([1, 1], 2)
    assert "BrokenPipeError" in caplog.text
    assert len(caplog.records) == 1, "it is told once, and not watched with any more"


async def test_without_a_journal_and_watchers_nothing_is_recorded():
    assert not Recorder().on
    assert (await Pipeline([saying(R.block("x"))]).fire(context())).action == "block"


async def test_the_names_of_hooks_whose_match_fitted_are_kept():
    matched = set()
    hooks = [saying(GO_ON, match=matcher("bash"), name="b"), saying(GO_ON, match=matcher("ls"), name="l")]
    await Pipeline(hooks, matched=matched).fire(context(current_tool="bash"))
    assert matched == {"b"}


async def test_many_firings_of_one_pipeline_at_once_do_not_mix():
    @standing()
    async def doubles(ctx, hook_context):
        await asyncio.sleep(0)
        return R.continue_with(modified_payload=hook_context.current_payload * 2)

    pipeline = Pipeline([doubles, doubles])
    outcomes = await asyncio.gather(*(pipeline.fire(context(payload=number)) for number in range(50)))
    assert [outcome.payload for outcome in outcomes] == [number * 4 for number in range(50)]


# -- one pipeline, many firings ----------------------------------------------------------------------------


def by_payload(**doing):
    """A hook that does what the payload names, and otherwise blocks with the payload as its reason."""

    @standing(name="does", timeout=0.05)
    async def does(ctx, hook_context):
        what = hook_context.current_payload
        return await doing[what]() if what in doing else R.block(what)

    return does


async def exits():
    raise SystemExit(1)


async def interrupts():
    raise KeyboardInterrupt


async def hangs():
    await asyncio.Event().wait()


async def swallows():
    for _ in range(1000):
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            continue


async def changes():
    return R.continue_with(modified_payload="changed", tell_model="told")


async def asks():
    await asyncio.sleep(0)
    return R.ask("sure?")


EARLIER = [exits, interrupts, hangs, swallows, changes, asks]


@pytest.mark.parametrize("earlier", EARLIER, ids=lambda each: each.__name__)
async def test_nothing_of_one_firing_is_left_for_the_next(earlier, short_grace):
    records = []
    does = replace(by_payload(earlier=earlier), on_error=OnError.CONTINUE)
    pipeline = Pipeline([does], Recorder(watchers=[records.append]))
    for _ in range(2):
        if earlier is interrupts:
            with pytest.raises(KeyboardInterrupt):
                await pipeline.fire(context(payload="earlier"))
        else:
            await pipeline.fire(context(payload="earlier"))
        records.clear()
        outcome = await pipeline.fire(context(payload="later"))
        assert (outcome.action, outcome.reason, outcome.payload) == ("block", "later", "later")
        assert (outcome.tell_model, outcome.changed, len(outcome.reasons)) == ((), False, 1)
        call, decided = records
        assert (call.given, call.error, decided.reasons) == ("later", None, outcome.reasons)


async def test_after_a_cancelled_firing_the_next_goes_on():
    waiting = asyncio.Event()

    async def waits():
        waiting.set()
        await asyncio.Event().wait()

    pipeline = Pipeline([saying(R.ask("kept?")), replace(by_payload(waits=waits), timeout=None)])
    firing = asyncio.ensure_future(pipeline.fire(context(payload="waits")))
    await waiting.wait()
    firing.cancel()
    await asyncio.wait([firing])
    assert firing.cancelled()
    outcome = await pipeline.fire(context(payload="later"))
    assert [reason.text for reason in outcome.reasons] == ["kept?", "later"]


async def test_a_firing_that_is_closed_while_its_hook_waits_closes_the_hook():
    closed = []

    async def waits():
        try:
            await asyncio.Event().wait()
        finally:
            closed.append(True)

    pipeline = Pipeline([by_payload(waits=waits)])
    firing = pipeline.fire(context(payload="waits"))
    firing.send(None)
    firing.close()
    assert closed == [True]
    assert (await pipeline.fire(context(payload="later"))).reason == "later"


async def test_a_hook_may_fire_the_pipeline_it_stands_in():
    @standing("agent.start", "tool.start")
    async def outer(ctx, hook_context):
        if hook_context.point == "agent.start":
            inner = await pipeline.fire(context("tool.start", payload="inner"))
            await asyncio.sleep(0)
            again = await pipeline.fire(context("tool.start", payload="again"))
            return R.block(f"{inner.reason} {again.reason} {hook_context.current_payload}")
        return R.block(f"<{hook_context.current_payload}>")

    pipeline = Pipeline([outer])
    assert (await pipeline.fire(context("agent.start", payload="outer"))).reason == "<inner> <again> outer"


async def test_firings_of_one_pipeline_that_end_in_another_order_do_not_mix():
    let_through = {name: asyncio.Event() for name in "abc"}

    @standing()
    async def waits(ctx, hook_context):
        name = hook_context.current_payload
        await let_through[name].wait()
        return R.continue_with(modified_payload={"name": name}, tell_model=name)

    pipeline = Pipeline([waits, saying(R.ask("?"))])
    firings = {name: asyncio.ensure_future(pipeline.fire(context(payload=name))) for name in "abc"}
    await asyncio.sleep(0)
    for name in "cab":
        let_through[name].set()
        outcome = await firings[name]
        assert (outcome.payload, outcome.tell_model, outcome.reason) == ({"name": name}, (name,), "?")


def test_a_pipeline_outlives_its_loop():
    async def waits():
        await asyncio.sleep(0)
        return R.block("waited")

    pipeline = Pipeline([by_payload(waits=waits)])
    for _ in range(3):
        assert asyncio.run(pipeline.fire(context(payload="waits"))).reason == "waited"
        assert asyncio.run(pipeline.fire(context(payload="later"))).reason == "later"


async def test_a_hook_that_broke_is_told_in_the_log_where_nobody_watches(caplog):
    await Pipeline([saying(None, name="mute", on_error="continue")]).fire(context())
    assert "hook mute at tool.start broke: returned None" in caplog.text


async def test_an_answer_that_json_cannot_carry_is_broke():
    seen = await fired(saying(R.answer({"a": object()})))
    assert (seen.outcome.action, seen.call.error_kind) == ("fail", "bad_answer")
    assert "answer(output)['a'] is object" in seen.call.error
