"""The variants in which a row group is compiled, and their conditions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hlo_disc.device import Device
from hlo_disc.dynamic_hlo.ir.graph import Op
from hlo_disc.dynamic_hlo.sizes.dim import dim_product
from hlo_disc.dynamic_hlo.sizes.facts import ShapeFacts
from hlo_disc.errors import CompileError
from hlo_disc.stitch.fusion.group import Group
from hlo_disc.stitch.fusion.space import row_space
from hlo_disc.stitch.schedule import Static
from hlo_disc.stitch.schedules.row.shared_reduction import sliced
from hlo_disc.stitch.schedules.row.shared_scan import shared_scan
from hlo_disc.stitch.schedules.row.tiles import LEAST, TileVariant, transposed
from hlo_disc.stitch.schedules.row.tiny import TinyVariant, is_tiny
from hlo_disc.stitch.schedules.row.variant import RowVariant, is_heavy
from hlo_disc.stitch.variant import Choice, Condition, When

# Up to this many columns, rows across lanes win (measured on softmax; on argmax, whose lanes cost more to fold).
FEW_COLUMNS, FEW_FOR_REGIONS = 4, 64
# Up to this many vectors of rows, long cumulative ops are shared among blocks: more are enough work for all cores.
FEW_ROWS = 8
# More heavy ops keep the registers of a thread busy with one run of neighbours. A gather that finds each lane's element
# by itself counts as two: its addresses have 64 bits.
FEW_HEAVY = 4
# A reduction over more than this many elements is shared among blocks: (lanes on columns, lanes on rows). Of teams with
# lanes on rows few would be busy otherwise.
SHARED, SHARED_BY_TEAMS = (1 << 16, 1 << 9), (1 << 16, 1 << 8)
# A slice has so many elements at least: less, and what slices leave is as much as what they read.
PER_SLICE = 2


def row_choices(group: Group, facts: ShapeFacts, device: Device, static: Static) -> list[Choice]:
    """Return the variants of a row group: lanes on rows if memory runs there or columns are few, else on columns."""
    if device.host_memory and is_tiny(group):
        return [Choice(TinyVariant(group, facts))]
    space = row_space(group.ops, group.outputs, facts)
    if isinstance(space, str):
        raise CompileError(f"a group is no row group once its axes are merged: {space}")
    cols = dim_product(space.widest)
    across = space.lanes_on_rows
    wide = RowVariant(group, space, across, device, facts)
    most = (SHARED_BY_TEAMS if device.teams else SHARED)[across]
    rules: list[Choice] = []
    forms: list[tuple[RowVariant, When]] = [(wide, ())]
    if device.teams:
        forms = _for_teams(wide, device)
        rules += _in_tiles(wide, device)
    elif across:
        forms.insert(0, (replace(wide, narrow=True), (Condition(space.rows[-1], "<=", device.lanes),)))
    elif space.rows:
        few = FEW_FOR_REGIONS if any(op.name == "reduce_with" for op in group.ops) else FEW_COLUMNS
        rules.append(Choice(replace(wide, lanes_on_rows=True), (Condition(cols, "<=", few),)))
    for variant, when in forms:
        if across or variant.team is None or not variant.team.most:  # others have no long rows
            rules += [replace(choice, when=(*when, *choice.when)) for choice in _shared(variant, most)]
        rules.append(Choice(variant, when))
    return rules


def _shared(variant: RowVariant, most: int) -> Iterator[Choice]:
    """Return the variants that share an axis of more than `most` elements among blocks, with their conditions."""
    rows, cols = dim_product(variant.space.rows), dim_product(variant.space.widest)
    for few, slices in variant.device.slices[variant.lanes_on_rows]:
        if (reduction := sliced(variant, slices, few)) is not None:
            least = max(most + 1, slices * PER_SLICE)
            yield Choice(reduction, (Condition(cols, ">=", least), Condition(rows, "<=", few)))
    few = _few_rows(variant)
    if (scan := shared_scan(variant, few)) is not None:
        yield Choice(scan, (Condition(cols, ">=", most + 1), Condition(rows, "<=", few)))


def _few_rows(variant: RowVariant) -> int:
    """Return up to how many rows a cumulative op shares each row among blocks."""
    few, device = FEW_ROWS, variant.device
    if variant.team:
        few = max(few, device.at_once // (device.parts * variant.team.runs))
    return few * (variant.width if variant.lanes_on_rows else 1)


def _in_tiles(variant: RowVariant, device: Device) -> list[Choice]:
    """Return the variant of a map with a transposed input, for sizes that fill tiles."""
    group, space = variant.group, variant.space
    (axis, staged), shape = transposed(group), group.outputs[0].shape
    if not staged or space.reduced_at or space.scans or group.place or any(v.shape != shape for v in group.outputs):
        return []
    form = TileVariant(group, variant.facts, device, device.teams[-1], axis, staged)
    return [Choice(form, tuple(Condition(shape[a], ">=", LEAST) for a in (axis, -1)))]


def _for_teams(variant: RowVariant, device: Device) -> list[tuple[RowVariant, When]]:
    """Return for each team of threads a variant for rows not too long for it; with lanes on rows the smallest team for
    all.

    So there are most panels. Each team has two forms, of which one reads and writes whole registers. What the last one
    keeps in fast memory may be too long for that: there it computes it again.
    """
    size = dim_product(variant.space.widest)
    whole = Condition(variant.along, "multiple of", device.lanes)
    forms: list[tuple[RowVariant, When]] = []
    many = sum(is_heavy(op) + 2 * _is_scattered(op) for op in variant.group.ops) > FEW_HEAVY
    teams = [replace(team, chunks=1) if many else team for team in device.teams[: 1 if variant.lanes_on_rows else None]]
    for team in teams:
        form = replace(variant, team=team)
        is_last = team is teams[-1]
        when = () if is_last else (Condition(size, "<=", team.most),)
        for made in (form, replace(form, stages=False)) if is_last and form.staged else (form,):
            forms += [(replace(made, aligned=True), (*when, whole)), (made, when)]
    return forms


def _is_scattered(op: Op) -> bool:
    """Whether an op is a gather whose neighbours lie anywhere."""
    return op.name == "gather" and op.results[0].rank - 1 not in op.attrs["offset_dims"]
