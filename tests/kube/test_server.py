"""A real API server does what we take it to do."""

import asyncio
import base64
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import yaml

from hookline.kube.client import Cluster, Patience
from hookline.kube.controller import Store
from hookline.kube.lease import Lease
from hookline.kube.objects import (
    ACCOUNT,
    CONFIG_MAP,
    LEASE,
    POD,
    SECRET,
    AlreadyThere,
    ApiRefused,
    Conflict,
    Kind,
    NotThere,
    Unreachable,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

RBAC = "rbac.authorization.k8s.io"


def config_map(namespace, name="a", **head):
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace, **head},
        "data": {"x": "1"},
    }


def pod(namespace, name="p"):
    container = {
        "name": "main",
        "image": "localhost/busybox:1.35",
        "command": ["sh", "-c", "seq 1 1000; echo end"],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        # Its token may not be there yet, and nobody needs it.
        "spec": {"restartPolicy": "Never", "automountServiceAccountToken": False, "containers": [container]},
    }


async def until(holds):
    """What the condition answers, once that is something."""
    async with asyncio.timeout(240):
        while True:
            answer = holds()
            answer = await answer if asyncio.iscoroutine(answer) else answer
            if answer:
                return answer
            await asyncio.sleep(0.05)


async def test_an_object_is_made_read_changed_and_deleted(cluster, namespace):
    made = await cluster.create(config_map(namespace))
    assert type(made) is dict
    assert await cluster.get(CONFIG_MAP, "a", namespace) == made
    changed = await cluster.patch(CONFIG_MAP, "a", namespace, {"data": {"x": None, "y": "2"}})
    assert changed["data"] == {"y": "2"}
    replaced = await cluster.replace({**changed, "data": {"z": "3"}})
    assert replaced["data"] == {"z": "3"}
    assert await cluster.delete(CONFIG_MAP, "a", namespace) is True
    assert await cluster.get(CONFIG_MAP, "a", namespace) is None
    assert await cluster.delete(CONFIG_MAP, "a", namespace) is False
    assert cluster.calls["create ConfigMap"] == 1
    assert cluster.calls["get ConfigMap"] == 2


async def test_who_writes_from_an_old_version_is_told(cluster, namespace):
    old = await cluster.create(config_map(namespace))
    version = old["metadata"]["resourceVersion"]
    await cluster.patch(CONFIG_MAP, "a", namespace, {"data": {"x": "2"}}, resource_version=version)
    with pytest.raises(Conflict, match="has been modified"):
        await cluster.patch(CONFIG_MAP, "a", namespace, {"data": {"x": "3"}}, resource_version=version)
    with pytest.raises(Conflict, match="has been modified"):
        await cluster.replace(old)


async def test_only_the_one_with_the_uid_is_deleted(cluster, namespace):
    old = await cluster.create(config_map(namespace))
    await cluster.delete(CONFIG_MAP, "a", namespace)
    new = await cluster.create(config_map(namespace))
    assert await cluster.delete(CONFIG_MAP, "a", namespace, uid=old["metadata"]["uid"]) is False
    assert await cluster.get(CONFIG_MAP, "a", namespace) is not None
    assert await cluster.delete(CONFIG_MAP, "a", namespace, uid=new["metadata"]["uid"], grace=0) is True


async def test_the_server_says_what_is_wrong(cluster, namespace):
    await cluster.create(config_map(namespace))
    with pytest.raises(AlreadyThere, match='"a" already exists'):
        await cluster.create(config_map(namespace))
    with pytest.raises(ApiRefused, match=r"metadata\.name: Invalid value") as told:
        await cluster.create(config_map(namespace, "A_b"))
    assert told.value.status == 422
    with pytest.raises(NotThere, match="not found"):
        await cluster.patch(CONFIG_MAP, "b", namespace, {"data": {}})
    with pytest.raises(NotThere, match="not found"):
        await cluster.create(config_map(f"{namespace}-not"))
    with pytest.raises(NotThere, match=r"knows no Nothing of nobody\.example/v1"):
        await cluster.list(Kind("Nothing", "nobody.example", "v1", "nothings"))


async def test_the_status_is_changed_by_its_own_address_only(cluster, namespace):
    await cluster.create(pod(namespace))
    finished = {"status": {"reason": "Told", "message": "by the test"}}
    untouched = await cluster.patch(POD, "p", namespace, finished)
    assert untouched["status"].get("reason") is None
    changed = await cluster.patch(POD, "p", namespace, finished, subresource="status")
    assert changed["status"]["reason"] == "Told"
    assert cluster.calls["patch Pod/status"] == 1


async def test_what_an_object_owns_goes_with_it(cluster, namespace):
    owner = await cluster.create(config_map(namespace))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"]}
    await cluster.create(config_map(namespace, "b", ownerReferences=[reference]))
    await cluster.delete(CONFIG_MAP, "a", namespace)

    async def gone():
        return await cluster.get(CONFIG_MAP, "b", namespace) is None

    await until(gone)


