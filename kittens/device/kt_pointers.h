// Loads and stores of devices whose memories are reached through pointers: a vendor's header defines KT_LOAD_GLOBAL(T, p),
// KT_STORE_GLOBAL(T, p, v) and the same of shared memory before it includes this. Widths are in bits; an address is a multiple
// of its width.
#pragma once

KT_FN kt_u8 kt_ld_global_b8(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(kt_u8, p); }
KT_FN kt_u16 kt_ld_global_b16(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(kt_u16, p); }
KT_FN kt_u32 kt_ld_global_b32(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(kt_u32, p); }
KT_FN kt_u32x2 kt_ld_global_b64(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(kt_u32x2, p); }
KT_FN kt_u32x4 kt_ld_global_b128(kt_in p KT_SITE) { KT_HERE; return KT_LOAD_GLOBAL(kt_u32x4, p); }
KT_FN void kt_st_global_b8(kt_out p, kt_u8 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(kt_u8, p, v); }
KT_FN void kt_st_global_b16(kt_out p, kt_u16 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(kt_u16, p, v); }
KT_FN void kt_st_global_b32(kt_out p, kt_u32 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(kt_u32, p, v); }
KT_FN void kt_st_global_b64(kt_out p, kt_u32x2 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(kt_u32x2, p, v); }
KT_FN void kt_st_global_b128(kt_out p, kt_u32x4 v KT_SITE) { KT_HERE; KT_STORE_GLOBAL(kt_u32x4, p, v); }

KT_FN kt_u8 kt_ld_shared_b8(kt_smem p KT_SITE) { KT_HERE; return KT_LOAD_SHARED(kt_u8, p); }
KT_FN kt_u16 kt_ld_shared_b16(kt_smem p KT_SITE) { KT_HERE; return KT_LOAD_SHARED(kt_u16, p); }
KT_FN kt_u32 kt_ld_shared_b32(kt_smem p KT_SITE) { KT_HERE; return KT_LOAD_SHARED(kt_u32, p); }
KT_FN kt_u32x2 kt_ld_shared_b64(kt_smem p KT_SITE) { KT_HERE; return KT_LOAD_SHARED(kt_u32x2, p); }
KT_FN kt_u32x4 kt_ld_shared_b128(kt_smem p KT_SITE) { KT_HERE; return KT_LOAD_SHARED(kt_u32x4, p); }
KT_FN void kt_st_shared_b8(kt_smem p, kt_u8 v KT_SITE) { KT_HERE; KT_STORE_SHARED(kt_u8, p, v); }
KT_FN void kt_st_shared_b16(kt_smem p, kt_u16 v KT_SITE) { KT_HERE; KT_STORE_SHARED(kt_u16, p, v); }
KT_FN void kt_st_shared_b32(kt_smem p, kt_u32 v KT_SITE) { KT_HERE; KT_STORE_SHARED(kt_u32, p, v); }
KT_FN void kt_st_shared_b64(kt_smem p, kt_u32x2 v KT_SITE) { KT_HERE; KT_STORE_SHARED(kt_u32x2, p, v); }
KT_FN void kt_st_shared_b128(kt_smem p, kt_u32x4 v KT_SITE) { KT_HERE; KT_STORE_SHARED(kt_u32x4, p, v); }
