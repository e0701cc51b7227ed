// Who a thread is, how threads meet, and hints to the scheduler.
#pragma once

KT_FN kt_u32 kt_thread() { return __builtin_amdgcn_workitem_id_x(); }  // within its program; blocks are one-dimensional
KT_FN kt_u32 kt_lane() { return kt_thread() & (KT_LANES - 1u); }       // within its group
KT_FN kt_u32 kt_group() {                                              // of lanes (wave), within its program
  return kt_u32(__builtin_amdgcn_readfirstlane(int(kt_thread() / KT_LANES)));
}
KT_FN kt_u32 kt_program_x() { return __builtin_amdgcn_workgroup_id_x(); }
KT_FN kt_u32 kt_program_y() { return __builtin_amdgcn_workgroup_id_y(); }
KT_FN kt_u32 kt_program_z() { return __builtin_amdgcn_workgroup_id_z(); }

// ---- barriers

// All threads of the program meet; shared memory written before is seen after. Loads from global memory may stay under
// way across it: direct copies need their kt_wait_loads before.
KT_FN void kt_barrier(KT_SITE_ONLY) {
  KT_HERE;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup", "local");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup", "local");
}
// The barrier alone, for groups that run the same program some phases apart: they meet at different places of the
// source, and waits are the caller's. (The simulator takes it to order memory.)
KT_FN void kt_barrier_bare(KT_SITE_ONLY) {
  KT_HERE;
  KT_NATIVE(kt_sim::barrier_anywhere(), __builtin_amdgcn_s_barrier());
}
// The lanes of a group meet; shared memory written before is seen after.
KT_FN void kt_sync_lanes(KT_SITE_ONLY) {
  KT_HERE;
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront", "local");
  __builtin_amdgcn_wave_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront", "local");
}

// ---- shuffles: every lane of the group takes part

KT_FN kt_i32 kt_shfl(kt_i32 x, kt_u32 lane KT_SITE) {
  KT_HERE;
  return __builtin_amdgcn_ds_bpermute(int(lane << 2), x);
}
KT_FN kt_u32 kt_shfl(kt_u32 x, kt_u32 lane KT_SITE) {
  KT_HERE;
  return kt_u32(__builtin_amdgcn_ds_bpermute(int(lane << 2), int(x)));
}
KT_FN float kt_shfl(float x, kt_u32 lane KT_SITE) {
  KT_HERE;
  return kt_bit_cast<float>(__builtin_amdgcn_ds_bpermute(int(lane << 2), kt_bit_cast<int>(x)));
}
// From the lane `by` below (up) or above (down); a lane that has none there keeps its own.
template <class T>
KT_FN T kt_shfl_up(T x, kt_u32 by KT_SITE) {
  kt_u32 lane = kt_lane();
  return kt_shfl(x, lane >= by ? lane - by : lane KT_PASS_SITE);
}
template <class T>
KT_FN T kt_shfl_down(T x, kt_u32 by KT_SITE) {
  kt_u32 lane = kt_lane();
  return kt_shfl(x, lane + by < KT_LANES ? lane + by : lane KT_PASS_SITE);
}
// From lane ^ MASK: within the ALU up to 15, and on gfx950 for 16 and 32; without addresses below 32.
template <kt_u32 MASK, class T>
KT_FN T kt_shfl_xor_by(T x KT_SITE) {
  KT_HERE;
  int v = kt_bit_cast<int>(x);
  if constexpr (MASK < 4u) {
    constexpr int quad = int(0u ^ MASK) | int(1u ^ MASK) << 2 | int(2u ^ MASK) << 4 | int(3u ^ MASK) << 6;
    return kt_bit_cast<T>(__builtin_amdgcn_mov_dpp(v, quad, 0xf, 0xf, true));
  } else if constexpr (MASK < 8u) {
    int mirrored = __builtin_amdgcn_mov_dpp(v, 0x141, 0xf, 0xf, true);  // row_half_mirror: 7
    if constexpr (MASK == 7u) return kt_bit_cast<T>(mirrored);
    else return kt_shfl_xor_by<7u ^ MASK>(kt_bit_cast<T>(mirrored) KT_PASS_SITE);
  } else if constexpr (MASK == 8u) {
    return kt_bit_cast<T>(__builtin_amdgcn_mov_dpp(v, 0x128, 0xf, 0xf, true));  // row_ror:8
  } else if constexpr (MASK == 15u) {
    return kt_bit_cast<T>(__builtin_amdgcn_mov_dpp(v, 0x140, 0xf, 0xf, true));  // row_mirror
#if defined(__gfx950__)
  } else if constexpr (MASK == 16u) {
    auto r = __builtin_amdgcn_permlane16_swap(kt_u32(v), kt_u32(v), false, false);
    return kt_bit_cast<T>(int(kt_lane() & 16u ? r[0] : r[1]));
  } else if constexpr (MASK == 32u) {
    auto r = __builtin_amdgcn_permlane32_swap(kt_u32(v), kt_u32(v), false, false);
    return kt_bit_cast<T>(int(kt_lane() & 32u ? r[0] : r[1]));
#endif
  } else if constexpr (MASK < 32u) {
    return kt_bit_cast<T>(__builtin_amdgcn_ds_swizzle(v, int(MASK) << 10 | 0x1f));
  } else {
    return kt_bit_cast<T>(__builtin_amdgcn_ds_bpermute(int((kt_lane() ^ MASK) << 2), v));
  }
}
template <class T>
KT_FN T kt_shfl_xor(T x, kt_u32 mask KT_SITE) {
  if (__builtin_constant_p(mask)) {  // once it is inlined
    switch (mask) {
      case 1u: return kt_shfl_xor_by<1u>(x KT_PASS_SITE);
      case 2u: return kt_shfl_xor_by<2u>(x KT_PASS_SITE);
      case 4u: return kt_shfl_xor_by<4u>(x KT_PASS_SITE);
      case 8u: return kt_shfl_xor_by<8u>(x KT_PASS_SITE);
      case 16u: return kt_shfl_xor_by<16u>(x KT_PASS_SITE);
      case 32u: return kt_shfl_xor_by<32u>(x KT_PASS_SITE);
    }
  }
  return kt_shfl(x, kt_lane() ^ mask KT_PASS_SITE);
}
// The value of one lane, the same in all: it lives in a scalar register.
KT_FN kt_u32 kt_uniform(kt_u32 x KT_SITE) {
  KT_HERE;
  return kt_u32(__builtin_amdgcn_readfirstlane(int(x)));
}
#if defined(__gfx950__)
// Exchanges the upper half of a's lanes with the lower half of b's.
KT_FN void kt_permlane32_swap(kt_u32& a, kt_u32& b KT_SITE) {
  KT_HERE;
  auto r = __builtin_amdgcn_permlane32_swap(a, b, false, false);
  a = r[0];
  b = r[1];
}
// The same for the odd groups of 16 lanes of a and the even ones of b.
KT_FN void kt_permlane16_swap(kt_u32& a, kt_u32& b KT_SITE) {
  KT_HERE;
  auto r = __builtin_amdgcn_permlane16_swap(a, b, false, false);
  a = r[0];
  b = r[1];
}
#endif

