"""Where the places that an order names are on this machine, and what a process is told of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from hookline.runners import Mount, Order

__all__ = ["beneath", "inside_variables", "on_this_machine", "source_of"]


def on_this_machine(order: Order) -> Order:
    """The order for a process that sees this machine's files: real places, told by environment variables."""
    told = {each.variable: each.source for each in order.mounts if each.variable and each.source}
    cwd = order.cwd and (source_of(order.mounts, order.cwd) or order.cwd)
    return replace(order, env={**order.env, **told}, cwd=cwd, mounts=())


def inside_variables(order: Order) -> dict[str, str]:
    """What a process with a file system of its own is told of it."""
    return {each.variable: each.target for each in order.mounts if each.variable}


def source_of(mounts: Sequence[Mount], path: str) -> str | None:
    """The place on this machine that a process finds at `path`; None where no mount of this machine's is there."""
    path = os.path.normpath(path)
    above = [each for each in mounts if beneath(path, each.target)]
    if not above:
        return None
    nearest = max(above, key=lambda each: len(each.target))
    if nearest.source is None:
        return None
    return os.path.normpath(os.path.join(nearest.source, os.path.relpath(path, nearest.target)))


def beneath(path: str, folder: str) -> bool:
    """Whether a path is that folder or in it, by its words alone."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")
