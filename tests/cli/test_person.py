"""What decides over guards is done by a person at a terminal, never by the agent that is guarded."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.command import approve

FILE = "hooks:\n  - {name: no, on: tool.start, shell: exit 1}\n"
EVENT = {
    "hook_event_name": "PreToolUse",
    "session_id": "s",
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
}
# Leads a session at a terminal: a shell, as a person has it, or a program that calls hooks, as an agent is.
LEADER = """
import fcntl, os, subprocess, sys, termios
kind, *lines = sys.argv[1:]
master, terminal = os.openpty()
os.set_inheritable(master, True)
fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
os.dup2(terminal, 0)
if kind == "shell":
    os.execvp("sh", ["sh", "-c", "\\n".join(lines)])
for line in lines:
    subprocess.run(["sh", "-c", line])
"""
ANSWER = "$HOOKLINE answer < event.json > answer.json"
TRUST = "$HOOKLINE trust"
SIGNS = [
    "HOOKLINE_TAG",
    "CLAUDECODE",
    "CODEX_THREAD_ID",
    "CODEX_SANDBOX",
    "CODEX_CI",
    "GEMINI_CLI",
    "QWEN_CODE",
]


@pytest.fixture
def project(hookline):
    (hookline.folder / "hookline.yaml").write_text(FILE)
    (hookline.folder / "event.json").write_text(json.dumps({**EVENT, "cwd": str(hookline.folder)}))
    return hookline


def led(project, kind, *lines):
    words = [sys.executable, "-IS", "-c", LEADER, kind, *lines]
    environ = {**project.environ, "HOOKLINE": f"{sys.executable} -m hookline"}
    return subprocess.run(
        words,
        cwd=project.folder,
        env=environ,
        start_new_session=True,
        capture_output=True,
        text=True,
        check=False,
    )


def approved(project):
    return (project.folder / "home" / "trusted.json").exists()


def test_a_person_approves_also_after_trying_an_answer_by_hand(project):
    done = led(project, "shell", ANSWER, TRUST)
    assert approved(project), done.stderr


@pytest.mark.parametrize(
    ("kind", "lines", "said"),
    [
        ("agent", [ANSWER, TRUST], "calls `hookline answer`"),
        ("agent", [ANSWER, "env -i HOOKLINE_HOME=$HOOKLINE_HOME $HOOKLINE trust"], "calls `hookline answer`"),
        ("agent", [ANSWER, "env -i HOOKLINE_HOME=$PWD/else $HOOKLINE trust"], "calls `hookline answer`"),
        *(("shell", [f"{sign}=1 {TRUST}"], f"{sign} of ") for sign in SIGNS),
        ("shell", [f"QWEN_CODE=1 sh -c 'env -u QWEN_CODE {TRUST}; true'"], "QWEN_CODE of Qwen Code"),
        ("shell", [f"{TRUST} < /dev/null"], "stdin is not a terminal"),
        ("agent", [f"({TRUST} 2> said </dev/tty; touch done) & exit", "until test -e done; do sleep 0.02; done; cat said >&2"], "the shell of its terminal"),
    ],
)  # fmt: skip
def test_an_agent_cannot_approve_at_a_terminal(project, kind, lines, said):
    done = led(project, kind, *lines)
    assert "hookline trust is for a person at a terminal" in " ".join(done.stderr.split()), done
    assert said in " ".join(done.stderr.split())
    assert not approved(project)


def test_a_person_whose_process_has_the_number_of_a_former_agent_approves(project):
    done = led(project, "shell", "mkdir -p home/clients; touch home/clients/$$ home/clients/$$-1", TRUST)
    assert approved(project), done.stderr


def test_a_note_on_an_agent_is_removed_when_it_is_old(project):
    notes = project.folder / "home" / "clients"
    notes.mkdir(parents=True)
    for name, days in (("1-1", 31), ("2-2", 29)):
        (notes / name).touch()
        os.utime(notes / name, (time.time() - days * 86400,) * 2)
    led(project, "agent", ANSWER)
    left = set(os.listdir(notes))
    assert ("1-1" in left, "2-2" in left, len(left)) == (False, True, 2), "with the agent's own"


def test_no_answer_comes_from_a_process_without_a_terminal(hookline, screen):
    """Nor from the agent's own tool; the run waits on, and the person's answer holds."""
    (hookline.folder / "asks.py").write_text(ASKS)
    process = hookline.start("run", "asks.py", "x", "--ask", "journal", "--code-to", screen.name)
    while " waiting" not in hookline("runs").stdout:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    for word in ("approve", "rewrite"):
        done = hookline(word, "last", *(["{}"] if word == "rewrite" else []))
        assert done.returncode == 2
        assert f"hookline {word} is for a person at a terminal" in " ".join(done.stderr.split())
    assert not (hookline.folder / "published").exists()
    assert hookline.at_terminal("reject", "last", "not now").returncode == 0
    process.communicate()
    assert not (hookline.folder / "published").exists()


ASKS = """
from hookline import Agent, HookResult, Scripted, hook

