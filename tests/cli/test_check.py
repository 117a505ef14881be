import json
import sys

import pytest


def test_explain_says_which_hooks_run_where_in_which_order(hookline):
    shown = hookline("explain", "agent.py").stdout
    order = [line for line in shown.splitlines() if line.startswith("  ") and ". " in line[:6]]
    assert [line.split()[1] for line in order] == ["log", "stop_if_bad", "log", "no_rm"]
    assert "no_rm (python), for bash, limit 60 s, if it breaks: fail" in shown
    assert "agent.py:8" in shown
    assert "Streamed text is held back" in shown


def test_explain_as_json_has_the_whole_declaration(hookline):
    found = json.loads(hookline("explain", "agent.py", "--json").stdout)
    assert found["declaration"]["agent"]["tools"] == ["bash"]
    assert [(row["point"], row["name"]) for row in found["hooks"]] == [
        ("agent.start", "log"),
        ("agent.start", "stop_if_bad"),
        ("agent.end", "log"),
        ("tool.start", "no_rm"),
    ]


@pytest.mark.parametrize(
    ("command", "code", "said"),
    [("rm -rf /", 1, "= block: nothing is deleted"), ("ls", 0, "= goes on unchanged")],
)
def test_try_says_what_the_hooks_would_decide(hookline, command, code, said):
    done = hookline(
        "try", "tool.start", "agent.py", "--tool", "bash", "--input", json.dumps({"command": command})
    )
    assert done.returncode == code
    assert said in done.stdout


def test_try_takes_plain_text_as_an_agents_input(hookline):
    assert hookline("try", "agent.start", "agent.py", "--input", "bad").returncode == 1
    assert hookline("try", "agent.start", "agent.py", "--input", "fine").returncode == 0


def test_try_from_a_past_run_replays_its_events(hookline):
    hookline("run", "agent.py", "x")
    text = (hookline.folder / "agent.py").read_text()
    (hookline.folder / "agent.py").write_text(text.replace('"rm "', '"nothing of the kind"'))
    done = hookline("try", "tool.start", "agent.py", "--from", "last")
    assert done.returncode == 0
    assert "tool.start bash" in done.stdout
    assert "goes on unchanged" in done.stdout
    everything = hookline("try", "all", "agent.py", "--from", "last", "--json")
    points = [json.loads(line)["point"] for line in everything.stdout.splitlines()]
    assert points[:3] == ["run.start", "session.start", "agent.start"]
    assert points[-1] == "run.end"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tool.strat", "agent.py"], "unknown point 'tool.strat'; did you mean tool.start?"),
        (["tool.start", "agent.py"], "--tool is missing; tools of guarded: bash"),
        (["tool.start", "agent.py", "--tool", "bash", "--input", "{no"], "this is not JSON"),
        (["all", "agent.py"], "`all` needs --from RUN"),
        (["tool.end", "agent.py", "--tool", "bash", "--status", "fine"], "--status is 'fine'; known: ok"),
        (["tool.start", "agent.py", "--from", "zzz"], "there is no run 'zzz'"),
    ],
)
def test_a_wrong_try_is_told(hookline, words, said):
    done = hookline("try", *words)
    assert done.returncode == 2
    assert said in done.stderr


def test_check_finds_nothing_wrong_with_a_good_file(hookline):
    done = hookline("check", "agent.py")
    assert (done.returncode, done.stdout) == (0, "agent.py: no problems\n")


def test_check_lists_every_mistake_with_its_place(hookline):
    (hookline.folder / "off.py").write_text(
        "from hookline import Agent, HookResult, hook\n"
        "@hook(match='bsh')\ndef guard(a, b): ...\n"
        "@hook(observe=True)\ndef watcher(a, b): ...\n"
        "agent = Agent(id='a', provider='opnai', model='x', tools=['bash'], on_tool_start=[guard, watcher])\n"
    )
    done = hookline("check", "off.py", "missing.py", "agent.py")
    assert done.returncode == 2
    assert "off.py:2: hook guard: match 'bsh' fits no tool of a; its tools: bash" in done.stdout
    assert "off.py:4: hook watcher: its mode is observe, so it refuses nothing" in done.stdout
    assert "openai" in done.stdout
    assert "missing.py: there is no such file" in done.stdout
    assert "4 problems" in done.stdout
    assert len(json.loads(hookline("check", "off.py", "--json").stdout)["problems"]) == 3


@pytest.mark.parametrize(("script", "code"), [("guard.py", 0), ("gone.py", 2)])
def test_check_looks_for_a_command_in_the_project_that_claude_code_fills_in(hookline, script, code):
    (hookline.folder / "guard.py").write_text("print()\n")
    entry = {"type": "command", "command": sys.executable, "args": [f"${{CLAUDE_PROJECT_DIR}}/{script}"]}
    settings = hookline.folder / "settings.json"
    settings.write_text(json.dumps({"hooks": {"PreToolUse": [{"hooks": [entry]}]}}))
    done = hookline("check", "settings.json")
    assert (done.returncode, "it could not start" in done.stdout) == (code, code == 2), done.stdout
