// Loads, stores and copies. Widths are in bits; an address is a multiple of its width.
#pragma once

// The program's shared memory: `KT_SHARED_MEMORY(smem, 4096);` declares kt_smem smem. The size is for Metal; here the one
// given at launch counts.
#ifndef KT_SIM
extern __shared__ __align__(1024) kt_u8 kt_shared_bytes[];
#define KT_SHARED_MEMORY(name, ...) const kt_smem name = kt_smem(__cvta_generic_to_shared(kt_shared_bytes))
#endif

// ---- global memory

KT_FN kt_u8 kt_ld_global_b8(kt_in p KT_SITE) {
  KT_HERE;
  kt_u32 r;
  KT_ASM(r = kt_sim::load_global<kt_u8>(p), "ld.global.u8 %0, [%1];" : "=r"(r) : "l"(p));
  return kt_u8(r);
}
KT_FN kt_u16 kt_ld_global_b16(kt_in p KT_SITE) {
  KT_HERE;
  kt_u16 r;
  KT_ASM(r = kt_sim::load_global<kt_u16>(p), "ld.global.u16 %0, [%1];" : "=h"(r) : "l"(p));
  return r;
}
KT_FN kt_u32 kt_ld_global_b32(kt_in p KT_SITE) {
  KT_HERE;
  kt_u32 r;
  KT_ASM(r = kt_sim::load_global<kt_u32>(p), "ld.global.u32 %0, [%1];" : "=r"(r) : "l"(p));
  return r;
}
KT_FN kt_u32x2 kt_ld_global_b64(kt_in p KT_SITE) {
  KT_HERE;
  kt_u32x2 r;
  KT_ASM(r = kt_sim::load_global<kt_u32x2>(p), "ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "l"(p));
  return r;
}
KT_FN kt_u32x4 kt_ld_global_b128(kt_in p KT_SITE) {
  KT_HERE;
  kt_u32x4 r;
  KT_ASM(r = kt_sim::load_global<kt_u32x4>(p), "ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
         : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}
// As kt_ld_global_b128, for data that nobody writes while the kernel runs and that is read once: kept out of L1.
KT_FN kt_u32x4 kt_ld_global_once_b128(kt_in p KT_SITE) {
  KT_HERE;
  kt_u32x4 r;
  KT_ASM_PURE(r = kt_sim::load_global<kt_u32x4>(p),
              "ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
              : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "l"(p));
  return r;
}

KT_FN void kt_st_global_b8(kt_out p, kt_u8 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.u8 [%0], %1;" ::"l"(p), "r"(kt_u32(v)) : "memory");
}
KT_FN void kt_st_global_b16(kt_out p, kt_u16 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.u16 [%0], %1;" ::"l"(p), "h"(v) : "memory");
}
KT_FN void kt_st_global_b32(kt_out p, kt_u32 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
KT_FN void kt_st_global_b64(kt_out p, kt_u32x2 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(v.x), "r"(v.y) : "memory");
}
KT_FN void kt_st_global_b128(kt_out p, kt_u32x4 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
         "r"(v.z), "r"(v.w) : "memory");
}
// As kt_st_global_b128, for data that this kernel does not read again: evicted first.
KT_FN void kt_st_global_once_b128(kt_out p, kt_u32x4 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_global(p, v), "st.global.cs.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.x), "r"(v.y),
         "r"(v.z), "r"(v.w) : "memory");
}

// ---- global memory, guarded by a predicate: no branch, so that loads are not kept from being issued early

