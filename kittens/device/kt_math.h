// float32 functions in plain arithmetic, the same on every device: no vendor's library is needed, and results agree
// from device to device. A vendor's header that defines KT_OWN_EXP has an exp of its own, of the same quality. Nothing here assumes more than IEEE +, -, * and the fused multiply-add.
//
// Largest error in units of the last place, measured against float64 over dense samples of the range (test_sim_math.py):
//   kt_soft_exp2 1, kt_exp 1.1, kt_soft_log2 1, kt_log 1, kt_soft_rsqrt 1, kt_sin 2, kt_cos 2, kt_tanh 2.5,
//   kt_sigmoid 2.2, kt_erf 1.8; kt_div, kt_sqrt and kt_rcp are the vendor's, correctly rounded.
// Subnormal results are kept where the device keeps subnormals. Polynomials are weighted minimax fits.
//
// Needs, of the vendor's header: KT_FN, kt_u32, kt_i32, kt_u64, kt_i64, kt_bits, kt_from_bits, kt_fma, kt_div, kt_sqrt,
// kt_rint, kt_abs.
#pragma once

// x 2^n for n in -252 .. 254, in two steps, so that only the last one can round.
KT_FN float kt_scale(float x, kt_i32 n) {
  kt_i32 half_way = n >> 1;
  return x * kt_from_bits(kt_u32(half_way + 127) << 23) * kt_from_bits(kt_u32(n - half_way + 127) << 23);
}

KT_FN float kt_soft_exp2(float x) {
  float bounded = x < -160.0f ? -160.0f : x > 130.0f ? 130.0f : x;
  if (x != x) return x;
  float n = kt_rint(bounded), f = bounded - n;  // f is exact
  float p = 1.547476773e-04f;
  p = kt_fma(p, f, 1.340060385e-03f);
  p = kt_fma(p, f, 9.618009798e-03f);
  p = kt_fma(p, f, 5.550326884e-02f);
  p = kt_fma(p, f, 2.402265129e-01f);
  p = kt_fma(p, f, 6.931472068e-01f);
  return kt_scale(kt_fma(p, f, 1.0f), kt_i32(n));
}

#ifndef KT_OWN_EXP
KT_FN float kt_exp(float x) {
  float bounded = x < -110.0f ? -110.0f : x > 90.0f ? 90.0f : x;
  if (x != x) return x;
  float n = kt_rint(bounded * 1.442695022e+00f);
  float r = kt_fma(n, -6.931457520e-01f, bounded);  // ln 2 in two parts: exact, then rounded once
  r = kt_fma(n, -1.428606765e-06f, r);
  float p = 1.395062253e-03f;
  p = kt_fma(p, r, 8.368970665e-03f);
  p = kt_fma(p, r, 4.166620383e-02f);
  p = kt_fma(p, r, 1.666651816e-01f);
  p = kt_fma(p, r, 5.000000096e-01f);
  p = kt_fma(p, r * r, r);
  return kt_scale(1.0f + p, kt_i32(n));
}
#endif

