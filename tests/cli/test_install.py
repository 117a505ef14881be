"""`hookline init`, `install claude-code` and `uninstall`: the user's settings keep every byte that is theirs."""

import json
import os
import stat
import subprocess

import pytest

from hookline.claude import settings
from hookline.claude.events import CALLERS
from hookline.hookfile import read as native

EVENTS = [event for event, point in CALLERS["claude"].items() if point]
STUB = """#!/bin/sh
case "$(cat)" in *hookline.yaml*) exit 2;; esac
"""
PUSH = {"hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Bash", "tool_use_id": "t"}

THEIRS = """\
{
    "zebra": {"b": 1,   "a": [1,2]},
    "hooks": {
        "PreToolUse": [
            {"matcher": "Write", "hooks": [{"type": "command", "command": "lint"}]}
        ],
        "Notification": [
            {
                "hooks": [
                    {"type": "command", "command": "bell"}
                ]
            }
        ]
    },
    "alpha": "\\u00e9 {[,:]} \\"hooks\\": "
}"""
FILES = {
    "theirs": THEIRS,
    "no hooks": '{\n  "model": "opus"\n}\n',
    "tabs": '{\n\t"model": "opus",\n\t"env": {}\n}\n',
    "windows": '{\r\n  "model": "opus"\r\n}\r\n',
    "mark": '\ufeff{\n  "hooks": {\n    "Stop": []\n  }\n}\n',
    "one line": '{"model": "opus", "hooks": {"Stop": [], "PreToolUse": [{"hooks": []}]}}',
    "tight": '{"model":"opus"}',
    "empty": "{}",
    "empty, open": "{\n}\n",
    "empty, with space": "{ }\n",
    "empty hooks": '{\n  "hooks": {}\n}\n',
    "empty hooks, open": '{\n  "hooks": {\n  }\n}\n',
    "empty lists": '{\n  "hooks": {\n    "Stop": [],\n    "PreToolUse": [\n    ]\n  }\n}\n',
    "only ours to come, inside one group": '{"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"}]}]}}',
}
AMBIGUOUS = {
    "mark",
    "one line",
    "empty hooks",
    "empty hooks, open",
    "empty lists",
    "empty, open",
    "empty, with space",
}