// ---- votes

#if KT_CDNA
KT_FN kt_u64 kt_ballot(bool yes KT_SITE) { KT_HERE; return __builtin_amdgcn_ballot_w64(yes); }  // bit l: lane l
#else
KT_FN kt_u64 kt_ballot(bool yes KT_SITE) { KT_HERE; return __builtin_amdgcn_ballot_w32(yes); }
#endif
KT_FN bool kt_any(bool yes KT_SITE) { return kt_ballot(yes KT_PASS_SITE) != 0; }
KT_FN bool kt_all(bool yes KT_SITE) { return kt_ballot(!yes KT_PASS_SITE) == 0; }

// ---- the compiler's and the hardware's scheduler

KT_FN void kt_sched_barrier() { __builtin_amdgcn_sched_barrier(0); }  // no instruction is moved across
template <int LEVEL>
KT_FN void kt_set_priority() { __builtin_amdgcn_s_setprio(LEVEL); }  // of this group over others on its SIMD, 0 .. 3
// The end of a phase: a bare barrier that no instruction which touches memory is moved across. The compiler moves others
// all the same, matrix products above all; kt_hold keeps those in their phase.
KT_FN void kt_tie(KT_SITE_ONLY) {
  KT_HERE;
  KT_NATIVE((void)0, asm volatile("" ::: "memory"));
  kt_sched_barrier();
  KT_NATIVE(kt_sim::barrier_anywhere(), __builtin_amdgcn_s_barrier());
  kt_sched_barrier();
  KT_NATIVE((void)0, asm volatile("" ::: "memory"));
}
// What computes these N registers, one vector of them to an instruction, stays before this, and what takes them behind it.
template <int N, class T>
KT_FN void kt_hold(T* p) {
#ifndef KT_SIM
  typedef KT_VECTOR(T, N) vector;
  vector v;
  KT_UNROLL for (int i = 0; i < N; ++i) v[i] = p[i];
  asm volatile("" : "+v"(v));
  KT_UNROLL for (int i = 0; i < N; ++i) p[i] = v[i];
#else
  (void)p;
#endif
}
