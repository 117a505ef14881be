"""One attempt and its workspace: each hook at its time, whatever happens, and what a crash leaves is finished."""

import asyncio
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from hookline.engine.pipeline import Recorder
from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Called, Ended
from hookline.errors import HookFailed, HooklineError
from hookline.journal.masking import Mask
from hookline.journal.recovery import owner
from hookline.journal.sqlite import SqliteJournal
from hookline.runners import tags as tagged
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import TurnFailed
from hookline.symphony.attempt import Attempt, Halt, outcome_of, recovered, removed
from hookline.symphony.hooks import AttemptSite, Outputs
from hookline.symphony.read import WorkflowError
from hookline.symphony.settings import Script
from hookline.symphony.trackers import TrackerError
from hookline.symphony.workspace import WorkspaceError, WorkspaceRoot
from tests.symphony.scenes import (
    ISSUE,
    PATH,
    Current,
    Scripted,
    fails,
    falls_silent,
    hangs,
    until,
    workflow,
    works,
)

DONE = replace(ISSUE, state="Done")
ROOT = Path(__file__).parents[2]


class Life:
    """A service's worth of settings around one workflow; every hook writes its line into `story`."""

    def __init__(self, folder: Path, **sections) -> None:
        self.folder = folder
        self.story_file = folder / "story"
        self.current = Current(workflow(folder, **sections))
        self.runner = LocalRunner()
        self.journal = SqliteJournal(folder / "journal.db")
        self.root = WorkspaceRoot(self.current().root)
        self.answers: list = []
        self.site = AttemptSite(
            current=self.current,
            root=self.root,
            runner=self.runner,
            environ={
                "PATH": PATH,
                "HOME": str(folder),
                "STORY": str(self.story_file),
                "TRACKER_KEY": "t0p-secret",
            },
            recorder=Recorder(self.journal),
            secret_names=frozenset({"TRACKER_KEY"}),
            mask=Mask(["t0p-secret"]),
            outputs=Outputs(folder / "outputs"),
            owner=owner(),
        )

    def without_payloads(self) -> "Life":
        self.journal.close()
        self.journal = SqliteJournal(self.folder / "journal.db", payloads=False)
        self.site = replace(self.site, recorder=Recorder(self.journal))
        return self

    async def by_ids(self, _ids):
        answer = self.answers.pop(0) if self.answers else DONE
        if isinstance(answer, Exception):
            raise answer
        return [] if answer is None else [answer]

    async def attempt(self, agent=None, **rest):
        made = Attempt(issue=rest.pop("issue", ISSUE), tracker=self, **rest)
        return await made.run(self.site, agent or Scripted(works))

    async def fault(self, agent=None, **rest) -> HooklineError:
        with pytest.raises(HooklineError) as told:
            await self.attempt(agent, **rest)
        return told.value

    async def remove(self) -> None:
        workspace = self.root.find("ABC-123")
        assert workspace is not None
        await removed(self.site, workspace)

    @property
    def story(self) -> list[str]:
        return self.story_file.read_text().splitlines() if self.story_file.exists() else []

    @property
    def workspace(self) -> Path:
        return Path(self.root.path, "ABC-123")

    async def close(self) -> None:
        await self.runner.close()
        assert tagged.carriers(self.runner.mark.encode()) == {}
        self.root.close()
        self.journal.close()


TELLING = {
    "after_create": 'echo "after_create $(pwd)" >> "$STORY"',
    "before_run": 'echo "before_run" >> "$STORY"',
    "after_run": 'echo "after_run $SYMPHONY_OUTCOME" >> "$STORY"',
    "before_remove": 'echo "before_remove $SYMPHONY_ISSUE_IDENTIFIER" >> "$STORY"',
}


@pytest.fixture
async def lives():
    made: list[Life] = []

    def make(folder: Path, **sections) -> Life:
        life = Life(folder, **sections)
        made.append(life)
        return life

    yield make
    for life in made:
        await life.close()


@pytest.fixture
def life(lives, tmp_path):
    return lives(tmp_path, hooks=TELLING)


def changed(life: Life, **scripts: str) -> None:
    life.current.change(**{name: Script(text=text, line=1) for name, text in scripts.items()})


