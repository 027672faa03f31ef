"""Ops that TensorFlow's XLA compiles and hlo_disc does not, with reasons for errors and `docs/tensorflow_ops.md`."""

from __future__ import annotations

_ROWS = {
    "variables in parts, one for each of several devices": "AssignVariableXlaConcatND ReadVariableXlaSplitND",
    "random numbers without a seed of their own: take those of tf.random.stateless_*": """
        Multinomial ParameterizedTruncatedNormal RandomShuffle RandomStandardNormal RandomUniform RandomUniformInt
        TruncatedNormal
    """,
    "drawn by one of several methods, as the bounds have it: scale tf.random.stateless_truncated_normal": """
        StatelessParameterizedTruncatedNormal
    """,
    "random numbers that XLA draws in a way of its own": "StochasticCastToInt",
    "quantized types: tf.quantization.fake_quant_* and quantize_and_dequantize are there": """
        Dequantize UniformDequantize UniformQuantize UniformQuantizedAdd UniformQuantizedClipByValue
        UniformQuantizedConvolution UniformQuantizedDot UniformRequantize XlaDequantize
    """,
    "a program runs on one device": "CollectiveAssignGroupV2 CollectiveReduceV2",
    "there is no host program that a compiled function could talk to": "XlaRecv XlaSend",
    "code that is registered with TensorFlow's XLA alone": "XlaCustomCall XlaCustomCallV2",
    "lists of TensorFlow 1: with tf.compat.v1.enable_control_flow_v2() tf.TensorArray makes those that are handled": """
        StackCloseV2 StackPopV2 StackPushV2 StackV2 TensorArrayCloseV3 TensorArrayConcatV3 TensorArrayGatherV3
        TensorArrayGradV3 TensorArrayReadV3 TensorArrayScatterV3 TensorArraySizeV3 TensorArraySplitV3 TensorArrayV3
        TensorArrayWriteV3
    """,
    "a gradient of TensorFlow 1, which is worked out when the op runs: take tf.GradientTape": "SymbolicGradient",
    "TensorFlow makes it of other ops when it runs a graph, and no function has it": """
        _Arg _ArrayToList _EagerConst _FusedBatchNormEx _FusedConv2D _ListToArray _Retval _UnaryOpsComposition
        _XlaAotOnlyVarHandleOp
    """,
}
REASONS: dict[str, str] = {name: reason for reason, names in _ROWS.items() for name in names.split()}
assert len(REASONS) == sum(len(names.split()) for names in _ROWS.values()), "an op has two reasons"