async def test_a_list_of_more_than_a_page_is_whole(cluster, namespace):
    names = {f"n{number:03}" for number in range(510)}
    half = {"half": "yes"}
    for start in range(0, 510, 51):
        some = sorted(names)[start : start + 51]
        await asyncio.gather(
            *(
                cluster.create(config_map(namespace, name, labels=half if start < 255 else {}))
                for name in some
            )
        )
    before = cluster.calls["list ConfigMap"]
    found, version = await cluster.list(CONFIG_MAP, namespace)
    assert cluster.calls["list ConfigMap"] - before == 2
    assert names <= {obj["metadata"]["name"] for obj in found}
    assert all(obj["kind"] == "ConfigMap" and obj["apiVersion"] == "v1" for obj in found)
    assert version.isdecimal()
    assert len((await cluster.list(CONFIG_MAP, namespace, half))[0]) == 255
    everywhere, _ = await cluster.list(CONFIG_MAP)
    assert {obj["metadata"]["uid"] for obj in found} <= {obj["metadata"]["uid"] for obj in everywhere}


async def test_the_log_of_a_pod_that_is_not_there_is_none(cluster, namespace):
    assert await cluster.log("nobody", namespace, "main") is None


async def test_the_end_of_a_log_is_read(cluster, namespace):
    nodes, _ = await cluster.list(Kind("Node", "", "v1", "nodes", namespaced=False))
    if not nodes:
        pytest.skip("this cluster has no node that could run a pod")
    await cluster.create(pod(namespace))

    async def over():
        return (await cluster.get(POD, "p", namespace))["status"].get("phase") == "Succeeded"

    await until(over)
    whole = await cluster.log("p", namespace, "main")
    assert whole == "".join(f"{number}\n" for number in range(1, 1001)) + "end\n"
    assert await cluster.log("p", namespace, "main", tail_lines=2) == "1000\nend\n"
    assert await cluster.log("p", namespace, "main", most_bytes=6) == "0\nend\n"
    assert await cluster.log("p", namespace, "other") is None


@pytest.fixture
async def account(cluster, namespace, kubeconfig, tmp_path, monkeypatch):
    """The folder that a pod with a service account finds, and the way to the server as a pod is told it."""
    await cluster.create(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "namespace": namespace}}
    )
    head = {"name": "t", "namespace": namespace, "annotations": {"kubernetes.io/service-account.name": "s"}}
    await until(lambda: cluster.get(ACCOUNT, "s", namespace))
    await cluster.create(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": head,
            "type": "kubernetes.io/service-account-token",
        }
    )

    async def filled():
        secret = await cluster.get(SECRET, "t", namespace)
        return secret if (secret.get("data") or {}).get("token") else None

    secret = await until(filled)
    folder = tmp_path / "account"
    folder.mkdir()
    for name in ("token", "namespace", "ca.crt"):
        (folder / name).write_bytes(base64.b64decode(secret["data"][name]))
    server = urlsplit(cluster.server)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", server.hostname)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port or 443))
    return folder


async def test_a_pod_acts_as_its_account_and_reads_its_token_anew(cluster, namespace, account):
    token = (account / "token").read_text()
    await cluster.create(config_map(namespace))
    (account / "token").write_text("not.a.token")
    async with Cluster(account=str(account)) as inside:
        assert inside.namespace == namespace
        with pytest.raises(ApiRefused) as told:
            await inside.get(CONFIG_MAP, "a", namespace)
        assert told.value.status == 401
        (account / "token").write_text(token)
        with pytest.raises(ApiRefused, match='cannot get resource "configmaps"') as told:
            await inside.get(CONFIG_MAP, "a", namespace)
        assert told.value.status == 403
        await grant(cluster, namespace)

        async def granted():
            try:
                return await inside.get(CONFIG_MAP, "a", namespace)
            except ApiRefused:
                return None

        assert (await until(granted))["data"] == {"x": "1"}


async def grant(cluster, namespace):
    head = {"name": "r", "namespace": namespace}
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}
    await cluster.create({"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": head, "rules": [rule]})
    await cluster.create(
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": head,
            "roleRef": {"apiGroup": RBAC, "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "s", "namespace": namespace}],
        }
    )


