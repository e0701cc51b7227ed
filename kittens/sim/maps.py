"""Arrays whose tiles a kernel copies through a map: a value of 128 bytes that says where the array lies, and how.

A device's own maps are opaque. This one is read by the shims, little-endian and without gaps but for the last word:

    byte 0   u64      the first element's address, tagged as pointers to buffers are
    byte 8   u32 x 4  rank; bytes of an element; bytes of the swizzle; 0
    byte 24  u32 x 5  extents, from the contiguous axis outwards
    byte 48  u64 x 5  strides in bytes; those of axes that step backwards wrap around
    byte 88  u16 x 5  extents of the copied tile
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAP_BYTES = 128
_RANK = 5
_LAYOUT = struct.Struct("<Q4I5I4x5Q5H30x")
assert _LAYOUT.size == MAP_BYTES


@dataclass(frozen=True, eq=False)
class MappedArray:
    """An array, its axes from the contiguous one outwards, the tile copied along each, and the bytes of the swizzle.

    dims: the map's extents and strides in bytes, where they are others than the array's.
    """

    array: np.ndarray
    axes: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int
    dims: tuple[Sequence[int], Sequence[int]] | None = None

    def encoded(self, pointer: int) -> bytes:
        """The map as a kernel takes it. `pointer` is the tagged address of the first element."""
        extents, strides = self.dims or (
            [x[a] for a in self.axes] for x in (self.array.shape, self.array.strides)
        )
        spare = (0,) * (_RANK - len(extents))
        strides = [s & (2**64 - 1) for s in strides]
        strides[:1] = [self.array.itemsize]  # as on devices, whatever an axis of extent 1 says
        return _LAYOUT.pack(
            pointer,
            len(extents),
            self.array.itemsize,
            self.swizzle,
            0,
            *extents,
            *spare,
            *strides,
            *spare,
            *self.box,
            *spare,
        )
