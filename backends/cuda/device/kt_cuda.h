// NVIDIA device functions for generated kernels. Freestanding: compiles with NVRTC or nvcc, C++17, sm_80 and later.
//
// Every instruction that C++ has no words for sits behind KT_ASM, beside the C++ that means the same. The simulator
// compiles that C++ in place of the instruction; all other text here is what runs on the device.
//
// Compile with -fmad=false: a multiply and an add fuse only where a kernel says kt_fma.
#pragma once

// Threads of a program. Left to itself, the compiler keeps room for several programs on a processor, and may spill a
// few registers for it; then it is asked again, with KT_ONE_PROGRAM.
#ifdef KT_ONE_PROGRAM
#define KT_THREADS(n) __launch_bounds__(n, 1)
#else
#define KT_THREADS(n) __launch_bounds__(n)
#endif

#define KT_FN static __device__ __forceinline__
#define KT_LANES 32u
#define KT_INLINE __attribute__((always_inline))  // behind the parameters of a lambda

typedef unsigned char kt_u8;
typedef unsigned short kt_u16;
typedef unsigned int kt_u32;
typedef signed char kt_i8;
typedef short kt_i16;
typedef int kt_i32;
typedef unsigned long long kt_u64;
typedef long long kt_i64;

struct __align__(8) kt_u32x2 {
  kt_u32 x, y;
};
struct __align__(16) kt_u32x4 {
  kt_u32 x, y, z, w;
};

typedef const kt_u8* kt_in;   // bytes of a global tensor that is read
typedef kt_u8* kt_out;        // bytes of a global tensor that is written
typedef kt_u32 kt_smem;       // an address in shared memory

#ifndef KT_SIM
#define KT_PRINT(...) printf(__VA_ARGS__)
#define KT_ASM(meaning, ...) asm volatile(__VA_ARGS__)
#define KT_ASM_PURE(meaning, ...) asm(__VA_ARGS__)  // no effect but its result: may be moved, or left out
#endif

#include "kt_device.h"
#include "kt_cuda_memory.h"
#include "kt_cuda_lanes.h"
#include "kt_cuda_math.h"
#include "kt_cuda_mma.h"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "kt_cuda_async.h"
#endif
