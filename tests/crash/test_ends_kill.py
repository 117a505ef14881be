"""`kill -9` of runs with hooks of a hook file around them: a sample; `python -m tests.crash.rounds` makes all rounds."""

import pytest

from tests.crash.rounds import KINDS, rounds
from tests.runners.places import installed

KILLS = 3


@pytest.mark.real
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", KINDS)
def test_no_end_of_a_killed_run_is_forgotten_or_run_twice_untold(tmp_path, kind, chance):
    if kind.endswith("sandbox"):
        installed(bwrap="bubblewrap")
    assert rounds(kind, KILLS, tmp_path / "scene", chance).kills
