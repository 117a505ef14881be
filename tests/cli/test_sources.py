"""Whose hook files hold for a command: the machine's, the user's, the project's, and those that it names."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_person import led
from tests.command import approve
from tests.runners.places import installed

CODER = """
from hookline import Agent, Scripted
turn = {"tools": [{"name": "bash", "arguments": {"command": "touch made"}}]}
agent = Agent(id="coder", tools=["bash"], model=Scripted([turn, "done"]))
"""
GUARD = """
from hookline import HookResult

def no_touch(ctx, c):
    if "touch" in c.current_payload["command"]:
        return HookResult.block("no touch")
    return HookResult.continue_with()

def touch(ctx, c):
    return HookResult.continue_with(modified_payload={"command": "touch made"})

def push(ctx, c):
    return HookResult.continue_with(modified_payload={"command": "git push --force"})

def say_yes(ctx, c):
    return HookResult.allow("sure")
"""
NO_TOUCH = "hooks:\n  - {name: guard, on: tool.start, match: 'kind:shell', python: 'guard.py:no_touch'}\n"
RUN = ("run", "below/coder.py", "x", "--workspace", ".")
EVENT = {"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t"}


@pytest.fixture
def project(hookline):
    """A project with a guard, not approved yet, and below it an agent that would make a file."""
    write(hookline.folder)
    (hookline.folder / "below").mkdir()
    (hookline.folder / "below" / "coder.py").write_text(CODER)
    hookline.environ["XDG_CONFIG_HOME"] = str(hookline.folder / "config")
    return hookline


def write(folder, text=NO_TOUCH):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "hookline.yaml").write_text(text)
    (folder / "guard.py").write_text(GUARD)
    return folder / "hookline.yaml"


def made(hookline):
    return (hookline.folder / "made").exists()


def test_a_projects_file_holds_for_a_run_below_it_and_a_line_says_so(project):
    approve(project.folder / "hookline.yaml", project.environ)
    done = project(*RUN)
    assert done.returncode == 0, done.stderr
    assert not made(project)
    assert f"hooks: {project.folder}/hookline.yaml (project)\n" in done.stderr
    assert "hooks: " not in project(*RUN, "--quiet").stderr
    first = json.loads(project(*RUN, "--json").stdout.splitlines()[0])
    assert first["files"] == [{"file": f"{project.folder}/hookline.yaml", "level": "project"}]


def test_a_file_that_is_found_and_not_approved_refuses_the_run_and_names_the_remedies(project):
    done = project(*RUN)
    assert done.returncode == 2
    for remedy in (f"hookline trust {project.folder}/hookline.yaml", "--hooks", "HOOKLINE_TRUST"):
        assert remedy in done.stderr
    assert "no runs yet" in project("runs").stdout
    checked = project("check", "below/coder.py")
    assert checked.returncode == 0, checked.stdout
    assert f"{project.folder}/hookline.yaml: is not approved" in checked.stdout
    approve(write(project.folder, NO_TOUCH.replace("guard.py", "gone.py")), project.environ)
    checked = project("check", "below/coder.py")
    assert (checked.returncode, "gone.py" in checked.stdout) == (2, True), "what would refuse the run is told"
    write(project.folder)
    for words in (("explain",), ("try", "tool.start")):
        assert "changed since it was approved" in project(*words, "below/coder.py").stderr


def test_a_file_that_is_named_and_found_needs_no_approval_and_runs_once(project):
    done = project(*RUN, "--hooks", "hookline.yaml", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert records[0]["files"] == [{"file": "hookline.yaml", "level": "named"}]
    assert [each["hook"] for each in records if each["record"] == "called"] == ["guard"]
    assert not made(project)


def test_a_digest_approves_a_file_and_what_it_names_without_a_terminal(project):
    digest = project("trust", "--digest").stdout.strip()
    project.environ["HOOKLINE_TRUST"] = f"sha256:0, {digest}"
    assert project(*RUN).returncode == 0
    assert not made(project)
    code = project.folder / "guard.py"
    code.write_text(GUARD.replace('"touch" in', '"x" in'))
    done = project(*RUN)
    assert (done.returncode, made(project)) == (2, False)
    assert project("trust", "--digest").stdout.strip() != digest


def test_the_projects_file_can_be_left_out_which_is_said_and_on_record(project):
    done = project(*RUN, "--no-project-hooks")
    assert done.returncode == 0, done.stderr
    assert made(project)
    assert "hooks: not the project's (--no-project-hooks)\n" in done.stderr
    assert "--no-project-hooks" in project("runs", "last").stdout


def test_the_users_file_holds_too_before_the_projects_also_without_it(project):
    user = write(project.folder / "config" / "hookline", NO_TOUCH.replace("guard,", "mine,"))
    done = project(*RUN, "--no-project-hooks")
    assert not made(project)
    approve(project.folder / "hookline.yaml", project.environ)
    done = project(*RUN)
    assert f"hooks: {user} (user), {project.folder}/hookline.yaml (project)\n" in done.stderr
    user.chmod(0o666)
    done = project(*RUN)
    assert done.returncode == 2
    assert f"{user}: must belong to you" in done.stderr


WORKFLOW = "---\ntracker: {kind: folder}\nagent: {kind: command, command: ['true']}\n---\nwork\n"
AGENTRUN = (
    "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\nspec: {task: x, dryRun: true}\n"
)
KAGENT = """\
apiVersion: kagent.dev/v1alpha2
kind: Agent
metadata: {name: a}
spec: {type: Declarative, declarative: {systemMessage: x}}
"""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("coder.py", CODER),
        ("WORKFLOW.md", WORKFLOW),
        ("run.yaml", AGENTRUN),
        ("agent.yaml", KAGENT),
    ],
    ids=["pyagent", "symphony", "sympozium", "kagent"],
)
def test_explain_shows_the_projects_hooks_for_every_system(project, name, text):
    (project.folder / "below" / name).write_text(text)
    approve(project.folder / "hookline.yaml", project.environ)
    done = project("explain", f"below/{name}")
    assert "guard (python), for kind:shell" in done.stdout, done.stderr
    assert f"hooks: {project.folder}/hookline.yaml (project)" in done.stdout


def test_try_of_a_workflow_asks_the_projects_hooks(project):
    (project.folder / "below" / "WORKFLOW.md").write_text(WORKFLOW)
    file = write(project.folder, "hooks:\n  - {name: gate, on: run.start, shell: touch made; exit 1}\n")
    approve(file, project.environ)
    done = project("try", "run.start", "below/WORKFLOW.md")
    assert done.returncode == 1, done.stderr
    assert "= fails" in done.stdout


def test_a_projects_file_that_cannot_be_sent_to_a_cluster_refuses_the_run(project):
    (project.folder / "below" / "run.yaml").write_text(AGENTRUN)
    approve(project.folder / "hookline.yaml", project.environ)
    done = project("run", "below/run.yaml", "--on", "kubernetes")
    assert done.returncode == 2
    assert "would not hold" in done.stderr


# `hookline answer`


def asked(hookline, folder, command="touch made", words=(), **environ):
    event = {**EVENT, "cwd": str(folder), "tool_input": {"command": command}}
    hookline.environ.update(environ)
    done = hookline("answer", *words, stdin=json.dumps(event))
    said = json.loads(done.stdout)["hookSpecificOutput"] if done.stdout else {}
    return said.get("permissionDecisionReason", "")


def test_a_session_that_changed_its_folder_is_held_by_its_projects_file(project, tmp_path_factory):
    approve(project.folder / "hookline.yaml", project.environ)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    other = write(tmp_path_factory.mktemp("other"), "hooks: []\n")
    for folder in (elsewhere, other.parent):
        assert asked(project, folder, CLAUDE_PROJECT_DIR=str(project.folder / "below")) == "no touch"
        assert asked(project, folder, "ls") == ""
    assert "there is no hookline.yaml" in asked(project, elsewhere, CLAUDE_PROJECT_DIR=str(elsewhere))
    assert "no touch" in asked(project, project.folder), (
        "the folder of the event, where the project's has none"
    )


def test_without_a_projects_file_the_users_holds_and_with_both_each_does(project, tmp_path_factory):
    write(project.folder / "config" / "hookline", NO_TOUCH.replace("no_touch", "touch"))
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert asked(project, elsewhere, "ls") == ""
    approve(project.folder / "hookline.yaml", project.environ)
    for _ in range(2):  # the second time by the compiled copies
        assert asked(project, project.folder, "ls") == "no touch", (
            "the project's guard sees the user's change"
        )
        named = ("--file", "hookline.yaml")
        assert asked(project, elsewhere, "ls", named) == "", "the user's file is not named"


# Approvals


@pytest.mark.parametrize("level", ["project", "user"])
def test_a_file_that_was_approved_and_is_gone_refuses_until_a_person_lets_it_go(project, level):
    (project.folder / "hookline.yaml").unlink()
    user = project.folder / "config" / "hookline"
    others = {"project": user, "user": project.folder}
    write(others[level], "hooks: []\n")
    gone = write({"project": project.folder, "user": user}[level])
    for each in (gone, project.folder / "hookline.yaml"):
        approve(each, project.environ)
    assert project(*RUN).returncode == 0
    assert not made(project), "while it is there it holds"

    gone.unlink()
    assert project(*RUN).returncode == 2
    assert not made(project)
    assert str(gone) in asked(project, project.folder), "refused, and why"
    assert str(gone) in project("check", "below/coder.py").stdout

    done = led(project, "shell", f"$HOOKLINE trust {gone}")
    assert "its approval is taken back" in done.stdout, done.stderr
    assert project(*RUN).returncode == 0
    assert made(project)


@pytest.mark.parametrize("level", ["project", "user"])
@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_hook_file_that_is_a_broken_link_or_a_folder_is_not_passed_over(project, level, kind):
    (project.folder / "hookline.yaml").unlink()
    file = {"project": project.folder, "user": project.folder / "config" / "hookline"}[
        level
    ] / "hookline.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "link":
        file.symlink_to("nowhere")
    else:
        file.mkdir()
    done = project(*RUN)
    assert (done.returncode, made(project)) == (2, False), done.stderr
    assert str(file) in done.stderr
    assert str(file) in asked(project, project.folder), "refused, and why"


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(project):
    git(project.folder, "init", "-q")
    git(project.folder, "add", "hookline.yaml", "guard.py")
    git(project.folder, "commit", "-q", "-m", "x")
    approve(project.folder / "hookline.yaml", project.environ)
    return project


def test_worktrees_share_an_approval_and_each_keeps_its_own(repository, tmp_path_factory):
    tree = tmp_path_factory.mktemp("trees") / "tree"
    git(repository.folder, "worktree", "add", "-q", str(tree))
    assert asked(repository, tree) == "no touch"
    (tree / "guard.py").write_text(GUARD + "# changed\n")
    assert "guard.py changed" in asked(repository, tree)
    approve(tree / "hookline.yaml", repository.environ)
    assert asked(repository, tree) == "no touch"
    assert asked(repository, repository.folder) == "no touch"


def test_a_folder_named_git_that_is_no_repository_is_passed_over(repository, tmp_path_factory):
    inner, tree = repository.folder / "inner", tmp_path_factory.mktemp("trees") / "tree"
    inner.mkdir()
    copy(repository.folder, inner)
    git(repository.folder, "add", "inner")
    git(repository.folder, "commit", "-q", "-m", "y")
    (inner / ".git").mkdir()
    approve(inner / "hookline.yaml", repository.environ)
    git(repository.folder, "worktree", "add", "-q", str(tree))
    assert asked(repository, tree / "inner") == "no touch"


def test_neither_a_link_nor_a_forged_worktree_has_the_approval(repository, tmp_path_factory):
    git(repository.folder, "worktree", "add", "-q", str(tmp_path_factory.mktemp("trees") / "tree"))
    for forge in (link, copy, point_at, pretend, borrow):
        other = tmp_path_factory.mktemp("other")
        forge(repository.folder, other)
        assert "is not approved" in asked(repository, other), forge.__name__


def link(approved: Path, other: Path):
    (other / "hookline.yaml").symlink_to(approved / "hookline.yaml")


def copy(approved: Path, other: Path):
    for name in ("hookline.yaml", "guard.py"):
        shutil.copy(approved / name, other)


def point_at(approved: Path, other: Path):
    copy(approved, other)
    (other / ".git").write_text(f"gitdir: {approved}/.git\n")


def borrow(approved: Path, other: Path):
    """A folder that says it is a worktree which the repository has elsewhere."""
    copy(approved, other)
    (other / ".git").write_text(f"gitdir: {approved}/.git/worktrees/tree\n")


def pretend(approved: Path, other: Path):
    """A folder of their own that says it is a worktree of the approved repository."""
    copy(approved, other)
    own = other / "own"
    own.mkdir()
    (own / "commondir").write_text(f"{approved}/.git\n")
    (own / "gitdir").write_text(f"{other}/.git\n")
    (other / ".git").write_text(f"gitdir: {own}\n")


# The machine's file

PROGRAM = """
import os, runpy, sys
from pathlib import Path
from hookline.hookfile import trust

