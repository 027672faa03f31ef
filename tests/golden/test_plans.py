"""The plans of small programs: fusion, the forms in which groups run, and where values lie, a text file a program.

A change of fusion, schedules or memory shows up as a diff of these files. `pytest tests/golden --update-golden` writes
them again. Sizes of registers and the register tile are given, so that the machine does not matter.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax

from hlo_disc.device import Device
from hlo_disc.import_.stablehlo.module import read_module
from hlo_disc.import_.stablehlo.source import load_module
from hlo_disc.options import Options
from hlo_disc.pipeline import STAGES, Request, Targeted

DEVICE = Device(simd_bytes=32, registers=16, tile_rows=4, tile_vectors=3)
TYPES = {"f32": np.float32, "i32": np.int32, "c64": np.complex64}
PROGRAMS: dict[str, tuple[tuple[str, ...], Callable]] = {}


def program(*specs: str) -> Callable[[Callable], Callable]:
    """Add a program. specs: its arguments as "f32[n, 64]"."""

    def add(fn: Callable) -> Callable:
        PROGRAMS[fn.__name__] = specs, fn
        return fn

    return add


@program("f32[n, m]", "f32[m]")
def elementwise(x, b):
    return jnp.tanh(x + b), (x * 2).T


@program("f32[n, m]")
def softmax(x):
    return jax.nn.softmax(x)


@program("f32[n, m]", "f32[m]", "f32[m]")
def layer_norm(x, scale, bias):
    d = x - x.mean(-1, keepdims=True)
    return d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * scale + bias


@program("f32[b, s, 64]", "f32[b, t, 64]", "f32[b, t, 64]", "f32[b, t]")
def attention(q, k, v, mask):
    scores = jnp.einsum("bsd,btd->bst", q, k) / 8 + mask[:, None]
    return jnp.einsum("bst,btd->bsd", jax.nn.softmax(scores), v)


@program("f32[n, 64]", "f32[64, 256]", "f32[256]", "f32[256, 64]")
def mlp(x, w, b, out):
    return x + jax.nn.gelu(x @ w + b) @ out


@program("f32[v, m]", "i32[b, s]")
def gather(table, ids):
    return table[ids] * 2


@program("f32[n, m]", "i32[k]", "f32[k, m]")
def scatter(x, ids, updates):
    return x.at[ids].add(jnp.exp(updates))


@program("f32[n, m]")
def sort(x):
    return jnp.sort(x, axis=0), jnp.argsort(x)


@program("f32[n, 100]")
def top_k(x):
    return lax.top_k(x, 3)


@program("f32[n, m]")
def cumsum(x):
    y = jnp.cumsum(x, 0)
    return y, y.at[0].set(5.0)


@program("f32[n, m]")
def reductions(x):
    return x.sum(0), x.max(1), x.argmax(1), x.sum()


@program("f32[n, m]", "f32[k, m]")
def concatenate_and_pad(x, y):
    return jnp.pad(jnp.concatenate([x * 2, y, x]), ((1, 2), (0, 0)))


@program("f32[n, m]", "f32[1, m]", "i32[]")
def update_in_place(x, row, i):
    y = jnp.sin(x)
    return lax.dynamic_update_slice(y, row + y.sum(), (i, 0))


@program("f32[n]")
def update_between_readers(x):
    y = jnp.cumsum(x)
    z = jnp.cumsum(y.at[0].set(5.0))
    return z + jnp.exp(y)  # a kernel of its own reads y before the update


@program("f32[n]")
def update_before_a_reader(x):
    y = jnp.cumsum(x)
    z = jnp.cumsum(y.at[0].set(5.0))
    return jnp.exp(z + y)


@program("f32[n]", "i32[]")
def loop_in_place(x, k):
    def body(carry):
        i, x, y = carry
        return i + 1, x.at[i].set(y[i]), jnp.sin(y)

    return lax.while_loop(lambda carry: carry[0] < k, body, (0, x, x + 1))


@program("f32[n, m]", "f32[m]")
def scan(xs, h):
    def body(h, x):
        h = jnp.tanh(h * 0.5 + x)
        return h, h * 2

    return lax.scan(body, h, xs)


@program("f32[n, m]", "i32[]")
def case(x, i):
    return lax.switch(i, [lambda x: x + 1, lambda x: jnp.cumsum(x, 1), lambda x: x * x.sum()], x)


@program("f32[b, h, w, 3]", "f32[3, 3, 3, 8]")
def convolution(x, kernel):
    numbers = ("NHWC", "HWIO", "NHWC")
    return jax.nn.relu(lax.conv_general_dilated(x, kernel, (1, 1), "SAME", dimension_numbers=numbers))


@program("f32[n, 64]")
def fft(x):
    return jnp.abs(jnp.fft.rfft(x * 2))


@program("c64[n, m]", "c64[m, k]")
def complex_product(x, y):
    return jnp.exp(x) @ y


DATA_DEPENDENT = """
func.func @main(%x: tensor<?xf32>, %n: tensor<i32>) -> tensor<?xf32> {
  %size = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %size, dim = 0 : (tensor<1xi32>) -> tensor<?xf32>
  %zero = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%x init: %zero) applies stablehlo.add across dimensions = [0]
    : (tensor<?xf32>, tensor<f32>) -> tensor<f32>
  %all = stablehlo.dynamic_broadcast_in_dim %sum, %size, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %y = stablehlo.add %i, %all : tensor<?xf32>
  return %y : tensor<?xf32>
}"""


def module(name: str):
    """Return what `load_module` takes for a program."""
    if name == "data_dependent_size":
        return DATA_DEPENDENT
    texts, fn = PROGRAMS[name]
    scope = export.SymbolicScope()
    specs = []
    for text in texts:
        dtype, shape = text.rstrip("]").split("[")
        specs.append(jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), TYPES[dtype]))
    return export.export(jax.jit(fn))(*specs)


def plan(name: str) -> str:
    """Return what the stages of fusion, schedules and memory show of a program."""
    made = Request(source=lambda: read_module(load_module(module(name))), options=Options())
    texts = []
    for stage in STAGES:
        if stage.name == "target":
            made = Targeted(**vars(made), generator=SimpleNamespace(device=DEVICE))
        else:
            made = stage.run(made)
        if stage.name in ("fuse", "schedule", "memory"):
            texts += [f"-- {stage.name}", *(text for _, text in stage.dump(made))]
        if stage.name == "memory":
            return "\n".join(texts) + "\n"
    raise AssertionError("there is no stage of that name")


@pytest.mark.parametrize("name", [*PROGRAMS, "data_dependent_size"])
def test_plans(name, update_golden):
    path = Path(__file__).parent / f"{name}.txt"
    found = plan(name)
    if update_golden:
        path.write_text(found)
    assert found == path.read_text(), "the plan has changed: see the diff, and run with --update-golden if it is meant"


def test_every_file_has_a_program():
    assert {path.stem for path in Path(__file__).parent.glob("*.txt")} == {*PROGRAMS, "data_dependent_size"}
