"""Shipped tile sizes, by kernel and class of shapes.

Attention's are the largest that compile without spills on sm_80 and sm_90a; the others were the fastest of a few tried
on an H200 (bench/NOTES.md).
"""

from __future__ import annotations

import math
from typing import Any

from kittens.arguments import TensorArg
from kittens.codegen.rows import ELEMENTS, part_tiles, query_rows, whole_rows
from kittens.targets import Rows, Target

#: Elements of whole rows that one program takes where others are faster than what serves everywhere.
_ELEMENTS = {**ELEMENTS, "rms_norm": 4096}


#: For tensors that wide at least: which one's columns count, and the tiles.
_WIDE: dict[str, tuple[str, dict[str, int]]] = {
    "activation": ("y", {"BM": 8, "BN": 1024}),
    "add": ("y", {"BM": 4, "BN": 1024}),
    "gated": ("y", {"BM": 8, "BN": 512}),
    "copy": ("y", {"BM": 4, "BN": 1024}),
    "cross_entropy_forward": ("x", {"BM": 1, "BN": 2048}),
    "cross_entropy_backward": ("x", {"BM": 4, "BN": 1024}),
    "embedding": ("table", {"BN": 1024}),
}


def shipped(target: Target, kernel: str, arguments: dict[str, Any]) -> dict[str, int]:
    """Values for a kernel's tunables, or none where the kernel's own first candidates serve."""
    engine = _architecture(target) == "sm_90a"
    if kernel == "matmul_combine":
        return part_tiles(arguments["parts"])
    if kernel in ("matmul", "matmul_split"):
        if not (engine and _multiplied(arguments)):
            return _matmul(arguments["a"], arguments["b"])
        return _matmul_by_engine(arguments) if kernel == "matmul" else _split_by_engine(arguments)
    if kernel == "attention_split":
        return _split(arguments["q"], arguments["v"])
    if kernel.startswith("attention_varlen_"):
        return _varlen(kernel, arguments, engine)
    if kernel.startswith("attention_") and "q" in arguments:
        q, v = arguments["q"], arguments["v"]
        mapped = [arguments[n] for n in ("q", "k", "v", "do") if n in arguments]
        adding = arguments.get("dq") is not None and kernel == "attention_backward_kv"
        by_engine = engine and _copied(*mapped)
        how = {"adding": adding, "windowed": arguments.get("left") is not None}
        found = _attention_by_engine(kernel, q, arguments["k"], v, **how) if by_engine else {}
        return found or _attention(kernel, max(q.shape[-1], v.shape[-1]), q.dtype.bytes)
    if kernel == "transpose" and engine and arguments["x"].dtype.bits == 8:
        return {"BM": 128, "BN": 32}
    if kernel == "rotary":
        return {"BM": 16, "PARTS": 2}
    if kernel in _WIDE and arguments[_WIDE[kernel][0]].shape[-1] >= _WIDE[kernel][1].get("BN", 0):
        return _WIDE[kernel][1]
    if kernel == "softmax" and not arguments["resident"] and arguments["x"].shape[-1] >= 2048:
        return {"BM": 1, "BN": 2048}
    return whole_rows(kernel, arguments, _ELEMENTS)


def _architecture(target: Target) -> str:
    """The architecture that a target stands for on this machine: its device's, if there is one."""
    if target.arch:
        return target.arch
    from kittens.backends.cuda import missing
    from kittens.backends.cuda.machine import DEFAULT

    if "execute" in missing():
        return DEFAULT
    from kittens.backends.cuda.launch import device_arch

    return device_arch(target.index or 0)


def _copied(*tensors: TensorArg, dtypes: tuple[str, ...] = ("bfloat16", "float16")) -> bool:
    """Whether the engine can copy tiles of tensors (kittens.codegen.roles), and they are of these types."""
    return all(
        x.dtype.name in dtypes
        and 2 <= len(x.shape) <= 5
        and x.alignment == 16
        and sorted(x.strides)[0] == 1
        and all(s == 1 or s * x.dtype.bytes % 16 == 0 for s in x.strides)
        for x in tensors
    )


def adds(target: Target, kernel: str, arguments: dict[str, Any]) -> bool:
    """Whether attention's gradients in keys and values take that in queries with them: where the engine does it all."""
    q, k, v, do = (arguments[name] for name in ("q", "k", "v", "do"))
    if kernel != "attention_backward_kv" or _architecture(target) != "sm_90a" or not _copied(q, k, v, do):
        return False
    windowed = arguments["left"] is not None
    return bool(_attention_by_engine(kernel, q, k, v, adding=True, windowed=windowed))


#: Types of which the engine makes fast products.
_FAST = ("float8_e4m3fn", "float8_e5m2")


def _multiplied(arguments: dict[str, Any]) -> bool:
    """Whether the engine makes a product of these: of float8 fast ones alone, of operands that lie along K."""
    a, b = arguments["a"], arguments["b"]
    if a.dtype.bits != 8:
        return _copied(a, b)
    fast = arguments["accumulate"] != "full" and a.strides[-1] == 1 and b.strides[-2] == 1
    return fast and _copied(a, b, dtypes=_FAST)


