// Makes Metal source mean something to a host compiler: address spaces stay distinct types, as in Metal; of the standard
// library there is what the device headers use, and no more, so that a name outside of it is an error here too.
#pragma once
#include "kt_sim_device.h"

#define KT_NATIVE(meaning, native) meaning
#define KT_FN static inline  // the compiler knows better what pays on a CPU
#define KT_SHARED_MEMORY(name, bytes) const kt_smem name = (kt_smem)kt_sim::worker->shared
#define KT_LOAD_GLOBAL(T, p) kt_sim::load_global<T>((const void*)(p))
#define KT_STORE_GLOBAL(T, p, v) kt_sim::store_global<T>((void*)(p), v)
#define KT_LOAD_SHARED(T, p) kt_sim::load_shared<T>(p)
#define KT_STORE_SHARED(T, p, v) kt_sim::store_shared<T>(p, v)

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;
struct bfloat {
  ushort bits;
};
typedef uint uint2 __attribute__((ext_vector_type(2)));
typedef uint uint3 __attribute__((ext_vector_type(3)));
typedef uint uint4 __attribute__((ext_vector_type(4)));
typedef float float2 __attribute__((ext_vector_type(2)));
typedef float float4 __attribute__((ext_vector_type(4)));
typedef half half2 __attribute__((ext_vector_type(2)));
struct bfloat2 {
  bfloat x, y;
  bfloat& operator[](int i) { return i ? y : x; }
};

namespace kt_sim {

template <class T> struct Pair;
template <> struct Pair<float> { using type = float2; static float value(float2 p, int i) { return p[i]; } };
template <> struct Pair<half> { using type = half2; static float value(half2 p, int i) { return float(p[i]); } };
template <> struct Pair<bfloat> {
  using type = bfloat2;
  static float value(bfloat2 p, int i) { return bf16_value(i ? p.y.bits : p.x.bits); }
};
inline int matrix_row(int lane) { return lane >> 4 << 2 | (lane >> 1 & 3); }
inline int matrix_column(int lane) { return (lane >> 3 & 1) << 2 | (lane & 1) << 1; }

template <class A, class B>
struct MmaOperands {
  typename Pair<A>::type a;
  typename Pair<B>::type b;
  float2 c;
};
template <class A, class B>
void mma_meeting(Group& g) {
  float a[8][8], b[8][8], d[8][8];
  MmaOperands<A, B>* operands[32];
  for (int l = 0; l < 32; l++) operands[l] = &g.operand<MmaOperands<A, B>>(u32(l));
#pragma unroll  // the places of elements are constants then
  for (int l = 0; l < 32; l++) {
    int r = matrix_row(l), c = matrix_column(l);
    for (int i = 0; i < 2; i++) {
      a[r][c + i] = Pair<A>::value(operands[l]->a, i);
      b[r][c + i] = Pair<B>::value(operands[l]->b, i);
      d[r][c + i] = operands[l]->c[i];
    }
  }
  product(d, a, b);
#pragma unroll
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 2; i++) operands[l]->c[i] = d[matrix_row(l)][matrix_column(l) + i];
}

// Products of M by N tiles at once: the lanes meet once, and rows are as long as all tiles side by side.
struct TileOperands {
  float* d;
  const void *a, *b;
};
template <class T, int M, int N>
void mma_tiles_meeting(Group& g) {
  float a[8 * M][8], b[8][8 * N], d[8 * M][8 * N];
  for (int l = 0; l < 32; l++) {
    const TileOperands& o = g.operand<TileOperands>(u32(l));
    int r = matrix_row(l), c = matrix_column(l);
    typename Pair<T>::type pair;
    for (int m = 0; m < M; m++) {
      memcpy(&pair, static_cast<const u8*>(o.a) + m * sizeof pair, sizeof pair);
      for (int i = 0; i < 2; i++) a[8 * m + r][c + i] = Pair<T>::value(pair, i);
      for (int n = 0; n < N; n++) memcpy(&d[8 * m + r][8 * n + c], o.d + (m * N + n) * 2, 8);
    }
    for (int n = 0; n < N; n++) {
      memcpy(&pair, static_cast<const u8*>(o.b) + n * sizeof pair, sizeof pair);
      for (int i = 0; i < 2; i++) b[r][8 * n + c + i] = Pair<T>::value(pair, i);
    }
  }
  product(d, a, b);
  for (int l = 0; l < 32; l++)
    for (int m = 0; m < M; m++)
      for (int n = 0; n < N; n++)
        memcpy(g.operand<TileOperands>(u32(l)).d + (m * N + n) * 2, &d[8 * m + matrix_row(l)][8 * n + matrix_column(l)], 8);
}
template <class T, int M, int N>
inline void mma_tiles(float* d, const void* a, const void* b) {
  TileOperands o{d, a, b};
  kt_sim_meet(mma_tiles_meeting<T, M, N>, &o);
}

}  // namespace kt_sim

