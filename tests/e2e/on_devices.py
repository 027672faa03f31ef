"""What a compiled function does on two CPU devices; a program of its own, for JAX counts its devices once a process."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
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
    """Of weights that are the same everywhere: JAX sums it over the devices by itself."""
    return on_mesh(lambda x, w: jax.grad(lambda w: f(x, w).sum())(w), P())


LOCAL: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "shard_map": on_mesh,
    "jit of shard_map": lambda f: jax.jit(on_mesh(f)),
    "unchecked": lambda f: jax.jit(on_mesh(f, check_vma=False)),
    "gradient": lambda f: jax.jit(gradient(f)),
    "gradient of shard_map": lambda f: jax.jit(jax.grad(lambda x, w: on_mesh(f)(x, w).sum(), (0, 1))),
    "vmap": lambda f: jax.jit(on_mesh(lambda x, w: jax.vmap(f, (0, None))(x, w))),
    "pmap": lambda f: lambda x, w: jax.pmap(f, in_axes=(0, None))(x.reshape(2, -1, 3), w).reshape(-1, 2),
    "collective beside": lambda f: jax.jit(on_mesh(lambda x, w: jax.lax.psum(f(x, w), "i"), P())),
}


def check(name: str, found: Any, wanted: Any) -> None:
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert a.sharding == b.sharding, (name, a.sharding, b.sharding)
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=name)


def arguments(n: int) -> tuple[jax.Array, jax.Array]:
    return jnp.sin(jnp.arange(n * 3.0)).reshape(n, 3), jnp.cos(jnp.arange(6.0)).reshape(3, 2)


def main() -> None:
    warnings.simplefilter("error", FallbackWarning)
    for name, wrap in LOCAL.items():
        compiled = hlo_disc.jit(layer)
        for n in (4, 6, 2, 8):
            check(name, wrap(compiled)(*arguments(n)), wrap(layer)(*arguments(n)))
        print(f"{name}: {compiled.stats().compilations} compilations")

    warnings.simplefilter("always", FallbackWarning)
    centred = hlo_disc.jit(lambda x, w: x @ w - jax.lax.pmean(x @ w, "i"))
    compiled = hlo_disc.jit(layer)
    x, w = arguments(4)
    spread = jax.device_put(x, NamedSharding(MESH, PARTS))
    with warnings.catch_warnings(record=True) as told:
        check("collective inside", jax.jit(on_mesh(centred))(x, w), jax.jit(on_mesh(centred.__wrapped__))(x, w))
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
