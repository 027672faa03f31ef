"""The public functions without a row in the table, each with the reason.

REFUSED are those that `jax.jit` refuses, as a test verifies: by the name, a row whose call must raise in `jax.jit`.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp

from surface.row import Row, on

_TYPES = "about dtypes alone: its result is no array"
_TEXT = "makes text or changes how arrays are printed"
_FILES = "reads or writes files or other memory: its arguments are no arrays"
_OBJECTS = "takes or makes Python objects that are no arrays"
_DEVICES = "a message between devices: means something only under jax.shard_map"

_DOT = (((2,), (2,)), ((0,), (0,)))
_MXFP8 = jax.nn.get_scaled_dot_general_config("mxfp8")


def _operands(x: jax.Array) -> tuple[jax.Array, ...]:
    """A narrow matrix as both operands, then the scales of their blocks."""
    narrow, scales = x.astype(jnp.float8_e4m3fn), jnp.ones((*x.shape[:2], 1), jnp.float8_e8m0fnu)
    return narrow, narrow, scales, scales


EXCLUDED: Mapping[str, str] = {
    **dict.fromkeys(
        ["jax.numpy.can_cast", "jax.numpy.isdtype", "jax.numpy.issubdtype", "jax.numpy.promote_types",
         "jax.numpy.result_type", "jax.lax.dtype", "jax.random.key_dtype"], _TYPES),
    **dict.fromkeys(
        ["jax.numpy.array_repr", "jax.numpy.array_str", "jax.numpy.get_printoptions", "jax.numpy.printoptions",
         "jax.numpy.set_printoptions"], _TEXT),
    **dict.fromkeys(
        ["jax.numpy.fromfile", "jax.numpy.frombuffer", "jax.numpy.fromiter", "jax.numpy.fromstring", "jax.numpy.load"],
        _FILES),
    **dict.fromkeys(
        ["jax.numpy.iterable", "jax.numpy.einsum_path", "jax.lax.ConvGeneralDilatedDimensionNumbers",
         "jax.lax.DotDimensionNumbers", "jax.lax.PrecisionLike", "jax.lax.conv_general_permutations",
         "jax.nn.get_scaled_dot_general_config"], _OBJECTS),
    **dict.fromkeys(
        ["jax.lax.pcast", "jax.lax.precv", "jax.lax.psend", "jax.lax.ragged_all_to_all"], _DEVICES),
    **dict.fromkeys(["jax.lax.after_all", "jax.lax.create_token"], "makes tokens, which are no arrays"),
}  # fmt: skip

REFUSED: Mapping[str, Row] = {
    "jax.numpy.save": on("f32[n]", call=lambda f, x: f("/dev/null", x)),
    "jax.numpy.savez": on("f32[n]", call=lambda f, x: f("/dev/null", x)),
    "jax.numpy.from_dlpack": on("f32[n]"),
    "jax.numpy.trim_zeros": on("f32[n]"),
    "jax.lax.pbroadcast": on("f32[n, 3]", call=lambda f, x: jax.vmap(lambda row: f(row, "i", 0), axis_name="i")(x)),
    # XLA:CPU has no such product.
    "jax.nn.scaled_matmul": on("bf16[1, n, 32]:unit", call=lambda f, x: f(*_operands(x))),
    "jax.nn.scaled_dot_general": on("bf16[2, n, 32]:unit", call=lambda f, x: f(x, x, _DOT, configs=[_MXFP8] * 3)),
}
