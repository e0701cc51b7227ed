"""CUDA text in the simulator: right results in every order, and planted bugs found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simtools import ORDERS, edited, fault, kernels, program

from kittens.backends.cuda.fragments import MATRIX_MOVES, MMA
from kittens.backends.cuda.sim import VENDOR
from kittens.errors import ArgumentError
from kittens.sim import BuildError

BASIC = kernels("basic.cu")
GEMM = kernels("gemm.cu")
RNG = np.random.default_rng(0)
HEAD = '#include "kt_cuda.h"\n'


def run_vector_add(source: str = BASIC, n: int = 1000, order: str | int = "forward") -> None:
    a, b, c = RNG.random(n, np.float32), RNG.random(n, np.float32), np.zeros(n, np.float32)
    program(VENDOR, source, "vector_add").run(-(-n // 128), 128, [a, b, c, n], order=order)
    np.testing.assert_array_equal(c, a + b)


def run_transpose(source: str = BASIC, order: str | int = "forward", shared: int = 32 * 33 * 4) -> None:
    x = RNG.random((70, 45), np.float32)
    y = np.zeros((45, 70), np.float32)
    program(VENDOR, source, "transpose").run((2, 3), 256, [x, y, 70, 45], shared, order=order)
    np.testing.assert_array_equal(y, x.T)


def run_gemm(source: str = GEMM, order: str | int = "forward", shape=(72, 136, 168), **options) -> None:
    m, n, k = shape
    a = RNG.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, np.float32)
    grid = (-(-n // 64), -(-m // 64))
    program(VENDOR, source, "gemm").run(grid, 128, [a, b, c, m, n, k], 3 * 8192, order=order, **options)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def run_text(
    body: str, args=(), order: str | int = "forward", block: int = 64, shared: int = 1024, arch=None
) -> None:
    """Run a kernel `k` given by its parameters and body."""
    program(VENDOR, HEAD + 'extern "C" __global__ void k' + body, "k", arch).run(
        1, block, args, shared, order=order
    )


# ---- right kernels


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("n", [1, 127, 1000])
def test_vector_add_of_any_length(n, order):
    run_vector_add(n=n, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_transpose_through_shared_memory(order):
    run_transpose(order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_row_sums_by_shuffles(order):
    x, out = RNG.random((9, 500), np.float32), np.zeros(9, np.float32)
    program(VENDOR, BASIC, "row_sum").run(9, 128, [x, out, 500], 16, order=order)
    np.testing.assert_allclose(out, x.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
def test_matmul_with_an_async_ring(order):
    run_gemm(order=order)


def test_programs_spread_over_workers():
    run_gemm(shape=(200, 200, 64), workers=4)


@pytest.mark.parametrize("order", ORDERS)
def test_named_barriers_hand_a_buffer_from_a_producer_to_consumers(order):
    body = """(kt_out out) {
      KT_SHARED_MEMORY(smem, 1024);
      for (kt_u32 i = 0; i < 4; i++) {
        if (kt_group() == 0) {
          if (i > 0) kt_barrier_named(2, 96);
          kt_st_shared_b32(smem + kt_lane() * 4, i * 100 + kt_lane());
          kt_barrier_arrive(1, 96);
        } else {
          kt_barrier_named(1, 96);
          kt_u32 x = kt_ld_shared_b32(smem + (31 - kt_lane()) * 4);
          if (i < 3) kt_barrier_arrive(2, 96);
          if (kt_group() == 1) kt_st_global_b32(out + (i * 32 + kt_lane()) * 4, x);
        }
      }
    }"""
    out = np.zeros((4, 32), np.uint32)
    run_text(body, [out], order, block=96)
    np.testing.assert_array_equal(out, np.arange(4)[:, None] * 100 + 31 - np.arange(32))


@pytest.mark.parametrize("order", ORDERS)
def test_every_width_of_load_store_and_copy(order):
    body = """(kt_in in, kt_out out) {
      KT_SHARED_MEMORY(smem, 1024);
      kt_u32 t = kt_thread();
      kt_st_global_b8(out + t, kt_ld_global_b8(in + t));
      kt_st_global_b16(out + 64 + t * 2, kt_ld_global_b16(in + 64 + t * 2));
      kt_st_global_b32(out + 192 + t * 4, kt_ld_global_b32(in + 192 + t * 4));
      kt_st_global_b64(out + 448 + t * 8, kt_ld_global_b64(in + 448 + t * 8));
      kt_cp_async_b32(smem + t * 4, in + 960 + t * 4, 4);
      kt_cp_async_b64(smem + 256 + t * 8, in + 1216 + t * 8, 8);
      kt_cp_async_commit();
      kt_cp_async_wait<0>();
      kt_barrier();
      kt_st_shared_b8(smem + 768 + t, kt_ld_shared_b8(smem + (63 - t)));
      kt_st_shared_b16(smem + 832 + t * 2, kt_ld_shared_b16(smem + 64 + t * 2));
      kt_barrier();
      kt_st_global_b64(out + 960 + t * 8, kt_ld_shared_b64(smem + 256 + t * 8));
      if (t < 16) kt_st_global_b128(out + 1472 + t * 16, kt_ld_shared_b128(smem + t * 16));
      if (t < 4) kt_st_global_once_b128(out + 1728 + t * 16, kt_ld_global_once_b128(in + 1728 + t * 16));
      if (t < 16) kt_st_global_b32(out + 1792 + t * 4, kt_ld_shared_b32(smem + 768 + t * 4));
      kt_prefetch(in + 1000000);
    }"""
    source = RNG.integers(0, 256, 1856, np.uint8)
    out = np.zeros(1856, np.uint8)
    run_text(body, [source, out], order)
    np.testing.assert_array_equal(out[:960], source[:960])
    np.testing.assert_array_equal(out[960:1472], source[1216:1728])
    np.testing.assert_array_equal(out[1472:1728], source[960:1216])
    np.testing.assert_array_equal(out[1728:1792], source[1728:1792])
    np.testing.assert_array_equal(out[1792:1856], source[960:1024][::-1])


def test_atomics_add_across_programs():
    body = """(kt_out i, kt_out f) {
      KT_SHARED_MEMORY(smem, 1024);
      if (kt_thread() == 0) kt_st_shared_b32(smem, 0);
      kt_barrier();
      kt_atomic_add_shared_i32(smem, 2);
      kt_barrier();
      kt_atomic_add_i32(i, 1);
      if (kt_thread() == 0) kt_atomic_add_f32(f, float(kt_ld_shared_b32(smem)));
    }"""
    i, f = np.zeros(1, np.int32), np.zeros(1, np.float32)
    program(VENDOR, HEAD + 'extern "C" __global__ void k' + body, "k").run(50, 64, [i, f], 16, workers=4)
    assert (i[0], f[0]) == (3200, 6400)


def test_shuffles_and_votes():
    body = """(kt_out out) {
      kt_u32 l = kt_lane();
      kt_u32 r[8] = {kt_shfl(l, 5), kt_shfl_xor(l, 3), kt_shfl_up(l, 2), kt_shfl_down(l, 4),
                     kt_u32(kt_ballot(l % 3 == 0)), kt_any(l == 7), kt_all(l < 31), kt_all(l < 32)};
      for (kt_u32 i = 0; i < 8; i++) kt_st_global_b32(out + (i * 32 + l) * 4, r[i]);
    }"""
    out = np.zeros((8, 32), np.uint32)
    run_text(body, [out], block=32)
    lanes = np.arange(32)
    np.testing.assert_array_equal(out[0], np.full(32, 5))
    np.testing.assert_array_equal(out[1], lanes ^ 3)
    np.testing.assert_array_equal(out[2], np.where(lanes >= 2, lanes - 2, lanes))
    np.testing.assert_array_equal(out[3], np.where(lanes + 4 < 32, lanes + 4, lanes))
    assert set(out[4]) == {sum(1 << i for i in range(0, 32, 3))}
    assert [set(row) for row in out[5:]] == [{1}, {0}, {1}]


MMA_BODY = """(kt_in a, kt_in b, kt_out d) {
  kt_u32x4 ra = kt_ld_global_b128(a + kt_lane() * 16);
  kt_u32x2 rb = kt_ld_global_b64(b + kt_lane() * 8);
  TYPE s[4] = {};
  kt_mma_NAME(s[0], s[1], s[2], s[3], R(ra.x), R(ra.y), R(ra.z), R(ra.w), R(rb.x), R(rb.y));
  for (kt_u32 e = 0; e < 4; e++)
    kt_st_global_b32(d + (kt_lane() * 4 + e) * 4, __builtin_bit_cast(kt_u32, s[e]));
}"""


@pytest.mark.parametrize(
    ("name", "table", "dtype", "arch"),
    [
        ("m16n8k16_bf16", "m16n8k16", ml_dtypes.bfloat16, "sm_80"),
        ("m16n8k16_f16", "m16n8k16", np.float16, "sm_80"),
        ("m16n8k32_s8", "m16n8k32_int8", np.int8, "sm_80"),
        ("m16n8k8_f32", "m16n8k8_tf32", np.float32, "sm_80"),
        ("m16n8k32_e4m3fn", "m16n8k32_fp8", ml_dtypes.float8_e4m3fn, "sm_90a"),
        ("m16n8k32_e5m2", "m16n8k32_fp8", ml_dtypes.float8_e5m2, "sm_90a"),
    ],
)
def test_matrix_instructions_hold_their_fragments_as_the_tables_say(name, table, dtype, arch):
    product = MMA[table]
    m, n, k = product.shape
    a, b = RNG.integers(-50, 50, (m, k)).astype(dtype), RNG.integers(-50, 50, (k, n)).astype(dtype)
    if dtype is np.float32:
        a, b = RNG.standard_normal((m, k)).astype(dtype), RNG.standard_normal((k, n)).astype(dtype)
    wide = np.int32 if dtype is np.int8 else np.float32

    def places(layout):
        register, lane = np.meshgrid(np.arange(1 << len(layout.bits("register"))), np.arange(32))
        return tuple(layout(register=register, lane=lane, group=np.zeros_like(lane)))

    register = "kt_from_bits(r)" if dtype is np.float32 else "r"
    body = MMA_BODY.replace("NAME", name).replace("TYPE", "kt_i32" if wide is np.int32 else "float")
    text = f'{HEAD}#define R(r) {register}\nextern "C" __global__ void k{body}'
    d = np.zeros((32, 4), wide)
    program(VENDOR, text, "k", arch).run(1, 32, [a[places(product.a)], b[places(product.b)], d])
    expected = (a.astype(wide) @ b.astype(wide))[places(product.d)]
    np.testing.assert_allclose(d, expected, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("form", ["x1", "x2", "x4", "x1.trans", "x2.trans", "x4.trans"])
def test_ldmatrix_moves_as_the_tables_say(form):
    count = int(form[1])
    registers = ", ".join(f"r[{i}]" for i in range(count))
    body = f"""(kt_in in, kt_out out) {{
      KT_SHARED_MEMORY(smem, 512);
      kt_u32 r[4] = {{}}, row = smem + kt_lane() * 16;
      kt_st_shared_b128(row, kt_ld_global_b128(in + kt_lane() * 16));
      kt_sync_lanes();
      kt_ldmatrix_{form.replace(".", "_")}({registers}, row);
      for (kt_u32 i = 0; i < {count}; i++) kt_st_global_b32(out + (kt_lane() * {count} + i) * 4, r[i]);
    }}"""
    source, out = RNG.integers(0, 1 << 16, (32, 8)).astype(np.uint16), np.zeros((32, 2 * count), np.uint16)
    run_text(body, [source, out], block=32)
    element, lane = np.meshgrid(np.arange(8), np.arange(8 * count))
    to_register, to_lane = MATRIX_MOVES[form](register=element, lane=lane, group=np.zeros_like(lane))
    expected = np.zeros_like(out)
    expected[to_lane, to_register] = source[: 8 * count]
    np.testing.assert_array_equal(out, expected)


def test_stmatrix_is_the_way_back_of_ldmatrix():
    body = """(kt_out out) {
      KT_SHARED_MEMORY(smem, 1024);
      kt_u32 l = kt_lane(), r[4], row = smem + l * 16;
      for (kt_u32 i = 0; i < 4; i++) kt_st_shared_b32(row + i * 4, l * 4 + i);
      kt_sync_lanes();
      kt_ldmatrix_x4_trans(r[0], r[1], r[2], r[3], row);
      kt_sync_lanes();
      kt_stmatrix_x4_trans(row, r[0], r[1], r[2], r[3]);
      kt_sync_lanes();
      for (kt_u32 i = l; i < 128; i += 32) kt_st_global_b32(out + i * 4, kt_ld_shared_b32(smem + i * 4));
    }"""
    out = np.zeros(128, np.uint32)
    run_text(body, [out], block=32, arch="sm_90a")
    np.testing.assert_array_equal(out, np.arange(128))


# ---- planted bugs


@pytest.mark.parametrize("order", ORDERS)
def test_a_barrier_removed(order):
    source = edited(BASIC, "column0 + x) * 4u));\n  kt_barrier();", "column0 + x) * 4u));")
    fault(("race", "unwritten-shared"), run_transpose, source, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_one_stage_too_late(order):
    source = edited(GEMM, "kt_cp_async_wait<STAGES - 2>();", "kt_cp_async_wait<STAGES - 1>();")
    fault("async-shared", run_gemm, source, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_a_ring_with_a_stage_too_few(order):
    source = edited(GEMM, "smem + next % STAGES * STAGE_BYTES", "smem + next % (STAGES - 1u) * STAGE_BYTES")
    source = edited(source, "smem + s % STAGES * STAGE_BYTES;", "smem + s % (STAGES - 1u) * STAGE_BYTES;")
    fault(("race", "async-shared"), run_gemm, source, order=order)


@pytest.mark.parametrize("order", ORDERS)
def test_the_barrier_of_a_ring_removed(order):
    source = edited(
        GEMM, "kt_cp_async_wait<STAGES - 2>();\n    kt_barrier();", "kt_cp_async_wait<STAGES - 2>();"
    )
    fault(("race", "unwritten-shared", "async-shared"), run_gemm, source, order=order)


def test_an_index_past_the_end():
    found = fault("global-bounds", run_vector_add, edited(BASIC, "if (i < kt_u32(n))", "if (i <= kt_u32(n))"))
    assert "read of 4 bytes at byte 4000 of argument 0, which has 4000 bytes" in found.detail
    assert (found.program, found.thread, found.lane) == ((7, 0, 0), 104, 8)
    assert (found.file, found.kernel) == ("vector_add.cu", "vector_add")
    assert "kt_ld_global_b32(a + i * 4u)" in BASIC.splitlines()[found.line - 1]


def test_an_index_that_lands_in_another_buffer():
    memory = np.zeros(64, np.float32)
    run_text("(kt_in a, kt_out b) { kt_st_global_b32(b, kt_ld_global_b32(a)); }", [memory[:32], memory[32:]])
    text = "(kt_in a, kt_out b) { kt_st_global_b32(b, kt_ld_global_b32(a + 128)); }"
    fault("global-bounds", run_text, text, [memory[:32], memory[32:]])


def test_a_swizzle_on_one_side_gives_wrong_numbers():
    source = edited(
        GEMM, "at_b(tile, row, piece), inside", "tile + 4096u + row * 128u + (piece << 4), inside"
    )
    with pytest.raises(AssertionError):
        run_gemm(source)


@pytest.mark.parametrize("order", ORDERS)
def test_a_divergent_collective(order):
    found = fault("divergent", run_text, "() { if (kt_lane() < 16) kt_shfl_xor(1.0f, 1); }", order=order)
    assert "lanes 0-15 are at" in found.detail and "lanes 16-31 have returned" in found.detail
    text = "() { if (kt_lane() < 16) kt_shfl(1.0f, 1); else kt_shfl(2.0f, 1); }"
    assert "at kt_shfl, k.cu:2" in fault("divergent", run_text, text, order=order).detail


def test_a_matrix_instruction_that_lanes_do_not_reach():
    source = edited(
        GEMM, "kt_u32 fa[2][4], fb[4][2];", "kt_u32 fa[2][4], fb[4][2]; if (lane == 3u) continue;"
    )
    fault("divergent", run_gemm, source)


@pytest.mark.parametrize("order", ORDERS)
def test_a_divergent_barrier(order):
    fault("divergent", run_text, "() { if (kt_lane() != 9) kt_barrier(); }", order=order)
    found = fault("barrier", run_text, "() { if (kt_group() == 1) kt_barrier(); }", order=order)
    assert "group 0 has returned" in found.detail
    text = "() { if (kt_group() == 1) kt_barrier(); else kt_barrier(); }"
    assert "different barriers" in fault("barrier", run_text, text, order=order).detail
    fault("barrier", run_text, "() { kt_barrier_named(1, 96); }", order=order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("bits", "byte"), [(b, n) for b in (16, 32, 64, 128) for n in (0, 1, b // 8 - 1)])
def test_one_byte_of_a_wide_access_is_enough(order, bits, byte):
    """Accesses of usual widths are compared by the CPU's vectors, all bytes at once."""
    text = f"""(kt_out out) {{
      KT_SHARED_MEMORY(smem, 1024);
      kt_st_shared_b128(smem + kt_thread() * 16u, kt_make_u32x4(1, 2, 3, 4));
      kt_barrier();
      if (kt_thread() == 0) kt_st_shared_b8(smem + {byte}u, 7);
      SYNC
      if (kt_thread() == 32) (void)kt_ld_shared_b{bits}(smem);
    }}"""
    out = np.zeros(1, np.int32)
    run_text(text.replace("SYNC", "kt_barrier();"), [out], order)
    assert f"of byte {byte} of" in fault("race", run_text, text.replace("SYNC", ""), [out], order).detail
    writes = text.replace(
        f"(void)kt_ld_shared_b{bits}(smem)", "kt_st_shared_b128(smem, kt_make_u32x4(1, 2, 3, 4))"
    )
    run_text(writes.replace("SYNC", "kt_barrier();"), [out], order)
    assert f"of byte {byte} of" in fault("race", run_text, writes.replace("SYNC", ""), [out], order).detail


