// Conversions between float32 and the narrow formats, exact bit code: round to nearest even, float8 saturates to the
// largest finite value, NaN stays NaN. A vendor's header uses its own instruction where there is one that does the same.
// Needs KT_FN, kt_u8/16/32, and of the vendor's header kt_bits(float), kt_from_bits(kt_u32).
#pragma once

// ---- bfloat16: the upper half of a float32

KT_FN float kt_bf16_to_f32(kt_u16 x) { return kt_from_bits(kt_u32(x) << 16); }

KT_FN kt_u16 kt_soft_f32_to_bf16(float x) {
  kt_u32 u = kt_bits(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return kt_u16(u >> 16 | 0x40u);
  return kt_u16((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

// ---- float8 of E exponent and M mantissa bits

// Codes without sign: `largest` is the last finite one. `magic` is the float32 whose last place is the format's
// smallest subnormal: adding it rounds a small value to a whole number of those.
KT_FN kt_u32 kt_soft_f32_to_f8(kt_u32 magnitude, kt_u32 mantissa, kt_u32 bias, kt_u32 largest) {
  kt_u32 u = magnitude < 0x48800000u ? magnitude : 0x48800000u;  // 2^18: above every format's range
  kt_u32 drop = 23u - mantissa;
  if (u < (128u - bias) << 23) {
    kt_u32 magic = (151u - bias - mantissa) << 23;
    return kt_bits(kt_from_bits(u) + kt_from_bits(magic)) - magic;
  }
  kt_u32 code = (u - ((127u - bias) << 23) + (1u << (drop - 1u)) - 1u + (u >> drop & 1u)) >> drop;
  return code < largest ? code : largest;
}

KT_FN float kt_soft_f8_to_f32(kt_u32 code, kt_u32 mantissa, kt_u32 bias) {  // without sign; finite
  if (code >> mantissa == 0u) return float(code) * kt_from_bits((128u - bias - mantissa) << 23);
  return kt_from_bits((code << (23u - mantissa)) + ((127u - bias) << 23));
}

KT_FN kt_u8 kt_soft_f32_to_e4m3fn(float x) {
  kt_u32 u = kt_bits(x), magnitude = u & 0x7fffffffu, sign = u >> 31 << 7;
  if (magnitude > 0x7f800000u) return kt_u8(sign | 0x7fu);
  return kt_u8(sign | kt_soft_f32_to_f8(magnitude, 3u, 7u, 0x7eu));
}
KT_FN kt_u8 kt_soft_f32_to_e5m2(float x) {
  kt_u32 u = kt_bits(x), magnitude = u & 0x7fffffffu, sign = u >> 31 << 7;
  if (magnitude > 0x7f800000u) return kt_u8(sign | 0x7eu);
  return kt_u8(sign | kt_soft_f32_to_f8(magnitude, 2u, 15u, 0x7bu));
}
KT_FN kt_u8 kt_soft_f32_to_e4m3fnuz(float x) {  // no -0; NaN is 0x80
  kt_u32 u = kt_bits(x), magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kt_u8(0x80u);
  kt_u32 code = kt_soft_f32_to_f8(magnitude, 3u, 8u, 0x7fu);
  return kt_u8(code == 0u ? 0u : code | u >> 31 << 7);
}
KT_FN kt_u8 kt_soft_f32_to_e5m2fnuz(float x) {
  kt_u32 u = kt_bits(x), magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return kt_u8(0x80u);
  kt_u32 code = kt_soft_f32_to_f8(magnitude, 2u, 16u, 0x7fu);
  return kt_u8(code == 0u ? 0u : code | u >> 31 << 7);
}

KT_FN float kt_soft_e4m3fn_to_f32(kt_u8 x) {
  kt_u32 code = kt_u32(x) & 0x7fu;
  float value = code == 0x7fu ? kt_from_bits(0x7fc00000u) : kt_soft_f8_to_f32(code, 3u, 7u);
  return kt_u32(x) & 0x80u ? -value : value;
}
KT_FN float kt_soft_e5m2_to_f32(kt_u8 x) {
  kt_u32 code = kt_u32(x) & 0x7fu;
  float value = code > 0x7cu    ? kt_from_bits(0x7fc00000u)
                : code == 0x7cu ? kt_from_bits(0x7f800000u)
                                : kt_soft_f8_to_f32(code, 2u, 15u);
  return kt_u32(x) & 0x80u ? -value : value;
}
KT_FN float kt_soft_e4m3fnuz_to_f32(kt_u8 x) {
  if (kt_u32(x) == 0x80u) return kt_from_bits(0x7fc00000u);
  float value = kt_soft_f8_to_f32(kt_u32(x) & 0x7fu, 3u, 8u);
  return kt_u32(x) & 0x80u ? -value : value;
}
KT_FN float kt_soft_e5m2fnuz_to_f32(kt_u8 x) {
  if (kt_u32(x) == 0x80u) return kt_from_bits(0x7fc00000u);
  float value = kt_soft_f8_to_f32(kt_u32(x) & 0x7fu, 2u, 16u);
  return kt_u32(x) & 0x80u ? -value : value;
}

// A block scale: a power of two; 255 is NaN. (2^-127 is a subnormal float32, which Apple's GPUs flush.)
KT_FN float kt_e8m0_to_f32(kt_u8 x) {
  kt_u32 e = kt_u32(x);
  return kt_from_bits(e == 255u ? 0x7fc00000u : e == 0u ? 0x00400000u : e << 23);
}
