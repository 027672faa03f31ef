"""The ops that a library computes: custom calls of the XLA FFI, Cholesky, triangular solves and Fourier transforms.

A handler sees matrices in the layout that the call demands. A layout is a transpose before or after the call. The calls
that this file itself makes to LAPACK, which stores columns first, solve the transposed problem instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import BOOL, bit_width, dtype_class, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.expr import I64, where
from hlo_disc.dynamic_hlo.ops.families.library import ORDERS
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers.arrays import Array, filled
from hlo_disc.import_.handlers.config import config_of
from hlo_disc.import_.handlers.types import Handler, Result
from hlo_disc.import_.sizes.shapes import Operand
from hlo_disc.import_.stablehlo.decode import flag, ints, text
from hlo_disc.mlir import ir, stablehlo

if TYPE_CHECKING:
    from hlo_disc.import_.handlers.config import Config
    from hlo_disc.import_.stablehlo.reader import Reader

_TYPED_FFI = 4  # the api_version of custom calls whose handlers use the XLA FFI
# The custom call that a callback of JAX becomes.
CALLBACK = "hlo_disc.callback"
_OF_A_PROCESS = "it calls a Python function of the process that made the module: compile the JAX function itself"
# Those of which only XLA knows what they call.
_CALLBACKS = frozenset(
    ("xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback", "xla_buffer_python_cpu_callback")
)
_LAPACK_PREFIX = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
Order = tuple[int, ...]
Orders = tuple[tuple[Order, ...], tuple[Order, ...]]  # of operands and results


# ------------------------------------------------------------------------------------------------------- custom calls


def custom_call(r: Reader, op: ir.OpView, target: str, operands: list[Operand]) -> Result:
    """Read a call of a handler that is registered with XLA's FFI, or will be when the executable is made."""
    if target in _CALLBACKS:
        r.unsupported(_OF_A_PROCESS)
    if "called_computations" in op.attributes and len(ir.ArrayAttr(op.attributes["called_computations"])):
        r.unsupported(f"custom call @{target} takes functions of the module, which is not supported")
    config = _callback(r, op) if target == CALLBACK else _config(r, op, target)
    shaping = r.attr(op, "indices_of_shape_operands", ints) if "indices_of_shape_operands" in op.attributes else ()
    if not set(shaping) <= set(range(len(operands))):
        r.unsupported(f"indices_of_shape_operands {shaping} must be operands, of which there are {len(operands)}")
    read = [i for i in range(len(operands)) if i not in shaping]
    values = [r.data(operands[i]) for i in read]
    shapes = [r.sizes(operands[i]) for i in shaping] if shaping else _result_shapes(r, op)
    if len(shapes) != len(op.results):
        r.unsupported(f"{len(shapes)} shape operands for {len(op.results)} results")
    types = [(r.decoder.tensor(result.type)[0], shape) for result, shape in zip(op.results, shapes, strict=True)]
    for dtype in [x.dtype for x in values] + [dtype for dtype, _ in types]:
        if dtype != BOOL and bit_width(dtype) < 8 and target != CALLBACK:
            r.unsupported(
                f"custom call @{target} takes or makes {dtype}, of which XLA packs several in a byte and hlo_disc does "
                "not: convert to int8 around the call"
            )
    aliases = tuple((read.index(i), k) for i, k in _aliases(op))
    effect = _flag(r, op, "has_side_effect")
    if ORDERS["operand_orders"] in op.attributes:  # a dump of ours, in which values are as they lie in memory
        ours = (ir.ArrayAttr(op.attributes[word]) for word in ORDERS.values())
        first, second = (tuple(map(ints, orders)) for orders in ours)
        return _emit(r, target, config, values, types, (first, second), aliases, effect)
    layouts = _orders(op, "operand_layouts", [x.rank for x in values] if not shaping else _ranks(r, op))
    orders = tuple(layouts[i] for i in read), tuple(_orders(op, "result_layouts", [len(shape) for shape in shapes]))
    results = call_library(r, target, config, values, types, orders, aliases, effect)
    if target.endswith(("gesdd_ffi", "gesvd_ffi")) and len(results) == 5:
        x, s, u, v, info = results
        results = [x, s, _or_identity(r, values[0], u), _or_identity(r, values[0], v), info]
    return results


