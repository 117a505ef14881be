"""Processes in containers: the command line of podman or docker around the real image.

The client is a process of the LocalRunner. The container itself is not our child, so it has a name and two labels; it
is removed when its run is over, when the runner is closed, by a watcher if hookline is killed, and by the next
hookline that starts a container.
"""

from __future__ import annotations

import asyncio
import os
import re
import resource
import shutil
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from hookline.engine.threads import Threads
from hookline.errors import UsageError
from hookline.files import open_content
from hookline.runners import (
    Capabilities,
    Ending,
    Mount,
    Order,
    inside_variables,
    missing_source,
    own_mounts,
    tags,
)
from hookline.runners.child import Child, PopenChild, StandardFiles, Start, Watcher, encoded
from hookline.runners.local import LocalRunner

ENGINES = ("podman", "docker")
Pull = Literal["missing", "always", "never"]
PULL_LIMIT = 600.0
"""Seconds that pulling an image may take; it does not count towards the limit of a hook."""

_HELD = (
    *("--interactive", "--pull", "never", "--log-driver", "none", "--read-only"),
    *("--cap-drop", "all", "--security-opt", "no-new-privileges", "--security-opt", "label=disable"),
)
_ONLY = {"podman": ("--read-only-tmpfs=false",)}
_NOT_RUN = (125, 126, 127)
# At most our own limits: the defaults of the engine may be more than it is allowed to set.
_LIMITS = {"nofile": (resource.RLIMIT_NOFILE, 16384), "nproc": (resource.RLIMIT_NPROC, 4096)}
_LONGEST_LINE = 60_000
# Variables that the client itself would obey; they are passed by file, so they cannot have more than one line.
_OF_THE_CLIENT = re.compile(
    r"(LD|XDG|DOCKER|CONTAINERS?|PODMAN|STORAGE|REGISTRY|BUILDAH|SSL|DBUS|GO)_?.*|PATH|HOME|USER|TMPDIR|_.*"
    r"|(https?|no|all)_proxy|NOTIFY_SOCKET|LISTEN_.*",
    re.IGNORECASE,
)
_threads = Threads()


class ContainerRunner:
    """Runs processes in containers, with the slots, limits and watcher of a LocalRunner, which it closes."""

    capabilities = Capabilities(name="container", isolates=True, uses_image=True, keeps_background=False)

    def __init__(
        self,
        local: LocalRunner | None = None,
        *,
        engine: Sequence[str] | None = None,
        pull: Pull = "missing",
    ) -> None:
        self._engine = tuple(engine) if engine is not None else find_engine()
        self._local = local or LocalRunner()
        self._pull: Pull = pull
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._present: set[str] = set()
        self._swept = False
        self.label = f"{tags.MARK}={self._local.mark.strip(':.')}"
        """The label of every container of this runner."""

    async def run(self, order: Order) -> Ending:
        """Run a process to its end. Only a cancellation is raised."""
        wrong = _wrong(order) or await self.lacking(order.image or "")
        if wrong is not None:
            return Ending(not_started=wrong)
        containers = self._local.belonging(ContainerRunner, lambda: _Containers(self._engine, self.label))
        if not self._swept:
            self._swept = True
            self._local.spawn(self.sweep())
        name = f"hookline-{os.urandom(8).hex()}"
        containers.names.add(name)
        try:
            ending = await self._local.run(*self._client(order, name))
            ending = await self._judged(order, name, ending)
        except GeneratorExit:
            containers.remove(name)  # closed in the middle, and nothing can be awaited any more
            raise
        except BaseException:
            await asyncio.shield(self._removal(containers, name))
            raise
        removal = self._removal(containers, name)
        if not ending.exited:
            await asyncio.shield(removal)
        return ending

    async def sweep(self) -> list[str]:
        """Remove the containers of hookline processes that are gone; the ids of those containers."""
        found = await _threads.call(tags.abandoned, self._engine, timeout=None)
        await _threads.call(tags.remove, self._engine, found, timeout=None)
        return found

    async def close(self) -> None:
        """End everything that this runner started."""
        await self._local.close()

    def _client(self, order: Order, name: str) -> tuple[Order, Start]:
        inline, by_file = _split(order)
        words = (*self._engine, "run", "--name", name, "--label", self.label)
        words += ("--label", f"{tags.OWNER}={tags.owner(os.getpid())}")

        def start(outer: Order, files: StandardFiles) -> Child:
            encoded((*order.argv, *order.env, *order.env.values()))
            fd = open_content("".join(f"{key}={value}\n" for key, value in by_file.items()).encode())
            try:
                env_file = ("--env-file", f"/proc/self/fd/{fd}")
                argv = (*words, *env_file, *arguments(order, self._engine[0], inline))
                return PopenChild(replace(outer, argv=argv), files, (fd,))
            finally:
                os.close(fd)

        env = {**os.environ, **inline}
        outer = replace(order, argv=self._engine, cwd="/", env=env, mounts=(), background_keep=False)
        return replace(outer, own_program=False, file_size=None), start

    async def lacking(self, image: str) -> str | None:
        """The reason why nothing can run in that image, or None. Each image is looked up, and pulled, once."""
        async with self._locks[image]:
            trouble = None if image in self._present else await self._fetched(image)
            if trouble is None:
                self._present.add(image)
            return trouble

    async def _fetched(self, image: str) -> str | None:
        if self._pull != "always":
            looked = await self._chore("image", "inspect", "--format", "{{.Id}}", image)
            if looked.exit_code == 0:
                return None
            if looked.not_started or self._pull == "never":
                why = looked.not_started or f"image {image!r} is not on this machine, and is not to be pulled"
                return f"{why}: {_said(looked)}" if _said(looked) else why
        pulled = await self._chore("pull", "--quiet", image)
        if pulled.exit_code == 0:
            return None
        trouble = _said(pulled) if pulled.exited else pulled.in_words(PULL_LIMIT)
        return f"image {image!r} could not be pulled: {trouble}"

    async def _chore(self, *words: str) -> Ending:
        argv = (*self._engine, *words)
        return await self._local.run(Order(argv=argv, env=dict(os.environ), cwd="/", timeout=PULL_LIMIT))

    async def _judged(self, order: Order, name: str, ending: Ending) -> Ending:
        """The ending; `not_started` if the exit code is the engine's own, because the command never ran."""
        if not ending.exited or ending.exit_code not in _NOT_RUN:
            return ending
        if await _threads.call(_was_begun, self._engine, name, timeout=None):
            return ending
        return Ending(not_started=_said(ending) or "the container was not started", seconds=ending.seconds)

    def _removal(self, containers: _Containers, name: str) -> asyncio.Task[None]:
        return self._local.spawn(_threads.call(containers.remove, name, timeout=None))


