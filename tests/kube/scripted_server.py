"""A loopback server that answers each request with what is written next, however wrong that is."""

import asyncio
import json
from contextlib import asynccontextmanager
from typing import NamedTuple

# Nothing here is encrypted, so nobody has to read the certificates of the machine for it, which takes long.
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
contexts: [{{name: here, context: {{cluster: here, user: me, namespace: home}}}}]
users: [{{name: me, user: {user}}}]
"""


# The connection stays open and nothing comes.
SILENCE = None
# Something comes all the time, and never the end.
DRIBBLE = "dribble"


class Asked(NamedTuple):
    line: str
    head: dict[str, str]
    body: bytes


def answer(status: int, body, *, kind="application/json", **head) -> bytes:
    """One whole answer; a header's name is written with _ for -."""
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} Word", f"Content-Length: {len(body)}", f"Content-Type: {kind}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in head.items()]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def status(code: int, message: str, reason: str = "") -> bytes:
    return answer(code, {"kind": "Status", "code": code, "message": message, "reason": reason})


def stream(*lines) -> bytes:
    """A watch that ends where the connection does, so that a cut looks like any end."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
    return head + b"".join(
        line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines
    )


def chunked(*chunks: bytes, ended: bool = True) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    return (
        head
        + b"".join(b"%x\r\n%s\r\n" % (len(one), one) for one in chunks)
        + (b"0\r\n\r\n" if ended else b"")
    )


class Scripted:
    """`answers` are bytes, or functions from what was asked to bytes; the last is given for ever."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.asked: list[Asked] = []
        self.port = 0
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def connected(self, reader, writer):
        self._open[writer] = asyncio.create_task(self.talk(reader, writer))

    def close(self):
        """Close every connection, also one that came at the last moment and was never talked to."""
        for writer in self._open:
            writer.close()

    async def talk(self, reader, writer):
        try:
            asked = await self.read(reader)
            self.asked.append(asked)
            now = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if now is SILENCE:
                await reader.read()
                return
            if now is DRIBBLE:
                await self.dribble(writer)
                return
            writer.write(now(asked) if callable(now) else now)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def dribble(self, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def read(self, reader) -> Asked:
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        head = dict(line.lower().split(": ", 1) for line in rest if line)
        return Asked(first, head, await reader.readexactly(int(head.get("content-length", 0))))


@asynccontextmanager
async def scripted(tmp_path, *answers, user="{token: abc}"):
    """The server, and the path of a kubeconfig that leads to it."""
    made = Scripted(answers)
    server = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG.format(port=made.port, user=user))
    async with server:
        try:
            yield made, str(file)
        finally:
            made.close()
