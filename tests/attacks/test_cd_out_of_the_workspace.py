"""no_writes_outside under a client: the workspace is the folder that the client was started in, wherever an agent has gone."""

import json

import pytest

HOOKS = """hooks:
  - name: outside
    on: tool.start
    python: hookline.guards:no_writes_outside
"""


@pytest.fixture
def answered(hookline):
    """Asks about a call, in a project whose client stands in another folder; True if it was refused."""
    project, elsewhere = hookline.folder / "project", hookline.folder / "elsewhere"
    for folder in (project / "src", elsewhere):
        folder.mkdir(parents=True)
    (project / "hookline.yaml").write_text(HOOKS)
    hookline.environ["TMPDIR"] = str(hookline.folder / "scratch")

    def ask(cwd, tool, given, caller="claude", variable="CLAUDE_PROJECT_DIR"):
        names = ("CLAUDE_PROJECT_DIR", "GEMINI_PROJECT_DIR", "QWEN_PROJECT_DIR")
        hookline.environ = {key: value for key, value in hookline.environ.items() if key not in names}
        hookline.environ[variable] = str(project)
        event = {
            "hook_event_name": "BeforeTool" if caller == "gemini" else "PreToolUse",
            "session_id": "s",
            "cwd": str(hookline.folder / cwd),
            "tool_name": tool,
            "tool_input": given,
        }
        file = str(project / "hookline.yaml")
        done = hookline("answer", "--as", caller, "--file", file, stdin=json.dumps(event))
        assert done.returncode in (0, 2), done.stderr
        return done.returncode == 2 or '"deny"' in done.stdout

    return ask


def test_an_agent_that_went_elsewhere_by_cd_writes_nothing_there(answered):
    assert answered("elsewhere", "Bash", {"command": "echo x > new"})
    assert answered("elsewhere", "Write", {"file_path": "new", "content": ""})
    assert answered("elsewhere", "Bash", {"command": "cd ../project && touch src/new; touch ../new"})


def test_a_folder_of_the_project_is_still_the_project(answered):
    assert not answered("project/src", "Bash", {"command": "echo x > ../new"})
    assert not answered("project/src", "Write", {"file_path": "../new", "content": ""})
    assert not answered("elsewhere", "Bash", {"command": "cd ../project && touch new"})
    assert answered("project/src", "Bash", {"command": "echo x > ../../new"})


@pytest.mark.parametrize(
    ("caller", "variable", "tool"),
    [
        ("gemini", "GEMINI_PROJECT_DIR", "run_shell_command"),
        ("qwen", "QWEN_PROJECT_DIR", "run_shell_command"),
    ],
)
def test_it_is_so_under_other_clients(answered, caller, variable, tool):
    assert answered("elsewhere", tool, {"command": "touch new"}, caller, variable)
    assert not answered("project/src", tool, {"command": "touch ../new"}, caller, variable)


WRITES = [
    ("mcp__fs__write_file", {"path": "/etc/x", "content": ""}),
    ("mcp__fs__write_file", {"path": "../elsewhere/x", "content": ""}),
    ("mcp__fs__create_directory", {"path": "../new"}),
    ("mcp__fs__move_file", {"source": "src/a", "destination": "../new"}),
    ("mcp__fs__move_file", {"source": "../a", "destination": "src/a"}),
    ("mcp__fs__edit_file", {"filePath": "~/x", "edits": []}),
    ("mcp__fs__delete_files", {"paths": ["src/a", "../b"]}),
    ("mcp__db__export_table", {"output": "../x.csv"}),
    ("mcp__files__saveAs", {"targetPath": "file:///etc/x"}),
    ("mcp__git__apply_patch", {"patch": "--- a/x\n+++ b/../../x\n"}),
    ("mcp__desk__start_process", {"command": "touch ../new"}),
]
READS = [
    ("mcp__fs__read_file", {"path": "/etc/hosts"}),
    ("mcp__fs__list_directory", {"path": ".."}),
    ("mcp__writer__read_file", {"path": "../x"}),
    ("mcp__fs__write_file", {"path": "src/x", "content": "/etc/x"}),
    ("mcp__fs__copy_file", {"source": "/etc/hosts", "destination": "src/hosts"}),
    ("mcp__hub__create_issue", {"title": "../x", "body": "write to /etc/x"}),
    ("mcp__hub__create_or_update_file", {"path": "docs/x.md", "content": "x"}),
    ("mcp__web__search", {"query": "../x", "path": "/x"}),
    ("mcp__desk__start_process", {"command": "cat ../new"}),
]


@pytest.mark.parametrize(("tool", "given"), WRITES)
def test_a_tool_of_mcp_that_writes_does_not_write_outside(answered, tool, given):
    assert answered("project", tool, given)


@pytest.mark.parametrize(("tool", "given"), READS)
def test_a_tool_of_mcp_that_reads_or_stays_inside_is_let_through(answered, tool, given):
    assert not answered("project", tool, given)
