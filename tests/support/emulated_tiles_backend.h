#pragma once

#include <memory>
#include <utility>

#include "backend/cpu/matmul.h"
#include "backend/factory.h"
#include "backend/forwarding_backend.h"
#include "tests/support/emulated_tiles.h"

namespace specdec::tests {

/// The CPU backend with the kernel for tiles, on emulated ones. Weights are bf16.
class EmulatedTilesBackend final : public ForwardingBackend {
 public:
  using ForwardingBackend::ForwardingBackend;

  std::unique_ptr<PackedLinear> pack(const LinearSpec& spec) override {
    auto linear = std::make_unique<CpuPackedLinear>(spec, kMatmulEmulatedTiles);
    scratch_.reserve(*linear, pool_.size());
    return linear;
  }
  void matmul(const PackedLinear& weight, ConstRows x, Rows y, Stream /*stream*/) override {
    specdec::matmul(static_cast<const CpuPackedLinear&>(weight), x, y, scratch_, pool_);
  }

 private:
  MatmulScratch scratch_;
  ThreadPool pool_{1};
};

inline std::unique_ptr<Backend> make_emulated_tiles_backend() {
  return std::make_unique<EmulatedTilesBackend>(make_backend({.name = "cpu", .isa = detect_isa(), .threads = 1}));
}

}  // namespace specdec::tests
