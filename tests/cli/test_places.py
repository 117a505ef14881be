"""`hookline run FILE --on local|sandbox|container`: the same records wherever hooks run, and what they see there."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.runners.places import installed, made_image

EXAMPLES = Path(__file__).parents[2] / "examples"
SECURITY = "ghcr.io/org/security-hooks:v1.0"
REF = "ghcr.io/org/h:v1"
TIDY = (
    *(f"--image={SECURITY}=examples/kagent/security-hooks", "--session=s1"),
    "--model=scripted/examples/kagent/scripts/tidy.yaml",
)
OF_ITS_MOMENT = ("run_id", "at", "seconds", "owner", "declaration")

# What a hook sees, in a file of the workspace, which it shares with the test. Its arguments are files to read.
LOOK = """\
#!/bin/sh
cat > /dev/null
writes() { (echo x > "$1") 2>/dev/null && echo "writes" || echo "does not write"; }
reads() { cat "$1" > /dev/null 2>&1 && echo "reads" || echo "does not read"; }
{
  echo "folder $KAGENT_HOOKS_FOLDER"
  echo "own $HOOKLINE_HOOK_DIR"
  echo "cwd $(pwd) $HOOKLINE_CWD"
  echo "image $(writes "$HOOKLINE_HOOK_DIR/new")"
  echo "folder $(writes "$KAGENT_HOOKS_FOLDER/new")"
  for file; do echo "$(reads "$file") $file"; done
} > seen.txt
"""

needs_sandbox = pytest.mark.usefixtures("bubblewrap")


@pytest.fixture(scope="session")
def bubblewrap():
    installed(bwrap="bubblewrap")


@pytest.fixture(scope="session")
def image(tmp_path_factory):
    return made_image(tmp_path_factory.mktemp("image"))


@pytest.fixture
def examples(hookline):
    hookline.environ.pop("KAGENT_HOOKS_FOLDER", None)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(EXAMPLES, hookline.folder / "examples", ignore=ignored)
    return hookline


def recorded(done):
    """What was said of a run, but for what is another's with each."""
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    ids = {each["run_id"] for each in found if each.get("run_id")}
    kept = [{key: value for key, value in each.items() if key not in OF_ITS_MOMENT} for each in found]
    text = json.dumps(kept)
    for number in ids:
        text = text.replace(number, "RUN")
    return json.loads(text)


def calls(records):
    return [
        (each["point"], each["hook"], each["action"]) for each in records if each.get("record") == "called"
    ]


# The same records.


@needs_sandbox
@pytest.mark.statement("KA21", "KA40")
@pytest.mark.parametrize("file", ["agent.yaml", "hooks.yaml"])
def test_a_kagent_manifest_has_the_same_records_in_the_sandbox(examples, file):
    tools = ["--tools=bash"] if file == "hooks.yaml" else []
    run = ("run", f"examples/kagent/{file}", "tidy up", "--json", *TIDY, *tools)
    here, inside = (recorded(examples(*run, "--on", on)) for on in ("local", "sandbox"))
    assert calls(here) == [
        ("session.start", "SessionStart: inject-session-metadata.py", "continue"),
        ("tool.start", "PreToolUse: check-tool-use.sh", "block"),
        ("tool.start", "PreToolUse: check-tool-use.sh", "continue"),
    ]
    assert inside == here
    assert recorded(examples(*run)) == here


@needs_sandbox
@pytest.mark.parametrize(
    ("file", "asked", "hooks"),
    [
        ("guards/coder.py", "tidy up", ["--hooks", "examples/guards/hookline.yaml"]),
        ("polos/release.py:assistant", "Release 1.4 and tell ana@example.com", ["--ask", "refuse"]),
    ],
)
def test_a_python_agent_has_the_same_records_in_the_sandbox(examples, file, asked, hooks):
    run = ("run", f"examples/{file}", asked, "--json", "--session=s1", *hooks)
    here, inside = (recorded(examples(*run, "--on", on)) for on in ("local", "sandbox"))
    assert len(calls(here)) > 3
    assert inside == here


