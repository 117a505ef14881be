"""Workspaces: each issue in its own folder, never outside the root, never half-made, gone without a trace."""

import asyncio
import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hookline.symphony.workspace import OWN, Workspace, WorkspaceError, WorkspaceRoot, workspace_key


@pytest.fixture
def root(tmp_path):
    with WorkspaceRoot(str(tmp_path / "ws")) as opened:
        yield opened


def ready(root: WorkspaceRoot, identifier: str = "ABC-1", run_id: str = "r1") -> Workspace:
    made = root.begin(identifier, issue_id="u1", title="t", run_id=run_id)
    return root.finish(made) if made.state == "making" else made


def fault(call, *args) -> WorkspaceError:
    with pytest.raises(WorkspaceError) as told:
        call(*args)
    return told.value


def trash(root: WorkspaceRoot) -> list[str]:
    return os.listdir(Path(root.path) / OWN / "trash")


@pytest.mark.rule("W15", "M16", "M25", "M26")
@pytest.mark.parametrize("identifier", ["ABC-123", "a.b_c-9", ".git", "-x", "...", "GH-1", "x" * 255])
def test_a_harmless_identifier_is_its_own_key(identifier):
    assert workspace_key(identifier) == identifier


@pytest.mark.rule("W15", "M25", "M26")
@pytest.mark.parametrize(
    ("identifier", "tamed"),
    [
        ("team/a-1", "team_a-1"),
        ("../../etc", ".._.._etc"),
        ("/etc/passwd", "_etc_passwd"),
        ("two words", "two_words"),
        ("fix 🐛", "fix__"),
        ("Ünï", "_n_"),
        ("a\nb\0c", "a_b_c"),
        ("\ud800", "_"),
        ("~", "_"),
        (OWN, ".hookline_"),
    ],
)
def test_any_other_is_tamed_and_has_a_digest_of_the_real_one(identifier, tamed):
    digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    assert workspace_key(identifier) == f"{tamed}--{digest}"


@pytest.mark.rule("W15")
def test_no_identifier_is_issue():
    assert workspace_key(None) == "issue"


@pytest.mark.rule("W16")
@pytest.mark.parametrize(
    ("identifier", "kind"),
    [
        (".", "workspace_equals_root"),
        ("..", "workspace_outside_root"),
        ("", "workspace_equals_root"),
        ("x" * 300, "workspace_path_unreadable"),
        ("/" * 300, "workspace_path_unreadable"),
    ],
)
def test_what_would_be_the_root_or_no_folder_at_all_is_refused(root, identifier, kind):
    assert fault(root.begin, identifier).kind == kind
    assert os.listdir(root.path) == [OWN]


@pytest.mark.rule("W15", "W16")
@given(st.text(max_size=300), st.text(max_size=300))
def test_every_key_is_one_plain_name_and_different_issues_have_different_ones(one, other):
    keys = []
    for identifier in (one, other):
        try:
            keys.append(workspace_key(identifier))
        except WorkspaceError:
            return
    assert all(re.fullmatch(r"[A-Za-z0-9._-]{1,255}", key) and key not in (".", "..") for key in keys)
    assert (keys[0] == keys[1]) == (one == other)


@pytest.mark.rule("W16", "W17", "W19", "M16", "M17", "M18", "M27")
def test_a_workspace_is_made_once_and_then_reused_untouched(root):
    first = root.begin("ABC-1", issue_id="u1", run_id="r1")
    assert (first.state, first.path) == ("making", f"{root.path}/ABC-1")
    root.finish(first)
    Path(first.path, "work").write_text("mine")
    again = root.begin("ABC-1", issue_id="u1", run_id="r2")
    assert (again.state, again.path, again.run_id) == ("ready", first.path, "r1")
    assert os.listdir(first.path) == ["work"]
    with root.opened(again) as folder:
        assert os.path.samefile(folder, first.path)
    assert root.checked(again) == first.path


@pytest.mark.rule("W15", "M26")
def test_twins_have_folders_of_their_own(root):
    made = [ready(root, name) for name in ("team/a-1", "team_a-1", "abc-1", "ABC-1")]
    assert len({each.path for each in made}) == 4


def test_an_issue_named_after_another_ones_key_does_not_get_its_folder(root):
    ready(root, "a/b")
    error = fault(root.begin, workspace_key("a/b"))
    assert (error.kind, "belongs to the issue 'a/b'" in str(error)) == ("workspace_taken", True)


