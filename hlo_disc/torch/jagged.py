"""Attention of jagged nested tensors. One program for all lengths runs for each sentence, and reads it in place."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from hlo_disc.errors import ArgumentError
from hlo_disc.executable import Executable
from hlo_disc.import_.aten.dtypes import DTYPES
from hlo_disc.import_.jax_later import jax, jnp
from hlo_disc.torch.library import LIBRARY

if TYPE_CHECKING:
    from torch.autograd.function import FunctionCtx


def _weights(q: jax.Array, k: jax.Array, causal: bool, scale: float) -> jax.Array:
    """Compute the attention weights, (heads, m, n), of wide q, (m, heads, width), and k, (n, heads, width)."""
    scores = jnp.einsum("qhd,khd->hqk", q, k) * scale
    if causal:
        rows, columns = (jax.lax.broadcasted_iota(np.int32, scores.shape[1:], axis) for axis in (0, 1))
        scores = jnp.where(rows >= columns, scores, -np.inf)
    return jax.nn.softmax(scores, -1)


def _wide(*arrays: jax.Array) -> list[jax.Array]:
    return [x.astype(jnp.promote_types(x.dtype, np.float32)) for x in arrays]


def _attended(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, scale: float) -> jax.Array:
    """Compute the attention of one sequence. q: (m, heads, width); k, v: (n, heads, width)."""
    wide_q, wide_k, wide_v = _wide(q, k, v)
    return jnp.einsum("hqk,khd->qhd", _weights(wide_q, wide_k, causal, scale), wide_v).astype(q.dtype)


def _gradients(
    q: jax.Array, k: jax.Array, v: jax.Array, y: jax.Array, dy: jax.Array, causal: bool, scale: float
) -> list[jax.Array]:
    """Compute the gradients of q, k and v. y: the result of `_attended`; dy: its gradient."""
    kind = q.dtype
    q, k, v, y, dy = _wide(q, k, v, y, dy)
    weights = _weights(q, k, causal, scale)
    common = jnp.einsum("qhd,qhd->hq", y, dy)[..., None]  # the sum over the keys of each weight by its gradient
    of_scores = weights * (jnp.einsum("qhd,khd->hqk", dy, v) - common) * scale
    made = (
        jnp.einsum("hqk,khd->qhd", of_scores, k),
        jnp.einsum("hqk,qhd->khd", of_scores, q),
        jnp.einsum("hqk,qhd->khd", weights, dy),
    )
    return [x.astype(kind) for x in made]


@functools.lru_cache(64)
def _program(dtype: torch.dtype, heads: int, width: int, causal: bool, scale: float, backward: bool) -> Executable:
    from hlo_disc import sources  # with all of JAX

    formula = functools.partial(_gradients if backward else _attended, causal=causal, scale=scale)
    query, key = (f"{DTYPES[dtype]}[{length}, {heads}, {width}]" for length in "mn")
    with jax.enable_x64(True):
        return sources.compile(formula, query, key, key, *[query, query] * backward)


def _sentences(x: torch.Tensor, offsets: Sequence[int]) -> list[torch.Tensor]:
    return [x[start:end] for start, end in itertools.pairwise(offsets)]


def _run(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    of_q: torch.Tensor,
    of_k: torch.Tensor,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    run = _program(q.dtype, q.shape[1], q.shape[2], causal, scale, backward=False)
    return _joined(run, (q, k, v), [of_q.tolist(), *[of_k.tolist()] * 2], (q,))[0]


def _run_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    y: torch.Tensor,
    dy: torch.Tensor,
    of_q: torch.Tensor,
    of_k: torch.Tensor,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, ...]:
    run = _program(q.dtype, q.shape[1], q.shape[2], causal, scale, backward=True)
    rows, keys = of_q.tolist(), of_k.tolist()
    return _joined(run, (q, k, v, y, dy), [rows, keys, keys, rows, rows], (q, k, v))


def _joined(
    run: Executable, given: Sequence[torch.Tensor], offsets: Sequence[Sequence[int]], like: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Run a program for each sentence and concatenate the results; those of a sentence without keys are zero.

    given: the inputs. offsets: for each input, the bounds of its sentences. like: tensors of the results' shapes.
    """
    made = [run.native(*own) for own in zip(*map(_sentences, given, offsets), strict=True)]
    return tuple(map(_concatenated, zip(*made, strict=True))) if made else tuple(map(torch.zeros_like, like))


