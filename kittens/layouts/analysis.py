"""What a placement costs: bank conflicts, coalescing, registers. Counted, not measured.

A backend describes how its shared memory serves an access (its banks, and which lanes it serves
together); the counts follow from the layouts alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from .shared import Shared, Xor, offset, panels
from .tiled import Tiled, runs, table

BANK_BYTES = 4


@dataclass(frozen=True)
class Access:
    """One kind of shared-memory access: ``size`` bytes a lane, served in ``phases`` of lanes.

    A bank is ``byte / 4 % banks``. A phase takes as many cycles as the busiest bank has different
    words wanted of it; lanes that want the same word share it. ``evidence`` says where it is from.
    """

    name: str
    size: int
    banks: int
    phases: tuple[tuple[int, ...], ...]
    evidence: str


class Cost(NamedTuple):
    """Cycles (or transactions) taken, and those it would take at best."""

    actual: int
    ideal: int

    @property
    def factor(self) -> float:
        """1.0 when free of conflicts."""
        return self.actual / self.ideal if self.ideal else 1.0


def total(costs: Iterable[Cost]) -> Cost:
    """The sum of costs."""
    actual, ideal = 0, 0
    for cost in costs:
        actual, ideal = actual + cost.actual, ideal + cost.ideal
    return Cost(actual, ideal)


def bank_cost(access: Access, addresses: Sequence[int] | Any) -> Cost:
    """Cycles of one access. ``addresses``: first byte of every lane; negative for a lane that is off."""
    actual = ideal = 0
    words = np.arange(max(1, access.size // BANK_BYTES))
    where = np.asarray(addresses, np.int64)
    for phase in access.phases:
        first = where[list(phase)]
        first = first[first >= 0]
        if first.size:
            wanted = np.unique(first[:, None] // BANK_BYTES + words)
            actual += int(np.bincount(wanted % access.banks).max())
            ideal += 1
    return Cost(actual, ideal)


def phase_lanes(lanes: int, size: int) -> tuple[tuple[int, ...], ...]:
    """Phases of ``size`` consecutive lanes each."""
    return tuple(tuple(range(i, i + size)) for i in range(0, lanes, size))


def shared_cost(
    layout: Tiled, shared: Shared, access: Access, *, axis: str = "col", group: int | None = None
) -> Cost:
    """Cycles to move a tile between registers and shared memory, lane vectors along ``axis``.

    For one ``group``, or all of them in turn. A ValueError if a lane's vectors do not lie in one
    piece in memory, or phases and lanes do not fit.
    """
    if sum(len(phase) for phase in access.phases) != layout.lanes:
        raise ValueError(f"{access.name} is for other than {layout.lanes} lanes")
    vector = access.size // shared.itemsize
    pieces = runs(layout, axis, vector)
    if len(pieces[0]) != vector:
        raise ValueError(f"lanes hold {len(pieces[0])} neighbours along {axis}, {access.name} moves {vector}")
    where = table(layout)
    address = offset(shared, where[..., 0], where[..., 1])
    costs = []
    for g in range(layout.groups) if group is None else (group,):
        for piece in pieces:
            at = address[g][:, list(piece)]
            if (np.diff(at, axis=1) != shared.itemsize).any() or (at[:, 0] % access.size).any():
                raise ValueError(f"{access.name} needs {access.size} bytes in one aligned piece")
            costs.append(bank_cost(access, at[:, 0]))
    return total(costs)


def global_cost(layout: Tiled, itemsize: int, pitch: int, *, segment: int, vector: int | None = None) -> Cost:
    """Memory segments touched to load or store a tile, access by access, and the fewest possible.

    ``pitch`` is the bytes from a row to the next, ``segment`` the bytes of one transaction (the
    tile starts on a segment). Lanes move ``vector`` elements of the last axis at once (the widest,
    up to 16 bytes, unless given). Copies that several lanes hold are moved once.
    """
    pieces = runs(layout, layout.axes[-1], vector or 16 // itemsize)
    where = table(layout)
    byte = where[..., -1] * itemsize
    if where.shape[-1] > 1:
        byte = byte + where[..., 0] * pitch
    costs = []
    for g in range(layout.groups):
        for piece in pieces:
            starts = np.unique(byte[g][:, piece[0]])
            size = len(piece) * itemsize
            ends = (starts + size - 1) // segment
            touched = np.unique(np.concatenate([starts // segment, ends]))
            costs.append(Cost(len(touched), -(-len(starts) * size // segment)))
    return total(costs)


def registers_per_lane(layout: Tiled, itemsize: int) -> int:
    """32-bit registers that a lane needs for its elements, packed."""
    return -(-layout.registers * itemsize // 4)


def find_swizzle(
    shape: tuple[int, int],
    itemsize: int,
    uses: Sequence[tuple[Tiled, Access, str]],
    *,
    panel_bytes: int,
) -> tuple[tuple[Xor, ...], Cost]:
    """The simplest xors that make all ``uses`` (layout, access, vector axis) cheapest together.

    Tries no xor, one, then two, on a tile in panels of ``panel_bytes``; stops at the first set
    free of conflicts. Only the first group of each layout is counted.
    """
    low = max(access.size for _, access, _ in uses).bit_length() - 1
    top = panel_bytes.bit_length() - 1 + (shape[0] & -shape[0]).bit_length() - 1
    row = panel_bytes.bit_length() - 1
    singles = [
        Xor(source, bits, target)
        for bits in (3, 2, 1, 4)
        for target in range(low, row - bits + 1)
        for source in range(row, top - bits + 1)
    ]
    pairs = ((a, b) for a, b in product(singles, singles) if a.source + a.bits <= b.source)
    best: tuple[tuple[Xor, ...], Cost] | None = None
    for xors in ((), *((x,) for x in singles), *pairs):
        tile = panels(shape, itemsize, panel_bytes=panel_bytes, xors=xors)
        cost = total(shared_cost(t, tile, a, axis=axis, group=0) for t, a, axis in uses)
        if best is None or cost.actual < best[1].actual:
            best = (xors, cost)
        if cost.actual == cost.ideal:
            break
    assert best is not None
    return best
