"""The scheduler's state: tables for each rule, and a machine that tries every order of events."""

from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hookline.engine.context import Usage
from hookline.symphony import scheduler
from hookline.symphony.agents import AgentEvent
from hookline.symphony.read import Workflow
from hookline.symphony.scheduler import (
    AskTracker,
    RemoveWorkspace,
    Running,
    State,
    StopAttempt,
    backoff,
    eligible,
    free_slots,
    next_due,
    order,
)
from hookline.symphony.service import StateView
from hookline.symphony.settings import AgentSettings, CodexSettings, TrackerSettings
from hookline.symphony.trackers import Issue

TRACKER = TrackerSettings(active_states=("Todo", "In Progress"), terminal_states=("Done",))


def limits(slots=2, slots_by_state=None, stall_after=300.0, tracker=TRACKER):
    agent = AgentSettings(max_concurrent_agents=slots, max_concurrent_agents_by_state=slots_by_state or {})
    codex = CodexSettings(stall_timeout=stall_after)
    return Workflow(file="WORKFLOW.md", tracker=tracker, agent=agent, codex=codex)


RULES = limits()


def issue(name="A-1", state="Todo", **more):
    return Issue(id=f"id-{name}", identifier=name, title=f"title of {name}", state=state, **more)


def started(*issues, rules=RULES, now=0.0, state=None):
    """A state in which these issues have been polled, confirmed and begun."""
    state, actions = scheduler.polled(state or State(), rules, now, issues=tuple(issues))
    for look in actions:
        found = {each.id: each for each in issues}
        state, actions = scheduler.looked(state, rules, now, asked=look.ids, found=found)
    return state, actions


def finished(state, id="id-A-1", outcome="ok", now=5.0, rules=RULES, error=None):
    generation = state.running[id].generation
    return scheduler.finished(state, rules, now, id=id, generation=generation, outcome=outcome, error=error)


@pytest.mark.rule("O2", "O7", "M17")
def test_an_issue_is_asked_about_once_more_before_it_starts():
    state, actions = scheduler.polled(State(), RULES, 0, issues=(issue(),))
    assert actions == [AskTracker(ids=("id-A-1",))]
    assert state.running == {}
    looked = partial(scheduler.looked, asked=("id-A-1",), found={"id-A-1": issue(state="In Progress")})
    state, actions = looked(state, RULES, 1)
    assert actions == [
        Running(issue=issue(state="In Progress"), attempt=None, generation=1, since=1, heard=1)
    ]
    assert state.claimed == {}
    assert list(state.running) == ["id-A-1"]


@pytest.mark.rule("O7")
@pytest.mark.parametrize(
    "found",
    [{}, {"id-A-1": issue(state="Done")}, {"id-A-1": issue(dispatchable=False)}],
    ids=["gone", "closed", "not ours"],
)
def test_an_issue_that_went_stale_is_dropped_before_it_starts(found):
    state, _ = scheduler.polled(State(), RULES, 0, issues=(issue(),))
    state, actions = scheduler.looked(state, RULES, 1, asked=("id-A-1",), found=found)
    assert (state, actions) == (State(), [])


@pytest.mark.rule("O5", "M40")
def test_priority_then_age_then_name_decides_who_is_first():
    old, new = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC)
    wanted = [
        issue("Z-1", priority=1),
        issue("B-2", priority=2, created_at=old),
        issue("B-1", priority=2, created_at=new),
        issue("B-0", priority=2),
        issue("C-1", priority=0, created_at=old),
        issue("C-2", priority=None, created_at=new),
        issue("C-3", priority=7),
        issue("C-4"),
    ]
    backwards = wanted[::-1]
    assert sorted(backwards, key=order) == wanted


@pytest.mark.rule("O4", "M41", "M42")
@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        (issue(), True),
        (issue(state=" in PROGRESS "), True),
        (issue(state="Backlog"), False),
        (issue(state="Done"), False),
        (issue(dispatchable=False), False),
        (replace(issue(), title=" "), False),
        (replace(issue(), id=""), False),
        (replace(issue(), identifier=""), False),
    ],
)
def test_only_a_whole_active_dispatchable_issue_is_eligible(made, wanted):
    assert eligible(made, RULES) is wanted


