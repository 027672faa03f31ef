"""Windows evaluated lazily at an element of the result: a loop over the window, or over the windows around the element.

`dynamic_hlo/ops/families/private.py` defines the two ops that replace a `select_and_scatter`.

Axes without lanes have their loops clipped to the inside of the array, if combining an initial value changes nothing.
Along the lanes, and for the rest, each element is tested for being inside.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.families.combiners import absorbs
from hlo_disc.dynamic_hlo.ops.families.private import PLACE
from hlo_disc.dynamic_hlo.ops.families.reductions import combined
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.windows import moving_axes
from hlo_disc.stitch.codegen.index import Index
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.values.val import Scalar, Val

if TYPE_CHECKING:
    from hlo_disc.stitch.codegen.body import Body

# Windows of up to this many elements are written out when nothing has to be clipped.
UNROLLED = 16

State = list[Val]


def reduce_window(body: Body, op: Op, index: tuple[Index, ...]) -> list[Val]:
    """Return all results of a `reduce_window` at an index."""
    return _Reduce(body, op, index).run()


def select_windows(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    """Return a `select_windows` at an index."""
    return _Select(body, op, index).run()[1]


class _Walk:
    """The common base of both ops: loops over numbers on several axes, each either clipped or tested by a condition."""

    def __init__(self, body: Body, op: Op, lanes: int):
        self.body, self.b, self.op, self.lanes = body, body.b, op, lanes

    def loop(self, low: Scalar, high: Scalar, state: State, inner: Callable[[Scalar, State], State]) -> State:
        """Run `inner` for each number from low to below high: unrolled if both are known and close."""
        if isinstance(low, int) and isinstance(high, int) and high - low <= UNROLLED:
            for i in range(low, high):
                state = inner(i, state)
            return state
        with self.b.loop(low, high, 1, state) as loop:
            loop.yield_(*inner(loop.i, loop.args))
        return loop.results

    def within(self, i: Index, size: Scalar) -> Val:
        """Whether the index is in [0, size); for a vector, lane by lane."""
        return self.b.compare("<", self.body.math.value(i), size, unsigned=True)

    def counted(self, at: Sequence[Index], shape: Sequence[Dim], axes: Sequence[int]) -> Val:
        """Return an element's number along some axes."""
        sizes = self.body.sizes.shape([shape[a] for a in axes])
        return self.body.from_index(self.body.math.linear([at[a] for a in axes], sizes), PLACE)

    def where(self, inside: Val | None, evaluate: Callable[[], State]) -> State:
        """Return values that are read only where `inside` holds, lane by lane."""
        body = self.body
        if inside is None:
            return evaluate()
        saved = body.mask
        body.mask = inside if saved is None else self.b.both(inside, saved)
        values = evaluate()
        body.mask = saved
        return values

    def spread(self, values: Sequence[Val]) -> State:
        return [self.b.splat(x, self.lanes) for x in values]


