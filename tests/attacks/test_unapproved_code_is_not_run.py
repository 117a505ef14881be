"""Trust is for content: code that was not approved is not run, whatever is put in its place and when."""

import hashlib
import importlib.util
import json
import os
import py_compile
import shutil
import sys
import threading

import pytest

from tests.command import approve

EVENT = {"session_id": "s1", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_use_id": "t1"}
FILE = "hooks:\n  - {name: mine, on: tool.start, python: 'guard.py:note'}\n"
GUARD = """
from hookline import HookResult

def note(ctx, c):
    return HookResult.block("guarded")
"""
FOREIGN = """
from hookline import HookResult
open("foreign", "a").write("x")

def note(ctx, c):
    return HookResult.continue_with()
"""
SWAP = """
import os
from hookline import HookResult

if os.path.exists("next"):
    os.rename("next", open("target").read())

def note(ctx, c):
    return HookResult.continue_with()
"""


@pytest.fixture
def project(hookline):
    hookline.environ["XDG_CONFIG_HOME"] = str(hookline.folder / "config")
    hookline.folder = hookline.folder / "project"
    hookline.folder.mkdir()
    return hookline


def write(project, text=FILE, **files):
    (project.folder / "hookline.yaml").write_text(text)
    for name, content in {"guard.py": GUARD, **files}.items():
        (project.folder / name).parent.mkdir(exist_ok=True)
        (project.folder / name).write_text(content)
    approve(project.folder / "hookline.yaml", project.environ)


def asked(project, cwd=None):
    event = {**EVENT, "cwd": str(cwd or project.folder), "tool_input": {"command": "ls"}}
    return project("answer", stdin=json.dumps(event))


def is_denied(done):
    return done.returncode == 2 or '"deny"' in done.stdout


def foreign_ran(project):
    return (project.folder / "foreign").exists()


def put_next(project, name, content):
    """Have the code that is loaded first put this in the place of a file, by a rename."""
    (project.folder / "next").write_text(content)
    (project.folder / "target").write_text(name)


@pytest.mark.parametrize("place", ["guard.py", "mine/guard.py"])
def test_python_code_that_is_swapped_after_the_check(project, place):
    named = "guard.py:note" if place == "guard.py" else "mine.guard:note"
    text = (
        "hooks:\n  - {name: first, on: tool.start, python: 'first.py:note'}\n"
        f"  - {{name: mine, on: tool.start, python: '{named}'}}\n"
    )
    write(project, text, **{"first.py": SWAP, place: GUARD})
    put_next(project, place, FOREIGN)
    assert is_denied(asked(project))
    assert not (project.folder / "next").exists(), "else nothing was swapped"
    assert not foreign_ran(project)


def test_a_hook_file_that_is_swapped_after_the_check(project):
    user = project.folder.parent / "config" / "hookline"
    user.mkdir(parents=True)
    (user / "hookline.yaml").write_text("hooks:\n  - {name: u, on: tool.start, python: 'u.py:note'}\n")
    (user / "u.py").write_text(SWAP)
    write(project)
    put_next(project, "hookline.yaml", "hooks:\n  - {name: f, on: tool.start, shell: 'echo x > foreign'}\n")
    assert is_denied(asked(project))
    assert not (project.folder / "next").exists(), "else nothing was swapped"
    assert not foreign_ran(project)
    shutil.copy(project.folder / "hookline.yaml", project.folder / "foreign.yaml")
    (project.folder / "hookline.yaml").write_text(FILE)
    assert is_denied(asked(project)), "no copy of the foreign file was kept under the approved content"


@pytest.mark.parametrize(
    "first", ["python: 'first.py:note'", "shell: '[ ! -e next ] || mv next hooks/check', cwd: ."]
)
def test_a_script_that_is_swapped_after_the_check_is_not_started(project, first):
    text = (
        f"hooks:\n  - {{name: first, on: tool.start, {first}}}\n"
        "  - {name: mine, on: tool.start, command: [sh, hooks/check], cwd: .}\n"
    )
    write(project, text, **{"first.py": SWAP, "hooks/check": "exit 2\n"})
    put_next(project, "hooks/check", "echo x > foreign\n")
    assert is_denied(asked(project))
    assert not (project.folder / "next").exists(), "else nothing was swapped"
    assert not foreign_ran(project)


def test_a_script_that_is_there_only_while_the_hook_runs_is_not_believed(project):
    """As somebody does who swaps it in a loop: the approved one is back before anybody looks."""
    swap = "mv check kept; mv next check; sh check; code=$?; mv check next; mv kept check; exit $code"
    text = f"hooks:\n  - {{name: mine, on: tool.start, shell: '{swap}', cwd: .}}\n"
    write(project, text, check="exit 2\n", next="exit 0\n")
    done = asked(project)
    assert (project.folder / "check").read_text() == "exit 2\n"
    assert is_denied(done)


def test_a_swap_in_a_loop_runs_nothing_foreign(project):
    write(project)
    guard, theirs = project.folder / "guard.py", project.folder / "theirs"
    over = threading.Event()

    def swap():
        while not over.is_set():
            for content in (GUARD, FOREIGN):
                theirs.write_text(content)
                os.rename(theirs, guard)

    attacker = threading.Thread(target=swap)
    attacker.start()
    try:
        answers = [asked(project) for _ in range(12)]
    finally:
        over.set()
        attacker.join()
    assert all(map(is_denied, answers))
    assert not foreign_ran(project)


def test_a_compiled_file_beside_approved_code_is_not_run(project):
    write(project)
    guard = project.folder / "guard.py"
    known = guard.stat()
    other = project.folder / "other.py"
    other.write_text(FOREIGN.ljust(known.st_size) if len(FOREIGN) < known.st_size else FOREIGN)
    cached = importlib.util.cache_from_source(str(guard))
    py_compile.compile(str(other), cached, dfile=str(guard), doraise=True)
    with open(cached, "r+b") as compiled:
        compiled.seek(8)
        for number in (int(known.st_mtime), known.st_size):
            compiled.write(number.to_bytes(4, "little"))
    assert is_denied(asked(project))
    assert not foreign_ran(project)


@pytest.mark.parametrize("name", ["hookline.yaml", "guard.py"])
def test_a_link_to_the_same_content_elsewhere(project, name):
    write(project, **{"guard.py": f"import helper\n{GUARD}", "helper.py": ""})
    other = project.folder.parent / "other"
    shutil.copytree(project.folder, other)
    (other / "helper.py").write_text(f"open({str(project.folder / 'foreign')!r}, 'w')")
    (project.folder / name).unlink()
    (project.folder / name).symlink_to(other / name)
    assert is_denied(asked(project))
    assert not foreign_ran(project)


def test_a_script_that_became_a_link_to_the_same_content_elsewhere(project):
    text = f"hooks:\n  - {{name: mine, on: tool.start, command: [{sys.executable}, tool], cwd: .}}\n"
    write(project, text, **{"tool": "import helper\n", "helper.py": ""})
    other = project.folder.parent / "other"
    shutil.copytree(project.folder, other)
    (other / "helper.py").write_text(f"open({str(project.folder / 'foreign')!r}, 'w')")
    (project.folder / "tool").unlink()
    (project.folder / "tool").symlink_to(other / "tool")
    assert is_denied(asked(project))
    assert not foreign_ran(project)


def test_a_forged_copy_is_refused_and_told(project):
    write(project)
    asked(project)
    home = project.folder.parent / "home"
    [copy] = (home / "compiled").iterdir()
    body = json.dumps({**json.loads(copy.read_bytes().partition(b"\n")[2]), "hooks": []}).encode()
    copy.write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
    done = asked(project)
    assert is_denied(done)
    assert str(copy) in done.stderr
    assert str(copy) not in asked(project).stderr, "it was made anew"


SCRIPTS = {
    "sh, no suffix": ("command: [sh, hooks/check]", "hooks/check"),
    "python, no suffix": (f"command: [{sys.executable}, tool]", "tool"),
    "an interpreter by name": ("command: python3 -u tool now", "tool"),
    "a module": ("command: python3 -m mine.check", "mine/check.py"),
    "a package around a module": ("python: 'mine.guard:note'", "mine/__init__.py"),
    "read by the shell": ("shell: '. ./lib; true'", "lib"),
    "source": ("shell: 'if true; then source lib; fi'", "lib"),
    "node": ("shell: 'node x'", "x"),
    "in its folder": ("shell: './x'", "x"),
    "behind cd": ("shell: 'cd hooks && ./check'", "hooks/check"),
    "in a folder of its own": ("command: ./check, cwd: hooks", "hooks/check"),
    "a shell in a shell": ('''shell: "sh -c 'exec ./x'"''', "x"),
    "a shell as a command": ("command: [bash, -c, './x 2>&1']", "x"),
    "behind others": ("shell: 'timeout 5 env A=b nice -n 5 sh x'", "x"),
    "on its input": ("shell: 'sh < x'", "x"),
    "through a pipe": ("shell: 'cat x | sh -s'", "x"),
    "in a substitution": ("""shell: 'echo "$(sh x)"' """, "x"),
    "awk": ("shell: 'awk -f x'", "x"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_changed_after_the_approval(project, name):
    entry, script = SCRIPTS[name]
    files = {"mine/guard.py": GUARD, script: "# approved\n" + (GUARD if script == "mine/guard.py" else "")}
    write(project, f"hooks:\n  - {{name: a, on: tool.start, {entry}}}\n", **files)
    (project.folder / script).write_text("# another\nopen('foreign', 'w')\n")
    assert f"{script} changed since it was approved" in asked(project).stdout


def test_a_program_that_is_made_executable_later(project):
    write(project, "hooks:\n  - {name: a, on: tool.start, shell: ./x, cwd: .}\n")
    (project.folder / "x").write_text("#!/bin/sh\necho x > foreign\n")
    (project.folder / "x").chmod(0o755)
    assert is_denied(asked(project))
    assert not foreign_ran(project)


def test_a_log_that_a_hook_reads_and_writes_does_not_take_its_approval_away(project):
    text = "tail -n 1 log 2>/dev/null; grep -c x data/notes; echo x >> log; sort < log > data/notes; true"
    write(
        project, f"hooks:\n  - {{name: a, on: tool.start, shell: '{text}', cwd: .}}\n", **{"data/notes": ""}
    )
    assert [asked(project).stdout for _ in range(3)] == [""] * 3
    assert (project.folder / "log").read_text() == "x\n" * 3
