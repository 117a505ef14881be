"""The results as text for a terminal and as Markdown."""

from collections.abc import Iterator
from textwrap import fill
from typing import Any, NamedTuple

from targets import verdicts

COUNTS = (1, 10, 100, 1000)
LABEL, CELL, WIDTH = 34, 7, 98
GROUPS = {
    "dispatch": ("Dispatch on its own", "µs a point"),
    "loop": ("Inside the framework's own loop", "µs a turn"),
}


class Row(NamedTuple):
    """A heading has no cells; a row that was not measured has only a reason."""

    label: str
    cells: tuple[str, ...] = ()
    reason: str = ""


def as_text(results: dict[str, Any]) -> str:
    lines = [summary(results), ""]
    for group, (title, empty) in GROUPS.items():
        lines += [
            f"{title:<{LABEL}}{'no hook':>{CELL + 3}}{'µs a hook, N hooks':^{CELL * len(COUNTS)}}{'times the bare loop':^{CELL * len(COUNTS)}}",
            f"{'':<{LABEL}}{empty:>{CELL + 3}}" + "".join(f"{n:>{CELL}}" for n in COUNTS * 2),
        ]
        lines += [text_line(row) for row in rows(results, group)]
        lines.append("")
    lines += [f"{'Import':<{LABEL}}{'CPU ms':>{CELL + 3}}{'times import asyncio':>{CELL * len(COUNTS)}}"]
    lines += [import_line(line) for line in results["imports"]]
    lines += [
        "",
        f"{'Agents at once, ten hooks each':<{LABEL}}{'CPU ms each':>{CELL * 2}}{'KiB each':>{CELL * 2}}",
    ]
    lines += [
        f"{'  ' + str(line['agents']):<{LABEL}}{line['ms_each']:>{CELL * 2}}{line['kib_each']:>{CELL * 2}}"
        for line in results["agents"]
    ]
    lines += ["", f"{'Command hooks':<{LABEL}}{'ms':>{CELL + 3}}{'times':>{CELL * 2}}"]
    lines += [
        f"{'  ' + line['what']:<{LABEL}}{line['ms']:>{CELL + 3}}{line['ratio']:>{CELL * 2}} {line['scale']}"
        for line in results["commands"]
    ]
    lines += [
        "",
        f"{'A board of issues, 50 slots':<{LABEL}}{'ms':>{CELL + 3}}{'KiB each':>{CELL * 2}}{'times':>{CELL * 2}}",
    ]
    lines += [
        f"{'  ' + line['what']:<{LABEL}}{line['ms']:>{CELL + 3}}{line['kib_each'] or '':>{CELL * 2}}{line['ratio']:>{CELL * 2}} {line['scale']}"
        for line in results["board"]
    ]
    lines += [
        "",
        f"{'AgentRun, two hooks on either side':<{LABEL}}{'ms':>{CELL + 3}}{'KiB each':>{CELL * 2}}{'times':>{CELL * 2}}",
    ]
    lines += [agentrun_line(line) for line in results.get("agentruns", [])]
    lines += [
        "",
        f"{'AgentRun on Kubernetes':<{LABEL}}{'s each':>{CELL + 3}}{'calls':>{CELL * 2}}{'times':>{CELL * 2}} by hand",
    ]
    lines += [kubernetes_line(line) for line in results.get("kubernetes", [])]
    lines += [
        "",
        *(fill(note, WIDTH, initial_indent="- ", subsequent_indent="  ") for note in notes(results)),
    ]
    return "\n".join(line.rstrip() for line in lines)


def as_markdown(results: dict[str, Any]) -> str:
    lines = ["# hookline beside its peers", "", summary(results), ""]
    for group, (title, empty) in GROUPS.items():
        head = [f"no hook, {empty}", *(f"µs, N={n}" for n in COUNTS), *(f"times bare, N={n}" for n in COUNTS)]
        lines += [f"## {title}", "", f"| | {' | '.join(head)} |", f"|---|{'---:|' * len(head)}"]
        lines += [markdown_line(row) for row in rows(results, group)]
        lines.append("")
    lines += ["## Import", "", "| | CPU ms | times `import asyncio` |", "|---|---:|---:|"]
    for line in results["imports"]:
        cells = (f"not measured: {line['error']}", "") if "error" in line else (line["cpu_ms"], line["ratio"])
        lines.append(f"| `{line['statement']}` | {cells[0]} | {cells[1]} |")
    lines += ["", "## Agents at once, ten hooks each", ""]
    lines += ["| agents | CPU ms each | times the fewest | KiB each |", "|---:|---:|---:|---:|"]
    lines += [
        f"| {line['agents']} | {line['ms_each']} | {line['ratio']} | {line['kib_each']} |"
        for line in results["agents"]
    ]
    lines += ["", "## Command hooks", "", "| | ms | times | |", "|---|---:|---:|---|"]
    lines += [
        f"| {line['what']} | {line['ms']} | {line['ratio']} | {line['scale']} |"
        for line in results["commands"]
    ]
    lines += ["", "## A board of issues, 50 slots", "", "| | issues | ms each | KiB each | times | |"]
    lines += ["|---|---:|---:|---:|---:|---|"]
    lines += [
        f"| {line['what']} | {line['number']} | {line['ms']} | {line['kib_each'] or ''} | {line['ratio']} | {line['scale']} |"
        for line in results["board"]
    ]
    lines += ["", "## AgentRun manifests, two hooks before and two after the agent", ""]
    lines += ["| | runs | ms each | KiB each | times | |", "|---|---:|---:|---:|---:|---|"]
    lines += [agentrun_markdown(line) for line in results.get("agentruns", [])]
    lines += ["", "## AgentRuns on Kubernetes, one hook before and one after the agent", ""]
    lines += ["| | runs | s each | by hand | times | API calls each | by hand | MiB |", f"|---|{'---:|' * 7}"]
    lines += [kubernetes_markdown(line) for line in results.get("kubernetes", [])]
    lines += ["", *(f"- {note}" for note in notes(results)), ""]
    return "\n".join(lines)


