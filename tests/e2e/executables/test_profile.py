"""Profiles: what is launched is noted, once each and by its name, and calls of the executable itself are not."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from cases.data_sized import DATA_DEPENDENT
from jax import lax

import hlo_disc
from hlo_disc import sources
from hlo_disc.benchmark.cost import work
from hlo_disc.compiled.account import Account, Form, Launch, parse
from hlo_disc.dynamic_hlo.passes.simplify import simplify
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.profile import measure, result
from hlo_disc.profile.limits import Limits
from hlo_disc.profile.measure import launch_numbers

RATES = dict.fromkeys((1 << 20, 1 << 28), 1e10)
LIMITS = Limits(1e11, None, RATES, RATES)


@pytest.fixture(autouse=True)
def limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the limits of the machine, which take two seconds to measure, by fixed ones."""
    monkeypatch.setattr(measure, "_limits", lambda: LIMITS)


def layers(x, w, v):
    for _ in range(3):
        x = jnp.tanh(x @ w)
    return jax.nn.softmax(x @ v)


def ones(*shape: int) -> np.ndarray:
    return np.ones(shape, np.float32)


ARGS = ones(5, 64), ones(64, 64), ones(64, 32)


@pytest.fixture(scope="module")
def exe() -> hlo_disc.Executable:
    return hlo_disc.compile(layers, "f32[n, 64]", "f32[64, 64]", "f32[64, 32]", threads=2)


def test_launches_are_those_of_the_account(exe):
    found = exe.profile(*ARGS, seconds=0.01)
    account = parse(exe.program.account)
    assert [x.number for x in found.launches] == list(range(len(account.launches)))
    for launch in found.launches:
        forms = [form.kernel for form in account.launches[launch.number].forms]
        assert launch.kernel in forms and launch.seconds > 0 and launch.blocks >= 1
    assert found.dims == {"n": 5} and found.threads == 2
    assert len(found.calls) >= 3


def test_times_add_up(exe):
    found = exe.profile(*ARGS, seconds=0.01)
    assert found.host > 0
    assert found.seconds == pytest.approx(found.host + sum(x.seconds for x in found.launches))
    assert sum(row.share for row in found.kernels) == pytest.approx(1 - found.host / found.seconds)
    assert [row.seconds for row in found.kernels] == sorted((row.seconds for row in found.kernels), reverse=True)
    for start, end, times in found.calls:
        edges = [start, *(edge for pair in times for edge in pair), end]
        assert edges == sorted(edges)


def test_work_is_counted(exe):
    products = [row for row in exe.profile(*ARGS, seconds=0.01).kernels if "dot_general" in row.ops]
    # tanh is counted once an element, as are the sum and the quotient of a softmax
    assert sum(row.launches for row in products) == 4
    most = max(products, key=lambda row: row.launches)
    assert (most.launches, most.operations) == (3, 3 * (2 * 5 * 64 * 64 + 5 * 64))
    assert most.bytes == 3 * 4 * (5 * 64 + 64 * 64 + 5 * 64)
    assert most.least == pytest.approx(max(most.operations / 1e11, most.bytes / 1e10))


READ_IN_PART = {
    "gathered": lambda table, ids: table[ids],
    "gathered twice": lambda table, ids: table[ids] * table[ids + 1],
    "gathered from a part": lambda table, ids: table[5:][ids],
    "gathered from columns": lambda table, ids: table.T[:, ids],
    "gathered from other types": lambda table, ids: table.astype(jnp.int32)[ids],
    "cut": lambda table, ids: table[:30].astype(jnp.int32) + ids.sum(),
    "all, in two orders": lambda table, ids: table[::-1] * table + ids.sum(),
}


@pytest.mark.parametrize("fn", READ_IN_PART.values(), ids=READ_IN_PART)
def test_parts_that_are_read_count_not_the_table(fn):
    """The bytes of the kernels are those of the least work, as long as each reads something else."""
    specs, sizes = ("f32[10000, 8]", "i32[n]"), {"n": 3}
    launches = parse(hlo_disc.compile(fn, *specs).program.account).launches
    least = work(simplify(sources.graph(fn, *specs)), ((10000, 8), (3,)))
    assert sum(Dim.parse(launch.bytes).evaluate(sizes) for launch in launches) == least.bytes


