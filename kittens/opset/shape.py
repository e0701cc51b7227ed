"""Making tiles, and giving their elements another type, shape or order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kittens.dtypes import Array, as_dtype, convert
from kittens.errors import DTypeError, ShapeError
from kittens.ir import TileType, Type
from kittens.opset import Call, define


def lead(x: Array, rank: int) -> tuple[int, ...]:
    """The axes of `x` before the `rank` last ones."""
    return x.shape[: x.ndim - rank]


def _infer_typed(call: Call) -> Sequence[Type]:
    return [TileType(as_dtype(call.attrs["dtype"]), tuple(call.attrs.get("shape", ())))]


def _constant(call: Call) -> Array:
    t = call.result
    value = call.attrs["value"]
    exact = np.array(value, np.float64) if t.dtype.kind in "fs" else np.array(value, t.dtype.numpy)
    return np.broadcast_to(convert(exact, t.dtype), t.shape)


#: const: every element `value`, converted to the dtype to nearest even.
define("const", _infer_typed, _constant)


def _infer_arange(call: Call) -> Sequence[Type]:
    return [TileType(as_dtype(call.attrs["dtype"]), (call.attrs["size"],))]


define("arange", _infer_arange, lambda call: np.arange(call.attrs["size"], dtype=call.result.dtype.numpy))


def _infer_cast(call: Call) -> Sequence[Type]:
    return [TileType(as_dtype(call.attrs["dtype"]), call.tile(0).shape)]


define("cast", _infer_cast, lambda call, x: convert(x, call.result.dtype))


def _infer_bitcast(call: Call) -> Sequence[Type]:
    source, to = call.tile(0).dtype, as_dtype(call.attrs["dtype"])
    if source.bits != to.bits or "b" in (source.kind, to.kind):
        raise DTypeError(
            f"bitcast from {source} ({source.bits} bits) to {to} ({to.bits} bits)",
            hint="both types must have the same number of bits, and neither be bool; .to(...) converts "
            "values",
        )
    return [TileType(to, call.tile(0).shape)]


define(
    "bitcast",
    _infer_bitcast,
    lambda call, x: np.ascontiguousarray(x).view(call.result.dtype.numpy).reshape(x.shape),
)


def _infer_broadcast(call: Call) -> Sequence[Type]:
    source, shape = call.tile(0), tuple(call.attrs["shape"])
    if len(source.shape) > len(shape) or any(
        a not in (1, b) for a, b in zip(reversed(source.shape), reversed(shape), strict=False)
    ):
        raise ShapeError(f"a tile of shape {source.shape} does not broadcast to {shape}")
    return [TileType(source.dtype, shape)]


def _broadcast(call: Call, x: Array) -> Array:
    rank, shape = len(call.tile(0).shape), call.result.shape
    before = lead(x, rank)
    inner = x.reshape(before + (1,) * (len(shape) - rank) + x.shape[x.ndim - rank :])
    return np.broadcast_to(inner, before + shape)


#: broadcast: missing leading axes and axes of extent 1 are repeated, as in NumPy.
define("broadcast", _infer_broadcast, _broadcast)


def _infer_reshape(call: Call) -> Sequence[Type]:
    source, shape = call.tile(0), tuple(call.attrs["shape"])
    result = TileType(source.dtype, shape)
    if source.size != result.size:
        raise ShapeError(
            f"cannot reshape {source.shape} ({source.size} elements) to {shape} ({result.size} elements)",
            hint="a reshape keeps the number of elements",
        )
    return [result]


#: reshape: the same elements in row-major order.
define(
    "reshape", _infer_reshape, lambda call, x: x.reshape(lead(x, len(call.tile(0).shape)) + call.result.shape)
)


def _infer_transpose(call: Call) -> Sequence[Type]:
    source, perm = call.tile(0), tuple(call.attrs["perm"])
    assert sorted(perm) == list(range(len(source.shape)))
    return [TileType(source.dtype, tuple(source.shape[p] for p in perm))]


def _transpose(call: Call, x: Array) -> Array:
    extra = x.ndim - len(call.tile(0).shape)
    return x.transpose(tuple(range(extra)) + tuple(p + extra for p in call.attrs["perm"]))


define("transpose", _infer_transpose, _transpose)


def _infer_split(call: Call) -> Sequence[Type]:
    source, axis = call.tile(0), call.attrs["axis"]
    extent = source.shape[axis]
    if extent % 2:
        raise ShapeError(f"split takes an axis of even extent, not {extent}")
    shape = list(source.shape)
    shape[axis] = extent // 2
    return [TileType(source.dtype, tuple(shape))] * 2


def _split(call: Call, x: Array) -> tuple[Array, Array]:
    moved = np.moveaxis(x, call.attrs["axis"], -1)
    half = moved.shape[-1] // 2
    a, b = (
        (moved[..., 0::2], moved[..., 1::2])
        if call.attrs["pairs"]
        else (moved[..., :half], moved[..., half:])
    )
    return np.moveaxis(a, -1, call.attrs["axis"]), np.moveaxis(b, -1, call.attrs["axis"])


#: split: two tiles, the halves of an axis (`pairs` false) or its even and odd elements. `axis` counts from
#: the end (< 0).
define("split", _infer_split, _split)


def _infer_join(call: Call) -> Sequence[Type]:
    a, b, axis = call.tile(0), call.tile(1), call.attrs["axis"]
    if a != b:
        raise ShapeError(f"join takes two tiles of one type, not {a} and {b}")
    shape = list(a.shape)
    shape[axis] *= 2
    return [TileType(a.dtype, tuple(shape))]


def _join(call: Call, a: Array, b: Array) -> Array:
    axis = call.attrs["axis"]
    if not call.attrs["pairs"]:
        return np.concatenate([a, b], axis)
    x, y = np.moveaxis(a, axis, -1), np.moveaxis(b, axis, -1)
    out = np.stack([x, y], -1).reshape((*x.shape[:-1], 2 * x.shape[-1]))
    return np.moveaxis(out, -1, axis)


#: join: undoes `split`.
define("join", _infer_join, _join)