@pytest.mark.rule("O4", "M42")
@pytest.mark.parametrize(
    ("required", "labels", "wanted"),
    [
        ((), (), True),
        (("agent",), ("Agent", "x"), True),
        (("agent", "x"), ("agent",), False),
        (("",), ("agent",), False),
        (("",), ("",), False),
    ],
)
def test_every_required_label_must_be_there_and_a_blank_one_matches_nothing(required, labels, wanted):
    assert (
        eligible(issue(labels=labels), limits(tracker=replace(TRACKER, required_labels=required))) is wanted
    )


@pytest.mark.rule("O4")
def test_a_state_that_is_both_active_and_terminal_is_terminal():
    assert not eligible(issue(state="Done"), limits(tracker=replace(TRACKER, active_states=("Done",))))


@pytest.mark.rule("O6")
def test_slots_are_counted_over_all_and_by_the_state_an_issue_is_in_now():
    rules = limits(slots=3, slots_by_state={"todo": 1})
    state, actions = started(issue("A-1"), issue("A-2"), issue("A-3", "In Progress"), rules=rules)
    assert [each.issue.identifier for each in actions] == ["A-1", "A-3"]
    assert free_slots(state, rules, issue("A-2")) == 0
    moved = partial(scheduler.refreshed, asked=("id-A-1",), found={"id-A-1": issue("A-1", "In Progress")})
    state, _ = moved(state, rules, 1)
    assert free_slots(state, rules, issue("A-2")) == 1
    assert free_slots(state, limits(slots=1, slots_by_state={"todo": 1}), issue("A-2")) == 0


@pytest.mark.rule("O1", "O4")
def test_an_issue_that_is_claimed_running_or_waiting_is_not_taken_twice():
    claimed, _ = scheduler.polled(State(), RULES, 0, issues=(issue(),))
    again = partial(scheduler.polled, issues=(issue(),))
    assert again(claimed, RULES, 1) == (claimed, [])
    running, _ = started(issue())
    assert again(running, RULES, 1) == (running, [])
    waiting, _ = finished(running)
    assert again(waiting, RULES, 1) == (waiting, [])


def test_an_issue_that_a_tracker_sends_twice_is_one():
    _, actions = scheduler.polled(State(), RULES, 0, issues=(issue(), issue()))
    assert actions == [AskTracker(ids=("id-A-1",))]


@pytest.mark.rule("O8", "M47", "O18")
def test_a_good_end_is_looked_at_again_after_a_second_as_attempt_one():
    state, _ = started(issue())
    state, actions = finished(state, now=5.0)
    assert actions == []
    retry = state.retries["id-A-1"]
    assert (retry.attempt, retry.due, retry.error) == (1, 6.0, None)
    assert next_due(state, RULES) == 6.0


@pytest.mark.rule("O8", "M48", "M49", "M50")
def test_failures_wait_longer_each_time_up_to_the_cap():
    state, _ = started(issue())
    waits = []
    now = 0.0
    for _ in range(7):
        state, _ = finished(state, outcome="failed", now=now, error="broken")
        retry = state.retries["id-A-1"]
        waits.append((retry.attempt, retry.due - now, retry.error, retry.issue.identifier))
        now = retry.due
        state, [look] = scheduler.ticked(state, RULES, now)
        looked = partial(scheduler.looked, asked=look.ids, found={"id-A-1": issue()})
        state, [start] = looked(state, RULES, now)
        assert start.attempt == retry.attempt
    seconds = (10, 20, 40, 80, 160, 300, 300)
    assert waits == [(n, s, "broken", "A-1") for n, s in enumerate(seconds, 1)]


@pytest.mark.rule("O8")
def test_the_exponent_is_capped_so_that_a_thousand_failures_are_still_a_number():
    assert backoff(1, 1e9) == 10
    assert backoff(3, 1e9) == 40
    assert backoff(11, 1e9) == backoff(5000, 1e9) == 10 * 2**10


