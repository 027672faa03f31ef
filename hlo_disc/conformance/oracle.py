"""The results of XLA:CPU for a module with `?` dims: it is refined to concrete argument types, compiled and run.

This module also names the dims of a module: it tries in the refinement which `?` of which inputs are the same size.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from hlo_disc import mlir
from hlo_disc.conformance.cases import functions, set_arguments
from hlo_disc.dynamic_hlo.ir.dtypes import dtype_class, element_type, int_limits
from hlo_disc.import_.stablehlo.decode import Decoder, TypeShape
from hlo_disc.mlir import ir

GLOBAL = "jax.global_constant"
Names = tuple[tuple[str | None, ...], ...]  # of every input's dims; None for a fixed one
InputTypes = Sequence[tuple[np.dtype, tuple[int, ...]]]

# Sizes to try, for the first dim, the second …: 0 and 1 first, then what tells dims apart, then what suits constraints.
_SIZES = [(0,), (1,), (67, 18, 3), (5, 3, 2), (2, 7, 4), (1, 5, 2), (3, 1, 4), (8, 16, 8), (16,), (4, 8), (2,),
          (32, 16), (7, 0), (64,), (128,)]  # fmt: skip
_DISTINCT = [(5, 7, 9, 11), (8, 24, 40, 56), (6, 10, 14, 18)]
_EQUAL = [(4,), (16,), (2,)]
_NAMINGS = 256


class Refused(Exception):
    """Sizes that the module does not allow, with the refinement's message."""


class MainSignature:
    """The inputs of a module's `main`: those that are sizes by convention (leading integer scalars before inputs with
    `?`), and the dtype and shape of the others."""

    def __init__(self, module: ir.Module):
        main = functions(module)["main"]
        arguments = list(main.regions[0].blocks[0].arguments)
        decoder = Decoder()
        types = [decoder.tensor(a.type) for a in arguments]
        self.marked = GLOBAL in str(module.operation.get_asm(large_elements_limit=16))
        dynamic = any(None in shape for _, shape in types)
        leading = itertools.takewhile(lambda t: t[1] == () and dtype_class(t[0]) == "int", types)
        self.size_count = len(list(leading)) if dynamic and not self.marked else 0
        self.types: list[tuple[np.dtype, TypeShape]] = types[self.size_count :]

    @property
    def is_dynamic(self) -> bool:
        return any(None in shape for _, shape in self.types)

    def namings(self) -> Iterator[Names]:
        """List ways to name the dims, the likely ones first."""
        shapes = [shape for _, shape in self.types]
        widest = max((sum(n is None for n in shape) for shape in shapes), default=0)
        names = [f"b{i}" for i in range(max(widest, self.size_count))]
        if self.size_count:
            names = names[: self.size_count]
        counts = [sum(n is None for n in shape) for shape in shapes]
        yield from _fill(shapes, [[names[:count] for count in counts]])
        choices = itertools.product(*(list(itertools.product(names, repeat=count)) for count in counts))
        # The more names the more is tested: all dims the same comes last.
        some = sorted(
            itertools.islice(choices, _NAMINGS), key=lambda naming: -len({n for given in naming for n in given})
        )
        yield from _fill(shapes, [*some, [names[:1] * count for count in counts]])


def _fill(shapes: Sequence[TypeShape], namings: Iterable[Sequence[Sequence[str]]]) -> Iterator[Names]:
    for naming in namings:
        if any(len(given) != sum(n is None for n in shape) for given, shape in zip(naming, shapes, strict=True)):
            continue
        rest = [iter(given) for given in naming]
        yield tuple(tuple(next(r) if n is None else None for n in shape) for r, shape in zip(rest, shapes, strict=True))


def symbols(names: Names) -> list[str]:
    """List the names in the order in which sizes are given to them."""
    return sorted({name for shape in names for name in shape if name is not None})


def find_names(module: ir.Module, signature: MainSignature) -> Names:
    """Find names for the dims with which the module refines at distinct sizes. Raises Refused if there are none."""
    namings = list(signature.namings())
    # Distinct sizes tell namings apart; equal ones only say that some size is allowed.
    tries = [(names, probe) for probe in _DISTINCT for names in namings] + [(n, p) for n in namings for p in _EQUAL]
    reason = ""
    for names, probe in tries:
        try:
            at_sizes(module, signature, names, _sizes_of(names, probe))
            return names
        except Refused as error:
            reason = reason or str(error)
    raise Refused(reason)


def candidates(names: Names) -> Iterator[dict[str, int]]:
    """List sizes to run at, 0 and 1 first, each once."""
    seen = []
    for sizes in _SIZES:
        given = _sizes_of(names, sizes)
        if given not in seen:
            seen.append(given)
            yield given


def _sizes_of(names: Names, sizes: Sequence[int]) -> dict[str, int]:
    found = symbols(names)
    return dict(zip(found, itertools.chain(sizes, itertools.repeat(sizes[-1])), strict=False))


def concrete(
    signature: MainSignature, names: Names, sizes: Mapping[str, int]
) -> list[tuple[np.dtype, tuple[int, ...]]]:
    """Return the dtype and shape of every input at these sizes."""
    return [
        (dtype, tuple(sizes[name or ""] if n is None else n for n, name in zip(shape, given, strict=True)))
        for (dtype, shape), given in zip(signature.types, names, strict=True)
    ]


