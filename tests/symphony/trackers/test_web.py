"""Linear and GitHub over HTTP, against loopback servers that answer as theirs do."""

import time

import pytest

from hookline.symphony.read import Workflow
from hookline.symphony.run import tracker_of
from hookline.symphony.settings import TrackerSettings
from hookline.symphony.trackers import TRACKERS, Blocker, TrackerError, WebTracker, retry_seconds
from hookline.symphony.trackers.github import GithubTracker
from hookline.symphony.trackers.linear import LinearTracker
from tests.fakes.trackers import FakeGithub, FakeLinear, Trouble, github_issue, linear_issue


class Linear:
    fake = FakeLinear
    states = ("Todo", "In Progress")

    @staticmethod
    def tracker(url, **more):
        return LinearTracker({"project_slug": "p", "endpoint": url, **more}, {"LINEAR_API_KEY": "key"})

    @staticmethod
    def issue(number, **more):
        return linear_issue(f"ABC-{number}", **more)

    @staticmethod
    def id(number):
        return f"uuid-ABC-{number}"


class Github:
    fake = FakeGithub
    states = ("open",)

    @staticmethod
    def tracker(url, **more):
        return GithubTracker({"repository": "o/r", "endpoint": url, **more}, {"GITHUB_TOKEN": "token"})

    @staticmethod
    def issue(number, **more):
        return github_issue(number, **more)

    @staticmethod
    def id(number):
        return f"GH-{number}"


@pytest.fixture(params=[Linear, Github])
def kind(request):
    return request.param


@pytest.fixture
def served(kind):
    with kind.fake(page=3) as fake:
        yield fake


@pytest.fixture
async def tracker(kind, served):
    made = kind.tracker(served.url)
    yield made
    await made.close()


@pytest.mark.rule("M31", "O27")
async def test_every_page_is_read_in_the_trackers_order(kind, served, tracker):
    served.issues = [kind.issue(number) for number in range(1, 9)]
    found = await tracker.by_states(kind.states)
    assert [issue.id for issue in found] == [kind.id(number) for number in range(1, 9)]
    assert len(served.asked) == 3


@pytest.mark.rule("M29", "M30", "O27")
async def test_asked_for_nothing_it_makes_no_request(served, tracker):
    assert await tracker.by_states([]) == []
    assert await tracker.by_ids([]) == []
    assert served.asked == []


@pytest.mark.rule("M35", "O27")
async def test_issues_asked_for_by_id_come_whole_and_those_that_are_gone_are_left_out(kind, served, tracker):
    served.issues = [kind.issue(number) for number in range(1, 70)]
    wanted = [kind.id(number) for number in (60, 1, 99, 60)]
    found = await tracker.by_ids(wanted)
    assert [issue.id for issue in found] == [kind.id(60), kind.id(1)]
    assert found[0].title.startswith("title of")


@pytest.mark.rule("O27", "M34")
async def test_a_list_leaves_out_what_cannot_be_read_and_says_so_but_a_refresh_fails(kind, served, tracker):
    served.issues = [kind.issue(1), kind.issue(2, title=None), kind.issue(3)]
    found = await tracker.by_states(kind.states)
    assert [issue.id for issue in found] == [kind.id(1), kind.id(3)]
    assert "title" in tracker.omitted[0]
    with pytest.raises(TrackerError, match="title") as caught:
        await tracker.by_ids([kind.id(2)])
    assert caught.value.kind == "tracker_response"


TROUBLE = {
    "html": (Trouble(body=b"<html>hello</html>"), "tracker_response", "answered no JSON: '<html>"),
    "another shape": (Trouble(body={"data": 5}), "tracker_response", "without"),
    "an error": (Trouble(status=500, body={"message": "boom"}), "tracker_status", "HTTP 500: boom"),
    "html and an error": (Trouble(status=502, body=b"<html>"), "tracker_status", "HTTP 502"),
    "a redirect": (
        Trouble(status=302, body={}, headers={"Location": "http://127.0.0.1:1/"}),
        "tracker_status",
        "HTTP 302",
    ),
    "cut": (Trouble(cut=True), "tracker_request", "was not reached"),
    "too many": (
        Trouble(status=429, body={}, headers={"Retry-After": "7"}),
        "tracker_rate_limited",
        "too many requests",
    ),
    "forbidden": (Trouble(status=403, body={"message": "no"}), "tracker_status", "HTTP 403: no"),
}


