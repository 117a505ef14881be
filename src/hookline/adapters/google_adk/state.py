"""Where in ADK's work we are: conversation, turn (one run), the frame of each agent at work in it, its tool calls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from hookline.adapters.google_adk.messages import Piece, content, text_of, with_text
from hookline.adapters.google_adk.protocols import ForeignAgent, Invocation, LlmRequest, ToolContext
from hookline.agent.models import Reply
from hookline.agent.output import AgentResult
from hookline.engine.context import AgentConfig, Facts, Step, ToolResult, Usage, WorkflowContext
from hookline.engine.hook import Mode
from hookline.engine.lifecycle import OpenScope, Run
from hookline.engine.pipeline import Pipeline
from hookline.engine.point import Point, Scope, Status
from hookline.engine.record import Decided, Journal, Owner, Question
from hookline.engine.result import HookAction, Outcome
from hookline.errors import HooklineError, RunEnded

__all__ = [
    "WITHIN",
    "Batch",
    "Call",
    "Conversation",
    "Frame",
    "Paused",
    "Pending",
    "Turn",
    "Waits",
    "cause",
    "entered",
]

WITHIN: ContextVar[Call | None] = ContextVar("hookline_adk_within", default=None)
"""The tool call whose body runs here: an agent that starts inside it is part of that call's run."""


class Waits(StrEnum):
    """What a paused call waits for, by the name of ADK's own list of those."""

    DECISION = "requested_tool_confirmations"
    CREDENTIAL = "requested_auth_configs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A call that is to come again: what its start hooks made of it, and the question, where that is ours."""

    tool: str
    given: dict[str, Any]
    outcome: Outcome
    waits: Waits
    question: str | None = None


@dataclass(slots=True, kw_only=True)
class Conversation:
    """One ADK session, as long as we know it."""

    id: str
    user_id: str
    scope: OpenScope | None = None
    told: list[str] = field(default_factory=list[str])
    untold: list[str] = field(default_factory=list[str])
    rewritten: dict[str, str] = field(default_factory=dict[str, str])
    paused: dict[str, Paused] = field(default_factory=dict[str, Paused])
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class Turn:
    """One run of a Runner, or what an AgentTool runs inside a tool call of another."""

    def __init__(
        self,
        *,
        invocation: Invocation,
        run: Run,
        pipeline: Pipeline,
        conversation: Conversation,
        within: Call | None = None,
        workspace: str | None = None,
        implied: bool = False,
    ) -> None:
        self._configs: dict[str, AgentConfig] = {}
        self.invocation = invocation
        self.run = run
        self.pipeline = pipeline
        self.conversation = conversation
        self.within = within
        self.workspace = workspace
        self.implied = implied
        # A workflow as the root is no agent, and goes by the name of its app.
        own: str = getattr(invocation.agent, "name", None) or invocation.session.app_name
        self.root = within.frame.turn.root if within else own
        self.scope: OpenScope = (
            within.scope if within else self.open(Scope.RUN, invocation.agent, name=self.root)
        )
        self.frames: dict[int, Frame] = {}
        self.notices: list[str] = within.frame.turn.notices if within else []
        self.tools: dict[str, str | None] = within.frame.turn.tools if within else {}
        self.rewritten: dict[str, str] = {} if within else conversation.rewritten
        """What hooks made of a user's input, by the input; ADK keeps the original and shows it to us again."""
        self.texts: dict[str, str] = {}
        self.result: str | None = None
        self.status = Status.OK
        self.stopped: str | None = None
        """What the run ends with at once, where a hook skipped it."""

    def open(
        self,
        scope: Scope,
        agent: ForeignAgent | None,
        *,
        name: str,
        parent: OpenScope | None = None,
        parents: tuple[str, ...] = (),
        steps: tuple[Step, ...] = (),
        step: int | None = None,
        tool: str | None = None,
        tool_kind: str | None = None,
        call_id: str | None = None,
        aliases: Mapping[str, str] | None = None,
    ) -> OpenScope:
        """A scope of this run, not entered yet."""
        who = getattr(agent, "name", None) or self.root
        config = self._configs.get(who) or self._configs.setdefault(who, _config(agent, who))
        facts = Facts(
            workflow_id=who,
            run_id=self.run.id,
            scope_id=self.run.next_id(),
            call_id=call_id,
            step=step,
            agent=who,
            parents=parents,
            session_id=self.conversation.id,
            user_id=self.conversation.user_id,
            agent_config=config,
            steps=steps,
            current_tool=tool,
            tool_kind=tool_kind,
            workflow=self._workflow(who, config),
            aliases=aliases,
        )
        return OpenScope(self.run, self.pipeline, scope, facts, name=name, parent=parent)

    def note(self, outcome: Outcome) -> None:
        self.notices.extend(outcome.tell_user)

    def say_what_matched_nothing(self) -> None:
        """A guard whose match fits no call is as good as none; better said in the run than found out after."""
        if not self.run.recorder.on or not self.tools:
            return
        facts = [
            Facts(workflow_id=self.root, current_tool=name, tool_kind=kind)
            for name, kind in self.tools.items()
        ]
        called = ", ".join(sorted(self.tools))
        for hook in self.pipeline.matching:
            if hook.match is None or hook.name in self.pipeline.matched or any(map(hook.match, facts)):
                continue
            text = f"hook {hook.name}: match {hook.match_text!r} fitted no tool call of this run ({called})"
            self.run.recorder.note(
                Decided(self.run.id, "", Point.RUN_END, time.time(), HookAction.CONTINUE, note=text)
            )

    def answer(self) -> AgentResult:
        """What came of the run, in the form that hooks of the built-in agent see."""
        frames = list(self.frames.values())
        return AgentResult(
            agent_run_id=self.run.id,
            result=self.result,
            tool_results=tuple(each for frame in frames for each in frame.all_results),
            total_steps=sum(len(frame.steps) for frame in frames),
            usage=sum((step.usage for frame in frames for step in frame.steps), Usage()),
            session_id=self.conversation.id,
        )

    def _workflow(self, who: str, config: AgentConfig) -> WorkflowContext:
        nested = self.within is not None
        return WorkflowContext(
            workflow_id=who,
            execution_id=self.run.id,
            session_id=self.conversation.id,
            user_id=self.conversation.user_id,
            parent_execution_id=self.run.id if nested else None,
            root_execution_id=self.run.id,
            root_workflow_id=self.root,
            created_at=time.time(),
            workspace=self.workspace,
            state=self.run.state,
            agent_id=who,
            provider=config.provider,
            model=config.model,
            system_prompt=config.system_prompt,
            tools=config.tools,
        )


