"""Functions whose Python, or JAX's own, asks about sizes: right at every size, with as many programs as they demand.

The number beside a function is how many programs may be compiled for it over `SIZES`: its really different ones, and
the one of the first call, which knows no dims yet. `EACH`: it needs a size as a number.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import depth
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from comparison.by_xla import at_each
from jax import export, lax
from jax._src import core

import hlo_disc
from hlo_disc.errors import ShapeError

SIZES = (0, 1, 2, 7, 31, 32, 257)
EACH = len(SIZES)
KEY = jax.random.key(0)


@dataclass(frozen=True)
class Size:
    n: int


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    # Python's questions
    "equal": (3, lambda x: x * 2 if x.shape[0] == 1 else x * 3),
    "equal from the right": (3, lambda x: x * 2 if 7 == x.shape[0] else x * 3),  # noqa: SIM300
    "unequal": (3, lambda x: x * 2 if x.shape[0] != 7 else x * 3),
    "equal to a sum": (3, lambda x: x * 2 if 2 * x.shape[0] + 1 == 15 else x * 3),
    "in a tuple": (4, lambda x: x * 2 if x.shape[0] in (1, 2) else x * 3),
    "in a list": (3, lambda x: x * 2 if x.shape[0] in [7] else x * 3),
    "in a set": (EACH, lambda x: x * 2 if x.shape[0] in {1, 2} else x * 3),
    "in a range": (EACH, lambda x: x * 2 if x.shape[0] in range(3, 40) else x * 3),
    "in a dataclass as a key": (EACH, lambda x: x * {Size(1): 10.0, Size(2): 20.0}.get(Size(x.shape[0]), 1.0)),
    "in a dictionary": (EACH, lambda x: x * {1: 10.0, 2: 20.0}.get(x.shape[0], 1.0)),
    "index of a list": (EACH, lambda x: x * [3, 1, 2, *range(300)].index(x.shape[0])),
    "a shape": (3, lambda x: x * 2 if x.shape == (7,) else x * 3),
    "a shape in a list": (3, lambda x: x * 2 if x.shape in [(7,), (3, 3)] else x * 3),
    "elements": (3, lambda x: x * 2 if x.size == 7 else x * 3),
    "less": (3, lambda x: x * 2 if x.shape[0] < 8 else x * 3),
    "at most": (3, lambda x: x * 2 if x.shape[0] <= 7 else x * 3),
    "more": (3, lambda x: x * 2 if x.shape[0] > 31 else x * 3),
    "between": (4, lambda x: x * 2 if 2 <= x.shape[0] < 100 else x * 3),
    "several": (4, lambda x: x * 2 if x.shape[0] > 31 else x * 3 if x.shape[0] == 2 else x),
    "remainder": (3, lambda x: x.reshape(-1, 8).sum(0) if x.shape[0] % 8 == 0 else x),
    "quotient": (4, lambda x: x * 2 if x.shape[0] // 16 == 2 else x * 3),
    "divmod": (4, lambda x: x * sum(divmod(x.shape[0], 8))),
    "padding": (2, lambda x: jnp.pad(x, (0, -x.shape[0] % 8))),
    "truth": (3, lambda x: x.sum() if x.shape[0] else jnp.zeros(3)),
    "not": (3, lambda x: jnp.zeros(3) if not x.shape[0] else x * 2),
    "and": (EACH, lambda x: x * (x.shape[0] & 3)),
    "xor from the right": (EACH, lambda x: x * (5 ^ x.shape[0])),
    "shift": (EACH, lambda x: x * (x.shape[0] >> 1)),
    "invert": (EACH, lambda x: x * ~x.shape[0]),
    "square": (2, lambda x: x * x.shape[0] ** 2),
    "power of two": (EACH, lambda x: x * 1.01 ** x.shape[0]),
    "true division": (2, lambda x: x * (x.shape[0] / 4)),
    "int": (EACH, lambda x: x * int(x.shape[0])),
    "float": (EACH, lambda x: x * float(x.shape[0])),
    "complex": (EACH, lambda x: x * complex(x.shape[0])),
    "round": (EACH, lambda x: x * round(x.shape[0])),
    "range": (EACH, lambda x: sum([x[i] for i in range(x.shape[0])], jnp.float32(0)) if x.shape[0] < 40 else x.sum()),
    "range of few": (6, lambda x: sum([x[i] for i in range(min(x.shape[0], 3))], jnp.float32(0))),
    "len": (2, lambda x: x * len(x)),
    "len of an unknown number": (EACH, lambda x: x * [*range(300)][len(x)]),
    "len compared": (4, lambda x: x * 2 if len(x) == 7 else x * 3 if len(x) > 31 else x),
    "smallest len": (2, lambda x: x * min([len(x), 8]) + min([], default=3)),
    "rows": (EACH, lambda x: sum([row for row in x[:40]], jnp.float32(0))),
    "isinstance": (2, lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3),
    "square root": (EACH, lambda x: x * math.sqrt(x.shape[0])),
    "logarithm": (EACH, lambda x: x * math.ceil(math.log2(x.shape[0] + 1))),
    "bit_length": (EACH, lambda x: x * x.shape[0].bit_length()),
    "numpy's square root": (EACH, lambda x: x * np.float32(np.sqrt(x.shape[0]))),
    "numpy's product": (EACH, lambda x: x.reshape(int(np.prod(x.shape)))),
    "numpy's arange": (EACH, lambda x: x + np.arange(x.shape[0], dtype=np.float32)),
    "numpy's zeros": (EACH, lambda x: x + np.zeros(x.shape, np.float32)),
    "numpy's comparison": (EACH, lambda x: x * 2 if np.any(np.array(x.shape) == 7) else x * 3),
    "maximum": (3, lambda x: x.sum() / max(x.shape[0], 1)),
    "minimum": (3, lambda x: x * min(x.shape[0], 8)),
    "JAX's maximum": (3, lambda x: x * (x.shape[0] + 5 if core.max_dim(x.shape[0], 1) == 1 else 3)),
    "sorted": (3, lambda x: x * sorted([x.shape[0], 8])[0]),
    "text": (EACH, lambda x: x * len(str(x.shape[0]))),
    "formatted": (EACH, lambda x: x * len(f"{x.shape[0]:04d}{x.shape}")),
    "match": (4, lambda x: matched(x)),
    "assertion": (2, lambda x: asserted(x)),
    "caught": (4, lambda x: caught(x)),
    # JAX's
    "softmax": (2, jax.nn.softmax),
    "sum and mean": (2, lambda x: (x.sum(), x.mean())),
    "packbits": (7, lambda x: jnp.packbits(x > 3)),
    "linspace": (4, lambda x: x * jnp.linspace(0, 1, x.shape[0])),
    "nonzero": (3, lambda x: jnp.nonzero(x > 3, size=5)),  # an op of JAX's own since 0.12: one more at n == 0
    "sum of polynomials": (2, lambda x: jnp.polyadd(x, jnp.ones(1)) if x.shape[0] else x),
    "rows times a vector": (2, lambda x: jnp.matvec(x[:, None] * x, x)),
    "elements of rows": (2, lambda x: jnp.take_along_axis(x[:, None] * x, jnp.zeros((1, 3), int), 1) if x.size else x),
    "top_k": (2, lambda x: lax.top_k(x, x.shape[0] // 2)),
    "argmax": (3, lambda x: x.argmax() if x.shape[0] else x),
    "slices": (2, lambda x: x[1:] - x[:-1]),
    "differences": (2, jnp.diff),
    "checked to be an int": (2, lambda x: jnp.diag_indices(x.shape[0])),
    "static argument": (2, lambda x: masked(x.shape[0]) @ x),
    "static keyword of an attribute": (2, lambda x: MASKS.masked(size=x.shape[0]) @ x),
    "static argument and a key": (EACH, lambda x: masked(x.shape[0]) @ x * {1: 10.0}.get(x.shape[0], 1.0)),
    "rows by themselves": (2, lambda x: jax.vmap(jnp.vectorize(jnp.sum, signature="(k)->()"))(x[:, None, None])),
    "linear system": (2, lambda x: jnp.linalg.solve(jnp.diag(x * x + 1), x)),
    "derivative of a polynomial": (2, jnp.polyder),
    "diagonal of rows": (2, lambda x: jnp.diagonal(x[:, None] * jnp.ones(3), 1)),
    "rows or columns in QR": (2, lambda x: jnp.linalg.qr(jnp.sin(x[:, None] * jnp.arange(1.0, 4.0)), "complete")),
    "pivots in QR": (2, lambda x: lax.linalg.qr(jnp.sin(x * jnp.arange(1.0, 4.0)[:, None]), pivoting=True)),
    "real numbers of a spectrum": (2, lambda x: jnp.fft.irfft(x + 1j * x)),
    "squeeze": (3, lambda x: jnp.squeeze(x[None, :, None])),
    "split": (2, lambda x: jnp.split(x, [x.shape[0] // 2])),
    "partly sorted": (3, lambda x: jnp.partition(x, min(x.shape[0] - 1, 2)) if x.size else x),
    "roll": (2, lambda x: jnp.roll(x, 1)),
    "tile": (2, lambda x: jnp.tile(x, 2)),
    "median": (4, lambda x: jnp.median(x) if x.shape[0] else x),
    "variance": (2, lambda x: x.var()),
    "sort": (2, jnp.sort),
    "reshape": (4, lambda x: x.reshape(-1, 1) @ jnp.ones((1, 3))),
    "broadcast": (2, lambda x: x[:, None] + x[None]),
    "vmap": (2, jax.vmap(jnp.sin)),
    "scan": (2, lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.float32(0), x)),
    "scan of a given length": (2, lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x, length=x.shape[0])),
    "scan of nothing": (3, lambda x: lax.scan(lambda c, _: (c + 1, c), 0, length=x.shape[0])),
    "scan of three steps a turn": (2, lambda x: lax.scan(lambda c, v: (c * 0.5 + v, c), jnp.float32(0), x, unroll=3)),
    "solve": (2, lambda x: jnp.linalg.solve(jnp.exp(-abs(x[:, None] - x - 0.5)), x)),
    "mean over a named axis": (2, jax.vmap(lambda x: x - lax.pmean(x, "i"), axis_name="i")),
    "largest over a named axis": (3, jax.vmap(lambda x: x - lax.pmax(x, "i"), axis_name="i")),
    "a table's first rows": (3, lambda x: x + jnp.arange(300.0)[: x.shape[0]]),
    "size of a named axis": (2, jax.vmap(lambda x: x * lax.axis_size("i") + lax.psum(1.5, "i"), axis_name="i")),
    "associative scan": (EACH, lambda x: lax.associative_scan(jnp.add, x)),
    "nearly equal parts": (2, lambda x: jnp.array_split(x, 3)),
    "rows by places from the end": (3, lambda x: lax.index_take(x, (jnp.array([0, -1]),), (0,)) if x.size else x),
    "repeated where one is": (2, lambda x: jnp.where(x > 0, x, x[:, None]) + jnp.ones(1)),
    "permutation": (2, lambda x: jax.random.permutation(KEY, x)),
    "places in a sorted array": (2, lambda x: jnp.searchsorted(jnp.sort(x), x)),
    "places counted": (2, lambda x: jnp.searchsorted(jnp.sort(x), x, method="compare_all")),
    "first half, rounded up": (2, lambda x: x[: math.ceil(x.shape[0] / 2)]),
    "first half": (2, lambda x: x[: math.floor(x.shape[0] / 2)]),
    "choices of elements": (2, jnp.vectorize(lambda v: lax.cond(v > 3, jnp.sin, jnp.cos, v))),
    "random numbers in an interval": (2, lambda x: lax.rng_uniform(jnp.float32(0), jnp.float32(1), x.shape) < 2),
    "a tolerance": (3, lambda x: jnp.polyfit(jnp.arange(x.shape[0]) + x / 9, x, 1) if x.size else x),
    "numpy's maximum, in JAX": (3, lambda x: jnp.linalg.matrix_rank(x[:, None] * x) if x.size else x),
    "length of a transform": (2, lambda x: abs(jnp.fft.fft(x / 100, 2 * x.shape[0])) if x.size else x),
    "rounds of a vector": (2, lambda x: jnp.place(x, x > 3, jnp.ones(2), inplace=False)),
    "rows of a factor": (2, lambda x: lax.linalg.cholesky_update(jnp.diag(abs(x) + 2), x)),
    "index arrays": (2, lambda x: jnp.ix_(x.astype(int), jnp.arange(3))),
    "diagonal below": (2, lambda x: jnp.diag(x[:, None] * jnp.ones(3), -1)),
}


@partial(jax.jit, static_argnums=0)
def masked(n):
    return jnp.tril(jnp.ones((n, n)))


class Masks:
    @partial(jax.jit, static_argnames=("self", "size"))
    def masked(self, size):
        return jnp.tril(jnp.ones((size, size)))


MASKS = Masks()


def matched(x):
    match x.shape[0]:
        case 1:
            return x * 10
        case 2:
            return x * 20
        case _:
            return x


def asserted(x):
    assert x.shape[0] <= 300
    return x * 2


def caught(x):
    """Catch errors while sizes are asked about: tracing that starts again must not end in this handler."""
    try:
        found = x.shape[0] == 7
        rest = x.shape[0] == 2
    except Exception:
        return x * 100
    return x * 2 if found else x * 3 if rest else x


def argument(n: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(n).integers(-4, 9, n), jnp.float32)


def same(got: Any, want: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
        assert (ours.dtype, ours.shape, ours.weak_type) == (theirs.dtype, theirs.shape, theirs.weak_type)
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_right_at_every_size(name: str) -> None:
    given = len(name) % 2 == 0  # dims, to some
    programs, fn = FUNCTIONS[name]
    ours = hlo_disc.jit(lambda x: fn(x), dims={"x": "(n)"} if given else None)
    calls = random.Random(name).sample([*SIZES, *SIZES], 2 * len(SIZES))
    some = {calls[0], *SIZES[:3], *depth.some(SIZES[3:], len(name), 2)}
    calls = [n for n in calls if n in some]
    if name == "rows of a factor" and not depth.full:  # XLA compiles each row's steps: 25 s for all of them
        calls = [n for n in calls if n < 100]
    sizes = [*dict.fromkeys(calls)]
    wanted = dict(zip(sizes, at_each(fn, [[argument(n)] for n in sizes]), strict=True))
    for n in calls:
        same(ours(argument(n)), wanted[n])
    stats = ours.stats()
    assert not stats.fallbacks
    assert stats.compilations <= (len(sizes) if programs == EACH else programs), stats


def doubled_if_one(x):
    return x * 2 if x.shape[0] == 1 else x * 3


def test_stats_and_explain_say_who_asked() -> None:
    f = hlo_disc.jit(doubled_if_one)
    for n in (5, 7, 1):
        f(argument(n))
    line = doubled_if_one.__code__.co_firstlineno + 1
    records = f.stats().records
    assert [record.asked for record in records] == [
        (),
        (f"x.shape[0] != 1 (test_size_questions.py:{line})",),
        (f"x.shape[0] == 1 (test_size_questions.py:{line})",),
    ]
    assert records[2].reason == f"x.shape[0] != 1 does not hold, which test_size_questions.py:{line} asked"
    assert f"for x.shape[0] != 1 (test_size_questions.py:{line})" in str(f.stats())
    assert f"asked   this program is for d0 != 1, which test_size_questions.py:{line} asked for" in f.explain(full=True)


def test_what_is_as_large_as_it_should_be_is_not_asked_about() -> None:
    """JAX asks whether a size is 1 when it broadcasts, even where the size stays as it is. That is not noted."""
    shift = hlo_disc.jit(lambda x: x * 2 + jnp.ones(1) - jnp.broadcast_to(x, x.shape) * x)
    for n in (7, 9, 1):
        same(shift(argument(n)), argument(n) * 2 + 1 - argument(n) ** 2)
    assert shift.stats().records[-1].asked == ()


@pytest.mark.parametrize("form", ["bqd,bkd->bqk", "bqd,dk->bqk", "bqd,bqk->dk", "bq,bq->b"])
def test_einsum_asks_for_an_axis_of_one_only_where_it_may_be_repeated(form: str) -> None:
    names, sizes = form.partition("-")[0].split(","), {"b": 1, "q": 1, "k": 3, "d": 4}
    dims = {x: f"({', '.join('_' if n in 'kd' else n for n in name)})" for x, name in zip("xy", names, strict=True)}
    f = hlo_disc.jit(lambda x, y: jnp.einsum(form, x, y), dims=dims, fallback=False)
    for b, q in ((1, 1), (5, 1), (1, 6), (2, 3)):
        x, y = (np.ones([{**sizes, "b": b, "q": q}[n] for n in name], np.float32) for name in names)
        np.testing.assert_array_equal(f(x, y), np.einsum(form, x, y))
    (record,) = f.stats().records
    assert record.asked == ()


def test_einsum_repeats_an_axis_of_one() -> None:
    f = hlo_disc.jit(lambda x, y: jnp.einsum("bi,bi->b", x, y), dims={"x": "(b, _)", "y": "(c, _)"}, fallback=False)
    for b, c in ((1, 1), (1, 5), (5, 1), (4, 4), (1, 7), (7, 1)):
        x, y = np.arange(b * 3, dtype=np.float32).reshape(b, 3), np.arange(c * 3, dtype=np.float32).reshape(c, 3)
        np.testing.assert_array_equal(f(x, y), (x * y).sum(1))
    assert f.stats().compilations <= 4


def test_constraints_refuse_and_questions_do_not() -> None:
    f = hlo_disc.jit(doubled_if_one, dims={"x": "(n)"}, constraints="n <= 8")
    for _ in range(2):
        for n in (5, 1, 8):
            same(f(argument(n)), doubled_if_one(argument(n)))
        with pytest.raises(ShapeError, match="constraint n <= 8: 'n' is 9"):
            f(argument(9))
    assert f.stats().compilations == 2
    with pytest.raises(ShapeError, match="constraint n <= 8: 'n' is 9"):
        hlo_disc.jit(doubled_if_one, dims={"x": "(n)"}, constraints="n <= 8")(argument(9))


def test_programs_take_turns_without_being_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    f = hlo_disc.jit(doubled_if_one)
    for n in (5, 7, 1, 7, 1):
        f(argument(n))
    monkeypatch.setattr(f, "_slow", lambda *_: pytest.fail("the fast path serves it"))
    for n in (9, 1, 3, 1, 1, 0):
        same(f(argument(n)), doubled_if_one(argument(n)))


def test_python_has_its_own_functions_back() -> None:
    before = len, min, max

    def fails(x):
        assert len is not before[0]
        raise ValueError("while it is traced")

    f, g = hlo_disc.jit(lambda x: x * len(x)), hlo_disc.jit(fails)
    for n in (5, 7):
        same(f(argument(n)), argument(n) * n)
        with pytest.raises(ValueError, match="while it is traced"):
            g(argument(n))
    assert (len, min, max) == before


def test_inside_jax_jit() -> None:
    f = hlo_disc.jit(doubled_if_one)
    g = jax.jit(lambda x: f(x) + 1)
    for n in (5, 7, 1, 3):
        same(g(argument(n)), doubled_if_one(argument(n)) + 1)
    assert f.stats().compilations == 3


def test_questions_that_only_some_calls_ask() -> None:
    """One batch makes JAX ask for rows and columns, too. The general program serves all answers, or none."""
    ours, theirs = hlo_disc.jit(jnp.matmul, dims={"a": "(b, n, 4)", "b": "(b, 4, m)"}), jax.jit(jnp.matmul)
    for b, n, m in [(3, 2, 5), (1, 1, 1), (1, 2, 5), (1, 1, 5), (1, 0, 1), (2, 1, 1)]:
        x, y = jnp.ones((b, n, 4)), jnp.arange(b * 4.0 * m).reshape(b, 4, m)
        same(ours(x, y), theirs(x, y))
    assert ours.stats().compilations == 1

    def fn(x):  # the trace of (1, 7) says nothing of (1, 3)
        return x * 3 if x.shape[0] == 1 and x.shape[1] == 3 else x + x

    ours, theirs = hlo_disc.jit(fn, dims={"x": "(n, m)"}), jax.jit(fn)
    for n, m in [(5, 7), (1, 7), (1, 3), (1, 5), (2, 3)]:
        same(ours(jnp.ones((n, m))), theirs(jnp.ones((n, m))))


def test_two_arguments() -> None:
    """Conditions on two sizes at once are broken one at a time and together."""

    def fn(x, y):
        first = 1 if x.shape[0] == y.shape[0] else 2
        return first * x.sum() + (y.sum() if y.shape[0] != 3 else 0)

    ours, theirs = hlo_disc.jit(fn, dims={"x": "(n)", "y": "(m)"}), jax.jit(fn)
    for n, m in [(4, 5), (5, 5), (3, 3), (4, 3), (3, 4), (7, 3), (0, 0), (3, 3), (2, 2)]:
        same(ours(argument(n), argument(m)), theirs(argument(n), argument(m)))
    assert ours.stats().compilations == 4


def test_a_lowered_function_is_for_all_sizes() -> None:
    """A lowered function has no call whose sizes could answer: JAX answers, as for `hlo_disc.compile`."""
    executable = hlo_disc.jit(jax.nn.softmax, dims={"x": "(n)"}).lower(jax.ShapeDtypeStruct((5,), np.float32)).compile()
    for n in SIZES:
        same(executable(argument(n)), jax.nn.softmax(argument(n)))
    with pytest.raises(ShapeError, match="JAX says"):
        hlo_disc.jit(lambda x: x if x.shape[0] < 8 else x * 2, dims={"x": "(n)"}).lower(argument(5))


def test_a_division_by_a_size_of_zero_is_an_error() -> None:
    f = hlo_disc.jit(lambda x, y: x[: x.shape[0] // y.shape[0]], dims={"x": "(n)", "y": "(m)"})
    assert f(jnp.ones(6), jnp.ones(2)).shape == (3,)
    with pytest.raises(ZeroDivisionError):
        f(jnp.ones(6), jnp.ones(0))
    assert f(jnp.ones(6), jnp.ones(6)).shape == (1,)


def test_threads() -> None:
    """Guards break all the time in several threads that trace at once. Others use JAX's symbolic sizes meanwhile."""
    functions = [hlo_disc.jit(lambda x, k=k: x * 2 if x.shape[0] % 3 == k else x * 3) for k in range(3)]
    wrong: list[Any] = []
    done = threading.Event()

    def calls(seed: int) -> None:
        sizes = random.Random(seed)
        for _ in range(150):
            k, n = sizes.randrange(3), sizes.choice(SIZES)
            got = functions[k](argument(n))
            if not np.array_equal(got, argument(n) * (2 if n % 3 == k else 3)):
                wrong.append((k, n))

    def exports() -> None:
        while not done.is_set():
            (n,) = export.symbolic_shape("n")
            if n == 5 or hash(n) == 5 or isinstance(n, int) or str(n) != "n":
                wrong.append("a size of another thread")

    with ThreadPoolExecutor(5) as threads:
        other = threads.submit(exports)
        for call in [threads.submit(calls, seed) for seed in range(4)]:
            call.result()
        done.set()
        other.result()
    assert not wrong
    assert all(f.stats().compilations <= 4 and not f.stats().fallbacks for f in functions)


