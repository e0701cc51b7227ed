// Calls every function of kt_cuda_async.h, and every kind of product. The products' wrappers come before this text.
extern "C" __global__ void __launch_bounds__(384, 1) every(KT_MAP(a), KT_MAP(b), kt_out out, int n) {
  KT_SHARED_MEMORY(smem, 65536);
  kt_smem bar = kt_base(smem) + 60000u, bar2 = smem + 60008u;
  int role = kt_uniform(int(kt_group()) / 4);
  if (kt_thread() == 0u) { kt_bar_init(bar, 1u); kt_bar_init(bar2, 8u); kt_bar_fence(); kt_map_prefetch(a); }
  kt_barrier();
  kt_cluster_sync();
  if (role == 0) {
    kt_registers_fewer<40>();
    if (kt_elect()) {
      kt_after_previous();
      kt_next_may_start();
      kt_bar_wait(bar2, 1u);
      kt_bar_again(bar2, 1u);
      kt_bar_expect(bar, 8192u);
      kt_tile_load(smem, a, bar, n, 1);
      kt_tile_load(smem, a, bar, n, 1, 2);
      kt_tile_load(smem, a, bar, n, 1, 2, 3);
      kt_tile_load(smem, a, bar, n, 1, 2, 3, 4);
      kt_tile_load_to(smem, a, bar, n, 1, 3);
      kt_tile_load_to(smem, a, bar, n, 1, 2, 3);
      kt_tile_load_to(smem, a, bar, n, 1, 2, 3, 3);
      kt_tile_load_to(smem, a, bar, n, 1, 2, 3, 4, 3);
      kt_tile_load_keep(smem, a, bar, n, 1);
      kt_tile_load_keep(smem, a, bar, n, 1, 2);
      kt_tile_load_keep(smem, a, bar, n, 1, 2, 3);
      kt_tile_load_keep(smem, a, bar, n, 1, 2, 3, 4);
      kt_tile_store(b, smem, n, 1);
      kt_tile_store(b, smem, n, 1, 2);
      kt_tile_store(b, smem, n, 1, 2, 3);
      kt_tile_store(b, smem, n, 1, 2, 3, 4);
      kt_tile_reduce_add(b, smem, n, 1);
      kt_tile_reduce_add(b, smem, n, 1, 2);
      kt_tile_reduce_add(b, smem, n, 1, 2, 3);
      kt_tile_reduce_add(b, smem, n, 1, 2, 3, 4);
      kt_st_global_b32(out, kt_blocks());
      kt_tile_commit();
      kt_tile_wait_read<1>();
      kt_tile_wait<0>();
      kt_fence_async_all();
    }
  } else {
    kt_registers_more<232>();
    float d[32], e[64];
    kt_i32 i[32];
    for (int x = 0; x < 32; x++) d[x] = 0.0f, i[x] = 0;
    for (int x = 0; x < 64; x++) e[x] = 0.0f;
    kt_desc p = kt_matrix_desc(smem, 16u, 1024u), q = kt_matrix_desc(smem + 8192u, 8192u, 1024u);
    kt_bar_wait(bar, 0u);
    kt_engine_fence();
    kt_wgmma_m64n64k16_bf16_ss(d, p, q, false);
    kt_wgmma_m64n64k16_bf16_ss<0, 1>(d, p, q, true);
    kt_wgmma_m64n64k16_bf16_ss<1, 1, 32>(e, p, q, n > 0);
    kt_wgmma_m64n64k16_f16_ss(d, p, q, true);
    kt_engine_commit();
    kt_engine_wait<0>(d, e);
    kt_engine_fence();
    kt_wgmma_m64n64k32_e4m3_ss(d, p, q, true);
    kt_wgmma_m64n64k32_e4m3_e5m2_ss(d, p, q, true);
    kt_wgmma_m64n64k32_e5m2_e4m3_ss(d, p, q, true);
    kt_wgmma_m64n64k32_e5m2_ss<32>(e, p, q, true);
    kt_wgmma_m64n64k32_s8_ss(i, p, q, true);
    kt_u32 r0 = n, r1 = n + 1, r2 = n + 2, r3 = n + 3;
    kt_engine_commit();
    kt_engine_wait<0>(d, e);
    kt_engine_wait<0>(i);
    kt_engine_fence();
    kt_wgmma_m64n64k16_bf16_rs<1>(d, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k16_bf16_rs<1, 32>(e, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k16_f16_rs(d, r0, r1, r2, r3, q, true);
    kt_engine_commit();
    kt_engine_wait<0>(d, e);
    kt_engine_fence();
    kt_wgmma_m64n64k32_e4m3_rs(d, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k32_e4m3_e5m2_rs(d, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k32_e5m2_e4m3_rs(d, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k32_e5m2_rs(d, r0, r1, r2, r3, q, true);
    kt_wgmma_m64n64k32_s8_rs(i, r0, r1, r2, r3, q, true);
    kt_engine_commit();
    kt_engine_wait<1>();
    kt_engine_wait<0>(d, e);
    kt_engine_pin(i);
    kt_bar_arrive(bar2);
    kt_bar_arrive_at(bar2, kt_cluster_rank() ^ 1u);
    float s = kt_ld_shared_of_two(kt_base_here(smem), 1);
    for (int x = 0; x < 32; x++) s += d[x] + float(i[x]);
    for (int x = 0; x < 64; x++) s += e[x];
    kt_st_shared_b32(smem, kt_bits(s));
    kt_fence_async();
    kt_st_global_b32(out + kt_thread() * 4u, kt_bits(s));
  }
}
