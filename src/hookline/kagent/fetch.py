"""The container `hooks-init` of an agent's pod: fetches the images of its hooks, each once, and no shell sees their names.

    python3 -P -m hookline.kagent.fetch --into /hooks [--plain HOST] [--login FILE] REF=NAME ...

What is in an image lies under its digest, read-only, and `/hooks/NAME` leads there. It can be run again: what is there
already is not fetched anew. Each `--login` is a docker configuration; one that is not there is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hookline.errors import FileError, HooklineError, UsageError
from hookline.images.fetch import Fetched, fetch

_KEPT = ".images"
_KEY = "auths"


def main(words: Sequence[str], environ: Mapping[str, str], said: Callable[[str], None]) -> int:
    given = _arguments().parse_args(words)
    try:
        names = dict(_pair(each) for each in given.images)
        asyncio.run(
            put(
                names,
                Path(given.into),
                environ=environ,
                plain=given.plain,
                logins=[Path(each) for each in given.login],
                told=said,
            )
        )
    except HooklineError as exc:
        said(f"error: {exc}")
        return 1
    return 0


async def put(
    names: Mapping[str, str],
    folder: Path,
    *,
    environ: Mapping[str, str],
    plain: Sequence[str] = (),
    logins: Sequence[Path] = (),
    told: Callable[[str], None] = lambda _text: None,
) -> list[Fetched]:
    """Each image by its reference, so that `folder/NAME` has its files; NAME is what `names` says."""
    with tempfile.TemporaryDirectory(prefix="hookline-") as scratch:
        known = {**environ}
        if logins:
            (Path(scratch) / "config.json").write_text(json.dumps(merged(logins, told)))
            known["DOCKER_CONFIG"] = scratch
        found = await fetch(
            list(names), cache=folder / _KEPT, environ=known, base=Path(scratch), plain=plain, told=told
        )
    for image in found:
        _lead(folder / names[image.ref], image.path.relative_to(folder))
        told(f"{image.ref} is in {folder / names[image.ref]}: {image.digest}")
    return found


def merged(logins: Sequence[Path], told: Callable[[str], None]) -> dict[str, Any]:
    """One docker configuration of several; of two logins for a registry the first is taken, as the kubelet tries them."""
    auths: dict[str, Any] = {}
    for file in logins:
        try:
            value: Any = json.loads(file.read_text())
        except (FileNotFoundError, NotADirectoryError):
            told(
                f"{file} is not there: the cluster has no such Secret, or it is no kubernetes.io/dockerconfigjson"
            )
            continue
        except (OSError, ValueError) as exc:
            raise FileError(f"is no docker configuration that can be read: {exc}", file=file) from exc
        entries: Any = cast("dict[str, Any]", value).get(_KEY) if isinstance(value, dict) else None
        if not isinstance(entries, dict):
            raise FileError("must be an object with registries as its keys", file=file, key=_KEY)
        for registry, entry in cast("dict[str, Any]", entries).items():
            auths.setdefault(registry, entry)
    return {_KEY: auths}


def _lead(link: Path, target: Path) -> None:
    """Makes `link` lead there, at once: a container that is started again may find one."""
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target, target_is_directory=True)
    new.replace(link)


def _pair(text: str) -> tuple[str, str]:
    ref, equals, name = text.rpartition("=")
    if not equals or not ref or not name or "/" in name or name.startswith("."):
        raise UsageError(f"{text!r} does not say in which folder an image is put; write REF=NAME")
    return ref, name


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hookline.kagent.fetch", description=__doc__)
    parser.add_argument("--into", required=True, help="the folder")
    parser.add_argument("--plain", action="append", default=[], help="a registry that speaks no TLS")
    parser.add_argument("--login", action="append", default=[], help="a docker configuration")
    parser.add_argument("images", nargs="+", metavar="REF=NAME")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, lambda text: print(text, flush=True)))
