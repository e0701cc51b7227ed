"""Error rules of reductions and scans along an axis.

A sum of n terms in any order takes n - 1 roundings on the way of each term, so it errs by at most gamma_(n-1)
times the sum of magnitudes (Higham, section 4.2).
"""

from __future__ import annotations

import numpy as np

from kittens.conformance.judge.bounded import SIGN, Bounded, exactly
from kittens.conformance.judge.elementwise import rule
from kittens.conformance.judge.rounding import Rules, gamma, settled, taken
from kittens.dtypes import DType
from kittens.opset import Call


def accumulate(rules: Rules, dtype: DType, x: Bounded, axis: int, *, scan: bool = False) -> Bounded:
    """Sums of the float operands x along an axis, or running ones. Adding an exact zero rounds nothing."""
    total = np.add.accumulate if scan else np.add.reduce
    finite = np.isfinite(x.v)
    with np.errstate(all="ignore"):
        v = np.asarray(total(x.v, axis=axis))
        size = np.where(finite, np.abs(x.v), 0.0)
        spread = np.where(np.isinf(x.e), 0.0, x.e)
        mass = np.asarray(total(size + spread, axis=axis))
        terms = np.asarray(total(((x.v != 0) | (x.e > 0)).astype(np.float64), axis=axis))
        depth = np.maximum(terms - 1, 0)
        e = np.asarray(total(spread, axis=axis)) + np.where(depth > 0, gamma(depth, dtype), 0.0) * mass
        if rules.flushes:
            e = e + np.where(mass > 0, (depth + 1) * dtype.tiny, 0.0)
        # Partial sums that may overflow have no result free of their order.
        nan = np.asarray(total(np.isnan(x.v) & x.certain, axis=axis)) > 0
        unknown = np.asarray(total(np.isinf(x.e), axis=axis)) > 0
        e = np.where(unknown | (mass > dtype.max), np.inf, e)
        e = np.where(np.isfinite(v) & (v == 0) & (e == 0), SIGN, e)
        e = np.where(~np.isfinite(v) & np.isfinite(e), 0.0, e)
    return settled(dtype, v, np.where(nan, 0.0, e))


def _summand(rules: Rules, x: Bounded, to: DType) -> Bounded:
    """An operand in the type of its sum: floats are exact there, bools and integers as well."""
    if to.kind == "f":
        return taken(rules, Bounded(to if x.dtype.bits < 32 else x.dtype, x.v, x.e))
    return Bounded(to, x.v.astype(to.numpy), x.e)


@rule("sum")
def _sum(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    to, axis = call.result.dtype, call.attrs["axis"]
    x = _summand(rules, raw, to)
    if to.kind != "f":
        return Bounded(
            to, np.asarray(np.add.reduce(x.v, axis=axis, dtype=to.numpy)), np.asarray(x.e.sum(axis=axis))
        )
    return accumulate(rules, to, x, axis)


@rule("cumsum")
def _cumsum(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    to, axis = call.result.dtype, call.attrs["axis"]
    x = _summand(rules, raw, to)
    if to.kind != "f":
        v = np.add.accumulate(x.v, axis=axis, dtype=to.numpy)
        return Bounded(to, v, np.add.accumulate(x.e, axis=axis))
    return accumulate(rules, to, x, axis, scan=True)


def _extremum(name: str, f: np.ufunc) -> None:
    """max and min move with every operand, so the ends of the interval come from those of the operands."""

    @rule(name)
    def judge(rules: Rules, call: Call, raw: Bounded) -> Bounded:
        to, axis = call.result.dtype, call.attrs["axis"]
        x = taken(rules, raw)
        with np.errstate(invalid="ignore"):
            v = np.asarray(f.reduce(x.v, axis=axis))
            if to.kind == "f":
                zero = x.v == 0
                minus = np.any(zero & np.signbit(x.v), axis=axis)
                plus = np.any(zero & ~np.signbit(x.v), axis=axis)
                loose = (v == 0) & ((minus & plus) | np.any(raw.e == SIGN, axis=axis))
            else:
                loose = np.zeros(v.shape, bool)
            if x.exact:
                return Bounded(to, v, np.where(loose, SIGN, 0.0))
            if to.kind == "b":
                either = f.reduce(x.v | (x.e > 0), axis=axis) != f.reduce(x.v & (x.e == 0), axis=axis)
                return Bounded(to, v, np.where(either, 1.0, 0.0))
            low, high = (np.asarray(f.reduce(y, axis=axis)) for y in (x.low(), x.high()))
            e = np.maximum(np.where(high == v, 0.0, high - v), np.where(low == v, 0.0, v - low))
            nan = np.any(np.isnan(x.v) & x.certain, axis=axis) if to.kind == "f" else False
            e = np.where(np.any(np.isinf(x.e), axis=axis) | np.isnan(e), np.inf, e)
            e = np.where(nan, 0.0, np.where(loose & (e == 0), SIGN, e))
        return Bounded(to, v, e)


_extremum("max", np.maximum)
_extremum("min", np.minimum)


@rule("argmax")
def _argmax(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    """The first largest, or the first NaN; where errors may reorder candidates, an interval of indices."""
    to, axis = call.result.dtype, call.attrs["axis"]
    x = taken(rules, raw)
    n = x.v.shape[axis]
    index = np.arange(n).reshape((-1,) + (1,) * (-1 - axis))
    with np.errstate(invalid="ignore"):
        nan = np.isnan(x.v) if x.dtype.kind == "f" else np.zeros(x.v.shape, bool)
        top = np.where(nan, np.inf, x.v) if x.dtype.kind == "f" else x.v
        best = np.maximum.reduce(top, axis=axis, keepdims=True)
        first = np.where(nan.any(axis=axis, keepdims=True), nan, x.v == best)
        v = np.minimum.reduce(np.where(first, index, n), axis=axis)
        if x.exact:
            return exactly(to, np.asarray(v).astype(np.int32))
        low, high = x.low(), np.where(np.isinf(x.e) | np.isnan(x.high()), np.inf, x.high())
        floor = np.maximum.reduce(np.where(np.isnan(low), -np.inf, low), axis=axis, keepdims=True)
        candidate = (high >= floor) | np.isnan(x.v)
        away = np.where(candidate, np.abs(index - np.expand_dims(v, axis)), 0)
        e = np.maximum.reduce(away, axis=axis).astype(np.float64)
        sure = np.any(nan & x.certain, axis=axis) & ~np.any(np.isinf(x.e), axis=axis)
    return Bounded(to, np.asarray(v).astype(np.int32), np.where(sure, 0.0, e))


def _logical(name: str, f: np.ufunc) -> None:
    @rule(name)
    def judge(rules: Rules, call: Call, x: Bounded) -> Bounded:
        axis, open_ = call.attrs["axis"], x.e > 0
        v = f.reduce(x.v, axis=axis)
        either = f.reduce(x.v | open_, axis=axis) != f.reduce(x.v & ~open_, axis=axis)
        return Bounded(call.result.dtype, np.asarray(v), np.where(either, 1.0, 0.0))


_logical("any", np.logical_or)
_logical("all", np.logical_and)
