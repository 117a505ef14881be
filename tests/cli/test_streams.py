"""Standard streams: what a program prints inside a run, and streams and folders that are not there."""

import json
import subprocess
import sys

import pytest

from hookline.cli.app import COMMANDS
from hookline.symphony.serve import LastLines, _picture
from tests import forks
from tests.command import approve

PRINTS = """
import os, subprocess
from hookline import Agent, HookResult, Scripted, hook, tool

def say():
    print("PRINTED")
    os.write(1, b"RAW\\n")
    subprocess.run(["echo", "CHILD"], check=True)

@hook
def talks(ctx, hook_context):
    say()
    return HookResult.continue_with()

@tool
async def shout() -> str:
    say()
    return "said"

@hook
def cleans(ctx, hook_context):
    open("cleaned", "w").close()
    return HookResult.continue_with()

agent = Agent(
    id="talker",
    model=Scripted([{"tools": [{"name": "shout", "arguments": {}}]}, "the answer"]),
    tools=[shout],
    on_start=[talks],
    on_end=[cleans],
)
"""


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_what_hooks_and_tools_print_is_not_in_the_output(hookline, tmp_path, words):
    (tmp_path / "talker.py").write_text(PRINTS)
    done = hookline("run", *words, "talker.py", "go")
    assert done.returncode == 0, done.stderr
    if words:
        last = [json.loads(line) for line in done.stdout.splitlines()][-1]
        assert (last["record"], "the answer" in last.values()) == ("result", True)
    else:
        assert done.stdout == "the answer\n"
    for word in ("PRINTED", "RAW", "CHILD"):
        assert done.stderr.count(word) == 2


def test_what_a_python_hook_prints_is_not_in_the_answer_to_a_client(hookline, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from hookline import HookResult\n"
        "def no(ctx, hook_context):\n    print('{\"decision\"')\n    return HookResult.block('not this')\n"
    )
    file = tmp_path / "hookline.yaml"
    file.write_text("hooks:\n  - {name: no, on: tool.start, python: 'mine.py:no'}\n")
    approve(file, hookline.environ)
    for _ in range(2):  # the second one by the short way
        done = hookline("answer", stdin=json.dumps({**EVENT, "cwd": str(tmp_path)}))
        assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
        assert done.stderr == '{"decision"\n'


def test_a_run_whose_reader_has_gone_runs_to_its_end(hookline, tmp_path):
    (tmp_path / "talker.py").write_text(PRINTS)
    program = hookline.start("run", "--json", "talker.py", "go")
    program.stdout.close()
    told = program.stderr.read()
    program.stderr.close()
    assert (program.wait(), "Traceback" in told) == (0, False)
    assert (tmp_path / "cleaned").exists()


EVENT = {
    "hook_event_name": "PreToolUse",
    "tool_name": "Bash",
    "tool_input": {"command": "ls"},
    "session_id": "s",
}
CALLS = {
    "run": ("agent.py", "-"),
    "check": ("agent.py",),
    "explain": ("agent.py",),
    "try": ("agent.start", "agent.py"),
    "logs": ("last",),
    "approve": ("last",),
    "reject": ("last",),
    "rewrite": ("last", "x"),
    "operator manifest": ("--image", "x"),
    "install": ("claude-code",),
    "uninstall": ("claude-code",),
    "workspace rm": ("x",),
}
LONG_RUNNING = {"operator": ("--help",)}
WAYS = {
    "closed stdin": {"streams": {"stdin": None}},
    "closed stdout": {"streams": {"stdout": None}},
    "full stdout": {"streams": {"stdout": "/dev/full"}},
    "closed stderr": {"streams": {"stderr": None}},
    "all closed": {"streams": dict.fromkeys(forks.STREAMS)},
    "deleted folder": {"deleted": True},
}


@pytest.mark.parametrize("way", WAYS)
def test_no_command_ends_in_a_traceback_for_want_of_a_stream_or_a_folder(hookline, tmp_path, way):
    hookline("run", "agent.py", "x")
    for name in COMMANDS:
        words = (*name.split(), *CALLS.get(name, ()), *LONG_RUNNING.get(name, ()))
        folder = tmp_path
        if WAYS[way].get("deleted"):
            folder = tmp_path / "gone"
            folder.mkdir()
            words = tuple(str(tmp_path / word) if word == "agent.py" else word for word in words)
        done = forks.run(words, cwd=folder, env=hookline.environ, **WAYS[way])
        assert (done.returncode in (0, 1, 2), "Traceback" in done.stderr) == (True, False), (words, done)
        if way in ("closed stdout", "full stdout"):
            assert done.stderr.startswith("error: ") or "\nerror: " in done.stderr, words
            assert done.returncode, words


@pytest.mark.parametrize("stream", [None, "/dev/full"])
def test_an_answer_that_cannot_be_written_is_a_refusal(hookline, tmp_path, stream):
    file = tmp_path / "hookline.yaml"
    file.write_text(
        "hooks:\n  - {name: no, on: tool.start, command: [sh, -c, 'echo not this >&2; exit 2']}\n"
    )
    approve(file, hookline.environ)
    event = json.dumps({**EVENT, "cwd": str(tmp_path)})
    done = forks.run(["answer"], cwd=tmp_path, env=hookline.environ, stdin=event, streams={"stdout": stream})
    assert done.returncode == 2
    assert "standard output cannot be written" in done.stderr
    assert "not this" in done.stderr


def test_a_program_with_closed_streams_keeps_its_journal_whole(hookline, tmp_path):
    """In an interpreter of its own: the first file that it opens must not become its standard output."""
    (tmp_path / "talker.py").write_text(PRINTS)
    script = f"exec {sys.executable} -m hookline run talker.py go <&- >&- 2>&-"
    code = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=hookline.environ, check=False).returncode
    assert (code, (tmp_path / "cleaned").exists()) == (1, True)
    assert "talker" in hookline("runs").stdout


def test_the_picture_of_a_service_shows_texts_as_they_are(capsys):
    told = "[red]fixed[/red] the :bug: in it"
    state = {key: [] for key in ("running", "blocked", "retrying")} | {
        "counts": dict.fromkeys(("running", "retrying", "blocked"), 0),
        "finished": [{"issue_identifier": ":bug:-1", "outcome": "failed", "error": told, "seconds": 1}],
        "configuration_error": None,
    }
    with _picture(LastLines(), "WORKFLOW.md") as show:
        show(state)
    assert told in capsys.readouterr().err
