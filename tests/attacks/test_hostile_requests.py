"""Requests that no client of ours would send, over sockets, to `hookline serve` of an agent and of a board."""

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hookline.http_server import LIMITS, Limits, listen, serving

HOOKLINE = str(Path(sys.executable).parent / "hookline")
LIMIT = 30.0
AGENT = """\
from pathlib import Path
from hookline import Agent, HookResult, Scripted, hook

@hook
def note(ctx, hook_context):
    Path("ran").touch()
    return HookResult.continue_with()

agent = Agent(id="helper", model=Scripted(["Hello."] * 50), on_start=[note])
"""
BOARD = """\
---
tracker:
  kind: folder
  provider: {path: issues}
workspace: {root: ws}
server: {host: HOST}
agent:
  kind: command
  command: ["true"]
---
Work.
"""
PARTS = [{"kind": "text", "text": "hi"}]
TOKEN = "this-is-the-token-of-the-test"


def message(parts=PARTS, **more):
    params = {"message": {"role": "user", "messageId": "m", "parts": parts, **more}}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params}).encode()


class Server:
    """An agent or a board behind `hookline serve`, in a folder of its own."""

    def __init__(self, folder, kind, host="127.0.0.1"):
        self.folder, self.kind, self.host = folder, kind, host
        (folder / "agent.py").write_text(AGENT)
        (folder / "issues").mkdir()
        (folder / "WORKFLOW.md").write_text(BOARD.replace("HOST", host))
        self.port = 0

    @property
    def words(self):
        words = ["agent.py", f"--host={self.host}"] if self.kind == "agent" else ["WORKFLOW.md"]
        return [HOOKLINE, "serve", *words, "--port=0"]

    @property
    def environ(self):
        return {**os.environ, "HOOKLINE_HOME": str(self.folder / "home"), "NO_COLOR": "1"}

    @contextlib.contextmanager
    def running(self, *words, terminal=False, says=""):
        """Yields what it says until it is up, and has said this too."""
        ours, theirs = pty.openpty() if terminal else os.pipe()
        process = subprocess.Popen(
            [*self.words, *words],
            cwd=self.folder,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=theirs,
            env=self.environ,
        )
        os.close(theirs)
        try:
            said = self._said(ours, says)
            self.port = int(re.search(r"http://[^ ]*?:(\d+)", said)[1])
            yield said
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(LIMIT)
            os.close(ours)

    def _said(self, ours, says):
        said = ""
        while not re.search(rf"(?s)http://[^ ]*?:\d+[/\s].*{says}", said):
            assert select.select([ours], [], [], LIMIT)[0], said
            piece = os.read(ours, 4096).decode()
            assert piece, said
            said += piece
        return said

    def connected(self):
        return socket.create_connection(("127.0.0.1", self.port), LIMIT)

    def asked(self, *headers, method="POST", path="", body=None):
        """The status and text of one request; by default the one that has an effect."""
        path = path or ("/" if self.kind == "agent" else "/api/v1/refresh")
        body = (message() if self.kind == "agent" else b"") if body is None else body
        head = [f"{method} {path} HTTP/1.1", f"Content-Length: {len(body)}", "Content-Type: application/json"]
        if not any(each.startswith("Host:") for each in headers):
            head.append(f"Host: 127.0.0.1:{self.port}")
        return self.sent("\r\n".join([*head, *headers, "Connection: close", "", ""]).encode() + body)

    def sent(self, request):
        with self.connected() as client:
            client.sendall(request)
            return answer_on(client)

    @property
    def ran(self):
        return (self.folder / "ran").exists()

    def answers(self):
        """True if a plain request is answered."""
        return self.asked()[0] in (200, 202)


def answer_on(client):
    got = b""
    with contextlib.suppress(ConnectionError):
        while piece := client.recv(65536):
            got += piece
    head, _, text = got.partition(b"\r\n\r\n")
    return int(head.split(b" ")[1]) if head else 0, text.decode()


@pytest.fixture(params=["agent", "board"])
def server(request, tmp_path):
    return Server(tmp_path, request.param)


