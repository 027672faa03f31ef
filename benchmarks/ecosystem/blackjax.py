"""Steps of blackjax's samplers: data of other sizes, and other numbers of chains."""

from __future__ import annotations

import blackjax
import jax
import jax.numpy as jnp
from jax.scipy import stats

from benchmarks.ecosystem.program import BATCHES, Made, Program, normal

KEY = jax.random.key(0)


def logdensity(position, data):
    scale = jnp.exp(position["log_scale"])
    return position["log_scale"] + jnp.sum(stats.norm.logpdf(data, position["loc"], scale))


START = {"loc": jnp.float32(1.0), "log_scale": jnp.float32(0.5)}


def stepped(make) -> Made:
    """Make a program of one step of a sampler. make: returns the algorithm for a log density."""

    def step(key, position, data):
        algorithm = make(lambda position: logdensity(position, data))
        state, info = algorithm.step(key, algorithm.init(position))
        return state.position, info.acceptance_rate

    return step, lambda n: (KEY, START, normal(n))


def chains() -> Made:
    """Make a program of many chains at once, with several steps each."""
    data = normal(50)
    algorithm = blackjax.hmc(lambda position: logdensity(position, data), 1e-2, jnp.ones(2), 5)

    def inference(key, positions):
        def one_step(states, key):
            keys = jax.random.split(key, positions["loc"].shape[0])
            states, _ = jax.vmap(algorithm.step)(keys, states)
            return states, states.position

        return jax.lax.scan(one_step, jax.vmap(algorithm.init)(positions), jax.random.split(key, 4))[1]

    return inference, lambda n: (KEY, {"loc": normal(n), "log_scale": 0.1 * normal(n, seed=1)})


PROGRAMS = [
    Program("blackjax HMC", lambda: stepped(lambda f: blackjax.hmc(f, 1e-2, jnp.ones(2), 10)), BATCHES),
    Program("blackjax NUTS", lambda: stepped(lambda f: blackjax.nuts(f, 1e-2, jnp.ones(2))), BATCHES),
    Program("blackjax MALA", lambda: stepped(lambda f: blackjax.mala(f, 1e-3)), BATCHES),
    Program("blackjax chains of HMC", chains, BATCHES),
]
