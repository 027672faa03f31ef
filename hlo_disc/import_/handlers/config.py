"""A custom call's dictionary of attributes as plain data: (name, kind, dtype, content) sorted by name.

The kinds are those of the XLA FFI. The content of scalar and array is their elements' bytes in hexadecimal digits, of
string its text, of dictionary a nested tuple. So it can be saved, compared, and passed to the runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from hlo_disc.mlir import ir

if TYPE_CHECKING:
    from hlo_disc.import_.jax_edge.jax_callbacks import Callback

# What each attribute is: its kind and dtype, and its content.
Setting: TypeAlias = "tuple[str, str, str | Config | Callback]"
Config: TypeAlias = "tuple[tuple[str, str, str, str | Config | Callback], ...]"

_ARRAYS = (
    (ir.DenseBoolArrayAttr, "bool"),
    (ir.DenseI8ArrayAttr, "int8"),
    (ir.DenseI16ArrayAttr, "int16"),
    (ir.DenseI32ArrayAttr, "int32"),
    (ir.DenseI64ArrayAttr, "int64"),
    (ir.DenseF32ArrayAttr, "float32"),
    (ir.DenseF64ArrayAttr, "float64"),
)
_FLOATS = {"f32": np.float32, "f64": np.float64}


def config_of(dictionary: ir.DictAttr) -> Config:
    """Convert a dictionary. Raises ValueError for an attribute that the XLA FFI has no form for."""
    names = sorted(dictionary[i].name for i in range(len(dictionary)))
    return tuple((name, *_attribute(name, dictionary[name])) for name in names)


def _attribute(name: str, attribute: ir.Attribute) -> Setting:
    if isinstance(attribute, ir.StringAttr):
        return "string", "", attribute.value
    if isinstance(attribute, ir.DictAttr):
        return "dictionary", "", config_of(attribute)
    if isinstance(attribute, ir.BoolAttr):
        return _elements("scalar", np.array(attribute.value, np.bool_))
    if isinstance(attribute, ir.IntegerAttr):
        kind = str(attribute.type)
        width = 64 if kind == "index" else int(kind.lstrip("sui"))
        unsigned = kind.startswith("u")
        if width in (8, 16, 32, 64):
            value = attribute.value % (1 << width)
            return _elements(
                "scalar", np.array(value, f"u{width // 8}").view(f"{'u' if unsigned else 'i'}{width // 8}")
            )
    if isinstance(attribute, ir.FloatAttr) and str(attribute.type) in _FLOATS:
        return _elements("scalar", np.array(attribute.value, _FLOATS[str(attribute.type)]))
    for array_kind, dtype in _ARRAYS:
        if isinstance(attribute, array_kind):
            return _elements("array", np.array(list(attribute), dtype))
    if isinstance(attribute, ir.DenseElementsAttr):
        array = np.asarray(attribute)
        if array.ndim <= 1 and array.dtype.kind in "biuf":
            return _elements("array", array)
    raise ValueError(f"its attribute {name} = {attribute} has no form in the XLA FFI")


def _elements(kind: str, array: np.ndarray) -> tuple[str, str, str]:
    return kind, array.dtype.name, np.ascontiguousarray(array).tobytes().hex()
