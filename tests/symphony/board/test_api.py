"""The service over HTTP: what is shown, and what is said where there is nothing to show."""

import socket

import httpx2
import pytest

from hookline.engine.context import Usage
from hookline.errors import UsageError
from hookline.http_server import listen, serving
from hookline.symphony import scheduler
from hookline.symphony.agents import AgentEvent
from hookline.symphony.read import Workflow
from hookline.symphony.scheduler import State
from hookline.symphony.serve import api
from hookline.symphony.service import StateView
from tests.symphony.board.test_state import issue

RULES = Workflow(file="WORKFLOW.md")


def busy():
    """One running, one waiting, one parked."""
    issues = (issue("A-1"), issue("B-1"), issue("C-1"))
    state, [look] = scheduler.polled(State(), RULES, 0, issues=issues)
    found = {each.id: each for each in issues}
    state, _ = scheduler.looked(state, RULES, 10, asked=look.ids, found=found)
    tokens = Usage(input_tokens=10, output_tokens=8, total_tokens=18)
    told = AgentEvent(kind="notification", text="hello", session_id="s-1", tokens=tokens)
    state, _ = scheduler.heard(state, RULES, 20, id="id-A-1", generation=1, event=told)
    failed = {"id": "id-B-1", "generation": 2, "outcome": "failed", "error": "boom"}
    state, _ = scheduler.finished(state, RULES, 30, **failed)
    asked = {"id": "id-C-1", "generation": 3, "outcome": "input_required", "error": "which?"}
    state, _ = scheduler.finished(state, RULES, 30, **asked)
    return state


def view():
    return StateView(
        state=busy(), clock=lambda at: 1_700_000_000 + at, workspace=lambda name: f"/root/{name}"
    )


def shown():
    return view().snapshot(40, None)


def found(name):
    return view().issue(name)


@pytest.mark.rule("O29", "M53")
def test_the_snapshot_has_what_runs_waits_is_blocked_and_was_used():
    seen = shown()
    assert seen["counts"] == {"running": 1, "retrying": 1, "blocked": 1}
    [running] = seen["running"]
    assert (running["issue_identifier"], running["session_id"], running["last_message"]) == (
        "A-1",
        "s-1",
        "hello",
    )
    assert running["tokens"] == {"input_tokens": 10, "output_tokens": 8, "total_tokens": 18}
    assert (running["started_at"], running["last_event_at"]) == (
        "2023-11-14T22:13:30Z",
        "2023-11-14T22:13:40Z",
    )
    assert running["workspace_path"] == "/root/A-1"
    [retry] = seen["retrying"]
    assert (retry["attempt"], retry["error"], retry["due_at"]) == (1, "boom", "2023-11-14T22:14:00Z")
    [blocked] = seen["blocked"]
    assert blocked["error"] == "which?"
    assert seen["codex_totals"]["total_tokens"] == 18
    assert seen["codex_totals"]["seconds_running"] == 70
    assert [each["outcome"] for each in seen["finished"]] == ["failed", "input_required"]


@pytest.mark.rule("O29")
@pytest.mark.parametrize(
    ("name", "status", "error", "attempt"),
    [("A-1", "running", None, 0), ("B-1", "retrying", "boom", 1), ("C-1", "blocked", "which?", 0)],
)
def test_one_issue_is_shown_with_where_it_stands(name, status, error, attempt):
    seen = found(name)
    assert (seen["status"], seen["last_error"]) == (status, error)
    assert seen["attempts"]["current_retry_attempt"] == attempt
    assert seen["workspace"] == {"path": f"/root/{name}"}


def test_an_issue_that_nobody_knows_is_none():
    assert found("X-9") is None


class Shown:
    """A service, as far as it is shown."""

    snapshot = staticmethod(shown)
    issue = staticmethod(found)

    def __init__(self, refresh):
        self.refresh = refresh


@pytest.fixture
async def client():
    asked = []

    def refresh():
        asked.append(1)
        return {"queued": True, "coalesced": len(asked) > 1}

    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with (
        serving(api(Shown(refresh)), listener),
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as made,
    ):
        yield made


@pytest.mark.rule("O29")
async def test_the_state_an_issue_and_a_refresh_are_served(client):
    answer = await client.get("/api/v1/state")
    assert (answer.status_code, answer.json()["counts"]["running"]) == (200, 1)
    answer = await client.get("/api/v1/B-1")
    assert (answer.status_code, answer.json()["status"]) == (200, "retrying")
    answer = await client.post("/api/v1/refresh")
    assert (answer.status_code, answer.json()) == (202, {"queued": True, "coalesced": False})


@pytest.mark.rule("O29")
@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/X-9", 404, "issue_not_found"),
        ("GET", "/api/v1/a/b%20c", 404, "issue_not_found"),
        ("POST", "/api/v1/state", 405, "method_not_allowed"),
        ("GET", "/api/v1/refresh", 405, "method_not_allowed"),
        ("GET", "/elsewhere", 404, "not_found"),
        ("DELETE", "/api/v1/refresh", 405, "method_not_allowed"),
    ],
)
async def test_what_cannot_be_answered_says_so_in_one_form(client, method, path, status, code):
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.json()["error"]["message"]


def test_a_port_that_is_taken_is_said():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"cannot listen on 127.0.0.1:{port}"):
            listen("127.0.0.1", port)


def test_a_port_that_is_none_is_said():
    with pytest.raises(UsageError, match=r"cannot listen on 127\.0\.0\.1:99999"):
        listen("127.0.0.1", 99999)
