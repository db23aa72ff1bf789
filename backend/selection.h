#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace specdec {

/// Where a row is cut when its entries are taken largest first, ties lowest id first: the last entry that is taken.
struct Cut {
  float value = 0;
  std::int32_t token = 0;
};

/// Finds the cut of a row of weights in [0, 1] without sorting it: a radix selection on the bits of the floats, whose
/// order is that of the values since none is negative. The buckets of a pass hold what the candidates weigh together
/// (how many they are, or their mass), so three passes of ten bits reach one single value however flat the row is.
/// Holds scratch; a call allocates nothing after the first of its size.
class Selection {
 public:
  /// The `count` >= 1 largest of the positive weights; all of them if there are fewer.
  Cut largest(std::span<const float> weights, std::int64_t count);

  /// The smallest set of largest weights whose sum reaches share * total; at least one entry. share in (0, 1), total:
  /// the sum of the row.
  Cut heaviest(std::span<const float> weights, double share, double total);

 private:
  struct Candidate {
    float weight;
    std::int32_t token;
  };
  static constexpr int kDigitBits = 10;

  std::span<Candidate> collect(std::span<const float> weights, float bound);
  template <typename Measure>
  Cut cut(std::span<Candidate> candidates, double goal, Measure measure);

  std::vector<Candidate> scratch_;
  std::array<double, 1U << kDigitBits> buckets_;
};

}  // namespace specdec
