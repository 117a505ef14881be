"""no_writes_outside: where a write really ends, for tools that write and, as far as it shows, for a shell."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline import Agent, HookAction, HookContext, Scripted, WorkflowContext
from hookline.guards import no_writes_outside, no_writes_outside_of
from hookline.guards.writes import shell_targets


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a folder, links in and out of it, and a neighbour whose name begins like its own."""
    root = tmp_path / "work"
    (root / "src").mkdir(parents=True)
    (tmp_path / "work-too").mkdir()
    (tmp_path / "secret.txt").write_text("s")
    (root / "out").symlink_to(tmp_path)
    (root / "file-out").symlink_to(tmp_path / "secret.txt")
    (root / "dangling").symlink_to(tmp_path / "not-there")
    (root / "in").symlink_to(root / "src")
    (root / "round").symlink_to(root / "round")
    return root


OUTSIDE = [
    {"path": "/etc/passwd"},
    {"path": "../x"},
    {"path": "src/../../x"},
    {"path": "./../work-too/x"},
    {"path": "out/x"},
    {"path": "out/new/deep/x"},
    {"path": "file-out"},
    {"path": "dangling"},
    {"path": "in/../../x"},
    {"path": "~/x"},
    {"path": "~root/x"},
    {"path": "a\0b"},
    {"file_path": "/tmp/x", "content": "c"},
    {"notebook_path": "../x.ipynb"},
    {"filename": "/x"},
    {"filePath": "/x"},
    {"target_file": "../x"},
    {"destination": "/x", "source": "src/a"},
    {"uri": "file:///etc/pass%77d"},
    {"paths": ["src/a", "../b"]},
    {"edits": [{"file_path": "src/a"}, {"file_path": "/b"}]},
    {"input": "*** Begin Patch\n*** Add File: ../x\n+a\n*** End Patch"},
    {"input": "*** Begin Patch\n*** Update File: src/a\n*** Move to: /etc/x\n*** End Patch"},
    {"patch": "--- a/src/a\n+++ b/../../x\n@@ -1 +1 @@"},
]

INSIDE = [
    {"path": "x"},
    {"path": "src/new/deep/x"},
    {"path": "src/../x"},
    {"path": "in/x"},
    {"path": "..x"},
    {"path": "{root}/x"},
    {"path": "{root}"},
    {"path": ""},
    {"file_path": "src/a", "content": "/etc/passwd", "old": "../x", "new": "~/x"},
    {"path": "a", "file_text": "/etc/passwd"},
    {"input": "*** Begin Patch\n*** Add File: src/x\n+/etc/x\n*** End Patch"},
    {"patch": "--- /dev/null\n+++ b/src/x\n"},
    {},
    None,
]


@pytest.mark.parametrize("payload", OUTSIDE, ids=str)
def test_a_write_that_ends_outside_is_blocked(workspace, payload):
    answer = no_writes_outside(standing(workspace), context(payload, "write"))
    assert answer.action is HookAction.BLOCK
    assert "no writes outside: " in str(answer.reason)


@pytest.mark.parametrize("payload", INSIDE, ids=str)
def test_a_write_that_stays_inside_passes(workspace, payload):
    if payload and "path" in payload:
        payload = {**payload, "path": payload["path"].replace("{root}", str(workspace))}
    assert no_writes_outside(standing(workspace), context(payload, "write")).action is HookAction.CONTINUE


def test_a_workspace_that_is_reached_by_a_link_is_still_the_workspace(workspace, tmp_path):
    (tmp_path / "link").symlink_to(workspace)
    ctx = standing(tmp_path / "link")
    for path in ("x", str(tmp_path / "link" / "x"), str(workspace / "x")):
        assert no_writes_outside(ctx, context({"path": path}, "write")).action is HookAction.CONTINUE


def test_without_a_workspace_the_current_folder_is_it(workspace, monkeypatch):
    monkeypatch.chdir(workspace)
    assert no_writes_outside(None, context({"path": "x"}, "write")).action is HookAction.CONTINUE
    assert no_writes_outside(None, context({"path": "../x"}, "write")).action is HookAction.BLOCK