class Frame:
    """One agent at work: its scope, the step it is in, and what hooks told it."""

    def __init__(
        self,
        turn: Turn,
        invocation: Invocation,
        agent: ForeignAgent,
        parent: Frame | None,
    ) -> None:
        self.is_node = not hasattr(agent, "run_async")
        """Whether no agent is at work but a tool that is a node of a workflow."""
        self.turn = turn
        self.invocation = invocation
        self.agent = agent
        self.parent = parent
        self.parents = self._chain(turn, parent)
        above = parent.scope if parent is not None else turn.scope
        self.scope = turn.open(
            Scope.AGENT,
            agent,
            name=agent.name,
            parent=above,
            parents=self.parents,
            aliases={"prompt": "input"},
        )
        self.over = False
        self.step: OpenScope | None = None
        self.model: OpenScope | None = None
        self.request: LlmRequest | None = None
        self.shown: tuple[list[int], list[Piece]] | None = None
        self.reply = Reply()
        self.refusals = 0
        self.batch: Batch | None = None
        self.calls: dict[int, Call] = {}
        self.results: list[ToolResult] = []
        self.all_results: list[ToolResult] = []
        self.steps: list[Step] = []
        self.untold: list[str] = []
        self._notes: list[tuple[int, str]] = []
        self._length = 0

    @property
    def journal(self) -> Journal | None:
        return self.turn.run.recorder.journal

    def open(self, scope: Scope, *, name: str, parent: OpenScope | None = None, **more: Any) -> OpenScope:
        """A scope inside this agent."""
        return self.turn.open(
            scope,
            self.agent,
            name=name,
            parent=parent or self.step or self.scope,
            parents=self.parents,
            steps=tuple(self.steps),
            step=more.pop("step", len(self.steps) + 1 if self.step is not None else None),
            **more,
        )

    def may_change(self, point: Point) -> bool:
        return any(hook.mode is Mode.ENFORCE for hook in self.turn.pipeline.at(point))

    def answer(self) -> AgentResult:
        text = self.turn.texts.get(self.agent.name) or self.reply.text
        return AgentResult(
            agent_run_id=self.turn.run.id,
            result=text,
            tool_results=tuple(self.all_results),
            total_steps=len(self.steps),
            usage=sum((step.usage for step in self.steps), Usage()),
            session_id=self.turn.conversation.id,
        )

    def complete(self, request: LlmRequest) -> None:
        """Add what hooks have told the model so far; ADK builds every request anew from its own record."""
        rewritten = self.turn.rewritten
        for index, each in enumerate(request.contents) if rewritten else ():
            text = text_of(each)
            if each.role == "user" and text in rewritten:
                request.contents[index] = with_text(each, rewritten[text])
        told = self.turn.conversation.told if self.turn.within is None else ()
        notes = [*((0, text) for text in told), *self._notes]
        self._length = len(request.contents)
        for index, text in reversed(notes):
            request.contents.insert(min(index, self._length), content(text))
        untold, self.untold = self.untold, []
        self.tell(request, untold)

    def tell(self, request: LlmRequest, texts: Any) -> None:
        """Say it in this request and at the same place in those that follow."""
        for text in texts:
            request.contents.append(content(text))
            self._notes.append((self._length, text))

    @staticmethod
    def _chain(turn: Turn, parent: Frame | None) -> tuple[str, ...]:
        if parent is not None:
            return (*parent.parents, parent.agent.name)
        if turn.within is not None:
            caller = turn.within.frame
            return (*caller.parents, caller.agent.name)
        return ()


