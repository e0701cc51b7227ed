"""Products of matrices: one text for every element type, with scales, bias and activation in the epilogue.

A product with few tiles and many columns of a is *split*: `matmul_split` gives each of S ranges of K to programs of their own,
which leave their sums in parts (S, ..., M, N), and `matmul_combine` adds these in order and does the rest. All sums have a
fixed order, so results are the same from run to run.
"""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import ACTIVATIONS, count, part, scalar, wide

#: How `matmul` sums: see there.
ACCUMULATIONS = ("full", "fast", "promoted")
MX_BLOCK = 32  # elements along K that share one scale in the OCP Microscaling Formats 1.0


def tile_grid(c, BM, BN):
    """One program for each tile of each matrix of the stack."""
    return kt.cdiv(c.shape[-2], BM), kt.cdiv(c.shape[-1], BN), count(*c.shape[:-2])


def _summed(acc, x, y, accumulate):
    """acc + x @ y. Promoted: what x and y give is summed fast, and added in float32."""
    if accumulate == "promoted":
        return acc + kt.mma(x, y, accumulate="fast")
    return kt.mma(x, y, acc, accumulate=accumulate)


def _product(a, b, i, j, span, a_scale, b_scale, accumulate, BM, BN, BK):
    """Tile (i, j) of a @ b, summed over a span of blocks of K; with block scales, if there are scales."""
    acc = kt.zeros((BM, BN), kt.float32 if a.dtype.is_float else kt.int32)
    for k in kt.range(*span):
        x, y = kt.load(a, (i, k), (BM, BK)), kt.load(b, (k, j), (BK, BN))
        if a_scale is not None:
            x_scale = kt.load(a_scale, (i, k), (BM, BK // MX_BLOCK))
            acc = kt.mma_scaled(x, x_scale, y, kt.load(b_scale, (k, j), (BK // MX_BLOCK, BN)), acc)
        else:
            acc = _summed(acc, x, y, accumulate)
    return acc


def _finished(acc, c, i, j, a_scale, b_scale, bias, activation):
    """What goes to tile (i, j) of c: sums, scaled, with bias and activation."""
    if c.dtype.is_float:
        acc = wide(acc)
    if a_scale is not None:
        acc *= kt.load(a_scale[:, 0], i, acc.shape[0])[:, None] if a_scale.ndim else scalar(a_scale)
    if b_scale is not None:
        acc *= kt.load(b_scale[0], j, acc.shape[1]) if b_scale.ndim else scalar(b_scale)
    if bias is not None:
        acc += wide(kt.load(bias, j, acc.shape[1]))
    return ACTIVATIONS[activation](acc)


@kt.kernel(grid=tile_grid)
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
    a, b, a_scale, b_scale, c = (part(x, z, c) for x in (a, b, a_scale, b_scale, c))
    mx = a_scale is not None and a_scale.dtype == kt.float8_e8m0fnu
    blocks, scales = ((a_scale, b_scale), (None, None))[:: 1 if mx else -1]
    acc = _product(a, b, i, j, (0, kt.cdiv(a.shape[1], BK)), *blocks, accumulate, BM, BN, BK)
    kt.store(c, (i, j), _finished(acc, c, i, j, *scales, bias, activation))


@kt.kernel(grid=lambda parts, BM, BN: tile_grid(parts, BM, BN))
def matmul_split(
    a, b, parts, a_scale=None, b_scale=None, *, accumulate="full",
    BM=kt.tunable(64, 128, 256), BN=kt.tunable(64, 128, 256), BK=kt.tunable(64, 32, 128),
):  # fmt: skip
    """parts (S, ..., M, N), float32 or int32: what each of S ranges of K, whole blocks of BK, adds to a @ b.

    Scales are those of blocks along K; others are for `matmul_combine`. The rest is as in `matmul`.
    """
    i, j, z = kt.program_id(order="grouped")
    s, z = z % parts.shape[0], z // parts.shape[0]
    c = parts[s]
    a, b, a_scale, b_scale, c = (part(x, z, c) for x in (a, b, a_scale, b_scale, c))
    blocks = kt.cdiv(a.shape[1], BK)
    share = kt.cdiv(blocks, parts.shape[0])
    span = s * share, kt.minimum((s + 1) * share, blocks)
    kt.store(c, (i, j), _product(a, b, i, j, span, a_scale, b_scale, accumulate, BM, BN, BK))


@kt.kernel(grid=lambda c, BN: (c.shape[-2], kt.cdiv(c.shape[-1], BN), count(*c.shape[:-2])))
def matmul_combine(
    parts, c, a_scale=None, b_scale=None, bias=None, *, activation="none",
    BS=kt.tunable(32, 4, 16), BN=kt.tunable(128, 256, 1024),
):  # fmt: skip
    """c = activation(a_scale (the sum of parts) b_scale + bias), for parts (S, ..., M, N) and c (..., M, N).

    BS parts are loaded before any is added. The rest is as in `matmul`; scales of blocks are none of its concern.
    """
    i, j, z = kt.program_id()
    inner = parts.ndim - 2
    stack = parts.permute(*range(1, inner), 0, inner, inner + 1)
    rows = part(stack, z, stack, keep=3)[:, i]
    a_scale, b_scale, c = (part(x, z, c) for x in (a_scale, b_scale, c))
    acc = kt.zeros((BN,), parts.dtype)
    for t in kt.range(kt.cdiv(parts.shape[0], BS)):
        acc += kt.load(rows, (t, j), (BS, BN)).sum(axis=0)
    kt.store(c, (i, j), _finished(acc[None], c, i, j, a_scale, b_scale, bias, activation))
