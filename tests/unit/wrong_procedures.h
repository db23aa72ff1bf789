#pragma once

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

std::vector<Procedure> right_procedures();
std::vector<Procedure> wrong_procedures();

}  // namespace specdec::enumeration
