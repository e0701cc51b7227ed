"""Inputs: special values of each dtype, pairs of them, half-way points, random numbers of any size."""

from __future__ import annotations

import numpy as np

from kittens.conformance.judge.formats import codes, nearest
from kittens.dtypes import BY_NAME, Array, DType

COMPUTES = [d for d in BY_NAME.values() if d.computes]
FLOATS = [d for d in COMPUTES if d.kind == "f"]
INTEGERS = [d for d in COMPUTES if d.is_integer]
BOOL = BY_NAME["bool"]
ALL = list(BY_NAME.values())


def special(dtype: DType) -> Array:
    """The values at which things go wrong, each once."""
    if dtype.kind == "b":
        return np.array([False, True])
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        near = [
            info.min,
            info.min + 1,
            info.max - 1,
            info.max,
            0,
            1,
            2,
            3,
            5,
            7,
            8,
            31,
            63,
            info.max // 2,
            info.max // 3,
        ]
        if dtype.kind == "i":
            near += [-1, -2, -3, -7, -8, info.min // 2]
        return np.array(sorted({int(n) for n in near}), dtype.numpy)
    if dtype.bits == 8:
        return np.arange(256, dtype=np.uint8).view(dtype.numpy)
    up = 1 + 2 * dtype.unit_roundoff
    sizes = [
        0.0, dtype.smallest, 3 * dtype.smallest, dtype.tiny - dtype.smallest, dtype.tiny, 1.5 * dtype.tiny,
        0.5, 1.0, up, 1.5, 2.5, 3.0, 0.1, 7.0, 1.0 / 3.0, 100.0, 2.0 ** (dtype.precision - 1) + 1.0,
        dtype.max / 2, dtype.max * (1 - 2 * dtype.unit_roundoff), dtype.max, np.inf,
    ]  # fmt: skip
    values = np.array([s * x for x in sizes for s in (1.0, -1.0)] + [np.nan])
    with np.errstate(over="ignore"):
        return nearest(dtype, values).astype(dtype.numpy)


def pairs(dtype: DType) -> tuple[Array, Array]:
    """Two matrices that hold every pair of special values."""
    pool = special(dtype)
    return np.repeat(pool[:, None], len(pool), 1), np.repeat(pool[None, :], len(pool), 0)


def wide(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Random numbers of every magnitude: random bits for integers, random exponents for floats."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        info = np.iinfo(dtype.numpy)
        return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)
    if dtype.kind == "s":
        return rng.integers(0, 255, shape).astype(np.uint8).view(dtype.numpy)
    reach = min(20.0, np.log2(dtype.max) - 1)
    x = rng.standard_normal(shape) * 2.0 ** rng.uniform(-reach, reach / 2, shape)
    with np.errstate(over="ignore"):
        return nearest(dtype, x).astype(dtype.numpy)


def normal(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, scale: float = 1.0) -> Array:
    """Normal random numbers (small integers for integer dtypes)."""
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_integer:
        low = -9 if dtype.kind == "i" else 0
        return rng.integers(low, 10, shape).astype(dtype.numpy)
    if dtype.kind == "s":
        return rng.integers(121, 134, shape).astype(np.uint8).view(dtype.numpy)
    return nearest(dtype, rng.standard_normal(shape) * scale).astype(dtype.numpy)


def representable(dtype: DType, rng: np.random.Generator, count: int = 600) -> Array:
    """Ascending finite values of a float dtype, as float64: all of an 8-bit one, some of a wider one."""
    if dtype.bits == 8:
        table = codes(dtype)
    else:
        bits = rng.integers(0, 2**dtype.bits, count, np.uint64).astype(f"u{dtype.bytes}")
        with np.errstate(invalid="ignore"):
            table = np.concatenate(
                [bits.view(dtype.numpy).astype(np.float64), special(dtype).astype(np.float64)]
            )
    return np.unique(table[np.isfinite(table)])


def halfway(source: DType, to: DType, rng: np.random.Generator) -> Array:
    """Values of `source` at, just below and just above the midpoints of neighbours in `to`."""
    from kittens.conformance.judge.formats import spacing

    x = representable(to, rng)
    with np.errstate(over="ignore"):
        middle = x + np.sign(x + (x == 0)) * spacing(to, x) / 2
    ends = np.array([to.max, -to.max]) * (1 + to.unit_roundoff)
    points = np.concatenate([x, middle, ends, [0.0, -0.0, np.inf, -np.inf, np.nan]])
    with np.errstate(all="ignore"):
        native = nearest(source, points)
        near = spacing(source, native)
        around = nearest(source, np.concatenate([native, native - near, native + near]))
        return around.astype(source.numpy)


def matrix(x: Array, columns: int = 48) -> Array:
    """A flat array as a matrix, filled up with its first element."""
    rows = -(-x.size // columns)
    out = np.full(rows * columns, x.flat[0] if x.size else 0, x.dtype)
    out[: x.size] = x.reshape(-1)
    return out.reshape(rows, columns)
