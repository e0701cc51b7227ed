"""Loads with padding, ragged stores, views, layouts, adding in memory, and where programs stand in their
grid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kittens as kt
from kittens.conformance.case import LAYOUTS, Case, In, InOut, Out, seeded
from kittens.conformance.cases.inputs import ALL, normal, wide
from kittens.dtypes import BY_NAME, DType

INT64 = BY_NAME["int64"]


@kt.kernel(grid=lambda x, BM, BN: (kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)))
def copy(x, out, *, BM=16, BN=32):
    i, j = kt.program_id()
    kt.store(out, (i, j), kt.load(x, (i, j), (BM, BN)))


@kt.kernel(grid=lambda x, BM, BN: (kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)))
def grouped(x, out, *, BM=16, BN=32):
    """A program order of the target's choice still visits every tile once."""
    i, j = kt.program_id(order="grouped")
    kt.store(out, (i, j), kt.load(x, (i, j), (BM, BN)))


@kt.kernel(grid=lambda x, B: kt.cdiv(x.shape[0], B))
def copy_flat(x, out, *, B=64):
    i = kt.program_id()
    kt.store(out, i, kt.load(x, i, B))


@kt.kernel(grid=lambda out, BM, BN: (kt.cdiv(out.shape[0], BM), kt.cdiv(out.shape[1], BN)))
def padded(x, out, *, pad, BM=16, BN=16):
    """Tiles that lie partly or wholly outside, before and behind the tensor; every element is stored."""
    i, j = kt.program_id()
    kt.store(out, (i, j), kt.load(x, (i - 1, j - 1), (BM, BN), pad=pad))


@kt.kernel(grid=lambda x, B: (kt.cdiv(x.shape[1], B), x.shape[0]))
def transposed_view(x, out, *, B=16):
    """out[j, i] = x[i, j] through views: an index, a permutation and a slice."""
    j, i = kt.program_id()
    kt.store(out.T[i], j, kt.load(x[i], j, B))


@kt.kernel(grid=lambda x, B: (kt.cdiv(x.shape[3], B), x.shape[1], x.shape[0]))
def heads(x, out, *, B=16):
    """A tensor of four axes indexed down to two, as attention does."""
    j, h, b = kt.program_id()
    N = x.shape[2]
    for i in kt.range(kt.cdiv(N, 8)):
        kt.store(out[b, :, h], (i, j), kt.load(x[b, h], (i, j), (8, B)))


@kt.kernel(grid=1)
def sliced(x, out, *, lo, hi, B=16):
    """Bounds cut to the extent, negative ones from the end; padding starts where the slice ends."""
    part = x[lo:hi]
    for i in kt.range(kt.cdiv(out.shape[0], B)):
        kt.store(out, i, kt.load(part, i, B, pad=7))


@kt.kernel(grid=lambda x: x.shape[0])
def indexed(x, at, out):
    """An index read from memory; outside the axis a view is empty and a load gives the padding."""
    i = kt.program_id()
    j = kt.load(at[i], (), ())
    kt.store(out[i], (), kt.load(x[j], (), (), pad=5))


@kt.kernel(grid=lambda out: out.shape)
def coordinates(out, ids):
    """Each program writes its coordinates and the grid's extents."""
    here, grid = kt.program_id(), kt.num_programs()
    here, grid = (here, grid) if isinstance(here, tuple) else ((here,), (grid,))
    number = kt.scalar(0, kt.int64)
    for p, n in zip(here, grid, strict=True):
        number = number * n + p
    view = out
    for p in here:
        view = view[p]
    kt.store(view, (), number)
    for axis, n in enumerate(grid):
        kt.store(ids[number, axis], (), here[axis] * 1000 + n)


@kt.kernel(grid=lambda x, BM, BN: (kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)))
def add_columns(x, out, *, BM=16, BN=32):
    """Column sums gathered from many programs."""
    i, j = kt.program_id()
    kt.store_add(out, j, kt.load(x, (i, j), (BM, BN)).sum(0))


@kt.kernel(grid=lambda x, BM, BN: (kt.cdiv(x.shape[0], BM), kt.cdiv(x.shape[1], BN)))
def add_to(x, out, *, BM=16, BN=32):
    i, j = kt.program_id()
    kt.store_add(out, (i, j), kt.load(x, (i, j), (BM, BN)))


@kt.kernel(grid=lambda x, BM: (kt.cdiv(x.shape[0], BM), 2))
def add_in_turn(x, out, turns, *, BM=16, BN=32):
    """Programs add to the same two tiles, one after the other."""
    i, z = kt.program_id()
    tile = kt.load(x, (i, 0), (BM, BN))
    for s in kt.range(2):
        kt.store_add(out[z], (s, 0), tile, turn=(turns[z, s], i))


@kt.kernel(grid=lambda x, BM: kt.cdiv(x.shape[0], BM))
def overwrite(x, out, *, BM=16, BN=16):
    """Two stores to one place: the last one counts."""
    i = kt.program_id()
    tile = kt.load(x, (i, 0), (BM, BN))
    kt.store(out, (i, 0), tile)
    kt.store(out, (i, 0), kt.maximum(tile, tile) if tile.dtype.computes else tile)


@kt.kernel(grid=1)
def in_place(x, *, B=32):
    for i in kt.range(kt.cdiv(x.shape[0], B)):
        kt.store(x, i, kt.load(x, i, B) + 1)


SHAPES = [(16, 32), (1, 1), (17, 33), (5, 100), (100, 3), (0, 3), (3, 0)]


