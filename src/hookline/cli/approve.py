"""`hookline approve`, `reject` and `rewrite`: the answer to what a run is waiting for."""

from __future__ import annotations

import getpass
import os
from dataclasses import dataclass

from hookline.cli.runs import cluster_words
from hookline.engine.record import Verdict, VerdictKind
from hookline.errors import UsageError
from hookline.journal.masking import Mask
from hookline.journal.user import open_journal
from hookline.kube.connect import target_of_runs
from hookline.options import ClusterOptions, argument, flag
from hookline.secret_names import secrets_in
from hookline.terminal import found_run, out, value_of


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
    return _answer(options, Verdict(VerdictKind.APPROVE, by=getpass.getuser()))


def reject(options: RejectOptions) -> int:
    return _answer(options, Verdict(VerdictKind.REJECT, options.reason, by=getpass.getuser()))


def rewrite(options: RewriteOptions) -> int:
    value = value_of(options.value)
    return _answer(options, Verdict(VerdictKind.REWRITE, value=value, by=getpass.getuser()))


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
        question = pending[0]
        if not journal.answer(question.id, verdict):
            raise UsageError(f"run {run_id}: someone else has just answered")
    tool = f" {question.tool}" if question.tool else ""
    mask = Mask(secrets_in(os.environ))
    out.print(f"{verdict.kind}: {question.point}{tool} {mask.json(question.value)}")
    if len(pending) > 1:
        out.print(f"{len(pending) - 1} more questions of this run are waiting")
    return 0


COMMANDS = {
    "approve": (ApproveOptions, approve),
    "reject": (RejectOptions, reject),
    "rewrite": (RewriteOptions, rewrite),
}
