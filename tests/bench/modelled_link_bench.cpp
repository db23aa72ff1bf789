// How well a modelled interconnect keeps its time: what all-reduces take from the last rank's arrival to the last rank's end, over what the model
// says, and how many were late. An all-reduce in which a rank lost its core says more about the machine: percentiles are given with and without,
// and beside those of ranks that do nothing but look at the clock, so are as late as the machine makes anybody.
// Run it with mpirun; the ranks must be on one host.

#include <fmt/format.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "parallel/host_clock.h"
#include "parallel/modelled_link.h"
#include "parallel/program.h"
#include "parallel/value_bytes.h"
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

/// How often this thread has lost its core.
std::int64_t switches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw + usage.ru_nvcsw;
}

/// One all-reduce on one rank; travels as its bytes.
struct Stamp {
  std::int64_t begin;
  std::int64_t end;
  std::int64_t switches;
};

/// Microseconds, sorted.
struct Times {
  std::vector<double> all;
  std::vector<double> undisturbed;  // of those in which no rank lost its core
};

/// Microseconds from the last rank's arrival at each all-reduce to the last rank's end of it; on every rank.
Times times(Communicator& link, std::size_t bytes, const Options& options) {
  constexpr int kWarmUp = 200;
  std::vector<float> data(bytes / sizeof(float), 1.0F);
  std::vector<Stamp> stamps(options.count);
  const auto compute = static_cast<std::int64_t>(options.compute_us * 1000);
  for (int i = -kWarmUp; i < options.count; ++i) {
    for (const std::int64_t until = host_nanoseconds() + compute; host_nanoseconds() < until;) {
    }
    std::ranges::fill(data, 1.0F);
    const std::int64_t before = switches();
    const std::int64_t begin = host_nanoseconds();
    link.all_reduce(std::span(data), Stream{});
    const std::int64_t end = host_nanoseconds();
    if (i >= 0) {
      stamps[i] = {begin, end, switches() - before};
    }
  }
  std::vector<Stamp> all(stamps.size() * link.size());
  link.all_gather(std::as_bytes(std::span(stamps)), std::as_writable_bytes(std::span(all)), Stream{});
  Times out;
  for (std::size_t i = 0; i < stamps.size(); ++i) {
    Stamp last = all[i];
    for (int r = 1; r < link.size(); ++r) {
      const Stamp& other = all[stamps.size() * r + i];
      last = {std::max(last.begin, other.begin), std::max(last.end, other.end), last.switches + other.switches};
    }
    out.all.push_back(static_cast<double>(last.end - last.begin) / 1000);
    if (last.switches == 0) {
      out.undisturbed.push_back(out.all.back());
    }
  }
  std::ranges::sort(out.all);
  std::ranges::sort(out.undisturbed);
  return out;
}

/// Microseconds, sorted, from moments `period_us` apart to the first look at the clock after them, of the last rank. Nobody computes and
/// nobody talks: what is late here is the machine (interrupts, a host that takes a core away). Moments to which a rank came too late do not
/// count, as a collective does not begin without its last rank.
std::vector<double> clock_lateness(Communicator& link, double period_us, int count) {
  constexpr std::int64_t kMissed = -1;
  std::int64_t start = host_nanoseconds() + 1'000'000;
  link.broadcast(value_bytes(start), 0, Stream{});
  const auto period = static_cast<std::int64_t>(period_us * 1000);
  std::vector<std::int64_t> late(count);
  for (int i = 0; i < count; ++i) {
    const std::int64_t moment = start + i * period;
    std::int64_t now = host_nanoseconds();
    late[i] = now < moment ? 0 : kMissed;
    while (now < moment) {
      now = host_nanoseconds();
      late[i] = now - moment;
    }
  }
  std::vector<std::int64_t> all(late.size() * link.size());
  link.all_gather(std::as_bytes(std::span(late)), std::as_writable_bytes(std::span(all)), Stream{});
  std::vector<double> last;
  for (std::size_t i = 0; i < late.size(); ++i) {
    std::int64_t longest = 0;
    bool missed = false;
    for (std::size_t at = i; at < all.size(); at += late.size()) {
      missed |= all[at] == kMissed;
      longest = std::max(longest, all[at]);
    }
    if (!missed) {
      last.push_back(static_cast<double>(longest) / 1000);
    }
  }
  std::ranges::sort(last);
  return last;
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
    fmt::print(
        "| interconnect | bytes | native P50, us | model, us | P50 | P99 | P99 of a clock loop | P99, undisturbed | "
        "disturbed | late on rank 0 |\n");
    fmt::print("|---|---|---|---|---|---|---|---|---|---|\n");
  }
  for (const std::string& name : options.interconnects) {
    const Interconnect interconnect = load_interconnect(name, "--interconnect");
    for (const std::size_t bytes : options.bytes) {
      link->use({});
      const double native = percentile(times(*link, bytes, options).all, 0.5);
      link->use(interconnect);
      const ModelledTotals before = link->totals();
      const Times taken = times(*link, bytes, options);
      const ModelledTotals after = link->totals();
      const double model = 1e6 * interconnect.all_reduce(bytes, link->size());
      link->use({});
      const double clock = percentile(clock_lateness(*link, options.compute_us + model, options.count), 0.99);
      if (prints) {
        const auto over = [&](const std::vector<double>& sorted, double share) {
          if (sorted.empty()) {
            return std::string("-");
          }
          return fmt::format("{:+.2f} %", 100 * (percentile(sorted, share) / model - 1));
        };
        fmt::print("| {} | {} | {:.1f} | {:.2f} | {} | {} | {:+.2f} % | {} | {} | {} |\n", interconnect.name, bytes,
                   native, model, over(taken.all, 0.5), over(taken.all, 0.99), 100 * clock / model,
                   over(taken.undisturbed, 0.99), taken.all.size() - taken.undisturbed.size(),
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
