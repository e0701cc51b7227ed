"""A matrix instruction as data: its shape and the fragments of its three matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from . import linear
from .linear import Linear


class Shape(NamedTuple):
    """Sizes of D[m, n] += A[m, k] B[k, n]."""

    m: int
    n: int
    k: int


@dataclass(frozen=True)
class Product:
    """One matrix instruction: D[row, col] += A[row, k] B[k, col], all axes named (row, col).

    ``a``, ``b``, ``d`` place one group's operands (or, with group bits, those of the groups that
    issue it together); ``b`` is None where the instruction reads B from shared memory alone.
    ``dtypes`` are the operand types it takes in this layout, ``accumulator`` the type of D,
    ``targets`` the architectures that have it, ``source`` where the map is from.
    """

    name: str
    a: Linear
    b: Linear | None
    d: Linear
    dtypes: tuple[str, ...]
    accumulator: str
    targets: tuple[str, ...]
    source: str

    @property
    def shape(self) -> Shape:
        """(m, n, k) of one instruction."""
        (_, m), (_, k) = self.a.outputs
        (_, n) = self.d.outputs[1]
        return Shape(1 << m, 1 << n, 1 << k)

    def __post_init__(self) -> None:
        (_, m), (_, k) = self.a.outputs
        if self.d.outputs[0][1] != m or (self.b and self.b.outputs[0][1] != k):
            raise ValueError(f"{self.name}: the fragments' sizes do not make a product")
        if self.b and self.b.outputs[1] != self.d.outputs[1]:
            raise ValueError(f"{self.name}: the fragments' sizes do not make a product")
        if not all(linear.is_surjective(f) for f in (self.a, self.b, self.d) if f):
            raise ValueError(f"{self.name}: a fragment leaves elements without a slot")
