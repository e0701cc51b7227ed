// Arithmetic and conversions. Apple's GPUs flush subnormal float32 to zero, in and out; half keeps them.
#pragma once

KT_FN kt_u32 kt_bits(float x) { return as_type<uint>(x); }
KT_FN float kt_from_bits(kt_u32 x) { return as_type<float>(x); }

KT_FN float kt_fma(float a, float b, float c) { return fma(a, b, c); }  // rounded once
KT_FN float kt_div(float a, float b) { return a / b; }                  // correctly rounded, as the next two
KT_FN float kt_sqrt(float x) { return precise::sqrt(x); }
KT_FN float kt_rcp(float x) { return 1.0f / x; }
KT_FN float kt_rint(float x) { return rint(x); }  // to the nearest whole number, ties to even
KT_FN float kt_abs(float x) { return fabs(x); }
KT_FN float kt_max(float a, float b) { return a != a ? a : a < b || b != b ? b : a; }  // NaN if either is NaN
KT_FN float kt_min(float a, float b) { return a != a ? a : b < a || b != b ? b : a; }

#include "kt_convert.h"
#include "kt_math.h"

KT_FN float kt_exp2(float x) { return KT_NATIVE(kt_soft_exp2(x), precise::exp2(x)); }    // 2, reported
KT_FN float kt_log2(float x) { return kt_soft_log2(x); }
KT_FN float kt_rsqrt(float x) { return KT_NATIVE(kt_soft_rsqrt(x), precise::rsqrt(x)); } // 2, reported

// ---- 16-bit floats; a pair is packed in 32 bits, the first in the lower half

KT_FN kt_u16 kt_f32_to_bf16(float x) { return KT_NATIVE(kt_soft_f32_to_bf16(x), as_type<ushort>(bfloat(x))); }
KT_FN kt_u32 kt_f32x2_to_bf16x2(float lo, float hi) {
  return kt_u32(kt_f32_to_bf16(lo)) | kt_u32(kt_f32_to_bf16(hi)) << 16;
}
KT_FN kt_u16 kt_f32_to_f16(float x) { return as_type<ushort>(half(x)); }
KT_FN float kt_f16_to_f32(kt_u16 x) { return float(as_type<half>(x)); }
KT_FN kt_u32 kt_f32x2_to_f16x2(float lo, float hi) {
  return kt_u32(kt_f32_to_f16(lo)) | kt_u32(kt_f32_to_f16(hi)) << 16;
}

// ---- float8: by exact code

KT_FN kt_u8 kt_f32_to_e4m3fn(float x) { return kt_soft_f32_to_e4m3fn(x); }
KT_FN kt_u8 kt_f32_to_e5m2(float x) { return kt_soft_f32_to_e5m2(x); }
KT_FN kt_u8 kt_f32_to_e4m3fnuz(float x) { return kt_soft_f32_to_e4m3fnuz(x); }
KT_FN kt_u8 kt_f32_to_e5m2fnuz(float x) { return kt_soft_f32_to_e5m2fnuz(x); }
KT_FN float kt_e4m3fn_to_f32(kt_u8 x) { return kt_soft_e4m3fn_to_f32(x); }
KT_FN float kt_e5m2_to_f32(kt_u8 x) { return kt_soft_e5m2_to_f32(x); }
KT_FN float kt_e4m3fnuz_to_f32(kt_u8 x) { return kt_soft_e4m3fnuz_to_f32(x); }
KT_FN float kt_e5m2fnuz_to_f32(kt_u8 x) { return kt_soft_e5m2fnuz_to_f32(x); }
