"""Small compositions of JAX's functions, as layers, losses and loops are written."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
from jax import lax


def mlp(x, w, b, v):
    return jax.nn.gelu(x @ w + b) @ v


def layer_norm(x, scale, bias):
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + bias


def rms_norm(x, scale):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def batch_norm(x, scale):
    return (x - x.mean(0)) / jnp.sqrt(x.var(0) + 1e-3) * scale


def group_norm(x):
    groups = x.reshape(*x.shape[:-1], 2, -1)
    return jax.nn.standardize(groups, -1).reshape(x.shape)


def attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 4
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(scores, -1), v)


def causal_attention(q, k, v):
    scores = jnp.einsum("hqd,hkd->hqk", q, k) / 4
    ahead = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("hqk,hkd->hqd", jax.nn.softmax(jnp.where(ahead, scores, -1e9), -1), v)


def rotary(x):
    angles = jnp.arange(x.shape[0])[:, None] / 10000 ** (jnp.arange(x.shape[1] // 2) / 4)
    left, right = jnp.split(x, 2, -1)
    return jnp.concatenate([left * jnp.cos(angles) - right * jnp.sin(angles), right * jnp.cos(angles)], -1)


def lstm(xs, w, u):
    def step(carry, x):
        h, c = carry
        i, f, g, o = jnp.split(x @ w + h @ u, 4, -1)
        c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h, c), h

    zero = jnp.zeros((u.shape[0],))
    return lax.scan(step, (zero, zero), xs)[1]


def rnn_backwards(xs, w):
    return lax.scan(lambda h, x: ((h := jnp.tanh(h @ w + x)), h), jnp.zeros(w.shape[0]), xs, reverse=True)


def convolution(x, w):
    return lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def strided_convolution(x, w):
    return lax.conv_general_dilated(x, w, (2,), "SAME", dimension_numbers=("NWC", "WIO", "NWC"))


def depthwise_convolution(x, w):
    numbers = ("NWC", "WIO", "NWC")
    return lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=numbers, feature_group_count=x.shape[-1])


def dilated_causal_convolution(x, w):
    return lax.conv_general_dilated(x, w, (1,), [(4, 0)], rhs_dilation=(2,), dimension_numbers=("NWC", "WIO", "NWC"))


def max_pool(x):
    return lax.reduce_window(x, -jnp.inf, lax.max, (2, 1), (2, 1), "SAME")


def average_pool(x):
    return lax.reduce_window(x, 0.0, lax.add, (3, 1), (1, 1), "SAME") / 3


def embedding(table, ids):
    return jnp.tanh(table[ids])


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits, -1), labels[:, None], 1).mean()


def one_hot_loss(logits, labels):
    return -(jax.nn.one_hot(labels, 5) * jax.nn.log_softmax(logits)).sum(-1)


def huber(x, y):
    error = jnp.abs(x - y)
    return jnp.where(error < 1, 0.5 * error**2, error - 0.5).mean()


def contrastive(x, y):
    x, y = (v / jnp.linalg.norm(v, axis=-1, keepdims=True) for v in (x, y))
    logits = x @ y.T
    return (jax.nn.logsumexp(logits, 1) - jnp.diagonal(logits)).sum()


def dropout(key, x):
    return jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x / 0.5, 0)


def reparametrised(key, mean, spread):
    return mean + jnp.exp(spread) * jax.random.normal(key, mean.shape)


def differences(x):
    return x[1:] - x[:-1]


def every_other(x):
    return x[::2] ** 2


def reversed_sum(x):
    return jnp.cumsum(x[::-1]) * x


def set_and_add(x, y):
    return x.at[0].set(y[0]).at[-1].add(y[1]).at[:2].multiply(2)


def segment_sum(x, ids):
    return jax.ops.segment_sum(x, ids, 4)


def message_passing(x, source, target):
    return jnp.zeros_like(x).at[target].add(jnp.sin(x[source]))


def masked_mean(x, keep):
    return jnp.where(keep, x, 0).sum(0) / jnp.maximum(keep.sum(0), 1)


def sorted_by(x, y):
    return y[jnp.argsort(x)]


def top_three(x):
    return lax.top_k(x, 3)


def median_distance(x):
    return jnp.median(jnp.abs(x - jnp.median(x)))


def pairwise(x, y):
    return jnp.sqrt(((x[:, None] - y[None]) ** 2).sum(-1) + 1e-6)


def gaussian_process(x, y):
    kernel = jnp.exp(-((x[:, None] - x[None]) ** 2)) + 0.1 * jnp.eye(x.shape[0])
    return y @ jnp.linalg.solve(kernel, y)


def log_likelihood(a, y):
    factor = jnp.linalg.cholesky(a)
    z = jax.scipy.linalg.solve_triangular(factor, y, lower=True)
    return -0.5 * (z @ z) - jnp.log(jnp.diagonal(factor)).sum()


def least_squares(a, y):
    q, r = jnp.linalg.qr(a)
    return jax.scipy.linalg.solve_triangular(r, q.T @ y)


def nuclear_norm(a):
    return jnp.linalg.svd(a, compute_uv=False).sum()


def whitened(a):
    values, vectors = jnp.linalg.eigh(a)
    return (vectors * jnp.exp(-values)) @ vectors.T


def spectrum(x):
    return jnp.abs(jnp.fft.rfft(x)) ** 2


def filtered(x, h):
    return jnp.convolve(x, h, mode="same")


def powers(x):
    return lax.fori_loop(0, 3, lambda i, c: jnp.sin(c) * x, x)


def branch(x):
    return lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)


def switch(i, x):
    return lax.switch(i[0], [jnp.sin, jnp.cos, jnp.tanh], x)


def running_max(x):
    return lax.associative_scan(jnp.maximum, x)


def linear_recurrence(a, b):
    return lax.associative_scan(lambda x, y: (x[0] * y[0], y[0] * x[1] + y[1]), (a, b))[1]


def checkpointed(x, w):
    layer = jax.checkpoint(lambda x: jnp.tanh(x @ w))
    return layer(layer(x))


def checkpointed_scan(x, w):
    return lax.scan(jax.checkpoint(lambda c, _: (jnp.sin(c @ w), c.sum())), x, None, 4)


def rows_mapped(x):
    return jax.vmap(lambda row: row / (1 + row @ row))(x)


def rows_one_by_one(x):
    return lax.map(lambda row: jnp.sort(row) * row, x)


def newton_step(x):
    return x - jax.vmap(jax.grad(lambda v: v**4 - v))(x) / 9


def power_iteration(a):
    v = lax.fori_loop(0, 5, lambda _, v: (w := a @ v) / jnp.linalg.norm(w), jnp.ones(a.shape[0]))
    return v @ a @ v


def stopped(x):
    return x * lax.stop_gradient(jnp.exp(x))


@jax.custom_vjp
def straight_through(x):
    return jnp.round(x)


straight_through.defvjp(lambda x: (jnp.round(x), None), lambda _, ct: (ct,))


@jax.custom_jvp
def log1pexp(x):
    return jnp.log1p(jnp.exp(x))


log1pexp.defjvps(lambda t, _, x: t * jax.nn.sigmoid(x))


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _clipped(limit, x):
    return x


_clipped.defvjp(lambda limit, x: (x, None), lambda limit, _, ct: (jnp.clip(ct, -limit, limit),))


def clipped_gradient(x):
    return _clipped(0.5, x) ** 2


def pytrees(x, y):
    return {"y": x * y, "z": (x.sum(), x.argmax())}


def mixed_types(x, y):
    return x @ y, x.astype(jnp.float32).sum(), (x * 2).astype(jnp.int32)


def constant_of_arrays(x):
    return jnp.ones(3)


def unused(x, y):
    return x, x.shape[0] * 2.0
