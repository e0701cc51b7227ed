// Hopper (sm_90a): tiles copied by a copy engine, barriers that count bytes, products of four warps that run by themselves.
//
// What an engine or a product reads of shared memory must have been fenced (kt_fence_async) by whoever wrote it with
// plain stores. What a product writes, its accumulators, nobody may touch until it has been waited for.
#pragma once

// A tensor as the copy engine sees it, made by the host; a kernel takes it as a parameter: KT_MAP(a).
struct alignas(64) kt_map {
  kt_u8 opaque[128];
};
#ifdef KT_SIM
#define KT_MAP(name) const kt_map& name
#else
#define KT_MAP(name) const __grid_constant__ kt_map name
#endif

// ---- barriers that count arrivals and bytes: 8 bytes of shared memory each
// A phase ends when all arrivals have come, and all bytes that were announced. The next begins at once, and its number's
// last bit is its parity. A fresh barrier is in phase 0; waiting for parity 1 there returns at once.

KT_FN void kt_bar_init(kt_smem bar, kt_u32 arrivals KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::bar_init(bar, arrivals), "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
// By the thread that made barriers, before a barrier of all threads: the copy engine and other blocks see them too.
KT_FN void kt_bar_fence(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::bar_fence(), "fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Arrives, and announces bytes that copies will bring in this phase.
KT_FN void kt_bar_expect(kt_smem bar, kt_u32 bytes KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::bar_expect(bar, bytes), "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes)
         : "memory");
}
KT_FN void kt_bar_arrive(kt_smem bar KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::bar_arrive(bar), "mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
// Arrives at the barrier at the same place in another block of the cluster. Orders no plain accesses: it hands back the
// right to overwrite what products have read. (With .release.cluster each arrival would be a fence of all memory.)
KT_FN void kt_bar_arrive_at(kt_smem bar, kt_u32 block KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::bar_arrive_at(bar, block),
         "{ .reg .b32 there;\n"
         "mapa.shared::cluster.u32 there, %0, %1;\n"
         "mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(bar), "r"(block) : "memory");
}
// Waits until the phase of that parity has ended.
KT_FN void kt_bar_wait(kt_smem bar, kt_u32 parity KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::bar_wait(bar, parity),
         "{ .reg .pred ended;\n"
         "WAIT_%=: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
         "@ended bra DONE_%=;\n"
         "bra WAIT_%=;\n"
         "DONE_%=: }" ::"r"(bar), "r"(parity) : "memory");
}
// As kt_bar_wait, for a phase that has ended and been waited for: no time passes. It is a loop to the compiler, which moves
// no wait for products to before it.
KT_FN void kt_bar_again(kt_smem bar, kt_u32 parity KT_SITE) {
  KT_HERE;
  KT_ASM(((void)bar, (void)parity),
         "{ .reg .pred ended;\n"
         "AGAIN_%=: mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
         "@ended bra PAST_%=;\n"
         "bra AGAIN_%=;\n"
         "PAST_%=: }" ::"r"(bar), "r"(parity) : "memory");
}

// ---- tiles between global and shared memory
// Coordinates count elements, the contiguous axis first; along it a tile begins at a multiple of 16 bytes. What lies outside
// the tensor is read as zeros, which count as bytes like any others, and is not written; a tile may lie before the tensor's
// beginning only when it is loaded. One thread copies for all.

KT_FN void kt_map_prefetch(const kt_map& map KT_SITE) {
  KT_HERE;
  KT_ASM((void)map, "prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// A policy that keeps lines in L2 longer than others.
KT_FN kt_u64 kt_keep_policy() {
  kt_u64 r;
  KT_ASM_PURE(r = 0, "createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(r));
  return r;
}

// The functions for one rank. AT_n: the coordinates where n other operands come first.
//   kt_tile_load        brings a tile to `to`, and its bytes to `bar`
//   kt_tile_load_to     the same to the same place in each block of the cluster whose bit is set
//   kt_tile_load_keep   as kt_tile_load, for data that other programs read too
//   kt_tile_store       the tile at `from` to the tensor; see kt_tile_commit
//   kt_tile_reduce_add  adds the float32 tile at `from` to the tensor, in no fixed order; see kt_tile_commit
#define KT_TILE_COPIES(RANK, INTS, VALUES, AT_2, AT_3, AT_4, ...)                                                      \
  KT_FN void kt_tile_load(kt_smem to, const kt_map& map, kt_smem bar, INTS KT_SITE) {                                  \
    KT_HERE;                                                                                                           \
    KT_ASM((kt_sim::tile_load(to, map, bar, 0u, VALUES)),                                                              \
           "cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes "                   \
           "[%0], [%1, {" AT_3 "}], [%2];" ::"r"(to), "l"(&map), "r"(bar), __VA_ARGS__ : "memory");                    \
  }                                                                                                                    \
  KT_FN void kt_tile_load_to(kt_smem to, const kt_map& map, kt_smem bar, INTS, kt_u16 blocks KT_SITE) {                \
    KT_HERE;                                                                                                           \
    KT_ASM((kt_sim::tile_load(to, map, bar, blocks, VALUES)),                                                          \
           "cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"                    \
           ".multicast::cluster [%0], [%1, {" AT_4 "}], [%2], %3;" ::"r"(to), "l"(&map), "r"(bar), "h"(blocks),        \
           __VA_ARGS__ : "memory");                                                                                    \
  }                                                                                                                    \
  KT_FN void kt_tile_load_keep(kt_smem to, const kt_map& map, kt_smem bar, INTS KT_SITE) {                             \
    KT_HERE;                                                                                                           \
    kt_u64 policy = kt_keep_policy();                                                                                  \
    KT_ASM(((void)policy, kt_sim::tile_load(to, map, bar, 0u, VALUES)),                                                \
           "cp.async.bulk.tensor." RANK ".shared::cluster.global.tile.mbarrier::complete_tx::bytes"                    \
           ".L2::cache_hint [%0], [%1, {" AT_4 "}], [%2], %3;" ::"r"(to), "l"(&map), "r"(bar), "l"(policy),            \
           __VA_ARGS__ : "memory");                                                                                    \
  }                                                                                                                    \
  KT_FN void kt_tile_store(const kt_map& map, kt_smem from, INTS KT_SITE) {                                            \
    KT_HERE;                                                                                                           \
    KT_ASM((kt_sim::tile_store<false>(map, from, VALUES)),                                                             \
           "cp.async.bulk.tensor." RANK ".global.shared::cta.tile.bulk_group [%0, {" AT_2 "}], [%1];" ::"l"(&map),     \
           "r"(from), __VA_ARGS__ : "memory");                                                                         \
  }                                                                                                                    \
  KT_FN void kt_tile_reduce_add(const kt_map& map, kt_smem from, INTS KT_SITE) {                                       \
    KT_HERE;                                                                                                           \
    KT_ASM((kt_sim::tile_store<true>(map, from, VALUES)),                                                              \
           "cp.reduce.async.bulk.tensor." RANK ".global.shared::cta.add.tile.bulk_group [%0, {" AT_2 "}], [%1];"       \
           ::"l"(&map), "r"(from), __VA_ARGS__ : "memory");                                                            \
  }

#define KT_INTS_2 int c0, int c1
#define KT_INTS_3 KT_INTS_2, int c2
#define KT_INTS_4 KT_INTS_3, int c3
#define KT_INTS_5 KT_INTS_4, int c4
#define KT_VALUES_2 c0, c1
#define KT_VALUES_3 KT_VALUES_2, c2
#define KT_VALUES_4 KT_VALUES_3, c3
#define KT_VALUES_5 KT_VALUES_4, c4
KT_TILE_COPIES("2d", KT_INTS_2, KT_VALUES_2, "%2, %3", "%3, %4", "%4, %5", "r"(c0), "r"(c1))
KT_TILE_COPIES("3d", KT_INTS_3, KT_VALUES_3, "%2, %3, %4", "%3, %4, %5", "%4, %5, %6", "r"(c0), "r"(c1), "r"(c2))
KT_TILE_COPIES("4d", KT_INTS_4, KT_VALUES_4, "%2, %3, %4, %5", "%3, %4, %5, %6", "%4, %5, %6, %7", "r"(c0), "r"(c1),
               "r"(c2), "r"(c3))
KT_TILE_COPIES("5d", KT_INTS_5, KT_VALUES_5, "%2, %3, %4, %5, %6", "%3, %4, %5, %6, %7", "%4, %5, %6, %7, %8", "r"(c0),
               "r"(c1), "r"(c2), "r"(c3), "r"(c4))
#undef KT_TILE_COPIES
#undef KT_INTS_2
#undef KT_INTS_3
#undef KT_INTS_4
#undef KT_INTS_5
#undef KT_VALUES_2
#undef KT_VALUES_3
#undef KT_VALUES_4
#undef KT_VALUES_5

// Closes this thread's batch of stores and additions.
KT_FN void kt_tile_commit(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::tile_commit(), "cp.async.bulk.commit_group;" ::: "memory");
}
// Waits until at most N of this thread's batches, the newest, still read shared memory.
template <int N>
KT_FN void kt_tile_wait_read(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::tile_wait(N, true), "cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Waits until at most N of this thread's batches, the newest, are under way at all.
template <int N>
KT_FN void kt_tile_wait(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::tile_wait(N, false), "cp.async.bulk.wait_group %0;" ::"n"(N) : "memory");
}
// What this thread has written to shared memory, and seen written, is seen by the copy engine and by products.
KT_FN void kt_fence_async(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::fence_async(), "fence.proxy.async.shared::cta;" ::: "memory");
}

// The same for all memory, in both directions: between what threads do to a tensor, and the engine.
KT_FN void kt_fence_async_all() { KT_ASM((void)0, "fence.proxy.async;" ::: "memory"); }

// ---- clusters of blocks, and roles of warps

KT_FN kt_u32 kt_cluster_rank() {  // of this block in its cluster
  kt_u32 r;
  KT_ASM(r = kt_sim::cluster_rank(), "mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
// All threads of the cluster meet; shared memory written before is seen after.
KT_FN void kt_cluster_sync(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::cluster_sync(), "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" :::
         "memory");
}
// Kernels of a stream may overlap where the host asks for it. Memory that kernels before this one write is there only
// behind the first; from the second on the next kernel may start.
KT_FN void kt_after_previous() { KT_ASM((void)0, "griddepcontrol.wait;" ::: "memory"); }
KT_FN void kt_next_may_start() { KT_ASM((void)0, "griddepcontrol.launch_dependents;" ::: "memory"); }
// The four warps that take part keep N registers a thread from here on, and give back others, or wait for more to be given
// back. N: 24 .. 256, a multiple of 8.
template <int N>
KT_FN void kt_registers_fewer(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::registers_fewer(N), "setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
}
template <int N>
KT_FN void kt_registers_more(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::registers_more(N), "setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
}
// An address of whose bits the compiler knows nothing, so that it makes places behind it plain offsets.
KT_FN kt_smem kt_base(kt_smem p) {
  KT_ASM_PURE((void)0, "" : "+r"(p));
  return p;
}
// The same, found out where it stands: what is computed from it is computed there, and takes no register over a loop.
KT_FN kt_smem kt_base_here(kt_smem p) {
  KT_ASM((void)0, "" : "+r"(p));
  return p;
}
// One of two neighbouring floats, which are read together, once for all that ask for them; no sooner than p is known.
KT_FN float kt_ld_shared_of_two(kt_smem p, int which KT_SITE) {
  KT_HERE;
  float a, b;
  KT_ASM_PURE((a = kt_from_bits(kt_ld_shared_b32(p KT_PASS_SITE)), b = kt_from_bits(kt_ld_shared_b32(p + 4u KT_PASS_SITE))),
              "ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "r"(p));
  return which ? b : a;
}
// True in one lane of the warp, which all lanes reach together: always the same one.
KT_FN bool kt_elect(KT_SITE_ONLY) {
  KT_HERE;
  kt_u32 r;
  KT_ASM(r = kt_sim::elect(), "{ .reg .pred chosen;\nelect.sync _|chosen, 0xffffffff;\nselp.u32 %0, 1, 0, chosen; }" : "=r"(r));
  return r != 0;
}

// ---- products of four warps (wgmma); the instructions themselves are written by backends/cuda/wgmma.py

// An operand in shared memory. Its rows (along K if it is K-major, else along M or N) are as long as the swizzle, in bytes:
// 128, 64, 32, or 0 for none; 8 of them, one after another, make an atom. Swizzled atoms begin at multiples of their size.
//   K-major:   stride_bytes from one 8 rows of M or N to the next; leading_bytes only without swizzle: from one 16 bytes
//              along K to the next
//   MN-major:  stride_bytes from one 8 of K to the next; leading_bytes from one row's length along M or N to the next
// Another place in the same tile is a plain addition: kt_desc + (bytes >> 4).
typedef kt_u64 kt_desc;
KT_FN kt_desc kt_matrix_desc(kt_smem at, kt_u32 leading_bytes, kt_u32 stride_bytes, kt_u32 swizzle = 128u) {
  kt_u64 mode = swizzle == 128u ? 1u : swizzle == 64u ? 2u : swizzle == 32u ? 3u : 0u;
  return kt_u64((at & 0x3ffffu) >> 4) | kt_u64(leading_bytes >> 4 & 0x3fffu) << 16 |
         kt_u64(stride_bytes >> 4 & 0x3fffu) << 32 | mode << 62;
}
// Before each batch of products: registers written before are seen by it.
KT_FN void kt_engine_fence(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::wgmma_fence(), "wgmma.fence.sync.aligned;" ::: "memory");
}
// Closes a batch of products.
KT_FN void kt_engine_commit(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::wgmma_commit(), "wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most N batches, the newest, are under way. No accumulators are named: nothing keeps the compiler from
// reading them before.
template <int N>
KT_FN void kt_engine_wait(KT_SITE_ONLY) {
  KT_HERE;
  KT_ASM(kt_sim::wgmma_wait(N), "wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
