"""Objects that are joined to one: what they have for each other, and what is their own."""

from __future__ import annotations

import ctypes

import pytest
from hand_written import kernel_runner as kernels

from hlo_disc import ral
from hlo_disc.errors import CompileError
from hlo_disc.targets.cpu import x86
from hlo_disc.targets.cpu.objects import joined

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


def call(code: ral.Code, name: str, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32)(code.address(name))(x)


def test_functions_find_those_of_other_objects_and_their_own():
    parts = objects((1, 2, "get2", "1"), (30, 40, "get3", "2"), (500, 600, "get1", "3"))
    code = ral.Code(joined(parts), {})
    assert [[call(code, f"sum{k}", x) for x in (0, 1)] for k in (1, 2, 3)] == [[61, 82], [1030, 1240], [502, 604]]
    names = list(code.functions())
    assert {"own", "get1", "get2", "get3", "direct1", "direct3"} <= set(names)


def test_one_object_is_itself():
    (part,) = objects((1, 2, "get1x", "1"))
    assert joined([part]) is part


def test_joined_objects_can_be_joined():
    first, second, third = objects((1, 2, "get2", "1"), (30, 40, "get3", "2"), (500, 600, "get1", "3"))
    code = ral.Code(joined([joined([first, second]), third]), {})
    assert [call(code, f"sum{k}", 0) for k in (1, 2, 3)] == [61, 1030, 502]


def test_a_function_that_two_objects_have_is_an_error():
    with pytest.raises(CompileError, match="two modules define @get1"):
        joined(objects((1, 2, "get2", "1"), (30, 40, "get3", "1")))


def test_what_no_object_has_is_named():
    with pytest.raises(ValueError, match="calls @get3"):
        ral.Code(joined(objects((1, 2, "get2", "1"), (30, 40, "get3", "2"))), {})
