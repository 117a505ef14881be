"""Many agents at once, ten hooks each, on a scripted model: are time and memory in proportion to their number?

Each number of agents gets a process of its own, so that the memory is theirs alone.
"""

import asyncio
import json
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

COUNTS = (10, 100, 1000)
HOOKS = 10
TURNS = 3


def agent_costs() -> list[dict[str, Any]]:
    """CPU milliseconds and KiB per agent, for every number of agents; the ratio is to the smallest number."""
    found = [_measured(count) for count in COUNTS]
    least = found[0]
    for line in found:
        line["ratio"] = round(line["ms_each"] / least["ms_each"], 2)
    return found


def _measured(count: int) -> dict[str, Any]:
    command = [sys.executable, "-W", "ignore", Path(__file__).resolve(), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def _together(count: int) -> dict[str, Any]:
    from hookline import Agent, HookResult, MemoryJournal, Scripted, tool

    async def noop(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.continue_with()

    @tool
    async def add(x: int) -> int:
        """Add one."""
        await asyncio.sleep(0)
        return x + 1

    script = [{"tools": [{"name": "add", "arguments": {"x": 1}}]}] * TURNS + ["done"]

    def made(number: int) -> Agent:
        lists = ("on_start", "on_end", "on_agent_step_start", "on_agent_step_end", "on_model_start")
        lists += ("on_model_end", "on_tool_start", "on_tool_end", "on_run_start", "on_run_end")
        hooks: dict[str, Any] = {name: [noop] for name in lists[:HOOKS]}
        return Agent(id=f"agent-{number}", model=Scripted(script), tools=[add], **hooks)

    async def main(number: int) -> None:
        journal = MemoryJournal(payloads=False)
        agents = [made(index) for index in range(number)]
        results = await asyncio.gather(*(agent.run("go", journal=journal) for agent in agents))
        assert all(result.result == "done" for result in results)

    asyncio.run(main(1))  # imports and caches are not an agent's own
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    asyncio.run(main(count))
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {
        "agents": count,
        "hooks": HOOKS,
        "turns": TURNS,
        "ms_each": round(cpu / count * 1e3, 3),
        "wall_s": round(wall, 3),
        "kib_each": round(kib / count, 1),
    }


if __name__ == "__main__":
    print(json.dumps(_together(int(sys.argv[1]))))
