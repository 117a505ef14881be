"""Codex as a coding agent, through `codex app-server`: one process and one thread a session, one turn after another.

Whatever Codex asks is answered at once. Where its policy is `never`, what it wants to do is granted; under any other
policy a person was to decide, and nobody is there: it is declined, the turn ends, and the issue waits for a person.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, cast

from hookline.runners import Order
from hookline.runners.local import piped
from hookline.symphony.agents import AgentPlace, Conversation, Message, Tokens, Told, TurnFailed
from hookline.symphony.agents.guard import commands_in, in_force, trusted

INTERRUPT = 2.0
"""Seconds that an interrupted turn has to say that it ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodexAgent:
    """Codex: its command, and what it may do. Times are in seconds; `config` goes to Codex as it is.

    `hooks` are more hooks of its own kind, by event; without them in force nothing is begun.
    """

    command: str = "codex app-server"
    approval_policy: Any = "never"
    thread_sandbox: str | None = "workspace-write"
    turn_sandbox_policy: Any = None
    turn_timeout: float = 3600.0
    read_timeout: float = 5.0
    secret_names: frozenset[str] = frozenset()
    config: Mapping[str, Any] = field(default_factory=dict[str, Any])
    hooks: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def open(self, place: AgentPlace) -> CodexSession:
        _check_folder(place.workspace)
        env = {name: value for name, value in place.env.items() if name not in self.secret_names}
        stack = AsyncExitStack()
        try:
            order = Order(argv=("bash", "-lc", self._script()), cwd=place.workspace, env=env)
            process = await stack.enter_async_context(piped(order))
            session = CodexSession(self, place, stack)
            session.talk = Conversation(process, heard=session.heard, asked=session.asked, odd=session.odd)
            stack.callback(session.talk.close)
            await session.begin()
        except BaseException as exc:
            await stack.aclose()
            if isinstance(exc, TurnFailed):
                place.tell(Told(kind="startup_failed", text=str(exc)))
                raise _not_found(exc, self.command) from exc
            raise
        return session

    def _script(self) -> str:
        # A login profile can export again what was taken out of the environment.
        names = " ".join(shlex.quote(name) for name in sorted(self.secret_names))
        return f"unset {names}; {self.command}" if names else self.command


