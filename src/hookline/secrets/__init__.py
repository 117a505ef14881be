"""Secrets: which names are secret. How secrets look is in `shapes`, how a text is rid of both in `text`.

Three functions read the names, by the cost of a mistake:

- A variable's value (`secrets_in`) is masked wherever that very value stands. One word in the name is enough.
- A field of a record (`is_secret`) is masked by its name alone, so a field that only describes a secret is let
  through: its name, its type, a count of tokens.
- A field that an agent works with (`is_secret_to_agent`) must stay readable also where it says where a secret is
  kept: an agent that edits `PASSWORD_FILE` needs the path.

The journal, the terminal, the reasons of a refusal and the guard `mask_secrets` hide the same in a text: `without_secrets`.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from hookline.engine.stdlib import lazy_pattern

HIDDEN = "***"
"""Stands where a secret was."""

PROVIDER_KEYS = frozenset(
    {
        *("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "AZURE_OPENAI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
        *("CODEX_API_KEY", "COHERE_API_KEY", "DEEPSEEK_API_KEY", "FIREWORKS_API_KEY", "GEMINI_API_KEY"),
        *("GOOGLE_API_KEY", "GROQ_API_KEY", "LITELLM_API_KEY", "MISTRAL_API_KEY", "OLLAMA_API_KEY"),
        *("OPENAI_API_KEY", "OPENROUTER_API_KEY", "PERPLEXITY_API_KEY", "TOGETHER_API_KEY", "VLLM_API_KEY"),
        "XAI_API_KEY",
    }
)
"""The variables with the keys of model providers."""
TRACKER_KEYS = frozenset({"GH_TOKEN", "GITHUB_TOKEN", "GITLAB_TOKEN", "JIRA_API_TOKEN", "LINEAR_API_KEY"})
"""The variables with the secrets of trackers."""
INHERIT = "inherit"
"""The word that hands all of them on."""
_SHORTEST_VALUE = 6

_KINDS_OF_KEY = ("access", "account", "api", "auth", "encryption", "master", "private", "service", "signing")
# Each alternative begins with a plain letter: patterns are searched much faster so.
KEYS = "|".join(rf"{kind}[_ .-]?key" for kind in _KINDS_OF_KEY)
WORDS = (
    # Not a tokenizer, not a secretary, not the path of a file with passwords.
    r"token(?!i[sz])|secret(?!ar)|passw|passphrase|pgpass(?!file)|credential|authorization|cookie"
    rf"|{KEYS}"
)
"""The words that make a name secret: the text of a pattern for lower case."""

PLAIN_WORDS = ("token", "secret", "pass", "credential", "authorization", "cookie", "key")
"""At least one of these is in every text that `WORDS` fits: a plain search is much faster than a pattern."""

_WORDS = lazy_pattern(WORDS)
_ABOUT = lazy_pattern(
    r"(?:token|secret|passw(?:or)?d|credential|cookie|key)s?"
    r"(?:names?|(?:key)?refs?|types?|ur[li]s?|endpoints?|counts?|limits?|usage|budgets?|polic(?:y|ies))$"
    r"|^apikeysecret(?:key)?$|^imagepullsecrets?$"
)
_POINTERS = lazy_pattern(
    r"(?:names?|files?|paths?|dir|ur[li]s?|types?|counts?|limits?|lengths?|size|usage|used|budget|ids?|refs?|"
    r"polic(?:y|ies)|expiry|expires?(?:_?(?:in|at))?|ttl|env|fields?|headers?|endpoints?|scopes?|manager|store|stdin|prompt)$"
)
_BETWEEN_WORDS = lazy_pattern("[^a-z0-9]+")
_LONGEST = 120


def secret_words(name: str) -> set[str]:
    """The words in a name that make it secret."""
    low = name.lower()
    if low == "auth":
        return {low}
    if not any(word in low for word in PLAIN_WORDS):
        return set()
    return set(_WORDS.findall(low))


def secrets_in(*environments: Mapping[str, object]) -> list[str]:
    """The texts under secret names in these environments."""
    pairs = (pair for environ in environments for pair in environ.items())
    return [value for name, value in pairs if isinstance(value, str) and secret_words(name)]


def withheld_from(environ: Mapping[str, str], named: str | Iterable[str] = ()) -> list[str]:
    """The keys in an environment that tools and hooks are not handed; `named` are those that are, or `inherit`."""
    if named == INHERIT:
        return []
    return sorted((PROVIDER_KEYS | TRACKER_KEYS).difference(named).intersection(environ))


def handed_on(environ: Mapping[str, str], named: str | Iterable[str] = ()) -> dict[str, str]:
    """An environment for tools and hooks: without the keys of providers and trackers, but for those that are named."""
    kept = environ if named == INHERIT else only(environ, named)
    return {**without(environ, withheld_from(environ, named)), **kept}


def only(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """An environment of these variables, as far as they are set."""
    return {name: environ[name] for name in names if name in environ}


def without(environ: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    """An environment without these variables, and without others that hold one of their values."""
    left_out = frozenset(names)
    values = {environ[name] for name in left_out if len(environ.get(name, "")) >= _SHORTEST_VALUE}
    return {name: value for name, value in environ.items() if name not in left_out and value not in values}


def is_secret(name: str) -> bool:
    """True if a field of this name holds a secret; False for one that only describes a secret (`token_type`)."""
    if len(name) > _LONGEST or not secret_words(name):
        return False
    return _ABOUT.search(_BETWEEN_WORDS.sub("", name.lower())) is None


@lru_cache(maxsize=2048)
def is_secret_to_agent(name: str) -> bool:
    """True if a field of this name holds a secret, and does not merely say where one is kept (`token_file`)."""
    return is_secret(name) and _POINTERS.search(name.strip().lower()) is None


def is_plain(value: str) -> bool:
    """True if a value under a secret name is none: a reference, a placeholder, a version, a word such as `none`."""
    return not value.strip() or _REFERENCE.fullmatch(value) is not None or value.lower() in _PLAIN_VALUES


_REFERENCE = lazy_pattern(
    r"\$\w+|\$\{\w+[^}]*\}?|\$\(.*|`.*|\$?\{\{.*|\{[\w.]*\}?|<[\w .-]*>?|%\(.*|%[sdr]|\*+|//.*"
    r"|(?:process\.env|os\.environ|os\.getenv|env|secrets|vars|self|this)[.\[(].*"
    r"|[~^<>=v]{0,2}\d{1,4}(?:\.\d{1,6}){1,3}(?:-[a-z0-9.]{1,20})?",
    re.DOTALL,
)
_PLAIN_VALUES = frozenset(
    [
        "none",
        "null",
        "nil",
        "undefined",
        "true",
        "false",
        "yes",
        "no",
        "bearer",
        "basic",
        "digest",
        "negotiate",
        "inherit",
        "required",
        "optional",
        "redacted",
        "hidden",
        "masked",
        "str",
        "string",
        "text",
        "bytes",
        "any",
        "object",
        "int",
        "integer",
        "bool",
        "boolean",
        "char",
        "varchar",
        "password",
        "token",
        "secret",
        "empty",
        "missing",
    ]
)
