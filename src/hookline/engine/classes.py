"""`dataclass`, `field` and `replace` as the standard library has them, for the modules that every start of hookline loads.

Loading the real ones, and the code they compile for each class, takes longer than all that `hookline answer` does. A
class made here is a dataclass to everybody who asks (`fields`, `replace`, `asdict`, a subclass, a signature): what
those need is made when they first do, and its `__init__` is compiled when it has turned out to be needed often.
Classes with a base that has fields of its own are left to the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")
Class = TypeVar("Class", bound=type)
_NOT_GIVEN: Any = object()
_BY_HAND = 64
"""So many instances are made by a loop. That takes a few times as long as compiled code, and compiling as long as a hundred of them."""


class _Made(NamedTuple):
    """A default that each instance makes for itself."""

    make: Callable[[], Any]


class _Shape(NamedTuple):
    """What a class was declared with."""

    annotations: Mapping[str, Any]
    defaults: Mapping[str, Any]
    frozen: bool
    kw_only: bool


def field(*, default_factory: Callable[[], T]) -> T:
    made: Any = _Made(default_factory)
    return made


@dataclass_transform(field_specifiers=(field,))
def dataclass(
    *, frozen: bool = False, slots: bool = False, kw_only: bool = False
) -> Callable[[Class], Class]:
    def made(declared: Class) -> Class:
        names = tuple(declared.__annotations__)
        defaults = {name: declared.__dict__[name] for name in names if name in declared.__dict__}
        shape = _Shape(declared.__annotations__, defaults, frozen, kw_only)
        inside = dict(declared.__dict__)
        for name in ("__dict__", "__weakref__", *(names if slots else ())):
            inside.pop(name, None)
        first = _First(declared, shape)
        inside |= _methods(first, shape)
        if slots:
            inside["__slots__"] = names
        found: Any = type(declared)(declared.__name__, declared.__bases__, inside)
        first.made = found
        return found

    return made


def replace(instance: T, **changes: Any) -> T:
    """An instance of a class made here, with some fields changed."""
    kind = instance.__class__
    return kind(**{**{name: getattr(instance, name) for name in kind.__annotations__}, **changes})


def _methods(first: _First, shape: _Shape) -> dict[str, Any]:
    names = tuple(shape.annotations)
    values: Any = attrgetter(*names)

    def __init__(self: Any, *positional: Any, **given: Any) -> None:
        first.init(self, positional, given)

    def __eq__(self: Any, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __repr__(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.__class__.__qualname__}({shown})"

    def __hash__(self: Any) -> int:
        return hash(values(self))

    methods: dict[str, Any] = {
        "__init__": __init__,
        "__signature__": _Later(shape, "__signature__"),
        "__eq__": __eq__,
        "__repr__": __repr__,
        "__hash__": __hash__ if shape.frozen else None,
        "__match_args__": () if shape.kw_only else names,
        "__dataclass_fields__": _Later(shape, "__dataclass_fields__"),
        "__dataclass_params__": _Later(shape, "__dataclass_params__"),
    }
    return methods | _frozen(names) if shape.frozen else methods


class _First:
    """Fills the first instances of a class by a loop; then, or where the arguments are not right, compiles."""

    __slots__ = ("_declared", "_left", "_shape", "made")

    def __init__(self, declared: type, shape: _Shape) -> None:
        self._declared = declared
        self._shape = shape
        self._left = _BY_HAND
        self.made: Any = None

    def init(self, instance: Any, positional: tuple[Any, ...], given: dict[str, Any]) -> None:
        shape = self._shape
        known = shape.annotations.keys()
        if positional and not shape.kw_only:
            named = dict(zip(known, positional, strict=False))
            right = len(named) == len(positional) and not named.keys() & given.keys()
            values = {**shape.defaults, **named, **given}
        else:
            right = not positional
            values = {**shape.defaults, **given}
        self._left -= 1
        if not right or values.keys() != known or self._left < 0:
            self.made.__init__ = compiled = _compiled(self._declared, shape)
            compiled(instance, *positional, **given)
            return
        for name, value in values.items():
            object.__setattr__(instance, name, value.make() if value.__class__ is _Made else value)
        if hasattr(self.made, "__post_init__"):
            instance.__post_init__()


def _compiled(declared: type, shape: _Shape) -> Any:
    """`__init__` written out, as the standard library does."""
    known: dict[str, Any] = {"_set": object.__setattr__, "_not_given": _NOT_GIVEN}
    parameters = ["self", *(["*"] if shape.kw_only else [])]
    lines: list[str] = []
    for name in shape.annotations:
        default = shape.defaults.get(name, _NOT_GIVEN)
        value = name
        if isinstance(default, _Made):
            known[f"_make_{name}"] = default.make
            parameters.append(f"{name}=_not_given")
            value = f"_make_{name}() if {name} is _not_given else {name}"
        elif default is not _NOT_GIVEN:
            known[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
        else:
            parameters.append(name)
        lines.append(f"_set(self, {name!r}, {value})" if shape.frozen else f"self.{name} = {value}")
    if "__post_init__" in declared.__dict__:
        lines.append("self.__post_init__()")
    made: dict[str, Any] = {}
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(lines), known, made)
    init = made["__init__"]
    init.__qualname__ = f"{declared.__qualname__}.__init__"
    init.__module__ = declared.__module__
    init.__annotations__ = {**shape.annotations, "return": None}
    return init


class _Later:
    """What the standard library keeps in a dataclass, made by it of a twin when somebody looks."""

    __slots__ = ("_made", "_name", "_shape")

    def __init__(self, shape: _Shape, name: str) -> None:
        self._shape = shape
        self._name = name
        self._made: Any = None

    def __get__(self, _instance: Any, owner: type) -> Any:
        if self._made is None:
            twin = self._twin(owner)
            self._made = _signature(twin) if self._name == "__signature__" else getattr(twin, self._name)
        return self._made

    def _twin(self, owner: type) -> type:
        import dataclasses  # who asks has loaded it

        shape = self._shape
        inside: dict[str, Any] = {"__annotations__": dict(shape.annotations), "__module__": owner.__module__}
        for name, default in shape.defaults.items():
            own = isinstance(default, _Made)
            inside[name] = dataclasses.field(default_factory=default.make) if own else default
        make = dataclasses.dataclass(frozen=shape.frozen, kw_only=shape.kw_only)
        return make(type(owner.__name__, (), inside))


def _signature(twin: type) -> Any:
    import inspect

    return inspect.signature(twin)


def _frozen(names: tuple[str, ...]) -> dict[str, Any]:
    def __setattr__(self: Any, name: str, value: Any) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")

    # To pickle and to copy: what makes an instance anew would be refused too.
    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in names]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(names, state, strict=True):
            object.__setattr__(self, name, value)

    made = (__setattr__, __delattr__, __getstate__, __setstate__)
    return {each.__name__: each for each in made}
