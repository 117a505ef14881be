"""What becomes of a call when the server's answer is late, wrong or none at all."""

import json

import pytest

from hookline.errors import FileError, UsageError
from hookline.kube.client import Cluster, Patience
from hookline.kube.objects import (
    AGENT_RUN,
    CONFIG_MAP,
    JOB,
    POD,
    AlreadyThere,
    ApiRefused,
    ClusterError,
    Conflict,
    Gone,
    NotThere,
    Unreachable,
)
from tests.kube.scripted_server import DRIBBLE, SILENCE, answer, chunked, scripted, status, stream

QUICK = Patience(limit=60, tries=3, pause=0.001)
ONE = {"metadata": {"name": "a", "namespace": "home", "resourceVersion": "7"}}
MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
CUT = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"


def made(config):
    return Cluster(config, patience=QUICK)


async def get(cluster):
    return await cluster.get(CONFIG_MAP, "a", "home")


CALLS = {
    "get": get,
    "list": lambda cluster: cluster.list(CONFIG_MAP, "home"),
    "patch": lambda cluster: cluster.patch(CONFIG_MAP, "a", "home", {"data": {"x": "1"}}),
    "replace": lambda cluster: cluster.replace(MAP),
    "delete": lambda cluster: cluster.delete(CONFIG_MAP, "a", "home"),
    "log": lambda cluster: cluster.log("a", "home", "main"),
}
TROUBLE = {
    "500": status(500, "etcd is away"),
    "502 of a proxy": answer(502, b"<html>", kind="text/html"),
    "503": status(503, "starting"),
    "429": status(429, "too many"),
    "cut": CUT,
    "no HTTP": b"hello\r\n\r\n",
    "nothing": b"",
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_a_call_that_changes_nothing_twice_is_tried_again(tmp_path, call, trouble):
    async with (
        scripted(tmp_path, trouble, trouble, answer(200, ONE)) as (server, config),
        made(config) as cluster,
    ):
        await call(cluster)
    assert len(server.asked) == 3
    assert sum(cluster.calls.values()) == 3


@pytest.mark.parametrize("trouble", TROUBLE.values(), ids=TROUBLE.keys())
async def test_after_the_last_try_the_cluster_is_unreachable(tmp_path, trouble):
    async with scripted(tmp_path, trouble) as (server, config), made(config) as cluster:
        with pytest.raises(Unreachable, match="api/v1/namespaces/home/configmaps/a"):
            await get(cluster)
    assert len(server.asked) == 3


@pytest.mark.parametrize("trouble", [TROUBLE["500"], TROUBLE["cut"], TROUBLE["nothing"]])
async def test_a_create_that_may_have_happened_is_not_tried_again(tmp_path, trouble):
    async with scripted(tmp_path, trouble) as (server, config), made(config) as cluster:
        with pytest.raises(Unreachable):
            await cluster.create(MAP)
    assert len(server.asked) == 1


async def test_a_create_that_was_turned_away_is_tried_again(tmp_path):
    busy = answer(429, {"message": "later"}, Retry_After="0")
    async with scripted(tmp_path, busy, answer(201, ONE)) as (server, config), made(config) as cluster:
        assert await cluster.create(MAP) == ONE
    assert len(server.asked) == 2


async def test_a_server_that_is_not_there_is_named(tmp_path):
    async with scripted(tmp_path, b"") as (server, config):
        pass
    async with made(config) as cluster:
        with pytest.raises(Unreachable, match=f"127.0.0.1:{server.port}"):
            await get(cluster)


async def test_a_server_that_says_nothing_is_not_waited_for_longer_than_the_limit(tmp_path):
    short = Patience(limit=0.2)
    async with (
        scripted(tmp_path, SILENCE) as (server, config),
        Cluster(config, patience=short) as cluster,
    ):
        with pytest.raises(Unreachable):
            await get(cluster)
        with pytest.raises(Unreachable):
            await watched(cluster)
    assert server.asked


async def test_an_answer_that_never_ends_is_not_waited_for_longer_than_the_limit(tmp_path):
    short = Patience(limit=0.5)
    async with (
        scripted(tmp_path, DRIBBLE) as (server, config),
        Cluster(config, patience=short) as cluster,
    ):
        with pytest.raises(Unreachable, match=r"no answer within 0\.5 s"):
            await get(cluster)
    assert server.asked


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'"a"'])
async def test_an_answer_that_is_no_object_is_no_answer(tmp_path, body):
    async with scripted(tmp_path, answer(200, body)) as (_, config), made(config) as cluster:
        with pytest.raises(Unreachable, match="the answer is"):
            await get(cluster)


