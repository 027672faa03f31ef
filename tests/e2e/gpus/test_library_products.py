"""Large dots of a GPU by its vendor's library, in whose place the tests have `emulator/driver/products.cc`."""

from __future__ import annotations

import functools
import gc
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import depth
import emulated
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import lax

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import DeviceError

LEAST = 64  # products of numbers
NAMES = {"cuda": "cublasLt", "hip": "hipblasLt"}
SIZES = ((1, 1, 1), (3, 3, 7), (4, 4, 4), (7, 3, 3), (1, 65, 3), (3, 65, 1), (1, 1, 64), (17, 9, 33))
EMPTY = ((0, 4, 5), (4, 0, 5), (4, 3, 0))
TYPES = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


@pytest.fixture(autouse=True)
def nothing_is_left(emulated_targets, request) -> Iterator[None]:
    """Register targets whose dots are a library's from LEAST on, and check that nothing is left of a test."""
    emulated.register_products(LEAST)
    gc.collect()
    before = ral.device_blocks(), ral.live_bytes(), request.session.testsfailed
    yield
    emulated.emulator().fake_fail(0, 0)
    emulated.check()
    if request.session.testsfailed == before[2]:  # what failed is reported with its results
        assert ral.device_blocks() == before[0] and ral.live_bytes() <= before[1]


@pytest.fixture(params=NAMES)
def api(request) -> Iterator[str]:
    library = emulated.products(request.param)
    yield request.param
    library.fake_decline(0)
    assert library.fake_live() == 0


def contract(*numbers: Any, result: Any = None) -> Callable[..., Any]:
    return lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type=result or x.dtype)


PLAIN = (([1], [0]), ([], []))
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "rows and columns": (lambda x, y: x @ y, ("f32[m, k]", "f32[k, n]")),
    "rows transposed": (lambda x, y: x.T @ y, ("f32[k, m]", "f32[k, n]")),
    "columns transposed": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[n, k]")),
    "both transposed": (lambda x, y: x.T @ y.T, ("f32[k, m]", "f32[n, k]")),
    "result transposed": (lambda x, y: (x @ y).T, ("f32[m, k]", "f32[k, n]")),
    "f64": (lambda x, y: x @ y, ("f64[m, k]", "f64[k, n]")),
    "bf16": (lambda x, y: x @ y, ("bf16[m, k]", "bf16[k, n]")),
    "bf16 to f32": (contract(*PLAIN, result=np.float32), ("bf16[m, k]", "bf16[k, n]")),
    "f16": (lambda x, y: x @ y.T, ("f16[m, k]", "f16[n, k]")),
    "f16 to f32": (contract(*PLAIN, result=np.float32), ("f16[m, k]", "f16[k, n]")),
    "batch": (contract(([2], [1]), ([0], [0])), ("f32[3, m, k]", "f32[3, k, n]")),
    "batch, transposed": (contract(([1], [2]), ([0], [0])), ("f32[3, k, m]", "f32[3, n, k]")),
    "rows of two axes": (contract(([2], [0]), ([], [])), ("f32[3, m, k]", "f32[k, n]")),
    "two contracted": (contract(([1, 2], [0, 1]), ([], [])), ("f32[m, 3, k]", "f32[3, k, n]")),
    "parts": (lambda x, y: x[1:, 1:] @ y[:, 2:], ("f32[m + 1, k + 1]", "f32[k, n + 2]")),
    "same": (lambda x, y: x @ y.T, ("f32[m, k]", "f32[m, k]")),
    "before others": (lambda x, y: jax.nn.softmax(x @ y, axis=-1), ("f32[m, k]", "f32[k, n]")),
}  # fmt: skip
# The library has no form for these.
OTHERS: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "epilogue": (lambda x, y, z: lax.tanh(x @ y + z), ("f32[m, k]", "f32[k, n]", "f32[n]")),
    "every second": (lambda x, y: x[:, ::2] @ y, ("f32[m, 2*k]", "f32[k, n]")),
    "batch last": (contract(([1], [0]), ([2], [2])), ("f32[m, k, 3]", "f32[k, n, 3]")),
    "rows that lie apart": (contract(([1], [0]), ([], [])), ("f32[m, k, 3]", "f32[k, n]")),
    "a row": (lambda x, y: x @ y, ("f32[k]", "f32[k, n]")),
    "integers": (lambda x, y: x @ y, ("i32[m, k]", "i32[k, n]")),
}


