import pytest

from hookline.engine.point import Point, Scope, Status, point_named
from hookline.errors import UsageError

NAMES = [
    "workspace.start",
    "workspace.end",
    "run.start",
    "run.end",
    "session.start",
    "session.end",
    "agent.start",
    "agent.end",
    "step.start",
    "step.end",
    "model.start",
    "model.end",
    "tool.start",
    "tool.end",
]


def test_there_are_fourteen_points_in_the_order_of_a_life():
    assert list(Point) == NAMES
    assert list(Scope) == ["workspace", "run", "session", "agent", "step", "model", "tool"]


@pytest.mark.parametrize("name", NAMES)
def test_a_point_knows_its_scope_and_its_side(name):
    point = point_named(name)
    scope, _, side = name.partition(".")
    assert (point.scope, point.is_start) == (Scope(scope), side == "start")
    assert getattr(Scope(scope), side) is point


def test_what_end_hooks_are_told_is_one_of_the_words_of_the_design():
    told = {"ok", "failed", "timed_out", "cancelled", "answered", "skipped"}
    assert told <= set(Status)


@pytest.mark.parametrize(("name", "near"), [("tool.strat", "tool.start"), ("TOOL.START", "tool.start")])
def test_an_unknown_point_is_told_with_the_one_that_was_meant(name, near):
    with pytest.raises(UsageError, match=f"unknown point '{name}'; did you mean {near}?"):
        point_named(name)


@pytest.mark.parametrize("name", ["PreToolUse", "x"])
def test_an_unknown_point_is_told_with_all_that_are_known(name):
    with pytest.raises(UsageError) as told:
        point_named(name)
    assert repr(name) in str(told.value)
    assert all(known in str(told.value) for known in NAMES)
