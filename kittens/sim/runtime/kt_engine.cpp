// Counters, the copy engine, products under way, and the registers that groups share out. Part of kt_sim.cpp.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kt_context.h"

namespace kt_sim {

namespace {

u32 group_of(const Context& c, const Lane& lane) { return lane.thread >> c.lane_bits; }
u32 lane_in_group(const Context& c, const Lane& lane) { return lane.thread & (c.lanes - 1); }

template <class T>
void grow(T*& items, u32 count, u32& capacity) {
  if (count < capacity) return;
  capacity = capacity ? capacity * 2 : 16;
  items = static_cast<T*>(realloc(static_cast<void*>(items), capacity * sizeof(T)));
}

// ---- what the engine and products read of shared memory

// Whether plain writes with this stamp have been fenced.
bool fenced(const Context& c, u32 stamp) {
  if (stamp & kEngineBit) return true;
  u32 by = stamp & (kMaxThreads - 1), at = stamp >> kTickShift;
  const Lane& writer = c.lane_table[by];
  if (writer.fence_tick > at || (writer.fence_tick == at && (!(stamp & kLateBit) || writer.fence_level > 1))) return true;
  return c.shadow.fenced.covers(by >> c.lane_bits, by & (c.lanes - 1), at);
}

void check_stamp(Context& c, Lane* lane, const Site* site, u32 offset, u32 stamp, const char* what) {
  Shadow& s = c.shadow;
  u32 by = stamp & (kMaxThreads - 1);
  if (!s.written(stamp))
    leave(c, FaultKind::UnwrittenShared, lane, site, "%s reads byte %u of shared memory, which nobody has written", what, local(c, offset));
  if (stamp & kPendingBit)
    leave(c, FaultKind::AsyncShared, lane, site, "%s reads byte %u of shared memory while thread %u's %s to it is not waited for", what,
          local(c, offset), by, stamp & kEngineBit ? "copy of a tile" : "asynchronous copy");
  if (s.exhausted) return;
  if (!s.ordered(stamp, group_of(c, *lane), lane->thread, c.lane_bits))
    leave(c, FaultKind::Race, lane, site, "%s reads byte %u of shared memory, written by thread %u (group %u, lane %u) with no barrier between",
          what, local(c, offset), by, by >> c.lane_bits, by & (c.lanes - 1));
  if (!fenced(c, stamp))
    leave(c, FaultKind::Unfenced, lane, site,
          "%s reads byte %u of shared memory, which thread %u (group %u, lane %u) has written with plain stores and not fenced: "
          "kt_fence_async() belongs after the stores", what, local(c, offset), by, by >> c.lane_bits, by & (c.lanes - 1));
}

void start_reading(Context& c, Lane* lane, const Site* site, const u32* pieces, u32 count, const char* what) {
  if (!c.checks) return;
  u32 allowed = 0;  // a stamp that has been looked at; none is 0
  for (u32 p = 0; p < count; p++) {
    const Shadow::Byte* at = c.shadow.history + pieces[p];
    for (u32 i = 0; i < 16; i++)
      if (at[i].stamp != allowed || !allowed) {
        check_stamp(c, lane, site, pieces[p] + i, at[i].stamp, what);
        allowed = at[i].stamp;
      }
    c.reading[pieces[p] / 16]++;
  }
  c.reading_count += count;
}

// `lane`: of its group, or kSeveral - 1 for all of them.
void end_reading(Context& c, u32 group, u32 lane, const u32* pieces, u32 count) {
  if (!c.checks) return;
  u32 from = 0, to = 0;
  bool any = false;
  for (u32 p = 0; p < count; p++) {
    Shadow::Byte* at = c.shadow.history + pieces[p];
    for (u32 i = 0; i < 16; i++) {
      if (!any || at[i].readers != from) {
        any = true;
        from = at[i].readers;
        to = c.shadow.with_reader(from, group, lane);
      }
      at[i].readers = to;
    }
    c.reading[pieces[p] / 16]--;
  }
  c.reading_count -= count;
}

bool reads(const Product& p, u32 offset) {
  for (u32 i = 0; i < p.pieces_count; i++)
    if (p.pieces[i] / 16 == offset / 16) return true;
  return false;
}

// ---- counters

Counter& counter(Context& c, u32 offset, u32 base) {
  if (offset % 8 || offset >= c.shared_bytes || c.shared_bytes - offset < 8)
    kt_sim_shared_fault(c.lane, c.site, offset, 8, Write);
  u32 n = c.counter_at[(offset + base) / 8];
  if (!n) leave(c, FaultKind::Barrier, nullptr, c.site, "there is no barrier at byte %u of shared memory: nobody has made one", offset);
  Counter& k = c.counters[n - 1];
  if (c.checks && !c.shadow.exhausted && !c.shadow.ordered(k.made_by, group_of(c, *c.lane), c.lane->thread, c.lane_bits))
    leave(c, FaultKind::Race, nullptr, c.site, "the barrier at byte %u of shared memory is used with no barrier of all threads since thread %u made it",
          offset, k.made_by & (kMaxThreads - 1));
  return k;
}

void end_phase(Context& c, Counter& k) {
  if (k.pending || k.bytes) return;
  k.phase++;
  k.pending = k.expected;
  k.done.join(k.arriving, c.group_count);
}

void carry(Context& c, Counter& k, Incoming& load) {
  Lane* me = c.lane;
  const Site* here = c.site;
  c.lane = load.lane;  // whose fault it is, if there is one
  c.site = load.site;
  load.transfer.carry(load.transfer);
  c.lane = me;
  c.site = here;
  load.carried = true;
  load.phase = k.phase;
  if (load.tick > k.arriving.known[kEngine]) k.arriving.known[kEngine] = load.tick;
  k.bytes -= load.transfer.bytes;
  if (k.bytes < -((1 << 20) - 1))
    leave(c, FaultKind::Barrier, load.lane, load.site, "the barrier at byte %u of shared memory is brought 2^20 bytes or more than it was told to expect",
          local(c, k.offset));
  end_phase(c, k);
}

void carry_all(Context& c, Counter& k) {
  for (u32 i = 0; i < k.incoming_count; i++)
    if (!k.incoming[i].carried) carry(c, k, k.incoming[i]);
}

bool ended(const Counter& k, u32 parity) { return (k.phase & 1) != parity; }

bool counter_ready(Context&, const Wait& w) {
  if (ended(*w.counter, w.parity)) return true;
  for (u32 i = 0; i < w.counter->incoming_count; i++)
    if (!w.counter->incoming[i].carried) return true;  // the waiting lane has them carried
  return false;
}

void describe_counter(Context& c, const Wait& w, char* to, u64 size) {
  const Counter& k = *w.counter;
  snprintf(to, size, "for parity %u of the barrier at byte %u of shared memory, in phase %u: %u of %u arrivals and %lld bytes are missing", w.parity,
           local(c, k.offset), k.phase, k.pending, k.expected, k.bytes);
}

// Tiles of phases that have ended and are now waited for belong to whoever is ordered after the wait.
void land(Context& c, Counter& k) {
  u32 left = 0;
  for (u32 i = 0; i < k.incoming_count; i++) {
    Incoming& load = k.incoming[i];
    if (!load.carried || load.phase >= k.phase) {
      k.incoming[left++] = load;
      continue;
    }
    if (!c.checks) continue;
    u32 stamp = load.tick << kTickShift | load.lane->thread | kEngineBit;
    Shadow::Byte* at = c.shadow.history + load.transfer.offset;
    for (u32 b = 0; b < load.transfer.bytes; b++) at[b].stamp = stamp;
  }
  k.incoming_count = left;
}

// ---- tiles out

void carry_out(Outgoing& store) {
  store.transfer.carry(store.transfer);
  store.carried = true;
}

u32 pieces_of(const Transfer& t, u32 from, u32 (&pieces)[64]) {  // 64 at a time, from byte `from` of it
  u32 n = 0;
  for (; n < 64 && from + n * 16 < t.bytes; n++) pieces[n] = t.offset + from + n * 16;
  return n;
}

// ---- products

struct Range {
  u32 *from, *to;
};
Range accumulators(const Product& p) { return {p.accumulators[0], p.accumulators[0] + p.count}; }

void hold(Context& c, Group& g, Held& h) {  // poison in the place of accumulators
  u32 count = h.of->count;
  c.poisoned = true;
  if (!h.values) h.values = static_cast<u32*>(malloc(u64(count) * c.lanes * 4));
  for (u32 l = 0; l < g.count; l++) {
    memcpy(h.values + l * count, h.of->accumulators[l], count * 4);
    for (u32 i = 0; i < count; i++) h.of->accumulators[l][i] = kPoison;
  }
}
void check_held(Context& c, Group& g, const Held& h) {
  if (!h.values) return;
  for (u32 l = 0; l < g.count; l++)
    for (u32 i = 0; i < h.of->count; i++)
      if (h.of->accumulators[l][i] != kPoison)
        leave(c, FaultKind::Product, g.lanes + l, g.lanes[l].site, "accumulator %u was changed while the product at %s:%u is under way", i,
              h.of->site->_M_file_name, h.of->site->_M_line);
}
void give_back(Group& g, Held& h) {
  if (!h.values) return;
  for (u32 l = 0; l < g.count; l++) memcpy(h.of->accumulators[l], h.values + l * h.of->count, h.of->count * 4);
  free(h.values);
  h.values = nullptr;
}

void claim_accumulators(Context& c, Group& g, Product* p) {
  Flight& f = *g.flight;
  Range mine = accumulators(*p);
  for (u32 i = 0; i < f.held_count; i++) {
    Held& h = f.held[i];
    Range other = accumulators(*h.of);
    if (mine.to <= other.from || other.to <= mine.from) continue;
    if (mine.from != other.from || mine.to != other.to || h.shape != p->shape)
      leave(c, FaultKind::Product, &g.lanes[0], p->site, "the product at %s:%u, of another shape or on other accumulators, writes some of these and is under way",
            h.of->site->_M_file_name, h.of->site->_M_line);
    check_held(c, g, h);
    h.users++;
    p->held = &h;
    return;
  }
  Held& h = f.held[f.held_count++];
  h = {p, p->shape, 1, nullptr};
  p->held = &h;
  if (c.late) hold(c, g, h);
}

void agree(Context& c, Group& g, const Product& p, u32 team) {
  u32 n = ++g.flight->number;
  Team& t = c.teams[g.index / team];
  if (t.number[n % 64] == n && t.same[n % 64] != p.same)
    leave(c, FaultKind::Divergent, &g.lanes[0], p.site, "group %u starts another product here, or another operand, than its team at %s:%u", g.index,
          t.site[n % 64]->_M_file_name, t.site[n % 64]->_M_line);
  t.number[n % 64] = n;
  t.same[n % 64] = p.same;
  t.site[n % 64] = p.site;
}

// ---- registers

bool registers_ready(Context& c, const Wait& w) {
  u32 block = w.group->lanes[0].block;
  return w.group->registers == w.registers || (w.registers - w.group->registers) * c.lanes <= c.spare_registers[block];
}
void describe_registers(Context& c, const Wait& w, char* to, u64 size) {
  snprintf(to, size, "for %u registers a thread where %u are held: %u are left for the group's %u threads", w.registers, w.group->registers,
           c.spare_registers[w.group->lanes[0].block], c.lanes);
}

void registers_meeting(Group&) {}

}  // namespace

// ---- the life of a program

void open_engine(Context& c) {
  u64 bytes = u64(c.block_stride) * c.cluster;
  c.counter_at = static_cast<u16*>(calloc(bytes / 8, 2));
  c.reading = static_cast<u16*>(calloc(bytes / 16, 2));
}

void close_engine(Context& c) {
  for (u32 i = 0; i < c.counters_capacity; i++) free(c.counters[i].incoming), free(c.counters[i].seen);
  for (u32 i = 0; i < c.group_count; i++) {
    Flight* f = c.groups[i].flight;
    if (!f) continue;
    for (u32 p = 0; p < f->count; p++) free(f->products[p]);
    for (u32 h = 0; h < f->held_count; h++) free(f->held[h].values);
    free(f);
  }
  for (u32 i = 0; i < c.all_threads; i++) free(c.lane_table[i].outgoing);
  free(c.counters);
  free(c.counter_at);
  free(c.reading);
}

void start_engine(Context& c) {
  for (u32 i = 0; i < c.counters_count; i++) c.counter_at[c.counters[i].offset / 8] = 0;
  c.counters_count = 0;
  c.poisoned = false;
  u32 registers = kRegisterFile / c.threads / 8 * 8;
  if (registers > 256) registers = 256;
  for (u32 b = 0; b < c.cluster; b++) c.spare_registers[b] = kRegisterFile - registers * c.threads;
  for (u32 i = 0; i < c.group_count; i++) c.groups[i].registers = registers;
  for (u32 i = 0; i < c.all_threads; i++) {
    Lane& l = c.lane_table[i];
    l.waiting = nullptr;
    l.outgoing_count = l.outgoing_batch = l.fence_tick = l.fence_level = 0;
  }
  memset(c.teams, 0, sizeof c.teams);
  for (u32 i = 0; i < c.group_count; i++)
    if (Flight* f = c.groups[i].flight) f->batch = f->number = 0, f->fenced = false;
}

void lane_returns(Context& c, Lane& lane) {
  if (lane.outgoing_count)
    leave(c, FaultKind::AsyncShared, &lane, lane.outgoing[0].site, "the thread returns while its copy of a tile out of shared memory is not %s",
          lane.outgoing[0].batch == lane.outgoing_batch ? "committed" : "waited for");
}

void group_ends(Context& c, Group& g) {
  if (g.flight && g.flight->count)
    leave(c, FaultKind::Product, &g.lanes[0], g.flight->products[0]->site, "the group returns while this product is not %s",
          g.flight->products[0]->batch == g.flight->batch ? "committed" : "waited for");
  for (u32 i = 0; i < c.group_count; i++)
    if (&c.groups[i] != &g && c.groups[i].state != Group::Done) return;
  for (u32 i = 0; i < c.counters_count; i++)
    if (Counter& k = c.counters[i]; k.incoming_count)
      leave(c, FaultKind::AsyncShared, k.incoming[0].lane, k.incoming[0].site, "the program ends while this copy of a tile is not waited for");
}

void report_reading(Context& c, Lane* lane, const Site* site, u32 offset) {
  const Site* by = nullptr;
  const char* what = "copy of a tile";
  for (u32 i = 0; i < c.all_threads; i++)
    for (u32 n = 0; n < c.lane_table[i].outgoing_count; n++) {
      const Outgoing& o = c.lane_table[i].outgoing[n];
      if (offset + 15 >= o.transfer.offset && offset < o.transfer.offset + o.transfer.bytes) by = o.site;
    }
  for (u32 g = 0; g < c.group_count && !by; g++)
    for (u32 n = 0; c.groups[g].flight && n < c.groups[g].flight->count; n++)
      if (reads(*c.groups[g].flight->products[n], offset)) by = c.groups[g].flight->products[n]->site, what = "product";
  leave(c, FaultKind::AsyncShared, lane, site, "write of byte %u of shared memory while the %s at %s:%u, which reads it, is not waited for",
        local(c, offset), what, by ? by->_M_file_name : "?", by ? by->_M_line : 0);
}

extern "C" {

// ---- counters

void kt_sim_counter_init(u32 offset, u32 arrivals) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (offset % 8 || offset >= c.shared_bytes || c.shared_bytes - offset < 8) kt_sim_shared_fault(&lane, c.site, offset, 8, Write);
  if (!arrivals || arrivals >= 1 << 20) leave(c, FaultKind::Barrier, nullptr, c.site, "a barrier takes 1 to 2^20 - 1 arrivals, not %u", arrivals);
  u32 at = offset + lane.base;
  if (c.checks) kt_sim_check_shared(&lane, c.site, at, 8, Write);
  u32 n = c.counter_at[at / 8];
  if (!n) {
    if (c.counters_count == c.counters_capacity) {
      u32 before = c.counters_capacity;
      grow(c.counters, c.counters_count, c.counters_capacity);
      memset(static_cast<void*>(c.counters + before), 0, (c.counters_capacity - before) * sizeof(Counter));
    }
    n = ++c.counters_count;
    c.counter_at[at / 8] = u16(n);
  }
  Counter& k = c.counters[n - 1];
  Incoming* incoming = k.incoming;
  Counter::Seen* seen = k.seen;
  u32 capacity = k.incoming_capacity;
  k = Counter{};
  k.incoming = incoming;
  k.incoming_capacity = capacity;
  k.seen = seen ? seen : static_cast<Counter::Seen*>(malloc(c.all_threads * sizeof(Counter::Seen)));
  memset(k.seen, 0, c.all_threads * sizeof(Counter::Seen));
  k.offset = at;
  k.expected = k.pending = arrivals;
  k.made_by = c.checks ? c.shadow.stamp_of(group_of(c, lane), lane.thread) : 0;
}

void kt_sim_counter_fence() {
  Context& c = context();
  for (u32 i = 0; i < c.counters_count; i++)
    if ((c.counters[i].made_by & (kMaxThreads - 1)) == c.lane->thread) c.counters[i].fenced = true;
}

void kt_sim_counter_arrive(u32 offset, u32 block, u32 bytes) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (block == ~0u) block = lane.block;
  if (block >= c.cluster) leave(c, FaultKind::Barrier, nullptr, c.site, "there is no block %u in a cluster of %u", block, c.cluster);
  Counter& k = counter(c, offset, block * c.block_stride);
  if (block != lane.block) {
    bool gone = true;
    for (u32 i = 0; i < c.threads; i++) gone &= c.lane_table[block * c.threads + i].done;
    if (gone) leave(c, FaultKind::Barrier, nullptr, c.site, "block %u of the cluster has ended, and its barriers with it", block);
  }
  if (!k.pending)
    leave(c, FaultKind::Barrier, nullptr, c.site,
          "the barrier at byte %u of shared memory, in phase %u, has had its %u arrivals and waits for %lld bytes: this arrival is one too many", offset,
          k.phase, k.expected, k.bytes);
  if (c.checks) {
    u32 g = group_of(c, lane);
    k.arriving.join(c.shadow.clock[g], c.group_count);
    k.arriving.add_part(g, c.shadow.tick[g], 1ull << lane_in_group(c, lane));
    u64 all = c.lanes == 64 ? ~0ull : (1ull << c.lanes) - 1;
    if (k.arriving.part_tick[g] == c.shadow.tick[g] && k.arriving.part_lanes[g] == all) k.arriving.known[g] = c.shadow.tick[g];
  }
  k.bytes += bytes;
  if (k.bytes >= 1 << 20) leave(c, FaultKind::Barrier, nullptr, c.site, "the barrier at byte %u of shared memory expects 2^20 bytes or more", offset);
  k.pending--;
  end_phase(c, k);
}

