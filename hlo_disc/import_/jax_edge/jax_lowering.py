"""Other lowerings of primitives that JAX cannot lower at symbolic sizes, for want of an op or by mistake.

The rules are used only when hlo_disc lowers: nothing is registered with JAX. The names inside JAX that they need are
rows of `jax_names.py`.
"""

from __future__ import annotations

import functools
import threading
from typing import TYPE_CHECKING, Any

from jax import lax, numpy
from jax._src import core
from jax._src.interpreters import mlir
from jax._src.lax import fft, linalg, parallel
from jax._src.lax import lax as lax_internal
from jax._src.lax.control_flow import loops

from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL
from hlo_disc.import_.jax_edge import jax_callbacks
from hlo_disc.import_.jax_edge.size_numbers import scalar
from hlo_disc.mlir import MlirValue, ir, stablehlo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jax import Array
    from jax.stages import Lowered, Traced

    from hlo_disc.import_.jax_edge.size_numbers import Size

# Its name differs from version to version.
_of_devices: Any = getattr(parallel, "_allreduce_lowering", None) or parallel._all_reduce_lowering


def lower(traced: Traced, callbacks: list[jax_callbacks.Callback]) -> Lowered:
    """Lower what was traced to StableHLO. callbacks: receives the functions that the program calls back."""
    _install()
    _here.lowers = True
    try:
        return traced.lower(lowering_platforms=("cpu",), _private_parameters=_parameters(callbacks))
    finally:
        _here.lowers = False


_here = threading.local()


@functools.cache
def _install() -> None:
    """Replace JAX's class of MLIR contexts, once a process."""
    everywhere: Any = mlir.JaxIrContext

    class OfPrograms(everywhere):  # type: ignore[misc]
        """A context that loads, of MLIR's own dialects, `func`. To load all takes as long as a small program."""

        def load_all_available_dialects(self) -> None:
            self.get_dialect_descriptor("func")
            self.allow_unregistered_dialects = True  # reading the program tells who has an op of another dialect

    def context(*args: object, **options: object) -> ir.Context:
        made: ir.Context = (OfPrograms if getattr(_here, "lowers", False) else everywhere)(*args, **options)
        return made

    mlir.JaxIrContext = context


def _parameters(callbacks: list[jax_callbacks.Callback]) -> mlir.LoweringParameters:
    reductions = (
        (parallel.psum_p, lax_internal.add_p, lax_internal.reduce_sum),
        (parallel.pmax_p, lax_internal.max_p, lax_internal.reduce_max),
        (parallel.pmin_p, lax_internal.min_p, lax_internal.reduce_min),
    )
    rules = (
        *((primitive, functools.partial(_all_reduce, *how)) for primitive, *how in reductions),
        (fft.fft_p, _fft),
        (lax_internal.composite_p, _composite),
        (lax_internal.integer_pow_p, _integer_pow),
        (linalg.cholesky_update_p, mlir.lower_fun(_cholesky_update, multiple_results=False)),
        (linalg.hessenberg_p, _hessenberg),
        (linalg.qr_p, mlir.lower_fun(_qr)),
        (lax_internal.rng_uniform_p, _rng_uniform),
        (loops.scan_p, _scan),
        *jax_callbacks.rules(callbacks),
    )
    return mlir.LoweringParameters(override_lowering_rules=rules)


def _fft(
    ctx: mlir.LoweringRuleContext, x: MlirValue, *, fft_type: fft.FftType, fft_lengths: Sequence[Size]
) -> Sequence[MlirValue]:
    """Lower to `hlo_disc.fft(x, lengths) {transform}` if a length is symbolic, since `stablehlo.fft` writes lengths as
    numbers."""
    if all(isinstance(n, int) for n in fft_lengths):
        return fft._fft_lowering(ctx, x, fft_type=fft_type, fft_lengths=fft_lengths)
    lengths = mlir.eval_dynamic_shape_as_tensor(ctx, fft_lengths)
    call = mlir.custom_call(
        FFT_CALL,
        result_types=[mlir.aval_to_ir_type(ctx.module_context, ctx.avals_out[0])],
        operands=[x, lengths],
        extra_attributes={"transform": ir.StringAttr.get(fft_type.name)},
    )
    return call.results


def _all_reduce(
    of_two: core.Primitive,
    of_axes: Callable[..., Array],
    ctx: mlir.LoweringRuleContext,
    x: MlirValue,
    *,
    axes: Sequence[int | str],
    axis_index_groups: Sequence[Sequence[int]] | None,
) -> Sequence[MlirValue]:
    """Lower over axes that `vmap` has numbered, for which JAX's rule needs all sizes as numbers."""
    if all(isinstance(axis, int) for axis in axes):
        return mlir.lower_fun(of_axes, multiple_results=False)(ctx, x, axes=tuple(axes))
    return _of_devices(of_two, of_axes, ctx, x, axes=axes, axis_index_groups=axis_index_groups)


