"""`check`, `explain` and `install` of what came with a repository run nothing of it, and approve nothing unasked."""

import json

import pytest

from hookline.hookfile import trust
from hookline.hookfile.read import read
from tests.command import approve

FOREIGN = "open('foreign', 'w')\n\ndef note(ctx, c):\n    return None\n"
FILES = {
    "python: a file": "python: 'guard.py:note'",
    "python: a module": "python: 'mine.guard:note'",
    "a shell beside it": "command: [./sh, -c, 'a; b']",
}


@pytest.fixture(params=FILES)
def project(hookline, request):
    (hookline.folder / "hookline.yaml").write_text(
        f"hooks:\n  - {{name: theirs, on: tool.start, match: Bash, {FILES[request.param]}}}\n"
    )
    (hookline.folder / "guard.py").write_text(FOREIGN)
    (hookline.folder / "mine").mkdir()
    (hookline.folder / "mine" / "__init__.py").write_text("open('foreign', 'w')\n")
    (hookline.folder / "mine" / "guard.py").write_text(FOREIGN)
    (hookline.folder / "sh").write_text("#!/bin/sh\necho x > foreign\n")
    (hookline.folder / "sh").chmod(0o755)
    return hookline


def foreign_ran(project):
    return (project.folder / "foreign").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("check", "hookline.yaml"),
        ("check", "agent.py"),
        ("explain", "agent.py"),
        ("explain", "--for", "adk", "hookline.yaml"),
        ("try", "tool.start", "agent.py", "--tool", "bash"),
        ("trust", "--digest"),
        ("status",),
        ("doctor",),
        ("install", "claude-code"),
    ],
    ids=" ".join,
)
def test_nothing_of_a_file_that_is_not_approved_is_run(project, words):
    project(*words)
    assert not foreign_ran(project)


def test_an_approved_one_is_looked_at_whole(hookline):
    (hookline.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: mine, on: tool.start, python: 'guard.py:note'}\n"
    )
    (hookline.folder / "guard.py").write_text(FOREIGN)
    approve(hookline.folder / "hookline.yaml", hookline.environ)
    assert hookline("check", "hookline.yaml").returncode == 0
    assert foreign_ran(hookline)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def other(): ...\n", "there is no function 'note'"),
        ("def note(:\n", "guard.py:1"),
        (None, "no such file"),
    ],
)
def test_what_the_text_of_the_code_tells_is_told_all_the_same(hookline, text, told):
    (hookline.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: mine, on: tool.start, python: 'guard.py:note'}\n"
    )
    if text is not None:
        (hookline.folder / "guard.py").write_text(text)
    done = hookline("check", "hookline.yaml")
    assert done.returncode == 2
    assert told in done.stdout


EVENT = {
    "session_id": "s1",
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_use_id": "t1",
    "tool_input": {"command": "ls"},
}


@pytest.mark.parametrize("typed", ["", "n\n", "\n", "maybe\n"])
def test_install_does_not_approve_what_came_with_a_repository_unless_a_person_says_yes(hookline, typed):
    (hookline.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: theirs, on: tool.start, match: Bash, shell: 'echo x > foreign'}\n"
    )
    done = hookline.at_terminal("install", "claude-code", typed=typed)
    assert "theirs at tool.start for Bash runs echo x > foreign" in done.stdout
    assert "hookline trust" in done.stdout
    answer = hookline("answer", stdin=json.dumps({**EVENT, "cwd": str(hookline.folder)}))
    assert '"deny"' in answer.stdout
    assert not foreign_ran(hookline)


def test_install_without_a_terminal_approves_nothing_and_names_the_way(hookline):
    (hookline.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: theirs, on: tool.start, match: Bash, shell: 'echo x > foreign'}\n"
    )
    done = hookline("install", "claude-code", "--local", stdin="y\n")
    assert "theirs at tool.start for Bash runs echo x > foreign" in done.stdout
    assert f"hookline trust {hookline.folder}/hookline.yaml" in done.stdout
    answer = hookline("answer", stdin=json.dumps({**EVENT, "cwd": str(hookline.folder)}))
    assert '"deny"' in answer.stdout
    assert not foreign_ran(hookline)


def test_what_is_shown_is_what_is_approved(hookline):
    """Somebody who swaps the file while the person reads it has nothing approved."""
    file = hookline.folder / "hookline.yaml"
    file.write_text("hooks:\n  - {name: shown, on: tool.start, match: Bash, shell: 'true'}\n")
    trust.fix(file)
    hooks = read(file).checked().hooks
    file.write_text("hooks:\n  - {name: theirs, on: tool.start, match: Bash, shell: 'echo x > foreign'}\n")
    assert [each.name for each in hooks] == [each.name for each in read(file).checked().hooks]
    trust.approve(file, hooks, hookline.environ)
    answer = hookline("answer", stdin=json.dumps({**EVENT, "cwd": str(hookline.folder)}))
    assert '"deny"' in answer.stdout
    assert not foreign_ran(hookline)