def arrays(specs: tuple[str, ...], m: int, k: int, n: int) -> list[np.ndarray]:
    rng, made = np.random.default_rng(m + n), []
    for spec in specs:
        name, shape = spec.rstrip("]").split("[")
        dims = [eval(size, {"m": m, "k": k, "n": n}) for size in shape.split(", ")]
        made.append(rng.standard_normal(dims).astype(TYPES.get(name, np.int32)))
    return made


def compare(result: Any, expected: Any, *where: Any) -> None:
    """Check that results are equal but for the order of the sums."""
    assert result.shape == expected.shape and result.dtype == expected.dtype
    rounding = float(ml_dtypes.finfo(result.dtype).eps) if result.dtype.kind != "i" else 0
    wanted = np.asarray(expected, np.float64)
    scale = max(1.0, float(np.abs(wanted).max(initial=0)))
    atol = 8 * rounding * scale
    np.testing.assert_allclose(np.asarray(result, np.float64), wanted, rtol=0, atol=atol, err_msg=str(where))


def products(specs: tuple[str, ...], name: str, m: int, k: int, n: int) -> int:
    return m * k * (m if name == "same" else n) * (3 if re.search(r"[\[ ]3\b", specs[0]) else 1)


@functools.cache
def expected_of(name: str) -> dict[tuple[int, int, int], jax.Array]:
    """Return XLA's result at each size, which both vendors have to give."""
    function, specs = PROGRAMS[name]
    sizes = (*SIZES, *EMPTY)
    return dict(zip(sizes, at_each(function, [arrays(specs, *size) for size in sizes]), strict=True))


@depth.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_products(name, api):
    function, specs = PROGRAMS[name]
    library = emulated.products(api)
    with jax.enable_x64("f64" in specs[0]):
        executable = hlo_disc.compile(function, *specs, target=f"library-{api}")
        assert "library_product if" in executable.explain(full=True)
        assert f">= {LEAST} and the vendor's library takes it else" in executable.explain(full=True)
        for (m, k, n), expected in expected_of(name).items():
            xs = arrays(specs, m, k, n)
            before = library.fake_multiplied()
            result = np.asarray(executable(*xs))
            taken = library.fake_multiplied() - before
            # Of one row or column, strides that say nothing may be too small for the library.
            if min(m, k, n) > 1 or products(specs, name, m, k, n) < LEAST:
                assert taken == (products(specs, name, m, k, n) >= LEAST), (m, k, n)
            compare(result, expected, (m, k, n))


@depth.sampled(2)
@pytest.mark.parametrize("name", OTHERS)
def test_products_that_no_library_makes(name, api):
    function, specs = OTHERS[name]
    executable = hlo_disc.compile(function, *specs, target=f"library-{api}")
    assert "library_product" not in executable.explain(full=True)
    xs = arrays(specs, 9, 8, 7)
    compare(np.asarray(executable(*xs)), np.asarray(jax.jit(function)(*xs)))


# Precision, type, and in what CUDA's and HIP's libraries are to compute (CUBLAS_COMPUTE_32F_FAST_TF32 and so on).
COMPUTED = [
    (None, "f32", 77, 2),
    ("highest", "f32", 68, 2),
    (None, "f64", 70, 7),
    (None, "bf16", 68, 2),
    (None, "f16", 68, 2),
]


