"""Tensor maps in the text: what the engine finds a tile of a tensor by."""

from __future__ import annotations

from collections.abc import Sequence

from kittens.artifact import Parameter, TileMap
from kittens.codegen.emit.writer import Writer
from kittens.codegen.views import cname
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


def places_of(writer: Writer, op: Op, extents: Sequence[int], axes: Sequence[int | Value]) -> list[str]:
    """Where the tile of a load or store begins along axes of its tensor: each one of the tile's, or at an index."""
    places = []
    for axis in axes:
        if isinstance(axis, int):
            text = writer.scalar(op.operands[1 + axis])
            places.append(f"kt_position({text}, {extents[axis]})" if text != "kt_i64(0)" else "0")
        else:
            places.append(f"kt_position({writer.scalar(axis)}, 1)")
    return places
