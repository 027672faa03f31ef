"""From a JAX function to a DHLO graph: traced once, at symbolic shapes, and read where JAX lowered it.

The function is lowered as for `jax.jit`, except for a few primitives (`jax_lowering`). It is not exported: an export
expands CHLO ops (`erf`, `erfc` …) into polynomials and serialises the module. JAX passes the dimension variables as
leading arguments, which the reader knows by name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import jax
from jax import export

from hlo_disc.dynamic_hlo.ir.graph import Graph, Guard
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.import_.jax_edge import jax_names
from hlo_disc.import_.sizes.symbols import ShapeSpec, fixed_sizes, parse_constraints, shape_spec
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.policy import JAX

jax_names.check()  # before what follows, which would say less of a name that is missing

from hlo_disc.import_.jax_edge import jax_lowering, size_functions, size_numbers  # noqa: E402
from hlo_disc.import_.jax_edge.size_questions import Answers, answering, is_size  # noqa: E402

if TYPE_CHECKING:
    from jax.core import ShapedArray
    from jax.typing import DTypeLike

    from hlo_disc.import_.jax_edge.jax_callbacks import Callback
    from hlo_disc.import_.jax_edge.size_numbers import Size


class Described(Protocol):
    """The type of an argument; perhaps with `weak`, whether it is that of a Python number."""

    @property
    def dtype(self) -> DTypeLike: ...

    @property
    def shape(self) -> Sequence[int]: ...


READS_TRACED = "it reads a value from outside that JAX is tracing: pass it as an argument"
USES_REF = "it reads or writes a jax.Ref from outside: a compiled program changes nothing but its results"


def from_jax(
    fn: Callable[..., object],
    leaves: Sequence[Described],
    dims: Sequence[ShapeSpec],
    names: Sequence[str],
    constraints: Sequence[str] = (),
    answers: Answers | None = None,
) -> tuple[Graph, Sequence[ShapedArray]]:
    """Read a function of flat arrays. Returns its graph, and JAX's type of each result: `dtype`, `shape`, `weak_type`.

    leaves: `dtype`, `shape` and perhaps `weak` (a Python number's type) of each argument. Random keys are their data in
    the graph, one or more axes longer, and arrays of float0 are booleans. dims: for each argument and axis a size, a
    dimension expression, or None for the size in `shape`. names: the arguments' names in messages. constraints:
    conditions on the dimension variables, which JAX uses while it traces and calls must meet. answers: answer the
    function's questions about sizes, which become the graph's `asked`. Without them JAX answers: sizes are unequal
    unless known to be equal, every size is at least 1, and the rest is an error.

    Raises UnsupportedOpError for a function that reads a tracer of another trace.
    """
    shapes = [_filled(leaf, shape_spec(spec), name) for leaf, spec, name in zip(leaves, dims, names, strict=True)]
    known = parse_constraints(constraints)
    known += [asked.guard() for asked in answers.equalities] if answers else []
    with contextlib.ExitStack() as stack:
        if answers:
            stack.enter_context(answering(answers))
            stack.enter_context(size_functions.lent())
        sizes = _symbolic_sizes([d for shape in shapes for d in shape], known, answers)
        stack.enter_context(size_numbers.exact(next((size.scope for size in sizes.values() if is_size(size)), None)))
        structs = [
            jax.ShapeDtypeStruct([sizes[d] for d in shape], leaf.dtype, weak_type=getattr(leaf, "weak", False))
            for leaf, shape in zip(leaves, shapes, strict=True)
        ]
        # An argument that is not used stays one: positions are how calls pass arguments.
        traced = jax.jit(fn, keep_unused=True).trace(*structs)
        if len(traced.jaxpr.in_avals) > len(structs):
            raise UnsupportedOpError(READS_TRACED)
        if any(isinstance(const, jax.Ref) for const in traced.jaxpr.consts):
            raise UnsupportedOpError(USES_REF)
        callbacks: list[Callback] = []
        lowered = jax_lowering.lower(traced, callbacks)
    module = lowered.compiler_ir("stablehlo")
    dims = [[*shape, *_of_an_element(leaf.dtype)] for leaf, shape in zip(leaves, shapes, strict=True)]
    asked = [asked.guard() for asked in answers.asked()] if answers else []
    graph = read_module(
        module, dims=dims, constraints=constraints, names=names, origin=JAX, asked=asked, callbacks=callbacks
    )
    return graph, traced.jaxpr.out_avals


def _of_an_element(dtype: DTypeLike) -> list[Dim]:
    """Return the shape of an element's data: no axes except for random keys."""
    if not jax.dtypes.issubdtype(dtype, jax.dtypes.prng_key):
        return []
    data = jax.eval_shape(jax.random.key_data, jax.ShapeDtypeStruct((), dtype))
    return list(map(Dim.of, data.shape))


def _filled(leaf: Described, spec: Sequence[Dim | None], name: str) -> list[Dim]:
    if len(spec) != len(leaf.shape):
        raise ArgumentError(f"{name} has rank {len(leaf.shape)}, but its dims {_shown(spec)} have rank {len(spec)}")
    return [Dim.of(leaf.shape[axis]) if d is None else d for axis, d in enumerate(spec)]


def _shown(spec: Sequence[Dim | None]) -> str:
    return f"({', '.join('_' if d is None else str(d) for d in spec)})"


def _symbolic_sizes(dims: Sequence[Dim], constraints: Sequence[Guard], answers: Answers | None) -> dict[Dim, Size]:
    """Return JAX's form of every size: a number if constraints leave only one. All symbolic ones share a scope, so that
    JAX can compare them."""
    fixed = fixed_sizes(constraints, {name for d in dims for name in d.symbols})
    numbers = {name: Dim.const(n) for name, n in fixed.items()}
    found = {d: d.substitute(numbers) for d in dims}
    sizes: dict[Dim, Size] = {d: n.value for d, n in found.items() if n.is_const}
    symbolic = {d: n for d, n in found.items() if not n.is_const}
    if symbolic:
        sides = [(g.lhs.substitute(numbers), g.relation, g.rhs.substitute(numbers)) for g in constraints]
        texts = [text for lhs, relation, rhs in sides if (text := _jax_constraint(lhs, relation, rhs))]
        scope = export.SymbolicScope([] if answers else texts)
        if answers:
            answers.tell(scope, texts)
        parsed = export.symbolic_shape(", ".join(map(str, symbolic.values())), scope=scope)
        sizes.update(zip(symbolic, parsed, strict=True))
    return sizes


def _jax_constraint(lhs: Dim, relation: str, rhs: Dim) -> str:
    """Return the constraint in JAX's grammar, which has >=, <=, and == of a term that does not occur in the other side;
    else ""."""
    if not lhs.symbols | rhs.symbols:
        return ""
    if relation == "==":
        if _is_symbol(rhs) or not _is_term(lhs):
            lhs, rhs = rhs, lhs
        return f"{lhs} == {rhs}" if _is_term(lhs) and lhs.symbols.isdisjoint(rhs.symbols) else ""
    offset = {"<": -1, ">": 1}.get(relation, 0)
    relation = {"<": "<=", ">": ">="}.get(relation, relation)
    return "" if relation == "!=" else f"{lhs} {relation} {rhs + offset}"


def _is_symbol(d: Dim) -> bool:
    return len(d.symbols) == 1 and d is Dim.symbol(next(iter(d.symbols)))


def _is_term(d: Dim) -> bool:
    return not d.is_const and len(d.terms) == 1 and d.terms[0][1] == 1
