#include "runtime/placement_ranks.h"

#include <fmt/format.h>

#include "backend/error.h"

namespace specdec {

void require_target_ranks(Placement placement, int ranks, std::string_view place) {
  if (target_ranks(placement, ranks) < 1) {
    throw_bad_input(fmt::format("{}: found {} with 1 rank, expected at least 2: the last one only drafts", place,
                                name_of(placement)));
  }
}

}  // namespace specdec
