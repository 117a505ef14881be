"""What a command hook costs, JSON both ways: by our runner and by `subprocess.run`; a Python one cold and warm.

Wall time, the median of many interleaved calls: most of it is spent in other processes.
"""

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

COLD, WARM, COMMAND, BARE = "a Python command, cold", "a Python command, warm", "a command", "subprocess.run"
AGAIN = "warm, again at once"  # before the next fork had time to get ready
# What is measured, and what its ratio is to.
SCALES = {BARE: BARE, COMMAND: BARE, COLD: COLD, WARM: COLD, AGAIN: COLD}
INPUT = json.dumps({"hook_event_name": "PreToolUse", "tool_input": {"command": "ls " * 100}}).encode()
SCRIPT = """\
import json
import sys

event = json.load(sys.stdin)
print(json.dumps({"continue": True, "seen": len(event)}))
"""


def command_costs(rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of a call, and the ratio to the one it is compared with."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "hook.py")
        script.write_text(SCRIPT)
        ms = asyncio.run(_medians(str(script), rounds))
    return [
        {"what": what, "ms": round(ms[what], 2), "ratio": round(ms[what] / ms[scale], 3), "scale": scale}
        for what, scale in SCALES.items()
    ]


async def _medians(script: str, rounds: int) -> dict[str, float]:
    from hookline.runners import Order
    from hookline.runners.local import LocalRunner
    from hookline.runners.warm import WarmRunner

    env = dict(os.environ)
    local = LocalRunner()
    warm = WarmRunner(local, preload=["json"])
    true = Order(argv=("true",), env=env, stdin=INPUT)
    hook = Order(argv=(sys.executable, script), env=env, stdin=INPUT)

    def plain() -> int:
        return subprocess.run(["true"], input=INPUT, capture_output=True, env=env, check=False).returncode

    async def bare() -> int:
        return plain()

    async def code(run: Awaitable[Any]) -> int | None:
        return (await run).exit_code

    ways: dict[str, Callable[[], Awaitable[int | None]]] = {
        BARE: bare,
        COMMAND: lambda: code(local.run(true)),
        COLD: lambda: code(local.run(hook)),
        WARM: lambda: code(warm.run(hook)),
        AGAIN: lambda: code(warm.run(hook)),
    }
    found: dict[str, list[float]] = {what: [] for what in ways}
    for turn in range(rounds + 3):
        for what, way in ways.items():
            started = time.perf_counter()
            assert await way() == 0, what
            if turn >= 3:
                found[what].append((time.perf_counter() - started) * 1e3)
    await local.close()
    return {what: statistics.median(times) for what, times in found.items()}


if __name__ == "__main__":
    print(json.dumps(command_costs(int(sys.argv[1]) if len(sys.argv) > 1 else 100), indent=1))
