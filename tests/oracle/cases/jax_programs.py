"""Whole JAX programs: what people compute with jax.numpy, jax.nn, jax.random, jax.scipy, and training steps.

Rows as in programs.py, each run at a few sizes, because XLA compiles them all, twice.
"""

from __future__ import annotations

from dataclasses import dataclass

import depth
import jax
import jax.numpy as jnp
from jax import lax

from cases.programs import Program, program

SIZES = (1, 2, 3, 8, 13, 33) if depth.full else (1, 3, 33)


@dataclass(frozen=True, eq=False)
class Few(Program):
    """A program that runs at up to six sizes a dim, all equal, and two rows where they differ; of that half, or all."""

    def sizes(self) -> list[dict[str, int]]:
        names = self.symbols
        rows = [dict.fromkeys(names, size) for size in SIZES]
        if len(names) > 1:
            rows = depth.some(rows, 0, 2)
            rows = [*rows, *(dict(zip(names, row, strict=False)) for row in depth.some(((5, 17, 4), (1, 9, 2)), 0))]
        rows = [{name: max(size, self.least.get(name, 0)) for name, size in row.items()} for row in rows]
        return [row for i, row in enumerate(rows) if row not in rows[:i]]


def few(name, fn, *specs, **options):  # type: ignore[no-untyped-def]
    row = program(name, fn, *specs, **options)
    return Few(**{f: getattr(row, f) for f in row.__dataclass_fields__})


# ------------------------------------------------------------------------------------------------------------ jax.nn

SMOOTH = (
    "relu relu6 sigmoid silu gelu celu elu selu leaky_relu softplus soft_sign log_sigmoid hard_tanh hard_sigmoid "
    "hard_silu mish squareplus sparse_plus sparse_sigmoid"
).split()


def activations(x):
    return {name: getattr(jax.nn, name)(x) for name in SMOOTH}


def normalisations(x):
    return {
        "softmax": jax.nn.softmax(x),
        "log_softmax": jax.nn.log_softmax(x, 0),
        "logsumexp": jax.nn.logsumexp(x, -1),
        "standardize": jax.nn.standardize(x),
        "glu": jax.nn.glu(jnp.concatenate([x, x + 1], -1)),
        "logmeanexp": jax.nn.logsumexp(x, 0, b=0.5),
    }


NN = [
    few("activations", activations, "f32[n, m]"),
    few("normalisations", normalisations, "f32[n, m]:calm"),
    few("one_hot", lambda i: jax.nn.one_hot(i, 7), "i32[n]:around:7"),
    few(
        "dot_product_attention",
        lambda q, k: jax.nn.dot_product_attention(q, k, k),
        "f32[b, s, 2, 8]",
        "f32[b, t, 2, 8]",
    ),
    few(
        "causal_dot_product_attention",
        lambda q, k: jax.nn.dot_product_attention(q, k, k, is_causal=True),
        "f32[b, s, 2, 8]",
        "f32[b, s, 2, 8]",
    ),
    few("grad_of_gelu", lambda x: jax.grad(lambda y: jax.nn.gelu(y).sum())(x), "f32[n, m]"),
]


# ------------------------------------------------------------------------------------- jax.random, image, scipy, einsum


def draws(seed, x):
    key = jax.random.fold_in(jax.random.key(0), seed[0])
    keys = jax.random.split(key, 8)
    like = x.shape
    return {
        "bits": jax.random.bits(keys[0], like),
        "uniform": jax.random.uniform(keys[1], like),
        "normal": jax.random.normal(keys[2], like),
        "randint": jax.random.randint(keys[3], like, -5, 90),
        "bernoulli": jax.random.bernoulli(keys[4], 0.3, like),
        "exponential": jax.random.exponential(keys[5], like),
        "gumbel": jax.random.gumbel(keys[6], like),
        "categorical": jax.random.categorical(keys[7], jax.nn.softmax(x)),
    }


def dropout(seed, x):
    keep = jax.random.bernoulli(jax.random.key(seed[0]), 0.9, x.shape)
    return jnp.where(keep, x / 0.9, 0)


def special_functions(x):
    special = jax.scipy.special
    return {
        "gammaln": special.gammaln(x),
        "digamma": special.digamma(x),
        "erfinv": special.erfinv(x / 99),
        "i0e": special.i0e(x),
        "i1e": special.i1e(x),
        "ndtri": special.ndtri(x / 99),
        "xlogy": special.xlogy(x, x),
        "zeta": special.zeta(x + 1.5, 2.0),
        "expit": special.expit(x),
    }


