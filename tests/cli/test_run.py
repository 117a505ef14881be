import json
import os
import pty
import signal
import sys
import time

import pytest


def test_the_answer_goes_to_stdout_and_the_tree_to_stderr(hookline):
    done = hookline("run", "agent.py:agent", "tidy up")
    assert (done.returncode, done.stdout) == (0, "kept it\n")
    assert "no_rm" in done.stderr
    assert "blocked: nothing is deleted" in done.stderr
    assert "agent guarded  tidy up" in done.stderr


def test_each_hook_is_shown_with_its_time_under_its_scope(hookline):
    lines = hookline("run", "agent.py", "tidy up").stderr.splitlines()
    at = {name: next(i for i, line in enumerate(lines) if name in line) for name in ("tool bash", "no_rm")}
    indent = {name: len(lines[i]) - len(lines[i].lstrip()) for name, i in at.items()}
    assert at["no_rm"] == at["tool bash"] + 1
    assert indent["no_rm"] == indent["tool bash"] + 2
    assert " us" in lines[at["no_rm"]] or " ms" in lines[at["no_rm"]]


def test_a_tool_that_failed_is_shown_with_why(hookline):
    script = hookline.folder / "script.json"
    script.write_text(
        '[{"tools": [{"name": "bash", "arguments": {"command": "x", "timeout": "soon"}}]}, "done"]'
    )
    done = hookline("run", "agent.py", "tidy up", "--model", f"scripted/{script}")
    [line] = [line for line in done.stderr.splitlines() if "= bash failed" in line]
    assert "timeout" in line


def test_json_gives_every_record_as_a_line(hookline):
    done = hookline("run", "agent.py", "tidy up", "--json")
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert [r["scope"] for r in records if r["record"] == "begun"][:3] == ["run", "session", "agent"]
    assert records[-1]["record"] == "result"
    assert records[-1]["result"] == "kept it"
    assert [r["action"] for r in records if r["record"] == "called" and r["hook"] == "no_rm"] == ["block"]


@pytest.mark.parametrize(
    ("asked", "code", "said"),
    [
        ("bad", 1, "error: bad input [hook stop_if_bad at agent.start]"),
        ("no", 1, "error: not this one"),
        ("nothing", 0, ""),
    ],
)
def test_exit_codes_tell_failed_and_refused_from_skipped(hookline, asked, code, said):
    done = hookline("run", "agent.py", asked)
    assert done.returncode == code
    assert said in done.stderr


def test_a_skipped_run_says_why(hookline):
    assert hookline("run", "agent.py", "nothing").stdout == "skipped: nothing to do\n"


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("missing.py", "missing.py: there is no such file"),
        ("agent.py:agnet", "there is no agent 'agnet'; agents here: agent"),
        ("agent.py:no_rm", "no_rm is function, not an Agent; agents here: agent"),
        ("nowhere.module:agent", "there is no such file, and no module of that name"),
        ("notes.txt", "this format is not known"),
        ("empty.py", "there is no agent in it"),
        ("two.py", "several agents are in it: one, two; name one"),
        ("broken.py", "broken.py:3: does not import: ZeroDivisionError"),
        ("syntax.py", "syntax.py:1: does not import"),
        ("badhook.py", "must have exactly 2 parameters"),
        ("badmatch.py", "is not a valid pattern"),
        ("exits.py", "exits.py:2: does not import: SystemExit"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_by_name_and_line(hookline, target, said):
    files = {
        "notes.txt": "hello",
        "empty.py": "x = 1\n",
        "two.py": "from hookline import Agent\none = Agent(id='one')\ntwo = Agent(id='two')\n",
        "broken.py": "x = 1\n\ny = 1 / 0\n",
        "syntax.py": "def f(:\n",
        "badhook.py": "from hookline import hook\n@hook\ndef f(ctx): ...\n",
        "badmatch.py": (
            "from hookline import Agent, hook\n@hook(match='(')\ndef f(a, b): ...\n"
            "a = Agent(id='a', on_tool_start=[f])\n"
        ),
        "exits.py": "import sys\nsys.exit(0)\n",
    }
    for name, text in files.items():
        (hookline.folder / name).write_text(text)
    done = hookline("run", target, "x")
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_input_is_told(hookline):
    done = hookline("run", "agent.py")
    assert done.returncode == 2
    assert "INPUT is missing" in done.stderr


def test_the_input_can_come_from_stdin(hookline):
    done = hookline("run", "agent.py", "-", stdin="bad")
    assert done.returncode == 1


def test_a_module_by_name_and_a_module_beside_the_file_are_found(hookline):
    (hookline.folder / "beside.py").write_text("WORD = 'from beside'\n")
    (hookline.folder / "uses.py").write_text(
        "from beside import WORD\nfrom hookline import Agent, Scripted\n"
        "mine = Agent(id='mine', model=Scripted([WORD]))\n"
    )
    assert hookline("run", "uses.py", "x", "-q").stdout == "from beside\n"
    assert hookline("run", "uses:mine", "x", "-q").stdout == "from beside\n"


def test_another_model_can_be_given(hookline):
    (hookline.folder / "script.yaml").write_text("- from the script\n")
    done = hookline("run", "agent.py", "x", "--model", "scripted/script.yaml", "-q")
    assert done.stdout == "from the script\n", done.stderr


def test_hooks_of_another_file_are_added_and_hold_first(hookline):
    (hookline.folder / "more.py").write_text(
        "from hookline import HookResult, hook\n"
        "@hook(on='agent.start')\ndef early(ctx, c):\n    return HookResult.fail('stopped early')\n"
    )
    done = hookline("run", "agent.py", "x", "--hooks", "more.py")
    assert done.returncode == 1
    assert "stopped early [hook early at agent.start]" in done.stderr
    assert " log " not in done.stderr, "no hook of the agent, whatever the random name of the run"


def test_a_hook_file_without_hooks_is_told(hookline):
    (hookline.folder / "none.py").write_text("x = 1\n")
    done = hookline("run", "agent.py", "x", "--hooks", "none.py")
    assert done.returncode == 2
    assert "there is no hook with points in it" in done.stderr


def test_env_and_env_file_are_set_before_the_file_is_loaded(hookline):
    (hookline.folder / "reads.py").write_text(
        "import os\nfrom hookline import Agent, Scripted\n"
        "a = Agent(id='a', model=Scripted([os.environ['ONE'] + os.environ['TWO']]))\n"
    )
    (hookline.folder / "vars").write_text("# a comment\nexport ONE='1'\n")
    assert hookline("run", "reads.py", "x", "-q", "--env-file", "vars", "--env", "TWO=2").stdout == "12\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (["--env", "NOVALUE"], "--env 'NOVALUE' is not NAME=VALUE"),
        (["--env-file", "bad"], "bad:2: 'what is this' is not NAME=VALUE"),
        (["--env-file", "nofile"], "nofile: No such file"),
        (["--ask", "mother"], "--ask is 'mother'; known: terminal, journal, refuse"),
        (["--model", "opnai/gpt"], "openai"),
    ],
)
def test_a_wrong_option_is_told(hookline, option, said):
    (hookline.folder / "bad").write_text("A=1\nwhat is this\n")
    done = hookline("run", "agent.py", "x", *option)
    assert done.returncode == 2
    assert said in done.stderr


