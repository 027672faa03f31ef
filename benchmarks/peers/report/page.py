"""The results as one HTML page that loads nothing over a network: a template, and the data in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.peers.report import compare, first
from benchmarks.peers.report.results import (
    NOISE,
    REFERENCE,
    Results,
    Standing,
    disturbed,
    geometric_mean,
    peer_ratio,
    summarize,
)
from hlo_disc.explain.page import filled

TEMPLATE = Path(__file__).with_name("page.html")


def write(results: Results, path: Path, against: Results | None = None, cold: first.Cold | None = None) -> None:
    """Write the page. against: earlier results to compare with. cold: times to the first result."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(filled(TEMPLATE.read_text(encoding="utf-8"), _data(results, against, cold)), encoding="utf-8")


def _data(results: Results, against: Results | None, cold: first.Cold | None) -> dict[str, Any]:
    return {
        "results": results,
        "summaries": [_summary(results, number) for number in range(len(results["programs"]))],
        "overall": _overall(results),
        "disturbed": disturbed(results),
        "noise": NOISE,
        "reference": REFERENCE,
        "against": against and {"made": against["made"], "changes": compare.changes(results, against)},
        "cold": cold and _cold(cold),
    }


def _summary(results: Results, number: int) -> dict[str, Any]:
    found = summarize(results, results["programs"][number])._asdict()
    return {name: _standing(value) if isinstance(value, Standing) else value for name, value in found.items()}


def _overall(results: Results) -> list[dict[str, Any]]:
    """Return the ratios of each peer over all programs of a type."""
    found = []
    for dtype in dict.fromkeys(program["dtype"] for program in results["programs"]):
        programs = [program for program in results["programs"] if program["dtype"] == dtype]
        for peer in (peer["name"] for peer in results["peers"] if not peer["ours"]):
            ratios = [ratio for ratio in (peer_ratio(results, p, peer) for p in programs) if ratio is not None]
            if ratios:
                entry = {"dtype": dtype, "peer": peer, "mean": geometric_mean(ratios), "programs": len(ratios)}
                found.append({**entry, "least": min(ratios), "greatest": max(ratios)})
    return found


def _cold(cold: first.Cold) -> dict[str, Any]:
    """Return the times to the first result, with hlo_disc's by parts."""
    rows = []
    for program in cold["programs"]:
        ours = [name for name in cold["ours"] if name in program["peers"]]
        others = [name for name in program["peers"] if name not in cold["ours"]]
        best = {
            kind: min(names, key=lambda p: program["peers"][p]["empty"]["seconds"]) if names else None
            for kind, names in (("ours", ours), ("best", others))
        }
        told = best["ours"] and first.parts(program["peers"][best["ours"]]["empty"])
        rows.append({**program, **best, "parts": told or {}})
    return {**cold, "programs": rows, "parts": [*first.PARTS, first.REST]}


def _standing(found: Standing) -> dict[str, Any]:
    return {
        "ours": found.ours and found.ours._asdict(),
        "best": found.best and found.best._asdict(),
        "ratio": found.ratio,
        "reference": found.reference_ratio,
    }
