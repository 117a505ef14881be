"""Scheduling: the state of the service as a value, and a function for each event, which gives a new state and the
actions to take.

Nothing here reads a clock, a tracker or a disk. The service calls the function of an event (`polled`, `finished`), takes
the actions, and calls the function of their results. An attempt has a generation, so that a late event of an old one
changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hookline import tasks
from hookline.engine.context import Usage
from hookline.symphony.agents import AgentEvent
from hookline.symphony.read import Workflow
from hookline.symphony.trackers import Issue

CONTINUE_AFTER = 1.0
"""Seconds from the good end of an attempt to a look whether the issue wants another."""
FIRST_BACKOFF = 10.0
_LARGEST_EXPONENT = 10
_REMEMBERED = 200
NO_SLOT = "no available orchestrator slots"


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """One attempt under way. `ending` is why it is being stopped; it keeps its slot until it has ended.

    As an action: begin this attempt; its end goes to `finished` with the same generation.
    """

    issue: Issue
    attempt: int | None
    generation: int
    since: float
    heard: float
    session_id: str | None = None
    said: str = ""
    turns: int = 0
    tokens: Usage = Usage()
    ending: str | None = None
    stalled: bool = False
    clean: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """An issue that waits for its next attempt. `asked` is set while the tracker is asked about it."""

    issue: Issue
    attempt: int
    due: float
    error: str | None = None
    asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """An issue whose agent needs a person, or that a hook skipped. It holds no slot, until it changes in the tracker."""

    issue: Issue
    why: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """An attempt that ended, for people to see."""

    issue: Issue
    outcome: str
    error: str | None
    at: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """The whole schedule. `claimed` are issues that are read once more before their first attempt.

    An issue is in one of the mappings at most. Once it is `stopping`, none is claimed and none waits for a retry.
    `tokens` and `seconds` are the sums of the attempts that ended.
    """

    running: Mapping[str, Running] = field(default_factory=dict[str, Running])
    claimed: Mapping[str, Issue] = field(default_factory=dict[str, Issue])
    retries: Mapping[str, Retry] = field(default_factory=dict[str, Retry])
    parked: Mapping[str, Parked] = field(default_factory=dict[str, Parked])
    cleaning: Mapping[str, Issue] = field(default_factory=dict[str, Issue])
    finished: tuple[Finished, ...] = ()
    tokens: Usage = Usage()
    seconds: float = 0.0
    rate_limits: Mapping[str, Any] | None = None
    generation: int = 0
    stopping: bool = False
    paused: bool = False
    """True while the configuration on disk is invalid: what runs is looked after, nothing new is begun."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskTracker:
    """Ask the tracker about these ids, and pass the answer to `looked`."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """Cancel the attempt of this generation; its end hooks run, then its end goes to `finished`."""

    id: str
    generation: int
    why: str
    outcome: str = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveWorkspace:
    """Remove the issue's workspace, with its hook, and report that to `cleaned`."""

    issue: Issue


Action = AskTracker | Running | StopAttempt | RemoveWorkspace
Next = tuple[State, list[Action]]
"""The next state, and the actions to take."""
Step = Callable[[State, Workflow, float], Next]
"""An event with its arguments: from the state, the workflow and the time to what is next."""


def order(issue: Issue) -> tuple[int, float, str]:
    """Priority 1 to 4 first, then the oldest, then by name."""
    urgent = issue.priority if issue.priority is not None and 1 <= issue.priority <= 4 else 5
    age = issue.created_at.timestamp() if issue.created_at is not None else float("inf")
    return urgent, age, issue.identifier


def backoff(attempt: int, longest: float) -> float:
    """Seconds before the attempt of this number, after a failure."""
    return tasks.backoff(min(attempt, _LARGEST_EXPONENT + 1), first=FIRST_BACKOFF, longest=longest)


def eligible(issue: Issue, workflow: Workflow) -> bool:
    """True if the issue is active, complete and ours, whether or not a slot is free."""
    whole = all(text.strip() for text in (issue.id, issue.identifier, issue.title, issue.state))
    return whole and _is_active(issue, workflow) and routable(issue, workflow)