@pytest.mark.rule("W19", "W20", "M17", "M18", "M21")
@pytest.mark.statement("SC3", "SC4", "SC5", "SC10", "SC16", "SC26", "SC29", "SC47", "SW1")
async def test_an_issue_from_its_first_run_to_its_removal(life):
    await life.attempt()
    (life.workspace / "kept").touch()
    await life.attempt()
    assert (life.workspace / "kept").exists()
    await life.remove()
    assert life.story == [
        f"after_create {life.workspace}",
        "before_run",
        "after_run ok",
        "before_run",
        "after_run ok",
        "before_remove ABC-123",
    ]
    assert not life.workspace.exists()
    assert life.root.listed() == []


@pytest.mark.rule("C3", "M20", "M21")
@pytest.mark.statement("SC6", "SC8", "SW3")
async def test_where_after_create_fails_the_folder_goes_and_the_next_attempt_begins_afresh(life):
    changed(life, after_create='touch half; echo tried >> "$STORY"; exit 1')
    for _ in range(2):
        error = await life.fault()
        assert isinstance(error, HookFailed)
        assert outcome_of(error) == "failed"
        assert not life.workspace.exists()
    assert life.story == ["tried", "tried"]
    changed(life, after_create='ls -A | wc -l >> "$STORY"')
    await life.attempt()
    assert life.story[2:] == ["0", "before_run", "after_run ok"]


@pytest.mark.rule("W25")
async def test_an_after_create_past_its_limit_leaves_neither_folder_nor_process(life):
    changed(life, after_create="touch half; sleep 300 & sleep 300")
    life.current.change(timeout=0.3)
    assert "ran past its limit" in str(await life.fault())
    assert not life.workspace.exists()
    assert life.story == []