void kt_sim_counter_wait(u32 offset, u32 parity) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (parity > 1) leave(c, FaultKind::Barrier, nullptr, c.site, "a parity is 0 or 1, not %u", parity);
  Counter* k = &counter(c, offset, lane.base);
  u32 n = u32(k - c.counters);
  while (!ended(*k, parity)) {
    carry_all(c, *k);
    if (ended(*k, parity)) break;
    Wait wait{counter_ready, describe_counter, k, parity, c.group, 0};
    wait_until(c, wait);
    k = &c.counters[n];
  }
  // From the same place, as in a loop whose parity does not change. (Elsewhere it may be meant: no compiler moves a wait for
  // products above a wait like this.)
  Counter::Seen& seen = k->seen[lane.thread];
  if (seen.ended == k->phase + 1 && same_site(seen.site, c.site))
    leave(c, FaultKind::Barrier, &lane, c.site,
          "this thread waits a second time for the same phase of the barrier at byte %u of shared memory, which has ended: for the next, phase %u, the "
          "parity is %u", offset, k->phase, parity ^ 1);
  seen = {k->phase + 1, c.site};
  if (c.checks) c.shadow.clock[group_of(c, lane)].join(k->done, c.group_count);
  land(c, *k);
}

// ---- tiles

void kt_sim_tile_in(const Transfer* transfer, u32 offset, u32 blocks) {
  Context& c = context();
  Lane& lane = *c.lane;
  Transfer t = *transfer;
  if (t.offset > c.shared_bytes || c.shared_bytes - t.offset < t.bytes) kt_sim_shared_fault(&lane, c.site, t.offset, t.bytes, Write);
  if (!blocks) blocks = 1u << lane.block;
  if (blocks >> c.cluster) leave(c, FaultKind::Barrier, nullptr, c.site, "blocks 0x%x are not all in a cluster of %u", blocks, c.cluster);
  for (u32 b = 0; b < c.cluster; b++) {
    if (!(blocks >> b & 1)) continue;
    Counter& k = counter(c, offset, b * c.block_stride);
    if (!k.fenced)
      leave(c, FaultKind::Unfenced, nullptr, c.site, "the barrier at byte %u of shared memory was made by thread %u without kt_bar_fence() after it",
            offset, k.made_by & (kMaxThreads - 1));
    t.offset = transfer->offset + b * c.block_stride;
    for (u32 at = t.offset / 8; at < (t.offset + t.bytes + 7) / 8; at++)
      if (c.counter_at[at]) leave(c, FaultKind::AsyncShared, nullptr, c.site, "the tile overwrites the barrier at byte %u of shared memory", local(c, at * 8));
    u32 tick = 0;
    if (c.checks) {
      kt_sim_check_shared(&lane, c.site, t.offset, t.bytes, Write);
      c.shadow.step(kEngine);
      tick = c.shadow.tick[kEngine];
      u32 stamp = tick << kTickShift | lane.thread | kEngineBit | kPendingBit;
      Shadow::Byte* at = c.shadow.history + t.offset;
      for (u32 i = 0; i < t.bytes; i++) at[i].stamp = stamp;
    }
    grow(k.incoming, k.incoming_count, k.incoming_capacity);
    k.incoming[k.incoming_count++] = {t, tick, 0, false, &lane, c.site};
    if (!c.late) carry(c, k, k.incoming[k.incoming_count - 1]);
  }
}