#define KT_PREDICATED
// Words at p if `in`, else they stay as they are.
KT_FN void kt_ld_if_b32(kt_u32& x, kt_in p, bool in KT_SITE) {
  KT_HERE;
  KT_ASM(if (in) x = kt_sim::load_global<kt_u32>(p),
         "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p ld.global.u32 %0, [%1]; }" : "+r"(x) : "l"(p), "r"(kt_u32(in)));
}
KT_FN void kt_ld_if_b64(kt_u32& x, kt_u32& y, kt_in p, bool in KT_SITE) {
  KT_HERE;
  kt_u32x2 r = kt_make_u32x2(x, y);
  KT_ASM(if (in) r = kt_sim::load_global<kt_u32x2>(p),
         "{ .reg .pred p; setp.ne.u32 p, %3, 0; @p ld.global.v2.u32 {%0, %1}, [%2]; }"
         : "+r"(r.x), "+r"(r.y) : "l"(p), "r"(kt_u32(in)));
  x = r.x;
  y = r.y;
}
KT_FN void kt_ld_if_b128(kt_u32& x, kt_u32& y, kt_u32& z, kt_u32& w, kt_in p, bool in KT_SITE) {
  KT_HERE;
  kt_u32x4 r = kt_make_u32x4(x, y, z, w);
  KT_ASM(if (in) r = kt_sim::load_global<kt_u32x4>(p),
         "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p ld.global.v4.u32 {%0, %1, %2, %3}, [%4]; }"
         : "+r"(r.x), "+r"(r.y), "+r"(r.z), "+r"(r.w) : "l"(p), "r"(kt_u32(in)));
  x = r.x;
  y = r.y;
  z = r.z;
  w = r.w;
}
KT_FN void kt_st_if_b32(kt_out p, kt_u32 x, bool in KT_SITE) {
  KT_HERE;
  KT_ASM(if (in) kt_sim::store_global(p, x), "{ .reg .pred p; setp.ne.u32 p, %2, 0; @p st.global.u32 [%0], %1; }"
         ::"l"(p), "r"(x), "r"(kt_u32(in)) : "memory");
}
KT_FN void kt_st_if_b64(kt_out p, kt_u32 x, kt_u32 y, bool in KT_SITE) {
  KT_HERE;
  KT_ASM(if (in) kt_sim::store_global(p, kt_make_u32x2(x, y)),
         "{ .reg .pred p; setp.ne.u32 p, %3, 0; @p st.global.v2.u32 [%0], {%1, %2}; }"
         ::"l"(p), "r"(x), "r"(y), "r"(kt_u32(in)) : "memory");
}
KT_FN void kt_st_if_b128(kt_out p, kt_u32 x, kt_u32 y, kt_u32 z, kt_u32 w, bool in KT_SITE) {
  KT_HERE;
  KT_ASM(if (in) kt_sim::store_global(p, kt_make_u32x4(x, y, z, w)),
         "{ .reg .pred p; setp.ne.u32 p, %5, 0; @p st.global.v4.u32 [%0], {%1, %2, %3, %4}; }"
         ::"l"(p), "r"(x), "r"(y), "r"(z), "r"(w), "r"(kt_u32(in)) : "memory");
}

// A hint that the line at p will be read; p may point anywhere.
KT_FN void kt_prefetch(kt_in p) { KT_ASM((void)p, "prefetch.global.L2 [%0];" ::"l"(p)); }

// Adds at once for all threads of the grid and returns what was there. The order of additions is not fixed.
KT_FN float kt_atomic_add_f32(kt_out p, float v KT_SITE) {
  KT_HERE;
  float r;
  KT_ASM(r = kt_sim::atomic_add_global(p, v), "atom.global.add.f32 %0, [%1], %2;" : "=f"(r) : "l"(p), "f"(v) : "memory");
  return r;
}
KT_FN kt_i32 kt_atomic_add_i32(kt_out p, kt_i32 v KT_SITE) {
  KT_HERE;
  kt_i32 r;
  KT_ASM(r = kt_sim::atomic_add_global(p, v), "atom.global.add.s32 %0, [%1], %2;" : "=r"(r) : "l"(p), "r"(v) : "memory");
  return r;
}
// Waits until a counter is at `turn`, and sets it to the next: what one program adds to memory in between is there before
// what the next one adds. For one thread; with no counter nothing is waited for. All threads say kt_added and meet before a
// turn is passed on. (Here the meeting does it: what is released behind a barrier follows what others did before it.)
#define KT_TURNS
KT_FN void kt_added() {}
KT_FN void kt_turn_wait(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
#ifdef KT_SIM
  kt_sim::turn_wait(counter, turn);
#else
  kt_i32 at;
  do asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(at) : "l"(counter) : "memory");
  while (at != turn);
