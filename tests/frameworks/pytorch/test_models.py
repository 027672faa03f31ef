"""Hugging Face's models with random weights, small ones of each kind, next to eager mode at shapes that change.

A model has as many graphs as Dynamo finds for any backend, and each is compiled at most twice for all shapes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import depth
import pytest
import torch
import transformers as hf
from torch import nn

ours = importlib.import_module("hlo_disc.torch.backend")
WHOLE = {"fallback": False}

TEXTS = [(2, 7), (3, 11), (6, 16), (5, 5), (4, 13)]
IMAGES = [(2, 32, 32), (4, 32, 64), (3, 64, 32), (2, 48, 48), (5, 64, 64)]
BATCHES = [(2, 32, 32), (4, 32, 32), (3, 32, 32), (5, 32, 32), (7, 32, 32)]

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 37}
WORDS = {"vocab_size": 99, "max_position_embeddings": 64}
EYES = {"image_size": 32, "patch_size": 8}


def words(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """Return sentences that are padded on the right, but for the first."""
    mask = torch.ones(shape, dtype=torch.int64)
    mask[1:, shape[1] - 2 :] = 0
    return {"input_ids": torch.randint(3, 99, shape), "attention_mask": mask}


def pictures(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(shape[0], 3, *shape[1:])}


def pairs(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    batch, length = shape
    return words(shape) | {"decoder_input_ids": torch.randint(3, 99, (batch, length + 1))}


def sounds(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return {"input_features": torch.randn(shape[0], 8, 32)}


def both(shape: tuple[int, ...]) -> dict[str, torch.Tensor]:
    return words((shape[0], 7)) | pictures((shape[0], 32, 32))


def marked(inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Mark the batch as a size that changes. The images of one model have one size."""
    for x in inputs.values():
        torch._dynamo.mark_dynamic(x, 0)
    return inputs


def clip() -> Any:
    text = {**SMALL, "vocab_size": 99, "max_position_embeddings": 64, "projection_dim": 16, "eos_token_id": 98}
    return hf.CLIPConfig(text_config=text, vision_config={**SMALL, **EYES}, projection_dim=16)


def detr() -> Any:
    backbone = hf.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in
             (("layers", 1), ("attention_heads", 4), ("ffn_dim", 37))}  # fmt: skip
    return hf.DetrConfig(
        use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=backbone, d_model=32,
        num_queries=6, **sizes,
    )  # fmt: skip


# name: (configuration, model, inputs of a shape, shapes, attention)
ATTENTIONS = ("eager", "sdpa")
MODELS: dict[str, tuple[Callable[[], Any], type, Any, Any, tuple[str, ...]]] = {
    "bert": (lambda: hf.BertConfig(**SMALL, **WORDS), hf.BertModel, words, TEXTS, ATTENTIONS),
    "roberta": (lambda: hf.RobertaConfig(**SMALL, **WORDS), hf.RobertaModel, words, TEXTS, ATTENTIONS),
    "distilbert": (
        lambda: hf.DistilBertConfig(**WORDS, dim=32, n_layers=2, n_heads=4, hidden_dim=37),
        hf.DistilBertModel, words, TEXTS, ATTENTIONS,
    ),
    "gpt2": (
        lambda: hf.GPT2Config(vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4, use_cache=False),
        hf.GPT2LMHeadModel, words, TEXTS, ATTENTIONS,
    ),
    "llama": (
        lambda: hf.LlamaConfig(**SMALL, **WORDS, num_key_value_heads=2, use_cache=False),
        hf.LlamaForCausalLM, words, TEXTS, ATTENTIONS,
    ),
    "mistral": (
        lambda: hf.MistralConfig(**SMALL, **WORDS, num_key_value_heads=2, use_cache=False, sliding_window=6),
        hf.MistralForCausalLM, words, TEXTS, ATTENTIONS,
    ),
    "t5": (
        lambda: hf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=37, num_layers=2, num_heads=4, use_cache=False),
        hf.T5ForConditionalGeneration, pairs, TEXTS, ATTENTIONS,
    ),
    "whisper": (
        lambda: hf.WhisperConfig(
            d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=37, num_mel_bins=8,
            max_source_positions=16,
        ),
        hf.models.whisper.modeling_whisper.WhisperEncoder, sounds, BATCHES, ATTENTIONS,
    ),
    "clip": (clip, hf.CLIPModel, both, BATCHES, ATTENTIONS),
    "vit": (lambda: hf.ViTConfig(**SMALL, **EYES), hf.ViTModel, pictures, BATCHES, ATTENTIONS),
    "swin": (
        lambda: hf.SwinConfig(
            image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4
        ),
        hf.SwinModel, pictures, BATCHES, ATTENTIONS,
    ),
    "resnet": (
        lambda: hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic"),
        hf.ResNetModel, pictures, IMAGES, ("eager",),
    ),
    "mobilenet_v2": (
        lambda: hf.MobileNetV2Config(depth_multiplier=0.25, min_depth=8, image_size=32),
        hf.MobileNetV2Model, pictures, BATCHES, ("eager",),
    ),
    "efficientnet": (
        lambda: hf.EfficientNetConfig(
            width_coefficient=0.25, depth_coefficient=0.25, image_size=32, in_channels=[8, 8], out_channels=[8, 16],
            kernel_sizes=[3, 5], strides=[1, 2], num_block_repeats=[1, 1], expand_ratios=[1, 2], hidden_dim=320,
        ),
        hf.EfficientNetModel, pictures, BATCHES, ("eager",),
    ),
    "detr": (detr, hf.DetrForObjectDetection, pictures, BATCHES, ATTENTIONS),
}  # fmt: skip
CASES = [
    (name, attention) for turn, (name, row) in enumerate(MODELS.items()) for attention in depth.some(row[-1], turn)
]


