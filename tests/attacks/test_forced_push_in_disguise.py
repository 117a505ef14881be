"""no_force_push against spellings of a forced push that are run for real: what overwrites the remote is refused.

The list of what a reader of text cannot see is in docs/guides/guards.md; each spelling that is let through is covered by a
line of it.
"""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from hookline import HookAction, HookContext
from hookline.guards import no_force_push
from tests.attacks.forced_pushes import FORCED, UNSEEN
from tests.attacks.harmless_pushes import HARMLESS
from tests.attacks.yards import Yard

GUIDE = Path(__file__).parents[2] / "docs/guides/guards.md"
# Each part of the table is run in a folder of its own, so that workers share the work.
PARTS = 16


def refused(text: str) -> bool:
    payload = HookContext(
        workflow_id="w",
        point="tool.start",
        current_tool="Bash",
        tool_kind="shell",
        current_payload={"command": text},
    )
    return no_force_push(None, payload).action is not HookAction.CONTINUE


def reached(yard: Yard, texts: list[str]) -> list[str]:
    """The texts that overwrite or remove a branch of the remote."""
    with ThreadPoolExecutor(2) as pool:
        done = pool.map(yard.overwrites, map(str, range(len(texts))), texts)
        return [text for text, overwritten in zip(texts, done, strict=True) if overwritten]


def test_a_plain_forced_push_overwrites_the_remote_and_an_ordinary_one_does_not(tmp_path):
    yard = Yard(tmp_path)
    assert reached(yard, ["git push -f", "git push origin main", "true"]) == ["git push -f"]


def test_the_table_is_long_enough_and_holds_nothing_twice():
    assert len(FORCED) == len(set(FORCED)) >= 800
    assert len(HARMLESS) == len(set(HARMLESS)) >= 60
    assert {*UNSEEN} <= {*FORCED}


# One in eight without `-m real`, all of them with it.
@pytest.mark.parametrize("part", range(PARTS))
def test_no_forced_push_of_a_sample_arrives_without_being_refused_or_documented(tmp_path, part):
    texts = FORCED[part::PARTS][::8]
    arrived = reached(Yard(tmp_path), texts)
    assert not [text for text in arrived if text not in UNSEEN and not refused(text)]
    assert len(arrived) >= len(texts) - 2, "a spelling that does not arrive shows nothing"


@pytest.mark.real
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(PARTS))
def test_no_forced_push_of_the_whole_table_arrives_without_being_refused_or_documented(tmp_path, part):
    texts = FORCED[part::PARTS]
    arrived = reached(Yard(tmp_path), texts)
    assert not [text for text in arrived if text not in UNSEEN and not refused(text)]
    assert len(arrived) >= 0.9 * len(texts), "a spelling that does not arrive shows nothing"


@pytest.mark.parametrize("text", [text for text in FORCED if text not in UNSEEN])
def test_a_spelling_that_arrives_is_refused(text):
    assert refused(text)


@pytest.mark.parametrize("text", UNSEEN)
def test_what_is_let_through_is_in_the_documentation(text):
    said = re.sub(r"\s+", " ", GUIDE.read_text(encoding="utf-8"))
    assert UNSEEN[text] in said
    assert not refused(text), "it is seen now: take it out of the list"


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_forced_push_is_let_through(text):
    assert not refused(text)
