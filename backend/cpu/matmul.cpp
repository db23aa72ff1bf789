#include "backend/cpu/matmul.h"

#include <immintrin.h>

#include <algorithm>
#include <functional>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cpu/parallel_for.h"
#include "backend/error.h"

namespace specdec {
namespace {

/// Rows that share one reading of the weights from memory; bounds what all threads pack.
constexpr std::int64_t kBlockRows = 64;
/// Below this much weight a second thread costs more than it saves.
constexpr std::int64_t kBytesPerThread = std::int64_t{32} << 10;
/// The same before any on far cores take part, with which rounds take longer (docs/kernels.md, "Threads of a rank").
constexpr std::int64_t kBytesPerFarThread = std::int64_t{128} << 10;
/// More rows than these take longer to multiply than their weights to come.
constexpr std::int64_t kFewRows = 4;
/// Weights that a thread takes at a time: some ten microseconds, of one row and of sixteen.
constexpr std::int64_t kChunkBytes = std::int64_t{128} << 10;
/// Inputs of x, of all rows, for each thread that packs a part of them: some microseconds, where a round of threads takes about one.
constexpr std::int64_t kInputsPerThread = 8192;
/// Panels for each thread of a team in which each packs all inputs for itself: with fewer this takes a tenth of what it does with them, and more.
constexpr std::int64_t kPanelsPerPacking = 8;

/// Of packed x, for one row, up to a step.
std::int64_t packed_bytes(const MatmulKernel& kernel, std::int64_t steps, std::int64_t groups) {
  return steps * kernel.x_step_bytes + groups * kernel.x_group_bytes;
}

std::int64_t packed_row_bytes(const CpuPackedLinear& weight) {
  return packed_bytes(weight.kernel(), weight.steps(), weight.groups());
}

/// Of the one packed x that all threads read.
std::size_t shared_bytes(const CpuPackedLinear& weight) {
  return static_cast<std::size_t>(kBlockRows * packed_row_bytes(weight));
}

/// Of a thread's own, which is a single block of rows; they begin on lines of their own.
std::size_t own_bytes(const CpuPackedLinear& weight) {
  const std::size_t bytes = static_cast<std::size_t>(weight.kernel().max_rows * packed_row_bytes(weight));
  return (bytes + kStepBytes - 1) / kStepBytes * kStepBytes;
}

/// Whether each thread of a team may pack for itself.
bool each_may_pack(const CpuPackedLinear& weight, int team) {
  return weight.kernel().each_packs && weight.panel_count() >= kPanelsPerPacking * team;
}

std::size_t scratch_bytes(const CpuPackedLinear& weight, int team) {
  const std::size_t own = each_may_pack(weight, team) ? own_bytes(weight) * static_cast<std::size_t>(team) : 0;
  return std::max(shared_bytes(weight), own);
}

/// Rows in blocks, in the order that MatmulJob::x states.
struct Packing {
  const CpuPackedLinear& weight;
  ConstRows x;
  std::int64_t blocks;

  std::int64_t units() const { return blocks * static_cast<std::int64_t>(weight.runs().size()); }

  void pack(std::int64_t unit, std::byte* packed) const {
    const MatmulKernel& kernel = weight.kernel();
    const auto runs = static_cast<std::int64_t>(weight.runs().size());
    const std::int64_t block = unit / runs;
    const CpuPackedLinear::Run& run = weight.runs()[static_cast<std::size_t>(unit % runs)];
    const std::int64_t row = x.rows * block / blocks;
    const std::int64_t rows = x.rows * (block + 1) / blocks - row;
    kernel.pack(x.row(row) + run.begin, x.stride, rows, run.count,
                packed + row * packed_row_bytes(weight) + packed_bytes(kernel, run.step, run.group) * rows);
  }

  void by_one(std::byte* packed) const {
    for (std::int64_t unit = 0; unit < units(); ++unit) {
      pack(unit, packed);
    }
  }

