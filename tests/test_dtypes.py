"""Conversions and reference arithmetic against exact integers and fractions, over every code of the narrow
types.
"""

from __future__ import annotations

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kittens import opset
from kittens.dtypes import (
    ALL,
    BY_NAME,
    FLOAT8,
    as_dtype,
    bfloat16,
    bool_,
    convert,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int32,
    int64,
    promote,
    uint8,
    uint64,
)
from kittens.errors import DTypeError
from kittens.ir import TileType

# name: exponent bits, mantissa bits, bias, what special codes there are.
FORMATS = {
    "float16": (5, 10, 15, "ieee"),
    "bfloat16": (8, 7, 127, "ieee"),
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "uz"),
    "float8_e5m2fnuz": (5, 2, 16, "uz"),
}
NARROW = [BY_NAME[n] for n in FORMATS]


def decode(code: int, name: str) -> Fraction | str:
    """The value of a code, from its definition."""
    e_bits, m_bits, bias, special = FORMATS[name]
    sign, e, m = code >> (e_bits + m_bits), code >> m_bits & (1 << e_bits) - 1, code & (1 << m_bits) - 1
    if special == "ieee" and e == (1 << e_bits) - 1:
        return "nan" if m else "-inf" if sign else "inf"
    if special == "fn" and e == (1 << e_bits) - 1 and m == (1 << m_bits) - 1:
        return "nan"
    if special == "uz" and code == 1 << (e_bits + m_bits):
        return "nan"
    value = (
        Fraction(m, 1 << m_bits) * Fraction(2) ** (1 - bias)
        if e == 0
        else (1 + Fraction(m, 1 << m_bits)) * Fraction(2) ** (e - bias)
    )
    return -value if sign else value


TABLES = {
    name: sorted((v, c) for c in range(1 << (sum(f[:2]))) if isinstance(v := decode(c, name), Fraction))
    for name, f in FORMATS.items()
}


VALUES = {name: [v for v, _ in table] for name, table in TABLES.items()}


def encode(x: Fraction, name: str) -> Fraction | str:
    """The value to which a positive fraction rounds: to nearest, to even; float8 saturates, others overflow."""
    values = VALUES[name]
    low, high = 0, len(values) - 1
    if x > values[-1]:
        if name.startswith("float8"):
            return values[-1]
        step = values[-1] - values[-2]
        return "inf" if x >= values[-1] + step / 2 else values[-1]
    while high - low > 1:
        mid = (low + high) // 2
        low, high = (mid, high) if values[mid] <= x else (low, mid)
    if values[high] == x:
        return x
    below, above = x - values[low], values[high] - x
    if below != above:
        return values[low] if below < above else values[high]
    return values[low] if TABLES[name][low][1] % 2 == 0 else values[high]


def all_codes(dtype):
    return np.arange(1 << dtype.bits, dtype=f"uint{dtype.bits}").view(dtype.numpy)


def as_exact(v: float) -> Fraction | str:
    return "nan" if v != v else ("-inf" if v < 0 else "inf") if math.isinf(v) else Fraction(v)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_decodes(dtype):
    codes = all_codes(dtype)
    wide = convert(codes, float32)
    for code, value in enumerate(wide.tolist()):
        assert as_exact(value) == decode(code, dtype.name), code
    zero = wide == 0
    signs = np.signbit(wide[zero])
    assert signs.tolist() == ([False] if "uz" in dtype.name else [False, True])


@pytest.mark.parametrize("source", [float32, float64, bfloat16, float16], ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_every_code_survives(dtype, source):
    """Each finite code and NaN goes through a wider type and back unchanged."""
    codes = all_codes(dtype)
    if source.bits < 32 and (source == dtype or dtype.bits == 16):
        pytest.skip("not wider")
    back = convert(convert(codes, source), dtype)
    raw, again = codes.view(f"uint{dtype.bits}"), back.view(f"uint{dtype.bits}")
    wide = convert(codes, float32)
    same = np.isfinite(wide) if dtype.bits == 8 else ~np.isnan(wide)
    if source == float16:  # of narrower exponent range than e5m2fnuz by one
        same &= np.abs(wide) <= 65504
        same &= (np.abs(wide) >= 2.0**-17) | (wide == 0)
    assert (raw[same] == again[same]).all()
    assert (np.isnan(wide) == np.isnan(convert(back, float32)))[same | np.isnan(wide)].all()
    if dtype.bits == 8 and "inf" in {decode(c, dtype.name) for c in range(256)}:
        assert (np.abs(convert(back, float32)[np.isinf(wide)]) == dtype.max).all()


@pytest.mark.parametrize("source", [float32, float64], ids=str)
@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_halves_and_their_neighbours(dtype, source):
    """Around every half-way point between neighbouring codes (thinned for 16 bits)."""
    values = [v for v, _ in TABLES[dtype.name]]
    step = 1 if dtype.bits == 8 else 37
    points = []
    for a, b in zip(values[::step], values[1::step], strict=False):
        half = float((a + b) / 2)
        points += [
            half,
            np.nextafter(source.numpy.type(half), source.numpy.type(0)),
            np.nextafter(source.numpy.type(half), source.numpy.type(np.inf)),
        ]
    top = float(values[-1])
    points += [top * (1 + 2.0**-k) for k in range(1, 14)] + [top * 4]
    x = np.array(points, source.numpy)
    x = x[np.isfinite(x)]
    got = convert(np.concatenate([x, -x]), dtype)
    wide = convert(got, float64)
    for p, g, minus in zip(x.tolist(), wide[: len(x)].tolist(), wide[len(x) :].tolist(), strict=True):
        assert as_exact(g) == encode(Fraction(p), dtype.name), p
        assert minus == -g


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.floats(allow_nan=False, allow_infinity=False), st.sampled_from(NARROW))
def test_float64_is_rounded_once(value, dtype):
    got = float(convert(convert(np.array([value]), dtype), float64)[0])
    expected = encode(abs(Fraction(value)), dtype.name)
    assert as_exact(abs(got)) == expected
    if got:
        assert (got < 0) == (value < 0)


