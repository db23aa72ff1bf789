#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

namespace specdec {

/// Repeats of a benchmark in which the cores were equally far from each other.
struct Place {
  double least_seconds = 0;  ///< that a line took from core to core
  double most_seconds = 0;
  std::vector<std::size_t> repeats;  ///< in order
};

/// Of the seconds that a line took from core to core at several moments of each repeat. A host may move a virtual machine's cores from one chiplet to two and back without a word; memory is then quicker, and what
/// one core wrote farther from the other, so that figures of the one place say nothing of the other. Two places at most, the nearer first: in the middle (of logarithms) lines take
/// twice as long in the second at least. A repeat with moments of both is in neither, and there are none where some moment is unknown, which is 0.
inline std::vector<Place> places_of(const std::vector<std::vector<double>>& line_seconds) {
  constexpr double kFarther = 2;
  std::vector<double> sorted;
  for (const std::vector<double>& of_repeat : line_seconds) {
    sorted.insert(sorted.end(), of_repeat.begin(), of_repeat.end());
  }
  std::ranges::sort(sorted);
  if (sorted.empty() || sorted.front() <= 0) return {};
  std::vector<double> sums(1);  // of logarithms
  std::ranges::transform(sorted, std::back_inserter(sums),
                         [&](double seconds) { return sums.back() + std::log(std::max(seconds, 1e-12)); });
  // The cut that takes most off the variance.
  double near = sorted.back();
  double most_taken_off = 0;
  for (std::size_t cut = 1; cut < sorted.size(); ++cut) {
    const auto before = static_cast<double>(cut);
    const auto after = static_cast<double>(sorted.size() - cut);
    const double farther = (sums.back() - sums[cut]) / after - sums[cut] / before;
    if (farther < std::log(kFarther) || farther * farther * before * after <= most_taken_off) continue;
    most_taken_off = farther * farther * before * after;
    near = sorted[cut - 1];
  }
  std::vector<Place> places(2);
  for (std::size_t repeat = 0; repeat < line_seconds.size(); ++repeat) {
    const auto [least, most] = std::ranges::minmax(line_seconds[repeat]);
    if (least <= near && most > near) continue;
    Place& place = places[least <= near ? 0 : 1];
    place.least_seconds = place.repeats.empty() ? least : std::min(place.least_seconds, least);
    place.most_seconds = std::max(place.most_seconds, most);
    place.repeats.push_back(repeat);
  }
  std::erase_if(places, [](const Place& place) { return place.repeats.empty(); });
  return places;
}

/// Of values that belong to repeats, those of some; none of none.
template <class Values>
Values taken(const Values& values, const std::vector<std::size_t>& repeats) {
  if (values.empty()) return {};
  Values of_repeats;
  std::ranges::transform(repeats, std::back_inserter(of_repeats), [&](std::size_t repeat) { return values[repeat]; });
  return of_repeats;
}

}  // namespace specdec
