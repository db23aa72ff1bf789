#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

/// Elementary functions whose bits depend on nothing but their argument: no libm (which dispatches by CPU), no table,
/// no branch on the instruction set. What is fused is written as fused; the compiler contracts nothing
/// (docs/numerics.md, rule 5).
///
/// The float functions are templates over a lane type V, so that vector code runs the very same sequence of operations
/// as scalar code. V = float is the scalar form; the vector types of backend/cpu/lanes_*.h are the others. A lane type
/// has V(float), + - * /, unary -, a comparison < that gives a mask, and the three functions below. Errors are in units
/// in the last place (ulp) of the exact result, found over all floats of a range or a fine net of them
/// (tests/unit/elementary_test.cpp).
namespace specdec::elementary {

// --- What a lane type must offer, for V = float ---------------------------------------------------

/// a * b + c, rounded once.
constexpr float fused(float a, float b, float c) { return std::fma(a, b, c); }
constexpr float select(bool mask, float if_true, float if_false) { return mask ? if_true : if_false; }
/// value * 2^n, where n is what the low bits of `shifter` hold after kRoundToInteger was added to it.
constexpr float scale_by_low_bits(float value, float shifter) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) + (std::bit_cast<std::uint32_t>(shifter) << 23));
}

/// 1.5 * 2^23: a float of magnitude below 2^22, added to it, is rounded to an integer that stands in the low bits of
/// the sum.
inline constexpr float kRoundToInteger = 0x1.8p23F;

/// e^x; at most 1.01 ulp off. Below -87.3 (e^x < 2^-125.9) it is 0, so a subnormal is never made; above 88.72283 it is
/// infinite.
template <typename V>
constexpr V exp(V x) {
  // x = n ln 2 + r, |r| <= ln(2) / 2; ln 2 in two floats, so that r is good to a few units of 2^-48.
  const V shifter = fused(x, V(0x1.715476p0F), V(kRoundToInteger));
  const V n = shifter - V(kRoundToInteger);
  V r = fused(n, V(-0x1.62e430p-1F), x);
  r = fused(n, V(0x1.05c610p-29F), r);
  // e^r = 1 + r + r^2 q(r), q minimax in the relative error of e^r: 3.1e-9.
  V q = fused(V(0x1.6a2430p-10F), r, V(0x1.1239e4p-7F));
  q = fused(q, r, V(0x1.5558f2p-5F));
  q = fused(q, r, V(0x1.555492p-3F));
  q = fused(q, r, V(0x1.fffffcp-2F));
  const V power = fused(q, r * r, r) + V(1.0F);
  V result = scale_by_low_bits(power, shifter);
  result = select(x < V(-87.3F), V(0.0F), result);
  result = select(V(88.72283F) < x, V(__builtin_inff()), result);
  return select(x < V(__builtin_inff()), result, x);  // NaN and infinity
}

/// tanh x; at most 1.5 ulp off. Odd.
template <typename V>
constexpr V tanh(V x) {
  const V magnitude = select(x < V(0.0F), -x, x);
  const V far = V(1.0F) - V(2.0F) / (exp(magnitude + magnitude) + V(1.0F));
  // Near zero 1 - 2/(...) cancels: tanh x = x + x^3 p(x^2), p minimax in the relative error over |x| < 0.625: 4.4e-9.
  const V square = x * x;
  V p = fused(V(-0x1.75e1dcp-8F), square, V(0x1.52269ep-6F));
  p = fused(p, square, V(-0x1.b83c5ap-5F));
  p = fused(p, square, V(0x1.110726p-3F));
  p = fused(p, square, V(-0x1.555532p-2F));
  const V near = fused(p * square, x, x);
  return select(magnitude < V(0.625F), near, select(x < V(0.0F), -far, far));
}

/// x / (1 + e^-x): the gate of SwiGLU.
template <typename V>
constexpr V silu(V x) {
  return x / (V(1.0F) + exp(-x));
}

/// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): GPT-2's "gelu_new".
template <typename V>
constexpr V gelu_tanh(V x) {
  const V cubic = fused(V(0.044715F) * (x * x), x, x);
  const V half = V(0.5F) * x;
  return fused(half, tanh(V(0.7978845608F) * cubic), half);
}

