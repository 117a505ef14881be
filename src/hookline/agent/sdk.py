"""Agent, the class of the Python SDK: an agent with its hooks, and the methods to run it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from hookline.agent.mcp_server import McpServer
from hookline.agent.models import PROVIDER_SETTINGS, Model, OutputSchema, model_named
from hookline.agent.run import AgentExecution, Session, StreamResult, answer_inside
from hookline.agent.spec import CURRENT_RUN, AgentResult, Event, RunArguments, Spec, hook_declaration
from hookline.agent.stop import StopCondition, conditions_of
from hookline.agent.tools import Tool, bash_tool, ready_tool, schema_of, tool
from hookline.engine.context import AgentConfig, WorkflowContext
from hookline.engine.hook import AgentDeclaration, Declaration, Hook, seconds
from hookline.engine.lifecycle import Approver, Run
from hookline.engine.pipeline import Recorder
from hookline.engine.point import KEYWORDS
from hookline.engine.record import Journal, Owner, Record
from hookline.errors import UsageError, refuse_unknown
from hookline.handlers.python import python_hook
from hookline.secrets import INHERIT

if TYPE_CHECKING:
    from hookline.agent.mcp import Servers

Functions = Callable[..., Any] | Sequence[Callable[..., Any]] | None

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _takes_the_arguments_of(
    other: Callable[Concatenate[Agent, _P], Any],
) -> Callable[[Callable[..., _R]], Callable[Concatenate[Agent, _P], _R]]:
    """Gives a method the arguments of another one, for type checkers."""
    return lambda method: method


class Agent:
    """An agent and the hooks around it. Each hook list is an attribute, read again by every run."""

    def __init__(
        self,
        *,
        id: str,
        provider: str = "",
        model: str | Model = "",
        description: str = "",
        system_prompt: str | None = None,
        tools: Iterable[Any] = (),
        env: str | Iterable[str] = (),
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
        **unknown: Any,
    ) -> None:
        refuse_unknown("Agent", unknown, Agent.__init__)
        if not id or not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"an agent's id must be a non-empty text, not {id!r}")
        self.id = id
        self.provider = provider
        self.model = model
        self.description = description
        self.system_prompt = system_prompt
        self.env = _handed(env)
        self.tools, self.servers = _tools(tools, self.env)
        self.temperature = temperature
        self.top_p = top_p
        self.max_output_tokens = max_output_tokens
        self.provider_base_url = provider_base_url
        self.stop_conditions = conditions_of(stop_conditions)
        self.output = OutputSchema(output_schema) if output_schema is not None else None
        self.workspace = str(workspace) if workspace is not None else None
        self.timeout = seconds(timeout, f"agent {id!r}: ")
        self.on_run_start = _functions("on_run_start", on_run_start)
        self.on_run_end = _functions("on_run_end", on_run_end)
        self.on_session_start = _functions("on_session_start", on_session_start)
        self.on_session_end = _functions("on_session_end", on_session_end)
        self.on_start = _functions("on_start", on_start)
        self.on_end = _functions("on_end", on_end)
        self.on_agent_step_start = _functions("on_agent_step_start", on_agent_step_start)
        self.on_agent_step_end = _functions("on_agent_step_end", on_agent_step_end)
        self.on_model_start = _functions("on_model_start", on_model_start)
        self.on_model_end = _functions("on_model_end", on_model_end)
        self.on_tool_start = _functions("on_tool_start", on_tool_start)
        self.on_tool_end = _functions("on_tool_end", on_tool_end)
        # Set by a file's loader, without a keyword: live hooks, environment, declaration.
        self.attached: tuple[Hook, ...] = ()
        self.environ: Mapping[str, str] | None = None
        self.written: Declaration | None = None
        self._model: Model | None = None
        self._sessions: dict[str, Session] = {}
        self._in_use: dict[asyncio.AbstractEventLoop, Servers] = {}
        self._lists: list[list[Callable[..., Any]]] | None = None
        self._hooks: tuple[Hook, ...] = ()
        self.hooks()

    def run(
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
        emit: Callable[[Event], None] | None = None,
        provider_kwargs: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Coroutine[Any, Any, AgentResult]:
        """The agent's answer to `input`; raises a RunEnded if there is none.

        `hooks` apply to every agent of the run, including those that are tools. `emit` is called with each event.
        `settings` are those of PROVIDER_SETTINGS; any other goes to the provider in `provider_kwargs`.
        Called inside a tool of another run, the agent is part of that run: under its hooks, in its session, in its
        journal.
        """
        other = {name: value for name, value in settings.items() if name not in PROVIDER_SETTINGS}
        refuse_unknown(f"agent {self.id!r}: run", other, Agent.run)
        arguments = RunArguments(
            hooks=tuple(each if isinstance(each, Hook) else python_hook(each) for each in hooks),
            timeout=self.timeout if timeout is None else seconds(timeout, f"agent {self.id!r}: "),
            provider_kwargs={**(provider_kwargs or {}), **settings},
            emit=emit,
        )
        inside = CURRENT_RUN.get()
        if inside is not None:
            _refuse_in_tool(
                self.id,
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
            return answer_inside(inside, self._spec(), arguments, input, in_task=emit is not None)
        spec, recorder = self._spec(), Recorder(journal, watch)
        own = Run(id=run_id, recorder=recorder, approver=approver)
        session = Session(id=own.id)
        if session_id is not None:
            session = self._sessions.setdefault(session_id, Session(id=session_id, lasts=True))
        declared = None
        if recorder.on:
            live = tuple(hook_declaration(each) for each in arguments.hooks)
            declared = replace(self.declaration(source or ""), hooks=live).to_dict()
        folder = workspace if workspace is not None else self.workspace
        execution = AgentExecution(
            spec=spec,
            run=own,
            session=session,
            arguments=arguments,
            workspace=os.path.abspath(folder) if folder is not None else None,
            user_id=user_id,
            recorded={"declaration": declared, "source": source, "owner": owner},
        )
        keep = getattr(journal, "keep", None) if owner is not None else None
        return execution.answer(input) if keep is None else self._kept(execution, input, keep)

    async def _kept(self, execution: AgentExecution, input: Any, keep: Callable[..., None]) -> AgentResult:
        """The answer of a run whose end hooks are kept with its beginning, for a crash."""
        from hookline.journal.snapshot import snapshot

        source, given = execution.recorded["source"], execution.arguments.hooks
        keep(
            execution.run.id,
            snapshot(given, self.hooks(), source=source, workspace=execution.workspace),
        )
        return await execution.answer(input)

    @_takes_the_arguments_of(run)
    def stream(self, input: str | list[Mapping[str, Any]], **given: Any) -> StreamResult:
        """Like `run`, as a stream of events; the same hooks run in the same order."""
        return StreamResult(lambda emit: self.run(input, emit=emit, **given))

    async def close_session(self, session_id: str) -> None:
        """Ends a conversation: its session.end hooks run."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()

    async def close(self) -> None:
        """Closes all sessions, the MCP servers and the model's connections."""
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
        """The agent's own hooks, point by point in declared order."""
        lists = [_functions(keyword, getattr(self, keyword)) for keyword in KEYWORDS]
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
        """The declaration as pure data: for `explain`, and for the record of a run."""
        model = self.model
        agent = AgentDeclaration(
            name=self.id,
            provider=self.provider if isinstance(model, str) else model.provider,
            model=model if isinstance(model, str) else model.name,
            system_prompt=self.system_prompt,
            tools=(*(each.id for each in self.tools), *(f"mcp:{each.name}" for each in self.servers)),
            hooks=tuple(hook_declaration(each) for each in self.hooks()),
        )
        written = self.written or Declaration(format="polos", source=source)
        return replace(written, source=source, agent=agent, timeout=self.timeout)

    def as_tool(self) -> Tool:
        """The agent as a tool of another: its scopes nest inside that tool call."""

        async def body(_ctx: WorkflowContext, arguments: dict[str, Any]) -> Any:
            return (await self.run(str(arguments.get("input", "")))).answer

        return Tool(
            id=self.id,
            description=self.description or self.system_prompt or f"Ask the agent {self.id}.",
            parameters=schema_of(("input",), input=("string", "what the agent is asked")),
            body=body,
            kind="agent",
        )

    def _spec(self) -> Spec:
        model = self.live_model()
        config = AgentConfig(
            name=self.id,
            provider=model.provider,
            model=model.name,
            system_prompt=self.system_prompt,
            temperature=self.temperature,
            top_p=self.top_p,
            max_output_tokens=self.max_output_tokens,
            provider_base_url=self.provider_base_url,
            output_schema_name=self.output.name if self.output else None,
        )
        return Spec(
            config=config,
            model=model,
            tools={each.id: each for each in self.tools},
            hooks=self.hooks(),
            stop_conditions=self.stop_conditions,
            output=self.output,
            listed=self._listed if self.servers else None,
        )

    async def _listed(self) -> Mapping[str, Tool]:
        """The tools of its MCP servers, which are opened here and stay open until `close`."""
        for server in self.servers:
            server.need_package()
        from hookline.agent.mcp import Servers

        loop = asyncio.get_running_loop()
        if loop not in self._in_use:
            # Servers of a closed event loop ended with it.
            self._in_use = {each: used for each, used in self._in_use.items() if not each.is_closed()}
            self._in_use[loop] = Servers(self.servers)
        return await self._in_use[loop].tools(each.id for each in self.tools)

    def live_model(self) -> Model:
        """The model, created on first use; raises for an unknown provider or a missing key."""
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


