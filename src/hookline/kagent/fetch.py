"""The container `hooks-init` of an agent's pod: fetches the images of its hooks, each once and without a shell.

    python3 -P -m hookline.kagent.fetch --into /hooks [--plain HOST] [--login FILE] REF=NAME ...

The content of an image is kept under its digest, read-only, and `/hooks/NAME` links to it. It can be run again: images
that are present are not fetched again. Each `--login` is a docker configuration; a missing one is skipped.
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
from typing import Any

from hookline.errors import HooklineError, UsageError
from hookline.images.credentials import by_registry, read_config
from hookline.images.fetch import fetch
from hookline.terminal import out

_KEPT = ".images"


def main(words: Sequence[str], environ: Mapping[str, str], said: Callable[[str], None]) -> int:
    parser = argparse.ArgumentParser(prog="hookline.kagent.fetch", description=__doc__)
    parser.add_argument("--into", required=True, type=Path, help="the folder")
    parser.add_argument("--plain", action="append", default=[], help="a registry that speaks no TLS")
    parser.add_argument("--login", action="append", default=[], type=Path, help="a docker configuration")
    parser.add_argument("images", nargs="+", metavar="REF=NAME")
    given = parser.parse_args(words)
    try:
        names = dict(_pair(each) for each in given.images)
        asyncio.run(_put(names, given.into, environ, given.plain, given.login, said))
    except HooklineError as exc:
        said(f"error: {exc}")
        return 1
    return 0


async def _put(
    names: Mapping[str, str],
    folder: Path,
    environ: Mapping[str, str],
    plain: Sequence[str],
    logins: Sequence[Path],
    told: Callable[[str], None],
) -> None:
    """Fetches images so that `folder/NAME` has the files of each; `names` maps a reference to its NAME."""
    with tempfile.TemporaryDirectory(prefix="hookline-") as scratch:
        known = {**environ}
        if logins:
            (Path(scratch) / "config.json").write_text(json.dumps(merged(logins, told)))
            known["DOCKER_CONFIG"] = scratch
        found = await fetch(
            list(names), cache=folder / _KEPT, environ=known, base=Path(scratch), plain=plain, told=told
        )
    for image in found:
        _link(folder / names[image.ref], image.path.relative_to(folder))
        told(f"{image.ref} is in {folder / names[image.ref]}: {image.digest}")


def merged(logins: Sequence[Path], told: Callable[[str], None]) -> dict[str, Any]:
    """Several docker configurations merged; of two logins for a registry the first wins, as for the kubelet."""
    auths: dict[str, Any] = {}
    for file in logins:
        if not os.path.exists(file):
            told(
                f"{file} is not there: the cluster has no such Secret, or it is not a kubernetes.io/dockerconfigjson"
            )
            continue
        for registry, entry in by_registry(read_config(file), "auths", file, needed=True).items():
            auths.setdefault(registry, entry)
    return {"auths": auths}


def _link(link: Path, target: Path) -> None:
    """Points `link` to the target atomically; a container that is started again may find a link there."""
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target, target_is_directory=True)
    new.replace(link)


def _pair(text: str) -> tuple[str, str]:
    ref, equals, name = text.rpartition("=")
    if not equals or not ref or not name or "/" in name or name.startswith("."):
        raise UsageError(f"{text!r} does not say in which folder an image is put; write REF=NAME")
    return ref, name


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ, out.print))
