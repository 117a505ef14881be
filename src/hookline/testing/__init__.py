"""What tests of hooks and agents need, and what hookline's own tests use."""

from hookline.testing.images import MadeImage
from hookline.testing.provider import FakeProvider, Received
from hookline.testing.registry import FakeRegistry

__all__ = ["FakeProvider", "FakeRegistry", "MadeImage", "Received"]
