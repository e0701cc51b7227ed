// Matrix products of a warp: d += a b. With g = lane / 4 and t = lane % 4, elements of K narrower than 32 bits packed in
// a register from the lower end:
//   d0, d1: row g, columns 2t, 2t+1        d2, d3: row g + 8, the same columns
//   m16n8k16, 16-bit:  a0: row g, k 2t..   a1: row g + 8, k 2t..   a2: row g, k 2t + 8..   a3: row g + 8, k 2t + 8..
//                      b0: k 2t.., column g   b1: k 2t + 8.., column g
//   m16n8k32, 8-bit:   the same with 4t.. for 2t.., and 16 for the 8 that is added to k
#pragma once

#define KT_MMA_F32(shape, type, meaning)                                                                            \
  KT_ASM((meaning), "mma.sync.aligned." shape ".row.col.f32." type "." type                                    \
              ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                \
              : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3)                                                              \
              : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1))

KT_FN void kt_mma_m16n8k16_bf16(float& d0, float& d1, float& d2, float& d3, kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3,
                                kt_u32 b0, kt_u32 b1 KT_SITE) {
  KT_HERE;
  KT_MMA_F32("m16n8k16", "bf16", (kt_sim::mma<16, kt_sim::Bf16>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)));
}
KT_FN void kt_mma_m16n8k16_f16(float& d0, float& d1, float& d2, float& d3, kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3,
                               kt_u32 b0, kt_u32 b1 KT_SITE) {
  KT_HERE;
  KT_MMA_F32("m16n8k16", "f16", (kt_sim::mma<16, kt_sim::F16>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)));
}
#if __CUDA_ARCH__ >= 890
KT_FN void kt_mma_m16n8k32_e4m3fn(float& d0, float& d1, float& d2, float& d3, kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3,
                                  kt_u32 b0, kt_u32 b1 KT_SITE) {
  KT_HERE;
  KT_MMA_F32("m16n8k32", "e4m3", (kt_sim::mma<32, kt_sim::E4m3>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)));
}
KT_FN void kt_mma_m16n8k32_e5m2(float& d0, float& d1, float& d2, float& d3, kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3,
                                kt_u32 b0, kt_u32 b1 KT_SITE) {
  KT_HERE;
  KT_MMA_F32("m16n8k32", "e5m2", (kt_sim::mma<32, kt_sim::E5m2>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)));
}
#endif
#undef KT_MMA_F32

// Wraps around on overflow.
KT_FN void kt_mma_m16n8k32_s8(kt_i32& d0, kt_i32& d1, kt_i32& d2, kt_i32& d3, kt_u32 a0, kt_u32 a1, kt_u32 a2, kt_u32 a3,
                              kt_u32 b0, kt_u32 b1 KT_SITE) {
  KT_HERE;
  KT_ASM((kt_sim::mma<32, kt_sim::S8>(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1)),
              "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
              "{%0, %1, %2, %3};"
              : "+r"(d0), "+r"(d1), "+r"(d2), "+r"(d3)
              : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// float32 operands in full precision: fused multiply-adds, k in order. The tensor cores have no such product (theirs
// drops 13 bits), so operands travel by shuffles: exact, and slow beside a kernel laid out for it.
//   a0: row g, k t   a1: row g + 8, k t   a2: row g, k t + 4   a3: row g + 8, k t + 4     b0: k t, column g   b1: k t + 4
KT_FN void kt_mma_m16n8k8_f32(float& d0, float& d1, float& d2, float& d3, float a0, float a1, float a2, float a3,
                              float b0, float b1 KT_SITE) {
  KT_HERE;
#ifdef KT_SIM
  kt_sim::mma_f32(d0, d1, d2, d3, a0, a1, a2, a3, b0, b1);
#else
  kt_u32 t = kt_lane() & 3u, row = kt_lane() & 28u;
#pragma unroll
  for (kt_u32 k = 0; k < 8u; k++) {
    float top = kt_shfl(k < 4u ? a0 : a2, row | (k & 3u)), bottom = kt_shfl(k < 4u ? a1 : a3, row | (k & 3u));
    float left = kt_shfl(k < 4u ? b0 : b1, 8u * t | (k & 3u)), right = kt_shfl(k < 4u ? b0 : b1, 8u * t + 4u | (k & 3u));
    d0 = kt_fma(top, left, d0);
    d1 = kt_fma(top, right, d1);
    d2 = kt_fma(bottom, left, d2);
    d3 = kt_fma(bottom, right, d3);
  }
#endif
}
