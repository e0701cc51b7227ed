"""Error rules of operations that work element by element."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kittens.conformance.judge.bounded import ORACLE, SIGN, Bounded, Unjudgeable, exactly
from kittens.conformance.judge.formats import spacing
from kittens.conformance.judge.rounding import (
    Rules,
    apart,
    computing,
    propagate,
    rounded,
    settled,
    signless,
    surely_nan,
    taken,
)
from kittens.dtypes import Array, float32, float64
from kittens.opset import Call

Rule = Callable[..., Any]  # (rules, call, *operands) -> Bounded, or a tuple of them

#: The rule of each operation, by its name in `kittens.opset.OPS`.
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Enter a rule under the names of the operations it is for."""

    def enter(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, f))
        return f

    return enter


def _unsigned_zeros(result: Bounded, loose: Array | None) -> Bounded:
    """Mark zeros that come from zeros of unknown sign."""
    if loose is None:
        return result
    mark = loose & (result.v == 0) & (result.e == 0)
    return Bounded(result.dtype, result.v, np.where(mark, SIGN, result.e))


def _spans_zero(x: Bounded) -> Array:
    """Where an uncertain operand may be zero, or a zero of unknown sign."""
    with np.errstate(invalid="ignore"):
        return (x.e > 0) & ~(np.abs(x.v) > x.e)


# Correctly rounded arithmetic: exact on exact operands.


def _correctly_rounded(f: Callable[..., Array], divisor: int | None = None) -> Rule:
    def judge(rules: Rules, call: Call, *raw: Bounded) -> Bounded:
        xs = tuple(taken(rules, x) for x in raw)
        v, e = propagate(f, xs)
        if divisor is not None and not raw[divisor].exact:
            e = np.where(_spans_zero(raw[divisor]) & ~surely_nan(xs), np.inf, e)
        exact = np.logical_and.reduce([x.certain for x in xs])
        return _unsigned_zeros(rounded(rules, call.result.dtype, v, e, exact), signless(raw))

    return judge


def _two_ways(name: str, real: Rule, whole: Callable[..., Array]) -> None:
    """A rule for floats and one for integers under the same name."""

    def judge(rules: Rules, call: Call, *xs: Bounded) -> Bounded:
        return real(rules, call, *xs) if xs[0].dtype.kind == "f" else _integers(whole)(rules, call, *xs)

    RULES[name] = judge


def _integers(f: Callable[..., Array], *, smooth: bool = True) -> Rule:
    """Integer arithmetic modulo 2^bits. Uncertain operands go through the corners if f is smooth, else to
    unknown.
    """

    def judge(rules: Rules, call: Call, *xs: Bounded) -> Bounded:
        to = call.result.dtype
        with np.errstate(all="ignore"):
            v = np.asarray(f(*(x.v for x in xs))).astype(to.numpy)
        if all(x.exact for x in xs):
            return exactly(to, v)
        if not smooth:
            return Bounded(to, v, np.where(np.logical_and.reduce([x.certain for x in xs]), 0.0, np.inf))
        wide = tuple(Bounded(x.dtype, x.v.astype(np.float64), x.e) for x in xs)
        center, e = propagate(f, wide)
        info = np.iinfo(to.numpy)
        wraps = (center - e < info.min) | (center + e > info.max)
        return Bounded(to, v, np.where((e > 0) & wraps, np.inf, e))

    return judge


_two_ways("add", _correctly_rounded(np.add), np.add)
_two_ways("sub", _correctly_rounded(np.subtract), np.subtract)
_two_ways("mul", _correctly_rounded(np.multiply), np.multiply)
RULES["div"] = _correctly_rounded(np.divide, divisor=1)
RULES["reciprocal"] = _correctly_rounded(lambda x: 1.0 / x, divisor=0)


