#include "runtime/verifier.h"

#include "backend/error.h"
#include "backend/sampler.h"

namespace specdec {

std::int64_t TokenVerifier::accept(const DraftedBlock& block, std::span<const double> uniforms) const {
  check(block.entries.size() == block.tokens.size() && uniforms.size() == block.tokens.size(),
        "each drafted token has its probabilities and its uniform");
  std::int64_t accepted = 0;
  for (std::size_t i = 0; i < block.entries.size(); ++i) {
    const auto [p, q] = block.entries[i];
    check(p >= 0.0F && q > 0.0F, "a drafted token has a probability under its draft");
    // Strictly less: u = 0 happens, and a token that the target excludes (p = 0) must not stand even then.
    if (!(uniforms[i] < static_cast<double>(p) / static_cast<double>(q))) {
      break;
    }
    ++accepted;
  }
  return accepted;
}

void TokenVerifier::next_weights(std::int64_t /*accepted*/, std::span<const float> p, std::span<const float> q,
                                 std::span<float> out) const {
  residual(p, q, out);
}

}  // namespace specdec
