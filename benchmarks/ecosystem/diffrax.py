"""Differential equations solved with diffrax."""

from __future__ import annotations

import diffrax
import equinox as eqx
import jax
import jax.numpy as jnp
import lineax as lx

from benchmarks.ecosystem.program import BATCHES, LENGTHS, Made, Program, normal


def decay(t, y, args):
    return -args * y


def solved(**parameters) -> Made:
    """Make a program that solves an exponential decay. parameters: further arguments of `diffeqsolve`."""

    def solve(y0, rate):
        term = diffrax.ODETerm(decay)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y0, args=rate, **parameters).ys

    return solve, lambda n: (normal(n), jnp.float32(0.5))


def saved_at() -> Made:
    """Make a program that saves the solution at as many times as the call asks for, with adaptive step sizes."""

    def solve(y0, ts):
        controller = diffrax.PIDController(rtol=1e-5, atol=1e-5)
        term, saveat = diffrax.ODETerm(decay), diffrax.SaveAt(ts=ts)
        return diffrax.diffeqsolve(
            term, diffrax.Dopri5(), 0.0, 3.0, 0.1, y0, args=0.5, saveat=saveat, stepsize_controller=controller
        ).ys

    return solve, lambda n: (jnp.float32(1.0), jnp.linspace(0.0, 3.0, n))


def neural() -> Made:
    """Make a program that solves a neural ODE for each element of a batch."""
    arrays, static = eqx.partition(eqx.nn.MLP(4, 4, 32, 2, jax.nn.softplus, key=jax.random.key(0)), eqx.is_array)

    def solve(arrays, y0):
        network = eqx.combine(arrays, static)
        term = diffrax.ODETerm(lambda t, y, args: network(y))
        return jax.vmap(lambda y: diffrax.diffeqsolve(term, diffrax.Tsit5(), 0.0, 1.0, 0.1, y).ys[0])(y0)

    return solve, lambda n: (arrays, normal(n, 4))


def stochastic() -> Made:
    def solve(key, y0):
        motion = diffrax.VirtualBrownianTree(0.0, 1.0, tol=1e-2, shape=y0.shape, key=key)
        terms = diffrax.MultiTerm(
            diffrax.ODETerm(lambda t, y, args: -y),
            diffrax.ControlTerm(lambda t, y, args: lx.DiagonalLinearOperator(jnp.full_like(y, 0.1)), motion),
        )
        return diffrax.diffeqsolve(terms, diffrax.Euler(), 0.0, 1.0, 0.05, y0).ys

    return solve, lambda n: (jax.random.key(0), normal(n))


PROGRAMS = [
    Program("diffrax Tsit5", solved, BATCHES),
    Program("diffrax results instead of errors", lambda: solved(throw=False), BATCHES),
    Program("diffrax Dopri5 at many times", saved_at, LENGTHS),
    Program("diffrax neural ODE", neural, BATCHES),
    Program("diffrax SDE", stochastic, BATCHES),
]
