// Makes CUDA source mean something to a host compiler: the words of the language, the functions that NVRTC has built in,
// and what the instructions of the device headers do.
#pragma once
#include "kt_engine.h"
#include "kt_sim_device.h"

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline  // the compiler knows better what pays on a CPU
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static_assert(false, "shared memory is declared by KT_SHARED_MEMORY alone");

#define KT_ASM(meaning, ...) meaning
#define KT_ASM_PURE(meaning, ...) meaning
#define KT_SHARED_MEMORY(name, ...) const kt_smem name = kt_sim::kSharedBase

namespace kt_sim {

struct Index {
  u32 x, y, z;
};
inline Index thread_index() {
  const Worker& w = *worker;
  u32 t = w.lane->thread % w.threads;
  return {t % w.block[0], t / w.block[0] % w.block[1], t / (w.block[0] * w.block[1])};
}
inline Index program_index() { return {worker->program[0] + worker->lane->block, worker->program[1], worker->program[2]}; }
inline Index program_size() { return {worker->block[0], worker->block[1], worker->block[2]}; }
inline Index grid_size() { return {worker->grid[0], worker->grid[1], worker->grid[2]}; }

// ---- ldmatrix, stmatrix

struct MatrixRows {
  u64 row;  // offset in shared memory of the row that this lane names
  u32 registers[4];
};

template <int COUNT, bool TRANS>
void ldmatrix_meeting(Group& g) {
  u16 rows[COUNT][8][8];
  for (int i = 0; i < COUNT * 8; i++) {
    Lane& lane = g.lane(u32(i));
    memcpy(rows[i / 8][i % 8], shared_at(lane, lane.site, g.operand<MatrixRows>(u32(i)).row, 16, 16, Read), 16);
  }
  for (u32 l = 0; l < 32; l++)
    for (int i = 0; i < COUNT; i++) {
      u32 a = l / 4, b = l % 4 * 2;
      u32 lo = TRANS ? rows[i][b][a] : rows[i][a][b], hi = TRANS ? rows[i][b + 1][a] : rows[i][a][b + 1];
      g.operand<MatrixRows>(l).registers[i] = lo | hi << 16;
    }
}
template <int COUNT, bool TRANS>
void stmatrix_meeting(Group& g) {
  u16 rows[COUNT][8][8];
  for (u32 l = 0; l < 32; l++)
    for (int i = 0; i < COUNT; i++) {
      u32 a = l / 4, b = l % 4 * 2, r = g.operand<MatrixRows>(l).registers[i];
      (TRANS ? rows[i][b][a] : rows[i][a][b]) = u16(r);
      (TRANS ? rows[i][b + 1][a] : rows[i][a][b + 1]) = u16(r >> 16);
    }
  for (int i = 0; i < COUNT * 8; i++) {
    Lane& lane = g.lane(u32(i));
    memcpy(shared_at(lane, lane.site, g.operand<MatrixRows>(u32(i)).row, 16, 16, Write), rows[i / 8][i % 8], 16);
  }
}
template <bool TRANS, class... R>
inline void ldmatrix(u32 row, R&... registers) {
  MatrixRows request{shared_offset(row), {}};
  kt_sim_meet(ldmatrix_meeting<sizeof...(R), TRANS>, &request);
  int i = 0;
  ((registers = request.registers[i++]), ...);
}
template <bool TRANS, class... R>
inline void stmatrix(u32 row, R... registers) {
  MatrixRows request{shared_offset(row), {registers...}};
  kt_sim_meet(stmatrix_meeting<sizeof...(R), TRANS>, &request);
}

// ---- mma: what an element of each type is, unpacked from a register

struct Bf16 {
  using Sum = float;
  static float at(u32 r, int i) { return bf16_value(u16(r >> 16 * i)); }
};
struct F16 {
  using Sum = float;
  static float at(u32 r, int i) { return f16_value(u16(r >> 16 * i)); }
};
struct E4m3 {
  using Sum = float;
  static float at(u32 r, int i) { return e4m3fn_value(u8(r >> 8 * i)); }
};
struct E5m2 {
  using Sum = float;
  static float at(u32 r, int i) { return e5m2_value(u8(r >> 8 * i)); }
};
struct S8 {
  using Sum = int;
  static int at(u32 r, int i) { return static_cast<signed char>(r >> 8 * i); }
};
struct F32 {
  using Sum = float;
  static float at(u32 r, int) { return __builtin_bit_cast(float, r); }
};

template <class Sum>
struct MmaOperands {
  Sum d[4];
  u32 a[4], b[2];
};
template <int K, class T>
void mma_meeting(Group& g) {
  using Sum = typename T::Sum;
  constexpr int packed = K / 8;  // elements of K in a register
  Sum a[16][K], b[K][8], d[16][8];
  for (int l = 0; l < 32; l++) {
    const auto& o = g.operand<MmaOperands<Sum>>(u32(l));
    int row = l / 4, t = l % 4;
    for (int i = 0; i < packed; i++) {
      a[row][packed * t + i] = T::at(o.a[0], i);
      a[row + 8][packed * t + i] = T::at(o.a[1], i);
      a[row][packed * t + K / 2 + i] = T::at(o.a[2], i);
      a[row + 8][packed * t + K / 2 + i] = T::at(o.a[3], i);
      b[packed * t + i][row] = T::at(o.b[0], i);
      b[packed * t + K / 2 + i][row] = T::at(o.b[1], i);
    }
    for (int i = 0; i < 4; i++) d[row + i / 2 * 8][2 * t + i % 2] = o.d[i];
  }
  product(d, a, b);
  for (int l = 0; l < 32; l++)
    for (int i = 0; i < 4; i++) g.operand<MmaOperands<Sum>>(u32(l)).d[i] = d[l / 4 + i / 2 * 8][l % 4 * 2 + i % 2];
}
template <int K, class T, class Sum>
inline void mma(Sum& d0, Sum& d1, Sum& d2, Sum& d3, u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
  MmaOperands<Sum> o{{d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}};
  kt_sim_meet(mma_meeting<K, T>, &o);
  d0 = o.d[0], d1 = o.d[1], d2 = o.d[2], d3 = o.d[3];
}
inline void mma_f32(float& d0, float& d1, float& d2, float& d3, float a0, float a1, float a2, float a3, float b0, float b1) {
  auto bits = [](float x) { return __builtin_bit_cast(u32, x); };
  mma<8, F32>(d0, d1, d2, d3, bits(a0), bits(a1), bits(a2), bits(a3), bits(b0), bits(b1));
}

}  // namespace kt_sim

