"""Products of matrices: one text for every element type, with scales, bias and activation in the epilogue."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import activate, count, part


@kt.kernel(grid=lambda c, BM, BN: (kt.cdiv(c.shape[-2], BM), kt.cdiv(c.shape[-1], BN), count(*c.shape[:-2])))
def matmul(
    a, b, c, a_scale=None, b_scale=None, bias=None, *, activation="none",
    BM=kt.tunable(64, 128, 256), BN=kt.tunable(64, 128, 256), BK=kt.tunable(64, 32, 128),
):  # fmt: skip
    """c = activation(a_scale (a @ b) b_scale + bias).

    a (..., M, K), b (..., K, N), c (..., M, N), any strides; leading axes of a and b broadcast to those of c.
    bias (N,). Float operands accumulate in float32, 8-bit integers in int32. Scales are float32, one for the tensor
    (rank 0), or one for each row of a (M,) and each column of b (N,); or for float8 operands float8_e8m0fnu, one for
    each 32 elements along K (OCP Microscaling Formats 1.0): a_scale (..., M, K/32), b_scale (..., K/32, N).
    """
    i, j, z = kt.program_id(order="grouped")
    blocks = a_scale is not None and a_scale.dtype == kt.float8_e8m0fnu
    if blocks:
        a_scale, b_scale = part(a_scale, z, c), part(b_scale, z, c)
    a, b, c = part(a, z, c), part(b, z, c), part(c, z, c)
    acc = kt.zeros((BM, BN), kt.float32 if a.dtype.is_float else kt.int32)
    for k in kt.range(kt.cdiv(a.shape[1], BK)):
        x, y = kt.load(a, (i, k), (BM, BK)), kt.load(b, (k, j), (BK, BN))
        if blocks:
            sx, sy = kt.load(a_scale, (i, k), (BM, BK // 32)), kt.load(b_scale, (k, j), (BK // 32, BN))
            acc = kt.mma_scaled(x, sx, y, sy, acc)
        else:
            acc += x @ y
    if c.dtype.is_float:
        acc = acc.to(kt.float32)
    if a_scale is not None and not blocks:
        acc *= kt.load(a_scale, i, BM)[:, None] if a_scale.ndim else kt.load(a_scale)
    if b_scale is not None and not blocks:
        acc *= kt.load(b_scale, j, BN)[None, :] if b_scale.ndim else kt.load(b_scale)
    if bias is not None:
        acc += kt.load(bias, j, BN).to(kt.float32)
    kt.store(c, (i, j), activate(acc, activation))
