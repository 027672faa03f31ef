"""A compiled function on two CPU devices. This is a program of its own: JAX counts its devices once a process."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import hlo_disc
from hlo_disc import FallbackWarning

jax.config.update("jax_num_cpu_devices", 2)
PARTS = P("i")
MESH = jax.make_mesh((2,), ("i",), axis_types=(AxisType.Auto,))


def layer(x, w):
    return jnp.tanh(x @ w)


def on_mesh(f: Callable[..., Any], out: Any = PARTS, **options: Any) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=MESH, in_specs=(PARTS, P()), out_specs=out, **options)


def gradient(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return the gradient by weights that are the same on all devices: JAX sums it over the devices by itself."""
    return on_mesh(lambda x, w: jax.grad(lambda w: f(x, w).sum())(w), P())


LOCAL: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "shard_map": on_mesh,
    "jit of shard_map": lambda f: jax.jit(on_mesh(f)),
    "unchecked": lambda f: jax.jit(on_mesh(f, check_vma=False)),
    "gradient": lambda f: jax.jit(gradient(f)),
    "gradient of shard_map": lambda f: jax.jit(jax.grad(lambda x, w: on_mesh(f)(x, w).sum(), (0, 1))),
    "vmap": lambda f: jax.jit(on_mesh(lambda x, w: jax.vmap(f, (0, None))(x, w))),
    "pmap": lambda f: lambda x, w: jax.pmap(f, in_axes=(0, None))(x.reshape(2, -1, 3), w).reshape(-1, 2),
    "collective beside": lambda f: jax.jit(on_mesh(lambda x, w: lax.psum(f(x, w), "i"), P())),
}


def loss(w, x):
    return (layer(x, w) ** 2).mean()


def step(x, w):
    value, slope = jax.value_and_grad(loss)(w, x)  # JAX sums the slope over the devices where it is typed
    return w - 0.1 * lax.pmean(slope, "i"), lax.pmean(value, "i")


def normalised(x, w):
    mean = lax.pmean(x.mean(0), "i")
    return ((x - mean) * lax.rsqrt(lax.pmean(((x - mean) ** 2).mean(0), "i") + 1e-5)) @ w


def by_columns(x, w):
    hidden = lax.psum(jnp.tanh(x @ w), "i")
    return lax.psum(jnp.tanh(hidden @ w.T), "i") + x


def of_all_kinds(x, w):
    twice = jnp.tile(x, (2, 1))
    gathered = lax.all_gather(x, "i", tiled=True)
    swapped = lax.ppermute(x, "i", [(0, 1), (1, 0)]) + 1
    numbered = x + lax.axis_index("i")
    scattered = lax.psum_scatter(twice, "i", tiled=True)
    exchanged = lax.all_to_all(twice, "i", 0, 0, tiled=True)
    return gathered, swapped, numbered, scattered, exchanged, lax.psum((x, w), "i")[1].sum() * x


def out_of_order(x, w):
    later = lax.psum(lax.psum(x, "i") * lax.axis_index("i"), "i")
    early = lax.psum(x * 3, "i")
    return later + early, later - early


def in_a_function(x, w):
    return jax.jit(lambda a: lax.psum(a * 2, "i") + a)(x) @ w


def of_each_type(x, w):
    return w * 2, layer(x, w), lax.psum(1, "i") * x, jnp.float32(3)


def slope_alone(x, w):
    return jax.grad(loss)(w, x)


# What talks to other devices, or is the same on all of them, inside of the compiled function; and its results' places.
INSIDE: dict[Callable[..., Any], Any] = {
    step: P(),
    normalised: PARTS,
    by_columns: PARTS,
    of_all_kinds: PARTS,
    out_of_order: P(),
    in_a_function: PARTS,
    of_each_type: (P(), PARTS, PARTS, P()),
    slope_alone: P(),
}
SPREADS: dict[str, Callable[..., Callable[..., Any]]] = {
    "shard_map": lambda f, out: jax.jit(on_mesh(f, out)),
    "eager": on_mesh,
    "unchecked": lambda f, out: jax.jit(on_mesh(f, out, check_vma=False)),
    "pmap": lambda f, out: lambda x, w: jax.pmap(f, "i", in_axes=(0, None))(x.reshape(2, -1, 3), w),
    "vmap": lambda f, out: lambda x, w: jax.vmap(f, (0, None), axis_name="i")(x.reshape(2, -1, 3), w),
}


