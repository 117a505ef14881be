"""The prompt: strict, and wrong in a line of WORKFLOW.md that one can look at."""

from datetime import UTC, datetime

import pytest

from hookline.symphony.prompt import fault_of, guidance, rendered
from hookline.symphony.read import WorkflowError, read
from hookline.symphony.trackers import Blocker, Issue, issue_values

ISSUE = Issue(
    id="u1",
    identifier="ABC-123",
    title="Mend {{ the }} fence",
    state="Todo",
    labels=("bug", "ui"),
    blocked_by=(Blocker(id="u0", identifier="ABC-1", state="Done"),),
    created_at=datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC),
)


def prompt(body: str, attempt: int | None = None, issue: Issue = ISSUE) -> str:
    return rendered(workflow(body), issue, attempt)


def workflow(body: str):
    return read(f"---\nhooks:\n  timeout_ms: 5\n---\n\n{body}", "/w/WORKFLOW.md", {})


def fault(body: str) -> WorkflowError:
    with pytest.raises(WorkflowError) as told:
        prompt(body)
    return told.value


@pytest.mark.rule("O17", "M14")
def test_issue_and_attempt_are_filled_in():
    body = "{{ issue.identifier }}|{{ issue.title }}|{{ issue.labels | join: ',' }}|{{ issue.blocked_by[0].identifier }}"
    assert prompt(body) == "ABC-123|Mend {{ the }} fence|bug,ui|ABC-1"
    assert prompt("{{ issue.created_at }}") == "2026-03-04T05:06:07+00:00"


@pytest.mark.rule("O17", "M14")
def test_attempt_is_null_the_first_time():
    body = "{% if attempt %}again, {{ attempt }}{% else %}first{% endif %}"
    assert [prompt(body, attempt) for attempt in (None, 1, 2)] == ["first", "again, 1", "again, 2"]


@pytest.mark.rule("O17")
def test_the_issue_has_string_keys_and_keeps_what_is_nested():
    values = issue_values(ISSUE)
    assert values["blocked_by"] == [{"id": "u0", "identifier": "ABC-1", "state": "Done"}]
    assert values["description"] is None
    assert all(isinstance(key, str) for key in values)


@pytest.mark.rule("O17", "W8", "M15")
@pytest.mark.parametrize(
    ("body", "line", "kind", "said"),
    [
        ("one\n{{ nope }}", 7, "template_render_error", "'nope' is undefined"),
        ("{{ issue.nope }}", 6, "template_render_error", "issue.nope is undefined"),
        ("{% if nope %}x{% endif %}", 6, "template_render_error", "'nope' is undefined"),
        ("{{ issue.description.x }}", 6, "template_render_error", "is undefined"),
        ("a\n\nb {{ issue.title | shout }}", 8, "template_render_error", "unknown filter 'shout'"),
        ("a\n{% nonsense %}", 7, "template_parse_error", "unexpected tag 'nonsense'"),
        ("a\n{% if attempt %}", 6, "template_parse_error", "expected tag endif"),
        ("a\n\n\n{{ issue.title", 9, "template_parse_error", "expected '}}'"),
        ("{% include 'other' %}", 6, "template_render_error", "cannot include others"),
        ("{% for i in (1..999999999) %}{% endfor %}", 6, "template_render_error", "rounds of loops"),
    ],
)
def test_what_cannot_be_filled_is_told_with_its_line_in_the_file(body, line, kind, said):
    error = fault(body)
    assert (error.kind, error.file, error.line) == (kind, "/w/WORKFLOW.md", line)
    assert said in str(error)


@pytest.mark.rule("O17")
@pytest.mark.parametrize("body", ["", "\n\n  \n"])
def test_an_empty_body_has_a_prompt_all_the_same(body):
    assert prompt(body).startswith("You are working on issue ABC-123: Mend {{ the }} fence")


@pytest.mark.rule("O16")
def test_later_turns_get_only_guidance():
    assert "turn 2 of at most 20" in guidance(2, 20)
    assert "ABC" not in guidance(2, 20)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", None),
        (
            "{{ issue.description }} {{ issue.blocked_by[0].state }} {% if attempt %}{{ attempt }}{% endif %}",
            None,
        ),
        ("{{ issue.nope }}", "issue.nope is undefined"),
        ("{% if attempt %}{{ nope }}{% endif %}", "'nope' is undefined"),
    ],
)
def test_a_prompt_can_be_checked_without_an_issue(body, said):
    error = fault_of(workflow(body))
    assert (said is None and error is None) or said in str(error)
