"""The cluster that is meant, and how to log in there.

lightkube reads what kubectl reads (kubeconfig, certificates, programs that give tokens, the account of a pod and its
changing token) and prepares the HTTP client; nothing else of it is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

import httpx2
import yaml
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError

from hookline.errors import FileError, UsageError
from hookline.kube.kinds import Object

ClusterConfig: TypeAlias = SingleConfig
SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
LOGIN_ERRORS: Final = (ConfigError, FileNotFoundError, PermissionError, ValueError, KeyError)
"""Raised by a request where a program that gives tokens, or the file that holds one, does not."""
_ENTRIES: Final = {"clusters": "cluster", "contexts": "context", "users": "user"}
_FILE_NAMES: Final = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


def find(path: str | None, context: str | None, account: str = SERVICE_ACCOUNT) -> ClusterConfig:
    """The cluster of the file, of $KUBECONFIG, of ~/.kube/config, or the one that this runs in as `account`."""
    given = path or os.environ.get("KUBECONFIG") or ""
    if given:
        whose = "the given path" if path else "$KUBECONFIG"
        files = [Path(os.path.expanduser(part)) for part in given.split(os.pathsep) if part]
        there = [file for file in files if file.is_file()]
        if not there:
            raise UsageError(f"no kubeconfig at {given!r}, which {whose} names")
        return _read(there, context)
    home = Path(os.path.expanduser("~/.kube/config"))
    if home.is_file():
        return _read([home], context)
    return _in_cluster(home, context, account)


def http_client(config: ClusterConfig, times: httpx2.Timeout) -> httpx2.AsyncClient:
    """An HTTP client that logs in as the config says."""
    # lightkube wants a user even where the server asks for none.
    config = config if config.user else config._replace(user=User())
    try:
        return AsyncClient(config, ConnectionParams(timeout=times))
    except (ConfigError, OSError, ValueError, httpx2.InvalidURL) as error:
        what = f"context {config.context_name!r} cannot be used: {error}"
        raise (FileError(what, file=config.fname) if config.fname else UsageError(what)) from error


def _in_cluster(home: Path, context: str | None, account: str) -> ClusterConfig:
    tried = f"$KUBECONFIG is not set, {home} is not there"
    if context:
        raise UsageError(f"no context {context!r}, since there is no kubeconfig: {tried}")
    try:
        config = KubeConfig.from_service_account(account).get()
    except (ConfigError, KeyError, OSError) as error:
        raise UsageError(
            f"no cluster found: {tried}, and this is no pod with a service account ({error}); "
            "name a kubeconfig, or set KUBECONFIG"
        ) from error
    return cast("ClusterConfig", config)


def _read(files: list[Path], context: str | None) -> ClusterConfig:
    """One context of the files, of which the first to name a thing wins, as for kubectl."""
    whole: Object = {key: [] for key in _ENTRIES}
    for file in files:
        for key, value in _yaml(file).items():
            if key in _ENTRIES:
                # Of two entries with one name lightkube takes the later.
                whole[key] = [*_entries(key, value, file), *whole[key]]
            elif value:
                whole.setdefault(key, value)
    try:
        config = cast("Any", KubeConfig).from_dict(whole, fname=files[0]).get(context)
    except ConfigError as error:
        known = ", ".join(sorted(str(entry.get("name")) for entry in whole["contexts"])) or "none"
        raise FileError(f"{error}; contexts: {known}", file=files[0]) from error
    except KeyError as error:
        raise FileError(f"no entry {error}, which the context names", file=files[0]) from error
    except (ValueError, TypeError) as error:
        raise FileError(f"not a kubeconfig: {error}", file=files[0]) from error
    return cast("ClusterConfig", config)


def _yaml(file: Path) -> Object:
    try:
        read = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"cannot be read: {error}", file=file) from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise FileError(f"not YAML: {getattr(error, 'problem', error)}", file=file, line=line) from error
    if not isinstance(read, dict):
        raise FileError("not a kubeconfig: a mapping with clusters, contexts and users is needed", file=file)
    return cast("Object", read)


def _entries(key: str, entries: Any, file: Path) -> list[Object]:
    """The entries, with every file name relative to the file they are written in."""
    found: list[Object] = []
    for entry in cast("list[Any]", entries or []):
        inner = cast("Object", entry).get(_ENTRIES[key]) if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or "name" not in entry or not isinstance(inner, dict):
            raise FileError(f"each entry needs a name and a mapping {_ENTRIES[key]!r}", file=file, key=key)
        inner = cast("Object", inner)
        files = {name: str(file.parent / inner[name]) for name in _FILE_NAMES if inner.get(name)}
        found.append({**cast("Object", entry), _ENTRIES[key]: {**inner, **files}})
    return found
