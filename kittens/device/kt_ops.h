// Element operations that no vendor has words for, as docs/semantics.md defines them.
// Needs the vendor's header: KT_FN, kt_u8 .. kt_i64, kt_bits, kt_from_bits, kt_shfl_xor.
#pragma once

#ifndef KT_PASS_SITE
#ifdef KT_SIM
#define KT_PASS_SITE , kt_site
#else
#define KT_PASS_SITE
#endif
#endif
#ifdef KT_SIM
#define KT_UNROLL  // less text for the compiler; arrays need no registers on a CPU
#endif
#ifndef KT_UNROLL
#define KT_UNROLL _Pragma("unroll")
#endif
#ifndef KT_ROLLED
#define KT_ROLLED _Pragma("unroll 1")
#endif
#ifndef KT_ONCE
#define KT_ONCE _Pragma("unroll 1")
#endif
#ifndef KT_BY_FOURS
#define KT_BY_FOURS _Pragma("unroll 4")
#endif
#ifndef KT_LOCAL
#define KT_LOCAL  // the address space of local variables, where there is one to name
#endif

#ifndef KT_HIGH
#define KT_HIGH(x) kt_i32((x) >> 32)  // of a scalar of 64 bits
#endif

#define KT_EACH(i, n) KT_UNROLL for (int i = 0; i < (n); ++i)

// ---- integers: division rounds down, by zero gives zero; a shift by no valid count shifts everything out

template <class T> KT_FN T kt_floordiv(T a, T b) {
  if (b == T(0)) return T(0);
  if (!(T(-1) < T(0))) return T(a / b);             // unsigned
  if (b == T(-1)) return T(kt_u64(0) - kt_u64(a));  // the least integer has no quotient that fits
  T q = T(a / b);
  return T(q * b) != a && ((a < T(0)) != (b < T(0))) ? T(q - 1) : q;
}
template <class T> KT_FN T kt_mod(T a, T b) { return b == T(0) ? T(0) : T(a - T(kt_floordiv<T>(a, b) * b)); }
template <class T> KT_FN T kt_cdiv(T a, T b) {
  if (b == T(0)) return T(0);
  T q = kt_floordiv<T>(a, b);
  return T(q * b) != a ? T(q + 1) : q;
}
// The same for 0 <= a < 2^32 and 0 <= b, in 32 bits.
KT_FN kt_i64 kt_quotient(kt_i64 a, kt_i64 b) {
  return b == 0 || kt_u64(b) >> 32 != 0u ? kt_i64(0) : kt_i64(kt_u32(a) / kt_u32(b));
}
KT_FN kt_i64 kt_remainder(kt_i64 a, kt_i64 b) {
  return b == 0 ? kt_i64(0) : kt_u64(b) >> 32 != 0u ? a : kt_i64(kt_u32(a) % kt_u32(b));
}
template <class T> KT_FN T kt_shl(T a, T n) {
  return n < T(0) || n >= T(8 * sizeof(T)) ? T(0) : T(kt_u64(a) << n);
}
template <class T> KT_FN T kt_shr(T a, T n) {
  return n < T(0) || n >= T(8 * sizeof(T)) ? (a < T(0) ? T(-1) : T(0)) : T(a >> n);
}
template <class T> KT_FN T kt_iabs(T a) { return a < T(0) ? T(kt_u64(0) - kt_u64(a)) : a; }