FOREIGN = {
    "a name of somebody else": ["Host: evil.example"],
    "a name that begins like ours": ["Host: 127.0.0.1.evil.example"],
    "a name before an @": ["Host: localhost@evil.example"],
    "a page of another site": ["Origin: https://evil.example"],
    "a page of another port here": ["Origin: http://localhost:3000"],
    "a page that hides where it is": ["Origin: null"],
    "a link or an image on another site": ["Sec-Fetch-Site: cross-site"],
    "a page of the same machine": ["Sec-Fetch-Site: same-site"],
}


def test_a_page_in_a_browser_neither_runs_the_agent_nor_reads_the_board(server):
    with server.running():
        for why, headers in FOREIGN.items():
            assert server.asked(*headers)[0] == 403, why
            read = "/.well-known/agent-card.json" if server.kind == "agent" else "/api/v1/state"
            status, text = server.asked(*headers, method="GET", path=read, body=b"")
            assert (status, "helper" in text or "counts" in text) == (403, False), why
        assert not server.ran
        for name in ("localhost", "127.0.0.1:80", "[::1]:8080"):
            assert server.asked(f"Host: {name}")[0] in (200, 202)
    assert server.ran == (server.kind == "agent")


def test_a_body_without_end_is_not_read_to_its_end(server):
    with server.running():
        with server.connected() as client:
            client.sendall(f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
            client.sendall(b"Transfer-Encoding: chunked\r\n\r\n")
            chunk = b"10000\r\n" + b"a" * 2**16 + b"\r\n"
            sent = 0
            with contextlib.suppress(ConnectionError):
                while sent < 2**28:
                    client.sendall(chunk)
                    sent += len(chunk)
        assert sent < 2**28
        assert server.answers()


def test_a_body_that_is_announced_as_huge_is_refused_before_it_comes(server):
    with server.running():
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: {2**40}\r\n\r\n"
        assert server.sent(head.encode())[0] == 413
        assert server.answers()


@pytest.mark.parametrize("each", ["X-Much: 1\r\n", "X: " + "a" * 4000 + "\r\n"], ids=["many", "long"])
def test_headers_without_end_are_not_read_to_their_end(server, each):
    count = 10 if len(each) > 100 else 1000
    with server.running():
        head = f"GET /api/v1/state HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nConnection: close\r\n"
        status, _ = server.sent((head + each * count + "\r\n").encode())
        assert status in (0, 400, 431)
        assert server.answers()


def test_five_hundred_clients_that_never_finish_keep_no_other_waiting(server):
    with server.running(), contextlib.ExitStack() as stack:
        head = f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Length: 100\r\n\r\n".encode()
        clients = [stack.enter_context(server.connected()) for _ in range(500)]
        for number, client in enumerate(clients):
            with contextlib.suppress(ConnectionError):
                client.sendall((b"", head[:20], head, head + b"a")[number % 4])
        assert server.answers()
        until = time.monotonic() + LIMIT
        while (left := [each for each in clients if not is_closed(each)]) and time.monotonic() < until:
            if len(left) <= LIMITS.connections:
                break
            time.sleep(0.05)
        assert 0 < len(left) <= LIMITS.connections
        assert server.answers()


def is_closed(client):
    if not select.select([client], [], [], 0)[0]:
        return False
    try:
        return not client.recv(1, socket.MSG_PEEK)
    except ConnectionError:
        return True


def test_another_is_answered_while_a_body_comes_slowly(server):
    with server.running(), server.connected() as slow:
        body = message()
        slow.sendall(f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n".encode())
        slow.sendall(f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body[:-1])
        assert server.answers()
        slow.sendall(body[-1:])
        assert answer_on(slow)[0] == (200 if server.kind == "agent" else 404)


MANY = {
    "parts": message(parts=[{"kind": "text", "text": ""}] * 10_000),
    "numbers": message(metadata={"a": [0] * 200_000}),
    "lists in lists": message(metadata={"a": [[[[]]]] * 50_000}),
    "no JSON that can be read": b"[" * 500_000,
}


@pytest.mark.parametrize("body", MANY.values(), ids=MANY.keys())
def test_a_message_of_very_many_parts_is_not_worked_through(tmp_path, body):
    server = Server(tmp_path, "agent")
    with server.running():
        assert server.asked(body=body)[0] == 413
        assert not server.ran
        assert server.asked(body=message(parts=[{"kind": "text", "text": "[{," * 300_000}]))[0] == 200


SLOW = {
    "nothing at all": b"",
    "half a header": b"POST / HTTP/1.1\r\nHos",
    "half a body": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc",
    "a second request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HTTP/1.1\r\nHos",
}


@pytest.mark.parametrize("given", SLOW.values(), ids=SLOW.keys())
def test_a_client_that_stops_in_the_middle_is_not_waited_for_for_ever(given):
    async def said(scope, receive, send):
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    _closed_by_the_server(said, given)


def test_a_client_that_does_not_read_its_answer_is_not_waited_for_for_ever():
    async def much(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(100):
            await send({"type": "http.response.body", "body": b"a" * 2**20, "more_body": True})

    _closed_by_the_server(much, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", reads=False)


def _closed_by_the_server(app, given, *, reads=True):
    import asyncio

    async def closed():
        listener = listen("127.0.0.1", 0)
        async with serving(app, listener, limits=Limits(seconds=0.1)) as served:
            reader, writer = await asyncio.open_connection(*listener.getsockname(), limit=2**10)
            writer.write(given)
            async with asyncio.timeout(LIMIT):
                if not reads:
                    while not served.server_state.connections:
                        await asyncio.sleep(0.01)
                    while served.server_state.connections:
                        await asyncio.sleep(0.01)
                with contextlib.suppress(ConnectionError):
                    await reader.read()
            writer.close()

    asyncio.run(closed())


@pytest.fixture(params=["agent", "board"])
def open_server(request, tmp_path):
    return Server(tmp_path, request.param, host="0.0.0.0")


def test_a_server_on_every_address_does_not_begin_without_a_token(open_server):
    done = subprocess.run(
        open_server.words,
        cwd=open_server.folder,
        env=open_server.environ,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, "--token-file" in done.stderr) == (2, True), done.stderr


WRONG = {
    "none": [],
    "another": ["Authorization: Bearer this-is-not-the-token"],
    "the beginning": [f"Authorization: Bearer {TOKEN[:-1]}"],
    "an empty one": ["Authorization: Bearer "],
    "in another way": [f"Authorization: Basic {TOKEN}"],
    "in another header": [f"X-Token: {TOKEN}"],
}


def test_without_the_token_nothing_runs_and_nothing_is_read(open_server):
    (open_server.folder / "token").write_text(f"{TOKEN}\n")
    with open_server.running("--token-file=token") as said:
        assert TOKEN not in said
        for why, headers in WRONG.items():
            assert open_server.asked(*headers)[0] == 401, why
            assert open_server.asked(*headers, method="GET", path="/api/v1/state", body=b"")[0] == 401, why
        assert not open_server.ran
        assert open_server.asked(f"Authorization: Bearer {TOKEN}", "Host: our.example")[0] in (200, 202)
    assert open_server.ran == (open_server.kind == "agent")


def test_a_token_that_nobody_gave_is_made_and_shown_once_at_the_terminal(open_server):
    with open_server.running(terminal=True, says=r"\s[-\w]{43}\s") as said:
        (token,) = re.findall(r"\s([-\w]{43})\s", said)
        assert open_server.asked()[0] == 401
        assert open_server.asked(f"Authorization: Bearer {token}")[0] in (200, 202)


def test_a_server_without_a_token_is_told_to_be_open(open_server):
    with open_server.running("--no-token", says="--no-token: whoever reaches"):
        assert open_server.answers()


BAD = {"short": "abc", "empty": "", "two words": "one two three four five six", "bytes": "é" * 20}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD.keys())
def test_a_token_that_can_be_guessed_is_not_taken(tmp_path, text):
    server = Server(tmp_path, "agent")
    (tmp_path / "token").write_text(text)
    done = subprocess.run(
        [*server.words, "--token-file=token"],
        cwd=tmp_path,
        env=server.environ,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert (done.returncode, "--token-file" in done.stderr) == (2, True), done.stderr
