"""What a record that breaks off leaves to be done: runs are recorded whole, cut everywhere, and compared."""

import asyncio
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended, owed
from hookline.engine.result import HookAction, HookResult
from hookline.errors import RunEnded
from tests.engine.builders import APPROVE, POINTS, REJECT, Life, Person, saying, standing
from tests.engine.test_verdicts import ALLOWED_AT, SAID

R = HookResult
HELD = ("run", "session")


# -- small records, written by hand ------------------------------------------------------------------------


def begin(scope, scope_id="1", parent=None):
    return Begun("r", scope_id, parent, Scope(scope), f"a {scope}", 0.0, None, {})


def call(point, scope_id="1", action="continue"):
    return Called(
        "r",
        scope_id,
        Point(point),
        "h",
        0.0,
        0.0,
        HookAction(action),
        None,
        None,
        None,
        "enforce",
        *[None] * 5,
    )


def decide(point, action="continue", scope_id="1"):
    return Decided("r", scope_id, Point(point), 0.0, HookAction(action), (), None, None, None)


def end(scope, scope_id="1"):
    return Ended("r", scope_id, Scope(scope), 0.0, Status.OK, None, None)


def due(*records):
    """Scope names and whether their end is due, innermost first."""
    return [(item.begun.scope, item.due) for item in owed(records)]


def test_nothing_was_begun_and_nothing_is_owed():
    assert due() == []
    assert due(decide("tool.start")) == []


@pytest.mark.parametrize("scope", Scope)
def test_what_was_ended_is_not_owed(scope):
    assert due(begin(scope), end(scope)) == []
    assert due(begin(scope), decide(f"{scope}.start"), decide(f"{scope}.end"), end(scope)) == []


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("action", HookAction)
def test_what_the_start_decided_says_whether_the_end_is_due(scope, action):
    expected = scope in HELD if action in ("fail", "block", "ask") else action != "skip"
    assert due(begin(scope), decide(f"{scope}.start", action)) == [(scope, expected)]


@pytest.mark.parametrize("scope", Scope)
def test_while_start_hooks_were_at_work_only_runs_and_sessions_have_an_end(scope):
    assert due(begin(scope), call(f"{scope}.start")) == [(scope, scope in HELD)]


@pytest.mark.parametrize("scope", Scope)
def test_begun_and_nothing_else_is_taken_for_begun_but_never_a_half_made_workspace(scope):
    assert due(begin(scope)) == [(scope, scope != "workspace")]


@pytest.mark.parametrize("scope", Scope)
def test_where_something_is_inside_it_had_begun(scope):
    assert due(begin(scope), begin("tool", "2", "1")) == [("tool", True), (scope, True)]
    assert due(begin(scope), begin("tool", "2", "1"), end("tool", "2")) == [(scope, True)]


@pytest.mark.parametrize("scope", Scope)
def test_end_hooks_that_were_at_work_are_to_run_again(scope):
    assert due(begin(scope), decide(f"{scope}.start"), call(f"{scope}.end")) == [(scope, True)]


@pytest.mark.parametrize("scope", Scope)
@pytest.mark.parametrize("action", ["continue", "fail", "ask"])
def test_end_hooks_that_are_through_do_not_run_again(scope, action):
    assert due(begin(scope), decide(f"{scope}.start"), decide(f"{scope}.end", action)) == [(scope, False)]


def test_an_agent_whose_end_was_refused_has_its_end_before_it():
    records = [begin("agent"), decide("agent.start"), decide("agent.end", "block")]
    assert due(*records) == [("agent", True)]
    assert due(*records, decide("agent.end")) == [("agent", False)]


@pytest.mark.parametrize("scope", ["tool", "model"])
def test_anything_else_that_was_refused_at_its_end_is_through(scope):
    assert due(begin(scope), decide(f"{scope}.start"), decide(f"{scope}.end", "block")) == [(scope, False)]


def test_while_a_person_is_asked_a_tool_has_not_begun_and_then_it_has():
    asked = [begin("tool"), decide("tool.start", "ask")]
    assert due(*asked) == [("tool", False)]
    assert due(*asked, decide("tool.start", "continue")) == [("tool", True)]
    assert due(*asked, decide("tool.start", "block")) == [("tool", False)]


