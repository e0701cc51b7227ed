"""Where a tile lives: a linear fragment, repeated over a mixed-radix grid.

A **slot** is (group, lane, register). A group is a set of lanes that run in step; a register
holds one element (not one 32-bit word). The fragment says which element of a small power-of-two
tile a slot holds; *digits* say how fragments repeat, in registers of one group or over groups,
until they cover the tile. The fragment is linear over bits; the sizes of digits are free, so
96 or 192 columns are no special case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import linear
from .linear import Linear

Owner = Literal["register", "group"]


class Digit(NamedTuple):
    """One repetition: ``size`` copies, ``owner`` counts them, ``axis`` is where they lie.

    ``axis=None`` means that they lie nowhere: the copies hold the same elements.
    """

    owner: Owner
    axis: str | None
    size: int


@dataclass(frozen=True)
class Tiled:
    """A tile's placement: (group, lane, register) -> coordinates.

    ``digits`` are listed finest first: along an axis a digit steps over the fragment and the
    earlier digits of that axis; in its owner's index it stands above the fragment's bits and the
    earlier digits of that owner. ``(register, col, 4), (group, col, 2)`` gives each group four
    neighbouring fragments; swapped, the groups' fragments alternate.
    """

    fragment: Linear
    digits: tuple[Digit, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "digits", tuple(Digit(*d) for d in self.digits if d[2] != 1))
        unknown = {axis for axis, _ in self.fragment.inputs} - {"register", "lane", "group"}
        if unknown:
            raise ValueError(f"a fragment maps register, lane and group, not {sorted(unknown)}")
        for digit in self.digits:
            if digit.axis is not None and digit.axis not in self.axes:
                raise ValueError(f"{digit} repeats along {digit.axis!r}, not one of {self.axes}")

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the tile's axes."""
        return tuple(axis for axis, _ in self.fragment.outputs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return tuple(
            (1 << bits) * math.prod(d.size for d in self.digits if d.axis == axis)
            for axis, bits in self.fragment.outputs
        )

    @property
    def registers(self) -> int:
        """Elements that a lane holds, copies counted."""
        return self._count("register")

    @property
    def lanes(self) -> int:
        """Lanes of a group."""
        return self._count("lane")

    @property
    def groups(self) -> int:
        """Groups that share the tile."""
        return self._count("group")

    def _count(self, owner: str) -> int:
        bits = linear.span(self.fragment.inputs, owner)[1]
        return (1 << bits) * math.prod(d.size for d in self.digits if d.owner == owner)

    def extent(self, axis: str) -> int:
        """Elements along one axis."""
        return self.shape[self.axes.index(axis)]


def distribute(
    fragment: Linear,
    shape: Sequence[int],
    groups: Sequence[int] | None = None,
    *,
    order: Sequence[str] | None = None,
    interleave: Sequence[str] = (),
) -> Tiled:
    """Cover a tile of ``shape`` with copies of ``fragment``, ``groups`` sets of groups along each axis.

    ``order`` lists the axes, the one that register and group numbers run along first first;
    unless given, the last axis. Groups hold neighbouring fragments, except along the axes of
    ``interleave``, where their fragments alternate. A ValueError if the sizes do not divide.
    """
    axes = [axis for axis, _ in fragment.outputs]
    groups = groups or [1] * len(axes)
    digits: list[Digit] = []
    for axis in order or axes[::-1]:
        i = axes.index(axis)
        unit = (1 << fragment.outputs[i][1]) * groups[i]
        if shape[i] % unit:
            raise ValueError(
                f"{shape[i]} along {axis} is no multiple of {unit}: "
                f"fragment {1 << fragment.outputs[i][1]} x {groups[i]} groups"
            )
        pair = [Digit("register", axis, shape[i] // unit), Digit("group", axis, groups[i])]
        digits += pair[::-1] if axis in interleave else pair
    return Tiled(fragment, tuple(digits))


# ---------------------------------------------------------------------------------------------
# Slots and elements


def coordinates(layout: Tiled, group: Any, lane: Any, register: Any) -> tuple[Any, ...]:
    """Coordinates of the element in a slot, in the order of the axes. Ints or NumPy arrays."""
    f = layout.fragment
    given = {"group": group, "lane": lane, "register": register}
    low, high = {}, {}
    for owner, value in given.items():
        bits = linear.span(f.inputs, owner)[1]
        low[owner], high[owner] = value & (1 << bits) - 1, value >> bits
    values = dict(zip(layout.axes, f(**{a: low[a] for a, _ in f.inputs}), strict=True))
    step = {axis: 1 << bits for axis, bits in f.outputs}
    for owner, axis, size in layout.digits:
        if axis is not None:
            values[axis] = values[axis] + high[owner] % size * step[axis]
            step[axis] *= size
        high[owner] = high[owner] // size
    return tuple(values[axis] for axis in layout.axes)


def holder(layout: Tiled, *element: Any) -> tuple[Any, Any, Any]:
    """The slot (group, lane, register) of an element; the lowest one where there are copies."""
    f = layout.fragment
    value = dict(zip(layout.axes, element, strict=True))
    low, high = {}, {}
    for axis, bits in f.outputs:
        low[axis], high[axis] = value[axis] & (1 << bits) - 1, value[axis] >> bits
    inverse = linear.invert(f)
    found = dict(zip((a for a, _ in f.inputs), inverse(**low), strict=True))
    slot = {owner: found.get(owner, 0) for owner in ("group", "lane", "register")}
    step = {owner: 1 << linear.span(f.inputs, owner)[1] for owner in slot}
    for digit in layout.digits:
        if digit.axis is not None:
            slot[digit.owner] = slot[digit.owner] + high[digit.axis] % digit.size * step[digit.owner]
            high[digit.axis] = high[digit.axis] // digit.size
        step[digit.owner] *= digit.size
    return slot["group"], slot["lane"], slot["register"]


@cache
def table(layout: Tiled) -> npt.NDArray[np.int64]:
    """Coordinates of every slot: an array [group, lane, register, axis] (do not write to it)."""
    g, ln, r = np.ogrid[: layout.groups, : layout.lanes, : layout.registers]
    shape = (layout.groups, layout.lanes, layout.registers)
    columns = [np.broadcast_to(c, shape) for c in coordinates(layout, g, ln, r)]
    result = np.stack(columns, axis=-1) if columns else np.zeros((*shape, 0), np.int64)
    result.setflags(write=False)
    return result


@cache
def elements(layout: Tiled) -> npt.NDArray[np.int64]:
    """Row-major number of the element in every slot: an array [group, lane, register]."""
    result = np.zeros((layout.groups, layout.lanes, layout.registers), np.int64)
    for i, size in enumerate(layout.shape):
        result = result * size + table(layout)[..., i]
    result.setflags(write=False)
    return result


def same(a: Tiled, b: Tiled) -> bool:
    """Every slot of both holds the same element (however the two are written)."""
    return a.shape == b.shape and np.array_equal(elements(a), elements(b))


# ---------------------------------------------------------------------------------------------
# Rewriting


def absorb(layout: Tiled) -> Tiled:
    """The same placement with as many digits as possible turned into bits of the fragment."""
    f, rest = layout.fragment, []
    inputs = tuple((owner, linear.span(f.inputs, owner)[1]) for owner in ("register", "lane", "group"))
    f = Linear(inputs, f.outputs, tuple(c for owner, _ in inputs for c in f.bits(owner)))
    closed: set[str | None] = set()
    for owner, axis, size in layout.digits:
        if owner in closed or (axis is not None and axis in closed):
            rest.append(Digit(owner, axis, size))
            closed |= {owner, axis} - {None}
            continue
        power = size & -size
        bits = power.bit_length() - 1
        outputs = tuple((a, bits if a == axis else 0) for a in layout.axes)
        columns = linear.identity(((owner, bits),)).columns if axis else (0,) * bits
        f = linear.product(f, Linear(((owner, bits),), outputs, columns))
        if size > power:
            rest.append(Digit(owner, axis, size // power))
            closed |= {owner, axis} - {None}
    return Tiled(f, tuple(rest))


def transpose(layout: Tiled) -> Tiled:
    """The transposed tile in the same slots: rows become columns. Moves nothing."""
    first, second = layout.axes
    swap = {first: second, second: first}
    f = linear.project(linear.rename(layout.fragment, swap), (first, second))
    return Tiled(f, tuple(d._replace(axis=swap.get(d.axis or "")) for d in layout.digits))


def flip(f: Linear) -> Linear:
    """:func:`transpose` for a bare fragment."""
    return transpose(Tiled(f)).fragment


def with_axes(layout: Tiled, *names: str) -> Tiled:
    """The same placement with its axes renamed, in order."""
    new = dict(zip(layout.axes, names, strict=True))
    digits = tuple(d._replace(axis=new[d.axis] if d.axis else None) for d in layout.digits)
    return replace(layout, fragment=linear.rename(layout.fragment, new), digits=digits)


def addresses(layout: Tiled, pattern: Linear) -> Tiled:
    """Where the lanes of a collective load point, for the load to fill ``layout``.

    Some loads hand a lane's piece of memory to other lanes. ``pattern`` maps (register, lane) of
    the lane that gives an address, and element from that address on, to the (register, lane)
    that gets it. The result is the placement that the addressing lanes *would* hold; its vectors
    must lie in memory in one piece (:func:`~kittens.layouts.shared_cost` checks it). Stores are the same.
    """
    layout = absorb(layout)
    f = layout.fragment
    bits = {owner: linear.span(f.inputs, owner)[1] for owner in ("register", "lane", "group")}
    for owner in ("register", "lane"):
        if linear.span(pattern.outputs, owner)[1] > bits[owner]:
            raise ValueError(f"the load fills more {owner} bits than the {bits[owner]} of the layout")
    rest = tuple((owner, n - linear.span(pattern.outputs, owner)[1]) for owner, n in bits.items())
    return Tiled(linear.compose(f, _extend(pattern, rest, f.inputs)), layout.digits)


def _extend(pattern: Linear, rest: linear.Axes, axes: linear.Axes) -> Linear:
    """``pattern`` on the lowest bits of ``axes``, and the ``rest`` of the bits left as they are."""
    low = linear.project(pattern, ("register", "lane"))
    low = Linear(low.inputs, (*low.outputs, ("group", 0)), low.columns)
    return linear.product(low, linear.identity(rest))


def every_other(layout: Tiled, axis: str) -> Tiled:
    """Where the even elements along an axis live, and as well the odd ones, if each lane holds both of a pair: in register
    r of the result are registers 2r and 2r + 1 of ``layout``. A ValueError if lanes do not.
    """
    f = layout.fragment
    (first, bits), (lowest, extent) = linear.span(f.inputs, "register"), linear.span(f.outputs, axis)
    others = [c for i, c in enumerate(f.columns) if i != first]
    if not (bits and extent) or f.columns[first] != 1 << lowest or any(c >> lowest & 1 for c in others):
        raise ValueError(f"pairs along {axis} do not lie in neighbouring registers of {layout}")
    inputs = tuple((owner, n - (owner == "register")) for owner, n in f.inputs)
    outputs = tuple((a, n - (a == axis)) for a, n in f.outputs)
    columns = tuple(c & (1 << lowest) - 1 | c >> lowest + 1 << lowest for c in others)
    return Tiled(Linear(inputs, outputs, columns), layout.digits)


# ---------------------------------------------------------------------------------------------
# Vectors of neighbouring elements


@cache
def runs(layout: Tiled, axis: str, limit: int = 0) -> tuple[tuple[int, ...], ...]:
    """Registers of a lane in vectors: neighbours along ``axis``, aligned to their number.

    All vectors have the same power-of-two length, the longest that every lane can keep (at most
    ``limit`` if given). Each lists the registers from the lowest coordinate up, so a wide load
    fills exactly these registers.
    """
    where = table(layout)
    which = layout.axes.index(axis)
    others = np.delete(where, which, axis=-1)
    along = where[..., which]
    length = limit or 1 << (layout.extent(axis).bit_length() - 1)
    while length > 1:
        found = _runs_of(along, others, length)
        if found:
            return found
        length //= 2
    return tuple((r,) for r in range(layout.registers))


def _runs_of(along: Any, others: Any, length: int) -> tuple[tuple[int, ...], ...]:
    """Vectors of exactly ``length`` registers, or nothing."""
    first = [r for r in range(along.shape[-1]) if not (along[..., r] % length).any()]
    if len(first) * length != along.shape[-1]:
        return ()
    free = [r for r in range(along.shape[-1]) if r not in first]
    found = []
    for start in first:
        vector = [start]
        for offset in range(1, length):
            for r in free:
                if (along[..., r] == along[..., start] + offset).all() and (
                    others[..., r, :] == others[..., start, :]
                ).all():
                    vector.append(r)
                    free.remove(r)
                    break
            else:
                return ()
        found.append(tuple(vector))
    return tuple(found)


def vector_width(layout: Tiled, axis: str) -> int:
    """Elements next to each other along ``axis`` that a lane can load or store at once."""
    return len(runs(layout, axis)[0])


# ---------------------------------------------------------------------------------------------
# Layouts of kernels without matrix products


def blocked(shape: Sequence[int], *, vector: int, lanes: int, groups: int = 1) -> Tiled:
    """A placement for elementwise work on a 1-D or 2-D tile.

    A lane holds ``vector`` neighbours along the last axis (16 bytes' worth is usual); a row goes
    to as few lanes as hold it in one vector each (and repeats in registers where even all lanes
    do not), the other lanes and the groups take further rows. What divides no further is repeated
    in registers; lanes and groups left without work hold copies.
    """
    if vector & vector - 1 or lanes & lanes - 1:
        raise ValueError(f"vector {vector} and lanes {lanes} must be powers of two")
    axes = ("row", "col")[-len(shape) :]
    rows, columns = (1, *shape)[-2:]
    vector = min(vector, columns & -columns)
    across = min(lanes, (columns // vector) & -(columns // vector))
    down = min(lanes // across, rows & -rows)
    bits = [n.bit_length() - 1 for n in (vector, across, down, lanes // (across * down))]
    words = [f"c{i}" for i in range(bits[0] + bits[1])]
    words_down = [f"r{i}" for i in range(bits[2])]
    lane = " ".join(words[bits[0] :] + words_down + ["."] * bits[3])
    f = linear.fragment(" ".join(words[: bits[0]]), lane, axes=axes)
    rows, columns = rows // down, columns // (vector * across)
    down_groups = math.gcd(rows, groups)
    across_groups = math.gcd(columns, groups // down_groups)
    digits = [Digit("group", "col", across_groups)]
    if "row" in axes:
        digits.append(Digit("group", "row", down_groups))
    else:
        down_groups = 1
    digits.append(Digit("group", None, groups // (down_groups * across_groups)))
    digits.append(Digit("register", "col", columns // across_groups))
    if "row" in axes:
        digits.append(Digit("register", "row", rows // down_groups))
    return Tiled(f, tuple(digits))
