"""A script that writes docs/ops.md from the op table and the import handlers: `python tools/ops_table.py`.

A test checks that the file is current. The element types of DHLO's ops come from their inference, with one sample an
op.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from hlo_disc.dynamic_hlo.ir.dtypes import FLOATS, INTEGERS, part_dtype
from hlo_disc.dynamic_hlo.ir.graph import Graph, Value
from hlo_disc.dynamic_hlo.ops import table
from hlo_disc.dynamic_hlo.ops.builder import GraphBuilder, make_region
from hlo_disc.dynamic_hlo.passes.complex.expand import expand_complex
from hlo_disc.dynamic_hlo.sizes.dim import Dim
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError, UnsupportedOpError
from hlo_disc.import_.handlers import HANDLERS, distributed
from hlo_disc.mlir import chlo, stablehlo

TARGET = Path(__file__).parent.parent / "docs" / "ops.md"
N = Dim.symbol("n")
ONE, THREE = Dim.const(1), Dim.const(3)
BOOL, I32, I64, F32 = (np.dtype(x) for x in ("bool", "int32", "int64", "float32"))

GROUPS: dict[str, tuple[np.dtype, ...]] = {
    "bool": (BOOL,),
    "int": tuple(d for d in INTEGERS if d.name.startswith("int")),
    "uint": tuple(d for d in INTEGERS if d.name.startswith("uint")),
    "f4 f6 f8": tuple(d for d in FLOATS if d.itemsize == 1),
    "f16 bf16": tuple(d for d in FLOATS if d.itemsize == 2),
    "f32 f64": tuple(d for d in FLOATS if d.itemsize >= 4),
    "complex": (np.dtype(np.complex64), np.dtype(np.complex128)),
}
# The types of a window, a loop or a library's op depend on its region, or on the library.
# Ops that only passes make are not for programs.
OPS = {name: row for name, row in table.OPS.items() if row.dialect}

FIXED = {
    "case": "of any types",
    "while": "of any types",
    "check": "sizes",
    "custom_call": "what the handler takes",
    "dim": "the integers",
}


def _vector(dtype: np.dtype) -> Value:
    return Value(dtype, (N,))


def _scalar(dtype: np.dtype) -> Value:
    return Value(dtype, ())


def _second(dtypes: list[np.dtype]):  # type: ignore[no-untyped-def]
    """Return a region that returns the second half of its arguments."""
    half = len(dtypes) // 2
    return make_region(ShapeFacts(), [(d, ()) for d in dtypes], lambda b, x: x[half:])


def _less(dtype: np.dtype):  # type: ignore[no-untyped-def]
    return make_region(
        ShapeFacts(), [(dtype, ())] * 2, lambda b, x: [b.op("constant", value=np.zeros((), bool))]
    )  # fmt: skip


_NUMBERS = {
    "collapsed_slice_dims": (0,), "operand_batching_dims": (), "start_indices_batching_dims": (),
    "start_index_map": (0,), "index_vector_dim": 1,
}  # fmt: skip
_WINDOW = {
    "window": (THREE,), "strides": (1,), "base_dilations": (1,), "window_dilations": (1,),
    "low": (ONE,), "high": (ONE,),
}  # fmt: skip
_CONVOLUTION = {
    "lhs_spec": (0, 2, 1), "rhs_spec": (2, 1, 0), "out_spec": (0, 2, 1), "strides": (1,), "low": (ONE,), "high": (ONE,),
    "base_dilations": (1,), "window_dilations": (1,), "reversal": (0,), "feature_groups": 1, "batch_groups": 1,
}  # fmt: skip

# operands and attributes of one use of an op, by the element type.
SAMPLES: dict[str, Callable[[np.dtype], tuple[list[Value], dict]]] = {
    "constant": lambda d: ([], {"value": np.zeros((), d)}),
    "iota": lambda d: ([], {"shape": (N,), "dim": 0, "dtype": d}),
    "convert": lambda d: ([_vector(d)], {"dtype": F32}),
    "bitcast_convert": lambda d: ([_vector(d)], {"dtype": part_dtype(d)}),
    "reduce_precision": lambda d: ([_vector(d)], {"exponent_bits": 5, "mantissa_bits": 2}),
    "compare": lambda d: ([_vector(d)] * 2, {"direction": "EQ"}),
    "select": lambda d: ([_vector(BOOL), _vector(d), _vector(d)], {}),
    "broadcast": lambda d: ([_scalar(d)], {"shape": (N,), "dims": ()}),
    "reshape": lambda d: ([_vector(d)], {"shape": (N, ONE)}),
    "transpose": lambda d: ([_vector(d)], {"perm": (0,)}),
    "slice": lambda d: ([_vector(d)], {"start": (Dim.const(0),), "limit": (N,), "stride": (1,)}),
    "reverse": lambda d: ([_vector(d)], {"dims": (0,)}),
    "gather": lambda d: ([_vector(d), _vector(I32)], {**_NUMBERS, "offset_dims": (), "slice_sizes": (ONE,)}),
    "dynamic_slice": lambda d: ([_vector(d), _scalar(I32)], {"sizes": (N,)}),
    "scatter": lambda d: (
        [_vector(d), _vector(I32), _vector(d)],
        {**_NUMBERS, "offset_dims": (), "unique": False, "count": 1, "body": _second([d, d])},
    ),
    "sort": lambda d: ([_vector(d)], {"dim": 0, "stable": True, "count": 1, "body": _less(d)}),
    "concatenate": lambda d: ([_vector(d)] * 2, {"dim": 0}),
    "pad": lambda d: ([_vector(d), _scalar(d)], {"low": (ONE,), "high": (ONE,), "interior": (Dim.const(0),)}),
    "dynamic_update_slice": lambda d: ([_vector(d), _vector(d), _scalar(I32)], {}),
    "reduce": lambda d: ([_vector(d), _scalar(d)], {"dims": (0,), "kind": "add"}),
    "reduce_with": lambda d: ([_vector(d), _scalar(d)], {"dims": (0,), "body": _second([d, d])}),
    "cumulative": lambda d: ([_vector(d), _scalar(d)], {"dim": 0, "reverse": False, "body": _second([d, d])}),
    "reduce_window": lambda d: ([_vector(d), _scalar(d)], {**_WINDOW, "body": _second([d, d])}),
    "select_and_scatter": lambda d: (
        [_vector(d), Value(d, (N,)), _scalar(d)],
        {
            **{name: _WINDOW[name] for name in ("window", "strides", "low", "high")},
            "select": _less(d),
            "body": _second([d, d]),
        },
    ),
    "dot_general": lambda d: (
        [_vector(d)] * 2,
        {"lhs_batch": (), "rhs_batch": (), "lhs_contract": (0,), "rhs_contract": (0,), "dtype": d, "tf32": False},
    ),
    "convolution": lambda d: (
        [Value(d, (N, N, ONE)), Value(d, (THREE, ONE, ONE))],
        {**_CONVOLUTION, "dtype": d},
    ),
    "fft": lambda d: (
        [_vector(d)],
        {"transform": "FFT" if d.kind == "c" else "RFFT", "length": (N,)},
    ),
}


def takes(name: str, dtype: np.dtype) -> bool:
    """Return whether inference and the complex pass accept the op on this element type."""
    row = OPS[name]
    sample = SAMPLES.get(name)
    operands, attrs = sample(dtype) if sample else ([_vector(dtype)] * (row.operands or 1), {})
    builder = GraphBuilder(ShapeFacts())
    inputs = tuple(Value(x.dtype, x.shape, None, i) for i, x in enumerate(operands))
    try:
        results = builder.multi(name, inputs, **attrs)
        names = tuple(f"x{i}" for i in range(len(inputs)))
        expand_complex(Graph(name, inputs, names, results, tuple(builder.ops), builder.facts, {}))
    except (CompileError, UnsupportedOpError):
        return False
    return True


def _cell(name: str, dtypes: tuple[np.dtype, ...]) -> str:
    fit = [d for d in dtypes if takes(name, d)]
    if len(fit) == len(dtypes):
        return "✓"
    return ", ".join(d.name for d in fit)


def _dhlo() -> Iterator[str]:
    yield f"| op | kind | {' | '.join(GROUPS)} |"
    yield f"|---|---|{'---|' * len(GROUPS)}"
    for name, row in sorted(OPS.items()):
        if name in FIXED:
            yield f"| `{name}` | {row.kind} | {FIXED[name]} |{' |' * (len(GROUPS) - 1)}"
        else:
            yield f"| `{name}` | {row.kind} | {' | '.join(_cell(name, d) for d in GROUPS.values())} |"


def dialect_ops() -> list[str]:
    """Return every op of the dialects that StableHLO's Python package has."""
    classes = [c for module in (stablehlo, chlo) for _, c in inspect.getmembers(module, inspect.isclass)]
    return sorted({c.OPERATION_NAME for c in classes if getattr(c, "OPERATION_NAME", "")})