void kt_sim_tile_out(const Transfer* transfer) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (transfer->offset > c.shared_bytes || c.shared_bytes - transfer->offset < transfer->bytes)
    kt_sim_shared_fault(&lane, c.site, transfer->offset, transfer->bytes, Read);
  grow(lane.outgoing, lane.outgoing_count, lane.outgoing_capacity);
  Outgoing& store = lane.outgoing[lane.outgoing_count++];
  store = {*transfer, lane.outgoing_batch, false, c.site};
  store.transfer.offset += lane.base;
  u32 pieces[64];
  for (u32 at = 0; at < transfer->bytes; at += 1024)
    start_reading(c, &lane, c.site, pieces, pieces_of(store.transfer, at, pieces), "a copy of a tile");
  if (!c.late) carry_out(store);
}

void kt_sim_tile_commit() { worker->lane->outgoing_batch++; }

void kt_sim_tile_wait(u32 batches_left) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (lane.outgoing_batch < batches_left) return;
  u32 until = lane.outgoing_batch - batches_left, left = 0;
  for (u32 i = 0; i < lane.outgoing_count; i++) {
    Outgoing& store = lane.outgoing[i];
    if (store.batch >= until) {
      lane.outgoing[left++] = store;
      continue;
    }
    if (!store.carried) carry_out(store);
    u32 pieces[64];
    for (u32 at = 0; at < store.transfer.bytes; at += 1024)
      end_reading(c, group_of(c, lane), lane_in_group(c, lane), pieces, pieces_of(store.transfer, at, pieces));
  }
  lane.outgoing_count = left;
}

