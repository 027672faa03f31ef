"""torch_geometric's layers at graphs whose nodes and edges change, next to eager mode, with gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from check import Model, check
from torch import nn
from torch_geometric import nn as g

# Nodes and edges.
SHAPES = [(9, 20), (12, 31), (7, 1), (30, 80)]
DEGREES = torch.tensor([0, 1, 2, 3, 1])


def layer(make: Callable[[], nn.Module], trained: bool = True, **of_edges: Callable[[int], torch.Tensor]) -> Model:
    """Return the row of a layer of 8 features a node. of_edges: further arguments, made for so many edges."""

    def graph(shape: tuple[int, int]) -> dict[str, Any]:
        nodes, edges = shape
        given = {"x": torch.randn(nodes, 8), "edge_index": torch.randint(0, nodes, (2, edges))}
        return given | {name: make_some(edges) for name, make_some in of_edges.items()}

    return Model(make, graph, SHAPES, trained=trained)


class Pooled(nn.Module):
    """A model of two layers with a norm between them, and pools over all nodes of a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = g.GCNConv(8, 16), g.GraphConv(16, 16)
        self.norm, self.head = g.GraphNorm(16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor, graphs: int) -> Any:
        x = self.norm(self.first(x, edge_index).relu(), batch, graphs)
        x = self.second(x, edge_index).relu()
        return self.head(g.global_mean_pool(x, batch, graphs)), g.global_max_pool(x, batch, graphs)


def three(shape: tuple[int, int]) -> dict[str, Any]:
    """Return three graphs."""
    nodes, edges = shape
    given = {"x": torch.randn(nodes, 8), "edge_index": torch.randint(0, nodes, (2, edges))}
    return given | {"batch": torch.arange(nodes) * 3 // nodes, "graphs": 3}


MODELS: dict[str, Model] = {
    "gcn": layer(lambda: g.GCNConv(8, 5)),
    "gat": layer(lambda: g.GATConv(8, 5, heads=2)),
    "gatv2": layer(lambda: g.GATv2Conv(8, 5, heads=2, edge_dim=3), edge_attr=lambda e: torch.randn(e, 3)),
    "sage": layer(lambda: g.SAGEConv(8, 5)),
    "sage max": layer(lambda: g.SAGEConv(8, 5, aggr="max")),
    "gin": layer(lambda: g.GINConv(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 5)))),
    "gine": layer(lambda: g.GINEConv(nn.Linear(8, 5), edge_dim=3), edge_attr=lambda e: torch.randn(e, 3)),
    "transformer": layer(lambda: g.TransformerConv(8, 5, heads=2)),
    "tag": layer(lambda: g.TAGConv(8, 5)),
    "cheb": layer(lambda: g.ChebConv(8, 5, K=3)),
    "arma": layer(lambda: g.ARMAConv(8, 5, num_stacks=2, num_layers=2)),
    "edge": layer(lambda: g.EdgeConv(nn.Linear(16, 5))),
    "pna": layer(lambda: g.PNAConv(8, 5, ["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"],
        DEGREES)),
    "rgcn": layer(lambda: g.RGCNConv(8, 5, 3), edge_type=lambda e: torch.randint(0, 3, (e,))),
    "fast rgcn": layer(lambda: g.FastRGCNConv(8, 5, 3), edge_type=lambda e: torch.randint(0, 3, (e,))),
    "sg": layer(lambda: g.SGConv(8, 5, K=2)),
    "appnp": layer(lambda: g.APPNP(2, 0.1), trained=False),
    "cg": layer(lambda: g.CGConv(8)),
    "general": layer(lambda: g.GeneralConv(8, 5)),
    "gen": layer(lambda: g.GENConv(8, 5)),
    "film": layer(lambda: g.FiLMConv(8, 5)),
    "super gat": layer(lambda: g.SuperGATConv(8, 5), trained=False),
    "leconv": layer(lambda: g.LEConv(8, 5)),
    "gated": layer(lambda: g.GatedGraphConv(8, 2)),
    "resgated": layer(lambda: g.ResGatedGraphConv(8, 5)),
    "graph": layer(lambda: g.GraphConv(8, 5)),
    "mf": layer(lambda: g.MFConv(8, 5)),
    "pooled": Model(Pooled, three, [(9, 20), (12, 31), (7, 4), (30, 80)], trained=True),
    "nnconv": layer(lambda: g.NNConv(8, 5, nn.Linear(3, 40)), edge_attr=lambda e: torch.randn(e, 3)),
    "gcn model": layer(lambda: g.GCN(8, 16, 2, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_layer(name: str) -> None:
    check(MODELS[name])
