"""Files of a session for its command hooks: its transcript, and the file in which they set variables for later shells.

They stand in a folder of the session's first run beside the journal, only for its owner, and go when that run is pruned.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hookline.files import private_folder, write_all
from hookline.journal.masking import Mask


def session_folder(journal: Path, run_id: str) -> Path:
    """The folder of a run's session; its name never leads elsewhere."""
    return journal.parent / "sessions" / f"run-{re.sub(r'[^A-Za-z0-9_-]', '_', run_id)}"


def agent_transcript(transcript: str, agent_id: str) -> str:
    """The transcript of an agent that is a tool, beside that of its session."""
    return os.path.join(os.path.dirname(transcript), f"agent-{agent_id}.jsonl")


class SessionFiles:
    """`transcript` has a JSON object per message, without secrets; `variables` is read by the shell of the agent."""

    def __init__(self, folder: Path, mask: Mask) -> None:
        private_folder(folder.parent)
        private_folder(folder)
        self.transcript, self.variables = str(folder / "transcript.jsonl"), str(folder / "env.sh")
        self._mask = mask
        self._written: dict[str, list[Mapping[str, Any]]] = {}
        for path in (self.transcript, self.variables):
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW, 0o600))

    def write(self, messages: Sequence[Mapping[str, Any]], session: str | None, agent_id: str = "") -> None:
        """Bring the transcript, or that of an agent that is a tool, up to date with the messages as they stand."""
        path = agent_transcript(self.transcript, agent_id) if agent_id else self.transcript
        written = self._written.get(path, [])
        known = len(written)
        is_longer = bool(known) and list(messages[:known]) == written
        new = messages[known:] if is_longer else messages
        if is_longer and not new:
            return
        lines = [
            self._mask.json({"type": each.get("role"), "sessionId": session, "message": dict(each)})
            for each in new
        ]
        how = os.O_APPEND if is_longer else os.O_TRUNC | os.O_CREAT
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | how, 0o600)
        try:
            write_all(fd, "".join(f"{line}\n" for line in lines).encode())
        finally:
            os.close(fd)
        self._written[path] = list(messages)
