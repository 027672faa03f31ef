"""Updates take over a value's memory only if no output, no later reader and not the update itself needs the old."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import hlo_disc

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(f: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[f.__name__] = f
    return f


@program
def also_an_output(x):
    y = jnp.cumsum(x)
    return y, y.at[0].set(5.0)


@program
def also_an_output_of_another_shape(x):
    y = jnp.cumsum(x)
    return y.reshape(1, -1, 1), y.at[0].set(5.0)


@program
def an_update_of_an_output_of_another_shape(x):
    y = jnp.cumsum(x)
    return y, y.reshape(1, -1).at[0, 0].add(5.0)


@program
def read_by_what_follows(x):
    y = jnp.cumsum(x)
    z = y.at[0].set(5.0)
    return jnp.cumsum(z)[::-1] + y


@program
def read_before(x):
    y = jnp.cumsum(x)
    return y.sum(), jnp.cumsum(y[::-1]), y.at[-1].set(5.0)


@program
def changed_twice(x):
    y = jnp.cumsum(x)
    return y.at[0].set(5.0), y.at[-1].set(7.0)


@program
def changed_one_after_the_other(x):
    y = jnp.cumsum(x)
    z = y.at[0].set(5.0)
    return z.at[-1].set(7.0), z.sum()


@program
def updated_with_a_part_of_itself(x):
    y = jnp.cumsum(x)
    return lax.dynamic_update_slice(y, y[::-1], (0,)), lax.dynamic_update_slice(y, y[1:], (0,))


@program
def an_input(x):
    return x.at[0].set(5.0), x


@program
def scattered_into(x):
    y = jnp.cumsum(x)
    i = jnp.arange(x.shape[0]) // 2
    return y.at[i].add(y), y.at[i].max(2.0), y


@program
def carried_by_a_loop(x):
    y = jnp.cumsum(x)
    return y, lax.fori_loop(0, x.shape[0], lambda i, c: c.at[i].add(1.0), y)


@program
def changed_in_a_loop_and_read_after(x):
    y = jnp.cumsum(x)
    z = lax.fori_loop(0, x.shape[0], lambda i, c: c.at[i].multiply(2.0), y)
    return z + y


@program
def old_and_new_carried(x):
    y = jnp.cumsum(x)
    return lax.fori_loop(0, 5, lambda i, c: (c[0].at[i % 3].set(1.0 * i), c[0]), (y, y))


@program
def read_in_every_iteration(x):
    y = jnp.cumsum(x)

    def body(_, c):
        c = jnp.cumsum((c + y) % 7)
        c = jnp.cumsum(c[::-1] % 7)
        return jnp.cumsum(c[::-1] % 7)

    return lax.fori_loop(0, 20, body, x)  # so many are not written out


@program
def changed_in_a_branch(x):
    y = jnp.cumsum(x)
    return y, lax.cond(y[0] > 0, lambda v: v.at[0].set(5.0), lambda v: v, y)


@program
def carried_in_turns_and_read_late(x):
    y = lax.fori_loop(0, 20, lambda i, c: jnp.cumsum(c[::-1]) % 7, x)
    z = jnp.cumsum((x + y.sum()) % 7) % 7  # takes a slot after the loop
    return jnp.cumsum(z[::-1]) + y


@program
def scattered_with_itself(x):
    y = jnp.cumsum(x)
    return y.at[jnp.arange(x.shape[0])[::-1]].set(y, unique_indices=True)


@program
def a_constant(x):
    table = jnp.asarray(np.arange(5, dtype=np.float32))
    i = x.astype(jnp.int32)[0] % 5
    return table.at[i].add(1.0), table.at[jnp.stack([i, i])].add(1.0)


@program
def read_as_another_type(x):
    y = jnp.cumsum(x)
    halves = lax.bitcast_convert_type(y, jnp.uint16)
    return y.at[0].set(5.0), jnp.cumsum(halves, 0), halves


@pytest.mark.parametrize("name", PROGRAMS)
def test_old_values_stay(name: str) -> None:
    ours, theirs = hlo_disc.jit(PROGRAMS[name]), jax.jit(PROGRAMS[name])
    for n in (1, 3, 40, 1000):
        x = np.random.default_rng(n).integers(-4, 5, n).astype(np.float32)
        for got, want in zip(jax.tree.leaves(ours(x)), jax.tree.leaves(theirs(x)), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))
    assert not ours.stats().fallbacks