#ifndef KT_MUL_WIDE
KT_FN kt_u64 kt_mul_wide(kt_u32 a, kt_u32 b) { return kt_u64(a) * b; }
#endif
KT_FN bool kt_inside(kt_i64 i, kt_i64 n) { return kt_u64(i) < kt_u64(n); }
// A difference of positions, cut to where positions inside a tile cannot change how it compares.
KT_FN kt_i32 kt_near(kt_i64 x) { return x < -(1 << 24) ? -(1 << 24) : x > (1 << 24) ? (1 << 24) : kt_i32(x); }
// After how many steps of `growth` (above 0) a distance has been covered.
KT_FN kt_i32 kt_turning(kt_i64 distance, kt_i64 growth) {
  kt_i64 steps = distance > 0 ? (distance - 1) / growth + 1 : 0;
  return steps < 0x7fffffff ? kt_i32(steps) : 0x7fffffff;
}
KT_FN kt_i64 kt_cut(kt_i64 i, kt_i64 n) { return i < 0 ? 0 : i < n ? i : n; }
// How many of `size` positions from `size * coordinate` on lie in 0 .. extent. No tensor reaches coordinate 2^47, and up to there
// products do not wrap: KT_BEYOND is negative for those beyond, and those below 0.
#define KT_BEYOND(coordinate) (KT_HIGH(coordinate) | kt_i32(kt_u32(KT_HIGH(coordinate)) + 0x7fff8000u))
KT_FN kt_i32 kt_limit(kt_i64 coordinate, kt_i32 size, kt_i64 extent) {
  kt_i64 left = extent - coordinate * size;
  kt_i32 high = KT_HIGH(left);  // comparisons of 32 bits
  if ((KT_BEYOND(coordinate) | high) < 0) return 0;
  return high > 0 || kt_u32(left) >= kt_u32(size) ? size : kt_i32(left);
}
// The same where `yes` holds, else 0, with no branch: what views of several tensors load may follow each other.
KT_FN kt_i32 kt_limit_if(bool yes, kt_i64 coordinate, kt_i32 size, kt_i64 extent) {
  kt_i64 left = extent - coordinate * size;
  kt_i32 high = KT_HIGH(left);
  kt_u32 low = high != 0 ? 0xffffffffu : kt_u32(left);
  return !yes || (KT_BEYOND(coordinate) | high) < 0 ? 0 : kt_i32(low < kt_u32(size) ? low : kt_u32(size));
}
// Where the tile at a coordinate begins, for engines that take 32 bits; what lies further out is outside of any tensor.
KT_FN kt_i32 kt_position(kt_i64 coordinate, kt_i32 size) {
  const kt_i64 most = 0x7fff0000, near = coordinate < -most ? -most : coordinate > most ? most : coordinate;
  const kt_i64 at = near * size;
  return at < -most ? kt_i32(-most) : at > most ? kt_i32(most) : kt_i32(at);
}
// Row `at` of a slice, in a map of `rows` rows whose last ones are the slice's: beyond them where it has none.
KT_FN kt_i32 kt_row_of_slice(kt_i32 at, kt_i32 first, kt_i32 end, kt_i32 rows) {
  kt_i32 length = end > first ? end - first : 0;
  return kt_u32(at) < kt_u32(length) ? rows - length + at : rows;
}
// Rows of a tile that are copied from a tensor with so many, in eights.
KT_FN kt_i32 kt_cut_rows(kt_i64 extent, kt_i32 rows) {
  return extent >= rows ? rows : extent > 8 ? (kt_i32(extent) + 7) & ~7 : 8;
}
// Passes of a loop from lo to below hi, where a device counts them in 32 bits.
KT_FN kt_i32 kt_passes(kt_i64 lo, kt_i64 hi, kt_i64 step) { return hi <= lo ? 0 : kt_i32((hi - lo - 1) / step + 1); }

// The place of a program in the order of work where programs are dealt to the parts of a device in turn, so that each
// part gets neighbours: part x gets n / parts places (one more while x < n % parts) in a row.
KT_FN kt_u32 kt_dealt(kt_u32 program, kt_u32 n, kt_u32 parts) {
  kt_u32 part = program % parts, more = n % parts;
  return part * (n / parts) + (part < more ? part : more) + program / parts;
}

// Draws the next of n numbers, 0 first, for one thread; the last draw puts the counter back to 0.
#ifdef KT_TURNS
KT_FN kt_u32 kt_draw(kt_out counter, kt_u32 n KT_SITE) {
  const kt_u32 drawn = kt_u32(kt_atomic_add_i32(counter, 1 KT_PASS_SITE));
  if (drawn == n - 1u) kt_atomic_add_i32(counter, -kt_i32(n) KT_PASS_SITE);
  return drawn;
}
// The same for all threads of a program, by way of 4 bytes at p.
KT_FN kt_u32 kt_draw_together(kt_smem p, kt_out counter, kt_u32 n KT_SITE) {
  KT_HERE;
  if (kt_thread() == 0u) kt_st_shared_b32(p, kt_draw(counter, n KT_PASS_SITE) KT_PASS_SITE);
  kt_barrier();
  const kt_u32 drawn = kt_ld_shared_b32(p KT_PASS_SITE);
  kt_barrier();
  return kt_u32(kt_uniform(int(drawn) KT_PASS_SITE));
}
#endif