SAID = {
    "403": (status(403, "configmaps is forbidden"), ApiRefused, "configmaps is forbidden"),
    "422": (status(422, "spec.task: Required value"), ApiRefused, "spec.task: Required value"),
    "404": (status(404, 'configmaps "a" not found'), NotThere, "not found"),
    "409": (status(409, "the object has been modified"), Conflict, "has been modified"),
    "410": (status(410, "too old resource version"), Gone, "too old"),
    "401 without JSON": (answer(401, b"who?", kind="text/plain"), ApiRefused, "who?"),
    "400 without a word": (answer(400, b""), ApiRefused, "an empty answer with status 400"),
    "a redirect": (answer(302, b"", Location="/login"), Unreachable, "status 302"),
}


@pytest.mark.parametrize(("said", "kind", "message"), SAID.values(), ids=SAID.keys())
async def test_a_refusal_is_not_tried_again_and_keeps_the_servers_words(tmp_path, said, kind, message):
    async with scripted(tmp_path, said) as (server, config), made(config) as cluster:
        with pytest.raises(kind) as told:
            await cluster.patch(AGENT_RUN, "a", "home", {})
    assert type(told.value) is kind
    assert message in str(told.value)
    assert len(server.asked) == 1


async def test_a_kind_that_is_not_installed_is_named(tmp_path):
    async with scripted(tmp_path, answer(404, b"404 page not found")) as (_, config), made(config) as cluster:
        with pytest.raises(
            NotThere, match=r"no AgentRun of sympozium\.ai/v1alpha1; is its definition installed"
        ):
            await cluster.list(AGENT_RUN)


async def test_a_create_tells_what_is_there_from_other_conflicts(tmp_path):
    there, quota = status(409, 'configmaps "a" already exists'), status(409, "quota is being changed")
    async with scripted(tmp_path, there, quota) as (_, config), made(config) as cluster:
        with pytest.raises(AlreadyThere):
            await cluster.create(MAP)
        with pytest.raises(Conflict):
            await cluster.create(MAP)


async def test_what_is_gone_is_an_answer_to_get_delete_and_log(tmp_path):
    async with scripted(tmp_path, status(404, "not found")) as (_, config), made(config) as cluster:
        assert await get(cluster) is None
        assert await cluster.delete(JOB, "a", "home") is False
        assert await cluster.log("a", "home", "main") is None


async def test_what_is_another_one_is_not_deleted(tmp_path):
    async with (
        scripted(tmp_path, status(409, "Precondition failed: UID")) as (server, config),
        made(config) as cluster,
    ):
        assert await cluster.delete(JOB, "a", "home", uid="u1", grace=0) is False
        with pytest.raises(Conflict):
            await cluster.delete(JOB, "a", "home")
    assert json.loads(server.asked[0].body) == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": "u1"},
        "gracePeriodSeconds": 0,
    }


async def test_a_long_list_is_read_to_its_end(tmp_path):
    first = answer(200, {"metadata": {"resourceVersion": "7", "continue": "more"}, "items": [ONE]})
    second = answer(200, {"metadata": {"resourceVersion": "7"}, "items": [ONE]})
    async with scripted(tmp_path, first, second) as (server, config), made(config) as cluster:
        found, version = await cluster.list(CONFIG_MAP, labels={"app": "x", "part": "y"})
    assert (found, version) == ([{"apiVersion": "v1", "kind": "ConfigMap", **ONE}] * 2, "7")
    assert "continue=more" in server.asked[1].line
    assert "labelSelector=app%3Dx%2Cpart%3Dy" in server.asked[1].line


LOGS = {
    "short": (b"one\ntwo\n", 100, "one\ntwo\n"),
    "empty": (b"", 100, ""),
    "its end": (b"0123456789", 4, "6789"),
    "exactly": (b"0123", 4, "0123"),
    "no half character": ("ab\u20ac9".encode(), 3, "9"),
    "not text": (b"\xff\n", 100, "\ufffd\n"),
    "the container is gone": (b"unable to retrieve container logs for containerd://123", 100, None),
}


