"""Moving a tile from one placement to another, and when nothing needs to move.

:func:`conversion` names the cheapest way that works and gives its recipe. :func:`feeds` says
whether an accumulator can be an operand of the next product as it lies, if that product's other
operand is read with its inner dimension permuted.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from . import linear
from .linear import Linear
from .tiled import Tiled, absorb, elements, table

Kind = Literal["free", "registers", "shuffle", "shared"]


@dataclass(frozen=True)
class LaneForm:
    """A number that depends on the lane: ``constant`` xor the columns of the lane's set bits."""

    constant: int
    columns: tuple[int, ...]

    def __call__(self, lane: Any) -> Any:
        """The value in a lane (an int, or an array of lanes)."""
        return linear.xor_columns(self.columns, lane) ^ self.constant

    @property
    def xor_mask(self) -> int | None:
        """``m`` if the value is ``lane ^ m`` in every lane."""
        return self.constant if self.columns == _unit(len(self.columns)) else None


@dataclass(frozen=True)
class Step:
    """One shuffle: every lane offers one register, and takes what another lane offers.

    Lane ``l`` offers ``sources[send(l)]`` of the old registers, takes from lane ``take(l)``, and
    keeps the value as register ``targets[keep(l)]`` of the new ones. A ``send`` or ``keep`` without
    columns is a constant; otherwise it is a selection by bits of the lane. ``take.xor_mask`` is 0
    where the value stays in its lane and no shuffle is needed.
    """

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    send: LaneForm
    take: LaneForm
    keep: LaneForm


@dataclass(frozen=True)
class Conversion:
    """How to move a tile. ``registers``: new register ``r`` is old register ``registers[r]``."""

    kind: Kind
    registers: tuple[int, ...] = ()
    steps: tuple[Step, ...] = ()
    reason: str = ""

    @property
    def shuffles(self) -> int:
        """Values that cross lanes, per lane."""
        return sum(step.take.xor_mask != 0 for step in self.steps)


def conversion(source: Tiled, target: Tiled) -> Conversion:
    """The cheapest way from ``source`` to ``target``, two placements of the same tile.

    ``free``: every lane already holds the right registers in the right order. ``registers``: they
    need renaming. ``shuffle``: lanes of a group exchange values. ``shared``: through shared
    memory, with the reason why nothing less does.
    """
    if source.shape != target.shape:
        raise ValueError(f"a tile of {source.shape} cannot become one of {target.shape}")
    if (source.lanes, source.groups) != (target.lanes, target.groups):
        return Conversion("shared", reason="different lanes or groups")
    moves = _moves(elements(source), elements(target))
    if moves is None:
        return Conversion("shared", reason="elements cross groups")
    register, lane = moves
    if (lane == np.arange(source.lanes)[:, None]).all() and (register == register[0]).all():
        chosen = tuple(int(r) for r in register[0])
        return Conversion("free" if chosen == tuple(range(len(chosen))) else "registers", chosen)
    steps: list[Step] = []
    copies = _lane_copies(elements(source))
    for targets in _components(register):
        found = _exchange(register, lane, targets, copies)
        if not found:
            return Conversion("shared", reason="lanes exchange values in no linear pattern")
        steps += found
    return Conversion("shuffle", steps=tuple(steps))


def renaming(source: Tiled, target: Tiled) -> tuple[int, ...] | None:
    """Which old register each new one is, if every lane holds what it needs; None if elements must move.

    What :func:`conversion` finds first, without the search for shuffles that it goes on with.
    """
    if (source.shape, source.lanes, source.groups) != (target.shape, target.lanes, target.groups):
        return None
    have, want = elements(source), elements(target)
    known = {have[:, :, r].tobytes(): r for r in reversed(range(source.registers))}
    chosen = [known.get(want[:, :, r].tobytes()) for r in range(target.registers)]
    return tuple(r for r in chosen if r is not None) if None not in chosen else None


