// 8x8x8 matrix products of a simdgroup: d += a b. Every 8x8 matrix, of whatever type, lies alike: lane l holds the two
// elements of row 4 (l / 16) + (l / 2) % 4, columns 4 ((l / 8) % 2) + 2 (l % 2) and the next. 16-bit pairs are packed.
#pragma once

KT_FN float2 kt_pair(float x, float y) {
  float2 r;
  r.x = x;
  r.y = y;
  return r;
}
#define KT_MMA(A, B)                                    \
  simdgroup_matrix<float, 8, 8> sum;                    \
  sum.thread_elements() = kt_pair(d0, d1);              \
  left.thread_elements() = A;                           \
  right.thread_elements() = B;                          \
  simdgroup_multiply_accumulate(sum, left, right, sum); \
  d0 = sum.thread_elements().x;                         \
  d1 = sum.thread_elements().y

KT_FN void kt_mma_8x8x8_f32(thread float& d0, thread float& d1, float a0, float a1, float b0, float b1 KT_SITE) {
  KT_HERE;
  simdgroup_matrix<float, 8, 8> left, right;
  KT_MMA(kt_pair(a0, a1), kt_pair(b0, b1));
}
KT_FN void kt_mma_8x8x8_f16(thread float& d0, thread float& d1, kt_u32 a, kt_u32 b KT_SITE) {
  KT_HERE;
  simdgroup_matrix<half, 8, 8> left, right;
  KT_MMA(as_type<half2>(a), as_type<half2>(b));
}
KT_FN void kt_mma_8x8x8_bf16(thread float& d0, thread float& d1, kt_u32 a, kt_u32 b KT_SITE) {
  KT_HERE;
  simdgroup_matrix<bfloat, 8, 8> left, right;
  KT_MMA(as_type<bfloat2>(a), as_type<bfloat2>(b));
}

// A lane's two elements of the 8x8 matrix at p, whose rows are `stride` elements apart; with _trans of its transpose.
KT_FN float2 kt_ld8x8_global_f32(kt_in p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<float, 8, 8> m;
  simdgroup_load(m, (const device float*)p, stride);
  return m.thread_elements();
}
KT_FN kt_u32 kt_ld8x8_global_b16(kt_in p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<half, 8, 8> m;
  simdgroup_load(m, (const device half*)p, stride);
  return as_type<uint>(m.thread_elements());
}
KT_FN float2 kt_ld8x8_shared_f32(kt_smem p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<float, 8, 8> m;
  simdgroup_load(m, (const threadgroup float*)p, stride);
  return m.thread_elements();
}
KT_FN kt_u32 kt_ld8x8_shared_b16(kt_smem p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<half, 8, 8> m;
  simdgroup_load(m, (const threadgroup half*)p, stride);
  return as_type<uint>(m.thread_elements());
}
KT_FN float2 kt_ld8x8_shared_f32_trans(kt_smem p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<float, 8, 8> m;
  simdgroup_load(m, (const threadgroup float*)p, stride, ulong2(0), true);
  return m.thread_elements();
}
KT_FN kt_u32 kt_ld8x8_shared_b16_trans(kt_smem p, kt_u32 stride KT_SITE) {
  KT_HERE;
  simdgroup_matrix<half, 8, 8> m;
  simdgroup_load(m, (const threadgroup half*)p, stride, ulong2(0), true);
  return as_type<uint>(m.thread_elements());
}
KT_FN void kt_st8x8_global_f32(kt_out p, kt_u32 stride, float2 v KT_SITE) {
  KT_HERE;
  simdgroup_matrix<float, 8, 8> m;
  m.thread_elements() = v;
  simdgroup_store(m, (device float*)p, stride);
}
