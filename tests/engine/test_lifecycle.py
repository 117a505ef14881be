import asyncio
import contextvars

import pytest

from hookline.engine.lifecycle import Run, new_run_id
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Decided, Ended, Owner, end_is_due
from hookline.engine.result import HookAction, HookResult
from hookline.errors import HookFailed, Refused, RunTimedOut, Skipped
from hookline.journal.sqlite import MemoryJournal
from tests.engine.builders import (
    APPROVE,
    REJECT,
    Life,
    Person,
    noting,
    of,
    rewrite,
    saying,
    standing,
)

R = HookResult
GO_ON = R.continue_with()
HELD = ("run", "session")


async def answers(outcome):
    return {"out": 1}


def watching(seen, *points):
    """Writes down what end hooks are told."""

    @standing(*points, name="ending")
    async def ending(ctx, hook_context):
        seen.append((hook_context.status, hook_context.current_output))
        return GO_ON

    return ending


def gate(*points, name="gate"):
    """A hook that waits until it is let through; and when it began to."""
    reached, let_through = asyncio.Event(), asyncio.Event()

    @standing(*points, name=name)
    async def waits(ctx, hook_context):
        reached.set()
        await let_through.wait()
        return GO_ON

    return waits, reached, let_through


# -- every way through a scope -----------------------------------------------------------------------------


@pytest.mark.parametrize("scope", Scope)
async def test_a_scope_that_goes_well_is_recorded_in_order(scope):
    life = Life((saying(GO_ON, name="h"),))
    outcome = await life.scope(scope).around({"in": 1}, answers)
    assert outcome.output == {"out": 1}
    assert life.story == [
        f"begin {scope}",
        f"{scope}.start h: continue",
        f"{scope}.end h: continue",
        f"end {scope} ok",
    ]


@pytest.mark.parametrize("scope", Scope)
async def test_a_scope_without_hooks_has_a_beginning_and_an_end(scope):
    life = Life()
    await life.scope(scope).around({"in": 1}, answers)
    begun, ended = life.records
    assert (type(begun), begun.scope, begun.name, begun.payload) == (Begun, scope, f"a {scope}", {"in": 1})
    assert (type(ended), ended.scope_id, ended.status, ended.output, ended.error) == (
        Ended,
        begun.scope_id,
        "ok",
        {"out": 1},
        None,
    )


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
async def test_when_the_thing_inside_fails_its_end_runs_and_is_told(scope):
    seen = []
    life = Life((watching(seen, f"{scope}.end"),))

    async def fails(outcome):
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await life.scope(scope).around({}, fails)
    assert seen == [(Status.FAILED, {"error": "boom"})]
    assert (life.ended.status, life.ended.error) == (Status.FAILED, "boom")


TOLD = {
    "an error without words": (ValueError(), Status.FAILED),
    "somebody's timeout": (TimeoutError("theirs"), Status.FAILED),
    "the run's limit": (RunTimedOut("60 s"), Status.TIMED_OUT),
    "a hook that failed it": (HookFailed("no", point="tool.start", hook="h"), Status.FAILED),
    "a refusal": (Refused("no", point="agent.start", hook="h"), Status.BLOCKED),
    "a skip": (Skipped("no", point="run.start", hook="h"), Status.SKIPPED),
    "a cancellation": (asyncio.CancelledError(), Status.CANCELLED),
    "an interrupt": (KeyboardInterrupt(), Status.CANCELLED),
    "an exit": (SystemExit(1), Status.FAILED),
}


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize(("error", "status"), TOLD.values(), ids=TOLD)
async def test_the_end_is_told_which_way_it_ended(error, status):
    seen = []
    life = Life((watching(seen, "agent.end"),))
    scope = life.scope("agent")
    await scope.enter({})
    await scope.left_after(error)
    assert seen == [(status, {"error": str(error) or type(error).__name__})]
    assert life.ended.status is status


