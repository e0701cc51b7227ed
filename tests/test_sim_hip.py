"""HIP text in the simulator: right in every order, fragments as the tables say, planted bugs found."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from simtools import ORDERS, edited, fault, kernels, program

from kittens.backends.hip.fragments import MFMA, TRANSPOSING_READS, WMMA
from kittens.backends.hip.sim import VENDOR
from kittens.layouts import Product

BASIC = kernels("basic.cu").replace("kt_cuda.h", "kt_hip.h")
GEMM = kernels("gemm.hip")
RNG = np.random.default_rng(0)
HEAD = '#include "kt_hip.h"\n'
ARCHES = tuple(VENDOR.arches)


def run_gemm(arch: str, source: str = GEMM, order: str | int = "forward") -> None:
    m, n, k = 72, 136, 168
    a = RNG.standard_normal((m, k)).astype(ml_dtypes.bfloat16)
    b = RNG.standard_normal((k, n)).astype(ml_dtypes.bfloat16)
    c = np.full((m, n), np.nan, np.float32)
    program(VENDOR, source, "gemm", arch).run((3, 2), 256, [a, b, c, m, n, k], 2 * 8192, order=order)
    np.testing.assert_allclose(c, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)


def run_text(
    body: str, args=(), order: str | int = "forward", *, arch: str = "gfx950", block: int = 64
) -> None:
    """Run a kernel `k` given by its parameters and body."""
    program(VENDOR, HEAD + 'extern "C" __global__ void k' + body, "k", arch).run(
        1, block, args, 4096, order=order
    )


# ---- right kernels


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ARCHES)
def test_kernels_in_the_shared_words(arch, order):
    a, b, c = RNG.random(1000, np.float32), RNG.random(1000, np.float32), np.zeros(1000, np.float32)
    program(VENDOR, BASIC, "vector_add", arch).run(8, 128, [a, b, c, 1000], order=order)
    np.testing.assert_array_equal(c, a + b)
    x, y, s = RNG.random((70, 45), np.float32), np.zeros((45, 70), np.float32), np.zeros(70, np.float32)
    program(VENDOR, BASIC, "transpose", arch).run((2, 3), 256, [x, y, 70, 45], 32 * 33 * 4, order=order)
    np.testing.assert_array_equal(y, x.T)
    program(VENDOR, BASIC, "row_sum", arch).run(70, 128, [x, s, 45], 16, order=order)
    np.testing.assert_allclose(s, x.sum(axis=1), rtol=1e-6)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_matmul_by_mfma(arch, order):
    run_gemm(arch, order=order)


FUNCTIONS = {  # of the device headers, by the name that the tables of fragments have
    "f32_16x16x4f32": ("kt_mfma_16x16x4_f32", "f32"),
    "f32_32x32x2f32": ("kt_mfma_32x32x2_f32", "f32"),
    "f32_16x16x16": ("kt_mfma_16x16x16", "half"),
    "f32_32x32x8": ("kt_mfma_32x32x8", "half"),
    "f32_16x16x32": ("kt_mfma_16x16x32", "half"),
    "f32_32x32x16": ("kt_mfma_32x32x16", "half"),
    "f32_16x16x32_fp8_fnuz": ("kt_mfma_16x16x32", "f8"),
    "f32_32x32x16_fp8_fnuz": ("kt_mfma_32x32x16", "f8"),
    "f32_16x16x32_fp8": ("kt_mfma_16x16x32", "f8"),
    "f32_32x32x16_fp8": ("kt_mfma_32x32x16", "f8"),
    "f32_16x16x128_f8f6f4_8bit": ("kt_mfma_16x16x128", "f8"),
    "f32_32x32x64_f8f6f4_8bit": ("kt_mfma_32x32x64", "f8"),
    "i32_16x16x32_i8": ("kt_mfma_16x16x32_i8", "i8"),
    "i32_32x32x16_i8": ("kt_mfma_32x32x16_i8", "i8"),
    "i32_16x16x64_i8": ("kt_mfma_16x16x64_i8", "i8"),
    "i32_32x32x32_i8": ("kt_mfma_32x32x32_i8", "i8"),
    "f32_16x16x16_w32": ("kt_wmma_16x16x16", "half"),
    "i32_16x16x16_iu8_w32": ("kt_wmma_16x16x16_i8", "i8"),
    "f32_16x16x16_w32_gfx12": ("kt_wmma_16x16x16", "half"),
    "f32_16x16x16_fp8_w32_gfx12": ("kt_wmma_16x16x16_e4m3fn", "f8"),
    "i32_16x16x16_iu8_w32_gfx12": ("kt_wmma_16x16x16_i8", "i8"),
}
SUFFIX = {
    "bfloat16": "bf16",
    "float16": "f16",
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
}


def instructions():
    for product in (*MFMA.values(), *WMMA.values()):
        if product.name not in FUNCTIONS:
            continue
        function, kind = FUNCTIONS[product.name]
        for dtype in product.dtypes:
            if dtype == "uint8" or ("wmma" in function and kind == "f8" and dtype != "float8_e4m3fn"):
                continue
            name = function if kind in ("f32", "i8") or "fn" in function else f"{function}_{SUFFIX[dtype]}"
            for arch in product.targets:
                yield pytest.param(product, name, dtype, arch, id=f"{name}-{arch}")


@pytest.mark.parametrize(("product", "function", "dtype", "arch"), list(instructions()))
def test_matrix_instructions_hold_their_fragments_as_the_tables_say(
    product: Product, function: str, dtype: str, arch: str
):
    element = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
    lanes = VENDOR.arches[arch].lanes
    wide = np.int32 if product.accumulator == "int32" else np.float32
    m, n, k = product.shape
    assert product.b is not None
    each = 1 << len(product.a.bits("register"))
    sums = 1 << len(product.d.bits("register"))
    registers = each * element.itemsize // 4
    vector = "float" if element == np.float32 else f"kt_u32x{registers}"
    scalar = "i32" if wide is np.int32 else "f32"
    load = (
        "kt_from_bits(kt_ld_global_b32(P))" if element == np.float32 else f"kt_ld_global_b{registers * 32}(P)"
    )
    if registers == 8:
        load = "kt_two_halves(kt_ld_global_b128(P), kt_ld_global_b128(P + 16))"
    text = f"""{HEAD}
    KT_FN kt_u32x8 kt_two_halves(kt_u32x4 a, kt_u32x4 b) {{
      return {{a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}};
    }}
    extern "C" __global__ void k(kt_in pa, kt_in pb, kt_out pd) {{
      kt_u32 at = kt_lane() * {registers * 4};
      {vector} a = {load.replace("P", "pa + at")}, b = {load.replace("P", "pb + at")};
      kt_{scalar}x{sums} d = {{}};
      {function}(d, a, b);
      {function}(d, a, b);
      for (kt_u32 i = 0; i < {sums}; i++)
        kt_st_global_b32(pd + (kt_lane() * {sums} + i) * 4, kt_bit_cast<kt_u32>(d[i] * 1));
    }}"""
    register, lane = np.meshgrid(np.arange(each), np.arange(lanes))
    a, b = (RNG.integers(-8, 8, shape).astype(element) for shape in ((m, k), (k, n)))
    if element == np.float32:
        a, b = RNG.standard_normal((m, k)).astype(element), RNG.standard_normal((k, n)).astype(element)
    group = np.zeros_like(lane)
    fa = a[tuple(product.a(register=register, lane=lane, group=group))]
    fb = b[tuple(product.b(register=register, lane=lane, group=group))]
    fd = np.zeros((lanes, sums), wide)
    program(VENDOR, text, "k", arch).run(1, lanes, [np.ascontiguousarray(fa), np.ascontiguousarray(fb), fd])
    register, lane = np.meshgrid(np.arange(sums), np.arange(lanes))
    expected = 2 * (a.astype(wide) @ b.astype(wide))
    place = tuple(product.d(register=register, lane=lane, group=np.zeros_like(lane)))
    np.testing.assert_allclose(fd, expected[place], rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("arch", ARCHES)
def test_shuffles_of_every_kind(arch):
    lanes = VENDOR.arches[arch].lanes
    masks = range(1, lanes)
    store = "kt_st_global_b32(out + ({} * KT_LANES + l) * 4, kt_shfl_xor_by<{}u>(l));"
    calls = " ".join(store.format(i, mask) for i, mask in enumerate(masks))
    out = np.zeros((len(masks), lanes), np.uint32)
    run_text(f"(kt_out out) {{ kt_u32 l = kt_lane(); {calls} }}", [out], arch=arch, block=lanes)
    np.testing.assert_array_equal(out, np.arange(lanes) ^ np.array(masks)[:, None])
    body = """(kt_out out) {
      kt_u32 l = kt_lane();
      kt_u32 r[6] = {kt_shfl(l, 5), kt_shfl_up(l, 2), kt_shfl_down(l, 4), kt_any(l == 7), kt_all(l < 31),
                     kt_u32(kt_ballot(l % 2 == 1) >> (KT_LANES - 32))};
      for (kt_u32 i = 0; i < 6; i++) kt_st_global_b32(out + (i * KT_LANES + l) * 4, r[i]);
    }"""
    out = np.zeros((6, lanes), np.uint32)
    run_text(body, [out], arch=arch, block=lanes)
    all_lanes = np.arange(lanes)
    np.testing.assert_array_equal(out[1], np.where(all_lanes >= 2, all_lanes - 2, all_lanes))
    np.testing.assert_array_equal(out[2], np.where(all_lanes + 4 < lanes, all_lanes + 4, all_lanes))
    assert [set(out[i]) for i in (0, 3, 4, 5)] == [{5}, {1}, {0}, {0xAAAAAAAA}]


def test_swaps_of_lanes():
    body = """(kt_out out) {
      kt_u32 l = kt_lane(), a = l, b = 100 + l, c = l, d = 100 + l;
      kt_permlane32_swap(a, b);
      kt_permlane16_swap(c, d);
      kt_u32 r[4] = {a, b, c, d};
      for (kt_u32 i = 0; i < 4; i++) kt_st_global_b32(out + (i * 64 + l) * 4, r[i]);
    }"""
    out = np.zeros((4, 64), np.uint32)
    run_text(body, [out])
    low, high = np.arange(32), np.arange(32, 64)
    np.testing.assert_array_equal(out[0], np.concatenate([low, 100 + low]))
    np.testing.assert_array_equal(out[1], np.concatenate([high, 100 + high]))
    rows = np.arange(64).reshape(4, 16)
    np.testing.assert_array_equal(out[2].reshape(4, 16), [rows[0], 100 + rows[0], rows[2], 100 + rows[2]])
    np.testing.assert_array_equal(out[3].reshape(4, 16), [rows[1], 100 + rows[1], rows[3], 100 + rows[3]])


@pytest.mark.parametrize(("bits", "function"), [(16, "kt_ds_read_tr16_b64"), (8, "kt_ds_read_tr8_b64")])
def test_transposing_reads_go_where_the_tables_say(bits, function):
    body = f"""(kt_in in, kt_out out) {{
      KT_SHARED_MEMORY(smem, 1024);
      kt_st_shared_b64(smem + kt_lane() * 8, kt_ld_global_b64(in + kt_lane() * 8));
      kt_sync_lanes();
      kt_st_global_b64(out + kt_lane() * 8, {function}(smem + kt_lane() * 8));
    }}"""
    dtype = np.uint16 if bits == 16 else np.uint8
    source = RNG.integers(0, 256, (64, 64 // bits)).astype(dtype)
    out = np.zeros_like(source)
    run_text(body, [source, out])
    element, lane = np.meshgrid(np.arange(64 // bits), np.arange(64))
    table = TRANSPOSING_READS[f"ds_read_b64_tr_b{bits}"]
    to_register, to_lane = table(register=element, lane=lane, group=np.zeros_like(lane))
    expected = np.zeros_like(source)
    expected[to_lane, to_register] = source
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_buffers_read_zero_outside_and_drop_writes(arch):
    body = """(kt_in in, kt_out out, int bytes) {
      KT_SHARED_MEMORY(smem, 1024);
      kt_buffer from = kt_make_buffer(in, kt_u32(bytes)), to = kt_make_buffer((kt_in)out, 200u);
      kt_u32 l = kt_lane();
      kt_buffer_st_b32(to, l * 4u, kt_buffer_ld_b32(from, l * 4u));
      kt_buffer_load_lds_b32(smem, from, l * 4u);
      kt_wait_loads<0>();
      kt_st_global_b32(out + 256u + l * 4u, kt_ld_shared_b32(smem + l * 4u));
    }"""
    source, out = RNG.integers(1, 100, 64).astype(np.uint32), np.full(128, 7, np.uint32)
    run_text(body, [source, out, 160], arch=arch)
    expected = np.where(np.arange(64) < 40, source, 0)
    np.testing.assert_array_equal(out[:64], np.where(np.arange(64) < 50, expected, 7))
    np.testing.assert_array_equal(out[64:], expected)


# ---- planted bugs


@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_removed(order):
    fault("async-shared", run_gemm, "gfx950", edited(GEMM, "    kt_wait_loads<0>();\n", ""), order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_barrier_removed(arch, order):
    source = edited(GEMM, "    kt_barrier();\n", "")
    fault(("race", "unwritten-shared", "async-shared"), run_gemm, arch, source, order)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_a_ring_with_a_stage_too_few(arch, order):
    source = edited(GEMM, "smem + ((s + 1u) & 1u) * STAGE_BYTES", "smem")
    source = edited(source, "smem + (s & 1u) * STAGE_BYTES", "smem")
    fault(("race", "async-shared"), run_gemm, arch, source, order)


def test_a_swizzle_on_one_side_gives_wrong_numbers():
    source = edited(GEMM, "step * 32u + (piece ^ (row & 3u)) * 8u", "step * 32u + piece * 8u")
    with pytest.raises(AssertionError):
        run_gemm("gfx950", source)


def test_a_matrix_instruction_under_a_partial_mask():
    source = edited(
        GEMM, "      kt_mfma_32x32x8_bf16(acc, fa,", "      if (lane < 60u) kt_mfma_32x32x8_bf16(acc, fa,"
    )
    found = fault("divergent", run_gemm, "gfx942", source)
    assert "kt_mfma_32x32x8_bf16" in found.detail


def test_a_direct_copy_to_different_bases():
    text = (
        "(kt_in in) { KT_SHARED_MEMORY(s, 1024); kt_load_lds_b32(s + kt_lane() * 4u, in + kt_lane() * 4u); }"
    )
    assert "lane 1" in fault("divergent", run_text, text, [np.zeros(64, np.float32)]).detail


def test_an_index_past_the_end():
    text = "(kt_in in) { kt_ld_global_b64(in + kt_lane() * 8u); }"
    found = fault("global-bounds", run_text, text, [np.zeros(100, np.float32)])
    assert found.lane == 50


def test_barriers_of_phased_groups_may_be_apart():
    text = """() {
      if (kt_group() == 1) kt_barrier_bare();
      for (int i = 0; i < 3; i++) { kt_barrier_bare(); kt_barrier_bare(); }
      if (kt_group() == 0) kt_barrier_bare();
    }"""
    run_text(text, block=128)
    fault("barrier", run_text, text.replace("if (kt_group() == 0) kt_barrier_bare();", ""), block=128)