def routable(issue: Issue, workflow: Workflow) -> bool:
    labels = {label.strip().lower() for label in issue.labels}
    return issue.dispatchable and all(label and label in labels for label in workflow.tracker.required_labels)


def free_slots(state: State, workflow: Workflow, issue: Issue, *, claimed: bool = False) -> int:
    """Slots left for an issue in this state, also without those that are `claimed` for a first attempt.

    An attempt counts in the state that its issue has now.
    """
    issues = [each.issue for each in state.running.values()] + [*(state.claimed.values() if claimed else ())]
    agent, name = workflow.agent, _word(issue.state)
    taken = sum(_word(each.state) == name for each in issues)
    most = agent.max_concurrent_agents
    return max(min(most - len(issues), agent.max_concurrent_agents_by_state.get(name, most) - taken), 0)


def next_due(state: State, workflow: Workflow) -> float | None:
    """When `ticked` will next have something to do, if nothing else happens."""
    due = [each.due for each in state.retries.values() if not each.asked]
    limit = workflow.codex.stall_timeout
    if limit is not None:
        due += [each.heard + limit for each in state.running.values() if each.ending is None]
    return min(due, default=None)


def waits(state: State, issues: Iterable[Issue], workflow: Workflow) -> bool:
    """True if one of these is eligible and has no agent, for lack of a slot."""
    return any(eligible(issue, workflow) and not _is_busy(state, issue.id) for issue in issues)


def polled(state: State, workflow: Workflow, _now: float, *, issues: Sequence[Issue]) -> Next:
    """The tracker was asked for the issues in active states."""
    if state.stopping or state.paused:
        return state, []
    state = _unparked(state, issues)
    fresh: list[str] = []
    for issue in sorted(issues, key=order):
        if len(state.running) + len(state.claimed) >= workflow.agent.max_concurrent_agents:
            break
        # A tracker may send an issue twice; the second time it is busy.
        wanted = not _is_busy(state, issue.id) and eligible(issue, workflow)
        if wanted and free_slots(state, workflow, issue, claimed=True):
            state = replace(state, claimed={**state.claimed, issue.id: issue})
            fresh.append(issue.id)
    return state, [AskTracker(ids=tuple(fresh))] if fresh else []


def looked(
    state: State,
    workflow: Workflow,
    now: float,
    *,
    asked: Sequence[str],
    found: Mapping[str, Issue],
    error: str | None = None,
) -> Next:
    """The tracker was asked about issues that are to start: `found` by id, or the `error` that it raised."""
    actions: list[Action] = []
    for id in asked:
        if id in state.claimed:
            state, done = _first(state, workflow, now, id, None if error else found.get(id))
        elif id in state.retries and state.retries[id].asked:
            state, done = _again(state, workflow, now, id, found.get(id), error)
        else:
            continue
        actions += done
    return state, actions


def _first(state: State, workflow: Workflow, now: float, id: str, issue: Issue | None) -> Next:
    """Begin a first attempt. An issue that is not eligible any more is dropped; a later poll may find it again."""
    state = replace(state, claimed=_without(state.claimed, id))
    if state.paused or issue is None or not eligible(issue, workflow):
        return state, []
    if not free_slots(state, workflow, issue):
        return state, []
    return _started(state, issue, None, now)


def _again(
    state: State, workflow: Workflow, now: float, id: str, issue: Issue | None, error: str | None
) -> Next:
    retry, without = state.retries[id], replace(state, retries=_without(state.retries, id))
    if error is not None:
        return _requeued(state, workflow, now, retry, f"retry refresh failed: {error}"), []
    if issue is not None and is_terminal(issue, workflow):
        return _cleaning(without, issue)
    if issue is None or not eligible(issue, workflow):
        return without, []
    if state.paused:
        later = replace(retry, asked=False, due=now + CONTINUE_AFTER)
        return replace(state, retries={**state.retries, id: later}), []
    if not free_slots(state, workflow, issue):
        return _requeued(state, workflow, now, replace(retry, issue=issue), NO_SLOT), []
    return _started(without, issue, retry.attempt, now)


