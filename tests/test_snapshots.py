"""What users see stays as it is kept in tests/snapshots: help, messages, the runs of the examples and their journals.

A difference that is meant is written down with HOOKLINE_SNAPSHOTS=write, and read in the diff of the commit.
"""

import json
import os
import re
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.programs import installed
from tests.snapshot import FOLDER, ROOT, Project, normal, same, writes
from tests.terminals import Screen

AGENTS = [file for file in ROOT.glob("examples/*/*.py") if "Agent(" in file.read_text()]
WORKFLOWS = [*ROOT.glob("examples/symphony/*.md"), *ROOT.glob("examples/symphony/patterns/*.md")]
MANIFESTS = [*ROOT.glob("examples/*/*.yaml"), *ROOT.glob("tests/fixtures/sympozium/*.yaml")]
# As they are called in a project: examples/kagent/agent.yaml, fixtures/sympozium/rbac.yaml.
FILES = sorted(
    str(file.relative_to(ROOT)).removeprefix("tests/") for file in [*AGENTS, *WORKFLOWS, *MANIFESTS]
)
FOLDERS = sorted({str(Path(file).parent) for file in FILES})
WRONG = sorted(folder.name for folder in FOLDER.glob("wrong/*"))
STDIN = ROOT / "tests/fixtures/claude-code/stdin"

UNLISTED = ("answer",)  # commands that no help names
LISTED = re.compile(r"^  ([a-z][a-z-]*(?: [a-z-]+)?)  ", re.MULTILINE)

RELEASE = "examples/polos/release.py:assistant"
GUARDS = ("--hooks", "examples/guards/hookline.yaml")
TIDY = (
    *("--image", "ghcr.io/org/security-hooks:v1.0=examples/kagent/security-hooks"),
    *("--model", "scripted/examples/kagent/scripts/tidy.yaml"),
)
SANDBOX = ("--on", "sandbox")


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path.resolve())


# Help.


@pytest.mark.timeout(400)
def test_every_command_is_helped_with_in_the_same_words(project):
    said: dict[str, str] = {}
    asked = [(), *((name,) for name in UNLISTED)]
    for words in asked:
        project.said.clear()
        out = project.run(*words, "--help")
        said[f"help/{'.'.join(('hookline', *words))}.txt"] = project.text()
        asked += [tuple(name.split()) for name in LISTED.findall(out.partition("\ncommands:\n")[2])]
    kept = {f"help/{file.name}" for file in FOLDER.glob("help/*")}
    if writes():
        for name in kept - said.keys():
            (FOLDER / name).unlink()
    else:
        assert sorted(said) == sorted(kept)
    same(said)


# Runs.


def coder(project, *on):
    project.run("run", "examples/guards/coder.py", "tidy up", *GUARDS, *on, wide=True)
    journal(project)
    project.run("logs", "last", wide=True)


def release(project, *on):
    """Approved from a second process, as by someone at another terminal."""
    screen = Screen()
    question = "Release 1.4 and tell ana@example.com"
    arguments = ("run", RELEASE, question, "--ask", "journal", "--code-to", screen.name, *on)
    with project.start(*arguments, wide=True) as process:
        watch = threading.Timer(100, process.kill)  # for a run that never asks
        watch.start()
        err = ""
        for line in process.stderr:
            err += line
            if "hookline approve" in line:
                project.run("approve", "last", terminal=True, typed=screen.code())
        out = process.stdout.read()
        watch.cancel()
    screen.close()
    project.keep(arguments, process.returncode, out, err)
    project.run("runs", "last", wide=True)
    journal(project)


def refused(project, *on):
    project.run("run", RELEASE, "Release 1.4", "--ask", "refuse", *on, wide=True)
    project.run("run", RELEASE, "Release 1.5 on Friday", *on, wide=True)
    journal(project)
    project.run("logs", "last", wide=True)
    project.run("runs")


def tidy(project, *on):
    project.run("run", "examples/kagent/agent.yaml", "tidy up", *TIDY, *on, wide=True)
    journal(project)


def hooks_alone(project, *on):
    project.run("run", "examples/kagent/hooks.yaml", "tidy up", *TIDY, "--tools", "bash", *on, wide=True)
    journal(project)


def issue(project, *on):
    """An issue that is done, and one that fails the first time."""
    board = {"cwd": "examples/symphony", "wide": True}
    if not on:  # in a sandbox after_run does not see the board
        project.run("run", "WORKFLOW.md", "--issue", "ABC-123", **board)
        journal(project)
    project.run("run", "WORKFLOW.md", "--issue", "ABC-125", *on, **board)
    journal(project)
    project.run("logs", "last", wide=True)
    project.run("workspace", "list", **board)
    project.run("workspace", "rm", "ABC-125", **board)