void kt_sim_engine_fence() {
  Context& c = context();
  if (!c.checks) return;
  Lane& lane = *c.lane;
  u32 g = group_of(c, lane), now = c.shadow.tick[g];
  lane.fence_level = lane.fence_tick == now ? 2 : 1;
  lane.fence_tick = now;
  c.shadow.fenced.join(c.shadow.clock[g], c.group_count);
}

// ---- products

void kt_sim_product_fence(Group& g) {
  if (!g.flight) g.flight = static_cast<Flight*>(calloc(1, sizeof(Flight)));
  g.flight->fenced = true;
}

void kt_sim_product_start(Group& g, Product* p, u32 team) {
  Context& c = context();
  p->lane = &g.lanes[0];
  p->site = g.lanes[0].site;
  if (!g.flight || !g.flight->fenced)
    leave(c, FaultKind::Product, &g.lanes[0], p->site, "kt_engine_fence() belongs before the first product of a batch");
  Flight& f = *g.flight;
  if (f.count == Flight::kMost) leave(c, FaultKind::Product, &g.lanes[0], p->site, "%u products are under way: the simulator knows no more", f.count);
  agree(c, g, *p, team);
  claim_accumulators(c, g, p);
  start_reading(c, p->lane, p->site, p->pieces, p->pieces_count, "a product");
  p->batch = f.batch;
  f.products[f.count++] = p;
  if (!c.late) p->run(*p);
}

