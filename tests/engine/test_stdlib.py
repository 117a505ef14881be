"""Classes that load quickly are dataclasses to everybody who asks."""

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys

import pytest

from hookline.engine.stdlib import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Frozen:
    """One of ours."""

    name: str
    size: int = 3
    items: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Open:
    name: str
    size: int = 3


@dataclass(frozen=True)
class Checked:
    size: int = 3

    def __post_init__(self):
        if self.size < 0:
            raise ValueError("too small")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Theirs:
    name: str
    size: int = 3
    items: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(slots=True)
class TheirsOpen:
    name: str
    size: int = 3


MANY = range(1000)  # the first are made by a loop, the others by compiled code


def said(make, *args, **given):
    """What is made, or why not, without the name of the class."""
    try:
        made = make(*args, **given)
    except TypeError as exc:
        return str(exc).replace(make.__qualname__, "X").replace(make.__name__, "X")
    return repr(made).replace(make.__qualname__, "X")


CALLS = {
    "all": ((), {"name": "a", "size": 1, "items": ["x"]}),
    "the least": ((), {"name": "a"}),
    "nothing": ((), {}),
    "too much": ((), {"name": "a", "wrong": 1}),
    "by place": (("a",), {}),
    "by place and name": (("a",), {"name": "b"}),
    "too many": (("a", 1, 2, 3), {}),
    "none": ((), {"name": None, "size": None}),
}


@pytest.mark.parametrize(("args", "given"), CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize(("ours", "theirs"), [(Frozen, Theirs), (Open, TheirsOpen)], ids=["frozen", "open"])
def test_it_takes_what_a_dataclass_takes_and_says_the_same(ours, theirs, args, given):
    for _ in MANY:
        assert said(ours, *args, **given) == said(theirs, *args, **given)


def test_two_with_the_same_fields_are_equal_and_have_one_hash():
    for number in MANY:
        one, other = Checked(number), Checked(number)
        assert one == other
        assert hash(one) == hash(other)
        assert one != Checked(number + 1)
        assert one != number
    assert Open("a") == Open("a")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Open("a"))


def test_a_default_that_is_made_is_made_for_each():
    made = [Frozen(name="a") for _ in MANY]
    made[0].items.append("x")
    assert all(each.items == [] for each in made[1:])


def test_a_frozen_one_cannot_be_changed():
    one = Frozen(name="a")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'name'"):
        one.name = "b"
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'name'"):
        del one.name
    with pytest.raises(AttributeError):
        Open("a").other = 1


def test_its_own_check_is_made_for_each():
    for _ in MANY:
        with pytest.raises(ValueError, match="too small"):
            Checked(-1)


def test_the_standard_library_takes_it_for_a_dataclass():
    one = Frozen(name="a", items=["x"])
    assert dataclasses.is_dataclass(Frozen)
    assert [each.name for each in dataclasses.fields(one)] == ["name", "size", "items"]
    assert [each.kw_only for each in dataclasses.fields(one)] == [True, True, True]
    assert dataclasses.asdict(one) == {"name": "a", "size": 3, "items": ["x"]}
    assert dataclasses.replace(one, size=4) == Frozen(name="a", size=4, items=["x"]) == replace(one, size=4)
    assert str(inspect.signature(Open)) == str(inspect.signature(TheirsOpen))
    assert (Open.__match_args__, Frozen.__match_args__) == (("name", "size"), ())


def test_a_dataclass_can_have_it_as_its_base():
    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class More(Frozen):
        more: int = 1

    assert [each.name for each in dataclasses.fields(More)] == ["name", "size", "items", "more"]
    assert More(name="a", more=2) == More(name="a", more=2) != More(name="a", more=3)


def test_it_can_be_copied_and_pickled():
    one = Frozen(name="a", items=["x"])
    assert copy.copy(one) == copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one
    assert pickle.loads(pickle.dumps(Open("a"))) == Open("a")
    assert copy.deepcopy(one).items is not one.items


def test_what_the_engine_is_made_of_loads_without_the_standard_ones():
    code = "import sys, hookline.engine.pipeline, hookline.runners; print({'dataclasses', 'inspect', 'asyncio'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