@hook(match="kind:shell")
def ask_first(ctx, c):
    return HookResult.ask("goes to everybody")

script = [{"tools": [{"name": "bash", "arguments": {"command": "touch published"}}]}, "done"]
agent = Agent(id="asks", model=Scripted(script), tools=["bash"], on_tool_start=[ask_first])
"""


@pytest.mark.parametrize("command", ["$HOOKLINE", "env -i HOOKLINE_HOME=$HOOKLINE_HOME $HOOKLINE"])
def test_an_agent_that_starts_a_run_does_not_answer_its_questions(hookline, command):
    """By the pipe with which its tool starts the run; a script of the user's own may do that."""
    (hookline.folder / "asks.py").write_text(ASKS)
    hookline.environ["HOOKLINE"] = f"{sys.executable} -m hookline"
    line = f"echo a | {command} run asks.py x --ask terminal"
    script = [
        {"tools": [{"name": "bash", "arguments": {"command": f"{line} 2> said; echo $? > code"}}]},
        "done",
    ]
    (hookline.folder / "outer.py").write_text(
        f"from hookline import Agent, Scripted\nouter = Agent(id='outer', model=Scripted({script!r}), tools=['bash'])\n"
    )
    done = hookline("run", "outer.py", "x")
    said = (hookline.folder / "said").read_text()
    assert (hookline.folder / "code").read_text() == "0\n", said + done.stderr
    assert "called by an agent that it guards" in " ".join(said.split())
    assert not (hookline.folder / "published").exists()
    subprocess.run(["sh", "-c", line], cwd=hookline.folder, env=hookline.environ, check=True)
    assert (hookline.folder / "published").exists()


@pytest.mark.parametrize(("sign", "published"), [("", True), ("GEMINI_CLI=1", False)])
def test_an_agent_with_a_terminal_does_not_answer_the_questions_of_a_run(hookline, sign, published):
    (hookline.folder / "asks.py").write_text(ASKS)
    # What is typed comes from the other side of the terminal, which the leader of the session has open.
    done = led(hookline, "shell", "echo a >&3", f"{sign} $HOOKLINE run asks.py x")
    assert done.returncode == 0, done.stderr
    assert (hookline.folder / "published").exists() == published, done.stderr


def test_a_guarded_agent_deletes_no_record(hookline):
    hookline("run", "agent.py", "x")
    hookline.environ["GEMINI_CLI"] = "1"
    done = hookline("prune", "--days", "0")
    assert done.returncode == 2
    assert "hookline prune is not for an agent that hookline guards" in " ".join(done.stderr.split())
    del hookline.environ["GEMINI_CLI"]
    assert hookline("prune", "--days", "0").stdout == "1 run deleted\n"


def test_only_a_person_uninstalls(project):
    project("install", "claude-code")
    settings = project.folder / ".claude" / "settings.json"
    written = settings.read_text()
    assert project("uninstall", "claude-code").returncode == 2
    led(project, "agent", ANSWER, "env -i HOOKLINE_HOME=$PWD/else $HOOKLINE uninstall claude-code")
    assert settings.read_text() == written
    assert project.at_terminal("uninstall", "claude-code").returncode == 0
    assert not settings.exists()


def test_install_approves_nothing_where_no_person_is_and_says_how(project):
    said = " ".join(project("install", "claude-code").stdout.split())
    assert (
        f"hookline.yaml is not approved: stdin is not a terminal; in a terminal of your own: hookline trust {project.folder}"
        in said
    )
    assert not approved(project)
    approve(project.folder / "hookline.yaml", project.environ)
    assert "not approved" not in project("install", "claude-code").stdout


def test_an_agent_that_begins_anew_with_init_has_nothing_approved(project):
    (project.folder / "hookline.yaml").unlink()
    project.environ["CODEX_THREAD_ID"] = "t1"
    assert "hookline.yaml is not approved" in " ".join(project("init").stdout.split())
    assert not approved(project)


def test_init_in_place_of_a_file_that_was_approved_is_for_a_person(project):
    """A process that left its session, with its variables cleared, is known as nobody's."""
    file = project.folder / "hookline.yaml"
    approve(file, project.environ)
    file.unlink()
    assert "hookline.yaml is not approved" in " ".join(project("init").stdout.split())
    said = json.loads(project("answer", stdin=json.dumps({**EVENT, "cwd": str(project.folder)})).stdout)
    assert said["hookSpecificOutput"]["permissionDecision"] == "deny"
