"""Logging in: what registries ask for, what docker's configuration has, and where a password must never go."""

import asyncio
import base64
import contextlib
import json
import os
from pathlib import Path

import pytest

from hookline.errors import FileError, ImageError
from hookline.images.credentials import Login, login
from hookline.images.fetch import fetch
from hookline.tasks import StopToken, WorkStopped
from tests.fakes.images import MadeImage
from tests.fakes.registry import FakeRegistry

USER, PASSWORD = "me", "correct horse"
AUTH = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
IMAGE = MadeImage.of({"check.sh": "x"})


class Home:
    """A home folder with docker's configuration and a folder of programs."""

    def __init__(self, folder):
        self.folder = folder
        self.told = []
        self.environ = {"HOME": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}
        (folder / "bin").mkdir()

    def config(self, value, folder=".docker"):
        (self.folder / folder).mkdir()
        file = self.folder / folder / "config.json"
        file.write_text(value if isinstance(value, str) else json.dumps(value))
        return file

    def helper(self, name, script):
        program = self.folder / "bin" / f"docker-credential-{name}"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def login(self, registry="ghcr.io"):
        return login(registry, self.environ, StopToken())

    async def fetch(self, registry, **how):
        how = {"environ": self.environ, "base": self.folder, "timeout": 60, "told": self.told.append, **how}
        return await fetch([f"{registry.host}/org/hooks:v1"], cache=self.folder / "cache", **how)


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


def serving(**how):
    registry = FakeRegistry(**how)
    registry.put("org/hooks", "v1", IMAGE)
    return registry


def sent(registry, part):
    return [asked.headers.get("authorization") for asked in registry.asked if part in asked.path]


async def test_an_anonymous_token_is_fetched_where_a_registry_wants_one(home):
    with serving(auth="token") as registry:
        [got] = await home.fetch(registry)
        assert (got.path / "check.sh").read_text() == "x"
        assert sent(registry, "/token") == [None]
        assert registry.paths("/token") == ["/token?service=fake&scope=repository%3Ax%3Apull"]
        # One token for the whole image.
        assert sent(registry, "/v2/")[1:] == ["Bearer a-token-of-this-registry"] * 3


@pytest.mark.parametrize("auth", ["token", "basic"])
async def test_a_login_from_dockers_configuration_is_used(home, auth):
    with serving(auth=auth, login=(USER, PASSWORD)) as registry:
        home.config({"auths": {f"http://{registry.host}/v2/": {"auth": AUTH}}})
        [got] = await home.fetch(registry)
        assert (got.path / "check.sh").read_text() == "x"


async def test_a_login_is_only_looked_up_where_it_is_asked_for(home):
    home.config("this is not JSON")
    with serving() as registry:
        await home.fetch(registry)
    with serving(auth="basic") as registry, pytest.raises(FileError, match=r"config\.json: is not a docker"):
        await home.fetch(registry)


async def test_an_identity_token_is_exchanged(home):
    with serving(auth="token", identity="refresh-me") as registry:
        home.config({"auths": {registry.host: {"identitytoken": "refresh-me", "auth": AUTH}}})
        [got] = await home.fetch(registry)
        assert (got.path / "check.sh").read_text() == "x"
        assert [asked.method for asked in registry.asked if asked.path == "/token"] == ["POST"]


async def test_a_registry_token_is_sent_as_it_is(home):
    with serving(auth="token") as registry:
        home.config({"auths": {registry.host: {"registrytoken": "a-token-of-this-registry"}}})
        await home.fetch(registry)
        assert registry.paths("/token") == []


@pytest.mark.parametrize("auth", ["token", "basic"])
async def test_a_registry_that_wants_credentials_says_how_to_get_some(home, auth):
    with serving(auth=auth, login=(USER, PASSWORD)) as registry:
        with pytest.raises(ImageError) as told:
            await home.fetch(registry)
        assert f"{registry.host} wants a login, or there is no such image" in str(told.value)
        assert f"docker login {registry.host}" in str(told.value)


