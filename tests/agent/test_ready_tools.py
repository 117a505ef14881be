"""The ready tools: they stay in the workspace, and no command can hang, outlive or flood the agent."""

import asyncio
import os
import resource
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from hookline import Agent, HookResult, Scripted, WorkflowContext, hook
from hookline.agent.tools import OUTPUT_BYTES, READ_CHARACTERS, READY, ready_tool
from hookline.errors import AgentFailed
from tests.agents import calls


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The workspace, with a folder beside it that it must not lead to."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("secret")
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


async def use(name: str, root: Path, **arguments: Any) -> Any:
    return await ready_tool(name)(WorkflowContext(workflow_id="a", workspace=str(root)), arguments)


async def test_an_agent_works_in_its_workspace_with_the_ready_tools(root: Path) -> None:
    turns = [
        calls(("write_file", {"path": "sub/a.txt", "content": "one two\n"})),
        calls(("edit_file", {"path": "sub/a.txt", "old": "two", "new": "three"})),
        calls(
            ("read_file", {"path": "sub/a.txt"}),
            ("list_files", {"glob": "**/*.txt"}),
            ("bash", {"command": "pwd"}),
        ),
        "done",
    ]
    agent = Agent(id="a", model=Scripted(turns), tools=list(READY), workspace=root)

    result = await agent.run("hi")

    assert [found.status for found in result.tool_results] == ["ok"] * 5
    read, listed, bash = (found.result for found in result.tool_results[2:])
    assert (read, listed) == ("one three\n", ["sub/a.txt"])
    assert bash == {"exit_code": 0, "output": f"{root}\n"}


async def test_a_run_may_have_another_workspace_than_its_agent(root: Path) -> None:
    agent = Agent(
        id="a", model=Scripted([calls(("bash", {"command": "pwd"})), "ok"]), tools=["bash"], workspace="/"
    )
    result = await agent.run("hi", workspace=root)
    assert result.tool_results[0].result["output"] == f"{root}\n"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bash", "shell"),
        ("read_file", "read"),
        ("write_file", "write"),
        ("edit_file", "write"),
        ("list_files", "search"),
    ],
)
async def test_a_ready_tool_has_a_kind_that_a_hook_can_match(name: str, kind: str, root: Path) -> None:
    @hook(match=f"kind:{kind}")
    def guard(ctx: Any, hook_context: Any) -> HookResult:
        return HookResult.block("guarded")

    agent = Agent(
        id="a", model=Scripted([calls(name), "ok"]), tools=[name], workspace=root, on_tool_start=[guard]
    )
    assert (await agent.run("hi")).tool_results[0].status == "blocked"


# -- files stay inside -----------------------------------------------------------------------------------------

WAYS_OUT = [
    "../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "link/secret.txt",
    "link_to_file",
    "/etc/passwd",
]


@pytest.mark.parametrize("path", WAYS_OUT)
@pytest.mark.parametrize(
    ("name", "more"),
    [
        ("read_file", {}),
        ("write_file", {"content": "x"}),
        ("edit_file", {"old": "secret", "new": "x"}),
        ("list_files", {}),
    ],
)
async def test_a_path_that_leads_out_of_the_workspace_is_refused(
    root: Path, name: str, more: dict[str, Any], path: str
) -> None:
    (root / "sub").mkdir()
    (root / "link").symlink_to(root.parent / "outside")
    (root / "link_to_file").symlink_to(root.parent / "outside" / "secret.txt")

    with pytest.raises(AgentFailed, match="leads out of the workspace"):
        await use(name, root, path=path, **more)

    assert (root.parent / "outside" / "secret.txt").read_text() == "secret"


