"""Workspaces: one folder for each issue below a root that only one service holds.

No path is used that somebody could have swapped. The root is opened once, a workspace is opened in it without
following a link, and everything is done through those two handles.

The state of a workspace is kept beside the workspaces, in `.hookline~`, a name that no issue can have: a note in
`making` before its folder is made, in `ready` once `after_create` went well, in `ending` before `before_remove` runs. A
note moves by rename, so after a crash at any moment it shows if the folder is whole. A folder without a note was made
by somebody else, and is used as it is.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import time
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from hookline import files
from hookline.engine.plain import json_or_none
from hookline.engine.threads import Threads
from hookline.errors import HooklineError

OWN = ".hookline~"
"""The folder of the notes, the lock and what is being deleted; the sign at its end is in no key."""
LONGEST = 255
_STATES = ("making", "ready", "ending")
_NOTED = ("identifier", "issue_id", "title", "run_id", "created")
_TRASH = "trash"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_KEY = re.compile(r"[A-Za-z0-9._-]+")
_threads = Threads(cap=8)


class WorkspaceError(HooklineError):
    """A workspace cannot be used. `kind` is one word for the record.

    Kinds: workspace_equals_root, workspace_outside_root, workspace_symlink_escape, workspace_path_unreadable,
    workspace_not_a_folder, workspace_taken, workspace_busy, workspace_not_deleted, invalid_workspace_cwd,
    root_locked, root_unusable.
    """

    def __init__(self, message: str, *, kind: str = "workspace_path_unreadable") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Workspace:
    """One issue's folder. `run_id` finds its beginning in the journal; `state` is making, ready or ending."""

    key: str
    path: str
    identifier: str
    issue_id: str = ""
    title: str = ""
    run_id: str = ""
    created: float = 0.0
    state: str = "ready"


def workspace_key(identifier: str | None) -> str:
    """The name of an issue's folder: the identifier, or a safe form of it with a digest of the real one."""
    if identifier is None:
        return "issue"
    key = _UNSAFE.sub("_", identifier)
    if key != identifier:
        digest = hashlib.sha256(identifier.encode("utf-8", "surrogatepass")).hexdigest()
        key = f"{key}--{digest[:16]}"
    if key in ("", ".", ".."):
        raise WorkspaceError(
            f"the identifier {identifier!r} would be the root itself or above it; give the issue a name",
            kind="workspace_equals_root" if key != ".." else "workspace_outside_root",
        )
    if len(key) > LONGEST:
        raise WorkspaceError(
            f"the identifier {identifier[:40]!r}... is too long for the name of a folder: {len(key)} characters,"
            f" and {LONGEST} are allowed"
        )
    return key


