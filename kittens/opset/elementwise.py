"""Arithmetic, comparison, logical, bitwise and mathematical operations, element by element.

Operands have been brought to one type and one shape by the language (explicit `cast` and `broadcast`). Floats
of 16 bits compute in float32 and round once to their own type, which for + - * / and sqrt is the correctly
rounded result, since 24 >= 2 p + 2 for p = 8 and 11 (Figueroa, 1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kittens.dtypes import Array, DType, bool_, convert, float16, float32, float64, round_to_odd32
from kittens.errors import DTypeError
from kittens.ir import TileType, Type
from kittens.opset import Call, define


def _kinds(name: str, kinds: str, hint: str) -> Callable[[Call], DType]:
    """A check that all operands are tiles of one dtype of the given kinds, and of one shape."""

    def check(call: Call) -> DType:
        first = call.tile(0)
        for i in range(len(call.operands)):
            t = call.tile(i)
            assert t == first, f"{name}: operands {t} and {first} were not brought together"
        if first.dtype.kind not in kinds or not first.dtype.computes:
            raise DTypeError(f"{name} is not defined on {first.dtype}", hint=_advice(first.dtype, hint))
        return first.dtype

    return check


def _advice(dtype: DType, hint: str) -> str:
    if dtype.is_float8 or dtype.kind == "s":
        return "an 8-bit float is storage: convert it with .to(kt.float32) before computing"
    return hint


def _same(name: str, kinds: str, hint: str) -> Callable[[Call], Sequence[Type]]:
    check = _kinds(name, kinds, hint)

    def infer(call: Call) -> Sequence[Type]:
        check(call)
        return [call.tile(0)]

    return infer


def _predicate(name: str, kinds: str) -> Callable[[Call], Sequence[Type]]:
    check = _kinds(name, kinds, "")

    def infer(call: Call) -> Sequence[Type]:
        check(call)
        return [TileType(bool_, call.tile(0).shape)]

    return infer


def computing(dtype: DType) -> DType:
    """The type in which a computation on `dtype` is done before its one rounding."""
    return float32 if dtype.is_float and dtype.bits < 32 else dtype


def _lift(f: Callable[..., Array]) -> Callable[..., Array]:
    """`f` on the computing type, its result converted to the result's type; no warnings for NaN, Inf,
    overflow.
    """

    def reference(call: Call, *xs: Array) -> Array:
        wide = computing(call.tile(0).dtype)
        with np.errstate(all="ignore"):
            return convert(np.asarray(f(*(convert(x, wide) for x in xs))), call.result.dtype)

    return reference


def _through64(f: Callable[[Array], Array]) -> Callable[..., Array]:
    """A mathematical function computed in float64 and rounded: within a hair of half an ULP in float32."""
    return _lift(lambda x: np.asarray(f(x.astype(np.float64))).astype(x.dtype))


_erf64 = np.frompyfunc(math.erf, 1, 1)


def erf64(x: Array) -> Array:
    """The error function in float64."""
    return np.asarray(_erf64(x.astype(np.float64))).astype(np.float64)


def _fma(call: Call, a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding. The product of two float32 is exact in float64; the sum is rounded to odd
    there (two-sum gives the part lost), so that the last rounding is the only one."""
    with np.errstate(all="ignore"):
        if call.result.dtype == float64:
            wide = a.astype(np.longdouble) * b.astype(np.longdouble) + c.astype(np.longdouble)
            return wide.astype(np.float64)
        x, y, z = (convert(convert(v, float32), float64) for v in (a, b, c))
        p = x * y
        s = p + z
        t = s - p
        lost = (p - (s - t)) + (z - t)
        bits = np.atleast_1d(s).view(np.int64).reshape(s.shape)
        fix = (lost != 0) & np.isfinite(s) & np.isfinite(lost) & (bits & 1 == 0)
        outward = (lost > 0) == (s > 0)
        odd = np.where(fix, np.where(outward, bits + 1, bits - 1), bits).astype(np.int64).view(np.float64)
        if call.result.dtype == float32:
            return odd.astype(np.float32)
        if call.result.dtype == float16:
            return convert(odd, float16)
        return convert(round_to_odd32(odd), call.result.dtype)


