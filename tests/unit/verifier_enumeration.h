#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "models/config.h"
#include "runtime/verifier.h"

/// Computes exactly what one speculative step emits: every outcome of every uniform is tried and weighed, so a
/// distribution comes out and not a sample. Rows have dyadic entries, exact in float, so the only rounding left is that
/// of double quotients, about 1e-16.
namespace specdec::enumeration {

using Row = std::vector<float>;
using Sequence = std::vector<Token>;
/// Probability of each sequence.
using Distribution = std::map<Sequence, double>;

/// A target and a draft over a small vocabulary whose rows depend on the position and the last token, so that a row
/// taken from the wrong place shows.
struct World {
  std::string name;
  std::int64_t vocabulary = 0;
  std::vector<Row> rows_p;  ///< any number; picked in turn by position and last token
  std::vector<Row> rows_q;

  /// Distribution of the token that follows `prefix`.
  const Row& p(const Sequence& prefix) const { return pick(rows_p, prefix); }
  const Row& q(const Sequence& prefix) const { return pick(rows_q, prefix); }

 private:
  static const Row& pick(const std::vector<Row>& rows, const Sequence& prefix);
};

/// Where in each interval of constant outcome the uniform is put. The outcome must not depend on it. kLow includes
/// exactly 0 and kHigh exactly 1 - 2^-53, the ends of what the generator gives.
enum class Representative : std::uint8_t { kLow, kMiddle, kHigh };

/// The uniforms of a step, one outcome after another: a step that asks for them is run again until all outcomes have
/// been seen.
class Uniforms {
 public:
  explicit Uniforms(Representative where) : where_(where) {}

  /// The next uniform. `breakpoints`: where the caller's decision may change, in any order; those outside (0, 1) do not
  /// matter.
  double next(std::vector<double> breakpoints);

  /// Probability of this outcome of all uniforms that were asked for.
  double weight() const;
  /// Moves to the next outcome; false when there is none.
  bool advance();

 private:
  struct Digit {
    std::vector<double> edges;  ///< 0, breakpoints, 1
    std::size_t interval = 0;
  };
  Representative where_;
  std::vector<Digit> digits_;
  std::size_t asked_ = 0;
};

/// A token drawn with the program's own draw().
Token draw_token(const Row& weights, Uniforms& uniforms);
/// The values of u at which draw() changes its mind.
std::vector<double> breakpoints_of_draw(const Row& weights);

/// Drafted tokens and the rows that belong to them.
struct Block {
  Sequence tokens;     ///< [K], fewer if the draft stopped early
  std::vector<Row> q;  ///< [K]
  std::vector<Row> p;  ///< [K + 1]
};

/// "Draft K tokens from q, verify, emit", cut into the parts that a wrong procedure replaces. This one is right: it
/// calls the program's verifier and draw.
class SpeculativeStep {
 public:
  virtual ~SpeculativeStep() = default;
  virtual Sequence run(const World& world, std::int64_t k, Uniforms& uniforms) const;

 protected:
  virtual Block draft(const World& world, std::int64_t k, Uniforms& uniforms) const;
  virtual std::int64_t accept(const Block& block, Uniforms& uniforms) const;
  virtual Row next_weights(const Block& block, std::int64_t accepted) const;
  virtual Token next_token(const Row& weights, Uniforms& uniforms) const { return draw_token(weights, uniforms); }

 private:
  TokenVerifier verifier_;
};

/// Distribution of the first K + 1 tokens: what the step emits, continued by the target alone.
Distribution speculative_distribution(const SpeculativeStep& step, const World& world, std::int64_t k,
                                      Representative where);
/// The same from the target alone.
Distribution target_distribution(const World& world, std::int64_t length);
double total_variation(const Distribution& a, const Distribution& b);

/// The worst over worlds and K.
struct Verdict {
  double total_variation = 0;  ///< to the target
  double spread = 0;           ///< between representatives: not 0 if an outcome changes where no breakpoint was named
  bool left_support = false;   ///< some outcome of the uniforms gave a sequence that the target cannot make
  std::string where;           ///< the first case that is not exact

  bool exact() const { return total_variation <= 1e-12 && spread <= 1e-12 && !left_support; }
};
Verdict judge(const SpeculativeStep& step);

/// All rows of `vocabulary` entries that are multiples of 1/denominator and sum to 1.
std::vector<Row> dyadic_rows(std::int64_t vocabulary, int denominator);
/// Vocabularies 2 to 4: every pair of rows with quarters once as the first row; zeros, disjoint supports, p == q and
/// point masses included.
std::vector<World> worlds();

}  // namespace specdec::enumeration
