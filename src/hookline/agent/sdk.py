"""Agent: the Python SDK's declaration of an agent, with its hooks in lists, and the ways to run it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hookline.agent.current import INSIDE, Inside
from hookline.agent.mcp_server import McpServer
from hookline.agent.models import Model
from hookline.agent.models.names import model_named
from hookline.agent.output import AgentResult, Event, StreamResult
from hookline.agent.output_schema import OutputSchema
from hookline.agent.polos import KEYWORDS, functions
from hookline.agent.ready_tools import ready_tool
from hookline.agent.run import Running, RunningInside, Session
from hookline.agent.spec import Spec
from hookline.agent.stop import StopCondition
from hookline.agent.tools import Tool, tool
from hookline.engine.context import WorkflowContext
from hookline.engine.declaration import AgentDeclaration, Declaration, HookDeclaration
from hookline.engine.hook import Hook
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Recorder
from hookline.engine.record import Journal, Owner, Record
from hookline.errors import UsageError
from hookline.handlers.python import python_hook

if TYPE_CHECKING:
    from hookline.agent.mcp import Servers

Functions = Callable[..., Any] | Sequence[Callable[..., Any]] | None


class Agent:
    """An agent and the hooks around it. Each hook list is an attribute, read anew by every run."""

    def __init__(
        self,
        *,
        id: str,
        provider: str = "",
        model: str | Model = "",
        description: str = "",
        system_prompt: str | None = None,
        tools: Iterable[Any] = (),
        temperature: float | None = None,
        top_p: float | None = None,
        max_output_tokens: int | None = None,
        provider_base_url: str | None = None,
        stop_conditions: StopCondition | Iterable[StopCondition] = (),
        output_schema: Any = None,
        workspace: str | Path | None = None,
        timeout: float | None = None,
        on_run_start: Functions = None,
        on_run_end: Functions = None,
        on_session_start: Functions = None,
        on_session_end: Functions = None,
        on_start: Functions = None,
        on_end: Functions = None,
        on_agent_step_start: Functions = None,
        on_agent_step_end: Functions = None,
        on_model_start: Functions = None,
        on_model_end: Functions = None,
        on_tool_start: Functions = None,
        on_tool_end: Functions = None,
    ) -> None:
        if not id or not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"an agent's id is a word of its own, not {id!r}")
        self.id = id
        self.provider = provider
        self.model = model
        self.description = description
        self.system_prompt = system_prompt
        self.tools, self.servers = _tools(tools)
        self.temperature = temperature
        self.top_p = top_p
        self.max_output_tokens = max_output_tokens
        self.provider_base_url = provider_base_url
        self.stop_conditions = _conditions(stop_conditions)
        self.output = OutputSchema(output_schema) if output_schema is not None else None
        self.workspace = str(workspace) if workspace is not None else None
        self.timeout = timeout
        self.on_run_start = functions("on_run_start", on_run_start)
        self.on_run_end = functions("on_run_end", on_run_end)
        self.on_session_start = functions("on_session_start", on_session_start)
        self.on_session_end = functions("on_session_end", on_session_end)
        self.on_start = functions("on_start", on_start)
        self.on_end = functions("on_end", on_end)
        self.on_agent_step_start = functions("on_agent_step_start", on_agent_step_start)
        self.on_agent_step_end = functions("on_agent_step_end", on_agent_step_end)
        self.on_model_start = functions("on_model_start", on_model_start)
        self.on_model_end = functions("on_model_end", on_model_end)
        self.on_tool_start = functions("on_tool_start", on_tool_start)
        self.on_tool_end = functions("on_tool_end", on_tool_end)
        # What a file gives that has no keyword: hooks made elsewhere, its variables, what it declares besides.
        self.attached: tuple[Hook, ...] = ()
        self.environ: Mapping[str, str] | None = None
        self.written: Declaration | None = None
        self._model: Model | None = None
        self._sessions: dict[str, Session] = {}
        self._in_use: dict[asyncio.AbstractEventLoop, Servers] = {}
        self._lists: list[list[Callable[..., Any]]] | None = None
        self._hooks: tuple[Hook, ...] = ()
        self.hooks()

    async def run(
        self,
        input: str | list[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        timeout: float | None = None,
        hooks: Iterable[Hook | Callable[..., Any]] = (),
        journal: Journal | None = None,
        watch: Iterable[Callable[[Record], None]] = (),
        approver: Approver | None = None,
        workspace: str | Path | None = None,
        run_id: str | None = None,
        source: str | None = None,
        owner: Owner | None = None,
        **provider_kwargs: Any,
    ) -> AgentResult:
        """The agent's answer to `input`; raises a RunEnded where there is none.

        `hooks` hold for every agent of the run, also those that are tools. Called from within a tool of
        another run, the agent is part of that run: under its hooks, in its session, on its record.
        """
        inside = INSIDE.get()
        if inside is not None:
            self._check_inside(
                session_id=session_id,
                user_id=user_id,
                journal=journal,
                watch=watch,
                approver=approver,
                workspace=workspace,
                run_id=run_id,
                source=source,
                owner=owner,
            )
            return await self._running_inside(inside, hooks, timeout, provider_kwargs).answer(input)
        running = self._running(
            session_id=session_id,
            user_id=user_id,
            timeout=timeout,
            hooks=hooks,
            journal=journal,
            watch=watch,
            approver=approver,
            workspace=workspace,
            run_id=run_id,
            source=source,
            owner=owner,
            provider_kwargs=provider_kwargs,
        )
        return await running.answer(input)

    def stream(
        self,
        input: str | list[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        timeout: float | None = None,
        hooks: Iterable[Hook | Callable[..., Any]] = (),
        journal: Journal | None = None,
        watch: Iterable[Callable[[Record], None]] = (),
        approver: Approver | None = None,
        workspace: str | Path | None = None,
        source: str | None = None,
        owner: Owner | None = None,
        **provider_kwargs: Any,
    ) -> StreamResult:
        """The same as `run`, as it happens. The same hooks, in the same order."""
        stream = StreamResult()
        inside = INSIDE.get()
        if inside is not None:
            self._check_inside(
                session_id=session_id,
                user_id=user_id,
                journal=journal,
                watch=watch,
                approver=approver,
                workspace=workspace,
                source=source,
                owner=owner,
            )
            within = self._running_inside(inside, hooks, timeout, provider_kwargs, stream.emit)
            stream.follow(asyncio.ensure_future(within.in_task(input)))
            return stream
        running = self._running(
            session_id=session_id,
            user_id=user_id,
            timeout=timeout,
            hooks=hooks,
            journal=journal,
            watch=watch,
            approver=approver,
            workspace=workspace,
            source=source,
            owner=owner,
            streaming=True,
            emit=stream.emit,
            provider_kwargs=provider_kwargs,
        )
        stream.follow(asyncio.ensure_future(running.answer(input)))
        return stream

    async def close_session(self, session_id: str) -> None:
        """The conversation is over: its session.end hooks run."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Close every session, the MCP servers and the model's connections."""
        for session_id in list(self._sessions):
            await self.close_session(session_id)
        servers = self._in_use.pop(asyncio.get_running_loop(), None)
        if servers is not None:
            await servers.close()
        if self._model is not None:
            await self._model.close()
            self._model = None

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def hooks(self) -> tuple[Hook, ...]:
        """Its own hooks, live, point by point in declared order."""
        lists = [functions(keyword, getattr(self, keyword)) for keyword in KEYWORDS]
        if lists != self._lists:
            points = KEYWORDS.values()
            self._hooks = tuple(
                python_hook(function, [point])
                for point, given in zip(points, lists, strict=True)
                for function in given
            )
            self._lists = lists
        return (*self.attached, *self._hooks) if self.attached else self._hooks

    def declaration(self, source: str = "") -> Declaration:
        """What it says, as pure data: for `explain`, and for the record of a run."""
        written = self.written or Declaration(format="polos", source=source)
        return replace(written, source=source, agent=self._declared(), timeout=self.timeout)

    def as_tool(self) -> Tool:
        """The agent as a tool of another: its scopes nest inside that tool call."""

        async def body(_ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
            result = await self.run(str(arguments.get("input", "")))
            return result.result

        return Tool(
            id=self.id,
            description=self.description or self.system_prompt or f"Ask the agent {self.id}.",
            parameters={
                "type": "object",
                "properties": {"input": {"type": "string", "description": "what the agent is asked"}},
                "required": ["input"],
            },
            body=body,
            kind="agent",
        )

    def _running(
        self,
        *,
        session_id: str | None,
        timeout: float | None,
        hooks: Iterable[Hook | Callable[..., Any]],
        journal: Journal | None,
        watch: Iterable[Callable[[Record], None]],
        approver: Approver | None,
        workspace: str | Path | None,
        run_id: str | None = None,
        **rest: Any,
    ) -> Running:
        run = Run(id=run_id, recorder=Recorder(journal, watch), approver=approver)
        where = str(workspace) if workspace is not None else self.workspace
        live = _live(hooks)
        return Running(
            spec=self._spec(),
            run=run,
            session=self._session(session_id, run.id),
            hooks=live,
            workspace=where,
            timeout=self._limit(timeout),
            declaration=self._frozen(rest.get("source") or "", live) if run.recorder.on else None,
            **rest,
        )

    def _running_inside(
        self,
        inside: Inside,
        hooks: Iterable[Hook | Callable[..., Any]],
        timeout: float | None,
        provider_kwargs: Mapping[str, Any],
        emit: Callable[[Event], None] | None = None,
    ) -> RunningInside:
        return RunningInside(
            spec=self._spec(),
            inside=inside,
            hooks=_live(hooks),
            timeout=self._limit(timeout),
            emit=emit,
            provider_kwargs=provider_kwargs,
        )

    def _check_inside(self, **given: Any) -> None:
        named = [name for name, value in given.items() if value is not None and value != ()]
        if named:
            raise UsageError(
                f"agent {self.id!r} is run inside another's tool, so {', '.join(named)} cannot be given:"
                " it is part of that run, its session and its record"
            )

    def _limit(self, timeout: float | None) -> float | None:
        return timeout if timeout is not None else self.timeout

    def _frozen(self, source: str, hooks: tuple[Hook, ...]) -> dict[str, Any]:
        return replace(
            self.declaration(source), hooks=tuple(hook_declaration(each) for each in hooks)
        ).to_dict()

    def _session(self, session_id: str | None, run_id: str) -> Session:
        if session_id is None:
            return Session(id=run_id)
        return self._sessions.setdefault(session_id, Session(id=session_id, lasts=True))

    def _spec(self) -> Spec:
        return Spec(
            id=self.id,
            model=self.live_model(),
            system_prompt=self.system_prompt,
            tools={each.id: each for each in self.tools},
            hooks=self.hooks(),
            stop_conditions=self.stop_conditions,
            output=self.output,
            temperature=self.temperature,
            top_p=self.top_p,
            max_output_tokens=self.max_output_tokens,
            provider_base_url=self.provider_base_url,
            listed=self._listed if self.servers else None,
        )

    async def _listed(self) -> Mapping[str, Tool]:
        """The tools of its MCP servers, which are opened here and stay open until the agent is closed."""
        from hookline.agent.mcp import Servers
        from hookline.runners.local import piped

        loop = asyncio.get_running_loop()
        if loop not in self._in_use:
            # What was opened on a loop that is gone has ended with it.
            self._in_use = {each: used for each, used in self._in_use.items() if not each.is_closed()}
            self._in_use[loop] = Servers(self.servers, piped)
        return await self._in_use[loop].tools(each.id for each in self.tools)

    def live_model(self) -> Model:
        """Its model, made on first use; an unknown provider or a missing key is told here."""
        if not isinstance(self.model, str):
            return self.model
        if self._model is None:
            self._model = model_named(
                self.provider,
                self.model,
                base_url=self.provider_base_url,
                environ=os.environ if self.environ is None else self.environ,
            )
        return self._model

    def _declared(self) -> AgentDeclaration:
        model = self.model
        return AgentDeclaration(
            name=self.id,
            provider=self.provider if isinstance(model, str) else model.provider,
            model=model if isinstance(model, str) else model.name,
            system_prompt=self.system_prompt,
            tools=(*(each.id for each in self.tools), *(f"mcp:{each.name}" for each in self.servers)),
            hooks=tuple(hook_declaration(each) for each in self.hooks()),
        )


def _live(hooks: Iterable[Hook | Callable[..., Any]]) -> tuple[Hook, ...]:
    return tuple(each if isinstance(each, Hook) else python_hook(each) for each in hooks)


def _conditions(given: StopCondition | Iterable[StopCondition]) -> tuple[StopCondition, ...]:
    conditions = (given,) if isinstance(given, StopCondition) else tuple(given)
    for each in conditions:
        if not isinstance(each, StopCondition):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"stop_conditions has {each!r}; decorate it with @stop_condition")
    return conditions


