"""All that was seen of a namespace's objects, as `kubectl get -w` tells it, one change after another."""

import json
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.kube.kubectl import Kubectl

Object = dict[str, Any]


class Change(NamedTuple):
    """`number` is the object's resourceVersion: one store numbers the changes of all kinds, so they can be compared."""

    number: int
    type: str
    object: Object

    @property
    def name(self) -> str:
        return self.object["metadata"]["name"]


class Watched:
    """Watches those kinds until it is closed; `changes` has them by kind, in their order."""

    def __init__(self, kubectl: Kubectl, *kinds: str) -> None:
        self.changes: dict[str, list[Change]] = {kind: [] for kind in kinds}
        self._watches = [
            kubectl.started("get", kind, "--watch", "--output-watch-events", "-o", "json") for kind in kinds
        ]
        self._threads = [
            threading.Thread(target=self._read, args=(watch, self.changes[kind]))
            for kind, watch in zip(kinds, self._watches, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _read(self, watch: "subprocess.Popen[str]", changes: list[Change]) -> None:
        assert watch.stdout is not None
        for text in _whole(watch.stdout):
            said = json.loads(text)
            number = int(said["object"]["metadata"]["resourceVersion"])
            changes.append(Change(number, said["type"], said["object"]))

    def close(self) -> None:
        for watch in self._watches:
            watch.terminate()
        for thread in self._threads:
            thread.join()
        for watch in self._watches:
            watch.wait()
            assert watch.stdout is not None
            watch.stdout.close()

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def of(self, kind: str, name: str) -> list[Change]:
        return [each for each in list(self.changes[kind]) if each.name == name]

    def owned(self, kind: str, run: str) -> list[Change]:
        """What was seen of a run's own objects."""
        label = "sympozium.ai/agent-run"
        return [
            each
            for each in list(self.changes[kind])
            if each.object["metadata"].get("labels", {}).get(label) == run
        ]

    def phases(self, run: str) -> list[tuple[int, str]]:
        """The phases of a run with the number of the change that brought each."""
        found: list[tuple[int, str]] = []
        for each in self.of("agentruns", run):
            phase = each.object.get("status", {}).get("phase", "")
            if phase and (not found or found[-1][1] != phase):
                found.append((each.number, phase))
        return found


def _whole(lines: Any) -> Iterator[str]:
    """The values in a stream of JSON, each of which ends with a line."""
    text = ""
    for line in lines:
        text += line
        if line.rstrip().endswith("}"):
            try:
                json.loads(text)
            except ValueError:
                continue
            yield text
            text = ""
