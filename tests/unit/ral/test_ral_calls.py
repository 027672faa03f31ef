"""Library calls: the runtime hosts XLA FFI handlers, a user's own among them (compiled from ffi_handlers.cc)."""

from __future__ import annotations

import ctypes
import gc
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import jaxlib
import numpy as np
import pytest
from forked import holds_in_child

import hlo_disc
from hlo_disc.errors import CallError, OutOfMemoryError, UnsupportedOpError
from hlo_disc.ral import fail_next_allocation, live_bytes, stop_pool
from hlo_disc.ral.contexts.jax import call_in_jit

TARGETS = {
    "test_scale": {"execute": "scale"},
    "test_look": {"execute": "look"},
    "test_tasks": {"execute": "tasks"},
    "test_later": {"execute": "later"},
    "test_next": {"instantiate": "begin", "prepare": "prepare", "execute": "next_"},
    "test_stream": {"execute": "stream"},
    "test_alone": {"execute": "alone"},
    "test_give_back": {"execute": "give_back"},
    "test_next_set_twice": {"instantiate": "begin_twice", "prepare": "prepare", "execute": "next_"},
}
SCALE = 'backend_config = {factor = 2.0 : f32, name = "scale", nested = {yes = true}, offsets = array<i64: 5>}'


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    made = tmp_path_factory.mktemp("handlers") / "handlers.so"
    include = Path(jaxlib.__path__[0]) / "include"
    source = Path(__file__).parent / "ffi_handlers.cc"
    command = [compiler, "-std=c++17", "-O1", "-w", "-fPIC", "-shared", f"-I{include}", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    handlers = ctypes.CDLL(str(made))
    handlers.count_alive.restype = ctypes.c_int64
    jax.devices("cpu")  # XLA takes types once it has a client
    types = {}
    for name in ("id", "info"):
        function = getattr(handlers, f"count_{name}")
        function.restype = ctypes.c_void_p
        types[f"type_{name}"] = jax.ffi.pycapsule(function())
    jax.ffi.register_ffi_type("hlo_disc_test_count", types)
    hlo_disc.register_ffi_type("hlo_disc_test_count", types)
    for target, stages in TARGETS.items():
        capsules = {stage: jax.ffi.pycapsule(getattr(handlers, name)) for stage, name in stages.items()}
        jax.ffi.register_ffi_target(target, capsules, platform="cpu")
        if "instantiate" in stages:
            hlo_disc.register_ffi_target(target, capsules)
    return handlers


def module(call: str, argument: str = "tensor<?xf32>", results: str = "tensor<?xf32>") -> str:
    return f"""
    module @calls {{
      func.func public @main(%x: {argument} {{hlo_disc.shape = "(n,)"}}) -> ({results}) {{
        %n32 = stablehlo.get_dimension_size %x, dim = 0 : ({argument}) -> tensor<i32>
        %n = stablehlo.reshape %n32 : (tensor<i32>) -> tensor<1xi32>
        {call}
      }}
    }}"""


def simple(target: str, config: str = "backend_config = {}") -> str:
    """y = target(x), of x's shape."""
    attributes = f"api_version = 4 : i32, {config}, indices_of_shape_operands = dense<1> : tensor<1xi64>"
    types = "(tensor<?xf32>, tensor<1xi32>) -> tensor<?xf32>"
    return module(f"%y = stablehlo.custom_call @{target}(%x, %n) {{{attributes}}} : {types} return %y : tensor<?xf32>")


def test_a_handler_of_the_users_own_at_every_size(library: ctypes.CDLL) -> None:
    exe = hlo_disc.compile(simple("test_scale", SCALE))
    for n in (0, 1, 7, 1000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(exe(x), 2 * x + 5)


def test_a_failing_handler_stops_the_call(library: ctypes.CDLL, no_leak: None) -> None:
    exe = hlo_disc.compile(simple("test_scale", SCALE))
    for _ in range(3):
        with pytest.raises(CallError, match=r"@test_scale at .*INVALID_ARGUMENT: element 1 is negative") as error:
            exe(np.array([1, -1, 2], np.float32))
        assert isinstance(error.value, RuntimeError)
        np.testing.assert_array_equal(exe(np.ones(2, np.float32)), [7, 7])


def test_attributes_that_do_not_fit(library: ctypes.CDLL) -> None:
    exe = hlo_disc.compile(simple("test_scale", "backend_config = {factor = 2.0 : f64}"))
    with pytest.raises(CallError, match="INVALID_ARGUMENT"):
        exe(np.ones(2, np.float32))


def test_operands_may_share_memory_with_results(library: ctypes.CDLL) -> None:
    attributes = "api_version = 4 : i32, indices_of_shape_operands = dense<[1, 2]> : tensor<2xi64>"
    alias = "#stablehlo.output_operand_alias<output_tuple_indices = [0], operand_index = 0, operand_tuple_indices = []>"
    for shared in (False, True):
        more = f", output_operand_aliases = [{alias}]" if shared else ""
        call = f"""
        %three = stablehlo.constant dense<3> : tensor<1xi32>
        %y:2 = stablehlo.custom_call @test_look(%x, %n, %three) {{{attributes}{more}}}
          : (tensor<?xf32>, tensor<1xi32>, tensor<1xi32>) -> (tensor<?xf32>, tensor<?xi64>)
        return %y#0, %y#1 : tensor<?xf32>, tensor<?xi64>"""
        exe = hlo_disc.compile(module(call, results="tensor<?xf32>, tensor<?xi64>"))
        x = np.arange(5, dtype=np.float32)
        y, seen = exe(x)
        np.testing.assert_array_equal(y, x)
        np.testing.assert_array_equal(x, np.arange(5))
        assert seen.tolist() == [1, 5, shared]


def test_layouts(library: ctypes.CDLL) -> None:
    layouts = "operand_layouts = [dense<[0, 1]> : tensor<2xindex>]"
    layouts += ", result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<0> : tensor<1xindex>]"
    text = f"""
    func.func public @main(%x: tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xi64>) {{
      %y:2 = stablehlo.custom_call @test_look(%x) {{api_version = 4 : i32, {layouts}}}
        : (tensor<2x3xf32>) -> (tensor<2x3xf32>, tensor<4xi64>)
      return %y#0, %y#1 : tensor<2x3xf32>, tensor<4xi64>
    }}"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y, seen = hlo_disc.compile(text)(x)
    assert seen.tolist() == [2, 2, 3, 0]
    np.testing.assert_array_equal(y.reshape(-1), x.T.reshape(-1))  # copied as it lay: columns first


@pytest.mark.parametrize("threads", [1, 3])
def test_tasks_and_scratch(library: ctypes.CDLL, no_leak: None, threads: int) -> None:
    exe = hlo_disc.compile(simple("test_tasks"), threads=threads)
    for n in (1, 5, 300):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(exe(x), 2 * x)


@pytest.mark.filterwarnings("ignore:.*fork")
def test_tasks_when_their_threads_have_ended(library: ctypes.CDLL) -> None:
    attributes = "api_version = 4 : i32, has_side_effect = true"
    call = f"%y = stablehlo.custom_call @test_alone(%x) {{{attributes}}} : (tensor<?xf32>) -> tensor<1xi64> "
    exe = hlo_disc.compile(module(call + "return %y : tensor<1xi64>", results="tensor<1xi64>"), threads=3)
    x = np.ones(30, np.float32)

    def check() -> bool:
        before = exe(x)[0] < 30
        stop_pool()
        return before and exe(x)[0] == 30

    assert holds_in_child(check)


def test_only_memory_of_the_call_can_be_given_back(library: ctypes.CDLL, no_leak: None) -> None:
    attributes = "api_version = 4 : i32, has_side_effect = true"
    call = f"%y = stablehlo.custom_call @test_give_back(%x) {{{attributes}}} : (tensor<?xf32>) -> tensor<4xi64> "
    exe = hlo_disc.compile(module(call + "return %y : tensor<4xi64>", results="tensor<4xi64>"))
    assert exe(np.ones(2, np.float32)).tolist() == [0, 1, 0, 1]  # the operand, a block, it again, another one


def test_no_memory_for_scratch(library: ctypes.CDLL, no_leak: None) -> None:
    exe = hlo_disc.compile(simple("test_tasks"), threads=1)
    x = np.ones(5, np.float32)
    failures = 0
    for nth in range(1, 5):
        fail_next_allocation(nth)
        try:
            exe(x)
        except (CallError, OutOfMemoryError):
            failures += 1
        finally:
            fail_next_allocation(0)
    assert failures >= 2
    np.testing.assert_array_equal(exe(x), 2 * x)


def test_a_handler_that_goes_on_after_it_has_returned(library: ctypes.CDLL) -> None:
    exe = hlo_disc.compile(simple("test_later"))
    np.testing.assert_array_equal(exe(np.ones(3, np.float32)), np.ones(3))
    with pytest.raises(CallError, match="ABORTED: later it failed"):
        exe(-np.ones(3, np.float32))


def next_module(start: int, target: str = "test_next") -> str:
    config = f"api_version = 4 : i32, backend_config = {{start = {start}}}, has_side_effect = true"
    call = f"""%y = stablehlo.custom_call @{target}() {{{config}}} : () -> tensor<2xi64>
        return %y : tensor<2xi64>"""
    return module(call, results="tensor<2xi64>")


def test_states_live_as_long_as_their_executable_or_call(library: ctypes.CDLL) -> None:
    exe = hlo_disc.compile(next_module(40))
    assert library.count_alive() == 1
    x = np.ones(2, np.float32)
    assert [exe(x).tolist() for _ in range(3)] == [[40, 100], [41, 100], [42, 100]]
    assert library.count_alive() == 1
    del exe
    assert library.count_alive() == 0


def test_a_handler_that_cannot_be_instantiated(library: ctypes.CDLL) -> None:
    with pytest.raises(CallError, match="@test_next.*OUT_OF_RANGE: cannot start below zero"):
        hlo_disc.compile(next_module(-1))


def test_a_state_is_set_once(library: ctypes.CDLL) -> None:
    with pytest.raises(CallError, match="FAILED_PRECONDITION: the state of this stage is set already"):
        hlo_disc.compile(next_module(1, "test_next_set_twice"))
    assert library.count_alive() == 0


def test_what_the_host_has_not_is_an_error(library: ctypes.CDLL) -> None:
    call = "%y = stablehlo.custom_call @test_stream() {api_version = 4 : i32} : () -> tensor<1xi64> "
    exe = hlo_disc.compile(module(call + "return %y : tensor<1xi64>", results="tensor<1xi64>"))
    with pytest.raises(CallError, match="there is no stream"):
        exe(np.ones(2, np.float32))


def test_inside_loops_and_branches(library: ctypes.CDLL) -> None:
    config = {"factor": np.float32(2), "name": "scale", "nested": {"yes": True}, "offsets": np.array([-3])}

    def scaled(x: jax.Array) -> jax.Array:
        return jax.ffi.ffi_call("test_scale", jax.ShapeDtypeStruct(x.shape, x.dtype))(x, **config)

    def f(x: jax.Array, n: jax.Array) -> jax.Array:
        y = jax.lax.fori_loop(0, n, lambda i, y: scaled(y), x)
        return jax.lax.cond(n > 2, scaled, lambda y: y, y)

    types = jax.ShapeDtypeStruct((3,), np.float32), jax.ShapeDtypeStruct((), np.int32)
    exe = hlo_disc.compile(f, *types, dims={"x": "(b,)"})
    for size, n in ((5, 0), (1, 1), (4, 7), (0, 3)):
        x = np.arange(size, dtype=np.float32) + 3
        np.testing.assert_array_equal(exe(x, np.int32(n)), jax.jit(f)(x, n))
    # 1, -1: the second turn fails, and nothing after it runs.
    with pytest.raises(CallError, match="element 0 is negative"):
        exe(np.ones(3, np.float32), np.int32(1 << 30))


def test_effects_stay(library: ctypes.CDLL) -> None:
    """A call whose result nobody wants is made all the same, every time."""
    config = "api_version = 4 : i32, backend_config = {start = 0}, has_side_effect = true"
    call = f"""
        %a = stablehlo.custom_call @test_next() {{{config}}} : () -> tensor<2xi64>
        %b = stablehlo.custom_call @test_next() {{{config}}} : () -> tensor<2xi64>
        return %x : tensor<?xf32>"""
    exe = hlo_disc.compile(module(call))
    assert exe.explain(full=True).count("test_next ->") == 2
    np.testing.assert_array_equal(exe(np.ones(3, np.float32)), np.ones(3))


def test_many_threads_at_once(library: ctypes.CDLL, no_leak: None) -> None:
    exes = [
        hlo_disc.compile(simple(name, config), threads=2)
        for name, config in (("test_scale", SCALE), ("test_tasks", "backend_config = {}"))
    ]

    def run(k: int) -> None:
        x = np.full(50, k, np.float32)
        for _ in range(20):
            np.testing.assert_array_equal(exes[0](x), 2 * x + 5)
            np.testing.assert_array_equal(exes[1](x), 2 * x)
            with pytest.raises(CallError, match="negative"):
                exes[0](-x - 1)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(run, range(8)))


def test_inside_jax_jit(library: ctypes.CDLL) -> None:
    shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)  # noqa: E731

    def scaled(x: jax.Array) -> jax.Array:
        config = {"factor": np.float32(2), "name": "scale", "nested": {"yes": True}, "offsets": np.array([5])}
        return jax.ffi.ffi_call("test_scale", shape(x))(x, **config)

    def f(x: jax.Array) -> jax.Array:
        return scaled(scaled(x) + 1)

    ours = hlo_disc.jit(f, dims={"x": "(n,)"})
    x = np.arange(9, dtype=np.float32)
    np.testing.assert_array_equal(ours(x), jax.jit(f)(x))
    np.testing.assert_array_equal(jax.jit(lambda x: ours(x) - 1)(x), jax.jit(f)(x) - 1)
    with pytest.raises(Exception, match="element 0 is negative"):
        jax.jit(lambda x: ours(x) - 1)(-x - 1).block_until_ready()
    # XLA lends its threads, and has no scratch memory of its own on the CPU.
    exe = hlo_disc.compile(simple("test_tasks"))
    (y,) = jax.jit(lambda x: call_in_jit(exe.native, exe.content, x))(x)
    np.testing.assert_array_equal(y, 2 * x)


def test_saved_and_loaded(library: ctypes.CDLL, tmp_path: Path) -> None:
    hlo_disc.compile(simple("test_scale", SCALE)).save(tmp_path / "scale.disc")
    exe = hlo_disc.load(tmp_path / "scale.disc")
    np.testing.assert_array_equal(exe(np.ones(3, np.float32)), [7, 7, 7])


def test_a_target_that_nobody_has_registered(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedOpError, match="custom_call @test_nobody at .*no XLA FFI handler"):
        hlo_disc.compile(simple("test_nobody"))


def test_calls_of_the_old_interface_are_refused() -> None:
    text = (
        simple("test_scale")
        .replace("api_version = 4", "api_version = 2")
        .replace("backend_config = {}", 'backend_config = ""')
    )
    with pytest.raises(UnsupportedOpError, match="custom call @test_scale.*api_version 4"):
        hlo_disc.compile(text)


def test_elements_that_xla_packs_are_refused() -> None:
    text = """func.func @main(%x: tensor<3xi4>) -> tensor<3xi4> {
      %y = stablehlo.custom_call @test_scale(%x) {api_version = 4 : i32} : (tensor<3xi4>) -> tensor<3xi4>
      return %y : tensor<3xi4>
    }"""
    with pytest.raises(UnsupportedOpError, match="custom call @test_scale takes or makes int4.*convert to int8"):
        hlo_disc.compile(text)


def test_functions_of_another_process_are_refused() -> None:
    def f(x: jax.Array) -> jax.Array:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(UnsupportedOpError, match="calls a Python function of the process that made the module"):
        hlo_disc.compile(jax.jit(f).lower(np.ones(3, np.float32)).as_text())


def test_a_failed_instantiation_frees_what_it_took(library: ctypes.CDLL) -> None:
    gc.collect()
    before = live_bytes()
    for _ in range(3):
        with pytest.raises(CallError):
            hlo_disc.compile(next_module(-1))
    assert live_bytes() <= before and library.count_alive() == 0
