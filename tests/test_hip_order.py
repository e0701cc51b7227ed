"""The order of programs on devices of several parts: a permutation that gives each part neighbours."""

from __future__ import annotations

import pytest


def dealt(program: int, n: int, parts: int) -> int:
    """As kt_dealt of kt_ops.h says it."""
    part, more = program % parts, n % parts
    return part * (n // parts) + min(part, more) + program // parts


@pytest.mark.parametrize("n", [1, 7, 8, 9, 63, 64, 100, 1000])
def test_every_program_has_one_place_and_parts_get_runs(n):
    places = [dealt(p, n, 8) for p in range(n)]
    assert sorted(places) == list(range(n))
    for part in range(min(8, n)):
        own = places[part::8]
        assert own == list(range(own[0], own[0] + len(own)))
