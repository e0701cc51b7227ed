"""Tensor maps: what the copy engine is told of a tensor. A kernel takes them as parameters of 128 bytes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from kittens.arguments import TensorArg
from kittens.artifact import SLICE_ROWS, TileMap
from kittens.errors import CheckError

#: Maps that one remembered launch keeps: one for each address at which it found the tensor.
_KEPT = 4096
_TYPES = {
    "float32": "FLOAT32", "float64": "FLOAT64", "float16": "FLOAT16", "bfloat16": "BFLOAT16", "int32": "INT32",
    "uint32": "UINT32", "int64": "INT64", "uint64": "UINT64", "int16": "UINT16", "uint16": "UINT16",
}  # fmt: skip
_LIMIT_STRIDE, _LIMIT_EXTENT = 1 << 40, 1 << 32
_LIMIT_SLICED = 1 << 34  # as another axis of such maps steps by the rest


def unmappable(tile: TileMap, tensor: TensorArg) -> str:
    """Why the copy engine cannot be told of a tensor; an empty string if it can."""
    if 0 in tensor.shape:
        return ""
    if tensor.alignment < 16:
        return f"{tile.tensor} is aligned to {tensor.alignment} bytes, not to 16"
    for place, axis in enumerate(tile.axes):
        extent, stride = tensor.shape[axis], tensor.strides[axis] * tensor.dtype.bytes
        if extent >= _LIMIT_EXTENT:
            return f"axis {axis} of {tile.tensor} has an extent of {extent}, 2^32 or above"
        if extent == 1:
            continue
        if place == 0 and tensor.strides[axis] != 1:
            return f"axis {axis} of {tile.tensor} is not contiguous"
        rows = tile.sliced and place == 1
        if rows and extent > SLICE_ROWS:
            return f"axis {axis} of {tile.tensor} has an extent of {extent}, above the 2^30 of which slices can be copied"
        if place and (stride % 16 or not 0 <= stride < (_LIMIT_SLICED if rows else _LIMIT_STRIDE)):
            return f"axis {axis} of {tile.tensor} steps by {stride} bytes"
    return ""


def mapper(tile: TileMap, tensor: TensorArg, spare: Callable[[], int]) -> Callable[[int], tuple[Any, int]]:
    """A function that gives the map for a tensor like this one at an address, and the map's own address.

    Maps are made once, and remembered. `spare` gives the address of an element that stands in for a tensor without any.
    Raises CheckError for a tensor that the copy engine cannot be told of.
    """
    reason = unmappable(tile, tensor)
    if reason:
        raise CheckError(f"no tensor map: {reason}")
    size, empty = tensor.dtype.bytes, 0 in tensor.shape
    # The stride of an axis of one element is never used, but has to be legal.
    steps = [16 if empty or n == 1 else s * size for n, s in zip(tensor.shape, tensor.strides, strict=True)]
    extents, strides = tile.dims(tensor.shape, steps)
    extents = [1] * len(extents) if empty else extents  # nothing of a slice is at row 0 then
    tile = dataclasses.replace(tile, box=tile.copied(tensor.shape))
    known: dict[int, tuple[Any, int]] = {}

    def find(address: int) -> tuple[Any, int]:
        found = known.get(address)
        if found is None:
            if len(known) >= _KEPT:
                known.clear()
            at = spare() if empty else address
            made = encode(_TYPES.get(tensor.dtype.name, "UINT8"), extents, strides[1:], tile, at)
            found = known[address] = made, int(made.getPtr())
        return found

    return find


def encode(kind: str, extents: list[int], strides: list[int], tile: TileMap, address: int) -> Any:
    """A tensor map as the driver makes it. Raises CheckError if it refuses."""
    from cuda.bindings import driver as cu

    rank = len(extents)
    error, made = cu.cuTensorMapEncodeTiled(
        getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
        rank,
        address,
        [cu.cuuint64_t(n) for n in extents],
        [cu.cuuint64_t(s) for s in strides or [16]],  # the bindings want one, even of a vector
        [cu.cuuint32_t(n) for n in tile.box],
        [cu.cuuint32_t(1)] * rank,
        cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(
            cu.CUtensorMapSwizzle,
            f"CU_TENSOR_MAP_SWIZZLE_{f'{tile.swizzle}B' if tile.swizzle else 'NONE'}",
        ),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(error):
        raise CheckError(
            f"cuTensorMapEncodeTiled: {error.name} for {tile}, extents {extents}, strides {strides} at {address:#x}"
        )
    return made
