"""Models by the name of their provider: where the key and the address come from, and what is said if not."""

import subprocess
import sys

import pytest

from hookline.agent.models import COMPATIBLE, PROVIDERS, Model, model_named
from hookline.errors import FileError, UsageError


@pytest.fixture
async def named():
    """As model_named, and the models are closed when the test ends."""
    models = []

    def made(*arguments, **options):
        models.append(model_named(*arguments, **options))
        return models[-1]

    yield made
    for model in models:
        await model.close()


@pytest.mark.parametrize("name", sorted(COMPATIBLE))
async def test_a_compatible_provider_is_asked_at_its_address_with_its_key(name, named, serve, ask):
    fake = serve({"text": "Yes.", "usage": {"input_tokens": 1, "output_tokens": 2}})
    key = COMPATIBLE[name].key
    model = named(
        name, "some-model", environ={key: "secret", f"{name.upper()}_BASE_URL": f"{fake.url}/other/v9"}
    )
    _, reply = await ask(model, max_output_tokens=9)
    [received] = fake.requests
    assert (model.provider, model.name, reply.text) == (name, "some-model", "Yes.")
    assert received.path == "/other/v9/chat/completions"
    assert received.headers["authorization"] == "Bearer secret"
    assert received.body["max_completion_tokens" if name == "openai" else "max_tokens"] == 9
    assert ("stream_options" in received.body) == (name != "mistral")


async def test_anthropic_is_asked_at_its_address_with_its_key(named, serve, ask):
    fake = serve("Yes.", "Yes.")
    address = {"ANTHROPIC_BASE_URL": fake.anthropic}
    await ask(named("anthropic", "some-model", environ={**address, "ANTHROPIC_API_KEY": "secret"}))
    await ask(named("anthropic", "some-model", environ={**address, "ANTHROPIC_AUTH_TOKEN": "token"}))
    with_key, with_token = (request.headers for request in fake.requests)
    assert (with_key["authorization"], with_token["authorization"]) == ("Bearer secret", "Bearer token")


async def test_the_address_in_the_argument_comes_first(named, serve, ask):
    fake = serve("Yes.")
    environ = {"GROQ_API_KEY": "k", "GROQ_BASE_URL": "http://127.0.0.1:1/nobody"}
    _, reply = await ask(named("groq", "some-model", base_url=fake.openai, environ=environ))
    assert reply.text == "Yes."


def test_without_either_the_address_is_the_providers_own(named):
    model = named("xai", "grok", environ={"XAI_API_KEY": "k", "OPENAI_BASE_URL": "http://127.0.0.1:1"})
    assert str(model._client.base_url) == "https://api.x.ai/v1/"
    model = named("anthropic", "claude", environ={"ANTHROPIC_API_KEY": "k"})
    assert str(model._client.base_url).rstrip("/") == "https://api.anthropic.com"


def test_the_name_of_a_provider_may_be_written_as_one_likes(named):
    model = named("OpenAI", "some-model", environ={"OPENAI_API_KEY": "k"})
    assert isinstance(model, Model)
    assert model.provider == "openai"


@pytest.mark.parametrize("name", ["ollama", "vllm", "litellm"])
async def test_a_local_server_needs_no_key(name, named, serve, ask):
    fake = serve("Yes.")
    _, reply = await ask(named(name, "some-model", base_url=fake.openai, environ={}))
    assert reply.text == "Yes."


@pytest.mark.parametrize("name", sorted(set(PROVIDERS) - {"ollama", "vllm", "litellm", "scripted"}))
def test_a_missing_key_is_told_with_the_name_of_the_variable(name, monkeypatch):
    variable = COMPATIBLE[name].key if name in COMPATIBLE else "ANTHROPIC_API_KEY"
    # What the process has must not stand in for what the caller gave.
    monkeypatch.setenv(variable, "of-the-process")
    with pytest.raises(UsageError, match=f"provider '{name}' has no key: set {variable}"):
        model_named(name, "some-model", environ={variable: ""})


def test_an_unknown_provider_is_told_with_those_there_are():
    with pytest.raises(UsageError, match=r"unknown provider 'antropic'; did you mean anthropic\?"):
        model_named("antropic", "some-model", environ={})
    with pytest.raises(UsageError, match=r"unknown provider 'zzz'; known: .*groq.*scripted"):
        model_named("zzz", "some-model", environ={})


def test_an_empty_model_is_told():
    with pytest.raises(UsageError, match="the name of the model is empty"):
        model_named("openai", "", environ={"OPENAI_API_KEY": "k"})


async def test_the_model_of_a_scripted_provider_is_a_file(tmp_path, ask):
    file = tmp_path / "script.yaml"
    file.write_text("- Hello.\n")
    _, reply = await ask(model_named("scripted", str(file), environ={}))
    assert reply.text == "Hello."
    with pytest.raises(FileError, match=r"absent\.yaml: there is no such file"):
        model_named("scripted", str(tmp_path / "absent.yaml"), environ={})


@pytest.mark.parametrize(
    ("provider", "package"), [("openai", "openai"), ("groq", "openai"), ("anthropic", "anthropic")]
)
def test_a_missing_package_is_told_with_how_to_get_it(provider, package):
    code = f"""
import sys
sys.modules[{package!r}] = None
from hookline.agent.models import COMPATIBLE, model_named
from hookline.errors import UsageError
keys = {{"ANTHROPIC_API_KEY": "k"}} | {{known.key: "k" for known in COMPATIBLE.values()}}
try:
    model_named({provider!r}, "some-model", environ=keys)
except UsageError as exc:
    print(exc)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"pip install 'hookline[{package}]'" in done.stdout


def test_importing_the_models_loads_neither_client_nor_yaml():
    code = (
        "import sys, hookline.agent.models, hookline.agent.models.openai, hookline.agent.models.anthropic, "
        "hookline.agent.models.script; print(*sorted({'openai', 'anthropic', 'httpx2', 'yaml'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_a_second_model_does_not_read_the_certificates_again(name, named):
    def made():
        return named(name, "some-model", environ={"OPENAI_API_KEY": "k", "ANTHROPIC_API_KEY": "k"})

    first, second = made(), made()
    assert first._client is not second._client
    contexts = [model._client._client._transport._pool._ssl_context for model in (first, second)]
    assert contexts[0] is contexts[1]
