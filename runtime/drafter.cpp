#include "runtime/drafter.h"

namespace specdec {

void DraftBlock::clear() {
  tokens.clear();
  parent.clear();
  q.clear();
  q_rows = {};
  unread = nullptr;
  ahead = false;
  seconds = 0;
}

}  // namespace specdec
