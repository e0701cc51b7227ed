// Loads, stores and copies. Widths are in bits; an address is a multiple of its width.
#pragma once

// The program's shared memory: `KT_SHARED_MEMORY(smem, 4096);` declares kt_smem smem. With the size, the compiler
// knows the address (0) and refuses what the target does not have; without, the one given at launch counts.
#ifndef KT_SIM
extern __shared__ __attribute__((aligned(1024))) kt_u8 kt_shared_bytes[];
template <int BYTES = 0>
KT_FN kt_smem kt_shared_memory() {
  __shared__ __attribute__((aligned(1024))) kt_u8 bytes[BYTES];
  return (kt_smem)bytes;
}
template <>
__device__ __forceinline__ kt_smem kt_shared_memory<0>() { return (kt_smem)kt_shared_bytes; }
#define KT_SHARED_MEMORY(name, ...) const kt_smem name = kt_shared_memory<__VA_ARGS__>()
#define KT_LOAD_GLOBAL(T, p) (*(const KT_GLOBAL T*)(p))
#define KT_STORE_GLOBAL(T, p, v) (*(KT_GLOBAL T*)(p) = (v))
#define KT_LOAD_SHARED(T, p) (*(const KT_LDS T*)(p))
#define KT_STORE_SHARED(T, p, v) (*(KT_LDS T*)(p) = (v))
#endif

#include "kt_pointers.h"

// ---- global memory

// As kt_ld_global_b128, for data that is read once: not kept in the caches.
KT_FN kt_u32x4 kt_ld_global_once_b128(kt_in p KT_SITE) {
  KT_HERE;
  return KT_NATIVE(KT_LOAD_GLOBAL(kt_u32x4, p), __builtin_nontemporal_load((const KT_GLOBAL kt_u32x4*)p));
}

KT_FN void kt_st_global_once_b128(kt_out p, kt_u32x4 v KT_SITE) {
  KT_HERE;
  KT_NATIVE(KT_STORE_GLOBAL(kt_u32x4, p, v), __builtin_nontemporal_store(v, (KT_GLOBAL kt_u32x4*)p));
}

// A hint that the line at p will be read. This target's own way to do it would be a load, so it does nothing.
KT_FN void kt_prefetch(kt_in p) { (void)p; }

// Adds at once for all threads of the grid and returns what was there. The order of additions is not fixed.
KT_FN float kt_atomic_add_f32(kt_out p, float v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_global(p, v), __hip_atomic_fetch_add((KT_GLOBAL float*)p, v, __ATOMIC_RELAXED,
                                                                           __HIP_MEMORY_SCOPE_AGENT));
}
KT_FN kt_i32 kt_atomic_add_i32(kt_out p, kt_i32 v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_global(p, v), __hip_atomic_fetch_add((KT_GLOBAL kt_i32*)p, v, __ATOMIC_RELAXED,
                                                                           __HIP_MEMORY_SCOPE_AGENT));
}
// Waits until a counter is at `turn`, and sets it to the next: what one program adds to memory in between is there before
// what the next one adds. For one thread; with no counter nothing is waited for. All threads say kt_added and meet before a
// turn is passed on: a barrier alone does not wait for what groups still have under way to memory, and the release of one
// group waits for its own accesses alone.
#define KT_TURNS
KT_FN void kt_added() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
KT_FN void kt_turn_wait(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
#ifdef KT_SIM
  kt_sim::turn_wait(counter, turn);
#else
  while (__hip_atomic_load((KT_GLOBAL kt_i32*)counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) != turn)
    __builtin_amdgcn_s_sleep(1);
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent");
#endif
}
KT_FN void kt_turn_pass(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
  KT_NATIVE(kt_sim::turn_pass(counter, turn), __hip_atomic_store((KT_GLOBAL kt_i32*)counter, kt_i32(turn + 1),
                                                                __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_AGENT));
}
#define KT_ATOMIC_64
KT_FN kt_u64 kt_atomic_add_u64(kt_out p, kt_u64 v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_global(p, v), __hip_atomic_fetch_add((KT_GLOBAL kt_u64*)p, v, __ATOMIC_RELAXED,
                                                                           __HIP_MEMORY_SCOPE_AGENT));
}

// ---- global memory through a descriptor that knows its size: what lies outside reads as 0, and is not written

typedef KT_NATIVE(kt_sim::Buffer, __amdgpu_buffer_rsrc_t) kt_buffer;

