"""What a command hook costs, JSON both ways: by our runner and by `subprocess.run`; a Python one cold and warm.
And what `hookline answer` costs a foreign agent, from exec to answer.

Wall time, the median of many interleaved calls: most of it is spent in other processes.
"""

import asyncio
import json
import os
import sqlite3
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
START, STARTED_HOOK = "python, json and subprocess", "the same, and the shell hook"
NOBODY, SHELL, GUARD = "answer: no hook concerned", "answer: one shell hook", "answer: a Python guard"
ANSWERS = {START: START, NOBODY: START, STARTED_HOOK: STARTED_HOOK, SHELL: STARTED_HOOK, GUARD: START}
INPUT = json.dumps({"hook_event_name": "PreToolUse", "tool_input": {"command": "ls " * 100}}).encode()
CALL = json.dumps(
    {
        "session_id": "bench",
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "ls " * 100},
        "tool_use_id": "call",
    }
).encode()
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
    with tempfile.TemporaryDirectory() as folder:
        ms |= _answers(Path(folder), rounds)
    return [
        {"what": what, "ms": round(ms[what], 2), "ratio": round(ms[what] / ms[scale], 3), "scale": scale}
        for what, scale in {**SCALES, **ANSWERS}.items()
    ]


def _answers(folder: Path, rounds: int) -> dict[str, float]:
    """Each in a process of its own, by the same interpreter, one after another in turn."""
    hooks = {
        NOBODY: "match: kind:write, shell: 'true'",
        SHELL: "match: kind:shell, shell: 'true'",
        GUARD: "match: kind:shell, python: 'hookline.guards:no_force_push'",
    }
    run = (
        "subprocess.run(['sh', '-c', 'true'], input=sys.stdin.buffer.read(), capture_output=True, check=True)"
    )
    ways = {
        START: ["-c", "import json, subprocess"],
        STARTED_HOOK: ["-c", f"import json, subprocess, sys; {run}"],
    }
    for number, (what, hook) in enumerate(hooks.items()):
        file = folder / f"{number}.yaml"
        file.write_text(f"hooks:\n  - {{name: guard, on: tool.start, {hook}}}\n")
        ways[what] = ["-P", "-m", "hookline", "answer", "--file", str(file)]
    # As installed, with its bytecode written; the first rounds see to that, and to the compiled copies.
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    env["HOOKLINE_HOME"] = str(folder / "home")
    found: dict[str, list[float]] = {what: [] for what in ways}
    for turn in range(rounds + 3):
        for what, words in ways.items():
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, *words], input=CALL, capture_output=True, env=env, check=False
            )
            took = (time.perf_counter() - started) * 1e3
            # What crashed was quick, but did nothing.
            assert (done.returncode, done.stdout, done.stderr) == (0, b"", b""), (what, done)
            if turn >= 3:
                found[what].append(took)
    kept = _kept(folder / "home" / "journal.db")
    assert kept == len(hooks) * (rounds + 3), f"{kept} answers are on record"
    return {what: statistics.median(times) for what, times in found.items()}


def _kept(journal: Path) -> int:
    """How many events are on record; the end of a call that goes on is another event's to tell."""
    db = sqlite3.connect(journal)
    try:
        records = [record for (body,) in db.execute("SELECT body FROM record") for record in json.loads(body)]
    finally:
        db.close()
    return sum(record[0] == "begin" for record in records)


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