trust.MACHINE, trust.ROOT = Path(sys.argv.pop(1)), os.getuid()
runpy.run_module("hookline", run_name="__main__", alter_sys=True)
"""


@pytest.fixture
def machine(project):
    write(project.folder / "machine")
    (project.folder / "machine").chmod(0o755)
    (project.folder / "hookline.yaml").unlink()

    def run(*words, stdin=""):
        return subprocess.run(
            [sys.executable, "-c", PROGRAM, str(project.folder / "machine"), *words],
            cwd=project.folder,
            env=project.environ,
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    run.project = project
    return run


@pytest.mark.parametrize(
    "entry",
    [
        "{name: changes, on: tool.start, python: 'guard.py:touch'}",
        "{name: guard, on: tool.start, python: 'guard.py:say_yes'}",
        "{name: guard, on: tool.start, python: 'guard.py:no_touch', mode: 'off'}",
    ],
    ids=["a later change", "a yes", "its own name, switched off"],
)
def test_a_machines_file_cannot_be_loosened_from_below(machine, entry):
    project = machine.project
    lower = project.folder / "lower.yaml"
    lower.write_text(f"hooks:\n  - {entry}\n")
    # The harmless call is made harmful by the lower hook; the other is harmful already.
    command = "ls" if "touch'" in entry and "no_touch" not in entry else "touch made"
    (project.folder / "below" / "coder.py").write_text(CODER.replace("touch made", command))
    done = machine(*RUN, "--no-project-hooks", "--hooks", "lower.yaml")
    assert done.returncode == 0, done.stderr
    assert f"{project.folder}/machine/hookline.yaml (machine)" in done.stderr
    assert not made(project)
    event = {**EVENT, "cwd": str(project.folder), "tool_input": {"command": command}}
    for _ in range(2):  # the second time by the compiled copies
        done = machine("answer", "--file", "lower.yaml", stdin=json.dumps(event))
        assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny", done.stderr


READY = """
hooks:
  - {name: NAME, on: tool.start, match: 'kind:shell', python: 'hookline.guards:no_force_push'}
  - {name: asks, on: tool.start, python: 'hookline.guards:protect_hookline'OPTIONS}
  - {name: changes, on: tool.start, match: 'kind:shell', when: {input.command: ls}, python: 'guard.py:push'}
