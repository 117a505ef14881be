"""Workflows on a cluster, as far as no cluster is needed: what an ending comes to, and which options go together."""

import pytest

from hookline.kube.jobs import JobEnd
from hookline.symphony.cluster import hooks_to_send, workflow_id
from hookline.symphony.jobs import attempt_end
from hookline.symphony.read import read

EVICTED = "Evicted: The node was low on resource: ephemeral-storage."
KILLED = JobEnd(why="its pod was deleted")


@pytest.mark.parametrize(
    ("over", "outcome", "error"),
    [
        ({"ending": JobEnd(exit_code=0), "said": {"outcome": "ok"}}, "ok", None),
        (
            {"ending": JobEnd(exit_code=1), "said": {"outcome": "timed_out", "error": "late"}},
            "timed_out",
            "late",
        ),
        ({"ending": KILLED}, "failed", "its pod was deleted"),
        # It had the time for its end hooks.
        ({"ending": KILLED, "said": {"outcome": "cancelled"}}, "cancelled", "its pod was deleted"),
        ({"ending": KILLED, "said": {"outcome": "cancelled"}, "stopped": True}, "cancelled", None),
        ({"ending": JobEnd(why=EVICTED)}, "failed", EVICTED),
        (
            {"ending": JobEnd(why="OOMKilled: it passed its memory limit")},
            "failed",
            "OOMKilled: it passed its memory limit",
        ),
        (
            {"ending": JobEnd(why="the image 'x' cannot be pulled: gone", began=False)},
            "failed",
            "its pod never began: the image 'x' cannot be pulled: gone",
        ),
        (
            {"ending": JobEnd(exit_code=2), "last": "No such command 'attempt'."},
            "failed",
            "its program ended with 2 and did not say how: No such command 'attempt'.",
        ),
        (
            {"ending": JobEnd(exit_code=1), "said": {"outcome": "failed", "error": "no", "full": True}},
            "failed",
            "no; the workspace's volume is full (claim c); free some space or make it larger",
        ),
    ],
)
def test_an_ending_is_told_as_what_it_was(over, outcome, error):
    ended = attempt_end(claim="c", **over)
    assert (ended.outcome, ended.error) == (outcome, error)


def test_a_hook_file_is_sent_with_the_code_that_it_names(tmp_path):
    (tmp_path / "guard.py").write_text("x = 1")
    (tmp_path / "hookline.yaml").write_text("hooks: [{name: a, on: run.start, python: 'guard.py:a'}]\n")
    names, files = hooks_to_send(["hookline.hookfile.sources:no_project_hooks", f"{tmp_path}/hookline.yaml"])
    assert names == ["hookline.hookfile.sources:no_project_hooks", "/given/hooks-1/hookline.yaml"]
    assert list(files) == ["hooks-1/hookline.yaml", "hooks-1/guard.py"]


def test_a_service_is_known_by_its_tracker_and_root_and_not_by_the_place_of_its_file():
    def known(file: str, root: str, kind: str = "linear") -> str:
        text = f"---\ntracker: {{kind: {kind}, provider: {{project_slug: p}}}}\nworkspace: {{root: {root}}}\n---\n"
        return workflow_id(read(text, file, {}))

    assert known("/a/WORKFLOW.md", "ws") == known("/b/WORKFLOW.md", "ws")
    assert known("/a/WORKFLOW.md", "ws") != known("/a/WORKFLOW.md", "other")
    # A folder with issues is another one in another place.
    assert known("/a/WORKFLOW.md", "ws", "folder") != known("/b/WORKFLOW.md", "ws", "folder")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["WORKFLOW.md", "--on", "kubernetes"], "--on kubernetes needs one image for the pods"),
        (["WORKFLOW.md", "--on", "kubernetes", "--image", "a=b"], "needs one image for the pods"),
        (["WORKFLOW.md", "--on", "kubernets"], "--on is 'kubernets'; known: kubernetes"),
        (["WORKFLOW.md", "--secret", "s"], "--secret: only with --on kubernetes"),
        (["WORKFLOW.md", "--namespace", "n"], "--namespace: only with --on kubernetes"),
        (["WORKFLOW.md", "--image", "x"], "--image: only for an agent"),
        (["agent.py", "--on", "kubernetes"], "--on: only for a WORKFLOW.md"),
        (
            ["WORKFLOW.md", "--on", "kubernetes", "--image", "x", "--model", "m"],
            "--model: only for an agent",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(hookline, words, said):
    done = hookline("serve", *words)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
