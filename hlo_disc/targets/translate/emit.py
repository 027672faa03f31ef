"""The state of one translation: a `ModuleBody` collects functions and declarations, a `FunctionBody` the lines of one.

Handlers (functions `handler(body, op)` in a table by op name) read operands with `body[value]`, write results with
`body[value] = text`, and append instructions with `body.op(...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from hlo_disc.errors import CompileError
from hlo_disc.frozen import frozen
from hlo_disc.kernel_ops import Extension
from hlo_disc.mlir import MlirValue, ir
from hlo_disc.targets.machine import Machine
from hlo_disc.targets.translate.types import Type, TypeCache, Untranslatable

# Numbers of metadata from here on are loops'.
_LOOPS = 16

Handler = Callable[["FunctionBody", ir.Operation], None]
# Handlers of ops that no dialect has are told which one it is, too.
Extensions = dict[type[Extension], Callable[["FunctionBody", ir.Operation, Any], None]]


class ModuleBody:
    """The state that the functions of one LLVM module share.

    defined: functions that others may name. deferred: kernels whose code is made later. in_sections: whether functions
    have sections of their own; section: the words that say it of the functions that are being defined.
    """

    def __init__(self, machine: Machine, handlers: Mapping[str, Handler], narrow: int = 0, in_sections: bool = False):
        self.in_sections = in_sections
        self.section = ""
        self.machine = machine
        self.handlers = handlers
        self.types, self.wide_types = TypeCache(narrow), TypeCache()
        self.type: Callable[[ir.Type], Type] = self.types.__getitem__
        self.functions: list[str] = []
        self.declarations: dict[str, str] = {}
        self.defined: set[str] = set()
        self.deferred: set[str] = set()
        self.math: dict[str, tuple[str, Type]] = {}
        self.constants: dict[tuple[ir.Attribute, Type], str] = {}
        self.flags: dict[ir.Attribute, str] = {}
        self.signatures: dict[ir.Attribute, tuple[list[Type], list[Type]]] = {}
        self.loops: list[str] = []

    def declare(self, name: str, result: str, arguments: Iterable[str]) -> None:
        """Declare an external function or intrinsic, once."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({', '.join(arguments)})"

    def rolled_loop(self) -> str:
        """Return the name of metadata of a loop that is not to be unrolled."""
        name = f"!{_LOOPS + len(self.loops)}"
        self.loops.append(f'{name} = distinct !{{{name}, !{{!"llvm.loop.unroll.disable"}}}}')
        return name

    def math_function(self, function: str, type_: Type) -> str:
        """Return the name of the vector-math function for `type_`, which is then defined in the module."""
        name = f"hlo.{function}.{type_.suffix}"
        self.math[name] = (function, type_)
        return name

    def enum_words(self, attr: ir.Attribute) -> str:
        """Return `#arith.fastmath<nnan,contract>` as "nnan contract ", ready to stand before a type; "" for none."""
        words = self.flags.get(attr)
        if words is None:
            text = str(attr)
            inner = text[text.index("<") + 1 : text.rindex(">")].replace(",", " ").split()
            words = self.flags[attr] = "".join(f"{w} " for w in inner if w != "none")
        return words


@frozen(eq=False)
class Pending:
    """A vector that is built only if it is needed as one: mostly its elements are used, one by one.

    whole: f() appends code that builds it. element: f(k) is one of its elements.
    """

    whole: Callable[[], str]
    element: Callable[[int], str]


