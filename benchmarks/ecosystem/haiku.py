"""Functions of haiku, transformed to pure ones."""

from __future__ import annotations

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal, tokens


def lenet(x):
    return hk.Sequential([hk.Flatten(), hk.Linear(300), jax.nn.relu, hk.Linear(100), jax.nn.relu, hk.Linear(10)])(x)


def lstm(x):
    core = hk.LSTM(32)
    outs, _ = hk.dynamic_unroll(core, x, core.initial_state(x.shape[1]))
    return hk.BatchApply(hk.Linear(5))(outs)


def transformer(ids):
    length = ids.shape[1]
    x = hk.Embed(100, 64)(ids)
    x = x + hk.get_parameter("positions", [512, 64], init=hk.initializers.TruncatedNormal(0.02))[:length]
    initial = hk.initializers.VarianceScaling(0.5)
    for _ in range(2):
        y = hk.LayerNorm(-1, True, True)(x)
        mask = jnp.tril(jnp.ones((1, 1, length, length)))
        x = x + hk.MultiHeadAttention(4, 16, w_init=initial, model_size=64)(y, y, y, mask=mask)
        y = hk.LayerNorm(-1, True, True)(x)
        x = x + hk.Sequential([hk.Linear(256), jax.nn.gelu, hk.Linear(64)])(y)
    return x


def residual(x):
    model = hk.nets.ResNet([1, 1, 1, 1], 10, bottleneck=False, channels_per_group=[8, 16, 32, 64])
    return model(x, is_training=True)


def pure(fn, example, inputs) -> Made:
    model = hk.without_apply_rng(hk.transform(fn))
    params = model.init(jax.random.key(0), example)
    return model.apply, lambda n: (params, inputs(n))


def stateful() -> Made:
    model = hk.without_apply_rng(hk.transform_with_state(residual))
    params, state = model.init(jax.random.key(0), normal(1, 64, 64, 3))
    return model.apply, lambda n: (params, state, normal(n, 64, 64, 3))


def train_step() -> Made:
    model = hk.without_apply_rng(hk.transform(lenet))
    params = model.init(jax.random.key(0), normal(1, 16, 16, 1))
    optimizer = optax.adam(1e-3, eps=1e-4)

    def step(params, state, images, labels):
        def loss(params):
            likelihood = jnp.sum(jax.nn.one_hot(labels, 10) * jax.nn.log_softmax(model.apply(params, images)))
            l2 = 0.5 * sum(jnp.sum(jnp.square(p)) for p in jax.tree.leaves(params))
            return -likelihood / labels.shape[0] + 1e-4 * l2

        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return optax.apply_updates(params, updates), state

    start = optimizer.init(params)
    return step, lambda n: (params, start, normal(n, 16, 16, 1), tokens(n, below=10))


PROGRAMS = [
    Program("haiku LeNet", lambda: pure(lenet, normal(1, 16, 16, 1), lambda n: normal(n, 16, 16, 1)), BATCHES),
    Program("haiku LSTM", lambda: pure(lstm, normal(4, 1, 8), lambda n: normal(n, 4, 8)), LENGTHS),
    Program(
        "haiku decoder",
        lambda: pure(transformer, tokens(1, 4, below=100), lambda n: tokens(2, n, below=100)),
        LENGTHS,
    ),
    Program("haiku ResNet, statistics of the batch", stateful, BATCHES),
    Program("haiku train step", train_step, BATCHES),
]
