"""Feature levels, compiling to objects, linking, and what goes wrong: always an error, never the end of the process."""

from __future__ import annotations

import ctypes
import gc
import os
import struct
import threading
import types

import child
import llvmlite.binding as llvm
import numpy as np
import pytest
from hand_written import kernel_runner as kernels

from hlo_disc import ral
from hlo_disc.errors import ArgumentError, CompileError, FormatError
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.target import compile_modules

TWICE = """
  %v = vector.load %a0[%c0] : memref<?xf32>, vector<16xf32>
  %w = arith.addf %v, %v : vector<16xf32>
  vector.store %w, %a1[%c0] : memref<?xf32>, vector<16xf32>"""


def _compile(body: str, level: str = "host", **options) -> bytes:
    module = kernels.parse(kernels.kernel_module(body, ["f32", "f32"]))
    return compile_modules(x86.generator(level), [module], **options)


def _pretend(monkeypatch: pytest.MonkeyPatch, features: set[str]) -> None:
    monkeypatch.setattr(x86, "host_features", lambda: frozenset(features))


@pytest.fixture
def fresh_levels():
    """Forget feature levels, which are worked out once, before and after a test that pretends to be another machine."""
    x86.generator.cache_clear()
    yield
    x86.generator.cache_clear()


def test_levels_say_what_schedules_need_to_know():
    avx2 = x86.generator("avx2")
    assert (avx2.simd_bytes, avx2.registers) == (32, 16)
    assert not any(f.startswith("avx512") for f in avx2.features)
    host = x86.generator("host")
    assert set(host.features) <= x86.host_features()
    assert host == x86.generator(kernels.levels()[-1]), "code for this machine is code for all of its level"
    best = x86.LEVELS[kernels.levels()[-1]]
    assert (host.cpu, host.simd_bytes, host.registers) == (best.cpu, best.simd_bytes, best.registers)


@pytest.mark.usefixtures("fresh_levels")
def test_a_cpu_that_is_too_old_is_refused(monkeypatch):
    _pretend(monkeypatch, {"sse4.2", "avx"})
    for level in ("host", "avx2", "avx512"):
        with pytest.raises(ArgumentError, match="lacks.* avx2"):
            x86.generator(level)


@pytest.mark.usefixtures("fresh_levels")
@pytest.mark.parametrize("level", x86.levels)
def test_code_uses_nothing_that_its_machine_lacks(monkeypatch, level):
    """Machines have just the features of a level, or those of the next level without one of them."""
    features = {*x86.LEVELS[level].features}
    above = [x86.LEVELS[name] for name in x86.levels[x86.levels.index(level) + 1 :]]
    lacking = ({*row.features} - {feature} for row in above for feature in {*row.features} - features)
    for machine in (features, *lacking):
        _pretend(monkeypatch, machine)
        x86.generator.cache_clear()
        chosen = x86.made_for("host")
        assert set(x86.generator("host").features) <= machine and x86.generator("host") == x86.generator(chosen)
        assert chosen == level or machine != features


@pytest.mark.usefixtures("fresh_levels")
def test_the_host_level_follows_the_machine(monkeypatch):
    without = {*x86.host_features(), *x86._AVX512} - {"avx512vl"}
    _pretend(monkeypatch, without)
    assert x86.generator("host").cpu == x86.LEVELS["avx2"].cpu
    with pytest.raises(ArgumentError, match="lacks avx512vl"):
        x86.generator("avx512")


def test_the_machine_has_what_llvm_finds_too():
    found = llvm.get_host_cpu_features()
    known = {feature for level in x86.LEVELS.values() for feature in level.features}
    if ctypes.CDLL(None).syscall(158, 0x1023, 18):  # arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA): not granted
        known -= set(x86.TILES)
    assert set(ral.cpu_features()) == {name for name in known if found.get(name)}


def test_an_object_for_another_cpu_is_refused():
    x86.check(x86.generator("host").features)
    with pytest.raises(FormatError, match="avx99"):
        x86.check(("avx2", "avx99"))


@pytest.mark.skipif("avx512" not in kernels.levels(), reason="needs AVX-512")
def test_a_level_bounds_the_instructions():
    listings = {}
    for level in ("avx2", "avx512"):
        _compile(TWICE, level, dump=lambda stage, text, level=level: listings.__setitem__((level, stage), text))
    assert "zmm" in listings["avx512", "asm"]
    assert "zmm" not in listings["avx2", "asm"] and "ymm" in listings["avx2", "asm"]
    assert "gpu.func" in listings["avx2", "mlir"]
    assert "define" in listings["avx2", "ll"] and "define" in listings["avx2", "opt.ll"]


def test_objects_are_position_independent_and_free_of_unknown_symbols():
    object_ = _compile(TWICE)
    assert object_[:4] == b"\x7fELF"
    (machine,) = struct.unpack_from("<H", object_, 18)
    assert machine == 62
    assert _undefined(object_) == {"ral_parallel_for"}


