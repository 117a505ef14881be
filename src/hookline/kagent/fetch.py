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
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from hookline.errors import HooklineError, UsageError
from hookline.kagent.agent import FOLDER, directory
from hookline.runners import Mount
from hookline.runners.child import script_of

VARIABLE = "KAGENT_HOOKS_FOLDER"
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


@asynccontextmanager
async def hooks_folder(
    refs: Sequence[str],
    sources: Mapping[str, str],
    environ: Mapping[str, str],
    told: Callable[[str], None],
) -> AsyncGenerator[tuple[str, list[str]]]:
    """The folder with the content of the hooks' images, each under its name, and notes on them.

    Images that are in `KAGENT_HOOKS_FOLDER` are taken from there; the others are fetched, each once.
    """
    ready = _materialised(refs, environ)
    if len(ready) == len(refs) and not sources:
        yield environ.get(VARIABLE) or FOLDER, []
        return
    from hookline.images.fetch import default_folder, fetch, shown

    images = await fetch(
        refs,
        cache=default_folder(environ),
        environ=environ,
        base=Path(),
        sources={**ready, **sources},
        told=told,
    )
    taken = [f"image {each.ref} is {each.digest}" for each in images]
    for text in taken:
        told(text)
    with (
        tempfile.TemporaryDirectory(prefix="hookline-") as place,
        shown(images, Path(place, "hooks")) as folder,
    ):
        more = [f"image {each.ref}: {note}" for each in images for note in each.notes]
        yield str(folder), [*taken, *more]


def program(
    argv: Sequence[str], folder: str, path: str | None, *, here: str = "", own_programs: bool = False
) -> list[str]:
    """The argv of a command: a program of the image first, then one on PATH; a script only of the image.

    The agent's working folder is never searched, since the agent may write there. `here` is the image's folder on this
    machine, if it is not `folder`. With `own_programs` PATH is that of another system and is not searched.
    """
    first, *rest = argv
    if not os.path.isabs(first):
        there = os.path.exists(os.path.join(here or folder, first))
        found = own_programs or shutil.which(first, path=path) is not None
        if there or "/" in first or not found:
            return [os.path.join(folder, first), *rest]
    script = script_of([first, *rest])
    if script is None or os.path.isabs(script):
        return [first, *rest]
    at = rest.index(script)
    return [first, *rest[:at], os.path.join(folder, script), *rest[at + 1 :]]


def mounts(refs: Iterable[str], folder: str) -> Iterable[Mount]:
    """Each image below /hooks, read-only. The link in `folder` is resolved first, since it has no target inside."""
    for name in map(directory, refs):
        source = os.path.realpath(os.path.join(folder, name))
        yield Mount(target=f"{FOLDER}/{name}", source=source, read_only=True)


async def _put(
    names: Mapping[str, str],
    folder: Path,
    environ: Mapping[str, str],
    plain: Sequence[str],
    logins: Sequence[Path],
    told: Callable[[str], None],
) -> None:
    """Fetches images so that `folder/NAME` has the files of each; `names` maps a reference to its NAME."""
    from hookline.images.fetch import fetch

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
    from hookline.images.registry import by_registry, read_config

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


def _materialised(refs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The images that are in the folder of hooks already, put there by an init container for example."""
    folder = environ.get(VARIABLE)
    if not folder:
        return {}
    places = {ref: os.path.realpath(os.path.join(folder, directory(ref))) for ref in refs}
    return {ref: place for ref, place in places.items() if os.path.isdir(place)}


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
    sys.exit(main(sys.argv[1:], os.environ, lambda text: print(text, flush=True)))
