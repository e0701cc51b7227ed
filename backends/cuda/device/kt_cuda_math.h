// Arithmetic and conversions. Bounds are in units of the last place of float32, over all inputs.
#pragma once

KT_FN kt_u32 kt_bits(float x) { return __float_as_uint(x); }
KT_FN float kt_from_bits(kt_u32 x) { return __uint_as_float(x); }

KT_FN float kt_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }  // rounded once
KT_FN float kt_div(float a, float b) { return __fdiv_rn(a, b); }              // correctly rounded, as the next two
KT_FN float kt_sqrt(float x) { return __fsqrt_rn(x); }
KT_FN float kt_rcp(float x) { return __frcp_rn(x); }
KT_FN float kt_rint(float x) {  // to the nearest whole number, ties to even
  float r;
  KT_ASM_PURE(r = __builtin_rintf(x), "cvt.rni.f32.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
KT_FN float kt_abs(float x) { return kt_from_bits(kt_bits(x) & 0x7fffffffu); }

#define KT_MUL_WIDE
KT_FN kt_u64 kt_mul_wide(kt_u32 a, kt_u32 b) {  // in one instruction
  kt_u64 r;
  KT_ASM_PURE(r = kt_u64(a) * b, "mul.wide.u32 %0, %1, %2;" : "=l"(r) : "r"(a), "r"(b));
  return r;
}

// NaN if either is NaN.
KT_FN float kt_max(float a, float b) {
  float r;
  KT_ASM_PURE(r = a != a ? a : a < b || b != b ? b : a, "max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
KT_FN float kt_min(float a, float b) {
  float r;
  KT_ASM_PURE(r = a != a ? a : b < a || b != b ? b : a, "min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}

#define KT_OWN_DIV_NEAR
KT_FN float kt_div_near(float a, float b) {  // within 1 unit, for b from 1 to 2: no range to check
  float r;
  KT_ASM_PURE(r = kt_rcp(b), "rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(b));
  float q = a * r;
  return kt_fma(kt_fma(-q, b, a), r, q);
}

#include "kt_convert.h"
#define KT_OWN_EXP
KT_FN float kt_exp(float x);
#include "kt_math.h"

// 2; results below 2^-126 are zero. Without .ftz the instruction would need three more to scale such results.
KT_FN float kt_exp2(float x) {
  float r;
  KT_ASM_PURE((r = kt_soft_exp2(x), r = r < 0x1p-126f ? 0.0f : r), "ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}
KT_FN float kt_exp(float x) {  // 2: x = n ln 2 + rest, n from -126 to 126; what is beyond is left to the rest
  float part, shifted, r;
  KT_ASM_PURE((part = kt_fma(x, kt_from_bits(0x3bbb989du), 0.5f), part = part > 0.0f ? part < 1.0f ? part : 1.0f : 0.0f),
              "fma.rn.sat.f32 %0, %1, 0f3BBB989D, 0f3F000000;" : "=f"(part) : "f"(x));  // log2(e) / 252
  KT_ASM_PURE(shifted = 12582913.0f + float(kt_i32(part * 252.0f)),
              "fma.rm.f32 %0, %1, 0f437C0000, 0f4B400001;" : "=f"(shifted) : "f"(part));  // 1.5 2^23 + 127 + n
  float n = shifted - 12583039.0f, rest = kt_fma(x, 1.925963034e-08f, kt_fma(x, 1.442695022e+00f, -n));
  KT_ASM_PURE(r = kt_soft_exp2(rest), "ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(rest));
  return r * kt_from_bits(kt_bits(shifted) << 23);
}
KT_FN float kt_log2(float x) { return kt_soft_log2(x); }  // see kt_math.h; lg2.approx is bad in relative terms near 1
KT_FN float kt_rsqrt(float x) {  // 2
  float r;
  KT_ASM_PURE(r = kt_soft_rsqrt(x), "rsqrt.approx.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
}

// ---- 16-bit floats; a pair is packed in 32 bits, the first in the lower half

KT_FN kt_u16 kt_f32_to_bf16(float x) {
  kt_u16 r;
  KT_ASM_PURE(r = kt_soft_f32_to_bf16(kt_sim::landed(x)), "cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
KT_FN kt_u32 kt_f32x2_to_bf16x2(float lo, float hi) {
  kt_u32 r;
  KT_ASM_PURE((r = kt_soft_f32_to_bf16(kt_sim::landed(lo)) | kt_u32(kt_soft_f32_to_bf16(kt_sim::landed(hi))) << 16),
              "cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
KT_FN kt_u16 kt_f32_to_f16(float x) {
  kt_u16 r;
  KT_ASM_PURE(r = kt_sim::f16_bits(kt_sim::landed(x)), "cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
KT_FN kt_u32 kt_f32x2_to_f16x2(float lo, float hi) {
  kt_u32 r;
  KT_ASM_PURE((r = kt_sim::f16_bits(kt_sim::landed(lo)) | kt_u32(kt_sim::f16_bits(kt_sim::landed(hi))) << 16),
              "cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
KT_FN float kt_f16_to_f32(kt_u16 x) {
  float r;
  KT_ASM_PURE(r = kt_sim::f16_value(x), "cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
  return r;
}

// ---- float8

#if __CUDA_ARCH__ >= 890
KT_FN kt_u8 kt_f32_to_e4m3fn(float x) {
  kt_u16 r;
  KT_ASM_PURE(r = kt_soft_f32_to_e4m3fn(x), "cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return kt_u8(r);
}
KT_FN kt_u8 kt_f32_to_e5m2(float x) {
  kt_u16 r;
  KT_ASM_PURE(r = kt_soft_f32_to_e5m2(x), "cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
  return kt_u8(r);
}
#else
KT_FN kt_u8 kt_f32_to_e4m3fn(float x) { return kt_soft_f32_to_e4m3fn(x); }
KT_FN kt_u8 kt_f32_to_e5m2(float x) { return kt_soft_f32_to_e5m2(x); }
#endif
KT_FN kt_u8 kt_f32_to_e4m3fnuz(float x) { return kt_soft_f32_to_e4m3fnuz(x); }
KT_FN kt_u8 kt_f32_to_e5m2fnuz(float x) { return kt_soft_f32_to_e5m2fnuz(x); }
KT_FN float kt_e4m3fn_to_f32(kt_u8 x) { return kt_soft_e4m3fn_to_f32(x); }
KT_FN float kt_e5m2_to_f32(kt_u8 x) { return kt_soft_e5m2_to_f32(x); }
KT_FN float kt_e4m3fnuz_to_f32(kt_u8 x) { return kt_soft_e4m3fnuz_to_f32(x); }
KT_FN float kt_e5m2fnuz_to_f32(kt_u8 x) { return kt_soft_e5m2fnuz_to_f32(x); }
