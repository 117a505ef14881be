"""Which names are secret, for every place that masks: one list, three questions."""

import json

import pytest

from hookline.guards.redact import masked
from hookline.journal.masking import Mask
from hookline.secrets import HIDDEN, PLAIN_WORDS, is_secret, is_secret_to_agent, secret_words, secrets_in

SECRET = [
    "GITHUB_TOKEN",
    "clientSecret",
    "DB_PASSWORD",
    "db-passwd",
    "DB_PASSW",
    "passphrase",
    "PGPASS",
    "GOOGLE_CREDENTIALS",
    "Authorization",
    "Set-Cookie",
    "auth",
    "api_key",
    "apiKey",
    "X-API-Key",
    "STORAGE_ACCESS_KEY",
    "storageAccountKey",
    "private.key",
    "signing key",
    "ENCRYPTION_KEY",
    "TS_AUTHKEY",
    "MEILI_MASTER_KEY",
    "SUPABASE_SERVICE_KEY",
]
PLAIN = [
    "",
    "author",
    "key",
    "keyboard",
    "monkey",
    "tokenizer",
    "secretary",
    "PATH",
    "SSH_AUTH_SOCK",
    "PGPASSFILE",
]
# A variable of such a name is masked by its value; a field of such a name holds no secret itself.
ABOUT = [
    "token_type",
    "secretName",
    "passwordPolicy",
    "TOKEN_URL",
    "token_count",
    "imagePullSecrets",
    "secretKeyRef",
]
POINTERS = ["PASSWORD_FILE", "token_path", "credential_store", "token_expires_in", "secret_id"]


@pytest.mark.parametrize("name", SECRET)
def test_a_secret_name_is_secret_to_all_who_mask(name):
    assert secrets_in({name: "value-1"}) == ["value-1"]
    assert is_secret(name)
    assert is_secret_to_agent(name)
    assert json.loads(Mask().json({name: "value-1"})) == {name: HIDDEN}
    assert masked("value-1", name) == HIDDEN


@pytest.mark.parametrize("name", PLAIN)
def test_another_name_is_secret_to_nobody(name):
    assert secrets_in({name: "value-1"}) == []
    assert not is_secret(name)
    assert not is_secret_to_agent(name)
    assert json.loads(Mask().json({name: "value-1"})) == {name: "value-1"}
    assert masked("value-1", name) == "value-1"


@pytest.mark.parametrize("name", ABOUT)
def test_what_stands_about_a_secret_is_masked_only_by_the_value_of_a_variable(name):
    assert secrets_in({name: "value-1"}) == ["value-1"]
    assert not is_secret(name)
    assert not is_secret_to_agent(name)


@pytest.mark.parametrize("name", POINTERS)
def test_where_a_secret_is_kept_stays_readable_for_an_agent_alone(name):
    assert is_secret(name)
    assert not is_secret_to_agent(name)


@pytest.mark.parametrize("name", SECRET)
def test_a_plain_word_is_in_every_secret_name(name):
    assert name == "auth" or any(word in name.lower() for word in PLAIN_WORDS)
    assert secret_words(name)


def test_only_texts_of_several_environments_are_secrets():
    assert secrets_in({"A_TOKEN": "one", "B": "two"}, {"C_TOKEN": None, "D_SECRET": "three"}) == [
        "one",
        "three",
    ]


def test_a_name_as_long_as_a_text_is_no_name():
    assert not is_secret("token" * 30)


KEY = """
import os
from hookline import Agent, Scripted, tool

@tool
def environment() -> str:
    "Show the environment."
    return "it is " + os.environ["{name}"]

a = Agent(id="a", model=Scripted([{{"tools": [{{"name": "environment", "arguments": {{}}}}]}}, "done"]),
          tools=[environment])
"""


@pytest.mark.parametrize("name", ["STORAGE_ACCESS_KEY", "storageAccountKey", "SIGNING_KEY", "SESSION_COOKIE"])
def test_a_variable_of_a_secret_name_is_in_no_output_and_no_journal_of_a_run(hookline, name):
    value = "Zm9vYmFyYmF6-4711"
    (hookline.folder / "key.py").write_text(KEY.format(name=name))
    hookline.environ[name] = value
    done = hookline("run", "key.py:a", "go")
    assert done.returncode == 0, done.stderr
    assert "it is ***" in done.stderr
    shown = hookline("runs", "last", "--json").stdout
    assert "it is ***" in shown
    assert value not in done.stdout + done.stderr + shown
    kept = [path.read_bytes() for path in (hookline.folder / "home").rglob("*") if path.is_file()]
    assert kept
    assert not any(value.encode() in part for part in kept)
