#include "models/rope.h"

#include <numbers>

#include "backend/elementary.h"

namespace specdec {
namespace {

/// Llama 3.1's scaling: long wavelengths are stretched by `factor`, short ones kept, those between blended.
float scale_llama3(const RopeConfig::Llama3& llama3, float frequency) {
  const auto original = static_cast<float>(llama3.original_context);
  const auto factor = static_cast<float>(llama3.factor);
  const auto low = static_cast<float>(llama3.low_freq_factor);
  const auto high = static_cast<float>(llama3.high_freq_factor);
  const float wavelength = static_cast<float>(2.0 * std::numbers::pi) / frequency;
  if (wavelength > original / low) {
    return frequency / factor;
  }
  if (wavelength < original / high) {
    return frequency;
  }
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0F - smooth) * frequency / factor + smooth * frequency;
}

std::vector<float> frequencies(const RopeConfig& rope, std::int64_t head_dim) {
  std::vector<float> all;
  for (std::int64_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const auto power = static_cast<float>(elementary::pow(rope.theta, static_cast<double>(exponent)));
    const float frequency = 1.0F / power / static_cast<float>(rope.linear_factor);
    all.push_back(rope.llama3 ? scale_llama3(*rope.llama3, frequency) : frequency);
  }
  return all;
}

}  // namespace

RopeTables rope_tables(const RopeConfig& rope, std::int64_t head_dim, std::int64_t positions) {
  const std::vector<float> frequency = frequencies(rope, head_dim);
  RopeTables tables;
  tables.cos.reserve(positions * frequency.size());
  tables.sin.reserve(positions * frequency.size());
  for (std::int64_t p = 0; p < positions; ++p) {
    for (const float f : frequency) {
      const auto angle = static_cast<double>(static_cast<float>(p) * f);
      const elementary::SinCos turn = elementary::sin_cos(angle);
      tables.cos.push_back(static_cast<float>(turn.cos));
      tables.sin.push_back(static_cast<float>(turn.sin));
    }
  }
  return tables;
}

}  // namespace specdec
