"""Attention, forward and backward, against float64 formulas with error bounds carried through them."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneltools import (
    BF16,
    E4M3,
    F16,
    F32,
    FLOATS,
    U,
    gamma,
    normal,
    random_shapes,
    rounded,
    rounding,
    run_both_ways,
    wide,
    within,
)

from kittens import kernels, ops


@pytest.fixture(autouse=True)
def _both(monkeypatch):
    run_both_ways(monkeypatch)


def textbook(q, k, v, left, right, scale):
    """o, lse, p in float64, the error of a float32 score, and the repeated k and v."""
    q, k, v = wide(q, k, v)
    group = q.shape[1] // k.shape[1] if k.shape[1] else 1
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    nq, nk = q.shape[2], k.shape[2]
    s = q @ k.swapaxes(-1, -2) * scale
    size = np.abs(q) @ np.abs(k).swapaxes(-1, -2) * scale
    position, key = np.arange(nq)[:, None] + nk - nq, np.arange(nk)
    seen = np.ones((nq, nk), bool)
    seen &= key >= position - left if left is not None else True
    seen &= key <= position + right if right is not None else True
    s = np.where(seen, s, -np.inf)
    m = s.max(-1, keepdims=True, initial=-np.inf)
    m = np.where(np.isinf(m), 0, m)
    p = np.exp(s - m)
    l = p.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (m + np.log(l))[..., 0]
    p = p / np.where(l == 0, 1, l)
    error = (gamma(q.shape[-1] + 8) * np.where(seen, size, 0)).max(-1, keepdims=True, initial=0)
    return p @ v, lse, p, error, k, v


def turned(x):
    return x.swapaxes(-1, -2)


def summed(x, heads):
    """The sum over the query heads of each key head."""
    return x.reshape(x.shape[0], heads, x.shape[1] // max(heads, 1), *x.shape[2:]).sum(2)


def check(q, k, v, kw, left=None, right=None, backward=True, tune=None):
    scale = kw.get("scale", q.shape[-1] ** -0.5)
    o, lse = ops.attention(q, k, v, return_lse=True, tune=tune, **kw)
    exact, exact_lse, p, e, k2, v2 = textbook(q, k, v, left, right, scale)
    nq, nk, up = q.shape[2], k.shape[2], rounding(v.dtype)[0] if v.dtype != F32 else 0.0
    relative = np.expm1(2 * e) + up * 1.01 + gamma(2 * nk + 64)
    bound = relative * (p @ np.abs(v2)) + rounding(v.dtype)[1] * np.abs(v2).sum(-2, keepdims=True)
    within(o, exact, bound + rounded(np.abs(exact) + bound, o.dtype))
    e_lse = e[..., 0] + gamma(2 * nk + 64) + 8 * U * np.where(np.isinf(exact_lse), 0, np.abs(exact_lse))
    within(lse, exact_lse, e_lse)
    if not backward:
        return
    do = normal(np.random.default_rng(9), q.dtype, *o.shape)
    dq, dk, dv = ops.attention_backward(q, k, v, o, lse, do, tune=tune, **kw)
    q2, do2, o2 = wide(q, do, o)
    ep = np.expm1(2 * (e + e_lse[..., None]))  # relative error of a probability
    dp, dp_size = do2 @ v2.swapaxes(-1, -2), np.abs(do2) @ np.abs(v2).swapaxes(-1, -2)
    delta = (do2 * exact).sum(-1, keepdims=True)
    e_delta = (np.abs(do2) * np.abs(o2 - exact)).sum(-1, keepdims=True)
    e_delta = e_delta + gamma(v.shape[-1] + 4) * (np.abs(do2) * np.abs(o2)).sum(-1, keepdims=True)
    ds = p * (dp - delta)
    inner = np.abs(dp) + np.abs(delta)
    e_ds = p * ((ep + 4 * U) * inner + (1 + ep) * (gamma(v.shape[-1] + 4) * dp_size + e_delta))
    e_ds = e_ds + rounded(np.abs(ds) + e_ds, q.dtype)
    e_p = p * ep + rounded(p * (1 + ep), q.dtype)
    rows = gamma(nq * (q.shape[1] // max(k.shape[1], 1)) + 64)
    hk, size = k.shape[1], np.abs(ds) + e_ds
    for got, want, magnitude, error in (
        (dq, ds @ k2 * scale, size @ np.abs(k2) * scale * gamma(nk + 64), e_ds @ np.abs(k2) * scale),
        (dk, summed(turned(ds) @ q2, hk) * scale, summed(turned(size) @ np.abs(q2), hk) * scale * rows,
         summed(turned(e_ds) @ np.abs(q2), hk) * scale),
        (dv, summed(turned(p) @ do2, hk), summed(turned(p + e_p) @ np.abs(do2), hk) * rows,
         summed(turned(e_p) @ np.abs(do2), hk)),
    ):  # fmt: skip
        bound = magnitude + error
        within(got, want, bound + rounded(np.abs(want) + bound, got.dtype))


def inputs(dtype, b, h, hk, nq, nk, d, dv=None, seed=0):
    rng = np.random.default_rng(seed)
    return (
        normal(rng, dtype, b, h, nq, d),
        normal(rng, dtype, b, hk, nk, d),
        normal(rng, dtype, b, hk, nk, dv or d),
    )


MASKS = {
    "full": ({}, {}),
    "causal": ({"causal": True}, {"right": 0}),
    "window": ({"window": 7}, {"left": 6, "right": 6}),
    "causal window": ({"window": 70, "causal": True}, {"left": 69, "right": 0}),
    "left": ({"window": (5, None)}, {"left": 5}),
    "right": ({"window": (None, 9)}, {"right": 9}),
}


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(
    "lengths", [(1, 1), (1, 100), (100, 1), (77, 90), (90, 77), (64, 128), (130, 3), (65, 65)], ids=str
)
def test_masks_and_lengths(lengths, mask):
    kw, span = MASKS[mask]
    check(*inputs(F32, 1, 2, 1, *lengths, 16), kw, **span)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("d", [1, 8, 32, 40, 64, 72, 80, 96, 128, 192, 256])
def test_head_dimensions(d, dtype):
    check(*inputs(dtype, 1, 1, 1, 50, 70, d), {"causal": d % 16 == 0}, right=0 if d % 16 == 0 else None)


@pytest.mark.parametrize("heads", [(1, 1), (4, 4), (6, 2), (5, 1), (8, 2)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_grouped_heads(heads, dtype):
    check(*inputs(dtype, 2, *heads, 40, 70, 24, 33), {"causal": True}, right=0)


@pytest.mark.parametrize(
    "shape", [(1, 2, 2, 0, 5), (1, 2, 2, 5, 0), (0, 2, 2, 5, 5), (1, 0, 0, 5, 5), (1, 2, 1, 0, 0)], ids=str
)
def test_empty(shape):
    check(*inputs(F32, *shape, 16), {})


def test_rows_that_see_nothing_give_zero_and_minus_infinity():
    q, k, v = inputs(F32, 1, 1, 1, 10, 4, 8)
    o, lse = ops.attention(q, k, v, causal=True, return_lse=True)
    assert (o[0, 0, :6] == 0).all() and (lse[0, 0, :6] == -np.inf).all() and np.isfinite(lse[0, 0, 6:]).all()
    dq, dk, dv = ops.attention_backward(q, k, v, o, lse, np.ones_like(o), causal=True)
    assert (dq[0, 0, :6] == 0).all() and np.isfinite(dk).all() and np.isfinite(dv).all()


def test_large_scores_neither_overflow_nor_lose_the_maximum():
    q, k, v = inputs(F32, 1, 1, 1, 40, 70, 16)
    check(q * 100, k * 10, v, {}, backward=False)
    check(q * 100, k * 10, v, {"causal": True}, right=0, backward=False)


def test_scale_and_strides():
    q, k, v = inputs(F32, 2, 3, 3, 50, 40, 24)
    # (B, N, H, D) in memory.
    strided = [np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v)]
    check(*strided, {"scale": 0.37})
    packed = normal(np.random.default_rng(3), BF16, 2, 50, 3, 4, 24).transpose(
        2, 0, 3, 1, 4
    )  # (B, N, 3, H, D)
    check(packed[0], packed[1], packed[2], {})


def test_fewer_axes():
    q, k, v = inputs(F32, 1, 2, 2, 30, 20, 16)
    full = ops.attention(q, k, v, causal=True)
    assert (ops.attention(q[0], k[0], v[0], causal=True) == full[0]).all()
    assert (ops.attention(q[0, 1], k[0, 1], v[0, 1], causal=True) == full[0, 1]).all()
    o, lse = ops.attention(q[0], k[0], v[0], return_lse=True)
    assert lse.shape == (2, 30)
    grads = ops.attention_backward(q[0], k[0], v[0], o, lse, o)
    assert [g.shape for g in grads] == [(2, 30, 16), (2, 20, 16), (2, 20, 16)]


def test_float8():
    q, k, v = inputs(E4M3, 1, 2, 2, 50, 70, 48)
    assert ops.attention(q, k, v).dtype == BF16
    check(q, k, v, {}, backward=False)
    check(q, k, v, {"causal": True}, right=0, backward=False)


def test_gradient_of_the_log_sum_exp():
    q, k, v = inputs(F32, 1, 1, 1, 20, 30, 8)
    o, lse = ops.attention(q, k, v, return_lse=True)
    zero, ones = np.zeros_like(o), np.ones_like(lse)
    dq, dk, dv = ops.attention_backward(q, k, v, o, lse, zero, dlse=ones)
    _, _, p, *_ = textbook(q, k, v, None, None, 8**-0.5)
    within(dq, p @ k.astype(float) * 8**-0.5, 1e-5)
    within(dk, p.swapaxes(-1, -2) @ q.astype(float) * 8**-0.5, 1e-5)
    assert (dv == 0).all()


def test_results_do_not_depend_on_blocks_that_are_skipped_and_repeat():
    q, k, v = inputs(F16, 1, 2, 1, 100, 130, 32)
    first = ops.attention(q, k, v, causal=True)
    assert (ops.attention(q, k, v, causal=True) == first).all()
    for bm, bn in ((16, 32), (32, 16), (128, 128)):
        check(q, k, v, {"causal": True}, right=0, tune={"BM": bm, "BN": bn})


@random_shapes
@given(
    st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(0, 80), st.integers(0, 80),
    st.integers(1, 50), st.integers(1, 40), st.sampled_from(FLOATS), st.one_of(st.none(), st.integers(0, 60)),
    st.one_of(st.none(), st.integers(0, 60)), st.sampled_from([16, 32, 48]), st.sampled_from([16, 64]),
)  # fmt: skip
def test_random_shapes(b, group, hk, nq, nk, d, dv, dtype, left, right, bm, bn):
    q, k, v = inputs(dtype, b, group * hk, hk, nq, nk, d, dv, seed=nq * 81 + nk)
    check(q, k, v, {"window": (left, right)}, left, right, tune={"BM": bm, "BN": bn})


def test_the_kernels_are_short():
    import inspect

    from kittens.kernels import attention, attention_backward

    def lines(module):
        return sum(1 for x in inspect.getsource(module).split("from __future__")[1].splitlines() if x.strip())

    assert lines(attention) <= 60
    assert lines(attention_backward) <= 110
    assert len(inspect.getsource(kernels.attention_forward.function).splitlines()) <= 45
    assert math.isclose(attention.LOG2E, 1.4426950408889634)
