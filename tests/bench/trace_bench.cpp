/// What a trace costs: the same decoding with and without one.
///
///   [mpirun -np N] trace_bench [--config chinchilla-like.yaml] [--set KEY=VALUE ...] [--repeats 10]
///
/// Method: a leg makes a whole job (runtime/job.h), warms it up and decodes all prompts; legs go off, on, on, off within one process, so that
/// drifts of the machine fall on both alike, and every leg decodes the same rounds. Printed are the median and quartiles of each repeat's (on + on) /
/// (off + off), where a leg's figure is the median of its rounds; the same ratio of the sums of every round's fastest time over all legs of a kind,
/// which work beside it disturbs least; and what one span costs by itself.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "parallel/agree.h"
#include "parallel/program.h"
#include "runtime/cli.h"
#include "runtime/config_load.h"
#include "runtime/job.h"

namespace specdec {
namespace {

constexpr std::size_t kEvents = std::size_t{1} << 18;

double quantile(std::vector<double> values, double share) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1) + 0.5)];
}

/// Keeps the times of rounds.
class RoundTimes final : public OutputSink {
 public:
  void begin_output(const std::string&, std::span<const Token>) override {}
  void prefilled(double) override {}
  void append(std::span<const Token>, const std::string&, const LoopRecord& loop) override {
    seconds_.push_back(loop.total);
  }
  void finish_output(const std::string&, const std::string&) override {}
  const std::vector<double>& seconds() const { return seconds_; }

 private:
  std::vector<double> seconds_;
};

struct Leg {
  std::vector<double> rounds;  ///< seconds
  std::size_t events = 0;      ///< of rank 0, the warm-up's included
};

Leg run_leg(MpiSession& session, Communicator& control, Communicator& target, const RunConfig& config, bool traced) {
  std::optional<Tracer> tracer;
  if (traced) {
    tracer.emplace(kEvents);
  }
  JobGroups groups(control, target);
  Job job(
      config, groups, session.progress(), [] { return false; }, traced ? &*tracer : nullptr);
  if (session.rank() != 0) {
    job.follow();
    return {};
  }
  job.warm_up();
  RoundTimes times;
  for (std::size_t prompt = 0; prompt < job.prompts().size(); ++prompt) {
    job.generate(config.decode.method, prompt, times);
  }
  job.end();
  return {.rounds = times.seconds(), .events = traced ? tracer->events().size() : 0};
}

constexpr TraceKind kKind{.name = "span", .value = "number"};

/// Nanoseconds of one span, among many that a tracer has room for.
double span_cost(Tracer* tracer) {
  constexpr int kBatches = 100;
  constexpr int kSpans = 1000;
  double best = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    Tracer* volatile hidden = tracer;  // what the compiler knows at no call site either
    const std::int64_t begin = Tracer::now();
    for (int i = 0; i < kSpans; ++i) {
      const Span span(hidden, kKind, i);
    }
    best = std::min(best, static_cast<double>(Tracer::now() - begin) / kSpans);
  }
  return best;
}

/// Each round's fastest time so far.
void keep_fastest(std::vector<double>& fastest, const std::vector<double>& rounds) {
  fastest.resize(rounds.size(), 1e9);
  std::ranges::transform(rounds, fastest, fastest.begin(), [](double a, double b) { return std::min(a, b); });
}

double sum(const std::vector<double>& values) { return std::accumulate(values.begin(), values.end(), 0.0); }

int run(MpiSession& session, int argc, char** argv) {
  std::string file = "chinchilla-like.yaml";
  std::vector<std::string> set;
  int repeats = 10;
  CLI::App app{"What a trace costs: the same decoding with and without one", "trace_bench"};
  app.add_option("--config", file);
  app.add_option("--set", set);
  app.add_option("--repeats", repeats)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);

  const std::unique_ptr<Communicator> control = session.world("auto");
  CommandLine command;
  command.config = file;
  command.set = set;
  command.set.emplace_back("compare=false");
  std::string text = agree(*control, [&] { return session.rank() == 0 ? serialise(make_run_config(command)) : ""; });
  broadcast_string(*control, text);
  const RunConfig config = deserialise(text);
  const std::unique_ptr<Communicator> target = session.split(config.parallel.transport, 0);

  std::vector<double> ratios;
  std::vector<double> off_us;
  std::array<std::vector<double>, 2> fastest;  // without, with
  std::size_t events = 0;
  for (int repeat = 0; repeat < repeats; ++repeat) {
    std::array<double, 2> us{};
    for (const bool on : {false, true, true, false}) {
      const Leg leg = run_leg(session, *control, *target, config, on);
      if (session.rank() == 0) {
        us[on ? 1 : 0] += quantile(leg.rounds, 0.5) / 2 * 1e6;
        keep_fastest(fastest[on ? 1 : 0], leg.rounds);
        events = std::max(events, leg.events);
      }
    }
    off_us.push_back(us[0]);
    ratios.push_back(us[1] / us[0]);
  }
  if (session.rank() == 0) {
    const auto rounds = static_cast<double>(fastest[0].size());
    Tracer tracer(kEvents);
    fmt::print("ranks {}, rounds a leg {}, repeats {}, events a round on rank 0 {:.0f}\n", session.size(), rounds,
               repeats, static_cast<double>(events) / rounds);
    fmt::print("a round without a trace, us     median {:.1f}, fastest {:.1f}\n", quantile(off_us, 0.5),
               sum(fastest[0]) / rounds * 1e6);
    fmt::print("with over without               quartiles {:.4f} {:.4f} {:.4f}, fastest {:.4f}\n",
               quantile(ratios, 0.25), quantile(ratios, 0.5), quantile(ratios, 0.75),
               sum(fastest[1]) / sum(fastest[0]));
    fmt::print("one span, ns                    {:.1f} without a tracer, {:.1f} with one\n", span_cost(nullptr),
               span_cost(&tracer));
  }
  return 0;
}

}  // namespace
}  // namespace specdec

int main(int argc, char** argv) {
  return specdec::run_program(argc, argv,
                              [&](specdec::MpiSession& session) { return specdec::run(session, argc, argv); });
}