#if KT_CDNA
#define KT_BUFFER_FLAGS 0x00027000
#elif defined(__gfx1201__)
#define KT_BUFFER_FLAGS 0x31004000
#else
#define KT_BUFFER_FLAGS 0x31027000
#endif
// The descriptor of `bytes` bytes from p on; every lane of a group must have the same, and the compiler is told so.
KT_FN kt_buffer kt_make_buffer(kt_in p, kt_u32 bytes) {
  kt_u64 at = (kt_u64)p;
  kt_u64 low = kt_u32(__builtin_amdgcn_readfirstlane(int(at)));
  kt_u64 high = kt_u32(__builtin_amdgcn_readfirstlane(int(at >> 32)));
  int range = __builtin_amdgcn_readfirstlane(int(bytes));
  return __builtin_amdgcn_make_buffer_rsrc(
      KT_NATIVE((void*)p, (void*)(kt_in)(low | high << 32)), 0, range, KT_BUFFER_FLAGS);
}
// Byte offset; 4 bytes are inside or outside together. A negative one, as a large unsigned, is outside.
KT_FN kt_u32 kt_buffer_ld_b32(kt_buffer b, kt_u32 offset KT_SITE) {
  KT_HERE;
  return __builtin_amdgcn_raw_buffer_load_b32(b, int(offset), 0, 0);
}
KT_FN kt_u32x2 kt_buffer_ld_b64(kt_buffer b, kt_u32 offset KT_SITE) {
  KT_HERE;
  return kt_bit_cast<kt_u32x2>(__builtin_amdgcn_raw_buffer_load_b64(b, int(offset), 0, 0));
}
KT_FN kt_u32x4 kt_buffer_ld_b128(kt_buffer b, kt_u32 offset KT_SITE) {
  KT_HERE;
  return kt_bit_cast<kt_u32x4>(__builtin_amdgcn_raw_buffer_load_b128(b, int(offset), 0, 0));
}
KT_FN void kt_buffer_st_b32(kt_buffer b, kt_u32 offset, kt_u32 v KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_raw_buffer_store_b32(v, b, int(offset), 0, 0);
}
KT_FN void kt_buffer_st_b64(kt_buffer b, kt_u32 offset, kt_u32x2 v KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_raw_buffer_store_b64(v, b, int(offset), 0, 0);
}
KT_FN void kt_buffer_st_b128(kt_buffer b, kt_u32 offset, kt_u32x4 v KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_raw_buffer_store_b128(v, b, int(offset), 0, 0);
}

// ---- shared memory

KT_FN float kt_atomic_add_shared_f32(kt_smem p, float v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_shared(p, v), __hip_atomic_fetch_add((KT_LDS float*)p, v, __ATOMIC_RELAXED,
                                                                           __HIP_MEMORY_SCOPE_WORKGROUP));
}
KT_FN kt_i32 kt_atomic_add_shared_i32(kt_smem p, kt_i32 v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_shared(p, v), __hip_atomic_fetch_add((KT_LDS kt_i32*)p, v, __ATOMIC_RELAXED,
                                                                           __HIP_MEMORY_SCOPE_WORKGROUP));
}

// ---- copies from global to shared memory by way of registers, with the words that other targets have for such copies

// The `bytes` (0 .. the width) at src, and zeros for the rest of the width. With 0 bytes src is not read.
KT_FN kt_u32 kt_fetch_b32(kt_in src, kt_u32 bytes KT_SITE) {
  if (bytes == 4u) return kt_ld_global_b32(src KT_PASS_SITE);
  kt_u32 v = 0;
  for (kt_u32 i = 0; i < bytes; ++i) v |= kt_u32(kt_ld_global_b8(src + i KT_PASS_SITE)) << 8u * i;
  return v;
}
KT_FN kt_u32x2 kt_fetch_b64(kt_in src, kt_u32 bytes KT_SITE) {
  if (bytes == 8u) return kt_ld_global_b64(src KT_PASS_SITE);
  kt_u64 all = 0;
  for (kt_u32 i = 0; i < bytes; ++i) all |= kt_u64(kt_ld_global_b8(src + i KT_PASS_SITE)) << 8u * i;
  return kt_make_u32x2(kt_u32(all), kt_u32(all >> 32));
}
KT_FN kt_u32x4 kt_fetch_b128(kt_in src, kt_u32 bytes KT_SITE) {
  if (bytes == 16u) return kt_ld_global_b128(src KT_PASS_SITE);
  kt_u64 low = 0, high = 0;
  for (kt_u32 i = 0; i < bytes; ++i) {
    kt_u64 x = kt_ld_global_b8(src + i KT_PASS_SITE);
    if (i < 8u) low |= x << 8u * i;
    else high |= x << 8u * (i - 8u);
  }
  return kt_make_u32x4(kt_u32(low), kt_u32(low >> 32), kt_u32(high), kt_u32(high >> 32));
}
// The same into shared memory.
KT_FN void kt_cp_async_b32(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  kt_st_shared_b32(dst, kt_fetch_b32(src, bytes KT_PASS_SITE) KT_PASS_SITE);
}
KT_FN void kt_cp_async_b64(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  kt_st_shared_b64(dst, kt_fetch_b64(src, bytes KT_PASS_SITE) KT_PASS_SITE);
}
KT_FN void kt_cp_async_b128(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  kt_st_shared_b128(dst, kt_fetch_b128(src, bytes KT_PASS_SITE) KT_PASS_SITE);
}
KT_FN void kt_cp_async_commit() {}
template <int N>
KT_FN void kt_cp_async_wait() {}