@needs_sandbox
def test_a_workflow_has_the_same_records_and_the_same_story_in_the_sandbox(examples):
    folder = examples.folder / "examples" / "symphony"
    told = {}
    for on, more in {"local": [], "sandbox": ["--mount=.::rw"]}.items():
        board = examples.folder / "board"
        shutil.copytree(folder, board)
        examples.folder = board
        run = ("run", "WORKFLOW.md", "--issue=ABC-123", "--json", "--on", on, *more)
        records = [recorded(examples(*run)) for _ in range(3)]
        told[on] = (records, (board / "story.txt").read_text())
        assert (board / "done" / "ABC-123" / "announcement.txt").exists()
        examples.folder = board.parent
        shutil.rmtree(board)
    points = [point for records in told["local"][0] for point, _, _ in calls(records)]
    assert points == ["workspace.start", "run.start", "run.end", "run.start", "run.end", "workspace.end"]
    assert told["sandbox"] == told["local"]


# What a hook sees.


@pytest.fixture
def looking(hookline, tmp_path_factory):
    """An agent whose hook looks around, for a file of the user's home, the journal and the workspace's own."""
    home, images = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("images")
    (home / "secret").write_text("mine")
    # Images that nobody has made read-only yet, so that only the place can be what keeps them so.
    hookline.environ |= {"HOME": str(home), "KAGENT_HOOKS_FOLDER": str(images)}
    (images / "h").mkdir()
    look = images / "h" / "look.sh"
    look.write_text(LOOK)
    look.chmod(0o755)
    journal = hookline.folder / "home" / "journal.db"
    command = f"look.sh {home}/secret {journal} {hookline.folder}/agent.yaml"
    hooks = [{"ref": REF, "event": "PreToolUse", "command": command}]
    head = "apiVersion: kagent.dev/v1alpha2\nkind: Agent\nmetadata: {name: helper}\n"
    (hookline.folder / "agent.yaml").write_text(
        f"{head}spec:\n  declarative: {{}}\n  hooks: {json.dumps(hooks)}\n"
    )
    turns = [{"tools": [{"name": "bash", "arguments": {"command": "echo hello"}}]}, "done"]
    (hookline.folder / "script.json").write_text(json.dumps(turns))

    def looked(*more):
        run = ("run", "agent.yaml", "go", "--model=scripted/script.json", "--tools=bash")
        done = hookline(*run, *more)
        assert (done.returncode, done.stdout, "broke" in done.stderr) == (0, "done\n", False), done.stderr
        seen = (hookline.folder / "seen.txt").read_text().splitlines()
        return [line.replace(str(hookline.folder), "WS").replace(str(home), "HOME") for line in seen], done

    return looked


INSIDE = [
    "folder /hooks",
    "own /hooks/h",
    "cwd WS WS",
    "image does not write",
    "folder does not write",
    "does not read HOME/secret",
    "does not read WS/home/journal.db",
    "reads WS/agent.yaml",
]


@pytest.mark.statement("KA13", "KA15", "KA34")
@pytest.mark.rule("kagent 1.7")
@needs_sandbox
def test_a_hook_in_the_sandbox_finds_its_image_in_hooks_read_only_and_nothing_of_the_user_s(looking):
    seen, done = looking("--on=sandbox")
    assert seen == INSIDE
    assert (
        "--on sandbox: hooks that are commands or scripts run in the sandbox; the agent, its tools and hooks in"
        " Python run here"
    ) in " ".join(done.stderr.split())
    assert "the sandbox has no network; --network gives it to the hooks" in done.stderr
    here, _ = looking("--on=local")
    assert here[-3:] == ["reads HOME/secret", "reads WS/home/journal.db", "reads WS/agent.yaml"]


@pytest.mark.statement("KA13", "KA15", "KA34")
@pytest.mark.rule("kagent 1.7")
@pytest.mark.real
def test_a_hook_in_a_container_finds_the_same(looking, image):
    seen, _ = looking("--on=container", f"--image={image}")
    assert seen == INSIDE