@pytest.mark.parametrize("order", ORDERS)
def test_races_within_a_warp(order):
    text = """(kt_out out) {
      KT_SHARED_MEMORY(smem, 1024);
      kt_st_shared_b32(smem + kt_thread() * 4, kt_lane());
      SYNC
      kt_st_global_b32(out + kt_thread() * 4, kt_ld_shared_b32(smem + (kt_thread() ^ 1) * 4));
    }"""
    out = np.zeros(64, np.uint32)
    run_text(text.replace("SYNC", "kt_sync_lanes();"), [out], order)
    np.testing.assert_array_equal(out, np.arange(64) % 32 ^ 1)
    fault(("race", "unwritten-shared"), run_text, text.replace("SYNC", ""), [out], order)
    shuffled = text.replace("SYNC", "kt_shfl(1u, 0);")  # which orders no memory
    fault("race", run_text, shuffled, [out], order)


@pytest.mark.parametrize("order", ORDERS)
def test_two_lanes_that_write_one_byte(order):
    text = "() { KT_SHARED_MEMORY(smem, 1024); kt_st_shared_b8(smem + kt_thread() % 63, 1); }"
    assert "written by thread" in fault("race", run_text, text, order=order).detail


@pytest.mark.parametrize("order", ORDERS)
def test_a_write_after_reads_of_several_groups(order):
    text = """() {
      KT_SHARED_MEMORY(smem, 1024);
      if (kt_thread() == 0) kt_st_shared_b32(smem, 1);
      kt_barrier();
      kt_ld_shared_b32(smem);
      SYNC
      if (kt_thread() == 70) kt_st_shared_b32(smem, 2);
    }"""
    run_text(text.replace("SYNC", "kt_barrier();"), order=order, block=96)
    fault("race", run_text, text.replace("SYNC", "kt_sync_lanes();"), order=order, block=96)


