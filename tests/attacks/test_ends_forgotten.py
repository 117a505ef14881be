"""`kill -9` of a run, and what is done with its files before the next start: no end hook that is owed is forgotten."""

import os
from pathlib import Path

import pytest

from hookline import Agent, HookResult, Scripted, SqliteJournal, hook
from hookline.engine.point import Scope, Status
from hookline.engine.record import Begun, Ended
from hookline.hookfile import ends
from hookline.journal import recovery
from hookline.journal.recovery import owner, recover
from hookline.journal.snapshot import snapshot
from tests.command import approve

VICTIM = """
import os
from hookline import Agent, HookResult, Scripted, hook, tool

@tool
def work() -> str:
    open("at_work", "w").close()
    open("for_ever").read()
    return "done"

{more}
agent = Agent(id="victim", model=Scripted([{{"tools": [{{"name": "work", "arguments": {{}}}}]}}, "end"]), tools=[work]{ends})
"""
OTHER = 'from hookline import Agent, Scripted\nother = Agent(id="other", model=Scripted(["fine"]))\n'
YAML = (
    'hooks:\n- name: clean\n  on: run.end\n  shell: echo "{} $HOOKLINE_RUN_ID $HOOKLINE_STATUS" >> "$ENDS"\n'
)
FUNCTION = """
import os
from hookline import HookResult, hook

@hook{on}
def clean(ctx, c):
    with open(os.environ["ENDS"], "a") as file:
        print("{word}", c.run_id, c.status, file=file)
    return HookResult.continue_with()
"""


class Scene:
    """A folder with an agent that is killed in its tool, and the starts after that."""

    def __init__(self, hookline):
        self.hookline, self.home = hookline, hookline.folder / "home"
        self.other = hookline.folder / "elsewhere" / "other.py"
        self.folder = hookline.folder = hookline.folder / "project"
        for file, text in ((self.other, OTHER), (self.folder / "victim.py", VICTIM.format(more="", ends=""))):
            file.parent.mkdir()
            file.write_text(text)
        self.ends = self.folder / "ends"
        hookline.environ["ENDS"] = str(self.ends)
        for name in ("at_work", "for_ever"):
            os.mkfifo(self.folder / name)

    def write(self, name, text):
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def killed(self, *words):
        """The id of a run that was killed at work."""
        self.kill(self.hookline.start("run", "victim.py:agent", "go", "-q", *words))
        return self.unfinished()[0]

    def kill(self, started):
        with open(self.folder / "at_work"):  # opened here when it is opened there
            started.kill()
        started.communicate()

    def start(self, *words):
        done = self.hookline("run", str(self.other), "go", *words)
        assert done.returncode == 0, done.stderr
        assert done.stdout == "fine\n"
        return done.stderr

    def journal(self):
        return SqliteJournal(self.home / "journal.db")

    def unfinished(self):
        with self.journal() as journal:
            return [row.run_id for row in journal.unfinished()]

    def end_of(self, run_id):
        with self.journal() as journal:
            return next(
                each
                for each in journal.records(run_id)
                if isinstance(each, Ended) and each.scope is Scope.RUN
            )

    def wait_is_over(self):
        with self.journal() as journal:
            journal.rows("UPDATE retry SET due = 0")

    def said(self):
        return self.ends.read_text().splitlines() if self.ends.exists() else []


@pytest.fixture
def scene(hookline):
    return Scene(hookline)


def by_option(scene, text):
    return scene.write("x.yaml", YAML.format(text)), ["--hooks", "x.yaml"]


def by_project(scene, text):
    file = scene.write("hookline.yaml", YAML.format(text))
    approve(file, scene.hookline.environ)
    return file, []


def by_user(scene, text):
    config = scene.folder / "config"
    scene.hookline.environ["XDG_CONFIG_HOME"] = str(config)
    file = scene.write("config/hookline/hookline.yaml", YAML.format(text))
    return file, []


def by_script(scene, text):
    scene.write("x.yaml", "hooks:\n- {name: clean, on: run.end, shell: ./clean.sh now}\n")
    return by_file_of_shell(scene, text), ["--hooks", "x.yaml"]


def by_command(scene, text):
    scene.write("x.yaml", "hooks:\n- {name: clean, on: run.end, command: [sh, clean.sh]}\n")
    return by_file_of_shell(scene, text), ["--hooks", "x.yaml"]


