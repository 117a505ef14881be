"""A place that becomes free is filled at once: an issue that found none does not wait out a back-off."""

from dataclasses import replace
from functools import partial

from hookline.symphony import scheduler
from tests.symphony.board.test_state import finished, issue, limits, started


def test_an_issue_without_a_place_is_not_left_to_wait_when_one_is_free():
    rules = limits(slots=1)
    waiting = issue("A-2")
    state, _ = started(issue("A-1"), rules=rules)
    retry = scheduler.Retry(issue=waiting, attempt=6, due=10_000.0, error=scheduler.NO_SLOT)
    failed = scheduler.Retry(issue=issue("A-3"), attempt=6, due=10_000.0, error="it broke")
    state = replace(state, retries={waiting.id: retry, failed.issue.id: failed})

    state, _ = finished(state, outcome="cancelled", now=50.0, rules=rules)
    assert scheduler.next_due(state, rules) == 50.0
    state, actions = scheduler.ticked(state, rules, 50.0)
    assert actions == [scheduler.AskTracker(ids=(waiting.id,))]
    looked = partial(scheduler.looked, asked=(waiting.id,), found={waiting.id: waiting})
    state, (begun,) = looked(state, rules, 50.0)

    assert begun.issue.id == waiting.id
    assert state.retries[failed.issue.id].due == 10_000.0
