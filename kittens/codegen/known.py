"""What is known of integers before a kernel runs: which power of two divides them, and how they go along a vector.

Extents, strides and constants are known to be multiples of powers of two. From that follows that the elements of a
vector of registers lie inside a tensor together or not at all, and that their positions begin at a multiple of something.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kittens.codegen.placement import dtype_of, is_tile, shape, squeezed
from kittens.dtypes import BY_NAME
from kittens.ir import Extent, Op, TensorType, Value

#: Stands for the power of two that divides zero: more than any tile's extent.
ENDLESS = 1 << 31


@dataclass(frozen=True)
class Along:
    """Integers along an aligned vector of positions: base + step * i for i = 0, 1, ...; `divisor` divides the base."""

    step: int
    divisor: int


def power_of_two_in(n: int) -> int:
    """The largest power of two that divides a number."""
    return min(n & -n, ENDLESS) if n else ENDLESS


def divisor(known: Extent) -> int:
    """The power of two known to divide an extent or a stride."""
    return power_of_two_in(known.value) if known.value is not None else known.divisor


def divides(value: Value) -> int:
    """The power of two known to divide an integer scalar."""
    found = along(value, None, 1)
    return found.divisor if found is not None and found.step == 0 else 1


def constant(value: Value) -> int | None:
    """The value of an integer constant, or of an extent that is known."""
    op = value.producer
    if op is not None and op.name == "const" and BY_NAME[op.attrs["dtype"]].is_integer:
        return int(op.attrs["value"])
    if op is not None and op.name == "dim":
        tensor = op.operands[0].type
        assert isinstance(tensor, TensorType)
        return tensor.dims[op.attrs["axis"]].value
    return None


def same_number(value: Value) -> float | int | None:
    """The number that all elements of a value are, if that is known."""
    while value.producer is not None and value.producer.name == "broadcast":
        value = value.producer.operands[0]
    op = value.producer
    return op.attrs["value"] if op is not None and op.name == "const" else None


def along(value: Value, axis: int | None, width: int) -> Along | None:
    """How an integer goes along `width` neighbours, the first at a multiple of `width`, of one axis of its tile.

    With no axis, all of them are at one position. None if nothing is known of the step. Sums and products that wrap do so
    modulo a power of two, which changes neither steps nor divisors.
    """
    op = value.producer
    if op is None or not BY_NAME[dtype_of(value)].is_integer:
        return _still(value, axis, 1)
    if (number := constant(value)) is not None:
        return Along(0, power_of_two_in(number))
    if op.name == "dim":
        tensor = op.operands[0].type
        assert isinstance(tensor, TensorType)
        return Along(0, divisor(tensor.dims[op.attrs["axis"]]))
    if op.name == "arange":
        return Along(0, 1) if axis is None else Along(1, width)
    if op.name in ("broadcast", "reshape", "transpose"):
        inner = axis_before(op, axis)
        return _still(value, axis, 1) if inner == -1 else along(op.operands[0], inner, width)
    if op.name == "cast" and BY_NAME[dtype_of(op.operands[0])].is_integer:
        # Wider: what wrapped before did so at a multiple of the divisor, so that no vector is torn apart.
        found = along(op.operands[0], axis, width)
        whole = found is not None and (0 <= found.step * (width - 1) < found.divisor)
        return found if whole else None
    known = ("add", "sub", "mul", "minimum", "maximum")
    if op.name not in known:
        return _still(value, axis, 1)
    left, right = (along(x, axis, width) for x in op.operands)
    if left is None or right is None:
        return _still(value, axis, 1)
    if op.name in ("minimum", "maximum"):
        return Along(0, min(left.divisor, right.divisor)) if left.step == right.step == 0 else None
    if op.name == "mul":
        if left.step == right.step == 0:
            return Along(0, min(left.divisor * right.divisor, ENDLESS))
        for one, factor in ((left, constant(op.operands[1])), (right, constant(op.operands[0]))):
            if factor is not None:
                return Along(one.step * factor, min(one.divisor * power_of_two_in(factor), ENDLESS))
        return None
    step = left.step + right.step if op.name == "add" else left.step - right.step
    return Along(step, min(left.divisor, right.divisor))


def _still(value: Value, axis: int | None, divisor: int) -> Along | None:
    """Of a value that is the same at all positions; None if it may not be."""
    return Along(0, divisor) if axis is None or not is_tile(value) else None


def natural(value: Value) -> bool:
    """Whether an integer scalar is known not to be negative."""
    op = value.producer
    if op is None or op.name == "dim" or most(value) is not None:
        return op is not None
    if op.name == "maximum":
        return any(map(natural, op.operands))
    return op.name in ("floordiv", "minimum") and all(map(natural, op.operands))


def most(value: Value) -> int | None:
    """A bound of an integer scalar that is not negative: of what follows from a program's place in its grid."""
    op = value.producer
    if op is None:
        return None
    if op.name in ("program_id", "num_programs"):
        return 2**31 - 1
    if (number := constant(value)) is not None:
        return number if number >= 0 else None
    if op.name in ("floordiv", "mod"):
        return most(op.operands[0]) if natural(op.operands[1]) else None
    if op.name not in ("add", "mul", "minimum"):
        return None
    left, right = map(most, op.operands)
    if op.name == "minimum" and all(map(natural, op.operands)):
        return min((n for n in (left, right) if n is not None), default=None)
    if left is None or right is None:
        return None
    return left + right if op.name == "add" else left * right


def within(value: Value, tensor: Value, axis: int) -> bool:
    """Whether an integer scalar is known to be from 0 to an extent of a parameter: that, or the lesser of it and of another."""

    def extent(v: Value) -> bool:
        op = v.producer
        return op is not None and op.name == "dim" and op.operands[0] is tensor and op.attrs["axis"] == axis

    op = value.producer
    if op is not None and op.name == "minimum":
        return any(map(extent, op.operands)) and natural(value)
    return extent(value)


def axis_before(op: Op, axis: int | None) -> int | None:
    """The axis of the operand of a broadcast, reshape or transpose; None for one position; -1 where that is not known."""
    if axis is None:
        return None
    source, result = shape(op.operands[0]), shape(op.result)
    if op.name == "transpose":
        return int(op.attrs["perm"][axis])
    if op.name == "broadcast":
        inner = axis - (len(result) - len(source))
        return None if inner < 0 or source[inner] == 1 else inner
    if squeezed(source) != squeezed(result):
        return -1
    if result[axis] == 1:
        return None
    place = len(squeezed(result[:axis]))
    return [i for i, n in enumerate(source) if n != 1][place]


def alike(op: Op, axis: int, width: int) -> bool:
    """Whether a comparison of integers gives one answer for each aligned vector of so many positions along an axis."""
    left, right = (along(x, axis, width) for x in op.operands)
    if left is None or right is None or width == 1:
        return width == 1
    if left.step == right.step == 0:
        return True
    # x < y between a multiple of the width and a run of it that begins at one: all of the run is on one side.
    run, other = (left, right) if left.step else (right, left)
    sides = ("lt", "ge") if run is left else ("gt", "le")
    return (
        op.name in sides
        and run.step == 1
        and other.step == 0
        and not (run.divisor % width or other.divisor % width)
    )


def vector(layout_runs: Sequence[tuple[int, ...]]) -> int:
    """The length of vectors of registers that follow one another, 1 if they do not."""
    width = len(layout_runs[0])
    return width if all(run == tuple(range(run[0], run[0] + width)) for run in layout_runs) else 1
