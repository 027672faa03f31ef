"""Reads a graph of ATen ops, as PyTorch traces and exports them, into a DHLO graph.

Every node has a handler, a row of `HANDLERS` by the name of its op. PyTorch has found the type and symbolic shape of a
node's result. The reader uses them unchanged (`AtenReader.out`), so that no rule of shapes is written twice. PyTorch's
conclusions about symbols become guards and facts.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, NoReturn

import numpy as np
import sympy
import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import free_symbols

from hlo_disc.dynamic_hlo.ir.graph import Graph, Shape, Value, dims_in
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.errors import HloDiscError, UnsupportedOpError
from hlo_disc.frozen import frozen
from hlo_disc.import_.aten import floats, sizes
from hlo_disc.import_.aten.data import Data, is_negative, is_of_data, open_symbols
from hlo_disc.import_.aten.decompositions import decompositions
from hlo_disc.import_.aten.dtypes import DTYPES
from hlo_disc.import_.aten.imported import Imported, Interface
from hlo_disc.import_.aten.results import Results, fake_of, outputs_of
from hlo_disc.import_.aten.rows import HANDLERS
from hlo_disc.import_.aten.tensors import Tensors, arrays_of, values_of
from hlo_disc.import_.sizes import symbols

_LONG, _BEYOND = 8, 1 << 62  # terms; no size is as large
_ITEM = torch.ops.aten._local_scalar_dense.default
_LINE = re.compile(r'File "([^"]+)", line (\d+)')


class Type(NamedTuple):
    """The type of a result, as PyTorch has found it."""

    dtype: np.dtype
    shape: Shape


@frozen
class _Missing:
    """A placeholder for a tensor of an unsupported type."""

    why: str


class AtenReader(Tensors):
    """The state of one import; handlers use its methods.

    out: the type of the current node's result, the first of them where it has several (`outs`).
    """

    def __init__(self, module: GraphModule):
        super().__init__()
        self.module = module
        self.refused: dict[Node, str] | None = None  # where they are collected, ops that are not supported are no error
        self.node: Node = next(iter(module.graph.nodes))
        self.outs: tuple[Type, ...] = ()
        self._values: dict[Node, Any] = {}
        self._negative: dict[sympy.Symbol, sympy.Expr] = {}  # symbols that are, by others that are not
        self._sources: dict[Dim, Any] = {}  # PyTorch's numbers by what they are here
        self.data = Data(self)
        self.bound: set[str] = set()  # symbols that a call says
        self._has_data = any("unbacked_bindings" in node.meta for node in module.graph.nodes)
        self._callers: list[Node] = []  # of the graph that is read now, the innermost one last
        self._seed: Value | None = None
        self._drawn = 0

    # What `Construction` asks for

    @property
    def definitions(self) -> Mapping[str, Value]:
        return self.data.definitions

    def location(self) -> str:
        for node in (self.node, *reversed(self._callers)):
            file, line = line_of(node)
            if line:
                return f"{file}:{line}"
        return ""

    def describe(self) -> str:
        where = self.location()
        return f"{target_name(self.node)}{f' at {where}' if where else ''}"

    def unsupported(self, reason: str = "") -> NoReturn:
        types = ", ".join(_shown(x) for x in self.node.args)
        where = self.location()
        what = reason or "this op is not supported"
        raise UnsupportedOpError(f"{target_name(self.node)}({types}){f' at {where}' if where else ''}: {what}")

    # What handlers ask for

    @property
    def out(self) -> Type:
        return self.outs[0]

    def meta(self, number: int) -> torch.Tensor:
        """Return the fake tensor that PyTorch has for an argument, or the argument itself."""
        return fake_of(self.node.args[number])

    def fakes(self) -> list[object]:
        """List the fake tensors, or the arguments themselves, of all positional arguments but None."""
        return [fake for x in self.node.args if (fake := fake_of(x)) is not None]

    def value_of(self, node: Node) -> Any:
        """The value that an earlier node was converted to."""
        return self._values[node]

    def dim(self, size: torch.SymInt | int) -> Dim:
        """Return an int or a SymInt as a Dim."""
        return Dim.const(size) if isinstance(size, int) else self.dim_of(size.node.expr)

    def dim_of(self, expression: sympy.Expr) -> Dim:
        """Return a sympy expression as a Dim. Raises UnsupportedOpError if it is no size."""
        return self.data.dim(expression.xreplace(self._negative))

    def fixed(self, size: Dim | int) -> int:
        """Return a number that must be known when compiling: its value at this call. Others compile again."""
        if isinstance(size, int) or size.is_const:
            return int(size) if isinstance(size, int) else size.value
        if size not in self._sources or is_of_data(self._sources[size]):
            self.unsupported(f"{size} must be a constant")
        number = int(self._sources[size])
        self.facts.add_equal(size, number)
        return number

    def type(self, fake: torch.Tensor) -> Type:
        """Return the type. Raises UnsupportedOpError for unsupported element types."""
        if fake.dtype not in DTYPES:
            raise UnsupportedOpError(f"{self.describe()}: tensors of {fake.dtype} are not supported")
        return Type(DTYPES[fake.dtype], tuple(map(self.dim, fake.shape)))

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Collect ops in the builder of a region; values made there stay there."""
        builder, constants = self.builder, self._constants
        self.builder, self._constants = GraphBuilder(self.facts), dict(constants)
        self.nested += 1
        try:
            yield
        finally:
            self.nested -= 1
            self.builder, self._constants = builder, constants

    def traced(self, formula: Callable[..., object], fakes: Sequence[torch.Tensor]) -> GraphModule:
        """Trace a function of PyTorch's for tensors like these. Returns its graph."""
        with fakes[0].fake_mode, enable_python_dispatcher():
            return make_fx(formula, decomposition_table=decompositions())(*fakes)

    def _became(self, size: Dim, other: Dim, fake: torch.Tensor) -> bool:
        """Whether PyTorch has replaced a symbol by this since it was read, because a formula asked: it then has another
        graph."""
        made = {str(symbol): x for symbol, x in fake.fake_mode.shape_env.replacements.items()}
        return size is not other and str(size) in made and self.dim_of(made[str(size)]) is other

    def call(self, module: GraphModule, arrays: Sequence[object]) -> list[Any]:
        """Return the results of a graph, as `run` has them, as arrays."""
        return list(arrays_of(self, self.run(module, values_of(arrays))))

    def run(self, module: GraphModule, args: Sequence[object]) -> list[object]:
        """Return the results of a graph that the current op calls with these values, at the sizes of its trace."""
        outer, outs = self.module, self.outs
        *nodes, last = module.graph.nodes
        placeholders = [node for node in nodes if node.op == "placeholder"]
        for node, value in zip(placeholders, args, strict=True):
            known = node.meta.get("val")
            if isinstance(value, Value) and isinstance(known, torch.Tensor):
                for a, b in zip(value.shape, map(self.dim, known.shape), strict=True):
                    if self._became(a, b, known):
                        self.equal(a, b, "what was given, and what its graph was traced for,")
                    elif self.facts.equal(a, b) is not Truth.YES:
                        self.unsupported(f"its graph is called with {value!r}, and is for {_shown(node)}")
            self._values[node] = value
        self.module = module
        self._callers.append(self.node)
        try:
            for node in nodes:
                self._step(node)
            (output,) = last.args
            return [self.argument(x) for x in (output if isinstance(output, (list, tuple)) else (output,))]
        finally:
            self.module, self.node, self.outs = outer, self._callers.pop(), outs

    def seed(self) -> tuple[int, Value]:
        """Return a new number for each random op, and the seed of the call."""
        if self.nested:
            self.unsupported("random numbers inside a loop or a branch are not supported")
        if self._seed is None:
            self.unsupported("a program that is exported has no random numbers")
        self._drawn += 1
        return self._drawn, self._seed

    def used(self, number: int) -> bool:
        """Whether any op reads this result of the current op, which has several."""
        return any(user.target is not operator.getitem or user.args[1] == number for user in self.node.users)

    # The graph

    def read(
        self, constraints: Sequence[sympy.Basic], constants: Mapping[int, torch.Tensor], alone: bool = False
    ) -> Imported:
        """Read the program. constraints: conditions on its symbols. constants: placeholders that are constants.

        alone: all results are outputs of the program.
        """
        nodes = list(self.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        for i, tensor in constants.items():
            self._values[placeholders[i]] = self.constant(to_numpy(tensor))
        tensors, numbers, inputs = self._inputs(placeholders, all_numbers=alone)
        values, bindings = self._bind(inputs, [placeholders[i] for i in tensors], constraints)
        if alone:
            self._seed = None
        self._run(nodes)
        (output,) = nodes[-1].args
        returned = output if isinstance(output, (list, tuple)) else (output,)
        results, outputs, computed = (
            ((), outputs_of(self, returned), {}) if alone else Results(self, placeholders).of(returned)
        )
        names = tuple(x.name for x in inputs)
        if self._drawn and self._seed is not None:
            values, names = (*values, self._seed), (*names, "seed")
        graph = Graph(
            name="main",
            inputs=values,
            input_names=names,
            outputs=outputs,
            ops=tuple(self.builder.ops),
            facts=self.facts,
            bindings=bindings.symbols,
            guards=tuple(self.guards),
            definitions=self.definitions,
        )
        drawn = self._drawn > 0
        interface = Interface(len(placeholders), tensors, numbers, results, computed, drawn, dict(graph.bindings))
        return Imported(graph, interface)

    def collect(self, constraints: Sequence[sympy.Basic]) -> dict[Node, str]:
        """List the nodes that cannot be part of a program, with the reasons. The reader cannot be used afterwards."""
        self.refused = {}
        nodes = list(self.module.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        tensors, _, inputs = self._inputs(placeholders)
        self._bind(inputs, [placeholders[i] for i in tensors], constraints)
        self.bound.update(symbol.name for node in placeholders for symbol in free_symbols(node.meta.get("val")))
        self._run(nodes)
        return self.refused

    def _bind(
        self, inputs: Sequence[symbols.Input], tensors: Sequence[Node], constraints: Sequence[sympy.Basic]
    ) -> tuple[tuple[Value, ...], symbols.Bindings]:
        """Make the inputs, the first of which are those of `tensors`, and bind their symbols."""
        bindings = symbols.Bindings(inputs)
        self.bound.update(bindings.symbols)
        self.guards += bindings.guards()
        for d in {d for x in inputs for d in x.shape}:
            symbols.add_fact(self.facts, d, ">=", ZERO)
        for condition in constraints:
            known = sizes.relation(condition.xreplace(self._negative))
            if known and known[0].symbols | known[2].symbols <= bindings.symbols.keys():
                self._assume(*known)
        values = tuple(Value(x.dtype, x.shape, None, i) for i, x in enumerate(inputs))
        self._values.update(zip(tensors, values, strict=False))
        self._seed = Value(np.dtype(np.uint64), (), None, len(values))
        return values, bindings

    def _inputs(
        self, placeholders: Sequence[Node], all_numbers: bool = False
    ) -> tuple[tuple[int, ...], tuple[int, ...], list[symbols.Input]]:
        """Make the inputs: placeholders of tensors, and numbers (all, or those that no tensor's shape gives)."""
        open_ = [(i, node, node.meta.get("val")) for i, node in enumerate(placeholders) if node not in self._values]
        tensors, inputs = [], []
        self.data.of_arguments = True
        for i, node, x in open_:
            if not isinstance(x, torch.Tensor):
                continue
            self.node = node
            try:
                inputs.append(symbols.Input(str(node.target), *self.type(x)))
                tensors.append(i)
            except UnsupportedOpError as error:
                if self.refused is None:
                    raise
                self._values[node] = _Missing(str(error))
        self.data.of_arguments = False
        bare = {str(d) for x in inputs for d in x.shape if not d.is_const}
        numbers = []
        for i, node, x in open_:
            if not (isinstance(x, torch.SymInt) and x.node.expr.is_Symbol):
                continue
            name = x.node.expr.name
            if not all_numbers and (name in bare or not self._is_used(node, x.node.expr)):
                continue
            bare.add(name)
            negative = is_negative(x, asks=not all_numbers)
            above, below = Dim.symbol(f"{name}.p" if negative is None else name), Dim.symbol(f"{name}.n")
            if negative:
                self._negative[x.node.expr] = -sympy.Symbol(f"{name}.n", integer=True)
            elif negative is None:
                self.data.known[name] = above - below
            shape = ZERO if negative else above, ZERO if negative is False else below
            numbers.append(i)
            inputs.append(symbols.Input(str(node.target), np.dtype(bool), shape))
        if not inputs:
            inputs.append(symbols.Input("nothing", np.dtype(bool), (ZERO, ZERO)))
        return tuple(tensors), tuple(numbers), inputs

    def _is_used(self, number: Node, symbol: sympy.Symbol) -> bool:
        """Whether any node uses this number. An unused one may be missing, as the length of jagged rows."""
        others = (x.meta.get("val") for x in self.module.graph.nodes if x is not number)
        return bool(number.users) or any(symbol in free_symbols(value) for value in others)

    def _assume(self, lhs: Dim, relation: str, rhs: Dim) -> None:
        """Add a relation of sizes that PyTorch found to the facts; each call is checked for it.

        Long polynomials and inequalities of products are left out: they make proofs slow. Sums are checked anyway.
        """
        terms = lhs.terms + rhs.terms
        hard = max(len(lhs.terms), len(rhs.terms)) > _LONG or relation != "==" and any(len(x) > 1 for x, _ in terms)
        if hard or any(abs(number) >= _BEYOND for _, number in terms):
            return
        if self.facts.holds(lhs, relation, rhs) is Truth.UNKNOWN:
            self.guards.append(symbols.relation_guard(lhs, relation, rhs, f"{lhs} {relation} {rhs} must hold: "))
            symbols.add_fact(self.facts, lhs, relation, rhs)

    def _run(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            try:
                self._step(node)
            except Exception as error:  # a bug is none of the program's, which PyTorch runs
                if self.refused is None:
                    raise
                why = str(error) if isinstance(error, HloDiscError) else f"{self.describe()}: {error!r}"
                self.refused[node] = why
                self._values[node] = self._unknown(node.meta.get("val"))

    def _step(self, node: Node) -> None:
        self.node, known = node, node.meta.get("val")
        if node.op in ("placeholder", "output"):
            return
        if isinstance(known, (bool, torch.SymBool, torch.SymFloat)) and node.target != _ITEM:
            return  # until an op asks for it: see `argument`
        self._values[node] = self._made(node, known)

    def _made(self, node: Node, known: object) -> object:
        if node.op == "get_attr":
            return self._attribute(node)
        if isinstance(known, (torch.SymInt, int)) and node.target != _ITEM:
            return self._number(known)
        if node.target is operator.getitem:
            source, index = node.args
            return self._values[source][index]
        return self._handled(node, known)

    def _unknown(self, known: object) -> object:
        """Make a placeholder for the results of an unsupported op."""
        if isinstance(known, (tuple, list)):
            return [self._unknown(x) for x in known]
        self.bound |= open_symbols(known)
        try:
            if isinstance(known, torch.Tensor):
                return Value(*self.type(known))
            return self._number(known) if isinstance(known, (torch.SymInt, torch.SymBool)) else known
        except HloDiscError as error:
            return _Missing(str(error))

    def _handled(self, node: Node, known: object) -> object:
        handler = HANDLERS.get(target_name(node))
        if handler is None:
            self.unsupported()
        fakes = known if isinstance(known, (tuple, list)) else [known]
        self.outs = tuple(self.type(x) for x in fakes if isinstance(x, torch.Tensor))
        start = len(self.builder.ops)
        args = [arrays_of(self, self.argument(x)) for x in node.args]
        kwargs = {key: arrays_of(self, self.argument(x)) for key, x in node.kwargs.items()}
        try:
            result = values_of(handler(self, *args, **kwargs))
        except HloDiscError:
            raise
        except Exception as error:
            raise UnsupportedOpError(f"{self.describe()}: hlo_disc fails to read it: {error!r}") from error
        for made, fake in zip(result if fakes is known else [result], fakes, strict=True):
            if isinstance(made, Value) and isinstance(fake, torch.Tensor):
                self._check(made, self.type(fake))
        if self._has_data and any(self.data.is_open(d) for op in self.builder.ops[start:] for d in dims_in(op)):
            self.unsupported("a size is of data that nothing has said yet")
        return result

    def _check(self, value: Value, type_: Type) -> None:
        """Check that the result of a handler has PyTorch's type."""
        if value.dtype != type_.dtype or value.rank != len(type_.shape):
            self.unsupported(f"it becomes {value!r} in place of {Value(*type_)!r}")
        for axis, (made, size) in enumerate(zip(value.shape, type_.shape, strict=True)):
            if self.data.is_open(size):
                self.data.is_size(size, made)
            else:
                self.equal(made, size, f"dimension {axis} of the result and what PyTorch says of it")

    def argument(self, x: object) -> Any:
        """Convert an argument for handlers: to values, to Dims for symbolic sizes; others stay."""
        if isinstance(x, Node):
            if x not in self._values:  # a number that is an argument of the program
                self._values[x] = self._number(x.meta["val"])
            found = self._values[x]
            if isinstance(found, _Missing):
                raise UnsupportedOpError(f"{self.describe()}: {found.why}")
            return found.value if isinstance(found, Dim) and found.is_const else found
        if isinstance(x, (list, tuple)):
            return tuple(self.argument(y) for y in x)
        return x

    def _number(self, known: object) -> object:
        """Convert a number, which may be symbolic, by PyTorch's knowledge of it."""
        if isinstance(known, (bool, torch.SymBool)):
            return known if isinstance(known, bool) else self.data.truth(known.node.expr.xreplace(self._negative)).value
        if isinstance(known, torch.SymFloat):
            return floats.scalar(self, known.node.expr).value
        size = self.dim(known)
        if self._has_data and self.data.is_open(size):
            self.unsupported(f"{size} is a number of data that nothing has said yet")
        self._sources[size] = known
        return size

    def _attribute(self, node: Node) -> object:
        found: Any = self.module
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return self.constant(to_numpy(found)) if isinstance(found, torch.Tensor) else found


def read_graph(
    module: GraphModule, constraints: Sequence[sympy.Basic] = (), constants: Mapping[int, torch.Tensor] | None = None
) -> Imported:
    """A graph of ATen ops, with fake tensors and symbolic sizes as `meta["val"]` of its nodes, as a program.

    constraints: conditions that hold for the symbols, as a ShapeEnv has them. constants: the tensors that placeholders
    of these numbers are at all calls.

    Raises UnsupportedOpError for an op that has no handler, ShapeError for sizes that can never agree.
    """
    return AtenReader(module).read(constraints, constants or {})


def read_alone(
    module: GraphModule, constraints: Sequence[sympy.Basic], constants: Mapping[int, torch.Tensor]
) -> Imported:
    """Read a graph as a program that is called by itself: its results are new tensors in row-major order.

    Its outputs are the results that are no constants. Each number among its arguments is an input.
    """
    return AtenReader(module).read(constraints, constants, alone=True)


def refused(module: GraphModule, constraints: Sequence[sympy.Basic] = ()) -> dict[Node, str]:
    """List the nodes of a graph that cannot be part of a program, with the reasons."""
    return AtenReader(module).collect(constraints)


def line_of(node: Node) -> tuple[str, int]:
    """Return the user's file and line; line 0 if PyTorch does not know it."""
    lines = _LINE.findall(node.meta.get("stack_trace") or "")
    return (lines[-1][0], int(lines[-1][1])) if lines else ("an unknown file", 0)


def target_name(node: Node) -> str:
    """Return the name of a node's target: "aten.add.Tensor"."""
    return (
        str(node.target)
        if isinstance(node.target, torch._ops.OpOverload)
        else getattr(node.target, "__name__", str(node.target))
    )


def to_numpy(tensor: torch.Tensor) -> np.ndarray:
    """Copy the contents of a tensor to numpy, also while PyTorch is tracing."""
    with unset_fake_temporarily(), torch.no_grad():
        plain = tensor.resolve_conj().resolve_neg().contiguous()
        bits: np.ndarray = plain.reshape(-1).view(torch.uint8).numpy().copy()
    return bits.view(DTYPES[tensor.dtype]).reshape(tuple(tensor.shape))


def _shown(x: object) -> str:
    fake = fake_of(x)
    if isinstance(fake, torch.Tensor):
        return f"{str(fake.dtype).removeprefix('torch.')}[{', '.join(map(str, fake.shape))}]"
    return str(fake)
