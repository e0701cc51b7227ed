// c[m][n] = a[m][k] b[k][n], bfloat16 in and float32 out, tiles of 64x64x32, 4 waves of 32x32. Built for gfx942 (copies
// by way of registers) and gfx950 (direct copies into a ring of 2 stages, transposing reads of b). Shared rows: 64 B (a),
// 128 B (b); the 16-byte pieces of a are exchanged by XOR with the row, in the global address where copies are direct.
#include "kt_hip.h"

#define STAGE_BYTES 8192u

KT_FN kt_smem at_a(kt_smem tile, kt_u32 row, kt_u32 piece) { return tile + row * 64u + ((piece ^ (row & 3u)) << 4); }

KT_FN void load_stage(kt_smem tile, kt_buffer a, kt_buffer b, kt_u32 step, int m, int n, int k) {
  kt_u32 row = kt_thread() >> 2, piece = kt_thread() & 3u, grow = kt_program_y() * 64u + row, outside = 0x80000000u;
#if defined(__gfx950__)
  kt_u32 column = step * 32u + (piece ^ (row & 3u)) * 8u;  // the swizzle, on the side of the source
  kt_buffer_load_lds_b128(tile + kt_group() * 1024u, a, column < kt_u32(k) ? (grow * k + column) * 2u : outside);
#else
  kt_u32 column = step * 32u + piece * 8u;
  kt_st_shared_b128(at_a(tile, row, piece), kt_buffer_ld_b128(a, column < kt_u32(k) ? (grow * k + column) * 2u : outside));
#endif
  kt_u32 brow = step * 32u + (kt_thread() >> 3), bcolumn = kt_program_x() * 64u + (kt_thread() & 7u) * 8u;
  kt_u32 offset = bcolumn < kt_u32(n) ? (brow * n + bcolumn) * 2u : outside;
#if defined(__gfx950__)
  kt_buffer_load_lds_b128(tile + 4096u + kt_group() * 1024u, b, offset);
#else
  kt_st_shared_b128(tile + 4096u + kt_thread() * 16u, kt_buffer_ld_b128(b, offset));
#endif
}

extern "C" __global__ void KT_THREADS(256) gemm(kt_in a, kt_in b, kt_out c, int m, int n, int k) {
  KT_SHARED_MEMORY(smem, 2 * STAGE_BYTES);
  kt_buffer ra = kt_make_buffer(a, kt_u32(m) * k * 2u), rb = kt_make_buffer(b, kt_u32(k) * n * 2u);
  kt_u32 lane = kt_lane(), row0 = (kt_group() >> 1) * 32u, column0 = (kt_group() & 1u) * 32u;
  kt_f32x16 acc = {};
  kt_u32 steps = kt_u32(k + 31) / 32u;
  load_stage(smem, ra, rb, 0u, m, n, k);
  for (kt_u32 s = 0u; s < steps; s++) {
    kt_smem tile = smem + (s & 1u) * STAGE_BYTES;
#if defined(__gfx950__)
    kt_wait_loads<0>();
#endif
    kt_barrier();
    if (s + 1u < steps) load_stage(smem + ((s + 1u) & 1u) * STAGE_BYTES, ra, rb, s + 1u, m, n, k);
#if defined(__gfx950__)
#pragma unroll
    for (kt_u32 kk = 0u; kk < 2u; kk++) {  // 32x32x16: lane l has row l % 32 of a, k = 8 (l / 32) + 0..7
      kt_u32x4 fa = kt_ld_shared_b128(at_a(tile, row0 + (lane & 31u), kk * 2u + (lane >> 5)));
      kt_u32 i = lane & 15u, krow = kk * 16u + (lane >> 5) * 8u + (i >> 2);
      kt_smem p = tile + 4096u + krow * 128u + (column0 + (lane & 16u) + (i & 3u) * 4u) * 2u;
      kt_u32x2 low = kt_ds_read_tr16_b64(p), high = kt_ds_read_tr16_b64(p + 4u * 128u);
      kt_mfma_32x32x16_bf16(acc, fa, kt_u32x4{low.x, low.y, high.x, high.y});
    }
#else
#pragma unroll
    for (kt_u32 kk = 0u; kk < 4u; kk++) {  // 32x32x8: lane l has row l % 32 of a, k = 4 (l / 32) + 0..3
      kt_u32x2 fa = kt_ld_shared_b64(at_a(tile, row0 + (lane & 31u), kk) + (lane >> 5) * 8u);
      kt_smem p = tile + 4096u + (kk * 8u + (lane >> 5) * 4u) * 128u + (column0 + (lane & 31u)) * 2u;
      kt_u32 b0 = kt_ld_shared_b16(p), b1 = kt_ld_shared_b16(p + 128u), b2 = kt_ld_shared_b16(p + 256u),
             b3 = kt_ld_shared_b16(p + 384u);
      kt_mfma_32x32x8_bf16(acc, fa, kt_u32x2{b0 | b1 << 16, b2 | b3 << 16});
    }
#endif
  }
  kt_u32 column = kt_program_x() * 64u + column0 + (lane & 31u);
#pragma unroll
  for (kt_u32 r = 0u; r < 16u; r++) {
    kt_u32 row = kt_program_y() * 64u + row0 + (r >> 2) * 8u + (lane >> 5) * 4u + (r & 3u);
    if (row < kt_u32(m) && column < kt_u32(n)) kt_st_global_b32(c + (row * n + column) * 4u, kt_bits(acc[r]));
  }
}
