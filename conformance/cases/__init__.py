"""The cases, by theme. Each module has `cases()`, which yields them; arguments are made only when a case is
run.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator

from kittens.conformance.case import Case

#: The plan of the suite, one module a theme.
THEMES = (
    "elementwise",  # every arithmetic, comparison, bit, mathematical operation x dtype x special, ragged
    "conversions",  # every pair of dtypes with half-way points, all float8 codes; bitcasts
    "reductions",  # sum, max, min, argmax, any, all, cumsum x dtype x axis, with NaN, ties, infinities
    "products",  # mma of every operand type x transposes x shapes; block-scaled products; exact integers
    "memory",  # loads with padding, ragged stores, views, layouts, store_add, program ids
    "tiles",  # constants, arange, reshape, transpose, split, join, random bits
    "control",  # loops, branches, carried values, scalar parameters
    "library",  # every kernel of kittens.kernels over a sweep of shapes, also against textbook formulas
)


def generate() -> Iterator[Case]:
    """Every case of every theme, in order."""
    for theme in THEMES:
        yield from importlib.import_module(f"kittens.conformance.cases.{theme}").cases()


@functools.cache
def all_cases() -> dict[str, Case]:
    """Every case by its name."""
    table: dict[str, Case] = {}
    for case in generate():
        assert case.name not in table, f"two cases are called {case.name}"
        table[case.name] = case
    return table