@pytest.mark.parametrize(("printed", "most", "kept"), LOGS.values(), ids=LOGS.keys())
async def test_of_a_log_the_end_is_kept(tmp_path, printed, most, kept):
    async with scripted(tmp_path, answer(200, printed)) as (server, config), made(config) as cluster:
        assert await cluster.log("a", "home", "main", tail_lines=9, most_bytes=most) == kept
    assert server.asked[0].line.startswith(
        "GET /api/v1/namespaces/home/pods/a/log?container=main&tailLines=9 "
    )


async def test_a_log_in_many_pieces_is_cut_to_its_end(tmp_path):
    pieces = [b"%d" % (number % 10) * 1000 for number in range(100)]
    async with scripted(tmp_path, chunked(*pieces)) as (_, config), made(config) as cluster:
        assert await cluster.log("a", "home", "main", most_bytes=1500) == "8" * 500 + "9" * 1000


async def test_a_log_of_a_container_that_has_not_started_is_none(tmp_path):
    async with scripted(tmp_path, status(400, "is waiting to start")) as (_, config), made(config) as cluster:
        assert await cluster.log("a", "home", "main") is None


def event(word, name="a", version="8", **more):
    return {"type": word, "object": {"metadata": {"name": name, "resourceVersion": version}, **more}}


async def watched(cluster):
    return [seen async for seen in cluster.watch(CONFIG_MAP, "home", None, "7")]


async def test_a_watch_gives_each_event_until_the_server_ends_it(tmp_path):
    # U+0085 and U+2028 end a line for Python, and not for JSON.
    events = [event("ADDED", data={"x": "a\u0085b\u2028c\n"}), event("BOOKMARK"), event("DELETED")]
    body = "\n".join(json.dumps(one, ensure_ascii=False) for one in events).encode() + b"\n"
    pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
    async with scripted(tmp_path, chunked(*pieces)) as (server, config), made(config) as cluster:
        assert await watched(cluster) == [(one["type"], one["object"]) for one in events]
    assert "watch=true&allowWatchBookmarks=true&timeoutSeconds=" in server.asked[0].line
    assert "resourceVersion=7" in server.asked[0].line
    assert cluster.calls == {"watch ConfigMap": 1}


async def test_a_log_is_followed_line_by_line_and_its_last_line_needs_no_end(tmp_path):
    body = "one\n\x1etwo\u2028\n\nthe last".encode()
    pieces = [body[at : at + 3] for at in range(0, len(body), 3)]
    async with scripted(tmp_path, chunked(*pieces)) as (server, config), made(config) as cluster:
        assert [line async for line in cluster.follow_log("p", "home", "c")] == [
            *("one", "\x1etwo\u2028", "", "the last")
        ]
    assert "pods/p/log?container=c&follow=true" in server.asked[0].line


BROKEN = {
    "cut in a line": (stream(event("ADDED"), b'{"type": "MODI'), Unreachable, "not JSON"),
    "cut between chunks": (
        chunked(json.dumps(event("ADDED")).encode() + b"\n", ended=False),
        Unreachable,
        "home",
    ),
    "too old": (
        stream(event("ADDED"), {"type": "ERROR", "object": {"code": 410, "message": "too old"}}),
        Gone,
        "too old",
    ),
    "server in trouble": (
        stream(event("ADDED"), {"type": "ERROR", "object": {"code": 500, "message": "etcd"}}),
        Unreachable,
        "etcd",
    ),
    "no JSON": (stream(event("ADDED"), b"oops\n"), Unreachable, "not JSON"),
    "no event": (stream(event("ADDED"), {"kind": "Status"}), Unreachable, "not an event"),
}


@pytest.mark.parametrize(("sent", "kind", "said"), BROKEN.values(), ids=BROKEN.keys())
async def test_a_watch_that_breaks_gives_what_came_whole_and_then_says_why(tmp_path, sent, kind, said):
    async with scripted(tmp_path, sent) as (_, config), made(config) as cluster:
        watching = cluster.watch(CONFIG_MAP, "home", None, "7")
        assert (await anext(watching))[0] == "ADDED"
        with pytest.raises(kind, match=said):
            await anext(watching)


@pytest.mark.parametrize(
    ("said", "kind"), [(status(410, "old"), Gone), (status(500, "x"), Unreachable), (b"", Unreachable)]
)
async def test_a_watch_that_does_not_begin_says_why(tmp_path, said, kind):
    async with scripted(tmp_path, said) as (_, config), made(config) as cluster:
        with pytest.raises(kind):
            await watched(cluster)


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_a_name_never_means_another_address(tmp_path, name):
    async with scripted(tmp_path, answer(200, ONE)) as (server, config), made(config) as cluster:
        with pytest.raises(UsageError, match="cannot be the name of a Pod"):
            await cluster.get(POD, name, "home")
        await cluster.get(POD, "a/../b?c", "home")
    assert [asked.line for asked in server.asked] == [
        "GET /api/v1/namespaces/home/pods/a%2F..%2Fb%3Fc HTTP/1.1"
    ]


