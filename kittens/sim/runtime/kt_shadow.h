// What is known of every byte of shared memory, and the clocks that say which accesses are ordered.
//
// Each group has a tick, advanced whenever its lanes synchronise, and a clock: the last tick of every group that it has
// seen the end of, through barriers. An access by lane l of group h at tick e is ordered before one by group g if
// e <= g's clock of h, or if it is by the same lane. Lanes of one group are ordered by nothing but a synchronisation of
// the group: hardware may run them apart. So what a single lane hands on (by arriving at a counter) is a part of a tick.
// Copies by the engine have ticks of their own, one each.
//
// A byte has a stamp (who wrote it last, when) and a set of readers since. Sets are kept in a table, since many bytes
// share one; a full barrier orders every earlier read, so it empties the table.
#pragma once
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "kt_sim.h"

namespace kt_sim {

// Pending: a copy that is not waited for. Engine: the copy engine wrote it, for the thread. Late: written after the
// thread had fenced in this tick.
constexpr u32 kThreadBits = 10, kAtomicBit = 1u << 10, kPendingBit = 1u << 11, kEngineBit = 1u << 12, kLateBit = 1u << 13;
constexpr u32 kTickShift = 14;
constexpr u32 kLastTick = (1u << (32 - kTickShift)) - 2;
constexpr u32 kSeveral = 255;  // a reader entry: tick << 8 | lane + 1, or | kSeveral

constexpr u32 kEngine = kMaxGroups, kClocks = kMaxGroups + 1;

// What is known to have ended: every group's ticks up to `known`, and a tick's accesses by some of its lanes alone.
struct Clock {
  u32 known[kClocks], part_tick[kClocks];
  u64 part_lanes[kClocks];

  void join(const Clock& other, u32 groups) {
    for (u32 h = 0; h < groups; h++) join_one(h, other);
    join_one(kEngine, other);
  }
  void add_part(u32 h, u32 tick, u64 lanes) {
    if (tick > part_tick[h]) part_tick[h] = tick, part_lanes[h] = lanes;
    else if (tick == part_tick[h]) part_lanes[h] |= lanes;
  }
  bool covers(u32 h, u32 lane, u32 tick) const {
    return tick <= known[h] || (tick <= part_tick[h] && part_lanes[h] >> lane & 1);
  }

 private:
  void join_one(u32 h, const Clock& other) {
    if (other.known[h] > known[h]) known[h] = other.known[h];
    if (other.part_tick[h] > known[h]) add_part(h, other.part_tick[h], other.part_lanes[h]);
  }
};

struct ReaderSet {
  u32 entry[kMaxGroups];
};

struct Shadow {
  // No initial values here: `open` gives them, and the memory that a Shadow lies in starts as zeros.
  struct Byte {
    u32 stamp, readers;
    bool operator==(const Byte& b) const { return stamp == b.stamp && readers == b.readers; }
  };
  Byte* history;  // of every byte

  // Most accesses are of 4, 8 or 16 bytes with one history, which vectors of the CPU compare and fill at once.
  typedef u64 Four __attribute__((ext_vector_type(4), aligned(8)));
  static u64 word(const Byte& b) { return __builtin_bit_cast(u64, b); }
  template <u32 N>
  static bool alike_of(const Byte* at) {
    Four all = word(*at), differ = *reinterpret_cast<const Four*>(at) ^ all;
    for (u32 i = 4; i < N; i += 4) differ |= *reinterpret_cast<const Four*>(at + i) ^ all;
    return !(differ[0] | differ[1] | differ[2] | differ[3]);
  }
  // Whether `n` bytes have the history of the first.
  static bool alike(const Byte* at, u32 n) {
    if (n == 4) return alike_of<4>(at);
    if (n == 16) return alike_of<16>(at);
    if (n == 8) return alike_of<8>(at);
    for (u32 i = 1; i < n; i++)
      if (!(at[i] == *at)) return false;
    return true;
  }
  static void fill(Byte* at, u32 n, Byte now) {
    Four all = word(now);
    for (; n >= 4; n -= 4, at += 4) *reinterpret_cast<Four*>(at) = all;
    for (; n; n--) *at++ = now;
  }
  u32 bytes, groups;
  u32 tick[kClocks];
  Clock clock[kMaxGroups];
  Clock fenced;  // plain writes that a fence has made visible to the engine
  u32 first_tick;  // of this program: an older stamp means the byte is unwritten
  bool exhausted;  // a program with more synchronisations than a stamp can count: races are no longer told

  ReaderSet* sets;
  u32 sets_base, sets_next, sets_capacity;  // set number s is sets[s - sets_base]; older ones are empty
  struct Step {
    u32 from, entry, group, to;
  };
  static constexpr u32 kSteps = 4096;
  Step last;    // answer of with_reader
  Step* steps;  // cache of "set `from` with group's entry replaced is set `to`"

  void open(u32 size) {
    bytes = size;
    first_tick = sets_base = sets_next = 1;
    history = map(size);
    steps = static_cast<Step*>(calloc(kSteps, sizeof(Step)));
  }
  void close() {
    if (history) munmap(history, u64(bytes) * sizeof(Byte));
    free(sets);
    free(steps);
  }