  /// By all threads where that is worth a round of them.
  void by_all(std::byte* packed, ThreadPool& pool) const {
    const auto threads = static_cast<int>(std::clamp<std::int64_t>(x.rows * x.cols / kInputsPerThread, 1, pool.size()));
    parallel_for(pool, threads, units(), [&](int /*thread*/, std::int64_t unit) { pack(unit, packed); });
  }
};

int threads_for(std::int64_t weight_bytes, std::int64_t rows, const ThreadPool& pool) {
  const std::int64_t worth = weight_bytes / kBytesPerThread;
  const std::int64_t as_few_rows = weight_bytes * std::max(rows, kFewRows) / kFewRows;
  return pool.sharing(worth, std::min(worth, as_few_rows / kBytesPerFarThread));
}

/// As many as the kernel has side by side for `rows` rows, or a multiple, and `bytes` or the next more.
std::int64_t panels_of_chunk(const CpuPackedLinear& weight, std::int64_t rows, std::int64_t bytes) {
  const std::int64_t side_by_side = weight.kernel().side_by_side(rows);
  const std::int64_t panels = weight.panel_bytes() == 0 ? 1 : bytes / weight.panel_bytes();
  return std::max<std::int64_t>((panels + side_by_side - 1) / side_by_side, 1) * side_by_side;
}

/// Of gates, with as many of what they gate.
std::int64_t pairs_of_chunk(const CpuPackedLinear& weight, std::int64_t rows) {
  return std::min(panels_of_chunk(weight, rows, kChunkBytes / 2), weight.gate_panels());
}

/// Of a thread's chunk of gates and what they gate, for a block of rows.
std::size_t pairs_bytes(const CpuPackedLinear& weight) {
  if (weight.gate_panels() == 0) return 0;
  std::int64_t most = 0;
  for (std::int64_t rows = 1; rows <= weight.kernel().max_rows; ++rows) {
    most = std::max(most, pairs_of_chunk(weight, rows));
  }
  return static_cast<std::size_t>(kBlockRows * 2 * most * kPanelOutputs) * sizeof(float);
}

const MatmulKernel& bf16_of_avx512_bf16() {
  return has_fast_single_stream() ? kMatmulVdpbf16OneStream : has_fast_vdpbf16ps() ? kMatmulVdpbf16 : kMatmulAvx512Bf16;
}

const MatmulKernel& int8_of_avx512() {
  const bool is_zen4 = has_fast_vdpbf16ps() && !has_fast_single_stream();
  return !has_avx512_vnni() ? kMatmulAvx512Int8 : is_zen4 ? kMatmulVnniInt8TwoSteps : kMatmulVnniInt8;
}

}  // namespace

const MatmulKernel& matmul_kernel(Isa isa, DType dtype) {
  const auto choose = [&](const MatmulKernel& f32, const MatmulKernel& bf16, const MatmulKernel& int8) -> const auto& {
    return dtype == DType::kF32 ? f32 : dtype == DType::kBF16 ? bf16 : int8;
  };
  switch (isa) {
    case Isa::kAvx2:
      return choose(kMatmulAvx2F32, kMatmulAvx2Bf16, kMatmulAvx2Int8);
    case Isa::kAvx512:
      return choose(kMatmulAvx512F32, kMatmulAvx512Bf16, int8_of_avx512());
    case Isa::kAvx512Bf16:
      return choose(kMatmulAvx512F32, bf16_of_avx512_bf16(), int8_of_avx512());
    case Isa::kAmxBf16:
      return choose(kMatmulAvx512F32, kMatmulAmxBf16, has_amx_int8() ? kMatmulAmxInt8 : int8_of_avx512());
    case Isa::kScalar:
      break;
  }
  return choose(kMatmulScalarF32, kMatmulScalarBf16, kMatmulScalarInt8);
}

void MatmulScratch::reserve(const CpuPackedLinear& weight, int team) {
  const std::size_t needed = scratch_bytes(weight, team);
  if (needed > rows_.bytes()) {
    rows_ = AlignedArray(needed);
  }
  pairs_bytes_ = std::max(pairs_bytes_, pairs_bytes(weight));
  if (const std::size_t pairs = pairs_bytes_ * static_cast<std::size_t>(team); pairs > pairs_.bytes()) {
    pairs_ = AlignedArray(pairs);
  }
  known_[&weight] = {};
}

ReadFrom MatmulScratch::will_read_from(const Known& known) const {
  if (!cache_bytes_) return ReadFrom::kCache;
  if (!known.came_in || came_in_.whole - known.came_in->whole > *cache_bytes_) return ReadFrom::kMemory;
  return came_in_.part - known.came_in->part > *cache_bytes_ / kPartsOfCache ? ReadFrom::kEither : ReadFrom::kCache;
}

MatmulScratch::Turn MatmulScratch::turn_of(const CpuPackedLinear& weight, std::int64_t shared_out) {
  if (after_last_ != nullptr) {
    *after_last_ = {weight.panels(), weight.panel_bytes(), shared_out};
  }
  const auto found = known_.find(&weight);
  check(found != known_.end(), "matmul: the scratch was shown this weight");
  Known& known = found->second;
  const ReadFrom read_from = will_read_from(known);
  const auto bytes = static_cast<std::int64_t>(weight.bytes());
  if (read_from == ReadFrom::kMemory) came_in_.whole += bytes;
  if (read_from != ReadFrom::kCache) came_in_.part += bytes;
  known.came_in = came_in_;
  after_last_ = &known.next;
  return {.next = known.next, .read_from = read_from};
}

namespace {

/// Whether each row begins on a line of its own.
bool begins_lines(Rows y) {
  return reinterpret_cast<std::uintptr_t>(y.data) % AlignedArray::kAlignment == 0 && y.stride % kPanelOutputs == 0;
}

/// Some of a product: what to multiply with what, `rows` from row `first` on, by a thread.
struct Chunk {
  MatmulJob job;  ///< without a y
  std::int64_t first;
  int thread;
  Range units;
};

/// How threads share a product: in `count` units, so many at a time, the first panel of unit i being first_panel(i). A unit may have others elsewhere.
template <class UnitsOfChunk, class FirstPanel>
struct Units {
  std::int64_t count;
  UnitsOfChunk of_chunk;  ///< for so many rows of a block
  FirstPanel first_panel;
};

/// Calls compute(chunk) for all of a product.
template <class SomeUnits, class Compute>
void multiply(const CpuPackedLinear& weight, ConstRows x, MatmulScratch& scratch, ThreadPool& pool,
              const SomeUnits& units, const Compute& compute) {
  check(x.cols == weight.in_features(), "matmul: the shapes of x and the weight agree");
  const std::int64_t row_bytes = packed_row_bytes(weight);
  const std::int64_t max_rows = weight.kernel().max_rows;
  const int threads = threads_for(weight.panel_count() * weight.panel_bytes(), x.rows, pool);
  const std::size_t place_bytes = own_bytes(weight);
  const bool may_each_pack = each_may_pack(weight, pool.size());
  check(scratch.bytes() >= scratch_bytes(weight, pool.size()),
        "matmul: the scratch was shown this weight, for such a team");
  const auto [next, read_from] = scratch.turn_of(weight, units.first_panel(units.count));
  const int next_threads = threads_for(next.count * next.bytes, x.rows, pool);
  for (std::int64_t first = 0; first < x.rows; first += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, x.rows - first);
    const std::int64_t blocks = (rows + max_rows - 1) / max_rows;
    const bool each_packs = blocks == 1 && (threads == 1 || may_each_pack);
    const Packing packing = {weight, x.slice_rows(first, rows), blocks};
    if (!each_packs) packing.by_all(scratch.data(), pool);
    // By value, as compute is: what threads get of a round (ThreadPool::run).
    const auto place = [rows_of_x = scratch.data(), own = each_packs ? place_bytes : 0](int thread) {
      return rows_of_x + own * static_cast<std::size_t>(thread);
    };
    const MatmulJob job = {.panels = weight.panels(),
                           .panel_bytes = weight.panel_bytes(),
                           .outputs = weight.out_features(),
                           .slice_steps = weight.slice_steps().data(),
                           .slices = static_cast<std::int64_t>(weight.slice_steps().size()),
                           .x = nullptr,
                           .x_bytes = row_bytes,
                           .rows = rows,
                           .blocks = blocks,
                           .y = nullptr,
                           .y_stride = 0,
                           .read_from = read_from};
    share_out(
        pool, threads, units.count, units.of_chunk((rows + blocks - 1) / blocks),
        [=](int thread) {
          if (each_packs) packing.by_one(place(thread));
        },
        [=, &weight, count = units.count, first_panel = units.first_panel, next = next, ends = first + rows == x.rows](
            int thread, std::int64_t begin, std::int64_t end, bool last) {
          Chunk chunk{job, first, thread, {begin, end}};
          chunk.job.x = place(thread);
          if (!last && end < count) {
            chunk.job.next = weight.run_of_panels(first_panel(end), first_panel(count));
          } else if (last && next.data != nullptr && ends && thread < next_threads) {
            const std::int64_t begin_next = next.count * thread / next_threads;
            chunk.job.next = {next.data + begin_next * next.bytes, next.bytes, next.count - begin_next};
          }
          compute(chunk);
        });
  }
}

/// Panel by panel, in their order.
template <class Into>
void multiply_panels(const CpuPackedLinear& weight, ConstRows x, MatmulScratch& scratch, ThreadPool& pool,
                     const Into& into) {
  const Units panels{weight.panel_count(),
                     [&](std::int64_t rows) { return panels_of_chunk(weight, rows, kChunkBytes); }, std::identity()};
  multiply(weight, x, scratch, pool, panels, [=, &weight](Chunk& chunk) {
    into(chunk);
    weight.kernel().run(chunk.job, chunk.units.begin, chunk.units.end);
  });
}

/// Of stacked matrices each thread its share of each: its heads' queries, keys and values, with which it goes on.
template <class Into>
void multiply_shares(const CpuPackedLinear& weight, ConstRows x, MatmulScratch& scratch, ThreadPool& pool,
                     const Into& into) {
  const std::span<const std::int64_t> stacked = weight.stacked_panels();
  const std::int64_t count = std::ranges::min(stacked);
  const auto share = [count](std::int64_t panels, std::int64_t unit) { return panels * unit / count; };
  const Units shares{
      count,
      [&](std::int64_t rows) { return panels_of_chunk(weight, rows, kChunkBytes / 2 * count / weight.panel_count()); },
      [share, first = stacked.front()](std::int64_t unit) { return share(first, unit); }};
  multiply(weight, x, scratch, pool, shares, [=, &weight](Chunk& chunk) {
    into(chunk);
    const PanelRun after = chunk.job.next;
    std::int64_t begin = 0;  // of the matrix, in panels
    for (std::size_t i = 0; i < stacked.size(); ++i) {
      const std::int64_t end = begin + stacked[i];
      const bool last = i + 1 == stacked.size();
      chunk.job.next =
          last ? after : weight.run_of_panels(end + share(stacked[i + 1], chunk.units.begin), end + stacked[i + 1]);
      weight.kernel().run(chunk.job, begin + share(stacked[i], chunk.units.begin),
                          begin + share(stacked[i], chunk.units.end));
      begin = end;
    }
  });
}

}  // namespace