def _refuse_in_tool(agent: str, **given: Any) -> None:
    """Raises if an agent inside another's tool is given what it takes from the run it is part of."""
    named = [name for name, value in given.items() if value not in (None, ())]
    if named:
        raise UsageError(
            f"agent {agent!r} is run inside another's tool, so {', '.join(named)} cannot be given:"
            " it is part of that run, its session and its record"
        )


def _handed(env: str | Iterable[str]) -> str | tuple[str, ...]:
    """An agent's `env`: the names in it, or the word for all."""
    if env == INHERIT:
        return INHERIT
    names = tuple(env)
    if isinstance(env, str) or not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"env is {env!r}; give a list of names of variables, or {INHERIT!r}")
    return names


def _tools(
    given: Iterable[Any], env: str | tuple[str, ...]
) -> tuple[tuple[Tool, ...], tuple[McpServer, ...]]:
    made: dict[str, Tool] = {}
    servers: dict[str, McpServer] = {}
    for item in given:
        if isinstance(item, McpServer):
            if item.name in servers:
                raise UsageError(f"two MCP servers are called {item.name!r}")
            servers[item.name] = item
            continue
        if isinstance(item, str):
            each = bash_tool(handed=env) if item == "bash" and env else ready_tool(item)
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


def _functions(keyword: str, given: Any) -> list[Callable[..., Any]]:
    """The functions given to a keyword, as a list: none, one, or several."""
    if given is None:
        return []
    if callable(given):
        return [given]
    if not isinstance(given, list | tuple):
        raise UsageError(
            f"Invalid hooks type: {keyword} is {type(given).__name__}; give a list of functions, or one function"
        )
    for item in cast("Iterable[Any]", given):
        if not callable(item):
            raise UsageError(f"Invalid hook type: {keyword} has {item!r}; each must be a function")
    return list(cast("Iterable[Callable[..., Any]]", given))
