#include "runtime/pace.h"

#include <algorithm>
#include <map>
#include <span>

#include "runtime/statistics.h"

namespace specdec {

std::optional<Pace> pace_of(std::vector<PacedJob> jobs) {
  const std::size_t parts = std::min(jobs.size() / kPacedJobs, kMostPacedParts);
  if (parts < 2) return std::nullopt;
  std::map<std::size_t, std::vector<double>> of_points;
  for (const PacedJob& job : jobs) of_points[job.point].push_back(job.loop_ms);
  std::map<std::size_t, double> undisturbed;
  for (const auto& [point, times] : of_points) undisturbed[point] = quicker_half(times);
  std::ranges::stable_sort(jobs, {}, &PacedJob::ended);
  Pace pace = {.parts = static_cast<int>(parts)};
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t begin = jobs.size() * part / parts;
    const std::size_t end = jobs.size() * (part + 1) / parts;
    std::vector<double> ratios;
    for (const PacedJob& job : std::span(jobs).subspan(begin, end - begin)) {
      ratios.push_back(job.loop_ms / undisturbed.at(job.point));
    }
    const double middle = median(ratios);
    pace.least = part == 0 ? middle : std::min(pace.least, middle);
    pace.most = std::max(pace.most, middle);
  }
  return pace;
}

}  // namespace specdec
