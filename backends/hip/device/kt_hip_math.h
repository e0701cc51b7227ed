// Arithmetic and conversions. Bounds are in units of the last place of float32, over all inputs.
#pragma once

KT_FN kt_u32 kt_bits(float x) { return kt_bit_cast<kt_u32>(x); }
KT_FN float kt_from_bits(kt_u32 x) { return kt_bit_cast<float>(x); }

KT_FN float kt_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }  // rounded once
KT_FN float kt_div(float a, float b) { return a / b; }                             // correctly rounded, as the next two
KT_FN float kt_sqrt(float x) { return __builtin_sqrtf(x); }
KT_FN float kt_rcp(float x) { return 1.0f / x; }
KT_FN float kt_rint(float x) { return __builtin_rintf(x); }  // to the nearest whole number, ties to even
KT_FN float kt_abs(float x) { return __builtin_fabsf(x); }
// NaN if either is NaN: one instruction on gfx950 and RDNA 4.
KT_FN float kt_max(float a, float b) {
  return KT_NATIVE((a != a ? a : a < b || b != b ? b : a), __builtin_elementwise_maximum(a, b));
}
KT_FN float kt_min(float a, float b) {
  return KT_NATIVE((a != a ? a : b < a || b != b ? b : a), __builtin_elementwise_minimum(a, b));
}

#include "kt_convert.h"
#include "kt_math.h"

// 1. v_exp_f32 and v_rsq_f32 flush subnormals, so small arguments are scaled around them.
KT_FN float kt_exp2(float x) {
  float shift = x < -126.0f ? 32.0f : 0.0f;
  float r = __builtin_amdgcn_exp2f(x + shift);
  return x < -126.0f ? r * 2.3283064365386963e-10f : r;  // 2^-32
}
// Of n registers: those of a lane seldom need the scaling, and then all pay for it.
#define KT_EXP2_ALL(n, x)                                                                       \
  do {                                                                                          \
    float kt_least = x[0];                                                                      \
    KT_EACH(kt_e, n) kt_least = __builtin_fminf(kt_least, x[kt_e]);                             \
    if (kt_least >= -126.0f) KT_EACH(kt_e, n) x[kt_e] = __builtin_amdgcn_exp2f(x[kt_e]);        \
    else KT_EACH(kt_e, n) x[kt_e] = kt_exp2(x[kt_e]);                                           \
  } while (0)
KT_FN float kt_log2(float x) { return kt_soft_log2(x); }
KT_FN float kt_rsqrt(float x) {
  bool small = x < 1.1754943508222875e-38f;
  float r = __builtin_amdgcn_rsqf(small ? x * 16777216.0f : x);
  return small ? r * 4096.0f : r;
}

// ---- 16-bit floats; a pair is packed in 32 bits, the first in the lower half

KT_FN kt_u16 kt_f32_to_bf16(float x) {
#if defined(__gfx950__)
  return KT_NATIVE(kt_soft_f32_to_bf16(x), kt_bit_cast<kt_u16>((__bf16)x));
#else
  return kt_soft_f32_to_bf16(x);
#endif
}
KT_FN kt_u32 kt_f32x2_to_bf16x2(float lo, float hi) {
#if defined(__gfx950__)  // one v_cvt_pk_bf16_f32
  const KT_VECTOR(float, 2) pair = {lo, hi};
  return KT_NATIVE(kt_f32_to_bf16(lo) | kt_u32(kt_f32_to_bf16(hi)) << 16,
                   kt_bit_cast<kt_u32>(__builtin_convertvector(pair, KT_VECTOR(__bf16, 2))));
#else
  return kt_f32_to_bf16(lo) | kt_u32(kt_f32_to_bf16(hi)) << 16;
#endif
}
KT_FN kt_u16 kt_f32_to_f16(float x) { return kt_bit_cast<kt_u16>((_Float16)x); }
KT_FN float kt_f16_to_f32(kt_u16 x) { return (float)kt_bit_cast<_Float16>(x); }
KT_FN kt_u32 kt_f32x2_to_f16x2(float lo, float hi) { return kt_f32_to_f16(lo) | kt_u32(kt_f32_to_f16(hi)) << 16; }

// ---- float8: gfx942 converts the FNUZ formats itself, gfx950 and gfx1201 the OCP ones; the others by exact code

// The hardware turns what is too large into NaN, so it is bounded first; v_med3 loses NaN, so that is kept apart.
KT_FN float kt_bound(float x, float largest) {
  return x != x ? x : __builtin_amdgcn_fmed3f(x, largest, -largest);
}
#if defined(__gfx942__)
KT_FN kt_u8 kt_f32_to_e4m3fnuz(float x) {
  return KT_NATIVE(kt_soft_f32_to_e4m3fnuz(x), kt_u8(__builtin_amdgcn_cvt_pk_fp8_f32(kt_bound(x, 240.0f), 0.0f, 0, false)));
}
KT_FN kt_u8 kt_f32_to_e5m2fnuz(float x) {
  return KT_NATIVE(kt_soft_f32_to_e5m2fnuz(x), kt_u8(__builtin_amdgcn_cvt_pk_bf8_f32(kt_bound(x, 57344.0f), 0.0f, 0, false)));
}
#else
KT_FN kt_u8 kt_f32_to_e4m3fnuz(float x) { return kt_soft_f32_to_e4m3fnuz(x); }
KT_FN kt_u8 kt_f32_to_e5m2fnuz(float x) { return kt_soft_f32_to_e5m2fnuz(x); }
#endif
#if defined(__gfx950__) || defined(__gfx1201__)
KT_FN kt_u8 kt_f32_to_e4m3fn(float x) {
  return KT_NATIVE(kt_soft_f32_to_e4m3fn(x), kt_u8(__builtin_amdgcn_cvt_pk_fp8_f32(kt_bound(x, 448.0f), 0.0f, 0, false)));
}
KT_FN kt_u8 kt_f32_to_e5m2(float x) {
  return KT_NATIVE(kt_soft_f32_to_e5m2(x), kt_u8(__builtin_amdgcn_cvt_pk_bf8_f32(kt_bound(x, 57344.0f), 0.0f, 0, false)));
}
#else
KT_FN kt_u8 kt_f32_to_e4m3fn(float x) { return kt_soft_f32_to_e4m3fn(x); }
KT_FN kt_u8 kt_f32_to_e5m2(float x) { return kt_soft_f32_to_e5m2(x); }
#endif
KT_FN float kt_e4m3fn_to_f32(kt_u8 x) { return kt_soft_e4m3fn_to_f32(x); }
KT_FN float kt_e5m2_to_f32(kt_u8 x) { return kt_soft_e5m2_to_f32(x); }
KT_FN float kt_e4m3fnuz_to_f32(kt_u8 x) { return kt_soft_e4m3fnuz_to_f32(x); }
KT_FN float kt_e5m2fnuz_to_f32(kt_u8 x) { return kt_soft_e5m2fnuz_to_f32(x); }