async def test_a_cancellation_by_the_limit_of_the_run_is_told_as_that():
    seen = []
    life = Life((watching(seen, "agent.end"),))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01) as life.run.limit:
            await life.scope("agent").around({}, lambda _: asyncio.Event().wait())
    assert [status for status, _ in seen] == [Status.TIMED_OUT]


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("how", ["failed", "broke"])
async def test_after_a_failed_start_the_end_runs_only_for_runs_and_sessions(scope, how):
    seen, bodies = [], []

    @standing(f"{scope}.start")
    async def starts(ctx, hook_context):
        if how == "broke":
            raise ValueError("no")
        return R.fail("no")

    life = Life((starts, watching(seen, f"{scope}.end")))

    async def body(outcome):
        bodies.append(outcome)

    with pytest.raises(HookFailed):
        await life.scope(scope).around({}, body)
    assert bodies == []
    assert [status for status, _ in seen] == ([Status.FAILED] if scope in HELD else [])
    assert life.ended.status is Status.FAILED


@pytest.mark.rule("design 1.3")
async def test_a_workspace_whose_start_failed_has_no_end():
    seen = []
    life = Life((saying(R.fail("no"), "workspace.start"), watching(seen, "workspace.end")))
    with pytest.raises(HookFailed):
        await life.scope("workspace").around({}, answers)
    assert seen == []
    assert not end_is_due(Scope.WORKSPACE, HookAction.FAIL)


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", ["run", "agent"])
async def test_after_a_skip_no_end_runs(scope):
    seen = []
    life = Life((saying(R.skip("nothing"), f"{scope}.start"), watching(seen, f"{scope}.end")))
    with pytest.raises(Skipped, match="nothing"):
        await life.scope(scope).around({}, answers)
    assert (seen, life.ended.status, life.ended.error) == ([], Status.SKIPPED, "nothing")


@pytest.mark.rule("design 1.3")
async def test_a_tool_call_that_was_blocked_never_began_and_has_no_end():
    seen = []
    life = Life((saying(R.block("no"), "tool.start"), watching(seen, "tool.end")))
    scope = life.scope("tool")
    outcome = await scope.enter({})
    assert outcome.action == "block"
    await scope.leave({"error": "no"}, Status.BLOCKED, error="no")
    assert (seen, life.ended.status) == ([], Status.BLOCKED)


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("action", HookAction)
def test_whether_an_end_is_due_is_one_table(scope, action):
    due = {
        "continue": True,
        "allow": True,
        "answer": True,
        "skip": False,
        "fail": scope in HELD,
        "block": scope in HELD,
        "ask": scope in HELD,
    }
    assert end_is_due(scope, action) is due[action]


@pytest.mark.parametrize("scope", ["run", "agent", "step", "model", "tool"])
async def test_an_end_hook_that_fails_fails_the_run(scope):
    life = Life((saying(R.fail("unsound"), f"{scope}.end", name="h"),))
    with pytest.raises(HookFailed, match=rf"unsound \[hook h at {scope}\.end\]"):
        await life.scope(scope).around({}, answers)
    assert (life.ended.status, life.ended.error) == (Status.FAILED, "unsound")


async def test_an_end_hook_that_fails_does_not_hide_why_the_scope_failed():
    life = Life((saying(R.fail("unsound"), "agent.end"),))

    async def fails(outcome):
        raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await life.scope("agent").around({}, fails)
    assert (life.ended.status, life.ended.error) == (Status.FAILED, "boom")


async def test_an_end_hook_may_change_the_output():
    life = Life((saying(R.continue_with(modified_output={"b": 2}), "tool.end"),))
    outcome = await life.scope("tool").around({}, answers)
    assert outcome.output == life.ended.output == {"out": 1, "b": 2}


async def test_end_hooks_are_given_the_final_input_too():
    seen = []

    @standing("tool.end")
    async def looks(ctx, hook_context):
        seen.append(hook_context.current_payload)
        return GO_ON

    life = Life((saying(R.continue_with(modified_payload={"b": 2}), "tool.start"), looks))
    await life.scope("tool").around({"a": 1}, answers)
    assert seen == [{"a": 1, "b": 2}]


@pytest.mark.rule("design 7.3")
async def test_end_hooks_are_given_the_input_also_where_the_start_was_interrupted():
    seen = []

    @standing("run.end")
    async def looks(ctx, hook_context):
        seen.append((hook_context.status, hook_context.current_payload))
        return GO_ON

    waits, reached, _ = gate("run.start")
    life = Life((waits, looks))
    run = asyncio.ensure_future(life.scope("run").around({"input": "hi"}, answers))
    await reached.wait()
    run.cancel()
    await asyncio.wait([run])
    assert run.cancelled()
    assert seen == [(Status.CANCELLED, {"input": "hi"})]


