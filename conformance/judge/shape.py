"""Error rules of operations that make tiles, or move and convert their elements. Moving adds no error."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kittens.conformance.judge.bounded import SIGN, Bounded, exactly
from kittens.conformance.judge.elementwise import rule
from kittens.conformance.judge.formats import codes, decode, integer_to_odd, nearest, spacing, to_integer
from kittens.conformance.judge.rounding import Rules, computing, known, settled, taken
from kittens.dtypes import Array, DType, as_dtype, float32, float64
from kittens.opset import Call


def _both(f: Callable[[Array], Array], x: Bounded) -> Bounded:
    return Bounded(x.dtype, f(x.v), f(x.e))


@rule("const")
def _const(rules: Rules, call: Call) -> Bounded:
    to, value = call.result.dtype, call.attrs["value"]
    if to.kind in "fs":
        number = _to_float(rules, to, exactly(float64, np.array(value, np.float64)))
    else:
        number = exactly(to, np.array(value, to.numpy))
    shape = call.result.shape
    return _both(lambda y: np.broadcast_to(y, shape), number) if shape else number


@rule("arange")
def _arange(rules: Rules, call: Call) -> Bounded:
    return exactly(call.result.dtype, np.arange(call.attrs["size"]).astype(call.result.dtype.numpy))


@rule("broadcast")
def _broadcast(rules: Rules, call: Call, x: Bounded) -> Bounded:
    return _both(lambda y: np.broadcast_to(y, call.result.shape), x)


@rule("reshape")
def _reshape(rules: Rules, call: Call, x: Bounded) -> Bounded:
    return _both(lambda y: y.reshape(call.result.shape), x)


@rule("transpose")
def _transpose(rules: Rules, call: Call, x: Bounded) -> Bounded:
    return _both(lambda y: y.transpose(call.attrs["perm"]), x)


@rule("split")
def _split(rules: Rules, call: Call, x: Bounded) -> tuple[Bounded, Bounded]:
    axis = call.attrs["axis"]
    rest = (slice(None),) * (-1 - axis)
    half = x.v.shape[axis] // 2
    parts = (
        (slice(0, None, 2), slice(1, None, 2)) if call.attrs["pairs"] else (slice(0, half), slice(half, None))
    )
    first, second = (_both(lambda y, p=p: y[(..., p, *rest)], x) for p in parts)  # type: ignore[misc]
    return first, second


@rule("join")
def _join(rules: Rules, call: Call, a: Bounded, b: Bounded) -> Bounded:
    axis = call.attrs["axis"]

    def together(x: Array, y: Array) -> Array:
        if not call.attrs["pairs"]:
            return np.concatenate([x, y], axis)
        out = np.empty(call.result.shape, np.result_type(x, y))
        rest = (slice(None),) * (-1 - axis)
        out[(..., slice(0, None, 2), *rest)] = x
        out[(..., slice(1, None, 2), *rest)] = y
        return out

    return Bounded(a.dtype, together(a.v, b.v), together(a.e, b.e))


@rule("bitcast")
def _bitcast(rules: Rules, call: Call, x: Bounded) -> Bounded:
    """The bits of known elements. A NaN that has several encodings leaves them open."""
    source, to = x.dtype, call.result.dtype
    native = _encode(x)
    v = decode(np.ascontiguousarray(native).view(to.numpy).reshape(x.v.shape), to)
    e = np.where(x.e > 0, np.inf, 0.0)
    if source.kind == "f" and not source.name.endswith("fnuz"):
        e = np.where(np.isnan(x.v), np.inf, e)
    return Bounded(to, v, e)


def _encode(x: Bounded) -> Array:
    with np.errstate(all="ignore"):
        if x.dtype.bits == 8 and x.dtype.kind in "fs":
            table = codes(x.dtype)
            order = np.argsort(np.where(np.isnan(table), np.inf, table), kind="stable")
            at = np.searchsorted(table[order], x.v)
            code = order[np.minimum(at, 255)].astype(np.uint8)
            negative_zero = (x.v == 0) & np.signbit(x.v)
            zero = np.where(negative_zero, 0x80, 0x00).astype(np.uint8)
            return np.where((x.v == 0) & (x.dtype.kind == "f"), zero, code).astype(np.uint8)
        return x.v.astype(x.dtype.numpy) if x.dtype.kind in "fs" else x.v


@rule("cast")
def _cast(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    source, to = raw.dtype, as_dtype(call.attrs["dtype"])
    if to.kind in "fs":
        return _to_float(rules, to, raw)
    if to.kind == "b":
        doubt = (raw.e > SIGN) & ~(np.abs(raw.v) > raw.e) if source.kind != "b" else raw.e > 0
        if rules.flushes and source.kind == "f" and computing(source) == float32:
            doubt |= (raw.v != 0) & (np.abs(raw.v) < float32.tiny)
        return Bounded(to, np.asarray(raw.v != 0), np.where(doubt, 1.0, 0.0))
    if source.kind in "biu":
        v = raw.v.astype(to.numpy)
        return Bounded(to, v, np.where((raw.e > 0) & (v != raw.v), np.inf, raw.e))
    x = taken(rules, raw)
    v = to_integer(x.v, to)
    if x.exact:
        return exactly(to, v)
    with np.errstate(invalid="ignore"):
        low, high = (to_integer(y, to).astype(np.float64) for y in (x.low(), x.high()))
        e = np.maximum(high - v, v - low)
    return Bounded(to, v, np.where(np.isinf(x.e), np.inf, e))


def _to_float(rules: Rules, to: DType, raw: Bounded) -> Bounded:
    """To a float: exact when nothing is lost, else one rounding to nearest even; 8-bit floats saturate."""
    source = raw.dtype
    whole = source.kind in "biu"
    v = integer_to_odd(raw.v.astype(np.int8) if source.kind == "b" else raw.v, to) if whole else raw.v
    widens = source.kind == "f" and to.kind == "f" and _holds(to, source)
    if widens:
        return Bounded(to, v, raw.e)
    if rules.flushes and source.kind == "f":
        raw = taken(rules, raw)
    plain = nearest(to, v)
    sure = known(rules, raw.certain, v, plain)
    if sure.all():
        return Bounded(to, plain, np.zeros(v.shape))
    with np.errstate(invalid="ignore"):
        if to.bits == 8:  # rounding is monotone: the ends of the interval tell all
            low, high = nearest(to, v - raw.e), nearest(to, v + raw.e)
            e = np.maximum(
                np.where(high == plain, 0.0, np.abs(high - plain)),
                np.where(low == plain, 0.0, np.abs(plain - low)),
            )
            either = (plain == 0) & (raw.e > 0) & (np.signbit(low) != np.signbit(high))
            e = np.where((raw.e == SIGN) | (either & (e == 0)), SIGN, e)
            return Bounded(
                to, plain, np.where(raw.certain, 0.0, np.where(np.isnan(e) | np.isinf(raw.e), np.inf, e))
            )
        e = np.where(raw.e == SIGN, SIGN, raw.e + spacing(to, np.abs(v) + raw.e) / 2)
        return settled(to, np.where(sure, plain, v), np.where(sure, 0.0, e))


def _holds(to: DType, source: DType) -> bool:
    """Whether every number of one float type is one of another (8 bits lose infinity)."""
    if to in (source, float64):
        return True
    return (
        to.bits > 8
        and to.precision >= source.precision
        and to.smallest <= source.smallest
        and to.max >= source.max
    )
