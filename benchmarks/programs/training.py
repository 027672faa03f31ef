"""Training steps, each one function of the state and a batch: the loss, its gradients, and the update of all weights.

Adam: Kingma and Ba 2014, arXiv:1412.6980. The convolutions have group norm: Wu and He 2018, arXiv:1803.08494.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.program import KERNEL, Draw, Program, normal
from benchmarks.programs import gpt2
from benchmarks.tree import leaves, mapped

RATE, MOMENTUM, DECAY, DECAY_OF_SQUARES, LEAST = 1e-3, 0.9, 0.9, 0.999, 1e-8
CLASSES, PIXELS, HIDDEN = 10, 784, 512
SIDE, CHANNELS, GROUPS = 32, (32, 64, 128), 8
LAYERS, WIDTH, HEADS, WORDS, POSITIONS = 2, 256, 4, 8000, 512

Loss = Callable[..., Any]


def averages(old: Any, new: Any, decay: float) -> Any:
    return mapped(lambda a, b: decay * a + (1 - decay) * b, old, new)


def adam_state(weights: Any) -> Any:
    """Return the weights, two running means of their gradients, and the number of steps made."""
    zeros = mapped(np.zeros_like, weights)
    return {"weights": weights, "means": zeros, "squares": zeros, "steps": np.zeros((), np.float32)}


def adam(loss: Loss) -> Loss:
    """Return a training step by Adam. loss: takes (ops, weights, *inputs), returns a number.

    The step takes (ops, state, *inputs), and returns the loss and the leaves of the next state.
    """

    def step(ops: Any, state: Any, *inputs: Any) -> Any:
        value, grads = ops.value_and_grad(lambda weights: loss(ops, weights, *inputs), state["weights"])
        steps = state["steps"] + 1
        means = averages(state["means"], grads, DECAY)
        squares = averages(state["squares"], mapped(lambda g: g * g, grads), DECAY_OF_SQUARES)
        rate = RATE * ops.sqrt(1 - DECAY_OF_SQUARES**steps) / (1 - DECAY**steps)
        weights = mapped(lambda w, m, v: w - rate * m / (ops.sqrt(v) + LEAST), state["weights"], means, squares)
        return [value, *leaves({"weights": weights, "means": means, "squares": squares, "steps": steps})]

    return step


def momentum_state(weights: Any) -> Any:
    return {"weights": weights, "speeds": mapped(np.zeros_like, weights)}


def momentum(loss: Loss) -> Loss:
    """Return a training step by stochastic gradient descent with momentum, in the form of `adam`'s."""

    def step(ops: Any, state: Any, *inputs: Any) -> Any:
        value, grads = ops.value_and_grad(lambda weights: loss(ops, weights, *inputs), state["weights"])
        speeds = mapped(lambda v, g: MOMENTUM * v + g, state["speeds"], grads)
        weights = mapped(lambda w, v: w - RATE * v, state["weights"], speeds)
        return [value, *leaves({"weights": weights, "speeds": speeds})]

    return step


def mlp_weights(draw: Draw) -> Any:
    widths = (PIXELS, HIDDEN, HIDDEN, CLASSES)
    return [draw.dense(a, b, scale=(2 / a) ** 0.5) for a, b in zip(widths, widths[1:], strict=False)]


def mlp_logits(ops: Any, weights: Any, x: Any) -> Any:
    """Return logits (b, 10) for x (b, 784)."""
    for layer in weights[:-1]:
        x = ops.relu(ops.dense(layer, x))
    return ops.dense(weights[-1], x)


def mlp_loss(ops: Any, weights: Any, x: Any, labels: Any) -> Any:
    """Return the loss for x (b, 784) and labels i32 (b,)."""
    return ops.cross_entropy(mlp_logits(ops, weights, x), labels)


def cnn_weights(draw: Draw) -> Any:
    def stage(a: int, b: int) -> Any:
        kernel = draw.normal(3, 3, a, b, scale=(2 / (9 * a)) ** 0.5)
        return {"conv": {KERNEL: kernel, "bias": draw.normal(b)}, "norm": draw.norm(b)}

    stages = [stage(a, b) for a, b in zip((3, *CHANNELS), CHANNELS, strict=False)]
    return {"stages": stages, "head": draw.dense(CHANNELS[-1], CLASSES)}


