"""The kit's results as text: a table of times, what was checked, and what was not run."""

from __future__ import annotations

from typing import Any

_PEERS = {"jax": "jax.jit", "torch": "torch.compile"}


def table(results: dict[str, Any]) -> str:
    lines = [f"{name}: {text}" for name, text in results["machine"].items()]
    lines += ["", *_times(results), "", *_threads(results["cpu"]), "What was checked:", ""]
    for name, case in results["gpu"].items():
        lines.append(f"- {name}: {_verdict(case)}")
    for part in ("jit", "cpu"):
        lines += [f"- {name}, {part}: {case['wrong']} wrong" for name, case in results[part].items() if "wrong" in case]
    for name, case in results["sanitizer"].items():
        if not case.get("skipped"):
            lines.append(f"- {name}: {'something was found, see below' if case.get('failed') else 'clean'}")
    lines += ["", "What was not run, or failed, and why:", ""]
    for part in ("gpu", "jit", "cpu", "sanitizer", *_PEERS):
        for name, case in results[part].items():
            within = [(f"{name}, {inner}", x) for inner, x in case.get("cases", {}).items()]
            for where, found in [(name, case), *within]:
                reasons = [*found.get("skipped", []), found.get("failed")]
                lines += [f"- {part}, {where}: {why}" for why in reasons if why]
    return "\n".join([*lines, *(f"- {why}" for why in results["not run"]), ""])


def _verdict(case: dict[str, Any]) -> str:
    if "checked" not in case:
        return "not run"
    worst = max((e for errors in case["checked"].values() for e in errors.values()), default=0)
    return (
        f"{len(case['checked'])} sizes, {case['wrong']} wrong, at most {worst:.2g} off, "
        f"{case['wrong in streams']} wrong in streams, {case['leaked blocks']} blocks leaked"
    )


def _times(results: dict[str, Any]) -> list[str]:
    """Of ours, and of each peer as its time over ours."""
    peers = " | ".join(f"{name}, ours = 1" for name in _PEERS.values())
    lines = [
        f"| program | sizes | µs | GB/s | GFLOP/s | of the copy | {peers} |",
        f"|---|---|---|---|---|---|{'---|' * len(_PEERS)}",
    ]
    copy = max((t["GB/s"] for t in results["gpu"].get("copy", {}).get("times", {}).values()), default=0)
    for name, case in results["gpu"].items():
        for sizes, t in case.get("times", {}).items():
            cells = [f"{t[unit]:.4g}" if unit in t else "" for unit in ("us", "GB/s", "GFLOP/s")]
            cells.append(f"{t['GB/s'] / copy:.0%}" if copy and "GB/s" in t else "")
            for peer in _PEERS:
                there = results[peer].get(peer, {}).get("cases", {}).get(name, {})
                time = there.get("times", {}).get(sizes, {}).get("us")
                cells.append((f"{time / t['us']:.2f}" + ", but wrong" * there["wrong"]) if time else "")
            lines.append(f"| {name} | {sizes} | {' | '.join(cells)} |")
    return lines


def _threads(cpu: dict[str, Any]) -> list[str]:
    """Times on the CPU, in µs."""
    counts = sorted({n for case in cpu.values() for n in case.get("threads", {})}, key=int)
    if not counts:
        return []
    lines = [
        f"| on the CPU, µs | sizes | {' | '.join(f'{n} threads' for n in counts)} |",
        "|---|---|" + "---|" * len(counts),
    ]
    for name, case in cpu.items():
        times = case.get("threads", {})
        for sizes in next(iter(times.values()), {}):
            cells = [f"{times[n][sizes]:.4g}" if n in times else "" for n in counts]
            lines.append(f"| {name} | {sizes} | {' | '.join(cells)} |")
    return [*lines, ""]
