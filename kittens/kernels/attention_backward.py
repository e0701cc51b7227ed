"""Attention, backward: probabilities are computed again from the log-sum-exp (Dao, 2023, arXiv:2307.08691).

With p = exp(scale q k^T - lse), dp = do v^T and delta = sum(o do) over a row:

    dv = p^T do,    ds = p (dp - delta),    dq = scale ds k,    dk = scale ds^T q

Of each row the kernels take delta and l2, the log-sum-exp to base 2, which `attention_delta` makes.
Shapes and meaning as in `kittens.kernels.attention`. Each gradient is summed by one program in a fixed order,
so results are the same from run to run: `attention_backward_kv` runs over key blocks and sums over the
queries of all heads of the group, `attention_backward_q` runs over query blocks and sums over the keys. The first can
do the work of both, in five products instead of seven: it then adds to dq in no fixed order.
"""

from __future__ import annotations

import kittens as kt
from kittens.kernels.masks import key_blocks, visible
from kittens.kernels.softmaxes import LOG2E
from kittens.kernels.stacks import head_width, wide

#: Queries of a block of `attention_backward_kv` where it counts turns, at least.
LEAST = 32


def query_blocks(j, nq, nk, left, right, BM, BN):
    """The range lo, hi of the blocks of queries that see some key of block j."""
    lo, hi = 0, kt.cdiv(nq, BM)
    if right is not None:
        lo = kt.maximum(j * BN - (nk - nq + right), 0) // BM
    if left is not None:
        hi = kt.minimum(kt.cdiv(kt.maximum((j + 1) * BN - (nk - nq - left), 0), BM), hi)
    return lo, hi


def log2_normaliser(lse, i, BM):
    """The log-sum-exp of query block i to base 2; inf, for probabilities of 0, where nothing is seen."""
    rows = kt.load(lse, i, BM)
    return kt.where(rows == -kt.inf, kt.inf, rows) * LOG2E


@kt.kernel(grid=lambda o, BM: (kt.cdiv(o.shape[2], BM), o.shape[1], o.shape[0]))
def attention_delta(o, do, lse, delta, l2, dlse=None, dq=None, turns=None, *, BM=kt.tunable(64, 32, 128)):
    """delta = sum(o do) over each row, less the gradient of the log-sum-exp if there is one; l2 = lse log2(e), inf for -inf.

    dq and turns (of blocks of at least LEAST queries), if there are any, are set to zero for `attention_backward_kv`.
    """
    i, h, b = kt.program_id()
    o, do, DV = o[b, h], do[b, h], head_width(o)
    d = (wide(kt.load(o, (i, 0), (BM, DV))) * wide(kt.load(do, (i, 0), (BM, DV)))).sum(axis=1)
    kt.store(delta[b, h], i, d if dlse is None else d - kt.load(dlse[b, h], i, BM))
    kt.store(l2[b, h], i, log2_normaliser(lse[b, h], i, BM))
    if dq is not None:
        kt.store(dq[b, h], (i, 0), kt.zeros((BM, head_width(dq)), kt.float32))
    if turns is not None:
        kt.store(turns[b, h], i, kt.zeros((BM // LEAST,), kt.int32))


@kt.kernel(grid=lambda k, BN: (kt.cdiv(k.shape[2], BN), k.shape[1], k.shape[0]))
def attention_backward_kv(
    q, k, v, do, l2, delta, dk, dv, dq=None, turns=None, *, scale, left=None, right=None,
    BM=kt.tunable(64, 128, 32), BN=kt.tunable(64, 128),
):  # fmt: skip
    """dk and dv of one block of keys.

    dq (float32), if there is one: its part of dq / scale is added there, in no fixed order; in that of key blocks with
    turns, zeros (B, H, blocks of queries) of int32.
    """
    nq, nk, group = (
        q.shape[2],
        k.shape[2],
        max(kt.static(q.shape[1] // k.shape[1]), 1),
    )  # no program without heads
    D, DV, c = head_width(q), head_width(v), scale * LOG2E
    # Few heads at a time, so that programs read the same queries; more of them where programs end soon (tried on an H200).
    among = max((256 if right is None else 65536 // D) // group, 1)
    even = right is None and turns is None
    j, hk, b = kt.program_id() if even else kt.program_id(order="ascending", among=among)

    k_tile, v_tile = kt.load(k[b, hk], (j, 0), (BN, D)), kt.load(v[b, hk], (j, 0), (BN, DV))
    dk_acc, dv_acc = kt.zeros((BN, D), kt.float32), kt.zeros((BN, DV), kt.float32)
    lo, hi = query_blocks(j, nq, nk, left, right, BM, BN)
    blocks = kt.maximum(hi - lo, 0)
    # From the last queries on, which all key blocks see: programs go through them together.
    for t in kt.range(group * blocks):
        h, i = hk * group + t % group, hi - 1 - t // group
        q_tile, rows = kt.load(q[b, h], (i, 0), (BM, D)), kt.load(l2[b, h], i, BM)
        d, do_tile = kt.load(delta[b, h], i, BM), kt.load(do[b, h], (i, 0), (BM, DV))
        s = visible(q_tile @ k_tile.T, i, j, nq, nk, left, right)
        p = kt.exp2(kt.fma(s, c, -rows[:, None]))  # 1 in rows beyond the last, whose do and delta are 0
        dv_acc += p.to(do.dtype).T @ do_tile
        ds = p * (do_tile @ v_tile.T - d[:, None])
        ds = ds.to(q.dtype)
        dk_acc += ds.T @ q_tile
        if dq is not None:
            first, _ = key_blocks(i, nq, nk, left, right, BM, BN)
            turn = None if turns is None else (turns[b, h, i], j - first)
            kt.store_add(dq[b, h], (i, 0), ds @ k_tile, turn=turn)
    kt.store(dk[b, hk], (j, 0), dk_acc * scale)
    kt.store(dv[b, hk], (j, 0), dv_acc)


@kt.kernel(grid=lambda q, BM: (kt.cdiv(q.shape[2], BM), q.shape[1], q.shape[0]))
def attention_backward_q(
    q, k, v, do, l2, delta, dq, *, scale, left=None, right=None,
    BM=kt.tunable(64, 128), BN=kt.tunable(64, 128, 32),
):  # fmt: skip
    """dq of one block of queries."""
    i, h, b = kt.program_id(order="descending")
    nq, nk, hk = q.shape[2], k.shape[2], h // (q.shape[1] // k.shape[1])
    k, v = k[b, hk], v[b, hk]
    D, DV, c = head_width(q), head_width(v), scale * LOG2E

    q_tile, do_tile = kt.load(q[b, h], (i, 0), (BM, D)), kt.load(do[b, h], (i, 0), (BM, DV))
    rows, d = kt.load(l2[b, h], i, BM), kt.load(delta[b, h], i, BM)
    dq_acc = kt.zeros((BM, D), kt.float32)
    lo, hi = key_blocks(i, nq, nk, left, right, BM, BN)
    for j in kt.range(lo, hi):
        k_tile, v_tile = kt.load(k, (j, 0), (BN, D)), kt.load(v, (j, 0), (BN, DV))
        s = visible(q_tile @ k_tile.T, i, j, nq, nk, left, right)
        p = kt.exp2(kt.fma(s, c, -rows[:, None]))
        ds = p * (do_tile @ v_tile.T - d[:, None])
        dq_acc += ds.to(k.dtype) @ k_tile
    kt.store(dq[b, h], (i, 0), dq_acc * scale)
