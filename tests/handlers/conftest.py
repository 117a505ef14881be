"""A runner that must leave nothing behind, whatever a test did with it."""

from collections.abc import AsyncIterator

import pytest

from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner


@pytest.fixture
async def runner() -> AsyncIterator[LocalRunner]:
    runner = LocalRunner()
    yield runner
    await runner.close()
    assert tagged.carriers(runner.mark.encode()) == {}
