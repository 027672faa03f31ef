"""The attributes and ops of kernels that MLIR's dialects lack; `stitch` writes them and `targets` read them.

An `Attribute` is set and read with its own type. An `Extension` is an op that no dialect has. Its fields are its
arguments when it is built. Its operands are checked then, and again when it is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import StrEnum
from typing import ClassVar, Generic, TypeVar

from hlo_disc.frozen import frozen
from hlo_disc.mlir import MlirValue, ir

T = TypeVar("T", bound=bool | int | str)


class Known(StrEnum):
    """A fact about an f32 that is rounded to a smaller float.

    EXACT: it already has a value of that type. CLEAN: if it is NaN, its low 16 bits are zero, unless the machine makes
    NaNs of its own.
    """

    NOTHING = ""
    EXACT = "exact"
    CLEAN = "clean"


@frozen
class Attribute(Generic[T]):
    """An attribute of ops or arguments. default: its value where an op has none; its type is that of all values."""

    name: str
    default: T

    def entry(self, value: T) -> dict[str, ir.Attribute]:
        """Return it as one of an argument's; nothing for the default. Raises TypeError for a value of another type."""
        if type(value) is not type(self.default):
            raise TypeError(f"{self.name} is a {type(self.default).__name__}, not {value!r}")
        if value == self.default:
            return {}
        return {self.name: ir.UnitAttr.get() if value is True else _attribute(value)}

    def set(self, op: ir.Operation, value: T) -> None:
        """Set it on an op, as `entry` does on an argument."""
        for name, attribute in self.entry(value).items():
            op.attributes[name] = attribute

    def of(self, op: ir.Operation) -> T:
        """Return the value that an op has."""
        return self.among(op.attributes)

    def among(self, attributes: ir.OpAttributeMap | ir.DictAttr) -> T:
        """Return the value that the owner of some attributes has."""
        if self.name not in attributes:
            return self.default
        attribute = attributes[self.name]
        return type(self.default)(True if isinstance(attribute, ir.UnitAttr) else _value(attribute))


# The name of a module of kernels, by which launches find them.
KERNELS = "kernels"
# Of a module of kernels: all indices are below this number, and fit 32 bits.
NARROW = Attribute("hlo_disc.narrow", 0)
# Of a kernel: all its work is done by device functions; and the registers that a thread may have, 0 for any number.
CALLS_ONLY = Attribute("hlo_disc.calls_only", False)
REGISTERS = Attribute("hlo_disc.registers", 0)
# Of a device function: it is the program's. One module has it, and others declare it.
LINKED = Attribute("hlo_disc.linked", False)
# Of a kernel that a host function launches: its code is made later.
DEFERRED = Attribute("hlo_disc.deferred", False)
# Of a function that a module of kernels declares: it is a kernel of another one.
LAUNCHED = Attribute("gpu.kernel", False)
# Of a host function: it is called from outside, in the runtime's convention.
EXPORTED = Attribute("llvm.emit_c_interface", False)
# Of a kernel's buffer: no other argument overlaps it; and no kernel writes it while this one runs.
NOALIAS = Attribute("llvm.noalias", False)
READONLY = Attribute("llvm.readonly", False)
# Of a host function: it runs in a loop, or has loops.
OFTEN = Attribute("hlo_disc.often", False)
# Of a call: it returns a status. When that is not 0, the function that makes the call returns it at once.
CHECKED = Attribute("hlo_disc.checked", False)
# Of loads and stores of vectors: they are at multiples of so many bytes, 0 for those of an element.
ALIGNMENT = Attribute("hlo_disc.alignment", 0)
# Of a select: it must not become a branch.
UNPREDICTABLE = Attribute("hlo_disc.unpredictable", False)
# Of arith.truncf.
KNOWN = Attribute("hlo_disc.known", Known.NOTHING)


# MLIR wants the first word in the name of an intrinsic.
_INTRINSIC = "llvm.hlo_disc."
EXTENSIONS: dict[str, type[Extension]] = {}


@frozen
class Extension:
    """An op that no dialect has, spelled as a call of an intrinsic. Its fields are bool, int or str.

    word: its name. pure: whether it may move to where its operands are. takes, gives: the types of operands and result,
        unless `result` says otherwise.
    """

    word: ClassVar[str]
    pure: ClassVar[bool] = False
    takes: ClassVar[tuple[str, ...]] = ()
    gives: ClassVar[str] = ""

    def __init_subclass__(cls, word: str = "") -> None:
        if word:
            cls.word = word
            EXTENSIONS[_INTRINSIC + word] = cls

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value).__name__ != field.type:
                raise TypeError(f"{field.name} of {self.word} is a {field.type}, not {value!r}")

    def _declared(self, *operands: ir.Type) -> ir.Type | None:
        if tuple(map(str, operands)) != self.takes:
            raise TypeError(f"{', '.join(map(str, operands))} are no operands of {', '.join(self.takes)}")
        return ir.Type.parse(self.gives) if self.gives else None

    # The type of the result, None for none, by the types of the operands. Raises TypeError for other operands.
    result: ClassVar[Callable[..., ir.Type | None]] = _declared

    def results(self, operands: Sequence[MlirValue]) -> list[ir.Type]:
        """Return the types of the results of an op with these operands. Raises TypeError as `result` does."""
        try:
            type_ = self.result(*(x.type for x in operands))
        except TypeError as error:
            raise TypeError(f"{self.word}: {error}") from None
        return [] if type_ is None else [type_]

    def build(self, *operands: MlirValue) -> ir.Operation:
        """Append the op here. Raises TypeError for operands that it does not take."""
        results = self.results(operands)
        attributes = {
            "intrin": ir.StringAttr.get(_INTRINSIC + self.word),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
            **{field.name: _attribute(getattr(self, field.name)) for field in fields(self)},
        }
        return ir.Operation.create("llvm.call_intrinsic", results, list(operands), attributes)