def incident(project, *on):
    script = project.folder / "examples/sympozium"
    where = ("--on", "local") if not on else (*on, "--mount", f"{script}:/agent")
    command = f"sh {'/agent' if on else script}/agent.sh"
    project.run("run", "examples/sympozium/incident.yaml", *where, "--agent-command", command, wide=True)
    journal(project)


def journal(project):
    project.run("runs", "last", "--json")


RUNS = {each.__name__: each for each in (coder, release, refused, tidy, hooks_alone, issue, incident)}


@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs_here_and_leaves_the_same_journal(project, name):
    RUNS[name](project)
    same({f"run/{name}.local.txt": project.text()})


@pytest.mark.real
@pytest.mark.parametrize("name", RUNS)
def test_an_example_runs_in_a_sandbox_and_leaves_the_same_journal(project, name):
    installed(bwrap="bubblewrap")
    RUNS[name](project, *SANDBOX)
    same({f"run/{name}.sandbox.txt": project.text()})


@pytest.mark.timeout(400)
def test_a_board_is_worked_off_with_the_same_story(project):
    board = project.folder / "examples/symphony"
    names = [file.stem for file in board.glob("issues/*.md")]
    arguments = ("serve", "WORKFLOW.md")
    with project.start(*arguments, cwd="examples/symphony", wide=True) as service:
        watch = threading.Timer(300, service.kill)
        watch.start()
        while service.poll() is None and not all((board / "done" / name).exists() for name in names):
            time.sleep(0.1)
        service.send_signal(signal.SIGINT)
        out, err = service.communicate()
        watch.cancel()
    # Issues are worked on side by side: only the lines of one are in order.
    project.keep(arguments, service.returncode, out, by_issue(without_race(err)))
    project.note("story.txt, by issue", by_issue((board / "story.txt").read_text()))
    same({"run/board.local.txt": project.text()})


def without_race(log):
    """The log as if no issue had been seen as done in the moment between its last hook and its attempt's end."""
    for name in re.findall(r"issue_id=(\S+) an attempt is stopped: its state is 'Done'\n", log):
        log = re.sub(rf"^.*issue_id={name} an attempt is stopped: .*\n", "", log, flags=re.MULTILINE)
        log = re.sub(rf"(issue_id={name} .*outcome=)cancelled( an attempt ended)", r"\1ok\2", log)
    return log


def by_issue(text):
    lines = text.splitlines(keepends=True)
    return "".join(sorted(lines, key=lambda line: (re.findall(r"ABC-\d+", line) or [""])[0]))


def test_a_hook_is_tried_with_the_same_words(project):
    forced = ("--tool", "bash", "--input", '{"command": "git push -f origin main"}')
    project.run("try", "tool.start", RELEASE, *forced, wide=True)
    project.run("try", "tool.start", RELEASE, *forced, "--json", wide=True)
    project.run("try", "tool.begin", RELEASE, wide=True)
    same({"try.txt": project.text()})


# Files: what is wrong with them, and what they declare.


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_are_checked_with_the_same_words(project, folder):
    files = [file for file in FILES if str(Path(file).parent) == folder]
    project.run("check", *files)
    if folder in ("examples/polos", "fixtures/sympozium"):  # without mistakes, and with them
        project.run("check", "--json", *files)
    same({checked(folder): project.text()})


@pytest.mark.parametrize("kind", WRONG)
def test_what_is_wrong_is_told_in_the_same_words(project, kind):
    files = sorted(str(file.relative_to(project.folder)) for file in project.folder.glob(f"wrong/{kind}/*"))
    first = next(file for file in files if "wrong_type" in file)
    words = {
        "hookfile": ("examples/guards/coder.py", "go", "--no-project-hooks", "--hooks", first),
        "workflow": (first, "--issue", "ABC-1"),
    }
    project.run("check", *files, f"wrong/{kind}/nowhere{Path(first).suffix}")
    project.run("explain", first)
    project.run("run", *words.get(kind, (first, "go")))
    same({f"wrong.{kind}.txt": project.text()})


@pytest.mark.parametrize("file", FILES)
def test_a_file_is_explained_in_the_same_words(project, file):
    hooks = GUARDS if file.endswith("coder.py") else ()
    project.run("explain", file, *hooks)
    if file.startswith("examples/") and "patterns" not in file:  # one of a format is enough
        project.run("explain", "--json", file, *hooks)
    same({explained(file): project.text()})


