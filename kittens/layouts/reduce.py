"""What a reduction along an axis must combine, and where its result lives.

The layout of ``x.max(axis=1)`` is that of ``x`` with the axis divided out: registers that differed
only along it become one, lanes and groups that did become copies. The same tables read the other
way broadcast the result back over ``x``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from . import linear
from .linear import Linear
from .tiled import Digit, Tiled, table


@dataclass(frozen=True)
class Reduction:
    """A recipe in three steps, each on the result of the one before.

    1. Inside a lane: register ``r`` of the tile goes into register ``into[r]`` of the result.
    2. Inside a group: combine each result register with that of lane ``lane ^ mask``, for each of
       ``lane_masks`` in turn. Every lane then has the group's result.
    3. Over groups: the groups of each set in ``group_sets`` hold different parts of the same
       result and exchange them; empty when no result crosses groups. Copies are counted once:
       a group that holds a copy of another's part is in a set of its own kind.

    To broadcast back, register ``r`` of the tile reads register ``into[r]`` of the result.
    """

    result: Tiled
    into: tuple[int, ...]
    lane_masks: tuple[int, ...]
    group_sets: tuple[tuple[int, ...], ...]


def reduction(layout: Tiled, axis: str) -> Reduction:
    """How to reduce a tile along ``axis``.

    A ValueError where the axis ties bits of different kinds together (a register bit and a lane
    bit that move the same kept coordinate): such a tile must be converted first.
    """
    if axis not in layout.axes:
        raise ValueError(f"no axis {axis!r} among {layout.axes}")
    f = layout.fragment
    kept = [a for a in layout.axes if a != axis]
    projected = linear.project(f, kept)
    merged = linear.kernel(projected)
    parts = {owner: _within(f, owner, merged) for owner, _ in f.inputs}
    if sum(map(len, parts.values())) != len(merged):
        raise ValueError(f"a reduction along {axis} mixes registers and lanes of {linear.spell(f)}")

    # Registers: divide by the merged combinations; the bits that lead none of them remain.
    lead = {vector.bit_length() - 1 for vector in parts.get("register", ())}
    remain = [i for i in range(linear.span(f.inputs, "register")[1]) if i not in lead]
    inputs = tuple((o, len(remain) if o == "register" else n) for o, n in f.inputs)
    columns: list[int] = []
    for owner, _ in f.inputs:
        bits = projected.bits(owner)
        columns += [bits[i] for i in remain] if owner == "register" else bits
    digits = [
        Digit(d.owner, None if d.axis == axis else d.axis, d.size)
        for d in layout.digits
        if not (d.owner == "register" and d.axis in (axis, None))
    ]
    result = Tiled(Linear(inputs, projected.outputs, tuple(columns)), tuple(digits))

    copies = linear.kernel(f)
    known = list(_within(f, "lane", copies))
    masks = []
    for mask in sorted(parts.get("lane", ())):
        if linear.reduce_by(linear.echelon(known), mask):
            known.append(mask)
            masks.append(mask)
    into = tuple(_into(layout, axis, parts.get("register", ()), remain))
    return Reduction(result, into, tuple(masks), _group_sets(layout, axis))


def _within(f: Linear, owner: str, space: tuple[int, ...]) -> tuple[int, ...]:
    """Reduced basis of the part of ``space`` (packed inputs of ``f``) that only moves ``owner``."""
    start, count = linear.span(f.inputs, owner)
    own = (1 << count) - 1 << start
    n = linear.width(f.inputs)
    rows = linear.echelon((vector & ~own) << n | vector for vector in space)
    return linear.echelon((row & own) >> start for row in rows if row < 1 << n)


def _into(layout: Tiled, axis: str, merged: tuple[int, ...], remain: list[int]) -> list[int]:
    """Result register of every register."""
    bits = linear.span(layout.fragment.inputs, "register")[1]
    found = []
    for register in range(layout.registers):
        low, high = register & (1 << bits) - 1, register >> bits
        low = linear.reduce_by(merged, low)
        value = sum((low >> bit & 1) << i for i, bit in enumerate(remain))
        step = 1 << len(remain)
        for digit in layout.digits:
            if digit.owner == "register":
                if digit.axis not in (axis, None):
                    value += high % digit.size * step
                    step *= digit.size
                high //= digit.size
        found.append(value)
    return found


def _group_sets(layout: Tiled, axis: str) -> tuple[tuple[int, ...], ...]:
    """Sets of groups with the same kept coordinates and different ones along ``axis``."""
    where = table(layout)
    i = layout.axes.index(axis)
    members: dict[bytes, dict[bytes, list[int]]] = defaultdict(lambda: defaultdict(list))
    for group in range(layout.groups):
        kept = where[group][..., [j for j in range(where.shape[-1]) if j != i]].tobytes()
        members[kept][where[group][..., i].tobytes()].append(group)
    sets = []
    for parts in members.values():
        if len(parts) > 1:
            sets += [tuple(sorted(copy)) for copy in zip(*parts.values(), strict=True)]
    return tuple(sorted(sets))
