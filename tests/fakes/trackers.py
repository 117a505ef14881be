"""Trackers for tests: real servers on loopback that answer as Linear's and GitHub's do, from a list of issues.

    with FakeLinear([linear_issue("ABC-1")]) as linear:
        tracker = LinearTracker({"project_slug": "p", "endpoint": linear.url}, {"LINEAR_API_KEY": "key"})

`trouble` is what the next requests get instead of an answer, one after another: a `Trouble` or None for a good one.
"""

from __future__ import annotations

import json
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """An answer that is none: a status, a body, headers; or silence; or a connection that is cut."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    silent: float = 0.0
    cut: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class _Fake(ABC):
    """A server on loopback. `asked` keeps the requests, `issues` may be changed while it serves."""

    def __init__(self, issues: Sequence[dict[str, Any]] = (), *, page: int = 50) -> None:
        self.issues = list(issues)
        self.page = page
        self.asked: list[Asked] = []
        self.trouble: list[Trouble | None] = []
        fake = self

        class Line(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                fake.serve(self)

            do_POST = do_GET

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Line)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def serve(self, line: BaseHTTPRequestHandler) -> None:
        content = line.rfile.read(int(line.headers.get("content-length") or 0))
        headers = {key.lower(): value for key, value in line.headers.items()}
        asked = Asked(
            method=line.command,
            path=line.path,
            headers=headers,
            body=json.loads(content) if content else None,
        )
        self.asked.append(asked)
        wrong = self.trouble.pop(0) if self.trouble else None
        if wrong is None:
            _send(line, *self.answer(asked))
            return
        time.sleep(wrong.silent)
        if wrong.cut:
            line.close_connection = True
            return
        _send(line, wrong.status, wrong.body, wrong.headers)

    @abstractmethod
    def answer(self, asked: Asked) -> tuple[int, Any, Mapping[str, str]]: ...


class FakeLinear(_Fake):
    """Linear's GraphQL, as far as issues, their pages and the viewer."""

    key = "key"
    viewer = "user-1"

    def answer(self, asked: Asked) -> tuple[int, Any, Mapping[str, str]]:
        if asked.headers.get("authorization") != self.key:
            return 401, {"errors": [{"message": "Authentication required"}]}, {}
        given = asked.body["variables"]
        if "viewer" in asked.body["query"]:
            return 200, {"data": {"viewer": {"id": self.viewer}}}, {}
        if "ids" in given:
            nodes = [each for each in self.issues if each.get("id") in given["ids"]][: given["first"]]
            return 200, {"data": {"issues": {"nodes": nodes}}}, {}
        fit = [
            each
            for each in self.issues
            if cast("Any", each.get("state") or {}).get("name") in given["states"]
        ]
        start, count = int(given["after"] or 0), min(given["first"], self.page)
        more = start + count < len(fit)
        page = {"hasNextPage": more, "endCursor": str(start + count) if more else None}
        return 200, {"data": {"issues": {"nodes": fit[start : start + count], "pageInfo": page}}}, {}


class FakeGithub(_Fake):
    """GitHub's REST for the issues of one repository."""

    token = "token"

    def answer(self, asked: Asked) -> tuple[int, Any, Mapping[str, str]]:
        if asked.headers.get("authorization") != f"Bearer {self.token}":
            return 401, {"message": "Bad credentials"}, {}
        url = urlsplit(asked.path)
        last = url.path.rpartition("/")[2]
        if last != "issues":
            found = [each for each in self.issues if str(each.get("number")) == last]
            return (200, found[0], {}) if found else (404, {"message": "Not Found"}, {})
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        wanted = query.get("state", "open")
        fit = [each for each in self.issues if wanted == "all" or each.get("state") == wanted]
        number, count = int(query.get("page", "1")), min(int(query["per_page"]), self.page)
        part = fit[(number - 1) * count : number * count]
        if number * count >= len(fit):
            return 200, part, {}
        query["page"] = str(number + 1)
        text = "&".join(f"{key}={value}" for key, value in query.items())
        return 200, part, {"Link": f'<{self.url}{url.path}?{text}>; rel="next"'}


def linear_issue(identifier: str, state: str = "Todo", **more: Any) -> dict[str, Any]:
    """One issue as Linear sends it."""
    return {
        "id": f"uuid-{identifier}",
        "identifier": identifier,
        "title": f"title of {identifier}",
        "description": None,
        "priority": 0,
        "state": {"name": state},
        "branchName": f"feature/{identifier.lower()}",
        "url": f"https://linear.app/t/issue/{identifier}",
        "assignee": None,
        "labels": {"nodes": []},
        "inverseRelations": {"nodes": []},
        "createdAt": "2026-01-02T03:04:05.678Z",
        "updatedAt": "2026-01-02T03:04:05.678Z",
        **more,
    }


def github_issue(number: int, state: str = "open", **more: Any) -> dict[str, Any]:
    """One issue as GitHub sends it."""
    return {
        "number": number,
        "node_id": f"I_{number}",
        "title": f"title of {number}",
        "body": None,
        "state": state,
        "html_url": f"https://github.com/o/r/issues/{number}",
        "assignee": None,
        "labels": [],
        "created_at": "2026-01-02T03:04:05Z",
        "updated_at": "2026-01-02T03:04:05Z",
        **more,
    }


def _send(line: BaseHTTPRequestHandler, status: int, body: Any, headers: Mapping[str, str]) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        line.send_response(status)
        for key, value in headers.items():
            line.send_header(key, value)
        line.send_header("Content-Length", str(len(content)))
        line.end_headers()
        line.wfile.write(content)
    except OSError:
        # The client has left; that is its own matter.
        line.close_connection = True
