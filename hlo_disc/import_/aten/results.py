"""The results of a graph: outputs of its program, arguments, views of either, and numbers."""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from hlo_disc.dynamic_hlo.ir.graph import Shape, Value
from hlo_disc.dynamic_hlo.ops.expr import F64, I64
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.import_.aten.imported import ElementsOf, Result

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader


def outputs_of(r: AtenReader, nodes: Sequence[Node | int | None]) -> tuple[Value, ...]:
    """List the non-constant results of a program that is called by itself."""
    made = []
    for node in nodes:
        if not isinstance(node, Node):
            continue
        x = r.argument(node)
        if not isinstance(x, (Value, Dim, int, float)):
            r.unsupported(f"a result is {x!r}, which is no tensor and no number")
        made.append(x if isinstance(x, Value) else r.scalar(x, F64 if isinstance(x, float) else I64).value)
    return tuple(made)


class Results:
    """The results of one graph whose nodes were read."""

    def __init__(self, r: AtenReader, placeholders: list[Node]):
        self.r, self.placeholders = r, placeholders

    def of(self, nodes: Sequence[Node | int | None]) -> tuple[tuple[Result, ...], tuple[Value, ...], dict[str, int]]:
        outputs: dict[tuple[Value, tuple[int, ...] | None], int] = {}
        memory = {_storage(x): i for i, x in enumerate(map(fake_of, self.placeholders)) if _is_strided(x)}
        bases = self._shared(nodes, memory)
        made: list[Value] = []
        results: list[Result] = []
        of_results: list[Dim] = []

        def output(node: Node) -> tuple[int, tuple[int, ...] | None]:
            self.r.node, value, order = node, self.r.argument(node), self._memory_order(node.meta["val"])
            if (value, order) not in outputs:
                outputs[value, order] = len(made)
                made.append(self.r.emit("transpose", (value,), perm=order) if order else value)
            return outputs[value, order], order

        for node in nodes:
            if not isinstance(node, Node):
                results.append(Result() if node is None else Result(size=Dim.const(node)))
            elif node in self.placeholders:
                results.append(Result(argument=self.placeholders.index(node)))
            elif isinstance(value := self.r.argument(node), (Dim, int)):
                results.append(Result(size=Dim.of(value)))
                of_results.append(Dim.of(value))
            elif not isinstance(node.meta["val"], torch.Tensor):
                results.append(Result(output=len(made), is_number=True))
                made.append(value)
            elif _is_strided(fake := fake_of(node)) and _storage(fake) in memory:
                view, kind = self._view(fake)
                results.append(Result(argument=memory[_storage(fake)], view=view, elements=kind))
                of_results += [*view[0], *view[1], view[2]]
            elif _is_strided(fake) and bases.get(_storage(fake), node) is not node:
                view, kind = self._view(fake)
                results.append(Result(output=output(bases[_storage(fake)])[0], view=view, elements=kind))
                of_results += [*view[0], *view[1], view[2]]
            else:
                number, order = output(node)
                results.append(Result(output=number, order=order))
        computed: dict[str, int] = {}
        for name in dict.fromkeys(name for d in of_results for name in d.symbols if name not in self.r.bound):
            if name not in self.r.definitions:
                self.r.unsupported(f"{name}, a number of data, is among its results, and nothing has said what it is")
            computed[name] = len(made)
            made.append(self.r.definitions[name])
        return tuple(results), tuple(made), computed

    def _view(self, fake: torch.Tensor) -> tuple[tuple[Shape, Shape, Dim], ElementsOf]:
        shape, strides = (tuple(map(self.r.dim, sizes)) for sizes in (fake.shape, fake.stride()))
        view = shape, strides, self.r.dim(fake.storage_offset())
        return view, ElementsOf(fake.dtype, fake.is_conj(), fake.is_neg())

    def _shared(self, results: Sequence[Node | int | None], memory: Mapping[int, int]) -> dict[int, Node]:
        """Group the results that are views of one memory, not an argument's, with the node that owns all of it."""
        tensors = [x for x in dict.fromkeys(results) if isinstance(x, Node) and _is_strided(fake_of(x))]
        times = collections.Counter(_storage(fake_of(x)) for x in tensors)
        several = {storage for storage, count in times.items() if count > 1 and storage not in memory}
        bases: dict[int, Node] = {}
        for node in self.r.module.graph.nodes if several else ():
            fake = node.meta.get("val")
            if _is_strided(fake) and _storage(fake) in several and _storage(fake) not in bases:
                order = self._memory_order(fake) or tuple(range(fake.dim()))
                if self._is_dense(fake, order):
                    bases[_storage(fake)] = node
                else:
                    several.remove(_storage(fake))
        return bases

    def _is_dense(self, fake: torch.Tensor, order: tuple[int, ...]) -> bool:
        """Whether it begins where its memory begins, and the axes lie in it in this order without gaps."""
        return self._lies_so(fake, order) and self.r.dim(fake.storage_offset()) is ZERO

    def _memory_order(self, fake: torch.Tensor) -> tuple[int, ...] | None:
        """Return the axes of a dense tensor, fastest in memory last; None if that is their own order."""
        if fake.layout != torch.strided:
            return None
        order = sorted(range(fake.dim()), key=lambda a: (-_hint(fake.stride(a)), a))
        if order == sorted(order) or not self._lies_so(fake, order):
            return None  # with gaps, or of sizes that are not told apart
        return tuple(order)

    def _lies_so(self, fake: torch.Tensor, order: Sequence[int]) -> bool:
        """Whether the axes lie in memory in this order without gaps, as far as symbols tell.

        PyTorch computes strides with 1 in place of a size that may be 0.
        """
        shape, strides = tuple(map(self.r.dim, fake.shape)), tuple(map(self.r.dim, fake.stride()))
        expected: tuple[Dim, ...] = (ONE,)
        for axis in reversed(order):
            if shape[axis] is ONE:
                continue
            if not any(strides[axis] is d for d in expected):
                return False
            expected = (strides[axis] * shape[axis], strides[axis] * Dim.max(ONE, shape[axis]))
        return True


def _hint(size: torch.SymInt | int) -> int:
    return size if isinstance(size, int) else size.node.hint if size.node.has_hint() else 1 << 40


def fake_of(x: object) -> Any:
    if isinstance(x, Node):
        return x.meta.get("val")
    return type(x)(map(fake_of, x)) if isinstance(x, (list, tuple)) else x


def _is_strided(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.layout == torch.strided


def _storage(x: torch.Tensor) -> int:
    return int(x.untyped_storage()._cdata)
