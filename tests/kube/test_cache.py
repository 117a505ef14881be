"""A local copy stays true whatever order its news arrive in, and whatever becomes of the connection."""

import asyncio
import logging
from contextlib import asynccontextmanager

import pytest

from hookline.kube.client import Cluster, Patience
from hookline.kube.controller import Store
from hookline.kube.objects import CONFIG_MAP
from tests.kube.scripted_server import SILENCE, answer, scripted, status, stream


def one(name="a", version="10", *, uid="u", owner="", **more):
    head = {"name": name, "namespace": "home", "resourceVersion": version, "uid": uid, "managedFields": [{}]}
    if owner:
        head["ownerReferences"] = [{"uid": owner}]
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": head, **more}


def listed(*objects, version="10"):
    return answer(200, {"metadata": {"resourceVersion": version}, "items": list(objects)})


def event(word, obj):
    return {"type": word, "object": obj}


@asynccontextmanager
async def kept(tmp_path, *answers, until, labels=None):
    """A store that has followed the answers until something holds, with all changes it told."""
    changes = []
    async with (
        scripted(tmp_path, *answers, SILENCE) as (server, config),
        Cluster(config, patience=Patience(tries=1)) as cluster,
    ):
        store = Store(cluster, CONFIG_MAP, namespace="home", labels=labels)
        store.on_change = lambda before, after: changes.append((version(before), version(after)))
        running = asyncio.create_task(store.run())
        try:
            async with asyncio.timeout(60):
                while not until(store, server):
                    assert not running.done(), running.exception()
                    await asyncio.sleep(0.01)
            yield store, server, changes
        finally:
            running.cancel()
            await asyncio.wait({running})


def version(obj):
    return obj and obj["metadata"]["resourceVersion"]


def versions(store):
    return {obj["metadata"]["name"]: version(obj) for obj in store.all()}


def silent(count):
    """Until so many requests were made, of which the last gets no answer."""
    return lambda _, server: len(server.asked) >= count


async def test_what_is_listed_and_what_happens_later_is_there(tmp_path):
    watch = stream(
        event("MODIFIED", one(version="11")),
        event("ADDED", one("b", "12")),
        event("DELETED", one(version="13")),
        event("BOOKMARK", {"metadata": {"resourceVersion": "20"}}),
    )
    async with kept(tmp_path, listed(one()), watch, until=silent(3)) as (store, server, changes):
        assert store.synced.is_set()
        assert versions(store) == {"b": "12"}
        assert store.get("home", "a") is None
        assert changes == [(None, "10"), ("10", "11"), (None, "12"), ("11", None)]
        # A watch that ended in good order is taken up where it ended, without a new list.
        assert "watch=true" in server.asked[2].line
        assert "resourceVersion=20" in server.asked[2].line


async def test_who_set_which_field_is_not_kept(tmp_path):
    async with kept(tmp_path, listed(one()), until=silent(2)) as (store, _, _changes):
        assert "managedFields" not in store.all()[0]["metadata"]
        assert store.all()[0]["kind"] == "ConfigMap"


BROKEN = {
    "cut in a line": stream(event("ADDED", one("b", "11")), b'{"type": "DEL'),
    "rubbish": stream(event("ADDED", one("b", "11")), b"oops\n"),
    "too old": stream(event("ADDED", one("b", "11")), event("ERROR", {"code": 410})),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN.keys())
async def test_what_happened_while_the_watch_was_broken_is_found(tmp_path, broken):
    again = listed(one("b", "30"), one("c", "31"), version="40")
    async with kept(tmp_path, listed(one()), broken, again, until=silent(4)) as (store, server, changes):
        assert versions(store) == {"b": "30", "c": "31"}
        assert changes == [(None, "10"), (None, "11"), ("10", None), ("11", "30"), (None, "31")]
        assert "resourceVersion=40" in server.asked[3].line


