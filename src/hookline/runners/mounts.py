"""Where the places that an order names are on this machine, and what a process is told of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from hookline.runners import Mount, Order

OWN_SIZE = 256 * 1024 * 1024
"""Bytes that /tmp, or another folder of its own, may hold where nobody said otherwise."""


def on_this_machine(order: Order) -> Order:
    """The order for a process that sees this machine's files: real places, told by environment variables."""
    told = {each.variable: each.source for each in order.mounts if each.variable and each.source}
    cwd = order.cwd and (source_of(order.mounts, order.cwd) or order.cwd)
    return replace(order, env={**order.env, **told}, cwd=cwd, mounts=())


def inside_variables(order: Order) -> dict[str, str]:
    """What a process with a file system of its own is told of it."""
    return {each.variable: each.target for each in order.mounts if each.variable}


def own_mounts(order: Order) -> list[Mount]:
    """The mounts of a process with a file system of its own: the outer ones first, and a /tmp in any case."""
    tmp = () if any(each.target == "/tmp" for each in order.mounts) else (Mount(target="/tmp"),)
    return sorted((*tmp, *order.mounts), key=lambda each: len(each.target))


def missing_source(mount: Mount) -> str | None:
    """The reason why a mount cannot be made; None where its source is there, or it has none."""
    if mount.source is None or os.path.exists(mount.source):
        return None
    return f"what is to be mounted at {mount.target} is not there: {mount.source!r}"


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