@pytest.mark.real
def test_a_manifest_of_another_kind_is_refused_in_the_same_words(project):
    place = os.environ.get("HOOKLINE_SHARED")
    if not place:
        pytest.skip("set HOOKLINE_SHARED to the folder with fixtures/agent-sandbox")
    shutil.copy(Path(place) / "fixtures/agent-sandbox/sandboxes-crd.yaml", project.folder)
    for command in ("check", "explain", "run"):
        project.run(command, "sandboxes-crd.yaml")
    same({"another_kind.txt": project.text()})


def checked(folder):
    return f"check/{folder.replace('/', '.')}.txt"


def explained(file):
    return f"explain/{file.replace('/', '.')}.txt"


# Answers to other agents.


BASH, WRITE, BEGUN = "PreToolUse.bash.json", "PreToolUse.write.json", "SessionStart.startup.json"
DONE, OVER = "PostToolUse.bash.json", "SessionEnd.json"
SECRET = {"tool_response": {"stdout": "token ghp_0123456789abcdefghijklmnopqrstuvwxyz", "stderr": ""}}
CALLED = {"tool_name": "run_shell_command"}
# Whose words, and the payloads they are answered to: a fixture, and what is otherwise in it.
ASKED = {
    "claude": [
        *((name, {}) for name in (BASH, WRITE, BEGUN, DONE, OVER)),
        (DONE, SECRET),
        ("PreToolUse.mcp-greet.json", {}),
        ("PostToolUseFailure.bash.json", {}),
        ("PermissionRequest.bash.json", {}),
        ("UserPromptSubmit.json", {}),
        ("UserPromptSubmit.json", {"prompt": "Release it on Friday"}),
        ("Stop.json", {}),
        (BASH, {"hook_event_name": "NoSuchEvent"}),
    ],
    "codex": [*((name, {}) for name in (BASH, WRITE, BEGUN)), (DONE, SECRET)],
    "gemini": [
        (BASH, {"hook_event_name": "BeforeTool", **CALLED}),
        (WRITE, {"hook_event_name": "BeforeTool", "tool_name": "write_file"}),
        (DONE, {"hook_event_name": "AfterTool", **CALLED, **SECRET}),
        (BEGUN, {}),
    ],
    "kagent": [
        (BASH, {"tool_name": "bash"}),
        (DONE, {"tool_name": "bash", **SECRET}),
        (BEGUN, {}),
        (OVER, {}),
    ],
}


@pytest.mark.parametrize("who", ASKED)
def test_another_agent_is_answered_in_the_same_words(project, who):
    shutil.copy(FOLDER / "answer.yaml", project.folder)
    for name, changes in ASKED[who]:
        project.run("answer", "--as", who, "--file", "answer.yaml", **payload(project.folder, name, changes))
    journal(project)
    same({f"answer/{who}.txt": project.text()})


def test_what_is_wrong_with_a_question_is_told_in_the_same_words(project):
    project.run("answer", "--file", "examples/guards/hookline.yaml", stdin="{half", given="{half")
    for file in ("nowhere.yaml", "wrong/hookfile/unknown_key.yaml"):
        project.run("answer", "--file", file, **payload(project.folder, BASH, {}))
    same({"answer/wrong.txt": project.text()})


def payload(folder, name, changes):
    event = json.loads((STDIN / name).read_text()) | changes | {"cwd": str(folder)}
    given = f"{name} with {json.dumps(changes)}" if changes else name
    return {"stdin": json.dumps(event), "given": given}


# What is written for others.


def test_a_project_is_set_up_and_cleared_with_the_same_words(project):
    (project.folder / "new").mkdir()
    asked = payload(project.folder / "new", BASH, {})
    project.run("init", cwd="new")
    project.note("hookline.yaml", (project.folder / "new/hookline.yaml").read_text())
    project.run("init", cwd="new")
    project.run("trust", cwd="new")
    project.run("answer", cwd="new", **asked)
    project.run("trust", cwd="new", terminal=True)
    project.run("answer", cwd="new", **asked)
    project.run("install", "claude-code", "--local", cwd="new")
    project.note(
        ".claude/settings.local.json", (project.folder / "new/.claude/settings.local.json").read_text()
    )
    project.run("uninstall", "claude-code", "--local", cwd="new", terminal=True)
    project.run("install", "emacs", cwd="new")
    same({"project.txt": project.text()})


