"""Shipped tile sizes, by kernel and class of shapes.

Attention's are the largest that compile without spills on sm_80 and sm_90a; the matrix product's were the fastest of a
few tried on an H200 (bench/NOTES.md).
"""

from __future__ import annotations

from typing import Any

from kittens.arguments import TensorArg
from kittens.targets import Target


def shipped(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int]:
    """Values for a kernel's tunables, or none where the kernel's own first candidates serve."""
    if kernel == "matmul":
        return _matmul(arguments["a"], arguments["b"])
    if kernel.startswith("attention_") and "q" in arguments:
        q, v = arguments["q"], arguments["v"]
        return _attention(kernel, max(q.shape[-1], v.shape[-1]), q.dtype.bytes)
    return {}


def _matmul(a: TensorArg, b: TensorArg) -> dict[str, int]:
    if min(a.shape[-2], b.shape[-1]) < 512 or a.dtype.bits > 16:
        return {}
    return {"BM": 128, "BN": 128, "BK": 32 if a.dtype.bits == 16 else 64}


def _attention(kernel: str, width: int, itemsize: int) -> dict[str, int]:
    row_bytes = width * itemsize
    if kernel == "attention_forward":
        return {"BM": 64, "BN": 32} if row_bytes > 768 else {}
    if kernel == "attention_backward_q" and width <= 32:
        return {"BM": 64, "BN": 32}
    if row_bytes > 512:
        return {"BM": 32, "BN": 32}
    return {"BM": 64, "BN": 32} if row_bytes == 512 and itemsize == 2 else {}
