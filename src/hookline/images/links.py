"""The folder of a run with a link to each of its hook images."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from hookline.errors import ImageError
from hookline.images.cache import in_use
from hookline.images.fetch import Fetched
from hookline.images.reference import names


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
        stack.callback(_away, folder)
        for image in fetched:
            (folder / image.name).symlink_to(image.path, target_is_directory=True)
        folder.chmod(0o555)
        yield folder


def _away(folder: Path) -> None:
    folder.chmod(0o755)
    for link in folder.iterdir():
        os.unlink(link)
    folder.rmdir()
