"""What is run: models and kernels at their shapes, with the work that each has to do at least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from benchmarks import loops, models, training, vision
from benchmarks.kernels import KERNELS, Kernel
from benchmarks.models import GPT2_WORDS, LAYERS, WIDTH

BERT_SHAPES = ((1, 17), (1, 128), (2, 77), (4, 128), (1, 384))
PREFILL_SHAPES = ((1, 17), (1, 128), (4, 64))
DECODE_LENGTHS = (1, 8, 64, 128, 256, 511)
MLP_BATCHES = (1, 33, 256)


@dataclass(frozen=True)
class Family:
    """One function with its dims and weights. `work` gives (operations, bytes) that a call needs at least."""

    name: str
    fn: Callable[..., Any]
    dims: dict[str, Any]
    inputs: Callable[..., tuple[Any, ...]]
    work: Callable[..., tuple[float, float]]
    params: Callable[[], Any] | None = None


def _block_work(tokens: int, pairs: int) -> tuple[float, float]:
    """A transformer's layers: `pairs` is the number of query-key pairs."""
    weights = LAYERS * 12 * WIDTH * WIDTH
    return 2.0 * tokens * weights + 4.0 * LAYERS * pairs * WIDTH, 4.0 * weights


def bert_work(b: int, s: int) -> tuple[float, float]:
    return _block_work(b * s, b * s * s)


def prefill_work(b: int, s: int) -> tuple[float, float]:
    flops, size = _block_work(b * s, b * s * s)
    return flops + 2.0 * b * WIDTH * GPT2_WORDS, size + 4.0 * WIDTH * GPT2_WORDS


def decode_work(b: int, length: int) -> tuple[float, float]:
    flops, size = _block_work(b, b * (length + 1))
    caches = 4.0 * 2 * LAYERS * b * length * WIDTH
    return flops + 2.0 * b * WIDTH * GPT2_WORDS, size + 4.0 * WIDTH * GPT2_WORDS + 2 * caches


def mlp_work(b: int) -> tuple[float, float]:
    weights = 784 * 512 + 512 * 512 + 512 * 10
    return 2.0 * b * weights, 4.0 * (weights + b * 794)


BERT = Family(
    "BERT-base", models.bert, {"ids": "(b, s)", "mask": "(b, s)"}, models.bert_inputs, bert_work, models.bert_params
)
SMALL_BERT = replace(BERT, name="BERT, 2 layers", params=lambda: models.bert_params(2))
PREFILL = Family(
    "GPT-2 prefill", models.gpt2_prefill, {"ids": "(b, s)"}, models.gpt2_inputs, prefill_work, models.gpt2_params
)
DECODE = Family(
    "GPT-2 decode",
    models.gpt2_decode,
    {"ids": "(b)", "caches": "(b, _, l, _)"},
    models.gpt2_decode_inputs,
    decode_work,
    models.gpt2_params,
)
MLP = Family("MLP", models.mlp, {"x": "(b, _)"}, models.mlp_inputs, mlp_work, models.mlp_params)


