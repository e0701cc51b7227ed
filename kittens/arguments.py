"""Arguments of a kernel: arrays described without copying, scalars, and what a trace may know of them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kittens import plugins
from kittens.dtypes import DType, as_dtype, float32, int32, int64
from kittens.errors import ArgumentError
from kittens.ir import Extent, TensorType, TileType
from kittens.targets import Target

#: Largest power of two that a trace may assume to divide an extent or a stride.
_MAX_DIVISOR = 256


@dataclass(frozen=True)
class TensorArg:
    """An array as kernels see it.

    shape and strides are Python integers, strides in elements. `target` is where it lives. `data` is the
    backend's own handle. `span` is the memory it touches, (space, first byte, end), for finding overlaps;
    None if unknown.
    """

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    target: Target | None = None
    data: Any = field(default=None, repr=False, compare=False)
    writable: bool = True
    alignment: int = 16
    span: tuple[Any, int, int] | None = None

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def type(self) -> TensorType:
        """What a trace knows of this argument: extents by the power of two that divides them, unit strides.

        Of a stride that steps backwards it knows nothing, since engines that copy tiles cannot follow it.
        """
        dims = tuple(Extent(None, _divisor(n)) for n in self.shape)
        strides = tuple(
            Extent(1) if s == 1 else Extent(None, _divisor(s) if s >= 0 else 1) for s in self.strides
        )
        return TensorType(self.dtype, dims, strides, self.alignment)


@dataclass(frozen=True)
class Reader:
    """How arrays of one class are read without describing them in full, as Python expressions in `{x}`, the array.

    key: together all that a TensorArg says of it but for `data`, `span` and `alignment`, as values that are equal only if
    those are (but for strides along which there is one element). `{odd}` is false there while the addresses of all arrays of
    the call are multiples of 16. address: of its first element. names: what the expressions use; a backend's own begin with
    its name. empty(shape, dtype, like): a function that makes a new array, not set, of the library and on the device of the
    one that it is given, of which `like` is an example.
    """

    key: tuple[str, ...]
    address: str
    names: Mapping[str, Any] = field(default_factory=dict)
    empty: Callable[[tuple[int, ...], DType, Any], Callable[[Any], Any]] | None = None


@dataclass(frozen=True)
class ScalarArg:
    """A number passed to a kernel at run time: int32, int64 or float32 (a NumPy scalar keeps its type)."""

    dtype: DType
    value: Any

    @property
    def type(self) -> TileType:
        return TileType(self.dtype)


Argument = TensorArg | ScalarArg | None


def _divisor(n: int) -> int:
    """The largest power of two, up to a limit, that divides n (0 is divided by all)."""
    return _MAX_DIVISOR if n == 0 else min(n & -n, _MAX_DIVISOR)


def spec(dtype: Any, shape: Sequence[int], strides: Sequence[int] | None = None) -> TensorArg:
    """A tensor argument without data, for looking at what a kernel becomes: kernel.ir(kt.spec("bfloat16",
    (64, 64)), ...).

    `strides` are in elements, row-major unless given.
    """
    try:
        extents = tuple(operator.index(n) for n in shape)
        steps = contiguous(extents) if strides is None else tuple(operator.index(s) for s in strides)
    except TypeError:
        raise ArgumentError(
            f"the shape {shape!r} or the strides {strides!r} are no integers", hint="shapes are tuples: (64,)"
        ) from None
    if any(n < 0 for n in extents) or len(steps) != len(extents):
        raise ArgumentError(
            f"no tensor has the shape {extents} and the strides {steps}",
            hint="extents are at least 0, with one stride for each",
        )
    return TensorArg(as_dtype(dtype), extents, steps)


class OnDevice:
    """An address on a device, and the array that keeps it alive: what a TensorArg has as `data` there."""

    __slots__ = ("owner", "ptr")

    def __init__(self, ptr: int, owner: Any):
        self.ptr = ptr
        self.owner = owner


def on_device(
    owner: Any,
    target: Target,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    address: int,
    writable: bool = True,
) -> TensorArg:
    """Describe an array that lives on a device: strides in elements, the address of the first one."""
    span = None
    if 0 not in shape:
        reach = [s * (n - 1) for s, n in zip(strides, shape, strict=True)]
        low, high = sum(min(0, r) for r in reach), 1 + sum(max(0, r) for r in reach)
        place = (target.backend, target.index or 0)
        span = (place, address + dtype.bytes * low, address + dtype.bytes * high)
    alignment = min(16, address & -address) if address else 16
    return TensorArg(dtype, shape, strides, target, OnDevice(address, owner), writable, alignment, span)


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides, in elements."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def adopt(value: Any, name: str) -> Argument:
    """What an argument is to a kernel. Raises ArgumentError for what no backend knows."""
    if value is None or isinstance(value, (TensorArg, ScalarArg)):
        return value
    if isinstance(value, (bool, np.bool_)):
        raise ArgumentError(
            f"argument {name!r} is the bool {value}",
            hint="make it a keyword-only parameter of the kernel: it chooses code at compile time",
        )
    if isinstance(value, np.generic):
        dtype = as_dtype(value.dtype)
        if dtype not in (int32, int64, float32):
            raise ArgumentError(
                f"scalar argument {name!r} is {dtype}", hint="scalars are int32, int64 or float32"
            )
        return ScalarArg(dtype, value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ArgumentError(f"scalar argument {name!r} = {value} does not fit into int64")
        return ScalarArg(int64, value)
    if isinstance(value, float):
        return ScalarArg(float32, value)
    array = plugins.manager().hook.kittens_adopt(array=value)
    if array is None:
        raise ArgumentError(
            f"argument {name!r} is a {type(value).__module__}.{type(value).__name__}, which no installed "
            "backend takes",
            hint="pass an array of NumPy, or of a backend that `kittens doctor` lists",
        )
    return array


def check_outputs(arguments: dict[str, Argument], written: set[str]) -> None:
    """Raise ArgumentError if an output cannot be written, overlaps itself, or shares memory with another
    argument.
    """
    for name in sorted(written):
        out = arguments[name]
        assert isinstance(out, TensorArg)
        if not out.writable:
            raise ArgumentError(
                f"the kernel writes {name!r}, which is read-only",
                hint=f"pass a writable array; a copy of {name} is one",
            )
        if _overlaps_itself(out.shape, out.strides):
            raise ArgumentError(
                f"the kernel writes {name!r}, whose elements share memory (a broadcast or sliding view)",
                hint="pass a copy of it",
            )
        for other, x in arguments.items():
            if other != name and isinstance(x, TensorArg) and overlap(out.span, x.span):
                raise ArgumentError(
                    f"the kernel writes {name!r}, which overlaps {other!r} in memory",
                    hint="programs run in no order: give the output memory of its own",
                )


def _overlaps_itself(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of an array may share memory: some axis steps no further than the axes inside
    it reach.
    """
    if 0 in shape:
        return False
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def overlap(a: tuple[Any, int, int] | None, b: tuple[Any, int, int] | None) -> bool:
    """Whether two spans of memory have a byte in common."""
    return a is not None and b is not None and a[0] == b[0] and a[1] < b[2] and b[1] < a[2]