// ---- floats

// 2^x of n registers, in place.
#ifndef KT_EXP2_ALL
#define KT_EXP2_ALL(n, x) KT_EACH(kt_e, n) x[kt_e] = kt_exp2(x[kt_e])
#endif
KT_FN float kt_neg(float x) { return kt_from_bits(kt_bits(x) ^ 0x80000000u); }
KT_FN float kt_trunc(float x) {
  float a = kt_abs(x);
  if (!(a < 8388608.0f)) return x;
  return kt_from_bits(kt_bits(float(kt_i32(a))) | (kt_bits(x) & 0x80000000u));
}
KT_FN float kt_floor(float x) {
  float t = kt_trunc(x);
  return t > x ? t - 1.0f : t;
}
KT_FN float kt_ceil(float x) {
  float t = kt_trunc(x);
  if (!(t < x)) return t;
  return kt_from_bits(kt_bits(t + 1.0f) | (kt_bits(x) & 0x80000000u));  // -0.5 goes to -0
}

// Rounded to odd: the last bit tells of what was lost, so that one more rounding, to 16 bits or less, is correct.
KT_FN float kt_odd(float rounded, float lost) {
  kt_u32 bits = kt_bits(rounded);
  if (lost == 0.0f || lost != lost || (bits & 1u) || (bits & 0x7f800000u) == 0x7f800000u) return rounded;
  if (rounded == 0.0f) return kt_from_bits((kt_bits(lost) & 0x80000000u) | 1u);
  return kt_from_bits((lost > 0.0f) == (rounded > 0.0f) ? bits + 1u : bits - 1u);
}
// a * b is exact for operands of 11 bits or less, unless it leaves float32's range; two-sum gives what the sum loses.
KT_FN float kt_fma_odd(float a, float b, float c) {
  float s = kt_fma(a, b, c), p = a * b, t = s - p;
  if (c == 0.0f && kt_abs(p) < 7.9e-31f) {  // the product itself may lose bits below the normal numbers
    const float up = 1.2676506e30f;         // 2^100
    float lost = kt_abs(a) < kt_abs(b) ? kt_fma(a * up, b, -(s * up)) : kt_fma(a, b * up, -(s * up));
    return kt_odd(s, lost);
  }
  return kt_odd(s, (p - (s - t)) + (c - t));
}
KT_FN kt_u16 kt_fma_to_bf16(float a, float b, float c) { return kt_f32_to_bf16(kt_fma_odd(a, b, c)); }
KT_FN kt_u16 kt_fma_to_f16(float a, float b, float c) { return kt_f32_to_f16(kt_fma_odd(a, b, c)); }

KT_FN float kt_i64_to_f32_odd(kt_i64 x) {
  kt_u64 a = x < 0 ? kt_u64(0) - kt_u64(x) : kt_u64(x);
  kt_i32 down = 0;
  kt_u64 lost = 0;
  while (a >= (kt_u64(1) << 24)) { lost |= a & 1; a >>= 1; ++down; }
  float r = float(kt_u32(a) | kt_u32(lost != 0));
  KT_UNROLL for (int i = 0; i < 40; ++i) if (i < down) r *= 2.0f;
  return x < 0 ? -r : r;
}
KT_FN float kt_u64_to_f32_odd(kt_u64 a) {
  kt_i32 down = 0;
  kt_u64 lost = 0;
  while (a >= (kt_u64(1) << 24)) { lost |= a & 1; a >>= 1; ++down; }
  float r = float(kt_u32(a) | kt_u32(lost != 0));
  KT_UNROLL for (int i = 0; i < 40; ++i) if (i < down) r *= 2.0f;
  return r;
}

// To integers: towards zero, saturating; NaN gives 0.
#define KT_TO_SIGNED(name, type, low, high, limit) \
  KT_FN type name(float x) { return x != x ? type(0) : x >= limit ? type(high) : x < -limit ? type(low) : type(x); }
#define KT_TO_UNSIGNED(name, type, high, limit) \
  KT_FN type name(float x) { return !(x > 0.0f) ? type(0) : x >= limit ? type(high) : type(x); }