@pytest.mark.parametrize(
    ("guard", "refused"),
    [
        (no_writes_outside, False),
        (no_writes_outside_of(temporary=False), True),
        (no_writes_outside_of("src"), True),
        (no_writes_outside_of("src", temporary=True), False),
    ],
)
def test_the_temporary_folder_is_left_alone_unless_told(workspace, tmp_path, monkeypatch, guard, refused):
    (tmp_path / "scratch").mkdir()
    (tmp_path / "scratch" / "out").symlink_to(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    for path in ("x", "deep/x"):
        said = guard(standing(workspace), context({"path": str(tmp_path / "scratch" / path)}, "write"))
        assert (said.action == "block") is refused
    for path in (tmp_path / "scratch" / "out" / "x", tmp_path / "scratch-too"):
        assert guard(standing(workspace), context({"path": str(path)}, "write")).action == "block"


def test_a_workspace_in_the_temporary_folder_does_not_open_the_rest_of_it(workspace, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert (
        no_writes_outside(standing(workspace), context({"path": str(tmp_path / "x")}, "write")).action
        == "block"
    )


def test_folders_can_be_named(workspace, tmp_path):
    guard = no_writes_outside_of("src", tmp_path / "work-too")
    told = {
        path: guard(standing(workspace), context({"path": path}, "write")).action.value
        for path in ("src/x", "../work-too/x", "x", "/etc/x")
    }
    assert told == {"src/x": "continue", "../work-too/x": "continue", "x": "block", "/etc/x": "block"}


SHELL_OUTSIDE = [
    "echo x > /etc/x",
    "echo x >/etc/x",
    "echo x >> ../x",
    "echo x 2> ../x",
    "echo x &> ../x",
    "echo x >| ../x",
    "echo x >& ../x",
    "> ../x",
    "echo x > '../x'",
    "echo x > ~/x",
    "echo x > $HOME/x",
    'echo x > "${HOME}/x"',
    "D=/etc; echo x > $D/x",
    "echo x > out/x",
    "cat <<EOF > /etc/x\nhello\nEOF",
    "ls | tee /etc/x",
    "ls | tee -a src/a ../x",
    "ls | sudo tee /etc/x",
    "cp src/a /etc/x",
    "cp -t /etc src/a",
    "cp --target-directory=/etc src/a",
    "mv src/a ../x",
    "mv ../secret.txt src/",
    "install -m 755 src/a /usr/bin/a",
    "ln -s src/a /usr/bin/a",
    "dd if=src/a of=/dev/sda",
    "touch ../x",
    "mkdir -p ../x/y",
    "rm -rf ../x",
    "rm -rf -- /etc/x",
    "sed -i s/a/b/ /etc/x",
    "curl -o /etc/x https://x",
    "curl -o/etc/x https://x",
    "wget -O ../x https://x",
    "tar xf a.tar -C /opt",
    "cd .. && echo x > x",
    "cd /tmp; touch x",
    "cd && touch x",
    "cd src && cd ../.. && touch x",
    "(cd ..; touch x)",
    "echo $(touch ../x)",
    "bash -c 'echo x > ../x'",
    "sh -lc 'cd .. && touch x'",
    "eval 'touch ../x'",
    "env X=1 touch ../x",
    "if true; then touch ../x; fi",
]

SHELL_INSIDE = [
    "echo x > x",
    "echo x > src/x",
    "echo x > {root}/x",
    "echo x > $PWD/x",
    "ls > /dev/null 2>&1",
    "ls 2>&1 >/dev/stderr",
    "ls >&2",
    "ls >&-",
    "ls | tee src/x",
    "cp /etc/passwd src/x",
    "dd if=/dev/zero of=src/x",
    "truncate -s 0 src/x",
    "install -m 755 src/a src/b",
    "rm -rf src/x",
    "sed -n /etc/p src/x",
    "sed -i s/a/b/ src/x",
    "cat ../secret.txt /etc/passwd",
    "grep -r x / > found",
    "cd src && touch ../x",
    "(cd /tmp && ls); touch x",
    "x=$(cd / && pwd); touch x",
    "echo 'x > /etc/x'",
    'echo "> ../x"',
    "cat > x <<'EOF'\necho > /etc/x\nEOF",
    "scp src/a host:/etc/x",
    "touch '~'",
    # best effort: what is only known when it runs passes
    "echo x > $UNKNOWN/x",
    "cd $UNKNOWN && touch x",
    "touch $(mktemp)",
    "python3 -c \"open('/etc/x', 'w')\"",
]


@pytest.mark.parametrize("command", SHELL_OUTSIDE)
def test_a_shell_that_writes_outside_is_blocked(workspace, command):
    answer = no_writes_outside(standing(workspace), context({"command": command}, "shell"))
    assert answer.action is HookAction.BLOCK


@pytest.mark.parametrize("command", SHELL_INSIDE)
def test_a_shell_that_writes_inside_passes(workspace, command):
    command = command.replace("{root}", str(workspace))
    answer = no_writes_outside(standing(workspace), context({"command": command}, "shell"))
    assert answer.action is HookAction.CONTINUE


def test_an_argument_list_and_a_folder_of_the_call_count(workspace):
    ctx = standing(workspace)
    for payload in (
        {"command": ["touch", "../x"]},
        {"command": ["bash", "-lc", "touch ../x"]},
        {"cmd": "touch x", "workdir": "/tmp"},
        {"command": "touch ../../x", "cwd": "src"},
    ):
        assert no_writes_outside(ctx, context(payload, "shell")).action is HookAction.BLOCK
    assert no_writes_outside(ctx, context({"cmd": "touch ../x", "cwd": "src"}, "shell")).action == "continue"


async def test_it_guards_an_agent(tmp_path):
    work = tmp_path / "work"
    work.mkdir()
    calls = [
        {"name": "bash", "arguments": {"command": "touch ../x"}},
        {"name": "write_file", "arguments": {"path": "../y", "content": ""}},
        {"name": "write_file", "arguments": {"path": "z", "content": ""}},
    ]
    agent = Agent(id="a", model=Scripted([{"tools": calls}, "Done."]), tools=["bash", "write_file"])
    result = await agent.run("go", workspace=work, hooks=[no_writes_outside])
    assert [each.status for each in result.tool_results] == ["blocked", "blocked", "ok"]
    assert {path.name for path in tmp_path.rglob("*")} == {"work", "z"}


@given(st.text(max_size=60) | st.text("touch >./~$(){}'\"\\;|&\n<", max_size=60))
def test_no_text_breaks_it(text):
    shell_targets(text, "/work")
    no_writes_outside(None, context({"path": text}, "write"))


LONG = {
    "redirections": "> x " * 250_000,
    "words": "touch " + "x " * 500_000,
    "cds": "cd ..;" * 160_000,
    "variables": "> $x" * 250_000,
    "wrappers": "sudo " * 200_000,
    "subshells": "(cd x);" * 140_000,
}


@pytest.mark.parametrize("command", LONG.values(), ids=LONG.keys())
def test_what_is_too_long_to_be_read_in_full_is_refused_and_never_let_through(command):
    for text in (command[:120_000] + "\n> /etc/passwd", command):
        answer = no_writes_outside(standing(Path("/work")), context({"command": text}, "shell"))
        assert answer.action == "block"


def test_a_large_file_in_a_command_is_read_in_full():
    text = "cat > f <<'EOF'\n" + "an ordinary line with $x and `y`, it's fine\n" * 2_500 + "EOF\n"
    assert shell_targets(text, "/work") == ["/work/f"]


def standing(workspace: Path) -> WorkflowContext:
    return WorkflowContext(workflow_id="w", workspace=str(workspace))


def context(payload, kind) -> HookContext:
    return HookContext(
        workflow_id="w", point="tool.start", current_tool="t", tool_kind=kind, current_payload=payload
    )


PATCH = "*** Begin Patch\n*** Add File: a.txt\n+x\n*** Update File: ../b.txt\n*** Move to: /etc/c\n*** End Patch\n"


@pytest.mark.parametrize(
    "command",
    [
        f"apply_patch <<'EOF'\n{PATCH}EOF\n",
        f"apply_patch '{PATCH}'",
        ["apply_patch", PATCH],
        f"bash -c \"apply_patch <<'EOF'\n{PATCH}EOF\n\"",
    ],
    ids=["here-document", "argument", "list", "inner shell"],
)
def test_a_patch_that_a_shell_is_given_names_its_files(command):
    assert shell_targets(command, "/work") == ["/work/a.txt", "/work/../b.txt", "/etc/c"]


def test_a_patch_is_one_only_for_the_program_that_applies_it():
    assert shell_targets(f"cat <<'EOF'\n{PATCH}EOF\n", "/work") == []


def test_a_workspace_that_is_named_from_the_current_folder_is_held(hookline):
    (hookline.folder / "inner" / "inner").mkdir(parents=True)
    turn = {"tools": [{"name": "bash", "arguments": {"command": "echo > ../out; echo > in"}}]}
    (hookline.folder / "coder.py").write_text(
        "from hookline import Agent, Scripted\nfrom hookline.guards import no_writes_outside_of\n"
        f"agent = Agent(id='coder', tools=['bash'], model=Scripted([{turn!r}, 'done']),\n"
        "              on_tool_start=[no_writes_outside_of(temporary=False)])\n"
    )
    done = hookline("run", "coder.py", "x", "--workspace", "inner")
    assert done.returncode == 0, done.stderr
    assert not (hookline.folder / "out").exists()
    assert "no writes outside: " in done.stderr


@pytest.mark.parametrize("program", ["patch -p1", "git apply", "git am"])
def test_a_unified_diff_on_stdin_names_its_files(program):
    diff = "--- a/x.txt\n+++ b/../y.txt\n"
    assert shell_targets(f"{program} <<'E'\n{diff}E", "/work") == ["/work/x.txt", "/work/../y.txt"]
