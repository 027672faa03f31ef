"""Python functions that a JAX program calls as it runs: pure, io and debug callbacks, and `jax.debug.print`.

Each is lowered to a custom call of ours, which names the function by a number. Tokens are ignored: ops with effects
stay in the order of the program. A function gets JAX's own arrays.
"""

from __future__ import annotations

import functools
import gc
import types
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax._src import callback, core, debugging, dtypes
from jax._src.interpreters import mlir

from hlo_disc.errors import CallError
from hlo_disc.import_.handlers.library import CALLBACK
from hlo_disc.import_.jax_edge.size_questions import is_size, settle
from hlo_disc.mlir import MlirValue, ir

if TYPE_CHECKING:
    from jax.typing import ArrayLike


_PRIMITIVES = (
    (callback, "pure_callback"),
    (callback, "io_callback"),
    (debugging, "debug_callback"),
    (debugging, "debug_print"),
)
_ATOMS = (type(None), bool, int, float, complex, str, bytes)
# What a function reaches and its sizes are not in, or are not its own.
_ELSEWHERE = (*_ATOMS, type, types.ModuleType, types.CodeType, np.ndarray, jax.Array)


class CallbackError(CallError, jax.errors.JaxRuntimeError):  # type: ignore[misc]  # JAX's error has no type
    """A callback failed: it raised the cause of this error, or returned a result of another type."""


class Callback:
    """A Python function that a program calls. Equal ones compute the same; their equal texts decide that.

    run: the function that JAX calls with the arrays, and with `params` by name. types: those of the results.
    """

    def __init__(
        self,
        name: str,
        run: Callable[..., Sequence[ArrayLike]],
        params: Mapping[str, object],
        types: Sequence[np.dtype],
    ):
        self.name, self._run, self._params, self._types = name, run, params, tuple(types)
        self._key = (name, *(_identity(params[key], ()) for key in sorted(params)), *map(str, types))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Callback) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __str__(self) -> str:
        return str(self._key)

    def __call__(
        self, where: str, operands: Sequence[np.ndarray], shapes: Sequence[tuple[int, ...]]
    ) -> list[np.ndarray]:
        """Call the function. Returns the results as a program takes them. where: the op with the user's line, for
        messages."""
        try:
            with core.eval_context():  # the program may run while JAX traces something else
                return self._checked(self._run(*operands, **self._params), shapes)
        except Exception as error:
            raise CallbackError(f"{where} failed: {type(error).__name__}: {error}") from error

    def _checked(self, results: Sequence[ArrayLike], shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
        """Apply JAX's own checks of returned values, and its conversions."""
        if len(results) != len(shapes):
            raise RuntimeError(f"it returned {len(results)} results, {len(shapes)} are expected")
        arrays = []
        for number, (result, shape, dtype) in enumerate(zip(results, shapes, self._types, strict=True)):
            array = np.asarray(result)
            if array.dtype != dtype:
                array = np.asarray(dtypes.canonicalize_value(array))
            if array.shape != shape:
                raise RuntimeError(f"its result {number} has shape {array.shape}, {shape} is expected")
            if array.dtype != dtype:
                raise RuntimeError(f"its result {number} has dtype {array.dtype}, {dtype} is expected")
            arrays.append(np.require(array, requirements=["C", "A"]))
        return arrays


def rules(callbacks: list[Callback]) -> Iterator[tuple[core.Primitive, Callable[..., Sequence[MlirValue]]]]:
    """Return the primitives with their lowerings, which add to `callbacks`: custom calls name functions by their index
    there."""
    for module, name in _PRIMITIVES:
        run = getattr(module, f"{name}_impl")
        yield getattr(module, f"{name}_p"), functools.partial(_lower, callbacks, name, run)


def _lower(
    callbacks: list[Callback],
    name: str,
    run: Callable[..., Sequence[ArrayLike]],
    ctx: mlir.LoweringRuleContext,
    *args: MlirValue,
    **params: object,
) -> Sequence[MlirValue]:
    avals = [core.physical_aval(aval) for aval in ctx.avals_out]
    if "result_avals" in params:
        params["result_avals"] = None  # nobody reads them, and their sizes are those of the trace
    _settle_sizes(params.values())
    callbacks.append(Callback(name, run, params, [aval.dtype for aval in avals]))
    ctx.set_tokens_out(ctx.tokens_in)
    fixed = all(core.is_constant_shape(aval.shape) for aval in avals)
    return mlir.custom_call(
        CALLBACK,
        result_types=[mlir.aval_to_ir_type(ctx.module_context, aval) for aval in avals],
        operands=args,
        backend_config={"number": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(callbacks) - 1)},
        has_side_effect=name != "pure_callback",
        result_shapes=None if fixed else [mlir.eval_dynamic_shape_as_tensor(ctx, aval.shape) for aval in avals],
        api_version=4,
    ).results


def _settle_sizes(things: Iterable[object]) -> None:
    """Replace the sizes in a function's closure by numbers: at run time, traced sizes have no meaning."""
    todo, seen = list(things), set[int]()
    while todo:
        thing = todo.pop()
        if id(thing) in seen or isinstance(thing, _ELSEWHERE):
            continue
        seen.add(id(thing))
        if is_size(thing):
            settle(thing)
            continue
        outside = getattr(thing, "__globals__", None)
        todo += [x for x in gc.get_referents(thing) if x is not outside]


def _identity(thing: object, within: tuple[int, ...]) -> Hashable:
    """Return a key equal for the same object, and for functions with the same code that read the same values."""
    if isinstance(thing, _ATOMS):
        return type(thing).__name__, repr(thing)
    if isinstance(thing, jax.tree_util.PyTreeDef):
        return str(thing), hash(thing)
    kind: Any
    parts: Sequence[Any]
    match thing:
        case _ if id(thing) in within:
            return within.index(id(thing))
        case types.FunctionType():
            cells = [_content(cell) for cell in thing.__closure__ or ()]
            named = sorted((thing.__kwdefaults__ or {}).items())
            parts = [*cells, thing.__defaults__, *map(tuple, named)]
            kind = id(thing.__code__), id(thing.__globals__)
        case functools.partial():
            parts, kind = [thing.func, thing.args, tuple(sorted(thing.keywords.items()))], "partial"
        case types.MethodType():
            parts, kind = [thing.__func__, thing.__self__], "method"
        case tuple():
            parts, kind = thing, type(thing).__name__
        case dict():  # JAX's static arguments of a debug callback
            parts, kind = list(thing.items()), "dict"
        case callback._FlatCallback():
            parts, kind = [thing.callback_func, thing.in_tree], "callback"
        case _:
            return id(thing)
    return kind, *(_identity(part, (*within, id(thing))) for part in parts)


def _content(cell: types.CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # nothing is in it yet
        return cell