def apply(plan: Conversion, values: npt.NDArray[Any], registers: int) -> npt.NDArray[Any]:
    """Carry out a recipe on ``values[group, lane, register]``: what the emitted code must do."""
    if plan.kind == "shared":
        raise ValueError("a trip through shared memory has no recipe of registers and lanes")
    if plan.kind != "shuffle":
        return values[..., list(plan.registers)]
    lanes = np.arange(values.shape[1])
    result = np.zeros((*values.shape[:2], registers), values.dtype)
    for step in plan.steps:
        offered = values[:, lanes, np.array(step.sources)[step.send(lanes)]]
        result[:, lanes, np.array(step.targets)[step.keep(lanes)]] = offered[:, step.take(lanes)]
    return result


def _unit(bits: int) -> tuple[int, ...]:
    return tuple(1 << i for i in range(bits))


def _moves(source: Any, target: Any) -> tuple[Any, Any] | None:
    """For each target [lane, register]: its (source register, source lane), equal in all groups."""
    groups, lanes = source.shape[:2]
    slots: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for lane in range(lanes):
        for r, element in enumerate(source[0, lane].tolist()):
            slots[element].append((lane, r))
    register = np.zeros(target.shape[1:], np.int64)
    origin = np.zeros(target.shape[1:], np.int64)
    for lane in range(lanes):
        for r, element in enumerate(target[0, lane].tolist()):
            if element not in slots:
                return None
            # Of copies take the nearest lane, then the nearest register: a linear choice.
            origin[lane, r], register[lane, r] = min(
                slots[element], key=lambda slot: (slot[0] ^ lane, slot[1] ^ r)
            )
    if any((source[g, origin, register] != target[g]).any() for g in range(groups)):
        return None
    return register, origin


def _lane_copies(source: Any) -> list[int]:
    """The masks ``m`` for which lane ``l ^ m`` holds in every register what lane ``l`` does."""
    lanes = np.arange(source.shape[1])
    return [m for m in range(len(lanes)) if (source[:, lanes ^ m] == source).all()]


def _components(register: Any) -> list[tuple[int, ...]]:
    """Sets of target registers that draw on the same source registers, in some lane."""
    owner: dict[int, int] = {}
    parent = list(range(register.shape[1]))

    def root(x: int) -> int:
        while parent[x] != x:
            x = parent[x]
        return x

    for r in range(register.shape[1]):
        for s in set(register[:, r].tolist()):
            first = owner.setdefault(s, r)
            a, b = sorted((root(first), root(r)))
            parent[b] = a
    sets: dict[int, list[int]] = defaultdict(list)
    for r in range(register.shape[1]):
        sets[root(r)].append(r)
    return [tuple(members) for members in sets.values()]


def _exchange(register: Any, lane: Any, targets: tuple[int, ...], copies: list[int]) -> list[Step]:
    """Shuffles that fill ``targets``, or nothing if they follow no linear pattern.

    With registers numbered inside the set, the source (register, lane) of a target (register,
    lane) is affine over bits. Going lane by lane along the diagonal ``register = j ^ E(lane)``, a
    step can serve all lanes at once if lanes that take from the same lane take the same register.
    E is searched bit by bit, preferring lanes that differ by a mask; where lanes hold ``copies``,
    any of them may give.
    """
    lanes = lane.shape[0]
    lane_bits, bits = lanes.bit_length() - 1, len(targets).bit_length() - 1
    sources = tuple(sorted(set(register[:, targets].ravel().tolist())))
    place = {r: i for i, r in enumerate(sources)}
    lift = lane_bits  # a source is packed as (lane, register): register above lane

    def origin(l: int, j: int) -> int:
        return int(lane[l, targets[j]]) | place[int(register[l, targets[j]])] << lift

    start = origin(0, 0)
    by_lane = [origin(1 << i, 0) ^ start for i in range(lane_bits)]
    by_register = [origin(0, 1 << i) ^ start for i in range(bits)]
    for j in range(len(targets)):
        for l in range(lanes):
            predicted = linear.xor_columns(by_lane, l) ^ linear.xor_columns(by_register, j)
            if len(targets) != 1 << bits or origin(l, j) != predicted ^ start:
                return []

    def diagonal(chosen: list[int], images: list[int]) -> tuple[list[int], list[int]] | None:
        if len(chosen) == lane_bits:
            return chosen, images
        i = len(chosen)
        options = [
            (by_lane[i] ^ linear.xor_columns(by_register, e) ^ copy, e)
            for e in range(1 << bits)
            for copy in copies
        ]
        for image, e in sorted(options, key=lambda o: (o[0] & lanes - 1 != 1 << i, o[1])):
            # Refuse if some lanes would take different registers from one lane.
            spanned = linear.echelon([*(_swap(v, lift) for v in images), _swap(image, lift)])
            if all(v >> _TOP for v in spanned):
                found = diagonal([*chosen, e], [*images, image])
                if found is not None:
                    return found
        return None

    found = diagonal([], [])
    if found is None:
        return []
    e, images = found
    take_columns = tuple(image & lanes - 1 for image in images)
    send_columns = _through(images, lane_bits)
    steps = []
    for j in range(len(targets)):
        first = start ^ linear.xor_columns(by_register, j)
        take = LaneForm(first & lanes - 1, take_columns)
        send = LaneForm(first >> lift ^ linear.xor_columns(send_columns, take.constant), send_columns)
        steps.append(Step(sources, targets, _tidy(send), take, _tidy(LaneForm(j, tuple(e)))))
    return steps


