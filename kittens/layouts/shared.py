"""Where a tile lies in shared memory: (row, col) -> byte offset.

The offset of an element in row-major order is sent through a swizzle, an xor of some offset bits
into others, so that lanes reading down a column meet different banks. Both are linear over bits
inside an *atom*, a power-of-two piece of the tile; atoms repeat over a mixed-radix grid.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import linear
from .linear import Linear

AXES = ("row", "col")


class Xor(NamedTuple):
    """Xor ``bits`` offset bits from ``source`` up into those from ``target`` up.

    ``o ^ ((o >> source) & (2**bits - 1)) << target``, where ``o`` is a byte offset.
    """

    source: int
    bits: int
    target: int


@dataclass(frozen=True)
class Shared:
    """A tile's placement in shared memory.

    ``atom`` maps (row, col) bits to byte-offset bits. ``digits`` repeat it, finest first: an
    (axis, size) pair steps along the axis over the atom and the axis's earlier digits, and in
    memory over all of them. After every ``pad[0]`` bytes, ``pad[1]`` bytes stay unused.
    """

    atom: Linear
    itemsize: int
    digits: tuple[tuple[str, int], ...] = ()
    pad: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", tuple(d for d in self.digits if d[1] != 1))

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns) in elements."""
        rows, cols = (
            (1 << linear.span(self.atom.inputs, axis)[1])
            * math.prod(size for a, size in self.digits if a == axis)
            for axis in AXES
        )
        return rows, cols

    @property
    def size(self) -> int:
        """Bytes taken, padding between rows counted."""
        plain = self.shape[0] * self.shape[1] * self.itemsize
        every, extra = self.pad
        return plain + ((plain - 1) // every * extra if every else 0)


def swizzle(bits: int, xors: Sequence[Xor]) -> Linear:
    """The map of byte offsets (``bits`` of them) that applies ``xors``, all read before any is written."""
    columns = [1 << i for i in range(bits)]
    for source, many, target in xors:
        if source + many > bits:
            raise ValueError(f"{Xor(source, many, target)} reads beyond {bits} offset bits")
        for i in range(many):
            columns[source + i] ^= 1 << target + i
    axes = (("offset", bits),)
    return Linear(axes, axes, tuple(columns))


def shared_tile(
    shape: tuple[int, int],
    itemsize: int,
    *,
    subtile: tuple[int, int] | None = None,
    order: tuple[str, str] = ("col", "row"),
    xors: Sequence[Xor] = (),
    pad: int = 0,
) -> Shared:
    """A tile of ``shape`` elements as a grid of subtiles, each row-major and contiguous.

    Without ``subtile`` the whole tile is one. ``order`` lists the axes, the one along which
    subtiles follow each other in memory first: ``("row", "col")`` with a subtile as tall as the
    tile makes column panels. ``xors`` are applied to offsets, ``pad`` bytes follow each row of a
    subtile (with padding, subtiles must be whole rows or panels).
    """
    rows, cols = subtile or shape
    if shape[0] % rows or shape[1] % cols:
        raise ValueError(f"a tile of {shape} is no grid of subtiles of {(rows, cols)}")
    powers = {"row": rows & -rows, "col": cols & -cols}
    if xors and powers["col"] != cols:
        raise ValueError(f"a swizzled row of {cols} elements is no power of two: use panels")
    if itemsize & itemsize - 1:
        raise ValueError(f"an element of {itemsize} bytes")
    bits = {axis: n.bit_length() - 1 for axis, n in powers.items()}
    item_bits = itemsize.bit_length() - 1
    if powers["col"] != cols:  # rows of an odd number of pieces: the atom is one row's piece
        bits["row"], powers["row"] = 0, 1
    inputs = (("row", bits["row"]), ("col", bits["col"]))
    total = item_bits + bits["row"] + bits["col"]
    columns = [1 << item_bits + bits["col"] + i for i in range(bits["row"])]
    columns += [1 << item_bits + i for i in range(bits["col"])]
    plain = Linear(inputs, (("offset", total),), tuple(columns))
    grid = {"row": shape[0] // rows, "col": shape[1] // cols}
    inner = (("col", cols // powers["col"]), ("row", rows // powers["row"]))
    outer = tuple((axis, grid[axis]) for axis in order)
    row_bytes = cols * itemsize
    return Shared(
        linear.compose(swizzle(total, xors), plain),
        itemsize,
        _merge(inner + outer),
        (row_bytes, pad) if pad else (0, 0),
    )


def panels(
    shape: tuple[int, int],
    itemsize: int,
    *,
    panel_bytes: int,
    xors: Sequence[Xor] = (),
) -> Shared:
    """A tile as column panels of ``panel_bytes``, one after the other, each as tall as the tile."""
    columns = panel_bytes // itemsize
    return shared_tile(shape, itemsize, subtile=(shape[0], columns), order=("row", "col"), xors=xors)


def _merge(digits: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """Join neighbouring digits of one axis."""
    merged: list[tuple[str, int]] = []
    for axis, size in digits:
        if size == 1:
            continue
        if merged and merged[-1][0] == axis:
            merged[-1] = (axis, merged[-1][1] * size)
        else:
            merged.append((axis, size))
    return tuple(merged)


def offset(shared: Shared, row: Any, col: Any) -> Any:
    """Byte offset of an element. Ints or NumPy arrays."""
    low, high = {}, {}
    for axis, value in zip(AXES, (row, col), strict=True):
        bits = linear.span(shared.atom.inputs, axis)[1]
        low[axis], high[axis] = value & (1 << bits) - 1, value >> bits
    (value,) = shared.atom(**low)
    step = 1 << linear.width(shared.atom.outputs)
    for axis, size in shared.digits:
        value = value + high[axis] % size * step
        high[axis] = high[axis] // size
        step *= size
    every, extra = shared.pad
    return value + (value // every * extra if every else 0)


def element_at(shared: Shared, byte: Any) -> tuple[Any, Any]:
    """(row, col) of the element that holds the byte at an offset (not one of padding).

    Copies that write shared memory in linear order take their source address from here: the
    swizzle is applied to the global address instead.
    """
    every, extra = shared.pad
    if every:
        byte = byte // (every + extra) * every + byte % (every + extra)
    bits = linear.width(shared.atom.outputs)
    low, high = byte & (1 << bits) - 1, byte >> bits
    low = low - low % shared.itemsize
    back = _element_map(shared.atom)
    found = dict(zip(AXES, linear.unpack(shared.atom.inputs, back.packed(low)), strict=True))
    step = {axis: 1 << n for axis, n in shared.atom.inputs}
    for axis, size in shared.digits:
        found[axis] = found[axis] + high % size * step[axis]
        step[axis] *= size
        high = high // size
    return found["row"], found["col"]


def _element_map(atom: Linear) -> Linear:
    """Byte offset -> (row, col), where ``atom`` reaches the offset."""
    n = linear.width(atom.inputs)
    rows = linear.echelon(column << n | 1 << i for i, column in enumerate(atom.columns))
    lead = {(row >> n).bit_length() - 1: row & (1 << n) - 1 for row in rows}
    # Reduced rows: an offset that is reached is the sum of the rows of its leading bits.
    return Linear(atom.outputs, atom.inputs, tuple(lead.get(i, 0) for i in range(linear.width(atom.outputs))))
