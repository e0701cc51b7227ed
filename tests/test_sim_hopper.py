"""Hopper's copies, counting barriers and products in the simulator: right results, and planted bugs found."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest
from cut_products import cut_product
from simtools import ORDERS, edited, fault, kernels, program

from kittens.backends.cuda import wgmma
from kittens.backends.cuda.sim import VENDOR
from kittens.backends.cuda.wgmma import Product
from kittens.dtypes import as_dtype
from kittens.errors import ArgumentError
from kittens.sim.maps import MappedArray

RNG = np.random.default_rng(0)
HEAD = '#include "kt_cuda.h"\n'
BF16 = Product(64, "bf16", "bf16", "ss")
GEMM = HEAD + wgmma.wrappers([BF16], {32}) + kernels("hopper_gemm.cu")
BOTH = ("forward", "reverse")
DTYPES = {
    "bf16": ml_dtypes.bfloat16,
    "f16": np.float16,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
}


def run_gemm(
    source: str = GEMM,
    order: str | int = "forward",
    shape: Sequence[int] = (200, 136, 264),
    blocks: int = 2,
    **options,
) -> None:
    m, n, k = shape
    a = RNG.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, ml_dtypes.bfloat16)
    maps = [MappedArray(a, (1, 0), (64, 128), 128), MappedArray(b, (1, 0), (64, 64), 128)]
    maps.append(MappedArray(c, (1, 0), (64, 16), 128))
    shared = 2 * 24576 + 16384 + 32
    program(VENDOR, source, "gemm", "sm_90a").run(
        blocks, 384, [*maps, m, n, k], shared, order=order, **options
    )
    exact = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(c.astype(np.float32), exact, rtol=2**-8, atol=1e-3)


def run_text(body: str, args=(), order="forward", block=128, shared=65536, wrappers="", **options) -> None:
    """Run a kernel `k` given by its parameters and body. `SMEM`, `BAR`: its shared memory, and a barrier at its end."""
    text = HEAD + wrappers + "#define BAR (smem + 65528u)\n#define SMEM KT_SHARED_MEMORY(smem, 65536)\n"
    program(VENDOR, text + 'extern "C" __global__ void k' + body, "k", "sm_90a").run(
        options.pop("grid", 1), block, args, shared, order=order, **options
    )


# ---- right kernels


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("blocks", [1, 2])
def test_matmul_by_a_ring_that_wraps_across_programs(order, blocks):
    run_gemm(order=order, blocks=blocks)


def test_matmul_by_a_block_for_each_program():
    run_gemm(shape=(64, 64, 72), blocks=1)
    run_gemm(shape=(200, 136, 264), blocks=6, workers=2)


SETUP = """
  SMEM;
  if (kt_thread() == 0u) { kt_bar_init(BAR, 1u); kt_bar_fence(); }
  kt_barrier();