def by_file_of_shell(scene, text):
    script = f'#!/bin/sh\necho "{text} $HOOKLINE_RUN_ID $HOOKLINE_STATUS" >> "$ENDS"\n'
    file = scene.write("clean.sh", script)
    file.chmod(0o755)
    return file


def by_python_in_yaml(scene, text):
    scene.write("x.yaml", "hooks:\n- {name: clean, on: run.end, python: 'h.py:clean'}\n")
    return scene.write("h.py", FUNCTION.format(on="", word=text)), ["--hooks", "x.yaml"]


def by_python(scene, text):
    return scene.write("h.py", FUNCTION.format(on='(on="run.end")', word=text)), ["--hooks", "h.py"]


def by_module(scene, text):
    scene.write("x.yaml", "hooks:\n- {name: clean, on: run.end, python: 'named:clean'}\n")
    return scene.write("named.py", FUNCTION.format(on="", word=text)), ["--hooks", "x.yaml"]


def by_agent(scene, text):
    more = FUNCTION.format(on="", word=text)
    return scene.write("victim.py", VICTIM.format(more=more, ends=", on_run_end=[clean]")), []


WAYS = [
    by_option,
    by_project,
    by_user,
    by_script,
    by_command,
    by_python_in_yaml,
    by_python,
    by_module,
    by_agent,
]
OF_FILES = [by_script, by_command, by_python_in_yaml, by_module, by_agent]
CASES = [
    *((way, "removed") for way in WAYS),
    *((way, "changed") for way in (by_option, *OF_FILES)),
    *((way, "a link to another") for way in OF_FILES),
]


@pytest.mark.parametrize(("way", "happens"), CASES)
def test_no_end_is_forgotten_whatever_declared_it_and_whatever_its_file_is_now(scene, way, happens):
    file, words = way(scene, "mine")
    run_id = scene.killed(*words)
    other = file.read_text().replace("mine", "another")
    file.unlink()
    if happens == "changed":
        file.write_text(other)
    elif happens == "a link to another":
        file.symlink_to(scene.write(f"foreign/{file.name}", other))
    scene.start()
    assert [line for line in scene.said() if run_id in line] == [f"mine {run_id} lost"]
    assert scene.unfinished() == []
    scene.start()
    assert [line for line in scene.said() if run_id in line] == [f"mine {run_id} lost"]


def test_hooks_of_the_next_start_are_not_applied_to_the_old_run(scene):
    run_id = scene.killed()
    scene.write("new.yaml", YAML.format("new"))
    scene.start("--hooks", "new.yaml")
    (line,) = scene.said()
    assert line.startswith("new ")
    assert run_id not in line
    assert scene.end_of(run_id).status is Status.LOST


def test_an_end_runs_with_the_variables_and_in_the_folder_of_its_start(scene):
    scene.write("x.yaml", 'hooks:\n- {name: c, on: run.end, shell: echo "$COLOR $PWD" >> "$ENDS"}\n')
    scene.killed("--hooks", "x.yaml", "--env", "COLOR=red")
    scene.hookline.folder = scene.other.parent
    scene.start()
    assert scene.said() == [f"red {scene.folder}"]


def test_no_secret_of_the_command_line_is_kept_for_an_end(scene):
    secret = "a-value-of-nobody-else"
    scene.write("x.yaml", 'hooks:\n- {name: c, on: run.end, shell: echo "$API_TOKEN" >> "$ENDS"}\n')
    run_id = scene.killed("--hooks", "x.yaml", "--env", f"API_TOKEN={secret}")
    for file in scene.home.rglob("*"):
        assert not file.is_file() or secret.encode() not in file.read_bytes()
    assert "API_TOKEN" in scene.start()
    assert scene.unfinished() == [run_id]
    scene.wait_is_over()
    scene.hookline.environ["API_TOKEN"] = secret
    scene.start()
    assert scene.said() == [secret]


BAD = """
import os
with open("loads", "a") as file:
    print("x", file=file)
if os.path.exists("bad"):
    {happens}
"""


