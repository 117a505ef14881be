"""A model provider for tests: a real server on loopback that speaks the real protocols and answers from a script.

    with FakeProvider(["Hello."]) as provider:
        client = openai.OpenAI(base_url=provider.openai, api_key="any")

Each request takes one turn. A turn is what it is for `Scripted`, where `stream` may also be a generator, which is
read as its pieces are sent and closed when the client leaves. A turn may also misbehave:

    status:       answers with this HTTP error; `error` is its message. `error` alone is a 400
    retry_after:  seconds, as the header of that error
    headers:      more headers
    cut:          drops the connection after so many events of the stream
    hang:         true: never answers; a number: falls silent after so many events of the stream
    body:         answers 200 with this text, of the type in `headers`
    empty:        true: answers with no choices, or no content
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from types import TracebackType
from typing import Any, cast

from hookline.agent.models.script import ScriptRanOut, ScriptTurn, TurnScript, expected, read_turn
from hookline.errors import UsageError
from tests.fakes.wires import WIRES, Answer, Wire

MESSAGES = {
    400: "the request is not valid",
    401: "the API key is not valid",
    403: "this key may not use this model",
    404: "the model does not exist",
    429: "too many requests",
    500: "the server had an error",
    503: "the service is not available",
    529: "overloaded",
}

CONVERSATION = ("messages", "input", "contents")
"""The keys under which a request has its conversation, by protocol."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """One request as it arrived; the names of headers are in lower case."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Turn:
    turn: ScriptTurn
    status: int = 200
    retry_after: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: int | None = None
    hang: bool | int | None = None
    body: str | bytes | None = None
    empty: bool = False


MISBEHAVING: Mapping[str, tuple[tuple[type, ...], str]] = {
    "status": ((int,), "a number"),
    "retry_after": ((int, float), "seconds"),
    "headers": ((Mapping,), "a mapping"),
    "cut": ((int,), "a number of events"),
    "hang": ((bool, int), "true or a number of events"),
    "body": ((str, bytes), "a text"),
    "empty": ((bool,), "true or false"),
}


class FakeProvider:
    """Serves from when it is made until it is closed. `requests` keeps what it was asked."""

    def __init__(self, turns: Sequence[Any] = (), *, repeat: bool = False) -> None:
        self.requests: list[Received] = []
        self._script = TurnScript(turns, _read, repeat=repeat)
        self._lock = threading.Lock()
        self._server = _Server(self._answer)
        # The interval is also how long closing takes.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def openai(self) -> str:
        """The base url for OpenAI's clients."""
        return f"{self.url}/v1"

    @property
    def gemini(self) -> str:
        """The base url for Google's clients."""
        return self.url

    @property
    def anthropic(self) -> str:
        """The base url for Anthropic's clients."""
        return self.url

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> FakeProvider:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self, line: _Line, received: Received) -> None:
        wire = next(
            (wire for ending, wire in WIRES.items() if received.path.partition("?")[0].endswith(ending)), None
        )
        if wire is None:
            line.send_json(
                404, {"error": {"message": f"unknown path {received.path}", "type": "not_found_error"}}
            )
            return
        try:
            taken, answer = self._take(received)
        except (ScriptRanOut, UsageError) as exc:
            line.send_json(400, wire.error(400, str(exc)))
            return
        complaint = _complaint(wire, received) or expected(
            answer.turn, next(received.body[key] for key in CONVERSATION if received.body.get(key))[-1]
        )
        if complaint:
            line.send_json(400, wire.error(400, complaint))
            return
        time.sleep(answer.turn.delay)
        try:
            _send(line, wire, taken, answer, received)
        finally:
            stream: Any = answer.turn.stream
            if isinstance(stream, Generator):
                stream.close()

    def _take(self, received: Received) -> tuple[_Turn, Answer]:
        with self._lock:
            self.requests.append(received)
            taken = self._script.next(received)
            calls = self._script.calls(taken.turn)
            model = str(received.body.get("model"))
            return taken, Answer(number=len(self.requests), model=model, turn=taken.turn, calls=calls)


