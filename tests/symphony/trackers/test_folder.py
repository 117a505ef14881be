"""Issues as files: what a newcomer's board is made of."""

import os

import pytest

from hookline.symphony.trackers import Blocker, TrackerError
from hookline.symphony.trackers.folder import FolderTracker

ALL = ("Todo", "In Progress", "Done")


def write(folder, name, text):
    file = folder / name
    file.write_text(text)
    return file


async def names(tracker, *states):
    return [issue.identifier for issue in await tracker.by_states(states or ALL)]


async def test_a_markdown_file_is_an_issue_with_all_its_fields(tmp_path):
    file = write(
        tmp_path,
        "ABC-123.md",
        "---\nstate: In Progress\ntitle: Fix the parser\npriority: 2\nlabels: [Agent, ' Bug ']\n"
        "branch_name: abc-123\nurl: http://tracker/ABC-123\nassignee_id: ana\n"
        "created_at: 2026-01-02T03:04:05Z\n---\n\nIt fails on tabs.\n",
    )
    [issue] = await FolderTracker(tmp_path).by_states(["in progress"])
    assert (issue.id, issue.identifier, issue.native_ref) == ("ABC-123", "ABC-123", str(file))
    assert (issue.title, issue.state, issue.priority) == ("Fix the parser", "In Progress", 2)
    assert issue.labels == ("agent", "bug")
    assert (issue.branch_name, issue.url, issue.assignee_id) == ("abc-123", "http://tracker/ABC-123", "ana")
    assert issue.description == "It fails on tabs."
    assert issue.created_at is not None
    assert issue.created_at.isoformat() == "2026-01-02T03:04:05+00:00"
    assert issue.dispatchable


@pytest.mark.parametrize(
    ("name", "text", "title", "description"),
    [
        ("A-1.md", "", "A-1", None),
        ("A-1.md", "# Make it faster\n\nPlease.\n", "Make it faster", "# Make it faster\n\nPlease."),
        ("A-1.yaml", "title: Go\ndescription: far\n", "Go", "far"),
        ("A-1.yml", "title: 12\n", "12", None),
    ],
)
async def test_a_file_with_little_in_it_is_an_issue_that_is_to_do(tmp_path, name, text, title, description):
    write(tmp_path, name, text)
    [issue] = await FolderTracker(tmp_path).by_states(["Todo"])
    assert (issue.identifier, issue.title, issue.description) == ("A-1", title, description)


async def test_a_new_file_is_a_new_issue_and_editing_its_state_moves_it(tmp_path):
    tracker = FolderTracker(tmp_path)
    assert await names(tracker) == []
    file = write(tmp_path, "A-1.md", "---\nstate: Todo\n---\n")
    assert await names(tracker, "Todo") == ["A-1"]
    file.write_text("---\nstate: Done\n---\n")
    assert await names(tracker, "Todo") == []
    assert await names(tracker, "Done") == ["A-1"]
    file.unlink()
    assert await names(tracker) == []
    assert await tracker.by_ids(["A-1"]) == []


@pytest.mark.rule("O27", "M29", "M30")
async def test_asked_for_nothing_it_does_not_even_look(tmp_path):
    tracker = FolderTracker(tmp_path / "not there")
    assert await tracker.by_states([]) == []
    assert await tracker.by_ids([]) == []


@pytest.mark.rule("O27")
async def test_a_folder_that_is_not_there_is_a_request_that_failed(tmp_path):
    with pytest.raises(TrackerError, match=r"not there.* cannot be read: No such file") as caught:
        await FolderTracker(tmp_path / "not there").by_states(["Todo"])
    assert caught.value.kind == "tracker_request"


