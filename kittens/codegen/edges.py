"""Edges of tensors: what has to be tested so that a tile's elements outside are neither read nor written.

Along an axis whose extent is a multiple of the tile's, a tile lies inside or outside as a whole, and one test of scalars
does for all elements. None is needed where the tile's coordinate is that of a loop that ends with the axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from kittens.codegen.known import constant
from kittens.codegen.views import Axis, resolve
from kittens.ir import Op, Region, Value


class Limit(str):
    """How many positions along an axis of a tile lie inside, as text: a number, or the name of one.

    size: the tile's extent. whole: whether the limit is 0 or `size`.
    """

    size: int
    whole: bool

    def __new__(cls, text: str, size: int, *, whole: bool) -> Limit:
        self = super().__new__(cls, text)
        self.size, self.whole = size, whole
        return self

    @property
    def all(self) -> bool:
        """Whether all positions are known to lie inside."""
        return str(self) == str(self.size)

    def tests(self, position: str) -> list[str]:
        """What must be true for a position to lie inside; nothing where all do."""
        return [] if self.all else [f"{self} > 0" if self.whole else f"{position} < {self}"]


def known_limit(coordinate: Value, size: int, axis: Axis, loops: dict[Value, Op]) -> int | None:
    """How many positions of a tile lie inside, where that is known. `loops`: by their index."""
    number, extent = constant(coordinate), axis.known_extent.value
    if number is not None and extent is not None:
        return max(0, min(size, extent - number * size)) if number >= 0 else 0
    return size if divides(size, axis) and _below(coordinate, size, axis, loops) else None


def tested(op: Op, extents: Sequence[int], loops: dict[Value, Op]) -> list[str]:
    """For each axis of a load or store, what is tested there: "nothing", "scalars" or "elements"."""
    view = resolve(op.operands[0], lambda v: "x")
    found = []
    for coordinate, size, axis in zip(op.operands[1:], extents, view.axes, strict=False):
        known = known_limit(coordinate, size, axis, loops)
        whole = divides(size, axis) if known is None else known in (0, size)
        found.append("nothing" if known == size else "scalars" if whole else "elements")
    return found


def divides(size: int, axis: Axis) -> bool:
    """Whether an axis is known to be a multiple of a tile's extent."""
    known = axis.known_extent
    return (known.value if known.value is not None else known.divisor) % size == 0


def loops_by_index(region: Region) -> dict[Value, Op]:
    """Every loop in a region, by its index."""
    return {op.regions[0].args[0]: op for op in region.walk() if op.name == "loop"}


def _below(coordinate: Value, size: int, axis: Axis, loops: dict[Value, Op]) -> bool:
    """Whether a coordinate is that of a loop from 0 or later on to the end of the axis, or before it."""
    loop = loops.get(coordinate)
    if loop is None:
        return False
    lo, hi, step = loop.operands[:3]
    return (constant(step) or 0) > 0 and _natural(lo, loops) and _at_most(hi, size, axis)


def _at_most(value: Value, size: int, axis: Axis) -> bool:
    """Whether a value is no more than the number of tiles along an axis."""
    op = value.producer
    if op is None:
        return False
    number, extent = constant(value), axis.known_extent.value
    if number is not None:
        return extent is not None and number <= -(-extent // size)
    if op.name == "minimum":
        return any(_at_most(x, size, axis) for x in op.operands)
    if op.name != "cdiv" or constant(op.operands[1]) != size:
        return False
    of = op.operands[0].producer
    return of is not None and of.name == "dim" and (of.operands[0], of.attrs["axis"]) == axis.of


def _natural(value: Value, loops: dict[Value, Op]) -> bool:
    """Whether an integer is known not to be negative."""
    op = value.producer
    if op is None:
        lo, _, step = loops[value].operands[:3] if value in loops else (None, None, None)
        return lo is not None and step is not None and (constant(step) or 0) > 0 and _natural(lo, loops)
    number = constant(value)
    if number is not None:
        return number >= 0
    if op.name in ("dim", "program_id", "num_programs"):
        return True
    if op.name == "maximum":
        return any(_natural(x, loops) for x in op.operands)
    if op.name in ("add", "mul", "minimum", "floordiv", "cdiv", "mod"):
        return all(_natural(x, loops) for x in op.operands)
    return False
