"""No kind of secret is kept or shown in clear, and no word that is none is eaten."""

import json

import pytest

from hookline.engine.context import HookContext
from hookline.guards import mask_secrets
from hookline.journal.masking import Mask
from hookline.secrets.text import without_secrets
from tests.attacks.kinds_of_secrets import BARE, HARMLESS, TOLD

AROUND = {
    "bare": "{}",
    "in a sentence": "it is {} now",
    "an assignment": "X={}",
    "quoted": "x = '{}'",
    "a parameter": "https://h/p?x={}&y=1",
    "JSON": '{{"x": "{}"}}',
    "a list": "a,{},b",
    "a header": "X-Mine: {}\r\nHost: h",
    "a command": "echo {} ; rm -rf ~",
}
POSITIVE = {
    **{
        f"{name}, {where}": (around.format(secret), secret)
        for name, (secret, _) in BARE.items()
        for where, around in AROUND.items()
        if "://" not in secret or where in ("bare", "in a sentence", "quoted", "JSON", "a command")
    },
    **{name: (text, secret) for name, (text, secret, _) in TOLD.items()},
    **{f"{name}, in JSON": (json.dumps({"out": text}), secret) for name, (text, secret, _) in TOLD.items()},
}
TWINS = [*(twin for _, twin in BARE.values()), *(twin for _, _, twin in TOLD.values()), *HARMLESS]


def core(secret):
    """What must not be left of it: of a URL its password, of a key its body."""
    if "PRI" + "VATE KEY" in secret:
        return secret.splitlines()[-2][:20]
    if "://" in secret and "@" in secret:
        return secret.partition("://")[2].partition("@")[0].partition(":")[2]
    return secret[-16:]


def given_back(text):
    made = mask_secrets(None, HookContext(workflow_id="w", point="tool.end", current_output=text))
    return text if made.modified_output is None else made.modified_output


MASKERS = {
    "text": without_secrets,
    "journal": lambda text: json.loads(Mask().json([text]))[0],
    "guard": given_back,
}


def test_there_are_at_least_80_kinds():
    assert len(BARE) + len(TOLD) >= 140
    assert len(BARE) >= 80


@pytest.mark.parametrize("name", POSITIVE)
def test_no_kind_of_secret_is_left(name):
    text, secret = POSITIVE[name]
    for masker in MASKERS.values():
        shown = masker(text)
        assert core(secret) not in shown
        assert "***" in shown
        assert masker(shown) == shown
        if "rm -rf" in text:
            assert shown.endswith(" ; rm -rf ~")


@pytest.mark.parametrize("text", TWINS)
def test_no_word_that_is_no_secret_is_eaten(text):
    for masker in MASKERS.values():
        assert masker(text) == text
        assert masker(f"it says: {text}\n") == f"it says: {text}\n"


COMMANDS = [
    ("echo cookie: x ; rm -rf ~", "rm -rf ~"),
    ("echo cookie: sid=abc1234 ; rm -rf ~", "rm -rf ~"),
    ("echo token=abc1234;rm -rf ~", "rm -rf ~"),
    ("API_TOKEN=abc1234&rm -rf ~", "rm -rf ~"),
    ("echo password=abc1234|sh -c 'rm -rf ~'", "sh -c 'rm -rf ~'"),
    ("echo authorization: Basic abc1234\nrm -rf ~", "rm -rf ~"),
    ("echo authorization: abc1234 & rm -rf ~", "rm -rf ~"),
    ("echo authorization: Digest a=1 | rm -rf ~", "rm -rf ~"),
    ("echo token=abc1234$(rm -rf ~)", "$(rm -rf ~)"),
    ("echo token=abc1234`rm -rf ~`", "`rm -rf ~`"),
    ("curl -H 'token: abc1234' ; rm -rf ~ ; echo 'x'", "rm -rf ~"),
    ('echo "password: " ; rm -rf ~ ; echo ""', "rm -rf ~"),
    ("echo \"token: '1\" ; rm -rf ~ ; echo \"'\"", "rm -rf ~"),
    ("echo token='abc1234\nrm -rf ~", "rm -rf ~"),
    ("echo a://b:xyz;reboot;@c", "reboot"),
    ("curl -u me:abc1234;rm -rf ~", "rm -rf ~"),
    ("sshpass -p abc1234|rm -rf ~", "rm -rf ~"),
    ("echo -----BEGIN RSA PRI" + "VATE KEY----- ; rm -rf ~ ; echo -----END RSA PRI" + "VATE KEY-----", "rm -rf ~"),
    ("echo -----BEGIN RSA PRI" + "VATE KEY-----\nrm -rf ~\necho -----END RSA PRI" + "VATE KEY-----", "rm -rf ~"),
    ("echo AK" + "IAABCDEFGHIJKLMNOP;/tmp/" + "a1" * 17 + "b", "/tmp/"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "left"), COMMANDS)
def test_no_command_is_hidden_behind_what_looks_like_a_secret(command, left):
    for masker in MASKERS.values():
        assert left in masker(command)


AGENT = """
import json, logging
from hookline import Agent, HookResult, Scripted, hook, tool

texts = json.load(open("texts.json"))

@tool
def show() -> str:
    "Show all."
    return "\\n".join(texts)

@hook(inline=True)
def tells(ctx, hook_context):
    return HookResult.continue_with(tell_user="\\n".join(texts))

agent = Agent(id="a", model=Scripted([{"tools": [{"name": "show", "arguments": {}}]}, "done"]), tools=[show],
              on_tool_end=[tells])
"""


def test_no_kind_of_secret_is_in_a_journal_or_on_a_screen(hookline):
    """What a tool returns and a hook says: kept, shown as it happens, listed, and in the log of hooks."""
    kinds = [(text, secret) for name, (text, secret) in POSITIVE.items() if not name.endswith("a command")]
    (hookline.folder / "agent.py").write_text(AGENT)
    texts = hookline.folder / "texts.json"
    harmless = [text for text in HARMLESS if "\n" not in text]
    for start in range(0, len(kinds), 250):
        some = kinds[start : start + 250]
        texts.write_text(json.dumps([text for text, _ in some] + harmless))
        done = hookline("run", "agent.py", "go")
        assert done.returncode == 0, done.stderr
        shown = done.stderr + hookline("runs", "last").stdout + hookline("runs", "last", "--json").stdout
        shown += hookline("logs", "last").stdout + hookline("logs", "last", "--json").stdout
        files = [path for path in (hookline.folder / "home").rglob("*") if path.is_file()]
        kept = b"".join(path.read_bytes() for path in files).decode(errors="replace")
        assert [core(secret) for _, secret in some if core(secret) in shown + kept] == []
        flat = "".join(shown.split())
        assert [text for text in harmless if "".join(json.dumps(text)[1:-1].split()) not in flat] == []
