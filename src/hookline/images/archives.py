"""Images on this machine: a plain folder, an OCI layout (a folder or a tar), or an archive of `docker save`."""

from __future__ import annotations

import os
import posixpath
import stat
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple, cast

from hookline.errors import ImageError
from hookline.images.layers import Unpacker, chunks, unpacked
from hookline.images.manifest import (
    LARGEST_TEXT,
    Descriptor,
    FetchContext,
    ImageManifest,
    ImageSource,
    Landing,
    ManifestSource,
    chosen,
    digest_of,
    json_object,
    layer_digests,
    manifest_or_index,
)
from hookline.images.reference import LOCAL

OpenFile = Callable[[str], IO[bytes]]
"""Opens a file of an image by its name; FileNotFoundError if there is none."""

_WHAT_THERE_IS = (
    "an image here is a folder of hooks, an OCI layout (oci-layout, index.json, blobs/),"
    " or a tar of skopeo or docker save"
)


@contextmanager
def local_source(text: str, context: FetchContext, tag: str | None) -> Generator[ImageSource]:
    """Opens the image at a path; `tag` selects one where the text itself names none and such an image exists."""
    prefix = next((prefix for prefix in LOCAL if text.startswith(prefix)), "")
    rest = text.removeprefix(prefix)
    path = _path(rest, context)
    wanted = _WantedTag(tag, False)
    if prefix in ("oci:", "oci-archive:", "docker-archive:") and not path.exists() and ":" in rest:
        rest, _, tag = rest.partition(":")
        path = _path(rest, context)
        wanted = _WantedTag(tag, True)
    if not path.exists():
        raise ImageError(f"there is no {str(path)!r}; {_WHAT_THERE_IS}")
    if path.is_dir():
        yield _in_folder(prefix, path, context, wanted)
        return
    with _TarFiles.opened(path, context) as files:
        yield _in_archive(prefix, path, files, context, wanted)


def _path(text: str, context: FetchContext) -> Path:
    home = context.environ.get("HOME")
    if text.startswith("~/") and home:
        return Path(home, text[2:])
    return context.base / text


def _in_folder(prefix: str, path: Path, context: FetchContext, wanted: _WantedTag) -> ImageSource:
    if prefix in ("oci-archive:", "docker-archive:"):
        raise ImageError(f"{str(path)!r} is a folder, and {prefix} is for a tar; use oci: for a layout")
    is_layout = (path / "oci-layout").is_file()
    if prefix == "oci:" and not is_layout:
        raise ImageError(f"{str(path)!r} is not an OCI layout: it has no file oci-layout")
    if is_layout and prefix != "dir:":
        return _Layout(lambda name: _opened_file(path / name), str(path), wanted, context)
    version = path / "version"
    if version.is_file() and version.read_bytes()[:64].startswith(b"Directory Transport Version"):
        raise ImageError(f"{str(path)!r} is what skopeo writes for dir:, with layers still packed; use oci:")
    return _PlainFolder(path)


def _in_archive(
    prefix: str, path: Path, files: _TarFiles, context: FetchContext, wanted: _WantedTag
) -> ImageSource:
    if prefix in ("oci:", "dir:"):
        raise ImageError(f"{str(path)!r} is a file, and {prefix} is for a folder; use oci-archive:")
    if prefix != "docker-archive:" and files.has("index.json"):
        return _Layout(files.open, str(path), wanted, context)
    if prefix != "oci-archive:" and files.has("manifest.json"):
        return _DockerSave(files, str(path), wanted, context)
    raise ImageError(f"{str(path)!r} is a tar without index.json and manifest.json; {_WHAT_THERE_IS}")


class _WantedTag(NamedTuple):
    """The tag to select among the images of an archive; if not `strict`, a single image is taken whatever its tag."""

    tag: str | None
    strict: bool

    def fits(self, name: str) -> bool:
        return self.tag is not None and (name == self.tag or name.endswith((f":{self.tag}", f"/{self.tag}")))


