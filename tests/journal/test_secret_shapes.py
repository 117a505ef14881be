"""Secrets that only their shape gives away, with no guard: neither stored nor shown, and still given to the tool."""

import json

import pytest

from hookline.journal import masking
from hookline.journal.masking import Mask
from hookline.secrets.shapes import without_shapes
from tests.command import approve

A40 = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0dF3gH6/+x9"
BODY = A40[:36]
HEX = "0123456789abcdef" * 4
BEGINNINGS = (
    "sk_live_ sk_test_ rk_live_ rk_test_ whsec_ ghp_ gho_ ghu_ ghs_ ghr_ glpat- glptt- gldt- glrt- glsoat- xoxa- xoxb-"
    " xoxc- xoxe- xoxo- xoxp- xoxr- xoxs- xapp-1- ya29. gsk_ xai- r8_ lin_api_ doo_v1_ dop_v1_ dor_v1_"
)
BLOCK = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\n-----END RSA PRIVATE KEY-----"
# A text, and the part of it that must be gone.
SHAPES = {
    "GitHub": (f"ghp_{BODY}", BODY),
    "GitHub, fine-grained": (f"github_pat_11AAAAAAA0_{BODY}", BODY),
    "GitLab": (f"glpat-{BODY}", BODY),
    "Slack": (f"xoxb-{BODY}", BODY),
    "AWS": (f"AKIAIOSFODNN7EXAMPLE,{A40}", A40),
    "Google": (f"AIza{BODY[:35]}", BODY[:35]),
    "OpenAI": (f"sk-proj-{BODY}", BODY),
    "Anthropic": (f"sk-ant-api03-{BODY}", BODY),
    "Stripe": (f"rk_live_{BODY}", BODY),
    "npm": (f"npm_{BODY}", BODY),
    "PyPI": (f"pypi-{BODY}{BODY}", BODY),
    "Hugging Face": (f"hf_{BODY}", BODY),
    "Docker": (f"dckr_pat_{BODY}", BODY),
    "Vault": (f"hvs.{BODY}", BODY),
    "Grafana": (f"glsa_{BODY}_12345678", BODY),
    "Sentry": (f"sntrys_{BODY}", BODY),
    "Notion": (f"ntn_{BODY}", BODY),
    "Figma": (f"figd_{BODY}", BODY),
    "Perplexity": (f"pplx-{BODY}", BODY),
    "Atlassian": (f"ATATT3{BODY}", BODY),
    "Azure": (f"AccountKey={BODY}{BODY}{BODY}==", BODY),
    "JWT": (f"eyJhbGciOiJIUzI1NiJ9.eyJ{BODY}.{BODY}", BODY),
    "Telegram": (f"12345678:AA{BODY[:33]}", BODY[:33]),
    "Slack, a webhook": (f"https://hooks.slack.com/services/{BODY}", BODY),
    "Databricks": (f"dapi{HEX[:32]}", HEX[:32]),
    "Shopify": (f"shpss_{HEX[:32]}", HEX[:32]),
    "SendGrid": (f"SG.{BODY[:22]}.{BODY}", BODY),
    "age": (f"AGE-SECRET-KEY-1{HEX.upper()}", HEX.upper()),
    "private key": (BLOCK, BODY),
    "private key, cut off": (BLOCK.partition("\n-----END")[0], BODY),
    "URL": (f"postgres://me:{BODY}@db/x", BODY),
    "URL without a user": (f"redis://:{BODY}@db/x", BODY),
    "one directly after another": (f"npm_{BODY}npm_{BODY[::-1]}", BODY[::-1]),
    **{
        f"{begins}...": (begins + rest, rest)
        for begins, rest in {
            "sk-": BODY,
            **dict.fromkeys(("sk-svcacct-", "sk-admin-", "sk-or-", "sk-lf-", "sk_live_", "sk_test_"), BODY),
            **dict.fromkeys(
                ("whsec_", "gho_", "ghu_", "ghs_", "ghr_", "glptt-", "gldt-", "glrt-", "glsoat-"), BODY
            ),
            **dict.fromkeys((f"{word}IOSFODNN7EXAMPLE:" for word in ("ASIA", "ABIA", "ACCA")), A40),
            **dict.fromkeys((f"xox{letter}-" for letter in "aceoprs"), BODY),
            **dict.fromkeys(
                ("xapp-1-", "ya29.", "r8_", "lin_api_", "https://hooks.slack.com/services/"), BODY
            ),
            **dict.fromkeys(("gsk_", "xai-"), BODY + BODY[:8]),
            **dict.fromkeys(("doo_v1_", "dop_v1_", "dor_v1_"), "ab12" * 16),
            **dict.fromkeys(("shpat_", "shpca_", "shppa_", "shpss_", "dapi"), "ab12" * 8),
            "SG.": f"{BODY[:20]}.{BODY}",
            "AGE-SECRET-KEY-1": "QZ7" * 18,
        }.items()
    },
}
AGENT = f"""
from hookline import Agent, HookResult, Scripted, hook, tool

@tool
async def keep(text: str) -> str:
    open("kept", "a").write(text)
    return f"kept {{text}}"

@hook(inline=True)
def no_second(ctx, hook_context):
    if "second" in hook_context.current_payload["text"]:
        return HookResult.block(f"not {{hook_context.current_payload['text']}}", )
    return HookResult.continue_with(tell_user=f"saw {{hook_context.current_payload['text']}}")

def last(request):
    open("told", "w").write(repr(request.messages))
    return "done"

agent = Agent(
    id="keeper",
    model=Scripted([
        {{"tools": [{{"name": "keep", "arguments": {{"text": {SHAPES["GitHub"][0]!r}}}}}]}},
        {{"tools": [{{"name": "keep", "arguments": {{"text": {"second " + SHAPES["URL"][0]!r}}}}}]}},
        last,
    ]),
    tools=[keep],
    on_tool_start=[no_second],
)
"""


