"""kubectl as the client, on the machine or as the cluster of the tests brings it."""

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Kubectl:
    """Calls kubectl, in one namespace if it is named. `given` is what it reads on standard input, as an object or several."""

    def __init__(self, kubeconfig: str, cache: Path, namespace: str = "") -> None:
        self.name = namespace
        self._kubeconfig = kubeconfig
        self._cache = cache

    def __call__(self, *words: str, given: Any = None) -> Done:
        if isinstance(given, list):
            given = {"apiVersion": "v1", "kind": "List", "items": given}
        stdin = None if given is None else json.dumps(given)
        more = ["-f", "-"] if given is not None else []
        where = [f"--namespace={self.name}"] if self.name else []
        done = subprocess.run(
            [*_program(), f"--cache-dir={self._cache}", *where, *words, *more],
            input=stdin,
            stdin=None if stdin is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": self._kubeconfig},
        )
        return Done(done.returncode, done.stdout, done.stderr)

    def started(self, *words: str) -> "subprocess.Popen[str]":
        """The same as a process that goes on, such as a watch; whoever asks for it ends it."""
        where = [f"--namespace={self.name}"] if self.name else []
        return subprocess.Popen(
            [*_program(), f"--cache-dir={self._cache}", *where, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "KUBECONFIG": self._kubeconfig},
        )

    def well(self, *words: str, given: Any = None) -> str:
        done = self(*words, given=given)
        assert done.code == 0, done.err
        return done.out

    def get(self, *words: str) -> dict[str, Any]:
        return json.loads(self.well("get", *words, "-o", "json"))

    def define(self, definitions: Sequence[dict[str, Any]]) -> None:
        """Has the server know our kinds. They stay: other tests use them too."""
        self.well("apply", given={"apiVersion": "v1", "kind": "List", "items": list(definitions)})
        names = [f"crd/{each['metadata']['name']}" for each in definitions]
        self.well("wait", "--for=condition=Established", "--timeout=300s", *names)

    def with_status(self, given: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
        """The object as it is stored after its status was written."""
        made = json.loads(self.well("create", "-o", "json", given=given))
        group, _, version = made["apiVersion"].partition("/")
        path = f"/apis/{group}/{version}/namespaces/{self.name}/{made['kind'].lower()}s/{made['metadata']['name']}"
        return json.loads(self.well("replace", "--raw", f"{path}/status", given={**made, "status": status}))

    def ended(self, pod: str, limit: float = 300.0) -> None:
        """Waits until a pod has succeeded; one that failed is told with its log."""
        until = time.monotonic() + limit
        while (phase := self.get("pod", pod)["status"]["phase"]) != "Succeeded":
            assert phase != "Failed", self("logs", pod).out
            assert time.monotonic() < until, self.well("describe", "pod", pod)
            time.sleep(0.2)

    @contextmanager
    def namespace(self) -> Iterator["Kubectl"]:
        """The same in a namespace that nobody else uses; it goes with all that is in it."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self.well("create", "namespace", name)
        try:
            yield Kubectl(self._kubeconfig, self._cache, name)
        finally:
            self.well("delete", "namespace", name, "--wait=false")


def missing(given: Any, stored: Any, path: str = "") -> list[str]:
    """What was given and is not stored; what the server adds is no matter."""
    if isinstance(given, dict) and isinstance(stored, dict):
        return [each for key in given for each in missing(given[key], stored.get(key), f"{path}.{key}")]
    if isinstance(given, list) and isinstance(stored, list) and len(given) == len(stored):
        pairs = enumerate(zip(given, stored, strict=True))
        return [each for index, (a, b) in pairs for each in missing(a, b, f"{path}[{index}]")]
    return [] if given == stored else [f"{path}: {given!r} became {stored!r}"]


def _program() -> list[str]:
    if shutil.which("kubectl"):
        return ["kubectl"]
    brings = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not brings:
        pytest.skip(
            "no kubectl: install it, or set HOOKLINE_TEST_CLUSTER to a program that has it as `in kubectl`"
        )
    return [brings, "in", "kubectl"]
