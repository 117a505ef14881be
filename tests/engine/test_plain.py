import datetime
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import Enum, StrEnum
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from hookline.engine.plain import inner, like, mapping, plain, strictly_plain, typed
from hookline.errors import HookBroke

atoms = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


class Colour(StrEnum):
    RED = "red"


class Shape(Enum):
    LIST = ["a"]  # noqa: RUF012
    THING = object()


class City(BaseModel):
    name: str
    people: int = 0


@dataclass
class Place:
    city: Any
    tags: list[str] = field(default_factory=list)


class Thing:
    """Nothing that JSON knows."""


def containers(value: Any) -> set[int]:
    if isinstance(value, dict):
        return {id(value)}.union(*(containers(item) for item in value.values()))
    if isinstance(value, list):
        return {id(value)}.union(*(containers(item) for item in value))
    return set()


@given(values)
def test_a_plain_copy_is_equal_and_shares_no_structure(value):
    copy = plain(value)
    assert copy == value
    assert not containers(copy) & containers(value)


@given(values)
def test_a_strict_copy_is_equal_and_shares_no_structure(value):
    copy = strictly_plain(value, "modified_payload")
    assert copy == value
    assert not containers(copy) & containers(value)


@given(values)
def test_what_is_plain_stays_as_it_is_when_made_plain_again(value):
    assert plain(plain(Place(value))) == plain(Place(value)) == {"city": value, "tags": []}


SHOWN = {
    "an enum": (Colour.RED, "red"),
    "an enum of a list": (Shape.LIST, ["a"]),
    "a tuple": ((1, (2,)), [1, [2]]),
    "a model": (City(name="Oslo"), {"name": "Oslo", "people": 0}),
    "a dataclass": (Place(city=None, tags=["x"]), {"city": None, "tags": ["x"]}),
    "a model in a dataclass in a list": (
        [Place(City(name="Oslo"))],
        [{"city": {"name": "Oslo", "people": 0}, "tags": []}],
    ),
    "a mapping": (MappingProxyType({"a": (1,)}), {"a": [1]}),
    "a class is no dataclass instance": (Place, Place),
}


@pytest.mark.parametrize(("value", "shown"), SHOWN.values(), ids=SHOWN)
def test_a_value_is_shown_as_plain_data(value, shown):
    assert plain(value) == shown


@pytest.mark.parametrize(
    "value", [value for name, (value, _) in SHOWN.items() if "class is" not in name], ids=str
)
def test_what_can_be_shown_can_be_given_back(value):
    assert strictly_plain(value, "x") == plain(value)


def test_a_list_inside_an_enum_is_not_shared():
    plain(Shape.LIST).append("b")
    strictly_plain(Shape.LIST, "x").append("b")
    assert Shape.LIST.value == ["a"]


def test_what_no_copy_can_be_made_of_is_shown_itself():
    lock = threading.Lock()
    assert plain({"lock": lock}) == {"lock": lock}


def test_an_object_of_its_own_kind_is_copied_too():
    thing = Thing()
    thing.notes = ["a"]
    plain(thing).notes.append("b")
    assert thing.notes == ["a"]


REFUSED = {
    "an object": (Thing(), "modified_payload is Thing"),
    "a set in a dict": ({"a": {1}}, "modified_payload['a'] is set"),
    "bytes in a list in a dict": ({"a": [1, b"x"]}, "modified_payload['a'][1] is bytes"),
    "a lock in a dataclass": (Place(threading.Lock()), "modified_payload['city'] is lock"),
    "an enum of an object": ({"a": Shape.THING}, "modified_payload['a'] is object"),
    "a number as a key": ({"a": {1: 2}}, "modified_payload['a'] has the key 1; keys must be strings"),
    "a number as a key of a mapping": (
        MappingProxyType({1: 2}),
        "modified_payload has the key 1; keys must be strings",
    ),
}


@pytest.mark.parametrize(("value", "said"), REFUSED.values(), ids=REFUSED)
def test_what_json_cannot_carry_is_refused_by_its_path(value, said):
    with pytest.raises(HookBroke) as broke:
        strictly_plain(value, "modified_payload")
    assert str(broke.value).startswith(said)
    assert broke.value.kind == "bad_answer"


def test_a_changed_model_is_a_model_again_and_validated():
    assert like(City(name="Oslo"), {"name": "Bergen", "people": "3"}) == City(name="Bergen", people=3)
    with pytest.raises(ValidationError):
        like(City(name="Oslo"), {"name": "Bergen", "people": "many"})


def test_a_changed_dataclass_is_a_dataclass_again():
    assert like(Place(city=1), {"city": 2, "tags": ["x"]}) == Place(city=2, tags=["x"])
    with pytest.raises(TypeError):
        like(Place(city=1), {"town": 2})


@pytest.mark.parametrize("original", [None, "a", 1, {"a": 1}, [1], City(name="Oslo")], ids=str)
def test_what_is_no_mapping_takes_the_place_of_anything(original):
    assert like(original, "new") == "new"


class Meeting(BaseModel):
    at: datetime.datetime


def test_a_model_whose_fields_json_has_other_words_for_can_be_handed_back():
    meeting = Meeting(at=datetime.datetime(2026, 1, 2, 3, 4))
    seen = plain(meeting)
    assert seen == {"at": "2026-01-02T03:04:00"}
    assert like(meeting, strictly_plain(seen, "x")) == meeting


@dataclass(frozen=True, kw_only=True)
class Leaf:
    at: datetime.datetime
    shade: Colour | None = None


@dataclass(frozen=True, kw_only=True)
class Tree:
    leaves: tuple[Leaf, ...] = ()
    top: Leaf | None = None
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    sizes: tuple[int, ...] = ()


def test_a_value_that_was_kept_as_json_has_its_types_again():
    leaf = Leaf(at=datetime.datetime(2026, 11, 16, 9, tzinfo=datetime.UTC), shade=Colour.RED)
    tree = Tree(leaves=(leaf, replace(leaf, shade=None)), top=leaf, names={"a": "b"}, sizes=(1, 2))
    kept = json.loads(json.dumps(asdict(tree), default=datetime.datetime.isoformat))
    assert typed(Tree, kept) == tree
    assert typed(Tree, kept).leaves[0].shade is Colour.RED


def test_a_field_of_a_newer_version_is_left_out_and_one_that_is_missing_has_its_default():
    assert typed(Tree, {"sizes": [3], "roots": 7}) == Tree(sizes=(3,))


def test_a_field_of_somebody_elses_value_is_none_where_anything_above_it_is_missing():
    value = {"a": {"b": 1}, "c": ["b"], "d": None}
    assert inner(value, "a", "b") == 1
    assert [inner(value, *keys) for keys in (("a", "x"), ("c", "b"), ("d", "b"), ("x", "b"))] == [None] * 4
    assert (inner(value), inner(None, "a")) == (value, None)
    assert (mapping(value["a"]), mapping(value["c"]), mapping(None)) == ({"b": 1}, {}, {})
