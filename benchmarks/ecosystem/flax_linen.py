"""Modules of flax.linen, applied to variables that are arguments."""

from __future__ import annotations

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal, tokens


class MLP(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Dense(128)(x))
        return nn.Dense(10)(x)


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.avg_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = nn.avg_pool(nn.relu(nn.Conv(32, (3, 3))(x)), (2, 2), strides=(2, 2))
        x = x.reshape((x.shape[0], -1))
        return nn.Dense(10)(nn.relu(nn.Dense(64)(x)))


class Residual(nn.Module):
    """A residual block: convolutions with batch norm by the statistics of the batch."""

    @nn.compact
    def __call__(self, x, train: bool):
        for width, stride in ((16, 1), (32, 2)):
            shortcut = nn.Conv(width, (1, 1), strides=stride)(x)
            for step in (stride, 1):
                x = nn.Conv(width, (3, 3), strides=step, use_bias=False)(x)
                x = nn.relu(nn.BatchNorm(use_running_average=not train)(x))
            x = x + shortcut
        return nn.Dense(10)(x.mean(axis=(1, 2)))


class Transformer(nn.Module):
    causal: bool = False

    @nn.compact
    def __call__(self, ids):
        x = nn.Embed(100, 64)(ids) + nn.Embed(512, 64)(jnp.arange(ids.shape[1]))
        mask = nn.make_causal_mask(ids) if self.causal else nn.make_attention_mask(ids > 0, ids > 0)
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x), mask=mask)
            x = x + nn.Dense(64)(nn.gelu(nn.Dense(256)(nn.LayerNorm()(x))))
        return nn.LayerNorm()(x)


class LSTM(nn.Module):
    @nn.compact
    def __call__(self, x):
        return nn.Dense(5)(nn.RNN(nn.OptimizedLSTMCell(32))(x))


def applied(model: nn.Module, example: jax.Array, inputs) -> Made:
    variables = model.init(jax.random.key(0), example)
    return model.apply, lambda n: (variables, inputs(n))


def batch_norm() -> Made:
    model = Residual()
    variables = model.init(jax.random.key(0), normal(1, 16, 16, 3), train=False)

    def step(variables, x):
        return model.apply(variables, x, train=True, mutable=["batch_stats"])

    return step, lambda n: (variables, normal(n, 16, 16, 3))


def dropout() -> Made:
    model = nn.Sequential([nn.Dense(64), nn.relu, nn.Dropout(0.5, deterministic=False), nn.Dense(3)])
    variables = model.init({"params": jax.random.key(0), "dropout": jax.random.key(1)}, normal(1, 32))

    def apply(variables, key, x):
        return model.apply(variables, x, rngs={"dropout": key})

    return apply, lambda n: (variables, jax.random.key(2), normal(n, 32))


def train_step() -> Made:
    model = CNN()
    params = model.init(jax.random.key(0), normal(1, 16, 16, 1))["params"]
    state = TrainState.create(apply_fn=model.apply, params=params, tx=optax.sgd(0.1, momentum=0.9))

    def step(state, images, labels):
        def loss_fn(params):
            logits = state.apply_fn({"params": params}, images)
            return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

        loss, grads = jax.value_and_grad(loss_fn)(state.params)
        return state.apply_gradients(grads=grads), loss

    return step, lambda n: (state, normal(n, 16, 16, 1), tokens(n, below=10))


PROGRAMS = [
    Program("linen MLP", lambda: applied(MLP(), normal(1, 32), lambda n: normal(n, 32)), BATCHES),
    Program("linen CNN", lambda: applied(CNN(), normal(1, 16, 16, 1), lambda n: normal(n, 16, 16, 1)), BATCHES),
    Program("linen ResNet, statistics of the batch", batch_norm, BATCHES),
    Program(
        "linen encoder",
        lambda: applied(Transformer(), tokens(1, 8, below=100), lambda n: tokens(2, n, below=100)),
        LENGTHS,
    ),
    Program(
        "linen decoder",
        lambda: applied(Transformer(causal=True), tokens(1, 8, below=100), lambda n: tokens(2, n, below=100)),
        LENGTHS,
    ),
    Program("linen LSTM", lambda: applied(LSTM(), normal(1, 4, 8), lambda n: normal(4, n, 8)), LENGTHS),
    Program("linen dropout", dropout, BATCHES),
    Program("linen train step", train_step, BATCHES),
]
