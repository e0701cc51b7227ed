"""Peers in Triton: the plain kernels that a user of it would write first. Importing this imports triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def _increment(x, y, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i) + 1.0)


def increment(x, y):
    """y = x + 1 for 256 numbers."""

    def call():
        _increment[(1,)](x, y, BLOCK=256)
        return y

    return call


@triton.jit
def _softmax(x, y, pitch, width, BLOCK: tl.constexpr):
    row, column = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = column < width
    s = tl.load(x + row * pitch + column, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(s - tl.max(s, 0))
    tl.store(y + row * pitch + column, e / tl.sum(e, 0), mask=inside)


def softmax(x, out):
    """Softmax of whole rows, a row a program."""
    y = torch.empty_like(out)
    rows, width = x.shape
    block = triton.next_power_of_2(width)

    def call():
        _softmax[(rows,)](x, y, x.stride(0), width, BLOCK=block, num_warps=8)
        return y

    return call


@triton.jit
def _matmul(
    a, b, c, M, N, K, am, ak, bk, bn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, BAND: tl.constexpr
):
    across, down = tl.cdiv(N, BN), tl.cdiv(M, BM)
    pid = tl.program_id(0)
    band = pid // (BAND * across)
    height = min(down - band * BAND, BAND)
    within = pid - band * BAND * across
    i, j = band * BAND + within % height, within // height
    rows, columns, inner = i * BM + tl.arange(0, BM), j * BN + tl.arange(0, BN), tl.arange(0, BK)
    sum = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = tl.load(a + rows[:, None] * am + (k + inner)[None, :] * ak,
                    mask=(rows[:, None] < M) & ((k + inner)[None, :] < K), other=0.0)  # fmt: skip
        y = tl.load(b + (k + inner)[:, None] * bk + columns[None, :] * bn,
                    mask=((k + inner)[:, None] < K) & (columns[None, :] < N), other=0.0)  # fmt: skip
        sum = tl.dot(x, y, sum)
    tl.store(
        c + rows[:, None].to(tl.int64) * N + columns[None, :],
        sum,
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


def matmul(a, b, out):
    """A tiled product, 128x256x64, in bands of 8 rows of tiles."""
    (m, k), n = a.shape, b.shape[1]
    grid = (triton.cdiv(m, 128) * triton.cdiv(n, 256),)

    def call():
        _matmul[grid](
            a,
            b,
            out,
            m,
            n,
            k,
            *a.stride(),
            *b.stride(),
            BM=128,
            BN=256,
            BK=64,
            BAND=8,
            num_warps=8,
            num_stages=3,
        )
        return out

    return call