  void start_program(u32 group_count) {
    u32 latest = tick[kEngine] > first_tick - 1 ? tick[kEngine] : first_tick - 1;
    for (u32 g = 0; g < groups; g++) latest = tick[g] > latest ? tick[g] : latest;
    first_tick = latest + 1;
    if (first_tick > kLastTick / 2 || sets_next > 0x7fffffff) {
      memset(history, 0, u64(bytes) * sizeof(Byte));
      memset(steps, 0, kSteps * sizeof(Step));
      last = Step{};
      first_tick = sets_base = sets_next = 1;
    }
    exhausted = false;
    groups = group_count;
    memset(&fenced, 0, sizeof fenced);
    memset(clock, 0, sizeof clock);
    tick[kEngine] = first_tick;
    for (u32 g = 0; g < groups; g++) {
      tick[g] = first_tick;
      for (u32 h = 0; h < groups; h++) clock[g].known[h] = first_tick - 1;
      clock[g].known[kEngine] = first_tick;
    }
    forget_readers();
  }

  void forget_readers() { sets_base = sets_next; }

  void advance(u32 g) {  // the lanes of group g have synchronised
    clock[g].known[g] = tick[g];
    step(g);
  }
  void step(u32 g) {
    if (tick[g] < kLastTick) tick[g]++;
    else exhausted = true;
  }
  void full_barrier() {
    u32 latest = 0, copies = 0;
    for (u32 g = 0; g < groups; g++) {
      latest = tick[g] > latest ? tick[g] : latest;
      copies = clock[g].known[kEngine] > copies ? clock[g].known[kEngine] : copies;
    }
    for (u32 g = 0; g < groups; g++) {
      for (u32 h = 0; h < groups; h++) clock[g].known[h] = latest;
      clock[g].known[kEngine] = copies;
      tick[g] = latest;
      advance(g);
    }
    forget_readers();
  }

  bool ordered(u32 stamp_, u32 group, u32 thread, u32 lane_bits) const {
    u32 by = stamp_ & ((1u << kThreadBits) - 1), at = stamp_ >> kTickShift;
    if (stamp_ & kEngineBit) return at <= clock[group].known[kEngine];
    return by == thread || clock[group].covers(by >> lane_bits, by & ((1u << lane_bits) - 1), at);
  }
  bool written(u32 stamp_) const { return stamp_ >> kTickShift >= first_tick; }
  u32 stamp_of(u32 group, u32 thread) const { return tick[group] << kTickShift | thread; }

  bool has_readers(u32 set) const { return set >= sets_base; }
  const ReaderSet& set(u32 number) const { return sets[number - sets_base]; }

  u32 with_reader(u32 from, u32 group, u32 lane) {
    u32 known = known_reader(from, group, lane);
    if (known) return known;
    u32 entry = tick[group] << 8 | (lane + 1);
    last = {from, entry, group, find_with_reader(from, group, entry)};
    return last.to;
  }
  // The answer of `with_reader`, if it is that of last time (mostly a lane reads bytes that the same lanes have read as
  // those it read before); else 0.
  u32 known_reader(u32 from, u32 group, u32 lane) const {
    u32 entry = tick[group] << 8 | (lane + 1);
    return last.from == from && last.entry == entry && last.group == group && last.to >= sets_base ? last.to : 0;
  }

  // A thread that read the byte and is not ordered before this access: its number, or -1.
  int unordered_reader(u32 number, u32 group, u32 lane, u32 lane_bits) const {
    if (!has_readers(number)) return -1;
    const ReaderSet& readers_ = set(number);
    for (u32 h = 0; h < groups; h++) {
      u32 entry = readers_.entry[h], by = entry & 255;
      if (!entry || entry >> 8 <= clock[group].known[h]) continue;
      if (h == group && by == lane + 1) continue;
      if (by != kSeveral && clock[group].covers(h, by - 1, entry >> 8)) continue;
      if (by == kSeveral) by = h == group && lane == 0 ? 2 : 1;
      return int(h << lane_bits | (by - 1));
    }
    return -1;
  }

 private:
  u32 find_with_reader(u32 from, u32 group, u32 entry) {
    u32 several = tick[group] << 8 | kSeveral;
    if (has_readers(from)) {
      u32 old = set(from).entry[group];
      if (old == entry || old == several) return from;
      if (old >> 8 == tick[group]) entry = several;
    } else {
      from = sets_base - 1;  // any empty set
    }
    Step& step = steps[(from * 0x9e3779b1u ^ entry * 0x85ebca6bu ^ group * 0xc2b2ae35u) >> 20];
    if (step.from == from && step.entry == entry && step.group == group && step.to >= sets_base) return step.to;
    u32 at = sets_next - sets_base;
    if (at == sets_capacity) {
      if (at >= 1u << 17) forget_readers(), at = 0;  // never synchronised as a whole: rather miss a race than run out
      else {
        sets_capacity = sets_capacity ? sets_capacity * 2 : 1024;
        sets = static_cast<ReaderSet*>(realloc(sets, sets_capacity * sizeof(ReaderSet)));
      }
    }
    if (has_readers(from)) sets[at] = sets[from - sets_base];
    else memset(&sets[at], 0, sizeof(ReaderSet));
    sets[at].entry[group] = entry;
    step = {from, entry, group, sets_next};
    return sets_next++;
  }

  static Byte* map(u32 size) {
    u64 length = u64(size ? size : 1) * sizeof(Byte);
    return static_cast<Byte*>(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0));
  }
};

}  // namespace kt_sim