class _Window(_Walk):
    """Combines the elements of a window. `neutral`: elements outside may be left out."""

    def __init__(self, body: Body, op: Op, index: tuple[Index, ...], neutral: bool):
        super().__init__(body, op, body.width if any(i.lanes is not None for i in index) else 0)
        self.index, self.neutral = index, neutral
        self.inside: set[int] = set()  # axes on which the code being built may take all to be inside
        self.moving = moving_axes(op.attrs)
        self.shape = body.sizes.shape(op.operands[0].shape)

    def start(self) -> State:
        raise NotImplementedError

    def read(self, at: tuple[Index, ...]) -> State:
        """Return the values that are combined for the element at an index of the operand."""
        raise NotImplementedError

    def combine(self, state: State, values: State) -> State:
        raise NotImplementedError

    def run(self) -> State:
        """Return the combined window. One condition asks whether all of it is inside, as most windows are."""
        start = self.start()

        def walk() -> State:
            return self._axis(0, list(self.index), (), start)

        asked = self._asked_once()
        if not asked:
            return walk()

        def all_inside() -> State:
            self.inside.update(asked)
            state = walk()
            self.inside.clear()
            return state

        inside = functools.reduce(self.b.both, map(self._whole_inside, asked))
        return self.b.if_(inside, all_inside, walk, like=start)

    def _asked_once(self) -> list[int]:
        """The axes that one condition covers: that of the lanes, and of a window that is unrolled all others.

        Loops with clipped ends cost a small pool a fifth of its time. Threads of a GPU keep them, for the unrolled
        window needs more registers.
        """
        attrs = self.op.attrs
        bases = attrs["base_dilations"] if "base_dilations" in attrs else (1,) * len(self.shape)
        lanes = {a: self.index[a].lanes for a in self.moving if not self._safe(a)}
        along = [a for a, n in lanes.items() if isinstance(n, int) and n > 0]
        if len(along) > 1 or any(bases[a] > 1 for a in along):
            return []
        sizes = [self.body.sizes(attrs["window"][a]) for a in self.moving]
        known = [n for n in sizes if isinstance(n, int)]
        small = len(known) == len(sizes) and math.prod(known) <= UNROLLED and self.b.lanes is self.b.simd
        one = [a for a, n in lanes.items() if n is None and bases[a] == 1]
        return [*along, *(one if small and len(along) + len(one) == len(lanes) else ())]

    def _whole_inside(self, axis: int) -> Val:
        """Whether the windows of all lanes lie inside along an axis."""
        b, attrs, place = self.b, self.op.attrs, self._start(axis)
        holes = attrs["window_dilations"][axis] if "window_dilations" in attrs else 1
        window, lanes = self.body.sizes(attrs["window"][axis]), place.lanes or 0
        assert isinstance(lanes, int)
        last = place.base + (window - 1) * holes + lanes * (self.body.width - 1)
        return b.both(b.compare(">=", b.index(place.base), 0), b.compare("<", b.index(last), self.shape[axis]))

    def _start(self, axis: int) -> Index:
        """Return where the window begins."""
        low = self.body.sizes(self.op.attrs["low"][axis])
        return self.body.math.scale(self.index[axis], self.op.attrs["strides"][axis]).shift(-1 * low)

    def _axis(self, number: int, at: list[Index], asked: tuple[Val, ...], state: State) -> State:
        """Walk the axes from the `number`th moving one on; `at` is where the operand is read on those before.

        asked: the condition that it is inside there.
        """
        if number == len(self.moving):
            return self._element(tuple(at), asked, state)
        axis = self.moving[number]
        attrs, sizes = self.op.attrs, self.body.sizes
        holes, base = (attrs[name][axis] if name in attrs else 1 for name in ("window_dilations", "base_dilations"))
        window, size = sizes(attrs["window"][axis]), self.shape[axis]
        start, safe = self._start(axis), self._safe(axis)
        clipped = self.neutral and base == 1 and start.lanes is None and not safe

        def one(k: Scalar, state: State) -> State:
            place, more = start.shift(k * holes), asked
            if not clipped and not safe:
                here = self.within(place, size * base)
                if base > 1:
                    place, rest = self.body.math.divmod(place, base)
                    here = self.b.both(here, self.b.compare("==", self.body.math.value(rest), 0))
                more = (*asked, here)
            return self._axis(number + 1, [*at[:axis], place, *at[axis + 1 :]], more, state)

        low, high = self._clip(start.base, size, window, holes) if clipped else (0, window)
        return self.loop(low, high, state, one)

    def _safe(self, axis: int) -> bool:
        """Whether a window has no element outside, as without padding."""
        if axis in self.inside:
            return True
        if "base_dilations" in self.op.attrs and self.op.attrs["base_dilations"][axis] > 1:
            return False
        bounds = (self.body.sizes.facts.bounds(self.op.attrs[side][axis])[1] for side in ("low", "high"))
        return all(high is not None and high <= 0 for high in bounds)

    def _clip(self, start: Scalar, size: Scalar, window: Scalar, holes: int) -> tuple[Scalar, Scalar]:
        """Return the elements of a window in [0, size): the first, and the end."""
        b = self.b
        first = b.maximum(b.ceil_div(-1 * start, holes), 0)
        behind = b.ceil_div(size - start, holes)
        return first, b.minimum(b.maximum(behind, first), window)

    def _element(self, at: tuple[Index, ...], asked: tuple[Val, ...], state: State) -> State:
        b = self.b
        if not asked:
            return self.combine(state, self.read(at))
        if alike := [x for x in asked if not x.lanes]:  # for all lanes: what lies outside is not even addressed
            lanes = tuple(x for x in asked if x.lanes)
            outside = (lambda: state) if self.neutral else (lambda: self.combine(state, self.start()))
            return b.if_(functools.reduce(b.both, alike), lambda: self._element(at, lanes, state), outside, like=state)
        inside = functools.reduce(b.both, asked)
        values = self.where(inside, lambda: self.read(at))
        if self.neutral:
            new = self.combine(state, values)
            return [b.select(inside, x, y) for x, y in zip(new, state, strict=True)]
        return self.combine(state, [b.select(inside, x, init) for x, init in zip(values, self.start(), strict=True)])


