import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.engine.context import Facts
from hookline.engine.hook import hook
from hookline.engine.point import Point
from hookline.engine.result import HookResult
from hookline.errors import UsageError
from hookline.handlers.python import python_hook
from hookline.matcher import TOOL_KINDS, matcher, pattern, search
from tests.engine.builders import fired, noting, saying

CATASTROPHIC = r"(a|aa|aaa)+(b)\2"
"""RE2 cannot express it, and on a long row of a's a backtracking engine never comes back."""


def facts(tool=None, kind=None):
    return Facts(workflow_id="w", current_tool=tool, tool_kind=kind)


FITS = [
    ("bash", "bash", True),
    ("bash", "Bash", False),
    ("bash", "bash2", False),
    ("bash", "a bash", False),
    ("bash|shell_.*", "shell_exec", True),
    ("bash|shell_.*", "xshell_exec", False),
    ("(?i)bash", "BASH", True),
    (".*", "", True),
    ("", "", True),
    ("", "bash", False),
    ("mcp__.*__(read|list)", "mcp__fs__read", True),
    (r"(?!rm).*", "ls", True),
    (r"(?!rm).*", "rm", False),
    (r"(.)\1", "aa", True),
    (r"(.)\1", "ab", False),
]


@pytest.mark.parametrize(("text", "name", "fits"), FITS)
def test_a_pattern_fits_whole_names(text, name, fits):
    assert pattern(text)(name) is fits
    assert matcher(text)(facts(name)) is fits


def test_a_point_without_a_tool_has_the_empty_name():
    assert matcher(".*")(facts(None))
    assert not matcher(".+")(facts(None))


@pytest.mark.parametrize("kind", TOOL_KINDS)
def test_a_kind_fits_every_tool_of_that_kind(kind):
    assert matcher(f"kind:{kind}")(facts("whatever", kind))
    assert matcher(f"kind:mine|{kind}".replace("mine", "agent"))(facts("whatever", kind))
    assert not matcher(f"kind:{kind}")(facts(kind, None)), "a kind is not a name"


@pytest.mark.parametrize("text", ["kind:", "kind:shel", "kind:shell|", "kind:.*"])
def test_an_unknown_kind_is_told_with_all_that_are_known(text):
    with pytest.raises(
        UsageError, match=r"unknown tool kind .*; known: shell, read, write, search, web, mcp"
    ):
        matcher(text)


@pytest.mark.parametrize("text", ["ba(sh", "*", "[a"])
def test_what_is_no_pattern_is_told(text):
    with pytest.raises(UsageError, match="is not a valid pattern"):
        pattern(text)


HALVES = ["\ud800", "bash\udfff", "\udc00\ud800x", "mcp__\udcff__read"]
"""JSON can carry half a surrogate pair, and a model can make one up; UTF-8 has no word for it."""


@pytest.mark.parametrize("name", HALVES)
@pytest.mark.parametrize("text", ["bash", ".*", "[a-z_\ud800]+", r"(?!rm).*", r"(.)\1", "\ud800"])
def test_half_a_character_in_a_name_or_a_pattern_is_no_error(text, name):
    assert pattern(text)(name) in (True, False)
    assert search(text)(name) in (True, False)
    assert matcher(text)(facts(name)) is pattern(text)(name)


@pytest.mark.parametrize("name", HALVES)
def test_half_a_character_is_one_character_that_no_name_has(name):
    assert pattern(".*")(name)
    assert pattern(f".{{{len(name)}}}")(name)
    assert not pattern("[ -~]*")(name)


@given(
    text=st.text(alphabet=st.characters()), name=st.text(alphabet=st.characters(categories=["Cs", "L", "P"]))
)
def test_any_pattern_and_any_name_are_answered_or_told(text, name):
    for make in (pattern, search):
        try:
            made = make(text)
        except UsageError:
            continue
        try:
            assert made(name) in (True, False)
        except TimeoutError:
            pass  # the machine may be busy


@pytest.mark.parametrize(
    ("text", "known", "found"),
    [("push", "git push -f", True), ("^push", "git push", False), (r"(?<!-)-f", "git push -f", True)],
)
def test_a_search_finds_the_pattern_anywhere(text, known, found):
    assert search(text)(known) is found


def test_a_catastrophic_pattern_gives_up_instead_of_hanging():
    with pytest.raises(TimeoutError):
        matcher(CATASTROPHIC)(facts("a" * 80))


@pytest.mark.rule("design 1.4")
async def test_a_catastrophic_pattern_makes_its_hook_broke_and_calls_nothing():
    called = []

    @hook(match=CATASTROPHIC, inline=True)
    def guard(ctx, hook_context):
        called.append(hook_context)
        return HookResult.continue_with()

    seen = await fired(python_hook(guard, [Point.TOOL_START]), current_tool="a" * 80)
    assert (seen.outcome.action, seen.call.error_kind, called) == ("fail", "raised", [])
    assert "TimeoutError" in seen.call.error


@pytest.mark.rule("design 1.4")
@pytest.mark.parametrize("on_error", ["continue", "block", "fail"])
async def test_a_matcher_that_raises_is_a_hook_that_broke(on_error):
    def raises(_facts):
        raise LookupError("no such table")

    later = []
    broken = saying(HookResult.continue_with(), match=raises, on_error=on_error)
    seen = await fired(broken, noting(later))
    assert seen.outcome.action == on_error
    assert seen.calls[0].error_kind == "raised"
    assert "LookupError: no such table" in seen.calls[0].error
    assert bool(later) is (on_error == "continue")


async def test_a_hook_whose_match_does_not_fit_is_not_called_and_not_on_record():
    seen = await fired(saying(HookResult.fail("no"), match=matcher("bash")), current_tool="ls")
    assert (seen.outcome.action, seen.calls) == ("continue", [])
