"""Placements as pictures in text."""

from __future__ import annotations

from .shared import Shared, offset
from .tiled import Tiled, table


def picture(layout: Tiled, *, rows: int = 16, cols: int = 16) -> str:
    """A grid of ``lane:register`` (``group/lane:register`` for several groups), corner of the tile.

    Elements held more than once show every holder, joined by ``=``.
    """
    cells: dict[tuple[int, ...], list[str]] = {}
    where = table(layout)
    for group in range(layout.groups):
        for lane in range(layout.lanes):
            for register in range(layout.registers):
                name = f"{lane}:{register}" if layout.groups == 1 else f"{group}/{lane}:{register}"
                cells.setdefault(tuple(where[group, lane, register].tolist()), []).append(name)
    shape = layout.shape if len(layout.shape) == 2 else (1, *layout.shape)
    grid = [
        ["=".join(cells.get((r, c)[-len(layout.axes) :], ["-"])) for c in range(min(cols, shape[1]))]
        for r in range(min(rows, shape[0]))
    ]
    return _grid(grid, shape)


def picture_shared(shared: Shared, *, rows: int = 16, step: int = 16) -> str:
    """A grid of byte offsets: one line a row, one number for every ``step`` bytes of it."""
    items = max(1, step // shared.itemsize)
    height, width = shared.shape
    grid = [[str(offset(shared, r, c)) for c in range(0, width, items)] for r in range(min(rows, height))]
    return _grid(grid, (height, len(range(0, width, items))))


def _grid(cells: list[list[str]], shape: tuple[int, ...]) -> str:
    size = max((len(cell) for line in cells for cell in line), default=0)
    label = len(str(len(cells) - 1))
    head = " " * (label + 2) + " ".join(f"{c:>{size}}" for c in range(len(cells[0])))
    lines = [f"{r:>{label}}: " + " ".join(f"{cell:>{size}}" for cell in line) for r, line in enumerate(cells)]
    if len(cells[0]) < shape[1]:
        lines = [line + " ..." for line in lines]
    if len(cells) < shape[0]:
        lines.append("...")
    return "\n".join([head, *lines])
