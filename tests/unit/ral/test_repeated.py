"""The function that counts calls of a program by the types of their arguments, and compiles for what comes often."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hlo_disc
from hlo_disc import ral
from hlo_disc.ral.contexts.jax import array_type, compiled_with

OFTEN = 3
DOUBLE = hlo_disc.compile(lambda x: x * 2, "f32[n]").native


class Fast:
    """A stand-in that answers in place of a program, unless it is to refuse."""

    def __init__(self) -> None:
        self.made, self.calls, self.refuses = 0, 0, False

    def compile(self, arrays: tuple[Any, ...]) -> Callable[..., Any]:
        self.made += 1
        return self.call

    def call(self, x: Any) -> tuple[Any, ...]:
        self.calls += 1
        if self.refuses:
            raise ValueError("no")
        return (x * 2,)


def made_with(compile: Callable[..., Any]) -> Callable[..., Any]:
    return ral.repeated(DOUBLE, array_type(), OFTEN, compile)


@pytest.fixture
def fast() -> Fast:
    return Fast()


def test_what_comes_often_is_compiled(fast):
    run, before = made_with(fast.compile), DOUBLE.count.value
    for k in range(2 * OFTEN):
        assert run(jnp.full(3, k, jnp.float32))[0].tolist() == [2 * k] * 3
        assert fast.made == (k >= OFTEN - 1)
        assert DOUBLE.count.value == before + k + 1
    assert fast.calls == OFTEN


def test_equal_types_that_are_other_objects_are_the_same(fast):
    run = made_with(fast.compile)
    x = jnp.ones(3)
    if x.aval.update() is x.aval:
        pytest.skip("this JAX has one object for a type")
    for _ in range(2 * OFTEN):
        x.aval = x.aval.update()
        run(x)
    assert fast.made == 1 and fast.calls == OFTEN


@pytest.mark.parametrize("sizes", [8, 12])
def test_eight_sorts_are_kept(fast, sizes):
    """Eight sorts of calls are kept. Of more, in turns, none comes often. Those that come no more make room."""
    run = made_with(fast.compile)
    for _ in range(2 * OFTEN):
        for n in range(sizes):
            run(jnp.ones(n))
    assert fast.made == (8 if sizes == 8 else 0)
    for n in range(100, 112):
        for _ in range(2 * OFTEN):
            assert run(jnp.ones(n))[0].tolist() == [2.0] * n
    assert fast.made == 8


def test_what_came_long_ago_makes_room_first(fast):
    run = ral.repeated(DOUBLE, array_type(), 20, fast.compile)
    for n in range(30):
        run(jnp.ones(3))
        run(jnp.ones(10 + n))
    assert fast.made == 1


def test_what_is_refused_goes_to_the_program(fast):
    run = made_with(fast.compile)
    for _ in range(2 * OFTEN):
        run(jnp.ones(3))
    fast.refuses, fast.calls = True, 0
    deleted = jnp.ones(3)
    deleted.delete()
    for _ in range(2):  # the program refuses it as well
        with pytest.raises(RuntimeError, match="deleted"):
            run(deleted)
    assert fast.calls == 2
    for _ in range(3):  # the program takes it, so nobody asks again
        assert run(jnp.ones(3))[0].tolist() == [2.0] * 3
    assert fast.calls == 3 and fast.made == 1


def test_calls_that_fail_do_not_count(fast):
    run = made_with(fast.compile)
    for _ in range(2 * OFTEN):
        with pytest.raises(hlo_disc.ArgumentError):
            run(jnp.ones(3, jnp.int32))
        with pytest.raises(hlo_disc.ArgumentError):
            run(jnp.ones(3), jnp.ones(3))
        with pytest.raises(hlo_disc.ArgumentError):
            run()
        with pytest.raises(TypeError, match="positional"):
            run(x=jnp.ones(3))
        run(np.ones(3, np.float32))
    assert fast.made == 0


def test_committed_arrays_are_of_another_sort(fast):
    run = made_with(fast.compile)
    for _ in range(OFTEN):
        run(jnp.ones(3))
        run(jax.device_put(jnp.ones(3), jax.devices()[0]))
    assert fast.made == 2


def test_nothing_to_compile(fast):
    asked = []
    run = made_with(asked.append)
    for _ in range(3 * OFTEN):
        assert run(jnp.ones(3))[0].tolist() == [2.0] * 3
    assert len(asked) == 1


def test_an_error_of_compile_is_raised():
    def compile(arrays):
        raise KeyboardInterrupt

    run = made_with(compile)
    run(jnp.ones(3)), run(jnp.ones(3))
    with pytest.raises(KeyboardInterrupt):
        run(jnp.ones(3))
    assert run(jnp.ones(3))[0].tolist() == [2.0] * 3


def test_circles_are_collected(fast):
    class Compile:
        def __call__(self, arrays):
            return self

    compile = Compile()
    compile.run = made_with(compile)
    for _ in range(OFTEN):
        compile.run(jnp.ones(3))
    gone = weakref.ref(compile)
    del compile
    gc.collect()
    assert gone() is None


def test_an_xla_program_keeps_its_executable():
    native = hlo_disc.compile(lambda x: (x * 2, x + 1), "f32[n]").native
    gone = weakref.ref(native)
    program = compiled_with(native, 7, [jnp.ones(3)], [True, False])
    other = compiled_with(native, 7, [jnp.ones(4)], [False, False])
    del native
    gc.collect()
    double, more = program(jnp.ones(3))
    assert double.tolist() == more.tolist() == [2.0] * 3 and double.weak_type and not more.weak_type
    assert other(jnp.ones(4))[0].tolist() == [2.0] * 4
    with pytest.raises(TypeError):
        program(jnp.ones(4))
    assert gone() is not None and gone().count.value == gone().count.in_jit == 0
    del program, other, double, more
    for _ in range(100):  # XLA may let go of a program on a thread of its own
        gc.collect()
        if gone() is None:
            return
        time.sleep(0.05)
    raise AssertionError("the program is gone, its executable is not")
