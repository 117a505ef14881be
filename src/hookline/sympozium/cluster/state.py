"""The record that the operator keeps of one run: its manifests when it began, the objects made for it, their state.

It is one Secret beside the run, written before anything that cannot be seen again is removed; whoever takes over after
a crash goes on from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, cast

from hookline.errors import FileError
from hookline.kube.fields import bare, phase_of, within
from hookline.kube.job_state import Stall, Workload
from hookline.sympozium.phases import Phase, Seen
from hookline.sympozium.read import parse
from hookline.sympozium.resolve import run_of, with_provider
from hookline.sympozium.run.state import kept, seen_again
from hookline.sympozium.types import RunSpec

FROZEN, STATE = "run.json", "state.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """`void` is a verdict that was given before there was an answer; `lost` is since when the workspace is another."""

    frozen: str
    seen: Seen = Seen()
    agent: Workload | None = None
    post: tuple[Workload, ...] = ()
    uids: Mapping[str, str] = field(default_factory=dict[str, str])
    waiting: Stall | None = None
    void: str = ""
    lost: datetime | None = None
    closed: datetime | None = None
    """When the run was first found to have ended."""
    cut: int = 0
    """Bytes of an answer that was too long to be kept whole."""


def has_ended(run: Mapping[str, Any]) -> bool:
    return phase_of(run) in (Phase.SUCCEEDED, Phase.FAILED, Phase.SKIPPED)


def agent_name(run: Mapping[str, Any]) -> str:
    """The Agent or SympoziumInstance that a run names."""
    spec = within(run, "spec")
    return str(spec.get("agentRef") or spec.get("instanceRef") or "")


def frozen_of(run: Mapping[str, Any], instance: Mapping[str, Any] | None) -> str:
    """The manifests as they are now; later changes of them are for other runs."""
    return json.dumps([bare(each) for each in (run, instance) if each is not None], ensure_ascii=False)


def spec_of(frozen: str) -> RunSpec:
    """The run of frozen manifests, with all that it takes from its instance; a FileError tells their problems."""
    return _spec_of(frozen)


@lru_cache(maxsize=512)
def _spec_of(frozen: str) -> RunSpec:
    documents = cast("list[dict[str, Any]]", json.loads(frozen))
    run = documents[0]
    name = f"{run.get('kind')} {run.get('metadata', {}).get('name')}"
    manifests = parse(json.dumps({"kind": "List", "items": documents}, ensure_ascii=False), name)
    if manifests.problems:
        raise FileError(problem_text(*manifests.problems), file=manifests.problems[0].file)
    return with_provider(run_of(manifests))


def written(record: Record) -> dict[str, str]:
    """The record as the texts of a Secret."""
    state: dict[str, Any] = {
        "seen": kept(record.seen),
        "agent": asdict(record.agent) if record.agent else None,
        "post": [asdict(each) for each in record.post],
        "uids": dict(record.uids),
        "waiting": asdict(record.waiting) if record.waiting else None,
        "void": record.void,
        "lost": record.lost,
        "closed": record.closed,
        "cut": record.cut,
    }
    return {FROZEN: record.frozen, STATE: json.dumps(state, ensure_ascii=False, default=_moment)}


def read(texts: Mapping[str, str]) -> Record:
    """The record of the texts of a Secret."""
    state: dict[str, Any] = json.loads(texts[STATE])
    agent, waiting, lost = state["agent"], state["waiting"], state["lost"]
    closed = state.get("closed")
    return Record(
        frozen=texts[FROZEN],
        seen=seen_again(state["seen"]),
        agent=_made(agent) if agent else None,
        post=tuple(_made(each) for each in state["post"]),
        uids=state["uids"],
        waiting=replace(Stall(**waiting), at=datetime.fromisoformat(waiting["at"])) if waiting else None,
        void=state["void"],
        lost=datetime.fromisoformat(lost) if lost else None,
        closed=datetime.fromisoformat(closed) if closed else None,
        cut=state["cut"],
    )


def _made(given: Mapping[str, Any]) -> Workload:
    fields: dict[str, Any] = {**given, "positions": tuple(given["positions"])}
    return Workload(**fields)


def _moment(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"a record cannot keep a {type(value).__name__}")


def problem_text(*problems: FileError) -> str:
    """The problems as one sentence; their lines are those of the object as the server has it, so they are left out."""
    return "; ".join(f"{each.key}: {each.message}" if each.key else each.message for each in problems)