async def test_a_token_that_changed_on_disk_is_read_again(tmp_path):
    token = tmp_path / "token"
    token.write_text("first")

    def valid(asked):
        given = asked.head["authorization"]
        return answer(200, ONE) if given == f"bearer {token.read_text()}" else status(401, "Unauthorized")

    async with (
        scripted(tmp_path, valid, user="{tokenFile: token}") as (server, config),
        made(config) as cluster,
    ):
        await get(cluster)
        token.write_text("second")
        assert await get(cluster) == ONE
        assert await get(cluster) == ONE
    assert [asked.head["authorization"] for asked in server.asked] == [
        "bearer first",
        "bearer first",
        "bearer second",
        "bearer second",
    ]


LOGIN = {
    "no program": "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: no-such-program-here}}",
    "no token": "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: echo, args: ['{}']}}",
    "it fails": "{exec: {apiVersion: client.authentication.k8s.io/v1beta1, command: 'false'}}",
    "no file": "{tokenFile: not-there}",
}


@pytest.mark.parametrize("user", LOGIN.values(), ids=LOGIN.keys())
async def test_who_cannot_log_in_is_told_so(tmp_path, user):
    async with scripted(tmp_path, answer(200, ONE), user=user) as (server, config), made(config) as cluster:
        with pytest.raises(ClusterError, match="cannot log in at http"):
            await get(cluster)
    assert server.asked == []


def nowhere(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)


def test_no_cluster_at_all_names_what_was_tried(tmp_path, monkeypatch):
    nowhere(monkeypatch, tmp_path)
    with pytest.raises(UsageError) as told:
        Cluster(account=str(tmp_path / "account"))
    for word in ("$KUBECONFIG is not set", f"{tmp_path}/.kube/config", f"{tmp_path}/account/token"):
        assert word in str(told.value)


def test_a_kubeconfig_that_is_named_must_be_there(tmp_path, monkeypatch):
    with pytest.raises(UsageError, match="which the given path names"):
        Cluster(str(tmp_path / "no"))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "no"))
    with pytest.raises(UsageError, match=r"which \$KUBECONFIG names"):
        Cluster()


GOOD = """\
current-context: one
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: one, context: {cluster: c, namespace: mine}}, {name: two, context: {cluster: c}}]
"""
WRONG = {
    "no YAML": ("a: [", "kubeconfig:1: this is not YAML"),
    "a list": ("[]", "a mapping with clusters, contexts and users"),
    "no name": ("clusters: [{cluster: {}}]", "clusters: each entry needs a name and a mapping 'cluster'"),
    "no mapping": ("users: [{name: a}]", "users: each entry needs a name and a mapping 'user'"),
    "no context": (GOOD.replace("current-context: one", "current-context: three"), "contexts: one, two"),
    "no current context": ("clusters: []", "contexts: none"),
    "no cluster": (GOOD.replace("{name: c,", "{name: d,"), "no entry 'c', which the context names"),
    "a wrong type": (GOOD.replace('"http://127.0.0.1:1"', "[1]"), "not a kubeconfig"),
    "no certificate": (
        GOOD.replace('1:1"', '1:1", certificate-authority: ca.pem'),
        "context 'one' cannot be used",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_kubeconfig_is_told_with_its_place(tmp_path, text, said):
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(FileError) as told:
        Cluster(str(file))
    assert str(told.value).startswith(str(file))
    assert said in str(told.value)


async def test_of_several_kubeconfigs_the_first_to_name_a_thing_wins(tmp_path, monkeypatch):
    (tmp_path / "a").write_text(
        "current-context: two\ncontexts: [{name: two, context: {cluster: c, namespace: first}}]"
    )
    (tmp_path / "b").write_text(GOOD)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/a:{tmp_path}/missing:{tmp_path}/b")
    async with Cluster() as cluster:
        assert (cluster.namespace, cluster.server) == ("first", "http://127.0.0.1:1")
    async with Cluster(context="one") as cluster:
        assert cluster.namespace == "mine"
