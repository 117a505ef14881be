import functools

import pytest

from hookline.engine.hook import (
    DEFAULT_TIMEOUT,
    AgentDeclaration,
    Declaration,
    Hook,
    HookDeclaration,
    HookOptions,
    Mode,
    OnError,
    hook,
    options_of,
    settled_on_error,
)
from hookline.engine.point import Point
from hookline.engine.result import HookResult
from hookline.errors import UsageError
from hookline.handlers.python import is_async, python_hook
from tests.engine.builders import POINTS


def sync_hook(ctx, hook_context):
    return HookResult.continue_with()


async def async_hook(ctx, hook_context):
    return HookResult.continue_with()


class Guard:
    def __call__(self, ctx, hook_context):
        return HookResult.continue_with()

    def method(self, ctx, hook_context):
        return HookResult.continue_with()

    async def async_method(self, ctx, hook_context):
        return HookResult.continue_with()


class AsyncGuard:
    async def __call__(self, ctx, hook_context):
        return HookResult.continue_with()


def takes_three(ctx, hook_context, extra):
    return HookResult.continue_with()


# -- the shape of a hook -----------------------------------------------------------------------------------

WRONG = {
    "none": lambda: HookResult(),
    "one": lambda ctx: HookResult(),
    "three": takes_three,
    "by keyword only": lambda *, ctx, hook_context: HookResult(),
    "a third by keyword": lambda ctx, hook_context, *, third: HookResult(),
}


@pytest.mark.parametrize("function", WRONG.values(), ids=WRONG)
def test_a_hook_with_a_wrong_number_of_parameters_is_told_at_once(function):
    for declare in (hook, hook(timeout=5), lambda f: python_hook(f, [Point.TOOL_START])):
        with pytest.raises(UsageError, match="must have exactly 2 parameters") as told:
            declare(function)
        assert "test_hook.py" in str(told.value), "the message says which function it is"


RIGHT = {
    "a function": (sync_hook, "sync_hook", False),
    "an async function": (async_hook, "async_hook", True),
    "a lambda": (lambda ctx, hook_context: HookResult(), "<lambda>", False),
    "one that takes anything": (lambda *args: HookResult(), "<lambda>", False),
    "one with more that has a default": (lambda ctx, hook_context, more=1: HookResult(), "<lambda>", False),
    "a method": (Guard().method, "method", False),
    "an async method": (Guard().async_method, "async_method", True),
    "an object": (Guard(), "Guard", False),
    "an async object": (AsyncGuard(), "AsyncGuard", True),
    "a partial": (functools.partial(takes_three, extra=1), "takes_three", False),
    "a partial of a partial": (functools.partial(functools.partial(async_hook)), "async_hook", True),
}


@pytest.mark.parametrize(("function", "name", "awaits"), RIGHT.values(), ids=RIGHT)
def test_anything_that_takes_two_is_a_hook(function, name, awaits):
    made = python_hook(function, [Point.TOOL_START])
    assert (made.name, made.points, is_async(function)) == (name, {Point.TOOL_START}, awaits)
    assert made.limits_itself is not awaits, "a thread keeps its own limit, for it may have to queue"
    assert "test_hook.py:" in made.source


@pytest.mark.parametrize("thing", [None, 5, "sync_hook", HookResult()], ids=repr)
def test_what_cannot_be_called_is_no_hook(thing):
    with pytest.raises(UsageError, match="Invalid hook type"):
        python_hook(thing, [Point.TOOL_START])


def test_a_builtin_whose_signature_cannot_be_read_is_let_through():
    assert python_hook(max, [Point.TOOL_START]).source == ""


# -- what @hook says ---------------------------------------------------------------------------------------


def test_a_bare_mark_leaves_a_function_as_it_is():
    assert hook(sync_hook) is sync_hook
    assert options_of(sync_hook) == HookOptions()
    assert options_of(sync_hook).timeout == DEFAULT_TIMEOUT == 60.0


def test_every_option_reaches_the_live_hook():
    @hook(
        on=["tool.start", "tool.end"],
        match="bash",
        timeout=5,
        on_error="block",
        inline=True,
        mode="off",
        name="guard",
    )
    def function(ctx, hook_context):
        return HookResult.continue_with()

    made = python_hook(function)
    assert made.points == {Point.TOOL_START, Point.TOOL_END}
    assert (made.name, made.timeout, made.on_error, made.mode) == ("guard", 5.0, OnError.BLOCK, Mode.OFF)
    assert made.match is not None
    assert (made.match_text, made.limits_itself, made.handler) == ("bash", False, function)


@pytest.mark.parametrize(
    ("given", "mode"),
    [
        ({}, "enforce"),
        ({"observe": True}, "observe"),
        ({"mode": "off"}, "off"),
        ({"mode": "observe"}, "observe"),
    ],
    ids=str,
)
def test_the_mode_is_enforce_unless_something_else_was_said(given, mode):
    assert options_of(hook(timeout=1, **given)(lambda ctx, hook_context: HookResult())).mode == mode


def test_a_mark_on_one_method_does_not_reach_other_instances():
    one, other = Guard(), Guard()
    marked = hook(timeout=1)(one.method)
    assert options_of(marked).timeout == 1.0
    assert options_of(other.method).timeout == DEFAULT_TIMEOUT
    assert python_hook(marked, [Point.TOOL_START]).name == "method"


