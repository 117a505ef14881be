"""Hook files attached to a run with `--hooks`: `hookline.yaml` and `.claude/settings.json`."""

import json
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