// x = m 2^e with m in [sqrt 1/2, sqrt 2); -> m - 1 and e. x is positive and finite.
struct kt_parts {
  float f, e;
};
KT_FN kt_parts kt_split(float x) {
  float e = 0.0f;
  if (x < 1.175494351e-38f) {
    x = x * 8388608.0f;
    e = -23.0f;
  }
  kt_i32 shift = kt_i32(kt_bits(x) - 0x3f3504f3u) >> 23;  // 0x3f3504f3: sqrt 1/2
  kt_parts parts;
  parts.f = kt_from_bits(kt_bits(x) - (kt_u32(shift) << 23)) - 1.0f;
  parts.e = e + float(shift);
  return parts;
}
// log(1 + f) - f for f of kt_split.
KT_FN float kt_log1p_rest(float f) {
  float p = 6.926950318e-02f;
  p = kt_fma(p, f, -1.179972729e-01f);
  p = kt_fma(p, f, 1.187332393e-01f);
  p = kt_fma(p, f, -1.238282054e-01f);
  p = kt_fma(p, f, 1.421841640e-01f);
  p = kt_fma(p, f, -1.666932327e-01f);
  p = kt_fma(p, f, 2.000224029e-01f);
  p = kt_fma(p, f, -2.499998557e-01f);
  p = kt_fma(p, f, 3.333331025e-01f);
  float s = f * f;
  return kt_fma(-0.5f, s, p * f * s);
}
KT_FN float kt_log_special(float x) {  // for what is not positive and finite
  if (x == 0.0f) return kt_from_bits(0xff800000u);
  return x > 0.0f ? x : kt_from_bits(0x7fc00000u);
}
KT_FN float kt_soft_log2(float x) {
  if (!(x > 0.0f && x < kt_from_bits(0x7f800000u))) return kt_log_special(x);
  kt_parts parts = kt_split(x);
  float rest = kt_log1p_rest(parts.f);
  float low = kt_fma(parts.f, 1.925963034e-08f, rest * 1.442695022e+00f);
  float head = parts.f * 1.442695022e+00f;
  low += kt_fma(parts.f, 1.442695022e+00f, -head);
  float sum = parts.e + head;
  return sum + (parts.e - sum + head + low);
}
KT_FN float kt_log(float x) {
  if (!(x > 0.0f && x < kt_from_bits(0x7f800000u))) return kt_log_special(x);
  kt_parts parts = kt_split(x);
  float low = kt_fma(parts.e, 1.428606765e-06f, kt_log1p_rest(parts.f));
  float head = parts.e * 6.931457520e-01f;  // exact
  float sum = head + parts.f;
  return sum + (head - sum + parts.f + low);
}

KT_FN float kt_soft_rsqrt(float x) {
  float y = kt_div(1.0f, kt_sqrt(x));
  float error = kt_fma(-x * y, y, 1.0f);  // one Newton step takes away the second rounding
  float better = kt_fma(0.5f * y, error, y);
  return x > 0.0f && x < kt_from_bits(0x7f800000u) ? better : y;
}

// ---- sin, cos: x = quadrant pi/2 + r

struct kt_angle {
  float r;
  kt_u32 quadrant;
};
KT_FN kt_u32 kt_two_over_pi(kt_u32 word) {  // its bits, after 32 of 0
  return word == 0u   ? 0u
         : word == 1u ? 0xa2f9836eu
         : word == 2u ? 0x4e441529u
         : word == 3u ? 0xfc2757d1u
         : word == 4u ? 0xf534ddc0u
         : word == 5u ? 0xdb629599u
         : word == 6u ? 0x3c439041u
                      : 0xfe5163abu;
}
// For |x| >= 1: multiplies by those bits of 2/pi that matter modulo 4 (Payne and Hanek).
KT_FN kt_angle kt_reduce_large(float x) {
  kt_u32 u = kt_bits(x), mantissa = (u & 0x7fffffu) | 0x800000u;
  kt_u32 first = (u >> 23 & 255u) - 120u, word = first >> 5, shift = first & 31u;
  kt_u32 a = kt_two_over_pi(word), b = kt_two_over_pi(word + 1u), c = kt_two_over_pi(word + 2u);
  if (shift != 0u) {
    a = a << shift | b >> (32u - shift);
    b = b << shift | c >> (32u - shift);
    c = c << shift | kt_two_over_pi(word + 3u) >> (32u - shift);
  }
  kt_u64 low = kt_u64(mantissa) * c, middle = kt_u64(mantissa) * b + (low >> 32);
  kt_u64 fixed = kt_u64(kt_u32(kt_u64(mantissa) * a + (middle >> 32))) << 32 | kt_u32(middle);
  kt_i64 fraction = kt_i64(fixed << 2);  // of a quadrant, in 64 bits, -1/2 .. 1/2
  kt_angle angle;
  angle.quadrant = kt_u32(fixed >> 62) + (fraction < 0 ? 1u : 0u);
  float head = float(fraction), tail = float(fraction - kt_i64(head));
  float scale = 8.515303950e-20f;  // pi/2 2^-64
  angle.r = kt_fma(head, scale, tail * scale);
  if (u >> 31 != 0u) {
    angle.r = -angle.r;
    angle.quadrant = 0u - angle.quadrant;
  }
  return angle;
}
KT_FN kt_angle kt_reduce(float x) {
  if (kt_abs(x) >= 32768.0f) return kt_reduce_large(x);
  float n = kt_rint(x * 6.366197467e-01f);
  kt_angle angle;
  angle.r = kt_fma(n, 1.715124510e-15f, kt_fma(n, 4.371138829e-08f, kt_fma(n, -1.570796371e+00f, x)));
  angle.quadrant = kt_u32(kt_i32(n));
  return angle;
}
KT_FN float kt_sin_cos(kt_angle angle) {  // sin of r in even quadrants, cos in odd ones; minus in the upper two
  float r = angle.r, s = r * r, value;
  if ((angle.quadrant & 1u) == 0u) {
    float p = 2.717358730e-06f;
    p = kt_fma(p, s, -1.983923482e-04f);
    p = kt_fma(p, s, 8.333329076e-03f);
    p = kt_fma(p, s, -1.666666664e-01f);
    value = kt_fma(p * s, r, r);
  } else {
    float p = -2.720139271e-07f;
    p = kt_fma(p, s, 2.479941307e-05f);
    p = kt_fma(p, s, -1.388888335e-03f);
    p = kt_fma(p, s, 4.166666662e-02f);
    value = kt_fma(p * s, s, kt_fma(-0.5f, s, 1.0f));
  }
  return (angle.quadrant & 2u) == 0u ? value : -value;
}
KT_FN float kt_sin(float x) {
  if (!(kt_abs(x) < kt_from_bits(0x7f800000u))) return kt_from_bits(0x7fc00000u);
  if (kt_abs(x) < 2.0e-4f) return x * kt_fma(x * x, -1.666666664e-01f, 1.0f);  // keeps -0
  return kt_sin_cos(kt_reduce(x));
}
KT_FN float kt_cos(float x) {
  if (!(kt_abs(x) < kt_from_bits(0x7f800000u))) return kt_from_bits(0x7fc00000u);
  kt_angle angle = kt_reduce(x);
  angle.quadrant += 1u;
  return kt_sin_cos(angle);
}

