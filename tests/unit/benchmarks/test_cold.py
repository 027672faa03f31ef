"""The measurements until the first result, for a program that is small, by real processes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.peers import cold, processes
from benchmarks.peers.processes import PeerError
from benchmarks.peers.report import first, page
from benchmarks.program import chosen
from hlo_disc.pipeline import STAGES
from tests.unit.benchmarks import made_up

PEER = {"module": "jax", "name": "ours", "dtypes": ["f32"], "infers": False, "reads_file": False, "store": "STORE"}


def test_every_stage_is_of_one_part():
    stages = sorted(name for names in first.PARTS.values() for name in names)
    assert stages == sorted([*(stage.name for stage in STAGES), "cache", "load"])


def test_a_small_program(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "FOLDER", tmp_path)
    monkeypatch.setattr(cold, "FOLDER", tmp_path)
    monkeypatch.setattr(cold, "modules", lambda: ["jax"])  # whatever other environments there are
    target = tmp_path / "cold.json"
    options = ["--filter", "x + 1", "--repeat", "1", "--json", str(target), "--add"]
    done = CliRunner().invoke(cold.main, options, catch_exceptions=False)
    assert done.exit_code == 0 and "x + 1" in done.output
    found = first.read(target)
    (program,) = found["programs"]
    ours = program["peers"]["hlo_disc (JAX)"]
    assert {"hlo_disc (JAX)", "jax.jit"} <= program["peers"].keys() and not program["missing"]
    assert "codegen" in ours["empty"]["stages"] and "codegen" not in ours["full"]["stages"]
    assert sum(first.parts(ours["empty"]).values()) == pytest.approx(ours["empty"]["seconds"])
    assert first.over_reference(found, "jax.jit", "cpu") == pytest.approx(1)


@pytest.mark.parametrize(("name", "before"), [("x + 1", "softmax"), ("softmax", "matmul")])
def test_the_second_program_of_a_process(monkeypatch, tmp_path, name, before):
    monkeypatch.setattr(processes, "FOLDER", tmp_path)
    asked = []

    class Process(processes.Process):
        def ask(self, what, patience, **settings):
            asked.append((what, settings.get("program")))
            return super().ask(what, patience, **settings)

    monkeypatch.setattr(cold, "Process", Process)
    (task,) = chosen(name)
    taken = cold.once(task, {**PEER, "name": "hlo_disc (JAX)"}, None, second=True)
    assert asked == [("load", before), ("first", None), ("load", name), ("first", None), ("stages", None)]
    assert 0 < sum(taken["stages"].values()) <= taken["seconds"]


def test_who_fails_is_named_and_the_others_go_on(monkeypatch):
    def once(task, peer, store, second=False):
        if peer["name"] == "theirs" and store is None:
            raise PeerError("does not know how")
        return {"seconds": 0.5 if store else 1.0, "cpu": 2.0, "stages": {}}

    monkeypatch.setattr(cold, "once", once)
    (task,) = chosen("x + 1")
    peers = {"ours": PEER, "theirs": {**PEER, "name": "theirs"}, "storeless": {**PEER, "name": "it", "store": ""}}
    found = cold.measure(task, peers, 2, lambda text: None)
    assert found["missing"] == {"theirs": "does not know how"} and set(found["peers"]) == {"ours", "storeless"}
    assert found["peers"]["ours"]["empty"]["seconds"] == 1.0 and found["peers"]["ours"]["full"]["seconds"] == 0.5
    assert found["peers"]["storeless"]["full"] is None


def test_who_does_not_take_the_program():
    (training,) = chosen("MLP training step")
    with pytest.raises(PeerError, match="train"):
        processes.readable(*training, {**PEER, "infers": True})
    with pytest.raises(PeerError, match="has no f32"):
        processes.readable(*training, {**PEER, "dtypes": ["bf16"]})


def test_two_runs_are_one():
    earlier = made_up.cold()
    (task,) = chosen("x + 1")
    program = {**earlier["programs"][-1], "sizes": {"n": 1}}
    found = cold.merged({**earlier, "ours": ["a"]}, {**earlier, "ours": ["b"], "programs": [program]})
    assert found["ours"] == ["a", "b"] and found["programs"][-1] == program
    assert len(found["programs"]) == len({(p["name"], p["dtype"]) for p in found["programs"]})


def test_the_page_has_a_bar_a_program():
    data = page._cold(made_up.cold())
    assert all(set(row["parts"]) == set(data["parts"]) for row in data["programs"] if row["ours"] == made_up.OURS[0])
    json.dumps(data, allow_nan=False)
