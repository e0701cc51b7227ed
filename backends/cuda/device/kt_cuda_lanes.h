// Who a thread is, and how threads meet.
#pragma once

KT_FN kt_u32 kt_thread() { return threadIdx.x; }         // within its program; blocks are one-dimensional
KT_FN kt_u32 kt_lane() { return threadIdx.x & 31u; }     // within its group
KT_FN kt_u32 kt_group() { return threadIdx.x >> 5; }     // of lanes (warp), within its program
KT_FN kt_u32 kt_program_x() { return blockIdx.x; }
KT_FN kt_u32 kt_program_y() { return blockIdx.y; }
KT_FN kt_u32 kt_program_z() { return blockIdx.z; }
KT_FN kt_u32 kt_blocks() { return gridDim.x; }           // that take programs in turn

// ---- barriers

// All threads of the program meet; shared memory written before is seen after.
KT_FN void kt_barrier(KT_SITE_ONLY) {
  KT_HERE;
  __syncthreads();
}
// The lanes of a group meet; shared memory written before is seen after.
KT_FN void kt_sync_lanes(KT_SITE_ONLY) {
  KT_HERE;
  __syncwarp(0xffffffffu);
}
// Barrier `id` (1 .. 15) of `threads` threads: those that wait at it, and those that only arrive and go on; whole groups do.
KT_FN void kt_barrier_named(kt_u32 id, kt_u32 threads KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::barrier_named(id, threads), "barrier.sync.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
KT_FN void kt_barrier_arrive(kt_u32 id, kt_u32 threads KT_SITE) {
  KT_HERE;
  KT_ASM(kt_sim::barrier_arrive(id, threads), "barrier.arrive.aligned %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- shuffles: every lane of the group takes part

KT_FN kt_u32 kt_shfl(kt_u32 x, kt_u32 lane KT_SITE) { KT_HERE; return __shfl_sync(0xffffffffu, x, int(lane)); }
KT_FN kt_i32 kt_shfl(kt_i32 x, kt_u32 lane KT_SITE) { KT_HERE; return __shfl_sync(0xffffffffu, x, int(lane)); }
KT_FN float kt_shfl(float x, kt_u32 lane KT_SITE) { KT_HERE; return __shfl_sync(0xffffffffu, x, int(lane)); }

KT_FN kt_u32 kt_shfl_xor(kt_u32 x, kt_u32 mask KT_SITE) { KT_HERE; return __shfl_xor_sync(0xffffffffu, x, int(mask)); }
KT_FN kt_i32 kt_shfl_xor(kt_i32 x, kt_u32 mask KT_SITE) { KT_HERE; return __shfl_xor_sync(0xffffffffu, x, int(mask)); }
KT_FN float kt_shfl_xor(float x, kt_u32 mask KT_SITE) { KT_HERE; return __shfl_xor_sync(0xffffffffu, x, int(mask)); }

// As kt_shfl_xor, where the mask is known: some devices have a cheaper way.
template <kt_u32 MASK, class T>
KT_FN T kt_shfl_xor_by(T x KT_SITE) { KT_HERE; return __shfl_xor_sync(0xffffffffu, x, int(MASK)); }

// x of lane 0, so that the compiler knows it is the same in all lanes.
KT_FN int kt_uniform(int x KT_SITE) {
  KT_HERE;
  return __shfl_sync(0xffffffffu, x, 0);
}

// From the lane `by` below (up) or above (down); a lane that has none there keeps its own.
KT_FN kt_u32 kt_shfl_up(kt_u32 x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_up_sync(0xffffffffu, x, by); }
KT_FN kt_i32 kt_shfl_up(kt_i32 x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_up_sync(0xffffffffu, x, by); }
KT_FN float kt_shfl_up(float x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_up_sync(0xffffffffu, x, by); }
KT_FN kt_u32 kt_shfl_down(kt_u32 x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_down_sync(0xffffffffu, x, by); }
KT_FN kt_i32 kt_shfl_down(kt_i32 x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_down_sync(0xffffffffu, x, by); }
KT_FN float kt_shfl_down(float x, kt_u32 by KT_SITE) { KT_HERE; return __shfl_down_sync(0xffffffffu, x, by); }

// ---- votes

KT_FN bool kt_any(bool yes KT_SITE) { KT_HERE; return __any_sync(0xffffffffu, yes) != 0; }
KT_FN bool kt_all(bool yes KT_SITE) { KT_HERE; return __all_sync(0xffffffffu, yes) != 0; }
KT_FN kt_u64 kt_ballot(bool yes KT_SITE) { KT_HERE; return __ballot_sync(0xffffffffu, yes); }  // bit l: lane l
