"""Programs inside of jax.jit: which calls are counted, and JAX's persistent compilation cache."""

from __future__ import annotations

import os

import child
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc


def test_calls_in_jit_are_counted_apart():
    f = hlo_disc.jit(lambda x: x + 1, dims={"x": "(n)"})
    g = jax.jit(lambda x: f(f(x)) * 2)
    for n in (3, 4, 3):
        assert g(jnp.ones(n)).tolist() == [6.0] * n
    f(jnp.ones(2))
    stats = f.stats()
    assert (stats.calls, stats.calls_in_jit, stats.compilations) == (1, 6, 1)
    assert str(stats).startswith("1 call and 6 inside jax.jit, 1 compilation in ")
    f.clear_cache()
    assert g(jnp.ones(3)).tolist() == [6.0] * 3
    assert f.stats().calls_in_jit == 8


def test_equal_functions_are_counted_each_for_itself():
    f, g = (hlo_disc.jit(lambda x: x * 3, dims={"x": "(n)"}) for _ in range(2))
    assert jax.jit(lambda x: f(f(x)) + g(x))(jnp.ones(2)).tolist() == [12, 12]
    assert (f.stats().calls_in_jit, g.stats().calls_in_jit) == (2, 1)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: x * 2 + np.arange(3, dtype=np.float32)[::-1],
        lambda x: x * 3 + np.arange(3, dtype=np.float32),
        lambda x: x - np.arange(3, dtype=np.float32),
    ],
    ids=["constants", "number", "op"],
)
def test_the_hash_tells_programs_apart(all_kernels_built, other):
    def make(fn, spec="f32[n, 3]", **options):
        return hlo_disc.compile(fn, spec, target="cpu:avx2", **options)

    fn = lambda x: x * 2 + np.arange(3, dtype=np.float32)  # noqa: E731
    one = make(fn)
    assert 0 <= one.content < 1 << 63
    assert make(fn, threads=1).content == one.content
    assert make(other).content != one.content
    assert make(fn, constraints="n <= 4").content != one.content


PROGRAM = """
import sys
import jax
import jax.numpy as jnp
import hlo_disc

jax.config.update("jax_compilation_cache_dir", "cache")
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name.endswith("compilation_cache/cache_hits")))
weight = int(sys.argv[1])
normal = hlo_disc.jit(lambda x: weight * x / x.sum(), dims={"x": "(n)"})
top = hlo_disc.jit(lambda x: jnp.sort(x)[::-1], dims={"x": "(n)"})


@jax.jit
def f(x):
    return top(normal(x)) + 1


x = jnp.arange(4.0)
hits.clear()
print(f(x).tolist(), sum(hits))
"""


def test_the_persistent_cache_of_jax_serves_other_processes(tmp_path):
    def run(seed: int, weight: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        return child.python("-c", PROGRAM, weight, cwd=tmp_path, env=environment)

    assert run(1, 6) == "[4.0, 3.0, 2.0, 1.0] 0\n"
    files = sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith("jit_f"))
    assert files
    assert run(2, 6) == "[4.0, 3.0, 2.0, 1.0] 1\n"
    assert sorted(path.name for path in (tmp_path / "cache").iterdir() if path.name.startswith("jit_f")) == files
    assert run(3, 12) == "[7.0, 5.0, 3.0, 1.0] 0\n"  # another program is not taken for it