@pytest.mark.parametrize("auth", ["token", "basic"])
async def test_a_wrong_password_is_told_with_its_place_and_never_shown(home, auth):
    with serving(auth=auth, login=(USER, "another")) as registry:
        file = home.config({"auths": {registry.host: {"auth": AUTH}}})
        with pytest.raises(ImageError) as told:
            await home.fetch(registry)
        assert f"did not accept the login from {file}" in str(told.value)
        assert PASSWORD not in str(told.value)
        assert AUTH not in str(told.value)


async def test_a_registry_that_repeats_a_password_does_not_get_it_shown(home):
    with serving(auth="basic", login=(USER, PASSWORD)) as registry:
        home.config({"auths": {registry.host: {"auth": AUTH}}})
        registry.misbehave("manifests")
        registry.misbehave("manifests", refused=f"{'x' * 190} {PASSWORD} and {AUTH}")
        with pytest.raises(ImageError) as told:
            await home.fetch(registry)
    assert str(told.value).endswith("xxx *** and *")


async def test_a_registry_that_repeats_a_token_does_not_get_it_shown(home):
    with serving(auth="token") as registry:
        registry.misbehave("manifests")
        registry.misbehave("manifests", refused="no a-token-of-this-registry")
        with pytest.raises(ImageError) as told:
            await home.fetch(registry)
    assert str(told.value).endswith(": no ***")


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_credentials_do_not_follow_a_redirect_to_another_host(home, status):
    with serving(auth="basic", login=(USER, PASSWORD)) as registry, serving() as other:
        home.config({"auths": {registry.host: {"auth": AUTH}, other.host: {"auth": AUTH}}})
        layer = json.loads(IMAGE.manifest)["layers"][0]["digest"]
        registry.misbehave("blobs")
        registry.misbehave(
            "blobs", status=status, location=f"{other.url}/v2/org/hooks/blobs/{layer}?sig=s3cret"
        )
        [got] = await home.fetch(registry)
        assert (got.path / "check.sh").read_text() == "x"
        assert sent(other, "/v2/") == [None]
        assert None not in sent(registry, "/blobs/")


async def test_a_host_that_is_redirected_to_gets_no_login_when_it_asks_for_one(home):
    with serving(auth="basic", login=(USER, PASSWORD)) as registry, serving(auth="basic") as other:
        home.config({"auths": {registry.host: {"auth": AUTH}, other.host: {"auth": AUTH}}})
        registry.misbehave("manifests")
        registry.misbehave("manifests", location=f"{other.url}/v2/org/hooks/manifests/v1")
        with pytest.raises(ImageError, match="did not accept the login"):
            await home.fetch(registry)
        assert sent(other, "/v2/") == [None]


async def test_a_host_that_is_redirected_to_cannot_name_a_token_server_for_our_password(home):
    with serving() as registry, serving(auth="token") as other:
        home.config({"auths": {registry.host: {"auth": AUTH}}})
        registry.misbehave("manifests", location=f"{other.url}/v2/org/hooks/manifests/v1")
        with pytest.raises(ImageError, match="wants a login"):
            await home.fetch(registry)
        assert other.paths() == ["/v2/org/hooks/manifests/v1"]


async def test_a_token_server_that_redirects_is_not_followed_with_the_password(home):
    with serving(auth="token", login=(USER, PASSWORD)) as registry, serving() as other:
        home.config({"auths": {registry.host: {"auth": AUTH}}})
        registry.misbehave("token", location=f"{other.url}/token")
        with pytest.raises(ImageError, match="answered 307"):
            await home.fetch(registry)
        assert other.asked == []


@pytest.mark.parametrize(
    ("realm", "said"),
    [
        ("http://tokens.example/token", "the token server http://tokens.example/token is not encrypted"),
        ("ftp://tokens.example/", "names no usable token server: 'ftp://tokens.example/'"),
        ("x", "names no usable token server: 'x'"),
        ("https://[x/", "names no usable token server"),
        ("https://host:99999/", "names no usable token server"),
        ("https://h\xe4st/", "names no usable token server"),
    ],
)
async def test_a_token_server_that_is_not_safe_is_refused(home, realm, said):
    with serving(auth="token", login=(USER, PASSWORD)) as registry:
        registry.realm = realm
        with pytest.raises(ImageError, match=said):
            await home.fetch(registry)


