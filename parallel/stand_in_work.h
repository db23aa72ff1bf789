#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

/// What takes the time of a layer's compute in a benchmark of communication.
namespace specdec {

/// Seconds that this thread has run on a core.
double core_seconds();
/// Keeps the core busy until core_seconds() reaches `seconds`: longer on the clock where ranks share the core.
void burn_core_until(double seconds);

/// Reads memory, which is what the products of one row take: in turns from `bytes` in all, so that the caches hold what
/// they would hold of a model of this size.
class WeightReader {
 public:
  explicit WeightReader(std::size_t bytes) : weights_(bytes / sizeof(std::uint64_t), 1) {}
  /// The next `bytes`, from the beginning again after the end.
  void read(std::size_t bytes);

 private:
  std::vector<std::uint64_t> weights_;
  std::size_t at_ = 0;
  volatile std::uint64_t sum_ = 0;  // the compiler must not leave out the reading
};

}  // namespace specdec
