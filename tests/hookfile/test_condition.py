"""`when`: a predicate made of data."""

from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel

from hookline.engine.context import HookContext
from hookline.engine.point import Point, Status
from hookline.errors import UsageError
from hookline.hookfile.condition import FIELDS, check_condition, condition
from hookline.hookfile.read import parse
from hookline.matcher import TOOL_KINDS
from hookline.source import Wrong

CATASTROPHIC = r"(a|aa|aaa)+(b)\2"


def context(payload=None, output=None, **facts):
    return HookContext(workflow_id="w", current_payload=payload, current_output=output, **facts)


def met(data, payload=None, output=None, **facts):
    return condition(data)(context(payload, output, **facts))


PUSH = {
    "command": "git push --force",
    "n": 1,
    "list": ["git", "push", "x"],
    "deep": {"a": [{"b": "c"}]},
    "none": None,
}

HOLDS = [
    ({"input.command": {"contains": "push"}}, True),
    ({"input.command": {"contains": "pull"}}, False),
    ({"input.command": {"matches": r"git\s+push"}}, True),
    ({"input.command": {"matches": r"^push"}}, False),
    ({"input.command": {"matches": r"(?i)GIT"}}, True),
    ({"input.command": {"matches": r"(g)it.*\bpush\b(?=.*force)"}}, True),
    ({"input.command": "git push --force"}, True),
    ({"input.command": "git"}, False),
    ({"input.command": ["git", "git push --force"]}, True),
    ({"input.command": {"equals": "git push --force"}}, True),
    ({"input.command": {"not": {"contains": "push"}}}, False),
    ({"input.command": {"not": "x"}}, True),
    ({"input.command": {"contains": "git", "not": {"contains": "force"}}}, False),
    ({"input.command": {"any": ["x", {"contains": "push"}]}}, True),
    ({"input.command": {"all": [{"contains": "git"}, {"contains": "push"}]}}, True),
    ({"input.command": {"all": [{"contains": "git"}, "x"]}}, False),
    ({"input.command": {"exists": True}}, True),
    ({"input.command": {"exists": False}}, False),
    ({"input.missing": {"exists": False}}, True),
    ({"input.none": {"exists": True}}, False),
    ({"input.none": None}, True),
    ({"input.missing": None}, False),
    ({"input.missing": {"contains": "x"}}, False),
    ({"input.missing": {"not": {"contains": "x"}}}, True),
    ({"input.missing.deeper.0": {"exists": True}}, False),
    ({"input.n": 1}, True),
    ({"input.n": 1.0}, True),
    ({"input.n": "1"}, False),
    ({"input.n": True}, False),
    ({"input.n": {"contains": "1"}}, False),
    ({"input.n.0": 1}, False),
    ({"input.list": {"contains": "push"}}, True),
    ({"input.list": {"contains": "git push"}}, True),
    ({"input.list": {"matches": "^git push"}}, True),
    ({"input.list": {"equals": ["git", "push", "x"]}}, True),
    ({"input.list": {"equals": ["git", "push"]}}, False),
    ({"input.list.1": "push"}, True),
    ({"input.list.3": {"exists": True}}, False),
    ({"input.list.-1": {"exists": True}}, False),
    ({"input.list.x": {"exists": True}}, False),
    ({"input.list." + "9" * 5000: {"exists": True}}, False),
    ({"input.deep.a.0.b": "c"}, True),
    ({"input.deep": {"equals": {"a": [{"b": "c"}]}}}, True),
    ({"input.deep": {"equals": {"a": [{"b": "d"}]}}}, False),
    ({"input": {"exists": True}}, True),
    ({"output.text": {"contains": "ok"}}, True),
    ({"tool": "bash"}, True),
    ({"tool": {"matches": "^mcp__"}}, False),
    ({"kind": ["shell", "write"]}, True),
    ({"agent": {"not": "coder"}}, False),
    ({"status": ["failed", "timed_out"]}, True),
    ({"status": {"not": "ok"}, "kind": "shell"}, True),
    ({"status": "ok", "kind": "shell"}, False),
    ({"any": [{"kind": "read"}, {"input.n": 1}]}, True),
    ({"all": [{"kind": "read"}, {"input.n": 1}]}, False),
    ({"not": {"kind": "read"}}, True),
    ({"not": {"kind": "shell", "input.n": 2}}, True),
    ({"not": {"not": {"not": {"kind": "shell"}}}}, False),
    (
        {"any": [{"all": [{"kind": "shell"}, {"not": {"tool": "sh"}}]}, {"kind": "read"}], "agent": "coder"},
        True,
    ),
]


