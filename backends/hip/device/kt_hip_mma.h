// Matrix products of a wave: d += a b.
//
// CDNA, l the lane, M = 16 or 32, g = l / M: lane l holds row l % M of a and column l % M of b, elements k = g (K / G) + e
// with G = 64 / M groups and e the element in the lane. Of d it holds column l % M and
//   M = 16: rows 4 g + r            M = 32: rows 8 (r / 4) + 4 g + r % 4        r the register
// RDNA 4: lane l holds row (column) l % 16; 8-bit: k = 8 (l / 16) + e; 16-bit: k = 8 (e / 4) + 4 (l / 16) + e % 4; of d
// column l % 16, rows 8 (l / 16) + r.
// RDNA 3: lanes 16 .. 31 hold what lanes 0 .. 15 hold: row (column) l % 16, all 16 k; of d column l % 16, rows 2 r + l / 16.
#pragma once

typedef KT_VECTOR(short, 4) kt_i16x4;
typedef KT_VECTOR(short, 8) kt_i16x8;
typedef KT_VECTOR(short, 16) kt_i16x16;
typedef KT_VECTOR(_Float16, 4) kt_f16x4;
typedef KT_VECTOR(_Float16, 8) kt_f16x8;
typedef KT_VECTOR(_Float16, 16) kt_f16x16;
typedef KT_NATIVE(kt_i16x8, KT_VECTOR(__bf16, 8)) kt_bf16x8;

#if KT_CDNA