UNSUPPORTED = {name: handler for name, handler in HANDLERS.items() if handler in distributed.UNSUPPORTED}
# Not in the specification, and without a textual form in this version.
ASYNC = ("stablehlo.async_start", "stablehlo.async_done")
# Read as shape arithmetic, or as the end of a region.
STRUCTURE = ("stablehlo.get_dimension_size", "stablehlo.return")


def status(name: str) -> str:
    """Return the treatment of an op: "read", "legalised" or "unsupported"."""
    if name in UNSUPPORTED or name in ASYNC:
        return "unsupported"
    if name in HANDLERS or name in STRUCTURE:
        return "read"
    return "legalised" if name.startswith("chlo.") else "unsupported"


def _listed(wanted: str) -> str:
    return ", ".join(f"`{name}`" for name in dialect_ops() if status(name) == wanted)


def document() -> str:
    """Return the text of docs/ops.md."""
    return f"""\
# Ops and element types

Made by `python tools/ops_table.py` from the op table (`hlo_disc/dynamic_hlo/ops/table.py`) and the import handlers; a
test checks that it is current.

## StableHLO and CHLO

Every op of the two dialects is in one of three groups. Static and dynamic forms are one op here.

**Read** (an op of DHLO, or a few): {_listed("read")}.

**Taken apart** by StableHLO's own `chlo-legalize-to-stablehlo`: {_listed("legalised")}.

**Unsupported**, refused with an error that names the op and the source line: {_listed("unsupported")}.
Collectives and device numbers have the meaning that they have on one device; groups of several devices are refused, as
are quantized types, sparse layouts and custom calls for which no XLA FFI handler is registered.

## DHLO ops × element types

int and uint are those of 2, 4, 8, 16, 32 and 64 bits; f4, f6 and f8 all kinds that ml_dtypes has. Types of fewer than
8 bits take a byte in memory. Narrow floats are computed in f32, and rounded after each op.

{chr(10).join(_dhlo())}

{DIFFERENCES}
{CONFORMANCE}"""


