// Calls every function of the Metal device headers, so that a compiler sees each of them.
#include "kt_metal.h"

kernel void every(kt_in in [[buffer(0)]], kt_out out [[buffer(1)]], constant float& x [[buffer(2)]],
                  constant uint& n [[buffer(3)]], KT_IDS) {
  KT_SHARED_MEMORY(smem, 1024);
  KT_LOC(1);
  KT_ASSERT(n > 0u);
  kt_u32 lane = kt_lane() + kt_group() + kt_thread() + kt_program_x() + kt_program_y() + kt_program_z();
  kt_smem at = smem + lane * 16u;
  kt_st_global_b8(out, kt_ld_global_b8(in));
  kt_st_global_b16(out, kt_ld_global_b16(in));
  kt_st_global_b32(out, kt_ld_global_b32(in));
  kt_st_global_b64(out, kt_ld_global_b64(in));
  kt_st_global_b128(out, kt_ld_global_b128(in));
  kt_st_global_once_b128(out, kt_ld_global_once_b128(in));
  kt_prefetch(in);
  kt_st_global_b64(out, kt_make_u32x2(n, n));
  kt_st_global_b128(out, kt_make_u32x4(n, n, n, n));
  kt_st_shared_b8(at, kt_ld_shared_b8(at));
  kt_st_shared_b16(at, kt_ld_shared_b16(at));
  kt_st_shared_b32(at, kt_ld_shared_b32(at));
  kt_st_shared_b64(at, kt_ld_shared_b64(at));
  kt_st_shared_b128(at, kt_ld_shared_b128(at));
  kt_barrier();
  kt_sync_lanes();
  float y = x, sum = kt_atomic_add_f32(out, y);
  kt_added();
  if (kt_thread() == 0u) {
    kt_turn_wait(out, 0);
    kt_turn_pass(out, 0);
  }
  kt_atomic_add_u64(out, 1u);
  kt_i32 count = kt_atomic_add_i32(out, 1) + kt_atomic_add_shared_i32(smem, 1);
  sum += kt_shfl(y, n) + kt_shfl_xor(y, n) + kt_shfl_up(y, n) + kt_shfl_down(y, n) + kt_shfl_xor_by<4u>(y);
  count += kt_shfl(count, n) + kt_shfl_xor(count, n) + kt_shfl_up(count, n) + kt_shfl_down(count, n);
  count += kt_i32(kt_shfl(lane, n) + kt_shfl_xor(lane, n) + kt_shfl_up(lane, n) + kt_shfl_down(lane, n));
  count += kt_i32(kt_any(y > 1.0f)) + kt_i32(kt_all(y > 2.0f)) + kt_i32(kt_ballot(y > 3.0f));
  sum += kt_fma(y, y, y) + kt_div(y, sum) + kt_sqrt(y) + kt_rcp(y) + kt_rint(y) + kt_abs(y) + kt_max(y, sum) + kt_min(y, sum);
  sum += kt_exp2(y) + kt_log2(y) + kt_rsqrt(y) + kt_exp(y) + kt_log(y) + kt_sin(y) + kt_cos(y) + kt_tanh(y) + kt_sigmoid(y) + kt_erf(y);
  sum += kt_bf16_to_f32(kt_f32_to_bf16(y)) + kt_f16_to_f32(kt_f32_to_f16(y)) + kt_from_bits(kt_bits(y));
  count += kt_i32(kt_f32x2_to_bf16x2(y, sum) + kt_f32x2_to_f16x2(y, sum));
  sum += kt_e4m3fn_to_f32(kt_f32_to_e4m3fn(y)) + kt_e5m2_to_f32(kt_f32_to_e5m2(y));
  sum += kt_e4m3fnuz_to_f32(kt_f32_to_e4m3fnuz(y)) + kt_e5m2fnuz_to_f32(kt_f32_to_e5m2fnuz(y)) + kt_e8m0_to_f32(kt_u8(n));
  kt_u32 h = kt_bits(y);
  float d0 = y, d1 = sum;
  kt_mma_8x8x8_f32(d0, d1, y, y, y, y);
  kt_mma_8x8x8_f16(d0, d1, h, h);
  kt_mma_8x8x8_bf16(d0, d1, h, h);
  float many[4] = {y, y, y, y};
  const kt_u32 halves[2] = {h, h};
  kt_mma_tiles_f32<1, 1>(many, many + 2, many + 2);
  kt_mma_tiles_f16<1, 2>(many, halves, halves);
  kt_mma_tiles_bf16<2, 1>(many, halves, halves);
  kt_mma_each_f32<1, 1>(many, many + 2, many + 2);
  kt_mma_each_f16<1, 2>(many, halves, halves);
  kt_mma_each_bf16<2, 1>(many, halves, halves);
  kt_cp_async_b32(smem, in, n);
  kt_cp_async_b64(smem, in, n);
  kt_cp_async_b128(smem, in, n);
  kt_cp_async_commit();
  kt_cp_async_wait<0>();
  sum += d0 + d1 + many[0];
  kt_st_global_b32(out, kt_bits(sum) + kt_u32(count));
}
