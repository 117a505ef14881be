"""The loop of every controller: which keys are reconciled, when again, and how many at a time."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

import pytest

from hookline.kube import controller
from hookline.kube.controller import Controller, Key, Watch
from hookline.kube.objects import CONFIG_MAP, SANDBOX, SECRET, NotThere, Unreachable
from hookline.kube.operator import serve
from tests.kube.test_lease import Leases, until


def obj(name, kind=SECRET, namespace="n", version=1):
    head = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": str(version)}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": head}


class Objects:
    """A cluster of a few objects; a kind that is not in it is not installed."""

    def __init__(self, *objects, kinds=(SECRET,)):
        self.objects = {kind: [each for each in objects if each["kind"] == kind.kind] for kind in kinds}
        self.events = asyncio.Queue()

    async def list(self, kind, namespace=None, labels=None):
        if kind not in self.objects:
            raise NotThere(404, f"no {kind.plural}")
        return [
            each for each in self.objects[kind] if namespace in (None, each["metadata"]["namespace"])
        ], "1"

    async def watch(self, kind, namespace=None, labels=None, resource_version=""):
        while True:
            event = await self.events.get()
            yield event


class Log(Controller):
    """Keeps the keys it was asked to reconcile; `act` is what it does about one."""

    def __init__(self, cluster, act=None, **more):
        super().__init__(cluster, (Watch(SECRET), Watch(SANDBOX, optional=True)), **more)
        self.done = []
        self.act = act
        self.at_work = self.most = 0
        self.besides = asyncio.Event()

    def background(self):
        async def beside():
            self.besides.set()

        return (beside(),)

    def keys(self):
        return [Key.of(each) for each in self.caches.all(SECRET)]

    def keys_for(self, kind, before, after):
        return [Key.of(after or before)]

    async def reconcile(self, key):
        self.at_work += 1
        self.most = max(self.most, self.at_work)
        try:
            await asyncio.sleep(0)
            self.done.append(key.name)
            return await self.act(key) if self.act else None
        finally:
            self.at_work -= 1


@contextlib.asynccontextmanager
async def running(made):
    task = asyncio.create_task(made.run())
    try:
        await until(lambda: made.ready.is_set() or task.done())
        yield made
    finally:
        task.cancel()
        await asyncio.wait({task})
        assert not made.ready.is_set()


async def test_all_that_is_there_is_looked_at_and_then_what_changes():
    cluster = Objects(obj("a"), obj("b"))
    async with running(Log(cluster)) as made:
        await until(lambda: made.done == ["a", "b"])
        assert made.besides.is_set()
        cluster.events.put_nowait(("ADDED", obj("c", version=2)))
        await until(lambda: made.done == ["a", "b", "c"])
        cluster.events.put_nowait(("DELETED", obj("a", version=3)))
        await until(lambda: made.done == ["a", "b", "c", "a"])


async def test_only_the_named_namespaces_are_looked_at():
    cluster = Objects(obj("a"), obj("b", namespace="other"), obj("c", namespace="third"))
    async with running(Log(cluster, namespaces=("n", "third"))) as made:
        await until(lambda: sorted(made.done) == ["a", "c"])


async def test_a_kind_that_is_installed_later_is_seen_then(monkeypatch):
    monkeypatch.setattr(controller, "MISSING_PAUSE", 0.01)
    cluster = Objects(obj("a"))
    async with running(Log(cluster)) as made:
        await until(lambda: made.done == ["a"])
        cluster.objects[SANDBOX] = [obj("box", SANDBOX)]
        await until(lambda: made.done == ["a", "box"])


async def test_a_key_has_one_worker_which_looks_again_at_what_came_meanwhile():
    go, cluster = asyncio.Event(), Objects(obj("a"))

    async def act(key):
        await go.wait()

    async with running(Log(cluster, act, at_once=4)) as made:
        await until(lambda: made.at_work == 1)
        for _ in range(5):
            made.wake(Key.of(obj("a")))
        go.set()
        await until(lambda: made.done == ["a", "a"] and not made.at_work)
        await asyncio.sleep(0.05)
        assert (made.done, made.most) == (["a", "a"], 1)


@pytest.mark.parametrize("at_once", [1, 3])
async def test_no_more_than_so_many_are_worked_on_side_by_side(at_once):
    cluster = Objects(*(obj(f"s{number}") for number in range(9)))

    async def act(key):
        await asyncio.sleep(0.01)

    async with running(Log(cluster, act, at_once=at_once)) as made:
        await until(lambda: len(made.done) == 9 and not made.at_work)
        assert made.most == at_once


@pytest.mark.parametrize("error", [Unreachable("away"), ValueError("broke")])
async def test_what_fails_is_tried_again_after_longer_and_longer_pauses(monkeypatch, error):
    monkeypatch.setattr(controller, "_FIRST_PAUSE", 0.02)
    times = []

    async def act(key):
        if key.name == "a":
            times.append(asyncio.get_running_loop().time())
            if len(times) < 5:
                raise error

    async with running(Log(Objects(obj("a"), obj("b")), act)) as made:
        await until(lambda: len(times) == 5)
        await until(lambda: not made._failures)
        assert made.done.count("b") == 1
    assert times[4] - times[3] >= 0.15


async def test_a_key_is_looked_at_again_at_the_moment_that_was_asked_for():
    async def act(key):
        return datetime.now(UTC) + timedelta(seconds=0.1) if len(made.done) < 3 else None

    made = Log(Objects(obj("a")), act)
    async with running(made):
        await until(lambda: made.done == ["a"] * 3)
        await until(lambda: not made._timers)


async def test_a_change_before_the_moment_that_was_asked_for_replaces_it():
    async def act(key):
        return datetime.now(UTC) + timedelta(hours=1) if len(made.done) == 1 else None

    made = Log(Objects(obj("a")), act)
    async with running(made):
        await until(lambda: bool(made._timers))
        made.wake(Key.of(obj("a")))
        await until(lambda: made.done == ["a"] * 2 and not made._timers)


async def test_everything_is_looked_at_again_from_time_to_time(monkeypatch):
    monkeypatch.setattr(controller, "RESYNC", 0.02)
    async with running(Log(Objects(obj("a")))) as made:
        await until(lambda: len(made.done) > 3)


async def test_what_is_at_work_when_it_ends_is_cancelled():
    gone = asyncio.Event()

    async def act(key):
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()

    async with running(Log(Objects(obj("a")), act)) as made:
        await until(lambda: made.at_work == 1)
    assert gone.is_set()


class Both(Objects, Leases):
    """With a lease too."""

    namespace = "n"

    def __init__(self, *objects):
        Objects.__init__(self, *objects)
        Leases.__init__(self)


async def asked(port, path):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    line = await reader.readline()
    writer.close()
    return line.decode().split(" ", 1)[1].strip()


async def test_several_controllers_act_under_one_lease_and_all_of_them_make_it_ready(unused_tcp_port):
    cluster, made = Both(obj("a")), []

    def controllers(cluster, journal):
        assert journal is None
        made[:] = [Log(cluster), Log(cluster)]
        return made

    task = asyncio.create_task(serve(cluster, controllers, port=unused_tcp_port))
    await until(lambda: len(made) == 2 and all(each.done == ["a"] for each in made))
    assert cluster.holder
    assert await asked(unused_tcp_port, "/readyz") == "200 OK"
    made[1].ready.clear()
    assert await asked(unused_tcp_port, "/readyz") == "503 Service Unavailable"
    assert await asked(unused_tcp_port, "/healthz") == "200 OK"
    assert await asked(unused_tcp_port, "/else") == "404 Not Found"
    task.cancel()
    await asyncio.wait({task})
    assert cluster.holder == ""


def test_a_key_is_kind_namespace_and_name():
    assert Key.of(obj("a", CONFIG_MAP)) == ("ConfigMap", "n", "a")