@needs_sandbox
def test_a_session_s_hooks_work_in_the_workspace_that_is_named_and_see_no_other_folder(hookline):
    for name in ("workspace", "elsewhere"):
        (hookline.folder / name).mkdir()
    (hookline.folder / "elsewhere" / "hookline.yaml").write_text(
        "hooks:\n"
        "  - {name: start, on: session.start, shell: 'pwd >> seen.txt; ls -d ../agent.py >> seen.txt || true'}\n"
        "  - {name: end, on: session.end, shell: 'pwd >> seen.txt'}\n"
    )
    done = hookline(
        "run", "agent.py", "go", "--hooks=elsewhere/hookline.yaml", "--on=sandbox", "--workspace=workspace"
    )
    assert (done.returncode, "broke" in done.stderr) == (0, False), done.stderr
    workspace = hookline.folder / "workspace"
    assert (workspace / "seen.txt").read_text() == f"{workspace}\n" * 2


@needs_sandbox
def test_scripts_beside_a_hook_file_are_there_and_more_is_mounted_on_request(hookline):
    beside, more = hookline.folder / "beside", hookline.folder / "more"
    for each in (beside, more, hookline.folder / "workspace"):
        each.mkdir()
    (beside / "says.sh").write_text(f"cat {more}/word > word.txt && ! touch {beside}/new")
    (more / "word").write_text("blue")
    (beside / "hookline.yaml").write_text(
        f"hooks:\n  - {{name: says, on: agent.start, command: [sh, {beside}/says.sh]}}\n"
    )
    run = ("run", "agent.py", "go", "--hooks=beside/hookline.yaml", "--on=sandbox", "--workspace=workspace")
    unseen = hookline(*run)
    assert (unseen.returncode, "exited with" in unseen.stderr) == (1, True), unseen.stderr
    done = hookline(*run, "--mount=more")
    assert done.returncode == 0, done.stderr
    assert (hookline.folder / "workspace" / "word.txt").read_text() == "blue"


@needs_sandbox
def test_the_scripts_of_a_claude_code_project_are_found_there_too(hookline):
    scripts = hookline.folder / ".claude" / "hooks"
    scripts.mkdir(parents=True)
    (hookline.folder / "workspace").mkdir()
    (scripts / "no.sh").write_text('#!/bin/sh\necho "not with $HOME as home" >&2\nexit 2\n')
    (scripts / "no.sh").chmod(0o755)
    handler = {"type": "command", "command": '"$CLAUDE_PROJECT_DIR"/.claude/hooks/no.sh'}
    settings = {"hooks": {"PreToolUse": [{"matcher": "*", "hooks": [handler]}]}}
    (scripts.parent / "settings.json").write_text(json.dumps(settings))
    done = hookline(
        *("run", "agent.py", "go", "--hooks=.claude/settings.json", "--on=sandbox", "--workspace=workspace")
    )
    assert "blocked: not with /tmp as home" in " ".join(done.stderr.split()), done.stderr


WORKFLOW = """\
---
tracker: {kind: folder}
workspace: {root: spaces}
agent: {kind: command, command: "sh -c 'cat ../../issues/A-1.md > agent.txt; touch ../../agent-was-here'", max_turns: 1}
hooks:
  after_create: |
    pwd > pwd.txt
    echo "$HOME $SYMPHONY_WORKSPACE" > told.txt
    cat ../../issues/A-1.md > issue.txt 2>/dev/null || echo none > issue.txt
    cat ../../home/journal.db > /dev/null 2>&1 && echo journal >> issue.txt
    cat ../B-1/other > /dev/null 2>&1 && echo other >> issue.txt
    true
---
Do {{ issue.identifier }}.
"""


def board(hookline):
    (hookline.folder / "issues").mkdir()
    (hookline.folder / "issues" / "A-1.md").write_text("---\nstate: Todo\n---\n# One\n")
    other = hookline.folder / "spaces" / "B-1"
    other.mkdir(parents=True)
    (other / "other").touch()
    (hookline.folder / "WORKFLOW.md").write_text(WORKFLOW)
    return hookline.folder / "spaces" / "A-1"


def check_board(hookline, *more):
    space = board(hookline)
    done = hookline("run", "WORKFLOW.md", "--issue=A-1", *more)
    assert done.returncode == 0, done.stderr
    assert (space / "pwd.txt").read_text() == f"{space}\n"
    assert (space / "issue.txt").read_text() == "none\n"
    # The agent is where it always is.
    assert (space / "agent.txt").read_text().endswith("# One\n")
    assert (hookline.folder / "agent-was-here").exists()
    assert "the agent runs here" in " ".join(done.stderr.split())
    return (space / "told.txt").read_text(), str(space)


