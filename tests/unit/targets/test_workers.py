"""Code that threads make: the same whatever their number, one error for all, and nothing of them afterwards."""

from __future__ import annotations

import threading
import time

import forked
import jax.numpy as jnp
import pytest
from llvmlite.binding import ffi

import hlo_disc
from hlo_disc import sources
from hlo_disc.errors import CompileError
from hlo_disc.targets import llvm_ir
from hlo_disc.targets.cpu import native_generator, x86
from hlo_disc.targets.workers import Workers, workers

pytestmark = pytest.mark.usefixtures("all_kernels_built")
TEXT = "define i32 @f(i32 %x) { %y = add i32 %x, 1\n ret i32 %y }"


def many_kernels(x, *weights):
    """More than a few modules have, with functions that several of them call."""
    for k, w in enumerate(weights):
        x = jnp.tanh(x @ w) * k
        x = x - x.max(axis=k % 2, keepdims=True)
    return x


def compiled(threads: int = 0, target: str = "cpu", **options) -> bytes:
    sizes = [16, 24, 40, 16, 56, 8, 24, 16]
    specs = [f"f32[n, {sizes[0]}]", *(f"f32[{m}, {n}]" for m, n in zip(sizes, sizes[1:], strict=False))]
    settings = hlo_disc.Options(target=target, threads=threads, cache="", **options)
    return sources.program(many_kernels, *specs, options=settings).object


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("hlo_disc-llvm")]


def test_code_is_the_same_whatever_the_number_of_threads(monkeypatch):
    want, names = compiled(1), []
    compile_llvm = native_generator.NativeGenerator.compile_llvm

    def late(generator, text, dump=None):
        """Modules end in another order than they began."""
        names.append(threading.current_thread().name)
        time.sleep(0.02 * (len(names) % 3))
        return compile_llvm(generator, text, dump)

    monkeypatch.setattr(native_generator.NativeGenerator, "compile_llvm", late)
    for _ in range(3):
        assert compiled(4) == compiled(1) == want
    assert len(set(names)) > 1 and len(names) > 3 * 6
    assert not helpers()


@pytest.mark.parametrize("target", ["aarch64", "cuda", "rocm"])
def test_code_for_other_machines_is_the_same(target):
    assert compiled(1, target) == compiled(4, target)


def test_modules_do_not_depend_on_processors(monkeypatch):
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0})
    one = compiled()
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert compiled() == one


def test_an_error_in_a_thread_is_the_error(monkeypatch):
    compile_llvm, count = native_generator.NativeGenerator.compile_llvm, 0

    def broken(generator, text, dump=None):
        nonlocal count
        count += 1
        return compile_llvm(generator, text.replace("ret void", "ret i32 0", 1) if count == 2 else text, dump)

    monkeypatch.setattr(native_generator.NativeGenerator, "compile_llvm", broken)
    for threads in (1, 4):
        count = 0
        with pytest.raises(CompileError, match="the generated LLVM IR does not parse"):
            compiled(threads)
        assert not helpers()


def test_dumps_have_all_modules_in_their_order(tmp_path):
    def dumped(threads: int) -> dict[str, str]:
        place = tmp_path / str(threads)
        compiled(threads, dump=str(place))
        return {path.name.partition("-")[2]: path.read_text() for path in place.iterdir()}

    one, four = dumped(1), dumped(4)
    assert one == four
    (assembly,) = (text for name, text in one.items() if name.endswith(".asm"))
    assert assembly.count("\t.file\t") > 2 and "main:" in assembly


def test_who_is_interrupted_leaves_no_thread(monkeypatch):
    def interrupted(modules):
        if helpers():
            raise KeyboardInterrupt
        return canonicalize(modules)

    canonicalize = native_generator.canonicalize
    want = compiled(4)
    monkeypatch.setattr(native_generator, "canonicalize", interrupted)
    with pytest.raises(KeyboardInterrupt):
        compiled(4)
    assert not helpers()
    monkeypatch.undo()
    assert compiled(4) == want