_TOP = 32
"""Where :func:`_swap` puts the lane: above any register number."""


def _swap(packed: int, lift: int) -> int:
    """(lane, register) with the lane on top, so that elimination meets it first."""
    return (packed & (1 << lift) - 1) << _TOP | packed >> lift


def _through(images: list[int], lane_bits: int) -> tuple[int, ...]:
    """Columns of the map that sends the lane part of each image to its register part."""
    rows = linear.echelon(_swap(image, lane_bits) for image in images)
    pivots = {(row >> _TOP).bit_length() - 1: row & (1 << _TOP) - 1 for row in rows}
    # Reduced rows: a lane in the span is the sum of the rows of its pivot bits.
    return tuple(pivots.get(i, 0) for i in range(lane_bits))


def _tidy(form: LaneForm) -> LaneForm:
    return form if any(form.columns) else LaneForm(form.constant, ())


class Exchange(NamedTuple):
    """Every lane with ``lane & lane_mask == 0`` and its partner ``lane ^ lane_mask`` trade registers.

    For each register ``r`` without the bit ``register_mask``: the first keeps ``r`` and the second
    ``r | register_mask``; the first's ``r | register_mask`` and the second's ``r`` change places.
    """

    register_mask: int
    lane_mask: int


def exchanges(source: Tiled, target: Tiled) -> tuple[tuple[Exchange, ...], tuple[int, ...]] | None:
    """A conversion by exchanging bits of the register with bits of the lane, one after the other.

    Then new register ``r`` is register ``registers[r]``, the second value. None unless the two
    placements differ by an order of their bits. Some targets exchange two registers in one
    instruction; elsewhere an exchange is half a shuffle and two selections a register.
    """
    now, goal = absorb(source), absorb(target)
    if source.shape != target.shape or now.digits != goal.digits:
        return None
    f, g = now.fragment, goal.fragment
    if f.inputs != g.inputs or f.bits("group") != g.bits("group") or not linear.is_injective(f):
        return None
    registers, lanes = list(f.bits("register")), list(f.bits("lane"))
    wanted = list(g.bits("lane"))
    if sorted(registers + lanes) != sorted([*g.bits("register"), *wanted]):
        return None
    rounds = []
    while lanes != wanted:
        wrong = [b for b, column in enumerate(wanted) if lanes[b] != column]
        ready = [b for b in wrong if wanted[b] in registers]  # one exchange puts it right
        if ready:
            rounds.append(_trade(registers, registers.index(wanted[ready[0]]), lanes, ready[0]))
        elif registers:
            rounds.append(_trade(registers, 0, lanes, wrong[0]))
        else:
            return None
    order = [registers.index(column) for column in g.bits("register")]
    low = 1 << len(order)
    renamed = tuple(
        r // low * low + sum((r >> i & 1) << bit for i, bit in enumerate(order))
        for r in range(target.registers)
    )
    return tuple(rounds), renamed


