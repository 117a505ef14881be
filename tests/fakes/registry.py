"""An image registry for tests: a real server on loopback that speaks the distribution API, and misbehaves on request.

    with FakeRegistry() as registry:
        registry.put("org/hooks", "v1", MadeImage.of({"check.sh": "..."}))
        ref = f"{registry.host}/org/hooks:v1"

What `misbehave` takes, for the next so many requests of a kind (`manifests`, `blobs`, `token`):

    status:    answers with this HTTP status
    refused:   answers 403 with this message
    body:      answers 200 with this text, as text/html
    cut:       drops the connection after so many bytes of the body
    hang:      never answers
    drip:      sends the body byte by byte until the client leaves, never the whole
    location:  redirects there
    headers:   more headers
"""

from __future__ import annotations

import base64
import json
import re
import socket
import ssl
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import TCPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.fakes.images import MadeImage

_PATH = re.compile(r"/v2/(.+)/(manifests|blobs)/([^/]+)")
_TOKEN = "a-token-of-this-registry"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request; the names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    cut: int | None = None
    hang: bool = False
    drip: bool = False


class FakeRegistry:
    """Serves until it is closed. `login` is wanted by `auth`: token, or basic; `ranges` says whether it resumes.

    With a `certificate` (a PEM file that has its key too) it speaks TLS.
    """

    def __init__(
        self,
        *,
        login: tuple[str, str] | None = None,
        auth: str | None = None,
        identity: str | None = None,
        ranges: bool = True,
        certificate: Path | None = None,
    ) -> None:
        self.asked: list[Asked] = []
        self.realm: str | None = None
        self._login = login
        self._identity = identity
        self._auth = auth
        self._ranges = ranges
        self._manifests: dict[tuple[str, str], tuple[bytes, str]] = {}
        self._blobs: dict[str, bytes] = {}
        self._troubles: list[tuple[str, dict[str, Any]]] = []
        self._lock = threading.Lock()
        self._server = _Server(self, certificate)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def put(self, repository: str, tag: str, image: MadeImage) -> str:
        """Its digest; the image is there under that too."""
        with self._lock:
            self._blobs |= image.blobs
            for name in (tag, image.digest):
                self._manifests[repository, name] = (image.manifest, image.media_type)
            for name, content in image.blobs.items():
                kind = _manifest_type(content)
                if kind:
                    self._manifests[repository, name] = (content, kind)
        return image.digest

    def drop_blob(self, digest: str) -> None:
        del self._blobs[digest]

    def replace_blob(self, digest: str, content: bytes) -> None:
        self._blobs[digest] = content

    def replace_manifest(self, repository: str, tag: str, content: bytes, media_type: str) -> None:
        self._manifests[repository, tag] = (content, media_type)

    def misbehave(self, kind: str, *, times: int = 1, **how: Any) -> None:
        self._troubles += [(kind, how)] * times

    def paths(self, part: str = "") -> list[str]:
        return [asked.path for asked in self.asked if part in asked.path]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.hang_up()
        self._server.server_close()

    def __enter__(self) -> FakeRegistry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def answer(self, asked: Asked) -> _Answer:
        with self._lock:
            self.asked.append(asked)
            url = urlsplit(asked.path)
            found = _PATH.fullmatch(url.path)
            kind = "token" if url.path == "/token" else found[2] if found else ""
            trouble = self._trouble(kind)
        if kind == "token":
            answer = self._token(asked, url.query)
        elif self._auth and not self._is_let_in(asked):
            answer = _Answer(status=401, headers={"WWW-Authenticate": self._challenge()})
        else:
            answer = self._found(found, asked) if found else _error(404, "NAME_UNKNOWN", "unknown path")
        return _spoilt(answer, trouble)

    def _trouble(self, kind: str) -> dict[str, Any]:
        for number, (name, how) in enumerate(self._troubles):
            if name == kind:
                del self._troubles[number]
                return how
        return {}

    def _found(self, found: re.Match[str], asked: Asked) -> _Answer:
        repository, kind, name = found.groups()
        if kind == "manifests":
            manifest = self._manifests.get((repository, name))
            if manifest is None:
                return _error(404, "MANIFEST_UNKNOWN", "manifest unknown")
            return _Answer(body=manifest[0], headers={"Content-Type": manifest[1]})
        blob = self._blobs.get(name)
        if blob is None:
            return _error(404, "BLOB_UNKNOWN", "blob unknown to registry")
        wanted = re.fullmatch(r"bytes=(\d+)-", asked.headers.get("range", ""))
        if wanted and self._ranges:
            start = int(wanted[1])
            part = {"Content-Range": f"bytes {start}-{len(blob) - 1}/{len(blob)}"}
            return _Answer(status=206, body=blob[start:], headers=part)
        return _Answer(body=blob, headers={"Content-Type": "application/octet-stream"})

    def _token(self, asked: Asked, query: str) -> _Answer:
        form = parse_qs(asked.body.decode() if asked.method == "POST" else query)
        allowed = self._login is None and self._identity is None
        allowed = allowed or (self._login is not None and asked.headers.get("authorization") == self._basic())
        allowed = allowed or (self._identity is not None and form.get("refresh_token") == [self._identity])
        if not allowed or not form.get("scope"):
            return _error(401, "UNAUTHORIZED", "authentication required")
        return _Answer(
            body=json.dumps({"token": _TOKEN}).encode(), headers={"Content-Type": "application/json"}
        )

    def _is_let_in(self, asked: Asked) -> bool:
        wanted = self._basic() if self._auth == "basic" else f"Bearer {_TOKEN}"
        return asked.headers.get("authorization") == wanted

    def _challenge(self) -> str:
        if self._auth == "basic":
            return 'Basic realm="fake"'
        return f'Bearer realm="{self.realm or self.url + "/token"}",service="fake",scope="repository:x:pull"'

    def _basic(self) -> str:
        return "Basic " + base64.b64encode(":".join(self._login or ("", "")).encode()).decode()


