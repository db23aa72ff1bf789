#pragma once

#include "backend/cpu/isa.h"

namespace specdec::tests {

/// The instruction set that tests of whole models run on: the one that SPECDEC_TEST_ISA names, by which tests/run.sh forces each of the machine's in turn, else the strongest. Throws
/// kBadInput for one that the machine lacks.
Isa test_isa();

}  // namespace specdec::tests
