"""Declaring an agent: its keywords, and what is refused at once."""

from typing import Any

import pytest

from hookline import Agent, HookResult, Scripted, UsageError, hook, tool
from hookline.agent.sdk import KEYWORDS
from tests.agents import EVERY_KEYWORD, Seen, calls

CONTINUE = HookResult.continue_with()


@pytest.mark.parametrize("keyword", EVERY_KEYWORD)
async def test_each_of_the_twelve_keywords_stands_for_its_point(keyword: str) -> None:
    seen = Seen()

    @tool
    def act() -> str:
        return "acted"

    await Agent(
        id="a", model=Scripted([calls("act"), "ok"]), tools=(act,), **{keyword: (seen.noting(),)}
    ).run("hi")

    assert set(seen.points) == {KEYWORDS[keyword]}


def test_there_are_twelve_keywords_two_for_each_scope_of_a_run() -> None:
    assert len(KEYWORDS) == 12
    assert {point.scope for point in KEYWORDS.values()} == {
        "run",
        "session",
        "agent",
        "step",
        "model",
        "tool",
    }


@pytest.mark.parametrize("keyword", EVERY_KEYWORD)
def test_what_is_no_function_is_refused_when_declared(keyword: str) -> None:
    with pytest.raises(UsageError, match=f"Invalid hook type: {keyword} has 7"):
        Agent(id="a", model=Scripted([]), **{keyword: [7]})
    with pytest.raises(UsageError, match=f"Invalid hooks type: {keyword} is int"):
        Agent(id="a", model=Scripted([]), **{keyword: 7})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": ""}, "an agent's id"),
        ({"tools": ["bsh"]}, "there is no ready tool 'bsh'; did you mean bash?"),
        ({"tools": [7]}, "tools has 7"),
        ({"tools": ["bash", "bash"]}, "two tools are called 'bash'"),
        ({"stop_conditions": [lambda context: True]}, "decorate it with @stop_condition"),
    ],
)
def test_a_wrong_declaration_is_refused_with_what_would_be_right(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Agent(**{"id": "a", "model": Scripted([]), **given})


def test_a_match_on_a_point_without_a_tool_is_refused() -> None:
    @hook(match="bash")
    def guard(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    with pytest.raises(
        UsageError, match=r"guard \[.*\] has a match for tool names, and agent.start has no tool"
    ):
        Agent(id="a", model=Scripted([]), on_start=[guard])


@pytest.mark.parametrize("match", ["(", "kind:shel"])
def test_a_match_that_is_no_pattern_is_refused_with_its_hook(match: str) -> None:
    @hook(match=match)
    def guard(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    with pytest.raises(UsageError, match=r"hook guard .*match"):
        Agent(id="a", model=Scripted([]), on_tool_start=[guard])


async def test_a_run_level_hook_must_say_where_it_stands() -> None:
    @hook
    def nowhere(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    with pytest.raises(UsageError, match=r"nowhere .* names no point; write @hook"):
        await Agent(id="a", model=Scripted(["ok"])).run("hi", hooks=[nowhere])


async def test_an_unknown_provider_is_told_when_the_agent_is_run() -> None:
    with pytest.raises(UsageError, match="unknown provider 'opnai'; did you mean openai"):
        await Agent(id="a", provider="opnai", model="gpt-4o").run("hi")


def test_a_declaration_is_pure_data() -> None:
    @hook(timeout=3, on_error="continue")
    def log(ctx: Any, hook_context: Any) -> HookResult:
        return CONTINUE

    declared = (
        Agent(id="a", provider="openai", model="gpt-4o", tools=["bash"], on_end=[log]).declaration().to_dict()
    )

    assert (declared["agent"]["provider"], declared["agent"]["tools"]) == ("openai", ["bash"])
    (only,) = declared["agent"]["hooks"]
    assert (only["name"], only["points"], only["timeout"], only["on_error"]) == (
        "log",
        ["agent.end"],
        3.0,
        "continue",
    )
    assert "test_declaration.py:" in only["source"]
