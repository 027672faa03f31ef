"""Calls of an executable with the arguments that PyTorch passes to a graph, and with the results that it expects."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch

from hlo_disc.dynamic_hlo.ir.graph import raw_dim
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.executable import Executable
from hlo_disc.import_.aten.imported import ElementsOf, Interface, Result

# The input of a program that has no tensors: see `Interface.numbers`.
_NOTHING = torch.empty((0, 0), dtype=torch.bool)


def caller(executable: Executable, interface: Interface) -> Callable[..., list[object]]:
    """Return a function from the values of the graph's placeholders to the list of its results.

    After its first call, a thread compiles the kernels that the call did not take.
    """
    arguments, results, numbers = interface.arguments, interface.results, interface.numbers
    native = executable.native
    run: Callable[..., Sequence[torch.Tensor]] = native

    def first(*tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        nonlocal run
        run = native
        with executable.first_call():
            return native(*tensors)

    if executable.tally:
        run = first
    nothing = [] if arguments or numbers else [_NOTHING]
    draw = _seed if interface.random else tuple
    size = _sizes(executable, interface)

    def call(*args: torch.Tensor | int) -> list[object]:
        tensors = [args[i] for i in arguments]
        tensors += [_NOTHING.new_empty((max(args[i], 0), max(-args[i], 0))) for i in numbers]
        made = run(*tensors, *nothing, *draw())
        given = []
        for x in results:
            if x.is_number and x.output is not None:
                given.append(made[x.output].item())
            elif x.view is not None and x.elements is not None:
                of = made[x.output] if x.output is not None else args[x.argument]  # type: ignore[index]
                shape, strides = ([size(d, tensors, made) for d in ds] for ds in x.view[:2])
                given.append(_viewed(of, shape, strides, size(x.view[2], tensors, made), x.elements))
            elif x.output is not None:
                y = made[x.output]
                given.append(y if x.order is None else y.permute(tuple(map(x.order.index, range(y.dim())))))
            elif x.argument is not None:
                given.append(args[x.argument])
            else:
                given.append(None if x.size is None else size(x.size, tensors, made))
        return given

    every = not nothing and arguments == tuple(range(interface.placeholders)) and not numbers and not interface.random
    if every and all(x == Result(output=i) for i, x in enumerate(results)):
        return lambda *args: list(run(*args))
    return call


def _sizes(
    executable: Executable, interface: Interface
) -> Callable[[Dim, Sequence[torch.Tensor], Sequence[torch.Tensor]], int]:
    """Return a function from a size, the tensors of a call and its outputs to the size at this call."""
    inputs = executable.linked.inputs
    where = {str(raw_dim(i, axis)): (i, axis) for i, x in enumerate(inputs) for axis in range(len(x.shape))}

    @functools.cache
    def of_call(d: Dim) -> tuple[Dim, dict[str, tuple[int, int]], dict[str, int]]:
        """Return a size as an expression over sizes and outputs of a call, and where the symbols of these stand.

        The symbol of a size stands at (input, axis), a computed symbol at the number of an output.
        """
        passed = d.substitute(interface.bindings)
        read = {name: where[name] for name in passed.symbols if name in where}
        return passed, read, {name: interface.computed[name] for name in passed.symbols if name not in where}

    def size(d: Dim, tensors: Sequence[torch.Tensor], made: Sequence[torch.Tensor]) -> int:
        passed, read, computed = of_call(d)
        known = {name: tensors[i].shape[axis] for name, (i, axis) in read.items()}
        return passed.evaluate(known | {name: int(made[i]) for name, i in computed.items()})

    return size


def _viewed(x: torch.Tensor, shape: list[int], strides: list[int], offset: int, kind: ElementsOf) -> torch.Tensor:
    """View a tensor's memory, perhaps with other elements: parts of complex numbers, or their conjugates."""
    if kind == (x.dtype, x.is_conj(), x.is_neg()):
        return torch.as_strided(x, shape, strides, offset)
    y = torch.empty(0, dtype=kind.dtype, device=x.device).set_(x.untyped_storage(), offset, shape, strides)
    y = torch._neg_view(y) if kind.negative else y
    return y.conj() if kind.conjugate else y


def _seed() -> tuple[torch.Tensor]:
    """Draw a seed from the generator that `torch.manual_seed` seeds."""
    return (torch.empty((), dtype=torch.int64).random_(-(2**63), None).view(torch.uint64),)
