"""Softmax over the last axis, and cross entropy, which is made of it."""

from __future__ import annotations

import math

import kittens as kt
from kittens.kernels.stacks import count, part, row_length, wide

LOG2E = math.log2(math.e)


def finite_or_zero(m):
    """A running maximum, or 0 where only -inf has been met: what is subtracted from scores is finite."""
    return kt.where(m == -kt.inf, 0.0, m)


def online(m, l, s):
    """Maximum m and sum l of exp(x - m), joined by a block s (Milakov and Gimelshein, arXiv:1805.02867)."""
    m_new = kt.maximum(m, s.max(axis=1))
    base = finite_or_zero(m_new)
    return m_new, l * kt.exp2((m - base) * LOG2E) + kt.exp2((s - base[:, None]) * LOG2E).sum(axis=1)


def exponentials(block, blocks, BM, BN):
    """(base, l) for BM rows: l = sum(exp(x - base)), with a finite base for which l is neither huge nor tiny.

    block(j) is block j of the rows, in float32. The base is the maximum of the first block: sums then go on without another,
    element by element. Rows whose sums leave the middle of float32's range are summed again with a running maximum; no term
    is so large that a sum would overflow.
    """
    base = finite_or_zero(block(0).max(axis=1))
    terms = kt.zeros((BM, BN), kt.float32)
    for j in kt.range(blocks):
        terms += kt.exp2(kt.minimum((block(j) - base[:, None]) * LOG2E, 100.0))
    l = terms.sum(axis=1)
    for _ in kt.when(~((l > 2.0**-60) & (l < 2.0**60)).all(axis=0)):
        m, l = kt.full((BM,), -kt.inf, kt.float32), kt.zeros((BM,), kt.float32)
        for j in kt.range(blocks):
            m, l = online(m, l, block(j))
        base = finite_or_zero(m)
    return base, l


@kt.kernel(grid=lambda x, BM: (kt.cdiv(x.shape[-2], BM), count(*x.shape[:-2])))
def softmax(
    x, y, *, resident=False, whole=False, BM=kt.tunable(4, 1, 2, 8, 16, 32), BN=kt.tunable(512, 1024, 2048)
):
    """y = exp(x - max(x)) / sum(exp(x - max(x))) for each row of x (..., M, N), in float32.

    resident: a tile of BN columns holds a whole row, so that x is read once; else it is read twice.
    """
    i, z = kt.program_id()
    x, y, n = part(x, z, x, same=True), part(y, z, x, same=True), row_length(whole, x, y)
    if resident:
        s = wide(kt.load(x, (i, 0), (BM, BN), pad=-kt.inf))
        p = kt.exp2((s - s.max(axis=1)[:, None]) * LOG2E)
        kt.store(y, (i, 0), p * kt.reciprocal(p.sum(axis=1))[:, None])
        return
    blocks = kt.cdiv(n, BN)
    base, l = exponentials(lambda j: wide(kt.load(x, (i, j), (BM, BN), pad=-kt.inf)), blocks, BM, BN)
    scale = kt.reciprocal(l)[:, None]
    for j in kt.range(blocks):
        s = wide(kt.load(x, (i, j), (BM, BN), pad=-kt.inf))
        kt.store(y, (i, j), kt.exp2((s - base[:, None]) * LOG2E) * scale)


@kt.kernel(grid=lambda x, BM: kt.cdiv(x.shape[0], BM))
def cross_entropy_forward(
    x, label, loss, lse=None, *, ignore_index=-100, BM=kt.tunable(4, 1, 2, 8), BN=kt.tunable(512, 1024, 2048)
):
    """lse = log(sum(exp(x))), loss = lse - x[label] for each row of x (M, N); label (M,), loss and lse (M,)
    float32.

    The loss is 0 where the label is ignore_index, NaN where it is no column.
    """
    i = kt.program_id()
    n, column = x.shape[1], kt.load(label, i, BM).to(kt.int64)
    picked = kt.zeros((BM,), kt.float32)
    for r in range(BM):
        row = i * BM + r
        here = wide(kt.load(x[row, kt.load(label[row])]))
        picked = kt.where(kt.indices(0, BM) == r, here, picked)
    base, l = exponentials(lambda j: wide(kt.load(x, (i, j), (BM, BN), pad=-kt.inf)), kt.cdiv(n, BN), BM, BN)
    total = base + kt.log(l)
    valid = kt.where((column >= 0) & (column < n), total - picked, kt.nan)
    kt.store(loss, i, kt.where(column == ignore_index, 0.0, valid))
    if lse is not None:
        kt.store(lse, i, total)


@kt.kernel(grid=lambda x, BM, BN: (kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)))
def cross_entropy_backward(
    x, label, lse, dloss, dx, *, ignore_index=-100, BM=kt.tunable(16, 4, 8, 32), BN=kt.tunable(256, 512, 1024)
):
    """dx = (exp(x - lse) - [column = label]) dloss; 0 in the rows whose label is ignore_index."""
    i, j = kt.program_id()
    column = kt.load(label, i, BM).to(kt.int64)[:, None]
    p = kt.exp(wide(kt.load(x, (i, j), (BM, BN))) - kt.load(lse, i, BM)[:, None])
    d = kt.where(kt.cols(j, BN) == column, p - 1.0, p) * kt.load(dloss, i, BM)[:, None]
    kt.store(dx, (i, j), kt.where(column == ignore_index, 0.0, d))
