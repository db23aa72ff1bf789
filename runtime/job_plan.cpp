#include "runtime/job_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "models/config.h"
#include "runtime/config_prompts.h"
#include "runtime/cost_model.h"
#include "runtime/draft_link.h"
#include "runtime/forced_label.h"
#include "runtime/hardware_load.h"
#include "runtime/placement.h"
#include "runtime/placement_ranks.h"
#include "runtime/round.h"
#include "runtime/units.h"

namespace specdec {
namespace {

constexpr double kCacheBytes = sizeof(float);    // docs/decisions/0005
constexpr double kPayloadBytes = sizeof(float);  // docs/numerics.md, rule 1

std::int64_t longest_prompt(const RunConfig& config) {
  std::int64_t longest = 0;
  for (const Prompt& prompt : config.prompts) longest = std::max(longest, rough_tokens(prompt));
  return longest;
}

/// "1.5 GB", "320 kB": powers of ten, as memory's speed is given.
std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) {
    bytes /= 1000;
    ++unit;
  }
  return fmt::format("{:.3g} {}", bytes, kUnits[unit]);
}

double sums_bytes(const PassWork& work) {
  return static_cast<double>(work.all_reduces) * static_cast<double>(work.payload_bytes);
}

/// In a loop of k drafted tokens.
JobPlan::Sent sent(const RunConfig& config, const ModelConfig& target, std::int64_t k, int ranks) {
  if (ranks == 1) return {};
  JobPlan::Sent found{.gathered = decision_bytes(target, config.decode.sampling.truncates(), k + 1)};
  if (drafts_together(config.placement)) return found;
  found.message = static_cast<double>(RoundChannel::message_bytes(k));
  if (config.placement == Placement::kDedicated && k > 0) {
    found.message += static_cast<double>(DraftLink::reply_bytes(k));
  }
  return found;
}

std::string sent_text(const JobPlan::Sent& sent) {
  const std::string message = sent.message > 0 ? fmt::format("a message of {} and ", bytes_text(sent.message)) : "";
  return fmt::format("{}{} gathered for the decision", message, bytes_text(sent.gathered));
}

/// The rank that needs most, on hardware that says what its ranks have.
std::string fits_described(const JobPlan& plan, const RunConfig& config) {
  if (config.decode.hardware == kNoHardware) return "";
  const Hardware hardware = load_hardware(config.decode.hardware, "decode.hardware");
  if (hardware.memory_bytes == 0) return "";
  const auto most = std::ranges::max_element(plan.ranks, {}, &RankPlan::held);
  const bool enough = static_cast<int>(plan.ranks.size()) <= hardware.ranks;
  const bool fits = enough && most->held() <= hardware.memory_bytes;
  std::string text = fmt::format("\nOn {} it {}: rank {} needs {}, and a rank has {} there", hardware.name,
                                 fits ? "fits" : "does not fit", most - plan.ranks.begin(), bytes_text(most->held()),
                                 bytes_text(hardware.memory_bytes));
  if (!enough) text += fmt::format("; it has {} ranks", hardware.ranks);
  return text + "\n";
}

}  // namespace

double JobPlan::loop_sums_bytes() const { return sums_bytes(loop) + static_cast<double>(k) * sums_bytes(drafted); }

JobPlan plan_job(const RunConfig& config, int ranks) {
  const ModelConfig target = load_model_config(config.target);
  const bool drafts = !config.draft.empty() && config.decode.method != Method::kAutoregressive;
  JobPlan plan;
  plan.k = drafts ? config.decode.k : 0;
  plan.context = std::min(target.context, longest_prompt(config) + config.decode.max_new_tokens / 2);
  const auto pass = [&](std::int64_t rows, std::int64_t context, int of, DType dtype) {
    return PassShape{.rows = rows,
                     .context = context,
                     .ranks = of,
                     .weights = dtype,
                     .cache_bytes = kCacheBytes,
                     .payload_bytes = kPayloadBytes};
  };
  const auto reads = [](const PassWork& work) { return work.weight_bytes + work.cache_bytes; };
  require_target_ranks(config.placement, ranks, "placement");
  const int of_target = target_ranks(config.placement, ranks);
  for (int rank = 0; rank < of_target; ++rank) {
    const PassWork token = work_of_rank(target, pass(1, plan.context, of_target, config.dtype), rank);
    const PassWork loop = work_of_rank(target, pass(plan.k + 1, plan.context, of_target, config.dtype), rank);
    const PassWork whole = work_of_rank(target, pass(1, target.context - 1, of_target, config.dtype), rank);
    plan.ranks.push_back({.weights = whole.weight_bytes,
                          .cache = whole.cache_bytes,
                          .token_reads = reads(token),
                          .token_operations = token.operations,
                          .loop_reads = reads(loop),
                          .loop_operations = loop.operations});
    if (rank == 0) {
      plan.token = token;
      plan.loop = loop;
    }
  }
  plan.ranks.resize(static_cast<std::size_t>(ranks));
  plan.token_sent = sent(config, target, 0, ranks);
  plan.loop_sent = sent(config, target, plan.k, ranks);
  if (drafts) {
    const ModelConfig draft = load_model_config(config.draft);
    const DType dtype = config.type_of_draft();
    const bool cut = config.placement == Placement::kSharded;
    const auto k = static_cast<double>(plan.k);
    for (int rank = 0; rank < ranks; ++rank) {
      if (!config.drafts_on(rank, ranks)) continue;
      const auto part = [&](std::int64_t context) {
        return work_of_rank(draft, pass(1, context, cut ? ranks : 1, dtype), cut ? rank : 0);
      };
      const PassWork one = part(std::min(plan.context, draft.context - 1));
      const PassWork whole = part(draft.context - 1);
      RankPlan& of = plan.ranks[static_cast<std::size_t>(rank)];
      of.weights += whole.weight_bytes;
      of.cache += whole.cache_bytes;
      of.loop_reads += k * reads(one);
      of.loop_operations += k * one.operations;
      plan.drafted = one;
    }
  }
  return plan;
}

