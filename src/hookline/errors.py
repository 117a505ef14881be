"""Everything hookline raises, as one tree.

HooklineError
 +-- UsageError          called or declared wrongly; also a TypeError, so that Python's own habits hold
 |    +-- MissingKey     a model's provider has no key
 |    +-- MissingExtra   a package of an extra is not installed
 +-- FileError           a file of the user's is wrong: names the file, line and key
 +-- RunEnded            a run did not get to its answer
 |    +-- HookFailed     a hook said fail, or broke where that means fail; never worth a retry
 |    +-- Refused        a hook or a person said no to the whole input
 |    +-- Skipped        a hook said that there is nothing to do
 |    +-- RunTimedOut    the run's own limit passed
 |    +-- AgentFailed    the agent itself could not go on
 |         +-- ModelFailed   the model provider did not answer usefully
 +-- HookBroke           a hook did not do its job: raised, hung, answered rubbish; on_error decides what follows
 +-- JournalError        the record could not be kept or read
 +-- ImageError          a hook image could not be fetched, or is not safe to unpack
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from os import PathLike


class HooklineError(Exception):
    """The root of the tree. `code` is a short name of the kind of mistake, for `hookline check --json`."""

    code = "invalid"


class UsageError(HooklineError, TypeError):
    """Something of ours was called or declared in a way that cannot work."""


class MissingKey(UsageError):
    """A model's provider needs a key, and its variable is not set."""

    code = "missing-api-key"


class MissingExtra(UsageError):
    """A package of an extra is not installed."""

    code = "missing-package"


class FileError(HooklineError):
    """A user's file is wrong; the message starts with where."""

    def __init__(
        self,
        message: str,
        *,
        file: str | PathLike[str],
        line: int | None = None,
        key: str | None = None,
        code: str = "",
    ) -> None:
        place = f"{file}:{line}" if line is not None else f"{file}"
        super().__init__(f"{place}: {f'{key}: ' if key else ''}{message}")
        self.file = str(file)
        self.line = line
        self.key = key
        self.message = message
        self.code = code or self.code

    @classmethod
    def at(cls, source: str, message: str, *, key: str | None = None, code: str = "") -> FileError:
        """The same for a place that is written as a text: a file, or `file:line`."""
        file, _, line = source.rpartition(":")
        if not line.isdigit():
            return FileError(message, file=source, key=key, code=code)
        return FileError(message, file=file, line=int(line), key=key, code=code)


class RunEnded(HooklineError):
    """A run ended without its answer; `run_id` finds it in the journal."""

    run_id: str | None = None


class HookFailed(RunEnded):
    """A hook stopped the run. `reason` is the hook's own text."""

    def __init__(self, reason: str, *, point: str, hook: str, tool: str | None = None) -> None:
        where = f"{point} ({tool})" if tool else point
        super().__init__(f"{reason} [hook {hook} at {where}]")
        self.reason = reason
        self.point = point
        self.hook = hook
        self.tool = tool


class Refused(RunEnded):
    """The input was refused before any work was done, or as often as that is allowed."""

    def __init__(self, reason: str, *, point: str, hook: str) -> None:
        super().__init__(f"{reason} [hook {hook} at {point}]")
        self.reason = reason
        self.point = point
        self.hook = hook


class Skipped(RunEnded):
    """There was nothing to do, says a hook; not a failure."""

    def __init__(self, reason: str, *, point: str, hook: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.point = point
        self.hook = hook


class RunTimedOut(RunEnded):
    """The run's own limit passed."""


class AgentFailed(RunEnded):
    """The agent could not go on."""


class ModelFailed(AgentFailed):
    """The provider refused, was not reached, or its answer broke off."""


class HookBroke(HooklineError):
    """A hook that did not do its job, which is not a hook that said no.

    `kind` is one word for the record: raised, timed_out, bad_answer, not_started, wrong_point, exit.
    """

    def __init__(self, message: str, *, kind: str = "raised") -> None:
        super().__init__(message)
        self.kind = kind


class JournalError(HooklineError):
    """The journal cannot be opened, read or written; the message says which file and why."""


class ImageError(HooklineError):
    """A hook image cannot be fetched or unpacked; nothing of it is used."""


def meant(word: str, known: Iterable[str]) -> str:
    """`; did you mean ...?` for a near miss in letters of any size, else the list of what is known."""
    words = {each.lower(): each for each in known}
    low = word.lower()
    begun = (each for each in words if len(word) > 2 and each.startswith(low))
    near = nearest(low, words, 0.7) or next(begun, None)
    return f"; did you mean {words[near]}?" if near else f"; known: {', '.join(words.values())}"


def nearest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The known word that is most like this one; None if none is, where `cutoff` is 1 for the very same word."""
    import difflib  # only for a message; `hookline answer` must start quickly

    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


def refuse_unknown(called: str, unknown: Iterable[str], function: Callable[..., object]) -> None:
    """Raises for a keyword that a function does not have: a misspelt one may be a guard that is off."""
    for word in unknown:
        import inspect  # slow to load

        known = [
            each.name
            for each in inspect.signature(function).parameters.values()
            if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD) and each.name != "self"
        ]
        raise UsageError(f"{called}: unknown keyword {word!r}{meant(word, known)}")


@contextmanager
def needs(what: str, extra: str) -> Generator[None]:
    """Imports of an extra's packages go inside: one that is missing is told with the command that installs it."""
    try:
        yield
    except ImportError as exc:
        raise MissingExtra(f"{what} needs more packages ({exc}): pip install 'hookline[{extra}]'") from exc
