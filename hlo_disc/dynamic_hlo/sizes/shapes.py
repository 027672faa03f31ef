"""The relations of two shapes at all sizes."""

from __future__ import annotations

from collections.abc import Sequence

from hlo_disc.dynamic_hlo.sizes.dim import ONE, Dim, dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts, Truth


def same_shape(facts: ShapeFacts, a: Sequence[Dim], b: Sequence[Dim]) -> bool:
    """Whether two shapes are equal at all sizes."""
    return a == b or (len(a) == len(b) and all(facts.equal(x, y) is Truth.YES for x, y in zip(a, b, strict=True)))


def canonical_shape(facts: ShapeFacts, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the canonical representatives of sizes; the same object if they are canonical already."""
    canonical = tuple([d if d.is_const else facts.canonical(d) for d in shape])
    return shape if canonical == shape else canonical


def reshape_segments(
    result: Sequence[Dim], operand: Sequence[Dim], facts: ShapeFacts
) -> list[tuple[list[int], list[int]]]:
    """Split both shapes into the shortest runs of axes whose products are known to be equal, in order."""
    segments: list[tuple[list[int], list[int]]] = []
    left: list[int] = []
    right: list[int] = []
    i = j = 0
    results, operands = len(result), len(operand)
    while i < results or j < operands:
        if not left and not right and i < results and j < operands:
            if facts.equal(result[i], operand[j]) is Truth.YES:
                segments.append(([i], [j]))
                i, j = i + 1, j + 1
                continue
        if not left and i < results and result[i] is ONE:
            segments.append(([i], []))
            i += 1
            continue
        if not right and j < operands and operand[j] is ONE:
            segments.append(([], [j]))
            j += 1
            continue
        # Extend the side that has fewer elements by what is known; at the end, everything left is one run.
        fewer = len(left) <= len(right)
        if left and right:
            sizes = dim_product(result[a] for a in left), dim_product(operand[a] for a in right)
            fewer = fewer and facts.at_most(sizes[1], sizes[0]) is not Truth.YES
        if fewer and i < results or j >= operands:
            left.append(i)
            i += 1
        else:
            right.append(j)
            j += 1
        if left and right and facts.same_size([result[a] for a in left], [operand[a] for a in right]) is Truth.YES:
            segments.append((left, right))
            left, right = [], []
    if left or right:
        segments.append((left, right))
    return segments


def is_long(d: Dim) -> bool:
    """Whether 64 bits may not hold it as a number. They hold the product of two sizes of arrays."""
    return any(len(monomial) > 2 for monomial, _ in d.terms)


def has_products(d: Dim) -> bool:
    """Whether sizes are multiplied to compute it."""
    atoms = [atom for monomial, _ in d.terms for atom in monomial]
    return any(len(m) > 1 for m, _ in d.terms) or any(has_products(arg) for atom in atoms for arg in atom.args)
