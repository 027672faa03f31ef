"""Functions follow JAX to the platform that it runs them on."""

from __future__ import annotations

import re
import warnings

import emulated
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc.jitted.transforms import primitives
from hlo_disc.ral.contexts import jax as context
from hlo_disc.targets import registry
from hlo_disc.targets.gpu.cuda import NVIDIA

X = np.ones((3, 5), np.float32)
PLATFORMS = ("cpu", "cuda", "rocm")


def targets(f) -> list[str]:
    """Return the targets of a function's programs."""
    functions = [flat for programs in f._by_settings.values() for flat in programs.functions.values()]
    return [executable.program.target for flat in functions for executable in flat.executables()]


def calls(function, platform: str, *arrays) -> list[str]:
    """Return the numbers of the executables that XLA's program would call."""
    text = jax.jit(function).trace(*arrays).lower(lowering_platforms=(platform,)).as_text()
    return re.findall(r"custom_call @hlo_disc_call.*?executable = (\d+)", text)


def test_inside_jit_the_program_is_for_the_platform():
    f = hlo_disc.jit(lambda x: jax.nn.softmax(x) * 2, dims={"x": "(m, n)"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        numbers = {platform: calls(f, platform, X) for platform in PLATFORMS}
        again = {platform: calls(f, platform, np.ones((8, 2), np.float32)) for platform in PLATFORMS}
    assert targets(f) == ["cpu", "cuda", "rocm"]
    assert len({n for (n,) in numbers.values()}) == 3 and f.stats().compilations == 3
    assert [len(n) for n in again.values()] == [1, 1, 1]


def test_derivatives_too():
    f = hlo_disc.jit(lambda x: jnp.tanh(x) * jnp.sin(x))
    assert len(calls(jax.value_and_grad(lambda x: (f(x) ** 2).sum()), "cuda", X)) == 2
    assert targets(f).count("cuda") >= 2


def test_what_a_gpu_cannot_do_is_left_to_xla():
    f = hlo_disc.jit(jnp.linalg.cholesky)
    with pytest.warns(hlo_disc.FallbackWarning, match="run on the CPU only"):
        assert not calls(f, "cuda", np.eye(3, dtype=np.float32))
    assert calls(f, "cpu", np.eye(3, dtype=np.float32))


@pytest.mark.parametrize(("target", "other"), [("cpu", "cuda"), ("cuda:sm_90", "cpu"), ("cuda", "rocm")])
def test_a_target_that_is_asked_for_is_for_its_platform_alone(target, other):
    f = hlo_disc.jit(lambda x: x + 1, target=target)
    (own,) = calls(f, target.partition(":")[0], X)
    assert own and targets(f) == [target.partition(":")[0]]
    told = f"JAX runs it on {other}, and programs are for the target '{target}'"
    with pytest.warns(hlo_disc.FallbackWarning, match=told):
        assert not calls(f, other, X)


def test_what_a_kernel_of_a_level_is_for_is_kept():
    f = hlo_disc.jit(lambda x: x + 1, target="cuda:sm_90")
    calls(f, "cuda", X)
    assert "kernels for sm_90 (" in f.explain(full=True)


@pytest.fixture
def platform(monkeypatch) -> dict[str, str]:
    """Return a mapping that says where JAX's arrays lie: tests set it. The target "cuda" is emulated."""
    said = {"platform": "cpu"}
    monkeypatch.setattr(registry, "_TARGETS", {**registry._TARGETS, "cuda": lambda: emulated.Emulated(NVIDIA)})
    for module in (context, primitives):
        monkeypatch.setattr(module, "platform_of", lambda arrays: said["platform"])
    return said


def test_a_call_is_for_the_machine_of_its_arguments(platform):
    f = hlo_disc.jit(lambda x: jnp.cumsum(x) * 2, dims={"x": "(n)"})
    # What is in a GPU's memory really, a program for the CPU would refuse.
    for where, made in (("cuda", ["cuda"]), ("cpu", ["cpu", "cuda"])):
        platform["platform"] = where
        for n in (3, 5, 3):
            np.testing.assert_array_equal(f(jnp.ones(n)), np.arange(1, n + 1) * 2)
        assert targets(f) == made
    emulated.check()
    assert f.stats().calls == 6
    assert f.stats().compilations == 2


def test_derivatives_are_for_the_machine_of_their_arguments(platform):
    f = hlo_disc.jit(lambda x: (jnp.tanh(x) * x).sum())
    x = jnp.arange(4.0)
    right = jax.grad(lambda x: (jnp.tanh(x) * x).sum())(x)
    platform["platform"] = "cuda"
    np.testing.assert_allclose(jax.grad(f)(x), right, rtol=1e-5)
    emulated.check()
    assert "cuda" in targets(f)


def test_what_is_compiled_for_a_target_does_not_follow(platform):
    f = hlo_disc.jit(lambda x: x + 1, target="cpu")
    platform["platform"] = "cuda"
    assert f(jnp.float32(1)) == 2 and targets(f) == ["cpu"]


def test_a_machine_without_a_target_is_left_to_jax(platform):
    f = hlo_disc.jit(lambda x: x + 1)
    platform["platform"] = "tpu"
    with pytest.warns(hlo_disc.FallbackWarning, match="JAX runs it on tpu, and programs are for the target 'auto'"):
        assert f(jnp.float32(1)) == 2
    assert not targets(f)


def test_where_arrays_lie():
    assert context.platform_of([1, X, jnp.ones(3)]) == context.platform_of([]) == "cpu"


def test_arguments_on_two_kinds_of_machines_are_left_to_jax(monkeypatch):
    f, x = hlo_disc.jit(lambda x, y: x + y), jnp.arange(3.0)
    y = x + 1
    monkeypatch.setattr(context, "_platform", lambda array: "cpu" if array is x else "cuda")
    with pytest.warns(hlo_disc.FallbackWarning, match="on machines of several kinds: cpu, cuda"):
        np.testing.assert_array_equal(f(x, y), x + y)
    assert not targets(f)
    monkeypatch.undo()
    np.testing.assert_array_equal(f(x, y), x + y)
    assert targets(f) == ["cpu"]