std::string plan_text(const JobPlan& plan, const RunConfig& config, const HostMemory& host) {
  const auto name = [](const std::string& path) { return std::filesystem::path(path).filename().string(); };
  std::string text = fmt::format("Plan, nothing was run: {} ({})", name(config.target), name_of(config.dtype));
  if (plan.k > 0) {
    text += fmt::format(" with draft {} ({}, {}), K = {}", name(config.draft), name_of(config.type_of_draft()),
                        name_of(config.placement), plan.k);
  }
  text += fmt::format(", {} rank{}, after about {} tokens\n", plan.ranks.size(), plan.ranks.size() == 1 ? "" : "s",
                      plan.context);
  if (const std::string forced = forced_label(config); !forced.empty()) text += "Forced: " + forced + "\n";
  text += "\n";
  text += fmt::format("{:>4} {:>10} {:>10} {:>10} {:>14} {:>14}", "rank", "weights", "cache", "together",
                      "token: reads", "GFLOP");
  if (plan.k > 0) text += fmt::format(" {:>14} {:>14}", "loop: reads", "GFLOP");
  text += "\n";
  for (std::size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankPlan& of = plan.ranks[rank];
    text +=
        fmt::format("{:>4} {:>10} {:>10} {:>10} {:>14} {:>14.3f}", rank, bytes_text(of.weights), bytes_text(of.cache),
                    bytes_text(of.held()), bytes_text(of.token_reads), of.token_operations / kGiga);
    if (plan.k > 0) {
      text += fmt::format(" {:>14} {:>14.3f}", bytes_text(of.loop_reads), of.loop_operations / kGiga);
    }
    text += "\n";
  }
  if (plan.token.all_reduces > 0) {
    const auto sums = [](const PassWork& work) {
      return fmt::format("{} all-reduces of {}", work.all_reduces, bytes_text(static_cast<double>(work.payload_bytes)));
    };
    text += fmt::format("\na token: {}, {} in all\n", sums(plan.token), bytes_text(sums_bytes(plan.token)));
    if (plan.k > 0 && plan.drafted.all_reduces == 0) {
      text += fmt::format("a loop:  {}, {} in all\n", sums(plan.loop), bytes_text(plan.loop_sums_bytes()));
    } else if (plan.k > 0) {
      text += fmt::format("a loop:  {}, and for each of {} drafted tokens {}: {} and {} in all\n", sums(plan.loop),
                          plan.k, sums(plan.drafted), plan.loop_all_reduces(), bytes_text(plan.loop_sums_bytes()));
    }
    text += fmt::format("beside them, a token: {}", sent_text(plan.token_sent));
    if (plan.k > 0) text += fmt::format("; a loop: {}", sent_text(plan.loop_sent));
    text += "\n";
  }
  const auto together = [&](int count) {
    return std::accumulate(plan.ranks.begin(), plan.ranks.begin() + count, 0.0,
                           [](double sum, const RankPlan& of) { return sum + of.held(); });
  };
  const int here = std::min(host.ranks, static_cast<int>(plan.ranks.size()));
  const double needed = together(here);
  if (config.backend == "cuda") {
    text += fmt::format("\nIt needs {} of GPU memory on rank 0; what the GPUs of this host have was not asked\n",
                        bytes_text(plan.ranks.front().held()));
  } else if (host.available) {
    text += fmt::format("\nIt {}: {} of this host {} {}, and it has {} available\n",
                        needed <= *host.available ? "fits" : "does not fit",
                        here == 1 ? "1 rank" : fmt::format("{} ranks", here), here == 1 ? "needs" : "need",
                        bytes_text(needed), bytes_text(*host.available));
  } else {
    text += fmt::format("\nIts {} rank{} of this host need {}; what the host has is not known\n", here,
                        here == 1 ? "" : "s", bytes_text(needed));
  }
  return text + fits_described(plan, config);
}

std::optional<double> available_memory() {
  std::ifstream file("/proc/meminfo");
  constexpr double kUnit = 1024;
  for (std::string key; file >> key;) {
    if (key == "MemAvailable:") {
      double kibibytes = 0;
      return file >> kibibytes ? std::optional(kibibytes * kUnit) : std::nullopt;
    }
  }
  return std::nullopt;
}

}  // namespace specdec
