#include "runtime/pass_times_json.h"

#include <string>
#include <vector>

#include "runtime/units.h"

namespace specdec {
namespace {

using nlohmann::json;

std::vector<double> times(std::vector<double> values, double factor) {
  for (double& value : values) value *= factor;
  return values;
}

}  // namespace

json pass_times_json(const std::map<int, PassTimes>& all) {
  const auto ms = [](const std::vector<double>& seconds) { return times(seconds, kMsPerSecond); };
  json out = json::object();
  for (const auto& [ranks, of] : all) {
    out[std::to_string(ranks)] = {{"threads", of.threads},
                                  {"target_ms", ms(of.target)},
                                  {"target_after_smaller_ms", ms(of.target_after_smaller)},
                                  {"whole_target_ms", kMsPerSecond * of.whole_target},
                                  {"draft_ms", ms(of.draft)},
                                  {"draft_after_target_ms", kMsPerSecond * of.draft_after_target},
                                  {"in_own_cache_ms", kMsPerSecond * of.in_own_cache},
                                  {"filling_own_cache_ms", kMsPerSecond * of.filling_own_cache},
                                  {"own_cache_bytes", of.own_cache_bytes},
                                  {"layer_ms", kMsPerSecond * of.layer},
                                  {"beside_products_ms", kMsPerSecond * of.beside_products},
                                  {"after_more_keys_ms", ms(of.after_more_keys)},
                                  {"more_keys", of.more_keys},
                                  {"loop_ms", kMsPerSecond * of.beside.loop},
                                  {"loop_pass_ms", kMsPerSecond * of.beside.pass},
                                  {"drafted_ms", kMsPerSecond * of.beside.drafted},
                                  {"accepted_ms", kMsPerSecond * of.beside.accepted},
                                  {"scored_ms", ms(of.beside.scored)}};
  }
  return out;
}

PassTimes pass_times_from_json(const json& all, int ranks) {
  const json& of = all.at(std::to_string(ranks));
  const auto one = [&](const char* key) { return of.at(key).get<double>() / kMsPerSecond; };
  const auto by_rows = [&](const char* key) { return times(of.at(key).get<std::vector<double>>(), 1 / kMsPerSecond); };
  return {.threads = of.at("threads").get<int>(),
          .target = by_rows("target_ms"),
          .target_after_smaller = by_rows("target_after_smaller_ms"),
          .whole_target = one("whole_target_ms"),
          .draft = by_rows("draft_ms"),
          .draft_after_target = one("draft_after_target_ms"),
          .in_own_cache = one("in_own_cache_ms"),
          .filling_own_cache = one("filling_own_cache_ms"),
          .own_cache_bytes = of.at("own_cache_bytes").get<std::int64_t>(),
          .layer = one("layer_ms"),
          .beside_products = one("beside_products_ms"),
          .after_more_keys = by_rows("after_more_keys_ms"),
          .more_keys = of.at("more_keys").get<std::int64_t>(),
          .beside = {.loop = one("loop_ms"),
                     .pass = one("loop_pass_ms"),
                     .drafted = one("drafted_ms"),
                     .accepted = one("accepted_ms"),
                     .scored = by_rows("scored_ms")}};
}

}  // namespace specdec
