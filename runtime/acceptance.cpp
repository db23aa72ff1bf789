#include "runtime/acceptance.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/error.h"

namespace specdec {

std::string label_of(const AcceptanceChoice& choice) {
  return choice.synthetic ? fmt::format("acceptance: synthetic (alpha {})", choice.alpha) : "";
}

Token synthetic_next(RandomKey key, std::int64_t vocabulary) {
  key.purpose = Purpose::kGuess;
  return static_cast<Token>(uniform(key) * static_cast<double>(vocabulary));
}

SyntheticVerifier::SyntheticVerifier(double alpha) : alpha_(alpha) {
  check(alpha >= 0 && alpha <= 1, "an acceptance rate is from 0 to 1");
}

std::int64_t SyntheticVerifier::accept(const DraftedBlock& block, std::span<const double> uniforms) const {
  check(uniforms.size() == block.tokens.size(), "each drafted token has its uniform");
  return std::ranges::find_if(uniforms, [&](double u) { return !(u < alpha_); }) - uniforms.begin();
}

void SyntheticVerifier::next_weights(std::int64_t accepted, std::span<const float> p, std::span<const float> q,
                                     std::span<float> out) const {
  rule_.next_weights(accepted, p, q, out);
}

std::unique_ptr<Verifier> make_verifier(const AcceptanceChoice& choice) {
  if (choice.synthetic) return std::make_unique<SyntheticVerifier>(choice.alpha);
  return std::make_unique<TokenVerifier>();
}

}  // namespace specdec
