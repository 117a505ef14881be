"""Codex as a coding agent, through `codex app-server`: one process and one thread a session, one turn after another.

Every request of Codex is answered at once. With the policy `never` it is granted; any other policy leaves the decision
to a person, who is not there: the request is declined, the turn ends, and the issue waits for a person.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from importlib.metadata import version
from typing import Any, cast

from hookline.engine.context import Usage
from hookline.engine.plain import inner, mapping
from hookline.runners import Order
from hookline.runners.local import piped
from hookline.symphony.agents import (
    AgentEvent,
    AgentPlace,
    AgentSession,
    Conversation,
    Message,
    TurnFailed,
)
from hookline.symphony.agents.guard import commands_in, in_force, trusted
from hookline.symphony.hooks import without_secrets
from hookline.symphony.settings import CodexSettings

INTERRUPT = 2.0
"""Seconds that an interrupted turn has to say that it ended."""


class CodexSession(AgentSession):
    """One thread of Codex; the variables of `secret_names` are not for it.

    `hooks` are hooks in Codex's own form, by event; no turn begins unless they are in force.
    """

    talk: Conversation

    def __init__(
        self,
        place: AgentPlace,
        *,
        settings: CodexSettings,
        secret_names: frozenset[str] = frozenset(),
        hooks: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(place, settings.turn_timeout)
        self._settings, self._secret_names, self._guard = settings, secret_names, hooks or {}
        self._stack = AsyncExitStack()
        self._thread = ""
        self._turn = ""
        self._done: asyncio.Future[Message] | None = None
        self._wanted: asyncio.Future[str] | None = None
        self._said = ""
        self._busy = False

    async def open(self) -> None:
        _check_folder(self._place.workspace)
        try:
            await super().open()
        except TurnFailed as exc:
            # A shell that does not know the command says so on stderr and exits with 127.
            if exc.kind != "port_exit" or "not found" not in str(exc):
                raise
            command = self._settings.command
            raise TurnFailed(f"{command!r} could not be started: {exc}", kind="codex_not_found") from exc

    async def _begin(self) -> None:
        place, secret_names = self._place, self._secret_names
        order = Order(
            argv=("bash", "-lc", without_secrets(self._settings.command, secret_names)),
            cwd=place.workspace,
            # Those of the settings that this session was made of; a reload may have withheld others from the place.
            env={name: value for name, value in place.env.items() if name not in secret_names},
        )
        process = await self._stack.enter_async_context(piped(order))
        self.talk = Conversation(process, heard=self.heard, asked=self.asked, odd=self.odd)
        self._stack.callback(self.talk.close)
        about = {"name": "hookline", "title": "hookline", "version": version("hookline")}
        given: Message = {"clientInfo": about, "capabilities": {"experimentalApi": True}}
        await self.talk.request("initialize", given, self._settings.read_timeout)
        self.talk.note("initialized")
        config = await self._trust()
        if self._guard:
            config["hooks"] = await self._trusted_guard(config)
        self.id = self._thread = await self._opened(config)
        if self._guard and not in_force(await self._hooks(threadId=self._thread), commands_in(self._guard)):
            raise _unguarded()

    async def _trust(self) -> dict[str, Any]:
        """The configuration that leaves the workspace untrusted, unless the user's own configuration has it.

        Otherwise Codex would write into the user's configuration that it is trusted, and from then on start the programs
        that a repository names in its `.codex` folder.
        """
        workspace = self._place.workspace
        try:
            answer = await self.talk.request("config/read", {"cwd": workspace}, self._settings.read_timeout)
        except TurnFailed as exc:
            if exc.kind != "response_error":
                raise
            answer = {}
        said = workspace in mapping(inner(answer, "config", "projects"))
        return {} if said else {"projects": {workspace: {"trust_level": "untrusted"}}}

    async def _trusted_guard(self, config: Message) -> Message:
        """Our hooks with the hashes by which Codex trusts them, and no others.

        Only Codex can compute those hashes: so they are listed first in a thread without a turn, in which the user's own
        hooks are off.
        """
        hooks = self._guard
        theirs = await self._hooks(cwds=[self._place.workspace])
        off = {str(each.get("key")): {"enabled": False} for each in theirs}
        shown = await self._opened({**config, "hooks": {**hooks, "state": off}}, ephemeral=True)
        state = trusted(await self._hooks(threadId=shown), commands_in(hooks))
        await self._asked_of_it("thread/unsubscribe", {"threadId": shown})
        return {**hooks, "state": state}

    async def _opened(self, config: Message, **more: Any) -> str:
        settings = self._settings
        given = {
            "approvalPolicy": settings.approval_policy,
            "sandbox": settings.thread_sandbox,
            "config": config,
        }
        started = await self.talk.request(
            "thread/start",
            {**{key: value for key, value in given.items() if value}, "cwd": self._place.workspace, **more},
            settings.read_timeout,
        )
        return _id_of(started, "thread")

    async def _hooks(self, **where: Any) -> list[Message]:
        answer = await self._asked_of_it("hooks/list", where)
        folders = cast("list[Message]", answer.get("data") or [])
        return [each for folder in folders for each in cast("list[Message]", folder.get("hooks") or [])]

    async def _asked_of_it(self, method: str, given: Message) -> Message:
        try:
            return await self.talk.request(method, given, self._settings.read_timeout)
        except TurnFailed as exc:
            raise _unguarded(str(exc)) if exc.kind == "response_error" else exc from exc

    async def _run(self, prompt: str) -> str:
        loop, settings = asyncio.get_running_loop(), self._settings
        self._done = done = loop.create_future()
        self._wanted = wanted = loop.create_future()
        self._said = ""
        given: dict[str, Any] = {
            "threadId": self._thread,
            "input": [{"type": "text", "text": prompt}],
            "cwd": self._place.workspace,
            "approvalPolicy": settings.approval_policy,
        }
        if settings.turn_sandbox_policy is not None:
            given["sandboxPolicy"] = settings.turn_sandbox_policy
        started = await self.talk.request("turn/start", given, settings.read_timeout)
        self._turn = _id_of(started, "turn")
        self.id = f"{self._thread}-{self._turn}"
        self._busy = not done.done()
        self._place.report("session_started", session_id=self.id)
        await asyncio.wait({done, wanted, self.talk.ended}, return_when=asyncio.FIRST_COMPLETED)
        if wanted.done():
            if not done.done():
                await self._interrupt()
            raise TurnFailed(wanted.result(), kind="turn_input_required")
        if not done.done():
            raise self.talk.gone()
        turn = done.result()
        status = turn.get("status")
        if status == "completed":
            return self._said
        if status == "interrupted":
            raise TurnFailed("the turn was interrupted", kind="turn_cancelled")
        said = inner(turn, "error", "message")
        raise TurnFailed(f"the turn failed: {said or status}", kind="turn_failed")

    async def close(self) -> None:
        """Interrupt, close its input, TERM, KILL: each only if the one before was not enough."""
        try:
            if self._busy and not self.talk.ended.done():
                await self._interrupt()
        finally:
            await self._stack.aclose()

    async def _interrupt(self) -> None:
        try:
            given = {"threadId": self._thread, "turnId": self._turn}
            await self.talk.request("turn/interrupt", given, INTERRUPT)
        except TurnFailed:
            # It will be ended anyway.
            pass

    def heard(self, method: str, params: Message) -> None:
        self._alive()
        if method == "turn/completed":
            self._busy = False
            turn = params.get("turn")
            if self._done is not None and not self._done.done() and isinstance(turn, dict):
                self._done.set_result(cast("Message", turn))
            return
        item = mapping(params.get("item"))
        is_answer = method == "item/completed" and item.get("type") == "agentMessage"
        if is_answer and isinstance(item.get("text"), str):
            self._said = item["text"]
        self._place.tell(_event_of(method, params))

    def asked(self, method: str, params: Message) -> Message:
        """The answer to a request of Codex; there always is one."""
        self._alive()
        grant, deny = _ANSWERS.get(method, (None, None))
        if method == "item/tool/call":
            name = str(params.get("tool"))
            self._place.report("unsupported_tool_call", name)
            text = f"there is no tool {name!r} here"
            return {"result": {"success": False, "contentItems": [{"type": "inputText", "text": text}]}}
        if grant is not None and self._settings.approval_policy == "never":
            self._place.report("approval_auto_approved", _shown(method, params))
            return {"result": grant(params)}
        if deny is not None:
            if self._wanted is not None and not self._wanted.done():
                self._wanted.set_result(f"the agent asks for a person: {_shown(method, params)}")
            return {"result": deny}
        self._place.report("other_message", f"{method} is not answered here")
        return {"error": {"code": -32601, "message": f"{method} is not supported by this client"}}

    def odd(self, text: str) -> None:
        self._alive()
        self._place.report("malformed", text)


Grant = Callable[[Message], Message]
# What grants a request, where that makes sense, and what declines it. A request that is in neither is an error to it.
_ANSWERS: Mapping[str, tuple[Grant | None, Message | None]] = {
    "item/commandExecution/requestApproval": (
        lambda _: {"decision": "acceptForSession"},
        {"decision": "decline"},
    ),
    "item/fileChange/requestApproval": (lambda _: {"decision": "acceptForSession"}, {"decision": "decline"}),
    "item/permissions/requestApproval": (
        lambda given: {"permissions": given.get("permissions") or {}, "scope": "turn"},
        {"permissions": {}},
    ),
    "execCommandApproval": (lambda _: {"decision": "approved_for_session"}, {"decision": "abort"}),
    "applyPatchApproval": (lambda _: {"decision": "approved_for_session"}, {"decision": "abort"}),
    "item/tool/requestUserInput": (None, {"answers": {}}),
    "mcpServer/elicitation/request": (None, {"action": "decline"}),
}


def _check_folder(workspace: str) -> None:
    # Codex itself starts happily in a folder that is not there.
    if not os.path.isdir(workspace):
        raise TurnFailed(f"there is no folder {workspace!r}", kind="invalid_workspace_cwd")


def _unguarded(why: str = "are hooks switched off in its configuration?") -> TurnFailed:
    return TurnFailed(
        f"Codex does not take the hooks that guard it, so it is not started: {why}", kind="response_error"
    )


def _event_of(method: str, params: Message) -> AgentEvent:
    if method == "thread/tokenUsage/updated":
        total = mapping(inner(params, "tokenUsage", "total"))
        tokens = Usage(
            input_tokens=_count(total, "inputTokens"),
            output_tokens=_count(total, "outputTokens"),
            total_tokens=_count(total, "totalTokens"),
        )
        return AgentEvent(kind="notification", tokens=tokens)
    if method == "account/rateLimits/updated":
        return AgentEvent(kind="notification", rate_limits=mapping(params.get("rateLimits")) or None)
    return AgentEvent(kind="notification", text=_shown(method, params))


def _shown(method: str, params: Message) -> str:
    """One line of a message, for people."""
    known = {**params, **mapping(params.get("item"))}
    for key in ("command", "text", "delta", "reason", "message"):
        value = known.get(key)
        if isinstance(value, str) and value.strip():
            return f"{method}: {' '.join(value.split())[:200]}"
    return method


def _count(usage: Message, key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def _id_of(answer: Message, key: str) -> str:
    found = inner(answer, key, "id")
    if not isinstance(found, str) or not found:
        raise TurnFailed(f"the answer has no {key}.id", kind="response_error")
    return found
