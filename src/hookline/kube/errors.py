"""What can go wrong with a cluster, as one tree.

ClusterError
 +-- Refused        the server understood and said no; its own message names the field or the right
 |    +-- NotThere      what was to be changed, or its kind or namespace, does not exist
 |    +-- AlreadyThere  an object of that name exists
 |    +-- Conflict      it was changed by another since it was read, or is another one
 |    +-- Gone          the version to watch from, or the rest of a long list, is too old: list again
 +-- Unreachable    no answer, or none that says anything about the request; later it may work
"""

from __future__ import annotations

from hookline.errors import HooklineError

__all__ = ["AlreadyThere", "ClusterError", "Conflict", "Gone", "NotThere", "Refused", "Unreachable"]


class ClusterError(HooklineError):
    """A call to the cluster did not do what it was for."""


class Refused(ClusterError):
    """`status` is the HTTP status, `message` the server's own sentence."""

    def __init__(self, status: int, message: str, *, call: str = "") -> None:
        super().__init__(f"{call}: {message}" if call else message)
        self.status = status
        self.message = message


class NotThere(Refused):
    """404, where that is not an answer in itself."""


class AlreadyThere(Refused):
    """409 of a create."""


class Conflict(Refused):
    """409 of a change: read the object again and decide anew."""


class Gone(Refused):
    """410: what was known is too old to go on from."""


class Unreachable(ClusterError):
    """No connection, no answer in time, an answer that makes no sense, or a server in trouble (5xx, 429)."""
