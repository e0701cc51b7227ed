"""How errors travel through a function and what one rounding adds (Higham, Accuracy and Stability, chapters 2
and 3).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kittens.conformance.judge.bounded import ORACLE, SIGN, Bounded
from kittens.conformance.judge.formats import nearest, spacing
from kittens.dtypes import Array, DType, float32
from kittens.targets import Numerics


@dataclass(frozen=True)
class Rules:
    """What the rules need to know.

    numerics: what the target promises. follows: whether known operands give known, rounded results (the
    sharpest judgement of a target); if not, results stay unrounded and their roundings count as errors, so
    that values can be compared with a formula over the reals.
    """

    numerics: Numerics
    follows: bool = True

    @property
    def flushes(self) -> bool:
        return self.numerics.flushes


def computing(dtype: DType) -> DType:
    """The type in which an operation on `dtype` is carried out (16-bit floats compute in float32)."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def taken(rules: Rules, x: Bounded) -> Bounded:
    """An operand as an operation sees it: possible overflow made unknown, subnormals possibly zero, zeros
    without sign.
    """
    if x.dtype.kind != "f" or (x.exact and not rules.flushes):
        return x
    v, e = x.v, x.e
    size = np.abs(v)
    if not x.exact:
        with np.errstate(invalid="ignore"):
            e = np.where(
                (e > 0) & np.isfinite(v) & (size + e > x.dtype.max), np.inf, np.where(e == SIGN, 0.0, e)
            )
    if rules.flushes and computing(x.dtype) == float32:
        e = np.where((size > 0) & (size < float32.tiny), np.maximum(e, size + e), e)
    return Bounded(x.dtype, v, e)


def signless(xs: tuple[Bounded, ...]) -> Array | None:
    """Where the sign of some zero operand is unknown; None for nowhere."""
    masks = [x.e == SIGN for x in xs if x.dtype.kind == "f" and not x.exact]
    return np.logical_or.reduce(masks) if masks else None


def propagate(f: Callable[..., Array], xs: tuple[Bounded, ...]) -> tuple[Array, Array]:
    """f of the values, and how far f can go within the operands' intervals.

    For a function that is monotone in each operand apart (+, -, *, fma, max, and / by what keeps its sign),
    the extremes are at the corners of the box, so the bound is the best there is.
    """
    with np.errstate(all="ignore"):
        v = np.asarray(f(*(x.v for x in xs)))
        inexact = [not x.exact for x in xs]
        e = np.zeros(v.shape)
        if not any(inexact):
            return v, e
        for corner in itertools.product(
            *((x.low(), x.high()) if i else (x.v,) for x, i in zip(xs, inexact, strict=True))
        ):
            y = f(*corner)
            e = np.maximum(e, apart(y, v))
        # The distances above were computed in float64 themselves.
        e = np.where(e > 0, e * (1 + 8 * ORACLE) + 4 * ORACLE * np.where(np.isfinite(v), np.abs(v), 0.0), e)
        unknown = np.logical_or.reduce([np.broadcast_to(np.isinf(x.e), v.shape) for x in xs])
        if unknown.any():
            e = np.where(unknown & ~surely_nan(xs), np.inf, e)
        return v, np.where(np.isnan(e), np.inf, e)


def apart(x: Array, y: Array) -> Array:
    """The distance between floats: 0 between equals and NaNs, SIGN between zeros of different sign."""
    same = (x == y) | (np.isnan(x) & np.isnan(y))
    zeros = (x == 0) & (y == 0) & (np.signbit(x) != np.signbit(y))
    return np.where(zeros, SIGN, np.where(same, 0.0, np.abs(x - y)))


def surely_nan(xs: tuple[Bounded, ...]) -> Array:
    """Where some operand is NaN for certain."""
    return np.logical_or.reduce(
        [np.isnan(x.v) & (x.e == 0) if x.dtype.kind == "f" else np.zeros(x.v.shape, bool) for x in xs]
    )


def rounded(rules: Rules, dtype: DType, v: Array, e: Array, exact: Array, *, once: bool = False) -> Bounded:
    """The result of an operation that rounds in the computing type and once more to a narrower `dtype` (or
    just `once`).

    Where `exact` (all operands known, the operation correctly rounded by contract) it is that very number.
    Elsewhere each rounding adds half a spacing at the largest magnitude possible.
    """
    wide = computing(dtype)
    plain = nearest(dtype, v if once else nearest(wide, v))
    exact = known(rules, exact, v, plain)
    if exact.all() and not rules.flushes:
        return Bounded(dtype, plain, np.zeros(v.shape))
    with np.errstate(all="ignore"):
        if rules.flushes and wide == float32:
            small = (plain != 0) & (np.abs(plain) < float32.tiny)
            exact = exact & ~small
            e = np.where(np.abs(v) - e < float32.tiny, e + np.where(v == 0, 0.0, float32.tiny), e)
        e = add_rounding(dtype, v, e)
        return settled(dtype, np.where(exact, plain, v), np.where(exact, 0.0, e))


def known(rules: Rules, exact: Array, v: Array, plain: Array) -> Array:
    """Where a result counts as known: its operands are, and it is followed through its rounding or needs
    none.
    """
    return exact if rules.follows else exact & ((plain == v) | np.isnan(v))


def add_rounding(dtype: DType, v: Array, e: Array) -> Array:
    """e and the roundings of a result: to the computing type, then to `dtype`. A certain zero stays one, but
    for its sign.
    """
    wide = computing(dtype)
    out = e
    for d in (wide,) if wide == dtype else (wide, dtype):
        out = out + spacing(d, np.abs(v) + out) / 2
    out = out + 2 * ORACLE * np.abs(v)
    return np.where(np.isfinite(v), np.where((v == 0) & (e <= SIGN), SIGN, out), e)


def settled(dtype: DType, v: Array, e: Array) -> Bounded:
    """Results that must have overflowed become infinite for certain; those that may have stay in doubt (see
    `taken`).
    """
    with np.errstate(invalid="ignore"):
        over = np.isfinite(v) & (np.abs(v) - e > dtype.max * (1 + dtype.unit_roundoff))
        if over.any():
            v, e = np.where(over, np.copysign(np.inf, v), v), np.where(over, 0.0, e)
    return Bounded(dtype, v, np.where(np.isnan(e), np.inf, e))


def gamma(n: Array | int, dtype: DType) -> Array:
    """gamma_n = n u / (1 - n u): n roundings in a row (Higham, lemma 3.1), and the oracle's own."""
    nu = np.asarray(n) * dtype.unit_roundoff
    no = (np.asarray(n) + 2) * ORACLE
    return np.where(nu < 1, nu / np.where(nu < 1, 1 - nu, 1), np.inf) + no