// --- Double precision, scalar: tables of rotary embedding -----------------------------------------

/// e^x; at most 1 ulp off for -708 <= x <= 709. Below that it is 0, above it infinite.
constexpr double exp(double x) {
  if (!(x < 0x1.62e42fefa39efp9)) {
    return x == x ? __builtin_inf() : x;
  }
  if (x < -708.0) {
    return 0.0;
  }
  constexpr double kShift = 0x1.8p52;
  const double shifter = std::fma(x, 0x1.71547652b82fep0, kShift);
  const double n = shifter - kShift;
  double r = std::fma(n, -0x1.62e42fefa39efp-1, x);
  r = std::fma(n, -0x1.abc9e3b39803fp-56, r);
  // Taylor's series to r^13: the rest is below 5e-18 for |r| <= ln(2) / 2.
  double sum = 0.0;
  for (int k = 13; k >= 2; --k) {
    sum = (sum + 1.0) * r / k;
  }
  const double power = 1.0 + std::fma(sum, r, r);
  // Two steps, since 2^1024 is no double.
  const auto exponent = static_cast<std::int64_t>(n);
  const std::int64_t first = exponent / 2;
  const auto power_of_two = [](std::int64_t e) {
    return std::bit_cast<double>(static_cast<std::uint64_t>(e + 1023) << 52);
  };
  return power * power_of_two(first) * power_of_two(exponent - first);
}

/// Natural logarithm of a normal x > 0; at most 2 ulp off.
constexpr double log(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  // x = 2^e m with m in [sqrt(1/2), sqrt(2)).
  const std::uint64_t shifted = bits - 0x3fe6a09e667f3bcdULL;
  const auto e = static_cast<double>(static_cast<std::int64_t>(shifted) >> 52);
  const auto m = std::bit_cast<double>(bits - (shifted & 0xfff0000000000000ULL));
  // log m = 2 atanh(f / (2 + f)) with f = m - 1, in the form f - s (f - z (...)) that keeps f exact.
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double z = s * s;
  double series = 0.0;  // z/3 + z^2/5 + ...; the rest after z^11 is below 1e-18
  for (int k = 11; k >= 1; --k) {
    series = z * (series + 1.0 / (2 * k + 1));
  }
  const double tail = std::fma(-s, f - 2.0 * series, e * 0x1.3de6af278ece6p-42);
  return std::fma(e, 0x1.62e42fefa3000p-1, f + tail);
}

/// x^y for a normal x > 0: exp(y log x), off by at most (2 + 3 |y log x|) ulp.
constexpr double pow(double x, double y) { return exp(y * log(x)); }

struct SinCos {
  double sin = 0;
  double cos = 0;
};

/// sin and cos of x, at most 1.5 ulp off for |x| <= 2^20: pi/2 is taken off in three parts, the first of them without
/// error.
constexpr SinCos sin_cos(double x) {
  constexpr double kShift = 0x1.8p52;
  const double n = std::fma(x, 0x1.45f306dc9c883p-1, kShift) - kShift;
  double r = std::fma(n, -0x1.921fb54442d18p0, x);
  r = std::fma(n, -0x1.1a62633145c07p-54, r);
  r = std::fma(n, 0x1.f1976b8p-110, r);
  const double square = r * r;
  // Taylor's series: the rest after r^19 and r^18 is below 1e-19 for |r| <= pi/4.
  double s = 0.0;
  for (int k = 18; k >= 2; k -= 2) {
    s = (s + 1.0) * -square / (k * (k + 1));
  }
  double c = 0.0;
  for (int k = 18; k >= 4; k -= 2) {
    c = (c + 1.0) * -square / (k * (k - 1));
  }
  const double sine = std::fma(r, s, r);
  const double half = 0.5 * square;
  const double cosine = 1.0 - std::fma(half, c, half);
  switch (static_cast<std::int64_t>(n) & 3) {
    case 0:
      return {sine, cosine};
    case 1:
      return {cosine, -sine};
    case 2:
      return {-sine, -cosine};
    default:
      return {-cosine, sine};
  }
}

}  // namespace specdec::elementary
