"""The targets by name. A target is loaded when it is needed: the package is imported without any.

A name is a kind of machine, "cuda", or one with a level of features, "cuda:sm_90". AUTO stands for no name. Then a
call's arguments may decide; otherwise it is the machine of this process.
"""

from __future__ import annotations

import platform
from collections.abc import Callable
from typing import TYPE_CHECKING

from hlo_disc.errors import ArgumentError

if TYPE_CHECKING:
    from hlo_disc.targets.target import Target


def _cpu() -> Target:
    """Return the target of this machine's CPU."""
    from hlo_disc.targets.cpu import x86

    return _aarch64() if platform.machine() == "aarch64" else x86


def _aarch64() -> Target:
    from hlo_disc.targets.cpu import aarch64

    return aarch64


def _cuda() -> Target:
    from hlo_disc.targets.gpu.cuda import NVIDIA
    from hlo_disc.targets.gpu.vendor import Gpu

    return Gpu(NVIDIA, _cpu())


def _rocm() -> Target:
    from hlo_disc.targets.gpu.rocm import AMD
    from hlo_disc.targets.gpu.vendor import Gpu

    return Gpu(AMD, _cpu())


AUTO = "auto"
_TARGETS: dict[str, Callable[[], Target]] = {"cpu": _cpu, "aarch64": _aarch64, "cuda": _cuda, "rocm": _rocm}


def register(name: str, load: Callable[[], Target]) -> None:
    """Let `Options.target` be `name`; `load` is called whenever the target is needed."""
    _TARGETS[name] = load


def kinds() -> tuple[str, ...]:
    """Return the kinds of machines that have targets."""
    return tuple(_TARGETS)


def names() -> tuple[str, ...]:
    """Return all names that `Options.target` may be."""
    levels = {kind: load().levels for kind, load in _TARGETS.items()}
    return (AUTO, *(name for kind, own in levels.items() for name in (kind, *(f"{kind}:{level}" for level in own))))


def split(name: str) -> tuple[str, str]:
    """Split a name into the kind of machine and the level of features, "host" if it names none."""
    kind, _, level = ("cpu" if name == AUTO else name).partition(":")
    return kind, level or "host"


def check(name: str) -> None:
    """Raise ArgumentError for a name that no target has, and for a level of features that this machine lacks.

    What is named without a level is not loaded.
    """
    kind, colon, level = name.partition(":")
    if name == AUTO or name in _TARGETS:
        return
    if not colon or kind not in _TARGETS or level not in find(kind).levels:
        raise ArgumentError(f"unknown target {name!r}; the targets are {', '.join(names())}")
    find(kind).generator(level)


def find(kind: str) -> Target:
    """Find the target of a kind. Raises ArgumentError for an unknown one."""
    if kind not in _TARGETS:
        raise ArgumentError(f"unknown target {kind!r}; the targets are {', '.join(kinds())}")
    return _TARGETS[kind]()
