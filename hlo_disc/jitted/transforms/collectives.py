"""Splits a function that communicates with other devices into parts between its collectives.

Collectives stay JAX's. They come in *rounds*: a round sends values that follow from arguments and from values received
in earlier rounds. The part of a round computes the values that its collectives send, and those results that need no
later round.

    arrays ─▶ part 0 ─▶ psum, all_gather … ─▶ part 1 (arrays, received) ─▶ … ─▶ results

A part traces the whole function and keeps the ops that it needs, so no two parts may need the same expensive op.
"""

from __future__ import annotations

import contextlib
import dataclasses
import numbers
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import jax
from jax._src import config, core
from jax._src.core import extend_axis_env_nd, get_axis_env

from hlo_disc.errors import UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.jitted.fallback import SPREAD
from hlo_disc.jitted.flat import FlatFunction, placed
from hlo_disc.jitted.transforms import primitives
from hlo_disc.tracing.trace import active
from hlo_disc.tracing.values import Leaf

if TYPE_CHECKING:
    from jax.extend.core import ClosedJaxpr
    from jax.typing import ArrayLike

    _Operand: TypeAlias = "_Made | _Given | ArrayLike"


T = TypeVar("T")
# What only changes over which axes of a mesh arrays are said to differ.
_CAST = "pvary"
# What is not computed twice.
_EXPENSIVE = frozenset(
    "dot_general conv_general_dilated scan while cond sort top_k fft "
    "cholesky triangular_solve lu qr svd eigh eig".split()
)
_OTHERWISE = "compile what is between such calls"
_BY_SIZES = f"its sizes decide how it talks to other devices: {_OTHERWISE}"


def call(flat: FlatFunction, leaves: Sequence[ArrayLike], infos: Sequence[Leaf]) -> object:
    """Call a function with arrays that JAX traces, for its transformations or in `jax.jit`.

    Raises UnsupportedOpError for functions that JAX has to look into, or spreads over devices.
    """
    mesh = jax.sharding.get_abstract_mesh()
    if not mesh.empty and not mesh.are_all_axes_manual:
        raise UnsupportedOpError(SPREAD)
    jaxpr, out_tree = flat.jaxpr(tuple(infos), tuple(map(primitives.varying, leaves)))
    if _talks(jaxpr.jaxpr):
        results = _in_parts(flat, jaxpr, leaves)
    else:
        results = primitives.call_p.bind(*leaves, flat=flat, jaxpr=jaxpr)
    return out_tree.unflatten(results)


# ------------------------------------------------------------------------------------------------------------- jaxprs


def _talks(jaxpr: core.Jaxpr) -> bool:
    """Whether a jaxpr, or one inside it, has collectives."""
    return any(_is_collective(eqn) or any(map(_talks, core.jaxprs_in_params(eqn.params))) for eqn in jaxpr.eqns)


def _is_collective(eqn: core.JaxprEqn) -> bool:
    names = eqn.params.get("axis_name", eqn.params.get("axes", ()))
    names = names if isinstance(names, (tuple, list, frozenset, set)) else (names,)
    # Batching rules number axes with numpy's integers.
    return eqn.primitive.name != _CAST and any(not isinstance(name, numbers.Integral) for name in names)


def _is_expensive(eqn: core.JaxprEqn) -> bool:
    inner = core.jaxprs_in_params(eqn.params)
    ours = eqn.primitive.name.startswith("hlo_disc")
    return ours or eqn.primitive.name in _EXPENSIVE or any(_is_expensive(e) for jaxpr in inner for e in jaxpr.eqns)


Rule: TypeAlias = Callable[[core.JaxprEqn, list[T]], Sequence[T]]  # from an equation and its operands to its results