def find_engine() -> tuple[str, ...]:
    """The path of podman, else of docker; UsageError if there is neither."""
    for name in ENGINES:
        found = shutil.which(name)
        if found is not None:
            return (found,)
    raise UsageError("containers need podman or docker, and neither is on PATH; apt-get install podman")


def arguments(order: Order, engine: str, inline: Mapping[str, str]) -> list[str]:
    """The arguments of the engine, up to the image and its command. Of the variables `inline`, only the names."""
    kind = os.path.basename(engine)
    words = [*_HELD, *_ONLY.get(kind, ()), "--network", "host" if order.network else "none", *_user(kind)]
    for name, (number, most) in _LIMITS.items():
        ours = resource.getrlimit(number)[0]
        held = most if ours == resource.RLIM_INFINITY else min(most, ours)
        words += ("--ulimit", f"{name}={held}:{held}")
    if order.file_size is not None:
        words += ("--ulimit", f"fsize={order.file_size}:{order.file_size}")
    for mount in own_mounts(order):
        words += _mounted(mount, kind)
    for name in inline:
        words += ("--env", name)
    words += ("--workdir", order.cwd) if order.cwd else ()
    if order.argv and not order.own_program:
        return [*words, "--entrypoint", order.argv[0], order.image or "", *order.argv[1:]]
    return [*words, order.image or "", *order.argv]


def _user(kind: str) -> Iterator[str]:
    """The user inside is our own, so that what it writes into a mount is ours; it has no capability."""
    if kind == "podman" and os.geteuid() != 0:
        yield from ("--userns", "keep-id")
    yield from ("--user", f"{os.geteuid()}:{os.getegid()}")


def _mounted(mount: Mount, kind: str) -> tuple[str, ...]:
    if mount.source is None:
        # Empty: podman would copy into it what the image has there.
        empty = ",notmpcopyup" if kind == "podman" else ""
        return ("--tmpfs", f"{mount.target}:rw,nosuid,nodev,mode=1777,size={mount.size}{empty}")
    access = "ro" if mount.read_only else "rw"
    if ":" not in mount.source + mount.target:
        return ("--volume", f"{mount.source}:{mount.target}:{access}")
    return ("--mount", f"type=bind,source={mount.source},target={mount.target}" + ",ro" * mount.read_only)


def _wrong(order: Order) -> str | None:
    if not order.image:
        return "it names no image, and a container needs one"
    if order.image.startswith("-"):
        return f"{order.image!r} is not a name of an image"
    missing = missing_source(order)
    if missing is not None:
        return missing
    for mount in order.mounts:
        both = (mount.source or "") + mount.target
        if ":" in both and "," in both:
            return f"{mount.source!r} cannot be mounted: it has both a colon and a comma"
    inline, _ = _split(order)
    wrong = next((name for name in inline if _OF_THE_CLIENT.fullmatch(name)), None)
    return wrong and f"variable {wrong} has more than one line, and cannot be handed to a container"


def _split(order: Order) -> tuple[dict[str, str], dict[str, str]]:
    """The variables passed by the client's own environment, and those that a line of a file can carry."""
    env = {**order.env, **inside_variables(order)}
    env.pop(tags.VARIABLE, None)
    inline = {name: value for name, value in env.items() if not _is_one_line(value)}
    return inline, {name: value for name, value in env.items() if name not in inline}


def _is_one_line(value: str) -> bool:
    return "\n" not in value and "\r" not in value and len(value.encode("utf-8", "replace")) < _LONGEST_LINE


def _was_begun(engine: Sequence[str], name: str) -> bool:
    began = tags.said(engine, "inspect", "--format", "{{.State.StartedAt}}", name).strip()
    return bool(began) and not began.startswith("0001-")


def _said(ending: Ending) -> str:
    return re.sub(r"^(docker: )?(Error: |Error response from daemon: )", "", ending.last_lines(1))


class _Containers:
    """The containers that may still exist, by name, and the watcher that removes them if we are killed."""

    def __init__(self, engine: Sequence[str], label: str) -> None:
        self.names: set[str] = set()
        self._engine = engine
        self._watcher = Watcher(tags.watcher_of(label, *engine))

    def remove(self, name: str) -> None:
        tags.remove(self._engine, [name])
        self.names.discard(name)

    def close(self) -> None:
        tags.remove(self._engine, sorted(self.names))
        self.names.clear()
        self._watcher.dismiss()
