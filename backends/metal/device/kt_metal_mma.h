// 8x8x8 matrix products of a simdgroup: d += a b. Every 8x8 matrix, of whatever type, lies alike: lane l holds the two
// elements of row 4 (l / 16) + (l / 2) % 4, columns 4 ((l / 8) % 2) + 2 (l % 2) and the next. 16-bit pairs are packed.
#pragma once

#define KT_MMA(T, A0, A1, B0, B1)                       \
  simdgroup_matrix<T, 8, 8> left, right;                \
  simdgroup_matrix<float, 8, 8> sum;                    \
  left.thread_elements()[0] = A0;                       \
  left.thread_elements()[1] = A1;                       \
  right.thread_elements()[0] = B0;                      \
  right.thread_elements()[1] = B1;                      \
  sum.thread_elements()[0] = d0;                        \
  sum.thread_elements()[1] = d1;                        \
  simdgroup_multiply_accumulate(sum, left, right, sum); \
  d0 = sum.thread_elements()[0];                        \
  d1 = sum.thread_elements()[1]

KT_FN void kt_mma_8x8x8_f32(thread float& d0, thread float& d1, float a0, float a1, float b0, float b1 KT_SITE) {
  KT_HERE;
  KT_MMA(float, a0, a1, b0, b1);
}
KT_FN void kt_mma_8x8x8_f16(thread float& d0, thread float& d1, kt_u32 a, kt_u32 b KT_SITE) {
  KT_HERE;
  half2 x = as_type<half2>(a), y = as_type<half2>(b);
  KT_MMA(half, x.x, x.y, y.x, y.y);
}
KT_FN void kt_mma_8x8x8_bf16(thread float& d0, thread float& d1, kt_u32 a, kt_u32 b KT_SITE) {
  KT_HERE;
  bfloat2 x = as_type<bfloat2>(a), y = as_type<bfloat2>(b);
  KT_MMA(bfloat, x.x, x.y, y.x, y.y);
}

// The same for M tiles below each other and N side by side: of d one row of tiles after the other, of a and b those of one
// step along k.
template <int M, int N>
KT_FN void kt_mma_each_f32(thread float* d, const thread float* a, const thread float* b KT_SITE) {
  KT_UNROLL for (int i = 0; i < M * N; ++i)
    kt_mma_8x8x8_f32(d[2 * i], d[2 * i + 1], a[i / N * 2], a[i / N * 2 + 1], b[i % N * 2], b[i % N * 2 + 1] KT_PASS_SITE);
}
template <int M, int N>
KT_FN void kt_mma_each_f16(thread float* d, const thread kt_u32* a, const thread kt_u32* b KT_SITE) {
  KT_UNROLL for (int i = 0; i < M * N; ++i) kt_mma_8x8x8_f16(d[2 * i], d[2 * i + 1], a[i / N], b[i % N] KT_PASS_SITE);
}
template <int M, int N>
KT_FN void kt_mma_each_bf16(thread float* d, const thread kt_u32* a, const thread kt_u32* b KT_SITE) {
  KT_UNROLL for (int i = 0; i < M * N; ++i) kt_mma_8x8x8_bf16(d[2 * i], d[2 * i + 1], a[i / N], b[i % N] KT_PASS_SITE);
}
// What kernels call: the same again, for which the simulator's lanes meet but once.
template <int M, int N>
KT_FN void kt_mma_tiles_f32(thread float* d, const thread float* a, const thread float* b KT_SITE) {
  KT_HERE;
  KT_NATIVE((kt_sim::mma_tiles<float, M, N>(d, a, b)), (kt_mma_each_f32<M, N>(d, a, b)));
}
template <int M, int N>
KT_FN void kt_mma_tiles_f16(thread float* d, const thread kt_u32* a, const thread kt_u32* b KT_SITE) {
  KT_HERE;
  KT_NATIVE((kt_sim::mma_tiles<half, M, N>(d, a, b)), (kt_mma_each_f16<M, N>(d, a, b)));
}
template <int M, int N>
KT_FN void kt_mma_tiles_bf16(thread float* d, const thread kt_u32* a, const thread kt_u32* b KT_SITE) {
  KT_HERE;
  KT_NATIVE((kt_sim::mma_tiles<bfloat, M, N>(d, a, b)), (kt_mma_each_bf16<M, N>(d, a, b)));
}
