"""What the tests of packed sequences share."""

from __future__ import annotations

import numpy as np
from kerneltools import BF16, E4M3, normal

from kittens import ops


def inputs(dtype, h, hk, lengths, d, dv, seed=0, apart=0):
    """q, k, v and do with `apart` rows of NaN before and after the sequences, and the bounds."""
    rng = np.random.default_rng(seed)
    cu_q, cu_k = (apart + np.cumsum((0, *(x[i] for x in lengths)), dtype=np.int32) for i in (0, 1))
    heads = (h, d, cu_q), (hk, d, cu_k), (hk, dv, cu_k), (h, dv, cu_q)
    tensors = [normal(rng, dtype, cu[-1] + apart, n, width) for n, width, cu in heads]
    for x in tensors if apart else ():
        x[:apart], x[-apart:] = np.nan, np.nan
    return *tensors, cu_q, cu_k


def check(dtype, h, hk, lengths, d, dv, kw, tune=None, apart=0, backward=True):
    q, k, v, do, cu_q, cu_k = inputs(dtype, h, hk, lengths, d, dv, len(lengths), apart)
    max_q, max_k = (max((x[i] for x in lengths), default=0) for i in (0, 1))
    out = np.full((len(q), h, dv), 7, BF16 if dtype == E4M3 else dtype)
    o, lse = ops.attention_varlen(q, k, v, cu_q, cu_k, max_q, return_lse=True, out=out, tune=tune, **kw)
    assert o is out
    outside = np.r_[0:apart, len(q) - apart : len(q)]
    assert (o[outside] == 7).all()
    grads = ()
    if backward:
        given = (q, k, v, o, lse, do, cu_q, cu_k, max_q, max_k)
        grads = ops.attention_varlen_backward(*given, tune=tune, **kw)
    for b in range(len(lengths)):
        mine = [slice(*cu[b : b + 2]) for cu in (cu_q, cu_k, cu_k, cu_q)]
        one = [x[rows].swapaxes(0, 1) for x, rows in zip((q, k, v, do), mine, strict=True)]
        o1, lse1 = ops.attention(*one[:3], return_lse=True, tune=tune, **kw)
        assert (o[mine[0]].swapaxes(0, 1) == o1).all() and (lse[:, mine[0]] == lse1).all()
        if backward:
            wanted = ops.attention_backward(*one[:3], o1, lse1, one[3], tune=tune, **kw)
            for got, want, rows in zip(grads, wanted, mine, strict=False):
                assert (got[rows].swapaxes(0, 1) == want).all()
