import subprocess
import sys
from pathlib import Path

import pytest

from hookline import files
from hookline.journal import default_path
from hookline.journal.recovery import alive, owner
from hookline.runners import tags


@pytest.fixture
def sleeper():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    with process:
        process.kill()


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A system without /proc."""
    for module in (tags, files):
        monkeypatch.setattr(module, "PROC", f"{tmp_path}/nothing")


def other(process):
    """The owner that this process would say it is."""
    stat = Path(f"/proc/{process.pid}/stat").read_text()
    return owner()._replace(pid=process.pid, started=stat.rpartition(")")[2].split()[19])


def test_this_process_is_alive():
    me = owner()
    assert me.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert alive(me)


def test_a_process_is_alive_until_it_ends(sleeper):
    held = other(sleeper)
    assert alive(held)

    sleeper.stdin.close()
    # Ended but not waited for: it still has an entry, as a zombie.
    while Path(f"/proc/{sleeper.pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        pass
    assert not alive(held)

    sleeper.wait()
    assert not alive(held)


def test_a_pid_that_was_given_out_again_is_another_process():
    assert not alive(owner()._replace(started="1"))


def test_nothing_lives_through_a_reboot():
    assert not alive(owner()._replace(boot_id="another"))


def test_a_process_may_have_any_name(tmp_path):
    odd = tmp_path / "a) Z (b"
    odd.symlink_to(Path(sys.executable).resolve())
    code = (
        "from hookline.journal.recovery import alive, owner; print(alive(owner()), owner().started.isdigit())"
    )
    env = {"PYTHONPATH": ":".join(sys.path), "PYTHONHOME": sys.base_prefix}
    done = subprocess.run([odd, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.stdout == "True True\n", done.stderr


def test_without_proc_the_pid_alone_decides(elsewhere, sleeper):
    me = owner()
    assert (me.boot_id, me.started) == ("", "")
    assert alive(me)

    held = me._replace(pid=sleeper.pid)
    assert alive(held)
    sleeper.kill()
    sleeper.wait()
    assert not alive(held)


PLACES = {
    "home": ({"HOOKLINE_HOME": "/h", "XDG_STATE_HOME": "/x", "HOME": "/u"}, "/h/journal.db"),
    "state": ({"XDG_STATE_HOME": "/x", "HOME": "/u"}, "/x/hookline/journal.db"),
    "user": ({"HOME": "/u"}, "/u/.local/state/hookline/journal.db"),
    "empty": (
        {"HOOKLINE_HOME": "", "XDG_STATE_HOME": "", "HOME": "/u"},
        "/u/.local/state/hookline/journal.db",
    ),
    "relative": ({"XDG_STATE_HOME": "x", "HOME": "/u"}, "/u/.local/state/hookline/journal.db"),
    "nothing": ({}, str(Path.home() / ".local/state/hookline/journal.db")),
}


@pytest.mark.parametrize(("environ", "path"), PLACES.values(), ids=PLACES.keys())
def test_the_journal_lives_in_hooklines_home_or_the_state_folder(environ, path):
    assert default_path(environ) == Path(path)