@rule("sqrt")
def _sqrt(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    """Correctly rounded; in doubt where the operand may be negative."""
    x = taken(rules, raw)
    v, e = propagate(np.sqrt, (x,))
    with np.errstate(invalid="ignore"):
        e = np.where((x.e > 0) & (x.low() < 0) & (x.high() >= 0), np.inf, e)
    return _unsigned_zeros(rounded(rules, call.result.dtype, v, e, x.certain), signless((raw,)))


def multiply_add(a: Array, b: Array, c: Array) -> Array:
    """a * b + c for operands of at most 24 bits, rounded to odd in float64: one rounding more is the only
    one.

    The product is exact, and two-sum (Knuth; Higham, section 4.3) tells on which side of the sum the truth
    lies.
    """
    p = a * b
    s = p + c
    t = s - p
    lost = (p - (s - t)) + (c - t)
    inexact = np.isfinite(s) & np.isfinite(lost) & (lost != 0)
    bits = np.ascontiguousarray(s).view(np.int64).reshape(s.shape)
    step = np.where((lost > 0) == (s > 0), 1, -1)
    odd = np.where(inexact & (bits % 2 == 0), bits + step, bits)
    return np.ascontiguousarray(odd).view(np.float64).reshape(s.shape)


def _wide_multiply_add(a: Array, b: Array, c: Array) -> Array:
    return np.asarray(np.longdouble(1) * a * b + c).astype(np.float64)


@rule("fma")
def _fma(rules: Rules, call: Call, *raw: Bounded) -> Bounded:
    """a * b + c rounded once, straight to the result's type."""
    xs = tuple(taken(rules, x) for x in raw)
    to = call.result.dtype
    v, e = propagate(_wide_multiply_add if to == float64 else multiply_add, xs)
    exact = np.logical_and.reduce([x.certain for x in xs])
    return _unsigned_zeros(rounded(rules, to, v, e, exact, once=True), signless(raw))


# What no rounding touches.


def _moved(f: Callable[[Array], Array]) -> Rule:
    """Functions whose results are exact when the operand is: sign changes and roundings to whole numbers."""

    def judge(rules: Rules, call: Call, raw: Bounded) -> Bounded:
        x = taken(rules, raw)
        v, e = propagate(f, (x,))
        with np.errstate(invalid="ignore"):
            either = (x.e > 0) & (
                np.signbit(f(x.low())) != np.signbit(f(x.high()))
            )  # round(-0.1 .. 0.1) is a zero
        loose = signless((raw,))
        return _unsigned_zeros(Bounded(call.result.dtype, v, e), either if loose is None else either | loose)

    return judge


def _abs_rule(rules: Rules, call: Call, raw: Bounded) -> Bounded:
    """||a| - |b|| <= |a - b|."""
    return Bounded(call.result.dtype, np.abs(raw.v), np.where(raw.e == SIGN, 0.0, taken(rules, raw).e))


_two_ways("neg", _moved(np.negative), np.negative)
_two_ways("abs", _abs_rule, np.abs)
for _name, _f in {"floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint}.items():
    RULES[_name] = _moved(_f)


def _extremum(f: np.ufunc) -> Rule:
    """The larger or smaller: one of the operands, so nothing rounds. Which of two zeros it is stays open."""

    def judge(rules: Rules, call: Call, *raw: Bounded) -> Bounded:
        to = call.result.dtype
        if to.kind == "b":
            return _logical(f)(rules, call, *raw)
        if to.kind in "iu":
            return _integers(f)(rules, call, *raw)
        xs = tuple(taken(rules, x) for x in raw)
        v, e = propagate(f, xs)
        if rules.flushes and computing(to) == float32:  # of operands that count as zero, either may come out
            sizes = [np.where(np.abs(x.v) < float32.tiny, np.abs(x.v), 0.0) for x in raw]
            most = np.maximum(*sizes)
            e = np.where((np.abs(v) < float32.tiny) & (most > 0), np.maximum(e, np.abs(v) + most), e)
        loose = signless(raw)
        zeros = np.logical_and.reduce([x.v == 0 for x in xs]) & (np.signbit(xs[0].v) != np.signbit(xs[1].v))
        return _unsigned_zeros(Bounded(to, v, e), zeros if loose is None else zeros | loose)

    return judge


RULES["maximum"] = _extremum(np.maximum)
RULES["minimum"] = _extremum(np.minimum)

# Comparisons: an uncertain operand makes the answer uncertain where the intervals meet.


def _compare(f: np.ufunc) -> Rule:
    def judge(rules: Rules, call: Call, *raw: Bounded) -> Bounded:
        a, b = (taken(rules, x) for x in raw)
        with np.errstate(invalid="ignore"):
            v = np.asarray(f(a.v, b.v))
            if a.exact and b.exact:
                return exactly(call.result.dtype, v)
            if a.dtype.kind == "b":
                e = np.where((a.e > 0) | (b.e > 0), 1.0, 0.0)
                return Bounded(call.result.dtype, v, e)
            doubt = (a.e > 0) | (b.e > 0)
            meet = ~((a.low() > b.high()) | (a.high() < b.low()))
            open_ = doubt & meet & ~surely_nan((a, b))
        return Bounded(call.result.dtype, v, np.where(open_, 1.0, 0.0))

    return judge


for _name, _compared in {
    "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal,
}.items():  # fmt: skip
    RULES[_name] = _compare(_compared)

# Bits and logic.


def _logical(f: Callable[..., Array]) -> Rule:
    """On bools: uncertain where another choice of the uncertain operands changes the answer."""

    def judge(rules: Rules, call: Call, *xs: Bounded) -> Bounded:
        to = call.result.dtype
        v = np.asarray(f(*(x.v for x in xs)))
        if all(x.exact for x in xs):
            return exactly(to, v)
        open_ = np.zeros(v.shape, bool)
        for flips in itertools.product((False, True), repeat=len(xs)):
            tried = f(*(x.v ^ (flip & (x.e > 0)) for x, flip in zip(xs, flips, strict=True)))
            open_ |= tried != v
        return Bounded(to, v, np.where(open_, 1.0, 0.0))

    return judge


def _bits(f: np.ufunc) -> Rule:
    def judge(rules: Rules, call: Call, *xs: Bounded) -> Bounded:
        kind = _logical(f) if call.result.dtype.kind == "b" else _integers(f, smooth=False)
        return kind(rules, call, *xs)

    return judge


for _name, _bitwise in {
    "bitand": np.bitwise_and, "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "bitnot": np.invert,
}.items():  # fmt: skip
    RULES[_name] = _bits(_bitwise)


def _shift_left(a: Array, n: Array) -> Array:
    bits = a.dtype.itemsize * 8
    inside = (n >= 0) & (n < bits)
    return np.where(inside, np.left_shift(a, np.where(inside, n, 0).astype(n.dtype)), 0).astype(a.dtype)


def _shift_right(a: Array, n: Array) -> Array:
    """Of signed numbers the sign is copied in, so a count too large leaves 0 or -1."""
    bits = a.dtype.itemsize * 8
    return np.right_shift(a, np.where((n >= 0) & (n < bits), n, bits - 1).astype(n.dtype)) >> (
        ((n < 0) | (n >= bits)) & (a.dtype.kind == "u")
    ).astype(a.dtype)


RULES["shl"] = _integers(_shift_left, smooth=False)
RULES["shr"] = _integers(_shift_right, smooth=False)


def _division(f: Callable[[Any, Any], Any]) -> Rule:
    """Integer division in Python's integers, where nothing wraps; anything by zero is zero."""

    def divide(a: Array, b: Array) -> Array:
        kind = object if a.dtype.itemsize == 8 else np.int64
        x, y = a.astype(kind), b.astype(kind)
        quotient = np.asarray(f(x, np.where(y == 0, 1, y)), kind)
        mask = 2 ** (8 * a.dtype.itemsize) - 1
        raw = np.asarray(np.where(y == 0, 0, quotient) & mask, kind)
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        return (
            raw.astype(unsigned).view(a.dtype)
            if raw.ndim
            else np.array([raw[()]]).astype(unsigned).view(a.dtype)[0]
        )

    return _integers(divide, smooth=False)


RULES["floordiv"] = _division(lambda a, b: a // b)
RULES["mod"] = _division(lambda a, b: a - (a // b) * b)
RULES["cdiv"] = _division(lambda a, b: -((-a) // b))


@rule("where")
def _where(rules: Rules, call: Call, c: Bounded, a: Bounded, b: Bounded) -> Bounded:
    """One of two; where the condition is uncertain, the interval that covers both."""
    v, e = np.where(c.v, a.v, b.v), np.where(c.v, a.e, b.e)
    if c.exact:
        return Bounded(call.result.dtype, v, e)
    with np.errstate(invalid="ignore"):
        other, other_e = np.where(c.v, b.v, a.v), np.where(c.v, b.e, a.e)
        if call.result.dtype.kind == "b":
            both = np.where((other != v) | (other_e > 0), 1.0, e)
        else:
            both = np.maximum(e, apart(other.astype(np.float64), v.astype(np.float64)) + other_e)
    both = np.where(np.isnan(both), np.inf, both)
    return Bounded(call.result.dtype, v, np.where(c.e > 0, both, e))


# Mathematical functions: the target's figure in units in the last place.

_erf = np.frompyfunc(math.erf, 1, 1)


def _erf64(x: Array) -> Array:
    return np.asarray(_erf(x)).astype(np.float64)


def _mathematical(
    name: str, f: Callable[[Array], Array], domain: float = -np.inf, steepest: float | None = None
) -> Rule:
    """f is monotone above `domain` (below lies another sign or nothing), or else its slope is at most
    `steepest`.
    """

    def judge(rules: Rules, call: Call, raw: Bounded) -> Bounded:
        x, to = taken(rules, raw), call.result.dtype
        wide = computing(to)
        if name not in rules.numerics.ulp:
            raise Unjudgeable(f"the target states no ULP figure for {name}", hint="see kittens_numerics")
        with np.errstate(all="ignore"):
            if steepest is None:
                v, e = propagate(f, (x,))
                doubtful = (
                    (x.e > 0) & (x.low() <= domain) & (x.high() >= domain) if domain > -np.inf else False
                )
                e = np.where(doubtful & ~surely_nan((x,)), np.inf, e)
            else:
                v = np.asarray(f(x.v))
                e = np.where(
                    np.isinf(x.e) | ((x.e > 0) & ~np.isfinite(x.v)), np.inf, np.minimum(2.0, x.e * steepest)
                )
            # At the ends of the line, at poles and outside the domain there is one right answer.
            fixed = x.certain & (~np.isfinite(v) | ~np.isfinite(x.v))
            own = rules.numerics.ulp[name] * spacing(wide, np.abs(v) + e)
            e = np.where(fixed | ~np.isfinite(v), e, e + own + 4 * ORACLE * np.abs(v))
            if (rules.flushes or name in rules.numerics.underflows) and wide.bits == 32:
                e = np.where(~fixed & (np.abs(v) - e < wide.tiny), e + wide.tiny, e)
            if wide != to:
                e = np.where(fixed, e, e + spacing(to, np.abs(v) + e) / 2)
            if name == "rsqrt" and not raw.exact:
                e = np.where(raw.e == SIGN, np.inf, e)
            return settled(to, v, e)

    return judge


RULES["exp"] = _mathematical("exp", np.exp)
RULES["exp2"] = _mathematical("exp2", np.exp2)
RULES["log"] = _mathematical("log", np.log, domain=0.0)
RULES["log2"] = _mathematical("log2", np.log2, domain=0.0)
RULES["rsqrt"] = _mathematical("rsqrt", lambda x: 1.0 / np.sqrt(x), domain=0.0)
RULES["sin"] = _mathematical("sin", np.sin, steepest=1.0)
RULES["cos"] = _mathematical("cos", np.cos, steepest=1.0)
RULES["tanh"] = _mathematical("tanh", np.tanh)
RULES["erf"] = _mathematical("erf", _erf64)