async def test_an_outage_is_told_once_and_its_end_too(tmp_path, caplog):
    caplog.set_level(logging.INFO, "hookline.kube")
    away = status(503, "starting")
    answers = (away, away, b"", listed(one()))
    async with kept(tmp_path, *answers, until=silent(5)) as (store, _, _changes):
        assert versions(store) == {"a": "10"}
    told = [record.getMessage() for record in caplog.records if record.name == "hookline.kube"]
    assert len(told) == 2
    assert "ConfigMap: the copy is out of date" in told[0]
    assert "starting" in told[0]
    assert told[1] == "ConfigMap: the cluster answers again"


async def test_only_what_carries_the_labels_is_asked_for(tmp_path):
    async with kept(tmp_path, listed(), until=silent(2), labels={"a": "b"}) as (_, server, _changes):
        assert all("labelSelector=a%3Db" in asked.line for asked in server.asked)


# What is known, what we put in, and what is there then.
PUTS = {
    "new": ([], one("b", "11"), {"b": "11"}),
    "newer": ([one(version="10")], one(version="11"), {"a": "11"}),
    "older": ([one(version="10")], one(version="9"), {"a": "10"}),
    "older, with fewer digits": ([one(version="10")], one(version="2"), {"a": "10"}),
    "deleted meanwhile": ([], one("b", "9"), {}),
    "no number": ([one(version="10")], one(version="x"), {"a": "x"}),
}


@pytest.mark.parametrize(("known", "put", "then"), PUTS.values(), ids=PUTS.keys())
async def test_what_we_wrote_is_there_at_once_unless_newer_is_known(tmp_path, known, put, then):
    async with kept(tmp_path, listed(*known), until=silent(2)) as (store, _, changes):
        before = versions(store)
        changes.clear()
        store.put(put)
        assert versions(store) == then
        assert bool(changes) == (then != before)


async def test_an_old_deletion_does_not_take_what_was_made_anew(tmp_path):
    seen = {}

    def later(_asked):
        seen["store"].put(one(version="12", uid="v"))
        return stream(event("DELETED", one(version="11")), event("ADDED", one(version="12", uid="v")))

    def first(store, _):
        seen["store"] = store
        return silent(3)(store, _)

    async with kept(tmp_path, listed(one()), later, until=first) as (store, _, changes):
        assert versions(store) == {"a": "12"}
        assert changes == [(None, "10"), ("10", "12")]


async def test_a_list_that_was_on_its_way_does_not_take_what_is_newer(tmp_path):
    seen = {}

    def older(_asked):
        seen["store"].put(one("b", "50"))
        seen["store"].put(one("a", "51"))
        return listed(one(version="40"), version="45")

    def first(store, server):
        seen["store"] = store
        return silent(4)(store, server)

    async with kept(tmp_path, listed(one()), stream(b"oops\n"), older, until=first) as (store, _, changes):
        assert versions(store) == {"a": "51", "b": "50"}
        assert changes == [(None, "10"), (None, "50"), ("10", "51")]


async def test_what_is_owned_is_found_by_its_owner(tmp_path):
    objects = (one("a", owner="x"), one("b", owner="x"), one("c", owner="y"), one("d"))
    async with kept(tmp_path, listed(*objects), until=silent(2)) as (store, _, _changes):
        assert [obj["metadata"]["name"] for obj in store.owned("x")] == ["a", "b"]
        store.put(one("a", "11", owner="y"))
        store.put(one("b", "11"))
        assert store.owned("x") == []
        assert [obj["metadata"]["name"] for obj in store.owned("y")] == ["a", "c"]
        assert store.owned("nobody") == []


async def test_a_listener_that_breaks_ends_the_store_and_leaves_nothing_open(tmp_path):
    def broken(before, after):
        raise RuntimeError("listener")

    watch = stream(event("ADDED", one("b", "11")))
    async with scripted(tmp_path, listed(), watch) as (_, config), Cluster(config) as cluster:
        with pytest.raises(RuntimeError, match="listener"):
            await Store(cluster, CONFIG_MAP, on_change=broken).run()