def _undefined(object_: bytes) -> set[str]:
    """The undefined symbols of an ELF64 object."""
    (sections_at,) = struct.unpack_from("<Q", object_, 40)
    (count,) = struct.unpack_from("<H", object_, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", object_, sections_at + 64 * k) for k in range(count)]
    names = set()
    for _, kind, _, _, offset, size, link, _, _, entry in sections:
        if kind != 2:
            continue
        strings = sections[link][4]
        for at in range(offset + entry, offset + size, entry):
            name, _, _, section = struct.unpack_from("<IBBH", object_, at)
            if section == 0:
                names.add(object_[strings + name : object_.index(b"\0", strings + name)].decode())
    return names


def test_functions_that_nobody_calls_are_dropped():
    function = "func.func private @unused(%x: f32) -> f32 {\n%y = math.sin %x : f32\nreturn %y : f32\n}"
    texts = [kernels.kernel_module(TWICE, ["f32", "f32"], functions=f) for f in ("", function)]
    with_it, without = (compile_modules(x86.generator("host"), [kernels.parse(t)]) for t in texts)
    assert with_it == without


def test_compiling_twice_gives_the_same_object():
    assert _compile(TWICE) == _compile(TWICE)


def test_small_floats_and_vector_math_need_no_library():
    body = """
      %v = vector.load %a0[%c0] : memref<?xbf16>, vector<16xbf16>
      %w = math.erfc %v : vector<16xbf16>
      %h = arith.extf %w : vector<16xbf16> to vector<16xf64>
      %t = arith.truncf %h : vector<16xf64> to vector<16xbf16>
      %x = memref.load %a0[%c0] : memref<?xbf16>
      %y = math.powf %x, %x : bf16
      memref.store %y, %a1[%c0] : memref<?xbf16>
      vector.store %t, %a1[%c1] : memref<?xbf16>, vector<16xbf16>"""
    for level in kernels.levels():
        module = kernels.parse(kernels.kernel_module(body, ["bf16", "bf16"]))
        assert _undefined(compile_modules(x86.generator(level), [module])) == {"ral_parallel_for"}


def test_a_library_lives_as_long_as_it_is_held():
    object_ = _compile(TWICE)
    for _ in range(3):
        library = x86.link(object_, kernels.SYMBOLS)
        x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
        main = kernels.main_of(library)
        del library
        gc.collect()
        main(x, y)
        np.testing.assert_array_equal(y, 2 * x)
        assert main.library.address("main") == main.library.address("main")


def test_two_objects_with_the_same_names_live_side_by_side():
    other = TWICE.replace("arith.addf", "arith.mulf")
    first, second = (kernels.main_of(x86.link(_compile(body), kernels.SYMBOLS)) for body in (TWICE, other))
    x, y, z = np.arange(16, dtype=np.float32), np.zeros(16, np.float32), np.zeros(16, np.float32)
    first(x, y)
    second(x, z)
    np.testing.assert_array_equal(y, x + x)
    np.testing.assert_array_equal(z, x * x)


def test_linked_symbols_win_over_the_process():
    seen = []
    fake = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double)(lambda x: seen.append(x) or 42.0)
    body = """
      %x = memref.load %a0[%c0] : memref<?xf64>
      %y = func.call @memcpy(%x) : (f64) -> f64
      memref.store %y, %a1[%c0] : memref<?xf64>"""
    text = kernels.kernel_module(body, ["f64", "f64"], functions="func.func private @memcpy(f64) -> f64")
    object_ = compile_modules(x86.generator("host"), [kernels.parse(text)])
    address = ctypes.cast(fake, ctypes.c_void_p).value
    out = np.zeros(1)
    kernels.main_of(x86.link(object_, {**kernels.SYMBOLS, "memcpy": address}))(np.array([1.5]), out)
    assert seen == [1.5] and out[0] == 42


def test_compiling_from_many_threads():
    results: dict[int, np.ndarray] = {}

    def work(k: int) -> None:
        factor = f"%k = arith.constant dense<{k}.0> : vector<16xf32>"
        body = TWICE.replace("%w = arith.addf %v, %v", f"{factor}\n%w = arith.mulf %v, %k")
        main = kernels.main_of(x86.link(_compile(body, kernels.levels()[k % len(kernels.levels())]), kernels.SYMBOLS))
        x, y = np.arange(16, dtype=np.float32), np.zeros(16, np.float32)
        main(x, y)
        results[k] = y

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(8):
        np.testing.assert_array_equal(results[k], np.arange(16, dtype=np.float32) * k)


def test_mlir_that_does_not_verify_is_an_error():
    module = kernels.parse(kernels.kernel_module(TWICE, ["f32", "f32"]))
    kernel = module.body.operations[0].operation.regions[0].blocks[0].operations[0].operation
    block = kernel.regions[0].blocks[0]
    block.operations[len(block.operations) - 1].operation.erase()
    with pytest.raises(CompileError, match="MLIR does not verify"):
        compile_modules(x86.generator("host"), [module])


