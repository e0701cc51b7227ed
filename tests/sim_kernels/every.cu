// Calls every function of the CUDA device headers, so that a compiler sees each of them.
#include "kt_cuda.h"

extern "C" __global__ void every(kt_in in, kt_out out, float x, kt_u32 n) {
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
  kt_u32 g0 = n, g1 = n, g2 = n, g3 = n;
  kt_ld_if_b32(g0, in, n > 1u);
  kt_ld_if_b64(g0, g1, in, n > 2u);
  kt_ld_if_b128(g0, g1, g2, g3, in, n > 3u);
  kt_st_if_b32(out, g0, n > 4u);
  kt_st_if_b64(out, g0, g1, n > 5u);
  kt_st_if_b128(out, g0, g1, g2, g3, n > 6u);
  kt_st_global_b32(out, kt_u32(kt_mul_wide(n, g0) >> 32));
  kt_st_global_b64(out, kt_make_u32x2(n, n));
  kt_st_global_b128(out, kt_make_u32x4(n, n, n, n));
  kt_st_shared_b8(at, kt_ld_shared_b8(at));
  kt_st_shared_b16(at, kt_ld_shared_b16(at));
  kt_st_shared_b32(at, kt_ld_shared_b32(at));
  kt_st_shared_b64(at, kt_ld_shared_b64(at));
  kt_st_shared_b128(at, kt_ld_shared_b128(at));
  kt_cp_async_b32(at, in, n);
  kt_cp_async_b64(at, in, n);
  kt_cp_async_b128(at, in, n);
  kt_cp_async_commit();
  kt_cp_async_wait<1>();
  kt_barrier();
  kt_sync_lanes();
  kt_barrier_named(1, n);
  kt_barrier_arrive(2, n);
  float sum = kt_atomic_add_f32(out, x) + kt_atomic_add_shared_f32(smem, x);
  kt_added();
  if (kt_thread() == 0) {
    kt_turn_wait(out, 0);
    kt_turn_pass(out, 0);
  }
  kt_i32 count = kt_atomic_add_i32(out, 1) + kt_atomic_add_shared_i32(smem, 1);
  count += kt_i32(kt_atomic_add_u64(out, 1u));
  sum += kt_shfl(x, n) + kt_shfl_xor(x, n) + kt_shfl_up(x, n) + kt_shfl_down(x, n);
  sum += kt_shfl_xor_by<4>(x) + float(kt_shfl_xor_by<16>(n));
  count += kt_shfl(count, n) + kt_shfl_xor(count, n) + kt_shfl_up(count, n) + kt_shfl_down(count, n);
  count += kt_i32(kt_shfl(n, n) + kt_shfl_xor(n, n) + kt_shfl_up(n, n) + kt_shfl_down(n, n));
  count += kt_any(x > 1.0f) + kt_all(x > 2.0f) + kt_i32(kt_ballot(x > 3.0f));
  sum += kt_fma(x, x, x) + kt_div(x, sum) + kt_div_near(x, 1.5f) + kt_sqrt(x) + kt_rcp(x) + kt_rint(x) + kt_abs(x) + kt_max(x, sum) + kt_min(x, sum);
  sum += kt_exp2(x) + kt_log2(x) + kt_rsqrt(x) + kt_exp(x) + kt_log(x) + kt_sin(x) + kt_cos(x) + kt_tanh(x) + kt_sigmoid(x) + kt_erf(x);
  sum += kt_bf16_to_f32(kt_f32_to_bf16(x)) + kt_f16_to_f32(kt_f32_to_f16(x)) + kt_from_bits(kt_bits(x));
  count += kt_i32(kt_f32x2_to_bf16x2(x, sum) + kt_f32x2_to_f16x2(x, sum));
  sum += kt_e4m3fn_to_f32(kt_f32_to_e4m3fn(x)) + kt_e5m2_to_f32(kt_f32_to_e5m2(x));
  sum += kt_e4m3fnuz_to_f32(kt_f32_to_e4m3fnuz(x)) + kt_e5m2fnuz_to_f32(kt_f32_to_e5m2fnuz(x)) + kt_e8m0_to_f32(kt_u8(n));
  kt_u32 r0, r1, r2, r3;
  kt_ldmatrix_x1(r0, at);
  kt_ldmatrix_x2(r0, r1, at);
  kt_ldmatrix_x4(r0, r1, r2, r3, at);
  float d0 = sum, d1 = sum, d2 = sum, d3 = sum;
  kt_i32 e0 = count, e1 = count, e2 = count, e3 = count;
  kt_mma_m16n8k16_bf16(d0, d1, d2, d3, r0, r1, r2, r3, r0, r1);
  kt_mma_m16n8k16_f16(d0, d1, d2, d3, r0, r1, r2, r3, r0, r1);
  kt_mma_m16n8k32_s8(e0, e1, e2, e3, r0, r1, r2, r3, r0, r1);
  kt_mma_m16n8k8_f32(d0, d1, d2, d3, x, x, x, x, x, x);
#if __CUDA_ARCH__ >= 890
  kt_mma_m16n8k32_e4m3fn(d0, d1, d2, d3, r0, r1, r2, r3, r0, r1);
  kt_mma_m16n8k32_e5m2(d0, d1, d2, d3, r0, r1, r2, r3, r0, r1);
#endif
  kt_ldmatrix_x1_trans(r0, at);
  kt_ldmatrix_x2_trans(r0, r1, at);
  kt_ldmatrix_x4_trans(r0, r1, r2, r3, at);
#if __CUDA_ARCH__ >= 900
  kt_stmatrix_x1(at, r0);
  kt_stmatrix_x2(at, r0, r1);
  kt_stmatrix_x4(at, r0, r1, r2, r3);
  kt_stmatrix_x2_trans(at, r0, r1);
  kt_stmatrix_x4_trans(at, r0, r1, r2, r3);
#endif
  kt_st_global_b32(out, kt_bits(sum + d0 + d1 + d2 + d3) + kt_u32(count + e0 + e1 + e2 + e3) + r0 + r1 + r2 + r3);
}
