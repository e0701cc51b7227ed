// What the functions of kt_cuda_async.h do: maps of tensors, swizzles, matrix descriptors and the products of four warps.
#pragma once

struct kt_map;

namespace kt_sim {

// ---- counting barriers

inline u32 local_offset(u32 address) { return u32(shared_offset(address)); }

inline void bar_init(u32 bar, u32 arrivals) { kt_sim_counter_init(local_offset(bar), arrivals); }
inline void bar_fence() { kt_sim_counter_fence(); }
inline void bar_expect(u32 bar, u32 bytes) { kt_sim_counter_arrive(local_offset(bar), ~0u, bytes); }
inline void bar_arrive(u32 bar) { kt_sim_counter_arrive(local_offset(bar), ~0u, 0); }
inline void bar_arrive_at(u32 bar, u32 block) { kt_sim_counter_arrive(local_offset(bar), block, 0); }
inline void bar_wait(u32 bar, u32 parity) { kt_sim_counter_wait(local_offset(bar), parity); }

// ---- swizzles: the 16-byte pieces of a row change places, by address

inline u32 swizzled(u32 offset, u32 row_bytes) {  // row_bytes 128, 64, 32, or 0: none
  return row_bytes ? offset ^ ((offset >> 7 & (row_bytes / 16 - 1)) << 4) : offset;
}

// ---- tiles. A map is laid out as kittens/sim/maps.py says.

struct TensorMap {
  u64 base;
  u32 rank, element, swizzle, zero, extents[5], gap;
  u64 strides[5];
  u16 box[5];
};

[[noreturn]] inline void map_fault(const char* what) {
  kt_sim_fault(FaultKind::Descriptor, nullptr, worker->site, "no device takes this map: %s", what);
}

// Checks what the driver checks when it makes a map. -> bytes of the tile
inline u32 check_map(const TensorMap& map, u32 rank) {
  if (map.rank != rank)
    kt_sim_fault(FaultKind::Descriptor, nullptr, worker->site, "%u coordinates for a map of %u axes", rank, map.rank);
  if (map.base & 15) map_fault("the tensor does not begin at a multiple of 16 bytes");
  u32 bytes = map.element;
  for (u32 i = 0; i < rank; i++) {
    if (map.box[i] < 1 || map.box[i] > 256) map_fault("an axis of a tile has 1 to 256 elements");
    if (i && map.strides[i] & 15) map_fault("a stride is no multiple of 16 bytes");
    if (i && map.extents[i] > 1 && map.strides[i] >> 40) map_fault("a stride is 2^40 bytes or more");
    if (!map.extents[i]) map_fault("an axis is empty");
    bytes *= map.box[i];
  }
  u32 row = map.box[0] * map.element;
  if (row % 16) map_fault("a row of a tile is no multiple of 16 bytes");
  if (map.swizzle && row > map.swizzle) map_fault("a row of a tile is longer than the swizzle");
  if (map.swizzle && row < map.swizzle) map_fault("(the simulator knows no rows that are shorter than the swizzle)");
  if (map.swizzle != 0 && map.swizzle != 32 && map.swizzle != 64 && map.swizzle != 128) map_fault("a swizzle is of 32, 64 or 128 bytes");
  return bytes;
}

// Does `piece(global, shared, bytes)` for each up to 16 bytes of a row that lie inside the tensor, and for those outside
// with null.
template <class Piece>
inline void each_piece(const Transfer& t, Piece piece) {
  const TensorMap& map = *static_cast<const TensorMap*>(t.map);
  u32 row_bytes = map.box[0] * map.element, rows = t.bytes / row_bytes;
  for (u32 r = 0; r < rows; r++) {
    u32 rest = r;
    bool inside = true;
    u64 from = map.base;
    for (u32 i = 1; i < map.rank; i++) {
      long long at = (long long)t.at[i] + rest % map.box[i];
      rest /= map.box[i];
      inside &= at >= 0 && at < map.extents[i];
      from += u64(at) * map.strides[i];
    }
    for (u32 b = 0; b < row_bytes; b += 16) {
      u32 to = swizzled(t.offset + r * row_bytes + b, map.swizzle);
      long long column = (long long)t.at[0] + b / map.element, extent = map.extents[0];
      u64 global = from + u64(column) * map.element;
      u32 count = 16 / map.element;
      if (inside && column >= 0 && column + count <= extent) {
        piece(reinterpret_cast<u8*>(global), to, 16u);
        continue;
      }
      for (u32 e = 0; e < count; e++, column++, global += map.element, to += map.element)
        piece(inside && column >= 0 && column < extent ? reinterpret_cast<u8*>(global) : nullptr, to, map.element);
    }
  }
}

inline void carry_in(const Transfer& t) {
  each_piece(t, [](const u8* global, u32 shared, u32 bytes) {
    if (global) memcpy(worker->shared + shared, global_at(global, bytes, 1, 0), bytes);
    else memset(worker->shared + shared, 0, bytes);
  });
}
inline void carry_out(const Transfer& t) {
  each_piece(t, [](u8* global, u32 shared, u32 bytes) {
    if (global) memcpy(global_at(global, bytes, 1, 1), worker->shared + shared, bytes);
  });
}
inline void carry_out_adding(const Transfer& t) {
  each_piece(t, [](u8* global, u32 shared, u32 bytes) {
    for (u32 b = 0; global && b < bytes; b += 4) {
      float value;
      memcpy(&value, worker->shared + shared + b, 4);
      atomic_add_global(global + b, value);
    }
  });
}

template <class... C>
inline Transfer transfer(void (*carry)(const Transfer&), const kt_map& map, u32 at, C... coordinates) {
  Transfer t{carry, &map, {coordinates...}, local_offset(at), 0};
  t.bytes = check_map(*static_cast<const TensorMap*>(t.map), sizeof...(C));
  if (t.offset % 128)
    kt_sim_fault(FaultKind::Misaligned, nullptr, worker->site, "a tile at byte %u of shared memory: it must be a multiple of 128", t.offset);
  if (t.at[0] * int(static_cast<const TensorMap*>(t.map)->element) % 16)
    kt_sim_fault(FaultKind::Misaligned, nullptr, worker->site, "a tile that begins at element %d of a row: it must be a multiple of 16 bytes", t.at[0]);
  return t;
}
template <class... C>
inline void tile_load(u32 to, const kt_map& map, u32 bar, u32 blocks, C... coordinates) {
  Transfer t = transfer(carry_in, map, to, coordinates...);
  kt_sim_tile_in(&t, local_offset(bar), blocks);
}
template <bool ADD, class... C>
inline void tile_store(const kt_map& map, u32 from, C... coordinates) {
  Transfer t = transfer(ADD ? carry_out_adding : carry_out, map, from, coordinates...);
  if (ADD && static_cast<const TensorMap*>(t.map)->element != 4) map_fault("elements that are added to are float32");
  for (u32 i = 0; i < sizeof...(C); i++)  // an H200 ends with an illegal instruction; loads may begin before the tensor
    if (t.at[i] < 0) kt_sim_fault(FaultKind::Descriptor, nullptr, worker->site, "no device stores a tile at a coordinate below 0: %d", t.at[i]);
  kt_sim_tile_out(&t);
}
inline void tile_commit() { kt_sim_tile_commit(); }
inline void tile_wait(u32 batches_left, bool) { kt_sim_tile_wait(batches_left); }
inline void fence_async() { kt_sim_engine_fence(); }

// ---- clusters, registers

inline u32 cluster_rank() { return block_rank(); }
inline void cluster_sync() { kt_sim_cluster_barrier(); }
inline void registers_fewer(u32 n) { kt_sim_registers(n, false); }
inline void registers_more(u32 n) { kt_sim_registers(n, true); }

inline void elect_meeting(Group& g) {  // always the same lane, and no program may count on which
  u32 chosen = worker->late ? g.count - 1 : 0;
  for (u32 i = 0; i < g.count; i++) g.operand<u32>(i) = i == chosen;
}
inline u32 elect() {
  u32 chosen = 0;
  kt_sim_meet(elect_meeting, &chosen);
  return chosen;
}

// ---- products of four warps

inline void wgmma_fence_meeting(Group& g) { kt_sim_product_fence(g); }
inline void wgmma_commit_meeting(Group& g) { kt_sim_product_commit(g); }
inline void wgmma_wait_meeting(Group& g) { kt_sim_product_wait(g, g.operand<u32>(0)); }
inline void wgmma_fence() { kt_sim_meet(wgmma_fence_meeting, nullptr); }
inline void wgmma_commit() { kt_sim_meet(wgmma_commit_meeting, nullptr); }
KT_SIM_CALL inline void wgmma_wait(u32 batches_left) { kt_sim_meet(wgmma_wait_meeting, &batches_left); }

// An operand in shared memory, from its descriptor.
struct Operand {
  u32 start, leading, stride, swizzle;
  bool k_major;
  u32 element;  // bytes