def cnn_loss(ops: Any, weights: Any, x: Any, labels: Any) -> Any:
    """Return the loss for images x (b, 32, 32, 3) and labels i32 (b,)."""
    for stage in weights["stages"]:
        x = ops.relu(ops.group_norm(stage["norm"], ops.conv(stage["conv"], x), GROUPS, 1e-5))
        x = ops.max_pool(x, 2, 2)
    return ops.cross_entropy(ops.dense(weights["head"], ops.image_mean(x)), labels)


def transformer_weights(draw: Draw) -> Any:
    return {
        "words": draw.normal(WORDS, WIDTH),
        "positions": draw.normal(POSITIONS, WIDTH),
        "layers": [gpt2.layer(draw, WIDTH) for _ in range(LAYERS)],
        "norm": draw.norm(WIDTH),
        "head": draw.dense(WIDTH, WORDS),
    }


def transformer_loss(ops: Any, weights: Any, ids: Any, labels: Any) -> Any:
    """Return the loss of a causal model for ids i32 (b, s). labels: i32 (b, s), the tokens that follow."""
    x = ops.take(weights["words"], ids) + weights["positions"][: ops.shape(ids)[1]]
    for layer in weights["layers"]:
        x, _ = gpt2.block(ops, layer, x, width=WIDTH, heads=HEADS)
    return ops.cross_entropy(ops.dense(weights["head"], ops.layer_norm(weights["norm"], x, 1e-5)), labels)


def pixels(b: int) -> list[np.ndarray]:
    rng = np.random.default_rng(b)
    return [normal(rng, (b, PIXELS)), rng.integers(0, CLASSES, b, np.int32)]


def images(b: int) -> list[np.ndarray]:
    rng = np.random.default_rng(b)
    return [normal(rng, (b, SIDE, SIDE, 3)), rng.integers(0, CLASSES, b, np.int32)]


def tokens(b: int, s: int) -> list[np.ndarray]:
    words = np.random.default_rng(1000 * b + s).integers(0, WORDS, (b, s + 1), np.int32)
    return [words[:, :-1], words[:, 1:]]


PROGRAMS = [
    Program(
        "MLP training step",
        "784-512-512-10 by Adam, on b images",
        adam(mlp_loss),
        lambda draw: adam_state(mlp_weights(draw)),
        pixels,
        dims=("(b, _)", "(b)"),
        shapes=[dict(b=b) for b in (1, 37, 128, 512)],
        stream={"b": (1, 256, 1)},
        trains=True,
    ),
    Program(
        "CNN training step",
        "three convolutions with group norm by SGD with momentum, on b images of 32 x 32",
        momentum(cnn_loss),
        lambda draw: momentum_state(cnn_weights(draw)),
        images,
        dims=("(b, _, _, _)", "(b)"),
        shapes=[dict(b=b) for b in (1, 16, 50)],
        stream={"b": (1, 40, 1)},
        images=True,
        trains=True,
    ),
    Program(
        "Transformer training step",
        "a language model, 2 layers of 256, by Adam, on b sequences of s tokens",
        adam(transformer_loss),
        lambda draw: adam_state(transformer_weights(draw)),
        tokens,
        dims=("(b, s)", "(b, s)"),
        shapes=[dict(b=b, s=s) for b, s in ((1, 64), (4, 128), (8, 50))],
        stream={"b": (1, 4, 1), "s": (8, 64, 1)},
        constraints=["s <= 512"],
        trains=True,
    ),
]

# The inference of the model that `MLP training step` trains.
MLP = Program(
    "MLP",
    "784-512-512-10, probabilities of b images",
    lambda ops, weights, x: ops.softmax(mlp_logits(ops, weights, x), -1),
    mlp_weights,
    lambda b: pixels(b)[:1],
    dims=("(b, _)",),
    shapes=[dict(b=b) for b in (1, 33, 256)],
    stream={"b": (1, 256, 1)},
)
