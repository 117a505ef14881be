"""Fetches the images of hooks into folders: each distinct reference once, in the given order."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import file_digest, sha256
from pathlib import Path
from types import MappingProxyType

from hookline.errors import ImageError, UsageError
from hookline.images.archives import local_source
from hookline.images.cache import Cache, Entry, UnpackRoom, in_use
from hookline.images.layers import LIMITS, Limits, Unpacker
from hookline.images.manifest import PAUSE, Platform, here
from hookline.images.registry import RegistryStore
from hookline.images.sources import (
    FetchContext,
    ImageSource,
    ManifestSource,
    Reference,
    is_local,
    names,
)
from hookline.images.tree import listing
from hookline.tasks import StopToken, stoppable

TIMEOUT = 600.0
"""Seconds for one image, from the first question to the last file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """An image in the cache. `digest` identifies it, `notes` are remarks for the user."""

    ref: str
    name: str
    digest: str
    path: Path
    notes: tuple[str, ...] = ()


async def fetch(
    refs: Sequence[str],
    *,
    cache: Path,
    environ: Mapping[str, str],
    base: Path,
    sources: Mapping[str, str] = MappingProxyType({}),
    told: Callable[[str], None] = lambda _text: None,
    platform: Platform | None = None,
    plain: Collection[str] = (),
    limits: Limits = LIMITS,
    timeout: float | None = TIMEOUT,
    pause: float = PAUSE,
) -> list[Fetched]:
    """Fetches the images of `refs`. `sources` maps a reference to another source; relative paths start at `base`.

    `told` gets warnings and, every `pause` seconds, progress; it is called in the loop. `plain` are registries that may be
    used without TLS; `timeout` is for each image.
    """
    folders = names(refs)
    _check(folders, sources)
    loop = asyncio.get_running_loop()

    def tell(text: str) -> None:
        _tell(loop, told, text)

    images = Cache(cache, tell)

    def fetched(ref: str, source: str, stop: StopToken) -> tuple[str, Entry]:
        try:
            with images.room() as room:
                context = FetchContext(
                    environ=environ,
                    base=base,
                    room=room.path,
                    stop=stop,
                    told=tell,
                    platform=platform or here(),
                    plain=plain,
                    limits=limits,
                    pause=pause,
                )
                with _opened(ref, source, context) as opened:
                    return _fetched(ref, source, opened, images, room, context)
        except OSError as exc:
            raise ImageError(f"{ref}: {exc}") from exc

    found: list[Fetched] = []
    for ref, name in folders.items():
        source = sources.get(ref, ref)
        try:
            digest, entry = await stoppable(
                lambda stop, r=ref, s=source: fetched(r, s, stop), timeout=timeout
            )
        except TimeoutError:
            raise ImageError(f"{ref}: took longer than {timeout:g} s; nothing of it is used") from None
        notes = (*_notes(ref, source, digest), *entry.notes)
        for note in notes:
            told(f"{ref}: {note}")
        found.append(Fetched(ref=ref, name=name, digest=digest, path=entry.path, notes=notes))
    return found


@contextmanager
def shown(fetched: Sequence[Fetched], folder: Path) -> Generator[Path]:
    """Makes `folder` for a run: `<folder>/<name>` links to each image, read-only; removed afterwards.

    The images are locked in the cache meanwhile. A sandbox mounts them itself, by their `path`.
    """
    names(image.ref for image in fetched)
    with ExitStack() as stack:
        for image in fetched:
            stack.enter_context(in_use(image.path))
        try:
            folder.mkdir(parents=True, mode=0o755)
        except FileExistsError:
            raise ImageError(
                f"{str(folder)!r} is there already; hooks are shown in a folder of their own"
            ) from None
        stack.callback(_remove_links, folder)
        for image in fetched:
            (folder / image.name).symlink_to(image.path, target_is_directory=True)
        folder.chmod(0o555)
        yield folder


def _remove_links(folder: Path) -> None:
    folder.chmod(0o755)
    for link in folder.iterdir():
        os.unlink(link)
    folder.rmdir()


@contextmanager
def _opened(ref: str, source: str, context: FetchContext) -> Generator[ImageSource]:
    if is_local(source):
        # The tag to look for is that of the reference it stands in for.
        tag = None if ref == source or is_local(ref) else Reference.read(ref).tag
        with local_source(source, context, tag) as found:
            yield found
    else:
        yield ManifestSource(RegistryStore(Reference.read(source), context), context)


def _fetched(
    ref: str, text: str, source: ImageSource, cache: Cache, room: UnpackRoom, context: FetchContext
) -> tuple[str, Entry]:
    """The digest and the cache entry of an image, unpacked now if it is not in the cache."""
    digest = source.digest()
    entry = cache.find(_key(digest, context.platform)) if digest else None
    if digest and entry:
        return digest, entry
    with Unpacker(room.tree, limits=context.limits, read_only=True, check=context.stop.check) as into:
        image = source.unpack(into)
        notes = into.finish(ref)
    digest = digest or _folder_digest(room.tree)
    about = {"ref": ref, "source": text, "digest": digest, "platform": f"{context.platform}"}
    entry = cache.keep(room, _key(digest, context.platform), {**about, **image, "notes": notes})
    cache.prune()
    return digest, entry


def _key(digest: str, platform: Platform) -> str:
    return f"{digest}-{platform}".replace(":", "-").replace("/", "-")


def _check(refs: Collection[str], sources: Mapping[str, str]) -> None:
    """Raises for every mistake that can be found before anything is fetched."""
    for text in (*refs, *sources.values()):
        if not is_local(text):
            Reference.read(text)
    for ref in sources:
        if ref not in refs:
            near = get_close_matches(ref, refs, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; they use: {', '.join(refs) or 'none'}"
            raise UsageError(f"a source is given for {ref!r}, which no hook uses{hint}")


def _notes(ref: str, source: str, digest: str) -> list[str]:
    notes: list[str] = []
    pinned = None if is_local(ref) else Reference.read(ref).digest
    if pinned not in (None, digest):
        notes.append(f"is pinned, but another image is used instead: {digest} from {source}")
    if not is_local(source) and (reference := Reference.read(source)).moving:
        what = reference.tag or "latest (there is no tag)"
        pin = reference.pinned(digest)
        notes.append(f"{what} is not pinned; it is {digest} now; to pin it, write {pin}")
    return notes


def _folder_digest(tree: Path) -> str:
    """The digest of a plain folder: names, modes, link targets and contents, without times."""
    whole = sha256()
    for entry in listing(tree):
        content = _content_digest(tree / entry.path) if entry.kind == "file" else ""
        whole.update(ascii((entry.path, entry.kind, entry.mode, entry.target, content)).encode())
    return f"sha256:{whole.hexdigest()}"


def _content_digest(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _tell(loop: asyncio.AbstractEventLoop, told: Callable[[str], None], text: str) -> None:
    try:
        loop.call_soon_threadsafe(told, text)
    except RuntimeError:
        pass  # the loop is closed; nobody listens
