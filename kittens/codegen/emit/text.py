"""Small pieces of text: index arithmetic, names, numbers."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from kittens import layouts as lay
from kittens.codegen.placement import (
    shape,
    squeezed,
)
from kittens.errors import InternalError
from kittens.ir import Op, Value
from kittens.layouts import Tiled


@functools.lru_cache(4096)
def fit(values: tuple[int, ...], name: str) -> str | None:
    """An expression in `name` (0 .. len - 1) for a sequence that is linear in the digits of some mixed-radix number."""
    n = len(values)
    start = values[0]
    terms, below = [], 1
    while below < n:
        step = values[below] - start
        size = 1
        while below * (size + 1) <= n and values[below * size] - start == step * size:
            size += 1
        while size > 1 and n % (below * size):
            size -= 1
        if size == 1:
            return None
        terms.append((below, size, step))
        below *= size
    for i, v in enumerate(values):
        if v != start + sum(i // b % s * t for b, s, t in terms):
            return None
    texts = []
    for b, s, t in terms:
        if t:
            text = name if b == 1 else f"{name} / {b}"
            text = text if b * s == n else f"{text} % {s}"
            texts.append(text if t == 1 else f"{text} * {t}")
    if start:
        texts.append(str(start))
    return " + ".join(texts) or "0"


def pure(x: str) -> bool:
    return re.fullmatch(r"[\w.]+", x) is not None


def paren(x: str) -> str:
    return x if pure(x) else f"({x})"


RESERVED = {
    "int", "float", "double", "char", "bool", "const", "for", "if", "else", "while", "do", "switch", "case", "default", "auto", "register", "this", "new", "delete",
    "class", "struct", "union", "enum", "template", "typename", "operator", "public", "private", "protected", "virtual", "static", "extern", "inline", "volatile",
    "signed", "unsigned", "short", "long", "void", "return", "goto", "sizeof", "true", "false", "half", "bfloat", "device", "constant", "threadgroup", "thread", "kernel",
    "vertex", "fragment", "ray_data", "object_data", "visible", "intersection", "main", "program", "first", "tall", "share", "number", "row", "col", "left", "bytes", "inside", "ptr", "vec", "el", "word", "mi", "ni", "kk", "fi", "stage", "each", "from", "along", "total", "piece",
}  # fmt: skip


def plus(text: str, n: int) -> str:
    """`text` + n, where text may be a number."""
    return str(int(text) + n) if text.isdigit() else f"{text} + {n}" if n else text


def times(text: str, n: int) -> str:
    return text if n == 1 else f"{text} * {n}"


def first_of(r: str, width: int) -> str:
    """The first register of the vector of `width` that register r is in."""
    return str(int(r) // width * width) if r.isdigit() else f"{paren(r)} / {width} * {width}"


def added(*terms: str | int) -> str:
    """The sum of terms, those that are nothing left out."""
    return " + ".join(str(t) for t in terms if t not in ("", "0", 0)) or "0"


def packed_words(texts: Sequence[str], bits: int) -> str:
    """Elements as a 32-bit word, the first lowest."""
    return " | ".join(f"kt_u32({text})" + (f" << {bits * i}" if i else "") for i, text in enumerate(texts))


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ") + '"'


def row_major(index: Sequence[str], extents: Sequence[int]) -> str:
    """The row-major number of an index."""
    text = ""
    for x, n in zip(index, extents, strict=False):
        text = f"({text}) * {n}" if text else ""
        if x != "0":
            text = f"{text} + {paren(x)}" if text else paren(x)
    return text or "0"


def source_index(op: Op, index: list[str]) -> list[str]:
    """The index, in the operand, of a result's element of a broadcast, reshape or transpose."""
    source, result = shape(op.operands[0]), shape(op.result)
    if op.name == "transpose":
        out = [""] * len(source)
        for i, p in enumerate(op.attrs["perm"]):
            out[p] = index[i]
        return out
    if op.name == "broadcast":
        tail = index[len(result) - len(source) :]
        return ["0" if n == 1 else x for n, x in zip(source, tail, strict=False)]
    if squeezed(source) == squeezed(result):
        found = iter([x for x, n in zip(index, result, strict=False) if n != 1])
        return ["0" if n == 1 else next(found) for n in source]
    number = paren(row_major(index, result))
    out = []
    below = 1
    for n in reversed(source):
        out.append("0" if n == 1 else f"{number} / {below} % {n}")
        below *= n
    return out[::-1]


def follows(value: Value, on: set[Value]) -> bool:
    """Whether a scalar follows from any of some values."""
    op = value.producer
    return value in on or (op is not None and any(follows(x, on) for x in op.operands))


@functools.lru_cache(4096)
def holders(layout: Tiled) -> tuple[list[int], str]:
    import numpy as np

    numbers = lay.elements(layout)
    seen: set[int] = set()
    keep = np.zeros(numbers.shape, bool)
    flat = numbers.reshape(-1)
    _, first = np.unique(flat, return_index=True)
    del seen
    keep.reshape(-1)[first] = True
    groups, lanes, registers = (np.nonzero(keep.any(axis=axes))[0] for axes in ((1, 2), (0, 2), (0, 1)))
    if keep[np.ix_(groups, lanes, registers)].sum() != keep.sum() or keep.sum() != len(groups) * len(
        lanes
    ) * len(registers):
        raise InternalError("copies of a tile's elements do not lie regularly")
    conditions = [
        condition(layout.lanes, lanes.tolist(), "lane"),
        condition(layout.groups, groups.tolist(), "group"),
    ]
    return registers.tolist(), " && ".join(c for c in conditions if c)


def condition(total: int, members: list[int], name: str) -> str:
    if len(members) == total:
        return ""
    mask = 0
    for bit in range(total.bit_length()):
        if not any(m >> bit & 1 for m in members):
            mask |= 1 << bit
    mask &= (1 << max(total - 1, 1).bit_length()) - 1
    if members == [x for x in range(total) if not x & mask]:
        return f"({name} & {mask}) == 0"
    if members == list(range(len(members))):
        return f"{name} < {len(members)}"
    return "(" + " || ".join(f"{name} == {m}" for m in members) + ")"
