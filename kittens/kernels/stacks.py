"""What kernels share: matrices taken from stacks of any rank, and widths of tiles.

A *stack* is a tensor whose last axes hold one matrix (or one row, one element) for each place of the leading axes.
"""

from __future__ import annotations

import kittens as kt


def part(x, z, like, keep=2):
    """Part number z, in row-major order, of the stack `x`: a view of at most `keep` axes.

    The leading axes are those of `like`; `x` may have fewer of them, or extents of 1, which are repeated.
    """
    index = []
    for axis in reversed(range(like.ndim - keep)):
        place = z % like.shape[axis] if axis else z
        own = axis + x.ndim - like.ndim
        if own >= 0:
            index.insert(0, kt.minimum(place, x.shape[own] - 1))
        z = z // like.shape[axis]
    return x[tuple(index)] if index else x


def count(*extents):
    """The number of parts: the product of the leading axes."""
    n = 1
    for extent in extents:
        n *= extent
    return n


def head_width(x):
    """Columns of a tile that holds rows of `x` and can be an operand: whole multiples of 16 elements and of 32 bytes."""
    return kt.round_up(x.shape[-1], max(16, 256 // x.dtype.bits))


def wide(tile):
    """A tile of floats in float32, in which everything but products of matrices is computed."""
    return tile.to(kt.float32)


def activate(x, activation):
    """An activation by name, on a float32 tile."""
    return ACTIVATIONS[activation](x)


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": kt.relu,
    "silu": kt.silu,
    "gelu": kt.gelu,
    "gelu_tanh": lambda x: kt.gelu(x, approximate="tanh"),
    "sigmoid": kt.sigmoid,
    "tanh": kt.tanh,
}