async def test_a_token_server_that_answers_rubbish_is_told(home):
    with serving(auth="token") as registry:
        registry.misbehave("token", body="<html>")
        with pytest.raises(ImageError, match="did not answer with a token"):
            await home.fetch(registry)


async def test_a_login_of_an_unknown_kind_is_told(home):
    with serving() as registry:
        registry.misbehave("manifests", status=401, headers={"WWW-Authenticate": 'Digest realm="x"'})
        with pytest.raises(ImageError, match=r"wants a login of a kind that is not known: \{'digest'"):
            await home.fetch(registry)


# What the configuration has, for which registry, and what is found.
FOUND = {
    "by host": ({"auths": {"ghcr.io": {"auth": AUTH}}}, "ghcr.io", (USER, PASSWORD)),
    "by address": ({"auths": {"https://ghcr.io/v1/": {"auth": AUTH}}}, "ghcr.io", (USER, PASSWORD)),
    "Docker's own": (
        {"auths": {"https://index.docker.io/v1/": {"auth": AUTH}}},
        "docker.io",
        (USER, PASSWORD),
    ),
    "as two words": ({"auths": {"h": {"username": "u", "password": "p"}}}, "h", ("u", "p")),
    "with a port": ({"auths": {"h:5000": {"auth": AUTH}, "h": {}}}, "h:5000", (USER, PASSWORD)),
    "of another port": ({"auths": {"h:5000": {"auth": AUTH}}}, "h:5001", None),
    "of another": ({"auths": {"quay.io": {"auth": AUTH}}}, "ghcr.io", None),
    "an empty one": ({"auths": {"ghcr.io": {}}}, "ghcr.io", None),
    "none": ({}, "ghcr.io", None),
}


@pytest.mark.parametrize(("config", "registry", "expected"), FOUND.values(), ids=FOUND.keys())
def test_a_login_is_found_by_its_registry(home, config, registry, expected):
    home.config(config)
    found = home.login(registry)
    assert (found and (found.username, found.password)) == expected


def test_the_folder_of_the_configuration_can_be_said(home):
    home.config({"auths": {"ghcr.io": {"auth": AUTH}}}, folder="elsewhere")
    assert home.login() is None
    home.environ["DOCKER_CONFIG"] = str(home.folder / "elsewhere")
    assert home.login().username == USER


def test_no_configuration_is_no_login(home):
    assert home.login() is None


WRONG = {
    "no JSON": ("{", "is not a docker configuration that can be read"),
    "no object": ("[]", "not a JSON object"),
    "no auths": ({"auths": []}, "auths: must be an object"),
    "no entry": ({"auths": {"ghcr.io": "x"}}, "auths.ghcr.io: must be an object with auth"),
    "no text": ({"auths": {"ghcr.io": {"auth": 1}}}, "has a value that is not a text"),
    "no base64": ({"auths": {"ghcr.io": {"auth": "%%%"}}}, "auth must be user:password in base64"),
    "no colon": ({"auths": {"ghcr.io": {"auth": "YWJj"}}}, "auth must be user:password in base64"),
    "no token": ({"auths": {"ghcr.io": {"registrytoken": "a\nb"}}}, "characters that a token cannot have"),
    "no helper's name": ({"credsStore": "../x"}, "'../x' is not a name of a credential helper"),
}


