"""Graphs with ops that cannot be compiled: these stay PyTorch's, and what lies between them are programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase


class _Program(torch.nn.Module):
    """A part that is compiled, as a module that the graph calls."""

    def __init__(self, call: Callable[..., list[Any]], single: bool):
        super().__init__()
        self.call, self.single = call, single

    def forward(self, *args: Any) -> Any:
        results = self.call(*args)
        return results[0] if self.single else results


class _Supported(OperatorSupportBase):
    def __init__(self, refused: Mapping[Node, str]):
        self._refused = refused

    def is_node_supported(self, submodules: Any, node: Node) -> bool:
        return node.op == "call_function" and node not in self._refused


def in_parts(
    module: GraphModule, refused: Mapping[Node, str], compile_: Callable[[GraphModule], Callable[..., list[Any]]]
) -> Callable[..., Any]:
    """The graph as a function, whose refused nodes run in PyTorch and all others in programs."""
    partitioner = CapabilityBasedPartitioner(module, _Supported(refused), allows_single_node_partition=True)
    whole = partitioner.partition_and_fuse()
    for node in whole.graph.nodes:
        if node.op != "call_module":
            continue
        part = whole.get_submodule(node.target)
        (output,) = part.graph.output_node().args
        if any(isinstance(x.meta.get("val"), torch.Tensor) for x in part.graph.nodes if x.op == "call_function"):
            setattr(whole, node.target, _Program(compile_(part), isinstance(output, Node)))
    return whole.forward
