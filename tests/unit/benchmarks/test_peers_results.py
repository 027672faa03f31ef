"""The results of a comparison with peers: their file, summaries, changes since another one, tables of documents."""

from __future__ import annotations

import copy
import json
import math

import made_up
import pytest
from rich.console import Console

from benchmarks.peers.report import compare, page, results, tables
from benchmarks.peers.report.results import (
    Accuracy,
    Compile,
    Entry,
    Program,
    Results,
    Shape,
    Stream,
    StreamTime,
    Timing,
)

OURS, TORCH = made_up.OURS


def timing(median: float, disturbed: int = 0) -> Timing:
    return Timing(calls=10, min=median, median=median, spread=0.0, disturbed=disturbed)


def shape(size: int, limit: float, **medians: float) -> Shape:
    names = {"ours": OURS, "torch": TORCH, "jax": "jax.jit", "iree": "IREE", "onnx": "ONNX Runtime"}
    times = {names[peer]: timing(median) for peer, median in medians.items()}
    return Shape(sizes={"n": size}, flops=1e9, bytes=1e6, limit=limit, times=times)


def small() -> Results:
    """One program at two shapes: 2 and 0.5 times as fast as the best peer."""
    found = made_up.results()
    found["programs"] = [
        Program(
            name="soft|max",
            dtype="f32",
            about="",
            dims=["n"],
            weights_bytes=0,
            shapes=[
                shape(8, 1e-3, ours=3e-3, torch=2e-3, jax=4e-3, iree=9e-3),
                shape(64, 1e-3, ours=4e-3, jax=8e-3, iree=2e-3),
            ],
            stream=Stream(
                shapes=40,
                times={
                    OURS: StreamTime(seconds=2.0, measured=40),
                    "jax.jit": StreamTime(seconds=30.0, measured=10),
                    "IREE": StreamTime(seconds=3.0, measured=40),
                },
            ),
            compile={OURS: Compile(cold=0.5, warm=0.1, export=None, compilations=1)},
            memory={OURS: 3 * 2**20, "IREE": 6 * 2**20},
            accuracy=Accuracy(sizes={"n": 64}, errors={OURS: 1e-7, TORCH: 3e-7, "jax.jit": 2e-7, "IREE": 1e-7}),
            missing={"ONNX Runtime": "no reason"},
        )
    ]
    return found


def test_a_file_comes_back(tmp_path):
    found = made_up.results()
    results.write(found, tmp_path / "new" / "peers.json")
    assert results.read(tmp_path / "new" / "peers.json") == found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "peers.json is not JSON"),
        ("[]", "there is no 'format'"),
        ('{"rows": []}', "there is no 'format'"),
        ('{"format": 2}', "has format 2, and this reads format 1 alone"),
        ('{"format": 1}', "lacks command, limits, machine, made, peers, programs, seconds"),
    ],
)
def test_what_is_no_such_file(tmp_path, text, message):
    (tmp_path / "peers.json").write_text(text)
    with pytest.raises(results.FormatError, match=message.replace("[", r"\[")):
        results.read(tmp_path / "peers.json")


def test_a_program_that_lacks_something(tmp_path):
    found = small()
    del found["programs"][0]["memory"]  # type: ignore[misc]
    results.write(found, tmp_path / "peers.json")
    with pytest.raises(results.FormatError, match="lacks memory of program 0"):
        results.read(tmp_path / "peers.json")


def test_no_file_has_what_json_has_not(tmp_path):
    found = small()
    found["programs"][0]["memory"]["IREE"] = math.nan
    with pytest.raises(ValueError, match="not JSON compliant"):
        results.write(found, tmp_path / "peers.json")


def test_two_runs_are_one():
    earlier, later = small(), small()
    other = {**copy.deepcopy(later["programs"][0]), "name": "another"}
    later["programs"][0]["weights_bytes"] = 7.0
    earlier["programs"].append(other)
    found = results.merged(earlier, later)
    assert [(one["name"], one["weights_bytes"]) for one in found["programs"]] == [("soft|max", 7.0), ("another", 0)]
    assert found["seconds"] == earlier["seconds"] + later["seconds"] and found["peers"] == later["peers"]
    assert found["limits"] == earlier["limits"] + later["limits"] and found["made"] == later["made"]
    later["machine"] = {**later["machine"], "cores": 96}
    with pytest.raises(results.FormatError, match="another machine"):
        results.merged(earlier, later)


