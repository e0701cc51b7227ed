// The scheduler of lanes, groups and programs; barriers; the checks of shared memory; fault reports.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sched.h>
#include <sys/mman.h>
#include <time.h>

#include "kt_context.h"

namespace kt_sim {

namespace {

constexpr u64 kGuard = 16 << 10;  // at the low end of a stack; pages are up to 16 KiB

// Of the thread, for the handler of crashes, which has a stack of its own.
thread_local Context* thread_context;

}  // namespace

u64 next_random(u64& state) {  // splitmix64
  u64 z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

namespace {

// ---- leaving a program with a fault: the first one of a launch is kept

[[noreturn]] void leave_with(Context& c, FaultKind kind, Lane* lane, const Site* site, const char* format, va_list arguments) {
  if (!lane) lane = c.lane;
  if (!__atomic_exchange_n(&c.shared_launch->faulted, 1, __ATOMIC_ACQ_REL)) {
    Fault& f = c.shared_launch->launch->fault;
    memcpy(f.program, c.program, sizeof f.program);
    f.program[0] += lane->block;
    f.thread = lane->thread % c.threads;
    f.lane = lane->thread & (c.lanes - 1);
    f.group = f.thread >> c.lane_bits;
    f.mark = lane->mark;
    f.line = site ? site->_M_line : 0;
    f.file = site ? site->_M_file_name : "";
    f.function = site ? site->_M_function_name : "";
    vsnprintf(f.message, sizeof f.message, format, arguments);
    f.kind = kind;
  }
  c.faulted = true;
  void* nowhere;
  kt_fiber_switch(&nowhere, c.scheduler);
  __builtin_trap();
}

}  // namespace

void leave(Context& c, FaultKind kind, Lane* lane, const Site* site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  leave_with(c, kind, lane, site, format, arguments);
}

namespace {

// ---- lanes of a group

u32 lane_at(const Context& c, const Group& g, u32 position) {
  if (c.order == Reverse) return g.count - 1 - position;
  return position ^ g.mask;  // 0 unless the order is random
}

Lane* next_in_pass(Context& c, Group& g) {
  while (g.cursor + 1 < int(g.count)) {
    Lane& l = g.lanes[lane_at(c, g, u32(++g.cursor))];
    if (!l.done) return &l;
  }
  return nullptr;
}

}  // namespace

bool same_site(const Site* a, const Site* b) {
  if (a == b) return true;
  if (!a || !b) return false;
  return a->_M_line == b->_M_line && a->_M_column == b->_M_column &&
         (a->_M_file_name == b->_M_file_name || !strcmp(a->_M_file_name, b->_M_file_name));
}

namespace {

void describe_lanes(char* to, u64 size, u64 lanes) {  // "0-3, 8"
  u64 at = 0;
  to[0] = 0;
  for (int l = 0; l < 64; l++) {
    if (!(lanes >> l & 1)) continue;
    int end = l;
    while (end < 63 && lanes >> (end + 1) & 1) end++;
    int n = end == l ? snprintf(to + at, size - at, "%s%d", at ? ", " : "", l)
                     : snprintf(to + at, size - at, "%s%d-%d", at ? ", " : "", l, end);
    if (n < 0 || at + u64(n) >= size) return;
    at += u64(n);
    l = end;
  }
}

[[noreturn]] void report_divergence(Group& g) {
  u64 here = 0, away = 0;
  Lane *first = nullptr, *other = nullptr;
  for (u32 i = 0; i < g.count; i++) {
    Lane& l = g.lanes[i];
    if (l.done) continue;
    if (!first) first = &l;
  }
  for (u32 i = 0; i < g.count; i++) {
    Lane& l = g.lanes[i];
    bool with = !l.done && l.meeting == first->meeting && same_site(l.site, first->site);
    (with ? here : away) |= 1ull << i;
    if (!with && (!other || other->done)) other = &l;
  }
  char those[80], others[80];
  describe_lanes(those, sizeof those, here);
  describe_lanes(others, sizeof others, away);
  const Site* s = first->site;
  if (other->done)
    kt_sim_fault(FaultKind::Divergent, first, s, "lanes %s are at %s, which every lane must reach, but lanes %s have returned",
                 those, first->function, others);
  kt_sim_fault(FaultKind::Divergent, first, s, "lanes %s are at %s, which every lane must reach, but lanes %s are at %s, %s:%u",
               those, first->function, others, other->function, other->site->_M_file_name,
               other->site->_M_line);
}

// A lane of the group that waits by itself, for something that has come.
Lane* ready_lane(Context& c, Group& g) {
  for (u32 i = 0; i < g.count; i++) {
    Lane& l = g.lanes[lane_at(c, g, i)];
    if (l.waiting && l.waiting->ready(c, *l.waiting)) return &l;
  }
  return nullptr;
}

// The pass is over: every lane of the group has returned or waits. -> the lane to go on with; null: the scheduler's turn
Lane* finish_pass(Context& c, Group& g) {
  if (g.done == g.count) {
    group_ends(c, g);
    g.state = Group::Done;
    return nullptr;
  }
  for (u32 i = 0; i < g.count; i++) {
    if (!g.lanes[i].waiting) continue;
    Lane* next = ready_lane(c, g);
    if (!next) g.state = Group::Waiting;
    return next;
  }
  Lane& first = g.lanes[0];
  bool together = g.done == 0;
  for (u32 i = 1; together && i < g.count; i++)
    together = g.lanes[i].meeting == first.meeting && same_site(g.lanes[i].site, first.site);
  if (!together) report_divergence(g);
  c.meetings++;
  first.meeting(g);
  g.cursor = -1;
  if (c.order == Random) {
    if ((g.count & (g.count - 1)) == 0) g.mask = u32(next_random(c.random)) & (g.count - 1);
    return nullptr;  // another group may go first
  }
  return g.state == Group::Runnable ? next_in_pass(c, g) : nullptr;
}

void go_to(Context& c, void** save, Lane* next) {
  if (next) {
    c.lane = next;
    kt_fiber_switch(save, next->stack);
  } else {
    kt_fiber_switch(save, c.scheduler);
  }
}

void lane_main() {
  Context& c = context();
  c.shared_launch->entry.run(c.shared_launch->launch->values);
  Lane& me = *c.lane;
  Group& g = *c.group;
  lane_returns(c, me);
  me.done = true;
  g.done++;
  Lane* next = next_in_pass(c, g);
  if (!next) next = finish_pass(c, g);
  void* nowhere;
  go_to(c, &nowhere, next);
  __builtin_trap();
}

// ---- barriers

struct BarrierRequest {
  u32 id, threads;
  bool wait, any_site;
};

void complete(Context& c, BarrierState& b) {
  if (b.groups == (c.group_count == 32 ? ~0u : (1u << c.group_count) - 1) && b.waiting == b.groups) {
    c.shadow.full_barrier();
  } else {
    for (u32 g = 0; g < c.group_count; g++) {
      if (b.waiting >> g & 1) c.shadow.clock[g].join(b.clock, c.group_count);
    }
  }
  for (u32 g = 0; g < c.group_count; g++)
    if (b.waiting >> g & 1) c.groups[g].state = Group::Runnable;
  c.barriers_met++;
  b = BarrierState{};
}

void barrier_meeting(Group& g) {
  Context& c = context();
  auto& request = g.operand<BarrierRequest>(0);
  Lane& first = g.lanes[0];
  for (u32 i = 1; i < g.count; i++) {
    auto& other = g.operand<BarrierRequest>(i);
    if (other.id != request.id || other.threads != request.threads)
      kt_sim_fault(FaultKind::Barrier, &g.lanes[i], first.site, "lanes of one group come to different barriers: %u for %u threads, %u for %u",
                   request.id, request.threads, other.id, other.threads);
  }
  BarrierState& b = request.id == kClusterBarrier ? c.cluster_barrier : c.barriers[first.block][request.id & (kBarriers - 1)];
  u32 threads = request.threads ? request.threads : c.threads;
  if (b.arrived && b.threads != threads)
    kt_sim_fault(FaultKind::Barrier, &first, first.site, "barrier %u is met for %u threads here, for %u at %s:%u", request.id, threads,
                 b.threads, b.site->_M_file_name, b.site->_M_line);
  if (b.arrived && request.id == 0 && !request.any_site && !b.any_site && !same_site(b.site, first.site))
    kt_sim_fault(FaultKind::Barrier, &first, first.site, "threads meet at different barriers: here and at %s:%u", b.site->_M_file_name,
                 b.site->_M_line);
  if (b.groups >> g.index & 1)
    kt_sim_fault(FaultKind::Barrier, &first, first.site, "barrier %u is reached a second time before the others have come", request.id);
  b.threads = threads;
  b.any_site |= request.any_site;
  b.site = g.barrier_site = first.site;
  b.arrived += g.count;
  b.groups |= 1u << g.index;
  // What this group has done is seen by those that wait; its lanes are in step too.
  c.shadow.advance(g.index);
  b.clock.join(c.shadow.clock[g.index], c.group_count);
  if (request.wait) {
    b.waiting |= 1u << g.index;
    g.state = Group::Blocked;
  }
  if (b.arrived > threads)
    kt_sim_fault(FaultKind::Barrier, &first, first.site, "barrier %u is reached by %u threads, more than its %u", request.id, b.arrived, threads);
  if (b.arrived == threads) complete(c, b);
}

[[noreturn]] void report_stuck_at_barriers(Context& c) {
  Group *blocked = nullptr, *returned = nullptr, *apart = nullptr;
  u32 waiting = 0;
  for (u32 i = 0; i < c.group_count; i++) {
    Group& g = c.groups[i];
    if (g.state == Group::Done) returned = &g;
    if (g.state != Group::Blocked) continue;
    waiting += g.count;
    if (!blocked) blocked = &g;
    else if (!same_site(blocked->barrier_site, g.barrier_site)) apart = &g;
  }
  Lane* lane = &blocked->lanes[0];
  const Site* s = blocked->barrier_site;
  if (apart)
    kt_sim_fault(FaultKind::Barrier, lane, s, "threads wait for ever at different barriers: some here, some at %s:%u",
                 apart->barrier_site->_M_file_name, apart->barrier_site->_M_line);
  if (returned)
    kt_sim_fault(FaultKind::Barrier, lane, s, "%u threads wait for ever at this barrier: group %u has returned without reaching it", waiting,
                 returned->index);
  kt_sim_fault(FaultKind::Barrier, lane, s, "%u threads wait for ever at this barrier, which expects more than there are", waiting);
}

// Where a group stands that waits, and what for.
void describe_group(Context& c, Group& g, char* to, u64 size) {
  if (g.state == Group::Blocked) {
    snprintf(to, size, "at the barrier at %s:%u", g.barrier_site->_M_file_name, g.barrier_site->_M_line);
    return;
  }
  for (u32 i = 0; i < g.count; i++) {
    Lane& l = g.lanes[i];
    if (!l.waiting) continue;
    int n = snprintf(to, size, "at %s, %s:%u, ", l.function, l.site->_M_file_name, l.site->_M_line);
    if (n > 0 && u64(n) < size) l.waiting->describe(c, *l.waiting, to + n, size - u64(n));
    return;
  }
  to[0] = 0;
}

[[noreturn]] void report_stuck(Context& c) {
  char text[1100], here[300], other[300], who[80];
  u64 at = 0, told = 0;
  Lane* lane = nullptr;
  for (u32 i = 0; i < c.group_count; i++) {
    Group& g = c.groups[i];
    if (g.state == Group::Waiting && !lane)
      for (u32 l = 0; l < g.count && !lane; l++) lane = g.lanes[l].waiting ? &g.lanes[l] : nullptr;
    if ((g.state != Group::Waiting && g.state != Group::Blocked) || told >> i & 1) continue;
    describe_group(c, g, here, sizeof here);
    u64 same = 0;
    for (u32 j = i; j < c.group_count; j++) {
      if (c.groups[j].state != Group::Waiting && c.groups[j].state != Group::Blocked) continue;
      describe_group(c, c.groups[j], other, sizeof other);
      if (!strcmp(here, other)) same |= 1ull << j;
    }
    told |= same;
    describe_lanes(who, sizeof who, same);
    int n = snprintf(text + at, sizeof text - at, "%sgroup%s %s %s", at ? "; " : "", same & (same - 1) ? "s" : "", who, here);
    if (n > 0 && at + u64(n) < sizeof text) at += u64(n);
  }
  if (!lane) report_stuck_at_barriers(c);
  kt_sim_fault(FaultKind::Barrier, lane, lane->site, "threads wait for ever: %s", text);
}

// ---- turns, which other programs bring on

constexpr long kTurnSeconds = 20;  // after which none is expected any more

bool turn_ready(Context&, const Wait& w) { return __atomic_load_n(w.turn, __ATOMIC_ACQUIRE) == w.wanted; }
void describe_turn(Context&, const Wait& w, char* to, u64 size) {
  snprintf(to, size, "for turn %lld of a counter that stands at %d", w.wanted, __atomic_load_n(w.turn, __ATOMIC_ACQUIRE));
}

bool awaits_turn(const Context& c) {
  for (u32 i = 0; i < c.all_threads; i++)
    if (c.lane_table[i].waiting && c.lane_table[i].waiting->turn) return true;
  return false;
}

// ---- programs

Group* pick_group(Context& c) {
  u32 runnable[kMaxGroups], n = 0;
  for (u32 i = 0; i < c.group_count; i++) {
    u32 g = c.order == Reverse ? c.group_count - 1 - i : i;
    if (c.groups[g].state == Group::Waiting ? !ready_lane(c, c.groups[g]) : c.groups[g].state != Group::Runnable) continue;
    if (c.order != Random) return &c.groups[g];
    runnable[n++] = g;
  }
  return n ? &c.groups[runnable[next_random(c.random) % n]] : nullptr;
}

void start_program(Context& c) {
  for (u32 i = 0; i < c.all_threads; i++) {
    Lane& l = c.lane_table[i];
    l.done = false;
    l.mark = 0;
    l.site = nullptr;
    l.copies_count = 0;
    l.batch = 0;
    // Tops are staggered: stacks a power of two apart would all want the same lines of the cache.
    l.stack = kt_fiber_prepare(c.top_of(l) - i % 61 * 192, lane_main);
  }
  for (u32 i = 0; i < c.group_count; i++) {
    Group& g = c.groups[i];
    g.done = g.mask = 0;
    g.cursor = -1;
    g.state = Group::Runnable;
  }
  memset(c.barriers, 0, c.cluster * sizeof c.barriers[0]);
  c.cluster_barrier = {};
  memset(c.shared, 0xff, u64(c.block_stride) * c.cluster);  // NaN in every float format
  if (c.checks) c.shadow.start_program(c.group_count);
  start_engine(c);
}

void run_program(Context& c) {
  start_program(c);
  for (;;) {
    Group* g = pick_group(c);
    if (!g && awaits_turn(c)) {
      timespec from, now;
      clock_gettime(CLOCK_MONOTONIC, &from);
      do {
        sched_yield();
        clock_gettime(CLOCK_MONOTONIC, &now);
        g = pick_group(c);
      } while (!g && now.tv_sec - from.tv_sec < kTurnSeconds);
    }
    if (!g) break;
    c.group = g;
    g->state = Group::Runnable;
    c.lane = next_in_pass(c, *g);
    if (!c.lane) c.lane = finish_pass(c, *g);
    if (!c.lane) continue;
    kt_fiber_switch(&c.scheduler, c.lane->stack);
    if (c.faulted) return;
  }
  for (u32 i = 0; i < c.group_count; i++)
    if (c.groups[i].state != Group::Done) {
      // On a fiber's stack, so that the report can leave like any other.
      c.group = &c.groups[i];
      Lane& l = c.lane_table[0];
      l.stack = kt_fiber_prepare(c.top_of(l), [] { report_stuck(context()); });
      c.lane = &l;
      kt_fiber_switch(&c.scheduler, l.stack);
      return;
    }
}

// ---- the CPU's mode for subnormals: whether arithmetic of float32 takes and gives zero in their place

u64 float_mode() {
#if defined(__x86_64__)
  return __builtin_ia32_stmxcsr();
#else
  u64 mode;
  asm volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
#endif
}
void set_float_mode(u64 mode) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(u32(mode));
#else
  asm volatile("msr fpcr, %0" ::"r"(mode));
#endif
}
#if defined(__x86_64__)
constexpr u64 kFlush = 0x8040;  // FTZ, DAZ
#else
constexpr u64 kFlush = 1u << 24;  // FZ
#endif

void* run_worker(void* argument) {
  Context& c = *static_cast<Context*>(argument);
  Shared& s = *c.shared_launch;
  Context* before = thread_context;
  u64 mode = float_mode();
  thread_context = &c;
  if (s.entry.flush) set_float_mode(mode | kFlush);
  Launch& launch = *s.launch;
  while (!__atomic_load_n(&s.faulted, __ATOMIC_RELAXED)) {
    u64 n = __atomic_fetch_add(&s.next, 1, __ATOMIC_RELAXED);
    if (n >= s.programs) break;
    u64 p = launch.order == Reverse ? s.programs - 1 - n : u64((unsigned __int128)n * s.step % s.programs + s.offset) % s.programs;
    p *= c.cluster;  // clusters lie along the first axis
    c.program[0] = u32(p % launch.grid[0]);
    c.program[1] = u32(p / launch.grid[0] % launch.grid[1]);
    c.program[2] = u32(p / launch.grid[0] / launch.grid[1]);
    c.random = launch.seed * 0x9e3779b97f4a7c15ull + p;
    c.late = launch.order == Reverse || (launch.order == Random && next_random(c.random) & 1);
    run_program(c);
    if (c.faulted) break;
  }
  set_float_mode(mode);
  thread_context = before;
  return nullptr;
}

u64 gcd(u64 a, u64 b) { return b ? gcd(b, a % b) : a; }

void open_context(Context& c, Shared& s) {
  Launch& launch = *s.launch;
  c.shared_launch = &s;
  memcpy(c.grid, launch.grid, sizeof c.grid);
  memcpy(c.block, launch.block, sizeof c.block);
  for (u32 i = 0; i < launch.extents_count; i++) c.extents[i + 1] = launch.extents[i];
  c.lanes = launch.lanes;
  c.lane_bits = u32(__builtin_ctz(launch.lanes));
  c.threads = launch.block[0] * launch.block[1] * launch.block[2];
  c.cluster = launch.cluster;
  c.all_threads = c.threads * c.cluster;
  c.group_count = (c.all_threads + c.lanes - 1) / c.lanes;
  c.checks = launch.checks;
  c.order = launch.order;
  c.shared_bytes = launch.shared_bytes;
  c.block_stride = c.shared_bytes ? (c.shared_bytes + 1023) & ~1023u : 1024;
  u32 bytes = c.block_stride * c.cluster;
  void* shared = nullptr;
  if (posix_memalign(&shared, 4096, bytes)) abort();
  c.shared = static_cast<u8*>(shared);
  c.lane_table = static_cast<Lane*>(calloc(c.all_threads, sizeof(Lane)));
  c.shadow.open(c.checks ? bytes : 0);
  u64 size = (c.all_threads + 1) * kStack;
  c.stacks_mapped = static_cast<char*>(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0));
  c.stacks = reinterpret_cast<char*>((reinterpret_cast<u64>(c.stacks_mapped) + kStack - 1) & ~(kStack - 1));
  for (u32 i = 0; i < c.all_threads; i++) {
    *Current::slot_of(reinterpret_cast<u64>(c.stacks + i * kStack)) = &c;
    mprotect(c.stacks + i * kStack, kGuard, PROT_NONE);
    c.lane_table[i].thread = i;
    c.lane_table[i].block = i / c.threads;
    c.lane_table[i].base = i / c.threads * c.block_stride;
  }
  for (u32 i = 0; i < c.group_count; i++) {
    u32 rest = c.all_threads - i * c.lanes;
    c.groups[i].lanes = c.lane_table + i * c.lanes;
    c.groups[i].count = rest < c.lanes ? rest : c.lanes;
    c.groups[i].index = i;
  }
  open_engine(c);
}

void close_context(Context& c) {
  close_engine(c);
  for (u32 i = 0; i < c.all_threads; i++) free(c.lane_table[i].copies);
  free(c.lane_table);
  free(c.shared);
  munmap(c.stacks_mapped, (c.all_threads + 1) * kStack);
  c.shadow.close();
}

// ---- crashes: a pointer used past our functions, or a stack run over

[[noreturn]] void report_crash() {
  Context& c = context();
  leave(c, FaultKind::Crash, nullptr, c.site,
        "memory touched outside the kt_ functions, or a stack overrun, at address %p (the line is of the last kt_ function)",
        c.crashed_at);
}

void on_crash(int signal_number, siginfo_t* info, void* interrupted) {
  Context* c = thread_context;
  if (!c || !c->lane) {
    signal(signal_number, SIG_DFL);
    return;
  }
  c->crashed_at = info->si_addr;
  kt_fiber_go_on(interrupted, c->top_of(*c->lane), report_crash);
}

struct CrashGuard {
  struct sigaction segv, bus;
  CrashGuard() {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_crash;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &segv);
    sigaction(SIGBUS, &action, &bus);
  }
  ~CrashGuard() {
    sigaction(SIGSEGV, &segv, nullptr);
    sigaction(SIGBUS, &bus, nullptr);
  }
};

