"""Compiled graphs as PyTorch's `aot_compile` takes them: objects of its own class, which it can save and load."""

from __future__ import annotations

from torch._inductor.output_code import OutputCode

from hlo_disc.executable import Executable
from hlo_disc.import_.aten.imported import Interface
from hlo_disc.torch.call import caller


class Precompiled(OutputCode):
    """A graph that is one program. It is called with the list of its arguments, which it empties."""

    def __init__(self, executable: Executable, interface: Interface):
        super().__init__()
        self._boxed_call = True  # of the object: PyTorch's wrappers copy what that has
        self._made = executable, interface
        self._call = caller(executable, interface)

    def __call__(self, inputs: list[object]) -> list[object]:
        """Run the program. inputs: the values of the graph's placeholders."""
        args = tuple(inputs)
        inputs.clear()
        return self._call(*args)

    def __reduce__(self) -> tuple[type[Precompiled], tuple[Executable, Interface]]:
        return Precompiled, self._made

    def prepare_for_serialization(self) -> None:
        """Do nothing. PyTorch calls this method before it saves the object."""

    def post_compile(self, *_: object) -> None:
        """Do nothing. PyTorch calls this method after it has compiled or loaded the object."""
