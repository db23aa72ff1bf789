#include "runtime/forced_label.h"

#include "models/random_tensors.h"
#include "runtime/acceptance.h"

namespace specdec {

std::string forced_label(const RunConfig& config) {
  std::string text;
  for (const std::string& label : {label_of(config.weights), label_of(config.acceptance)}) {
    if (!label.empty()) text += (text.empty() ? "" : ", ") + label;
  }
  return text;
}

}  // namespace specdec
