"""A run that is killed at some moment. What really happened goes to a file of its own, line by line, at once."""

import asyncio
import os
import sys
import time

from hookline import Agent, HookResult, MaxStepsConfig, Scripted, SqliteJournal, hook, max_steps, tool
from hookline.journal.recovery import owner

STEPS = 60


def said(*words):
    line = " ".join([f"{time.time():.6f}", *map(str, words)])
    os.write(TRUTH, f"{line}\n".encode())


TRUTH = os.open(os.environ["TRUTH"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


@hook
async def at_once(ctx, c):
    said("hook", c.point, c.scope_id, "at_once")
    return HookResult.continue_with()


@hook
def in_a_thread(ctx, c):
    said("hook", c.point, c.scope_id, "in_a_thread")
    return HookResult.continue_with()


@hook
async def waits(ctx, c):
    await asyncio.sleep(0.001)
    said("hook", c.point, c.scope_id, "waits")
    return HookResult.continue_with(tell_user="x")


@hook
async def run_ends(ctx, c):
    said("run.end", c.run_id, c.status)
    return HookResult.continue_with()


@tool
async def work(number: int) -> str:
    said("body", number)
    await asyncio.sleep(0.001)
    return "done"


def turn(request):
    number = len(request.messages)
    said("model", number)
    return {"tools": [{"name": "work", "arguments": {"number": number}}] * 2}


agent = Agent(
    id="victim",
    model=Scripted([turn], repeat=True),
    tools=[work],
    stop_conditions=[max_steps(MaxStepsConfig(count=STEPS))],
    on_run_start=[at_once],
    on_run_end=[run_ends],
    on_session_start=[at_once],
    on_start=[at_once, in_a_thread],
    on_agent_step_start=[at_once],
    on_agent_step_end=[waits],
    on_model_start=[at_once],
    on_model_end=[in_a_thread],
    on_tool_start=[at_once],
    on_tool_end=[waits, at_once],
    on_end=[at_once],
)


async def main():
    journal = SqliteJournal(sys.argv[1])
    print("ready", flush=True)
    await agent.run("go", journal=journal, source=f"{os.path.abspath(__file__)}:agent", owner=owner())
    journal.close()


if __name__ == "__main__":
    asyncio.run(main())