void kt_sim_product_commit(Group& g) {
  if (!g.flight) g.flight = static_cast<Flight*>(calloc(1, sizeof(Flight)));
  g.flight->batch++;
  g.flight->fenced = false;
}

void kt_sim_product_wait(Group& g, u32 batches_left) {
  Context& c = context();
  if (c.checks) c.shadow.advance(g.index);
  Flight* f = g.flight;
  if (!f) return;
  f->fenced = false;
  u32 until = f->batch < batches_left ? 0 : f->batch - batches_left, n = 0;
  while (n < f->count && f->products[n]->batch < until) n++;
  if (!n) return;
  for (u32 i = 0; i < f->held_count; i++) {
    check_held(c, g, f->held[i]);
    give_back(g, f->held[i]);
  }
  for (u32 i = 0; i < n; i++) {
    Product* p = f->products[i];
    if (c.late) p->run(*p);
    end_reading(c, g.index, kSeveral - 1, p->pieces, p->pieces_count);
  }
  Product* ended[Flight::kMost];
  memcpy(ended, f->products, n * sizeof(Product*));
  memmove(f->products, f->products + n, (f->count - n) * sizeof(Product*));
  f->count -= n;
  // The accumulators of those that are left.
  f->held_count = 0;
  for (u32 i = 0; i < f->count; i++) {
    Product* p = f->products[i];
    Held* h = nullptr;
    for (u32 j = 0; j < f->held_count; j++)
      if (f->held[j].of->accumulators[0] == p->accumulators[0]) h = &f->held[j];
    if (h) {
      h->users++;
    } else {
      h = &f->held[f->held_count++];
      *h = {p, p->shape, 1, nullptr};
      if (c.late) hold(c, g, *h);
    }
    p->held = h;
  }
  for (u32 i = 0; i < n; i++) free(ended[i]);
  if (c.checks) c.shadow.advance(g.index);
}

// ---- registers

void kt_sim_registers(u32 count, bool more) {
  Context& c = context();
  kt_sim_meet(registers_meeting, nullptr);
  Group& g = *c.group;
  Lane& lane = *c.lane;
  if (count < 24 || count > 256 || count % 8)
    leave(c, FaultKind::Registers, nullptr, lane.site, "%u registers a thread: it must be a multiple of 8 from 24 to 256", count);
  if (more ? count < g.registers : count > g.registers)
    leave(c, FaultKind::Registers, nullptr, lane.site, "%u registers a thread are %s than the %u that the group holds", count, more ? "fewer" : "more",
          g.registers);
  c.site = lane.site;
  c.function = lane.function;
  Wait wait{registers_ready, describe_registers, nullptr, 0, &g, count};
  if (more) wait_until(c, wait);
  if (g.registers == count) return;  // another lane was first
  u32& spare = c.spare_registers[lane.block];
  spare = spare + g.registers * c.lanes - count * c.lanes;
  g.registers = count;
}

}  // extern "C"
}  // namespace kt_sim