def refreshed(
    state: State, workflow: Workflow, now: float, *, asked: Sequence[str], found: Mapping[str, Issue]
) -> Next:
    """The tracker was asked about what is running or parked. A tracker that did not answer is no event."""
    actions: list[Action] = []
    closed = [found[id] for id in asked if id in found and is_terminal(found[id], workflow)]
    running = dict(state.running)
    for id in asked:
        each, issue = running.get(id), found.get(id)
        if each is None:
            continue
        why = _why_stopped(issue, workflow)
        running[id] = replace(
            each, issue=issue or each.issue, ending=each.ending or why, clean=each.clean or issue in closed
        )
        if why is not None and each.ending is None:
            actions.append(StopAttempt(id=id, generation=each.generation, why=why))
    parked = {id: each for id, each in state.parked.items() if id in found or id not in asked}
    state = _unparked(replace(state, running=running, parked=parked), found.values())
    # A parked issue that was closed meanwhile has a workspace that nobody else would remove.
    state, removals = swept(state, workflow, now, issues=closed)
    return state, [*actions, *removals]


def _why_stopped(issue: Issue | None, workflow: Workflow) -> str | None:
    """The reason why an issue is not to be worked on any more; None if it is."""
    if issue is None:
        return "it is no longer in the tracker"
    if is_terminal(issue, workflow):
        return f"its state is {issue.state!r}"
    if not _is_active(issue, workflow):
        return f"its state is {issue.state!r}, which is not an active one"
    return None if routable(issue, workflow) else "it no longer matches the tracker's settings"


def ticked(state: State, workflow: Workflow, now: float) -> Next:
    """Time went by."""
    actions: list[Action] = []
    running = dict(state.running)
    for id, each in state.running.items():
        if workflow.codex.stall_timeout is None or each.ending is not None:
            continue
        silent = now - each.heard
        if silent > workflow.codex.stall_timeout:
            why = f"no activity for {silent:.0f} s"
            running[id] = replace(each, ending=why, stalled=True)
            actions.append(StopAttempt(id=id, generation=each.generation, why=why, outcome="stalled"))
    due = tuple(id for id, each in state.retries.items() if not each.asked and each.due <= now)
    retries = {id: replace(each, asked=True) if id in due else each for id, each in state.retries.items()}
    if due:
        actions.append(AskTracker(ids=due))
    return replace(state, running=running, retries=retries), actions


def heard(
    state: State, _workflow: Workflow, now: float, *, id: str, generation: int, event: AgentEvent
) -> Next:
    """An agent at work reported an event."""
    each = state.running.get(id)
    if each is None or each.generation != generation:
        return state, []
    renewed = replace(
        each,
        heard=now,
        said=event.text or each.said,
        session_id=event.session_id or each.session_id,
        turns=each.turns + (event.kind == "turn_completed"),
        tokens=_larger(each.tokens, event.tokens or Usage()),
    )
    return replace(
        state,
        running={**state.running, id: renewed},
        rate_limits=event.rate_limits or state.rate_limits,
    ), []


def finished(
    state: State,
    workflow: Workflow,
    now: float,
    *,
    id: str,
    generation: int,
    outcome: str,
    error: str | None = None,
) -> Next:
    """An attempt has ended, its hooks included. Outcomes: ok, failed, timed_out, cancelled, stalled, skipped,
    input_required."""
    each = state.running.get(id)
    if each is None or each.generation != generation:
        return state, []
    if each.stalled:
        outcome, error = "stalled", each.ending
    seconds = max(now - each.since, 0.0)
    ended = Finished(issue=each.issue, outcome=outcome, error=error, at=now, seconds=seconds)
    state = replace(
        state,
        running=_without(state.running, id),
        finished=(*state.finished, ended)[-_REMEMBERED:],
        tokens=state.tokens + each.tokens,
        seconds=state.seconds + seconds,
    )
    # Whoever found no slot before may have this one.
    retries = {
        key: replace(retry, due=now) if retry.error == NO_SLOT and not retry.asked else retry
        for key, retry in state.retries.items()
    }
    state = replace(state, retries=retries)
    if each.clean:
        return _cleaning(state, each.issue)
    if state.stopping or (each.ending is not None and not each.stalled):
        return state, []
    if outcome in ("input_required", "skipped"):
        parked = Parked(issue=each.issue, why=error or outcome, since=now)
        return replace(state, parked={**state.parked, id: parked}), []
    if outcome == "ok":
        retry = Retry(issue=each.issue, attempt=1, due=now + CONTINUE_AFTER)
        return replace(state, retries={**state.retries, id: retry}), []
    failed = Retry(issue=each.issue, attempt=each.attempt or 0, due=now)
    return _requeued(state, workflow, now, failed, error or outcome), []


