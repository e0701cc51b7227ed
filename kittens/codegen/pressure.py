"""How many registers a plan's tiles take of a lane at the worst moment.

A prediction, for targets whose compilers do not tell, and to choose tile sizes by. A tile that is read for
the last time gives its registers to the result. Views, and tiles in shared memory, take none.
"""

from __future__ import annotations

from kittens.codegen.placement import is_tile
from kittens.codegen.plan import Plan
from kittens.ir import Op, Region, TileType, Value
from kittens.layouts import Tiled

_VIEWS = ("broadcast", "transpose", "reshape")
#: Of addresses, coordinates, loop counters and bounds.
OVERHEAD = 24


def registers(plan: Plan) -> int:
    """32-bit registers of a lane, predicted. The plan's text must have been written."""
    life = _Lives()
    life.region(plan.function.body, ())
    products = {life.position[op]: _operands(plan, op) for op in plan.placement.products}
    change = [0] * (life.now + 2)
    for value, end in life.last.items():
        size, start = _size(plan, value), life.born.get(value, 0)
        if end > start:
            change[start] += size
            change[end] -= size
    most = taken = 0
    for at, delta in enumerate(change):
        taken += delta
        most = max(most, taken + products.get(at, 0))
    return most + plan.kept_words + OVERHEAD


class _Lives:
    """When values are made, and when they are read last, in the order of the text."""

    def __init__(self) -> None:
        self.now = 0
        self.position: dict[Op, int] = {}
        self.born: dict[Value, int] = {}
        self.last: dict[Value, int] = {}

    def region(self, region: Region, loops: tuple[tuple[int, list[Value]], ...]) -> None:
        """`loops`: those around, each with where it starts and a list for what it reads from outside."""
        for op in region.ops:
            self.now += 1
            at = self.position[op] = self.now
            for value in op.operands:
                self._read(value, loops)
            for inner in op.regions:
                outside: list[Value] = []
                for argument in inner.args:
                    self.born[argument] = at
                self.region(inner, (*loops, (at, outside)) if op.name == "loop" else loops)
                for value in outside:
                    self.last[value] = max(self.last.get(value, 0), self.now)
            for value in op.results:
                self.born[value] = self.now if op.regions else at

    def _read(self, value: Value, loops: tuple[tuple[int, list[Value]], ...]) -> None:
        while value.producer is not None and value.producer.name in _VIEWS:
            value = value.producer.operands[0]
        self.last[value] = self.now
        for start, outside in loops:
            if self.born.get(value, 0) < start:
                outside.append(value)


def _size(plan: Plan, value: Value) -> int:
    """Registers that a value takes."""
    layout = plan.placement.layouts.get(value)
    if (
        layout is None
        or not is_tile(value)
        or value in (*plan.staged, *plan.streamed)
        or value in plan.placement.implicit
    ):
        return 0
    assert isinstance(value.type, TileType)
    return _words(layout, value.type.dtype.bits)


def _words(layout: Tiled, bits: int) -> int:
    return -(-layout.registers * max(bits, 16) // 32)


def _operands(plan: Plan, op: Op) -> int:
    """Registers of the fragments that one step of a product reads."""
    matrix = plan.placement.products[op]
    if matrix.op is None or matrix.a is None or matrix.b is None:
        return 4
    return sum(_words(layout, matrix.op.bits) for layout in (matrix.a, matrix.b)) // matrix.tiles[2]
