"""`hlo_disc.bench`: times a program next to `jax.jit`, and next to the least time that the machine needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hlo_disc.benchmark.result import Benchmark, Row, Timing
from hlo_disc.options import Options

__all__ = ["Benchmark", "Row", "Timing", "bench"]


def bench(
    source: object,
    *args: object,
    sizes: Mapping[str, int | Sequence[int]] | None = None,
    dims: Mapping[str, object] | Sequence[object] | None = None,
    constraints: str | Sequence[str] = (),
    seconds: float = 5.0,
    seed: int = 0,
    report: Callable[[str], object] | None = None,
    trusted: bool = False,
    signature: str = "",
    options: Options | None = None,
    **overrides: object,
) -> Benchmark:
    """Time a program against `jax.jit`, which knows every shape, and against the least time that the machine needs.

    hlo_disc compiles once for all sizes, `jax.jit` once for each. At each combination of sizes both are called, and
    their results compared. Then they alternate in this process, with the same arrays every time, so that weights are
    packed once. The least time is that of the products of matrices and convolutions, and of the bytes of arguments,
    constants and results, at the rates that this machine is measured to have; it says how much could be gained at most.

    Args:
        source: what `hlo_disc.compile` takes, or a function of `hlo_disc.jit`; an `Executable`, or the file of one, is
            measured without `jax.jit`.
        args: for a function, its arguments: arrays, or specs as `hlo_disc.compile` takes them, `"f32[b, s]"`, in whose
            place there are random arrays.
        sizes: the size of each dim, or several: `{"b": 4, "s": (17, 128)}`.
        dims: as for `hlo_disc.compile`; of a function as for `hlo_disc.jit`.
        constraints: as for `hlo_disc.compile`.
        seconds: how long the two take turns at each combination of sizes.
        seed: of random arrays; integers are from 0 to 99.
        report: told what begins, in words.
        trusted: as for `hlo_disc.compile`.
        signature: as for `hlo_disc.compile`.
        options: how to compile and run, by default what the environment says; `jax.jit` uses all cores.
        overrides: fields of `Options` by name, over `options`.

    Returns:
        The figures; printed, they are a table.

    Raises:
        HloDiscError: what `hlo_disc.compile` and calls raise; a ShapeError for a dim without a size, and an
            UnsupportedOpError for a function that `hlo_disc.jit` would leave to `jax.jit`.
        DeviceError: a machine whose limits cannot be measured.
        OSError: a file that cannot be read.

    Example:
        >>> found = hlo_disc.bench(lambda x, y: x @ y, "f32[b, 4]", "f32[4, 2]", sizes={"b": (1, 3)}, seconds=0.1)
        >>> [(row.dims, row.operations, row.wrong) for row in found.rows]
        [({'b': 1}, 16, ''), ({'b': 3}, 48, '')]
    """
    from hlo_disc.benchmark.run import run

    said = report or (lambda _: None)
    given = dims, constraints, seconds, seed, said, trusted, signature
    return run(source, args, sizes or {}, *given, options, overrides)
