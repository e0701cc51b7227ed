// Makes HIP source mean something to a host compiler: the words of the language, and the AMDGPU builtins that the device
// headers use, done by the simulator.
#pragma once
#include "kt_sim_device.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline  // the compiler knows better what pays on a CPU
#define __launch_bounds__(...)
#define __shared__ static_assert(false, "shared memory is declared by KT_SHARED_MEMORY alone");
#define amdgpu_flat_work_group_size(...) unused

#define KT_GLOBAL
#define KT_LDS
#define KT_NATIVE(meaning, native) meaning
#define KT_SHARED_MEMORY(name, ...) const kt_smem name = kt_sim::worker->shared
#define KT_LOAD_GLOBAL(T, p) kt_sim::load_global<T>(p)
#define KT_STORE_GLOBAL(T, p, v) kt_sim::store_global<T>(p, v)
#define KT_LOAD_SHARED(T, p) kt_sim::load_shared<T>(p)
#define KT_STORE_SHARED(T, p, v) kt_sim::store_shared<T>(p, v)

namespace kt_sim {

typedef u32 U32x2 __attribute__((ext_vector_type(2)));
typedef u32 U32x4 __attribute__((ext_vector_type(4)));

// ---- buffers with a range: dwords outside read as 0 and are not written

struct Buffer {
  u8* base;
  u32 bytes;
};
template <class T>
inline T buffer_load(Buffer b, u32 offset) {
  u32 words[sizeof(T) / 4];
  for (u32 i = 0; i < sizeof(T) / 4; i++) {
    u64 at = u64(offset) + i * 4;
    words[i] = at + 4 <= b.bytes ? load_global<u32>(b.base + at) : 0;
  }
  return __builtin_bit_cast(T, words);
}
template <class T>
inline void buffer_store(Buffer b, u32 offset, T value) {
  u32 words[sizeof(T) / 4];
  memcpy(words, &value, sizeof words);
  for (u32 i = 0; i < sizeof(T) / 4; i++) {
    u64 at = u64(offset) + i * 4;
    if (at + 4 <= b.bytes) store_global<u32>(b.base + at, words[i]);
  }
}

// ---- direct copies: the destination is the group's, its base the same in every lane

struct DirectCopy {
  u64 base;
};
inline void direct_copy_meeting(Group& g) {
  for (u32 i = 1; i < g.count; i++)
    if (g.operand<DirectCopy>(i).base != g.operand<DirectCopy>(0).base)
      kt_sim_fault(FaultKind::Divergent, &g.lane(i), g.lane(i).site,
                   "a direct copy to shared memory needs the same base in every lane; lane %u has another than lane 0", i);
}
inline void direct_copy(u8* base, const u8* source, bool inside, u32 bytes) {
  DirectCopy request{u64(base)};
  kt_sim_meet(direct_copy_meeting, &request);
  async_copy(base + lane_index() * bytes, source, inside ? bytes : 0, bytes);
  async_commit();
}
inline void buffer_direct_copy(Buffer b, u8* base, u32 bytes, u32 offset) {
  direct_copy(base, b.base + offset, u64(offset) + bytes <= b.bytes, bytes);
}
struct WaitLoads {
  u32 left;
};
inline void wait_loads_meeting(Group& g) {  // a wave waits as one
  for (u32 i = 0; i < g.count; i++) {
    worker->lane = &g.lane(i);
    async_wait(g.operand<WaitLoads>(i).left);
  }
  kt_sim_group_sync(g);
}
inline void waitcnt(u32 code) {
  u32 loads = (code & 15) | (code >> 14 & 3) << 4;
  if (loads == 63) return;  // of shared memory alone
  WaitLoads request{loads};
  Lane* me = worker->lane;
  kt_sim_meet(wait_loads_meeting, &request);
  worker->lane = me;
}

// ---- lanes

inline int dpp_source(u32 control, int lane) {
  int row = lane & ~15, i = lane & 15, n = int(control & 15);
  if (control < 0x100) return (lane & ~3) | int(control >> 2 * (lane & 3) & 3);  // quad_perm
  switch (control & 0x1f0) {
    case 0x100: return i + n < 16 ? lane + n : -1;  // row_shl
    case 0x110: return i >= n ? lane - n : -1;      // row_shr
    case 0x120: return row | ((i - n) & 15);        // row_ror
    case 0x150: return row | n;                     // row_newbcast
  }
  if (control == 0x140) return row | (15 - i);          // row_mirror
  if (control == 0x141) return (lane & ~7) | (7 - (lane & 7));  // row_half_mirror
  kt_sim_fault(FaultKind::Assertion, nullptr, worker->site, "the simulator does not know DPP control 0x%x", control);
}
inline int mov_dpp(int value, u32 control) {
  int source = dpp_source(control, int(lane_index()));
  int moved = shuffle(value, source < 0 ? 0 : u32(source));
  return source < 0 ? 0 : moved;
}
inline int swizzle(int value, u32 pattern) {
  u32 l = lane_index();
  u32 source = pattern & 0x8000 ? (l & ~3u) | (pattern >> 2 * (l & 3) & 3)
                                : (l & 32) | ((((l & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31));
  return shuffle(value, source);
}
template <u32 W>
inline U32x2 permlane_swap(u32 a, u32 b) {  // odd groups of W lanes of a with the even ones of b
  u32 l = lane_index();
  bool odd = l / W & 1;
  u32 from_b = shuffle(b, l ^ W), from_a = shuffle(a, l ^ W);
  return odd ? U32x2{from_b, b} : U32x2{a, from_a};
}

// ---- transposing reads

struct Transposed {
  u64 offset, result;
};
template <u32 BITS>
inline void read_transposed_meeting(Group& g) {
  constexpr u32 E = 64 / BITS;
  u64 words[kMaxLanes];
  for (u32 l = 0; l < g.count; l++)
    memcpy(&words[l], shared_at(g.lane(l), g.lane(l).site, g.operand<Transposed>(l).offset, 8, 8, Read), 8);
  for (u32 l = 0; l < g.count; l++) {
    u32 row = l & ~15u, i = l & 15u;
    u64 r = 0, mask = (1ull << BITS) - 1;
    for (u32 j = 0; j < E; j++) r |= (words[row + 16 / E * j + i / E] >> i % E * BITS & mask) << j * BITS;
    g.operand<Transposed>(l).result = r;
  }
}
template <u32 BITS>
inline U32x2 read_transposed(const void* p) {
  Transposed request{shared_offset(p), 0};
  kt_sim_meet(read_transposed_meeting<BITS>, &request);
  return __builtin_bit_cast(U32x2, request.result);
}

// ---- matrix instructions. T: an element's type; a lane's elements lie one after the other in its registers.

struct Bf16 { using Raw = u16; using Sum = float; static float value(u16 x) { return bf16_value(x); } };
struct F16 { using Raw = u16; using Sum = float; static float value(u16 x) { return f16_value(x); } };
struct F32 { using Raw = float; using Sum = float; static float value(float x) { return x; } };
struct I8 { using Raw = signed char; using Sum = int; static int value(signed char x) { return x; } };
#if defined(__gfx942__)
struct Fp8 { using Raw = u8; using Sum = float; static float value(u8 x) { return e4m3fnuz_value(x); } };
struct Bf8 { using Raw = u8; using Sum = float; static float value(u8 x) { return e5m2fnuz_value(x); } };
#else
struct Fp8 { using Raw = u8; using Sum = float; static float value(u8 x) { return e4m3fn_value(x); } };
struct Bf8 { using Raw = u8; using Sum = float; static float value(u8 x) { return e5m2_value(x); } };
#endif

enum class Family { Cdna, Rdna3, Rdna4 };
#if defined(__gfx942__) || defined(__gfx950__)
constexpr Family kFamily = Family::Cdna;
#elif defined(__gfx1201__)
constexpr Family kFamily = Family::Rdna4;
#else
constexpr Family kFamily = Family::Rdna3;
#endif

template <int M>
constexpr int row_of(int lane, int r) {  // of d, whose column is lane % M
  if (kFamily == Family::Cdna) return M == 16 ? 4 * (lane / 16) + r : 8 * (r / 4) + 4 * (lane / 32) + r % 4;
  return kFamily == Family::Rdna4 ? 8 * (lane / 16) + r : 2 * r + lane / 16;
}

template <int M, int EACH, int BYTES>
constexpr int k_of(int lane, int e) {  // of element e of a lane
  if (kFamily == Family::Rdna3) return e;
  if (kFamily == Family::Rdna4 && BYTES == 2) return (e & 3) | lane / 16 << 2 | e >> 2 << 3;
  if (EACH == 32) return e < 16 ? lane / M * 16 + e : 1024 / M + lane / M * 16 + e - 16;  // in chunks of 16
  return lane / M * EACH + e;
}

struct MatrixOperands {
  const void *a, *b;
  void* d;
};
template <int M, int K, class T>
void matrix_meeting(Group& g) {
  using Sum = typename T::Sum;
  constexpr int lanes = kFamily == Family::Cdna ? 64 : 32, rows = M * M / lanes;
  constexpr int each = kFamily == Family::Rdna3 ? K : K * M / lanes;  // elements of an operand in a lane
  Sum a[M][K], b[K][M], d[M][M];
  for (int l = 0; l < lanes; l++) {
    const auto& o = g.operand<MatrixOperands>(u32(l));
    typename T::Raw ra[each], rb[each];
    Sum rd[rows];
    memcpy(ra, o.a, sizeof ra);
    memcpy(rb, o.b, sizeof rb);
    memcpy(rd, o.d, sizeof rd);
    for (int e = 0; e < each; e++) {
      int k = k_of<M, each, sizeof(typename T::Raw)>(l, e);
      a[l % M][k] = T::value(ra[e]);
      b[k][l % M] = T::value(rb[e]);
    }
    for (int r = 0; r < rows; r++) d[row_of<M>(l, r)][l % M] = rd[r];
  }
  product(d, a, b);
  for (int l = 0; l < lanes; l++) {
    Sum rd[rows];
    for (int r = 0; r < rows; r++) rd[r] = d[row_of<M>(l, r)][l % M];
    memcpy(g.operand<MatrixOperands>(u32(l)).d, rd, sizeof rd);
  }
}
template <int M, int K, class T, class A, class B, class D>
inline D matrix(A a, B b, D d) {
  static_assert(sizeof(D) * (kFamily == Family::Cdna ? 64 : 32) == M * M * 4, "registers of the sum");
  MatrixOperands request{&a, &b, &d};
  kt_sim_meet(matrix_meeting<M, K, T>, &request);
  return d;
}

}  // namespace kt_sim

// ---- builtins

#define __builtin_amdgcn_workitem_id_x() (kt_sim::worker->lane->thread)
#define __builtin_amdgcn_workgroup_id_x() (kt_sim::worker->program[0])
#define __builtin_amdgcn_workgroup_id_y() (kt_sim::worker->program[1])
#define __builtin_amdgcn_workgroup_id_z() (kt_sim::worker->program[2])
#define __builtin_amdgcn_readfirstlane(x) (x)  // the device headers use it on what is the same in every lane
#define __builtin_amdgcn_fence(...) ((void)0)
#define __builtin_amdgcn_s_barrier() kt_sim::barrier()
#define __builtin_amdgcn_wave_barrier() kt_sim::sync_group()
#define __builtin_amdgcn_s_waitcnt(code) kt_sim::waitcnt(code)
#define __builtin_amdgcn_sched_barrier(mask) ((void)0)
#define __builtin_amdgcn_s_setprio(level) ((void)0)
#define __builtin_amdgcn_ds_bpermute(address, x) kt_sim::shuffle(x, unsigned(address) >> 2)
#define __builtin_amdgcn_mov_dpp(x, control, rows, banks, bound) kt_sim::mov_dpp(x, control)
#define __builtin_amdgcn_ds_swizzle(x, pattern) kt_sim::swizzle(x, pattern)
#define __builtin_amdgcn_permlane32_swap(a, b, fi, bc) kt_sim::permlane_swap<32>(a, b)
#define __builtin_amdgcn_permlane16_swap(a, b, fi, bc) kt_sim::permlane_swap<16>(a, b)
#define __builtin_amdgcn_ballot_w64(yes) kt_sim::ballot(yes)
#define __builtin_amdgcn_ballot_w32(yes) kt_sim::ballot(yes)

#define __builtin_amdgcn_make_buffer_rsrc(p, stride, bytes, flags) (kt_sim::Buffer{(kt_sim::u8*)(p), kt_sim::u32(bytes)})
#define __builtin_amdgcn_raw_buffer_load_b32(b, offset, s, aux) kt_sim::buffer_load<kt_sim::u32>(b, offset)
#define __builtin_amdgcn_raw_buffer_load_b64(b, offset, s, aux) kt_sim::buffer_load<kt_sim::U32x2>(b, offset)
#define __builtin_amdgcn_raw_buffer_load_b128(b, offset, s, aux) kt_sim::buffer_load<kt_sim::U32x4>(b, offset)
#define __builtin_amdgcn_raw_buffer_store_b32(v, b, offset, s, aux) kt_sim::buffer_store(b, offset, v)
#define __builtin_amdgcn_raw_buffer_store_b64(v, b, offset, s, aux) kt_sim::buffer_store(b, offset, v)
#define __builtin_amdgcn_raw_buffer_store_b128(v, b, offset, s, aux) kt_sim::buffer_store(b, offset, v)
#define __builtin_amdgcn_global_load_lds(p, base, bytes, offset, aux) kt_sim::direct_copy(base, p, true, bytes)
#define __builtin_amdgcn_raw_ptr_buffer_load_lds(b, base, bytes, v, s, offset, aux) kt_sim::buffer_direct_copy(b, base, bytes, v)
#define __builtin_amdgcn_ds_read_tr16_b64_v4i16(p) kt_sim::read_transposed<16>(p)
#define __builtin_amdgcn_ds_read_tr8_b64_v2i32(p) kt_sim::read_transposed<8>(p)

#define __builtin_amdgcn_exp2f(x) kt_soft_exp2(x)
#define __builtin_amdgcn_rsqf(x) kt_soft_rsqrt(x)
#define __builtin_amdgcn_fmed3f(x, a, b) kt_min(kt_max(x, b), a)

#define __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, d, x, y, z) kt_sim::matrix<16, 16, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, d, x, y, z) kt_sim::matrix<32, 8, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, d, x, y, z) kt_sim::matrix<16, 16, kt_sim::F16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x8f16(a, b, d, x, y, z) kt_sim::matrix<32, 8, kt_sim::F16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x4f32(a, b, d, x, y, z) kt_sim::matrix<16, 4, kt_sim::F32>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x2f32(a, b, d, x, y, z) kt_sim::matrix<32, 2, kt_sim::F32>(a, b, d)
#define __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, d, x, y, z) kt_sim::matrix<16, 32, kt_sim::I8>(a, b, d)
#define __builtin_amdgcn_mfma_i32_32x32x16_i8(a, b, d, x, y, z) kt_sim::matrix<32, 16, kt_sim::I8>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(a, b, d, x, y, z) kt_sim::matrix<16, 32, kt_sim::Fp8>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x16_fp8_fp8(a, b, d, x, y, z) kt_sim::matrix<32, 16, kt_sim::Fp8>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf8_bf8(a, b, d, x, y, z) kt_sim::matrix<16, 32, kt_sim::Bf8>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf8_bf8(a, b, d, x, y, z) kt_sim::matrix<32, 16, kt_sim::Bf8>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x32_bf16(a, b, d, x, y, z) kt_sim::matrix<16, 32, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x16_bf16(a, b, d, x, y, z) kt_sim::matrix<32, 16, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_16x16x32_f16(a, b, d, x, y, z) kt_sim::matrix<16, 32, kt_sim::F16>(a, b, d)
#define __builtin_amdgcn_mfma_f32_32x32x16_f16(a, b, d, x, y, z) kt_sim::matrix<32, 16, kt_sim::F16>(a, b, d)
template <int M, int K, int FORMAT, class A, class B, class D>
inline D kt_sim_f8f6f4(A a, B b, D d) {
  if constexpr (FORMAT == 0) return kt_sim::matrix<M, K, kt_sim::Fp8>(a, b, d);
  else return kt_sim::matrix<M, K, kt_sim::Bf8>(a, b, d);
}
#define __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(a, b, d, format, fb, oa, sa, ob, sb) \
  (kt_sim_f8f6f4<16, 128, format>(a, b, d))
#define __builtin_amdgcn_mfma_scale_f32_32x32x64_f8f6f4(a, b, d, format, fb, oa, sa, ob, sb) \
  (kt_sim_f8f6f4<32, 64, format>(a, b, d))
#define __builtin_amdgcn_mfma_i32_16x16x64_i8(a, b, d, x, y, z) kt_sim::matrix<16, 64, kt_sim::I8>(a, b, d)
#define __builtin_amdgcn_mfma_i32_32x32x32_i8(a, b, d, x, y, z) kt_sim::matrix<32, 32, kt_sim::I8>(a, b, d)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, d) kt_sim::matrix<16, 16, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, d) kt_sim::matrix<16, 16, kt_sim::F16>(a, b, d)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(sa, a, sb, b, d, clamp) kt_sim::matrix<16, 16, kt_sim::I8>(a, b, d)
#define __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, d) kt_sim::matrix<16, 16, kt_sim::Bf16>(a, b, d)
#define __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, d) kt_sim::matrix<16, 16, kt_sim::F16>(a, b, d)
#define __builtin_amdgcn_wmma_f32_16x16x16_fp8_fp8_w32_gfx12(a, b, d) kt_sim::matrix<16, 16, kt_sim::Fp8>(a, b, d)
#define __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(sa, a, sb, b, d, clamp) kt_sim::matrix<16, 16, kt_sim::I8>(a, b, d)