RANDOM = [
    few("draws", draws, "u32[1]:full", "f32[n, m]:calm"),
    few("dropout", dropout, "u32[1]:full", "f32[n, m]"),
    few(
        "truncated_normal",
        lambda seed: jax.random.truncated_normal(jax.random.key(seed[0]), -2, 2, (40,)),
        "u32[1]:full",
    ),
    few("permutation", lambda seed: jax.random.permutation(jax.random.key(seed[0]), 40), "u32[1]:full"),
    few("gamma", lambda seed: jax.random.gamma(jax.random.key(seed[0]), 2.0, (10,)), "u32[1]:full", slack=64.0),
]

OTHER = [
    *(
        few(
            f"resize_{method}",
            lambda x, method=method: jax.image.resize(x, (x.shape[0], 7, 5, 3), method),
            "f32[b, 9, 4, 3]",
        )
        for method in ("nearest", "linear", "cubic")
    ),
    few("resize_up", lambda x: jax.image.resize(x, (x.shape[0], 16, 15, 2), "bilinear"), "f32[b, 5, 6, 2]"),
    few("einsum_chain", lambda x, y, z: jnp.einsum("ij,jk,kl->il", x, y, z), "f32[n, 5]", "f32[5, m]", "f32[m, 4]"),
    few("einsum_diagonal", lambda x: (jnp.einsum("bii->bi", x), jnp.einsum("bii->b", x)), "f32[b, 6, 6]"),
    few("einsum_batch", lambda x, y: jnp.einsum("bqhd,bkhd->bhqk", x, y), "f32[b, s, 2, 4]", "f32[b, t, 2, 4]"),
    few("einsum_outer", lambda x, y: jnp.einsum("i,j->ji", x, y), "f32[n]", "f32[m]"),
    few("tensordot", lambda x, y: jnp.tensordot(x, y, ((2, 1), (0, 1))), "f32[n, 3, 4]", "f32[4, 3, m]"),
    few("kron", lambda x, y: jnp.kron(x, y), "f32[n, 2]", "f32[3, 2]"),
    few(
        "polynomials",
        lambda x: (jnp.polyval(jnp.arange(5.0), x), jnp.interp(x, jnp.arange(4.0), jnp.arange(4.0) ** 2)),
        "f32[n]:unit",
    ),
    few("statistics", lambda x: (x.var(0), x.std(1), jnp.cov(x.T), jnp.ptp(x, 1)), "f32[n, 4]:calm", n=2),
    few("convolve", lambda x, y: jax.vmap(lambda a: jnp.convolve(a, y, "same"))(x), "f32[n, 20]", "f32[5]"),
    few("special", special_functions, "f32[n]:positive", relative=True, slack=32.0),
]


# --------------------------------------------------------------------------------------------------- training steps


def adam(params, grads, state, rate=1e-2):
    """One step of Adam (Kingma and Ba, 2015); state is (step, first moments, second moments)."""
    step, m, v = state
    step = step + 1
    m = [0.9 * a + 0.1 * g for a, g in zip(m, grads, strict=True)]
    v = [0.999 * a + 0.001 * g * g for a, g in zip(v, grads, strict=True)]
    scale = jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    new = [p - rate * scale * a / (jnp.sqrt(b) + 1e-6) for p, a, b in zip(params, m, v, strict=True)]
    return new, (step, m, v)


def step(loss, params, *data):
    """Loss and updated parameters after one step from moments of zero."""
    value, grads = jax.value_and_grad(loss)(params, *data)
    zeros = [jnp.zeros_like(p) for p in params]
    ones = [jnp.ones_like(p) for p in params]
    new, (_, m, v) = adam(params, grads, (jnp.ones((), params[0].dtype), zeros, ones))
    return {"loss": value, "params": new, "m": m, "v": v}


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


def mlp_step(x, labels, w1, b1, w2, b2):
    def loss(params, x, labels):
        w1, b1, w2, b2 = params
        return cross_entropy(jax.nn.relu(x @ w1 + b1) @ w2 + b2, labels)

    return step(loss, [w1, b1, w2, b2], x, labels)


def cnn_step(x, labels, k1, k2, w):
    def loss(params, x, labels):
        k1, k2, w = params
        numbers = ("NHWC", "HWIO", "NHWC")
        x = jax.nn.relu(lax.conv_general_dilated(x, k1, (1, 1), "SAME", dimension_numbers=numbers))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        x = jax.nn.relu(lax.conv_general_dilated(x, k2, (2, 2), "SAME", dimension_numbers=numbers))
        return cross_entropy(x.mean((1, 2)) @ w, labels)

    return step(loss, [k1, k2, w], x, labels)