# -- entered here, left there ------------------------------------------------------------------------------


async def test_a_scope_is_entered_in_one_task_and_left_in_another():
    seen = []
    life = Life((watching(seen, "tool.end"),))
    scope = life.scope("tool")
    await asyncio.ensure_future(scope.enter({}))
    await asyncio.ensure_future(scope.leave({"out": 1}))
    assert seen == [(Status.OK, {"out": 1})]
    assert [type(record) for record in life.records if isinstance(record, Begun | Ended)] == [Begun, Ended]


async def test_leaving_twice_is_leaving_once():
    seen = []
    life = Life((watching(seen, "tool.end"),))
    scope = life.scope("tool")
    await scope.enter({})
    await scope.leave({"out": 1})
    again = await scope.leave({"out": 2}, Status.FAILED)
    assert (len(seen), life.ended.output, again.output) == (1, {"out": 1}, {"out": 2})


@pytest.mark.parametrize("scope", Scope)
async def test_what_was_entered_by_another_process_can_be_left_here(scope):
    seen = []
    life = Life((watching(seen, f"{scope}.end"),))
    await life.scope(scope).leave({"error": "lost"}, Status.LOST, error="lost")
    assert seen == [(Status.LOST, {"error": "lost"})]
    assert life.ended.status is Status.LOST


async def test_a_scope_that_never_began_can_be_dropped():
    seen = []
    life = Life((watching(seen, "tool.end"),))
    scope = life.scope("tool")
    await scope.enter({})
    await scope.drop("not run: another tool failed")
    assert (seen, life.ended.status, life.ended.error) == (
        [],
        Status.CANCELLED,
        "not run: another tool failed",
    )


async def test_the_one_that_failed_is_dropped_as_failed():
    life = Life((saying(R.fail("no"), "tool.start"),))
    scope = life.scope("tool")
    await scope.enter({})
    await scope.drop("no")
    assert life.ended.status is Status.FAILED


# -- an agent whose end is refused -------------------------------------------------------------------------


def refusing(times):
    left = [f"not yet {number}" for number in range(times)]

    @standing("agent.end", name="strict")
    async def strict(ctx, hook_context):
        return R.block(left.pop(0)) if left else GO_ON

    return strict


async def test_an_agent_whose_end_is_refused_goes_on_until_it_is_not():
    asked = []
    life = Life((refusing(2),))

    async def again(ending):
        asked.append(ending.reason)
        return {"out": len(asked) + 1}

    outcome = await life.scope("agent").around({}, answers, again=again)
    assert asked == ["not yet 0", "not yet 1"]
    assert outcome.output == {"out": 3}
    assert (life.ended.status, life.ended.output) == (Status.OK, {"out": 3})


async def test_an_end_hook_knows_that_an_earlier_end_was_refused():
    known = []

    @standing(Point.AGENT_END)
    async def once(ctx, hook_context):
        known.append(hook_context.facts.end_refused)
        return GO_ON if hook_context.facts.end_refused else R.block("once more")

    await Life((once,)).scope("agent").around({}, answers, again=answers)
    assert known == [False, True]


async def test_an_agent_that_cannot_go_on_is_closed_as_refused():
    life = Life((refusing(1),))
    outcome = await life.scope("agent").around({}, answers)
    assert (outcome.action, outcome.reason) == ("block", "not yet 0")
    assert (life.ended.status, life.ended.error) == (Status.BLOCKED, "not yet 0")


async def test_when_going_on_fails_the_end_runs_once_more_and_is_final():
    seen = []
    life = Life((watching(seen, "agent.end"), refusing(9)))

    async def again(ending):
        raise Refused("too often", point=Point.AGENT_END, hook="strict")

    with pytest.raises(Refused, match="too often"):
        await life.scope("agent").around({}, answers, again=again)
    assert [status for status, _ in seen] == [Status.OK, Status.BLOCKED]
    assert life.ended.status is Status.BLOCKED


# -- cancelled ---------------------------------------------------------------------------------------------


