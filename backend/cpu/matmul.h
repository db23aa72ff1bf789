#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "backend/cpu/aligned_array.h"
#include "backend/cpu/cache_sizes.h"
#include "backend/cpu/packed_linear.h"
#include "backend/cpu/row_ops.h"
#include "backend/cpu/thread_pool.h"
#include "backend/tensor.h"

namespace specdec {

/// Where matmul keeps the rows of x in the form that its kernels read. Grows to the largest matrix it was shown, so
/// that a call allocates nothing; one per thread that calls matmul.
class MatmulScratch {
 public:
  /// `cache_bytes`: what the last cache holds of weights, nothing where that is not known: then they all are in it.
  explicit MatmulScratch(std::optional<std::int64_t> cache_bytes = last_level_cache_bytes())
      : cache_bytes_(cache_bytes) {}

  /// For pools of `team` threads.
  void reserve(const CpuPackedLinear& weight, int team);
  std::byte* data() { return rows_.data(); }
  std::size_t bytes() const { return rows_.bytes(); }
  /// Where a thread has gates and what they gate until it has multiplied them.
  float* pairs_of(int thread) {
    return reinterpret_cast<float*>(pairs_.data() + pairs_bytes_ * static_cast<std::size_t>(thread));
  }
  /// Whether each of so many threads has such a place.
  bool has_pairs_of(int team) const { return pairs_.bytes() >= pairs_bytes_ * static_cast<std::size_t>(team); }

  struct Turn {
    /// What came after the weight the last time, nothing if that is not known. A pass goes through its matrices in the same order each time.
    /// (Backend::matmul_before tells the next one only where ranks meet, and none from one model to another.)
    PanelRun next;
    ReadFrom read_from;
  };
  /// Where the next turn of `weight` reads it from, by what came into the cache since the last one. So a small draft beside a large target is read from memory for the first token of a loop and from the cache for the others.
  ReadFrom will_read_from(const CpuPackedLinear& weight) const { return will_read_from(known_.at(&weight)); }
  /// Says that `weight` is multiplied with now, its first `shared_out` panels in their order by threads that share them.
  Turn turn_of(const CpuPackedLinear& weight, std::int64_t shared_out);

 private:
  AlignedArray rows_;
  AlignedArray pairs_;
  std::size_t pairs_bytes_ = 0;  ///< of a thread
  std::optional<std::int64_t> cache_bytes_;
  /// Others use the last cache too: one of so many parts of it surely has what it should. Of 32 MB on Zen 4, 14 MB of weights were read at the cache's speed, 15 no longer (docs/kernels.md,
  /// "AVX-512 BF16").
  static constexpr std::int64_t kPartsOfCache = 3;
  /// Bytes, by all turns.
  struct CameIn {
    std::int64_t whole = 0;  ///< into the last cache, were it ours
    std::int64_t part = 0;   ///< into the part that is sure
  };
  CameIn came_in_;
  struct Known {
    PanelRun next;
    std::optional<CameIn> came_in;  ///< at its last turn
  };
  ReadFrom will_read_from(const Known& known) const;

  std::unordered_map<const CpuPackedLinear*, Known> known_;
  PanelRun* after_last_ = nullptr;
};

/// Who reads a product next. What far cores read goes past the caches of the core that multiplies: to have the places back from them takes longer, the next time.
enum class Readers : std::uint8_t {
  kNear,    ///< whoever it is, cores are near each other
  kCaller,  ///< the caller alone, and others' cores are far
  kTeam,    ///< all threads, on far cores
};

/// y = x * weight^T, as Backend::matmul says. x [rows, in_features], y [rows, out_features]. Reads each weight once for
/// up to 16 rows, and from cache for the further rows of a block of 64. Rows, threads and the place of an output in the
/// matrix change no bit of it. `scratch` must have been shown `weight`, for as many threads as
/// `pool` has; subnormals must be flushed on the calling thread. Of weights in the cache what the whole team reads stays in the caches all the same.
void matmul(const CpuPackedLinear& weight, ConstRows x, Rows y, MatmulScratch& scratch, ThreadPool& pool,
            Readers readers = Readers::kNear);

/// out = silu(gate) * up of (gate, up) = x * weight^T + bias, as Backend::matmul_silu_mul says, of weights with gate_panels(). Each thread multiplies gates with their outputs as it has them, so
/// that neither leaves its core. bias [out_features] or null, out [rows, out_features / 2].
void matmul_silu_mul(const CpuPackedLinear& weight, ConstRows x, const float* bias, Rows out, const RowOps& ops,
                     const ResultOps& results, MatmulScratch& scratch, ThreadPool& pool);

}  // namespace specdec
