#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <vector>

#include "tests/unit/verifier_enumeration.h"

/// Variations of the speculative step that look alike. Those that are wrong have each been shipped by somebody.
namespace specdec::enumeration {

enum class Fault : std::uint8_t {
  kNone,
  kInProbability,  ///< the distribution is another one
  /// It takes u = 0 exactly, which no probability over a continuum shows but a generator of multiples of 2^-53 does
  /// produce: then a token comes out that the target cannot make.
  kAtZeroOnly,
};

struct Procedure {
  const char* name;
  std::shared_ptr<const SpeculativeStep> step;
  Fault fault;

  friend std::ostream& operator<<(std::ostream& out, const Procedure& procedure) { return out << procedure.name; }
};

template <typename Step>
Procedure planted(const char* name, Fault fault = Fault::kInProbability) {
  return {name, std::make_shared<const Step>(), fault};
}

/// A token as an index.
inline std::size_t at(Token token) { return static_cast<std::size_t>(token); }

std::vector<Procedure> right_procedures();
// Wrong ones, by the part of the step that is wrong.
std::vector<Procedure> wrong_drafts();       ///< what is drafted, and the rows that are kept of it
std::vector<Procedure> wrong_acceptance();   ///< which drafted tokens stand
std::vector<Procedure> wrong_next_tokens();  ///< what is drawn after them

}  // namespace specdec::enumeration