def test_a_secret_of_the_environment_is_shown_nowhere(hookline):
    hookline.environ["DEPLOY_TOKEN"] = "s3cr3t-value-xyz"
    done = hookline("run", "agent.py", "the token is s3cr3t-value-xyz")
    shown = hookline("runs", "last")
    stored = b"".join(path.read_bytes() for path in (hookline.folder / "home").iterdir())
    assert "s3cr3t-value-xyz" not in done.stderr + shown.stdout
    assert b"s3cr3t-value-xyz" not in stored


SLOW = """
import asyncio, sys
from pathlib import Path
from hookline import Agent, HookResult, Scripted, hook, tool

def said(text):
    with open("said", "a") as file:
        file.write(text + "\\n")

@tool
async def wait() -> str:
    said("waiting")
    await asyncio.Event().wait()

@hook
async def ending(ctx, c):
    said(f"{c.point} {c.status}")
    return HookResult.continue_with()

@hook
async def stubborn(ctx, c):
    said("stubborn")
    await asyncio.Event().wait()

parts = dict(model=Scripted([{"tools": [{"name": "wait", "arguments": {}}]}]), tools=[wait])
quick = Agent(id="quick", on_tool_end=[ending], on_end=[ending], on_run_end=[ending], **parts)
slow = Agent(id="slow", on_run_end=[stubborn], **parts)
"""


def _started(hookline, name, word):
    (hookline.folder / "slow.py").write_text(SLOW)
    process = hookline.start("run", f"slow.py:{name}", "x")
    _until(hookline, process, word)
    return process


def _until(hookline, process, word):
    said = hookline.folder / "said"
    while not (said.exists() and word in said.read_text()):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_lets_end_hooks_run_and_exits_130(hookline, number):
    process = _started(hookline, "quick", "waiting")
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 130
    assert "interrupted: end hooks are running" in err
    assert (hookline.folder / "said").read_text().split("\n")[1:4] == [
        "tool.end cancelled",
        "agent.end cancelled",
        "run.end cancelled",
    ]


def test_a_second_interrupt_ends_the_end_hooks_too(hookline):
    process = _started(hookline, "slow", "waiting")
    process.send_signal(signal.SIGINT)
    _until(hookline, process, "stubborn")
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    shown = hookline("runs", "last").stdout
    assert "its end hooks were interrupted" in shown


