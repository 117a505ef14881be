"""Stand-ins for parts of the standard library, for the modules that every start of hookline loads.

Loading `dataclasses`, and the code it compiles for each class, takes longer than all that `hookline answer` does. A
class made here works as a dataclass (`fields`, `replace`, `asdict`, a subclass, a signature): the standard library makes
a twin of it when that is first needed, or when so many instances are made that its compiled `__init__` pays off.
Classes with a base that has fields of its own are left to the real ones.
"""

import re
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, cast, dataclass_transform

T = TypeVar("T")
Class = TypeVar("Class", bound=type)
_BY_HAND = 500
"""The number of instances filled by a loop, which takes a few times as long as compiled code."""
_put = object.__setattr__


class _Made(NamedTuple):
    """A default that each instance makes for itself."""

    make: Callable[[], Any]


def field(*, default_factory: Callable[[], T]) -> T:
    made: Any = _Made(default_factory)
    return made


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, slots: bool = False, kw_only: bool = False
) -> Callable[[Class], Class]:
    def made(declared: Class) -> Class:
        inside = dict(declared.__dict__)
        names = tuple(declared.__annotations__)
        defaults = {name: inside[name] for name in names if name in inside}
        for name in ("__dict__", "__weakref__", *(names if slots else ())):
            inside.pop(name, None)
        twin = _twin_of(declared, defaults, frozen=frozen, kw_only=kw_only)
        inside |= _compared(names, frozen=frozen)
        if frozen:
            inside |= {"__setattr__": _refusal("assign to"), "__delattr__": _refusal("delete")}
        inside["__init__"] = _init(names, defaults, twin, kw_only=kw_only)
        inside["__match_args__"] = () if kw_only else names
        for name in ("__signature__", "__dataclass_fields__", "__dataclass_params__"):
            inside[name] = _OfTwin(twin, name)
        if slots:
            inside |= {"__slots__": names, "__setstate__": _set_state}
        found: Any = type(declared)(declared.__name__, declared.__bases__, inside)
        return found

    return made


def replace(instance: T, **changes: Any) -> T:
    """An instance of a class made here, with some fields changed."""
    kind = instance.__class__
    return kind(**{**{name: getattr(instance, name) for name in kind.__annotations__}, **changes})


def _init(
    names: tuple[str, ...], defaults: dict[str, Any], twin: Callable[[], Any], *, kw_only: bool
) -> Callable[..., None]:
    """Fills the first instances by a loop; after them, or if the arguments are wrong, the twin's own takes over."""
    known = set(names)
    left = _BY_HAND

    def __init__(self: Any, *positional: Any, **given: Any) -> None:
        nonlocal left
        left -= 1
        named = dict(zip(names, positional, strict=False))
        values = {**defaults, **named, **given}
        right = not positional or (
            not kw_only and len(named) == len(positional) and named.keys().isdisjoint(given)
        )
        if not right or values.keys() != known or left < 0:
            filled = twin().__init__
            filled(self, *positional, **given)
            owner: Any = next(
                each for each in type(self).__mro__ if each.__dict__.get("__init__") is __init__
            )
            owner.__init__ = filled
            return
        for name, value in values.items():
            _put(self, name, value.make() if value.__class__ is _Made else value)
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return __init__


def _compared(names: tuple[str, ...], *, frozen: bool) -> dict[str, Any]:
    values: Any = attrgetter(*names)

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    def __hash__(self: Any) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__repr__": __repr__, "__hash__": __hash__ if frozen else None}


def _refusal(act: str) -> Callable[..., None]:
    def refuse(_self: Any, name: str, *_value: Any) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot {act} field {name!r}")

    return refuse


def _set_state(self: Any, state: tuple[None, dict[str, Any]]) -> None:
    """Fill an instance that is copied or unpickled, even if it is frozen."""
    for name, value in state[1].items():
        _put(self, name, value)


def _twin_of(declared: type, defaults: dict[str, Any], *, frozen: bool, kw_only: bool) -> Callable[[], Any]:
    """Makes, once, a class of the standard library with the same fields."""

    @cache
    def twin() -> type:
        import dataclasses

        inside: dict[str, Any] = {"__annotations__": declared.__annotations__}
        for name in ("__module__", "__qualname__", "__post_init__"):
            if name in declared.__dict__:
                inside[name] = declared.__dict__[name]
        for name, default in defaults.items():
            own = isinstance(default, _Made)
            inside[name] = dataclasses.field(default_factory=default.make) if own else default
        return dataclasses.dataclass(frozen=frozen, kw_only=kw_only)(type(declared.__name__, (), inside))

    return twin


class _OfTwin:
    """An attribute that the standard library keeps in a dataclass."""

    __slots__ = ("_name", "_twin")

    def __init__(self, twin: Callable[[], Any], name: str) -> None:
        self._twin = twin
        self._name = name

    def __get__(self, _instance: Any, _owner: type) -> Any:
        if self._name != "__signature__":
            return getattr(self._twin(), self._name)
        import inspect

        return inspect.signature(self._twin())


class _LazyPattern:
    def __init__(self, text: str, flags: int) -> None:
        self._pattern = text, flags

    def __getattr__(self, name: str) -> Any:
        # Found as a plain attribute from now on.
        value = self.__dict__[name] = getattr(re.compile(*self._pattern), name)
        return value


def lazy_pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """A pattern that is compiled when first used: most texts need few of them, and starting must be quick."""
    return cast("re.Pattern[str]", _LazyPattern(text, flags))