void* run_guarded(void* argument) {  // signal stacks belong to threads
  constexpr u64 size = 64 << 10;
  void* memory = malloc(size);
  stack_t mine, before;
  memset(&mine, 0, sizeof mine);
  mine.ss_sp = memory;
  mine.ss_size = size;
  sigaltstack(&mine, &before);
  run_worker(argument);
  sigaltstack(&before, nullptr);
  free(memory);
  return nullptr;
}

// ---- checks of shared memory

// An access to a byte that its last writer does not allow.
[[noreturn]] __attribute__((noinline, cold)) void report_writer(Context& c, Lane* lane, const Site* site, u32 byte, Mode mode) {
  const char* verb = mode == Read ? "read" : "write";
  u32 stamp = c.shadow.history[byte].stamp, by = stamp & (kMaxThreads - 1), at = local(c, byte);
  if (!c.shadow.written(stamp))
    kt_sim_fault(FaultKind::UnwrittenShared, lane, site, "read of byte %u of shared memory, which nobody has written", at);
  if (stamp & kPendingBit)
    kt_sim_fault(FaultKind::AsyncShared, lane, site, "%s of byte %u of shared memory while thread %u's %s to it is not waited for", verb, at, by,
                 stamp & kEngineBit ? "copy of a tile" : "asynchronous copy");
  kt_sim_fault(FaultKind::Race, lane, site, "%s of byte %u of shared memory, written by thread %u (group %u, lane %u) with no barrier between",
               verb, at, by, by >> c.lane_bits, by & (c.lanes - 1));
}

