"""The rules for JAX's transformations of a compiled function, which is a primitive like `jax.jit`.

The rules work on functions of arrays. JAX derives others from them (`derived.py`), which are compiled at all sizes like
the function itself:

    call(arrays)                          -> results
    forward(arrays)                       -> results, and the values that the backward program needs, the *residuals*
    tangent(arrays, residuals, tangents)  -> tangents of the results; linear in the tangents
    backward(arrays, residuals, cotangents) -> cotangents of the arrays: `tangent`, transposed

Residuals are a cache: each rule but the evaluation of `backward` starts from the arrays again. So a batched `forward`
may return anything for them, because the `backward` that belongs to it is batched as well.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, TypeVar, Unpack

import jax
import numpy as np
from jax._src.core import Primitive, jaxpr_as_fun
from jax.core import ShapedArray
from jax.interpreters import ad, batching, mlir

from hlo_disc.compiled.program import dtype_named
from hlo_disc.errors import ShapeError, UnsupportedOpError
from hlo_disc.executable import Executable
from hlo_disc.jitted.fallback import SPREAD
from hlo_disc.jitted.flat import FlatFunction, placed
from hlo_disc.jitted.programs import Compiled
from hlo_disc.jitted.transforms import derived
from hlo_disc.jitted.transforms.derived import Axes, Mask, has_derivative
from hlo_disc.ral.contexts.jax import call_in_jit, platform_of, weakly_typed
from hlo_disc.tracing.values import Leaf, Result, as_array, describe, given, taken

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr
    from jax.typing import ArrayLike

    from hlo_disc.jitted.transforms.derived import Arrays, Batched, Function, Moved, Params, Results, Tangent, Tangents
    from hlo_disc.mlir import MlirValue


TWICE = "it has a custom_vjp and is differentiated twice: JAX differentiates the forward rule then, not the function"

UNLIKE = (
    "it is differentiated where some of its arrays are the same on all devices, and others differ: "
    "let it do that itself, by jax.grad inside of it"
)

T = TypeVar("T")

call_p = Primitive("hlo_disc_call")
forward_p = Primitive("hlo_disc_forward")
tangent_p = Primitive("hlo_disc_tangent")
backward_p = Primitive("hlo_disc_backward")


def bind(flat: FlatFunction, leaves: Arrays) -> Results:
    """Return the results of a function without collectives, for arrays of any types."""
    jaxpr, _ = flat.jaxpr(tuple(map(describe, leaves)), tuple(map(varying, leaves)))
    return call_p.bind(*leaves, flat=flat, jaxpr=jaxpr)


def varying(x: ArrayLike | ShapedArray) -> frozenset[str]:
    """Return the mesh axes over which an array differs, in `shard_map`."""
    kind = getattr(jax.typeof(x), "mat", None)
    if kind is None:
        return frozenset()
    if kind.reduced or kind.unreduced:
        raise UnsupportedOpError(SPREAD)
    return kind.varying


def _alike(leaves: Arrays) -> list[ArrayLike]:
    """Make all arrays vary over the same mesh axes: differentiation needs arrays of one type."""
    axes = frozenset[str]().union(*map(varying, leaves))
    missing = [tuple(sorted(axes - varying(x))) for x in leaves]
    return [jax.lax.pcast(x, m, to="varying") if m else x for x, m in zip(leaves, missing, strict=True)]


def _is_alike(avals: Sequence[ShapedArray]) -> bool:
    return len({x.mat.varying for x in avals}) <= 1


class Pair:
    """The two programs of a function and its derivatives, for arrays of some types and sizes.

    avals: those of the results, then of the residuals.
    """

    def __init__(self, flat: FlatFunction, jaxpr: ClosedJaxpr, mask: Mask):
        self.flat, self.jaxpr, self.mask = flat, jaxpr, mask
        self.infos = _infos(jaxpr)
        program = _program(derived.differentiated(flat, mask), self.infos)
        assert program.backward is not None
        self.forward, self.backward = program.executable, program.backward
        outputs = program.outputs(tuple(info.shape for info in self.infos))
        where = placed(frozenset[str]().union(*(x.mat.varying for x in jaxpr.in_avals)))
        kept = outputs[len(jaxpr.out_avals) :]
        residuals = [ShapedArray(tuple(shape), dtype_named(name), **where) for name, shape in kept]
        self.avals = [*jaxpr.out_avals, *residuals]
        self._others: dict[str, Pair] = {}

    def on(self, platform: str) -> Pair:
        """Return the pair for this platform of JAX. Raises as `FlatFunction.on`, and UnsupportedOpError."""
        flat = self.flat.on(platform)
        if flat is self.flat:
            return self
        if platform not in self._others:
            self._others[platform] = Pair(flat, self.jaxpr, self.mask)
        return self._others[platform]


# ------------------------------------------------------------------------------------------------------- evaluation


def _infos(jaxpr: ClosedJaxpr) -> list[Leaf]:
    return list(map(describe, jaxpr.in_avals))


def _program(flat: FlatFunction, infos: list[Leaf]) -> Compiled:
    """Return the program. Raises UnsupportedOpError, and ShapeError for sizes that the user's dims refuse."""
    flat.check_settings()
    return flat.program(flat.entry(infos), infos)


