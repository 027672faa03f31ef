"""Options and fixtures that all tests share."""

from __future__ import annotations

import gc
import itertools
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path

import depth
import hardware
import pytest
from comparison.xla_results import compile_quickly, keep_xla_results
from hypothesis import settings

_tests = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="rewrite the golden files instead of comparing with them"
    )
    parser.addoption("--full", action="store_true", help="sweep deeply, at random: see oracle/depth.py")
    parser.addoption(
        "--target", metavar="NAME", help="compile for it: emulated-{cuda,ptx,rocm}, aarch64, cuda, small-cuda"
    )
    parser.addoption(
        "--hostile", metavar="SEED", type=int, help="the emulated GPU's driver does work as late as it may"
    )
    parser.addoption("--native", type=Path, metavar="DIR", help="test the native module that was built in DIR")


def is_emulated(config: pytest.Config) -> bool:
    """Whether an emulated GPU runs the kernels."""
    return (config.getoption("--target") or "").startswith("emulated-")


def is_hardware(config: pytest.Config) -> bool:
    """Whether this machine's GPU runs the kernels."""
    return config.getoption("--target") in hardware.TARGETS


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "sampled(step): see oracle/depth.py")
    if directory := config.getoption("--native"):
        sys.meta_path.insert(0, _NativeFinder(directory / f"_ral{EXTENSION_SUFFIXES[0]}"))
    from hlo_disc.cache import archive

    os.environ["HLO_DISC_CACHE"] = ""  # tests change what compiles
    archive.PLACE = archive.PLACE.with_name("none")
    keep_xla_results(config.rootpath / "build" / "xla")
    if config.getoption("--full"):
        depth.set_full()
    else:  # the same examples every time: what fails by chance fails in the deep sweeps
        settings.register_profile("quick", derandomize=True, deadline=None)
        settings.load_profile("quick")
        if not is_hardware(config):
            compile_quickly()
    if target := config.getoption("--target"):
        import remote

        os.environ["HLO_DISC_TARGET"] = target
        if target == remote.TARGET:
            remote.register()
    if is_emulated(config):
        import emulated

        emulated.register()
        os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # no TF32, of which tests of results know nothing
    if is_hardware(config):
        hardware.register()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if target := config.getoption("--target"):
        import inapplicable
        import remote

        rows = inapplicable.FOR_AARCH64 if target == remote.TARGET else inapplicable.FOR_GPUS
        for item in items:
            inapplicable.mark(item, rows)
    by_name = config.option.keyword or any("[" in name for name in config.args)  # cases that are asked for run
    if not target and not depth.full and not by_name:
        _sample(config, items)


def _sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out cases of the tests that are marked `sampled`."""
    counts: Counter[str] = Counter()
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        mark = item.get_closest_marker("sampled")
        test = item.nodeid.partition("[")[0]
        (kept if mark is None or depth.is_kept(counts[test], *mark.args) else left).append(item)
        counts[test] += 1
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def pytest_collection_finish() -> None:
    """Keep collected tests and JAX, which live to the end, out of all later garbage collections."""
    gc.collect()
    gc.freeze()


class _NativeFinder:
    """Finds the native module in one given file, before the installed one."""

    def __init__(self, file: Path) -> None:
        if not file.exists():
            raise pytest.UsageError(f"--native: there is no {file}")
        if "hlo_disc.ral._ral" in sys.modules:
            raise pytest.UsageError("--native: the installed module is loaded already, and would be tested instead")
        self.file = file

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.file) if name == "hlo_disc.ral._ral" else None


@pytest.fixture(autouse=True)
def no_error_of_a_gpu(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail for what an emulated GPU does not define, and for what has gone wrong on a real one."""
    yield
    if is_emulated(request.config):
        import emulated

        emulated.check()
    if is_hardware(request.config):
        hardware.check(request.node.nodeid)


@pytest.fixture(autouse=True)
def hostile_driver(request: pytest.FixtureRequest, no_error_of_a_gpu: None) -> Iterator[None]:
    """Make the driver of emulated GPUs hostile, if `--hostile` is given."""
    if (seed := request.config.getoption("--hostile")) is None:
        yield
        return
    import emulated

    with emulated.hostile(seed, strict=seed // 3 % 2 == 1):
        yield


@pytest.fixture
def emulated_targets(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the emulated GPUs as targets for this test: others name all targets. No product rounds to TF32."""
    import emulated
    import jax

    from hlo_disc.targets import registry

    monkeypatch.setattr(registry, "_TARGETS", dict(registry._TARGETS))
    emulated.register()
    with jax.default_matmul_precision("highest"):
        yield


@pytest.fixture(scope="session")
def kernels_of_the_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of kernels that all workers of this run share."""
    place = tmp_path_factory.getbasetemp()
    place = (place.parent if "PYTEST_XDIST_WORKER" in os.environ else place) / "kernels"
    place.mkdir(exist_ok=True)
    return place


@pytest.fixture
def all_kernels_built() -> None:
    """Let a test that compares code, or counts compiled or deferred kernels, find no kernels of other tests."""


def finish_deferred_kernels() -> None:
    """Wait for the thread to which earlier tests left kernels: a test that patches the compiler is to see its own."""
    for thread in threading.enumerate():
        if thread.name == "hlo_disc-deferred":
            gc.collect()  # what nobody needs any more is not made
            thread.join(60)


@pytest.fixture(autouse=True)
def shared_kernels(request: pytest.FixtureRequest, kernels_of_the_run: Path) -> Iterator[None]:
    """Let tests that do not patch the compiler find kernels that others have compiled. Deep sweeps build all."""
    if depth.full or not {"monkeypatch", "all_kernels_built"}.isdisjoint(request.fixturenames):
        finish_deferred_kernels()
        yield
        return
    import shared_kernels

    with shared_kernels.used(kernels_of_the_run):
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Give a test of a framework the same random numbers and weights, whichever tests ran before it."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
    if "tensorflow" in sys.modules:
        import keras

        keras.utils.set_random_seed(0)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return request.config.getoption("--update-golden")


@pytest.fixture(autouse=True)
def few_caches() -> Iterator[None]:
    """Clear JAX's caches after every 50 tests. Code of one test is mostly of no use to the next; all is gigabytes."""
    yield
    if next(_tests) % 50 == 0 and (jax := sys.modules.get("jax")):
        jax.clear_caches()


@pytest.fixture(scope="module")
def settled() -> None:
    """Exclude what earlier modules hold, thousands of programs, from the garbage collections of this module."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def no_leak(settled: None) -> Iterator[None]:
    """Check that everything the runtime handed out during the test has come back.

    Less than before is no leak: JAX gives back late what an earlier test was given, from a thread of its own.
    """
    from hlo_disc.ral import live_bytes

    gc.collect()
    before = live_bytes()
    yield
    gc.collect()
    assert live_bytes() <= before