def test_ours_is_the_better_way_and_the_best_peer_is_not_ours():
    found = small()
    first, second = (results.standing(found, results.medians(s)) for s in found["programs"][0]["shapes"])
    assert first == (Entry(TORCH, 2e-3), Entry("jax.jit", 4e-3), Entry("jax.jit", 4e-3))
    assert (first.ratio, first.reference_ratio) == (2.0, 2.0)
    assert second == (Entry(OURS, 4e-3), Entry("IREE", 2e-3), Entry("jax.jit", 8e-3))
    assert second.ratio == 0.5
    nobody = results.standing(found, {})
    assert nobody == (None, None, None) and nobody.ratio is None


def test_a_summary():
    found = small()
    summary = results.summarize(found, found["programs"][0])
    assert summary.best == pytest.approx(1.0)
    assert (summary.worst, summary.worst_sizes, summary.worst_peer) == (0.5, {"n": 64}, "IREE")
    assert summary.reference == pytest.approx(2.0)
    assert summary.of_limit == pytest.approx(math.sqrt(0.5 * 0.25))
    assert (summary.stream.ratio, summary.stream.reference_ratio) == (1.5, 15.0)
    assert summary.compile.ours == Entry(OURS, 0.5) and summary.compile.ratio is None
    assert summary.memory.ratio == 2.0
    assert results.peer_ratio(found, found["programs"][0], "IREE") == pytest.approx(math.sqrt(4.5 * 0.5))
    assert results.peer_ratio(found, found["programs"][0], "ONNX Runtime") is None


def test_errors_are_flagged_by_the_worse_of_our_ways():
    found = small()
    program = found["programs"][0]
    errors = program["accuracy"]["errors"]
    assert results.summarize(found, program)[-2:] == (pytest.approx(3.0), True)
    errors[TORCH] = 2e-7
    assert results.summarize(found, program)[-2:] == (pytest.approx(2.0), False)
    errors["IREE"] = 0.0
    assert results.summarize(found, program)[-2:] == (None, True)
    errors[OURS] = errors[TORCH] = 0.0
    assert results.summarize(found, program)[-2:] == (1.0, False)
    program["accuracy"] = None
    assert results.summarize(found, program)[-2:] == (None, False)


def test_verdicts():
    assert [results.verdict(ratio) for ratio in (0.94, 0.951, 1.0, 1.049, 1.06)] == [-1, 0, 0, 0, 1]


def test_units():
    seconds = (12.3456, 1.0, 0.0238, 7.8e-6, 2.1e-7, 262.4)
    assert [results.duration(s) for s in seconds] == ["12.3 s", "1.00 s", "23.8 ms", "7.80 µs", "210 ns", "262 s"]
    assert [results.memory(size) for size in (2e9, 13.2 * 2**20, 5000)] == ["1.86 GiB", "13.2 MiB", "4.88 KiB"]


def test_disturbed_timings_are_counted():
    found = small()
    assert results.disturbed(found) == (0, 7)
    found["programs"][0]["shapes"][0]["times"]["IREE"] = timing(1.0, disturbed=2)
    assert results.disturbed(found) == (1, 7)


def slower(found: Results, ours: float, peers: float, limit: float) -> Results:
    """Return the same results with our times, the peers' and the limit multiplied by these factors."""
    before = copy.deepcopy(found)
    for program in before["programs"]:
        for at in program["shapes"]:
            at["limit"] *= limit
            for peer, time in at["times"].items():
                time["median"] *= ours if peer in made_up.OURS else peers
    return before


