#pragma once

#include <sched.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/thread_pool.h"
#include "backend/dtype.h"

/// What no pass over weights can be quicker than on this machine: ways to read memory, to add products, and to do both at once, each as fast as plain loops do it.
namespace specdec {

using Words = std::span<const std::uint64_t>;

/// As many as are whole in `bytes` from `begin`, which is aligned for them.
Words words_of(const std::byte* begin, std::size_t bytes);

/// What one thread does with its part of each buffer.
struct RoofWay {
  std::string name;
  std::function<void(Words)> pass;
  double flops = 0;  ///< 0: what counts is how fast it goes through its part
};

/// Sums words with plain vector loads: how wide, how many streams at once, with or without prefetches.
std::vector<RoofWay> ways_to_read();
/// Multiplies what is in registers, so that nothing but the units bounds it; of the type that is quickest here, and fp32.
std::vector<RoofWay> ways_to_add();
inline constexpr std::int64_t kMostRows = 16;
/// What scoring `rows` rows asks of bf16 weights and no more: each is read once, and for each row a product of it added to a sum. What it is multiplied
/// with is one register, always the same. That is the roofline of a pass (Williams et al. 2009) as a loop that can be run, with the corner between its two roofs
/// as round as it is here. Empty without AVX-512, and of more than kMostRows rows.
std::vector<RoofWay> ways_to_score(std::int64_t rows);

/// Threads on a core each. The caller is one of them, and gets its cores back.
class RoofTeam {
 public:
  explicit RoofTeam(int threads);
  RoofTeam(const RoofTeam&) = delete;
  RoofTeam& operator=(const RoofTeam&) = delete;
  ~RoofTeam();

  int size() const { return pool_.size(); }

  /// Seconds of one pass over all buffers, each thread over its part of each.
  double time(const RoofWay& way, std::span<const Words> buffers);
  /// Seconds that a line takes from the core of the first thread to that of the last or back, the least of several tries; 0 where that cannot be measured: of one thread, or of more than there are cores.
  double line_seconds();

 private:
  ThreadPool pool_;
  cpu_set_t callers_;
};

/// The plain read of weights, and the roofline of each of several row counts where it has one, each the best of its ways.
class Roofs {
 public:
  Roofs(DType dtype, std::span<const std::int64_t> row_counts);

  /// All ways in turns, or after choose() the best ones.
  void measure(RoofTeam& team, std::span<const Words> weights);
  /// Leaves the best way of each by what was measured, which is forgotten.
  void choose();

  bool any_roofline() const;
  /// Of the best way, each time that it was measured, in order; null for a row count without a roofline.
  const std::vector<double>& read_seconds() const { return read_.seconds.front(); }
  const std::vector<double>* roofline_seconds(std::size_t row_count) const;

 private:
  struct Roof {
    std::vector<RoofWay> ways;
    std::vector<std::vector<double>> seconds;  ///< of each way
  };

  Roof read_;
  std::vector<Roof> of_rows_;
};

}  // namespace specdec
