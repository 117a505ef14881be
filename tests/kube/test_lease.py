"""Of several operators one acts, and the next begins only after it has ended."""

import asyncio
import contextlib
from datetime import UTC, datetime

import pytest

from hookline.errors import UsageError
from hookline.kube.lease import Lease, LeaseHeld, LeaseLost, claimed, may_take, released
from hookline.kube.objects import AlreadyThere, Conflict, NotThere, Unreachable

NOW = datetime(2026, 1, 2, 3, 4, 5, 600, tzinfo=UTC)


def lease(holder, duration=15, **more):
    spec = {"holderIdentity": holder, "leaseDurationSeconds": duration, **more}
    return {"metadata": {"name": "l", "namespace": "n", "resourceVersion": "1"}, "spec": spec}


MAY = {
    "there is none": (None, 0.0, True),
    "it has no spec": ({"metadata": {}}, 0.0, True),
    "nobody's": (lease(""), 0.0, True),
    "nobody's, said with null": (lease(None), 0.0, True),
    "ours": (lease("me"), 0.0, True),
    "another's, just seen": (lease("you"), 0.0, False),
    "another's, nearly over": (lease("you"), 14.9, False),
    "another's, over": (lease("you"), 15.0, True),
    "another's, lent for longer": (lease("you", 60), 59.0, False),
    "another's, lent for no time": (lease("you", None), 0.0, True),
}


@pytest.mark.parametrize(("known", "unchanged", "may"), MAY.values(), ids=MAY.keys())
def test_a_lease_is_taken_when_it_is_free_or_over(known, unchanged, may):
    assert may_take(known, "me", unchanged) is may


TIME = "2026-01-02T03:04:05.000600Z"
CLAIMS = {
    "the first": (None, {"acquireTime": TIME, "leaseTransitions": 0}),
    "a renewal": (
        lease("me", acquireTime="t", leaseTransitions=3),
        {"acquireTime": "t", "leaseTransitions": 3},
    ),
    "from another": (
        lease("you", acquireTime="t", leaseTransitions=3),
        {"acquireTime": TIME, "leaseTransitions": 4},
    ),
}


@pytest.mark.parametrize(("known", "told"), CLAIMS.values(), ids=CLAIMS.keys())
def test_a_claim_names_us_and_keeps_what_a_renewal_must_keep(known, told):
    mine = claimed(known, "me", name="l", namespace="n", duration=15, now=NOW)
    assert mine["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": TIME, **told}
    assert (mine["metadata"]["name"], mine["metadata"]["namespace"]) == ("l", "n")
    assert mine["metadata"].get("resourceVersion") == (known and "1")


def test_a_released_lease_may_be_taken_at_once():
    assert may_take(released(lease("you", renewTime="t")), "me", 0.0)


def test_times_that_cannot_work_are_refused():
    with pytest.raises(UsageError, match="each must be less than the next"):
        Lease(Leases(), "n", "l", patience=20)


class Leases:
    """One lease in memory, with versions as an API server keeps them; `away` makes every call fail."""

    def __init__(self):
        self.lease = None
        self.version = 0
        self.away = False

    def check(self):
        if self.away:
            raise Unreachable("away")

    async def get(self, kind, name, namespace=None):
        await asyncio.sleep(0)
        self.check()
        return self.lease

    async def create(self, obj):
        self.check()
        if self.lease is not None:
            raise AlreadyThere(409, "already exists")
        return self.keep(obj)

    async def replace(self, obj):
        await asyncio.sleep(0)
        self.check()
        if self.lease is None:
            raise NotThere(404, "not found")
        if obj["metadata"].get("resourceVersion") != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "modified")
        return self.keep(obj)

    def keep(self, obj):
        self.version += 1
        self.lease = {**obj, "metadata": {**obj["metadata"], "resourceVersion": str(self.version)}}
        return self.lease

    @property
    def holder(self):
        return self.lease and self.lease["spec"]["holderIdentity"]


class Body:
    """Work that goes on until it is cancelled, and knows whether it is at it."""

    def __init__(self):
        self.times = 0
        self.at_work = False

    async def __call__(self):
        self.times += 1
        self.at_work = True
        try:
            await asyncio.Event().wait()
        finally:
            self.at_work = False


async def until(holds):
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.01)


async def ended(*tasks):
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


def lead(leases, identity, **times):
    return Lease(
        leases, "n", "l", identity=identity, **{"duration": 30, "every": 0.05, "patience": 20, **times}
    )


async def test_who_ends_hands_over_at_once():
    leases, one, two = Leases(), Body(), Body()
    first = asyncio.create_task(lead(leases, "one").hold(one))
    await until(lambda: one.at_work)
    second = asyncio.create_task(lead(leases, "two").hold(two))
    await until(lambda: leases.version > 3)
    assert (leases.holder, two.times) == ("one", 0)
    await ended(first)
    # Less than the 30 s that the lease was lent for.
    async with asyncio.timeout(20):
        await until(lambda: two.at_work)
    assert not one.at_work
    await ended(second)
    assert leases.holder == ""


