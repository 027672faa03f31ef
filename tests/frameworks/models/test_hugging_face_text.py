"""Hugging Face's encoders, encoders with decoders, and decoders that do more than attend, next to eager mode."""

from __future__ import annotations

from typing import Any

import pytest
from check import Model, check
from small import TEXTS, pairs, row, words

# Of one length: PyTorch takes minutes to trace sequences of any length that are cut into chunks.
SENTENCES = [(n, 11) for n in (2, 3, 5, 4)]
CHUNKS = {"num_hidden_layers": 2, "mamba_d_state": 8}


def text(name: str, inputs: Any = words, shapes: Any = TEXTS, **fields: Any) -> Model:
    return row(name, inputs, shapes, **fields)


MODELS: dict[str, Model] = {
    "albert": text("AlbertModel", trained=True, hidden_act="gelu_new"),
    "bert": text("BertForSequenceClassification", trained=True),
    "bert masked": text("BertForMaskedLM"),
    "big bird": text("BigBirdModel", attention_type="original_full"),
    "camembert": text("CamembertModel"),
    "canine": text("CanineModel", shapes=[(2, 16), (3, 24), (1, 20), (4, 33)], downsampling_rate=4,
        local_transformer_stride=8, num_hash_buckets=50, num_hash_functions=4),
    "conv bert": text("ConvBertModel", head_ratio=2),
    "data2vec text": text("Data2VecTextModel"),
    "deberta": text("DebertaModel", relative_attention=True, pos_att_type=["c2p", "p2c"], max_relative_positions=16),
    "deberta v2": text("DebertaV2Model", relative_attention=True, pos_att_type=["c2p", "p2c"],
        max_relative_positions=16, position_buckets=8, share_att_key=True, norm_rel_ebd="layer_norm",
        conv_kernel_size=3, conv_act="gelu"),
    "distilbert": text("DistilBertModel", trained=True, dim=32, n_layers=1, n_heads=4, hidden_dim=48, dropout=0.0,
        attention_dropout=0.0),
    "electra": text("ElectraModel", trained=True),
    "fnet": text("FNetModel", lambda shape: words(shape, padded=False)),
    "funnel": text("FunnelModel", block_sizes=[1, 1], num_decoder_layers=1, d_inner=48, n_head=4, d_head=8),
    "modern bert": text("ModernBertModel", global_attn_every_n_layers=1, local_attention=6),
    "mra": text("MraModel", block_per_row=2),
    "xlnet": text("XLNetModel", n_layer=2, d_inner=48, dropout=0.0),
    "bart": text("BartForConditionalGeneration", pairs),
    "bamba": text("BambaForCausalLM", shapes=SENTENCES, mamba_n_heads=4, mamba_d_head=16, mamba_n_groups=1,
        mamba_chunk_size=8, attn_layer_indices=[1], **CHUNKS),
    "mamba2": text("Mamba2ForCausalLM", shapes=SENTENCES, num_heads=8, head_dim=8, n_groups=2, chunk_size=8),
    "zamba2": text("Zamba2ForCausalLM", shapes=SENTENCES, mamba_ngroups=1, n_mamba_heads=8, mamba_headdim=8,
        chunk_size=8, layers_block_type=["mamba", "hybrid"], use_mamba_kernels=False, attention_head_dim=16,
        attention_hidden_size=64, **CHUNKS),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_text(name: str) -> None:
    check(MODELS[name])
