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
import shutil
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hookline.errors import FileError, HooklineError, UsageError
from hookline.kagent.agent import FOLDER, directory
from hookline.runners import Mount
from hookline.runners.child import script_of

if TYPE_CHECKING:
    from hookline.images.fetch import Fetched

VARIABLE = "KAGENT_HOOKS_FOLDER"
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


@asynccontextmanager
async def hooks_folder(
    refs: Sequence[str],
    sources: Mapping[str, str],
    environ: Mapping[str, str],
    told: Callable[[str], None],
) -> AsyncGenerator[tuple[str, list[str]]]:
    """The folder with the contents of the hooks' images, each under its name, for as long as they are needed, and notes on them.

    What is in `KAGENT_HOOKS_FOLDER` already is taken from there; the rest is fetched, each image once.
    """
    ready = _materialised(refs, environ)
    if len(ready) == len(refs) and not sources:
        yield environ.get(VARIABLE) or FOLDER, []
        return
    from hookline.images.cache import default_folder
    from hookline.images.fetch import fetch, shown

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
    """The arguments that are started for a command: a program of the image first, then one on PATH; a script only of the image.

    The agent's own folder is looked at for neither, for the agent may write there. `here` is where the image's folder
    is on this machine, if not there. With `own_programs` those on PATH are another system's, which is not looked at.
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
    """Each image in /hooks, to be read only. What a name in `folder` leads to is mounted, for inside it is no link."""
    for name in map(directory, refs):
        source = os.path.realpath(os.path.join(folder, name))
        yield Mount(target=f"{FOLDER}/{name}", source=source, read_only=True)


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
                f"{file} is not there: the cluster has no such Secret, or it is not a kubernetes.io/dockerconfigjson"
            )
            continue
        except (OSError, ValueError) as exc:
            raise FileError(f"is not a docker configuration that can be read: {exc}", file=file) from exc
        entries: Any = cast("dict[str, Any]", value).get(_KEY) if isinstance(value, dict) else None
        if not isinstance(entries, dict):
            raise FileError("must be an object with registries as its keys", file=file, key=_KEY)
        for registry, entry in cast("dict[str, Any]", entries).items():
            auths.setdefault(registry, entry)
    return {_KEY: auths}


def _materialised(refs: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The images that somebody has put into the folder of hooks already, as an init container does."""
    folder = environ.get(VARIABLE)
    if not folder:
        return {}
    places = {ref: os.path.realpath(os.path.join(folder, directory(ref))) for ref in refs}
    return {ref: place for ref, place in places.items() if os.path.isdir(place)}


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