class FunctionBody(dict["ir.Value[ir.Type]", str]):
    """The lines of one LLVM function, in basic blocks; as a mapping, the text of every MLIR value seen so far.

    runtime: the `ral_call` pointer of host code; block, fast: a kernel's block id and fast memory; "" where there is
    none. symbols: what a `func.call` may name here. tuned: whether it was written for so many registers: its indices
    have 64 bits, of which LLVM adds what is constant to addresses, and loops may be unrolled.
    """

    def __init__(
        self,
        module: ModuleBody,
        symbols: Mapping[str, str],
        runtime: str = "",
        block: str = "",
        fast: str = "",
        tuned: bool = False,
    ):
        self.module = module
        self.types = module.wide_types if tuned else module.types
        self.type: Callable[[ir.Type], Type] = self.types.__getitem__
        self.symbols = symbols
        self.runtime, self.block, self.fast, self.tuned = runtime, block, fast, tuned
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.current = "entry"
        self.yielded: list[str] = []
        self._pending: dict[MlirValue, Pending] = {}
        # What this block has made of pending vectors, and taken out of others: another block may not have it.
        self._made: dict[Pending, str] = {}
        self._taken: dict[tuple[str, int], str] = {}
        self._count = 0

    def __missing__(self, value: MlirValue) -> str:
        known = self._pending[value]
        if known not in self._made:
            self._made[known] = known.whole()
        return self._made[known]

    def put(self, value: MlirValue, vector: str | Pending) -> None:
        """Set the text of a vector that may be pending."""
        if isinstance(vector, Pending):
            self._pending[value] = vector
        else:
            self[value] = vector

    def all(self, values: Iterable[MlirValue]) -> list[str]:
        """Return the texts of several values."""
        return [self[v] for v in values]

    def element(self, vector: MlirValue, k: int) -> str:
        """Return an element of a vector, extracted once in a block."""
        if vector in self._pending:
            return self._pending[vector].element(k)
        known = self[vector]
        if (known, k) not in self._taken:
            self._taken[known, k] = self.op(f"extractelement {self.type(vector.type).text} {known}, i64 {k}")
        return self._taken[known, k]

    def elements(self, vector: MlirValue) -> list[str]:
        """Return all elements of a vector."""
        return [self.element(vector, k) for k in range(self.type(vector.type).lanes)]

    def vector(self, type_: Type, elements: Sequence[str]) -> str | Pending:
        """Join elements to a vector."""

        def whole() -> str:
            text = "poison"
            for k, x in enumerate(elements):
                assert type_.element is not None
                text = self.op(f"insertelement {type_.text} {text}, {type_.element.text} {x}, i64 {k}")
            return text

        return self.pending(whole, lambda k: elements[k])

    def pending(self, whole: Callable[[], str], element: Callable[[int], str]) -> str | Pending:
        """Return an unbuilt vector, if threads have elements in registers; lanes of a CPU are built here."""
        return Pending(whole, element) if self.module.machine.threads else whole()

    def do(self, text: str) -> None:
        """Append an instruction without a result."""
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        """Append an instruction and return the name of its result."""
        self._count += 1
        name = f"%v{self._count}"
        self.lines.append(f"  {name} = {text}")
        return name

    def fresh(self, prefix: str) -> str:
        """Return a new name (without the %)."""
        self._count += 1
        return f"{prefix}{self._count}"

    def begin(self, label: str) -> None:
        """Start a basic block."""
        self.lines.append(label + ":")
        self.current = label
        self._made.clear()
        self._taken.clear()

    def alloca(self, type_: str) -> str:
        """Allocate stack memory for the whole function."""
        name = "%" + self.fresh("stack")
        self.entry.append(f"  {name} = alloca {type_}, align 16")
        return name

    def call(self, result: str, name: str, arguments: Sequence[tuple[str, str]], flags: str = "") -> str:
        """Call a function, declared at its first use, with (type, value) arguments; a type may carry parameter
        attributes."""
        module = self.module
        if name not in module.declarations:
            module.declare(name, result, (t.split(" align ", 1)[0] for t, _ in arguments))
        text = f"call {flags}{result} @{name}({', '.join([f'{t} {v}' for t, v in arguments])})"
        if result == "void":
            self.do(text)
            return ""
        return self.op(text)

    def intrinsic(self, name: str, type_: Type, values: Sequence[str], flags: str = "") -> str:
        """Call an intrinsic overloaded on one type that all its operands and its result have."""
        text = type_.text
        return self.call(text, f"llvm.{name}.{type_.suffix}", [(text, v) for v in values], flags)

    def fastmath(self, op: ir.Operation) -> str:
        """Return the fast-math flags of an op, ready to stand before a type."""
        attributes = op.attributes
        return self.module.enum_words(attributes["fastmath"]) if "fastmath" in attributes else ""

    def region(self, block: ir.Block) -> list[str]:
        """Translate the ops of a block; returns the texts that its terminator yields."""
        handlers = self.module.handlers
        self.yielded = []
        for view in block.operations:
            op = view.operation
            name = op.name
            handler = handlers.get(name)
            if handler is None:
                raise CompileError(f"no translation for the op {name} at {op.location}")
            try:
                handler(self, op)
            except Untranslatable as error:
                raise CompileError(f"cannot translate {name} at {op.location}: {error}") from None
        return self.yielded

    def text(self) -> str:
        """Return the function's blocks as text."""
        return "\n".join(["entry:", *self.entry, *self.lines])
