"""Steps of optax's optimisers, and its losses."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal, tokens


def predict(params, x):
    return jnp.tanh(x @ params["w1"] + params["b1"]) @ params["w2"]


def fitted(optimizer: optax.GradientTransformation) -> Made:
    params = {"w1": 0.3 * normal(8, 64), "b1": jnp.zeros(64), "w2": 0.1 * normal(64, 1)}

    def loss(params, x, y):
        return jnp.mean(optax.l2_loss(predict(params, x)[:, 0], y))

    def step(params, state, x, y):
        value, grads = jax.value_and_grad(loss)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    start = optimizer.init(params)
    return step, lambda n: (params, start, normal(n, 8), normal(n, seed=1))


def lbfgs() -> Made:
    """Make a step of L-BFGS with its line search, which evaluates the function in a loop."""
    optimizer = optax.lbfgs(memory_size=4, linesearch=optax.scale_by_backtracking_linesearch(8, store_grad=True))
    w = jnp.zeros(8)

    def step(w, state, x, y):
        def loss(w):
            return jnp.mean((x @ w - y) ** 2)

        value, grad = optax.value_and_grad_from_state(loss)(w, state=state)
        updates, state = optimizer.update(grad, state, w, value=value, grad=grad, value_fn=loss)
        return optax.apply_updates(w, updates), state

    start = optimizer.init(w)
    return step, lambda n: (w, start, normal(n, 8), normal(n, seed=1))


def losses() -> Made:
    def all_of(logits, labels):
        classes = logits.shape[-1]
        return {
            "cross entropy": optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(),
            "focal": optax.sigmoid_focal_loss(logits, jax.nn.one_hot(labels, classes)).mean(),
            "huber": optax.huber_loss(logits).sum(),
            "kl": optax.kl_divergence(jax.nn.log_softmax(logits), jax.nn.softmax(2 * logits[::-1])).mean(),
            "cosine": optax.cosine_similarity(logits, logits[::-1]).mean(),
        }

    return all_of, lambda n: (normal(n, 10), tokens(n, below=10))


def ctc() -> Made:
    def loss(logits, labels):
        padding = jnp.zeros(logits.shape[:2])
        return optax.ctc_loss(logits, padding, labels, jnp.zeros(labels.shape)).mean()

    return loss, lambda n: (normal(2, n, 20), 1 + tokens(2, 6, below=19))


SCHEDULE = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)

PROGRAMS = [
    Program("optax adam", lambda: fitted(optax.adam(1e-3)), BATCHES),
    Program(
        "optax adamw, clipped, scheduled",
        lambda: fitted(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(SCHEDULE))),
        BATCHES,
    ),
    Program("optax accumulated momentum", lambda: fitted(optax.MultiSteps(optax.sgd(0.1, 0.9), 2)), BATCHES),
    Program("optax lbfgs", lbfgs, BATCHES),
    Program("optax losses", losses, BATCHES),
    Program("optax ctc", ctc, LENGTHS),
]