def _run(executable: Executable, leaves: Arrays, results: Sequence[ShapedArray], in_jit: bool) -> Results:
    """Run a program on arrays, or on tracers of `jax.jit`. Returns results of these types."""
    infos = list(map(describe, leaves))
    conversions = [taken(x, info) for x, info in zip(leaves, infos, strict=True)]
    arrays = [c(x) if c else as_array(x, i) for x, i, c in zip(leaves, infos, conversions, strict=True)]
    native = executable.native
    made = call_in_jit(native, executable.content, *arrays) if in_jit else native(*arrays)
    made = made[: len(results)]  # sizes in their structure are numbers here
    wrap = not any(isinstance(x, jax.Array) for x in leaves)
    finish = [given(Result(x.dtype, x.weak_type), wrap) for x in results]
    made = [x if f is None else f(x) for x, f in zip(made, finish, strict=True)]
    return [weakly_typed(x) if kind.weak_type else x for x, kind in zip(made, results, strict=True)]


def _call(in_jit: bool, *leaves: ArrayLike, flat: FlatFunction, jaxpr: ClosedJaxpr) -> Results:
    try:
        program = _program(flat, _infos(jaxpr))
        return _run(program.executable, leaves, jaxpr.out_avals, in_jit)
    except (UnsupportedOpError, ShapeError) as error:
        if isinstance(error, ShapeError) and flat.dims is not None:
            raise
        flat.fallback(str(error), leaves, quiet=False)
        return (jaxpr_as_fun if in_jit else _compiled_by_jax)(jaxpr)(*leaves)


@functools.lru_cache(64)
def _compiled_by_jax(jaxpr: ClosedJaxpr) -> Function:
    return jax.jit(jaxpr_as_fun(jaxpr))


def _forward(in_jit: bool, *leaves: ArrayLike, pair: Pair) -> Results:
    return _run(pair.forward, leaves, pair.avals, in_jit)


def _backward(in_jit: bool, *operands: ArrayLike, pair: Pair) -> Results:
    backward = pair.backward
    count = len(pair.mask) + len(backward.needed)
    chosen = [*operands[:count], *(operands[count + k] for k in backward.seeds)]
    return _run(backward.executable, chosen, _chosen(pair), in_jit)


def _chosen(pair: Pair) -> list[ShapedArray]:
    """Return the avals of the arrays that are differentiated."""
    return [x.to_tangent_aval() for x, m in zip(pair.jaxpr.in_avals, pair.mask, strict=True) if m]


def _tangent(*operands: ArrayLike, flat: FlatFunction, jaxpr: ClosedJaxpr, mask: Mask, pair: Pair | None) -> Results:
    return bind(derived.pushforward(flat, mask), _without_residuals(operands, mask))