def test_several_compilations_at_once():
    want, found = compiled(1), []
    threads = [threading.Thread(target=lambda: found.append(compiled(3))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [want] * 3 and not helpers()


def test_a_fork_after_threads_compiles():
    generator = x86.generator("host")
    want = generator.compile_llvm(TEXT)

    def again() -> bool:
        with workers(3) as made:
            for _ in range(4):
                made.add(lambda: generator.compile_llvm(TEXT))
            return made.results() == [want] * 4

    assert again()
    assert forked.holds_in_child(again)


def test_results_are_in_order_and_the_first_error_counts():
    def work(k: int):
        time.sleep(0.01 * (3 - k))
        if k in (1, 2):
            raise ValueError(k)
        return k

    for threads in (1, 2, 4):
        with workers(threads) as made, pytest.raises(ValueError, match="1"):
            for k in range(4):
                made.add(lambda k=k: work(k))
            made.results()
        with workers(threads) as made:
            for k in (0, 3, 0):
                made.add(lambda k=k: work(k))
            assert made.results() == [0, 3, 0]


def test_one_thread_is_the_callers():
    with workers(1) as made:
        for _ in range(3):
            made.add(threading.current_thread)
        assert set(made.results()) == {threading.current_thread()}


def test_what_is_left_is_not_begun():
    began, gate, ended = threading.Event(), threading.Event(), []

    def first() -> None:
        began.set()
        gate.wait()

    with workers(2) as made:
        made.add(first)
        made.add(lambda: ended.append(1))
        began.wait()
        threading.Timer(0.5, gate.set).start()
    assert not ended and not helpers()


def test_a_process_without_threads_compiles(monkeypatch):
    def refused(thread):
        raise RuntimeError("can't start new thread")

    want = compiled(1)
    monkeypatch.setattr(threading.Thread, "start", refused)
    assert compiled(4) == want


def test_an_interrupt_does_not_wait_for_what_is_left():
    done = []

    def interrupt():
        raise KeyboardInterrupt

    made: Workers = Workers(1)
    made.add(interrupt)
    made.add(lambda: done.append(1))
    with pytest.raises(KeyboardInterrupt):
        made.results()
    made.close()
    assert not done


@pytest.mark.parametrize(
    "name",
    ["ParseAssembly", "VerifyModule", "RunNewModulePassManager", "TargetMachineEmitToMemory"],
)
def test_llvmlite_has_its_functions_without_the_lock(name):
    """Otherwise everything works, one thread at a time."""
    locked = getattr(ffi.lib, f"LLVMPY_{name}")
    assert llvm_ir.unlocked(f"LLVMPY_{name}") is locked._cfn is not locked


def test_a_llvmlite_without_them_compiles(monkeypatch):
    generator = x86.generator("host")
    want = generator.compile_llvm(TEXT)
    monkeypatch.setattr(llvm_ir, "unlocked", lambda name: getattr(ffi.lib, name))
    assert generator.compile_llvm(TEXT) == want


def test_host_functions_are_compiled_quickly(monkeypatch):
    levels, machine = [], llvm_ir.machine

    def recorded(triple, cpu, features, codemodel, level):
        levels.append(level)
        return machine(triple, cpu, features, codemodel, level)

    monkeypatch.setattr(llvm_ir, "machine", recorded)
    compiled(1)
    assert levels.count(0) == 1 and levels.count(2) == len(levels) - 1 > 1


def test_options_change_while_nobody_compiles():
    generator, changed = x86.generator("host"), threading.Event()

    def change() -> None:
        llvm_ir.set_option("-disable-lsr")
        changed.set()

    with llvm_ir.machine(generator.triple, generator.cpu, generator.llvm, "small") as machine:
        with llvm_ir.machine(generator.triple, generator.cpu, generator.llvm, "small") as other:
            assert machine is not other
        thread = threading.Thread(target=change)
        thread.start()
        assert not changed.wait(0.1)
    assert changed.wait(60)
    thread.join()