"""
COPY = (
    """(KT_MAP(from), KT_MAP(to), kt_out raw, int bytes, %s) {"""
    + SETUP
    + """
  if (kt_thread() == 0u) {
    kt_bar_expect(BAR, kt_u32(bytes));
    kt_tile_load(smem, from, BAR, %s);
  }
  kt_bar_wait(BAR, 0u);
  for (int i = int(kt_thread()); i < bytes; i += 128) kt_st_global_b8(raw + i, kt_ld_shared_b8(smem + kt_u32(i)));
  if (kt_thread() == 0u && (%s)) {
    kt_tile_store(to, smem, %s);
    kt_tile_commit();
    kt_tile_wait<0>();
  }
}"""
)


def tile_of(array: np.ndarray, box: Sequence[int], at: Sequence[int]) -> np.ndarray:
    """A tile with zeros outside the array; box and at from the innermost axis outwards."""
    out = np.zeros(box[::-1], array.dtype)
    for place in np.ndindex(*out.shape):
        index = tuple(p + o for p, o in zip(place, at[::-1], strict=True))
        if all(0 <= i < n for i, n in zip(index, array.shape, strict=True)):
            out[place] = array[index]
    return out


@pytest.mark.parametrize(
    ("shape", "box", "at", "swizzle", "dtype"),
    [
        ((20, 72), (64, 16), (16, 8), 128, np.uint16),
        ((20, 72), (32, 16), (-8, -3), 64, np.uint16),
        ((20, 80), (32, 24), (64, 0), 32, np.uint8),
        ((9, 20), (16, 4), (8, 7), 0, np.float32),
        ((4, 20, 72), (64, 8, 2), (0, 16, 3), 128, np.uint16),
        ((3, 2, 20, 72), (64, 8, 1, 2), (64, 0, 1, 1), 128, np.uint16),
        ((2, 3, 2, 10, 48), (32, 4, 2, 1, 2), (0, 8, 0, 2, 1), 128, np.float32),
    ],
)
def test_tiles_are_copied_swizzled_and_cut_at_the_edges(shape, box, at, swizzle, dtype):
    source = RNG.integers(1, 200, shape).astype(dtype)
    tile = tile_of(source, box, at)
    expected = np.zeros_like(source)
    if min(at) >= 0:  # a tile before the tensor's beginning can be loaded, but not stored
        inside = tuple(slice(o, o + b) for o, b in zip(at[::-1], box[::-1], strict=True))
        expected[inside] = source[inside]
    names = [f"c{i}" for i in range(len(at))]
    body = COPY % (
        ", ".join(f"int {n}" for n in names),
        ", ".join(names),
        " && ".join(f"{n} >= 0" for n in names),
        ", ".join(names),
    )
    place = np.arange(tile.nbytes)
    if swizzle:
        place ^= (place >> 7 & (swizzle // 16 - 1)) << 4
    for order in BOTH:
        back, raw = np.zeros_like(source), np.zeros(tile.nbytes, np.uint8)
        axes = tuple(range(len(shape)))[::-1]
        maps = [MappedArray(array, axes, box, swizzle) for array in (source, back)]
        run_text(body, [*maps, raw, tile.nbytes, *at], order)
        np.testing.assert_array_equal(raw[place], np.frombuffer(tile.tobytes(), np.uint8))
        np.testing.assert_array_equal(back, expected)


@pytest.mark.parametrize("order", BOTH)
def test_tiles_are_added(order):
    body = """(KT_MAP(to)) {
      SMEM;
      for (kt_u32 i = kt_thread(); i < 512u; i += 128u) kt_st_shared_b32(smem + i * 4u, kt_bits(float(i)));
      kt_fence_async();
      kt_barrier();
      if (kt_elect() && kt_group() < 2u) {
        kt_tile_reduce_add(to, smem, 0, 2);
        kt_tile_commit();
        kt_tile_wait_read<0>();
      }
    }"""
    out = np.ones((10, 32), np.float32)
    run_text(body, [MappedArray(out, (1, 0), (32, 16), 0)], order)
    expected = np.ones((10, 32), np.float32)
    expected[2:] += 2 * np.arange(256).reshape(8, 32)
    np.testing.assert_array_equal(out, expected)


WGMMA = (
    """(KT_MAP(a), KT_MAP(b), kt_in registers, kt_out out) {"""
    + SETUP
    + """
  if (kt_thread() == 0u) {
    kt_bar_expect(BAR, A_BYTES + B_BYTES);
    for (kt_u32 i = 0u; i < A_TILES; i++) kt_tile_load(smem + i * (A_BYTES / A_TILES), a, BAR, A_AT);
    for (kt_u32 i = 0u; i < B_TILES; i++) kt_tile_load(smem + 16384u + i * (B_BYTES / B_TILES), b, BAR, B_AT);
  }
  kt_bar_wait(BAR, 0u);
  TYPE d[N / 2 + 8];
  for (int i = 0; i < N / 2 + 8; i++) d[i] = TYPE(i);
  kt_desc da = kt_matrix_desc(smem, A_LEADING, A_STRIDE, A_SWIZZLE);
  kt_desc db = kt_matrix_desc(smem + 16384u, B_LEADING, B_STRIDE, B_SWIZZLE);
  kt_u32x4 r = kt_ld_global_b128(registers + kt_thread() * 16u);
  kt_engine_fence();
  PRODUCT
  kt_engine_commit();
  kt_engine_wait<0>(d);
  for (int i = 0; i < N / 2 + 8; i++)
    kt_st_global_b32(out + (kt_thread() * (N / 2 + 8) + kt_u32(i)) * 4u, __builtin_bit_cast(kt_u32, d[i]));
}"""
)


def run_product(
    p: Product, a_major: int, b_major: int, order: str, swizzle: int = 128, *, scale: float = 0.0
) -> None:
    """One product with 8 accumulators before it: operands loaded by maps, against NumPy.

    Small whole numbers, which are added exactly; or with `scale` float8 of many magnitudes, against a model of what is cut.
    """
    dtype_a, dtype_b, wide = DTYPES[p.a], DTYPES[p.b], np.int32 if p.a == "s8" else np.float32
    a, b = RNG.integers(-8, 9, (64, p.k)), RNG.integers(-8, 9, (p.k, p.n))
    if scale:
        a, b = (np.clip(np.exp2(x) * RNG.standard_normal(x.shape) * scale, -448, 448) for x in (a, b))
    a, b = a.astype(dtype_a), b.astype(dtype_b)
    settings: dict[str, object] = {"N": p.n, "TYPE": p.accumulator}
    maps = []
    for name, matrix, major in (("A", a, a_major), ("B", b.T, b_major)):
        size = matrix.itemsize
        row = swizzle or 16
        width, rows = row // size, len(matrix)
        stored = np.ascontiguousarray(matrix.T if major else matrix)  # along K, or along M or N
        tiles = -(-stored.shape[1] // width) if swizzle == 0 or major else 1
        box = (width, stored.shape[0])
        maps.append(MappedArray(stored, (1, 0), box, swizzle))
        tile_bytes = box[1] * row
        settings |= {f"{name}_TILES": f"{tiles}u", f"{name}_BYTES": f"{tiles * tile_bytes}u"}
        settings |= {f"{name}_AT": f"int(i) * {width}, 0", f"{name}_SWIZZLE": f"{swizzle}u"}
        stride, leading = 8 * row, tile_bytes
        if major and not swizzle:  # the 16 bytes are along M or N: the two steps change places
            stride, leading = leading, stride
        settings |= {f"{name}_STRIDE": f"{stride}u", f"{name}_LEADING": f"{leading}u"}
        assert rows == (64 if name == "A" else p.n)
    majors = [str(m) for m, key in ((a_major, "TA"), (b_major, "TB")) if key in p.majors]
    given = "da" if p.form == "ss" else "r.x, r.y, r.z, r.w"
    settings["PRODUCT"] = f"{p.name}<{', '.join([*majors, '8'])}>(d, {given}, db, true);"
    registers = np.zeros((128, 16), np.uint8)
    if p.form == "rs":
        packed = p.k // 8
        lanes = np.arange(128)
        row, column = lanes // 32 * 16 + lanes % 32 // 4, lanes % 4 * packed
        parts = [
            a[row[:, None] + r % 2 * 8, column[:, None] + r // 2 * (p.k // 2) + np.arange(packed)]
            for r in range(4)
        ]
        registers = np.ascontiguousarray(np.concatenate(parts, axis=1)).view(np.uint8)
    count = p.n // 2 + 8
    out = np.zeros((128, count), wide)
    defines = "".join(f"#define {k} {v}\n" for k, v in settings.items())
    sizes = ((), {count}) if p.a == "s8" else ({count}, ())
    run_text(WGMMA, [*maps, registers, out], order, wrappers=wgmma.wrappers([p], *sizes) + defines)
    lane, element = np.meshgrid(np.arange(128), np.arange(p.n // 2), indexing="ij")
    rows = lane // 32 * 16 + lane % 32 // 4 + element % 4 // 2 * 8
    columns = element // 4 * 8 + lane % 4 * 2 + element % 2
    np.testing.assert_array_equal(out[:, :8], np.broadcast_to(np.arange(8), (128, 8)))
    before = np.zeros((64, p.n), wide)
    before[rows, columns] = element + 8
    if scale:
        dtypes = as_dtype(a.dtype), as_dtype(b.dtype)
        wanted = cut_product(a.astype(wide), b.astype(wide), before, dtypes, bits=13, group=32)
    else:
        wanted = a.astype(wide) @ b.astype(wide) + before
    np.testing.assert_array_equal(out[:, 8:], wanted[rows, columns])


@pytest.mark.parametrize("form", ["ss", "rs"])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("bf16", "bf16"),
        ("f16", "f16"),
        ("s8", "s8"),
        *[(a, b) for a in ("e4m3", "e5m2") for b in ("e4m3", "e5m2")],
    ],
)
def test_products_of_every_type(a, b, form):
    for order in BOTH:
        run_product(Product(32, a, b, form), 0, 0, order, swizzle=32)


@pytest.mark.parametrize("scale", [1.0, 2.0**-8, 2.0**-40])
@pytest.mark.parametrize("a", ["e4m3", "e5m2"])
@pytest.mark.parametrize("b", ["e4m3", "e5m2"])
def test_sums_of_float8_are_cut_as_hopper_cuts_them(a, b, scale):
    run_product(Product(64, a, b, "ss"), 0, 0, "forward", swizzle=32, scale=scale)


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
@pytest.mark.parametrize(("a_major", "b_major"), [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_products_of_operands_of_every_major_and_swizzle(a_major, b_major, swizzle):
    run_product(Product(128, "bf16", "bf16", "ss"), a_major, b_major, "reverse", swizzle)


def test_products_of_8_and_of_256_columns():
    run_product(Product(8, "f16", "f16", "rs"), 0, 1, "forward")
    run_product(Product(256, "e4m3", "e5m2", "ss"), 0, 0, "forward", swizzle=32)


# ---- clusters

CLUSTER = """(KT_MAP(a), kt_out out) {
  SMEM;
  if (kt_thread() == 0u) { kt_bar_init(BAR, 1u); kt_bar_init(BAR - 8u, 2u); kt_bar_fence(); }
  kt_cluster_sync();
  kt_u32 rank = kt_cluster_rank();
  if (kt_thread() == 0u) {
    for (int i = 0; i < 3; i++) {
      kt_bar_wait(BAR - 8u, kt_u32(i & 1) ^ 1u);
      kt_bar_expect(BAR, 2048u);
      kt_tile_load_to(smem + rank * 1024u, a, BAR, int(kt_program_x()) * 32, i * 8, 3);
      kt_bar_wait(BAR, kt_u32(i & 1));
      kt_st_global_b32(out + (kt_program_x() * 6u + kt_u32(i) * 2u) * 4u, kt_ld_shared_b32(smem + 36u));
      kt_st_global_b32(out + (kt_program_x() * 6u + kt_u32(i) * 2u + 1u) * 4u, kt_ld_shared_b32(smem + 1024u));
      ARRIVE
    }
  }
  kt_cluster_sync();
}"""
ARRIVE = "for (kt_u32 block = 0u; block < 2u; block++) kt_bar_arrive_at(BAR - 8u, block);"


def run_cluster(order: str | int, arrive: str = ARRIVE, grid: int = 4, cluster: int = 2) -> None:
    a = RNG.integers(0, 1000, (24, 32 * grid)).astype(np.int32)
    out = np.zeros((grid, 3, 2), np.int32)
    args = [MappedArray(a, (1, 0), (32, 8), 0), out]
    run_text(CLUSTER.replace("ARRIVE", arrive), args, order, grid=grid, cluster=cluster, block=32)
    for p in range(grid):
        first = p // 2 * 64
        np.testing.assert_array_equal(out[p, :, 0], a[::8, first + 9])
        np.testing.assert_array_equal(out[p, :, 1], a[::8, first + 32])


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_of_a_cluster_load_for_each_other(order):
    run_cluster(order)


@pytest.mark.parametrize("order", BOTH)
def test_a_cluster_that_does_not_hear_of_its_other_block(order):
    fault(
        ("race", "barrier", "async-shared"),
        run_cluster,
        order,
        "kt_bar_arrive(BAR - 8u); kt_bar_arrive(BAR - 8u);",
    )
    assert "1 of 2 arrivals" in fault("barrier", run_cluster, order, "kt_bar_arrive(BAR - 8u);").detail


def test_clusters_that_cannot_be_simulated():
    with pytest.raises(ArgumentError, match="clusters of 3"):
        run_cluster("forward", grid=4, cluster=3)
    with pytest.raises(ArgumentError, match="too large"):
        run_cluster("forward", grid=32, cluster=32)
    fault("barrier", run_cluster, "forward", cluster=1)


# ---- planted bugs: what is edited, and the faults it may end in

FLIP = "stage ^= 1u;\n        if (stage == 0u) parity ^= 1u;"
BUGS = {
    "a consumer's parity is not flipped": (
        f"before = stage;\n        {FLIP}",
        "before = stage;\n        stage ^= 1u;",
        "barrier",
    ),
    "the producer's parity is not flipped": (
        "stage ^= 1u;\n          if (stage == 0u) parity ^= 1u;",
        "stage ^= 1u;",
        "barrier",
    ),
    "consumers begin with the wrong parity": (
        "parity = 0u, part",
        "parity = 1u, part",
        "barrier async-shared",
    ),
    "the producer begins with the wrong parity": ("kt_u32 parity = 1u;", "kt_u32 parity = 0u;", "barrier"),
    "a stage is not given back": (
        "if (i > 0 && lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);",
        "",
        "barrier",
    ),
    "the last stage is not given back": (
        "kt_engine_wait<0>(d);\n      if (lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);",
        "kt_engine_wait<0>(d);",
        "barrier",
    ),
    "a stage is given back before the product is waited for": (
        "kt_engine_wait<1>(d);\n        if (i > 0 && lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);",
        "if (lane == 0u) kt_bar_arrive(smem + EMPTY + stage * 8u);\n        kt_engine_wait<1>(d);",
        "race async-shared",
    ),
    "a wait leaves one batch too many": ("kt_engine_wait<1>(d);", "kt_engine_wait<2>(d);", "async-shared"),
    "the last products are not waited for": (
        "      kt_engine_wait<0>(d);\n",
        "",
        "product async-shared",
    ),
    "plain stores are not fenced": ("      kt_fence_async();\n", "", "unfenced"),
    "fenced stores of other lanes are not waited for": (
        "kt_fence_async();\n      kt_sync_lanes();",
        "kt_fence_async();",
        "race",
    ),
    "a barrier takes half of the arrivals": (
        "EMPTY + s * 8u, 8u",
        "EMPTY + s * 8u, 4u",
        "barrier async-shared race",
    ),
    "a barrier takes twice the arrivals": ("EMPTY + s * 8u, 8u", "EMPTY + s * 8u, 16u", "barrier"),
    "fewer bytes are expected than come": (
        "full, STAGE_BYTES);",
        "full, STAGE_BYTES - 8192u);",
        "async-shared",
    ),
    "more bytes are expected than come": ("full, STAGE_BYTES);", "full, STAGE_BYTES + 16u);", "barrier"),
    "no bytes are expected": ("kt_bar_expect(full, STAGE_BYTES);", "kt_bar_arrive(full);", "async-shared"),
    "made barriers are not fenced": ("    kt_bar_fence();\n", "", "unfenced"),
    "made barriers are used at once": ("  kt_barrier();\n", "", "race barrier"),
    "registers beyond the pool": ("kt_registers_more<232>", "kt_registers_more<240>", "barrier"),
    "registers of no legal number": ("kt_registers_fewer<40>", "kt_registers_fewer<44>", "registers"),
    "fewer registers that are more": ("kt_registers_fewer<40>", "kt_registers_fewer<200>", "registers"),
    "registers are not given back": ("    kt_registers_fewer<40>();\n", "", "barrier"),
    "products without a fence": ("        kt_engine_fence();\n", "", "product"),
    "products that are not committed": ("        kt_engine_commit();\n", "", "async-shared product"),
    "a descriptor that leaves shared memory": (
        "smem + 16384u, 8192u, 1024u",
        "smem + 16384u, 8192u, 65536u",
        "shared-bounds",
    ),
    "a descriptor of columns inside a row": (
        "kt_matrix_desc(smem + 16384u,",
        "kt_matrix_desc(smem + 16384u + 64u,",
        "misaligned",
    ),
    "a descriptor inside an atom": (
        "kt_matrix_desc(smem + 16384u,",
        "kt_matrix_desc(smem + 16384u + 128u,",
        "misaligned",
    ),
    "the last tile out is not waited for": (
        "    if (lane == 0u) kt_tile_wait_read<0>();\n  }",
        "  }",
        "async-shared",
    ),
    "a tile out is overwritten": (
        "      if (lane == 0u) kt_tile_wait_read<0>();\n      kt_sync",
        "      kt_sync",
        "async-shared",
    ),
    "lanes overwrite a tile that another waits for": (
        "kt_tile_wait_read<0>();\n      kt_sync_lanes();",
        "kt_tile_wait_read<0>();",
        "race",
    ),
    "a tile out is not committed": ("        kt_tile_commit();\n", "", "async-shared"),
    "a stage is read before it is full": (
        "        kt_bar_wait(smem + FULL + stage * 8u, parity);\n",
        "",
        "async-shared unwritten-shared",
    ),
    "a stage is filled before it is empty": (
        "          kt_bar_wait(smem + EMPTY + stage * 8u, parity);\n",
        "",
        "async-shared barrier",
    ),
    "a tile at no multiple of 128 bytes": (
        "kt_tile_load(to + 16384u,",
        "kt_tile_load(to + 16384u + 64u,",
        "misaligned",
    ),
    "a warp gives another operand": (
        "at + j * 2u, db",
        "at + j * 2u + (warp == 6u ? 1024u : 0u), db",
        "divergent",
    ),
    "an operand is overwritten by a plain store": (
        "        kt_engine_wait<1>(d);",
        "        kt_st_shared_b32(smem + stage * STAGE_BYTES + part * 8192u, 0u);\n        kt_engine_wait<1>(d);",
        "async-shared race",
    ),
    "a tile overwrites one under way": (
        "kt_tile_load(to, a, full, i * 64, row);",
        "kt_tile_load(to, a, full, i * 64, row);\n kt_tile_load(to, a, full, i * 64, row);",
        "async-shared",
    ),
    "a ring of one stage that is used as two": (
        "kt_smem to = smem + stage * STAGE_BYTES,",
        "kt_smem to = smem,",
        "async-shared",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug(bug):
    old, new, kinds = BUGS[bug]
    source = edited(GEMM, old, new)
    for order in BOTH:
        fault(tuple(kinds.split()), run_gemm, source, order=order)


WAIT = "        kt_engine_wait<1>(d);"
TOUCHED = {
    "written": f"        d[3] = 1.0f;\n{WAIT}",
    "stored": f"        kt_st_global_b32(g + kt_thread() * 4u, kt_bits(d[3] * 2.0f));\n{WAIT}",
    "rounded": f"        kt_st_global_b32(g + kt_thread() * 4u, kt_f32x2_to_bf16x2(0.0f, d[3]));\n{WAIT}",
}


@pytest.mark.parametrize("how", TOUCHED)
def test_accumulators_touched_while_a_product_is_under_way(how):
    """Found in the order in which products do their work late."""
    source = edited(edited(GEMM, WAIT, TOUCHED[how]), "KT_MAP(c), int m", "KT_MAP(c), kt_out g, int m")
    a, g = np.zeros((128, 128), ml_dtypes.bfloat16), np.zeros(384, np.uint32)
    maps = [MappedArray(a, (1, 0), box, 128) for box in ((64, 128), (64, 64), (64, 16))]
    run = program(VENDOR, source, "gemm", "sm_90a").run
    found = fault("product", run, 1, 384, [*maps, g, 128, 128, 128], 65568, order="reverse")
    assert "changed while the product" in found.detail or "not waited for is used" in found.detail


def test_a_report_of_threads_that_wait_for_ever_says_where_each_role_stands():
    old = "if (i > 0 && lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);"
    found = fault("barrier", run_gemm, edited(GEMM, old, ""))
    assert found.detail.startswith("threads wait for ever: group 0 at kt_bar_wait, gemm.cu:")
    assert (
        "for parity 0 of the barrier at byte 65552 of shared memory, in phase 0: 8 of 8 arrivals"
        in found.detail
    )
    assert "; groups 4-11 at kt_bar_wait, gemm.cu:" in found.detail
    assert "kt_bar_wait(smem + EMPTY" in edited(GEMM, old, "").splitlines()[found.line - 1]


@pytest.mark.parametrize("order", BOTH)
def test_a_phase_may_be_waited_for_at_two_places(order):
    """A wait for a barrier keeps the compiler from moving the wait for products up."""
    run_gemm(
        edited(GEMM, WAIT, f"        kt_bar_wait(smem + FULL + stage * 8u, parity);\n{WAIT}"), order=order
    )


def test_registers_beyond_the_pool_are_named():
    found = fault("barrier", run_gemm, edited(GEMM, "kt_registers_more<232>", "kt_registers_more<240>"))
    assert (
        "at kt_registers_more" in found.detail
        and "for 240 registers a thread where 168 are held" in found.detail
    )


# ---- maps that no driver makes

LOAD = (
    """(KT_MAP(a)) {"""
    + SETUP
    + """
  if (kt_thread() == 0u) { kt_bar_expect(BAR, 2048u); kt_tile_load(smem, a, BAR, 0, 0); }
  kt_bar_wait(BAR, 0u);
}"""
)


@pytest.mark.parametrize(
    ("shape", "box", "swizzle", "why"),
    [
        ((16, 66), (64, 16), 128, "a stride is no multiple of 16 bytes"),
        ((16, 64), (4, 16), 0, "a row of a tile is no multiple of 16 bytes"),
        ((16, 64), (64, 8), 64, "longer than the swizzle"),
        ((16, 64), (32, 8), 128, "knows no rows that are shorter"),
        ((400, 64), (8, 300), 0, "1 to 256 elements"),
        ((0, 64), (64, 8), 128, "an axis is empty"),
        ((2, 16, 64), (64, 8, 1), 128, "2 coordinates for a map of 3 axes"),
    ],
)
def test_maps_that_no_driver_makes(shape, box, swizzle, why):
    a = np.zeros(shape, np.uint16)
    found = fault("descriptor", run_text, LOAD, [MappedArray(a, tuple(range(a.ndim))[::-1], box, swizzle)])
    assert why in found.detail


def test_a_tensor_at_an_odd_address():
    a = np.zeros((16, 72), np.uint16)[:, 1:65]
    assert (
        "multiple of 16"
        in fault("descriptor", run_text, LOAD, [MappedArray(a, (1, 0), (64, 16), 128)]).detail
    )


PLACED = {
    "kt_tile_load(smem, a, BAR, 4, 0);": "misaligned",
    "kt_tile_store(a, smem, 4, 0);": "misaligned",
    "kt_tile_store(a, smem, 0, -1);": "descriptor",
    "kt_tile_store(a, smem, -8, 0);": "descriptor",
}


@pytest.mark.parametrize("call", PLACED)
def test_tiles_where_a_device_takes_none(call):
    """An H200 ends each of these with an illegal instruction."""
    a = np.zeros((16, 64), np.uint16)
    body = "(KT_MAP(a)) {" + SETUP + "if (kt_thread() == 0u) { " + call + " } }"
    fault(PLACED[call], run_text, body, [MappedArray(a, (1, 0), (64, 16), 128)])


# ---- barriers

NAMED = {
    "(kt_out x) { SMEM; kt_bar_arrive(BAR); }": "nobody has made one",
    "(kt_out x) { SMEM; if (kt_thread() == 0u) { kt_bar_init(BAR, 0u); } }": "1 to 2^20 - 1 arrivals",
    "(kt_out x) { SMEM; if (kt_thread() == 0u) { kt_bar_init(BAR, 1u); kt_bar_wait(BAR, 2u); } }": "0 or 1, not 2",
    "(kt_out x) { SMEM; if (kt_thread() == 0u) { kt_bar_init(BAR, 1u); kt_bar_expect(BAR, 8u); kt_bar_arrive(BAR); } }": (
        "this arrival is one too many"
    ),
}


@pytest.mark.parametrize("body", NAMED)
def test_barriers_misused(body):
    assert NAMED[body] in fault("barrier", run_text, body, [np.zeros(1, np.uint8)]).detail


@pytest.mark.parametrize("order", ORDERS)
def test_arrivals_of_lanes_order_what_those_lanes_did(order):
    """A lane hands on its own accesses; those of other lanes need a meeting of the group before."""
    body = """() {
      SMEM;
      if (kt_thread() == 0u) kt_bar_init(BAR, COUNT);
      kt_barrier();
      if (kt_group() == 0u) {
        kt_st_shared_b32(smem + kt_lane() * 4u, 7u);
        SYNC
        if (kt_lane() < COUNT) kt_bar_arrive(BAR);
      } else if (kt_group() == 1u) {
        kt_bar_wait(BAR, 0u);
        kt_ld_shared_b32(smem + kt_lane() * 4u);
      }
    }"""
    run_text(body.replace("SYNC", "kt_sync_lanes();").replace("COUNT", "1u"), (), order)
    run_text(body.replace("SYNC", "").replace("COUNT", "32u"), (), order)
    fault("race", run_text, body.replace("SYNC", "").replace("COUNT", "1u"), (), order)


@pytest.mark.parametrize("order", BOTH)
def test_a_fence_after_the_meeting_covers_what_others_wrote(order):
    body = """(KT_MAP(to)) {
      SMEM;
      kt_st_shared_b32(smem + kt_thread() * 4u, kt_thread());
      BEFORE kt_barrier();
      if (kt_thread() == 0u) {
        AFTER
        kt_tile_store(to, smem, 0, 0);
        kt_tile_commit();
        kt_tile_wait_read<0>();
      }
    }"""
    out = np.zeros((4, 32), np.int32)
    args = [MappedArray(out, (1, 0), (32, 4), 0)]
    for before, after in (("kt_fence_async();", ""), ("", "kt_fence_async();")):
        out[:] = 0
        run_text(body.replace("BEFORE", before).replace("AFTER", after), args, order)
        np.testing.assert_array_equal(out.ravel(), np.arange(128))
    only_own = "if (kt_thread() == 0u) kt_fence_async();"
    fault("unfenced", run_text, body.replace("BEFORE", only_own).replace("AFTER", ""), args, order)


def test_a_copy_that_nobody_waits_for():
    body = (
        "(KT_MAP(a)) {"
        + SETUP
        + "if (kt_thread() == 0u) { kt_bar_expect(BAR, 2048u); kt_tile_load(smem, a, BAR, 0, 0); } }"
    )
    a = np.zeros((16, 64), np.uint16)
    for order in BOTH:
        found = fault("async-shared", run_text, body, [MappedArray(a, (1, 0), (64, 16), 128)], order)
        assert "the program ends while this copy" in found.detail
