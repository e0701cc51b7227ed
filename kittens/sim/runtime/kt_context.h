// A worker with all that it knows: what the parts of the runtime share.
#pragma once
#include <pthread.h>
#include <stdarg.h>

#include "kt_engine.h"
#include "kt_fiber.h"
#include "kt_shadow.h"

namespace kt_sim {

constexpr u32 kClusterBarrier = kBarriers, kMaxCluster = 16;
constexpr u32 kRegisterFile = 65536;  // registers of 32 bits that a program shares out

enum Order : u32 { Forward, Reverse, Random };

struct BarrierState {
  u32 arrived, threads;  // lanes that have arrived; lanes that it takes
  u32 groups, waiting;   // bit sets of groups: all that arrived, those that wait
  Clock clock;
  const Site* site;
  bool any_site;
};

// State that every worker of a launch shares.
struct Shared {
  Launch* launch;
  Entry entry;
  u64 programs, next, step, offset;  // program number n is run n * step + offset, modulo programs; clusters count as one
  u32 faulted;
};

struct Context;

// A lane that waits by itself. `ready` is asked by the scheduler: it looks, and does nothing.
struct Wait {
  bool (*ready)(Context&, const Wait&);
  void (*describe)(Context&, const Wait&, char* to, u64 size);
  struct Counter* counter;
  u32 parity;
  Group* group;
  u32 registers;
  const int* turn = nullptr;  // in global memory, and what it has to be
  long long wanted = 0;
};

// A tile on its way into shared memory.
struct Incoming {
  Transfer transfer;
  u32 tick, phase;  // the engine's tick; the phase of the counter that its bytes have counted in, once carried
  bool carried;
  Lane* lane;
  const Site* site;
};

// A barrier that counts arrivals and bytes.
struct Counter {
  u32 offset, expected, pending, phase, made_by;  // made_by: the stamp of its maker
  bool fenced;
  long long bytes;  // announced and not yet brought; below 0 if brought and not yet announced
  Clock arriving, done;
  Incoming* incoming;  // not yet waited for
  u32 incoming_count, incoming_capacity;
  struct Seen {
    u32 ended;  // 1 + the phases that had ended when the thread last waited
    const Site* site;
  } * seen;     // by each thread
};

// A tile on its way out of shared memory.
struct Outgoing {
  Transfer transfer;
  u32 batch;
  bool carried;
  const Site* site;
};

// Accumulators that products under way write.
struct Held {
  Product* of;  // one of those products, for where its accumulators are
  u32 shape, users;
  u32* values;  // of every lane, while poison stands in their place
};

struct Flight {
  static constexpr u32 kMost = 256;
  Product* products[kMost];  // oldest first
  Held held[kMost];
  u32 count, held_count, batch, number;  // number: of products started so far
  bool fenced;
};

// What the groups of a team must agree on: product number `number[n % 64]` is one with `same[n % 64]`.
struct Team {
  u64 same[64];
  u32 number[64];
  const Site* site[64];
};

struct Context : Worker {
  Shared* shared_launch;
  Lane* lane_table;
  Group groups[kMaxGroups];
  u32 group_count, all_threads, block_stride;  // of the cluster; bytes from one program's shared memory to the next one's
  BarrierState barriers[kMaxCluster][kBarriers], cluster_barrier;
  Shadow shadow;
  void* scheduler;
  char *stacks, *stacks_mapped;  // aligned to kStack, and as the system gave them
  u64 random, meetings, barriers_met;
  u32 order;
  bool faulted;
  void* crashed_at;
  pthread_t thread;

  Counter* counters;
  u32 counters_count, counters_capacity;
  u16* counter_at;       // 1 + the number of the counter at each 8 bytes of shared memory
  u16* reading;          // for each 16 bytes, how many products and outgoing tiles are reading them
  u32 reading_count;     // in all
  u32 spare_registers[kMaxCluster];
  Team teams[kMaxGroups];

  char* top_of(const Lane& lane) const { return stacks + (lane.thread + 1) * kStack - 64; }
};

inline Context& context() { return static_cast<Context&>(*worker); }  // of the fiber that asks

[[noreturn]] void leave(Context& c, FaultKind kind, Lane* lane, const Site* site, const char* format, ...)
    __attribute__((format(printf, 5, 6)));
u64 next_random(u64& state);
// Lets other lanes run until `wait` is ready.
void wait_until(Context& c, Wait& wait);

bool same_site(const Site* a, const Site* b);

// The engine's part of a program's life, and of the checks of plain accesses.
void start_engine(Context& c);
void open_engine(Context& c);
void close_engine(Context& c);
void lane_returns(Context& c, Lane& lane);
void group_ends(Context& c, Group& group);
[[noreturn]] void report_reading(Context& c, Lane* lane, const Site* site, u32 offset);

// A byte of the cluster's shared memory as its program knows it.
inline u32 local(const Context& c, u32 offset) { return offset % c.block_stride; }

}  // namespace kt_sim
