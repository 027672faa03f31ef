"""A target of the tests' own: x86 with other register tiles.

A real one touches, beside its own files: `targets/registry.py` (its row), `options.py` (a word on its name and
levels) and `docs/architecture.md`. Nothing else may have to change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

import ml_dtypes
import numpy as np
import pytest
from click.testing import CliRunner

import hlo_disc
from hlo_disc.cli import main
from hlo_disc.device import Device
from hlo_disc.errors import ArgumentError, FormatError
from hlo_disc.targets import registry
from hlo_disc.targets.cpu import x86, x86_generator
from hlo_disc.targets.target import Compilation, Dump, Generator, Library, Store, Target


@dataclass(frozen=True)
class ToyGenerator:
    """Compiles as x86 does, for schedules that see another machine."""

    inner: x86_generator.X86Generator

    @property
    def features(self) -> tuple[str, ...]:
        return ("abacus", *self.inner.features)

    @property
    def device(self) -> Device:
        return replace(self.inner.device, tile_rows=3, tile_vectors=1, grain=64, pair_dot=False)

    @property
    def batch(self) -> int:
        return 0

    @property
    def linked(self) -> bool:
        return False

    def begin(
        self, dump: Dump | None = None, threads: int = 0, store: Store | None = None
    ) -> AbstractContextManager[Compilation]:
        return self.inner.begin(dump, threads, store)


class ToyTarget:
    driver = None
    levels = ("one", *x86.levels)

    def __init__(self, features: Sequence[str] = ("abacus",)) -> None:
        self.own = features

    def generator(self, level: str) -> Generator:
        return ToyGenerator(x86.generator("host" if level == "one" else level))

    def made_for(self, level: str) -> str:
        return f"abacus {x86.made_for('host')}"

    def check(self, features: Sequence[str]) -> None:
        own, rest = [f for f in features if f == "abacus"], [f for f in features if f != "abacus"]
        if missing := sorted(set(own) - set(self.own)):
            raise FormatError(f"compiled for a machine with {', '.join(missing)}")
        x86.check(rest)

    def kernels(self, object_: bytes) -> list[str]:
        return []

    def link(self, object_: bytes, symbols: Mapping[str, int]) -> Library:
        return x86.link(object_, symbols)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(registry, "_TARGETS", dict(registry._TARGETS))
        target: Target = ToyTarget()
        registry.register("toy", lambda: target)
        yield patch


def program(x, w):
    import jax

    return jax.nn.softmax(x @ w, axis=-1)


def check(run, dtype) -> None:
    rng = np.random.default_rng(0)
    for m, k, n in ((1, 1, 1), (7, 33, 100), (130, 64, 65), (0, 4, 3)):
        x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((k, n)).astype(dtype)
        z = x.astype(np.float64) @ w.astype(np.float64)
        want = np.exp(z - z.max(-1, keepdims=True))
        want /= want.sum(-1, keepdims=True)
        np.testing.assert_allclose(np.asarray(run(x, w), np.float64), want, atol=1e-5 if dtype == np.float32 else 1e-1)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_program_for_a_new_target(toy, tmp_path, dtype):
    specs = [f"{np.dtype(dtype).name}[{shape}]" for shape in ("m, k", "k, n")]
    executable = hlo_disc.compile(program, *specs, target="toy")
    check(executable, dtype)
    assert (executable.program.target, executable.program.features[0]) == ("toy", "abacus")
    assert executable.program.object != hlo_disc.compile(program, *specs).program.object
    executable.save(tmp_path / "toy.disc")
    check(hlo_disc.load(tmp_path / "toy.disc"), dtype)


def test_jit_and_the_environment(toy):
    toy.setenv("HLO_DISC_TARGET", "toy")
    check(hlo_disc.jit(program), np.float32)
    assert hlo_disc.Options.from_env().target == "toy"
    assert hlo_disc.compile(lambda x: x + 1, "f32[n]").program.target == "toy"


def test_a_saved_program_needs_its_target_and_features(toy, tmp_path):
    hlo_disc.compile(lambda x: x + 1, "f32[n]", target="toy").save(tmp_path / "toy.disc")
    registry.register("toy", lambda: ToyTarget(()))
    with pytest.raises(FormatError, match="toy.disc: compiled for a machine with abacus"):
        hlo_disc.load(tmp_path / "toy.disc")
    del registry._TARGETS["toy"]
    with pytest.raises(FormatError, match="toy.disc: compiled for the target 'toy'; this hlo_disc has cpu"):
        hlo_disc.load(tmp_path / "toy.disc")


def test_an_unknown_target_is_refused_before_anything_else(monkeypatch):
    def untouched(x):
        raise AssertionError

    for make in (
        lambda: hlo_disc.compile(untouched, "f32[n]", target="abacus"),
        lambda: hlo_disc.jit(untouched, target="abacus"),
        lambda: hlo_disc.compile(untouched, "f32[n]", options=hlo_disc.Options(target="abacus")),
    ):
        with pytest.raises(ArgumentError, match="unknown target 'abacus'; the targets are auto, cpu, cpu:avx2"):
            make()
    monkeypatch.setenv("HLO_DISC_TARGET", "abacus")
    with pytest.raises(ArgumentError, match="unknown target 'abacus'"):
        hlo_disc.compile(untouched, "f32[n]")


def test_the_command_line(toy, tmp_path):
    def call(*args) -> tuple[int, str]:
        result = CliRunner().invoke(main, [str(a) for a in args])
        return result.exit_code, result.output

    module = tmp_path / "exp.mlir"
    module.write_text(
        "func.func public @main(%a: tensor<2x4xf32>) -> tensor<2x4xf32> {\n"
        "  %0 = stablehlo.exponential %a : tensor<2x4xf32>\n  return %0 : tensor<2x4xf32>\n}"
    )
    disc = tmp_path / "exp.disc"
    assert call("compile", module, "-o", disc, "--target", "toy:avx2")[0] == 0
    assert hlo_disc.load(disc).program.target == "toy"
    assert call("run", disc)[0] == 0
    known = f"the targets are {', '.join(registry.names())}"
    assert known.endswith(", ".join(["toy", "toy:one", *(f"toy:{level}" for level in x86.levels)]))
    for options, message in (
        (("--target", "abacus"), f"error: unknown target 'abacus'; {known}"),
        (("--target", "toy:two"), f"error: unknown target 'toy:two'; {known}"),
        (("--target", "toy:"), f"error: unknown target 'toy:'; {known}"),
        (("--target", "auto:one"), f"error: unknown target 'auto:one'; {known}"),
    ):
        code, output = call("explain", module, *options)
        assert code == 1 and output.strip() == message
    code, output = call("run", disc, "--target", "toy")
    assert code == 1 and "compiled already: --target has no effect" in output
