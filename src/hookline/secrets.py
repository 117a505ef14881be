"""Secrets: which names are secret, and how the keys and tokens of well-known services look. The only list of both.

Three functions read the names, by the cost of a mistake:

- A variable's value (`secrets_in`) is masked wherever that very value stands. One word in the name is enough.
- A field of a record (`is_secret`) is masked by its name alone, so a field that only describes a secret is let
  through: its name, its type, a count of tokens.
- A field that an agent works with (`is_secret_to_agent`) must stay readable also where it says where a secret is
  kept: an agent that edits `PASSWORD_FILE` needs the path.

The journal, the terminal, the reasons of a refusal and the guard `mask_secrets` use the shapes. Every pattern of them is
bounded or begins at a fixed text, so that the time is proportional to the length of the text; each is compiled on first
use.
"""

import re
from collections.abc import Iterable, Mapping

from hookline.engine.stdlib import lazy_pattern

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
_KEYS = "|".join(rf"{kind}[_ .-]?key" for kind in _KINDS_OF_KEY)
WORDS = (
    # Not a tokenizer, not a secretary, not the path of a file with passwords.
    r"token(?!i[sz])|secret(?!ar)|passw|passphrase|pgpass(?!file)|credential|authorization|cookie"
    rf"|{_KEYS}"
)
"""The words that make a name secret: the text of a pattern for lower case."""

PLAIN_WORDS = ("token", "secret", "pass", "credential", "authorization", "cookie", "key")
"""At least one of these is in every text that `WORDS` fits: a plain search is much faster than a pattern."""

_WORDS = lazy_pattern(WORDS)
# A number behind a JSON key that ends in tokens, or in tokens_used, is a count.
_SOME_TOKEN = lazy_pattern(r'token(?!s?(?:_[a-z]{1,20}){0,2}":(?:[\d-]|null))')
_SOME_KEY = lazy_pattern(_KEYS)
_ABOUT = lazy_pattern(
    r"(?:token|secret|passw(?:or)?d|credential|cookie|key)s?"
    r"(?:names?|(?:key)?refs?|types?|ur[li]s?|endpoints?|counts?|limits?|usage|budgets?|polic(?:y|ies))$"
    r"|^apikeysecret(?:key)?$|^imagepullsecrets?$"
)
_POINTERS = lazy_pattern(
    r"(?:names?|files?|paths?|dir|ur[li]s?|types?|counts?|limits?|lengths?|size|usage|used|budget|ids?|refs?|"
    r"polic(?:y|ies)|expiry|expires?(?:_?(?:in|at))?|ttl|env|fields?|headers?|endpoints?|scopes?|manager|store)$"
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


def is_secret_to_agent(name: str) -> bool:
    """True if a field of this name holds a secret, and does not merely say where one is kept (`token_file`)."""
    return is_secret(name) and _POINTERS.search(name.strip().lower()) is None


def may_hold_name(text: str) -> bool:
    """True if a secret name may stand in a JSON text; False is certain."""
    low = text.lower()
    # Plain words first, for they are found much faster than patterns.
    if "secret" in low or "credential" in low or "cookie" in low:
        return True
    if "pass" in low and ("passw" in low or "passphrase" in low or "pgpass" in low):
        return True
    if "bearer" in low or ("auth" in low and ("authorization" in low or '"auth"' in low)):
        return True
    if "token" in low and _SOME_TOKEN.search(low) is not None:
        return True
    return "key" in low and _SOME_KEY.search(low) is not None


def _either(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, words))


HIDDEN = "***"
"""Stands where a secret was."""

