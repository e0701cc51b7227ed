"""Reductions and scans along every axis, with ties, NaN, infinities, cancellation and ragged padding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import BOOL, COMPUTES, FLOATS, INTEGERS, normal, special, wide
from kittens.dtypes import BY_NAME, DType
from kittens.opset.reduction import sum_dtype

REDUCE = {
    "sum": lambda x, axis: x.sum(axis),
    "max": lambda x, axis: x.max(axis),
    "min": lambda x, axis: x.min(axis),
    "argmax": lambda x, axis: x.argmax(axis),
    "any": lambda x, axis: x.any(axis),
    "all": lambda x, axis: x.all(axis),
}


@kt.kernel(grid=lambda x, axis, BM, BN: kt.cdiv(x.shape[1 - axis], (BM, BN)[1 - axis]))
def reduce(x, out, *, op, axis, BM=32, BN=32):
    """Every program reduces one strip; the tile covers the reduced axis."""
    i = kt.program_id()
    tile = kt.load(x, (i, 0) if axis == 1 else (0, i), (BM, BN))
    kt.store(out, i, REDUCE[op](tile, axis))


@kt.kernel(grid=lambda x, axis, BM, BN: kt.cdiv(x.shape[1 - axis], (BM, BN)[1 - axis]))
def scan(x, out, *, axis, BM=32, BN=32):
    i = kt.program_id()
    at = (i, 0) if axis == 1 else (0, i)
    kt.store(out, at, kt.cumsum(kt.load(x, at, (BM, BN)), axis))


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def reduce_flat(x, out, *, op, B=128):
    """A tile of one axis down to a scalar."""
    i = kt.program_id()
    kt.store(out[i], (), REDUCE[op](kt.load(x, i, B), 0))


@kt.kernel(grid=1)
def reduce_cube(x, out, *, op, axis, shape):
    """A tile of three axes."""
    a, b, c = shape
    cube = kt.load(x, (0, 0), (a * b, c)).reshape(a, b, c)
    result = REDUCE[op](cube, axis)
    kt.store(out, (0, 0), result)


@kt.kernel(grid=lambda x, BM, BN: kt.cdiv(x.shape[0], BM))
def running(x, out, *, op, BM=16, BN=32):
    """A reduction over tiles in a loop: what softmax and norms are made of."""
    i = kt.program_id()
    first = kt.load(x, (i, 0), (BM, BN), pad=0)
    acc = REDUCE[op](first, 1)
    for j in kt.range(1, kt.cdiv(x.shape[1], BN)):
        part = REDUCE[op](kt.load(x, (i, j), (BM, BN)), 1)
        acc = acc + part if op == "sum" else kt.maximum(acc, part) if op == "max" else kt.minimum(acc, part)
    kt.store(out, i, acc)


def _result(op: str, dtype: DType) -> DType:
    return {"sum": sum_dtype(dtype), "argmax": BY_NAME["int32"]}.get(op, dtype)


def _inputs(kind: str, dtype: DType, shape: tuple[int, int], name: str) -> np.ndarray:
    rng = seeded(name)
    if kind == "normal":
        return normal(rng, shape, dtype)
    if kind == "wide":
        return wide(rng, shape, dtype)
    if kind == "ties":
        return rng.integers(0, 3, shape).astype(dtype.numpy)
    x = normal(rng, shape, dtype)  # a few special values, so that most strips stay finite
    pool = special(dtype)
    for _ in range(shape[0] // 2):
        x[rng.integers(shape[0]), rng.integers(shape[1])] = rng.choice(pool)
    if dtype.kind == "f":
        x[1, 1], x[2, 2], x[3, 3] = np.nan, np.inf, -np.inf
    return x


def _case(
    op: str, dtype: DType, axis: int, kind: str, shape: tuple[int, int], block: tuple[int, int]
) -> Case:
    name = f"reductions/{op}/{dtype}/axis{axis}/{kind}-{shape[0]}x{shape[1]}"

    def make():
        x = _inputs(kind, dtype, shape, name)
        full = x.shape if op == "cumsum" else (x.shape[1 - axis],)
        return {"x": In(x), "out": Out(sum_dtype(dtype) if op == "cumsum" else _result(op, dtype), full)}

    constants = {"axis": axis, "BM": block[0], "BN": block[1]}
    if op == "cumsum":
        return Case(name, scan, make, constants, cost=3000.0)
    return Case(name, reduce, make, {"op": op, **constants}, cost=3000.0)


def cases() -> Iterator[Case]:
    numbers = ("sum", "max", "min", "argmax", "cumsum")
    for op in (*numbers, "any", "all"):
        dtypes = [BOOL] if op in ("any", "all") else COMPUTES
        for dtype in dtypes:
            for axis in (0, 1):
                yield _case(op, dtype, axis, "normal", (32, 32), (32, 32))
                yield _case(op, dtype, axis, "special", (45, 27) if axis else (27, 45), (32, 32))
    for op in ("max", "argmax"):
        for dtype in FLOATS + INTEGERS[:2]:
            yield _case(op, dtype, 1, "ties", (33, 64), (16, 64))
    for op in ("sum", "cumsum"):
        for dtype in FLOATS:
            yield _case(op, dtype, 1, "wide", (5, 500), (4, 512))
            yield _case(op, dtype, 0, "normal", (1, 9), (1, 16))
    for op in ("sum", "max", "min", "argmax"):
        for dtype in (*FLOATS, BY_NAME["int32"]):
            yield _flat(op, dtype)
            for axis in (0, 1, 2):
                yield _cube(op, dtype, axis)
    for op in ("sum", "max", "min"):
        for dtype in COMPUTES:
            if sum_dtype(dtype) == dtype or op != "sum":
                yield _running(op, dtype)


def _flat(op: str, dtype: DType) -> Case:
    name = f"reductions/{op}/{dtype}/flat"

    def make():
        return {"x": In(normal(seeded(name), (500,), dtype)), "out": Out(_result(op, dtype), (4,))}

    return Case(name, reduce_flat, make, {"op": op}, cost=1000.0)


def _cube(op: str, dtype: DType, axis: int) -> Case:
    name, shape = f"reductions/{op}/{dtype}/cube-axis{axis}", (4, 8, 16)

    def make():
        kept = tuple(n for i, n in enumerate(shape) if i != axis)
        return {"x": In(normal(seeded(name), (32, 16), dtype)), "out": Out(_result(op, dtype), kept)}

    return Case(name, reduce_cube, make, {"op": op, "axis": axis, "shape": shape}, cost=1000.0)


def _running(op: str, dtype: DType) -> Case:
    name = f"reductions/{op}/{dtype}/running"

    def make():
        return {"x": In(normal(seeded(name), (21, 100), dtype)), "out": Out(_result(op, dtype), (21,))}

    return Case(name, running, make, {"op": op}, cost=4000.0)
