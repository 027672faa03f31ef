"""The names inside JAX that importing relies on, as rows, and whether the JAX that is installed has them.

While hlo_disc traces, names of JAX's stand for its own functions (`size_questions.py`, `size_numbers.py`,
`size_functions.py`, `size_scans.py`). If JAX lacks a name, or no longer looks it up there, a replacement has no effect:
programs would be wrong, or fall back without a visible reason. So all names are checked before one is replaced.
"""

from __future__ import annotations

import inspect
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from types import CodeType, FunctionType

import jax

from hlo_disc.frozen import frozen

_LAX, _NUMPY, _SIZES = "jax._src.lax.", "jax._src.numpy.", "jax._src.export.shape_poly."
Version = tuple[int, ...]
_ALL: Version = (sys.maxsize,)


@frozen
class Name:
    """A name of JAX's, with its modules and classes, or `function.<locals>.inner`.

    users: functions that look it up there as they run; without them nobody would meet what stands in its place.
    variables: of a function, that we read. since, before: which versions of JAX have it, where not all do that are
    allowed. why, test: of a name that is replaced, the reason, and the file in `tests` that shows what ours does.
    """

    name: str
    users: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    since: Version = ()
    before: Version = _ALL
    why: str = ""
    test: str = ""


def _within(place: str, names: str, since: Version = (), before: Version = _ALL) -> tuple[Name, ...]:
    return tuple(Name(f"{place}.{name}", since=since, before=before) for name in names.split())


def _replaced(why: str, test: str, *rows: Name) -> tuple[Name, ...]:
    return tuple(replace(row, why=why, test=f"e2e/sizes/test_{test}.py") for row in rows)


def _reflected(names: str) -> str:
    return " ".join(f"__{name}__ __r{name}__" for name in names.split())


_ARITHMETIC = _reflected("add sub mul floordiv mod truediv pow")