def lstm_step(x, target, wx, wh, b, out):
    def loss(params, x, target):
        wx, wh, b, out = params

        def cell(carry, x):
            h, c = carry
            i, f, g, o = jnp.split(x @ wx + h @ wh + b, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zero = jnp.zeros((x.shape[0], wh.shape[0]), x.dtype)
        _, h = lax.scan(cell, (zero, zero), x.swapaxes(0, 1))
        return ((h.swapaxes(0, 1) @ out - target) ** 2).mean()

    return step(loss, [wx, wh, b, out], x, target)


def transformer_step(ids, labels, table, qkv, proj, up, down):
    def norm(x):
        return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)

    def loss(params, ids, labels):
        table, qkv, proj, up, down = params
        x = table[ids]
        q, k, v = jnp.split(norm(x) @ qkv, 3, -1)
        heads = [a.reshape(*a.shape[:2], 2, -1) for a in (q, k, v)]
        x = x + jax.nn.dot_product_attention(*heads, is_causal=True).reshape(x.shape) @ proj
        x = x + jax.nn.gelu(norm(x) @ up) @ down
        logits = jax.nn.log_softmax(norm(x) @ table.T)
        return -jnp.take_along_axis(logits, labels[..., None], -1).mean()

    return step(loss, [table, qkv, proj, up, down], ids, labels)


TRAINING = [
    few(
        "mlp_step",
        mlp_step,
        "f32[b, 12]",
        "i32[b]:below:5",
        "f32[12, 16]:unit",
        "f32[16]:unit",
        "f32[16, 5]:unit",
        "f32[5]:unit",
        slack=64.0,
    ),
    few(
        "cnn_step",
        cnn_step,
        "f32[b, 12, 12, 3]:calm",
        "i32[b]:below:4",
        "f32[3, 3, 3, 6]:unit",
        "f32[3, 3, 6, 8]:unit",
        "f32[8, 4]:unit",
        slack=64.0,
    ),
    few(
        "lstm_step",
        lstm_step,
        "f32[b, s, 5]:calm",
        "f32[b, s, 3]:calm",
        "f32[5, 32]:unit",
        "f32[8, 32]:unit",
        "f32[32]:unit",
        "f32[8, 3]:unit",
        slack=64.0,
    ),
    few(
        "transformer_step",
        transformer_step,
        "i32[b, s]:below:11",
        "i32[b, s]:below:11",
        "f32[11, 16]:unit",
        "f32[16, 48]:unit",
        "f32[16, 16]:unit",
        "f32[16, 32]:unit",
        "f32[32, 16]:unit",
        slack=64.0,
    ),
]

# ------------------------------------------------------------------------------------------------------- fft, linalg


def spd(x):
    return x @ x.mT + 4 * jnp.eye(x.shape[-1], dtype=x.dtype)


LINALG = [
    few(
        "fft",
        lambda x: (jnp.abs(jnp.fft.fft(x)), jnp.fft.irfft(jnp.fft.rfft(x), 24), jnp.abs(jnp.fft.fft(x, 32))),
        "f32[n, 24]",
    ),
    few("cholesky", lambda x: jnp.linalg.cholesky(spd(x)), "f32[b, 6, 6]:unit", slack=64.0),
    few(
        "solve",
        lambda x, y: (jnp.linalg.solve(spd(x), y), jnp.linalg.inv(spd(x)), jnp.linalg.det(spd(x))),
        "f32[b, 5, 5]:unit",
        "f32[b, 5, 2]",
        slack=256.0,
    ),
    few("qr", lambda x: jnp.abs(jnp.linalg.qr(x)[1]), "f32[b, 7, 4]:calm", slack=64.0),
    few("svd", lambda x: jnp.linalg.svd(x, compute_uv=False), "f32[b, 5, 4]:calm", slack=64.0),
    few("eigh", lambda x: jnp.linalg.eigh(spd(x))[0], "f32[b, 5, 5]:unit", slack=64.0),
    few(
        "norms",
        lambda x: (jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1), jnp.linalg.matrix_power(x @ x.T / 64, 3)),
        "f32[n, 6]:calm",
    ),
]

PROGRAMS = {row.name: row for row in [*NN, *RANDOM, *OTHER, *TRAINING, *LINALG]}
