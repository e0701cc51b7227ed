"""What docs/semantics.md says in words, as numbers: an operation, its operands, what must come out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kittens import opset
from kittens.dtypes import as_dtype, convert, float8_e8m0fnu
from kittens.errors import DTypeError
from kittens.ir import TileType

INF, NAN = np.inf, np.nan
LEAST = -(2**31)
MX = 2.0**127


def apply(name: str, operands: list[tuple[str, Any]], **attrs: Any) -> np.ndarray:
    arrays = [_made(values, d) for d, values in operands]
    types = [TileType(as_dtype(a.dtype), a.shape) for a in arrays]
    call = opset.infer(name, types, attrs)
    (result,) = opset.evaluate(name, call, *arrays)
    assert as_dtype(result.dtype) == call.result.dtype
    return result


def _made(values: Any, dtype: str) -> np.ndarray:
    to = as_dtype(dtype)
    return convert(np.array(values, np.float64), to) if to.kind in "fs" else np.array(values, to.numpy)


def same(got: np.ndarray, wanted: Any) -> None:
    """Equal values, NaN to NaN, and zeros of one sign."""
    a, b = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


BINARY = [
    ("floordiv", "int32", [-7, 7, 5, LEAST], [2, -2, 0, -1], [-4, -4, 0, LEAST]),
    ("mod", "int32", [-7, 7, 5, LEAST], [2, -2, 0, -1], [1, -1, 0, 0]),
    ("cdiv", "int32", [-7, 7, 5, 7], [2, -2, 0, 2], [-3, -3, 0, 4]),
    ("floordiv", "uint8", [200, 7], [3, 0], [66, 0]),
    ("add", "int8", [127, -128], [1, -1], [-128, 127]),
    ("sub", "uint8", [0], [1], [255]),
    ("mul", "int8", [64], [4], [0]),
    ("div", "float32", [1, -1, 0, INF], [0, 0, 0, INF], [INF, -INF, NAN, NAN]),
    ("maximum", "float32", [NAN, 1, INF], [1, NAN, 2], [NAN, NAN, INF]),
    ("minimum", "bfloat16", [NAN, 1, -INF], [1, NAN, 2], [NAN, NAN, -INF]),
    ("shl", "int32", [1, 1, 1, -1], [31, 32, -1, 1], [LEAST, 0, 0, -2]),
    ("shr", "int32", [-8, -8, 8, -8, 8], [1, 32, 32, -1, -1], [-4, -1, 0, -1, 0]),
    ("shr", "uint8", [255, 255], [7, 8], [1, 0]),
    ("lt", "float32", [NAN, 1], [1, 2], [0, 1]),
    ("ge", "float32", [NAN, 0.0], [NAN, -0.0], [0, 1]),
    ("eq", "float32", [NAN, 0.0], [NAN, -0.0], [0, 1]),
    ("ne", "float32", [NAN, 1], [NAN, 1], [1, 0]),
    ("add", "float16", [65504], [32], [INF]),
    ("mul", "bfloat16", [1 + 2**-7], [1 + 2**-7], [1 + 2**-6]),
]  # fmt: skip

UNARY = [
    ("neg", "int8", [-128, 1], [-128, -1]),
    ("neg", "float32", [0.0, -0.0, INF], [-0.0, 0.0, -INF]),
    ("abs", "int8", [-128, -1], [-128, 1]),
    ("abs", "float32", [-0.0, -INF], [0.0, INF]),
    ("sqrt", "float32", [-1, -0.0, INF, 4], [NAN, -0.0, INF, 2]),
    ("reciprocal", "float32", [0.0, -0.0, INF], [INF, -INF, 0.0]),
    ("floor", "float32", [-0.5, -0.0, INF, NAN], [-1, -0.0, INF, NAN]),
    ("ceil", "float32", [-0.5, 0.5], [-0.0, 1]),
    ("trunc", "float32", [-1.5, 1.5, -0.5], [-1, 1, -0.0]),
    ("round", "float32", [0.5, 1.5, 2.5, -0.5], [0.0, 2, 2, -0.0]),
    ("exp", "float32", [-INF, INF, 1000, NAN], [0, INF, INF, NAN]),
    ("exp2", "float32", [-INF, INF, 128, -149], [0, INF, INF, 2.0**-149]),
    ("log", "float32", [0.0, -0.0, -1, INF], [-INF, -INF, NAN, INF]),
    ("log2", "float32", [0.0, -0.0, -1, 8], [-INF, -INF, NAN, 3]),
    ("rsqrt", "float32", [0.0, -0.0, -1, INF], [INF, -INF, NAN, 0]),
    ("sin", "float32", [INF, 0.0], [NAN, 0.0]),
    ("cos", "float32", [-INF, 0.0], [NAN, 1]),
    ("tanh", "float32", [-INF, INF, NAN], [-1, 1, NAN]),
    ("erf", "float32", [-INF, INF, NAN], [-1, 1, NAN]),
    ("bitnot", "uint8", [0, 5], [255, 250]),
]  # fmt: skip

CASTS = [
    ("float32", "int32", [NAN, INF, -INF, 2.9, -2.9, 3e9], [0, 2**31 - 1, LEAST, 2, -2, 2**31 - 1]),
    ("float32", "uint8", [NAN, -1, 300, 255.9], [0, 0, 255, 255]),
    ("bfloat16", "int8", [1e30, -1e30], [127, -128]),
    ("int32", "int8", [300, -129], [44, 127]),
    ("int32", "uint8", [-1, 256], [255, 0]),
    ("int32", "float16", [70000, 2049], [INF, 2048]),
    ("int32", "float8_e4m3fn", [1000, -1000], [448, -448]),
    ("float32", "float16", [65519, 65520], [65504, INF]),
    ("float32", "bfloat16", [1 + 2**-8, 1 + 3 * 2**-8, 3.4e38], [1, 1 + 2**-6, INF]),
    ("float32", "float8_e4m3fn", [NAN, INF, -1e9, 464, -0.0], [NAN, 448, -448, 448, -0.0]),
    ("float32", "float8_e4m3fnuz", [NAN, INF, -1e9, 248, -0.0], [NAN, 240, -240, 240, 0.0]),
    ("float32", "float8_e5m2", [NAN, INF, -1e9, -0.0], [NAN, 57344, -57344, -0.0]),
    ("float32", "float8_e5m2fnuz", [NAN, INF, -1e9, -0.0], [NAN, 57344, -57344, 0.0]),
    ("float32", "float8_e8m0fnu", [0, 3, 2.9, 1e-45, INF, -1, NAN], [1 / MX, 4, 2, 1 / MX, MX, NAN, NAN]),
    ("float32", "bool", [NAN, 0.0, -0.0, 0.5], [1, 0, 0, 1]),
    ("bool", "float32", [0, 1], [0, 1]),
    ("float8_e5m2", "float32", [NAN, 0.25], [NAN, 0.25]),
]  # fmt: skip

ROWS = [
    ("max", "float32", [1, NAN, 3], NAN),
    ("min", "bfloat16", [1, NAN, 3], NAN),
    ("max", "bool", [0, 1], 1),
    ("argmax", "float32", [1, NAN, 3, NAN], 1),
    ("argmax", "float32", [1, 3, 3], 1),
    ("argmax", "int8", [-5, -2], 1),
    ("sum", "int32", [2**31 - 1, 1], LEAST),
    ("sum", "float16", [65504, 65504], 131008),
    ("sum", "bool", [1, 1, 1], 3),
    ("sum", "int8", [127, 127], 254),
    ("any", "bool", [0, 1], 1),
    ("all", "bool", [0, 1], 0),
]  # fmt: skip


@pytest.mark.parametrize(("name", "dtype", "a", "b", "wanted"), BINARY)
def test_two_operands(name: str, dtype: str, a: Any, b: Any, wanted: Any) -> None:
    same(apply(name, [(dtype, a), (dtype, b)]), wanted)


@pytest.mark.parametrize(("name", "dtype", "x", "wanted"), UNARY)
def test_one_operand(name: str, dtype: str, x: Any, wanted: Any) -> None:
    same(apply(name, [(dtype, x)]), wanted)


@pytest.mark.parametrize(("source", "to", "x", "wanted"), CASTS)
def test_conversions(source: str, to: str, x: Any, wanted: Any) -> None:
    same(apply("cast", [(source, x)], dtype=to), wanted)


@pytest.mark.parametrize(("name", "dtype", "x", "wanted"), ROWS)
def test_reductions(name: str, dtype: str, x: Any, wanted: Any) -> None:
    same(apply(name, [(dtype, x)], axis=-1), wanted)


SUMS = {
    "bool": "int32",
    "int8": "int32",
    "int16": "int32",
    "int32": "int32",
    "int64": "int64",
    "uint8": "uint32",
    "uint16": "uint32",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float32",
    "bfloat16": "float32",
    "float32": "float32",
    "float64": "float64",
}


@pytest.mark.parametrize(("dtype", "wanted"), SUMS.items())
@pytest.mark.parametrize("name", ["sum", "cumsum"])
def test_the_type_of_sums(name: str, dtype: str, wanted: str) -> None:
    assert as_dtype(apply(name, [(dtype, [1, 1])], axis=-1).dtype).name == wanted


PRODUCTS = {
    ("float16", "float16"): "float32", ("bfloat16", "bfloat16"): "float32", ("float32", "float32"): "float32",
    ("float64", "float64"): "float64", ("int8", "int8"): "int32", ("uint8", "uint8"): "int32",
    ("float8_e4m3fn", "float8_e5m2"): "float32", ("float8_e4m3fnuz", "float8_e5m2fnuz"): "float32",
    ("float16", "bfloat16"): None, ("float8_e4m3fn", "float8_e4m3fnuz"): None, ("int8", "uint8"): None,
    ("int32", "int32"): None, ("float16", "float32"): None, ("bool", "bool"): None,
}  # fmt: skip


@pytest.mark.parametrize(("pair", "wanted"), PRODUCTS.items())
def test_the_types_of_products(pair: tuple[str, str], wanted: str | None) -> None:
    operands = [(d, [[1]]) for d in pair]
    if wanted is None:
        with pytest.raises(DTypeError):
            apply("mma", operands)
    else:
        assert as_dtype(apply("mma", operands).dtype).name == wanted


def test_integer_products_wrap() -> None:
    n = 2**15
    product = apply("mma", [("uint8", np.full((1, n), 255)), ("uint8", np.full((n, 1), 255))])
    assert product.item() == (255 * 255 * n + 2**31) % 2**32 - 2**31


def test_a_multiply_add_is_rounded_once() -> None:
    a = 1 + 2.0**-12
    separate = np.float32(np.float32(a) * np.float32(a)) - np.float32(1 + 2.0**-11)
    assert separate == 0
    same(apply("fma", [("float32", [a]), ("float32", [a]), ("float32", [-(1 + 2.0**-11)])]), [2.0**-24])


def test_a_value_that_is_not_chosen_has_no_effect() -> None:
    same(apply("where", [("bool", [1, 0]), ("float32", [1, NAN]), ("float32", [NAN, 2])]), [1, 2])


def test_a_nan_scale_makes_its_block_nan() -> None:
    one = np.zeros((1, 32))
    scales = np.array([[255]], np.uint8).view(float8_e8m0fnu.numpy)
    operands = [
        _made(one, "float8_e4m3fn"),
        scales,
        _made(one.T, "float8_e4m3fn"),
        _made([[1]], "float8_e8m0fnu"),
    ]
    types = [TileType(as_dtype(x.dtype), x.shape) for x in operands]
    call = opset.infer("mma_scaled", types, {})
    assert np.isnan(opset.evaluate("mma_scaled", call, *operands)[0]).all()


def test_philox_gives_the_published_words() -> None:
    """The known answer of Random123 for Philox-4x32-10, key and counter all zeros."""
    zero = apply("random_bits", [("int64", 0), ("int64", [0, 1, 2, 3])])
    assert [f"{int(w):08x}" for w in zero] == ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"]
