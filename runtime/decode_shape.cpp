#include "runtime/decode_shape.h"

#include <fmt/format.h>

#include <map>
#include <set>
#include <vector>

#include "backend/error.h"
#include "models/config.h"
#include "models/limits.h"
#include "runtime/byte_sizes.h"
#include "runtime/parse_number.h"
#include "runtime/paths.h"
#include "runtime/round.h"
#include "runtime/suggestion.h"

namespace specdec {
namespace {

constexpr const char* kGap = "gap_us";
constexpr double kLongestGap = 1e6;
constexpr const char* kForm = "layers=32,d_model=4096[,vocab=32000][,gap_us=120] or a model's directory";

double parse_gap(std::string_view text, std::string_view flag) {
  const std::optional<double> value = parse_number<double>(text);
  if (!value || !(*value >= 0 && *value <= kLongestGap)) {
    throw_bad_input(
        fmt::format("{}: {}: found '{}', expected microseconds from 0 to {}", flag, kGap, text, kLongestGap));
  }
  return *value;
}

ModelShape shape_of_keys(std::string_view text, std::string_view flag) {
  ModelShape shape{.name = std::string(text)};
  const std::map<std::string, std::pair<std::int64_t*, std::int64_t>, std::less<>> counts = {
      {"layers", {&shape.layers, kMostLayers}},
      {"d_model", {&shape.d_model, kLargestWidth}},
      {"vocab", {&shape.vocabulary, kLargestVocabulary}}};
  std::set<std::string> given;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    const std::string key(part.substr(0, equals));
    const std::string_view value = equals == std::string_view::npos ? "" : part.substr(equals + 1);
    const auto count = counts.find(key);
    if (count == counts.end() && key != kGap) {
      const std::vector<std::string> keys = {"layers", "d_model", "vocab", kGap};
      throw_bad_input(fmt::format("{}: found '{}', expected {}{}", flag, part, kForm, suggestion(key, keys)));
    }
    if (!given.insert(key).second) throw_bad_input(fmt::format("{}: duplicate key '{}', expected it once", flag, key));
    if (key == kGap) {
      shape.gap_us = parse_gap(value, flag);
    } else {
      *count->second.first = parse_count(value, count->second.second, fmt::format("{}: {}", flag, key));
    }
  }
  if (shape.layers == 0 || shape.d_model == 0) {
    throw_bad_input(fmt::format("{}: found '{}' without {}, expected {}", flag, text,
                                shape.layers == 0 ? "layers" : "d_model", kForm));
  }
  shape.layer_parameters = 12 * shape.d_model * shape.d_model;
  return shape;
}

ModelShape shape_of_model(std::string_view text, std::string_view flag) {
  const ModelConfig model = load_model_config(find_model(text, {}, std::string(flag)));
  const std::int64_t attention = model.d_model * model.head_dim * 2 * (model.heads + model.kv_heads);
  const std::int64_t mlp = model.d_model * model.feed_forward * (model.mlp == MlpKind::kSwiGlu ? 3 : 2);
  return {.name = std::string(text),
          .layers = model.layers,
          .d_model = model.d_model,
          .vocabulary = model.vocabulary,
          .layer_parameters = attention + mlp,
          .gap_us = {}};
}

}  // namespace

std::string ModelShape::description() const {
  const std::string gap = gap_us ? fmt::format("{} us of compute before each all-reduce, as given", *gap_us)
                                 : std::string("before each all-reduce a rank reads its share of the bf16 weights");
  return fmt::format("{}: {} layers, d_model {}, vocabulary {}; {}", name, layers, d_model, vocabulary, gap);
}

DecodeShape ModelShape::decode(std::int64_t rows, int ranks) const {
  constexpr std::int64_t kWeightBytes = 2;
  DecodeShape shape{.layers = layers,
                    .elements = static_cast<std::size_t>(rows * d_model),
                    .round_bytes = RoundChannel::message_bytes(rows - 1)};
  if (gap_us) {
    shape.gap = *gap_us * 1e-6;
  } else {
    shape.layer_bytes = static_cast<std::size_t>(kWeightBytes * layer_parameters / ranks);
    shape.head_bytes = static_cast<std::size_t>(kWeightBytes * vocabulary * d_model / ranks);
  }
  return shape;
}

ModelShape parse_model_shape(std::string_view text, std::string_view flag) {
  return text.find('=') == std::string_view::npos ? shape_of_model(text, flag) : shape_of_keys(text, flag);
}

}  // namespace specdec
