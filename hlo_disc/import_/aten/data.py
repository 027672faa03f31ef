"""Numbers that depend on data: PyTorch's unbacked symbols, which the program computes (`Graph.definitions`).

PyTorch knows only the symbol, `u0`, and perhaps its range. Its value here is known once the op that makes it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils._sympy import functions

from hlo_disc.dynamic_hlo.ir.graph import Guard, Value
from hlo_disc.dynamic_hlo.ops.expr import BOOL, F64, I64, where
from hlo_disc.dynamic_hlo.ops.table import DIRECTIONS
from hlo_disc.dynamic_hlo.sizes.dim import ONE, ZERO, Dim
from hlo_disc.errors import UnsupportedOpError
from hlo_disc.import_.aten import floats, sizes
from hlo_disc.import_.handlers.arrays import Array
from hlo_disc.import_.sizes import symbols

if TYPE_CHECKING:
    from hlo_disc.import_.aten.reader import AtenReader

_DIVISIONS = (functions.FloorDiv, functions.CleanDiv, functions.Mod, functions.PythonMod, functions.ModularIndexing)
_SYMBOLIC = (torch.Tensor, torch.SymInt, torch.SymBool, torch.SymFloat)
_DIRECTIONS = {relation: name for name, relation in DIRECTIONS.items()}


class Data:
    """The sizes, numbers and conditions of one program that depend on data.

    known: PyTorch's symbols with their values here. floats: its symbols of floats.
    """

    def __init__(self, r: AtenReader):
        self.r = r
        self.definitions: dict[str, Value] = {}
        self.known: dict[str, Dim] = {}
        self.floats: dict[str, Array] = {}
        self.of_arguments = False  # sizes are those of arguments, which say what they are
        self._symbols: dict[Value, Dim] = {}
        self._pieces: dict[sympy.Basic, sympy.Symbol] = {}

    # Numbers

    def size(self, number: Array, what: str = "a size") -> Dim:
        """Return an i64 scalar as a size; the program checks that it is not negative."""
        found = self._symbol(number)
        message = f"{symbols.escape(self.r.describe())}: {what} is {{0}}"
        self.r.guards.append(Guard(found, ">=", ZERO, message, (found,)))
        return found

    def _symbol(self, number: Array) -> Dim:
        value = number.value
        if value not in self._symbols:
            if self.r.nested:
                self.r.unsupported("a size that depends on data inside a loop or a branch is not supported")
            name = f"data{len(self.definitions)}"
            self.definitions[name] = value
            self._symbols[value] = Dim.symbol(name)
        return self._symbols[value]

    def number(self, number: Array) -> Dim:
        """Return an i64 scalar that may be negative as a number. Symbols may not, so it is the difference of two."""
        below = -number.minimum(0)  # of the least integer it is negative: an error
        return self._symbol(number.maximum(0)) - self.size(below, "a negated number")

    def must(self, condition: Array, message: str) -> None:
        """Make the program check that this holds."""
        holds = self._symbol(condition.cast(I64))
        self.r.guards.append(Guard(holds, "==", ONE, symbols.escape(message), ()))

    # PyTorch's expressions

    def dim(self, e: sympy.Expr) -> Dim:
        """Return an expression of integers as a Dim. Conditions in it are computed."""
        pieces = e.atoms(sympy.Piecewise)
        e = e.xreplace({x: self._piece(x) for x in pieces}) if pieces else e
        if rounded := floats.rounded(e):
            e = e.xreplace({x: self._rounded(x) for x in rounded})
        if not self.known:
            return sizes.of_expression(e)
        for division in e.atoms(*_DIVISIONS):
            for x in (x for by in division.args[1:] for x in by.free_symbols):
                if len(self.known.get(x.name, ZERO).terms) > 1:
                    raise UnsupportedOpError(f"the size {e} is divided by a number of data, which may be negative")
        return sizes.of_expression(e).substitute(self.known)

    def _piece(self, e: sympy.Piecewise) -> sympy.Symbol:
        if e not in self._pieces:
            made = None
            for value, condition in reversed(e.args):
                other = self.r.scalar(self.dim(value), I64)
                made = other if made is None else where(self.truth(condition), other, made)
            assert made is not None
            symbol = self._pieces[e] = sympy.Symbol(f"piece{len(self._pieces)}", integer=True)
            self.known[symbol.name] = self.number(made)
        return self._pieces[e]

    def _rounded(self, e: sympy.Expr) -> sympy.Symbol:
        """Return a float that is rounded to a size: an argument's if there is one, else computed."""
        if e not in self._pieces:
            symbol = self._pieces[e] = sympy.Symbol(f"rounded{len(self._pieces)}", integer=True, nonnegative=True)
            if not self.of_arguments:
                number = floats.rounding(self.r, e)
                self.known[symbol.name] = self.size(number) if floats.is_natural(e) else self.number(number)
        return self._pieces[e]

    def truth(self, e: sympy.Basic) -> Array:
        """Compute a condition on sizes as a bool scalar. Raises UnsupportedOpError."""
        r = self.r
        if e in (sympy.true, sympy.false):
            return r.scalar(bool(e), BOOL)
        if isinstance(e, sympy.Not):
            return ~self.truth(e.args[0])
        if isinstance(e, (sympy.And, sympy.Or)):
            made = self.truth(e.args[0])
            for x in e.args[1:]:
                made = made.op("and" if isinstance(e, sympy.And) else "or", self.truth(x))
            return made
        if not isinstance(e, sympy.core.relational.Relational):
            raise UnsupportedOpError(f"the condition {e} is {type(e).__name__}, which is not supported")
        whole = e.lhs.is_integer and e.rhs.is_integer
        a, b = (r.scalar(r.dim_of(x), I64) if whole else floats.scalar(r, x) for x in (e.lhs, e.rhs))
        return a.op("compare", b, direction=_DIRECTIONS[e.rel_op])

    def ensure(self, e: sympy.Basic, message: str) -> None:
        """Make the program check a condition of PyTorch's."""
        relation = sizes.relation(e, self.r.dim_of)
        if relation:
            self.r.require(*relation, symbols.escape(message), ())
        else:
            self.must(self.truth(e), message)

    # PyTorch's symbols

    def item(self, x: Array, known: object) -> Array | Dim:
        """Note the only element of a tensor, which PyTorch knows as this: a symbol, or a number that it must equal."""
        r = self.r
        x = x.reshape(())
        if isinstance(known, (float, torch.SymFloat)):
            value = x.cast(F64)
            if isinstance(known, float) or not known.node.expr.is_Symbol:
                r.unsupported("PyTorch knows what the number of data must be, which is not supported")
            self.floats[known.node.expr.name] = value
            return value
        e = known.node.expr if isinstance(known, (torch.SymInt, torch.SymBool)) else sympy.sympify(known)
        value = x.cast(I64)
        if isinstance(known, (bool, torch.SymBool)):  # of a symbol it is `Eq(u0, 1)`
            if isinstance(e, sympy.Eq) and e.lhs.is_Symbol and e.rhs == 1 and self.is_open(Dim.symbol(e.lhs.name)):
                self.known[e.lhs.name] = self._symbol(value)
            else:
                self.must(x == self.truth(e), f"{r.describe()}: it is not {e}, as was said of it")
            return x
        if e.is_Symbol and self.is_open(Dim.symbol(e.name)):
            self.known[e.name] = self.size(value, "a number of data") if _is_natural(known) else self.number(value)
        else:
            equal = value == r.scalar(r.dim_of(e), I64)
            self.must(equal, f"{r.describe()}: it is not {e}, as was said of it")
        return r.dim_of(e)

    def is_open(self, d: Dim) -> bool:
        """Whether the symbol has no value yet."""
        return any(x not in self.r.bound and x not in self.definitions and x not in self.known for x in d.symbols)

    def is_size(self, known: Dim, made: Dim) -> None:
        """Set the value of an unknown size of PyTorch's."""
        (name,) = known.symbols
        if known is not Dim.symbol(name):
            self.r.unsupported(f"the size {known} is of data that nothing has said yet")
        self.known[name] = made

    def is_view_from(self, start: Dim, axis: int) -> None:
        """Learn from the fact that the current op's result is a view beginning at `start`: it fixes open symbols."""
        offset = self.r.node.meta["val"].storage_offset()
        if is_of_data(offset) and self.is_open(self.r.dim(offset)):
            of = self.r.meta(0)
            self.is_size(self.r.dim(offset), self.r.dim(of.storage_offset()) + start * self.r.dim(of.stride(axis)))


def _is_natural(x: torch.SymInt) -> bool:
    """Whether PyTorch's range excludes negative values."""
    lower = x.node.shape_env.var_to_range[x.node.expr].lower
    return bool(lower >= 0)


def is_of_data(x: object) -> bool:
    return isinstance(x, torch.SymInt) and bool(free_unbacked_symbols(x))


def is_negative(x: torch.SymInt, asks: bool = True) -> bool | None:
    """Whether the number of a placeholder is negative; None if unknown.

    asks: ask PyTorch, which compiles again if the answer changes.
    """
    if not asks or is_of_data(x):
        return False if _is_natural(x) else None
    return not bool(x >= 0)


def open_symbols(x: object) -> set[str]:
    """List the symbols of data in PyTorch's type of a result."""
    return {symbol.name for symbol in free_unbacked_symbols(x)} if isinstance(x, _SYMBOLIC) else set()