class CodexSession:
    """One thread. It is closed by whoever opened it."""

    talk: Conversation

    def __init__(self, agent: CodexAgent, place: AgentPlace, stack: AsyncExitStack) -> None:
        self._agent = agent
        self._place = place
        self._stack = stack
        self._thread = ""
        self._turn = ""
        self._done: asyncio.Future[Message] | None = None
        self._sign = asyncio.Event()
        self._wanted: str | None = None
        self._said = ""
        self._busy = False

    @property
    def id(self) -> str:
        return f"{self._thread}-{self._turn}" if self._turn else self._thread

    async def begin(self) -> None:
        agent = self._agent
        about = {"name": "hookline", "title": "hookline", "version": version("hookline")}
        given: Message = {"clientInfo": about, "capabilities": {"experimentalApi": True}}
        await self.talk.request("initialize", given, agent.read_timeout)
        self.talk.note("initialized")
        config = {**await self._trust(), **agent.config}
        if agent.hooks:
            config["hooks"] = await self._guard(config)
        self._thread = await self._opened(config)
        if agent.hooks and not in_force(await self._hooks(threadId=self._thread), commands_in(agent.hooks)):
            raise _unguarded()

    async def _trust(self) -> Message:
        """The configuration that leaves the workspace untrusted, unless the user has said something about it.

        Else Codex would write into the user's configuration that it is trusted, and from then on start the programs that a
        repository names in its `.codex` folder.
        """
        workspace = self._place.workspace
        try:
            answer = await self.talk.request("config/read", {"cwd": workspace}, self._agent.read_timeout)
        except TurnFailed as exc:
            if exc.kind != "response_error":
                raise
            answer = {}
        config = cast("Message", answer.get("config") or {})
        said = workspace in cast("Message", config.get("projects") or {})
        return {} if said else {"projects": {workspace: {"trust_level": "untrusted"}}}

    async def _guard(self, config: Message) -> Message:
        """Our hooks, with Codex's own word that it trusts them, and them alone.

        What that word is, only Codex can say: so it is shown them first, in a thread in which nothing ever happens,
        and in which the user's own hooks are off.
        """
        hooks = self._agent.hooks
        theirs = await self._hooks(cwds=[self._place.workspace])
        off = {str(each.get("key")): {"enabled": False} for each in theirs}
        shown = await self._opened({**config, "hooks": {**hooks, "state": off}}, ephemeral=True)
        state = trusted(await self._hooks(threadId=shown), commands_in(hooks))
        await self._asked_of_it("thread/unsubscribe", {"threadId": shown})
        return {**hooks, "state": state}

    async def _opened(self, config: Message, **more: Any) -> str:
        agent = self._agent
        given = {"approvalPolicy": agent.approval_policy, "sandbox": agent.thread_sandbox, "config": config}
        started = await self.talk.request(
            "thread/start",
            {**{key: value for key, value in given.items() if value}, "cwd": self._place.workspace, **more},
            agent.read_timeout,
        )
        return _id_of(started, "thread")

    async def _hooks(self, **where: Any) -> list[Message]:
        answer = await self._asked_of_it("hooks/list", where)
        folders = cast("list[Message]", answer.get("data") or [])
        return [each for folder in folders for each in cast("list[Message]", folder.get("hooks") or [])]

    async def _asked_of_it(self, method: str, given: Message) -> Message:
        try:
            return await self.talk.request(method, given, self._agent.read_timeout)
        except TurnFailed as exc:
            raise _unguarded(str(exc)) if exc.kind == "response_error" else exc from exc

    async def turn(self, prompt: str) -> str:
        agent = self._agent
        self._done = asyncio.get_running_loop().create_future()
        self._turn, self._wanted, self._said = "", None, ""
        given: Message = {
            "threadId": self._thread,
            "input": [{"type": "text", "text": prompt}],
            "cwd": self._place.workspace,
            "approvalPolicy": agent.approval_policy,
        }
        if agent.turn_sandbox_policy is not None:
            given["sandboxPolicy"] = agent.turn_sandbox_policy
        try:
            started = await self.talk.request("turn/start", given, agent.read_timeout)
            self._turn = _id_of(started, "turn")
            self._busy = not self._done.done()
            self._tell("session_started", session_id=self.id)
            return self._ended(await self._end_of_turn(self._done))
        except TurnFailed as exc:
            self._place.tell(exc.told())
            raise
        finally:
            self._done = None

    async def close(self) -> None:
        """Interrupt, close its input, TERM, KILL: each only where the one before was not enough."""
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

    async def _end_of_turn(self, done: asyncio.Future[Message]) -> Message:
        """Waits as long as anything is heard; `turn_timeout` is a limit on silence."""
        limit = self._agent.turn_timeout
        while not done.done():
            if self._wanted is not None:
                await self._interrupt()
                raise TurnFailed(self._wanted, kind="turn_input_required")
            if self.talk.ended.done():
                raise self.talk.gone()
            self._sign.clear()
            heard = asyncio.ensure_future(self._sign.wait())
            try:
                happened, _ = await asyncio.wait(
                    {done, self.talk.ended, heard}, timeout=limit, return_when=asyncio.FIRST_COMPLETED
                )
            finally:
                heard.cancel()
            if not happened:
                raise TurnFailed(f"the agent sent nothing in the turn for {limit:g} s", kind="turn_timeout")
        return done.result()

    def _ended(self, turn: Message) -> str:
        status = turn.get("status")
        if self._wanted is not None:
            raise TurnFailed(self._wanted, kind="turn_input_required")
        if status == "completed":
            self._tell("turn_completed", self._said)
            return self._said
        if status == "interrupted":
            raise TurnFailed("the turn was interrupted", kind="turn_cancelled")
        error = turn.get("error")
        said = cast("Message", error).get("message") if isinstance(error, dict) else None
        raise TurnFailed(f"the turn failed: {said or status}", kind="turn_failed")

    def heard(self, method: str, params: Message) -> None:
        self._sign.set()
        if method == "turn/completed":
            self._busy = False
            turn = params.get("turn")
            if self._done is not None and not self._done.done() and isinstance(turn, dict):
                self._done.set_result(cast("Message", turn))
            return
        if method == "item/completed":
            self._keep_answer(params)
        self._place.tell(_told(method, params))

    def asked(self, method: str, params: Message) -> Message:
        """The answer to what Codex wants of us; there always is one."""
        self._sign.set()
        grant, deny = _ANSWERS.get(method, (None, None))
        if method == "item/tool/call":
            name = str(params.get("tool"))
            self._tell("unsupported_tool_call", name)
            text = f"there is no tool {name!r} here"
            return {"result": {"success": False, "contentItems": [{"type": "inputText", "text": text}]}}
        if grant is not None and self._agent.approval_policy == "never":
            self._tell("approval_auto_approved", _shown(method, params))
            return {"result": grant(params)}
        if deny is not None:
            self._wanted = f"the agent asks for a person: {_shown(method, params)}"
            return {"result": deny}
        self._tell("other_message", f"{method} is not answered here")
        return {"error": {"code": -32601, "message": f"{method} is not supported by this client"}}

    def odd(self, text: str) -> None:
        self._sign.set()
        self._tell("malformed", text)

    def _keep_answer(self, params: Message) -> None:
        item = params.get("item")
        known = cast("Message", item) if isinstance(item, dict) else {}
        if known.get("type") == "agentMessage" and isinstance(known.get("text"), str):
            self._said = known["text"]

    def _tell(self, kind: str, text: str = "", session_id: str | None = None) -> None:
        self._place.tell(Told(kind=kind, text=text, session_id=session_id))


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


