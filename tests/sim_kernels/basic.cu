// Kernels as an emitter might write them, in the words that the vendors share: another vendor's header, and they are
// its kernels. The tests plant bugs by editing this text.
#include "kt_cuda.h"

extern "C" __global__ void vector_add(kt_in a, kt_in b, kt_out c, int n) {
  kt_u32 i = kt_program_x() * 128u + kt_thread();
  if (i < kt_u32(n)) {
    float sum = kt_from_bits(kt_ld_global_b32(a + i * 4u)) + kt_from_bits(kt_ld_global_b32(b + i * 4u));
    kt_st_global_b32(c + i * 4u, kt_bits(sum));
  }
}

// out[n][m] = in[m][n] by tiles of 32x32 floats, padded to 33 columns. 256 threads.
extern "C" __global__ void transpose(kt_in in, kt_out out, int m, int n) {
  KT_SHARED_MEMORY(smem, 32 * 33 * 4);
  kt_u32 x = kt_thread() & 31u, y = kt_thread() >> 5, row0 = kt_program_y() * 32u, column0 = kt_program_x() * 32u;
  for (kt_u32 r = y; r < 32u; r += 8u)
    if (row0 + r < kt_u32(m) && column0 + x < kt_u32(n))
      kt_st_shared_b32(smem + (r * 33u + x) * 4u, kt_ld_global_b32(in + ((row0 + r) * n + column0 + x) * 4u));
  kt_barrier();
  for (kt_u32 r = y; r < 32u; r += 8u)
    if (column0 + r < kt_u32(n) && row0 + x < kt_u32(m))
      kt_st_global_b32(out + ((column0 + r) * m + row0 + x) * 4u, kt_ld_shared_b32(smem + (x * 33u + r) * 4u));
}

// out[row] = sum of in[row][0 .. n), a program a row, 128 threads.
extern "C" __global__ void row_sum(kt_in in, kt_out out, int n) {
  KT_SHARED_MEMORY(smem, 32 * 33 * 4);
  float sum = 0.0f;
  for (kt_u32 i = kt_thread(); i < kt_u32(n); i += 128u)
    sum += kt_from_bits(kt_ld_global_b32(in + (kt_program_x() * n + i) * 4u));
  for (kt_u32 mask = KT_LANES / 2u; mask > 0u; mask >>= 1) sum += kt_shfl_xor(sum, mask);
  if (kt_lane() == 0u) kt_st_shared_b32(smem + kt_group() * 4u, kt_bits(sum));
  kt_barrier();
  if (kt_thread() == 0u) {
    float total = 0.0f;
    for (kt_u32 g = 0u; g < 128u / KT_LANES; g++) total += kt_from_bits(kt_ld_shared_b32(smem + g * 4u));
    kt_st_global_b32(out + kt_program_x() * 4u, kt_bits(total));
  }
}
