"""Softmax over the last axis."""

from __future__ import annotations

import math

import kittens as kt
from kittens.kernels.stacks import count, part, wide

LOG2E = math.log2(math.e)


def finite_or_zero(m):
    """The running maximum, or 0 where nothing but -inf has been met, so that -inf - m is never NaN."""
    return kt.where(m == -kt.inf, 0.0, m)


@kt.kernel(grid=lambda x, BM: (kt.cdiv(x.shape[-2], BM), count(*x.shape[:-2])))
def softmax(x, y, *, resident=False, BM=kt.tunable(4, 1, 2, 8, 16, 32), BN=kt.tunable(512, 1024, 2048)):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row of x (..., M, N), in float32.

    resident: a tile of BN columns holds a whole row, so x is read once; else it is read twice, the first time for the
    running maximum and sum (Milakov and Gimelshein, 2018).
    """
    i, z = kt.program_id()
    x, y = part(x, z, x), part(y, z, y)
    blocks = kt.cdiv(x.shape[1], BN)
    if resident:
        s = wide(kt.load(x, (i, 0), (BM, BN), pad=-kt.inf))
        p = kt.exp2((s - s.max(axis=1)[:, None]) * LOG2E)
        kt.store(y, (i, 0), p / p.sum(axis=1)[:, None])
        return
    m, l = kt.full((BM,), -kt.inf, kt.float32), kt.zeros((BM,), kt.float32)
    for j in kt.range(blocks):
        s = wide(kt.load(x, (i, j), (BM, BN), pad=-kt.inf))
        m_new = kt.maximum(m, s.max(axis=1))
        base = finite_or_zero(m_new)
        l = l * kt.exp2((m - base) * LOG2E) + kt.exp2((s - base[:, None]) * LOG2E).sum(axis=1)
        m = m_new
    for j in kt.range(blocks):
        s = wide(kt.load(x, (i, j), (BM, BN), pad=-kt.inf))
        kt.store(y, (i, j), kt.exp2((s - m[:, None]) * LOG2E) / l[:, None])