def _callback(r: Reader, op: ir.OpView) -> Config:
    """Return the Python function, if the module names it by a number."""
    number = ir.DictAttr(op.attributes["mhlo.backend_config"])["number"] if r.callbacks else None
    if number is None:
        r.unsupported(_OF_A_PROCESS)
    return (("function", "callable", "", r.callbacks[ir.IntegerAttr(number).value]),)


def _or_identity(r: Reader, matrix: Value, factor: Value) -> Value:
    """Replace singular vectors of a matrix without elements by those of the identity, since LAPACK is not called."""
    rows, columns = matrix.shape[-2:]
    if all(r.facts.at_most(ONE, d) is Truth.YES for d in (rows, columns)):
        return factor
    empty = filled(r, Dim.min(rows, columns), I64) == 0
    x = Array(r, factor)
    row, column = _indices(x)
    return where(empty, where(row == column, x.like(1), 0), x).value


def _indices(matrix: Array) -> tuple[Array, Array]:
    """Return the row and the column of every element."""
    return matrix.iota(-2, I64), matrix.iota(-1, I64)


def call_library(
    r: Construction,
    target: str,
    config: Config,
    operands: Sequence[Value],
    types: Sequence[tuple[np.dtype, Shape]],
    orders: Orders,
    aliases: tuple[tuple[int, int], ...] = (),
    effect: bool = False,
) -> list[Value]:
    """Emit a call. Operands and results have the handler's shapes; `orders` gives their axes in memory, outermost
    first."""
    physical = [Array(r, x).transpose(order).value for x, order in zip(operands, orders[0], strict=True)]
    lying = [(t, tuple(shape[axis] for axis in order)) for (t, shape), order in zip(types, orders[1], strict=True)]
    made = _emit(r, target, config, physical, lying, orders, aliases, effect)
    return [Array(r, x).transpose(_inverse(order)).value for x, order in zip(made, orders[1], strict=True)]


def _emit(
    r: Construction,
    target: str,
    config: Config,
    operands: Sequence[Value],
    types: Sequence[tuple[np.dtype, Shape]],
    orders: Orders,
    aliases: tuple[tuple[int, int], ...],
    effect: bool,
) -> Sequence[Value]:
    return r.emit_all(
        "custom_call",
        operands,
        target=target,
        config=config,
        sizes=tuple(d for _, shape in types for d in shape),
        ranks=tuple(len(shape) for _, shape in types),
        dtypes=tuple(dtype for dtype, _ in types),
        operand_orders=orders[0],
        result_orders=orders[1],
        aliases=aliases,
        effect=effect,
    )


def _inverse(perm: Order) -> Order:
    return tuple(sorted(range(len(perm)), key=perm.__getitem__))


def _config(r: Reader, op: ir.OpView, target: str) -> Config:
    """Return the dictionary that the handler gets. Custom calls of the APIs before the typed one are refused."""
    attributes = op.attributes
    found = attributes["mhlo.backend_config"] if "mhlo.backend_config" in attributes else None
    if found is None:
        version = ir.IntegerAttr(attributes["api_version"]).value if "api_version" in attributes else 1
        if version != _TYPED_FFI:
            r.unsupported(
                f"there is no custom call @{target} but with the typed FFI (api_version 4), this has {version}"
            )
        found = attributes["backend_config"] if "backend_config" in attributes else None
    if not isinstance(found, ir.DictAttr):
        return ()
    try:
        return config_of(found)
    except ValueError as error:
        r.unsupported(f"custom call @{target}: {error}")


