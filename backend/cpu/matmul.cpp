#include "backend/cpu/matmul.h"

#include <algorithm>

#include "backend/cpu/matmul_kernel.h"
#include "backend/cpu/parallel_for.h"
#include "backend/error.h"

namespace specdec {
namespace {

/// Rows that share one reading of the weights from memory; bounds what all threads pack.
constexpr std::int64_t kBlockRows = 64;
/// Below this much weight a second thread costs more than it saves.
constexpr std::int64_t kBytesPerThread = std::int64_t{32} << 10;
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

int threads_for(std::int64_t weight_bytes, const ThreadPool& pool) {
  return static_cast<int>(std::clamp<std::int64_t>(weight_bytes / kBytesPerThread, 1, pool.size()));
}

/// As many as the kernel has side by side for `rows` rows, or a multiple.
std::int64_t panels_of_chunk(const CpuPackedLinear& weight, std::int64_t rows) {
  const std::int64_t side_by_side = weight.kernel().side_by_side(rows);
  const std::int64_t panels = weight.panel_bytes() == 0 ? 1 : kChunkBytes / weight.panel_bytes();
  return std::max<std::int64_t>((panels + side_by_side - 1) / side_by_side, 1) * side_by_side;
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
  known_[&weight] = {};
}

MatmulScratch::Turn MatmulScratch::turn_of(const CpuPackedLinear& weight) {
  if (after_last_ != nullptr) {
    *after_last_ = {weight.panels(), weight.panel_bytes(), weight.panel_count()};
  }
  const auto found = known_.find(&weight);
  check(found != known_.end(), "matmul: the scratch was shown this weight");
  Known& known = found->second;
  const bool from_memory = cache_bytes_ && (!known.read_bytes || read_bytes_ - *known.read_bytes > *cache_bytes_);
  if (from_memory) {
    read_bytes_ += static_cast<std::int64_t>(weight.bytes());
  }
  known.read_bytes = read_bytes_;
  after_last_ = &known.next;
  return {.next = known.next, .from_memory = from_memory};
}

void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool) {
  check(x.rows == y.rows && x.cols == weight.in_features() && y.cols == weight.out_features(),
        "matmul: the shapes of x, the weight and y agree");
  const std::int64_t row_bytes = packed_row_bytes(weight);
  const std::int64_t max_rows = weight.kernel().max_rows;
  const std::int64_t panels = weight.panel_count();
  const int threads = threads_for(panels * weight.panel_bytes(), pool);
  const std::size_t place_bytes = own_bytes(weight);
  const bool may_each_pack = each_may_pack(weight, pool.size());
  check(scratch.bytes() >= scratch_bytes(weight, pool.size()),
        "matmul: the scratch was shown this weight, for such a team");
  const auto [next, from_memory] = scratch.turn_of(weight);
  const int next_threads = threads_for(next.count * next.bytes, pool);
  for (std::int64_t first = 0; first < x.rows; first += kBlockRows) {
    const std::int64_t rows = std::min(kBlockRows, x.rows - first);
    const std::int64_t blocks = (rows + max_rows - 1) / max_rows;
    const bool each_packs = blocks == 1 && (threads == 1 || may_each_pack);
    const Packing packing = {weight, x.slice_rows(first, rows), blocks};
    if (!each_packs) packing.by_all(scratch.data(), pool);
    const auto place = [&](int thread) {
      return scratch.data() + (each_packs ? place_bytes * static_cast<std::size_t>(thread) : 0);
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
                           .y = y.row(first),
                           .y_stride = y.stride,
                           .from_memory = from_memory};
    share_out(
        pool, threads, panels, panels_of_chunk(weight, (rows + blocks - 1) / blocks),
        [&](int thread) {
          if (each_packs) packing.by_one(place(thread));
        },
        [&](int thread, std::int64_t begin, std::int64_t end, bool last) {
          MatmulJob part = job;
          part.x = place(thread);
          if (!last && end < panels) {
            part.next = {weight.panels() + end * weight.panel_bytes(), weight.panel_bytes(), panels - end};
          } else if (last && next.data != nullptr && first + rows == x.rows && thread < next_threads) {
            const std::int64_t begin_next = next.count * thread / next_threads;
            part.next = {next.data + begin_next * next.bytes, next.bytes, next.count - begin_next};
          }
          weight.kernel().run(part, begin, end);
        });
  }
}

}  // namespace specdec
