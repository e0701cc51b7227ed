"""Attention of few queries over many keys: the keys are split among programs, whose results are then combined.

The queries of all heads that share a key head are rows of one tile, so that keys and values are read once: q is
(B, Hk, R, D), where row r is query r mod `queries` of head r // queries of the group. Each of S programs sees a part of the
keys and leaves its o in parts (S, B, Hk, R, Dv) and its log-sum-exp in lse (S, B, Hk, R), which `attention_combine` weighs
by exp(lse) (Dao et al., Flash-Decoding, 2023). All sums have a fixed order, so results are the same from run to run.

Keys are k (B, Hk, N, D) and v (B, Hk, N, Dv), of which sequence b has lengths[b] (int32; None: all). Or they lie in pages,
k (P, page, Hk, D) and v (P, page, Hk, Dv), and row b of table (B, most), int32, names those of sequence b in their order.
Keys beyond the length are not read, nor are entries of the table for pages that hold no others. Queries see keys as in
`kittens.kernels.attention`: the last one stands at the last key.
"""

from __future__ import annotations

import math

import kittens as kt
from kittens.kernels.attention import attend
from kittens.kernels.masks import key_blocks, within_reach
from kittens.kernels.softmaxes import LOG2E, finite_or_zero
from kittens.kernels.stacks import head_width


def key_loader(x, table, b, hk, n, BN, width):
    """A function that loads block j of the first n keys (or values) of a sequence."""
    if table is None:
        rows = x[b, hk] if n is None else x[b, hk][:n]
        return lambda j: kt.load(rows, (j, 0), (BN, width))
    page = kt.static(x.shape[1])
    blocks = page // BN

    def block(j):
        number, place = (j, 0) if blocks == 1 else (j // blocks, j % blocks)
        rows = x[kt.load(table[b, number]), :, hk][: n - number * page]
        return kt.load(rows, (place, 0), (BN, width))

    return block


@kt.kernel(grid=lambda q, parts, BM: (parts.shape[0], q.shape[1] * kt.cdiv(q.shape[2], BM), q.shape[0]))
def attention_split(
    q, k, v, parts, lse=None, lengths=None, table=None, *, scale, queries=1, left=None, right=None,
    BM=kt.tunable(16, 32, 64), BN=kt.tunable(64, 32, 128),
):  # fmt: skip
    """parts and lse of each part of the keys, whole blocks; 0 and -inf where a query sees none of them."""
    s, y, b = kt.program_id()
    hk, i, D = y // kt.cdiv(q.shape[2], BM), y % kt.cdiv(q.shape[2], BM), head_width(q)
    if table is None:
        n, length = k.shape[2], None
    else:
        n, BN = k.shape[1] * table.shape[1], math.gcd(BN, kt.static(k.shape[1]))
    if lengths is not None:
        n = length = kt.clamp(kt.load(lengths[b]).to(kt.int64), 0, n)
    position = n - 1 if queries == 1 else kt.rows(i, BM) % queries + (n - queries)
    lo, hi = key_blocks(0, queries, n, left, right, queries, BN)
    share = kt.cdiv(hi - lo, parts.shape[0])
    first = lo + s * share

    q_tile = kt.load(q[b, hk], (i, 0), (BM, D))
    o_tile, lse_tile = attend(
        q_tile,
        key_loader(k, table, b, hk, length, BN, D),
        key_loader(v, table, b, hk, length, BN, head_width(v)),
        lambda scores, j: within_reach(scores, position, j, n, left, right),
        (first, kt.minimum(first + share, hi)),
        scale,
        v,
    )
    kt.store(parts[s, b, hk], (i, 0), o_tile)
    if lse is not None:
        kt.store(lse[s, b, hk], i, lse_tile)


@kt.kernel(grid=lambda o: (o.shape[2], o.shape[1], o.shape[0]))
def attention_combine(parts, part_lse, o, lse=None, *, BS=kt.tunable(32, 16, 64)):
    """o and lse of all keys from those of S parts: parts (S, B, H, Nq, Dv) and part_lse (S, B, H, Nq) float32,
    o (B, H, Nq, Dv), lse (B, H, Nq) float32.
    """
    n, h, b = kt.program_id()
    parts, part_lse, DV = parts[:, b, h, n], part_lse[:, b, h, n], head_width(parts)

    m, l = kt.scalar(-kt.inf, kt.float32), kt.scalar(0.0, kt.float32)
    acc = kt.zeros((DV,), kt.float32)
    for t in kt.range(kt.cdiv(parts.shape[0], BS)):
        x = kt.load(part_lse, t, BS, pad=-kt.inf)
        m_new = kt.maximum(m, x.max(axis=0))
        base = finite_or_zero(m_new)
        weight, alpha = kt.exp2((x - base) * LOG2E), kt.exp2((m - base) * LOG2E)
        l = l * alpha + weight.sum(axis=0)
        acc = acc * alpha + (weight[:, None] * kt.load(parts, (t, 0), (BS, DV))).sum(axis=0)
        m = m_new
    kt.store(o[b, h, n], 0, acc * (1.0 / kt.where(l == 0.0, 1.0, l)))
    if lse is not None:
        kt.store(lse[b, h, n], (), finite_or_zero(m) + kt.log(l))
