"""Results of a comparison that nobody has measured, as large and as uneven as real ones: the same each time.

python -m tests.unit.benchmarks.made_up PAGE.html      # to look at the page
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.report import page
from benchmarks.peers.report.first import FORMAT as COLD_FORMAT
from benchmarks.peers.report.first import PARTS, Cold, First, Times
from benchmarks.peers.report.first import Program as ColdProgram
from benchmarks.peers.report.results import (
    FORMAT,
    REFERENCE,
    Accuracy,
    Compile,
    Limits,
    Machine,
    Peer,
    Program,
    Results,
    Shape,
    Stream,
    StreamTime,
    Timing,
)


class Way(NamedTuple):
    """A peer: how slow it is, what compiling takes, and whether once is enough."""

    name: str
    slow: float
    cold: float | None
    dynamic: bool
    versions: dict[str, str]
    about: str


JAX, TORCH, TENSORFLOW = {"jax": "0.10.2"}, {"torch": "2.13.0"}, {"tensorflow-cpu": "2.21.0"}
OURS = ("hlo_disc (JAX)", "hlo_disc (PyTorch)")
WAYS = (
    Way(OURS[0], 1.0, 0.6, True, JAX, "hlo_disc.jit with symbolic sizes, weights as arguments"),
    Way(OURS[1], 1.04, 1.9, True, TORCH, 'torch.compile(backend="hlo_disc", dynamic=True)'),
    Way(REFERENCE, 1.3, 0.9, False, JAX, "compiled for each shape"),
    Way("PyTorch eager", 1.7, None, True, TORCH, "no compiler: oneDNN and MKL op by op"),
    Way("Inductor dynamic", 1.5, 17, True, TORCH, "torch.compile(dynamic=True), max-autotune off, frozen weights"),
    Way("Inductor static", 1.4, 14, False, TORCH, "torch.compile(dynamic=False)"),
    Way("ONNX Runtime", 1.25, 0.7, True, {"onnxruntime": "1.23.0"}, "as torch.onnx exports it, sizes dynamic"),
    Way("OpenVINO f32", 1.3, 0.8, True, {"openvino": "2025.3.0"}, "the same file, inference precision f32"),
    Way("OpenVINO bf16", 0.55, 0.9, True, {"openvino": "2025.3.0"}, "the same file, inference precision bf16"),
    Way("IREE", 4.0, 6, True, {"iree-base-compiler": "3.8.0"}, "llvm-cpu, from the same StableHLO"),
    Way("TVM Relax", 6.0, 25, True, {"apache-tvm": "0.22.0"}, "from the exported program, untuned"),
    Way("TensorFlow eager", 2.4, None, True, TENSORFLOW, "tf.function without XLA"),
    Way("TensorFlow XLA", 1.5, 2.2, False, TENSORFLOW, "tf.function(jit_compile=True)"),
)

TEXT = [{"b": 1, "s": 17}, {"b": 1, "s": 128}, {"b": 2, "s": 77}, {"b": 4, "s": 128}, {"b": 1, "s": 384}]
IMAGES = [{"b": 1, "h": 224, "w": 224}, {"b": 4, "h": 160, "w": 192}, {"b": 2, "h": 255, "w": 131}]
ROWS = [{"b": n} for n in (1, 33, 256)]
MATRICES = [{"m": m, "n": 1000} for m in (7, 100, 1000, 4000)]


class Case(NamedTuple):
    name: str
    shapes: list[dict[str, int]]
    weights: float
    seconds: float  # at the first shape
    dtypes: tuple[str, ...] = ("f32",)


BOTH = ("f32", "bf16")
CASES = (
    Case("BERT-base", TEXT, 437e6, 0.023, BOTH),
    Case("GPT-2 prefill", TEXT, 498e6, 0.026, BOTH),
    Case("GPT-2 decode", [{"cache": n} for n in (1, 63, 200, 511)], 498e6, 0.016),
    Case("T5-small", TEXT[:4], 242e6, 0.02),
    Case("ViT-B/16", IMAGES, 346e6, 0.2, BOTH),
    Case("ResNet-50", IMAGES, 102e6, 0.05, BOTH),
    Case("U-Net", IMAGES, 31e6, 0.4),
    Case("MLP", ROWS, 12e6, 5e-5, BOTH),
    Case("training step of an MLP with Adam", ROWS, 12e6, 1.6e-3),
    Case("LSTM, 128 steps", ROWS, 4e6, 3e-3),
    Case("softmax", MATRICES, 0, 8e-6),
    Case("layer norm", MATRICES, 0, 8e-6),
    Case("sort", MATRICES, 0, 4e-5),
    Case("gather", MATRICES, 0, 2e-5),
    Case("greedy decoding", ROWS[:2], 498e6, 0.15),
    Case("ragged attention", TEXT[:3], 0, 1e-3),
    Case("x + 1", [{"n": 8}], 0, 7.8e-6),
)
# What cannot run which programs.
MISSING = {
    "TVM Relax": {"sort": "no dynamic sort", "LSTM, 128 steps": "the importer knows no loops: <while> & co."},
    "IREE": {"ragged attention": "compiling fails: 'linalg.generic' op has <dynamic> operand #2"},
    "ONNX Runtime": {"training step of an MLP with Adam": "torch.onnx exports no training steps"},
    "OpenVINO f32": {"greedy decoding": "loops that data ends are not supported"},
    "TensorFlow eager": {"ragged attention": "no such model in TensorFlow"},
    "TensorFlow XLA": {"ragged attention": "no such model in TensorFlow"},
}
SOME_SHAPES = "2 of 5 shapes: compiling takes 30 s each"


def results(seed: int = 0, machine: float = 1.0, ours: float = 1.0) -> Results:
    """The machine, and hlo_disc on it, may be so much faster than those of other results."""
    draw = random.Random(seed)
    return Results(
        format=FORMAT,
        made=f"2026-11-{25 - seed}T11:20:00Z",
        command="python -m benchmarks.peers --json build/peers.json",
        seconds=3300,
        machine=Machine(
            cpu="AMD EPYC 9R14", cores=2, memory_gib=24, system="Linux 6.1", features=["avx512f", "avx512_bf16"]
        ),
        limits=[_limits(when, speed * machine) for when, speed in (("before", 1.0), ("after", 0.97))],
        peers=[
            Peer(name=w.name, ours=w.name in OURS, dynamic=w.dynamic, versions=w.versions, about=w.about, absent=None)
            for w in WAYS
        ],
        programs=[_program(draw, case, dtype, machine, ours) for case in CASES for dtype in case.dtypes],
    )


def cold(seed: int = 0) -> Cold:
    """Times to the first result of the same programs; only hlo_disc tells its stages."""
    draw = random.Random(seed)
    stages = [name for names in PARTS.values() for name in names]

    def first(way: Way, stored: bool) -> First:
        seconds = (way.cold or 0.02) * draw.uniform(0.9, 1.1) * (0.2 if stored else 1)
        told = {name: 0.9 * seconds / len(stages) for name in stages} if way.name == OURS[0] else {}
        return First(seconds=seconds, cpu=1.2 * seconds, stages=told)

    programs = [
        ColdProgram(
            name=case.name,
            dtype=dtype,
            sizes=case.shapes[0],
            peers={w.name: Times(empty=first(w, False), full=first(w, True) if w.cold else None) for w in WAYS},
            missing={},
        )
        for case in CASES
        for dtype in case.dtypes
    ]
    found = results(seed)
    return Cold(
        format=COLD_FORMAT, made=found["made"], machine=found["machine"], processes=3, ours=[*OURS], programs=programs
    )


def _limits(when: str, speed: float) -> Limits:
    read = {str(1 << power): speed * rate for power, rate in ((20, 190e9), (22, 140e9), (24, 90e9), (28, 31e9))}
    copy = {size: 0.8 * rate for size, rate in read.items()}
    return Limits(when=when, fma_f32=speed * 206e9, fma_bf16=speed * 402e9, read=read, copy=copy)


def _program(draw: random.Random, case: Case, dtype: str, machine: float, ours: float) -> Program:
    missing = {way.name: MISSING[way.name][case.name] for way in WAYS if case.name in MISSING.get(way.name, {})}
    if dtype == "f32":
        missing["OpenVINO bf16"] = "computes in bf16"
    ways = [way for way in WAYS if way.name not in missing]
    slow = {way.name: _slow(draw, way, ours) for way in ways}
    shapes = [_shape(draw, case, dtype, sizes, slow, machine) for sizes in case.shapes]
    if case.shapes is TEXT:
        for shape in shapes[3:]:
            del shape["times"]["Inductor static"]
        missing["Inductor static"] = SOME_SHAPES
    compiled = {
        way.name: Compile(
            cold=way.cold * draw.uniform(0.8, 1.3),
            warm=None if "ONNX" in way.name or "IREE" in way.name else 0.3 * way.cold * draw.uniform(0.5, 1.3),
            export=draw.uniform(5, 9) if way.name.startswith(("ONNX", "OpenVINO", "TVM")) else None,
            compilations=1 if way.dynamic else len(shapes),
        )
        for way in ways
        if way.cold
    }
    scale = 1e-7 if dtype == "f32" else 3e-3
    return Program(
        name=case.name,
        dtype=dtype,
        about=f"{case.name}, random weights, {' and '.join(case.shapes[0])} dynamic",
        dims=list(case.shapes[0]),
        weights_bytes=case.weights / (1 if dtype == "f32" else 2),
        shapes=shapes,
        stream=_stream(draw, ways, slow, case.seconds) if case.name != "x + 1" else None,
        compile=compiled,
        memory={way.name: (case.weights + 20e6) * way.slow**0.3 * draw.uniform(1, 1.6) for way in ways},
        accuracy=Accuracy(sizes=case.shapes[-1], errors={way.name: scale * draw.uniform(1, 4) for way in ways}),
        missing=missing,
    )


def _slow(draw: random.Random, way: Way, ours: float) -> float:
    return way.slow / ours if way.name in OURS else way.slow * draw.lognormvariate(0, 0.35)


def _shape(
    draw: random.Random, case: Case, dtype: str, sizes: dict[str, int], slow: dict[str, float], machine: float
) -> Shape:
    work = _elements(sizes) / _elements(case.shapes[0])
    seconds = case.seconds * (0.4 + 0.6 * work) * (1 if dtype == "f32" else 0.55)
    times = {}
    for name, factor in slow.items():
        median = seconds * factor * draw.lognormvariate(0, 0.05) / machine
        times[name] = Timing(
            calls=max(5, int(1 / median)),
            min=median * draw.uniform(0.9, 0.99),
            median=median,
            spread=draw.uniform(0.005, 0.12),
            disturbed=draw.choice((0,) * 30 + (2,)),
        )
    limit = 0.8 * seconds * draw.uniform(0.6, 1.15) / machine
    return Shape(sizes=sizes, flops=seconds * 170e9, bytes=case.weights + 4096, limit=limit, times=times)


def _elements(sizes: dict[str, int]) -> int:
    total = 1
    for size in sizes.values():
        total *= size
    return total


def _stream(draw: random.Random, ways: list[Way], slow: dict[str, float], seconds: float) -> Stream:
    times = {}
    for way in ways:
        compilations = 1 if way.dynamic else 40
        total = compilations * (way.cold or 0) + 40 * 4 * seconds * slow[way.name] * draw.uniform(0.9, 1.1)
        times[way.name] = StreamTime(seconds=total, measured=40 if total < 60 else 8)
    return Stream(shapes=40, times=times)


if __name__ == "__main__":
    page.write(results(), Path(sys.argv[1]), results(seed=1, machine=0.9, ours=0.97), cold())
