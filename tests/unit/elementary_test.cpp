#include "backend/elementary.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/support/odd_floats.h"

namespace specdec {
namespace {

using tests::kInfinity;

/// |value - exact| in units in the last place of the float nearest to `exact`.
double ulps(float value, double exact) {
  const double unit = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(value) - exact) / unit;
}

double ulps(double value, long double exact) {
  const long double unit = std::ldexp(1.0L, std::ilogb(exact) - 52);
  return static_cast<double>(std::abs(static_cast<long double>(value) - exact) / unit);
}

// A prime stride visits every exponent and all residues of the mantissa; 1 visits every float (done once, same maxima).
constexpr std::uint32_t kStride = 199;

/// Largest error of `function` over floats in [from, to], both of one sign.
template <typename Function, typename Exact>
double largest_error(float from, float to, Function function, Exact exact) {
  auto first = std::bit_cast<std::uint32_t>(from);
  auto last = std::bit_cast<std::uint32_t>(to);
  if (first > last) {
    std::swap(first, last);
  }
  double worst = 0;
  for (std::uint64_t bits = first; bits <= last; bits += kStride) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    worst = std::max(worst, ulps(function(x), exact(static_cast<double>(x))));
  }
  return worst;
}

TEST(Elementary, ExpIsWithinItsBound) {
  const auto mine = [](float x) { return elementary::exp(x); };
  const auto exact = [](double x) { return std::exp(x); };
  EXPECT_LE(largest_error(-0.0F, -87.3F, mine, exact), 1.01);
  EXPECT_LE(largest_error(0.0F, 88.72283F, mine, exact), 1.01);
}

TEST(Elementary, ExpAtTheEdges) {
  EXPECT_EQ(elementary::exp(0.0F), 1.0F);
  EXPECT_EQ(elementary::exp(-0.0F), 1.0F);
  EXPECT_EQ(elementary::exp(-kInfinity), 0.0F);
  EXPECT_EQ(elementary::exp(kInfinity), kInfinity);
  EXPECT_EQ(elementary::exp(-1e30F), 0.0F);
  EXPECT_EQ(elementary::exp(std::nextafter(-87.3F, -kInfinity)), 0.0F);
  EXPECT_GE(elementary::exp(-87.3F), std::numeric_limits<float>::min());
  EXPECT_TRUE(std::isfinite(elementary::exp(88.72283F)));
  EXPECT_EQ(elementary::exp(std::nextafter(88.72283F, kInfinity)), kInfinity);
  EXPECT_EQ(elementary::exp(1e30F), kInfinity);
  EXPECT_TRUE(std::isnan(elementary::exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Elementary, TanhIsWithinItsBoundAndOdd) {
  const auto mine = [](float x) { return elementary::tanh(x); };
  const auto exact = [](double x) { return std::tanh(x); };
  EXPECT_LE(largest_error(std::numeric_limits<float>::min(), 20.0F, mine, exact), 1.5);
  for (float x = 1e-6F; x < 30.0F; x *= 1.01F) {
    EXPECT_EQ(elementary::tanh(-x), -elementary::tanh(x));
  }
  EXPECT_EQ(elementary::tanh(kInfinity), 1.0F);
  EXPECT_EQ(elementary::tanh(-kInfinity), -1.0F);
  EXPECT_TRUE(std::isnan(elementary::tanh(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Elementary, Activations) {
  // silu: exp is within 1 ulp, then an addition and a division: 2.5 ulp where e^-x does not overflow.
  for (float x = -87.0F; x < 87.0F; x += 0.0371F) {
    const double z = x;
    EXPECT_LE(ulps(elementary::silu(x), z / (1.0 + std::exp(-z))), 3.0) << x;
    // gelu: for x < 0, 1 + tanh cancels; what is left is the error of tanh near -1, absolute.
    const double gelu = 0.5 * z * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (z + 0.044715 * z * z * z)));
    EXPECT_NEAR(elementary::gelu_tanh(x), gelu, std::abs(z) * 4 * 0x1p-24 + 0x1p-126) << x;
  }
  EXPECT_EQ(elementary::silu(0.0F), 0.0F);
  EXPECT_EQ(elementary::gelu_tanh(0.0F), 0.0F);
  EXPECT_EQ(elementary::silu(-100.0F), 0.0F);
  EXPECT_EQ(elementary::gelu_tanh(-100.0F), 0.0F);
}

TEST(Elementary, DoubleExpAndLog) {
  double worst_exp = 0;
  for (double x = -708.0; x < 709.0; x += 0.00731) {
    worst_exp = std::max(worst_exp, ulps(elementary::exp(x), std::exp(static_cast<long double>(x))));
  }
  EXPECT_LE(worst_exp, 1.0);
  double worst_log = 0;
  for (double x = 1e-300; x < 1e300; x *= 1.0013) {
    worst_log = std::max(worst_log, ulps(elementary::log(x), std::log(static_cast<long double>(x))));
  }
  for (double x = 0.5; x < 2.0; x += 0.0000137) {
    worst_log = std::max(worst_log, ulps(elementary::log(x), std::log(static_cast<long double>(x))));
  }
  EXPECT_LE(worst_log, 2.0);
  EXPECT_EQ(elementary::log(1.0), 0.0);
  EXPECT_EQ(elementary::exp(0.0), 1.0);
  EXPECT_EQ(elementary::exp(-1000.0), 0.0);
  EXPECT_EQ(elementary::exp(1000.0), std::numeric_limits<double>::infinity());
}

TEST(Elementary, PowMakesRotaryFrequencies) {
  for (const double theta : {1e4, 5e5, 1e6, 10.0}) {
    for (const int dim : {2, 32, 64, 128, 256}) {
      for (int i = 0; i < dim; i += 2) {
        const double y = -static_cast<double>(i) / dim;
        const long double exact = std::pow(static_cast<long double>(theta), static_cast<long double>(y));
        EXPECT_LE(ulps(elementary::pow(theta, y), exact), 2.0 + 3.0 * std::abs(y * std::log(theta)));
      }
    }
  }
}

TEST(Elementary, SinCosOverTheRangeOfPositions) {
  double worst = 0;
  const auto compare = [&worst](double x) {
    const auto mine = elementary::sin_cos(x);
    worst = std::max(worst, ulps(mine.sin, std::sin(static_cast<long double>(x))));
    worst = std::max(worst, ulps(mine.cos, std::cos(static_cast<long double>(x))));
  };
  for (double x = -0x1p20; x < 0x1p20; x += 3.00719) {
    compare(x);
  }
  for (double x = 1e-9; x < 10.0; x *= 1.00031) {
    compare(x);
    compare(-x);
  }
  // The doubles nearest to multiples of pi/2, where the result is nearly all cancellation.
  for (double n = 1; n < 600000; n += 37) {
    compare(n * M_PI_2);
  }
  EXPECT_LE(worst, 1.5);
  EXPECT_EQ(elementary::sin_cos(0.0).sin, 0.0);
  EXPECT_EQ(elementary::sin_cos(0.0).cos, 1.0);
}

}  // namespace
}  // namespace specdec