"""


@pytest.fixture
def everywhere(machine):
    """The same ready guards in the files of the machine, the user and the project; the last two change a call."""
    folder = machine.project.folder
    for place in ("machine", "config/hookline", "."):
        text = READY.replace("NAME", place.strip("./")[:4] or "guard").replace("OPTIONS", "")
        write(folder / place, text.partition("  - {name: changes")[0] if place == "machine" else text)
    approve(folder / "hookline.yaml", machine.project.environ)
    return machine


def calls(hookline, run="last"):
    records = map(json.loads, hookline("runs", run, "--json").stdout.splitlines())
    return [each["hook"] for each in records if each["record"] == "called"]


def test_a_ready_guard_of_several_files_runs_once_from_the_highest(everywhere):
    folder = everywhere.project.folder
    for session in ("first", "by the compiled copies"):
        event = {**EVENT, "session_id": session, "cwd": str(folder)}
        asks = json.dumps({**event, "tool_input": {"command": "echo > hookline.yaml"}})
        done = everywhere("answer", stdin=asks)
        said = json.loads(done.stdout)["hookSpecificOutput"]
        assert said["permissionDecision"] == "ask", done.stderr
        assert said["permissionDecisionReason"].count("protect hookline") == 1
        assert calls(everywhere, f"claude-{session}") == ["mach", "asks"]
        changed = json.dumps({**event, "session_id": f"{session} 2", "tool_input": {"command": "ls"}})
        said = json.loads(everywhere("answer", stdin=changed).stdout)["hookSpecificOutput"]
        assert said["permissionDecision"] == "deny", "the machine's is asked again after the change"
    (folder / "below" / "coder.py").write_text(CODER.replace("touch made", "true"))
    done = everywhere(*RUN)
    assert calls(everywhere) == ["mach", "asks"]
    assert f"in two files, and run once: mach ({folder}/machine/hookline.yaml:3" in done.stderr


def test_a_ready_guard_with_other_settings_is_another_hook(everywhere):
    folder = everywhere.project.folder
    text = READY.replace("NAME", "mine").replace("OPTIONS", ", timeout: 5")
    approve(write(folder, text), everywhere.project.environ)
    event = {**EVENT, "cwd": str(folder), "tool_input": {"command": "true"}}
    everywhere("answer", stdin=json.dumps(event))
    assert calls(everywhere, "claude-s") == ["mach", "asks", "asks"]


def test_the_files_are_asked_in_their_order_the_machines_first(machine):
    project = machine.project
    order = project.folder / "order"
    folders = {
        "machine": project.folder / "machine",
        "user": project.folder / "config" / "hookline",
        "project": project.folder,
        "named": project.folder / "more",
    }
    for name, folder in folders.items():
        write(folder, f"hooks:\n  - {{name: {name}, on: tool.start, shell: 'echo {name} >> {order}'}}\n")
    approve(project.folder / "hookline.yaml", project.environ)
    done = machine(*RUN, "--hooks", "more/hookline.yaml")
    assert done.returncode == 0, done.stderr
    assert order.read_text().split() == list(folders)
    said = next(line for line in done.stderr.splitlines() if line.startswith("hooks: "))
    assert [word.strip("(),") for word in said.split()[2::2]] == list(folders)
    order.unlink()
    event = {**EVENT, "cwd": str(project.folder), "tool_input": {"command": "ls"}}
    machine("answer", stdin=json.dumps(event))
    assert order.read_text().split() == ["machine", "user", "project"]


def test_a_machines_file_or_list_that_others_can_write_is_refused(machine):
    project = machine.project
    (project.folder / "machine").chmod(0o777)
    done = machine(*RUN)
    assert (done.returncode, made(project)) == (2, False)
    assert "must belong to root" in done.stderr


def test_roots_list_of_digests_approves_a_file(machine):
    project = machine.project
    (project.folder / "machine" / "hookline.yaml").unlink()
    write(project.folder)
    assert machine(*RUN).returncode == 2
    digest = project("trust", "--digest").stdout
    (project.folder / "machine" / "trusted").write_text(f"# the image's\n{digest}")
    done = machine(*RUN)
    assert done.returncode == 0, done.stderr
    assert not made(project)


@pytest.mark.real
def test_the_machines_file_is_in_etc_and_no_variable_moves_it(machine):
    installed(bwrap="bubblewrap")
    project = machine.project
    root = [] if os.getuid() == 0 else ["--unshare-user", "--uid", "0", "--gid", "0"]
    etc = ["--tmpfs", "/etc", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    mine = ["--ro-bind", str(project.folder / "machine"), "/etc/hookline"]
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *etc, *mine, *root, sys.executable, "-m", "hookline", *RUN],
        cwd=project.folder,
        env={**project.environ, "XDG_CONFIG_DIRS": "/nowhere", "HOOKLINE_ETC": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "/etc/hookline/hookline.yaml (machine)" in done.stderr
    assert not made(project)
