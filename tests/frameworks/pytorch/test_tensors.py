"""PyTorch's tensors as arguments and results of executables."""

from __future__ import annotations

import gc
import itertools
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import child
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import hlo_disc
from hlo_disc import ral
from hlo_disc.errors import ArgumentError, OutOfMemoryError, ShapeError

pytestmark = pytest.mark.usefixtures("no_leak")

DTYPES = {
    "bool": torch.bool,
    **{f"int{bits}": getattr(torch, f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": getattr(torch, f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{name: getattr(torch, name) for name in ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")},
    **{f"float8_{name}": getattr(torch, f"float8_{name}") for name in ("e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz")},
    "float8_e8m0fnu": torch.float8_e8m0fnu,
}
BYTES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def compiled(function: Callable, *specs: str, **options) -> hlo_disc.Executable:
    with jax.enable_x64(True):
        return hlo_disc.compile(function, *specs, **options)


@pytest.fixture(scope="module")
def double() -> hlo_disc.Executable:
    return compiled(lambda x: x * 2, "f32[n]")


@pytest.fixture(scope="module")
def same() -> hlo_disc.Executable:
    """Return a program of three axes whose result has its argument's values in other memory."""
    return compiled(lambda x: x + 0, "f32[a, b, c]")


@pytest.fixture(scope="module")
def add() -> hlo_disc.Executable:
    return compiled(lambda x, y: x + y, "f32[n]", "f32[n]")


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    bits = torch.randint(0, 256, (*shape, dtype.itemsize), dtype=torch.uint8)
    if dtype in (torch.bool, torch.float32):
        return torch.randn(shape) > 0 if dtype == torch.bool else torch.randn(shape)
    return bits.view(dtype).reshape(shape)


def assert_same_bits(got: torch.Tensor, expected: torch.Tensor) -> None:
    assert type(got) is torch.Tensor and got.dtype == expected.dtype and got.shape == expected.shape
    assert got.is_contiguous() and got.data_ptr() % 64 == 0
    assert got.contiguous().view(-1).view(torch.uint8).equal(expected.contiguous().view(-1).view(torch.uint8))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name: str) -> None:
    """Every dtype goes in and comes out bit for bit, also from tensors that are not contiguous."""
    turned = compiled(lambda x: x.T, f"{name}[n, m]")
    for n, m in ((3, 5), (1, 1), (0, 4), (40, 33)):
        x = random(n, m, dtype=DTYPES[name])
        assert_same_bits(turned(x), x.T)
        assert_same_bits(turned(x.T), x)
        assert_same_bits(turned(random(n, 2 * m, dtype=DTYPES[name])[:, 1::2].copy_(x)), x.T)


def test_dtypes_that_torch_lacks_stay_numpys() -> None:
    narrowed = compiled(lambda x: (x.astype(jnp.int4), x + 1), "i8[n]")
    narrow, wide = narrowed(torch.arange(3, dtype=torch.int8))
    assert type(narrow) is np.ndarray and narrow.dtype == jnp.int4 and narrow.tolist() == [0, 1, 2]
    assert_same_bits(wide, torch.tensor([1, 2, 3], dtype=torch.int8))


def test_strides_of_all_kinds(same: hlo_disc.Executable) -> None:
    x = random(6, 7, 10)
    views = [x[::2], x[:, ::3], x[..., ::2], x[1:, 2:, 3:], x[..., :1], x[:1], x[:, 3:4, ::5], x[2:2], x[..., 5:5]]
    views += [x.permute(*order) for order in itertools.permutations(range(3))]
    views += [x.permute(2, 0, 1)[::3, ::2], x.transpose(0, 2)[..., 1:], x[:, :1].expand(6, 9, 10)]
    views += [x[:1, :1, :1].expand(3, 4, 5), x[:1, :1].expand(3, 4, 10), x[..., :1].expand(6, 7, 4)]
    views += [x.as_strided((3, 4, 5), (1, 2, 3)), x.as_strided((3, 4, 5), (0, 1, 1), 7), torch.ones(()).expand(2, 1, 3)]
    views += [random(4, 32, 64).transpose(1, 2), random(65, 1, 47).transpose(0, 2), random(1, 1, 1), random(0, 3, 0)]
    for view in views:
        assert_same_bits(same(view), view.clone(memory_format=torch.contiguous_format))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.float32, torch.float64, torch.complex128])
