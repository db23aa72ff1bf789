#include "tests/support/test_isa.h"

#include <cstdlib>
#include <string>

#include "backend/error.h"

namespace specdec::tests {

Isa test_isa() {
  const char* const name = std::getenv("SPECDEC_TEST_ISA");
  if (name == nullptr || *name == '\0') return detect_isa();
  const std::optional<Isa> isa = parse_isa(name);
  if (!isa || *isa > detect_isa()) {
    throw_bad_input(std::string("SPECDEC_TEST_ISA: found '") + name +
                    "', expected one of this machine, whose strongest is " + std::string(name_of(detect_isa())));
  }
  return *isa;
}

}  // namespace specdec::tests