def in_a_loop(x, w):
    return lax.fori_loop(0, 3, lambda _, a: a + lax.ppermute(a, "i", [(0, 1), (1, 0)]), x)


def needed_again(x, w):
    made = layer(x, w)
    return lax.psum(made, "i") + made


LEFT_TO_JAX: dict[Callable[..., Any], Any] = {in_a_loop: PARTS, needed_again: PARTS}


def check(name: str, found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert (a.sharding, a.dtype, a.weak_type) == (b.sharding, b.dtype, b.weak_type), (name, a, b)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


def arguments(n: int) -> tuple[jax.Array, jax.Array]:
    return jnp.sin(jnp.arange(n * 3.0)).reshape(n, 3), jnp.cos(jnp.arange(6.0)).reshape(3, 2)


def main() -> None:
    warnings.simplefilter("error", FallbackWarning)
    for name, wrap in LOCAL.items():
        compiled = hlo_disc.jit(layer)
        for n in (4, 6, 2):
            check(name, wrap(compiled)(*arguments(n)), wrap(layer)(*arguments(n)))
        print(f"{name}: {compiled.stats().compilations} compilations")

    for f, out in INSIDE.items():
        for kind, spread_over in SPREADS.items() if f in (step, of_all_kinds) else [*SPREADS.items()][:1]:
            compiled = hlo_disc.jit(f)
            for n in (4, 6, 2) if kind == "shard_map" else (4,):
                wanted = spread_over(f, out)(*arguments(n))
                check(f"{f.__name__} {kind}", spread_over(compiled, out)(*arguments(n)), wanted)
            print(f"{f.__name__}, {kind}: {compiled.stats().compilations} compilations")

    warnings.simplefilter("always", FallbackWarning)
    sharded = SPREADS["shard_map"]
    with warnings.catch_warnings(record=True) as told:
        for f, out in LEFT_TO_JAX.items():
            check(f.__name__, sharded(hlo_disc.jit(f), out)(*arguments(4)), sharded(f, out)(*arguments(4)))
        slopes = [
            jax.jit(jax.grad(lambda x, w, f=f: on_mesh(f, P())(x, w)[1], (0, 1))) for f in (step, hlo_disc.jit(step))
        ]
        check("gradient of a step", *(slope(*arguments(4)) for slope in slopes))
    print(*(str(t.message) for t in told), sep="\n")

    compiled = hlo_disc.jit(layer)
    x, w = arguments(4)
    spread = jax.device_put(x, NamedSharding(MESH, PARTS))
    with warnings.catch_warnings(record=True) as told:
        check("spread by XLA", jax.jit(compiled)(spread, w), jax.jit(layer)(spread, w))
        loss = [lambda x, w, f=f: f(x, w).sum() for f in (compiled, layer)]
        check("spread, called by itself", compiled(spread, w), jax.jit(layer)(spread, w))
        check("on one device after that", compiled(x, w), jax.jit(layer)(x, w))
        check("spread after that", compiled(spread, w), jax.jit(layer)(spread, w))
        check("its gradient", *(jax.jit(jax.grad(f, (0, 1)))(spread, w) for f in loss))
    print(*(str(t.message) for t in told), sep="\n")
    print(f"{sum(not record.of for record in compiled.stats().records)} compilation for one device")
    try:
        hlo_disc.compile(layer, "f32[4, 3]", "f32[3, 2]")(spread, w)
    except hlo_disc.ArgumentError as error:
        print(error)


if __name__ == "__main__":
    main()