@pytest.mark.rule("O9")
def test_a_new_retry_takes_the_place_of_the_old_one():
    state, _ = started(issue())
    state, _ = finished(state, outcome="failed", now=0)
    state, [look] = scheduler.ticked(state, RULES, 10)
    state, _ = scheduler.looked(state, RULES, 10, asked=look.ids, found={"id-A-1": issue()})
    state, _ = finished(state, now=11)
    assert [(each.attempt, each.due) for each in state.retries.values()] == [(1, 12.0)]


def due(state, now=100.0, rules=RULES):
    state, actions = scheduler.ticked(state, rules, now)
    assert actions == [AskTracker(ids=("id-A-1",))]
    return state


RETRIES = {
    "the tracker did not answer": ({}, "down", "retry refresh failed: down", None),
    "missing": ({}, None, None, None),
    "terminal": ({"id-A-1": issue(state="Done")}, None, None, RemoveWorkspace(issue=issue(state="Done"))),
    "not active": ({"id-A-1": issue(state="Backlog")}, None, None, None),
    "not ours": ({"id-A-1": issue(dispatchable=False)}, None, None, None),
    "wanted": (
        {"id-A-1": issue(description="new")},
        None,
        None,
        Running(issue=issue(description="new"), attempt=1, generation=2, since=100, heard=100),
    ),
}


@pytest.mark.rule("O10")
@pytest.mark.parametrize("case", RETRIES)
def test_what_a_due_retry_does_depends_on_what_the_tracker_says(case):
    found, error, queued, action = RETRIES[case]
    state, _ = started(issue())
    state, _ = finished(state)
    state = due(state)
    looked = partial(scheduler.looked, asked=("id-A-1",), found=found, error=error)
    state, actions = looked(state, RULES, 100)
    assert actions == ([] if action is None else [action])
    assert [each.error for each in state.retries.values()] == ([] if queued is None else [queued])
    if queued:
        assert state.retries["id-A-1"].attempt == 2
        assert state.retries["id-A-1"].due == 120


@pytest.mark.rule("O10", "M52")
def test_a_retry_without_a_slot_waits_and_says_so():
    rules = limits(slots=1)
    state, _ = started(issue(), rules=rules)
    state, _ = finished(state, rules=rules)
    state, [start] = started(issue("B-1"), rules=rules, state=state)
    assert start.issue.identifier == "B-1"
    state = due(state, rules=limits(slots=1, stall_after=None))
    state, actions = scheduler.looked(state, rules, 100, asked=("id-A-1",), found={"id-A-1": issue()})
    assert actions == []
    retry = state.retries["id-A-1"]
    assert (retry.attempt, retry.error, retry.due) == (2, "no available orchestrator slots", 120.0)


@pytest.mark.rule("O10")
def test_a_retry_is_asked_about_once():
    state, _ = started(issue())
    state, _ = finished(state)
    state = due(state)
    assert scheduler.ticked(state, RULES, 200) == (state, [])
    assert next_due(state, RULES) is None


@pytest.mark.rule("O11", "M51")
def test_a_silent_agent_is_stopped_and_tried_again_with_backoff():
    state, _ = started(issue())
    state, _ = scheduler.heard(
        state, RULES, 100, id="id-A-1", generation=1, event=AgentEvent(kind="notification")
    )
    state, actions = scheduler.ticked(state, RULES, 400)
    assert actions == []
    state, [stop] = scheduler.ticked(state, RULES, 401)
    assert (stop.id, stop.generation) == ("id-A-1", 1)
    assert scheduler.ticked(state, RULES, 500)[1] == [], "it is stopped once"
    assert list(state.running) == ["id-A-1"], "it keeps its slot until it has ended"
    state, _ = finished(state, outcome="cancelled", now=402)
    assert state.finished[-1].outcome == "stalled"
    assert (state.retries["id-A-1"].attempt, state.retries["id-A-1"].due) == (1, 412.0)


