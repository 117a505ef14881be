import pytest

from hookline.engine import lifecycle, limit
from hookline.handlers import python


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores its cancellation is given up at once, not after a second."""
    for module in (limit, lifecycle, python):
        monkeypatch.setattr(module, "GRACE", 0.02)
