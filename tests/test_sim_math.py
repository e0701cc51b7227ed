"""How far device functions are from the exact result, by float64; conversions against ml_dtypes."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from simtools import program
from test_sim_metal import as_metal

from kittens.backends.cuda.sim import VENDOR as CUDA
from kittens.backends.hip.sim import VENDOR as HIP
from kittens.backends.metal.sim import VENDOR as METAL

RNG = np.random.default_rng(0)
HEADERS = {"cuda": (CUDA, None), "hip": (HIP, "gfx942"), "metal": (METAL, None)}


def apply(expression: str, x: np.ndarray, out: type | np.dtype, vendor: str = "cuda") -> np.ndarray:
    """A device expression of `x` (a float, or a code of 8 or 16 bits) for every element of `x`."""
    bits = x.itemsize * 8
    load = f"kt_ld_global_b{bits}(a + i * {x.itemsize}u)"
    load = f"kt_from_bits({load})" if x.dtype == np.float32 else load
    out = np.dtype(out)
    result = f"kt_bits({expression})" if out == np.float32 else expression
    text = f"""#include "kt_cuda.h"
extern "C" __global__ void k(kt_in a, kt_out b, int n) {{
  kt_u32 first = kt_program_x() * 4096u, end = first + 4096u < kt_u32(n) ? first + 4096u : kt_u32(n);
  for (kt_u32 i = first + kt_thread(); i < end; i += 32u) {{
    auto x = {load};
    kt_st_global_b{out.itemsize * 8}(b + i * {out.itemsize}u, {result});
  }}
}}"""
    chosen, arch = HEADERS[vendor]
    text = as_metal(text) if vendor == "metal" else text.replace("kt_cuda.h", f"kt_{vendor}.h")
    y = np.zeros(x.shape, out)
    lanes = chosen.arch(arch).lanes
    text = text.replace("i += 32u", f"i += {lanes}u")
    raw = {1: np.uint8, 2: np.uint16}.get(out.itemsize)
    program(chosen, text, "k", arch).run(-(-x.size // 4096), lanes, [x, y.view(raw) if raw else y, x.size])
    return y


def ulps(got: np.ndarray, exact: np.ndarray) -> float:
    """The largest distance, in units of the last place of the exact result as a float32."""
    finite = np.isfinite(exact.astype(np.float32))
    np.testing.assert_array_equal(got[~finite], exact.astype(np.float32)[~finite])
    exponent = np.frexp(exact[finite])[1]
    place = np.ldexp(1.0, np.maximum(exponent, -125) - 24)
    return float((np.abs(got[finite].astype(np.float64) - exact[finite]) / place).max())


def spread(low: float, high: float, n: int = 200_000) -> np.ndarray:
    """Evenly spread samples, and ones whose size is spread evenly over the exponents."""
    even = np.linspace(low, high, n)
    largest = max(abs(low), abs(high))
    sizes = np.exp2(RNG.uniform(-149, math.log2(largest), n)) * RNG.choice([-1.0, 1.0], n)
    x = np.concatenate([even, sizes, [0.0, low, high, 1.0]])
    return x[(x >= low) & (x <= high)].astype(np.float32)


def every_positive(n: int = 400_000) -> np.ndarray:
    near = 1 + np.linspace(-0.01, 0.01, 20_000)
    x = np.linspace(1, 0x7F7FFFFF, n).astype(np.uint32).view(np.float32)
    return np.concatenate([x, near.astype(np.float32)])


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.where(x < 0, np.exp(x), 1) / (1 + np.exp(-np.abs(x)))


_erf = np.vectorize(math.erf, otypes=[np.float64])
CASES = {
    "kt_soft_exp2": (np.exp2, lambda: spread(-152, 130), 1.0),
    "kt_exp": (np.exp, lambda: spread(-104, 90), 1.7),
    "kt_soft_log2": (np.log2, every_positive, 1.0),
    "kt_log": (np.log, every_positive, 1.0),
    "kt_soft_rsqrt": (lambda x: 1 / np.sqrt(x), every_positive, 1.0),
    "kt_sqrt": (np.sqrt, every_positive, 0.5),
    "kt_rcp": (lambda x: 1 / x, every_positive, 0.5),
    "kt_sin": (np.sin, lambda: np.concatenate([spread(-40, 40), spread(-3.4e38, 3.4e38)]), 2.0),
    "kt_cos": (np.cos, lambda: np.concatenate([spread(-40, 40), spread(-3.4e38, 3.4e38)]), 2.0),
    "kt_tanh": (np.tanh, lambda: spread(-20, 20), 2.5),
    "kt_sigmoid": (_sigmoid, lambda: spread(-104, 104), 2.2),
    "kt_erf": (_erf, lambda: spread(-5, 5), 1.8),
}


#: Functions for which CUDA has instructions of its own, and what is made of them.
OWN = ("kt_exp", "kt_sigmoid")


@pytest.mark.parametrize("name", CASES)
def test_largest_error(name):
    function, samples, bound = CASES[name]
    x = samples()
    x = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        worst = ulps(apply(f"{name}(x)", x, np.float32), function(x.astype(np.float64)))
    print(f"{name}: {worst:.3f} ulp")
    assert worst <= bound


@pytest.mark.parametrize("name", CASES)
def test_special_values(name):
    function = CASES[name][0]
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    if name in ("kt_soft_log2", "kt_log", "kt_soft_rsqrt", "kt_sqrt"):
        x = np.append(x, np.float32(-1))
    with np.errstate(all="ignore"):
        expected = function(x.astype(np.float64)).astype(np.float32)
    got = apply(f"{name}(x)", x, np.float32)
    np.testing.assert_array_equal(got, expected)
    if name not in ("kt_soft_rsqrt", "kt_rcp"):
        zeros = expected == 0
        np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(expected[zeros]))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vendor", ["hip", "metal"])
def test_the_same_on_every_vendor(vendor, name):
    x = spread(0.01, 20, 5000)
    x = x[x > 0.01]
    other = "hip" if name in OWN else "cuda"
    np.testing.assert_array_equal(
        apply(f"{name}(x)", x, np.float32, vendor), apply(f"{name}(x)", x, np.float32, other)
    )


def test_exp_of_a_vendor_with_its_own_is_as_near():
    x = spread(-104, 90)
    with np.errstate(all="ignore"):
        worst = {
            v: ulps(apply("kt_exp(x)", x, np.float32, v), np.exp(x.astype(np.float64)))
            for v in ("cuda", "hip")
        }
    assert worst["hip"] <= 1.1 and worst["cuda"] <= 1.7


def test_maximum_and_minimum_keep_nan():
    x = np.array([np.nan, 1.0, -2.0, np.inf], np.float32)
    for vendor in HEADERS:
        np.testing.assert_array_equal(
            apply("kt_max(x, 0.5f)", x, np.float32, vendor), np.maximum(x, np.float32(0.5))
        )
        np.testing.assert_array_equal(
            apply("kt_min(0.5f, x)", x, np.float32, vendor), np.minimum(x, np.float32(0.5))
        )


# ---- conversions

FLOAT8 = {
    "e4m3fn": (ml_dtypes.float8_e4m3fn, 448.0),
    "e5m2": (ml_dtypes.float8_e5m2, 57344.0),
    "e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, 240.0),
    "e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, 57344.0),
}


def awkward() -> np.ndarray:
    """Values of all sizes, every float8 value, what lies half way between two, and its neighbours."""
    x = [RNG.integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)]
    x += [(RNG.standard_normal(100_000) * np.exp2(RNG.uniform(-20, 17, 100_000))).astype(np.float32)]
    for dtype, _ in FLOAT8.values():
        values = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)
        values = np.unique(values[np.isfinite(values)])
        half_way = (values[1:] + values[:-1]) / 2
        x += [
            values,
            half_way,
            np.nextafter(half_way, np.float32(np.inf)),
            np.nextafter(half_way, np.float32(-np.inf)),
        ]
    return np.concatenate([*x, np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], np.float32)])


@pytest.mark.parametrize("vendor", HEADERS)
@pytest.mark.parametrize("name", FLOAT8)
def test_float8_rounds_to_nearest_even_and_saturates(name, vendor):
    dtype, largest = FLOAT8[name]
    x = awkward()
    with np.errstate(all="ignore"):
        expected = np.clip(x, -largest, largest).astype(dtype)
    got = apply(f"kt_f32_to_{name}(x)", x, np.uint8, vendor).view(dtype)
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), np.isnan(x))
    known = ~np.isnan(x)
    if vendor == "metal":  # where subnormal float32 are zero, and a sign of zero may be lost with them
        known &= np.abs(x) >= np.float32(1.2e-38)
    np.testing.assert_array_equal(got[known].view(np.uint8), expected[known].view(np.uint8))


@pytest.mark.parametrize("vendor", HEADERS)
@pytest.mark.parametrize("name", FLOAT8)
def test_float8_values_are_exact(name, vendor):
    codes = np.arange(256, dtype=np.uint8)
    got = apply(f"kt_{name}_to_f32(kt_u8(x))", codes, np.float32, vendor)
    np.testing.assert_array_equal(got, codes.view(FLOAT8[name][0]).astype(np.float32))


@pytest.mark.parametrize("vendor", HEADERS)
def test_16_bit_floats(vendor):
    x = awkward()
    if vendor == "metal":
        x = x[(np.abs(x) >= np.float32(1.2e-38)) | (x == 0)]
    with np.errstate(all="ignore"):
        for name, dtype in (("bf16", ml_dtypes.bfloat16), ("f16", np.float16)):
            got = apply(f"kt_f32_to_{name}(x)", x, np.uint16, vendor).view(dtype)
            np.testing.assert_array_equal(got.astype(np.float32), x.astype(dtype).astype(np.float32))
            pairs = apply(f"kt_f32x2_to_{name}x2(x, 1.0f)", x, np.uint32, vendor)
            np.testing.assert_array_equal(pairs & 0xFFFF, got.view(np.uint16))
            assert set(pairs >> 16) == {int(np.ones(1, dtype).view(np.uint16)[0])}
            codes = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
            codes = (
                codes[np.abs(codes.view(dtype).astype(np.float32)) >= 1.2e-38] if vendor == "metal" else codes
            )
            got = apply(f"kt_{name}_to_f32(kt_u16(x))", codes, np.float32, vendor)
            np.testing.assert_array_equal(got, codes.view(dtype).astype(np.float32))


def test_block_scales():
    codes = np.arange(256, dtype=np.uint8)
    got = apply("kt_e8m0_to_f32(kt_u8(x))", codes, np.float32)
    np.testing.assert_array_equal(got, codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32))
