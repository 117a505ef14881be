"""Our client of `codex app-server` beside the schema that the same Codex writes of its protocol.

A new version that asks something new, or wants another answer, makes these fail.
"""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from hookline.symphony.agents import AgentPlace
from hookline.symphony.agents.codex import CodexSession
from hookline.symphony.settings import CodexSettings
from tests.fakes import FakeProvider
from tests.real.codex_cli import codex, codex_home, configure, shell, started

__all__ = ["codex", "codex_home"]

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

# These are about accounts: who signs in through a client of their own, and machines that vouch for themselves.
REFUSED = {"account/chatgptAuthTokens/refresh", "attestation/generate"}


@pytest.fixture(scope="module")
def schemas(codex, tmp_path_factory):
    folder = tmp_path_factory.mktemp("schema")
    words = [codex, "app-server", "generate-json-schema", "--out", folder]
    subprocess.run(words, check=True, capture_output=True)
    return folder


def schema(schemas, name):
    return json.loads((schemas / f"{name}.json").read_text())


def asked(schemas):
    """Every request that Codex may make of a client: its method, and the name of what it is about."""
    whole = schema(schemas, "ServerRequest")
    for each in whole["oneOf"]:
        [method] = each["properties"]["method"]["enum"]
        yield method, each["properties"]["params"]["$ref"].rpartition("/")[2], whole


def sample(part, whole, *, full, depth=0):
    """A value that fits a schema: with what is required only, or with all that may be there."""
    if part is True:
        return {}
    if "$ref" in part:
        return sample(whole["definitions"][part["$ref"].rpartition("/")[2]], whole, full=full, depth=depth)
    if "enum" in part:
        return part["enum"][0]
    for word in ("allOf", "anyOf", "oneOf"):
        if word in part:
            first = next(each for each in part[word] if each.get("type") != "null")
            chosen = sample(first, whole, full=full, depth=depth)
            beside = {key: value for key, value in part.items() if key != word}
            rest = sample(beside, whole, full=full, depth=depth) if "properties" in part else {}
            return {**rest, **chosen} if isinstance(chosen, dict) else chosen
    kinds = part.get("type", "object")
    kind = kinds if isinstance(kinds, str) else next(each for each in kinds if each != "null")
    if kind == "object":
        known = part.get("properties", {})
        wanted = known if full and depth < 4 else part.get("required", ())
        return {key: sample(known[key], whole, full=full, depth=depth + 1) for key in wanted}
    return {"array": [], "string": "/x", "integer": 1, "number": 1, "boolean": True, "null": None}[kind]


@pytest.mark.rule("O22", "M64", "M66")
@pytest.mark.parametrize("full", [False, True], ids=["what is required", "all that may be there"])
@pytest.mark.parametrize("policy", ["never", "untrusted"])
async def test_every_request_that_codex_may_make_gets_an_answer_that_it_can_read(schemas, policy, full):
    refused = set()
    for method, name, whole in asked(schemas):
        params = sample(whole["definitions"][name], whole, full=full)
        jsonschema.validate(params, {**whole["definitions"][name], "definitions": whole["definitions"]})
        place = AgentPlace(workspace="/", env={}, tell=lambda _: None)
        session = CodexSession(place, settings=CodexSettings(approval_policy=policy))
        answer = session.asked(method, params)
        if "error" in answer:
            jsonschema.validate({"id": 1, **answer}, schema(schemas, "JSONRPCError"))
            refused.add(method)
        else:
            jsonschema.validate(answer["result"], schema(schemas, name.replace("Params", "Response")))
    assert refused == REFUSED


@pytest.mark.rule("O20", "M56", "M57", "M58")
async def test_whatever_we_send_is_as_the_schema_says(schemas, codex, codex_home, tmp_path):
    kept = tmp_path / "kept.jsonl"
    kinds: list[str] = []
    between = [sys.executable, Path(__file__).with_name("codex_proxy.py"), kept, ""]
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "true", "timeout": 600}]}]}
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "CODEX_HOME": str(codex_home)}
    with FakeProvider([shell("true"), "done", {"hang": True}]) as provider:
        configure(codex_home, provider)
        settings = CodexSettings(
            command=started(codex, *between),
            thread_sandbox="danger-full-access",
            turn_sandbox_policy={"type": "dangerFullAccess"},
            read_timeout=60,
        )
        place = AgentPlace(workspace=str(tmp_path), env=env, tell=lambda told: kinds.append(told.kind))
        session = CodexSession(place, settings=settings, hooks=hooks)
        await session.open()
        assert await session.turn("go") == "done"
        second = asyncio.ensure_future(session.turn("and on"))
        # A turn can be interrupted once its id is known.
        while len(provider.requests) < 3 or kinds.count("session_started") < 2:
            assert not second.done(), second.result()
            await asyncio.sleep(0.02)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        await session.close()
    sent = [json.loads(line) for line in kept.read_text().splitlines()]
    ours = [each["message"] for each in sent if each["from"] == "client"]
    for message in ours:
        kind = "ClientRequest" if "id" in message else "ClientNotification"
        jsonschema.validate(message, schema(schemas, kind))
    methods = {message["method"] for message in ours}
    assert methods >= {"thread/start", "turn/start", "turn/interrupt", "hooks/list", "thread/unsubscribe"}
