"""Hook files attached to a run with `--hooks`: `hookline.yaml` and `.claude/settings.json`."""

import json
import os
import sys

import pytest

AGENT = """
from hookline import Agent, Scripted

def called(*commands):
    return {"tools": [{"name": "bash", "arguments": {"command": each}} for each in commands]}

agent = Agent(id="coder", tools=["bash"], model=Scripted([called("git push --force", "echo hi"), "done"]))
"""
GUARD = """
import json, sys
event = json.load(sys.stdin)
open("guarded", "a").write(event["tool_input"]["command"] + "\\n")
if "--force" in event["tool_input"]["command"]:
    print(json.dumps({"decision": "block", "reason": "no force"}))
"""


@pytest.fixture
def folder(hookline):
    (hookline.folder / "coder.py").write_text(AGENT)
    (hookline.folder / "guard.py").write_text(GUARD)
    return hookline.folder


def written(folder, text):
    (folder / "hookline.yaml").write_text(text.replace("PYTHON", sys.executable))


def test_a_command_hook_of_a_file_guards_the_built_in_agent(hookline, folder):
    written(
        folder,
        """
        hooks:
          - name: guard
            on: tool.start
            match: kind:shell
            command: [PYTHON, guard.py]
        """,
    )
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 0, done.stderr
    assert "blocked: no force" in done.stderr
    assert (folder / "guarded").read_text() == "git push --force\necho hi\n"


def test_a_script_reads_the_call_and_refuses_it_in_words(hookline, folder):
    (folder / "coder.py").write_text(
        AGENT.replace("git push --force", "touch made").replace("echo hi", "touch also")
    )
    written(
        folder,
        """
        hooks:
          - name: guard
            on: tool.start
            shell: |
              case $(cat) in *'"tool_input":{"command":"touch made"}'*) echo not that one >&2; exit 2;; esac
        """,
    )
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert not (folder / "made").exists()
    assert (folder / "also").exists()
    assert "blocked: not that one" in done.stderr


def test_when_starts_no_process_for_calls_that_do_not_concern_it(hookline, folder):
    written(
        folder,
        """
        hooks:
          - name: guard
            on: tool.start
            when: {input.command: {contains: push}}
            command: [PYTHON, guard.py]
        """,
    )
    hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert (folder / "guarded").read_text() == "git push --force\n"
    shown = hookline("runs", "last").stdout
    assert shown.count("start  guard") == 1, "it is not on record as one that let the other call through"
    explained = hookline("explain", "coder.py", "--hooks", "hookline.yaml").stdout
    assert """when {"input.command": {"contains": "push"}}""" in " ".join(explained.split())


def test_shell_and_python_hooks_of_a_file_run(hookline, folder):
    (folder / "mine.py").write_text(
        "from hookline import HookResult\ndef fails(ctx, c):\n    return HookResult.fail('python said no')\n"
    )
    written(
        folder,
        """
        hooks:
          - name: note
            on: [run.start, run.end]
            shell: echo "$HOOKLINE_POINT" >> noted
          - name: fails
            on: agent.end
            python: mine.py:fails
        """,
    )
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 1
    assert "python said no [hook fails at agent.end]" in done.stderr
    assert (folder / "noted").read_text() == "run.start\nrun.end\n"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (["command: ./nowhere"], "could not start"),
        (["shell: exit 3"], "exited with 3"),
        (["command: [PYTHON, -c, 'print(\"{\")']"], "broke: "),
        (["shell: sleep 60", "timeout: 0.3"], "ran past its limit of 0.3 s"),
        (["command: [PYTHON, missing.py]"], "missing.py"),
    ],
)
def test_a_guard_that_breaks_before_a_tool_blocks_it_and_says_so(hookline, folder, keys, said):
    lines = ["hooks:", "  - name: guard", "    on: tool.start", *(f"    {key}" for key in keys)]
    written(folder, "\n".join(lines))
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 0, done.stderr
    assert "broke: " in done.stderr
    assert said in " ".join(done.stderr.split())
    assert "so it blocked" in " ".join(done.stderr.split())


def test_a_file_with_a_mistake_is_told_whole_and_nothing_runs(hookline, folder):
    written(
        folder,
        """
        hooks:
          - name: one
            on: tool.strat
            shell: "true"
          - name: two
            on: tool.start
            comand: x
        """,
    )
    done = hookline("run", "coder.py", "x", "--hooks", "hookline.yaml")
    assert done.returncode == 2
    assert "hookline.yaml:4: hooks[0].on: unknown point 'tool.strat'; did you mean tool.start?" in done.stderr
    assert "hooks[1].comand: unknown key; did you mean command?" in done.stderr
    assert "nothing was run" in done.stderr
    checked = hookline("check", "hookline.yaml")
    assert checked.returncode == 2
    assert "hookline.yaml:4" in checked.stdout


def test_hooks_written_for_claude_code_run_around_the_built_in_agent(hookline, folder):
    (folder / ".claude").mkdir()
    hook = {"type": "command", "command": f"{sys.executable} guard.py"}
    wrong = {"type": "comand", "command": "x"}
    settings = {"hooks": {"PreToolUse": [{"matcher": "bash", "hooks": [hook, wrong]}]}}
    (folder / ".claude" / "settings.json").write_text(json.dumps(settings, indent=1))
    done = hookline("run", "coder.py", "x", "--hooks", ".claude/settings.json")
    assert done.returncode == 0, done.stderr
    assert "blocked: no force" in " ".join(done.stderr.split())
    assert "type is 'comand'; known: command, http" in done.stderr


