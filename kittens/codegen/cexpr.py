"""Element operations as C-like expressions over the functions of the device headers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from kittens.dtypes import BY_NAME, DType, as_dtype
from kittens.dtypes import convert as convert_array
from kittens.errors import UnavailableError

#: How an element is held in a register: narrow floats as their bits.
CTYPES = {
    "bool": "bool", "int8": "kt_i8", "int16": "kt_i16", "int32": "kt_i32", "int64": "kt_i64",
    "uint8": "kt_u8", "uint16": "kt_u16", "uint32": "kt_u32", "uint64": "kt_u64",
    "float16": "kt_u16", "bfloat16": "kt_u16", "float32": "float",
    "float8_e4m3fn": "kt_u8", "float8_e4m3fnuz": "kt_u8", "float8_e5m2": "kt_u8", "float8_e5m2fnuz": "kt_u8",
    "float8_e8m0fnu": "kt_u8",
}  # fmt: skip
#: The part of a conversion function's name that says the type.
SHORT = {
    "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float8_e4m3fn": "e4m3fn", "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2": "e5m2", "float8_e5m2fnuz": "e5m2fnuz", "float8_e8m0fnu": "e8m0",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "u8", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip


def ctype(dtype: str) -> str:
    """The C type that holds an element. Raises UnavailableError for float64, which only the reference has."""
    if dtype not in CTYPES:
        raise UnavailableError(
            f"{dtype} exists on the reference only", hint="convert with .to(kt.float32), or run on numpy"
        )
    return CTYPES[dtype]


def literal(value: Any, dtype: str) -> str:
    """A constant of a type."""
    kind = BY_NAME[dtype]
    if kind.kind in "fs":
        return (
            _float(float(value))
            if dtype == "float32"
            else f"{CTYPES[dtype]}({_bits(float(value), kind):#x}u)"
        )
    if kind.kind == "b":
        return "true" if value else "false"
    if kind.bits == 64:
        c, value = CTYPES[dtype], int(value)
        if -(2**31) < value < 2**31:
            return f"{c}({value})"
        bits = value % 2**64  # no literal of 64 bits means the same to every compiler
        return f"{c}(kt_u64({bits >> 32}u) << 32 | {bits % 2**32}u)"
    if value == -(2**31):
        return "(-2147483647 - 1)"
    return str(value) + ("u" if kind.kind == "u" else "")


def _bits(value: float, kind: DType) -> int:
    import numpy as np

    unsigned = {8: np.uint8, 16: np.uint16}[kind.bits]
    return int(convert_array(np.asarray(value, np.float64), kind).view(unsigned))


def _float(value: float) -> str:
    import numpy as np

    with np.errstate(over="ignore"):
        x = float(np.float32(value))
    if math.isnan(x):
        return "kt_from_bits(0x7fc00000u)"
    if math.isinf(x):
        return "kt_from_bits(0x7f800000u)" if x > 0 else "kt_from_bits(0xff800000u)"
    if x == 0 or abs(x) >= 2.0**-126:
        text = repr(x)
        short = repr(np.float32(value)).removeprefix("np.float32(").removesuffix(")")
        return (
            f"{short if float(short) == x or np.float32(float(short)) == np.float32(x) else text}f"
            if "." in short or "e" in short
            else f"{short}.0f"
        )
    return f"kt_from_bits({int(np.array(x, np.float32).view(np.uint32))}u)"


def widen(text: str, dtype: str) -> str:
    """A narrow float as float32."""
    return text if dtype == "float32" else f"kt_{SHORT[dtype]}_to_f32({text})"


def narrow(text: str, dtype: str) -> str:
    """A float32 as a narrow float, rounded."""
    return text if dtype == "float32" else f"kt_f32_to_{SHORT[dtype]}({text})"


_INFIX = {"add": "+", "sub": "-", "mul": "*", "bitand": "&", "bitor": "|", "bitxor": "^"}
COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
_CALLS = {
    "sqrt": "kt_sqrt", "reciprocal": "kt_rcp", "floor": "kt_floor", "ceil": "kt_ceil", "trunc": "kt_trunc", "round": "kt_rint",
    "exp": "kt_exp", "exp2": "kt_exp2", "log": "kt_log", "log2": "kt_log2", "rsqrt": "kt_rsqrt", "sin": "kt_sin",
    "cos": "kt_cos", "tanh": "kt_tanh", "erf": "kt_erf", "abs": "kt_abs",
}  # fmt: skip


def expression(name: str, attrs: dict[str, Any], types: Sequence[str], result: str, x: Sequence[str]) -> str:
    """The value of an element-by-element operation. `types` are the operands' dtypes, `x` their texts.

    For random_bits, a third text names the state that neighbours share.
    """
    if name == "cast":
        return convert(x[0], types[0], result)
    if name == "bitcast":
        return bitcast(x[0], types[0], result)
    if name == "where":
        return f"({x[0]} ? {x[1]} : {x[2]})"
    if name == "random_bits":
        return f"kt_random_bits({x[2]}, kt_i64({x[0]}), kt_i64({x[1]}))"
    kind = BY_NAME[types[0]].kind
    if name in COMPARE:
        a, b = (widen(t, types[0]) if kind == "f" else t for t in x)
        return f"({a} {COMPARE[name]} {b})"
    if kind == "f":
        if types[0] == "float64":
            ctype("float64")
        wide = [widen(t, types[0]) for t in x]
        return (
            narrow(_float_op(name, wide), result)
            if name != "fma" or result == "float32"
            else f"kt_fma_to_{SHORT[result]}({', '.join(wide)})"
        )
    return _integer_op(name, types[0], x)


def _float_op(name: str, x: Sequence[str]) -> str:
    if name in _INFIX:
        return f"({x[0]} {_INFIX[name]} {x[1]})"
    if name == "neg":
        return f"kt_neg({x[0]})"
    if name in ("maximum", "minimum"):
        return f"kt_{name[:3]}({x[0]}, {x[1]})"
    if name in ("div", "fma"):
        return f"kt_{name}({', '.join(x)})"
    return f"{_CALLS[name]}({x[0]})"


def _integer_op(name: str, dtype: str, x: Sequence[str]) -> str:
    c = ctype(dtype)
    if name in ("bitand", "bitor", "bitxor") and dtype == "bool":
        return f"({x[0]} {_INFIX[name]} {x[1]})" if name != "bitxor" else f"({x[0]} != {x[1]})"
    if name == "bitnot":
        return f"(!{x[0]})" if dtype == "bool" else f"{c}(~{x[0]})"
    if name in ("add", "sub", "mul"):
        unsigned = (
            "kt_u64" if BY_NAME[dtype].bits == 64 else "kt_u32"
        )  # wraps; signed overflow would be undefined
        return f"{c}({unsigned}({x[0]}) {_INFIX[name]} {unsigned}({x[1]}))"
    if name in _INFIX:
        return f"{c}({x[0]} {_INFIX[name]} {x[1]})"
    if name in ("maximum", "minimum"):
        return f"({x[0]} {'>' if name == 'maximum' else '<'} {x[1]} ? {x[0]} : {x[1]})"
    if name in ("floordiv", "mod", "cdiv", "shl", "shr"):
        return f"kt_{name}<{c}>({x[0]}, {x[1]})"
    if name == "neg":
        unsigned = "kt_u64" if BY_NAME[dtype].bits == 64 else "kt_u32"
        return f"{c}({unsigned}(0) - {unsigned}({x[0]}))"
    if name == "abs":
        return x[0] if dtype.startswith("u") else f"kt_iabs<{c}>({x[0]})"
    raise UnavailableError(f"no expression for {name} on {dtype}")


def convert(x: str, source: str, to: str) -> str:
    """A conversion as `kittens.dtypes.convert` defines it."""
    s, t = as_dtype(source), as_dtype(to)
    if s == t:
        return x
    if t.kind == "b":
        return f"({widen(x, source)} != 0.0f)" if s.kind in "fs" else f"({x} != 0)"
    if s.kind in "fs":
        wide = widen(x, source)
        return f"kt_f32_to_{SHORT[to]}({wide})" if t.kind in "iu" or to != "float32" else wide
    if t.kind in "iu":
        return f"{ctype(to)}({x})"
    return _from_integer(x, s, to)


def _from_integer(x: str, source: DType, to: str) -> str:
    if to == "float32":
        return f"float({x})" if source.kind != "b" else f"({x} ? 1.0f : 0.0f)"
    if source.kind == "b" or source.bits <= 16:
        return narrow(f"float({x})", to)  # exact in float32
    helper = "kt_u64_to_f32_odd" if source.kind == "u" else "kt_i64_to_f32_odd"
    return narrow(f"{helper}({x})", to)  # rounded to odd, so that the next rounding is the only one


def bitcast(x: str, source: str, to: str) -> str:
    if source == to or ctype(source) == ctype(to):
        return x
    if to == "float32":
        return f"kt_from_bits(kt_u32({x}))"
    if source == "float32":
        return f"{ctype(to)}(kt_bits({x}))"
    return f"{ctype(to)}({x})"