@pytest.mark.parametrize("precision, name, cuda, hip", COMPUTED)
def test_a_product_is_as_exact_as_asked_for(precision, name, cuda, hip, api):
    specs = f"{name}[m, k]", f"{name}[k, n]"
    with jax.enable_x64(name == "f64"), jax.default_matmul_precision(precision):
        executable = hlo_disc.compile(lambda x, y: x @ y, *specs, target=f"library-{api}")
        executable(*arrays(specs, 9, 8, 7))
    assert emulated.products(api).fake_computed() == (cuda if api == "cuda" else hip)


def test_one_shape_in_two_precisions(api):
    """The library's choice for a shape in one precision is not taken for the other precision."""
    library, asked = emulated.products(api), []

    def both(x, y):
        return lax.dot(x, y, precision="default"), lax.dot(x, y, precision="highest")

    executable = hlo_disc.compile(both, "f32[m, k]", "f32[k, n]", target=f"library-{api}")
    for _ in range(2):
        before = library.fake_asked()
        executable(*arrays(("f32[m, k]", "f32[k, n]"), 21, 22, 23))
        asked.append(library.fake_asked() - before)
    assert asked == [2, 0]


@pytest.mark.parametrize("side", ["rows", "columns"])
def test_rows_or_columns_that_lie_in_the_same_place(side, api):
    """Rows or columns in the same place have stride 0, which the library cannot express."""

    def product(x, y, z):
        same = jnp.broadcast_to(x, (z.shape[0], x.shape[0]))
        return same @ y if side == "rows" else y.T @ same.T

    executable = hlo_disc.compile(product, "f32[k]", "f32[k, n]", "f32[m]", target=f"library-{api}")
    assert "library_product if" in executable.explain(full=True)
    xs = (*arrays(("f32[k]", "f32[k, n]"), 9, 8, 7), np.zeros(9, np.float32))
    before = emulated.products(api).fake_multiplied()
    compare(np.asarray(executable(*xs)), np.asarray(jax.jit(product)(*xs)))
    assert emulated.products(api).fake_multiplied() == before


@pytest.mark.parametrize(("target", "least"), [("cuda", 1 << 24), ("rocm", 1 << 30)])
def test_gpus_ask_for_products_that_are_large(target, least):
    def forms(*specs):
        return hlo_disc.compile(lambda x, y: x @ y, *specs, target=target).explain(full=True)

    asked = f"library_product if k*m*n >= {least} and the vendor's library takes it else"
    assert asked in forms("f32[m, k]", "f32[k, n]")
    assert "library_product if the vendor's library takes it else" in forms("f32[1024, 1024]", "f32[1024, 1024]")
    assert "library_product" not in forms("f32[128, 128]", "f32[128, 1023]")


def test_a_cpu_asks_for_no_library():
    assert "library_product" not in hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]").explain(full=True)


def test_products_in_a_loop_of_sizes_that_are_known(api):
    """Conditions on sizes that facts decide are not checked by a call."""

    def power(x):
        return lax.fori_loop(0, 3, lambda i, y: y @ x, x)

    executable = hlo_disc.compile(power, "f32[16, 16]", target=f"library-{api}")
    assert "library_product if the vendor's library takes it else" in executable.explain(full=True)
    x = arrays(("f32[m, k]",), 16, 16, 16)[0] / 4
    before = emulated.products(api).fake_multiplied()
    compare(np.asarray(executable(x)), np.asarray(jax.jit(power)(x)))
    assert emulated.products(api).fake_multiplied() == before + 3


def test_what_the_library_chose_is_kept(api):
    library = emulated.products(api)
    executable = hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", target=f"library-{api}")
    xs = arrays(("f32[m, k]", "f32[k, n]"), 11, 13, 12)
    executable(*xs)
    before = library.fake_asked(), library.fake_multiplied()
    for _ in range(3):
        executable(*xs)
    assert (library.fake_asked(), library.fake_multiplied()) == (before[0], before[1] + 3)


@pytest.mark.parametrize("how", [1, 2, 3, 4])
def test_a_product_that_the_library_has_no_way_to_compute(how, api):
    library = emulated.products(api)
    executable = hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", target=f"library-{api}")
    xs = arrays(("f32[m, k]", "f32[k, n]"), 19, 13, 12 + how)
    library.fake_decline(how)
    before = library.fake_asked(), library.fake_multiplied()
    for _ in range(3):
        compare(np.asarray(executable(*xs)), xs[0] @ xs[1])
    assert (library.fake_asked(), library.fake_multiplied()) == (before[0] + 1, before[1])


