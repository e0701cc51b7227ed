"""What kernels share: matrices taken from stacks of any rank, blocks of columns, widths of tiles.

A *stack* is a tensor whose last axes hold one matrix (or one row, or one element) for each place of the
leading axes.
"""

from __future__ import annotations

import kittens as kt


def part(x, z, like, keep=2, same=False):
    """Part number z, in row-major order, of the stack `x`: a view without the leading axes of `like`.

    The leading axes are all but the last `keep` of `like`; `x` may have fewer of them, or extents of 1, which
    are repeated, or be None or a scalar, which is its own only part. same: `x` has those of `like`; then there is nothing
    in a part beyond the last.
    """
    if x is None or x.ndim == 0:
        return x
    index = []
    for axis in reversed(range(like.ndim - keep)):
        place = z % like.shape[axis] if axis else z
        own = axis + x.ndim - like.ndim
        if own >= 0:
            index.insert(0, place if same else kt.minimum(place, x.shape[own] - 1))
        z = z // like.shape[axis]
    return x[tuple(index)] if index else x


def count(*extents):
    """The number of parts of a stack with these leading extents."""
    n = 1
    for extent in extents:
        n *= extent
    return n


def columns(n, BN, resident):
    """What to loop over for all columns of a row of n: blocks of BN, or one block if that holds the row."""
    return range(1) if resident else kt.range(kt.cdiv(n, BN))


def row_length(whole, *tensors):
    """How many columns tensors have, or a row of them, the first of which counts; a constant if `whole`: then the kernel
    is specialised on the extent, and compares no column with it.
    """
    lengths = [t.shape[-1] for t in tensors if t is not None]
    if whole:
        lengths = [kt.static(n) for n in lengths]
    return lengths[0]


def ragged(n, BN):
    """Whether the last block of BN columns may reach beyond the n of a row."""
    return isinstance(n, kt.Tile) or n % BN != 0


def real(n):
    """A number of columns, constant or not, in float32."""
    return n.to(kt.float32) if isinstance(n, kt.Tile) else float(n)


def held(block, resident):
    """`block`, a function that reads block j of a row; one that reads only once if the block is the row."""
    if not resident:
        return block
    row = block(0)
    return lambda j: row


def head_width(x):
    """Columns of a tile that holds rows of `x` and multiplies: a multiple of 16 elements and of 32 bytes."""
    return kt.round_up(x.shape[-1], max(16, 256 // x.dtype.bits))


def power_of_two(n):
    """The least power of two not below a constant n."""
    return 1 << max(kt.static(n) - 1, 0).bit_length()


def scalar(x):
    """A scalar tile: `x` itself, or the one element of a tensor of rank 0."""
    return x if isinstance(x, kt.Tile) else kt.load(x)


def wide(tile):
    """A tile of floats in float32, in which everything but products of matrices is computed."""
    return tile.to(kt.float32)


#: Activations by name, on float32 tiles.
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": kt.relu,
    "silu": kt.silu,
    "gelu": kt.gelu,
    "gelu_tanh": lambda x: kt.gelu(x, approximate="tanh"),
    "sigmoid": kt.sigmoid,
    "tanh": kt.tanh,
}
