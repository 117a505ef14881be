"""Hook images against the tools of others: umoci says what layers add up to, docker-registry and skopeo hand them out."""

import base64
import json
import os
import socket
import stat
import subprocess
import sys
import time

import pytest
import zstandard

from hookline.errors import ImageError
from hookline.images.fetch import fetch
from hookline.images.layers import Unpacker
from tests.fakes.images import MadeImage, tar_entry
from tests.fakes.registry import FakeRegistry
from tests.images.awkward import FOLDER, HARD, LAYERS, LINK
from tests.programs import installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

TOOLS = {
    "skopeo": "skopeo",
    "umoci": "umoci",
    "docker-registry": "docker-registry",
    "htpasswd": "apache2-utils",
    "openssl": "openssl",
}


@pytest.fixture(scope="session", autouse=True)
def tools():
    installed(**TOOLS)


def tree(root, allowed=0o777):
    """Every path with kind, mode (of what is allowed), content or target, and the paths that are the same file."""
    found, same = {}, {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        info = path.lstat()
        mode = stat.S_IMODE(info.st_mode) & allowed
        if path.is_symlink():
            found[name] = ("link", inside(os.readlink(path), name))
        elif path.is_dir():
            found[name] = ("folder", mode)
        else:
            found[name] = ("file", mode, path.read_bytes())
            same.setdefault(info.st_ino, set()).add(name)
    return found, sorted(map(sorted, same.values()))


def inside(target, name):
    """An absolute link as we keep it: relative, to the same place of the image."""
    return "../" * name.count("/") + target.lstrip("/") or "." if target.startswith("/") else target


MORE = {
    "modes": [[tar_entry("d", kind=FOLDER, mode=0o701), tar_entry("d/f", "1", mode=0o604), tar_entry("s", mode=0o4711)]],
    "the mode of a folder changes": [
        [tar_entry("d", kind=FOLDER, mode=0o755), tar_entry("d/f", "1")],
        [tar_entry("d", kind=FOLDER, mode=0o700)],
    ],
    "three layers of the same folder": [
        {"a/b/c": "1", "a/d": "2"},
        {"a/b/.wh.c": "", "a/b/e": "3"},
        {"a/.wh.b": "", "a/f": "4"},
    ],
    "hard links of three": [
        [tar_entry("a", "1"), tar_entry("b", kind=HARD, target="a"), tar_entry("d/c", kind=HARD, target="b")],
        [tar_entry("e", kind=HARD, target="d/c"), tar_entry(".wh.a")],
    ],
    "a link to a folder is replaced by a folder": [
        [tar_entry("t/x", "1"), tar_entry("l", kind=LINK, target="t")],
        [tar_entry("l", kind=FOLDER), tar_entry("l/y", "2")],
    ],
    "a whiteout of a link": [
        [tar_entry("t/x", "1"), tar_entry("l", kind=LINK, target="t")],
        {".wh.l": ""},
    ],
    "an opaque folder through a link": [
        [tar_entry("t/x", "1"), tar_entry("l", kind=LINK, target="t")],
        {"l/.wh..wh..opq": "", "l/y": "2"},
    ],
    "a folder, opaque at first": [{"d/a": "1"}, [tar_entry("d/.wh..wh..opq"), tar_entry("d/b", "2")]],
    "everything goes": [{"a": "1", "b/c": "2"}, {".wh..wh..opq": ""}],
}  # fmt: skip

# Where we mean to differ. Docker leaves out what aufs kept for itself, and umoci only a part of it. A file that a later layer
# has as a folder, without an entry for the folder, is replaced here and an error there.
DIFFERENT = {"metadata of aufs", "a file becomes a folder nobody listed"}
AWKWARD = {name: layers for name, (layers, _) in LAYERS.items() if name not in DIFFERENT} | MORE


@pytest.mark.parametrize("layers", AWKWARD.values(), ids=AWKWARD.keys())
def test_unpacking_agrees_with_umoci(tmp_path, layers):
    image = MadeImage.of(*layers)
    layout = image.write_layout(tmp_path / "layout", tag="x")
    done = subprocess.run(
        ["umoci", "unpack", "--rootless", "--image", f"{layout}:x", tmp_path / "theirs"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (tmp_path / "ours").mkdir()
    with Unpacker(tmp_path / "ours") as unpacking:
        for digest in image_layers(image):
            with (layout / "blobs" / digest.replace(":", "/")).open("rb") as file:
                unpacking.layer(file, digest)
        unpacking.finish()
    # Ours are read-only.
    assert tree(tmp_path / "ours") == tree(tmp_path / "theirs" / "rootfs", allowed=0o555)


def image_layers(image):
    return [layer["digest"] for layer in json.loads(image.manifest)["layers"]]


USER, PASSWORD = "me", "correct horse"
CONFIG = """
version: 0.1
log: {{level: error, accesslog: {{disabled: true}}}}
storage: {{filesystem: {{rootdirectory: {folder}}}}}
http: {{addr: "127.0.0.1:{port}"}}
"""
HTPASSWD = 'auth: {{htpasswd: {{realm: hooks, path: "{file}"}}}}\n'
IMAGE = MadeImage.of({"check.sh": "#!/bin/sh\n", "old": "x"}, {".wh.old": "", "more/notes": "y"})
FILES = {"check.sh": "#!/bin/sh\n", "more/notes": "y"}


class DockerRegistry:
    """Debian's docker-registry on loopback, with or without a password."""

    def __init__(self, folder, *, password):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.host = f"127.0.0.1:{port}"
        self.creds = ["--dest-creds", f"{USER}:{PASSWORD}"] if password else []
        config = CONFIG.format(folder=folder / "store", port=port)
        if password:
            command = ["htpasswd", "-nbB", USER, PASSWORD]
            done = subprocess.run(command, capture_output=True, check=True)
            (folder / "htpasswd").write_bytes(done.stdout)
            config += HTPASSWD.format(file=folder / "htpasswd")
        (folder / "registry.yml").write_text(config)
        self.log = (folder / "log").open("w")
        self.process = subprocess.Popen(
            ["docker-registry", "serve", folder / "registry.yml"], stdout=self.log, stderr=self.log
        )
        self.wait(port)

    def wait(self, port):
        for _ in range(3000):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                assert self.process.poll() is None, "docker-registry ended"
                time.sleep(0.01)
            else:
                return
        raise AssertionError("docker-registry does not answer")

    def fill(self, source, name, *options):
        copy(source, f"docker://{self.host}/{name}", "--dest-tls-verify=false", *self.creds, *options)

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.log.close()


def copy(source, target, *options):
    command = ["skopeo", "--insecure-policy", "copy", *options, source, target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def layout(tmp_path):
    packed = MadeImage.of(FILES, pack=zstandard.ZstdCompressor().compress)
    packed.write_layout(tmp_path / "layout", tag="zstd")
    return IMAGE.write_layout(tmp_path / "layout", tag="v1")


@pytest.fixture(params=[False, True], ids=["open", "with a password"])
def registry(request, tmp_path):
    registry = DockerRegistry(tmp_path, password=request.param)
    yield registry
    registry.close()


def files(path):
    return {
        str(item.relative_to(path)): item.read_text() for item in sorted(path.rglob("*")) if item.is_file()
    }


def fetching(folder, *refs, **how):
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"]}
    return fetch(refs, cache=folder / "cache", environ=environ, base=folder, **how)


@pytest.mark.statement("KA13")
async def test_an_image_that_skopeo_pushed_is_fetched_from_dockers_registry(tmp_path, registry, layout):
    auth = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    (tmp_path / ".docker").mkdir()
    (tmp_path / ".docker/config.json").write_text(json.dumps({"auths": {registry.host: {"auth": auth}}}))
    registry.fill(f"oci:{layout}:v1", "org/hooks:v1")
    registry.fill(f"oci:{layout}:v1", "org/docker:v1", "--format", "v2s2")
    registry.fill(f"oci:{layout}:zstd", "org/zstd:v1")
    refs = [f"{registry.host}/org/{name}:v1" for name in ("hooks", "docker", "zstd")]
    found = await fetching(tmp_path, *refs)
    assert [files(got.path) for got in found] == [FILES] * 3
    assert found[0].digest == IMAGE.digest
    [again] = await fetching(tmp_path, f"{registry.host}/org/hooks@{IMAGE.digest}")
    assert again.path == found[0].path


async def test_a_registry_that_wants_a_password_is_told(tmp_path, registry, layout):
    registry.fill(f"oci:{layout}:v1", "org/hooks:v1")
    ref = f"{registry.host}/org/hooks:v1"
    if not registry.creds:
        await fetching(tmp_path, ref)
        return
    with pytest.raises(
        ImageError,
        match=f"wants a login, or there is no such image; log in with docker login {registry.host}",
    ):
        await fetching(tmp_path, ref)


async def test_the_archives_that_skopeo_writes_are_read(tmp_path, layout):
    copy(f"oci:{layout}:v1", f"oci-archive:{tmp_path}/a.tar:v1")
    copy(f"oci:{layout}:v1", f"docker-archive:{tmp_path}/b.tar:org/hooks:v1")
    copy(f"oci:{layout}:v1", f"oci:{tmp_path}/c:v1")
    copy(f"oci:{layout}:v1", f"dir:{tmp_path}/d")
    found = await fetching(tmp_path, "a.tar", "docker-archive:b.tar:org/hooks:v1", "oci:c:v1")
    assert [files(got.path) for got in found] == [FILES] * 3
    with pytest.raises(ImageError, match="what skopeo writes for dir:"):
        await fetching(tmp_path, "./d")


async def test_the_files_of_an_image_agree_with_umoci_from_end_to_end(tmp_path, layout):
    [got] = await fetching(tmp_path, f"oci:{layout}:v1")
    command = ["umoci", "unpack", "--rootless", "--image", f"{layout}:v1", tmp_path / "theirs"]
    subprocess.run(command, check=True, capture_output=True)
    assert files(got.path) == files(tmp_path / "theirs/rootfs")


FETCH = """
import asyncio, os, sys
from pathlib import Path
from hookline.errors import ImageError
from hookline.images.fetch import fetch
folder = Path(sys.argv[1])
try:
    [got] = asyncio.run(fetch([sys.argv[2]], cache=folder / "cache", environ=os.environ, base=folder))
except ImageError as exc:
    sys.exit(str(exc))
print((got.path / "check.sh").read_text(), end="")
"""


@pytest.fixture(scope="session")
def certificate(tmp_path_factory, tools):
    """For an address that is this machine and that nobody would take for it by its looks."""
    folder = tmp_path_factory.mktemp("tls")
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=hooks"]
    names = ["-addext", "subjectAltName=IP:0.0.0.0"]
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", "req", *options, *names, *files], check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "cert.pem").read_bytes() + (folder / "key.pem").read_bytes())
    return both


@pytest.fixture
def encrypted(certificate):
    with FakeRegistry(certificate=certificate) as registry:
        registry.put("org/hooks", "v1", IMAGE)
        yield registry


def fetched_alone(folder, registry, **environ):
    """In a process of its own, for the certificates that are trusted are read once."""
    ref = f"0.0.0.0:{registry.host.partition(':')[2]}/org/hooks:v1"
    environ = {"HOME": str(folder), "PATH": os.environ["PATH"], **environ}
    return subprocess.run(
        [sys.executable, "-c", FETCH, folder, ref], env=environ, capture_output=True, text=True, check=False
    )


def test_an_image_is_fetched_over_tls_from_a_registry_that_is_trusted(tmp_path, encrypted, certificate):
    done = fetched_alone(tmp_path, encrypted, SSL_CERT_FILE=str(certificate))
    assert (done.returncode, done.stdout) == (0, "#!/bin/sh\n"), done.stderr


def test_a_registry_that_is_not_trusted_is_not_talked_to(tmp_path, encrypted):
    done = fetched_alone(tmp_path, encrypted)
    assert done.returncode == 1
    assert "no encrypted connection" in done.stderr
    assert "certificate verify failed" in done.stderr
    assert encrypted.asked == []


def test_a_redirect_from_an_encrypted_registry_to_one_that_is_not_is_refused(
    tmp_path, encrypted, certificate
):
    with FakeRegistry() as other:
        encrypted.misbehave("blobs", location=f"{other.url}/v2/x")
        done = fetched_alone(tmp_path, encrypted, SSL_CERT_FILE=str(certificate))
        assert done.returncode == 1
        assert f"redirects to {other.url}/v2/x, which is not encrypted" in done.stderr
        assert other.asked == []
