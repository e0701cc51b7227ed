"""Conversions between every pair of dtypes, at half-way points, limits and every code; and bitcasts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import ALL, halfway, matrix, special, wide
from kittens.dtypes import BY_NAME, DType


def _grid(x, BM, BN):
    return kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)


@kt.kernel(grid=_grid)
def convert(x, out, *, to, BM=16, BN=64):
    i, j = kt.program_id()
    kt.store(out, (i, j), kt.load(x, (i, j), (BM, BN)).to(to))


@kt.kernel(grid=_grid)
def bitcast(x, out, *, to, BM=16, BN=64):
    i, j = kt.program_id()
    kt.store(out, (i, j), kt.load(x, (i, j), (BM, BN)).bitcast(to))


@kt.kernel(grid=_grid)
def computed(x, y, out, *, BM=16, BN=64):
    """Conversion on storing, of values that carry errors."""
    i, j = kt.program_id()
    a, b = (kt.load(t, (i, j), (BM, BN)).to(kt.float32) for t in (x, y))
    kt.store(out, (i, j), kt.exp(a) * b)


def _values(source: DType, to: DType, name: str) -> np.ndarray:
    """Special values of the source, random ones, and for narrowing the half-way points of the destination."""
    rng = seeded(name)
    parts = [special(source), wide(rng, (300,), source)]
    if source.kind == "f" and to.kind == "f" and source.bits > 8:
        parts.append(halfway(source, to, rng))
    if source.kind == "f" and source.bits > 8 and to.kind in "iu":
        info = np.iinfo(to.numpy)
        edges = np.array([float(info.min), float(info.max), 0.5, -0.5, 1.5, -0.999, 2.5], np.float64)
        with np.errstate(over="ignore"):
            near = edges.astype(source.numpy)
            parts += [near, np.nextafter(near.astype(np.float32), np.float32(np.inf)).astype(source.numpy)]
    if source.is_integer and to.kind == "f" and source.bits > to.precision + 1:
        parts.append(_integer_ties(source, to))
    if source.kind == "f" and to.kind == "s":
        powers = np.ldexp(1.0, np.arange(-130, 128))
        with np.errstate(over="ignore"):
            parts += [(powers * m).astype(source.numpy) for m in (1.0, 1.25, 1.5, 1.4375, 1.5625)]
    return np.concatenate(parts)


def _integer_ties(source: DType, to: DType) -> np.ndarray:
    """Integers half-way between two floats, and their neighbours, in every binade."""
    rows = []
    for power in range(to.precision + 1, source.bits - 1):
        if 2.0**power > to.max:
            break
        half = 2 ** (power - to.precision)
        rows += [2**power + k * half + d for k in (1, 3) for d in (-1, 0, 1)]
    return np.array(rows, source.numpy)


def cases() -> Iterator[Case]:
    for source in ALL:
        for to in ALL:
            if source != to:
                yield _conversion(source, to)
    for source in ALL:
        for to in ALL:
            if source != to and source.bits == to.bits and "b" not in (source.kind, to.kind):
                yield _bitcast(source, to)
    for name in ("float16", "bfloat16", "float32"):
        for to in (d for d in ALL if d.kind in "fs"):
            yield _computed(BY_NAME[name], to)


def _conversion(source: DType, to: DType) -> Case:
    name = f"conversions/{source}-{to}"

    def make():
        x = matrix(_values(source, to, name), 64)
        return {"x": In(x), "out": Out(to, x.shape)}

    return Case(name, convert, make, {"to": to.name}, cost=1500.0)


def _bitcast(source: DType, to: DType) -> Case:
    name = f"conversions/bitcast/{source}-{to}"

    def make():
        x = matrix(np.concatenate([special(source), wide(seeded(name), (400,), source)]), 64)
        return {"x": In(x), "out": Out(to, x.shape)}

    return Case(name, bitcast, make, {"to": to.name}, cost=700.0)


def _computed(source: DType, to: DType) -> Case:
    name = f"conversions/computed/{source}-{to}"

    def make():
        rng = seeded(name)
        x, y = (rng.standard_normal((19, 70)).astype(source.numpy) for _ in range(2))
        y = np.abs(y) if to.kind == "s" else y
        return {"x": In(x), "y": In(y), "out": Out(to, x.shape)}

    return Case(name, computed, make, {}, cost=4000.0)
