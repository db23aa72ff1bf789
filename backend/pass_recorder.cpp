#include "backend/backend.h"

namespace specdec {
namespace {

class AtOnce final : public PassRecorder {
 public:
  void run(int /*variant*/, const RowChain& /*chain*/, const KvStore& /*kv*/,
           const std::function<void()>& operations) override {
    operations();
  }
};

}  // namespace

std::unique_ptr<PassRecorder> Backend::make_recorder() { return std::make_unique<AtOnce>(); }

}  // namespace specdec