@pytest.mark.parametrize(
    ("ours", "peers", "net", "verdict"),
    [(1.0, 1.0, 1.0, 0), (2.0, 2.0, 1.0, 0), (2.0, 1.0, 2.0, 1), (1.0, 2.0, 0.5, -1)],
)
def test_a_slower_machine_is_no_slower_compiler(ours, peers, net, verdict):
    now = small()
    found = compare.changes(now, slower(now, ours, peers, 1.5))
    assert [change["sizes"] for change in found] == [{"n": 8}, {"n": 64}]
    for change in found:
        assert change["ratio"] == pytest.approx(ours)
        assert change["peers"] == pytest.approx(peers)
        assert change["limit"] == pytest.approx(1.5)
        assert change["net"] == pytest.approx(net)
        assert change["verdict"] == verdict


def test_changes_without_peers_go_by_the_limit():
    now = small()
    then = slower(now, 1.5, 1.0, 1.5)
    for at in then["programs"][0]["shapes"]:
        at["times"] = {peer: time for peer, time in at["times"].items() if peer in made_up.OURS}
    assert [change["net"] for change in compare.changes(now, then)] == pytest.approx([1.0, 1.0])
    then["programs"][0]["shapes"][0]["flops"] *= 2
    first = next(change for change in compare.changes(now, then) if change["sizes"] == {"n": 8})
    assert first["limit"] is None and first["net"] == pytest.approx(1.5)


def test_only_what_both_have_is_compared_and_the_worst_comes_first():
    now, then = small(), small()
    then["programs"][0]["shapes"][0]["times"][TORCH]["median"] /= 2
    now["programs"][0]["shapes"].append(shape(7, 1e-3, ours=1.0))
    found = compare.changes(now, then)
    assert [(change["sizes"]["n"], change["verdict"]) for change in found] == [(8, -1), (64, 0)]
    del then["programs"][0]["shapes"][0]["times"][TORCH], then["programs"][0]["shapes"][0]["times"][OURS]
    assert [change["sizes"]["n"] for change in compare.changes(now, then)] == [64]


def test_a_table_of_changes():
    now = small()
    console = Console(width=160, record=True, quiet=False)
    with console.capture() as captured:
        console.print(compare.table(now, slower(now, 2.0, 1.0, 1.0)))
    assert "2 faster, 0 same, 0 slower" in captured.get()
    assert "4.00 ms" in captured.get() and "2.00" in captured.get()


def test_tables_between_the_markers(tmp_path):
    found, readme = small(), tmp_path / "README.md"
    readme.write_text(f"before\n\n{tables.BEGIN}\nold\n{tables.END}\n\nafter\n")
    for made in (tables.summary(found), tables.render(found)):
        tables.write(made, readme)
        assert readme.read_text() == f"before\n\n{tables.BEGIN}\n\n{made}\n\n{tables.END}\n\nafter\n"
    assert tables.render(found).startswith(tables.summary(found))
    found["programs"][0]["shapes"][0]["times"][TORCH]["median"] *= 2
    assert made != tables.render(found)


@pytest.mark.parametrize("text", ["", tables.BEGIN, tables.END + tables.BEGIN])
def test_no_place_for_tables(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(ValueError, match="no place for the tables"):
        tables.write("", tmp_path / "README.md")


def test_what_tables_say():
    lines = tables.render(small()).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").replace(r"\|", "!").split("|")] for line in lines]
    assert ["soft!max, f32", "2.00, 4.00 ms", "35%", "1.00", "0.50 IREE", "2.00"] in rows
    assert ["soft!max, f32", "2.00 s", "1.50 IREE", "15.0", "500 ms", "–", "3.00 MiB", "2.00 IREE"] in rows
    assert ["soft!max, f32", "64", "4.00 ms", "25%", "IREE", "0.50", "2.00"] in rows
    assert ["IREE", "1.50 (1)", "1.50 to 1.50", "1.50"] in rows
    assert ["TVM Relax", "–", "–", "–"] in rows


def test_tables_have_as_many_cells_as_heads():
    for block in tables.render(made_up.results()).split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace(r"\|", "").count("|") for line in block.splitlines()}) == 1


def test_the_page_holds_the_results_whatever_their_strings(tmp_path):
    found = small()
    found["programs"][0]["about"] = "</script><!-- <script> \u2028"
    page.write(found, tmp_path / "page.html", against=found)
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = text.partition('<script id="data" type="application/json">')[2].partition("</script>")[0]
    assert json.loads(data)["results"] == found
    assert "<" not in data
    assert text.count("</script>") == 2
