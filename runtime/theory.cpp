#include "runtime/theory.h"

#include "backend/error.h"

namespace specdec {

double tokens_per_loop(double alpha, std::int64_t k) {
  check(alpha >= 0.0 && alpha <= 1.0, "an acceptance rate is in [0, 1]");
  check(k >= 0, "K is not negative");
  // The geometric series itself, by Horner: the closed form loses its digits near alpha = 1 and is 0/0 there.
  double tokens = 1;
  for (std::int64_t i = 0; i < k; ++i) {
    tokens = 1 + alpha * tokens;
  }
  return tokens;
}

double speedup_of_loops(double tokens, double k, double c) {
  check(c >= 0.0, "a cost ratio is not negative");
  return tokens / (k * c + 1);
}

double operations_of_loops(double tokens, double k, double c_hat) {
  check(c_hat >= 0.0, "a cost ratio is not negative");
  return (k * c_hat + k + 1) / tokens;
}

double speedup_factor(double alpha, std::int64_t k, double c) {
  return speedup_of_loops(tokens_per_loop(alpha, k), static_cast<double>(k), c);
}

double operations_factor(double alpha, std::int64_t k, double c_hat) {
  return operations_of_loops(tokens_per_loop(alpha, k), static_cast<double>(k), c_hat);
}

std::int64_t best_k(double alpha, double c, std::int64_t max_k) {
  check(max_k >= 0, "K is not negative");
  std::int64_t best = 0;
  for (std::int64_t k = 1; k <= max_k; ++k) {
    if (speedup_factor(alpha, k, c) > speedup_factor(alpha, best, c)) {
      best = k;
    }
  }
  return best;
}

double alpha_from_tokens_per_loop(double tokens, std::int64_t k) {
  check(k >= 1, "without a draft every acceptance rate gives one token per loop");
  check(tokens >= 1.0 && tokens <= static_cast<double>(k) + 1, "a loop yields 1 to K + 1 tokens");
  // Equation 1 is strictly increasing in alpha; halving the interval until it has no midpoint gives the nearest
  // doubles.
  double low = 0;
  double high = 1;
  for (double middle = 0.5; low < middle && middle < high; middle = 0.5 * (low + high)) {
    (tokens_per_loop(middle, k) < tokens ? low : high) = middle;
  }
  return tokens_per_loop(low, k) >= tokens ? low : high;
}

}  // namespace specdec
