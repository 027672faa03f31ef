"""Models of numpyro: their densities, inference and predictions, with data of other sizes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist
from numpyro.infer import SVI, Predictive, Trace_ELBO, autoguide
from numpyro.infer.util import log_density, potential_energy

from benchmarks.ecosystem.program import BATCHES, Made, Program, normal

KEY = jax.random.key(0)


def regression(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(jnp.zeros(4), 1.0).to_event(1))
    scale = numpyro.sample("scale", dist.Exponential(1.0))
    with numpyro.plate("data", x.shape[0]):
        numpyro.sample("y", dist.Normal(x @ weights, scale), obs=y)


def logistic(x, y=None):
    weights = numpyro.sample("weights", dist.Normal(0.0, 1.0).expand([4]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=x @ weights), obs=y)


def density() -> Made:
    def joint(params, x, y):
        return log_density(regression, (x,), {"y": y}, params)[0]

    params = {"weights": normal(4), "scale": jnp.float32(0.7)}
    return joint, lambda n: (params, normal(n, 4), normal(n, seed=1))


def gradient() -> Made:
    def energy(params, x, y):
        return jax.value_and_grad(lambda p: potential_energy(logistic, (x,), {"y": y}, p))(params)

    return energy, lambda n: ({"weights": normal(4)}, normal(n, 4), (normal(n, seed=1) > 0).astype(jnp.int32))


def svi() -> Made:
    inference = SVI(regression, autoguide.AutoNormal(regression), numpyro.optim.Adam(1e-2), Trace_ELBO())
    state = inference.init(KEY, normal(3, 4), y=normal(3, seed=1))

    def update(state, x, y):
        return inference.update(state, x, y=y)

    return update, lambda n: (state, normal(n, 4), normal(n, seed=1))


def predictive() -> Made:
    samples = {"weights": normal(20, 4), "scale": jnp.full(20, 0.5)}

    def predict(key, samples, x):
        return Predictive(regression, samples)(key, x)["y"]

    return predict, lambda n: (KEY, samples, normal(n, 4))


PROGRAMS = [
    Program("numpyro log density", density, BATCHES),
    Program("numpyro gradient of a potential", gradient, BATCHES),
    Program("numpyro SVI", svi, BATCHES),
    Program("numpyro predictive", predictive, BATCHES),
]