def _read(value: Any) -> _Turn:
    if not isinstance(value, Mapping):
        return _Turn(turn=read_turn(value))
    given = dict(cast("Mapping[str, Any]", value))
    own = {key: given.pop(key) for key in MISBEHAVING if key in given}
    for key, item in own.items():
        kinds, what = MISBEHAVING[key]
        if not isinstance(item, kinds):
            raise UsageError(f"{key} must be {what}, not {item!r}")
    if own and not given:
        given = {"text": ""}
    turn = read_turn(given)
    if turn.error is not None:
        own.setdefault("status", 400)
    return _Turn(turn=turn, **own)


def _complaint(wire: Wire, received: Received) -> str | None:
    try:
        return wire.complaint(received.body, received.headers)
    except (AttributeError, KeyError, TypeError) as exc:
        return f"the request is malformed: {exc!r}"


def _send(line: _Line, wire: Wire, taken: _Turn, answer: Answer, received: Received) -> None:
    body = received.body
    streams = body.get("stream") or ":stream" in received.path
    headers = dict(taken.headers)
    if taken.retry_after is not None:
        headers["retry-after"] = f"{taken.retry_after:g}"
    if taken.hang is True:
        line.wait_until_left()
    elif taken.body is not None:
        body_sent = taken.body.encode() if isinstance(taken.body, str) else taken.body
        line.send(taken.status, body_sent, {"content-type": "text/html", **headers})
    elif taken.status >= 400:
        message = answer.turn.error or MESSAGES.get(taken.status, "internal error")
        line.send_json(taken.status, wire.error(taken.status, message), headers)
    elif taken.empty and not streams:
        line.send_json(200, wire.nothing(answer), headers)
    elif not streams:
        line.send_json(200, wire.whole(answer), headers)
    else:
        line.stream(_events(wire, taken, answer, body), headers, cut=taken.cut, hang=taken.hang)


def _events(wire: Wire, taken: _Turn, answer: Answer, body: Mapping[str, Any]) -> Iterator[bytes]:
    return wire.no_events(answer, body) if taken.empty else wire.events(answer, body)


class _Line(BaseHTTPRequestHandler):
    """One connection to a client."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            self.send_json(
                400, {"error": {"message": "the body is not a JSON object", "type": "invalid_request_error"}}
            )
            return
        received = Received(path=self.path, headers=headers, body=cast("dict[str, Any]", body))
        try:
            self.server.answer(self, received)
        except ConnectionError:
            # A client may leave whenever it likes; that is what some tests are about.
            self.close_connection = True

    def send_json(self, status: int, value: Any, headers: Mapping[str, str] | None = None) -> None:
        self.send(status, json.dumps(value).encode(), {"content-type": "application/json", **(headers or {})})

    def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self._start(status, {**headers, "content-length": str(len(body))})
        self.wfile.write(body)

    def stream(
        self, events: Iterator[bytes], headers: Mapping[str, str], *, cut: int | None, hang: int | None
    ) -> None:
        self._start(200, {"content-type": "text/event-stream", **headers, "transfer-encoding": "chunked"})
        for number, event in enumerate(events):
            if number == cut:
                self.close_connection = True
                return
            if number == hang:
                self.wait_until_left()
                return
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")

    def wait_until_left(self) -> None:
        self.connection.recv(1)
        self.close_connection = True

    def _start(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that closing it leaves no thread behind."""

    daemon_threads = False
    request_queue_size = 128

    def __init__(self, answer: Callable[[_Line, Received], None]) -> None:
        self.answer = answer
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Line)

    def server_bind(self) -> None:
        # Not HTTPServer's own: that asks the name service for our name, which may take its time.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._open_lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._open_lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        with self._open_lock:
            for connection in self._open:
                # The client may have been faster.
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
