"""URL hooks against real servers on loopback that behave badly in every way."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hookline.engine.context import HookContext
from hookline.engine.hook import Handler
from hookline.engine.result import HookResult
from hookline.errors import HookBroke, UsageError
from hookline.handlers.http import http_handler
from hookline.handlers.process import context_json
from hookline.runners import Ending

CONTEXT = HookContext(workflow_id="w", point="tool.start", run_id="r1", current_payload={"command": "ls"})


def decode(ending: Ending, _context: HookContext) -> HookResult:
    return HookResult.continue_with(modified_payload=json.loads(ending.stdout.content))


class Server:
    """Answers every connection by a function that is given the socket and the whole request."""

    def __init__(self, answer: Callable[[socket.socket, bytes], None]) -> None:
        self.requests: list[bytes] = []
        self.closed = threading.Event()
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()

    def _serve(self) -> None:
        while not self.closed.is_set():
            connection, _ = self._listening.accept()
            thread = threading.Thread(target=self._one, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _one(self, connection: socket.socket) -> None:
        with connection:
            try:
                request = received(connection)
                if request:
                    self.requests.append(request)
                    self._answer(connection, request)
            except OSError:
                pass

    def close(self) -> None:
        self.closed.set()
        with socket.create_connection(self._listening.getsockname()):
            pass
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "a connection is still open"
        self._listening.close()


def received(connection: socket.socket) -> bytes:
    text = b""
    while b"\r\n\r\n" not in text:
        part = connection.recv(65536)
        if not part:
            return text
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    length = next(
        int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def serving(answer: Callable[[socket.socket, bytes], None] | bytes) -> Iterator[Server]:
    server = Server(
        (lambda connection, _: connection.sendall(answer)) if isinstance(answer, bytes) else answer
    )
    try:
        yield server
    finally:
        server.close()


def http(status: str, body: bytes = b"", *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def posting(url: str, **more) -> Handler:
    usual = {"decode": decode, "encode": context_json, "headers": {}, "variables": (), "timeout": 60}
    return http_handler(url, **{**usual, **more})


async def told(url: str, **more) -> HookBroke:
    with pytest.raises(HookBroke) as error:
        await posting(url, **{"timeout": 20, **more})(None, CONTEXT)
    return error.value


async def test_the_context_is_posted_and_a_json_answer_decoded():
    with serving(http("200 OK", b'{"command": "ls -l"}')) as server:
        answer = await posting(server.url + "/hook?a=1")(None, CONTEXT)
    assert answer.modified_payload == {"command": "ls -l"}
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /hook?a=1 HTTP/1.1\r\n")
    assert b"Content-Type: application/json" in head
    assert HookContext.from_dict(json.loads(body)) == CONTEXT


async def test_a_chunked_answer_is_an_answer():
    chunked = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    with serving(chunked) as server:
        assert (await posting(server.url)(None, CONTEXT)).modified_payload == {}


NO_ANSWERS = {
    "500": (http("500 Oh", b"it broke"), "answered 500 Oh: it broke"),
    "404": (http("404 Not Found", b'{"decision": "approve"}'), "answered 404 Not Found"),
    "html": (
        http("200 OK", b"<html>login</html>", "Content-Type: text/html"),
        "(text/html), and not with a JSON",
    ),
    "empty": (http("204 No Content"), "answered 204 (no content type), and not with a JSON object"),
    "array": (http("200 OK", b"[]"), "not with a JSON object"),
    "words around": (http("200 OK", b"ok {}"), "not with a JSON object"),
    "deep": (http("200 OK", b"[" * 200_000), "not with a JSON object"),
    "half a character": (http("200 OK", b'{"a": "\xc3"}'), "not with a JSON object"),
    "cut off": (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}", "broke off in its answer"),
    "cut off, chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\n{}",
        "gave no complete answer",
    ),
    "too big": (http("200 OK", b'{"a": "' + b"x" * 2_000_000 + b'"}'), "more than 1048576 bytes"),
    "nothing": (b"", "gave no complete answer"),
    "no http": (b"SSH-2.0-OpenSSH\r\n", "gave no complete answer"),
    "302": (http("302 Found", b"", "Location: /other"), "answered 302 and redirects to '/other'; only a 307"),
    "no place": (http("307 Temporary Redirect"), "redirects to ''"),
    "other host": (http("307 x", b"", "Location: http://localhost:1/"), "redirects to 'http://localhost:1/'"),
    "other scheme": (http("308 x", b"", "Location: file:///etc/passwd"), "redirects to 'file:///etc/passwd'"),
    "bad port": (
        http("308 x", b"", "Location: http://127.0.0.1:99999/"),
        "only a 307 or 308 to the same host",
    ),
    "round and round": (http("307 x", b"", "Location: /again"), "redirects more than 5 times"),
}


@pytest.mark.parametrize(("answer", "said"), NO_ANSWERS.values(), ids=NO_ANSWERS.keys())
async def test_what_is_no_answer_broke(answer, said):
    with serving(answer) as server:
        error = await told(server.url)
    assert error.kind == "bad_answer"
    assert said in str(error)


async def test_a_redirect_within_the_host_posts_again():
    def answer(connection: socket.socket, request: bytes) -> None:
        moved = http("307 Temporary Redirect", b"", "Location: /new")
        connection.sendall(http("200 OK", b'{"a": 1}') if request.startswith(b"POST /new ") else moved)

    with serving(answer) as server:
        answer_given = await posting(server.url + "/old")(None, CONTEXT)
    assert answer_given.modified_payload == {"a": 1}
    bodies = {request.partition(b"\r\n\r\n")[2] for request in server.requests}
    assert len(server.requests) == 2
    assert len(bodies) == 1


async def test_an_endless_answer_is_cut_off():
    sent = 0

    def answer(connection: socket.socket, _request: bytes) -> None:
        nonlocal sent
        connection.sendall(b'HTTP/1.1 200 OK\r\n\r\n{"a": "')
        while sent < 10_000_000_000:
            sent += connection.send(b"x" * 65536)

    with serving(answer) as server:
        assert "more than 1048576 bytes" in str(await told(server.url))
    assert sent < 50_000_000


def hangs(connection: socket.socket, _request: bytes) -> None:
    assert connection.recv(1) == b""


def drips(connection: socket.socket, _request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.01)


def drips_without_a_length(connection: socket.socket, _request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        connection.sendall(b" ")
        time.sleep(0.01)


def goes_on_with_headers(connection: socket.socket, _request: bytes) -> None:
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        time.sleep(0.01)


@pytest.mark.parametrize("answer", [hangs, drips, drips_without_a_length, goes_on_with_headers])
async def test_a_url_that_hangs_is_given_up_at_the_limit_and_its_connection_closed(answer):
    with serving(answer) as server:
        error = await told(server.url, timeout=0.2)
    assert (error.kind, str(error)) == ("timed_out", f"{server.url} ran past its limit of 0.2 s")


async def test_a_cancelled_call_closes_its_connection():
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def answer(connection: socket.socket, request: bytes) -> None:
        loop.call_soon_threadsafe(begun.set)
        hangs(connection, request)

    with serving(answer) as server:
        calling = asyncio.ensure_future(posting(server.url)(None, CONTEXT))
        await begun.wait()
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_one_that_is_not_reached_did_not_start():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    error = await told(f"http://127.0.0.1:{port}/?token=secret")
    assert error.kind == "not_started"
    assert f"could not start: http://127.0.0.1:{port}/ was not reached" in str(error)
    assert "secret" not in str(error)
    assert (await told("http://no-such-host.invalid/")).kind == "not_started"


async def test_headers_come_from_named_variables(monkeypatch):
    monkeypatch.setenv("TOKEN", "t0p")
    monkeypatch.setenv("OTHER", "o")
    headers = {"Authorization": "Bearer $TOKEN", "X-Two": "${TOKEN}-${OTHER}"}
    with serving(http("200 OK", b"{}")) as server:
        handler = posting(server.url, headers=headers, variables=["TOKEN", "OTHER"])
        await handler(None, CONTEXT)
    assert b"\r\nAuthorization: Bearer t0p\r\n" in server.requests[0]
    assert b"\r\nX-Two: t0p-o\r\n" in server.requests[0]


async def test_a_variable_that_is_not_set_or_cannot_be_sent_is_told_without_its_value(monkeypatch):
    monkeypatch.delenv("TOKEN", raising=False)
    more = {"headers": {"Authorization": "Bearer $TOKEN"}, "variables": ["TOKEN"]}
    absent = await told("http://127.0.0.1:1", **more)
    assert (absent.kind, "needs the variable TOKEN" in str(absent)) == ("not_started", True)
    monkeypatch.setenv("TOKEN", "secret\r\nX: y")
    broken = await told("http://127.0.0.1:1", **more)
    assert (broken.kind, "secret" in str(broken)) == ("not_started", False)


@pytest.mark.parametrize(
    ("url", "headers", "said"),
    [
        ("ftp://host/", {}, "is not a URL to post to"),
        ("host/path", {}, "is not a URL to post to"),
        ("http:///path", {}, "is not a URL to post to"),
        ("http://host:abc/", {}, "is not a URL"),
        ("http://user:pw@host/", {}, "a URL with a password"),
        ("http://host/a b", {}, "characters that a URL cannot have"),
        ("http://host/\r\nX: y", {}, "characters that a URL cannot have"),
        ("http://host/", {"A": "$HOME"}, r"uses \$HOME, which is not among the variables"),
        ("http://host/", {"Host": "other"}, "not a header that can be set"),
        ("http://host/", {"A b": "x"}, "not a header that can be set"),
    ],
)
def test_a_wrong_declaration_is_told_at_once(url, headers, said):
    with pytest.raises(UsageError, match=said):
        posting(url, headers=headers)
