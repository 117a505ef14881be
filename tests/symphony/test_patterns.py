"""The patterns of examples/symphony/patterns, each as it is but for its agent: real repositories, shells and servers."""

import http.server
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import threading
import zipfile
from pathlib import Path

import pytest

from hookline import MemoryJournal
from hookline.engine.pipeline import Recorder
from hookline.engine.record import Called
from hookline.errors import HookFailed
from hookline.runners.local import LocalRunner
from hookline.symphony.agents import TurnFailed
from hookline.symphony.attempt import Attempt, removed
from hookline.symphony.hooks import AttemptSite
from hookline.symphony.read import read_workflow
from hookline.symphony.run import agent_of
from hookline.symphony.trackers import Issue
from hookline.symphony.workspace import WorkspaceRoot, workspace_key

PATTERNS = Path(__file__).parents[2] / "examples" / "symphony" / "patterns"
EARNEST = "command: claude -p"
IDENTITY = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "tester"), ("EMAIL", "tester@localhost"))
}


class Pattern:
    """One of the files, with a shell script in the place of its agent."""

    def __init__(self, folder: Path, name: str, **env: str) -> None:
        self.folder = folder
        self.name = name
        (folder / "home").mkdir(exist_ok=True)
        inherited = {key: value for key, value in os.environ.items() if key not in ("CI", "PYTHONPATH")}
        self.env = {
            **inherited,
            "HOME": str(folder / "home"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "PYTHON": sys.executable,
            **env,
        }
        self.issue = Issue(id="1", identifier="ABC-123", title="Mend the fence", state="Todo")
        self.journal = MemoryJournal()

    @property
    def workspace(self) -> Path:
        return self.folder / "workspaces" / workspace_key(self.issue.identifier)

    async def run(self, agent: str = "true", number: int | None = None) -> None:
        """One attempt, by an agent that does this in its workspace."""
        file = self.folder / f"{self.name}.md"
        text = (PATTERNS / file.name).read_text()
        assert EARNEST in text
        script = shlex.quote(agent).replace("\\", "\\\\").replace('"', '\\"')
        file.write_text(text.replace(EARNEST, f'command: "sh -c {script}"\n  max_turns: 1'))

        async def work(site: AttemptSite) -> None:
            coding = agent_of(site.current(), site)
            await Attempt(issue=self.issue, tracker=None, number=number).run(site, coding)

        await self._at_site(work)

    async def close(self) -> None:
        """The issue is over: its workspace goes."""

        async def work(site: AttemptSite) -> None:
            found = site.root.find(workspace_key(self.issue.identifier))
            assert found is not None
            await removed(site, found, self.issue)

        await self._at_site(work)

    async def _at_site(self, work) -> None:
        workflow = read_workflow(self.folder / f"{self.name}.md", self.env, strict=True)
        runner = LocalRunner()
        try:
            with WorkspaceRoot(workflow.root) as root:
                await work(
                    AttemptSite(
                        current=lambda: workflow,
                        root=root,
                        runner=runner,
                        environ=self.env,
                        recorder=Recorder(self.journal),
                    )
                )
        finally:
            await runner.close()

    def errors(self, hook: str) -> list[str]:
        records = [each for row in self.journal.runs() for each in self.journal.records(row.run_id)]
        return [
            each.error for each in records if isinstance(each, Called) and each.hook == hook and each.error
        ]


class Repository:
    """A remote, and a clone of it from which commits are pushed."""

    def __init__(self, folder: Path, **files: str) -> None:
        self.remote = folder / "remote.git"
        self.clone = folder / "clone"
        self.git("init", "--quiet", "--bare", "--initial-branch=main", str(self.remote), at=folder)
        self.git("clone", "--quiet", str(self.remote), str(self.clone), at=folder)
        self.git("switch", "--quiet", "--create", "main")
        self.commit(files or {"README": "hello\n"})

    @property
    def url(self) -> str:
        return self.remote.as_uri()

    def commit(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            file = self.clone / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
            if text.startswith("#!"):
                file.chmod(0o755)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a change")
        self.git("push", "--quiet", "origin", "main")

    def git(self, *words: str, at: Path | None = None) -> str:
        env = {**os.environ, **IDENTITY, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(
            ["git", *words], cwd=at or self.clone, env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def branches(self) -> list[str]:
        return self.git("for-each-ref", "--format=%(refname:short)", at=self.remote).splitlines()


class Receiver(http.server.BaseHTTPRequestHandler):
    """Takes what is PUT or POSTed."""

    def take(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.got[self.path] = content
        self.send_response(201)
        self.end_headers()

    do_PUT = do_POST = take

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    made.got = {}
    thread = threading.Thread(target=made.serve_forever)
    thread.start()
    made.url = f"http://127.0.0.1:{made.server_address[1]}"
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def test_every_pattern_is_run_here():
    text = Path(__file__).read_text()
    assert [file.stem for file in PATTERNS.glob("*.md") if f'"{file.stem}"' not in text] == []


@pytest.mark.statement("SC9", "SC15", "SC48", "SW8", "SW9", "SW20")
async def test_a_repository_is_cloned_and_set_up_once_and_pulled_before_each_run(tmp_path):
    repository = Repository(
        tmp_path, **{"README": "one\n", "bin/install": "#!/bin/sh\nmkdir .git/deps && echo installed\n"}
    )
    pattern = Pattern(tmp_path, "clone-and-set-up", REPOSITORY=repository.url)
    await pattern.run("git branch --show-current > .git/branch")
    assert (pattern.workspace / ".git/branch").read_text() == "issue/ABC-123\n"
    assert (pattern.workspace / ".git/deps").is_dir()
    assert (pattern.workspace / ".env").read_text() == "ISSUE=ABC-123\nDATABASE=test\n"

    repository.commit({"README": "two\n"})
    await pattern.run("cat README > .git/seen", 1)
    assert (pattern.workspace / ".git/seen").read_text() == "two\n"
    assert pattern.errors("after_create") == []


@pytest.mark.statement("SC15", "SW9")
async def test_a_check_before_the_run_keeps_the_agent_from_what_it_should_not_touch(tmp_path):
    repository = Repository(tmp_path)
    pattern = Pattern(tmp_path, "clone-and-set-up", REPOSITORY=repository.url)
    await pattern.run("echo changed > README")
    with pytest.raises(HookFailed, match="uncommitted changes here"):
        await pattern.run("touch .git/agent")
    assert not (pattern.workspace / ".git/agent").exists()


@pytest.mark.statement("SC9", "SW8")
async def test_a_clone_that_fails_is_told_with_what_git_said_and_nothing_is_left(tmp_path):
    pattern = Pattern(tmp_path, "clone-and-set-up", REPOSITORY=(tmp_path / "nowhere").as_uri())
    with pytest.raises(HookFailed, match=r"nowhere.*[\s\S]*Can it reach what it clones"):
        await pattern.run()
    assert not pattern.workspace.exists()


@pytest.mark.statement("SC48", "SC9", "SW8")
async def test_a_workspace_has_a_python_environment_of_its_own(tmp_path):
    wheel(tmp_path / "wheels")
    repository = Repository(tmp_path, **{"requirements.txt": "fence==1.0\n"})
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path / "wheels")}
    found |= {"UV_NO_INDEX": "1", "UV_FIND_LINKS": str(tmp_path / "wheels"), "UV_OFFLINE": "1"}
    pattern = Pattern(tmp_path, "python-environment", REPOSITORY=repository.url, **found)
    await pattern.run(".venv/bin/python -c 'import fence; print(fence.__file__)' > where")
    where = Path((pattern.workspace / "where").read_text().strip())
    assert where.is_relative_to(pattern.workspace / ".venv")


def wheel(folder: Path) -> None:
    """The least that pip installs."""
    folder.mkdir()
    about = "fence-1.0.dist-info"
    with zipfile.ZipFile(folder / "fence-1.0-py3-none-any.whl", "w") as file:
        file.writestr("fence.py", "")
        file.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: fence\nVersion: 1.0\n")
        file.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{about}/RECORD", "fence.py,,\n")


MISE = """#!/bin/sh
echo "$@" >> "$HOME/mise.log"
case "$1" in
  exec) shift 2; exec "$@" ;;
esac
"""


@pytest.mark.statement("SC9", "SC45", "SC48")
async def test_tools_are_installed_by_the_version_manager_that_the_profile_puts_on_the_path(tmp_path):
    repository = Repository(tmp_path, **{".tool-versions": "tool 1.4\n"})
    pattern = Pattern(tmp_path, "tool-versions", REPOSITORY=repository.url)
    bin = tmp_path / "home" / "bin"
    bin.mkdir()
    for name, text in {"mise": MISE, "tool": "#!/bin/sh\necho tool 1.4.2\n"}.items():
        (bin / name).write_text(text)
        (bin / name).chmod(0o755)
    (tmp_path / "home" / ".profile").write_text('PATH="$HOME/bin:$PATH"\n')
    await pattern.run()
    assert (tmp_path / "home/mise.log").read_text().splitlines() == [
        "trust",
        "install",
        "exec -- tool --version",
    ]


@pytest.mark.statement("SC15", "SC48", "SW9")
@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("git 0.0.1-never", "git 0.0.1-never is needed, this is: git version"),
        ("no-such-tool-here 3", "no-such-tool-here is not installed; 3 is needed"),
    ],
)
async def test_a_tool_that_is_wrong_is_told_before_the_agent_runs_into_it(tmp_path, wanted, said):
    repository = Repository(tmp_path, **{".tool-versions": f"{wanted}\n"})
    pattern = Pattern(tmp_path, "tool-versions", REPOSITORY=repository.url)
    # Neither mise nor asdf, whatever else is on this machine.
    only = tmp_path / "home" / "only"
    only.mkdir()
    (only / "git").symlink_to(shutil.which("git"))
    (tmp_path / "home" / ".profile").write_text(f'PATH="{only}"\n')
    with pytest.raises(HookFailed, match=said):
        await pattern.run("touch agent")
    assert not (pattern.workspace / "agent").exists()


@pytest.mark.statement("SC25", "SC48", "SW10")
async def test_what_a_run_made_is_uploaded_with_its_figures_and_a_word_however_it_ended(tmp_path, server):
    pattern = Pattern(
        tmp_path,
        "artifact-upload",
        ARTIFACTS=f"{server.url}/artifacts",
        METRICS=str(tmp_path / "metrics.csv"),
        NOTIFY=f"{server.url}/notify",
    )
    with pytest.raises(TurnFailed):
        await pattern.run("echo report > artifacts/report.txt; echo noticed > logs/run.log; exit 3")
    [(path, content)] = [(path, content) for path, content in server.got.items() if path.startswith("/art")]
    assert path.startswith("/artifacts/ABC-123-")
    (tmp_path / "got.tar.gz").write_bytes(content)
    with tarfile.open(tmp_path / "got.tar.gz") as got:
        assert {"artifacts/report.txt", "logs/run.log"} <= set(got.getnames())
    assert server.got["/notify"] == b"ABC-123 ended: failed"
    identifier, number, outcome, seconds = (tmp_path / "metrics.csv").read_text().strip().split(",")
    assert (identifier, number, outcome, int(seconds) >= 0) == ("ABC-123", "0", "failed", True)
    assert list((pattern.workspace / "tmp").iterdir()) == []


@pytest.mark.statement("SC22", "SC25")
async def test_an_upload_may_also_be_a_copy_and_one_that_fails_does_not_spoil_the_run(tmp_path):
    where = {"ARTIFACTS": str(tmp_path / "kept"), "METRICS": str(tmp_path / "metrics.csv")}
    pattern = Pattern(tmp_path, "artifact-upload", **where)
    await pattern.run("echo report > artifacts/report.txt")
    [kept] = (tmp_path / "kept").iterdir()
    with tarfile.open(kept) as got:
        assert "artifacts/report.txt" in got.getnames()

    pattern.env["ARTIFACTS"] = "http://127.0.0.1:9/nobody"
    await pattern.run(number=1)
    [error] = pattern.errors("after_run")
    assert "127.0.0.1" in error


@pytest.mark.statement("SC48", "SW20")
@pytest.mark.parametrize(
    ("files", "title", "ci", "kind"),
    [
        ({"package.json": "{}"}, "Mend the fence", "true", ["node", "code", "ci"]),
        ({"pyproject.toml": ""}, "Write docs", "", ["python", "docs", "desk"]),
        ({"README": "x"}, "Docs", "no", ["plain", "docs", "desk"]),
    ],
)
async def test_set_up_may_depend_on_the_repository_the_issue_and_the_machine(
    tmp_path, files, title, ci, kind
):
    repository = Repository(tmp_path, **files)
    pattern = Pattern(tmp_path, "conditional-set-up", REPOSITORY=repository.url, CI=ci)
    pattern.issue = Issue(id="1", identifier="ABC-123", title=title, state="Todo")
    await pattern.run()
    assert (pattern.workspace / ".kind").read_text().split() == kind


@pytest.mark.statement("SC48", "SW20")
async def test_a_condition_on_the_attempt_resets_only_after_failures(tmp_path):
    repository = Repository(tmp_path)
    pattern = Pattern(tmp_path, "conditional-set-up", REPOSITORY=repository.url)
    with pytest.raises(TurnFailed):
        await pattern.run("echo half > README; exit 1")
    await pattern.run("cp README .git/first", 1)
    await pattern.run("cp README .git/second", 2)
    seen = [(pattern.workspace / ".git" / name).read_text() for name in ("first", "second")]
    assert seen == ["half\n", "hello\n"]


@pytest.mark.statement("SC15", "SW9", "SW20")
async def test_dependencies_are_installed_again_only_when_the_lock_file_has_changed(tmp_path):
    install = "#!/bin/sh\ncat deps.lock >> .git/installs\n"
    repository = Repository(tmp_path, **{"bin/install": install, "deps.lock": "one\n"})
    pattern = Pattern(tmp_path, "dependency-sync", REPOSITORY=repository.url)
    installs = pattern.workspace / ".git/installs"
    await pattern.run()
    await pattern.run(number=1)
    assert installs.read_text() == "one\n"
    repository.commit({"deps.lock": "two\n"})
    await pattern.run(number=1)
    assert installs.read_text() == "one\ntwo\n"


@pytest.mark.statement("SW10", "SW20", "SC25")
async def test_what_a_run_left_is_a_commit_and_a_line_on_the_dashboard(tmp_path):
    repository = Repository(tmp_path)
    pattern = Pattern(
        tmp_path,
        "work-in-progress-commit",
        REPOSITORY=repository.url,
        DASHBOARD=str(tmp_path / "dashboard"),
    )
    with pytest.raises(TurnFailed):
        await pattern.run("echo half > README; echo new > new.txt; exit 1")
    log = "log", "--format=%s", "issue/ABC-123"
    assert repository.git(*log, at=repository.remote).splitlines()[0] == "WIP ABC-123: failed"
    assert repository.git("show", "issue/ABC-123:new.txt", at=repository.remote) == "new"
    head = repository.git("rev-parse", "--short", "issue/ABC-123", at=repository.remote)
    assert (tmp_path / "dashboard/ABC-123").read_text() == f"ABC-123 failed {head}\n"

    await pattern.run(number=1)
    assert repository.git(*log, at=repository.remote).count("WIP") == 1, "nothing new is no commit"
    assert (tmp_path / "dashboard/ABC-123").read_text() == f"ABC-123 ok {head}\n"


@pytest.mark.statement("SC33", "SW11", "SW20")
async def test_before_it_goes_a_workspace_is_archived_and_its_branch_deleted(tmp_path, server):
    repository = Repository(tmp_path)
    pattern = Pattern(
        tmp_path,
        "archival",
        REPOSITORY=repository.url,
        ARCHIVE=str(tmp_path / "archive"),
        NOTIFY=f"{server.url}/notify",
    )
    await pattern.run("echo half > README; echo made > made.txt")
    assert "issue/ABC-123" in repository.branches()
    await pattern.close()
    assert not pattern.workspace.exists()
    assert repository.branches() == ["main"]
    with tarfile.open(tmp_path / "archive/ABC-123.tar.gz") as kept:
        names = kept.getnames()
    assert "./made.txt" in names
    assert not any(name.startswith("./.git") for name in names)
    snapshot = (tmp_path / "archive/ABC-123.txt").read_text()
    assert "?? made.txt" in snapshot
    assert "+half" in snapshot
    assert server.got["/notify"] == b"ABC-123 is archived"


@pytest.mark.statement("SC31", "SC32", "SC33")
async def test_an_archive_that_cannot_be_written_does_not_keep_the_workspace(tmp_path):
    repository = Repository(tmp_path)
    (tmp_path / "archive").write_text("a file in its place")
    archive = str(tmp_path / "archive")
    pattern = Pattern(tmp_path, "archival", REPOSITORY=repository.url, ARCHIVE=archive)
    await pattern.run()
    await pattern.close()
    assert not pattern.workspace.exists()
    [error] = pattern.errors("before_remove")
    assert "archive" in error


MIGRATE = """\
import pathlib
import sqlite3
import sys

database = sqlite3.connect(sys.argv[1])
[(done,)] = database.execute("PRAGMA user_version")
for number, file in enumerate(sorted(pathlib.Path(sys.argv[2]).glob("*.sql")), 1):
    if number > done:
        database.executescript(f"{file.read_text()}; PRAGMA user_version = {number}")
database.close()
"""


@pytest.mark.statement("SW8", "SW20", "SC33", "SW11")
async def test_a_database_is_made_brought_up_to_date_and_dropped_with_the_workspace(tmp_path):
    first = {"bin/migrate.py": MIGRATE, "migrations/1.sql": "CREATE TABLE fence (post TEXT)"}
    repository = Repository(tmp_path, **first)
    where = tmp_path / "databases"
    pattern = Pattern(tmp_path, "database-bootstrap", REPOSITORY=repository.url, DATABASES=str(where))
    await pattern.run()
    assert tables(where / "ABC-123.db") == ["fence"]
    repository.commit({"migrations/2.sql": "CREATE TABLE gate (hinge TEXT)"})
    await pattern.run(number=1)
    assert tables(where / "ABC-123.db") == ["fence", "gate"]
    await pattern.close()
    assert list(where.iterdir()) == []


def tables(file: Path) -> list[str]:
    database = sqlite3.connect(file)
    try:
        return sorted(name for (name,) in database.execute("SELECT name FROM sqlite_master"))
    finally:
        database.close()