async def test_a_file_cannot_be_written_through_a_link_that_points_to_nothing_outside(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside" / "new.txt")
    with pytest.raises(AgentFailed, match="leads out of the workspace"):
        await use("write_file", root, path="link", content="x")
    assert not (root.parent / "outside" / "new.txt").exists()


@pytest.mark.parametrize("glob", ["../*", "/etc/*", "link/*", "link/**/*", "*/../../outside/*"])
async def test_a_pattern_does_not_list_what_is_outside(root: Path, glob: str) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    try:
        listed = await use("list_files", root, glob=glob)
    except AgentFailed:
        return
    assert not [name for name in listed if "secret" in name or "passwd" in name]


async def test_links_and_dots_that_stay_inside_are_followed(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "a.txt").write_text("inside")
    (root / "sub" / "link").symlink_to(root / "a.txt")
    assert await use("read_file", root, path="sub/link") == "inside"
    assert await use("read_file", root, path="sub/../a.txt") == "inside"
    assert await use("read_file", root, path=str(root / "a.txt")) == "inside"


async def test_a_workspace_that_is_itself_a_link_is_its_target(root: Path) -> None:
    (root / "a.txt").write_text("inside")
    link = root.parent / "link"
    link.symlink_to(root)
    assert await use("read_file", link, path="a.txt") == "inside"


# -- reading and editing ---------------------------------------------------------------------------------------


async def test_lines_can_be_read_from_one_to_another(root: Path) -> None:
    (root / "a.txt").write_text("1\n2\n3\n4\n")
    assert await use("read_file", root, path="a.txt", offset=2, limit=2) == "2\n3\n"
    assert await use("read_file", root, path="a.txt", offset=3) == "3\n4\n"


async def test_of_a_file_of_any_size_only_so_much_is_read_into_memory(root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.truncate(64 * READ_CHARACTERS)
    tracemalloc.start()
    try:
        whole = await use("read_file", root, path="big")
        later = await use("read_file", root, path="big", offset=64, limit=9)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    told = f"\n... cut in line 2; the file has {64 * READ_CHARACTERS} bytes; read on with offset"
    assert whole == "\0" * READ_CHARACTERS + told
    assert later == "\0" * READ_CHARACTERS
    assert peak < 16 * READ_CHARACTERS


async def test_a_file_that_just_fits_is_read_whole(root: Path) -> None:
    text = "x" * (READ_CHARACTERS - 3) + "\ny\n"
    (root / "a").write_text(text)
    assert await use("read_file", root, path="a") == text


@pytest.mark.parametrize(("old", "times"), [("x", 0), ("a", 2), ("", 0)])
async def test_an_edit_wants_its_passage_exactly_once(root: Path, old: str, times: int) -> None:
    (root / "f").write_text("a b a")
    with pytest.raises(AgentFailed, match=f"stands {times} times in f"):
        await use("edit_file", root, path="f", old=old, new="y")
    assert (root / "f").read_text() == "a b a"


async def test_an_edit_leaves_line_ends_and_everything_else_as_they_were(root: Path) -> None:
    (root / "f").write_bytes("über\r\nsecond\r\nthird\n".encode())
    await use("edit_file", root, path="f", old="second", new="zweite")
    assert (root / "f").read_bytes() == "über\r\nzweite\r\nthird\n".encode()


async def test_an_edit_of_a_file_that_is_no_utf_8_text_is_refused_and_the_file_untouched(root: Path) -> None:
    (root / "f").write_bytes(b"caf\xe9 one")
    with pytest.raises(AgentFailed, match="not UTF-8 text"):
        await use("edit_file", root, path="f", old="one", new="two")
    assert (root / "f").read_bytes() == b"caf\xe9 one"
    assert await use("read_file", root, path="f") == "caf\ufffd one"


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("read_file", {"path": "none.txt"}, "there is no file 'none.txt'"),
        ("read_file", {"path": "."}, "there is no file"),
        ("read_file", {}, "argument 'path' must be a string, not NoneType"),
        ("list_files", {"path": "none"}, "there is no folder 'none'"),
        ("bash", {"command": ["ls"]}, "argument 'command' must be a string, not list"),
        ("bash", {"command": "ls", "timeout": 0}, "give seconds greater than 0"),
        ("bash", {"command": "ls", "timeout": "soon"}, "give seconds greater than 0"),
    ],
)
async def test_what_cannot_be_done_is_said(
    root: Path, name: str, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(AgentFailed, match=message):
        await use(name, root, **arguments)


# -- bash ------------------------------------------------------------------------------------------------------


async def test_bash_gives_the_exit_code_and_both_outputs_in_order(root: Path) -> None:
    found = await use("bash", root, command="echo out; echo err >&2; exit 3")
    assert found == {"exit_code": 3, "output": "out\nerr\n"}


async def test_where_there_is_no_bash_a_command_runs_in_sh(root: Path, monkeypatch) -> None:
    tools = root / "tools"
    tools.mkdir()
    (tools / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tools))
    assert await use("bash", root, command="echo $0") == {"exit_code": 0, "output": "sh\n"}


async def test_bash_has_no_input_to_wait_for(root: Path) -> None:
    assert await use("bash", root, command="cat; echo done") == {"exit_code": 0, "output": "done\n"}


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def gone(pid: int) -> bool:
    for _ in range(1000):
        if not alive(pid):
            return True
        await asyncio.sleep(0.01)
    return False


async def test_past_its_limit_a_command_is_ended_with_its_whole_group(root: Path) -> None:
    command = "sleep 1000 & echo $! > child; (sleep 1000 & echo $! > grandchild; wait) & echo so far; wait"

    with pytest.raises(AgentFailed, match=r"ran past 1.5 s and was ended; it had said: so far"):
        await use("bash", root, command=command, timeout=1.5)

    for name in ("child", "grandchild"):
        assert await gone(int((root / name).read_text()))


async def test_a_command_that_ignores_being_asked_is_ended_all_the_same(root: Path) -> None:
    with pytest.raises(AgentFailed, match="ran past"):
        await use(
            "bash",
            root,
            command="trap '' TERM INT HUP; echo $$ > pid; while :; do sleep 1000; done",
            timeout=1.0,
        )
    assert await gone(int((root / "pid").read_text()))


