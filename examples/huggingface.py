"""Hugging Face's BERT and GPT-2 in PyTorch with random weights, compiled once by hlo_disc, at shapes that change.

python examples/huggingface.py --layers 2
"""

from __future__ import annotations

import time

import click
import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel

import hlo_disc.torch

SHAPES = ((2, 17), (3, 64), (4, 128), (2, 77))


@click.command()
@click.option("--layers", default=12, show_default=True, help="Layers of each model.")
def main(layers: int) -> None:
    """Compile both models, and compare results and times with eager mode."""
    torch.manual_seed(0)
    models = {
        "BERT": BertModel(BertConfig(num_hidden_layers=layers)).eval(),
        "GPT-2": GPT2LMHeadModel(GPT2Config(n_layer=layers)).eval(),
    }
    for name, model in models.items():
        call = {} if name == "BERT" else {"use_cache": False}
        compiled = torch.compile(model, backend="hlo_disc", dynamic=True, options={"freeze": True})
        with torch.no_grad():
            for shape in SHAPES:
                ids = torch.randint(0, 30000, shape)
                wanted, got = model(input_ids=ids, **call)[0], compiled(input_ids=ids, **call)[0]
                apart = (wanted - got).abs().max().item()
                times = []
                for f in (model, compiled):
                    start = time.perf_counter()
                    f(input_ids=ids, **call)
                    times.append(time.perf_counter() - start)
                ratio = times[0] / times[1]
                print(f"{name} {shape}: {1e3 * times[1]:.1f} ms, eager mode {ratio:.2f} x that; apart {apart:.1e}")
    print(hlo_disc.torch.explain())


if __name__ == "__main__":
    main()