// ---- entry: a kernel's first parameters are the caller's arguments, the rest say who the thread is

namespace kt_sim {

inline uint3 threadgroup_position_in_grid() { return uint3{worker->program[0], worker->program[1], worker->program[2]}; }
inline uint3 threads_per_threadgroup() { return uint3{worker->block[0], worker->block[1], worker->block[2]}; }
inline uint3 threadgroups_per_grid() { return uint3{worker->grid[0], worker->grid[1], worker->grid[2]}; }
inline uint thread_index_in_threadgroup() { return worker->lane->thread; }
inline uint thread_index_in_simdgroup() { return lane_index(); }
inline uint simdgroup_index_in_threadgroup() { return group_index(); }

template <class... A, unsigned... I, class... IDS>
inline void call_first(void (*function)(A...), const void* const* values, Sequence<unsigned, I...>, IDS... ids) {
  auto pick = [&]<class... ALL>(void (*)(ALL...)) {
    function(Argument<__type_pack_element<I, ALL...>>::get(values[I])..., ids...);
  };
  pick(function);
}
template <unsigned COUNT, class... A, class... IDS>
inline void call_with_ids(void (*function)(A...), const void* const* values, IDS... ids) {
  call_first(function, values, __make_integer_seq<Sequence, unsigned, COUNT>(), ids...);
}
template <class... A>
inline void describe_first(void (*)(A...), int* sizes, unsigned count) {
  int all[] = {ParameterSize<A>::value..., 0};
  memcpy(sizes, all, count * sizeof(int));
  sizes[count] = 0;
}

}  // namespace kt_sim

// ---- the words of the language. `thread` is a member of the runtime too, so they come after all that uses it.

#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#define thread
#define kernel static

namespace metal {

template <class To, class From>
inline To as_type(From x) {
  return __builtin_bit_cast(To, x);
}

// ---- arithmetic
inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float rint(float x) { return __builtin_rintf(x); }
inline float fabs(float x) { return __builtin_fabsf(x); }
namespace precise {
inline float sqrt(float x) { return __builtin_sqrtf(x); }
}  // namespace precise

// ---- meetings
enum class mem_flags { mem_none, mem_device, mem_threadgroup };
inline void threadgroup_barrier(mem_flags) { kt_sim::barrier(); }
inline void simdgroup_barrier(mem_flags) { kt_sim::sync_group(); }

// Metal shuffles these types, and no bfloat, bool or 64-bit ones.
template <class T> inline constexpr bool kt_shuffles = false;
template <> inline constexpr bool kt_shuffles<float> = true;
template <> inline constexpr bool kt_shuffles<half> = true;
template <> inline constexpr bool kt_shuffles<int> = true;
template <> inline constexpr bool kt_shuffles<uint> = true;
template <> inline constexpr bool kt_shuffles<short> = true;
template <> inline constexpr bool kt_shuffles<ushort> = true;
template <class T> requires kt_shuffles<T> T simd_shuffle(T x, ushort lane) { return kt_sim::shuffle(x, lane); }
template <class T> requires kt_shuffles<T> T simd_shuffle_xor(T x, ushort mask) { return kt_sim::shuffle_xor(x, mask); }
template <class T> requires kt_shuffles<T> T simd_shuffle_up(T x, ushort by) { return kt_sim::shuffle_up(x, by); }
template <class T> requires kt_shuffles<T> T simd_shuffle_down(T x, ushort by) { return kt_sim::shuffle_down(x, by); }
struct simd_vote {
  typedef ulong vote_t;
  vote_t bits;
  explicit operator vote_t() const { return bits; }
};
inline simd_vote simd_ballot(bool yes) { return {ulong(kt_sim::ballot(yes))}; }
inline bool simd_any(bool yes) { return kt_sim::ballot(yes) != 0; }
inline bool simd_all(bool yes) { return kt_sim::ballot(!yes) == 0; }

// ---- simdgroup_matrix
template <class T, int COLUMNS, int ROWS>
struct simdgroup_matrix {
  static_assert(COLUMNS == 8 && ROWS == 8, "a simdgroup_matrix is 8x8");
  typename kt_sim::Pair<T>::type elements;
  typename kt_sim::Pair<T>::type& thread_elements() { return elements; }
};
template <class A, class B>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<float, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                          simdgroup_matrix<B, 8, 8> b, simdgroup_matrix<float, 8, 8> c) {
  kt_sim::MmaOperands<A, B> o{a.elements, b.elements, c.elements};
  kt_sim_meet(kt_sim::mma_meeting<A, B>, &o);
  d.elements = o.c;
}

}  // namespace metal
using metal::as_type;