async def begun(life, scope="agent", body=None):
    """A scope whose body waits, running in a task of its own."""
    inside = asyncio.Event()

    async def waits(outcome):
        inside.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(life.scope(scope).around({}, body or waits))
    await inside.wait()
    return task


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
async def test_when_cancelled_the_end_hooks_run_to_their_end(scope):
    seen = []
    waits, reached, let_through = gate(f"{scope}.end")
    life = Life((waits, watching(seen, f"{scope}.end")))
    task = await begun(life, scope)
    task.cancel()
    await reached.wait()
    assert not task.done()
    let_through.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [status for status, _ in seen] == [Status.CANCELLED]
    assert life.ended.status is Status.CANCELLED


async def test_cancelled_a_second_time_the_end_hooks_are_ended():
    seen = []
    waits, reached, _ = gate("agent.end")
    life = Life((waits, watching(seen, "agent.end")))
    task = await begun(life)
    task.cancel()
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), seen) == (True, [])
    assert (life.ended.status, life.ended.error) == (
        Status.CANCELLED,
        "CancelledError; its end hooks were interrupted",
    )


async def test_end_hooks_that_hang_past_the_grace_limit_are_ended():
    seen = []
    waits, _, _ = gate("agent.end")
    life = Life((waits, watching(seen, "agent.end")), end_grace=0.05)
    task = await begun(life)
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), seen, life.ended.status) == (True, [], Status.CANCELLED)


async def test_the_grace_limit_is_one_for_all_scopes_of_a_run():
    waits, _, _ = gate("tool.end", "agent.end", "run.end")
    life = Life((waits,), end_grace=0.05)
    run = life.scope("run")
    agent = life.scope("agent", run)
    tool = life.scope("tool", agent)
    inside = asyncio.Event()

    async def body(outcome):
        inside.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run.around({}, lambda _: agent.around({}, lambda _: tool.around({}, body))))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    assert [record.scope for record in of(Ended, life.records)] == ["tool", "agent", "run"]
    assert life.run.grace_left() == 0.0


async def test_an_end_hook_that_ignores_its_cancellation_holds_up_nothing(short_grace):
    ended = asyncio.Event()

    @standing("agent.end")
    async def stays(ctx, hook_context):
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    life = Life((stays,), end_grace=0.02)
    task = await begun(life)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    ended.set()


async def test_cancelled_while_the_end_hooks_of_a_success_run_they_have_their_grace():
    seen = []
    waits, reached, let_through = gate("agent.end")
    life = Life((waits, watching(seen, "agent.end")))
    task = asyncio.ensure_future(life.scope("agent").around({}, answers))
    await reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    let_through.set()
    await asyncio.wait([task])
    assert task.cancelled(), "the caller wanted it to end"
    assert seen == [(Status.OK, {"out": 1})]
    assert life.ended.status is Status.OK


async def test_cancelled_while_the_end_hooks_of_a_failure_run_they_have_their_grace():
    seen = []
    waits, reached, let_through = gate("agent.end")
    life = Life((waits, watching(seen, "agent.end")))

    async def fails(outcome):
        raise ValueError("boom")

    task = asyncio.ensure_future(life.scope("agent").around({}, fails))
    await reached.wait()
    task.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    let_through.set()
    await asyncio.wait([task])
    assert task.cancelled()
    assert seen == [(Status.FAILED, {"error": "boom"})]
    assert (life.ended.status, life.ended.error) == (Status.FAILED, "boom")


async def test_interrupted_end_hooks_do_not_hide_how_the_scope_ended():
    waits, reached, _ = gate("agent.end")
    life = Life((waits,))

    async def fails(outcome):
        raise ValueError("boom")

    task = asyncio.ensure_future(life.scope("agent").around({}, fails))
    await reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert (life.ended.status, life.ended.error) == (Status.FAILED, "boom; its end hooks were interrupted")


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
async def test_cancelled_while_its_start_hooks_run_only_runs_and_sessions_have_an_end(scope):
    seen = []
    waits, reached, _ = gate(f"{scope}.start")
    life = Life((waits, watching(seen, f"{scope}.end")))
    task = asyncio.ensure_future(life.scope(scope).around({}, answers))
    await reached.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert [status for status, _ in seen] == ([Status.CANCELLED] if scope in HELD else [])
    assert life.ended.status is Status.CANCELLED


async def test_when_only_a_part_was_cancelled_the_run_has_all_its_time_again():
    run = Run(end_grace=0.0)
    assert run.grace_left() is None
    run.interrupt()
    assert run.grace_left() == 0.0
    run.resume()
    assert run.grace_left() is None


# -- a person is asked -------------------------------------------------------------------------------------


