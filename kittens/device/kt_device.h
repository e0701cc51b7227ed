// What the device headers of all vendors have in common. A vendor's header defines, before it includes this:
//   KT_FN            how a device function is declared (inline)
//   kt_u8 .. kt_u32  unsigned integers, kt_i32; kt_u32x2 and kt_u32x4, vectors
//   KT_SIM           (simulator only) and then the macros below, by the shim
#pragma once

// Where a function is called from, known in the simulator alone. The last parameter of every function that touches
// memory or meets other lanes is KT_SITE (KT_SITE_ONLY where there is no other), its first statement KT_HERE.
// A function that does its work by another of ours hands its caller's place on: f(x KT_PASS_SITE).
// KT_LOC(n) marks the lines that follow as made for place n of a table that the emitter keeps.
#ifndef KT_SIM
#define KT_SITE
#define KT_SITE_ONLY
#define KT_HERE
#define KT_PASS_SITE
#define KT_LOC(n)
#define KT_ASSERT(condition, ...)  // reported by the simulator; nothing on a device
#endif

KT_FN kt_u32x2 kt_make_u32x2(kt_u32 x, kt_u32 y) {
  kt_u32x2 r;
  r.x = x;
  r.y = y;
  return r;
}
KT_FN kt_u32x4 kt_make_u32x4(kt_u32 x, kt_u32 y, kt_u32 z, kt_u32 w) {
  kt_u32x4 r;
  r.x = x;
  r.y = y;
  r.z = z;
  r.w = w;
  return r;
}