[[noreturn]] __attribute__((noinline, cold)) void report_reader(Context& c, Lane* lane, const Site* site, u32 byte, int reader) {
  kt_sim_fault(FaultKind::Race, lane, site, "write of byte %u of shared memory, read by thread %d (group %d, lane %d) with no barrier between",
               local(c, byte), reader, reader >> c.lane_bits, reader & int(c.lanes - 1));
}

// Most reads are of bytes with one history, that may be read, and the lane's last read was of bytes with the same readers.
// -> whether this one was, and is noted; else check_shared must be asked. It is kept small: nothing here takes as long.
inline bool usual_read(const Lane* lane, u32 offset, u32 bytes) {
  Shadow& s = context().shadow;
  u32 bits = context().lane_bits, thread = lane->thread, g = thread >> bits;
  Shadow::Byte *at = s.history + offset, was = *at;
  if (!Shadow::alike(at, bytes)) return false;
  u32 to = s.known_reader(was.readers, g, thread & ((1u << bits) - 1));
  if (!to || !s.written(was.stamp) || was.stamp & kPendingBit || !s.ordered(was.stamp, g, thread, bits)) return false;
  if (to != was.readers) Shadow::fill(at, bytes, {was.stamp, to});
  return true;
}

template <Mode mode>
__attribute__((noinline)) void check_shared(Lane* lane, const Site* site, u32 offset, u32 bytes) {
  Context& c = context();
  Shadow& s = c.shadow;
  u32 thread = lane->thread, g = thread >> c.lane_bits, l = thread & (c.lanes - 1);
  if (mode != Read && c.reading_count)
    for (u32 i = offset / 16; i <= (offset + bytes - 1) / 16; i++)
      if (c.reading[i]) report_reading(c, lane, site, i * 16);
  u32 late = lane->fence_tick == s.tick[g] ? kLateBit : 0;
  Shadow::Byte *at = s.history + offset, *end = at + bytes;
  while (at < end) {  // by runs of bytes with the same history: there is nearly always but one
    Shadow::Byte was = *at, *from = at;
    if (at + bytes == end && Shadow::alike(at, bytes)) at = end;
    else while (++at < end && *at == was) {}
    bool allowed = !s.written(was.stamp) ? mode == Write
                                         : !(was.stamp & kPendingBit) &&
                                               (s.ordered(was.stamp, g, thread, c.lane_bits) || s.exhausted ||
                                                (mode == Atomic && was.stamp & kAtomicBit));
    if (!allowed) report_writer(c, lane, site, u32(from - s.history), mode);
    Shadow::Byte now = was;
    if (mode == Read) {
      now.readers = s.with_reader(was.readers, g, l);
      if (now.readers == was.readers) continue;
    } else {
      int reader = s.unordered_reader(was.readers, g, l, c.lane_bits);
      if (reader >= 0 && !s.exhausted) report_reader(c, lane, site, u32(from - s.history), reader);
      now = {s.stamp_of(g, thread) | (mode == Atomic ? kAtomicBit : 0) | late, 0};
    }
    Shadow::fill(from, u32(at - from), now);
  }
}

