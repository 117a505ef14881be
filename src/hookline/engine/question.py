"""Questions to a person: what is asked, and what follows from the verdict. Pure; a scope asks."""

from __future__ import annotations

import time

from hookline.engine.context import Facts
from hookline.engine.point import Point
from hookline.engine.record import Question, Verdict, VerdictKind
from hookline.engine.result import HookAction, Outcome, Reason

_PAST = {VerdictKind.APPROVE: "approved", VerdictKind.REJECT: "rejected", VerdictKind.REWRITE: "rewritten"}


def needs_permission(outcome: Outcome) -> bool:
    """True if it would run, and no hook has said that nobody needs to be asked."""
    if outcome.action not in (HookAction.CONTINUE, HookAction.ASK) or outcome.answered:
        return False
    return all(reason.action is not HookAction.ALLOW for reason in outcome.reasons)


def question_of(run_id: str, facts: Facts, outcome: Outcome) -> Question:
    """The question of a point whose hooks ask, with all their reasons and the final value."""
    is_start = _is_start(facts.point)
    return Question(
        id=f"{run_id}.{facts.scope_id}.{'start' if is_start else 'end'}",
        run_id=run_id,
        scope_id=facts.scope_id,
        point=facts.point,
        tool=facts.current_tool,
        reasons=tuple(reason for reason in outcome.reasons if reason.action is HookAction.ASK),
        value=outcome.payload if is_start else outcome.output,
        asked=time.time(),
    )


def nobodys_verdict(question: Question) -> Verdict:
    """The verdict where nobody can be asked: a refusal."""
    why = "; ".join(reason.text for reason in question.reasons if reason.text)
    asking = f"a person has to decide ({why})" if why else "a person has to decide"
    return Verdict(VerdictKind.REJECT, f"{asking}, and nobody is there to answer", by="nobody")


def in_words(verdict: Verdict) -> str:
    return f"{_PAST[verdict.kind]} by {verdict.by}" if verdict.by else _PAST[verdict.kind]


def settled_by(verdict: Verdict, outcome: Outcome, point: Point | str) -> Outcome:
    """The outcome after a person's verdict: approved, refused, or with the value they wrote instead."""
    is_start = _is_start(point)
    if verdict.kind is VerdictKind.REJECT:
        text = verdict.text or outcome.reason or "rejected"
        refusal = HookAction.BLOCK if is_start else HookAction.FAIL
        by = outcome.hook or "permission"
        return outcome._replace(
            action=refusal, answered=False, reasons=(*outcome.reasons, Reason(by, refusal, text))
        )
    action = HookAction.ANSWER if outcome.answered else HookAction.CONTINUE
    if verdict.kind is VerdictKind.APPROVE:
        return outcome._replace(action=action)
    if is_start:
        return outcome._replace(
            action=HookAction.CONTINUE, answered=False, payload=verdict.value, changed=True
        )
    return outcome._replace(action=action, output=verdict.value, changed=True)


def _is_start(point: Point | str) -> bool:
    return isinstance(point, Point) and point.is_start