def _result_shapes(r: Reader, op: ir.OpView) -> list[Shape]:
    if not r.policy.trusts_types and op.results:
        r.unsupported("a module is re-opened, and nothing says how the sizes of its results follow")
    found = []
    for result in op.results:
        sizes = r.decoder.static_tensor(result.type)[1]
        if sizes is None:
            r.unsupported("the sizes of its results are unknown: it needs shape operands (indices_of_shape_operands)")
        found.append(tuple(map(Dim.const, sizes)))
    return found


def _ranks(r: Reader, op: ir.OpView) -> list[int]:
    return [len(r.decoder.tensor(x.type)[1]) for x in op.operands]


def _orders(op: ir.OpView, name: str, ranks: Sequence[int]) -> list[Order]:
    """Return the axes of each value, outermost first; layouts are written innermost first."""
    if name not in op.attributes:
        return [tuple(range(rank)) for rank in ranks]
    return [tuple(reversed(ints(layout))) for layout in ir.ArrayAttr(op.attributes[name])]


def _aliases(op: ir.OpView) -> list[tuple[int, int]]:
    if "output_operand_aliases" not in op.attributes:
        return []
    found = []
    for attribute in ir.ArrayAttr(op.attributes["output_operand_aliases"]):
        alias = stablehlo.OutputOperandAlias(attribute)
        found.append((alias.operand_index, next(iter(alias.output_tuple_indices), 0)))
    return found


def _flag(r: Reader, op: ir.OpView, name: str) -> bool:
    return name in op.attributes and r.attr(op, name, flag)


# ----------------------------------------------------------------------------------------------------- linear algebra


