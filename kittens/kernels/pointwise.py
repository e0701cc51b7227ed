"""Element by element: activations, gates, sums, copies. Stacks (..., M, N) of any strides, in float32."""

from __future__ import annotations

import kittens as kt
from kittens.kernels.stacks import ACTIVATIONS, count, part, wide

ROWS = kt.tunable(16, 4, 8, 32)
COLUMNS = kt.tunable(256, 128, 512)


def block_grid(y, BM, BN):
    """One program for each block of each matrix of the stack."""
    return kt.cdiv(y.shape[-2], BM), kt.cdiv(y.shape[-1], BN), count(*y.shape[:-2])


@kt.kernel(grid=block_grid)
def activation(x, y, *, function, BM=ROWS, BN=COLUMNS):
    """y = function(x); `function` names an activation."""
    i, j, z = kt.program_id()
    x, y = (part(t, z, y, same=True) for t in (x, y))
    kt.store(y, (i, j), ACTIVATIONS[function](wide(kt.load(x, (i, j), (BM, BN)))))


@kt.kernel(grid=block_grid)
def gated(gate, up, y, *, function, BM=ROWS, BN=COLUMNS):
    """y = function(gate) up (Shazeer, 2020, arXiv:2002.05202); the gate is not rounded before the product."""
    i, j, z = kt.program_id()
    gate, up, y = (part(t, z, y, same=True) for t in (gate, up, y))
    g = ACTIVATIONS[function](wide(kt.load(gate, (i, j), (BM, BN))))
    kt.store(y, (i, j), g * wide(kt.load(up, (i, j), (BM, BN))))


@kt.kernel(grid=block_grid)
def copy(x, y, *, scale=None, BM=ROWS, BN=COLUMNS):
    """y = x, or scale x; and zeros in the rows and columns of y that x does not have."""
    i, j, z = kt.program_id()
    x, y = (part(t, z, y, same=True) for t in (x, y))
    tile = kt.load(x, (i, j), (BM, BN))
    kt.store(y, (i, j), tile if scale is None else wide(tile) * scale)


@kt.kernel(grid=block_grid)
def add(a, b, y, *, BM=ROWS, BN=COLUMNS):
    """y = a + b. b has the shape of y, with fewer leading axes or some of 1; or it is one row, (N,)."""
    i, j, z = kt.program_id()
    a, b, y = part(a, z, y, same=True), part(b, z, y), part(y, z, y, same=True)
    other = kt.load(b, j, BN) if b.ndim == 1 else kt.load(b, (i, j), (BM, BN))
    kt.store(y, (i, j), wide(kt.load(a, (i, j), (BM, BN))) + wide(other))


@kt.kernel(grid=block_grid)
def transpose(x, y, *, BM=kt.tunable(64, 32, 128), BN=kt.tunable(64, 32, 128)):
    """y (..., M, N) = x (..., N, M), its last axes exchanged; and zeros in the rows and columns of y that x does not have."""
    i, j, z = kt.program_id()
    x, y = (part(t, z, y, same=True) for t in (x, y))
    kt.store(y, (i, j), kt.load(x, (j, i), (BN, BM)).T)
