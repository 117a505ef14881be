"""Registry credentials: docker's configuration file and the credential helpers it names."""

from __future__ import annotations

import base64
import binascii
import json
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

from hookline.engine.plain import json_or_none
from hookline.errors import FileError, ImageError
from hookline.runners.child import signal_group
from hookline.tasks import StopToken

_DOCKER = "docker.io"
_DOCKER_KEY = "https://index.docker.io/v1/"
_HELPER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HELPER_LIMIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """A user with a password, or a token; `place` is where it was found, and may be shown."""

    place: str
    username: str = ""
    password: str = field(default="", repr=False)
    identity: str = field(default="", repr=False)
    bearer: str = field(default="", repr=False)

    @property
    def basic(self) -> str:
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.password, self.identity, self.bearer, self.basic[6:])))


def login(registry: str, environ: Mapping[str, str], stop: StopToken) -> Login | None:
    """The login for a registry in docker's configuration; a credential helper is run without a shell."""
    path = _path(environ)
    config = read_config(path)
    helpers = by_registry(config, "credHelpers", path)
    helper = next((name for key, name in helpers.items() if _host(key) == registry), config.get("credsStore"))
    if helper:
        found = _asked(helper, registry, path, environ, stop)
        if found is not None:
            return found
    entries = by_registry(config, "auths", path)
    entry = next((value for key, value in entries.items() if _host(key) == registry and value), None)
    return _entry(entry, registry, path) if entry is not None else None


def _path(environ: Mapping[str, str]) -> Path:
    folder = environ.get("DOCKER_CONFIG")
    if folder:
        return Path(folder) / "config.json"
    home = environ.get("HOME")
    return (Path(home) if home else Path.home()) / ".docker" / "config.json"


def read_config(path: Path) -> dict[str, Any]:
    """A docker configuration; empty if there is no such file."""
    try:
        value: Any = json.loads(path.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError, RecursionError) as exc:
        raise FileError(f"is not a docker configuration that can be read: {exc}", file=path) from exc
    if not isinstance(value, dict):
        raise FileError("is not a docker configuration: not a JSON object", file=path)
    return cast("dict[str, Any]", value)


def by_registry(config: Mapping[str, Any], key: str, path: Path, *, needed: bool = False) -> dict[str, Any]:
    """The entries of a docker configuration under a key, by registry."""
    value: Any = config.get(key)
    if (needed or value is not None) and not isinstance(value, dict):
        raise FileError("must be an object with registries as its keys", file=path, key=key)
    return cast("dict[str, Any]", value or {})


def _host(key: str) -> str:
    """The host of a key: `ghcr.io` and `https://ghcr.io/v2/` are the same; Docker Hub has several names."""
    host = re.sub(r"^https?://", "", key).partition("/")[0]
    return _DOCKER if host in ("index.docker.io", "registry-1.docker.io") else host


def _entry(entry: Any, registry: str, path: Path) -> Login:
    key = f"auths.{registry}"
    if not isinstance(entry, dict):
        raise FileError("must be an object with auth", file=path, key=key)
    item = cast("dict[str, Any]", entry)
    given = {
        name: item.get(name) or ""
        for name in ("auth", "identitytoken", "registrytoken", "username", "password")
    }
    if not all(isinstance(value, str) for value in given.values()):
        raise FileError("has a value that is not a text", file=path, key=key)
    if not re.fullmatch(r"[!-~]*", given["registrytoken"]):
        raise FileError("registrytoken has characters that a token cannot have", file=path, key=key)
    username, password = given["username"], given["password"]
    if given["auth"]:
        username, password = _decoded(given["auth"], path, key)
    return Login(
        place=f"{path}",
        username=username,
        password=password,
        identity=given["identitytoken"],
        bearer=given["registrytoken"],
    )


def _decoded(auth: str, path: Path, key: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(auth, validate=True).decode()
    except (binascii.Error, ValueError):
        text = ""
    username, colon, password = text.partition(":")
    if not colon:
        raise FileError("auth must be user:password in base64", file=path, key=key) from None
    return username, password.rstrip("\0")


def _asked(
    helper: Any, registry: str, path: Path, environ: Mapping[str, str], stop: StopToken
) -> Login | None:
    """The login a credential helper returns; None if it has none."""
    if not isinstance(helper, str) or not _HELPER.fullmatch(helper):
        raise FileError(
            f"{helper!r} is not a name of a credential helper", file=path, key="credsStore or credHelpers"
        )
    name = f"docker-credential-{helper}"
    program = shutil.which(name, path=environ.get("PATH"))
    if program is None:
        raise ImageError(f"{path} names the credential helper {name}, which is not on PATH")
    key = _DOCKER_KEY if registry == _DOCKER else registry
    code, out, err = _run([program, "get"], key, name, environ, stop)
    if code != 0:
        said = f"{out}\n{err}".strip()
        if "credentials not found" in said.lower():
            return None
        raise ImageError(f"{name} exited with {code}: {said[:200]}")
    return _answer(out, name, path)


def _answer(out: str, name: str, path: Path) -> Login:
    place = f"{name}, named in {path}"
    match json_or_none(out):
        case {"Username": "<token>", "Secret": str(secret)}:
            return Login(place=place, identity=secret)
        case {"Username": str(username), "Secret": str(secret)}:
            return Login(place=place, username=username, password=secret)
        case _:
            # Its output may be a secret, so it is not shown.
            raise ImageError(f"{name} did not answer with a JSON object of Username and Secret")


def _run(
    argv: list[str], given: str, name: str, environ: Mapping[str, str], stop: StopToken
) -> tuple[int, str, str]:
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=dict(environ),
            start_new_session=True,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as exc:
        raise ImageError(f"{name} could not be started: {exc.strerror or exc}") from exc
    kill = partial(signal_group, process.pid, signal.SIGKILL)
    try:
        with process:
            try:
                with stop.ending(kill):
                    out, err = process.communicate(given, timeout=_HELPER_LIMIT)
            finally:
                # Also its children, and if we were stopped before waiting for it.
                kill()
    except subprocess.TimeoutExpired:
        raise ImageError(f"{name} ran past its limit of {_HELPER_LIMIT:g} s") from None
    stop.check()
    return process.returncode, out, err
