// Calls every function of the HIP device headers, so that a compiler sees each of them.
#include "kt_hip.h"

extern "C" __global__ void KT_THREADS(256) every(kt_in in, kt_out out, float x, kt_u32 n) {
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
  kt_buffer buffer = kt_make_buffer(in, n);
  kt_buffer_st_b32(buffer, n, kt_buffer_ld_b32(buffer, n));
  kt_buffer_st_b64(buffer, n, kt_buffer_ld_b64(buffer, n));
  kt_buffer_st_b128(buffer, n, kt_buffer_ld_b128(buffer, n));
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
  kt_barrier_bare();
  kt_tie();
  float held[4] = {x, x, x, x};
  kt_hold<4>(held);
  kt_sync_lanes();
  kt_sched_barrier();
  kt_set_priority<1>();
  kt_set_priority<0>();
  kt_added();
  if (kt_thread() == 0) {
    kt_turn_wait(out, 0);
    kt_turn_pass(out, 0);
  }
  float sum = held[0] + kt_atomic_add_f32(out, x) + kt_atomic_add_shared_f32(smem, x);
  kt_i32 count = kt_atomic_add_i32(out, 1) + kt_atomic_add_shared_i32(smem, 1);
  count += kt_i32(kt_atomic_add_u64(out, 1u));
  sum += kt_shfl(x, n) + kt_shfl_xor(x, n) + kt_shfl_up(x, n) + kt_shfl_down(x, n);
  count += kt_shfl(count, n) + kt_shfl_xor(count, n) + kt_shfl_up(count, n) + kt_shfl_down(count, n);
  count += kt_i32(kt_shfl(n, n) + kt_shfl_xor(n, n) + kt_shfl_up(n, n) + kt_shfl_down(n, n) + kt_uniform(n));
  sum += kt_shfl_xor_by<1>(x) + kt_shfl_xor_by<7>(x) + kt_shfl_xor_by<8>(x) + kt_shfl_xor_by<15>(x) + kt_shfl_xor_by<16>(x);
  sum += kt_shfl_xor_by<KT_LANES / 2>(x);
  count += kt_any(x > 1.0f) + kt_all(x > 2.0f) + kt_i32(kt_ballot(x > 3.0f));
  sum += kt_fma(x, x, x) + kt_div(x, sum) + kt_sqrt(x) + kt_rcp(x) + kt_rint(x) + kt_abs(x) + kt_max(x, sum) + kt_min(x, sum);
  sum += kt_exp2(x) + kt_log2(x) + kt_rsqrt(x) + kt_exp(x) + kt_log(x) + kt_sin(x) + kt_cos(x) + kt_tanh(x) + kt_sigmoid(x) + kt_erf(x);
  sum += kt_bf16_to_f32(kt_f32_to_bf16(x)) + kt_f16_to_f32(kt_f32_to_f16(x)) + kt_from_bits(kt_bits(x));
  count += kt_i32(kt_f32x2_to_bf16x2(x, sum) + kt_f32x2_to_f16x2(x, sum));
  sum += kt_e4m3fn_to_f32(kt_f32_to_e4m3fn(x)) + kt_e5m2_to_f32(kt_f32_to_e5m2(x));
  sum += kt_e4m3fnuz_to_f32(kt_f32_to_e4m3fnuz(x)) + kt_e5m2fnuz_to_f32(kt_f32_to_e5m2fnuz(x)) + kt_e8m0_to_f32(kt_u8(n));
  kt_u32x2 a2 = kt_ld_global_b64(in + lane * 8u);
  kt_u32x4 a4 = kt_ld_global_b128(in + lane * 16u);
#if KT_CDNA
  kt_load_lds_b32(smem, in + lane * 4u);
  kt_buffer_load_lds_b32(smem, buffer, lane * 4u);
  kt_copy_linear_b32(smem, buffer, lane * 4u);
  kt_wait_loads<17>();
  kt_wait_shared<3>();
  kt_f32x4 d4 = {};
  kt_f32x16 d16 = {};
  kt_i32x4 e4 = {};
  kt_i32x16 e16 = {};
  kt_mfma_16x16x16_bf16(d4, a2, a2);
  kt_mfma_32x32x8_bf16(d16, a2, a2);
  kt_mfma_16x16x16_f16(d4, a2, a2);
  kt_mfma_32x32x8_f16(d16, a2, a2);
  kt_mfma_16x16x4_f32(d4, x, x);
  kt_mfma_16x16x16_f32(d4, d4, d4);
  kt_mfma_32x32x2_f32(d16, x, x);
  kt_mfma_16x16x32_i8(e4, a2, a2);
  kt_mfma_32x32x16_i8(e16, a2, a2);
#if defined(__gfx942__)
  kt_mfma_16x16x32_e4m3fnuz(d4, a2, a2);
  kt_mfma_32x32x16_e4m3fnuz(d16, a2, a2);
  kt_mfma_16x16x32_e5m2fnuz(d4, a2, a2);
  kt_mfma_32x32x16_e5m2fnuz(d16, a2, a2);
#else
  kt_mfma_16x16x32_e4m3fn(d4, a2, a2);
  kt_mfma_32x32x16_e4m3fn(d16, a2, a2);
  kt_mfma_16x16x32_e5m2(d4, a2, a2);
  kt_mfma_32x32x16_e5m2(d16, a2, a2);
  kt_mfma_16x16x32_bf16(d4, a4, a4);
  kt_mfma_32x32x16_bf16(d16, a4, a4);
  kt_mfma_16x16x32_f16(d4, a4, a4);
  kt_mfma_32x32x16_f16(d16, a4, a4);
  kt_u32x8 a8 = {a4.x, a4.y, a4.z, a4.w, a2.x, a2.y, n, n};
  kt_mfma_16x16x128_e4m3fn(d4, a8, a8);
  kt_mfma_32x32x64_e4m3fn(d16, a8, a8);
  kt_mfma_16x16x128_e5m2(d4, a8, a8);
  kt_mfma_32x32x64_e5m2(d16, a8, a8);
  kt_mfma_16x16x64_i8(e4, a4, a4);
  kt_mfma_32x32x32_i8(e16, a4, a4);
  kt_load_lds_b128(smem, in + lane * 16u);
  kt_buffer_load_lds_b128(smem, buffer, lane * 16u);
  kt_copy_linear_b128(smem, buffer, lane * 16u);
  a2 = kt_ds_read_tr16_b64(at) + kt_ds_read_tr8_b64(at);
  kt_u32 low = a2.x, high = a2.y;
  kt_permlane32_swap(low, high);
  kt_permlane16_swap(low, high);
  count += kt_i32(low + high);
#endif
  sum += d4.x + d4.y + d16[0] + d16[15];
  count += e4.x + e16[7];
#else
  kt_f32x8 d8 = {};
  kt_i32x8 e8 = {};
#if defined(__gfx1201__)
  kt_wmma_16x16x16_bf16(d8, a4, a4);
  kt_wmma_16x16x16_f16(d8, a4, a4);
  kt_wmma_16x16x16_e4m3fn(d8, a2, a2);
  kt_wmma_16x16x16_i8(e8, a2, a2);
#else
  kt_u32x8 a8 = {a4.x, a4.y, a4.z, a4.w, a2.x, a2.y, n, n};
  kt_wmma_16x16x16_bf16(d8, a8, a8);
  kt_wmma_16x16x16_f16(d8, a8, a8);
  kt_wmma_16x16x16_i8(e8, a4, a4);
#endif
  sum += d8[0] + d8[7];
  count += e8[3];
#endif
  kt_st_global_b32(out, kt_bits(sum) + kt_u32(count) + a2.x + a4.w);
}
