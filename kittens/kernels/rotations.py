"""Rotary position embedding (Su et al., 2021, arXiv:2104.09864)."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import count, part, power_of_two, wide


@kt.kernel(grid=lambda x, BM: (kt.cdiv(x.shape[-2], BM), count(*x.shape[:-2])))
def rotary(x, cos, sin, y, *, interleaved=False, inverse=False, BM=kt.tunable(16, 32, 64, 8)):
    """Rotate pairs of columns of x (..., N, D): (x0, x1) to (x0 cos - x1 sin, x1 cos + x0 sin), in float32.

    cos, sin (..., N, R/2): one angle for each row and pair; leading axes broadcast to those of x. Pair number
    f is columns f and f + R/2, or 2f and 2f + 1 if interleaved. Columns from R on are copied. inverse turns
    back.
    """
    i, z = kt.program_id()
    cos, sin, x, y = part(cos, z, x), part(sin, z, x), part(x, z, x), part(y, z, y)
    h, D, F = kt.static(cos.shape[-1]), kt.static(x.shape[-1]), power_of_two(cos.shape[-1])
    c, s = wide(kt.load(cos, (i, 0), (BM, F))), wide(kt.load(sin, (i, 0), (BM, F)))
    if inverse:
        s = -s
    if interleaved:
        x0, x1 = kt.split(wide(kt.load(x[:, : 2 * h], (i, 0), (BM, 2 * F))), pairs=True)
    else:
        x0, x1 = wide(kt.load(x[:, :h], (i, 0), (BM, F))), wide(kt.load(x[:, h : 2 * h], (i, 0), (BM, F)))
    y0, y1 = x0 * c - x1 * s, x1 * c + x0 * s
    if interleaved:
        kt.store(y[:, : 2 * h], (i, 0), kt.join(y0, y1, pairs=True))
    else:
        kt.store(y[:, :h], (i, 0), y0)
        kt.store(y[:, h : 2 * h], (i, 0), y1)
    if 2 * h < D:
        kt.store(y[:, 2 * h :], (i, 0), kt.load(x[:, 2 * h :], (i, 0), (BM, power_of_two(D - 2 * h))))
