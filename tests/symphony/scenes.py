"""What tests of hooks and attempts are made of: a WORKFLOW.md in a string, an issue, real shells."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

from hookline.symphony.agents import AgentPlace, TurnFailed
from hookline.symphony.read import Workflow, read
from hookline.symphony.trackers import Issue

ISSUE = Issue(
    id="u-1", identifier="ABC-123", title="Mend the fence", state="Todo", url="https://x.test/ABC-123"
)
PATH = "/usr/local/bin:/usr/bin:/bin"


def workflow(folder: Path, prompt: str = "Do {{ issue.identifier }}.", **sections: Any) -> Workflow:
    """A WORKFLOW.md with these hooks and settings; `hooks` are scripts by name."""
    lines: list[str] = [f"workspace:\n  root: {folder / 'ws'}"]
    for name, values in sections.items():
        lines.append(f"{name}:")
        for key, value in values.items():
            text = f"|\n{indent(value, '    ')}" if isinstance(value, str) and name == "hooks" else value
            lines.append(f"  {key}: {text}")
    text = "---\n" + "\n".join(lines) + f"\n---\n{prompt}\n"
    file = folder / "WORKFLOW.md"
    file.write_text(text)
    return read(text, file, {}).checked()


class Current:
    """The configuration of the moment, which a test may change while something runs."""

    def __init__(self, first: Workflow) -> None:
        self.workflow = first

    def __call__(self) -> Workflow:
        return self.workflow

    def hooks(self) -> Any:
        return self.workflow.hooks

    def change(self, **hooks: Any) -> None:
        self.workflow = replace(self.workflow, hooks=replace(self.workflow.hooks, **hooks))


async def until(claim: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait for something to become true; how long that takes is no matter of the test."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = claim()
        if found:
            return found
        await asyncio.sleep(0.01)
    raise AssertionError(f"it never became true: {claim}")


class Scripted:
    """A coding agent that does what a test says: `turns` are called one after another with the session's place."""

    def __init__(
        self, *turns: Callable[[AgentPlace, str], Awaitable[str]], opens: Exception | None = None
    ) -> None:
        self.turns = turns
        self.opens = opens
        self.places: list[AgentPlace] = []
        self.prompts: list[str] = []
        self.closed = 0

    def __call__(self, place: AgentPlace) -> "ScriptedSession":
        return ScriptedSession(self, place)


class ScriptedSession:
    id = "s-1"

    def __init__(self, agent: Scripted, place: AgentPlace) -> None:
        self._agent = agent
        self._place = place
        self._turns = iter(agent.turns)

    async def open(self) -> None:
        if self._agent.opens is not None:
            raise self._agent.opens
        self._agent.places.append(self._place)

    async def turn(self, prompt: str) -> str:
        self._agent.prompts.append(prompt)
        take = next(self._turns, None)
        return await take(self._place, prompt) if take else "done"

    async def close(self) -> None:
        self._agent.closed += 1


async def works(place: AgentPlace, _prompt: str) -> str:
    Path(place.workspace, "work").write_text("done")
    return "worked"


async def fails(_place: AgentPlace, _prompt: str) -> str:
    raise TurnFailed("the model is gone", kind="turn_failed")


async def falls_silent(_place: AgentPlace, _prompt: str) -> str:
    raise TurnFailed("nothing was heard for 5 s", kind="turn_timeout")


async def hangs(place: AgentPlace, _prompt: str) -> str:
    Path(place.workspace, "hanging").touch()
    await asyncio.Event().wait()
    return "never"