def model_shapes(quick: bool) -> list[tuple[Family, list[tuple[int, ...]]]]:
    """The models, each with its shapes."""
    pick: Callable[[Any], list] = (lambda shapes: list(shapes)[:: max(len(shapes) // 2, 1)]) if quick else list
    return [
        (BERT, pick(BERT_SHAPES)),
        (PREFILL, pick(PREFILL_SHAPES)),
        (DECODE, [(1, length) for length in pick(DECODE_LENGTHS)]),
        (MLP, [(b,) for b in pick(MLP_BATCHES)]),
    ]


def kernel_families(kernels: Sequence[Kernel] = KERNELS) -> Iterator[tuple[Family, list[dict[str, int]]]]:
    """The kernels. Their least work is one pass over arguments and results."""
    for kernel in kernels:

        def work(kernel=kernel, **sizes: int) -> tuple[float, float]:
            arguments = kernel.inputs(**sizes)
            results = jax.tree.leaves(jax.eval_shape(kernel.fn, *arguments))
            made = sum(r.size * r.dtype.itemsize for r in results)
            return 0.0, float(sum(a.nbytes for a in arguments) + made)

        yield Family(kernel.name, kernel.fn, kernel.dims, kernel.inputs, work), list(kernel.sizes)


LSTM = Family("LSTM, 128 steps", loops.lstm, {"xs": "(t, b, _)"}, loops.lstm_inputs, loops.lstm_work, loops.lstm_params)
COUNT = Family("while_loop of scalars", loops.count, {}, lambda n: (np.int32(n),), lambda n: (0.0, 0.0))
GREEDY = Family(
    "greedy decoding, 16 tokens", loops.greedy, {"ids": "(b)"}, loops.greedy_inputs, loops.greedy_work,
    loops.greedy_params,
)  # fmt: skip
RESNET = Family(
    "ResNet-50", vision.resnet, {"x": "(b, h, w, _)"}, vision.resnet_inputs, vision.resnet_work, vision.resnet_params
)
TRAINING = Family(
    "MLP training step", training.training_step, {"x": "(b, _)", "labels": "(b)"}, training.training_inputs,
    training.training_work, training.training_state,
)  # fmt: skip


def program_shapes(quick: bool) -> list[tuple[Family, list[tuple[int, ...]], str]]:
    """Programs beyond transformers, each with its sizes and what must hold of XLA's time over ours."""
    images = [(1, 224, 224), (4, 160, 192)]
    return [
        (RESNET, images[:1] if quick else images, "≥ 0.8"),
        (TRAINING, [(b,) for b in ((32, 256) if quick else (1, 32, 100, 256))], "≥ 0.8"),
        (LSTM, [(b,) for b in ((1, 32) if quick else (1, 8, 32))], "≥ 0.8"),
        (COUNT, [(loops.TURNS,)], "≥ 1.0"),
        (GREEDY, [(b,) for b in ((1,) if quick else (1, 4))], "≥ 0.8"),
    ]


def gradient_shapes(quick: bool) -> list[tuple[Family, list[tuple[int, ...]]]]:
    """What is trained, each with its sizes."""
    return [
        (SMALL_BERT, [(1, 17), (2, 64)] if quick else [(1, 17), (2, 64), (4, 100)]),
        (MLP, [(32,), (256,)] if quick else [(1,), (32,), (100,), (256,)]),
        (LSTM, [(1,), (32,)] if quick else [(1,), (8,), (32,)]),
        (RESNET, [(2, 64, 64)] if quick else [(2, 64, 64), (4, 96, 80)]),
    ]


# Programs whose error is looked at in more than one shape.
ACCURACY: list[tuple[Family, list[tuple[int, ...]]]] = [
    (RESNET, [(1, 224, 224), (2, 97, 65), (1, 33, 32), (3, 64, 96), (1, 160, 128), (5, 48, 33)]),
    (TRAINING, [(1,), (2,), (7,), (32,), (100,), (257,)]),
    (LSTM, [(1, 128), (3, 17), (8, 64), (2, 1), (16, 33), (5, 100)]),
]

# What is differentiated at several shapes.
DIFFERENTIATED: list[tuple[Family, list[tuple[int, ...]]]] = [
    (BERT, [(1, 17), (2, 33), (1, 1), (3, 8), (1, 64), (2, 5)]),
    (RESNET, [(1, 97, 65), (2, 64, 96), (1, 33, 48), (3, 40, 64), (1, 128, 96), (2, 65, 65)]),
    (LSTM, [(3, 17), (8, 64), (2, 1), (1, 8), (16, 33), (5, 20)]),
]


def stream(count: int, seed: int = 0) -> list[tuple[int, int]]:
    """Distinct (batch, length) pairs as texts have them: 1 to 4 of them, 4 to 96 tokens."""
    rng = np.random.default_rng(seed)
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < count:
        pairs[int(rng.integers(1, 5)), int(rng.integers(4, 97))] = None
    return list(pairs)