def test_the_innermost_comes_first():
    records = [
        begin("workspace", "1"),
        begin("run", "2", "1"),
        begin("agent", "3", "2"),
        begin("tool", "4", "3"),
    ]
    assert [item.begun.scope_id for item in owed(records)] == ["4", "3", "2", "1"]


def test_records_of_other_points_of_a_scope_change_nothing():
    assert due(begin("agent"), decide("agent.start"), decide("tool.end")) == [("agent", True)]


# -- whole runs --------------------------------------------------------------------------------------------

NESTED = ("workspace", "run", "session", "agent", "step", "model")


async def recorded(says=(), *, approver=None, body_fails=False, refusals=0):
    """A run through all seven scopes with a hook at each point; `says` are verdicts by point."""
    said = {point: SAID[verdict] for point, verdict in says}
    refused = itertools.count()

    @standing(name="h")
    async def decides(ctx, hook_context):
        point = hook_context.point
        if point == "agent.end" and hook_context.status == "ok" and next(refused) < refusals:
            return R.block("not yet")
        return said.get(point, R.continue_with())

    life = Life((decides,), approver=approver)

    async def inside(scope, parent):
        async def body(outcome):
            if scope == "model":
                tool = life.scope("tool", parent=made)
                await tool.around({}, fails if body_fails else nothing)
                return None
            return await inside(NESTED[NESTED.index(scope) + 1], made)

        async def again(ending):
            step = life.scope("step", parent=made)
            await step.around({}, nothing)

        made = life.scope(scope, parent)
        await made.around({}, body, again=again if scope == "agent" else None)

    try:
        await inside("workspace", None)
    except (RunEnded, ValueError):
        pass
    return life.records


async def nothing(outcome):
    return None


async def fails(outcome):
    raise ValueError("boom")


def expected_by(records, cut):
    """What is owed at a cut, by what was recorded after it: the scopes themselves say what they did."""
    before, after = records[:cut], records[cut:]
    open_ = [record for record in before if isinstance(record, Begun)]
    ended = {record.scope_id for record in before if isinstance(record, Ended)}
    return [
        (record, end_followed(record, before, after))
        for record in reversed(open_)
        if record.scope_id not in ended
    ]


def decisions(records):
    """Every outcome, also where the last call of a point stands for it."""
    return [each for each in records if isinstance(each, Decided) or (isinstance(each, Called) and each.last)]


def end_followed(begun, before, after):
    mine = [record for record in before if getattr(record, "scope_id", None) == begun.scope_id]
    decided = decisions(mine)
    starts = [record for record in decided if record.point == f"{begun.scope}.start"]
    settled = [record for record in starts if record.action != "ask"]
    if not settled:
        return None if begun.scope not in HELD else True
    gated = any(record.point == f"{begun.scope}.end" and record.action == "ask" for record in decided)
    return not gated and any(
        record.scope_id == begun.scope_id and record.point == f"{begun.scope}.end"
        for record in decisions(after)
    )


def check_every_cut(records):
    for cut in range(len(records) + 1):
        found = owed(records[:cut])
        expected = expected_by(records, cut)
        assert [item.begun for item in found] == [begun for begun, _ in expected], cut
        for item, (_, ended) in zip(found, expected, strict=True):
            if ended is not None:
                assert item.due is ended, (cut, item.begun.scope, records[:cut][-1])
            elif any(
                isinstance(each, Called | Decided) and each.scope_id == item.begun.scope_id
                for each in records[:cut]
            ):
                assert item.due is False, "its start hooks were at work, or a person was being asked"
    assert owed(records) == []