def test_strided_copies_of_items_of_all_sizes(dtype: torch.dtype) -> None:
    flat = compiled(lambda x: x[::-1], f"{str(dtype).removeprefix('torch.')}[a, b, c, d]")
    x = random(3, 4, 5, 6, dtype=dtype)
    for order in itertools.permutations(range(4)):
        for view in (x.permute(*order), x.permute(*order)[:, 1:, ::2, :-1]):
            assert_same_bits(flat(view), view.flip(0))


def test_memory_that_is_less_aligned_than_its_elements(double: hlo_disc.Executable) -> None:
    x = torch.frombuffer(bytearray(b"\0" + np.arange(5, dtype=np.float32).tobytes()), dtype=torch.float32, offset=1)
    assert x.data_ptr() % 4
    assert double(x).tolist() == [0, 2, 4, 6, 8]


def test_no_axes_and_no_elements() -> None:
    square = compiled(lambda x, y: (x * x, y.sum(), y), "f32[]", "f32[n]")
    for x in (torch.tensor(3.0), torch.arange(9.0)[3]):
        result, total, empty = square(x, torch.empty(0))
        assert result.shape == () and result.item() == 9 and total.item() == 0
        assert empty.shape == (0,)


def test_results_whose_size_depends_on_data() -> None:
    counted = hlo_disc.compile("""
func.func @main(%n: tensor<i32>) -> tensor<?xi32> {
  %v = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  %i = stablehlo.dynamic_iota %v, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %i : tensor<?xi32>
}""")
    for n in (0, 1, 5, 10_000):
        assert_same_bits(counted(torch.tensor(n, dtype=torch.int32)), torch.arange(n, dtype=torch.int32))


def test_arguments_are_taken_by_pointer_and_results_are_new_memory() -> None:
    """A program that gives an argument back twice copies it for each result."""
    through = compiled(lambda x, y: (x, x, y + 1), "f32[n]", "f32[n]")
    x = torch.arange(1000.0)
    first, second, third = through(x, x)
    pointers = {t.untyped_storage().data_ptr() for t in (x, first, second, third)}
    assert len(pointers) == 4
    x.zero_()
    first[0] = 7
    assert first[1] == second[1] == 1 and second[0] == 0 and third[2] == 3


def test_the_same_memory_twice(add: hlo_disc.Executable) -> None:
    x = torch.arange(10.0)
    assert add(x, x).equal(x + x)
    assert add(x[:-1], x[1:]).equal(x[:-1] + x[1:])
    assert add(x[::2], x[5:]).equal(x[::2] + x[5:])
    assert add(x[:5], x.view(2, 5)[1]).equal(x[:5] + x[5:])


def test_the_first_framework_decides_what_comes_out(add: hlo_disc.Executable) -> None:
    x, y = torch.arange(3.0), np.ones(3, np.float32)
    assert type(add(x, y)) is type(add(y, x)) is torch.Tensor
    assert add(x, y).tolist() == add(y, x).tolist() == [1, 2, 3]
    assert isinstance(add(jnp.ones(3), x), jax.Array)
    assert type(add(x, jnp.ones(3))) is torch.Tensor
    assert type(add(y, y)) is np.ndarray


def test_nests_of_tensors() -> None:
    both = compiled(lambda p: {"sum": p["a"] + p["b"], "a": [p["a"]]}, {"a": "f32[n]", "b": "f32[n]"})
    made = both({"a": torch.ones(2), "b": torch.arange(2.0)})
    assert made["sum"].tolist() == [1, 2] and made["a"][0].tolist() == [1, 1]


