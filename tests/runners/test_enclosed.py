"""Orders for this machine, run in a sandbox or a container: what they see there, and what not."""

import os
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from hookline.errors import UsageError
from hookline.runners import Mount, Order
from hookline.runners.container import ContainerRunner
from hookline.runners.places import PLACES, EnclosedRunner
from hookline.runners.sandbox import SandboxRunner
from tests.runners.places import IMAGE, PATH


def shown(folder, **more):
    return Mount(target=str(folder), source=str(folder), **more)


def targets(order):
    return {each.target: each.source for each in order.mounts}


def enclosed(place="sandbox", **given):
    """A runner that only says how it would run an order."""
    inner: Any = SimpleNamespace(capabilities=PLACES[place])
    return EnclosedRunner(inner, **given)


HERE = {
    "HOME": "/home/me",
    "PATH": "/usr/bin",
    "TMPDIR": "/var/tmp",
    "XDG_CACHE_HOME": "/c",
    "PYTHONPATH": "/p",
}


@pytest.mark.parametrize(
    ("env", "own_programs", "left"),
    [
        ({**HERE, "TEAM": "blue"}, False, {"HOME": "/tmp", "PATH": "/usr/bin", "PYTHONPATH": "/p", "TEAM": "blue"}),
        ({**HERE, "TEAM": "blue"}, True, {"TEAM": "blue"}),
        # What somebody set on purpose is not this machine's.
        ({"HOME": "/srv", "PATH": "/opt/bin"}, False, {"HOME": "/srv", "PATH": "/opt/bin"}),
        ({"HOME": "/srv", "PATH": "/opt/bin"}, True, {"HOME": "/srv", "PATH": "/opt/bin"}),
    ],
)  # fmt: skip
def test_variables_that_only_lead_to_this_machine_s_places_are_left_out(env, own_programs, left):
    place = "container" if own_programs else "sandbox"
    assert enclosed(place, environ=HERE).inside(Order(argv=("x",), env=env)).env == left


def test_of_many_folders_it_sees_the_one_that_it_works_in(tmp_path):
    inner = tmp_path / "root" / "ABC-1" / "src"
    inner.mkdir(parents=True)
    given = enclosed(each_of=str(tmp_path / "root"), mounts=(shown(tmp_path / "more"),))
    fd = os.open(inner, os.O_RDONLY)
    try:
        # As an open folder of this process, which is none of that of the other's.
        for cwd in (str(inner), f"/proc/self/fd/{fd}"):
            order = given.inside(Order(argv=("x",), cwd=cwd))
            assert order.cwd == str(inner)
            own = str(tmp_path / "root" / "ABC-1")
            assert targets(order) == {own: own, str(tmp_path / "more"): str(tmp_path / "more")}
    finally:
        os.close(fd)
    outside = given.inside(Order(argv=("x",), cwd=str(tmp_path / "root")))
    assert list(targets(outside)) == [str(tmp_path / "more")]


def test_what_is_hidden_has_an_empty_folder_over_it_wherever_a_mount_would_show_it(tmp_path):
    hidden = tmp_path / "work" / "state"
    hidden.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "work")
    given = enclosed(
        mounts=(Mount(target="/data", source=str(tmp_path / "link")), shown(tmp_path / "other")),
        hidden=str(hidden),
    )
    order = given.inside(Order(argv=("x",)))
    assert targets(order) == {
        "/data": str(tmp_path / "link"),
        str(tmp_path / "other"): str(tmp_path / "other"),
        "/data/state": None,
    }


def test_a_mount_of_what_is_to_be_hidden_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"the journal is in .*; set HOOKLINE_HOME to another folder"):
        enclosed(mounts=(shown(tmp_path),), hidden=str(tmp_path))


@pytest.fixture(params=["sandbox", pytest.param("container", marks=pytest.mark.real)])
async def inside(request, tmp_path):
    """A place that sees one workspace, in which the state is hidden."""
    request.getfixturevalue({"sandbox": "bubblewrap", "container": "image"}[request.param])
    makes = {"sandbox": SandboxRunner, "container": lambda: ContainerRunner(pull="never")}
    workspace = tmp_path / "workspace"
    (workspace / "state").mkdir(parents=True)
    (workspace / "state" / "journal.db").write_text("secret")
    (tmp_path / "outside.txt").write_text("secret")
    runner = EnclosedRunner(
        makes[request.param](),
        mounts=(shown(workspace),),
        hidden=str(workspace / "state"),
        image=IMAGE if request.param == "container" else None,
        environ=dict(os.environ),
    )
    yield runner, workspace
    await runner.close()


async def test_a_process_works_in_its_folder_and_sees_nothing_beside_it(inside):
    runner, workspace = inside
    script = "pwd; touch made; cat ../outside.txt || echo none; ls state; cat state/journal.db || echo none"
    order = Order(argv=("sh", "-c", script), cwd=str(workspace), env={"PATH": PATH}, timeout=60)
    ending = await runner.run(order)
    assert ending.exit_code == 0, ending.in_words()
    assert ending.stdout.text == f"{workspace}\nnone\nnone\n"
    assert (workspace / "made").exists()
    assert await runner.trouble() is None


async def test_a_folder_that_is_not_seen_is_no_place_to_start_in(inside):
    runner, workspace = inside
    ending = await runner.run(Order(argv=("true",), cwd=str(workspace.parent), timeout=60))
    assert "is not mounted in the" in (ending.not_started or "")


async def test_what_is_mounted_besides_can_be_read_and_not_written(inside, tmp_path):
    runner, workspace = inside
    (tmp_path / "hooks").mkdir()
    (tmp_path / "hooks" / "a.sh").write_text("echo here")
    hooks = Mount(target="/hooks/h", source=str(tmp_path / "hooks"), read_only=True)
    more = replace(runner, mounts=(*runner.mounts, hooks))
    script = "sh /hooks/h/a.sh; for place in /hooks/h/new /hooks/new; do (echo x > $place) 2>/dev/null || echo no; done"
    ending = await more.run(
        Order(argv=("sh", "-c", script), cwd=str(workspace), env={"PATH": PATH}, timeout=60)
    )
    assert ending.stdout.text == "here\nno\nno\n", ending.stderr.text
    assert os.listdir(tmp_path / "hooks") == ["a.sh"]


@pytest.mark.usefixtures("bubblewrap")
async def test_a_sandbox_in_which_nothing_could_start_says_why_beforehand(tmp_path):
    gone = str(tmp_path / "gone")
    runner = EnclosedRunner(SandboxRunner(), mounts=(Mount(target=gone, source=gone),))
    try:
        assert "is not there" in (await runner.trouble() or "")
    finally:
        await runner.close()


@pytest.mark.real
@pytest.mark.usefixtures("image")
async def test_an_image_that_is_not_to_be_had_is_said_beforehand():
    runner = EnclosedRunner(ContainerRunner(pull="never"), image="localhost/hookline-none:test")
    try:
        assert "is not on this machine" in (await runner.trouble() or "")
    finally:
        await runner.close()