class Line:
    """A way to the API server that can be cut."""

    def __init__(self, host, port):
        self.goal = (host, port)
        self.whole = True
        self.ends = set()
        self.tasks = set()

    async def talk(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        self.ends.add(writer)
        try:
            if self.whole:
                await self.joined(reader, writer)
        except OSError:
            pass
        finally:
            writer.close()
            self.ends.discard(writer)
            self.tasks.discard(asyncio.current_task())

    async def joined(self, reader, writer):
        there, back = await asyncio.open_connection(*self.goal)
        self.ends.add(back)
        try:
            await asyncio.gather(pumped(reader, back), pumped(there, writer))
        finally:
            back.close()
            self.ends.discard(back)

    def cut(self):
        self.whole = False
        for end in list(self.ends):
            end.transport.abort()


async def pumped(reader, writer):
    while piece := await reader.read(2**16):
        writer.write(piece)
        await writer.drain()
    writer.close()


@pytest.fixture
async def line(cluster, kubeconfig, tmp_path):
    """A line, and a cluster at its end."""
    server = urlsplit(cluster.server)
    made = Line(server.hostname, server.port or 443)
    async with await asyncio.start_server(made.talk, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with open(kubeconfig) as file:
            config = yaml.safe_load(file)
        for entry in config["clusters"]:
            entry["cluster"] = {
                "server": f"{server.scheme}://127.0.0.1:{port}",
                "insecure-skip-tls-verify": True,
            }
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
        patience = Patience(limit=10, tries=1)
        async with Cluster(str(tmp_path / "kubeconfig"), patience=patience) as far:
            yield made, far
        made.cut()
        if made.tasks:
            await asyncio.wait(made.tasks)


@asynccontextmanager
async def running(*works):
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def known(store):
    return {
        obj["metadata"]["name"]: obj["data"]["x"]
        for obj in store.all()
        if "data" in obj and "x" in obj["data"]
    }


async def test_a_store_follows_and_finds_what_it_missed_while_the_line_was_cut(cluster, namespace, line):
    cable, far = line
    changes = []
    store = Store(far, CONFIG_MAP, namespace=namespace)
    store.on_change = lambda before, after: changes.append((before, after))
    await cluster.create(config_map(namespace, "a"))
    await cluster.create(config_map(namespace, "b"))
    async with running(store.run()):
        await until(store.synced.is_set)
        assert known(store) == {"a": "1", "b": "1"}
        await cluster.patch(CONFIG_MAP, "a", namespace, {"data": {"x": "x\u0085y\u2028z"}})
        await until(lambda: known(store)["a"] == "x\u0085y\u2028z")
        cable.cut()
        with pytest.raises(Unreachable):
            await far.get(CONFIG_MAP, "a", namespace)
        await cluster.delete(CONFIG_MAP, "b", namespace)
        await cluster.create(config_map(namespace, "c"))
        cable.whole = True
        await until(lambda: known(store) == {"a": "x\u0085y\u2028z", "c": "1"})
        gone = [before["metadata"]["name"] for before, after in changes if after is None]
        assert gone == ["b"]


async def test_what_is_written_into_a_store_and_seen_again_changes_once(cluster, namespace):
    changes = []
    store = Store(cluster, CONFIG_MAP, namespace=namespace, labels={"ours": "yes"})
    store.on_change = lambda before, after: changes.append((before, after))
    async with running(store.run()):
        await until(store.synced.is_set)
        for number in range(20):
            store.put(await cluster.create(config_map(namespace, f"n{number}", labels={"ours": "yes"})))
        for number in range(20):
            name = f"n{number}"
            store.put(await cluster.patch(CONFIG_MAP, name, namespace, {"data": {"x": "2"}}))
            stored = store.get(namespace, name)
            await cluster.delete(CONFIG_MAP, name, namespace, uid=stored["metadata"]["uid"])
        await cluster.create(config_map(namespace, "last", labels={"ours": "yes"}))
        await until(lambda: list(known(store)) == ["last"])
    assert (
        len([True for before, after in changes if before is None and after["metadata"]["name"] != "last"])
        >= 20
    )
    assert not [True for before, after in changes if before is not None and before == after]


class Desk:
    """Who came to work and who left, in order; two at once is an error."""

    def __init__(self):
        self.at_work = []
        self.history = []

    def body(self, name):
        async def work():
            assert not self.at_work
            self.at_work.append(name)
            self.history.append(f"{name} came")
            try:
                await asyncio.Event().wait()
            finally:
                self.at_work.remove(name)
                self.history.append(f"{name} left")

        return work


async def test_who_is_cut_off_stops_before_another_takes_over_and_hands_back_at_once(
    cluster, namespace, line
):
    cable, far = line
    desk = Desk()
    times = {"duration": 12, "every": 1.0, "patience": 6.0}
    first = Lease(far, namespace, "l", identity="first", **times)
    second = Lease(cluster, namespace, "l", identity="second", **times)
    async with running(first.hold(desk.body("first"))) as [one]:
        await until(lambda: desk.at_work == ["first"])
        async with running(second.hold(desk.body("second"))) as [two]:
            cable.cut()
            await until(lambda: desk.at_work == ["second"])
            assert desk.history[-2:] == ["first left", "second came"]
            cable.whole = True
            assert not two.done()
        lease = await cluster.get(LEASE, "l", namespace)
        assert lease["spec"]["holderIdentity"] in ("", "first")
        await until(lambda: desk.at_work == ["first"])
        assert not one.done()
    lease = await cluster.get(LEASE, "l", namespace)
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] >= 2
