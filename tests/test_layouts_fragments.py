"""Every vendor's fragment table against element formulas typed from the vendors' documents.

The formulas here are written as the documents write them, element by element, and share nothing
with the tables. l is the lane, e the element (register) of the lane, w the group.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kittens.backends.cuda import fragments as cuda
from kittens.backends.hip import fragments as hip
from kittens.backends.metal import fragments as metal
from kittens.layouts import (
    Linear,
    Product,
    Tiled,
    addresses,
    coordinates,
    distribute,
    flip,
    fragment,
    linear,
    table,
    vector_width,
)

Formula = Callable[[int, int], tuple[int, int]]


def check(f: Linear, lanes: int, registers: int, shape: tuple[int, int], formula: Formula) -> None:
    """Every slot of ``f`` (with its group as the second half of a wide lane) holds what ``formula`` says."""
    tiled = Tiled(f)
    assert (tiled.lanes, tiled.registers, tiled.shape) == (lanes, registers, shape)
    for w in range(tiled.groups):
        for l in range(lanes):
            for e in range(registers):
                assert coordinates(tiled, w, l, e) == formula(l + lanes * w, e), (w, l, e)


def check_product(
    p: Product, sizes: tuple[int, int, int], lanes: int, a: Formula, b: Formula | None, d: Formula
) -> None:
    m, n, k = sizes
    assert p.shape == sizes
    groups = Tiled(p.d).groups
    copies = 1 << len(linear.kernel(p.a))
    check(p.a, lanes, m * k * copies // (lanes * groups), (m, k), a)
    if b is not None:
        assert p.b is not None
        check(p.b, lanes, k * n * copies // lanes, (k, n), b)
    check(p.d, lanes, m * n // (lanes * groups), (m, n), d)


# ---------------------------------------------------------------------------------------------
# NVIDIA. groupID = l >> 2, threadID_in_group = l % 4, as in the PTX ISA.


def mma_d(l: int, i: int) -> tuple[int, int]:
    return (l >> 2 if i < 2 else (l >> 2) + 8), l % 4 * 2 + (i & 1)


def m16n8k16_a(l: int, i: int) -> tuple[int, int]:
    row = l >> 2 if i < 2 or 4 <= i < 6 else (l >> 2) + 8
    return row, l % 4 * 2 + (i & 1) + (8 if i >= 4 else 0)


def m16n8k16_b(l: int, i: int) -> tuple[int, int]:
    return l % 4 * 2 + (i & 1) + (8 if i >= 2 else 0), l >> 2


def m16n8k8_a(l: int, i: int) -> tuple[int, int]:
    return (l >> 2 if i < 2 else (l >> 2) + 8), l % 4 * 2 + (i & 1)


def m16n8k8_b(l: int, i: int) -> tuple[int, int]:
    return l % 4 * 2 + i, l >> 2


def tf32_k8_a(l: int, i: int) -> tuple[int, int]:
    return (l >> 2 if i in (0, 2) else (l >> 2) + 8), (l % 4 if i < 2 else l % 4 + 4)


def tf32_k8_b(l: int, i: int) -> tuple[int, int]:
    return (l % 4 if i == 0 else l % 4 + 4), l >> 2


def tf32_k4_a(l: int, i: int) -> tuple[int, int]:
    return (l >> 2 if i == 0 else (l >> 2) + 8), l % 4


def tf32_k4_b(l: int, i: int) -> tuple[int, int]:
    return l % 4, l >> 2


def byte_k32_a(l: int, i: int) -> tuple[int, int]:
    row = l >> 2 if i < 4 or 8 <= i < 12 else (l >> 2) + 8
    return row, l % 4 * 4 + (i & 3) + (16 if i >= 8 else 0)


def byte_k32_b(l: int, i: int) -> tuple[int, int]:
    return l % 4 * 4 + (i & 3) + (16 if i >= 4 else 0), l >> 2


def byte_k16_a(l: int, i: int) -> tuple[int, int]:
    return (l >> 2 if i < 4 else (l >> 2) + 8), l % 4 * 4 + (i & 3)


def byte_k16_b(l: int, i: int) -> tuple[int, int]:
    return l % 4 * 4 + i, l >> 2


MMA_FORMULAS: dict[str, tuple[tuple[int, int, int], Formula, Formula]] = {
    "m16n8k16": ((16, 8, 16), m16n8k16_a, m16n8k16_b),
    "m16n8k8": ((16, 8, 8), m16n8k8_a, m16n8k8_b),
    "m16n8k8_tf32": ((16, 8, 8), tf32_k8_a, tf32_k8_b),
    "m16n8k4_tf32": ((16, 8, 4), tf32_k4_a, tf32_k4_b),
    "m16n8k32_fp8": ((16, 8, 32), byte_k32_a, byte_k32_b),
    "m16n8k32_int8": ((16, 8, 32), byte_k32_a, byte_k32_b),
    "m16n8k16_int8": ((16, 8, 16), byte_k16_a, byte_k16_b),
}


@pytest.mark.parametrize("name", cuda.MMA)
def test_mma_sync(name: str) -> None:
    sizes, a, b = MMA_FORMULAS[name]
    check_product(cuda.MMA[name], sizes, 32, a, b, mma_d)


def below(formula: Formula) -> Formula:
    """The formula of a group, for four groups of 16 rows each."""
    return lambda l, i: (16 * (l // 32) + formula(l % 32, i)[0], formula(l % 32, i)[1])


@pytest.mark.parametrize(
    ("name", "k", "a"),
    [
        ("m64k16", 16, m16n8k16_a),
        ("m64k32_fp8", 32, byte_k32_a),
        ("m64k32_int8", 32, byte_k32_a),
        ("m64k8_tf32", 8, tf32_k8_a),
    ],
)
def test_wgmma(name: str, k: int, a: Formula) -> None:
    assert set(cuda.WGMMA) == {"m64k16", "m64k32_fp8", "m64k32_int8", "m64k8_tf32"}
    check_product(cuda.WGMMA[name], (64, 8, k), 32, below(a), None, below(mma_d))


@pytest.mark.parametrize("n", cuda.WGMMA_N)
def test_wgmma_accumulator_of_any_width(n: int) -> None:
    """Register i of the N / 2: row 16 w + l / 4 + 8 (i / 2 % 2), column 8 (i / 4) + 2 (l % 4) + i % 2."""
    acc = distribute(cuda.WGMMA["m64k16"].d, (64, n))
    assert (acc.registers, acc.groups) == (n // 2, 4)
    w, l, i = np.ogrid[:4, :32, : n // 2]
    row, col = 16 * w + l // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (l % 4) + i % 2
    assert (table(acc)[..., 0] == row + 0 * i).all() and (table(acc)[..., 1] == col + 0 * w).all()


def test_hardware_md_16x16_row_tile() -> None:
    """Two m16n8 make a 16x16 tile: (r, c), (r + 8, c), (r, c + 8), (r + 8, c + 8), pairs of columns."""
    for l in range(32):
        for e in range(8):
            row, col = l // 4 + 8 * (e // 2 % 2), 2 * (l % 4) + e % 2 + 8 * (e // 4)
            assert coordinates(Tiled(cuda.MMA["m16n8k16"].a), 0, l, e) == (row, col)


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_ldmatrix(count: int, trans: str) -> None:
    """Lane 8 q + i points at row i of matrix q; lane l then holds, in register pair q, elements
    2 (l % 4) and the next of row l / 4; transposed, rows 2 (l % 4) and the next of column l / 4."""
    pattern = cuda.MATRIX_MOVES[f"x{count}{trans}"]
    for q in range(count):
        for l in range(32):
            for e in range(2):
                row, col = (2 * (l % 4) + e, l // 4) if trans else (l // 4, 2 * (l % 4) + e)
                assert pattern(lane=8 * q + row, register=col) == (2 * q + e, l)


def test_ldmatrix_fills_an_operand() -> None:
    """For A of m16n8k16 the lanes point at rows 0-7, 8-15, then the same of columns 8-15."""
    pointed = addresses(Tiled(cuda.MMA["m16n8k16"].a), cuda.MATRIX_MOVES["x4"])
    check(pointed.fragment, 32, 8, (16, 16), lambda l, e: (l % 8 + 8 * (l // 8 % 2), 8 * (l // 16) + e))
    # B lies as k rows of n: only the transposing form finds 8 neighbours in memory.
    b = distribute(cuda.MMA["m16n8k16"].b, (16, 16))
    assert vector_width(addresses(b, cuda.MATRIX_MOVES["x4.trans"]), "col") == 8
    assert vector_width(addresses(b, cuda.MATRIX_MOVES["x4"]), "col") == 1
    with pytest.raises(ValueError, match="fills more register bits"):
        addresses(Tiled(cuda.MMA["m16n8k16"].b), cuda.MATRIX_MOVES["x4"])


# ---------------------------------------------------------------------------------------------
# AMD


def mfma_a(m: int, k: int) -> Formula:
    """Row i = l % M, k = g (K / groups) + e, with g = l / M."""
    per_lane = k // (64 // m)
    return lambda l, e: (l % m, l // m * per_lane + e)


def mfma_a_chunks(m: int) -> Formula:
    """32 elements a lane in chunks of 16: k = 16 g + e, then 16 groups + 16 g + (e - 16)."""
    groups = 64 // m
    return lambda l, e: (l % m, 16 * (l // m) + e if e < 16 else 16 * groups + 16 * (l // m) + e - 16)


def mfma_d16(l: int, r: int) -> tuple[int, int]:
    return 4 * (l // 16) + r, l % 16


def mfma_d32(l: int, r: int) -> tuple[int, int]:
    return 8 * (r // 4) + 4 * (l // 32) + r % 4, l % 32


def swapped(formula: Formula) -> Formula:
    return lambda l, e: formula(l, e)[::-1]


MFMA_SIZES = {
    "f32_16x16x4f32": (16, 4),
    "f32_32x32x2f32": (32, 2),
    "f32_16x16x8_xf32": (16, 8),
    "f32_32x32x4_xf32": (32, 4),
    "f32_16x16x16": (16, 16),
    "f32_32x32x8": (32, 8),
    "f32_16x16x32": (16, 32),
    "f32_32x32x16": (32, 16),
    "f32_16x16x32_fp8_fnuz": (16, 32),
    "f32_32x32x16_fp8_fnuz": (32, 16),
    "f32_16x16x32_fp8": (16, 32),
    "f32_32x32x16_fp8": (32, 16),
    "i32_16x16x32_i8": (16, 32),
    "i32_32x32x16_i8": (32, 16),
    "i32_16x16x64_i8": (16, 64),
    "i32_32x32x32_i8": (32, 32),
    "f32_16x16x128_f8f6f4_8bit": (16, 128),
    "f32_32x32x64_f8f6f4_8bit": (32, 64),
    "f32_16x16x128_f8f6f4_small": (16, 128),
    "f32_32x32x64_f8f6f4_small": (32, 64),
}


@pytest.mark.parametrize("name", hip.MFMA)
def test_mfma(name: str) -> None:
    m, k = MFMA_SIZES[name]
    a = mfma_a_chunks(m) if name.endswith("f8f6f4_8bit") else mfma_a(m, k)
    check_product(hip.MFMA[name], (m, m, k), 64, a, swapped(a), mfma_d16 if m == 16 else mfma_d32)


def test_hipkittens_tiles() -> None:
    """The operand tiles of hardware.md are the instructions' own, except 16x128, which has chunks of 16."""
    products = hip.MFMA
    check(products["f32_16x16x32"].a, 64, 8, (16, 32), lambda l, e: (l % 16, 8 * (l // 16) + e))
    check(products["f32_32x32x16"].a, 64, 8, (32, 16), lambda l, e: (l % 32, 8 * (l // 32) + e))
    check(products["f32_16x16x16"].a, 64, 4, (16, 16), lambda l, e: (l % 16, 4 * (l // 16) + e))
    check(
        products["f32_16x16x128_f8f6f4_8bit"].a,
        64,
        32,
        (16, 128),
        lambda l, e: (l % 16, 16 * (l // 16) + 64 * (e // 16) + e % 16),
    )


def test_wmma_rdna3() -> None:
    """Operands: all 16 k of row l % 16, in both lane halves. D: row 2 e + l / 16, column l % 16."""
    for name in ("f32_16x16x16_w32", "i32_16x16x16_iu8_w32"):
        check_product(
            hip.WMMA[name],
            (16, 16, 16),
            32,
            lambda l, e: (l % 16, e),
            lambda l, e: (e, l % 16),
            lambda l, e: (2 * e + l // 16, l % 16),
        )


def test_wmma_rdna4() -> None:
    """D: row 8 (l / 16) + e. 16-bit A: 4 of each 8 k a lane half; 8-bit A: 8 of 16."""

    def wide(l: int, e: int) -> tuple[int, int]:
        return l % 16, e % 4 + 4 * (l // 16) + 8 * (e // 4)

    def narrow(l: int, e: int) -> tuple[int, int]:
        return l % 16, e + 8 * (l // 16)

    for name, a in (
        ("f32_16x16x16_w32_gfx12", wide),
        ("f32_16x16x16_fp8_w32_gfx12", narrow),
        ("i32_16x16x16_iu8_w32_gfx12", narrow),
    ):
        d = lambda l, e: (8 * (l // 16) + e, l % 16)  # noqa: E731
        check_product(hip.WMMA[name], (16, 16, 16), 32, a, swapped(a), d)


@pytest.mark.parametrize("bits", [16, 8, 4])
def test_transposing_read(bits: int) -> None:
    """In each 16 lanes: lane L, element j = element L % E of lane j (16 / E) + L / E; E = 64 / bits."""
    pattern = hip.TRANSPOSING_READS[f"ds_read_b64_tr_b{bits}"]
    e = 64 // bits
    for lane in range(64):
        base, L = lane - lane % 16, lane % 16
        for j in range(e):
            assert pattern(lane=base + j * (16 // e) + L // e, register=L % e) == (j, lane)


# ---------------------------------------------------------------------------------------------
# Apple


def test_simdgroup_matrix() -> None:
    p = metal.SIMDGROUP_MATRIX

    def mlx(l: int, e: int) -> tuple[int, int]:
        qid = l // 4
        return (qid & 4) + l // 2 % 4, (qid & 2) * 2 + l % 2 * 2 + e

    def bits(l: int, e: int) -> tuple[int, int]:
        return (l >> 4) * 4 + ((l >> 1) & 3), ((l >> 3) & 1) * 4 + (l & 1) * 2 + e

    check_product(p, (8, 8, 8), 32, mlx, mlx, mlx)
    check_product(p, (8, 8, 8), 32, bits, bits, bits)


# ---------------------------------------------------------------------------------------------
# All of them


ALL = [
    *cuda.MMA.values(),
    *cuda.WGMMA.values(),
    *hip.MFMA.values(),
    *hip.WMMA.values(),
    metal.SIMDGROUP_MATRIX,
]


@pytest.mark.parametrize("p", ALL, ids=lambda p: p.name)
def test_products_multiply(p: Product) -> None:
    """Operands taken apart into slots and put together again give the matrix product."""
    m, n, k = p.shape
    rng = np.random.default_rng(0)
    a, b = rng.integers(-4, 5, (m, k)), rng.integers(-4, 5, (k, n))

    def regather(f: Linear, matrix: np.ndarray) -> np.ndarray:
        t = Tiled(f)
        w, l, e = np.ogrid[: t.groups, : t.lanes, : t.registers]
        row, col = coordinates(t, w, l, e)
        slots = matrix[row, col]
        back = np.full(matrix.shape, -99)
        back[row, col] = slots
        return back

    b_again = regather(p.b, b) if p.b is not None else b
    assert (regather(p.a, a) @ b_again == regather(p.d, a @ b)).all()


@pytest.mark.parametrize("p", ALL, ids=lambda p: p.name)
def test_only_rdna3_operands_are_copied(p: Product) -> None:
    copied = "gfx1100" in p.targets
    assert linear.is_injective(p.a) != copied
    assert linear.is_injective(p.d)


def test_products_of_wrong_sizes_are_refused() -> None:
    f = fragment("c0", "r0 r1")
    with pytest.raises(ValueError, match="do not make a product"):
        Product("x", f, f, f, (), "float32", (), "")
    hole = fragment("c0^r0", "r0 c0 r1^c1")
    with pytest.raises(ValueError, match="without a slot"):
        Product("x", hole, flip(hole), fragment("", "r0 r1 c0 c1"), (), "float32", (), "")
