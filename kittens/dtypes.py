"""The element types: one table, from which NumPy types, rounding and promotion follow."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from kittens.errors import DTypeError

Array = NDArray[Any]


@dataclass(frozen=True)
class DType:
    """An element type.

    kind: 'b' bool, 'i' signed, 'u' unsigned, 'f' float, 's' scale (a power of two, float8_e8m0fnu).
    bits: storage size. For floats: `precision` counts significand bits with the hidden one, `max` is
    the largest finite value, `tiny` the smallest positive normal, `smallest` the smallest positive subnormal.
    """

    name: str
    kind: str
    bits: int
    numpy: np.dtype[Any] = field(compare=False, repr=False)
    precision: int = 0
    max: float = 0.0
    tiny: float = 0.0
    smallest: float = 0.0

    def __repr__(self) -> str:
        return f"kittens.{self.name}"

    def __str__(self) -> str:
        return self.name

    @property
    def bytes(self) -> int:
        """Storage size of an element in bytes."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_integer(self) -> bool:
        return self.kind in "iu"

    @property
    def is_float8(self) -> bool:
        return self.kind == "f" and self.bits == 8

    @property
    def computes(self) -> bool:
        """Whether arithmetic is defined on this type (a float8 has to be converted first)."""
        return self.kind in "biu" or (self.kind == "f" and self.bits > 8)

    @property
    def unit_roundoff(self) -> float:
        """Half the distance from 1 to the next number: the largest relative error of one rounding."""
        return 2.0**-self.precision


def _float(name: str, np_type: Any) -> DType:
    info = ml_dtypes.finfo(np_type)
    return DType(name, "f", info.bits, np.dtype(np_type), info.nmant + 1, float(info.max), float(info.tiny),
                 float(info.smallest_subnormal))  # fmt: skip


