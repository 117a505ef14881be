"""How an image is named: by a path, by a path with one of skopeo's prefixes, or by a reference to a registry."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address

from hookline.errors import UsageError

_DIGEST = re.compile(r"(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128})")

# Prefixes of images on this machine, as skopeo has them.
LOCAL = ("oci:", "oci-archive:", "docker-archive:", "dir:")

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REPOSITORY = re.compile(rf"{_PART}(?:/{_PART})*")
_HOST = re.compile(r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_LONGEST_REPOSITORY = 255
_EXAMPLE = "write it as ghcr.io/org/hooks:v1 or ghcr.io/org/hooks@sha256:..."
_ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.zst")
_PATHS = ("/", "./", "../", "~/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An image in a registry. `text` is the reference as written; `registry` includes the port."""

    text: str
    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def read(cls, text: str) -> Reference:
        """Parses a reference; one without a registry is on Docker Hub, as for docker itself."""
        rest, digest = _digest(text.removeprefix("docker://"), text)
        rest, tag = _tag(rest, text)
        registry, repository = _registry(rest, text)
        _check_repository(repository, text)
        return cls(text=text, registry=registry, repository=repository, tag=tag, digest=digest)

    @property
    def wanted(self) -> str:
        """The tag or digest to request; the digest wins over the tag."""
        return self.digest or self.tag or "latest"

    def pinned(self, digest: str) -> str:
        """The same image as a reference by digest."""
        return f"{self.registry}/{self.repository}@{digest}"


def directory_name(ref: str) -> str:
    """The folder name of an image: the last part of its reference, without tag and digest."""
    path = next((ref.removeprefix(prefix) for prefix in LOCAL if ref.startswith(prefix)), ref)
    path = path.rpartition("@")[0] if "@" in path else path
    if path.rfind(":") > path.rfind("/"):
        path = path.rpartition(":")[0]
    name = path.rstrip("/").rpartition("/")[2]
    if not _NAME.fullmatch(name) or name in (".", ".."):
        raise UsageError(
            f"{ref!r} gives no folder name for its hooks: its last word is {name!r},"
            " and that must be made of letters, digits, '.', '_' and '-'"
        )
    return name


def names(refs: Iterable[str]) -> dict[str, str]:
    """The folder name of each distinct reference, in order of first appearance."""
    found: dict[str, str] = {}
    holders: dict[str, str] = {}
    for ref in refs:
        found[ref] = name = directory_name(ref)
        other = holders.setdefault(name, ref)
        if other != ref:
            raise UsageError(
                f"{other!r} and {ref!r} are different images that would both be the folder {name!r};"
                " give them different names"
            )
    return found


def is_local(text: str) -> bool:
    """True if the text names an image on this machine, not in a registry."""
    return text.startswith((*LOCAL, *_PATHS)) or text in (".", "..") or text.endswith(_ARCHIVES)


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def _digest(rest: str, text: str) -> tuple[str, str | None]:
    if not rest or rest != rest.strip():
        raise UsageError(f"{text!r} is not an image reference; {_EXAMPLE}")
    if "@" not in rest:
        return rest, None
    rest, _, digest = rest.partition("@")
    if not is_digest(digest):
        raise UsageError(
            f"{text!r} has a wrong digest {digest!r}; it is sha256: and 64, or sha512: and 128, of 0-9 and a-f"
        )
    return rest, digest


def _tag(rest: str, text: str) -> tuple[str, str | None]:
    # A colon before the last slash belongs to a port.
    if rest.rfind(":") <= rest.rfind("/"):
        return rest, None
    rest, _, tag = rest.rpartition(":")
    if not _TAG.fullmatch(tag):
        raise UsageError(
            f"{text!r} has a wrong tag {tag!r}; a tag is at most 128 letters, digits, '.', '_' and '-'"
        )
    return rest, tag


def _registry(rest: str, text: str) -> tuple[str, str]:
    host, slash, path = rest.partition("/")
    if not slash or not (set(host) & set(".:[") or host == "localhost" or host != host.lower()):
        host, path = "docker.io", rest
    if not _is_host(host):
        raise UsageError(
            f"{text!r} has a wrong registry {host!r}; that is a host and perhaps a port; {_EXAMPLE}"
        )
    host = "docker.io" if host == "index.docker.io" else host
    if host == "docker.io" and "/" not in path:
        path = f"library/{path}"
    return host, path


def _is_host(text: str) -> bool:
    match = _HOST.fullmatch(text)
    if match is None or not 0 < int(match[1] or 1) < 65536:
        return False
    try:
        return not text.startswith("[") or bool(IPv6Address(text[1:].partition("]")[0]))
    except ValueError:
        return False


def _check_repository(repository: str, text: str) -> None:
    if _REPOSITORY.fullmatch(repository) and len(repository) <= _LONGEST_REPOSITORY:
        return
    if _REPOSITORY.fullmatch(repository.lower()):
        why = (
            "only lower-case letters are allowed"
            if len(repository) <= _LONGEST_REPOSITORY
            else f"at most {_LONGEST_REPOSITORY} characters are allowed"
        )
    else:
        why = "its words are lower-case letters and digits, joined by '.', '_' or '-'"
    raise UsageError(f"{text!r} has a wrong image name {repository!r}: {why}; {_EXAMPLE}")