void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool,
            Readers readers) {
  check(x.rows == y.rows && y.cols == weight.out_features(), "matmul: the shapes of x, the weight and y agree");
  const auto into_y = [y](Chunk& chunk) {
    chunk.job.y = y.row(chunk.first);
    chunk.job.y_stride = y.stride;
  };
  const auto into_y_of_others = [into_y, readers = begins_lines(y) ? readers : Readers::kNear](Chunk& chunk) {
    into_y(chunk);
    const bool others = readers == Readers::kCaller && chunk.thread != 0;
    chunk.job.y_past_caches = others || (readers == Readers::kTeam && chunk.job.read_from == ReadFrom::kMemory);
  };
  // Of weights from memory it gains nothing (docs/kernels.md).
  if (weight.stacked_panels().empty() || pool.size() == 1 || scratch.will_read_from(weight) == ReadFrom::kMemory) {
    multiply_panels(weight, x, scratch, pool, into_y_of_others);
  } else {
    multiply_shares(weight, x, scratch, pool, into_y);
  }
  // The caller may tell other ranks of y, which a pool's rounds know nothing of.
  if (readers != Readers::kNear) _mm_sfence();
}

void matmul_silu_mul(const CpuPackedLinear& weight, ConstRows x, const float* bias, Rows out, const RowOps& ops,
                     const ResultOps& results, MatmulScratch& scratch, ThreadPool& pool) {
  const std::int64_t gates = weight.gate_panels();
  check(gates > 0 && x.rows == out.rows && 2 * out.cols == weight.out_features(),
        "matmul_silu_mul: the shapes of x, the gated weight and out agree");
  check(scratch.has_pairs_of(pool.size()), "matmul_silu_mul: the scratch was shown this weight, for such a team");
  const Units pairs{gates, [&](std::int64_t rows) { return pairs_of_chunk(weight, rows); }, std::identity()};
  multiply(weight, x, scratch, pool, pairs, [=, &weight, &ops, &results, &scratch](const Chunk& chunk) {
    const std::int64_t step = pairs_of_chunk(weight, (chunk.job.rows + chunk.job.blocks - 1) / chunk.job.blocks);
    float* const gate = scratch.pairs_of(chunk.thread);
    // With one thread all gates are one chunk.
    for (std::int64_t begin = chunk.units.begin; begin < chunk.units.end; begin += step) {
      const std::int64_t end = std::min(begin + step, chunk.units.end);
      const std::int64_t cols = (end - begin) * kPanelOutputs;
      MatmulJob job = chunk.job;
      // Each of both as a matrix of its own.
      job.outputs = cols;
      job.y_stride = 2 * cols;
      job.panels = weight.run_of_panels(begin, end).data;
      job.y = gate;
      job.next = weight.run_of_panels(gates + begin, 2 * gates);
      weight.kernel().run(job, 0, end - begin);
      job.panels = job.next.data;
      job.y = gate + cols;
      job.next = end < chunk.units.end ? weight.run_of_panels(end, gates) : chunk.job.next;
      weight.kernel().run(job, 0, end - begin);
      const std::int64_t col = begin * kPanelOutputs;
      for (std::int64_t r = 0; bias != nullptr && r < job.rows; ++r) {
        ops.add(gate + r * job.y_stride, bias + col, cols);
        ops.add(gate + r * job.y_stride + cols, bias + out.cols + col, cols);
      }
      results.silu_mul(gate, gate + cols, job.y_stride, out.row(chunk.first) + col, out.stride, job.rows, cols);
    }
  });
}

}  // namespace specdec
