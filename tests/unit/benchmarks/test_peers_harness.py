"""The measurements of peers: by stand-ins for their processes, and of one program by real ones."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.cost import least_work
from benchmarks.peers import harness, load
from benchmarks.peers.harness import Budget, Measurement
from benchmarks.peers.processes import PeerError
from benchmarks.program import STREAM, programs
from hlo_disc.profile import limits

(ADD_ONE,) = (program for program in programs() if program.name == "x + 1")
LIMITS = limits.Limits(1e11, 2e11, {1 << 20: 1e10}, {1 << 20: 1e10})


class StandIn:
    """A peer that answers at once. fails: the request that it cannot answer. wrong: is added to its results."""

    def __init__(self, fails: str = "", wrong: float = 0.0, compiling: float = 0.5, call: float = 0.1):
        self.fails, self.wrong, self.compiling, self.asked, self.closed = fails, wrong, compiling, [], False
        self.call = call

    def begin(self, what: str, **settings) -> None:
        self.what, self.settings = what, settings

    def answer(self, seconds: float):
        return self.ask(self.what, seconds, **self.settings)

    def ask(self, what: str, seconds: float, **settings):
        self.asked.append(what)
        if what == self.fails:
            raise PeerError("does not know how")
        if what == "result":
            np.savez(settings["path"], *[x + 1 + self.wrong for x in ADD_ONE.inputs(**settings["sizes"])])
        replies = {
            "first": {"seconds": self.compiling, "steady": 0.1},
            "shape": {"seconds": 0.1, "steady": 0.1},
            "turn": {"times": [self.call, 2 * self.call, 3 * self.call], "busy": 0.7, "cpu": 0.6, "wall": 0.6},
            "stats": {"compilations": 1, "peak": 1000},
            "stream": {"seconds": 2.4, "first": 0.5, "measured": 20},
        }
        return replies.get(what)

    def close(self) -> None:
        self.closed = True


def peer(name: str, **more):
    return {
        "name": name,
        "dynamic": True,
        "static_form_of": "",
        "reads_file": False,
        "reads_f32": False,
        "dtypes": ["f32"],
        "infers": False,
        **more,
    }


@pytest.fixture
def measure(monkeypatch, tmp_path):
    def run(processes: dict[str, StandIn], **peers):
        monkeypatch.setattr(harness, "FOLDER", tmp_path)
        monkeypatch.setattr(harness, "Process", lambda module, name: StandIn())  # the reference
        described = {name: peer(name, **peers.get(name, {})) for name in processes}
        modules = dict.fromkeys(processes, "jax")
        work = least_work(ADD_ONE, "f32")
        monkeypatch.setattr(harness, "ROUNDS", 2)
        budget = Budget()
        return Measurement(ADD_ONE, "f32", described, modules, LIMITS, work, budget, lambda text: None, processes).run()

    return run


def test_one_program(measure):
    found = measure({"ours": StandIn(), "theirs": StandIn()})
    (shape,) = found["shapes"]
    assert shape["bytes"] == 2 * 4 * 8 and shape["flops"] == 0 and shape["limit"] == 64 / 1e10
    assert shape["times"]["ours"] == {
        "calls": 6,
        "min": 0.1,
        "median": 0.2,
        "spread": pytest.approx(1.0),
        "disturbed": 0,
    }
    assert found["compile"]["theirs"] == {"cold": 0.4, "warm": 0.4, "export": None, "compilations": 1}
    assert found["accuracy"]["errors"] == {"ours": 0.0, "theirs": 0.0} and found["memory"] == dict(
        ours=1000, theirs=1000
    )
    # compiled once; the other 39 calls take as long as those 19 that were measured
    assert found["stream"]["shapes"] == STREAM
    assert found["stream"]["times"]["ours"] == {"seconds": pytest.approx(0.5 + 1.9 / 19 * 39), "measured": 20}
    assert not found["missing"]


@pytest.mark.parametrize("step", ["load", "first", "shape", "turn", "result", "stats", "stream"])
def test_who_fails_is_named_and_the_others_go_on(measure, step):
    processes = {"ours": StandIn(), "theirs": StandIn(step)}
    failing = processes["theirs"]
    found = measure(processes)
    assert found["missing"] == {"theirs": "does not know how"} and failing.closed and "theirs" not in processes
    assert set(found["stream"]["times"]) == {"ours"} and not set(found["shapes"][0]["times"]) - {"ours", "theirs"}


def test_wrong_results_have_no_times(measure):
    found = measure({"ours": StandIn(), "theirs": StandIn(wrong=3.0)})
    assert "wrong result" in found["missing"]["theirs"] and "theirs" not in found["shapes"][0]["times"]
    assert "theirs" not in found["compile"]


def test_who_does_not_take_the_program(measure):
    found = measure({"ours": StandIn(), "theirs": StandIn()}, theirs={"dtypes": ["bf16"]})
    assert found["missing"] == {"theirs": "has no f32"}


def test_who_compiles_for_long_is_reckoned(measure):
    found = measure({"static": StandIn(compiling=60.0), "once": StandIn(compiling=60.0)}, static={"dynamic": False})
    assert found["stream"]["times"]["static"] == {"seconds": pytest.approx(59.9 * STREAM), "measured": 0}
    assert found["stream"]["times"]["once"] == {"seconds": pytest.approx(59.9 + 0.2 * STREAM), "measured": 0}
    assert found["compile"]["once"]["warm"] is None


def test_the_static_form_of_who_compiles_for_long_is_left_out(measure):
    processes = {"any": StandIn(compiling=30.0), "each": StandIn()}
    found = measure(processes, each={"dynamic": False, "static_form_of": "any"})
    assert found["missing"] == {"each": "left out, as any compiled for 30 s"} and set(found["compile"]) == {"any"}
    found = measure({"any": StandIn(), "each": StandIn()}, each={"dynamic": False, "static_form_of": "any"})
    assert not found["missing"]


def test_who_is_slow_has_fewer_turns(measure):
    found = measure({"ours": StandIn(), "theirs": StandIn(call=1.0)})
    times = found["shapes"][0]["times"]
    assert times["ours"]["calls"] == 6 and times["theirs"]["calls"] == 3 and times["theirs"]["median"] == 2.0


def test_load():
    assert not load.disturbed(1.0, 1.0, 0.5, 2)
    assert not load.disturbed(1.1, 1.0, 0.5, 2)
    assert load.disturbed(1.2, 1.0, 0.5, 2)
    assert load.busy() > 0


def test_streams_have_distinct_sizes_in_their_ranges():
    for program in programs():
        sizes = program.stream_sizes()
        assert len({tuple(each.values()) for each in sizes}) == len(sizes) == STREAM, program.name
        for name, (low, high, step) in program.stream.items():
            assert all(low <= each[name] <= high and (each[name] - low) % step == 0 for each in sizes)


def test_real_processes(monkeypatch, tmp_path):
    """hlo_disc and jax.jit as `make peers` runs them."""
    from benchmarks.peers import processes as real

    monkeypatch.setattr(harness, "FOLDER", tmp_path)
    monkeypatch.setattr(real, "FOLDER", tmp_path)
    described = {one["name"]: one for one in real.described("jax")}
    running: dict = {}
    work = least_work(ADD_ONE, "f32")
    modules = dict.fromkeys(described, "jax")
    one = Measurement(
        ADD_ONE, "f32", described, modules, LIMITS, work, Budget.of(300.0, 1, 2), lambda text: None, running
    )
    found = one.run()
    for process in running.values():
        process.close()
    assert set(found["shapes"][0]["times"]) == {"hlo_disc (JAX)", "jax.jit"} and not found["missing"]
    assert found["accuracy"]["errors"] == {"hlo_disc (JAX)": 0.0, "jax.jit": 0.0}
    assert found["compile"]["hlo_disc (JAX)"]["compilations"] == 1
    assert found["stream"]["times"]["hlo_disc (JAX)"]["measured"] == STREAM
