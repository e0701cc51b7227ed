"""Constants, counting, shapes of tiles, and random bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import ALL, INTEGERS, wide
from kittens.dtypes import BY_NAME, DType


@kt.kernel(grid=1)
def filled(out, *, value, M, N):
    kt.store(out, (0, 0), kt.full((M, N), value, out.dtype))


@kt.kernel(grid=lambda out, B: kt.cdiv(out.shape[0], B))
def counting(out, *, B=32):
    i = kt.program_id()
    kt.store(out, i, kt.arange(B, out.dtype) + 3)


@kt.kernel(grid=lambda out, BM, BN: (kt.cdiv(out.shape[0], BM), kt.cdiv(out.shape[1], BN)))
def positions(out, *, BM=16, BN=32):
    """Row and column positions, and a mask made of them."""
    i, j = kt.program_id()
    rows, cols = kt.rows(i, BM), kt.cols(j, BN)
    kt.store(out, (i, j), kt.where(rows >= cols, rows * 1000 + cols, -1).to(kt.int32))


@kt.kernel(grid=1)
def reshaped(x, out, *, shape, back):
    """Through a shape of up to three axes and a permutation of it."""
    tile = kt.load(x, (0, 0), (24, 32)).reshape(shape)
    order = tuple(reversed(range(tile.ndim)))
    kt.store(out, (0, 0), kt.transpose(tile, order).reshape(back))


@kt.kernel(grid=1)
def halves(x, out, *, axis, pairs):
    """Halves exchanged: what rotary embeddings do."""
    a, b = kt.split(kt.load(x, (0, 0), (16, 32)), axis, pairs=pairs)
    kt.store(out, (0, 0), kt.join(b, a, axis, pairs=pairs))


@kt.kernel(grid=1)
def outer(x, y, out, *, M, N):
    """Broadcasting of new axes."""
    a, b = kt.load(x, 0, M), kt.load(y, 0, N)
    kt.store(out, (0, 0), kt.where(a[:, None] == b[None, :], a[:, None], b[None, :]))


@kt.kernel(grid=lambda out, B: kt.cdiv(out.shape[0], B))
def random(first, out, *, seed, B=64):
    i = kt.program_id()
    kt.store(out, i, kt.random_bits(seed, kt.indices(i, B) + kt.load(first[0], (), ())))


@kt.kernel(grid=lambda out, B: kt.cdiv(out.shape[0], B))
def uniform(seed, out, *, B=64):
    """The seed as a scalar parameter; the numbers in [0, 1)."""
    i = kt.program_id()
    kt.store(out, i, kt.random_uniform(seed, kt.indices(i, B)))


def _one(name: str, kernel, make, cost: float = 1000.0, **constants) -> Case:
    return Case(f"tiles/{name}", kernel, make, constants, cost=cost)


def cases() -> Iterator[Case]:
    for dtype in ALL:
        values = {
            "b": [True],
            "i": [-7, 2 ** (dtype.bits - 1) - 1],
            "u": [2**dtype.bits - 1],
            "s": [2.0, 3.0],
        }
        floats = [0.1, -0.0, math.inf, math.nan, 1e-45, 3e38, 65520.0]
        for value in values.get(dtype.kind, floats):
            yield _one(
                f"filled/{dtype}/{value}",
                filled,
                lambda d=dtype: {"out": Out(d, (5, 8))},
                40,
                value=value,
                M=8,
                N=8,
            )
    for dtype in INTEGERS:
        yield _one(f"counting/{dtype}", counting, lambda d=dtype: {"out": Out(d, (100,))}, 100)
    for extents in ((16, 32), (40, 70), (1, 1)):
        name = f"positions/{extents[0]}x{extents[1]}"
        yield _one(name, positions, lambda e=extents: {"out": Out(BY_NAME["int32"], e)})
    for dtype in ALL:
        for shape, back in (
            ((768,), (24, 32)),
            ((32, 24), (24, 32)),
            ((4, 6, 32), (32, 24)),
            ((24, 4, 8), (8, 96)),
            ((2, 192, 2), (2, 384)),
        ):
            name = f"reshaped/{dtype}/{'x'.join(map(str, shape))}"
            yield _one(
                name,
                reshaped,
                lambda d=dtype, n=name, b=back: _moved(d, n, (24, 32), b),
                shape=shape,
                back=back,
            )
        for axis in (0, 1):
            for pairs in (False, True):
                name = f"halves/{dtype}/axis{axis}{'-pairs' if pairs else ''}"
                yield _one(
                    name,
                    halves,
                    lambda d=dtype, n=name: _moved(d, n, (16, 32), (16, 32)),
                    axis=axis,
                    pairs=pairs,
                )
        if dtype.computes:
            name = f"outer/{dtype}"
            yield _one(name, outer, lambda d=dtype, n=name: _outer(d, n), M=16, N=16)
    for seed in (0, 1, 2**31, 2**63 - 1, -1):
        for start in (0, 5, 2**34 - 2, 2**62, -8):
            yield _one(f"random/{seed}/{start}", random, lambda s=start: _random(s), seed=seed)
    seeds: list[Any] = [0, 12345, np.int32(-3), 2**40]
    for number in seeds:
        yield _one(
            f"uniform/{number}", uniform, lambda s=number: {"seed": s, "out": Out(BY_NAME["float32"], (300,))}
        )


def _moved(dtype: DType, name: str, shape: tuple[int, int], out: tuple[int, int]):
    return {"x": In(wide(seeded(name), shape, dtype)), "out": Out(dtype, out)}


def _outer(dtype: DType, name: str):
    rng = seeded(name)
    return {"x": In(wide(rng, (16,), dtype)), "y": In(wide(rng, (16,), dtype)), "out": Out(dtype, (16, 16))}


def _random(start: int):
    return {"first": In(np.array([start], np.int64)), "out": Out(BY_NAME["uint32"], (150,))}
