#include "models/rope.h"

#include <gtest/gtest.h>

#include <cmath>

namespace specdec {
namespace {

TEST(Rope, TurnsByPositionTimesFrequency) {
  const RopeTables tables = rope_tables({.theta = 10000.0, .llama3 = {}}, 8, 5);
  ASSERT_EQ(tables.cos.size(), 5U * 4U);
  for (int position = 0; position < 5; ++position) {
    for (int pair = 0; pair < 4; ++pair) {
      const double angle = position * std::pow(10000.0, -pair / 4.0);
      // The angle is a product rounded to fp32, of a frequency that three roundings made.
      EXPECT_NEAR(tables.cos[position * 4 + pair], std::cos(angle), 4 * 0x1p-24 * angle + 0x1p-24);
      EXPECT_NEAR(tables.sin[position * 4 + pair], std::sin(angle), 4 * 0x1p-24 * angle + 0x1p-24);
    }
  }
}

/// Values printed by transformers 5.23 (LlamaRotaryEmbedding, fp32), hexadecimal so that nothing is lost.
TEST(Rope, EqualsTransformers) {
  struct Golden {
    RopeConfig rope;
    std::int64_t head_dim;
    std::int64_t position;
    std::vector<float> cos;
    std::vector<float> sin;
  };
  const RopeConfig llama3{
      .theta = 500000.0,
      .llama3 =
          RopeConfig::Llama3{.factor = 8.0, .low_freq_factor = 1.0, .high_freq_factor = 4.0, .original_context = 8192}};
  const std::vector<Golden> all = {
      {{.theta = 10000.0, .llama3 = {}},
       8,
       511,
       {-0x1.e2ffca0000000p-2F, 0x1.57d33e0000000p-1F, 0x1.8c827c0000000p-2F, 0x1.be98520000000p-1F},
       {0x1.c377680000000p-1F, 0x1.7b60f60000000p-1F, -0x1.d80eea0000000p-1F, 0x1.f4c9780000000p-2F}},
      {llama3,
       16,
       9000,
       {-0x1.938c240000000p-1F, 0x1.323b8a0000000p-3F, 0x1.569bce0000000p-1F, -0x1.e2c8660000000p-1F,
        0x1.6fd2200000000p-7F, 0x1.e7d2f00000000p-1F, 0x1.ff15780000000p-1F, 0x1.fff72e0000000p-1F},
       {0x1.3b1bd20000000p-1F, -0x1.fa3e6e0000000p-1F, -0x1.7c7a500000000p-1F, 0x1.54f7c00000000p-2F,
        -0x1.fff7be0000000p-1F, 0x1.36f2060000000p-2F, 0x1.e9d77e0000000p-5F, 0x1.7c2f200000000p-7F}},
      {llama3,
       16,
       131071,
       {-0x1.a2cebc0000000p-1F, -0x1.1efde80000000p-1F, -0x1.fd809a0000000p-1F, 0x1.5ffeec0000000p-1F,
        0x1.e588240000000p-1F, -0x1.bd379e0000000p-3F, 0x1.49a0180000000p-1F, 0x1.f8b5440000000p-1F},
       {-0x1.2686140000000p-1F, 0x1.a8011e0000000p-1F, 0x1.9416620000000p-4F, 0x1.73cf760000000p-1F,
        -0x1.44fab40000000p-2F, -0x1.f3c15a0000000p-1F, 0x1.87c7880000000p-1F, 0x1.5869a80000000p-3F}},
      {{.theta = 300.0, .llama3 = {}, .linear_factor = 2.0},
       8,
       47,
       {-0x1.fb20d00000000p-5F, 0x1.9bb7820000000p-1F, 0x1.b2fb2a0000000p-3F, 0x1.e508440000000p-1F},
       {-0x1.ff049c0000000p-1F, -0x1.305b6c0000000p-1F, 0x1.f451800000000p-1F, 0x1.47f3000000000p-2F}},
  };
  for (const Golden& golden : all) {
    const RopeTables tables = rope_tables(golden.rope, golden.head_dim, golden.position + 1);
    const std::int64_t pairs = golden.head_dim / 2;
    for (std::int64_t pair = 0; pair < pairs; ++pair) {
      // One unit in the last place of a frequency moves the angle by position * frequency * 2^-23, and torch's power may differ by one; a cosine or
      // sine adds its own rounding.
      const double slack = static_cast<double>(golden.position) *
                               std::pow(golden.rope.theta, -static_cast<double>(pair) / static_cast<double>(pairs)) *
                               0x1p-23 +
                           0x1p-24;
      EXPECT_NEAR(tables.cos[golden.position * pairs + pair], golden.cos[pair], slack)
          << golden.position << " " << pair;
      EXPECT_NEAR(tables.sin[golden.position * pairs + pair], golden.sin[pair], slack)
          << golden.position << " " << pair;
    }
  }
}

}  // namespace
}  // namespace specdec