def _walk(
    jaxpr: core.Jaxpr, consts: Sequence[T], operands: Sequence[T], local: Rule[T], collective: Rule[T]
) -> list[T]:
    """Evaluate a jaxpr by a rule for its collectives, and one for all other equations."""
    env = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *operands), strict=True))

    def read(x: core.Var | core.Literal) -> T:
        return x.val if isinstance(x, core.Literal) else env[x]

    for eqn in jaxpr.eqns:
        values = [read(x) for x in eqn.invars]
        if _is_collective(eqn):
            results = collective(eqn, values)
        elif not any(map(_talks, core.jaxprs_in_params(eqn.params))):
            results = local(eqn, values)
        elif eqn.primitive.name == "jit":
            inner = eqn.params["jaxpr"]
            results = _walk(inner.jaxpr, inner.consts, values, local, collective)
        else:
            raise UnsupportedOpError(f"it talks to other devices inside of a {eqn.primitive}: {_OTHERWISE}")
        env.update(zip(eqn.outvars, results, strict=True))
    return [read(x) for x in jaxpr.outvars]


def _apply(eqn: core.JaxprEqn, operands: Sequence[object]) -> list[jax.Array]:
    """Evaluate one equation, which keeps its line."""
    invars = [core.Var(x.aval) if isinstance(x, core.Literal) else x for x in eqn.invars]
    jaxpr = core.Jaxpr((), invars, eqn.outvars, [eqn.replace(invars=invars)], eqn.effects)
    return core.jaxpr_as_fun(core.ClosedJaxpr(jaxpr, ()))(*operands)


_LATER = object()  # in place of what is received later


def _local(eqn: core.JaxprEqn, operands: Sequence[object]) -> Sequence[object]:
    if any(x is _LATER for x in operands):
        return [_LATER] * len(eqn.outvars)
    if not active():
        return _apply(eqn, operands)
    # A program is compiled for one device, and knows no types that speak of others.
    if eqn.primitive.name == _CAST:
        return operands
    with config._check_vma(False):
        return _apply(eqn, operands)


class _Axes:
    """The named axes of this thread, for tracing under them later."""

    def __init__(self) -> None:
        self._sizes, self.mesh = tuple(get_axis_env().axis_sizes.items()), jax.sharding.get_abstract_mesh()

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        with extend_axis_env_nd(self._sizes), jax.sharding.use_abstract_mesh(self.mesh):
            yield


# -------------------------------------------------------------------------------------------------------------- parts


@dataclasses.dataclass(eq=False)
class _Made:
    """A value that is computed. round: the earliest round in which it can be."""

    round: int
    eqn: core.JaxprEqn
    operands: list[_Operand]


@frozen
class _Given:
    """An argument, or a value that a collective has received, by its number among both."""

    round: int
    number: int


@dataclasses.dataclass
class _Collective:
    """A collective. round: the round after which it can run. received: the number of its first result."""

    eqn: core.JaxprEqn
    operands: list[_Operand]
    round: int
    received: int


