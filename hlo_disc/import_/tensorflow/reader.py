"""From a function of TensorFlow to a DHLO graph."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import Truth
from hlo_disc.errors import ArgumentError, UnsupportedOpError
from hlo_disc.import_.handlers.types import Handler
from hlo_disc.import_.sizes.symbols import DimsOfInputs, Input, select_specs
from hlo_disc.import_.stablehlo.decode import UnsupportedTypeError
from hlo_disc.import_.stablehlo.module import read_block
from hlo_disc.import_.stablehlo.names import Inputs
from hlo_disc.import_.stablehlo.policy import Origin, StaticShapes
from hlo_disc.import_.stablehlo.reader import Reader
from hlo_disc.import_.tensorflow.program import Node, Program, TensorType
from hlo_disc.import_.tensorflow.refused import REASONS

A = TypeVar("A")
T = TypeVar("T")
TENSORFLOW = Origin(xla_windows=True)


class TensorFlowDecoder:
    """Types, attributes and lines, which already are plain data."""

    def tensor(self, kind: TensorType) -> tuple[np.dtype, tuple[int | None, ...]]:
        """Return dtype and sizes. Raises UnsupportedTypeError."""
        if kind.dtype is None:
            raise UnsupportedTypeError(f"values of type {kind} are not supported")
        if kind.sizes is None:
            raise UnsupportedTypeError(f"the rank of {kind} is not known: DHLO has tensors of known rank only")
        return kind.dtype, kind.sizes

    def static_tensor(self, kind: TensorType) -> tuple[np.dtype, tuple[int, ...] | None]:
        """The dtype and sizes; None for the sizes when one of them is unknown. Raises UnsupportedTypeError."""
        dtype, sizes = self.tensor(kind)
        return dtype, None if None in sizes else sizes  # type: ignore[return-value]

    def attribute(self, attribute: A, decode: Callable[[A], T]) -> T:
        """Return `decode(attribute)`."""
        return decode(attribute)

    def line(self, op: Node) -> str:
        """Return the user's line of an op."""
        return op.location


class TensorFlowReader(Reader):
    """Reads TensorFlow's ops. The types that TensorFlow writes are less precise than those inferred from operands."""

    @staticmethod
    def is_token(value: object) -> bool:
        """Return False: TensorFlow orders effects otherwise."""
        return False

    @staticmethod
    def handler(name: str) -> Handler | None:
        """Look up the handler of the ops of a name."""
        from hlo_disc.import_.tensorflow.table import HANDLERS

        return HANDLERS.get(name)

    def unknown(self, name: str) -> NoReturn:
        """Refuse an op without a handler, with the reason if there is one."""
        self.unsupported(REASONS.get(name.removeprefix("tf."), ""))

    def agree(self, a: Dim, b: Dim, what: str) -> None:
        """Require that branches agree in size, or select another program if sizes decide which branch is taken."""
        later = not (a.symbols | b.symbols).isdisjoint(self.definitions)
        if self.nested or later or self.facts.equal(a, b) is not Truth.UNKNOWN:
            self.equal(a, b, what)
        else:
            self.assume(a, "==", b, "whether branches and turns agree in size")

    def _check_type(self, result: object, value: Value) -> None:
        pass


def read_program(program: Program, *, dims: DimsOfInputs | None = None, constraints: Sequence[str] = ()) -> Graph:
    """Read a function of TensorFlow. Returns its graph.

    dims: shape strings by input name or "args[i]", or one an input; sizes without a name are d0, d1 …
    constraints: conditions on the symbols that calls must meet. Raises UnsupportedOpError, ShapeError, ArgumentError.
    """
    decoder = TensorFlowDecoder()
    types = []
    for name, argument in zip(program.inputs, program.main.block.arguments, strict=True):
        try:
            types.append(decoder.tensor(argument.type))
        except UnsupportedTypeError as error:
            raise UnsupportedOpError(f"{program.name}: input {name!r}: {error}") from None
    specs = select_specs(dims or {}, program.inputs, [len(sizes) for _, sizes in types])
    taken = {name for spec in specs for d in spec if d is not None for name in d.symbols}
    fresh = (symbol for symbol in map("d{}".format, itertools.count()) if symbol not in taken)
    inputs = []
    for name, spec, (dtype, sizes) in zip(program.inputs, specs, types, strict=True):
        shape = []
        for given, size in zip(spec, sizes, strict=True):
            if given is None:
                given = Dim.symbol(next(fresh)) if size is None else Dim.const(size)
            elif size is not None and given is not Dim.const(size):
                raise ArgumentError(f"dims calls a size of {name!r} '{given}', but the function has {size} there")
            shape.append(given)
        inputs.append(Input(name, dtype, tuple(shape)))
    reader = TensorFlowReader(program.functions, decoder, StaticShapes(), TENSORFLOW)  # type: ignore[arg-type]
    block = program.main.block  # of the form of MLIR's
    return read_block(reader, program.name, block, Inputs(tuple(inputs), (), {}), constraints)  # type: ignore[arg-type]
