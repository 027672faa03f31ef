"""Compilation options: one frozen record, and the only reader of environment variables."""

from __future__ import annotations

import os
from dataclasses import fields
from numbers import Integral
from typing import TYPE_CHECKING, Any

from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from pathlib import Path

MOST_THREADS = (1 << 31) - 1
_RANGES = {"threads": MOST_THREADS, "packed_bytes": (1 << 63) - 1, "cache_bytes": (1 << 63) - 1}


@frozen
class Options:
    """The options of compiling and running. An environment variable `HLO_DISC_<FIELD>` sets each field, too.

    Args:
        target: the machine to compile for: "cpu"; "aarch64", Arm's 64-bit CPUs, for which `hlo-disc compile` writes
            programs on any machine; "cuda" for NVIDIA's GPUs (tested on an H200) or "rocm" for AMD's (tested on an
            emulator only), both without library functions. With a level of features it is for machines that have
            them: "cpu:avx2", "cpu:avx512", "cpu:avx512bf16" (Zen 4 and 5), "cpu:amx", "cuda:sm_80", "cuda:sm_90",
            "rocm:gfx90a", "rocm:gfx942". Without one, "cpu" is for the highest level that this machine has, and GPUs
            are all that there are levels for. "auto" is "cpu" for `hlo_disc.compile`; functions of `hlo_disc.jit` are
            compiled for the platform on which JAX has their arguments, or runs them.
        threads: threads that a call from Python may use, its own among them; 0 for one a core, or as many as PyTorch
            uses where its tensors are arguments. Inside `jax.jit` they are XLA's. To compile takes no more, either.
        dump: directory that receives what each stage makes, "" for none.
        packed_bytes: bound on the bytes of packed weights kept for array arguments; 0 keeps none.
        verify: run the verifiers between stages; "0" or "1" in the environment.
        cache: directory in which compiled programs are kept for later processes, "" for none, "auto" for the
            environment's, which is `$XDG_CACHE_HOME/hlo_disc`, by default `~/.cache/hlo_disc`, where it says none.
        cache_bytes: bound on the bytes there: what was not used for longest is deleted.
        excess_precision: let kernels compute on f16 and bf16 in f32, and round where a value is stored, converted or
            seen as bits, not after every op. Faster, mostly closer to exact arithmetic, and not what was written: what
            ops follow each other in a kernel decides what is rounded.
        defer_kernels: let a call of a function of `hlo_disc.jit` that has to compile do so with the kernels that it may
            take alone. The others are compiled by a thread behind it, or by the call that needs them first.
        fallback: let `hlo_disc.jit` run through `jax.jit` what it cannot compile; an UnsupportedOpError otherwise.

    Raises:
        ValueError: a number that is out of range.
    """

    target: str = "auto"
    threads: int = 0
    dump: str = ""
    packed_bytes: int = 4 << 30
    verify: bool = True
    cache: str = "auto"
    cache_bytes: int = 4 << 30
    excess_precision: bool = False
    defer_kernels: bool = True
    fallback: bool = True

    def __post_init__(self) -> None:
        for name, most in _RANGES.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or not 0 <= int(value) <= most:
                raise ValueError(f"{name}={value!r} must be an integer from 0 to {most}")

    @property
    def cache_directory(self) -> Path | None:
        """The directory of compiled programs; None if they are not kept. With `dump`, everything is compiled."""
        from pathlib import Path

        chosen = os.environ.get("HLO_DISC_CACHE", "auto") if self.cache == "auto" else self.cache
        if not chosen or self.dump:
            return None
        if chosen != "auto":
            return Path(chosen)
        asked = os.environ.get("XDG_CACHE_HOME", "")  # its specification: what is not absolute is to be ignored
        home = asked if os.path.isabs(asked) else os.path.expanduser("~/.cache")
        return Path(home) / "hlo_disc" if os.path.isabs(home) else None  # of a user without a home

    @staticmethod
    def from_env() -> Options:
        """The defaults, with `HLO_DISC_*` variables applied.

        Raises:
            ValueError: a value that cannot be; the message names the variable or the field.
        """
        values: dict[str, Any] = {}
        for field in fields(Options):
            text = os.environ.get(f"HLO_DISC_{field.name.upper()}")
            if text is not None:
                values[field.name] = _parse(field.name, text, type(field.default))
        try:
            return Options(**values)
        except ValueError as error:
            raise ValueError(f"{error} (from the environment, HLO_DISC_*)") from None


def toolchain_settings() -> dict[str, str]:
    """Return the environment's settings of the C++ compiler: CXX, CXXFLAGS and LDFLAGS, as for make and CMake."""
    return {name: os.environ[name] for name in ("CXX", "CXXFLAGS", "LDFLAGS") if name in os.environ}


def _parse(name: str, text: str, kind: type) -> object:
    try:
        return bool(int(text)) if kind is bool else kind(text)
    except ValueError:
        raise ValueError(f"HLO_DISC_{name.upper()}={text!r} is not a valid {kind.__name__}") from None
