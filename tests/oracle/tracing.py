"""JAX functions as graphs, at shapes that tests write as they like."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import tree_util

import hlo_disc.tracing.trace
from hlo_disc.dynamic_hlo.ir.graph import Graph
from hlo_disc.import_.sizes.symbols import ShapeSpec, shape_spec
from hlo_disc.tracing.signature import Signature
from hlo_disc.tracing.values import Leaf


@dataclass(frozen=True)
class Spec:
    """The shape and type of an array argument: Spec("(b, s, 768)", "float32") or Spec(("b", 128), np.int32)."""

    shape: str | ShapeSpec
    dtype: Any


def trace(fn: Callable[..., Any], *args: Any, constraints: Sequence[str] = (), **kwargs: Any) -> tuple[Graph, Any]:
    """The graph of `fn(*args, **kwargs)` and the tree of its results. args, kwargs: pytrees of `Spec`s."""
    specs, tree = tree_util.tree_flatten((args, kwargs))
    shapes = [shape_spec(spec.shape) for spec in specs]
    leaves = [
        Leaf(np.dtype(spec.dtype), tuple(d.value if d.is_const else 1 for d in shape))
        for spec, shape in zip(specs, shapes, strict=True)
    ]
    dims = tuple(tuple(None if d.is_const else str(d) for d in shape) for shape in shapes)
    names = Signature(fn).leaves(args, kwargs, ())
    traced = hlo_disc.tracing.trace.trace(fn, tree, leaves, dims, names, constraints)
    return traced.graph, traced.out_tree
