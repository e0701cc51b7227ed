"""How product operands are read from shared memory, and what that costs in bank conflicts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from kittens import layouts as lay
from kittens.codegen.machine import Machine
from kittens.layouts import Cost, Shared, Tiled


@functools.lru_cache(1024)
def collective(
    layout: Tiled, pattern: lay.Linear, move_bits: int, elements: int, bits: int, cols: int, per_step: int
) -> tuple[Tiled, int] | None:
    """Where lanes point for a collective load to fill a layout, and the registers filled; None if it cannot."""
    if move_bits != bits:
        return None
    filled = 1 << lay.linear.span(pattern.outputs, "register")[1]
    if per_step % filled or cols % elements:
        return None
    try:
        pointing = lay.addresses(layout, pattern)
        runs = lay.runs(pointing, "col", elements)
    except ValueError:
        return None
    if len(runs[0]) != elements or any(run != tuple(range(run[0], run[0] + elements)) for run in runs):
        return None
    return pointing, filled


def read_cost(machine: Machine, layout: Tiled, steps: int, shared: Shared) -> Cost | None:
    """Cycles to read an operand of `steps` steps along K from a tile; None where the machine does not say."""
    bits = shared.itemsize * 8
    for move in machine.moves:
        each = layout.registers // steps
        found = collective(layout, move.pattern, move.bits, move.elements, bits, shared.shape[1], each)
        if found is not None:
            return lay.shared_cost(found[0], shared, move.access, group=0) if move.access else None
    width = len(lay.runs(layout, "col", 16 // shared.itemsize)[0]) * shared.itemsize
    access = machine.reads.get(width)
    return lay.shared_cost(layout, shared, access, group=0) if access else None


def tile(
    machine: Machine, shape: tuple[int, int], itemsize: int, uses: Sequence[tuple[Tiled, int]]
) -> tuple[Shared, Cost | None]:
    """A tile in shared memory that `uses` read with as few bank conflicts as can be, and what that costs.

    A use is the layout it reads, and its steps along K.
    """
    panel = next((p for p in (128, 64, 32) if shape[1] * itemsize % p == 0 and p in machine.swizzles), 0)
    if not panel:
        return lay.shared_tile(shape, itemsize, pad=machine.pad), None
    best: tuple[Shared, Cost | None] | None = None
    for xors in (machine.swizzles[panel], *machine.more_swizzles.get(panel, ())):
        try:
            shared = lay.panels(shape, itemsize, panel_bytes=panel, xors=xors)
        except ValueError:  # the tile has too few rows
            continue
        costs = [read_cost(machine, layout, steps, shared) for layout, steps in uses]
        known = [c for c in costs if c is not None]
        cost = lay.total(known) if known else None
        if best is None or (cost is not None and best[1] is not None and cost.actual < best[1].actual):
            best = shared, cost
        if cost is None or cost.actual == cost.ideal:
            break
    return best or (lay.shared_tile(shape, itemsize, pad=machine.pad), None)