def test_explain_and_try_know_the_hooks_of_a_file(hookline, folder):
    written(
        folder,
        """
        hooks:
          - name: guard
            on: tool.start
            command: [PYTHON, guard.py]
            timeout: 5s
        """,
    )
    shown = hookline("explain", "coder.py", "--hooks", "hookline.yaml").stdout
    assert "guard (command), limit 5 s, if it breaks: block" in shown
    event = ["--tool", "bash", "--input", '{"command": "git push --force"}']
    tried = hookline("try", "tool.start", "coder.py", "--hooks", "hookline.yaml", *event)
    assert tried.returncode == 1
    assert "block: no force" in tried.stdout


def asynchronous(folder, until="true", **events):
    """A settings file whose hooks are async: an event, and the commands that stand there.

    One hook is not: it keeps the run from ending before what is waited for has come.
    """
    groups = {
        event: [{"hooks": [{"type": "command", "command": each, "async": True} for each in commands]}]
        for event, commands in events.items()
    }
    waiting = {"type": "command", "command": f"until {until}; do sleep 0.05; done"}
    groups["Stop"] = [{"hooks": [waiting]}]
    (folder / "settings.json").write_text(json.dumps({"hooks": groups}, indent=1))


def is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_async_hook_refuses_nothing_and_is_on_record_with_its_end(hookline, folder):
    (folder / "slow.sh").write_text(f"{sys.executable} guard.py; echo >> ended")
    commands = ["sh slow.sh", "echo >> ended; exit 3"]
    asynchronous(folder, "[ -f ended ] && [ $(wc -l < ended) -ge 4 ]", PreToolUse=commands)
    done = hookline("run", "coder.py", "x", "--hooks", "settings.json")
    assert done.returncode == 0, done.stderr
    assert "blocked" not in done.stderr
    # Nobody waited, so the order is not known.
    assert sorted((folder / "guarded").read_text().splitlines()) == ["echo hi", "git push --force"]
    logged = " ".join(hookline("logs", "last").stdout.split())
    assert logged.count("sh slow.sh (async) at tool.start") == 2
    assert "sh slow.sh (async): said block, which does not count: no force" in logged
    assert "sh slow.sh (async): ended well" in logged
    assert (
        "exit 3 (async): broke: exited with 3; exit with 0 to have the answer read, with 2 to refuse (2 times)"
        in logged
    )
    # What ended well is on record, what did not is told too.
    told = " ".join(done.stderr.split()).partition("tells you: ")[2]
    assert "exited with 3" in told
    assert "ended well" not in told


def test_an_async_hook_that_goes_on_is_ended_with_the_run_and_nobody_waits_for_it(hookline, folder):
    asynchronous(folder, "[ -s begun ]", UserPromptSubmit=["echo $$ > begun; exec sleep 1000"])
    done = hookline("run", "coder.py", "x", "--hooks", "settings.json")
    assert done.returncode == 0, done.stderr
    assert not is_alive(int((folder / "begun").read_text()))
    assert "(async): was still running and was ended with the run" in " ".join(done.stderr.split())


def test_many_async_hooks_that_go_on_keep_no_place_from_the_others(hookline, folder):
    asynchronous(folder, UserPromptSubmit=[f"exec sleep {1000 + each}" for each in range(12)])
    written(folder, "hooks: [{name: guard, on: tool.start, command: [PYTHON, guard.py]}]")
    done = hookline("run", "coder.py", "x", "--hooks", "settings.json", "--hooks", "hookline.yaml")
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stderr.split())
    assert "blocked: no force" in said
    assert said.count("was never started: 4 others were running until the run ended") == 8


def test_explain_says_that_nobody_waits_for_an_async_hook(hookline, folder):
    asynchronous(folder, PreToolUse=["./log"])
    shown = " ".join(hookline("explain", "coder.py", "--hooks", "settings.json").stdout.split())
    assert (
        "PreToolUse: ./log (async) (command), no limit, if it breaks: continue,"
        " observe only: its verdict does not count" in shown
    )
    assert "run.end 1. the end of async hooks (settings.json)" in shown


def test_where_a_foreign_agent_asks_an_async_hook_is_waited_for_and_refuses_nothing(hookline, folder):
    asynchronous(folder, PreToolUse=[f"sleep 0.2; {sys.executable} guard.py"])
    event = {
        "session_id": "s",
        "transcript_path": "",
        "cwd": str(folder),
        "hook_event_name": "PreToolUse",
        "tool_name": "Bash",
        "tool_input": {"command": "git push --force"},
        "tool_use_id": "t",
    }
    done = hookline("answer", "--file", "settings.json", stdin=json.dumps(event))
    assert (done.returncode, done.stdout) == (0, "")
    assert (folder / "guarded").read_text() == "git push --force\n"
    assert "would have said block" in hookline("logs", "last").stdout


def test_explain_names_the_clients_that_cannot_withhold_an_output(hookline, folder):
    written(folder, "hooks: [{name: mask, on: [tool.end, agent.end], changes: output, shell: 'true'}]")
    shown = " ".join(hookline("explain", "coder.py", "--hooks", "hookline.yaml").stdout.split())
    assert shown.count("if it breaks: withhold") == 2
    assert "(claude, codex, gemini, qwen cannot replace this output; there it is only told)" in shown
    assert "(kagent, qwen cannot replace this output; there it is only told)" in shown
