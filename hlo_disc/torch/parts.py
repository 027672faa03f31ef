"""Graphs with ops that cannot be compiled: these ops stay PyTorch's, and the parts between them become programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_symbols
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase


class _Program(torch.nn.Module):
    """A compiled part, as a module that the graph calls."""

    def __init__(self, call: Callable[..., list[object]], single: bool):
        super().__init__()
        self.call, self.single = call, single

    def forward(self, *args: object) -> object:
        results = self.call(*args)
        return results[0] if self.single else results


class _Supported(OperatorSupportBase):
    def __init__(self, refused: Mapping[Node, str]):
        self._refused = refused

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: Node) -> bool:
        return node.op == "call_function" and node not in self._refused


def in_parts(module: GraphModule, refused: Mapping[Node, str]) -> tuple[GraphModule, list[str]]:
    """Move all ops except the refused ones to submodules. Return the graph and the names of those that compute tensors.

    The placeholders of such a submodule give all symbols of its sizes.
    """
    partitioner = CapabilityBasedPartitioner(module, _Supported(refused), allows_single_node_partition=True)
    whole = partitioner.partition_and_fuse()
    names = []
    for node in list(whole.graph.nodes):
        if node.op != "call_module":
            continue
        part = whole.get_submodule(node.target)
        if any(isinstance(x.meta.get("val"), torch.Tensor) for x in part.graph.nodes if x.op == "call_function"):
            _take_graphs(whole, node, part)
            _pass_symbols(whole, node, part)
            names.append(node.target)
    whole.recompile()
    return whole, names


def put_program(whole: GraphModule, name: str, call: Callable[..., list[object]]) -> None:
    """Replace a part of a graph by a program, which returns the list of its results."""
    (output,) = whole.get_submodule(name).graph.output_node().args
    setattr(whole, name, _Program(call, isinstance(output, Node)))


def _take_graphs(whole: GraphModule, call: Node, part: GraphModule) -> None:
    """Make graphs that a part's ops call submodules of the part, in place of arguments."""
    kept = []
    for placeholder, argument in zip(part.graph.find_nodes(op="placeholder"), call.args, strict=True):
        if isinstance(argument, Node) and argument.op == "get_attr" and "val" not in argument.meta:
            part.add_submodule(placeholder.name, whole.get_submodule(str(argument.target)))
            with part.graph.inserting_before(placeholder):
                placeholder.replace_all_uses_with(part.graph.get_attr(placeholder.name))
            part.graph.erase_node(placeholder)
        else:
            kept.append(argument)
    call.args = tuple(kept)
    part.recompile()


def _pass_symbols(whole: GraphModule, call: Node, part: GraphModule) -> None:
    """Add an argument to a part for each symbol of its sizes that is no argument and no argument's size."""
    nodes = list(part.graph.nodes)
    placeholders = [x for x in nodes if x.op == "placeholder"]
    needed = {symbol.name for x in nodes for symbol in free_symbols(x.meta.get("val"))}
    needed -= {str(symbol) for x in nodes if x.op != "placeholder" for symbol in x.meta.get("unbacked_bindings") or ()}
    missing = needed.difference(name for x in placeholders for name, _ in _bare(x))
    if not missing:
        return
    sources: dict[str, tuple[Node, int | None]] = {}
    for node in whole.graph.nodes:
        if node is call:
            break
        for name, axis in _bare(node):
            sources.setdefault(name, (node, axis))
    for name in sorted(missing & sources.keys()):
        source, axis = sources[name]
        with part.graph.inserting_after(placeholders[-1] if placeholders else None):
            placeholders.append(part.graph.placeholder(f"symbol_{name}"))
        value = source.meta["val"]
        placeholders[-1].meta["val"] = value if axis is None else value.shape[axis]
        if axis is not None:
            with whole.graph.inserting_before(call):
                source = whole.graph.call_function(torch.ops.aten.sym_size.int, (source, axis))
                source.meta["val"] = placeholders[-1].meta["val"]
        call.args = (*call.args, source)
    part.recompile()


def _bare(node: Node) -> Iterator[tuple[str, int | None]]:
    """Yield (symbol, axis) for each axis of a node's result that is a symbol, (symbol, None) for a symbol as result."""
    known = node.meta.get("val")
    if isinstance(known, torch.SymInt) and known.node.expr.is_Symbol:
        yield known.node.expr.name, None
    if isinstance(known, torch.Tensor):
        for axis, size in enumerate(known.shape):
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                yield size.node.expr.name, axis
