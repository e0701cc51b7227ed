"""Error rules of matrix products: dot products summed in any order, the accumulator one more term (Higham,
section 3.1).
"""

from __future__ import annotations

import numpy as np

from kittens.conformance.judge.bounded import SIGN, Bounded
from kittens.conformance.judge.elementwise import rule
from kittens.conformance.judge.rounding import Rules, gamma, settled, taken
from kittens.dtypes import Array, DType, float32
from kittens.opset import Call

#: Elements of K that share a scale (OCP Microscaling Formats, version 1.0, section 5.2).
MX_BLOCK = 32

#: Fast products (docs/semantics.md, Products): what a term or sum may lose when something is added, as a part of the largest
#: term, and how many products are added at a time at least. Hopper keeps 13 bits behind the leading one and adds 32 products,
#: Ada 16 (Xie, Wang, Yang and Yang, MMA-Sim, 2025; DeepSeek-V3 Technical Report, 2024, section 3.5.2).
FAST_CUT = 2.0**-13
FAST_GROUP = 16


@rule("mma")
def _mma(rules: Rules, call: Call, a: Bounded, b: Bounded, c: Bounded | None = None) -> Bounded:
    to = call.result.dtype
    if to.kind != "f":
        return _integer_product(to, a, b, c)
    fast = call.attrs.get("accumulate") == "fast"
    return dot(rules, to, taken(rules, a), taken(rules, b), None if c is None else taken(rules, c), fast=fast)


@rule("mma_scaled")
def _mma_scaled(
    rules: Rules, call: Call, a: Bounded, sa: Bounded, b: Bounded, sb: Bounded, c: Bounded | None = None
) -> Bounded:
    """Scaling by a power of two is exact, so the scaled operands make an ordinary product."""

    def scaled(x: Bounded, s: Bounded, axis: int) -> Bounded:
        factor, slack = np.repeat(s.v, MX_BLOCK, axis), np.repeat(s.e, MX_BLOCK, axis)
        with np.errstate(all="ignore"):
            e = np.abs(x.v) * slack + x.e * (factor + slack)
            return Bounded(float32, x.v * factor, np.where(np.isnan(e), np.inf, e))

    return dot(
        rules, call.result.dtype, scaled(a, sa, -1), scaled(b, sb, -2), None if c is None else taken(rules, c)
    )


def _integer_product(to: DType, a: Bounded, b: Bounded, c: Bounded | None) -> Bounded:
    """Exact modulo 2^32: sums of 8-bit products are exact in float64, whatever the order."""
    total = np.matmul(a.v.astype(np.float64), b.v.astype(np.float64)).astype(np.int64)
    if c is not None:
        total = total + c.v
    operands = [x for x in (a, b, c) if x is not None]
    e = 0.0 if all(x.exact for x in operands) else np.inf
    return Bounded(to, total.astype(to.numpy), np.full(total.shape, e))


