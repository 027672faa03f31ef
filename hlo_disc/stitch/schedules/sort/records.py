"""The records that a sort moves: keys and operands of an element, as plain bits in as few words as hold them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from hlo_disc.dynamic_hlo.ir.graph import Value
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.frozen import frozen
from hlo_disc.mlir import arith, ir
from hlo_disc.stitch.codegen.body import Body
from hlo_disc.stitch.codegen.build import Builder
from hlo_disc.stitch.codegen.regions import inline
from hlo_disc.stitch.codegen.values.elements import as_bits, from_bits
from hlo_disc.stitch.codegen.values.val import Val
from hlo_disc.stitch.schedules.sort.comparator import Comparator

WORD = 64


@frozen
class Records:
    """fields: the dtypes of the comparator's keys, then of operands that are no key. at: each operand's field, if any.

    words: for each word its fields, the first in the lowest bits. captured: what the comparator reads besides.
    """

    comparator: Comparator
    fields: tuple[np.dtype, ...]
    at: tuple[int | None, ...]
    words: tuple[tuple[int, ...], ...]
    captured: tuple[Value, ...]
    symbols: tuple[str, ...]
    facts: ShapeFacts

    @staticmethod
    def of(
        comparator: Comparator,
        operands: Sequence[Value | None],
        captured: Sequence[Value],
        symbols: Sequence[str],
        facts: ShapeFacts,
    ) -> Records:
        """Return the records. operands: None for an operand whose sorted form nothing needs."""
        fields = [v.dtype for v in comparator.keys.outputs]
        at: list[int | None] = []
        for value, key in zip(operands, comparator.given, strict=True):
            at.append(None if value is None else len(fields) if key is None else key)
            if value is not None and key is None:
                fields.append(value.dtype)
        return Records(comparator, tuple(fields), tuple(at), _words(fields), tuple(captured), tuple(symbols), facts)

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Return a key that is equal for records that are merged alike."""
        captured = tuple(v.dtype for v in self.captured)
        return ("merge", self.comparator.less.key, self.fields, self.words, captured, self.symbols)

    @property
    def key_words(self) -> tuple[int, ...]:
        """Return the words that hold keys."""
        count = len(self.comparator.keys.outputs)
        return tuple(i for i, fields in enumerate(self.words) if fields[0] < count)

    def bits(self, word: int) -> int:
        """Return the width of a word."""
        return 1 << (sum(8 * self.fields[i].itemsize for i in self.words[word]) - 1).bit_length()

    @property
    def bytes(self) -> int:
        """Return the bytes of a record."""
        return sum(self.bits(i) for i in range(len(self.words))) // 8

    def element(self, b: Builder, word: int) -> ir.Type:
        """Return the integers that hold a word."""
        return b.int_type(self.bits(word))

    def pack(self, b: Builder, values: Sequence[Val]) -> list[Val]:
        """Return the words of fields in registers."""
        words = []
        for number, fields in enumerate(self.words):
            word, shift, element = None, 0, self.element(b, number)
            for i in fields:
                x = as_bits(b, values[i], self.fields[i])
                x = _shifted(b, _resized(b, x, element), arith.ShLIOp, shift)
                word = x if word is None else b.apply(arith.OrIOp, word, x)
                shift += 8 * self.fields[i].itemsize
            assert word is not None
            words.append(word)
        return words

    def field_bits(self, b: Builder, words: Mapping[int, Val], i: int) -> Val:
        """Return one field as an integer of its width."""
        number = next(w for w, fields in enumerate(self.words) if i in fields)
        shift = sum(8 * self.fields[j].itemsize for j in self.words[number] if j < i)
        return _resized(b, _shifted(b, words[number], arith.ShRUIOp, shift), self._int(b, i))

    def field(self, b: Builder, words: Mapping[int, Val], i: int) -> Val:
        """Return one field in a register."""
        return from_bits(b, self.field_bits(b, words, i), self.fields[i])

    def keys(self, b: Builder, words: Mapping[int, Val]) -> list[Val]:
        """Return all keys in registers."""
        return [self.field(b, words, i) for i in range(len(self.comparator.keys.outputs))]

    def less(self, body: Body, x: Mapping[int, Val], y: Mapping[int, Val], captured: Sequence[Val]) -> Val:
        """Whether a record comes before another one, given their words with keys."""
        (result,) = inline(body, self.comparator.less, [*self.keys(body.b, x), *self.keys(body.b, y), *captured])
        return result

    def _int(self, b: Builder, i: int) -> ir.Type:
        return b.int_type(8 * self.fields[i].itemsize)


def _words(fields: Sequence[np.dtype]) -> tuple[tuple[int, ...], ...]:
    """Assign each field to the first word with space for it."""
    words: list[list[int]] = []
    room: list[int] = []
    for i, dtype in enumerate(fields):
        bits = 8 * dtype.itemsize
        fit = next((w for w, left in enumerate(room) if bits <= left), None)
        if fit is None:
            fit = len(words)
            words.append([])
            room.append(WORD)
        words[fit].append(i)
        room[fit] -= bits
    return tuple(map(tuple, words))


def _resized(b: Builder, x: Val, element: ir.Type) -> Val:
    source, target = ir.IntegerType(x.element).width, ir.IntegerType(element).width
    if source == target:
        return x
    return b.cast(arith.TruncIOp if target < source else arith.ExtUIOp, element, x)


def _shifted(b: Builder, x: Val, op: type, by: int) -> Val:
    return b.apply(op, x, b.like(by, x)) if by else x
