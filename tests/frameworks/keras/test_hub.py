"""Families of keras-hub with random weights, a small one of each: one program for all lengths, next to eager mode.

keras-hub wants tensorflow-text, which wants another TensorFlow than the one for CPUs alone. Models need neither it nor
data, so `.venv-tensorflow/bin/pip install --no-deps keras-hub kagglehub regex` is what these tests need; without it
they are skipped.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import hlo_disc.tensorflow

hub = pytest.importorskip("keras_hub")
# Arguments of models, of which each has some.
SMALL: dict[str, Any] = {
    "vocabulary_size": 60, "vocab_size": 60, "num_layers": 2, "num_heads": 4, "num_attention_heads": 4,
    "num_query_heads": 4, "num_key_value_heads": 2, "hidden_dim": 32, "hidden_size": 32, "embedding_dim": 16,
    "intermediate_dim": 48, "head_dim": 8, "head_size": 8, "moe_intermediate_dim": 16, "num_experts": 4, "top_k": 2,
    "shared_expert_intermediate_size": 16, "shared_expert_intermediate_dim": 16, "max_sequence_length": 64,
    "num_layers_enc": 2, "num_layers_dec": 2, "filter_dim": 16, "encoder_num_layers": 2, "decoder_num_layers": 2,
    "encoder_num_heads": 4, "decoder_num_heads": 4, "attention_bias": False, "attention_dropout": 0.0,
    "mlp_bias": False, "layer_norm_epsilon": 1e-6, "max_position_embeddings": 64, "rope_theta": 10000.0,
    "partial_rotary_factor": 1.0, "rope_layer_enabled_list": [True, False], "image_size": 16, "bucket_size": 8,
    "encoder_hidden_dim": 32, "encoder_intermediate_dim": 48, "encoder_num_attention_heads": 4,
    "encoder_num_key_value_heads": 2, "encoder_head_dim": 8, "decoder_hidden_dim": 32, "decoder_intermediate_dim": 48,
    "decoder_num_attention_heads": 4, "decoder_num_key_value_heads": 2, "decoder_head_dim": 8,
}  # fmt: skip
# What some have otherwise.
OWN: dict[str, dict[str, Any]] = {
    "Gemma3": {"image_size": None, "vision_encoder": None},
    "SmolLM": {"layer_types": ["full_attention"] * 2},
    "SmolLM3": {"layer_types": ["full_attention"] * 2},
    "Phi3": {"max_sequence_length": 64, "pretraining_sequence_length": 64},
    "RWKV7": {"gate_lora": 8, "mv_lora": 8, "aaa_lora": 8, "decay_lora": 8},
    "T5Gemma": {"encoder_layer_types": ["full_attention"] * 2, "decoder_layer_types": ["full_attention"] * 2},
    "Whisper": {"max_encoder_sequence_length": 128, "max_decoder_sequence_length": 64},
}
WORDS = (
    "Albert Bart Bert Bloom DebertaV3 DistilBert ESM ESM2 EdRec Electra FNet Falcon GPT2 GPTNeoX Gemma Gemma3 "
    "GptOss Llama Llama3 Mistral Mixtral OPT Phi3 Qwen Qwen2 Qwen3 Qwen3Moe QwenMoe RWKV7 Roberta RoformerV2 "
    "SmolLM SmolLM3 T5 T5Gemma Whisper XLMRoberta XLNet"
).split()
FIXED = {"RWKV7", "T5"}  # which Keras traces for the lengths of a call alone
SHAPES = [(2, 8), (3, 16), (1, 24), (5, 32)]


def made(name: str) -> Any:
    kind = getattr(hub.models, f"{name}Backbone")
    known = {**SMALL, **OWN.get(name, {})}
    wanted = inspect.signature(kind.__init__).parameters
    needed = {key for key, p in wanted.items() if p.default is inspect.Parameter.empty} | OWN.get(name, {}).keys()
    return kind(**{key: known[key] for key in wanted if key in known and key in needed | {"max_sequence_length"}})


def given(model: Any, shape: tuple[int, int]) -> dict[str, tf.Tensor]:
    """Return arguments of a model: words, of which the last are padding, or features."""
    rng = np.random.default_rng(shape[1])
    arguments = {}
    for name, spec in model.input.items():
        if "mask" in name:
            x = np.ones(shape, spec.dtype)
            x[1:, -2:] = 0
        elif "segment" in name:
            x = np.zeros(shape, spec.dtype)
        elif len(spec.shape) == 3:
            x = rng.normal(size=(shape[0], 2 * shape[1], spec.shape[2])).astype(spec.dtype)
        else:
            x = rng.integers(1, 60, shape).astype(spec.dtype)
        arguments[name] = tf.constant(x)
    return arguments


@pytest.mark.parametrize("name", WORDS)
def test_family(name):
    model = made(name)
    own = hlo_disc.tensorflow.jit(lambda x: model(x, training=False))
    for shape in SHAPES:
        x = given(model, shape)
        for a, b in zip(tf.nest.flatten(own(x)), tf.nest.flatten(model(x, training=False)), strict=True):
            np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-3, atol=1e-4)
    assert len(own.programs()) == (len(SHAPES) if name in FIXED else 1)