def _cholesky(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Factor, with zeros in the other triangle; all NaN if the matrix is not positive definite, as in XLA."""
    given, lower = r.data(operands[0]), _flag(r, op, "lower")
    rows, columns = given.shape[-2:]
    r.equal(rows, columns, "rows and columns")
    a = _widened(r, given)
    *batch, _, _ = shape = a.shape
    # Rows first, the lower triangle of A is the upper one of its transpose: there, A^T = U^H U gives A = L L^H.
    config = config_bytes(uplo=b"U" if lower else b"L")
    own, outer = tuple(range(a.rank)), tuple(range(a.rank - 2))
    types = [(a.dtype, shape), (np.dtype(np.int32), tuple(batch))]
    made = call_library(r, lapack_name("potrf", a), config, [a], types, ((own,), (own, outer)), ((0, 0),))
    factor, info = (Array(r, x) for x in made)
    row, column = _indices(factor)
    triangle = where(row >= column if lower else row <= column, factor, 0)
    return where((info == 0).broadcast(shape, outer), triangle, np.nan).cast(given.dtype).value


def _triangular_solve(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Solve op(A) X = B, or X op(A) = B if not `left`, for a triangular matrix A."""
    left, lower, unit = (_flag(r, op, name) for name in ("left_side", "lower", "unit_diagonal"))
    transpose = stablehlo.TransposeAttr(op.attributes["transpose_a"]).value
    matrix, other = map(r.data, operands)
    a, b = (_widened(r, x) for x in (matrix, other))
    r.equal(a.shape[-2], a.shape[-1], "rows and columns of the triangular matrix")
    side = "rows" if left else "columns"
    r.equal(a.shape[-1], b.shape[-2 if left else -1], f"the triangular matrix and the {side} of the other operand")
    for axis, (m, n) in enumerate(zip(a.shape[:-2], b.shape[:-2], strict=True)):
        r.equal(m, n, f"batching dimension {axis} of the operands")
    # The transposed problem, op(A) X = B as X^T op(A)^T = B^T: the other side and the other triangle of A^T.
    trans = {"NO_TRANSPOSE": b"N", "TRANSPOSE": b"T", "ADJOINT": b"C"}[transpose]
    config = config_bytes(
        diag=b"U" if unit else b"N", side=b"R" if left else b"L", trans_x=trans, uplo=b"U" if lower else b"L"
    )
    turned = (*range(b.rank - 2), b.rank - 1, b.rank - 2)
    views = [Array(r, x).transpose(turned).value for x in (a, b)]
    types = [(b.dtype, views[1].shape)]
    (x,) = call_library(r, lapack_name("trsm", b), config, views, types, ((turned, turned), (turned,)), ((1, 0),))
    return Array(r, x).transpose(turned).cast(other.dtype).value


def config_bytes(**characters: bytes) -> Config:
    """Make a dictionary of characters, which LAPACK's handlers take as unsigned bytes."""
    return tuple((name, "scalar", "uint8", character.hex()) for name, character in sorted(characters.items()))


def lapack_name(name: str, x: Value) -> str:
    """Return a routine's handler for the type of a value."""
    return f"lapack_{_LAPACK_PREFIX[x.dtype.name]}{name}_ffi"


def _widened(r: Construction, x: Value) -> Value:
    """Return f32 for types that LAPACK does not have."""
    if x.dtype.name in _LAPACK_PREFIX:
        return x
    if dtype_class(x.dtype) != "float":
        r.unsupported(f"linear algebra needs floating-point or complex numbers, not {x.dtype}")
    return r.emit("convert", (x,), dtype=np.dtype(np.float32))


# --------------------------------------------------------------------------------------------------------- transforms


def _fft(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    x, kind = r.data(operands[0]), stablehlo.FftTypeAttr(op.attributes["fft_type"]).value
    length = tuple(map(Dim.const, r.attr(op, "fft_length", ints)))
    if not r.policy.trusts_types:  # the lengths are the operand's sizes, but for the last one of IRFFT
        taken = x.shape[x.rank - len(length) :]
        length = (*taken[:-1], length[-1] if kind == "IRFFT" else taken[-1])
    return _make_fft(r, x, kind, length)


def dynamic_fft(r: Reader, op: ir.OpView, operands: list[Operand]) -> Value:
    """Read `custom_call @hlo_disc.fft(x, lengths) {transform}`: StableHLO's op has no dynamic form."""
    return _make_fft(r, r.data(operands[0]), r.attr(op, "transform", text), r.sizes(operands[1]))


def _make_fft(r: Reader, x: Value, kind: str, length: Shape) -> Value:
    axes = len(length)
    if not 1 <= axes <= min(3, x.rank):
        r.unsupported(f"a transform of {axes} dimensions of a tensor of rank {x.rank} is not supported")
    expected = dtype_class(x.dtype) == ("float" if kind == "RFFT" else "complex")
    if not expected or part_dtype(x.dtype).name not in ("float32", "float64"):
        r.unsupported(f"{kind} of {x.dtype} is not supported")
    last = length[-1]
    if kind == "RFFT" and not last.is_const:
        r.at_most(ONE, last, f"{kind} of length {{1}}: the length must be at least {{0}}")
    if kind == "IRFFT" and last is ZERO:  # JAX makes nothing of a single element, the specification only of none
        return filled(r, 0, part_dtype(x.dtype), (*x.shape[:-1], ZERO)).value
    taken = (*length[:-1], last // 2 + 1 if kind == "IRFFT" else last)
    for axis, (size, n) in enumerate(zip(x.shape[x.rank - axes :], taken, strict=True)):
        if r.facts.equal(size, n) is not Truth.YES:
            needed = Dim.min(last, ONE) if kind == "IRFFT" and axis == axes - 1 else ONE  # nothing is read for length 0
            what = f"dimension {x.rank - axes + axis} of the operand and the length of the transform"
            r.equal(size * needed, n * needed, what)
    return r.emit("fft", (x,), transform=kind, length=length)


HANDLERS: dict[str, Handler] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.triangular_solve": _triangular_solve,
    "stablehlo.fft": _fft,
}
