"""An encoder on sentences of different lengths, compiled: jagged tensors next to the same sentences padded.

`make bench-jagged`. It times the forward pass and a training step. The sentences of a batch have random lengths from 1
to 512. Jagged tensors use `hlo_disc.torch.jagged_attention`, and, for comparison, PyTorch's own attention.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

import hlo_disc.torch

LAYERS, WIDTH, HEADS, SENTENCES, LONGEST = 4, 256, 4, 16, 512
BATCHES = 3


class Layer(nn.Module):
    """A layer of an encoder. attend: computes attention of queries, keys and values. words: true where a word is."""

    def __init__(self, attend: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.attend = attend
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, words: torch.Tensor | None) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (project(y).unflatten(-1, [HEADS, -1]).transpose(1, 2) for project in self.projections[:3])
        mask = {} if words is None else {"attn_mask": words[:, None, None, :]}
        attended = self.attend(q, k, v, **mask)
        x = x + self.projections[3](attended.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Encoder(nn.Module):
    """A sequence of layers."""

    def __init__(self, attend: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(attend) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor, words: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, words)
        return x


def batches() -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Return batches: each as a jagged tensor, as a padded one, and where the padded one has words."""
    made = []
    for _ in range(BATCHES):
        lengths = torch.randint(1, LONGEST + 1, (SENTENCES,)).tolist()
        sentences = [torch.randn(n, WIDTH) for n in lengths]
        padded = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        words = torch.arange(padded.shape[1])[None, :] < torch.tensor(lengths)[:, None]
        made.append((torch.nested.nested_tensor(sentences, layout=torch.jagged), padded, words))
    return made


def seconds(call: Callable[[int], None]) -> list[float]:
    """Return the seconds of a call for each batch: the median of two rounds, after one that does not count."""
    times: list[list[float]] = [[] for _ in range(BATCHES)]
    for turn in range(3):
        for i in range(BATCHES):
            start = time.perf_counter()
            call(i)
            if turn:
                times[i].append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def main() -> None:
    """Print a table: each form's time summed over the batches, and the time of the compiled padded form over it."""
    torch.manual_seed(0)
    model, given = Encoder(), batches()
    ours = Encoder(hlo_disc.torch.jagged_attention)
    ours.load_state_dict(model.state_dict())
    count = sum(int(words.sum()) for _, _, words in given) / sum(words.numel() for _, _, words in given)
    print(f"{LAYERS} layers of {WIDTH}, {SENTENCES} sentences a batch; {count:.0%} of the padded words are words")
    runs = {
        "padded": torch.compile(model, backend="hlo_disc", dynamic=True),
        "jagged": torch.compile(ours, backend="hlo_disc", dynamic=True),
        "jagged, PyTorch's attention": torch.compile(model, backend="hlo_disc", dynamic=True),
        "padded, eager": model,
        "jagged, eager": model,
    }
    check(runs, given)
    print("| | forward, ms | padded / this | training step, ms | padded / this |\n| --- | ---: | ---: | ---: | ---: |")
    padded: list[float] = []
    for form, run in runs.items():

        def forward(i: int, form: str = form, run: Callable[..., torch.Tensor] = run) -> torch.Tensor:
            return rows(run, form, given[i])

        def step(i: int, forward: Callable[[int], torch.Tensor] = forward) -> None:
            forward(i).square().mean().backward()

        times = []
        for call, grad in ((forward, False), (step, True)):
            with torch.set_grad_enabled(grad):
                times.append(1e3 * sum(seconds(call)))
        padded = padded or times
        cells = (f"{own:.0f} | {first / own:.2f}" for own, first in zip(times, padded, strict=True))
        print(f"| {form} | {' | '.join(cells)} |", flush=True)


Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def rows(run: Callable[..., torch.Tensor], form: str, batch: Batch) -> torch.Tensor:
    """Return the result's rows that are words."""
    jagged, padded, words = batch
    return run(padded, words)[words] if form.startswith("padded") else run(jagged).values()


def check(runs: Mapping[str, Callable[..., torch.Tensor]], given: Sequence[Batch]) -> None:
    """Check that all forms give the same result for the first batch."""
    with torch.no_grad():
        first, *others = (rows(run, form, given[0]) for form, run in runs.items())
        for other in others:
            torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-4)


if __name__ == "__main__":
    main()
