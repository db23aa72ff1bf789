#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/dtype.h"

/// What a file of one instruction set offers to matmul. These files are compiled with flags of their own and so must
/// emit no function that the linker could share with the rest of the program: no templates or inline functions of the
/// standard library.
namespace specdec {

// The layout of packed weights (packed_linear.h).
inline constexpr std::int64_t kPanelOutputs = 16;
inline constexpr std::int64_t kStepBytes = 64;
/// A bf16 slice takes whole multiples of so many steps.
inline constexpr std::int64_t kTileSteps = 16;
/// A group of int8 weights (backend/int8.h) has at most so many steps, of 4 inputs each; its scales are one more.
inline constexpr std::int64_t kInt8StepInputs = 4;
inline constexpr std::int64_t kInt8GroupSteps = 32;
/// Many more than the 16 canonical slices; the kernels keep log2 of it in partial sums.
inline constexpr std::int64_t kMaxSlices = 64;

/// Panels of a matrix, one after another, by their place alone: it may be gone.
struct PanelRun {
  const std::byte* data = nullptr;
  std::int64_t bytes = 0;  ///< of one
  std::int64_t count = 0;
};

/// Where weights are read from, as far as what was read since the last time tells.
enum class ReadFrom : std::uint8_t {
  kMemory,  ///< in no cache: more was read than the last one holds
  kEither,  ///< in the last cache if it is this program's alone; what others on the chip leave of it does not hold all
  kCache,   ///< in the last cache
};

struct MatmulJob {
  const std::byte* panels;  ///< panel 0 of the matrix
  std::int64_t panel_bytes;
  std::int64_t outputs;             ///< of the whole matrix
  const std::int64_t* slice_steps;  ///< [slices], those of zeros included, those of scales not
  std::int64_t slices;
  /// Rows are cut into `blocks` blocks, block i being rows [rows * i / blocks, rows * (i + 1) / blocks), each as MatmulKernel::pack
  /// writes it, so that a kernel reads x front to back too.
  const std::byte* x;
  std::int64_t x_bytes;  ///< of one row
  std::int64_t rows;
  std::int64_t blocks;
  float* y;               ///< [rows, outputs]
  std::int64_t y_stride;  ///< elements
  /// y begins on a line of its own in every row and may be written past the caches.
  bool y_past_caches = false;
  /// What the thread reads after `end` of run(), if it is known: its next part, or panels of the next matrix. The last products ask for the first bytes of it.
  PanelRun next = {};
  ReadFrom read_from = ReadFrom::kCache;
};

struct MatmulKernel {
  /// Computes the outputs of panels [begin, end) for all rows of the job.
  void (*run)(const MatmulJob& job, std::int64_t begin, std::int64_t end);
  /// Writes `count` inputs of each of `rows` <= max_rows rows, `stride` elements apart, in the form that `run` reads: rounded to the type of the
  /// weights, the rows side by side in each step (on tiles: in each kTileSteps), and zeros where the weights have them.
  void (*pack)(const float* x, std::int64_t stride, std::int64_t rows, std::int64_t count, std::byte* packed);
  /// Panels that it multiplies with side by side at most, for `rows` <= max_rows rows: from memory it may be one after another.
  std::int64_t (*side_by_side)(std::int64_t rows);
  /// Bytes of packed x for one step of a panel.
  std::int64_t x_step_bytes;
  /// And for one group of int8, besides its steps; 0 of other types, which have none.
  std::int64_t x_group_bytes = 0;
  /// Rows of a block.
  std::int64_t max_rows;
  /// Each thread packs a single block of rows for itself: what another one packed has to come from its core, and the place where it lies must be had back from all who read it before the next
  /// rows are packed there. Of several blocks to pack them all takes longer than that (docs/kernels.md, "Threads of a rank").
  bool each_packs = false;
};

extern const MatmulKernel kMatmulScalarF32;
extern const MatmulKernel kMatmulScalarBf16;
extern const MatmulKernel kMatmulAvx2F32;
extern const MatmulKernel kMatmulAvx2Bf16;
extern const MatmulKernel kMatmulAvx512F32;
extern const MatmulKernel kMatmulAvx512Bf16;
extern const MatmulKernel kMatmulVdpbf16;
extern const MatmulKernel kMatmulVdpbf16OneStream;
extern const MatmulKernel kMatmulAmxBf16;
// Of int8 all have the same bits.
extern const MatmulKernel kMatmulScalarInt8;
extern const MatmulKernel kMatmulAvx2Int8;
extern const MatmulKernel kMatmulAvx512Int8;
extern const MatmulKernel kMatmulVnniInt8;          ///< for CPUs with AVX-512 of which has_avx512_vnni()
extern const MatmulKernel kMatmulVnniInt8TwoSteps;  ///< for Zen 4 among them
extern const MatmulKernel kMatmulAmxInt8;           ///< for CPUs with AMX of which has_amx_int8()

/// The fastest kernel for weights of `dtype` (kF32, kBF16 or kInt8). The caller has made sure that this CPU has `isa`.
const MatmulKernel& matmul_kernel(Isa isa, DType dtype);

}  // namespace specdec
