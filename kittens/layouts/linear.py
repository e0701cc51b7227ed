"""Linear maps over bits (the field F2), with named axes.

A map sends the bits of its input coordinates to the bits of its output coordinates:
``f(x ^ y) == f(x) ^ f(y)``, so it is known by the image of each input bit. Those images are the
*columns*, kept as Python ints: a map is a small hashable value, and elimination is integer xor.

Bits of several axes are packed into one int, the first axis lowest ("packed" below).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Axes = tuple[tuple[str, int], ...]
"""Axis names, each with its number of bits; the first axis holds the lowest bits when packed."""

Ints = TypeVar("Ints", int, Any)
"""An int or a NumPy integer array."""


@dataclass(frozen=True)
class Linear:
    """An F2-linear map; ``columns[i]`` is the packed image of packed input bit ``i``."""

    inputs: Axes
    outputs: Axes
    columns: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.columns) != width(self.inputs):
            raise ValueError(f"{len(self.columns)} columns for {width(self.inputs)} input bits")
        if any(not 0 <= c < 1 << width(self.outputs) for c in self.columns):
            raise ValueError(f"a column has bits beyond the {width(self.outputs)} output bits")

    def __call__(self, **coordinates: Any) -> tuple[Any, ...]:
        """Output coordinates, in the order of ``outputs``; inputs left out are 0. Ints or arrays."""
        return unpack(self.outputs, self.packed(pack(self.inputs, coordinates)))

    def packed(self, x: Ints) -> Ints:
        """The map on packed coordinates (an int, or an integer array)."""
        return xor_columns(self.columns, x)

    def bits(self, axis: str) -> tuple[int, ...]:
        """Columns of one input axis."""
        start, count = span(self.inputs, axis)
        return self.columns[start : start + count]

    def part(self, source: str, target: str) -> tuple[int, ...]:
        """For each bit of input axis ``source``, its image in output axis ``target`` alone."""
        start, count = span(self.outputs, target)
        return tuple(column >> start & (1 << count) - 1 for column in self.bits(source))


# ---------------------------------------------------------------------------------------------
# Axes


def width(axes: Axes) -> int:
    """Bits of all axes together."""
    return sum(count for _, count in axes)


def span(axes: Axes, name: str) -> tuple[int, int]:
    """(position of the lowest bit, number of bits) of one axis; no bits if it is absent."""
    start = 0
    for axis, count in axes:
        if axis == name:
            return start, count
        start += count
    return start, 0


def pack(axes: Axes, coordinates: Mapping[str, Any]) -> Any:
    """One int (or array) of all coordinates; absent ones are 0."""
    unknown = set(coordinates) - {axis for axis, _ in axes}
    if unknown:
        raise ValueError(f"no axis {', '.join(sorted(unknown))} among {[a for a, _ in axes]}")
    value: Any = 0
    for axis, _ in axes:
        if axis in coordinates:
            value = value | (coordinates[axis] << span(axes, axis)[0])
    return value


def unpack(axes: Axes, value: Any) -> tuple[Any, ...]:
    """The coordinates of a packed int (or array), in the order of the axes."""
    return tuple(value >> span(axes, axis)[0] & (1 << count) - 1 for axis, count in axes)


def xor_columns(columns: Iterable[int], x: Ints) -> Ints:
    """Xor of the columns whose bit is set in ``x``."""
    value = x & 0
    for i, column in enumerate(columns):
        value = value ^ ((x >> i & 1) * column)
    return value


# ---------------------------------------------------------------------------------------------
# Building


def identity(axes: Axes) -> Linear:
    """The map that changes nothing."""
    return Linear(axes, axes, tuple(1 << i for i in range(width(axes))))


def fragment(register: str, lane: str, group: str = "", *, axes: tuple[str, ...] = ("row", "col")) -> Linear:
    """A placement written bit by bit: (register, lane, group) -> ``axes``.

    Each word says which coordinate bit an input bit counts, lowest bit first: ``r3`` is the row
    bit worth 8, ``c0`` the lowest column bit, ``.`` nothing (the slot holds a copy), and
    ``r0^c1`` both. Letters are the first letters of the axes; an axis is as large as its highest
    bit written. ``fragment("c0 r3", "c1 c2 r0 r1 r2")`` is a 16x8 tile.
    """
    letters = {axis[0]: axis for axis in axes}
    words = {"register": register.split(), "lane": lane.split(), "group": group.split()}
    terms = [t for ws in words.values() for w in ws if w != "." for t in w.split("^")]
    counts = dict.fromkeys(axes, 0)
    for term in terms:
        if term[0] not in letters or not term[1:].isdigit():
            raise ValueError(f"{term!r} is not a bit of {' or '.join(axes)}, like {axes[0][0]}0")
        counts[letters[term[0]]] = max(counts[letters[term[0]]], int(term[1:]) + 1)
    outputs = tuple(counts.items())

    def column(word: str) -> int:
        value = 0
        for term in word.split("^") if word != "." else ():
            value ^= 1 << span(outputs, letters[term[0]])[0] + int(term[1:])
        return value

    inputs = tuple((owner, len(ws)) for owner, ws in words.items())
    return Linear(inputs, outputs, tuple(column(w) for ws in words.values() for w in ws))


def spell(f: Linear) -> dict[str, str]:
    """The words of :func:`fragment` for each input axis of ``f``."""
    names = [f"{axis[0]}{i}" for axis, count in f.outputs for i in range(count)]
    return {
        axis: " ".join("^".join(n for i, n in enumerate(names) if c >> i & 1) or "." for c in f.bits(axis))
        for axis, _ in f.inputs
    }


# ---------------------------------------------------------------------------------------------
# Algebra


def compose(outer: Linear, inner: Linear) -> Linear:
    """``outer`` after ``inner``; the axes between them must be the same."""
    if outer.inputs != inner.outputs:
        raise ValueError(f"cannot feed {inner.outputs} to a map of {outer.inputs}")
    return Linear(inner.inputs, outer.outputs, tuple(outer.packed(c) for c in inner.columns))


def echelon(vectors: Iterable[int]) -> tuple[int, ...]:
    """The reduced basis of a span, highest leading bit first: no other vector has that bit."""
    basis: list[int] = []
    for vector in vectors:
        vector = reduce_by(basis, vector)
        if vector:
            top = vector.bit_length() - 1
            basis = [b ^ vector if b >> top & 1 else b for b in basis] + [vector]
    return tuple(sorted(basis, reverse=True))


def reduce_by(basis: Sequence[int], x: Ints) -> Ints:
    """``x`` modulo the span: for a reduced basis, the smallest member of its coset (linear in x)."""
    for vector in basis:
        x = x ^ ((x >> vector.bit_length() - 1 & 1) * vector)
    return x


def rank(f: Linear) -> int:
    """Dimension of the image."""
    return len(echelon(f.columns))


def kernel(f: Linear) -> tuple[int, ...]:
    """Reduced basis of the packed inputs that map to 0."""
    n = width(f.inputs)
    rows = echelon(column << n | 1 << i for i, column in enumerate(f.columns))
    return echelon(row for row in rows if row < 1 << n)


def is_injective(f: Linear) -> bool:
    """No two slots hold the same element."""
    return rank(f) == width(f.inputs)


def is_surjective(f: Linear) -> bool:
    """Every element has a slot."""
    return rank(f) == width(f.outputs)


def invert(f: Linear) -> Linear:
    """A right inverse: ``compose(f, invert(f))`` is the identity.

    The two-sided inverse where ``f`` is one to one. Where several inputs reach an output
    (copies), the smallest packed input is taken.
    """
    if not is_surjective(f):
        raise ValueError(f"not invertible: reaches {rank(f)} of {width(f.outputs)} output bits")
    n = width(f.inputs)
    rows = echelon(column << n | 1 << i for i, column in enumerate(f.columns))
    copies = kernel(f)
    preimage = {row >> n: reduce_by(copies, row & (1 << n) - 1) for row in rows if row >= 1 << n}
    return Linear(f.outputs, f.inputs, tuple(preimage[1 << i] for i in range(width(f.outputs))))


def product(low: Linear, high: Linear) -> Linear:
    """Both side by side: on each axis the bits of ``high`` stand above those of ``low``."""
    inputs, outputs = _stack(low.inputs, high.inputs), _stack(low.outputs, high.outputs)
    columns = []
    for axis, _ in inputs:
        for f, above in ((low, False), (high, True)):
            for column in f.bits(axis):
                value = 0
                for (out, _), part in zip(f.outputs, unpack(f.outputs, column), strict=True):
                    lift = span(low.outputs, out)[1] if above else 0
                    value |= part << span(outputs, out)[0] + lift
                columns.append(value)
    return Linear(inputs, outputs, tuple(columns))


def _stack(low: Axes, high: Axes) -> Axes:
    names = [axis for axis, _ in low] + [axis for axis, _ in high if axis not in dict(low)]
    return tuple((axis, dict(low).get(axis, 0) + dict(high).get(axis, 0)) for axis in names)


def quotient(f: Linear, low: Linear) -> Linear:
    """The map ``q`` with ``f == product(low, q)``; a ValueError if ``low`` does not divide ``f``."""
    inputs, outputs = _unstack(f.inputs, low.inputs), _unstack(f.outputs, low.outputs)
    columns = []
    for axis, _ in inputs:
        for column in f.bits(axis)[span(low.inputs, axis)[1] :]:
            value = 0
            for (out, _), part in zip(f.outputs, unpack(f.outputs, column), strict=True):
                value |= part >> span(low.outputs, out)[1] << span(outputs, out)[0]
            columns.append(value)
    q = Linear(inputs, outputs, tuple(columns))
    if product(low, q) != f:
        raise ValueError(f"{low} does not divide {f}")
    return q


def _unstack(axes: Axes, low: Axes) -> Axes:
    if tuple(axis for axis, _ in axes)[: len(low)] != tuple(axis for axis, _ in low):
        raise ValueError(f"the axes {low} do not begin {axes}")
    if any(span(axes, axis)[1] < count for axis, count in low):
        raise ValueError(f"the axes {low} are larger than {axes}")
    return tuple((axis, count - span(low, axis)[1]) for axis, count in axes)


def project(f: Linear, axes: Sequence[str]) -> Linear:
    """``f`` with only the output axes named, in that order."""
    outputs = tuple((axis, span(f.outputs, axis)[1]) for axis in axes)
    columns = tuple(
        pack(outputs, {a: v for (a, _), v in zip(f.outputs, unpack(f.outputs, c), strict=True) if a in axes})
        for c in f.columns
    )
    return Linear(f.inputs, outputs, columns)


def rename(f: Linear, names: Mapping[str, str]) -> Linear:
    """``f`` with output axes renamed; the order of the axes stays."""
    return Linear(f.inputs, tuple((names.get(a, a), n) for a, n in f.outputs), f.columns)