@pytest.mark.parametrize(("data", "holds"), HOLDS, ids=[str(data)[:70] for data, _ in HOLDS])
def test_a_condition_means_what_it_says(data, holds):
    facts = {
        "current_tool": "bash",
        "tool_kind": "shell",
        "agent": "coder",
        "status": "failed",
        "point": "tool.end",
    }
    assert met(data, PUSH, {"text": "all ok"}, **facts) is holds


def test_where_there_is_nothing_no_test_holds():
    for field in FIELDS:
        assert not met({field: {"exists": True}})
        assert not met({field: {"contains": "a"}})
        assert not met({f"{field}.a" if field in ("input", "output") else field: {"matches": "."}})


class Model(BaseModel):
    command: list[str]


@dataclass
class Plain:
    inner: Model
    status: Status = Status.OK


def test_models_and_dataclasses_are_looked_into():
    payload = Plain(Model(command=["git", "push"]))
    assert met({"input.inner.command.1": "push"}, payload)
    assert met({"input.inner.command": {"contains": "git push"}}, payload)
    assert met({"input.status": "ok"}, payload)
    assert met({"input.inner": {"equals": {"command": ["git", "push"]}}}, payload)
    assert met({"input": {"equals": ["a", 1]}}, ("a", 1))


def test_asking_leaves_the_context_untouched():
    asked = context({"a": "b"})
    assert condition({"input.a": "b"})(asked)
    assert asked.untouched


def test_a_pattern_that_never_ends_lets_the_hook_be_called():
    asked = context({"a": "a" * 5000})
    assert condition({"input.a": {"matches": CATASTROPHIC}})(asked) is True
    assert condition({"input.a": {"not": {"matches": CATASTROPHIC}}})(asked) is True
    assert condition({"not": {"input.a": {"matches": CATASTROPHIC}}})(asked) is True


def test_a_huge_or_bottomless_input_is_no_trouble():
    deep = "bottom"
    for _ in range(100_000):
        deep = [deep]
    wanted = {"input": {"any": ["x", {"equals": {"a": [1]}}, {"equals": [[["x"]]]}, {"contains": "b"}]}}
    assert met(wanted, deep) is False
    assert met({"input.a": {"matches": "b$"}}, {"a": "a" * 10_000_000 + "b"}) is True
    while isinstance(deep, list):
        deep = deep.pop()  # freed by hand: the interpreter's own way down is recursive


WRONG = [
    ({}, "when: give conditions"),
    ([], "when: give conditions"),
    ("input.a", "when: give conditions"),
    (None, "when: give conditions"),
    ([{"input.a": 1}], "when: give conditions"),
    ({"command": "x"}, "did you mean input.command?"),
    ({"inputs.command": "x"}, "did you mean input.command?"),
    ({"ouput": "x"}, "did you mean output?"),
    ({"tool.name": "x"}, "tool is one word and has no 'name'; write tool"),
    ({"input..a": "x"}, "empty part"),
    ({"input.": "x"}, "empty part"),
    ({"input.a": {}}, "give a test: equals, contains"),
    ({"input.a": []}, "at least one item"),
    ({"input.a": {"match": "x"}}, "unknown test 'match'; did you mean matches?"),
    ({"input.a": {"starts": "x"}}, "unknown test 'starts'; known: equals"),
    ({"input.a": {"contains": 1}}, "when.input.a.contains: contains is 1; give a text"),
    ({"input.a": {"contains": ""}}, "give a text"),
    ({"input.a": {"matches": "("}}, "'(' is not a valid pattern"),
    ({"input.a": {"exists": "yes"}}, "give true or false"),
    ({"input.a": {"any": {"b": 1}}}, "any needs a list"),
    ({"any": []}, "any needs a list"),
    ({"any": {"input.a": 1}}, "any needs a list"),
    ({"all": [{}]}, "when.all[0]: give conditions"),
    ({"not": []}, "when.not: give conditions"),
    ({"status": "fail"}, "unknown word 'fail'; did you mean failed?"),
    (
        {"kind": {"any": ["shell", {"not": "reed"}]}},
        "when.kind.any[1].not: unknown word 'reed'; did you mean read?",
    ),
]


@pytest.mark.parametrize(("data", "said"), WRONG, ids=[str(data)[:60] for data, _ in WRONG])
def test_a_wrong_condition_is_told_when_it_is_made(data, said):
    with pytest.raises(UsageError) as caught:
        condition(data)
    assert said in str(caught.value)


NOWHERE = [
    ({"output.a": 1}, [Point.TOOL_START], ("output.a",)),
    ({"status": "ok"}, [Point.RUN_END, Point.RUN_START], ("status",)),
    ({"tool": "x"}, [Point.MODEL_START], ("tool",)),
    ({"not": {"all": [{"input": 1}, {"kind": "shell"}]}}, [Point.AGENT_END], ("not", "all", 1, "kind")),
]