async def test_a_person_is_asked_once_with_all_reasons_and_the_final_input():
    person, later = Person(APPROVE), []
    life = Life(
        (
            saying(R.ask("one"), "tool.start", name="a"),
            saying(R.continue_with(modified_payload={"b": 2}), "tool.start"),
            saying(R.ask("two"), "tool.start", name="b"),
            noting(later, "tool.start"),
        ),
        approver=person,
    )
    outcome = await life.scope("tool", current_tool="bash").enter({"a": 1})
    (question,) = person.asked
    assert [(reason.hook, reason.text) for reason in question.reasons] == [("a", "one"), ("b", "two")]
    assert question.value == outcome.payload == {"a": 1, "b": 2}
    assert (question.tool, question.point) == ("bash", "tool.start")
    assert later == [{"a": 1, "b": 2}], "the walk went on after the first ask"
    assert (outcome.action, outcome.stopped) == ("continue", False)


@pytest.mark.parametrize("point", ["tool.start", "run.end"])
async def test_nobody_is_asked_where_a_later_hook_stops_it(point):
    person = Person()
    stop = R.block("no") if point == "tool.start" else R.fail("no")
    life = Life((saying(R.ask("?"), point), saying(stop, point, name="strict")), approver=person)
    scope = life.scope(point.partition(".")[0])
    outcome = await scope.enter({})
    if point == "run.end":
        outcome = await scope.leave({})
    assert (outcome.action, outcome.hook, outcome.reason, person.asked) == (stop.action, "strict", "no", [])


async def test_approved_it_goes_on_as_it_was():
    life = Life((saying(R.ask("?"), "tool.start"),), approver=Person(APPROVE))
    outcome = await life.scope("tool").around({"a": 1}, answers)
    assert outcome.output == {"out": 1}
    assert [(each.action, each.note) for each in of(Decided, life.records)] == [
        ("ask", None),
        ("continue", "approved by ann"),
    ]


async def test_rejected_at_a_start_it_is_refused_with_the_persons_words():
    seen = []
    life = Life(
        (saying(R.ask("sure?"), "tool.start", name="h"), watching(seen, "tool.end")), approver=Person(REJECT)
    )
    outcome = await life.scope("tool").around({}, answers)
    assert (outcome.action, outcome.reason, outcome.hook) == ("block", "not on a Friday", "h")
    assert (seen, life.ended.status) == ([], Status.BLOCKED)
    assert of(Decided, life.records)[-1].note == "rejected by ann"


async def test_rejected_without_words_the_question_is_the_reason():
    life = Life((saying(R.ask("sure?"), "tool.start"),), approver=Person(REJECT._replace(text="")))
    assert (await life.scope("tool").enter({})).reason == "sure?"


async def test_rejected_at_the_end_of_a_run_the_run_fails():
    life = Life((saying(R.ask("ship it?"), "run.end"),), approver=Person(REJECT))
    with pytest.raises(HookFailed, match="not on a Friday"):
        await life.scope("run").around({}, answers)
    assert life.ended.status is Status.FAILED


async def test_rewritten_at_a_start_it_runs_with_what_the_person_wrote():
    bodies = []

    async def body(outcome):
        bodies.append(outcome.payload)

    life = Life((saying(R.ask("?"), "tool.start"),), approver=Person(rewrite({"command": "ls"})))
    await life.scope("tool").around({"command": "rm"}, body)
    assert bodies == [{"command": "ls"}]
    last = of(Decided, life.records)[1]
    assert (last.action, last.payload, last.note) == ("continue", {"command": "ls"}, "rewritten by ann")


async def test_a_hook_with_the_last_word_is_asked_about_what_the_person_wrote():
    async def body(_outcome):
        raise AssertionError("it must not run")

    async def guard(ctx, hook_context):
        harmful = hook_context.current_payload["command"] == "rm"
        return R.block("no rm") if harmful else R.continue_with()

    hooks = (standing("tool.start", last_word=True)(guard), saying(R.ask("?"), "tool.start"))
    life = Life(hooks, approver=Person(rewrite({"command": "rm"})))
    outcome = await life.scope().around({"command": "ls"}, body)
    assert (outcome.action, outcome.reason) == ("block", "no rm")


