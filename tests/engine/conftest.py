import pytest

from hookline.engine import lifecycle, limit


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores its cancellation is given up at once, not after a second."""
    for module in (limit, lifecycle):
        monkeypatch.setattr(module, "GRACE", 0.02)
