"""Lists that are too long to copy for every hook: the messages of an agent, and its steps.

`Shared` is such a list. Its items are never changed once they are in it, so a journal stores each of them once, and a
hook is given `Copies`: an item is copied when the hook reads it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, SupportsIndex, cast


class Shared(list[Any]):
    """A list whose items nobody changes."""

    __slots__ = ()


class Copies(list[Any]):
    """A hook's own copy of a list, which it may change as any other list."""

    __slots__ = ("_copy", "_own", "_shared")

    def __init__(self, source: Iterable[Any], copy: Callable[[Any], Any]) -> None:
        super().__init__(source)
        self._copy = copy
        # Items in the first places are shared unless they are its own. What moves items copies all of them before.
        self._shared, self._own = len(self), set[int]()

    def settled(self, copy: Callable[[Any], Any]) -> Shared:
        """The list as the hook left it; only what it has read or put in is copied."""
        settled = Shared(super().__iter__())
        for at in (*self._own, *range(self._shared, len(self))):
            settled[at] = copy(settled[at])
        return settled

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        item: Any = super().__getitem__(index)
        at = index.__index__()
        at = at if at >= 0 else at + len(self)
        if at < self._shared and at not in self._own:
            item = self._copy(item)
            super().__setitem__(at, item)
            self._own.add(at)
        return item

    def __iter__(self) -> Iterator[Any]:
        self._copy_all()
        return super().__iter__()

    def __reversed__(self) -> Iterator[Any]:
        # The newest is looked for most, and first.
        return (self[at] for at in range(len(self) - 1, -1, -1))

    def __add__(self, other: Any) -> list[Any]:
        return list(self) + list(other)

    def __radd__(self, other: Any) -> list[Any]:
        return list(other) + list(self)

    def __mul__(self, times: SupportsIndex) -> list[Any]:
        return list(self) * times

    __rmul__ = __mul__

    def __reduce_ex__(self, _protocol: SupportsIndex) -> tuple[Any, ...]:
        return list, (list(self),)

    def copy(self) -> list[Any]:
        return list(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._copy_all()
        else:
            self[index]  # an item of its own from now on
        super().__setitem__(cast("Any", index), value)

    def __delitem__(self, index: Any) -> None:
        self._copy_all()
        super().__delitem__(index)

    def __imul__(self, times: SupportsIndex) -> Any:
        self._copy_all()
        return super().__imul__(times)

    def insert(self, index: SupportsIndex, value: Any) -> None:
        self._copy_all()
        super().insert(index, value)

    def pop(self, index: SupportsIndex = -1) -> Any:
        item = self[index]
        del self[index]
        return item

    def remove(self, value: Any) -> None:
        self._copy_all()
        super().remove(value)

    def reverse(self) -> None:
        self._copy_all()
        super().reverse()

    def sort(self, **order: Any) -> None:
        self._copy_all()
        super().sort(**order)

    def clear(self) -> None:
        self._copy_all()
        super().clear()

    def _copy_all(self) -> None:
        for at in range(self._shared):
            if at not in self._own:
                super().__setitem__(at, self._copy(super().__getitem__(at)))
        self._shared = 0
        self._own.clear()
