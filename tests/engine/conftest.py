import pytest

from hookline import lifecycle, limit


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """What ignores its cancellation is given up at once, not after a second."""
    monkeypatch.setattr(limit, "GRACE", 0.02)
    monkeypatch.setattr(lifecycle, "GRACE", 0.02)
