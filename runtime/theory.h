#pragma once

#include <cstdint>

/// What Leviathan et al. 2023 (arXiv 2211.17192) predict. alpha = E[beta] in [0, 1] is the acceptance rate of a
/// position that is reached, beta = sum_x min(p(x), q(x)); K the number of drafted tokens; c the time of one draft pass
/// over that of one target pass, c^ the same in operations. All functions throw kInternal for arguments outside their
/// domain.
namespace specdec {

/// Equation 1: expected tokens per loop, (1 - alpha^(K+1)) / (1 - alpha), in [1, K + 1]; K + 1 at alpha = 1.
double tokens_per_loop(double alpha, std::int64_t k);

/// Theorem 3.8: expected factor by which wall-clock time shrinks, tokens_per_loop / (K c + 1).
double speedup_factor(double alpha, std::int64_t k, double c);

/// Theorem 3.11: expected factor by which the number of operations grows, (K c^ + K + 1) / tokens_per_loop.
double operations_factor(double alpha, std::int64_t k, double c_hat);

/// Both theorems for `tokens` a loop, eq. 1's or the mean of eq. 1 over loops of several K, and `k` drafted tokens a loop, their mean.
double speedup_of_loops(double tokens, double k, double c);
double operations_of_loops(double tokens, double k, double c_hat);

/// The K in [0, max_k] with the largest theorem 3.8 factor; the smallest such K on a tie, since larger ones raise the
/// variance.
std::int64_t best_k(double alpha, double c, std::int64_t max_k);

/// Inverts equation 1: the alpha at which a loop of K >= 1 drafted tokens yields `tokens` in [1, K + 1].
double alpha_from_tokens_per_loop(double tokens, std::int64_t k);

}  // namespace specdec
