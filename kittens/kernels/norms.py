"""Normalisation of rows: root mean square, layer norm (after dropout and residual), Euclidean length.

Every kernel takes stacks (..., M, N) and computes in float32. `resident` says that a tile of BN columns holds
a whole row, so that inputs are read once; else rows are swept in blocks, once for each statistic and once for
the result.
"""

from __future__ import annotations

import math

import numpy as np

import kittens as kt
from kittens.kernels.stacks import columns, count, held, part, ragged, real, row_length, wide

ROWS = kt.tunable(4, 1, 2, 8, 16, 32)
COLUMNS = kt.tunable(512, 1024, 2048)


def row_grid(x, BM):
    """One program for BM rows of one matrix of the stack."""
    return kt.cdiv(x.shape[-2], BM), count(*x.shape[:-2])


def mean_square(block, n, BM, BN, resident, centre=None):
    """Mean over n columns of the squares of a row, or of its distances from a centre (BM,)."""
    total = kt.zeros((BM,), kt.float32)
    for j in columns(n, BN, resident):
        d = block(j)
        if centre is not None:
            d = d - centre[:, None]
            if ragged(n, BN):
                d = kt.where(kt.cols(j, BN) < n, d, 0.0)
        total += (d * d).sum(axis=1)
    return total / real(n)


def mean(block, n, BM, BN, resident):
    """Mean over n columns of a row."""
    total = kt.zeros((BM,), kt.float32)
    for j in columns(n, BN, resident):
        total += block(j).sum(axis=1)
    return total / real(n)


def at_least(p, seed, element):
    """kt.random_uniform(seed, element) >= p, in integers: it is the upper 24 bits of random_bits, times 2^-24."""
    least = math.ceil(float(np.float32(p)) * 2**24)
    bits = kt.random_bits(seed, element)
    return bits >= least << 8 if least < 2**24 else bits < 0


def affine(x, weight, bias, j, BN):
    """x weight + bias on column block j; either may be None."""
    if weight is not None:
        x = x * wide(kt.load(weight, j, BN))
    return x if bias is None else x + wide(kt.load(bias, j, BN))


@kt.kernel(grid=row_grid)
def rms_norm(x, y, weight=None, *, eps, resident=False, whole=False, BM=ROWS, BN=COLUMNS):
    """y = x / sqrt(mean(x^2) + eps) weight (Zhang and Sennrich, 2019). weight (N,)."""
    i, z = kt.program_id()
    x, y, n = part(x, z, x, same=True), part(y, z, x, same=True), row_length(whole, x, y, weight)
    block = held(lambda j: wide(kt.load(x, (i, j), (BM, BN))), resident)
    scale = kt.rsqrt(mean_square(block, n, BM, BN, resident) + eps)[:, None]
    for j in columns(n, BN, resident):
        kt.store(y, (i, j), affine(block(j) * scale, weight, None, j, BN))


@kt.kernel(grid=row_grid)
def layer_norm(x, y, weight=None, bias=None, *, eps, resident=False, whole=False, BM=ROWS, BN=COLUMNS):
    """y = (x - mean(x)) / sqrt(var(x) + eps) weight + bias (Ba, Kiros, Hinton, 2016). weight, bias (N,)."""
    i, z = kt.program_id()
    x, y, n = part(x, z, x, same=True), part(y, z, x, same=True), row_length(whole, x, y, weight, bias)
    block = held(lambda j: wide(kt.load(x, (i, j), (BM, BN))), resident)
    centre = mean(block, n, BM, BN, resident)
    scale = kt.rsqrt(mean_square(block, n, BM, BN, resident, centre) + eps)[:, None]
    for j in columns(n, BN, resident):
        kt.store(y, (i, j), affine((block(j) - centre[:, None]) * scale, weight, bias, j, BN))


@kt.kernel(grid=row_grid)
def dropout_residual_layer_norm(
    x,
    residual,
    y,
    total,
    seed,
    weight=None,
    bias=None,
    *,
    p,
    eps,
    resident=False,
    whole=False,
    BM=ROWS,
    BN=COLUMNS,
):
    """total = dropout(x) + residual; y = layer_norm(total) weight + bias, of the total before it is rounded.

    dropout(x) is x / (1 - p) with probability 1 - p, else 0; element number e of the stack, in row-major
    order, stays where `kt.random_uniform(seed, e)` is at least p. seed is an integer, p from 0 to 1.
    """
    i, z = kt.program_id()
    n = row_length(whole, x, residual, y, total, weight, bias)
    x, residual, y, total = (part(t, z, x, same=True) for t in (x, residual, y, total))

    def summed(j):
        kept = wide(kt.load(x, (i, j), (BM, BN)))
        if p > 0:
            element = (kt.rows(i, BM) + z * x.shape[0]) * n + kt.cols(j, BN)
            factor = 1 / (1 - p) if p < 1 else 0.0
            kept = kt.where(at_least(p, seed, element), kept * factor, 0.0)
        return kept + wide(kt.load(residual, (i, j), (BM, BN)))

    block = held(summed, resident)
    centre = mean(block, n, BM, BN, resident)
    scale = kt.rsqrt(mean_square(block, n, BM, BN, resident, centre) + eps)[:, None]
    for j in columns(n, BN, resident):
        kt.store(total, (i, j), block(j))
        kt.store(y, (i, j), affine((block(j) - centre[:, None]) * scale, weight, bias, j, BN))


@kt.kernel(grid=row_grid)
def l2_normalize(x, y, *, eps, resident=False, whole=False, BM=ROWS, BN=COLUMNS):
    """y = x / max(sqrt(sum(x^2)), eps)."""
    i, z = kt.program_id()
    x, y, n = part(x, z, x, same=True), part(y, z, x, same=True), row_length(whole, x, y)
    block = held(lambda j: wide(kt.load(x, (i, j), (BM, BN))), resident)
    square = kt.zeros((BM,), kt.float32)
    for j in columns(n, BN, resident):
        square += (block(j) * block(j)).sum(axis=1)
    scale = kt.reciprocal(kt.maximum(kt.sqrt(square), eps))[:, None]
    for j in columns(n, BN, resident):
        kt.store(y, (i, j), block(j) * scale)