#: Multiplications of a product from which on a copy of its operands is cheaper than tiles copied element by element.
_WORTH_COPIES = 1 << 27


def rows(target: Target, kernel: str, arguments: dict[str, Any]) -> Rows | None:
    """What the engine asks of rows, for products so large that operands of other rows had better be copied before."""
    if kernel != "matmul" or _architecture(target) != "sm_90a":
        return None
    a, b = arguments["a"], arguments["b"]
    here = target.simulated or all(x.target is not None and x.target.backend == "cuda" for x in (a, b))
    if not here or math.prod(a.shape) * b.shape[-1] < _WORTH_COPIES:
        return None
    if a.dtype.bits == 8:
        fast = arguments["accumulate"] != "full" and {a.dtype.name, b.dtype.name} <= set(_FAST)
        return Rows(16, along=True) if fast else None
    return Rows(16) if a.dtype == b.dtype and a.dtype.name in ("bfloat16", "float16") else None


#: Programs that fill an H200's 132 processors, or nearly.
_FULL = 100


def _matmul_by_engine(arguments: dict[str, Any]) -> dict[str, int]:
    """The largest tiles of which there are enough; of few rows, narrow ones, each of which reads its columns of b alone.

    A result that is stored two bytes at a time, and what it is computed from, takes too many registers in wide ones; so do
    promoted sums, of which there are two.
    """
    a, b, c = (arguments[name] for name in "abc")
    m, n = a.shape[-2], b.shape[-1]
    scaled = arguments["a_scale"] is not None or arguments["b_scale"] is not None
    more = arguments["bias"] is not None or arguments["activation"] != "none"
    heavy = arguments["activation"] not in ("none", "relu")
    across = c.strides[-1] != 1
    widest = 256
    if c.dtype.bits != 16 or across or not _copied(c):  # stored by the threads
        widest >>= min(scaled + more + across + heavy, 2)
    elif heavy:
        widest = 128
    if arguments["accumulate"] == "promoted":
        widest = min(widest, 192 if m * n >= 1 << 26 else 128)
    batch, row = math.prod(a.shape[:-2]), 128 // a.dtype.bytes
    for bm, bn, bk in ((128, min(widest, 256), row), (128, 128, row), (128, 64, row)):
        if bn <= widest and -(-m // bm) * -(-n // bn) * batch >= _FULL and m > bm // 2:
            return {"BM": bm, "BN": bn, "BK": bk}
    return {"BM": 128 if m > 64 else 64, "BN": 64, "BK": 128}


def _split_by_engine(arguments: dict[str, Any]) -> dict[str, int]:
    """Tiles as large as make the most of what is copied: there are as many programs as are asked for. Of small results they are
    smaller, so that these come in fewer parts, which have to be added.
    """
    a, b = arguments["a"], arguments["b"]
    m, n = a.shape[-2], b.shape[-1]
    few = m <= 64 or -(-m // 128) * -(-n // 128) < 16
    wide = n > 64 and (m <= 64 or not few)
    return {
        "BM": 64 if few else 128,
        "BN": 128 if wide else 64,
        "BK": 128 if few or not wide else 128 // a.dtype.bytes,
    }


def _attention_by_engine(
    kernel: str, q: TensorArg, k: TensorArg, v: TensorArg, *, adding: bool, windowed: bool
) -> dict[str, int]:
    """Two teams of 64 rows, or three where sums are narrow and no more than a tenth of the rows would be beyond the last."""
    width, rows = max(q.shape[-1], v.shape[-1]), q.shape[2]
    if width % 8 or width > 256:
        return {}
    if kernel == "attention_forward":
        if rows <= 64:
            return {"BM": 64, "BN": 128 if width <= 128 else 64}
        if width <= 64:
            return {"BM": 192 if -(-rows // 192) * 192 <= rows * 1.1 else 128, "BN": 128}
        return {"BM": 128, "BN": 128 if width <= 128 else 64}
    if kernel == "attention_backward_q" and width <= 128 and rows > 64:
        return {"BM": 128, "BN": 128 if width <= 64 else 64}
    if adding:  # dq, in the same kernel: its columns or its rows are shared by two teams
        fits = q.shape[-1] == v.shape[-1] and (width in (32, 128) or (width == 64 and not windowed))
        return {"BM": 128 if width <= 64 else 64, "BN": 128} if fits else {}
    if kernel == "attention_backward_kv" and width <= 128 and k.shape[2] > 64:
        return {"BM": 96 if width <= 64 else 64 if width <= 96 else 32 if windowed else 48, "BN": 128}
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
    return {"BM": 128, "BN": 128, "BK": 32} if a.dtype.bits == 16 else {"BM": 64, "BN": 128, "BK": 64}


def _aligned(x: TensorArg) -> bool:
    """Whether rows (or columns) of a matrix can be copied 16 bytes at a time."""
    pair = sorted(x.strides[-2:])
    return pair[0] == 1 and pair[1] * x.dtype.bytes % 16 == 0 and x.alignment == 16


def _attention(kernel: str, width: int, itemsize: int) -> dict[str, int]:
    row_bytes = width * itemsize
    if kernel == "attention_forward":
        narrow = {1: width > 64, 2: 128 < width < 192, 4: 64 < width < 128 or width > 192}[itemsize]
        return {"BM": 64, "BN": 32} if narrow else {}
    if kernel == "attention_backward_q" and (width <= 32 or 64 < width < 128):
        return {"BM": 64, "BN": 32}
    if row_bytes > 512:
        side = 16 if kernel == "attention_backward_kv" and 768 < row_bytes < 1024 else 32
        return {"BM": side, "BN": side}
    return {"BM": 64, "BN": 32} if row_bytes > 384 and itemsize == 2 else {}


#: For packed sequences, by kernel and bytes of an element: (heads up to so wide, BM, BN), in order; the largest that compile
#: without spills. Where a sequence begins takes registers, so that these differ from those of dense tensors.
_VARLEN: dict[str, dict[int, tuple[tuple[int, int, int], ...]]] = {
    "attention_varlen_forward": {
        2: ((96, 64, 64), (127, 64, 32), (128, 64, 64), (256, 64, 32)),
        4: ((80, 64, 64), (160, 64, 32), (192, 64, 64), (255, 32, 16), (256, 64, 32)),
    },
    "attention_varlen_backward_kv": {
        2: ((63, 32, 64), (64, 64, 64), (127, 32, 32), (128, 64, 64), (191, 16, 64), (256, 64, 32)),
        4: ((128, 64, 64), (192, 64, 32), (255, 16, 32), (256, 32, 32)),
    },
    "attention_varlen_backward_q": {
        2: ((63, 64, 32), (64, 64, 64), (127, 64, 32), (175, 64, 64), (256, 64, 32)),
        4: ((64, 64, 64), (128, 64, 32), (160, 32, 32), (192, 64, 32), (256, 32, 16)),
    },
}


def _varlen(kernel: str, arguments: dict[str, Any], engine: bool) -> dict[str, int]:
    q, k, v = (arguments[name] for name in ("q", "k", "v"))
    mapped = [arguments[n] for n in ("q", "k", "v", "do") if n in arguments]
    if engine and _copied(*mapped) and all(x.strides[-1] == 1 for x in mapped):
        # Of lengths no more is known than what all sequences have together.
        sequences = max(arguments["cu_q"].shape[0] - 1, 1)
        means = [-(-x.shape[1] // sequences) for x in (q, k)]
        found = _varlen_by_engine(kernel, q, v, *means, windowed=arguments["left"] is not None)
        if found:
            return found
    width, sizes = max(q.shape[-1], v.shape[-1]), _VARLEN[kernel][max(q.dtype.bytes, 2)]
    _, rows, columns = next((s for s in sizes if width <= s[0]), sizes[-1])
    return {"BM": rows, "BN": columns}


def _varlen_by_engine(
    kernel: str, q: TensorArg, v: TensorArg, queries: int, keys: int, *, windowed: bool
) -> dict[str, int]:
    """As for dense tensors, as far as registers go. queries, keys: of a sequence in the mean. Not measured on a device yet."""
    width = max(q.shape[-1], v.shape[-1])
    if kernel == "attention_varlen_forward":
        # With bounds on both sides three teams have too few registers.
        three = 16 < width <= 64 and queries > 256 and not windowed
        rows = 64 if queries <= 64 else 192 if three else 128
        columns = 128 if width <= 128 else 32 if width > 192 and windowed and rows > 64 else 64
        return {"BM": rows, "BN": columns}
    if kernel == "attention_varlen_backward_q" and width <= 128 and queries > 64:
        return {"BM": 128, "BN": 128 if width <= 64 else 64}
    if kernel == "attention_varlen_backward_kv" and width <= 128:
        sizes = (64, 48, 32) if windowed else (96, 64, 48)
        rows = sizes[(width > 64) + (width > 96)]
        return {"BM": rows, "BN": 128 if keys > 64 else 64}
    return {}


#: Bytes of keys in a block: with those of values, and three blocks ahead of the one at work, programs are small enough that
#: some share a processor, and have enough under way together.
_BLOCK_BYTES = 8192


def _split(q: TensorArg, v: TensorArg) -> dict[str, int]:
    row_bytes = max(q.shape[-1], v.shape[-1]) * q.dtype.bytes
    return {
        "BM": query_rows(q, 64 if row_bytes <= 512 else 16),
        "BN": max(16, min(64, _BLOCK_BYTES // row_bytes // 16 * 16)),
    }


#: Worth trying beside what the kernels list, by kernel and tunable.
CANDIDATES: dict[str, dict[str, tuple[int, ...]]] = {
    "matmul": {"BM": (32, 192), "BN": (32, 192)},
    "attention_forward": {"BM": (192, 256), "BN": (96, 256)},
    "attention_split": {"BN": (16,)},
}
