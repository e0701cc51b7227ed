"""Shipped tile sizes, by architecture, kernel and bytes in a row of its widest operand.

Attention's are the largest of a few that compile without spills and fit in LDS; where an architecture has no instruction
for float32, its products need others. The matrix product's are
256x256 where both sides have them: fewer LDS reads for each matrix instruction (bench/NOTES.md).
"""

from __future__ import annotations

import functools
from typing import Any

from kittens.arguments import TensorArg
from kittens.codegen.rows import part_tiles, query_rows, whole_rows
from kittens.targets import Target

#: (rows of up to so many bytes, BM, BN), in order; of attention_split the most rows.
_Sizes = tuple[tuple[int, int, int], ...]

_ATTENTION: dict[str, dict[str, _Sizes]] = {
    "gfx942": {
        "attention_split": ((128, 64, 64), (512, 64, 32), (768, 32, 16), (1024, 16, 16)),
        "attention_forward": ((256, 64, 64), (512, 64, 32), (768, 32, 16), (1024, 16, 16)),
        "attention_backward_q": (
            (128, 64, 64),
            (256, 64, 32),
            (384, 32, 32),
            (512, 32, 16),
            (768, 16, 16),
            (1024, 16, 8),
        ),
        "attention_backward_kv": (
            (128, 64, 64),
            (256, 64, 32),
            (384, 32, 32),
            (512, 32, 16),
            (768, 16, 16),
            (1024, 8, 16),
        ),
    },
    "gfx950": {
        "attention_split": ((256, 64, 64), (1024, 64, 32)),
        "attention_forward": ((256, 64, 64), (512, 64, 32), (1024, 32, 32)),
        "attention_backward_q": ((256, 64, 64), (512, 32, 32), (1024, 32, 16)),
        "attention_backward_kv": ((256, 64, 64), (512, 32, 32), (1024, 32, 16)),
    },
    "gfx1100": {
        "attention_split": ((128, 64, 64), (256, 64, 32), (384, 32, 32), (512, 32, 16), (1024, 16, 16)),
        "attention_forward": ((128, 64, 32), (256, 64, 32), (512, 32, 16), (1024, 16, 16)),
        "attention_backward_q": ((128, 64, 32), (256, 32, 32), (512, 32, 16), (768, 16, 16), (1024, 8, 8)),
        "attention_backward_kv": ((64, 32, 32), (512, 16, 32)),
        "attention_varlen_backward_kv": ((64, 32, 32), (384, 16, 32), (512, 32, 8)),
        "attention_varlen_backward_kv float32": (
            (256, 32, 64),
            (384, 32, 32),
            (512, 8, 16),
            (768, 16, 16),
            (1024, 8, 8),
        ),
        "attention_varlen_forward": ((128, 64, 32), (256, 32, 32), (512, 32, 16), (1024, 16, 16)),
        "attention_backward_kv float32": ((384, 16, 32), (512, 8, 16), (768, 16, 16), (1024, 8, 8)),
    },
    "gfx1201": {
        "attention_split": ((128, 64, 32), (256, 32, 32), (512, 32, 16), (1024, 16, 16)),
        "attention_varlen_backward_kv": ((64, 64, 32), (192, 32, 32), (512, 16, 32)),
        "attention_varlen_backward_kv float32": (
            (256, 32, 64),
            (384, 32, 32),
            (512, 8, 16),
            (768, 16, 16),
            (1024, 8, 8),
        ),
        "attention_forward": ((128, 64, 64), (256, 32, 32), (512, 32, 16), (1024, 16, 16)),
        "attention_backward_q": ((128, 64, 32), (256, 32, 32), (512, 32, 16), (768, 16, 16), (1024, 8, 8)),
        "attention_backward_kv": ((64, 64, 32), (128, 64, 64), (256, 32, 64), (512, 16, 32)),
        "attention_backward_kv float32": (
            (128, 64, 64),
            (256, 32, 64),
            (384, 16, 32),
            (512, 8, 16),
            (768, 16, 16),
            (1024, 8, 8),
        ),
    },
}


def shipped(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int]:
    """Values for a kernel's tunables, or none where the kernel's own first candidates serve."""
    from kittens.backends.hip.machine import DEFAULT

    arch = target.arch or DEFAULT
    if kernel == "matmul_combine":
        return part_tiles(arguments["parts"])
    if kernel in ("matmul", "matmul_split"):
        return _matmul(arch, arguments["a"], arguments["b"])
    table, dense = _ATTENTION[arch], kernel.replace("_varlen", "")
    if dense not in table:
        return whole_rows(kernel, arguments)
    q, v = arguments["q"], arguments["v"]
    # Packed sequences take the tiles of dense tensors, unless those spill.
    names = (f"{kernel} {q.dtype}", kernel, f"{dense} {q.dtype}", dense)
    sizes = next(table[name] for name in names if name in table)
    bytes_of_row = max(q.shape[-1], v.shape[-1]) * q.dtype.bytes
    if arch == "gfx950" and dense == "attention_forward" and bytes_of_row <= 256 and q.shape[-2] >= 512:
        return {"BM": 256, "BN": 64}  # two groups of lanes on each SIMD, 32 rows each
    _, rows, columns = next((s for s in sizes if bytes_of_row <= s[0]), sizes[-1])
    if kernel == "attention_split":
        rows = query_rows(q, rows)
    return {"BM": rows, "BN": columns}


def _matmul(arch: str, a: TensorArg, b: TensorArg) -> dict[str, int]:
    rows, columns = a.shape[-2], b.shape[-1]
    converted = _converted(arch, a.dtype.name)
    if converted and arch == "gfx1100":
        return {"BM": 64, "BN": 64, "BK": 32}
    if min(rows, columns) < 512 or a.dtype.bits > 16:
        return {}
    if converted and arch == "gfx1201":
        return {"BM": 128, "BN": 64, "BK": 32}
    if not converted and arch == "gfx950" and min(rows, columns) >= 2048:
        return {"BM": 256, "BN": 256, "BK": 32 if a.dtype.bits == 16 else 64}
    if arch in ("gfx942", "gfx950"):
        return {"BM": 128, "BN": 128, "BK": 32 if a.dtype.bits == 16 else 64}
    return {"BM": 128, "BN": 64, "BK": 32 if a.dtype.bits == 16 else 64}


@functools.cache
def _converted(arch: str, dtype: str) -> bool:
    """Whether operands are converted before an instruction takes them: both forms take registers."""
    from kittens.backends.hip.machine import machine

    return any(op.through for op in machine(arch).products_for(dtype, dtype)[:1])


#: Worth trying beside what the kernels list, by kernel and tunable.
CANDIDATES: dict[str, dict[str, tuple[int, ...]]] = {
    "matmul": {"BM": (32,), "BN": (32,)},
    "attention_forward": {"BM": (16, 32, 256), "BN": (16,)},
    "attention_backward_q": {"BM": (16, 32), "BN": (8, 16)},
    "attention_split": {"BN": (16,)},
    "attention_backward_kv": {"BM": (8, 16), "BN": (8, 16, 32)},
}
