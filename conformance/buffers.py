"""Memory around the arguments of a case: guard bands, gaps between elements, and poison that contradicts the
oracle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kittens.conformance.judge.formats import decode
from kittens.dtypes import Array, DType

#: Elements before and after an array that nobody may touch.
GUARD = 64


@dataclass(frozen=True)
class Buffer:
    """A flat buffer, the view of it that the kernel is given, and which of its elements that view covers."""

    flat: Array
    view: Array
    covered: Array

    def outside(self) -> Array:
        """The bytes that do not belong to the view."""
        size = self.flat.itemsize
        return self.flat.view(np.uint8).reshape(-1, size)[~self.covered]


def _strides(shape: tuple[int, ...], layout: str) -> tuple[tuple[int, ...], int]:
    """Strides in elements and the number of elements spanned."""
    axes = list(range(len(shape)))
    order = axes[::-1] if layout != "transposed" else axes
    factor = 3 if layout == "gapped" else 1
    strides, step = [0] * len(shape), factor
    for position, axis in enumerate(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
        if layout in ("strided", "gapped") and position == 0:
            step += 5 if layout == "strided" else 7
    return tuple(strides), step


def allocate(shape: tuple[int, ...], dtype: DType, layout: str = "plain") -> Buffer:
    """A buffer of pseudo-random bytes with a view of `shape` in the middle.

    plain: row-major. transposed: column-major. strided: rows further apart than they are long. gapped: no
    axis contiguous. reversed: the first axis runs backwards. offset: starts one element after an aligned
    place.
    """
    strides, span = _strides(shape, layout)
    size = dtype.bytes
    rng = np.random.default_rng(span)
    raw = rng.integers(0, 256, (2 * GUARD + span + 17) * size, np.uint8)
    aligned = -raw.ctypes.data % 16  # the base of an argument is aligned unless the layout says otherwise
    raw = raw[aligned : aligned + (2 * GUARD + span + 1) * size]
    flat = (raw & 1).view(np.bool_) if dtype.kind == "b" else raw.view(dtype.numpy)
    start = GUARD + (layout == "offset")
    view = np.ndarray(shape, flat.dtype, flat, start * size, tuple(s * size for s in strides))
    if layout == "reversed" and shape:
        view = view[::-1]
    mask = np.zeros(flat.size, bool)
    np.ndarray(shape, np.bool_, mask, start, strides)[...] = True
    return Buffer(flat, view, mask)


def poison(expected: Array, dtype: DType) -> Array:
    """Native elements each of which contradicts an expected value, so that none can be right without being
    written.
    """
    if dtype.kind == "b":
        return ~expected
    if dtype.kind in "iu":
        return ~expected
    values = np.full(expected.shape, np.nan)
    with np.errstate(all="ignore"):
        return np.where(np.isnan(expected), 1.0, values).astype(dtype.numpy)


def native_bytes(x: Array) -> Array:
    """The elements of an array as rows of bytes."""
    return (
        np.ascontiguousarray(x).reshape(-1).view(np.uint8).reshape(x.size, -1)
        if x.size
        else np.zeros((0, 1), np.uint8)
    )


def values(x: Array, dtype: DType) -> Array:
    """Native elements as the judge compares them."""
    return decode(np.ascontiguousarray(x), dtype)
