"""The standalone context: tensors in and out, checks and their messages, guards, allocation failure."""

from __future__ import annotations

import array
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from cases import ral_programs as programs

from hlo_disc.abi import ALIGNMENT
from hlo_disc.compiled.program import InputRow, OutputRow, PackRow
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError
from hlo_disc.ral import digest, fail_next_allocation, kept_bytes, live_bytes, pack, trim, watch

pytestmark = pytest.mark.usefixtures("no_leak")

DTYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
]


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 31, 32, 33, 257, 5000])
def test_one_program_runs_every_size(size: int) -> None:
    x = np.arange(size, dtype=np.float32)
    (y,) = programs.add_one(scratch=64)(x)
    assert type(y) is np.ndarray and y.dtype == np.float32 and y.flags.owndata is False and y.flags.writeable
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (0, 4), (2, 3, 5)])
def test_every_dtype_passes_unchanged(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    (y,) = programs.copy(dtype, len(shape))(x)
    assert y.dtype == x.dtype and y.shape == shape
    np.testing.assert_array_equal(y, x)


def test_outputs_are_aligned_and_own_their_memory() -> None:
    before = live_bytes()
    (y,) = programs.add_one()(ones(5))
    assert y.ctypes.data % ALIGNMENT == 0
    assert live_bytes() == before + 20
    view = y[1:3]
    del y
    np.testing.assert_array_equal(view, [2, 2])
    del view
    assert live_bytes() == before


def test_arrays_that_are_not_dense_are_copied() -> None:
    exe = programs.copy("float32", 2)
    x = np.arange(60, dtype=np.float32).reshape(6, 10)
    unaligned = np.frombuffer(b"x" + x.tobytes(), np.float32, offset=1).reshape(6, 10)
    read_only = x.copy()
    read_only.flags.writeable = False
    for given in (
        x.T,
        x[::2],
        x[:, 3:5],
        x[::-1],
        x.astype(">f4"),
        unaligned,
        read_only,
        np.broadcast_to(x[0], (4, 10)),
    ):
        np.testing.assert_array_equal(exe(given)[0], given)


class FromDLPack:
    """A tensor of a library that speaks DLPack and nothing else."""

    def __init__(self, data: np.ndarray) -> None:
        self.data, self.dtype = data, f"library.{data.dtype}"

    def __dlpack__(self, **options: Any) -> Any:
        return self.data.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.data.__dlpack_device__()


def test_dlpack() -> None:
    exe = programs.copy("float32", 3)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for given in (x, x.T, x[:, ::-1], x[:, :, 2:], x[:0], x[:, :1]):
        np.testing.assert_array_equal(exe(FromDLPack(given))[0], given)
    with pytest.raises(ArgumentError, match=r"argument 'x' has dtype library.float64, but float32 was compiled"):
        exe(FromDLPack(x.astype(np.float64)))
    read_only = x.copy()
    read_only.flags.writeable = False
    with pytest.raises(ArgumentError, match="argument 'x', a FromDLPack, does not give its memory: .*readonly"):
        exe(FromDLPack(read_only))


def test_buffers_and_numpy_scalars() -> None:
    exe = programs.copy("float64", 1)
    np.testing.assert_array_equal(exe(array.array("d", [1, 2, 3]))[0], [1, 2, 3])
    np.testing.assert_array_equal(exe(memoryview(array.array("d", [1, 2, 3, 4]))[::2])[0], [1, 3])
    np.testing.assert_array_equal(programs.copy("uint8", 1)(b"abc")[0], [97, 98, 99])
    assert programs.copy("float64", 0)(np.float64(2.5))[0] == 2.5
    assert programs.copy("bfloat16", 0)(ml_dtypes.bfloat16(2.5))[0] == 2.5


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", 2.5),
        ("float32", 3),
        ("float32", True),
        ("bfloat16", 2),
        ("int32", -7),
        ("uint8", 255),
        ("bool", True),
        ("int64", 1 << 62),
    ],
)
def test_python_scalars_take_the_compiled_dtype(dtype: str, value: float) -> None:
    (y,) = programs.copy(dtype, 0)(value)
    assert y.dtype == np.dtype(dtype) and y.shape == () and y == value