def test_what_does_not_fit_is_refused(add: hlo_disc.Executable) -> None:
    x = torch.ones(3)
    with pytest.raises(ShapeError, match="'y'"):
        add(x, torch.ones(4))
    with pytest.raises(ArgumentError, match="'y' has rank 2"):
        add(x, torch.ones(3, 1))
    for other in (x.double(), x.int(), x.to(torch.complex32), torch.zeros(3, dtype=torch.float4_e2m1fn_x2)):
        with pytest.raises(ArgumentError, match=f"'x' has dtype {other.dtype}, but float32"):
            add(other, x)
    with pytest.raises(ArgumentError, match="1 argument given"):
        add(x)


def test_tensors_that_are_not_what_their_memory_is(double: hlo_disc.Executable) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Special(torch.Tensor):
        pass

    with FakeTensorMode():
        fake = torch.ones(3)
    x = torch.ones(3)
    wrappers = [fake, x.as_subclass(Special), torch.nn.UninitializedParameter()]
    for tensor in wrappers:
        with pytest.raises(ArgumentError, match=rf"{type(tensor).__name__}: .*plain torch.Tensors"):
            double(tensor)
    emptied = torch.ones(3)
    emptied.untyped_storage().resize_(0)
    others = [x.to("meta"), x.to_sparse(), x.to_mkldnn(), torch._to_functional_tensor(x), emptied]
    others += [torch.quantize_per_tensor(x, 1.0, 0, torch.quint8), torch._efficientzerotensor(3)]
    for tensor in others:
        with pytest.raises(ArgumentError, match="'x', a Tensor, (does not give its|has no) memory"):
            double(tensor)
    for transform in (torch.func.vmap(double), lambda x: torch.func.jvp(double, (x,), (x,))):
        with pytest.raises(ArgumentError, match="does not give its memory"):
            transform(torch.ones(2, 3))
    assert double(torch.nn.Buffer(x)).tolist() == [2, 2, 2]


def test_gradients_are_refused_where_operations_are_recorded(double: hlo_disc.Executable) -> None:
    x, weight = torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))
    for tensor in (x, weight, x * 2):
        with pytest.raises(ArgumentError, match=r"'x' requires gradients.*no_grad"):
            double(tensor)
        with torch.no_grad():
            assert double(tensor).equal(tensor * 2) and not double(tensor).requires_grad
        assert not double(tensor.detach()).requires_grad
    with pytest.raises(ArgumentError, match="requires gradients"):
        torch.func.grad(lambda x: double(x).sum())(torch.ones(3))
    with torch.inference_mode():
        result = double(torch.ones(3))
        assert double(result).tolist() == [4, 4, 4] and double(weight).tolist() == [2, 2, 2]
    assert double(result).tolist() == [4, 4, 4]


def test_results_are_leaves_like_others(double: hlo_disc.Executable) -> None:
    result = double(torch.ones(3)).requires_grad_()
    (result * result).sum().backward()
    assert result.grad.tolist() == [4, 4, 4]
    assert double(torch.ones(3)).add_(1).tolist() == [3, 3, 3]


def test_lazy_bits(double: hlo_disc.Executable) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j], dtype=torch.complex64)
    turned = compiled(lambda x: x[::-1], "c64[n]")
    assert x.conj().is_conj() and x.conj().imag.is_neg()
    assert turned(x.conj()).tolist() == [3 + 4j, 1 - 2j]
    assert double(x.conj().imag).tolist() == [-4, 8]
    assert double(x.conj().imag[:1]).tolist() == [-4]
    assert turned(torch._neg_view(x.conj())).tolist() == [-3 - 4j, -1 + 2j]
    assert double(torch.nn.Parameter(x.conj().imag, requires_grad=False)).tolist() == [-4, 8]