ASKS = """
from hookline import Agent, HookResult, Scripted, hook, tool

@tool
def publish(version: str) -> str:
    return f"published {version}"

@hook(match="publish")
def ask_first(ctx, c):
    return HookResult.ask("goes to everybody")

script = [{"tools": [{"name": "publish", "arguments": {"version": "1"}}]}, lambda request: request.messages[-1]["content"]]
agent = Agent(id="asks", model=Scripted(script), tools=[publish], on_tool_start=[ask_first])
"""


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["approve", "last"], "published 1"),
        (["reject", "last", "not on my watch"], "Error: refused: not on my watch"),
        (["rewrite", "last", '{"version": "2"}'], "published 2"),
    ],
)
def test_another_terminal_answers_a_question(hookline, screen, words, answer):
    (hookline.folder / "asks.py").write_text(ASKS)
    process = hookline.start("run", "asks.py", "x", "--ask", "journal", "--code-to", screen.name)
    code = screen.code()
    while " waiting" not in hookline("runs").stdout:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.1)
    half = hookline.at_terminal("rewrite", "last", '{"version": "9"')
    assert (half.returncode, "this is not JSON" in half.stderr) == (2, True)
    said = hookline.at_terminal(*words, typed=code)
    out, err = process.communicate()
    assert said.returncode == 0, said.stderr
    assert (process.returncode, out) == (0, f"{answer}\n"), err


def test_where_nobody_can_answer_it_is_a_refusal(hookline):
    (hookline.folder / "asks.py").write_text(ASKS)
    done = hookline("run", "asks.py", "x")
    assert "nobody is there to answer" in done.stdout


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("a\n", "published 1"),
        ("x\nr\nnot now\n", "refused: not now"),
        ('w\n{"version": "3"}\n', "published 3"),
        ('w\n{"version": "4"\nw\n{"version": "5"}\n', "published 5"),
    ],
)
def test_a_question_is_asked_at_the_terminal(hookline, typed, answer):
    (hookline.folder / "asks.py").write_text(ASKS)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(hookline.folder)
        os.execve(sys.executable, [sys.executable, "-m", "hookline", "run", "asks.py", "x"], hookline.environ)
    shown = _read_until(terminal, "[a/r/w]")
    os.write(terminal, typed.encode())
    shown += _read_until(terminal, None)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert "ask_first: goes to everybody" in shown
    assert answer in shown.splitlines()[-1]


def _read_until(terminal, word):
    text = ""
    while word is None or word not in text:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other side is closed
            return text
        text += piece.decode()
    return text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("agent.py", "go", "--secrets", "s.env"),
            "--secrets: only for an AgentRun manifest; the file is an agent",
        ),
        (("agent.py", "go", "--issue", "A-1"), "--issue: only for a WORKFLOW.md"),
        (("WORKFLOW.md", "--issue", "A-1", "--tools", "bash"), "--tools: only for an agent in Python"),
        (("WORKFLOW.md", "--persona", "x", "--name", "y"), "--persona, --name: only for an AgentRun"),
        ((), "FILE is missing"),
    ],
)
def test_an_option_that_means_nothing_for_a_file_is_refused_and_not_ignored(
    hookline, tmp_path, arguments, said
):
    (tmp_path / "WORKFLOW.md").write_text("")
    done = hookline("run", *arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())


RUN = "apiVersion: sympozium.ai/v1alpha1\nkind: AgentRun\nmetadata: {name: a}\nspec: {agentRef: o, task: x}\n"
FLOW = """---
tracker: {{kind: folder}}
workspace: {{root: ws}}
agent: {{kind: builtin, model: {model}, max_turns: 1}}
hooks: {{after_run: echo $SYMPHONY_OUTCOME > ../../outcome}}
---
do it
"""


@pytest.mark.parametrize(
    "words", [("run.yaml", "--on", "local", "--model", "MODEL"), ("WORKFLOW.md", "--issue", "A-1")]
)
def test_a_run_of_another_system_that_ends_at_its_limit_of_steps_says_so_and_fails(hookline, tmp_path, words):
    turn = {"tools": [{"name": "bash", "arguments": {"command": "true"}}]}
    (tmp_path / "script.json").write_text(json.dumps([turn] * 30))
    model = f"scripted/{tmp_path / 'script.json'}"
    (tmp_path / "run.yaml").write_text(RUN)
    (tmp_path / "WORKFLOW.md").write_text(FLOW.format(model=model))
    (tmp_path / "issues").mkdir()
    (tmp_path / "issues" / "A-1.md").write_text("---\ntitle: x\nstate: Todo\n---\n")
    done = hookline("run", *(model if word == "MODEL" else word for word in words))
    assert (done.returncode, done.stdout) == (1, "")
    assert "error: ended at its limit of 20 steps, without an answer" in " ".join(done.stderr.split())
    rows = [json.loads(line) for line in hookline("runs", "--json").stdout.splitlines()]
    assert {row["status"] for row in rows if row["ended"]} == {"failed"}
    if words[0] == "WORKFLOW.md":
        assert (tmp_path / "outcome").read_text() == "failed\n"
