"""A training step of an MLP as one function: the loss, its gradients and Adam's update of every weight."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.models import Params, mlp_inputs, mlp_params

RATE, DECAY, DECAY_OF_SQUARES, LEAST = 1e-3, 0.9, 0.999, 1e-8


def training_state() -> Params:
    """The weights of `models.mlp`, Adam's two running means of their gradients, and how many steps were made."""
    weights = mlp_params()
    zeros = jax.tree.map(jnp.zeros_like, weights)
    return {"weights": weights, "means": zeros, "squares": zeros, "steps": jnp.zeros((), jnp.int32)}


def _loss(weights: Params, x: jax.Array, labels: jax.Array) -> jax.Array:
    for layer in weights["layers"]:
        x = jax.nn.relu(x @ layer["w"] + layer["b"])
    logits = x @ weights["out"]["w"] + weights["out"]["b"]
    chosen = jnp.take_along_axis(logits, labels[:, None], axis=1)[:, 0]
    return (jax.nn.logsumexp(logits, axis=1) - chosen).mean()


def training_step(state: Params, x: jax.Array, labels: jax.Array) -> tuple[jax.Array, Params]:
    """x (b, 784), labels i32 (b,) to the loss and the next state. Adam: Kingma and Ba 2014, arXiv:1412.6980."""
    loss, grads = jax.value_and_grad(_loss)(state["weights"], x, labels)
    steps = state["steps"] + 1
    average = lambda decay: lambda old, new: decay * old + (1 - decay) * new  # noqa: E731
    means = jax.tree.map(average(DECAY), state["means"], grads)
    squares = jax.tree.map(average(DECAY_OF_SQUARES), state["squares"], jax.tree.map(jnp.square, grads))
    rate = RATE * jnp.sqrt(1 - DECAY_OF_SQUARES**steps) / (1 - DECAY**steps)
    update = lambda w, m, v: w - rate * m / (jnp.sqrt(v) + LEAST)  # noqa: E731
    weights = jax.tree.map(update, state["weights"], means, squares)
    return loss, {"weights": weights, "means": means, "squares": squares, "steps": steps}


def training_inputs(b: int) -> tuple[Any, ...]:
    return (*mlp_inputs(b), jnp.asarray(np.random.default_rng(b).integers(0, 10, b).astype(np.int32)))


def training_work(b: int) -> tuple[float, float]:
    """Three products for each weight but the first layer's; weights and both means are read and written."""
    weights = 784 * 512 + 512 * 512 + 512 * 10
    return 6.0 * b * weights - 2.0 * b * 784 * 512, 4.0 * (6 * weights + b * 785)
