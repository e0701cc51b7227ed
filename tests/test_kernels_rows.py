"""Softmax, cross entropy and norms against float64 formulas, whole rows and blocks of columns alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kerneltools import (
    BF16,
    F32,
    FLOATS,
    U,
    gamma,
    normal,
    random_shapes,
    rounded,
    run_both_ways,
    wide,
    within,
)

from kittens import ops
from kittens.ops.checks import RESIDENT

BLOCKS = {"whole": None, "blocks": {"BN": 32}, "one row": {"BM": 1, "BN": 16}}
SHAPES = [(1, 1), (5, 16), (3, 31), (7, 100), (2, 3, 33), (4,), (0, 5), (3, 0), (2, 0, 7)]


@pytest.fixture(autouse=True)
def _both(monkeypatch):
    run_both_ways(monkeypatch)


def check_softmax(x, tune=None):
    y = ops.softmax(x, tune=tune)
    assert y.dtype == x.dtype
    (z,) = wide(x)
    d = z - z.max(-1, keepdims=True, initial=-np.inf)
    p = np.exp(d)
    exact = p / p.sum(-1, keepdims=True)
    # The exponent, rounded thrice, of this and of the largest term; the sum; a quotient.
    relative = np.expm1(8 * U * np.abs(d).max(-1, keepdims=True, initial=0)) + gamma(2 * x.shape[-1] + 32)
    bound = exact * relative + 2.0**-126
    within(y, exact, bound + rounded(exact + bound, y.dtype))


@pytest.mark.parametrize("tune", BLOCKS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_softmax(shape, dtype, tune):
    check_softmax(normal(np.random.default_rng(0), dtype, *shape, scale=5), BLOCKS[tune])


@pytest.mark.parametrize("tune", BLOCKS)
def test_softmax_of_infinities(tune):
    x = normal(np.random.default_rng(1), F32, 4, 70)
    x[0, :40], x[1, 3], x[2] = -np.inf, np.nan, -np.inf
    y = ops.softmax(x, tune=BLOCKS[tune])
    assert (y[0, :40] == 0).all() and np.isclose(y[0].sum(), 1)
    assert np.isnan(y[1]).all() and np.isnan(y[2]).all() and np.isclose(y[3].sum(), 1)


def test_softmax_of_long_rows_goes_by_blocks():
    check_softmax(normal(np.random.default_rng(2), BF16, 3, RESIDENT + 5))


def test_strided_rows_are_not_copied():
    x = normal(np.random.default_rng(3), F32, 6, 5, 4, 40)
    for view in (x[::2], x[:, ::2], x.transpose(2, 0, 1, 3), x[..., ::2], x.T):
        check_softmax(view)


def norm_parts(x, weight, bias, eps):
    n = x.shape[-1]
    mean = x.mean(-1, keepdims=True)
    d = x - mean
    variance = (d * d).mean(-1, keepdims=True)
    scale = 1 / np.sqrt(variance + eps)
    w, b = 1.0 if weight is None else weight, 0.0 if bias is None else bias
    # Errors: the mean, so every distance from it; the variance, relative; and a few roundings.
    e_mean = gamma(n + 2) * np.abs(x).mean(-1, keepdims=True)
    e_d = e_mean + U * (np.abs(d) + e_mean)
    e_var = gamma(n + 4) * (variance + e_mean**2) + ((2 * np.abs(d) + e_d) * e_d).mean(-1, keepdims=True)
    relative = e_var * scale**2 + 8 * U  # of the scale; half of it would do to first order
    exact = d * scale * w + b
    bound = (e_d + np.abs(d) * relative) * scale * (1 + relative) * np.abs(w) + 4 * U * np.abs(d * scale * w)
    return exact, bound + U * np.abs(exact)


@pytest.mark.parametrize("tune", BLOCKS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1]], ids=str)
def test_layer_norm(shape, dtype, tune):
    rng = np.random.default_rng(4)
    x = (normal(rng, F32, *shape) + 1).astype(dtype)
    weight, bias = normal(rng, dtype, shape[-1]), normal(rng, F32, shape[-1])
    for w, b in ((weight, bias), (None, bias), (weight, None), (None, None)):
        y = ops.layer_norm(x, w, b, eps=1e-3, tune=BLOCKS[tune])
        exact, bound = norm_parts(*(None if t is None else t.astype(float) for t in (x, w, b)), 1e-3)
        within(y, exact, bound + rounded(np.abs(exact) + bound, y.dtype))


@pytest.mark.parametrize("tune", BLOCKS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [s for s in SHAPES if s[-1]], ids=str)
def test_rms_norm_and_l2_normalize(shape, dtype, tune):
    rng = np.random.default_rng(5)
    x, weight = normal(rng, dtype, *shape), normal(rng, F32, shape[-1])
    z, w = wide(x, weight)
    square = (z * z).sum(-1, keepdims=True)
    relative = gamma(shape[-1] + 16)
    for y, exact in (
        (ops.rms_norm(x, weight, tune=BLOCKS[tune]), z / np.sqrt(square / shape[-1] + 1e-6) * w),
        (ops.rms_norm(x, eps=0.5, tune=BLOCKS[tune]), z / np.sqrt(square / shape[-1] + 0.5)),
        (ops.l2_normalize(x, tune=BLOCKS[tune]), z / np.maximum(np.sqrt(square), 1e-12)),
    ):
        within(y, exact, np.abs(exact) * relative + rounded(np.abs(exact) * (1 + relative), y.dtype))
    assert (ops.l2_normalize(np.zeros((2, 5), dtype)) == 0).all()


def philox_uniform(seed, counters):
    """Philox-4x32-10 from its definition, in Python integers."""
    out = []
    for c in counters:
        x, (k0, k1) = [c // 4 & 0xFFFFFFFF, c // 4 >> 32, 0, 0], (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
        for _ in range(10):
            a, b = 0xD2511F53 * x[0], 0xCD9E8D57 * x[2]
            x = [b >> 32 ^ x[1] ^ k0, b & 0xFFFFFFFF, a >> 32 ^ x[3] ^ k1, a & 0xFFFFFFFF]
            k0, k1 = k0 + 0x9E3779B9 & 0xFFFFFFFF, k1 + 0xBB67AE85 & 0xFFFFFFFF
        out.append((x[c % 4] >> 8) / 2**24)
    return np.array(out)


@pytest.mark.parametrize("tune", BLOCKS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 40), (7,), (0, 4)], ids=str)
def test_dropout_residual_layer_norm(shape, dtype, tune):
    rng, seed, p = np.random.default_rng(6), 2**40 + 12345, 0.3
    x, residual = normal(rng, dtype, *shape), normal(rng, dtype, *shape)
    weight, bias = normal(rng, F32, shape[-1]), normal(rng, F32, shape[-1])
    arguments = {"p": p, "seed": seed, "tune": BLOCKS[tune]}
    y, total = ops.dropout_residual_layer_norm(x, residual, weight, bias, **arguments)
    kept = philox_uniform(seed, range(x.size)).reshape(shape) >= np.float32(p)
    a, r, w, b = wide(x, residual, weight, bias)
    dropped = np.where(kept, a / (1 - p), 0)
    exact_total = dropped + r
    e_total = 3 * U * (np.abs(dropped) + np.abs(exact_total))
    within(total, exact_total, e_total + rounded(np.abs(exact_total) + e_total, total.dtype))
    exact, bound = norm_parts(exact_total, w, b, 1e-5)
    scale = 1 / np.sqrt(exact_total.var(-1, keepdims=True) + 1e-5)
    bound = bound + 4 * e_total.max(-1, keepdims=True, initial=0) * scale * (1 + np.abs(exact - b)) * np.abs(
        w
    )
    bound = bound + 4 * e_total.max(-1, keepdims=True, initial=0) * scale * np.abs(exact - b)
    within(y, exact, bound + rounded(np.abs(exact) + bound, y.dtype))


def test_dropout_extremes_and_repetition():
    x = normal(np.random.default_rng(7), F32, 50, 40)
    drop = lambda **kw: ops.dropout_residual_layer_norm(x, np.zeros_like(x), **kw)[1]  # noqa: E731
    assert (drop() == x).all() and (drop(p=1.0) == 0).all()
    assert (drop(p=0.5, seed=3) == drop(p=0.5, seed=3, tune={"BM": 8, "BN": 16})).all()
    assert (drop(p=0.5, seed=3) != drop(p=0.5, seed=4)).any()
    assert abs((drop(p=0.25, seed=-1) == 0).mean() - 0.25) < 0.04


@pytest.mark.parametrize("labels", [np.int32, np.int64])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1), (5, 700), (2, 3, 33), (40,), (0, 5)], ids=str)
def test_cross_entropy(shape, dtype, labels):
    rng = np.random.default_rng(8)
    x = normal(rng, dtype, *shape, scale=4)
    label = np.asarray(rng.integers(0, shape[-1], shape[:-1])).astype(labels)
    dloss = np.asarray(normal(rng, F32, *shape[:-1]))
    flat = label.reshape(-1)
    flat[:2] = -100 if flat.size > 2 else flat[:2]
    loss, lse = ops.cross_entropy(x, label, return_lse=True)
    (z,) = wide(x)
    exact_lse = np.log(np.exp(z).sum(-1))
    e = gamma(2 * shape[-1] + 64) + 8 * U * (np.abs(exact_lse) + np.abs(z).max(-1))
    within(lse, exact_lse, e)
    safe = np.where(label < 0, 0, label)[..., None]
    picked = np.take_along_axis(z, safe, -1)[..., 0]
    within(loss, np.where(label < 0, 0, exact_lse - picked), e)
    dx = ops.cross_entropy_backward(x, label, lse, dloss)
    p, hot = np.exp(z - exact_lse[..., None]), np.arange(shape[-1]) == safe
    exact = np.where(label[..., None] < 0, 0, (p - hot) * dloss.astype(float)[..., None])
    bound = (p * np.expm1(2 * e)[..., None] + 4 * U) * np.abs(dloss.astype(float))[..., None]
    within(dx, exact, bound + rounded(np.abs(exact) + bound, dx.dtype))


def test_cross_entropy_of_a_label_that_is_no_column_is_nan():
    x, label = normal(np.random.default_rng(9), F32, 4, 20), np.array([3, 20, -1, 7])
    loss = ops.cross_entropy(x, label, ignore_index=7)
    assert np.isnan(loss).tolist() == [False, True, True, False] and loss[3] == 0


@random_shapes
@given(
    st.integers(0, 20),
    st.integers(1, 150),
    st.sampled_from(FLOATS),
    st.sampled_from([None, *BLOCKS.values()]),
)
def test_random_shapes(m, n, dtype, tune):
    x = normal(np.random.default_rng(m * 151 + n), dtype, m, n)
    check_softmax(x, tune)
    exact, bound = norm_parts(x.astype(float), None, None, 1e-5)
    y = ops.layer_norm(x, tune=tune)
    within(y, exact, bound + rounded(np.abs(exact) + bound, y.dtype))
