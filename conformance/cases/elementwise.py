"""Operations element by element: every operation x every dtype it takes x special values, ragged shapes,
layouts.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import BOOL, COMPUTES, FLOATS, INTEGERS, normal, pairs, special, wide
from kittens.conformance.cases.inputs import matrix as as_matrix
from kittens.dtypes import BY_NAME, DType

UNARY = {
    "neg": (lambda x: -x, FLOATS + INTEGERS),
    "abs": (abs, FLOATS + INTEGERS),
    "bitnot": (lambda x: ~x, [*INTEGERS, BOOL]),
    "isnan": (kt.isnan, FLOATS),
    "relu": (kt.relu, FLOATS + INTEGERS),
    "square": (lambda x: x**2, FLOATS + INTEGERS),
    **{
        name: (getattr(kt, name), FLOATS)
        for name in [
            "sqrt",
            "reciprocal",
            "floor",
            "ceil",
            "trunc",
            "round",
            "exp",
            "exp2",
            "log",
            "log2",
            "rsqrt",
            "sin",
            "cos",
            "tanh",
            "erf",
            "sigmoid",
            "silu",
            "gelu",
        ]
    },
    "gelu_tanh": (lambda x: kt.gelu(x, "tanh"), FLOATS),
}

BINARY = {
    "add": (lambda a, b: a + b, FLOATS + INTEGERS),
    "sub": (lambda a, b: a - b, FLOATS + INTEGERS),
    "mul": (lambda a, b: a * b, FLOATS + INTEGERS),
    "div": (lambda a, b: a / b, FLOATS),
    "floordiv": (lambda a, b: a // b, INTEGERS),
    "mod": (lambda a, b: a % b, INTEGERS),
    "cdiv": (kt.cdiv, INTEGERS),
    "maximum": (kt.maximum, COMPUTES),
    "minimum": (kt.minimum, COMPUTES),
    "bitand": (lambda a, b: a & b, [*INTEGERS, BOOL]),
    "bitor": (lambda a, b: a | b, [*INTEGERS, BOOL]),
    "bitxor": (lambda a, b: a ^ b, [*INTEGERS, BOOL]),
    "shl": (lambda a, b: a << b, INTEGERS),
    "shr": (lambda a, b: a >> b, INTEGERS),
    "lt": (lambda a, b: a < b, COMPUTES),
    "le": (lambda a, b: a <= b, COMPUTES),
    "gt": (lambda a, b: a > b, COMPUTES),
    "ge": (lambda a, b: a >= b, COMPUTES),
    "eq": (lambda a, b: a == b, COMPUTES),
    "ne": (lambda a, b: a != b, COMPUTES),
}

TERNARY = {
    "fma": (kt.fma, FLOATS),
    "clamp": (kt.clamp, FLOATS + INTEGERS),
    "where": (lambda a, b, c: kt.where(a < b, c, a), COMPUTES),
    "contraction": (lambda a, b, c: a * b + c, FLOATS),  # must not be fused
}

PREDICATES = {"isnan", "lt", "le", "gt", "ge", "eq", "ne"}


def _grid(x, BM, BN):
    return kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)


@kt.kernel(grid=_grid)
def unary(x, out, *, op, BM=16, BN=32):
    i, j = kt.program_id()
    kt.store(out, (i, j), UNARY[op][0](kt.load(x, (i, j), (BM, BN))))


@kt.kernel(grid=_grid)
def binary(x, y, out, *, op, BM=16, BN=32):
    i, j = kt.program_id()
    at, shape = (i, j), (BM, BN)
    kt.store(out, at, BINARY[op][0](kt.load(x, at, shape), kt.load(y, at, shape)))


@kt.kernel(grid=_grid)
def ternary(x, y, z, out, *, op, BM=16, BN=32):
    i, j = kt.program_id()
    at, shape = (i, j), (BM, BN)
    kt.store(out, at, TERNARY[op][0](kt.load(x, at, shape), kt.load(y, at, shape), kt.load(z, at, shape)))


TABLES = {1: (UNARY, unary), 2: (BINARY, binary), 3: (TERNARY, ternary)}
NAMES = ("x", "y", "z")


def _inputs(kind: str, arity: int, dtype: DType, name: str) -> list[np.ndarray]:
    """Arrays of one shape: every combination of special values, or random ones on a ragged shape."""
    rng = seeded(name)
    if kind == "special" and arity == 1:
        values = special(dtype)
        return [
            as_matrix(np.concatenate([values, wide(rng, (500,), dtype), normal(rng, (400,), dtype, 3.0)]))
        ]
    if kind == "special" and arity == 2:
        return list(pairs(dtype))
    if kind == "special":
        pool = special(dtype)
        return [rng.choice(pool, (40, 50)) for _ in range(3)]
    shape = {"ragged": (37, 45), "one": (1, 1), "row": (1, 67), "column": (35, 1), "empty": (0, 5)}[kind]
    return [wide(rng, shape, dtype) if arity < 3 else normal(rng, shape, dtype) for _ in range(arity)]


def _case(arity: int, op: str, dtype: DType, kind: str, layout: str = "plain") -> Case:
    kernel = TABLES[arity][1]
    name = f"elementwise/{op}/{dtype}/{kind}" + ("" if layout == "plain" else f"-{layout}")
    result = BOOL if op in PREDICATES else dtype

    def make():
        arrays = _inputs(kind, arity, dtype, name)
        return {
            **{n: In(a, layout) for n, a in zip(NAMES, arrays, strict=False)},
            "out": Out(result, arrays[0].shape, layout),
        }

    return Case(name, kernel, make, {"op": op}, cost=2000.0)


@kt.kernel(grid=_grid)
def broadcasting(x, row, column, out, *, op, BM=16, BN=32):
    """Tiles of rank 2, 1 and 0, and a number, in one expression."""
    i, j = kt.program_id()
    f = BINARY[op][0]
    a, r, c = kt.load(x, (i, j), (BM, BN)), kt.load(row, j, BN), kt.load(column, i, BM)
    kt.store(out, (i, j), f(f(f(a, r), c[:, None]), 3))


@kt.kernel(grid=_grid)
def widening(x, y, out, *, op, BM=16, BN=32):
    """Operands of two dtypes meet in the wider."""
    i, j = kt.program_id()
    at, shape = (i, j), (BM, BN)
    kt.store(out, at, BINARY[op][0](kt.load(x, at, shape), kt.load(y, at, shape)))


MEETING = [
    ("float16", "float32"), ("bfloat16", "float32"), ("float32", "float64"),
    ("bool", "int32"), ("bool", "float32"), ("int8", "int32"), ("int16", "int64"), ("uint8", "uint32"),
    ("uint16", "uint64"),
]  # fmt: skip


def _widening(op: str, a: DType, b: DType) -> Case:
    name = f"elementwise/{op}/{a}-{b}/widening"

    def make():
        rng = seeded(name)
        x, y = wide(rng, (21, 40), a), wide(rng, (21, 40), b)
        return {"x": In(x), "y": In(y), "out": Out(b, x.shape)}

    return Case(name, widening, make, {"op": op}, cost=840.0)


def _broadcasting(op: str, dtype: DType) -> Case:
    name = f"elementwise/{op}/{dtype}/broadcasting"

    def make():
        rng = seeded(name)
        x, row, column = (normal(rng, s, dtype) for s in ((21, 40), (40,), (21,)))
        return {"x": In(x), "row": In(row), "column": In(column), "out": Out(dtype, x.shape)}

    return Case(name, broadcasting, make, {"op": op}, cost=2500.0)


def cases() -> Iterator[Case]:
    for arity, (table, _) in TABLES.items():
        for op, (_function, dtypes) in table.items():
            for dtype in dtypes:
                yield _case(arity, op, dtype, "special")
                yield _case(arity, op, dtype, "ragged")
    for layout in ("transposed", "strided", "gapped", "reversed", "offset"):
        for dtype in COMPUTES:
            yield _case(2, "maximum", dtype, "ragged", layout)
    for kind in ("one", "row", "column", "empty"):
        for dtype in COMPUTES:
            yield _case(2, "maximum", dtype, kind)
    for op in ("add", "mul", "maximum"):
        for a, b in MEETING:
            yield _widening(op, BY_NAME[a], BY_NAME[b])
        for dtype in (*FLOATS, BY_NAME["int32"], BY_NAME["uint8"]):
            yield _broadcasting(op, dtype)
