"""Orders that were made for this machine, run in a sandbox or a container that has the same places and no others.

Who makes such an order knows nothing of where it will run: its folder is at the same path inside, and the variables
that only lead to places of this machine's user are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from hookline.errors import UsageError
from hookline.runners import Capabilities, Ending, Mount, Order, Runner
from hookline.runners.container import ContainerRunner
from hookline.runners.mounts import beneath

_OF_THE_USER = re.compile(r"HOME|TMPDIR|TMP|TEMP|OLDPWD|XDG_.*")
_OF_THIS_MACHINE = re.compile(
    rf"{_OF_THE_USER.pattern}|PATH|SHELL|USER|LOGNAME|HOSTNAME|LD_.*|PYTHON.*|VIRTUAL_ENV|SSL_CERT_.*|.*_CA_BUNDLE|_"
)
_PROBE_LIMIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Enclosure:
    """What processes see of this machine: the mounts, and of the folders in `each_of` the one that they work in.

    `hidden` is a folder that nobody sees, although it may be in a mount. `environ` is this machine's environment.
    """

    mounts: tuple[Mount, ...] = ()
    each_of: str | None = None
    hidden: str | None = None
    network: bool = False
    image: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for mount in self.mounts:
            if self.hidden and mount.source and _real(mount.source) == _real(self.hidden):
                raise UsageError(
                    f"the journal is in {mount.source}, which the hooks would see; set HOOKLINE_HOME to another folder"
                )


class EnclosedRunner:
    """Runs orders inside of another runner, which it closes."""

    def __init__(self, inner: Runner, given: Enclosure) -> None:
        self.inner = inner
        self._given = given

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    def with_mounts(self, mounts: Iterable[Mount]) -> EnclosedRunner:
        """The same place, where these are seen too."""
        return EnclosedRunner(self.inner, replace(self._given, mounts=(*self._given.mounts, *mounts)))

    async def run(self, order: Order) -> Ending:
        inside = enclosed(order, self._given, own_programs=self.capabilities.uses_image)
        if inside.cwd and not any(beneath(inside.cwd, each.target) for each in inside.mounts):
            name = self.capabilities.name
            return Ending(
                not_started=f"its working folder {inside.cwd!r} is not seen in the {name}; --mount shows it"
            )
        return await self.inner.run(inside)

    async def trouble(self) -> str | None:
        """Why nothing could start there; None where something can."""
        if isinstance(self.inner, ContainerRunner):
            return await self.inner.lacking(self._given.image or "")
        env = {name: value for name, value in self._given.environ.items() if name == "PATH"}
        order = enclosed(
            Order(argv=("true",), env=env, timeout=_PROBE_LIMIT), self._given, own_programs=False
        )
        return (await self.inner.run(order)).not_started

    async def close(self) -> None:
        await self.inner.close()


def enclosed(order: Order, given: Enclosure, *, own_programs: bool) -> Order:
    """The order as it is run inside. With `own_programs` there is another system inside, with variables of its own."""
    seen = {each.target: each for each in (*given.mounts, *order.mounts)}
    cwd = os.path.abspath(order.cwd) if order.cwd else None
    if order.cwd and given.each_of:
        # It may be told as an open folder of this process, which is none inside.
        real = _real(order.cwd)
        for own in _own_folder(real, given.each_of):
            cwd = real
            seen[own] = Mount(target=own, source=own)
    for mount in _covers(seen.values(), given.hidden):
        seen[mount.target] = mount
    return replace(
        order,
        cwd=cwd,
        env=_environment(order.env, given.environ, own_programs=own_programs),
        mounts=tuple(seen.values()),
        network=given.network,
        image=given.image,
    )


def _own_folder(place: str, each_of: str) -> Iterator[str]:
    """The folder directly in `each_of` that a place is in, if it is in one."""
    above = _real(each_of)
    if place != above and beneath(place, above):
        yield os.path.join(above, os.path.relpath(place, above).split(os.sep)[0])


def _covers(mounts: Iterable[Mount], hidden: str | None) -> list[Mount]:
    """An empty folder over what is hidden, wherever a mount would show it."""
    if hidden is None or not os.path.isdir(hidden):
        return []
    place = _real(hidden)
    found: list[Mount] = []
    for mount in mounts:
        source = _real(mount.source) if mount.source else None
        if source is not None and source != place and beneath(place, source):
            found.append(Mount(target=os.path.join(mount.target, os.path.relpath(place, source))))
    return found


def _environment(env: Mapping[str, str], ours: Mapping[str, str], *, own_programs: bool) -> dict[str, str]:
    """What the order says, without what it only has from this machine and what leads nowhere inside."""
    lost = _OF_THIS_MACHINE if own_programs else _OF_THE_USER
    whole = {
        name: value for name, value in env.items() if not (lost.fullmatch(name) and ours.get(name) == value)
    }
    return whole if own_programs else {"HOME": "/tmp", **whole}


def _real(place: str) -> str:
    return os.path.realpath(place)