@pytest.mark.rule("W19", "W20")
def test_a_folder_that_somebody_else_made_is_used_as_it_is(root):
    Path(root.path, "ABC-1").mkdir()
    Path(root.path, "ABC-1", "kept").touch()
    found = root.begin("ABC-1", issue_id="u1", run_id="r9")
    assert (found.state, found.run_id) == ("ready", "r9")
    assert os.listdir(found.path) == ["kept"]
    assert root.begin("ABC-1", run_id="r10").run_id == "r9"


@pytest.mark.rule("W19", "M19")
def test_a_file_in_its_place_is_refused_and_not_touched(root):
    Path(root.path, "ABC-1").write_text("precious")
    error = fault(root.begin, "ABC-1")
    assert error.kind == "workspace_not_a_folder"
    assert "move it away" in str(error)
    assert Path(root.path, "ABC-1").read_text() == "precious"


@pytest.mark.rule("W17", "C7", "M25", "M27")
@pytest.mark.parametrize("target", ["outside", "inside", "nowhere", "itself"])
def test_a_link_in_its_place_is_refused_wherever_it_leads(root, tmp_path, target):
    (tmp_path / "outside").mkdir()
    inside = ready(root, "OTHER-1")
    places = {
        "outside": tmp_path / "outside",
        "inside": inside.path,
        "nowhere": "/no/where",
        "itself": "ABC-1",
    }
    os.symlink(places[target], Path(root.path, "ABC-1"))
    error = fault(root.begin, "ABC-1")
    assert error.kind == "workspace_symlink_escape"
    assert f"is a link to {str(places[target])!r}" in str(error)