@pytest.mark.rule("M39", "O27")
@pytest.mark.parametrize("case", TROUBLE)
async def test_every_kind_of_trouble_has_its_name(kind, served, tracker, case):
    trouble, name, said = TROUBLE[case]
    served.issues = [kind.issue(1)]
    served.trouble = [trouble]
    with pytest.raises(TrackerError) as caught:
        await tracker.by_states(kind.states)
    assert caught.value.kind == name
    assert said in str(caught.value)
    if name == "tracker_rate_limited":
        assert caught.value.retry_after == 7
    found = await tracker.by_states(kind.states)
    assert [issue.id for issue in found] == [kind.id(1)], "the next request is a new one"


async def test_a_server_that_is_not_there_is_said(kind):
    with kind.fake() as fake:
        url = fake.url
    tracker = kind.tracker(url)
    with pytest.raises(TrackerError, match="was not reached") as caught:
        await tracker.by_states(kind.states)
    assert caught.value.kind == "tracker_request"
    await tracker.close()


async def test_a_slow_server_is_given_up():
    with FakeGithub() as fake:
        fake.trouble = [Trouble(silent=1.0)]
        api = WebTracker("It", fake.url, {})
        api.timeout = 0.1
        with pytest.raises(TrackerError, match=r"It did not answer in 0\.1 s"):
            await api.ask("GET", "/")
        await api.close()


async def test_an_answer_without_end_is_not_kept(monkeypatch):
    monkeypatch.setattr("hookline.symphony.trackers.LARGEST", 1000)
    with FakeGithub() as fake:
        fake.trouble = [Trouble(body="x" * 2000)]
        api = WebTracker("It", fake.url, {})
        with pytest.raises(TrackerError, match="more than 1000 bytes"):
            await api.ask("GET", "/")
        await api.close()


@pytest.mark.rule("W11", "O27")
@pytest.mark.parametrize(
    ("made", "kind", "said"),
    [
        (lambda: LinearTracker({}, {"LINEAR_API_KEY": "k"}), "invalid_tracker_config", "project_slug"),
        (lambda: LinearTracker({"project_slug": "p"}, {}), "missing_tracker_secret", r"set \$LINEAR_API_KEY"),
        (
            lambda: LinearTracker({"project_slug": "p", "api_key": "$MY"}, {"MY": "", "LINEAR_API_KEY": "k"}),
            "missing_tracker_secret",
            r"\$MY",
        ),
        (lambda: LinearTracker({"project_slug": 5}, {}), "invalid_tracker_config", "5, not a text"),
        (lambda: GithubTracker({"repository": "o/r"}, {}), "missing_tracker_secret", "GITHUB_TOKEN"),
        (
            lambda: GithubTracker({"repository": "o"}, {"GITHUB_TOKEN": "t"}),
            "invalid_tracker_config",
            "owner/name",
        ),
        (lambda: GithubTracker({}, {"GITHUB_TOKEN": "t"}), "invalid_tracker_config", "owner/name"),
        (
            lambda: tracker_of(Workflow(file="WORKFLOW.md", tracker=TrackerSettings(kind="jira"))),
            "unsupported_tracker_kind",
            "known: folder",
        ),
    ],
)
def test_a_wrong_configuration_says_what_would_be_right(made, kind, said):
    with pytest.raises(TrackerError, match=said) as caught:
        made()
    assert caught.value.kind == kind


@pytest.mark.rule("W11", "W10", "M10")
async def test_a_key_may_be_a_variable_and_an_unset_one_falls_back_to_the_usual_one():
    with FakeLinear([linear_issue("A-1")]) as fake:
        for provider, env in (
            ({"api_key": "key"}, {}),
            ({"api_key": "$MINE"}, {"MINE": "key"}),
            ({"api_key": "$MINE"}, {"LINEAR_API_KEY": "key"}),
            ({}, {"LINEAR_API_KEY": "key"}),
        ):
            tracker = LinearTracker({"project_slug": "p", "endpoint": fake.url, **provider}, env)
            assert len(await tracker.by_states(["Todo"])) == 1
            await tracker.close()
        literal = LinearTracker(
            {"project_slug": "p", "endpoint": fake.url, "api_key": "${MINE}"}, {"MINE": "key"}
        )
        with pytest.raises(TrackerError, match="Authentication required"):
            await literal.by_states(["Todo"])
        await literal.close()


