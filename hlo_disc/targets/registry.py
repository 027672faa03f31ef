"""The targets by name. One is loaded when it is asked for: the package is imported without any."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from hlo_disc.errors import ArgumentError

if TYPE_CHECKING:
    from hlo_disc.targets.target import Target


def _cpu() -> Target:
    from hlo_disc.targets import x86

    return x86


def _cuda() -> Target:
    from hlo_disc.targets.cuda import NVIDIA
    from hlo_disc.targets.gpu import Gpu

    return Gpu(NVIDIA, _cpu())


def _rocm() -> Target:
    from hlo_disc.targets.gpu import Gpu
    from hlo_disc.targets.rocm import AMD

    return Gpu(AMD, _cpu())


_TARGETS: dict[str, Callable[[], Target]] = {"cpu": _cpu, "cuda": _cuda, "rocm": _rocm}


def register(name: str, load: Callable[[], Target]) -> None:
    """Let `Options.target` be `name`; `load` is called whenever the target is needed."""
    _TARGETS[name] = load


def names() -> tuple[str, ...]:
    """The names that `Options.target` may be."""
    return tuple(_TARGETS)


def check(name: str, features: str) -> None:
    """Raise ArgumentError for a name that no target has, and for features that it does not know or the machine lacks.

    Every target knows "host": it is not loaded for that.
    """
    if name not in names():
        raise ArgumentError(f"unknown target {name!r}; the targets are {', '.join(names())}")
    if features != "host":
        _TARGETS[name]().generator(features)


def find(name: str) -> Target:
    """The target of that name. Raises ArgumentError for an unknown one."""
    check(name, "host")
    return _TARGETS[name]()