@pytest.mark.rule("W17", "C7")
def test_a_root_that_is_a_link_is_what_it_leads_to(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with WorkspaceRoot(str(tmp_path / "link")) as root:
        assert root.path == str(tmp_path / "real")
        assert ready(root).path == str(tmp_path / "real/ABC-1")


@pytest.mark.rule("W18", "M27")
def test_a_link_swapped_in_after_the_check_does_not_lead_out(root, tmp_path):
    (tmp_path / "outside").mkdir()
    made = ready(root)
    with root.opened(made) as folder:
        os.rename(made.path, made.path + ".moved")
        os.symlink(tmp_path / "outside", made.path)
        done = subprocess.run(
            ["sh", "-c", "echo x > written; pwd -P"], cwd=folder, capture_output=True, text=True
        )
    assert done.stdout.strip() == made.path + ".moved"
    assert os.listdir(tmp_path / "outside") == []
    for look in (root.opened(made).__enter__, lambda: root.checked(made), lambda: root.exists(made)):
        assert "is a link" in str(fault(look))
    assert fault(root.checked, made).kind == "invalid_workspace_cwd"


@pytest.mark.rule("W18", "W21")
async def test_a_swapped_link_is_not_deleted_through(root, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    made = ready(root)
    os.rmdir(made.path)
    os.symlink(tmp_path / "outside", made.path)
    with pytest.raises(WorkspaceError):
        await root.discard(made)
    assert (tmp_path / "outside/precious").exists()


@pytest.mark.rule("W18")
def test_a_root_that_was_moved_away_is_seen_before_an_agent_starts(root, tmp_path):
    made = ready(root)
    os.rename(root.path, str(tmp_path / "away"))
    os.makedirs(made.path)
    error = fault(root.checked, made)
    assert (error.kind, "is not the workspace any more" in str(error)) == ("invalid_workspace_cwd", True)


@pytest.mark.rule("W18")
def test_a_workspace_that_is_gone_is_told_before_an_agent_starts(root):
    made = ready(root)
    os.rmdir(made.path)
    assert fault(root.checked, made).kind == "invalid_workspace_cwd"
    assert not root.exists(made)


@pytest.mark.rule("W19", "W20")
def test_one_deleted_by_hand_is_made_anew(root):
    made = ready(root)
    os.rmdir(made.path)
    again = root.begin("ABC-1", run_id="r2")
    assert (again.state, again.run_id) == ("making", "r2")


def test_a_half_made_one_is_known_as_such_after_a_crash(tmp_path):
    with WorkspaceRoot(str(tmp_path)) as before:
        before.begin("ABC-1", run_id="r1")
    with WorkspaceRoot(str(tmp_path)) as after:
        (found,) = after.listed()
        assert (found.state, found.identifier, found.run_id) == ("making", "ABC-1", "r1")
        assert fault(after.begin, "ABC-1").kind == "workspace_busy"
        asyncio.run(after.discard(found))
        assert after.listed() == []
        assert after.begin("ABC-1").state == "making"


@pytest.mark.parametrize("name", ["making", "mkdir", "finish", "ending", "moved", "deleted"])
def test_killed_at_any_step_it_is_whole_or_known_not_to_be(tmp_path, name):
    """A process of its own ends itself right after each system call that changes anything."""
    code = f"""
import asyncio, os, sys
from hookline.symphony.workspace import WorkspaceRoot
root = WorkspaceRoot({str(tmp_path)!r})
stop = {name!r}
def after(step):
    if step == stop:
        os._exit(9)
mkdir = os.mkdir
def watched(*args, **kwargs):
    after("making")
    mkdir(*args, **kwargs)
    after("mkdir")
os.mkdir = watched
made = root.begin("ABC-1", run_id="r1")
os.mkdir = mkdir
open(os.path.join(made.path, "file"), "w").close()
made = root.finish(made)
after("finish")
made = root.to_be_removed(made)
after("ending")
rename = os.rename
def moved(*args, **kwargs):
    rename(*args, **kwargs)
    after("moved")
os.rename = moved
asyncio.run(root.discard(made))
after("deleted")
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    with WorkspaceRoot(str(tmp_path)) as root:
        states = {each.key: each.state for each in root.listed()}
        expected = {
            "making": "making",
            "mkdir": "making",
            "finish": "ready",
            "ending": "ending",
            "moved": "ending",
        }
        assert states == ({"ABC-1": expected[name]} if name in expected else {})
        assert Path(tmp_path, "ABC-1").exists() == (name in ("mkdir", "finish", "ending"))
        asyncio.run(root.empty_trash())
        assert trash(root) == []


@pytest.mark.rule("W21")
async def test_removing_deletes_everything_and_what_is_missing_is_removed_already(root):
    made = ready(root)
    Path(made.path, "deep/er").mkdir(parents=True)
    Path(made.path, "deep/er/file").touch()
    await root.discard(made)
    assert not os.path.exists(made.path)
    assert (root.listed(), trash(root)) == ([], [])
    await root.discard(made)


async def test_links_in_a_workspace_are_deleted_and_not_followed(root, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/precious").touch()
    made = ready(root)
    os.symlink(tmp_path / "outside", Path(made.path, "out"))
    Path(made.path, "in").mkdir()
    os.symlink("..", Path(made.path, "in/up"))
    await root.discard(made)
    assert (tmp_path / "outside/precious").exists()
    assert trash(root) == []


async def test_no_depth_is_too_deep(root):
    made = ready(root)
    here = os.open(made.path, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    await root.discard(made)
    assert trash(root) == []


def test_permissions_that_a_hook_took_away_do_not_stop_the_deletion(tmp_path):
    code = """
import asyncio, os, sys
from hookline.symphony.workspace import WorkspaceRoot
with WorkspaceRoot(sys.argv[1]) as root:
    made = root.finish(root.begin("ABC-1", run_id="r"))
    os.makedirs(made.path + "/a/b")
    open(made.path + "/a/b/file", "w").close()
    for path in ("/a/b", "/a", ""):
        os.chmod(made.path + path, 0)
    try:
        root.checked(made)
    except Exception as exc:
        print(exc.kind)
    asyncio.run(root.discard(made))
    print(os.path.exists(made.path), os.listdir(root.path + "/.hookline~/trash"))
"""
    done = stopped_by_permissions(code, tmp_path)
    assert done.stdout.splitlines() == ["invalid_workspace_cwd", "False []"], done.stderr


def test_a_root_that_may_not_be_written_is_told_as_that(tmp_path):
    (tmp_path / "ro").mkdir(mode=0o555)
    code = """
import sys
from hookline.symphony.workspace import WorkspaceRoot, WorkspaceError
try:
    WorkspaceRoot(sys.argv[1] + "/ro/ws")
except WorkspaceError as exc:
    print(exc.kind, exc)
"""
    done = stopped_by_permissions(code, tmp_path)
    assert "root_unusable workspace.root" in done.stdout, done.stderr
    assert "you may not write there" in done.stdout


def stopped_by_permissions(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run as somebody to whom permissions mean something: root too, where it gives up that privilege."""
    given_up = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.getuid() == 0 else []
    return subprocess.run(
        [*given_up, sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False
    )


DISK = """
import asyncio, os, subprocess, sys
from hookline.symphony.workspace import WorkspaceRoot, WorkspaceError
folder, then = sys.argv[1:]
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], check=True)
root = WorkspaceRoot(folder)
kept = root.finish(root.begin("ABC-1", run_id="r"))

def told(act):
    try:
        act()
        print("done")
    except WorkspaceError as exc:
        print(exc.kind, exc)

if then == "full":
    filling = os.open(kept.path + "/filling", os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(filling, b"x" * 4096)
    except OSError:
        os.close(filling)
    told(lambda: root.begin("ABC-2", run_id="r"))
    told(lambda: asyncio.run(root.discard(kept)))
else:
    root.close()
    subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
    told(lambda: WorkspaceRoot(folder))
    told(lambda: WorkspaceRoot(folder + "/below"))
    root = WorkspaceRoot(folder, lock=False)
print([each.key for each in root.listed()])
"""


def on_a_disk(folder: Path, then: str) -> list[str]:
    """In a mount namespace of its own: nobody else sees the disk, and it is gone with the process."""
    apart = ["unshare", "-m" if os.getuid() == 0 else "-rm"]
    if subprocess.run([*apart, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mounts can be made here")
    command = [*apart, sys.executable, "-c", DISK, str(folder), then]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_full_disk_is_told_as_that_leaves_nothing_half_made_and_can_be_cleared(tmp_path):
    made, removed, left = on_a_disk(tmp_path, "full")
    assert made.startswith("root_unusable the workspace")
    assert made.endswith("cannot be made: the disk is full; free some space")
    assert (removed, left) == ("done", "[]")


def test_a_read_only_disk_is_told_as_that_and_can_be_looked_at(tmp_path):
    *refused, left = on_a_disk(tmp_path, "read-only")
    assert len(refused) == 2
    for told in refused:
        assert told.startswith("root_unusable workspace.root")
        assert told.endswith("cannot be used: the disk is read-only; give another workspace.root")
    assert left == "['ABC-1']"


async def test_the_loop_goes_on_while_a_large_tree_is_deleted(root):
    made = ready(root)
    for number in range(2000):
        Path(made.path, str(number)).touch()
    turns = 0

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    await root.discard(made)
    ticking.cancel()
    assert turns > 0


@pytest.mark.parametrize("place", ["file", "below a file", "loop"])
def test_a_root_that_can_be_no_folder_is_told(tmp_path, place):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to("loop")
    path = {"file": "file", "below a file": "file/ws", "loop": "loop"}[place]
    error = fault(WorkspaceRoot, str(tmp_path / path))
    assert error.kind == "root_unusable"
    assert path in str(error)


def test_two_services_never_share_a_root_and_the_second_is_told_who_has_it(tmp_path):
    with WorkspaceRoot(str(tmp_path), holder="hookline serve WORKFLOW.md"):
        error = fault(WorkspaceRoot, str(tmp_path))
        assert error.kind == "root_locked"
        assert f"held by hookline serve WORKFLOW.md (process {os.getpid()} on " in str(error)
        with WorkspaceRoot(str(tmp_path), lock=False) as looking:
            assert looking.listed() == []
    WorkspaceRoot(str(tmp_path)).close()


def test_a_service_that_was_killed_holds_nothing(tmp_path):
    code = f"""
import os, signal
from hookline.symphony.workspace import WorkspaceRoot
root = WorkspaceRoot({str(tmp_path)!r})
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False)
    WorkspaceRoot(str(tmp_path)).close()


def test_looking_makes_nothing(tmp_path):
    with WorkspaceRoot(str(tmp_path), lock=False) as root:
        assert root.listed() == []
    assert os.listdir(tmp_path) == []


def test_a_workspace_is_worked_on_by_one_at_a_time(root):
    with root.held("ABC-1"):
        assert fault(root.held("ABC-1").__enter__).kind == "workspace_busy"
        with root.held("ABC-2"):
            pass
    with root.held("ABC-1"):
        pass


@pytest.mark.parametrize("key", ["..", ".", "a/b", "", OWN])
def test_a_key_that_is_none_is_refused(root, key):
    assert fault(root.find, key).kind == "workspace_outside_root"


def test_what_cannot_be_deleted_is_told_is_out_of_the_way_and_goes_later(tmp_path):
    code = """
import asyncio, os, resource, sys
from hookline.symphony.workspace import WorkspaceRoot, WorkspaceError
with WorkspaceRoot(sys.argv[1]) as root:
    made = root.finish(root.begin("ABC-1", run_id="r"))
    os.makedirs(made.path + "/a/b")

    async def main():
        await root.empty_trash()
        last = os.dup(0)
        os.close(last)
        usual = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (last + 2, usual[1]))
        try:
            await root.discard(made)
        except WorkspaceError as exc:
            print(exc.kind, exc)
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        print(root.begin("ABC-1", run_id="r2").state == "making")
        await root.empty_trash()
        print(os.listdir(root.path + "/.hookline~/trash"))

    asyncio.run(main())
"""
    done = stopped_by_permissions(code, tmp_path)
    told, anew, left = done.stdout.splitlines() or [done.stderr, "", ""]
    assert told.startswith("workspace_not_deleted"), done.stderr
    assert "too many files are open" in told
    assert (anew, left) == ("True", "[]")
