#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/sampler.h"

namespace specdec {
namespace {

TEST(SamplerGolden, AgreesWithHuggingFaceWarpers) {
  std::ifstream file(std::filesystem::path(SPECDEC_SOURCE_DIR) / "tests/golden/sampler_golden.json");
  const nlohmann::json golden = nlohmann::json::parse(file);
  std::vector<std::vector<float>> rows;
  for (const auto& json_row : golden.at("rows")) {
    std::vector<float>& row = rows.emplace_back();
    for (const auto& value : json_row) {
      row.push_back(value.is_null() ? -std::numeric_limits<float>::infinity() : value.get<float>());
    }
  }
  ASSERT_EQ(golden.at("cases").size(), 50U);
  for (const auto& expected : golden.at("cases")) {
    SCOPED_TRACE(expected.dump());
    const std::vector<float>& logits = rows.at(expected.at("row").get<std::size_t>());
    const SamplingParams params{expected.at("temperature").get<float>(), expected.at("top_k").get<std::int32_t>(),
                                expected.at("top_p").get<float>()};
    std::vector<float> found(logits.size());
    Sampler(params).warp(logits, found);

    const float largest = *std::max_element(logits.begin(), logits.end()) / params.temperature;
    std::size_t next = 0;
    for (std::size_t x = 0; x < found.size(); ++x) {
      const bool kept = next < expected.at("kept").size() && expected.at("kept")[next].get<std::size_t>() == x;
      if (!kept) {
        EXPECT_EQ(found[x], 0.0F) << x;
        continue;
      }
      const auto probability = expected.at("probabilities")[next++].get<double>();
      if (probability < 1e-30) {
        EXPECT_LT(found[x], 2e-30F) << x;  // near the smallest floats relative errors mean nothing
        continue;
      }
      // Half an ulp each of z, max z and their difference move exp by their sizes; of the entry itself another four ulps: exp (2),
      // the sum and the division. The file has ten digits.
      const float z = logits[x] / params.temperature;
      const double size = std::abs(z) + std::abs(largest) + std::abs(z - largest);
      EXPECT_NEAR(found[x], probability, probability * ((size + 8) * 0x1p-24 + 1e-9)) << x;
    }
    EXPECT_EQ(next, expected.at("kept").size());
  }
}

}  // namespace
}  // namespace specdec