KT_TO_SIGNED(kt_f32_to_i8, kt_i8, -128, 127, 128.0f)
KT_TO_SIGNED(kt_f32_to_i16, kt_i16, -32768, 32767, 32768.0f)
KT_TO_SIGNED(kt_f32_to_i32, kt_i32, (-2147483647 - 1), 2147483647, 2147483648.0f)
KT_TO_SIGNED(kt_f32_to_i64, kt_i64, kt_u64(1) << 63, ~(kt_u64(1) << 63), 9223372036854775808.0f)
KT_TO_UNSIGNED(kt_f32_to_u8, kt_u8, 255, 256.0f)
KT_TO_UNSIGNED(kt_f32_to_u16, kt_u16, 65535, 65536.0f)
KT_TO_UNSIGNED(kt_f32_to_u32, kt_u32, 4294967295u, 4294967296.0f)
KT_TO_UNSIGNED(kt_f32_to_u64, kt_u64, ~kt_u64(0), 18446744073709551616.0f)

// The nearest power of two, a tie going up; NaN below zero; saturating at both ends.
KT_FN kt_u8 kt_f32_to_e8m0(float x) {
  kt_u32 bits = kt_bits(x);
  if (x != x || x < 0.0f) return 255;
  if (x == 0.0f) return 0;
  if (bits >= 0x7f000000u) return 254;
  kt_u32 exponent = bits >> 23, rest = bits & 0x7fffffu;
  if (exponent == 0u) return bits >= 0x600000u ? 1 : 0;  // 2^-127 is 0x400000, 2^-126 0x800000
  return kt_u8(exponent + (rest >= 0x400000u ? 1u : 0u));
}

// ---- random numbers: Philox-4x32-10, word c mod 4 of block c div 4

