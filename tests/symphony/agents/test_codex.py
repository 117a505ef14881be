"""The client of `codex app-server`, against a program that speaks its protocol in every wrong way."""

import asyncio
import json
import os
import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hookline.engine.context import Usage
from hookline.symphony.agents import AgentPlace, TurnFailed
from hookline.symphony.agents.codex import CodexSession
from hookline.symphony.settings import CodexSettings

SERVER = Path(__file__).with_name("app_server.py")


class Codex:
    """An agent whose server behaves as it is told, and what was heard of it."""

    def __init__(self, folder, how, **settings):
        self.saw = folder / "saw.jsonl"
        command = shlex.join([sys.executable, str(SERVER), how, str(self.saw)])
        self.ours = {key: settings.pop(key) for key in ("hooks", "secret_names") if key in settings}
        self.settings = CodexSettings(**{"command": command, "read_timeout": 20.0, **settings})
        self.told = []
        self.place = AgentPlace(
            workspace=str(folder), env={**os.environ, "MARK": str(folder)}, tell=self.told.append
        )

    def session(self, place=None, **settings):
        given = replace(self.settings, **settings)
        return CodexSession(place or self.place, settings=given, **self.ours)

    async def turn(self, prompt="go"):
        session = self.session()
        try:
            await session.open()
            return await session.turn(prompt)
        finally:
            await session.close()

    @property
    def kinds(self):
        return [told.kind for told in self.told]

    def sent(self, method=None):
        messages = [json.loads(line) for line in self.saw.read_text().splitlines()]
        return [message for message in messages if method is None or message.get("method") == method]

    def alive(self):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self._is_ours(pid)]

    def _is_ours(self, pid):
        try:
            return f"MARK={self.place.workspace}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


@pytest.mark.rule("O20", "O26", "M56", "M57", "M59", "M67")
async def test_a_session_is_begun_as_the_protocol_says_and_the_answer_comes_back(tmp_path):
    codex = Codex(tmp_path, "well", thread_sandbox="read-only", turn_sandbox_policy={"type": "readOnly"})
    session = codex.session()
    await session.open()
    assert await session.turn("do it") == "the answer"
    assert session.id == "thread-1-turn-1"
    assert await session.turn("more") == "the answer"
    await session.close()
    methods = [message["method"] for message in codex.sent()]
    begun = ["initialize", "initialized", "config/read", "thread/start"]
    assert methods == [*begun, "turn/start", "turn/start"]
    [initialize] = codex.sent("initialize")
    assert initialize["params"]["clientInfo"]["name"] == "hookline"
    assert initialize["params"]["capabilities"] == {"experimentalApi": True}
    [thread] = codex.sent("thread/start")
    config = {"projects": {str(tmp_path): {"trust_level": "untrusted"}}}
    sandbox = {"approvalPolicy": "never", "sandbox": "read-only"}
    assert thread["params"] == {**sandbox, "cwd": str(tmp_path), "config": config}
    turn = codex.sent("turn/start")[0]["params"]
    assert turn["input"] == [{"type": "text", "text": "do it"}]
    assert (turn["threadId"], turn["cwd"]) == ("thread-1", str(tmp_path))
    assert turn["sandboxPolicy"] == {"type": "readOnly"}
    assert Usage(input_tokens=10, output_tokens=8, total_tokens=18) in [told.tokens for told in codex.told]
    assert {"primary": {"usedPercent": 5}} in [told.rate_limits for told in codex.told]
    assert codex.kinds.count("session_started") == codex.kinds.count("turn_completed") == 2
    assert codex.alive() == []


BROKEN = {
    "failing": ("turn_failed", "the model is down", "turn_failed"),
    "interrupted": ("turn_cancelled", "was interrupted", "turn_cancelled"),
    "dying": ("port_exit", "out of memory", "turn_ended_with_error"),
    "half_a_line": ("port_exit", "has ended", "turn_ended_with_error"),
}


@pytest.mark.rule("O21", "O25", "M68")
@pytest.mark.parametrize("how", BROKEN)
async def test_a_turn_that_did_not_end_well_is_a_failure_of_its_kind(tmp_path, how):
    kind, said, told = BROKEN[how]
    codex = Codex(tmp_path, how)
    with pytest.raises(TurnFailed, match=said) as caught:
        await codex.turn()
    assert caught.value.kind == kind
    assert told in codex.kinds
    assert codex.alive() == []


NOT_STARTED = {
    "dies at start": ("port_exit", "cannot read the configuration"),
    "refuses": ("response_error", "unknown variant `reject`"),
    "no id": ("response_error", r"no thread\.id"),
}


