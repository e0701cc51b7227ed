"""Tensor maps in the text: what the engine finds a tile of a tensor by."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.artifact import SLICE_ROWS, Parameter, TileMap
from kittens.codegen.emit.writer import Writer
from kittens.codegen.engine import View
from kittens.codegen.views import cname, extent_text
from kittens.ir import Op, Value


def order_of(axes: Sequence[int | Value], inner: int, outer: int) -> tuple[int, ...]:
    """A tensor's axes as a map lists them: the two of the tile, then the others."""
    first = (axes.index(inner), axes.index(outer))
    return (*first, *(i for i in reversed(range(len(axes))) if i not in first))


def map_of(writer: Writer, maps: dict[TileMap, Parameter], tile: TileMap) -> str:
    """The name of the parameter that is a map."""
    if tile not in maps:
        taken = {p.text for p in maps.values()} | writer.taken
        name = f"{cname(tile.tensor)}_map"
        while name in taken:
            name += "_"
        maps[tile] = Parameter("map", tile.tensor, 0, "kt_map", name, tile)
    return maps[tile].text


def places_of(writer: Writer, op: Op, extents: Sequence[int], view: View, order: Sequence[int]) -> list[str]:
    """Where the tile of a load or store begins along each axis of its map, which lists its tensor's in this order."""
    places = []
    for axis in (view.axes[i] for i in order):
        if isinstance(axis, int):
            text = writer.scalar(op.operands[1 + axis])
            places.append(f"kt_position({text}, {extents[axis]})" if text != "kt_i64(0)" else "0")
        else:
            places.append(f"kt_position({writer.scalar(axis)}, 1)")
    if view.slice is None:
        return places
    rows = extent_text(view.parameter, view.slice.axis)
    first, last = (f"kt_cut({writer.scalar(bound)}, {rows})" for bound in (view.slice.first, view.slice.last))
    places[1] = f"kt_row_of_slice({places[1]}, {last} - {first}, {SLICE_ROWS})"
    return [*places, f"kt_i32({last})", str(SLICE_ROWS)]