class Pending(HooklineError):
    """A person is asked by ADK's own means, and the call comes again with the answer."""

    def __init__(self, question: Question) -> None:
        super().__init__("a person has to decide")
        self.question = question


class Call:
    """One tool call on its way."""

    def __init__(self, frame: Frame, scope: OpenScope, context: ToolContext) -> None:
        self.frame = frame
        self.scope = scope
        self.context = context
        self.id = context.function_call_id or ""
        self.given: dict[str, Any] = {}
        self.known = True
        self.runs = False
        self.back = False
        self.over = False
        self.task = asyncio.current_task()
        self.told: list[str] = []
        self.outer = WITHIN.get()
        # An AgentTool and a node of a workflow do not take up again what a callback paused.
        self.can_pause = self.outer is None and not frame.is_node

    @property
    def awaited(self) -> bool:
        """Whether its body is still to come back."""
        return (
            self.runs and not self.back and not self.over and not (self.task is not None and self.task.done())
        )

    @property
    def gone(self) -> bool:
        """Whether nothing more is to be expected of it."""
        return self.over or not self.runs or (self.task is not None and self.task.done())


class Batch:
    """The calls of one step."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.failed: BaseException | None = None
        self._starting = 0
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()

    @property
    def through(self) -> bool:
        return not self._starting and all(call.gone for call in self.calls)

    async def start(self, call: Call, enter: Callable[[], Any]) -> Any:
        """Run its start hooks in its turn; return when those of every call of the step have run."""
        self.calls.append(call)
        if call.task is not None:
            call.task.add_done_callback(lambda _: self.move())
        self._starting += 1
        try:
            # The tasks of a step are made together: after one round of the loop, all of them are here.
            await asyncio.sleep(0)
            async with self._turn:
                if self.failed is not None:
                    raise self.failed
                outcome: Outcome = await enter()
            call.runs = outcome.action is not HookAction.BLOCK
            call.back = outcome.action is HookAction.ANSWER
        except Pending:
            raise
        except BaseException as exc:
            self.failed = self.failed or exc
            raise
        finally:
            self._starting -= 1
            self.move()
        try:
            await self._until(lambda: not self._starting)
            if self.failed is not None:
                raise self.failed
        except BaseException:
            call.runs = False
            raise
        return outcome

    async def turn_to_end(self, call: Call) -> None:
        """Return when every body of the step is back and the calls before this one have ended."""
        before = self.calls[: self.calls.index(call)]
        await self._until(lambda: not any(each.awaited for each in self.calls))
        await self._until(lambda: all(each.gone for each in before))

    async def abandoned(self, exc: BaseException | None) -> None:
        """End the calls whose result ADK did not show us."""
        for call in self.calls:
            if call.runs and not call.over:
                call.over = True
                if call.frame.is_node and exc is None:
                    # A node of a workflow that waits for a person says nothing to the callbacks after it.
                    await call.scope.drop("a person has to decide first")
                elif exc is not None:
                    await call.scope.left_after(exc)
                else:
                    why = "another plugin took the tool's result before hookline saw it"
                    await call.scope.leave(None, Status.OK, error=why)

    def move(self) -> None:
        self._moved.set()

    async def _until(self, reached: Callable[[], bool]) -> None:
        while not reached():
            self._moved.clear()
            await self._moved.wait()


async def entered(
    scope: OpenScope,
    payload: Any,
    *,
    silent: bool = False,
    declaration: dict[str, Any] | None = None,
    owner: Owner | None = None,
) -> Outcome:
    """Enter a scope; what ends the run is raised when the scope is closed again.

    `silent`: its start hooks have spoken before, or have nothing to say to what cannot run.
    """
    pipeline = scope.pipeline
    if silent:
        scope.pipeline = Pipeline((), scope.run.recorder)
    try:
        outcome = await scope.enter(payload, declaration=declaration, owner=owner)
        scope.raise_if_over(outcome, Point.start_of(scope.scope))
    except BaseException as exc:
        await scope.left_after(exc)
        raise
    finally:
        scope.pipeline = pipeline
    return outcome


def cause(error: BaseException) -> BaseException:
    """What a hook said, taken out of what ADK wrapped around it."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, RunEnded):
            return inner
        inner = inner.__cause__
    return error


def _config(agent: Any, name: str) -> AgentConfig:
    model = getattr(agent, "model", None)
    instruction = getattr(agent, "instruction", None)
    tools = (
        getattr(each, "name", None) or getattr(each, "__name__", "")
        for each in getattr(agent, "tools", None) or ()
    )
    return AgentConfig(
        name=name,
        provider="google-adk",
        model=model if isinstance(model, str) else str(getattr(model, "model", "")),
        tools=tuple(filter(None, tools)),
        system_prompt=instruction if isinstance(instruction, str) and instruction else None,
    )
