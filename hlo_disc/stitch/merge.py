"""Merging sorted runs: the device function that every pass of a sort is made of.

Elements are records of several arrays that move together, as plain bits. Where an output begins in the two runs is found
by bisection, so that any part of a merge can be made on its own (O. Green, R. McColl, D. Bader, "GPU merge path", 2012).
Four parts are merged side by side: each of them alone would wait for its own last comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hlo_disc.dynamic_hlo.facts import ShapeFacts
from hlo_disc.dynamic_hlo.graph import Value
from hlo_disc.mlir import arith, ir
from hlo_disc.stitch.body import Body, Sizes
from hlo_disc.stitch.build import Builder, Scalar, Val
from hlo_disc.stitch.comparator import Comparator
from hlo_disc.stitch.elements import from_memory, to_memory
from hlo_disc.stitch.regions import inline

PARTS = 4


@dataclass(frozen=True)
class Records:
    """What a sort moves: the comparator's keys, then the operands that are no key. `at`: each operand's array."""

    comparator: Comparator
    dtypes: tuple[np.dtype, ...]
    at: tuple[int, ...]
    captured: tuple[Value, ...]
    symbols: tuple[str, ...]
    facts: ShapeFacts

    @staticmethod
    def of(
        comparator: Comparator,
        operands: Sequence[Value],
        captured: Sequence[Value],
        symbols: Sequence[str],
        facts: ShapeFacts,
    ) -> Records:
        dtypes = [v.dtype for v in comparator.keys.outputs]
        at = []
        for value, key in zip(operands, comparator.given, strict=True):
            at.append(len(dtypes) if key is None else key)
            if key is None:
                dtypes.append(value.dtype)
        return Records(comparator, tuple(dtypes), tuple(at), tuple(captured), tuple(symbols), facts)

    @property
    def keys(self) -> int:
        """How many arrays are keys: the first ones."""
        return len(self.comparator.keys.outputs)

    @property
    def bytes(self) -> int:
        """Bytes of a record."""
        return sum(dtype.itemsize for dtype in self.dtypes)

    @property
    def merge_key(self) -> tuple:
        """Merging functions with equal keys are the same."""
        captured = tuple(v.dtype for v in self.captured)
        return ("merge", self.comparator.less.key, self.dtypes, captured, self.symbols)

    def element(self, b: Builder, i: int) -> ir.Type:
        """The integers that hold array `i`."""
        return b.int_type(8 * self.dtypes[i].itemsize)

    def to_bits(self, b: Builder, x: Val, i: int) -> Val:
        """A register value as array `i` holds it."""
        return _bitcast(b, to_memory(b, x, self.dtypes[i]), self.element(b, i))

    def from_bits(self, b: Builder, x: Val, i: int) -> Val:
        dtype = self.dtypes[i]
        return from_memory(b, _bitcast(b, x, b.memory_type(dtype)), dtype)

    def less(self, body: Body, a: Sequence[Val], b: Sequence[Val], captured: Sequence[Val]) -> Val:
        """Whether the record with keys `a` comes before that with `b`, the keys as arrays hold them."""
        keys = [self.from_bits(body.b, x, i) for side in (a, b) for i, x in enumerate(side)]
        (result,) = inline(body, self.comparator.less, [*keys, *captured])
        return result


def _bitcast(b: Builder, x: Val, element: ir.Type) -> Val:
    return x if x.element == element else b.cast(arith.BitcastOp, element, x)


def merger(b: Builder, records: Records, width: int) -> Callable[..., None]:
    """Make PARTS * q outputs of a merge of neighbouring runs, from number `first` on.

    (source arrays; target arrays; captured; symbols; where the row starts in the source; where outputs go in the target;
    first; length of a run, a power of two; length of the row; q, a power of two and at most twice the length of a run)

    What lies behind the end of the row is read, up to PARTS * q elements, and its outputs mean nothing.
    """
    index = b.index_type
    arrays = [b.buffer_type(records.element(b, i)) for i in range(len(records.dtypes))]
    registers = [b.register_type(v.dtype) for v in records.captured]
    args = [*arrays, *arrays, *registers, *[index] * len(records.symbols), *[index] * 6]
    with b.device_function(f"merge{b.made}", args) as (values, call):
        count = len(arrays)
        source, target, rest = values[:count], values[count : 2 * count], values[2 * count :]
        captured, rest = rest[: len(registers)], rest[len(registers) :]
        symbols = dict(zip(records.symbols, rest, strict=False))
        _Merge(b, records, width, source, target, captured, symbols).build(*rest[len(symbols) :])
    return call


class _Merge:
    def __init__(
        self,
        b: Builder,
        records: Records,
        width: int,
        source: Sequence[Val],
        target: Sequence[Val],
        captured: Sequence[Val],
        symbols: dict[str, Val],
    ):
        self.b, self.records, self.source, self.target, self.captured = b, records, source, target, captured
        self.body = Body(b, width, Sizes(b, symbols, records.facts), {})

    def build(self, row: Val, to: Val, first: Val, run: Val, n: Val, q: Val) -> None:
        b = self.b
        parts = [self._begin(first + q * k, row, run, n) for k in range(PARTS)]
        starts = [x for part in parts for x in part[:2]]
        with b.loop(0, q, 1, starts) as loop:
            following: list[Val] = []
            for k, (_, _, end_a, end_b) in enumerate(parts):
                i, j = loop.args[2 * k : 2 * k + 2]
                following += self._step(i, j, end_a, end_b, to + q * k + loop.i)
            loop.yield_(*following)

    def _keys(self, at: Scalar) -> list[Val]:
        return [self.b.load(self.source[i], at) for i in range(self.records.keys)]

    def _begin(self, at: Val, row: Val, run: Val, n: Val) -> tuple[Val, Val, Val, Val]:
        """Where output `at` of the row begins in its two runs, and where these end."""
        b = self.b
        at = b.index(b.minimum(at, n))
        pair = b.apply(arith.AndIOp, at, b.binary("-", 0, run + run))
        middle, end = b.index(b.minimum(pair + run, n)), b.index(b.minimum(pair + run + run, n))
        outputs = at - pair
        least, most = b.maximum(outputs - (end - middle), 0), b.minimum(outputs, middle - pair)

        def narrow(range_: list[Val]) -> list[Val]:
            low, high = range_
            guess = b.apply(arith.ShRUIOp, low + high, b.index(1))
            a, other = row + pair + guess, row + middle + (outputs - guess - 1)
            before = self.records.less(self.body, self._keys(other), self._keys(a), self.captured)
            return [b.select(before, low, guess + 1), b.select(before, guess, high)]

        taken, _ = b.while_([b.index(least), b.index(most)], lambda r: b.compare("<", r[0], r[1]), narrow)
        return row + pair + taken, row + middle + (outputs - taken), row + middle, row + end

    def _step(self, i: Val, j: Val, end_a: Val, end_b: Val, to: Val) -> list[Val]:
        """One output: from the second run only if it is less, so that equal elements keep their order."""
        b, records = self.b, self.records
        a, other = self._keys(i), self._keys(j)
        before = records.less(self.body, other, a, self.captured)
        left = b.compare("<", i, end_a)
        take_b = b.apply(
            arith.OrIOp, b.both(before, b.compare("<", j, end_b)), b.apply(arith.XOrIOp, left, b.const(1, b.i1))
        )
        chosen = b.select(take_b, j, i)
        for number, (source, target) in enumerate(zip(self.source, self.target, strict=True)):
            x = b.select(take_b, other[number], a[number]) if number < records.keys else b.load(source, chosen)
            b.store(x, target, to)
        step = b.cast(arith.IndexCastUIOp, b.index_type, take_b)
        return [i + (1 - step), j + step]
