"""Tests at edges: none where none is needed, one of scalars where a tile is inside or outside as a whole, and never too few."""

from __future__ import annotations

import re

import numpy as np
import pytest

import kittens as kt
from kittens.backends.hip.compile import available
from kittens.kernels import matmul

TARGETS = ("cuda:sm_80@sim", "hip:gfx950@sim", "hip:gfx1201@sim", "metal@sim")
simulated = [pytest.mark.sim, pytest.mark.skipif(bool(available()), reason=available() or "clang is there")]


def product(n: int, target: str = "cuda:sm_80") -> str:
    x = kt.spec("bfloat16", (n, n))
    return matmul.source(target, x, x, x, BM=64, BN=64, BK=32)


def test_whole_tiles_are_tested_by_scalars_and_the_loops_own_axis_not_at_all() -> None:
    text = product(1024)
    assert not re.search(r"(row|col|lane_\w+).* < limit", text), "no element is compared"
    assert "a_n1)" not in "".join(re.findall(r"kt_limit\(.*", text)), "the loop ends with this axis"
    assert "left" not in text and "inside ? kt_get" not in text
    ragged = product(1000)
    assert "left < 0 ? 0" in ragged and re.search(r"row < limit", ragged)


def test_a_plan_says_what_is_tested() -> None:
    x, y = kt.spec("bfloat16", (1024, 1024)), kt.spec("bfloat16", (1000, 1000))
    plan = str(matmul.plan("cuda:sm_80", x, x, x, BM=64, BN=64, BK=32))
    assert "load of a (64, 32): tests scalars and nothing at edges" in plan
    assert "load of b (32, 64): tests scalars and scalars at edges" in plan
    assert "store of c (64, 64): tests scalars and scalars at edges" in plan
    ragged = str(matmul.plan("cuda:sm_80", y, y, y, BM=64, BN=64, BK=32))
    assert "load of a (64, 32): tests elements and elements at edges" in ragged


def test_an_axis_of_known_extent_from_its_start_is_not_tested() -> None:
    @kt.kernel
    def copy(x, y):
        width = kt.static(x.shape[1])
        kt.static(y.shape[1])
        kt.store(y, (kt.program_id(), 0), kt.load(x, (kt.program_id(), 0), (8, width)))

    whole = copy.source("cuda:sm_80", *(kt.spec("float32", (64, 64)),) * 2)
    assert whole.count("kt_limit(") == 2, "one for the rows of each"
    assert "lane_col < " not in whole


@kt.kernel(grid=4)
def beyond(x, y):
    """More programs than tiles: what is outside is padded and dropped."""
    i = kt.program_id()
    kt.store(y, (i - 1, 0), kt.load(x, (i, 0), (16, 32), pad=3.0) + 1.0)


def looping(lo: int, more: int, step: int):
    """Tiles of x and z, which has other extents, added up over a loop over the tiles of x, and some before and behind."""

    @kt.kernel
    def total(x, z, y):
        acc = kt.zeros((16, 32), kt.float32)
        for k in kt.range(lo, kt.cdiv(x.shape[0], 16) + more, step):
            acc += kt.load(x, (k, 0), (16, 32), pad=7.0)
            acc += kt.load(z, (k, 0), (16, 32), pad=5.0)
            acc += kt.load(x[16:], (k, 0), (16, 32), pad=1.0)
        kt.store(y, (0, 0), acc)

    return total


@kt.kernel
def multiplied(a, b, c):
    """A product whose operands need not have equally many rows and columns: what is missing counts as 0."""
    acc = kt.zeros((32, 32), kt.float32)
    for k in kt.range(kt.cdiv(a.shape[1], 32)):
        acc += kt.load(a, (0, k), (32, 32)) @ kt.load(b, (k, 0), (32, 32))
    kt.store(c, (0, 0), acc)


def whole_numbers(*shape: int, dtype: object = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-4, 5, shape).astype(dtype)


def agree(kernel, inputs: tuple[np.ndarray, ...], shape: tuple[int, ...], target: str) -> None:
    found = []
    for on in ("numpy", target):
        out = np.full(shape, -9, np.float32)
        kernel(*inputs, out, on=on)
        found.append(out)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("target", TARGETS)
class TestSimulated:
    pytestmark = simulated

    @pytest.mark.parametrize("rows", [16, 32, 48, 40])
    def test_more_programs_than_tiles(self, target, rows) -> None:
        agree(beyond, (whole_numbers(rows, 32),), (rows, 32), target)

    @pytest.mark.parametrize(
        ("lo", "more", "step"), [(0, 0, 1), (-2, 0, 1), (0, 2, 1), (1, -1, 2), (0, 0, 3)]
    )
    def test_loops_over_tiles_and_past_them(self, target, lo, more, step) -> None:
        kernel = looping(lo, more, step)
        for x_rows, z_rows in ((64, 32), (32, 64), (40, 64)):
            agree(kernel, (whole_numbers(x_rows, 32), whole_numbers(z_rows, 32)), (16, 32), target)

    @pytest.mark.parametrize(("columns", "rows"), [(64, 64), (96, 32), (32, 96), (70, 64), (64, 50), (0, 32)])
    def test_products_of_unequal_lengths(self, target, columns, rows) -> None:
        import ml_dtypes

        a = whole_numbers(32, columns, dtype=ml_dtypes.bfloat16)
        b = whole_numbers(rows, 32, dtype=ml_dtypes.bfloat16)
        agree(multiplied, (a, b), (32, 32), target)


@kt.kernel(grid=1)
def far(x, y, at):
    """Tiles whose coordinates are beyond all bounds."""
    kt.store(y, (0, 0), kt.load(x, (at, 0), (16, 16), pad=3.0))
    kt.store(y[:16], (at, 1), kt.load(x, (0, 0), (16, 16)))
    kt.store(y, (1, 0), kt.load(x[1:][at:], (at, 0), (16, 16), pad=4.0))


@pytest.mark.parametrize("target", [pytest.param(t, marks=simulated) for t in TARGETS])
def test_coordinates_do_not_wrap(target: str) -> None:
    """Sixteen times a coordinate may be more than 64 bits hold, and another place then."""
    for at in (1, 2**31, 2**32, 2**47, 2**60, 2**62, 2**63 - 1, -1, -(2**31), -(2**47), -(2**60), -(2**63)):
        x, y = np.ones((16, 16), np.float32), np.full((32, 32), 7, np.float32)
        far(x, y, at, on=target)
        assert (y[:16, :16] == 3).all() and (y[:16, 16:] == 7).all() and (y[16:, :16] == 4).all(), at
