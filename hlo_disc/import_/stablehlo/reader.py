"""Reads a program op by op, and evaluates shape arithmetic to symbolic sizes on the way.

The reader visits every op once, in order. It evaluates shape arithmetic (shapes.py); everything else becomes DHLO ops
(handlers). It follows function calls, so each is specialised to the sizes at its call. Conditions on sizes become
guards, in the order of the program.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Guard, Region, Shape, Value, isolated
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.errors import CompileError, HloDiscError, ShapeError, UnsupportedOpError
from hlo_disc.import_.construction import Construction
from hlo_disc.import_.handlers import HANDLERS
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.handlers.views import make_broadcast
from hlo_disc.import_.sizes import symbols
from hlo_disc.import_.sizes.datadims import DataDims
from hlo_disc.import_.sizes.elements import Compare, Element, conjuncts, constant_value, is_not_empty
from hlo_disc.import_.sizes.shapes import Evaluator, Operand, Symbolic, Token, is_opaque
from hlo_disc.import_.stablehlo.decode import Decoder, TypeShape, is_token, location_name, text
from hlo_disc.import_.stablehlo.policy import JAX, Origin, StaticShapes
from hlo_disc.mlir import MlirValue, ir

if TYPE_CHECKING:
    from hlo_disc.import_.jax_edge.jax_callbacks import Callback

T = TypeVar("T")
Known = tuple[np.dtype, tuple[int, ...], tuple[Element, ...]]  # a type, sizes and elements

_TYPES = 200  # characters of the types of an op in a message
# What is followed of a program: more would take minutes and gigabytes, and doubles with every level of calls.
_MOST_CALLS, _MOST_REGIONS, _MOST_OPS = 200, 64, 1 << 18
_RETURNS = ("func.return", "stablehlo.return", "tf.return")
# A message that names an op already: of the usual dialects, or as `Reader.unsupported` begins.
_NAMED = re.compile(r"\b(stablehlo|chlo|func|tf)\.\w|^\w+\.[\w.]+ : \(")


class NeedsLegalising(Exception):
    """Raised for an op that StableHLO's own passes can decompose."""


class _Env(dict[MlirValue, Operand]):
    """The operands that the values of a block stand for; other values are looked up in the enclosing block."""

    outer: Mapping[MlirValue, Operand] | None = None

    def __missing__(self, value: MlirValue) -> Operand:
        if self.outer is None:
            raise KeyError(value)
        return self.outer[value]