#endif
}
KT_FN void kt_turn_pass(kt_out counter, kt_i64 turn KT_SITE) {
  KT_HERE;
  if (!counter) return;
  KT_ASM(kt_sim::turn_pass(counter, turn), "st.release.gpu.global.s32 [%0], %1;" ::"l"(counter), "r"(kt_i32(turn + 1)) : "memory");
}
#define KT_ATOMIC_64
KT_FN kt_u64 kt_atomic_add_u64(kt_out p, kt_u64 v KT_SITE) {
  KT_HERE;
  kt_u64 r;
  KT_ASM(r = kt_sim::atomic_add_global(p, v), "atom.global.add.u64 %0, [%1], %2;" : "=l"(r) : "l"(p), "l"(v) : "memory");
  return r;
}

// ---- shared memory

KT_FN kt_u8 kt_ld_shared_b8(kt_smem p KT_SITE) {
  KT_HERE;
  kt_u32 r;
  KT_ASM(r = kt_sim::load_shared<kt_u8>(p), "ld.shared.u8 %0, [%1];" : "=r"(r) : "r"(p));
  return kt_u8(r);
}
KT_FN kt_u16 kt_ld_shared_b16(kt_smem p KT_SITE) {
  KT_HERE;
  kt_u16 r;
  KT_ASM(r = kt_sim::load_shared<kt_u16>(p), "ld.shared.u16 %0, [%1];" : "=h"(r) : "r"(p));
  return r;
}
KT_FN kt_u32 kt_ld_shared_b32(kt_smem p KT_SITE) {
  KT_HERE;
  kt_u32 r;
  KT_ASM(r = kt_sim::load_shared<kt_u32>(p), "ld.shared.u32 %0, [%1];" : "=r"(r) : "r"(p));
  return r;
}
KT_FN kt_u32x2 kt_ld_shared_b64(kt_smem p KT_SITE) {
  KT_HERE;
  kt_u32x2 r;
  KT_ASM(r = kt_sim::load_shared<kt_u32x2>(p), "ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(r.x), "=r"(r.y) : "r"(p));
  return r;
}
KT_FN kt_u32x4 kt_ld_shared_b128(kt_smem p KT_SITE) {
  KT_HERE;
  kt_u32x4 r;
  KT_ASM(r = kt_sim::load_shared<kt_u32x4>(p), "ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
         : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w) : "r"(p));
  return r;
}

KT_FN void kt_st_shared_b8(kt_smem p, kt_u8 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_shared(p, v), "st.shared.u8 [%0], %1;" ::"r"(p), "r"(kt_u32(v)) : "memory");
}
KT_FN void kt_st_shared_b16(kt_smem p, kt_u16 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_shared(p, v), "st.shared.u16 [%0], %1;" ::"r"(p), "h"(v) : "memory");
}
KT_FN void kt_st_shared_b32(kt_smem p, kt_u32 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_shared(p, v), "st.shared.u32 [%0], %1;" ::"r"(p), "r"(v) : "memory");
}
KT_FN void kt_st_shared_b64(kt_smem p, kt_u32x2 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_shared(p, v), "st.shared.v2.u32 [%0], {%1, %2};" ::"r"(p), "r"(v.x), "r"(v.y) : "memory");
}
KT_FN void kt_st_shared_b128(kt_smem p, kt_u32x4 v KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::store_shared(p, v), "st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(p), "r"(v.x), "r"(v.y),
         "r"(v.z), "r"(v.w) : "memory");
}

KT_FN float kt_atomic_add_shared_f32(kt_smem p, float v KT_SITE) {
  KT_HERE;
  float r;
  KT_ASM(r = kt_sim::atomic_add_shared(p, v), "atom.shared.add.f32 %0, [%1], %2;" : "=f"(r) : "r"(p), "f"(v) : "memory");
  return r;
}
KT_FN kt_i32 kt_atomic_add_shared_i32(kt_smem p, kt_i32 v KT_SITE) {
  KT_HERE;
  kt_i32 r;
  KT_ASM(r = kt_sim::atomic_add_shared(p, v), "atom.shared.add.s32 %0, [%1], %2;" : "=r"(r) : "r"(p), "r"(v) : "memory");
  return r;
}

// ---- asynchronous copies from global to shared memory

