"""How the keys and tokens of well-known services look.

Each row begins with plain texts, one of which is in every secret of its kind: they are looked for first, and only the
pattern of a row that may fit is compiled. Every pattern is bounded or begins at a fixed text, so that the time is
proportional to the length of the text, and takes nothing at which a command could begin (`;`, `&`, `|`, a space).
"""

import re
from collections.abc import Iterable

from hookline.engine.stdlib import lazy_pattern
from hookline.secrets import HIDDEN


def _either(words: Iterable[str]) -> str:
    return "|".join(map(re.escape, words))


_DIGIT = r"(?=[A-Za-z_=+/-]{0,60}\d)"  # identifiers that begin like a token have no digit
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"

# The texts that a token begins with, and the pattern of its rest with the least number of characters.
_BEGINNING = (
    ("sk-", r"(?:ant|proj|svcacct|admin|or|lf)-[\w-]{16,}"),
    ("sk-", r"(?=[A-Za-z]{0,60}\d)[A-Za-z0-9]{20,}"),
    ("sk_live_ sk_test_ rk_live_ rk_test_", r"[A-Za-z0-9]{16,}"),
    ("whsec_", r"[A-Za-z0-9+/=]{16,}"),
    ("ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{20,}"),
    ("github_pat_", r"\w{20,}"),
    ("glpat- glptt- gldt- glrt- glsoat- glcbt- glft- glimt- glagent- gloas- GR1348941", r"[\w-]{16,}"),
    # A key id, and the key itself where that is written beside it.
    (
        "AKIA ASIA ABIA ACCA",
        r"[A-Z0-9]{16}(?![A-Za-z0-9])(?:[ \t:,\"'\\]{1,4}[A-Za-z0-9+][A-Za-z0-9/+]{39}(?![A-Za-z0-9/+=]))?",
    ),
    ("xoxa- xoxb- xoxc- xoxe- xoxe.xoxb- xoxe.xoxp- xoxo- xoxp- xoxr- xoxs-", r"[\w-]{10,}"),
    ("xapp-", r"\d-[\w-]{10,}"),
    ("AIza", r"[\w-]{35}"),
    ("ya29.", r"[\w-]{20,}"),
    ("GOCSPX-", r"[\w-]{28}"),
    ("1//0", r"[\w-]{40,}"),
    ("npm_", r"[A-Za-z0-9]{36}"),
    ("pypi-", r"[\w-]{50,}"),
    ("rubygems_", r"[a-f0-9]{48}"),
    ("CLOJARS_", r"[a-z0-9]{60}"),
    ("cio", r"(?=[A-Za-z]{0,30}\d)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("oy2", r"[a-z0-9]{43}(?![A-Za-z0-9])"),
    ("hf_ api_org_", r"[A-Za-z0-9]{30,}"),
    ("gsk_", r"[A-Za-z0-9]{40,}"),
    ("xai-", r"[A-Za-z0-9]{40,}"),
    ("r8_", r"[A-Za-z0-9]{36,}"),
    ("tgp_v1_", r"[\w-]{40,}"),
    ("lsv2_pt_ lsv2_sk_", r"[a-f0-9]{32}_[a-f0-9]{10}"),
    ("pcsk_", _DIGIT + r"\w{40,}"),
    ("tvly-", _DIGIT + r"[\w-]{24,}"),
    ("sk_", r"[a-f0-9]{48}(?![A-Za-z0-9])"),
    ("lin_api_ lin_oauth_", r"[A-Za-z0-9]{30,}"),
    ("secret_", r"(?=[A-Za-z]{0,42}\d)[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    ("doo_v1_ dop_v1_ dor_v1_", r"[a-f0-9]{64}"),
    ("shpat_ shpca_ shppa_ shpss_ shpua_", r"[a-fA-F0-9]{32}"),
    ("dapi", r"[a-f0-9]{32}(?:-\d)?(?![A-Za-z0-9])"),
    ("SG.", r"[\w-]{16,64}\.[\w-]{16,}"),
    ("SK", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("key- pubkey-", r"[0-9a-f]{32}(?![A-Za-z0-9])"),
    ("xkeysib- xsmtpsib-", r"[a-f0-9]{64}-\w{16}"),
    ("sq0atp- sq0csp-", r"[\w-]{22,}"),
    ("EAA", r"[\w-]{57,}"),
    # Docker, Vault, Grafana, Sentry, Notion, Figma, Perplexity, Atlassian, Heroku, Fly, PlanetScale, Supabase, Netlify,
    # Vercel, Render, Cloudflare, CircleCI, Contentful, Prefect, Typeform, Dropbox, 1Password, Tailscale.
    (
        "dckr_oat_ dckr_pat_ hvb. hvr. hvs. glc_ glsa_ sntrys_ sntryu_ ntn_ figd_ pplx- ATATT3 ATCTT3 ATBB HRKU-"
        " FlyV1 fm2_ fo1_ pscale_tkn_ pscale_pw_ pscale_oauth_ sbp_ sb_secret_ nfp_ vcp_ vca_ rnd_ cfut_ cfat_ CCIPAT_ CCIPRJ_"
        " CFPAT- pnu_ tfp_ sl.u. ops_eyJ tskey-auth- tskey-api- tskey-client- duffel_live_ duffel_test_",
        _DIGIT + r"[\w=+/-]{20,}",
    ),
    ("NRAK- NRJS- NRII- NRAA-", r"[A-Za-z0-9-]{19,}"),
    ("dt0c01. dt0s01. dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    ("dp.pt. dp.st. dp.ct. dp.sa. dp.scim. dp.audit.", r"(?:[\w-]{2,35}\.)?[A-Za-z0-9]{40,44}"),
    ("pul-", r"[a-f0-9]{40}"),
    ("PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    ("pat", r"[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    ("pat-na1- pat-eu1-", _UUID),
    ("access-sandbox- access-development- access-production-", _UUID),
    ("shippo_live_ shippo_test_", r"[a-f0-9]{40}"),
    ("bkua_", r"[a-f0-9]{40}"),
    ("sqp_ sqa_ squ_", r"[a-f0-9]{40}"),
    ("AKCp", r"[A-Za-z0-9]{60,}"),
    ("cmVmdGtu", r"[A-Za-z0-9]{50,}"),
    ("LTAI", r"(?=[A-Za-z]{0,20}\d)[A-Za-z0-9]{12,20}(?![A-Za-z0-9])"),
    ("AKID", r"(?=[A-Za-z]{0,32}\d)[A-Za-z0-9]{32}(?![A-Za-z0-9])"),
    ("AQVN", r"[\w-]{35,38}(?![\w-])"),
    ("sha256~", r"[\w-]{43}"),
    ("s.", r"(?=[A-Za-z]{0,23}\d)(?=[a-z0-9]{0,23}[A-Z])[A-Za-z0-9]{24}(?![A-Za-z0-9_.])"),
    ("AccountKey= SharedAccessKey=", r"[A-Za-z0-9+/]{40,}={0,2}"),
    ("AGE-SECRET-KEY-1", r"[0-9A-Z]{50,}"),
    ("eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}(?:\.[\w-]*)?"),
    # A private key in base64, as in a kubeconfig; a certificate is none.
    ("LS0tLS1CRUdJTi", r"(?!BDRVJU|BQVUJM|BUUlVT)[A-Za-z0-9+/=]{24,}"),
)
# Texts that are in a secret, and its pattern.
_HOLDING = (
    ("hooks.slack.com/", r"(?<=hooks\.slack\.com/)(?:services|workflows|triggers)/[\w/]{20,}"),
    ("/api/webhooks/", r"(?<=/api/webhooks/)\d{15,22}/[\w-]{40,}"),
    (".webhook.office.com/", r"(?<=\.webhook\.office\.com/)webhookb2/[\w@/-]{40,}"),
    (":AA", r"(?<![\w-])\d{8,10}:AA[\w-]{33}(?![\w-])"),
    (".atlasv1.", r"(?<![\w.])[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}"),
    ("7Q~ 8Q~", r"(?<![\w~.-])[\w~.-]{3}[78]Q~[\w~.-]{31,34}"),
    ("AZDO", r"(?<![A-Za-z0-9])[A-Za-z0-9]{70,80}AZDO[A-Za-z0-9]{4}(?![A-Za-z0-9])"),
    ("sig=", r"(?<=[?&;]sig=)[\w%+/=-]{30,}"),
    ("X-Amz-Signature= X-Goog-Signature=", r"(?<=-Signature=)[0-9a-f]{64,1024}"),
    ("-us1 -us2 -us3 -us4 -us5 -us6 -us7 -us8 -us9", r"(?<![0-9A-Za-z])[0-9a-f]{32}-us\d{1,2}(?!\w)"),
    (
        "MT Mj Mz MD NT ND Nj Nz OD OT Ng",
        r"(?<![\w.-])(?=[A-Za-z_-]{0,26}\d)[MNO][A-Za-z\d_-]{22,27}\.[\w-]{6}\.(?=[A-Za-z_-]{0,37}\d)[\w-]{27,38}(?![\w-])",
    ),
)
_SHAPES = (
    *(
        (words.split(), lazy_pattern(rf"(?<![A-Za-z0-9_-])(?:{_either(words.split())}){rest}"))
        for words, rest in _BEGINNING
    ),
    *((words.split(), lazy_pattern(pattern)) for words, pattern in _HOLDING),
)
# Up to where a command could follow: what is left of such a password would have been written otherwise in a URL.
_IN_URL = lazy_pattern(
    r"(://[^\s/:@\"'<>;&|`]{0,100}:)(?![$*{<])[^\s/@\"'<>;&|`]{1,256}(?=(?:[;&|`][^\s/@\"'<>]{0,256})?@)"
)
_KEY_BEGINS = lazy_pattern(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS = lazy_pattern(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
# Lines of base64 and of a head such as `Proc-Type: 4,ENCRYPTED`, also quoted, or in a patch; a line may end in \n as JSON
# has it, at each depth, or in a space before more base64.
_BREAK = (
    r"(?:[ \t\"',]{0,8}(?:\r?\n|\\{1,8}[rn])[ \t\"',>]{0,40}(?:-(?!-))?|[ ](?=[A-Za-z0-9+/=]{16}|-----END))"
)
# A line of small letters alone would be a command.
_KEY_LINE = r"(?![a-z0-9/]++(?![A-Za-z0-9+/=]))[A-Za-z0-9+/=]++"
_KEY_END = rf"(?:(?<=[A-Za-z0-9+/=]{{16}})|(?={_BREAK}|\Z|-----END|[\"'\\]))"
_KEY_BODY = lazy_pattern(
    rf"{_BREAK}*+(?:[A-Za-z-]{{1,20}}: [\w,.()@ -]{{0,80}}+{_BREAK}++)*+(?:{_KEY_LINE}{_KEY_END}{_BREAK}*+)*+"
)

_HINTS = (*dict.fromkeys(word for words, _ in _SHAPES for word in words), "PRIVATE KEY")
_USER_IN_URL = r"://[^\s/\"]*:[^\s/\"]*@"
_URL = lazy_pattern(_USER_IN_URL)


def may_hold_shape(text: str) -> bool:
    """True if a secret of a known shape may be in a text; False is certain.

    Plain texts are looked for, because to compile a pattern of them takes longer than to read one event.
    """
    for hint in _HINTS:
        if hint in text:
            return True
    return "://" in text and "@" in text and _URL.search(text) is not None


def shape_hints() -> str:
    """The pattern of what `may_hold_shape` looks for, for who reads long texts."""
    return f"{_either(_HINTS)}|{_USER_IN_URL}"


def without_shapes(text: str) -> str:
    """The text without tokens, private keys and passwords in URLs; `HIDDEN` stands in their place."""
    if not may_hold_shape(text):
        return text
    text = _without_private_keys(text)
    patterns = [pattern for words, pattern in _SHAPES if any(word in text for word in words)]
    before = None
    while text != before:
        # A secret directly after another begins a word only once that one is masked.
        before = text
        for pattern in patterns:
            text = pattern.sub(HIDDEN, text)
    return _IN_URL.sub(rf"\g<1>{HIDDEN}", text)


def _without_private_keys(text: str) -> str:
    begins = _KEY_BEGINS.search(text)
    parts: list[str] = []
    done = 0
    while begins is not None:
        # A key that is cut off is masked up to its last character.
        body = _KEY_BODY.match(text, begins.end())
        stop = body.end() if body else begins.end()
        whole = _KEY_ENDS.match(text, stop) is not None
        parts.append(text[done : begins.end()])
        done = begins.end()
        if text[done:stop].strip() or whole:
            parts.append(HIDDEN)
            done = stop
        begins = _KEY_BEGINS.search(text, done)
    parts.append(text[done:])
    return "".join(parts)
