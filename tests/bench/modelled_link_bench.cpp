// How well a modelled interconnect keeps its time: what all-reduces take from the last rank's arrival to the last rank's end, over what the model
// says, and how many were late. Run it with mpirun; the ranks must be on one host.

#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/modelled_link.h"
#include "parallel/program.h"
#include "runtime/interconnect_load.h"

namespace specdec {
namespace {

struct Options {
  std::string transport = "auto";
  std::vector<std::string> interconnects = {"tpu-v4-chen"};
  std::vector<std::size_t> bytes = {1024, 16384, 81920, 262144};
  int count = 10'000;
  double compute_us = 20;
};

std::int64_t now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

/// Microseconds from the last rank's arrival at each all-reduce to the last rank's end of it, sorted; on every rank.
std::vector<double> times(Communicator& link, std::size_t bytes, const Options& options) {
  constexpr int kWarmUp = 200;
  std::vector<float> data(bytes / sizeof(float), 1.0F);
  std::vector<std::int64_t> stamps(2 * static_cast<std::size_t>(options.count));
  const auto compute = static_cast<std::int64_t>(options.compute_us * 1000);
  for (int i = -kWarmUp; i < options.count; ++i) {
    for (const std::int64_t until = now() + compute; now() < until;) {
    }
    std::ranges::fill(data, 1.0F);
    const std::int64_t begin = now();
    link.all_reduce(std::span(data), Stream{});
    if (i >= 0) {
      stamps[2 * i] = begin;
      stamps[2 * i + 1] = now();
    }
  }
  std::vector<std::int64_t> all(stamps.size() * link.size());
  link.all_gather(std::as_bytes(std::span(stamps)), std::as_writable_bytes(std::span(all)), Stream{});
  std::vector<double> out(options.count);
  for (int i = 0; i < options.count; ++i) {
    std::int64_t begin = 0;
    std::int64_t end = 0;
    for (int r = 0; r < link.size(); ++r) {
      begin = std::max(begin, all[stamps.size() * r + 2 * i]);
      end = std::max(end, all[stamps.size() * r + 2 * i + 1]);
    }
    out[i] = static_cast<double>(end - begin) / 1000;
  }
  std::ranges::sort(out);
  return out;
}

double percentile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<std::size_t>(share * static_cast<double>(sorted.size())))];
}

int bench(MpiSession& session, const Options& options) {
  const std::unique_ptr<Communicator> world = session.world(options.transport);
  const std::unique_ptr<ModelledLink> link = make_modelled_link(*world, 0);
  const bool prints = world->rank() == 0;
  if (prints) {
    fmt::print("{} ranks, {}, {} all-reduces a line, {} us of work between two\n\n", world->size(), world->transport(),
               options.count, options.compute_us);
    fmt::print("| interconnect | bytes | native P50, us | model, us | P50 | P90 | P99 | max | late on rank 0 |\n");
    fmt::print("|---|---|---|---|---|---|---|---|---|\n");
  }
  for (const std::string& name : options.interconnects) {
    const Interconnect interconnect = load_interconnect(name);
    for (const std::size_t bytes : options.bytes) {
      link->use({});
      const double native = percentile(times(*link, bytes, options), 0.5);
      link->use(interconnect);
      const ModelledTotals before = link->totals();
      const std::vector<double> taken = times(*link, bytes, options);
      const ModelledTotals after = link->totals();
      if (prints) {
        const double model = 1e6 * interconnect.all_reduce(bytes, link->size());
        const auto over = [&](double share) { return 100 * (percentile(taken, share) / model - 1); };
        fmt::print("| {} | {} | {:.1f} | {:.2f} | {:+.2f} % | {:+.2f} % | {:+.2f} % | {:.0f} us | {} |\n",
                   interconnect.name, bytes, native, model, over(0.5), over(0.9), over(0.99), taken.back(),
                   after.late - before.late);
        std::fflush(stdout);
      }
    }
  }
  return 0;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  specdec::Options options;
  CLI::App app("How well a modelled interconnect keeps its time");
  app.add_option("--transport", options.transport)->capture_default_str();
  app.add_option("--interconnect", options.interconnects, "presets or files")->delimiter(',')->capture_default_str();
  app.add_option("--bytes", options.bytes)->delimiter(',')->capture_default_str();
  app.add_option("--count", options.count, "all-reduces a line")->capture_default_str();
  app.add_option("--compute-us", options.compute_us, "busy work between two")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return specdec::run_program(argc, argv,
                              [&](specdec::MpiSession& session) { return specdec::bench(session, options); });
}
