// The simulator's runtime, as a kernel's translation unit sees it. Neutral: it knows lanes, groups of lanes that
// meet (a warp, a wave, a simdgroup), programs of the grid, buffers and shared memory, and no vendor.
//
// Every lane is a fiber. A lane runs until it meets the others of its group; the last one to arrive does the
// operation for all of them. Groups meet at barriers. Between two meetings the order of lanes and of groups is free,
// so the runtime offers several; a correct kernel gives the same result in each.
#pragma once

// What __builtin_source_location() returns a pointer to: the place of the call, after #line has had its say.
namespace std {
struct source_location {
  struct __impl {
    const char* _M_file_name;
    const char* _M_function_name;
    unsigned _M_line, _M_column;
  };
};
}  // namespace std

namespace kt_sim {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using Site = std::source_location::__impl;

constexpr u32 kMaxThreads = 1024, kMaxGroups = 32, kMaxLanes = 64, kMaxBuffers = 64, kBarriers = 16;

// A global pointer carries the number of its buffer above its address, so an index that runs out of one buffer is
// caught even where it lands in another, and a pointer that is dereferenced past our functions traps.
constexpr u32 kTagShift = 48;
constexpr u64 kAddressMask = (1ull << kTagShift) - 1;

// Shared addresses that are numbers start here, so that 0 is never a valid one.
constexpr u32 kSharedBase = 1024;

enum class FaultKind : u32 {
  None,
  GlobalBounds,
  SharedBounds,
  Misaligned,
  ReadOnly,
  UnwrittenShared,
  AsyncShared,
  Race,
  Divergent,
  Barrier,
  Assertion,
  Crash,
  Unfenced,
  Product,
  Descriptor,
  Registers,
};

struct Group;
struct Worker;
struct Lane;

// Runs once for a group, when all its lanes have arrived; `lane(i).operand` is what each of them brought.
using Meeting = void (*)(Group&);

struct AsyncCopy {
  u32 offset, bytes, batch;
};

// See kt_engine.h.
struct Wait;
struct Outgoing;
struct Flight;

struct Lane {
  void* stack;          // saved stack pointer
  Meeting meeting;      // where it waits
  void* operand;
  const Site* site;     // of the meeting: the call of the device function that has it
  const char* function;
  u32 thread;           // number within the program; in a cluster, of all its programs
  u32 block, base;      // number of its program in the cluster, and where that one's shared memory begins
  u32 mark;             // last KT_LOC
  bool done;
  AsyncCopy* copies;    // asynchronous copies not yet waited for, oldest first
  u32 copies_count, copies_capacity, batch;  // batch: the group of copies now being collected
  Wait* waiting;        // for what, if it waits by itself
  Outgoing* outgoing;   // tiles that the engine carries out of shared memory, not yet waited for, oldest first
  u32 outgoing_count, outgoing_capacity, outgoing_batch;
  u32 fence_tick, fence_level;  // when it last fenced its plain writes, and whether also those after the first fence
};

struct Group {
  enum State : u32 { Runnable, Blocked, Waiting, Done };  // blocked: at a barrier; waiting: lanes are, by themselves
  Lane* lanes;
  u32 count, index, done, mask;
  int cursor;
  State state;
  const Site* barrier_site;
  u32 registers;   // that each lane keeps
  Flight* flight;  // products under way