// ---- what NVRTC has built in

#define threadIdx (kt_sim::thread_index())
#define blockIdx (kt_sim::program_index())
#define blockDim (kt_sim::program_size())
#define gridDim (kt_sim::grid_size())

inline void __syncthreads() { kt_sim::barrier(); }
inline void __syncwarp(unsigned) { kt_sim::sync_group(); }
template <class T> inline T __shfl_sync(unsigned, T x, int lane) { return kt_sim::shuffle(x, unsigned(lane)); }
template <class T> inline T __shfl_xor_sync(unsigned, T x, int mask) { return kt_sim::shuffle_xor(x, unsigned(mask)); }
template <class T> inline T __shfl_up_sync(unsigned, T x, unsigned by) { return kt_sim::shuffle_up(x, by); }
template <class T> inline T __shfl_down_sync(unsigned, T x, unsigned by) { return kt_sim::shuffle_down(x, by); }
inline int __any_sync(unsigned, int yes) { return kt_sim::ballot(yes) != 0; }
inline int __all_sync(unsigned, int yes) { return kt_sim::ballot(!yes) == 0; }
inline unsigned __ballot_sync(unsigned, int yes) { return unsigned(kt_sim::ballot(yes)); }

inline unsigned __float_as_uint(float x) { return __builtin_bit_cast(unsigned, x); }
inline float __uint_as_float(unsigned x) { return __builtin_bit_cast(float, x); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float x) { return __builtin_sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }

#include "kt_hopper_shim.h"
