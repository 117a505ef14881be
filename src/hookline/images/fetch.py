"""Fetches the images of hooks into folders: each distinct reference once, in the given order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import file_digest, sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hookline.errors import ImageError, UsageError
from hookline.images.archives import local_source
from hookline.images.cache import Cache, Entry, Room
from hookline.images.download import PAUSE
from hookline.images.layers import Unpacker
from hookline.images.manifest import Platform, here
from hookline.images.quota import LIMITS, Limits
from hookline.images.reference import Reference, names
from hookline.images.registry import RegistryStore
from hookline.images.sources import FetchContext, ImageSource, ManifestSource, UnpackedImage, is_local
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

    task = _Fetcher(
        cache=Cache(cache, tell),
        environ=environ,
        base=base,
        platform=platform or here(),
        plain=plain,
        limits=limits,
        pause=pause,
        told=tell,
    )
    found: list[Fetched] = []
    for ref, name in folders.items():
        source = sources.get(ref, ref)
        try:
            digest, entry = await stoppable(
                lambda stop, r=ref, s=source: task.fetched(r, s, stop), timeout=timeout
            )
        except TimeoutError:
            raise ImageError(f"{ref}: took longer than {timeout:g} s; nothing of it is used") from None
        notes = (*_notes(ref, source, digest), *entry.notes)
        for note in notes:
            told(f"{ref}: {note}")
        found.append(Fetched(ref=ref, name=name, digest=digest, path=entry.path, notes=notes))
    return found


def parse_image_option(text: str) -> tuple[str, str]:
    """Splits `REF=SOURCE`."""
    ref, equals, source = text.partition("=")
    if not equals or not ref or not source:
        raise UsageError(f"{text!r} does not say which image comes from where; write REF=SOURCE")
    return ref, source


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetcher:
    """Fetches the images of one call, one at a time; its methods run in a thread."""

    cache: Cache
    environ: Mapping[str, str]
    base: Path
    platform: Platform
    plain: Collection[str]
    limits: Limits
    pause: float
    told: Callable[[str], None]

    def fetched(self, ref: str, source: str, stop: StopToken) -> tuple[str, Entry]:
        """The digest and the cache entry of an image, unpacked now if it is not in the cache."""
        try:
            with self.cache.room() as room, ExitStack() as stack:
                opened = self._source(ref, source, room, stop, stack)
                return self._found(opened) or self._unpacked(opened, ref, source, room, stop)
        except OSError as exc:
            raise ImageError(f"{ref}: {exc}") from exc

    def _source(self, ref: str, source: str, room: Room, stop: StopToken, stack: ExitStack) -> ImageSource:
        context = FetchContext(
            platform=self.platform,
            limits=self.limits,
            room=room.path,
            told=self.told,
            pause=self.pause,
            check=stop.check,
        )
        if is_local(source):
            home = self.environ.get("HOME")
            return stack.enter_context(
                local_source(source, context, base=self.base, home=home, tag=_tag(ref, source))
            )
        reference = Reference.read(source)
        store = RegistryStore(reference, environ=self.environ, stop=stop, told=self.told, plain=self.plain)
        return ManifestSource(store, context)

    def _found(self, source: ImageSource) -> tuple[str, Entry] | None:
        digest = source.digest()
        entry = self.cache.find(self._key(digest)) if digest else None
        return (digest, entry) if digest and entry else None

    def _unpacked(
        self, source: ImageSource, ref: str, text: str, room: Room, stop: StopToken
    ) -> tuple[str, Entry]:
        with Unpacker(room.tree, limits=self.limits, read_only=True, check=stop.check) as into:
            image = source.unpack(into)
            notes = into.finish(ref)
        digest = source.digest() or _folder_digest(room.tree)
        about = self._about(ref, text, digest, image, notes)
        entry = self.cache.keep(room, self._key(digest), about)
        self.cache.prune()
        return digest, entry

    def _about(
        self, ref: str, source: str, digest: str, image: UnpackedImage, notes: list[str]
    ) -> dict[str, Any]:
        return {
            "ref": ref,
            "source": source,
            "digest": digest,
            "platform": f"{self.platform}",
            "manifest": image.manifest,
            "layers": list(image.layers),
            "notes": notes,
        }

    def _key(self, digest: str) -> str:
        return f"{digest}-{self.platform}".replace(":", "-").replace("/", "-")


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


def _tag(ref: str, source: str) -> str | None:
    """The tag to look for in a local source: that of the reference it stands in for."""
    return None if ref == source or is_local(ref) else Reference.read(ref).tag


def _notes(ref: str, source: str, digest: str) -> list[str]:
    notes: list[str] = []
    pinned = None if is_local(ref) else Reference.read(ref).digest
    if pinned not in (None, digest):
        notes.append(f"is pinned, and another image stands in for it: {digest} from {source}")
    if not is_local(source) and (reference := Reference.read(source)).moving:
        what = reference.tag or "latest (there is no tag)"
        pin = reference.pinned(digest)
        notes.append(f"{what} can move; it is {digest} now; to stay with that, write {pin}")
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
