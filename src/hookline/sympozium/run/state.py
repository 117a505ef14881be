"""What was seen of a run: kept on the disk before anything else is done, so that a crash forgets none of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from hookline.kube.pod_state import ContainerPhase, ContainerState, Reason
from hookline.sympozium.lifecycle import Lifecycle
from hookline.sympozium.phases import Phase, Seen, Stage, phase, status
from hookline.sympozium.run.folders import Folder
from hookline.sympozium.snapshot import kept, seen_again

logger = logging.getLogger(__name__)

FILE = "seen.json"
_LISTS = {Stage.PRE_RUN: "pre_run", Stage.POST_RUN: "post_run"}


class RunState:
    """The eyes of one run. `shown` is its status, always as of now: it is what the record of its end has."""

    def __init__(
        self, folder: Folder, lifecycle: Lifecycle, tell: Callable[[Phase], None], seen: Seen | None = None
    ) -> None:
        self._folder = folder
        self._lifecycle = lifecycle
        self._tell = tell
        self.shown: dict[str, Any] = {}
        self.about: dict[str, Any] = {}
        """What the status has besides, such as who let an answer through."""
        self.seen = seen or Seen()
        self._due: list[Phase] = []
        self._phase = phase(lifecycle, self.seen) if seen is not None else None
        self._show()

    @property
    def phase(self) -> Phase:
        return phase(self._lifecycle, self.seen)

    def hook(self, stage: Stage, index: int, seen: ContainerState) -> None:
        """What its end has made of the phase is told with `tell_due`, for its own record comes first."""
        name = _LISTS[stage]
        known: tuple[ContainerState, ...] = getattr(self.seen, name)
        filled = [*known, *(ContainerState() for _ in range(index + 1 - len(known)))]
        filled[index] = seen
        self.seen = replace(self.seen, **{name: tuple(filled)})
        self._changed()
        if seen.state is not ContainerPhase.ENDED:
            self.tell_due()

    def change(self, **changes: Any) -> None:
        self.seen = replace(self.seen, **changes)
        self._changed()
        self.tell_due()

    def tell_due(self) -> None:
        """Tell the phases that were not told yet."""
        due, self._due = self._due, []
        for each in due:
            self._tell(each)

    def tell_besides(self, **about: Any) -> None:
        self.about |= about
        self._show()

    def give_up(self, stage: Stage) -> None:
        """None of that stage's hooks that wait is called any more."""
        if stage is not Stage.POST_RUN:
            return
        never = ContainerState(
            state=ContainerPhase.ENDED, reason=Reason.NOT_STARTED, detail="interrupted before its turn"
        )
        for index in range(len(self._lifecycle.post_run)):
            known = self.seen.post_run[index] if index < len(self.seen.post_run) else ContainerState()
            if known.state is ContainerPhase.WAITING:
                self.hook(stage, index, never)

    def _changed(self) -> None:
        try:
            self._folder.write(FILE, kept(self.seen))
        except OSError as exc:
            # A full disk must not keep a hook from running, least of all one that cleans up.
            logger.warning("%s: what was seen of it cannot be kept: %s", self._folder.run_id, exc)
        self._show()
        if self._phase is None:
            self._phase = Phase.PENDING
            self._due.append(Phase.PENDING)
        if self.phase is not self._phase:
            self._phase = self.phase
            self._due.append(self._phase)

    def _show(self) -> None:
        # In place: whoever was given it sees what it has become.
        self.shown.clear()
        self.shown.update(status(self._lifecycle, self.seen), **self.about)


def again(folder: Folder) -> Seen:
    """What was last seen of a run."""
    found = folder.read(FILE)
    return seen_again(cast("dict[str, Any]", found)) if isinstance(found, dict) else Seen()
