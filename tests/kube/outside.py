"""A server beside the cluster that its pods can reach: hooks tell it things and wait at it, and agents ask it for answers.

It runs in the process of the tests, so that what hooks told is at hand, and a test decides when they go on. Only its
socket is the cluster's: that is made in the cluster's network and handed over.
"""

import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import pytest

from tests.fakes import FakeProvider, Received
from tests.fakes.registry import FakeRegistry

ADDRESS = "10.88.0.1"
HAND_OVER = """
import socket, sys
made = socket.create_server(("0.0.0.0", 0), backlog=128)
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [made.fileno()])
"""
HOP = ("connection", "content-length", "keep-alive", "transfer-encoding")


class Asked(NamedTuple):
    method: str
    path: str
    body: str
    headers: dict[str, str]


class Outside:
    """`told` is what was posted to /told/RUN/KEY. /hold/RUN/NAME is answered when `release` was called for it, and
    /model/NAME is a model that answers as `model` said. Anything else is kept in `asked`, and answered with `answer`."""

    def __init__(self, listening: socket.socket, answer: str = "") -> None:
        self.answer = answer.encode()
        self.asked: list[Asked] = []
        self.told: dict[tuple[str, str], str] = {}
        self.held: list[tuple[str, str]] = []
        self._free: dict[tuple[str, str], threading.Event] = {}
        self._models: dict[str, FakeProvider] = {}
        self.registry: FakeRegistry | None = None
        """What /v2/ leads to, where a test has one."""
        self._lock = threading.Lock()
        self._server = _Server(self, listening)
        self.url = f"http://{ADDRESS}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def model(self, name: str, *turns: Any) -> dict[str, str]:
        """A model for that run alone, as an AgentRun names it."""
        self._models[name] = FakeProvider(turns)
        return {"provider": "openai", "model": "some-model", "baseURL": f"{self.url}/model/{name}/v1"}

    def requests(self, name: str) -> list[Received]:
        """What a model was asked."""
        return self._models[name].requests

    def free(self, run: str, name: str) -> threading.Event:
        with self._lock:
            return self._free.setdefault((run, name), threading.Event())

    def release(self, run: str, name: str) -> None:
        self.free(run, name).set()

    def close(self) -> None:
        for each in list(self._free.values()):
            each.set()
        for model in self._models.values():
            model.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answered(self, asked: Asked) -> tuple[int, dict[str, str], bytes]:
        match asked.path.split("/")[1:]:
            case ["told", run, key]:
                self.told[run, key] = asked.body
                return 200, {}, b""
            case ["hold", run, name]:
                free = self.free(run, name)
                self.held.append((run, name))
                free.wait(600)
                return 200, {}, b""
            case ["model", name, *rest]:
                return _forwarded(self._models[name], "/" + "/".join(rest), asked)
            case ["v2", *_] if self.registry is not None:
                return _forwarded(self.registry, asked.path, asked)
        self.asked.append(asked)
        return 200, {}, self.answer


def _forwarded(
    model: FakeProvider | FakeRegistry, path: str, asked: Asked
) -> tuple[int, dict[str, str], bytes]:
    line = http.client.HTTPConnection(model.url.removeprefix("http://"), timeout=600)
    try:
        headers = {key: value for key, value in asked.headers.items() if key not in (*HOP, "host")}
        line.request(asked.method, path, asked.body.encode(), headers)
        said = line.getresponse()
        body = said.read()
        return said.status, {key: value for key, value in said.getheaders() if key.lower() not in HOP}, body
    except (http.client.HTTPException, OSError):
        return 503, {}, b"{}"
    finally:
        line.close()


class _Server(ThreadingHTTPServer):
    def __init__(self, outside: Outside, listening: socket.socket) -> None:
        self.outside = outside
        super().__init__(("", 0), _Line, bind_and_activate=False)
        self.socket.close()
        self.socket = listening
        self.server_name, self.server_port = ADDRESS, listening.getsockname()[1]


class _Line(BaseHTTPRequestHandler):
    server: _Server

    def _answer(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        headers = {key.lower(): value for key, value in self.headers.items()}
        body = self.rfile.read(size).decode(errors="replace")
        status, more, said = self.server.outside.answered(Asked(self.command, self.path, body, headers))
        try:
            self.send_response(status)
            for key, value in {**more, "Content-Length": str(len(said))}.items():
                self.send_header(key, value)
            self.end_headers()
            self.wfile.write(said)
        except ConnectionError:
            # Whoever asked was ended meanwhile, which is what some tests are about.
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_DELETE = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def outside_of_the_cluster(answer: str = "") -> Iterator[Outside]:
    program = os.environ.get("HOOKLINE_TEST_CLUSTER")
    if not program:
        pytest.skip("no way into the cluster's network: set HOOKLINE_TEST_CLUSTER")
    here, there = socket.socketpair()
    with here, there:
        command = [program, "in", sys.executable, "-c", HAND_OVER, str(there.fileno())]
        subprocess.run(command, pass_fds=[there.fileno()], check=True)
        _, (number,), *_ = socket.recv_fds(here, 1, 1)
    made = Outside(socket.socket(fileno=number), answer)
    try:
        yield made
    finally:
        made.close()