class Reader(Construction):
    """The state of one import; handlers use its methods."""

    is_opaque = staticmethod(is_opaque)
    is_token = staticmethod(is_token)

    def __init__(
        self,
        functions: Mapping[str, ir.OpView],
        decoder: Decoder,
        policy: StaticShapes,
        origin: Origin,
        legal: bool = True,
        callbacks: Sequence[Callback] = (),
    ):
        super().__init__()
        self.legal = legal  # CHLO and shape ops that are left have no StableHLO form
        self.callbacks = callbacks  # Python functions that the program calls, by number
        self.decoder = decoder
        self.policy = policy
        self.origin = origin
        self.evaluator = Evaluator(self.facts, decoder, scalars_only=not policy.trusts_types)
        self.functions = functions
        self.op: Any = None
        self.data_dims = DataDims(self)
        self._env = _Env()
        self._call_sites: list[Any] = []
        self._made: list[Symbolic] = []  # values of these were made in the current region
        self._attributes: dict[ir.Attribute, Value] = {}
        self._sizes: dict[tuple[Dim, np.dtype], Value] = {}
        # What functions make of sizes alone: JAX divides by calling one, in the same way for every layer.
        self._calls: dict[tuple[str, tuple[Known | None, ...]], list[Operand]] = {}
        self._followed = 0

    # Following the program

    def call(self, name: str, operands: Sequence[Operand]) -> list[Operand]:
        """Call a function of the module. Returns its results."""
        function = self.functions.get(name)
        if function is None or not function.regions[0].blocks:
            self.unsupported(f"the module has no body for @{name}")
        if len(self._call_sites) > _MOST_CALLS:
            self.unsupported("calls are nested too deeply: a function must not call itself")
        key = (name, tuple(map(_known, operands)))
        found = self._calls.get(key) if None not in key[1] else None
        if found is None:
            self._call_sites.append(self.op)
            found = self.run(function.regions[0].blocks[0], operands)
            self.op = self._call_sites.pop()
            if None not in key[1] and None not in map(_known, found):
                self._calls[key] = found
        return found

    def region(
        self, region: ir.Region, inputs: Sequence[Value], operands: Sequence[Operand] | None = None
    ) -> tuple[Region, tuple[Value, ...]]:
        """Read an op's region. Returns it, and the values from outside that it reads, which are its last inputs.

        inputs: new values without an op, the region's first inputs. operands: one for each argument, by default the
        inputs. An operand of the enclosing program is captured if the region reads it.
        """
        with self.inside():
            returned = self.run(region.blocks[0], inputs if operands is None else operands, self._env)
            results = [self.data(x) for x in returned if not isinstance(x, Token)]
            ops = self.builder.ops
        return isolated(inputs, ops, results)

    def probe(self, region: ir.Region, operands: Sequence[Operand]) -> list[Operand]:
        """Read a region and discard its ops. Returns its results, which some handlers need in advance."""
        guards, required = len(self.guards), set(self._required)
        with self.inside():
            returned = self.run(region.blocks[0], operands, self._env)
        del self.guards[guards:]
        self._required = required
        return returned

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Collect ops in another builder; values computed there from sizes are not shared with the outside."""
        if self.nested >= _MOST_REGIONS:
            self.unsupported(f"regions are nested more than {_MOST_REGIONS} deep")
        op, outer, caches = self.op, self.builder, (self._constants, self._attributes, self._sizes, self._made)
        self.builder = GraphBuilder(self.facts)
        self._constants, self._attributes, self._sizes = dict(caches[0]), dict(caches[1]), dict(caches[2])
        self._made = []
        self.nested += 1
        scalars = dict(self.evaluator.scalars)
        try:
            yield
        finally:
            self.nested -= 1
            self.evaluator.scalars = scalars
            for symbolic in self._made:
                symbolic.value = None  # made inside, of no use outside
            self.op, self.builder = op, outer
            self._constants, self._attributes, self._sizes, self._made = caches

    def run_inline(self, region: ir.Region) -> list[Operand]:
        """Read a region without arguments as if its ops stood in place of the current one. Returns its results."""
        return self.run(region.blocks[0], [], self._env)

    def run(
        self, block: ir.Block, operands: Sequence[Operand], outer: Mapping[MlirValue, Operand] | None = None
    ) -> list[Operand]:
        """Read a block. Returns its results. outer: the operands that values of the enclosing block stand for."""
        saved = self._env
        env = self._env = _Env(zip(block.arguments, operands, strict=True))
        env.outer = outer
        try:
            return self._run(block, env)
        except (CompileError, ShapeError, UnsupportedOpError) as error:
            if _NAMED.search(str(error)):
                raise
            if isinstance(error, ShapeError):
                raise ShapeError(f"{self.describe()}: {error}") from None
            self.unsupported(str(error))  # what MLIR's verifier does not know of the op, inference does
        except RecursionError:
            self.unsupported("calls and regions are nested too deeply around it")
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            if isinstance(error, HloDiscError):
                raise
            raise CompileError(f"{self.describe()}: hlo_disc fails to read it: {error!r}") from error
        finally:
            self._env = saved

    def _run(self, block: ir.Block, env: _Env) -> list[Operand]:
        evaluate = self.evaluator.evaluate
        for op in block.operations:
            name = op.operation.name
            args = [env[value] for value in op.operands]
            if name in _RETURNS:
                return args
            self.op = op
            self._followed += 1
            if self._followed > _MOST_OPS:
                self.unsupported(f"it is one op too many: {_MOST_OPS} are compiled, counted at each call of a function")
            symbolic = evaluate(name, op, args)
            if symbolic is not None and symbolic.exact:
                env[op.results[0]] = symbolic
                continue
            handler = self.handler(name)
            if handler is None:
                self.unknown(name)
            result = handler(self, op, args)
            if isinstance(result, Value):
                if self.policy.trusts_types:
                    self._check_type(op.results[0], result)
                if symbolic is not None:
                    symbolic.value = result
                    env[op.results[0]] = symbolic
                    if not symbolic.sizes and isinstance(symbolic.elements[0], Dim):
                        self.evaluator.scalars[symbolic.elements[0]] = result
                else:
                    env[op.results[0]] = result
            else:
                results = [result] if isinstance(result, Operand) else result
                for value, operand in zip(op.results, results, strict=False):
                    if isinstance(operand, Value) and self.policy.trusts_types:
                        self._check_type(value, operand)
                    env[value] = operand
        return []

    @staticmethod
    def handler(name: str) -> Handler | None:
        """Look up the handler of the ops of a name."""
        return HANDLERS.get(name)

    def unknown(self, name: str) -> NoReturn:
        """Refuse an op without a handler; one that can be decomposed is read again as its parts."""
        if name.startswith(("chlo.", "shape.")) and not self.legal:
            raise NeedsLegalising
        self.unsupported()

    def need_types(self, op: ir.OpView, values: Sequence[Value]) -> None:
        """Require that an op's results have the types that the module writes, if the verifier knows little of it."""
        if len(values) != len(op.results):
            self.unsupported(f"it has {len(op.results)} results where {len(values)} are made")
        for number, (result, value) in enumerate(zip(op.results, values, strict=True)):
            dtype, sizes = self.decoder.tensor(result.type)
            if value.dtype != dtype or value.rank != len(sizes):
                self.unsupported(f"result {number} is {value!r}, which its type does not say")
            if self.policy.trusts_types:
                for axis, (size, d) in enumerate(zip(sizes, value.shape, strict=True)):
                    if size is not None:
                        self.equal(d, Dim.const(size), f"dimension {axis} of result {number} and what its type says")

    def _check_type(self, result: ir.OpResult[ir.Type], value: Value) -> None:
        """Require that the sizes that the module writes are the inferred ones."""
        for axis, (size, d) in enumerate(zip(self.decoder.tensor(result.type)[1], value.shape, strict=True)):
            if size is not None and (not d.is_const or d.value != size):
                self.equal(d, Dim.const(size), f"result dimension {axis} and what its type says")

    # What handlers ask for

    def attr(self, op: ir.OpView, name: str, decode: Callable[[ir.Attribute], T]) -> T:
        """Return an attribute, decoded once for each distinct one."""
        return self.decoder.attribute(op.attributes[name], decode)

    def result_type(self, op: ir.OpView) -> tuple[np.dtype, TypeShape]:
        return self.decoder.tensor(op.results[0].type)

    def static_sizes(self, op: ir.OpView) -> tuple[int, ...]:
        """Return the result's sizes of an op whose shape is given only by its type."""
        sizes = self.decoder.static_tensor(op.results[0].type)[1]
        if sizes is None:
            self.unsupported("this form of the op needs a result type of static shape")
        return sizes

    def location(self) -> str:
        """Return the user's line of the current op, or of the call that led to it; the op's name if there is none."""
        if self.op is None:
            return ""
        line = self.decoder.line(self.op)
        if line:
            return line
        for site in reversed(self._call_sites):
            if line := self.decoder.line(site):
                return line
        return location_name(self.op.location)

    def dense(self, attribute: ir.Attribute, value: np.ndarray) -> Value:
        """Return a constant of the module; equal ones are one attribute there, and one value here."""
        found = self._attributes.get(attribute)
        if found is None:
            found = self._attributes[attribute] = self.constant(value)
        return found

    def data(self, x: Operand) -> Value:
        """Return the operand as a tensor of the graph."""
        if type(x) is Value:
            return x
        if not isinstance(x, Symbolic):
            self.unsupported("it is given a tuple or a token, which is no tensor")
        if x.value is None:
            x.value = self._materialise(x) if x.source is None else self._compute(*x.source)
            self._made.append(x)
        return x.value

    def _compute(self, op: ir.OpView, operands: Sequence[Operand], handler: Handler | None) -> Value:
        """Compute the result of an op as data, now that it is needed."""
        current, self.op = self.op, op
        handler = handler or self.handler(op.operation.name)
        if handler is None:
            self.unknown(op.operation.name)
        result = handler(self, op, list(operands))
        self.op = current
        return self.data(result if isinstance(result, Operand) else result[0])

    @staticmethod
    def constant_of(x: Operand) -> int | None:
        """Return the number of a scalar, if it is known."""
        return constant_value(x.elements[0]) if isinstance(x, Symbolic) and x.is_known and not x.sizes else None

    def _materialise(self, x: Symbolic) -> Value:
        values = [v for v in map(constant_value, x.elements) if v is not None]
        if len(values) == len(x.elements):
            return self.constant(np.array(values, x.dtype).reshape(x.sizes))
        scalars = [self._scalar(e, x.dtype) for e in x.elements]
        if not x.sizes:
            return scalars[0]
        rows = [self.emit("reshape", (s,), shape=(ONE,)) for s in scalars]
        vector = rows[0] if len(rows) == 1 else self.emit("concatenate", rows, dim=0)
        return vector if len(x.sizes) == 1 else self.emit("reshape", (vector,), shape=tuple(map(Dim.const, x.sizes)))

    def _scalar(self, element: Element, dtype: np.dtype) -> Value:
        if dtype.kind == "b":
            zero = self.constant(np.zeros((), np.int64))
            number = self._scalar(self.evaluator.scalar.number(element), np.dtype(np.int64))
            return self.emit("compare", (number, zero), direction="NE")
        assert isinstance(element, Dim)
        if element.is_const:
            return self.constant(np.array(element.value, dtype))
        key = element, dtype
        found = self._sizes.get(key)
        if found is None:
            found = self._sizes[key] = self.emit("dim", expr=element, dtype=dtype)
        return found

    def element(self, vector: Value, i: int) -> Value:
        """Return one element of a tensor, counted in row-major order, as a scalar."""
        if vector.rank != 1:
            vector = self.emit("reshape", (vector,), shape=(dim_product(vector.shape),))
        row = self.emit("slice", (vector,), start=(Dim.const(i),), limit=(Dim.const(i + 1),), stride=(1,))
        return self.emit("reshape", (row,), shape=())

    def start_index(self, d: Dim, last: Dim) -> Value | None:
        """Return a slice's start as a scalar, if it is a size or `clamp(0, data, last)`; else None."""
        if not is_opaque(d):
            return self._scalar(d, np.dtype(np.int64))
        for source, (tensor, i) in self.evaluator.sources.items():
            if source.symbols <= d.symbols and self._starts_at(d, source, last):
                return tensor if not tensor.shape else self.element(tensor, i)
        for source, scalar in self.evaluator.scalars.items():
            if source.symbols <= d.symbols and self._starts_at(d, source, last):
                return scalar
        return None

    def _starts_at(self, d: Dim, source: Dim, last: Dim) -> bool:
        """Is `d` the start `source`, perhaps after clamping?"""
        scalar = self.evaluator.scalar
        return d is source or d is scalar.minimum(scalar.maximum(source, ZERO), last)

    def elements(self, x: Operand) -> Shape:
        """Return the elements of an integer vector of sizes."""
        symbolic = x if type(x) is Symbolic else self.evaluator.opaque(x)  # type: ignore[arg-type]
        if symbolic is None:
            self.unsupported("it is given more sizes than shapes have, or their number is not known")
        self._need_no_wrapping(symbolic)
        return tuple(map(self.evaluator.scalar.number, symbolic.elements))

    def _need_no_wrapping(self, x: Symbolic) -> None:
        """Require that sizes did not wrap: that they are the results of integers of any length."""
        for d, dtype in sorted(x.wraps, key=str):
            for relation, limit in (("<=", np.iinfo(dtype).max), (">=", np.iinfo(dtype).min)):
                message = f"a size is computed in {dtype}, which does not hold {symbols.escape(str(d))}, {{0}}"
                self.require(d, relation, Dim.const(int(limit)), message, (d,), is_fact=False)

    def dims(self, x: Operand) -> Shape:
        """Return the elements of an integer vector. Data-dependent ones become symbols; some may be negative."""
        return tuple(map(self.data_dims.number, self.elements(x)))

    def sizes(self, x: Operand) -> Shape:
        """Return the elements of an integer vector as the shape of a tensor: none is negative. Raises ShapeError."""
        shape = self.tensor_shape(self.elements(x))
        for axis, d in enumerate(shape):
            if not d.is_const:
                self.require(d, ">=", ZERO, f"dimension {axis} of the result would have the size {{0}}", (d,))
            elif d.value < 0:
                raise ShapeError(f"{self.describe()}: dimension {axis} of the result would have the size {d}")
        return shape

    def tensor_shape(self, shape: Shape) -> Shape:
        """Return a shape with a symbol for each size that depends on data."""
        return tuple(self.data_dims.size(d, f"dimension {axis} of the result") for axis, d in enumerate(shape))

    def constants(self, shape: Shape, what: str) -> tuple[int, ...]:
        """Return sizes that must be known when compiling."""
        for d in shape:
            if not d.is_const:
                self.unsupported(f"{what} must be constant, not '{d}'")
        return tuple(d.value for d in shape)

    @property
    def definitions(self) -> Mapping[str, Value]:
        return self.data_dims.definitions

    def wider(self, a: Dim, b: Dim, axis: int) -> Dim:
        """Return the size to which two broadcast, by numpy's rule: any size may turn out to be 1 at a call."""
        if a is ONE or b is ONE:
            return b if a is ONE else a
        if self.facts.equal(a, b) is Truth.YES:
            return a if a.is_const else b
        if a.is_const or b.is_const:
            return a if a.is_const else b  # the other is this or 1, which broadcasting it asks for
        if not (a.symbols | b.symbols).isdisjoint(self.definitions):
            # What only the run knows is no size of 1 that is spread: the shape of the result must be known before.
            self.equal(a, b, "sizes of the operands, of which one depends on data,")
            return a
        return self.evaluator.scalar.broadcast(a, b)

    def broadcast(self, x: Value, shape: Shape, dims: tuple[int, ...] | None = None) -> Value:
        return make_broadcast(self, x, shape, tuple(range(len(shape) - x.rank, len(shape))) if dims is None else dims)

    # Conditions on sizes

    def equal(self, a: Dim, b: Dim, what: str) -> None:
        if a is not b and not self.policy.bind(self, a, b):
            super().equal(a, b, what)

    def agree(self, a: Dim, b: Dim, what: str) -> None:
        """Require the same sizes in all branches, or all iterations of a loop, as `equal` does."""
        self.equal(a, b, what)

    def describe(self) -> str:
        """Return the current op with its source line, for messages."""
        where = self.location()
        return f"{self.op.operation.name}{f' at {where}' if where else ''}"

    def unsupported(self, reason: str = "") -> NoReturn:
        """Refuse the current op, with its types and source line."""
        op = self.op
        types = f"({', '.join(str(v.type) for v in op.operands)}) -> ({', '.join(str(v.type) for v in op.results)})"
        types = types if len(types) <= _TYPES else f"{types[:_TYPES]}…"
        where = self.location()
        aside = "; what is around it compiles where jax.pure_callback calls it" if self.origin == JAX else ""
        what = (reason or "this op is not supported") + aside
        raise UnsupportedOpError(f"{op.operation.name} : {types}{f' at {where}' if where else ''}: {what}")

    def assertion(self, op: ir.OpView, operands: Sequence[Operand]) -> Sequence[Operand]:
        """Read a framework's `shape_assertion`: a guard with the framework's message."""
        condition, *values = operands
        if type(condition) is not Symbolic or not condition.exact:
            self.unsupported("an assertion about data is not supported")
        self._need_no_wrapping(condition)
        given = [d for x in values for d in (x.elements if type(x) is Symbolic else (ZERO,))]
        args = tuple(d for d in given if isinstance(d, Dim) and not is_opaque(d))
        if len(args) < len(given):
            args = ()
        message = symbols.message(self.attr(op, "error_message", text), len(args))
        for part in conjuncts(condition.elements[0]):
            if part is True or (self.origin.allow_zero and is_not_empty(part)):
                continue
            if part is False:
                raise ShapeError(message.format(*args))
            if not isinstance(part, Compare):
                part = Compare("==", self.evaluator.scalar.number(part), ONE)
            if self.nested:
                self.emit_all("check", lhs=part.lhs, relation=part.relation, rhs=part.rhs, message=message, args=args)
                continue
            self._required.add((part.lhs, part.relation, part.rhs))
            self.guards.append(Guard(part.lhs, part.relation, part.rhs, message, args))
            symbols.add_fact(self.facts, part.lhs, part.relation, part.rhs)
        return ()


def _known(x: Operand) -> Known | None:
    """Return a comparable key of an operand whose elements are known sizes; None for all others."""
    return (x.dtype, x.sizes, x.elements) if type(x) is Symbolic and x.is_known else None
