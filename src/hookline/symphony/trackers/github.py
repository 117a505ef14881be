"""Issues of a GitHub repository, over its REST API.

An issue is `open` or `closed`; with `state_prefix: "status:"` an open one that is labelled `status:review` is in
`review`. A pull request is never worked on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from hookline.engine.plain import inner, mapping
from hookline.symphony.trackers import (
    TRACKERS,
    Issue,
    TrackerError,
    WebTracker,
    labels_in,
    list_in,
    secret,
    setting,
    text_or_none,
    time_or_none,
)

_ENDPOINT = "https://api.github.com"
_PAGE = 100
_AT_ONCE = 4
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_IDENTIFIER = re.compile(r"GH-([1-9][0-9]*)")
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')
_GONE = (301, 404, 410)
"""Moved to another repository, not there, or deleted: in every case not ours any more."""


class GithubTracker(WebTracker):
    """One repository. `provider` has `repository` (owner/name), and may have `token`, `endpoint`, `assignee`,
    `state_prefix`."""

    def __init__(self, provider: Mapping[str, Any], env: Mapping[str, str]) -> None:
        repository = setting(provider, "repository", env)
        endpoint = setting(provider, "endpoint", env) or _ENDPOINT
        self._assignee = setting(provider, "assignee", env)
        self._prefix = (setting(provider, "state_prefix", env) or "").lower()
        if repository is None or not _REPOSITORY.fullmatch(repository):
            raise TrackerError(
                f"tracker.provider.repository is {repository!r}; write owner/name",
                kind="invalid_tracker_config",
            )
        token = secret(provider, "token", env, TRACKERS["github"].secret, called="token for GitHub")
        self._path = f"/repos/{quote(repository)}/issues"
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept": "application/vnd.github+json",
            "X-GitHub-Api-Version": "2022-11-28",
            "User-Agent": "hookline",
        }
        super().__init__("GitHub", endpoint, headers)

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        wanted = {state.strip().lower() for state in states}
        if not wanted:
            return []
        asked = (
            "all" if "closed" in wanted and len(wanted) > 1 else "closed" if "closed" in wanted else "open"
        )
        query = {"state": asked, "per_page": _PAGE, "sort": "created", "direction": "asc"}

        async def page(url: str) -> tuple[Iterable[Any], str | None]:
            answer = await self.ask("GET", url)
            nodes: Any = answer.body
            if not isinstance(nodes, list):
                raise TrackerError("GitHub answered without a list of issues", kind="tracker_response")
            return cast("list[Any]", nodes), self._next_page(answer.headers)

        found = await self.listed(f"{self._path}?{urlencode(query)}", _PAGE, page, self._issue)
        return [issue for issue in found if issue.state in wanted]

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(id: str) -> Issue | None:
            number = _IDENTIFIER.fullmatch(id)
            if number is None:
                return None
            async with places:
                answer = await self.ask("GET", f"{self._path}/{number[1]}", fine=_GONE)
            return None if answer.status in _GONE else self._issue(answer.body)

        found = await asyncio.gather(*(one(id) for id in dict.fromkeys(ids)))
        return [issue for issue in found if issue is not None]

    def _next_page(self, headers: Mapping[str, str]) -> str | None:
        link = _NEXT.search(headers.get("link", ""))
        if link is None:
            return None
        if urlsplit(link[1]).netloc != urlsplit(self.base).netloc:
            raise TrackerError(
                f"GitHub's next page is on another host: {link[1]!r}", kind="tracker_pagination"
            )
        return link[1]

    def _issue(self, node: Any) -> Issue:
        known = mapping(node)
        number, title, state = known.get("number"), text_or_none(known.get("title")), known.get("state")
        if not isinstance(number, int) or title is None or state not in ("open", "closed"):
            which = f"issue {number}" if number else "an issue"
            raise TrackerError(f"GitHub sent {which} without number, title or state", kind="tracker_response")
        labels = labels_in(list_in(known, "labels"))
        assignee = text_or_none(inner(known, "assignee", "login"))
        ours = self._assignee is None or assignee == self._assignee
        return Issue(
            id=f"GH-{number}",
            identifier=f"GH-{number}",
            title=title,
            state=self._state(state, labels),
            native_ref=text_or_none(known.get("node_id")),
            description=text_or_none(known.get("body")),
            url=text_or_none(known.get("html_url")),
            assignee_id=assignee,
            labels=labels,
            dispatchable=ours and "pull_request" not in known,
            created_at=time_or_none(known.get("created_at")),
            updated_at=time_or_none(known.get("updated_at")),
        )

    def _state(self, state: str, labels: Sequence[str]) -> str:
        if state == "closed" or not self._prefix:
            return state
        named = (
            label.removeprefix(self._prefix).strip() for label in labels if label.startswith(self._prefix)
        )
        return next((name for name in named if name), state)