def _copy(
    kernel, dtype: DType, shape: tuple[int, ...], layout: str = "plain", out: str | None = None
) -> Case:
    out = out or layout
    kind = "x".join(map(str, shape)) + ("" if layout == out == "plain" else f"-{layout}-{out}")
    name = f"memory/{kernel.name}/{dtype}/{kind}"

    def make():
        return {"x": In(wide(seeded(name), shape, dtype), layout), "out": Out(dtype, shape, out)}

    return Case(name, kernel, make, {}, cost=float(np.prod(shape)))


def cases() -> Iterator[Case]:
    for dtype in ALL:
        for shape in SHAPES:
            yield _copy(copy, dtype, shape)
        for layout in LAYOUTS[1:]:
            yield _copy(copy, dtype, (19, 41), layout)
        yield _copy(copy, dtype, (19, 41), "plain", "transposed")
        yield _copy(copy_flat, dtype, (1000,))
        yield _copy(copy_flat, dtype, (77,), "reversed")
        yield _copy(grouped, dtype, (70, 100))
        yield _view(transposed_view, dtype, (13, 37), (37, 13))
        yield _view(heads, dtype, (2, 3, 13, 20), (2, 13, 3, 20))
        yield _view(overwrite, dtype, (40, 16), (40, 16))
    for dtype in ALL:
        yield from _padding(dtype)
    for lo, hi in ((0, None), (5, 40), (-30, -3), (60, 20), (10, 1000), (-1000, 12)):
        yield _slice(lo, hi)
    yield from _indices()
    for grid in ((1,), (7,), (0,), (3, 5), (4, 1), (2, 3, 4), (1, 1, 1), (2, 0, 3)):
        yield _coordinates(grid)
    for name in ("float32", "float64", "int32", "int64", "uint32", "uint64"):
        for extents in ((64, 64), (77, 45), (1, 1)):
            yield from _adding(BY_NAME[name], extents)
    for name in ("float32", "int32", "bfloat16", "uint8"):
        yield _in_place(BY_NAME[name])
    for name in ("float32", "int32"):
        for rows in (1, 16, 100):
            yield _in_turn(BY_NAME[name], rows)


def _view(kernel, dtype: DType, shape: tuple[int, ...], out: tuple[int, ...]) -> Case:
    name = f"memory/{kernel.name}/{dtype}"

    def make():
        return {"x": In(wide(seeded(name), shape, dtype)), "out": Out(dtype, out)}

    return Case(name, kernel, make, {}, cost=float(np.prod(shape)))


def _padding(dtype: DType) -> Iterator[Case]:
    pads = {
        "b": (True, False),
        "u": (0, 77),
        "i": (-5, 100),
        "f": (0, -1.5, kt.inf, kt.nan, 0.1),
        "s": (1.0, 4.0),
    }[dtype.kind]
    for pad in pads:
        name = f"memory/padded/{dtype}/{pad}"

        def make(name=name):
            return {"x": In(wide(seeded(name), (21, 10), dtype)), "out": Out(dtype, (64, 48))}

        yield Case(name, padded, make, {"pad": pad}, cost=3000.0)


def _slice(lo: int, hi: int | None) -> Case:
    name = f"memory/sliced/{lo}:{hi}"

    def make():
        return {
            "x": In(normal(seeded(name), (50,), BY_NAME["float32"])),
            "out": Out(BY_NAME["float32"], (64,)),
        }

    return Case(name, sliced, make, {"lo": lo, "hi": hi}, cost=64.0)


def _indices() -> Iterator[Case]:
    for dtype in ("float32", "int8", "bfloat16"):
        for kind in ("int32", "int64"):
            name = f"memory/indexed/{dtype}/{kind}"

            def make(name=name, dtype=dtype, kind=kind):
                at = np.array([0, 19, 7, 7, -1, 20, -100, 10**9, 3, 1], BY_NAME[kind].numpy)
                x = normal(seeded(name), (10,), BY_NAME[dtype])
                return {"x": In(x), "at": In(at), "out": Out(BY_NAME[dtype], (10,))}

            yield Case(name, indexed, make, {}, cost=10.0)


def _coordinates(extents: tuple[int, ...]) -> Case:
    def make():
        return {"out": Out(INT64, extents), "ids": Out(INT64, (int(np.prod(extents)), len(extents)))}

    return Case(
        f"memory/coordinates/{'x'.join(map(str, extents))}",
        coordinates,
        make,
        {},
        cost=float(np.prod(extents)),
    )


def _adding(dtype: DType, shape: tuple[int, int]) -> Iterator[Case]:
    for kernel, extents in ((add_to, shape), (add_columns, shape[1:])):
        name = f"memory/{kernel.name}/{dtype}/{shape[0]}x{shape[1]}"

        def make(name=name, extents=extents):
            rng = seeded(name)
            return {"x": In(normal(rng, shape, dtype)), "out": InOut(normal(rng, extents, dtype))}

        yield Case(name, kernel, make, {}, cost=2.0 * np.prod(shape))


def _in_turn(dtype: DType, rows: int) -> Case:
    name = f"memory/add_in_turn/{dtype}/{rows}"

    def make():
        rng = seeded(name)
        return {
            "x": In(normal(rng, (rows, 32), dtype)),
            "out": InOut(normal(rng, (2, 32, 30), dtype)),
            "turns": InOut(np.zeros((2, 2), np.int32)),
        }

    return Case(name, add_in_turn, make, {}, cost=64.0 * rows, turns=True)


def _in_place(dtype: DType) -> Case:
    name = f"memory/in_place/{dtype}"

    def make():
        return {"x": InOut(normal(seeded(name), (70,), dtype))}

    return Case(name, in_place, make, {}, cost=70.0)