async def test_a_background_child_that_holds_the_output_open_does_not_hang_the_tool_and_is_ended(
    root: Path,
) -> None:
    found = await use("bash", root, command="sleep 1000 & echo $! > pid; echo started", timeout=60)
    assert found == {"exit_code": 0, "output": "started\n"}
    assert await gone(int((root / "pid").read_text()))


async def test_a_background_child_that_left_the_group_does_not_hang_the_tool(root: Path) -> None:
    command = (
        "setsid bash -c 'echo $$ > pid; sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done; echo started"
    )
    found = await use("bash", root, command=command, timeout=60)
    assert found == {"exit_code": 0, "output": "started\n"}
    assert not alive(int((root / "pid").read_text()))


async def test_a_background_child_that_floods_the_output_does_not_hang_the_tool(root: Path) -> None:
    command = (
        "setsid bash -c 'echo $$ > pid; exec yes' & while [ ! -s pid ]; do sleep 0.01; done; echo started >&2"
    )
    found = await use("bash", root, command=command, timeout=60)
    assert found["exit_code"] == 0
    assert not alive(int((root / "pid").read_text()))


# It holds no output open, so nothing but its tag leads to it.
LEAVES = (
    "setsid bash -c 'echo $$ > pid; exec sleep 1000' > /dev/null 2>&1 < /dev/null &"
    " while [ ! -s pid ]; do sleep 0.01; done; echo started"
)


async def test_a_process_that_left_the_session_does_not_outlive_the_call(root: Path) -> None:
    found = await use("bash", root, command=LEAVES, timeout=60)
    assert found == {"exit_code": 0, "output": "started\n"}
    assert not alive(int((root / "pid").read_text()))


AGENT = """
from hookline import Agent, Scripted

turns = [{{"tools": [{{"name": "bash", "arguments": {{"command": {command!r}}}}}]}}, "done"]
worker = Agent(id="worker", model=Scripted(turns), tools=["bash"])
"""


def test_a_process_that_left_the_session_does_not_outlive_the_run(root: Path) -> None:
    (root / "agent.py").write_text(AGENT.format(command=LEAVES))
    done = subprocess.run(
        [sys.executable, "-m", "hookline", "run", "agent.py:worker", "go"],
        cwd=root,
        env={**os.environ, "HOOKLINE_HOME": str(root.parent / "home")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not alive(int((root / "pid").read_text()))


async def test_a_command_that_was_killed_has_its_signal_as_a_negative_exit_code(root: Path) -> None:
    assert await use("bash", root, command="kill -9 $$") == {"exit_code": -9, "output": ""}


async def test_of_a_script_that_is_missing_the_model_reads_what_the_shell_says(root: Path) -> None:
    found = await use("bash", root, command="sh missing.sh")
    assert found["exit_code"] != 0
    assert "missing.sh" in found["output"]


async def test_of_a_long_output_head_and_tail_are_kept_and_the_rest_is_counted(root: Path) -> None:
    command = "echo first; head -c 50M /dev/zero | tr '\\0' x; echo; echo last"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    found = await use("bash", root, command=command)

    output = found["output"]
    assert output.startswith("first\nxxx")
    assert output.endswith("xxx\nlast\n")
    left_out = 50 * 1024 * 1024 + len("first\n\nlast\n") - OUTPUT_BYTES
    assert f"\n... {left_out} bytes left out ...\n" in output
    assert len(output) < OUTPUT_BYTES + 100
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 20 * 1024  # kilobytes


async def test_output_that_fits_is_kept_whole(root: Path) -> None:
    found = await use("bash", root, command=f"head -c {OUTPUT_BYTES} /dev/zero | tr '\\0' x")
    assert found["output"] == "x" * OUTPUT_BYTES


async def test_output_that_is_no_text_does_not_matter(root: Path) -> None:
    assert (await use("bash", root, command="printf 'a\\xffb'"))["output"] == "a\ufffdb"


async def test_a_cancelled_command_is_ended_with_its_group(root: Path) -> None:
    os.mkfifo(root / "begun")
    task = asyncio.ensure_future(
        use("bash", root, command="sleep 1000 & echo $! > pid; echo > begun; wait", timeout=60)
    )
    await asyncio.to_thread((root / "begun").read_text)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(int((root / "pid").read_text()))


async def test_a_command_leaves_no_open_file_behind(root: Path) -> None:
    await use("bash", root, command="true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        await use("bash", root, command="sleep 1000 & true")
    with pytest.raises(AgentFailed):
        await use("bash", root, command="sleep 1000", timeout=0.05)
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_workspace_that_is_not_there_is_said_and_leaves_nothing_open(root: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(AgentFailed, match=r"could not start: its working folder '.*/none' does not exist"):
        await use("bash", root / "none", command="true")
    assert len(os.listdir("/proc/self/fd")) == before