@pytest.fixture
def few_read(monkeypatch):
    """As in a new process, where plain texts are looked for, and no pattern of them yet."""
    monkeypatch.setattr(masking, "_shapes", masking._Shapes())


@pytest.mark.parametrize("begins", BEGINNINGS.split())
def test_a_token_is_masked_whichever_text_of_its_service_it_begins_with(begins, few_read):
    mask = Mask()
    assert HEX[:20] not in mask.json([f"a {begins}{HEX} b"])
    mask.json("x" * 200_000)
    assert HEX[:20] not in mask.json([f"a {begins}{HEX} b"])


@pytest.mark.parametrize("name", SHAPES)
def test_a_secret_of_a_known_shape_is_masked_in_texts_and_in_values(name, few_read):
    text, gone = SHAPES[name]
    mask = Mask()
    assert gone not in mask.text(f"a {text} b")
    assert "***" in mask.text(f"a {text} b")
    assert gone not in without_shapes(f"a {text} b")
    stored = mask.json({"plain": [f"a {text} b"], text: 1})
    assert gone not in stored
    assert json.dumps(gone)[1:-1] not in stored
    # Also once so much was read that another engine looks for the beginnings.
    mask.json("x" * 200_000)
    assert gone not in mask.json([text])


def test_a_run_stores_and_shows_no_secret_while_tool_and_model_have_it(hookline, tmp_path):
    (tmp_path / "agent.py").write_text(AGENT)
    done = hookline("run", "agent.py", "go")
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
    assert (tmp_path / "kept").read_text() == SHAPES["GitHub"][0]
    # The output is the tool's; the reason of the refusal is ours.
    told = (tmp_path / "told").read_text()
    assert f"kept {SHAPES['GitHub'][0]}" in told
    assert "not second postgres://me:***@db/x" in told
    listed, logged = hookline("runs", "last"), hookline("logs", "last")
    assert "postgres://me:***@db/x" in listed.stdout
    assert "saw ***" in done.stderr
    stored = b"".join(file.read_bytes() for file in (tmp_path / "home").iterdir() if file.is_file())
    for shown in (done.stderr, listed.stdout, logged.stdout, stored.decode(errors="replace")):
        assert BODY not in shown


def test_json_shows_no_secret_but_in_the_answer_itself(hookline, tmp_path):
    asks = AGENT.replace('return "done"', f"return {SHAPES['npm'][0]!r}").replace(
        'id="keeper",', f'id="keeper", system_prompt="use {SHAPES["GitLab"][0]}",'
    )
    (tmp_path / "agent.py").write_text(asks)
    (tmp_path / "hooks.yaml").write_text(
        f"hooks:\n  - {{name: a, on: run.end, timeout: {SHAPES['GitHub'][0]}, shell: x}}\n"
    )
    *records, last = hookline("run", "--json", "agent.py", "go").stdout.splitlines()
    assert json.loads(last).pop("result") == SHAPES["npm"][0]
    assert json.loads(last)["tool_results"][0]["result"] == "kept ***"
    explained, checked = hookline("explain", "--json", "agent.py"), hookline("check", "--json", "hooks.yaml")
    assert json.loads(explained.stdout)["declaration"]["agent"]["system_prompt"] == "use ***"
    assert "is '***'; give seconds" in json.loads(checked.stdout)["problems"][0]["message"]
    assert BODY not in "".join(records) + last.replace(SHAPES["npm"][0], "")
    assert BODY not in explained.stdout + checked.stdout


def test_the_reason_of_a_refusal_reaches_the_client_without_the_secret(hookline, tmp_path):
    file = tmp_path / "hookline.yaml"
    secret = SHAPES["GitLab"][0]
    says = {
        "name": "says",
        "on": "tool.start",
        "command": ["echo", json.dumps({"systemMessage": f"saw {secret}"})],
    }
    refuses = {"name": "no", "on": "tool.start", "command": ["sh", "-c", f"echo no {secret} >&2; exit 2"]}
    file.write_text(json.dumps({"hooks": [says, refuses]}))
    approve(file, hookline.environ)
    event = {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": "ls"}}
    done = hookline("answer", stdin=json.dumps({**event, "cwd": str(tmp_path), "session_id": "s"}))
    assert '"deny"' in done.stdout
    assert "no ***" in done.stdout
    assert "saw ***" in done.stdout
    assert BODY not in done.stdout + done.stderr


def test_a_message_shows_no_secret(hookline):
    done = hookline(SHAPES["npm"][0])
    assert (done.returncode, done.stderr) == (2, "error: there is no command '***' (hookline --help)\n")