@pytest.mark.rule("O24", "M73")
def test_a_tracker_names_the_variables_that_must_not_be_handed_on():
    made = TrackerSettings(kind="linear", provider={"project_slug": "p", "api_key": "$MINE"})
    assert made.secret_names == {"MINE", "LINEAR_API_KEY"}
    assert TrackerSettings(kind="github").secret_names == {"GITHUB_TOKEN"}
    spaced = TrackerSettings(kind="github", provider={"token": " $MY_TOKEN "})
    assert spaced.secret_names == {"GITHUB_TOKEN", "MY_TOKEN"}
    assert TrackerSettings(kind="folder", provider={"path": "$HERE"}).secret_names == {"HERE"}


@pytest.mark.rule("O3", "M32", "M33", "M36")
async def test_an_issue_of_linear_has_all_its_fields():
    node = linear_issue(
        "ABC-1",
        description="why",
        priority=2,
        assignee={"id": "user-1"},
        labels={"nodes": [{"name": "Bug"}, {"name": None}, 5]},
        inverseRelations={
            "nodes": [
                {"type": "blocks", "issue": {"id": "u2", "identifier": "ABC-2", "state": {"name": "Todo"}}},
                {"type": "related", "issue": {"id": "u3", "identifier": "ABC-3"}},
                {"type": "blocks", "issue": None},
            ]
        },
        updatedAt="rubbish",
    )
    with FakeLinear([node]) as fake:
        tracker = Linear.tracker(fake.url)
        [issue] = await tracker.by_states(["Todo"])
        await tracker.close()
    assert (issue.id, issue.native_ref, issue.identifier) == ("uuid-ABC-1", "uuid-ABC-1", "ABC-1")
    assert (issue.description, issue.priority, issue.assignee_id) == ("why", 2, "user-1")
    assert (issue.branch_name, issue.url) == ("feature/abc-1", "https://linear.app/t/issue/ABC-1")
    assert issue.labels == ("bug",)
    assert issue.blocked_by == (Blocker(id="u2", identifier="ABC-2", state="Todo"),)
    assert issue.created_at is not None
    assert issue.created_at.year == 2026
    assert issue.updated_at is None


@pytest.mark.rule("M28")
async def test_linear_is_asked_for_the_states_of_the_project():
    with FakeLinear([linear_issue("A-1"), linear_issue("A-2", "Backlog")]) as fake:
        tracker = Linear.tracker(fake.url)
        assert [issue.identifier for issue in await tracker.by_states(["Backlog"])] == ["A-2"]
        await tracker.close()
    given = fake.asked[0].body["variables"]
    assert (given["slug"], given["states"]) == ("p", ["Backlog"])
    assert "slugId: { eq: $slug }" in fake.asked[0].body["query"]


@pytest.mark.rule("M37", "O3")
@pytest.mark.parametrize("assignee", ["me", "user-1"])
async def test_with_an_assignee_only_their_issues_are_ours(assignee):
    issues = [linear_issue("A-1", assignee={"id": "user-1"}), linear_issue("A-2", assignee={"id": "x"})]
    with FakeLinear([*issues, linear_issue("A-3")]) as fake:
        tracker = Linear.tracker(fake.url, assignee=assignee)
        found = await tracker.by_states(["Todo"])
        await tracker.by_states(["Todo"])
        await tracker.close()
    assert [issue.dispatchable for issue in found] == [True, False, False]
    assert sum("viewer" in asked.body["query"] for asked in fake.asked) == (assignee == "me")


@pytest.mark.rule("M39")
async def test_linears_rate_limit_comes_with_a_400():
    limited = {"errors": [{"message": "Rate limit exceeded", "extensions": {"code": "RATELIMITED"}}]}
    with FakeLinear() as fake:
        fake.trouble = [
            Trouble(status=400, body=limited),
            Trouble(status=400, body={"errors": [{"message": "bad"}]}),
        ]
        tracker = Linear.tracker(fake.url)
        for name in ("tracker_rate_limited", "tracker_response"):
            with pytest.raises(TrackerError) as caught:
                await tracker.by_states(["Todo"])
            assert caught.value.kind == name
        await tracker.close()


