"""Models that talk to a fake provider over real HTTP, with waits between tries that are noted and not waited."""

import os

import pytest

from hookline.agent.models import Reply, Request
from hookline.agent.models.anthropic import Anthropic
from hookline.agent.models.openai import OpenAI
from tests.fakes import FakeProvider

MAKE = {
    "openai": lambda fake, **options: OpenAI("some-model", api_key="k", base_url=fake.openai, **options),
    "anthropic": lambda fake, **options: Anthropic(
        "some-model", provider="anthropic", api_key="k", base_url=fake.anthropic, **options
    ),
}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch):
    for name in list(os.environ):
        if name.upper().endswith(("_PROXY", "_API_KEY", "_BASE_URL", "_AUTH_TOKEN")) or "OPENAI" in name:
            monkeypatch.delenv(name)


@pytest.fixture
def serve():
    """Makes a fake provider that is closed when the test ends."""
    open_ones = []

    def served(*turns, **options):
        open_ones.append(FakeProvider(turns, **options))
        return open_ones[-1]

    yield served
    for fake in open_ones:
        fake.close()


@pytest.fixture
def pauses():
    """The seconds that were waited between tries."""
    return []


@pytest.fixture
async def connect(pauses):
    """Makes a model of the named kind that talks to the fake provider."""
    models = []

    async def pause(seconds):
        pauses.append(seconds)

    def connected(kind, fake, **options):
        models.append(MAKE[kind](fake, pause=pause, **options))
        return models[-1]

    yield connected
    for model in models:
        await model.close()


@pytest.fixture
def ask():
    """The deltas and the reply for one request."""

    async def asked(model, *messages, **rest):
        told = messages or ({"role": "user", "content": "Hello?"},)
        deltas, reply = [], None
        async for part in model.stream(Request(messages=tuple(told), **rest)):
            assert reply is None, "the reply comes last, and once"
            if isinstance(part, Reply):
                reply = part
            else:
                deltas.append(part.text)
        return deltas, reply

    return asked