def _pull(*operands: ArrayLike, pair: Pair) -> Results:
    """Compute `backward` from the arrays and the cotangents, without residuals."""
    return bind(_pullback(pair), _of_pullback(operands, pair))


def _pullback(pair: Pair) -> FlatFunction:
    return derived.pullback(pair.flat, pair.mask, sum(map(has_derivative, pair.jaxpr.out_avals)))


def _without_residuals(operands: Sequence[T], mask: Mask) -> list[T]:
    """Return the operands of `tangent` without residuals: the arrays and the tangents."""
    return [*operands[: len(mask)], *operands[len(operands) - sum(mask) :]]


def _of_pullback(operands: Sequence[T], pair: Pair) -> list[T]:
    """Return the operands of `backward` without residuals: the arrays and the cotangents."""
    count = len(pair.mask)
    return [*operands[:count], *operands[count + len(pair.backward.needed) :]]


# ---------------------------------------------------------------------------------------------------- differentiation


def _call_jvp(primals: Arrays, tangents: Tangents, *, flat: FlatFunction, jaxpr: ClosedJaxpr) -> Moved:
    mask = tuple(type(t) is not ad.Zero for t in tangents)
    if not any(mask) or not any(map(has_derivative, jaxpr.out_avals)):
        return call_p.bind(*primals, flat=flat, jaxpr=jaxpr), _zeros(jaxpr.out_avals)
    if not _is_alike(jaxpr.in_avals):
        return _jvp_alike(primals, tangents, flat, jaxpr)
    try:
        pair = flat.remembered(Pair, jaxpr, mask)
    except (UnsupportedOpError, ShapeError) as error:
        if isinstance(error, ShapeError) and flat.dims is not None:
            raise
        flat.fallback(str(error), primals, quiet=False)
        return _jvp_of_jax(primals, tangents, jaxpr)
    results = forward_p.bind(*primals, pair=pair)
    return results[: len(jaxpr.out_avals)], _tangents_of(pair, primals, results, tangents)


def _jvp_alike(primals: Arrays, tangents: Tangents, flat: FlatFunction, jaxpr: ClosedJaxpr) -> Moved:
    """Compute tangents of arrays that differ over various axes as if all differed over all, if the results are the
    same."""
    leaves = _alike(primals)
    alike = _traced_alike(flat, jaxpr, leaves)
    if alike is None:
        flat.fallback(UNLIKE, primals, quiet=False)
        return _jvp_of_jax(primals, tangents, jaxpr)
    return _call_jvp(leaves, list(map(_as_varying, tangents, leaves)), flat=flat, jaxpr=alike)


def _traced_alike(flat: FlatFunction, jaxpr: ClosedJaxpr, leaves: Arrays) -> ClosedJaxpr | None:
    if flat.of_types:
        return None
    try:
        alike, _ = flat.jaxpr(tuple(_infos(jaxpr)), tuple(map(varying, leaves)))
    except ValueError:  # what the function says itself of how arrays differ does not hold then
        return None
    return alike if [x.mat for x in alike.out_avals] == [x.mat for x in jaxpr.out_avals] else None


def _as_varying(tangent: Tangent, leaf: ArrayLike) -> Tangent:
    if type(tangent) is ad.Zero:
        return _zero(jax.typeof(leaf))
    missing = tuple(sorted(varying(leaf) - varying(tangent)))
    return jax.lax.pcast(tangent, missing, to="varying") if missing else tangent


def _tangents_of(pair: Pair, primals: Arrays, results: Results, tangents: Tangents) -> list[Tangent]:
    """Return the tangents of the results. `forward` computed these results and the residuals."""
    kept = [results[k] for k in pair.backward.needed]
    given_ = [t for t, m in zip(tangents, pair.mask, strict=True) if m]
    params = {"flat": pair.flat, "jaxpr": pair.jaxpr, "mask": pair.mask, "pair": pair}
    made = iter(tangent_p.bind(*primals, *kept, *given_, **params))
    return [next(made) if has_derivative(x) else _zero(x) for x in pair.jaxpr.out_avals]


