"""What operations ask of their arguments, and the arrays and views that they make."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kittens.arguments import TensorArg, adopt
from kittens.dtypes import ALL, DType, as_dtype, bfloat16, float16, float32
from kittens.errors import ArgumentError, DTypeError, ShapeError, UnavailableError
from kittens.recording import empty
from kittens.targets import Target

Array = Any  # of any library
On = str | Target | None
Tune = Mapping[str, int] | None

FLOATS = (float32, float16, bfloat16)
INTEGERS = tuple(d for d in ALL if d.is_integer)
#: Rows of up to this many elements are held in one tile.
RESIDENT = 16384
#: Rows of a multiple of this many elements get a tile of exactly their length.
ROW_STEP = 256


def described(
    x: Array, name: str, dtypes: Sequence[DType] = FLOATS, *, ndim: int | None = None, least: int = 0
) -> TensorArg:
    """An array argument, described; raises if it is none, or not of these dtypes and of this rank."""
    array = adopt(x, name)
    if not isinstance(array, TensorArg):
        raise ArgumentError(f"{name} is {type(x).__name__}, not an array", hint="make an array of it first")
    if array.dtype not in dtypes:
        wanted = ", ".join(d.name for d in dtypes)
        raise DTypeError(
            f"{name} is {array.dtype}; it has to be {wanted}",
            hint="convert it first: no operation converts its inputs",
        )
    if ndim is not None and array.ndim != ndim:
        raise ShapeError(
            f"{name} has {array.ndim} axes (shape {array.shape}); it has to have {ndim}",
            hint="index or reshape it",
        )
    if array.ndim < least:
        raise ShapeError(
            f"{name} has {array.ndim} axes (shape {array.shape}); it has to have {least} at least",
            hint=f"{name}[None] has one more",
        )
    return array


def expect(array: TensorArg, name: str, shape: tuple[int, ...], why: str) -> TensorArg:
    """`array`; raises ShapeError if it has another shape."""
    if array.shape != shape:
        raise ShapeError(
            f"{name} has shape {array.shape}; {why} asks for {shape}", hint=f"pass {name} with that shape"
        )
    return array


def repeats(own: tuple[int, ...], lead: tuple[int, ...]) -> bool:
    """Whether leading axes `own` broadcast to `lead`."""
    pairs = zip(reversed(lead), reversed(own), strict=False)
    return len(own) <= len(lead) and all(b in (1, a) for a, b in pairs)


def vector(x: Array, name: str, n: int) -> None:
    """Check an optional vector along the last axis."""
    if x is not None:
        expect(described(x, name, ndim=1), name, (n,), f"a last axis of {n}")


def output(
    out: Array,
    like: Array,
    shape: tuple[int, ...],
    dtype: Any,
    dtypes: Sequence[DType] = FLOATS,
    name: str = "out",
) -> Array:
    """`out`, checked; or a new array, not set, of the library and on the device of `like`."""
    if out is not None:
        expect(described(out, name, dtypes), name, shape, "the result")
        return out
    wanted = as_dtype(dtype)
    if wanted not in dtypes:
        raise DTypeError(
            f"no result in {wanted}", hint=f"the choices are {', '.join(d.name for d in dtypes)}"
        )
    made = empty(like, shape, wanted)
    if made is None:
        kind = f"{type(like).__module__}.{type(like).__name__}"
        raise UnavailableError(
            f"no backend makes new arrays like a {kind}", hint="pass the result's memory with out="
        )
    return made


def constant(value: float, name: str, low: float, high: float, *, open_low: bool = False) -> float:
    """A number between bounds, as a Python float."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ArgumentError(
            f"{name} is a number, not {value!r}", hint="it is a constant of the kernel: pass a Python float"
        )
    if not (low < value or (low == value and not open_low)) or not value <= high or math.isinf(value):
        bounds = f"above {low:g}" if open_low else f"at least {low:g}"
        raise ArgumentError(
            f"{name} is {value!r}",
            hint=f"it has to be {bounds}{'' if math.isinf(high) else f' and at most {high:g}'}, and finite",
        )
    return float(value)


def count(n: Any, name: str, least: int) -> int:
    """A number of things, as a Python integer."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < least:
        raise ArgumentError(f"{name} is {n!r}", hint=f"it is a Python integer of at least {least}")
    return int(n)


def _merges(array: TensorArg, keep: int) -> bool:
    """Whether the axes before the `keep` last ones can be viewed as one."""
    axes = list(zip(array.shape, array.strides, strict=True))[: array.ndim - keep]
    lead = [(n, s) for n, s in axes if n != 1]
    return 0 in array.shape or all(s == s2 * n2 for (_, s), (n2, s2) in itertools.pairwise(lead))


def _merged(x: Array, array: TensorArg, keep: int) -> Array:
    """The view of an array with one axis before its `keep` last ones."""
    if array.ndim == keep:
        return x[None]
    lead = math.prod(array.shape[: array.ndim - keep])
    return x if array.ndim == keep + 1 else x.reshape((lead, *array.shape[array.ndim - keep :]))


def rows(**arrays: tuple[Array, int]) -> list[Array]:
    """Views of arrays with one axis for all their rows; given are, by name, the array and how many axes a row
    has.

    Raises ArgumentError for an array whose rows are not evenly spaced in memory.
    """
    views = []
    for name, (x, keep) in arrays.items():
        array = adopt(x, name)
        assert isinstance(array, TensorArg)
        if not _merges(array, keep):
            raise ArgumentError(f"the rows of {name} (strides {array.strides}) are not evenly spaced",
                                hint=f"pass a contiguous copy of {name}")  # fmt: skip
        views.append(_merged(x, array, keep))
    return views


def stacks(*arrays: Array, keep: int = 1) -> list[Array]:
    """The arrays, of equal leading axes, as stacks of matrices: one matrix each if their leading axes
    can be merged.
    """
    described = [adopt(x, "an array") for x in arrays]
    if all(isinstance(a, TensorArg) and _merges(a, keep) for a in described):
        pairs = zip(arrays, described, strict=True)
        return [_merged(x, a, keep) for x, a in pairs if isinstance(a, TensorArg)]
    return list(arrays)


def tiles(n: int, tune: Tune, most: int = RESIDENT) -> dict[str, Any]:
    """Constants for a kernel on rows of n: whether one tile holds a row, how wide it is, and whether the row fills it.

    A kernel is specialised on rows that fill their tile: those whose length lanes share out evenly.
    """
    given = dict(tune or {})
    width = given.get("BN", n if n and n % ROW_STEP == 0 else max(16, 1 << max(n - 1, 0).bit_length()))
    return {**given, "resident": True, "whole": n == width, "BN": width} if n <= min(width, most) else given