async def test_who_cannot_renew_stops_and_begins_again_when_it_can():
    leases, body = Leases(), Body()
    held = asyncio.create_task(lead(leases, "one", duration=2, patience=0.5).hold(body))
    await until(lambda: body.at_work)
    leases.away = True
    await until(lambda: not body.at_work)
    leases.away = False
    await until(lambda: body.at_work)
    assert body.times > 1
    await ended(held)


async def test_who_finds_another_name_in_the_lease_stops():
    leases, body = Leases(), Body()
    held = asyncio.create_task(lead(leases, "one").hold(body))
    await until(lambda: body.at_work)
    leases.keep({**leases.lease, "spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1000}})
    await until(lambda: not body.at_work)
    await ended(held)
    assert leases.holder == "thief"


async def test_a_lease_that_was_deleted_is_made_again_while_it_is_held():
    leases, body = Leases(), Body()
    held = asyncio.create_task(lead(leases, "one").hold(body))
    await until(lambda: body.at_work)
    leases.lease = None
    await until(lambda: leases.holder == "one")
    assert body.times == 1
    await ended(held)


@pytest.mark.parametrize("error", [None, ValueError("broke")])
async def test_what_the_body_ends_with_is_what_holding_ends_with(error):
    leases = Leases()

    async def body():
        if error:
            raise error

    told = (await asyncio.gather(lead(leases, "one").hold(body), return_exceptions=True))[0]
    assert told is error
    assert leases.holder == ""


async def test_a_body_that_takes_its_time_to_end_keeps_the_lease_until_then():
    leases, go, seen = Leases(), asyncio.Event(), []

    async def body():
        try:
            await asyncio.Event().wait()
        finally:
            before = leases.version
            await until(lambda: leases.version > before + 2)
            seen.append(leases.holder)
            go.set()

    held = asyncio.create_task(lead(leases, "one").hold(body))
    await until(lambda: leases.holder == "one")
    await ended(held)
    assert go.is_set()
    assert (seen, leases.holder) == (["one"], "")


@contextlib.asynccontextmanager
async def at_work(leases, **more):
    """Another process that holds the lease and renews it."""
    body = Body()
    task = asyncio.create_task(lead(leases, "other", **more).hold(body))
    await until(lambda: body.at_work)
    try:
        yield
    finally:
        await ended(task)


async def test_who_does_not_wait_is_told_of_a_holder_that_renews():
    leases = Leases()
    async with at_work(leases):
        with pytest.raises(LeaseHeld, match="other holds the lease l") as told:
            async with lead(leases, "me").held(wait=False):
                pass
    assert told.value.holder == "other"


async def test_who_does_not_wait_takes_the_lease_of_one_that_was_killed():
    leases = Leases()
    leases.keep({**lease("other", 1), "kind": "Lease"})
    async with asyncio.timeout(20), lead(leases, "me").held(wait=False):
        assert leases.holder == "me"
    assert leases.holder == ""


async def test_a_holder_that_was_killed_is_followed_at_once_by_the_next_of_its_folder(tmp_path):
    leases, lock = Leases(), tmp_path / "home" / "l.lock"
    first = lead(leases, "", lock=lock)
    leases.keep({**lease(first.identity, 1000), "kind": "Lease"})
    async with asyncio.timeout(20), lead(leases, "", lock=lock).held(wait=False):
        assert leases.holder == first.identity
    assert lead(leases, "", lock=tmp_path / "l.lock").identity != first.identity


async def test_two_processes_of_one_folder_do_not_both_hold_the_lease(tmp_path):
    leases, lock = Leases(), tmp_path / "l.lock"
    async with lead(leases, "", lock=lock).held(wait=False):
        with pytest.raises(LeaseHeld, match="another process of this machine"):
            async with lead(leases, "", lock=lock).held(wait=False):
                pass
        assert leases.holder


@pytest.mark.parametrize(
    ("lose", "told"),
    [
        (lambda leases: leases.keep({**leases.lease, "spec": lease("thief", 1000)["spec"]}), "thief holds"),
        (
            lambda leases: setattr(leases, "away", True),
            r"could not be renewed for 0.5 s \(away\); work in",
        ),
    ],
    ids=["taken by another", "the cluster is away"],
)
async def test_a_lease_that_is_lost_ends_the_task_with_the_reason(lose, told):
    leases = Leases()
    async with lead(leases, "me", duration=2, patience=0.5).held(wait=False) as renewal:
        lose(leases)
        with pytest.raises(LeaseLost, match=told):
            await renewal


async def test_a_namespace_that_is_not_there_is_told_to_who_does_not_wait():
    leases = Leases()

    async def create(obj):
        raise NotThere(404, 'namespaces "n" not found')

    leases.create = create
    with pytest.raises(NotThere, match="namespaces"):
        async with lead(leases, "me").held(wait=False):
            pass
