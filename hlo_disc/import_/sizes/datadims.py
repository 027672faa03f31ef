"""Sizes that depend on data: each becomes a symbol of its own, defined by an i64 scalar that the program computes.

The evaluator follows elements of data through shape arithmetic as opaque symbols (shapes.py). If an element is still
opaque where a size is needed, ordinary ops compute it here from the tensors of its data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Guard, Value
from hlo_disc.dynamic_hlo.ops.expr import I64
from hlo_disc.dynamic_hlo.sizes.dim import ZERO, Dim
from hlo_disc.import_.sizes import symbols
from hlo_disc.import_.sizes.shapes import is_opaque

if TYPE_CHECKING:
    from hlo_disc.import_.stablehlo.reader import Reader


class DataDims:
    """The sizes of one program that depend on data: `definitions` maps each symbol to its scalar."""

    def __init__(self, r: Reader):
        self.r = r
        self.definitions: dict[str, Value] = {}
        self._symbols: dict[Dim, Dim] = {}

    def size(self, d: Dim, what: str) -> Dim:
        """Return `d` as the size of a tensor: if it depends on data, a symbol with a guard that it is not negative."""
        if d.is_const or not is_opaque(d):
            return d
        known = d in self._symbols
        symbol = self._symbol(d)
        if not known:
            place = symbols.escape(self.r.describe())
            self.r.guards.append(Guard(symbol, ">=", ZERO, f"{place}: {what} would have the size {{0}}", (symbol,)))
        return symbol

    def number(self, d: Dim) -> Dim:
        """Return `d` as a number that may be negative. Symbols may not, so it is the difference of two."""
        if d.is_const or not is_opaque(d):
            return d
        return self._symbol(Dim.max(d, ZERO)) - self._symbol(Dim.max(-d, ZERO))

    def _symbol(self, d: Dim) -> Dim:
        d = self.r.facts.canonical(d)
        found = self._symbols.get(d)
        if found is None:
            if self.r.nested:
                self.r.unsupported("a size that depends on data inside a loop or a branch is not supported")
            name = f"_data{len(self.definitions)}"
            self.definitions[name] = self.scalar(d)
            found = self._symbols[d] = Dim.symbol(name)
        return found

    def scalar(self, d: Dim) -> Value:
        """Compute `d` as an i64 scalar."""
        r = self.r
        if d in r.evaluator.sources:
            return self._piece(d)
        pieces: dict[str, Value] = {}  # by the symbols of which each is the difference
        for source in r.evaluator.sources:
            if not source.symbols.isdisjoint(d.symbols):
                pieces.update(dict.fromkeys(source.symbols, self._piece(source)))

        def constant(value: int) -> Value:
            return r.constant(np.array(value, I64))

        def symbol(name: str) -> Value:
            value = pieces.get(name)
            if value is None:
                return r.emit("dim", expr=Dim.symbol(name), dtype=I64)
            positive = value if name.endswith(".p") else r.emit("negate", (value,))
            return r.emit("maximum", (positive, constant(0)))

        def binary(op: str) -> Callable[[Value, Value], Value]:
            return lambda a, b: r.emit(op, (a, b))

        def mod(a: Value, b: Value) -> Value:
            remainder = r.emit("remainder", (a, b))
            return r.emit("remainder", (r.emit("add", (remainder, b)), b))

        ops: dict[str, Callable[[Value, Value], Value]] = {
            "add": binary("add"),
            "mul": binary("multiply"),
            "min": binary("minimum"),
            "max": binary("maximum"),
            "mod": mod,
            "floordiv": lambda a, b: r.emit("divide", (r.emit("subtract", (a, mod(a, b))), b)),
        }
        return d.lower(constant, symbol, ops)

    def _piece(self, source: Dim) -> Value:
        tensor, i = self.r.evaluator.sources[source]
        element = tensor if not tensor.shape else self.r.element(tensor, i)
        return element if element.dtype == I64 else self.r.emit("convert", (element,), dtype=I64)
