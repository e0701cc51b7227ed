"""Global memory as the reference sees it: NumPy views, tiles read with padding and written inside bounds
only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kittens.dtypes import Array
from kittens.errors import CheckError, here


def view(name: str, tensor: Array, operands: Sequence[int], attrs: dict[str, Any]) -> Array:
    """The NumPy view that an `index`, `slice` or `permute` gives. Outside its axis, an index gives an
    empty view.
    """
    if name == "permute":
        return tensor.transpose(attrs["perm"])
    axis = attrs["axis"]
    before = (slice(None),) * axis
    if name == "slice":
        lo, hi = (min(max(x, 0), tensor.shape[axis]) for x in operands)
        return tensor[(*before, slice(lo, hi))]
    (i,) = operands
    if 0 <= i < tensor.shape[axis]:
        return tensor[(*before, slice(i, i + 1))].squeeze(axis)
    rest = tensor.shape[:axis] + tensor.shape[axis + 1 :]
    return _outside(tensor.dtype, len(rest))


def _outside(dtype: Any, rank: int) -> Array:
    """A view with nothing in it. A scalar view cannot be empty in NumPy, so it gets an axis that `window`
    knows of.
    """
    return np.empty((0,) * max(rank, 1), dtype)


def window(
    tensor: Array, coordinates: Sequence[int], shape: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Where a tile meets a tensor: (slices of the tensor, slices of the tile); empty slices where it does
    not.
    """
    inside, within = [], []
    for c, n, extent in zip(coordinates, shape, tensor.shape, strict=False):
        start = c * n
        lo, hi = min(max(start, 0), extent), min(max(start + n, 0), extent)
        inside.append(slice(lo, hi))
        within.append(slice(lo - start, hi - start) if lo < hi else slice(0, 0))
    return tuple(inside), tuple(within)


def load(tensor: Array, coordinates: Sequence[int], shape: Sequence[int], pad: Array) -> Array:
    """A new array with the tile's elements; `pad` (a 0-d array) outside the tensor."""
    if not shape:
        return pad.copy() if tensor.size == 0 else np.array(tensor[()], tensor.dtype)
    out = np.full(shape, pad, tensor.dtype)
    inside, within = window(tensor, coordinates, shape)
    out[within] = tensor[inside]
    return out


def take_turn(counter: Array, turn: int) -> None:
    """Count one addition in order. Raises CheckError if it is not the one whose turn it is, or nobody's."""
    if not counter.size:
        raise CheckError(
            "a counter of turns lies outside its tensor",
            hint="give each tile that is added to a counter",
            location=here(),
        )
    made = int(counter[()])
    if made != turn:
        raise CheckError(
            f"an addition has turn {turn}, and {made} were made before it",
            hint="turns count from 0, and a program may wait only for programs with lower numbers",
            location=here(),
        )
    counter[()] = turn + 1


def store(tensor: Array, coordinates: Sequence[int], tile: Array, add: bool = False) -> None:
    """Write (or add) the part of a tile that lies inside the tensor."""
    if tile.ndim == 0:
        if tensor.size:
            tensor[()] = tensor[()] + tile if add else tile
        return
    inside, within = window(tensor, coordinates, tile.shape)
    if add:
        with np.errstate(all="ignore"):
            tensor[inside] += tile[within]
    else:
        tensor[inside] = tile[within]
