"""`frozen`, the decorator of a frozen dataclass that is created in a quarter of the time.

A first call imports a hundred of them. `dataclasses` writes and compiles six methods for each class; here that is only
`__init__`, and the others are the same for all. `fields`, `replace` and `asdict` take them as any dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import TYPE_CHECKING, TypeVar, cast, dataclass_transform, overload

if TYPE_CHECKING:
    from inspect import Signature

    from _typeshed import DataclassInstance

C = TypeVar("C", bound=type)


@overload
def frozen(cls: C) -> C: ...
@overload
def frozen(*, eq: bool = ..., kw_only: bool = ...) -> Callable[[C], C]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: C | None = None, *, eq: bool = True, kw_only: bool = False) -> C | Callable[[C], C]:
    """Make a class a frozen dataclass.

    Args:
        eq: compare and hash by the fields; else by identity.
        kw_only: take fields by keyword alone.
    """

    def made(cls: C) -> C:
        dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        methods: dict[str, object] = {
            "__init__": _first_init(cls),
            "__repr__": _repr,
            **(_comparing(cls) if eq else {}),
        }
        if "__init__" not in vars(cls):
            methods["__signature__"] = _Signature(cls)
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(cls, name, method)
        for name in ("__setattr__", "__delattr__"):
            setattr(cls, name, _refuse)
        return cls

    return made(cls) if cls else made


def _comparing(cls: type) -> dict[str, Callable[..., object]]:
    """Return the methods that compare all fields, and hash them."""
    names = [each.name for each in fields(cls)]
    # attrgetter returns a tuple only for two names or more.
    values: Callable[[object], object] = (
        attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)
    )

    def __eq__(self: object, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:
        return hash(values(self))

    return {"__eq__": __eq__, "__hash__": __hash__}


def _first_init(cls: type) -> Callable[..., None]:
    """Return an `__init__` that compiles the real one when the first object is created: many processes create none."""

    def __init__(self: object, *args: object, **kwargs: object) -> None:
        compiled = _init(cls)
        type.__setattr__(cls, "__init__", compiled)
        compiled(self, *args, **kwargs)

    return __init__


class _Signature:
    """The signature of a class by its fields: until the first object, that of its `__init__` says nothing."""

    def __init__(self, of: type) -> None:
        self._of = of

    def __get__(self, instance: object, cls: type) -> Signature:
        if cls is not self._of and "__init__" in vars(cls):
            raise AttributeError("__signature__")
        from inspect import Parameter, Signature

        def parameter(of: Field[object]) -> Parameter:
            kind = Parameter.KEYWORD_ONLY if of.kw_only else Parameter.POSITIONAL_OR_KEYWORD
            default = of.default if of.default is not MISSING else of.default_factory
            default = Parameter.empty if default is MISSING else default
            return Parameter(of.name, kind, default=default, annotation=of.type)

        return Signature([parameter(each) for each in _parameters(cls)], return_annotation=None)


def _parameters(cls: type) -> list[Field[object]]:
    """Return the fields in the order in which `__init__` takes them."""
    return sorted(fields(cls), key=lambda each: bool(each.kw_only))


def _init(cls: type) -> Callable[..., None]:
    """Return `__init__`, which takes the fields in their order, the defaults of those that have one, and sets them."""
    known: dict[str, object] = {"_set": object.__setattr__, "_missing": MISSING}
    takes, body = ["self"], []
    for each in _parameters(cls):
        if each.kw_only and "*" not in takes:
            takes.append("*")
        takes.append(f"{each.name}{_default(each, known)}")
        value = each.name
        if each.default_factory is not MISSING:
            value = f"_of_{value}() if {value} is _missing else {value}"
        body.append(f"_set(self, {each.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    exec(f"def __init__({', '.join(takes)}):\n " + "\n ".join(body or ["pass"]), known)
    return cast("Callable[..., None]", known["__init__"])


def _default(of: Field[object], known: dict[str, object]) -> str:
    """The text of a parameter's default, whose names it makes known."""
    if of.default_factory is not MISSING:
        known[f"_of_{of.name}"] = of.default_factory
        return "=_missing"
    if of.default is MISSING:
        return ""
    known[f"_for_{of.name}"] = of.default
    return f"=_for_{of.name}"


def _repr(self: DataclassInstance) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"


def _refuse(self: object, name: str, *value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")
