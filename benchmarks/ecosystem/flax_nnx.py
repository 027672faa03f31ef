"""Modules of flax.nnx: the module itself is an argument, or its state is."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal, tokens


class MLP(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.linear1 = nnx.Linear(32, 128, rngs=rngs)
        self.norm = nnx.LayerNorm(128, rngs=rngs)
        self.linear2 = nnx.Linear(128, 10, rngs=rngs)

    def __call__(self, x):
        return self.linear2(nnx.gelu(self.norm(self.linear1(x))))


class CNN(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.conv1 = nnx.Conv(1, 16, kernel_size=(3, 3), use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.conv2 = nnx.Conv(16, 32, kernel_size=(3, 3), strides=2, rngs=rngs)
        self.linear = nnx.Linear(512, 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.avg_pool(nnx.relu(self.norm(self.conv1(x))), window_shape=(2, 2), strides=(2, 2))
        return self.linear(nnx.relu(self.conv2(x)).reshape(x.shape[0], -1))


class Transformer(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.embed = nnx.Embed(100, 64, rngs=rngs)
        self.norm = nnx.LayerNorm(64, rngs=rngs)
        self.attention = nnx.MultiHeadAttention(num_heads=4, in_features=64, decode=False, rngs=rngs)
        self.up, self.down = nnx.Linear(64, 256, rngs=rngs), nnx.Linear(256, 64, rngs=rngs)

    def __call__(self, ids):
        x = self.embed(ids)
        x = x + self.attention(self.norm(x), mask=nnx.make_causal_mask(ids))
        return x + self.down(nnx.gelu(self.up(x)))


class GRU(nnx.Module):
    def __init__(self, rngs: nnx.Rngs):
        self.rnn = nnx.RNN(nnx.GRUCell(8, 32, rngs=rngs))

    def __call__(self, x):
        return self.rnn(x)


def module(kind: type, inputs) -> Made:
    """Make a program whose argument is the module."""
    model = kind(nnx.Rngs(0))
    model.eval()
    return (lambda model, x: model(x)), lambda n: (model, inputs(n))


def state(kind: type, inputs) -> Made:
    """Make a program whose argument is the module's state; the module's structure is part of the function."""
    graph, state = nnx.split(kind(nnx.Rngs(0)))

    def apply(state, x):
        model = nnx.merge(graph, state)
        return model(x), nnx.state(model)

    return apply, lambda n: (state, inputs(n))


def train_step() -> Made:
    model = CNN(nnx.Rngs(0))
    graph, state = nnx.split((model, nnx.Optimizer(model, optax.adam(1e-3, eps=1e-4), wrt=nnx.Param)))

    def step(state, images, labels):
        model, optimizer = nnx.merge(graph, state)

        def loss_fn(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(images), labels).mean()

        loss, grads = nnx.value_and_grad(loss_fn)(model)
        optimizer.update(model, grads)
        return nnx.state((model, optimizer)), loss

    return step, lambda n: (state, normal(n, 16, 16, 1), tokens(n, below=10))


def sampled() -> Made:
    """Make a program that draws a token for each row from a linear layer's logits, and finds the likeliest one."""
    model = nnx.Linear(16, 50, rngs=nnx.Rngs(0))

    def sample(model, key, x):
        return jax.random.categorical(key, model(x) / 0.7), jnp.argmax(model(x), -1)

    return sample, lambda n: (model, jax.random.key(1), normal(n, 16))


PROGRAMS = [
    Program("nnx MLP", lambda: module(MLP, lambda n: normal(n, 32)), BATCHES),
    Program("nnx CNN", lambda: module(CNN, lambda n: normal(n, 16, 16, 1)), BATCHES),
    Program("nnx CNN, state", lambda: state(CNN, lambda n: normal(n, 16, 16, 1)), BATCHES),
    Program("nnx decoder", lambda: module(Transformer, lambda n: tokens(2, n, below=100)), LENGTHS),
    Program("nnx GRU", lambda: state(GRU, lambda n: normal(4, n, 8)), LENGTHS),
    Program("nnx sampling", sampled, BATCHES),
    Program("nnx train step", train_step, BATCHES),
]
