"""The state of the service on a terminal, drawn over the last one, and its log."""

from __future__ import annotations

import logging
import os
import sys
import time
from logging.handlers import RotatingFileHandler
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from hookline import files
from hookline.journal.masking import Mask
from hookline.journal.user import default_path
from hookline.symphony.board.reload import Watched

_LOG_SIZE, _LOG_FILES = 10 * 1024 * 1024, 5
_SHOWN = 8


class LastLines(logging.Handler):
    """The last lines of the log, for the picture below the table."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines = [*self.lines, f"{_clock(record.created)} {record.getMessage()}"][-_SHOWN:]


def log_to(mask: Mask, last: LastLines, *, live: bool, quiet: bool) -> None:
    """Log to files beside the journal, masked; to the terminal too, where no picture is shown."""
    folder = default_path(os.environ).parent / "logs"
    files.private_folder(folder)
    kept = RotatingFileHandler(folder / "serve.log", maxBytes=_LOG_SIZE, backupCount=_LOG_FILES)
    form = logging.Formatter("time=%(asctime)s level=%(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S%z")
    ours = logging.getLogger("hookline")
    ours.setLevel(logging.INFO)
    handlers: list[logging.Handler] = [last, kept]
    if not live:
        shown = logging.StreamHandler(sys.stderr)
        shown.setLevel(logging.WARNING if quiet else logging.INFO)
        handlers.append(shown)
    for handler in handlers:
        handler.addFilter(lambda record: _masked(record, mask))
        handler.setFormatter(form)
        ours.addHandler(handler)


def _masked(record: logging.LogRecord, mask: Mask) -> bool:
    record.msg, record.args = mask.text(record.getMessage()), None
    if record.exc_info and not record.exc_text:
        record.exc_text = mask.text(logging.Formatter().formatException(record.exc_info))
    return True


class Picture:
    """The state on a terminal, drawn over the last one."""

    def __init__(self, last: LastLines, watched: Watched) -> None:
        self._last = last
        self._watched = watched
        self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=False)
        self._live.start()

    def __call__(self, state: dict[str, Any]) -> None:
        self._live.update(_drawn(state, self._last.lines, self._watched.file), refresh=True)

    def close(self) -> None:
        self._live.stop()


def _drawn(state: dict[str, Any], lines: list[str], file: str) -> RenderableType:
    counts = state["counts"]
    head = Text(
        f"{file}: {counts['running']} running, {counts['retrying']} waiting, {counts['blocked']} blocked",
        style="bold",
    )
    table = Table(box=None, pad_edge=False, expand=False)
    for column in ("issue", "now", "what"):
        table.add_column(column, overflow="ellipsis", no_wrap=True)
    for each in state["running"]:
        now = "stopping" if each["stopping"] else f"running, turn {each['turn_count'] + 1}"
        table.add_row(each["issue_identifier"], now, each["last_message"] or "")
    for each in state["blocked"]:
        table.add_row(each["issue_identifier"], "blocked", each["error"] or "")
    for each in state["retrying"]:
        table.add_row(each["issue_identifier"], f"waits until {each['due_at'][11:19]}", each["error"] or "")
    for each in state["finished"][-5:]:
        table.add_row(each["issue_identifier"], each["outcome"], each["error"] or f"{each['seconds']:.1f} s")
    parts: list[RenderableType] = [head, table]
    if state["configuration_error"]:
        parts.append(Text(str(state["configuration_error"]), style="red"))
    parts += [Text(line, style="dim", overflow="ellipsis", no_wrap=True) for line in lines]
    return Group(*parts)


def _clock(at: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at))