@pytest.mark.rule("O11")
def test_without_a_stall_limit_silence_is_no_matter():
    state, _ = started(issue())
    assert scheduler.ticked(state, limits(stall_after=None), 1e6) == (state, [])


@pytest.mark.rule("O12", "M43")
def test_a_running_issue_is_shown_as_the_tracker_has_it_now():
    state, _ = started(issue())
    renewed = issue(state="In Progress")
    state, actions = scheduler.refreshed(state, RULES, 1, asked=("id-A-1",), found={"id-A-1": renewed})
    assert actions == []
    assert state.running["id-A-1"].issue == renewed


STOPS = {
    "terminal": ({"id-A-1": issue(state="Done")}, True),
    "another state": ({"id-A-1": issue(state="Backlog")}, False),
    "not ours": ({"id-A-1": issue(dispatchable=False)}, False),
    "missing": ({}, False),
}


@pytest.mark.rule("O12", "M44", "M45")
@pytest.mark.parametrize("case", STOPS)
def test_a_running_issue_that_is_not_wanted_is_stopped_and_cleaned_only_when_terminal(case):
    found, cleaned = STOPS[case]
    state, _ = started(issue())
    refreshed = partial(scheduler.refreshed, asked=("id-A-1",), found=found)
    state, [stop] = refreshed(state, RULES, 1)
    assert isinstance(stop, StopAttempt)
    assert refreshed(state, RULES, 1)[1] == [], "it is stopped once"
    state, actions = finished(state, outcome="cancelled")
    assert [type(action) for action in actions] == ([RemoveWorkspace] if cleaned else [])
    assert state.running == state.retries == {}
    assert list(state.cleaning) == (["id-A-1"] if cleaned else [])


@pytest.mark.rule("O12", "W21")
def test_an_issue_whose_workspace_is_being_removed_is_not_begun_again():
    state, _ = scheduler.swept(State(), RULES, 0, issues=(issue(state="Done"),))
    assert scheduler.polled(state, RULES, 0, issues=(issue(),)) == (state, [])
    state, _ = scheduler.cleaned(state, RULES, 0, id="id-A-1")
    assert scheduler.polled(state, RULES, 0, issues=(issue(),))[1] == [AskTracker(ids=("id-A-1",))]


@pytest.mark.rule("M46", "O12")
def test_with_nothing_running_a_refresh_changes_nothing():
    assert scheduler.refreshed(State(), RULES, 0, asked=(), found={}) == (State(), [])


@pytest.mark.rule("O13")
def test_at_the_start_every_terminal_issue_with_a_workspace_is_cleaned():
    done = issue(state="Done"), issue("B-1", "Done")
    _, actions = scheduler.swept(State(), RULES, 0, issues=done)
    assert actions == [RemoveWorkspace(issue=each) for each in done]


@pytest.mark.rule("O15")
def test_an_agent_that_wants_a_person_parks_its_issue_until_the_tracker_changes():
    state, _ = started(issue())
    state, actions = finished(state, outcome="input_required", error="asks: which branch?")
    assert actions == []
    assert state.parked["id-A-1"].why == "asks: which branch?"
    assert free_slots(state, RULES, issue()) == 2
    assert scheduler.polled(state, RULES, 9, issues=(issue(),)) == (state, [])
    changed = issue(description="branch main")
    state, actions = scheduler.polled(state, RULES, 9, issues=(changed,))
    assert (state.parked, actions) == ({}, [AskTracker(ids=("id-A-1",))])


@pytest.mark.rule("O15")
def test_a_parked_issue_that_is_closed_loses_its_workspace():
    state, _ = started(issue())
    state, _ = finished(state, outcome="input_required")
    closed = issue(state="Done")
    state, actions = scheduler.refreshed(state, RULES, 1, asked=("id-A-1",), found={"id-A-1": closed})
    assert actions == [RemoveWorkspace(issue=closed)]
    assert state.parked == {}


