// Apple device functions for generated kernels, in Metal Shading Language 3.1. Metal compiles one text without a folder
// of headers, so an emitter pastes these files, and the neutral ones, into its source in place of the #includes.
//
// KT_NATIVE(meaning, native) is `native` on the device. The simulator has `meaning`, plain C++ that says the same.
// kt_thread() and its like are names of the kernel's parameters, which KT_IDS declares: they are for the kernel's body,
// and a helper takes them as arguments.
//
// Rules kept here, for the compilers' and the simulator's sake: plain functions, every pointer and reference with its
// address space, no template kernels, no vector constructors by an alias, no C casts of vectors.
#pragma once
#include <metal_stdlib>
#include <metal_simdgroup_matrix>

#ifndef KT_SIM
#pragma METAL fp math_mode(safe)
#pragma METAL fp contract(off)  // a multiply and an add fuse only where a kernel says kt_fma
#define KT_NATIVE(meaning, native) native
#define KT_FN static inline __attribute__((always_inline))
#endif

using namespace metal;

#define KT_LANES 32u
#define KT_LOCAL thread  // the address space of local variables
#define KT_UNROLL _Pragma("unroll")

typedef uchar kt_u8;
typedef ushort kt_u16;
typedef uint kt_u32;
typedef char kt_i8;
typedef short kt_i16;
typedef int kt_i32;
typedef ulong kt_u64;
typedef long kt_i64;
typedef uint2 kt_u32x2;
typedef uint4 kt_u32x4;
typedef float2 kt_f32x2;

typedef const device uchar* kt_in;  // bytes of a global tensor that is read
typedef device uchar* kt_out;       // bytes of a global tensor that is written
typedef threadgroup uchar* kt_smem; // an address in threadgroup memory

// The last parameters of every kernel; the names are those that other hosts of Metal text give them.
#define KT_IDS                                                                                  \
  uint3 threadgroup_position_in_grid [[threadgroup_position_in_grid]],                          \
      uint thread_index_in_threadgroup [[thread_index_in_threadgroup]],                         \
      uint thread_index_in_simdgroup [[thread_index_in_simdgroup]],                             \
      uint simdgroup_index_in_threadgroup [[simdgroup_index_in_threadgroup]]
#define kt_thread() thread_index_in_threadgroup   // within its program
#define kt_lane() thread_index_in_simdgroup       // within its group
#define kt_group() simdgroup_index_in_threadgroup // of lanes (simdgroup), within its program
#define kt_program_x() threadgroup_position_in_grid.x
#define kt_program_y() threadgroup_position_in_grid.y
#define kt_program_z() threadgroup_position_in_grid.z

#include "kt_device.h"
#include "kt_metal_memory.h"
#include "kt_metal_lanes.h"
#include "kt_metal_math.h"
#include "kt_metal_mma.h"
