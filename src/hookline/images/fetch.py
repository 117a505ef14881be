"""Fetches the images of hooks into a cache: each distinct reference once, in the given order.

The cache keeps unpacked images by digest and platform, read-only. An image is unpacked in a room of its own and renamed
into place when it is whole, so that a half one is never found; of two processes with the same image the first rename
stands, and both use it. Each entry has a list of its content, and is not used any more once it differs from that list.

A folder in use is locked (flock) so that pruning leaves it alone; the lock ends with its process.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import file_digest, sha256
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hookline import files
from hookline.engine.plain import json_or_none
from hookline.errors import ImageError, UsageError, nearest
from hookline.images.archives import local_source
from hookline.images.layers import LIMITS, Limits, Unpacker
from hookline.images.manifest import PAUSE, FetchContext, ImageSource, Platform, here
from hookline.images.reference import Reference, is_local, names
from hookline.images.registry import RegistrySource
from hookline.images.tree import TreeEntry, listing, removed
from hookline.journal import xdg_folder
from hookline.tasks import StopToken, stoppable

TIMEOUT = 600.0
"""Seconds for one image, from the first request to the last file."""
KEEP_DAYS = 30.0
KEEP_BYTES = 4 * 1024**3
_LATELY = 3600.0
"""Seconds. An image used or begun within them is never pruned: it may be about to be locked."""
_TREE = "tree"
_RECORD = "record.json"
_KEY = re.compile(r"[a-z0-9.-]+", re.IGNORECASE)


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
        with suppress(RuntimeError):  # the loop is closed; nobody listens
            loop.call_soon_threadsafe(told, text)

    images = Cache(cache, tell)

    def fetched(ref: str, source: str, stop: StopToken) -> tuple[str, Entry]:
        try:
            with images.room() as tree:
                context = FetchContext(
                    environ=environ,
                    base=base,
                    room=tree.parents[1],
                    stop=stop,
                    told=tell,
                    platform=platform or here(),
                    plain=plain,
                    limits=limits,
                    pause=pause,
                )
                with _opened(ref, source, context) as opened:
                    return _fetched(ref, source, opened, images, tree, context)
        except OSError as exc:
            # Here, where a TimeoutError of the file system is not yet taken for our own limit.
            raise ImageError(f"{ref}: {exc}") from exc

    found: list[Fetched] = []
    for ref, name in folders.items():
        source = sources.get(ref, ref)
        try:
            digest, entry = await stoppable(partial(fetched, ref, source), timeout=timeout)
        except TimeoutError:
            raise ImageError(f"{ref}: took longer than {timeout:g} s; nothing of it is used") from None
        notes = (*_notes(ref, source, digest), *entry.record.get("notes", ()))
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
        stack.callback(removed, folder)
        for image in fetched:
            (folder / image.name).symlink_to(image.path, target_is_directory=True)
        folder.chmod(0o555)
        yield folder


@contextmanager
def _opened(ref: str, source: str, context: FetchContext) -> Generator[ImageSource]:
    if is_local(source):
        # The tag to select is that of the reference which this source replaces.
        tag = None if ref == source or is_local(ref) else Reference.read(ref).tag
        with local_source(source, context, tag) as found:
            yield found
    else:
        yield RegistrySource(Reference.read(source), context)


def _fetched(
    ref: str, text: str, source: ImageSource, cache: Cache, tree: Path, context: FetchContext
) -> tuple[str, Entry]:
    """The digest and the cache entry of an image, unpacked now if it is not in the cache."""
    digest = source.digest()
    entry = cache.find(_key(digest, context.platform)) if digest else None
    if digest and entry:
        return digest, entry
    with Unpacker(tree, limits=context.limits, check=context.stop.check) as into:
        image = source.unpack(into)
        notes = into.finish(ref)
    digest = digest or _folder_digest(tree)
    about = {"ref": ref, "source": text, "digest": digest, "platform": f"{context.platform}"}
    entry = cache.keep(tree, _key(digest, context.platform), {**about, **image, "notes": notes})
    cache.prune()
    return digest, entry


def _key(digest: str, platform: Platform) -> str:
    return f"{digest}-{platform}".replace(":", "-").replace("/", "-")


def _check(refs: Collection[str], sources: Mapping[str, str]) -> None:
    """Raises for mistakes that can be found before anything is fetched."""
    for text in (*refs, *sources.values()):
        if not is_local(text):
            Reference.read(text)
    for ref in sources:
        if ref not in refs:
            near = nearest(ref, refs)
            hint = f"; did you mean {near!r}?" if near else f"; they use: {', '.join(refs) or 'none'}"
            raise UsageError(f"a source is given for {ref!r}, which no hook uses{hint}")


def _notes(ref: str, source: str, digest: str) -> list[str]:
    notes: list[str] = []
    pinned = None if is_local(ref) else Reference.read(ref).digest
    if pinned not in (None, digest):
        notes.append(f"is pinned, but another image is used instead: {digest} from {source}")
    if not is_local(source) and (reference := Reference.read(source)).digest is None:
        what = reference.tag or "latest (there is no tag)"
        pin = reference.pinned(digest)
        notes.append(f"{what} is not pinned; it is {digest} now; to pin it, write {pin}")
    return notes


def _folder_digest(tree: Path) -> str:
    """The digest of a plain folder: names, modes, link targets and contents, without times."""
    whole = sha256()
    for entry in listing(tree):
        content = ""
        if entry.kind == "file":
            with (tree / entry.path).open("rb") as file:
                content = file_digest(file, "sha256").hexdigest()
        whole.update(ascii((entry.path, entry.kind, entry.mode, entry.target, content)).encode())
    return f"sha256:{whole.hexdigest()}"


class Entry(NamedTuple):
    """An unpacked image. `record` was written with it."""

    path: Path
    record: Mapping[str, Any]


class Cache:
    """A folder with one folder per image, created at the first fetch. `told` is called for broken images."""

    def __init__(self, folder: Path, told: Callable[[str], None] = lambda _text: None) -> None:
        self._told = told
        self._images = folder / "images"
        self._rooms = folder / "rooms"

    def find(self, key: str) -> Entry | None:
        """The image if it is complete, which counts as a use of it; a broken one is removed."""
        path = self._images / _checked(key)
        record = _record(path)
        if record is None and not path.exists():
            return None
        if record is None or not _is_whole(path / _TREE, record):
            self._told(f"the image in {path} was changed since it was unpacked; it is not used any more")
            self._drop(path)
            return None
        try:
            os.utime(path)
        except OSError:
            pass  # a cache that we may only read
        return Entry(path / _TREE, record)

    @contextmanager
    def room(self) -> Generator[Path]:
        """A folder to unpack an image in, inside a room of its own; gone afterwards unless it was kept."""
        path = self._rooms / uuid.uuid4().hex
        tree = path / "entry" / _TREE
        try:
            path.mkdir(parents=True, mode=0o700)
            tree.mkdir(parents=True, mode=0o700)
        except OSError as exc:
            raise ImageError(f"the cache of images cannot be written: {path.parent}: {exc.strerror}") from exc
        with files.locked_folder(path):
            try:
                yield tree
            finally:
                removed(path)

    def keep(self, tree: Path, key: str, about: Mapping[str, Any]) -> Entry:
        """Puts a filled folder into place, unless another process was faster."""
        path = self._images / _checked(key)
        entries = listing(tree)
        record = {
            **about,
            "made": time.time(),
            "bytes": sum(entry.size for entry in entries),
            "entries": [list(entry) for entry in entries],
        }
        (tree.parent / _RECORD).write_text(json.dumps(record), encoding="utf-8")
        _sync(tree)
        self._images.mkdir(parents=True, exist_ok=True)
        try:
            os.rename(tree.parent, path)
        except OSError as exc:
            found = self.find(key)
            if found is None:
                raise ImageError(f"the image could not be put into the cache: {exc}") from exc
            return found
        return Entry(path / _TREE, record)

    def prune(self, *, keep_days: float = KEEP_DAYS, keep_bytes: int = KEEP_BYTES) -> int:
        """Drops the least recently used images until both limits hold, and rooms left by crashes; returns the number."""
        now = time.time()
        for room in list(self._rooms.glob("*")):
            if now - _used(room) > _LATELY:
                self._drop(room)
        used = sorted((_used(path), path) for path in self._images.glob("*"))
        sizes = {path: int((_record(path) or {}).get("bytes") or 0) for _, path in used}
        total, gone = sum(sizes.values()), 0
        for at, path in used:
            if now - at <= _LATELY or (now - at <= keep_days * 86400 and total <= keep_bytes):
                continue
            if self._drop(path):
                total -= sizes[path]
                gone += 1
        return gone

    def _drop(self, path: Path) -> bool:
        """Renames a folder out of the way at once, then removes it; False if it is in use or gone."""
        aside = self._rooms / uuid.uuid4().hex
        try:
            with files.locked_folder(path, wait=False):
                self._rooms.mkdir(parents=True, exist_ok=True)
                os.rename(path, aside)
                removed(aside)
        except OSError:
            return False
        return True


@contextmanager
def in_use(path: Path) -> Generator[None]:
    """Locks an entry, so that no process prunes it."""
    with ExitStack() as stack:
        try:
            stack.enter_context(files.locked_folder(path.parent, shared=True))
            os.stat(path)  # it may have been on its way out when we got the lock
        except OSError:
            raise ImageError(f"the image in {path} was removed meanwhile; fetch it again") from None
        yield


def default_folder(environ: Mapping[str, str]) -> Path:
    """`$HOOKLINE_HOME/images`, else hookline's folder in the user's cache folder (`$XDG_CACHE_HOME`)."""
    home = environ.get("HOOKLINE_HOME")
    if home:
        return Path(home).expanduser() / "images"
    return xdg_folder(environ, "XDG_CACHE_HOME", ".cache")


def _checked(key: str) -> str:
    if not _KEY.fullmatch(key) or key.startswith("."):
        raise ImageError(f"{key!r} is not a name of a cached image")
    return key


def _record(path: Path) -> dict[str, Any] | None:
    try:
        return json_or_none((path / _RECORD).read_bytes())
    except OSError:
        return None


def _is_whole(tree: Path, record: Mapping[str, Any]) -> bool:
    """Names, kinds, modes, sizes and times; contents are not read again."""
    try:
        return listing(tree) == [TreeEntry(*entry) for entry in record.get("entries") or ()]
    except (OSError, TypeError):
        return False


def _used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return time.time()  # just gone


def _sync(folder: Path) -> None:
    """Syncs the whole file system at once; file by file, a large image would take minutes."""
    with files.opened_folder(folder) as fd:
        try:
            ctypes.CDLL(None).syncfs(fd)
        except (OSError, AttributeError):
            os.sync()