PRINTED = {
    "schema": ("schema",),
    "crds": ("crds",),
    "operator": ("operator", "manifest", "--without-crds", "--image", "registry.example/hookline:1.0"),
    "operator_namespaces": (
        *("operator", "manifest", "--without-crds", "--image", "registry.example/hookline:1.0"),
        *("--watch", "one", "--watch", "two", "--kagent", "--shared-account", "--replicas", "1"),
    ),
    "operator_without_image": ("operator", "manifest"),
}


@pytest.mark.parametrize("name", PRINTED)
def test_what_is_made_for_others_is_printed_as_it_was(project, name):
    project.run(*PRINTED[name])
    same({f"printed/{name}.txt": project.text()})


# The nets themselves.


def test_an_attempt_that_was_seen_as_done_before_its_end_is_no_difference():
    seen = (
        "issue_id=A-1 an attempt is stopped: its state is 'Done'\n"
        "issue_id=A-1 issue_identifier=A-1 outcome=cancelled an attempt ended\n"
        "issue_id=A-2 issue_identifier=A-2 outcome=cancelled an attempt ended\n"
    )
    assert without_race(seen) == (
        "issue_id=A-1 issue_identifier=A-1 outcome=ok an attempt ended\n"
        "issue_id=A-2 issue_identifier=A-2 outcome=cancelled an attempt ended\n"
    )


@pytest.mark.parametrize("file", ["snapshot.py", "test_snapshots.py", "programs.py", "conftest.py"])
def test_nothing_that_moves_inside_is_imported(file):
    text = (ROOT / "tests" / file).read_text()
    assert not re.search(r"^\s*(?:from|import) hookline\b", text, re.MULTILINE)


def test_there_is_no_snapshot_that_no_test_compares():
    names = [
        *(f"run/{name}.{place}.txt" for name in RUNS for place in ("local", "sandbox")),
        *(f"wrong.{kind}.txt" for kind in WRONG),
        *(f"answer/{who}.txt" for who in (*ASKED, "wrong")),
        *(f"printed/{name}.txt" for name in PRINTED),
        *map(checked, FOLDERS),
        *map(explained, FILES),
        *("run/board.local.txt", "try.txt", "another_kind.txt", "project.txt"),
    ]
    kept = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.txt")}
    assert {name for name in kept if not name.startswith("help/")} - set(names) == set()


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("      start  look  4.2 ms", "      start  look  <took>"),
        ("  = bash ok  1.0 s  fine", "  = bash ok  <took>  fine"),
        ("look at tool.start, 937 us", "look at tool.start, <took>"),
        ("limit 60 s, if it breaks: fail", "limit 60 s, if it breaks: fail"),
        ("timed out after 5 s", "timed out after 5 s"),
        ("exited with 4", "exited with 4"),
        ('"at": 1794835792.2, "timeout": 60.0', '"at": "<time>", "timeout": 60.0'),
        ("tolk4b-7fad74 tolk4c-7fad74 tolk4b-7fad74", "<run 1> <run 2> <run 1>"),
        ("2026-11-16 13:29:52  look", "<time>  look"),
    ],
)
def test_only_what_varies_is_taken_out(said, kept):
    assert normal(said) == kept


def test_a_difference_fails_with_a_diff_and_how_to_rewrite(tmp_path, monkeypatch):
    monkeypatch.delenv("HOOKLINE_SNAPSHOTS", raising=False)
    (tmp_path / "a.txt").write_text("exit 0\n")
    same({"a.txt": "exit 0\n"}, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"(?s)HOOKLINE_SNAPSHOTS=write.*-exit 0\n\+exit 1"):
        same({"a.txt": "exit 1\n"}, tmp_path)
    with pytest.raises(pytest.fail.Exception, match=r"\+new"):
        same({"b.txt": "new\n"}, tmp_path)


def test_snapshots_are_written_when_asked_and_never_in_ci(tmp_path, monkeypatch):
    monkeypatch.setenv("HOOKLINE_SNAPSHOTS", "write")
    monkeypatch.delenv("HOOKLINE_CI", raising=False)
    same({"a/b.txt": "exit 0\n"}, tmp_path)
    assert (tmp_path / "a/b.txt").read_text() == "exit 0\n"
    monkeypatch.setenv("HOOKLINE_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="refused"):
        same({"a/b.txt": "exit 1\n"}, tmp_path)
    assert (tmp_path / "a/b.txt").read_text() == "exit 0\n"
