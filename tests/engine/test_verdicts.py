"""The table of section 2 of the design, cell by cell: every verdict at every point."""

import pytest

from hookline.engine.point import Status
from hookline.engine.record import Called
from hookline.engine.result import HookAction, HookResult
from hookline.errors import HookFailed, Skipped
from tests.engine.builders import (
    APPROVE,
    ENDS,
    POINTS,
    STARTS,
    Life,
    Person,
    fired,
    noting,
    of,
    saying,
    standing,
)
from tests.engine.test_hook import follows

R = HookResult
GATES = ("agent.start", "model.start", "tool.start")
SAID = {
    "continue": R.continue_with(tell_model="to the model", tell_user="to the user"),
    "allow": R.allow("why"),
    "block": R.block("why"),
    "fail": R.fail("why"),
    "skip": R.skip("why"),
    "ask": R.ask("why"),
    "answer": R.answer({"instead": True}),
}
ALLOWED_AT = {
    "continue": POINTS,
    "allow": GATES,
    "block": (*GATES, "step.start", "tool.end", "model.end", "agent.end"),
    "fail": tuple(point for point in POINTS if point not in ("session.end", "workspace.end")),
    "skip": ("run.start", "agent.start"),
    "ask": (*GATES, "run.end"),
    "answer": GATES,
}


def cells(*, allowed, verdicts=tuple(SAID)):
    return [
        pytest.param(
            verdict,
            point,
            id=f"{verdict} at {point}",
            marks=pytest.mark.rule(f"design 2: {verdict} at {point}"),
        )
        for verdict in verdicts
        for point in POINTS
        if (point in ALLOWED_AT[verdict]) is allowed
    ]


class Around:
    """One scope with a hook that gives one verdict at one point of it, and all that came of it."""

    def __init__(self, verdict, point, *, approver=None, later=()):
        self.scope_name, _, self.side = point.partition(".")
        self.ends = []
        self.later = []
        self.bodies = []
        self.again = []
        hooks = (
            saying(SAID[verdict], point, name="decides", on_error="fail"),
            *later,
            noting(self.later, point, name="later"),
            standing(f"{self.scope_name}.end", name="ending")(self._ending),
        )
        self.life = Life(hooks, approver=approver)
        self.scope = self.life.scope(self.scope_name)
        self.error = None
        self.outcome = None

    async def _ending(self, ctx, hook_context):
        self.ends.append((hook_context.status, hook_context.current_output))
        return R.continue_with()

    async def run(self):
        async def body(outcome):
            self.bodies.append(outcome.payload)
            return {"out": 1}

        async def again(ending):
            self.again.append(ending.reason)
            self.scope.pipeline = Life(()).scope().pipeline
            return {"out": 2}

        try:
            self.outcome = await self.scope.around({"in": 1}, body, again=again)
        except Exception as exc:
            self.error = exc
        return self

    @property
    def began(self):
        return bool(self.bodies)


def test_every_cell_of_the_table_is_here():
    assert len(cells(allowed=True)) + len(cells(allowed=False)) == 7 * 14
    assert set(SAID) == set(HookAction)


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["continue"]))
async def test_continue_goes_on_with_its_change_and_its_texts(verdict, point):
    change = {"modified_payload": {"b": 2}} if point in STARTS else {"modified_output": {"b": 2}}
    around = Around(verdict, point, later=[saying(R.continue_with(**change), point)])
    await around.run()
    assert around.error is None
    assert around.later == [{"in": 1, "b": 2} if point in STARTS else {"out": 1, "b": 2}]
    decided = around.scope.outcome if point in STARTS else around.outcome
    assert (decided.tell_model, decided.tell_user) == (("to the model",), ("to the user",))
    if point in STARTS:
        assert around.bodies == [{"in": 1, "b": 2}]
    else:
        assert around.outcome.output == {"out": 1, "b": 2}


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["allow"]))
async def test_allow_goes_on_and_nobody_is_asked_for_permission(verdict, point):
    person = Person()
    around = Around(verdict, point, approver=person)
    outcome = await around.scope.enter({"in": 1}, permission="it writes files")
    assert (outcome.action, outcome.stopped, person.asked) == ("allow", False, [])
    assert around.later == [{"in": 1}]
    await around.scope.leave({"out": 1})
    assert around.ends == [(Status.OK, {"out": 1})]