  Lane& lane(u32 i) { return lanes[i]; }
  template <class T>
  T& operand(u32 i) { return *static_cast<T*>(lanes[i].operand); }
};

struct Extent {
  u64 base, size;
  u32 writable, number;  // number: position among the arguments
};

struct Worker {
  Extent extents[kMaxBuffers];
  u8* shared;
  u32 shared_bytes, checks;  // of one program
  u32 program[3], grid[3], block[3];
  u32 lanes, lane_bits, threads;  // threads: of one program
  u32 cluster;  // programs that run side by side and reach each other's shared memory
  bool late;    // what runs beside the lanes does its work as late as it may, not at once
  bool poisoned;  // accumulators have been filled with poison
  Lane* lane;
  Group* group;
  const Site* site;      // of the call of the device function now being run
  const char* function;  // its name
};

// The worker of the fiber that asks. Every memory access wants it, and thread-local storage is slow in a library that is
// loaded late (and its fast kind scarce: a process can load a few dozen such libraries). So it stands in the last word
// of every fiber's stack, and stacks are aligned to their size.
constexpr u64 kStack = 256 << 10;
struct Current {
  static Worker** slot_of(u64 address_in_stack) {
    return reinterpret_cast<Worker**>((address_in_stack | (kStack - 1)) - (sizeof(Worker*) - 1));
  }
  Worker* get() const {
    u64 stack_pointer;
#if defined(__x86_64__)
    asm("movq %%rsp, %0" : "=r"(stack_pointer));
#else
    asm("mov %0, sp" : "=r"(stack_pointer));
#endif
    return *slot_of(stack_pointer);
  }
  Worker* operator->() const { return get(); }
  Worker& operator*() const { return *get(); }
};
inline constexpr Current worker{};

extern "C" {
// Reports the fault and leaves the program; does not return. `lane` null: the lane now running.
[[noreturn]] void kt_sim_fault(FaultKind kind, Lane* lane, const Site* site, const char* format, ...)
    __attribute__((format(printf, 4, 5)));
// Prints a line, in the first of the orders in which a launch is simulated.
void kt_sim_print(const char* format, ...) __attribute__((format(printf, 1, 2)));
// Waits for the other lanes of the group, has `meeting` done once for all of them, returns.
void kt_sim_meet(Meeting meeting, void* operand);
// Checks an access to shared memory against what other lanes have done to the same bytes.
void kt_sim_check_shared(Lane* lane, const Site* site, u32 offset, u32 bytes, u32 mode);
[[noreturn]] void kt_sim_global_fault(const void* pointer, u32 bytes, u32 write);
[[noreturn]] void kt_sim_shared_fault(Lane* lane, const Site* site, u64 offset, u32 bytes, u32 write);
[[noreturn]] void kt_sim_poison_fault();
void kt_sim_group_sync(Group& group);
void kt_sim_barrier(u32 id, u32 threads, bool wait, bool any_site);
void kt_sim_turn_wait(const int* counter, long long turn);
void kt_sim_async_begin(u32 offset, u32 bytes);
void kt_sim_async_commit();
void kt_sim_async_wait(u32 batches_left);

void* memcpy(void*, const void*, __SIZE_TYPE__);
void* memset(void*, int, __SIZE_TYPE__);
}

enum Mode : u32 { Read, Write, Atomic };

// ---- global memory

inline u8* global_at(const void* pointer, u32 bytes, u32 align, u32 write) {
  u64 p = reinterpret_cast<u64>(pointer);
  const Extent& extent = worker->extents[p >> kTagShift & (kMaxBuffers - 1)];
  u64 offset = (p & kAddressMask) - extent.base;
  if (__builtin_expect(offset > extent.size || extent.size - offset < bytes || (offset & (align - 1)) != 0 ||
                           (write && !extent.writable) || p >> kTagShift >= kMaxBuffers, 0))
    kt_sim_global_fault(pointer, bytes, write);
  return reinterpret_cast<u8*>(p & kAddressMask);
}

// Not inlined, like all that a kernel calls by the thousand when its loops are unrolled: the compiler's time grows
// faster than the text.
#define KT_SIM_CALL __attribute__((noinline))

template <class T>
KT_SIM_CALL T load_global(const void* pointer) {
  T value;
  memcpy(&value, global_at(pointer, sizeof(T), sizeof(T), 0), sizeof(T));
  return value;
}

// What accumulators hold while a product that writes them is under way, if it does its work late: a NaN of no other use.
constexpr u32 kPoison = 0x7fd5a5f1;

// Sees that a value about to be stored does not come from a product that nobody has waited for.
template <class T>
inline void check_landed(const T& value) {
  if constexpr (sizeof(T) >= 4) {
    if (__builtin_expect(!worker->poisoned, 1)) return;
    u32 words[sizeof(T) / 4];
    memcpy(words, &value, sizeof words);
    for (u32 word : words)
      if (__builtin_expect(word == kPoison, 0)) kt_sim_poison_fault();
  }
}
inline float landed(float value) {
  check_landed(value);
  return value;
}

template <class T>
KT_SIM_CALL void store_global(void* pointer, T value) {
  check_landed(value);
  memcpy(global_at(pointer, sizeof(T), sizeof(T), 1), &value, sizeof(T));
}

// ---- shared memory

inline u8* shared_at(Lane& lane, const Site* site, u64 offset, u32 bytes, u32 align, Mode mode) {
  Worker& w = *worker;
  if (__builtin_expect(offset > w.shared_bytes || w.shared_bytes - offset < bytes || (offset & (align - 1)) != 0, 0))
    kt_sim_shared_fault(&lane, site, offset, bytes, mode);
  u32 at = u32(offset) + lane.base;
  if (w.checks) kt_sim_check_shared(&lane, site, at, bytes, mode);
  return w.shared + at;
}

// A shared address is either a number (kSharedBase + offset) or a pointer into the program's shared memory.
inline u64 shared_offset(u32 address) { return u64(address) - kSharedBase; }
template <class T>
inline u64 shared_offset(T* pointer) { return u64((u8*)pointer - worker->shared); }

template <class T, class Address>
KT_SIM_CALL T load_shared(Address address) {
  T value;
  u8* at = shared_at(*worker->lane, worker->site, shared_offset(address), sizeof(T), sizeof(T), Read);
  memcpy(&value, at, sizeof(T));
  return value;
}

template <class T, class Address>
KT_SIM_CALL void store_shared(Address address, T value) {
  check_landed(value);
  u8* at = shared_at(*worker->lane, worker->site, shared_offset(address), sizeof(T), sizeof(T), Write);
  memcpy(at, &value, sizeof(T));
}

// ---- asynchronous copies from global to shared memory
// The bytes land at once, but until the lane waits for the copy nobody may touch them. `source` null: zeros.
template <class Address>
KT_SIM_CALL void async_copy(Address address, const void* source, u32 source_bytes, u32 bytes) {
  Worker& w = *worker;
  u64 offset = shared_offset(address);
  if (__builtin_expect(offset > w.shared_bytes || w.shared_bytes - offset < bytes || (offset & (bytes - 1)) != 0, 0))
    kt_sim_shared_fault(w.lane, w.site, offset, bytes, Write);
  const u8* from = source_bytes ? global_at(source, source_bytes, bytes, 0) : nullptr;
  kt_sim_async_begin(u32(offset) + w.lane->base, bytes);
  u8* to = w.shared + offset + w.lane->base;
  if (source_bytes) memcpy(to, from, source_bytes);
  if (source_bytes < bytes) memset(to + source_bytes, 0, bytes - source_bytes);
}

inline void async_commit() { kt_sim_async_commit(); }
inline void async_wait(u32 batches_left) { kt_sim_async_wait(batches_left); }

// ---- meetings of a group

template <class T>
struct Exchange {
  T value;
  u32 source;
  T result;
};

// `result = value of lane source`; what the source lane is was worked out by the lane itself.
template <class T>
inline void exchange_meeting(Group& g) {
  for (u32 i = 0; i < g.count; i++) {
    auto& mine = g.operand<Exchange<T>>(i);
    mine.result = g.operand<Exchange<T>>(mine.source & (g.count - 1)).value;
  }
}

template <class T>
KT_SIM_CALL T exchange(T value, u32 source) {
  Exchange<T> request{value, source, value};
  kt_sim_meet(exchange_meeting<T>, &request);
  return request.result;
}

inline u32 lane_index() { return worker->lane->thread & (worker->lanes - 1); }
inline u32 group_index() { return worker->lane->thread >> worker->lane_bits; }

template <class T> inline T shuffle(T value, u32 source) { return exchange(value, source); }
template <class T> inline T shuffle_xor(T value, u32 mask) { return exchange(value, lane_index() ^ mask); }
template <class T> inline T shuffle_up(T value, u32 by) {
  u32 l = lane_index();
  return exchange(value, l >= by ? l - by : l);
}
template <class T> inline T shuffle_down(T value, u32 by) {
  u32 l = lane_index();
  return exchange(value, l + by < worker->lanes ? l + by : l);
}

struct Ballot {
  bool yes;
  u64 result;
};
inline void ballot_meeting(Group& g) {
  u64 bits = 0;
  for (u32 i = 0; i < g.count; i++) bits |= u64(g.operand<Ballot>(i).yes) << i;
  for (u32 i = 0; i < g.count; i++) g.operand<Ballot>(i).result = bits;
}
inline u64 ballot(bool yes) {
  Ballot b{yes, 0};
  kt_sim_meet(ballot_meeting, &b);
  return b.result;
}

inline void sync_meeting(Group& g) { kt_sim_group_sync(g); }
inline void sync_group() { kt_sim_meet(sync_meeting, nullptr); }
inline void barrier() { kt_sim_barrier(0, 0, true, false); }  // of the whole program
inline void barrier_anywhere() { kt_sim_barrier(0, 0, true, true); }  // met at several places of the source
inline void barrier_named(u32 id, u32 threads) { kt_sim_barrier(id, threads, true, true); }
inline void barrier_arrive(u32 id, u32 threads) { kt_sim_barrier(id, threads, false, true); }

// ---- atomics on global memory; programs run on several threads, so these are real ones

inline float atomic_add_global(void* pointer, float value) {
  auto* at = reinterpret_cast<u32*>(global_at(pointer, 4, 4, 1));
  u32 old = __atomic_load_n(at, __ATOMIC_RELAXED), sum;
  do sum = __builtin_bit_cast(u32, __builtin_bit_cast(float, old) + value);
  while (!__atomic_compare_exchange_n(at, &old, sum, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED));
  return __builtin_bit_cast(float, old);
}
inline int atomic_add_global(void* pointer, int value) {
  return __atomic_fetch_add(reinterpret_cast<int*>(global_at(pointer, 4, 4, 1)), value, __ATOMIC_ACQ_REL);
}
inline unsigned long long atomic_add_global(void* pointer, unsigned long long value) {
  return __atomic_fetch_add(reinterpret_cast<unsigned long long*>(global_at(pointer, 8, 8, 1)), value, __ATOMIC_ACQ_REL);
}
inline void turn_wait(void* counter, long long turn) { kt_sim_turn_wait(reinterpret_cast<int*>(global_at(counter, 4, 4, 0)), turn); }
inline void turn_pass(void* counter, long long turn) {
  __atomic_store_n(reinterpret_cast<int*>(global_at(counter, 4, 4, 1)), int(turn + 1), __ATOMIC_RELEASE);
}
template <class T, class Address>
inline T atomic_add_shared(Address address, T value) {
  u8* at = shared_at(*worker->lane, worker->site, shared_offset(address), sizeof(T), sizeof(T), Atomic);
  T old, sum;
  memcpy(&old, at, sizeof(T));
  sum = old + value;
  memcpy(at, &sum, sizeof(T));
  return old;
}

// ---- the matrix product that all matrix instructions come down to: d[m][n] += sum over k of a[m][k] b[k][n]
// Operands are gathered from the lanes as float32 (or int32), which holds each narrower type exactly. The sum runs
// over k in order, each step fused: float32's rounding, in one of the orders that hardware might choose.
template <int M, int N, int K, class T>
inline void product(T (&d)[M][N], const T (&a)[M][K], const T (&b)[K][N]) {
  typedef T Row __attribute__((ext_vector_type(N)));
  Row rows[K];
  for (int k = 0; k < K; k++) memcpy(&rows[k], b[k], sizeof(Row));
  for (int m = 0; m < M; m++) {
    Row sum;
    memcpy(&sum, d[m], sizeof(Row));
    for (int k = 0; k < K; k++) {
      if constexpr (__is_same(T, float)) sum = __builtin_elementwise_fma(Row(a[m][k]), rows[k], sum);
      else sum += a[m][k] * rows[k];
    }
    memcpy(d[m], &sum, sizeof(Row));
  }
}

// ---- narrow floats, as matrix instructions read them

inline float bf16_value(u16 x) { return __builtin_bit_cast(float, u32(x) << 16); }
inline float f16_value(u16 x) { return static_cast<float>(__builtin_bit_cast(_Float16, x)); }
inline u16 f16_bits(float x) { return __builtin_bit_cast(u16, static_cast<_Float16>(x)); }

// 8 bits with M of mantissa. `top`: the code that is NaN (e4m3fn), or 0x7c: infinity and NaNs above (e5m2), or 0x80:
// the only NaN, and no -0 (fnuz).
template <int M, int BIAS, u32 TOP>
inline float f8_value(u8 x) {
  u32 code = x & 0x7f;
  float value = code >> M ? __builtin_bit_cast(float, (code << (23 - M)) + ((127u - BIAS) << 23))
                          : float(code) * __builtin_bit_cast(float, (128u - BIAS - M) << 23);
  if (TOP == 0x80 ? x == 0x80 : TOP == 0x7c ? code > TOP : code == TOP) value = __builtin_nanf("");
  if (TOP == 0x7c && code == TOP) value = __builtin_inff();
  return x & 0x80 ? -value : value;
}
inline float e4m3fn_value(u8 x) { return f8_value<3, 7, 0x7f>(x); }
inline float e5m2_value(u8 x) { return f8_value<2, 15, 0x7c>(x); }
inline float e4m3fnuz_value(u8 x) { return f8_value<3, 8, 0x80>(x); }
inline float e5m2fnuz_value(u8 x) { return f8_value<2, 16, 0x80>(x); }

// ---- launch

struct Fault {
  FaultKind kind;
  u32 program[3], thread, lane, group, line, mark;
  const char *file, *function;
  char message[1200];
};

struct Launch {
  u32 grid[3], block[3];
  const void* const* values;  // values[i] points to argument i
  const Extent* extents;
  u32 extents_count, shared_bytes, order, checks, workers, lanes, cluster;
  u64 seed;
  u64 meetings, barriers;     // out: how many there were
  Fault fault;                // out
};

struct Entry {
  void (*run)(const void* const* values);
  bool flush;  // subnormal float32 to zero, as Apple's GPUs do
};

extern "C" void kt_sim_launch(Launch* launch, Entry entry);

// Calls a kernel with values[i] as its parameter i. A parameter that is a reference refers to the value itself.
template <class T>
struct Argument {
  static T get(const void* value) { return *static_cast<const T*>(value); }
};
template <class T>
struct Argument<T&> {
  static T& get(const void* value) { return *(T*)(value); }
};
template <class T, T... I>
struct Sequence {};
template <class... A, unsigned... I>
inline void call_with(void (*kernel)(A...), const void* const* values, Sequence<unsigned, I...>) {
  kernel(Argument<A>::get(values[I])...);
}
template <class... A>
inline void call(void (*kernel)(A...), const void* const* values) {
  call_with(kernel, values, __make_integer_seq<Sequence, unsigned, sizeof...(A)>());
}

// Size of each parameter, negative where it is a pointer to a buffer; the end is marked by 0.
template <class T> struct ParameterSize { static constexpr int value = sizeof(T); };
template <class T> struct ParameterSize<T*> { static constexpr int value = -int(sizeof(T*)); };
template <class T> struct ParameterSize<T&> { static constexpr int value = sizeof(T); };
template <class... A>
inline void describe(void (*)(A...), int* sizes) {
  int all[] = {ParameterSize<A>::value..., 0};
  memcpy(sizes, all, sizeof all);
}

}  // namespace kt_sim

// For a kernel whose parameters are all given by the caller. (Metal's has others; its entry is made by the driver.)
#define KT_SIM_ENTRY(kernel)                                                                       \
  extern "C" __attribute__((visibility("default"))) void kt_sim_entry(kt_sim::Launch* launch) {    \
    kt_sim::kt_sim_launch(launch, {[](const void* const* values) { kt_sim::call(&kernel, values); }, false});     \
  }                                                                                                \
  extern "C" __attribute__((visibility("default"))) void kt_sim_parameters(int* sizes) {           \
    kt_sim::describe(&kernel, sizes);                                                              \
  }
