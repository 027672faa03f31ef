"""An encoder on sentences of different lengths: jagged tensors next to the same sentences padded, both compiled.

`make bench-jagged`; forward, and a training step. The sentences of a batch have lengths drawn from 1 to 512.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

LAYERS, WIDTH, HEADS, SENTENCES, LONGEST = 4, 256, 4, 16, 512
BATCHES = 3


class Layer(nn.Module):
    """Of an encoder. padding: true where a word is one."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, words: torch.Tensor | None) -> torch.Tensor:
        y = self.norms[0](x)
        q, k, v = (project(y).unflatten(-1, [HEADS, -1]).transpose(1, 2) for project in self.projections[:3])
        mask = None if words is None else words[:, None, None, :]
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.projections[3](attended.transpose(1, 2).flatten(-2))
        return x + self.down(functional.gelu(self.up(self.norms[1](x))))


class Encoder(nn.Module):
    """Layers one behind the other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor, words: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, words)
        return x


def batches() -> list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Each as a jagged tensor, padded, and where the padded one has words."""
    made = []
    for _ in range(BATCHES):
        lengths = torch.randint(1, LONGEST + 1, (SENTENCES,)).tolist()
        sentences = [torch.randn(n, WIDTH) for n in lengths]
        padded = nn.utils.rnn.pad_sequence(sentences, batch_first=True)
        words = torch.arange(padded.shape[1])[None, :] < torch.tensor(lengths)[:, None]
        made.append((torch.nested.nested_tensor(sentences, layout=torch.jagged), padded, words))
    return made


def seconds(call: Callable[[int], None]) -> list[float]:
    """Of a call for each batch: the median of two rounds, behind one that is not counted."""
    times: list[list[float]] = [[] for _ in range(BATCHES)]
    for turn in range(3):
        for i in range(BATCHES):
            start = time.perf_counter()
            call(i)
            if turn:
                times[i].append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def main() -> None:
    """Print a table: sums over the batches, and the padded one's over the jagged one's."""
    torch.manual_seed(0)
    model, given = Encoder(), batches()
    count = sum(int(words.sum()) for _, _, words in given) / sum(words.numel() for _, _, words in given)
    print(f"{LAYERS} layers of {WIDTH}, {SENTENCES} sentences a batch; {count:.0%} of the padded words are words")
    print("| | jagged, ms | padded, ms | padded / jagged |\n| --- | ---: | ---: | ---: |")
    for backend in ("hlo_disc", "eager"):
        own = torch.compile(model, backend=backend, dynamic=True)

        def forward(i: int, form: str, own: Callable[..., torch.Tensor] = own) -> torch.Tensor:
            jagged, padded, words = given[i]
            return own(jagged).values() if form == "jagged" else own(padded, words)[words]

        def step(i: int, form: str, forward: Callable[..., torch.Tensor] = forward) -> None:
            forward(i, form).square().mean().backward()
            model.zero_grad()

        for name, call, grad in (("forward", forward, False), ("training step", step, True)):
            total = {}
            for form in ("jagged", "padded"):
                with torch.set_grad_enabled(grad):
                    total[form] = 1e3 * sum(seconds(lambda i, call=call, form=form: call(i, form)))
            print(
                f"| {backend}, {name} | {total['jagged']:.0f} | {total['padded']:.0f} | "
                f"{total['padded'] / total['jagged']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
