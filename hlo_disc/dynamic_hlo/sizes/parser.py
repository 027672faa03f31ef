"""The grammar of sizes: what `str` writes of a Dim, what JAX writes, and Python's operators.

    relation = sum (== | != | >= | <= | > | <) sum
    sum      = product {(+ | -) product}
    product  = factor {(* | // | %) factor}
    factor   = - factor | atom [^ integer]
    atom     = integer | name | ( sum ) | (floordiv | mod | min | max)( sum {, sum} )

Operators bind as Python's do, with `^` for powers. `%` is an operator after an operand; elsewhere it begins one of the
compiler's own names. The caller's `Algebra` computes the sizes.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from hlo_disc.errors import ParseError
from hlo_disc.frozen import frozen

if TYPE_CHECKING:
    from hlo_disc.dynamic_hlo.sizes.dim import Dim

T = TypeVar("T")

NAME = re.compile(r"(?:[A-Za-z_]|%[A-Za-z0-9_.])[A-Za-z0-9_.]*")  # with %, one of the compiler's own
_SPACE = re.compile(r"\s*")
_INTEGER = re.compile(r"[0-9]+")
_FOUND = re.compile(r"[A-Za-z0-9_.]+|//|[=!<>]=|.", re.DOTALL)
_RELATIONS = ("==", "!=", ">=", "<=", ">", "<")
_FUNCTIONS = ("floordiv", "mod", "min", "max")
_CALLS = "floordiv(a, b), mod(a, b), min(…) or max(…)"
_OPERAND = f"an integer, a name, '(' or {_CALLS}"
_LARGEST_POWER = 63  # of 2, and of any other size above 1, is more than 64 bits hold
_SHOWN = 80  # characters of a text, in a message


@frozen
class Algebra:
    """The meanings of integers, names and the functions floordiv, mod, min and max (of any sizes)."""

    integer: Callable[[int], Dim]
    name: Callable[[str], Dim]
    function: Callable[..., Dim]


@functools.lru_cache(1 << 12)
def parse(text: str, algebra: Algebra) -> Dim:
    """Parse a dimension expression to its value in the algebra; the same few come often. Raises ParseError."""
    parser = _Parser(text, "a dimension expression", algebra)
    return parser.whole(parser.sum)


def parse_relation(text: str, algebra: Algebra) -> tuple[Dim, str, Dim]:
    """ "s <= 512" as its left side, relation and right side. Raises ParseError."""
    parser = _Parser(text, "a constraint like 's <= 512'", algebra)
    return parser.whole(parser.relation)


class _Parser:
    """A recursive descent parser; `at` is the position in `text` of the next token, which is no space."""

    def __init__(self, text: str, what: str, algebra: Algebra):
        self.text, self.what, self.algebra = text, what, algebra
        self.at = 0
        self.skip(0)

    def whole(self, rule: Callable[[], T]) -> T:
        """Apply the rule to all of the text and return its result. Raises ParseError."""
        try:
            result = rule()
        except ZeroDivisionError as error:
            raise self.error(f"{error}, before column {self.at + 1}") from None
        except RecursionError:
            raise self.error("it is nested too deeply") from None
        if self.at < len(self.text):
            raise self.expected("an operator or the end")
        return result

    def error(self, reason: str) -> ParseError:
        return ParseError(f"{_shortened(repr(self.text))} is not {self.what}: {reason}")

    def expected(self, what: str, at: int | None = None) -> ParseError:
        at = self.at if at is None else at
        found = _FOUND.match(self.text, at)
        shown = f"found {_shortened(repr(found[0]))} at column {at + 1}" if found else "it ends"
        return self.error(f"expected {what}, but {shown}")

    def skip(self, count: int) -> None:
        space = _SPACE.match(self.text, self.at + count)
        self.at = space.end() if space else self.at

    def accept(self, *texts: str) -> str:
        for text in texts:
            if self.text.startswith(text, self.at):
                self.skip(len(text))
                return text
        return ""

    def match(self, pattern: re.Pattern[str]) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            return ""
        self.skip(len(found[0]))
        return found[0]

    def relation(self) -> tuple[Dim, str, Dim]:
        left = self.sum()
        relation = self.accept(*_RELATIONS)
        if not relation:
            raise self.expected(f"one of {' '.join(_RELATIONS)}")
        return left, relation, self.sum()

    def sum(self) -> Dim:
        total = self.product()
        while op := self.accept("+", "-"):
            term = self.product()
            total = total + term if op == "+" else total - term
        return total

    def product(self) -> Dim:
        product = self.factor()
        while op := self.accept("*", "//", "%"):
            factor = self.factor()
            product = product * factor if op == "*" else product // factor if op == "//" else product % factor
        return product

    def factor(self) -> Dim:
        if self.accept("-"):
            return -self.factor()
        base = self.atom()
        if not self.accept("^"):
            return base
        at, power = self.at, self.match(_INTEGER)
        if not power or len(power) > 2 or int(power) > _LARGEST_POWER:
            raise self.expected(f"an integer of at most {_LARGEST_POWER}", at)
        return math.prod([base] * int(power), start=self.algebra.integer(1))

    def atom(self) -> Dim:
        if self.accept("("):
            d = self.sum()
            self.close("')'")
            return d
        if digits := self.match(_INTEGER):
            try:
                return self.algebra.integer(int(digits))
            except ValueError:  # Python reads some thousand digits at most
                raise self.error(f"{_shortened(digits)} has too many digits") from None
        start, name = self.at, self.match(NAME)
        if not name:
            raise self.expected(_OPERAND)
        if not self.accept("("):
            return self.algebra.name(name)
        if name not in _FUNCTIONS:
            raise self.expected(_CALLS, start)
        args = [self.sum()]
        while self.accept(","):
            args.append(self.sum())
        self.close("',' or ')'")
        if name in ("floordiv", "mod") and len(args) != 2:
            raise self.error(f"{name} at column {start + 1} has {len(args)} arguments, not 2")
        return self.algebra.function(name, *args)

    def close(self, expected: str) -> None:
        if not self.accept(")"):
            raise self.expected(expected)


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}…"
