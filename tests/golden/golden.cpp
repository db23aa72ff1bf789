#include "tests/golden/golden.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "backend/error.h"
#include "backend/factory.h"
#include "backend/int8.h"
#include "models/checkpoint.h"
#include "models/transformer.h"
#include "parallel/thread_communicator.h"
#include "tests/support/test_isa.h"

namespace specdec::golden {

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kModels)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::map<std::string, std::vector<float>> read_values(const std::filesystem::path& directory) {
  const Checkpoint checkpoint(directory);
  std::map<std::string, std::vector<float>> values;
  for (const auto& [name, view] : checkpoint.tensors()) {
    const std::int64_t elements =
        std::accumulate(view.shape.begin(), view.shape.end(), std::int64_t{1}, std::multiplies<>());
    for (std::int64_t i = 0; i < elements; ++i) {
      values[name].push_back(load_as_float(view.data, view.dtype, i));
    }
  }
  return values;
}

std::vector<Token> as_tokens(const std::vector<float>& values) {
  std::vector<Token> tokens;
  tokens.reserve(values.size());
  for (const float value : values) {
    tokens.push_back(static_cast<Token>(value));
  }
  return tokens;
}

Result run_model(const std::filesystem::path& directory, const std::vector<Token>& tokens, const Way& way) {
  const auto total = static_cast<std::int64_t>(tokens.size());
  const std::int64_t first = way.first_block == 0 ? total : way.first_block;
  const ModelConfig config = load_model_config(directory);
  Result result;
  run_ranks(way.ranks, [&](Communicator& group) {
    const Stream stream;
    const Checkpoint checkpoint(directory);
    std::unique_ptr<Backend> backend =
        make_backend({.name = way.backend, .isa = tests::test_isa(), .threads = way.threads});
    if (way.replace_backend) {
      backend = way.replace_backend(std::move(backend), group.rank());
    }
    Transformer model(config, checkpoint, *backend, group,
                      {.dtype = way.dtype, .max_rows = std::max(first, way.block), .prefill_rows = 1});
    KvCache cache = model.make_cache();
    for (std::int64_t done = 0; done < total;) {
      const std::int64_t count = std::min(done == 0 ? first : way.block, total - done);
      std::vector<std::int32_t> position(count);
      std::vector<std::int32_t> parent(count);
      std::iota(position.begin(), position.end(), static_cast<std::int32_t>(done));
      std::iota(parent.begin(), parent.end(), -1);
      const ConstRows logits =
          model.forward({std::span(tokens).subspan(done, count), position, parent}, cache, LogitRows::kAll, stream);
      cache.commit_prefix(count);
      std::vector<Token> best(count);
      std::vector<RowSum> sums(count);
      std::vector<float> rows(group.rank() == 0 ? count * config.vocabulary : 0);
      model.head().argmax(logits, best, stream);
      model.head().sums(logits, 1.0F, {}, sums, {}, stream);
      model.head().gather_rows(logits, rows, stream);
      if (group.rank() == 0) {
        result.logits.insert(result.logits.end(), rows.begin(), rows.end());
        result.argmax.insert(result.argmax.end(), best.begin(), best.end());
        for (const RowSum& sum : sums) {
          result.logsumexp.push_back(sum.max + std::log(sum.sum));
        }
      }
      done += count;
    }
  });
  return result;
}

std::vector<Case> all_cases() {
  std::vector<Case> all;
  for (const std::string& model : model_names()) {
    for (const std::string backend : {"reference", "cpu"}) {
      all.push_back({model, backend, DType::kF32});
      all.push_back({model, backend, DType::kBF16});
      all.push_back({model, backend, DType::kInt8});
    }
  }
  return all;
}

std::string name_of(const Case& c) {
  std::string name = c.model + "_" + c.backend + "_" + std::string(name_of(c.dtype));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

bool splits(const ModelConfig& config, int ranks) {
  try {
    ShardPlan(config.shard_shape(), 0, ranks);
  } catch (const Error&) {
    return false;
  }
  return true;
}

double rounding_bound(const ModelConfig& config, const std::vector<float>& logits) {
  const std::int64_t terms = std::max({config.d_model, config.feed_forward, config.heads * config.head_dim});
  double largest = 0;
  for (const float logit : logits) {
    largest = std::max(largest, std::abs(static_cast<double>(logit)));
  }
  return 4.0 * 0x1p-24 * std::sqrt(static_cast<double>((2 * config.layers + 1) * terms)) * largest;
}

double rounding_error(DType dtype) {
  if (dtype == DType::kBF16) {
    // The spacing is 2^-7 in [1, 2); 3 / (8 ln 2) is the mean of 1 / m^2 over significands m that are uniform in log m.
    return 0x1p-7 * std::sqrt(3.0 / (8.0 * std::numbers::ln2) / 12.0);
  }
  // The spacing is the largest of 128 over 127; the mean of the largest magnitude of n normal numbers is at most sqrt(2 ln 2n) of their deviations.
  return std::sqrt(2.0 * std::log(2.0 * kInt8Group)) / 127.0 / std::sqrt(12.0);
}

double rounded_bound(const ModelConfig& config, DType dtype, const std::vector<float>& logits) {
  double squares = 0;
  for (const float logit : logits) {
    squares += static_cast<double>(logit) * static_cast<double>(logit);
  }
  const auto count = static_cast<double>(logits.size());
  const double deviation =
      rounding_error(dtype) * std::sqrt(2.0 * static_cast<double>(4 * config.layers + 1)) * std::sqrt(squares / count);
  return deviation * std::sqrt(2.0 * std::log(count / 1e-6));
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0.0 : std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = difference <= largest ? largest : difference;  // a NaN is not small
  }
  return largest;
}

}  // namespace specdec::golden
