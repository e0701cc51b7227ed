"""Reductions and scans along one axis (`axis` counts from the end, so it is negative)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kittens.dtypes import Array, DType, bool_, convert, float32, int32, uint32
from kittens.errors import DTypeError
from kittens.ir import TileType, Type
from kittens.opset import Call, define
from kittens.opset.elementwise import _advice


def sum_dtype(dtype: DType) -> DType:
    """The type in which elements of `dtype` are summed: float32 or int32/uint32 at least."""
    if dtype.kind == "f":
        return dtype if dtype.bits >= 32 else float32
    if dtype.kind == "b":
        return int32
    return dtype if dtype.bits >= 32 else int32 if dtype.kind == "i" else uint32


def _dropped(call: Call) -> tuple[int, ...]:
    shape = list(call.tile(0).shape)
    del shape[call.attrs["axis"]]
    return tuple(shape)


def _summable(call: Call, name: str) -> DType:
    dtype = call.tile(0).dtype
    if not dtype.computes:
        raise DTypeError(f"{name} is not defined on {dtype}", hint=_advice(dtype, ""))
    return sum_dtype(dtype)


def _infer_sum(call: Call) -> Sequence[Type]:
    return [TileType(_summable(call, "sum"), _dropped(call))]


def _sum(call: Call, x: Array) -> Array:
    to = call.result.dtype
    with np.errstate(all="ignore"):
        return np.asarray(np.sum(convert(x, to), axis=call.attrs["axis"], dtype=to.numpy))


define("sum", _infer_sum, _sum, exact=False)


def _infer_cumsum(call: Call) -> Sequence[Type]:
    return [TileType(_summable(call, "cumsum"), call.tile(0).shape)]


def _cumsum(call: Call, x: Array) -> Array:
    to = call.result.dtype
    with np.errstate(all="ignore"):
        return np.cumsum(convert(x, to), axis=call.attrs["axis"], dtype=to.numpy)


define("cumsum", _infer_cumsum, _cumsum, exact=False)


def _infer_extremum(call: Call) -> Sequence[Type]:
    dtype = call.tile(0).dtype
    if not dtype.computes:
        raise DTypeError(f"max and min are not defined on {dtype}", hint=_advice(dtype, ""))
    return [TileType(dtype, _dropped(call))]


def _extremum(ufunc: np.ufunc):  # type: ignore[no-untyped-def]
    def reference(call: Call, x: Array) -> Array:
        dtype = call.tile(0).dtype
        wide = convert(x, float32) if dtype.is_float and dtype.bits < 32 else x
        with np.errstate(all="ignore"):
            return convert(np.asarray(ufunc.reduce(wide, axis=call.attrs["axis"])), dtype)

    return reference


define("max", _infer_extremum, _extremum(np.maximum))
define("min", _infer_extremum, _extremum(np.minimum))


def _infer_argmax(call: Call) -> Sequence[Type]:
    _infer_extremum(call)
    return [TileType(int32, _dropped(call))]


def _argmax(call: Call, x: Array) -> Array:
    dtype = call.tile(0).dtype
    wide = convert(x, float32) if dtype.is_float and dtype.bits < 32 else x
    return np.asarray(np.argmax(wide, axis=call.attrs["axis"])).astype(np.int32)


#: argmax: the first index of the largest element, or of the first NaN if there is one.
define("argmax", _infer_argmax, _argmax)


def _infer_logical(call: Call) -> Sequence[Type]:
    dtype = call.tile(0).dtype
    if dtype != bool_:
        raise DTypeError(
            f"any and all take a bool tile, not {dtype}", hint="compare first, as in (x != 0).any(axis=1)"
        )
    return [TileType(bool_, _dropped(call))]


define("any", _infer_logical, lambda call, x: np.asarray(np.any(x, axis=call.attrs["axis"])))
define("all", _infer_logical, lambda call, x: np.asarray(np.all(x, axis=call.attrs["axis"])))