def test_calls_of_the_executable_are_not_noted(exe):
    native, names = exe._recorded
    assert exe.native.record(ARGS).launches == []
    recorded = native.record(ARGS)
    assert recorded.start < recorded.end and [names[launch.function] for launch in recorded.launches]
    np.testing.assert_array_equal(native(*ARGS)[0], exe(*ARGS))


def test_threads_note_their_own_launches(exe):
    native, _ = exe._recorded
    expected = len(native.record(ARGS).launches)
    counts: list[int] = []

    def work() -> None:
        counts.extend(len(native.record(ARGS).launches) for _ in range(50))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [expected] * 200


def test_a_loop_launches_as_often_as_it_turns():
    def fn(x, n):
        return lax.fori_loop(0, n, lambda i, c: jnp.sin(c @ c), x)

    exe = hlo_disc.compile(fn, "f32[m, m]", "i32[]")
    for turns in (1, 7):
        found = exe.profile(ones(40, 40), np.int32(turns), seconds=0.01)
        assert sum(x.launches for x in found.kernels if "dot_general" in x.ops) == turns
        (product,) = (x for x in found.kernels if "dot_general" in x.ops)
        assert product.operations == turns * (2 * 40**3 + 40**2)


def test_library_calls_have_their_names():
    exe = hlo_disc.compile(jnp.fft.fft, "c64[n]")
    assert any("fft" in row.kernel for row in exe.profile(np.ones(64, np.complex64), seconds=0.01).kernels)


def test_sizes_that_data_decide_leave_work_out():
    exe = hlo_disc.compile(DATA_DEPENDENT)
    found = exe.profile(np.arange(5, dtype=np.int32), seconds=0.01)
    assert any(row.operations is None and row.least is None for row in found.kernels)
    assert str(found)


def test_errors_are_those_of_a_call(exe):
    with pytest.raises(hlo_disc.ArgumentError, match="2 arguments given, but 3"):
        exe.profile(*ARGS[:2])
    with pytest.raises(hlo_disc.ShapeError):
        exe.profile(ones(5, 65), *ARGS[1:])
    with pytest.raises(hlo_disc.ArgumentError, match="seconds=0: give a number above 0"):
        exe.profile(*ARGS, seconds=0)
    with pytest.raises(hlo_disc.DeviceError, match="target 'cuda' are launched by the driver: profile them with"):
        hlo_disc.compile(lambda x: x + 1, "f32[n]", target="cuda:sm_90").profile(ones(3))


