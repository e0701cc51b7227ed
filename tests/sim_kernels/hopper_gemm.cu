// c = a b, bfloat16 in and out: a is m x k and b is k x n, both row-major. Tiles of 128 x 64, K in steps of 64, a ring of
// two stages; a producer warp copies, two groups of four warps multiply 64 x 64 each. Blocks take tiles in turn.
// The text of kt_wgmma_m64n64k16_bf16_ss and of the wait for 32 accumulators comes before this.
#define STAGES 2u
#define STAGE_BYTES 24576u               // a: 128 x 64, b: 64 x 64
#define OUT (STAGES * STAGE_BYTES)       // 8 warps x 16 rows of 128 bytes
#define FULL (OUT + 16384u)
#define EMPTY (FULL + STAGES * 8u)
#define SHARED (EMPTY + STAGES * 8u)

extern "C" __global__ void __launch_bounds__(384, 1) gemm(KT_MAP(a), KT_MAP(b), KT_MAP(c), int m, int n, int k) {
  KT_SHARED_MEMORY(smem, SHARED);
  int role = kt_uniform(int(kt_group()) / 4);
  kt_u32 warp = kt_u32(kt_uniform(int(kt_group()))), lane = kt_lane();
  if (kt_thread() == 0u) {
    for (kt_u32 s = 0u; s < STAGES; s++) {
      kt_bar_init(smem + FULL + s * 8u, 1u);
      kt_bar_init(smem + EMPTY + s * 8u, 8u);
    }
    kt_bar_fence();
  }
  kt_barrier();
  int columns = (n + 63) / 64, tiles = (m + 127) / 128 * columns, steps = (k + 63) / 64;
  kt_u32 stage = 0u;
  if (role == 0) {
    kt_registers_fewer<40>();
    if (warp == 0u && kt_elect()) {
      kt_u32 parity = 1u;  // a fresh ring is empty
      for (int t = int(kt_program_x()); t < tiles; t += int(gridDim.x)) {
        int row = t / columns * 128, column = t % columns * 64;
        for (int i = 0; i < steps; i++) {
          kt_smem to = smem + stage * STAGE_BYTES, full = smem + FULL + stage * 8u;
          kt_bar_wait(smem + EMPTY + stage * 8u, parity);
          kt_bar_expect(full, STAGE_BYTES);
          kt_tile_load(to, a, full, i * 64, row);
          kt_tile_load(to + 16384u, b, full, column, i * 64);
          stage ^= 1u;
          if (stage == 0u) parity ^= 1u;
        }
      }
    }
  } else {
    kt_registers_more<232>();
    kt_u32 parity = 0u, part = kt_u32(role - 1);
    kt_smem out = smem + OUT + (warp - 4u) * 2048u;
    kt_desc da = kt_matrix_desc(smem + part * 8192u, 16u, 1024u), db = kt_matrix_desc(smem + 16384u, 8192u, 1024u);
    for (int t = int(kt_program_x()); t < tiles; t += int(gridDim.x)) {
      int row = t / columns * 128, column = t % columns * 64;
      float d[32];
      kt_u32 before = 0u;
      for (int i = 0; i < steps; i++) {
        kt_bar_wait(smem + FULL + stage * 8u, parity);
        kt_desc at = stage * (STAGE_BYTES >> 4);
        kt_engine_fence();
#pragma unroll
        for (kt_u32 j = 0u; j < 4u; j++)
          kt_wgmma_m64n64k16_bf16_ss<0, 1>(d, da + at + j * 2u, db + at + j * 128u, i > 0 || j > 0u);
        kt_engine_commit();
        kt_engine_wait<1>(d);
        if (i > 0 && lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);
        before = stage;
        stage ^= 1u;
        if (stage == 0u) parity ^= 1u;
      }
      kt_engine_wait<0>(d);
      if (lane == 0u) kt_bar_arrive(smem + EMPTY + before * 8u);
      if (lane == 0u) kt_tile_wait_read<0>();
      kt_sync_lanes();
      kt_u32 r = lane & 15u;
#pragma unroll
      for (kt_u32 j = 0u; j < 4u; j++)
        kt_stmatrix_x4(out + r * 128u + ((j * 2u + (lane >> 4) ^ (r & 7u)) << 4), kt_f32x2_to_bf16x2(d[8u * j], d[8u * j + 1u]),
                       kt_f32x2_to_bf16x2(d[8u * j + 2u], d[8u * j + 3u]), kt_f32x2_to_bf16x2(d[8u * j + 4u], d[8u * j + 5u]),
                       kt_f32x2_to_bf16x2(d[8u * j + 6u], d[8u * j + 7u]));
      kt_fence_async();
      kt_sync_lanes();
      if (lane == 0u) {
        kt_tile_store(c, out, column, row + int(warp - 4u) * 16);
        kt_tile_commit();
      }
    }
    if (lane == 0u) kt_tile_wait_read<0>();
  }
}