@pytest.mark.parametrize(
    "happens", ["os._exit(0)", "os._exit(3)", "raise SystemExit", "os.kill(0, 9)", "1 / 0"]
)
def test_a_file_that_does_not_load_again_costs_a_start_one_line(scene, happens):
    more = BAD.format(happens=happens) + FUNCTION.format(on="", word="mine")
    scene.write("victim.py", VICTIM.format(more=more, ends=", on_run_end=[clean]"))
    run_id = scene.killed()
    scene.write("bad", "")
    told = scene.start()
    assert len([line for line in told.splitlines() if run_id in line]) == 1
    assert scene.unfinished() == [run_id]
    loads = (scene.folder / "loads").read_text()
    assert run_id not in scene.start()
    assert (scene.folder / "loads").read_text() == loads, "it was tried again without a pause"
    (scene.folder / "bad").unlink()
    scene.wait_is_over()
    scene.start()
    assert scene.said() == [f"mine {run_id} lost"]


async def test_a_file_that_loops_when_it_is_loaded_again_does_not_hold_up_a_start(scene, monkeypatch):
    more = BAD.format(happens="while True: pass") + FUNCTION.format(on="", word="mine")
    scene.write("victim.py", VICTIM.format(more=more, ends=", on_run_end=[clean]"))
    run_id = scene.killed()
    scene.write("bad", "")
    monkeypatch.setattr(ends, "LOAD_LIMIT", 0.5)
    with scene.journal() as journal:
        (found,) = await recover(journal, owner(), ends.hooks_again)
        assert (found.run_id, found.ran) == (run_id, 0)
        assert found.problem
        assert recovery.waits(journal, run_id) > 0
    assert not scene.said()


def test_an_end_hook_that_ends_its_process_ends_no_start(scene):
    body = FUNCTION.format(on="", word="mine").replace("return HookResult.continue_with()", "os._exit(0)")
    scene.write("victim.py", VICTIM.format(more=body, ends=", on_run_end=[clean]"))
    run_id = scene.killed()
    scene.start()
    assert scene.said() == [f"mine {run_id} lost"]
    assert scene.unfinished() == []


def test_a_run_that_cannot_be_ended_is_dropped_for_good_and_on_record(scene):
    more = BAD.format(happens="os._exit(0)") + FUNCTION.format(on="", word="mine")
    scene.write("victim.py", VICTIM.format(more=more, ends=", on_run_end=[clean]"))
    run_id = scene.killed()
    scene.hookline.environ["HOOKLINE_TAG"] = "of an agent"
    assert scene.hookline("runs", "drop", run_id).returncode == 2
    assert scene.unfinished() == [run_id]
    del scene.hookline.environ["HOOKLINE_TAG"]
    assert scene.hookline("runs", "drop", run_id).returncode == 0
    ended = scene.end_of(run_id)
    assert ended.status is Status.LOST
    assert "dropped by" in ended.error
    assert scene.hookline("runs", "drop", run_id).returncode == 2
    scene.start()
    assert not scene.said()


async def test_a_workspace_that_cannot_be_ended_is_dropped_too(scene):
    with scene.journal() as journal:
        await journal.write(Begun("w", "1", None, Scope.WORKSPACE, "A-1", 1.0, {}, {}))
    assert scene.hookline("runs", "drop", "w").returncode == 0
    with scene.journal() as journal:
        (ended,) = (each for each in journal.records("w") if isinstance(each, Ended))
    assert "dropped by" in ended.error


def test_a_run_that_is_at_work_is_not_dropped(scene):
    started = scene.hookline.start("run", "victim.py:agent", "go", "-q")
    with open(scene.folder / "at_work"):
        (run_id,) = scene.unfinished()
        assert scene.hookline("runs", "drop", run_id).returncode == 2
        assert scene.unfinished() == [run_id]
        started.kill()
    started.communicate()


async def test_500_runs_that_wait_cost_a_start_one_query(tmp_path):
    @hook
    def clean(ctx, c):
        return HookResult.continue_with()

    agent = Agent(id="a", model=Scripted(["x"]), on_run_end=[clean])
    dead = owner()._replace(pid=2**22, started="0")
    statements, made = [], []

    async def hooks_of(kept):
        made.append(kept)
        return ()

    with SqliteJournal(tmp_path / "journal.db") as journal:
        for number in range(500):
            run_id = f"r{number}"
            journal.keep(run_id, snapshot((), agent.hooks(), source=f"{__file__}:agent"))
            declared = {"format": "polos"}
            await journal.write(
                Begun(run_id, "1", None, Scope.RUN, "a", 1.0, {}, {}, declared, __file__, dead)
            )
            recovery.put_off(journal, run_id)
        journal._database.connection.set_trace_callback(statements.append)
        assert await recover(journal, owner(), hooks_of) == []
    assert made == []
    assert len([each for each in statements if not each.startswith("PRAGMA")]) == 1