async def test_an_attempt_cancelled_while_its_workspace_is_made_leaves_none(life):
    changed(life, after_create="touch begun; sleep 300")
    task = asyncio.ensure_future(life.attempt())
    await until(lambda: (life.workspace / "begun").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not life.workspace.exists()
    assert (life.story, life.root.listed()) == ([], [])


@pytest.mark.rule("M22", "W22")
@pytest.mark.statement("SC11", "SC13", "SW4")
async def test_before_run_comes_before_each_attempt_and_its_failure_ends_that_one(life):
    changed(life, before_run='echo "before_run $SYMPHONY_ATTEMPT" >> "$STORY"; [ -n "$SYMPHONY_ATTEMPT" ]')
    agent = Scripted(works)
    error = await life.fault(agent)
    assert isinstance(error, HookFailed)
    assert (agent.places, outcome_of(error)) == ([], "failed")
    assert life.workspace.exists()
    await life.attempt(agent, number=1)
    assert life.story[1:] == ["before_run ", "after_run failed", "before_run 1", "after_run ok"]


@pytest.mark.rule("M22", "W25")
@pytest.mark.statement("SC38", "SW19")
async def test_a_before_run_past_its_limit_ends_the_attempt_too(life):
    changed(life, before_run="sleep 300")
    life.current.change(timeout=4.0)
    assert isinstance(await life.fault(), HookFailed)
    assert life.story[1:] == ["after_run failed"]


@pytest.mark.statement("SC12")
@pytest.mark.rule("O16", "O18")
async def test_a_continuation_after_all_turns_has_before_run_again(lives, tmp_path):
    life = lives(tmp_path, hooks=TELLING, agent={"max_turns": 2})
    life.answers = [ISSUE, ISSUE]
    first = await life.attempt(Scripted())
    assert (first.turns, first.why) == (2, "max_turns")
    await life.attempt(number=1)
    assert life.story[1:] == ["before_run", "after_run ok", "before_run", "after_run ok"]


ENDINGS = {
    "the agent fails": (Scripted(fails), [], "failed", TurnFailed),
    "the agent cannot start": (
        Scripted(opens=TurnFailed("no such program", kind="codex_not_found")),
        [],
        "failed",
        TurnFailed,
    ),
    "a turn passes its limit": (Scripted(falls_silent), [], "timed_out", TurnFailed),
    "the tracker does not answer": (
        Scripted(works),
        [TrackerError("down", kind="tracker_request")],
        "failed",
        TrackerError,
    ),
}


@pytest.mark.rule("W22", "M23")
@pytest.mark.statement("SC17", "SC18", "SW5")
@pytest.mark.parametrize(("agent", "answers", "word", "kind"), ENDINGS.values(), ids=ENDINGS.keys())
async def test_after_run_comes_after_every_attempt_and_knows_how_it_ended(life, agent, answers, word, kind):
    life.answers = list(answers)
    error = await life.fault(agent)
    assert isinstance(error, kind)
    assert outcome_of(error) == word
    assert life.story[1:] == ["before_run", f"after_run {word}"]
    (run,) = [row for row in life.journal.runs() if row.status is not None]
    assert run.status is (Status.TIMED_OUT if word == "timed_out" else Status.FAILED)


@pytest.mark.rule("W22", "W8", "O17")
async def test_after_run_comes_also_where_the_prompt_cannot_be_filled(lives, tmp_path):
    life = lives(tmp_path, hooks=TELLING, prompt="{{ nope }}")
    error = await life.fault()
    assert isinstance(error, WorkflowError)
    assert (error.kind, life.story[1:]) == ("template_render_error", ["before_run", "after_run failed"])


@pytest.mark.rule("C4", "M23", "W22")
@pytest.mark.statement("SC19", "SC20")
@pytest.mark.parametrize("word", ["cancelled", "stalled"])
async def test_after_run_comes_after_a_cancel_and_a_stall(life, word):
    agent, stop = Scripted(hangs), Halt()
    task = asyncio.ensure_future(life.attempt(agent, halt=stop))
    await until(lambda: (life.workspace / "hanging").exists())
    stop.now(task, word)
    with pytest.raises(asyncio.CancelledError) as told:
        await task
    assert outcome_of(told.value, stop) == word
    assert life.story[1:] == ["before_run", f"after_run {word}"]
    assert agent.closed == 1
    assert life.workspace.exists()


async def test_a_before_run_that_is_cancelled_is_followed_by_after_run(life):
    changed(life, before_run="touch begun; sleep 300")
    task = asyncio.ensure_future(life.attempt())
    await until(lambda: (life.workspace / "begun").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.story[1:] == ["after_run cancelled"]


async def test_a_second_cancel_ends_after_run_too(life):
    changed(life, after_run='touch ending; sleep 300; echo never >> "$STORY"')
    task = asyncio.ensure_future(life.attempt(Scripted(hangs)))
    await until(lambda: (life.workspace / "hanging").exists())
    task.cancel()
    await until(lambda: (life.workspace / "ending").exists())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.story[1:] == ["before_run"]


async def test_an_after_run_that_hangs_after_a_cancel_is_ended_by_its_own_limit(life):
    changed(life, after_run="sleep 300")
    task = asyncio.ensure_future(life.attempt(Scripted(hangs)))
    await until(lambda: (life.workspace / "hanging").exists())
    life.current.change(timeout=0.3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    calls = [each for each in records(life) if isinstance(each, Called) and each.hook == "after_run"]
    assert [each.error_kind for each in calls] == ["timed_out"]


@pytest.mark.rule("M23", "W25")
@pytest.mark.statement("SC22", "SC23", "SC24", "SW5", "SW19")
@pytest.mark.parametrize("script", ["echo after >> $STORY; exit 7", "echo after >> $STORY; sleep 300"])
async def test_an_after_run_that_fails_changes_nothing_about_the_outcome(life, caplog, script):
    caplog.set_level(logging.INFO, "hookline.symphony")
    changed(life, after_run=script)
    life.current.change(timeout=4.0)
    assert (await life.attempt()).why == "not active"
    assert isinstance(await life.fault(Scripted(fails)), TurnFailed)
    assert life.story.count("after") == 2
    assert "hook=after_run" in caplog.text
    assert [row.status for row in life.journal.runs() if row.status] == [Status.FAILED, Status.OK]
    await life.remove()
    assert not life.workspace.exists()


@pytest.mark.rule("M24", "W25")
@pytest.mark.statement("SC31", "SC32", "SW6", "SW19")
@pytest.mark.parametrize("script", ["echo before >> $STORY; exit 7", "echo before >> $STORY; sleep 300"])
async def test_a_before_remove_that_fails_does_not_keep_the_folder(life, caplog, script):
    caplog.set_level(logging.INFO, "hookline.symphony")
    await life.attempt()
    changed(life, before_remove=script)
    life.current.change(timeout=4.0)
    await life.remove()
    assert life.story[-1] == "before"
    assert not life.workspace.exists()
    assert "hook=before_remove" in caplog.text


@pytest.mark.rule("W21")
@pytest.mark.statement("SC30")
async def test_before_remove_runs_only_where_there_is_a_folder(life):
    await life.attempt()
    subprocess.run(["rm", "-r", str(life.workspace)], check=True)
    await life.remove()
    assert life.story[-1] == "after_run ok"
    assert life.root.listed() == []


@pytest.mark.rule("W18")
async def test_nothing_is_run_or_deleted_through_a_link(life, tmp_path):
    await life.attempt()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    subprocess.run(["rm", "-r", str(life.workspace)], check=True)
    life.workspace.symlink_to(tmp_path / "outside")
    with pytest.raises(WorkspaceError, match="is a link"):
        await life.remove()
    assert isinstance(await life.fault(), WorkspaceError)
    assert (tmp_path / "outside/precious").exists()
    assert life.story[-1] == "after_run ok"


@pytest.mark.rule("W18", "M27")
async def test_a_link_that_before_run_put_there_is_not_given_to_the_agent(life, tmp_path):
    (tmp_path / "outside").mkdir()
    changed(life, before_run=f'cd .. && mv ABC-123 away && ln -s "{tmp_path}/outside" ABC-123')
    agent = Scripted(works)
    error = await life.fault(agent)
    assert isinstance(error, WorkspaceError)
    assert (error.kind, agent.places) == ("invalid_workspace_cwd", [])
    assert os.listdir(tmp_path / "outside") == []


RUINS = {
    "after_create": (WorkspaceError, "after_create removed its own workspace"),
    "before_run": (WorkspaceError, "is not there any more"),
}


@pytest.mark.parametrize(("name", "kind", "said"), [(name, *told) for name, told in RUINS.items()])
async def test_a_hook_that_deletes_its_own_workspace_is_told(life, name, kind, said):
    changed(life, **{name: 'rm -rf "$PWD"'})
    error = await life.fault()
    assert isinstance(error, kind)
    assert said in str(error)
    changed(life, **{name: "true"})
    await life.attempt()


@pytest.mark.statement("SC21")
@pytest.mark.parametrize("name", ["after_run", "before_remove"])
async def test_an_end_hook_may_delete_its_own_workspace(life, name):
    changed(life, **{name: 'rm -rf "$PWD"'})
    await life.attempt()
    await life.remove()
    assert not life.workspace.exists()
    assert life.root.listed() == []


async def test_a_hook_that_takes_all_permissions_away_does_not_keep_the_folder(life):
    changed(life, before_remove="mkdir -p a/b; touch a/b/c; chmod 000 a/b a .")
    await life.attempt()
    await life.remove()
    assert not life.workspace.exists()


@pytest.mark.rule("O16")
async def test_the_first_turn_has_the_prompt_and_later_ones_only_guidance(lives, tmp_path):
    life = lives(tmp_path, agent={"max_turns": 5})
    life.answers = [ISSUE, ISSUE, DONE]
    agent = Scripted()
    done = await life.attempt(agent)
    assert (done.turns, done.why, done.issue) == (3, "not active", DONE)
    assert agent.prompts[0] == "Do ABC-123."
    assert ["ABC-123" in each for each in agent.prompts] == [True, False, False]
    assert "turn 3 of at most 5" in agent.prompts[2]
    assert (len(agent.places), agent.closed) == (1, 1)


@pytest.mark.rule("O16")
async def test_an_issue_that_is_gone_ends_the_attempt_well(life):
    life.answers = [None]
    done = await life.attempt()
    assert (done.turns, done.why, done.issue) == (1, "gone", None)


@pytest.mark.rule("W16", "M27", "O24", "M73")
async def test_the_agent_works_in_the_workspace_and_sees_no_secret_of_the_tracker(life):
    agent = Scripted(works)
    await life.attempt(agent)
    (place,) = agent.places
    assert (place.workspace, place.env["PWD"]) == (str(life.workspace), str(life.workspace))
    assert "t0p-secret" not in place.env.values()


@pytest.mark.rule("W32", "W35")
@pytest.mark.statement("SC52")
async def test_a_change_in_the_middle_counts_for_hooks_and_not_for_the_prompt(lives, tmp_path):
    life = lives(tmp_path, hooks=TELLING, agent={"max_turns": 3})
    life.answers = [ISSUE, ISSUE]

    async def change(_place, _prompt):
        changed(life, after_run='echo "new after_run" >> "$STORY"')
        life.current.workflow = replace(
            life.current.workflow, prompt="Other", agent=replace(life.current.workflow.agent, max_turns=1)
        )
        return "changed"

    agent = Scripted(change)
    assert (await life.attempt(agent)).turns == 3
    assert agent.prompts[0] == "Do ABC-123."
    assert life.story[-1] == "new after_run"


async def test_two_attempts_are_never_in_one_workspace(life):
    task = asyncio.ensure_future(life.attempt(Scripted(hangs)))
    await until(lambda: (life.workspace / "hanging").exists())
    error = await life.fault()
    assert error.kind == "workspace_busy"
    with pytest.raises(WorkspaceError, match="being worked on"):
        await life.remove()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert life.story[1:] == ["before_run", "after_run cancelled"]


async def test_a_folder_that_was_there_before_is_worked_in_and_removed_with_its_hook(life):
    life.workspace.mkdir()
    await life.attempt()
    await life.remove()
    assert life.story == ["before_run", "after_run ok", "before_remove ABC-123"]


@pytest.mark.statement("SC29")
async def test_a_folder_that_nobody_here_worked_in_is_removed_with_its_hook_and_on_record(life):
    life.workspace.mkdir()
    await life.remove()
    assert life.story == ["before_remove ABC-123"]
    (row,) = life.journal.runs()
    assert (row.name, row.status, bool(row.run_id)) == ("ABC-123", Status.OK, True)


def records(life: Life):
    return [each for row in life.journal.runs() for each in life.journal.records(row.run_id)]


async def test_the_journal_has_the_workspace_and_each_attempt(life):
    await life.attempt()
    await life.attempt(number=1)
    workspace = life.root.find("ABC-123")
    assert [row.name for row in life.journal.unfinished()] == ["ABC-123"]
    (begun, *_rest) = life.journal.records(workspace.run_id)
    assert (begun.scope, begun.owner, begun.payload["workspace"]) == (
        Scope.WORKSPACE,
        None,
        str(life.workspace),
    )
    await life.remove()
    assert life.journal.unfinished() == []
    whole = life.journal.records(workspace.run_id)
    assert [each.hook for each in whole if isinstance(each, Called)] == ["after_create", "before_remove"]
    runs = [each for each in records(life) if isinstance(each, Begun) and each.scope is Scope.RUN]
    assert sorted(each.about["attempt"] for each in runs) == [1, 2]
    assert all(each.owner == owner() and each.source == life.current().file for each in runs)
    assert [each["name"] for each in runs[0].declaration["hooks"]] == list(TELLING)


async def test_secrets_are_in_no_record(life):
    (life.folder / "key").write_text("t0p-secret")
    changed(life, before_run=f"cat {life.folder}/key; exit 1")
    await life.fault()
    stored = (life.folder / "journal.db").read_bytes() + (life.folder / "journal.db-wal").read_bytes()
    assert b"t0p-secret" not in stored
    assert b"t0p-secret" not in b"".join(each.read_bytes() for each in (life.folder / "outputs").iterdir())


CRASHES = {
    # Where the service is killed, by a hook or by its agent; then what a second one finds and does.
    "after_create": ["after_create", "after_create", "before_run", "after_run ok", "before_remove"],
    "before_run": [
        "after_create",
        "before_run",
        "after_run lost",
        "before_run",
        "after_run ok",
        "before_remove",
    ],
    "agent": ["after_create", "before_run", "after_run lost", "before_run", "after_run ok", "before_remove"],
    "after_run": [
        "after_create",
        "before_run",
        "after_run ok",
        "after_run lost",
        "before_run",
        "after_run ok",
        "before_remove",
    ],
    "before_remove": [
        "after_create",
        "before_run",
        "after_run ok",
        "before_remove",
        "before_remove",
        "after_create",
        "before_run",
        "after_run ok",
        "before_remove",
    ],
    "deletion": [
        "after_create",
        "before_run",
        "after_run ok",
        "before_remove",
        "after_create",
        "before_run",
        "after_run ok",
        "before_remove",
    ],
}

VICTIM = """
import asyncio, os, signal, sys
from pathlib import Path
from tests.symphony.scenes import Scripted, works
from tests.symphony.test_attempt import Life, KILLING

async def kills(place, prompt):
    os.kill(os.getpid(), signal.SIGKILL)

async def main(folder, where):
    life = Life(Path(folder), hooks={name: KILLING % {"name": name, "where": where} for name in KILLED})
    await life.attempt(Scripted(kills if where == "agent" else works))
    if where == "deletion":
        life.root.discard = lambda workspace: os.kill(os.getpid(), signal.SIGKILL)
    await life.remove()

KILLED = ("after_create", "before_run", "after_run", "before_remove")
asyncio.run(main(*sys.argv[1:]))
"""

KILLING = """\
echo "%(name)s $SYMPHONY_OUTCOME" | sed 's/ $//; s/before_remove .*/before_remove/' >> "$STORY"
if [ "%(name)s" = "%(where)s" ] && [ ! -e "$STORY.killed" ]; then
  touch "$STORY.killed"
  kill -9 $PPID
  sleep 300
fi
"""


@pytest.mark.rule("W20", "O14")
@pytest.mark.parametrize(("where", "story"), CRASHES.items())
async def test_what_a_killed_service_left_is_finished_once(lives, tmp_path, where, story):
    victim = [sys.executable, "-c", VICTIM, str(tmp_path), where]
    done = subprocess.run(victim, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -9, done.stderr
    life = lives(tmp_path, hooks={name: KILLING % {"name": name, "where": ""} for name in TELLING})
    assert await recovered(life.site) == []
    assert [each.state for each in life.root.listed()] in ([], ["ready"])
    assert await recovered(life.site) == []
    await life.attempt()
    await life.remove()
    assert life.story == story
    assert life.journal.unfinished() == []
    lost = [each for each in records(life) if isinstance(each, Ended) and each.status is Status.LOST]
    assert len(lost) == (where in ("after_create", "before_run", "agent", "after_run"))
    assert os.listdir(tmp_path / "ws/.hookline~/trash") == []


async def test_what_was_left_is_finished_also_where_no_payload_is_kept(lives, tmp_path):
    victim = [sys.executable, "-c", VICTIM.replace("life.attempt(", "life.without_payloads().attempt(", 1)]
    done = subprocess.run(
        [*victim, str(tmp_path), "agent"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr
    life = lives(tmp_path, hooks=TELLING)
    assert [each.payload for each in records(life) if isinstance(each, Begun)] == [None, None]
    assert await recovered(life.site) == []
    assert life.story[-1] == "after_run lost"
    assert [row for row in life.journal.unfinished() if row.owner is not None] == []


async def test_an_attempt_of_another_root_is_left_to_whoever_has_that(lives, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    victim = [sys.executable, "-c", VICTIM, str(tmp_path / "a"), "agent"]
    subprocess.run(victim, cwd=ROOT, capture_output=True, check=False)
    other = lives(tmp_path / "b", hooks=TELLING)
    site = replace(other.site, recorder=Recorder(SqliteJournal(tmp_path / "a/journal.db")))
    assert await recovered(site) == []
    assert len([row for row in site.recorder.journal.unfinished() if row.owner is not None]) == 1
    site.recorder.journal.close()
    assert other.story == []
