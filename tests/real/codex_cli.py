"""The real Codex, installed once, and a home for it that no other test shares. Made to be imported by tests."""

import os
import shlex
import shutil
import tempfile
from pathlib import Path

import pytest

from tests.real.clients import CACHE, CLIENTS


@pytest.fixture(scope="session")
def codex():
    """The program."""
    return CLIENTS["codex"].installed()


@pytest.fixture
def codex_home():
    """A CODEX_HOME of this test alone. Below the system's temporary folder Codex would not set up its sandbox."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="codex-home-", dir=CACHE))
    yield folder
    shutil.rmtree(folder)


def configure(home, provider, more=""):
    """Let Codex ask a provider on loopback, with no account and no second try."""
    (home / "config.toml").write_text(
        f'model = "fake-model"\nmodel_provider = "fake"\n{more}\n'
        f'[model_providers.fake]\nname = "fake"\nbase_url = "{provider.openai}"\nwire_api = "responses"\n'
        "request_max_retries = 0\nstream_max_retries = 0\n"
    )


def started(codex, *before):
    """The command of its app server for a login shell, whose profile may set another PATH."""
    words = shlex.join([*map(str, before), str(codex), "app-server"])
    return f"PATH={shlex.quote(os.environ['PATH'])} exec {words}"


def shell(command, **usage):
    """What a model says to have a command run."""
    turn = {"tools": [{"name": "exec_command", "arguments": {"cmd": command, "yield_time_ms": 30_000}}]}
    return {**turn, "usage": usage} if usage else turn