def swept(state: State, _workflow: Workflow, _now: float, *, issues: Sequence[Issue]) -> Next:
    """Issues in terminal states may still have a workspace: at the start, or because they were parked."""
    actions: list[Action] = []
    for issue in issues:
        if not _is_busy(state, issue.id):
            state, done = _cleaning(state, issue)
            actions += done
    return state, actions


def cleaned(state: State, _workflow: Workflow, _now: float, *, id: str) -> Next:
    """A workspace is gone, or could not be removed; either way nobody works on that now."""
    return replace(state, cleaning=_without(state.cleaning, id)), []


def stopped(state: State, _workflow: Workflow, _now: float) -> Next:
    """The service is to end: attempts are cancelled, nothing new begins."""
    why = "the service is stopping"
    running = {id: replace(each, ending=each.ending or why) for id, each in state.running.items()}
    actions: list[Action] = [
        StopAttempt(id=id, generation=each.generation, why=why)
        for id, each in state.running.items()
        if each.ending is None
    ]
    return replace(state, running=running, claimed={}, retries={}, stopping=True), actions


def _started(state: State, issue: Issue, attempt: int | None, now: float) -> Next:
    number = state.generation + 1
    begun = Running(issue=issue, attempt=attempt, generation=number, since=now, heard=now)
    state = replace(state, running={**state.running, issue.id: begun}, generation=number)
    return state, [begun]


def _cleaning(state: State, issue: Issue) -> Next:
    return replace(state, cleaning={**state.cleaning, issue.id: issue}), [RemoveWorkspace(issue=issue)]


def _requeued(state: State, workflow: Workflow, now: float, retry: Retry, error: str) -> State:
    """The state in which this try has failed, and the next one waits for longer."""
    number = retry.attempt + 1
    due = now + backoff(number, workflow.agent.max_retry_backoff)
    later = replace(retry, attempt=number, due=due, error=error, asked=False)
    return replace(state, retries={**state.retries, retry.issue.id: later})


def _unparked(state: State, issues: Iterable[Issue]) -> State:
    """The state without the parked issues that have changed since."""
    now = {issue.id: issue for issue in issues}
    kept = {id: each for id, each in state.parked.items() if now.get(id, each.issue) == each.issue}
    return replace(state, parked=kept)


def _is_busy(state: State, id: str) -> bool:
    """True if something is done about the issue already, or will be."""
    places = (state.running, state.claimed, state.retries, state.parked, state.cleaning)
    return any(id in place for place in places)


def _is_active(issue: Issue, workflow: Workflow) -> bool:
    active = map(_word, workflow.tracker.active_states)
    return _word(issue.state) in active and not is_terminal(issue, workflow)


def is_terminal(issue: Issue, workflow: Workflow) -> bool:
    return _word(issue.state) in map(_word, workflow.tracker.terminal_states)


def _larger(before: Usage, now: Usage) -> Usage:
    """A session reports its total each time, so a report that comes twice or late adds nothing."""
    return Usage(
        input_tokens=max(before.input_tokens, now.input_tokens),
        output_tokens=max(before.output_tokens, now.output_tokens),
        total_tokens=max(before.total_tokens, now.total_tokens),
    )


def _without(mapping: Mapping[str, Any], id: str) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if key != id}


def _word(text: str) -> str:
    return text.strip().lower()
