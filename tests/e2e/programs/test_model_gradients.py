"""Gradients of small models of every kind at up to six sizes, and models mapped: JAX's values, and few programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.accuracy import QUICK
from jax import lax
from surface.compositions import layer_norm

import hlo_disc

Params = dict[str, Any]
HEADS = 2


class Model(NamedTuple):
    """A function of weights and inputs. inputs: for some sizes."""

    fn: Callable[..., jax.Array]
    params: Callable[[Callable[..., Any]], Params]
    inputs: Callable[..., tuple[Any, ...]]
    sizes: tuple[tuple[int, ...], ...]


# ----------------------------------------------------------------------------------------------------------- the models


def bert(params: Params, ids: jax.Array, mask: jax.Array) -> jax.Array:
    bias = (1 - mask[:, None, None, :].astype(jnp.float32)) * -1e9
    x = params["words"][ids] + params["positions"][: ids.shape[1]]
    heads = (*ids.shape, HEADS, x.shape[-1] // HEADS)
    query, key, value = ((x @ params[name]).reshape(heads) for name in ("query", "key", "value"))
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) / 4 + bias
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), value)
    x = layer_norm(x + mixed.reshape(x.shape) @ params["output"], params["scale"], 0.0)
    return layer_norm(x + jax.nn.gelu(x @ params["up"]) @ params["down"], params["scale"], 0.0)


def bert_params(normal: Callable[..., Any]) -> Params:
    square = {name: normal(8, 8) for name in ("query", "key", "value", "output")}
    tables = {"words": normal(50, 8), "positions": normal(16, 8)}
    return {**tables, **square, "up": normal(8, 32), "down": normal(32, 8), "scale": 1 + normal(8)}


def bert_inputs(b: int, s: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(b + s)
    lengths = rng.integers(1, s + 1, b)
    return rng.integers(0, 50, (b, s)).astype(np.int32), (np.arange(s) < lengths[:, None]).astype(np.int32)


def resnet(params: Params, x: jax.Array) -> jax.Array:
    def conv(layer: Params, x: jax.Array, stride: int) -> jax.Array:
        x = lax.conv_general_dilated(
            x, layer["w"], (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        centred = x - x.mean((0, 1, 2))
        return centred * lax.rsqrt((centred**2).mean((0, 1, 2)) + 1e-2) * layer["scale"]

    x = jax.nn.relu(conv(params["stem"], x, 2))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME")
    y = conv(params["second"], jax.nn.relu(conv(params["first"], x, 2)), 1)
    return jax.nn.relu(conv(params["shortcut"], x, 2) + y).mean((1, 2)) @ params["head"]


def resnet_params(normal: Callable[..., Any]) -> Params:
    def conv(size: int, inputs: int, outputs: int) -> Params:
        return {"w": normal(size, size, inputs, outputs), "scale": 1 + normal(outputs)}

    block = {"first": conv(3, 4, 8), "second": conv(3, 8, 8), "shortcut": conv(1, 4, 8)}
    return {"stem": conv(7, 3, 4), **block, "head": normal(8, 5)}


def lstm(params: Params, xs: jax.Array) -> jax.Array:
    """Compute an LSTM over xs (t, b, 4)."""

    def cell(state: Any, x: jax.Array) -> Any:
        h, c = state
        i, f, g, o = jnp.split(x @ params["input"] + h @ params["hidden"] + params["bias"], 4, axis=-1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zeros = jnp.zeros((xs.shape[1], 6))
    return lax.scan(cell, (zeros, zeros), xs)[1]


def lstm_params(normal: Callable[..., Any]) -> Params:
    return {"input": normal(4, 24), "hidden": normal(6, 24), "bias": normal(24)}


def floats(*shape: int) -> tuple[jax.Array]:
    return (jnp.asarray(np.random.default_rng(sum(shape)).standard_normal(shape), jnp.float32),)


MODELS = {
    "BERT": Model(bert, bert_params, bert_inputs, ((2, 7), (3, 12), (1, 1), (4, 1), (1, 16), (5, 9))),
    "ResNet": Model(
        resnet,
        resnet_params,
        lambda b, h, w: floats(b, h, w, 3),
        ((2, 16, 16), (3, 21, 18), (2, 9, 9), (5, 33, 10), (2, 12, 30), (3, 9, 31)),
    ),
    "LSTM": Model(lstm, lstm_params, lambda t, b: floats(t, b, 4), ((5, 3), (9, 4), (1, 1), (7, 1), (1, 2), (16, 8))),
}

# ------------------------------------------------------------------------------------------------------------ the tests


def params_of(model: Model) -> Params:
    rng = np.random.default_rng(0)
    return model.params(lambda *shape: jnp.asarray(rng.standard_normal(shape), jnp.float32) * 0.3)


def assert_close(found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=3e-5 * max(1, np.abs(b).max(initial=0)))


def programs(compiled: Any) -> Counter:
    return Counter((record.of.partition("(")[0], record.backward) for record in compiled.stats().records)


@depth.sampled(2)
@pytest.mark.parametrize("name", MODELS)
def test_gradients(name: str) -> None:
    model = MODELS[name]
    params = params_of(model)

    def loss(params, *inputs):
        return jnp.mean(jnp.square(model.fn(params, *inputs) - 0.5))

    compiled = hlo_disc.jit(loss)
    ours, theirs = jax.value_and_grad(compiled), jax.jit(jax.value_and_grad(loss), compiler_options=QUICK)
    for sizes in model.sizes[: depth.examples(4, 6)]:
        inputs = model.inputs(*sizes)
        assert_close(ours(params, *inputs), theirs(params, *inputs))
    assert programs(compiled) == {("grad", False): 2, ("grad", True): 2}  # one for the first sizes, one for all


@pytest.mark.parametrize("name", MODELS)
def test_mapped(name: str) -> None:
    model = MODELS[name]
    params = params_of(model)
    compiled = hlo_disc.jit(model.fn)
    count = len(model.inputs(*model.sizes[0]))
    ours, theirs = (jax.vmap(fn, (None, *[0] * count)) for fn in (compiled, model.fn))
    theirs = jax.jit(theirs, compiler_options=QUICK)
    for sizes in model.sizes[: depth.examples(3, 4)]:
        inputs = [np.stack([x, x[::-1], x]) for x in map(np.asarray, model.inputs(*sizes))]
        assert_close(ours(params, *inputs), theirs(params, *inputs))
    assert programs(compiled) == {("vmap", False): 2}