# Something of ours stands in their place, but for what Python itself looks up and JAX's classes do not have.
REPLACED = (
    *_replaced(
        "an equality or an order of sizes follows from the facts, or is noted as a question",
        "size_questions",
        Name(_SIZES + "_DimExpr.__eq__"),
        Name(_SIZES + "_geq_decision", (_SIZES + "_DimExpr.__ge__", _SIZES + "_DimExpr.__lt__")),
        Name(_SIZES + "_bounds_decision", (_SIZES + "_DimExpr.max", _SIZES + "_DimExpr.min")),
    ),
    *_replaced(
        "a size that Python needs as a number is the number of this call, and the trace starts again",
        "size_questions",
        *_within(_SIZES + "_DimExpr", "__hash__ __int__ __str__ __repr__"),
    ),
    *_replaced(
        "JAX compares sizes that only have to agree, and what is known to be equal is no question",
        "size_questions",
        Name("jax._src.core.dedup_referents", ("jax._src.api._mapped_axis_size",)),
        Name("jax._src.core.definitely_equal_one_of_dim", (_LAX + "lax._broadcast_in_dim_shape_rule",)),
        Name("jax._src.core.same_referent", ("jax._src.core.definitely_equal",)),
        Name(_LAX + "lax._try_broadcast_shapes", (_LAX + "lax._broadcast_shapes_uncached",)),
        Name(_LAX + "control_flow.loops._infer_scan_length", (_LAX + "control_flow.loops.scan",)),
    ),
    *_replaced(
        "JAX wants an int and compiles a size as well: a length, a padding, an index",
        "size_questions",
        Name("jax._src.core.concrete_or_error", (_NUMPY + "lax_numpy._arange", _LAX + "lax.broadcasted_iota")),
        Name("jax._src.util.operator.index", ("jax._src.util.canonicalize_axis",)),
        Name(_LAX + "convolution.operator.index", (_LAX + "convolution.conv_general_dilated",)),
        Name(_NUMPY + "fft.operator.index", (_NUMPY + "fft._fft_core",)),
    ),
    *_replaced(
        "JAX computes in Python with the number of elements, which would be a program for each number",
        "size_questions",
        Name(_NUMPY + "hijax._searchsorted_scan_impl", (_NUMPY + "hijax._searchsorted_impl",)),
        Name(_NUMPY + "lax_numpy._split", (_NUMPY + "lax_numpy.array_split",)),
        Name(_NUMPY + "lax_numpy._squeeze", (_NUMPY + "lax_numpy.squeeze",)),
        Name(_NUMPY + "lax_numpy._tile_to_size", (_NUMPY + "lax_numpy.fill_diagonal",)),
        Name(_NUMPY + "lax_numpy.lax_utils.int_dtype_for_dim", (_NUMPY + "lax_numpy.searchsorted",)),
        Name(_NUMPY + "setops.lax_utils.int_dtype_for_dim", (_NUMPY + "setops._intersect1d_sorted_mask",)),
        Name("jax._src.random._shuffle", ("jax._src.random.permutation",), before=(0, 10, 2)),
        Name("jax._src.random.core._shuffle", ("jax._src.random.core.permutation",), since=(0, 10, 2)),
    ),
    *_replaced(
        "JAX halves the number of elements until one is left",
        "associative_scan",
        Name(_LAX + "control_flow.loops.associative_scan"),
    ),
    *_replaced(
        "numpy makes an array of objects of a list of sizes",
        "size_questions",
        Name(_LAX + "slicing.np.array", (_LAX + "slicing._slice_impl",)),
    ),
    *_replaced(
        "arithmetic of sizes with numbers is exact until it meets an array, as Python's is",
        "size_numbers",
        *_within(_SIZES + "_DimExpr", f"__divmod__ __rdivmod__ {_ARITHMETIC}"),
        *_within("jax._src.core.Tracer", f"__neg__ {_ARITHMETIC}"),
        *_within("jax.numpy", "power"),
        Name(_NUMPY + "ufuncs.power"),
    ),
    *_replaced(
        "a size that becomes an element has the type that Python's number would get, and a check that it fits",
        "size_numbers",
        *_within(_SIZES + "_DimExpr", "__jax_array__ dimension_as_value"),
        Name("jax._src.core.dimension_as_value", (_NUMPY + "indexing._normalize_index",)),
        Name(_LAX + "lax._const", (_LAX + "control_flow.loops._scan_impl",)),
        Name(_LAX + "lax._convert_element_type", (_LAX + "lax.convert_element_type", _LAX + "lax.full")),
        Name(_LAX + "lax.asarray", (_LAX + "lax.broadcast", _NUMPY + "util.promote_dtypes")),
        Name(_NUMPY + "array_constructors.array", (_NUMPY + "array_constructors.asarray",)),
        Name("jax.numpy.array", (_NUMPY + "fft.fftfreq",)),
        Name(_NUMPY + "index_tricks.array", (_NUMPY + "index_tricks._AxisConcat.__getitem__",)),
        Name(_NUMPY + "lax_numpy.array"),
    ),
    *_replaced(
        "JAX makes an i32 of a size among the arguments, or takes it for a constant",
        "size_numbers",
        *_within("jax.numpy", "roll"),
        Name(_NUMPY + "lax_numpy.roll"),
        Name(_NUMPY + "lax_numpy._arange_dynamic", (_NUMPY + "lax_numpy._arange",)),
        Name(_NUMPY + "lax_numpy._eye", (_NUMPY + "lax_numpy.eye",)),
        Name(_NUMPY + "indexing.core.is_constant_dim", (_NUMPY + "indexing._normalize_index",)),
        Name("jax._src.prng.random_seed", before=(0, 10, 2)),
        Name("jax._src.random.prng.random_seed", since=(0, 10, 2)),
    ),
    *_replaced(
        "the arithmetic of a shape is one op a size, which JAX would trace and lower for every shape",
        "size_numbers",
        Name(
            "jax._src.interpreters.mlir.eval_dynamic_shape",
            ("jax._src.interpreters.mlir.eval_dynamic_shape_as_tensor",),
        ),
    ),
    *_replaced(
        "MLIR's dialects that programs have no ops of are not loaded for each program",
        "lowering_contexts",
        Name("jax._src.interpreters.mlir.JaxIrContext", ("jax._src.interpreters.mlir.make_ir_context",)),
    ),
)