#if defined(__gfx950__)
// Transposing reads: in each 16 lanes, lane l gets as element j element l % E of what lane 16/E j + l/E points at, with
// E the elements in 64 bits.
KT_FN kt_u32x2 kt_ds_read_tr16_b64(kt_smem p KT_SITE) {
  KT_HERE;
  typedef KT_VECTOR(short, 4) i16x4;
  return kt_bit_cast<kt_u32x2>(__builtin_amdgcn_ds_read_tr16_b64_v4i16((KT_LDS i16x4*)p));
}
KT_FN kt_u32x2 kt_ds_read_tr8_b64(kt_smem p KT_SITE) {
  KT_HERE;
  typedef int i32x2 __attribute__((vector_size(8)));
  return kt_bit_cast<kt_u32x2>(__builtin_amdgcn_ds_read_tr8_b64_v2i32((KT_LDS i32x2*)p));
}
#endif

// ---- direct copies from global to shared memory

#if KT_CDNA
// Each lane names its source; the data lands at base + lane * width, so base must be the same in all lanes of a group.
KT_FN void kt_load_lds_b32(kt_smem base, kt_in p KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_global_load_lds((KT_GLOBAL kt_u8*)p, base, 4, 0, 0);
}
KT_FN void kt_buffer_load_lds_b32(kt_smem base, kt_buffer b, kt_u32 offset KT_SITE) {  // zeros from outside
  KT_HERE;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(b, base, 4, int(offset), 0, 0, 0);
}
#if defined(__gfx950__)
KT_FN void kt_load_lds_b128(kt_smem base, kt_in p KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_global_load_lds((KT_GLOBAL kt_u8*)p, base, 16, 0, 0);
}
KT_FN void kt_buffer_load_lds_b128(kt_smem base, kt_buffer b, kt_u32 offset KT_SITE) {
  KT_HERE;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(b, base, 16, int(offset), 0, 0, 0);
}
#endif
// What generated code calls direct copies of each width.
KT_FN void kt_copy_linear_b32(kt_smem base, kt_buffer b, kt_u32 offset KT_SITE) {
  kt_buffer_load_lds_b32(base, b, offset KT_PASS_SITE);
}
#if defined(__gfx950__)
// In assembly, since the compiler would wait for all loads before each barrier and each transposing read otherwise. The
// address of shared memory goes through M0, which takes effect one instruction later.
KT_FN void kt_copy_linear_b128(kt_smem base, kt_buffer b, kt_u32 offset KT_SITE) {
  KT_HERE;
  KT_NATIVE(__builtin_amdgcn_raw_ptr_buffer_load_lds(b, base, 16, int(offset), 0, 0, 0),
            asm volatile("s_mov_b32 m0, %0\n\ts_nop 0\n\tbuffer_load_dwordx4 %1, %2, 0 offen lds" ::"s"(kt_u32(base)),
                         "v"(offset), "s"(b)
                         : "memory", "m0"));
}
#endif
// Waits until at most N of this group's loads from global memory, the newest, are under way (vmcnt). Register loads
// count on the device too, which can only make it wait for more; the simulator counts direct copies alone.
template <int N>
KT_FN void kt_wait_loads(KT_SITE_ONLY) {
  KT_HERE;
  static_assert(N >= 0 && N < 64, "vmcnt has 6 bits");
  __builtin_amdgcn_s_waitcnt((N & 15) | (N >> 4) << 14 | 0x0f70);
}
// The same for accesses to shared memory (lgkmcnt). The compiler waits for those it sees by itself, where their results are
// used.
template <int N>
KT_FN void kt_wait_shared() {
  KT_NATIVE((void)0, asm volatile("" ::: "memory"));
  static_assert(N >= 0 && N < 16, "lgkmcnt has 4 bits");
  __builtin_amdgcn_s_waitcnt(N << 8 | 0xc07f);
}
#endif
