"""Floating-point formats from their definitions: decoding, spacing of numbers, rounding to nearest even.

Written apart from `kittens.dtypes.convert`, so that neither vouches for its own mistakes. Everything is done
in float64, which holds every value of every narrower format and their midpoints exactly.
"""

from __future__ import annotations

import functools

import numpy as np

from kittens.dtypes import Array, DType, float32, float64


def decode(x: Array, dtype: DType) -> Array:
    """The values of native elements: float64 for floats and scales, the array itself for the rest."""
    if dtype.kind in "biu":
        return x
    if dtype.bits == 8:
        return codes(dtype)[np.ascontiguousarray(x).view(np.uint8).reshape(x.shape)]
    with np.errstate(invalid="ignore"):
        return x.astype(np.float64)


@functools.cache
def codes(dtype: DType) -> Array:
    """The value of each of the 256 codes of an 8-bit float (OCP OFP8, OCP MX; the fnuz variants as in LLVM
    APFloat).
    """
    if dtype.kind == "s":
        table = np.ldexp(1.0, np.arange(256) - 127)
        table[255] = np.nan
        return table
    bits = 3 if "e4m3" in dtype.name else 2
    fnuz = dtype.name.endswith("fnuz")
    bias = (2 ** (7 - bits - 1) - 1) + fnuz
    table = np.empty(256)
    for code in range(256):
        sign = -1.0 if code & 0x80 else 1.0
        exponent, fraction = (code & 0x7F) >> bits, code & (2**bits - 1)
        if exponent == 0:
            magnitude = fraction * 2.0 ** (1 - bias - bits)
        else:
            magnitude = (1 + fraction / 2**bits) * 2.0 ** (exponent - bias)
        table[code] = sign * magnitude
    if fnuz:
        table[0x80] = np.nan
    elif bits == 3:
        table[[0x7F, 0xFF]] = np.nan
    else:
        table[0x7C], table[0xFC] = np.inf, -np.inf
        table[[0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]] = np.nan
    return table


def spacing(dtype: DType, x: Array) -> Array:
    """The distance between neighbouring numbers of `dtype` at |x| (in the binade that x lies in; subnormals
    too).
    """
    with np.errstate(invalid="ignore"):
        _, exponent = np.frexp(np.where(np.isfinite(x), x, 0.0))
    lowest = int(np.log2(dtype.tiny)) + 1
    return np.ldexp(1.0, np.maximum(np.where(x == 0, lowest, exponent), lowest) - dtype.precision)


def nearest(dtype: DType, x: Array) -> Array:
    """float64 values rounded once to `dtype`, ties to even; 8-bit floats saturate, the others overflow to
    infinity.
    """
    if dtype == float64:
        return x
    with np.errstate(all="ignore"):
        if dtype == float32:
            return x.astype(np.float32).astype(np.float64)
        if dtype.kind == "s":
            return _nearest_scale(x)
        step = spacing(dtype, x)
        y = np.rint(x / step) * step
        y = np.where(np.isfinite(x), np.copysign(y, x), x)
        beyond = np.abs(y) > dtype.max
        y = np.where(beyond, np.copysign(dtype.max if dtype.bits == 8 else np.inf, x), y)
        return y + 0.0 if dtype.name.endswith("fnuz") else y


def _nearest_scale(x: Array) -> Array:
    """To a power of two within 2^-127 .. 2^127, the midpoint going up; NaN for negative numbers and NaN."""
    mantissa, exponent = np.frexp(np.where(np.isfinite(x) & (x > 0), x, 1.0))
    power = np.where(mantissa < 0.75, exponent - 1, exponent)
    y = np.ldexp(1.0, np.clip(power, -127, 127))
    y = np.where(x == 0, 2.0**-127, np.where(x == np.inf, 2.0**127, y))
    return np.where(np.isnan(x) | (x < 0), np.nan, y)


def integer_to_odd(x: Array, to: DType) -> Array:
    """Integers as float64, the last bit set if anything was lost, so that rounding on to `to` is correct."""
    if x.dtype.itemsize < 8 or to == float64:
        return x.astype(np.float64)
    small = (x < 2**53) if x.dtype.kind == "u" else (x < 2**53) & (x > -(2**53))
    sticky = ((x & x.dtype.type(0x7FF)) != 0).astype(x.dtype)
    cut = ((x >> x.dtype.type(11)) | sticky).astype(np.float64) * 2.0**11
    return np.where(small, x.astype(np.float64), cut)


def to_integer(x: Array, dtype: DType) -> Array:
    """Floats towards zero, saturating; NaN gives 0."""
    info = np.iinfo(dtype.numpy)
    low, high = int(info.min), int(info.max)
    clean = np.trunc(np.where(np.isnan(x), 0.0, x))
    inside = (clean > float(low)) & (clean < float(high))
    body = np.where(inside, clean, 0.0).astype(dtype.numpy)
    ends = np.where(clean >= float(high), np.array(high, dtype.numpy), np.array(low, dtype.numpy))
    return np.where(inside, body, ends)