def _concatenated(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Concatenate tensors. `torch.cat` would wake PyTorch's threads, and the programs' threads would wait for cores."""
    content = np.concatenate([x.view(torch.uint8).numpy() for x in parts])
    return torch.from_numpy(content).view(parts[0].dtype) if content.size else parts[0]


_SIZES, _THREE = "Tensor of_q, Tensor of_k, bool causal, float scale", "(Tensor, Tensor, Tensor)"
LIBRARY.define(f"jagged_attention(Tensor q, Tensor k, Tensor v, {_SIZES}) -> Tensor")
LIBRARY.define(f"jagged_attention_backward(Tensor q, Tensor k, Tensor v, Tensor y, Tensor dy, {_SIZES}) -> {_THREE}")
LIBRARY.impl("jagged_attention", _run, "CPU")
LIBRARY.impl("jagged_attention_backward", _run_backward, "CPU")
_OP = torch.ops.hlo_disc.jagged_attention
torch.library.register_fake("hlo_disc::jagged_attention", lambda q, *_: q.new_empty(q.shape), lib=LIBRARY)
torch.library.register_fake(
    "hlo_disc::jagged_attention_backward", lambda *given: tuple(x.new_empty(x.shape) for x in given[:3]), lib=LIBRARY
)


def _keep(ctx: FunctionCtx, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
    q, k, v, of_q, of_k, ctx.causal, ctx.scale = inputs
    ctx.save_for_backward(q, k, v, output, of_q, of_k)


def _backward(ctx: FunctionCtx, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    q, k, v, y, *offsets = ctx.saved_tensors
    made = torch.ops.hlo_disc.jagged_attention_backward(q, k, v, y, dy, *offsets, ctx.causal, ctx.scale)
    return (*made, None, None, None, None)


torch.library.register_autograd("hlo_disc::jagged_attention", _backward, setup_context=_keep, lib=LIBRARY)


def jagged_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool = False, scale: float | None = None
) -> torch.Tensor:
    """Compute `scaled_dot_product_attention` of jagged nested tensors on a CPU. PyTorch pads the tensors for it.

    The result has a derivative. The function runs eagerly and under `torch.compile`.

    Args:
        query, key, value: nested tensors (batch, heads, words, width) of the layout `torch.jagged`, as
            `x.unflatten(-1, [heads, -1]).transpose(1, 2)` returns them; keys and values have one structure.
        is_causal: whether a word attends to no word after it.
        scale: the factor of the scores; by default 1 / sqrt(width).

    Returns:
        A nested tensor like the query. Words of a sentence without keys are zero.

    Raises:
        ArgumentError: the arguments are no such tensors.
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not x.is_nested or x.layout != torch.jagged or x.dim() != 4:
            kind = f"{x.dim()} axes, {x.layout}"
            raise ArgumentError(f"the {name} is no jagged nested tensor (batch, heads, words, width): it has {kind}")
        if x.lengths() is not None:
            raise ArgumentError(f"the {name} has gaps between its sentences: call .contiguous() first")
    rows, keys, values = (x.transpose(1, 2) for x in (query, key, value))
    if keys.shape != values.shape or (rows.shape[0], *rows.shape[2:]) != (keys.shape[0], *keys.shape[2:]):
        shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise ArgumentError(
            f"query, key and value are {shapes}: batch, heads and width must agree, and words of the last two"
        )
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    made = _OP(rows.values(), keys.values(), values.values(), rows.offsets(), keys.offsets(), is_causal, scale)
    return torch.nested.nested_tensor_from_jagged(made, rows.offsets()).transpose(1, 2)
