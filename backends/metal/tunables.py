"""Tile sizes shipped for Apple GPUs, chosen by what plans predict: no spills, threadgroup memory to spare.

None was measured on a device yet. `kittens tune` will replace them.
"""

from __future__ import annotations

from typing import Any

from kittens.arguments import TensorArg
from kittens.codegen.rows import part_tiles, query_rows, whole_rows
from kittens.targets import Target


def shipped(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int] | None:
    """Values for the tunables of a library kernel; None for those whose own defaults serve."""
    chosen = _BY_KERNEL.get(kernel.replace("_varlen", ""))
    return chosen(arguments) if chosen else whole_rows(kernel, arguments) or None


def _bits(argument: Any) -> int:
    return argument.dtype.bits if isinstance(argument, TensorArg) else 32


def _matmul(arguments: dict[str, Any]) -> dict[str, int]:
    # 32x32 of the result for each of four simdgroups; along K what two operands' registers allow.
    return {"BM": 64, "BN": 64, "BK": {32: 16, 16: 32}.get(_bits(arguments["a"]), 32)}


def _heads(arguments: dict[str, Any]) -> tuple[int, int]:
    """(the largest head dimension, its bytes)."""
    width = max(arguments[name].shape[-1] for name in ("q", "v"))
    return width, width * _bits(arguments["q"]) // 8


# Attention: staged keys and values take threadgroup memory, results and queries take registers, both with
# the head dimension. Each of four simdgroups has eight queries (backward for keys: eight keys) or a multiple
# of it.


def _forward(arguments: dict[str, Any]) -> dict[str, int]:
    width, row = _heads(arguments)
    if width > 192 or row > 512:
        return {"BM": 16, "BN": 16}
    return {"BM": 64 if row <= 128 else 32, "BN": 32 if row <= 256 else 16}


def _backward_kv(arguments: dict[str, Any]) -> dict[str, int]:
    width, row = _heads(arguments)
    if row <= 256:
        return {"BM": 32 if row <= 192 else 16, "BN": 32}
    return {"BM": 16, "BN": 8} if row > 384 and width <= 128 else {"BM": 16, "BN": 16}


def _backward_q(arguments: dict[str, Any]) -> dict[str, int]:
    _, row = _heads(arguments)
    if row <= 384:
        return {"BM": 32, "BN": 32 if row <= 256 else 16}
    return {"BM": 8, "BN": 8} if row <= 768 else {"BM": 32, "BN": 8}


def _split(arguments: dict[str, Any]) -> dict[str, int]:
    _, row = _heads(arguments)
    rows = query_rows(arguments["q"], 64 if row <= 256 else 32 if row <= 512 else 16)
    return {"BM": rows, "BN": 32 if row <= 256 or (rows > 16 and row <= 512) else 16}


_BY_KERNEL = {
    "matmul": _matmul,
    "matmul_split": _matmul,
    "matmul_combine": lambda arguments: part_tiles(arguments["parts"]),
    "attention_forward": _forward,
    "attention_backward_kv": _backward_kv,
    "attention_backward_q": _backward_q,
    "attention_split": _split,
    "attention_delta": lambda arguments: {"BM": 32},
}


#: Worth trying beside what the kernels list, by kernel and tunable.
CANDIDATES: dict[str, dict[str, tuple[int, ...]]] = {
    "matmul": {"BM": (32,), "BN": (32,), "BK": (16,)},
    "attention_forward": {"BM": (16, 32), "BN": (16, 32)},
    "attention_backward_q": {"BM": (16, 32), "BN": (16,)},
    "attention_split": {"BN": (16,)},
    "attention_backward_kv": {"BM": (16,), "BN": (16, 32)},
}