def test_the_trace_has_the_users_ops_and_lines(exe, tmp_path):
    found = exe.profile(*ARGS, seconds=0.01)
    found.save(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    calls = [event for event in trace["traceEvents"] if event.get("cat") == "call"]
    kernels = [event for event in trace["traceEvents"] if event.get("cat") == "kernel"]
    assert len(calls) == len(found.calls) and len(kernels) == len(calls) * len(found.launches)
    assert calls[0]["ts"] == 0 and calls[0]["args"] == {"n": 5}
    line = layers.__code__.co_firstlineno + 2
    assert kernels[0]["name"] == f"dot_general, tanh {Path(__file__).name}:{line} (layers)"
    for call in calls:
        inside = [k for k in kernels if call["ts"] <= k["ts"] < call["ts"] + call["dur"]]
        assert len(inside) == len(found.launches)
        assert all(k["ts"] + k["dur"] <= call["ts"] + call["dur"] + 1e-3 for k in inside)
    assert {(event["ph"], event["pid"], event["tid"]) for event in calls + kernels} == {("X", 1, 1)}


def test_the_table(exe):
    lines = str(exe.profile(*ARGS, seconds=0.01)).splitlines()
    assert lines[0].startswith("jit_layers at n=5: ") and "launches on 2 threads" in lines[0]
    assert lines[1].split()[:3] == ["share", "time", "launches"]
    assert f"{Path(__file__).name}:{layers.__code__.co_firstlineno + 2} (layers): dot_general" in "\n".join(lines)
    assert lines[-1].endswith("all that is no launch")


def test_a_long_table_is_cut():
    times = tuple(result.LaunchTime(f"k{k}", k, "add", "", 1, 1e-6 * (k + 1), None) for k in range(40))
    lines = str(result.Profile("p", {}, 1e-6, times, ((0, 1, ()),), 1, None)).splitlines()
    assert len(lines) == 2 + 25 + 1
    assert lines[2].split()[-2:] == ["k39", "add"] and "16 others" in lines[-2]
    assert f"{sum(range(1, 17))} µs" in lines[-2]


def test_a_jitted_function():
    @hlo_disc.jit
    def step(state: dict[str, Any], x):
        return {"w": state["w"] + x.sum(0)}, jnp.tanh(x @ state["w"])

    found = step.profile({"w": jnp.ones(8)}, jnp.ones((4, 8)))
    assert found.name == "jit_step" and found.kernels
    assert step.stats().compilations == 1
    step({"w": jnp.ones(8)}, jnp.ones((4, 8)))
    assert step.stats().compilations == 1


def test_sizes_that_a_program_was_found_to_serve_later():
    """A program for more rows is found to be right for one row, too, though `x[:3]` then has fewer than three."""
    f = hlo_disc.jit(lambda x: jnp.linalg.norm(x - x.mean(0)) + x[:3].sum())
    for n in (5, 7, 2, 1):
        f(ones(n, 4))
    made = f.stats().compilations
    assert f.profile(ones(1, 4)).launches and f.profile(ones(5, 4)).launches
    assert f.stats().compilations == made


def test_a_jitted_function_with_other_arguments():
    f = hlo_disc.jit(lambda x, k, key: x**k + jax.random.uniform(key, x.shape), static_argnums=1, donate_argnums=0)
    x, key = jnp.ones(8), jax.random.key(0)
    assert f.profile(x, 2, key).kernels
    assert not x.is_deleted()
    with jax.disable_jit(), pytest.raises(hlo_disc.UnsupportedOpError, match="disable_jit"):
        f.profile(x, 2, key)
    with pytest.raises(TypeError):
        hlo_disc.jit(lambda x: x).profile()


# ------------------------------------------------------------------------------ which launch of the account it is


def account(*kernels: str, flow: list[Any] | None = None) -> Account:
    """Return an account with a launch for each text, of the forms that it names."""
    launches = [
        Launch([Form(k, [], False, False, "0") for k in text.split()], [], [], "8", "1", "", 0) for text in kernels
    ]
    return Account("p", [], launches, flow or list(range(len(launches))), [], 0, [], 0)


@pytest.mark.parametrize(
    ("launched", "forms", "numbers"),
    [
        ("a b a", ("a", "b", "a"), [0, 1, 2]),
        ("a a", ("a", "a"), [0, 1]),
        ("a a b b", ("a", "b"), [0, 0, 1, 1]),  # two kernels each
        ("a a a a", ("a", "a"), [0, 0, 1, 1]),
        ("b a", ("a b", "a b"), [0, 1]),
        ("a c", ("a", "b", "c"), [0, 2]),  # nothing to do for b
        ("a a a", ("a", "a", "b", "a"), [0, 1, 3]),
        ("a a a b", ("a", "a", "b"), [None, None, None, 2]),  # which of the two launched twice?
        ("x a", ("a",), [None, 0]),
    ],
)
def test_launches_are_told_apart(launched, forms, numbers):
    assert launch_numbers(launched.split(), account(*forms)) == numbers


def test_in_loops_only_what_is_alone_is_told():
    inside = account("a", "b", "a", flow=[0, ["while -> float32() register", [["condition", []], ["body", [1, 2]]]]])
    assert launch_numbers(["a", "b", "a", "b", "a"], inside) == [None, 1, None, 1, None]
    twice = account("a", "a", flow=[0, ["while -> float32() register", [["condition", []], ["body", [1]]]]])
    assert launch_numbers(["a"] * 4, twice) == [None] * 4
