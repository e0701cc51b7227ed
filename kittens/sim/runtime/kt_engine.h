// What runs beside the lanes, as a shim sees it: counters that lanes and copies arrive at, a copy engine that carries tiles
// between tensors and shared memory, and products that read shared memory and write registers by themselves.
//
// Work is started by lanes and waited for by lanes. When it is done in between is free, so it is done at once in one order
// of lanes, and in the other not before somebody waits for it. In both, what it reads and writes is checked against all
// that lanes do before they have waited.
#pragma once
#include "kt_sim.h"

namespace kt_sim {

// A tile to be carried. `carry` does it, on the stack of some lane.
struct Transfer {
  void (*carry)(const Transfer&);
  const void* map;
  int at[5];
  u32 offset, bytes;  // in shared memory: of the program; once started, of the cluster
};

// A product of a group, as a part of one by `team` neighbouring groups. `run` adds it to the accumulators.
struct Held;
struct Product {
  static constexpr u32 kMostPieces = 32 + 512;
  void (*run)(Product&);
  u32* accumulators[kMaxLanes];  // of each lane
  u32 count;                     // of 32-bit accumulators a lane
  u32 shape;                     // products may follow each other on accumulators without a wait if this is the same
  u64 same;                      // equal in all groups of the team
  u32 pieces[kMostPieces], pieces_count;  // of 16 bytes of the cluster's shared memory, that it reads
  // The runtime's.
  u32 batch;
  Held* held;
  Lane* lane;
  const Site* site;
};

extern "C" {
// Offsets of counters are in the shared memory of a program: of the lane's own, or of another `block` of its cluster.
void kt_sim_counter_init(u32 offset, u32 arrivals);
void kt_sim_counter_fence();
void kt_sim_counter_arrive(u32 offset, u32 block, u32 bytes);  // and announces bytes that copies will bring
void kt_sim_counter_wait(u32 offset, u32 parity);

void kt_sim_tile_in(const Transfer* transfer, u32 counter, u32 blocks);  // blocks: a bit set; 0: the lane's own
void kt_sim_tile_out(const Transfer* transfer);
void kt_sim_tile_commit();
void kt_sim_tile_wait(u32 batches_left);
void kt_sim_engine_fence();

void kt_sim_product_fence(Group& group);
void kt_sim_product_start(Group& group, Product* product, u32 team);  // from malloc; the runtime frees it
void kt_sim_product_commit(Group& group);
void kt_sim_product_wait(Group& group, u32 batches_left);

void kt_sim_registers(u32 count, bool more);
void kt_sim_cluster_barrier();

void* malloc(__SIZE_TYPE__);
}

inline u32 block_rank() { return worker->lane->block; }

}  // namespace kt_sim
