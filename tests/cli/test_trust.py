"""A hook file that was found, not named, runs only once its content is approved."""

import json
import sys

import pytest

EVENT = {"session_id": "s1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1"}
FILE = """
hooks:
  - name: mine
    on: [tool.start, tool.end]
    python: guard.py:note
"""
GUARD = """
from hookline import HookResult

def note(ctx, c):
    open("ran", "a").write("x")
    return HookResult.continue_with()
"""


@pytest.fixture
def asked(hookline):
    (hookline.folder / "hookline.yaml").write_text(FILE)
    (hookline.folder / "guard.py").write_text(GUARD)

    def ask(*words, **changes):
        event = {**EVENT, "cwd": str(hookline.folder), "tool_input": {"command": "ls"}, **changes}
        return hookline("answer", *words, stdin=json.dumps(event))

    return ask


@pytest.fixture
def folder(hookline):
    return hookline.folder


def ran(folder):
    return (folder / "ran").exists()


def refusal(done):
    specific = json.loads(done.stdout)["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    return specific["permissionDecisionReason"]


def test_a_file_that_was_found_and_not_approved_is_a_refusal_and_runs_nothing(asked, folder):
    said = refusal(asked())
    assert "is not approved" in said
    assert f"hookline trust {folder}/hookline.yaml" in said
    assert not ran(folder)


def test_elsewhere_than_at_a_start_it_is_exit_code_1(asked, folder):
    done = asked(hook_event_name="PostToolUse", tool_response="x")
    assert done.returncode == 1
    assert "is not approved" in done.stderr
    assert not ran(folder)


def test_an_approved_file_runs_also_from_a_folder_below(asked, hookline, folder):
    assert hookline.at_terminal("trust").returncode == 0
    (folder / "below").mkdir()
    done = asked(cwd=str(folder / "below"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert ran(folder)


def test_a_file_that_was_named_needs_no_approval(asked, folder):
    assert asked("--file", "hookline.yaml").stdout == ""
    assert ran(folder)


def test_trust_shows_what_each_hook_runs(hookline, folder):
    (folder / "hookline.yaml").write_text(
        "hooks:\n"
        "  - {name: a, on: tool.start, python: guard.py:note}\n"
        "  - {name: b, on: [run.start, run.end], command: [prog, 'two words']}\n"
        "  - {name: c, on: tool.end, match: [kind:shell, x], when: {input.command: ls}, shell: make test}\n"
        "  - {name: d, on: tool.end, http: 'http://localhost:1/x'}\n"
        "  - {name: e, on: tool.end, image: 'ghcr.io/o/guard:1', command: [check], args: ['two words']}\n"
    )
    said = hookline.at_terminal("trust", "hookline.yaml").stdout
    assert f"a at tool.start runs {folder}/guard.py:note" in said
    assert "b at run.start, run.end runs prog 'two words'" in said
    assert """c at tool.end for kind:shell, x when {"input.command": "ls"} runs make test""" in " ".join(
        said.split()
    )
    assert "d at tool.end runs http://localhost:1/x" in said
    assert "e at tool.end runs ghcr.io/o/guard:1 check 'two words'" in said
    found = json.loads(hookline.at_terminal("trust", "--json").stdout)["approved"]
    assert [row["name"] for row in found["hooks"]] == ["a", "b", "c", "d", "e"]
    assert found["hooks"][2]["when"] == {"input.command": "ls"}


@pytest.mark.parametrize("name", ["hookline.yaml", "guard.py"])
def test_a_change_takes_the_approval_away_until_it_is_given_again(asked, hookline, folder, name):
    hookline.at_terminal("trust")
    file = folder / name
    text = file.read_text()
    file.write_text(text + "# changed\n")
    assert f"{name} changed since it was approved" in refusal(asked())
    assert not ran(folder)
    file.write_text(text)
    assert asked().stdout == "", "the content is what was approved"
    file.write_text(text + "# changed\n")
    hookline.at_terminal("trust")
    assert asked().stdout == ""


@pytest.mark.parametrize(
    ("entry", "script"),
    [
        ("command: [PYTHON, hooks/check.py]", "hooks/check.py"),
        ("command: [PYTHON, check.py], cwd: hooks", "hooks/check.py"),
        ("command: hooks/check", "hooks/check"),
        ("shell: 'exec ./hooks/check now'", "hooks/check"),
        ("python: 'mine.guards:note'", "mine/guards.py"),
    ],
)
def test_a_script_that_the_file_names_is_approved_with_it(asked, hookline, folder, entry, script):
    file = folder / script
    file.parent.mkdir()
    file.write_text(GUARD if script.startswith("mine") else f"#!{sys.executable}\n")
    file.chmod(0o755)
    entry = entry.replace("PYTHON", sys.executable)
    (folder / "hookline.yaml").write_text(f"hooks:\n  - {{name: a, on: tool.start, {entry}}}\n")
    assert f"approved, with {script}" in hookline.at_terminal("trust").stdout
    assert asked().stdout == ""
    file.write_text(file.read_text() + "print('changed')\n")
    assert f"{script} changed since it was approved" in refusal(asked())


def test_a_script_that_appears_later_was_not_approved(asked, hookline, folder):
    (folder / "guard.py").unlink()
    hookline.at_terminal("trust")
    (folder / "guard.py").write_text(GUARD)
    assert "guard.py changed" in refusal(asked())
    assert not ran(folder)


def test_what_a_hook_writes_does_not_take_its_own_approval_away(asked, hookline, folder):
    (folder / "hookline.yaml").write_text("hooks:\n  - {name: a, on: tool.start, shell: echo x >> noted}\n")
    hookline.at_terminal("trust")
    assert asked().stdout == ""
    assert asked().stdout == ""
    assert (folder / "noted").read_text() == "x\nx\n"


def test_the_same_content_in_another_folder_is_not_approved_with_it(asked, hookline, folder):
    hookline.at_terminal("trust")
    other = folder / "other"
    other.mkdir()
    for name in ("hookline.yaml", "guard.py"):
        (other / name).write_bytes((folder / name).read_bytes())
    assert f"hookline trust {other}/hookline.yaml" in refusal(asked(cwd=str(other)))


def test_a_file_with_a_mistake_is_not_approved(asked, hookline, folder):
    (folder / "hookline.yaml").write_text("hooks:\n  - {name: a, on: tool.strat, shell: 'true'}\n")
    done = hookline.at_terminal("trust")
    assert done.returncode == 2
    assert "hookline.yaml:2" in done.stderr
    assert "is not approved" in refusal(asked())


def test_install_approves_the_file_of_the_project_after_showing_it(asked, hookline, folder):
    said = hookline.at_terminal("install", "claude-code", typed="y\n").stdout
    assert said.index("mine at tool.start, tool.end runs") < said.index("approved, with guard.py")
    assert asked().stdout == ""


def test_install_does_not_approve_a_file_with_a_mistake_and_says_so(asked, hookline, folder):
    (folder / "hookline.yaml").write_text("hooks: 3\n")
    done = hookline("install", "claude-code", "--local")
    assert done.returncode == 0
    assert "not approved:" in done.stdout
    assert "is not approved" in refusal(asked())


@pytest.mark.parametrize("text", ["{half", "[]", '{"a": 1}'])
def test_approvals_that_cannot_be_read_are_a_refusal(asked, hookline, folder, text):
    hookline.at_terminal("trust")
    (folder / "home" / "trusted.json").write_text(text)
    assert "trusted.json" in refusal(asked())
    assert not ran(folder)


def test_approvals_are_for_the_user_alone(asked, hookline, folder):
    hookline.at_terminal("trust")
    assert (folder / "home" / "trusted.json").stat().st_mode & 0o077 == 0


def test_trust_where_there_is_no_file_says_so(hookline, folder):
    done = hookline.at_terminal("trust")
    assert done.returncode == 2
    assert "there is no hookline.yaml" in done.stderr
    assert hookline.at_terminal("trust", "gone.yaml").returncode == 2
