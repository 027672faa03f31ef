"""A level of a CPU is a row in the table of its target: AVX-512's instructions on registers of 32 bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import hlo_disc
from hlo_disc.errors import ArgumentError
from hlo_disc.targets import registry
from hlo_disc.targets.cpu import x86

LEVEL = x86.LEVELS["avx512"]._replace(simd_bytes=32)


@pytest.fixture
def half(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if not x86.host_features().issuperset(LEVEL.features):
        pytest.skip("needs AVX-512")
    with monkeypatch.context() as patch:
        rows = list(x86.LEVELS.items())
        patch.setattr(x86, "LEVELS", dict([*rows[:1], ("half", LEVEL), *rows[1:]]))
        patch.setattr(x86, "levels", tuple(x86.LEVELS))
        x86.generator.cache_clear()
        yield
    x86.generator.cache_clear()


def program(x: Any, w: Any) -> Any:
    import jax

    return jax.nn.softmax(x @ w, axis=-1)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_program_for_a_new_level(half: None, dtype: Any) -> None:
    specs = [f"{np.dtype(dtype).name}[{shape}]" for shape in ("m, k", "k, n")]
    compiled = hlo_disc.compile(program, *specs, target="cpu:half")
    assert set(compiled.program.features) == set(LEVEL.features)
    for m, k, n in ((1, 1, 1), (7, 33, 100), (130, 64, 65), (0, 4, 3)):
        x, w = (np.random.default_rng(0).standard_normal(shape).astype(dtype) for shape in ((m, k), (k, n)))
        z = np.exp(x.astype(np.float64) @ w.astype(np.float64))
        got = np.asarray(compiled(x, w), np.float64)
        np.testing.assert_allclose(got, z / z.sum(-1, keepdims=True), atol=1e-5 if dtype == np.float32 else 1e-1)


def test_schedules_see_its_registers(half: None) -> None:
    narrow, wide = (x86.generator(name).device for name in ("half", "avx512"))
    assert replace(narrow, simd_bytes=64, prefetch=wide.prefetch) == wide
    assert (narrow.simd_bytes, narrow.registers) == (32, 32)


def test_it_is_among_the_levels_and_host_is_still_the_best(half: None) -> None:
    assert registry.names()[1:5] == ("cpu", "cpu:avx2", "cpu:half", "cpu:avx512")
    assert x86.generator("host").simd_bytes == 64
    with pytest.raises(ArgumentError, match="unknown target 'cpu:quarter'"):
        registry.check("cpu:quarter")