def at_sizes(module: ir.Module, signature: MainSignature, names: Names, sizes: Mapping[str, int]) -> ir.Module:
    """Return a static copy of the module at these sizes. Raises Refused."""
    copy = clone(module)
    _fix_sizes(copy, signature.size_count, list(sizes.values()))
    return refine(copy, concrete(signature, names, sizes)) if signature.is_dynamic else legalised(copy)


def refine(module: ir.Module, types: InputTypes) -> ir.Module:
    """Make the module static for arguments of these types, in place. Raises Refused."""
    shown = ",".join(f"tensor<{''.join(f'{n}x' for n in shape)}{element_type(dtype)}>" for dtype, shape in types)
    try:
        mlir.run_passes(module, f"stablehlo-refine-arguments{{types={shown}}}")
        if _has_chlo(module):  # its passes want static types
            mlir.run_passes(module, "stablehlo-refine-shapes")
        return mlir.refine_polymorphic_shapes(legalised(module))
    except Exception as error:  # MLIRError or what XLA raises: the texts are all there is
        raise Refused(" ".join(re.sub(r"loc\(.*?\)", "", str(error)).split())[:300]) from None


def legalised(module: ir.Module) -> ir.Module:
    """Replace CHLO, which XLA does not compile, in place."""
    if _has_chlo(module):
        mlir.run_passes(module, "func.func(chlo-legalize-to-stablehlo)")
    return module


def _has_chlo(module: ir.Module) -> bool:
    return "chlo." in str(module.operation.get_asm(large_elements_limit=16))


def _fix_sizes(module: ir.Module, count: int, sizes: Sequence[int]) -> None:
    """Put constants in place of the leading arguments that are sizes."""
    if not count:
        return
    main = functions(module)["main"]
    block = main.regions[0].blocks[0]
    for i in range(count):
        argument = block.arguments[i]
        value = np.array(sizes[i], Decoder().tensor(argument.type)[0])
        with module.context, main.location, ir.InsertionPoint.at_block_begin(block):
            constant = mlir.stablehlo.ConstantOp(mlir.elements(value, argument.type.element_type))
            argument.replace_all_uses_with(constant.result)
    for _ in range(count):
        block.erase_argument(0)
    set_arguments(main)


def mark_sizes(module: ir.Module, signature: MainSignature, names: Names) -> ir.Module:
    """Return a copy in which the leading arguments that are sizes are marked as such, in JAX's way."""
    copy = clone(module)
    if signature.size_count:
        main = functions(copy)["main"]
        with copy.context:
            attributes = [ir.DictAttr.get() for _ in main.regions[0].blocks[0].arguments]
            found = symbols(names)
            for i in range(signature.size_count):
                attributes[i] = ir.DictAttr.get({GLOBAL: ir.StringAttr.get(found[i])})
            main.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    return copy


def clone(module: ir.Module) -> ir.Module:
    return ir.Module.parse(mlir.bytecode(module), context=mlir.context())


class XlaProgram:
    """A static module compiled by XLA:CPU."""

    def __init__(self, module: ir.Module):
        from jax.extend.backend import get_backend

        backend = get_backend("cpu")
        self._loaded = backend.compile_and_load(mlir.bytecode(module), backend.devices()[:1])

    def __call__(self, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        import jax

        with jax.enable_x64(True):
            outputs = self._loaded.execute_sharded([jax.device_put(a) for a in arrays])
        return [np.asarray(shards[0]) for shards in outputs.disassemble_into_single_device_arrays()]


def random_arrays(types: InputTypes, seed: int, special: bool) -> list[np.ndarray]:
    """Make random inputs: integers that can be indices, floats around 1, with `special` also zeros, large values,
    infinities."""
    random = np.random.default_rng(seed)
    return [_random(random, dtype, shape, special) for dtype, shape in types]


def ignores_zeros(module: ir.Module) -> bool:
    """Does XLA leave out products with zeros? It skips the holes of a dilated convolution, where 0 * inf would be NaN.

    Padding of other convolutions it multiplies with, as the specification has it.
    """
    return "lhs_dilat" in str(module.operation.get_asm(large_elements_limit=16))


_SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -1.5, 100.0, np.inf, -np.inf)


def _random(random: np.random.Generator, dtype: np.dtype, shape: tuple[int, ...], special: bool) -> np.ndarray:
    kind = dtype_class(dtype)
    if kind == "bool":
        return np.asarray(random.integers(0, 2, shape)).astype(dtype)
    if kind in ("int", "uint"):
        lowest, highest = int_limits(dtype)
        low = max(-2 if special else 0, lowest)
        return np.asarray(random.integers(low, min(6, highest + 1), shape)).astype(dtype)
    values = np.asarray(random.standard_normal(shape))
    if special:
        values = np.where(random.random(shape) < 0.2, random.choice(_SPECIAL, shape), values)
    if kind == "complex":
        return (values + 1j * random.standard_normal(shape)).astype(dtype)
    return values.astype(dtype)
