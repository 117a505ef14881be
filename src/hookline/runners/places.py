"""The places where the processes of hooks run, by the command line: `--on`, and the files that they see there.

Orders are made for this machine, whatever the place. An `EnclosedRunner` runs them in a sandbox or a container that has
the same folders and no others: a folder has the same path inside, and variables that only name paths of this machine's
user are left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import Any

from hookline.engine.plain import plain
from hookline.errors import UsageError, meant
from hookline.journal import default_path
from hookline.options import KUBERNETES
from hookline.runners import Capabilities, Ending, Mount, Order, Runner, beneath
from hookline.runners.container import ContainerRunner
from hookline.runners.local import LocalRunner
from hookline.runners.sandbox import SandboxRunner, bubblewrap
from hookline.source import SUFFIXES

_RUNNERS = {"local": LocalRunner, "sandbox": SandboxRunner, "container": ContainerRunner}
PLACES: Mapping[str, Capabilities] = {name: runner.capabilities for name, runner in _RUNNERS.items()}
_PROCESSES = ("command", "shell")
_OF_THE_USER = re.compile(r"HOME|TMPDIR|TMP|TEMP|OLDPWD|XDG_.*")
_OF_THIS_MACHINE = re.compile(
    rf"{_OF_THE_USER.pattern}|PATH|SHELL|USER|LOGNAME|HOSTNAME|LD_.*|PYTHON.*|VIRTUAL_ENV|SSL_CERT_.*|.*_CA_BUNDLE|_"
)
_PROBE_LIMIT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The place where the processes of hooks run, by the command line."""

    on: str = "local"
    image: str | None = None
    network: bool = False
    mounts: tuple[Mount, ...] = ()

    @property
    def is_here(self) -> bool:
        return self.on == "local"

    def runner(
        self, *, workspace: Path | None = None, each_of: str | None = None, files: Iterable[str] = ()
    ) -> Runner:
        """The runner for hooks, including those of the hook files, that work in one folder or in one of several."""
        if self.is_here:
            return LocalRunner()
        if self.on == "sandbox":
            check_bubblewrap()
        seen = [*self.mounts, *([_own(workspace.absolute())] if workspace else ())]
        for folder in map(_folder, files):
            if folder and not _holds_home(folder) and not _is_seen(folder, seen):
                seen.append(Mount(target=folder, source=folder, read_only=True))
        return EnclosedRunner(
            _RUNNERS[self.on](),
            mounts=tuple(seen),
            each_of=each_of,
            hidden=str(default_path(os.environ).parent),
            network=self.network,
            image=self.image,
            environ=dict(os.environ),
        )

    def told(self, here: str, *, workspace: Path | None = None, files: Iterable[str] = ()) -> list[str]:
        """Notes for the user before hooks run there; `here` names what runs on this machine all the same."""
        if self.is_here:
            return []
        found = [f"--on {self.on}: hooks that are commands or scripts run in the {self.on}; {here}"]
        if not self.network:
            found.append(f"the {self.on} has no network; --network gives it to the hooks")
        if workspace is not None and _holds_home(str(workspace.absolute())):
            found.append(
                f"the workspace {workspace} contains your home folder, so hooks see all of it; give --workspace"
            )
        found += [
            f"{file}: its folder contains your home folder, so hooks do not see it; mount what they need with --mount"
            for file in files
            if (folder := _folder(file)) and _holds_home(folder)
        ]
        return found


def place_of(
    on: str,
    images: Sequence[str] | None = None,
    *,
    network: bool = False,
    mounts: Sequence[str] | None = None,
) -> tuple[Place, list[str]]:
    """The place, and the other values of `--image`: an image without a source is the one to run in."""
    on = known_place(on or "local")
    named = [each for each in images or () if "=" not in each]
    others = [each for each in images or () if "=" in each]
    useless = {"--network": network, "--mount": mounts} if on == "local" else {}
    for option in (name for name, value in useless.items() if value):
        raise UsageError(f"{option} needs --on sandbox or --on container; a local process sees everything")
    if named and on != "container":
        raise UsageError(
            f"--image {named[0]!r} is not REF=SOURCE; an image for the hooks to run in needs --on container"
        )
    if on == "container" and len(named) != 1:
        told = f"; these are {len(named)}: {', '.join(named)}" if named else ", such as --image python:3.12"
        raise UsageError(f"--on container needs one image that the hooks run in: --image NAME{told}")
    image = named[0] if named else None
    return Place(on=on, image=image, network=network, mounts=tuple(map(mount_of, mounts or ()))), others