@needs_sandbox
def test_the_hooks_of_a_workflow_see_their_workspace_at_its_own_path_and_no_other(hookline):
    told, space = check_board(hookline, "--on=sandbox")
    assert told == f"/tmp {space}\n"


@pytest.mark.real
def test_the_hooks_of_a_workflow_see_the_same_in_a_container(hookline, image):
    told, space = check_board(hookline, "--on=container", f"--image={image}")
    assert told.endswith(f" {space}\n")


@needs_sandbox
def test_the_network_is_given_on_request(hookline):
    (hookline.folder / "hookline.yaml").write_text(
        "hooks:\n  - {name: looks, on: agent.start, shell: 'readlink /proc/self/ns/net > net.txt'}\n"
    )
    for more in ((), ("--network",)):
        done = hookline("run", "agent.py", "go", "--hooks=hookline.yaml", "--on=sandbox", *more)
        assert done.returncode == 0, done.stderr
        assert ("has no network" in done.stderr) is not bool(more)
        found = (hookline.folder / "net.txt").read_text().strip()
        assert (found == os.readlink("/proc/self/ns/net")) is bool(more)


# What is wrong, and what is said before.


NO_IMAGE = "--on container needs one image that the hooks run in: --image NAME"
NO_PLACE = "needs --on sandbox or --on container"


