"""Scheduling: every event gives a new state and what is to be done about it.

Nothing here reads a clock, a tracker or a disk. The service tells what happened (`Event`), does what comes back
(`Action`), and tells how that went. A run has a generation, so that what is told late of an old one changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from hookline import tasks
from hookline.symphony.agents import Tokens
from hookline.symphony.state import (
    Action,
    AskTracker,
    Cleaned,
    Event,
    Finish,
    Finished,
    Heard,
    Looked,
    Parked,
    Polled,
    Refreshed,
    RemoveWorkspace,
    Retry,
    Rules,
    Running,
    StartAttempt,
    State,
    StopAttempt,
    Stopped,
    Swept,
    Ticked,
)
from hookline.symphony.types import Issue

CONTINUE_AFTER = 1.0
"""Seconds from the good end of an attempt to a look whether the issue wants another."""
FIRST_BACKOFF = 10.0
_LARGEST_EXPONENT = 10
_REMEMBERED = 200
NO_SLOT = "no available orchestrator slots"

Next = tuple[State, list[Action]]


def step(state: State, event: Event, rules: Rules, now: float) -> Next:
    """The next state, and what is to be done."""
    return _STEPS[type(event)](state, event, rules, now)


def order(issue: Issue) -> tuple[int, float, str]:
    """Priority 1 to 4 first, then the oldest, then by name."""
    urgent = issue.priority if issue.priority is not None and 1 <= issue.priority <= 4 else 5
    age = issue.created_at.timestamp() if issue.created_at is not None else float("inf")
    return urgent, age, issue.identifier


def backoff(attempt: int, longest: float) -> float:
    """Seconds before the attempt of this number, after a failure."""
    return tasks.backoff(min(attempt, _LARGEST_EXPONENT + 1), first=FIRST_BACKOFF, longest=longest)


def eligible(issue: Issue, rules: Rules) -> bool:
    """True if the issue itself wants an agent, whatever else is going on."""
    whole = all(text.strip() for text in (issue.id, issue.identifier, issue.title, issue.state))
    return whole and _is_active(issue, rules) and routable(issue, rules)


def routable(issue: Issue, rules: Rules) -> bool:
    labels = {label.strip().lower() for label in issue.labels}
    return issue.dispatchable and all(label and label in labels for label in rules.required_labels)


def free_slots(state: State, rules: Rules, issue: Issue) -> int:
    """Places left for an issue in this state. An attempt counts where its issue stands now, not where it began."""
    name = _word(issue.state)
    taken = sum(_word(each.issue.state) == name for each in state.running.values())
    left = rules.slots - len(state.running)
    return max(min(left, rules.slots_by_state.get(name, rules.slots) - taken), 0)


def next_due(state: State, rules: Rules) -> float | None:
    """When a `Ticked` will next have something to do, if nothing else happens."""
    due = [each.due for each in state.retries.values() if not each.asked]
    if rules.stall_after is not None:
        due += [each.heard + rules.stall_after for each in state.running.values() if each.ending is None]
    return min(due, default=None)


def waits(state: State, issues: Iterable[Issue], rules: Rules) -> bool:
    """True if one of these wants an agent and has none, for want of a slot."""
    return any(eligible(issue, rules) and not _is_busy(state, issue.id) for issue in issues)


def _polled(state: State, event: Polled, rules: Rules, _now: float) -> Next:
    if state.stopping or not rules.dispatch:
        return state, []
    state = _unparked(state, event.issues)
    room = max(rules.slots - len(state.running) - len(state.claimed), 0)
    taken = dict(state.claimed)
    counted: dict[str, int] = {}
    for each in (*(running.issue for running in state.running.values()), *taken.values()):
        counted[_word(each.state)] = counted.get(_word(each.state), 0) + 1
    fresh: list[str] = []
    for issue in sorted(_once(event.issues), key=order):
        if len(fresh) >= room:
            break
        name = _word(issue.state)
        limit = rules.slots_by_state.get(name, rules.slots)
        if _is_busy(state, issue.id) or not eligible(issue, rules) or counted.get(name, 0) >= limit:
            continue
        counted[name] = counted.get(name, 0) + 1
        taken[issue.id] = issue
        fresh.append(issue.id)
    return replace(state, claimed=taken), [AskTracker(ids=tuple(fresh))] if fresh else []


def _looked(state: State, event: Looked, rules: Rules, now: float) -> Next:
    actions: list[Action] = []
    for id in event.asked:
        if id in state.claimed:
            state, done = _first(state, event, rules, now, id)
        elif id in state.retries and state.retries[id].asked:
            state, done = _again(state, event, rules, now, id)
        else:
            continue
        actions += done
    return state, actions


def _first(state: State, event: Looked, rules: Rules, now: float, id: str) -> Next:
    """A first attempt. What is not wanted any more is dropped; the next poll finds it again if it is."""
    issue = event.found.get(id)
    state = replace(state, claimed=_without(state.claimed, id))
    startable = issue is not None and event.error is None and eligible(issue, rules)
    if not startable or issue is None or not _may_start(state, rules, issue):
        return state, []
    return _started(state, issue, None, now)


def _again(state: State, event: Looked, rules: Rules, now: float, id: str) -> Next:
    retry = state.retries[id]
    issue = event.found.get(id)
    if state.stopping:
        return replace(state, retries=_without(state.retries, id)), []
    if event.error is not None:
        return _requeued(state, rules, now, retry, f"retry refresh failed: {event.error}"), []
    if issue is None:
        return replace(state, retries=_without(state.retries, id)), []
    if is_terminal(issue, rules):
        return _cleaning(replace(state, retries=_without(state.retries, id)), issue)
    if not eligible(issue, rules):
        return replace(state, retries=_without(state.retries, id)), []
    if not rules.dispatch:
        later = replace(retry, asked=False, due=now + CONTINUE_AFTER)
        return replace(state, retries={**state.retries, id: later}), []
    if not _may_start(state, rules, issue):
        return _requeued(state, rules, now, replace(retry, issue=issue), NO_SLOT), []
    return _started(replace(state, retries=_without(state.retries, id)), issue, retry.attempt, now)


def _refreshed(state: State, event: Refreshed, rules: Rules, _now: float) -> Next:
    actions: list[Action] = []
    running = dict(state.running)
    for id in event.asked:
        each, issue = running.get(id), event.found.get(id)
        if each is None:
            continue
        if issue is None:
            why, clean = "it is no longer in the tracker", False
        elif is_terminal(issue, rules):
            why, clean = f"its state is {issue.state!r}", True
        elif not _is_active(issue, rules):
            why, clean = f"its state is {issue.state!r}, which is not an active one", False
        elif not routable(issue, rules):
            why, clean = "it no longer matches the tracker's settings", False
        else:
            running[id] = replace(each, issue=issue)
            continue
        running[id] = replace(
            each, issue=issue or each.issue, ending=each.ending or why, clean=each.clean or clean
        )
        if each.ending is None:
            actions.append(StopAttempt(id=id, generation=each.generation, why=why))
    state = replace(state, running=running)
    gone = [id for id in event.asked if id in state.parked and id not in event.found]
    state = replace(state, parked={id: each for id, each in state.parked.items() if id not in gone})
    return _parked_cleaned(_unparked(state, event.found.values()), event, rules, actions)


def _parked_cleaned(state: State, event: Refreshed, rules: Rules, actions: list[Action]) -> Next:
    """A parked issue that was closed meanwhile has a workspace that nobody else would remove."""
    for id in event.asked:
        issue = event.found.get(id)
        if issue is not None and is_terminal(issue, rules) and not _is_busy(state, id):
            state, done = _cleaning(state, issue)
            actions += done
    return state, actions


def _ticked(state: State, event: Ticked, rules: Rules, now: float) -> Next:
    actions: list[Action] = []
    running = dict(state.running)
    for id, each in state.running.items():
        if rules.stall_after is None or each.ending is not None:
            continue
        silent = now - each.heard
        if silent > rules.stall_after:
            why = f"no activity for {silent:.0f} s"
            running[id] = replace(each, ending=why, stalled=True)
            actions.append(StopAttempt(id=id, generation=each.generation, why=why, outcome="stalled"))
    due = tuple(
        id for id, each in state.retries.items() if not state.stopping and not each.asked and each.due <= now
    )
    retries = {id: replace(each, asked=True) if id in due else each for id, each in state.retries.items()}
    if due:
        actions.append(AskTracker(ids=due))
    return replace(state, running=running, retries=retries), actions


def _heard(state: State, event: Heard, _rules: Rules, now: float) -> Next:
    each = state.running.get(event.id)
    if each is None or each.generation != event.generation:
        return state, []
    told = event.told
    tokens = _larger(each.tokens, told.tokens or Tokens())
    renewed = replace(
        each,
        heard=now,
        said=told.text or each.said,
        session_id=told.session_id or each.session_id,
        turns=each.turns + (told.kind == "turn_completed"),
        tokens=tokens,
    )
    return replace(
        state,
        running={**state.running, event.id: renewed},
        tokens=state.tokens + tokens - each.tokens,
        rate_limits=told.rate_limits or state.rate_limits,
    ), []


def _finish(state: State, event: Finish, rules: Rules, now: float) -> Next:
    each = state.running.get(event.id)
    if each is None or each.generation != event.generation:
        return state, []
    outcome = "stalled" if each.stalled else event.outcome
    error = each.ending if each.stalled else event.error
    seconds = max(now - each.since, 0.0)
    ended = Finished(issue=each.issue, outcome=outcome, error=error, at=now, seconds=seconds)
    state = replace(
        state,
        running=_without(state.running, event.id),
        finished=(*state.finished, ended)[-_REMEMBERED:],
        seconds=state.seconds + seconds,
    )
    if each.clean:
        return _cleaning(state, each.issue)
    if state.stopping or (each.ending is not None and not each.stalled):
        return state, []
    if outcome in ("input_required", "skipped"):
        parked = Parked(issue=each.issue, why=error or outcome, since=now)
        return replace(state, parked={**state.parked, event.id: parked}), []
    if outcome == "ok":
        retry = Retry(issue=each.issue, attempt=1, due=now + CONTINUE_AFTER)
    else:
        number = (each.attempt or 0) + 1
        due = now + backoff(number, rules.max_backoff)
        retry = Retry(issue=each.issue, attempt=number, due=due, error=error or outcome)
    return replace(state, retries={**state.retries, event.id: retry}), []


def _swept(state: State, event: Swept, _rules: Rules, _now: float) -> Next:
    actions: list[Action] = []
    for issue in event.issues:
        if not _is_busy(state, issue.id):
            state, done = _cleaning(state, issue)
            actions += done
    return state, actions


def _cleaned(state: State, event: Cleaned, _rules: Rules, _now: float) -> Next:
    return replace(state, cleaning=_without(state.cleaning, event.id)), []


def _stopped(state: State, _event: Stopped, _rules: Rules, _now: float) -> Next:
    why = "the service is stopping"
    running = {id: replace(each, ending=each.ending or why) for id, each in state.running.items()}
    actions: list[Action] = [
        StopAttempt(id=id, generation=each.generation, why=why)
        for id, each in state.running.items()
        if each.ending is None
    ]
    return replace(state, running=running, claimed={}, retries={}, stopping=True), actions


_STEPS: Mapping[type, Callable[[State, Any, Rules, float], Next]] = {
    Polled: _polled,
    Looked: _looked,
    Refreshed: _refreshed,
    Ticked: _ticked,
    Heard: _heard,
    Finish: _finish,
    Swept: _swept,
    Cleaned: _cleaned,
    Stopped: _stopped,
}


def _started(state: State, issue: Issue, attempt: int | None, now: float) -> Next:
    number = state.generation + 1
    begun = Running(issue=issue, attempt=attempt, generation=number, since=now, heard=now)
    state = replace(state, running={**state.running, issue.id: begun}, generation=number)
    return state, [StartAttempt(issue=issue, attempt=attempt, generation=number)]


def _cleaning(state: State, issue: Issue) -> Next:
    return replace(state, cleaning={**state.cleaning, issue.id: issue}), [RemoveWorkspace(issue=issue)]


def _requeued(state: State, rules: Rules, now: float, retry: Retry, error: str) -> State:
    number = retry.attempt + 1
    due = now + backoff(number, rules.max_backoff)
    later = replace(retry, attempt=number, due=due, error=error, asked=False)
    return replace(state, retries={**state.retries, retry.issue.id: later})


def _unparked(state: State, issues: Iterable[Issue]) -> State:
    """Without the parked issues that somebody has touched since."""
    now = {issue.id: issue for issue in issues}
    kept = {id: each for id, each in state.parked.items() if now.get(id, each.issue) == each.issue}
    return replace(state, parked=kept)


def _may_start(state: State, rules: Rules, issue: Issue) -> bool:
    return (
        rules.dispatch
        and not state.stopping
        and not _is_busy(state, issue.id, waiting=False)
        and (free_slots(state, rules, issue) > 0)
    )


def _is_busy(state: State, id: str, *, waiting: bool = True) -> bool:
    """True if the issue is in hand already."""
    at_work = id in state.running or id in state.cleaning
    return at_work or (waiting and (id in state.claimed or id in state.retries or id in state.parked))


def _is_active(issue: Issue, rules: Rules) -> bool:
    return _word(issue.state) in rules.active and not is_terminal(issue, rules)


def is_terminal(issue: Issue, rules: Rules) -> bool:
    return _word(issue.state) in rules.terminal


def _once(issues: Iterable[Issue]) -> Iterable[Issue]:
    """A tracker may send an issue twice; the first counts."""
    seen: dict[str, Issue] = {}
    for issue in issues:
        seen.setdefault(issue.id, issue)
    return seen.values()


def _larger(before: Tokens, now: Tokens) -> Tokens:
    """A session tells its whole use each time; told twice, or less than before, adds nothing."""
    return Tokens(
        input=max(before.input, now.input),
        output=max(before.output, now.output),
        total=max(before.total, now.total),
    )


def _without(mapping: Mapping[str, Any], id: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != id}


def _word(text: str) -> str:
    return text.strip().lower()