@pytest.mark.parametrize(
    "text",
    [
        "define void @f( {",
        "define i32 @f() {\n  ret float 1.0\n}",
        "define void @f() {\nentry:\n  br label %nowhere\n}",
        "define i32 @f(i1 %c) {\nentry:\n  br i1 %c, label %a, label %b\na:\n  %x = add i32 1, 1\n  br label %b\n"
        "b:\n  ret i32 %x\n}",
        "declare float @llvm.bswap.f32(float)\ndefine float @f(float %x) {\n"
        "  %y = call float @llvm.bswap.f32(float %x)\n  ret float %y\n}",
    ],
)
def test_llvm_ir_that_is_malformed_is_an_error(text):
    with pytest.raises(CompileError, match="LLVM IR does not"):
        x86.generator("host").compile_llvm(text)


def test_bytes_that_are_no_object_are_refused():
    object_ = _compile(TWICE)
    for bad in (b"", b"\x7fELF", b"MZ" + object_[2:], object_[:200]):
        with pytest.raises(FormatError):
            x86.link(bad, kernels.SYMBOLS).address("main")


def test_a_symbol_that_is_nowhere_is_an_error():
    text = kernels.kernel_module("func.call @nowhere() : () -> ()", ["f32"], functions="func.func private @nowhere()")
    object_ = compile_modules(x86.generator("host"), [kernels.parse(text)])
    with pytest.raises(FormatError, match="calls @nowhere, which is neither given to link"):
        x86.link(object_, kernels.SYMBOLS)


def test_an_address_that_an_object_lacks_is_a_key_error():
    with pytest.raises(KeyError, match="plan"):
        x86.link(_compile(TWICE), kernels.SYMBOLS).address("plan")


def test_equal_kernels_have_the_names_of_both():
    """A program may have one kernel twice, under two names. Both are there, whether the kernel is made or found."""
    whole = kernels.kernel_module("", ["f32"])
    alone, _ = _divided(whole)
    kept: dict[bytes, bytes] = {}
    store = types.SimpleNamespace(keep=kept.__setitem__)
    with x86.generator("host").begin(store=store) as compilation:
        for prefix in ("a_", "b_"):
            compilation.add(kernels.parse(alone), prefix, b"key", b"record\n")
        objects = [compilation.finish()]
    record, _, code = kept.pop(b"key").partition(b"\n")
    assert record == b"record" and not kept
    with x86.generator("host").begin(store=store) as compilation:
        for prefix in ("a_", "b_"):
            compilation.take(b"key", code, prefix)
        objects.append(compilation.finish())
    for object_ in objects:
        library = x86.link(object_, kernels.SYMBOLS)
        assert {"kernels.a_k__blocks", "kernels.b_k__blocks"} <= set(library.functions())


def _divided(whole: str) -> tuple[str, str]:
    """Return a module of the kernel alone, and the text of the host functions."""
    start, end = whole.index("gpu.func @k("), whole.index("func.func @main")
    return f"module attributes {{gpu.container_module}} {{ gpu.module @kernels {{ {whole[start:end]} }}", whole[end:]


def test_host_functions_and_kernels_in_modules_of_their_own():
    """Host functions and kernels are linked by name. A kernel that is missing, or takes something else, is an error."""
    whole = kernels.kernel_module("", ["f32"])
    alone, functions = _divided(whole)

    def host(types: str) -> str:
        declared = f"func.func private @k({types}) attributes {{gpu.kernel}} }}\n"
        return f"module attributes {{gpu.container_module}} {{ gpu.module @kernels {{ {declared} {functions}"

    generator = x86.generator("host")
    parts = x86.link(
        compile_modules(generator, [kernels.parse(alone)], kernels.parse(host("memref<?xf32>"))), kernels.SYMBOLS
    )
    one = x86.link(compile_modules(generator, [kernels.parse(whole)]), kernels.SYMBOLS)
    assert set(parts.functions()) == set(one.functions())
    with pytest.raises(CompileError, match="the kernel @k is declared as"):
        compile_modules(generator, [kernels.parse(alone)], kernels.parse(host("memref<?xf64>")))
    with pytest.raises(CompileError, match="the kernel @k is declared as"):
        compile_modules(generator, [], kernels.parse(host("memref<?xf32>")))


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="needs the GNU C library")
def test_compilations_leave_little_behind():
    """Compilations by LLVM's passes and by ours keep little memory. The allocator counts it, in a separate process."""
    code = """
import ctypes, gc
import llvmlite.binding as llvm
from hlo_disc.targets.cpu import x86

class Info(ctypes.Structure):
    names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in names.split()]

held = ctypes.CDLL(None).mallinfo2
held.restype = Info
generator = x86.generator("avx2")

def compiled(times):
    for _ in range(times):
        generator.compile_llvm("define i32 @f(i32 %x) { %y = add i32 %x, 1\\n ret i32 %y }")
    gc.collect()
    return held().uordblks + held().hblkhd

first = compiled(20)
print((compiled(40) - first) // 40)
"""
    printed = child.python("-c", code, env={**os.environ, "PYTHONMALLOC": "malloc"})
    assert int(printed) < 4096  # 1.5 KiB are llvmlite's