@dataclass(frozen=True, eq=False)
class EnclosedRunner:
    """Runs orders inside another runner, which it closes; they see only a part of this machine.

    That part is the mounts, and of the folders in `each_of` the one that a process works in. `hidden` is a folder that
    no process sees, even inside a mount. `environ` is this machine's environment.
    """

    inner: Runner
    _: KW_ONLY
    mounts: tuple[Mount, ...] = ()
    each_of: str | None = None
    hidden: str | None = None
    network: bool = False
    image: str | None = None
    environ: Mapping[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        for source in (mount.source for mount in self.mounts if mount.source and self.hidden):
            if os.path.realpath(source) == os.path.realpath(self.hidden or ""):
                raise UsageError(
                    f"the journal is in {source}, which the hooks would see; set HOOKLINE_HOME to another folder"
                )

    @property
    def capabilities(self) -> Capabilities:
        return self.inner.capabilities

    async def run(self, order: Order) -> Ending:
        inside = self.inside(order)
        if inside.cwd and not any(beneath(inside.cwd, each.target) for each in inside.mounts):
            name = self.capabilities.name
            return Ending(
                not_started=f"its working folder {inside.cwd!r} is not mounted in the {name}; add it with --mount"
            )
        return await self.inner.run(inside)

    async def trouble(self) -> str | None:
        """The reason why nothing can start there, or None."""
        if isinstance(self.inner, ContainerRunner):
            return await self.inner.lacking(self.image or "")
        env = {name: value for name, value in self.environ.items() if name == "PATH"}
        order = self.inside(Order(argv=("true",), env=env, timeout=_PROBE_LIMIT))
        return (await self.inner.run(order)).not_started

    async def close(self) -> None:
        await self.inner.close()

    def inside(self, order: Order) -> Order:
        """The order as it runs inside."""
        seen = {each.target: each for each in (*self.mounts, *order.mounts)}
        cwd = os.path.abspath(order.cwd) if order.cwd else None
        if order.cwd and self.each_of:
            # It may be given as /proc/self/fd/N, which does not exist inside.
            real, above = os.path.realpath(order.cwd), os.path.realpath(self.each_of)
            if real != above and beneath(real, above):
                cwd = real
                own = os.path.join(above, os.path.relpath(real, above).split(os.sep)[0])
                seen[own] = Mount(target=own, source=own)
        for mount in _covers(seen.values(), self.hidden):
            seen[mount.target] = mount
        return replace(
            order,
            cwd=cwd,
            env=self._environment(order.env),
            mounts=tuple(seen.values()),
            network=self.network,
            image=self.image,
        )

    def _environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of an order without those inherited from this machine that mean nothing inside."""
        # With an image the system inside is another one, with variables of its own.
        lost = _OF_THIS_MACHINE if self.capabilities.uses_image else _OF_THE_USER
        whole = {
            name: value
            for name, value in env.items()
            if not (lost.fullmatch(name) and self.environ.get(name) == value)
        }
        return whole if self.capabilities.uses_image else {"HOME": "/tmp", **whole}


def containers_beside(runner: Runner) -> Runner:
    """The runner for images, wherever the other hooks run."""
    if isinstance(runner, EnclosedRunner):
        runner = runner.inner
    if runner.capabilities.uses_image:
        return runner
    local = runner.local if isinstance(runner, SandboxRunner) else runner
    if not isinstance(local, LocalRunner):
        raise UsageError(f"an image needs --on container, local or sandbox; this is {type(runner).__name__}")
    return ContainerRunner(local)


def described(runner: Runner) -> dict[str, Any] | None:
    """The place of a runner as plain data; None for this machine, as it is."""
    if not isinstance(runner, EnclosedRunner):
        return None
    return {
        "on": runner.capabilities.name,
        "mounts": [plain(each) for each in runner.mounts],
        "each_of": runner.each_of,
        "network": runner.network,
        "image": runner.image,
    }


def runner_again(place: Mapping[str, Any] | None) -> Runner:
    """The runner of a place as plain data, in this process."""
    if place is None:
        return LocalRunner()
    return EnclosedRunner(
        _RUNNERS[place["on"]](),
        mounts=tuple(Mount(**each) for each in place["mounts"]),
        each_of=place["each_of"],
        hidden=str(default_path(os.environ).parent),
        network=place["network"],
        image=place["image"],
        environ=dict(os.environ),
    )


async def usable(runner: Runner) -> None:
    """Raises UsageError if no hook could start, before anything begins: a guard that cannot start guards nothing."""
    trouble = await runner.trouble() if isinstance(runner, EnclosedRunner) else None
    if trouble is not None:
        raise UsageError(f"nothing was run: {trouble}")


def runs_in(kind: str, on: str) -> str:
    """Where a hook of that kind runs, for a reader."""
    if kind == "image":
        return "in a container of its image"
    return f"in the {on}" if kind in _PROCESSES and on != "local" else "here"


def known_place(word: str) -> str:
    """A place on this machine. Runs on a cluster are handled before this is called."""
    if word == KUBERNETES:
        raise UsageError(
            f"--on {KUBERNETES} is not supported here: `hookline run` takes AgentRun manifests and agents in Python"
            " there, `hookline serve` a WORKFLOW.md, and a kagent Agent is applied with kubectl, where `hookline"
            " operator --kagent` works"
        )
    if word not in PLACES:
        hint = meant(word, (*PLACES, KUBERNETES))
        raise UsageError(f"--on is {word!r}; known: {', '.join((*PLACES, KUBERNETES))}{hint}")
    return word


def check_bubblewrap() -> None:
    """Raises UsageError with advice if there is no usable bubblewrap."""
    try:
        bubblewrap()
    except UsageError as exc:
        raise UsageError(f"{exc}; or run without isolation: --on local") from None


def mount_of(text: str) -> Mount:
    """The mount of `DIR`, `DIR:TARGET` or `DIR:TARGET:rw`; read-only without `rw`."""
    source, _, rest = text.partition(":")
    target, _, way = rest.partition(":")
    source = os.path.abspath(source)
    if way not in ("", "ro", "rw") or (target and not target.startswith("/")):
        raise UsageError(f"--mount is {text!r}; give DIR, DIR:/TARGET or DIR:/TARGET:rw")
    if not os.path.exists(source):
        raise UsageError(f"--mount: there is no {source!r}")
    return Mount(target=target or source, source=source, read_only=way != "rw")


def _own(workspace: Path) -> Mount:
    if workspace == Path("/"):
        raise UsageError(
            "the workspace is /, all of this machine; give --workspace, a folder for the hooks to see"
        )
    return Mount(target=os.path.normpath(workspace), source=os.path.normpath(workspace))


def _folder(file: str) -> str | None:
    """The folder with the scripts of a hook file; None for Python, which runs here anyway."""
    path = Path(file)
    return str(path.resolve().parent) if path.suffix in SUFFIXES else None


def _is_seen(folder: str, mounts: Iterable[Mount]) -> bool:
    return any(each.target == each.source and beneath(folder, each.target) for each in mounts)


def _covers(mounts: Iterable[Mount], hidden: str | None) -> list[Mount]:
    """An empty folder over the hidden one, wherever a mount would show it."""
    if hidden is None or not os.path.isdir(hidden):
        return []
    place = os.path.realpath(hidden)
    found: list[Mount] = []
    for mount in mounts:
        source = os.path.realpath(mount.source) if mount.source else None
        if source is not None and source != place and beneath(place, source):
            found.append(Mount(target=os.path.join(mount.target, os.path.relpath(place, source))))
    return found


def _holds_home(folder: str) -> bool:
    return beneath(os.path.realpath(os.path.expanduser("~")), os.path.realpath(folder))
