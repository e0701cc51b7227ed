"""What an engine can copy and read: tiles of tensors in panels, operands as they lie, and sums that loops only add to."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from kittens import layouts as lay
from kittens.artifact import MOST_AXES, SLICED
from kittens.codegen.known import divisor
from kittens.codegen.placement import Matrix, source_of
from kittens.codegen.plan import Staged
from kittens.ir import Op, TensorType, Value


@dataclass(frozen=True)
class Slice:
    """What makes a view a slice: the operation's result, and the parameter's axis that it is along."""

    axis: int
    value: Value


@dataclass(frozen=True)
class View:
    """The parameter behind a view, and what each of its axes is: an axis of the view, or at one index. slice: if it is one."""

    parameter: Value
    axes: list[int | Value]
    slice: Slice | None = None


def view_of(value: Value) -> View | None:
    """A chain of views as the engine's maps know them; None if it has more than one slice."""
    op = value.producer
    if op is None:
        assert isinstance(value.type, TensorType)
        return View(value, list(range(value.type.rank)))
    inner = view_of(op.operands[0])
    if inner is None:
        return None
    parameter, axes = inner.parameter, inner.axes
    if op.name == "slice":
        if inner.slice is not None:
            return None
        return View(parameter, axes, Slice(axes.index(op.attrs["axis"]), value))
    if op.name == "permute":
        place = {p: i for i, p in enumerate(op.attrs["perm"])}
        return View(parameter, [place[a] if isinstance(a, int) else a for a in axes], inner.slice)
    axis = op.attrs["axis"]
    axes = [(op.operands[1] if a == axis else a - (a > axis)) if isinstance(a, int) else a for a in axes]
    return View(parameter, axes, inner.slice)


def panels(op: Op, extents: Sequence[int]) -> tuple[bool, int] | None:
    """How the engine copies the tile of a load or store: whether its first axis is the contiguous one, and bytes of a panel.

    None if it cannot. Of slices it copies those along the tile's rows, of tensors whose map has an axis for each of theirs.
    """
    view = view_of(op.operands[0])
    if view is None or len(extents) != 2:
        return None
    axes, tensor = view.axes, view.parameter.type
    assert isinstance(tensor, TensorType)
    size = tensor.dtype.bytes
    if not 2 <= tensor.rank <= MOST_AXES - (SLICED if view.slice else 0) or tensor.alignment < 16:
        return None
    if any(
        s.value != 1 and ((s.value is not None and s.value <= 0) or divisor(s) * size % 16)
        for s in tensor.strides
    ):
        return None
    runs = [axes[i] for i, s in enumerate(tensor.strides) if s.value == 1]
    if len(runs) != 1 or not isinstance(runs[0], int):
        return None
    if view.slice is not None and axes[view.slice.axis] != 1 - runs[0]:
        return None
    flipped = runs[0] == 0
    run = extents[0 if flipped else 1] * size
    panel = next((p for p in (128, 64, 32) if run % p == 0), 0)
    return (flipped, panel) if panel else None


def across(staged: Staged, flipped: bool, position: int) -> bool:
    """Whether the neighbours in shared memory of an operand, a tile or its transpose, lie along M or N, not along K."""
    turned = flipped != staged.flipped  # as it lies, columns are contiguous
    return turned if position == 0 else not turned


def as_it_lies(held: lay.Tiled | None, flipped: bool, matrix: Matrix) -> tuple[int, ...] | None:
    """Which registers of a computed value, or its transpose, a product takes its left operand from; None if it cannot."""
    if held is None or matrix.a is None or len(held.axes) != 2:
        return None
    return lay.renaming(lay.transpose(held) if flipped else held, matrix.a)


def reads_slots(op: Op, staged: Collection[Value]) -> bool:
    """Whether a product reads staged tiles alone: nothing is added to it, and it can be started when they have come."""
    return len(op.operands) == 2 and all(source_of(v)[0] in staged for v in op.operands)


def sums_carried(loop: Op, op: Op) -> bool:
    """Whether a product only adds to a sum that its loop carries."""
    region = loop.regions[0]
    if len(op.operands) != 3 or op.operands[2] not in region.args:
        return False
    n = len(loop.results)
    argument = op.operands[2]
    carried = region.args[len(region.args) - n :]
    yielded = region.ops[-1].operands
    if argument not in carried or yielded[carried.index(argument)] is not op.result:
        return False
    if yielded.count(op.result) != 1 or argument in yielded:
        return False
    return not any(
        v is op.result or (v is argument and other is not op)
        for other in region.walk()
        if other.name != "yield"
        for v in other.operands
    )