class Counter:
    """A backend that counts its graphs."""

    def __init__(self, backend: Callable[..., Any]):
        self.backend, self.graphs = backend, 0

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.graphs += 1
        return self.backend(*args, **options)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def tensors(result: Any) -> list[torch.Tensor]:
    leaves = torch.utils._pytree.tree_leaves(dict(result) if isinstance(result, dict) else result)
    return [x for x in leaves if isinstance(x, torch.Tensor)]


def built(model: nn.Module) -> nn.Module:
    """Initialise convolutions so that numbers keep their size. With Hugging Face's they vanish, layer by layer."""
    for layer in model.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight)
    return model.eval()


@pytest.mark.parametrize(("name", "attention"), CASES)
@torch.no_grad()
def test_a_model_is_right_at_every_shape(name: str, attention: str):
    configuration, kind, inputs, shapes, _ = MODELS[name]
    config = configuration()
    # Backbones that have no attention refuse every other kind of it.
    of_parts = {"": attention, "backbone_config": "eager"} if hasattr(config, "backbone_config") else attention
    model = built(kind._from_config(config, attn_implementation=of_parts))
    broken, counter = Counter(torch._dynamo.lookup_backend("eager")), Counter(ours.backend)
    dynamic = None if shapes is BATCHES else True
    torch.compile(model, backend=broken, dynamic=dynamic)(**marked(inputs(shapes[0])))
    torch._dynamo.reset()
    compiled = torch.compile(model, backend=counter, dynamic=dynamic, options=WHOLE)
    for shape in shapes:
        given = marked(inputs(shape))
        found, wanted = tensors(compiled(**given)), tensors(model(**given))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    assert counter.graphs <= 2 * broken.graphs


# Training


class Cells(nn.Module):
    """An LSTM as a loop of four steps over its cell."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(8, 16), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[0], 16)
        for i in range(4):
            h, c = self.cell(x[:, i], (h, c))
        return self.head(h)


class Classifier(nn.Module):
    """A model of Hugging Face's with a linear layer on the mean of its result."""

    def __init__(self, model: nn.Module, width: int):
        super().__init__()
        self.model, self.head = model, nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.model(x)[0]
        return self.head(made.mean(1) if made.dim() == 3 else made.mean((2, 3)))


def bert() -> nn.Module:
    config = hf.BertConfig(**SMALL, **WORDS, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return Classifier(hf.BertModel._from_config(config, attn_implementation="sdpa"), 32)


def resnet18() -> nn.Module:
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[2, 2, 2, 2], layer_type="basic")
    return Classifier(hf.ResNetModel(config), 16)


TRAINED = {
    "bert": (bert, lambda i: torch.randint(3, 99, (2 + i % 3, 5 + i % 7))),
    "resnet18": (resnet18, lambda i: torch.randn(4 + i % 3, 3, 48 + 16 * (i % 2), 32)),
    "cells": (Cells, lambda i: torch.randn(3 + i % 5, 4, 8)),
}


def trained(model: nn.Module, run: Callable[..., Any], inputs: Callable[[int], torch.Tensor]) -> list[float]:
    """Return the losses of 50 steps, so small that differences of rounding do not grow.

    At ten times the rate weights that differ by 1e-7 change the losses of a ResNet by 0.2, in eager mode too.
    """
    torch.manual_seed(1)
    optimizer, losses = torch.optim.Adam(model.parameters(), 1e-4), []
    for i in range(50):
        x = inputs(i)
        loss = nn.functional.cross_entropy(run(x), torch.arange(len(x)) % 3)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", TRAINED)
def test_training_is_as_in_eager_mode(name: str, monkeypatch: pytest.MonkeyPatch):
    make, inputs = TRAINED[name]
    counter = Counter(ours.compile_graph)
    monkeypatch.setattr(ours, "compile_graph", counter)
    losses = []
    for run in (
        lambda model: model,
        lambda model: torch.compile(model, backend="hlo_disc", dynamic=True, options=WHOLE),
    ):
        torch.manual_seed(0)
        model = make().train()
        losses.append(trained(model, run(model), inputs))
    torch.testing.assert_close(losses[1], losses[0], rtol=1e-4, atol=1e-4)
    assert counter.graphs <= 4  # forward and backward, each at most twice