def _jvp_of_jax(primals: Arrays, tangents: Tangents, jaxpr: ClosedJaxpr, fn: Function | None = None) -> Moved:
    instantiated = tuple(
        jax.custom_derivatives.zero_from_primal(x) if type(t) is ad.Zero else t
        for x, t in zip(primals, tangents, strict=True)
    )
    results, moved = jax.jvp(fn or _compiled_by_jax(jaxpr), tuple(primals), instantiated)
    return results, [t if has_derivative(x) else _zero(x) for t, x in zip(moved, jaxpr.out_avals, strict=True)]


def _forward_jvp(primals: Arrays, tangents: Tangents, *, pair: Pair) -> Moved:
    results = forward_p.bind(*primals, pair=pair)
    mask = tuple(type(t) is not ad.Zero for t in tangents)
    if _has_custom_vjp(pair.jaxpr):
        pair.flat.fallback(TWICE, primals, quiet=False)
        moved = _jvp_of_jax(primals, tangents, pair.jaxpr, _as_differentiated(pair))[1]
    elif mask == pair.mask:
        moved = _tangents_of(pair, primals, results, tangents)
    else:
        moved = _call_jvp(primals, tangents, flat=pair.flat, jaxpr=pair.jaxpr)[1]
    return results, [*moved, *_zeros(pair.avals[len(moved) :])]


def _as_differentiated(pair: Pair) -> Function:
    """Return the function with the forward rule of each custom_vjp in its place, which JAX differentiates further."""

    def of(*leaves: ArrayLike) -> Results:
        rest = [x for x, m in zip(leaves, pair.mask, strict=True) if m]

        def of_chosen(*chosen: ArrayLike) -> Results:
            given_ = iter(chosen)
            merged = [next(given_) if m else x for x, m in zip(leaves, pair.mask, strict=True)]
            return jaxpr_as_fun(pair.jaxpr)(*merged)

        return jax.vjp(of_chosen, *rest)[0]

    return of


def _has_custom_vjp(jaxpr: ClosedJaxpr) -> bool:
    """Whether a jaxpr, or one inside it, calls a custom_vjp."""
    return "custom_vjp_call" in str(jaxpr)


def _tangent_jvp(
    operands: Arrays, tangents: Tangents, *, flat: FlatFunction, jaxpr: ClosedJaxpr, mask: Mask, pair: Pair | None
) -> Moved:
    params = {"flat": flat, "jaxpr": jaxpr, "mask": mask, "pair": pair}
    count = len(operands) - sum(mask)
    if all(type(t) is ad.Zero for t in tangents[: len(mask)]):  # it is linear in the others
        results = tangent_p.bind(*operands, **params)
        moved = map(ad.instantiate_zeros, tangents[count:])
        return results, tangent_p.bind(*operands[:count], *moved, **params)
    return _jvp(derived.pushforward(flat, mask), *(_without_residuals(x, mask) for x in (operands, tangents)))


def _backward_jvp(operands: Arrays, tangents: Tangents, *, pair: Pair) -> Moved:
    count = len(pair.mask) + len(pair.backward.needed)
    if all(type(t) is ad.Zero for t in tangents[: len(pair.mask)]):
        results = backward_p.bind(*operands, pair=pair)
        moved = map(ad.instantiate_zeros, tangents[count:])
        return results, backward_p.bind(*operands[:count], *moved, pair=pair)
    return _jvp(_pullback(pair), *(_of_pullback(x, pair) for x in (operands, tangents)))


def _jvp(flat: FlatFunction, leaves: Arrays, tangents: Tangents) -> Moved:
    jaxpr, _ = flat.jaxpr(tuple(map(describe, leaves)), tuple(map(varying, leaves)))
    return _call_jvp(leaves, tangents, flat=flat, jaxpr=jaxpr)


