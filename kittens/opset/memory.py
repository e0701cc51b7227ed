"""Tensors: views of them, loads and stores of tiles, and where a program stands in its grid.

These have no `reference`: whoever runs them owns the memory (see `kittens.memory` for the reference model).
"""

from __future__ import annotations

from collections.abc import Sequence

from kittens.dtypes import int32, int64
from kittens.errors import DTypeError, ShapeError
from kittens.ir import Extent, TensorType, TileType, Type
from kittens.opset import Call, define


def _integers(call: Call, first: int, last: int, what: str) -> None:
    for i in range(first, last):
        t = call.tile(i)
        if t.shape != () or not t.dtype.is_integer:
            raise DTypeError(f"{what} are integer scalars, not {t}")


def _infer_dim(call: Call) -> Sequence[Type]:
    assert 0 <= call.attrs["axis"] < call.tensor(0).rank
    return [TileType(int64)]


define("dim", _infer_dim)


def _infer_index(call: Call) -> Sequence[Type]:
    t, axis = call.tensor(0), call.attrs["axis"]
    _integers(call, 1, 2, "indices of a tensor")
    return [TensorType(t.dtype, t.dims[:axis] + t.dims[axis + 1 :], t.strides[:axis] + t.strides[axis + 1 :])]


#: index: fixes one axis at a run-time position; outside the axis, the view is empty.
define("index", _infer_index)


def _infer_slice(call: Call) -> Sequence[Type]:
    t, axis = call.tensor(0), call.attrs["axis"]
    _integers(call, 1, 3, "bounds of a slice")
    return [TensorType(t.dtype, (*t.dims[:axis], Extent(), *t.dims[axis + 1 :]), t.strides)]


#: slice: positions lo..hi of one axis, both cut to [0, extent].
define("slice", _infer_slice)


def _infer_permute(call: Call) -> Sequence[Type]:
    t, perm = call.tensor(0), call.attrs["perm"]
    assert sorted(perm) == list(range(t.rank))
    return [TensorType(t.dtype, tuple(t.dims[p] for p in perm), tuple(t.strides[p] for p in perm))]


define("permute", _infer_permute)


def _check_coordinates(call: Call, what: str, count: int, shape: tuple[int, ...]) -> TensorType:
    t = call.tensor(0)
    if t.rank > 2:
        raise ShapeError(
            f"{what} takes a view of at most 2 axes, this one has {t.rank}",
            hint="index the leading axes, as in x[b, h]",
        )
    if len(shape) != t.rank:
        raise ShapeError(
            f"{what} of a tile of shape {shape} on a tensor of {t.rank} axes",
            hint="one extent for each axis of the view",
        )
    if count != t.rank:
        raise ShapeError(
            f"{what} with {count} coordinates on a tensor of {t.rank} axes",
            hint="one tile coordinate for each axis of the view",
        )
    _integers(call, 1, 1 + count, "tile coordinates")
    return t


def _infer_load(call: Call) -> Sequence[Type]:
    shape = tuple(call.attrs["shape"])
    t = _check_coordinates(call, "load", len(call.operands) - 1, shape)
    return [TileType(t.dtype, shape)]


#: load: the tile at tile coordinates (multiples of its shape); elements outside the view are `pad`.
define("load", _infer_load)


def _infer_store(call: Call) -> Sequence[Type]:
    value = call.tile(len(call.operands) - 1)
    t = _check_coordinates(call, "store", len(call.operands) - 2, value.shape)
    if value.dtype != t.dtype:
        raise DTypeError(
            f"store of {value.dtype} into a tensor of {t.dtype}", hint=f"convert with .to(kt.{t.dtype})"
        )
    return []


#: store: writes the elements of a tile that fall inside the view.
define("store", _infer_store, pure=False)


def _infer_store_add(call: Call) -> Sequence[Type]:
    operands = call.operands
    if call.attrs.get("ordered"):  # tensor, coordinates, counter, turn, tile
        counter, turn = operands[-3:-1]
        if not isinstance(counter, TensorType) or counter.dtype != int32 or counter.rank:
            raise DTypeError(
                f"store_add counts turns in {counter}", hint="one element of an int32 tensor, as in turns[i]"
            )
        assert turn == TileType(int64)
        operands = (*operands[:-3], operands[-1])
    _infer_store(Call(operands, call.attrs))
    t = call.tensor(0)
    if not (t.dtype.is_integer or t.dtype.is_float) or t.dtype.bits < 32:
        raise DTypeError(
            f"store_add into {t.dtype}", hint="it adds in float32, float64 or integers of 32 and 64 bits"
        )
    return []


#: store_add: adds to memory, element by element, atomically, in no particular order among programs; if `ordered`, once the
#: counter is at `turn`, after which it is one more.
define("store_add", _infer_store_add, pure=False, exact=False)


def _infer_grid(call: Call) -> Sequence[Type]:
    return [TileType(int64)] * call.attrs["rank"]


define("program_id", _infer_grid)
define("num_programs", _infer_grid)
