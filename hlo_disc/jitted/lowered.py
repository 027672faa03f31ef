"""A program between tracing and machine code."""

from __future__ import annotations

from hlo_disc import pipeline
from hlo_disc.display.notebook import html_table, signature_text
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.executable import Executable
from hlo_disc.options import Options


class Lowered:
    """A function traced for some arguments, not compiled yet; made by `JitFunction.lower`."""

    def __init__(self, graph: Graph, options: Options):
        self.graph = graph
        self._options = options

    def __repr__(self) -> str:
        inputs, outputs = self._signature()
        return f"<hlo_disc.Lowered {self.graph.name}{signature_text(inputs, outputs)}>"

    def _repr_html_(self) -> str:
        inputs, outputs = self._signature()
        return html_table(
            f"{self.graph.name}, not compiled", [*(("input", x) for x in inputs), *(("output", x) for x in outputs)]
        )

    def _signature(self) -> tuple[list[str], list[str]]:
        named = zip(self.graph.input_names, self.graph.inputs, strict=True)
        return [f"{name}: {value}" for name, value in named], list(map(str, self.graph.outputs))

    def as_text(self) -> str:
        """The program as StableHLO; `hlo_disc.shape` at an argument names its dims. `hlo_disc.compile` reads it."""
        from hlo_disc.dynamic_hlo.print.stablehlo import to_stablehlo

        return to_stablehlo(self.graph)

    def compile(self) -> Executable:
        """Compile the program to machine code.

        Raises:
            UnsupportedOpError: a library call for which this process has no handler.
        """
        return pipeline.build(self.graph, self._options)