def test_float64_to_bfloat16_does_not_round_twice():
    x = 1 + 2.0**-8 + 2.0**-40  # above half-way; by way of float32 it would be a tie
    assert float(convert(np.array([x]), bfloat16)[0]) == 1 + 2.0**-7
    assert float(convert(np.array([2.0**-134 * (1 + 2.0**-40)]), bfloat16)[0]) == 2.0**-133
    assert float(convert(np.array(x), bfloat16)) == 1 + 2.0**-7


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_specials_into_every_type(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)
    got = convert(x, dtype)
    assert got.dtype == dtype.numpy
    if dtype.kind in "iu":
        info = np.iinfo(dtype.numpy)
        assert got.tolist() == [0, info.max, info.min, 0, 0]
    elif dtype == bool_:
        assert got.tolist() == [True, True, True, False, False]
    elif dtype == float8_e8m0fnu:
        assert got.view(np.uint8).tolist() == [255, 254, 255, 0, 0]
    else:
        wide = got.astype(np.float64)
        top = dtype.max if dtype.bits == 8 else np.inf
        assert np.isnan(wide[0]) and wide[1:3].tolist() == [top, -top] and (wide[3:] == 0).all()
        assert np.signbit(wide[4]) == (not dtype.name.endswith("uz"))


@pytest.mark.parametrize("dtype", [d for d in ALL if d.is_integer], ids=str)
@pytest.mark.parametrize("source", [float32, float64, float16, bfloat16], ids=str)
def test_floats_to_integers_truncate_and_saturate(dtype, source):
    info = np.iinfo(dtype.numpy)
    points = [
        0.5,
        1.5,
        2.999,
        127.5,
        255.9,
        1e4,
        65504.0,
        2.0**31,
        2.0**31 - 1,
        2.0**32,
        2.0**62,
        2.0**63,
        2.0**64,
        2.0**63 * 0.999,
        1e30,
    ]
    x = convert(np.array([*points, *(-p for p in points)]), source)
    got = convert(x, dtype).tolist()
    for value, g in zip(convert(x, float64).tolist(), got, strict=True):
        expected = info.max if value > info.max else info.min if value < info.min else int(value)
        assert g == expected, value


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.integers(-(2**63), 2**64 - 1), st.sampled_from([*NARROW, float32, float64]))
def test_integers_to_floats_round_once(value, dtype):
    source = uint64 if value >= 2**63 else int64
    got = as_exact(abs(float(convert(convert(np.array([value], source.numpy), dtype), float64)[0])))
    if dtype in NARROW:
        assert got == encode(Fraction(abs(value)), dtype.name)
    else:
        p = dtype.precision
        shift = max(0, abs(value).bit_length() - p)
        assert got == Fraction(round(Fraction(abs(value), 1 << shift)) << shift)


def test_integers_keep_low_bits():
    x = np.array([300, -1, 2**31, -(2**31) - 1], np.int64)
    assert convert(x, int8).tolist() == [44, -1, 0, -1]
    assert convert(x, uint8).tolist() == [44, 255, 0, 255]
    assert convert(x, int32).tolist() == [300, -1, -(2**31), 2**31 - 1]
    assert convert(x, bool_).tolist() == [True] * 4
    assert convert(np.array([True, False]), float16).tolist() == [1.0, 0.0]


def test_scales():
    codes = all_codes(float8_e8m0fnu)
    wide = convert(codes, float64)
    assert wide[:255].tolist() == [2.0 ** (c - 127) for c in range(255)] and np.isnan(wide[255])
    assert (convert(wide[:255], float8_e8m0fnu).view(np.uint8) == np.arange(255)).all()
    x = np.array([1.4999, 1.5, 1.75, 3.0, 2.0**200, 2.0**-200, -1.0, 0.0])
    assert convert(x, float8_e8m0fnu).view(np.uint8).tolist() == [127, 128, 128, 129, 254, 0, 255, 0]
    assert (convert(codes, bool_)).all()


