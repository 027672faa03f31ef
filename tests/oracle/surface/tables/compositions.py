"""The rows of `surface.compositions`."""

from __future__ import annotations

from surface.row import Table, each, on, table

_X = "f32[n, 4]:calm"
_V = "f32[n]:calm"
_QKV = ("f32[2, n, 16]:calm",) * 3

COMPOSITIONS: Table = table(
    each("rms_norm batch_norm", on(_X, "f32[4]")),
    each("attention causal_attention", on(*_QKV)),
    each("convolution", on("f32[2, n, n, 3]:calm", "f32[3, 3, 3, 4]:calm")),
    each("strided_convolution dilated_causal_convolution", on("f32[2, n, 3]:calm", "f32[3, 3, 4]:calm")),
    each("depthwise_convolution", on("f32[2, n, 3]:calm", "f32[3, 1, 3]:calm")),
    each("max_pool average_pool differences every_other rows_mapped rows_one_by_one", on(_X)),
    each(
        "reversed_sum median_distance spectrum powers branch running_max newton_step stopped straight_through "
        "log1pexp clipped_gradient constant_of_arrays",
        on(_V),
    ),
    each("huber linear_recurrence pytrees unused sorted_by gaussian_process", on(_V, _V)),
    each("pairwise contrastive", on(_X, _X)),
    each("cross_entropy one_hot_loss", on("f32[n, 5]:calm", "i32[n]:below:5")),
    each("checkpointed checkpointed_scan", on("f32[n, 4]:unit", "f32[4, 4]:unit")),
    each("whitened power_iteration", on("f32[n, n]:definite")),
    {
        "mlp": [on(_X, "f32[4, 8]:calm", "f32[8]", "f32[8, 3]:calm")],
        "layer_norm": [on(_X, "f32[4]", "f32[4]")],
        # Of groups of two, what is alike leaves nothing but rounding errors of its variance.
        "group_norm": [on("f32[n, 16]:calm")],
        "rotary": [on("f32[n, 8]:calm")],
        "lstm": [on("f32[n, 3]:calm", "f32[3, 16]:calm", "f32[4, 16]:calm")],
        "rnn_backwards": [on(_X, "f32[4, 4]:calm")],
        "embedding": [on("f32[10, 4]:calm", "i32[n]:below:10")],
        "dropout": [on("key[]", _X)],
        "reparametrised": [on("key[]", _X, _X)],
        "set_and_add": [on(_V, "f32[2]")],
        "segment_sum": [on(_X, "i32[n]:below:4")],
        "message_passing": [on(_X, "i32[n]:below:n", "i32[n]:below:n")],
        "masked_mean": [on(_X, "bool[n, 4]")],
        "top_three": [on("f32[n, 5]:calm")],
        "log_likelihood": [on("f32[n, n]:definite", _V)],
        "least_squares": [
            on("f32[9, 4]:regular", "f32[9]:calm", call=lambda f, a, y: f(a, y)),
            on("f32[n, n]:regular", _V),
        ],
        "nuclear_norm": [on("f32[n, 4]:calm")],
        "filtered": [on(_V, "f32[3]")],
        "switch": [on("i32[1]:below:3", _V)],
        "mixed_types": [on("bf16[n, 8]:calm", "bf16[8, 3]:calm")],
    },
)
