"""Index arithmetic as text: expressions that mean the same in C-like languages and Python.

Operands are non-negative ints. ``/`` is integer division. The same text serves every emitter, so
a layout has one source of truth; ``tests/test_layouts_expressions.py`` evaluates it back.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from . import linear
from .convert import LaneForm
from .shared import AXES, Shared, _element_map
from .tiled import Tiled, absorb, coordinates


class Term(NamedTuple):
    """The bits of ``name`` in ``mask``, moved left by ``shift`` (right if negative).

    ``known`` is the number of bits that ``name`` can have set.
    """

    name: str
    shift: int
    mask: int
    known: int

    @property
    def bits(self) -> int:
        """Bits that the term may set."""
        return self.mask << self.shift if self.shift >= 0 else self.mask >> -self.shift

    @property
    def text(self) -> str:
        """The term as an expression, without the mask where it changes nothing."""
        if self.shift < 0:
            rest, value = self.mask >> -self.shift, f"{self.name} >> {-self.shift}"
            return value if rest == (1 << self.known + self.shift) - 1 else f"({value}) & {rest}"
        value = self.name if self.mask == (1 << self.known) - 1 else f"{self.name} & {self.mask}"
        return f"{_guard(value)} << {self.shift}" if self.shift else value


def bits_expression(columns: Sequence[int], name: str, known: int | None = None) -> str:
    """The xor of ``columns`` over the set bits of variable ``name``, as shifts and masks.

    ``known`` is the number of bits that ``name`` can have set (``len(columns)`` unless given;
    more bits are masked off). ``"0"`` if no column moves anything.
    """
    return _add(_sums(_terms(columns, name, len(columns) if known is None else known)))


def _terms(columns: Sequence[int], name: str, known: int) -> list[Term]:
    """Terms to be xored, one for each distance that bits are moved."""
    masks: dict[int, int] = defaultdict(int)
    for i, column in enumerate(columns):
        for j in range(column.bit_length()):
            if column >> j & 1:
                masks[j - i] |= 1 << i
    return [Term(name, shift, mask, known) for shift, mask in masks.items()]


def _parts(terms: Sequence[Term]) -> list[list[Term]]:
    """Terms in sets that set the same bits; different sets set different ones."""
    parts: list[list[Term]] = []
    for term in terms:
        meeting = [p for p in parts if any(term.bits & t.bits for t in p)]
        parts = [p for p in parts if p not in meeting] + [[*(t for p in meeting for t in p), term]]
    return parts


def _sums(terms: Sequence[Term]) -> list[str]:
    """Expressions whose sum is the xor of all terms: ``^`` only where bits meet."""
    return [
        part[0].text if len(part) == 1 else " ^ ".join(_guard(t.text) for t in part) for part in _parts(terms)
    ]


def _moved(columns: Sequence[int]) -> int:
    """Bits that any of the columns sets."""
    bits = 0
    for column in columns:
        bits |= column
    return bits


def _guard(text: str) -> str:
    """Parentheses unless the text is one name or number."""
    return text if text.isidentifier() or text.isdigit() else f"({text})"


def _add(terms: Sequence[str]) -> str:
    terms = [t for t in terms if t != "0"]
    return " + ".join(t if len(terms) == 1 else _guard(t) for t in terms) or "0"


def _digit(name: str, below: int, size: int, total: int, step: int) -> str:
    """Digit ``name / below % size`` of a number less than ``total``, times ``step``."""
    text = name
    if below > 1:
        power = below & below - 1 == 0
        text = f"{text} >> {below.bit_length() - 1}" if power else f"{text} / {below}"
    if below * size < total:
        power = size & size - 1 == 0
        text = f"{_guard(text)} & {size - 1}" if power else f"{_guard(text)} % {size}"
    return text if step == 1 else f"{_guard(text)} * {step}"


def lane_expression(form: LaneForm, lane: str = "lane") -> str:
    """A :class:`LaneForm` of a conversion's step."""
    return _xor_constant(_terms(form.columns, lane, len(form.columns)), form.constant)


def _xor_constant(terms: Sequence[Term], constant: int) -> str:
    """The terms xored with a constant."""
    sums = _sums(terms)
    if constant & _moved([term.bits for term in terms]):
        return f"{_guard(_add(sums))} ^ {constant}"
    return _add([*sums, str(constant)])


# ---------------------------------------------------------------------------------------------
# Registers


@cache
def base_expression(layout: Tiled, axis: str, lane: str = "lane", group: str = "group") -> str:
    """Coordinate along ``axis`` of register 0, in terms of the lane and the group."""
    return coordinate_expression(layout, axis, 0, lane, group)


@cache
def register_offsets(layout: Tiled, axis: str) -> tuple[int, ...] | None:
    """What each register adds to the coordinate of register 0; None if it is not the same everywhere."""
    f = layout.fragment
    moved = _moved(f.part("lane", axis) + f.part("group", axis))
    if any(column & moved for column in f.part("register", axis)):
        return None
    along = coordinates(layout, 0, 0, np.arange(layout.registers))[layout.axes.index(axis)]
    return tuple(np.broadcast_to(along, layout.registers).tolist())