def test_unwritten_shared_memory():
    text = "() { KT_SHARED_MEMORY(smem, 1024); kt_ld_shared_b32(smem + kt_thread() * 4); }"
    assert "byte 0" in fault("unwritten-shared", run_text, text).detail


def test_shared_memory_that_is_too_small():
    found = fault("shared-bounds", run_transpose, shared=32 * 33 * 4 - 8)
    assert "which has 4216 bytes" in found.detail


def test_an_atomic_sum_takes_all_of_its_bytes():
    # On arm64 one that is not aligned ends the process.
    text = "(kt_out a, int at) {{ kt_atomic_add_{}(a + at, 1); }}"
    for type_, size in [("i32", 4), ("f32", 4), ("u64", 8)]:
        data = np.zeros(2, np.uint64)
        for at, kind in [(size // 2, "misaligned"), (16, "global-bounds"), (16 - size // 2, "global-bounds")]:
            fault(kind, run_text, text.format(type_), [data, at])
        assert not data.any()


def test_misaligned_vectors():
    data = np.zeros(256, np.uint8)
    fault("misaligned", run_text, "(kt_in a) { kt_ld_global_b128(a + 4); }", [data])
    fault("misaligned", run_text, "() { KT_SHARED_MEMORY(smem, 1024); kt_st_shared_b64(smem + 4, {1, 2}); }")
    fault(
        "misaligned",
        run_text,
        "(kt_in a) { KT_SHARED_MEMORY(smem, 1024); kt_cp_async_b128(smem, a + 8, 16); }",
        [data],
    )


def test_a_write_to_what_is_read_only():
    data = np.zeros(4, np.float32)
    data.flags.writeable = False
    assert (
        "argument 0" in fault("read-only", run_text, "(kt_out a) { kt_st_global_b32(a, 1); }", [data]).detail
    )


def test_an_assertion_that_does_not_hold():
    found = fault("assertion", run_text, "() { KT_ASSERT(kt_lane() < 20u); }")
    assert (found.detail, found.lane) == ("kt_lane() < 20u does not hold", 20)


def test_a_pointer_used_past_the_device_functions_is_a_fault_not_a_crash():
    fault("crash", run_text, "(kt_out a) { a[0] = 1; }", [np.zeros(4, np.uint8)])


DEEP = """
static int deep(int n) { volatile int x[64]; x[n % 64] = n; return n ? deep(n - 1) + x[n % 64] : 0; }
extern "C" __global__ void k(kt_out a, int n) { kt_st_global_b32(a, kt_u32(deep(n))); }
"""


def test_each_stack_that_is_run_over_is_a_fault():
    # The handler needs the signal stack every time: a handler that never returned would hold it, on macOS.
    out = np.zeros(1, np.uint32)
    made = program(VENDOR, HEAD + DEEP, "k")
    for _ in range(3):
        fault("crash", made.run, 2, 64, [out, 10**6], workers=2)
        made.run(2, 64, [out, 100])
    assert out[0] == 5050


# ---- what a report says


def test_lines_are_those_that_line_directives_name():
    text = '(kt_in a) {\n#line 17 "attention.py"\n kt_ld_global_b32(a + 4096);\n}'
    found = fault("global-bounds", run_text, text, [np.zeros(4, np.float32)])
    assert (found.file, found.line) == ("attention.py", 17)
    assert "attention.py:17" in str(found)


def test_lines_are_those_of_the_table_of_locations():
    from kittens.sim import build

    text = (
        HEAD + 'extern "C" __global__ void k(kt_in a) { KT_LOC(1); KT_LOC(2); kt_ld_global_b32(a + 4096); }'
    )
    made = build(text, VENDOR, "k", locations={1: ("a.py", 10), 2: ("b.py", 20)})
    found = fault("global-bounds", made.run, 1, 32, [np.zeros(4, np.float32)])
    assert (found.file, found.line) == ("b.py", 20)


def test_a_fault_can_be_pickled():
    import pickle

    found = fault("unwritten-shared", run_text, "() { KT_SHARED_MEMORY(s, 1024); kt_ld_shared_b32(s); }")
    copy = pickle.loads(pickle.dumps(found))
    assert (str(copy), copy.kind, copy.lane) == (str(found), found.kind, found.lane)


def test_misuse_of_the_driver():
    p = program(VENDOR, BASIC, "vector_add")
    x = np.zeros(4, np.float32)
    assert [(q.buffer, q.bytes) for q in p.parameters] == [(True, 8)] * 3 + [(False, 4)]
    with pytest.raises(ArgumentError, match="takes 4 arguments"):
        p.run(1, 32, [x])
    with pytest.raises(ArgumentError, match="multiple of the 32"):
        p.run(1, 33, [x, x, x, 4])
    with pytest.raises(ArgumentError, match="1 to 1024 threads"):
        p.run(1, 2048, [x, x, x, 4])
    with pytest.raises(ArgumentError, match=r"argument 2 .* is a buffer"):
        p.run(1, 32, [x, x, 4, 4])
    with pytest.raises(ArgumentError, match=r"argument 3 .* of 4 bytes"):
        p.run(1, 32, [x, x, x, "4"])
    with pytest.raises(ArgumentError, match="order"):
        p.run(1, 32, [x, x, x, 4], order="sideways")
    with pytest.raises(BuildError, match="no_such_function"):
        program(VENDOR, HEAD + 'extern "C" __global__ void k() { no_such_function(); }', "k")
    with pytest.raises(ValueError, match="sm_70"):
        program(VENDOR, BASIC, "vector_add", "sm_70")