def _trade(registers: list[int], i: int, lanes: list[int], b: int) -> Exchange:
    registers[i], lanes[b] = lanes[b], registers[i]
    return Exchange(1 << i, 1 << b)


def apply_exchange(step: Exchange, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Carry out one exchange on ``values[group, lane, register]``."""
    lane, register = np.ogrid[: values.shape[1], : values.shape[2]]
    crosses = ((lane & step.lane_mask) != 0) != ((register & step.register_mask) != 0)
    other = values[:, lane ^ step.lane_mask, register ^ step.register_mask]
    return np.where(crosses, other, values)


# ---------------------------------------------------------------------------------------------
# Chained products


@dataclass(frozen=True)
class InnerOrder:
    """How an accumulator serves as an operand without moving.

    Operand register ``r`` is accumulator register ``registers[r]``; what the product then meets at
    inner index ``k`` is the accumulator's element ``order[k]``, so the other operand must be read
    at ``order[k]`` where it would be read at ``k``. The order repeats every ``block`` and is
    linear over bits inside: bit ``i`` of ``k`` counts ``columns[i]``.
    """

    registers: tuple[int, ...]
    order: tuple[int, ...]
    block: int
    columns: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        """The other operand is read as usual."""
        return self.block == 1


def feeds(accumulator: Tiled, operand: Tiled, inner: str = "col") -> InnerOrder | None:
    """Whether ``accumulator`` can be ``operand`` as it lies, up to an order of the axis ``inner``.

    Both place the same tile. None if some lane lacks an element it would need, or the order needed
    is not one and the same for the whole tile.
    """
    slots = ("shape", "lanes", "groups", "registers")
    if any(getattr(accumulator, s) != getattr(operand, s) for s in slots):
        return None
    i = operand.axes.index(inner)
    have, want = table(accumulator), table(operand)
    outer = [a for a in range(have.shape[-1]) if a != i]
    waiting: dict[bytes, list[int]] = defaultdict(list)
    for r in range(accumulator.registers):
        waiting[have[:, :, r][..., outer].tobytes()].append(r)
    chosen = []
    for r in range(operand.registers):
        matching = waiting[want[:, :, r][..., outer].tobytes()]
        if not matching:
            return None
        chosen.append(matching.pop(0))
    size = operand.extent(inner)
    order = np.full(size, -1)
    order[want[..., i].ravel()] = have[:, :, chosen, i].ravel()
    agrees = (order[want[..., i]] == have[:, :, chosen, i]).all()
    if not agrees or sorted(order.tolist()) != list(range(size)):
        return None
    return _inner_order(tuple(chosen), tuple(order.tolist()))


def _inner_order(registers: tuple[int, ...], order: tuple[int, ...]) -> InnerOrder | None:
    block = 1
    while block <= len(order):
        bits = block.bit_length() - 1
        columns = tuple(order[1 << i] for i in range(bits))
        if len(order) % block == 0 and all(
            order[k] == k - k % block + linear.xor_columns(columns, k % block) for k in range(len(order))
        ):
            return InnerOrder(registers, order, block, columns)
        block *= 2
    return None


def reorder(layout: Tiled, inner: str, order: InnerOrder) -> Tiled:
    """``layout`` with every element along ``inner`` replaced by the one that stands there in ``order``.

    This is the placement in which the other operand of :func:`feeds` is to be loaded.
    """
    layout = absorb(layout)
    f = layout.fragment
    start, bits = linear.span(f.outputs, inner)
    if 1 << bits < order.block:
        raise ValueError(f"{inner} is held in fragments of {1 << bits}, smaller than {order.block}")
    columns = list(linear.identity(f.outputs).columns)
    for i, column in enumerate(order.columns):
        columns[start + i] = column << start
    return Tiled(linear.compose(Linear(f.outputs, f.outputs, tuple(columns)), f), layout.digits)
