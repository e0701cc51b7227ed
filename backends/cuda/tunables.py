"""Shipped tile sizes, by kernel and class of shapes.

Attention's are the largest that compile without spills on sm_80 and sm_90a; the others were the fastest of a few tried
on an H200 (bench/NOTES.md).
"""

from __future__ import annotations

from typing import Any

from kittens.arguments import TensorArg
from kittens.targets import Target

#: Elements of whole rows that one program takes: few, so that many programs keep loads in flight.
_PROGRAM = {
    "softmax": 8192,
    "layer_norm": 8192,
    "l2_normalize": 8192,
    "rms_norm": 4096,
    "dropout_residual_layer_norm": 4096,
}


def shipped(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int]:
    """Values for a kernel's tunables, or none where the kernel's own first candidates serve."""
    if kernel == "matmul":
        return _matmul(arguments["a"], arguments["b"])
    if kernel.startswith("attention_") and "q" in arguments:
        q, v = arguments["q"], arguments["v"]
        return _attention(kernel, max(q.shape[-1], v.shape[-1]), q.dtype.bytes)
    if kernel in _PROGRAM and arguments["resident"]:
        return {"BM": _power_of_two(_PROGRAM[kernel] // max(arguments["x"].shape[-1], 1))}
    if kernel == "rotary":
        return {"BM": 16, "PARTS": 2}
    if kernel in ("activation", "gated", "add") and arguments["y"].shape[-1] >= 1024:
        return {"BM": 4, "BN": 1024}
    return {}


def _matmul(a: TensorArg, b: TensorArg) -> dict[str, int]:
    if a.dtype.bits > 16:
        return {}
    if not (_aligned(a) and _aligned(b)) or (
        a.dtype.bits == 8 and (a.strides[-1] != 1 or b.strides[-2] != 1)
    ):
        return {
            "BM": 32,
            "BN": 32,
            "BK": 32,
        }  # copied or read element by element, which takes registers for addresses
    if min(a.shape[-2], b.shape[-1]) < 512:
        return {}
    return {"BM": 128, "BN": 128, "BK": 32 if a.dtype.bits == 16 else 64}


def _power_of_two(n: int) -> int:
    """The largest power of two not above n, from 1 to 32."""
    return max(1, min(32, 1 << n.bit_length() >> 1))


def _aligned(x: TensorArg) -> bool:
    """Whether rows (or columns) of a matrix can be copied 16 bytes at a time."""
    pair = sorted(x.strides[-2:])
    return pair[0] == 1 and pair[1] * x.dtype.bytes % 16 == 0 and x.alignment == 16


def _attention(kernel: str, width: int, itemsize: int) -> dict[str, int]:
    row_bytes = width * itemsize
    if kernel == "attention_forward":
        return {"BM": 64, "BN": 32} if row_bytes > 768 else {}
    if kernel == "attention_backward_q" and (width <= 32 or (64 < width < 128 and itemsize == 2)):
        return {"BM": 64, "BN": 32}
    if row_bytes > 512:
        return {"BM": 32, "BN": 32}
    return {"BM": 64, "BN": 32} if row_bytes == 512 and itemsize == 2 else {}


#: Worth trying beside what the kernels list, by kernel and tunable.
CANDIDATES: dict[str, dict[str, tuple[int, ...]]] = {
    "matmul": {"BM": (32, 192), "BN": (32, 192)},
    "attention_forward": {"BM": (192, 256), "BN": (96, 256)},
}
