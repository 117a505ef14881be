"""`make bench`: hookline beside its peers, in one run and as ratios.

Every peer is measured in its own environment and process by its module in peers/, together with the bare loop.
"""

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from agentruns import agentrun_costs
from board import board_costs
from cluster import cluster_costs
from commands import command_costs
from environments import NotInstalled, interpreter, last_line
from imports import import_costs
from many import agent_costs
from peers import PEERS, Peer
from table import as_markdown, as_text

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
SPEED = HERE.parent / "docs" / "reference" / "speed.md"
INTRODUCTION = """# How fast it is

Written by `make bench`, which measures hookline beside its peers in one run. Read the ratios, not the microseconds:
every figure is set beside a hand-written loop over hooks in the same process, which sets a limit on each hook and
arms its timer only when the hook waits. `bench/README.md` says how it is done.
"""
FULL_SECONDS, QUICK_SECONDS = 36.0, 6.0
DISPATCH_SHARE = 0.4  # without a loop around it, a figure is steady much sooner
FULL_IMPORTS, QUICK_IMPORTS = 25, 8
FULL_COMMANDS, QUICK_COMMANDS = 300, 60
PEER_LIMIT = 300


def main() -> int:
    options = arguments()
    results = measured_again(options) if options.again else measured_whole(options)
    if not options.only:
        write(results)
    print(json.dumps(results, indent=1) if options.json else as_text(results))
    return int(bool(results["broken"]))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare hookline with its peers.")
    names = [peer.name for peer in PEERS]
    parser.add_argument(
        "--only",
        type=named,
        default=(),
        metavar="NAME,...",
        help=f"of {', '.join(names)}; no files are written",
    )
    parser.add_argument(
        "--again",
        type=sections_named,
        default=(),
        metavar="SECTION,...",
        help=f"measure these anew and keep the rest of the last run; of {', '.join(SECTIONS)}",
    )
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    return parser.parse_args()


def named(text: str) -> tuple[str, ...]:
    names, known = tuple(text.split(",")), [peer.name for peer in PEERS]
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"unknown peer {name!r}; known: {', '.join(known)}")
    return names


def sections_named(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in SECTIONS:
            raise argparse.ArgumentTypeError(f"unknown section {name!r}; known: {', '.join(SECTIONS)}")
    return names


def measured_again(options: argparse.Namespace) -> dict[str, Any]:
    """The last run with those sections measured now; each section has its own scale beside it, so they can differ in age."""
    last = RESULTS / "latest.json"
    if not last.exists():
        raise SystemExit("bench: there is no last run to keep the rest of; leave out --again")
    results: dict[str, Any] = json.loads(last.read_text())
    broken = {name: why for name, why in results.get("broken", {}).items() if name not in options.again}
    results |= sections(options.again, options.quick)
    results["broken"] |= broken
    when = f"{datetime.date.today().isoformat()}{', quick' if options.quick else ''}"
    return results | {"again": {**results.get("again", {}), **dict.fromkeys(options.again, when)}}


def measured_whole(options: argparse.Namespace) -> dict[str, Any]:
    seconds = QUICK_SECONDS if options.quick else FULL_SECONDS
    peers = [peer for peer in PEERS if not options.only or peer.name in options.only]
    found = [progress(number, len(peers), peer, seconds) for number, peer in enumerate(peers, 1)]
    return {
        "date": datetime.date.today().isoformat(),
        "quick": options.quick,
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "peers": found,
        **dict.fromkeys(SECTIONS, ()),
        **sections(SECTIONS if not options.only or "hookline" in options.only else (), options.quick),
    }


def progress(number: int, total: int, peer: Peer, seconds: float) -> dict[str, Any]:
    started = time.monotonic()
    tell(f"[{number}/{total}] {peer.name}")
    found = measured(peer, seconds * DISPATCH_SHARE if peer.group == "dispatch" else seconds)
    tell(
        f"[{number}/{total}] {peer.name}: {'not measured: ' + found['error'] if found['error'] else 'measured'}, {time.monotonic() - started:.0f} s"
    )
    return found


def measured(peer: Peer, seconds: float) -> dict[str, Any]:
    """What the peer's process printed; where it did not get that far, why."""
    found: dict[str, Any] = {
        "name": peer.name,
        "group": peer.group,
        "note": peer.note,
        "packages": {},
        "rows": [],
        "error": "",
    }
    try:
        python = interpreter(peer.name, peer.requirements) if peer.requirements else sys.executable
        done = subprocess.run(
            [str(python), "-W", "ignore", "-m", peer.module, str(seconds)],
            cwd=HERE,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=PEER_LIMIT,
        )
    except NotInstalled as exc:
        return found | {"error": tidy(f"could not be installed: {exc}")}
    except subprocess.TimeoutExpired:
        return found | {"error": f"took longer than {PEER_LIMIT} s"}

    for line in map(json.loads, done.stdout.splitlines()):
        if "packages" in line:
            found["packages"] = line["packages"]
        else:
            found["rows"].append(line | ({"error": tidy(line["error"])} if "error" in line else {}))
    if done.returncode:
        found["error"] = tidy(last_line(done.stderr) or f"exit code {done.returncode}")
    return found


class Section(NamedTuple):
    title: str
    lines: Callable[[bool], list[dict[str, Any]]]


SECTIONS = {
    "imports": Section("import", lambda quick: import_costs(QUICK_IMPORTS if quick else FULL_IMPORTS)),
    "agents": Section("many agents at once", lambda _: agent_costs()),
    "commands": Section(
        "command hooks", lambda quick: command_costs(QUICK_COMMANDS if quick else FULL_COMMANDS)
    ),
    "board": Section("a board of issues", board_costs),
    "agentruns": Section("AgentRun manifests", lambda quick: agentrun_costs(quick, tell)),
    "kubernetes": Section("AgentRuns on Kubernetes", lambda quick: cluster_costs(quick, tell)),
}


def sections(names: Iterable[str], quick: bool) -> dict[str, Any]:
    """The lines of each section; of one that broke none, and `broken` says why: the others are not lost with it."""
    found: dict[str, Any] = {"broken": {}}
    for name in names:
        tell(SECTIONS[name].title)
        try:
            lines = SECTIONS[name].lines(quick)
        except Exception as exc:
            lines, found["broken"][name] = [], tidy(f"{type(exc).__name__}: {exc}")
            tell(f"  not measured: {found['broken'][name]}")
        found[name] = [line | ({"error": tidy(line["error"])} if "error" in line else {}) for line in lines]
    return found


def environment() -> dict[str, str]:
    """As a user has it, but for what would slow one interpreter and not another."""
    odd = ("PYTHON", "LANGCHAIN", "LANGSMITH", "OTEL")
    return {key: value for key, value in os.environ.items() if not key.startswith(odd)} | {
        "PYTHONHASHSEED": "0"
    }


def tidy(reason: str) -> str:
    """Without addresses and folders, which say more of a machine than of the fault."""
    reason = re.sub(r"\b(?:https?|file)://\S+", "(an address)", reason)
    reason = re.sub(r"(?:/[\w.@+-]+)+/([\w.@+-]+)", r"\1", reason)
    return reason if len(reason) <= 160 else reason[:157] + "..."


def write(results: dict[str, Any]) -> None:
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "latest.json").write_text(json.dumps(results, indent=1) + "\n")
    (RESULTS / "latest.md").write_text(as_markdown(results))
    SPEED.write_text(INTRODUCTION + as_markdown(results).removeprefix("# hookline beside its peers\n"))
    tell("written: bench/results/latest.md, bench/results/latest.json, docs/reference/speed.md")


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
