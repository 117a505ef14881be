"""What tests of hooks and agents need, and what hookline's own tests use."""

from tests.fakes.images import MadeImage
from tests.fakes.provider import FakeProvider, Received
from tests.fakes.registry import FakeRegistry

__all__ = ["FakeProvider", "FakeRegistry", "MadeImage", "Received"]