def _composite(
    ctx: mlir.LoweringRuleContext,
    *args: MlirValue,
    name: str,
    attributes: Sequence[tuple[str, object]],
    version: int,
    **decomposition: core.ClosedJaxpr,
) -> Sequence[MlirValue]:
    """Inline the composite's decomposition: JAX gives it the dimension variables, which the op does not pass."""
    if not ctx.module_context.shape_poly_state.uses_dim_vars:
        named = {"name": name, "attributes": attributes, "version": version}
        return lax_internal._composite_lowering(ctx, *args, **named, **decomposition)
    (jaxpr,) = decomposition.values()  # its name differs from version to version
    return mlir.lower_fun(core.jaxpr_as_fun(jaxpr))(ctx, *args)


def _integer_pow(ctx: mlir.LoweringRuleContext, x: MlirValue, *, y: Size) -> Sequence[MlirValue]:
    """Lower by squaring, a bit of the exponent at a time, in JAX's order; JAX needs the exponent as a number."""
    if isinstance(y, int):
        return lax_internal._integer_pow_lowering(ctx, x, y=y)
    size = -y if y < 0 else y

    def rest(state: tuple[Array, ...]) -> Array:
        low, high, *_ = state
        return (low | high) != 0

    def turned(state: tuple[Array, ...]) -> tuple[Array, ...]:
        low, high, x, power, begun = state
        is_set = (low & 1) != 0
        power = numpy.where(is_set, numpy.where(begun, power * x, x), power)
        return (low >> 1) | (high << 31), high >> 1, x * x, power, begun | is_set

    def powered(x: Array) -> Array:
        words = scalar(size % 2**32, "uint32", fits=""), scalar(size // 2**32, "uint32", fits="")
        one = lax.full_like(x, 1)
        power = lax.while_loop(rest, turned, (*words, x, one, False))[3]
        return one / power if y < 0 else power

    return mlir.lower_fun(powered, multiple_results=False)(ctx, x)


def _cholesky_update(factor: Array, vector: Array) -> Array:
    """Compute the factor of R^H R + z z^H, one row per iteration of a loop, which JAX unrolls."""
    if isinstance(vector.shape[0], int) and not vector.shape[0]:
        return factor

    def turned(k: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        factor, vector = state
        row, y = (lax.dynamic_index_in_dim(array, k, keepdims=False) for array in (factor, vector))
        x = lax.dynamic_index_in_dim(row, k, keepdims=False)
        larger = numpy.where(abs(x) > abs(y), abs(x), abs(y))
        scale = numpy.where(y == 0, 1, larger)
        x, y = x / scale, y / scale
        length = 1 / lax.sqrt(x * x + y * y)
        cosine, sine = numpy.where(y == 0, 1, x * length), numpy.where(y == 0, 0, -y * length)
        turned_row = cosine * row - sine * vector
        return lax.dynamic_update_index_in_dim(factor, turned_row, k, 0), cosine * vector + sine * row

    return lax.fori_loop(0, vector.shape[0], turned, (factor, vector))[0]


def _hessenberg(ctx: mlir.LoweringRuleContext, a: MlirValue) -> Sequence[MlirValue]:
    """Refuse a symbolic size as JAX does; JAX's own message fails."""
    (aval,) = ctx.avals_in
    if not isinstance(aval.shape[-1], int):
        raise ValueError(
            f"jax.lax.linalg.hessenberg takes no symbolic size, for LAPACK's gehrd does not: {aval.str_short()}"
        )
    return linalg._hessenberg_cpu_lowering(ctx, a)


def _qr(a: Array, *, pivoting: bool, full_matrices: bool, use_magma: bool | None) -> tuple[Array, ...]:
    """Compute a QR decomposition by the same ops at all sizes.

    JAX asks whether there are more rows than columns, and whether there are any.
    """
    *batch, m, n = a.shape
    k = core.min_dim(m, n)
    rows = m if full_matrices else k
    if pivoting:
        r, columns, taus = linalg.geqp3(a, lax.full((*batch, n), 0, "int32"), use_magma=use_magma)
    else:
        r, taus = linalg.geqrf(a)
    reflectors = lax.slice_in_dim(r, 0, k, axis=-1)
    wide = lax.pad(reflectors, numpy.zeros((), a.dtype), [(0, 0, 0)] * (r.ndim - 1) + [(0, rows - k, 0)])
    q = linalg.householder_product(wide, taus)
    r = linalg._triu(lax.slice_in_dim(r, 0, rows, axis=-2))
    return (q, r, columns - 1) if pivoting else (q, r)


def _rng_uniform(
    ctx: mlir.LoweringRuleContext, low: MlirValue, high: MlirValue, *, shape: Sequence[Size]
) -> Sequence[MlirValue]:
    """Lower with sizes as operands: JAX needs them as numbers, which the op does not."""
    (aval,) = ctx.avals_out
    sizes = mlir.eval_dynamic_shape_as_tensor(ctx, shape)
    uniform = stablehlo.RngDistributionAttr.get("UNIFORM")
    result = mlir.aval_to_ir_type(ctx.module_context, aval)
    return stablehlo.RngOp(low, high, sizes, uniform, results=[result]).results


def _scan(
    ctx: mlir.LoweringRuleContext, *args: MlirValue, length: Size, unroll: int, **params: object
) -> Sequence[MlirValue]:
    """Lower with one step in each iteration if the length is symbolic. JAX unrolls for speed, and asks for the
    remainder."""
    steps = unroll if isinstance(length, int) else 1
    return mlir.lower_fun(loops._scan_impl)(ctx, *args, length=length, unroll=steps, **params)