class _PlainFolder:
    """A folder that holds the hooks as plain files."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def digest(self) -> None:
        return None

    def unpack(self, into: Unpacker) -> Mapping[str, Any]:
        into.copy(self._path)
        return {"manifest": None, "layers": []}


class _Layout(ManifestSource):
    """An OCI layout, in a folder or in a tar."""

    def __init__(self, open_file: OpenFile, path: str, wanted: _WantedTag, context: FetchContext) -> None:
        super().__init__(f"{path}:{wanted.tag}" if wanted.strict else path, context)
        self._path = path
        self._open = open_file
        self._wanted = wanted

    def read_top(self) -> tuple[Descriptor, bytes]:
        what = f"index.json of {self._path}"
        index = manifest_or_index(_text(self._open, "index.json", what), what)
        if isinstance(index, ImageManifest):
            raise ImageError(f"{what} is not an index")
        descriptor = self._picked(index)
        return descriptor, self.text(descriptor, f"manifest {descriptor.digest}")

    def save(self, to: Landing) -> None:
        name = "blobs/" + to.descriptor.digest.replace(":", "/")
        with _found(self._open, name, to.what) as file:
            for chunk in chunks(file, self.context.stop.check):
                to.write(chunk)

    def _picked(self, index: Sequence[Descriptor]) -> Descriptor:
        items = [item for item in index if item.named and self._wanted.fits(item.named)]
        tags = sorted({item.named for item in index if item.named})
        if not items and not self._wanted.strict and len(tags) < 2:
            items = index
        if not items:
            raise ImageError(
                f"{self._path!r} has {', '.join(tags) or 'no image with a name'}; name one as oci:{self._path}:TAG"
            )
        return items[0] if len(items) == 1 else chosen(items, self.context.platform, self.label)


class _DockerSave:
    """An archive of `docker save`: a configuration, and layers identified by their unpacked digests."""

    def __init__(self, files: _TarFiles, label: str, wanted: _WantedTag, context: FetchContext) -> None:
        self._files = files
        self._context = context
        self._label = label
        self._entry = _saved(_text(files.open, "manifest.json", f"manifest.json of {label}"), label, wanted)
        self._config = _text(files.open, self._entry["Config"], f"configuration of {label}")

    def digest(self) -> str:
        """The digest of the configuration, which docker calls the image ID."""
        return digest_of(self._config)

    def unpack(self, into: Unpacker) -> Mapping[str, Any]:
        layers: list[str] = self._entry["Layers"]
        digests = layer_digests(self._config, self._context.platform, self._label, len(layers))
        for name, diff_id in zip(layers, digests, strict=True):
            what = f"layer {name} of {self._label}"
            with _found(self._files.open, name, what) as file:
                into.layer(file, what, diff_id)
        return {"manifest": None, "layers": [{"diff_id": diff_id} for diff_id in digests]}


def _opened_file(path: Path) -> IO[bytes]:
    # O_NONBLOCK: opening a named pipe in its place would block forever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    file = open(fd, "rb")  # noqa: SIM115
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        file.close()
        raise FileNotFoundError(path)
    return file


class _TarFiles:
    """The files of a tar, read by name."""

    def __init__(self, file: IO[bytes], context: FetchContext) -> None:
        self._tar = tarfile.TarFile(fileobj=file)
        self._members = dict(_listed(self._tar, context))

    @classmethod
    @contextmanager
    def opened(cls, path: Path, context: FetchContext) -> Generator[_TarFiles]:
        with ExitStack() as stack:
            try:
                files = cls(stack.enter_context(_flat(path, context)), context)
            except ImageError as exc:
                raise ImageError(f"{str(path)!r}: {exc}") from exc
            except (tarfile.TarError, OSError, EOFError, ValueError, zlib.error) as exc:
                raise ImageError(f"{str(path)!r} cannot be read as a tar: {exc}; {_WHAT_THERE_IS}") from exc
            yield files

    def has(self, name: str) -> bool:
        return name in self._members

    def open(self, name: str) -> IO[bytes]:
        """A file, or the one that a link names: older docker versions wrote a repeated layer as a link."""
        try:
            file = self._tar.extractfile(self._members[name])
        except (KeyError, RecursionError):
            file = None
        if file is None:
            raise FileNotFoundError(name)
        return file


def _listed(tar: tarfile.TarFile, context: FetchContext) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for number, member in enumerate(tar):
        context.stop.check()
        if number >= context.limits.entries:
            raise ImageError(f"has more than {context.limits.entries} entries")
        yield posixpath.normpath(member.name), member


@contextmanager
def _flat(path: Path, context: FetchContext) -> Generator[IO[bytes]]:
    """A seekable tar: the file itself, or a decompressed copy of it."""
    with _opened_file(path) as file, unpacked(file) as source:
        if source is file:
            yield file
            return
        with TemporaryFile(dir=context.room) as flat:
            size = 0
            for chunk in chunks(source, context.stop.check):
                size += len(chunk)
                if size > context.limits.size:
                    raise ImageError(f"unpacks to more than {context.limits.size} bytes")
                flat.write(chunk)
            flat.seek(0)
            yield flat


@contextmanager
def _found(open_file: OpenFile, name: str, what: str) -> Generator[IO[bytes]]:
    try:
        file = open_file(name)
    except OSError as exc:
        raise ImageError(f"{what} is missing: there is no {name}") from exc
    with file:
        try:
            yield file
        except tarfile.TarError as exc:
            raise ImageError(f"{what} is cut off: {exc}") from exc


def _text(open_file: OpenFile, name: str, what: str) -> bytes:
    with _found(open_file, name, what) as file:
        content = file.read(LARGEST_TEXT + 1)
    if len(content) > LARGEST_TEXT:
        raise ImageError(f"{what} has more than {LARGEST_TEXT} bytes")
    return content


def _saved(content: bytes, label: str, wanted: _WantedTag) -> dict[str, Any]:
    """The entry of manifest.json for the wanted image."""
    what = f"manifest.json of {label}"
    listed: Any = json_object(b'{"images": %s}' % content, what)["images"]
    entries = cast("list[Any]", listed) if isinstance(listed, list) else []
    found = {_tags(entry): entry for entry in entries if _is_saved(entry)}
    fitting = [tags for tags in found if any(map(wanted.fits, tags))]
    if not fitting and not wanted.strict:
        fitting = list(found)
    if len(fitting) == 1:
        return found[fitting[0]]
    names = ", ".join(sorted(name for tags in found for name in tags)) or "none with a name"
    raise ImageError(
        f"{what} must name one image, with Config and Layers; it has: {names}; name one as docker-archive:PATH:TAG"
    )


def _tags(entry: dict[str, Any]) -> tuple[str, ...]:
    tags: Any = entry.get("RepoTags")
    return tuple(str(tag) for tag in cast("list[Any]", tags)) if isinstance(tags, list) else ()


def _is_saved(entry: Any) -> bool:
    match entry:
        case {"Config": str(), "Layers": [*layers]}:
            return all(isinstance(name, str) for name in layers)
        case _:
            return False