@pytest.mark.parametrize("point", GATES)
async def test_continue_is_not_allow(point):
    person = Person(APPROVE)
    around = Around("continue", point, approver=person)
    await around.scope.enter({"in": 1}, permission="it writes files")
    assert [reason.text for reason in person.asked[0].reasons] == ["it writes files"]


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["block"]))
async def test_block_refuses_this_one_thing(verdict, point):
    around = await Around(verdict, point).run()
    assert (around.error, around.later) == (None, [])
    if point in STARTS:
        assert (around.outcome.action, around.outcome.reason, around.outcome.hook) == (
            "block",
            "why",
            "decides",
        )
        assert (around.began, around.ends) == (False, [])
        assert around.life.ended.status is Status.BLOCKED
    elif point == "agent.end":
        assert around.again == ["why"], "it is not finished yet, and goes on with the reason"
        assert around.outcome.output == {"out": 2}
    else:
        assert (around.outcome.action, around.outcome.reason) == ("block", "why")
        assert around.outcome.output == {"out": 1}, "the caller adds the reason, or asks the model again"
        assert around.life.ended.status is Status.OK


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["fail"]))
async def test_fail_stops_the_run_with_an_error(verdict, point):
    around = await Around(verdict, point).run()
    assert type(around.error) is HookFailed
    assert (around.error.reason, around.error.point, around.error.hook) == ("why", point, "decides")
    assert around.later == []
    assert around.began is (point in ENDS)
    held = point in ("run.start", "session.start")
    assert bool(around.ends) is held, (
        "a failed start of a run or a session may have left something to clean up"
    )
    assert (around.life.ended.status, "why" in around.life.ended.error) == (Status.FAILED, True)


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["skip"]))
async def test_skip_ends_the_run_as_skipped_with_no_work(verdict, point):
    around = await Around(verdict, point).run()
    assert type(around.error) is Skipped
    assert (around.error.reason, around.error.point, around.error.hook) == ("why", point, "decides")
    assert (around.began, around.later, around.ends) == (False, [], [])
    assert around.life.ended.status is Status.SKIPPED


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["ask"]))
async def test_ask_lets_a_person_decide(verdict, point):
    person = Person(APPROVE)
    around = await Around(verdict, point, approver=person).run()
    (question,) = person.asked
    assert [(reason.hook, reason.text) for reason in question.reasons] == [("decides", "why")]
    assert (question.point, question.run_id) == (point, "r")
    assert question.value == ({"in": 1} if point in STARTS else {"out": 1})
    assert around.later, "the walk goes on"
    assert (around.error, around.outcome.output, around.life.ended.status) == (None, {"out": 1}, Status.OK)


@pytest.mark.parametrize("point", ALLOWED_AT["ask"])
async def test_ask_is_a_refusal_where_nobody_can_answer(point):
    around = await Around("ask", point).run()
    if point in STARTS:
        assert (around.outcome.action, around.began, around.ends) == ("block", False, [])
        assert around.outcome.reason == "a person has to decide (why), and nobody is there to answer"
        assert around.life.ended.status is Status.BLOCKED
    else:
        assert type(around.error) is HookFailed
        assert "nobody is there to answer" in around.error.reason
        assert around.life.ended.status is Status.FAILED


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=True, verdicts=["answer"]))
async def test_answer_takes_the_place_of_the_thing_itself_and_its_end_runs(verdict, point):
    around = await Around(verdict, point).run()
    assert (around.began, around.later, around.error) == (False, [], None)
    assert around.outcome.output == {"instead": True}
    assert around.ends == [(Status.ANSWERED, {"instead": True})]
    assert around.life.ended.status is Status.ANSWERED


@pytest.mark.parametrize("on_error", ["continue", "block", "fail"])
@pytest.mark.parametrize(("verdict", "point"), cells(allowed=False))
async def test_anywhere_else_a_verdict_means_nothing_and_the_hook_broke(verdict, point, on_error):
    seen = await fired(
        saying(SAID[verdict], point, name="decides", on_error=on_error), point=point, payload={"in": 1}
    )
    call = seen.call
    assert call.error_kind == "wrong_point"
    assert call.error.startswith(f"{verdict} means nothing at {point}; it is for ")
    assert call.error.endswith(", ".join(each for each in POINTS if each in ALLOWED_AT[verdict]))
    expected = follows(on_error, point)
    assert (call.action, seen.outcome.action) == (expected, expected)
    assert (seen.outcome.payload, seen.outcome.answered) == ({"in": 1}, False)


@pytest.mark.parametrize(("verdict", "point"), cells(allowed=False))
async def test_where_it_means_nothing_and_that_is_let_pass_all_goes_on(verdict, point):
    around = Around(verdict, point)
    decides = saying(SAID[verdict], point, name="decides", on_error="continue")
    around.scope.pipeline = type(around.scope.pipeline)(
        (decides, *around.life.hooks[1:]), around.life.run.recorder
    )
    await around.run()
    assert (around.error, around.began, around.outcome.output) == (None, True, {"out": 1})
    assert len(around.ends) == 1
    assert [call.error_kind for call in of(Called, around.life.records) if call.hook == "decides"] == [
        "wrong_point"
    ]
