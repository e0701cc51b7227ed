"""How many rows a program takes of the library's kernels: what backends' tunables share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kittens.arguments import TensorArg

#: Elements of one program, by kernel: few enough to stay in registers, and for several programs on a processor.
ELEMENTS: Mapping[str, int] = {
    "softmax": 8192,
    "layer_norm": 8192,
    "l2_normalize": 8192,
    "rms_norm": 8192,
    "dropout_residual_layer_norm": 4096,
}
MOST = 32


def whole_rows(
    kernel: str, arguments: dict[str, Any], elements: Mapping[str, int] = ELEMENTS
) -> dict[str, int]:
    """The rows of a program, a power of two, for kernels and arguments whose rows are held; nothing for others."""
    if kernel not in elements or not arguments.get("resident"):
        return {}
    rows = elements[kernel] // max(arguments["x"].shape[-1], 1)
    return {"BM": max(1, min(MOST, 1 << rows.bit_length() >> 1))}


#: Elements of parts that a program adds, and parts at once and columns at most.
PART_ELEMENTS, PARTS, PART_COLUMNS = 4096, 32, 1024


def part_tiles(parts: TensorArg) -> dict[str, int]:
    """Tiles for the sum of parts (S, ..., M, N): as many parts as there are, up to a number, and columns of one row."""
    at_once = min(PARTS, _power(parts.shape[0]))
    return {
        "BS": at_once,
        "BN": max(16, min(PART_ELEMENTS // at_once, PART_COLUMNS, _power(parts.shape[-1]))),
    }


def _power(n: int) -> int:
    """The least power of two not below n."""
    return 1 << max(n - 1, 0).bit_length()


def query_rows(q: TensorArg, most: int) -> int:
    """Rows of a tile that holds the queries of a group, of q (B, Hk, R, D): a power of two from 16 to `most`."""
    return min(max(16, 1 << max(q.shape[2] - 1, 0).bit_length()), most)