// Copies `bytes` (0 .. the width) from src and fills the rest of the width with zeros. With 0 bytes src is not read.
KT_FN void kt_cp_async_b32(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::async_copy(dst, src, bytes, 4), "cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(dst), "l"(src),
         "r"(bytes) : "memory");
}
KT_FN void kt_cp_async_b64(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::async_copy(dst, src, bytes, 8), "cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(dst), "l"(src),
         "r"(bytes) : "memory");
}
KT_FN void kt_cp_async_b128(kt_smem dst, kt_in src, kt_u32 bytes KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::async_copy(dst, src, bytes, 16), "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(dst),
         "l"(src), "r"(bytes) : "memory");
}
// Closes this thread's batch of copies.
KT_FN void kt_cp_async_commit(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::async_commit(), "cp.async.commit_group;" ::: "memory");
}
// Waits until at most N of this thread's batches, the newest, are under way. Other threads' need a barrier after it.
template <int N>
KT_FN void kt_cp_async_wait(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::async_wait(N), "cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- 8x8 matrices of 16-bit elements between shared memory and a warp
// Matrix i is the 8 rows of 16 bytes at the addresses given by lanes 8i .. 8i+7. Lane l gets, as register i, elements
// (l/4, 2(l%4)) and (l/4, 2(l%4)+1) of matrix i; with _trans elements (2(l%4), l/4) and (2(l%4)+1, l/4).

KT_FN void kt_ldmatrix_x1(kt_u32& r0, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::ldmatrix<false>(row, r0), "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r0) : "r"(row));
}
KT_FN void kt_ldmatrix_x2(kt_u32& r0, kt_u32& r1, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::ldmatrix<false>(row, r0, r1), "ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
         : "=r"(r0), "=r"(r1) : "r"(row));
}
KT_FN void kt_ldmatrix_x4(kt_u32& r0, kt_u32& r1, kt_u32& r2, kt_u32& r3, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM((kt_sim::ldmatrix<false>(row, r0, r1, r2, r3)), "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
         : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(row));
}
KT_FN void kt_ldmatrix_x1_trans(kt_u32& r0, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::ldmatrix<true>(row, r0), "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
         : "=r"(r0) : "r"(row));
}
KT_FN void kt_ldmatrix_x2_trans(kt_u32& r0, kt_u32& r1, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::ldmatrix<true>(row, r0, r1), "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
         : "=r"(r0), "=r"(r1) : "r"(row));
}
KT_FN void kt_ldmatrix_x4_trans(kt_u32& r0, kt_u32& r1, kt_u32& r2, kt_u32& r3, kt_smem row KT_SITE) {
  KT_HERE;
  KT_ASM((kt_sim::ldmatrix<true>(row, r0, r1, r2, r3)),
         "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
         : "=r"(r0), "=r"(r1), "=r"(r2), "=r"(r3) : "r"(row));
}

#if __CUDA_ARCH__ >= 900
// The way back.
KT_FN void kt_stmatrix_x1(kt_smem row, kt_u32 r0 KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::stmatrix<false>(row, r0), "stmatrix.sync.aligned.m8n8.x1.shared.b16 [%0], {%1};" ::"r"(row), "r"(r0)
         : "memory");
}
KT_FN void kt_stmatrix_x2(kt_smem row, kt_u32 r0, kt_u32 r1 KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::stmatrix<false>(row, r0, r1), "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};" ::"r"(row),
         "r"(r0), "r"(r1) : "memory");
}
KT_FN void kt_stmatrix_x4(kt_smem row, kt_u32 r0, kt_u32 r1, kt_u32 r2, kt_u32 r3 KT_SITE) {
  KT_HERE;
  KT_ASM((kt_sim::stmatrix<false>(row, r0, r1, r2, r3)),
         "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r0), "r"(r1), "r"(r2), "r"(r3)
         : "memory");
}
KT_FN void kt_stmatrix_x2_trans(kt_smem row, kt_u32 r0, kt_u32 r1 KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::stmatrix<true>(row, r0, r1), "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row),
         "r"(r0), "r"(r1) : "memory");
}
KT_FN void kt_stmatrix_x4_trans(kt_smem row, kt_u32 r0, kt_u32 r1, kt_u32 r2, kt_u32 r3 KT_SITE) {
  KT_HERE;
  KT_ASM((kt_sim::stmatrix<true>(row, r0, r1, r2, r3)),
         "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row), "r"(r0), "r"(r1), "r"(r2),
         "r"(r3) : "memory");
}
#endif