def _told(method: str, params: Message) -> Told:
    if method == "thread/tokenUsage/updated":
        usage = cast("Message", params.get("tokenUsage") or {})
        total = cast("Message", usage.get("total") or {})
        tokens = Tokens(
            input=_count(total, "inputTokens"),
            output=_count(total, "outputTokens"),
            total=_count(total, "totalTokens"),
        )
        return Told(kind="notification", tokens=tokens)
    if method == "account/rateLimits/updated":
        limits = params.get("rateLimits")
        return Told(
            kind="notification", rate_limits=cast("Message", limits) if isinstance(limits, dict) else None
        )
    return Told(kind="notification", text=_shown(method, params))


def _shown(method: str, params: Message) -> str:
    """One line of it for people."""
    item = params.get("item")
    known = {**params, **cast("Message", item)} if isinstance(item, dict) else params
    for key in ("command", "text", "delta", "reason", "message"):
        value = known.get(key)
        if isinstance(value, str) and value.strip():
            return f"{method}: {' '.join(value.split())[:200]}"
    return method


def _count(usage: Message, key: str) -> int:
    value = usage.get(key)
    return value if isinstance(value, int) else 0


def _id_of(answer: Message, key: str) -> str:
    inner = answer.get(key)
    found = cast("Message", inner).get("id") if isinstance(inner, dict) else None
    if not isinstance(found, str) or not found:
        raise TurnFailed(f"the answer has no {key}.id", kind="response_error")
    return found


def _not_found(exc: TurnFailed, command: str) -> TurnFailed:
    """A shell that does not know the command says so on stderr and exits with 127."""
    if exc.kind == "port_exit" and "not found" in str(exc):
        return TurnFailed(f"{command!r} could not be started: {exc}", kind="codex_not_found")
    return exc
