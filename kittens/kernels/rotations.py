"""Rotary position embedding (Su et al., 2021, arXiv:2104.09864)."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import count, part, power_of_two, row_length, wide


@kt.kernel(grid=lambda x, BM, PARTS: (kt.cdiv(x.shape[-2], BM), kt.cdiv(count(*x.shape[:-2]), PARTS)))
def rotary(
    x,
    cos,
    sin,
    y,
    *,
    interleaved=False,
    inverse=False,
    BM=kt.tunable(16, 32, 64, 8),
    PARTS=kt.tunable(1, 2, 4, 8),
):
    """Rotate pairs of columns of x (..., N, D): (x0, x1) to (x0 cos - x1 sin, x1 cos + x0 sin), in float32.

    cos, sin (..., N, R/2): one angle for each row and pair; leading axes broadcast to those of x. Pair number
    f is columns f and f + R/2, or 2f and 2f + 1 if interleaved. Columns from R on are copied. inverse turns
    back. A program turns the same rows of PARTS matrices, which share their angles if all do.
    """
    i, first = kt.program_id()
    h, D, F = kt.static(cos.shape[-1]), row_length(True, x, y), power_of_two(cos.shape[-1])
    places = [first * PARTS + u for u in range(PARTS)]
    xs, ys = [part(x, z, x, same=True) for z in places], [part(y, z, x, same=True) for z in places]
    pairs = [halves(m, h, (i, 0), (BM, F), interleaved) for m in xs]
    shared = cos.ndim == 2
    angles = [
        cosines_and_sines(cos, sin, z, x, (i, 0), (BM, F), inverse) for z in places[: 1 if shared else PARTS]
    ]
    for u, (x0, x1) in enumerate(pairs):
        c, s = angles[0 if shared else u]
        y0, y1 = x0 * c - x1 * s, x1 * c + x0 * s
        if interleaved:
            kt.store(ys[u][:, : 2 * h], (i, 0), kt.join(y0, y1, pairs=True))
        else:
            kt.store(ys[u][:, :h], (i, 0), y0)
            kt.store(ys[u][:, h : 2 * h], (i, 0), y1)
        if 2 * h < D:
            kt.store(
                ys[u][:, 2 * h :], (i, 0), kt.load(xs[u][:, 2 * h :], (i, 0), (BM, power_of_two(D - 2 * h)))
            )


def cosines_and_sines(cos, sin, z, like, at, shape, inverse):
    """Tiles of cos and sin for part z; the sine of minus the angle, if `inverse`."""
    c, s = (wide(kt.load(part(t, z, like), at, shape)) for t in (cos, sin))
    return c, -s if inverse else s


def halves(x, h, at, shape, interleaved):
    """Tiles of the first and the second element of each of h pairs of columns."""
    if interleaved:
        return kt.split(wide(kt.load(x[:, : 2 * h], at, (shape[0], 2 * shape[1]))), pairs=True)
    return wide(kt.load(x[:, :h], at, shape)), wide(kt.load(x[:, h : 2 * h], at, shape))
