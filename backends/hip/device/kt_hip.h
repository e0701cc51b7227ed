// AMD device functions for generated kernels. Freestanding: no HIP headers, no device libraries; clang with the AMDGPU
// target, C++17, gfx942, gfx950 (64 lanes), gfx1100, gfx1201 (32 lanes).
//
// KT_NATIVE(meaning, native) is `native` on the device. The simulator has `meaning`, plain C++ that says the same, for
// the few things that no function of its own can stand in for; every __builtin_amdgcn_ function it defines itself.
//
// Compile with -ffp-contract=off: a multiply and an add fuse only where a kernel says kt_fma.
#pragma once

#ifndef KT_SIM
#ifndef __HIPCC_RTC__  // hiprtc has these words already
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline __attribute__((always_inline))
#endif
#define KT_GLOBAL __attribute__((address_space(1)))
#define KT_LDS __attribute__((address_space(3)))
#define KT_NATIVE(meaning, native) native
#endif

// clang ignores launch_bounds for this target and then compiles for 1024 threads, with too few registers for each.
#define KT_THREADS(n) __attribute__((amdgpu_flat_work_group_size(n, n)))

#define KT_FN static __device__ __forceinline__
#define KT_UNROLL _Pragma("unroll")

#if defined(__gfx942__) || defined(__gfx950__)
#define KT_CDNA 1
#define KT_LANES 64u
#else
#define KT_CDNA 0
#define KT_LANES 32u
#endif

typedef unsigned char kt_u8;
typedef unsigned short kt_u16;
typedef unsigned int kt_u32;
typedef signed char kt_i8;
typedef short kt_i16;
typedef int kt_i32;
typedef unsigned long long kt_u64;
typedef long long kt_i64;

#define KT_VECTOR(T, n) T __attribute__((ext_vector_type(n)))
typedef KT_VECTOR(kt_u32, 2) kt_u32x2;
typedef KT_VECTOR(kt_u32, 4) kt_u32x4;
typedef KT_VECTOR(kt_u32, 8) kt_u32x8;
typedef KT_VECTOR(float, 4) kt_f32x4;
typedef KT_VECTOR(float, 8) kt_f32x8;
typedef KT_VECTOR(float, 16) kt_f32x16;
typedef KT_VECTOR(kt_i32, 4) kt_i32x4;
typedef KT_VECTOR(kt_i32, 8) kt_i32x8;
typedef KT_VECTOR(kt_i32, 16) kt_i32x16;

typedef const KT_GLOBAL kt_u8* kt_in;  // bytes of a global tensor that is read
typedef KT_GLOBAL kt_u8* kt_out;       // bytes of a global tensor that is written
typedef KT_LDS kt_u8* kt_smem;         // an address in shared memory (LDS)

// Takes the value by value on purpose: a bit cast of one element of a vector gives element 0 (clang 19 and 22).
template <class To, class From>
KT_FN To kt_bit_cast(From x) {
  return __builtin_bit_cast(To, x);
}

// The upper half of a number that all lanes agree on. The compiler would widen comparisons with it again, and scalar
// registers are compared in 32 bits only: it is not told what the half is of.
KT_FN kt_i32 kt_high(kt_i64 x) {
  kt_i32 high = kt_i32(x >> 32);
#ifdef KT_FIRST_LANE  // for kernels in which the compiler has it in a vector register
  KT_NATIVE((void)0, high = __builtin_amdgcn_readfirstlane(high));
#endif
  KT_NATIVE((void)0, asm("" : "+s"(high)));
  return high;
}
#define KT_HIGH(x) kt_high(x)

#include "kt_device.h"
#include "kt_hip_memory.h"
#include "kt_hip_lanes.h"
#include "kt_hip_math.h"
#include "kt_hip_mma.h"
