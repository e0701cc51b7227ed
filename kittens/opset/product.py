"""Matrix products, accumulated in float32 (int32 for 8-bit integers)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kittens.dtypes import Array, DType, convert, float8_e8m0fnu, float32, float64, int32
from kittens.errors import ArgumentError, DTypeError, ShapeError
from kittens.ir import TileType, Type
from kittens.opset import Call, define

#: Elements of K that share one scale in a block-scaled product (OCP Microscaling Formats, version 1.0).
SCALE_BLOCK = 32

#: How products are summed: in the accumulator's type, or as docs/semantics.md says of fast products, which may be coarser.
ACCUMULATIONS = ("full", "fast")


def accumulator(a: DType, b: DType) -> DType:
    """The type in which products of `a` and `b` are summed; raises DTypeError for a pair that is not
    defined.
    """
    if a == b and a.kind == "f" and a.bits >= 16:
        return float64 if a == float64 else float32
    if a.is_float8 and b.is_float8 and a.name.endswith("fnuz") == b.name.endswith("fnuz"):
        return float32
    if a == b and a.kind in "iu" and a.bits == 8:
        return int32
    raise DTypeError(
        f"no product of {a} and {b}",
        hint="both operands take one type (float16, bfloat16, float32, int8, uint8) or two float8 of one "
        "family; convert with .to(...)",
    )


def _infer_mma(call: Call) -> Sequence[Type]:
    a, b = call.tile(0), call.tile(1)
    mode = call.attrs.get("accumulate", "full")
    if mode not in ACCUMULATIONS:
        raise ArgumentError(
            f"products do not accumulate {mode!r}", hint=f"the modes are {', '.join(ACCUMULATIONS)}"
        )
    if mode == "fast" and not (a.dtype.is_float8 and b.dtype.is_float8):
        raise DTypeError(
            f"fast accumulation is that of float8 operands, not of {a.dtype} and {b.dtype}",
            hint="leave out accumulate=",
        )
    if len(a.shape) != 2 or len(b.shape) != 2:
        raise ShapeError(
            f"a product takes two matrices, not shapes {a.shape} and {b.shape}",
            hint="use x[:, None] or x[None, :]",
        )
    if a.shape[1] != b.shape[0]:
        hint = "transpose an operand with .T" if a.shape[1] == b.shape[1] or a.shape[0] == b.shape[0] else ""
        raise ShapeError(
            f"shapes {a.shape} @ {b.shape} disagree: {a.shape[1]} columns against {b.shape[0]} rows",
            hint=hint,
        )
    result = TileType(accumulator(a.dtype, b.dtype), (a.shape[0], b.shape[1]))
    if len(call.operands) == 3 and call.tile(2) != result:
        raise DTypeError(
            f"the accumulator of this product is a tile {result}, not {call.tile(2)}",
            hint=f"start with kt.zeros({result.shape}, kt.{result.dtype})",
        )
    return [result]


def _product(a: Array, b: Array, to: DType) -> Array:
    if to == int32:  # exact in float64, and much faster there; int32 wraps
        wide = np.matmul(a.astype(np.float64), b.astype(np.float64))
        return wide.astype(np.int64).astype(np.int32)
    return np.asarray(np.matmul(convert(a, to), convert(b, to)))


def _mma(call: Call, a: Array, b: Array, c: Array | None = None) -> Array:
    with np.errstate(all="ignore"):
        out = _product(a, b, call.result.dtype)
        return out if c is None else np.asarray(c + out)


#: mma: a @ b, or c + a @ b in one accumulation whose order is the implementation's. Attribute `accumulate`: "fast", or none.
define("mma", _infer_mma, _mma, exact=False)


def _infer_scaled(call: Call) -> Sequence[Type]:
    a, sa, b, sb = (call.tile(i) for i in range(4))
    base = infer_plain(call)
    if not (a.dtype.is_float8 and b.dtype.is_float8):
        raise DTypeError(
            f"a block-scaled product takes float8 operands, not {a.dtype} and {b.dtype}",
            hint="without scales, multiply with @",
        )
    blocks = a.shape[1] // SCALE_BLOCK
    if a.shape[1] % SCALE_BLOCK or sa.shape != (a.shape[0], blocks) or sb.shape != (blocks, b.shape[1]):
        raise ShapeError(
            f"scales of shapes {sa.shape} and {sb.shape} for operands {a.shape} and {b.shape}",
            hint=f"one scale for each {SCALE_BLOCK} elements of K: ({a.shape[0]}, K/{SCALE_BLOCK}) and "
            f"(K/{SCALE_BLOCK}, {b.shape[1]})",
        )
    if sa.dtype != float8_e8m0fnu or sb.dtype != float8_e8m0fnu:
        raise DTypeError(
            f"block scales are float8_e8m0fnu, not {sa.dtype} and {sb.dtype}",
            hint="convert with .to(kt.float8_e8m0fnu)",
        )
    return base


def infer_plain(call: Call) -> Sequence[Type]:
    """The result of a block-scaled product as if it had no scales: operands are a, scales of a, b, scales
    of b, accumulator.
    """
    operands = (call.operands[0], call.operands[2], *call.operands[4:])
    return _infer_mma(Call(operands, {}))


def _scaled(call: Call, a: Array, sa: Array, b: Array, sb: Array, c: Array | None = None) -> Array:
    wide_a = convert(a, float64) * np.repeat(convert(sa, float64), SCALE_BLOCK, axis=-1)
    wide_b = convert(b, float64) * np.repeat(convert(sb, float64), SCALE_BLOCK, axis=-2)
    with np.errstate(all="ignore"):
        out = np.matmul(wide_a, wide_b).astype(np.float32)
        return out if c is None else np.asarray(c + out)


#: mma_scaled: the sum over K of a * b * 2^(scale of a's block) * 2^(scale of b's block).
define("mma_scaled", _infer_scaled, _scaled, exact=False)