def _manifest_type(content: bytes) -> str | None:
    try:
        value: Any = json.loads(content)
    except ValueError:
        return None
    return value.get("mediaType")


def _error(status: int, code: str, message: str) -> _Answer:
    body = json.dumps({"errors": [{"code": code, "message": message}]}).encode()
    return _Answer(status=status, body=body, headers={"Content-Type": "application/json"})


def _spoilt(answer: _Answer, how: Mapping[str, Any]) -> _Answer:
    headers = {**answer.headers, **how.get("headers", {})}
    if "location" in how:
        return _Answer(status=how.get("status", 307), headers={**headers, "Location": how["location"]})
    if "refused" in how:
        return _error(403, "DENIED", how["refused"])
    if "status" in how:
        return _Answer(status=how["status"], body=b'{"errors": [{"message": "no luck"}]}', headers=headers)
    if "body" in how:
        return _Answer(body=how["body"].encode(), headers={**headers, "Content-Type": "text/html"})
    return _Answer(
        status=answer.status,
        body=answer.body,
        headers=headers,
        cut=how.get("cut"),
        hang=how.get("hang", False),
        drip=how.get("drip", False),
    )


class _Line(BaseHTTPRequestHandler):
    """One connection to a client."""

    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def _serve(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        # A client that was told to use a proxy asks for the whole address.
        path = re.sub(r"^http://[^/]+", "", self.path)
        answer = self.server.registry.answer(
            Asked(method=self.command, path=path, headers=headers, body=body)
        )
        with suppress(ConnectionError):
            self._send(answer)

    def _send(self, answer: _Answer) -> None:
        if answer.hang:
            self.connection.recv(1)
            return
        self.send_response(answer.status)
        for name, value in {**answer.headers, "Content-Length": str(len(answer.body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if answer.drip:
            self._drip(answer.body)
        else:
            self.wfile.write(answer.body if answer.cut is None else answer.body[: answer.cut])

    def _drip(self, body: bytes) -> None:
        self.connection.settimeout(0.05)
        for at in range(len(body) - 1):
            self.wfile.write(body[at : at + 1])
            with suppress(TimeoutError):
                if self.connection.recv(1) == b"":
                    return

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    """Knows its open connections, so that closing it leaves no thread behind."""

    daemon_threads = False

    def __init__(self, registry: FakeRegistry, certificate: Path | None) -> None:
        self.registry = registry
        self._tls: ssl.SSLContext | None = None
        if certificate is not None:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(certificate)
        self._open: set[socket.socket] = set()
        self._open_lock = threading.Lock()
        super().__init__(("127.0.0.1", 0), _Line)

    def server_bind(self) -> None:
        # Not HTTPServer's own: that asks the name service for our name, which may take its time.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is None:
            super().finish_request(request, client_address)
            return
        # In the connection's own thread: a client that does not like our certificate holds up nobody.
        with suppress(OSError), self._tls.wrap_socket(request, server_side=True) as wrapped:
            super().finish_request(wrapped, client_address)

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