struct kt_random_words {
  kt_u32 x0, x1, x2, x3;
};
KT_FN kt_random_words kt_random_block(kt_i64 seed, kt_u64 block) {
  kt_u32 k0 = kt_u32(seed), k1 = kt_u32(kt_u64(seed) >> 32);
  kt_random_words x = {kt_u32(block), kt_u32(block >> 32), 0u, 0u};
  KT_UNROLL for (int round = 0; round < 10; ++round) {
    kt_u64 p0 = kt_mul_wide(x.x0, 0xD2511F53u), p1 = kt_mul_wide(x.x2, 0xCD9E8D57u);
    x.x0 = kt_u32(p1 >> 32) ^ x.x1 ^ k0;
    x.x2 = kt_u32(p0 >> 32) ^ x.x3 ^ k1;
    x.x1 = kt_u32(p1);
    x.x3 = kt_u32(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return x;
}
// The last block is kept: neighbours that are asked for in turn share its work.
struct kt_random_state {
  kt_u64 block;
  bool made;
  kt_random_words words;
};
KT_FN kt_u32 kt_random_bits(KT_LOCAL kt_random_state& state, kt_i64 seed, kt_i64 counter) {
  kt_u64 block = kt_u64(counter) >> 2;
  if (!state.made || block != state.block) {
    state.made = true;
    state.block = block;
    state.words = kt_random_block(seed, block);
  }
  kt_u32 word = kt_u32(counter) & 3u;
  return word == 0u ? state.words.x0 : word == 1u ? state.words.x1 : word == 2u ? state.words.x2 : state.words.x3;
}
// The four words of the block that begins at a counter.
#define KT_RANDOM_BLOCK(array, first, seed, counter)                                 \
  do {                                                                               \
    const kt_random_words kt_x = kt_random_block(seed, kt_u64(counter) >> 2);        \
    array[(first)] = kt_x.x0, array[(first) + 1] = kt_x.x1;                          \
    array[(first) + 2] = kt_x.x2, array[(first) + 3] = kt_x.x3;                      \
  } while (0)

// ---- elements of every type across lanes

KT_FN float kt_swap(float x, kt_u32 mask KT_SITE) { return kt_shfl_xor(x, mask KT_PASS_SITE); }
KT_FN kt_i32 kt_swap(kt_i32 x, kt_u32 mask KT_SITE) { return kt_shfl_xor(x, mask KT_PASS_SITE); }
KT_FN kt_u32 kt_swap(kt_u32 x, kt_u32 mask KT_SITE) { return kt_shfl_xor(x, mask KT_PASS_SITE); }
KT_FN bool kt_swap(bool x, kt_u32 mask KT_SITE) { return kt_shfl_xor(kt_u32(x), mask KT_PASS_SITE) != 0u; }
KT_FN kt_i8 kt_swap(kt_i8 x, kt_u32 mask KT_SITE) { return kt_i8(kt_shfl_xor(kt_i32(x), mask KT_PASS_SITE)); }
KT_FN kt_i16 kt_swap(kt_i16 x, kt_u32 mask KT_SITE) { return kt_i16(kt_shfl_xor(kt_i32(x), mask KT_PASS_SITE)); }
KT_FN kt_u8 kt_swap(kt_u8 x, kt_u32 mask KT_SITE) { return kt_u8(kt_shfl_xor(kt_u32(x), mask KT_PASS_SITE)); }
KT_FN kt_u16 kt_swap(kt_u16 x, kt_u32 mask KT_SITE) { return kt_u16(kt_shfl_xor(kt_u32(x), mask KT_PASS_SITE)); }
KT_FN kt_u64 kt_swap(kt_u64 x, kt_u32 mask KT_SITE) {
  kt_u32 lo = kt_shfl_xor(kt_u32(x), mask KT_PASS_SITE), hi = kt_shfl_xor(kt_u32(x >> 32), mask KT_PASS_SITE);
  return kt_u64(hi) << 32 | lo;
}
KT_FN kt_i64 kt_swap(kt_i64 x, kt_u32 mask KT_SITE) { return kt_i64(kt_swap(kt_u64(x), mask KT_PASS_SITE)); }

// ---- elements of every type in memory, and pieces of several

template <class T> struct kt_element {};
#define KT_ELEMENT(T, BITS, TO, FROM)                                                                        \
  template <> struct kt_element<T> { typedef T type; };                                                      \
  KT_FN void kt_put(kt_smem p, T x KT_SITE) { kt_st_shared_b##BITS(p, TO(x) KT_PASS_SITE); }                 \
  KT_FN void kt_put_global(kt_out p, T x KT_SITE) { kt_st_global_b##BITS(p, TO(x) KT_PASS_SITE); }           \
  KT_FN T kt_get_as(kt_smem p, kt_element<T> KT_SITE) { return FROM(kt_ld_shared_b##BITS(p KT_PASS_SITE)); } \
  KT_FN T kt_get_global_as(kt_in p, kt_element<T> KT_SITE) { return FROM(kt_ld_global_b##BITS(p KT_PASS_SITE)); }
KT_FN bool kt_truth(kt_u8 x) { return x != 0; }
KT_FN kt_u32x2 kt_two(kt_u64 x) {
  kt_u32x2 r;
  r.x = kt_u32(x);
  r.y = kt_u32(x >> 32);
  return r;
}
KT_FN kt_u64 kt_one(kt_u32x2 x) { return kt_u64(x.y) << 32 | x.x; }
KT_FN kt_i64 kt_one_signed(kt_u32x2 x) { return kt_i64(kt_one(x)); }
KT_ELEMENT(bool, 8, kt_u8, kt_truth)
KT_ELEMENT(kt_u8, 8, kt_u8, kt_u8)
KT_ELEMENT(kt_i8, 8, kt_u8, kt_i8)
KT_ELEMENT(kt_u16, 16, kt_u16, kt_u16)
KT_ELEMENT(kt_i16, 16, kt_u16, kt_i16)
KT_ELEMENT(kt_u32, 32, kt_u32, kt_u32)
KT_ELEMENT(kt_i32, 32, kt_u32, kt_i32)
KT_ELEMENT(float, 32, kt_bits, kt_from_bits)
KT_ELEMENT(kt_u64, 64, kt_two, kt_one)
KT_ELEMENT(kt_i64, 64, kt_two, kt_one_signed)
template <class T> KT_FN T kt_get(kt_smem p KT_SITE) { return kt_get_as(p, kt_element<T>() KT_PASS_SITE); }
template <class T> KT_FN T kt_get_global(kt_in p KT_SITE) { return kt_get_global_as(p, kt_element<T>() KT_PASS_SITE); }

KT_FN void kt_add_global(kt_out p, float x KT_SITE) { kt_atomic_add_f32(p, x KT_PASS_SITE); }
KT_FN void kt_add_global(kt_out p, kt_i32 x KT_SITE) { kt_atomic_add_i32(p, x KT_PASS_SITE); }
KT_FN void kt_add_global(kt_out p, kt_u32 x KT_SITE) { kt_atomic_add_i32(p, kt_i32(x) KT_PASS_SITE); }
#ifdef KT_ATOMIC_64
KT_FN void kt_add_global(kt_out p, kt_u64 x KT_SITE) { kt_atomic_add_u64(p, x KT_PASS_SITE); }
KT_FN void kt_add_global(kt_out p, kt_i64 x KT_SITE) { kt_atomic_add_u64(p, kt_u64(x) KT_PASS_SITE); }
#endif

// Pieces of up to 16 bytes as 32-bit words, the first element lowest.
template <int BYTES> struct kt_words { kt_u32 w[(BYTES + 3) / 4]; };
template <int BYTES> struct kt_size {};
KT_FN kt_words<2> kt_ld_words(kt_in p, kt_size<2> KT_SITE) { kt_words<2> r; r.w[0] = kt_ld_global_b16(p KT_PASS_SITE); return r; }
KT_FN kt_words<4> kt_ld_words(kt_in p, kt_size<4> KT_SITE) { kt_words<4> r; r.w[0] = kt_ld_global_b32(p KT_PASS_SITE); return r; }
KT_FN kt_words<8> kt_ld_words(kt_in p, kt_size<8> KT_SITE) {
  kt_u32x2 x = kt_ld_global_b64(p KT_PASS_SITE);
  kt_words<8> r;
  r.w[0] = x.x; r.w[1] = x.y;
  return r;
}
KT_FN kt_words<16> kt_ld_words(kt_in p, kt_size<16> KT_SITE) {
  kt_u32x4 x = kt_ld_global_b128(p KT_PASS_SITE);
  kt_words<16> r;
  r.w[0] = x.x; r.w[1] = x.y; r.w[2] = x.z; r.w[3] = x.w;
  return r;
}
KT_FN void kt_st_words(kt_out p, kt_words<2> x KT_SITE) { kt_st_global_b16(p, kt_u16(x.w[0]) KT_PASS_SITE); }
KT_FN void kt_st_words(kt_out p, kt_words<4> x KT_SITE) { kt_st_global_b32(p, x.w[0] KT_PASS_SITE); }
KT_FN void kt_st_words(kt_out p, kt_words<8> x KT_SITE) {
  kt_u32x2 r;
  r.x = x.w[0]; r.y = x.w[1];
  kt_st_global_b64(p, r KT_PASS_SITE);
}
KT_FN void kt_st_words(kt_out p, kt_words<16> x KT_SITE) {
  kt_u32x4 r;
  r.x = x.w[0]; r.y = x.w[1]; r.z = x.w[2]; r.w = x.w[3];
  kt_st_global_b128(p, r KT_PASS_SITE);
}
#ifdef KT_PREDICATED
KT_FN void kt_ld_words_if(kt_words<2>& x, kt_in p, bool in KT_SITE) { if (in) x = kt_ld_words(p, kt_size<2>() KT_PASS_SITE); }
KT_FN void kt_ld_words_if(kt_words<4>& x, kt_in p, bool in KT_SITE) { kt_ld_if_b32(x.w[0], p, in KT_PASS_SITE); }
KT_FN void kt_ld_words_if(kt_words<8>& x, kt_in p, bool in KT_SITE) { kt_ld_if_b64(x.w[0], x.w[1], p, in KT_PASS_SITE); }
KT_FN void kt_ld_words_if(kt_words<16>& x, kt_in p, bool in KT_SITE) {
  kt_ld_if_b128(x.w[0], x.w[1], x.w[2], x.w[3], p, in KT_PASS_SITE);
}
KT_FN void kt_st_words_if(kt_out p, kt_words<2> x, bool in KT_SITE) { if (in) kt_st_words(p, x KT_PASS_SITE); }
KT_FN void kt_st_words_if(kt_out p, kt_words<4> x, bool in KT_SITE) { kt_st_if_b32(p, x.w[0], in KT_PASS_SITE); }
KT_FN void kt_st_words_if(kt_out p, kt_words<8> x, bool in KT_SITE) { kt_st_if_b64(p, x.w[0], x.w[1], in KT_PASS_SITE); }
KT_FN void kt_st_words_if(kt_out p, kt_words<16> x, bool in KT_SITE) {
  kt_st_if_b128(p, x.w[0], x.w[1], x.w[2], x.w[3], in KT_PASS_SITE);
}
#endif
KT_FN kt_words<4> kt_lds_words(kt_smem p, kt_size<4> KT_SITE) { kt_words<4> r; r.w[0] = kt_ld_shared_b32(p KT_PASS_SITE); return r; }
KT_FN kt_words<8> kt_lds_words(kt_smem p, kt_size<8> KT_SITE) {
  kt_u32x2 x = kt_ld_shared_b64(p KT_PASS_SITE);
  kt_words<8> r;
  r.w[0] = x.x; r.w[1] = x.y;
  return r;
}
KT_FN kt_words<16> kt_lds_words(kt_smem p, kt_size<16> KT_SITE) {
  kt_u32x4 x = kt_ld_shared_b128(p KT_PASS_SITE);
  kt_words<16> r;
  r.w[0] = x.x; r.w[1] = x.y; r.w[2] = x.z; r.w[3] = x.w;
  return r;
}

// An element to and from its word; i counts elements of the word.
KT_FN bool kt_part(kt_u32 w, int i, kt_element<bool>) { return (w >> 8 * i & 255u) != 0u; }
KT_FN kt_u8 kt_part(kt_u32 w, int i, kt_element<kt_u8>) { return kt_u8(w >> 8 * i); }
KT_FN kt_i8 kt_part(kt_u32 w, int i, kt_element<kt_i8>) { return kt_i8(w >> 8 * i); }
KT_FN kt_u16 kt_part(kt_u32 w, int i, kt_element<kt_u16>) { return kt_u16(w >> 16 * i); }
KT_FN kt_i16 kt_part(kt_u32 w, int i, kt_element<kt_i16>) { return kt_i16(w >> 16 * i); }
KT_FN kt_u32 kt_part(kt_u32 w, int, kt_element<kt_u32>) { return w; }
KT_FN kt_i32 kt_part(kt_u32 w, int, kt_element<kt_i32>) { return kt_i32(w); }
KT_FN float kt_part(kt_u32 w, int, kt_element<float>) { return kt_from_bits(w); }
KT_FN kt_u32 kt_raw(bool x) { return x ? 1u : 0u; }
KT_FN kt_u32 kt_raw(kt_u8 x) { return x; }
KT_FN kt_u32 kt_raw(kt_i8 x) { return kt_u8(x); }
KT_FN kt_u32 kt_raw(kt_u16 x) { return x; }
KT_FN kt_u32 kt_raw(kt_i16 x) { return kt_u16(x); }
KT_FN kt_u32 kt_raw(kt_u32 x) { return x; }
KT_FN kt_u32 kt_raw(kt_i32 x) { return kt_u32(x); }
KT_FN kt_u32 kt_raw(float x) { return kt_bits(x); }
KT_FN kt_u32 kt_repeated(kt_u32 x, kt_size<1>) { return x * 0x01010101u; }  // an element in all places of a word
KT_FN kt_u32 kt_repeated(kt_u32 x, kt_size<2>) { return x * 0x10001u; }
KT_FN kt_u32 kt_repeated(kt_u32 x, kt_size<4>) { return x; }
#define KT_PER_WORD(T) int(4 / sizeof(T))

// Loads N elements at p into array[first ..], or puts pad there; stores N elements of a piece; N words from shared memory.
// KT_FETCH_VECTOR is KT_LOAD_VECTOR for data that nobody writes while the kernel runs.
#define KT_VECTOR_OF(T, N, load, array, first, pad)                                                         \
  do {                                                                                                      \
    kt_words<N * sizeof(T)> kt_x;                                                                           \
    KT_EACH(kt_e, (N + KT_PER_WORD(T) - 1) / KT_PER_WORD(T))                                                \
      kt_x.w[kt_e] = kt_repeated(kt_raw(pad), kt_size<sizeof(T)>());                                        \
    load;                                                                                                   \
    KT_EACH(kt_e, N)                                                                                        \
      array[(first) + kt_e] = kt_part(kt_x.w[kt_e / KT_PER_WORD(T)], kt_e % KT_PER_WORD(T), kt_element<T>()); \
  } while (0)
#define KT_LOAD_VECTOR(T, N, array, first, in, p, pad) \
  KT_VECTOR_OF(T, N, if (in) kt_x = kt_ld_words(p, kt_size<N * sizeof(T)>()), array, first, pad)
#ifdef KT_PREDICATED
#define KT_FETCH_VECTOR(T, N, array, first, in, p, pad) KT_VECTOR_OF(T, N, kt_ld_words_if(kt_x, p, in), array, first, pad)
#define KT_STORE_IF(in, p, x) kt_st_words_if(p, x, in)
#else
#define KT_FETCH_VECTOR KT_LOAD_VECTOR
#define KT_STORE_IF(in, p, x) if (in) kt_st_words(p, x)
#endif
#define KT_STORE_VECTOR(T, N, piece, in, p)                                                       \
  do {                                                                                            \
    kt_words<N * sizeof(T)> kt_x = {};                                                            \
    KT_EACH(kt_e, N) kt_x.w[kt_e / KT_PER_WORD(T)] |= kt_raw(piece[kt_e]) << 8 * sizeof(T) * (kt_e % KT_PER_WORD(T)); \
    KT_STORE_IF(in, p, kt_x);                                                                     \
  } while (0)
#define KT_LOAD_WORDS(N, words, first, p)                               \
  do {                                                                  \
    const kt_words<4 * N> kt_x = kt_lds_words(p, kt_size<4 * N>());     \
    KT_EACH(kt_e, N) words[(first) + kt_e] = kt_x.w[kt_e];              \
  } while (0)
#define KT_LOAD_FLOATS(N, words, first, p)                               \
  do {                                                                  \
    const kt_words<4 * N> kt_x = kt_lds_words(p, kt_size<4 * N>());     \
    KT_EACH(kt_e, N) words[(first) + kt_e] = kt_from_bits(kt_x.w[kt_e]); \
  } while (0)

// The larger and the smaller integer; the better of two candidates for argmax: NaN first, then larger, then earlier.
template <class T> KT_FN T kt_pick_max(T a, T b) { return a > b ? a : b; }
template <class T> KT_FN T kt_pick_min(T a, T b) { return a < b ? a : b; }
#define KT_ARGMAX(T)                                                                \
  KT_FN void kt_argmax(KT_LOCAL T& best, KT_LOCAL kt_i32& at, T x, kt_i32 i) {      \
    bool nan = best != best, new_nan = x != x;                                      \
    bool better = new_nan ? !nan || i < at : !nan && (x > best || (x == best && i < at)); \
    best = better ? x : best;                                                       \
    at = better ? i : at;                                                           \
  }
KT_ARGMAX(float)
KT_ARGMAX(bool)
KT_ARGMAX(kt_i8)
KT_ARGMAX(kt_u8)
KT_ARGMAX(kt_i16)
KT_ARGMAX(kt_u16)
KT_ARGMAX(kt_i32)
KT_ARGMAX(kt_u32)
KT_ARGMAX(kt_i64)
KT_ARGMAX(kt_u64)

// Prints, on devices without printf: writes a record into a log, both as kittens/codegen/printing.py has them. Of a full log
// nothing is taken any more, so that the words taken stay far below 2^32.
template <int N>
KT_FN void kt_record(kt_out log, kt_u32 message, const KT_LOCAL kt_u64* values KT_SITE) {
  const kt_u32 room = kt_ld_global_b32(log + 8 KT_PASS_SITE);
  kt_u32 at = kt_u32(kt_atomic_add_i32(log, 0 KT_PASS_SITE));
  if (at < room) at = kt_u32(kt_atomic_add_i32(log, N + 1 KT_PASS_SITE));
  if (at + kt_u32(N) >= room) {
    kt_atomic_add_i32(log + 4, 1 KT_PASS_SITE);
    return;
  }
  const kt_out to = log + 16 + 8 * kt_u64(at);
  kt_st_global_b64(to, kt_make_u32x2(message, 0u) KT_PASS_SITE);
  KT_EACH(i, N)
    kt_st_global_b64(to + 8 + 8 * i, kt_make_u32x2(kt_u32(values[i]), kt_u32(values[i] >> 32)) KT_PASS_SITE);
}
#define KT_RECORD(log, message, ...)                      \
  do {                                                    \
    const kt_u64 kt_x[] = {__VA_ARGS__};                  \
    kt_record<int(sizeof(kt_x) / 8)>(log, message, kt_x); \
  } while (0)

// x times two powers of two, given by their codes (255 is NaN): with no overflow on the way.
KT_FN float kt_scale_e8m0(float x, kt_u8 a, kt_u8 b) {
  return a == 255 || b == 255 ? kt_from_bits(0x7fc00000u) : kt_scale(x, kt_i32(a) + kt_i32(b) - 254);
}