async def test_rewritten_at_the_end_of_a_run_that_is_its_output():
    life = Life((saying(R.ask("?"), "run.end"),), approver=Person(rewrite({"out": 2})))
    outcome = await life.scope("run").around({}, answers)
    assert outcome.output == life.ended.output == {"out": 2}


ASKED_AND_ANSWERED = {
    "approved": (APPROVE, "answer", {"instead": True}, False),
    "rejected": (REJECT, "block", None, False),
    "rewritten": (rewrite({"in": 2}), "continue", None, True),
}


@pytest.mark.parametrize(
    ("verdict", "action", "output", "runs"), ASKED_AND_ANSWERED.values(), ids=ASKED_AND_ANSWERED
)
async def test_an_answer_that_a_person_was_asked_about(verdict, action, output, runs):
    life = Life(
        (saying(R.ask("?"), "tool.start"), saying(R.answer({"instead": True}), "tool.start")),
        approver=Person(verdict),
    )
    bodies = []

    async def body(outcome):
        bodies.append(outcome.payload)
        return {"out": 1}

    scope = life.scope("tool")
    outcome = await scope.around({"in": 1}, body)
    assert scope.outcome.action == action
    assert bool(bodies) is runs
    if output is not None:
        assert outcome.output == output


async def test_without_anyone_to_ask_it_is_a_refusal_and_on_record_as_nobodys():
    life = Life((saying(R.ask("sure?"), "tool.start"),))
    outcome = await life.scope("tool").enter({})
    assert (outcome.action, outcome.reason) == (
        "block",
        "a person has to decide (sure?), and nobody is there to answer",
    )
    assert of(Decided, life.records)[-1].note == "rejected by default"


async def test_the_wait_for_a_person_is_not_the_hooks_time():
    async def slow(question):
        await asyncio.sleep(0.1)
        return APPROVE

    life = Life((saying(R.ask("?"), "tool.start", timeout=0.01),), approver=slow)
    assert (await life.scope("tool").enter({})).action == "continue"


async def test_a_question_is_in_the_journal_before_it_is_asked_and_its_answer_after():
    journal = MemoryJournal()
    pending = []

    async def looks(question):
        pending.extend(journal.questions("r"))
        return APPROVE

    life = Life((saying(R.ask("sure?"), "tool.start"),), approver=looks, journal=journal)
    await life.scope("tool").enter({"a": 1})
    assert [(each.value, each.verdict) for each in pending] == [({"a": 1}, None)]
    assert journal.questions("r") == []
    (kept,) = journal.questions("r", pending=False)
    assert (kept.id, kept.verdict.kind, kept.verdict.by) == (pending[0].id, "approve", "ann")


async def test_cancelled_while_a_person_thinks_nothing_has_begun():
    seen, thinking = [], asyncio.Event()

    async def never(question):
        thinking.set()
        await asyncio.Event().wait()

    life = Life((saying(R.ask("?"), "tool.start"), watching(seen, "tool.end")), approver=never)
    task = asyncio.ensure_future(life.scope("tool").around({}, answers))
    await thinking.wait()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), seen, life.ended.status) == (True, [], Status.CANCELLED)


# -- permission --------------------------------------------------------------------------------------------


async def entered(*hooks, approver, permission="it writes files"):
    life = Life(hooks, approver=approver)
    return await life.scope("tool").enter({}, permission=permission), life


async def test_what_needs_permission_is_asked_for_where_no_hook_says_anything():
    person = Person(APPROVE)
    outcome, life = await entered(approver=person)
    assert [tuple(reason) for reason in person.asked[0].reasons] == [("permission", "ask", "it writes files")]
    assert outcome.action == "continue"
    assert [(each.action, each.note) for each in of(Decided, life.records)] == [
        ("ask", "needs permission"),
        ("continue", "approved by ann"),
    ]


async def test_what_a_hook_allows_needs_no_permission():
    person = Person()
    outcome, _ = await entered(saying(R.allow("known")), approver=person)
    assert (outcome.action, person.asked) == ("allow", [])


async def test_permission_and_a_hook_that_asks_are_one_question():
    person = Person(APPROVE)
    await entered(saying(R.ask("on a Friday?"), name="h"), approver=person)
    assert [reason.text for reason in person.asked[0].reasons] == ["on a Friday?", "it writes files"]


