"""Products of matrices: one text for every element type, with scales, bias and activation in the epilogue."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import ACTIVATIONS, count, part, scalar, wide

#: How `matmul` sums: see there.
ACCUMULATIONS = ("full", "fast", "promoted")
MX_BLOCK = 32  # elements along K that share one scale in the OCP Microscaling Formats 1.0


def _summed(acc, x, y, accumulate):
    """acc + x @ y. Promoted: what x and y give is summed fast, and added in float32."""
    if accumulate == "promoted":
        return acc + kt.mma(x, y, accumulate="fast")
    return kt.mma(x, y, acc, accumulate=accumulate)


@kt.kernel(grid=lambda c, BM, BN: (kt.cdiv(c.shape[-2], BM), kt.cdiv(c.shape[-1], BN), count(*c.shape[:-2])))
def matmul(
    a, b, c, a_scale=None, b_scale=None, bias=None, *, activation="none", accumulate="full",
    BM=kt.tunable(64, 128, 256), BN=kt.tunable(64, 128, 256), BK=kt.tunable(64, 32, 128),
):  # fmt: skip
    """c = activation(a_scale (a @ b) b_scale + bias).

    a (..., M, K), b (..., K, N), c (..., M, N), of any strides; leading axes of a and b broadcast to those of
    c. bias (N,). Float operands accumulate in float32, 8-bit integers in int32. Scales are float32: a scalar,
    or one for each row of a, (..., M, 1), and column of b, (..., 1, N). Or they are float8_e8m0fnu, one for
    each 32 elements along K: a_scale (..., M, K/32), b_scale (..., K/32, N).

    accumulate: "full"; or for float8 operands "fast", which allows sums that are coarser than float32 (kt.mma), or
    "promoted": such sums over BK elements of K, which are then added in float32. Products with block scales are full.
    """
    i, j, z = kt.program_id(order="grouped")
    mx = a_scale is not None and a_scale.dtype == kt.float8_e8m0fnu
    a, b, a_scale, b_scale, c = (part(x, z, c) for x in (a, b, a_scale, b_scale, c))
    acc = kt.zeros((BM, BN), kt.float32 if a.dtype.is_float else kt.int32)
    for k in kt.range(kt.cdiv(a.shape[1], BK)):
        x, y = kt.load(a, (i, k), (BM, BK)), kt.load(b, (k, j), (BK, BN))
        if mx:
            x_scale = kt.load(a_scale, (i, k), (BM, BK // MX_BLOCK))
            acc = kt.mma_scaled(x, x_scale, y, kt.load(b_scale, (k, j), (BK // MX_BLOCK, BN)), acc)
        else:
            acc = _summed(acc, x, y, accumulate)
    if c.dtype.is_float:
        acc = wide(acc)
    if a_scale is not None and not mx:
        acc *= kt.load(a_scale[:, 0], i, BM)[:, None] if a_scale.ndim else scalar(a_scale)
    if b_scale is not None and not mx:
        acc *= kt.load(b_scale[0], j, BN) if b_scale.ndim else scalar(b_scale)
    if bias is not None:
        acc += wide(kt.load(bias, j, BN))
    kt.store(c, (i, j), ACTIVATIONS[activation](acc))
