"""Conditions on positions, such as `key <= query`: compared in 32 bits, and decided for whole tiles by a scalar test.

A position is a sum of scalars of 64 bits and of places within a tile, which are small. A mask is a comparison of two. Where
a test of the scalars alone says that it holds for the whole tile, or for all that a group of lanes holds of it, `where` need
not look at elements: most blocks of attention are met by no edge and no diagonal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from kittens.codegen.emit.text import paren, source_index
from kittens.codegen.placement import dtype_of, is_tile, shape, squeezed
from kittens.ir import Op, Value
from kittens.layouts import Tiled
from kittens.layouts import table as tiled_table
from kittens.opset.elementwise import COMPARISONS

#: The tests that are asked of a difference, and whether it is largest where they are hardest to pass.
_ORDERED = {"lt": ("<", True), "le": ("<=", True), "gt": (">", False), "ge": (">=", False)}
_SYMBOLS = {name: symbol for name, (symbol, _) in _ORDERED.items()} | {"eq": "==", "ne": "!="}


@dataclass(frozen=True)
class Position:
    """A sum: scalars with their signs, and places within a tile with signs, as text and below an extent each."""

    scalars: tuple[tuple[int, Value], ...] = ()
    places: tuple[tuple[int, str, int], ...] = ()

    def plus(self, other: Position, sign: int) -> Position:
        """The sum with another (sign 1), or the difference (-1)."""
        return Position(
            self.scalars + tuple((sign * s, v) for s, v in other.scalars),
            self.places + tuple((sign * s, t, n) for s, t, n in other.places),
        )


def position(value: Value, index: Sequence[str], implicit: Collection[Value]) -> Position | None:
    """An integer as a sum, at an index of its tile; None if it is no such sum. `implicit`: values computed in place."""
    if not is_tile(value):
        return Position(((1, value),)) if dtype_of(value) == "int64" else None
    op = value.producer
    if op is None or value not in implicit:
        return None
    if op.name == "arange":
        return Position((), ((1, index[0], shape(value)[0]),))
    if op.name in ("broadcast", "reshape", "transpose"):
        (operand,) = op.operands
        return position(operand, source_index(op, list(index)) if is_tile(operand) else [], implicit)
    if op.name == "cast" and op.attrs["dtype"] == "int64" and dtype_of(op.operands[0]) in ("int32", "int64"):
        return position(op.operands[0], index, implicit)
    if op.name in ("add", "sub") and dtype_of(value) == "int64":
        left, right = (position(x, index, implicit) for x in op.operands)
        if left is not None and right is not None:
            return left.plus(right, 1 if op.name == "add" else -1)
    return None


def difference(op: Op, index: Sequence[str], implicit: Collection[Value]) -> Position | None:
    """What a comparison compares with 0, if it compares positions."""
    if op.name not in COMPARISONS or any(dtype_of(x) != "int64" for x in op.operands):
        return None
    left, right = (position(x, index, implicit) for x in op.operands)
    return left.plus(right, -1) if left is not None and right is not None else None


def compared(
    op: Op, index: Sequence[str], implicit: Collection[Value], scalar: Callable[[Value], str]
) -> str | None:
    """A comparison of positions in 32 bits: scalars are cut to what places in a tile can make up for. None for others."""
    found = difference(op, index, implicit)
    if found is None:
        return None
    near = _near(found, scalar)
    plus, minus = (
        " + ".join([*more, *(paren(t) for s, t, _ in found.places if s == sign)])
        for sign, more in ((1, [near] if near else []), (-1, []))
    )
    return f"({plus or 0} {_SYMBOLS[op.name]} {minus or 0})"


@dataclass(frozen=True)
class Held:
    """What a group of lanes holds of a tile along one axis: from `first` (text, alike in the group) on, `size` positions."""

    first: str
    size: int


#: A test that a sum of scalars, and more terms of it as text, compares so with a number: (sum, terms, symbol, number).
Test = Callable[[Position, str, str, int], str]


def everywhere(
    condition: Value,
    implicit: Collection[Value],
    scalar: Callable[[Value], str],
    held: Sequence[Held] | None = None,
    test: Test | None = None,
) -> str | None:
    """A scalar test that a condition holds for every element of its tile, where one is known. It may fail where it does.

    held: for each axis of the condition, what a group holds of it; then the test is for each group's elements. test: how
    sums of scalars are tested, if not in 32 bits where they stand.
    """
    op = condition.producer
    if not is_tile(condition):
        return scalar(condition)
    if op is None or condition not in implicit:
        return None
    if op.name == "const":
        return "true" if op.attrs["value"] else None
    if op.name in ("broadcast", "reshape", "transpose"):
        return everywhere(op.operands[0], implicit, scalar, test=test)
    if op.name == "bitand":
        tests = [everywhere(x, implicit, scalar, held, test) for x in op.operands]
        return f"({' && '.join(map(str, tests))})" if None not in tests else None
    index = [f"@{i}" if n > 1 else "0" for i, n in enumerate(shape(condition))]
    found = difference(op, index, implicit)
    if found is None or op.name not in _ORDERED:
        return None
    symbol, largest = _ORDERED[op.name]
    worst, firsts = 0, ""
    for sign, text, extent in found.places:
        part = (
            held[index.index(text)]
            if held is not None and text in index and text != "0"
            else Held("0", extent)
        )
        if part.first != "0":
            firsts += f"{' + ' if sign > 0 else ' - '}{paren(part.first)}"
        if (sign > 0) == largest:
            worst += sign * (part.size - 1)
    if test is not None:
        return test(found, firsts, symbol, -worst)
    return near_test(scalar)(found, firsts, symbol, -worst)


def near_test(scalar: Callable[[Value], str]) -> Test:
    """The test in 32 bits."""
    return lambda found, more, symbol, bound: f"({_near(found, scalar, more) or 0} {symbol} {bound})"


def total(found: Position, scalar: Callable[[Value], str], more: str = "") -> str:
    """The scalars' sum in 64 bits, and more terms of it; empty if there are none."""
    text = ""
    for sign, value in sorted(found.scalars, key=lambda x: -x[0]):
        text += f"{' - ' if sign < 0 else ' + ' if text else ''}{paren(scalar(value))}"
    return (f"{text}{more}" if text else more.removeprefix(" + ")).strip()


def held_by_groups(
    layout: Tiled, extents: Sequence[int], table: Callable[[Sequence[int], str], str]
) -> list[Held] | None:
    """What each group of a layout holds along the axes of a shape; table(values, index) gives values[index] as text."""
    small = squeezed(extents)
    if small != layout.shape:
        return None
    parts = []
    for axis, n in enumerate(small):
        held = tiled_table(layout)[..., axis].reshape(layout.groups, -1)
        firsts, sizes = held.min(axis=1), held.max(axis=1) - held.min(axis=1) + 1
        same = len(set(sizes.tolist())) == 1
        first = table(firsts.tolist(), "group" if layout.groups > 1 else "0") if same else "0"
        parts.append(Held(first, int(sizes[0]) if same else n))
    found = iter(parts)
    return [Held("0", 1) if n == 1 else next(found) for n in extents]


def _near(found: Position, scalar: Callable[[Value], str], more: str = "") -> str:
    """The scalars' sum, and more terms of it, cut; empty if there are none."""
    text = total(found, scalar, more)
    return f"kt_near({text})" if text else ""
