"""What an import costs: CPU of a fresh interpreter that does it, less one that does nothing."""

import os
import resource
import subprocess
import sys
from typing import Any

SCALE = "import asyncio"
# The root of the package is lazy, so what a program really uses is listed too.
STATEMENTS = (SCALE, "import hookline", "from hookline import Agent, hook")


def import_costs(rounds: int) -> list[dict[str, Any]]:
    """Milliseconds and the ratio to `import asyncio`; one that cannot be done says why."""
    costs: dict[str, list[float]] = {"pass": []}
    errors: dict[str, str] = {}
    for statement in STATEMENTS:
        try:
            started(statement)  # the first one writes the bytecode
        except subprocess.CalledProcessError as exc:
            errors[statement] = exc.stderr.strip().splitlines()[-1]
        else:
            costs[statement] = []
    for _ in range(rounds):
        for code, found in costs.items():
            found.append(started(code))

    nothing = min(costs["pass"])
    cpu = {code: min(found) - nothing for code, found in costs.items()}
    return [line(statement, cpu, errors) for statement in STATEMENTS]


def line(statement: str, cpu: dict[str, float], errors: dict[str, str]) -> dict[str, Any]:
    if statement in errors:
        return {"statement": statement, "error": errors[statement]}
    spent = cpu[statement]
    return {"statement": statement, "cpu_ms": round(spent * 1e3, 1), "ratio": round(spent / cpu[SCALE], 2)}


def started(code: str) -> float:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
