"""What a hook in the sandbox cannot do: look into another run, the journal or the user's home, see processes, reach loopback."""

import asyncio
import json
import os
import socket
from pathlib import Path

import pytest

from tests import forks
from tests.runners.places import installed, running, until
from tests.sympozium.run.conftest import Ground, hook, lifecycle, manifest

AGENT_OF_A_CLUSTER = """apiVersion: sympozium.ai/v1alpha1
kind: Agent
metadata: {name: oncall}
spec: {agents: {default: %s}}
"""


@pytest.fixture
async def sandbox(tmp_path):
    installed(bwrap="bubblewrap")
    ground = Ground(tmp_path, "sandbox")
    site = ground.open()
    yield ground
    await site.runner_of("").close()
    ground.journal.close()
    assert ground.left() == []


@pytest.mark.rule("sympozium X1")
async def test_a_hook_cannot_read_another_run_the_journal_or_the_users_home(sandbox):
    (sandbox.folder / "mine").write_text("private")
    other = asyncio.ensure_future(
        sandbox.run(
            {}, agent_command=("sh", "-c", "echo x > $WORKSPACE/secret; touch $TRUTH/ready; sleep 60")
        )
    )
    while not (sandbox.truth / "ready").exists():
        await asyncio.sleep(0.02)
    try:
        folder = next((sandbox.home / "agentruns").glob("demo-*")) / "workspace" / "secret"
        assert folder.exists()
        places = [
            folder,
            sandbox.home / "journal.db",
            sandbox.folder / "mine",
            Path.home(),
            "/etc/shadow",
            "/root",
        ]
        tries = "; ".join(f"ls {place} >/dev/null 2>&1 && echo {place} >> $TRUTH/seen" for place in places)
        ran = await sandbox.run(lifecycle([hook("a", f"{tries}; true")]))
        assert ran.phase == "Succeeded"
        assert sandbox.said("seen") == ""
    finally:
        other.cancel()
        with pytest.raises(asyncio.CancelledError):
            await other


@pytest.mark.rule("sympozium X5")
async def test_a_hook_sees_no_other_process_and_reaches_nothing_without_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        reach = f"""python3 -c "import socket; socket.create_connection(('127.0.0.1', {port}), 5)" && touch $TRUTH/reached"""
        script = f"ls /proc | grep -c '^[0-9]' > $TRUTH/count; ls /proc > $TRUTH/all; {reach}; true"
        ran = await sandbox.run(lifecycle([hook("a", script)]))
        assert ran.phase == "Succeeded"
        assert int(sandbox.said("count")) < 8
        assert not (sandbox.truth / "reached").exists()
        ran = await sandbox.run(lifecycle([hook("a", reach)]), network=True)
        assert ran.phase == "Succeeded"
        assert (sandbox.truth / "reached").exists()
        server.accept()[0].close()
    assert str(os.getpid()) not in sandbox.said("all").split() or os.getpid() < 100


async def test_a_hook_cannot_write_outside_its_mounts_and_the_run_says_that_it_failed(sandbox):
    tries = (
        "/usr/hookline-was-here",
        "/hookline-was-here",
        "/etc/hookline-was-here",
        "/proc/sys/kernel/hostname",
    )
    for place in tries:
        ran = await sandbox.run(
            lifecycle([hook("a", f"echo x > {place}")], [hook("b", "echo $AGENT_EXIT_CODE > $TRUTH/b")])
        )
        assert ran.phase == "Failed"
        assert sandbox.said("b") == "1\n"
        assert not os.path.exists(place) or place.startswith("/proc")


async def test_tmp_is_each_hooks_own_and_gone_after_it(sandbox):
    before = [
        hook("a", "echo x > /tmp/file; ls /tmp | grep -v pytest > $TRUTH/a"),
        hook("b", "ls /tmp | grep -v pytest > $TRUTH/b; true"),
    ]
    ran = await sandbox.run(lifecycle(before))
    assert ran.phase == "Succeeded"
    assert (sandbox.said("a"), sandbox.said("b")) == ("file\n", "")


async def test_a_folder_that_a_hook_swapped_for_a_link_leads_nowhere(sandbox):
    outside = sandbox.folder / "outside"
    outside.mkdir()
    (outside / "skip").write_text("from outside")
    script = f"rmdir $IPC_DIR/control; ln -s {outside} $IPC_DIR/control"
    ran = await sandbox.run(lifecycle([hook("a", script)]))
    assert ran.phase == "Succeeded"


@pytest.mark.rule("sympozium 1.17.13")
async def test_pre_run_is_inside_like_the_agent_post_run_outside_of_it_and_the_workspace_is_the_same(sandbox):
    """`agentSandbox` as far as one machine can have it: the agent's sandbox is gone before postRun begins."""
    seconds = f"{os.getpid()}.{id(sandbox)}"
    # The kernel may give the number of a namespace that is gone again; its first process began at another time.
    space = 'echo "$(readlink /proc/self/ns/pid)-$(cut -d" " -f22 /proc/1/stat)"'
    before = hook(
        "pre", f"{space} > $TRUTH/pre; id -u >> $TRUTH/pre; ls /sys > $TRUTH/sys; echo x > $WORKSPACE/file"
    )
    agent = f"setsid sleep {seconds} & {space} > $TRUTH/agent; cp $WORKSPACE/file $WORKSPACE/more"
    waits = "touch $TRUTH/begun; while [ ! -e $TRUTH/go ]; do sleep 0.05; done"
    after = hook("post", f"{space} > $TRUTH/post; cat $WORKSPACE/file $WORKSPACE/more > $TRUTH/read; {waits}")
    spec = {"agentSandbox": {"enabled": True}, **lifecycle([before], [after])}
    run = asyncio.ensure_future(sandbox.run(spec, agent_command=("sh", "-c", agent)))
    await until(lambda: (sandbox.truth / "begun").exists() or run.done())
    left = running("sleep", seconds)
    (sandbox.truth / "go").touch()
    ran = await run
    assert (ran.phase, left) == ("Succeeded", [])
    assert sandbox.said("read") == "x\nx\n"
    pre, user = sandbox.said("pre").split()
    spaces = {pre, sandbox.said("agent").strip(), sandbox.said("post").strip()}
    assert (len(spaces), user, sandbox.said("sys")) == (3, "1000", ""), "each is in a sandbox of its own"
    assert not any(each.startswith(os.readlink("/proc/self/ns/pid")) for each in spaces)


@pytest.mark.rule("sympozium 1.17.13")
@pytest.mark.parametrize("kind", ["AgentRun", "Agent"])
@pytest.mark.parametrize("does", ["check", "explain"])
def test_what_becomes_of_a_sandbox_of_the_cluster_is_said(tmp_path, does, kind):
    file = tmp_path / "run.yaml"
    spec = {"agentSandbox": {"enabled": True}, **lifecycle([hook("a", "true")])}
    file.write_text(manifest(spec) if kind == "AgentRun" else AGENT_OF_A_CLUSTER % json.dumps(spec))
    done = forks.run([does, file])
    told = " ".join(done.stdout.split())
    assert done.returncode == 0, done.stderr
    assert "agentSandbox: is not used on one machine: --on sandbox puts each hook and the agent" in told
    assert "gone before postRun begins" in told
