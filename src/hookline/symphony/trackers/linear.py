"""Issues of a Linear project, over its GraphQL API."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from hookline.engine.plain import inner, mapping
from hookline.symphony.trackers import (
    TRACKERS,
    Blocker,
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

_ENDPOINT = "https://api.linear.app/graphql"
_PAGE = 50
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


class LinearTracker(WebTracker):
    """One project. `provider` has `project_slug`, and may have `api_key`, `endpoint` and `assignee` (an id, or `me`)."""

    def __init__(self, provider: Mapping[str, Any], env: Mapping[str, str]) -> None:
        endpoint = setting(provider, "endpoint", env) or _ENDPOINT
        self._assignee = setting(provider, "assignee", env)
        self._slug = setting(provider, "project_slug", env)
        if self._slug is None:
            raise TrackerError("tracker.provider.project_slug is not set", kind="invalid_tracker_config")
        key = secret(provider, "api_key", env, TRACKERS["linear"].secret, called="API key for Linear")
        super().__init__("Linear", endpoint, {"Authorization": key})

    async def by_states(self, states: Sequence[str]) -> list[Issue]:
        if not states:
            return []
        mine = await self._mine()

        async def page(after: str) -> tuple[Iterable[Any], str | None]:
            given = {
                "slug": self._slug,
                "states": list(states),
                "first": _PAGE,
                "after": after or None,
            }
            issues = await self._issues(_BY_STATES, given)
            return _nodes(issues), _next_page(issues)

        return await self.listed("", _PAGE, page, lambda node: _issue(node, mine))

    async def by_ids(self, ids: Sequence[str]) -> list[Issue]:
        wanted = list(dict.fromkeys(ids))
        if not wanted:
            return []
        mine = await self._mine()
        found: dict[str, Issue] = {}
        for start in range(0, len(wanted), _PAGE):
            part = wanted[start : start + _PAGE]
            issues = await self._issues(_BY_IDS, {"ids": part, "first": len(part)})
            for node in _nodes(issues):
                issue = _issue(node, mine)
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
        answer = await self.ask("POST", "", given={"query": query, "variables": given}, fine=(400,))
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


def _nodes(issues: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    nodes = issues.get("nodes")
    if not isinstance(nodes, list):
        raise TrackerError("Linear answered without a list of issues", kind="tracker_response")
    for node in cast("list[Any]", nodes):
        yield mapping(node)


def _next_page(issues: Mapping[str, Any]) -> str | None:
    if inner(issues, "pageInfo", "hasNextPage") is not True:
        return None
    cursor = text_or_none(inner(issues, "pageInfo", "endCursor"))
    if cursor is None:
        raise TrackerError("Linear says that there is a next page, but not which", kind="tracker_pagination")
    return cursor


def _issue(node: Mapping[str, Any], mine: str | None) -> Issue:
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
        labels=labels_in(list_in(node, "labels", "nodes")),
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
