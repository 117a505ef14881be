"""The phases of a run, what is due next, and gates: tables, and a machine that runs whatever is due."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason
from hookline.sympozium.phases import (
    NO_VERDICT,
    AgentSeen,
    GateVerdict,
    Phase,
    Seen,
    conditions,
    digest,
    due,
    error,
    exit_code,
    gate_settled,
    gated,
    outcome,
    phase,
    pre_run,
    published,
    result_for_hooks,
    status,
    verdict,
)
from hookline.sympozium.types import ContainerHook, Lifecycle

OK = ContainerState(state=ContainerPhase.ENDED, exit_code=0)
BAD = ContainerState(state=ContainerPhase.ENDED, exit_code=3)
LATE = ContainerState(state=ContainerPhase.ENDED, reason=EndReason.TIMED_OUT)
BUSY = ContainerState(state=ContainerPhase.RUNNING)
ANSWERED = AgentSeen(state=ContainerPhase.ENDED, exit_code=0, result="fine")
CRASHED = AgentSeen(state=ContainerPhase.ENDED, exit_code=7)
WORKING = AgentSeen(state=ContainerPhase.RUNNING)


def hooks(count, stage="h", **more):
    return tuple(
        ContainerHook(name=f"{stage}{index}", image="i", timeout=5, **more) for index in range(count)
    )


NONE = Lifecycle()
BEFORE = Lifecycle(pre_run=hooks(2))
AFTER = Lifecycle(post_run=hooks(2))
BOTH = Lifecycle(pre_run=hooks(2), post_run=hooks(2, "p"))
GATED = Lifecycle(post_run=(*hooks(1), *hooks(1, "gate", gate=True)))


@pytest.mark.statement(
    "SZ4", "SZ7", "SZ9", "SZ10", "SZ11", "SZ14", "SZ15", "SZ18", "SZ27", "SZ70", "SZ71", "SZ72"
)
@pytest.mark.rule("sympozium 1.5", "sympozium 1.17.1", "sympozium 1.17.7", "sympozium 1.17.9", "sympozium B5")
@pytest.mark.parametrize(
    ("lifecycle", "seen", "is_at", "waiting"),
    [
        (NONE, Seen(), "Pending", ()),
        (NONE, Seen(agent=WORKING), "Running", ()),
        (NONE, Seen(agent=ANSWERED), "Succeeded", ()),
        (NONE, Seen(agent=CRASHED), "Failed", ()),
        (NONE, Seen(stopped="cancelled"), "Failed", ()),
        (NONE, Seen(agent=replace(ANSWERED, reason=EndReason.TIMED_OUT)), "Failed", ()),
        (NONE, Seen(agent=replace(ANSWERED, error="no")), "Failed", ()),
        (BEFORE, Seen(), "Pending", ()),
        (BEFORE, Seen(pre_run=(BUSY,)), "Pending", ()),
        (BEFORE, Seen(pre_run=(OK,)), "Pending", ()),
        (BEFORE, Seen(pre_run=(OK, BUSY)), "Pending", ()),
        (BEFORE, Seen(pre_run=(OK, OK)), "Pending", ()),
        (BEFORE, Seen(pre_run=(BAD,)), "Failed", ()),
        (AFTER, Seen(agent=WORKING), "Running", ()),
        (AFTER, Seen(agent=ANSWERED), "PostRunning", (0, 1)),
        (AFTER, Seen(agent=ANSWERED, post_run=(BUSY,)), "PostRunning", ()),
        (AFTER, Seen(agent=ANSWERED, post_run=(BAD,)), "PostRunning", (1,)),
        (AFTER, Seen(agent=ANSWERED, post_run=(BAD, OK)), "Succeeded", ()),
        (AFTER, Seen(agent=CRASHED, post_run=(OK, OK)), "Failed", ()),
        (BOTH, Seen(pre_run=(LATE,)), "PostRunning", (0, 1)),
        (BOTH, Seen(pre_run=(OK,), stopped="timeout"), "PostRunning", (0, 1)),
        (BOTH, Seen(pre_run=(BUSY,), stopped="timeout"), "Pending", ()),
        (BOTH, Seen(pre_run=(OK, OK), agent=ANSWERED, stopped="cancelled"), "PostRunning", (0, 1)),
        (BOTH, Seen(pre_run=(BAD,), post_run=(OK, OK)), "Failed", ()),
    ],
)
def test_the_phase_and_what_is_due_follow_from_what_was_seen(lifecycle, seen, is_at, waiting):
    assert (phase(lifecycle, seen), due(lifecycle, seen)) == (is_at, waiting)


@pytest.mark.rule("sympozium 1.15", "sympozium 1.17.18")
@pytest.mark.parametrize(
    ("seen", "is_at", "waiting"),
    [
        (Seen(pre_run=(OK,), skip="no work"), "Pending", ()),
        (Seen(pre_run=(OK, OK), skip="no work"), "Skipped", ()),
        (Seen(pre_run=(OK, BAD), skip="no work"), "PostRunning", (0, 1)),
        (Seen(pre_run=(OK, OK), skip="no work", stopped="cancelled"), "PostRunning", (0, 1)),
        (Seen(pre_run=(OK, OK), agent=replace(ANSWERED, skipped="no work")), "Skipped", ()),
    ],
)
def test_a_skip_counts_when_preRun_is_through_and_nothing_runs_after_it(seen, is_at, waiting):
    assert (phase(BOTH, seen), due(BOTH, seen)) == (is_at, waiting)
    if is_at == "Skipped":
        assert status(BOTH, seen)["result"] == "no work"
        assert "exitCode" not in status(BOTH, seen)


@pytest.mark.statement("SZ30", "SZ31")
@pytest.mark.rule("sympozium B11", "sympozium 1.17.7", "sympozium 1.17.9")
@pytest.mark.parametrize(
    ("seen", "code", "why"),
    [
        (Seen(pre_run=(OK, OK), agent=ANSWERED), 0, ""),
        (Seen(pre_run=(OK, OK), agent=CRASHED), 7, "agent exited with code 7"),
        (Seen(pre_run=(OK, OK), agent=replace(ANSWERED, error="no money")), 1, "no money"),
        (Seen(pre_run=(OK, OK), agent=replace(CRASHED, reason=EndReason.TIMED_OUT)), 7, "timeout"),
        (Seen(pre_run=(OK, BAD)), 1, "preRun hook 'h1' failed: exit code 3"),
        (Seen(pre_run=(LATE,)), 1, "preRun hook 'h0' failed: passed its limit of 5 s"),
        (Seen(stopped="cancelled"), 1, "cancelled"),
    ],
)
def test_hooks_are_told_the_real_exit_code_and_the_status_says_why(seen, code, why):
    assert (exit_code(BOTH, seen), error(BOTH, seen)) == (code, why)
    assert result_for_hooks(BOTH, seen, BOTH.post_run[0]) == (seen.agent.result or why)


@pytest.mark.statement("SZ35", "SZ36")
@pytest.mark.rule("sympozium 1.17.8", "sympozium B15")
def test_failed_postRun_hooks_are_one_condition_that_names_them_and_leave_the_phase_alone():
    seen = Seen(agent=ANSWERED, post_run=(BAD, LATE))
    assert phase(AFTER, seen) is Phase.SUCCEEDED
    (only,) = conditions(AFTER, seen)
    assert (only["type"], only["status"]) == ("PostRunFailed", "True")
    assert only["message"] == (
        "postRun hooks failed: 'h0' failed: exit code 3; 'h1' failed: passed its limit of 5 s"
    )
    assert conditions(AFTER, Seen(agent=ANSWERED, post_run=(OK, OK))) == ()
    assert conditions(BOTH, Seen(pre_run=(BAD,))) == ()


@pytest.mark.rule("sympozium C1", "sympozium 1.12")
def test_the_status_has_an_entry_for_each_hook():
    began = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    first = replace(OK, started=began, seconds=1.5, tail="done\n")
    last = replace(BAD, started=began.replace(minute=9), seconds=60.0, tail="boom")
    told = status(BOTH, Seen(pre_run=(first, OK), agent=ANSWERED, post_run=(last, OK)))
    assert told["hooks"][0] == {
        "name": "h0",
        "stage": "preRun",
        "state": "succeeded",
        "exitCode": 0,
        "startedAt": "2026-01-02T03:04:05Z",
        "seconds": 1.5,
        "tail": "done\n",
    }
    assert [(each["name"], each["state"]) for each in told["hooks"]] == [
        ("h0", "succeeded"),
        ("h1", "succeeded"),
        ("p0", "failed"),
        ("p1", "succeeded"),
    ]
    assert (told["phase"], told["result"], told["exitCode"]) == ("Succeeded", "fine", 0)
    assert (told["startedAt"], told["completedAt"]) == ("2026-01-02T03:04:05Z", "2026-01-02T03:10:05Z")
    assert told["conditions"][0]["lastTransitionTime"] == "2026-01-02T03:10:05Z"
    assert json.loads(json.dumps(told)) == told


def said(action, response=None, **more):
    return GateVerdict(action=action, response=response, **more)


@pytest.mark.rule("sympozium 1.14", "sympozium 1.17.17")
@pytest.mark.parametrize(
    ("given_verdict", "ended_ok", "default", "label", "text"),
    [
        (said("approve"), True, "block", "approved", "fine"),
        (said("approve", "other"), True, "block", "approved", "fine"),
        (said("reject", "not this"), True, "allow", "rejected", "not this"),
        (said("reject"), True, "allow", "rejected", "Response blocked by policy"),
        (said("rewrite", "better"), False, "block", "rewritten", "better"),
        (said("rewrite", ""), True, "block", "rewritten", ""),
        (said("rewrite"), True, "block", "rewritten", ""),
        (None, True, "block", "timeout", NO_VERDICT),
        (None, False, "block", "error", NO_VERDICT),
        (None, True, "allow", "allowed-by-default", "fine"),
        (None, False, "allow", "allowed-by-default", "fine"),
        (said("approve", digest=digest("fine")), True, "block", "approved", "fine"),
        (said("approve", digest=digest("another")), True, "block", "timeout", NO_VERDICT),
    ],
)
def test_every_row_of_the_gate_s_table(given_verdict, ended_ok, default, label, text):
    lifecycle = replace(GATED, gate_default=default)
    seen = Seen(agent=ANSWERED, verdict=given_verdict, post_run=(ContainerState(), OK if ended_ok else BAD))
    assert gated(lifecycle, seen) == (label, text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"action": "approve", "reason": "ok"}', said("approve", reason="ok")),
        ('{"action": "reject", "response": "no"}', said("reject", "no")),
        ('{"action": "maybe"}', None),
        ('{"action": ["approve"]}', None),
        ('{"action": "rewrite", "response": 3}', None),
        ('["approve"]', None),
        ("approve", None),
        ("[" * 100_000, None),
    ],
)
def test_only_a_verdict_in_its_form_is_one(text, found):
    assert verdict(text) == found


@pytest.mark.rule("sympozium B6", "sympozium X3", "sympozium 1.17.17")
def test_a_gate_runs_first_holds_the_answer_and_costs_no_other_hook_its_turn():
    seen = Seen(agent=ANSWERED)
    assert due(GATED, seen) == (1, 0)
    seen = replace(seen, post_run=(ContainerState(), BUSY))
    assert (published(GATED, seen), "result" in status(GATED, seen)) == (None, False)
    assert not gate_settled(GATED, seen)
    seen = replace(seen, verdict=said("rewrite", "better"))
    assert gate_settled(GATED, seen)
    assert not gate_settled(GATED, replace(seen, verdict=said("rewrite", digest=digest("x"))))
    seen = replace(
        seen,
        post_run=(ContainerState(), ContainerState(state=ContainerPhase.ENDED, reason=EndReason.SETTLED)),
    )
    assert due(GATED, seen) == (0,)
    assert result_for_hooks(GATED, seen, GATED.post_run[0]) == "better"
    assert result_for_hooks(GATED, seen, GATED.post_run[1]) == "fine"
    seen = replace(seen, post_run=(OK, seen.post_run[1]))
    told = status(GATED, seen)
    assert (told["phase"], told["gateVerdict"], told["result"]) == ("Succeeded", "rewritten", "better")
    assert conditions(GATED, seen) == ()


ENDS = st.sampled_from(
    [OK, BAD, LATE, ContainerState(state=ContainerPhase.ENDED, reason=EndReason.NOT_STARTED)]
)
AGENT_ENDS = st.sampled_from(
    [ANSWERED, CRASHED, replace(ANSWERED, skipped="nothing"), replace(ANSWERED, error="e")]
)
ORDER = [Phase.PENDING, Phase.RUNNING, Phase.POST_RUNNING]


@pytest.mark.rule("sympozium 1.5", "sympozium B5")
@given(st.data(), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_whatever_happens_one_thing_runs_at_a_time_and_every_postRun_hook_once_unless_skipped(
    data, before, after, has_gate
):
    ends = hooks(after, "p")
    lifecycle = Lifecycle(
        pre_run=hooks(before), post_run=(*ends[:-1], replace(ends[-1], gate=has_gate)) if ends else ()
    )
    pre, post = [ContainerState()] * before, [ContainerState()] * after
    seen, started, reached = Seen(), [], []
    while (start := _next(lifecycle, seen)) is not None:
        started.append(start)
        if start == "agent":
            assert all(each.succeeded for each in pre)
        for done in (False, True):
            seen = _with(seen, start, pre, post, data.draw if done else None)
            reached.append(phase(lifecycle, seen))
            if not done:
                assert due(lifecycle, seen) == ()
        # A run that has ended is neither cancelled nor skipped any more.
        is_over = phase(lifecycle, seen).ended
        if start in lifecycle.pre_run and not is_over and data.draw(st.integers(0, 4)) == 0:
            seen = replace(seen, stopped="cancelled") if data.draw(st.booleans()) else replace(seen, skip="x")
    end = phase(lifecycle, seen)
    assert end.ended
    ranks = [ORDER.index(each) if each in ORDER else len(ORDER) for each in reached]
    assert ranks == sorted(ranks)
    assert len({each for each in reached if each.ended}) <= 1
    after_it = [each for each in started if each in lifecycle.post_run]
    expected = () if end is Phase.SKIPPED else lifecycle.post_order
    assert after_it == [lifecycle.post_run[index] for index in expected]
    before_it = started[: len(started) - len(after_it)]
    assert before_it == [*lifecycle.pre_run, "agent"][: len(before_it)]


def _next(lifecycle, seen):
    """The hook that starts next, or the agent; None where nothing is left."""
    if outcome(lifecycle, seen) is None:
        states = zip(lifecycle.pre_run, pre_run(lifecycle, seen), strict=True)
        return next((hook for hook, each in states if each.state is ContainerPhase.WAITING), "agent")
    return next((lifecycle.post_run[index] for index in due(lifecycle, seen)), None)


def _with(seen, start, pre, post, draw):
    """What is seen when the thing has begun, or ended in one of its ways."""
    if start == "agent":
        return replace(seen, agent=draw(AGENT_ENDS) if draw else WORKING)
    given_hooks, kind = (pre, "pre_run") if start.name.startswith("h") else (post, "post_run")
    given_hooks[int(start.name[1:])] = draw(ENDS) if draw else BUSY
    return replace(seen, **{kind: tuple(given_hooks)})