def summary(results: dict[str, Any]) -> str:
    length = "quick run" if results["quick"] else "full run"
    again = "".join(f"; {name} again {when}" for name, when in results.get("again", {}).items())
    return f"{results['date']}, Python {results['python']}, {results['cores']} cores, {results['machine']}, {length}{again}"


def rows(results: dict[str, Any], group: str) -> Iterator[Row]:
    for peer in results["peers"]:
        mine = [row for row in peer["rows"] if row["group"] == group]
        title = " ".join([peer["name"], *list(peer["packages"].values())[:1]])
        if peer["error"] and group == peer["group"]:
            yield Row(title, reason=peer["error"])
        if not mine:
            continue
        yield Row(title)
        for case in dict.fromkeys(row["case"] for row in mine):
            yield case_row(case, {row.get("hooks"): row for row in mine if row["case"] == case})


def case_row(case: str, by_count: dict[int | None, dict[str, Any]]) -> Row:
    if None in by_count:
        return Row(f"  {case}", reason=by_count[None]["error"])
    none = by_count[0]
    found = [by_count.get(n) for n in COUNTS]
    return Row(
        f"  {case}",
        (
            number(none.get("us_per_point", none["us_call"])),
            *(cell(row, "us_per_hook") for row in found),
            *(cell(row, "ratio") for row in found),
        ),
    )


def cell(row: dict[str, Any] | None, key: str) -> str:
    if row is None:
        return ""
    return number(row[key]) if row["clear"] else "noise"


def number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def text_line(row: Row) -> str:
    if row.reason:
        return f"{row.label}: not measured: {row.reason}"
    if not row.cells:
        return row.label
    return f"{row.label:<{LABEL}}{row.cells[0]:>{CELL + 3}}" + "".join(
        f"{text:>{CELL}}" for text in row.cells[1:]
    )


def markdown_line(row: Row) -> str:
    label = row.label.strip() if row.cells or row.label.startswith(" ") else f"**{row.label}**"
    cells = row.cells or (f"not measured: {row.reason}" if row.reason else "", *[""] * (len(COUNTS) * 2))
    return f"| {label} | {' | '.join(cells)} |"


def import_line(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"  {line['statement']}: not measured: {line['error']}"
    return f"{'  ' + line['statement']:<{LABEL}}{line['cpu_ms']:>{CELL + 3}}{line['ratio']:>{CELL * len(COUNTS)}}"


def agentrun_line(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"  {line['what']}: not measured: {line['error']}"
    return f"{'  ' + line['what']:<{LABEL}}{line['ms']:>{CELL + 3}}{line['kib_each'] or '':>{CELL * 2}}{line['ratio']:>{CELL * 2}} {line['scale']}"


def agentrun_markdown(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"| {line['what']} | | not measured: {line['error']} | | | {line['scale']} |"
    return f"| {line['what']} | {line['number']} | {line['ms']} | {line['kib_each'] or ''} | {line['ratio']} | {line['scale']} |"


def kubernetes_line(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"  {line['what']}: not measured: {line['error']}"
    label = f"{'  ' + line['what']:<{LABEL}}"
    if "mib" in line:
        return f"{label}{line['mib']:>{CELL + 3}}{'MiB':>{CELL * 2}}{line['ratio']:>{CELL * 2}} the first of these"
    by_hand = f"{line['hand_seconds']} s, {line['hand_calls']} calls"
    return f"{label}{line['seconds']:>{CELL + 3}}{line['calls']:>{CELL * 2}}{line['ratio']:>{CELL * 2}} {by_hand}"


def kubernetes_markdown(line: dict[str, Any]) -> str:
    if "error" in line:
        return f"| {line['what']} | | not measured: {line['error']} | | | | | |"
    cells = ("number", "seconds", "hand_seconds", "ratio", "calls", "hand_calls", "mib")
    return f"| {line['what']} | {' | '.join(str(line.get(cell, '')) for cell in cells)} |"


def notes(results: dict[str, Any]) -> list[str]:
    found = [
        "The bare loop sets a limit on every hook and arms its timer only when a hook waits; it is measured in each"
        " peer's own process.",
        "A hook of hookline has to return a result, and making that is in its figure; None, which most others' hooks"
        " return, would be an error. In the rows with one result for all it is made beforehand: like for like.",
        "CPU time, lowest of many interleaved rounds. A hook costs (time with N - time with none) / (N * events);"
        " `noise` where the two halves of the rounds disagree by half of that or more.",
    ]
    for peer in results["peers"]:
        cases = dict.fromkeys((row["case"], row.get("note")) for row in peer["rows"])
        found += [f"{peer['name']}, {case}: {note}." for case, note in cases if note]
        found += [f"{peer['name']}: {peer['note']}."] if peer["note"] else []
    broken = [f"NOT MEASURED: {name}: {why}" for name, why in results.get("broken", {}).items()]
    return found + verdicts(results) + broken