def dot(rules: Rules, to: DType, a: Bounded, b: Bounded, c: Bounded | None, *, fast: bool = False) -> Bounded:
    """c + a @ b; `fast`: with the cuts of fast accumulation besides.

    Each product rounds at most once (not at all for 16 bits and less) and meets at most n - 1 additions, n
    counting the terms that are not zero and the accumulator: gamma_n times the magnitudes, and |a| e_b + e_a
    |b| + e_a e_b of what the operands bring.
    """
    with np.errstate(all="ignore"):
        v = np.matmul(a.v, b.v)
        (am, ae), (bm, be) = _magnitude(a), _magnitude(b)
        e = np.zeros(v.shape)
        if ae.any():
            e = e + np.matmul(ae, bm + be)
        if be.any():
            e = e + np.matmul(am, be)
        mass = np.matmul(am, bm) + e
        if c is not None:
            v = v + c.v
            cm, ce = _magnitude(c)
            e, mass = e + ce, mass + cm + ce
        k = np.minimum(_count(a, -1), _count(b, -2))
        terms = k + (c is not None)
        e = e + gamma(terms, to) * mass + np.where(mass > 0, k * to.smallest / 2, 0.0)
        if rules.flushes:
            e = e + np.where(mass > 0, 2 * terms * to.tiny, 0.0)
        if fast:
            e = e + _cuts(a, b, mass, k)
        e = np.where(mass > to.max, np.inf, e)
        if not (
            np.isfinite(a.v).all()
            and np.isfinite(b.v).all()
            and not np.isinf(a.e).any()
            and not np.isinf(b.e).any()
        ):
            e = np.where(_in_doubt(a, b), np.inf, e)
        if c is not None:
            e = np.where(np.isinf(c.e), np.inf, e)
        e = np.where(~np.isfinite(v) & np.isfinite(e), 0.0, e)
        e = np.where(np.isnan(v) & _surely_nan(a, b, c), 0.0, e)
        e = np.where((v == 0) & (e == 0), SIGN, e)
    return settled(to, v, e)


def _cuts(a: Bounded, b: Bounded, mass: Array, k: Array) -> Array:
    """What fast accumulation may lose.

    At each addition each of its products, the sum so far and the result lose at most `FAST_CUT` of the largest of them: with
    n = k + 2 (additions), gamma_n of that unit times the magnitudes. There a subnormal operand counts as the smallest normal
    one, since it is its exponent that terms are aligned by, and so does the accumulator. Of zeros alone a first addition still
    cuts the accumulator, and others nothing more.
    """
    plain = [np.add(*_magnitude(x)) for x in (a, b)]
    raised = [np.where(x > 0, np.maximum(x, of.dtype.tiny), 0.0) for x, of in zip(plain, (a, b), strict=True)]
    largest = mass + np.matmul(*raised) - np.matmul(*plain) + float32.tiny
    n = k + 2 * np.minimum(-(-a.v.shape[-1] // FAST_GROUP), k) + 1
    nu = n * FAST_CUT
    return np.where(mass > 0, np.where(nu < 1, nu / np.where(nu < 1, 1 - nu, 1.0), np.inf) * largest, 0.0)


def _count(x: Bounded, axis: int) -> Array:
    """How many elements of each row or column are not zero for certain (padding adds no roundings)."""
    return np.sum((x.v != 0) | (x.e > 0), axis=axis, keepdims=True)


def _magnitude(x: Bounded) -> tuple[Array, Array]:
    """|v| and e, with what is not finite left out (see `_in_doubt`)."""
    return np.where(np.isfinite(x.v), np.abs(x.v), 0.0), np.where(
        np.isfinite(x.e) & np.isfinite(x.v), x.e, 0.0
    )


def _in_doubt(a: Bounded, b: Bounded) -> Array:
    """Where an unknown operand takes part, or infinity meets a factor of unknown sign."""

    def count(x: Array, y: Array) -> Array:
        return np.matmul(x.astype(np.float64), y.astype(np.float64)) > 0

    everywhere_a, everywhere_b = np.ones(a.v.shape), np.ones(b.v.shape)
    loose_a, loose_b = ((x.e > 0) & (np.abs(x.v) <= x.e) for x in (a, b))
    unknown = count(np.isinf(a.e), everywhere_b) | count(everywhere_a, np.isinf(b.e))
    return unknown | count(np.isinf(a.v), loose_b) | count(loose_a, np.isinf(b.v))


def _surely_nan(a: Bounded, b: Bounded, c: Bounded | None) -> Array:
    """Where a row or column holds a certain NaN, which nothing can undo."""
    rows = np.any(np.isnan(a.v) & a.certain, axis=-1, keepdims=True)
    columns = np.any(np.isnan(b.v) & b.certain, axis=-2, keepdims=True)
    sure = rows | columns
    return sure if c is None else sure | (np.isnan(c.v) & c.certain)