@pytest.mark.rule("M39", "O27")
@pytest.mark.parametrize("cursor", [None, "", 5])
async def test_a_next_page_without_a_cursor_is_an_error_and_no_endless_loop(cursor):
    page = {"data": {"issues": {"nodes": [], "pageInfo": {"hasNextPage": True, "endCursor": cursor}}}}
    with FakeLinear() as fake:
        fake.trouble = [Trouble(body=page)]
        tracker = Linear.tracker(fake.url)
        with pytest.raises(TrackerError, match="next page") as caught:
            await tracker.by_states(["Todo"])
        await tracker.close()
    assert caught.value.kind == "tracker_pagination"


@pytest.mark.rule("O28", "M37")
async def test_an_issue_of_github_has_its_fields_and_a_pull_request_is_never_worked_on():
    node = github_issue(
        12, body="why", assignee={"login": "ana"}, labels=[{"name": "Bug"}, "plain", {"name": None}]
    )
    with FakeGithub([node, github_issue(13, pull_request={"url": "x"})]) as fake:
        tracker = Github.tracker(fake.url)
        issue, pull = await tracker.by_states(["Open"])
        await tracker.close()
    assert (issue.id, issue.identifier, issue.native_ref) == ("GH-12", "GH-12", "I_12")
    assert (issue.description, issue.assignee_id, issue.labels) == ("why", "ana", ("bug", "plain"))
    assert issue.url == "https://github.com/o/r/issues/12"
    assert (issue.dispatchable, pull.dispatchable) == (True, False)


async def test_a_label_may_name_the_state_of_an_open_issue():
    issues = [
        github_issue(1, labels=[{"name": "Status: In Progress"}]),
        github_issue(2),
        github_issue(3, "closed", labels=[{"name": "status:review"}]),
    ]
    with FakeGithub(issues) as fake:
        tracker = Github.tracker(fake.url, state_prefix="status:")
        found = await tracker.by_states(["in progress", "open", "closed"])
        assert [issue.state for issue in found] == ["in progress", "open", "closed"]
        assert [issue.id for issue in await tracker.by_states(["closed"])] == ["GH-3"]
        await tracker.close()
    assert ["state=all" in fake.asked[0].path, "state=closed" in fake.asked[1].path] == [True, True]


async def test_an_issue_that_moved_away_is_not_ours_any_more():
    with FakeGithub([github_issue(1)]) as fake:
        fake.trouble = [Trouble(status=301, body={}, headers={"Location": f"{fake.url}/else"})]
        tracker = Github.tracker(fake.url)
        assert await tracker.by_ids(["GH-1"]) == []
        assert await tracker.by_ids(["GH-x", "ABC-1"]) == []
        await tracker.close()
    assert len(fake.asked) == 1


async def test_the_token_is_not_sent_to_another_host():
    with FakeGithub() as other, FakeGithub() as fake:
        fake.trouble = [Trouble(body=[], headers={"Link": f'<{other.url}/page2>; rel="next"'})]
        tracker = Github.tracker(fake.url)
        with pytest.raises(TrackerError, match="another host") as caught:
            await tracker.by_states(["open"])
        await tracker.close()
    assert caught.value.kind == "tracker_pagination"
    assert other.asked == []


@pytest.mark.rule("M39")
def test_how_long_to_wait_is_read_from_either_header():
    assert retry_seconds({}) is None
    assert retry_seconds({"retry-after": "12"}) == 12
    assert retry_seconds({"retry-after": "soon"}) is None
    soon = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 600))
    assert 300 < (retry_seconds({"retry-after": soon}) or 0) < 900
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()) + 600)}
    assert 300 < (retry_seconds(reset) or 0) < 900
    assert retry_seconds({**reset, "x-ratelimit-remaining": "5"}) is None


@pytest.mark.rule("O27")
def test_every_kind_can_be_made(tmp_path, monkeypatch):
    given = {
        "folder": ({}, {}),
        "memory": ({"path": "board"}, {}),
        "linear": ({"project_slug": "p"}, {"LINEAR_API_KEY": "k"}),
        "github": ({"repository": "o/r"}, {"GITHUB_TOKEN": "t"}),
    }
    assert set(given) == set(TRACKERS)
    for name, (provider, env) in given.items():
        for variable, value in env.items():
            monkeypatch.setenv(variable, value)
        settings = TrackerSettings(kind=name, provider=provider, terminal_states=("Done",))
        made = tracker_of(Workflow(file=str(tmp_path / "WORKFLOW.md"), tracker=settings))
        assert made is not None
        assert all((TRACKERS[name].active, TRACKERS[name].terminal))