def test_programs_that_are_replaced_go() -> None:
    f = hlo_disc.jit(lambda x: x + 1)
    f(argument(3))
    [programs] = f._by_settings.values()
    [flat] = programs.functions.values()
    [entry] = flat.entries.values()
    [first] = entry.programs
    f(argument(4))
    [second] = entry.programs
    assert second is not first


def test_a_size_of_0_divides_nothing() -> None:
    def fn(x):
        return x.sum() + 2.0 / x.shape[0]

    f = hlo_disc.jit(fn)
    for n in (7, 32, 1):
        assert float(f(argument(n))) == pytest.approx(float(fn(argument(n))))
    with pytest.raises(ZeroDivisionError):
        f(argument(0))
    assert float(f(argument(3))) == pytest.approx(float(fn(argument(3))))


def test_a_number_that_says_nothing_new_ends_the_search() -> None:
    """A list of symbolic sizes makes `pad` fail. No size as a number explains that, so the search ends."""
    f = hlo_disc.jit(lambda x: jnp.pad(x, 2, mode="wrap"))
    for n in (7, 32, 1, 3):
        x = argument(n)
        assert f(x).tolist() == jnp.pad(x, 2, mode="wrap").tolist()


def test_the_program_of_the_last_call_is_tried_first() -> None:
    f = hlo_disc.jit(lambda x: x * 2 if x.shape[0] == 1 else x * 3)
    for n in (5, 7, 1):
        f(argument(n))
    [programs] = f._by_settings.values()
    [entry] = programs.functions[next(iter(programs.functions))].entries.values()
    general, special = (program.executable.native for program in entry.programs)
    [kinds] = programs.plain
    for n, native in ((5, general), (9, general), (1, special), (1, special), (7, general)):
        x = argument(n)
        assert f(x).tolist() == (x * (2 if n == 1 else 3)).tolist()
        assert programs.plain[kinds].run is native
    assert f.stats().compilations == 3