def test_every_call_of_the_library_may_fail(api):
    library = emulated.products(api)
    executable = hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", target=f"library-{api}")
    failed, passed, n = set(), 0, 0
    while passed < 3:
        n += 1
        xs = arrays(("f32[m, k]", "f32[k, n]"), 20, 6, 20 + n)  # sizes that are new ask the library
        emulated.emulator().fake_fail(n, 719)
        try:
            executable(*xs)
            passed += 1
        except DeviceError as error:
            assert "(error 719)" in str(error)
            where, _, what = str(error).partition(": ")
            if where == "cannot launch the kernel k0_library_product":
                failed.add(what.split()[0])
        emulated.emulator().fake_fail(0, 0)
        assert library.fake_live() == 0
        compare(np.asarray(executable(*xs)), xs[0] @ xs[1])
    steps = ("DescCreate", "DescSetAttribute", "AlgoGetHeuristic", "PreferenceCreate", "PreferenceSetAttribute", "")
    functions = [*(f"Matmul{step}" for step in steps), "MatrixLayoutCreate", "MatrixLayoutSetAttribute"]
    assert {f"{NAMES[api]}{function}" for function in functions} <= failed


def test_a_process_without_a_library_and_one_that_does_not_start():
    """A library may be loaded later, and may start later. It is started once a process, so this test has its own."""
    program = f"""
import sys; sys.path[:0] = {[str(Path(emulated.__file__).parent), str(Path(__file__).parent)]!r}
import emulated, numpy as np, hlo_disc
emulated.register_products({LEAST})
x = np.ones((9, 9), np.float32)
run = hlo_disc.compile(lambda x: x @ x, "f32[n, n]", target="library-hip")
assert (run(x) == 9).all()  # without a library
library = emulated.products("hip")
said = []
for n in range(1, 30):
    emulated.emulator().fake_fail(n, 3)
    try:
        run(x)
    except hlo_disc.errors.DeviceError as error:
        said.append(str(error))
    if any("hipblasLtCreate failed (error 3)" in text for text in said):
        break
emulated.emulator().fake_fail(0, 0)
assert said[-1].endswith("k0_library_product: hipblasLtCreate failed (error 3)"), said
assert library.fake_multiplied() == 0
assert (run(x) == 9).all() and library.fake_multiplied() == 1
"""
    in_a_process(program)


def test_a_library_that_only_the_system_has(tmp_path):
    """A process that has no library searches for one as the system searches libraries."""
    in_a_process(
        f"""
import sys; sys.path[:0] = {[str(Path(emulated.__file__).parent)]!r}
import ctypes, emulated, numpy as np, hlo_disc
emulated.register_products({LEAST})
x = np.ones((9, 9), np.float32)
assert (hlo_disc.compile(lambda x: x @ x, "f32[n, n]", target="library-cuda")(x) == 9).all()
assert ctypes.CDLL("libcublasLt.so.13").fake_multiplied() == 1
""",
        LD_LIBRARY_PATH=str(emulated.build_products("cuda", tmp_path).parent),
    )


def in_a_process(program: str, **environment: str) -> None:
    command, environment = [sys.executable, "-c", program], {**os.environ, **environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr


def test_many_threads(api):
    executable = hlo_disc.compile(lambda x, y: x @ y, "f32[m, k]", "f32[k, n]", target=f"library-{api}")
    wrong: list[object] = []

    def call(n: int) -> None:
        for k in range(20):
            xs = arrays(("f32[m, k]", "f32[k, n]"), 4 + n, 4 + k, 8)
            if not np.allclose(executable(*xs), xs[0] @ xs[1], atol=1e-5):
                wrong.append((n, k))

    threads = [threading.Thread(target=call, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
