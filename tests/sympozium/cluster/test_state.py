"""What is kept of a run comes back as it was."""

import pytest

from hookline.errors import FileError
from hookline.kube.pod_state import ContainerPhase, ContainerState, EndReason, Stall, Workload
from hookline.sympozium.cluster.observation import Record, frozen_of, read, spec_of, written
from hookline.sympozium.phases import AgentSeen, GateVerdict, Seen
from tests.kube.memory_cluster import START
from tests.sympozium.cluster.world import agent_run, hook

HOOK = ContainerState(
    state=ContainerPhase.ENDED,
    exit_code=3,
    reason=EndReason.KILLED,
    detail="d",
    started=START,
    seconds=1.5,
    tail="ä\n\x01",
)
FULL = Record(
    frozen=frozen_of(agent_run(lifecycle={"preRun": [hook("a")]}), None),
    seen=Seen(
        pre_run=(HOOK, ContainerState()),
        agent=AgentSeen(
            state=ContainerPhase.ENDED,
            exit_code=0,
            result="\ud83d and 𝄞",
            started=START,
            usage={"inputTokens": 3},
        ),
        post_run=(HOOK,),
        stopped="why",
        skip="",
        verdict=GateVerdict(action="approve", by="ada", digest="x"),
    ),
    agent=Workload(name="r", uid="1", pod="2", over=True, ended=True),
    post=(Workload(name="r-postrun", uid="3", positions=(1, 0)),),
    uids={"Secret/r-record": "4"},
    waiting=Stall(reason="NoPod", message="m", at=START, container="c"),
    void='{"action": "approve"}',
    lost=START,
    closed=START,
    cut=7,
)


@pytest.mark.rule("sympozium 2.2")
@pytest.mark.parametrize("record", [Record(frozen="[]"), FULL])
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    assert read(written(record)) == record


def test_a_run_is_frozen_without_what_changes_by_itself() -> None:
    run = agent_run()
    later = {**run, "metadata": {**run["metadata"], "resourceVersion": "9", "annotations": {"a": "b"}}}
    later["status"] = {"phase": "Running"}
    assert frozen_of(later, None) == frozen_of(run, None)
    assert spec_of(frozen_of(run, None)).task == "look"


def test_all_that_is_wrong_with_a_run_is_told_at_once() -> None:
    wrong = agent_run(timeout="soon", lifecycle={"preRun": [{"name": "a"}]})
    with pytest.raises(FileError) as caught:
        spec_of(frozen_of(wrong, None))
    assert "timeout" in caught.value.message
    assert "image" in caught.value.message
