"""Models by the name of their provider, as written in a file or on the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from hookline.agent.models import Model
from hookline.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatible:
    """A provider with OpenAI's API, and where it differs."""

    base_url: str
    key: str
    needs_key: bool = True
    max_tokens_key: str = "max_tokens"
    asks_usage: bool = True


COMPATIBLE = {
    "deepseek": Compatible(base_url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "fireworks": Compatible(base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_API_KEY"),
    "gemini": Compatible(
        base_url="https://generativelanguage.googleapis.com/v1beta/openai", key="GEMINI_API_KEY"
    ),
    "groq": Compatible(base_url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    "litellm": Compatible(base_url="http://localhost:4000/v1", key="LITELLM_API_KEY", needs_key=False),
    # Refuses stream_options, and sends the usage anyway.
    "mistral": Compatible(base_url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY", asks_usage=False),
    "ollama": Compatible(base_url="http://localhost:11434/v1", key="OLLAMA_API_KEY", needs_key=False),
    "openai": Compatible(
        base_url="https://api.openai.com/v1", key="OPENAI_API_KEY", max_tokens_key="max_completion_tokens"
    ),
    "openrouter": Compatible(base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "together": Compatible(base_url="https://api.together.xyz/v1", key="TOGETHER_API_KEY"),
    "vllm": Compatible(base_url="http://localhost:8000/v1", key="VLLM_API_KEY", needs_key=False),
    "xai": Compatible(base_url="https://api.x.ai/v1", key="XAI_API_KEY"),
}

ANTHROPIC_URL = "https://api.anthropic.com"

PROVIDERS = tuple(sorted([*COMPATIBLE, "anthropic", "scripted"]))


def model_named(
    provider: str, model: str, *, base_url: str | None = None, environ: Mapping[str, str]
) -> Model:
    """The model; its key comes from `environ`, its URL from the argument, `<NAME>_BASE_URL` or the table above.

    For the provider `scripted` the model is the path of a script.
    """
    name = provider.lower()
    if name not in PROVIDERS:
        near = get_close_matches(name, PROVIDERS, n=1)
        hint = f", did you mean {near[0]!r}?" if near else ";"
        raise UsageError(f"unknown provider {provider!r}{hint} known: {', '.join(PROVIDERS)}")
    if not model:
        raise UsageError(f"provider {name!r}: the name of the model is empty")
    if name == "scripted":
        from hookline.agent.models.scripted import Scripted

        return Scripted.of_file(model)
    url = base_url or environ.get(f"{name.upper()}_BASE_URL") or None
    return _anthropic(model, url, environ) if name == "anthropic" else _compatible(name, model, url, environ)


def _anthropic(model: str, url: str | None, environ: Mapping[str, str]) -> Model:
    from hookline.agent.models.anthropic import Anthropic

    key = environ.get("ANTHROPIC_API_KEY") or None
    token = environ.get("ANTHROPIC_AUTH_TOKEN") or None
    if not key and not token:
        raise UsageError("provider 'anthropic' has no key: set ANTHROPIC_API_KEY (or ANTHROPIC_AUTH_TOKEN)")
    return Anthropic(model, api_key=key, auth_token=None if key else token, base_url=url or ANTHROPIC_URL)


def _compatible(name: str, model: str, url: str | None, environ: Mapping[str, str]) -> Model:
    from hookline.agent.models.openai import OpenAI

    known = COMPATIBLE[name]
    key = environ.get(known.key)
    if not key and known.needs_key:
        raise UsageError(f"provider {name!r} has no key: set {known.key}")
    return OpenAI(
        model,
        provider=name,
        # The client does not start without one, and a local server does not look at it.
        api_key=key or "none",
        base_url=url or known.base_url,
        max_tokens_key=known.max_tokens_key,
        asks_usage=known.asks_usage,
    )
