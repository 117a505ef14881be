"""`hookline approve`, `reject` and `rewrite`: a person's answer to what a run asks."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from hookline.cli.runs import cluster_words
from hookline.engine.record import Question, Verdict, VerdictKind
from hookline.errors import UsageError
from hookline.hookfile.person import caller, need_person
from hookline.journal import open_journal
from hookline.journal.masking import Mask
from hookline.options import ClusterOptions, argument, flag, target_of_runs
from hookline.secrets import secrets_in
from hookline.terminal import found_run, out, show_asked, value_of, who


@dataclass(kw_only=True, eq=False, repr=False)
class ApproveOptions(ClusterOptions):
    run: str = argument("a run's id, the beginning of one, or `last`", required=True)
    yes: bool = flag("for a run on a cluster: do not ask for confirmation", short="-y")


@dataclass(kw_only=True, eq=False, repr=False)
class RejectOptions(ApproveOptions):
    reason: str = argument("the reason, which is passed to the agent")


@dataclass(kw_only=True, eq=False, repr=False)
class RewriteOptions(ApproveOptions):
    value: str = argument("the new input, as JSON or plain text", required=True)


def approve(options: ApproveOptions) -> int:
    return _answer(options, Verdict(VerdictKind.APPROVE))


def reject(options: RejectOptions) -> int:
    return _answer(options, Verdict(VerdictKind.REJECT, options.reason))


def rewrite(options: RewriteOptions) -> int:
    value = value_of(options.value)
    return _answer(options, Verdict(VerdictKind.REWRITE, value=value))


def _answer(options: ApproveOptions, verdict: Verdict) -> int:
    target = target_of_runs(options)
    if target is not None:
        from hookline.sympozium.cluster.runs import answer_there

        return answer_there(target, options.run, verdict, yes=options.yes)
    with open_journal() as journal:
        run_id = found_run(journal, options.run)
        pending = journal.questions(run_id)
        if not pending and (there := cluster_words(journal.records(run_id))):
            raise UsageError(f"run {run_id} is on a cluster; answer it with: hookline approve {there}")
        if not pending:
            raise UsageError(f"run {run_id} is not waiting for an answer")
        need_person(str(verdict.kind), os.environ, "a run on a cluster is answered with --on kubernetes")
        with_code = verdict.kind is not VerdictKind.REJECT
        for each in pending if with_code else pending[:1]:
            show_asked(each, Mask(secrets_in(os.environ)), out, f"{_about(each)} ")
        code = _with_code(pending) if with_code else None
        question = code[0] if code is not None else pending[0]
        said = verdict._replace(by=who(caller()), digest=question.digest)
        if not journal.answer(question.id, said, code):
            raise UsageError(f"run {run_id}: someone else has just answered, or the input is another now")
    out.print(f"{verdict.kind}: {_about(question)}")
    if len(pending) > 1:
        out.print(f"{len(pending) - 1} more questions of this run are waiting")
    return 0


def _about(question: Question) -> str:
    return " ".join(filter(None, (question.point, question.tool)))


def _with_code(pending: list[Question]) -> tuple[Question, bytes]:
    """The question whose code the person types, and the key of that."""
    coded = [(each, each.code) for each in pending if each.code is not None]
    if not coded:
        raise UsageError(
            f"run {pending[0].run_id} has shown the code of its question nowhere, so it can only be rejected; start"
            " it at a terminal, or with --code-to"
        )
    from hookline.journal.code import key_of

    out.print("the code that is shown where it asks: ", end="")
    typed = sys.stdin.readline()
    for question, code in coded:
        if (key := key_of(typed, code)) is not None:
            return question, key
    raise UsageError("that is not the code of its question; nothing was answered")