RUNS = {
    "all goes well": {},
    "the tool fails": {"body_fails": True},
    "the tool is blocked": {"says": [("tool.start", "block")]},
    "the tool is answered": {"says": [("tool.start", "answer")]},
    "the tool is asked for and approved": {"says": [("tool.start", "ask")], "approver": Person(APPROVE)},
    "the tool is asked for and rejected": {"says": [("tool.start", "ask")], "approver": Person(REJECT)},
    "the tool fails the run": {"says": [("tool.start", "fail")]},
    "the agent is skipped": {"says": [("agent.start", "skip")]},
    "the run is skipped": {"says": [("run.start", "skip")]},
    "the run's start fails": {"says": [("run.start", "fail")]},
    "the session's start fails": {"says": [("session.start", "fail")]},
    "the workspace's start fails": {"says": [("workspace.start", "fail")]},
    "the run's end is asked for": {"says": [("run.end", "ask")], "approver": Person(APPROVE)},
    "the agent's end is refused twice": {"refusals": 2},
    "the agent's end fails": {"says": [("agent.end", "fail")]},
}


@pytest.mark.rule("design 1.3")
@pytest.mark.parametrize("how", RUNS.values(), ids=RUNS)
async def test_what_is_owed_at_every_cut_is_what_the_scopes_then_did(how):
    records = await recorded(**how)
    assert len(records) >= 4
    check_every_cut(records)


async def test_a_whole_run_cut_at_every_place_reads_as_written_here():
    """The same for a reader: each line is a record, and what is owed right after it."""
    tools = frozenset({Point.TOOL_START, Point.TOOL_END})
    life = Life((saying(R.continue_with(), name="h"), saying(R.continue_with(), name="i", points=tools)))
    run = life.scope("run")
    tool = life.scope("tool", run)
    await run.around({}, lambda _: tool.around({}, nothing))
    table = [
        ("begin run", "run+"),
        ("run.start h: continue", "run+"),
        ("begin tool", "tool+ run+"),
        ("tool.start h: continue", "tool- run+"),
        ("tool.start i: continue", "tool+ run+"),
        ("tool.end h: continue", "tool+ run+"),
        ("tool.end i: continue", "tool- run+"),
        ("end tool ok", "run+"),
        ("run.end h: continue", "run-"),
        ("end run ok", ""),
    ]
    read = [
        (
            line,
            " ".join(f"{scope}{'+' if is_due else '-'}" for scope, is_due in due(*life.records[: cut + 1])),
        )
        for cut, line in enumerate(life.story)
    ]
    assert read == table


async def test_a_cancelled_run_owes_what_its_scopes_then_ran():
    inside = asyncio.Event()
    life = Life((saying(R.continue_with(), name="h"),))
    run = life.scope("run")
    tool = life.scope("tool", run)

    async def waits(outcome):
        inside.set()
        await asyncio.Event().wait()

    task = asyncio.ensure_future(run.around({}, lambda _: tool.around({}, waits)))
    await inside.wait()
    task.cancel()
    await asyncio.wait([task])
    check_every_cut(life.records)


async def test_while_permission_is_asked_for_the_tool_has_not_begun():
    asked = []

    async def looks(question):
        asked.extend(owed(life.records))
        return APPROVE

    life = Life((), approver=looks)
    await life.scope("tool").enter({}, permission="it writes files")
    assert [(item.begun.scope, item.due) for item in asked] == [("tool", False)]
    assert due(*life.records) == [("tool", True)]


anything = st.lists(
    st.sampled_from(
        [(point, verdict) for verdict, points in ALLOWED_AT.items() for point in points if point in POINTS]
    ),
    max_size=3,
    unique_by=lambda each: each[0],
)


@settings(max_examples=60)
@given(anything, st.booleans(), st.sampled_from(["approve", "reject", "nobody"]), st.integers(0, 2))
def test_whatever_hooks_say_every_cut_owes_what_the_scopes_then_did(says, body_fails, word, refusals):
    verdict = {"approve": APPROVE, "reject": REJECT}.get(word)
    approver = Person(verdict) if verdict else None
    says = [(point, said) for point, said in says if (point, said) != ("agent.end", "block")]
    records = asyncio.run(recorded(says, approver=approver, body_fails=body_fails, refusals=refusals))
    check_every_cut(records)
    begun = [record.scope_id for record in records if isinstance(record, Begun)]
    ended = [record.scope_id for record in records if isinstance(record, Ended)]
    assert sorted(begun) == sorted(ended), "each scope is ended, and once"
