"""Objects that are joined to one: what they have for each other, and what is their own."""

from __future__ import annotations

import ctypes

import pytest
from hand_written import kernel_runner as kernels

from hlo_disc import ral
from hlo_disc.errors import CompileError
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.cpu.objects import Part, joined, picked

# Each has memory and a function of its own, under the same names.
MODULE = """
@table = internal constant [2 x i32] [i32 {0}, i32 {1}]
declare hidden i32 @{2}(i32)
define internal i32 @own(i32 %x) noinline {{
  %p = getelementptr [2 x i32], ptr @table, i32 0, i32 %x
  %y = load i32, ptr %p
  ret i32 %y
}}
define hidden i32 @get{3}(i32 %x) {{
  %y = call i32 @own(i32 %x)
  ret i32 %y
}}
define i32 @sum{3}(i32 %x) {{
  %y = call i32 @own(i32 %x)
  %z = call i32 @{2}(i32 %x)
  %f = ptrtoint ptr @{2} to i64
  %v = call i32 @direct{3}(i64 %f, i32 %x)
  %s = add i32 %y, %z
  %t = add i32 %s, %v
  ret i32 %t
}}
define internal i32 @direct{3}(i64 %f, i32 %x) noinline {{
  %p = inttoptr i64 %f to ptr
  %y = call i32 %p(i32 %x)
  ret i32 %y
}}
"""


def objects(*rows) -> list[bytes]:
    generator = x86.generator(kernels.levels()[0])
    return [generator.compile_llvm(MODULE.format(*row)) for row in rows]


def of(*parts: bytes) -> bytes:
    return joined(list(map(Part, parts)))


def call(code: ral.Code, name: str, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(code.address(name))(x)


def test_functions_find_those_of_other_objects_and_their_own():
    parts = objects((1, 2, "get2", "1"), (30, 40, "get3", "2"), (500, 600, "get1", "3"))
    code = ral.Code(of(*parts), {})
    assert [[call(code, f"sum{k}", x) for x in (0, 1)] for k in (1, 2, 3)] == [[61, 82], [1030, 1240], [502, 604]]
    names = list(code.functions())
    assert {"own", "get1", "get2", "get3", "direct1", "direct3"} <= set(names)


def test_symbols_that_an_object_defines_are_renamed():
    """Others are those of other objects, and keep their names."""
    first, second = objects((1, 2, "get2", "1"), (30, 40, "get1", "2"))
    code = ral.Code(
        joined([Part(first, {"sum": "total", "get2": "other"}), Part(second, {"su": "SU", "own": "mine"})]), {}
    )
    assert [call(code, name, 0) for name in ("total1", "SUm2")] == [61, 32]
    assert {"own", "mine", "get1", "get2"} <= set(code.functions())


# Two sections that call each other; of one the function is hidden, and of both there are constants.
SECTIONS = """
declare float @llvm.fma.f32(float, float, float)
define internal float @inner(float %x) noinline section ".text.inner" {
  %y = fmul float %x, 3.0
  ret float %y
}
define hidden float @first(float %x) noinline section ".text.first" {
  %y = call float @inner(float %x)
  %z = fadd float %y, 0.625
  ret float %z
}
define float @second(float %x) section ".text.second" {
  %y = call float @first(float %x)
  %z = call float @inner(float %y)
  %w = fsub float %z, 7.25
  ret float %w
}
define float @third(float %x) {
  %y = call float @second(float %x)
  ret float %y
}
"""


def test_sections_are_objects_of_their_own():
    whole = x86.generator(kernels.levels()[0]).compile_llvm(SECTIONS)
    parts = picked(whole, [".text.first", ".text.second"])
    assert list(parts) == [".text.first", ".text.second"]
    code = ral.Code(of(*parts.values()), {})
    second = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.address("second"))
    assert second(2.0) == (2 * 3 + 0.625) * 3 - 7.25
    assert not code.address("third")
    assert sorted(code.functions()).count("inner") <= 2
    with pytest.raises(ValueError, match="first"):
        ral.Code(parts[".text.second"], {})
    smaller = picked(parts[".text.first"], [".text.first"])[".text.first"]
    assert len(smaller) == len(parts[".text.first"]) < len(whole)


def test_joined_objects_can_be_joined():
    first, second, third = objects((1, 2, "get2", "1"), (30, 40, "get3", "2"), (500, 600, "get1", "3"))
    code = ral.Code(of(of(first, second), third), {})
    assert [call(code, f"sum{k}", 0) for k in (1, 2, 3)] == [61, 1030, 502]


def test_a_function_that_two_objects_have_is_an_error():
    with pytest.raises(CompileError, match="two modules define @get1"):
        of(*objects((1, 2, "get2", "1"), (30, 40, "get3", "1")))


def test_what_no_object_has_is_named():
    with pytest.raises(ValueError, match="calls @get3"):
        ral.Code(of(*objects((1, 2, "get2", "1"), (30, 40, "get3", "2"))), {})