@pytest.fixture
def project(hookline):
    """A folder, a home, and on the PATH a program in the place of hookline that refuses writes to the hook file, for it starts quickly."""
    program = hookline.folder / "bin" / "hookline"
    program.parent.mkdir()
    program.write_text(STUB)
    program.chmod(0o755)
    hookline.environ["PATH"] = f"{program.parent}:/usr/bin:/bin"
    hookline.environ["HOME"] = str(hookline.folder / "user")
    for name in ("XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "QWEN_HOME"):
        hookline.environ.pop(name, None)
    return hookline.folder


def place(project, text=None, name="settings.json"):
    file = project / ".claude" / name
    if text is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(text.encode())
    return file


def commands(file, event):
    groups = json.loads(file.read_text("utf-8-sig"))["hooks"][event]
    return [handler["command"] for group in groups for handler in group["hooks"]]


def well(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_init_writes_a_file_that_loads_and_blocks_a_force_push(hookline, project):
    said = well(hookline("init"))
    assert "wrote hookline.yaml" in said
    assert "no-force-push at tool.start for kind:shell runs hookline.guards:no_force_push" in said
    found = native.read(project / "hookline.yaml")
    assert not found.problems
    assert [(hook.name, hook.match) for hook in found.hooks] == [
        ("no-force-push", "kind:shell"),
        ("protect-hookline", None),
    ]
    event = {**PUSH, "cwd": str(project), "tool_input": {"command": "git push --force"}}
    done = hookline("answer", stdin=json.dumps(event))
    specific = json.loads(done.stdout)["hookSpecificOutput"]
    assert specific["permissionDecision"] == "deny"
    assert "not approved" not in specific["permissionDecisionReason"]
    event["tool_input"] = {"command": "git status"}
    assert hookline("answer", stdin=json.dumps(event)).stdout == ""


@pytest.mark.parametrize("way", ["", "1"])
def test_what_init_writes_asks_before_the_agent_changes_it(hookline, project, way):
    well(hookline("init"))
    hookline.environ["HOOKLINE_ANSWER_LONG"] = way
    event = {**PUSH, "cwd": str(project), "tool_name": "Write"}
    for path, decision in (("hookline.yaml", "ask"), (".claude/settings.json", "ask"), ("a.txt", None)):
        event["tool_input"] = {"file_path": path, "content": "x"}
        said = hookline("answer", stdin=json.dumps(event)).stdout
        specific = json.loads(said)["hookSpecificOutput"] if said else {}
        assert specific.get("permissionDecision") == decision
    refused = hookline(
        "answer",
        stdin=json.dumps(
            {**event, "permission_mode": "bypassPermissions", "tool_input": {"file_path": "hookline.yaml"}}
        ),
    )
    assert json.loads(refused.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_the_example_that_init_leaves_as_a_comment_loads_as_well(hookline, project):
    well(hookline("init"))
    lines = (project / "hookline.yaml").read_text().splitlines(keepends=True)
    start = next(index for index, line in enumerate(lines) if line.startswith("  # - name:"))
    found = native.parse(
        "".join([*lines[:start], *(line.replace("  # ", "  ", 1) for line in lines[start:])])
    )
    assert not found.problems
    assert [hook.kind for hook in found.hooks] == ["python", "python", "shell"]


def test_init_overwrites_nothing(hookline, project):
    (project / "hookline.yaml").write_text("mine")
    done = hookline("init")
    assert done.returncode == 2
    assert "hookline.yaml: exists already" in done.stderr
    assert (project / "hookline.yaml").read_text() == "mine"


def test_init_takes_another_name_but_only_one_that_is_known_as_a_hook_file(hookline, project):
    well(hookline("init", "more.yaml"))
    assert (project / "more.yaml").is_file()
    assert hookline("init", "more.txt").returncode == 2
    assert not (project / "more.txt").exists()
    assert hookline("init", "gone/hookline.yaml").returncode == 2


def test_install_makes_claude_code_ask_hookline_at_each_event(hookline, project):
    said = well(hookline("install", "claude-code"))
    file = place(project)
    for event in EVENTS:
        (command,) = commands(file, event)
        assert f"hookline answer {event}" in command
        assert event in said
    assert str(file) in said
    declared = settings.declared(file.read_text(), file)
    assert not declared.problems
    assert not declared.notes


def test_the_installed_command_answers(hookline, project):
    well(hookline("init"))
    well(hookline("install", "claude-code", "--local"))
    event = {**PUSH, "cwd": str(project), "tool_input": {"command": "git push -f"}}
    done = subprocess.run(
        commands(place(project, name="settings.local.json"), "PreToolUse")[0],
        shell=True,
        cwd=project,
        env=hookline.environ,
        input=json.dumps(event),
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"


def test_the_installed_command_does_not_import_what_lies_in_the_folder(hookline, project):
    well(hookline("init"))
    well(hookline("install", "claude-code", "--local"))
    for name in ("typing.py", "hookline.py"):
        (project / name).write_text("open('ran', 'w')")
    done = subprocess.run(
        commands(place(project, name="settings.local.json"), "PreToolUse")[0],
        shell=True,
        cwd=project,
        env=hookline.environ,
        input=json.dumps({**PUSH, "cwd": str(project), "tool_input": {"command": "ls"}}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not (project / "ran").exists()
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_install_adds_and_uninstall_gives_every_byte_back(hookline, project, text):
    file = place(project, text)
    well(hookline("install", "claude-code"))
    after = json.loads(file.read_text("utf-8-sig"))
    before = json.loads(text.removeprefix("\ufeff"))
    for event in EVENTS:
        assert f"hookline answer {event}" in commands(file, event)[-1]
        assert after["hooks"][event][:-1] == before.get("hooks", {}).get(event, [])
    assert [key for key in after if key in before] == list(before)
    assert {key: value for key, value in after.items() if key != "hooks"} == {
        key: value for key, value in before.items() if key != "hooks"
    }
    once = file.read_bytes()
    assert "already" in well(hookline("install", "claude-code"))
    assert file.read_bytes() == once, "twice is once"
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert file.read_bytes() == text.encode()


@pytest.mark.parametrize("name", [name for name in FILES if name not in AMBIGUOUS])
def test_uninstall_gives_the_bytes_back_also_where_nobody_remembers_the_install(hookline, project, name):
    file = place(project, FILES[name])
    well(hookline("install", "claude-code"))
    (project / "home" / "installed.json").unlink()
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert file.read_bytes() == FILES[name].encode()


def test_new_lines_follow_the_manner_of_the_file(hookline, project):
    file = place(project, FILES["tabs"])
    well(hookline("install", "claude-code"))
    assert '\n\t"hooks": {\n\t\t"PreToolUse": [\n\t\t\t{\n' in file.read_text()
    file = place(project, FILES["windows"])
    well(hookline("install", "claude-code"))
    assert file.read_bytes().count(b"\n") == file.read_bytes().count(b"\r\n") > 6
    file = place(project, FILES["tight"])
    well(hookline("install", "claude-code"))
    assert "\n" not in file.read_text()
    file = place(project, THEIRS)
    well(hookline("install", "claude-code"))
    lines = iter(line.removesuffix(",") for line in file.read_text().splitlines())
    assert all(line.removesuffix(",") in lines for line in THEIRS.splitlines()), "each line, in its order"
    assert '    "hooks": {\n        "PreToolUse": [\n            {"matcher"' in file.read_text()


def test_uninstall_keeps_what_was_changed_since(hookline, project):
    file = place(project, THEIRS)
    well(hookline("install", "claude-code"))
    value = json.loads(file.read_text())
    value["hooks"]["Stop"][0]["hooks"].insert(0, {"type": "command", "command": "mine first"})
    value["hooks"]["Stop"][0]["hooks"].append(
        {"type": "command", "command": "hookline answer Stop --file x.yaml"}
    )
    value["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": "mine last"}]})
    value["new"] = True
    file.write_text(json.dumps(value, indent=1))
    well(hookline.at_terminal("uninstall", "claude-code"))
    left = json.loads(file.read_text())
    expected = json.loads(THEIRS)
    expected["new"] = True
    expected["hooks"]["PreToolUse"].append({"hooks": [{"type": "command", "command": "mine last"}]})
    expected["hooks"]["Stop"] = [
        {
            "hooks": [
                {"type": "command", "command": "mine first"},
                {"type": "command", "command": "hookline answer Stop --file x.yaml"},
            ]
        }
    ]
    assert left == expected
    assert file.read_text() == json.dumps(expected, indent=1)


def test_what_was_taken_out_by_hand_is_put_back_and_all_of_it_goes_again(hookline, project):
    file = place(project, THEIRS)
    well(hookline("install", "claude-code"))
    value = json.loads(file.read_text())
    del value["hooks"]["Stop"]
    file.write_text(json.dumps(value, indent=2))
    said = json.loads(well(hookline("install", "claude-code", "--json")))
    assert list(said["added"]) == ["Stop"]
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert json.loads(file.read_text()) == json.loads(THEIRS)


def test_a_file_that_install_made_goes_and_its_folder_with_it(hookline, project):
    well(hookline("install", "claude-code"))
    said = well(hookline.at_terminal("uninstall", "claude-code"))
    assert "removed" in said
    assert not (project / ".claude").exists()


def test_a_file_that_install_made_stays_when_something_else_is_in_it(hookline, project):
    well(hookline("install", "claude-code"))
    file = place(project)
    file.write_text(json.dumps({**json.loads(file.read_text()), "model": "opus"}))
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert json.loads(file.read_text()) == {"model": "opus"}


def test_a_folder_with_something_in_it_stays(hookline, project):
    well(hookline("install", "claude-code"))
    (project / ".claude" / "agents.md").write_text("mine")
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert os.listdir(project / ".claude") == ["agents.md"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{\n  "a": 1,\n  oops\n}', "settings.json:3: not JSON"),
        ("", "settings.json:1: not JSON"),
        ('{\n  // mine\n  "a": 1}', "settings.json:2: not JSON"),
        ("[]", "settings.json:1: must be an object"),
        ('{\n "hooks": []}', "settings.json:2: hooks: must be an object of events"),
        ('{\n "hooks": {\n "Stop": {}}}', "settings.json:3: hooks.Stop: must be a list"),
    ],
)
@pytest.mark.parametrize("word", ["install", "uninstall"])
def test_settings_that_cannot_be_read_are_refused_with_their_line_and_left_alone(
    hookline, project, word, text, said
):
    file = place(project, text)
    done = hookline(word, "claude-code")
    assert done.returncode == 2
    assert said in done.stderr
    assert file.read_text() == text
    assert os.listdir(file.parent) == ["settings.json"]


def test_settings_that_are_not_utf_8_are_refused(hookline, project):
    file = place(project, "")
    file.write_bytes(b'{\n"a": "\xff"}')
    done = hookline("install", "claude-code")
    assert done.returncode == 2
    assert "settings.json:2: is not UTF-8" in done.stderr


def test_the_mode_and_a_link_stay(hookline, project):
    real = project / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o640)
    file = place(project, "")
    file.unlink()
    file.symlink_to(real)
    well(hookline("install", "claude-code"))
    assert file.is_symlink()
    assert "PreToolUse" in real.read_text()
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    well(hookline.at_terminal("uninstall", "claude-code"))
    assert real.read_text() == "{}"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_another_project_and_local_settings_can_be_named(hookline, project):
    other = project / "other"
    other.mkdir()
    well(hookline("install", "claude-code", "--project", "other", "--local"))
    assert os.listdir(other / ".claude") == ["settings.local.json"]
    assert not (project / ".claude").exists()
    well(hookline.at_terminal("uninstall", "claude-code", "--project", "other"))
    assert os.listdir(other / ".claude") == ["settings.local.json"], "that was the other file"
    well(hookline.at_terminal("uninstall", "claude-code", "--project", "other", "--local"))
    assert os.listdir(other) == []


def test_an_unknown_agent_and_an_unknown_folder_are_wrong_use(hookline, project):
    done = hookline("install", "cursor")
    assert done.returncode == 2
    assert "known: claude-code, codex, gemini, qwen" in done.stderr
    done = hookline("install", "claude-code", "--project", "gone")
    assert done.returncode == 2
    assert "gone is not a folder" in done.stderr


def test_uninstall_where_nothing_is_installed_changes_nothing(hookline, project):
    file = place(project, THEIRS)
    assert "not installed" in well(hookline.at_terminal("uninstall", "claude-code"))
    assert file.read_text() == THEIRS
    file.unlink()
    assert "not installed" in well(hookline.at_terminal("uninstall", "claude-code"))
    assert not file.exists()


def test_a_program_is_told_in_json(hookline, project):
    made = json.loads(well(hookline("init", "--json")))
    assert made["wrote"] == "hookline.yaml"
    assert made["approved"]["hooks"][0]["name"] == "no-force-push"
    added = json.loads(well(hookline("install", "claude-code", "--json")))
    assert list(added["added"]) == EVENTS
    assert added["file"].endswith(".claude/settings.json")
    gone = json.loads(well(hookline.at_terminal("uninstall", "claude-code", "--json")))
    assert gone["removed"] == EVENTS
    assert added["proof"] == {"proved": True, "problem": None}


def test_install_says_that_there_is_no_hook_file_yet(hookline, project):
    assert "there is no hookline.yaml" in well(hookline("install", "claude-code"))