DIFFERENCES = """\
## Where XLA and the specification differ

- `bitcast_convert` of booleans: by the specification, and here, a boolean is one bit, so that an i8 is 8 of them, the
  lowest bit first. XLA takes them for 8 bits each, and makes a result of another shape than the module says. JAX has
  no such casts, nor those between complex numbers, which XLA aborts on: a complex number of 128 bits is two of 64.
- `compare` of integers as UNSIGNED or SIGNED where their type says the other is taken at its word; the specification
  and XLA refuse it. Floats without a sign for every value (f8E8M0FNU, and the FNUZ types, whose NaN is where -0 would
  be) have the total order of the f32 that they are, as in XLA.
- `reduce` with an initial value that is no identity: it counts once. XLA forgets it where all reduced axes are of
  size 1.
- `reduce_precision` to 0 bits of mantissa: NaN stays NaN, as in what XLA compiles. StableHLO's interpreter, and XLA
  where it folds constants, make infinity of it. Numbers below the normal ones are rounded to as many bits fewer, as
  the specification's interpreter does; XLA agrees but for mini floats other than f8E5M2, which it computes in f16.
- `reduce_window` with an initial value that is no identity: to the specification padding, and the holes of a dilated
  operand, are initial values, which count like elements. XLA leaves them out: a window begins with the initial value
  and combines what lies inside. Programs of JAX (functions, and what `jax.export` makes) mean what XLA does; StableHLO
  files and text mean what the specification says. Where a window is a whole axis, XLA takes the initial value for an
  identity, and may count it any number of times; here it counts once.
- `select_and_scatter` with such an initial value: every element begins with it once, as in the specification and XLA.
  StableHLO's interpreter counts it once more where something was selected. A window that lies outside as a whole
  selects nothing.
"""


