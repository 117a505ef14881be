"""A pod's log, read to its end over whatever connections that takes."""

from collections.abc import AsyncGenerator

import pytest

from hookline.journal.stream import MARK
from hookline.kube.logs import GONE, LogReader
from hookline.kube.objects import ApiRefused, NotThere, Unreachable

CUT = Unreachable("the connection broke off")
RECORD = f"{MARK}[0,null,[]]"
KUBELETS = "unable to retrieve container logs for containerd://1"


class Talking:
    """A cluster whose log comes as is next in `times`, and at last as stands last there."""

    def __init__(self, *times: list[str | Exception]) -> None:
        self.times = list(times)
        self.asked: list[tuple[str, str | None, str]] = []

    async def follow_log(self, pod: str, namespace: str | None, container: str) -> AsyncGenerator[str, None]:
        self.asked.append((pod, namespace, container))
        for each in self.times.pop(0) if len(self.times) > 1 else self.times[0]:
            if isinstance(each, Exception):
                raise each
            yield each


class Reading:
    """What came of a log whose container is over after so many looks at it."""

    def __init__(self, *times: list[str | Exception], looks: int = 0) -> None:
        self.cluster = Talking(*times)
        self.looks = looks
        self.lines: list[str] = []
        self.begun = 0
        self.reader = LogReader(self.cluster, "pod", "test", "main", self.take, self.again)

    async def take(self, line: str) -> None:
        self.lines.append(line)

    def again(self) -> None:
        self.begun += 1

    def is_over(self) -> bool:
        self.looks -= 1
        return self.looks < 0

    async def pause(self) -> None: ...

    async def read(self) -> str:
        return await self.reader.read(self.is_over, self.pause)


async def test_a_log_is_read_from_its_first_line_to_its_last():
    reading = Reading(["a", "b"])
    assert await reading.read() == ""
    assert reading.lines == ["a", "b"]
    assert reading.cluster.asked == [("pod", "test", "main")]


async def test_after_a_break_each_line_comes_once_and_a_record_again():
    reading = Reading(["a", RECORD, CUT], ["a", RECORD, "b"])
    assert await reading.read() == ""
    assert reading.lines == ["a", RECORD, RECORD, "b"]
    assert reading.begun == 2, "whoever takes the lines knows that they come from the start"


async def test_a_connection_that_ends_before_the_container_does_is_no_end():
    reading = Reading(["a"], ["a", "b"], looks=1)
    assert await reading.read() == ""
    assert reading.lines == ["a", "b"]


async def test_records_of_a_log_whose_beginning_was_rotated_away_still_come():
    reading = Reading(["a", "b", "c", CUT], [RECORD])
    assert await reading.read() == ""
    assert reading.lines == ["a", "b", "c", RECORD]


async def test_a_container_that_has_not_started_is_waited_for():
    reading = Reading(
        [ApiRefused(400, "waiting to start")], [ApiRefused(400, "waiting to start")], ["a"], looks=1
    )
    assert await reading.read() == ""
    assert reading.lines == ["a"]


LACKING = {
    "forbidden": ([[ApiRefused(403, "no")]], "its log may not be read: no"),
    "refused though it is over": ([[ApiRefused(400, "no such")]], "its log may not be read: no such"),
    "gone": ([["a", CUT], [NotThere(404, "gone")]], GONE),
    "lost by its node": ([[KUBELETS], [NotThere(404, "gone")]], GONE),
}


@pytest.mark.parametrize(("times", "why"), LACKING.values(), ids=LACKING.keys())
async def test_why_a_log_was_not_read_to_its_end_is_told(times, why):
    reading = Reading(*times)
    assert await reading.read() == why
    assert KUBELETS not in reading.lines, "what its node says of it is no line of the log"


@pytest.mark.parametrize("last", [[NotThere(404, "gone")], [KUBELETS]], ids=["gone", "lost by its node"])
async def test_a_log_that_had_ended_before_its_pod_went_is_whole(last):
    reading = Reading(["a", "b"], last, looks=1)
    assert await reading.read() == ""
    assert reading.lines == ["a", "b"]