KT_FN void kt_mfma_16x16x16_bf16(kt_f32x4& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(kt_bit_cast<kt_i16x4>(a), kt_bit_cast<kt_i16x4>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x8_bf16(kt_f32x16& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(kt_bit_cast<kt_i16x4>(a), kt_bit_cast<kt_i16x4>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_16x16x16_f16(kt_f32x4& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x16f16(kt_bit_cast<kt_f16x4>(a), kt_bit_cast<kt_f16x4>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x8_f16(kt_f32x16& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x8f16(kt_bit_cast<kt_f16x4>(a), kt_bit_cast<kt_f16x4>(b), d, 0, 0, 0);
}
// float32 in full precision.
KT_FN void kt_mfma_16x16x4_f32(kt_f32x4& d, float a, float b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, d, 0, 0, 0);
}
// Four of them, over operands whose lanes hold four neighbours along K.
KT_FN void kt_mfma_16x16x16_f32(kt_f32x4& d, kt_f32x4 a, kt_f32x4 b KT_SITE) {
  KT_HERE;
#ifdef KT_SIM
  d = kt_sim::matrix<16, 16, kt_sim::F32>(a, b, d);
#else
  KT_UNROLL for (int i = 0; i < 4; ++i) kt_mfma_16x16x4_f32(d, a[i], b[i]);
#endif
}
KT_FN void kt_mfma_32x32x2_f32(kt_f32x16& d, float a, float b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, d, 0, 0, 0);
}
KT_FN void kt_mfma_16x16x32_i8(kt_i32x4& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_i32_16x16x32_i8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x16_i8(kt_i32x16& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_i32_32x32x16_i8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}
// 8-bit floats: e4m3fnuz and e5m2fnuz on gfx942, e4m3fn and e5m2 on gfx950.
#if defined(__gfx942__)
#define KT_E4M3(shape) kt_mfma_##shape##_e4m3fnuz
#define KT_E5M2(shape) kt_mfma_##shape##_e5m2fnuz
#else
#define KT_E4M3(shape) kt_mfma_##shape##_e4m3fn
#define KT_E5M2(shape) kt_mfma_##shape##_e5m2
#endif
KT_FN void KT_E4M3(16x16x32)(kt_f32x4& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}
KT_FN void KT_E4M3(32x32x16)(kt_f32x16& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}
KT_FN void KT_E5M2(16x16x32)(kt_f32x4& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}
KT_FN void KT_E5M2(32x32x16)(kt_f32x16& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(kt_bit_cast<long>(a), kt_bit_cast<long>(b), d, 0, 0, 0);
}

#if defined(__gfx950__)
KT_FN void kt_mfma_16x16x32_bf16(kt_f32x4& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x32_bf16(kt_bit_cast<kt_bf16x8>(a), kt_bit_cast<kt_bf16x8>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x16_bf16(kt_f32x16& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x16_bf16(kt_bit_cast<kt_bf16x8>(a), kt_bit_cast<kt_bf16x8>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_16x16x32_f16(kt_f32x4& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_16x16x32_f16(kt_bit_cast<kt_f16x8>(a), kt_bit_cast<kt_f16x8>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x16_f16(kt_f32x16& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_f32_32x32x16_f16(kt_bit_cast<kt_f16x8>(a), kt_bit_cast<kt_f16x8>(b), d, 0, 0, 0);
}
// 8-bit floats, 32 to a lane: elements 0 .. 15 have k = 16 g + e, the others 16 G + 16 g + e - 16.
#define KT_F8F6F4(shape, d, a, b, format)                                                                      \
  __builtin_amdgcn_mfma_scale_f32_##shape##_f8f6f4(kt_bit_cast<kt_i32x8>(a), kt_bit_cast<kt_i32x8>(b), d, format, \
                                                   format, 0, 0, 0, 0)
KT_FN void kt_mfma_16x16x128_e4m3fn(kt_f32x4& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = KT_F8F6F4(16x16x128, d, a, b, 0);
}
KT_FN void kt_mfma_32x32x64_e4m3fn(kt_f32x16& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = KT_F8F6F4(32x32x64, d, a, b, 0);
}
KT_FN void kt_mfma_16x16x128_e5m2(kt_f32x4& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = KT_F8F6F4(16x16x128, d, a, b, 1);
}
KT_FN void kt_mfma_32x32x64_e5m2(kt_f32x16& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = KT_F8F6F4(32x32x64, d, a, b, 1);
}
#undef KT_F8F6F4
KT_FN void kt_mfma_16x16x64_i8(kt_i32x4& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_i32_16x16x64_i8(kt_bit_cast<kt_i32x4>(a), kt_bit_cast<kt_i32x4>(b), d, 0, 0, 0);
}
KT_FN void kt_mfma_32x32x32_i8(kt_i32x16& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_mfma_i32_32x32x32_i8(kt_bit_cast<kt_i32x4>(a), kt_bit_cast<kt_i32x4>(b), d, 0, 0, 0);
}
#endif

#elif defined(__gfx1201__)

KT_FN void kt_wmma_16x16x16_bf16(kt_f32x8& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(kt_bit_cast<kt_i16x8>(a), kt_bit_cast<kt_i16x8>(b), d);
}
KT_FN void kt_wmma_16x16x16_f16(kt_f32x8& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(kt_bit_cast<kt_f16x8>(a), kt_bit_cast<kt_f16x8>(b), d);
}
KT_FN void kt_wmma_16x16x16_e4m3fn(kt_f32x8& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  typedef KT_VECTOR(int, 2) i32x2;
  d = __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(kt_bit_cast<i32x2>(a), kt_bit_cast<i32x2>(b), d);
}
KT_FN void kt_wmma_16x16x16_i8(kt_i32x8& d, kt_u32x2 a, kt_u32x2 b KT_SITE) {
  KT_HERE;
  typedef KT_VECTOR(int, 2) i32x2;
  d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, kt_bit_cast<i32x2>(a), true, kt_bit_cast<i32x2>(b), d, false);
}

#else  // RDNA 3

KT_FN void kt_wmma_16x16x16_bf16(kt_f32x8& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(kt_bit_cast<kt_i16x16>(a), kt_bit_cast<kt_i16x16>(b), d);
}
KT_FN void kt_wmma_16x16x16_f16(kt_f32x8& d, kt_u32x8 a, kt_u32x8 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(kt_bit_cast<kt_f16x16>(a), kt_bit_cast<kt_f16x16>(b), d);
}
KT_FN void kt_wmma_16x16x16_i8(kt_i32x8& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {
  KT_HERE;
  d = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, kt_bit_cast<kt_i32x4>(a), true, kt_bit_cast<kt_i32x4>(b), d, false);
}

#endif

// ---- two instructions as one of twice the k, so that a lane reads 16 bytes of an operand at once. Which k an element has
// does not matter as long as a and b agree: as in the wider instructions, k = (elements of a lane) g + e.

#if KT_CDNA
template <class T>
KT_FN kt_u32x2 kt_low(T x) { return kt_make_u32x2(x.x, x.y); }
template <class T>
KT_FN kt_u32x2 kt_upper(T x) { return kt_make_u32x2(x.z, x.w); }
#define KT_PAIR(name, D, half)                                          \
  KT_FN void name(D& d, kt_u32x4 a, kt_u32x4 b KT_SITE) {               \
    half(d, kt_low(a), kt_low(b) KT_PASS_SITE);                         \
    half(d, kt_upper(a), kt_upper(b) KT_PASS_SITE);                     \
  }
#if defined(__gfx942__)
KT_PAIR(kt_mfma_16x16x32_bf16, kt_f32x4, kt_mfma_16x16x16_bf16)
KT_PAIR(kt_mfma_16x16x32_f16, kt_f32x4, kt_mfma_16x16x16_f16)
KT_PAIR(kt_mfma_16x16x64_i8, kt_i32x4, kt_mfma_16x16x32_i8)
#endif
KT_PAIR(KT_E4M3(16x16x64), kt_f32x4, KT_E4M3(16x16x32))
KT_PAIR(KT_E5M2(16x16x64), kt_f32x4, KT_E5M2(16x16x32))
#endif

// ---- the same on arrays, as generated kernels hold tiles: a lane's elements of d, and the 32-bit words of a and b

template <class V, int N, class T>
KT_FN V kt_gather(const T* p) {
  V v;
  KT_UNROLL for (int i = 0; i < N; ++i) v[i] = p[i];
  return v;
}
#define KT_ON_ARRAYS(name, T, D, nd, W, A, na)                                  \
  KT_FN void name(T* d, const W* a, const W* b KT_SITE) {                       \
    D sum = kt_gather<D, nd>(d);                                                \
    name(sum, kt_gather<A, na>(a), kt_gather<A, na>(b) KT_PASS_SITE);           \
    KT_UNROLL for (int i = 0; i < nd; ++i) d[i] = sum[i];                       \
  }
#if KT_CDNA
KT_FN void kt_mfma_16x16x4_f32(float* d, const float* a, const float* b KT_SITE) {
  kt_f32x4 sum = kt_gather<kt_f32x4, 4>(d);
  kt_mfma_16x16x4_f32(sum, a[0], b[0] KT_PASS_SITE);
  KT_UNROLL for (int i = 0; i < 4; ++i) d[i] = sum[i];
}
KT_ON_ARRAYS(kt_mfma_16x16x16_f32, float, kt_f32x4, 4, float, kt_f32x4, 4)
KT_ON_ARRAYS(kt_mfma_16x16x16_bf16, float, kt_f32x4, 4, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_16x16x16_f16, float, kt_f32x4, 4, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_32x32x8_bf16, float, kt_f32x16, 16, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_32x32x8_f16, float, kt_f32x16, 16, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_16x16x32_i8, kt_i32, kt_i32x4, 4, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_32x32x16_i8, kt_i32, kt_i32x16, 16, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(KT_E4M3(16x16x32), float, kt_f32x4, 4, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(KT_E4M3(32x32x16), float, kt_f32x16, 16, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(KT_E5M2(16x16x32), float, kt_f32x4, 4, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(KT_E5M2(32x32x16), float, kt_f32x16, 16, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_mfma_16x16x32_bf16, float, kt_f32x4, 4, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_mfma_16x16x32_f16, float, kt_f32x4, 4, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_mfma_16x16x64_i8, kt_i32, kt_i32x4, 4, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(KT_E4M3(16x16x64), float, kt_f32x4, 4, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(KT_E5M2(16x16x64), float, kt_f32x4, 4, kt_u32, kt_u32x4, 4)
#if defined(__gfx950__)
KT_ON_ARRAYS(kt_mfma_32x32x16_bf16, float, kt_f32x16, 16, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_mfma_32x32x16_f16, float, kt_f32x16, 16, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_mfma_32x32x32_i8, kt_i32, kt_i32x16, 16, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_mfma_16x16x128_e4m3fn, float, kt_f32x4, 4, kt_u32, kt_u32x8, 8)
KT_ON_ARRAYS(kt_mfma_16x16x128_e5m2, float, kt_f32x4, 4, kt_u32, kt_u32x8, 8)
KT_ON_ARRAYS(kt_mfma_32x32x64_e4m3fn, float, kt_f32x16, 16, kt_u32, kt_u32x8, 8)
KT_ON_ARRAYS(kt_mfma_32x32x64_e5m2, float, kt_f32x16, 16, kt_u32, kt_u32x8, 8)
#endif
#elif defined(__gfx1201__)
KT_ON_ARRAYS(kt_wmma_16x16x16_bf16, float, kt_f32x8, 8, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_wmma_16x16x16_f16, float, kt_f32x8, 8, kt_u32, kt_u32x4, 4)
KT_ON_ARRAYS(kt_wmma_16x16x16_e4m3fn, float, kt_f32x8, 8, kt_u32, kt_u32x2, 2)
KT_ON_ARRAYS(kt_wmma_16x16x16_i8, kt_i32, kt_i32x8, 8, kt_u32, kt_u32x2, 2)
#else
KT_ON_ARRAYS(kt_wmma_16x16x16_bf16, float, kt_f32x8, 8, kt_u32, kt_u32x8, 8)
KT_ON_ARRAYS(kt_wmma_16x16x16_f16, float, kt_f32x8, 8, kt_u32, kt_u32x8, 8)
KT_ON_ARRAYS(kt_wmma_16x16x16_i8, kt_i32, kt_i32x8, 8, kt_u32, kt_u32x4, 4)
#endif
