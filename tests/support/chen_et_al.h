#pragma once

#include "runtime/cost_model.h"
#include "runtime/hardware_load.h"
#include "tests/support/source_directory.h"

/// The machine and the pair of Chen et al. 2023.
namespace specdec::tests {

inline Hardware tpu() { return load_hardware((kSource / "configs/hardware/tpu-v4x16.yaml").string(), "test"); }

inline PredictedJob chinchilla(int ranks = 16, Placement placement = Placement::kSharded) {
  return {.target = load_model_config(kSource / "assets/shapes/chinchilla-70b"),
          .draft = load_model_config(kSource / "assets/shapes/chinchilla-4b"),
          .placement = placement,
          .ranks = ranks,
          .context = 256};
}

}  // namespace specdec::tests