class WorkspaceRoot(AbstractContextManager["WorkspaceRoot"]):
    """The folder that holds the workspaces, opened, and locked unless it is only read."""

    def __init__(self, path: str, *, holder: str = "hookline", lock: bool = True) -> None:
        self.path = os.path.realpath(path)
        """Without links: a root may be one, and is what that leads to."""
        self._open = ExitStack()
        self._busy: set[str] = set()
        try:
            with _as_unusable(f"workspace.root {path!r} cannot be used"):
                if lock:
                    with suppress(FileExistsError):  # where that is no folder, it cannot be opened
                        os.makedirs(self.path)
                self._fd = self._open.enter_context(files.opened_folder(self.path))
                self._own = self._folder(self._fd, OWN, make=lock)
                self._notes = {state: self._folder(self._own, state, make=lock) for state in _STATES}
                self._trash = self._folder(self._own, _TRASH, make=lock)
                if lock:
                    self._lock(holder)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Release the root for another service."""
        self._open.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def held(self, key: str) -> Generator[None]:
        """Locks a workspace within this process, against a second attempt or removal."""
        if key in self._busy:
            raise WorkspaceError(f"the workspace {key} is being worked on already", kind="workspace_busy")
        self._busy.add(key)
        try:
            yield
        finally:
            self._busy.discard(key)

    def find(self, key: str) -> Workspace | None:
        """A workspace by its note or its folder; None if there is neither."""
        if not _KEY.fullmatch(key) or key in (".", ".."):
            raise WorkspaceError(f"{key!r} is not a key of a workspace", kind="workspace_outside_root")
        for state in _STATES:
            note = self._note(state, key)
            if note is not None:
                return self._described(key, state, note)
        return None if self._kind(key) is None else self._described(key, "ready", {})

    def listed(self) -> list[Workspace]:
        """Every workspace, by key, including folders that somebody else made."""
        keys = {name for fd in self._notes.values() if fd >= 0 for name in os.listdir(fd)}
        with os.scandir(self._fd) as entries:
            keys.update(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        found = [self.find(key) for key in sorted(keys) if _KEY.fullmatch(key)]
        return [each for each in found if each is not None]

    def begin(self, identifier: str, *, issue_id: str = "", title: str = "", run_id: str = "") -> Workspace:
        """The issue's workspace: the existing one, or a new one, which is not whole before `finish`.

        One that a crash left half-made must be discarded before.
        """
        key = workspace_key(identifier)
        known = self.find(key)
        if known is not None and known.state != "ready":
            raise WorkspaceError(
                f"{known.path} was left half-done ({known.state}) and is not cleaned up yet",
                kind="workspace_busy",
            )
        made = Workspace(
            key=key,
            path=self._path(key),
            identifier=identifier,
            issue_id=issue_id,
            title=title,
            run_id=run_id,
            created=time.time(),
            state="making",
        )
        if known is not None and self.exists(known):
            return self._reused(known, made)
        with _as_unusable(f"the workspace {made.path} cannot be made"):
            self._drop_note("ready", key)  # of a folder that was deleted by hand
            self._write_note("making", made)
            try:
                os.mkdir(key, 0o777, dir_fd=self._fd)
            except BaseException:
                self._drop_note("making", key)
                raise
        return made

    def finish(self, workspace: Workspace) -> Workspace:
        """Mark the workspace as whole."""
        with _as_unusable(f"the workspace {workspace.path} cannot be made"):
            self._move_note(workspace.key, "making", "ready")
        return replace(workspace, state="ready")

    def to_be_removed(self, workspace: Workspace) -> Workspace:
        """Mark the workspace as being removed, which a recovery completes after a crash."""
        with _as_unusable(f"the workspace {workspace.path} cannot be removed"):
            if self._note("ready", workspace.key) is not None:
                self._move_note(workspace.key, "ready", "ending")
            elif self._note("ending", workspace.key) is None:
                self._write_note("ending", workspace)
        return replace(workspace, state="ending")

    def exists(self, workspace: Workspace) -> bool:
        """True if its folder is there; anything else in its place is an error."""
        kind = self._kind(workspace.key)
        if kind == stat.S_IFLNK:
            leads = os.readlink(workspace.key, dir_fd=self._fd)
            raise WorkspaceError(
                f"{workspace.path} is a link to {leads!r}; a workspace must be a folder; remove the link",
                kind="workspace_symlink_escape",
            )
        if kind not in (None, stat.S_IFDIR):
            raise WorkspaceError(
                f"{workspace.path} is not a folder; move it away, hookline does not touch it",
                kind="workspace_not_a_folder",
            )
        return kind is not None

    @contextmanager
    def opened(self, workspace: Workspace) -> Generator[str]:
        """A path to the very folder that was checked, valid while this is open, whatever its name leads to by then."""
        with ExitStack() as stack:
            try:
                fd = stack.enter_context(files.opened_folder(workspace.key, self._fd))
            except OSError as exc:
                there = self.exists(workspace)
                how = f"cannot be entered: {exc.strerror}" if there else "is not there any more"
                raise WorkspaceError(f"the workspace {workspace.path} {how}") from exc
            folder = f"/proc/self/fd/{fd}"
            if not os.access(folder, os.X_OK):
                raise WorkspaceError(
                    f"the workspace {workspace.path} may not be entered; give its folder back its permissions"
                )
            yield folder

    def checked(self, workspace: Workspace) -> str:
        """Its path, checked once more right before an agent is started in it."""
        try:
            with self.opened(workspace) as folder:
                there = os.stat(workspace.path, follow_symlinks=False)
                if not os.path.samestat(there, os.stat(folder)):
                    # Somebody moved the root away and put another in its place.
                    raise WorkspaceError(f"{workspace.path} is not the workspace any more")
        except (WorkspaceError, OSError) as exc:
            why = f"{workspace.path}: {exc.strerror}" if isinstance(exc, OSError) else exc
            raise WorkspaceError(f"no agent is started: {why}", kind="invalid_workspace_cwd") from exc
        return workspace.path

    async def discard(self, workspace: Workspace) -> None:
        """Delete the workspace, whole or half-made, if it is there."""
        with _as_unusable(f"the workspace {workspace.path} cannot be removed"):
            name = secrets.token_hex(8)
            there = self._kind(workspace.key) is not None
            if there:
                # Out of its place in one step, so that nobody ever sees half of it.
                files.make_ours(workspace.key, self._fd)
                os.rename(workspace.key, name, src_dir_fd=self._fd, dst_dir_fd=self._trash)
            for state in _STATES:
                self._drop_note(state, workspace.key)
        if there:
            await self._deleted([name], workspace.path)

    async def empty_trash(self) -> None:
        """Delete what an earlier service did not get to."""
        names = os.listdir(self._trash)
        if names:
            await self._deleted(names, self.path)

    async def _deleted(self, names: list[str], what: str) -> None:
        # The handle is the thread's own: it goes on when we are cancelled and the root is closed.
        trash = os.dup(self._trash)
        left = await _threads.call(_delete_all, trash, names, timeout=None)
        if left:
            raise WorkspaceError(
                f"{what} is out of the way, but could not be deleted whole:"
                f" {'; '.join(left[:3])}{' ...' if len(left) > 3 else ''}; the rest is in"
                f" {os.path.join(self.path, OWN, _TRASH)}",
                kind="workspace_not_deleted",
            )

    def _reused(self, known: Workspace, wanted: Workspace) -> Workspace:
        if known.run_id:
            if known.identifier != wanted.identifier:
                raise WorkspaceError(
                    f"{known.path} belongs to the issue {known.identifier!r}, whose key is the same as that of"
                    f" {wanted.identifier!r}; rename one of them",
                    kind="workspace_taken",
                )
            return known
        adopted = replace(wanted, created=known.created, state="ready")
        with _as_unusable(f"the workspace {known.path} cannot be taken over"):
            self._write_note("ready", adopted)
        return adopted

    def _kind(self, key: str) -> int | None:
        try:
            return stat.S_IFMT(os.stat(key, dir_fd=self._fd, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise WorkspaceError(f"{self._path(key)} cannot be looked at: {exc.strerror}") from exc

    def _described(self, key: str, state: str, note: Mapping[str, Any]) -> Workspace:
        known: dict[str, Any] = {"identifier": key, **{name: note[name] for name in _NOTED if name in note}}
        return Workspace(**known, key=key, path=self._path(key), state=state)

    def _path(self, key: str) -> str:
        return os.path.join(self.path, key)

    def _note(self, state: str, key: str) -> Mapping[str, Any] | None:
        if self._notes[state] < 0:
            return None
        try:
            fd = files.open_file(key, self._notes[state])
        except FileNotFoundError:
            return None
        except OSError as exc:
            raise WorkspaceError(
                f"the note on {key} in {os.path.join(self.path, OWN, state)} cannot be read: {exc.strerror}"
            ) from exc
        with os.fdopen(fd, "rb") as file:
            # One that is no JSON is as good as none: which of the three folders it is in says what matters.
            return json_or_none(file.read(1_000_000)) or {}

    def _write_note(self, state: str, workspace: Workspace) -> None:
        """Write a note atomically, before the step that it announces."""
        note = {**{name: getattr(workspace, name) for name in _NOTED}, "title": workspace.title[:200]}
        files.write_whole(workspace.key, json.dumps(note).encode(), mode=0o600, dir_fd=self._notes[state])

    def _move_note(self, key: str, old: str, new: str) -> None:
        os.rename(key, key, src_dir_fd=self._notes[old], dst_dir_fd=self._notes[new])

    def _drop_note(self, state: str, key: str) -> None:
        with suppress(FileNotFoundError):
            os.unlink(key, dir_fd=self._notes[state])

    def _folder(self, parent: int, name: str, *, make: bool) -> int:
        """A folder of ours, opened; -1 if there is none and `make` is False."""
        if parent < 0:
            return -1
        if make:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=parent)
        try:
            return self._open.enter_context(files.opened_folder(name, parent))
        except FileNotFoundError:
            return -1

    def _lock(self, holder: str) -> None:
        fd = files.open_lock("lock", self._own)
        self._open.callback(os.close, fd)
        try:
            files.lock(fd, wait=False)
        except BlockingIOError:
            who = os.pread(fd, 1000, 0).decode("utf-8", "replace").strip() or "another process"
            raise WorkspaceError(
                f"the workspaces in {self.path} are held by {who}; end it, or give this one another workspace.root",
                kind="root_locked",
            ) from None
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        os.ftruncate(fd, 0)
        files.write_all(
            fd, f"{holder} (process {os.getpid()} on {socket.gethostname()}, since {since})".encode()
        )


_REASONS = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your quota on this disk is used up; free some space",
    errno.EROFS: "the disk is read-only; give another workspace.root",
    errno.EACCES: "you may not write there; change its permissions, or give another workspace.root",
    errno.EPERM: "you may not write there; change its permissions, or give another workspace.root",
    errno.EFBIG: "a file may not grow any more here; raise the limit",
    errno.ENOTDIR: "it is not a folder, or something above it is not",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
}


def _why(exc: OSError) -> str:
    return _REASONS.get(exc.errno or 0) or exc.strerror or str(exc)


@contextmanager
def _as_unusable(what: str) -> Generator[None]:
    """Raises an error of the system as a WorkspaceError with advice."""
    try:
        yield
    except OSError as exc:
        raise WorkspaceError(f"{what}: {_why(exc)}", kind="root_unusable") from exc


def _delete_all(trash: int, names: list[str]) -> list[str]:
    """Delete these folders of the trash; returns what could not be deleted, and why. Closes the handle."""
    try:
        left = [each for name in names for each in files.remove_tree(name, trash)]
    finally:
        os.close(trash)
    return [f"{name}: {_why(exc)}" for name, exc in left]