class _Reduce(_Window):
    """Evaluates a `reduce_window`."""

    def __init__(self, body: Body, op: Op, index: tuple[Index, ...]):
        self.xs, self.inits, self.captured = combined(op)
        super().__init__(body, op, index, absorbs(op.attrs["body"], self.inits))

    def start(self) -> State:
        return self.spread([self.body.eval(x, ()) for x in self.inits])

    def read(self, at: tuple[Index, ...]) -> State:
        return self.spread([self.body.eval(x, at) for x in self.xs])

    def combine(self, state: State, values: State) -> State:
        captured = [self.body.eval(x, ()) for x in self.captured]
        return self.spread(inline(self.body, self.op.attrs["body"], [*state, *values, *captured]))


class _Select(_Window):
    """Evaluates a `select_windows`. The state is the selected element so far, and its index: -1 for none."""

    def __init__(self, body: Body, op: Op, index: tuple[Index, ...]):
        self.x, *self.captured = op.operands
        super().__init__(body, op, index, True)

    def start(self) -> State:
        b = self.b
        return [b.const(0, b.register_type(self.x.dtype), self.lanes), b.const(-1, b.i32, self.lanes)]

    def read(self, at: tuple[Index, ...]) -> State:
        place = self.counted(at, self.op.operands[0].shape, self.moving)
        return self.spread([self.body.eval(self.x, at), place])

    def combine(self, state: State, values: State) -> State:
        b, captured = self.b, [self.body.eval(x, ()) for x in self.captured]
        (keep,) = self.spread(inline(self.body, self.op.attrs["body"], [state[0], values[0], *captured]))
        keep = b.both(b.compare(">=", state[1], 0), keep)
        return [b.select(keep, x, y) for x, y in zip(state, values, strict=True)]


def window_scatter(body: Body, op: Op, index: tuple[Index, ...]) -> Val:
    """Return a `window_scatter` at an index."""
    return _Scatter(body, op, index).run()


class _Scatter(_Walk):
    def __init__(self, body: Body, op: Op, index: tuple[Index, ...]):
        super().__init__(body, op, body.width if any(i.lanes is not None for i in index) else 0)
        self.index = index
        self.selected, self.source, init, *captured = op.operands
        self.init = self.spread([body.eval(init, ())])
        self.captured = [body.eval(x, ()) for x in captured]
        self.moving = moving_axes(op.attrs)
        self.place = self.counted(index, op.result.shape, self.moving)

    def run(self) -> Val:
        return self._axis(0, list(self.index), None, self.init)[0]

    def _axis(self, number: int, at: list[Index], inside: Val | None, state: State) -> State:
        if number == len(self.moving):
            return self._window(tuple(at), inside, state)
        axis = self.moving[number]
        b, math, attrs, sizes = self.b, self.body.math, self.op.attrs, self.body.sizes
        stride, window = attrs["strides"][axis], sizes(attrs["window"][axis])
        count = sizes(self.source.shape[axis])
        place = self.index[axis].shift(sizes(attrs["low"][axis]))
        if place.lanes is None:
            # The windows from the first that reaches the element to the last that starts before it.
            first = b.ceil_div(b.maximum(place.base - window + 1, 0), stride)
            behind = b.minimum(_floor_div(self, place.base, stride) + 1, count)

            def clipped(o: Scalar, state: State) -> State:
                return self._axis(number + 1, [*at[:axis], Index(o), *at[axis + 1 :]], inside, state)

            return self.loop(first, behind, state, clipped)
        # Along the lanes: the last window that starts before the element, and those before it that may reach it.
        far = (window + (stride - 1)) // stride if not isinstance(window, int) else -(-window // stride)
        nearest, _ = math.divmod(place.shift(stride * far), stride)

        def asked(k: Scalar, state: State) -> State:
            o = nearest.shift(-1 * (far - k) - far + 1)
            reach = math.add(place, math.scale(o, -stride))
            here = b.both(self.within(o, count), self.within(reach, window))
            here = here if inside is None else b.both(here, inside)
            return self._axis(number + 1, [*at[:axis], o, *at[axis + 1 :]], here, state)

        return self.loop(0, far, state, asked)

    def _window(self, at: tuple[Index, ...], inside: Val | None, state: State) -> State:
        b, body = self.b, self.body

        def read() -> State:
            return [body.eval(self.selected, at), body.eval(self.source, at)]

        chosen, value = self.spread(self.where(inside, read))
        here = b.compare("==", chosen, self.place)
        here = here if inside is None else b.both(here, inside)
        new = self.spread(inline(body, self.op.attrs["body"], [*state, value, *self.captured]))
        return [b.select(here, x, y) for x, y in zip(new, state, strict=True)]


def _floor_div(walk: _Walk, x: Scalar, divisor: int) -> Scalar:
    """Divide and round down, for x of either sign."""
    if divisor == 1:
        return x
    if isinstance(x, int):
        return x // divisor
    b = walk.b
    moved = b.select(b.compare("<", x, 0), x - (divisor - 1), x)
    return moved // divisor