@pytest.mark.rule("O21", "O25")
@pytest.mark.parametrize("how", NOT_STARTED)
async def test_an_agent_that_does_not_begin_says_why(tmp_path, how):
    kind, said = NOT_STARTED[how]
    codex = Codex(tmp_path, how)
    with pytest.raises(TurnFailed, match=said) as caught:
        await codex.turn()
    assert caught.value.kind == kind
    assert codex.kinds[-1] == "startup_failed"
    assert codex.alive() == []


@pytest.mark.rule("O21")
async def test_a_command_that_is_not_there_is_told_from_one_that_died(tmp_path):
    codex = Codex(tmp_path, "", command="no-such-codex app-server")
    with pytest.raises(TurnFailed, match="no-such-codex") as caught:
        await codex.turn()
    assert caught.value.kind == "codex_not_found"


@pytest.mark.rule("M60", "O21")
async def test_a_request_without_an_answer_passes_its_limit(tmp_path):
    codex = Codex(tmp_path, "never answers", read_timeout=0.5)
    with pytest.raises(TurnFailed, match=r"initialize was not answered in 0\.5 s") as caught:
        await codex.turn()
    assert caught.value.kind == "response_timeout"
    assert codex.alive() == []


@pytest.mark.rule("M61", "O21")
async def test_the_turns_limit_is_on_silence_and_not_on_its_length(tmp_path):
    quiet = Codex(tmp_path, "silent", turn_timeout=0.5)
    with pytest.raises(TurnFailed, match=r"the agent sent nothing for 0\.5 s") as caught:
        await quiet.turn()
    assert caught.value.kind == "turn_timeout"
    assert quiet.alive() == []
    begun = time.monotonic()
    assert await Codex(tmp_path, "chatty", turn_timeout=2.5).turn() == "the answer"
    assert time.monotonic() - begun > 2.5


@pytest.mark.rule("O19", "M62", "O25")
async def test_lines_that_are_too_long_or_no_messages_are_left_out_and_told(tmp_path):
    codex = Codex(tmp_path, "flooding")
    assert await codex.turn() == "the answer"
    odd = [told.text for told in codex.told if told.kind == "malformed"]
    assert "more than 10485760 bytes" in odd[0]
    assert "this is no json" in odd[1]
    assert "[1, 2]" in odd[2]


GRANTED = {
    "approval": {"decision": "acceptForSession"},
    "patch": {"decision": "approved_for_session"},
    "permissions": {"permissions": {"network": {"enabled": True}}, "scope": "turn"},
}


@pytest.mark.rule("O22", "M64")
@pytest.mark.parametrize("how", GRANTED)
async def test_under_the_policy_never_what_it_wants_is_granted_and_told(tmp_path, how):
    codex = Codex(tmp_path, how)
    await codex.turn()
    [answer] = [message for message in codex.sent() if message.get("id") == 3 and "method" not in message]
    assert answer["result"] == GRANTED[how]
    assert "approval_auto_approved" in codex.kinds


DECLINED = {
    "approval": ({"decision": "decline"}, "touch x"),
    "patch": ({"decision": "abort"}, "applyPatchApproval"),
    "permissions": ({"permissions": {}}, "permissions"),
    "question": ({"answers": {}}, "which branch"),
    "elicitation": ({"action": "decline"}, "log in"),
}


@pytest.mark.rule("O22", "M66", "O15")
@pytest.mark.parametrize("how", DECLINED)
async def test_under_another_policy_it_is_declined_and_a_person_is_wanted(tmp_path, how):
    wanted, said = DECLINED[how]
    codex = Codex(tmp_path, how, approval_policy="untrusted")
    with pytest.raises(TurnFailed, match=said) as caught:
        await codex.turn()
    assert caught.value.kind == "turn_input_required"
    [answer] = [message for message in codex.sent() if message.get("id") == 3 and "method" not in message]
    assert answer["result"] == wanted
    assert "turn_input_required" in codex.kinds
    assert codex.alive() == []


@pytest.mark.rule("O22")
@pytest.mark.parametrize("how", ["question", "elicitation"])
async def test_a_question_to_a_person_is_never_answered_by_us_whatever_the_policy(tmp_path, how):
    codex = Codex(tmp_path, how)
    with pytest.raises(TurnFailed) as caught:
        await codex.turn()
    assert caught.value.kind == "turn_input_required"


@pytest.mark.rule("O23", "M65", "M75")
async def test_a_tool_that_is_not_there_is_said_and_the_turn_goes_on(tmp_path):
    codex = Codex(tmp_path, "tool_call")
    assert await codex.turn() == "the answer"
    [answer] = [message for message in codex.sent() if message.get("id") == 3 and "method" not in message]
    assert answer["result"]["success"] is False
    assert "no tool 'deploy'" in answer["result"]["contentItems"][0]["text"]
    assert "unsupported_tool_call" in codex.kinds