// ---- sigmoids

// exp(x) - 1 for x in -80 .. 0, to the last places of the result also near 0. No branch: most of a tile's elements would
// not agree on one.
KT_FN float kt_less_than_one(float x) {
  float shifted = kt_fma(x, 1.442695022e+00f, 12582912.0f);  // 1.5 2^23: the last bits are a whole number
  float r = kt_fma(shifted - 12582912.0f, -6.931471825e-01f, x);
  float power = kt_from_bits((kt_bits(shifted) << 23) + 0x3f800000u), p = 1.395062253e-03f;
  p = kt_fma(p, r, 8.368970665e-03f);
  p = kt_fma(p, r, 4.166620383e-02f);
  p = kt_fma(p, r, 1.666651816e-01f);
  p = kt_fma(p, r, 5.000000096e-01f);
  p = kt_fma(p, r * r, r);
  return kt_fma(power, p, power - 1.0f);
}
#ifndef KT_OWN_DIV_NEAR
KT_FN float kt_div_near(float a, float b) { return kt_div(a, b); }  // within 1 unit, for b from 1 to 2
#endif
KT_FN float kt_with_sign(float x, float sign) {
  return kt_from_bits((kt_bits(x) & 0x7fffffffu) | (kt_bits(sign) & 0x80000000u));
}
KT_FN float kt_tanh(float x) {
  float a = kt_abs(x), m = kt_less_than_one(a > 10.0f ? -20.0f : -2.0f * a);
  return kt_with_sign(kt_div_near(m, 2.0f + m), x);
}
KT_FN float kt_sigmoid(float x) {
  float z = kt_exp(-kt_abs(x));  // never overflows
  return kt_div(x < 0.0f ? z : 1.0f, 1.0f + z);
}
KT_FN float kt_erf(float x) {
  float a = kt_abs(x), t = a > 4.0f ? 4.0f : a, p = -9.256181329e-06f;  // (-log(1 - erf t) - t) / t
  p = kt_fma(p, t, 1.176404985e-04f);
  p = kt_fma(p, t, -6.328339805e-04f);
  p = kt_fma(p, t, 1.667022007e-03f);
  p = kt_fma(p, t, -1.603903947e-04f);
  p = kt_fma(p, t, -1.915306784e-02f);
  p = kt_fma(p, t, 1.027778313e-01f);
  p = kt_fma(p, t, 6.366193891e-01f);
  p = kt_fma(p, t, 1.283791661e-01f);
  return kt_with_sign(kt_less_than_one(-kt_fma(p, t, t)), x);
}