  // Offset of the 16 bytes that hold element (row, k); row counts along M or N, and one of them is a multiple of the
  // elements in 16 bytes.
  u32 piece(u32 row, u32 k) const {
    u32 at = start;
    if (k_major) {
      at += row / 8 * stride;
      if (swizzle) at += row % 8 * swizzle + k * element;
      else at += row % 8 * 16 + k * element / 16 * leading;
    } else if (swizzle) {
      u32 along = swizzle / element;
      at += row / along * leading + k / 8 * stride + k % 8 * swizzle + row % along * element;
    } else {
      at += row / 8 * stride + k / 8 * leading + k % 8 * 16;
    }
    return swizzled(at, swizzle);
  }
};

inline Operand operand(Lane& lane, u64 desc, bool k_major, u32 element, const char* name) {
  Operand o{u32(desc & 0x3fff) << 4, u32(desc >> 16 & 0x3fff) << 4, u32(desc >> 32 & 0x3fff) << 4, 0, k_major, element};
  static constexpr u32 swizzles[4] = {0, 128, 64, 32};
  o.swizzle = swizzles[desc >> 62];
  if (desc & ~0xc0003fff3fff3fffull)
    kt_sim_fault(FaultKind::Descriptor, &lane, lane.site, "the descriptor of %s, 0x%llx, has bits that mean nothing here", name, desc);
  if (o.start < kSharedBase) kt_sim_fault(FaultKind::Descriptor, &lane, lane.site, "the descriptor of %s names address %u, before shared memory", name, o.start);
  o.start -= kSharedBase;
  // Rows of an atom are told by the address, so a tile begins where an atom does; K-major ones may begin inside a row.
  if (o.swizzle && (o.start >> 7 & (o.swizzle / 16 - 1)))
    kt_sim_fault(FaultKind::Misaligned, &lane, lane.site, "%s begins at byte %u of shared memory: its swizzle of %u bytes begins at multiples of %u", name,
                 o.start, o.swizzle, o.swizzle * 8);
  if (o.swizzle && !k_major && o.start % o.swizzle)  // an H200 reads other columns there
    kt_sim_fault(FaultKind::Misaligned, &lane, lane.site, "%s is MN-major and begins at byte %u of shared memory, inside a row of its swizzle of %u bytes",
                 name, o.start, o.swizzle);
  return o;
}

// What one type of element is: see Bf16 and its like in kt_cuda_shim.h; here from memory.
template <class T> struct Element;
template <> struct Element<Bf16> {
  using Memory = u16;
  static float value(u16 x) { return bf16_value(x); }
};
template <> struct Element<F16> {
  using Memory = u16;
  static float value(u16 x) { return f16_value(x); }
};
template <float (*DECODE)(u8), int LEAST>
struct Float8 {
  using Memory = u8;
  static constexpr int least = LEAST;  // the exponent of the smallest normal number, and of those below it
  struct Table {
    float values[256];
    Table() {
      for (int i = 0; i < 256; i++) values[i] = DECODE(u8(i));
    }
  };
  static inline const Table table;
  static float value(u8 x) { return table.values[x]; }
};
template <> struct Element<E4m3> : Float8<e4m3fn_value, -6> {};
template <> struct Element<E5m2> : Float8<e5m2_value, -14> {};
template <> struct Element<S8> {
  using Memory = u8;
  static int value(u8 x) { return static_cast<signed char>(x); }
};

struct Wgmma : Product {
  u32 n;
  bool a_in_registers, add;
  Operand a, b;
  u32 base;         // of the program's shared memory in the cluster's
  u32 first_row;    // of a, of this warp's
  u32 registers[32][4];
};

// out[k][row] or out[row][k] for `rows` rows from `first` and all K.
template <class T, int K, bool BY_ROW, class Sum>
inline void gather(Sum* out, const u8* shared, const Operand& o, u32 first, u32 rows) {
  using Memory = typename Element<T>::Memory;
  constexpr u32 count = 16 / sizeof(Memory);
  Memory piece[count];
  if (o.k_major) {
    for (u32 r = 0; r < rows; r++)
      for (u32 k = 0; k < u32(K); k += count) {
        memcpy(piece, shared + o.piece(first + r, k), 16);
        for (u32 i = 0; i < count; i++) out[BY_ROW ? r * K + k + i : (k + i) * rows + r] = Element<T>::value(piece[i]);
      }
  } else {
    for (u32 k = 0; k < u32(K); k++)
      for (u32 r = 0; r < rows; r += count) {
        memcpy(piece, shared + o.piece(first + r, k), 16);
        for (u32 i = 0; i < count; i++) out[BY_ROW ? (r + i) * K + k : k * rows + r + i] = Element<T>::value(piece[i]);
      }
  }
}

// d[16][n] += a[16][K] b[K][n], k in order and each step fused, as `product` does it; n a multiple of 8.
template <int K, class Sum>
inline void wide_product(Sum* d, const Sum* a, const Sum* b, u32 n) {
  typedef Sum Eight __attribute__((ext_vector_type(8), aligned(4)));
  for (u32 column = 0; column < n; column += 8)
    for (u32 row = 0; row < 16; row += 8) {
      Eight sums[8];
      for (u32 r = 0; r < 8; r++) sums[r] = *reinterpret_cast<const Eight*>(d + (row + r) * n + column);
      for (u32 k = 0; k < u32(K); k++) {
        Eight right = *reinterpret_cast<const Eight*>(b + k * n + column);
        for (u32 r = 0; r < 8; r++) {
          Eight left = a[(row + r) * K + k];
          if constexpr (__is_same(Sum, float)) sums[r] = __builtin_elementwise_fma(left, right, sums[r]);
          else sums[r] += left * right;
        }
      }
      for (u32 r = 0; r < 8; r++) *reinterpret_cast<Eight*>(d + (row + r) * n + column) = sums[r];
    }
}

constexpr int kNone = -1000, kBeyond = 3000;  // the exponents of a zero, and of infinities and NaN, which zeros do not hide
inline int exponent(float x, int least) {
  int found = int(__builtin_bit_cast(u32, x) >> 23 & 0xffu) - 127;
  return x == 0 ? kNone : found == 128 ? kBeyond : found < least ? least : found;
}

// d[16][n] += a[16][K] b[K][n] of float8, as Hopper adds them (Xie et al., MMA-Sim, 2025; docs/semantics.md, Products): all
// K terms and the sum are aligned to the largest exponent, where a product's is that of its factors together, and keep 13
// bits behind the leading one, as does the result. What lies beyond is dropped.
template <class TA, class TB, int K>
inline void cut_product(float* d, const float* a, const float* b, u32 n) {
  typedef float Eight __attribute__((ext_vector_type(8), aligned(4)));
  typedef int Exponents __attribute__((ext_vector_type(8), aligned(4)));
  int of_a[16 * K], of_b[K * 256];
  for (int i = 0; i < 16 * K; i++) of_a[i] = exponent(a[i], Element<TA>::least);
  for (u32 i = 0; i < K * n; i++) of_b[i] = exponent(b[i], Element<TB>::least);
  for (u32 row = 0; row < 16; row++)
    for (u32 column = 0; column < n; column += 8) {
      float* at = d + row * n + column;
      Exponents most;
      for (int i = 0; i < 8; i++) most[i] = exponent(at[i], -126);
      for (u32 k = 0; k < u32(K); k++)
        most = __builtin_elementwise_max(most, *reinterpret_cast<const Exponents*>(of_b + k * n + column) + of_a[row * K + k]);
      most = __builtin_elementwise_min(most, Exponents(127));
      Eight up, down;  // products are whole multiples of 2^-32: where all of them are 0, the sum alone is cut, below
      for (int i = 0; i < 8; i++) {
        int e = most[i] < -100 ? 13 : most[i];
        up[i] = __builtin_ldexpf(1.0f, 13 - e), down[i] = __builtin_ldexpf(1.0f, e - 13);
      }
      Eight sum = __builtin_elementwise_trunc(*reinterpret_cast<const Eight*>(at) * up);
      for (u32 k = 0; k < u32(K); k++)
        sum += __builtin_elementwise_trunc(*reinterpret_cast<const Eight*>(b + k * n + column) * a[row * K + k] * up);
      for (int i = 0; i < 8; i++)
        at[i] = __builtin_bit_cast(float, __builtin_bit_cast(u32, most[i] < -100 ? at[i] : sum[i] * down[i]) & ~0x3ffu);
    }
}

template <class TA, class TB, int K>
KT_SIM_CALL void run_wgmma(Product& product) {
  using Sum = typename TA::Sum;
  auto& w = static_cast<Wgmma&>(product);
  Sum a[16 * K], b[K * 256], d[16 * 256];
  const u8* shared = worker->shared + w.base;
  if (w.a_in_registers) {
    constexpr u32 packed = K / 8;  // elements in a register
    for (u32 l = 0; l < 32; l++)
      for (u32 r = 0; r < 4; r++)
        for (u32 i = 0; i < packed; i++)
          a[(l / 4 + r % 2 * 8) * K + r / 2 * (K / 2) + l % 4 * packed + i] = TA::at(w.registers[l][r], int(i));
  } else {
    gather<TA, K, true>(a, shared, w.a, w.first_row, 16);
  }
  gather<TB, K, false>(b, shared, w.b, 0, w.n);
  // Element 4j + e of lane l: row l / 4 + 8 (e / 2), column 8j + 2 (l % 4) + e % 2.
  for (u32 l = 0; l < 32; l++)
    for (u32 j = 0; j < w.n / 8; j++)
      for (u32 half = 0; half < 2; half++) {
        Sum* to = d + (l / 4 + half * 8) * w.n + j * 8 + l % 4 * 2;
        if (w.add) memcpy(to, w.accumulators[l] + j * 4 + half * 2, 2 * sizeof(Sum));
        else to[0] = to[1] = 0;
      }
  if constexpr (K == 32 && __is_same(Sum, float)) cut_product<TA, TB, K>(d, a, b, w.n);
  else wide_product<K>(d, a, b, w.n);
  for (u32 l = 0; l < 32; l++)
    for (u32 j = 0; j < w.n / 8; j++)
      for (u32 half = 0; half < 2; half++)
        memcpy(w.accumulators[l] + j * 4 + half * 2, d + (l / 4 + half * 8) * w.n + j * 8 + l % 4 * 2, 2 * sizeof(Sum));
}

// The pieces of shared memory that `rows` rows of an operand take.
inline void add_pieces(Wgmma& w, Lane& lane, const Operand& o, u32 first, u32 rows, u32 k) {
  u32 along = 16 / o.element;
  for (u32 r = 0; r < rows; r += o.k_major ? 1 : along)
    for (u32 i = 0; i < k; i += o.k_major ? along : 1) {
      u32 at = o.piece(first + r, i);
      if (at > worker->shared_bytes || worker->shared_bytes - at < 16) kt_sim_shared_fault(&lane, lane.site, at, 16, Read);
      w.pieces[w.pieces_count++] = at + w.base;
    }
}

struct WgmmaRequest {
  void (*run)(Product&);
  void* accumulators;
  u64 a, b;
  u32 registers[4];
  u32 n, k, element, shape;
  bool a_in_registers, add, a_k_major, b_k_major;
};

inline void wgmma_meeting(Group& g) {
  WgmmaRequest& r = g.operand<WgmmaRequest>(0);
  Lane& lane = g.lane(0);
  for (u32 l = 1; l < 32; l++) {
    WgmmaRequest& other = g.operand<WgmmaRequest>(l);
    if (other.b != r.b || (!r.a_in_registers && other.a != r.a) || other.add != r.add)
      kt_sim_fault(FaultKind::Divergent, &g.lane(l), lane.site, "lane %u gives other operands than lane 0: a 0x%llx, b 0x%llx, adding %d; not 0x%llx, 0x%llx, %d",
                   l, other.a, other.b, other.add, r.a, r.b, r.add);
  }
  u32 warp = lane.thread % worker->threads / 32;
  if (worker->threads % 128) kt_sim_fault(FaultKind::Divergent, &lane, lane.site, "%u threads are no whole number of four warps", worker->threads);
  auto* w = static_cast<Wgmma*>(malloc(sizeof(Wgmma)));
  w->run = r.run;
  w->count = r.n / 2;
  w->shape = r.shape;
  w->same = (r.a_in_registers ? 1 : r.a * 0x9e3779b97f4a7c15ull) ^ (r.b * 0xbf58476d1ce4e5b9ull + r.shape * 4 + r.add);
  w->pieces_count = 0;
  w->n = r.n;
  w->a_in_registers = r.a_in_registers;
  w->add = r.add;
  w->base = lane.base;
  w->first_row = warp % 4 * 16;
  for (u32 l = 0; l < 32; l++) {
    WgmmaRequest& of = g.operand<WgmmaRequest>(l);
    w->accumulators[l] = static_cast<u32*>(of.accumulators);
    memcpy(w->registers[l], of.registers, 16);
  }
  if (!r.a_in_registers) {
    w->a = operand(lane, r.a, r.a_k_major, r.element, "a");
    add_pieces(*w, lane, w->a, w->first_row, 16, r.k);
  }
  w->b = operand(lane, r.b, r.b_k_major, r.element, "b");
  add_pieces(*w, lane, w->b, 0, r.n, r.k);
  kt_sim_product_start(g, w, 4);
}

template <int N, class TA, class TB, int A_MAJOR, int B_MAJOR, class Sum>
inline WgmmaRequest wgmma_request(Sum* d, u64 b, bool add) {
  static_assert(__is_same(Sum, typename TA::Sum));
  constexpr int bytes = sizeof(typename Element<TA>::Memory), k = 32 / bytes;
  constexpr u32 type = __is_same(TA, Bf16) ? 0 : __is_same(TA, F16) ? 1 : __is_same(TA, S8) ? 2 : 3;
  return {run_wgmma<TA, TB, k>, d, 0, b, {}, N, k, bytes, N * 4 + type, false, add, !A_MAJOR, !B_MAJOR};
}
template <int N, class TA, class TB, int A_MAJOR, int B_MAJOR, class Sum>
KT_SIM_CALL void wgmma(Sum* d, u64 a, u64 b, bool add) {
  WgmmaRequest r = wgmma_request<N, TA, TB, A_MAJOR, B_MAJOR>(d, b, add);
  r.a = a;
  kt_sim_meet(wgmma_meeting, &r);
}
template <int N, class TA, class TB, int A_MAJOR, int B_MAJOR, class Sum>
KT_SIM_CALL void wgmma(Sum* d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b, bool add) {
  WgmmaRequest r = wgmma_request<N, TA, TB, A_MAJOR, B_MAJOR>(d, b, add);
  r.a_in_registers = true;
  u32 registers[4] = {a0, a1, a2, a3};
  memcpy(r.registers, registers, sizeof registers);
  kt_sim_meet(wgmma_meeting, &r);
}

}  // namespace kt_sim
