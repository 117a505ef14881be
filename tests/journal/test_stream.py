"""Records as lines of a stream that others print to as well."""

from pathlib import Path

import pytest

from hookline import HookAction, MemoryJournal
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Begun, Called, Decided, Ended
from hookline.engine.result import Reason
from hookline.journal.masking import Mask
from hookline.journal.sqlite import SqliteJournal
from hookline.journal.stream import LineReader, Message, OnceJournal, Sender

RUN = [
    Begun("r1", "1", None, Scope.RUN, "agent", 1.25, {"input": "a\nb\x1ec"}, {"agent": "agent"}),
    Called("r1", "1", Point.RUN_START, "guard", 1.5, 0.001, HookAction.BLOCK, "no", {"input": "a"}),
    Decided("r1", "1", Point.RUN_START, 1.6, HookAction.BLOCK, (Reason("guard", HookAction.BLOCK, "no"),)),
    Ended("r1", "1", Scope.RUN, 1.75, Status.BLOCKED, None, "no"),
]


def lines(*records, mask=None):
    written: list[str] = []
    sender = Sender(written.append, mask)
    for each in records:
        if isinstance(each, Message):
            sender.say(*each)
        else:
            sender.record(each)
    return written


def taken(received, written):
    return [received.read(line.removesuffix("\n")) for line in written]


def test_every_record_comes_out_as_it_went_in():
    written = lines(*RUN, Message("result", {"text": "fine"}))
    assert all(line.count("\n") == 1 and line.endswith("\n") for line in written)
    received = LineReader()
    assert [found for found, _ in taken(received, written)] == [*RUN, Message("result", {"text": "fine"})]
    assert received.missing == 0


def test_what_others_print_is_told_apart_also_where_they_did_not_end_their_line():
    first, second = lines(*RUN[:2])
    received = LineReader()
    assert received.read("hello") == (None, "hello")
    assert received.read(f"loading... {first.rstrip()}") == (RUN[0], "loading... ")
    assert received.read(second.rstrip()) == (RUN[1], "")


@pytest.mark.parametrize(
    "line",
    [
        "\x1e",
        "\x1e{}",
        "\x1e[1]",
        '\x1e[0,"r",["strange"]]',
        '\x1e[0,"r",["begin"]]',
        "\x1e[0,null,3]",
        '\x1e["0",null,["a",1]]',
        "\x1e" + "[" * 100_000,
    ],
)
def test_a_line_that_only_looks_like_ours_is_somebody_elses(line):
    received = LineReader()
    assert received.read(line) == (None, line)
    assert taken(received, lines(RUN[0]))[0][0] == RUN[0]


def test_a_stream_that_is_read_again_gives_nothing_twice():
    written = lines(*RUN)
    received = LineReader()
    taken(received, written[:3])
    assert [found for found, _ in taken(received, written)] == [None, None, None, RUN[3]]
    assert received.missing == 0


def test_lines_that_never_came_are_counted():
    written = lines(*RUN)
    received = LineReader()
    assert [found for found, _ in taken(received, [written[0], written[3]])] == [RUN[0], RUN[3]]
    assert received.missing == 2


def test_a_first_line_that_somebody_else_forged_does_not_begin_the_numbers_again():
    written = lines(*RUN)
    received = LineReader()
    taken(received, written[:3])
    forged = lines(RUN[0]._replace(name="forged"))
    assert taken(received, [*forged, written[3]])[1][0] == RUN[3]
    assert received.missing == 0


def test_secrets_do_not_leave():
    record = RUN[0]._replace(payload={"input": "say s3cr3t-value"})
    [line, said] = lines(record, Message("result", "s3cr3t-value"), mask=Mask(["s3cr3t-value"]))
    assert "s3cr3t-value" not in line + said


@pytest.mark.parametrize("kept", [False, True])
async def test_a_journal_is_given_each_record_once_also_by_the_next_process(tmp_path: Path, kept):
    journal = SqliteJournal(tmp_path / "journal.db") if kept else MemoryJournal()
    try:
        first = OnceJournal(journal)
        assert [await first.write(each) for each in RUN[:3]] == [True, True, True]
        assert not await first.write(RUN[1])
        again = OnceJournal(journal)
        assert [await again.write(each) for each in RUN] == [False, False, False, True]
        journal.flush()
        assert journal.records("r1") == RUN
    finally:
        journal.close()
