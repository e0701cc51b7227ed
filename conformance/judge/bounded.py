"""A tile as the judge knows it: what the value is, and how far an honest implementation may be from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kittens.dtypes import Array, DType
from kittens.errors import KittensError

#: A bound that stands for "zero, of either sign". Smaller than any other bound.
SIGN = 5e-324

#: The bound of an exact scalar: one object, so that the many scalars of index arithmetic cost little.
NOTHING = np.zeros(())
NOTHING.flags.writeable = False

#: Unit roundoff of float64, in which the judge itself computes.
ORACLE = 2.0**-53


class Unjudgeable(KittensError, RuntimeError):
    """A case whose results no error bound can tell right from wrong: the fault is the case's."""


@dataclass(frozen=True)
class Bounded:
    """Elements `v` (float64 for floats and scales, else of the dtype itself), each with a bound `e` >= 0 on
    the error.

    e == 0: every implementation holds exactly v, down to the sign of zero. e == SIGN: v is a zero of either
    sign. e == inf: nothing is known, NaN included. A float with e == 0 is a number of its dtype; otherwise v
    is not rounded. A bool with e > 0 may be either; an integer lies within e.
    """

    dtype: DType
    v: Array
    e: Array

    @property
    def exact(self) -> bool:
        return self.e is NOTHING or not self.e.any()

    @property
    def certain(self) -> Array:
        """Which elements are exactly known."""
        return self.e == 0

    def low(self) -> Array:
        return np.asarray(self.v - self.e)

    def high(self) -> Array:
        return np.asarray(self.v + self.e)


def exactly(dtype: DType, v: Array) -> Bounded:
    """Elements without error."""
    shape = np.shape(v)
    return Bounded(dtype, v, np.zeros(shape) if shape else NOTHING)
