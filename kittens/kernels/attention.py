"""Attention, forward: softmax(scale q k^T) v in one pass over the keys (Dao, 2023, arXiv:2307.08691).

Shapes: q (B, H, Nq, D), k (B, Hk, Nk, D), v (B, Hk, Nk, Dv), o (B, H, Nq, Dv), lse (B, H, Nq) float32. Query
head h reads key head h // (H / Hk). Query i stands at position i + Nk - Nq, so that the last query stands at
the last key; it sees the keys from `left` positions before it (None: from the first) to `right` after it
(None: to the last). Causal is right=0; a causal window of w keys is left=w-1, right=0.
"""

from __future__ import annotations

import math

import kittens as kt
from kittens.kernels.masks import key_blocks, visible
from kittens.kernels.softmaxes import LOG2E, finite_or_zero
from kittens.kernels.stacks import head_width

#: How far, to base 2, scores may exceed what is subtracted from them: probabilities are at most 2^SLACK before they are
#: divided by their sum. The maximum need not follow every step, and sums are seldom scaled.
SLACK = 8.0


def attend(q_tile, keys, values, seen, blocks, scale, v):
    """o and lse of a tile of queries over a range of blocks of keys; 0 and -inf for a query that sees no key.

    keys(j) and values(j) are block j of k and v; seen(s, j) are the scores s of block j, -inf where a key is not seen.
    scale, above 0, is applied in float32; probabilities are rounded to v's type for their product with v.
    """
    rows, DV, c = q_tile.shape[0], head_width(v), scale * LOG2E
    m, l = kt.full((rows,), -kt.inf, kt.float32), kt.zeros((rows,), kt.float32)
    acc = kt.zeros((rows, DV), kt.float32)
    for j in kt.range(*blocks):
        s = q_tile @ keys(j).T
        s = seen(s, j)
        reach = kt.maximum(m, s.max(axis=1))
        grows = (reach - m) * c > SLACK  # not where both are -inf
        m_new = kt.where(grows, reach, m)
        base = finite_or_zero(m_new) * c
        p = kt.exp2(kt.fma(s, c, -base[:, None]))
        alpha = kt.where(grows, kt.exp2(kt.fma(m, c, -base)), 1.0)
        l = l * alpha + p.sum(axis=1)
        acc = acc * alpha[:, None] + p.to(v.dtype) @ values(j)
        m = m_new
    o = acc * (1.0 / kt.where(l == 0.0, 1.0, l))[:, None]
    return o, (finite_or_zero(m) * c + kt.log2(l)) * math.log(2)


@kt.kernel(grid=lambda q, BM: (kt.cdiv(q.shape[2], BM), q.shape[1], q.shape[0]))
def attention_forward(
    q, k, v, o, lse=None, *, scale, left=None, right=None, BM=kt.tunable(64, 128), BN=kt.tunable(64, 128, 32)
):
    """o = softmax(scale q k^T) v, lse = log(sum(exp(scale q k^T))); 0 and -inf for a query that sees no key."""
    i, h, b = kt.program_id(order="linear" if right is None else "descending")
    nq, nk, hk = q.shape[2], k.shape[2], h // (q.shape[1] // k.shape[1])
    q, k, v, o, D = q[b, h], k[b, hk], v[b, hk], o[b, h], head_width(q)

    q_tile = kt.load(q, (i, 0), (BM, D))
    o_tile, lse_tile = attend(
        q_tile,
        lambda j: kt.load(k, (j, 0), (BN, D)),
        lambda j: kt.load(v, (j, 0), (BN, head_width(v))),
        lambda s, j: visible(s, i, j, nq, nk, left, right),
        key_blocks(i, nq, nk, left, right, BM, BN),
        scale,
        v,
    )
    kt.store(o, (i, 0), o_tile)
    if lse is not None:
        kt.store(lse[b, h], i, lse_tile)
