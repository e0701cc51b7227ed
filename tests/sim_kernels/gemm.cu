// c[m][n] = a[m][k] b[k][n], bfloat16 in and float32 out, tiles of 64x64x32, a ring of STAGES cp.async stages,
// 4 warps of 32x32. Shared rows are 64 B (a) and 128 B (b), their 16-byte pieces exchanged by XOR with the row.
#include "kt_cuda.h"

#ifndef STAGES
#define STAGES 3
#endif
#define STAGE_BYTES 8192u

KT_FN kt_smem at_a(kt_smem tile, kt_u32 row, kt_u32 piece) {
  return tile + row * 64u + ((piece ^ (row >> 1 & 3u)) << 4);
}
KT_FN kt_smem at_b(kt_smem tile, kt_u32 row, kt_u32 piece) {
  return tile + 4096u + row * 128u + ((piece ^ (row & 7u)) << 4);
}

KT_FN void load_stage(kt_smem tile, kt_in a, kt_in b, kt_u32 step, int m, int n, int k) {
  for (kt_u32 i = kt_thread(); i < 256u; i += 128u) {
    kt_u32 row = i >> 2, piece = i & 3u, grow = kt_program_y() * 64u + row, gcolumn = step * 32u + piece * 8u;
    bool inside = grow < kt_u32(m) && gcolumn < kt_u32(k);
    kt_cp_async_b128(at_a(tile, row, piece), inside ? a + (grow * k + gcolumn) * 2u : a, inside ? 16u : 0u);
  }
  for (kt_u32 i = kt_thread(); i < 256u; i += 128u) {
    kt_u32 row = i >> 3, piece = i & 7u, grow = step * 32u + row, gcolumn = kt_program_x() * 64u + piece * 8u;
    bool inside = grow < kt_u32(k) && gcolumn < kt_u32(n);
    kt_cp_async_b128(at_b(tile, row, piece), inside ? b + (grow * n + gcolumn) * 2u : b, inside ? 16u : 0u);
  }
}

extern "C" __global__ void __launch_bounds__(128) gemm(kt_in a, kt_in b, kt_out c, int m, int n, int k) {
  KT_SHARED_MEMORY(smem, STAGES * STAGE_BYTES);
  float acc[2][4][4];
#pragma unroll
  for (int i = 0; i < 2; i++)
#pragma unroll
    for (int j = 0; j < 4; j++)
#pragma unroll
      for (int e = 0; e < 4; e++) acc[i][j][e] = 0.0f;
  kt_u32 steps = kt_u32(k + 31) / 32u, lane = kt_lane(), row0 = (kt_group() >> 1) * 32u, column0 = (kt_group() & 1u) * 32u;
  for (kt_u32 s = 0u; s < STAGES - 1u; s++) {
    if (s < steps) load_stage(smem + s * STAGE_BYTES, a, b, s, m, n, k);
    kt_cp_async_commit();
  }
  for (kt_u32 s = 0u; s < steps; s++) {
    kt_cp_async_wait<STAGES - 2>();
    kt_barrier();
    kt_u32 next = s + STAGES - 1u;
    if (next < steps) load_stage(smem + next % STAGES * STAGE_BYTES, a, b, next, m, n, k);
    kt_cp_async_commit();
    kt_smem tile = smem + s % STAGES * STAGE_BYTES;
#pragma unroll
    for (kt_u32 kk = 0u; kk < 2u; kk++) {
      kt_u32 fa[2][4], fb[4][2];
#pragma unroll
      for (kt_u32 i = 0u; i < 2u; i++)
        kt_ldmatrix_x4(fa[i][0], fa[i][1], fa[i][2], fa[i][3],
                       at_a(tile, row0 + i * 16u + (lane & 15u), kk * 2u + (lane >> 4)));
#pragma unroll
      for (kt_u32 j = 0u; j < 2u; j++)
        kt_ldmatrix_x4_trans(fb[2 * j][0], fb[2 * j][1], fb[2 * j + 1][0], fb[2 * j + 1][1],
                             at_b(tile, kk * 16u + (lane & 15u), (column0 >> 3) + j * 2u + (lane >> 4)));
#pragma unroll
      for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
          kt_mma_m16n8k16_bf16(acc[i][j][0], acc[i][j][1], acc[i][j][2], acc[i][j][3], fa[i][0], fa[i][1], fa[i][2],
                               fa[i][3], fb[j][0], fb[j][1]);
    }
  }
#pragma unroll
  for (kt_u32 i = 0u; i < 2u; i++)
#pragma unroll
    for (kt_u32 j = 0u; j < 4u; j++)
#pragma unroll
      for (kt_u32 e = 0u; e < 4u; e++) {
        kt_u32 row = kt_program_y() * 64u + row0 + i * 16u + (lane >> 2) + (e >> 1) * 8u;
        kt_u32 column = kt_program_x() * 64u + column0 + j * 8u + (lane & 3u) * 2u + (e & 1u);
        if (row < kt_u32(m) && column < kt_u32(n)) kt_st_global_b32(c + (row * n + column) * 4u, kt_bits(acc[i][j][e]));
      }
}
