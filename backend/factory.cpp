#include "backend/factory.h"

#include <fmt/format.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/error.h"
#include "backend/reference/reference_backend.h"

namespace specdec {

std::unique_ptr<Backend> make_backend(const BackendOptions& options) {
  if (options.name == "cpu") {
    const ThreadPool::Pin pin = options.pin ? ThreadPool::Pin::kToOwnCores : ThreadPool::Pin::kNone;
    return std::make_unique<CpuBackend>(options.isa, options.threads, pin, options.packed_cache);
  }
  if (options.name == "reference") {
    return std::make_unique<ReferenceBackend>();
  }
  if (options.name == "cuda") {
    return make_cuda_backend(options.cuda);
  }
  throw_bad_input(fmt::format("backend: found \"{}\", expected \"cpu\", \"reference\" or \"cuda\"", options.name));
}

}  // namespace specdec