def extension(op: ir.Operation) -> Extension:
    """Return the extension that an `llvm.call_intrinsic` is. Raises TypeError for none, and for wrong operands."""
    name = ir.StringAttr(op.attributes["intrin"]).value
    if name not in EXTENSIONS:
        raise TypeError(f"no extension is called {name}")
    kind = EXTENSIONS[name]
    for field in fields(kind):
        if field.name not in op.attributes:
            raise TypeError(f"{kind.word} has no {field.name}")
    made = kind(*(_value(op.attributes[field.name]) for field in fields(kind)))
    with op.context:
        types = made.results(op.operands)
    if types != [x.type for x in op.results]:
        raise TypeError(f"{kind.word} has another result")
    return made


def _attribute(value: bool | int | str) -> ir.Attribute:
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    return ir.StringAttr.get(value)


def _value(attribute: ir.Attribute) -> bool | int | str:
    assert isinstance(attribute, (ir.BoolAttr, ir.IntegerAttr, ir.StringAttr))
    return attribute.value


def _vector(x: ir.Type, element: str = "", lanes: int = 0) -> ir.VectorType:
    """Return the vector type of a type, with other elements and lanes if given."""
    if not isinstance(x, ir.VectorType) or element not in ("", str(x.element_type)) or lanes not in (0, x.shape[0]):
        raise TypeError(f"{x} is no vector of {lanes or 'any number of'} lanes of {element or 'any type'}")
    return x


class Compress(Extension, word="compress"):
    """Make the lanes of a vector that the mask has, one after another; the others are undefined. (x, mask)"""

    def result(self, x: ir.Type, mask: ir.Type) -> ir.Type:
        _vector(mask, "i1", _vector(x).shape[0])
        return x


class PairDot(Extension, word="pair_dot"):
    """Add pairs of products of bf16 to f32: sums[i] + x[2i] y[2i] + x[2i + 1] y[2i + 1]. (sums, x, y)"""

    pure = True

    def result(self, sums: ir.Type, x: ir.Type, y: ir.Type) -> ir.Type:
        lanes = 2 * _vector(sums, "f32").shape[0]
        _vector(x, "bf16", lanes), _vector(y, "bf16", lanes)
        return sums


class Tf32(Extension, word="tf32"):
    """Round a vector of f32 to the 11 digits of TF32. (x)"""

    pure = True

    def result(self, x: ir.Type) -> ir.Type:
        return _vector(x, "f32")


@frozen
class Mma(Extension, word="mma"):
    """Add a product of small matrices to sums, by the threads of a warp: see `Mma` in `device.py`. (sums, x, y)

    name: of the instruction.
    """

    name: str

    def result(self, sums: ir.Type, x: ir.Type, y: ir.Type) -> ir.Type:
        _vector(x), _vector(y)
        return _vector(sums)


@frozen
class Parts(Extension, word="parts"):
    """Read four parts of a small matrix from fast memory, of elements of 16 bits, for a warp that is all there.

    (pointer, index of the element) Thread t says where line t % 8 of part t // 8 begins. turned: lines are columns.
    """

    takes, gives = ("!llvm.ptr", "i64"), "vector<4xi32>"
    turned: bool


@frozen
class KernelName(Extension, word="text"):
    """Point to the characters of a kernel's name, with a zero behind them, in host code. ()"""

    gives = "!llvm.ptr"
    name: str


class TileAction(Extension):
    """An action on registers of small matrices: see `bf16_tiles.py`. Its fields are numbers of registers."""


class TileConfig(TileAction, word="tile.config"):
    """Set the lines of all registers: those of register i are byte i of an i64. All become zero. (lines)"""

    takes = ("i64",)


@frozen
class TileZero(TileAction, word="tile.zero"):
    """Make a register zero. ()"""

    register: int


@frozen
class TileLoad(TileAction, word="tile.load"):
    """Load lines that are so many bytes apart. (pointer, byte, stride)"""

    takes = ("!llvm.ptr", "i64", "i64")
    register: int


@frozen
class TileStore(TileAction, word="tile.store"):
    """Store lines that are so many bytes apart. (pointer, byte, stride)"""

    takes = TileLoad.takes
    register: int


@frozen
class TileDot(TileAction, word="tile.dot"):
    """Add the product of two registers to a third one. ()"""

    sums: int
    rows: int
    columns: int


class TileRelease(TileAction, word="tile.release"):
    """Leave nothing in the registers, which costs a switch of threads less. ()"""