bool_ = DType("bool", "b", 8, np.dtype(np.bool_))
int8, int16, int32, int64 = (DType(f"int{n}", "i", n, np.dtype(f"int{n}")) for n in (8, 16, 32, 64))
uint8, uint16, uint32, uint64 = (DType(f"uint{n}", "u", n, np.dtype(f"uint{n}")) for n in (8, 16, 32, 64))
float16 = _float("float16", np.float16)
bfloat16 = _float("bfloat16", ml_dtypes.bfloat16)
float32 = _float("float32", np.float32)
float64 = _float("float64", np.float64)
float8_e4m3fn = _float("float8_e4m3fn", ml_dtypes.float8_e4m3fn)
float8_e4m3fnuz = _float("float8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz)
float8_e5m2 = _float("float8_e5m2", ml_dtypes.float8_e5m2)
float8_e5m2fnuz = _float("float8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz)
float8_e8m0fnu = DType(
    "float8_e8m0fnu", "s", 8, np.dtype(ml_dtypes.float8_e8m0fnu), 1, 2.0**127, 2.0**-127, 2.0**-127
)

ALL: tuple[DType, ...] = (
    bool_, int8, int16, int32, int64, uint8, uint16, uint32, uint64, float16, bfloat16, float32, float64,
    float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu,
)  # fmt: skip
BY_NAME: dict[str, DType] = {d.name: d for d in ALL}
_BY_NUMPY: dict[np.dtype[Any], DType] = {d.numpy: d for d in ALL}
FLOAT8: tuple[DType, ...] = tuple(d for d in ALL if d.is_float8)


def as_dtype(spec: Any) -> DType:
    """The `DType` for a DType, a name ("bfloat16"), or anything NumPy takes for a dtype.

    Raises DTypeError for anything else, with the list of names.
    """
    if isinstance(spec, DType):
        return spec
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec]
    try:
        return _BY_NUMPY[np.dtype(spec)]
    except (TypeError, KeyError):
        raise DTypeError(f"no element type {spec!r}", hint=f"the types are {', '.join(BY_NAME)}") from None


def promote(a: DType, b: DType) -> DType:
    """The type in which `a` and `b` meet in arithmetic.

    Integers of one signedness widen; bool joins anything that computes; floats widen to the one that
    holds both exactly. Whatever would have to lose something (signed with unsigned, integer with float,
    float16 with bfloat16) is refused, since each backend's habits differ there.
    """
    if a == b:
        return a
    if a.kind == "b":
        return b
    if b.kind == "b":
        return a
    if a.kind == b.kind and a.kind in "iu":
        return a if a.bits > b.bits else b
    if a.kind == b.kind == "f" and a.bits != b.bits and min(a.bits, b.bits) > 8:
        return a if a.bits > b.bits else b
    names = f"{a} and {b}"
    if a.kind == b.kind == "f" and a.bits == b.bits == 16:
        hint = "neither holds the other: convert both with .to(kt.float32)"
    elif a.is_float8 or b.is_float8 or "s" in (a.kind, b.kind):
        hint = "an 8-bit float is storage: convert it with .to(kt.float32) before computing"
    elif {a.kind, b.kind} == {"i", "u"}:
        hint = "signed and unsigned do not mix: say which with .to(...)"
    else:
        hint = "integers do not become floats by themselves: say so with .to(kt.float32)"
    raise DTypeError(f"{names} have no common type", hint=hint)


def convert(x: Array, to: DType) -> Array:
    """`x` converted to `to`, exactly as section "Conversions" of docs/semantics.md says.

    Floats round to nearest even; float8 saturates to the largest finite value and NaN stays NaN; float to
    integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits; anything to bool is
    `!= 0`.
    """
    source = _BY_NUMPY[x.dtype]
    if source == to:
        return x
    if to.kind == "b":
        return (
            np.asarray(x != 0)
            if source.kind in "biuf" and source.bits > 8
            else np.asarray(_wide(x, source) != 0)
        )
    if source.kind in "biu":
        if to.kind in "iu":
            return x.astype(to.numpy)
        if to == float16 or (to.kind in "fs" and to.bits < 32):
            # Straight to a narrow float, never by way of a rounded float32.
            return _narrow(_odd64(x), to)
        return x.astype(to.numpy)
    wide = _wide(x, source)
    if to.kind in "iu":
        return _to_integer(wide, to)
    if to.bits >= 32:
        with np.errstate(over="ignore", invalid="ignore"):
            return wide.astype(to.numpy)
    return _narrow(wide, to)


def _wide(x: Array, source: DType) -> Array:
    """A float array as float32, or float64 if that is what it was."""
    with np.errstate(invalid="ignore"):
        return x if source.bits >= 32 else x.astype(np.float32)


def _odd64(x: Array) -> Array:
    """Integers as float64, rounded to odd, so that one more rounding to a narrower float is correct."""
    y = x.astype(np.float64)
    if x.dtype.itemsize < 8:
        return y
    back = y.astype(np.longdouble) - x.astype(
        np.longdouble
    )  # sign of the rounding error; exact on 80-bit, 0 elsewhere
    bits = y.view(np.int64)
    inexact_even = (back != 0) & (bits & 1 == 0)
    away = np.where((back > 0) == (y > 0), bits - 1, bits + 1)
    return np.where(inexact_even, away, bits).view(np.float64)


def round_to_odd32(x: Array) -> Array:
    """float64 to float32, rounded to odd: the last bit tells of anything lost (Boldo and Melquiond, 2008).

    A further rounding to a type of at most 22 bits of precision is then the correct rounding of `x`.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        y = x.astype(np.float32)
    y = np.where(np.isinf(y) & np.isfinite(x), np.copysign(np.float32(float32.max), x), y).astype(np.float32)
    bits = np.atleast_1d(y).view(np.int32).reshape(y.shape)
    inexact = (y.astype(np.float64) != x) & np.isfinite(x)
    toward_zero = np.abs(y.astype(np.float64)) > np.abs(x)
    even = (bits & 1) == 0
    fixed = np.where(inexact & even, np.where(toward_zero, bits - 1, bits + 1), bits).astype(np.int32)
    # Zero from underflow: the odd neighbour is the smallest subnormal, with the sign of x.
    zero = inexact & (y == 0)
    small = np.copysign(np.float32(float32.smallest), x).astype(np.float32)
    return np.where(zero, small, fixed.view(np.float32))


def _narrow(x: Array, to: DType) -> Array:
    """float32 or float64 to a float of 16 or 8 bits, rounding once, to nearest even."""
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        if to == float16:
            return x.astype(np.float16)
        if to.kind == "s":
            return _to_scale(x)
        y = round_to_odd32(x) if x.dtype == np.float64 else x
        if to.bits == 8:
            y = np.where(np.abs(y) > to.max, np.copysign(np.float32(to.max), y), y)
        return y.astype(to.numpy)


def _to_scale(x: Array) -> Array:
    """To float8_e8m0fnu: the nearest power of two, a tie going up; NaN for negative or NaN; saturating at
    both ends.
    """
    y = x.astype(np.float64)
    mantissa, exponent = np.frexp(np.where(np.isfinite(y) & (y > 0), y, 1.0))
    power = exponent - 1 + (mantissa >= 0.75)
    code = np.clip(power + 127, 0, 254)
    code = np.where(y == 0, 0, np.where(np.isposinf(y), 254, code))
    code = np.where(np.isnan(y) | (y < 0), 255, code)
    return code.astype(np.uint8).view(ml_dtypes.float8_e8m0fnu)


def _to_integer(x: Array, to: DType) -> Array:
    info = np.iinfo(to.numpy)
    y = np.trunc(x.astype(np.float64))
    y = np.where(np.isnan(y), 0.0, y)
    low, high = float(info.min), float(info.max)
    with np.errstate(invalid="ignore", over="ignore"):
        inside = np.clip(y, low, np.nextafter(high, 0.0) if to.bits == 64 else high).astype(to.numpy)
    return np.where(
        y >= high, np.array(info.max, to.numpy), np.where(y <= low, np.array(info.min, to.numpy), inside)
    )
