"""The sentence embeddings of sentence_embedding.py with Hugging Face's BERT in PyTorch, compiled by hlo_disc.

One compilation serves all batches, of one sentence and of many; the vectors are compared with those of the JAX model.

    python examples/sentence_embedding_torch.py
"""

from __future__ import annotations

from typing import Any

import torch
from minilm import Embedder, compare, model_folder
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

import hlo_disc.torch


class Embedding(torch.nn.Module):
    """The mean of BERT's hidden states over the tokens of each sentence, scaled to length 1."""

    def __init__(self) -> None:
        super().__init__()
        folder = model_folder()
        self.bert = BertModel(BertConfig.from_json_file(folder / "config.json"), add_pooling_layer=False)
        weights = load_file(folder / "model.safetensors")
        self.bert.load_state_dict({k: v for k, v in weights.items() if not k.startswith("pooler.")}, strict=False)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask[:, :, None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9))


def main() -> None:
    model = Embedding().eval()
    compiled = torch.compile(model, backend="hlo_disc", dynamic=True, options={"freeze": True})

    def of_arrays(embed: Any) -> Embedder:
        return lambda ids, mask: embed(torch.from_numpy(ids).long(), torch.from_numpy(mask).long()).numpy()

    with torch.no_grad():
        compare(of_arrays(compiled), of_arrays(model), "eager mode")
    print(hlo_disc.torch.explain())


if __name__ == "__main__":
    main()