def test_a_weight_that_changes_is_seen() -> None:
    product = compiled(lambda x, w: x @ w, "f32[m, 64]", "f32[64, 64]")
    x, weight = torch.ones(1, 64), torch.nn.Parameter(torch.eye(64), requires_grad=False)
    for _ in range(4):
        weight.add_(1)
        assert torch.allclose(product(x, weight), x @ weight)
    weight.data = torch.zeros(64, 64)
    assert not product(x, weight).any()


def test_threads(double: hlo_disc.Executable) -> None:
    def calls(seed: int) -> int:
        draw = np.random.default_rng(seed)
        for i in range(2000):
            size = int(draw.integers(0, 300))
            x = torch.full((2 * size,), float(i))[:: 1 + i % 2][:size]
            y = double(x)
            assert y.shape == (size,) and bool((y == 2 * i).all())
        return 2000

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(calls, range(8))) == 16_000


def test_arguments_that_another_thread_gives_up(double: hlo_disc.Executable) -> None:
    tensors, done = [torch.ones(50_000)], threading.Event()

    def replace() -> None:
        while not done.is_set():
            tensors[0] = torch.ones(50_000)

    other = threading.Thread(target=replace)
    other.start()
    try:
        for _ in range(300):
            assert double(tensors[0])[-1] == 2
    finally:
        done.set()
        other.join()


def test_calls_use_no_more_threads_than_torch() -> None:
    """Calls run in a process of their own, where nothing else has started threads."""
    code = """
import torch, hlo_disc
from hlo_disc import ral
torch.set_num_threads(THREADS)
executable = hlo_disc.compile(lambda x: x * 2, "f32[n]"OPTIONS)
assert executable(torch.ones(4_000_000))[-1] == 2
print(ral.pool_threads())
"""
    for threads, options, expected in ((1, "", 0), (2, "", min(2, ral.usable_cores()) - 1), (1, ", threads=2", 1)):
        text = code.replace("THREADS", str(threads)).replace("OPTIONS", options)
        assert int(child.python("-c", text, timeout=180)) == expected


def test_no_memory(double: hlo_disc.Executable) -> None:
    outer = compiled(lambda x, y: x[:, None] + y, "f32[n]", "f32[m]")
    x = torch.ones(1 << 23)  # 2^48 bytes, more than a process can address
    with pytest.raises(OutOfMemoryError, match="cannot allocate 281474976710656 bytes for output 0"):
        outer(x, x)
    ral.fail_next_allocation()
    with pytest.raises(OutOfMemoryError):
        double(torch.ones(3))
    ral.fail_next_allocation()
    with pytest.raises(OutOfMemoryError, match="a contiguous copy of argument 'x'"):
        double(torch.ones(6)[::2])
    assert double(torch.ones(6)[::2]).tolist() == [2, 2, 2]
    assert outer(x[:2], x[:1]).tolist() == [[2], [2]]


def test_results_outlive_the_executable() -> None:
    executable = compiled(lambda x: x * 3, "f32[n]")
    result = executable(torch.arange(300_000.0))
    part = result[299_990:]
    gone = weakref.ref(executable.native)
    del executable, result
    gc.collect()
    assert gone() is None
    assert part.tolist() == [3.0 * k for k in range(299_990, 300_000)]


def test_nothing_is_kept(double: hlo_disc.Executable, same: hlo_disc.Executable) -> None:
    x = torch.ones(3)
    double(x)
    before, count = ral.live_bytes(), sys.getrefcount(x)
    for _ in range(100):
        result = double(x)
        same(torch.ones(2, 3, 4).permute(2, 0, 1))
        with pytest.raises(ArgumentError):
            double(x.double())
    assert ral.live_bytes() == before + 12 and sys.getrefcount(x) == count
    reference = weakref.ref(result)
    del result
    assert reference() is None and ral.live_bytes() == before
