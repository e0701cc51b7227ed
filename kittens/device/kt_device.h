// What the device headers of all vendors have in common. A vendor's header defines, before it includes this:
//   KT_FN            how a device function is declared (inline)
//   kt_u8 .. kt_u32  unsigned integers, kt_i32
//   KT_SIM           (simulator only) and then the four macros below, by the shim
#pragma once

// Where a function is called from, known in the simulator alone. The last parameter of every function that touches
// memory or meets other lanes is KT_SITE (KT_SITE_ONLY where there is no other), its first statement KT_HERE.
// KT_LOC(n) marks the lines that follow as made for place n of a table that the emitter keeps.
#ifndef KT_SIM
#define KT_SITE
#define KT_SITE_ONLY
#define KT_HERE
#define KT_LOC(n)
#endif