@cache
def coordinate_expression(
    layout: Tiled, axis: str, register: int, lane: str = "lane", group: str = "group"
) -> str:
    """Coordinate along ``axis`` of a slot, for a constant register."""
    layout = absorb(layout)
    f = layout.fragment
    group_bits = linear.span(f.inputs, "group")[1]
    more_groups = layout.groups >> group_bits > 1
    terms: list[Term] = []
    for owner, name in (("lane", lane), ("group", group)):
        columns = f.part(owner, axis)
        known = len(columns) + (1 if owner == "group" and more_groups else 0)
        terms += _terms(columns, name, known)

    # Digits: registers give constants, groups give terms; both stand above the fragment's bits.
    register_bits = linear.span(f.inputs, "register")[1]
    constant = linear.xor_columns(f.part("register", axis), register & (1 << register_bits) - 1)
    high, added, sums = register >> register_bits, 0, []
    step = 1 << linear.span(f.outputs, axis)[1]
    below = 1 << group_bits
    for owner, along, size in layout.digits:
        if owner == "register":
            added += high % size * step if along == axis else 0
            high //= size
        else:
            if along == axis:
                sums.append(_digit(group, below, size, layout.groups, step))
            below *= size
        step *= size if along == axis else 1
    if constant & _moved([term.bits for term in terms]):
        return _add([_xor_constant(terms, constant), *sums, str(added)])
    return _add([*_sums(terms), *sums, str(constant + added)])


# ---------------------------------------------------------------------------------------------
# Shared memory


def offset_expression(shared: Shared, row: str = "row", col: str = "col") -> str:
    """Byte offset of element (``row``, ``col``); both may be any expression."""
    names = dict(zip(AXES, (_guard(row), _guard(col)), strict=True))
    atom, digits = _absorb_shared(shared)
    extents = dict(zip(AXES, shared.shape, strict=True))
    terms: list[Term] = []
    for axis in AXES:
        columns = atom.bits(axis)
        known = max((extents[axis] - 1).bit_length(), len(columns))
        terms += _terms(columns, names[axis], known)
    step = 1 << linear.width(atom.outputs)
    below = {axis: 1 << n for axis, n in atom.inputs}
    sums = []
    for axis, size in digits:
        whole = below[axis] * size == extents[axis]
        ending = _ending(terms, names[axis], below[axis], step) if whole else None
        if ending:  # the digit goes on where this term ends: without its mask, the term says both
            terms[terms.index(ending)] = ending._replace(mask=(1 << ending.known) - 1)
        else:
            sums.append(_digit(names[axis], below[axis], size, extents[axis], step))
        below[axis] *= size
        step *= size
    every, extra = shared.pad
    if every == shared.shape[1] * shared.itemsize:  # padded rows: the row number is at hand
        sums.append(f"{names['row']} * {extra}")
    text = _add([*_sums(terms), *sums])
    return (
        text
        if every in (0, shared.shape[1] * shared.itemsize)
        else f"{text} + {_guard(text)} / {every} * {extra}"
    )


def element_expressions(shared: Shared, unit: int, number: str = "number") -> tuple[str, str]:
    """(row, col) of the element at byte ``number * unit`` of a tile without padding: a swizzle's way back."""
    atom, digits = _absorb_shared(shared)
    back, shift = _element_map(atom), unit.bit_length() - 1
    total = shared.size // unit
    below = 1 << linear.width(atom.outputs) - shift
    known = max((total - 1).bit_length(), below.bit_length() - 1)
    sums = {axis: _sums(_terms(back.part("offset", axis)[shift:], number, known)) for axis in AXES}
    step = {axis: 1 << n for axis, n in atom.inputs}
    for axis, size in digits:
        sums[axis].append(_digit(number, below, size, total, step[axis]))
        step[axis] *= size
        below *= size
    return _add(sums["row"]), _add(sums["col"])


def _ending(terms: Sequence[Term], name: str, below: int, step: int) -> Term | None:
    """The term of all bits of ``name`` under ``below`` that ends just under ``step``, if unxored."""
    for part in _parts(terms):
        term = part[0]
        if len(part) == 1 and (term.name, term.mask, below << term.shift) == (name, below - 1, step):
            return term
    return None


def _absorb_shared(shared: Shared) -> tuple[linear.Linear, tuple[tuple[str, int], ...]]:
    """The atom with the leading power-of-two digits made bits of it, and the digits left."""
    atom, digits = shared.atom, list(shared.digits)
    while digits:
        axis, size = digits[0]
        power = size & -size
        bits = power.bit_length() - 1
        atom = linear.product(
            atom,
            linear.Linear(((axis, bits),), (("offset", bits),), tuple(1 << i for i in range(bits))),
        )
        if size > power:
            digits[0] = (axis, size // power)
            break
        digits.pop(0)
    return atom, tuple(digits)
