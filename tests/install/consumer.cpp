// Uses one thing from each installed library, so that a missing header, archive or dependency does not pass.
#include <iostream>

#include "backend/dtype.h"
#include "backend/error.h"
#include "models/config.h"
#include "parallel/shard_plan.h"
#include "runtime/philox.h"
#include "runtime/version.h"

int main() {
  const double u = specdec::uniform({.seed = 1, .sequence = 2, .round = 3, .position = 4});
  if (!(u >= 0.0 && u < 1.0)) return 1;
  const specdec::Token token = 7;
  try {
    specdec::throw_bad_input("consumer: as meant");
  } catch (const specdec::Error& error) {
    std::cout << specdec::version_text("consumer") << '\n' << error.what() << ' ' << token << '\n';
    return 0;
  }
  return 1;
}