@pytest.mark.parametrize(
    ("file", "options", "said"),
    [
        ("agent.py", ["--on=moon"], "--on is 'moon'; known: local, sandbox, container"),
        ("agent.yaml", ["--on=moon"], "--on is 'moon'; known: local, sandbox, container"),
        ("agent.py", ["--on=sandbx"], "did you mean sandbox?"),
        ("agent.yaml", ["--on=kubernetes"], "a kagent Agent is applied with kubectl"),
        ("WORKFLOW.md", ["--on=moon"], "--on is 'moon'; known: local, sandbox, container"),
        ("agent.py", ["--on=container"], NO_IMAGE),
        ("agent.yaml", ["--on=container"], NO_IMAGE),
        ("WORKFLOW.md", ["--on=container"], NO_IMAGE),
        ("agent.yaml", ["--on=container", "--image=a", "--image=b"], "these are 2: a, b"),
        ("agent.yaml", ["--on=sandbox", "--image=python:3"], "needs --on container"),
        ("agent.py", ["--network"], f"--network {NO_PLACE}"),
        ("agent.py", ["--on=local", "--mount=."], f"--mount {NO_PLACE}"),
        ("WORKFLOW.md", ["--mount=."], f"--mount {NO_PLACE}"),
    ],
)
def test_a_place_that_cannot_be_meant_is_refused_before_anything_runs(hookline, file, options, said):
    board(hookline)
    (hookline.folder / "agent.yaml").write_text("spec: {hooks: []}\n")
    given = {"WORKFLOW.md": ["--issue=A-1"], "agent.yaml": ["go", "--model=scripted/x"]}.get(file, ["go"])
    done = hookline("run", file, *given, *options)
    assert (done.returncode, said in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert not (hookline.folder / "home").exists()


def test_a_source_of_an_image_means_nothing_for_a_workflow(hookline):
    board(hookline)
    done = hookline("run", "WORKFLOW.md", "--issue=A-1", "--image=a=b")
    assert (done.returncode, "is for a kagent manifest" in done.stderr) == (2, True), done.stderr


def test_without_bubblewrap_it_is_said_how_to_get_it_and_nothing_runs(hookline):
    programs = hookline.folder / "programs"
    programs.mkdir()
    (programs / "sh").symlink_to(shutil.which("sh") or "/bin/sh")
    hookline.environ["PATH"] = str(programs)
    done = hookline("run", "agent.py", "go", "--on=sandbox")
    said = " ".join(done.stderr.split())
    assert (done.returncode, "apt-get install bubblewrap" in said, "--on local" in said) == (2, True, True)


@needs_sandbox
def test_the_journal_s_own_folder_is_no_workspace(hookline):
    hookline.environ["HOOKLINE_HOME"] = str(hookline.folder)
    done = hookline("run", "agent.py", "go", "--on=sandbox")
    assert (done.returncode, "set HOOKLINE_HOME to another folder" in done.stderr) == (2, True), done.stderr


@needs_sandbox
def test_a_home_that_would_be_seen_is_told(hookline):
    hookline.environ["HOME"] = str(hookline.folder)
    done = hookline("run", "agent.py", "go", "--on=sandbox")
    assert "so hooks see all of it" in done.stderr
    (hookline.folder / "w").mkdir()
    (hookline.folder / "hookline.yaml").write_text("hooks:\n  - {name: n, on: agent.start, shell: 'true'}\n")
    done = hookline("run", "agent.py", "go", "--on=sandbox", "--workspace=w", "--hooks=hookline.yaml")
    assert (done.returncode, "so hooks do not see it" in done.stderr) == (0, True), done.stderr


@needs_sandbox
def test_a_sandbox_that_cannot_be_made_is_said_before_the_agent_begins(hookline):
    done = hookline("run", "agent.py", "go", "--on=sandbox", "--workspace=/usr")
    assert (done.returncode, "nothing was run: nothing can be mounted at /usr" in done.stderr) == (2, True)
    assert hookline("runs", "--json").stdout.strip() in ("", "[]")


@pytest.mark.parametrize("on", ["sandbox", "container"])
def test_explain_says_where_each_hook_runs(examples, on):
    kagent = examples("explain", "examples/kagent/agent.yaml", "--on", on)
    assert f"PreToolUse: check-tool-use.sh (command) runs in the {on}, for bash" in kagent.stdout
    assert f"image {SECURITY} is /hooks/security-hooks" in kagent.stdout
    guards = ("explain", "examples/guards/coder.py", "--hooks=examples/guards/hookline.yaml", "--on", on)
    assert f"no-network (command) runs in the {on}" in examples(*guards).stdout
    rows = json.loads(examples(*guards, "--json").stdout)
    assert {row["name"]: row["runs"] for row in rows["hooks"]} == {
        "no-force-push": "here",
        "no-network": f"in the {on}",
        "mask-secrets": "here",
    }
    workflow = examples("explain", "examples/symphony/WORKFLOW.md", "--on", on).stdout
    assert f"after_create  runs in the {on}, limit 10 s" in workflow
    assert "the agent runs here" in " ".join(workflow.split())


@pytest.mark.parametrize("file", ["guards/coder.py", "kagent/agent.yaml", "symphony/WORKFLOW.md"])
def test_explain_knows_the_same_places(examples, file):
    done = examples("explain", f"examples/{file}", "--on=moon", "--no-project-hooks")
    assert (done.returncode, "known: local, sandbox, container" in done.stderr) == (2, True)


@needs_sandbox
def test_a_url_is_asked_from_here_wherever_the_other_hooks_run(hookline):
    from http.server import BaseHTTPRequestHandler, HTTPServer
    from threading import Thread

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            body = b'{"decision": "block", "reason": "asked over HTTP"}'
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            (hookline.folder / "hookline.yaml").write_text(
                f"hooks:\n  - {{name: url, on: tool.start, http: 'http://127.0.0.1:{server.server_port}/'}}\n"
            )
            done = hookline("run", "agent.py", "go", "--hooks=hookline.yaml", "--on=sandbox")
        finally:
            server.shutdown()
            thread.join()
    assert (done.returncode, "blocked: asked over HTTP" in done.stderr) == (0, True), done.stderr


@needs_sandbox
def test_a_warm_hook_starts_cold_there_and_that_is_said(hookline):
    (hookline.folder / "answer.py").write_text('print(\'{"decision": "block", "reason": "cold"}\')')
    python = "python3" if shutil.which("python3", path="/usr/bin:/bin:/usr/local/bin") else sys.executable
    (hookline.folder / "hookline.yaml").write_text(
        f"hooks:\n  - {{name: w, on: tool.start, command: [{python}, answer.py], warm: fork}}\n"
    )
    done = hookline("run", "agent.py", "go", "--hooks=hookline.yaml", "--on=sandbox")
    assert "in the sandbox each call starts cold" in " ".join(done.stderr.split())
    assert "blocked: cold" in done.stderr
