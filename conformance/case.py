"""A case: a kernel, its arguments and constants, and nothing about any target."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kittens.dtypes import Array, DType, as_dtype
from kittens.kernel import Kernel

#: How the elements of an argument lie in memory; see `kittens.conformance.buffers`.
LAYOUTS = ("plain", "transposed", "strided", "gapped", "reversed", "offset")


@dataclass(frozen=True)
class In:
    """An array that the kernel reads."""

    data: Array
    layout: str = "plain"


@dataclass(frozen=True)
class Out:
    """An array that the kernel writes and does not read: its first contents contradict what is expected."""

    dtype: DType
    shape: tuple[int, ...]
    layout: str = "plain"


@dataclass(frozen=True)
class InOut:
    """An array that the kernel changes."""

    data: Array
    layout: str = "plain"


Arg = In | Out | InOut | int | float | np.generic | None


@dataclass(frozen=True)
class Case:
    """One run of one kernel, judged.

    name: a path such as "elementwise/add/float32/ragged". make: the arguments, made anew (and the same) at
    each call. constants: the kernel's. cost: rough number of scalar operations. textbook: for kernels of the
    library, a function of the input arrays (as float64, scalars as they are) that gives {parameter: float64
    array} by the formula of the books. turns: whether programs wait for each other.
    """

    name: str
    kernel: Kernel
    make: Callable[[], dict[str, Arg]]
    constants: dict[str, Any] = field(default_factory=dict)
    cost: float = 0.0
    textbook: Callable[..., dict[str, Array]] | None = None
    needs: tuple[DType, ...] = ()
    group: str = ""
    turns: bool = False

    @property
    def dtypes(self) -> frozenset[DType]:
        """The element types that a target must have for this case."""
        args = self.make().values()
        own = [
            x.dtype if isinstance(x, Out) else as_dtype(x.data.dtype)
            for x in args
            if isinstance(x, (In, Out, InOut))
        ]
        return frozenset((*own, *self.needs))


def seeded(name: str) -> np.random.Generator:
    """A random generator that depends on a name alone."""
    return np.random.default_rng(list(name.encode()))


def select(cases: Iterable[Case], pattern: str | None = None, max_cost: float | None = None) -> list[Case]:
    """Cases whose name holds every word of `pattern` (words with * or ? are globs over the whole name), up to
    a cost.
    """
    words = (pattern or "").split()

    def fits(case: Case) -> bool:
        named = all(
            fnmatch.fnmatchcase(case.name, w) if set(w) & set("*?") else w in case.name for w in words
        )
        return named and (max_cost is None or case.cost <= max_cost)

    return [case for case in cases if fits(case)]
