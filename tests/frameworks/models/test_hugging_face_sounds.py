"""Hugging Face's models of sounds and of series of numbers, next to eager mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from check import Model, check
from small import BATCHES, TEXTS, row

# Of 640 numbers each, and in windows.
SOUNDS = [(2, 640), (3, 640), (1, 640), (5, 640)]
LAYERS = {
    "conv_dim": [16, 16, 16], "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "mask_time_prob": 0.0, "layerdrop": 0.0,
    "hidden_dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "feat_proj_dropout": 0.0,
    "final_dropout": 0.0,
}  # fmt: skip
FORECAST = {
    "prediction_length": 4, "context_length": 12, "lags_sequence": [1, 2, 4], "num_time_features": 2,
    "num_static_categorical_features": 1, "cardinality": [3], "embedding_dimension": [2], "d_model": 16,
    "encoder_layers": 1, "decoder_layers": 1,
}  # fmt: skip


def waves(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(shape)}


def channel(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    return {"input_values": torch.randn(shape[0], 1, shape[1])}


def spectra(*shape: int, words: int = 0) -> Callable[[int], dict[str, torch.Tensor]]:
    """Return a function that makes spectra of so many sounds, and with `words` the beginnings of as many texts."""

    def make(batch: int) -> dict[str, torch.Tensor]:
        given = {"input_features": torch.randn(batch, *shape)}
        return given | ({"decoder_input_ids": torch.randint(3, 99, (batch, words))} if words else {})

    return make


def spoken(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    return waves(shape) | {"decoder_input_ids": torch.randint(3, 79, (shape[0], 5))}


def series(batch: int) -> dict[str, torch.Tensor]:
    """Return series of 16 past numbers, of which four come before the rest, and of four future ones."""
    return {
        "past_values": torch.randn(batch, 16), "past_time_features": torch.randn(batch, 16, 2),
        "past_observed_mask": torch.ones(batch, 16), "future_values": torch.randn(batch, 4),
        "future_time_features": torch.randn(batch, 4, 2),
        "static_categorical_features": torch.zeros(batch, 1, dtype=torch.int64),
    }  # fmt: skip


def patches(batch: int) -> dict[str, torch.Tensor]:
    return {"past_values": torch.randn(batch, 32, 3)}


def sound(name: str, inputs: Any = waves, shapes: Any = SOUNDS, **fields: Any) -> Model:
    return row(name, inputs, shapes, **fields)


MODELS: dict[str, Model] = {
    "ast": sound("ASTModel", lambda b: {"input_values": torch.randn(b, 24, 16)}, BATCHES, trained=True, max_length=24,
        num_mel_bins=16, patch_size=8, frequency_stride=6, time_stride=6),
    "data2vec audio": sound("Data2VecAudioModel", **{**LAYERS, "num_conv_pos_embeddings": 2,
        "conv_pos_kernel_size": 5}),
    "dac": sound("DacModel", channel, encoder_hidden_size=8, downsampling_ratios=[2, 4], n_codebooks=2,
        codebook_size=16, codebook_dim=4, decoder_hidden_size=16, upsampling_ratios=[4, 2], hidden_size=32),
    "hubert": sound("HubertModel", **LAYERS),
    "musicgen": sound("MusicgenForCausalLM", lambda s: {"input_ids": torch.randint(0, 98, (s[0] * 2, s[1]))}, TEXTS,
        num_codebooks=2),
    "sew": sound("SEWModel", **{**LAYERS, "squeeze_factor": 2}),
    "speech2text": sound("Speech2TextForConditionalGeneration", spectra(24, 16, words=5), BATCHES,
        input_feat_per_channel=16, conv_channels=16, max_source_positions=64, max_target_positions=64, dropout=0.0,
        conv_kernel_sizes=[5, 5]),
    "speecht5": sound("SpeechT5ForSpeechToText", spoken, **{**LAYERS, "vocab_size": 81}),
    "unispeech": sound("UniSpeechModel", **LAYERS),
    "univnet": sound("UnivNetModel", lambda s: {"input_features": torch.randn(s[0], s[1], 16),
        "noise_sequence": torch.randn(s[0], s[1], 8)}, TEXTS, model_in_channels=8, model_hidden_channels=8,
        num_mel_bins=16, kernel_predictor_hidden_channels=8),
    "wav2vec2": sound("Wav2Vec2Model", **LAYERS),
    "whisper": sound("WhisperForConditionalGeneration", spectra(8, 32, words=5), BATCHES, num_mel_bins=8,
        max_source_positions=16, max_target_positions=16),
    "autoformer": sound("AutoformerModel", series, BATCHES, **FORECAST, label_length=4),
    "informer": sound("InformerModel", series, BATCHES, **FORECAST),
    "time series": sound("TimeSeriesTransformerModel", series, BATCHES, **FORECAST),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_sounds_or_series(name: str) -> None:
    check(MODELS[name])
