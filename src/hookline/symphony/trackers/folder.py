"""Issues as files in a folder: dropping one in is a new issue, editing its state moves it.

A Markdown file has its fields between two lines of `---` and its description below them; a YAML file has all in one.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from hookline.engine.plain import parse_time
from hookline.errors import FileError
from hookline.source import Wrong, front_matter, load, text_of
from hookline.symphony.trackers import Blocker, Issue, TrackerError
from hookline.table import UNSET, Findings, Key, Node, Table, flag

SUFFIXES = (".md", ".yaml", ".yml")
FIRST_STATE = "Todo"


class FolderTracker:
    """A folder of issues. A file is read again when it has changed.

    An issue waits while another in its `blocked_by` is in this folder and in none of the `terminal` states.
    """

    def __init__(self, folder: str | Path, terminal: Iterable[str] = ()) -> None:
        self.folder = Path(folder)
        self._terminal = frozenset(state.strip().lower() for state in terminal)
        self.omitted: tuple[str, ...] = ()
        self._read: dict[str, _Read] = {}

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        if not states:
            return []
        wanted = {state.strip().lower() for state in states}
        found, problems = await asyncio.to_thread(self._issues)
        self.omitted = tuple(problems.values())
        return [issue for issue in found if issue.state.strip().lower() in wanted]

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        if not ids:
            return []
        found, problems = await asyncio.to_thread(self._issues)
        broken = [problems[id] for id in ids if id in problems]
        if broken:
            raise TrackerError("; ".join(broken), kind="tracker_response")
        by_id = {issue.id: issue for issue in found}
        return [by_id[id] for id in ids if id in by_id]

    async def close(self) -> None:
        pass

    def _issues(self) -> tuple[list[Issue], dict[str, str]]:
        """Every issue by the name of its file, and the problems of the others, by the id they last had."""
        try:
            files = _files(self.folder)
        except OSError as exc:
            raise TrackerError(
                f"the issues' folder {str(self.folder)!r} cannot be read: {exc.strerror}",
                kind="tracker_request",
            ) from exc
        read = {file.name: self._one(file) for file in files}
        self._read = read
        found, problems = _once(read.values())
        return [_waiting(issue, found, self._terminal) for issue in found.values()], problems

    def _one(self, file: Path) -> _Read:
        before = self._read.get(file.name)
        try:
            status = file.stat()
        except OSError as exc:
            return _Read((), None, f"{file}: {exc.strerror}", before.id if before else file.stem)
        stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        if before is not None and before.stamp == stamp:
            return before
        try:
            issue = _issue(file, status)
        except FileError as exc:
            # It may be half written; it stays the issue it was, and is read again when it changes.
            return _Read(stamp, None, str(exc), before.id if before else file.stem)
        return _Read(stamp, issue, None, issue.id)


class _Read(NamedTuple):
    """A file as it was last read. `id` is that of the issue it holds, or held before it broke."""

    stamp: tuple[int, ...]
    issue: Issue | None
    problem: str | None
    id: str


def _files(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries if entry.name.endswith(SUFFIXES) and entry.is_file()]
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _once(read: Iterable[_Read]) -> tuple[dict[str, Issue], dict[str, str]]:
    found: dict[str, Issue] = {}
    problems: dict[str, str] = {}
    for each in read:
        if each.issue is None:
            problems[each.id] = each.problem or ""
        elif each.id in found:
            first = found[each.id].native_ref
            problems[f"{each.id} again"] = f"{each.issue.native_ref}: {each.id} is {first} already"
        else:
            found[each.id] = each.issue
    return found, problems


def _waiting(issue: Issue, found: Mapping[str, Issue], terminal: frozenset[str]) -> Issue:
    """The issue with the states of its blockers."""
    if not issue.blocked_by:
        return issue
    states = {each.identifier: each.state for each in found.values()}
    blockers = tuple(replace(each, state=states.get(each.identifier or "")) for each in issue.blocked_by)
    waits = any(each.state is not None and each.state.strip().lower() not in terminal for each in blockers)
    return replace(issue, blocked_by=blockers, dispatchable=issue.dispatchable and not waits)


def _issue(file: Path, status: os.stat_result) -> Issue:
    text = text_of(file)
    body = ""
    if file.suffix == ".md":
        document, body, _ = front_matter(text, file)
    else:
        document = load(text, file)
    if not isinstance(document.value, dict | None):
        raise document.problem("an issue is a mapping, such as `state: Todo`")
    findings = Findings()
    given = _FIELDS.read(Node.root(document, findings))
    if findings.problems:
        raise findings.problems[0]
    identifier = given.get("identifier", file.stem)
    heading = next((line[2:].strip() for line in body.splitlines() if line.startswith("# ")), "")
    known: dict[str, Any] = {
        "id": identifier,
        "identifier": identifier,
        "title": heading or file.stem,
        "state": FIRST_STATE,
        "description": body.strip() or None,
        "created_at": datetime.fromtimestamp(status.st_ctime, UTC),
        "updated_at": datetime.fromtimestamp(status.st_mtime, UTC),
        **given,
    }
    return Issue(native_ref=str(file), **known)


def _text(node: Node) -> str:
    value: Any = node.value
    if isinstance(value, dict | list | bool):
        raise Wrong(f"{value!r} is not a text")
    return str(value).strip() or UNSET


def _priority(node: Node) -> int:
    if not isinstance(node.value, int) or isinstance(node.value, bool):
        raise Wrong(f"{node.value!r} is not a whole number")
    return node.value


def _labels(node: Node) -> tuple[str, ...]:
    if isinstance(node.value, str):
        return tuple(label.strip().lower() for label in node.value.split(",") if label.strip())
    if isinstance(node.value, list):
        return tuple(str(label).strip().lower() for label in node.of_list)
    raise Wrong(f"{node.value!r} is not a list of labels")


def _blockers(node: Node) -> tuple[Blocker, ...]:
    if not isinstance(node.value, list):
        raise Wrong(f"{node.value!r} is not a list of identifiers")
    return tuple(Blocker(id=str(each), identifier=str(each)) for each in node.of_list)


def _time(node: Node) -> datetime:
    try:
        return parse_time(node.value)
    except ValueError:
        raise Wrong(f"{node.value!r} is not a time such as 2026-11-16T09:00:00Z") from None


_TEXTS = ("id", "identifier", "title", "state", "description", "branch_name", "url", "assignee_id")
_FIELDS = Table(
    {
        **{name: Key(_text) for name in _TEXTS},
        "labels": Key(_labels),
        "priority": Key(_priority),
        "blocked_by": Key(_blockers),
        "dispatchable": Key(flag),
        "created_at": Key(_time),
        "updated_at": Key(_time),
    }
)
