"""Tensor maps in the text: what the engine finds a tile of a tensor by."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.artifact import SLICE_ROWS, Parameter, TileMap
from kittens.codegen.emit.writer import Writer
from kittens.codegen.engine import View, view_of
from kittens.codegen.known import within
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
    first, end = writer.slices.get(view.slice.value) or bounds_of(writer, view)
    places[1] = f"kt_row_of_slice({places[1]}, {first}, {end}, {SLICE_ROWS})"
    return [*places, end, str(SLICE_ROWS)]


def bounds_of(writer: Writer, view: View) -> tuple[str, str]:
    """The bounds of a view that is a slice, in 32 bits."""
    assert view.slice is not None and view.slice.value.producer is not None
    first, end = (
        writer.scalar(v)
        if within(v, view.parameter, view.slice.axis)
        else f"kt_cut({writer.scalar(v)}, {extent_text(view.parameter, view.slice.axis)})"
        for v in view.slice.value.producer.operands[1:]
    )
    return f"kt_i32({first})", f"kt_i32({end})"


def declare_bounds(writer: Writer, op: Op) -> None:
    """Find the bounds of a slice out where it stands: tiles of it are copied later, and 32 bits take fewer registers."""
    view = view_of(op.result)
    if view is not None and view.slice is not None:
        first, end = (writer.fresh(stem) for stem in ("start", "end"))
        texts = bounds_of(writer, view)
        writer.line(f"const int {first} = {texts[0]}, {end} = {texts[1]};")
        writer.slices[op.result] = first, end