PLACES = {
    **{
        f"searchsorted, {method}": lambda x, method=method: jnp.searchsorted(x, x[:3], method=method)
        for method in ("scan", "scan_unrolled", "sort", "compare_all")
    },
    "searchsorted, sorter": lambda x: jnp.searchsorted(x, x, sorter=jnp.argsort(x)),
    "digitize": lambda x: jnp.digitize(x, jnp.sort(x)),
    "intersect1d": lambda x: jnp.intersect1d(x, x[:3], return_indices=True, size=3),
    "argsort": jnp.argsort,
}


@pytest.mark.parametrize("name", PLACES)
def test_places_have_the_types_that_jax_gives_them(name: str) -> None:
    """Indices into sizes that JAX knows have 32 bits in JAX, even with 64-bit types enabled. Ours have JAX's types."""
    with jax.enable_x64(True):
        f, arrays = hlo_disc.jit(PLACES[name]), [np.cos(np.arange(n)) for n in (6, 9, 4, 13)]
        for x, results in zip(arrays, at_each(PLACES[name], [[x] for x in arrays]), strict=True):
            for got, wanted in zip(jax.tree.leaves(f(x)), jax.tree.leaves(results), strict=True):
                assert got.dtype == wanted.dtype
                np.testing.assert_array_equal(got, wanted)
        assert name == "searchsorted, scan_unrolled" or f.stats().compilations == 2
