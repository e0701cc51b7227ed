"""Shared memory: swizzles against the documents' formulas, and counted costs against known figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from kittens.backends.cuda import fragments as cuda
from kittens.backends.hip import fragments as hip
from kittens.backends.metal import fragments as metal
from kittens.layouts import (
    Cost,
    Shared,
    Tiled,
    Xor,
    addresses,
    bank_cost,
    blocked,
    distribute,
    element_at,
    feeds,
    find_swizzle,
    fragment,
    global_cost,
    offset,
    panels,
    picture_shared,
    registers_per_lane,
    reorder,
    shared_cost,
    shared_tile,
    swizzle,
    total,
    transpose,
    with_axes,
)

# ---------------------------------------------------------------------------------------------
# Swizzles, as the documents write them


@pytest.mark.parametrize("mode", cuda.SWIZZLES)
@pytest.mark.parametrize(
    ("rows", "cols", "itemsize"), [(64, 128, 2), (96, 192, 2), (64, 64, 4), (128, 256, 1)]
)
def test_nvidia_swizzles(mode: int, rows: int, cols: int, itemsize: int) -> None:
    """hardware.md: panels of ``mode`` bytes; bytes xor ``((addr % (mode * 8)) >> 7) << 4``."""
    tile = panels((rows, cols), itemsize, panel_bytes=mode, xors=cuda.SWIZZLES[mode])
    width = mode // itemsize
    for r in range(rows):
        for c in range(0, cols, 3):
            address = itemsize * (c // width * rows * width + r * width + c % width)
            assert offset(tile, r, c) == address ^ ((address % (mode * 8)) >> 7) << 4


HK: dict[str, Callable[[int], int]] = {
    "16x16": lambda o: o,
    "16x16 swizzled": lambda o: o ^ (((o % 512) >> 7) << 3),
    "32x32": lambda o: o ^ (((o % 1024) >> 9) << 5) ^ (((o % 2048) >> 10) << 4),
    "16x32": lambda o: o ^ (((o % 1024) >> 9) << 5),
    "32x16": lambda o: o ^ (((o % 1024) >> 9) << 4),
    "8x32": lambda o: o,
    "16x128 8-bit": lambda o: o ^ (((o % 2048) >> 8) << 4),
}


@pytest.mark.parametrize("name", hip.SUBTILES)
def test_amd_subtiles(name: str) -> None:
    (rows, cols), xors = hip.SUBTILES[name]
    itemsize = 1 if "8-bit" in name else 2
    tile = shared_tile((3 * rows, 2 * cols), itemsize, subtile=(rows, cols), xors=xors)
    size = rows * cols * itemsize
    for r in range(3 * rows):
        for c in range(2 * cols):
            within = itemsize * (r % rows * cols + c % cols)
            assert offset(tile, r, c) == (r // rows * 2 + c // cols) * size + HK[name](within)


def test_xor_is_of_offset_bits() -> None:
    f = swizzle(12, (Xor(7, 3, 4), Xor(10, 1, 1)))
    for o in range(1 << 12):
        assert f.packed(o) == o ^ (((o >> 7) & 7) << 4) ^ (((o >> 10) & 1) << 1)
    with pytest.raises(ValueError, match="beyond 8"):
        swizzle(8, (Xor(7, 3, 4),))


TILES = [
    panels((96, 192), 2, panel_bytes=128, xors=cuda.SWIZZLES[128]),
    shared_tile((64, 64), 2, subtile=(32, 32), xors=hip.SUBTILES["32x32"][1]),
    shared_tile((24, 40), 4, pad=16),
    shared_tile((5, 7), 2),
]


@pytest.mark.parametrize("tile", TILES)
def test_offsets_are_distinct_and_lead_back(tile: Shared) -> None:
    row, col = np.ogrid[: tile.shape[0], : tile.shape[1]]
    at = offset(tile, row, col)
    assert len(np.unique(at)) == at.size and at.max() + tile.itemsize == tile.size
    for byte in range(tile.itemsize):
        found = element_at(tile, at + byte)
        assert (found[0] == row).all() and (found[1] == col).all()


def test_linear_copies_apply_the_swizzle_to_the_source() -> None:
    """16 bytes to each of consecutive addresses: the source is a permutation of a row's chunks."""
    tile = shared_tile((16, 64), 2, xors=hip.SWIZZLES["128B rows, b128, 16-row operand"])
    for lane in range(64):
        assert element_at(tile, 16 * lane) == (lane // 8, 8 * (lane % 8 ^ lane // 8))


def test_wrong_tiles_are_refused() -> None:
    with pytest.raises(ValueError, match="no grid"):
        shared_tile((64, 96), 2, subtile=(64, 64))
    with pytest.raises(ValueError, match="use panels"):
        shared_tile((64, 96), 2, xors=cuda.SWIZZLES[128])
    with pytest.raises(ValueError, match="reads beyond"):
        panels((4, 64), 2, panel_bytes=128, xors=cuda.SWIZZLES[128])
    with pytest.raises(ValueError, match="3 bytes"):
        shared_tile((4, 64), 3)


def test_picture() -> None:
    text = picture_shared(shared_tile((8, 64), 2, xors=cuda.SWIZZLES[128]), rows=2)
    assert text.splitlines()[2].split() == ["1:", "144", "128", "176", "160", "208", "192", "240", "224"]
    assert text.endswith("...")


# ---------------------------------------------------------------------------------------------
# Banks


def test_phases_are_those_of_the_notes() -> None:
    def lanes(*ranges: tuple[int, int]) -> list[int]:
        return [lane for first, last in ranges for lane in range(first, last + 1)]

    b128 = [sorted(p) for p in hip.ACCESSES["gfx950"]["ds_read_b128"].phases]
    assert b128 == [
        lanes((0, 3), (12, 15), (20, 27)),
        lanes((4, 11), (16, 19), (28, 31)),
        lanes((32, 35), (44, 47), (52, 59)),
        lanes((36, 43), (48, 51), (60, 63)),
    ]
    b96 = [sorted(p) for p in hip.ACCESSES["gfx950"]["ds_read_b96"].phases]
    first = [
        lanes((0, 3), (20, 23)),
        lanes((4, 7), (16, 19)),
        lanes((8, 11), (28, 31)),
        lanes((12, 15), (24, 27)),
    ]
    assert b96 == first + [[lane + 32 for lane in phase] for phase in first]


@pytest.mark.parametrize(
    ("arch", "access"),
    [
        *((arch, a) for arch, table in hip.ACCESSES.items() for a in table.values()),
        *(("cuda", a) for a in cuda.ACCESSES.values()),
        *(("metal", a) for a in metal.ACCESSES.values()),
    ],
    ids=lambda x: x if isinstance(x, str) else x.name,
)
def test_every_access_serves_each_lane_once(arch: str, access: object) -> None:
    lanes = {"cuda": cuda.LANES, "metal": metal.LANES, **hip.LANES}[arch]
    phases = access.phases  # type: ignore[attr-defined]
    assert sorted(lane for phase in phases for lane in phase) == list(range(lanes))
    consecutive = np.arange(lanes) * access.size  # type: ignore[attr-defined]
    if access.size != 12:  # type: ignore[attr-defined]
        assert bank_cost(access, consecutive).factor == 1.0  # type: ignore[arg-type]
    same_word = bank_cost(access, np.zeros(lanes))  # type: ignore[arg-type]
    assert same_word.actual == same_word.ideal == len(phases)


def test_bank_cost_by_hand() -> None:
    b32 = cuda.ACCESSES["b32"]
    lane = np.arange(32)
    assert bank_cost(b32, lane * 128) == Cost(32, 1)  # all in bank 0
    assert bank_cost(b32, lane * 8) == Cost(2, 1)  # every second bank
    assert bank_cost(b32, lane * 132) == Cost(1, 1)  # rows padded by a word
    assert bank_cost(b32, np.where(lane < 4, lane * 128, -1)) == Cost(4, 1)  # four lanes on
    assert bank_cost(b32, np.full(32, -1)) == Cost(0, 0)
    assert Cost(0, 0).factor == 1.0


@pytest.mark.parametrize(
    ("xors", "pad", "factor"),
    [(hip.SWIZZLES["128B rows, b128, 16-row operand"], 0, 1.0), ((), 16, 1.5), ((), 0, 2.5)],
)
def test_the_128x64_tile_of_the_notes(xors: tuple[Xor, ...], pad: int, factor: float) -> None:
    """amd-notes 3: a 128x64 bf16 tile written once with b128, read by two groups of waves in the
    16x16x32 operand layout (the 128x128x64 kernel of 2 x 2 waves): 1.00x, 1.50x, 2.50x."""
    tile = shared_tile((128, 64), 2, xors=xors, pad=pad)
    access = hip.ACCESSES["gfx950"]
    write = blocked((128, 64), vector=8, lanes=64)
    read = distribute(hip.MFMA["f32_16x16x32"].a, (128, 64))
    written = shared_cost(write, tile, access["ds_write_b128"])
    once = shared_cost(read, tile, access["ds_read_b128"])
    assert total([written, once, once]).factor == factor


@pytest.mark.parametrize("rows", [64, 96, 128])
@pytest.mark.parametrize("mode", cuda.SWIZZLES)
def test_ldmatrix_over_a_swizzled_panel_is_free_of_conflicts(rows: int, mode: int) -> None:
    operand = distribute(cuda.MMA["m16n8k16"].a, (rows, mode // 2))
    read = addresses(operand, cuda.MATRIX_MOVES["x4"])
    x4 = cuda.ACCESSES["ldmatrix.x4"]
    plain = panels((rows, mode // 2), 2, panel_bytes=mode)
    swizzled = panels((rows, mode // 2), 2, panel_bytes=mode, xors=cuda.SWIZZLES[mode])
    assert shared_cost(read, swizzled, x4).factor == 1.0
    assert shared_cost(read, plain, x4).factor == {128: 8.0, 64: 4.0, 32: 2.0}[mode]


def test_stores_of_an_accumulator() -> None:
    """stmatrix and plain pairs of 16-bit values into a swizzled panel are both free of conflicts."""
    tile = panels((64, 64), 2, panel_bytes=128, xors=cuda.SWIZZLES[128])
    acc = distribute(cuda.WGMMA["m64k16"].d, (64, 64))
    assert shared_cost(acc, tile, cuda.ACCESSES["b32"], group=0).factor == 1.0
    assert shared_cost(acc, tile, cuda.ACCESSES["b32"]).factor == 1.0
    assert shared_cost(acc, shared_tile((64, 64), 2), cuda.ACCESSES["b32"], group=2).factor == 8.0
    stmatrix = addresses(acc, cuda.MATRIX_MOVES["x4"])
    assert shared_cost(stmatrix, tile, cuda.ACCESSES["ldmatrix.x4"]).factor == 1.0


def test_swizzles_of_gfx950_by_operand() -> None:
    """128-byte rows read with b128: row / 2 serves operands of 16 and of 32 rows, row only those of 16."""
    b128 = hip.ACCESSES["gfx950"]["ds_read_b128"]
    for product, name, factor in (
        ("f32_16x16x32", "128B rows, b128, 16-row operand", 1.0),
        ("f32_16x16x32", "128B rows, b128, 32-row operand", 1.0),
        ("f32_32x32x16", "128B rows, b128, 16-row operand", 2.0),
        ("f32_32x32x16", "128B rows, b128, 32-row operand", 1.0),
    ):
        read = distribute(hip.MFMA[product].a, (64, 64))
        assert shared_cost(read, shared_tile((64, 64), 2, xors=hip.SWIZZLES[name]), b128).factor == factor


def transposing_read(layout: Tiled, tile: Shared) -> Cost:
    """Cost of filling ``layout`` with ds_read_b64_tr_b16."""
    name = "ds_read_b64_tr_b16"
    return shared_cost(addresses(layout, hip.TRANSPOSING_READS[name]), tile, hip.ACCESSES["gfx950"][name])


def test_swizzles_of_gfx950_for_transposing_reads() -> None:
    """B of A B (512-byte rows, 16 columns an operand) and V (256-byte rows, read in the order of P)."""
    b = distribute(hip.MFMA["f32_16x16x32"].b, (64, 256))
    swizzled = shared_tile((64, 256), 2, xors=hip.SWIZZLES["512B rows, tr_b16"])
    assert transposing_read(b, swizzled).factor == 1.0
    assert transposing_read(b, shared_tile((64, 256), 2)).factor > 1.0
    p = hip.MFMA["f32_32x32x16"]
    order = feeds(
        distribute(p.d, (64, 32), order=("row", "col")),
        distribute(p.b, (64, 32), order=("row", "col")),
        "row",
    )
    assert order is not None
    v = transpose(reorder(distribute(p.a, (128, 64)), "col", order))
    tile = shared_tile((64, 128), 2, xors=hip.SWIZZLES["256B rows, tr_b16"])
    assert transposing_read(v, tile).factor == 1.0
    assert transposing_read(v, shared_tile((64, 128), 2)).factor > 1.0


def test_padding_helps_apple() -> None:
    read = distribute(metal.SIMDGROUP_MATRIX.a, (8, 32))
    vec8 = metal.ACCESSES["vec8"]
    plain, padded = shared_tile((32, 32), 4), shared_tile((32, 32), 4, pad=metal.PAD)
    assert (shared_cost(read, plain, vec8).factor, shared_cost(read, padded, vec8).factor) == (4.0, 2.0)


@pytest.mark.parametrize("product", ["f32_16x16x32", "f32_32x32x16"])
def test_swizzles_are_found(product: str) -> None:
    access = hip.ACCESSES["gfx950"]
    read = distribute(hip.MFMA[product].a, (64, 64))
    write = blocked((64, 64), vector=8, lanes=64)
    uses = [(read, access["ds_read_b128"], "col"), (write, access["ds_write_b128"], "col")]
    xors, cost = find_swizzle((64, 64), 2, uses, panel_bytes=128)
    assert len(xors) == 1 and cost.factor == 1.0


def test_impossible_accesses_are_refused() -> None:
    acc, tile = distribute(cuda.MMA["m16n8k16"].d, (64, 64)), shared_tile((64, 64), 2)
    with pytest.raises(ValueError, match="hold 2 neighbours"):
        shared_cost(acc, tile, cuda.ACCESSES["b128"])
    with pytest.raises(ValueError, match="other than 32 lanes"):
        shared_cost(acc, tile, hip.ACCESSES["gfx950"]["ds_read_b32"])
    with pytest.raises(ValueError, match="one aligned piece"):
        shared_cost(
            distribute(hip.MFMA["f32_16x16x32"].d, (64, 64)),
            tile,
            hip.ACCESSES["gfx950"]["ds_read_b64"],
            axis="row",
        )


# ---------------------------------------------------------------------------------------------
# Global memory and registers


def test_coalescing() -> None:
    rows = blocked((64, 128), vector=8, lanes=32)
    assert global_cost(rows, 2, 256, segment=32) == Cost(512, 512)
    assert global_cost(rows, 2, 4096, segment=32).factor == 1.0
    acc = distribute(cuda.MMA["m16n8k16"].d, (16, 64))
    assert global_cost(acc, 4, 1024, segment=32).factor == 1.0  # 8 bytes a lane, 32 a row
    assert global_cost(acc, 2, 1024, segment=32).factor == 2.0  # half a sector a row
    column = Tiled(fragment("", "r0 r1 r2 r3 r4"))
    assert global_cost(column, 4, 1024, segment=32) == Cost(32, 4)
    vector = with_axes(blocked((1024,), vector=4, lanes=32), "i")
    assert global_cost(vector, 4, 0, segment=32).factor == 1.0


def test_registers_per_lane() -> None:
    acc = distribute(cuda.WGMMA["m64k16"].d, (64, 256))
    assert registers_per_lane(acc, 4) == 128 and registers_per_lane(acc, 2) == 64
    assert registers_per_lane(distribute(hip.MFMA["f32_16x16x32"].a, (16, 32)), 2) == 4
