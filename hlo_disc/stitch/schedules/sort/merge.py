"""Merging sorted runs: the device function of every pass of a sort.

Where an output begins in the two runs is found by bisection, so that any part of a merge can be made on its own
(O. Green, R. McColl, D. Bader, "GPU merge path", 2012). Several parts are merged side by side, without branches: each
of them alone would wait for its own last comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo_disc.mlir import arith
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.sizes import Sizes
from hlo_disc.stitch.codegen.values.val import Scalar, Val
from hlo_disc.stitch.schedules.sort.records import Records

PARTS = 4


# With fewer elements than these left in a run, every step asks whether there is one.
FEW = 8


def merger(b: Builder, records: Records, width: int) -> Callable[..., None]:
    """Make PARTS * q outputs of a merge of neighbouring runs, from number `first` on.

    (source words; target words; captured; symbols; where the row starts in the source; where outputs go in the target;
    first; length of a run, a power of two; length of the row; q, a power of two and at most twice the length of a run)

    What lies behind the end of the row is read, up to PARTS * q elements, and its outputs mean nothing.
    """
    index = b.index_type
    words = [b.buffer_type(records.element(b, i)) for i in range(len(records.words))]
    registers = [b.register_type(v.dtype) for v in records.captured]
    args = [*words, *words, *registers, *[index] * len(records.symbols), *[index] * 6]
    count = len(words)

    def body(*values: Val) -> None:
        source, target, rest = values[:count], values[count : 2 * count], values[2 * count :]
        captured, rest = rest[: len(registers)], rest[len(registers) :]
        symbols = dict(zip(records.symbols, rest, strict=False))
        _Merge(b, records, width, source, target, captured, symbols).build(*rest[len(symbols) :])

    return b.module.shared(records.key, "merge", args, body)


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
        ends = [x for part in parts for x in part[2:]]

        def steps(lo: Scalar, hi: Scalar, at: Sequence[Val], ends: Sequence[Val] | None) -> list[Val]:
            with b.loop(lo, hi, 1, at) as loop:
                following: list[Val] = []
                for k in range(PARTS):
                    i, j = loop.args[2 * k : 2 * k + 2]
                    end = ends[2 * k : 2 * k + 2] if ends else ()
                    following += self._step(i, j, end, to + q * k + loop.i)
                loop.yield_(*following)
            return loop.results

        def left(state: Sequence[Val]) -> Val:
            """Return a number of steps that need not check for the runs' ends."""
            safe: Scalar = q - state[0]
            for at, end in zip(state[1:], ends, strict=True):
                safe = b.minimum(safe, end - at)
            return b.index(safe)

        def stretch(state: list[Val]) -> list[Val]:
            end = state[0] + left(state)
            return [end, *steps(state[0], end, state[1:], None)]

        done, *at = b.while_([b.index(0), *starts], lambda state: b.compare(">=", left(state), FEW), stretch)
        steps(done, q, at, ends)

    def _keys(self, at: Scalar) -> dict[int, Val]:
        """Return the words that have keys."""
        return {i: self.b.load(self.source[i], at) for i in self.records.key_words}

    def _begin(self, at: Val, row: Val, run: Val, n: Val) -> tuple[Val, Val, Val, Val]:
        """Return where output `at` of the row begins in its two runs, and where these end."""
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
            return [
                b.select(before, low, guess + 1, unpredictable=True),
                b.select(before, guess, high, unpredictable=True),
            ]

        taken, _ = b.while_([b.index(least), b.index(most)], lambda r: b.compare("<", r[0], r[1]), narrow)
        return row + pair + taken, row + middle + (outputs - taken), row + middle, row + end

    def _step(self, i: Val, j: Val, ends: Sequence[Val], to: Val) -> list[Val]:
        """Take one output: from the second run only if it is less, so that equal elements keep their order."""
        b = self.b
        a, other = self._keys(i), self._keys(j)
        second = self.records.less(self.body, other, a, self.captured)
        if ends:
            none = b.compare(">=", i, ends[0])
            second = b.apply(arith.OrIOp, b.both(second, b.compare("<", j, ends[1])), none)
        chosen = b.select(second, j, i, unpredictable=True)
        for number, (source, target) in enumerate(zip(self.source, self.target, strict=True)):
            known = number in a
            x = b.select(second, other[number], a[number], unpredictable=True) if known else b.load(source, chosen)
            b.store(x, target, to)
        step = b.cast(arith.IndexCastUIOp, b.index_type, second)
        return [i + (1 - step), j + step]