WRONG = {
    "---\nstate: [Todo\n---\n": "A-1.md:2: this is not YAML",
    "---\n- a\n---\n": "an issue is a mapping",
    "---\nstat: Todo\n---\n": "A-1.md:2: stat: unknown key; did you mean state?",
    "---\npriority: soon\n---\n": "A-1.md:2: priority: 'soon' is not a whole number",
    "---\nlabels: 5\n---\n": "labels: 5 is not a list",
    "---\nblocked_by: A-2\n---\n": "blocked_by: 'A-2' is not a list",
    "---\ndispatchable: perhaps\n---\n": "dispatchable: is 'perhaps'; give true or false",
    "---\ncreated_at: yesterday\n---\n": "created_at: 'yesterday' is not a time",
    "---\ntitle: [a]\n---\n": "title: ['a'] is not a text",
}


@pytest.mark.rule("O27", "M34")
@pytest.mark.parametrize("text", WRONG)
async def test_a_wrong_file_costs_only_itself_in_a_list_and_is_an_error_when_asked_for(tmp_path, text):
    write(tmp_path, "A-1.md", text)
    write(tmp_path, "A-2.md", "")
    tracker = FolderTracker(tmp_path)
    assert await names(tracker) == ["A-2"]
    [told] = tracker.omitted
    assert WRONG[text] in told
    assert [issue.id for issue in await tracker.by_ids(["A-2"])] == ["A-2"]
    with pytest.raises(TrackerError) as caught:
        await tracker.by_ids(["A-1"])
    assert caught.value.kind == "tracker_response"
    assert WRONG[text] in str(caught.value)


async def test_a_file_that_is_half_written_is_still_the_issue_it_was(tmp_path):
    file = write(tmp_path, "one.md", "---\nidentifier: A-1\n---\n")
    tracker = FolderTracker(tmp_path)
    assert await names(tracker) == ["A-1"]
    file.write_text("---\nidentifier: [A-\n---\n")
    with pytest.raises(TrackerError):
        await tracker.by_ids(["A-1"])
    file.write_text("---\nidentifier: A-1\nstate: Done\n---\n")
    assert [issue.state for issue in await tracker.by_ids(["A-1"])] == ["Done"]


async def test_two_files_with_one_identifier_are_one_issue_and_that_is_told(tmp_path):
    write(tmp_path, "a.md", "---\nidentifier: A-1\ntitle: first\n---\n")
    write(tmp_path, "b.md", "---\nidentifier: A-1\ntitle: second\n---\n")
    tracker = FolderTracker(tmp_path)
    [issue] = await tracker.by_states(ALL)
    assert issue.title == "first"
    assert "b.md: A-1 is" in tracker.omitted[0]
    assert [each.title for each in await tracker.by_ids(["A-1"])] == ["first"]


async def test_what_is_no_issue_is_left_alone(tmp_path):
    for name in (".hidden.md", "notes.txt", "A-1.md~"):
        write(tmp_path, name, "")
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "pipe.md")
    assert await names(FolderTracker(tmp_path)) == []


@pytest.mark.rule("O3", "M37")
async def test_an_issue_waits_for_those_it_names_until_they_are_through(tmp_path):
    write(tmp_path, "A-1.md", "---\nblocked_by: [A-2, GONE-9]\n---\n")
    other = write(tmp_path, "A-2.md", "---\nstate: In Progress\n---\n")
    tracker = FolderTracker(tmp_path, terminal=["Done"])
    [issue] = await tracker.by_ids(["A-1"])
    assert not issue.dispatchable
    assert issue.blocked_by == (
        Blocker(id="A-2", identifier="A-2", state="In Progress"),
        Blocker(id="GONE-9", identifier="GONE-9"),
    )
    other.write_text("---\nstate: done\n---\n")
    [issue] = await tracker.by_ids(["A-1"])
    assert issue.dispatchable


@pytest.mark.rule("M35", "O27")
async def test_ids_come_back_whole_in_the_order_asked_and_without_those_that_are_gone(tmp_path):
    for number in range(4):
        write(tmp_path, f"A-{number}.md", f"---\nlabels: [n{number}]\n---\n")
    found = await FolderTracker(tmp_path).by_ids(["A-3", "A-9", "A-1"])
    assert [(issue.id, issue.labels) for issue in found] == [("A-3", ("n3",)), ("A-1", ("n1",))]
