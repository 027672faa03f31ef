"""Programs of `torch.export` that change their buffers or arguments, which hold the new values after a call."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._pytree import tree_map

from hlo_disc import pipeline
from hlo_disc.errors import ArgumentError
from hlo_disc.import_.aten.exported import read_exported
from hlo_disc.import_.leaves import Constant, Number
from hlo_disc.nest import describe_structure, inputs_of
from hlo_disc.options import Options


def compile(program: ExportedProgram, *, options: Options | None = None, **overrides: object) -> Compiled:
    """Compile an exported program, also one that changes its buffers or its arguments.

    Args:
        program: the result of `torch.export.export` or `torch.export.load`.
        options: how to compile and run; by default the environment's options.
        overrides: fields of `Options` by name, which take precedence over `options`.

    Returns:
        A function that is called as `program.module()` is, and changes the same tensors.

    Raises:
        UnsupportedOpError: an op cannot be compiled; the message has its line.
        ArgumentError: the argument is no exported program, or options are invalid.
        ShapeError: sizes can never agree.

    Example:
        >>> norm = torch.nn.BatchNorm1d(4)
        >>> rows = {0: torch.export.Dim("rows")}
        >>> program = torch.export.export(norm, (torch.ones(3, 4),), dynamic_shapes=(rows,))
        >>> run = hlo_disc.torch.compile(program)
        >>> run(torch.randn(8, 4)).shape, norm.num_batches_tracked.item()
        (torch.Size([8, 4]), 1)
    """
    if not isinstance(program, ExportedProgram):
        kind = type(program).__name__
        raise ArgumentError(f"a {kind} is no torch.export.ExportedProgram: torch.export.export makes one of a module")
    return Compiled(program, pipeline.merge(options, overrides))


class Compiled:
    """A compiled program with its state, from `hlo_disc.torch.compile`. Any thread may call it, one at a time.

    Args:
        program: the exported program. Calls change the buffers and parameters that it changes in `program.state_dict`
            and `program.constants`, which `program.module()` shares. All others are constants.
        options: how to compile and run.
    """

    def __init__(self, program: ExportedProgram, options: Options):
        read = functools.cache(lambda: read_exported(program, keeps=True))
        self.executable = pipeline.build(lambda: read().graph, options)
        exported = read()
        self._state, self._changes, self._results = exported.state, exported.changes, exported.results
        arguments = describe_structure(exported.arguments) if exported.arguments else ""
        self._arguments = json.loads(arguments) if arguments else None  # of other nests, the inputs one by one
        self._lock = threading.Lock()

    def __call__(self, *args: object, **kwargs: object) -> Any:
        """Run the program. A call that fails changes nothing.

        Args:
            args: the arguments of the program's module.
            kwargs: its keyword arguments.

        Returns:
            The results of the module.

        Raises:
            ArgumentError: arguments do not fit, or an argument that the program changes is no tensor of PyTorch's.
            ShapeError: sizes are not the program's, or disagree.
            OutOfMemoryError: there is no memory for results or intermediates.
        """
        if self._arguments is not None:
            args = inputs_of(self._arguments, args, kwargs)
        elif kwargs:
            raise ArgumentError(f"this program has no keyword arguments; {', '.join(kwargs)} given")
        inputs = (*self._state, *args)
        for number, _ in self._changes:
            if number < len(inputs) and not isinstance(inputs[number], torch.Tensor):
                name = self.executable.program.inputs[number].name
                raise ArgumentError(
                    f"{name} is {type(inputs[number]).__name__}, but a tensor, which the program changes"
                )
        with self._lock, torch.no_grad():
            made = self.executable.native(*inputs)
            for number, output in self._changes:
                inputs[number].copy_(made[output])
        return tree_map(functools.partial(_result, made), self._results)


def _result(made: Sequence[torch.Tensor], leaf: Constant | Number | int) -> object:
    if isinstance(leaf, Constant):
        return leaf.value
    return made[leaf.number].item() if isinstance(leaf, Number) else made[leaf]
