"""Matrix products of every pair of operand types, transposed and ragged; block-scaled products; exact
integers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

import kittens as kt
from kittens.conformance.case import Case, In, Out, seeded
from kittens.conformance.cases.inputs import normal
from kittens.dtypes import BY_NAME, FLOAT8, DType
from kittens.opset.product import accumulator

SAME = ["float16", "bfloat16", "float32", "float64", "int8", "uint8"]
PAIRS = [(BY_NAME[n], BY_NAME[n]) for n in SAME] + [
    (a, b) for a in FLOAT8 for b in FLOAT8 if a.name.endswith("fnuz") == b.name.endswith("fnuz")
]


@kt.kernel(grid=lambda out, BM, BN: (kt.cdiv(out.shape[0], BM), kt.cdiv(out.shape[1], BN)))
def product(a, b, c, out, *, transposed="nn", fused=False, accumulate="full", BM=32, BN=32, BK=32):
    """out = c + a @ b, operands as stored or transposed. fused: each step is said to be one accumulation."""
    i, j = kt.program_id()
    acc_type = (
        kt.float64 if a.dtype == kt.float64 else kt.int32 if a.dtype in (kt.int8, kt.uint8) else kt.float32
    )
    acc = kt.zeros((BM, BN), acc_type) if c is None else kt.load(c, (i, j), (BM, BN)).to(acc_type)
    depth = a.shape[1 if transposed[0] == "n" else 0]
    for k in kt.range(kt.cdiv(depth, BK)):
        left = kt.load(a, (i, k), (BM, BK)) if transposed[0] == "n" else kt.load(a, (k, i), (BK, BM)).T
        right = kt.load(b, (k, j), (BK, BN)) if transposed[1] == "n" else kt.load(b, (j, k), (BN, BK)).T
        if fused:
            acc = kt.mma(left, right, acc, accumulate=accumulate)
        else:
            acc = acc + kt.mma(left, right, accumulate=accumulate)
    kt.store(out, (i, j), acc)


@kt.kernel(grid=1)
def chained(a, b, c, out, *, M, K, N, P):
    """(a @ b) @ c, the first product converted: what attention does with P."""
    first = kt.load(a, (0, 0), (M, K)) @ kt.load(b, (0, 0), (K, N))
    kt.store(out, (0, 0), first.to(c.dtype) @ kt.load(c, (0, 0), (N, P)))


@kt.kernel(grid=1)
def unfused(a, b, c, out, *, M, K, N):
    """A product used twice, once in a sum: the sum may or may not be one accumulation."""
    s = kt.load(a, (0, 0), (M, K)) @ kt.load(b, (0, 0), (K, N))
    acc = kt.load(c, (0, 0), (M, N))
    kt.store(out, (0, 0), kt.mma(kt.load(a, (0, 0), (M, K)), kt.load(b, (0, 0), (K, N)), acc) - s)


@kt.kernel(grid=1)
def block_scaled(a, sa, b, sb, c, out, *, M, K, N):
    acc = None if c is None else kt.load(c, (0, 0), (M, N))
    scales = kt.load(sa, (0, 0), (M, K // 32)), kt.load(sb, (0, 0), (K // 32, N))
    kt.store(
        out,
        (0, 0),
        kt.mma_scaled(kt.load(a, (0, 0), (M, K)), scales[0], kt.load(b, (0, 0), (K, N)), scales[1], acc),
    )


Shape = tuple[int, int, int]


def _operands(a: DType, b: DType, shape: Shape, transposed: str, name: str, scale: float = 1.0):
    m, n, k = shape
    rng = seeded(name)
    left, right = normal(rng, (m, k), a, scale), normal(rng, (k, n), b, scale)
    if a.is_integer:
        low, high = np.iinfo(a.numpy).min, np.iinfo(a.numpy).max
        left, right = (rng.integers(low, high, x.shape, endpoint=True).astype(a.numpy) for x in (left, right))
    return (left if transposed[0] == "n" else left.T.copy()), (
        right if transposed[1] == "n" else right.T.copy()
    )


def _case(
    a: DType, b: DType, shape: Shape, transposed="nn", *, accumulate=False, to=None, layout="plain"
) -> Case:
    to = to or accumulator(a, b)
    operands = f"{a}" if a == b else f"{a}-{b}"
    extra = (
        ("-acc" if accumulate else "")
        + (f"-{to}" if to != accumulator(a, b) else "")
        + (f"-{layout}" if layout != "plain" else "")
    )
    name = f"products/{operands}/{transposed}/{'x'.join(map(str, shape))}{extra}"

    def make():
        x, y = _operands(a, b, shape, transposed, name)
        c = In(normal(seeded(name + "c"), shape[:2], to)) if accumulate else None
        return {"a": In(x, layout), "b": In(y, layout), "c": c, "out": Out(to, shape[:2], layout)}

    return Case(
        name, product, make, {"transposed": transposed, "fused": accumulate}, cost=float(np.prod(shape)) * 2
    )


def cases() -> Iterator[Case]:
    for a, b in PAIRS:
        for transposed in ("nn", "nt", "tn", "tt"):
            yield _case(a, b, (32, 32, 64), transposed)
            yield _case(a, b, (45, 37, 51), transposed)
        for shape in ((1, 1, 1), (1, 70, 33), (64, 1, 5), (3, 2, 200), (0, 4, 4), (4, 4, 0)):
            yield _case(a, b, shape)
        yield _case(a, b, (40, 40, 40), accumulate=True)
        if a.kind == "f":
            for to in ("float16", "bfloat16", "float8_e4m3fn"):
                yield _case(a, b, (33, 34, 35), to=BY_NAME[to])
    for name in ("float16", "bfloat16", "float32", "int8"):
        for layout in ("transposed", "strided", "gapped", "offset", "reversed"):
            yield _case(BY_NAME[name], BY_NAME[name], (35, 36, 37), layout=layout)
    yield from _special()
    yield from _exact_integers()
    for a, b in PAIRS:
        if a.is_float8:
            yield from _fast(a, b)
    for a, b in PAIRS:
        if a.kind == "f":
            yield _unfused(a, b)
    for name in ("float16", "bfloat16", "float32"):
        yield _chained(BY_NAME[name])
    for a, b in PAIRS:
        if a.is_float8:
            for shape in ((32, 32, 64), (16, 48, 32), (64, 16, 128)):
                yield _block_scaled(a, b, shape, accumulate=shape[0] == 16)
            yield _block_scaled(a, b, (16, 16, 64), extreme=True)


def _special() -> Iterator[Case]:
    """NaN, infinities, signed zeros, cancellation and the largest numbers in the operands."""
    for name in ("float16", "bfloat16", "float32", "float64", "float8_e5m2"):
        dtype = BY_NAME[name]

        def make(dtype=dtype):
            rng = seeded(f"special product {dtype}")
            a, b = normal(rng, (40, 33), dtype), normal(rng, (33, 50), dtype)
            a[3, 4], a[5, 6], a[7] = np.inf, np.nan, 0
            b[4, 7], b[6, 8] = -np.inf, np.inf
            a[9, :2], b[:2, 9] = (2.0, -2.0), (3.0, 3.0)
            a[11] = dtype.tiny
            return {"a": In(a), "b": In(b), "c": None, "out": Out(accumulator(dtype, dtype), (40, 50))}

        yield Case(f"products/{dtype}/special", product, make, {}, cost=130000.0)


def _exact_integers() -> Iterator[Case]:
    """Integer sums past 2^24, which float32 cannot count, and past 2^31, which wrap."""
    for name, depth in (("int8", 1501), ("uint8", 701), ("uint8", 33100)):
        dtype = BY_NAME[name]

        def make(dtype=dtype, depth=depth):
            extreme = np.iinfo(dtype.numpy).max  # odd, so that its multiples need every bit
            a, b = np.full((3, depth), extreme, dtype.numpy), np.full((depth, 2), extreme, dtype.numpy)
            a[1, ::7], b[::5, 1] = 1, 3
            return {"a": In(a), "b": In(b), "c": None, "out": Out(BY_NAME["int32"], (3, 2))}

        constants = {"BM": 16, "BN": 16, "BK": 256, "fused": True}
        yield Case(
            f"products/{dtype}/exact-past-2^{24 if depth < 9999 else 31}",
            product,
            make,
            constants,
            cost=12.0 * depth,
        )


def _unfused(a: DType, b: DType) -> Case:
    name = f"products/{a}-{b}/accumulator"

    def make():
        x, y = _operands(a, b, (32, 32, 32), "nn", name)
        c = normal(seeded(name + "c"), (32, 32), accumulator(a, b))
        return {"a": In(x), "b": In(y), "c": In(c), "out": Out(accumulator(a, b), (32, 32))}

    return Case(name, unfused, make, {"M": 32, "K": 32, "N": 32}, cost=70000.0)


def _fast(a: DType, b: DType) -> Iterator[Case]:
    """Fast accumulation, of whole sums and of blocks along K: sizes that engines take and ragged ones, large terms beside small
    ones, operands below the smallest normal number, infinities and NaN.
    """
    # The second kind has tiles that engines make: their operands' rows begin at multiples of 16 bytes.
    sizes = [((45, 37, 51), {"BM": 32, "BN": 32, "BK": 32})]
    if not a.name.endswith("fnuz"):
        sizes.append(((96, 160, 208), {"BM": 128, "BN": 128, "BK": 64}))
    for kind in ("normal", "blocks", "uneven", "tiny", "special"):
        for (m, n, k), tiles in sizes:
            name = f"products/fast/{a}-{b}/{kind}/{m}x{n}x{k}"

            def make(m=m, n=n, k=k, kind=kind, name=name):
                x, y = _fast_operands(a, b, (m, n, k), kind, name)
                return {"a": In(x), "b": In(y), "c": None, "out": Out(BY_NAME["float32"], (m, n))}

            constants = {"transposed": "nt", "fused": kind != "blocks", "accumulate": "fast", **tiles}
            yield Case(name, product, make, constants, cost=2.0 * m * n * k)


def _fast_operands(a: DType, b: DType, shape: Shape, kind: str, name: str):
    m, n, k = shape
    rng = seeded(name)
    x, y = normal(rng, (m, k), a), normal(rng, (n, k), b)
    if kind == "uneven":  # a large term among small ones, which coarser sums would lose
        x[:], y[:] = 0.4375, 0.4375
        x[:, 3], y[:, 3] = 16, 16
        x[::3, 7], y[::2, 9] = -16, 16
    elif kind == "tiny":
        x, y = (
            (rng.integers(0, 8, z.shape) * d.smallest).astype(np.float32).astype(d.numpy)
            for z, d in ((x, a), (y, b))
        )
        x[::2, 5] = 1
    elif kind == "special":
        x[3, 4], y[5, 6], x[7] = np.nan, np.nan, 0
        if a.name == "float8_e5m2":
            x[9, 2], x[9, 3], x[11, 1] = np.inf, -np.inf, np.inf
    return x, y


def _chained(dtype: DType) -> Case:
    name = f"products/{dtype}/chained"

    def make():
        rng = seeded(name)
        a, b, c = (normal(rng, s, dtype) for s in ((32, 64), (64, 48), (48, 16)))
        return {"a": In(a), "b": In(b), "c": In(c), "out": Out(BY_NAME["float32"], (32, 16))}

    return Case(name, chained, make, {"M": 32, "K": 64, "N": 48, "P": 16}, cost=100000.0)


def _block_scaled(a: DType, b: DType, shape: Shape, *, accumulate=False, extreme=False) -> Case:
    m, n, k = shape
    name = f"products/scaled/{a}-{b}/{m}x{n}x{k}" + ("-extreme" if extreme else "")

    def make():
        rng = seeded(name)
        x, y = normal(rng, (m, k), a), normal(rng, (k, n), b)
        low, high = (60, 160) if extreme else (120, 135)
        scale = BY_NAME["float8_e8m0fnu"].numpy
        sa, sb = (rng.integers(low, high, s).astype(np.uint8) for s in ((m, k // 32), (k // 32, n)))
        if extreme:
            sa[0, 0], sb[0, 1] = 255, 0  # NaN, and the smallest scale
        c = In(normal(rng, (m, n), BY_NAME["float32"])) if accumulate else None
        out = Out(BY_NAME["float32"], (m, n))
        return {
            "a": In(x),
            "sa": In(sa.view(scale)),
            "b": In(y),
            "sb": In(sb.view(scale)),
            "c": c,
            "out": out,
        }

    return Case(name, block_scaled, make, {"M": m, "K": k, "N": n}, cost=2.0 * m * n * k)
