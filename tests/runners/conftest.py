"""Runners that must leave nothing behind, whatever a test did with them."""

from collections.abc import AsyncIterator

import pytest

from hookline.runners import tags as tagged
from hookline.runners.container import ContainerRunner, find_engine
from hookline.runners.local import LocalRunner
from tests.runners.places import RUNNERS, Place, installed, made_image


@pytest.fixture
async def runner() -> AsyncIterator[LocalRunner]:
    runner = LocalRunner()
    yield runner
    await runner.close()
    assert tagged.carriers(runner.mark.encode()) == {}


@pytest.fixture(scope="session")
def bubblewrap() -> None:
    installed(bwrap="bubblewrap")


@pytest.fixture(scope="session")
def image(tmp_path_factory) -> str:
    return made_image(tmp_path_factory.mktemp("image"))


@pytest.fixture(params=["local", "sandbox", pytest.param("container", marks=pytest.mark.real)])
async def place(request, tmp_path) -> AsyncIterator[Place]:
    """Each place where a process can run; what the suite asks holds in all of them."""
    needed = {"sandbox": "bubblewrap", "container": "image"}
    if request.param in needed:
        request.getfixturevalue(needed[request.param])
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    runner = RUNNERS[request.param]()
    place = Place(request.param, runner, workspace)
    yield place
    await runner.close()
    assert place.alive() == []
    if isinstance(runner, ContainerRunner):
        assert tagged.labelled(find_engine(), runner.label) == []
    else:
        assert tagged.carriers(runner.mark.encode()) == {}
