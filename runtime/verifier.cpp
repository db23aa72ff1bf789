#include "runtime/verifier.h"

#include <algorithm>

#include "backend/error.h"

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
  check(out.size() == p.size() && (q.empty() || q.size() == p.size()), "the rows of a residual are equally long");
  int left = 0;
  for (std::size_t x = 0; x < q.size(); ++x) {
    left |= static_cast<int>(p[x] > q[x]);
  }
  if (left == 0) {
    // The bonus token, or a residual that vanished. A token was rejected because p < q there, so exact rows would have
    // p > q elsewhere; only rows that are equal up to the rounding of their sums have not. Rejection itself then has no
    // more probability than that rounding, so whatever is drawn moves the output by no more either; p keeps it inside
    // the target's support.
    if (out.data() != p.data()) {
      std::copy(p.begin(), p.end(), out.begin());
    }
    return;
  }
  for (std::size_t x = 0; x < p.size(); ++x) {
    out[x] = std::max(p[x] - q[x], 0.0F);
  }
}

}  // namespace specdec