@pytest.mark.parametrize(("config", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_configuration_is_told_with_its_file(home, config, said):
    file = home.config(config)
    with pytest.raises(FileError) as told:
        home.login()
    assert said in str(told.value)
    assert str(told.value).startswith(f"{file}: ")


ANSWERS = 'printf \'{"Username": "%s", "Secret": "%s"}\''


def test_a_credential_helper_is_asked_without_a_shell(home):
    home.config({"credHelpers": {"ghcr.io": "mine"}, "credsStore": "other"})
    home.helper("mine", f'read key; {ANSWERS} "$1 $key" "$0"')
    found = home.login()
    assert (found.username, found.password) == (
        "get ghcr.io",
        str(home.folder / "bin/docker-credential-mine"),
    )
    assert found.place.startswith("docker-credential-mine, named in ")


def test_the_store_of_all_is_asked_for_docker_by_its_own_name(home):
    home.config({"credsStore": "all"})
    home.helper("all", f'read key; {ANSWERS} "$key" x')
    assert home.login("docker.io").username == "https://index.docker.io/v1/"


def test_a_helper_that_knows_nothing_leaves_it_to_the_file(home):
    home.config({"credsStore": "all", "auths": {"ghcr.io": {"auth": AUTH}}})
    home.helper("all", "echo credentials not found in native keychain; exit 1")
    assert home.login().username == USER


def test_a_helper_may_answer_with_an_identity_token(home):
    home.config({"credsStore": "all"})
    home.helper("all", f"{ANSWERS} '<token>' refresh-me")
    assert (home.login().identity, home.login().username) == ("refresh-me", "")


HELPERS = {
    "missing": (None, "names the credential helper docker-credential-all, which is not on PATH"),
    "failing": ("echo locked >&2; exit 3", "docker-credential-all exited with 3: locked"),
    "rubbish": ("echo hunter2", "did not answer with a JSON object of Username and Secret"),
    "half": ('echo \'{"Username": "u"}\'', "did not answer with a JSON object"),
}


@pytest.mark.parametrize(("script", "said"), HELPERS.values(), ids=HELPERS.keys())
def test_a_helper_in_trouble_is_told_and_what_it_printed_not_shown(home, script, said):
    home.config({"credsStore": "all"})
    if script is not None:
        home.helper("all", script)
    with pytest.raises(ImageError) as told:
        home.login()
    assert said in str(told.value)
    assert "hunter2" not in str(told.value)


async def test_a_broken_helper_is_told_and_a_public_image_fetched_all_the_same(home):
    home.config({"credsStore": "gone"})
    with serving(auth="token") as registry:
        [got] = await home.fetch(registry)
    assert (got.path / "check.sh").read_text() == "x"
    assert "docker-credential-gone, which is not on PATH; trying without a login" in home.told[0]
    said = r"wants a login, or there is no such image; .*credential-gone"
    with serving(auth="basic") as registry, pytest.raises(ImageError, match=said):
        await home.fetch(registry)


async def test_a_helper_that_hangs_is_ended_with_all_it_started(home):
    home.config({"credsStore": "all"})
    home.helper("all", f"sleep 1000 & echo $! > {home.folder}/pid; wait")
    pid = home.folder / "pid"
    with serving(auth="basic") as registry:
        task = asyncio.create_task(home.fetch(registry))
        assert await settled(lambda: pid.exists() and pid.read_text().endswith("\n"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert await settled(lambda: is_gone(int(pid.read_text())))


async def test_a_helper_is_ended_also_where_nobody_waits_any_more_as_it_starts(home):
    home.config({"credsStore": "all"})
    # By its command line: it may be ended before it could write a number down.
    home.helper("all", "sleep 1000; :")
    stop = StopToken()
    stop.stop()
    with pytest.raises(WorkStopped):
        await asyncio.to_thread(login, "ghcr.io", home.environ, stop)
    assert await settled(lambda: not processes_of(home.folder / "bin"))


def processes_of(folder):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    return found


async def settled(holds):
    for _ in range(3000):
        if holds():
            return True
        await asyncio.sleep(0.01)
    return False


def is_gone(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "ZX"


def test_a_login_does_not_show_its_secrets():
    found = Login(place="here", username="u", password="pa55", identity="1d", bearer="b3")
    assert all(secret not in repr(found) for secret in ("pa55", "1d", "b3"))