def _zeros(avals: Sequence[ShapedArray]) -> list[Tangent]:
    return list(map(_zero, avals))


def _zero(aval: ShapedArray) -> ad.Zero:
    return ad.Zero(aval.to_tangent_aval())


def _tangent_transpose(
    cts: Tangents, *operands: ArrayLike, flat: FlatFunction, jaxpr: ClosedJaxpr, mask: Mask, pair: Pair | None
) -> list[jax.Array | None]:
    count = len(operands) - sum(mask)
    known, moved = operands[:count], list(map(ad.instantiate_zeros, cts))
    if pair is None:
        made = bind(derived.pullback(flat, mask, len(moved)), [*known, *moved])
    else:
        made = backward_p.bind(*known, *moved, pair=pair)
    return [*(None for _ in known), *made]


def _backward_transpose(cts: Tangents, *operands: ArrayLike, pair: Pair) -> list[jax.Array | None]:
    arrays, count = operands[: len(pair.mask)], len(pair.mask) + len(pair.backward.needed)
    made = bind(derived.pushforward(pair.flat, pair.mask), [*arrays, *map(ad.instantiate_zeros, cts)])
    return [*(None for _ in operands[:count]), *made]


def _call_transpose(
    cts: Tangents, *operands: ArrayLike | ad.UndefinedPrimal, flat: FlatFunction, jaxpr: ClosedJaxpr
) -> list[jax.Array | None]:
    """Transpose a function that its user knows to be linear, as JAX does it."""
    linear = [ad.is_undefined_primal(x) for x in operands]

    def of(*chosen: ArrayLike) -> Results:
        rest = iter(chosen)
        return jaxpr_as_fun(jaxpr)(*(next(rest) if m else x for x, m in zip(operands, linear, strict=True)))

    structs = [jax.ShapeDtypeStruct(x.aval.shape, x.aval.dtype) for x, m in zip(operands, linear, strict=True) if m]
    made = iter(jax.linear_transpose(of, *structs)(list(map(ad.instantiate_zeros, cts))))
    return [next(made) if m else None for m in linear]


# ----------------------------------------------------------------------------------------------------------- batching


def _batched(flat: FlatFunction, leaves: Arrays, axes: Sequence[int | None]) -> Batched:
    results = bind(derived.vmapped(flat, tuple(axes), [jax.numpy.ndim(x) for x in leaves]), leaves)
    return results, [0] * len(results)


def _call_batched(leaves: Arrays, axes: Axes, *, flat: FlatFunction, jaxpr: ClosedJaxpr) -> Batched:
    return _batched(flat, leaves, axes)


def _forward_batched(leaves: Arrays, axes: Axes, *, pair: Pair) -> tuple[Results, list[int | None]]:
    results, where = _batched(pair.flat, leaves, axes)
    unused = _unused(pair)
    return [*results, *unused], [*where, *(None for _ in unused)]


def _tangent_batched(
    operands: Arrays, axes: Axes, *, flat: FlatFunction, jaxpr: ClosedJaxpr, mask: Mask, pair: Pair | None
) -> Batched:
    return _batched(derived.pushforward(flat, mask), *(_without_residuals(x, mask) for x in (operands, axes)))


def _backward_batched(operands: Arrays, axes: Axes, *, pair: Pair) -> Batched:
    return _batched(_pullback(pair), *(_of_pullback(x, pair) for x in (operands, axes)))


# ----------------------------------------------------------------------------------------------------------- the rules


def _called(params: Params) -> tuple[Literal["pair", "flat"], FlatFunction]:
    """Return the parameter that names the called jaxpr, and its function."""
    return ("pair", params["pair"].flat) if "pair" in params else ("flat", params["flat"])


