"""Modules of equinox: pytrees, whose arrays are arguments."""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import optax

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal, tokens

KEYS = jax.random.split(jax.random.key(0), 16)


class Linear(eqx.Module):
    weight: jax.Array
    bias: jax.Array
    scale: float = eqx.field(static=True)

    def __call__(self, x):
        return self.scale * (self.weight @ x + self.bias)


class CNN(eqx.Module):
    layers: list

    def __init__(self):
        self.layers = [
            eqx.nn.Conv2d(1, 3, kernel_size=4, key=KEYS[0]),
            eqx.nn.MaxPool2d(kernel_size=2),
            jax.nn.relu,
            jnp.ravel,
            eqx.nn.Linear(1728, 64, key=KEYS[1]),
            jax.nn.sigmoid,
            eqx.nn.Linear(64, 10, key=KEYS[2]),
            jax.nn.log_softmax,
        ]

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class RNN(eqx.Module):
    cell: eqx.nn.GRUCell
    linear: eqx.nn.Linear

    def __init__(self):
        self.cell = eqx.nn.GRUCell(8, 32, key=KEYS[3])
        self.linear = eqx.nn.Linear(32, 1, key=KEYS[4])

    def __call__(self, x):
        out, _ = jax.lax.scan(lambda carry, x: (self.cell(x, carry), None), jnp.zeros(self.cell.hidden_size), x)
        return jax.nn.sigmoid(self.linear(out))


class Block(eqx.Module):
    embed: eqx.nn.Embedding
    attention: eqx.nn.MultiheadAttention
    norm: eqx.nn.LayerNorm
    up: eqx.nn.Linear
    down: eqx.nn.Linear

    def __init__(self):
        self.embed = eqx.nn.Embedding(100, 64, key=KEYS[5])
        self.attention = eqx.nn.MultiheadAttention(4, 64, key=KEYS[6])
        self.norm = eqx.nn.LayerNorm(64)
        self.up = eqx.nn.Linear(64, 256, key=KEYS[7])
        self.down = eqx.nn.Linear(256, 64, key=KEYS[8])

    def __call__(self, ids):
        x = jax.vmap(self.embed)(ids)
        y = jax.vmap(self.norm)(x)
        mask = jnp.tril(jnp.ones((x.shape[0], x.shape[0]), bool))
        x = x + self.attention(y, y, y, mask=mask)
        return x + jax.vmap(lambda x: self.down(jax.nn.gelu(self.up(x))))(x)


def batched(model, inputs) -> Made:
    """Make a program that maps a model over a batch. Its arrays are an argument; the rest is part of the function."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def apply(arrays, x):
        return jax.vmap(eqx.combine(arrays, static))(x)

    return apply, lambda n: (arrays, inputs(n))


def module() -> Made:
    model = Linear(normal(16, 32), normal(16), 0.5)
    return (lambda model, x: jax.vmap(model)(x)), lambda n: (model, normal(n, 32))


def batch_norm() -> Made:
    layers = [
        eqx.nn.Linear(32, 64, key=KEYS[9]),
        eqx.nn.BatchNorm(64, axis_name="batch", mode="batch"),
        eqx.nn.Lambda(jax.nn.relu),
        eqx.nn.Linear(64, 3, key=KEYS[10]),
    ]
    model, state = eqx.nn.make_with_state(eqx.nn.Sequential)(layers)
    arrays, static = eqx.partition(model, eqx.is_array)

    def apply(arrays, state, x):
        model = eqx.combine(arrays, static)
        return jax.vmap(model, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, state)

    return apply, lambda n: (arrays, state, normal(n, 32))


def train_step() -> Made:
    arrays, static = eqx.partition(CNN(), eqx.is_array)
    optimizer = optax.adamw(1e-3, eps=1e-4)  # a first step of less divides noise by noise

    def step(arrays, state, x, y):
        def loss(arrays):
            predicted = jax.vmap(eqx.combine(arrays, static))(x)
            return -jnp.mean(jnp.take_along_axis(predicted, y[:, None], axis=1))

        value, grads = eqx.filter_value_and_grad(loss)(arrays)
        updates, state = optimizer.update(grads, state, arrays)
        return eqx.apply_updates(arrays, updates), state, value

    start = optimizer.init(arrays)
    return step, lambda n: (arrays, start, normal(n, 1, 28, 28), tokens(n, below=10))


PROGRAMS = [
    Program("equinox module as argument", module, BATCHES),
    Program("equinox MLP", lambda: batched(eqx.nn.MLP(32, 10, 128, 2, key=KEYS[0]), lambda n: normal(n, 32)), BATCHES),
    Program("equinox CNN", lambda: batched(CNN(), lambda n: normal(n, 1, 28, 28)), BATCHES),
    Program("equinox GRU", lambda: batched(RNN(), lambda n: normal(4, n, 8)), LENGTHS),
    Program("equinox decoder", lambda: batched(Block(), lambda n: tokens(2, n, below=100)), LENGTHS),
    Program("equinox batch norm", batch_norm, BATCHES),
    Program("equinox train step", train_step, BATCHES),
]
