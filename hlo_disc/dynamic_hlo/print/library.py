"""Prints library ops as StableHLO. Attributes `hlo_disc.*` hold what StableHLO's custom calls cannot express."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import element_type
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.ops.families.library import FFT_CALL, ORDERS
from hlo_disc.dynamic_hlo.print.text import dense_array, listed, string, symbol, tensor_type, value_type

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.print.stablehlo import _Printer


def custom_call(printer: _Printer, op: Op) -> tuple[str, ...]:
    """Print a custom call. Operands and results are row-major, as in DHLO; an attribute has the handler's order."""
    attrs = op.attrs
    names = [printer.names[x] for x in op.operands]
    types = [value_type(x) for x in op.operands]
    dynamic = any(not d.is_const for d in attrs["sizes"])
    fields = [
        "api_version = 4 : i32",
        f"backend_config = {_dictionary(attrs['config'])}",
        f"has_side_effect = {str(attrs['effect']).lower()}",
    ]
    fields += [f"{word} = {_orders(attrs[name])}" for name, word in ORDERS.items()]
    aliases = (
        f"#stablehlo.output_operand_alias<output_tuple_indices = [{result}], operand_index = {operand}, "
        "operand_tuple_indices = []>"
        for operand, result in attrs["aliases"]
    )
    fields.append(f"output_operand_aliases = [{', '.join(aliases)}]")
    if dynamic:
        first = len(names)
        for result in op.results:
            name, kind = printer.shape(result.shape)
            names.append(name)
            types.append(kind)
        fields.append(
            f"indices_of_shape_operands = dense<{list(range(first, len(names)))}> : tensor<{len(names) - first}xi64>"
        )
    made = [tensor_type(r.dtype, r.shape) for r in op.results]
    text = f"stablehlo.custom_call @{symbol(attrs['target'])}({', '.join(names)}) {{{', '.join(fields)}}}"
    whole = f"{text} : ({', '.join(types)}) -> ({', '.join(made)})"
    return printer.emit_all(whole, len(made), op.loc)


def _orders(orders: tuple[tuple[int, ...], ...]) -> str:
    return listed(map(dense_array, orders))


def _dictionary(config: tuple[Any, ...]) -> str:
    return (
        "{"
        + ", ".join(f"{string(name)} = {_value(kind, dtype, content)}" for name, kind, dtype, content in config)
        + "}"
    )


def _value(kind: str, dtype: str, content: Any) -> str:
    """Write an attribute's elements as bytes; of a Python function the name."""
    if kind == "callable":
        return string(content.name)
    if kind == "string":
        return string(content)
    if kind == "dictionary":
        return _dictionary(content)
    array = np.frombuffer(bytes.fromhex(content), np.dtype(dtype))
    element = element_type(array.dtype)
    if kind == "array":
        blob = f'"0x{content.upper()}"' if array.size else ""
        return f"dense<{blob}> : tensor<{array.size}x{element}>"
    if element == "i1":
        return str(bool(array[0])).lower()
    if array.dtype.kind == "f":
        return f"0x{int(array.view(f'u{array.dtype.itemsize}')[0]):0{2 * array.dtype.itemsize}X} : {element}"
    return f"{array[0]} : {element}"


def fft(printer: _Printer, op: Op) -> str:
    attrs = op.attrs
    length, transform = attrs["length"], attrs["transform"]
    if all(n.is_const for n in length):
        sizes = ", ".join(map(str, length))
        return printer.op(op, f"stablehlo.fft {printer.operands(op)}, type = {transform}, length = [{sizes}]")
    name, kind = printer.shape(length)
    text = f'stablehlo.custom_call @{FFT_CALL}({printer.operands(op)}, {name}) {{transform = "{transform}"}}'
    return printer.op(op, text, [kind])
