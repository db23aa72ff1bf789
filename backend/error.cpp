#include "backend/error.h"

namespace specdec {

void throw_bad_input(const std::string& message, std::source_location where) {
  throw Error(ErrorKind::kBadInput, message, where);
}

void check(bool holds, std::string_view what, std::source_location where) {
  if (!holds) {
    throw Error(ErrorKind::kInternal, std::string(what), where);
  }
}

}  // namespace specdec
