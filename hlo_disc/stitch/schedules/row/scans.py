"""Cumulative ops in a sweep: the state between steps, and the scan of the lanes of a step.

Lanes along the columns: a scan of the lanes makes the prefixes within a vector, then what the sweep carries is combined
into all lanes. Lanes on rows: every lane carries its own. With `reverse`, the sweep runs from the last column to the
first and everything is mirrored. The initial values are identities (`reductions.cumulative`).

A long chain of float additions rounds more often than a tree of them. So sums are carried in two parts: what this block
of steps has come to, and what all blocks before it have (`close`).
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.cost import is_expensive
from hlo_disc.dynamic_hlo.ops.families.combiners import monoid_kind
from hlo_disc.dynamic_hlo.ops.families.reductions import combined
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.values.val import Val

# Steps of a block.
BLOCK = 64


class Scan:
    """One cumulative op."""

    def __init__(self, op: Op, lanes_on_rows: bool):
        self.op, self.lanes_on_rows = op, lanes_on_rows
        self.region, self.reverse = op.attrs["body"], op.attrs["reverse"]
        self.xs, self.inits, self.captured = combined(op)
        self._cheap = not any(is_expensive(inner) for inner in self.region.ops)
        rounds = any(dtype_class(x.dtype) == "float" for x in self.xs) and monoid_kind(self.region) not in (
            "max",
            "min",
        )
        self.blocked = self._cheap and rounds

    @property
    def count(self) -> int:
        """Return the number of registers that it carries."""
        return len(self.xs) * (2 if self.blocked else 1)

    def neutral(self, body: Body) -> list[Val]:
        """Return the identities, in all lanes."""
        return [body.b.splat(body.eval(x, ()), body.width) for x in self.inits]

    def start(self, body: Body, before: Sequence[Val]) -> list[Val]:
        """Return the state that is carried into the first step, when `before` came before it."""
        return [*before, *self.neutral(body)] if self.blocked else list(before)

    def close(self, body: Body, carried: Sequence[Val]) -> list[Val]:
        """Return the state that is carried on at the end of a block."""
        if not self.blocked:
            return list(carried)
        n = len(self.xs)
        return self.start(body, self.apply(body, carried[:n], carried[n:]))

    def apply(self, body: Body, before: Sequence[Val], after: Sequence[Val]) -> list[Val]:
        """Combine earlier elements of the sweep with later ones."""
        sides = [*after, *before] if self.reverse else [*before, *after]
        captured = [body.eval(x, ()) for x in self.captured]
        return [body.b.splat(x, body.width) for x in inline(body, self.region, [*sides, *captured])]

    def step(self, body: Body, xs: Sequence[Val], carried: Sequence[Val]) -> tuple[list[Val], list[Val]]:
        """Return the results at one vector of columns (or, with lanes on rows, at one column), and the state to carry
        on."""
        n = len(self.xs)
        blocks, block = (list(carried[:n]), carried[n:]) if self.blocked else ([], carried)
        results, block = self._in_block(body, [body.b.splat(x, body.width) for x in xs], block)
        if blocks:
            results = self.apply(body, blocks, results)
        return results, [*blocks, *block]

    def _in_block(self, body: Body, new: list[Val], carried: Sequence[Val]) -> tuple[list[Val], list[Val]]:
        b = body.b
        if self.lanes_on_rows:
            new = self.apply(body, carried, new)
            return new, new
        inits = self.neutral(body)
        if body.mask is not None:
            new = [b.select(body.mask, x, init) for x, init in zip(new, inits, strict=True)]
        new = b.lanes.scan(new, inits, lambda before, after: self.apply(body, before, after), self.reverse)
        results = self.apply(body, carried, new)
        # The shorter chain from step to step, where an application more costs little.
        ends = [b.lanes.last(x, self.reverse) for x in (new if self._cheap else results)]
        return results, self.apply(body, carried, ends) if self._cheap else ends