pthread_mutex_t crash_lock = PTHREAD_MUTEX_INITIALIZER;

}  // namespace

void wait_until(Context& c, Wait& wait) {
  Lane& me = *c.lane;
  Group& g = *c.group;
  me.site = c.site;
  me.function = c.function;
  while (!wait.ready(c, wait)) {
    me.waiting = &wait;
    Lane* next = next_in_pass(c, g);
    if (!next) next = finish_pass(c, g);
    if (next != &me) go_to(c, &me.stack, next);
    me.waiting = nullptr;
  }
  c.site = me.site;
  c.function = me.function;
}

// ---- the interface

extern "C" {

void kt_sim_turn_wait(const int* counter, long long turn) {
  Context& c = context();
  if (turn != int(turn))
    kt_sim_fault(FaultKind::Barrier, nullptr, c.site, "a thread waits for ever: for turn %lld of a counter of 32 bits", turn);
  Wait wait{turn_ready, describe_turn, nullptr, 0, c.group, 0, counter, turn};
  wait_until(c, wait);
}

void kt_sim_meet(Meeting meeting, void* operand) {
  Context& c = context();
  Lane& me = *c.lane;
  Group& g = *c.group;
  me.meeting = meeting;
  me.operand = operand;
  me.site = c.site;
  me.function = c.function;
  Lane* next = next_in_pass(c, g);
  if (!next) next = finish_pass(c, g);
  if (next != &me) go_to(c, &me.stack, next);
}

void kt_sim_fault(FaultKind kind, Lane* lane, const Site* site, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  leave_with(context(), kind, lane, site, format, arguments);
}

void kt_sim_print(const char* format, ...) {
  if (context().order != Forward) return;
  char line[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  fputs(line, stdout);
  fflush(stdout);
}

void kt_sim_global_fault(const void* pointer, u32 bytes, u32 write) {
  Context& c = context();
  u64 p = reinterpret_cast<u64>(pointer), tag = p >> kTagShift;
  const char* verb = write ? "write" : "read";
  if (tag == 0 || tag > c.shared_launch->launch->extents_count)
    kt_sim_fault(FaultKind::GlobalBounds, nullptr, c.site, "%s of %u bytes through %p, which points into no argument", verb, bytes, pointer);
  const Extent& e = c.extents[tag];
  long long offset = (long long)((p & kAddressMask) - e.base);
  if (offset < 0 || u64(offset) > e.size || e.size - u64(offset) < bytes)
    kt_sim_fault(FaultKind::GlobalBounds, nullptr, c.site, "%s of %u bytes at byte %lld of argument %u, which has %llu bytes", verb, bytes,
                 offset, e.number, e.size);
  if (write && !e.writable)
    kt_sim_fault(FaultKind::ReadOnly, nullptr, c.site, "write of %u bytes at byte %lld of argument %u, which is read-only", bytes, offset,
                 e.number);
  kt_sim_fault(FaultKind::Misaligned, nullptr, c.site, "%s of %u bytes at byte %lld of argument %u, which is not aligned for it", verb,
               bytes, offset, e.number);
}

void kt_sim_shared_fault(Lane* lane, const Site* site, u64 offset, u32 bytes, u32 write) {
  Context& c = context();
  const char* verb = write ? "write" : "read";
  long long at = (long long)offset;
  if (offset > c.shared_bytes || c.shared_bytes - offset < bytes)
    kt_sim_fault(FaultKind::SharedBounds, lane, site, "%s of %u bytes at byte %lld of shared memory, which has %u bytes", verb, bytes, at,
                 c.shared_bytes);
  kt_sim_fault(FaultKind::Misaligned, lane, site, "%s of %u bytes at byte %lld of shared memory, which is not aligned for it", verb, bytes, at);
}

void kt_sim_check_shared(Lane* lane, const Site* site, u32 offset, u32 bytes, u32 mode) {
  if (mode == Read) {
    if (!usual_read(lane, offset, bytes)) check_shared<Read>(lane, site, offset, bytes);
  } else if (mode == Write) {
    check_shared<Write>(lane, site, offset, bytes);
  } else {
    check_shared<Atomic>(lane, site, offset, bytes);
  }
}

void kt_sim_group_sync(Group& group) {
  Context& c = context();
  if (c.checks) c.shadow.advance(group.index);
}

void kt_sim_barrier(u32 id, u32 threads, bool wait, bool any_site) {
  BarrierRequest request{id, threads, wait, any_site};
  kt_sim_meet(barrier_meeting, &request);
}

void kt_sim_async_begin(u32 offset, u32 bytes) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (!c.checks) return;
  kt_sim_check_shared(&lane, c.site, offset, bytes, Write);
  Shadow::Byte* at = c.shadow.history + offset;  // written just now: all alike
  Shadow::fill(at, bytes, {at->stamp | kPendingBit, at->readers});
  if (lane.copies_count == lane.copies_capacity) {
    lane.copies_capacity = lane.copies_capacity ? lane.copies_capacity * 2 : 32;
    lane.copies = static_cast<AsyncCopy*>(realloc(lane.copies, lane.copies_capacity * sizeof(AsyncCopy)));
  }
  lane.copies[lane.copies_count++] = {offset, bytes, lane.batch};
}

void kt_sim_async_commit() { worker->lane->batch++; }

void kt_sim_async_wait(u32 batches_left) {
  Context& c = context();
  Lane& lane = *c.lane;
  if (lane.batch < batches_left || !c.checks) return;
  u32 done = 0, until = lane.batch - batches_left, thread = lane.thread;
  u32 stamp = c.shadow.stamp_of(thread >> c.lane_bits, thread);
  for (; done < lane.copies_count && lane.copies[done].batch < until; done++) {
    Shadow::Byte* at = c.shadow.history + lane.copies[done].offset;
    u32 bytes = lane.copies[done].bytes;
    if (Shadow::alike(at, bytes)) Shadow::fill(at, bytes, {stamp, at->readers});
    else
      for (u32 i = 0; i < bytes; i++) at[i].stamp = stamp;
  }
  memmove(lane.copies, lane.copies + done, (lane.copies_count - done) * sizeof(AsyncCopy));
  lane.copies_count -= done;
}

void kt_sim_cluster_barrier() {
  BarrierRequest request{kClusterBarrier, context().all_threads, true, false};
  kt_sim_meet(barrier_meeting, &request);
}

void kt_sim_poison_fault() {
  Context& c = context();
  leave(c, FaultKind::Product, nullptr, c.site, "an accumulator of a product that is not waited for is used");
}

void kt_sim_launch(Launch* launch, Entry entry) {
  Shared s{};
  s.launch = launch;
  s.entry = entry;
  s.programs = u64(launch->grid[0]) * launch->grid[1] * launch->grid[2] / launch->cluster;
  s.step = 1;
  if (launch->order == Random && s.programs > 1) {
    u64 state = launch->seed;
    do s.step = next_random(state) % s.programs;
    while (gcd(s.step, s.programs) != 1);
    s.offset = next_random(state) % s.programs;
  }
  u32 workers = launch->workers < s.programs ? launch->workers : u32(s.programs);
  if (workers < 1) workers = 1;
  auto* contexts = static_cast<Context*>(calloc(workers, sizeof(Context)));
  for (u32 i = 0; i < workers; i++) open_context(contexts[i], s);
  pthread_mutex_lock(&crash_lock);  // signal handlers are the process's: one launch at a time of a kernel
  {
    CrashGuard guard;
    for (u32 i = 1; i < workers; i++) pthread_create(&contexts[i].thread, nullptr, run_guarded, &contexts[i]);
    run_guarded(&contexts[0]);
    for (u32 i = 1; i < workers; i++) pthread_join(contexts[i].thread, nullptr);
  }
  pthread_mutex_unlock(&crash_lock);
  for (u32 i = 0; i < workers; i++) {
    launch->meetings += contexts[i].meetings;
    launch->barriers += contexts[i].barriers_met;
    close_context(contexts[i]);
  }
  free(contexts);
}

}  // extern "C"
}  // namespace kt_sim

// One object for the whole runtime: it is compiled once and kept.
#include "kt_engine.cpp"
