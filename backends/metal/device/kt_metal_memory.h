// Loads and stores. Widths are in bits; an address is a multiple of its width.
#pragma once

// The program's threadgroup memory, `bytes` of it: `KT_SHARED_MEMORY(smem, 4096);` in the kernel's body declares kt_smem
// smem.
#ifndef KT_SIM
#define KT_SHARED_MEMORY(name, bytes)                  \
  threadgroup uint4 name##_memory[((bytes) + 15) / 16]; \
  const kt_smem name = (threadgroup uchar*)name##_memory
#define KT_LOAD_GLOBAL(T, p) (*(const device T*)(p))
#define KT_STORE_GLOBAL(T, p, v) (*(device T*)(p) = (v))
#define KT_LOAD_SHARED(T, p) (*(const threadgroup T*)(p))
#define KT_STORE_SHARED(T, p, v) (*(threadgroup T*)(p) = (v))
#endif

#include "kt_pointers.h"

// ---- global memory

// For data that is read or written once; Metal has no word for it.
KT_FN kt_u32x4 kt_ld_global_once_b128(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(uint4, p); }
KT_FN void kt_st_global_once_b128(kt_out p, kt_u32x4 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(uint4, p, v); }

KT_FN void kt_prefetch(kt_in p) { (void)p; }  // Metal has no word for it

// Adds at once for all threads of the grid and returns what was there. The order of additions is not fixed.
KT_FN float kt_atomic_add_f32(kt_out p, float v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_global((void*)p, v),
                   atomic_fetch_add_explicit((device atomic_float*)p, v, memory_order_relaxed));
}
KT_FN kt_i32 kt_atomic_add_i32(kt_out p, kt_i32 v KT_SITE) {
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_global((void*)p, v),
                   atomic_fetch_add_explicit((device atomic_int*)p, v, memory_order_relaxed));
}
// The turn of a counter, which has come when a program begins whose launch begins when those before it have ended; who waits
// for a later one waits for ever. With no counter nothing is waited for.
KT_FN void kt_added() {}
KT_FN void kt_turn_wait(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
  KT_NATIVE(kt_sim::turn_wait((void*)counter, turn),
            while (kt_i64(atomic_load_explicit((device atomic_int*)counter, memory_order_relaxed)) != turn) {});
}
KT_FN void kt_turn_pass(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
  KT_NATIVE(kt_sim::turn_pass((void*)counter, turn),
            atomic_store_explicit((device atomic_int*)counter, kt_i32(turn + 1), memory_order_relaxed));
}
#define KT_ATOMIC_64
// Metal adds no 64 bits at once: the lower half first, and its carry with the upper. Right when all additions are done.
KT_FN void kt_atomic_add_u64(kt_out p, kt_u64 v KT_SITE) {
  kt_u32 low = kt_u32(v), old = kt_u32(kt_atomic_add_i32(p, kt_i32(low) KT_PASS_SITE));
  kt_atomic_add_i32(p + 4, kt_i32(kt_u32(v >> 32) + (old + low < old ? 1u : 0u)) KT_PASS_SITE);
}

// ---- threadgroup memory

KT_FN kt_i32 kt_atomic_add_shared_i32(kt_smem p, kt_i32 v KT_SITE) {  // Metal has no float atomics in threadgroup memory
  KT_HERE;
  return KT_NATIVE(kt_sim::atomic_add_shared(p, v),
                   atomic_fetch_add_explicit((threadgroup atomic_int*)p, v, memory_order_relaxed));
}

// ---- copies from global to threadgroup memory
// Metal has no asynchronous ones that can be relied on: these are plain copies behind the names that other devices have.

// Copies `bytes` (0 .. the width) from src and fills the rest of the width with zeros. With 0 bytes src is not read.
#define KT_COPY(WIDTH, LOAD, STORE, TYPE)                                                                        \
  if (bytes == WIDTH##u) STORE(dst, LOAD(src KT_PASS_SITE) KT_PASS_SITE);                                        \
  else if (bytes == 0u) STORE(dst, TYPE(0u) KT_PASS_SITE);                                                       \
  else for (kt_u32 i = 0u; i < WIDTH##u; ++i)                                                                    \
    kt_st_shared_b8(dst + i, i < bytes ? kt_ld_global_b8(src + i KT_PASS_SITE) : kt_u8(0u) KT_PASS_SITE)

KT_FN void kt_cp_async_b32(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) { KT_COPY(4, kt_ld_global_b32, kt_st_shared_b32, uint); }
KT_FN void kt_cp_async_b64(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) { KT_COPY(8, kt_ld_global_b64, kt_st_shared_b64, uint2); }
KT_FN void kt_cp_async_b128(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) { KT_COPY(16, kt_ld_global_b128, kt_st_shared_b128, uint4); }
KT_FN void kt_cp_async_commit() {}
template <int N>
KT_FN void kt_cp_async_wait() {}
