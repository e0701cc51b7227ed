"""Rotary embedding, activations, gates, sums, tables and pooling against float64 formulas."""

import math

import numpy as np
import pytest
from kerneltools import BF16, E4M3, F32, FLOATS, U, gamma, normal, rounded, run_both_ways, wide, within

from kittens import ops


@pytest.fixture(autouse=True)
def _both(monkeypatch):
    run_both_ways(monkeypatch)


def rotated(x, cos, sin, interleaved):
    y, h = x.copy(), cos.shape[-1]
    first, second = (
        (slice(0, 2 * h, 2), slice(1, 2 * h, 2)) if interleaved else (slice(0, h), slice(h, 2 * h))
    )
    a, b = x[..., first], x[..., second]
    y[..., first], y[..., second] = a * cos - b * sin, b * cos + a * sin
    return y


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("shape", "pairs", "table"),
    [((5, 8), 4, ()), ((2, 3, 40, 64), 32, ()), ((2, 3, 7, 80), 40, (2, 1)), ((3, 17, 72), 10, ()),
     ((4, 6, 9), 1, (4,)), ((0, 8), 4, ()), ((2, 0, 5, 8), 4, ())],
    ids=str,
)  # fmt: skip
def test_rotary(shape, pairs, table, dtype, interleaved):
    rng = np.random.default_rng(0)
    x = normal(rng, dtype, *shape)
    angle = rng.uniform(-9, 9, (*table, shape[-2], pairs))
    cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
    y = ops.rotary(x, cos, sin, interleaved=interleaved)
    z, c, s = wide(x, cos, sin)
    exact, size = rotated(z, c, s, interleaved), np.sqrt(2) * np.abs(z).max(initial=0)
    within(y, exact, gamma(3) * 2 * size + rounded(np.abs(exact) + 1e-6, y.dtype))
    assert (y[..., 2 * pairs :] == x[..., 2 * pairs :]).all()
    back = ops.rotary(x, cos, sin, interleaved=interleaved, inverse=True)
    within(
        back,
        rotated(z, c, -s, interleaved),
        gamma(3) * 2 * size + rounded(np.abs(z).max(initial=0) * 2, y.dtype),
    )


def test_rotary_of_a_strided_layout():
    x = normal(np.random.default_rng(1), BF16, 2, 9, 3, 16).transpose(0, 2, 1, 3)
    angle = np.random.default_rng(1).uniform(-3, 3, (9, 8))
    cos, sin = np.cos(angle).astype(BF16), np.sin(angle).astype(BF16)
    assert (ops.rotary(x, cos, sin) == ops.rotary(np.ascontiguousarray(x), cos, sin)).all()


def gelu(x):
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[float])(x / math.sqrt(2)))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x / (1 + np.exp(-x))


SHAPES = [(1,), (33,), (17, 300), (2, 3, 5, 7), (0, 4), (4, 0)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_activations_and_gates(shape, dtype):
    rng = np.random.default_rng(2)
    x, up = normal(rng, dtype, *shape, scale=2), normal(rng, dtype, *shape)
    z, u = wide(x, up)
    for y, exact in (
        (ops.relu(x), np.maximum(z, 0)),
        (ops.silu(x), silu(z)),
        (ops.gelu(x), gelu(z)),
        (ops.gelu(x, approximate="tanh"), gelu_tanh(z)),
    ):
        bound = 16 * U * (1 + np.abs(z))
        within(y, exact, bound + rounded(np.abs(exact) + bound, y.dtype))
    both = np.concatenate([x, up], -1)
    for y, g in (
        (ops.silu_and_mul(x, up), silu(z)),
        (ops.silu_and_mul(both), silu(z)),
        (ops.gelu_and_mul(both), gelu(z)),
        (ops.gelu_and_mul(x, up, approximate="tanh"), gelu_tanh(z)),
    ):
        bound = 20 * U * (1 + np.abs(z)) * np.abs(u)
        within(y, g * u, bound + rounded(np.abs(g * u) + bound, y.dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize(
    ("a", "b"),
    [((5,), (5,)), ((3, 5), (5,)), ((2, 3, 5), (5,)), ((2, 3, 5), (3, 5)), ((2, 3, 5), (1, 3, 5)),
     ((4, 2, 3, 5), (2, 3, 5)), ((3, 0), (3, 0))],
    ids=str,
)  # fmt: skip
def test_add_rounds_once(a, b, dtype):
    rng = np.random.default_rng(3)
    x, y = normal(rng, dtype, *a), normal(rng, dtype, *b)
    assert (ops.add(x, y) == (x.astype(F32) + y.astype(F32)).astype(dtype)).all()


@pytest.mark.parametrize("dtype", [F32, BF16, E4M3, np.dtype(np.int64)], ids=str)
def test_embedding(dtype):
    rng = np.random.default_rng(4)
    table = normal(rng, F32, 50, 600, scale=3).astype(dtype)
    for ids in (
        rng.integers(0, 50, (3, 7)),
        np.array(5, np.int32),
        rng.integers(0, 50, (4, 6)).T[::2],
        np.zeros((0, 3), int),
    ):
        y = ops.embedding(table, ids)
        assert y.dtype == dtype and y.shape == (*ids.shape, 600)
        assert y.tobytes() == table[ids].tobytes()
    assert (ops.embedding(table, np.array([50, -1])) == np.zeros((2, 600), dtype)).all()


@pytest.mark.parametrize("mask_dtype", [np.bool_, np.int64, np.float32])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 70, 100), (2, 5, 384), (0, 3, 4), (2, 0, 4)], ids=str)
def test_mean_pool(shape, dtype, mask_dtype):
    rng = np.random.default_rng(5)
    x, mask = normal(rng, dtype, *shape), rng.integers(0, 2, shape[:2]).astype(mask_dtype)
    mask[:1] = 0
    z, w = wide(x, mask)
    count = np.maximum(w.sum(1, keepdims=True), 1e-9)
    exact, size = (z * w[..., None]).sum(1) / count, (np.abs(z) * w[..., None]).sum(1) / count
    bound = gamma(shape[1] + 4) * size
    y = ops.mean_pool(x, mask)
    within(y, exact, bound + rounded(np.abs(exact) + bound, y.dtype))
