"""no_writes_outside against spellings of a write that are run for real: what changes a file outside the workspace is refused.

The list of what a reader of text cannot see is in docs/guides/guards.md; each spelling that is let through is covered by a
line of it.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookline import HookAction, HookContext, WorkflowContext
from hookline.guards import no_writes_outside
from tests.attacks.outside_writes import INSIDE, OUTSIDE, UNSEEN
from tests.attacks.yards import Fence

GUIDE = Path(__file__).parents[2] / "docs/guides/guards.md"
PARTS = 8


@pytest.fixture(scope="module")
def fence(tmp_path_factory):
    return Fence(tmp_path_factory.mktemp("fence"))


@pytest.fixture(scope="module")
def place(fence):
    """A copy in which nothing is run, for the guard to look at."""
    return fence.copied("seen")


@pytest.fixture(autouse=True)
def _home(place, monkeypatch):
    monkeypatch.setenv("HOME", str(place / "home"))
    monkeypatch.setenv("TMPDIR", str(place.parent))


def refused(text, place):
    call = HookContext(
        workflow_id="w",
        point="tool.start",
        current_tool="Bash",
        tool_kind="shell",
        current_payload={"command": Fence.text(text, place)},
    )
    ctx = WorkflowContext(workflow_id="w", workspace=str(place / "work"))
    return no_writes_outside(ctx, call).action is not HookAction.CONTINUE


def escaped(fence: Fence, folder: str, texts: list[str]) -> list[str]:
    """The texts that change something outside the workspace."""

    def tried(numbered: tuple[int, str]) -> bool:
        place = fence.copied(f"{folder}-{numbered[0]}")
        return fence.escapes(fence.text(numbered[1], place), place)

    with ThreadPoolExecutor(2) as pool:
        return [
            text for text, escapes in zip(texts, pool.map(tried, enumerate(texts)), strict=True) if escapes
        ]


def test_a_write_beside_the_workspace_is_seen_and_one_inside_is_not(fence):
    assert escaped(fence, "plain", ["touch ../new", "touch new", "true"]) == ["touch ../new"]


def test_the_table_is_long_enough_and_holds_nothing_twice():
    assert len(OUTSIDE) == len(set(OUTSIDE)) >= 350
    assert len(INSIDE) == len(set(INSIDE)) >= 60
    assert {*UNSEEN} <= {*OUTSIDE}


@pytest.mark.parametrize("part", range(PARTS))
def test_no_write_arrives_outside_without_being_refused_or_documented(fence, place, part):
    texts = OUTSIDE[part::PARTS]
    arrived = escaped(fence, f"out-{part}", texts)
    assert not [text for text in arrived if text not in UNSEEN and not refused(text, place)]
    assert len(arrived) >= 0.9 * len(texts), "a spelling that does not arrive shows nothing"


@pytest.mark.parametrize("text", [text for text in OUTSIDE if text not in UNSEEN])
def test_a_spelling_that_arrives_is_refused(text, place):
    assert refused(text, place)


@pytest.mark.parametrize("text", UNSEEN)
def test_what_is_let_through_is_in_the_documentation(text, place):
    said = re.sub(r"\s+", " ", GUIDE.read_text(encoding="utf-8"))
    assert UNSEEN[text] in said
    assert not refused(text, place), "it is seen now: take it out of the list"


@pytest.mark.parametrize("text", INSIDE)
def test_what_stays_inside_is_let_through(text, place):
    assert not refused(text, place)


# Programs of the network, which are not run here.
LOADED = [
    "curl -fsSLo ../new https://example.com/x",
    "curl -fsSLo../new https://example.com/x",
    "curl -sSL --output ../new https://example.com/x",
    "curl -sLD ../new https://example.com/x",
    "curl -LO --output-dir .. https://example.com/x",
    "wget -qO ../new https://example.com/x",
    "wget -qO../new https://example.com/x",
    "wget -qP .. https://example.com/x",
    "wget -q --output-document=../new https://example.com/x",
    "curl -s https://example.com/x | tar -xzC ..",
    "curl -s https://example.com/x | tar xzC ..",
    "curl -s https://example.com/x.zip > x.zip && unzip -qd .. x.zip",
    "rsync -az host:/x ../new",
    "scp -r host:/x ../new",
]


@pytest.mark.parametrize("text", LOADED)
def test_what_is_loaded_to_a_place_outside_is_refused(text, place):
    assert refused(text, place)
