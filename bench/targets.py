"""hookline beside what it set out to reach; said, never enforced."""

from collections.abc import Iterator
from typing import Any

HOOK_TARGETS = {1: 3.0, 10: 2.0}
POINT_TARGET = 15.0
IMPORT_TARGET = 1.5
COMMAND_TARGETS = {
    "a command": 1.3,
    "a Python command, warm": 0.167,
    "answer: no hook concerned": 2.0,
    "answer: one shell hook": 2.0,
    "answer: a Python guard": 2.0,
}
ON_THE_LOOP, THREADED = ("agent's tool hooks", 1000), ("sync, in a thread", 10)
ONE_RESULT = ("agent's tool hooks, one result", 1000)


def verdicts(results: dict[str, Any]) -> list[str]:
    rows = {
        (peer["name"], row["case"], row["hooks"]): row
        for peer in results["peers"]
        for row in peer["rows"]
        if "error" not in row
    }
    found: list[str] = []
    for n, target in HOOK_TARGETS.items():
        if row := rows.get(("hookline", "async", n)):
            what = f"an async hook, {n} at a point"
            found.append(verdict(what, row["ratio_same"], target, "a bare loop over the same hook"))
            found.append(verdict(what, row["ratio"], target, "a bare loop over a hook that returns None"))
    if row := rows.get(("hookline", "async, recorded", 1)):
        ratio = round(row["us_per_point"] / row["us_bare_point"], 2)
        found.append(verdict("a point with one hook, record included", ratio, POINT_TARGET, "the bare loop"))
    for line in results["imports"]:
        if line["statement"] == "import hookline" and "error" not in line:
            found.append(verdict("import hookline", line["ratio"], IMPORT_TARGET, "import asyncio"))
    for line in results["commands"]:
        if line["what"] in COMMAND_TARGETS:
            found.append(verdict(line["what"], line["ratio"], COMMAND_TARGETS[line["what"]], line["scale"]))
    for peer, theirs in steady(results):
        if peer == "hookline":
            continue
        if row := rows.get(("hookline", *(THREADED if theirs["threaded"] else ON_THE_LOOP))):
            least = rows.get(("hookline", *ONE_RESULT)) if not theirs["threaded"] else None
            found.append(beside(row, least, peer, theirs))
    return found


def steady(results: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each framework's cases in its own loop, at the largest number of hooks: its steadiest figure and its best."""
    for peer in results["peers"]:
        largest = {row["case"]: row for row in peer["rows"] if row["group"] == "loop" and row.get("hooks")}
        yield from ((peer["name"], row) for row in largest.values())


def verdict(what: str, ratio: float, target: float, scale: str) -> str:
    return (
        f"{what}: {ratio} times {scale}, target {target} or less: {'held' if ratio <= target else 'MISSED'}"
    )


def beside(ours: dict[str, Any], least: dict[str, Any] | None, peer: str, theirs: dict[str, Any]) -> str:
    said = [theirs["note"], "" if theirs["limited"] else "no time limit on a hook"]
    noted = "; ".join(text for text in said if text)
    name = f"{peer}, {theirs['case']}" + (f" ({noted})" if noted else "")
    if not (ours["clear"] and theirs["clear"]):
        return f"{name}: too noisy to compare"
    word = "ahead of" if ours["ratio"] < theirs["ratio"] else "BEHIND"
    without = f" ({least['ratio']} with one result for all)" if least is not None and least["clear"] else ""
    return f"{word} {name}: {ours['ratio']}{without} against {theirs['ratio']} times the bare loop"