def test_names_and_promotion():
    assert (
        as_dtype("float8_e4m3fn") is FLOAT8[0]
        and as_dtype(np.int32) is int32
        and as_dtype(ml_dtypes.bfloat16) is bfloat16
    )
    for junk in ("float31", complex, object(), "U3"):
        with pytest.raises(DTypeError, match="no element type"):
            as_dtype(junk)
    for a in ALL:
        for b in ALL:
            try:
                both = promote(a, b)
            except DTypeError as error:
                assert error.hint and a != b  # noqa: PT017
                with pytest.raises(DTypeError):
                    promote(b, a)
            else:
                assert both == promote(b, a) and both in (a, b)
    assert repr(int32) == "kittens.int32" and float8_e8m0fnu.bytes == 1 and float32.unit_roundoff == 2.0**-24


# Reference operations.

SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    np.inf,
    -np.inf,
    np.nan,
    2.0**-149,
    -(2.0**-140),
    3.4028234663852886e38,
    2.0**-126,
    1 + 2.0**-23,
]


def run(name, dtype, *arrays, result=None, **attrs):
    types = [TileType(dtype, a.shape) for a in arrays]
    call = opset.infer(name, types, attrs)
    return opset.evaluate(name, call, *arrays)[0]


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("name", ["add", "sub", "mul", "div"])
def test_arithmetic_is_correctly_rounded(name, dtype):
    rng = np.random.default_rng(0)
    a, b = (
        convert(
            np.concatenate(
                [
                    rng.standard_normal(300) * 2.0 ** rng.integers(-8, 8, 300),
                    np.repeat(SPECIALS, len(SPECIALS)) if i else np.tile(SPECIALS, len(SPECIALS)),
                ]
            ),
            dtype,
        )
        for i in (0, 1)
    )
    got = convert(run(name, dtype, a, b), float64).tolist()
    for x, y, g in zip(convert(a, float64).tolist(), convert(b, float64).tolist(), got, strict=True):
        if not (math.isfinite(x) and math.isfinite(y)) or (name == "div" and y == 0):
            continue
        exact = {
            "add": lambda: Fraction(x) + Fraction(y),  # noqa: B023
            "sub": lambda: Fraction(x) - Fraction(y),  # noqa: B023
            "mul": lambda: Fraction(x) * Fraction(y),  # noqa: B023
            "div": lambda: Fraction(x) / Fraction(y),  # noqa: B023
        }[name]()
        nearest = _to_float32(abs(exact)) if dtype == float32 else encode(abs(exact), dtype.name)
        assert as_exact(abs(g)) == nearest, (x, y)


def _to_float32(x: Fraction) -> Fraction | str:
    """A positive fraction rounded to float32."""
    if x == 0:
        return x
    e = max(math.floor(math.log2(x)) if x < 2**1000 else 1000, -126)
    while Fraction(2) ** (e + 1) <= x:
        e += 1
    while e > -126 and Fraction(2) ** e > x:
        e -= 1
    unit = Fraction(2) ** (e - 23)
    rounded = round(x / unit) * unit
    return "inf" if rounded >= 2**128 else rounded


@settings(max_examples=400, derandomize=True, deadline=None)
@given(
    st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3),
    st.sampled_from([float32, bfloat16, float16]),
)
def test_fma_rounds_once(values, dtype):
    a, b, c = (convert(np.array([v], np.float32), dtype) for v in values)
    x, y, z = (convert(v, float64)[0] for v in (a, b, c))
    if not all(map(math.isfinite, (x, y, z))):
        return
    got = float(convert(run("fma", dtype, a, b, c), float64)[0])
    exact = Fraction(x) * Fraction(y) + Fraction(z)
    expected = _to_float32(abs(exact)) if dtype == float32 else encode(abs(exact), dtype.name)
    assert as_exact(abs(got)) == expected


def test_fma_of_near_cancellations():
    one = np.float32(1) + np.float32(2.0**-23)
    got = run("fma", float32, np.array([one]), np.array([one]), np.array([-one * one], np.float32))
    exact = Fraction(float(one)) ** 2 + Fraction(float(np.float32(-one * one)))
    assert Fraction(float(got[0])) == exact


@pytest.mark.parametrize("name", ["maximum", "minimum", "max", "min"])
def test_nan_goes_through_extrema(name):
    x = np.array([1.0, np.nan, -np.inf], np.float32)
    y = np.array([np.nan, 0.0, 2.0], np.float32)
    if name in ("max", "min"):
        assert np.isnan(run(name, float32, x, axis=-1))
    else:
        assert np.isnan(run(name, float32, x, y)[:2]).all()


def test_integer_division_and_shifts():
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    assert run("floordiv", int32, a, b).tolist()[:5] == [3, -4, -4, 3, 0]
    assert run("mod", int32, a, b).tolist()[:5] == [1, 1, -1, -1, 0]
    assert run("cdiv", int32, a, b).tolist()[:5] == [4, -3, -3, 4, 0]
    n = np.array([0, 31, 32, -1, 40, 1], np.int32)
    assert run("shl", int32, a, n).tolist() == [7, -(2**31), 0, 0, 0, 0]
    assert run("shr", int32, a, n).tolist() == [7, -1, 0, -1, 0, -(2**30)]