class _Plan:
    """The collectives of a function, and its outputs, from a trace at the sizes of a call.

    Raises UnsupportedOpError if a part would repeat an expensive op of another one.
    """

    def __init__(self, flat: FlatFunction, jaxpr: ClosedJaxpr):
        self._flat = flat
        self.collectives: list[_Collective] = []
        count = len(jaxpr.in_avals)

        def local(eqn: core.JaxprEqn, operands: list[_Operand]) -> list[_Operand]:
            return [_Made(_first(operands), eqn, operands)] * len(eqn.outvars)

        def collective(eqn: core.JaxprEqn, operands: list[_Operand]) -> list[_Operand]:
            nonlocal count
            found = _Collective(eqn, operands, _first(operands), count)
            self.collectives.append(found)
            count += len(eqn.outvars)
            return [_Given(found.round + 1, found.received + k) for k in range(len(eqn.outvars))]

        arguments = [_Given(0, k) for k in range(count)]
        self.outputs = _walk(jaxpr.jaxpr, jaxpr.consts, arguments, local, collective)
        self.rounds = 1 + max(c.round for c in self.collectives)
        self._check_costs()

    def sent(self, round: int) -> list[tuple[int, int]]:
        """Return the operands of collectives that a part computes, as (collective, operand) indices."""
        return [
            (k, i)
            for k, c in enumerate(self.collectives)
            for i, x in enumerate(c.operands)
            if c.round == round and isinstance(x, _Made)
        ]

    def returned(self, round: int) -> list[int]:
        """Return which results a part computes."""
        return [k for k, x in enumerate(self.outputs) if isinstance(x, _Made) and x.round == round]

    def part(self, round: int, where: tuple[frozenset[str], ...]) -> FlatFunction:
        """Return the part of a round: a function of the arguments and of all values received before, in order.

        where: over which axes the arguments differ.
        """
        flat, count, sent, returned = self._flat, len(where), self.sent(round), self.returned(round)
        names = tuple(c.eqn.primitive.name for c in self.collectives)
        rounds = tuple(c.round for c in self.collectives)
        axes_of_call = _Axes()

        def part(*values: jax.Array) -> list[object]:
            with axes_of_call():
                structs = [
                    jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type, **placed(axes))
                    for x, axes in zip(values, where, strict=False)
                ]
                jaxpr = jax.make_jaxpr(flat.call)(*structs)
            received, operands_of = iter(values[count:]), list[list[object]]()

            def collective(eqn: core.JaxprEqn, operands: list[object]) -> list[object]:
                number = len(operands_of)
                if names[number : number + 1] != (eqn.primitive.name,):
                    raise UnsupportedOpError(_BY_SIZES)
                operands_of.append(operands)
                known = rounds[number] < round
                return [next(received) if known else _LATER for _ in eqn.outvars]

            results = _walk(jaxpr.jaxpr, jaxpr.consts, values[:count], _local, collective)
            made = [*(operands_of[k][i] for k, i in sent if k < len(operands_of)), *(results[k] for k in returned)]
            if len(operands_of) != len(names) or any(x is _LATER for x in made):
                raise UnsupportedOpError(_BY_SIZES)
            return made

        key = "part", round, where, names, rounds, tuple(sent), tuple(returned)
        received = [
            f"{c.eqn.primitive} {k}" for k, c in enumerate(self.collectives) if c.round < round for _ in c.eqn.outvars
        ]
        return flat.derived(key, part, [*flat.names, *received], None if round else flat.dims, of_types=True)

    def _check_costs(self) -> None:
        where: dict[_Made, int] = {}
        for round in range(self.rounds + 1):
            made = [self.collectives[k].operands[i] for k, i in self.sent(round)]
            todo = [*made, *(self.outputs[k] for k in self.returned(round))]
            seen = set[_Made]()
            while todo:
                x = todo.pop()
                if not isinstance(x, _Made) or x in seen:
                    continue
                seen.add(x)
                if where.setdefault(x, round) != round and _is_expensive(x.eqn):
                    raise UnsupportedOpError(
                        f"it would compute {x.eqn.primitive} before it talks to other devices and again after it: "
                        f"{_OTHERWISE}"
                    )
                todo += x.operands


def _first(operands: Sequence[_Operand]) -> int:
    return max((x.round for x in operands if isinstance(x, (_Made, _Given))), default=0)


def _in_parts(flat: FlatFunction, jaxpr: ClosedJaxpr, leaves: Sequence[ArrayLike]) -> list[ArrayLike]:
    plan = flat.remembered(_Plan, jaxpr)
    values = dict(enumerate(leaves))  # and what was received
    results: dict[int, ArrayLike] = {}

    def value(x: _Operand, made: ArrayLike | None) -> ArrayLike:
        return made if isinstance(x, _Made) else values[x.number] if isinstance(x, _Given) else x

    for round in range(plan.rounds + 1):
        sent, returned = plan.sent(round), plan.returned(round)
        computed: dict[int | tuple[int, int], jax.Array] = {}
        if sent or returned:
            operands = [x for _, x in sorted(values.items())]
            made = primitives.bind(plan.part(round, tuple(map(primitives.varying, leaves))), operands)
            computed = dict(zip([*sent, *returned], made, strict=True))
        results.update((k, computed[k]) for k in returned)
        for k, found in enumerate(plan.collectives):
            if found.round == round:
                operands = [value(x, computed.get((k, i))) for i, x in enumerate(found.operands)]
                values.update(enumerate(_apply(found.eqn, operands), found.received))
    return [value(x, results.get(k)) for k, x in enumerate(plan.outputs)]
