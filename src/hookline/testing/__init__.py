"""What tests of hooks and agents need, and what hookline's own tests use."""

from hookline.testing.provider import FakeProvider, Received

__all__ = ["FakeProvider", "Received"]
