"""The sentence embeddings of sentence_embedding.py with Hugging Face's BERT in PyTorch, compiled by hlo_disc.

One compilation serves all batches, of one sentence and of many; the vectors are compared with those of the JAX model.

    python examples/sentence_embedding_torch.py
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import torch
from minilm import embed, load_params, load_tokenizer, model_folder, tokenize
from safetensors.torch import load_file
from transformers import BertConfig, BertModel

import hlo_disc
import hlo_disc.torch

SENTENCES = Path(__file__).with_name("sentences.txt")
BATCHES = (3, 17, 2, 9, 5)


class Embedding(torch.nn.Module):
    """Means of BERT's hidden states over the tokens of a sentence, of length 1."""

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
    texts = SENTENCES.read_text().splitlines()
    tokenizer, params = load_tokenizer(), load_params()
    model = Embedding().eval()
    compiled = torch.compile(model, backend="hlo_disc", dynamic=True, options={"freeze": True})
    ours = hlo_disc.jit(embed)
    with torch.no_grad():
        for size in BATCHES:
            batch, texts = texts[:size], texts[size:]
            ids, mask = tokenize(tokenizer, batch)
            tensors = torch.from_numpy(ids).long(), torch.from_numpy(mask).long()
            start = time.perf_counter()
            vectors = compiled(*tensors).numpy()
            seconds = time.perf_counter() - start
            apart = np.abs(vectors - np.asarray(ours(params, ids, mask))).max()
            eager = np.abs(vectors - model(*tensors).numpy()).max()
            print(f"{ids.shape}: {seconds:.3f} s; apart from the JAX model {apart:.1e}, from eager mode {eager:.1e}")
    print(hlo_disc.torch.explain())


if __name__ == "__main__":
    main()
