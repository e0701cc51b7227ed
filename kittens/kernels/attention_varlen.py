"""Attention over sequences of different lengths, packed one after another; forward and backward.

Shapes: q, do, o, dq (H, Tq, D or Dv), k, v, dk, dv (Hk, Tk, D or Dv), lse, l2 and delta (H, Tq) float32. Sequence b has the
queries from cu_q[b] to cu_q[b + 1] and the keys from cu_k[b] to cu_k[b + 1] (int32, each of B + 1 numbers); of the others
none is read or written. Within a sequence, everything is as in `kittens.kernels.attention` and `attention_backward`.
most_q and most_k, how many queries and keys a sequence has at most, say how many programs each gets; those beyond its end
do nothing. Each gradient is summed by one program in a fixed order, so results are the same from run to run.
"""

from __future__ import annotations

import kittens as kt
from kittens.kernels.attention import attend
from kittens.kernels.attention_backward import query_blocks
from kittens.kernels.masks import key_blocks, visible
from kittens.kernels.softmaxes import LOG2E
from kittens.kernels.stacks import head_width


def rows_of(cu, b):
    """Where sequence b lies in a packed tensor."""
    return slice(kt.load(cu[b]), kt.load(cu[b + 1]))


def seen_blocks(i, nq, nk, left, right, BM, BN):
    """The range of the blocks of keys that some query of block i sees: none where the block lies beyond the queries."""
    lo, hi = key_blocks(i, nq, nk, left, right, BM, BN)
    return lo, kt.where(i * BM < nq, hi, 0)


@kt.kernel(grid=lambda q, cu_q, most_q, BM: (kt.cdiv(most_q, BM), q.shape[0], cu_q.shape[0] - 1))
def attention_varlen_forward(
    q, k, v, cu_q, cu_k, most_q, o, lse=None, *, scale, left=None, right=None,
    BM=kt.tunable(64, 128), BN=kt.tunable(64, 128, 32),
):  # fmt: skip
    """o = softmax(scale q k^T) v, lse = log(sum(exp(scale q k^T))) of each sequence; 0 and -inf where nothing is seen."""
    i, h, b = kt.program_id(order="linear" if right is None else "descending")
    hk, queries, keys = h // (q.shape[0] // k.shape[0]), rows_of(cu_q, b), rows_of(cu_k, b)
    q, k, v, D = q[h][queries], k[hk][keys], v[hk][keys], head_width(q)
    nq, nk = q.shape[0], k.shape[0]
    blocks = seen_blocks(i, nq, nk, left, right, BM, BN)

    q_tile = kt.load(q, (i, 0), (BM, D))
    o_tile, lse_tile = attend(
        q_tile,
        lambda j: kt.load(k, (j, 0), (BN, D)),
        lambda j: kt.load(v, (j, 0), (BN, head_width(v))),
        lambda s, j: visible(s, i, j, nq, nk, left, right),
        blocks,
        scale,
        v,
    )
    kt.store(o[h][queries], (i, 0), o_tile)
    if lse is not None:
        kt.store(lse[h][queries], i, lse_tile)


@kt.kernel(grid=lambda k, cu_k, most_k, BN: (kt.cdiv(most_k, BN), k.shape[0], cu_k.shape[0] - 1))
def attention_varlen_backward_kv(
    q, k, v, cu_q, cu_k, most_k, do, l2, delta, dk, dv, *, scale, left=None, right=None,
    BM=kt.tunable(64, 128, 32), BN=kt.tunable(64, 128),
):  # fmt: skip
    """dk and dv of one block of keys of a sequence."""
    j, hk, b = kt.program_id(order="ascending")
    group = max(kt.static(q.shape[0] // k.shape[0]), 1)  # no program without heads
    queries, keys = rows_of(cu_q, b), rows_of(cu_k, b)
    k, v, D, DV, c = k[hk][keys], v[hk][keys], head_width(q), head_width(v), scale * LOG2E
    nq, nk = q[0][queries].shape[0], k.shape[0]

    k_tile, v_tile = kt.load(k, (j, 0), (BN, D)), kt.load(v, (j, 0), (BN, DV))
    dk_acc, dv_acc = kt.zeros((BN, D), kt.float32), kt.zeros((BN, DV), kt.float32)
    lo, hi = query_blocks(j, nq, nk, left, right, BM, BN)
    blocks = kt.where(j * BN < nk, kt.maximum(hi - lo, 0), 0)
    for t in kt.range(group * blocks):  # as in the dense kernel
        h, i = hk * group + t % group, hi - 1 - t // group
        q_tile = kt.load(q[h][queries], (i, 0), (BM, D))
        do_tile = kt.load(do[h][queries], (i, 0), (BM, DV))
        rows, d = kt.load(l2[h][queries], i, BM), kt.load(delta[h][queries], i, BM)
        s = visible(q_tile @ k_tile.T, i, j, nq, nk, left, right)
        p = kt.exp2(kt.fma(s, c, -rows[:, None]))
        dv_acc += p.to(do.dtype).T @ do_tile
        ds = p * (do_tile @ v_tile.T - d[:, None])
        dk_acc += ds.to(q.dtype).T @ q_tile
    kt.store(dk[hk][keys], (j, 0), dk_acc * scale)
    kt.store(dv[hk][keys], (j, 0), dv_acc)


@kt.kernel(grid=lambda q, cu_q, most_q, BM: (kt.cdiv(most_q, BM), q.shape[0], cu_q.shape[0] - 1))
def attention_varlen_backward_q(
    q, k, v, cu_q, cu_k, most_q, do, l2, delta, dq, *, scale, left=None, right=None,
    BM=kt.tunable(64, 128), BN=kt.tunable(64, 128, 32),
):  # fmt: skip
    """dq of one block of queries of a sequence."""
    i, h, b = kt.program_id(order="descending")
    hk, queries, keys = h // (q.shape[0] // k.shape[0]), rows_of(cu_q, b), rows_of(cu_k, b)
    q, k, v, do = q[h][queries], k[hk][keys], v[hk][keys], do[h][queries]
    nq, nk, D, DV, c = q.shape[0], k.shape[0], head_width(q), head_width(v), scale * LOG2E

    blocks = seen_blocks(i, nq, nk, left, right, BM, BN)
    q_tile, do_tile = kt.load(q, (i, 0), (BM, D)), kt.load(do, (i, 0), (BM, DV))
    rows, d = kt.load(l2[h][queries], i, BM), kt.load(delta[h][queries], i, BM)
    dq_acc = kt.zeros((BM, D), kt.float32)
    for j in kt.range(*blocks):
        k_tile, v_tile = kt.load(k, (j, 0), (BN, D)), kt.load(v, (j, 0), (BN, DV))
        s = visible(q_tile @ k_tile.T, i, j, nq, nk, left, right)
        p = kt.exp2(kt.fma(s, c, -rows[:, None]))
        ds = p * (do_tile @ v_tile.T - d[:, None])
        dq_acc += ds.to(k.dtype) @ k_tile
    kt.store(dq[h][queries], (i, 0), dq_acc * scale)
