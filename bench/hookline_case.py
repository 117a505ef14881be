"""hookline itself, printed like a peer (measure.py has the lines).

`points` fires tool.start and tool.end at hook functions as a user writes them, with {"x": 1} as the tool's input, and
makes the context of a point each time, as an agent does. targets.py looks for the names in CASES.
"""

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import Any

import bare
from hookline import Agent, Scripted, tool
from hookline.engine.context import Facts, HookContext
from hookline.engine.hook import hook
from hookline.engine.pipeline import Pipeline, Recorder
from hookline.engine.point import Point
from hookline.engine.result import HookResult
from hookline.handlers.python import python_hook
from hookline.journal.sqlite import SqliteJournal
from measure import DISPATCH, UP_TO_1000, Case, measure
from timing import Run

TURNS = 5
FOLDER = Path(tempfile.mkdtemp(prefix="hookline-bench-"))
NUMBERS = count()

Function = Callable[..., Any]
Fire = Callable[[], Awaitable[Any]]


def points(functions: list[Function], journal: SqliteJournal | None) -> tuple[Fire, Fire]:
    hooks = [python_hook(function, (Point.TOOL_START, Point.TOOL_END)) for function in functions]
    fire = Pipeline(hooks, Recorder(journal)).fire
    facts = Facts(workflow_id="bench", run_id="bench", scope_id="1", agent="bench", current_tool="add")

    async def start() -> None:
        await fire(HookContext.of(facts.at(Point.TOOL_START), {"x": 1}, None))

    async def end() -> None:
        await fire(HookContext.of(facts.at(Point.TOOL_END), {"x": 1}, 2))

    return start, end


async def noop(ctx: Any, hook_context: Any) -> HookResult:
    return HookResult.continue_with()


GO_ON = HookResult.continue_with()


async def bare_noop(ctx: Any, hook_context: Any) -> HookResult:
    """As little as a hook of ours can do, beside peers whose hooks return None; None would be an error here."""
    return GO_ON


def inline_noop(ctx: Any, hook_context: Any) -> HookResult:
    return HookResult.continue_with()


def threaded_noop(ctx: Any, hook_context: Any) -> HookResult:
    return HookResult.continue_with()


def with_hooks(function: Function, *, recorded: bool = False) -> Callable[[int], Run]:
    def make(n: int) -> Run:
        journal = SqliteJournal(FOLDER / f"{next(NUMBERS)}.db") if recorded else None
        start, end = points([function] * n, journal)

        async def run(calls: int) -> None:
            for _ in range(calls):
                await start()
                await bare.tool(1)
                await end()
            if journal is not None:
                journal.flush()

        return run

    return make


@tool
async def add(x: int) -> int:
    """Add one."""
    return x + 1


def agent(function: Function) -> Callable[[int], Run]:
    """The built-in agent, with hooks before and after its tool: its own loop, as the frameworks have theirs."""

    def turn(request: Any) -> Any:
        calls = sum(message["role"] == "assistant" for message in request.messages) < TURNS
        return {"tools": [{"name": "add", "arguments": {"x": 1}}]} if calls else "done"

    def make(n: int) -> Run:
        made = Agent(
            id="bench",
            model=Scripted([turn], repeat=True),
            tools=[add],
            on_tool_start=[function] * n,
            on_tool_end=[function] * n,
        )

        async def run(calls: int) -> None:
            for _ in range(calls // TURNS):
                await made.run("go")

        return run

    return make


CASES = (
    Case("async", with_hooks(noop), (noop,), DISPATCH, limited=True),
    Case("async, one result for all", with_hooks(bare_noop), (bare_noop,), DISPATCH, limited=True),
    Case(
        "async, recorded",
        with_hooks(noop, recorded=True),
        (noop,),
        DISPATCH,
        limited=True,
        note="every call and every outcome goes to the SQLite journal, masked; the writing is in the figure",
    ),
    Case("sync, inline", with_hooks(hook(inline=True)(inline_noop)), (inline_noop,), DISPATCH),
    Case(
        "sync, in a thread",
        with_hooks(threaded_noop),
        (threaded_noop,),
        DISPATCH,
        hooks=(1, 10),
        limited=True,
        threaded=True,
    ),
    Case("agent's tool hooks", agent(noop), (noop,), hooks=UP_TO_1000, step=TURNS, limited=True),
    Case(
        "agent's tool hooks, one result",
        agent(bare_noop),
        (bare_noop,),
        hooks=UP_TO_1000,
        step=TURNS,
        limited=True,
    ),
)

if __name__ == "__main__":
    try:
        measure("hookline", CASES, ("hookline",), same=noop)
    finally:
        shutil.rmtree(FOLDER)
