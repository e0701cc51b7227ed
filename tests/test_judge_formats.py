"""Rounding and decoding by the definitions of the formats, against ml_dtypes and rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittens.conformance.judge.formats import codes, decode, integer_to_odd, nearest, spacing, to_integer
from kittens.dtypes import ALL, BY_NAME, DType, convert

FLOATS = [d for d in ALL if d.kind == "f"]
NARROW = [d for d in FLOATS if d.bits < 64]


@pytest.mark.parametrize("dtype", [d for d in ALL if d.kind in "fs" and d.bits == 8], ids=str)
def test_all_codes_decode_as_in_ml_dtypes(dtype: DType) -> None:
    raw = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    np.testing.assert_array_equal(codes(dtype), raw.astype(np.float64))
    assert (np.signbit(codes(dtype)) == np.signbit(raw.astype(np.float64)))[~np.isnan(codes(dtype))].all()


def neighbours(dtype: DType, x: float) -> tuple[Fraction, Fraction]:
    """The numbers of a format (without its largest) on both sides of x, by integer arithmetic."""
    step = Fraction(float(spacing(dtype, np.float64(x))))
    low = (Fraction(x) // step) * step
    return low, low + step


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@settings(deadline=None, max_examples=60)
@given(x=st.floats(allow_nan=False, allow_infinity=False))
def test_nearest_is_the_nearest_and_ties_go_to_even(dtype: DType, x: float) -> None:
    got = float(nearest(dtype, np.float64(x)))
    if abs(x) > dtype.max:
        beyond = abs(x) >= dtype.max * (1 + dtype.unit_roundoff) or dtype.bits == 8
        assert abs(got) == (dtype.max if dtype.bits == 8 or not beyond else np.inf) or abs(got) in (
            dtype.max,
            np.inf,
        )
        return
    low, high = neighbours(dtype, x)
    below, above = Fraction(x) - low, high - Fraction(x)
    if below != above:
        assert Fraction(got) == (low if below < above else high)
    else:
        step = high - low
        assert Fraction(got) in (low, high) and (Fraction(got) / step) % 2 == 0


@pytest.mark.parametrize("dtype", NARROW, ids=str)
@settings(deadline=None, max_examples=60)
@given(bits=st.integers(0, 2**64 - 1))
def test_nearest_agrees_with_the_reference(dtype: DType, bits: int) -> None:
    x = np.array([bits], np.uint64).view(np.float64)
    scaled = np.ldexp(x, -int(np.clip(np.frexp(np.nan_to_num(x))[1][0], -1000, 1000)) + bits % 80 - 40)
    for y in (x, scaled):
        ours, theirs = nearest(dtype, y), decode(convert(y, dtype), dtype)
        np.testing.assert_array_equal(ours, theirs)
        assert np.isnan(ours).all() or (np.signbit(ours) == np.signbit(theirs)).all()


@settings(deadline=None, max_examples=60)
@given(st.floats())
def test_scales(x: float) -> None:
    scale = BY_NAME["float8_e8m0fnu"]
    np.testing.assert_array_equal(nearest(scale, np.array([x])), decode(convert(np.array([x]), scale), scale))


@settings(deadline=None, max_examples=60)
@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(NARROW))
def test_integers_round_once(n: int, dtype: DType) -> None:
    x = np.array([n], np.int64)
    got = nearest(dtype, integer_to_odd(x, dtype))
    np.testing.assert_array_equal(got, decode(convert(x, dtype), dtype))


@settings(deadline=None, max_examples=60)
@given(st.floats(), st.sampled_from([d for d in ALL if d.is_integer]))
def test_floats_to_integers(x: float, dtype: DType) -> None:
    info = np.iinfo(dtype.numpy)
    expected = 0 if np.isnan(x) else int(max(min(Fraction(x) if np.isfinite(x) else x, info.max), info.min))
    assert int(to_integer(np.array([x]), dtype)[0]) == expected


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_spacing(dtype: DType) -> None:
    one = float(spacing(dtype, np.float64(1.0)))
    assert one == 2 * dtype.unit_roundoff
    assert (
        float(spacing(dtype, np.float64(0.0)))
        == float(spacing(dtype, np.float64(dtype.tiny)))
        == dtype.smallest
    )
