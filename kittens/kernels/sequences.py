"""The ends of a sequence model: rows of a table in, one row for a sequence out."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import count, part, wide


@kt.kernel(grid=lambda ids, table, BN: (count(*ids.shape), kt.cdiv(table.shape[1], BN)))
def embedding(table, ids, y, *, BN=kt.tunable(512, 256, 1024)):
    """y[r] = table[ids[r]] for every element r of ids; 0 where the id is no row. table (V, N), y (..., N)."""
    r, j = kt.program_id()
    row = kt.load(part(ids, r, ids, keep=0))
    kt.store(part(y, r, y, keep=1), j, kt.load(table[row], j, BN))


@kt.kernel(grid=lambda x, BN: (kt.cdiv(x.shape[2], BN), x.shape[0]))
def mean_pool(x, mask, y, *, BM=kt.tunable(64, 32, 128), BN=kt.tunable(64, 128, 32)):
    """y = sum(x mask) / max(sum(mask), 1e-9) over the positions. x (B, M, N), mask (B, M), y (B, N)."""
    j, b = kt.program_id()
    total, weight = kt.zeros((BN,), kt.float32), kt.scalar(0.0, kt.float32)
    for i in kt.range(kt.cdiv(x.shape[1], BM)):
        w = kt.load(mask[b], i, BM).to(kt.float32)
        total += (wide(kt.load(x[b], (i, j), (BM, BN))) * w[:, None]).sum(axis=0)
        weight += w.sum(axis=0)
    kt.store(y[b], j, total / kt.maximum(weight, 1e-9))