@pytest.mark.parametrize(
    ("dtype", "value", "message"),
    [
        ("int32", 2.5, "argument 'x' has dtype Python float, but int32 was compiled"),
        ("bool", 1, "argument 'x' has dtype Python int, but bool was compiled"),
        ("uint8", 256, "argument 'x': 256 does not fit uint8"),
        ("uint8", -1, "argument 'x': -1 does not fit uint8"),
    ],
)
def test_python_scalars_that_do_not_fit(dtype: str, value: float, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        programs.copy(dtype, 0)(value)


class ArrayThatRefuses:
    def __array__(self, *args: Any, **kwargs: Any) -> np.ndarray:
        raise TypeError("not today")


def test_wrong_calls_name_the_argument_and_leave_the_executable_working() -> None:
    exe = programs.make(
        programs.Machine(programs.PACKED),
        env=programs.env(1),
        inputs=[InputRow("x", "float32", ("4",)), InputRow("params['w']", "float32", ("b*2",))],
        outputs=[OutputRow("float32", ("4",))],
        packs=[PackRow("input", 1, 16, "pack0")],
        packed_bytes=0,
    )
    x = ones(4)
    with pytest.raises(
        ArgumentError,
        match=r"1 argument given, but 2 arguments are expected; the first missing one is 'params\['w'\]': float32",
    ):
        exe(x)
    with pytest.raises(ArgumentError, match="3 arguments given, but 2 arguments are expected$"):
        exe(x, x, x)
    with pytest.raises(
        ArgumentError, match=r"argument 'params\['w'\]' has dtype float64, but float32 was compiled: float32 \(b\*2,\)"
    ):
        exe(x, x.astype(np.float64))
    with pytest.raises(ArgumentError, match=r"argument 'x' has rank 2, shape \(2, 2\), but rank 1 was compiled"):
        exe(x.reshape(2, 2), x)
    with pytest.raises(ArgumentError, match="argument 'x' has rank 0"):
        exe(1.0, x)
    with pytest.raises(
        ShapeError, match=r"argument 'x' has size 5 in dimension 0, shape \(5,\), but size 4 was compiled"
    ):
        exe(ones(5), x)
    with pytest.raises(ShapeError, match="argument 'x' has size 3 in dimension 0"):
        exe(ones(3), x)
    with pytest.raises(ArgumentError, match="argument 'x' is a str, which is no tensor; float32"):
        exe("four", x)
    with pytest.raises(
        ArgumentError, match="argument 'x' is a ArrayThatRefuses, which is no tensor: not today; float32"
    ):
        exe(ArrayThatRefuses(), x)
    with pytest.raises(TypeError, match="positional"):
        exe(x, w=x)
    np.testing.assert_array_equal(exe(x, x)[0], 3 * x)


def test_a_broken_guard_raises_its_message_with_the_sizes() -> None:
    exe = programs.add_one()
    with pytest.raises(ShapeError, match=r"^size 13 of x must not be 13 \{braces\} \{0\} \{2\} \{4\d+\}$"):
        exe(ones(13))
    with pytest.raises(ShapeError, match="size 13 of x"):
        exe.plan([13])
    np.testing.assert_array_equal(exe(ones(12))[0], 2 * ones(12))


def test_plan() -> None:
    exe = programs.add_one(arena=100, scratch=64, threads=3)
    assert exe.plan([7]) == [100, 64, 7, 7]
    assert exe.workers == 3
    with pytest.raises(ArgumentError, match="2 sizes given, but the inputs have 1 dimension"):
        exe.plan([7, 8])


def test_infer_checks_like_a_call() -> None:
    exe = programs.add_one(arena=100, scratch=64, threads=3)
    inferred = exe.infer([("float32", [7])])
    assert inferred.types == [("float32", [7])]
    assert inferred.temporary >= 100 + 3 * 64
    with pytest.raises(ArgumentError, match="argument 'x' has dtype int32"):
        exe.infer([("int32", [7])])
    with pytest.raises(ArgumentError, match="argument 'x' has rank 2"):
        exe.infer([("float32", [7, 7])])
    with pytest.raises(ArgumentError, match="0 arguments given"):
        exe.infer([])
    with pytest.raises(ShapeError, match="must not be 13"):
        exe.infer([("float32", [13])])


@pytest.mark.parametrize(
    ("n", "what"), [(1, "40 bytes for output 0, float32 \\(10,\\)"), (2, "384 bytes for intermediate values")]
)
def test_a_failed_allocation_frees_what_was_taken(n: int, what: str) -> None:
    exe = programs.add_one(arena=200, scratch=64, threads=2)
    x = ones(10)
    before = live_bytes()
    fail_next_allocation(n)
    with pytest.raises(OutOfMemoryError, match=f"cannot allocate {what}"):
        exe(x)
    assert live_bytes() == before
    np.testing.assert_array_equal(exe(x)[0], x + 1)


def test_sizes_that_no_memory_can_hold() -> None:
    with pytest.raises(MemoryError):
        programs.copy("float32", 1)(np.broadcast_to(np.float32(0), (1 << 45,)))
    with pytest.raises(OutOfMemoryError, match="bytes for intermediate values"):
        programs.add_one(arena=1 << 60)(ones(3))


def test_large_blocks_are_used_again() -> None:
    exe = programs.copy("float32", 1)
    trim()
    x = np.arange(3 << 20, dtype=np.float32)
    (y,) = exe(x)
    np.testing.assert_array_equal(y, x)
    assert y.ctypes.data % ALIGNMENT == 0 and kept_bytes() == 0
    address = y.ctypes.data
    del y
    assert kept_bytes() >= x.nbytes
    (y,) = exe(x[: -(1 << 18)])
    assert y.ctypes.data == address and kept_bytes() == 0
    del y
    (small,) = exe(x[: 1 << 20])  # results do not sit on a block that is much larger
    assert kept_bytes() >= x.nbytes and small.ctypes.data != address
    del small
    trim()
    assert kept_bytes() == 0


def test_temporaries_take_any_block_that_is_large_enough() -> None:
    trim()
    programs.add_one(arena=9 << 20)(ones(3))
    kept = kept_bytes()
    assert kept >= 9 << 20
    programs.add_one(arena=2 << 20)(ones(3))
    assert kept_bytes() == kept
    for size in range(10, 200, 10):
        programs.add_one(arena=size << 20)(ones(3))
        assert kept_bytes() <= 1 << 30
    trim()


def test_constants_are_kept_and_packed_once() -> None:
    machine = programs.Machine(programs.PACKED)
    w = np.arange(4, dtype=np.float32)
    exe = programs.make(
        machine,
        env=programs.env(1),
        inputs=[InputRow("x", "float32", ("4",))],
        outputs=[OutputRow("float32", ("4",))],
        constants=[w],
        packs=[PackRow("constant", 0, 16, "pack0")],
        forms=[pack(machine.address("pack0"), w, 16)],
    )
    before = live_bytes()
    assert exe.packed_bytes() == 16
    np.testing.assert_array_equal(exe(ones(4))[0], w + 1)
    del w
    np.testing.assert_array_equal(exe(ones(4))[0], [1, 2, 3, 4])
    assert live_bytes() == before
    fail_next_allocation(1)
    with pytest.raises(OutOfMemoryError, match="16 bytes for a packed constant"):
        pack(machine.address("pack0"), ones(4), 16)
    assert live_bytes() == before


def test_a_digest_of_many_pieces_sees_each_of_them() -> None:
    data = np.zeros((9 << 20) + 5, np.uint8)
    seen = {digest(data)}
    for place in (0, (1 << 20) - 1, 1 << 20, (8 << 20) + 3, data.size - 1):
        data[place] = 1
        seen.add(digest(data))
        data[place] = 0
    data[: 4 << 20], data[4 << 20 : 8 << 20] = 1, 2
    seen.add(digest(data))
    data[: 4 << 20], data[4 << 20 : 8 << 20] = 2, 1
    seen.add(digest(data))
    assert len(seen) == 8
    assert len({digest(data) for _ in range(20)}) == 1


def test_what_packing_leaves_out_is_zero() -> None:
    machine, size = programs.Machine(programs.PACKED), 1 << 22
    for _ in range(2):  # memory that was in use before holds something else
        packed = pack(machine.address("pack0"), ones(4), size)
        assert packed[16:].max() == 0
        packed[:] = 1
        del packed


def test_a_packed_constant_of_another_size_is_refused() -> None:
    machine = programs.Machine(programs.PACKED)
    with pytest.raises(ValueError, match="a packed constant of 12 bytes, not 16"):
        programs.make(
            machine,
            env=programs.env(1),
            constants=[ones(4)],
            packs=[PackRow("constant", 0, 16, "pack0")],
            forms=[ones(3)],
        )


@pytest.mark.parametrize("size", [0, 1, 7, 8, 63, 64, 65, 640, 1000])
def test_a_digest_sees_every_bit_and_the_length(size: int) -> None:
    data = bytearray(range(256)) * 4
    data = data[:size]
    seen = {digest(data), digest(data + b"\0"), digest(data + bytes(64))}
    for bit in range(8 * size):
        data[bit // 8] ^= 1 << bit % 8
        seen.add(digest(data))
        data[bit // 8] ^= 1 << bit % 8
    assert len(seen) == 3 + 8 * size


def test_a_digest_sees_two_flips_of_the_same_bit() -> None:
    data = bytearray(1024)
    seen = {digest(data)}
    for first in range(7, 1024, 64):
        for second in range(first + 64, 1024, 64):
            data[first], data[second] = 128, 128
            seen.add(digest(data))
            data[first], data[second] = 0, 0
    assert len(seen) == 1 + 16 * 15 // 2


def test_signatures_that_do_not_fit_are_refused() -> None:
    env = programs.env(1, symbols=1)
    with pytest.raises(ValueError, match="an env of 3 words has no room for the sizes of the outputs: 1 from word 3"):
        programs.add_one(env=env._replace(words=3))
    for wrong in (
        env._replace(arena=-1),
        env._replace(scratch=4),
        env._replace(outputs=4),
        env._replace(words=-(2**31)),
    ):
        with pytest.raises(ValueError, match=f"an env of {wrong.words} words has no room for the"):
            programs.add_one(env=wrong)
    with pytest.raises(ValueError, match="no room for the values of a guard's message: 5 from word 0"):
        programs.add_one(guards=[programs.guard("{0}", 5)])
    with pytest.raises(ValueError, match="a pack refers to input 3 of 1"):
        programs.add_one(packs=[PackRow("input", 3, 16, "main")])
    with pytest.raises(TypeError, match="the field number has another type"):
        programs.add_one(packs=[PackRow("input", "3", 16, "main")])  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match="'GuardRow' object has no attribute"):
        programs.add_one(inputs=[programs.guard("x", 1)])
    with pytest.raises(ValueError, match="dtype float128 of x is not supported"):
        programs.add_one(inputs=[InputRow("x", "float128", ("n",))])


def test_a_watch_on_settings() -> None:
    values: list[Any] = [1, "a", 10**6]
    holder = SimpleNamespace(hook=None)
    unchanged = watch(lambda: tuple(values), tuple(values), holder, "hook", None)
    assert unchanged() is True
    values[0] = 2
    assert unchanged() is False
    values[0] = 1
    assert unchanged() is True
    holder.hook = print
    assert unchanged() is False
    holder.hook = None
    values.append(None)
    assert unchanged() is False
    assert watch(lambda: (), (), holder, "hook", None)() is True
    assert watch(lambda: [], (), holder, "hook", None)() is False  # type: ignore[arg-type,return-value]
    with pytest.raises(ZeroDivisionError):
        watch(lambda: (1 // 0,), (), holder, "hook", None)()
    with pytest.raises(AttributeError):
        watch(lambda: (), (), holder, "other", None)()


def test_calls_are_counted() -> None:
    exe = programs.add_one()
    count = exe.count
    exe(np.ones(3, np.float32))
    with pytest.raises(ArgumentError):
        exe(np.ones(3, np.int32))
    assert count.value == 1
    del exe
    assert count.value == 1