# What we call or read: where a name is missing in the middle of a trace, tracing would be said to have failed.
READ = (
    *_within(_SIZES[:-1], "_DimExpr _DimExpr.__ne__ _DimExpr._hash _DimExpr._scope __file__"),
    Name(_NUMPY + "lax_numpy.iscomplexobj"),
    *_within(
        "jax._src.core",
        "Primitive ShapedArray Tracer __file__ __name__ dim_value_aval dim_value_dtype dimension_as_value eval_context "
        "is_constant_dim is_constant_shape jaxpr_as_fun max_dim min_dim physical_aval",
    ),
    *_within("jax._src.callback", "_FlatCallback pure_callback_p pure_callback_impl io_callback_p io_callback_impl"),
    *_within("jax._src.debugging", "debug_callback_p debug_callback_impl debug_print_p debug_print_impl"),
    *_within("jax._src.dtypes", "canonicalize_dtype canonicalize_value default_float_dtype default_int_dtype float0"),
    *_within(
        "jax._src.interpreters.mlir",
        "LoweringParameters aval_to_ir_type custom_call eval_dynamic_shape_as_tensor lower_fun multi_broadcast_in_dim "
        "register_lowering",
    ),
    *_within("jax._src.source_info_util", "current user_frames"),
    *_within(_LAX + "control_flow.loops", "_scan_impl scan_p"),
    *_within(_LAX + "fft", "_fft_lowering fft_p"),
    *_within(
        _LAX + "lax",
        "_clip_int_to_valid_range _composite_lowering _integer_pow_lowering _sort_le_comparator _sort_lt_comparator "
        "add add_p broadcast_in_dim composite_p convert_element_type dtype integer_pow integer_pow_p max_p min_p "
        "reduce_max reduce_min reduce_sum reshape rng_uniform_p",
    ),
    *_within(
        _LAX + "linalg",
        "_hessenberg_cpu_lowering _triu cholesky_update_p geqp3 geqrf hessenberg_p householder_product qr_p",
    ),
    *_within(_LAX + "parallel", "pmax_p pmin_p psum_p"),
    Name(_LAX + "parallel._allreduce_lowering", before=(0, 11, 2)),
    Name(_LAX + "parallel._all_reduce_lowering", since=(0, 11, 2)),
    Name(_LAX + "utils.int_dtype_for_dim"),
    *_within(_NUMPY[:-1], "einsum.__file__ util._where util.promote_dtypes_numeric vectorize.__file__"),
    Name(
        _NUMPY + "einsum._einsum.<locals>.filter_singleton_dims",
        variables=("operand", "names", "other_shape", "other_names"),
    ),
    *_within("jax._src.random", "_split _random_bits", before=(0, 10, 2)),
    *_within("jax._src.random.core", "_split _random_bits", since=(0, 10, 2)),
)


def check(rows: tuple[Name, ...] = (*REPLACED, *READ)) -> None:
    """Raise ImportError if JAX lacks a name of its version, or does not look it up."""
    version = jax.__version_info__
    wrong = [text for row in rows if row.since <= version < row.before if (text := _what_is_wrong(row))]
    if wrong:
        raise ImportError(
            f"hlo_disc cannot compile functions of JAX with JAX {jax.__version__}, inside of which names have changed: "
            f"{'; '.join(wrong)}. Install a version that hlo_disc allows, or report it where it is allowed"
        )


def _what_is_wrong(row: Name) -> str:
    """Return "" if the name exists and is looked up, else the problem."""
    found = _found(row.name)
    if found is None:
        return f"there is no {row.name}"
    code = found if isinstance(found, CodeType) else None
    if missing := [
        name for name in row.variables if code is None or name not in (*code.co_varnames, *code.co_freevars)
    ]:
        return f"{row.name} has no {', '.join(missing)}"
    if strangers := [user for user in row.users if not _looks_up(user, *row.name.rsplit(".", 1))]:
        return f"{row.name} is not used by {', '.join(strangers)}"
    return ""


def _found(name: str) -> object:
    """Look up the object or inner code of that name; None if there is none."""
    name, _, inner = name.partition(".<locals>.")
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return None
    if not inner:
        return found
    codes = getattr(getattr(inspect.unwrap(found), "__code__", None), "co_consts", ())
    return next((code for code in codes if isinstance(code, CodeType) and code.co_name == inner), None)


def _looks_up(user: str, place: str, name: str) -> bool:
    """Whether a function looks a name up in this module, and not among its own imports."""
    function = inspect.unwrap(_found(user) or user)  # type: ignore[arg-type]
    if not isinstance(function, FunctionType) or name not in _names(function.__code__):
        return False
    return name not in function.__globals__ or function.__globals__ is vars(_found(place))


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names that the code and the functions in it look up."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