@pytest.mark.rule("O22")
async def test_a_request_that_nobody_knows_gets_an_error_and_no_silence(tmp_path):
    codex = Codex(tmp_path, "unknown_request")
    assert await codex.turn() == "the answer"
    [answer] = [message for message in codex.sent() if message.get("id") == 3 and "method" not in message]
    assert answer["error"]["code"] == -32601


async def test_a_workspace_is_not_trusted_unless_the_user_has_said_so(tmp_path):
    codex = Codex(tmp_path, "well_known")
    await codex.turn()
    [thread] = codex.sent("thread/start")
    assert "config" not in thread["params"]


HOOKS = {"PreToolUse": [{"hooks": [{"type": "command", "command": "guard it", "timeout": 600}]}]}


async def test_hooks_are_shown_to_it_first_and_then_trusted_by_its_own_word_and_no_others(tmp_path):
    codex = Codex(tmp_path, "well_known", hooks=HOOKS)
    assert await codex.turn() == "the answer"
    assert [message["method"] for message in codex.sent()] == [
        "initialize",
        "initialized",
        "config/read",
        "hooks/list",
        "thread/start",
        "hooks/list",
        "thread/unsubscribe",
        "thread/start",
        "hooks/list",
        "turn/start",
    ]
    shown, used = (message["params"] for message in codex.sent("thread/start"))
    theirs, ours = "/home/hooks.json:stop:0:0", "flags:0"
    assert shown["ephemeral"] is True
    assert shown["config"]["hooks"] == {**HOOKS, "state": {theirs: {"enabled": False}}}
    state = {ours: {"enabled": True, "trusted_hash": "sha256:8"}}
    assert used["config"] == {"hooks": {**HOOKS, "state": state}}
    assert "ephemeral" not in used
    assert codex.sent("thread/unsubscribe")[0]["params"] == {"threadId": "thread-1"}
    assert codex.sent("turn/start")[0]["params"]["threadId"] == "thread-2"


UNGUARDED = {
    "switched_off": "are hooks switched off",
    "distrusts": "are hooks switched off",
    "too_old": "unknown method hooks/list",
}


@pytest.mark.parametrize("how", UNGUARDED)
async def test_without_the_hooks_in_force_it_is_not_given_anything_to_do(tmp_path, how):
    codex = Codex(tmp_path, how, hooks=HOOKS)
    with pytest.raises(TurnFailed, match="does not take the hooks that guard it") as caught:
        await codex.turn()
    assert UNGUARDED[how] in str(caught.value)
    assert caught.value.kind == "response_error"
    assert codex.sent("turn/start") == []
    assert codex.kinds[-1] == "startup_failed"
    assert codex.alive() == []


async def test_a_cancelled_turn_is_interrupted_and_leaves_no_process(tmp_path):
    codex = Codex(tmp_path, "leaving_children")
    session = codex.session()
    await session.open()
    turn = asyncio.ensure_future(session.turn("go"))
    while not any("sleep 3600" in told.text for told in codex.told):
        await asyncio.sleep(0.01)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    await session.close()
    assert codex.alive() == []


@pytest.mark.rule("O24", "M73")
async def test_the_trackers_secrets_are_not_in_its_environment_even_if_a_profile_sets_them_again(tmp_path):
    seen = shlex.quote(str(tmp_path / "profile"))
    (tmp_path / ".bash_profile").write_text(
        f'printf "%s" "${{LINEAR_API_KEY-none}}" > {seen}\nexport LINEAR_API_KEY=again\n'
    )
    show = f'printf "%s" "${{LINEAR_API_KEY-none}}" > {shlex.quote(str(tmp_path / "key"))}; '
    codex = Codex(tmp_path, "well", secret_names=frozenset({"LINEAR_API_KEY"}))
    env = {**codex.place.env, "HOME": str(tmp_path), "LINEAR_API_KEY": "secret"}
    place = AgentPlace(workspace=str(tmp_path), env=env, tell=codex.told.append)
    session = codex.session(place, command=show + codex.settings.command)
    await session.open()
    await session.close()
    assert (tmp_path / "key").read_text() == "none"
    assert (tmp_path / "profile").read_text() == "none"


@pytest.mark.rule("O21", "M27")
async def test_a_workspace_that_is_gone_is_not_worked_in(tmp_path):
    codex = Codex(tmp_path, "well")
    place = AgentPlace(workspace=str(tmp_path / "gone"), env={}, tell=codex.told.append)
    with pytest.raises(TurnFailed) as caught:
        await codex.session(place).open()
    assert caught.value.kind == "invalid_workspace_cwd"


@pytest.mark.rule("M63", "O19")
async def test_what_it_prints_as_errors_is_no_part_of_the_protocol(tmp_path):
    codex = Codex(tmp_path, "well")
    noisy = f'echo \'{{"method": "turn/completed"}}\' >&2; {codex.settings.command}'
    session = codex.session(command=noisy)
    await session.open()
    assert await session.turn("go") == "the answer"
    await session.close()