def _lowering(platform: str, in_jit: Function, for_others: Function) -> Callable[..., Sequence[MlirValue]]:
    """Lower. for_others: in a form that other processes can run, and that XLA can spread over devices."""

    def lower(ctx: mlir.LoweringRuleContext, *operands: MlirValue, **params: Unpack[Params]) -> Sequence[MlirValue]:
        if getattr(ctx.module_context.lowering_parameters, "for_export", False):
            return mlir.lower_fun(for_others)(ctx, *operands, **params)
        of, flat = _called(params)
        try:
            if (getattr(ctx.module_context.axis_context, "num_devices", None) or 1) > 1:
                raise UnsupportedOpError(SPREAD)
            there = params[of].on(platform)
        except UnsupportedOpError as error:
            flat.fallback(str(error), ctx.avals_in, quiet=False)
            return mlir.lower_fun(for_others)(ctx, *operands, **params)
        return mlir.lower_fun(in_jit)(ctx, *operands, **{**params, of: there})

    return lower


def _eagerly(evaluate: Function, for_others: Function) -> Function:
    """Run where the arrays are."""

    def run(*leaves: ArrayLike, **params: Unpack[Params]) -> Results:
        of, flat = _called(params)
        try:
            there = params[of].on(platform_of(leaves)) if flat.follows else params[of]
        except UnsupportedOpError as error:
            flat.fallback(str(error), leaves, quiet=False)
            return for_others(*leaves, **params)
        return evaluate(False, *leaves, **{**params, of: there})

    return run


def _call_elsewhere(*leaves: ArrayLike, flat: FlatFunction, jaxpr: ClosedJaxpr) -> Results:
    return jaxpr_as_fun(jaxpr)(*leaves)


def _forward_elsewhere(*leaves: ArrayLike, pair: Pair) -> Results:
    return [*jaxpr_as_fun(pair.jaxpr)(*leaves), *_unused(pair)]


def _unused(pair: Pair) -> Results:
    """Return NaNs in place of residuals that nothing reads: a use would be visible."""
    avals = pair.avals[len(pair.jaxpr.out_avals) :]
    return [jax.numpy.full(x.shape, np.nan if has_derivative(x) else 0, x.dtype) for x in avals]


def _tangent_avals(*operands: ShapedArray, jaxpr: ClosedJaxpr, **params: object) -> list[ShapedArray]:
    return [x.to_tangent_aval() for x in jaxpr.out_avals if has_derivative(x)]


_RULES = (
    # primitive, avals, evaluation (in `jax.jit` or not), elsewhere, jvp, transpose, batching
    (
        call_p,
        lambda *_, flat, jaxpr: jaxpr.out_avals,
        _call,
        _call_elsewhere,
        _call_jvp,
        _call_transpose,
        _call_batched,
    ),
    (forward_p, lambda *_, pair: pair.avals, _forward, _forward_elsewhere, _forward_jvp, None, _forward_batched),
    (
        backward_p,
        lambda *_, pair: _chosen(pair),
        _backward,
        _pull,
        _backward_jvp,
        _backward_transpose,
        _backward_batched,
    ),
    (tangent_p, _tangent_avals, None, _tangent, _tangent_jvp, _tangent_transpose, _tangent_batched),
)

# With the primitives: whoever imports one may bind it, and JAX knows nothing of it without its rules.
for _p, _avals, _evaluate, _elsewhere, _jvp_rule, _transpose, _batch in _RULES:
    _p.multiple_results = True
    _p.def_abstract_eval(_avals)
    _p.def_impl(_eagerly(_evaluate, _elsewhere) if _evaluate else _elsewhere)
    mlir.register_lowering(_p, mlir.lower_fun(_elsewhere))
    if _evaluate:
        for _platform in ("cpu", "cuda", "rocm"):
            _in_jit = _lowering(_platform, functools.partial(_evaluate, True), _elsewhere)
            mlir.register_lowering(_p, _in_jit, platform=_platform)
    ad.primitive_jvps[_p] = _jvp_rule
    if _transpose:
        ad.primitive_transposes[_p] = _transpose
    batching.primitive_batchers[_p] = _batch