def _divide(f: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    """An integer division in which anything by zero is zero."""

    def safe(a: Array, b: Array) -> Array:
        one = np.ones((), b.dtype)
        return np.where(b == 0, np.zeros((), a.dtype), f(a, np.where(b == 0, one, b)))

    return _lift(safe)


def _ceil_divide(a: Array, b: Array) -> Array:
    quotient = np.floor_divide(a, b)
    return quotient + (quotient * b != a).astype(a.dtype)


def _shift(f: Callable[[Array, Array], Array], fill: bool) -> Callable[..., Array]:
    """A shift in which a count outside [0, bits) shifts everything out, leaving zeros or copies of the
    sign.
    """

    def shifted(a: Array, n: Array) -> Array:
        bits = a.dtype.itemsize * 8
        outside = (n < 0) | (n >= bits)
        inner = f(a, np.where(outside, np.zeros((), n.dtype), n))
        left = (
            np.where(a < 0, np.array(-1).astype(a.dtype), np.zeros((), a.dtype))
            if fill
            else np.zeros((), a.dtype)
        )
        return np.where(outside, left, inner)

    return _lift(shifted)


_ARITHMETIC = "convert it first, with .to(kt.int32) or .to(kt.float32)"
_FLOATS = "it is a function of floats: convert with .to(kt.float32)"

BINARY: dict[str, tuple[str, str, Any]] = {
    # name: (kinds, hint, reference)
    "add": ("iuf", _ARITHMETIC, _lift(np.add)),
    "sub": ("iuf", _ARITHMETIC, _lift(np.subtract)),
    "mul": ("iuf", _ARITHMETIC, _lift(np.multiply)),
    "div": ("f", "use // on integers, or convert with .to(kt.float32)", _lift(np.divide)),
    "floordiv": ("iu", "use kt.floor(a / b) on floats", _divide(np.floor_divide)),
    "mod": ("iu", "use a - kt.floor(a / b) * b on floats", _divide(np.remainder)),
    "cdiv": ("iu", "use kt.ceil(a / b) on floats", _divide(_ceil_divide)),
    "maximum": ("biuf", "", _lift(np.maximum)),
    "minimum": ("biuf", "", _lift(np.minimum)),
    "bitand": ("biu", "it works on bool and integers", _lift(np.bitwise_and)),
    "bitor": ("biu", "it works on bool and integers", _lift(np.bitwise_or)),
    "bitxor": ("biu", "it works on bool and integers", _lift(np.bitwise_xor)),
    "shl": ("iu", "it works on integers", _shift(np.left_shift, fill=False)),
    "shr": ("iu", "it works on integers", _shift(np.right_shift, fill=True)),
}

COMPARISONS: dict[str, Any] = {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}

UNARY: dict[str, tuple[str, str, Any]] = {
    "neg": ("iuf", _ARITHMETIC, _lift(np.negative)),
    "abs": ("iuf", _ARITHMETIC, _lift(np.abs)),
    "bitnot": ("biu", "it works on bool and integers", _lift(np.invert)),
    "sqrt": ("f", _FLOATS, _lift(np.sqrt)),
    "reciprocal": ("f", _FLOATS, _lift(lambda x: np.divide(np.ones((), x.dtype), x))),
    "floor": ("f", _FLOATS, _lift(np.floor)),
    "ceil": ("f", _FLOATS, _lift(np.ceil)),
    "trunc": ("f", _FLOATS, _lift(np.trunc)),
    "round": ("f", _FLOATS, _lift(np.rint)),
}

#: Functions whose results differ between implementations, within ULP bounds that each target states.
MATHEMATICAL: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": erf64,
}

for _name, (_k, _hint, _reference) in BINARY.items():
    define(_name, _same(_name, _k, _hint), _reference)
for _name, _f in COMPARISONS.items():
    define(_name, _predicate(_name, "biuf"), _lift(_f))
for _name, (_k, _hint, _reference) in UNARY.items():
    define(_name, _same(_name, _k, _hint), _reference)
for _name, _f in MATHEMATICAL.items():
    define(_name, _same(_name, "f", _FLOATS), _through64(_f), exact=False)
define("fma", _same("fma", "f", "use a * b + c on integers"), _fma)


def _infer_where(call: Call) -> Sequence[Type]:
    condition = call.tile(0)
    if condition.dtype != bool_:
        raise DTypeError(f"where takes a bool tile, not {condition.dtype}", hint="compare, as in x != 0")
    assert call.tile(1) == call.tile(2) and condition.shape == call.tile(1).shape
    return [call.tile(1)]


define("where", _infer_where, lambda call, c, a, b: np.where(c, a, b))