@pytest.mark.parametrize(("data", "points", "trail"), NOWHERE)
def test_a_field_that_a_point_does_not_have_is_told(data, points, trail):
    with pytest.raises(Wrong, match="this cannot be met at") as caught:
        check_condition(data, points)
    assert caught.value.trail == trail


def test_a_field_that_the_points_have_is_right():
    check_condition({"output.a": 1, "status": "ok", "tool": "x", "kind": "shell"}, [Point.TOOL_END])
    check_condition({"input": 1, "agent": "a"}, list(Point))
    check_condition({"output": 1, "tool": "x"}, ["x.claude.Notification"])


@pytest.mark.parametrize("kind", TOOL_KINDS)
def test_the_kinds_are_those_of_matching(kind):
    check_condition({"kind": kind}, [Point.TOOL_START])
    with pytest.raises(Wrong, match="unknown word"):
        check_condition({"kind": f"{kind}x"}, [Point.TOOL_START])


TEXT = st.text(st.characters() | st.characters(categories=["Cs"]), max_size=8)
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | TEXT
ANY_VALUE = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from("ab"), inner),
    max_leaves=8,
)
TESTS = st.recursive(
    ATOMS
    | st.fixed_dictionaries({"equals": ANY_VALUE})
    | st.fixed_dictionaries({"contains": st.text(min_size=1, max_size=2)})
    | st.fixed_dictionaries({"matches": st.sampled_from(["a", "^$", ".*", r"(a)\1", r"\d", "(?i)B"])})
    | st.fixed_dictionaries({"exists": st.booleans()}),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=5,
)
PATHS = st.sampled_from(["input", "input.a", "input.a.0", "input.a.b", "output", "output.0", "tool", "agent"])
CONDITIONS = st.recursive(
    st.dictionaries(PATHS, TESTS, min_size=1, max_size=3),
    lambda inner: (
        st.fixed_dictionaries({"not": inner})
        | st.fixed_dictionaries({"any": st.lists(inner, min_size=1, max_size=3)})
        | st.fixed_dictionaries({"all": st.lists(inner, min_size=1, max_size=3)})
    ),
    max_leaves=4,
)


@given(CONDITIONS, ANY_VALUE, ANY_VALUE)
@example({"input": {"matches": "a"}}, "\ud800a", None)
def test_a_right_condition_says_yes_or_no_to_anything(data, payload, output):
    assert met(data, payload, output, current_tool="a", agent="b") in (True, False)


@given(CONDITIONS, CONDITIONS, ANY_VALUE)
def test_conditions_combine_as_logic_says(one, other, payload):
    first, second = met(one, payload), met(other, payload)
    assert met({"not": one}, payload) is (not first)
    assert met({"any": [one, other]}, payload) is (first or second)
    assert met({"all": [one, other]}, payload) is (first and second)


@given(TESTS, TESTS, ANY_VALUE)
def test_tests_combine_as_logic_says(one, other, payload):
    first, second = met({"input": one}, payload), met({"input": other}, payload)
    assert met({"input": {"not": one}}, payload) is (not first)
    assert met({"input": [one, other]}, payload) is (first or second)
    assert met({"input": {"all": [one, other]}}, payload) is (first and second)


@given(ANY_VALUE | st.dictionaries(PATHS | st.sampled_from(["not", "any", "all", "x"]), ANY_VALUE))
def test_any_data_is_a_condition_or_is_told(data):
    try:
        made = condition(data)
    except UsageError as exc:
        told = str(exc)
    else:
        told = made(context({"a": "b"}))
    assert told in (True, False) or told.startswith("when")


@pytest.mark.parametrize(
    ("match", "key", "right"),
    [
        ("kind:shell", "input.comand", "input.command"),
        ("Bash", "input.Command", "input.command"),
        ("[kind:read, kind:write]", "input.filepath", "input.file_path"),
        ("kind:shell", "input.command", None),
        ("kind:shell", "input.description", None),
        ("kind:read", "input.paths", None),
        ("save_file", "input.filepath", None),
    ],
)
def test_a_key_that_no_tool_of_its_match_has_is_a_mistake(match, key, right):
    found = parse(
        f"hooks:\n  - {{name: a, on: tool.start, match: {match}, when: {{{key}: x}}, shell: 'true'}}\n"
    )
    said = [str(each) for each in found.problems]
    assert len(said) == (right is not None)
    assert right is None or f"did you mean {right}?" in said[0]
