"""The LLVM IR of a function. Registers of PTX are variables, which LLVM's optimizer makes values of."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# Bits of types.
WIDTHS = {"pred": 1, "bf16": 16, **{f"{kind}{n}": n for kind in "busf" for n in (8, 16, 32, 64)}}
_SPECIAL = {"%tid.x": "llvm_nvvm_read_ptx_sreg_tid_x", "%ctaid.x": "llvm_nvvm_read_ptx_sreg_ctaid_x",
            "%laneid": "llvm_nvvm_read_ptx_sreg_laneid"}  # fmt: skip
_ZERO = {"%tid.y", "%tid.z", "%ctaid.y", "%ctaid.z"}


class Unknown(AssertionError):
    """An error: PTX that this module does not read."""


@dataclass(frozen=True)
class Variable:
    """A name's meaning in a function. at: the address of its value of so many bits; with 0 bits, the value itself."""

    at: str
    bits: int


@dataclass
class Function:
    """The LLVM IR of a function while it is written.

    scopes: what names mean, the innermost last. stack: a thread's own memory, each part with its address and bytes.
    store: the emulator's number for a store, 1, or 2 where several threads may store the same. threads: of a block,
    where a kernel says it. shared: an address in shared memory.
    """

    allocated: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    scopes: list[dict[str, Variable]] = field(default_factory=lambda: [{}])
    sites: list[str] = field(default_factory=list)
    stack: list[tuple[str, int]] = field(default_factory=list)
    store: int = 1
    threads: int = 0
    shared: str = ""
    count: int = 0
    name: str = ""
    statement: str = ""

    def new(self, what: str) -> str:
        """Write an instruction, and return its value."""
        self.count += 1
        self.lines.append(f"  %v{self.count} = {what}")
        return f"%v{self.count}"

    def do(self, line: str) -> None:
        self.lines.append("  " + line)

    def label(self) -> str:
        self.count += 1
        return f"b{self.count}"

    def begin(self, label: str) -> None:
        self.lines.append(f"{label}:")

    def declare(self, name: str, bits: int) -> None:
        """Declare a register."""
        at = f"%x{len(self.allocated)}"
        self.allocated.append(f"  {at} = alloca i{bits}")
        self.scopes[-1][name] = Variable(at, bits)

    def memory(self, name: str, size: int, alignment: int) -> None:
        """Declare bytes of a thread's own memory, aligned no further than they ask for."""
        whole, at = f"%x{len(self.allocated)}", f"%x{len(self.allocated)}.at"
        self.allocated.append(f"  {whole} = alloca [{size + alignment} x i8], align {2 * alignment}")
        self.allocated.append(f"  {at} = getelementptr i8, ptr {whole}, i64 {alignment}")
        self.scopes[-1][name] = Variable(at, 0)
        self.stack.append((at, size))

    def find(self, name: str) -> Variable | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def variable(self, name: str) -> Variable:
        found = self.find(name)
        if found is None:
            raise Unknown(f"{name} in {self.statement}")
        return found

    def set(self, name: str, value: str, bits: int, signed: bool = False) -> None:
        """Put a value of so many bits into a register. It is extended or cut to the register's width."""
        if name == "_":
            return
        variable = self.variable(name)
        if bits < variable.bits:
            value = self.new(f"{'sext' if signed else 'zext'} i{bits} {value} to i{variable.bits}")
        elif bits > variable.bits:
            value = self.new(f"trunc i{bits} {value} to i{variable.bits}")
        self.do(f"store i{variable.bits} {value}, ptr {variable.at}")

    def get(self, operand: str, bits: int) -> str:
        """Return the value of an operand, as an integer."""
        operand = operand.strip()
        if operand.startswith("!"):
            return self.new(f"xor i1 {self.get(operand[1:], 1)}, true")
        if operand in _SPECIAL:
            return self._resized(self.new(f"call i32 @{_SPECIAL[operand]}()"), 32, bits)
        if operand in _ZERO:
            return "0"
        variable = self.find(operand)
        if variable is None:
            return str(number(operand, bits))
        if variable.bits:
            return self._resized(self.new(f"load i{variable.bits}, ptr {variable.at}"), variable.bits, bits)
        return self._resized(self.new(f"ptrtoint ptr {variable.at} to i64"), 64, bits)

    def _resized(self, value: str, have: int, bits: int) -> str:
        if have == bits:
            return value
        return self.new(f"{'trunc' if bits < have else 'zext'} i{have} {value} to i{bits}")

    def address(self, operand: str, space: str) -> str:
        """Return a pointer to what `[name+offset]` says."""
        inside = operand.strip().removeprefix("[").removesuffix("]").strip()
        name, _, offset = inside.partition("+")
        variable = self.find(name.strip())
        if variable is not None and not variable.bits:
            at = variable.at
        elif variable is not None and variable.bits == 32 and space == "shared":
            at = self.new(f"inttoptr i64 {self._of_window(self.get(name, 32))} to ptr")
        else:
            at = self.new(f"inttoptr i64 {self.get(name, 64)} to ptr")
        return self.new(f"getelementptr i8, ptr {at}, i64 {number(offset, 64)}") if offset else at

    def _of_window(self, low: str) -> str:
        """Return the address that a shared address of 32 bits means: shared memory is all within 4 GiB."""
        base = self.new(f"ptrtoint ptr {self.shared} to i64")
        high = self.new(f"and i64 {base}, -4294967296")
        return self.new(f"or i64 {high}, {self.new(f'zext i32 {low} to i64')}")


def number(text: str, bits: int) -> int:
    """Return a literal, as the bits that it is."""
    text = text.strip()
    if match := re.fullmatch(r"0[fFdD]([0-9A-Fa-f]{8}|[0-9A-Fa-f]{16})", text):
        return int(match[1], 16)
    try:
        value = int(text.rstrip("U"), 0)
    except ValueError:
        raise Unknown(text) from None
    return value & ((1 << bits) - 1) if bits < 64 else value
