"""Issues of a Linear project, over its GraphQL API, and of a GitHub repository, over its REST API.

On GitHub an issue is `open` or `closed`; with `state_prefix: "status:"` an open one that is labelled `status:review` is
in `review`. A pull request is never worked on.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from hookline.symphony.trackers import TRACKERS, Blocker, Issue, TrackerError
from hookline.symphony.trackers.client import (
    Api,
    inner,
    list_in,
    secret,
    setting,
    text_or_none,
    time_or_none,
)

MOST = 10_000
"""Issues of one list."""


class _WebTracker:
    """A tracker behind an HTTP API, which lists its issues in pages."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.omitted: tuple[str, ...] = ()

    async def close(self) -> None:
        await self._api.close()

    async def _listed(
        self,
        first: str,
        size: int,
        page: Callable[[str], Awaitable[tuple[Iterable[Any], str | None]]],
        read: Callable[[Any], Issue],
    ) -> list[Issue]:
        """The issues of all pages, each of which leads to the next one; those that cannot be read are `omitted`."""
        found: list[Issue] = []
        omitted: list[str] = []
        after: str | None = first
        for _ in range(MOST // size):
            nodes, after = await page(after)
            for node in nodes:
                try:
                    found.append(read(node))
                except TrackerError as exc:
                    omitted.append(str(exc))
            if after is None:
                self.omitted = tuple(omitted)
                return found
        raise TrackerError(f"{self._api.name} has more than {MOST} issues", kind="tracker_pagination")


_LINEAR = "https://api.linear.app/graphql"
_LINEAR_PAGE = 50
_FIELDS = """
id identifier title description priority branchName url createdAt updatedAt
state { name } assignee { id } labels { nodes { name } }
inverseRelations(first: 50) { nodes { type issue { id identifier state { name } } } }
"""
_BY_STATES = f"""query Issues($slug: String!, $states: [String!]!, $first: Int!, $after: String) {{
  issues(
    filter: {{ project: {{ slugId: {{ eq: $slug }} }}, state: {{ name: {{ in: $states }} }} }}
    first: $first, after: $after
  ) {{ nodes {{ {_FIELDS} }} pageInfo {{ hasNextPage endCursor }} }}
}}"""
_BY_IDS = f"""query IssuesById($ids: [ID!]!, $first: Int!) {{
  issues(filter: {{ id: {{ in: $ids }} }}, first: $first) {{ nodes {{ {_FIELDS} }} }}
}}"""
_VIEWER = "query Viewer { viewer { id } }"


class LinearTracker(_WebTracker):
    """One project. `provider` has `project_slug`, and may have `api_key`, `endpoint` and `assignee` (an id, or `me`)."""

    def __init__(self, provider: Mapping[str, Any], env: Mapping[str, str]) -> None:
        endpoint = setting(provider, "endpoint", env) or _LINEAR
        self._assignee = setting(provider, "assignee", env)
        self._slug = setting(provider, "project_slug", env)
        if self._slug is None:
            raise TrackerError("tracker.provider.project_slug is not set", kind="invalid_tracker_config")
        key = secret(provider, "api_key", env, TRACKERS["linear"].secret, called="API key for Linear")
        super().__init__(Api("Linear", endpoint, {"Authorization": key}))

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        if not states:
            return []
        mine = await self._mine()

        async def page(after: str) -> tuple[Iterable[Any], str | None]:
            given = {
                "slug": self._slug,
                "states": list(states),
                "first": _LINEAR_PAGE,
                "after": after or None,
            }
            issues = await self._issues(_BY_STATES, given)
            return _nodes(issues), _next_page(issues)

        return await self._listed("", _LINEAR_PAGE, page, lambda node: _linear_issue(node, mine))

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return []
        mine = await self._mine()
        found: dict[str, Issue] = {}
        for start in range(0, len(wanted), _LINEAR_PAGE):
            part = wanted[start : start + _LINEAR_PAGE]
            issues = await self._issues(_BY_IDS, {"ids": part, "first": len(part)})
            for node in _nodes(issues):
                issue = _linear_issue(node, mine)
                found[issue.id] = issue
        return [found[id] for id in wanted if id in found]

    async def _mine(self) -> str | None:
        """The assignee whose issues are ours; None if all are."""
        if self._assignee != "me":
            return self._assignee
        id = inner(await self._asked(_VIEWER, {}), "viewer", "id")
        if not isinstance(id, str):
            raise TrackerError("Linear does not say who `me` is", kind="tracker_response")
        self._assignee = id
        return id

    async def _issues(self, query: str, given: Mapping[str, Any]) -> dict[str, Any]:
        issues = (await self._asked(query, given)).get("issues")
        if not isinstance(issues, dict):
            raise TrackerError("Linear answered without issues", kind="tracker_response")
        return cast("dict[str, Any]", issues)

    async def _asked(self, query: str, given: Mapping[str, Any]) -> dict[str, Any]:
        # Linear tells of its rate limit with a 400, so the body is read before the status is judged.
        answer = await self._api.ask("POST", "", given={"query": query, "variables": given}, fine=(400,))
        errors = inner(answer.body, "errors")
        if errors:
            raise _refused(cast("list[Any]", errors) if isinstance(errors, list) else [errors])
        data = inner(answer.body, "data")
        if answer.status != 200 or not isinstance(data, dict):
            kind = "tracker_status" if answer.status != 200 else "tracker_response"
            raise TrackerError(f"Linear answered HTTP {answer.status} without data", kind=kind)
        return cast("dict[str, Any]", data)


def _refused(errors: list[Any]) -> TrackerError:
    first = errors[0]
    limited = inner(first, "extensions", "code") == "RATELIMITED"
    said = inner(first, "message") if isinstance(first, dict) else first
    return TrackerError(
        f"Linear answered with an error: {str(said)[:200]}",
        kind="tracker_rate_limited" if limited else "tracker_response",
    )


def _nodes(issues: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    nodes = issues.get("nodes")
    if not isinstance(nodes, list):
        raise TrackerError("Linear answered without a list of issues", kind="tracker_response")
    for node in cast("list[Any]", nodes):
        yield cast("dict[str, Any]", node) if isinstance(node, dict) else {}


def _next_page(issues: Mapping[str, Any]) -> str | None:
    if inner(issues, "pageInfo", "hasNextPage") is not True:
        return None
    cursor = text_or_none(inner(issues, "pageInfo", "endCursor"))
    if cursor is None:
        raise TrackerError("Linear says that there is a next page, but not which", kind="tracker_pagination")
    return cursor


def _linear_issue(node: Mapping[str, Any], mine: str | None) -> Issue:
    state = text_or_none(inner(node, "state", "name"))
    needed = {key: text_or_none(node.get(key)) for key in ("id", "identifier", "title")}
    missing = [key for key, value in {**needed, "state": state}.items() if value is None]
    if missing:
        which = node.get("identifier") or node.get("id") or "an issue"
        raise TrackerError(f"Linear sent {which} without {', '.join(missing)}", kind="tracker_response")
    assignee = text_or_none(inner(node, "assignee", "id"))
    priority = node.get("priority")
    return Issue(
        id=needed["id"] or "",
        identifier=needed["identifier"] or "",
        title=needed["title"] or "",
        state=state or "",
        native_ref=needed["id"],
        description=text_or_none(node.get("description")),
        priority=priority if isinstance(priority, int) and not isinstance(priority, bool) else None,
        branch_name=text_or_none(node.get("branchName")),
        url=text_or_none(node.get("url")),
        assignee_id=assignee,
        labels=_labels(list_in(node, "labels", "nodes")),
        blocked_by=tuple(_blockers(node)),
        dispatchable=mine is None or assignee == mine,
        created_at=time_or_none(node.get("createdAt")),
        updated_at=time_or_none(node.get("updatedAt")),
    )


def _blockers(node: Mapping[str, Any]) -> Iterator[Blocker]:
    for relation in list_in(node, "inverseRelations", "nodes"):
        other = inner(relation, "issue")
        if str(inner(relation, "type")).strip().lower() == "blocks" and other is not None:
            yield Blocker(
                id=text_or_none(inner(other, "id")),
                identifier=text_or_none(inner(other, "identifier")),
                state=text_or_none(inner(other, "state", "name")),
            )


_GITHUB = "https://api.github.com"
_GITHUB_PAGE = 100
_AT_ONCE = 4
_REPOSITORY = re.compile(r"[A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+")
_IDENTIFIER = re.compile(r"GH-([1-9][0-9]*)")
_NEXT = re.compile(r'<([^>]+)>\s*;[^,]*\brel="?next"?')
_GONE = (301, 404, 410)
"""Moved to another repository, not there, or deleted: in every case not ours any more."""


class GithubTracker(_WebTracker):
    """One repository. `provider` has `repository` (owner/name), and may have `token`, `endpoint`, `assignee`,
    `state_prefix`."""

    def __init__(self, provider: Mapping[str, Any], env: Mapping[str, str]) -> None:
        repository = setting(provider, "repository", env)
        endpoint = setting(provider, "endpoint", env) or _GITHUB
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
        super().__init__(Api("GitHub", endpoint, headers))

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        wanted = {state.strip().lower() for state in states}
        if not wanted:
            return []
        asked = (
            "all" if "closed" in wanted and len(wanted) > 1 else "closed" if "closed" in wanted else "open"
        )
        query = {"state": asked, "per_page": _GITHUB_PAGE, "sort": "created", "direction": "asc"}

        async def page(url: str) -> tuple[Iterable[Any], str | None]:
            answer = await self._api.ask("GET", url)
            nodes: Any = answer.body
            if not isinstance(nodes, list):
                raise TrackerError("GitHub answered without a list of issues", kind="tracker_response")
            return cast("list[Any]", nodes), self._next_page(answer.headers)

        found = await self._listed(f"{self._path}?{urlencode(query)}", _GITHUB_PAGE, page, self._issue)
        return [issue for issue in found if issue.state in wanted]

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        places = asyncio.Semaphore(_AT_ONCE)

        async def one(id: str) -> Issue | None:
            number = _IDENTIFIER.fullmatch(id)
            if number is None:
                return None
            async with places:
                answer = await self._api.ask("GET", f"{self._path}/{number[1]}", fine=_GONE)
            return None if answer.status in _GONE else self._issue(answer.body)

        found = await asyncio.gather(*(one(id) for id in dict.fromkeys(ids)))
        return [issue for issue in found if issue is not None]

    def _next_page(self, headers: Mapping[str, str]) -> str | None:
        link = _NEXT.search(headers.get("link", ""))
        if link is None:
            return None
        if urlsplit(link[1]).netloc != urlsplit(self._api.base).netloc:
            raise TrackerError(
                f"GitHub's next page is on another host: {link[1]!r}", kind="tracker_pagination"
            )
        return link[1]

    def _issue(self, node: Any) -> Issue:
        known = cast("dict[str, Any]", node) if isinstance(node, dict) else {}
        number, title, state = known.get("number"), text_or_none(known.get("title")), known.get("state")
        if not isinstance(number, int) or title is None or state not in ("open", "closed"):
            which = f"issue {number}" if number else "an issue"
            raise TrackerError(f"GitHub sent {which} without number, title or state", kind="tracker_response")
        labels = _labels(list_in(known, "labels"))
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


def _labels(listed: Iterable[Any]) -> tuple[str, ...]:
    names = (inner(label, "name") if isinstance(label, dict) else label for label in listed)
    return tuple(name.strip().lower() for name in names if isinstance(name, str) and name.strip())