@pytest.mark.rule("W34")
def test_with_an_invalid_configuration_nothing_begins_and_what_runs_is_looked_after():
    paused = State(paused=True)
    assert scheduler.polled(paused, RULES, 0, issues=(issue(),)) == (paused, [])
    state, _ = started(issue())
    state = replace(state, paused=True)
    _, [stop] = scheduler.refreshed(state, RULES, 0, asked=("id-A-1",), found={})
    assert isinstance(stop, StopAttempt)
    state, _ = finished(state)
    state = due(state)
    state, actions = scheduler.looked(state, RULES, 100, asked=("id-A-1",), found={"id-A-1": issue()})
    assert actions == []
    assert state.retries["id-A-1"].attempt == 1, "a wrong file does not count against the issue"


@pytest.mark.rule("O26", "M79")
def test_tokens_told_twice_are_counted_once_and_add_up_over_sessions():
    state, _ = started(issue(), issue("B-1"))
    for id, generation, total in (
        ("id-A-1", 1, 18),
        ("id-A-1", 1, 36),
        ("id-A-1", 1, 36),
        ("id-A-1", 1, 20),
        ("id-A-1", 1, 54),
        ("id-B-1", 2, 10),
        ("id-B-1", 1, 1000),
    ):
        tokens = Usage(input_tokens=total - 8, output_tokens=8, total_tokens=total)
        told = AgentEvent(kind="notification", tokens=tokens)
        state, _ = scheduler.heard(state, RULES, 1, id=id, generation=generation, event=told)
    used = {"input_tokens": 48, "output_tokens": 16, "total_tokens": 64}
    assert used.items() <= totals(state).items()
    state, _ = scheduler.finished(state, RULES, 2, id="id-A-1", generation=1, outcome="ok")
    assert used.items() <= totals(state).items()
    state, _ = scheduler.finished(state, RULES, 2, id="id-B-1", generation=2, outcome="failed")
    assert (asdict(state.tokens), totals(state)) == (used, {**used, "seconds_running": 4})


def totals(state):
    view = StateView(state=state, clock=float, workspace=str)
    return view.snapshot(2, None)["codex_totals"]


@pytest.mark.rule("O26")
def test_seconds_are_added_when_an_attempt_ends():
    state, _ = started(issue(), now=10.0)
    state, _ = finished(state, now=25.0)
    assert state.seconds == 15.0
    assert (state.finished[-1].seconds, state.finished[-1].outcome) == (15.0, "ok")


def test_what_is_told_of_an_old_generation_changes_nothing():
    state, _ = started(issue())
    late = partial(scheduler.finished, id="id-A-1", generation=7, outcome="failed")
    assert late(state, RULES, 1) == (state, [])
    assert scheduler.heard(
        state, RULES, 99, id="id-A-1", generation=7, event=AgentEvent(kind="notification")
    ) == (
        state,
        [],
    )


def test_a_stop_cancels_what_runs_and_begins_nothing():
    state, _ = started(issue(), issue("B-1"))
    state, _ = finished(state, "id-B-1")
    state, actions = scheduler.stopped(state, RULES, 0)
    assert [(type(each), each.id) for each in actions] == [(StopAttempt, "id-A-1")]
    assert state.retries == {}
    assert scheduler.polled(state, RULES, 1, issues=(issue("C-1"),)) == (state, [])
    state, actions = finished(state, outcome="cancelled")
    assert (state.running, state.retries, actions) == ({}, {}, [])


NAMES = st.sampled_from(["A", "B", "C", "D", "E"])
STATES = st.sampled_from(["Todo", "In Progress", "Backlog", "Done"])
SLOTS, OF_STATE = 3, {"todo": 2}
LIMITS = limits(slots=SLOTS, slots_by_state=OF_STATE, stall_after=50.0)