async def test_many_runs_at_once_do_not_hold_up_a_start(tmp_path):
    dead = owner()._replace(pid=2**22, started="0")
    with SqliteJournal(tmp_path / "journal.db") as journal:
        for number in range(5):
            begun = Begun(f"r{number}", "1", None, Scope.RUN, "a", 1.0, {}, {}, {}, None, dead)
            await journal.write(begun)
        (found,) = await recover(journal, owner(), ends.hooks_again, within=0)
        assert found.problem == "no time was left for it and 4 more"
        assert len(journal.unfinished()) == 5
        assert len(await recover(journal, owner(), ends.hooks_again)) == 5
        assert journal.unfinished() == []


async def test_the_record_does_not_say_of_a_lost_function_that_it_was_run(tmp_path):
    def made():
        @hook
        def inner(ctx, c):
            return HookResult.continue_with()

        return inner

    dead = owner()._replace(pid=2**22, started="0")
    agent = Agent(id="a", model=Scripted(["x"]), on_run_end=[made()])
    with SqliteJournal(tmp_path / "journal.db") as journal:
        journal.keep("r", snapshot((), agent.hooks()))
        await journal.write(Begun("r", "1", None, Scope.RUN, "a", 1.0, {}, {}, {}, None, dead))
        (found,) = await recover(journal, owner(), ends.hooks_again)
        assert found.ran == 0
        (ended,) = (each for each in journal.records("r") if isinstance(each, Ended))
    assert "cannot be found again, so not run: inner" in ended.error


AGENTRUN = """
apiVersion: sympozium.ai/v1alpha1
kind: AgentRun
metadata: {name: victim}
spec: {agentRef: oncall, task: look}
"""


@pytest.mark.parametrize("by", ["resume", "next start"])
def test_ends_of_hook_files_around_an_agentrun_are_not_forgotten(scene, by):
    scene.write("run.yaml", AGENTRUN)
    by_option(scene, "mine")
    agent = ["--agent-command", f"sh -c 'echo > {scene.folder}/at_work; cat {scene.folder}/for_ever'"]
    scene.kill(scene.hookline.start("run", "run.yaml", "--on", "local", "-q", "--hooks", "x.yaml", *agent))
    (run_id,) = scene.unfinished()
    (scene.folder / "x.yaml").unlink()
    scene.write("new.yaml", YAML.format("new"))
    words = ["run.yaml", "--on", "local", "--hooks", "new.yaml", "--agent-command", "true"]
    scene.hookline("run", *(["--resume", run_id] if by == "resume" else words))
    assert [line for line in scene.said() if run_id in line] == [f"mine {run_id} lost"]
    assert scene.unfinished() == []


WORKFLOW = """---
tracker: {kind: folder}
workspace: {root: work}
agent: {kind: command, command: AGENT, max_turns: 1}
---
work
"""
ENDS = """hooks:
- {name: run, on: run.end, shell: 'echo "{} run $HOOKLINE_RUN_ID $PWD" >> "$ENDS"'}
- {name: workspace, on: workspace.end, shell: 'echo "{} workspace $HOOKLINE_RUN_ID $PWD" >> "$ENDS"'}
"""


def test_ends_of_hook_files_around_a_workflow_are_not_forgotten(scene):
    agent = scene.write(
        "agent.sh", f"#!/bin/sh\necho > {scene.folder}/at_work\ncat {scene.folder}/for_ever\n"
    )
    agent.chmod(0o755)
    scene.write("WORKFLOW.md", WORKFLOW.replace("AGENT", str(agent)))
    issue = scene.write("issues/A-1.md", "---\nstate: Todo\n---\n")
    scene.write("x.yaml", ENDS.replace("{}", "mine"))
    words = ["run", "WORKFLOW.md", "--issue", "A-1", "-q", "--hooks"]
    scene.kill(scene.hookline.start(*words, "x.yaml"))
    (scene.folder / "x.yaml").unlink()
    issue.write_text("---\nstate: Done\n---\n")
    scene.write("new.yaml", ENDS.replace("{}", "new"))
    done = scene.hookline(*words, "new.yaml")
    assert done.returncode == 0, done.stderr
    said = [line.split() for line in scene.said()]
    assert [(each[0], each[1]) for each in said] == [("mine", "run"), ("mine", "workspace")]
    assert not Path(said[1][3]).exists()
    assert scene.unfinished() == []