CONFORMANCE = """\
## Conformance

`make conformance CASES=DIR` runs the cases of the StableHLO project's own test data: modules that hold their inputs and
what must come out. It was last run with jaxlib 0.10.2 on 2 cores with AVX-512.

| cases | pass | |
|---|---|---|
| `testdata` | 1 209 of 1 213 | in 22 s; XLA:CPU passes 1 210, in 25 s |
| `testdata --reopen`: the sizes of its inputs as symbols | 1 134 of 1 138 | 1 138 of 1 213 can be re-opened |
| `interpret` | 230 of 230 | |
| `dynamic`, against XLA at 4 shapes each | 206 of 207 | the last one XLA takes at no size |

Of the 75 cases that are not re-opened 54 have no input with a dimension; the others hold a size in a place where a
symbol has no meaning: slices with constant limits, and constants that were folded from the size. The four failures are
the same in both runs. In each the expected values are farther from the exact result than ours:

| case | largest error, expected | ours | |
|---|---|---|---|
| `conv_general_dilated_float32_2_3_9_float32_12_1_3` | 32 ulp | 2.5 ulp | sums that cancel; ours are fused |
| `cumprod_complex64_8_9` | 2.0e-7 of the value | 1.1e-7 | numbers to 3e4; no products fused with sums |
| `pow_complex64_20_30_complex64_20_30` | 1.7e-6 of the value | 5.2e-8 | XLA fails it too; ours is computed in double |
| `triangular_solve_float32_2_8_8_float32_2_10_8` | 2.8e-6 of the value | 1.7e-6 | XLA fails it too; ill-conditioned |

With `TARGET=emulated-cuda`, and `emulated-rocm`, kernels of GPUs run thread by thread. The first passes 1 195 of 1 213
in `testdata`, the other 1 203, and both passed 204 of 207 in `dynamic`. Three are the first three above. NVIDIA's round
the operands of seven products of f32 to TF32, and `dot_general_int16_4_3_float64_3_6` has a sum that cancels.
`cosh_float32_20_20_chlo`, `sinh_float32_20_20_chlo`, `logistic_float32_20_20` and `exp_complex64_20_20` start from the
2^x that GPUs approximate, on both, and are 2 to 5 ulp from what is expected. Transforms and triangular solves are
refused (`fft_float32_14_15_16_17`, `fft_float64_14_15_16_17`, `triangular_solve_float32_2_8_8_float32_2_10_8`,
`vmap_triangular_solve_a_complex64_4_4_b_complex64_4_1_dynamic`). And `scatter_add_clip0_dynamic` says that its indices
are unique, which inputs drawn at random are not: then both update one element at once, and one of the two is lost.
"""


if __name__ == "__main__":
    TARGET.write_text(document())