async def test_where_one_allows_and_one_asks_the_question_is_only_the_hooks():
    person = Person(APPROVE)
    await entered(saying(R.allow("known")), saying(R.ask("on a Friday?")), approver=person)
    assert [reason.text for reason in person.asked[0].reasons] == ["on a Friday?"]


@pytest.mark.parametrize("result", [R.block("no"), R.fail("no"), R.answer(1)], ids=lambda r: r.action)
async def test_what_does_not_run_needs_no_permission(result):
    person = Person()
    outcome, _ = await entered(saying(result), approver=person)
    assert (outcome.action, person.asked) == (result.action, [])


async def test_without_permission_it_is_refused():
    outcome, _ = await entered(approver=None)
    assert (outcome.action, outcome.hook) == ("block", "permission")
    assert "it writes files" in outcome.reason


# -- the record --------------------------------------------------------------------------------------------


async def test_a_beginning_names_its_parent_and_what_it_is_about():
    life = Life()
    run = life.scope("run")
    tool = life.scope(
        "tool",
        run,
        current_tool="bash",
        tool_kind="shell",
        call_id="c1",
        agent="a",
        parents=("outer",),
        step=2,
    )
    owner = Owner("boot", 1, "now")
    await run.enter({}, declaration={"format": "polos"}, source="a.py", owner=owner)
    await tool.enter({})
    first, second = of(Begun, life.records)
    assert (first.parent_id, first.declaration, first.source, first.owner) == (
        None,
        {"format": "polos"},
        "a.py",
        owner,
    )
    assert second.parent_id == first.scope_id
    assert second.about == {
        "workflow_id": "w",
        "agent": "a",
        "parents": ["outer"],
        "attempt": 1,
        "step": 2,
        "tool": "bash",
        "tool_kind": "shell",
        "call_id": "c1",
    }


async def test_a_beginning_is_written_before_its_hooks_run_and_the_end_after():
    order = []
    life = Life((standing(name="h")(lambda *_: order.append("hook") or GO_ON),))
    life.run.recorder.watchers = (lambda record: order.append(type(record).__name__),)
    await life.scope("tool").around({}, answers)
    assert order == ["Begun", "hook", "Called", "hook", "Called", "Ended"]


async def test_a_watcher_that_raises_does_not_keep_end_hooks_from_running():
    seen = []
    life = Life((watching(seen, "run.end"),))

    def breaks(record):
        raise BrokenPipeError("nobody reads")

    life.run.recorder.watchers = (breaks,)
    await life.scope("run").around({}, answers)
    assert seen == [(Status.OK, {"out": 1})]


def test_run_ids_are_short_and_differ():
    ids = {new_run_id() for _ in range(100)}
    assert len(ids) == 100
    assert all(len(each) <= 16 and each.replace("-", "").isalnum() for each in ids)


async def test_an_end_hook_is_never_in_the_task_of_the_run():
    """A cancelled run leaves its end hooks their time, and they may wait there as anywhere."""
    seen = []

    @standing("agent.end")
    async def looks(ctx, hook_context):
        seen.append(asyncio.current_task())
        async with asyncio.timeout(60):
            await asyncio.sleep(0)
        seen.append(asyncio.current_task())
        return GO_ON

    async def body(outcome):
        return {}

    await Life((looks, looks)).scope("agent").around({}, body)
    assert len(set(seen)) == 1
    assert asyncio.current_task() not in seen


@pytest.mark.parametrize("waits", [False, True])
async def test_what_an_end_hook_sets_in_its_context_stays_there(waits):
    var = contextvars.ContextVar("var", default="mine")
    seen = []

    @standing("agent.end")
    async def sets(ctx, hook_context):
        var.set("its own")
        if waits:
            await asyncio.sleep(0)
        seen.append(var.get())
        return GO_ON

    async def body(outcome):
        return {}

    await Life((sets,)).scope("agent").around({}, body)
    assert (seen, var.get()) == (["its own"], "mine")


async def test_an_end_hook_that_cancels_its_task_does_not_end_the_run():
    @standing("agent.end")
    async def gives_up(ctx, hook_context):
        asyncio.current_task().cancel()
        await asyncio.Event().wait()

    async def body(outcome):
        return {}

    life = Life((gives_up,))
    with pytest.raises(asyncio.CancelledError):
        await life.scope("agent").around({}, body)
    assert asyncio.current_task().cancelling() == 0
    assert life.ended.status == Status.CANCELLED