WRONG_OPTIONS = {
    "an unknown point": ({"on": "tool.begin"}, "unknown point 'tool.begin'; did you mean tool.end?"),
    "an unknown keyword": ({"timout": 3}, "@hook: unknown keyword 'timout'; did you mean timeout?"),
    "a limit of nothing": ({"timeout": 0}, "timeout is 0; give seconds greater than 0, or None"),
    "a limit below": ({"timeout": -1}, "timeout is -1"),
    "a limit in words": ({"timeout": "5s"}, "timeout is '5s'"),
    "a limit of yes": ({"timeout": True}, "timeout is True"),
    "no number": ({"timeout": float("nan")}, "timeout is nan"),
    "an unknown on_error": ({"on_error": "ignore"}, "on_error is 'ignore'; known: continue, block, fail"),
    "an unknown mode": ({"mode": "on"}, "mode is 'on'; known: enforce, observe, off"),
    "an unknown word": ({"timeot": 5}, "timeot"),
}


@pytest.mark.parametrize(("given", "said"), WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_a_wrong_option_is_told_where_it_is_written(given, said):
    with pytest.raises(TypeError) as told:
        hook(**given)
    assert said in str(told.value)


def test_no_limit_is_a_limit_of_none():
    assert options_of(hook(timeout=None)(lambda ctx, hook_context: HookResult())).timeout is None


def test_a_hook_that_stands_nowhere_is_told():
    with pytest.raises(UsageError, match=r"hook sync_hook \[.*test_hook.py:\d+\] names no point"):
        python_hook(sync_hook)


def test_where_a_hook_is_attached_counts_more_than_what_it_says():
    marked = hook(on="tool.end")(functools.partial(sync_hook))
    assert python_hook(marked, [Point.TOOL_START]).points == {Point.TOOL_START}


def test_a_match_where_there_is_no_tool_is_told():
    marked = hook(match="bash")(functools.partial(sync_hook))
    with pytest.raises(UsageError, match=r"has a match for tool names, and agent\.start has no tool"):
        python_hook(marked, [Point.AGENT_START, Point.TOOL_START])


def test_a_match_that_is_no_pattern_is_told_with_the_hooks_name():
    marked = hook(match="ba(sh")(functools.partial(sync_hook))
    with pytest.raises(UsageError, match=r"hook sync_hook .*match 'ba\(sh' is not a valid pattern"):
        python_hook(marked, [Point.TOOL_START])


# -- what follows when it broke ----------------------------------------------------------------------------

CAN_BLOCK = {
    "agent.start",
    "step.start",
    "model.start",
    "tool.start",
    "tool.end",
    "model.end",
    "agent.end",
}
CANNOT_FAIL = {"session.end", "workspace.end"}


def follows(wanted: str, point: str) -> str:
    """The design in words: as strict as was wanted, as far as the point can bear it."""
    if wanted == "withhold" and point not in ("tool.end", "model.end", "agent.end"):
        wanted = "block"
    if wanted == "block" and point not in CAN_BLOCK:
        wanted = "fail" if point.endswith(".start") else "continue"
    if wanted == "fail" and point in CANNOT_FAIL:
        wanted = "continue"
    return wanted


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("declared", [None, *OnError], ids=str)
def test_what_follows_at_each_point(declared, point):
    made = Hook(name="h", points=frozenset([point]), handler=async_hook, on_error=declared)
    assert settled_on_error(made, point) == follows(declared or "fail", point)


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize("point", POINTS)
def test_a_dialects_own_defaults_hold_where_nothing_was_declared(point):
    defaults = {
        Point.TOOL_START: OnError.BLOCK,
        Point.RUN_START: OnError.BLOCK,
        Point.RUN_END: OnError.CONTINUE,
    }
    made = Hook(name="h", points=frozenset([point]), handler=async_hook, defaults=defaults)
    assert settled_on_error(made, point) == follows(defaults.get(point, OnError.FAIL), point)
    declared = Hook(
        name="h", points=made.points, handler=async_hook, defaults=defaults, on_error=OnError.CONTINUE
    )
    assert settled_on_error(declared, point) is OnError.CONTINUE


def test_at_an_event_of_another_tool_a_broken_hook_stops_nothing_unless_told_to():
    made = Hook(name="h", points=frozenset(["x.claude.Stop"]), handler=async_hook)
    assert settled_on_error(made, "x.claude.Stop") is OnError.CONTINUE
    strict = Hook(name="h", points=made.points, handler=async_hook, on_error=OnError.BLOCK)
    assert settled_on_error(strict, "x.claude.Stop") is OnError.BLOCK


def test_a_declaration_is_plain_data_all_the_way_down():
    declared = Declaration(
        format="native",
        source="hooks.yaml",
        agent=AgentDeclaration(name="a", tools=("bash",)),
        hooks=(
            HookDeclaration(
                name="g",
                points=(Point.TOOL_START,),
                kind="command",
                params={"command": ["x"]},
                on_error=OnError.BLOCK,
            ),
        ),
    )
    shown = declared.to_dict()
    assert shown["agent"]["tools"] == ["bash"]
    (one,) = shown["hooks"]
    assert one == {
        "name": "g",
        "points": ["tool.start"],
        "kind": "command",
        "params": {"command": ["x"]},
        "match": None,
        "when": None,
        "timeout": 60.0,
        "on_error": "block",
        "mode": "enforce",
        "changes": None,
        "source": "",
    }
    assert {type(one["on_error"]), type(one["mode"]), type(one["points"][0])} == {str}