class Scheduler(RuleBasedStateMachine):
    """A tracker whose issues change at will, agents that end at will, answers that come late."""

    def __init__(self):
        super().__init__()
        self.state = State()
        self.now = 0.0
        self.tracker = {}
        self.looks = []
        self.alive = {}
        self.cleans = []
        self.generations = set()

    def told(self, event):
        before = self.state
        self.state, actions = event(before, LIMITS, self.now)
        for action in actions:
            self.done(action)

    def done(self, action):
        if isinstance(action, AskTracker):
            self.looks.append(action.ids)
        elif isinstance(action, Running):
            assert action.generation not in self.generations
            assert action.issue.id not in self.alive, "two attempts on one issue"
            assert action.issue.id not in {each.id for each in self.cleans}, "begun while it is removed"
            assert eligible(action.issue, LIMITS)
            assert not self.state.stopping
            self.generations.add(action.generation)
            self.alive[action.issue.id] = action.generation
            of_state = [
                each for each in self.state.running.values() if each.issue.state == action.issue.state
            ]
            assert len(of_state) <= OF_STATE.get(action.issue.state.lower(), SLOTS)
        elif isinstance(action, StopAttempt):
            assert self.alive[action.id] == action.generation
        else:
            assert action.issue.id not in self.alive, "removed under a running attempt"
            self.cleans.append(action.issue)

    @rule(name=NAMES, state=STATES)
    def an_issue_changes(self, name, state):
        self.tracker[f"id-{name}"] = issue(name, state)

    @rule(name=NAMES)
    def an_issue_vanishes(self, name):
        self.tracker.pop(f"id-{name}", None)

    @rule()
    def polled(self):
        self.told(partial(scheduler.polled, issues=tuple(self.tracker.values())))

    @rule()
    def refreshed(self):
        ids = (*self.state.running, *self.state.parked)
        self.told(partial(scheduler.refreshed, asked=ids, found=dict(self.tracker)))

    @rule(seconds=st.sampled_from([0.5, 2.0, 15.0, 60.0]))
    def time_goes_by(self, seconds):
        self.now += seconds
        self.told(scheduler.ticked)

    @precondition(lambda self: self.looks)
    @rule(error=st.sampled_from([None, None, "down"]))
    def looked(self, error):
        ids = self.looks.pop(0)
        found = {} if error else dict(self.tracker)
        self.told(partial(scheduler.looked, asked=ids, found=found, error=error))

    @precondition(lambda self: self.alive)
    @rule(data=st.data(), outcome=st.sampled_from(["ok", "failed", "cancelled", "input_required"]))
    def an_attempt_ends(self, data, outcome):
        id = data.draw(st.sampled_from(sorted(self.alive)))
        generation = self.alive.pop(id)
        self.told(partial(scheduler.finished, id=id, generation=generation, outcome=outcome))

    @precondition(lambda self: self.alive)
    @rule(data=st.data())
    def an_agent_is_heard(self, data):
        id = data.draw(st.sampled_from(sorted(self.alive)))
        self.told(
            partial(scheduler.heard, id=id, generation=self.alive[id], event=AgentEvent(kind="notification"))
        )

    @rule(seldom=st.integers(0, 9))
    def the_service_stops(self, seldom):
        if seldom == 9:
            self.told(scheduler.stopped)

    @precondition(lambda self: self.cleans)
    @rule()
    def a_workspace_is_gone(self):
        self.told(partial(scheduler.cleaned, id=self.cleans.pop(0).id))

    @invariant()
    def nobody_is_in_two_places(self):
        places = (
            self.state.running,
            self.state.claimed,
            self.state.retries,
            self.state.parked,
            self.state.cleaning,
        )
        ids = [id for place in places for id in place]
        assert len(ids) == len(set(ids))

    @invariant()
    def nothing_is_to_begin_once_it_stops(self):
        assert not self.state.stopping or not (self.state.claimed or self.state.retries)

    @invariant()
    def no_more_run_than_there_are_slots(self):
        assert len(self.state.running) <= SLOTS

    @invariant()
    def what_runs_is_what_was_started(self):
        assert {id: each.generation for id, each in self.state.running.items()} == self.alive
        assert set(self.state.cleaning) == {each.id for each in self.cleans}

    @invariant()
    def nothing_waits_for_ever(self):
        asked = {id for ids in self.looks for id in ids}
        assert set(self.state.claimed) <= asked
        assert {id for id, each in self.state.retries.items() if each.asked} <= asked


TestScheduler = Scheduler.TestCase