# The texts that a token begins with, and the pattern of its rest with the least number of characters.
_TOKENS = (
    ("sk-", r"(?:ant|proj|svcacct|admin|or|lf)-[\w-]{16,}"),
    ("sk-", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}"),
    ("sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}"),
    ("whsec_", r"[A-Za-z0-9+/=]{16,}"),
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{20,}"),
    ("github_pat_", r"\w{20,}"),
    ("glpat- glptt- gldt- glrt- glsoat-", r"[\w-]{16,}"),
    # A key id, and the key itself where that is written beside it.
    (
        "AKIA ASIA ABIA ACCA",
        r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[\s:,;|\"'\\]{1,4}[A-Za-z0-9/+]{40}(?![A-Za-z0-9/+=]))?",
    ),
    ("xoxa- xoxb- xoxc- xoxe- xoxo- xoxp- xoxr- xoxs-", r"[\w-]{10,}"),
    ("xapp-", r"\d-[\w-]{10,}"),
    ("AIza", r"[\w-]{35}"),
    ("ya29.", r"[\w-]{20,}"),
    ("npm_", r"[A-Za-z0-9]{36}"),
    ("pypi-", r"[\w-]{50,}"),
    ("hf_", r"[A-Za-z0-9]{30,}"),
    ("gsk_", r"[A-Za-z0-9]{40,}"),
    ("xai-", r"[A-Za-z0-9]{40,}"),
    ("r8_", r"[A-Za-z0-9]{36,}"),
    ("lin_api_", r"[A-Za-z0-9]{30,}"),
    ("doo_v1_ dop_v1_ dor_v1_", r"[a-f0-9]{64}"),
    ("shpat_ shpca_ shppa_ shpss_", r"[a-fA-F0-9]{32}"),
    ("dapi", r"[a-f0-9]{32}(?![A-Za-z0-9])"),
    ("SG.", r"[\w-]{16,64}\.[\w-]{16,}"),
    # Docker, Vault, Grafana, Sentry, Notion, Figma, Perplexity and Atlassian; identifiers that begin so have no digit.
    (
        "dckr_oat_ dckr_pat_ hvb. hvs. glc_ glsa_ sntrys_ sntryu_ ntn_ figd_ pplx- ATATT3",
        r"(?=[A-Za-z_=+/-]{0,60}\d)[\w=+/-]{24,}",
    ),
    ("AccountKey=", r"[A-Za-z0-9+/]{80,}={0,2}"),
    ("AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}"),
    ("eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
)
_TOKEN = lazy_pattern(
    rf"(?<![A-Za-z0-9_-])(?:{'|'.join(f'(?:{_either(begins.split())}){rest}' for begins, rest in _TOKENS)})"
    r"|(?<=hooks\.slack\.com/services/)[\w/]{20,}"
    r"|(?<![\w-])\d{8,10}:AA[\w-]{33}(?![\w-])"
)
_IN_URL = lazy_pattern(r"(://[^\s/:@\"'<>]{0,100}:)(?![$*{<])[^\s/@\"'<>]{1,256}@")
_KEY_BEGINS = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = lazy_pattern(r"(?:[A-Za-z0-9+/=\s\\:,]|-(?!--))*")

_BEGINNINGS = (
    *dict.fromkeys(word for begins, _ in _TOKENS for word in begins.split()),
    "hooks.slack.com/services/",
    ":AA",
    "PRIVATE KEY",
)
_USER_IN_URL = r"://[^\s/\"]*:[^\s/\"]*@"
_URL = lazy_pattern(_USER_IN_URL)


def may_hold_shape(text: str) -> bool:
    """True if a secret of a known shape may begin in a text; False is certain.

    Plain texts are looked for, because to compile a pattern of them takes longer than to read one event.
    """
    for begins in _BEGINNINGS:
        if begins in text:
            return True
    return "://" in text and "@" in text and _URL.search(text) is not None


def shape_hints() -> str:
    """The pattern of what `may_hold_shape` looks for, for who reads long texts."""
    return f"{_either(_BEGINNINGS)}|{_USER_IN_URL}"


def without_shapes(text: str) -> str:
    """The text without tokens, private keys and passwords in URLs; `HIDDEN` stands in their place."""
    if not may_hold_shape(text):
        return text
    text = _without_private_keys(text)
    found = 1
    while found:
        # A secret directly after another begins a word only once that one is masked.
        text, found = _TOKEN.subn(HIDDEN, text)
    return _IN_URL.sub(rf"\g<1>{HIDDEN}@", text)


def _without_private_keys(text: str) -> str:
    begins = _KEY_BEGINS.search(text)
    if begins is None:
        return text
    parts: list[str] = []
    done = 0
    closed = True
    while begins is not None:
        ends = _KEY_ENDS.search(text, begins.end()) if closed else None
        closed = ends is not None
        body = _KEY_BODY.match(text, begins.end())
        # A key that is cut off is masked up to its last character.
        stop = ends.start() if ends else body.end() if body else begins.end()
        parts.append(text[done : begins.end()])
        if text[begins.end() : stop].strip() or ends:
            parts.append(HIDDEN)
            done = stop
        else:
            done = begins.end()
        begins = _KEY_BEGINS.search(text, stop)
    parts.append(text[done:])
    return "".join(parts)
