// How threads meet.
#pragma once

// All threads of the program meet; threadgroup memory written before is seen after.
KT_FN void kt_barrier(KT_SITE_ONLY) {
  KT_HERE;
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
// The lanes of a group meet; threadgroup memory written before is seen after.
KT_FN void kt_sync_lanes(KT_SITE_ONLY) {
  KT_HERE;
  simdgroup_barrier(mem_flags::mem_threadgroup);
}

// ---- shuffles: every lane of the group takes part

KT_FN kt_u32 kt_shfl(kt_u32 x, kt_u32 lane KT_SITE) { KT_HERE; return simd_shuffle(x, ushort(lane)); }
KT_FN kt_i32 kt_shfl(kt_i32 x, kt_u32 lane KT_SITE) { KT_HERE; return simd_shuffle(x, ushort(lane)); }
KT_FN float kt_shfl(float x, kt_u32 lane KT_SITE) { KT_HERE; return simd_shuffle(x, ushort(lane)); }

KT_FN kt_u32 kt_shfl_xor(kt_u32 x, kt_u32 mask KT_SITE) { KT_HERE; return simd_shuffle_xor(x, ushort(mask)); }
KT_FN kt_i32 kt_shfl_xor(kt_i32 x, kt_u32 mask KT_SITE) { KT_HERE; return simd_shuffle_xor(x, ushort(mask)); }
KT_FN float kt_shfl_xor(float x, kt_u32 mask KT_SITE) { KT_HERE; return simd_shuffle_xor(x, ushort(mask)); }
// As kt_shfl_xor, where the mask is known: some devices have a cheaper way.
template <kt_u32 MASK, class T>
KT_FN T kt_shfl_xor_by(T x KT_SITE) { KT_HERE; return simd_shuffle_xor(x, ushort(MASK)); }

// From the lane `by` below (up) or above (down); a lane that has none there keeps its own.
KT_FN kt_u32 kt_shfl_up(kt_u32 x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_up(x, ushort(by)); }
KT_FN kt_i32 kt_shfl_up(kt_i32 x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_up(x, ushort(by)); }
KT_FN float kt_shfl_up(float x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_up(x, ushort(by)); }
KT_FN kt_u32 kt_shfl_down(kt_u32 x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_down(x, ushort(by)); }
KT_FN kt_i32 kt_shfl_down(kt_i32 x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_down(x, ushort(by)); }
KT_FN float kt_shfl_down(float x, kt_u32 by KT_SITE) { KT_HERE; return simd_shuffle_down(x, ushort(by)); }

// ---- votes

KT_FN bool kt_any(bool yes KT_SITE) { KT_HERE; return simd_any(yes); }
KT_FN bool kt_all(bool yes KT_SITE) { KT_HERE; return simd_all(yes); }
KT_FN kt_u64 kt_ballot(bool yes KT_SITE) { KT_HERE; return kt_u64(simd_vote::vote_t(simd_ballot(yes))); }  // bit l: lane l
