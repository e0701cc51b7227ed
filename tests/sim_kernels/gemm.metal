// c[m][n] = a[m][k] b[k][n], half or bfloat16 in and float32 out, tiles of 64x64x32 through threadgroup memory, 4
// simdgroups of 32x32. Rows are padded by 16 bytes.
#include "kt_metal.h"

#define A_ROW 80u
#define B_ROW 144u

kernel void gemm(kt_in a [[buffer(0)]], kt_in b [[buffer(1)]], kt_out c [[buffer(2)]], constant int& m [[buffer(3)]],
                 constant int& n [[buffer(4)]], constant int& k [[buffer(5)]], KT_IDS) {
  KT_SHARED_MEMORY(smem, 64 * 80 + 32 * 144);
  const kt_smem bmem = smem + 64u * A_ROW;
  const kt_u32 lane = kt_lane(), row0 = (kt_group() >> 1) * 32u, column0 = (kt_group() & 1u) * 32u;
  const kt_u32 fr = (lane >> 4) * 4u + ((lane >> 1) & 3u), fc = ((lane >> 3) & 1u) * 4u + (lane & 1u) * 2u;
  float acc[4][4][2];
  for (kt_u32 i = 0u; i < 4u; i++)
    for (kt_u32 j = 0u; j < 4u; j++) acc[i][j][0] = acc[i][j][1] = 0.0f;
  for (kt_u32 k0 = 0u; k0 < kt_u32(k); k0 += 32u) {
    kt_barrier();
    for (kt_u32 i = kt_thread(); i < 256u; i += 128u) {
      kt_u32 row = i >> 2, piece = i & 3u, grow = kt_program_y() * 64u + row, gcolumn = k0 + piece * 8u;
      kt_u32x4 v = kt_make_u32x4(0u, 0u, 0u, 0u);
      if (grow < kt_u32(m) && gcolumn < kt_u32(k)) v = kt_ld_global_b128(a + (grow * kt_u32(k) + gcolumn) * 2u);
      kt_st_shared_b128(smem + row * A_ROW + piece * 16u, v);
    }
    for (kt_u32 i = kt_thread(); i < 256u; i += 128u) {
      kt_u32 row = i >> 3, piece = i & 7u, grow = k0 + row, gcolumn = kt_program_x() * 64u + piece * 8u;
      kt_u32x4 v = kt_make_u32x4(0u, 0u, 0u, 0u);
      if (grow < kt_u32(k) && gcolumn < kt_u32(n)) v = kt_ld_global_b128(b + (grow * kt_u32(n) + gcolumn) * 2u);
      kt_st_shared_b128(bmem + row * B_ROW + piece * 16u, v);
    }
    kt_barrier();
    for (kt_u32 kk = 0u; kk < 32u; kk += 8u) {
      kt_u32 fa[4], fb[4];
      for (kt_u32 i = 0u; i < 4u; i++) fa[i] = kt_ld_shared_b32(smem + (row0 + i * 8u + fr) * A_ROW + (kk + fc) * 2u);
      for (kt_u32 j = 0u; j < 4u; j++) fb[j] = kt_ld_shared_b32(bmem + (kk + fr) * B_ROW + (column0 + j * 8u + fc) * 2u);
      kt_mma_tiles_f16<4, 4>(&acc[0][0][0], fa, fb);
    }
  }
  for (kt_u32 i = 0u; i < 4u; i++)
    for (kt_u32 j = 0u; j < 4u; j++) {
      kt_u32 row = kt_program_y() * 64u + row0 + i * 8u + fr, column = kt_program_x() * 64u + column0 + j * 8u + fc;
      if (row < kt_u32(m) && column < kt_u32(n))
        kt_st_global_b64(c + (row * kt_u32(n) + column) * 4u, kt_make_u32x2(kt_bits(acc[i][j][0]), kt_bits(acc[i][j][1])));
    }
}