def _tools(given: Iterable[Any]) -> tuple[tuple[Tool, ...], tuple[McpServer, ...]]:
    made: dict[str, Tool] = {}
    servers: dict[str, McpServer] = {}
    for item in given:
        if isinstance(item, McpServer):
            if item.name in servers:
                raise UsageError(f"two MCP servers are called {item.name!r}")
            servers[item.name] = item
            continue
        if isinstance(item, str):
            each = ready_tool(item)
        elif isinstance(item, Tool):
            each = item
        elif isinstance(item, Agent):
            each = item.as_tool()
        elif callable(item):
            each = tool(item)
        else:
            raise UsageError(
                f"tools has {item!r}; each is a function, a Tool, an Agent, an McpServer"
                " or the name of a ready tool"
            )
        if each.id in made:
            raise UsageError(f"two tools are called {each.id!r}")
        made[each.id] = each
    return tuple(made.values()), tuple(servers.values())


def hook_declaration(hook: Hook) -> HookDeclaration:
    """A live hook as the record of a run keeps it."""
    return HookDeclaration(
        name=hook.name,
        points=tuple(sorted(hook.points)),
        kind=hook.kind,
        match=hook.match_text,
        timeout=hook.timeout,
        on_error=hook.on_error,
        mode=hook.mode,
        source=hook.source,
    )
